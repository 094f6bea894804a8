//! The work of a benchmark's thread: one loop, and the state that all loops share.
//!
//! ```text
//!   write    puts, deletions, replaced keys; the writer beside readers
//!   read     gets, seeks, scans
//!   mixed    reads and writes in one thread
//!   mixgraph gets, puts and scans as a social graph has them
//!   series   time series
//!   ingest   tables made outside
//!   chosen   unique keys that are written or deleted again
//!   levels   puts and compactions that fill every level
//!   ranges   scans of ranges, and what memtables have of them
//!   operands what merging made a value of
//!   bytes    checksums and compression, without a database
//! ```

mod bytes;
mod chosen;
mod ingest;
mod levels;
mod mixed;
mod mixgraph;
mod operands;
mod ranges;
mod read;
mod series;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::Result;
use base::clock::Clock;
use base::rng::Rng;

use crate::benchmarks::{Loop, Meanwhile, Order, Plan, Update};
use crate::databases::Databases;
use crate::engine::{Bounds, Engine};
use crate::flags::Flags;
use crate::keys::{Keys, Sizes, Values, random_number};
use crate::pace::{Pace, Sine};
use crate::stats::Stats;

/// When a thread is done: after its operations or, with a time limit, only after that time.
pub(crate) struct Limit {
    operations: u64,
    done: u64,
    nanos: u64,
    /// The clock is read once per this many operations.
    check_every: u64,
}

/// A cursor over a snapshot, if there is one, or over the newest content.
fn cursor_at<'s, E: Engine>(
    engine: &'s E,
    snapshot: Option<&'s E::Snapshot<'_>>,
    bounds: Bounds<'_>,
) -> Result<E::Cursor<'s>> {
    match snapshot {
        Some(snapshot) => engine.cursor_at(snapshot, bounds),
        None => engine.cursor(bounds),
    }
}

impl Limit {
    pub(crate) fn new(plan: &Plan, flags: &Flags) -> Self {
        Self {
            operations: plan.operations,
            done: 0,
            nanos: plan.seconds * 1_000_000_000,
            check_every: flags.ops_between_duration_checks as u64,
        }
    }

    /// The same limit with another number of operations.
    fn of(mut self, operations: u64) -> Self {
        self.operations = operations;
        self
    }

    /// The same limit with a multiple of the operations.
    fn times(mut self, factor: usize) -> Self {
        self.operations *= factor as u64;
        self
    }

    /// True if `n` more operations should be done.
    #[inline]
    pub(crate) fn take(&mut self, n: u64, stats: &Stats<'_>) -> bool {
        let before = self.done;
        self.done += n;
        if self.nanos == 0 {
            return self.done <= self.operations;
        }
        before / self.check_every == self.done / self.check_every || stats.elapsed() < self.nanos
    }
}

/// The state that the threads of a run share.
pub(crate) struct Together {
    /// Number of counted threads that are not done yet.
    left: AtomicUsize,
    /// Whether the thread beside them is done.
    beside_done: std::sync::atomic::AtomicBool,
    /// Bytes written by all.
    pub(crate) write_pace: Option<Pace>,
    /// Keys read by all.
    pub(crate) read_pace: Option<Pace>,
    /// The time of time series, in steps.
    pub(crate) step: AtomicU64,
}

impl Together {
    pub(crate) fn new(plan: &Plan, flags: &Flags, clock: &Arc<dyn Clock>) -> Self {
        // What RocksDB's db_bench begins with, until the curve is looked at first.
        let mixed = plan.action == Loop::MixGraph && flags.sine_mix_rate;
        let sine = mixed.then_some(1_000_000);
        Self {
            left: AtomicUsize::new(plan.threads),
            beside_done: std::sync::atomic::AtomicBool::new(false),
            write_pace: Pace::new(sine.unwrap_or(flags.benchmark_write_rate_limit), clock),
            read_pace: Pace::new(sine.unwrap_or(flags.benchmark_read_rate_limit), clock),
            step: AtomicU64::new(0),
        }
    }

