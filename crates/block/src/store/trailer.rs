//! The end of a data file: the store that it belongs to, and how often that store was opened. Two copies of 4
//! KiB, which differ only while they are written.
//!
//! ```text
//!   0+4 "ISdt"   4+4 crc of the rest   8+4 version   12+4 zero   16+16 store   32+8 openings   40… zeros
//! ```
//!
//! Little-endian; the crc is CRC-32C. `STORE` has the same count. So a data file of another store is detected,
//! and so is one of the same store from before its last opening, even if its pages look right.

use base::coding::{Decoder, put_u32, put_u64};
use base::{Error, ErrorKind, Result};
use io::{AlignedBuf, File, SyncKind, WriteSync, buffer::PAGE};

use crate::ids::Uuid;
use crate::sealed;

/// Bytes of both copies.
pub const LEN: u64 = 2 * sealed::LEN as u64;
/// The version that this code writes and reads.
pub const VERSION: u32 = 1;
const MAGIC: [u8; 4] = *b"ISdt";

/// The end of a data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// The store that the data file belongs to.
    pub store: Uuid,
    /// How often the store was opened.
    pub openings: u64,
}

impl Trailer {
    fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(sealed::LEN);
        put_u32(&mut body, VERSION);
        put_u32(&mut body, 0);
        body.extend_from_slice(&self.store.0);
        put_u64(&mut body, self.openings);
        sealed::seal(MAGIC, body)
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut d = sealed::open(bytes, MAGIC, "the data file's end")?;
        let version = d.u32().unwrap_or_default();
        if version != VERSION {
            return Err(sealed::unknown_version("a data file", version, VERSION));
        }
        let rest = Self::decode_rest(&mut d);
        rest.ok_or_else(|| Error::corruption("the data file's end: values that cannot be"))
    }

    fn decode_rest(d: &mut Decoder<'_>) -> Option<Self> {
        let _zero = d.u32()?;
        Some(Self {
            store: Uuid(d.bytes(16)?.try_into().ok()?),
            openings: d.u64()?,
        })
    }

    /// Reads the newer copy; the first begins at offset `at`. Errors: neither copy is intact, or one is of a
    /// newer release; they name the file.
    pub fn read(file: &dyn File, at: u64) -> Result<Self> {
        let mut newest: Result<Self> =
            Err(Error::corruption("no copy of the data file's end is whole")
                .hint("bring the store's own data file back, as long as it was made"));
        for copy in [0, 1] {
            let mut bytes = AlignedBuf::zeroed(sealed::LEN, PAGE)?;
            let read = file.read_at(&mut bytes, at + copy * sealed::LEN as u64);
            match read.and_then(|_| Self::decode(&bytes)) {
                Ok(one) if newest.as_ref().is_ok_and(|n| n.openings > one.openings) => {}
                Ok(one) => newest = Ok(one),
                Err(e) if e.kind() == ErrorKind::NotSupported => {
                    return Err(e.or_file(file.path()));
                }
                // If one copy is damaged or unreadable, the other is used.
                Err(e) if e.is_corruption() => {}
                Err(e) => newest = newest.or(Err(e)),
            }
        }
        newest.map_err(|e| e.or_file(file.path()).offset(at))
    }

    /// Writes both copies durably, one after the other: one of them is intact at any time.
    pub fn write(&self, file: &dyn File, at: u64) -> Result<()> {
        let mut bytes = AlignedBuf::new(PAGE);
        bytes.extend_from_slice(&self.encode())?;
        for copy in [0, 1] {
            let at = at + copy * sealed::LEN as u64;
            io::write_all_at(file, &bytes, at, WriteSync::None)?;
            file.sync(SyncKind::Data)?;
        }
        Ok(())
    }

    /// Errors: the data file does not belong to `store`, or is older than its last opening, the `openings`th.
    /// It may be newer: each opening is counted here first, and `STORE` may have failed to be written after
    /// several of them.
    pub fn check(&self, store: Uuid, openings: u64) -> Result<()> {
        if self.store != store {
            return Err(Error::corruption(format!(
                "the data file is store {}'s, and this is store {store}",
                self.store
            ))
            .hint("bring the right one back: were two disks mounted in each other's place?"));
        }
        if self.openings < openings {
            return Err(Error::corruption(format!(
                "the store was opened {openings} times, and its data file {} times",
                self.openings
            ))
            .hint("bring the newest back: this one is an older copy"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use io::posix::Posix;
    use io::{FileSystem, OpenHow};

    use super::*;

    fn trailer(openings: u64) -> Trailer {
        Trailer {
            store: Uuid([7; 16]),
            openings,
        }
    }

    /// If one copy is torn, the other is used; if both are damaged, the error names the file.
    #[test]
    fn one_copy_is_enough() {
        let dir = tempfile::tempdir().unwrap();
        let file = Posix.open(&dir.path().join("data"), OpenHow::CREATE_NEW);
        let file = file.unwrap();
        let e = Trailer::read(&*file, 8192).unwrap_err().to_string();
        assert!(e.contains("data") && e.contains("end"), "{e}");
        for copy in [0, 1] {
            trailer(3).write(&*file, 8192).unwrap();
            let at = 8192 + copy * sealed::LEN as u64;
            io::write_all_at(&*file, &[0; 700], at, WriteSync::None).unwrap();
            assert_eq!(Trailer::read(&*file, 8192).unwrap(), trailer(3));
        }
        // A crash came between the two writes.
        let newer = trailer(4).encode();
        io::write_all_at(&*file, &newer, 8192, WriteSync::None).unwrap();
        assert_eq!(Trailer::read(&*file, 8192).unwrap(), trailer(4));
        let newer_release = sealed::seal(MAGIC, (VERSION + 1).to_le_bytes().to_vec());
        io::write_all_at(&*file, &newer_release, 8192, WriteSync::None).unwrap();
        let e = Trailer::read(&*file, 8192).unwrap_err().to_string();
        assert!(e.contains("data: ") && e.contains("start that one"), "{e}");
    }

    #[test]
    fn another_stores_and_an_older_one_are_refused_by_name() {
        assert!(trailer(3).check(Uuid([7; 16]), 3).is_ok());
        assert!(trailer(5).check(Uuid([7; 16]), 3).is_ok(), "crashes");
        for (store, openings, says) in [(8, 3, "is store 07"), (7, 4, "4 times")] {
            let e = trailer(3).check(Uuid([store; 16]), openings).unwrap_err();
            assert!(e.is_corruption() && e.to_string().contains(says), "{e}");
        }
    }

    #[test]
    fn any_flipped_bit_and_newer_versions_are_refused() {
        let bytes = trailer(3).encode();
        assert_eq!(Trailer::decode(&bytes).unwrap(), trailer(3));
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            if let Some(byte) = bytes.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
            assert!(Trailer::decode(&bytes).is_err(), "bit {bit}");
        }
        let mut body = Vec::new();
        put_u32(&mut body, VERSION + 1);
        let newer = sealed::seal(MAGIC, body);
        let e = Trailer::decode(&newer).unwrap_err();
        assert_eq!(e.kind(), base::ErrorKind::NotSupported);
    }
}
