//! Threads that report, each waiting for its answer, and what is measured meanwhile.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::clock::{Clock, SystemClock};
use base::stats::Histogram;
use base::threads::SystemThreads;
use base::{Error, Result};
use serde::Serialize;
use tracks::fleets::Info;
use tracks::model::name::Name;
use tracks::model::point::Point;
use tracks::model::report::Report;
use tracks::model::time::{SECOND, Time};
use tracks::service::{Options, Tracks};
use tracks::write::{Ack, Ticket};

use crate::machine;
use crate::places::{self, Place};
use crate::target::{self, Opened};

/// Samples of the database per second.
const LOOKS: u64 = 10;

/// How it is driven.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file of places that objects go through, again and again
    #[arg(long)]
    places: PathBuf,
    /// Threads that report
    #[arg(long, default_value_t = 80)]
    threads: usize,
    /// Reports of a thread that are on their way at once
    #[arg(long, default_value_t = 1)]
    depth: usize,
    /// Seconds that are measured
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// When a report is answered
    #[arg(long, default_value = "visible")]
    ack: When,
    /// Writes visits, too
    #[arg(long)]
    visits: bool,
    /// Threads of the service that take reports [default: its own]
    #[arg(long)]
    shards: Option<usize>,
    /// The database has all objects already, whose last reports were these before
    #[arg(long, value_name = "REPORTS", default_value_t = 0)]
    behind: i64,
    /// Goes on behind the measured seconds, until it is killed; says so on standard error
    #[arg(long)]
    go_on: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum When {
    Visible,
    Durable,
}

/// The measurements of one second.
#[derive(Debug, Serialize)]
struct Second {
    reports: u64,
    /// Its actual length: sampling takes time, too.
    seconds: f64,
    /// The number of samples at which writes were stopped.
    stopped: u64,
    level0: u64,
    debt: u64,
    /// The share of the machine's processor time that its host gave to others.
    stolen: f64,
}

impl Second {
    /// The share of stolen time up to which a second counts as undisturbed.
    const STOLEN_MAX: f64 = 0.02;

    fn rate(&self) -> f64 {
        self.reports as f64 / self.seconds
    }
}

/// The mean rate of the seconds, and the worst of them over it. Of no seconds: 0.
fn mean_and_worst<'a>(seconds: impl Iterator<Item = &'a Second> + Clone) -> (f64, f64) {
    let length: f64 = seconds.clone().map(|s| s.seconds).sum();
    let reports: u64 = seconds.clone().map(|s| s.reports).sum();
    let mean = reports as f64 / length.max(f64::MIN_POSITIVE);
    let worst = seconds.map(Second::rate).min_by(f64::total_cmp);
    (
        mean,
        worst.map_or(0.0, |worst| worst / mean.max(f64::MIN_POSITIVE)),
    )
}

#[derive(Debug, Serialize)]
struct Results {
    engine: &'static str,
    row: String,
    reports: u64,
    per_second: f64,
    p50_micros: f64,
    p99_micros: f64,
    p99_9_micros: f64,
    longest_micros: f64,
    worst_second: f64,
    /// The share of the machine's processor time that its host gave to others.
    stolen: f64,
    /// Seconds without such a loss, and the worst of them over their mean.
    undisturbed_seconds: usize,
    worst_undisturbed: f64,
    /// How long writes were stopped, by samples each tenth of a second.
    stopped_seconds: f64,
    /// Puts and deletes that the database counted, per report.
    operations_per_report: f64,
    /// The share of reports whose cell differs from that of their object's report before.
    changes: f64,
    level0_max: u64,
    /// Pending compaction bytes at the end, and at half time.
    debt_end: u64,
    debt_half: u64,
    bytes_written: u64,
    memory_max: u64,
    /// Of the whole machine.
    device_writes: u64,
    cpu_seconds: f64,
    load_seconds: f64,
    seconds: Vec<Second>,
}

