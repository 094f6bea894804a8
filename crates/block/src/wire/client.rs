//! Requests of clients to stores, and the responses.
//!
//! ```text
//!   request:  0+1 what  1+3 zero  4+4 group  8+8 tree  16+8 layer  24+4 epoch  28+4 chunk  32+8 attachment
//!             40+8 seq  48+8 lowest seq still open  56+4 offset  60+4 len  64+4 × n: crcs of a write
//!   response: 0+1 what  1+1 reason  2+2 zero  4+4 n, then by what it is
//!     data:     4 × n: len of a piece, with bit 31 where it is a hole; then the crcs, 4 each
//!     status:   4 × n: len of a run, with bit 31 where it is a hole, bit 30 where it reads as zeros
//!     refused:  not the leader: n = 1, 8 the store to ask; or n = 0
//!               fenced: n = the epoch;   I/O: n = bytes of a text, the text
//! ```
//!
//! Offsets and lengths are bytes of the chunk: the leader merges parts of blocks. The id of a request is that
//! of its frame.
//!
//! **Crcs.** Bytes are cut at block boundaries, and each part has the CRC-32C of its bytes. The crc of a whole
//! block is the block's crc, which is computed once, at the source of the bytes.

use base::checksum::crc32c;
use base::coding::{Decoder, put_u32, put_u64};
use base::{Error, Result};
use bytes::Bytes;
use std::sync::Arc;

use super::frame::{Frame, Lane, kind};
use super::remedy;
use crate::group::command::Origin;
use crate::ids::{Attachment, BLOCK, CHUNK_BLOCKS, Chunk, Epoch, Group, Layer, Tree};

/// The most bytes that one request writes or reads.
pub const BYTES_MAX: u32 = 1 << 20;
/// Bytes of a chunk.
pub const CHUNK_BYTES: u32 = CHUNK_BLOCKS * BLOCK as u32;
/// The most bytes of the text of a refusal.
const TEXT_BYTES_MAX: usize = 1024;
const HOLE: u32 = 1 << 31;
const ZERO: u32 = 1 << 30;

/// A range of bytes of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The chunk.
    pub chunk: Chunk,
    /// Offset in bytes.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
}

impl Span {
    fn is_possible(self) -> bool {
        let end = self.offset.checked_add(self.len);
        end.is_some_and(|end| end <= CHUNK_BYTES)
    }

    /// The lengths of the parts into which block boundaries cut it, in order.
    fn parts(self) -> impl Iterator<Item = usize> {
        cut(self.offset, self.len)
    }
}

/// The lengths of the parts into which block boundaries cut `len` bytes from `offset` on.
fn cut(offset: u32, len: u32) -> impl Iterator<Item = usize> {
    let mut left = len as usize;
    let mut room = BLOCK - offset as usize % BLOCK;
    std::iter::from_fn(move || {
        let n = left.min(room);
        (left, room) = (left - n, BLOCK);
        (n > 0).then_some(n)
    })
}

/// The crc of each part of bytes at this offset: see the module's documentation.
pub fn crcs_at(offset: u32, bytes: &[u8]) -> impl Iterator<Item = u32> {
    let mut rest = bytes;
    cut(offset, bytes.len() as u32).map(move |n| {
        let (part, behind) = rest.split_at_checked(n).unwrap_or((rest, &[]));
        rest = behind;
        crc32c(part)
    })
}

/// The operation of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Raise the volume's epoch to the origin's.
    Attach,
    /// Read. It has no number: the origin's seq is 0.
    Read(Span),
    /// Write.
    Write {
        /// The range to write.
        span: Span,
        /// The crcs of the payload's parts: see the module's documentation.
        crcs: Arc<[u32]>,
        /// The bytes; as many as the span has.
        payload: Bytes,
    },
    /// Make the bytes zero. With an empty span nothing changes, but the origin's number is used up: an earlier
    /// request with this number was applied already, or never will be.
    Zero(Span),
    /// Make the bytes zero, because they are not needed any more.
    Trim(Span),
    /// Report which bytes are stored.
    Status(Span),
}

impl What {
    fn code(&self) -> u8 {
        match self {
            Self::Attach => 1,
            Self::Read(_) => 2,
            Self::Write { .. } => 3,
            Self::Zero(_) => 4,
            Self::Trim(_) => 5,
            Self::Status(_) => 6,
        }
    }

    /// The range of the operation.
    pub fn span(&self) -> Span {
        match self {
            Self::Attach => Span::default(),
            Self::Write { span, .. }
            | Self::Read(span)
            | Self::Zero(span)
            | Self::Trim(span)
            | Self::Status(span) => *span,
        }
    }

