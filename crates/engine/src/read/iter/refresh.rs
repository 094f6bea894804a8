//! Iterators that are updated to newer content: by call, automatically at a snapshot, or continuously
//! (tailing).

use base::{Error, Result, SequenceNumber, ValueType, key};

use super::{DbIterator, Direction, Place, scope_of};
use crate::Snapshot;
use crate::read::sources::News;

impl DbIterator {
    /// From now on the iterator shows the newest content, even if it was created at a snapshot, and no
    /// longer keeps old files alive. It has no position afterwards. Errors: the database was closed.
    pub fn refresh(&mut self) -> Result<()> {
        self.refresh_with_snapshot(None)
    }

    /// As [`DbIterator::refresh`], but to the content at a snapshot if one is given. Errors: also
    /// `InvalidArgument` for a snapshot of another database, and `NotSupported` for a snapshot with a
    /// tailing iterator.
    pub fn refresh_with_snapshot(&mut self, snapshot: Option<&Snapshot>) -> Result<()> {
        if self.tailing && snapshot.is_some() {
            return Err(Error::not_supported("a tailing iterator at a snapshot"));
        }
        let sequence = self.origin.refresh(snapshot)?;
        self.auto_refresh =
            snapshot.is_some() && self.origin.options.auto_refresh_iterator_with_snapshot;
        self.renew(sequence);
        self.valid = false;
        self.failure = Ok(());
        Ok(())
    }

    /// Creates new cursors for a reader at `sequence`. They have no position; a seek must follow.
    fn renew(&mut self, sequence: SequenceNumber) {
        self.renew_cursors(sequence);
        self.scope = scope_of(&self.origin);
    }

    fn renew_cursors(&mut self, sequence: SequenceNumber) {
        self.sequence = sequence;
        self.inner = self.origin.cursors(sequence);
    }

    /// At a snapshot: switches to the family's current View if that has changed. The visible content stays
    /// the same, but new cursors have no position.
    pub(super) fn renew_if_changed(&mut self) {
        if self.origin.load_view(false) {
            self.renew(self.sequence);
        }
    }

    /// [`DbIterator::renew_if_changed`] between two movements; the current entry stays the same.
    pub(super) fn refresh_here(&mut self) {
        if !self.valid || !self.origin.load_view(false) {
            return;
        }
        let at = self.key().to_vec();
        self.renew(self.sequence);
        match self.direction {
            Direction::Forward => self.seek(&at),
            Direction::Reverse => self.seek_for_prev(&at),
        }
    }

    /// Updates a tailing iterator to the newest content before a seek.
    pub(super) fn follow(&mut self) {
        let sequence = self.sequence;
        match self.origin.news(sequence) {
            News::View(sequence) => self.renew(sequence),
            News::Memtable(sequence) => self.advance(sequence),
            News::None => {}
        }
    }

    /// Reads at `sequence` from now on, with the same cursors, which see new entries by themselves.
    fn advance(&mut self, sequence: SequenceNumber) {
        self.sequence = sequence;
        self.inner.raise_limit(sequence);
    }

    /// Moves to the first entry after the current one, in the newest content.
    pub(super) fn next_of_tailing(&mut self) {
        if self.place == Place::Cursor {
            self.save_key();
        }
        let behind = key::encode(&self.saved_key, SequenceNumber(0), ValueType::Deletion);
        let sequence = self.sequence;
        match self.origin.news(sequence) {
            News::View(sequence) => {
                self.renew_cursors(sequence);
                table::InternalIterator::seek(&mut self.inner, &behind);
            }
            News::Memtable(sequence) => {
                self.advance(sequence);
                // All new entries are in the active memtable, whose cursor is the first.
                self.inner.seek_again(0, &behind);
            }
            News::None => {}
        }
        self.find_next(true);
    }

    #[cold]
    pub(super) fn refuse_reverse(&mut self) {
        self.valid = false;
        self.failure = Err(Error::not_supported(
            "a tailing iterator that goes backwards",
        ));
    }
}
