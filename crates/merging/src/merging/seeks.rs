//! Seeks of all children, which read what they lack at the same time.

use table::{InternalIterator, Lacking};

use super::Child;

/// How often a seek stops: for the top level of an index, a partition, a data block, and the partition behind the first.
const STOPS_MAX: usize = 4;

/// Positions every child with `seek`. What they lack is read at the same time.
pub(super) fn seek_all(
    children: &mut [Child],
    mut seek: impl FnMut(usize, &mut dyn InternalIterator),
) {
    let mut lacking = Vec::new();
    for (i, child) in children.iter_mut().enumerate() {
        lacking.extend(stopped(i, &mut *child.iter, &mut seek));
    }
    for _ in 0..STOPS_MAX {
        if lacking.is_empty() {
            return;
        }
        let (stopped_at, lacks): (Vec<usize>, Vec<Lacking>) =
            std::mem::take(&mut lacking).into_iter().unzip();
        let filled = table::read_together(&lacks);
        for ((i, lacks), filled) in stopped_at.into_iter().zip(lacks).zip(filled) {
            let child = &mut *children[i].iter;
            // What could not be read together is read alone, which also tells the error.
            let goes_on = filled.is_some() && lacks.is_of_index();
            if let Some(filled) = filled {
                child.give(filled);
            }
            if goes_on {
                lacking.extend(stopped(i, child, &mut seek));
            } else {
                seek(i, child);
            }
        }
    }
    for (i, _) in lacking {
        seek(i, &mut *children[i].iter);
    }
}

/// Positions a child, unless it lacks something that can be read together with what others lack.
fn stopped(
    i: usize,
    child: &mut dyn InternalIterator,
    seek: &mut impl FnMut(usize, &mut dyn InternalIterator),
) -> Option<(usize, Lacking)> {
    child.stop_if_lacking();
    seek(i, child);
    Some((i, child.take_lacking()?))
}
