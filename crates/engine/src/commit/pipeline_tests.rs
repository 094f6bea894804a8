//! The pipeline by itself: the order of its steps, and its handling of failures.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::clock::SystemClock;
use base::sync::thread;

use super::super::test_env::{Step, TestEnv, new_writes};
use super::*;
use crate::catalog::family::Epoch;
use crate::commit::plan::Plan;
use options::WriteOptions;

const SYNCED: WriteOptions = options(true, false);
const LOGGED: WriteOptions = options(false, false);
const UNLOGGED: WriteOptions = options(false, true);

const fn options(sync: bool, disable_wal: bool) -> WriteOptions {
    WriteOptions {
        sync,
        disable_wal,
        no_slowdown: false,
        low_pri: false,
    }
}

/// A batch of `records` puts.
fn request(options: &WriteOptions, records: u64) -> Request {
    let mut batch = WriteBatch::new();
    for n in 0..records {
        batch.put(n.to_be_bytes(), b"v").unwrap();
    }
    Request {
        batch,
        plan: Plan::new(options, false),
        checked: Epoch::default(),
    }
}

fn commit<F: Fn(Step, u64) -> Result<()>>(
    env: &TestEnv<F>,
    options: &WriteOptions,
    records: u64,
) -> Result<u64> {
    env.writes.commit(env, request(options, records)).1
}

/// Waits for a condition that another thread makes true.
fn until(what: &str, so: impl Fn() -> bool) {
    let clock = SystemClock::shared();
    let begun = clock.monotonic_nanos();
    while !so() {
        let waited = clock.monotonic_nanos() - begun;
        assert!(waited < 60_000_000_000, "{what}");
        thread::yield_now();
    }
}

#[test]
fn a_lone_write_takes_its_steps_in_their_order() {
    use Step::{Admit, Insert, Inserted, Land, Log, Slot, Unlogged};
    let env = TestEnv::new(|_, _| Ok(()));
    assert_eq!(commit(&env, &SYNCED, 2).unwrap(), 2);
    assert_eq!(commit(&env, &LOGGED, 1).unwrap(), 3);
    assert_eq!(commit(&env, &UNLOGGED, 1).unwrap(), 4);
    assert_eq!(
        env.did(),
        [
            [
                (Admit, 0),
                (Slot, 0),
                (Log, 2),
                (Land, 2),
                (Insert, 2),
                (Inserted, 0)
            ]
            .as_slice(),
            &[(Admit, 0), (Log, 3), (Insert, 3), (Inserted, 0)],
            &[(Admit, 0), (Unlogged, 0), (Insert, 4), (Inserted, 0)],
        ]
        .concat()
    );
    assert_eq!(env.writes.visible().0, 4);
}

/// Three writers that arrive while a leader waits for room form one group with it: one log write, one landing.
#[test]
fn who_waits_behind_a_leader_is_written_with_it() {
    for records in [1, 40] {
        let (writes, admitted) = (new_writes(), AtomicU64::new(0));
        let queues = Arc::clone(&writes);
        let env = TestEnv::around(writes, |step, _| {
            if step == Step::Admit && admitted.fetch_add(1, Ordering::SeqCst) == 0 {
                until("three wait", || queues.synced.waiting() == 3);
            }
            Ok(())
        });
        let mut lasts = thread::scope(|s| {
            let writers = [(); 4].map(|()| s.spawn(|| commit(&env, &SYNCED, records).unwrap()));
            writers.map(|w| w.join().unwrap())
        });
        lasts.sort_unstable();
        assert_eq!(lasts, [1, 2, 3, 4].map(|n| n * records));
        let did = env.did();
        let of = |step| did.iter().filter(|(s, _)| *s == step).count();
        let steps = [
            Step::Admit,
            Step::Log,
            Step::Land,
            Step::Inserted,
            Step::Insert,
        ];
        assert_eq!(steps.map(of), [1, 1, 1, 1, 4], "{did:?}");
        assert_eq!(env.writes.visible().0, 4 * records);
    }
}

/// Members of a large group insert their own batches, unless only one thread may insert at a time.
#[test]
fn members_insert_for_themselves() {
    for concurrent in [false, true] {
        let (writes, inserting) = (new_writes(), AtomicU64::new(0));
        let queues = Arc::clone(&writes);
        let most = AtomicU64::new(0);
        let mut env = TestEnv::around(writes, |step, _| {
            match step {
                Step::Admit => until("three wait", || queues.synced.waiting() == 3),
                Step::Insert => {
                    let now = inserting.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    if concurrent {
                        until("all insert", || most.load(Ordering::SeqCst) == 4);
                    }
                    inserting.fetch_sub(1, Ordering::SeqCst);
                }
                _ => {}
            }
            Ok(())
        });
        env.settings.concurrent_inserts = concurrent;
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| commit(&env, &SYNCED, PARALLEL_RECORDS / 2).unwrap());
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), if concurrent { 4 } else { 1 });
    }
}

