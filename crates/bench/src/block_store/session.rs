//! Runs a task: disks, targets on them, alternating works; results are stored as they come.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::clock::{Clock, SystemClock};
use io::{OpenHow, SyncKind};

use super::data::{Device, Measurement, Missing, Report, Settings};
use super::fio::{self, Figures, Job, Until, Where};
use super::metrics::Counts;
use super::outputs;
use super::place::{Disks, Place};
use super::plan::{self, Task, Turns, Work};
use super::probe;
use super::process;
use super::target::{Absent, Kind, Setup, Target};
use crate::device::Stop;
use crate::device::stat::Stat;
use crate::suites::files::Files;
use crate::suites::progress::{Progress, Timed};
use crate::suites::session::Interrupt;

/// How long a target may take to write back its dirty blocks.
const SETTLE: Duration = Duration::from_secs(120);
/// How long a target must be idle to be considered done with writing back: between jobs, and if all
/// device operations are counted. A store makes a checkpoint every 30 seconds.
const STILL: Duration = Duration::from_secs(2);
const STILL_COUNTED: Duration = Duration::from_secs(40);
const LOOK: Duration = Duration::from_millis(200);

/// Bytes of each file that is written without a server.
const FILE_BYTES: u64 = 256 << 20;
/// The assumed bytes of a log's batch at a large queue depth, if no store has reported it.
const DEEP_BATCH_BYTES: u64 = 64 << 10;

/// The settings that all runs of a command share.
pub(super) struct Session<'a> {
    pub(super) task: Task,
    pub(super) disks: Vec<Disks>,
    pub(super) targets: Vec<Kind>,
    /// The queue depths of the jobs to run; empty means all.
    pub(super) depths: Vec<u32>,
    pub(super) image_mib: u64,
    /// The folder of this command, with disks and other files.
    pub(super) dir: &'a Path,
    pub(super) files: &'a Files,
    pub(super) interrupt: &'a Interrupt,
    pub(super) ironstone: Result<PathBuf, String>,
    pub(super) qemu_nbd: PathBuf,
}

