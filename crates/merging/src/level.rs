//! A cursor over a sorted level. It opens one file after the other.

use std::cmp::Ordering;
use std::ops::Deref;
use std::slice;
use std::sync::Arc;

use base::{Comparator, Result, key};
use table::{Filled, InternalIterator, Lacking, Prefix};

use manifest::{Files, TableFile};

/// The files of a cursor.
enum Run {
    Level(Files),
    /// One file of level 0.
    One(Arc<TableFile>),
}

impl Deref for Run {
    type Target = [Arc<TableFile>];

    #[inline]
    fn deref(&self) -> &Self::Target {
        match self {
            Self::Level(files) => files,
            Self::One(file) => slice::from_ref(file),
        }
    }
}

/// A cursor over the files of a level, which do not overlap, in key order.
pub struct LevelIter {
    comparator: Comparator,
    files: Run,
    options: table::ReadOptions,
    /// Whether this is the last level that the family may have; for statistics.
    last: bool,
    /// Index of the open file.
    at: usize,
    open: Option<table::Iter>,
    /// The error that stopped the cursor, from opening or reading a file.
    failure: Result<()>,
    /// With `pin`: the cursors of files that were left.
    left: Vec<table::Iter>,
    /// Nothing at or after this internal key is wanted.
    end: Option<Arc<[u8]>>,
    /// Whether a seek may stop: see [`InternalIterator::stop_if_lacking`].
    stops: bool,
    /// The file at which the seek has stopped that is to be done again.
    stopped_at: Option<usize>,
}

impl LevelIter {
    /// A cursor over these files, by key. `last`: this is the last level that the family may have; for statistics.
    #[inline]
    pub fn new(
        comparator: Comparator,
        files: impl Into<Files>,
        options: table::ReadOptions,
        last: bool,
    ) -> Box<Self> {
        Self::over(comparator, Run::Level(files.into()), options, last)
    }

    /// A cursor over one file.
    #[inline]
    pub fn one(
        comparator: Comparator,
        file: Arc<TableFile>,
        options: table::ReadOptions,
        last: bool,
    ) -> Box<Self> {
        Self::over(comparator, Run::One(file), options, last)
    }

    /// Boxed, because it is large: it is not moved after it was made.
    #[inline]
    fn over(
        comparator: Comparator,
        files: Run,
        options: table::ReadOptions,
        last: bool,
    ) -> Box<Self> {
        Box::new(Self {
            comparator,
            files,
            options,
            last,
            at: 0,
            open: None,
            failure: Ok(()),
            left: Vec::new(),
            end: None,
            stops: false,
            stopped_at: None,
        })
    }

    /// Nothing at or after this internal key is wanted: it is not read ahead, and a cursor that moves forward may end before. A seek
    /// to a key behind it may find nothing.
    pub fn end_at(&mut self, key: Option<Arc<[u8]>>) {
        self.end = key;
    }

    fn open(&mut self, at: usize) {
        if self.open.is_some() && self.at == at {
            return;
        }
        self.close();
        self.at = at;
        let Some(file) = self.files.get(at) else {
            return;
        };
        match file.reader_for(&self.options) {
            Ok(reader) => {
                let mut iter = reader.iter(self.options);
                if let Some(end) = &self.end
                    && key::compare(&self.comparator, end, &file.meta.largest) == Ordering::Less
                {
                    iter.end_at(end);
                }
                self.open = Some(iter);
            }
            Err(e) => self.failure = Err(e),
        }
    }

    /// Opens the file after the open one.
    fn open_next(&mut self) {
        let pace = self.open.as_ref().map(table::Iter::read_ahead_pace);
        self.open(self.at + 1);
        if self.options.adaptive_readahead
            && let (Some(pace), Some(iter)) = (pace, &mut self.open)
        {
            iter.go_on_reading_ahead(pace);
        }
    }

    fn close(&mut self) {
        let left = self.open.take();
        if self.options.pin {
            self.left.extend(left);
        }
    }

    /// If the open file has no more entries, moves to the next file that has some.
    fn skip_forward(&mut self) {
        while self.can_leave() && self.has_next() {
            self.open_next();
            self.with_open(|i| i.seek_to_first());
        }
    }

    fn skip_backward(&mut self) {
        while self.can_leave() && self.at > 0 {
            self.open(self.at - 1);
            self.with_open(|i| i.seek_to_last());
        }
    }

    /// Whether there is a next file with something that is wanted.
    fn has_next(&self) -> bool {
        let Some(next) = self.files.get(self.at + 1) else {
            return false;
        };
        self.end.as_ref().is_none_or(|end| {
            key::compare(&self.comparator, &next.meta.smallest, end) == Ordering::Less
        })
    }

    /// Whether the open file is exhausted without an error.
    fn can_leave(&mut self) -> bool {
        match &self.open {
            Some(i) if !i.valid() && !i.is_at_limit() => {
                self.failure = i.status();
                self.failure.is_ok()
            }
            _ => false,
        }
    }

    fn with_open(&mut self, f: impl FnOnce(&mut table::Iter)) {
        if let Some(i) = &mut self.open {
            f(i);
        }
    }

