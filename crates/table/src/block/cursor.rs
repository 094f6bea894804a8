//! A position in a [`Block`].
#![deny(clippy::indexing_slicing)]

use std::cmp::Ordering;

use base::key::{self, TRAILER_LEN};
use base::{Comparator, Error, Result};

use super::{Block, Keys, bad};

/// Approximate limit of the bytes of passed keys that are kept: enough for any valid restart interval.
const PASSED_BYTES_MAX: usize = 1 << 20;

/// An entry that `prev` has passed on its way from a restart point.
#[derive(Clone, Copy, Debug)]
struct Passed {
    at: u32,
    next: u32,
    value_at: u32,
    value_len: u32,
    /// End of its key in the buffer of passed keys.
    key_end: u32,
}

/// A seek key, split once.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The user key.
    pub user: &'a [u8],
    /// `(sequence << 8) | type`.
    pub packed: u64,
}

impl<'a> Target<'a> {
    /// Splits an internal key; `InvalidArgument` if it is too short to be one.
    #[inline]
    pub fn new(internal: &'a [u8]) -> Result<Self> {
        let (user, packed) = key::split(internal)
            .ok_or_else(|| Error::invalid_argument("a seek key shorter than 8 bytes"))?;
        Ok(Self { user, packed })
    }

    /// The order of an internal key relative to the target.
    #[inline]
    pub fn order_of(&self, cmp: &Comparator, user: &[u8], packed: u64) -> Ordering {
        cmp.compare(user, self.user)
            .then_with(|| self.packed.cmp(&packed))
    }
}

/// A position in a block: at an entry, or invalid. See the module documentation of
/// [`block`](crate::block).
///
/// A method that fails leaves the cursor invalid.
#[derive(Debug, Default)]
pub struct Cursor {
    keys: Keys,
    /// The key as stored; the next entry's key is built from it.
    stored: Vec<u8>,
    /// The key with the file's sequence number, for ingested files only.
    shown: Vec<u8>,
    value_at: u32,
    value_len: u32,
    /// Offset of the entry.
    at: u32,
    /// Offset of the next entry.
    next: u32,
    /// Offset of the next entry's value, if values are separated.
    next_value: u32,
    /// The last restart point at or before `at`.
    restart: u32,
    /// Offset of the restart point after that.
    next_restart_at: u32,
    valid: bool,
    /// The entries between the restart point and `at` that `prev` has decoded, so that a backward
    /// scan decodes each restart interval once, not once for each entry.
    passed: Vec<Passed>,
    passed_keys: Vec<u8>,
    /// The restart point that the passed entries follow.
    passed_restart: u32,
}

impl Cursor {
    /// An invalid cursor, for blocks with keys of this kind.
    pub fn new(keys: Keys) -> Self {
        Self {
            keys,
            ..Self::default()
        }
    }

    /// Makes it an invalid cursor for blocks with keys of this kind.
    #[inline]
    pub fn reset(&mut self, keys: Keys) {
        self.keys = keys;
        self.valid = false;
    }