    /// Bytes of the payload.
    pub fn payload_bytes(&self) -> u64 {
        match self {
            Self::Write { payload, .. } => payload.len() as u64,
            _ => 0,
        }
    }

    /// Whether it is a change: then its seq is not 0.
    pub fn is_change(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Zero(_) | Self::Trim(_))
    }
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Matches the response to the request.
    pub id: u64,
    /// The group that has the chunk.
    pub group: Group,
    /// The volume.
    pub tree: Tree,
    /// Its head.
    pub layer: Layer,
    /// The attachment, and the number of the request.
    pub origin: Origin,
    /// The operation.
    pub what: What,
}

impl Request {
    /// The request as a frame from `client` to `store`.
    pub fn frame(self, client: u64, store: u64) -> Frame {
        let (o, span) = (&self.origin, self.what.span());
        let mut out = Vec::with_capacity(64);
        out.extend_from_slice(&[self.what.code(), 0, 0, 0]);
        put_u32(&mut out, self.group.0);
        put_u64(&mut out, self.tree.0);
        put_u64(&mut out, self.layer.0);
        put_u32(&mut out, o.epoch.0);
        put_u32(&mut out, span.chunk.0);
        put_u64(&mut out, o.attachment.0);
        put_u64(&mut out, o.seq);
        put_u64(&mut out, o.lowest_open);
        put_u32(&mut out, span.offset);
        put_u32(&mut out, span.len);
        let mut payload = Vec::new();
        if let What::Write {
            crcs, payload: p, ..
        } = self.what
        {
            out.extend(crcs.iter().flat_map(|crc| crc.to_le_bytes()));
            payload.push(p);
        }
        Frame {
            request: self.id,
            sender: client,
            receiver: store,
            payload,
            ..Frame::new(kind::REQUEST, Lane::Foreground, out)
        }
    }

    /// Decodes a request. Errors: Corruption. The crcs are not compared with the payload: the store does that.
    pub fn of(frame: Frame) -> Result<Self> {
        Self::read(frame).ok_or_else(|| {
            Error::corruption("wire: a request that cannot be").hint(remedy::SAME_RELEASE)
        })
    }

    fn read(frame: Frame) -> Option<Self> {
        let fields = (frame.kind == kind::REQUEST).then_some(frame.fields)?;
        let payload = whole(frame.payload);
        let mut d = Decoder::new(&fields);
        let (code, _, group) = (d.u8()?, d.bytes(3)?, Group(d.u32()?));
        let (tree, layer) = (Tree(d.u64()?), Layer(d.u64()?));
        let (epoch, chunk) = (Epoch(d.u32()?), Chunk(d.u32()?));
        let origin = Origin {
            epoch,
            attachment: Attachment(d.u64()?),
            seq: d.u64()?,
            lowest_open: d.u64()?,
        };
        let (offset, len) = (d.u32()?, d.u32()?);
        let span = Span { chunk, offset, len };
        let (moves, payload_bytes) = (len > 0 && len <= BYTES_MAX, payload.len());
        let what = match code {
            1 if span == Span::default() => What::Attach,
            2 if moves => What::Read(span),
            3 if moves && payload_bytes == len as usize && span.is_possible() => {
                let crcs: Option<Vec<u32>> = span.parts().map(|_| d.u32()).collect();
                let crcs = crcs?.into();
                What::Write {
                    span,
                    crcs,
                    payload,
                }
            }
            4 => What::Zero(span),
            5 if len > 0 => What::Trim(span),
            6 if len > 0 => What::Status(span),
            _ => return None,
        };
        let has_payload = matches!(what, What::Write { .. });
        let is_whole = d.is_empty() && (has_payload || payload_bytes == 0);
        (is_whole && span.is_possible() && what.is_change() == (origin.seq > 0)).then_some(Self {
            id: frame.request,
            group,
            tree,
            layer,
            origin,
            what,
        })
    }
}

/// A part of the data of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes.
    Data(Bytes),
    /// This many zeros.
    Hole(u32),
}

