//! Seeks of all children, which read what they lack at the same time.

use table::{InternalIterator, Lacking};

use super::Child;

/// How often a seek stops: for the top level of an index, for a partition, and for a data block; once more for a partition behind
/// that, if the first had nothing.
const STOPS_MAX: usize = 4;

/// Positions every child with `seek`. What they lack is read at the same time.
pub(super) fn seek_all(
    children: &mut [Child],
    mut seek: impl FnMut(usize, &mut dyn InternalIterator),
) {
    let (mut stopped, mut lacking) = (Vec::new(), Vec::new());
    for (i, child) in children.iter_mut().enumerate() {
        child.iter.stop_if_lacking(false);
        seek(i, &mut *child.iter);
        if let Some(lacks) = child.iter.take_lacking() {
            stopped.push(i);
            lacking.push(lacks);
        }
    }
    if !stopped.is_empty() {
        go_on(children, &mut seek, (stopped, lacking));
    }
}

/// Goes on with the seeks that have stopped.
#[cold]
fn go_on(
    children: &mut [Child],
    seek: &mut dyn FnMut(usize, &mut dyn InternalIterator),
    (mut stopped, mut lacking): (Vec<usize>, Vec<Lacking>),
) {
    for stops in 1.. {
        let filled = table::read_together(&lacking);
        let all = stopped.drain(..).zip(lacking.drain(..)).zip(filled);
        for ((i, lacks), filled) in all.collect::<Vec<_>>() {
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
                stopped.push(i);
                lacking.push(lacks);
            }
        }
        if stopped.is_empty() {
            return;
        }
    }
}
