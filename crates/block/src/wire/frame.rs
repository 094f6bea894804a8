//! Frames: the unit of the stream between two processes.
//!
//! ```text
//!   0+4 "ISfr"   4+4 crc of 8..64 and the fields   8+2 version   10+2 kind   12+1 lane   13+1 flags   14+2 zero
//!   16+4 bytes of the fields   20+4 bytes of the payload   24+8 request   32+8 sender   40+8 receiver   48+16 zero
//!   64… fields, then the payload
//! ```
//!
//! Little-endian, CRC-32C. The fields hold the message; the payload is raw blocks. The frame's crc does not
//! cover the payload: its blocks have crcs of their own, which are in the fields and accompany the blocks to
//! the disk.
//!
//! Magic, version and the position of the crc never change, so that the oldest and the newest release can tell
//! each other that they are incompatible.

use base::checksum::crc32c;
use base::coding::{Decoder, put_u16, put_u32, put_u64};
use base::{Error, Result};
use bytes::Bytes;

use super::remedy;

/// Bytes of a frame's head.
pub const HEAD: usize = 64;
/// The version of frame heads.
pub const VERSION: u16 = 1;
/// The most bytes of a frame's fields.
pub const FIELDS_BYTES_MAX: usize = 64 << 10;
/// The most bytes of a frame's payload: two of the largest requests.
pub const PAYLOAD_BYTES_MAX: usize = 2 << 20;

const MAGIC: [u8; 4] = *b"ISfr";
/// Offset of the first byte that the crc covers.
const COVERED: usize = 8;

/// Kinds of messages.
pub mod kind {
    /// The sender's identity: see [`super::super::hello`].
    pub const HELLO: u16 = 1;
    /// The reason why the connection ends.
    pub const REFUSAL: u16 = 2;
    /// A client's request to a store.
    pub const REQUEST: u16 = 16;
    /// The response to a request.
    pub const RESPONSE: u16 = 17;
    /// Messages between replicas.
    pub const RAFT: u16 = 32;
}

/// Lanes of messages, in order of priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Lane {
    /// Messages that keep leaders in office, and elections.
    Heartbeat = 0,
    /// Messages that a client's request waits for.
    Foreground = 1,
    /// Messages that may wait a little.
    WriteBack = 2,
    /// Copies of replicas.
    Repair = 3,
}

impl Lane {
    /// All lanes, the one with the highest priority first.
    pub const ALL: [Self; 4] = [
        Self::Heartbeat,
        Self::Foreground,
        Self::WriteBack,
        Self::Repair,
    ];

    fn of(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&lane| lane as u8 == byte)
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The kind of message: see [`kind`].
    pub kind: u16,
    /// The lane, which decides which messages it may overtake.
    pub lane: Lane,
    /// Flags, whose meaning depends on the kind.
    pub flags: u8,
    /// Matches a response to its request.
    pub request: u64,
    /// The sender's id.
    pub sender: u64,
    /// The receiver's id.
    pub receiver: u64,
    /// The encoded message: at most [`FIELDS_BYTES_MAX`].
    pub fields: Bytes,
    /// Blocks, in one or several pieces: at most [`PAYLOAD_BYTES_MAX`]. A received payload is one piece, whose
    /// address is a multiple of 4096.
    pub payload: Vec<Bytes>,
}

impl Frame {
    /// A frame without flags, payload, sender and receiver.
    pub fn new(kind: u16, lane: Lane, fields: Vec<u8>) -> Self {
        Self {
            kind,
            lane,
            flags: 0,
            request: 0,
            sender: 0,
            receiver: 0,
            fields: fields.into(),
            payload: Vec::new(),
        }
    }

    /// Bytes of the payload.
    pub fn payload_bytes(&self) -> usize {
        self.payload.iter().map(Bytes::len).sum()
    }

    /// Bytes of the frame on the stream.
    pub fn bytes(&self) -> usize {
        HEAD + self.fields.len() + self.payload_bytes()
    }