impl Piece {
    /// Length in bytes.
    pub fn len(&self) -> u32 {
        match self {
            Self::Data(bytes) => bytes.len() as u32,
            Self::Hole(len) => *len,
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A run of bytes in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Length in bytes.
    pub len: u32,
    /// Whether no space is allocated for them.
    pub hole: bool,
    /// Whether they read as zeros.
    pub zero: bool,
}

/// The reason of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Another store is the leader of the group.
    NotLeader {
        /// The leader, if known.
        hint: Option<u64>,
    },
    /// A newer attachment of the volume exists.
    Fenced {
        /// The epoch of that attachment.
        epoch: Epoch,
    },
    /// No space for a new chunk.
    NoSpace,
    /// Too many requests are on their way: try again later.
    Busy,
    /// The bytes are damaged on all replicas.
    Corrupt,
    /// The bytes cannot be read or written.
    Io(String),
    /// The request's number is outside of the window.
    TooFar,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is done, and durable.
    Done,
    /// The data of a read.
    Data {
        /// As many bytes as requested; no piece is empty.
        pieces: Vec<Piece>,
        /// The crcs of the parts of each data piece, in order: see the module's documentation.
        crcs: Vec<u32>,
    },
    /// The state of as many bytes as requested.
    Status(Vec<Run>),
    /// It was not done. A change that was sent more than once may still be applied.
    Refused(Reason),
}

/// The response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The request's id.
    pub id: u64,
    /// The outcome.
    pub outcome: Outcome,
}

impl Response {
    /// The response to a read: `pieces` from `offset` of a chunk, with their crcs.
    pub fn data(id: u64, mut offset: u32, pieces: Vec<Piece>) -> Self {
        let mut crcs = Vec::new();
        for piece in &pieces {
            if let Piece::Data(bytes) = piece {
                crcs.extend(crcs_at(offset, bytes));
            }
            offset += piece.len();
        }
        let outcome = Outcome::Data { pieces, crcs };
        Self { id, outcome }
    }

    /// The response as a frame from `store` to `client`.
    pub fn frame(self, store: u64, client: u64) -> Frame {
        let mut payload = Vec::new();
        let out = match self.outcome {
            Outcome::Done => head(1, 0, 0),
            Outcome::Data { pieces, crcs } => {
                let mut out = head(2, 0, pieces.len() as u32);
                for piece in pieces {
                    let flag = if matches!(piece, Piece::Hole(_)) {
                        HOLE
                    } else {
                        0
                    };
                    put_u32(&mut out, piece.len() | flag);
                    if let Piece::Data(bytes) = piece {
                        payload.push(bytes);
                    }
                }
                out.extend(crcs.iter().flat_map(|crc| crc.to_le_bytes()));
                out
            }
            Outcome::Status(runs) => {
                let mut out = head(3, 0, runs.len() as u32);
                for run in runs {
                    let flags = (u32::from(run.hole) * HOLE) | (u32::from(run.zero) * ZERO);
                    put_u32(&mut out, run.len | flags);
                }
                out
            }
            Outcome::Refused(reason) => encode_reason(&reason),
        };
        Frame {
            request: self.id,
            sender: store,
            receiver: client,
            payload,
            ..Frame::new(kind::RESPONSE, Lane::Foreground, out)
        }
    }

    /// Decodes a response. Errors: Corruption. The crcs are not compared with the payload yet.
    pub fn of(frame: Frame) -> Result<Self> {
        Self::read(frame).ok_or_else(|| {
            Error::corruption("wire: a response that cannot be").hint(remedy::SAME_RELEASE)
        })
    }

    fn read(frame: Frame) -> Option<Self> {
        let fields = (frame.kind == kind::RESPONSE).then_some(frame.fields)?;
        let mut payload = whole(frame.payload);
        let mut d = Decoder::new(&fields);
        let (code, reason, _, n) = (d.u8()?, d.u8()?, d.u16()?, d.u32()?);
        let outcome = match code {
            1 => Outcome::Done,
            2 => {
                let mut pieces = Vec::with_capacity(d.len().min(n as usize * 4) / 4);
                for _ in 0..n {
                    let word = d.u32()?;
                    let len = word & !HOLE;
                    if len == 0 || len > BYTES_MAX {
                        return None;
                    }
                    pieces.push(match word & HOLE {
                        0 if payload.len() >= len as usize => {
                            Piece::Data(payload.split_to(len as usize))
                        }
                        0 => return None,
                        _ => Piece::Hole(len),
                    });
                }
                let crcs = std::iter::from_fn(|| d.u32()).collect();
                Outcome::Data { pieces, crcs }
            }
            3 => {
                let mut runs = Vec::with_capacity(d.len().min(n as usize * 4) / 4);
                for _ in 0..n {
                    let word = d.u32()?;
                    let (hole, zero) = (word & HOLE != 0, word & ZERO != 0);
                    let len = word & !(HOLE | ZERO);
                    runs.push((len > 0 && len <= CHUNK_BYTES).then_some(Run {
                        len,
                        hole,
                        zero,
                    })?);
                }
                Outcome::Status(runs)
            }
            4 => Outcome::Refused(decode_reason(reason, n, &mut d)?),
            _ => return None,
        };
        (d.is_empty() && payload.is_empty()).then_some(Self {
            id: frame.request,
            outcome,
        })
    }
}

