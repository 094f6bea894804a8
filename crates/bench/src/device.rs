//! `cargo xtask bench-device`: the cost of a synced put in device operations, beside RocksDB 11.8.1
//! and the device's own floor.
//!
//! Counts do not depend on the machine's speed. So the device operations per put are counted on a
//! separate loop device, on ext4 and xfs, with a volatile cache and with a protected one, and on a
//! device that the kernel limits to as few writes per second as a hard disk. Times are compared
//! only within a pair: raw writes, Ironstone, raw writes again, RocksDB, one right after the other.
//!
//! ```text
//!   target/bench-device/lock              one run at a time
//!   target/bench-device/<fs>.img  <─ loop device <─ mounted at mnt-<fs>/    removed after a run
//!   target/bench-device/report.tsv, report.json
//!
//!   run ──starts──> watcher (own process group; waits on a pipe for the end of the run)
//!    └─ ends well: sweeps itself        └─ run died by Ctrl-C, kill or panic: sweeps for it
//! ```
//!
//! Exit status: 0 done; 1 something failed; 2 this machine lacks a requirement, which is named.

pub(crate) mod disk;
mod floor;
mod modes;
mod report;
mod run;
pub(crate) mod stat;
pub(crate) mod throttle;
mod trace;
pub(crate) mod watch;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use base::clock::{Clock, SystemClock};
use disk::{Cache, Disk, Fs};
use floor::Floor;
use report::{Case, Pair, Report};
use run::{Engine, Run};
use throttle::Controller;

/// Writes per second of the slow disk: about those of a hard disk at 14,400 rpm.
pub(crate) const SLOW: u32 = 240;

/// The puts of the quick check.
const COUNT_PUTS: u64 = 2000;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// File systems
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ext4,xfs")]
    fs: Vec<Fs>,
    /// Caches of the device: volatile, or protected against power loss
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "write-back,write-through"
    )]
    cache: Vec<Cache>,
    /// Also measure on the disk of the target directory, which other programs may use
    #[arg(long)]
    own: bool,
    /// Also measure on a disk that is limited to 240 writes a second
    #[arg(long)]
    slow: bool,
    /// Synced puts of a run, all threads together; 100000 for figures to publish
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(100..))]
    num: u64,
    /// Synced puts of a run on the slow disk
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(50..))]
    slow_num: u64,
    /// Numbers of writing threads
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,8,32",
        value_parser = clap::value_parser!(u32).range(1..=1024)
    )]
    threads: Vec<u32>,
    /// Pairs of each measurement
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Size of a memtable in MiB; small, so that log files are switched during a run
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    write_buffer_mib: u32,
    /// Size of the devices in MiB
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(384..))]
    image_mib: u64,
    /// Seconds that one run may take
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    run_seconds: u64,
    /// Further flags of db_bench for both engines, for example --flag=--two_write_queues
    #[arg(long = "flag", allow_hyphen_values = true)]
    flags: Vec<String>,
    /// Run only a quick check: count the operations of 2,000 puts on ext4 with both caches, without
    /// times
    #[arg(long)]
    count_only: bool,
    /// Instead, measure synced and unsynced puts, buffered and direct, and explicit WAL flushes, on a disk
    /// limited to 240 writes a second and on the disk of the target directory
    #[arg(long, conflicts_with = "count_only")]
    modes: bool,
    /// An already built db_bench [default: build it]
    #[arg(long, value_name = "FILE")]
    driver: Option<PathBuf>,
    /// Wait for the end of a run and clean up after it
    #[arg(long, hide = true)]
    watch: bool,
}

/// Why there is no result.
pub(crate) enum Stop {
    /// The machine lacks these requirements.
    Needs(Vec<String>),
    Failed(String),
}

impl From<String> for Stop {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let done = if arguments.watch {
        watch::wait(&folder())
    } else {
        guarded(arguments)
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Failed(message)) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
        Err(Stop::Needs(needs)) => {
            eprintln!("bench-device needs:");
            for need in needs {
                eprintln!("  - {need}");
            }
            ExitCode::from(2)
        }
    }
}

