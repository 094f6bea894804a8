//! Builds the index block.
//!
//! ```text
//!   fv 4, 5:  shared | non_shared | key suffix | handle, whole if shared = 0, else size difference
//!   fv 2, 3:  an ordinary entry whose value is the handle
//!   key:      user key (fv ≥ 3 and no user key stands in two blocks), else internal key
//! ```

use base::coding::{put_u32, put_varint, put_varint_signed};
use base::{Comparator, SequenceNumber, ValueType, key};

use crate::block::{BlockBuilder, common_prefix};
use crate::handle::BlockHandle;
use crate::options::IndexShortening;

/// Collects separators and handles.
#[derive(Debug)]
pub(super) struct IndexBuilder {
    comparator: Comparator,
    shortening: IndexShortening,
    /// Separators as internal keys, back to back.
    keys: Vec<u8>,
    ends: Vec<usize>,
    handles: Vec<BlockHandle>,
    /// Entries of one user key stand in two blocks.
    splits_user_keys: bool,
}

/// A finished index block and how it is encoded.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) bytes: Vec<u8>,
    pub(super) user_keys: bool,
    pub(super) delta: bool,
}

impl IndexBuilder {
    pub(super) fn new(comparator: Comparator, shortening: IndexShortening) -> Self {
        Self {
            comparator,
            shortening,
            keys: Vec::new(),
            ends: Vec::new(),
            handles: Vec::new(),
            splits_user_keys: false,
        }
    }

    /// About how long the block will be.
    pub(super) fn size_estimate(&self) -> usize {
        self.keys.len() + self.handles.len() * 8
    }

    /// Adds the block at `handle`, whose last internal key is `last`, and after which `next`
    /// follows, if anything does.
    pub(super) fn add(&mut self, last: &[u8], next: Option<&[u8]>, handle: BlockHandle) {
        let user = key::user_key(last);
        let mut separator = user.to_vec();
        match next.map(key::user_key) {
            Some(next) if self.comparator.compare(user, next).is_eq() => {
                self.splits_user_keys = true;
            }
            Some(next) if self.shortening != IndexShortening::None => {
                self.comparator.shorten_separator(&mut separator, next);
            }
            None if self.shortening == IndexShortening::SeparatorsAndSuccessor => {
                self.comparator.shorten_successor(&mut separator);
            }
            _ => {}
        }
        if separator == user {
            self.keys.extend_from_slice(last);
        } else {
            // Before every entry of its user key. The type is the highest that RocksDB 7.8 knows.
            let t = ValueType::WideColumnEntity;
            key::append(&mut self.keys, &separator, SequenceNumber::MAX, t);
        }
        self.ends.push(self.keys.len());
        self.handles.push(handle);
    }

    /// The block. Handles of data blocks that follow one another without gaps are assumed.
    pub(super) fn finish(&self, format_version: u32, restart_interval: u32) -> Built {
        let user_keys = format_version >= 3 && !self.splits_user_keys;
        let delta = format_version >= 4;
        let mut start = 0;
        let entries = self.ends.iter().zip(&self.handles).map(|(&end, &handle)| {
            let internal = &self.keys[start..end];
            start = end;
            let separator = if user_keys {
                key::user_key(internal)
            } else {
                internal
            };
            (separator, handle)
        });
        let bytes = if delta {
            delta_block(entries, restart_interval)
        } else {
            plain_block(entries, restart_interval)
        };
        Built {
            bytes,
            user_keys,
            delta,
        }
    }
}

fn plain_block<'k>(
    entries: impl Iterator<Item = (&'k [u8], BlockHandle)>,
    restart_interval: u32,
) -> Vec<u8> {
    let mut block = BlockBuilder::new(restart_interval);
    for (separator, handle) in entries {
        let mut value = Vec::new();
        handle.encode(&mut value);
        block.add(separator, &value);
    }
    block.finish()
}

/// Entries without a value length; see [`crate::index`] for the reading side.
fn delta_block<'k>(
    entries: impl Iterator<Item = (&'k [u8], BlockHandle)>,
    restart_interval: u32,
) -> Vec<u8> {
    let mut out = Vec::new();
    let mut restarts = Vec::new();
    let mut last: &[u8] = &[];
    let mut last_size = 0u64;
    for (i, (separator, handle)) in entries.enumerate() {
        let shared = if i % restart_interval as usize == 0 {
            restarts.push(out.len() as u32);
            0
        } else {
            common_prefix(last, separator)
        };
        put_varint(&mut out, shared as u64);
        put_varint(&mut out, (separator.len() - shared) as u64);
        out.extend_from_slice(&separator[shared..]);
        if shared == 0 {
            handle.encode(&mut out);
        } else {
            put_varint_signed(&mut out, handle.size.wrapping_sub(last_size) as i64);
        }
        last = separator;
        last_size = handle.size;
    }
    if restarts.is_empty() {
        restarts.push(0);
    }
    for r in &restarts {
        put_u32(&mut out, *r);
    }
    put_u32(&mut out, restarts.len() as u32);
    out
}
