//! Iterators that are given newer content: by call, by themselves at a snapshot, or all the time.

use base::{Error, Result, SequenceNumber, ValueType, key};

use super::{DbIterator, Direction, Place, scope_of};
use crate::Snapshot;
use crate::read::sources::News;

impl DbIterator {
    /// The iterator shows the newest content from now on, also if it was made at a snapshot, and
    /// holds back no old files. It is at no entry then. Errors: the database was closed.
    pub fn refresh(&mut self) -> Result<()> {
        self.refresh_with_snapshot(None)
    }

    /// [`DbIterator::refresh`] to the content at a snapshot, or to the newest. Errors: also
    /// `InvalidArgument` for a snapshot of another database, `NotSupported` for one and a tailing
    /// iterator.
    pub fn refresh_with_snapshot(&mut self, snapshot: Option<&Snapshot>) -> Result<()> {
        if self.tailing && snapshot.is_some() {
            return Err(Error::not_supported("a tailing iterator at a snapshot"));
        }
        let Some(origin) = &mut self.origin else {
            return self.status();
        };
        let sequence = origin.refresh(snapshot)?;
        self.auto_refresh =
            snapshot.is_some() && origin.options.auto_refresh_iterator_with_snapshot;
        self.renew(sequence);
        self.valid = false;
        self.failure = Ok(());
        Ok(())
    }

    /// Makes the cursors anew, for a reader at `sequence`. They are nowhere, and a seek must follow.
    fn renew(&mut self, sequence: SequenceNumber) {
        self.renew_cursors(sequence);
        if let Some(origin) = &self.origin {
            self.scope = scope_of(origin);
        }
    }

    fn renew_cursors(&mut self, sequence: SequenceNumber) {
        if let Some(origin) = &self.origin {
            self.sequence = sequence;
            self.inner = origin.cursors(sequence);
        }
    }

    /// At a snapshot: what the iterator shows stays the same, but it comes from where it is now. The
    /// cursors are nowhere if it was somewhere else before.
    pub(super) fn renew_if_changed(&mut self) {
        if self.origin.as_mut().is_some_and(|o| o.load_view(false)) {
            self.renew(self.sequence);
        }
    }

    /// [`DbIterator::renew_if_changed`] between two movements: the entry stays the same.
    pub(super) fn refresh_here(&mut self) {
        if !self.valid || !self.origin.as_mut().is_some_and(|o| o.load_view(false)) {
            return;
        }
        let at = self.key().to_vec();
        self.renew(self.sequence);
        match self.direction {
            Direction::Forward => self.seek(&at),
            Direction::Reverse => self.seek_for_prev(&at),
        }
    }

    /// A tailing iterator is about to seek: it gets the newest content.
    pub(super) fn follow(&mut self) {
        let sequence = self.sequence;
        match self.origin.as_mut().map(|o| o.news(sequence)) {
            Some(News::View(sequence)) => self.renew(sequence),
            Some(News::Memtable(sequence)) => self.advance(sequence),
            Some(News::None) | None => {}
        }
    }

    /// The cursors, which see new entries by themselves, are read at `sequence` from now on.
    fn advance(&mut self, sequence: SequenceNumber) {
        self.sequence = sequence;
        self.inner.raise_limit(sequence);
    }

    /// To the first entry behind the current one that there is now.
    pub(super) fn next_of_tailing(&mut self) {
        if self.place == Place::Cursor {
            self.save_key();
        }
        let behind = key::encode(&self.saved_key, SequenceNumber(0), ValueType::Deletion);
        let sequence = self.sequence;
        match self.origin.as_mut().map(|o| o.news(sequence)) {
            Some(News::View(sequence)) => {
                self.renew_cursors(sequence);
                table::InternalIterator::seek(&mut self.inner, &behind);
            }
            Some(News::Memtable(sequence)) => {
                self.advance(sequence);
                // All that is new is in the active memtable, whose cursor is the first.
                self.inner.seek_again(0, &behind);
            }
            Some(News::None) | None => {}
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
