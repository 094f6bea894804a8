//! Random operations on a database whose values expire, with a clock that the test sets.
//!
//! A value is visible until it is older than the time to live. After that it may be visible until a
//! compaction processes it; after a compaction of everything it is not.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::clock::{Clock, SystemClock};
use base::rng::Rng;
use base::sync::atomic::{AtomicU64, Ordering};
use ironstone::{BottommostLevelCompaction, CompactRangeOptions, Db, DbWithTtl, WriteBatch};

use super::setup::Setup;
use crate::dirs;

/// Time to live of values, in seconds.
const TTL: i32 = 1000;
/// The date at the beginning of a run: seconds since 1970.
const BEGIN: u64 = 1_700_000_000;

/// A clock whose date changes only if the test sets it.
#[derive(Debug)]
struct Hands {
    micros: AtomicU64,
    machine: Arc<dyn Clock>,
}

impl Clock for Hands {
    fn monotonic_nanos(&self) -> u64 {
        self.machine.monotonic_nanos()
    }

    fn wall_micros(&self) -> u64 {
        self.micros.load(Ordering::Relaxed)
    }
}

/// Values, with the times of their writes in seconds.
type Map = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

struct Run {
    rng: Rng,
    clock: Arc<Hands>,
    setup: Setup,
    temp: tempfile::TempDir,
    db: Option<DbWithTtl>,
    map: Map,
}

/// Runs this many operations with a seed.
///
/// # Errors
/// The difference, with the seed and the number of the operation.
pub fn run(seed: u64, operations: u64) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let mut setup = Setup::of(seed, &mut rng);
    let clock = Arc::new(Hands {
        micros: AtomicU64::new(BEGIN * 1_000_000),
        machine: SystemClock::shared(),
    });
    setup.options.env.clock = Arc::<Hands>::clone(&clock) as Arc<dyn Clock>;
    setup.options.cf.merge_operator = None;
    let temp = dirs::scratch().map_err(|e| e.to_string())?;
    let mut run = Run {
        rng,
        clock,
        setup,
        temp,
        db: None,
        map: Map::new(),
    };
    for n in 0..operations {
        let done = run.open_if_closed().and_then(|()| run.step());
        done.map_err(|what| {
            let text = run.setup.text();
            format!("time to live, seed {seed}, operation {n}: {what}\nwith {text}")
        })?;
    }
    Ok(())
}

impl Run {
    fn now(&self) -> u64 {
        self.clock.wall_micros() / 1_000_000
    }

    fn db(&self) -> &DbWithTtl {
        self.db.as_ref().expect("open between operations")
    }

    fn open_if_closed(&mut self) -> Result<(), String> {
        if self.db.is_none() {
            let db = Db::open_with_ttl(self.temp.path().join("db"), &self.setup.options, TTL);
            self.db = Some(db.map_err(|e| format!("open: {e}"))?);
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        let failed = |e| format!("write: {e}");
        let key = format!("key{:04}", self.rng.below(self.setup.keys)).into_bytes();
        match self.rng.below(1000) {
            0..500 => {
                let mut value = vec![0; self.rng.below(self.setup.value_bytes) as usize];
                self.rng.fill(&mut value);
                let mut batch = WriteBatch::new();
                batch.put(&key, &value).map_err(failed)?;
                self.db().write(&batch).map_err(failed)?;
                let now = self.now();
                self.map.insert(key, (value, now));
            }
            500..600 => {
                self.db().delete(&key).map_err(failed)?;
                self.map.remove(&key);
            }
            600..950 => {
                let have = self.db().get(&key).map_err(|e| format!("get: {e}"))?;
                self.check(&key, have.as_deref(), false)?;
            }
            950..970 => {
                let more = self.rng.below(TTL as u64);
                self.clock
                    .micros
                    .fetch_add(more * 1_000_000, Ordering::Relaxed);
            }
            970..980 => {
                let flushed = self.db().base().flush();
                flushed.map_err(|e| format!("flush: {e}"))?;
            }
            980..985 => {
                if let Some(db) = self.db.take() {
                    db.close().map_err(|e| format!("close: {e}"))?;
                }
            }
            985..990 => self.compact()?,
            _ => self.scan(false)?,
        }
        Ok(())
    }

    fn alive(&self, written: u64) -> bool {
        written + TTL as u64 >= self.now()
    }

    /// Checks a key. `gone`: expired values must not be visible.
    fn check(&self, key: &[u8], have: Option<&[u8]>, gone: bool) -> Result<(), String> {
        let fine = match self.map.get(key) {
            None => have.is_none(),
            Some((value, written)) if self.alive(*written) => have == Some(value),
            Some((value, _)) => have.is_none() || (!gone && have == Some(value)),
        };
        if fine {
            return Ok(());
        }
        let age = self.map.get(key).map(|(_, written)| self.now() - written);
        let (key, len) = (key.escape_ascii(), have.map(<[u8]>::len));
        Err(format!("{key}, {age:?} s old: found {len:?} bytes"))
    }

    /// Checks everything by an iterator. A value that is no longer visible must stay invisible.
    fn scan(&mut self, gone: bool) -> Result<(), String> {
        let cf = self.db().base().default_column_family();
        let opened = self.db().cf(&cf).iterator();
        let mut it = opened.map_err(|e| format!("iterator: {e}"))?;
        let mut found = BTreeMap::new();
        it.inner().seek_to_first();
        while it.valid() {
            found.insert(it.key().to_vec(), it.value().to_vec());
            it.inner().next();
        }
        let status = it.inner().status();
        status.map_err(|e| format!("iterator: {e}"))?;
        drop(it);
        for key in self.map.keys().chain(found.keys()) {
            self.check(key, found.get(key).map(Vec::as_slice), gone)?;
        }
        self.map.retain(|key, _| found.contains_key(key));
        Ok(())
    }

    /// Compacts everything.
    fn compact(&mut self) -> Result<(), String> {
        let base = self.db().base();
        let cf = base.default_column_family();
        let options = CompactRangeOptions {
            bottommost_level_compaction: BottommostLevelCompaction::Force,
            ..CompactRangeOptions::default()
        };
        let done = base.cf(&cf).with(&options).compact_range(None, None);
        done.map_err(|e| format!("compact: {e}"))?;
        // With FIFO, manual compactions do nothing.
        let fifo = self.setup.text().contains("StyleFIFO");
        self.scan(!fifo)
    }
}
