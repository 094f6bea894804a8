//! The benchmarks: their names, and the plan that each name stands for.

mod list;
mod refused;

use base::{Error, Result};

use crate::flags::Flags;
use crate::repeat::{self, Repeat};

pub(crate) use list::BENCHMARKS;

/// The order of keys: sequential or random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Sequential,
    Random,
    /// At random, each key once.
    Unique,
}

/// The change of a value that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    Replace,
    Xor,
    Append,
}

/// The work of an additional thread, whose operations are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meanwhile {
    Write,
    Merge,
    Scan,
    /// The writer of `timeseries`, which decides how long it takes.
    TimeSeries,
}

/// The operation of a benchmark without a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bytes {
    Crc32c,
    XxHash,
    XxHash64,
    Xxh3,
    Compress,
    CompressReject,
    Uncompress,
    AcquireLoad,
}

/// A loop that threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loop {
    Write(Order),
    /// Puts in the given order for the last level, and puts of unique keys for each level above it.
    FillLevels(Order),
    FillSeek,
    Delete(Order),
    Scan {
        reverse: bool,
    },
    Get,
    /// All keys, each once.
    GetAll,
    MultiGet,
    /// Operands of random keys.
    Operands,
    /// Sorted lists that are merged into one key.
    Lists,
    Entity,
    MultiEntity,
    /// Random ranges.
    ScanRanges,
    /// Ranges that are equally far apart.
    ScanStrided,
    MemtableStats,
    NewIterator,
    Seek,
    ApproximateSize,
    ReadWrite,
    Update(Update),
    Merge,
    ReadMerge,
    Verify,
    ReplaceKeys,
    MixGraph,
    TimeSeries,
    Bytes(Bytes),
    Compact,
    VerifyChecksum,
    VerifyFileChecksums,
    Backup,
    Restore,
    Ingest,
    /// Batches like those of a service: see [`crate::requests`].
    Requests,
}

/// The action of a benchmark.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Task {
    /// Threads run a loop, and a result line is printed.
    Run(Plan),
    Flush,
    WaitForCompaction,
    CompactAll,
    /// Compact this level, or the first level below level 0 that has data.
    CompactLevel(u8),
    /// Compare with another database.
    VerifyAgainst,
    /// Print properties.
    Properties(&'static [&'static str]),
}

/// A loop and its parameters, from the flags and the name of the benchmark.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) action: Loop,
    pub(crate) meanwhile: Option<Meanwhile>,
    /// Whether the database is created again first.
    pub(crate) fresh: bool,
    /// Number of distinct keys.
    pub(crate) num: u64,
    /// Number of threads whose operations are counted.
    pub(crate) threads: usize,
    /// Operations of each thread.
    pub(crate) operations: u64,
    pub(crate) key_size: usize,
    pub(crate) value_size: usize,
    pub(crate) batch_size: u64,
    pub(crate) sync: bool,
    /// Seconds after which threads stop; 0: they stop when the operations are done.
    pub(crate) seconds: u64,
}

impl Plan {
    /// A loop with parameters from the flags; `count` is `--reads`, `--writes` or `--deletes`.
    fn new(flags: &Flags, action: Loop, count: i64) -> Self {
        let num = flags.num as u64;
        let ordered = matches!(
            action,
            Loop::Write(Order::Sequential | Order::Unique)
                | Loop::FillLevels(_)
                | Loop::FillSeek
                | Loop::Delete(Order::Sequential)
                | Loop::Scan { .. }
                | Loop::GetAll
        );
        Self {
            action,
            meanwhile: None,
            fresh: false,
            num,
            threads: flags.threads as usize,
            operations: u64::try_from(count).unwrap_or(num),
            key_size: flags.key_size as usize,
            value_size: flags.value_size as usize,
            batch_size: flags.batch_size as u64,
            sync: flags.sync,
            seconds: if ordered { 0 } else { flags.duration as u64 },
        }
    }

