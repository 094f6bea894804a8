//! Benchmarks of RocksDB's db_bench that are refused, with reasons: benchmarks that neither engine
//! can run, and benchmarks that one engine cannot run.

use base::Error;

use crate::flags::Flags;

/// Benchmarks that RocksDB's db_bench has.
#[cfg(test)]
const ROCKSDB_BENCHMARKS: &str = include_str!("../rocksdb_benchmarks.txt");

/// The benchmarks that no engine runs: names, reasons, and alternatives if there are any.
const REFUSED: &[(&[&str], &str, &str)] = &[
    (
        &["randomtransaction"],
        "transactions are not in the engine yet",
        "use randomwithverify, whose batches are atomic",
    ),
    (
        &["replay"],
        "the engine writes no traces, and RocksDB's C API replays none",
        "",
    ),
    (
        &["openandcompact"],
        "the engine has no remote compaction",
        "use compact",
    ),
    (
        &["readrandomcoroutine"],
        "RocksDB was built without coroutines, and the engine has none",
        "use readrandom with more threads",
    ),
    (
        &["multireadrandomcoroutine"],
        "RocksDB was built without coroutines, and the engine has none",
        "use multireadrandom with more threads",
    ),
    (
        &["fillembeddedentity", "fillembeddedblob"],
        "tables with blobs in them are not in the engine",
        "use ingestexternalfile",
    ),
    (
        &["stats_history"],
        "the engine keeps no history of its counters, and RocksDB's C API does not show its",
        "use --stats_interval_seconds with --stats_per_interval=1",
    ),
    (
        &["resetstats"],
        "the engine counts from its opening on, and RocksDB's C API cannot reset",
        "use stats, which shows the time since the last stats too",
    ),
    (
        &["cache_report_problems"],
        "the block cache looks for no problems, and RocksDB's C API does not ask for them",
        "use block_cache_entry_stats",
    ),
];

/// The benchmarks that RocksDB runs, but not through its C API: names, and the missing call.
const NOT_IN_C: &[(&[&str], &str)] = &[
    (
        &["getmergeoperands", "readrandomoperands"],
        "GetMergeOperands",
    ),
    (&["readrandomentity"], "GetEntity"),
    (&["multireadentity"], "MultiGetEntity"),
    (&["approximatememtablestats"], "GetApproximateMemTableStats"),
];

/// Whether RocksDB's db_bench has a benchmark of this name.
#[cfg(test)]
pub(super) fn is_rocksdbs(name: &str) -> bool {
    ROCKSDB_BENCHMARKS.split_whitespace().any(|b| b == name)
}

/// The error for a benchmark that is refused for every engine.
pub(super) fn by_all(name: &str) -> Option<Error> {
    let (_, why, instead) = REFUSED.iter().find(|(names, ..)| names.contains(&name))?;
    let error = Error::not_supported(format!("benchmark '{name}': {why}"));
    Some(if instead.is_empty() {
        error
    } else {
        error.hint(*instead)
    })
}

/// The error for a benchmark that the engine of the flags does not run.
pub(super) fn by_engine(name: &str, flags: &Flags) -> Option<Error> {
    let (_, call) = NOT_IN_C.iter().find(|(names, _)| names.contains(&name))?;
    flags.is_librocksdb().then(|| {
        Error::not_supported(format!("benchmark '{name}': RocksDB's C API has no {call}"))
            .hint("use --engine=ironstone")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmarks::BENCHMARKS;

    #[test]
    fn every_benchmark_of_rocksdb_works_or_is_refused_with_a_reason() {
        for name in ROCKSDB_BENCHMARKS.split_whitespace() {
            let works = BENCHMARKS.iter().any(|(known, _)| *known == name);
            assert_ne!(works, by_all(name).is_some(), "{name}");
        }
        let refused = REFUSED.iter().flat_map(|(names, ..)| *names);
        let not_in_c = NOT_IN_C.iter().flat_map(|(names, _)| *names);
        for name in refused.chain(not_in_c) {
            assert!(is_rocksdbs(name), "{name}");
        }
    }
}
