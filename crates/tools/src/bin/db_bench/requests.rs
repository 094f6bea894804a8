//! The benchmark `requests`: the writes of a service for each request, and their effect on the
//! levels.
//!
//! A request is one batch of three puts and one delete, spread over the column families. While the
//! threads write, [`Watch`] monitors level 0 and write stalls.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::Result;

use crate::engine::Engine;
use crate::keys::{Keys, Values};
use crate::stats::Op;
use crate::work::{Limit, Worker};

/// Puts of a request; a deletion follows.
const PUTS: usize = 3;

impl<E: Engine> Worker<'_, E> {
    /// Writes requests: the records of a request go to the families in turn, with random keys.
    pub(crate) fn requests(&mut self, values: &mut Values) -> Result<()> {
        let plan = self.plan;
        let families = self.flags.num_column_families as usize;
        let options = self.engine.write_options(plan.sync, self.flags.disable_wal);
        let mut batch = self.engine.batch();
        let keys = Keys::new(self.flags, plan.key_size, plan.num);
        let (mut key, mut limit) = (keys.room(), Limit::new(plan, self.flags));
        let mut done = 0;
        while limit.take(1, &self.stats) {
            self.pick_engine();
            for i in 0..=PUTS {
                keys.write(self.rng.next_u64() % plan.num.max(1), &mut key);
                let family = (done + i) % families;
                if i < PUTS {
                    let value = values.next();
                    self.engine.batch_put_in(&mut batch, family, &key, value)?;
                } else {
                    self.engine.batch_delete_in(&mut batch, family, &key)?;
                }
            }
            self.engine.write(&options, &mut batch)?;
            done += 1;
            self.stats.finished(1, Op::Write);
        }
        let bytes = done * (plan.key_size * (PUTS + 1) + plan.value_size * PUTS);
        self.stats.add_bytes(bytes as u64);
        Ok(())
    }
}

/// Checks the database every few milliseconds while other threads write.
pub(crate) struct Watch<'a, E: Engine> {
    engine: &'a E,
    families: usize,
    ended: AtomicBool,
    /// The number of checks, and of those that found writers stopped or delayed.
    looks: AtomicU64,
    stopped: AtomicU64,
    delayed: AtomicU64,
    /// The maximum number of files in level 0 of a family.
    level0_max: AtomicU64,
}

impl<'a, E: Engine> Watch<'a, E> {
    const EVERY: Duration = Duration::from_millis(20);

    pub(crate) fn new(engine: &'a E, families: usize) -> Self {
        Self {
            engine,
            families,
            ended: AtomicBool::new(false),
            looks: AtomicU64::new(0),
            stopped: AtomicU64::new(0),
            delayed: AtomicU64::new(0),
            level0_max: AtomicU64::new(0),
        }
    }

    /// The properties to check.
    pub(crate) fn engine(&self) -> &'a E {
        self.engine
    }

    /// Checks until [`Watch::end`].
    pub(crate) fn run(&self) {
        while !self.ended.load(Ordering::Acquire) {
            for family in 0..self.families {
                let files = self.number(family, "rocksdb.num-files-at-level0");
                self.level0_max.fetch_max(files, Ordering::Relaxed);
            }
            let stopped = self.number(0, "rocksdb.is-write-stopped") > 0;
            let delayed = self.number(0, "rocksdb.actual-delayed-write-rate") > 0;
            self.stopped
                .fetch_add(u64::from(stopped), Ordering::Relaxed);
            self.delayed
                .fetch_add(u64::from(delayed), Ordering::Relaxed);
            self.looks.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Self::EVERY);
        }
    }

    fn number(&self, family: usize, property: &str) -> u64 {
        let text = self.engine.property_of(family, property);
        text.and_then(|t| t.trim().parse().ok()).unwrap_or(0)
    }

    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// The result in words; empty if there was no check.
    pub(crate) fn told(&self) -> String {
        let looks = self.looks.load(Ordering::Relaxed);
        if looks == 0 {
            return String::new();
        }
        let percent = |n: &AtomicU64| n.load(Ordering::Relaxed) as f64 * 100.0 / looks as f64;
        format!(
            "(level 0: {} files at most; stopped {:.1} %, delayed {:.1} % of the time)",
            self.level0_max.load(Ordering::Relaxed),
            percent(&self.stopped),
            percent(&self.delayed)
        )
    }
}
