//! Builds a [`Block`](super::Block).

use base::coding::{put_u32, put_varint, varint_len};
use base::key;

use super::HASH_INDEX;
use super::hash_index::{self, HashIndex};

/// Collects sorted entries and lays them out as a block.
///
/// ```
/// use table::block::{Block, BlockBuilder, Cursor, Keys};
/// let mut b = BlockBuilder::new(16);
/// b.add(b"apple", b"1");
/// b.add(b"apricot", b"2");
/// let block = Block::new(&b.finish()).unwrap();
/// let mut c = Cursor::new(Keys::Plain);
/// assert!(c.seek_to_last(&block).unwrap());
/// assert_eq!((c.key(), c.value(&block)), (&b"apricot"[..], &b"2"[..]));
/// ```
#[derive(Debug)]
pub struct BlockBuilder {
    restart_interval: u32,
    out: Vec<u8>,
    restarts: Vec<u32>,
    /// Entries since the last restart point.
    since_restart: u32,
    last_key: Vec<u8>,
    hash_index: Option<HashIndex>,
}

impl BlockBuilder {
    /// A builder that stores every `restart_interval`-th key whole.
    pub fn new(restart_interval: u32) -> Self {
        Self {
            restart_interval: restart_interval.max(1),
            out: Vec::new(),
            restarts: vec![0],
            since_restart: 0,
            last_key: Vec::new(),
            hash_index: None,
        }
    }

    /// Adds a hash index with this many keys for each bucket (RocksDB's
    /// `data_block_hash_table_util_ratio`). The keys must be internal keys. Blocks of over 64 KiB or
    /// 253 restart points get none.
    #[must_use]
    pub fn hash_index(mut self, util_ratio: f64) -> Self {
        self.hash_index = Some(HashIndex::new(util_ratio));
        self
    }

    /// True if nothing was added since the start or the last [`BlockBuilder::finish`].
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Bytes that [`BlockBuilder::finish`] would return.
    pub fn size(&self) -> usize {
        self.out.len() + self.restarts.len() * 4 + 4 + self.hash_index_size()
    }

    #[inline]
    fn hash_index_size(&self) -> usize {
        self.hash_index.as_ref().map_or(0, HashIndex::size)
    }

    /// Upper bound of [`BlockBuilder::size`] after adding this entry.
    pub fn size_after(&self, key: &[u8], value: &[u8]) -> usize {
        let restart = if self.since_restart >= self.restart_interval {
            4
        } else {
            0
        };
        let lengths = 1 + varint_len(key.len() as u64) + varint_len(value.len() as u64);
        self.size() + key.len() + value.len() + lengths + restart
    }

    /// The key added last; empty at the start.
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Adds an entry. The caller must add entries in order.
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        let shared = if self.since_restart >= self.restart_interval {
            self.restarts.push(self.out.len() as u32);
            self.since_restart = 0;
            0
        } else if self.out.is_empty() {
            0
        } else {
            common_prefix(&self.last_key, key)
        };
        let suffix = &key[shared..];
        put_varint(&mut self.out, shared as u64);
        put_varint(&mut self.out, suffix.len() as u64);
        put_varint(&mut self.out, value.len() as u64);
        self.out.extend_from_slice(suffix);
        self.out.extend_from_slice(value);
        self.since_restart += 1;
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(suffix);
        if let Some(hash_index) = &mut self.hash_index {
            hash_index.add(key::user_key(key), self.restarts.len() - 1);
        }
    }

    /// Returns the block; the builder is empty afterwards.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.finish_into(&mut out);
        out
    }

    /// Puts the block into `out`, replacing its content, so that two buffers are enough for a whole
    /// table. The builder is empty afterwards.
    pub fn finish_into(&mut self, out: &mut Vec<u8>) {
        let size = self.size();
        for r in &self.restarts {
            put_u32(&mut self.out, *r);
        }
        let mut packed = self.restarts.len() as u32;
        if let Some(hash_index) = &mut self.hash_index {
            if hash_index.is_usable() && size <= hash_index::BLOCK_BYTES_MAX {
                hash_index.finish_into(&mut self.out);
                packed |= HASH_INDEX;
            }
            hash_index.clear();
        }
        put_u32(&mut self.out, packed);
        std::mem::swap(&mut self.out, out);
        self.out.clear();
        self.restarts.clear();
        self.restarts.push(0);
        self.since_restart = 0;
        self.last_key.clear();
    }
}

/// Length of the longest common prefix.
#[inline]
pub(crate) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut n = 0;
    for (x, y) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        if x != y {
            break;
        }
        n += 8;
    }
    n + a[n..]
        .iter()
        .zip(&b[n..])
        .take_while(|(x, y)| x == y)
        .count()
}
