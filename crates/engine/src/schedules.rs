//! Random schedules for the inner parts that threads share, each part by itself: `cargo xtask schedules` runs them.
//! Each function is the body of one schedule, which `seed` varies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use base::rng::Rng;
use base::sync::{PoisonError, ranked, thread};
use base::{Error, Result};

use crate::batch::WriteBatch;
use crate::catalog::family::Epoch;
use crate::commit::order::Order;
use crate::commit::plan::{Patience, Plan};
use crate::commit::queue::{Group, Parallel, Queue, Request, Turn};
use crate::commit::test_env::{Step, TestEnv};
use crate::locks;
use crate::watermark::Watermark;
use options::WriteOptions;

fn request(n: u64, no_slowdown: bool) -> Request {
    let mut batch = WriteBatch::new();
    batch.put(n.to_be_bytes(), b"v").unwrap_or_default();
    let options = WriteOptions {
        no_slowdown,
        ..WriteOptions::default()
    };
    let plan = Plan::new(&options, false);
    Request {
        batch,
        plan,
        checked: Epoch::default(),
    }
}

/// Every writer is served once, whichever writer leads, carries followers, hands over early, or lets members insert
/// their own batches. While a leader is held back, only writers that must not wait for it are refused.
pub fn queue(seed: u64) {
    let mut rng = Rng::new(seed);
    let queue = Arc::new(Queue::new(rng.one_in(2)));
    let leading = Arc::new(AtomicU64::new(0));
    let written = Arc::new(AtomicU64::new(0));
    let each = 1 + rng.below(3);
    let threads: Vec<_> = (0..2 + rng.below(3))
        .map(|_| {
            let (queue, leading) = (Arc::clone(&queue), Arc::clone(&leading));
            let written = Arc::clone(&written);
            let mut rng = Rng::new(rng.next_u64());
            thread::spawn(move || {
                let done = |n: &u64| write(&queue, &leading, &written, &mut rng, *n);
                (0..each).filter(done).count() as u64
            })
        })
        .collect();
    let all: u64 = threads.into_iter().map(|t| t.join().unwrap_or(0)).sum();
    assert_eq!(written.load(Ordering::SeqCst), all, "written once each");
    assert!(
        matches!(queue.enter(request(0, false), |_| Ok(())), Turn::Lead(..)),
        "nobody leads when all are gone"
    );
}

/// Writes a batch with the key `n`. Returns whether it was written.
fn write(queue: &Queue, leading: &AtomicU64, written: &AtomicU64, rng: &mut Rng, n: u64) -> bool {
    let insert = |_: &WriteBatch| {
        written.fetch_add(1, Ordering::SeqCst);
        Ok(())
    };
    let no_slowdown = rng.one_in(3);
    let (request, mut lead) = match queue.enter(request(n, no_slowdown), insert) {
        Turn::Done(_, result) => {
            assert!(result.is_ok() || no_slowdown);
            return result.is_ok();
        }
        Turn::Lead(request, lead) => (request, lead),
    };
    assert_eq!(leading.swap(1, Ordering::SeqCst), 0, "two lead at once");
    let held = rng
        .one_in(3)
        .then(|| lead.hold(&Error::busy("held back"), Patience::Job));
    base::sync::time::switch();
    drop(held);
    let followers = queue.followers(&request, 1 << 20);
    let mut group = Group {
        lead: request,
        followers,
    };
    leading.store(0, Ordering::SeqCst);
    if rng.one_in(2) {
        lead.hand_over();
    }
    if rng.one_in(2) {
        let own = || insert(&group.lead.batch);
        assert!(Parallel::run(&group.followers, own).is_ok());
    } else {
        written.fetch_add(group.count(), Ordering::SeqCst);
    }
    drop(lead);
    group.finish(&Ok(()));
    true
}

/// Groups become visible in their order, and no group is inside while the gate is closed.
pub fn order(seed: u64) {
    let mut rng = Rng::new(seed);
    let order = Arc::new(Order::after(10));
    let inside = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    for _ in 0..2 + rng.below(2) {
        let (order, inside) = (Arc::clone(&order), Arc::clone(&inside));
        let (count, fails, no_slowdown) = (rng.below(3), rng.one_in(4), rng.one_in(4));
        threads.push(thread::spawn(move || {
            let Ok(gate) = order.enter(if no_slowdown {
                Patience::None
            } else {
                Patience::All
            }) else {
                assert!(no_slowdown);
                return;
            };
            inside.fetch_add(1, Ordering::SeqCst);
            let mut ticket = order.begin(count);
            let last = ticket.last;
            base::sync::time::switch();
            ticket.end(!fails);
            ticket.wait();
            assert!(
                fails || count == 0 || order.visible.get() >= last,
                "visible"
            );
            inside.fetch_sub(1, Ordering::SeqCst);
            drop(gate);
        }));
    }
    for _ in 0..1 + rng.below(2) {
        let (order, inside) = (Arc::clone(&order), Arc::clone(&inside));
        threads.push(thread::spawn(move || {
            let closed = order.close(Patience::All).expect("nobody resumes");
            assert_eq!(inside.load(Ordering::SeqCst), 0, "somebody is in");
            base::sync::time::switch();
            assert_eq!(inside.load(Ordering::SeqCst), 0, "somebody came in");
            drop(closed);
        }));
    }
    for thread in threads {
        assert!(thread.join().is_ok());
    }
}