    /// Whether all counted threads are done.
    fn all_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// Whether the thread beside them is done.
    fn beside_done(&self) -> bool {
        self.beside_done.load(Ordering::Acquire)
    }
}

/// The size of a key's operands in bytes.
fn operands<E: Engine>(engine: &E, key: &[u8]) -> Result<Option<usize>> {
    let operands = engine.merge_operands(key)?;
    let bytes = operands.iter().map(Vec::len).sum();
    Ok((!operands.is_empty()).then_some(bytes))
}

/// The state of a thread.
pub(crate) struct Worker<'a, E: Engine> {
    /// The current database.
    pub(crate) engine: &'a E,
    /// All databases: each operation picks one of them as `engine`.
    pub(crate) on: &'a Databases<E>,
    pub(crate) flags: &'a Flags,
    pub(crate) plan: &'a Plan,
    pub(crate) rng: Rng,
    pub(crate) stats: Stats<'a>,
    pub(crate) together: &'a Together,
    /// The number of this thread among the counted threads; `None` for the additional thread.
    pub(crate) number: Option<usize>,
}

impl<'a, E: Engine> Worker<'a, E> {
    /// Runs the plan; `start` returns when all threads are ready. The counts up to an error are
    /// returned together with the error.
    pub(crate) fn run(mut self, start: impl FnOnce()) -> (Stats<'a>, Result<()>) {
        let ready = self.prepare();
        start();
        self.stats.start();
        let done = ready.and_then(|(mut values, perf)| {
            match self.number {
                Some(_) => self.act(&mut values)?,
                None => self.beside(&mut values)?,
            }
            Ok(perf)
        });
        match self.number {
            Some(_) => drop(self.together.left.fetch_sub(1, Ordering::AcqRel)),
            None => self.together.beside_done.store(true, Ordering::Release),
        }
        self.stats.stop();
        let told = done.and_then(|perf| {
            if let Some(perf) = perf {
                let report = self.engine.perf_report(&perf)?;
                self.stats.add_message(&format!("PERF_CONTEXT:\n{report}"));
            }
            Ok(())
        });
        (self.stats, told)
    }

    /// What the loops need: values, and the costs of this thread's operations if they are measured.
    fn prepare(&self) -> Result<(Values, Option<E::Perf>)> {
        let sizes = Sizes::new(self.flags, self.plan.value_size)?;
        let values = Values::new(sizes, self.flags.compression_ratio);
        let values = values.with_same(self.flags.same_value_percentage);
        let level = self.flags.perf_level;
        // Also where nothing is to be counted: RocksDB counts in a thread that says nothing.
        let perf = self.engine.perf_start(level)?;
        Ok((values, Some(perf).filter(|_| level > 1)))
    }

    fn act(&mut self, values: &mut Values) -> Result<()> {
        match self.plan.action {
            Loop::Write(order) => self.write(order, values, self.plan.operations),
            Loop::FillLevels(order) => self.fill_levels(order, values),
            Loop::FillSeek => self.fill_and_seek(values),
            Loop::Delete(order) => self.delete(order),
            Loop::ReplaceKeys => self.replace_keys(values),
            Loop::Requests => self.requests(values),
            Loop::Scan { reverse } => self.scan(reverse),
            Loop::Get => self.get(Self::get_one),
            Loop::GetAll => self.get_all(),
            Loop::Operands => self.get(|worker, _, key, _| operands(worker.engine, key)),
            Loop::Entity => self.get(|worker, _, key, _| worker.engine.entity(key)),
            Loop::Lists => self.lists(),
            Loop::MultiGet => self.multi_get(E::multi_get),
            Loop::MultiEntity => self.multi_get(E::multi_entity),
            Loop::ScanRanges => self.scan_ranges(true),
            Loop::ScanStrided => self.scan_ranges(false),
            Loop::MemtableStats => self.memtable_stats(),
            Loop::NewIterator => self.new_iterator(),
            Loop::Seek => self.seek(),
            Loop::ApproximateSize => self.approximate_size(),
            Loop::ReadWrite => self.read_write(values),
            Loop::Update(Update::Replace) => self.update(values, None),
            Loop::Update(Update::Xor) => self.update(values, Some(mixed::xor)),
            Loop::Update(Update::Append) => self.update(values, Some(mixed::append)),
            Loop::Merge => self.merge(values),
            Loop::ReadMerge => self.read_merge(values),
            Loop::Verify => self.verify(values),
            Loop::MixGraph => self.mixgraph(values),
            Loop::TimeSeries => self.read_series(),
            Loop::Bytes(what) => self.bytes(what),
            Loop::Ingest => self.ingest(values),
            Loop::Compact => self.once(|engine| engine.compact(true)),
            Loop::VerifyChecksum => self.once(E::verify_checksum),
            Loop::VerifyFileChecksums => self.once(E::verify_file_checksums),
            Loop::Backup => {
                let to = self.flags.backup_dir.clone();
                self.once(|engine| engine.backup(to.as_ref()))
            }
            Loop::Restore => {
                let (from, to) = (&self.flags.backup_dir, &self.flags.restore_dir);
                let (from, to) = (from.clone(), to.clone());
                self.once(|engine| engine.restore(from.as_ref(), to.as_ref()))
            }
        }
    }

