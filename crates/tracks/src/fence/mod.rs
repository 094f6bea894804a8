//! Fences: areas that entities enter, leave, stay in, or pass through between two reports.
//!
//! ```text
//!   families   fences   fleet 4  name          JSON: the definition, and its number
//!              inside   fleet 4  entity 8      what the entity is inside of: state.rs
//!              events   fleet 4  id 8          JSON: what happened
//! ```
//!
//! A shard compares the fences before and after each report that moves an entity. The new state and
//! the events are in the batch of the report: so each crossing has exactly one event, however often
//! the process is killed. Events are given out once they are durable, in the order of their ids.
//!
//! Late reports change nothing. Neither do reports whose accuracy is worse than the fleet allows,
//! or that would need a higher speed than the fleet allows: a device whose position jumps would
//! otherwise enter and leave fences that it was never near.

mod definition;
mod events;
mod index;
mod registry;
mod state;

pub use definition::{Area, Definition, FENCES_MAX, Fence, When};
pub use events::{Event, Events, Kind, Page};
pub(crate) use events::{Ids, erase_events, key};
pub use index::{INSIDE_MAX, Index};
pub use registry::Fences;
pub use state::{Inside, Last, State};
pub(crate) use state::{Judged, Moved, judge};
