//! Which representation a memtable has, as an option.

use base::options::OptionValue;

/// The data structure of a memtable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemtableFactory {
    /// Sorted on insertion: fast to write, and to read at the same time. The name is RocksDB's; here it is a list
    /// with an index of blocks.
    SkipList,
    /// A vector that is sorted when it is read: for bulk loads. RocksDB before 10 requires
    /// `allow_concurrent_memtable_write` to be off with it.
    Vector,
}

impl OptionValue for MemtableFactory {
    fn kind() -> String {
        "SkipListFactory | VectorRepFactory".to_owned()
    }

    /// Also parses the nested form `{id=…;…}` and RocksDB's short names. Sizes in it are ignored.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let id = text.strip_prefix("{id=").unwrap_or(text);
        match id.split([';', ':', '}']).next()? {
            "SkipListFactory" | "skip_list" => Some(Self::SkipList),
            "VectorRepFactory" | "vector" => Some(Self::Vector),
            _ => None,
        }
    }

    fn print(&self) -> String {
        match self {
            Self::SkipList => "SkipListFactory".to_owned(),
            Self::Vector => "VectorRepFactory".to_owned(),
        }
    }
}