/// The folder of images, mount points and reports.
fn folder() -> PathBuf {
    let target = xtask::root().join("target");
    // The kernel names backing files by their canonical path.
    let target = fs::canonicalize(&target).unwrap_or(target);
    target.join("bench-device")
}

/// Measures, and sweeps before and after.
fn guarded(arguments: &Arguments) -> Result<(), Stop> {
    let fs = requirements(&arguments.fs)?;
    let dir = folder();
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let _lock = watch::lock(&dir)?;
    for left in disk::sweep(&dir)? {
        eprintln!("removed {left}, left by a run that crashed");
    }
    let (driver, peer) = programs(arguments)?;
    let watcher = watch::Watcher::start(&["bench-device", "--watch"])?;
    let session = Session {
        arguments,
        fs,
        driver,
        peer,
        clock: SystemClock::shared(),
        dir: dir.clone(),
    };
    let measured = if arguments.count_only {
        session.count()
    } else if arguments.modes {
        modes::measure(&session)
    } else {
        session.measure()
    };
    let swept = disk::sweep(&dir);
    if swept.is_ok() {
        watcher.dismiss()?;
    }
    measured?;
    swept?;
    Ok(())
}

/// Checks the requirements; returns the file systems that can be made.
fn requirements(wanted: &[Fs]) -> Result<Vec<Fs>, Stop> {
    let mut needs = Vec::new();
    if !cfg!(target_os = "linux") {
        needs.push("Linux".to_owned());
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !is_root(&status) {
        needs.push("root, for loop devices and mounts: run it with sudo".to_owned());
    }
    if !Path::new("/dev/loop-control").exists() {
        needs.push(
            "loop devices (/dev/loop-control): modprobe loop; in a container, --privileged"
                .to_owned(),
        );
    }
    let tools = [
        ("losetup", "mount"),
        ("mount", "mount"),
        ("umount", "mount"),
        ("setpriv", "util-linux"),
        ("timeout", "coreutils"),
    ];
    for (tool, package) in tools {
        if !is_installed(tool) {
            needs.push(format!("{tool}: apt-get install {package}"));
        }
    }
    let (there, missing): (Vec<Fs>, Vec<Fs>) =
        wanted.iter().partition(|fs| is_installed(fs.maker().0));
    let missing: Vec<String> = missing
        .iter()
        .map(|fs| {
            let (maker, package) = fs.maker();
            format!("{maker}: apt-get install {package}")
        })
        .collect();
    if there.is_empty() {
        needs.extend(missing);
    } else {
        for what in missing {
            eprintln!("skipped a file system: needs {what}");
        }
    }
    if needs.is_empty() {
        Ok(there)
    } else {
        Err(Stop::Needs(needs))
    }
}

/// Whether `/proc/self/status` says that the effective user is root: `Uid: real effective …`.
pub(crate) fn is_root(status: &str) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .and_then(|ids| ids.split_whitespace().nth(1))
        == Some("0")
}

/// Whether a program is in `PATH`, or where Debian keeps the programs for root.
pub(crate) fn is_installed(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|dir| dir.join(tool).is_file())
}

/// db_bench, and RocksDB's library, which a quick check does not need.
fn programs(arguments: &Arguments) -> Result<(PathBuf, Option<PathBuf>), Stop> {
    let peer = if arguments.count_only {
        let peer = xtask::root().join(xtask::peers::PEER);
        let there = peer.is_file();
        if !there {
            eprintln!("without RocksDB: cargo xtask peers fetches it");
        }
        there.then_some(peer)
    } else {
        Some(xtask::peers::ensure(false)?)
    };
    let driver = match &arguments.driver {
        Some(driver) => {
            fs::canonicalize(driver).map_err(|e| format!("--driver {}: {e}", driver.display()))?
        }
        // Counts do not depend on optimisation, and tests have a debug build already.
        None => crate::driver::build(!arguments.count_only)?,
    };
    Ok((driver, peer))
}