struct Told(AtomicU64);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Every waiter for a sequence number is woken or called once, whether the number is reached or the wait fails.
pub fn watermark(seed: u64) {
    let mut rng = Rng::new(seed);
    let mark = Arc::new(Watermark::at(0));
    let called = Arc::new(AtomicU64::new(0));
    let fails = rng.one_in(3);
    let mut threads = Vec::new();
    for _ in 0..1 + rng.below(2) {
        let (mark, target) = (Arc::clone(&mark), 1 + rng.below(3));
        threads.push(thread::spawn(move || outcome(mark.wait(target), fails)));
    }
    let callbacks = 1 + rng.below(2);
    for _ in 0..callbacks {
        let (mark, called) = (Arc::clone(&mark), Arc::clone(&called));
        let target = 1 + rng.below(3);
        threads.push(thread::spawn(move || {
            let tell = move |r| {
                outcome(r, fails);
                called.fetch_add(1, Ordering::SeqCst);
            };
            mark.call(target, Box::new(tell));
        }));
    }
    let told = Arc::new(Told(AtomicU64::new(0)));
    let (polls, poller, target) = (Arc::clone(&mark), Arc::clone(&told), 1 + rng.below(3));
    threads.push(thread::spawn(move || {
        let waker = Waker::from(Arc::clone(&poller));
        let cx = Context::from_waker(&waker);
        if let Poll::Ready(r) = polls.poll(target, 1, &cx) {
            outcome(r, fails);
            poller.0.fetch_add(1, Ordering::SeqCst);
        }
    }));
    let raises = Arc::clone(&mark);
    threads.push(thread::spawn(move || {
        for n in 1..=3 {
            raises.raise(n);
            raises.deliver();
        }
    }));
    if fails {
        let mark = Arc::clone(&mark);
        threads.push(thread::spawn(move || {
            mark.fail(&Error::aborted("no device"))
        }));
    }
    for thread in threads {
        assert!(thread.join().is_ok());
    }
    mark.deliver();
    assert_eq!(
        called.load(Ordering::SeqCst),
        callbacks,
        "callbacks, once each"
    );
    assert!(
        told.0.load(Ordering::SeqCst) >= 1,
        "the future was forgotten"
    );
}

fn outcome(result: Result<()>, may_fail: bool) {
    assert!(result.is_ok() || may_fail);
}

/// Several threads commit through the pipeline, while steps fail. Every acknowledged write is logged and inserted
/// once, in one order; no thread hangs; the inserted writes are the visible writes.
pub fn commit(seed: u64) {
    let mut rng = Rng::new(seed);
    let fails = Arc::new(ranked(locks::LEAF, Rng::new(rng.next_u64())));
    let act = move |step: Step, _: u64| {
        base::sync::time::switch();
        let mut rng = fails.lock().unwrap_or_else(PoisonError::into_inner);
        // A failed insert makes the database fail. That is not a case for the pipeline alone.
        let may = !matches!(step, Step::Insert);
        if may && rng.one_in(8) {
            return Err(Error::aborted("drawn"));
        }
        Ok(())
    };
    let mut env = TestEnv::new(act);
    env.settings.pipelined = rng.one_in(2);
    env.settings.two_queues = rng.one_in(2);
    env.settings.concurrent_inserts = rng.one_in(2);
    let env = Arc::new(env);
    let threads: Vec<_> = (0..2 + rng.below(3))
        .map(|_| {
            let (env, mut rng) = (Arc::clone(&env), Rng::new(rng.next_u64()));
            let each = 1 + rng.below(3);
            thread::spawn(move || {
                let commits = (0..each).map(|_| commit_one(&env, &mut rng));
                commits.filter_map(Result::ok).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut acknowledged: Vec<u64> = Vec::new();
    for thread in threads {
        let theirs = thread.join();
        assert!(theirs.is_ok());
        acknowledged.extend(theirs.into_iter().flatten());
    }
    let did = env.did();
    let at = |step| did.iter().filter(move |(s, _)| *s == step).map(|(_, n)| *n);
    assert!(
        at(Step::Log).is_sorted(),
        "logged in another order: {did:?}"
    );
    let mut inserted: Vec<u64> = at(Step::Insert).collect();
    inserted.sort_unstable();
    let twice = inserted.windows(2).any(|w| w[0] == w[1]);
    assert!(!twice, "inserted twice: {did:?}");
    acknowledged.sort_unstable();
    assert_eq!(
        inserted, acknowledged,
        "what is inserted is acknowledged: {did:?}"
    );
    let newest = acknowledged.last().copied();
    assert!(env.writes.visible().0 >= newest.unwrap_or(0), "not visible");
    assert_eq!(env.failures(), [""; 0], "only inserts are sticky");
    assert!(
        env.writes.order.close(Patience::All).is_ok(),
        "somebody is inside"
    );
}

/// Commits a batch with a random plan. Returns its last sequence number.
fn commit_one<F: Fn(Step, u64) -> Result<()>>(env: &TestEnv<F>, rng: &mut Rng) -> Result<u64> {
    let kind = rng.below(3);
    let options = WriteOptions {
        sync: kind == 0,
        disable_wal: kind == 1,
        ..WriteOptions::default()
    };
    // Some groups are large enough that their members insert their own batches.
    let records: u64 = if rng.one_in(3) { 40 } else { 1 };
    let mut batch = WriteBatch::new();
    for n in 0..records {
        batch.put(n.to_be_bytes(), b"v")?;
    }
    let request = Request {
        batch,
        plan: Plan::new(&options, false),
        checked: Epoch::default(),
    };
    env.writes.commit(env, request).1
}
