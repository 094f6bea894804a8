//! Checksums of blocks and footers.
//!
//! ```text
//! stored block:  bytes | u8 type | u32 checksum      the checksum covers bytes and type
//! ```
//! The block's bytes and its type byte are hashed one after the other, so that neither a reader
//! nor a writer has to copy them into one buffer.
//!
//! XXH3 has no cheap streaming form. RocksDB therefore hashes only the bytes and folds the type
//! byte in by a multiplication and an xor; the constant is RocksDB's (`table/format.cc`).
//! Tables of format version 6 and later also add a *context*, a number that depends on the file
//! and the block's offset, so that a block read from the wrong place is detected.

use std::hash::Hasher;

use twox_hash::{XxHash3_64, XxHash32, XxHash64};

base::option_enum! {
    /// Which checksum protects the blocks of a table.
    pub enum ChecksumType {
        /// No checksum: nothing is verified.
        None = "kNoChecksum",
        /// CRC-32C, masked.
        Crc32c = "kCRC32c",
        /// XXH32 with seed 0.
        XxHash = "kxxHash",
        /// The low half of XXH64 with seed 0.
        XxHash64 = "kxxHash64",
        /// The low half of XXH3; RocksDB's default.
        Xxh3 = "kXXH3",
    }
}

/// RocksDB's multiplier for the last byte under XXH3.
const XXH3_LAST_BYTE: u32 = 0x6b90_83d9;

impl ChecksumType {
    /// The type whose number in a footer is `v`.
    pub fn from_u8(v: u8) -> Option<Self> {
        Some(match v {
            0 => Self::None,
            1 => Self::Crc32c,
            2 => Self::XxHash,
            3 => Self::XxHash64,
            4 => Self::Xxh3,
            _ => return None,
        })
    }

    /// The number in a footer.
    pub fn to_u8(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Crc32c => 1,
            Self::XxHash => 2,
            Self::XxHash64 => 3,
            Self::Xxh3 => 4,
        }
    }
}

/// The checksum of a block, without context: of its bytes as stored in the file, and its type byte.
#[inline]
pub fn block_checksum(kind: ChecksumType, stored: &[u8], type_byte: u8) -> u32 {
    match kind {
        ChecksumType::None => 0,
        ChecksumType::Crc32c => {
            base::checksum::mask(base::checksum::crc32c_parts(&[stored, &[type_byte]]))
        }
        ChecksumType::XxHash => {
            let mut hash = XxHash32::with_seed(0);
            hash.write(stored);
            hash.write(&[type_byte]);
            hash.finish_32()
        }
        ChecksumType::XxHash64 => {
            let mut hash = XxHash64::with_seed(0);
            hash.write(stored);
            hash.write(&[type_byte]);
            hash.finish() as u32
        }
        ChecksumType::Xxh3 => {
            XxHash3_64::oneshot(stored) as u32 ^ u32::from(type_byte).wrapping_mul(XXH3_LAST_BYTE)
        }
    }
}

/// The checksum of bytes without a separate type byte (the footer): under XXH3 the last byte takes
/// the place of the type byte, and empty input gives 0.
pub fn plain(kind: ChecksumType, bytes: &[u8]) -> u32 {
    match bytes.split_last() {
        Some((&last, rest)) => block_checksum(kind, rest, last),
        None => match kind {
            ChecksumType::None | ChecksumType::Xxh3 => 0,
            ChecksumType::Crc32c => base::checksum::mask(base::checksum::crc32c(&[])),
            ChecksumType::XxHash => XxHash32::oneshot(0, &[]),
            ChecksumType::XxHash64 => XxHash64::oneshot(0, &[]) as u32,
        },
    }
}

/// The context that is added (mod 2³²) to the checksum of a block at byte `offset` of a file whose
/// footer has the base context `base`; 0 if `base` is 0.
#[inline]
pub fn context(base: u32, offset: u64) -> u32 {
    if base == 0 {
        return 0;
    }
    base ^ (offset as u32).wrapping_add((offset >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::options::OptionValue;

    fn pattern(n: usize) -> Vec<u8> {
        (0..n).map(|i| (7 * i + 3) as u8).collect()
    }

    #[test]
    fn vectors_of_rocksdb() {
        let all: serde_json::Value =
            serde_json::from_str(include_str!("../tests/data/hashes.json")).unwrap();
        let cases = all["block_checksum_with_type_byte"].as_object().unwrap();
        assert_eq!(cases.len(), 10);
        for (name, values) in cases {
            let (n, t) = name
                .strip_prefix("len")
                .unwrap()
                .split_once("_type")
                .unwrap();
            let bytes = pattern(n.parse().unwrap());
            let type_byte: u8 = t.parse().unwrap();
            for (kind, field) in [
                (ChecksumType::Crc32c, "crc32c"),
                (ChecksumType::XxHash, "xxhash32"),
                (ChecksumType::XxHash64, "xxhash64"),
                (ChecksumType::Xxh3, "xxh3"),
            ] {
                let want = u32::from_str_radix(values[field].as_str().unwrap(), 16).unwrap();
                assert_eq!(
                    block_checksum(kind, &bytes, type_byte),
                    want,
                    "{name} {field}"
                );
                let mut joined = bytes.clone();
                joined.push(type_byte);
                assert_eq!(plain(kind, &joined), want, "{name} {field}");
            }
            assert_eq!(block_checksum(ChecksumType::None, &bytes, type_byte), 0);
        }
    }

    #[test]
    fn empty_input_and_context() {
        assert_eq!(plain(ChecksumType::Xxh3, &[]), 0);
        assert_eq!(plain(ChecksumType::None, &[]), 0);
        assert_eq!(plain(ChecksumType::XxHash, &[]), 0x02cc_5d05);
        assert_eq!(context(0, 77), 0);
        assert_eq!(context(0xf0, 0x0000_0002_0000_0001), 0xf3);
    }

    #[test]
    fn numbers_and_names() {
        for &kind in ChecksumType::ALL {
            assert_eq!(ChecksumType::from_u8(kind.to_u8()), Some(kind));
            assert_eq!(ChecksumType::parse(&kind.print()), Some(kind));
        }
        assert_eq!(ChecksumType::from_u8(5), None);
    }
}
