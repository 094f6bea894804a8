//! The benchmarks: what each is called, and the loop that each thread runs.

use base::rng::Rng;
use base::{Error, Result};

use crate::engine::{Cursor, Engine};
use crate::flags::Flags;
use crate::keys::{Values, write_key};
use crate::stats::{Op, Stats};

/// Benchmarks that RocksDB's db_bench has.
const ROCKSDB_BENCHMARKS: &str = include_str!("rocksdb_benchmarks.txt");

/// The names of all benchmarks, with a line of help each.
pub(crate) const BENCHMARKS: &[(&str, &str)] = &[
    ("fillseq", "put num keys in their order into a new database"),
    ("fillrandom", "put num random keys into a new database"),
    (
        "fillsync",
        "put random keys durably, num/1000 of them different, into a new database",
    ),
    (
        "fillbatch",
        "put num keys in their order, in batches of 1000, into a new database",
    ),
    (
        "fill100K",
        "put values of 100,000 bytes, num/1000 random keys, into a new database",
    ),
    ("overwrite", "put num random keys"),
    (
        "requests",
        "batches of three puts and a delete over num_column_families, into a new database",
    ),
    ("readseq", "read keys and values forwards"),
    ("readreverse", "read keys and values backwards"),
    ("readrandom", "get random keys"),
    ("readmissing", "get random keys that are not there"),
    (
        "seekrandom",
        "seek random keys, and read seek_nexts keys from each",
    ),
    ("deleteseq", "delete keys in their order"),
    ("deleterandom", "delete random keys"),
    ("compact", "compact the whole database"),
    ("flush", "write the memtables to files"),
    (
        "waitforcompaction",
        "wait until no flush or compaction runs or is due",
    ),
    ("stats", "show the property rocksdb.stats"),
    ("levelstats", "show the files of each level"),
];

/// Whether keys come in their order or at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Sequential,
    Random,
}

/// A loop that threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loop {
    Write(Order),
    Delete(Order),
    Scan {
        reverse: bool,
    },
    Get,
    Seek,
    Compact,
    /// Batches as a service writes them: see [`crate::requests`].
    Requests,
}

/// What a benchmark does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Task {
    /// Threads run a loop, and a result line is printed.
    Run(Plan),
    Flush,
    WaitForCompaction,
    /// Print a property.
    Property(&'static str),
}

/// A loop and its parameters: the flags', changed as the benchmark's name implies.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) action: Loop,
    /// Whether the database is made anew first.
    pub(crate) fresh: bool,
    /// Different keys.
    pub(crate) num: u64,
    /// Operations of each thread.
    pub(crate) operations: u64,
    pub(crate) key_size: usize,
    pub(crate) value_size: usize,
    pub(crate) batch_size: u64,
    pub(crate) sync: bool,
    /// Seconds after which threads stop; 0: only when the operations are done.
    pub(crate) seconds: u64,
}

impl Plan {
    /// A loop with the flags' parameters; `count` is `--reads`, `--writes` or `--deletes`.
    fn new(flags: &Flags, action: Loop, count: i64) -> Self {
        let num = flags.num as u64;
        let ordered = matches!(
            action,
            Loop::Write(Order::Sequential) | Loop::Delete(Order::Sequential) | Loop::Scan { .. }
        );
        Self {
            action,
            fresh: false,
            num,
            operations: u64::try_from(count).unwrap_or(num),
            key_size: flags.key_size as usize,
            value_size: flags.value_size as usize,
            batch_size: flags.batch_size as u64,
            sync: flags.sync,
            seconds: if ordered { 0 } else { flags.duration as u64 },
        }
    }

    fn fresh(mut self) -> Self {
        self.fresh = true;
        self
    }

    /// Random puts of a thousandth of the keys.
    fn thousandth(flags: &Flags) -> Self {
        let mut plan = Self::new(flags, Loop::Write(Order::Random), flags.writes).fresh();
        plan.num /= 1000;
        if flags.writes == 0 {
            plan.operations = plan.num;
        }
        plan
    }

    fn named(name: &str, flags: &Flags) -> Option<Self> {
        // RocksDB: no writes asked for means as many as there are keys.
        let writes = if flags.writes == 0 { -1 } else { flags.writes };
        let write = |order| Self::new(flags, Loop::Write(order), writes);
        let delete = |order| Self::new(flags, Loop::Delete(order), flags.deletes);
        let read = |action| Self::new(flags, action, flags.reads);
        Some(match name {
            "fillseq" => write(Order::Sequential).fresh(),
            "fillbatch" => Self {
                batch_size: 1000,
                ..write(Order::Sequential).fresh()
            },
            "fillrandom" => write(Order::Random).fresh(),
            "overwrite" => write(Order::Random),
            "fillsync" => Self {
                sync: true,
                ..Self::thousandth(flags)
            },
            "fill100K" => Self {
                value_size: 100_000,
                ..Self::thousandth(flags)
            },
            "readseq" => read(Loop::Scan { reverse: false }),
            "readreverse" => read(Loop::Scan { reverse: true }),
            "readrandom" => read(Loop::Get),
            "readmissing" => Self {
                key_size: flags.key_size as usize + 1,
                ..read(Loop::Get)
            },
            "seekrandom" => read(Loop::Seek),
            "deleteseq" => delete(Order::Sequential),
            "deleterandom" => delete(Order::Random),
            "requests" => Self::new(flags, Loop::Requests, writes).fresh(),
            "compact" => Self::new(flags, Loop::Compact, 1),
            _ => return None,
        })
    }
}

