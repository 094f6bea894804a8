//! How background threads are started: injected, like files and time, so that a test can simulate a
//! system on which no more threads can be started.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::sync::thread::{Builder, JoinHandle};

/// The function that a thread runs.
pub type Run = Box<dyn FnOnce() + Send>;

/// Starts threads.
pub trait Threads: fmt::Debug + Send + Sync {
    /// Starts a thread named `name` that runs `run`. Errors: the system cannot start one.
    fn start(&self, name: &str, run: Run) -> io::Result<JoinHandle<()>>;
}

/// The operating system's threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemThreads;

impl SystemThreads {
    /// The operating system's threads as a trait object.
    pub fn shared() -> Arc<dyn Threads> {
        Arc::new(Self)
    }
}

impl Threads for SystemThreads {
    fn start(&self, name: &str, run: Run) -> io::Result<JoinHandle<()>> {
        Builder::new().name(name.to_owned()).spawn(run)
    }
}