/// The log refuses one group: its sequence numbers are used up, none of its records is inserted, and writes go on.
#[test]
fn a_group_that_is_not_logged_fails_alone() {
    let env = TestEnv::new(|step, at| match (step, at) {
        (Step::Log, 1) => Err(Error::aborted("no log")),
        _ => Ok(()),
    });
    let e = commit(&env, &LOGGED, 1).unwrap_err();
    assert!(e.to_string().contains("no log"), "{e}");
    assert_eq!(
        (env.writes.visible().0, env.writes.order.allocated()),
        (0, 1)
    );
    assert_eq!(commit(&env, &LOGGED, 1).unwrap(), 2);
    assert_eq!(env.writes.visible().0, 2);
    assert!(!env.did().contains(&(Step::Insert, 1)));
    assert_eq!(env.failures(), [""; 0], "the log's own business");
}

#[test]
fn what_did_not_land_is_not_inserted() {
    let env = TestEnv::new(|step, at| match (step, at) {
        (Step::Land, 1) => Err(Error::aborted("no device")),
        _ => Ok(()),
    });
    assert!(commit(&env, &SYNCED, 1).is_err());
    assert_eq!(env.writes.visible().0, 0);
    assert_eq!(commit(&env, &SYNCED, 1).unwrap(), 2);
    assert_eq!(env.writes.visible().0, 2);
    assert!(!env.did().contains(&(Step::Insert, 1)));
}

/// A half-inserted group makes the database refuse writes.
#[test]
fn an_insert_that_fails_is_made_sticky() {
    let env = TestEnv::new(|step, at| match (step, at) {
        (Step::Insert, 1) => Err(Error::aborted("a bad record")),
        _ => Ok(()),
    });
    assert!(commit(&env, &LOGGED, 1).is_err());
    let failures = env.failures();
    assert!(matches!(&failures[..], [f] if f.contains("memtable") && f.contains("a bad record")));
    assert_eq!(env.writes.visible().0, 0);
}

/// A panic in any step gives back the lead and the place in the order. If the group may be written in part, the
/// error is made sticky.
#[test]
fn a_writer_that_panics_holds_up_nobody() {
    for (step, halfway) in [
        (Step::Admit, false),
        (Step::Slot, false),
        (Step::Log, false),
        (Step::Land, true),
        (Step::Insert, true),
    ] {
        let panics = AtomicU64::new(1);
        let env = TestEnv::new(|now, _| {
            let first = now == step && panics.swap(0, Ordering::SeqCst) == 1;
            assert!(!first, "a panic that is part of the test");
            Ok(())
        });
        let died = catch_unwind(AssertUnwindSafe(|| commit(&env, &SYNCED, 1)));
        assert!(died.is_err());
        assert_eq!(env.failures().len(), usize::from(halfway), "{step:?}");
        assert_eq!(env.writes.visible().0, 0);
        let last = commit(&env, &SYNCED, 1).unwrap();
        assert_eq!(env.writes.visible().0, last, "{step:?}");
        drop(env.writes.order.close(Patience::All).unwrap()); // nobody is inside
    }
}

/// While a synced group is on its way to the device, the next group is logged.
#[test]
fn synced_groups_overlap() {
    let logged = AtomicU64::new(0);
    let env = TestEnv::new(|step, at| {
        match (step, at) {
            (Step::Log, _) => logged.store(at, Ordering::SeqCst),
            (Step::Land, 1) => until("the second is logged", || {
                logged.load(Ordering::SeqCst) == 2
            }),
            _ => {}
        }
        Ok(())
    });
    thread::scope(|s| {
        let first = s.spawn(|| commit(&env, &SYNCED, 1).unwrap());
        until("the first is logged", || logged.load(Ordering::SeqCst) == 1);
        assert_eq!(commit(&env, &SYNCED, 1).unwrap(), 2);
        assert_eq!(first.join().unwrap(), 1);
    });
    assert_eq!(env.writes.visible().0, 2);
}

/// A write that does not wait for the device is inserted while an earlier synced write is on its way, and becomes
/// visible only after that write.
#[test]
fn writes_are_visible_in_their_order() {
    let (logged, lands) = (AtomicU64::new(0), AtomicU64::new(0));
    let env = TestEnv::new(|step, at| {
        match (step, at) {
            (Step::Log, _) => logged.store(at, Ordering::SeqCst),
            (Step::Land, 1) => until("it may land", || lands.load(Ordering::SeqCst) == 1),
            _ => {}
        }
        Ok(())
    });
    thread::scope(|s| {
        let first = s.spawn(|| commit(&env, &SYNCED, 1).unwrap());
        until("the first is logged", || logged.load(Ordering::SeqCst) == 1);
        let second = s.spawn(|| commit(&env, &LOGGED, 1).unwrap());
        until("the second is inserted", || {
            env.did().contains(&(Step::Insert, 2))
        });
        assert_eq!(env.writes.visible().0, 0, "before its predecessor");
        lands.store(1, Ordering::SeqCst);
        assert_eq!((first.join().unwrap(), second.join().unwrap()), (1, 2));
    });
    assert_eq!(env.writes.visible().0, 2);
}