    /// Operations of all threads on this many databases.
    pub(crate) fn total(&self, databases: usize) -> u64 {
        let each = match self.action {
            Loop::Write(_) | Loop::Scan { .. } => self.operations * databases as u64,
            _ => self.operations,
        };
        each * self.threads as u64
    }

    fn fresh(mut self) -> Self {
        self.fresh = true;
        self
    }

    fn meanwhile(mut self, what: Meanwhile) -> Self {
        self.meanwhile = Some(what);
        self
    }

    /// One operation, regardless of the flags.
    fn once(mut self) -> Self {
        (self.operations, self.seconds) = (1, 0);
        self
    }

    /// No more operations than keys.
    fn unique(mut self) -> Self {
        self.operations = self.operations.min(self.num);
        self
    }

    /// In one thread.
    fn alone(mut self) -> Self {
        self.threads = 1;
        self
    }

    /// Random puts of one key in a thousand.
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
        Some(match name {
            "fillseq" => write(Order::Sequential).fresh(),
            "fillbatch" => Self {
                batch_size: 1000,
                ..write(Order::Sequential).fresh()
            },
            "fillrandom" => write(Order::Random).fresh(),
            "filluniquerandom" | "fillanddeleteuniquerandom" => {
                write(Order::Unique).unique().fresh().alone()
            }
            "fillseqdeterministic" | "filluniquerandomdeterministic" => {
                let order = match name {
                    "fillseqdeterministic" => Order::Sequential,
                    _ => Order::Unique,
                };
                let plan = Self::new(flags, Loop::FillLevels(order), writes);
                plan.unique().fresh().alone()
            }
            "overwrite" => write(Order::Random),
            "fillsync" => Self {
                sync: true,
                ..Self::thousandth(flags)
            },
            "fill100K" => Self {
                value_size: 100_000,
                ..Self::thousandth(flags)
            },
            "fillseekseq" => Self::new(flags, Loop::FillSeek, -1).fresh(),
            "deleteseq" => Self::new(flags, Loop::Delete(Order::Sequential), flags.deletes),
            "deleterandom" => Self::new(flags, Loop::Delete(Order::Random), flags.deletes),
            "requests" => Self::new(flags, Loop::Requests, writes).fresh(),
            "randomreplacekeys" => Self::new(flags, Loop::ReplaceKeys, -1).fresh(),
            // The writer is one of the threads.
            "timeseries" => Self {
                threads: (flags.threads - 1) as usize,
                ..Self::new(flags, Loop::TimeSeries, writes)
                    .fresh()
                    .meanwhile(Meanwhile::TimeSeries)
            },
            _ => return Self::reading(name, flags).or_else(|| Self::mixed(name, flags)),
        })
    }

    fn reading(name: &str, flags: &Flags) -> Option<Self> {
        let read = |action| Self::new(flags, action, flags.reads);
        Some(match name {
            "readseq" => read(Loop::Scan { reverse: false }),
            "readtocache" => Self {
                operations: flags.num as u64,
                ..read(Loop::Scan { reverse: false }).alone()
            },
            "readtorowcache" => Self {
                operations: flags.num as u64,
                ..read(Loop::GetAll)
            },
            "readreverse" => read(Loop::Scan { reverse: true }),
            "readrandom" | "readrandomfast" => read(Loop::Get),
            "readrandomsmall" => {
                let mut plan = read(Loop::Get);
                plan.operations /= 1000;
                plan
            }
            "readmissing" => Self {
                key_size: flags.key_size as usize + 1,
                ..read(Loop::Get)
            },
            "multireadrandom" => read(Loop::MultiGet),
            "readrandomoperands" => read(Loop::Operands),
            "getmergeoperands" => read(Loop::Lists),
            "readrandomentity" => read(Loop::Entity),
            "multireadentity" => read(Loop::MultiEntity),
            "multiscan" => read(Loop::ScanStrided),
            "multiscanrandom" => read(Loop::ScanRanges),
            "approximatememtablestats" => read(Loop::MemtableStats),
            "newiterator" => read(Loop::NewIterator),
            "seekrandom" => read(Loop::Seek),
            "approximatesizerandom" => read(Loop::ApproximateSize),
            "readwhilewriting" => read(Loop::Get).meanwhile(Meanwhile::Write),
            "readwhilemerging" => read(Loop::Get).meanwhile(Meanwhile::Merge),
            "readwhilescanning" => read(Loop::Get).meanwhile(Meanwhile::Scan),
            "multireadwhilewriting" => read(Loop::MultiGet).meanwhile(Meanwhile::Write),
            "newiteratorwhilewriting" => read(Loop::NewIterator).meanwhile(Meanwhile::Write),
            "seekrandomwhilewriting" => read(Loop::Seek).meanwhile(Meanwhile::Write),
            "seekrandomwhilemerging" => read(Loop::Seek).meanwhile(Meanwhile::Merge),
            _ => return None,
        })
    }

    fn mixed(name: &str, flags: &Flags) -> Option<Self> {
        let both = |action| Self::new(flags, action, flags.reads.max(flags.writes));
        let bytes = |what| Self::new(flags, Loop::Bytes(what), -1);
        let once = |action| Self::new(flags, action, 1).once();
        Some(match name {
            "readrandomwriterandom" => both(Loop::ReadWrite),
            "readrandommergerandom" => both(Loop::ReadMerge),
            "randomwithverify" => both(Loop::Verify),
            "updaterandom" => both(Loop::Update(Update::Replace)),
            "xorupdaterandom" => both(Loop::Update(Update::Xor)),
            "appendrandom" => both(Loop::Update(Update::Append)),
            "mergerandom" => both(Loop::Merge),
            "mixgraph" => Self::new(flags, Loop::MixGraph, flags.reads),
            "ingestexternalfile" => Self {
                operations: flags.ingest_external_file_num_batches.max(1) as u64,
                ..once(Loop::Ingest).alone()
            },
            "crc32c" => bytes(Bytes::Crc32c),
            "xxhash" => bytes(Bytes::XxHash),
            "xxhash64" => bytes(Bytes::XxHash64),
            "xxh3" => bytes(Bytes::Xxh3),
            "compress" => bytes(Bytes::Compress),
            "compressreject" => bytes(Bytes::CompressReject),
            "uncompress" => bytes(Bytes::Uncompress),
            "acquireload" => bytes(Bytes::AcquireLoad),
            "compact" => once(Loop::Compact),
            "verifychecksum" => once(Loop::VerifyChecksum),
            "verifyfilechecksums" => once(Loop::VerifyFileChecksums),
            "backup" => once(Loop::Backup).alone(),
            "restore" => once(Loop::Restore).alone(),
            _ => return None,
        })
    }

    /// Checks the flags that the plan needs. The error names the missing flag.
    fn check(&self, name: &str, flags: &Flags) -> Result<()> {
        let needs = |flag: &str| {
            Err(Error::invalid_argument(format!(
                "benchmark '{name}' needs --{flag}"
            )))
        };
        if flags.num_column_families > 1
            && matches!(
                self.action,
                Loop::FillLevels(_) | Loop::Operands | Loop::Entity
            )
        {
            return Err(Error::not_supported(format!(
                "benchmark '{name}' with num_column_families > 1"
            )));
        }
        if self.action == Loop::GetAll && !(flags.use_existing_keys && flags.row_cache_size > 0) {
            return needs("use_existing_keys and --row_cache_size");
        }
        if flags.num_multi_db > 1
            && (self.meanwhile == Some(Meanwhile::Scan)
                || matches!(self.action, Loop::FillLevels(_)))
        {
            return Err(Error::not_supported(format!(
                "benchmark '{name}' with several databases, num_multi_db"
            )));
        }
        let merges = matches!(self.action, Loop::Merge | Loop::ReadMerge | Loop::Lists)
            || self.meanwhile == Some(Meanwhile::Merge);
        if merges && flags.merge_operator.is_empty() {
            return needs("merge_operator");
        }
        let copies = matches!(self.action, Loop::Backup | Loop::Restore);
        if copies && flags.backup_dir.is_empty() {
            return needs("backup_dir");
        }
        if self.action == Loop::Restore && flags.restore_dir.is_empty() {
            return needs("restore_dir");
        }
        let is_multi_scan = matches!(self.action, Loop::ScanRanges | Loop::ScanStrided);
        if is_multi_scan && flags.use_multiscan && flags.is_librocksdb() {
            return needs("use_multiscan=false: RocksDB's C API has no MultiScan");
        }
        if self.action == Loop::MemtableStats && self.num < self.batch_size {
            return needs("num, no smaller than batch_size");
        }
        self.check_fill(flags, needs)?;
        if self.action == Loop::TimeSeries {
            if flags.key_size < 16 {
                return needs("key_size=16, or more: a number and a time stand in a key");
            }
            if !["none", "delete"].contains(&flags.expire_style.as_str()) {
                return Err(Error::not_supported(format!(
                    "expire_style {}: must be none or delete",
                    flags.expire_style
                )));
            }
        }
        Ok(())
    }

    /// Checks the flags that choose the keys of puts.
    fn check_fill(&self, flags: &Flags, needs: impl Fn(&str) -> Result<()>) -> Result<()> {
        let unique = self.action == Loop::Write(Order::Unique);
        let writes = matches!(self.action, Loop::Write(_) | Loop::FillLevels(_));
        let set = flags
            .disposable_entries_batch_size
            .saturating_add(flags.persistent_entries_batch_size);
        if writes && set > 0 {
            let sizes = flags
                .disposable_entries_value_size
                .min(flags.persistent_entries_value_size);
            if !unique || flags.overwrite_probability > 0.0 || flags.writes_per_range_tombstone > 0
            {
                return needs(
                    "disposable_entries_batch_size=0 and persistent_entries_batch_size=0: sets of \
                     entries are for filluniquerandom and fillanddeleteuniquerandom, without \
                     overwrites and range deletions",
                );
            }
            if flags.disposable_entries_batch_size == 0 || set > self.num || sizes < 0 {
                return needs(
                    "disposable_entries_batch_size above 0, with persistent_entries_batch_size no \
                     more than num, and values of no negative size",
                );
            }
        }
        let chosen = set > 0 || flags.overwrite_probability > 0.0;
        if writes && chosen && (flags.num_column_families > 1 || flags.num_multi_db > 1) {
            return needs("num_column_families=1 and num_multi_db=0, with overwrites or sets");
        }
        if writes && flags.overwrite_probability > 0.0 && flags.overwrite_window_size == 0 {
            return needs("overwrite_window_size above 0, with overwrite_probability");
        }
        let Loop::FillLevels(_) = self.action else {
            return Ok(());
        };
        if !flags.disable_auto_compactions {
            return needs("disable_auto_compactions: it compacts by itself");
        }
        if !(0..=1).contains(&flags.compaction_style) {
            return needs("compaction_style=0 or 1: other styles do not fill levels");
        }
        if flags.num_levels < 2 {
            return needs("num_levels above 1");
        }
        Ok(())
    }
}

