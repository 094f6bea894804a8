//! Values of every option beside RocksDB 11.8.1: which values both accept, which both refuse, and what each
//! makes of them. The OPTIONS files that both write after an open tell that.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ironstone::options::ParsedOptions;
use ironstone::options::codec::{self, Unsupported};
use ironstone::options::rocksdb::{self, CF_SECTION, DB_SECTION, KEYS, Key, TABLE_SECTION};
use ironstone::{Db, Env, ErrorKind, Options, Result};
use sim::dirs;
use sim::oracle::{self, Library, RocksDb, RocksOptions};

/// Options of the database, of the default family and of its tables, by section and name.
type Values = BTreeMap<(String, String), String>;

/// The values in the newest OPTIONS file of a database.
fn values(dir: &Path) -> Values {
    let (mut out, mut section) = (Values::new(), String::new());
    for line in newest(dir).lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            let other = header.contains('"') && !header.contains("\"default\"");
            let title = header.split([' ', ']']).next().unwrap_or_default();
            section = if other { "" } else { title }.to_owned();
        } else if let Some((name, value)) = line.split_once('=')
            && !line.starts_with('#')
            && !section.is_empty()
        {
            out.insert((section.clone(), name.to_owned()), value.to_owned());
        }
    }
    out
}

/// The text of the newest OPTIONS file of a database.
fn newest(dir: &Path) -> String {
    let names = std::fs::read_dir(dir).unwrap();
    let paths = names.map(|e| e.unwrap().path());
    let options = paths.filter(|p| {
        p.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("OPTIONS-")
    });
    std::fs::read_to_string(options.max().unwrap()).unwrap()
}

fn ours(text: &str) -> Result<Values> {
    let dir = dirs::scratch()?;
    let options = Options::default().with_text("create_if_missing=true;wal_pool_files=0")?;
    let options = options.with_text(text)?;
    Db::open(dir.path(), &options)?.close()?;
    Ok(values(dir.path()))
}

fn theirs(lib: &Arc<Library>, text: &str) -> Result<Values> {
    let dir = dirs::scratch()?;
    let mut options = lib.options();
    options.create_if_missing(true);
    options.set_all(text)?;
    let db = RocksDb::open(&options, dir.path())?;
    db.put(b"k", b"v")?;
    db.close();
    Ok(values(dir.path()))
}

fn newest_rocksdb() -> Option<Arc<Library>> {
    let new = |lib: &Arc<Library>| lib.version().unwrap_or_default().starts_with("11.");
    oracle::rocksdb().filter(new)
}

/// Whether two values are the same number, switch or text. An unsigned number below 0 wraps around to the
/// largest.
fn same(a: &str, b: &str) -> bool {
    let plain = |v: &str| match v {
        "true" => "1".to_owned(),
        "false" => "0".to_owned(),
        other => other.to_owned(),
    };
    let (a, b) = (plain(a), plain(b));
    if let (Ok(a), Ok(b)) = (a.parse::<i128>(), b.parse::<i128>()) {
        return a as u64 == b as u64;
    }
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => a.to_bits() == b.to_bits(),
        _ => a == b,
    }
}

/// What opening with options changes in the OPTIONS file, of the keys that RocksDB writes (`known`).
fn changed(base: &Values, now: &Values, known: &Values) -> Values {
    let mut out = now.clone();
    out.retain(|key, value| {
        let as_before = base.get(key).is_some_and(|b| same(b, value));
        key.0 != "Version" && known.contains_key(key) && !as_before
    });
    out
}

/// Options whose values are brought into a range here, where RocksDB writes the value as given. The effect
/// in RocksDB is the same, or of no use to anybody.
const BROUGHT_INTO_RANGE: &[&str] = &[
    "arena_block_size",
    "block_restart_interval",
    "block_size",
    "block_size_deviation",
    "index_block_restart_interval",
    "initial_auto_readahead_size",
    "level0_file_num_compaction_trigger",
    "max_auto_readahead_size",
    "max_background_compactions",
    "max_background_flushes",
    "max_background_jobs",
    "max_bytes_for_level_base",
    "max_bytes_for_level_multiplier",
    "max_file_opening_threads",
    "max_manifest_file_size",
    "max_subcompactions",
    "max_write_batch_group_size_bytes",
    "metadata_block_size",
    "num_file_reads_for_auto_readahead",
    "num_levels",
    "partition_filters",
    // The largest number means never.
    "periodic_compaction_seconds",
    "recycle_log_file_num",
    "target_file_size_base",
    "target_file_size_multiplier",
    "ttl",
    // Kept as given from 4 KiB on; RocksDB's minimum is 64 KiB.
    "write_buffer_size",
];

