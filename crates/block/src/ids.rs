//! The ids of things, as types of their own, so that they cannot be mixed up.

use std::fmt;

/// Bytes of a block, the unit of volumes.
pub const BLOCK: usize = 4096;
/// Blocks of a chunk, the unit of placement: 16 MiB.
pub const CHUNK_BLOCKS: u32 = 4096;
/// Blocks of an extent, the unit of checksums on disk: 2 MiB.
pub const EXTENT_BLOCKS: u32 = 512;
/// Extents of a chunk.
pub const CHUNK_EXTENTS: u8 = (CHUNK_BLOCKS / EXTENT_BLOCKS) as u8;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// A Raft group.
    Group(u32);
    /// A term of a group.
    Term(u64);
    /// A position in a group's log, from 1; 0 is before the first entry.
    Index(u64);
    /// A tree of layers: a volume, its snapshots and clones.
    Tree(u64);
    /// A layer of a tree: one writable head, immutable parents.
    Layer(u64);
    /// A chunk of a layer.
    Chunk(u32);
    /// A block of a chunk, below [`CHUNK_BLOCKS`].
    Block(u32);
    /// A slot of a store's data file.
    Slot(u32);
    /// Rises each time a volume is attached.
    Epoch(u32);
    /// The random id of an attachment.
    Attachment(u64);
}

/// Identifies a store for ever.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uuid({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_usual() {
        let uuid = Uuid(std::array::from_fn(|i| i as u8 * 17));
        assert_eq!(uuid.to_string(), "00112233-4455-6677-8899-aabbccddeeff");
    }
}
