//! `rocksdb.cfstats`: the work of flushes and compactions, by level and by priority.
//!
//! benchmark.sh and users read this text, so columns, widths and words are RocksDB's (measured on 11.8.1). An
//! interval begins when the text is written to LOG.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::text::{self, GB, MB, count, rate, seconds};
use super::{cache, stalls};
use crate::catalog::family::Family;
use crate::catalog::job_stats::{LevelStats, Told};
use crate::commit::stall::Stall;
use crate::info::Info;
use crate::shared::Shared;
use picking::candidates;

const COLUMNS: &str = "    Files   Size     Score Read(GB)  Rn(GB) Rnp1(GB) Write(GB) \
    WPreComp(GB) Wnew(GB) Moved(GB) W-Amp Rd(MB/s) Wr(MB/s) Comp(sec) CompMergeCPU(sec) Comp(cnt) \
    Avg(sec) KeyIn KeyDrop Rblob(GB) Wblob(GB)";

/// A row of the table.
struct Row {
    name: String,
    files: u64,
    /// How many of the files are being compacted.
    busy: u64,
    bytes: u64,
    score: f64,
    write_amplification: f64,
    work: LevelStats,
}

impl Row {
    fn of_work(name: &str, write_amplification: f64, work: LevelStats) -> Self {
        Self {
            name: name.to_owned(),
            files: 0,
            busy: 0,
            bytes: 0,
            score: 0.0,
            write_amplification,
            work,
        }
    }

