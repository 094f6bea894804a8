//! A door to inner leaves for the crate `counts`, which counts their instructions, and for the fuzz
//! targets. It is no part of the engine's interface: it changes with what lies behind it.
//!
//! A door and not a benchmark inside: the counted program then links the engine as applications do.

use base::Comparator;
use table::InternalIterator;

use crate::read::merging::MergingIter;
use crate::values::entity::WideColumns;

/// The union of sorted cursors, newest first.
pub fn merge(children: Vec<Box<dyn InternalIterator>>) -> impl InternalIterator {
    MergingIter::new(Comparator::bytewise(), children)
}

/// The columns of an entity as it is stored.
pub fn entity(stored: &[u8]) -> base::Result<WideColumns> {
    WideColumns::decode(stored)
}
