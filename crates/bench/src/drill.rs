//! `cargo xtask soak drill`: the guarantees when processes are killed and the network is cut, with
//! real processes under load.
//!
//! | part | action | guarantee |
//! |---|---|---|
//! | kills | SIGKILL of the leader's store | the length of the longest gap |
//! | partitions | the leader is cut off: both ways, or one way | the length of the longest gap; it serves no read |
//! | all | SIGKILL of all processes at once | nothing that was answered is lost |
//!
//! Clients of the NBD server read and write the same few blocks all the time, and every history
//! must be linearizable. Each part has a separate cluster; at the end all blocks are read back, and
//! all stores are checked.

mod client;
mod cluster;
mod load;
mod net;
mod probe;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::clock::{Clock, SystemClock};
use base::rng::Rng;
use indicatif::{ProgressBar, ProgressStyle};
use xtask::cargo;

use crate::spread::Spread;
use cluster::{Cluster, Plan};
use load::{Gaps, Load};
use net::{Cut, Net};
use probe::{Found, Probe};

/// The number of answers after which service counts as resumed.
const RESUMED_ANSWERS: u64 = 50;
/// How long a store stays cut off: longer than the longest allowed gap.
const CUT: Duration = Duration::from_secs(5);
/// After this time no lease is left: the least time of an election. Later requests have no answer.
const LEASE: Duration = Duration::from_secs(1);
/// The number of failures between two checks of the history.
const CHECK_EVERY: u32 = 20;

/// Kill and isolate processes of a cluster under load, and check the answers to its clients.
///
/// Exits with 1 if a check fails, and names the seed and the operation. The network is cut with namespaces
/// and nft, which needs root; without root, this part is skipped with a message.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many times the leader's store is killed
    #[arg(long, default_value_t = 20)]
    kills: u32,
    /// How many times the leader is isolated: both ways, deaf, mute, in turn
    #[arg(long, default_value_t = 20)]
    partitions: u32,
    /// How many times all processes are killed at once
    #[arg(long, default_value_t = 200)]
    all: u32,
    /// The seed of the random times and blocks
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The longest allowed gap after the leader was killed or isolated, in ms
    #[arg(long, default_value_t = 3000)]
    gap_ms: u32,
    /// Size of the volume in MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(16..))]
    volume_mib: u64,
    /// The program ironstone-block; if not given, it is built with optimisation
    #[arg(long)]
    program: Option<PathBuf>,
    /// The directory of the clusters, on a disk
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// One part of a run.
struct Part<'a> {
    name: &'static str,
    times: u32,
    arguments: &'a Arguments,
    clock: Arc<dyn Clock>,
    cluster: Cluster,
    load: Load,
    rng: Rng,
    bar: ProgressBar,
    gaps: Vec<Gaps>,
    /// Reads that direct clients sent to leaders that were cut off.
    asked: u64,
    served_early: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => cargo::program("ironstone-block-cli", "ironstone-block", Some("release"))?,
    };
    let is_interrupted = Arc::new(AtomicBool::new(false));
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        signal_hook::flag::register(signal, Arc::clone(&is_interrupted))
            .map_err(|e| format!("signals: {e}"))?;
    }
    let parent = arguments.dir.clone();
    let parent = parent.unwrap_or_else(|| xtask::root().join("target/drill"));
    let dir = parent.join(std::process::id().to_string());
    let made = std::fs::create_dir_all(&dir).and_then(|()| dir.canonicalize());
    let dir = made.map_err(|e| format!("{}: {e}", dir.display()))?;
    let outcome = parts(arguments, &program, &dir, &is_interrupted);
    let is_kept = outcome.is_err() && !is_interrupted.load(Ordering::Relaxed);
    if is_kept {
        eprintln!("what the processes said, and the stores: {}", dir.display());
    } else {
        std::fs::remove_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    outcome.map_err(|e| format!("seed {}: {e}", arguments.seed))
}

