//! How fast writers may go while flushes and compactions lag behind: a pure state machine.
//!
//! Two things are decided here, independently of each other:
//!
//! - the **condition** of a family, by RocksDB's rules ([`judge`]): normal, delayed, stopped. Events,
//!   statistics and `no_slowdown` depend on it. Only a stop makes writers wait until a flush or compaction
//!   has caught up;
//! - the **rate**: bytes per second for all writers. It applies long before the slowdown trigger, so that
//!   debt settles where writers and compactions are equally fast, and no trigger is met:
//!
//! ```text
//!   pressure  0 ────────── 1 ─────────────────── 2 ───────────────── 3
//!   L0 files  compaction   twice that, but at    slowdown trigger    stop trigger
//!   to do     trigger      most half way to 2
//!   all L0    as 1 above   half way to 2         slowdown trigger    stop trigger
//!   files
//!   bytes     soft / 2     soft · 3/4            soft limit          hard limit
//!   rate      4 · drain    drain                 drain / 2, at most  a 16th of that
//!                                                delayed_write_rate
//! ```
//!
//! *Drain* is the rate of writes that compactions can bear: the files that leave level 0 per second while
//! there are too many, times the bytes written (to all families) per file. While the first compaction
//! runs, the files that it has finished count. Before that is measured, drain is the highest rate
//! that writers reached, and at least `delayed_write_rate`. Before that rate is known, writers are not held
//! back below the slowdown trigger. Between the points the rate is interpolated on a logarithmic scale.
//! It changes over fractions of a second rather than at once.
//!
//! While a memtable is being flushed, the rate is also limited so that the room left in the memtables
//! lasts until the flush is done.
//!
//! The caller passes the time in nanoseconds and the state of a family as [`Debt`]; nothing here sleeps
//! or locks.

use std::collections::BTreeMap;

use options::hooks::listener::{WriteStallCause, WriteStallCondition};
use options::{CfOptions, CompactionStyle};

/// The lowest rate, in bytes per second: RocksDB's limit.
const RATE_MIN: f64 = 16.0 * 1024.0;
/// From this rate on, in bytes per second, writers are not held back.
const RATE_FREE: f64 = 4.0 * 1024.0 * 1024.0 * 1024.0;
/// Writers may run ahead of the rate by as many bytes as it allows in this time.
const BURST_NANOS: f64 = 1e6;
/// Shorter waits are saved up: sleeping and being woken takes a tenth of this, and one longer pause
/// delays fewer writes than many short ones.
const WAIT_MIN_NANOS: f64 = 1e6;
/// A writer is not held back longer than this before the rate is looked at again.
const WAIT_MAX_NANOS: f64 = 50e6;
/// For this long after a writer had to wait, [`Controller::felt_rate`] reports the rate.
const FELT_NANOS: u64 = 100_000_000;
/// Weight of a new measurement.
const FRESH: f64 = 0.4;
/// Time constants with which the rate follows its target: falling, rising.
const FALL_SECONDS: f64 = 0.05;
const RISE_SECONDS: f64 = 0.25;

/// How far the flushes and compactions of a family lag behind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Debt {
    /// Immutable memtables that are not in a table yet.
    pub(crate) immutable: usize,
    /// How full the active memtable is: 0 to 1.
    pub(crate) fill: f64,
    /// Files in level 0.
    pub(crate) l0_files: usize,
    /// How much of these files the running compactions have finished, in files.
    pub(crate) l0_done: f64,
    /// Bytes that compactions must write before the levels have their shape.
    pub(crate) pending_bytes: u64,
    /// Whether a compaction of level 0 is under way.
    pub(crate) l0_compacting: bool,
}

/// How far the flushes and compactions of a family may lag behind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limits {
    pub(crate) max_write_buffer_number: usize,
    pub(crate) min_write_buffer_number_to_merge: usize,
    pub(crate) l0_compaction: usize,
    pub(crate) l0_slowdown: usize,
    pub(crate) l0_stop: usize,
    /// 0 means no limit.
    pub(crate) soft_bytes: u64,
    /// 0 means no limit.
    pub(crate) hard_bytes: u64,
    /// Automatic compactions are disabled. Only memtables count then: nothing would reduce the other
    /// debts.
    pub(crate) no_compactions: bool,
    /// Compactions take files out of level 0. Where they do not, as with FIFO, the number of files does
    /// not say how far compactions are behind.
    pub(crate) l0_drains: bool,
}