struct Driver<'a> {
    tracks: &'a Tracks,
    fleet: &'a Info,
    clock: &'a dyn Clock,
    args: &'a Args,
    ends: &'a AtomicBool,
    count: &'a AtomicU64,
}

/// Runs the benchmark. Returns the results as JSON.
pub(crate) fn run(target: &target::Args, args: &Args) -> Result<String> {
    let clock = SystemClock::shared();
    let all = places::read(&args.places, args.threads)?;
    let opened = target.open()?;
    let mut options = Options::default();
    options.write.visits = args.visits;
    options.write.shards = args.shards.unwrap_or(options.write.shards);
    let tracks = Tracks::over(
        Arc::clone(&opened.store),
        &options,
        Arc::clone(&clock),
        &SystemThreads,
    )?;
    let name = Name::new("fleet")?;
    let fleet = tracks.fleets().get_or_make(&*opened.store, &name)?;
    let (ends, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let driver = Driver {
        tracks: &tracks,
        fleet: &fleet,
        clock: &*clock,
        args,
        ends: &ends,
        count: &count,
    };
    let start = clock.monotonic_nanos();
    if args.behind == 0 {
        driver.load(&all)?;
    }
    let load_seconds = (clock.monotonic_nanos() - start) as f64 / 1e9;
    let (io, writes, cpu) = (
        machine::bytes_written(),
        machine::device_writes(),
        machine::cpu_seconds(),
    );
    let operations = opened.operations();
    let processors = machine::ProcessorTime::now();
    let (mut latencies, seconds) = driver.measure(&all, &opened)?;
    let operations = opened.operations() - operations;
    let total: u64 = seconds.iter().map(|s| s.reports).sum();
    let (mean, worst_second) = mean_and_worst(seconds.iter());
    let undisturbed = seconds.iter().filter(|s| s.stolen <= Second::STOLEN_MAX);
    let micros = |latencies: &mut Histogram, p| latencies.percentile(p) / 1000.0;
    let results = Results {
        engine: target.engine(),
        row: format!("{:?}", target.row()),
        reports: total,
        per_second: mean,
        p50_micros: micros(&mut latencies, 50.0),
        p99_micros: micros(&mut latencies, 99.0),
        p99_9_micros: micros(&mut latencies, 99.9),
        longest_micros: latencies.max() as f64 / 1000.0,
        worst_second,
        stolen: machine::ProcessorTime::now().stolen_since(processors),
        undisturbed_seconds: undisturbed.clone().count(),
        worst_undisturbed: mean_and_worst(undisturbed).1,
        stopped_seconds: seconds.iter().map(|s| s.stopped).sum::<u64>() as f64 / LOOKS as f64,
        operations_per_report: operations as f64 / latencies.count() as f64,
        changes: places::changes(&all),
        level0_max: seconds.iter().map(|s| s.level0).max().unwrap_or(0),
        debt_end: seconds.last().map_or(0, |s| s.debt),
        debt_half: seconds.get(seconds.len() / 2).map_or(0, |s| s.debt),
        bytes_written: machine::bytes_written() - io,
        memory_max: machine::memory_max(),
        device_writes: machine::device_writes() - writes,
        cpu_seconds: machine::cpu_seconds() - cpu,
        load_seconds,
        seconds,
    };
    serde_json::to_string(&results).map_err(|e| Error::broken(e.to_string()))
}

impl Driver<'_> {
    /// Loads each object's last place of the recording, because the first one follows it in each
    /// later round.
    fn load(&self, all: &[Vec<Place>]) -> Result<()> {
        let mut seen = std::collections::HashSet::new();
        let mut tickets: Vec<Ticket> = Vec::new();
        let mut reports = Vec::new();
        for place in all.iter().flat_map(|places| places.iter().rev()) {
            if !seen.insert(place.object) {
                continue;
            }
            reports.push(report(place, -1)?);
            if reports.len() == 256 {
                tickets.push(self.send(std::mem::take(&mut reports), Ack::Visible)?);
            }
            if tickets.len() > 64 {
                all_taken(tickets.remove(0))?;
            }
        }
        tickets.push(self.send(reports, Ack::Visible)?);
        tickets.into_iter().try_for_each(all_taken)
    }

    fn send(&self, reports: Vec<Report>, ack: Ack) -> Result<Ticket> {
        self.tracks.report_at(self.fleet, reports, ack, NOW)
    }

    fn measure(&self, all: &[Vec<Place>], opened: &Opened) -> Result<(Histogram, Vec<Second>)> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = all
                .iter()
                .map(|places| scope.spawn(|| self.thread(places)))
                .collect();
            let seconds = self.watch(opened);
            if self.args.go_on {
                eprintln!("goes on");
                self.clock.sleep(Duration::from_secs(3600));
            }
            self.ends.store(true, Ordering::Relaxed);
            let mut latencies = Histogram::new();
            for thread in threads {
                let of_thread = thread
                    .join()
                    .map_err(|_| Error::broken("a thread panicked"))??;
                latencies.merge(&of_thread);
            }
            Ok((latencies, seconds?))
        })
    }

    fn thread(&self, places: &[Place]) -> Result<Histogram> {
        let ack = match self.args.ack {
            When::Visible => Ack::Visible,
            When::Durable => Ack::Durable,
        };
        let mut latencies = Histogram::new();
        let mut on_their_way = std::collections::VecDeque::new();
        // Times rise through all rounds, so that each report is its object's newest.
        for (nth, place) in (self.args.behind..).zip(places.iter().cycle()) {
            if self.ends.load(Ordering::Relaxed) {
                break;
            }
            let start = self.clock.monotonic_nanos();
            on_their_way.push_back((start, self.send(vec![report(place, nth)?], ack)?));
            if on_their_way.len() < self.args.depth {
                continue;
            }
            if let Some((start, ticket)) = on_their_way.pop_front() {
                all_taken(ticket)?;
                latencies.add(self.clock.monotonic_nanos() - start);
                self.count.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(latencies)
    }

    fn watch(&self, opened: &Opened) -> Result<Vec<Second>> {
        let mut seconds = Vec::new();
        let mut last = self.count.load(Ordering::Relaxed);
        let mut begin = self.clock.monotonic_nanos();
        let mut processors = machine::ProcessorTime::now();
        for _ in 0..self.args.seconds {
            let mut stopped = 0;
            for _ in 0..LOOKS {
                self.clock.sleep(Duration::from_millis(1000 / LOOKS));
                stopped += opened.is_stopped()?;
            }
            let now = self.count.load(Ordering::Relaxed);
            let end = self.clock.monotonic_nanos();
            let processors_now = machine::ProcessorTime::now();
            seconds.push(Second {
                reports: now - last,
                seconds: (end - begin) as f64 / 1e9,
                stopped,
                level0: opened.level0()?,
                debt: opened.debt()?,
                stolen: processors_now.stolen_since(processors),
            });
            (last, begin, processors) = (now, end, processors_now);
        }
        Ok(seconds)
    }
}

/// Waits for an answer. Errors: that of the first report that was not taken.
pub(crate) fn all_taken(ticket: Ticket) -> Result<()> {
    let mut outcomes = ticket.wait().outcomes.into_iter();
    outcomes.try_for_each(|outcome| outcome.map(drop))
}

/// The arrival of all reports; their own times are earlier.
pub(crate) const NOW: Time = Time(1_700_000_000 * SECOND);

/// The report of a place; `nth` is its number among all.
pub(crate) fn report(place: &Place, nth: i64) -> Result<Report> {
    let mut point = Point::at(place.position);
    point.speed = Some(place.speed);
    point.course = Some(place.course);
    Ok(Report {
        entity: Name::new(&format!("car-{:07}", place.object))?,
        time: Some(Time(NOW.0 - 1_000_000 * SECOND + nth * 1000)),
        point,
    })
}
