//! The controller with a model of a database: writers as fast as the controller lets them, a flush and a
//! compaction of fixed speeds. The traces are drawn as text.

use super::*;
use WriteStallCause::{L0FileCountLimit, MemtableLimit, PendingCompactionBytes};
use WriteStallCondition::{Delayed, Normal, Stopped};

const MB: f64 = 1e6;
const MS: u64 = 1_000_000;

fn limits() -> Limits {
    Limits::of(&CfOptions::default())
}

#[test]
fn conditions_are_rocksdbs() {
    let l = limits();
    let files = |l0_files| Debt {
        l0_files,
        ..Debt::default()
    };
    assert_eq!(judge(&files(19), &l), (Normal, None));
    assert_eq!(judge(&files(20), &l), (Delayed, Some(L0FileCountLimit)));
    assert_eq!(judge(&files(36), &l), (Stopped, Some(L0FileCountLimit)));
    let bytes = |pending_bytes| Debt {
        pending_bytes,
        ..Debt::default()
    };
    let pending = Some(PendingCompactionBytes);
    assert_eq!(judge(&bytes(64 << 30), &l), (Delayed, pending));
    assert_eq!(judge(&bytes(256 << 30), &l), (Stopped, pending));
    let memtables = |immutable| Debt {
        immutable,
        ..Debt::default()
    };
    assert_eq!(judge(&memtables(1), &l), (Normal, None));
    assert_eq!(judge(&memtables(2), &l), (Stopped, Some(MemtableLimit)));
    let more = Limits {
        max_write_buffer_number: 4,
        ..l
    };
    assert_eq!(judge(&memtables(2), &more), (Normal, None));
    assert_eq!(judge(&memtables(3), &more), (Delayed, Some(MemtableLimit)));
    assert_eq!(judge(&memtables(4), &more), (Stopped, Some(MemtableLimit)));
    let manual = Limits {
        no_compactions: true,
        ..l
    };
    assert_eq!(judge(&files(100), &manual), (Normal, None));
    assert_eq!(judge(&bytes(u64::MAX), &manual), (Normal, None));
    assert_eq!(judge(&memtables(2), &manual).0, Stopped);
    // The worst of several conditions.
    let both = Debt {
        l0_files: 40,
        pending_bytes: 65 << 30,
        ..Debt::default()
    };
    assert_eq!(judge(&both, &l), (Stopped, Some(L0FileCountLimit)));
}

#[test]
fn a_new_delayed_write_rate_counts_at_once() {
    let mut c = Controller::new(16 << 20);
    let debt = Debt {
        l0_files: 25,
        ..Debt::default()
    };
    c.observe(0, 0, limits(), debt, 0);
    c.tick(0, 0);
    c.tick(10_000 * MS, 0);
    let before = c.rate().unwrap();
    c.set_delayed_write_rate(1 << 20);
    c.tick(20_000 * MS, 0);
    let after = c.rate().unwrap();
    assert!(before > 1e6 && after < 1e6, "{before}, then {after}");
}

#[test]
fn the_rate_falls_smoothly_from_the_trigger_to_the_stop() {
    let (l, drain, delayed) = (limits(), 40.0 * MB, 16.0 * MB);
    let at = |files: usize| {
        let debt = Debt {
            l0_files: files,
            ..Debt::default()
        };
        let p = pressure(&debt, &l);
        (p >= 0.0).then(|| rate_at(p, drain, delayed))
    };
    assert_eq!(at(3), None);
    let rates: Vec<f64> = (4..=36).map(|f| at(f).unwrap()).collect();
    assert!((rates[0] - 4.0 * drain).abs() < 1.0, "free at the trigger");
    assert!((rates[4] - drain).abs() < 1.0, "matched at 8 files");
    assert!(
        (rates[16] - delayed).abs() < 1.0,
        "delayed_write_rate at 20"
    );
    assert!((rates[32] - delayed / 16.0).abs() < 1.0);
    for pair in rates.windows(2) {
        let step = pair[1] / pair[0];
        assert!(step < 1.0 && step > 0.6, "a cliff: {pair:?}");
    }
}

/// Files that a compaction has finished will leave level 0 soon: the debt does not jump at its end.
#[test]
fn what_a_compaction_is_through_with_is_no_debt() {
    let at = |l0_files, l0_done| {
        let debt = Debt {
            l0_files,
            l0_done,
            ..Debt::default()
        };
        pressure(&debt, &limits())
    };
    assert!((at(12, 5.999) - at(6, 0.0)).abs() < 0.01);
    assert!(at(12, 3.0) > at(12, 6.0) && at(12, 0.0) > 1.0);
    // But all files count once they are many.
    assert!(at(16, 12.0) >= 1.0 && at(20, 20.0) >= 2.0);
}

#[test]
fn the_first_compaction_tells_the_rate_before_it_ends() {
    let mut m = Model::new(300.0 * MB, 60.0 * MB);
    let first = m.run(200.0 * MB, 5);
    assert!(m.compaction_done.is_some() && m.debt.l0_files >= 8);
    let late = first[40..].iter().sum::<f64>() / 10.0;
    assert!(late < 100.0 * MB, "{}", plot(&first, 200.0 * MB));
}

