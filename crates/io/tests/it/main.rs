//! The real file system against real files.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and prints what the machine can do"
)]

mod files;
mod held;
mod lock;
mod queue;
mod read_queues;
mod read_thread;
mod wrapper;
