//! Writes whose durability is waited for later: by a wait, a callback, a future, or not at all.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use base::sync::atomic::{AtomicBool, Ordering};
use ironstone::{Durable, WriteBatch, WriteOptions};
use std::thread::{Thread, current, park_timeout};

use super::Part;
use super::callbacks::write_without_waiting;
use super::ledger::Reach;
use super::trouble::Trouble;
use super::worker::{Worker, Write};

/// Wakes a thread, and panics now and then.
struct Bell {
    thread: Thread,
    rung: AtomicBool,
    trouble: Arc<Trouble>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::SeqCst);
        self.thread.unpark();
        self.trouble.maybe_panic();
    }
}

/// How long a thread waits to be woken before it polls anyway: longer than the watchdog allows.
const PARK: Duration = Duration::from_secs(600);

/// Waits for a future as an executor does: polls it only after it was woken.
fn block_on(future: Durable, trouble: &Arc<Trouble>) -> ironstone::Result<()> {
    let bell = Arc::new(Bell {
        thread: current(),
        rung: AtomicBool::new(false),
        trouble: Arc::clone(trouble),
    });
    let waker = Waker::from(Arc::clone(&bell));
    let mut future = pin!(future);
    loop {
        let mut context = Context::from_waker(&waker);
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
        while !bell.rung.swap(false, Ordering::SeqCst) {
            park_timeout(PARK);
        }
    }
}

/// Writes, and waits for durability in one of these ways.
pub(super) fn write(worker: &mut Worker) {
    if !worker.tools.arena.has(Part::Async) {
        return;
    }
    let options = WriteOptions {
        no_slowdown: worker.rng.one_in(20),
        ..WriteOptions::default()
    };
    let Ok(mut write) = worker.draw_write(true) else {
        return;
    };
    let batch: WriteBatch = std::mem::take(&mut write.batch);
    let tools = &worker.tools;
    let Some(pending) = tools.run("write_async", |db| db.with(&options).write_async(batch)) else {
        return;
    };
    if worker.rng.one_in(10) {
        worker.left.pending = Some(pending); // nobody waits
        return;
    }
    let applied = |_: &ironstone::Db| pending.applied.wait();
    if worker.tools.run("applied.wait", applied).is_none() {
        return;
    }
    worker.succeeded(&write);
    write.seen.threads[worker.ledger.thread] = write.n;
    let durable = pending.durable.clone();
    match worker.rng.below(6) {
        0 => wait(worker, &write, "durable.wait", |_| durable.wait()),
        1 => {
            let trouble = Arc::clone(&worker.tools.arena.trouble);
            wait(worker, &write, "durable.await", |_| {
                block_on(durable, &trouble)
            });
        }
        2 => wait(worker, &write, "wait_durable", |db| {
            db.wait_durable(pending.seq)
        }),
        3 | 4 => call_back(worker, write, &durable),
        _ => {
            if worker.tools.db.durable_seq() >= pending.seq {
                worker
                    .tools
                    .arena
                    .promises
                    .promise(Reach::Durable, &write.seen);
            }
        }
    }
}

fn wait(
    worker: &Worker,
    write: &Write,
    what: &'static str,
    f: impl FnOnce(&ironstone::Db) -> ironstone::Result<()>,
) {
    if worker.tools.run(what, f).is_some() {
        worker
            .tools
            .arena
            .promises
            .promise(Reach::Durable, &write.seen);
    }
}

/// Notes the promise in a callback, which may also panic, read, or write.
fn call_back(worker: &mut Worker, write: Write, durable: &Durable) {
    let arena = Arc::clone(&worker.tools.arena);
    let home = Arc::clone(&arena.home);
    let writes = worker.rng.one_in(3) && arena.has(Part::CallbacksThatWrite);
    let register = |_: &ironstone::Db| {
        durable.on_ready(move |result| {
            if result.is_ok() {
                arena.promises.promise(Reach::Durable, &write.seen);
            }
            if let Some(db) = home.db() {
                drop(db.get("anything"));
                if writes {
                    write_without_waiting(&db);
                }
            }
            arena.trouble.maybe_panic();
        });
        Ok(())
    };
    worker.tools.run("on_ready", register);
}