impl Limits {
    /// The limits that the options set.
    pub(crate) fn of(o: &CfOptions) -> Self {
        let count = |n: i32| n.unsigned_abs() as usize;
        Self {
            max_write_buffer_number: count(o.max_write_buffer_number),
            min_write_buffer_number_to_merge: count(o.min_write_buffer_number_to_merge),
            l0_compaction: count(o.level0_file_num_compaction_trigger).max(1),
            l0_slowdown: count(o.level0_slowdown_writes_trigger),
            l0_stop: count(o.level0_stop_writes_trigger),
            soft_bytes: o.soft_pending_compaction_bytes_limit,
            hard_bytes: o.hard_pending_compaction_bytes_limit,
            no_compactions: o.disable_auto_compactions,
            l0_drains: matches!(
                o.compaction_style,
                CompactionStyle::Level | CompactionStyle::Universal
            ),
        }
    }
}

/// Whether a family with this debt delays or stops writers, and the cause: RocksDB's rules. The
/// worst condition counts; of several causes memtables come first, then files, then bytes.
pub(crate) fn judge(
    debt: &Debt,
    limits: &Limits,
) -> (WriteStallCondition, Option<WriteStallCause>) {
    use WriteStallCause::{L0FileCountLimit, MemtableLimit, PendingCompactionBytes};
    use WriteStallCondition::{Delayed, Normal, Stopped};
    let compacts = !limits.no_compactions;
    let above = |limit: u64| compacts && limit > 0 && debt.pending_bytes >= limit;
    let max = limits.max_write_buffer_number;
    let nearly_full = max > 3
        && debt.immutable + 1 >= max
        && debt.immutable > limits.min_write_buffer_number_to_merge;
    if debt.immutable >= max {
        (Stopped, Some(MemtableLimit))
    } else if compacts && debt.l0_files >= limits.l0_stop {
        (Stopped, Some(L0FileCountLimit))
    } else if above(limits.hard_bytes) {
        (Stopped, Some(PendingCompactionBytes))
    } else if nearly_full {
        (Delayed, Some(MemtableLimit))
    } else if compacts && debt.l0_files >= limits.l0_slowdown {
        (Delayed, Some(L0FileCountLimit))
    } else if above(limits.soft_bytes) {
        (Delayed, Some(PendingCompactionBytes))
    } else {
        (Normal, None)
    }
}

/// Where `value` lies among points that stand for 0, 1, 2, 3; below the first it is negative.
fn place(value: f64, points: [f64; 4]) -> f64 {
    let mut below = 0.0;
    for (i, pair) in points.windows(2).enumerate() {
        let &[from, to] = pair else { continue };
        if value < from {
            return if i == 0 { -1.0 } else { below };
        }
        if value < to {
            return i as f64 + (value - from) / (to - from);
        }
        below = i as f64 + 1.0;
    }
    3.0
}

/// The pressure of a debt: 0 is where writers begin to be held back, 1 where debt should settle, 2 the
/// slowdown, 3 the stop. Below 0 the debt does not matter.
fn pressure(debt: &Debt, limits: &Limits) -> f64 {
    if limits.no_compactions {
        return -1.0;
    }
    // Memtables soon become files of level 0. The sum does not jump when a memtable is flushed.
    let files = (debt.l0_files + debt.immutable) as f64 + debt.fill;
    let (begin, slow) = (limits.l0_compaction as f64, limits.l0_slowdown as f64);
    let half = f64::midpoint(begin, slow);
    let matched = (2.0 * begin).min(half);
    let stop = (limits.l0_stop as f64).max(slow);
    // Likewise, the work left to do does not jump when a compaction ends.
    let to_do = place(files - debt.l0_done, [begin, matched, slow, stop]);
    let there = place(files, [half, f64::midpoint(half, slow), slow, stop]);
    let mut by_files = to_do.max(there);
    if debt.l0_files < limits.l0_slowdown {
        by_files = if limits.l0_drains {
            by_files.min(2.0)
        } else {
            -1.0
        };
    }
    if limits.soft_bytes == 0 {
        return by_files;
    }
    let soft = limits.soft_bytes as f64;
    let hard = match limits.hard_bytes {
        0 => 4.0 * soft,
        n => (n as f64).max(soft),
    };
    let bytes = debt.pending_bytes as f64;
    by_files.max(place(bytes, [soft / 2.0, soft * 0.75, soft, hard]))
}