/// Whether the bytes of `pieces`, from `offset` of a chunk on, match the crcs.
pub fn is_intact(mut offset: u32, pieces: &[Piece], crcs: &[u32]) -> bool {
    let mut rest = crcs.iter().copied();
    for piece in pieces {
        if let Piece::Data(bytes) = piece
            && !crcs_at(offset, bytes).all(|crc| rest.next() == Some(crc))
        {
            return false;
        }
        offset = offset.saturating_add(piece.len());
    }
    rest.next().is_none()
}

fn head(code: u8, reason: u8, n: u32) -> Vec<u8> {
    let mut out = vec![code, reason, 0, 0];
    put_u32(&mut out, n);
    out
}

fn encode_reason(reason: &Reason) -> Vec<u8> {
    match reason {
        Reason::NotLeader { hint: None } => head(4, 1, 0),
        Reason::NotLeader { hint: Some(store) } => {
            let mut out = head(4, 1, 1);
            put_u64(&mut out, *store);
            out
        }
        Reason::Fenced { epoch } => head(4, 2, epoch.0),
        Reason::NoSpace => head(4, 3, 0),
        Reason::Busy => head(4, 4, 0),
        Reason::Corrupt => head(4, 5, 0),
        Reason::Io(text) => {
            let text = text.as_bytes();
            let text = text.get(..TEXT_BYTES_MAX).unwrap_or(text);
            let mut out = head(4, 6, text.len() as u32);
            out.extend_from_slice(text);
            out
        }
        Reason::TooFar => head(4, 7, 0),
    }
}

fn decode_reason(code: u8, n: u32, d: &mut Decoder<'_>) -> Option<Reason> {
    Some(match (code, n) {
        (1, 0) => Reason::NotLeader { hint: None },
        (1, 1) => Reason::NotLeader {
            hint: Some(d.u64()?),
        },
        (2, epoch) => Reason::Fenced {
            epoch: Epoch(epoch),
        },
        (3, 0) => Reason::NoSpace,
        (4, 0) => Reason::Busy,
        (5, 0) => Reason::Corrupt,
        (6, len) if len as usize <= TEXT_BYTES_MAX => {
            Reason::Io(String::from_utf8_lossy(d.bytes(len as usize)?).into_owned())
        }
        (7, 0) => Reason::TooFar,
        _ => return None,
    })
}