/// The state that all runs share.
struct Session<'a> {
    arguments: &'a Arguments,
    fs: Vec<Fs>,
    driver: PathBuf,
    peer: Option<PathBuf>,
    clock: Arc<dyn Clock>,
    dir: PathBuf,
}

impl Session<'_> {
    /// Measures everything that the arguments request; prints and writes the report.
    fn measure(&self) -> Result<(), Stop> {
        let mut report = Report::default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        report.notes.push(format!(
            "Linux {}, {} processors; db_bench fillsync, 16-byte keys, 100-byte values, {}",
            kernel.trim(),
            std::thread::available_parallelism().map_or(1, usize::from),
            self.flags().join(" ")
        ));
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        report.notes.push(format!(
            "load average at the start {}: times of a busy machine mean little, counts are exact",
            load.split(' ').next().unwrap_or_default()
        ));
        if self.arguments.own {
            let (disk, cache) = Disk::own(&self.dir)?;
            self.disk(&disk, ("own", cache), None, &mut report)?;
        }
        let slow = self.slow(&mut report);
        for &fs in &self.fs {
            for &cache in &self.arguments.cache {
                eprintln!("making a device: {} {}", fs.name(), cache.name());
                let disk = Disk::make(&self.dir, fs.name(), fs, cache, self.arguments.image_mib)?;
                let names = (fs.name(), cache.name());
                self.disk(&disk, names, None, &mut report)?;
                if let Some(controller) = &slow {
                    let number = disk.number()?;
                    controller.limit(&number, SLOW)?;
                    let done = self.disk(&disk, names, Some(SLOW), &mut report);
                    controller.release(&number)?;
                    done?;
                }
                disk::sweep(&self.dir)?;
            }
        }
        print!("{}", report.table());
        for (name, text) in [("report.tsv", report.tsv()), ("report.json", report.json())] {
            let path = self.dir.join(name);
            fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
            println!("written: {}", path.display());
        }
        Ok(())
    }

    /// The controller that limits the slow disk, if one is requested and available.
    fn slow(&self, report: &mut Report) -> Option<Controller> {
        if !self.arguments.slow {
            return None;
        }
        match Controller::find() {
            Ok(controller) => {
                let how = controller.describe();
                report.notes.push(format!("{SLOW}/s by {how}"));
                Some(controller)
            }
            Err(needs) => {
                eprintln!("skipped the slow disk: needs {needs}");
                report.notes.push(format!("no slow disk: needs {needs}"));
                None
            }
        }
    }

    /// Measures all thread counts on one device.
    fn disk(
        &self,
        disk: &Disk,
        (fs, cache): (&'static str, &'static str),
        limit: Option<u32>,
        report: &mut Report,
    ) -> Result<(), String> {
        let puts = match limit {
            None => self.arguments.num,
            Some(_) => self.arguments.slow_num,
        };
        for &threads in &self.arguments.threads {
            let case = Case {
                fs,
                cache,
                limit,
                threads,
                puts,
            };
            for number in 0..self.arguments.pairs {
                let pair = self.pair(disk, &case, number)?;
                eprintln!(
                    "{}, {threads} threads, {}/{}: raw {:.1} µs, Ironstone {:.1} µs, RocksDB {:.1} µs; \
                     puts a second {:.2} times RocksDB's; p99.9 {:.0}, {:.0}, {:.0}; p99.99 {:.0}, {:.0}, {:.0}",
                    case.disk(),
                    number + 1,
                    self.arguments.pairs,
                    pair.floor.micros,
                    pair.ironstone.micros,
                    pair.rocksdb.micros,
                    pair.ironstone.per_second / pair.rocksdb.per_second,
                    pair.floor.p999,
                    pair.ironstone.p999,
                    pair.rocksdb.p999,
                    pair.floor.p9999,
                    pair.ironstone.p9999,
                    pair.rocksdb.p9999
                );
                report.add(case.clone(), &pair);
            }
        }
        Ok(())
    }

    fn pair(&self, disk: &Disk, case: &Case, number: u32) -> Result<Pair, String> {
        let peer = self.peer.clone().ok_or("RocksDB is not there")?;
        let rocksdb = Engine::RocksDb(peer);
        let mut floor = self.floor(disk)?;
        let ironstone = self
            .run(disk, &Engine::Ironstone, case.threads, case.puts, number)
            .beside(&mut floor)?;
        let mut rocksdb_floor = self.floor(disk)?;
        let rocksdb = self
            .run(disk, &rocksdb, case.threads, case.puts, number)
            .beside(&mut rocksdb_floor)?;
        Ok(Pair {
            floor: floor.figures(),
            halves: floor.halves(),
            ironstone,
            rocksdb_floor: rocksdb_floor.figures(),
            rocksdb,
        })
    }

    fn floor<'d>(&self, disk: &'d Disk) -> Result<Floor<'d>, String> {
        Floor::make(&disk.mount, &disk.counters, Arc::clone(&self.clock))
    }

    fn run<'d>(
        &'d self,
        disk: &'d Disk,
        engine: &'d Engine,
        threads: u32,
        puts: u64,
        pair: u32,
    ) -> Run<'d> {
        Run {
            benchmark: "fillsync",
            driver: &self.driver,
            engine,
            mount: &disk.mount,
            counters: &disk.counters,
            threads,
            puts,
            seed: 1000 + pair,
            flags: self.flags(),
            seconds: self.arguments.run_seconds,
        }
    }

    /// The flags for both engines, in addition to the benchmark.
    fn flags(&self) -> Vec<String> {
        let bytes = u64::from(self.arguments.write_buffer_mib) << 20;
        let mut flags = vec![format!("--write_buffer_size={bytes}")];
        flags.extend(self.arguments.flags.iter().cloned());
        flags
    }

    /// The quick check, which counts only operations: writes on the write-through device, flushes
    /// on the write-back one.
    fn count(&self) -> Result<(), Stop> {
        let fs = self.fs.first().copied().unwrap_or(Fs::Ext4);
        for cache in [Cache::WriteBack, Cache::WriteThrough] {
            let disk = Disk::make(&self.dir, fs.name(), fs, cache, self.arguments.image_mib)?;
            let mut floor = self.floor(&disk)?;
            floor.slice(COUNT_PUTS, self.arguments.run_seconds)?;
            let raw = floor.figures();
            drop(floor);
            let count = |engine: &Engine| self.run(&disk, engine, 1, COUNT_PUTS, 0).go();
            let mut sides = vec![("raw", raw), ("ironstone", count(&Engine::Ironstone)?)];
            if let Some(peer) = &self.peer {
                let engine = Engine::RocksDb(peer.clone());
                sides.push(("rocksdb", count(&engine)?));
            }
            for (name, figures) in sides {
                let each = figures.each;
                println!(
                    "{} {} {name}: writes/put {} flushes/put {:.2} requests/put {:.2} KiB/put {:.2}",
                    fs.name(),
                    cache.name(),
                    report::writes(each.writes()),
                    each.flushes,
                    each.requests,
                    each.bytes() / 1024.0
                );
            }
            disk::sweep(&self.dir)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_user_counts() {
        assert!(is_root("Name:\tx\nUid:\t1000\t0\t0\t0\nGid:\t0\t0\t0\t0\n"));
        assert!(!is_root("Uid:\t0\t1000\t0\t0\n"));
        assert!(!is_root(""));
    }

    #[test]
    fn programs_are_looked_for_in_the_path() {
        assert!(is_installed("sh"));
        assert!(!is_installed("no-such-program-anywhere"));
    }
}
