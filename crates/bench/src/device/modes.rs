//! `cargo xtask bench-device --modes`: the cost of a put in each mode of writing, on a disk as slow
//! as a hard disk and on this machine's own.
//!
//! The modes: synced or not, the log through the page cache or past it, and logs that are written
//! on request. RocksDB has no direct log: its direct mode is
//! `use_direct_io_for_flush_and_compaction`. Device operations are reported beside the rates; on
//! this machine's own disk, operations of other programs count as well.

use std::fs;
use std::path::Path;

use super::disk::{Cache, Disk, Fs, device_of};
use super::run::{Engine, Figures, Run};
use super::stat::Counters;
use super::throttle::Controller;
use super::{SLOW, Session, Stop};
use crate::spread::Spread;

/// A mode of writing.
struct Mode {
    name: &'static str,
    benchmark: &'static str,
    /// The flags for Ironstone only, for RocksDB only, and for both.
    ironstone: &'static [&'static str],
    rocksdb: &'static [&'static str],
    both: &'static [&'static str],
    /// The number of puts as a multiple of that of modes in which each put waits for the device.
    times: u64,
}

const MODES: [Mode; 6] = [
    Mode {
        name: "sync, buffered",
        benchmark: "fillsync",
        ironstone: &["--wal_io_mode=buffered"],
        rocksdb: &[],
        both: &[],
        times: 1,
    },
    Mode {
        name: "sync, direct",
        benchmark: "fillsync",
        ironstone: &["--wal_io_mode=direct"],
        rocksdb: &["--use_direct_io_for_flush_and_compaction"],
        both: &[],
        times: 1,
    },
    Mode {
        name: "no sync, buffered",
        benchmark: "fillrandom",
        ironstone: &["--wal_io_mode=buffered"],
        rocksdb: &[],
        both: &[],
        times: 100,
    },
    Mode {
        name: "no sync, direct",
        benchmark: "fillrandom",
        ironstone: &["--wal_io_mode=direct"],
        rocksdb: &["--use_direct_io_for_flush_and_compaction"],
        both: &[],
        times: 100,
    },
    Mode {
        name: "FlushWAL(sync) every 100 puts, buffered",
        benchmark: "fillrandom",
        ironstone: &["--wal_io_mode=buffered"],
        rocksdb: &[],
        both: &["--manual_wal_flush", "--flush_wal_every=100"],
        times: 20,
    },
    Mode {
        name: "FlushWAL(sync) every 100 puts, direct",
        benchmark: "fillrandom",
        ironstone: &["--wal_io_mode=direct"],
        rocksdb: &["--use_direct_io_for_flush_and_compaction"],
        both: &["--manual_wal_flush", "--flush_wal_every=100"],
        times: 20,
    },
];

/// A measured pair.
struct Pair {
    ironstone: Figures,
    rocksdb: Figures,
}

/// A disk to measure on.
struct Place<'a> {
    name: String,
    mount: &'a Path,
    counters: &'a Counters,
    /// The puts of a run in which each waits for the device.
    waiting_puts: u64,
}

/// Measures every mode on both disks, prints the table, and writes it as TSV.
pub(super) fn measure(session: &Session<'_>) -> Result<(), Stop> {
    let mut rows = Vec::new();
    match Controller::find() {
        Ok(controller) => {
            let disk = Disk::make(
                &session.dir,
                Fs::Ext4.name(),
                Fs::Ext4,
                Cache::WriteBack,
                session.arguments.image_mib,
            )?;
            let number = disk.number()?;
            controller.limit(&number, SLOW)?;
            let place = Place {
                name: format!("ext4, {SLOW} writes a second"),
                mount: &disk.mount,
                counters: &disk.counters,
                waiting_puts: session.arguments.slow_num,
            };
            let done = all_modes(session, &place, &mut rows);
            controller.release(&number)?;
            super::disk::sweep(&session.dir)?;
            done?;
        }
        Err(needs) => eprintln!("skipped the slow disk: needs {needs}"),
    }
    match device_of(&session.dir) {
        Some(device) => {
            let place = Place {
                name: format!("this machine's disk ({device})"),
                mount: &session.dir,
                counters: &Counters::new(device, None),
                waiting_puts: session.arguments.num,
            };
            all_modes(session, &place, &mut rows)?;
        }
        None => eprintln!("skipped this machine's disk: no block device is known for it"),
    }
    print!("{}", table(&rows));
    let path = session.dir.join("modes.tsv");
    fs::write(&path, tsv(&rows)).map_err(|e| format!("{}: {e}", path.display()))?;
    println!("written: {}", path.display());
    Ok(())
}

/// The pairs of one mode on one disk.
struct Row {
    disk: String,
    mode: &'static str,
    puts: u64,
    pairs: Vec<Pair>,
}