/// Names of options that are derived from those above.
const FOLLOWING: &[&str] = &["max_compaction_bytes", "arena_block_size"];

/// Values with which RocksDB dies, hangs, or starts threads that it never ends.
fn kills_rocksdb(name: &str, value: i128) -> bool {
    match name {
        "max_background_jobs"
        | "max_background_compactions"
        | "max_background_flushes"
        | "max_file_opening_threads" => value > 64,
        "table_cache_numshardbits" => value > 16,
        "log_readahead_size" | "manifest_preallocation_size" => !(0..=1 << 20).contains(&value),
        "num_levels" => !(0..=64).contains(&value),
        "sample_for_compression" => value > 1 << 31,
        "write_buffer_size" => (1 << 31..=1 << 33).contains(&value),
        _ => false,
    }
}

/// The values to try for an option with this default.
fn tried(key: &Key) -> Vec<String> {
    const NUMBERS: [i128; 8] = [-1, 0, 1, 3, 1025, 1 << 31, 1 << 32, u64::MAX as i128];
    const OUTER: [i128; 4] = [-1, 0, 1 << 31, u64::MAX as i128];
    if matches!(key.default, "true" | "false") {
        return ["true", "false", "2"].map(str::to_owned).to_vec();
    }
    if key.default.parse::<i128>().is_ok() {
        let numbers = if rocksdb::is_implemented(key) {
            &NUMBERS[..]
        } else {
            &OUTER
        };
        let numbers = numbers.iter().filter(|n| !kills_rocksdb(key.name, **n));
        return numbers.map(i128::to_string).collect();
    }
    if key.default.parse::<f64>().is_ok() {
        let numbers = ["-1", "0", "0.25", "0.3", "1", "1.5", "1000", "1001", "x"];
        return numbers.map(str::to_owned).to_vec();
    }
    Vec::new()
}

/// An option in the text form of options.
fn setting(key: &Key, value: &str) -> String {
    let (name, section) = (key.name, key.section);
    if section == TABLE_SECTION {
        return format!("block_based_table_factory={{{name}={value}}}");
    }
    format!("{name}={value}")
}

/// Compares what both engines make of a text. `named` is the option that is tried.
fn compare(
    lib: &Arc<Library>,
    bases: &(Values, Values),
    named: &str,
    text: &str,
) -> Option<String> {
    match (ours(text), theirs(lib, text)) {
        (Err(_), Err(_)) => None,
        (Ok(_), Err(e)) => Some(format!("{text}: RocksDB refuses it: {e}")),
        // An option that Ironstone does not have is refused by name.
        (Err(e), Ok(_)) if e.kind() == ErrorKind::NotSupported => {
            let is_named = e.to_string().contains(named);
            (!is_named).then(|| format!("{text}: refused without a name: {e}"))
        }
        (Err(e), Ok(_)) => Some(format!("{text}: RocksDB takes it: {e}")),
        (Ok(a), Ok(b)) => {
            let mut ours = changed(&bases.0, &a, &bases.1);
            let mut theirs = changed(&bases.1, &b, &bases.1);
            for values in [&mut ours, &mut theirs] {
                values.retain(|(_, name), _| {
                    let brought = BROUGHT_INTO_RANGE.contains(&named);
                    !(brought && (name == named || FOLLOWING.contains(&name.as_str())))
                });
            }
            let same = ours.len() == theirs.len()
                && ours.iter().all(|(k, v)| {
                    theirs
                        .get(k)
                        .is_some_and(|w| same(v, w) || same_members(v, w))
                });
            (!same).then(|| format!("{text}: {ours:?} and RocksDB {theirs:?}"))
        }
    }
}

