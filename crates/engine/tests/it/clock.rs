//! A user's clock that panics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
