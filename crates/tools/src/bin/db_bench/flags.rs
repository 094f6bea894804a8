//! Command-line flags: each is declared once, in the table at the end of this file. The parser,
//! the defaults, `--help` and the engines' options all come from that table.
//!
//! The syntax is RocksDB's: `--name=value`, `--name value` and `-name=value`; for a truth value
//! also `--name` and `--noname`. `--undefok=a,b` allows unknown flags of these names.

/// Flags that RocksDB's db_bench has.
const ROCKSDB_FLAGS: &str = include_str!("rocksdb_flags.txt");

/// A type of flag values.
pub(crate) trait Value: Sized {
    /// The type's name in messages.
    const KIND: &'static str;
    fn parse(text: &str) -> Option<Self>;
    fn print(&self) -> String;
}

macro_rules! integer_value {
    ($($t:ty = $kind:literal),*) => {$(
        impl Value for $t {
            const KIND: &'static str = $kind;
            fn parse(text: &str) -> Option<Self> {
                match text.strip_prefix("0x") {
                    Some(hex) => Self::from_str_radix(hex, 16).ok(),
                    None => text.parse().ok(),
                }
            }
            fn print(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
integer_value!(i32 = "int32", i64 = "int64", u64 = "uint64");

impl Value for f64 {
    const KIND: &'static str = "double";
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|v: &f64| v.is_finite())
    }
    fn print(&self) -> String {
        self.to_string()
    }
}

impl Value for bool {
    const KIND: &'static str = "bool";
    fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "1" | "t" | "true" | "y" | "yes" => Some(true),
            "0" | "f" | "false" | "n" | "no" => Some(false),
            _ => None,
        }
    }
    fn print(&self) -> String {
        self.to_string()
    }
}

impl Value for String {
    const KIND: &'static str = "string";
    fn parse(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
    fn print(&self) -> String {
        self.clone()
    }
}

/// Where an engine's option lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Options of the database.
    Db,
    /// Options of a column family.
    Cf,
    /// Options of the block-based table format.
    Table,
}

/// One flag.
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    group: &'static str,
    pub(crate) default: fn() -> String,
    doc: &'static [&'static str],
    /// The engine's option that the flag sets.
    pub(crate) option: Option<(Place, &'static str)>,
    set: fn(&mut Flags, &str) -> bool,
    pub(crate) get: fn(&Flags) -> String,
}

