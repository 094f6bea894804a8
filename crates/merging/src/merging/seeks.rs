//! Seeks of all children, of one iterator or of several, which read what they lack at the same time.

use table::{Filled, InternalIterator, Lacking};

use super::Child;

/// How often a seek stops: for the top level of an index, for a partition, and for a data block; once more for a partition behind
/// that, if the first had nothing.
const STOPS_MAX: usize = 4;

/// Positions a child, which has this number.
pub(super) type Seek<'a> = dyn FnMut(usize, &mut dyn InternalIterator) + 'a;

/// Positions every child with `seek`. What they lack is read at the same time.
pub(super) fn seek_all(
    children: &mut [Child],
    mut seek: impl FnMut(usize, &mut dyn InternalIterator),
) {
    let stopped = Stopped::begin(children, &mut seek);
    if !stopped.is_empty() {
        go_on(children, &mut seek, stopped);
    }
}

#[cold]
fn go_on(children: &mut [Child], seek: &mut Seek<'_>, mut stopped: Stopped) {
    while !stopped.is_empty() {
        let lacking = stopped.take_lacking();
        let filled = table::read_together(&lacking);
        stopped.go_on(children, seek, lacking.into_iter().zip(filled));
    }
}

/// The children whose seeks have stopped at what they lack.
#[derive(Debug, Default)]
pub(super) struct Stopped {
    children: Vec<usize>,
    lacking: Vec<Lacking>,
    /// How often they have stopped.
    stops: usize,
}

impl Stopped {
    /// Positions every child with `seek`.
    #[inline]
    pub(super) fn begin(
        children: &mut [Child],
        mut seek: impl FnMut(usize, &mut dyn InternalIterator),
    ) -> Self {
        let mut stopped = Self::default();
        for (i, child) in children.iter_mut().enumerate() {
            child.iter.stop_if_lacking(false);
            seek(i, &mut *child.iter);
            stopped.note(i, &mut *child.iter);
        }
        stopped
    }

    /// Takes note of a child if it has stopped.
    #[inline]
    fn note(&mut self, i: usize, child: &mut dyn InternalIterator) {
        if let Some(lacks) = child.take_lacking() {
            self.children.push(i);
            self.lacking.push(lacks);
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.children.len()
    }

    /// What they lack, in their order. [`Stopped::go_on`] must follow.
    pub(super) fn take_lacking(&mut self) -> Vec<Lacking> {
        std::mem::take(&mut self.lacking)
    }

    /// Goes on with the seeks, with what was read of what each lacked. Some may stop again.
    pub(super) fn go_on(
        &mut self,
        children: &mut [Child],
        seek: &mut Seek<'_>,
        filled: impl Iterator<Item = (Lacking, Option<Filled>)>,
    ) {
        self.stops += 1;
        let stopped = std::mem::take(&mut self.children);
        for (i, (lacks, filled)) in stopped.into_iter().zip(filled) {
            let child = &mut *children[i].iter;
            // What could not be read together is read alone, which also tells the error.
            let may_stop = filled.is_some() && lacks.is_of_index() && self.stops < STOPS_MAX;
            if let Some(filled) = filled {
                child.give(filled);
            }
            if may_stop {
                child.stop_if_lacking(true);
            }
            seek(i, child);
            if may_stop {
                self.note(i, child);
            }
        }
    }
}