/// A database with one family: a memtable takes `SPAN` bytes, a flush and a compaction of all
/// files of level 0 take their time.
struct Model {
    controller: Controller,
    limits: Limits,
    now: u64,
    written: f64,
    debt: Debt,
    flush_done: Option<u64>,
    compaction_done: Option<(u64, usize)>,
    flush_rate: f64,
    compaction_rate: f64,
    /// Nanoseconds without a write.
    idle: u64,
    longest_pause: u64,
}

const SPAN: f64 = 64.0 * 1024.0 * 1024.0;

impl Model {
    fn new(flush_rate: f64, compaction_rate: f64) -> Self {
        Self {
            controller: Controller::new(16 << 20),
            limits: limits(),
            now: 1,
            written: 0.0,
            debt: Debt::default(),
            flush_done: None,
            compaction_done: None,
            flush_rate,
            compaction_rate,
            idle: 0,
            longest_pause: 0,
        }
    }

    fn tell(&mut self) {
        self.debt.l0_compacting = self.compaction_done.is_some();
        self.debt.l0_done = self.compaction_done.map_or(0.0, |(end, files)| {
            let left = SPAN * files as f64 / self.compaction_rate * 1e9;
            files as f64 * (1.0 - end.saturating_sub(self.now) as f64 / left).max(0.0)
        });
        let written = self.written as u64;
        self.controller
            .observe(self.now, 0, self.limits, self.debt, written);
        self.controller.tick(self.now, written);
    }

    fn jobs(&mut self) {
        if self.flush_done.is_some_and(|t| t <= self.now) {
            self.flush_done = None;
            self.debt.immutable -= 1;
            self.debt.l0_files += 1;
            self.tell();
        }
        if let Some((_, files)) = self.compaction_done.filter(|(t, _)| *t <= self.now) {
            self.compaction_done = None;
            self.debt.l0_files -= files;
            self.tell();
        }
        let nanos = |bytes: f64, rate: f64| (bytes / rate * 1e9) as u64;
        if self.flush_done.is_none() && self.debt.immutable > 0 {
            self.flush_done = Some(self.now + nanos(SPAN, self.flush_rate));
        }
        if self.compaction_done.is_none() && self.debt.l0_files >= self.limits.l0_compaction {
            let files = self.debt.l0_files;
            let took = nanos(SPAN * files as f64, self.compaction_rate);
            self.compaction_done = Some((self.now + took, files));
        }
    }

    /// Runs writers that could write `offered` bytes per second, for a millisecond; returns how many
    /// bytes they wrote.
    fn step(&mut self, offered: f64) -> f64 {
        self.jobs();
        let bytes = offered / 1000.0;
        let end = self.now + MS;
        let mut done = 0.0;
        if self.controller.worst().0 != Stopped {
            self.controller.fill(0, self.debt.fill);
            self.controller.tick(self.now, self.written as u64);
            let wait = self.controller.admit(self.now, bytes as u64);
            done = if wait <= MS {
                bytes
            } else {
                bytes * MS as f64 / wait as f64
            };
            // Bytes that were not written do not use up the rate.
            self.controller.paid_until = self.controller.paid_until.min(end as f64);
        }
        self.written += done;
        self.debt.fill += done / SPAN;
        if self.debt.fill >= 1.0 {
            self.debt.fill = 0.0;
            self.debt.immutable += 1;
            self.tell();
        }
        self.idle = if done > 0.0 { 0 } else { self.idle + MS };
        self.longest_pause = self.longest_pause.max(self.idle);
        self.now = end;
        done
    }

    /// The throughput of each 100 ms, in bytes a second.
    fn run(&mut self, offered: f64, seconds: u64) -> Vec<f64> {
        (0..seconds * 10)
            .map(|_| (0..100).map(|_| self.step(offered)).sum::<f64>() * 10.0)
            .collect()
    }
}

/// A row of digits: tenths of `full`.
fn plot(trace: &[f64], full: f64) -> String {
    let digit = |v: &f64| char::from_digit(((v / full * 10.0) as u32).min(9), 10);
    trace.iter().filter_map(digit).collect()
}

#[test]
fn writers_settle_at_the_speed_of_compaction_without_a_pause() {
    let mut m = Model::new(300.0 * MB, 60.0 * MB);
    let mut most = 0;
    let mut trace = Vec::new();
    for _ in 0..60 {
        trace.extend(m.run(200.0 * MB, 1));
        most = most.max(m.debt.l0_files);
    }
    println!(
        "MB/s per 100 ms, a digit is 20: {}",
        plot(&trace, 200.0 * MB)
    );
    assert_eq!(m.longest_pause, 0, "{}", plot(&trace, 200.0 * MB));
    assert!(most <= 16, "{most} files, away from the slowdown at 20");
    let late = &trace[200..];
    let mean = late.iter().sum::<f64>() / late.len() as f64;
    assert!((45.0 * MB..75.0 * MB).contains(&mean), "{mean}");
    let low = late.iter().copied().fold(f64::MAX, f64::min);
    assert!(
        low > 0.25 * mean,
        "{low} of {mean}: {}",
        plot(late, 200.0 * MB)
    );
    assert_eq!(m.controller.counts(0).total(), Pair::default());
}

