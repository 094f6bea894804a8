//! The last 53 bytes of a table.
//!
//! ```text
//!  0  u8   checksum type          |  u8   checksum type
//!  1  metaindex handle (varints)  |  3e 00 7a 00
//!     index handle (varints)      |  u32  footer checksum
//!     zero fill to 41             |  u32  base context     (not 0)
//!                                 |  u32  metaindex size
//!                                 |  24 bytes zero         (the last 8 must be)
//! 41  u32  format version         |  u32  format version
//! 45  u64  magic                  |  u64  magic
//!     versions 2 to 5                versions 6 and 7
//! ```
//! From version 6 on, the metaindex block with its trailer ends where the footer begins, and the
//! index is found through the metaindex. Everything else is found through the footer, so its decoder
//! checks that each handle lies inside the file.
#![deny(clippy::indexing_slicing)]

use base::coding::{Decoder, put_u32, put_u64, u32_at, u64_at};
use base::{Error, Result};

use crate::checksum::{ChecksumType, context, plain};
use crate::handle::BlockHandle;

/// Bytes of a footer.
pub const LEN: usize = 53;
/// The last 8 bytes of a block-based table.
pub const MAGIC: u64 = 0x88e2_41b7_85f4_cff7;
/// Bytes after each block: type and checksum.
pub const BLOCK_TRAILER_LEN: u64 = 5;

const LEGACY_MAGIC: u64 = 0xdb47_7524_8b80_fb57;
const PLAIN_TABLE_MAGIC: u64 = 0x8242_2296_63bf_9564;
const PLAIN_TABLE_LEGACY_MAGIC: u64 = 0x4f34_18eb_7a8f_13b8;
const CUCKOO_TABLE_MAGIC: u64 = 0x9267_89d0_c5f1_7873;
const EXTENDED_MAGIC: [u8; 4] = [0x3e, 0x00, 0x7a, 0x00];
const PART2_OFFSET: usize = 1;
const VERSION_OFFSET: usize = 41;
const MAGIC_LEN: usize = 8;

/// The content of a table's footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Which checksum protects the blocks.
    pub checksum_type: ChecksumType,
    /// The block that names the meta blocks.
    pub metaindex: BlockHandle,
    /// The index block; `None` if the metaindex names it (format version 6 and later).
    pub index: Option<BlockHandle>,
    /// RocksDB's `format_version`, 2 to 7.
    pub format_version: u32,
    /// The base for [`context`]; 0 before format version 6.
    pub base_context: u32,
}

impl Footer {
    /// Reads a footer.
    ///
    /// `tail` is the end of the file: its last [`LEN`] bytes, or all of it if the file is
    /// shorter. `file_size` is the size of the file in bytes.
    ///
    /// # Errors
    /// `NotSupported` for another kind of table and for format versions other than 2 to 7,
    /// `Corruption` for anything that is no footer.
    pub fn decode(tail: &[u8], file_size: u64) -> Result<Self> {
        let Some(magic) = tail
            .len()
            .checked_sub(MAGIC_LEN)
            .and_then(|at| u64_at(tail, at))
        else {
            let size = tail.len();
            return Err(Error::corruption(format!(
                "file of {size} bytes is too short to be a table"
            )));
        };
        check_magic(magic).map_err(|e| e.offset(file_size.saturating_sub(MAGIC_LEN as u64)))?;
        let (Some(start), Some(offset)) = (
            tail.len().checked_sub(LEN),
            file_size.checked_sub(LEN as u64),
        ) else {
            return Err(Error::corruption(format!(
                "file of {file_size} bytes is too short for a table's footer of {LEN} bytes"
            )));
        };
        let bytes = tail.get(start..).unwrap_or_default();
        Self::decode_body(bytes, offset).map_err(|e| e.offset(offset))
    }

    /// Decodes [`LEN`] bytes that end with the right magic and lie at `offset` of the file.
    fn decode_body(bytes: &[u8], offset: u64) -> Result<Self> {
        let version = u32_at(bytes, VERSION_OFFSET).unwrap_or_default();
        if !(2..=7).contains(&version) {
            return Err(
                Error::not_supported(format!("table with format_version {version}"))
                    .hint("format versions 2 to 7 are read"),
            );
        }
        let type_byte = bytes.first().copied().unwrap_or_default();
        let checksum_type = ChecksumType::from_u8(type_byte).ok_or_else(|| {
            Error::corruption(format!(
                "footer names the unknown checksum type {type_byte}"
            ))
        })?;
        let part2 = bytes.get(PART2_OFFSET..VERSION_OFFSET).unwrap_or_default();
        if version >= 6 {
            return Self::decode_extended(checksum_type, version, bytes, part2, offset);
        }
        let mut from = Decoder::new(part2);
        let (Some(metaindex), Some(index)) = (
            BlockHandle::decode(&mut from),
            BlockHandle::decode(&mut from),
        ) else {
            return Err(Error::corruption("footer holds no two block handles"));
        };
        check_inside("metaindex", metaindex, offset)?;
        check_inside("index", index, offset)?;
        Ok(Self {
            checksum_type,
            metaindex,
            index: Some(index),
            format_version: version,
            base_context: 0,
        })
    }

