//! What a rate limiter limits, by its mode and by the priority of the read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::clock::SystemClock;
use ironstone::{
    CompressionType, Db, IoPriority, Options, RateLimiter, RateLimiterMode, RateLimiterOptions,
    ReadOptions,
};
use sim::dirs;

const BYTES: u64 = 2 << 20;

/// A database with [`BYTES`] of values in tables, without block cache. The I/O of filling it is charged to
/// a limiter of its own.
fn filled(dir: &std::path::Path, mode: RateLimiterMode, rate: u64) -> (Db, Arc<RateLimiter>) {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.cf.compression = CompressionType::None;
    options.cf.disable_auto_compactions = true;
    options.cf.table.no_block_cache = true;
    let db = Db::open(dir, &options).unwrap();
    for i in 0..BYTES / 1024 {
        db.put(format!("{i:06}"), [i as u8; 1024]).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
    let limiter = RateLimiter::new(
        RateLimiterOptions {
            mode,
            ..RateLimiterOptions::new(rate)
        },
        SystemClock::shared(),
    );
    let limiter = Arc::new(limiter);
    options.env.rate_limiter = Some(Arc::clone(&limiter));
    (Db::open(dir, &options).unwrap(), limiter)
}

fn scan(db: &Db, rate_limiter_priority: Option<IoPriority>) {
    let options = ReadOptions {
        rate_limiter_priority,
        ..ReadOptions::default()
    };
    let mut it = db.with(&options).iterator().unwrap();
    it.seek_to_first();
    while it.valid() {
        it.next();
    }
    it.status().unwrap();
}

#[test]
fn the_mode_says_what_is_limited() {
    let modes = [
        (RateLimiterMode::ReadsOnly, true, false),
        (RateLimiterMode::WritesOnly, false, true),
        (RateLimiterMode::AllIo, true, true),
    ];
    for (mode, reads, writes) in modes {
        let temp = dirs::scratch().unwrap();
        let (db, limiter) = filled(temp.path(), mode, 1 << 40);
        scan(&db, None);
        assert_eq!(limiter.total_bytes_through(IoPriority::User), 0);
        scan(&db, Some(IoPriority::User));
        let user = limiter.total_bytes_through(IoPriority::User);
        assert_eq!(user >= BYTES, reads, "{mode:?}: {user}");
        let family = db.default_column_family();
        let before = limiter.total_bytes_through(IoPriority::Mid);
        let options = ReadOptions {
            rate_limiter_priority: Some(IoPriority::Mid),
            ..ReadOptions::default()
        };
        assert!(
            db.cf(&family)
                .with(&options)
                .get("000007")
                .unwrap()
                .is_some()
        );
        let get = limiter.total_bytes_through(IoPriority::Mid) - before;
        assert_eq!(get > 0, reads, "{mode:?}: {get}");
        // These keys span all the others, so that the compaction is no trivial move.
        db.put("000000", "first").unwrap();
        db.put("more", "last").unwrap();
        db.flush().unwrap();
        let high = limiter.total_bytes_through(IoPriority::High);
        assert_eq!(high > 0, writes, "{mode:?}: {high}");
        db.cf(&family).compact_range(None, None).unwrap();
        let low = limiter.total_bytes_through(IoPriority::Low);
        let want = BYTES * (u64::from(reads) + u64::from(writes));
        assert!(low >= want && low < want + BYTES / 2, "{mode:?}: {low}");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "measures time")]
fn reads_take_the_time_that_they_are_given() {
    let temp = dirs::scratch().unwrap();
    let (db, _) = filled(temp.path(), RateLimiterMode::ReadsOnly, BYTES);
    let begun = Instant::now();
    scan(&db, Some(IoPriority::User));
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(700), "{took:?}");
}
