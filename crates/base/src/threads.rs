//! How background threads are started: injected, as files and time are, so that a test can be a system
//! that has no more of them.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::sync::thread::{Builder, JoinHandle};

/// What a thread does.
pub type Run = Box<dyn FnOnce() + Send>;

/// Starts threads.
pub trait Threads: fmt::Debug + Send + Sync {
    /// Starts a thread of this name that runs `run`. Errors: there can be no more.
    fn start(&self, name: &str, run: Run) -> io::Result<JoinHandle<()>>;
}

/// The operating system's threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemThreads;

impl SystemThreads {
    /// To be injected.
    pub fn shared() -> Arc<dyn Threads> {
        Arc::new(Self)
    }
}

impl Threads for SystemThreads {
    fn start(&self, name: &str, run: Run) -> io::Result<JoinHandle<()>> {
        Builder::new().name(name.to_owned()).spawn(run)
    }
}
