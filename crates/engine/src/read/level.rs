//! A cursor over a sorted level: opens the cursor of one file after the other.

use std::cmp::Ordering;
use std::sync::Arc;

use base::{Comparator, Result, key};
use table::InternalIterator;

use crate::version::{TableFile, Version};

/// A cursor over the files of a level that do not overlap, in key order.
pub(crate) struct LevelIter {
    comparator: Comparator,
    files: Vec<Arc<TableFile>>,
    options: table::ReadOptions,
    /// Index of the open file.
    at: usize,
    open: Option<table::Iter>,
    /// The error of a file that was left.
    failure: Result<()>,
}

impl LevelIter {
    pub(crate) fn new(
        comparator: Comparator,
        files: Vec<Arc<TableFile>>,
        options: table::ReadOptions,
    ) -> Self {
        Self {
            comparator,
            files,
            options,
            at: 0,
            open: None,
            failure: Ok(()),
        }
    }

    /// The cursor over level `level` of a Version.
    pub(crate) fn over(
        version: &Version,
        comparator: &Comparator,
        level: usize,
        options: table::ReadOptions,
    ) -> Self {
        Self::new(comparator.clone(), version.level(level).to_vec(), options)
    }

    fn open(&mut self, at: usize) {
        if self.open.is_some() && self.at == at {
            return;
        }
        self.at = at;
        self.open = self.files.get(at).map(|f| f.reader.iter(self.options));
    }

    /// The current file has no entry any more: goes to the next one that has.
    fn skip_forward(&mut self) {
        while self.can_leave() && self.at + 1 < self.files.len() {
            self.open(self.at + 1);
            self.with_open(|i| i.seek_to_first());
        }
    }

    fn skip_backward(&mut self) {
        while self.can_leave() && self.at > 0 {
            self.open(self.at - 1);
            self.with_open(|i| i.seek_to_last());
        }
    }

    /// Whether the open file is at its end without an error.
    fn can_leave(&mut self) -> bool {
        match &self.open {
            Some(i) if !i.valid() => {
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
        self.open(0);
        self.with_open(|i| i.seek_to_first());
        self.skip_forward();
    }

    fn seek_to_last(&mut self) {
        self.open(self.files.len().saturating_sub(1));
        self.with_open(|i| i.seek_to_last());
        self.skip_backward();
    }

    fn seek(&mut self, target: &[u8]) {
        let at = self.first_reaching(target);
        if at == self.files.len() {
            self.open = None;
            return;
        }
        self.open(at);
        self.with_open(|i| i.seek(target));
        self.skip_forward();
    }

    fn seek_for_prev(&mut self, target: &[u8]) {
        let at = self
            .first_reaching(target)
            .min(self.files.len().saturating_sub(1));
        self.open(at);
        self.with_open(|i| i.seek_for_prev(target));
        self.skip_backward();
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
            return Err(e.duplicate());
        }
        self.open.as_ref().map_or(Ok(()), InternalIterator::status)
    }
}
