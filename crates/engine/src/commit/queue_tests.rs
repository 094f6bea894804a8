//! There is one leader at a time, and every writer gets its turn.

use super::*;
use options::WriteOptions;
use std::sync::atomic::{AtomicBool, AtomicU64};

fn request(n: u64) -> Request {
    let mut batch = WriteBatch::new();
    batch.put(n.to_be_bytes(), b"v").unwrap();
    let plan = Plan::new(&WriteOptions::default(), false);
    Request {
        batch,
        plan,
        checked: Epoch::default(),
    }
}

/// Writes as the pipeline does, and returns how often this thread led.
fn write(queue: &Queue, led: &AtomicBool, written: &AtomicU64, hand_over_early: bool) -> u64 {
    match queue.enter(request(1), |_| Ok(())) {
        Turn::Done(_, result) => {
            result.unwrap();
            0
        }
        Turn::Lead(lead, mut guard) => {
            assert!(!led.swap(true, Ordering::SeqCst), "two lead at once");
            let followers = queue.followers(&lead, 1 << 20);
            let mut group = Group { lead, followers };
            written.fetch_add(group.count(), Ordering::SeqCst);
            led.store(false, Ordering::SeqCst);
            if hand_over_early {
                guard.hand_over();
                thread::yield_now();
            }
            drop(guard);
            group.finish(&Ok(()));
            1
        }
    }
}

#[test]
fn one_leads_and_everybody_is_served_whether_awake_or_asleep() {
    for (barging, early) in [(false, false), (false, true), (true, false), (true, true)] {
        let (queue, led) = (Queue::new(barging), AtomicBool::new(false));
        let (written, leads) = (AtomicU64::new(0), AtomicU64::new(0));
        let (threads, each) = (6, 3000);
        thread::scope(|s| {
            for _ in 0..threads {
                s.spawn(|| {
                    for _ in 0..each {
                        let n = write(&queue, &led, &written, early);
                        leads.fetch_add(n, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(written.into_inner(), threads * each);
        assert!(leads.into_inner() <= threads * each);
        let waiting = queue.lock();
        assert!(waiting.followers.is_empty());
        assert_eq!(queue.lead.load(Ordering::SeqCst), 0);
    }
}

/// There are more threads than processors, and enough writes that every step is interrupted at some time.
#[test]
fn nobody_is_forgotten_in_a_crowd() {
    let (queue, led) = (Queue::new(true), AtomicBool::new(false));
    let written = AtomicU64::new(0);
    let (threads, each) = (8, 60_000);
    thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                for i in 0..each {
                    write(&queue, &led, &written, i % 64 == 0);
                    // About as long as a request takes: the thread is neither always nor never alone.
                    for _ in 0..i % 128 {
                        base::sync::hint::spin_loop();
                    }
                }
            });
        }
    });
    assert_eq!(written.into_inner(), threads * each);
}

#[test]
fn a_sleeper_is_passed_only_so_often() {
    let (queue, led) = (Queue::new(true), AtomicBool::new(false));
    let written = AtomicU64::new(0);
    let served = AtomicBool::new(false);
    thread::scope(|s| {
        let Turn::Lead(mine, mut lead) = queue.enter(request(1), |_| Ok(())) else {
            panic!("nobody led")
        };
        s.spawn(|| {
            write(&queue, &led, &written, false);
            served.store(true, Ordering::SeqCst);
        });
        while !queue
            .lock()
            .followers
            .iter()
            .any(|f| f.asleep.load(Ordering::SeqCst))
        {
            thread::yield_now();
        }
        // This thread leads again and again before the sleeper has woken up.
        let mut passed = 0;
        loop {
            let mut carried = queue.followers(&mine, 1 << 20);
            if !carried.is_empty() {
                carried.finish(&Ok(()));
                break;
            }
            passed += 1;
            assert!(passed <= PASSING, "a sleeper is passed over and over");
        }
        assert!(passed >= PASSING / 2, "{passed}");
        lead.hand_over();
        drop(mine);
        while !served.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    });
}