macro_rules! flags {
    ($(
        $group:literal {
            $(
                $(#[doc = $doc:literal])*
                $name:ident : $ty:ty = $default:expr $(, option $place:ident $option:literal)? ;
            )*
        }
    )*) => {
        /// The values of all flags.
        pub(crate) struct Flags {
            $($( $(#[doc = $doc])* pub(crate) $name: $ty, )*)*
        }

        impl Default for Flags {
            fn default() -> Self {
                Self { $($( $name: $default, )*)* }
            }
        }

        /// The table.
        pub(crate) static FLAGS: &[Flag] = &[ $($( Flag {
            name: stringify!($name),
            kind: <$ty as Value>::KIND,
            group: $group,
            default: || { let value: $ty = $default; value.print() },
            doc: &[ $($doc),* ],
            option: flags!(@option $($place $option)?),
            set: |flags, text| match <$ty as Value>::parse(text) {
                Some(value) => { flags.$name = value; true }
                None => false,
            },
            get: |flags| flags.$name.print(),
        }, )*)* ];
    };
    (@option) => { None };
    (@option $place:ident $option:literal) => { Some((Place::$place, $option)) };
}

/// What the command line asks for.
pub(crate) enum Command {
    /// Run benchmarks.
    Run(Box<Flags>),
    /// Print the help.
    Help,
    /// Print the version.
    Version,
}

/// Reads the command line, without the program's name. The errors are lines to print.
pub(crate) fn parse(arguments: &[String]) -> Result<Command, Vec<String>> {
    let mut flags = Flags::default();
    let mut errors = Vec::new();
    let mut unknown: Vec<String> = Vec::new();
    let mut allowed: Vec<String> = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let Some(body) = argument.strip_prefix("--").or(argument.strip_prefix('-')) else {
            errors.push(format!("ERROR: unexpected argument '{argument}'"));
            continue;
        };
        if body.is_empty() {
            errors.extend(rest.map(|a| format!("ERROR: unexpected argument '{a}'")));
            break;
        }
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (body, None),
        };
        let name = name.replace('-', "_");
        match name.as_str() {
            "help" | "h" => return Ok(Command::Help),
            "version" => return Ok(Command::Version),
            "undefok" => {
                let list = value.or_else(|| rest.next().map(String::as_str));
                allowed.extend(list.unwrap_or_default().split(',').map(str::to_owned));
                continue;
            }
            _ => {}
        }
        match find(&name) {
            Some((flag, negated)) => {
                if let Err(e) = set(&mut flags, flag, negated, value, &mut rest) {
                    errors.push(e);
                }
            }
            None => unknown.push(name),
        }
    }
    for name in unknown {
        let base = name.strip_prefix("no").unwrap_or(&name);
        if !allowed.iter().any(|a| *a == name || a == base) {
            errors.push(refuse(&name));
        }
    }
    errors.extend(check(&flags));
    if errors.is_empty() {
        Ok(Command::Run(Box::new(flags)))
    } else {
        Err(errors)
    }
}

/// The flag of this name; also whether it is `no` before a truth value's name.
fn find(name: &str) -> Option<(&'static Flag, bool)> {
    let by_name = |name: &str| FLAGS.iter().find(|f| f.name == name);
    if let Some(flag) = by_name(name) {
        return Some((flag, false));
    }
    let flag = by_name(name.strip_prefix("no")?)?;
    (flag.kind == bool::KIND).then_some((flag, true))
}

fn set<'a>(
    flags: &mut Flags,
    flag: &'static Flag,
    negated: bool,
    value: Option<&'a str>,
    rest: &mut impl Iterator<Item = &'a String>,
) -> Result<(), String> {
    let value = match value {
        Some(value) => value,
        None if flag.kind == bool::KIND => {
            if negated {
                "false"
            } else {
                "true"
            }
        }
        None => rest.next().map(String::as_str).ok_or_else(|| {
            let (name, doc) = (flag.name, flag.doc.join("").trim().to_owned());
            format!("ERROR: flag '--{name}' is missing its argument; flag description: {doc}")
        })?,
    };
    if !(flag.set)(flags, value) {
        let (kind, name) = (flag.kind, flag.name);
        return Err(format!(
            "ERROR: illegal value '{value}' specified for {kind} flag '{name}'"
        ));
    }
    Ok(())
}

fn refuse(name: &str) -> String {
    let known = |name: &str| ROCKSDB_FLAGS.split_whitespace().any(|f| f == name);
    if known(name) || name.strip_prefix("no").is_some_and(known) {
        format!("ERROR: command line flag '{name}' is not supported yet")
    } else {
        format!("ERROR: unknown command line flag '{name}'")
    }
}

/// Values that no benchmark can run with.
fn check(flags: &Flags) -> Vec<String> {
    let at_least = |name: &str, value: i64, min: i64| {
        (value < min)
            .then(|| format!("ERROR: flag '{name}' is {value}, but must be at least {min}"))
    };
    let mut errors: Vec<String> = [
        at_least("num", flags.num, 1),
        at_least("threads", i64::from(flags.threads), 1),
        at_least("key_size", i64::from(flags.key_size), 1),
        at_least("value_size", i64::from(flags.value_size), 0),
        at_least("batch_size", flags.batch_size, 1),
        at_least("cache_size", flags.cache_size, 0),
        at_least("duration", i64::from(flags.duration), 0),
        at_least("stats_interval", flags.stats_interval, 0),
        at_least("stats_interval_seconds", flags.stats_interval_seconds, 0),
        at_least("report_interval_seconds", flags.report_interval_seconds, 0),
        at_least(
            "num_column_families",
            i64::from(flags.num_column_families),
            1,
        ),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !(0.0..=1.0).contains(&flags.compression_ratio) {
        let ratio = flags.compression_ratio;
        errors.push(format!(
            "ERROR: flag 'compression_ratio' is {ratio}, but must be from 0 to 1"
        ));
    }
    errors
}

/// The text of `--help`.
pub(crate) fn help() -> String {
    let mut lines = vec![INTRODUCTION.to_owned()];
    let benchmarks = crate::ops::BENCHMARKS;
    lines.extend(
        benchmarks
            .iter()
            .map(|(name, doc)| format!("  {name:<18} {doc}")),
    );
    let mut group = "";
    for flag in FLAGS {
        if flag.group != group {
            group = flag.group;
            lines.push(format!("\n{group}:"));
        }
        let mut default = (flag.default)();
        if flag.kind == "string" {
            default = format!("{default:?}");
        }
        let (name, kind) = (flag.name, flag.kind);
        lines.push(format!("  --{name} ({kind}, default {default})"));
        lines.extend(flag.doc.iter().map(|line| format!("      {}", line.trim())));
    }
    lines
        .push("\n--undefok=a,b ignores flags of these names that db_bench does not have.\n".into());
    lines.join("\n")
}

const INTRODUCTION: &str = "\
db_bench: benchmarks with RocksDB's names, flags and result lines

usage: db_bench [--flag=value]...

examples:
  db_bench --benchmarks=fillrandom,compact,readrandom --num=1000000 --compression_type=none
  db_bench --benchmarks=fillsync --num=10000000 --db=/mnt/disk/bench
  db_bench --benchmarks=readrandom --use_existing_db --db=/mnt/disk/bench --duration=60
  db_bench --engine=librocksdb:target/peers/librocksdb-11.8.1.so --benchmarks=fillseq

benchmarks:";

flags! {
    "What to run" {
        /// Benchmarks in their order, separated by commas.
        benchmarks: String = "fillseq,fillrandom,overwrite,readrandom,readseq".to_owned();
        /// The engine: ironstone, librocksdb (the one that cargo xtask peers fetched, else the
        /// system's), or librocksdb:PATH.
        engine: String = "ironstone".to_owned();
        /// The database's directory. Empty: dbbench in the directory for tests.
        db: String = String::new();
        /// Use the database that is there; without it, its files are deleted first.
        use_existing_db: bool = false;
        /// Number of keys in the database.
        num: i64 = 1_000_000;
        /// Number of reads of each thread; -1: as many as num.
        reads: i64 = -1;
        /// Number of writes of each thread; -1: as many as num.
        writes: i64 = -1;
        /// Number of deletions of each thread; -1: as many as num.
        deletes: i64 = -1;
        /// Seconds that random reads and writes run, whatever their number; 0: no limit.
        duration: i32 = 0;
        /// Number of threads.
        threads: i32 = 1;
        /// Seed of the random numbers; 0: from the clock. A seed gives every engine the same keys.
        seed: i64 = 0;
    }
    "Keys, values and operations" {
        /// Bytes of a key.
        key_size: i32 = 16;
        /// Bytes of a value.
        value_size: i32 = 100;
        /// Values are made so that they compress to this fraction of their size.
        compression_ratio: f64 = 0.5;
        /// Keys in a batch.
        batch_size: i64 = 1;
        /// Make each write durable before the next.
        sync: bool = false;
        /// Number of column families; more than 1 for the benchmark requests only.
        num_column_families: i32 = 1;
        /// Do not write the log.
        disable_wal: bool = false;
        /// Make the log durable (FlushWAL with sync) after each so many puts of a thread; 0: never.
        flush_wal_every: i64 = 0;
        /// Compare the checksums of blocks read.
        verify_checksum: bool = true;
        /// How many keys seekrandom reads after each seek.
        seek_nexts: i32 = 0;
        /// seekrandom reads backwards.
        reverse_iterator: bool = false;
    }
    "What is shown" {
        /// Show the distribution of the operations' times.
        histogram: bool = false;
        /// Write the rate of each so many seconds to report_file; 0: do not.
        report_interval_seconds: i64 = 0;
        /// The file of report_interval_seconds.
        report_file: String = "report.csv".to_owned();
        /// Show the memory, the bytes written and the CPU time of the process at the end.
        process_stats: bool = false;
        /// Show how long opening the database took.
        report_open_timing: bool = false;
        /// Show the engine's counters at the end.
        statistics: bool = false;
        /// Show a line each so many operations; 0: show progress.
        stats_interval: i64 = 0;
        /// Show a line each so many seconds.
        stats_interval_seconds: i64 = 0;
    }
    "The database's options" {
        /// Bytes of a memtable.
        write_buffer_size: i64 = 64 << 20, option Cf "write_buffer_size";
        /// Number of memtables, the active one included.
        max_write_buffer_number: i32 = 2, option Cf "max_write_buffer_number";
        /// How memtables hold their entries: skip_list or vector.
        memtablerep: String = "skip_list".to_owned(), option Cf "memtable_factory";
        /// Let several threads insert into one memtable at once.
        allow_concurrent_memtable_write: bool = true, option Db "allow_concurrent_memtable_write";
        /// Bytes of the block cache.
        cache_size: i64 = 32 << 20;
        /// Bytes of a data block before compression.
        block_size: i32 = 4096, option Table "block_size";
        /// Keys between two restart points of a block.
        block_restart_interval: i32 = 16, option Table "block_restart_interval";
        /// Version of the table format.
        format_version: i32 = 5, option Table "format_version";
        /// Keep indexes and filters in the block cache.
        cache_index_and_filter_blocks: bool = false, option Table "cache_index_and_filter_blocks";
        /// Bits a key in a Bloom filter; 0 or less: no filter.
        bloom_bits: i32 = -1;
        /// Compression: none, snappy, zlib, bzip2, lz4, lz4hc or zstd.
        compression_type: String = "snappy".to_owned();
        /// Number of open files; -1: all.
        open_files: i32 = -1, option Db "max_open_files";
        /// Number of background jobs.
        max_background_jobs: i32 = 2, option Db "max_background_jobs";
        /// Files of level 0 that start a compaction.
        level0_file_num_compaction_trigger: i32 = 4,
            option Cf "level0_file_num_compaction_trigger";
        /// Files of level 0 that slow writes down.
        level0_slowdown_writes_trigger: i32 = 20, option Cf "level0_slowdown_writes_trigger";
        /// Files of level 0 that stop writes.
        level0_stop_writes_trigger: i32 = 36, option Cf "level0_stop_writes_trigger";
        /// Bytes of a file in level 1.
        target_file_size_base: i64 = 64 << 20, option Cf "target_file_size_base";
        /// Bytes of level 1.
        max_bytes_for_level_base: u64 = 256 << 20, option Cf "max_bytes_for_level_base";
        /// How much larger each level is than the one above.
        max_bytes_for_level_multiplier: f64 = 10.0, option Cf "max_bytes_for_level_multiplier";
        /// Size levels from the last one.
        level_compaction_dynamic_level_bytes: bool = false,
            option Cf "level_compaction_dynamic_level_bytes";
        /// Number of levels.
        num_levels: i32 = 7, option Cf "num_levels";
        /// Compact only when asked to.
        disable_auto_compactions: bool = false, option Cf "disable_auto_compactions";
        /// Parts that one compaction may be done in at the same time.
        subcompactions: i32 = 1, option Db "max_subcompactions";
        /// The directory of the log; empty: the database's.
        wal_dir: String = String::new(), option Db "wal_dir";
        /// Write the log's buffer only when asked to.
        manual_wal_flush: bool = false, option Db "manual_wal_flush";
        /// Begin the next write group while one is inserted into the memtables.
        enable_pipelined_write: bool = false, option Db "enable_pipelined_write";
        /// Let writes that have nothing for a memtable pass the others.
        two_write_queues: bool = false, option Db "two_write_queues";
        /// Bytes of a table file after which writing it to the device begins; 0 leaves it to the system.
        bytes_per_sync: u64 = 0, option Db "bytes_per_sync";
        /// The same of a log file.
        wal_bytes_per_sync: u64 = 0, option Db "wal_bytes_per_sync";
        /// Old log files that are kept to be overwritten.
        recycle_log_file_num: i64 = 0, option Db "recycle_log_file_num";
        /// How logs are written: auto, direct or buffered. Ironstone only, as the next two.
        wal_io_mode: String = "auto".to_owned(), option Db "wal_io_mode";
        /// What becomes of the last sector of a log: rewrite, atomic or pad.
        wal_tail_policy: String = "rewrite".to_owned(), option Db "wal_tail_policy";
        /// Log writes that may be on their way at once; more than 1 needs wal_tail_policy=pad.
        wal_pipeline_depth: i32 = 1, option Db "wal_pipeline_depth";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(arguments: &[&str]) -> Result<Flags, Vec<String>> {
        let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
        match parse(&arguments)? {
            Command::Run(flags) => Ok(*flags),
            Command::Help | Command::Version => panic!("not a run"),
        }
    }

    #[test]
    fn every_form_of_a_flag_is_read() {
        let flags = run(&[
            "--num=5",
            "-value_size=7",
            "--key_size",
            "8",
            "--histogram",
            "--noverify_checksum",
            "--sync=yes",
            "--use-existing-db=0",
            "--max_bytes_for_level_base=0x10",
            "--compression_ratio=0.25",
            "--db=/a=b",
        ])
        .unwrap();
        assert_eq!((flags.num, flags.value_size, flags.key_size), (5, 7, 8));
        assert!(flags.histogram && flags.sync);
        assert!(!flags.verify_checksum && !flags.use_existing_db);
        assert_eq!(flags.max_bytes_for_level_base, 16);
        assert_eq!(flags.compression_ratio.to_bits(), 0.25f64.to_bits());
        assert_eq!(flags.db, "/a=b");
        assert_eq!((flags.reads, flags.cache_size), (-1, 32 << 20));
    }

    #[test]
    fn errors_are_rocksdbs() {
        let error = |arguments: &[&str]| run(arguments).err().unwrap();
        assert_eq!(
            error(&["--nope=1", "--num=abc"]),
            [
                "ERROR: illegal value 'abc' specified for int64 flag 'num'",
                "ERROR: unknown command line flag 'nope'",
            ]
        );
        assert_eq!(
            error(&["--max_background_jobs=99999999999"]),
            ["ERROR: illegal value '99999999999' specified for int32 flag 'max_background_jobs'"]
        );
        assert_eq!(
            error(&["--row_cache_size=5"]),
            ["ERROR: command line flag 'row_cache_size' is not supported yet"]
        );
        assert_eq!(
            error(&["--norate_limit_bg_reads"]),
            ["ERROR: command line flag 'norate_limit_bg_reads' is not supported yet"]
        );
        assert_eq!(
            error(&["--num"]),
            [
                "ERROR: flag '--num' is missing its argument; flag description: \
              Number of keys in the database."
            ]
        );
        assert_eq!(error(&["stray"]), ["ERROR: unexpected argument 'stray'"]);
        assert_eq!(
            error(&["--threads=0"]),
            ["ERROR: flag 'threads' is 0, but must be at least 1"]
        );
        assert_eq!(
            error(&["--num_column_families=0"]),
            ["ERROR: flag 'num_column_families' is 0, but must be at least 1"]
        );
    }

    #[test]
    fn undefok_allows_what_it_names() {
        run(&[
            "--undefok=nope,row_cache_size",
            "--nope=3",
            "--row_cache_size=1",
        ])
        .unwrap();
        run(&["--nonope", "--undefok=nope"]).unwrap();
        assert!(run(&["--undefok=nope", "--nop=3"]).is_err());
    }

    #[test]
    fn what_is_declared_here_is_rocksdbs_but_for_our_own() {
        let own = [
            "engine",
            "flush_wal_every",
            "process_stats",
            "recycle_log_file_num",
            "two_write_queues",
            "wal_io_mode",
            "wal_tail_policy",
            "wal_pipeline_depth",
        ];
        for flag in FLAGS {
            let known = ROCKSDB_FLAGS.split_whitespace().any(|f| f == flag.name);
            assert!(known != own.contains(&flag.name), "{}", flag.name);
        }
        let help = help();
        assert!(
            help.contains("  --num (int64, default 1000000)\n"),
            "{help}"
        );
    }
}