impl Task {
    /// The benchmark that `text` names, and its number of runs. Errors: a refused benchmark of
    /// RocksDB, or an unknown name.
    pub(crate) fn parse<'a>(text: &'a str, flags: &Flags) -> Result<(&'a str, Repeat, Self)> {
        let (name, repeat) = repeat::parse(text).ok_or_else(|| {
            let hint = "[X3] runs a benchmark three times, [W1-X3] once more before";
            Error::invalid_argument(format!("unknown benchmark arguments '{text}'")).hint(hint)
        })?;
        Ok((name, repeat, Self::named(name, flags)?))
    }

    fn named(name: &str, flags: &Flags) -> Result<Self> {
        const MEMTABLES: &[&str] = &[
            "rocksdb.num-immutable-mem-table",
            "rocksdb.cur-size-active-mem-table",
            "rocksdb.cur-size-all-mem-tables",
            "rocksdb.size-all-mem-tables",
            "rocksdb.num-entries-active-mem-table",
            "rocksdb.num-entries-imm-mem-tables",
        ];
        Ok(match name {
            "flush" => Self::Flush,
            "waitforcompaction" => Self::WaitForCompaction,
            "compactall" => Self::CompactAll,
            "compact0" => Self::CompactLevel(0),
            "compact1" => Self::CompactLevel(1),
            "verify" if flags.truth_db.is_empty() => {
                let error = "benchmark 'verify' needs --truth_db";
                return Err(Error::invalid_argument(error));
            }
            "verify" => Self::VerifyAgainst,
            "block_cache_entry_stats" => Self::Properties(&["rocksdb.block-cache-entry-stats"]),
            "stats" => Self::Properties(&["rocksdb.stats"]),
            "levelstats" => Self::Properties(&["rocksdb.levelstats"]),
            "sstables" => Self::Properties(&["rocksdb.sstables"]),
            "memstats" => Self::Properties(MEMTABLES),
            _ => {
                let plan = Plan::named(name, flags).ok_or_else(|| refuse(name))?;
                if let Some(error) = refused::by_engine(name, flags) {
                    return Err(error);
                }
                plan.check(name, flags)?;
                Self::Run(plan)
            }
        })
    }
}