impl Task {
    /// The benchmark of this name. Errors: a name that RocksDB has and we do not yet, and one
    /// that nobody knows.
    pub(crate) fn named(name: &str, flags: &Flags) -> Result<Self> {
        match name {
            "flush" => Ok(Self::Flush),
            "waitforcompaction" => Ok(Self::WaitForCompaction),
            "stats" => Ok(Self::Property("rocksdb.stats")),
            "levelstats" => Ok(Self::Property("rocksdb.levelstats")),
            _ => {
                let plan = Plan::named(name, flags).ok_or_else(|| refuse(name))?;
                if flags.num_column_families > 1 && plan.action != Loop::Requests {
                    return Err(Error::not_supported(format!(
                        "benchmark '{name}' with num_column_families > 1"
                    )));
                }
                Ok(Self::Run(plan))
            }
        }
    }
}

fn refuse(name: &str) -> Error {
    let base = name.split('[').next().unwrap_or(name);
    let known = ROCKSDB_BENCHMARKS.split_whitespace().any(|b| b == base);
    if base != name && known {
        Error::not_supported(format!(
            "benchmark arguments '{name}' are not supported yet"
        ))
    } else if known {
        Error::not_supported(format!("benchmark '{name}' is not supported yet"))
    } else {
        Error::invalid_argument(format!("unknown benchmark '{name}'"))
    }
}

/// When a thread is done: after its operations, or, with a limit of seconds, only after these.
pub(crate) struct Limit {
    operations: u64,
    done: u64,
    nanos: u64,
}

impl Limit {
    /// The clock is asked once in so many operations.
    const CHECK_EVERY: u64 = 1000;

    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            operations: plan.operations,
            done: 0,
            nanos: plan.seconds * 1_000_000_000,
        }
    }

    /// True if `n` more operations shall be done.
    #[inline]
    pub(crate) fn take(&mut self, n: u64, stats: &Stats) -> bool {
        let before = self.done;
        self.done += n;
        if self.nanos == 0 {
            return self.done <= self.operations;
        }
        before / Self::CHECK_EVERY == self.done / Self::CHECK_EVERY || stats.elapsed() < self.nanos
    }
}

/// What a thread works with.
pub(crate) struct Worker<'a, E: Engine> {
    pub(crate) engine: &'a E,
    pub(crate) flags: &'a Flags,
    pub(crate) plan: &'a Plan,
    pub(crate) rng: Rng,
    pub(crate) stats: Stats,
}

