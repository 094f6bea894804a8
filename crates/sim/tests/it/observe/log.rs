//! LOG has RocksDB's events with RocksDB's fields, and a dump of all options.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sim::oracle;

use super::Pair;

/// All of LOG, with the older LOG files before it.
fn read(dir: &Path) -> String {
    let mut out = String::new();
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n.starts_with("LOG"))
        .collect();
    names.sort();
    for name in names {
        out += &String::from_utf8_lossy(&std::fs::read(dir.join(name)).unwrap());
    }
    out
}

/// The names of a JSON object's members, those of inner objects as `outer.inner`.
fn members(json: &str) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    let mut outer: Vec<String> = Vec::new();
    let mut last = String::new();
    let (mut text, mut in_text, mut escaped) = (String::new(), false, false);
    for c in json.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_text => escaped = true,
            '"' => {
                if in_text {
                    last.clone_from(&text);
                }
                in_text = !in_text;
                text.clear();
            }
            c if in_text => text.push(c),
            ':' => {
                let prefix = outer.iter().skip(1).fold(String::new(), |p, o| p + o + ".");
                out.insert(format!("{prefix}{last}"));
            }
            '{' => outer.push(last.clone()),
            '}' => {
                outer.pop();
            }
            _ => {}
        }
    }
    out
}

/// The members of each event, by its name.
fn events(log: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut out: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in log.lines() {
        let Some((_, json)) = line.split_once("EVENT_LOG_v1 ") else {
            continue;
        };
        let (_, after) = json.split_once("\"event\": \"").unwrap();
        let name = after.split('"').next().unwrap().to_owned();
        let mut found = members(json);
        // The levels in an event depend on the compaction.
        found.retain(|m| !m.starts_with("files_L"));
        out.entry(name).or_default().extend(found);
    }
    out
}

/// Members of ours that RocksDB does not have.
fn is_own(event: &str, member: &str) -> bool {
    member == "cf_name" || (event == "trivial_move" && member == "compaction_reason")
}

#[test]
fn events_have_rocksdbs_fields() {
    let Some(lib) = oracle::rocksdb() else { return };
    let pair = Pair::open(&lib);
    pair.put(0..10);
    let pair = pair.reopen();
    pair.fill_levels();
    pair.compact();
    pair.put(5000..5100); // nothing else overlaps: the file is only moved
    pair.flush();
    let pair = pair.moving_down();
    pair.ingest("zzz");
    let (ours, theirs, _dir) = pair.close();
    let (ours, theirs) = (events(&read(&ours)), events(&read(&theirs)));
    let names: Vec<_> = theirs.keys().collect();
    for wanted in [
        "recovery_started",
        "recovery_finished",
        "flush_started",
        "flush_finished",
        "compaction_started",
        "compaction_finished",
        "table_file_creation",
        "table_file_deletion",
        "trivial_move",
        "ingest_finished",
    ] {
        assert!(theirs.contains_key(wanted), "{wanted} in {names:?}");
    }
    for (event, members) in &theirs {
        let mine = ours.get(event).unwrap_or_else(|| panic!("no {event}"));
        let missing: Vec<_> = members.difference(mine).collect();
        assert!(missing.is_empty(), "{event} lacks {missing:?}");
        let more: Vec<_> = mine
            .difference(members)
            .filter(|m| !is_own(event, m))
            .collect();
        assert!(more.is_empty(), "{event} has {more:?}");
    }
}

/// Options that RocksDB 11.8 dumps and that OPTIONS files of 7.8 do not know.
fn is_known_to_lack(name: &str) -> bool {
    NOT_DUMPED.contains(&name)
}

const NOT_DUMPED: &[&str] = &[
    "async_wal_precreate",
    "background_close_inactive_wals",
    "blob_compression_opts.level",
    "blob_direct_write_partitions",
    "cf_allow_ingest_behind",
    "compaction_options_universal.max_read_amp",
    "compaction_options_universal.reduce_file_locking",
    "compaction_verify_record_count",
    "daily_offpeak_time_utc",
    "default_temperature",
    "disallow_memtable_writes",
    "enable_blob_direct_write",
    "enforce_write_buffer_manager_during_recovery",
    "fast_sst_open",
    "max_compaction_trigger_wakeup_seconds",
    "max_manifest_space_amp_pct",
    "memtable_avg_op_scan_flush_trigger",
    "memtable_batch_lookup_optimization",
    "memtable_max_range_deletions",
    "memtable_op_scan_flush_trigger",
    "metadata_write_temperature",
    "min_tombstones_for_range_conversion",
    "open_files_async",
    "optimize_manifest_for_recovery",
    "prefix_seek_opt_in_only",
    "read_io_executor_threads",
    "reuse_manifest_on_open",
    "strict_max_successive_merges",
    "target_file_size_is_upper_bound",
    "track_and_verify_wals",
    "use_direct_io_for_compaction_reads",
    "verify_manifest_content_on_close",
    "wal_write_temperature",
    "write_identity_file",
];

/// The names in lines `Options.<name>: <value>`.
fn options(log: &str) -> BTreeMap<String, String> {
    let dumped = |line: &str| {
        let (_, rest) = line.split_once("Options.")?;
        let (name, value) = rest.split_once(':')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    log.lines().filter_map(dumped).collect()
}

#[test]
fn all_options_are_dumped_at_open() {
    let Some(lib) = oracle::rocksdb() else { return };
    let pair = Pair::open(&lib);
    let (ours, theirs, _dir) = pair.close();
    let (log, their_log) = (read(&ours), read(&theirs));
    let (ours, theirs) = (options(&log), options(&their_log));
    let missing: Vec<_> = theirs
        .keys()
        .filter(|n| !ours.contains_key(*n) && !is_known_to_lack(n))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    let mut differ = Vec::new();
    for name in [
        "write_buffer_size",
        "max_background_jobs",
        "compression",
        "create_if_missing",
    ] {
        if ours.get(name) != theirs.get(name) {
            differ.push((name, ours.get(name), theirs.get(name)));
        }
    }
    assert!(differ.is_empty(), "{differ:?}");
    assert!(log.contains("table_factory options:"), "{log}");
    for line in ["  block_size: 4096", "  cache_index_and_filter_blocks: 0"] {
        assert!(
            log.lines().any(|l| l == line) && their_log.lines().any(|l| l == line),
            "{line}"
        );
    }
}