impl Session<'_> {
    /// Measures, and fills the report; measurements before a failure stay in it.
    pub(super) fn measure(&self, report: &mut Report) -> Result<(), Stop> {
        let mut measured = Ok(());
        for disks in &self.disks {
            measured = self.on(*disks, report);
            if measured.is_err() {
                break;
            }
        }
        match measured {
            Ok(()) => {
                report.complete = true;
                report.problem = None;
            }
            Err(Stop::Needs(needs)) => report.problem = Some(needs.join("; ")),
            Err(Stop::Failed(problem)) => {
                let problem = self.interrupt.check().err().unwrap_or(problem);
                report.problem = Some(problem.trim().to_owned());
            }
        }
        outputs::write(self.task, report, self.files)
    }

    /// Measures on one kind of disks.
    fn on(&self, disks: Disks, report: &mut Report) -> Result<(), Stop> {
        eprintln!("{}: making room for three copies", disks.name());
        let place = Place::make(disks, self.dir, self.image_mib)?;
        let done = self.on_place(&place, report);
        let ended = place.end(self.dir);
        done?;
        ended?;
        Ok(())
    }

    fn on_place(&self, place: &Place, report: &mut Report) -> Result<(), Stop> {
        let beside = self.dir.join("beside");
        fs::create_dir_all(&beside).map_err(|e| format!("{}: {e}", beside.display()))?;
        let wanted = self.task.targets(place.disks).iter();
        let wanted: Vec<Kind> = wanted
            .copied()
            .filter(|k| self.targets.contains(k))
            .collect();
        let settings = report.settings.clone();
        space(&place.copies, &wanted, settings.size_bytes)?;
        let mut targets = Vec::new();
        for kind in wanted {
            targets.extend(self.target(kind, place, &beside, report)?);
        }
        let kinds: Vec<Kind> = targets.iter().map(|t| t.kind).collect();
        let mut turns = self.task.turns(place.disks, &kinds, &settings);
        turns.retain(|t| t.is_of(&self.depths));
        let runs: usize = turns.iter().map(|t| t.works.len()).sum();
        let runs = runs as u64 * u64::from(settings.pairs);
        let timed = Timed {
            left: runs,
            seconds: settings.seconds,
        };
        let mut run = Run {
            session: self,
            place,
            beside: &beside,
            targets: &targets,
            clock: SystemClock::shared(),
            progress: Progress::new(runs, timed),
            settings,
        };
        let done = turns.iter().try_for_each(|turns| run.pairs(turns, report));
        run.progress.end();
        done
    }

    /// Starts a target and fills its volume. `None` if the program does not have it, which is
    /// recorded.
    fn target(
        &self,
        kind: Kind,
        place: &Place,
        beside: &Path,
        report: &mut Report,
    ) -> Result<Option<Target>, Stop> {
        let [a, b, c] = &place.copies;
        let setup = Setup {
            copies: [a, b, c],
            beside,
            size: report.settings.size_bytes,
            ironstone: &self.ironstone,
            qemu_nbd: &self.qemu_nbd,
        };
        let target = match Target::start(kind, &setup) {
            Ok(target) => target,
            Err(Absent::NotBuilt(why)) => {
                eprintln!("{}: not built: {why}", kind.name());
                report.absent.push(Missing {
                    disks: place.disks.name().to_owned(),
                    target: kind,
                    why,
                });
                return Ok(None);
            }
            Err(Absent::Failed(why)) => return Err(format!("{}: {why}", kind.name()).into()),
        };
        if kind.copies() > 0 {
            eprintln!("{}: filling the volume", kind.name());
            let job = Job::new("write", 1 << 20, 8);
            let range = report.settings.range_bytes;
            let at = Where::Uri(&target.uri);
            fio::run(&job, &at, range, Until::Bytes(range), beside)
                .map_err(|e| named(e, &format!("{}, filling", kind.name())))?;
        }
        self.interrupt.check()?;
        Ok(Some(target))
    }
}

/// Checks the space for the volumes. A store also has a log.
fn space(copies: &[PathBuf; 3], kinds: &[Kind], size: u64) -> Result<(), Stop> {
    let each = |kind: &Kind| match kind {
        kind if kind.is_ironstone() => size + size / 8 + (1 << 30),
        kind if kind.copies() > 0 => size,
        _ => 0,
    };
    let one_disk = copies[0] == copies[1];
    let count = |kind: &Kind| if one_disk { kind.copies() } else { 1 };
    let needed: u64 = kinds.iter().map(|k| each(k) * count(k)).sum();
    let path = &copies[0];
    let stat = rustix::fs::statvfs(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let free = stat.f_bavail * stat.f_frsize;
    if needed <= free {
        return Ok(());
    }
    let mib = |bytes: u64| bytes >> 20;
    Err(Stop::Needs(vec![format!(
        "room for the volumes: {} MiB in {}, which has {} MiB; a smaller --size, fewer --targets, \
         another --dir, or a larger --image-mib",
        mib(needed),
        path.display(),
        mib(free)
    )]))
}

fn named(stop: Stop, what: &str) -> Stop {
    match stop {
        Stop::Failed(message) => Stop::Failed(format!("{what}: {message}")),
        needs @ Stop::Needs(_) => needs,
    }
}

/// A task on one kind of disks.
struct Run<'a> {
    session: &'a Session<'a>,
    place: &'a Place,
    /// For files that are not measured.
    beside: &'a Path,
    targets: &'a [Target],
    clock: Arc<dyn Clock>,
    progress: Progress,
    settings: Settings,
}

/// Counters from before a job.
struct Before {
    cpu: f64,
    counts: Counts,
    stat: Option<Stat>,
}