fn parts(
    arguments: &Arguments,
    program: &Path,
    dir: &Path,
    is_interrupted: &Arc<AtomicBool>,
) -> Result<(), String> {
    println!(
        "part          times   median gap    worst gap   reads' worst  writes' worst  slowest operation  operations"
    );
    let start = |name, times, groups, net| {
        Part::start(
            name,
            times,
            groups,
            net,
            (arguments, program, dir),
            is_interrupted,
        )
    };
    if arguments.kills > 0 {
        start("kills", arguments.kills, 1, None)?.run(Part::kill_leader)?;
    }
    match net::lacking().filter(|_| arguments.partitions > 0) {
        Some(why) => println!("partitions    left out: {why}"),
        None if arguments.partitions > 0 => {
            let net = Net::new(3)?;
            start("partitions", arguments.partitions, 1, Some(net))?.run(Part::cut_leader)?;
        }
        None => {}
    }
    if arguments.all > 0 {
        start("all", arguments.all, 3, None)?.run(Part::kill_all)?;
    }
    Ok(())
}

impl<'a> Part<'a> {
    fn start(
        name: &'static str,
        times: u32,
        groups: u32,
        net: Option<Net>,
        (arguments, program, dir): (&'a Arguments, &Path, &Path),
        is_interrupted: &Arc<AtomicBool>,
    ) -> Result<Self, String> {
        let clock = SystemClock::shared();
        let volume_bytes = arguments.volume_mib << 20;
        let plan = Plan {
            program,
            dir: dir.join(name),
            volume_bytes,
            groups,
            net,
        };
        let cluster = Cluster::start(plan, &clock, is_interrupted)?;
        let load = Load::start(&clock, &cluster.socket(), volume_bytes, arguments.seed)?;
        let bar = ProgressBar::new(u64::from(times)).with_message(name);
        let style = "{msg} [{bar:30}] {pos}/{len}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style.progress_chars("=> "));
        }
        Ok(Self {
            name,
            times,
            arguments,
            clock,
            cluster,
            load,
            rng: Rng::new(arguments.seed),
            bar,
            gaps: Vec::new(),
            asked: 0,
            served_early: 0,
        })
    }

    /// Repeats an action as often as requested, and then checks everything.
    fn run(
        mut self,
        mut fail: impl FnMut(&mut Self, u32) -> Result<(), String>,
    ) -> Result<(), String> {
        for nth in 1..=self.times {
            let done = self.work(50).and_then(|()| fail(&mut self, nth));
            done.map_err(|e| format!("{}, number {nth} of {}: {e}", self.name, self.times))?;
            if nth % CHECK_EVERY == 0 {
                self.load.check()?;
            }
            self.bar.inc(1);
        }
        let name = self.name;
        let in_part = |e| format!("{name}, at the end: {e}");
        self.work(50).map_err(in_part)?;
        self.cluster.catch_up().map_err(in_part)?;
        self.load.stop();
        self.load.read_back().map_err(in_part)?;
        let tally = self.load.check().map_err(in_part)?;
        self.cluster.end().map_err(in_part)?;
        self.cluster.check_stores().map_err(in_part)?;
        self.bar.finish_and_clear();
        let spread = |of: &dyn Fn(&Gaps) -> f64| Spread::of(self.gaps.iter().map(of));
        let (gap, slowest) = (spread(&Gaps::worst), spread(&|g| g.slowest));
        let (reads, writes) = (spread(&|g| g.reads), spread(&|g| g.writes));
        println!(
            "{:<12} {:>6} {:>9.0} ms {:>9.0} ms {:>11.0} ms {:>11.0} ms {:>15.0} ms {:>11}",
            self.name,
            self.times,
            gap.median,
            gap.high,
            reads.high,
            writes.high,
            slowest.high,
            tally.operations
        );
        let (answered, open) = self.load.writes();
        println!(
            "             linearizable; {answered} writes were answered and are there, {open} were not answered; \
             all stores are whole"
        );
        if self.asked > 0 {
            println!(
                "             leaders that were cut off were asked {} times, answered {} within their lease, and none \
                 later",
                self.asked, self.served_early
            );
        }
        Ok(())
    }

    fn now(&self) -> u64 {
        self.clock.monotonic_nanos()
    }

