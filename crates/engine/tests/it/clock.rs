//! A user's clock that panics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use ironstone::env::{Clock, SystemClock};
use ironstone::listener::{FlushJobInfo, TableFileCreationInfo};
use ironstone::{Db, EventListener, Options};

/// Panics when it is asked for the wall time on a thread that has made a table.
#[derive(Debug)]
struct PanicsBehindTables {
    real: Arc<dyn Clock>,
    panicked: Arc<AtomicU64>,
}

std::thread_local! {
    static MADE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl Clock for PanicsBehindTables {
    fn wall_micros(&self) -> u64 {
        if MADE.get() {
            self.panicked.fetch_add(1, Ordering::SeqCst);
            panic!("a clock that panics is part of the test");
        }
        self.real.wall_micros()
    }

    fn monotonic_nanos(&self) -> u64 {
        self.real.monotonic_nanos()
    }
}

struct Told(Arc<AtomicU64>);

impl EventListener for Told {
    fn on_table_file_created(&self, _: &TableFileCreationInfo) {
        MADE.set(true);
    }

    fn on_flush_completed(&self, _: &FlushJobInfo) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Regression: the level summary in LOG asked the clock behind a flush that was done, and made it one that had
/// failed.
#[test]
fn a_flush_that_is_done_is_done_whatever_the_clock_says_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    let (panicked, told) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.env.clock = Arc::new(PanicsBehindTables {
        real: SystemClock::shared(),
        panicked: Arc::clone(&panicked),
    });
    options.env.listeners.add(Arc::new(Told(Arc::clone(&told))));
    let db = Db::open(dir.path(), &options).unwrap();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    db.put("k", "w").unwrap();
    // The call may be back before the thread that flushes has told all; here it has ended.
    db.close().unwrap();
    let asked = panicked.load(Ordering::SeqCst);
    assert!(asked > 0, "nothing asked for the time");
    assert_eq!(told.load(Ordering::SeqCst), 1, "the flush was not told");
}

/// Panics on the threads of a database, whatever it is asked.
#[derive(Debug)]
struct PanicsInTheBackground {
    real: Arc<dyn Clock>,
    panicked: AtomicU64,
}

impl PanicsInTheBackground {
    fn check(&self) {
        let thread = std::thread::current();
        if thread.name().is_some_and(|n| n.starts_with("ironstone:")) {
            self.panicked.fetch_add(1, Ordering::SeqCst);
            // A panic that is not reported: there are many.
            std::panic::resume_unwind(Box::new("a clock that panics is part of the test"));
        }
    }
}

impl Clock for PanicsInTheBackground {
    fn wall_micros(&self) -> u64 {
        self.check();
        self.real.wall_micros()
    }

    fn monotonic_nanos(&self) -> u64 {
        self.check();
        self.real.monotonic_nanos()
    }

    fn sleep(&self, time: Duration) {
        self.check();
        self.real.sleep(time);
    }

    fn patience(&self, time: Duration) -> Duration {
        self.check();
        time
    }
}

/// Regression: a clock that panicked while a thread waited for work, or behind a job, ended the thread, and callers of
/// `flush` and stalled writers waited for ever.
#[test]
fn background_threads_outlive_a_clock_that_panics() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(PanicsInTheBackground {
        real: SystemClock::shared(),
        panicked: AtomicU64::new(0),
    });
    let (path, in_options) = (dir.path().to_owned(), Arc::clone(&clock));
    let (done, waited) = std::sync::mpsc::channel();
    let writer = std::thread::Builder::new().spawn(move || {
        let mut options = Options::default();
        options.db.create_if_missing = true;
        options.env.clock = in_options;
        options.cf.write_buffer_size = 64 << 10;
        options.cf.level0_file_num_compaction_trigger = 2;
        options.cf.level0_slowdown_writes_trigger = 3;
        options.cf.level0_stop_writes_trigger = 4;
        let db = Db::open(&path, &options).unwrap();
        for round in 0..3_u8 {
            for i in 0..2_000 {
                db.put(format!("{i:06}"), [round; 100]).unwrap();
            }
            db.flush().unwrap();
        }
        assert_eq!(db.get("001999").unwrap(), Some(vec![2; 100]));
        db.close().unwrap();
        done.send(()).unwrap();
    });
    let writer = writer.unwrap();
    let ended = waited.recv_timeout(Duration::from_secs(120));
    assert_ne!(
        ended,
        Err(RecvTimeoutError::Timeout),
        "somebody waits for ever"
    );
    writer.join().unwrap();
    assert!(clock.panicked.load(Ordering::SeqCst) > 0);
}
