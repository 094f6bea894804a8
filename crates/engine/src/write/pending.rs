//! Asynchronous writes, whose durability is waited for later: `write_async`.
//!
//! The calling thread logs and inserts the write, and does not wait for the device. A thread of the
//! database brings the log to the device, each time with all records that have gathered: at once if somebody waits,
//! otherwise once a millisecond (`wal/demand.rs`). The futures need no particular runtime: they keep the waker that they are polled with.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use base::{Error, ErrorKind, Result};

use super::resume::AfterFullDevice;
use super::{pipeline, submit};
use crate::batch::WriteBatch;
use crate::commit::plan::Plan;
use crate::shared::Shared;
use crate::wal::demand::Due;
use crate::watermark::Watermark;
use options::WriteOptions;
use options::hooks::listener;

/// How long the thread sleeps after it failed to bring the log to the device.
const RETRY: Duration = Duration::from_millis(20);

/// An asynchronous write, which [`Db::write_async`](crate::Db::write_async) returns.
///
/// Dropping this does not cancel the write.
#[derive(Debug)]
pub struct PendingWrite {
    /// The sequence number of the batch's last counted record.
    pub seq: u64,
    /// Ready when reads see the write.
    pub applied: Applied,
    /// Ready when the write survives a power cut.
    pub durable: Durable,
}

/// Which watermark a future watches.
#[derive(Clone, Copy)]
enum Which {
    Visible,
    Durable,
}

/// A watermark, and the sequence number that a future waits for.
struct Reach {
    db: Arc<Shared>,
    which: Which,
    seq: u64,
    /// The future's number, which no other future has.
    future: u64,
}

impl Clone for Reach {
    fn clone(&self) -> Self {
        Self::new(&self.db, self.which, self.seq)
    }
}

impl Reach {
    fn new(db: &Arc<Shared>, which: Which, seq: u64) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            db: Arc::clone(db),
            which,
            seq,
            future: NEXT.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn mark(&self) -> &Watermark {
        match self.which {
            Which::Visible => &self.db.writes.order.visible,
            Which::Durable => &self.db.wal.durable,
        }
    }

    /// Whether this may be the thread that brings the log to the device. That thread must do the work instead of
    /// waiting: no other thread does it.
    fn is_ours(&self) -> bool {
        matches!(self.which, Which::Durable) && listener::is_telling()
    }

    fn is_reached(&self) -> bool {
        self.mark().get() >= self.seq
    }

    /// To be called by whoever is about to wait.
    fn is_awaited(&self) {
        if matches!(self.which, Which::Durable) && !self.is_reached() {
            self.db.wal.demand.now(self.seq);
        }
    }

    fn wait(&self) -> Result<()> {
        if self.is_ours() {
            return wait_durable(&self.db, self.seq);
        }
        self.is_awaited();
        self.mark().wait(self.seq)
    }
}

macro_rules! future {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        #[must_use = "the write goes on whether this is waited for or not"]
        pub struct $name(Reach);

        impl $name {
            /// Waits until this is ready. Errors: the error that made the write fail.
            pub fn wait(&self) -> Result<()> {
                self.0.wait()
            }

            /// Whether this is ready now.
            pub fn is_ready(&self) -> bool {
                self.0.is_reached()
            }

            /// Calls `callback` once: when this is ready, or with the error that prevents it. If this is
            /// ready already, the calling thread calls it at once; otherwise another thread that writes
            /// or one of the database's own threads calls it. No lock of the database is held during the
            /// call, so the callback may write. It should be short, because it delays other callbacks.
            pub fn on_ready(&self, callback: impl FnOnce(Result<()>) + Send + 'static) {
                self.0.is_awaited();
                self.0.mark().call(self.0.seq, Box::new(callback));
            }
        }

        impl Future for $name {
            type Output = Result<()>;
            fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
                if self.0.is_ours() {
                    return Poll::Ready(self.0.wait());
                }
                self.0.is_awaited();
                self.0.mark().poll(self.0.seq, self.0.future, cx)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("seq", &self.0.seq)
                    .field("ready", &self.is_ready())
                    .finish()
            }
        }
    };
}

future! {
    /// Ready when reads see a write.
    Applied
}
future! {
    /// Ready when a write survives a power cut.
    Durable
}

/// See [`Db::write_async`](crate::Db::write_async).
pub(crate) fn write(
    db: &Arc<Shared>,
    options: &WriteOptions,
    mut batch: WriteBatch,
) -> Result<PendingWrite> {
    if options.disable_wal {
        return Err(Error::invalid_argument(
            "write_async: a write with disable_wal = true never becomes durable by the log",
        )
        .hint("set disable_wal = false, or use write and flush"));
    }
    let seq = pipeline::write_planned(db, options, Plan::detached(options), &mut batch)?;
    db.wal.demand.soon(seq);
    let reach = |which| Reach::new(db, which, seq);
    Ok(PendingWrite {
        seq,
        applied: Applied(reach(Which::Visible)),
        durable: Durable(reach(Which::Durable)),
    })
}