    /// Lets clients work until they have this many more answers, and for a random time.
    fn work(&mut self, answers: u64) -> Result<(), String> {
        let goal = self.load.answers()? + answers;
        self.cluster.wait("clients are answered", |_| {
            self.load.answers().map_or(true, |n| n >= goal)
        })?;
        self.load.answers()?;
        let pause = Duration::from_millis(self.rng.below(500));
        self.cluster.pause(pause)
    }

    /// Judges the time since `since`.
    fn judge(&mut self, since: u64) -> Result<(), String> {
        self.load.answers()?;
        let gaps = self.load.gaps(since, self.now());
        self.gaps.push(gaps);
        if gaps.worst() > f64::from(self.arguments.gap_ms) {
            return Err(format!("a gap is too long, in ms: {gaps:?}"));
        }
        Ok(())
    }

    fn kill_leader(&mut self, _: u32) -> Result<(), String> {
        let leader = self.cluster.leader()?;
        let since = self.now();
        self.cluster.kill_store(leader);
        self.work(RESUMED_ANSWERS)?;
        self.cluster.start_store(leader)?;
        self.cluster.catch_up()?;
        self.judge(since)
    }

    fn kill_all(&mut self, _: u32) -> Result<(), String> {
        let since = self.now();
        self.cluster.kill_all();
        self.load.next_server();
        self.cluster.start_all()?;
        let goal = self.load.answers()? + RESUMED_ANSWERS;
        self.cluster.wait("clients are answered", |_| {
            self.load.answers().map_or(true, |n| n >= goal)
        })?;
        self.load.answers()?;
        // The gap is reported, but its length is not guaranteed.
        self.gaps.push(self.load.gaps(since, self.now()));
        Ok(())
    }

    fn cut_leader(&mut self, nth: u32) -> Result<(), String> {
        let leader = self.cluster.leader()?;
        let cut = Cut::ALL[(nth as usize - 1) % Cut::ALL.len()];
        let address = self.cluster.address(leader).ok_or("no address")?;
        let space = Net::store(leader);
        let volume_bytes = self.arguments.volume_mib << 20;
        let connect = || Probe::connect(&self.clock, address, volume_bytes);
        let probe = net::inside(Some(&space), connect)??;
        let (is_ended, last_asked) = (AtomicBool::new(false), AtomicU64::new(0));
        let (shared, seed) = (self.load.shared(), self.rng.next_u64());
        let (cluster, clock) = (&self.cluster, &self.clock);
        // Until then it may serve by its lease.
        let mut since = 0;
        let mut healed = 0;
        let found: Result<Found, String> = std::thread::scope(|scope| {
            let asking = scope.spawn(|| probe.run(&shared, seed, &is_ended, &last_asked));
            let isolated = (|| {
                Net::cut(leader, cut)?;
                since = clock.monotonic_nanos();
                let paused = cluster.pause(CUT);
                healed = clock.monotonic_nanos();
                paused
            })();
            is_ended.store(true, Ordering::SeqCst);
            let found = asking
                .join()
                .unwrap_or_else(|p| std::panic::resume_unwind(p));
            isolated?;
            found
        });
        Net::heal(leader, cut)?;
        let found = found.map_err(|e| format!("store {leader}, {cut:?}: {e}"))?;
        let free_from = since + LEASE.as_nanos() as u64;
        if last_asked.load(Ordering::SeqCst) < free_from {
            return Err(format!(
                "store {leader}, {cut:?}: it was not asked beyond its lease"
            ));
        }
        let late = found.served.iter().find(|s| s.asked > free_from);
        if let Some(late) = late {
            return Err(format!(
                "store {leader} was cut off ({cut:?}) and served a read {} ms after that: {late:?}",
                (late.asked - since) / 1_000_000
            ));
        }
        self.asked += found.asked;
        self.served_early += found.served.iter().filter(|s| s.answered > since).count() as u64;
        self.cluster.catch_up()?;
        self.judge(since)
            .map_err(|e| format!("store {leader}, {cut:?}: {e}"))
    }
}