    /// Opens file number `at` and positions its cursor with `seek`; `None` closes the open file. Earlier
    /// errors are forgotten.
    fn go(&mut self, at: Option<usize>, seek: impl FnOnce(&mut table::Iter)) {
        self.failure = Ok(());
        self.stopped_at = None;
        match at {
            Some(at) => self.open(at),
            None => self.close(),
        }
        let stops = self.stops;
        self.with_open(|i| {
            if stops {
                i.stop_if_lacking(false); // it need not know
            }
            seek(i);
        });
    }

    /// The first file that must be searched for a key with the prefix at or after `target`. Keys with the
    /// same prefix are adjacent: if a file that ends after `target` has none of them, no later file has
    /// any, unless the file's largest key has the prefix, as the end of a range tombstone may.
    fn first_with(&self, target: &[u8], prefix: Prefix<'_>) -> Option<usize> {
        let from = self.first_reaching(target);
        for (i, file) in self.files.iter().enumerate().skip(from) {
            if self.may_match(file, prefix) {
                return Some(i);
            }
            if !prefix.is_of(file.largest_user_key()) {
                return None;
            }
        }
        None
    }

    /// The last file that must be searched for a key with the prefix at or before `target`.
    fn last_with(&self, target: &[u8], prefix: Prefix<'_>) -> Option<usize> {
        let end = (self.first_reaching(target) + 1).min(self.files.len());
        for (i, file) in self.files.iter().enumerate().take(end).rev() {
            if key::compare(&self.comparator, &file.meta.smallest, target) == Ordering::Greater {
                continue;
            }
            if self.may_match(file, prefix) {
                return Some(i);
            }
            if !prefix.is_of(file.smallest_user_key()) {
                return None;
            }
        }
        None
    }

    /// A table that cannot be opened counts as a match: opening it then reports the error.
    fn may_match(&self, file: &TableFile, prefix: Prefix<'_>) -> bool {
        let reader = file.reader_for(&self.options);
        reader.map_or(true, |r| r.seek_may_match(prefix, self.last, &self.options))
    }

    /// The first file whose largest key is not before `target`.
    fn first_reaching(&self, target: &[u8]) -> usize {
        self.files.partition_point(|f| {
            key::compare(&self.comparator, &f.meta.largest, target) == Ordering::Less
        })
    }
}

impl InternalIterator for LevelIter {
    #[inline]
    fn valid(&self) -> bool {
        self.open.as_ref().is_some_and(InternalIterator::valid)
    }

    fn seek_to_first(&mut self) {
        self.go(Some(0), |i| i.seek_to_first());
        self.skip_forward();
    }

    fn seek_to_last(&mut self) {
        let last = self.files.len().checked_sub(1);
        self.go(last, |i| i.seek_to_last());
        self.skip_backward();
    }

    fn seek(&mut self, target: &[u8]) {
        let at = self.first_reaching(target);
        self.go((at < self.files.len()).then_some(at), |i| i.seek(target));
        self.skip_forward();
    }

    fn seek_for_prev(&mut self, target: &[u8]) {
        let last = self.files.len().checked_sub(1);
        let at = last.map(|last| self.first_reaching(target).min(last));
        self.go(at, |i| i.seek_for_prev(target));
        self.skip_backward();
    }

    fn seek_in_prefix(&mut self, target: &[u8], prefix: Prefix<'_>) -> bool {
        let again = self.stopped_at.take();
        let first = again.or_else(|| self.first_with(target, prefix));
        self.go(first, |i| i.seek(target));
        self.skip_forward();
        first.is_some()
    }

    fn seek_for_prev_in_prefix(&mut self, target: &[u8], prefix: Prefix<'_>) -> bool {
        let again = self.stopped_at.take();
        let last = again.or_else(|| self.last_with(target, prefix));
        self.go(last, |i| i.seek_for_prev(target));
        self.skip_backward();
        last.is_some()
    }

    #[inline]
    fn next(&mut self) {
        self.with_open(InternalIterator::next);
        if !self.valid() {
            self.skip_forward();
        }
    }

    fn prev(&mut self) {
        self.with_open(InternalIterator::prev);
        if !self.valid() {
            self.skip_backward();
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.open.as_ref().expect("the iterator is not valid").key()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.open
            .as_ref()
            .expect("the iterator is not valid")
            .value()
    }

    fn status(&self) -> Result<()> {
        if let Err(e) = &self.failure {
            return Err(e.clone());
        }
        self.open.as_ref().map_or(Ok(()), InternalIterator::status)
    }

    fn is_value_pinned(&self) -> bool {
        self.options.pin
    }

    fn stop_if_lacking(&mut self, again: bool) {
        self.stops = true;
        // A seek that a panic of the user's code has ended is not done again.
        if !again {
            self.stopped_at = None;
        }
    }

    fn take_lacking(&mut self) -> Option<Lacking> {
        self.stops = false;
        let lacking = self.open.as_mut()?.take_lacking();
        self.stopped_at = lacking.is_some().then_some(self.at);
        lacking
    }

    fn give(&mut self, filled: Filled) {
        self.with_open(|i| i.give(filled));
    }
}