/// A payload in one piece, as received ones are already.
fn whole(mut payload: Vec<Bytes>) -> Bytes {
    match payload.len() {
        0 => Bytes::new(),
        1 => payload.remove(0),
        _ => payload.concat().into(),
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn span(offset: u32, len: u32) -> Span {
        Span {
            chunk: Chunk(8),
            offset,
            len,
        }
    }

    fn write(offset: u32, len: u32) -> What {
        let payload: Vec<u8> = (0..len).map(|i| (i / 7) as u8).collect();
        What::Write {
            span: span(offset, len),
            crcs: crcs_at(offset, &payload).collect(),
            payload: payload.into(),
        }
    }

    fn request(what: What) -> Request {
        Request {
            id: 77,
            group: Group(1),
            tree: Tree(2),
            layer: Layer(3),
            origin: Origin {
                epoch: Epoch(4),
                attachment: Attachment(5),
                seq: u64::from(what.is_change()) * 6,
                lowest_open: 6,
            },
            what,
        }
    }

    fn requests() -> Vec<Request> {
        let whats = [
            What::Attach,
            What::Read(span(1, 2)),
            What::Read(span(0, BYTES_MAX)),
            write(0, BYTES_MAX),
            write(4095, 2),
            write(8192, 512),
            What::Zero(span(0, CHUNK_BYTES)),
            What::Zero(span(0, 0)),
            What::Trim(span(CHUNK_BYTES - 1, 1)),
            What::Status(span(4096, 4096)),
        ];
        whats.map(request).into()
    }

    fn responses() -> Vec<Response> {
        let data = vec![
            Piece::Data(vec![1; 96].into()),
            Piece::Hole(4096),
            Piece::Data(vec![2; 5000].into()),
        ];
        let run = |len, hole, zero| Run { len, hole, zero };
        let mut all = vec![Response::data(9, 4000, data)];
        let outcomes = [
            Outcome::Done,
            Outcome::Status(vec![run(CHUNK_BYTES, true, false), run(1, false, true)]),
            Outcome::Refused(Reason::NotLeader { hint: None }),
            Outcome::Refused(Reason::NotLeader { hint: Some(8) }),
            Outcome::Refused(Reason::Fenced { epoch: Epoch(8) }),
            Outcome::Refused(Reason::NoSpace),
            Outcome::Refused(Reason::Busy),
            Outcome::Refused(Reason::Corrupt),
            Outcome::Refused(Reason::Io("the disk is gone".to_owned())),
            Outcome::Refused(Reason::TooFar),
        ];
        all.extend(outcomes.map(|outcome| Response { id: 9, outcome }));
        all
    }

    #[test]
    fn what_is_encoded_is_read_and_nothing_less() {
        for want in requests() {
            let frame = want.clone().frame(1, 2);
            assert!(frame.encode().is_ok());
            assert_eq!(Request::of(frame.clone()).unwrap(), want);
            for cut in 0..frame.fields.len() {
                let mut less = frame.clone();
                less.fields = frame.fields.slice(..cut);
                assert!(Request::of(less).is_err(), "{want:?}: {cut}");
            }
            let mut more = frame;
            more.payload.push(vec![1].into());
            assert!(Request::of(more).unwrap_err().is_corruption());
        }
        for want in responses() {
            let frame = want.clone().frame(1, 2);
            assert!(frame.encode().is_ok());
            assert_eq!(Response::of(frame.clone()).unwrap(), want);
            let mut more = frame.clone();
            more.payload.push(vec![1].into());
            assert!(Response::of(more).is_err());
            assert!(Request::of(frame).is_err());
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for what in [
            What::Read(span(0, 0)),
            What::Read(span(0, BYTES_MAX + 1)),
            What::Read(span(CHUNK_BYTES - 1, 2)),
            What::Zero(span(u32::MAX, 2)),
            What::Trim(span(0, 0)),
            write(CHUNK_BYTES - 1, 2),
        ] {
            assert!(
                Request::of(request(what.clone()).frame(1, 2)).is_err(),
                "{what:?}"
            );
        }
        let mut unnumbered = request(write(0, 1));
        unnumbered.origin.seq = 0;
        assert!(Request::of(unnumbered.frame(1, 2)).is_err());
        let long = Reason::Io("ä".repeat(2000));
        let outcome = Outcome::Refused(long);
        let frame = Response { id: 1, outcome }.frame(1, 2);
        assert!(Response::of(frame).is_ok());
    }

    #[test]
    fn crcs_are_of_blocks_and_of_parts_of_them() {
        let bytes = vec![3; 3 * BLOCK];
        let block = crc32c(&bytes[..BLOCK]);
        assert_eq!(crcs_at(0, &bytes).collect::<Vec<_>>(), [block; 3]);
        let parts: Vec<u32> = crcs_at(4000, &bytes).collect();
        let (first, last) = (crc32c(&bytes[..96]), crc32c(&bytes[..4000]));
        assert_eq!(parts, [first, block, block, last]);
        let Outcome::Data { pieces, mut crcs } = responses()[0].outcome.clone() else {
            panic!("no data");
        };
        assert!(is_intact(4000, &pieces, &crcs));
        assert!(!is_intact(4001, &pieces, &crcs));
        crcs.push(1);
        assert!(!is_intact(4000, &pieces, &crcs));
        crcs.truncate(2);
        assert!(!is_intact(4000, &pieces, &crcs));
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_refused_or_are_a_message(
            fields in proptest::collection::vec(any::<u8>(), 0..120),
            code in 0_u8..8,
            payload in 0_usize..9000,
        ) {
            let mut fields = fields;
            if let Some(first) = fields.first_mut() {
                *first = code;
            }
            let mut frame = Frame::new(kind::REQUEST, Lane::Foreground, fields);
            frame.payload = vec![vec![0; payload].into()];
            if let Ok(request) = Request::of(frame.clone()) {
                prop_assert_eq!(Request::of(request.clone().frame(1, 2)).unwrap(), request);
            }
            frame.kind = kind::RESPONSE;
            if let Ok(response) = Response::of(frame) {
                prop_assert!(matches!(response.outcome, Outcome::Refused(Reason::Io(_)))
                    || Response::of(response.clone().frame(1, 2)).unwrap() == response);
            }
        }
    }
}
