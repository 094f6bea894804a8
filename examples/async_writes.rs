//! Writes that do not wait for the device, and are told of when they are durable; a listener and statistics beside them.
//!
//! ```text
//! cargo run --example async_writes
//! ```

#![expect(clippy::print_stdout, reason = "an example prints what it does")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ironstone::listener::FlushJobInfo;
use ironstone::{
    Db, EventListener, HistogramKind, Options, Result, Statistics, Ticker, WriteBatch,
};

/// Says which tables flushes made.
struct Flushes(AtomicU64);

impl EventListener for Flushes {
    fn on_flush_completed(&self, info: &FlushJobInfo) {
        self.0.fetch_add(1, Ordering::Relaxed);
        println!("table {} has {} bytes", info.file_number, info.file_size);
    }
}

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("ironstone-async-writes-{}", std::process::id()));
    let flushes = Arc::new(Flushes(AtomicU64::new(0)));
    let statistics = Arc::new(Statistics::new());
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.env.statistics = Some(Arc::clone(&statistics));
    options.env.listeners.add(Arc::<Flushes>::clone(&flushes));
    let db = Db::open(&dir, &options)?;

    let confirmed = Arc::new(AtomicU64::new(0));
    let mut last = None;
    for i in 0..10_000u64 {
        let mut batch = WriteBatch::new();
        batch.put(i.to_be_bytes(), [b'v'; 100])?;
        let write = db.write_async(batch)?;
        // Many writes share one write of the device. The callback runs on a thread of the database's.
        let told = Arc::clone(&confirmed);
        write.durable.on_ready(move |result| {
            if result.is_ok() {
                told.fetch_add(1, Ordering::Relaxed);
            }
        });
        last = Some(write);
    }
    // A future as well, for any runtime: `last.durable.await`.
    if let Some(last) = last {
        last.durable.wait()?;
        println!("durable through {} of {}", db.durable_seq(), last.seq);
    }
    db.flush()?;
    db.close()?;
    // Whoever waits may be told before those with callbacks: at the close all have been.
    println!(
        "{} writes were confirmed",
        confirmed.load(Ordering::Relaxed)
    );
    assert_eq!(confirmed.load(Ordering::Relaxed), 10_000);
    assert_eq!(flushes.0.load(Ordering::Relaxed), 1);
    println!(
        "{} keys in {} groups, {} syncs of the log, writes took {:.0} µs (p99)",
        statistics.get(Ticker::NumberKeysWritten),
        statistics.get(Ticker::WriteDoneBySelf),
        statistics.get(Ticker::WalFileSynced),
        statistics
            .histogram(HistogramKind::DbWrite)
            .percentile(99.0),
    );
    std::fs::remove_dir_all(&dir).map_err(|e| ironstone::Error::io("remove", &dir, e))
}
