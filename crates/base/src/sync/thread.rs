//! Threads of the test scheduler, with the parts of the standard library's API that it lacks.

use std::io;
use std::time::Duration;

pub use shuttle::thread::{
    JoinHandle, Result, Scope, ScopedJoinHandle, Thread, ThreadId, current, panicking, park, scope,
    spawn, yield_now,
};

/// See the standard library's; the time is simulated.
pub fn sleep(time: Duration) {
    super::time::sleep(time);
}

/// See the standard library's.
#[derive(Debug, Default)]
pub struct Builder {
    name: Option<String>,
}

impl Builder {
    /// See the standard library's.
    pub fn new() -> Self {
        Self::default()
    }

    /// See the standard library's.
    #[must_use]
    pub fn name(mut self, name: String) -> Self {
        self.name = Some(name);
        self
    }

    /// See the standard library's.
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let mut builder = shuttle::thread::Builder::new();
        if let Some(name) = self.name {
            builder = builder.name(name);
        }
        builder.spawn(f)
    }

    /// See the standard library's. The thread has no name.
    pub fn spawn_scoped<'scope, F, T>(
        self,
        scope: &'scope Scope<'scope, '_>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        Ok(scope.spawn(f))
    }
}