fn all_modes(session: &Session<'_>, place: &Place<'_>, rows: &mut Vec<Row>) -> Result<(), String> {
    let rocksdb = Engine::RocksDb(session.peer.clone().ok_or("RocksDB is not there")?);
    for mode in &MODES {
        let puts = place.waiting_puts * mode.times;
        let once = |engine: &Engine, own: &[&str], number: u32| {
            let own = own.iter().chain(mode.both).map(|f| (*f).to_owned());
            Run {
                benchmark: mode.benchmark,
                driver: &session.driver,
                engine,
                mount: place.mount,
                counters: place.counters,
                threads: 1,
                puts,
                seed: 1000 + number,
                flags: own.chain(session.flags()).collect(),
                seconds: session.arguments.run_seconds,
            }
            .go()
        };
        let mut pairs = Vec::new();
        for number in 0..session.arguments.pairs {
            let pair = Pair {
                ironstone: once(&Engine::Ironstone, mode.ironstone, number)?,
                rocksdb: once(&rocksdb, mode.rocksdb, number)?,
            };
            eprintln!(
                "{}, {}, {}/{}: {:.0} and {:.0} puts a second, {:.2} times RocksDB's",
                place.name,
                mode.name,
                number + 1,
                session.arguments.pairs,
                pair.ironstone.per_second,
                pair.rocksdb.per_second,
                pair.ironstone.per_second / pair.rocksdb.per_second
            );
            pairs.push(pair);
        }
        rows.push(Row {
            disk: place.name.clone(),
            mode: mode.name,
            puts,
            pairs,
        });
    }
    Ok(())
}

impl Row {
    fn median(&self, of: impl Fn(&Pair) -> f64) -> f64 {
        Spread::of(self.pairs.iter().map(of)).median
    }

    fn ratio(&self) -> Spread {
        let ratio = |p: &Pair| p.ironstone.per_second / p.rocksdb.per_second;
        Spread::of(self.pairs.iter().map(ratio))
    }
}

/// A Markdown table.
fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "\nPuts of 16 and 100 bytes, one thread; medians. Requests and flushes are the device's for each put.\n\n\
         | disk | way of writing | puts | Ironstone, puts a second | RocksDB | times RocksDB's | \
         p99, µs: Ironstone, RocksDB | requests / flushes: Ironstone, RocksDB |\n\
         |---|---|---:|---:|---:|---|---|---|\n",
    );
    for row in rows {
        let ratio = row.ratio().text();
        text += &format!(
            "| {} | {} | {} | {:.0} | {:.0} | {ratio} | {:.0}, {:.0} | \
             {:.2} / {:.2}, {:.2} / {:.2} |\n",
            row.disk,
            row.mode,
            row.puts,
            row.median(|p| p.ironstone.per_second),
            row.median(|p| p.rocksdb.per_second),
            row.median(|p| p.ironstone.p99),
            row.median(|p| p.rocksdb.p99),
            row.median(|p| p.ironstone.each.requests),
            row.median(|p| p.ironstone.each.flushes),
            row.median(|p| p.rocksdb.each.requests),
            row.median(|p| p.rocksdb.each.flushes),
        );
    }
    text
}

/// One line for each run.
fn tsv(rows: &[Row]) -> String {
    let mut text = String::from(
        "disk\tmode\tputs\tpair\tengine\tputs_per_second\tp50_micros\tp99_micros\tp999_micros\t\
         requests_per_put\tflushes_per_put\tbytes_per_put\n",
    );
    for row in rows {
        for (number, pair) in row.pairs.iter().enumerate() {
            for (engine, f) in [("ironstone", pair.ironstone), ("rocksdb", pair.rocksdb)] {
                text += &format!(
                    "{}\t{}\t{}\t{number}\t{engine}\t{:.1}\t{:.2}\t{:.2}\t{:.2}\t{:.3}\t{:.3}\t{:.1}\n",
                    row.disk,
                    row.mode,
                    row.puts,
                    f.per_second,
                    f.p50,
                    f.p99,
                    f.p999,
                    f.each.requests,
                    f.each.flushes,
                    f.each.bytes()
                );
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(per_second: f64) -> Figures {
        Figures {
            per_second,
            p99: 7.0,
            ..Figures::default()
        }
    }

    #[test]
    fn the_median_of_the_ratios_counts() {
        let pair = |a, b| Pair {
            ironstone: figures(a),
            rocksdb: figures(b),
        };
        let row = Row {
            disk: "d".to_owned(),
            mode: "m",
            puts: 5,
            pairs: vec![pair(10.0, 5.0), pair(30.0, 10.0), pair(8.0, 8.0)],
        };
        let text = table(std::slice::from_ref(&row));
        let line = "| d | m | 5 | 10 | 8 | 2.00 [1.00..3.00] | 7, 7 | 0.00 / 0.00, 0.00 / 0.00 |";
        assert!(text.contains(line), "{text}");
        assert_eq!(tsv(&[row]).lines().count(), 7);
    }
}