impl<E: Engine> Worker<'_, E> {
    /// Runs the plan; `start` returns when all threads are ready.
    pub(crate) fn run(mut self, start: impl FnOnce()) -> Result<Stats> {
        let plan = self.plan;
        let mut values = matches!(plan.action, Loop::Write(_) | Loop::Requests)
            .then(|| Values::new(plan.value_size, self.flags.compression_ratio));
        start();
        self.stats.start();
        match (plan.action, &mut values) {
            (Loop::Write(order), Some(values)) => self.write(order, values)?,
            (Loop::Requests, Some(values)) => self.requests(values)?,
            (Loop::Write(_) | Loop::Requests, None) => {}
            (Loop::Delete(order), _) => self.delete(order)?,
            (Loop::Scan { reverse }, _) => self.scan(reverse)?,
            (Loop::Get, _) => self.get()?,
            (Loop::Seek, _) => self.seek()?,
            (Loop::Compact, _) => self.engine.compact()?,
        }
        self.stats.stop();
        Ok(self.stats)
    }

    #[inline]
    fn pick(&mut self, order: Order, next: u64) -> u64 {
        match order {
            Order::Sequential => next,
            Order::Random => self.rng.next_u64() % self.plan.num.max(1),
        }
    }

    fn write(&mut self, order: Order, values: &mut Values) -> Result<()> {
        let plan = self.plan;
        if plan.num != self.flags.num as u64 {
            self.stats.add_message(&format!("({} ops)", plan.num));
        }
        let options = self.engine.write_options(plan.sync, self.flags.disable_wal);
        let mut batch = self.engine.batch();
        let mut key = vec![0; plan.key_size];
        let mut limit = Limit::new(plan);
        let mut next = 0;
        let every = self.flags.flush_wal_every.max(0).unsigned_abs();
        while limit.take(plan.batch_size, &self.stats) {
            if plan.batch_size == 1 {
                write_key(self.pick(order, next), &mut key);
                self.engine.put(&options, &key, values.next())?;
            } else {
                for i in 0..plan.batch_size {
                    write_key(self.pick(order, next + i), &mut key);
                    self.engine.batch_put(&mut batch, &key, values.next())?;
                }
                self.engine.write(&options, &mut batch)?;
            }
            let before = next;
            next += plan.batch_size;
            if every > 0 && before / every != next / every {
                self.engine.sync_wal()?;
            }
            self.stats.finished(plan.batch_size, Op::Write);
        }
        self.stats
            .add_bytes(next * (plan.key_size + plan.value_size) as u64);
        Ok(())
    }

    fn delete(&mut self, order: Order) -> Result<()> {
        let plan = self.plan;
        let options = self.engine.write_options(plan.sync, self.flags.disable_wal);
        let mut batch = self.engine.batch();
        let mut key = vec![0; plan.key_size];
        let mut limit = Limit::new(plan);
        let mut next = 0;
        while limit.take(plan.batch_size, &self.stats) {
            if plan.batch_size == 1 {
                write_key(self.pick(order, next), &mut key);
                self.engine.delete(&options, &key)?;
            } else {
                for i in 0..plan.batch_size {
                    write_key(self.pick(order, next + i), &mut key);
                    self.engine.batch_delete(&mut batch, &key)?;
                }
                self.engine.write(&options, &mut batch)?;
            }
            next += plan.batch_size;
            self.stats.finished(plan.batch_size, Op::Delete);
        }
        Ok(())
    }

    fn scan(&mut self, reverse: bool) -> Result<()> {
        let mut cursor = self.engine.cursor()?;
        let (mut read, mut bytes) = (0, 0);
        if reverse {
            cursor.seek_to_last();
        } else {
            cursor.seek_to_first();
        }
        while read < self.plan.operations && cursor.valid() {
            bytes += cursor.key().len() + cursor.value().len();
            self.stats.finished(1, Op::Read);
            read += 1;
            if reverse {
                cursor.prev();
            } else {
                cursor.next();
            }
        }
        cursor.status()?;
        self.stats.add_bytes(bytes as u64);
        Ok(())
    }

    fn get(&mut self) -> Result<()> {
        let mut key = vec![0; self.plan.key_size];
        let mut scratch = Vec::with_capacity(self.plan.value_size.max(1024));
        let mut limit = Limit::new(self.plan);
        let (mut read, mut found, mut bytes) = (0u64, 0u64, 0);
        while limit.take(1, &self.stats) {
            write_key(self.pick(Order::Random, 0), &mut key);
            read += 1;
            if let Some(len) = self.engine.get(&key, &mut scratch)? {
                found += 1;
                bytes += key.len() + len;
            }
            self.stats.finished(1, Op::Read);
        }
        self.stats.add_bytes(bytes as u64);
        self.stats
            .add_message(&format!("({found} of {read} found)\n"));
        Ok(())
    }

    fn seek(&mut self) -> Result<()> {
        let mut key = vec![0; self.plan.key_size];
        let mut limit = Limit::new(self.plan);
        let (mut read, mut found, mut bytes) = (0u64, 0u64, 0);
        while limit.take(1, &self.stats) {
            write_key(self.pick(Order::Random, 0), &mut key);
            let mut cursor = self.engine.cursor()?;
            cursor.seek(&key);
            read += 1;
            if cursor.valid() && cursor.key() == key {
                found += 1;
            }
            for _ in 0..self.flags.seek_nexts {
                if !cursor.valid() {
                    break;
                }
                bytes += cursor.key().len() + cursor.value().len();
                if self.flags.reverse_iterator {
                    cursor.prev();
                } else {
                    cursor.next();
                }
            }
            cursor.status()?;
            self.stats.finished(1, Op::Seek);
        }
        self.stats.add_bytes(bytes as u64);
        self.stats
            .add_message(&format!("({found} of {read} found)\n"));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_imply_parameters() {
        let flags = Flags {
            num: 5000,
            reads: 7,
            ..Flags::default()
        };
        let plan = |name| match Task::named(name, &flags).unwrap() {
            Task::Run(plan) => plan,
            other => panic!("{other:?}"),
        };
        let sync = plan("fillsync");
        assert_eq!((sync.num, sync.operations, sync.sync), (5, 5000, true));
        assert!(sync.fresh && !plan("overwrite").fresh);
        assert_eq!(plan("fillbatch").batch_size, 1000);
        assert_eq!(plan("readmissing").key_size, 17);
        assert_eq!(plan("readseq").operations, 7);
        for (name, _) in BENCHMARKS {
            Task::named(name, &flags).unwrap();
            let rocksdbs = ROCKSDB_BENCHMARKS.split_whitespace().any(|b| b == *name);
            assert!(rocksdbs != (*name == "requests"), "{name}");
        }
    }

    #[test]
    fn unknown_benchmarks_are_told_from_missing_ones() {
        let refused = |name| {
            Task::named(name, &Flags::default())
                .unwrap_err()
                .to_string()
        };
        assert!(refused("nope").ends_with("unknown benchmark 'nope'"));
        assert!(refused("mixgraph").ends_with("benchmark 'mixgraph' is not supported yet"));
        assert!(refused("fillseq[X3]").contains("'fillseq[X3]' are not supported yet"));
    }
}
