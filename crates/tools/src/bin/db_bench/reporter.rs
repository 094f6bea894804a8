//! `--report_interval_seconds`: operations of each interval, as lines `seconds,operations a second`
//! in a file, while a benchmark runs. The file has RocksDB's format.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::clock::Clock;
use base::{Error, Result};

use crate::flags::Flags;

/// Counts the operations of all threads and writes the count of each interval.
pub(crate) struct Reporter {
    done: AtomicU64,
    ended: AtomicBool,
    file: File,
    interval: Duration,
}

impl Reporter {
    /// The reporter, if the flags ask for one. Errors: the file cannot be created.
    pub(crate) fn wanted(flags: &Flags) -> Result<Option<Self>> {
        let seconds = flags.report_interval_seconds.unsigned_abs();
        if seconds == 0 {
            return Ok(None);
        }
        let path = Path::new(&flags.report_file);
        let failed = |e| Error::io("write", path, e);
        #[expect(
            clippy::disallowed_methods,
            reason = "the report is a file of the benchmark, not of a database"
        )]
        let mut file = File::create(path).map_err(failed)?;
        file.write_all(b"secs_elapsed,interval_qps\n")
            .map_err(failed)?;
        Ok(Some(Self {
            done: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            file,
            interval: Duration::from_secs(seconds),
        }))
    }

    #[inline]
    pub(crate) fn add(&self, operations: u64) {
        self.done.fetch_add(operations, Ordering::Relaxed);
    }

    /// Writes a line each interval until [`Reporter::end`].
    pub(crate) fn run(&self, clock: &dyn Clock) {
        const LOOK_EVERY: Duration = Duration::from_millis(5);
        let start = clock.monotonic_nanos();
        let interval = self.interval.as_nanos() as u64;
        let (mut next, mut before) = (start + interval, 0);
        while !self.ended.load(Ordering::Acquire) {
            let now = clock.monotonic_nanos();
            if now < next {
                std::thread::sleep(LOOK_EVERY.min(Duration::from_nanos(next - now)));
                continue;
            }
            let done = self.done.load(Ordering::Relaxed);
            let elapsed = (now - start + 500_000_000) / 1_000_000_000;
            let rate = (done - before) / self.interval.as_secs();
            if let Err(e) = writeln!(&self.file, "{elapsed},{rate}") {
                eprintln!("--report_file: {e}; no further lines");
                return;
            }
            before = done;
            next += interval;
        }
    }

    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }
}