impl Run<'_> {
    fn pairs(&mut self, turns: &Turns, report: &mut Report) -> Result<(), Stop> {
        for pair in 1..=self.settings.pairs {
            let mut works: Vec<&(Work, Kind)> = turns.works.iter().collect();
            // The first work finds caches and device in a different state from the second.
            if pair % 2 == 0 {
                works.reverse();
            }
            let mut told = Vec::new();
            for (work, kind) in works {
                let name = format!("{}, {}", kind.name(), Self::name(work));
                self.progress
                    .begin(&format!("{name} {pair}/{}", self.settings.pairs));
                let measured = self
                    .work(work, *kind, pair, turns.is_counted, report)
                    .map_err(|e| named(e, &name))?;
                self.progress.ran(true);
                told.push(format!(
                    "{name}: {:.0}/s, p50 {:.0} µs",
                    measured.per_second, measured.p50_micros
                ));
                report.measurements.push(measured);
                self.session.interrupt.check()?;
            }
            if !told.is_empty() {
                self.progress
                    .result(&format!("pair {pair}: {}", told.join("; ")));
            }
            outputs::write(self.session.task, report, self.session.files)?;
        }
        Ok(())
    }

    fn name(work: &Work) -> String {
        match work {
            Work::Job { job, .. } => job.name.clone(),
            Work::Pattern(job) => plan::pattern(&job.name),
            Work::Sequential => plan::SEQUENTIAL.named().name,
            Work::Writers => plan::WRITERS.to_owned(),
            Work::Ping => plan::PING.to_owned(),
        }
    }

    fn work(
        &self,
        work: &Work,
        kind: Kind,
        pair: u32,
        is_counted: bool,
        report: &Report,
    ) -> Result<Measurement, Stop> {
        let seconds = self.settings.seconds;
        let figures = match work {
            Work::Job { job, until } => return self.job(job, *until, kind, pair, is_counted),
            Work::Pattern(job) => self.pattern(job, report)?,
            Work::Sequential => {
                let file = self.file(0, FILE_BYTES * 4)?;
                let at = Where::Files {
                    paths: vec![&file],
                    sync: false,
                };
                let job = plan::SEQUENTIAL.named();
                fio::run(
                    &job,
                    &at,
                    FILE_BYTES * 4,
                    Until::Seconds(seconds),
                    self.beside,
                )?
            }
            // Rounds are short and many: a tenth of the time suffices.
            Work::Writers => probe::three_writers(&self.place.copies, seconds.div_ceil(10))?,
            Work::Ping => probe::ping(seconds.div_ceil(10), self.beside)?,
        };
        let disks = self.place.disks.name();
        Ok(Measurement::new(
            disks,
            kind,
            &Self::name(work),
            pair,
            figures,
        ))
    }

    /// Three writers, each with a file on a copy's disk, with writes of the same size as the log's
    /// under this job.
    fn pattern(&self, job: &Job, report: &Report) -> Result<Figures, Stop> {
        let case = (self.place.disks.name(), Kind::Background, job.name.as_str());
        let seen = report
            .spread(case, |m| m.log_batch_bytes)
            .map(|s| s.median as u64);
        let bytes = match seen {
            Some(bytes) => bytes.next_multiple_of(512),
            None if job.depth == 1 => u64::from(probe::BATCH_BYTES),
            None => DEEP_BATCH_BYTES,
        };
        let range = FILE_BYTES / bytes * bytes;
        let files: Vec<PathBuf> = (0..3)
            .map(|copy| self.file(copy, FILE_BYTES))
            .collect::<Result<_, _>>()?;
        let at = Where::Files {
            paths: files.iter().map(PathBuf::as_path).collect(),
            sync: true,
        };
        let write = Job::new("write", bytes, 1);
        fio::run(
            &write,
            &at,
            range,
            Until::Seconds(self.settings.seconds),
            self.beside,
        )
    }

    /// A file of zeros on a copy's disk, which is made once.
    fn file(&self, copy: usize, bytes: u64) -> Result<PathBuf, Stop> {
        let folder = self
            .place
            .copies
            .get(copy)
            .map_or(self.beside, PathBuf::as_path);
        let path = folder.join(format!("file-{copy}-{}", bytes >> 20));
        if path.metadata().is_ok_and(|m| m.len() == bytes) {
            return Ok(path);
        }
        let write = || {
            let file = io::posix::Posix::shared().open(&path, OpenHow::CREATE_TRUNCATE)?;
            file.zero(0, bytes)?;
            file.sync(SyncKind::All)
        };
        write().map_err(|e: base::Error| e.to_string())?;
        Ok(path)
    }

    fn job(
        &self,
        job: &Job,
        until: Until,
        kind: Kind,
        pair: u32,
        is_counted: bool,
    ) -> Result<Measurement, Stop> {
        let found = self.targets.iter().find(|t| t.kind == kind);
        let target = found.ok_or_else(|| format!("{} does not run", kind.name()))?;
        self.settle(target, if is_counted { STILL_COUNTED } else { STILL })?;
        let pids = target.pids();
        let before = Before {
            cpu: process::cpu_micros(&pids),
            counts: target.counts(),
            stat: self.place.stat()?,
        };
        let at = Where::Uri(&target.uri);
        let figures = fio::run(job, &at, self.settings.range_bytes, until, self.beside)?;
        let cpu = process::cpu_micros(&pids) - before.cpu;
        if is_counted {
            self.settle(target, STILL_COUNTED)?;
        }
        let (counts, stat) = (target.counts(), self.place.stat()?);
        let operations = figures.operations.max(1) as f64;
        let disks = self.place.disks.name();
        let mut measured = Measurement::new(disks, kind, &job.name, pair, figures);
        measured.cpu_micros = Some(cpu / operations);
        measured.store_memory_mib = target.store_memory_mib();
        let copies = operations * kind.copies().max(1) as f64;
        if let Some((now, then)) = stat.zip(before.stat).filter(|_| job.rw.contains("write")) {
            let each = now.each_since(then, copies as u64);
            measured.device = Some(Device {
                requests: each.requests,
                flushes: each.flushes,
                writes: each.writes,
                amplification: each.bytes() / job.block_bytes as f64,
            });
        }
        counted(&mut measured, &counts, &before.counts, copies);
        Ok(measured)
    }

    /// Waits until a target has written back its dirty blocks, so that this does not slow the next
    /// measurement.
    fn settle(&self, target: &Target, still: Duration) -> Result<(), Stop> {
        let dirty = || target.counts().sum("ironstone_block_dirty_bytes");
        let begun = self.clock.monotonic_nanos();
        let (mut last, mut since) = (dirty(), begun);
        while last.is_some_and(|bytes| bytes > 0.0) {
            self.session.interrupt.check()?;
            std::thread::sleep(LOOK);
            let (found, now) = (dirty(), self.clock.monotonic_nanos());
            if found != last {
                (last, since) = (found, now);
            }
            let after = |begun: u64, limit: Duration| u128::from(now - begun) > limit.as_nanos();
            if after(since, still) || after(begun, SETTLE) {
                break;
            }
        }
        rustix::fs::sync();
        Ok(())
    }
}

/// Adds the figures of a job from the stores' own counters.
fn counted(measured: &mut Measurement, now: &Counts, then: &Counts, copies: f64) {
    let batches = now.since(then, "ironstone_block_log_batches_total");
    let bytes = now.since(then, "ironstone_block_log_bytes_total");
    measured.log_writes = batches.map(|batches| batches / copies);
    measured.log_batch_bytes = bytes.zip(batches).map(|(bytes, batches)| bytes / batches);
    measured.log_batch_bytes = measured.log_batch_bytes.filter(|b| b.is_finite());
    let fewest = now.fewest_since(then, "ironstone_block_checkpoints_total");
    let groups = now
        .sum("ironstone_block_leaders")
        .filter(|groups| *groups > 0.0);
    measured.checkpoints = fewest.map(|fewest| fewest / groups.unwrap_or(1.0));
}