    /// The fractional columns after the score, by their names in the map property.
    fn fractions(&self) -> [(&'static str, f64); 14] {
        let w = &self.work;
        let gb = |n: u64| n as f64 / GB;
        // One microsecond more, to avoid a division by zero.
        let elapsed = (w.micros + 1) as f64 / 1e6;
        let mean = if w.count == 0 {
            0.0
        } else {
            w.micros as f64 / 1e6 / w.count as f64
        };
        let new = w.bytes_written as f64 - w.bytes_read_output as f64;
        [
            ("ReadGB", gb(w.bytes_read())),
            ("RnGB", gb(w.bytes_read_upper)),
            ("Rnp1GB", gb(w.bytes_read_output)),
            ("WriteGB", gb(w.bytes_written)),
            ("WPreCompGB", gb(w.bytes_uncompressed)),
            ("WnewGB", new / GB),
            ("MovedGB", gb(w.bytes_moved)),
            ("WriteAmp", self.write_amplification),
            ("ReadMBps", w.bytes_read() as f64 / MB / elapsed),
            ("WriteMBps", w.bytes_written as f64 / MB / elapsed),
            ("CompSec", w.micros as f64 / 1e6),
            ("CompMergeCPU", w.cpu_micros as f64 / 1e6),
            ("AvgSec", mean),
            ("Score", self.score),
        ]
    }

    fn line(&self) -> String {
        let [
            read,
            rn,
            rnp1,
            write,
            raw,
            new,
            moved,
            amp,
            rd,
            wr,
            sec,
            cpu,
            mean,
            score,
        ] = self.fractions().map(|(_, n)| n);
        let w = &self.work;
        format!(
            "{:>4} {:6}/{:<3} {:>10} {score:5.1} {read:8.1} {rn:7.1} {rnp1:8.1} {write:9.1} \
             {raw:9.1} {new:8.1} {moved:9.1} {amp:5.1} {rd:8.1} {wr:8.1} {sec:9.2} {cpu:17.2} \
             {:9} {mean:8.3} {:>7} {:>6} {:9.1} {:9.1}\n",
            self.name,
            self.files,
            self.busy,
            text::bytes(self.bytes),
            w.count,
            count(w.records_in),
            count(w.records_dropped),
            0.0,
            0.0,
        )
    }

    /// Adds the row to the map property.
    fn entries(&self, out: &mut BTreeMap<String, String>) {
        let name = self.name.trim();
        let mut add = |what: &str, n: f64| {
            out.insert(format!("compaction.{name}.{what}"), format!("{n:.6}"));
        };
        for (what, n) in self.fractions() {
            add(what, n);
        }
        let w = &self.work;
        for (what, n) in [
            ("NumFiles", self.files),
            ("CompactedFiles", self.busy),
            ("SizeBytes", self.bytes),
            ("CompCount", w.count),
            ("KeyIn", w.records_in),
            ("KeyDrop", w.records_dropped),
            ("RblobGB", 0),
            ("WblobGB", 0),
        ] {
            add(what, n as f64);
        }
    }
}

/// The table, with the numbers that it is made from.
struct Table {
    /// A row for each level that has files or had compactions or flushes.
    levels: Vec<Row>,
    sum: Row,
    interval: Row,
    priorities: Vec<Row>,
    now: Told,
    before: Told,
}

fn ratio(out: u64, input: u64) -> f64 {
    if input == 0 {
        0.0
    } else {
        out as f64 / input as f64
    }
}

/// Collects the numbers of the table.
fn table(info: &Info, family: &Family) -> Table {
    let version = family.view.load().version.clone();
    let clock = &info.clock;
    let scores = candidates::scores(
        &version,
        &family.options().cf,
        clock.wall_micros() / 1_000_000,
    );
    let work = family.compactions.work();
    let mut sum = Row::of_work(" Sum", 0.0, LevelStats::default());
    let mut levels = Vec::new();
    for level in 0..version.num_levels() {
        let files = version.level(level);
        let done = work.levels.get(level).cloned().unwrap_or_default();
        if files.is_empty() && done.is_nothing() {
            continue;
        }
        let came = match level {
            0 => work.incoming.bytes(),
            _ => done.bytes_read_upper,
        };
        let row = Row {
            name: format!("L{level}"),
            files: files.len() as u64,
            busy: files.iter().filter(|f| f.is_being_compacted()).count() as u64,
            bytes: version.level_bytes(level),
            score: scores.get(level).copied().unwrap_or(0.0),
            write_amplification: ratio(done.bytes_written, came),
            work: done,
        };
        sum.files += row.files;
        sum.busy += row.busy;
        sum.bytes += row.bytes;
        levels.push(row);
    }
    sum.work = work.sum();
    sum.write_amplification = ratio(sum.work.bytes_written, work.incoming.bytes());
    let now = Told {
        nanos: clock.monotonic_nanos() - info.stats.opened_nanos(),
        sum: sum.work.clone(),
        incoming: work.incoming,
    };
    let before = family.compactions.told();
    let recent = now.sum.since(&before.sum);
    let came = now.incoming.since(&before.incoming).bytes();
    let priorities = [(" Low", work.low), ("High", work.high)];
    Table {
        levels,
        sum,
        interval: Row::of_work(" Int", ratio(recent.bytes_written, came), recent),
        priorities: priorities
            .into_iter()
            .filter(|(_, done)| !done.is_nothing())
            .map(|(name, done)| Row::of_work(name, 0.0, done))
            .collect(),
        now,
        before,
    }
}

/// The text of `rocksdb.cfstats-no-file-histogram`. With `periodic`, a new interval begins.
pub(super) fn text(db: &Shared, family: &Family, periodic: bool) -> String {
    let table = table(&db.info, family);
    if periodic {
        family.compactions.tell(table.now.clone());
    }
    let mut out = String::with_capacity(4096);
    let lines = table.levels.iter().chain([&table.sum, &table.interval]);
    block(&mut out, &family.name, "Level", lines);
    block(&mut out, &family.name, "Priority", table.priorities.iter());
    out.push_str(
        "\nBlob file count: 0, total size: 0.0 GB, garbage size: 0.0 GB, space amp: 0.0\n\n",
    );
    summary(&mut out, &table);
    let pending =
        candidates::pending_compaction_bytes(&family.view.load().version, &family.options().cf);
    write(
        &mut out,
        format_args!("Estimated pending compaction bytes: {pending}\n"),
    );
    out += &text::pairs(stalls::of_family(&db.writes.stall, family).into_iter());
    out += &cache::text(&db.catalog, family);
    out
}

/// A table with its title.
fn block<'a>(
    out: &mut String,
    family: &str,
    first_column: &str,
    rows: impl Iterator<Item = &'a Row>,
) {
    let header = format!("{first_column}{COLUMNS}");
    let line = "-".repeat(header.len() + 1);
    write(
        out,
        format_args!("\n** Compaction Stats [{family}] **\n{header}\n{line}\n"),
    );
    rows.for_each(|row| out.push_str(&row.line()));
}