#[test]
fn writers_slower_than_compaction_are_left_alone() {
    let mut m = Model::new(300.0 * MB, 120.0 * MB);
    let trace = m.run(60.0 * MB, 40);
    let late = &trace[100..];
    let low = late.iter().copied().fold(f64::MAX, f64::min);
    assert!(low > 55.0 * MB, "{low}: {}", plot(late, 60.0 * MB));
}

/// The state after an open: nothing is known of compactions, and level 0 has more files than its trigger.
#[test]
fn a_database_that_was_just_opened_holds_nobody_back() {
    let offered = 100.0 * MB;
    let mut m = Model::new(400.0 * MB, 200.0 * MB);
    m.debt.l0_files = 6;
    m.tell();
    let trace = m.run(offered, 1);
    println!("opened with six files:\n{}", plot(&trace, offered));
    let least = trace.iter().copied().fold(f64::MAX, f64::min);
    assert!(least > 0.95 * offered, "{least}");
}

#[test]
fn a_burst_is_taken_in_and_forgotten() {
    let mut m = Model::new(300.0 * MB, 60.0 * MB);
    m.run(200.0 * MB, 20);
    m.run(0.0, 20);
    assert!(m.debt.l0_files < 4);
    m.controller.tick(m.now, m.written as u64);
    assert_eq!(m.controller.rate(), None);
    let again = m.run(200.0 * MB, 1);
    assert!(again.iter().sum::<f64>() / 10.0 > 150.0 * MB, "{again:?}");
}

#[test]
fn slow_flushes_pace_writers_instead_of_stopping_them() {
    let mut m = Model::new(50.0 * MB, 500.0 * MB);
    m.run(200.0 * MB, 20); // learns
    m.longest_pause = 0;
    let trace = m.run(200.0 * MB, 30);
    println!("a digit is 20 MB/s: {}", plot(&trace, 200.0 * MB));
    assert!(m.longest_pause <= 100 * MS, "{} ms", m.longest_pause / MS);
    let mean = trace.iter().sum::<f64>() / trace.len() as f64;
    assert!(mean > 40.0 * MB, "{mean}");
}

#[test]
fn compaction_that_stands_still_leads_to_the_stop_and_no_further() {
    let mut m = Model::new(300.0 * MB, 1.0);
    m.run(200.0 * MB, 3000);
    assert_eq!(m.debt.l0_files, 36);
    let counts = m.controller.counts(0);
    assert!(counts.l0.delays >= 15 && counts.l0.stops >= 1, "{counts:?}");
    assert_eq!(counts.l0, counts.l0_with_compaction);
    assert_eq!(m.controller.worst(), (Stopped, Some((L0FileCountLimit, 0))));
}

#[test]
fn changes_are_told_once_with_their_cause() {
    let mut c = Controller::new(16 << 20);
    let mut at = |files| {
        let debt = Debt {
            l0_files: files,
            ..Debt::default()
        };
        c.observe(1, 7, limits(), debt, 0)
    };
    assert_eq!(at(19), None);
    let delayed = Change {
        prev: Normal,
        cur: Delayed,
        cause: Some(L0FileCountLimit),
    };
    assert_eq!(at(20), Some(delayed));
    assert_eq!(at(21), None);
    let over = Change {
        prev: Delayed,
        cur: Normal,
        cause: None,
    };
    assert_eq!(at(0), Some(over));
}

#[test]
fn time_that_stands_still_harms_nothing() {
    let mut c = Controller::new(16 << 20);
    for files in [0, 4, 30, 2, 25] {
        let debt = Debt {
            l0_files: files,
            immutable: 1,
            fill: 0.5,
            ..Debt::default()
        };
        c.observe(0, 0, limits(), debt, 1000);
        c.tick(0, 1000);
        c.tick(0, 2000);
        assert!(c.admit(0, 1 << 20) <= WAIT_MAX_NANOS as u64);
        assert!(
            c.rate()
                .is_none_or(|r| r.is_finite() && r >= RATE_MIN / 2.0)
        );
        assert!(c.allowance() > 0);
    }
}

/// FIFO leaves its tables in level 0. Their number grew past the compaction trigger, and writers were limited to
/// 16 KiB per second, as if compactions could bear no more.
#[test]
fn files_that_stay_in_level_0_hold_nobody_back_before_the_slowdown() {
    let fifo = Limits::of(&CfOptions {
        compaction_style: options::CompactionStyle::Fifo,
        ..CfOptions::default()
    });
    let at = |l0_files| Debt {
        l0_files,
        ..Debt::default()
    };
    assert!(pressure(&at(19), &fifo) < 0.0);
    assert!(pressure(&at(19), &limits()) > 1.0);
    assert!(pressure(&at(20), &fifo) >= 2.0, "RocksDB's slowdown");
    assert_eq!(judge(&at(20), &fifo), (Delayed, Some(L0FileCountLimit)));
}
