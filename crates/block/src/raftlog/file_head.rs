//! The first 4 KiB of a log file: its identity, and its predecessor.
//!
//! ```text
//!   0+4 "ISrl"   4+4 crc of the rest   8+4 version   12+4 unit
//!   16+16 store  32+8 number  40+8 predecessor  48+8 its end  56+8 nonce  64… zeros
//! ```
//!
//! Little-endian; the crc is CRC-32C of the bytes from 8 to the end of the head. The nonce is a number that
//! nobody can guess: batches carry it, so that no payload is taken for a batch.

use base::coding::{Decoder, put_u32, put_u64};
use base::{Error, Result};

use crate::ids::Uuid;
use crate::sealed;

/// Bytes of the head.
pub const LEN: usize = sealed::LEN;
/// The version that this code writes and reads.
pub const VERSION: u32 = 1;
const MAGIC: [u8; 4] = *b"ISrl";
/// The largest unit that a head may name.
const UNIT_MAX: u32 = LEN as u32;

/// The head of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHead {
    /// Bytes of the unit that the device writes atomically: a power of two from 512 to 4096.
    pub unit: u32,
    /// The store that the file belongs to.
    pub store: Uuid,
    /// The file's number.
    pub number: u64,
    /// The number of the previous file; 0: there was none.
    pub predecessor: u64,
    /// The offset at which the previous file ended.
    pub predecessor_end: u64,
    /// The number that the batches of this file carry.
    pub nonce: u64,
}

impl FileHead {
    /// The encoding.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(LEN);
        put_u32(&mut body, VERSION);
        put_u32(&mut body, self.unit);
        body.extend_from_slice(&self.store.0);
        for n in [
            self.number,
            self.predecessor,
            self.predecessor_end,
            self.nonce,
        ] {
            put_u64(&mut body, n);
        }
        sealed::seal(MAGIC, body)
    }

    /// Decodes a head. Errors: Corruption; `NotSupported` for an unknown version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut d = sealed::open(bytes, MAGIC, "head of a log file")?;
        let version = d.u32().unwrap_or_default();
        if version != VERSION {
            return Err(sealed::unknown_version("log files", version, VERSION));
        }
        Self::decode_rest(&mut d).map_or_else(
            || {
                Err(Error::corruption(
                    "head of a log file: values that cannot be",
                ))
            },
            Ok,
        )
    }

    fn decode_rest(d: &mut Decoder<'_>) -> Option<Self> {
        let unit = d.u32()?;
        if !unit.is_power_of_two() || !(512..=UNIT_MAX).contains(&unit) {
            return None;
        }
        Some(Self {
            unit,
            store: Uuid(d.bytes(16)?.try_into().ok()?),
            number: d.u64()?,
            predecessor: d.u64()?,
            predecessor_end: d.u64()?,
            nonce: d.u64()?,
        })
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use super::*;
    use base::checksum::crc32c;

    fn head() -> FileHead {
        FileHead {
            unit: 512,
            store: Uuid([7; 16]),
            number: 12,
            predecessor: 11,
            predecessor_end: 1 << 20,
            nonce: 0x0123_4567_89ab_cdef,
        }
    }

    #[test]
    fn what_is_written_is_read_and_any_flipped_bit_refused() {
        let bytes = head().encode();
        assert_eq!(bytes.len(), LEN);
        assert_eq!(FileHead::decode(&bytes).unwrap(), head());
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let e = FileHead::decode(&bytes).unwrap_err();
            assert!(e.is_corruption(), "bit {bit}: {e}");
        }
        assert!(FileHead::decode(&bytes[..LEN - 1]).is_err());
    }

    #[test]
    fn a_newer_version_is_named() {
        let mut bytes = head().encode();
        bytes[sealed::COVERED] = 9;
        let crc = crc32c(&bytes[sealed::COVERED..]);
        bytes[4..sealed::COVERED].copy_from_slice(&crc.to_le_bytes());
        let e = FileHead::decode(&bytes).unwrap_err();
        assert_eq!(e.kind(), base::ErrorKind::NotSupported);
        let e = e.to_string();
        assert!(
            e.contains("version 9") && e.contains("start that one"),
            "{e}"
        );
    }
}