    fn decode_extended(
        checksum_type: ChecksumType,
        version: u32,
        bytes: &[u8],
        part2: &[u8],
        offset: u64,
    ) -> Result<Self> {
        let mut from = Decoder::new(part2);
        let fields = (|| {
            let magic = from.bytes(4)?;
            Some((magic, from.u32()?, from.u32()?, from.u32()?))
        })();
        let Some((magic, stored, base_context, size)) = fields else {
            return Err(Error::corruption("footer is cut short"));
        };
        if magic != EXTENDED_MAGIC {
            return Err(Error::corruption("footer lacks its second magic number"));
        }
        if base_context == 0 {
            return Err(Error::corruption("footer has base context 0"));
        }
        if checksum_type != ChecksumType::None {
            let found = footer_checksum(checksum_type, bytes, base_context, offset);
            if found != stored {
                return Err(Error::corruption(format!(
                    "footer checksum mismatch: stored {stored:#010x}, computed {found:#010x}"
                )));
            }
        }
        if u64_at(part2, part2.len().saturating_sub(8)) != Some(0) {
            return Err(Error::corruption("footer's reserved bytes are not zero"));
        }
        let size = u64::from(size);
        let start = offset
            .checked_sub(size + BLOCK_TRAILER_LEN)
            .ok_or_else(|| {
                Error::corruption(format!("metaindex of {size} bytes does not fit the file"))
            })?;
        Ok(Self {
            checksum_type,
            metaindex: BlockHandle {
                offset: start,
                size,
            },
            index: None,
            format_version: version,
            base_context,
        })
    }

    /// The [`LEN`] bytes of a footer that begins at `offset` of its file.
    ///
    /// # Panics
    /// If the index handle is missing before format version 6, or the base context from then on.
    pub fn encode(&self, offset: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(LEN);
        out.push(self.checksum_type.to_u8());
        if self.format_version >= 6 {
            assert_ne!(
                self.base_context, 0,
                "format version 6 needs a base context"
            );
            out.extend_from_slice(&EXTENDED_MAGIC);
            put_u32(&mut out, 0);
            put_u32(&mut out, self.base_context);
            put_u32(&mut out, self.metaindex.size as u32);
        } else {
            self.metaindex.encode(&mut out);
            match self.index {
                Some(index) => index.encode(&mut out),
                None => panic!("a footer of format version 2 to 5 holds the index handle"),
            }
        }
        // Two handles take at most 40 bytes.
        out.resize(VERSION_OFFSET, 0);
        put_u32(&mut out, self.format_version);
        put_u64(&mut out, MAGIC);
        if self.format_version >= 6 {
            // Without checksums it is the context alone, which RocksDB checks.
            let sum = footer_checksum(self.checksum_type, &out, self.base_context, offset);
            if let Some(field) = out.get_mut(PART2_OFFSET + 4..PART2_OFFSET + 8) {
                field.copy_from_slice(&sum.to_le_bytes());
            }
        }
        out
    }
}

/// The checksum of a footer of version 6 or later: its own field counts as zero.
fn footer_checksum(kind: ChecksumType, bytes: &[u8], base_context: u32, offset: u64) -> u32 {
    let mut zeroed = bytes.to_vec();
    if let Some(field) = zeroed.get_mut(PART2_OFFSET + 4..PART2_OFFSET + 8) {
        field.fill(0);
    }
    plain(kind, &zeroed).wrapping_add(context(base_context, offset))
}

fn check_magic(magic: u64) -> Result<()> {
    match magic {
        MAGIC => Ok(()),
        LEGACY_MAGIC => Err(Error::not_supported("table with format_version 0")
            .hint("format versions 2 to 7 are read; compact the database with RocksDB first")),
        PLAIN_TABLE_MAGIC | PLAIN_TABLE_LEGACY_MAGIC => {
            Err(Error::not_supported("tables of the PlainTable format"))
        }
        CUCKOO_TABLE_MAGIC => Err(Error::not_supported("tables of the Cuckoo format")),
        _ => Err(Error::corruption(format!(
            "not a table: the magic number is {magic:#018x}, not {MAGIC:#018x}"
        ))),
    }
}

