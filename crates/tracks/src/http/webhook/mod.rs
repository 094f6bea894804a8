//! Webhooks: events are sent to HTTP servers, in order, at least once.
//!
//! ```text
//!   calls ─> registry: rows in `meta`, one task for each webhook
//!                         └─ deliver: feed ─> batch ─> client: resolve, check the address, POST ─> 2xx ─> the cursor is durable
//!                                                         └─ anything else: again, later and later
//! ```
//!
//! Row: `meta`, key `webhook/`, the fleet's number, `/`, the name; JSON. A slow webhook delays no
//! other: the number of concurrent deliveries is limited, and webhooks whose last delivery failed
//! share half of the places.

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

/// The most blocking threads that webhooks use.
pub(crate) const THREADS: usize = client::LOOKUPS + registry::STORES;

/// The options of webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The hosts that they may go to; empty allows none.
    pub hosts: Hosts,
    /// The time for a delivery, from connecting to the answer.
    pub timeout: Duration,
    /// The pauses before a failed delivery is tried again: the first one and the longest.
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
