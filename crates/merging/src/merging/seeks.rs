//! Seeks of all children, of one iterator or of several, which read what they lack at the same time.

use table::{Filled, InternalIterator, Lacking};

use super::Child;

/// How often a seek stops: for the top level of an index, for a partition, and for a data block; once more for a partition behind
/// that, if the first had nothing.
const STOPS_MAX: usize = 4;

/// Positions a child, which has this number.
pub(super) type Seek<'a> = dyn FnMut(usize, &mut dyn InternalIterator) + 'a;

/// Children whose seeks have stopped, by their numbers, with what they lack.
pub(super) type Stopped = Vec<(usize, Lacking)>;

/// Positions every child with `seek`. What they lack is read at the same time.
#[inline]
pub(super) fn seek_all(
    children: &mut [Child],
    mut seek: impl FnMut(usize, &mut dyn InternalIterator),
) {
    let stopped = begin(children, &mut seek);
    if !stopped.is_empty() {
        go_on_alone(children, &mut seek, stopped);
    }
}

#[cold]
fn go_on_alone(children: &mut [Child], seek: &mut Seek<'_>, mut stopped: Stopped) {
    for stops in 1.. {
        let (numbers, lacking): (Vec<usize>, Vec<Lacking>) = stopped.into_iter().unzip();
        let filled = table::read_together(&lacking);
        let all = numbers.into_iter().zip(lacking.into_iter().zip(filled));
        stopped = go_on(children, seek, stops, all);
        if stopped.is_empty() {
            return;
        }
    }
}

/// Begins to position every child with `seek`.
#[inline]
pub(super) fn begin(
    children: &mut [Child],
    mut seek: impl FnMut(usize, &mut dyn InternalIterator),
) -> Stopped {
    let mut stopped = Vec::new();
    for (i, child) in children.iter_mut().enumerate() {
        child.iter.stop_if_lacking(false);
        seek(i, &mut *child.iter);
        if let Some(lacks) = child.iter.take_lacking() {
            stopped.push((i, lacks));
        }
    }
    stopped
}

/// Goes on with seeks that have stopped so often, with what was read of what each lacked. Returns those that stop again.
pub(super) fn go_on(
    children: &mut [Child],
    seek: &mut Seek<'_>,
    stops: usize,
    filled: impl Iterator<Item = (usize, (Lacking, Option<Filled>))>,
) -> Stopped {
    let mut stopped = Vec::new();
    for (i, (lacks, filled)) in filled {
        let child = &mut *children[i].iter;
        // What could not be read together is read alone, which also tells the error.
        let may_stop = filled.is_some() && lacks.is_of_index() && stops < STOPS_MAX;
        if let Some(filled) = filled {
            child.give(filled);
        }
        if may_stop {
            child.stop_if_lacking(true);
        }
        seek(i, child);
        if may_stop && let Some(lacks) = child.take_lacking() {
            stopped.push((i, lacks));
        }
    }
    stopped
}