/// Blocks end, with their trailer, at or before `limit`.
fn check_inside(what: &str, handle: BlockHandle, limit: u64) -> Result<()> {
    let end = handle
        .offset
        .checked_add(handle.size)
        .and_then(|end| end.checked_add(BLOCK_TRAILER_LEN));
    if end.is_some_and(|end| end <= limit) {
        return Ok(());
    }
    let BlockHandle { offset, size } = handle;
    Err(Error::corruption(format!(
        "{what} block of {size} bytes at {offset} does not lie inside the file"
    )))
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use super::*;
    use base::ErrorKind;
    use proptest::prelude::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let pair = |p: &[u8]| u8::from_str_radix(std::str::from_utf8(p).unwrap(), 16).unwrap();
        digits.chunks(2).map(pair).collect()
    }

    fn extended(checksum: &str, version: u32) -> Vec<u8> {
        let zeros = "00".repeat(24);
        hex(&format!(
            "04 3e007a00 {checksum} 0546877f 6c000000 {zeros} 0{version}000000 f7cff485b741e288"
        ))
    }

    #[test]
    fn footers_of_versions_6_and_7_that_rocksdb_wrote() {
        for (checksum, version, size) in [("197c8e3b", 6, 32199), ("76142dbd", 7, 32206)] {
            let tail = extended(checksum, version);
            assert_eq!(tail.len(), LEN);
            let footer = Footer::decode(&tail, size).unwrap();
            assert_eq!(footer.checksum_type, ChecksumType::Xxh3);
            assert_eq!(
                footer.metaindex,
                BlockHandle {
                    offset: size - 166,
                    size: 108
                }
            );
            assert_eq!(footer.encode(size - LEN as u64), tail);
            assert_eq!(footer.index, None);
            assert_eq!(
                (footer.format_version, footer.base_context),
                (version, 0x7f87_4605)
            );
            // At another place in a file, or with any bit before the version changed, it is refused.
            assert!(Footer::decode(&tail, size + 1).unwrap_err().is_corruption());
            for bit in 8..8 * VERSION_OFFSET {
                let mut bad = tail.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(Footer::decode(&bad, size).is_err(), "bit {bit}");
            }
        }
    }

    #[test]
    fn round_trip() {
        let footer = Footer {
            checksum_type: ChecksumType::Crc32c,
            metaindex: BlockHandle {
                offset: 1000,
                size: 30,
            },
            index: Some(BlockHandle {
                offset: 900,
                size: 95,
            }),
            format_version: 5,
            base_context: 0,
        };
        let bytes = footer.encode(1035);
        assert_eq!(bytes.len(), LEN);
        assert_eq!(Footer::decode(&bytes, 1088).unwrap(), footer);
        let e = Footer::decode(&bytes, 1087).unwrap_err().to_string();
        assert!(e.contains("metaindex block of 30 bytes at 1000"), "{e}");
        let largest = BlockHandle {
            offset: u64::MAX,
            size: u64::MAX,
        };
        let bytes = Footer {
            metaindex: largest,
            index: Some(largest),
            ..footer
        }
        .encode(0);
        assert_eq!(bytes.len(), LEN);
        assert!(
            Footer::decode(&bytes, u64::MAX)
                .unwrap_err()
                .is_corruption()
        );
    }

    #[test]
    fn other_tables_are_named() {
        let kind = |tail: &[u8]| Footer::decode(tail, 5000).unwrap_err().kind();
        let mut tail = extended("197c8e3b", 6);
        for magic in [
            LEGACY_MAGIC,
            PLAIN_TABLE_MAGIC,
            PLAIN_TABLE_LEGACY_MAGIC,
            CUCKOO_TABLE_MAGIC,
        ] {
            tail[45..].copy_from_slice(&magic.to_le_bytes());
            assert_eq!(kind(&tail), ErrorKind::NotSupported);
        }
        tail[45..].copy_from_slice(&MAGIC.to_le_bytes());
        for version in [0, 1, 8, u32::MAX] {
            tail[41..45].copy_from_slice(&version.to_le_bytes());
            assert_eq!(kind(&tail), ErrorKind::NotSupported);
        }
        tail[45] = 0;
        assert_eq!(kind(&tail), ErrorKind::Corruption);
        assert_eq!(kind(&tail[50..]), ErrorKind::Corruption);
        assert_eq!(kind(&[]), ErrorKind::Corruption);
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_footer_or_an_error(
            mut b in proptest::collection::vec(any::<u8>(), 0..60),
            version in 2u32..9,
            size: u64,
        ) {
            drop(Footer::decode(&b, size));
            if let Some(at) = b.len().checked_sub(12) {
                b[at..at + 4].copy_from_slice(&version.to_le_bytes());
                b[at + 4..].copy_from_slice(&MAGIC.to_le_bytes());
                let n = b.len() as u64;
                if let Ok(footer) = Footer::decode(&b, n) {
                    prop_assert!(footer.metaindex.offset + footer.metaindex.size <= n);
                }
            }
        }
    }
}