/// The rate at a pressure of 0 or more; see the module.
fn rate_at(pressure: f64, drain: f64, delayed_write_rate: f64) -> f64 {
    let slow = (drain / 2.0).min(delayed_write_rate);
    let points = [4.0 * drain, drain, slow, slow / 16.0];
    let at = pressure.clamp(0.0, 3.0);
    let i = (at as usize).min(2);
    let (from, to) = (points[i].max(RATE_MIN), points[i + 1].max(RATE_MIN));
    from * (to / from).powf(at - i as f64)
}

/// How often a family was found held back, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) memtable: Pair,
    pub(crate) l0: Pair,
    pub(crate) l0_with_compaction: Pair,
    pub(crate) pending: Pair,
}

/// Delays and stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) delays: u64,
    pub(crate) stops: u64,
}

impl Pair {
    fn count(&mut self, condition: WriteStallCondition) {
        match condition {
            WriteStallCondition::Normal => {}
            WriteStallCondition::Delayed => self.delays += 1,
            WriteStallCondition::Stopped => self.stops += 1,
        }
    }
}

impl Counts {
    fn count(&mut self, condition: WriteStallCondition, cause: WriteStallCause, debt: &Debt) {
        match cause {
            WriteStallCause::MemtableLimit => self.memtable.count(condition),
            WriteStallCause::L0FileCountLimit => {
                self.l0.count(condition);
                if debt.l0_compacting {
                    self.l0_with_compaction.count(condition);
                }
            }
            WriteStallCause::PendingCompactionBytes => self.pending.count(condition),
            WriteStallCause::WriteBufferManagerLimit => {}
        }
    }

    /// Delays and stops of all causes.
    pub(crate) fn total(&self) -> Pair {
        Pair {
            delays: self.memtable.delays + self.l0.delays + self.pending.delays,
            stops: self.memtable.stops + self.l0.stops + self.pending.stops,
        }
    }
}

/// A mean in which newer values count more.
#[derive(Clone, Copy, Debug, Default)]
struct Mean(Option<f64>);

impl Mean {
    fn add(&mut self, value: f64) {
        if value.is_finite() {
            self.0 = Some(match self.0 {
                None => value,
                Some(old) => old + FRESH * (value - old),
            });
        }
    }
}

/// The state of a family.
struct Family {
    limits: Limits,
    debt: Debt,
    condition: WriteStallCondition,
    cause: Option<WriteStallCause>,
    counts: Counts,
    /// Bytes written to all families per memtable of this one.
    span: Mean,
    /// Bytes that had been written when the active memtable was begun.
    begun_at: Option<u64>,
    /// Files that leave level 0 per second while there are too many.
    drain: Mean,
    /// The same, estimated from the progress of the first compaction.
    drain_so_far: Option<f64>,
    /// When level 0 last got enough files for a compaction, or when files last left it (monotonic nanoseconds).
    draining_since: Option<u64>,
    /// Seconds that the flush of one memtable takes.
    flush_seconds: Mean,
    flushing_since: Option<u64>,
}

impl Family {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            debt: Debt::default(),
            condition: WriteStallCondition::Normal,
            cause: None,
            counts: Counts::default(),
            span: Mean::default(),
            begun_at: None,
            drain: Mean::default(),
            drain_so_far: None,
            draining_since: None,
            flush_seconds: Mean::default(),
            flushing_since: None,
        }
    }

    /// Learns from the difference between two debts how fast flushes and compactions are.
    fn learn(&mut self, now: u64, debt: &Debt, written: u64) {
        if debt.immutable > self.debt.immutable {
            if let Some(begun) = self.begun_at {
                self.span.add(written.saturating_sub(begun) as f64);
            }
            self.begun_at = Some(written);
        }
        let flushed = self.debt.immutable.saturating_sub(debt.immutable);
        if flushed > 0
            && let Some(since) = self.flushing_since.take()
        {
            self.flush_seconds.add(seconds(since, now) / flushed as f64);
        }
        let due = self.limits.min_write_buffer_number_to_merge.max(1);
        if debt.immutable >= due {
            self.flushing_since.get_or_insert(now);
        } else {
            self.flushing_since = None;
        }
        let gone = self.debt.l0_files.saturating_sub(debt.l0_files);
        if gone > 0
            && let Some(since) = self.draining_since.take()
        {
            self.drain.add(gone as f64 / seconds(since, now));
        }
        if debt.l0_files >= self.limits.l0_compaction {
            self.draining_since.get_or_insert(now);
        } else {
            self.draining_since = None;
        }
        if let Some(since) = self.draining_since
            && debt.l0_done >= 1.0
        {
            self.drain_so_far = Some(debt.l0_done / seconds(since, now));
        }
        if self.begun_at.is_none() {
            self.begun_at = Some(written);
        }
    }

    /// The rate that compactions can bear, in bytes per second written to all families.
    fn drain_rate(&self) -> Option<f64> {
        Some(self.drain.0.or(self.drain_so_far)? * self.span.0?)
    }

    /// The rate at which the memtables become full exactly when the running flush ends.
    fn flush_rate(&self, now: u64) -> Option<f64> {
        let (since, each) = (self.flushing_since?, self.flush_seconds.0?);
        let span = self.span.0?;
        let max = self.limits.max_write_buffer_number as f64;
        let room = (max - self.debt.immutable as f64 - self.debt.fill).max(0.01);
        // There is room again when the first of the waiting memtables is written.
        let left = (each - seconds(since, now)).max(each / 8.0);
        Some(room * span / left)
    }

    fn target(&self, now: u64, incoming: Option<f64>, delayed: f64) -> Option<f64> {
        let pressure = pressure(&self.debt, &self.limits);
        let unknown = || match incoming {
            Some(most) => Some(most.max(delayed)),
            None => (pressure >= 2.0).then_some(delayed),
        };
        let drain = self.drain_rate().or_else(unknown);
        let by_compaction = drain
            .filter(|_| pressure >= 0.0)
            .map(|drain| rate_at(pressure, drain.max(RATE_MIN), delayed));
        let mut rate = least(by_compaction, self.flush_rate(now));
        if self.condition == WriteStallCondition::Delayed {
            rate = least(rate, Some(delayed));
        }
        rate.map(|r| r.max(RATE_MIN))
    }
}