    /// The encoded head and fields. Errors: the lengths exceed the limits.
    pub fn encode(&self) -> Result<Bytes> {
        let payload_bytes = self.payload_bytes();
        check_lengths(self.fields.len(), payload_bytes)?;
        let mut covered = Vec::with_capacity(HEAD + self.fields.len());
        covered.extend_from_slice(&MAGIC);
        put_u32(&mut covered, 0);
        put_u16(&mut covered, VERSION);
        put_u16(&mut covered, self.kind);
        covered.extend_from_slice(&[self.lane as u8, self.flags, 0, 0]);
        put_u32(&mut covered, self.fields.len() as u32);
        put_u32(&mut covered, payload_bytes as u32);
        put_u64(&mut covered, self.request);
        put_u64(&mut covered, self.sender);
        put_u64(&mut covered, self.receiver);
        covered.resize(HEAD, 0);
        covered.extend_from_slice(&self.fields);
        let crc = crc32c(covered.get(COVERED..).unwrap_or_default());
        if let Some(place) = covered.get_mut(4..8) {
            place.copy_from_slice(&crc.to_le_bytes());
        }
        Ok(covered.into())
    }
}

/// The lengths in a frame's head, before its fields have arrived. The crc is not verified yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the fields.
    pub fields_bytes: usize,
    /// Bytes of the payload.
    pub payload_bytes: usize,
    crc: u32,
}

impl Head {
    /// Decodes the first [`HEAD`] bytes of a frame; `None`: some are missing. Errors: this is no frame.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let Some(head) = bytes.get(..HEAD) else {
            return Ok(None);
        };
        let mut d = Decoder::new(head);
        let (Some(magic), Some(crc), Some(version)) = (d.bytes(4), d.u32(), d.u16()) else {
            return Ok(None);
        };
        if magic != MAGIC {
            return Err(Error::corruption(format!(
                "wire: {magic:02x?} is not the magic of a frame"
            ))
            .hint(remedy::ADDRESS));
        }
        if version != VERSION {
            return Err(Error::not_supported(format!(
                "wire: a frame of version {version}: this release knows {VERSION}"
            ))
            .hint(remedy::SAME_RELEASE));
        }
        d.bytes(6);
        let (Some(fields), Some(payload)) = (d.u32(), d.u32()) else {
            return Ok(None);
        };
        let (fields_bytes, payload_bytes) = (fields as usize, payload as usize);
        check_lengths(fields_bytes, payload_bytes)?;
        Ok(Some(Self {
            fields_bytes,
            payload_bytes,
            crc,
        }))
    }

    /// The frame without its payload; `None`: some bytes of head and fields are missing. Errors: the crc does
    /// not match, or the head has unknown values.
    pub fn frame(&self, bytes: &[u8]) -> Result<Option<Frame>> {
        let end = HEAD + self.fields_bytes;
        let (Some(covered), Some(fields)) = (bytes.get(COVERED..end), bytes.get(HEAD..end)) else {
            return Ok(None);
        };
        let crc = crc32c(covered);
        if crc != self.crc {
            return Err(Error::corruption(format!(
                "wire: a frame has the crc {crc:#010x} and says {:#010x}",
                self.crc
            ))
            .hint(remedy::DAMAGE));
        }
        let mut d = Decoder::new(covered);
        let frame = Self::read(&mut d, fields);
        let frame = frame.ok_or_else(|| {
            Error::corruption("wire: a frame of an unknown lane").hint(remedy::SAME_RELEASE)
        })?;
        Ok(Some(frame))
    }

    fn read(d: &mut Decoder<'_>, fields: &[u8]) -> Option<Frame> {
        d.u16()?;
        let (kind, lane, flags) = (d.u16()?, Lane::of(d.u8()?)?, d.u8()?);
        d.bytes(10)?;
        Some(Frame {
            kind,
            lane,
            flags,
            request: d.u64()?,
            sender: d.u64()?,
            receiver: d.u64()?,
            fields: Bytes::copy_from_slice(fields),
            payload: Vec::new(),
        })
    }
}

