//! Queues replies: simple or structured, whole or in chunks.

use bytes::Bytes;

use super::codec::{self, Errno, Head};
use super::command::{Extent, Piece, Refused};
use super::output::{Output, Weight};

/// Zeros for holes that must be sent as bytes.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// The most extents of a reply.
pub(super) const EXTENTS_MAX: usize = 8192;
/// The weight of a request that holds no bytes.
pub(super) const ONE: Weight = Weight {
    requests: 1,
    bytes: 0,
};

impl Output {
    /// The successful reply to a request without data. A read needs a chunk if replies are structured.
    pub(super) fn push_done(&mut self, cookie: u64, command: u16, weight: Weight) {
        let head = if self.structured && command == codec::Command::Read as u16 {
            codec::none_chunk(cookie)
        } else {
            codec::simple_reply(cookie, 0)
        };
        self.push(head, Bytes::new(), weight);
    }

    /// An error; it has a text if replies are structured.
    pub(super) fn push_error(&mut self, cookie: u64, (errno, why): Refused, weight: Weight) {
        if self.structured {
            let head = codec::error_chunk(cookie, errno, why.len() as u16);
            let text = Bytes::from_static(why.as_bytes());
            self.push(head, text, weight);
        } else {
            let head = codec::simple_reply(cookie, errno as u32);
            self.push(head, Bytes::new(), weight);
        }
    }

    /// The data of a read: a chunk for each run of data or hole, or a single one.
    pub(super) fn push_read(
        &mut self,
        cookie: u64,
        (offset, len, df): (u64, u32, bool),
        pieces: &[Piece],
        weight: Weight,
    ) {
        let none = Weight::default();
        let is_hole = |p: &Piece| matches!(p, Piece::Hole(_));
        let holes = pieces.iter().filter(|p| is_hole(p)).count();
        let one_chunk = df && holes != pieces.len();
        if !self.structured {
            let head = codec::simple_reply(cookie, 0);
            self.push(head, Bytes::new(), none);
            self.push_bytes(pieces);
        } else if one_chunk {
            let head = codec::data_chunk(cookie, true, offset, len);
            self.push(head, Bytes::new(), none);
            self.push_bytes(pieces);
        } else {
            let (mut at, end) = (offset, offset + u64::from(len));
            for run in pieces.chunk_by(|a, b| is_hole(a) == is_hole(b)) {
                let bytes: u64 = run.iter().map(Piece::len).sum();
                if bytes == 0 {
                    continue;
                }
                let done = at + bytes == end;
                if run.first().is_some_and(is_hole) {
                    let head = codec::hole_chunk(cookie, done, at, bytes as u32);
                    self.push(head, Bytes::new(), none);
                } else {
                    let head = codec::data_chunk(cookie, done, at, bytes as u32);
                    self.push(head, Bytes::new(), none);
                    self.push_bytes(run);
                }
                at += bytes;
            }
        }
        self.push(Head::default(), Bytes::new(), weight);
    }

    fn push_bytes(&mut self, pieces: &[Piece]) {
        let (head, none) = (Head::default(), Weight::default());
        for piece in pieces {
            let mut left = match piece {
                Piece::Hole(len) => *len as usize,
                Piece::Data(bytes) => {
                    self.push(head, bytes.clone(), none);
                    continue;
                }
            };
            while left > 0 {
                let zeros = ZEROS.get(..left.min(ZEROS.len())).unwrap_or_default();
                left -= zeros.len();
                self.push(head, Bytes::from_static(zeros), none);
            }
        }
    }

    /// Extents: neighbors in the same state are joined, and the list is cut at the end of the requested
    /// range.
    pub(super) fn push_status(
        &mut self,
        cookie: u64,
        (len, one): (u32, bool),
        extents: &[Extent],
        weight: Weight,
    ) {
        let most = if one { 1 } else { EXTENTS_MAX };
        let (mut body, mut left) = (Vec::new(), u64::from(len));
        let alike = |a: &Extent, b: &Extent| (a.hole, a.zero) == (b.hole, b.zero);
        for run in extents.chunk_by(alike).take(most) {
            let Some(first) = run.first() else { continue };
            let sum = run.iter().fold(0, |n: u64, e| n.saturating_add(e.len));
            let bytes = sum.min(left);
            left -= bytes;
            if bytes > 0 {
                codec::put_extent(&mut body, bytes as u32, first.hole, first.zero);
            }
        }
        if body.is_empty() {
            base::invariant!(false, "no extent at all");
            return self.push_error(cookie, (Errno::Io, "no extent is known"), weight);
        }
        let head = codec::status_chunk(cookie, (body.len() / 8) as u32);
        self.push(head, body.into(), weight);
    }
}
