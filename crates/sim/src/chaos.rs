//! Many threads do everything at once, while everything fails now and then.
//!
//! ```text
//!   round   a disk, options drawn from the seed
//!   life    open ── workers and helpers in storms and calm ── close, power cut or SIGKILL
//!   check   what is found when it is opened again is what was promised
//! ```
//!
//! Workers have keys of their own and know which values may be found under them. Helpers flush, compact,
//! drop families, lock the log, resume, and copy. Calls of the disk fail or are slow, and user code panics.
//! These must hold:
//! - no operation takes longer than a bound: a watchdog ends the process with all stacks;
//! - once faults have ended, `resume` is enough for writes to succeed;
//! - a failed open and a close leave no thread;
//! - memtables stay within the limits of the options;
//! - nothing acknowledged is lost that its kind of write promised to keep; merges count once;
//! - without faults, nothing fails.
//!
//! Threads run freely: a seed repeats the options and the faults, not the order of events.

mod arena;
mod callbacks;
mod copies;
mod detached;
mod helper;
mod ingest;
mod ledger;
mod life;
mod trouble;
mod watch;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use base::rng::Rng;

use crate::disk::{Config, SimDisk};
use crate::model::setup::Setup;

pub use watch::Watch;

/// Openings of the database in a round.
const LIVES: u64 = 4;

/// Parts that can be left out, to look for one fault alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Calls of the disk that fail.
    Faults,
    /// User code that panics.
    Panics,
    /// Comparators that panic.
    Comparators,
    /// `write_async`.
    Async,
    /// Callbacks that write.
    CallbacksThatWrite,
    /// Listeners that read.
    ListenersThatRead,
    /// Listeners that write.
    ListenersThatWrite,
    /// Ingested files.
    Ingestion,
    /// Families that are created and dropped.
    Families,
    /// Imported families.
    Imports,
    /// Range deletions.
    Ranges,
    /// `resume` during faults.
    Resume,
    /// Locks of the log, and pauses of background work.
    Pauses,
    /// Changes of options.
    SetOptions,
    /// Checkpoints, backups and secondary instances.
    Copies,
    /// Writes without the log.
    Unlogged,
}

impl Part {
    /// Every part with its name on the command line.
    pub const ALL: [(&'static str, Self); 16] = [
        ("faults", Self::Faults),
        ("panics", Self::Panics),
        ("comparators", Self::Comparators),
        ("async", Self::Async),
        ("callbacks-that-write", Self::CallbacksThatWrite),
        ("listeners-that-read", Self::ListenersThatRead),
        ("listeners-that-write", Self::ListenersThatWrite),
        ("ingestion", Self::Ingestion),
        ("families", Self::Families),
        ("imports", Self::Imports),
        ("ranges", Self::Ranges),
        ("resume", Self::Resume),
        ("pauses", Self::Pauses),
        ("set-options", Self::SetOptions),
        ("copies", Self::Copies),
        ("unlogged", Self::Unlogged),
    ];

    /// The part of this name.
    pub fn named(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().find(|(n, _)| *n == name);
        found.map(|(_, part)| *part)
    }
}

/// The parameters of a round.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Determines options, faults, and what threads do.
    pub seed: u64,
    /// How long it takes, without opening and closing.
    pub time: Duration,
    /// The parts to leave out.
    pub without: Vec<Part>,
    /// Options that are not drawn, as `name=value;…`.
    pub options: String,
}

impl Plan {
    fn has(&self, part: Part) -> bool {
        !self.without.contains(&part)
    }
}

/// Counts over all rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Rounds.
    pub rounds: u64,
    /// Openings.
    pub lives: u64,
    /// Calls of the disk that failed.
    pub faults: u64,
    /// Panics of user code.
    pub panics: u64,
    /// The most memory that the process had, in bytes.
    pub memory: u64,
}

/// Options that every round has.
const FIXED: &str = "create_missing_column_families=true;wal_no_space_wait_ms=100;\
                     wal_slow_io_ms=20;";

/// Runs a round. Errors: the property that did not hold, with the options.
pub fn run(plan: &Plan, watch: &Watch, tally: &mut Tally) -> Result<(), String> {
    let mut rng = Rng::new(plan.seed);
    let config = Config::default()
        .with_sector(if rng.one_in(3) { 4096 } else { 512 })
        .with_atomic_writes(if rng.one_in(2) { 16384 } else { 4096 });
    let threads = 2 + rng.below(5) as usize;
    let interval = if rng.one_in(2) { 10 } else { 0 };
    let options = format!("{FIXED}wal_sync_interval_ms={interval};{}", plan.options);
    let setup = Setup::with(plan.seed, &mut rng, &options);
    let trouble = trouble::Trouble::new(rng.next_u64());
    let quiet = rng.one_in(4) || !(plan.has(Part::Faults) || plan.has(Part::Panics));
    let panics = rng.one_in(2) && !quiet && plan.has(Part::Panics);
    let value_bytes = setup.value_bytes;
    let mut round = life::Round {
        plan,
        watch,
        setup,
        disk: SimDisk::new(config),
        promises: Arc::new(ledger::Promises::new(threads)),
        ledgers: (0..threads)
            .map(|thread| ledger::Ledger::new(thread, value_bytes))
            .collect(),
        helpers: 1 + rng.below(3) as usize,
        found: None,
        quiet,
        panics,
        comparator_panics: panics && rng.one_in(3) && plan.has(Part::Comparators),
        before: "none".to_owned(),
        trouble,
        rng,
    };
    round.trouble.haunt(&round.disk);
    let mut done = Ok(());
    for _ in 0..LIVES {
        tally.lives += 1;
        done = round.live(plan.time / LIVES as u32);
        if done.is_err() {
            break;
        }
    }
    tally.rounds += 1;
    tally.faults += round
        .trouble
        .faults
        .load(std::sync::atomic::Ordering::Relaxed);
    tally.panics += round
        .trouble
        .panics
        .load(std::sync::atomic::Ordering::Relaxed);
    tally.memory = tally.memory.max(watch::resident_bytes());
    if done.is_err() {
        watch.dump();
    }
    done.map_err(|text| {
        format!(
            "{text}\nlast events:\n  {}\n{}",
            watch::notes(),
            watch.context()
        )
    })
}
