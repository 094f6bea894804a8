//! The file `STORE`: the identity of a store. Two copies of 4 KiB, written in turns.
//!
//! ```text
//!   0+4 "ISst"   4+4 crc of the rest   8+4 version   12+4 unit   16+8 generation
//!   24+16 store  40+16 cluster   56+8 log_bytes   64+4 slots   68+4 zero
//!   72+8 features that must be known   80+8 features that need not be
//!   88+8 the newest file of the log that was begun   96+8 openings
//!   104+4 stores that it knows   108+4 zeros   112… 24 bytes each: 8 number, 16 name
//! ```
//!
//! Little-endian; the crc is CRC-32C.

use std::collections::BTreeMap;

use base::coding::{Decoder, put_u32, put_u64};
use base::{Error, Result};
use io::{AlignedBuf, File, SyncKind, WriteSync, buffer::PAGE};

use crate::ids::Uuid;
use crate::sealed;

/// Bytes of one copy.
pub const LEN: usize = sealed::LEN;
/// The version that this code writes and reads.
pub const VERSION: u32 = 1;
/// The features that this code knows.
const KNOWN: u64 = 0;
const MAGIC: [u8; 4] = *b"ISst";
/// The most peers that a store remembers.
pub const PEERS_MAX: usize = 128;

/// The superblock of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Bytes of the unit that the device writes atomically.
    pub unit: u32,
    /// Number of copies that were written.
    pub generation: u64,
    /// The store's id for ever.
    pub store: Uuid,
    /// The cluster's id.
    pub cluster: Uuid,
    /// Bytes of a log file.
    pub log_bytes: u64,
    /// Slots of the data file.
    pub slots: u32,
    /// Feature bits that a release must know to open the store.
    pub needed: u64,
    /// Feature bits that a release may ignore if it does not know them.
    pub optional: u64,
    /// The newest log file that is known to have a durable batch; 0: none.
    pub log_number: u64,
    /// How often the store was opened; see [`trailer`](super::trailer).
    pub openings: u64,
    /// The other stores that it has met, by number. A different store under the same number was created anew,
    /// without what the old one had acknowledged, and is refused.
    pub peers: BTreeMap<u64, Uuid>,
}