/// See [`Db::wait_durable`](crate::Db::wait_durable).
pub(crate) fn wait_durable(db: &Shared, seq: u64) -> Result<()> {
    if db.wal.durable.get() >= seq {
        return Ok(());
    }
    check_is_written(db, seq)?;
    submit::flush_wal(db, true)?;
    if db.wal.durable.get() >= seq {
        return Ok(());
    }
    Err(not_logged(seq))
}

fn check_is_written(db: &Shared, seq: u64) -> Result<()> {
    // Not the last visible number: a write that was logged after a group that is still in progress is not
    // visible yet.
    let last = db.writes.order.allocated();
    if seq <= last {
        return Ok(());
    }
    let text = format!("write {seq} is not there yet: the last one is number {last}");
    Err(Error::invalid_argument(text))
}

fn not_logged(seq: u64) -> Error {
    Error::invalid_argument(format!("write {seq} was not logged (disable_wal)"))
        .hint("flush makes it durable")
}

/// See [`Db::durable`](crate::Db::durable).
pub(crate) fn durable(db: &Arc<Shared>, seq: u64) -> Result<Durable> {
    if db.wal.durable.get() < seq && db.wal.with(|log| Ok(log.last_sequence()))? < seq {
        // After a failure, writes are in no log until a resume has flushed them.
        db.check_writable()?;
        db.writes.order.check_refusal()?;
        if db.wal.durable.get() < seq {
            check_is_written(db, seq)?;
            return Err(not_logged(seq));
        }
    }
    Ok(Durable(Reach::new(db, Which::Durable, seq)))
}

/// The thread that brings asynchronous writes to the device, and watches the device.
///
/// If that fails for good, all waiters get the error until `resume`. On a full device the thread tries
/// again. Waiters get the error after `wal_no_space_wait_ms`, and so do later waiters until there is
/// space again.
pub(crate) fn run(db: &Arc<Shared>) {
    let mut resumer = AfterFullDevice::default();
    let can_write = || db.background.state().failure.is_none();
    let may_idle = || !db.background.is_closing() && !db.has_undelivered();
    while !db.background.is_closing() {
        match db.wal.demand.next(&db.wal.durable, can_write, may_idle) {
            Some(due) => outlive(db, || try_flush(db, due)),
            None => outlive(db, || {
                // Before a resume, which may have to wait for others; after whoever waits knows of the failure.
                if !can_write() && db.wal.demand.take_lazy() {
                    db.deliver();
                    try_flush(db, Due::Lazily);
                }
                db.wal.device.look(&db.info, db.options.db.wal_slow_io_ms);
                resumer.look(db);
            }),
        }
        db.deliver();
    }
}

/// Runs `f`. A panic makes the database fail, but does not end the thread.
fn outlive(db: &Shared, f: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(f)).is_err() {
        let e = Error::aborted("a file system panicked while the log was brought to the device");
        db.fail("log", &e);
    }
}

/// Brings the log to the device. Sleeps for a moment if that is not possible now.
fn try_flush(db: &Shared, due: Due) {
    let resuming = db.writes.order.check_refusal().is_err();
    let before = db.wal.durable.get();
    let (flushed, target) = match due {
        Due::Asked(target) => (submit::flush_wal(db, true), target),
        Due::Lazily => (sync_lazily(db), 0),
    };
    if flushed.is_err() {
        db.wal.demand.lazily_again(); // whoever asked may have what it needs by then
    }
    match flushed {
        Ok(()) => {
            let durable = db.wal.durable.get();
            if durable > before {
                submit::has_space(db);
            }
            if durable >= target {
                return;
            }
        }
        Err(_) if resuming => {}
        Err(_) if db.background.is_closing() => return,
        Err(e) if e.kind() == ErrorKind::NoSpace => {
            let lasts = submit::lacks_space(db, &e);
            if lasts >= db.options.db.wal_no_space_wait_ms * 1_000_000 {
                db.wal.durable.fail_for_now(&e);
            }
        }
        // Any other error has made the database fail already, and all waiters have the error. Failing the
        // database again could undo a resume.
        Err(_) => {}
    }
    db.wal.demand.sleep(RETRY);
}

/// Makes durable what was written without being synced: `wal_sync_interval_ms`. It is no synced write, for which log
/// files would be prepared.
fn sync_lazily(db: &Shared) -> Result<()> {
    let _courier = db.courier();
    // A log that is locked does not change. While this is held, nobody locks it.
    let locks = db.writes.lock_wal_locks();
    if *locks > 0 {
        return Ok(()); // `unlock_wal` demands it again
    }
    let has_failed = || db.background.state().failure.is_some();
    if !has_failed() {
        return submit::sync_unasked(db);
    }
    match db.wal.sync_in_spite_of_a_failure(has_failed) {
        Ok(Some(last)) => db.is_durable_through(last),
        Ok(None) if has_failed() => {} // it is the log that has failed
        Ok(None) => db.wal.demand.lazily_again(),
        Err(e) if e.kind() == ErrorKind::NoSpace => return Err(e),
        Err(e) => db.info.log.error(format_args!(
            "what was written before the failure is not durable: {e}"
        )),
    }
    Ok(())
}