fn check_lengths(fields_bytes: usize, payload_bytes: usize) -> Result<()> {
    if fields_bytes <= FIELDS_BYTES_MAX && payload_bytes <= PAYLOAD_BYTES_MAX {
        return Ok(());
    }
    Err(Error::corruption(format!(
        "wire: a frame of {fields_bytes} + {payload_bytes} bytes: at most {FIELDS_BYTES_MAX} + \
         {PAYLOAD_BYTES_MAX} may be"
    ))
    .hint(remedy::SAME_RELEASE))
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(fields: usize, payload: usize) -> Frame {
        Frame {
            flags: 9,
            request: 10,
            sender: 11,
            receiver: 12,
            payload: vec![vec![7; payload].into()],
            ..Frame::new(kind::REQUEST, Lane::WriteBack, vec![3; fields])
        }
    }

    fn decode(bytes: &[u8]) -> Result<Option<Frame>> {
        match Head::decode(bytes)? {
            Some(head) => head.frame(bytes),
            None => Ok(None),
        }
    }

    #[test]
    fn the_bytes_stay_as_they_are() {
        let bytes = frame(2, 5).encode().unwrap();
        assert_eq!(bytes.len(), HEAD + 2);
        assert_eq!(&bytes[..4], b"ISfr");
        let want = [1, 0, 16, 0, 2, 9, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0];
        assert_eq!(bytes[8..24], want);
        assert_eq!(bytes[24..48].iter().filter(|&&b| b != 0).count(), 3);
        assert!(bytes[48..64].iter().all(|&b| b == 0));
        let crc = base::checksum::crc32c(&bytes[8..]);
        assert_eq!(bytes[4..8], crc.to_le_bytes());
    }

    #[test]
    fn what_is_encoded_is_read_and_damage_is_found() {
        for fields in [0, 1, 100] {
            let mut want = frame(fields, 77);
            let bytes = want.encode().unwrap();
            let head = Head::decode(&bytes).unwrap().unwrap();
            assert_eq!((head.fields_bytes, head.payload_bytes), (fields, 77));
            want.payload = Vec::new();
            assert_eq!(decode(&bytes).unwrap().unwrap(), want);
            for cut in 0..bytes.len() {
                assert_eq!(decode(&bytes[..cut]).unwrap(), None);
            }
            for bit in 0..bytes.len() * 8 {
                let mut bad = bytes.to_vec();
                bad[bit / 8] ^= 1 << (bit % 8);
                // A flipped bit may make the fields longer, so that they seem incomplete.
                assert!(!matches!(decode(&bad), Ok(Some(_))), "bit {bit}");
            }
        }
    }

    #[test]
    fn an_error_names_what_is_wrong() {
        let good = frame(4, 0).encode().unwrap();
        for (at, byte, word, remedy) in [
            (0, 0, "magic", "check which address"),
            (8, 0, "version 0", "run the same release"),
            (8, 2, "version 2", "run the same release"),
            (64, 0, "crc", "check the network and the memory"),
            (18, 2, "at most", "run the same release"),
            (22, 255, "at most", "run the same release"),
        ] {
            let mut bad = good.to_vec();
            bad[at] = byte;
            let e = decode(&bad).unwrap_err().to_string();
            assert!(e.contains(word) && e.contains(remedy), "{e}");
        }
        // A lane that a later release may have.
        let mut bad = good.to_vec();
        bad[12] = 4;
        let crc = crc32c(&bad[COVERED..]);
        bad[4..8].copy_from_slice(&crc.to_le_bytes());
        let e = decode(&bad).unwrap_err().to_string();
        assert!(
            e.contains("unknown lane") && e.contains("same release"),
            "{e}"
        );
        assert!(frame(FIELDS_BYTES_MAX + 1, 0).encode().is_err());
        assert!(frame(0, PAYLOAD_BYTES_MAX + 1).encode().is_err());
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), honest in any::<bool>()) {
            if honest && bytes.len() >= 10 {
                bytes[..4].copy_from_slice(&MAGIC);
                bytes[8..10].copy_from_slice(&[1, 0]);
            }
            prop_assert!(!matches!(decode(&bytes), Ok(Some(_))));
        }
    }
}