/// Options that RocksDB 11.8.1 accepts and brings into a usable form were refused (`arena_block_size=0`,
/// `max_write_buffer_number=1`, `max_background_jobs=0`, …). A database that runs with RocksDB could not be
/// opened with its own settings.
#[test]
fn boundary_values_of_every_option_are_taken_as_rocksdb_takes_them() {
    let Some(lib) = newest_rocksdb() else { return };
    let bases = (ours("").unwrap(), theirs(&lib, "").unwrap());
    // These decide what kind of open it is, not how the database runs.
    let not_tried = [
        "create_if_missing",
        "error_if_exists",
        "create_missing_column_families",
    ];
    let (mut count, mut wrong) = (0, Vec::new());
    for key in KEYS.iter().filter(|k| !not_tried.contains(&k.name)) {
        let has_rule = table::options::WITHOUT_EFFECT
            .iter()
            .any(|(n, _)| *n == key.name);
        let takes_some = rocksdb::is_implemented(key)
            || rocksdb::is_without_effect(key)
            || key.section == TABLE_SECTION && has_rule;
        let read = bases.1.get(&(key.section.to_owned(), key.name.to_owned()));
        if !takes_some || !read.is_some_and(|default| same(default, key.default)) {
            continue; // refused by name; or RocksDB ignores it, or has another default
        }
        for value in tried(key).iter().filter(|v| *v != key.default) {
            count += 1;
            wrong.extend(compare(&lib, &bases, key.name, &setting(key, value)));
        }
    }
    eprintln!("options: {count} values beside RocksDB");
    assert!(
        wrong.is_empty(),
        "{} of {count}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(count > 400, "{count}");
}

/// Rules between options, the option that each is about, and whether RocksDB takes them.
const RULES: &[(&str, &str)] = &[
    (
        "format_version",
        "block_based_table_factory={format_version=1}",
    ),
    (
        "format_version",
        "block_based_table_factory={format_version=8}",
    ),
    (
        "compression_opts",
        "compression=kZSTD;compression_opts={zstd_max_train_bytes=100}",
    ),
    (
        "compression_opts",
        "compression_opts={zstd_max_train_bytes=100;max_dict_bytes=0}",
    ),
    (
        "compression_opts",
        "compression=kZSTD;compression_opts={zstd_max_train_bytes=100;max_dict_bytes=9}",
    ),
    (
        "ttl",
        "compaction_style=kCompactionStyleFIFO;ttl=100;max_open_files=100",
    ),
    (
        "ttl",
        "compaction_style=kCompactionStyleFIFO;ttl=0;max_open_files=100",
    ),
    ("ttl", "compaction_style=kCompactionStyleFIFO;ttl=100"),
    ("ttl", "compaction_style=kCompactionStyleUniversal"),
    ("ttl", "compaction_style=kCompactionStyleUniversal;ttl=100"),
    (
        "ttl",
        "compaction_style=kCompactionStyleUniversal;ttl=100;periodic_compaction_seconds=50",
    ),
    (
        "ttl",
        "compaction_style=kCompactionStyleUniversal;ttl=100;periodic_compaction_seconds=500",
    ),
    (
        "ttl",
        "compaction_style=kCompactionStyleUniversal;ttl=0;periodic_compaction_seconds=500",
    ),
    (
        "num_levels",
        "compaction_style=kCompactionStyleUniversal;num_levels=0",
    ),
    (
        "num_levels",
        "compaction_style=kCompactionStyleUniversal;num_levels=2;allow_ingest_behind=true",
    ),
    (
        "num_levels",
        "compaction_style=kCompactionStyleNone;num_levels=1",
    ),
    ("num_levels", "num_levels=2;allow_ingest_behind=true"),
    (
        "compaction_options_universal",
        "compaction_options_universal={min_merge_width=0}",
    ),
    (
        "compaction_options_universal",
        "compaction_options_universal={min_merge_width=5;max_merge_width=3}",
    ),
    ("unordered_write", "unordered_write=true"),
    (
        "unordered_write",
        "unordered_write=true;enable_pipelined_write=true",
    ),
    (
        "unordered_write",
        "unordered_write=true;max_successive_merges=1",
    ),
    (
        "unordered_write",
        "unordered_write=true;allow_concurrent_memtable_write=false",
    ),
    (
        "atomic_flush",
        "atomic_flush=true;enable_pipelined_write=true",
    ),
    (
        "min_write_buffer_number_to_merge",
        "atomic_flush=true;min_write_buffer_number_to_merge=3;max_write_buffer_number=6",
    ),
    (
        "min_write_buffer_number_to_merge",
        "min_write_buffer_number_to_merge=5;max_write_buffer_number=3",
    ),
    ("open_files_async", "open_files_async=true"),
    (
        "recycle_log_file_num",
        "recycle_log_file_num=3;WAL_ttl_seconds=10",
    ),
    ("wal_compression", "wal_compression=kSnappyCompression"),
    ("wal_compression", "wal_compression=kZSTD"),
    ("wal_compression", "wal_compression=kNonsense"),
    (
        "write_buffer_size",
        "write_buffer_size=65536;max_write_buffer_size_to_maintain=-1",
    ),
    (
        "arena_block_size",
        "write_buffer_size=2097152;arena_block_size=0",
    ),
    (
        "level0_stop_writes_trigger",
        "level0_file_num_compaction_trigger=30;level0_slowdown_writes_trigger=20;level0_stop_writes_trigger=10",
    ),
    (
        "soft_pending_compaction_bytes_limit",
        "soft_pending_compaction_bytes_limit=100;hard_pending_compaction_bytes_limit=0",
    ),
    (
        "soft_pending_compaction_bytes_limit",
        "soft_pending_compaction_bytes_limit=0;hard_pending_compaction_bytes_limit=0",
    ),
    ("use_fsync", "use_fsync=true"),
    ("paranoid_checks", "paranoid_checks=false"),
    ("force_consistency_checks", "force_consistency_checks=false"),
    ("max_bgerror_resume_count", "max_bgerror_resume_count=0"),
    (
        "partition_filters",
        "block_based_table_factory={partition_filters=true}",
    ),
    (
        "index_type",
        "block_based_table_factory={index_type=kHashSearch}",
    ),
    (
        "no_block_cache",
        "block_based_table_factory={no_block_cache=true}",
    ),
    (
        "no_block_cache",
        "block_based_table_factory={no_block_cache=true;cache_index_and_filter_blocks=true}",
    ),
    (
        "no_block_cache",
        "block_based_table_factory={no_block_cache=true;pin_l0_filter_and_index_blocks_in_cache=true}",
    ),
    (
        "block_align",
        "block_based_table_factory={block_align=true}",
    ),
    (
        "filter_policy",
        "block_based_table_factory={filter_policy=rocksdb.BuiltinBloomFilter}",
    ),
    (
        "filter_policy",
        "block_based_table_factory={filter_policy=bloomfilter:10}",
    ),
    (
        "filter_policy",
        "block_based_table_factory={filter_policy=bloomfilter:0:false}",
    ),
    (
        "filter_policy",
        "block_based_table_factory={filter_policy=bloomfilter:0.3:false}",
    ),
    (
        "filter_policy",
        "block_based_table_factory={filter_policy=bloomfilter:-1:false}",
    ),
    (
        "filter_policy",
        "block_based_table_factory={filter_policy=bloomfilter:1000:false}",
    ),
    (
        "data_block_hash_table_util_ratio",
        "block_based_table_factory={data_block_index_type=kDataBlockBinaryAndHash;data_block_hash_table_util_ratio=0}",
    ),
    (
        "data_block_hash_table_util_ratio",
        "block_based_table_factory={data_block_hash_table_util_ratio=0}",
    ),
];

/// Train bytes without dictionary bytes, a time to live in FIFO compaction with limited open files, and
/// unordered with pipelined writes were taken, and RocksDB refused to open the database afterwards.
#[test]
fn rules_between_options_are_rocksdbs() {
    let Some(lib) = newest_rocksdb() else { return };
    let bases = (ours("").unwrap(), theirs(&lib, "").unwrap());
    let each = RULES
        .iter()
        .filter_map(|(named, text)| compare(&lib, &bases, named, text));
    let wrong: Vec<String> = each.collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// LOG tells which values are replaced, and which have no effect.
#[test]
fn replaced_values_are_told_in_log() {
    let dir = dirs::scratch().unwrap();
    let text =
        "create_if_missing=true;max_background_jobs=0;max_write_buffer_number=1;use_fsync=true";
    let options = Options::default().with_text(text).unwrap();
    let db = Db::open(dir.path(), &options).unwrap();
    assert_eq!(db.db_options().max_background_jobs, 1);
    let mut other = options.cf.clone();
    other.cf.level0_file_num_compaction_trigger = 0;
    db.create_column_family("other", &other).unwrap();
    let family = db.default_column_family();
    db.cf(&family)
        .set_options(&[("max_write_buffer_number", "0")])
        .unwrap();
    assert_eq!(db.cf(&family).options().cf.max_write_buffer_number, 2);
    let log = std::fs::read_to_string(dir.path().join("LOG")).unwrap();
    for line in [
        "[WARN] option max_background_jobs = 0 is used as 1\n",
        "[WARN] [default] option max_write_buffer_number = 1 is used as 2\n",
        "[WARN] [other] option level0_file_num_compaction_trigger = 0 is used as 1\n",
        "[WARN] option max_write_buffer_number = 0 is used as 2\n",
        "[WARN] option use_fsync = true of the database has no effect here; OPTIONS files keep it\n",
    ] {
        assert!(log.contains(line), "{line}{log}");
    }
}

/// Opens the database in `dir` with the options in its OPTIONS file, writes, and closes it.
fn open_and_write(dir: &Path) -> Vec<String> {
    let env = Env::default();
    let latest = ParsedOptions::load_latest(dir, &env, Unsupported::Warn).unwrap();
    let (families, warnings) = (latest.families.clone(), latest.warnings.clone());
    let db = Db::open_cf(dir, &latest.into_options(env), &families).unwrap();
    db.put("key", "value").unwrap();
    db.close().unwrap();
    warnings
}

/// `ironstone put` on a database of RocksDB wrote an OPTIONS file without the options that Ironstone does
/// not have. The next RocksDB that loaded it ran without `use_fsync` and others.
#[test]
fn options_without_an_effect_are_kept_as_they_stand() {
    let Some(lib) = newest_rocksdb() else { return };
    let dir = dirs::scratch().unwrap();
    let mut options = lib.options();
    options.create_if_missing(true);
    let text = "use_fsync=true;use_direct_io_for_flush_and_compaction=true;compaction_readahead_size=4194304;\
                paranoid_checks=false;db_host_id=me;max_background_jobs=0;bytes_per_sync=77;\
                min_blob_size=77;last_level_temperature=kCold;force_consistency_checks=false;\
                compression=kZSTD;compression_opts={level=3;checksum=true;};\
                compaction_options_fifo={age_for_warm=5;max_table_files_size=99;};\
                block_based_table_factory={read_amp_bytes_per_bit=8;use_delta_encoding=false;\
                optimize_filters_for_memory=false;block_size=8192;\
                filter_policy=rocksdb.BuiltinBloomFilter}";
    options.set_all(text).unwrap();
    let mut rocks = RocksDb::open(&options, dir.path()).unwrap();
    rocks.create_cf("other", &options).unwrap();
    rocks.close();
    let mut before = values(dir.path());

    let warnings = open_and_write(dir.path());
    assert!(
        warnings
            .iter()
            .any(|w| w.contains("use_direct_io_for_flush_and_compaction = true")),
        "{warnings:?}"
    );
    let after = values(dir.path());
    // There is at least one job; Ironstone writes the value that it uses.
    before.insert(
        (DB_SECTION.to_owned(), "max_background_jobs".to_owned()),
        "1".to_owned(),
    );
    for ((section, name), value) in &before {
        if section == "Version" {
            continue;
        }
        let key = KEYS.iter().find(|k| k.section == section && k.name == name);
        let now = after.get(&(section.clone(), name.clone()));
        let now = now.map(String::as_str).or(key.map(|k| k.default));
        let kept = now.is_some_and(|now| same(now, value) || same_members(now, value));
        assert!(kept, "{name}: {value} became {now:?}");
    }
    let log = std::fs::read_to_string(dir.path().join("LOG")).unwrap();
    for line in [
        "option use_direct_io_for_flush_and_compaction = true of the database has no effect here; \
         OPTIONS files keep it",
        "option read_amp_bytes_per_bit = 8 of column family [other] has no effect here",
    ] {
        assert!(log.contains(line), "{line}{log}");
    }
    // And RocksDB loads it, and opens the database with it.
    let (whole, families) = RocksOptions::load_latest(&lib, dir.path(), false).unwrap();
    let families: Vec<_> = families.iter().map(|(n, o)| (n.as_str(), o)).collect();
    let rocks = RocksDb::open_cf(&whole, dir.path(), &families).unwrap();
    assert_eq!(rocks.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
}

/// Whether the members that two structs share have the same values.
fn same_members(a: &str, b: &str) -> bool {
    if !(a.starts_with('{') && b.starts_with('{')) {
        return false;
    }
    let (Ok(a), Ok(b)) = (codec::members(a), codec::members(b)) else {
        return false;
    };
    let of = |name: &str| b.iter().find(|(n, _)| *n == name);
    a.iter()
        .all(|(name, value)| of(name).is_none_or(|(_, other)| same(value, other)))
}

/// Keys of later releases, objects, and unknown sections are kept, too; a value that is changed by name is
/// not.
#[test]
fn what_is_not_known_is_kept_and_what_is_changed_is_not() {
    let dir = dirs::scratch().unwrap();
    let options = Options::default()
        .with_text("create_if_missing=true")
        .unwrap();
    Db::open(dir.path(), &options).unwrap().close().unwrap();
    let text = newest(dir.path())
        .replace("rocksdb_version=7.8.3", "rocksdb_version=12.1.0")
        .replace("  use_fsync=false\n", "")
        .replace("  sample_for_compression=0\n", "")
        .replace(
            "[DBOptions]\n",
            "[DBOptions]\n  shiny=a\\:b # new\n  listeners={id=Mine;x={y=1;};}\n  use_fsync=true\n",
        )
        .replace(
            "[CFOptions \"default\"]\n",
            "[CFOptions \"default\"]\n  sample_for_compression=5\n  glossy=7\n",
        )
        + "[TableOptions/NewTable \"default\"]\n  block_size=3\n";
    std::fs::write(dir.path().join("OPTIONS-999999"), &text).unwrap();

    let env = Env::default();
    // Objects are not among the refused options.
    let refuse = ParsedOptions::load_latest(dir.path(), &env, Unsupported::Refuse).unwrap();
    assert_eq!(refuse.unknown.len(), 3, "{:?}", refuse.unknown);
    let object = "line 5: option listeners is an object, which is given as options.env.listeners";
    assert!(
        refuse.warnings.iter().any(|w| w.ends_with(&object[8..])),
        "{:?}",
        refuse.warnings
    );
    let families = refuse.families.clone();
    let db = Db::open_cf(dir.path(), &refuse.into_options(env), &families).unwrap();
    let family = db.default_column_family();
    db.cf(&family)
        .set_options(&[("sample_for_compression", "0"), ("ttl", "777")])
        .unwrap();
    db.close().unwrap();
    let text = newest(dir.path());
    for line in [
        "  rocksdb_version=12.1.0\n",
        "  shiny=a\\:b\n",
        "  listeners={id=Mine;x={y=1;};}\n",
        "  use_fsync=true\n",
        "  glossy=7\n",
        "  sample_for_compression=0\n",
        "  ttl=777\n",
        "[TableOptions/NewTable \"default\"]\n  block_size=3\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    assert_eq!(text.matches("use_fsync").count(), 1);
    // The same after a second open.
    open_and_write(dir.path());
    assert_eq!(newest(dir.path()), text);
    let of = |section| KEYS.iter().filter(move |k| k.section == section).count();
    assert!(of(DB_SECTION) + of(CF_SECTION) > 100);
}

/// `db_log_dir` was refused. The file's name is RocksDB's.
#[test]
fn log_lies_in_db_log_dir_under_rocksdbs_name() {
    let dir = dirs::scratch().unwrap();
    let logs = |of: &str| {
        let names = std::fs::read_dir(dir.path().join(of)).unwrap();
        let mut names: Vec<_> = names
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        // The times in the names of old ones differ.
        names
            .iter()
            .map(|n| n.split(".old.").next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let setting = |of: &str| format!("db_log_dir={}", dir.path().join(of).display());
    let db_dir = dir.path().join("a.b_c-d e");
    for _ in 0..2 {
        let text = format!("create_if_missing=true;{}", setting("ours"));
        let options = Options::default().with_text(&text).unwrap();
        let db = Db::open(&db_dir, &options).unwrap();
        assert!(!db_dir.join("LOG").exists());
        db.close().unwrap();
    }
    let ours = logs("ours");
    assert_eq!(ours.len(), 2, "{ours:?}");
    let Some(lib) = newest_rocksdb() else { return };
    for _ in 0..2 {
        let mut options = lib.options();
        options.set_all(&setting("theirs")).unwrap();
        RocksDb::open(&options, &db_dir).unwrap().close();
    }
    assert_eq!(ours, logs("theirs"));
}
