//! Iteration in internal-key order: the trait that every sorted source implements.

use base::Result;

use crate::prefix::Prefix;
use crate::reader::{Filled, Lacking};

/// A sorted sequence of internal keys and values.
///
/// An error makes [`InternalIterator::valid`] false and stays: [`InternalIterator::status`]
/// reports it until the next seek.
pub trait InternalIterator: Send {
    /// True if it is at an entry.
    fn valid(&self) -> bool;
    /// Moves to the first entry.
    fn seek_to_first(&mut self);
    /// Moves to the last entry.
    fn seek_to_last(&mut self);
    /// Moves to the first entry at or after the internal key `target`.
    fn seek(&mut self, target: &[u8]);
    /// Moves to the last entry at or before the internal key `target`.
    fn seek_for_prev(&mut self, target: &[u8]);
    /// Like [`InternalIterator::seek`], for a caller that needs only keys with this prefix, which the
    /// target has. May return false, without a position, if it can tell without a seek that there is
    /// no such key at or after the target.
    fn seek_in_prefix(&mut self, target: &[u8], prefix: Prefix<'_>) -> bool {
        let _ = prefix;
        self.seek(target);
        true
    }
    /// Like [`InternalIterator::seek_for_prev`], with a prefix as in
    /// [`InternalIterator::seek_in_prefix`].
    fn seek_for_prev_in_prefix(&mut self, target: &[u8], prefix: Prefix<'_>) -> bool {
        let _ = prefix;
        self.seek_for_prev(target);
        true
    }
    /// Moves to the next entry. Only when valid.
    fn next(&mut self);
    /// Moves to the previous entry. Only when valid.
    fn prev(&mut self);
    /// The internal key of the entry. Only when valid.
    fn key(&self) -> &[u8];
    /// The value of the entry. Only when valid.
    fn value(&self) -> &[u8];
    /// The error that ended the iteration, if one did.
    fn status(&self) -> Result<()>;
    /// Lets the next seek stop, without a position, at a block that the device would have to be waited for, until
    /// [`InternalIterator::take_lacking`]. `again`: the seek has stopped, and is done again now.
    fn stop_if_lacking(&mut self, again: bool) {
        let _ = again;
    }
    /// What the seek lacks, if it has stopped. It is to be done again then, best with what it lacked.
    fn take_lacking(&mut self) -> Option<Lacking> {
        None
    }
    /// Takes what the seek lacked.
    fn give(&mut self, filled: Filled) {
        let _ = filled;
    }
    /// Whether the memory of the entry's value stays valid as long as the iterator lives. Only when
    /// valid.
    fn is_value_pinned(&self) -> bool {
        false
    }
    /// Like [`InternalIterator::is_value_pinned`], for the key.
    fn is_key_pinned(&self) -> bool {
        false
    }
}
