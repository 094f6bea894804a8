//! Counts of write stalls, under RocksDB's names.

use std::collections::BTreeMap;

use crate::catalog::family::Family;
use crate::commit::stall::Stall;

/// The counts of a family: `rocksdb.cf-write-stall-stats`.
pub(super) fn of_family(stall: &Stall, family: &Family) -> BTreeMap<String, u64> {
    let counts = stall.counts(family.id);
    let mut out = BTreeMap::new();
    for (cause, pair) in [
        ("memtable-limit", counts.memtable),
        ("l0-file-count-limit", counts.l0),
        ("pending-compaction-bytes", counts.pending),
        ("total", counts.total()),
    ] {
        out.insert(format!("{cause}-delays"), pair.delays);
        out.insert(format!("{cause}-stops"), pair.stops);
    }
    let busy = counts.l0_with_compaction;
    let name = |what| format!("cf-l0-file-count-limit-{what}-with-ongoing-compaction");
    out.insert(name("delays"), busy.delays);
    out.insert(name("stops"), busy.stops);
    out
}

/// The counts of the whole database: `rocksdb.db-write-stall-stats`.
pub(super) fn of_db(stall: &Stall) -> BTreeMap<String, u64> {
    let name = "write-buffer-manager-limit-stops".to_owned();
    BTreeMap::from([(name, stall.memory_stops())])
}