    /// True if it is at an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The key of the entry.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match self.keys {
            Keys::Ingested(_) => &self.shown,
            Keys::Internal | Keys::Plain => &self.stored,
        }
    }

    /// The value of the entry.
    #[inline]
    pub fn value<'b>(&self, block: &'b Block) -> &'b [u8] {
        let from = self.value_at as usize;
        block
            .memory
            .get(from..from + self.value_len as usize)
            .unwrap_or_default()
    }

    /// Offset of the value in the stored block.
    pub(crate) fn value_at(&self, block: &Block) -> usize {
        self.value_at.saturating_sub(block.base) as usize
    }

    /// Makes the cursor invalid.
    pub fn clear(&mut self) {
        self.valid = false;
    }

    /// Moves to the first entry. False if there is none.
    pub fn seek_to_first(&mut self, block: &Block) -> Result<bool> {
        self.go_to_restart(block, 0);
        self.step(block)
    }

    /// Moves to the last entry. False if there is none.
    pub fn seek_to_last(&mut self, block: &Block) -> Result<bool> {
        self.valid = false;
        if block.entries_end == block.base {
            return Ok(false);
        }
        self.go_to_restart(block, block.restarts() - 1);
        self.scan_until(block, block.entries_end)
    }

    /// Moves to the first entry that is not before `target`. False if there is none in this block.
    #[inline]
    pub fn seek(&mut self, block: &Block, cmp: &Comparator, target: &Target<'_>) -> Result<bool> {
        self.valid = false;
        if block.entries_end == block.base {
            return Ok(false);
        }
        let (mut lo, mut hi) = block.candidates(cmp, target.user);
        while lo < hi {
            let mid = lo.midpoint(hi);
            let (user, packed) = split(self.keys, block.restart_key(mid)?)?;
            if target.order_of(cmp, user, packed) == Ordering::Less {
                lo = mid + 1;
            } else {
                hi = mid;
            }
        }
        self.go_to_restart(block, lo.saturating_sub(1));
        while self.step(block)? {
            let (user, packed) = split(self.keys, &self.stored)?;
            if target.order_of(cmp, user, packed) != Ordering::Less {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves to the next entry. False at the end.
    #[inline]
    pub fn next(&mut self, block: &Block) -> Result<bool> {
        debug_assert!(self.valid, "next() of a cursor that is nowhere");
        self.step(block)
    }

    /// Moves to the previous entry. False at the start.
    pub fn prev(&mut self, block: &Block) -> Result<bool> {
        debug_assert!(self.valid, "prev() of a cursor that is nowhere");
        let at = self.at;
        self.valid = false;
        if at <= block.base {
            return Ok(false);
        }
        if self.passed.last().is_some_and(|p| p.next == at) {
            return self.restore_passed(block);
        }
        let mut restart = self.restart;
        if block.restart(restart) >= at {
            restart = restart
                .checked_sub(1)
                .filter(|&r| block.restart(r) < at)
                .ok_or_else(|| bad("restart points are out of order"))?;
        }
        self.go_to_restart(block, restart);
        while self.step(block)? && self.next < at {
            if self.passed_keys.len() > PASSED_BYTES_MAX {
                self.passed_keys.clear();
                self.passed.clear();
            }
            self.passed_keys.extend_from_slice(&self.stored);
            self.passed.push(Passed {
                at: self.at,
                next: self.next,
                value_at: self.value_at,
                value_len: self.value_len,
                key_end: self.passed_keys.len() as u32,
            });
        }
        self.valid = self.valid && self.next == at;
        if self.valid {
            return Ok(true);
        }
        Err(bad("no entry ends where one should"))
    }

    /// Moves back to the last passed entry.
    fn restore_passed(&mut self, block: &Block) -> Result<bool> {
        let Some(p) = self.passed.pop() else {
            return Ok(false);
        };
        let start = self.passed.last().map_or(0, |p| p.key_end) as usize;
        let key = self.passed_keys.get(start..p.key_end as usize);
        self.stored.clear();
        self.stored.extend_from_slice(key.unwrap_or_default());
        self.passed_keys.truncate(start);
        self.at = p.at;
        self.next = p.next;
        self.value_at = p.value_at;
        self.value_len = p.value_len;
        self.next_value = p.value_at + p.value_len;
        self.restart = self.passed_restart;
        self.next_restart_at = block.restart(self.restart + 1);
        self.finish_internal()?;
        self.valid = true;
        Ok(true)
    }

    /// Steps to the entry that ends at `end`.
    fn scan_until(&mut self, block: &Block, end: u32) -> Result<bool> {
        while self.step(block)? {
            if self.next >= end {
                if self.next == end {
                    return Ok(true);
                }
                break;
            }
        }
        self.valid = false;
        Err(bad("no entry ends where one should"))
    }

    /// Makes the entry at restart point `i` the next one.
    #[inline]
    fn go_to_restart(&mut self, block: &Block, i: u32) {
        self.valid = false;
        self.stored.clear();
        self.passed.clear();
        self.passed_keys.clear();
        self.passed_restart = i;
        self.restart = i;
        self.next = block.restart(i).min(block.entries_end);
        self.next_restart_at = block.restart(i + 1);
        self.next_value = block.entries_end;
    }

    /// Decodes the next entry. False at the end of the block.
    #[inline]
    fn step(&mut self, block: &Block) -> Result<bool> {
        self.valid = false;
        self.at = self.next;
        if self.at >= block.entries_end {
            return Ok(false);
        }
        if self.at >= self.next_restart_at {
            if self.at > self.next_restart_at {
                return Err(bad("a restart point is not at an entry"));
            }
            self.restart += 1;
            self.next_restart_at = block.restart(self.restart + 1);
        }
        let is_restart = block.is_separated() && self.at == block.restart(self.restart);
        let Some(head) = block.head(self.at, is_restart) else {
            return Err(bad("an entry is cut short"));
        };
        let from = head.suffix_at as usize;
        let suffix_end = from + head.suffix_len as usize;
        let suffix = block.suffix(from, head.suffix_len as usize);
        let (Some(suffix), true) = (suffix, head.shared as usize <= self.stored.len()) else {
            return Err(bad("a key runs over the end"));
        };
        self.stored.truncate(head.shared as usize);
        self.stored.extend_from_slice(suffix);
        let suffix_end = suffix_end as u32;
        self.value_len = head.value_len;
        let fits = if block.is_separated() {
            self.separated_value(block, suffix_end, head.value_offset, is_restart)
        } else {
            self.value_at = suffix_end;
            suffix_end
                .checked_add(head.value_len)
                .filter(|&end| end <= block.entries_end)
                .map(|end| self.next = end)
        };
        if fits.is_none() {
            return Err(bad("a value runs over the end"));
        }
        self.finish_internal()?;
        self.valid = true;
        Ok(true)
    }

    /// Finds the value of an entry in a block with separated values.
    fn separated_value(
        &mut self,
        block: &Block,
        suffix_end: u32,
        value_offset: u32,
        is_restart: bool,
    ) -> Option<()> {
        if suffix_end > block.entries_end {
            return None;
        }
        self.next = suffix_end;
        self.value_at = if is_restart {
            block.entries_end.checked_add(value_offset)?
        } else {
            self.next_value
        };
        self.next_value = self.value_at.checked_add(self.value_len)?;
        (self.next_value as usize <= block.memory.len()).then_some(())
    }

    /// Checks the stored key, and for an ingested file builds the key to return.
    #[inline]
    fn finish_internal(&mut self) -> Result<()> {
        if self.keys == Keys::Plain {
            return Ok(());
        }
        if self.stored.len() < TRAILER_LEN {
            return Err(bad("a key is shorter than 8 bytes"));
        }
        if let Keys::Ingested(_) = self.keys {
            let (user, packed) = split(self.keys, &self.stored)?;
            self.shown.clear();
            self.shown.extend_from_slice(user);
            self.shown.extend_from_slice(&packed.to_le_bytes());
        }
        Ok(())
    }
}

/// Splits a stored key; in an ingested file the sequence number is the file's.
#[inline]
fn split(keys: Keys, stored: &[u8]) -> Result<(&[u8], u64)> {
    let (user, packed) = key::split(stored).ok_or_else(|| bad("a key is shorter than 8 bytes"))?;
    let packed = match keys {
        Keys::Ingested(sequence) => (sequence << 8) | (packed & 0xff),
        _ => packed,
    };
    Ok((user, packed))
}
