//! `rocksdb.dbstats`: counts of the writes to the database, in RocksDB's format.

use std::collections::BTreeMap;

use super::stalls;
use super::text::{self, GB, MB, count, rate, seconds};
use crate::commit::stall::Stall;
use crate::info::Info;
use crate::info::stats::Counts;

/// The text of the property. The interval begins at the previous call.
pub(super) fn text(info: &Info, stall: &Stall) -> String {
    let now = info.stats.get(info.clock.monotonic_nanos());
    let recent = now.since(&info.stats.interval(now));
    format!(
        "\n** DB Stats **\nUptime(secs): {:.1} total, {:.1} interval\n{}{}{}",
        seconds(now.nanos),
        seconds(recent.nanos),
        lines("Cumulative", &now, GB, "GB"),
        lines("Interval", &recent, MB, "MB"),
        text::pairs(stalls::of_db(stall).into_iter()),
    )
}

/// Three lines about a period. Bytes written by the application are given in `unit`.
fn lines(what: &str, c: &Counts, unit: f64, unit_name: &str) -> String {
    let time = seconds(c.nanos);
    let per = |n: u64, of: u64| n as f64 / of.max(1) as f64;
    format!(
        "{what} writes: {} writes, {} keys, {} commit groups, {:.1} writes per commit group, \
         ingest: {:.2} {unit_name}, {:.2} MB/s\n\
         {what} WAL: {} writes, {} syncs, {:.2} writes per sync, written: {:.2} GB, {:.2} MB/s\n\
         {what} stall: {} H:M:S, {:.1} percent\n",
        count(c.writes()),
        count(c.keys),
        count(c.groups),
        per(c.writes(), c.groups),
        c.bytes as f64 / unit,
        rate(c.bytes, time),
        count(c.wal_writes),
        count(c.wal_syncs),
        per(c.wal_writes, c.wal_syncs),
        c.wal_bytes as f64 / GB,
        rate(c.wal_bytes, time),
        text::time(c.stall_micros),
        c.stall_micros as f64 / 10_000.0 / time.max(0.001),
    )
}

/// The map property.
pub(super) fn map(info: &Info, stall: &Stall) -> BTreeMap<String, String> {
    let c = info.stats.get(info.clock.monotonic_nanos());
    let numbers = [
        ("db.wal_bytes_written", c.wal_bytes),
        ("db.wal_syncs", c.wal_syncs),
        ("db.user_bytes_written", c.bytes),
        ("db.user_keys_written", c.keys),
        ("db.user_writes_by_other", c.followers),
        ("db.user_writes_by_self", c.groups),
        ("db.user_writes_with_wal", c.wal_writes),
        ("db.user_write_stall_micros", c.stall_micros),
    ];
    let mut out: BTreeMap<String, String> = numbers
        .into_iter()
        .map(|(name, n)| (name.to_owned(), n.to_string()))
        .collect();
    out.insert("db.uptime".to_owned(), format!("{:.6}", seconds(c.nanos)));
    for (name, n) in stalls::of_db(stall) {
        out.insert(name, n.to_string());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_rocksdbs() {
        let c = Counts {
            nanos: 2_000_000_000,
            groups: 12_345,
            keys: 40_000,
            bytes: 5 << 20,
            wal_writes: 12_345,
            wal_bytes: 5 << 20,
            wal_syncs: 4,
            stall_micros: 100_000,
            followers: 655,
        };
        let want = "Interval writes: 13K writes, 40K keys, 12K commit groups, 1.1 writes per \
            commit group, ingest: 5.00 MB, 2.50 MB/s\n\
            Interval WAL: 12K writes, 4 syncs, 3086.25 writes per sync, written: 0.00 GB, \
            2.50 MB/s\n\
            Interval stall: 00:00:0.100 H:M:S, 5.0 percent\n";
        assert_eq!(lines("Interval", &c, MB, "MB"), want);
    }
}