fn refuse(name: &str) -> Error {
    if let Some(error) = refused::by_all(name) {
        return error;
    }
    let error = Error::invalid_argument(format!("unknown benchmark '{name}'"));
    let ours = BENCHMARKS.iter().map(|(name, _)| *name);
    match base::options::nearest(name, ours) {
        Some(nearest) => error.hint(format!("did you mean {nearest}?")),
        None => error,
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
        assert_eq!(plan("fill100K").value_size, 100_000);
        assert_eq!(plan("fillbatch").batch_size, 1000);
        assert_eq!(plan("readrandom").operations, 7);
        assert_eq!(plan("readmissing").key_size, 17);
        assert_eq!(plan("overwrite").operations, 5000);
        assert!(plan("fillseq").fresh && !plan("overwrite").fresh);
        assert_eq!(
            plan("seekrandomwhilewriting").meanwhile,
            Some(Meanwhile::Write)
        );
        assert_eq!(plan("compact").operations, 1);
        // As many as there are keys, where none are asked for.
        let none = Flags {
            num: 5000,
            writes: 0,
            ..Flags::default()
        };
        let operations = |name| Plan::named(name, &none).unwrap().operations;
        assert_eq!((operations("fillsync"), operations("fillseq")), (5, 5000));
    }

    #[test]
    fn every_name_in_the_help_works_and_is_rocksdbs() {
        let flags = Flags {
            merge_operator: "put".to_owned(),
            backup_dir: "b".to_owned(),
            restore_dir: "r".to_owned(),
            truth_db: "t".to_owned(),
            use_existing_keys: true,
            row_cache_size: 1,
            disable_auto_compactions: true,
            ..Flags::default()
        };
        for (name, _) in BENCHMARKS {
            Task::parse(name, &flags).unwrap();
            assert!(refused::is_rocksdbs(name) || *name == "requests", "{name}");
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let error = |text| {
            Task::parse(text, &Flags::default())
                .err()
                .unwrap()
                .to_string()
        };
        assert!(error("readsequ").contains("unknown benchmark 'readsequ'"));
        assert!(error("readsequ").contains("did you mean readseq?"));
        let told = error("randomtransaction");
        assert!(
            told.contains("'randomtransaction': transactions are not"),
            "{told}"
        );
        assert!(told.contains("use randomwithverify"), "{told}");
        assert!(error("fillseqdeterministic").contains("needs --disable_auto_compactions"));
        assert!(error("readseq[Q1]").contains("unknown benchmark arguments 'readseq[Q1]'"));
        assert!(error("mergerandom").contains("needs --merge_operator"));
        assert!(error("backup").contains("needs --backup_dir"));
    }
}
