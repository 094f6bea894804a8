//! Locks, atomics and threads of loom, with the parts of the standard library's API that it lacks.
//!
//! They work only inside of `loom::model`, which runs a few threads in every order of their steps, and
//! lets a load return every value that the memory orders of loads and stores allow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use std::sync::PoisonError;
pub use std::thread_local;

pub use loom::sync::{
    Barrier, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

/// Hints.
pub mod hint {
    /// Does nothing: code that spins gives up after a few times. Loom's own function always lets other
    /// threads run first, and so never explores the case in which they do not.
    pub fn spin_loop() {}
}

/// Atomics.
pub mod atomic {
    use std::ops::Deref;

    use loom::sync::Condvar;
    use loom::sync::atomic as weak;
    pub use loom::sync::atomic::{Ordering, fence};

    /// An atomic of loom in which each access depends on the one before it. Loom explores both orders of
    /// two accesses only if they depend on each other, and remembers only the last access to each atomic:
    /// a load of one thread, followed by a load and then a store of another, would be explored in one
    /// order only. So each access also notifies a condition variable without waiters, which depends on the
    /// previous notification and has no other effect.
    #[derive(Debug)]
    pub struct Atomic<T> {
        atomic: T,
        access: Condvar,
    }

    impl<T> From<T> for Atomic<T> {
        fn from(atomic: T) -> Self {
            Self {
                atomic,
                access: Condvar::new(),
            }
        }
    }

    impl<T> Deref for Atomic<T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.access.notify_one();
            &self.atomic
        }
    }

    macro_rules! atomics {
        ($($name:ident $value:ty),*) => {$(
            /// See the standard library's.
            pub type $name = Atomic<weak::$name>;

            impl $name {
                /// In loom, a sequentially consistent load may return the initial value even after a later
                /// store, because the initialization is no such store. So the value is stored once more.
                #[track_caller]
                pub fn new(value: $value) -> Self {
                    let atomic = weak::$name::new(value);
                    atomic.store(value, Ordering::SeqCst);
                    atomic.into()
                }

                /// See the standard library's.
                #[track_caller]
                pub fn into_inner(self) -> $value {
                    self.atomic.into_inner()
                }
            }

            impl Default for $name {
                fn default() -> Self {
                    Self::new(<$value>::default())
                }
            }
        )*};
    }

    atomics!(
        AtomicBool bool, AtomicI64 i64, AtomicU8 u8, AtomicU16 u16, AtomicU32 u32, AtomicU64 u64,
        AtomicUsize usize
    );

    /// See the standard library's.
    pub type AtomicPtr<T> = Atomic<weak::AtomicPtr<T>>;

    impl<T> AtomicPtr<T> {
        /// See the standard library's.
        #[track_caller]
        pub fn new(to: *mut T) -> Self {
            weak::AtomicPtr::new(to).into()
        }
    }

    impl<T> Default for AtomicPtr<T> {
        fn default() -> Self {
            Self::new(std::ptr::null_mut())
        }
    }
}

/// Threads.
pub mod thread {
    use std::io;
    use std::marker::PhantomData;
    use std::time::Duration;

    pub use loom::thread::{
        JoinHandle, Thread, ThreadId, current, panicking, park, spawn, yield_now,
    };
    pub use std::thread::Result;

    /// Lets other threads run; no time passes in models.
    pub fn sleep(_: Duration) {
        yield_now();
    }

    const BORROWS: &str = "threads that borrow are not in models";

    /// See the standard library's. Not in models.
    #[derive(Debug)]
    pub struct Scope<'scope, 'env: 'scope>(PhantomData<(&'scope (), &'env ())>);

    /// See the standard library's. Not in models.
    #[derive(Debug)]
    pub struct ScopedJoinHandle<'scope, T>(PhantomData<(&'scope (), T)>);

    /// See the standard library's. Not in models.
    pub fn scope<'env, F, T>(_: F) -> T
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
    {
        unreachable!("{BORROWS}")
    }

    impl<'scope> Scope<'scope, '_> {
        /// See the standard library's. Not in models.
        pub fn spawn<F, T>(&'scope self, _: F) -> ScopedJoinHandle<'scope, T>
        where
            F: FnOnce() -> T + Send + 'scope,
            T: Send + 'scope,
        {
            unreachable!("{BORROWS}")
        }
    }

    impl<T> ScopedJoinHandle<'_, T> {
        /// See the standard library's. Not in models.
        pub fn join(self) -> Result<T> {
            unreachable!("{BORROWS}")
        }
    }

    /// See the standard library's.
    #[derive(Debug)]
    pub struct Builder(loom::thread::Builder);

    impl Default for Builder {
        fn default() -> Self {
            Self::new()
        }
    }

    impl Builder {
        /// See the standard library's.
        pub fn new() -> Self {
            Self(loom::thread::Builder::new())
        }

        /// See the standard library's.
        #[must_use]
        pub fn name(self, name: String) -> Self {
            Self(self.0.name(name))
        }

        /// See the standard library's.
        pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
        where
            F: FnOnce() -> T + Send + 'static,
            T: Send + 'static,
        {
            self.0.spawn(f)
        }

        /// See the standard library's. Not in models.
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
}

/// Runs a model in every order, and prints the number of orders. `preemptions` is the maximum number of
/// preemptions of threads, `None` for no limit; `LOOM_MAX_PREEMPTIONS` overrides it. If `LOOM_LOG` is
/// set, loom logs all steps, and `preemptions` is ignored.
#[expect(
    clippy::disallowed_methods,
    reason = "tells the tester how long it took"
)]
pub fn model(name: &str, preemptions: Option<usize>, body: fn()) {
    if std::env::var_os("LOOM_LOG").is_some() {
        loom::model(body); // it logs the steps
        return;
    }
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(preemptions);
    builder.max_branches = 1_000_000;
    let begun = std::time::Instant::now();
    let orders = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&orders);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        body();
    });
    let orders = orders.load(Ordering::Relaxed);
    eprintln!(
        "{name}: {orders} orders in {:.1} s",
        begun.elapsed().as_secs_f64()
    );
}
