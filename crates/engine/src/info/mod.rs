//! What a database tells of itself: its LOG, the events in it, and the counts of what it did.

pub(crate) mod dump;
pub(crate) mod events;
pub(crate) mod log;
pub(crate) mod stats;