    fn beside(&mut self, values: &mut Values) -> Result<()> {
        match self.plan.meanwhile {
            Some(Meanwhile::Write) => self.write_beside(values, E::put),
            Some(Meanwhile::Merge) => self.write_beside(values, E::merge),
            Some(Meanwhile::Scan) => self.scan_beside(),
            Some(Meanwhile::TimeSeries) => self.write_series(values),
            None => Ok(()),
        }
    }

    /// One operation, which counts as one.
    fn once(&mut self, operation: impl FnOnce(&E) -> Result<()>) -> Result<()> {
        self.pick_engine();
        operation(self.engine)?;
        self.stats.finished(1, crate::stats::Op::Other);
        Ok(())
    }

    /// Keys of the plan.
    fn keys(&self) -> Keys {
        self.keys_below(self.plan.num)
    }

    /// Keys with numbers below `num`.
    fn keys_below(&self, num: u64) -> Keys {
        let keys = Keys::new(self.flags, self.plan.key_size, num);
        keys.or_existing(self.on.keys.as_ref())
    }

    /// Switches to one of the databases, if there are several.
    #[inline]
    pub(crate) fn pick_engine(&mut self) {
        let all = self.on.all();
        if all.len() > 1 {
            self.engine = &all[self.rng.below(all.len() as u64) as usize];
        }
    }

    /// The snapshot for this thread's cursors, if the flags ask for one.
    fn snapshot(&self, engine: &'a E) -> Option<E::Snapshot<'a>> {
        let tailing = self.flags.use_tailing_iterator;
        (self.flags.explicit_snapshot && !tailing).then(|| engine.snapshot())
    }

    /// A key to write.
    #[inline]
    fn pick(&mut self, order: Order, next: u64) -> u64 {
        match order {
            Order::Random => random_number(&mut self.rng, self.plan.num, 0.0),
            Order::Sequential | Order::Unique => next,
        }
    }

    /// A key to read.
    #[inline]
    fn pick_read(&mut self) -> u64 {
        let skew = self.flags.read_random_exp_range;
        random_number(&mut self.rng, self.plan.num, skew)
    }

    /// The limit of the plan.
    fn limit(&self) -> Limit {
        Limit::new(self.plan, self.flags)
    }

    /// The rate of writes follows its curve.
    #[inline]
    fn move_write_pace(&self, sine: &mut Option<Sine>) {
        if let (Some(sine), Some(pace)) = (sine, &self.together.write_pace)
            && let Some(rate) = sine.due(self.flags, self.stats.elapsed())
        {
            pace.set(rate as u64);
        }
    }

    /// Waits until `keys` more may be read.
    #[inline]
    fn pace_reads(&self, keys: u64) {
        if let Some(pace) = &self.together.read_pace {
            pace.take(keys);
        }
    }

    /// Waits until `bytes` more may be written.
    #[inline]
    fn pace_writes(&self, bytes: usize) {
        if let Some(pace) = &self.together.write_pace {
            pace.take(bytes as u64);
        }
    }
}
