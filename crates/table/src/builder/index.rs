//! Builds the index.
//!
//! ```text
//!   fv ≥ 4:   shared | non_shared | key suffix | handle, whole if shared = 0, else size difference
//!   fv 2, 3, or padding between the blocks:  an ordinary entry whose value is the handle
//!   key:      user key (fv ≥ 3 and no user key spans two blocks), else internal key
//!   with first keys, the handle is followed by the length and the bytes of an internal key
//! ```
//!
//! Separators and handles are added separately, in the same order: a separator is known as soon as the
//! next key is, the handle only when the block is in the file, which may be much later.

use base::coding::{put_slice, put_varint, put_varint_signed};
use base::{Comparator, SequenceNumber, SliceTransform, ValueType, key};
use io::LargeVec;

use crate::block::common_prefix;
use crate::handle::BlockHandle;
use crate::options::{IndexShortening, IndexType, TableOptions};

/// Byte strings, stored contiguously.
#[derive(Debug, Default)]
struct Strings {
    bytes: LargeVec<u8>,
    ends: LargeVec<usize>,
}

impl Strings {
    fn get(&self, i: usize) -> &[u8] {
        let start = i.checked_sub(1).map_or(0, |i| self.ends[i]);
        &self.bytes[start..self.ends[i]]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
    }
}

/// Collects separators and handles.
#[derive(Debug)]
pub(super) struct IndexBuilder {
    comparator: Comparator,
    shortening: IndexShortening,
    /// Separators as internal keys.
    separators: Strings,
    /// The first internal key of each block, if the index has them.
    first_keys: Option<Strings>,
    handles: LargeVec<BlockHandle>,
    /// Entries of some user key span two blocks.
    splits_user_keys: bool,
    prefixes: Option<Prefixes>,
    /// Scratch.
    separator: Vec<u8>,
    /// Scratch: a separator as internal key.
    internal: Vec<u8>,
}

/// How index blocks of a table are encoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Encoding {
    pub(super) user_keys: bool,
    pub(super) delta: bool,
    restart_interval: u32,
}

/// One index block and the separator after its last entry.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) bytes: LargeVec<u8>,
    pub(super) separator: Vec<u8>,
}

impl IndexBuilder {
    pub(super) fn new(
        comparator: Comparator,
        table: &TableOptions,
        prefix_extractor: Option<&SliceTransform>,
    ) -> Self {
        let with_prefixes = table.index_type == IndexType::Hash;
        Self {
            comparator,
            shortening: table.index_shortening,
            separators: Strings::default(),
            first_keys: (table.index_type == IndexType::BinarySearchWithFirstKey)
                .then(Strings::default),
            handles: LargeVec::new(),
            splits_user_keys: false,
            prefixes: prefix_extractor
                .filter(|_| with_prefixes)
                .map(|e| Prefixes::new(e.clone())),
            separator: Vec::new(),
            internal: Vec::new(),
        }
    }

    /// Estimated size of the index in bytes.
    pub(super) fn size_estimate(&self) -> usize {
        let first_keys = self.first_keys.as_ref().map_or(0, |f| f.bytes.len());
        self.separators.bytes.len() + first_keys + self.separators.ends.len() * 8
    }

    /// Number of blocks that have ended.
    pub(super) fn blocks(&self) -> usize {
        self.separators.ends.len()
    }

    /// To be called for each entry of the table, after the previous block has ended. `starts` says whether
    /// the entry starts a block.
    #[inline]
    pub(super) fn key(&mut self, internal_key: &[u8], starts: bool) {
        if starts && let Some(first_keys) = &mut self.first_keys {
            first_keys.push(internal_key);
        }
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.add(key::user_key(internal_key), self.separators.ends.len());
        }
    }

    /// To be called when a block has ended: `last` is its last internal key, `next` the one that follows,
    /// if there is one.
    pub(super) fn block_ends(&mut self, last: &[u8], next: Option<&[u8]>) {
        let user = key::user_key(last);
        let separator = &mut self.separator;
        separator.clear();
        separator.extend_from_slice(user);
        match next.map(key::user_key) {
            Some(next) if self.comparator.compare(user, next).is_eq() => {
                self.splits_user_keys = true;
            }
            Some(next) if self.shortening != IndexShortening::None => {
                self.comparator.shorten_separator(separator, next);
            }
            None if self.shortening == IndexShortening::SeparatorsAndSuccessor => {
                self.comparator.shorten_successor(separator);
            }
            _ => {}
        }
        let keys = &mut self.separators;
        if separator == user {
            keys.push(last);
        } else {
            // Sorts before every entry of its user key. The type is the highest that RocksDB 7.8 knows.
            let t = ValueType::WideColumnEntity;
            self.internal.clear();
            key::append(&mut self.internal, separator, SequenceNumber::MAX, t);
            keys.push(&self.internal);
        }
    }

    /// Adds the handle of the next block, which is in the file now.
    pub(super) fn block_written(&mut self, handle: BlockHandle) {
        self.handles.push(handle);
    }

    /// The encoding of the index and of every other block that maps keys to blocks of this table.
    pub(super) fn encoding(&self, table: &TableOptions) -> Encoding {
        Encoding {
            user_keys: table.format_version >= 3 && !self.splits_user_keys,
            // Size differences cannot express padding between the blocks.
            delta: table.format_version >= 4 && !table.block_align,
            restart_interval: match table.index_type {
                // A hash index counts entries by restart points.
                IndexType::Hash => 1,
                _ => table.index_block_restart_interval as u32,
            },
        }
    }

    /// The separator after block `i`: a user key or an internal key, as `encoding` says.
    pub(super) fn separator(&self, i: usize, encoding: Encoding) -> &[u8] {
        let separator = self.separators.get(i);
        if encoding.user_keys {
            key::user_key(separator)
        } else {
            separator
        }
    }

    /// The index in blocks of about `part_bytes`: at least one block if there are entries, or if
    /// `part_bytes` is `usize::MAX`.
    pub(super) fn finish(&self, encoding: Encoding, part_bytes: usize) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut block = IndexBlock::new(encoding);
        for (i, handle) in self.handles.iter().enumerate() {
            let separator = self.separator(i, encoding);
            let first_key = self.first_keys.as_ref().map(|f| f.get(i));
            if !block.is_empty() && block.size_after(separator, first_key) > part_bytes {
                parts.push(block.finish());
            }
            block.add(separator, *handle, first_key);
        }
        if !block.is_empty() || (parts.is_empty() && part_bytes == usize::MAX) {
            parts.push(block.finish());
        }
        parts
    }

    /// The two blocks of a hash index: prefixes and metadata.
    pub(super) fn finish_prefixes(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        self.prefixes.take().map(Prefixes::finish)
    }
}