impl Superblock {
    /// The encoding of one copy.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(LEN);
        put_u32(&mut body, VERSION);
        put_u32(&mut body, self.unit);
        put_u64(&mut body, self.generation);
        body.extend_from_slice(&self.store.0);
        body.extend_from_slice(&self.cluster.0);
        put_u64(&mut body, self.log_bytes);
        put_u32(&mut body, self.slots);
        put_u32(&mut body, 0);
        put_u64(&mut body, self.needed);
        put_u64(&mut body, self.optional);
        put_u64(&mut body, self.log_number);
        put_u64(&mut body, self.openings);
        put_u32(&mut body, self.peers.len() as u32);
        put_u32(&mut body, 0);
        for (number, peer) in &self.peers {
            put_u64(&mut body, *number);
            body.extend_from_slice(&peer.0);
        }
        sealed::seal(MAGIC, body)
    }

    /// Decodes one copy. Errors: Corruption; `NotSupported` for an unknown version or feature.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut d = sealed::open(bytes, MAGIC, "STORE")?;
        let version = d.u32().unwrap_or_default();
        if version != VERSION {
            return Err(sealed::unknown_version("a store", version, VERSION));
        }
        let Some(block) = Self::decode_rest(&mut d) else {
            return Err(Error::corruption("STORE: values that cannot be"));
        };
        let unknown = block.needed & !KNOWN;
        if unknown != 0 {
            return Err(Error::not_supported(format!(
                "a store with features {unknown:#x}, which this release does not know"
            ))
            .hint(sealed::NEWER));
        }
        Ok(block)
    }

    fn decode_rest(d: &mut Decoder<'_>) -> Option<Self> {
        let unit = d.u32()?;
        let generation = d.u64()?;
        let store = Uuid(d.bytes(16)?.try_into().ok()?);
        let cluster = Uuid(d.bytes(16)?.try_into().ok()?);
        let (log_bytes, slots, _) = (d.u64()?, d.u32()?, d.u32()?);
        let (needed, optional, log_number) = (d.u64()?, d.u64()?, d.u64()?);
        let openings = d.u64()?;
        let (count, _) = (d.u32()? as usize, d.u32()?);
        let mut peers = BTreeMap::new();
        for _ in 0..(count <= PEERS_MAX).then_some(count)? {
            peers.insert(d.u64()?, Uuid(d.bytes(16)?.try_into().ok()?));
        }
        (unit.is_power_of_two() && (512..=PAGE as u32).contains(&unit)).then_some(Self {
            unit,
            generation,
            store,
            cluster,
            log_bytes,
            slots,
            needed,
            optional,
            log_number,
            openings,
            peers,
        })
    }

    /// Reads the newer copy of a file. Errors: neither copy is intact, or one is of a newer release; they name
    /// the file.
    pub fn read(file: &dyn File) -> Result<Self> {
        let mut bytes = AlignedBuf::zeroed(2 * LEN, PAGE)?;
        file.read_at(&mut bytes, 0)?;
        let (first, second) = bytes.split_at(LEN);
        let mut newest: Result<Self> = Err(Error::corruption("no copy of the superblock is whole")
            .hint("name a store's directory, or bring its own STORE back"));
        for copy in [first, second] {
            match Self::decode(copy) {
                Ok(block)
                    if newest
                        .as_ref()
                        .is_ok_and(|n| n.generation > block.generation) => {}
                Ok(block) => newest = Ok(block),
                Err(e) if e.is_corruption() => {}
                Err(e) => return Err(e.or_file(file.path())),
            }
        }
        newest.map_err(|e| e.or_file(file.path()))
    }

    /// Writes the next generation over the older copy, durably.
    pub fn write(&mut self, file: &dyn File) -> Result<()> {
        self.generation += 1;
        let mut copy = AlignedBuf::new(PAGE);
        copy.extend_from_slice(&self.encode())?;
        let at = self.generation % 2 * LEN as u64;
        io::write_all_at(file, &copy, at, WriteSync::None)?;
        file.sync(SyncKind::All)
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use base::checksum::crc32c;
    use io::posix::Posix;
    use io::{FileSystem, OpenHow};

    use super::*;

    fn block() -> Superblock {
        Superblock {
            unit: 512,
            generation: 0,
            store: Uuid([3; 16]),
            cluster: Uuid([4; 16]),
            log_bytes: 256 << 20,
            slots: 640,
            needed: 0,
            optional: 6,
            log_number: 17,
            openings: 5,
            peers: [(1, Uuid([8; 16])), (3, Uuid([9; 16]))].into(),
        }
    }

    #[test]
    fn what_is_written_is_read_and_any_flipped_bit_refused() {
        let bytes = block().encode();
        assert_eq!(Superblock::decode(&bytes).unwrap(), block());
        for bit in 0..LEN * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(
                Superblock::decode(&bytes).unwrap_err().is_corruption(),
                "bit {bit}"
            );
        }
    }

    /// If one copy is torn or zero, the other is used.
    #[test]
    fn the_copies_are_written_in_turns() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("STORE");
        let file = Posix.open(&path, OpenHow::CREATE_NEW).unwrap();
        let e = Superblock::read(&*file).unwrap_err().to_string();
        assert!(
            e.contains("STORE") && e.contains("store's directory"),
            "{e}"
        );
        let mut block = block();
        for generation in 1..5_u64 {
            block.slots += 1;
            block.write(&*file).unwrap();
            assert_eq!(Superblock::read(&*file).unwrap(), block);
            assert_eq!(block.generation, generation);
            let at = generation % 2 * LEN as u64;
            if generation > 1 {
                io::write_all_at(&*file, &[0; 700], at, WriteSync::None).unwrap();
                let left = Superblock::read(&*file).unwrap();
                assert_eq!(
                    (left.generation, left.slots),
                    (generation - 1, block.slots - 1)
                );
                let mut copy = block.clone();
                copy.generation -= 1;
                copy.write(&*file).unwrap();
            }
        }
    }

    #[test]
    fn what_this_release_does_not_know_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("STORE");
        let file = Posix.open(&path, OpenHow::CREATE_NEW).unwrap();
        let mut block = block();
        block.write(&*file).unwrap();
        block.needed = 0x10;
        block.write(&*file).unwrap();
        let e = Superblock::read(&*file).unwrap_err();
        assert_eq!(e.kind(), base::ErrorKind::NotSupported);
        let says = |e: &str, thing| {
            assert!(e.contains(thing) && e.contains("start that one"), "{e}");
        };
        says(&e.to_string(), "features 0x10");
        let mut bytes = self::block().encode();
        bytes[sealed::COVERED] = 2;
        let crc = crc32c(&bytes[sealed::COVERED..]).to_le_bytes();
        bytes[4..sealed::COVERED].copy_from_slice(&crc);
        let e = Superblock::decode(&bytes).unwrap_err().to_string();
        says(&e, "a store of version 2");
    }
}
