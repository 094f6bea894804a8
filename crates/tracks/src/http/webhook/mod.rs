//! Webhooks: events are sent to whoever asked for them, in their order, at least once.
//!
//! ```text
//!   calls ─> registry: rows in `meta`, one task for each webhook
//!                         └─ deliver: feed ─> batch ─> client: resolve, check the address, POST ─> 2xx ─> the cursor is durable
//!                                                         └─ anything else: again, later and later
//! ```
//!
//! Row: `meta`, key `webhook/`, the fleet's number, `/`, the name; JSON. A webhook's task holds back nobody but itself: so many
//! deliveries are on their way at a time, and those of webhooks that failed last have half of the places.

mod calls;
mod client;
mod deliver;
pub(super) mod fuzzing;
mod hosts;
mod registry;
mod sign;

use std::time::Duration;

pub(crate) use calls::{
    __path_delete, __path_list, __path_put, __path_show, delete, list, put, show, start,
};
pub use hosts::{Host, Hosts};
pub(crate) use registry::Webhooks;

/// All that webhooks may have on threads that block at a time.
pub(crate) const THREADS: usize = client::LOOKUPS + registry::STORES;

/// How webhooks are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where they may go. None: nowhere.
    pub hosts: Hosts,
    /// From its connection to its answer, a delivery has so much time.
    pub timeout: Duration,
    /// Until a delivery that failed is tried again, at first and at most.
    pub retry: (Duration, Duration),
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hosts: Hosts::default(),
            timeout: Duration::from_secs(10),
            retry: (Duration::from_secs(1), Duration::from_secs(300)),
        }
    }
}