/// Builds one block of separators and handles.
#[derive(Debug)]
pub(super) struct IndexBlock {
    encoding: Encoding,
    out: LargeVec<u8>,
    restarts: Vec<u32>,
    /// Scratch: the part of an entry before its key.
    head: Vec<u8>,
    /// Scratch: the part of an entry after its key.
    value: Vec<u8>,
    entries: usize,
    last: Vec<u8>,
    last_size: u64,
}

impl IndexBlock {
    pub(super) fn new(encoding: Encoding) -> Self {
        Self {
            encoding,
            out: LargeVec::new(),
            head: Vec::new(),
            value: Vec::new(),
            restarts: vec![0],
            entries: 0,
            last: Vec::new(),
            last_size: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Estimated size with one more entry.
    fn size_after(&self, separator: &[u8], first_key: Option<&[u8]>) -> usize {
        let entry = separator.len() + first_key.map_or(0, <[u8]>::len) + 8;
        self.out.len() + entry + self.restarts.len() * 4 + 4
    }

    /// Adds an entry. With delta encoding, the blocks must follow one another without gaps.
    pub(super) fn add(&mut self, separator: &[u8], handle: BlockHandle, first_key: Option<&[u8]>) {
        let shared = if self
            .entries
            .is_multiple_of(self.encoding.restart_interval as usize)
        {
            if self.entries > 0 {
                self.restarts.push(self.out.len() as u32);
            }
            0
        } else {
            common_prefix(&self.last, separator)
        };
        let value = &mut self.value;
        value.clear();
        if shared == 0 || !self.encoding.delta {
            handle.encode(value);
        } else {
            put_varint_signed(value, handle.size.wrapping_sub(self.last_size) as i64);
        }
        if let Some(first_key) = first_key {
            put_slice(value, first_key);
        }
        let head = &mut self.head;
        head.clear();
        put_varint(head, shared as u64);
        put_varint(head, (separator.len() - shared) as u64);
        if !self.encoding.delta {
            put_varint(head, value.len() as u64);
        }
        self.out.extend_from_slice(head);
        self.out.extend_from_slice(&separator[shared..]);
        self.out.extend_from_slice(value);
        self.last.clear();
        self.last.extend_from_slice(separator);
        self.last_size = handle.size;
        self.entries += 1;
    }

    /// Returns the block; the builder is empty afterwards.
    pub(super) fn finish(&mut self) -> Part {
        let this = std::mem::replace(self, Self::new(self.encoding));
        let mut bytes = this.out;
        for r in &this.restarts {
            bytes.extend_from_slice(&r.to_le_bytes());
        }
        let restarts = this.restarts.len() as u32;
        bytes.extend_from_slice(&restarts.to_le_bytes());
        Part {
            bytes,
            separator: this.last,
        }
    }
}

/// The hash index under construction: maps each prefix to the index entries of its blocks.
#[derive(Debug)]
struct Prefixes {
    extractor: SliceTransform,
    /// All prefixes, one after the other.
    joined: Vec<u8>,
    /// For each prefix: its length, the first index entry, the number of index entries.
    metadata: Vec<u8>,
    current: Option<Run>,
}

#[derive(Debug)]
struct Run {
    prefix: Vec<u8>,
    first: usize,
    last: usize,
}

impl Prefixes {
    fn new(extractor: SliceTransform) -> Self {
        Self {
            extractor,
            joined: Vec::new(),
            metadata: Vec::new(),
            current: None,
        }
    }

    fn add(&mut self, user_key: &[u8], block: usize) {
        let Some(prefix) = self.extractor.prefix(user_key) else {
            return;
        };
        match &mut self.current {
            Some(run) if run.prefix == prefix => run.last = block,
            _ => {
                let prefix = prefix.to_vec();
                self.end_run();
                self.current = Some(Run {
                    prefix,
                    first: block,
                    last: block,
                });
            }
        }
    }

    fn end_run(&mut self) {
        if let Some(run) = self.current.take() {
            self.joined.extend_from_slice(&run.prefix);
            put_varint(&mut self.metadata, run.prefix.len() as u64);
            put_varint(&mut self.metadata, run.first as u64);
            put_varint(&mut self.metadata, (run.last - run.first + 1) as u64);
        }
    }

    fn finish(mut self) -> (Vec<u8>, Vec<u8>) {
        self.end_run();
        (self.joined, self.metadata)
    }
}
