//! Taking reports: from a call to the batch of a shard.
//!
//! ```text
//!   submit ─> by entity ─> queue of a shard, bounded ─> its thread: newest states ─> one batch ─> Store::write
//!                                                                                       visible ──┤
//!                                                                                       durable ──┴─> Ticket
//! ```
//!
//! A shard owns its entities: no other thread writes their rows, so that its cache is always right.
//! A report that is newer than its entity's newest one moves the entity; another one is history
//! only. So neither order nor repetition of reports matters.

mod admit;
mod apply;
mod erase;
#[doc(hidden)]
pub mod fuzzing;
mod hot;
mod purge;
mod shard;
mod shards;
mod thin;
mod visits;

pub use admit::{Ack, Answer, Outcome, Ticket};
pub(crate) use erase::Erasure;
pub(crate) use purge::{
    Purge, Range, are_done, events_are_erased, events_are_gone, note, owes_events, purge_rows,
    purges,
};
pub use shards::{Options, Shards};
pub(crate) use visits::{is_noted, notes_are_gone};