fn write(out: &mut String, what: std::fmt::Arguments<'_>) {
    let written = out.write_fmt(what);
    debug_assert!(written.is_ok(), "writing to a String cannot fail");
}

/// The lines below the tables.
fn summary(out: &mut String, table: &Table) {
    let (now, before) = (&table.now, &table.before);
    let interval = now.nanos.saturating_sub(before.nanos);
    let recent = now.incoming.since(&before.incoming);
    let came = &now.incoming;
    let gb = |n: u64| n as f64 / GB;
    write(
        out,
        format_args!(
            "Uptime(secs): {:.1} total, {:.1} interval\n\
             Flush(GB): cumulative {:.3}, interval {:.3}\n\
             AddFile(GB): cumulative {:.3}, interval {:.3}\n\
             AddFile(Total Files): cumulative {}, interval {}\n\
             AddFile(L0 Files): cumulative {}, interval {}\n\
             AddFile(Keys): cumulative {}, interval {}\n",
            seconds(now.nanos),
            seconds(interval),
            gb(came.flushed_bytes),
            gb(recent.flushed_bytes),
            gb(came.added_bytes),
            gb(recent.added_bytes),
            came.added_files,
            recent.added_files,
            came.added_l0_files,
            recent.added_l0_files,
            came.added_keys,
            recent.added_keys,
        ),
    );
    let all = [
        ("Cumulative", &table.sum.work, now.nanos),
        ("Interval", &table.interval.work, interval),
    ];
    for (what, work, nanos) in all {
        let time = seconds(nanos);
        write(
            out,
            format_args!(
                "{what} compaction: {:.2} GB write, {:.2} MB/s write, {:.2} GB read, \
                 {:.2} MB/s read, {:.1} seconds\n",
                gb(work.bytes_written),
                rate(work.bytes_written, time),
                gb(work.bytes_read()),
                rate(work.bytes_read(), time),
                work.micros as f64 / 1e6,
            ),
        );
    }
}

/// The map property `rocksdb.cfstats`: the table without the interval, and the counts of write stalls.
pub(super) fn map(info: &Info, stall: &Stall, family: &Family) -> BTreeMap<String, String> {
    let table = table(info, family);
    let mut out = BTreeMap::new();
    for row in table.levels.iter().chain([&table.sum]) {
        row.entries(&mut out);
    }
    for (name, n) in stalls::of_family(stall, family) {
        out.insert(name, n.to_string());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_rocksdbs_to_the_byte() {
        let row = Row {
            name: "L6".to_owned(),
            files: 1,
            busy: 0,
            bytes: 115_138,
            score: 0.0,
            write_amplification: 0.504,
            work: LevelStats {
                count: 1,
                micros: 2823,
                cpu_micros: 2134,
                bytes_read_upper: 231_480,
                bytes_written: 115_138,
                records_in: 2000,
                records_dropped: 1000,
                ..LevelStats::default()
            },
        };
        let theirs = "  L6      1/0    112.44 KB   0.0      0.0     0.0      0.0       0.0       \
            0.0      0.0       0.0   0.5     78.2     38.9      0.00              0.00         1    \
            0.003    2000   1000       0.0       0.0\n";
        assert_eq!(row.line(), theirs);
    }

    #[test]
    fn what_was_written_beyond_what_was_read_may_be_less_than_nothing() {
        let work = LevelStats {
            bytes_read_output: 3 << 30,
            bytes_written: 1 << 30,
            ..LevelStats::default()
        };
        let row = Row::of_work(" Sum", 0.0, work);
        let new = row
            .fractions()
            .iter()
            .find(|(n, _)| *n == "WnewGB")
            .copied();
        assert!((new.unwrap().1 + 2.0).abs() < 1e-9);
    }
}