fn least(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The time between two moments (nanoseconds), in seconds; never 0.
fn seconds(from: u64, to: u64) -> f64 {
    to.saturating_sub(from).max(1000) as f64 / 1e9
}

/// A family's condition has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) prev: WriteStallCondition,
    pub(crate) cur: WriteStallCondition,
    /// The cause; `None` if the condition is normal now.
    pub(crate) cause: Option<WriteStallCause>,
}

/// The state machine of a database.
pub(crate) struct Controller {
    families: BTreeMap<u32, Family>,
    delayed_write_rate: f64,
    /// The highest rate of writes so far, in bytes per second.
    incoming: Option<f64>,
    /// The last measurement: its time, and the bytes that had been written by then.
    last: Option<(u64, u64)>,
    /// The rate in force, in bytes per second, and when it was last updated.
    rate: Option<f64>,
    rate_at: u64,
    /// The moment (nanoseconds) up to which the admitted bytes use up the rate.
    paid_until: f64,
    /// When a writer was last made to wait.
    held_at: Option<u64>,
}

impl Controller {
    pub(crate) fn new(delayed_write_rate: u64) -> Self {
        Self {
            families: BTreeMap::new(),
            delayed_write_rate: delayed_write_rate as f64,
            incoming: None,
            last: None,
            rate: None,
            rate_at: 0,
            paid_until: 0.0,
            held_at: None,
        }
    }

    /// Changes `delayed_write_rate`.
    pub(crate) fn set_delayed_write_rate(&mut self, rate: u64) {
        self.delayed_write_rate = rate as f64;
    }

    /// Takes note of a family's debt after `written` bytes to all families, and counts delays and stops.
    /// Returns the change, if the family's condition or its cause has changed. The rate follows at the next
    /// [`Controller::tick`].
    pub(crate) fn observe(
        &mut self,
        now: u64,
        id: u32,
        limits: Limits,
        debt: Debt,
        written: u64,
    ) -> Option<Change> {
        self.note_written(now, written);
        let family = self
            .families
            .entry(id)
            .or_insert_with(|| Family::new(limits));
        family.limits = limits;
        family.learn(now, &debt, written);
        let before = Debt {
            fill: debt.fill,
            ..std::mem::replace(&mut family.debt, debt)
        };
        let (condition, cause) = judge(&debt, &limits);
        if let Some(cause) = cause
            && (before != debt || family.condition != condition)
        {
            family.counts.count(condition, cause, &debt);
        }
        let prev = std::mem::replace(&mut family.condition, condition);
        let before = std::mem::replace(&mut family.cause, cause);
        (prev != condition || before != cause).then_some(Change {
            prev,
            cur: condition,
            cause,
        })
    }

    /// Takes note of how full a family's active memtable is.
    pub(crate) fn fill(&mut self, id: u32, fill: f64) {
        if let Some(family) = self.families.get_mut(&id) {
            family.debt.fill = fill;
        }
    }

    /// Forgets the families that are gone.
    pub(crate) fn keep(&mut self, lives: impl Fn(u32) -> bool) {
        self.families.retain(|id, _| lives(*id));
    }

