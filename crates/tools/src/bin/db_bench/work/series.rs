//! Time series: one thread writes entries whose keys consist of a number and a time; the other threads
//! read entries, or delete old ones.

use std::sync::atomic::Ordering;

use base::Result;

use super::Worker;
use crate::engine::{Bounds, Cursor, Engine};
use crate::keys::{Values, random_number};
use crate::stats::Op;

/// Bytes of the number; the time follows it.
const NUMBER_LEN: usize = 8;

impl<E: Engine> Worker<'_, E> {
    /// Writes an entry for each step of time.
    pub(super) fn write_series(&mut self, values: &mut Values) -> Result<()> {
        let (keys, mut limit) = (self.keys(), self.limit());
        let options = self
            .engine
            .write_options(self.plan.sync, self.flags.disable_wal);
        let (mut key, mut bytes) = (keys.room(), 0);
        while limit.take(1, &self.stats) {
            self.pick_engine();
            let range = self.flags.key_id_range.unsigned_abs();
            keys.write(
                random_number(&mut self.rng, u64::from(range), 0.0),
                &mut key,
            );
            let now = self.together.step.fetch_add(1, Ordering::Relaxed);
            key[NUMBER_LEN..NUMBER_LEN + 8].copy_from_slice(&now.to_be_bytes());
            let value = values.next();
            bytes += key.len() + value.len();
            let written = key.len() + value.len();
            self.engine.put(&options, &key, value)?;
            self.stats.finished(1, Op::Write);
            self.pace_writes(written);
        }
        self.stats.add_bytes(bytes as u64);
        self.stats.stop();
        crate::say(&self.stats.result("timeseries write"));
        Ok(())
    }

    /// Reads, or deletes, the entries of random numbers until the writer is done.
    pub(super) fn read_series(&mut self) -> Result<()> {
        let (keys, flags) = (self.keys(), self.flags);
        let deleters = usize::try_from(flags.num_deletion_threads).unwrap_or(0);
        let deletes =
            flags.expire_style == "delete" && self.number.is_some_and(|number| number < deleters);
        let options = self.engine.write_options(self.plan.sync, flags.disable_wal);
        self.pick_engine();
        let tailing = flags.use_tailing_iterator;
        let mut cursor = self.engine.cursor(Bounds::default())?;
        let (mut key, mut read, mut found, mut bytes) = (keys.room(), 0u64, 0u64, 0);
        while !self.together.beside_done() {
            if !tailing {
                cursor = self.engine.cursor(Bounds::default())?;
            }
            let range = u64::from(flags.key_id_range.unsigned_abs());
            keys.write(random_number(&mut self.rng, range, 0.0), &mut key);
            let number = &key[..NUMBER_LEN];
            cursor.seek(number);
            read += 1;
            found += u64::from(cursor.valid() && cursor.key().starts_with(number));
            while cursor.valid() && cursor.key().starts_with(number) {
                bytes += cursor.key().len();
                if deletes {
                    if !self.is_old(cursor.key()) {
                        break;
                    }
                    self.engine.delete(&options, cursor.key())?;
                    self.stats.finished(1, Op::Delete);
                } else {
                    bytes += cursor.value().len();
                    self.stats.finished(1, Op::Read);
                }
                cursor.next();
            }
            cursor.status()?;
            self.pace_reads(1);
        }
        self.stats.add_bytes(bytes as u64);
        self.stats
            .add_message(&format!("({found} of {read} found)"));
        Ok(())
    }

    /// Whether an entry is older than `time_range` steps.
    fn is_old(&self, key: &[u8]) -> bool {
        let time = key.get(NUMBER_LEN..NUMBER_LEN + 8);
        let time = time.and_then(|t| t.try_into().ok()).map(u64::from_be_bytes);
        let now = self.together.step.load(Ordering::Relaxed);
        time.is_some_and(|time| time.saturating_add(self.flags.time_range) < now)
    }
}
