//! Fences: who enters an area, leaves it, stays in it, or passes through it between two reports.
//!
//! ```text
//!   families   fences   fleet 4  name          JSON: the definition, and its number
//!              inside   fleet 4  entity 8      what the entity is inside of: state.rs
//!              events   fleet 4  id 8          JSON: what happened
//! ```
//!
//! A shard compares before and after each report that moves an entity. What changes, and the events, are in the report's batch: so
//! each crossing has one event, however often the process is killed. Events are given out once they are durable, in the order
//! of their ids.
//!
//! Late reports change nothing, nor do those whose accuracy is worse than the fleet allows, or from where nothing gets in the time
//! since: a device that jumps would enter and leave what it never was near.

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