    /// The worst condition of all families, with its cause and its family.
    pub(crate) fn worst(&self) -> (WriteStallCondition, Option<(WriteStallCause, u32)>) {
        let worst = self.families.iter().max_by_key(|(_, f)| f.condition);
        match worst {
            Some((id, f)) => (f.condition, f.cause.map(|c| (c, *id))),
            None => (WriteStallCondition::Normal, None),
        }
    }

    /// How often the family was found held back.
    pub(crate) fn counts(&self, id: u32) -> Counts {
        self.families.get(&id).map(|f| f.counts).unwrap_or_default()
    }

    /// The rate in force.
    #[cfg(test)]
    pub(crate) fn rate(&self) -> Option<f64> {
        self.rate
    }

    /// The rate, if a family is delayed or stopped, or if a writer had to wait recently. A rate that no writer
    /// reaches holds no writer back and is not reported.
    pub(crate) fn felt_rate(&self, now: u64) -> Option<f64> {
        let delayed = self.worst().0 != WriteStallCondition::Normal;
        let felt = delayed || self.was_held(now.saturating_sub(FELT_NANOS));
        self.rate.filter(|_| felt)
    }

    /// Whether a writer was made to wait since `since`.
    fn was_held(&self, since: u64) -> bool {
        self.held_at.is_some_and(|at| at > since)
    }

    /// Whether writers have to ask the controller before they write.
    pub(crate) fn is_shaping(&self) -> bool {
        self.rate.is_some()
            || self.families.values().any(|f| {
                f.debt.immutable > 0
                    || f.condition != WriteStallCondition::Normal
                    || pressure(&f.debt, &f.limits) >= 0.0
            })
    }

    /// Takes note of how much was written, and lets the rate follow the debt.
    pub(crate) fn tick(&mut self, now: u64, written: u64) {
        self.note_written(now, written);
        self.follow(now);
    }

    fn note_written(&mut self, now: u64, written: u64) {
        let Some((then, before)) = self.last else {
            self.last = Some((now, written));
            return;
        };
        // In a shorter time the rate of a single group would be measured, not the rate of the writers.
        if now.saturating_sub(then) >= 20_000_000 {
            let bytes = written.saturating_sub(before) as f64;
            let rate = bytes / seconds(then, now);
            self.incoming = Some(self.incoming.map_or(rate, |most| most.max(rate)));
            self.last = Some((now, written));
        }
    }

    /// Moves the rate towards the target that the debt sets.
    fn follow(&mut self, now: u64) {
        let (incoming, delayed) = (self.incoming, self.delayed_write_rate);
        let wanted = self
            .families
            .values()
            .filter_map(|f| f.target(now, incoming, delayed))
            .reduce(f64::min);
        let passed = seconds(self.rate_at, now);
        self.rate_at = now;
        self.rate = match (self.rate, wanted) {
            (None, wanted) => wanted,
            (Some(rate), Some(wanted)) => {
                let constant = if wanted < rate {
                    FALL_SECONDS
                } else {
                    RISE_SECONDS
                };
                Some(rate * (wanted / rate).powf(1.0 - (-passed / constant).exp()))
            }
            (Some(rate), None) => Some(rate * (passed / RISE_SECONDS).min(10.0).exp()),
        }
        .filter(|r| *r < RATE_FREE);
    }

    /// How many nanoseconds a writer of `bytes` waits before it writes.
    pub(crate) fn admit(&mut self, now: u64, bytes: u64) -> u64 {
        let Some(rate) = self.rate else { return 0 };
        let now = now as f64;
        let start = self.paid_until.max(now - BURST_NANOS);
        let until = start + bytes as f64 * 1e9 / rate;
        // A longer wait is forgiven: the rate will have changed by then.
        self.paid_until = until.min(now + WAIT_MAX_NANOS);
        let wait = self.paid_until - now;
        if wait < WAIT_MIN_NANOS {
            return 0;
        }
        self.held_at = Some(now as u64);
        wait as u64
    }

    /// How many bytes may be written before a writer must ask the controller again.
    pub(crate) fn allowance(&self) -> u64 {
        const FREE: f64 = 256.0 * 1024.0;
        self.rate
            .map_or(FREE, |r| (r * BURST_NANOS / 1e9).clamp(512.0, FREE)) as u64
    }
}

#[cfg(test)]
#[expect(
    clippy::print_stdout,
    reason = "the traces are drawn for who looks at them"
)]
#[path = "write_controller_tests.rs"]
mod tests;
