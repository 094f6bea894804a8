//! Determines which parts of the logs can be read, and which are lost.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use ironstone::{Error, ErrorKind};
use log::salvage::{self, Piece};
use log::{Fence, fence, note};

use crate::fail::Outcome;
use crate::logs::{LogFile, Tracked};
use crate::notes::{self, Facts};
use crate::wal::{self, Show};

/// The first bytes of a zstd frame: compressed bytes cannot be shown.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The decision about a log, and its reason.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) log: LogFile,
    /// The report.
    pub(super) lines: Vec<String>,
    pub(super) lost_bytes: u64,
    pub(super) lost_places: u64,
    /// Sequence numbers that no readable batch has.
    pub(super) missing: u64,
    pub(super) kept_batches: u64,
    pub(super) kept_writes: u64,
    /// The sequence number that the first batch must have or exceed.
    pub(super) expected: Option<u64>,
    /// Where the last batch kept ends.
    end: u64,
    /// The sequence numbers that are missing between this log and the next one.
    gap_behind: Option<Range<u64>>,
    tail: Vec<Piece>,
    /// The log has sizes of user-defined timestamps, which a new log would lack.
    pub(super) timestamps: bool,
    /// The content of this log's batches.
    fences: Vec<Fence>,
}

impl Plan {
    fn new(log: LogFile, expected: Option<u64>) -> Self {
        Self {
            log,
            lines: Vec::new(),
            lost_bytes: 0,
            lost_places: 0,
            missing: 0,
            kept_batches: 0,
            kept_writes: 0,
            expected,
            end: 0,
            gap_behind: None,
            tail: Vec::new(),
            timestamps: false,
            fences: Vec::new(),
        }
    }

    /// Whether anything except a torn tail is lost.
    pub(super) fn is_damaged(&self) -> bool {
        self.lost_places > 0
    }

    fn say(&mut self, line: String) {
        if self.lines.is_empty() {
            self.lines.push(format!("{}:", self.log.path.display()));
        }
        self.lines.push(line);
    }

    fn lose(&mut self, range: &Range<u64>, reason: &str, bytes: &[u8]) {
        let count = range.end.saturating_sub(range.start);
        self.lost_places += 1;
        self.lost_bytes += count;
        self.say(format!(
            "  lost: {count} bytes, offsets {} to {}: {reason}",
            range.start, range.end
        ));
        for line in shown(bytes) {
            self.say(line);
        }
    }

    fn lose_numbers(&mut self, numbers: Range<u64>) {
        self.missing += numbers.end - numbers.start;
        let (first, last) = (numbers.start, numbers.end - 1);
        self.say(if first == last {
            format!("  missing: sequence number {first}")
        } else {
            format!("  missing: sequence numbers {first} to {last}")
        });
    }
}

/// The content of a lost piece, if it looks like a batch.
fn shown(bytes: &[u8]) -> Vec<String> {
    let show = Show {
        values: false,
        details: true,
    };
    let mut row = Vec::new();
    if !bytes.starts_with(&ZSTD_MAGIC) {
        // An error says where it makes no sense any more; what is before is shown.
        drop(wal::push_records(&mut row, bytes, show));
    }
    if row.is_empty() {
        return Vec::new();
    }
    let number = |at| base::coding::u64_at(bytes, at).unwrap_or(0);
    vec![format!(
        "    its bytes say, unverified: sequence {}, count {}: {}",
        number(0),
        number(4) >> 32,
        String::from_utf8_lossy(&row).trim_end()
    )]
}

/// The decision about a readable batch.
pub(super) enum Judged {
    /// It is kept.
    Keep(Facts),
    /// It is dropped, with the reason.
    Drop(String),
}

/// Whether the batch may come next if `expected` is the next sequence number. Errors: a reason for
/// which the log cannot be salvaged.
pub(super) fn judge(batch: &[u8], expected: Option<u64>) -> Result<Judged, Error> {
    match notes::facts(batch) {
        Ok(facts) => Ok(match expected.filter(|e| facts.first < *e) {
            // RocksDB from 10 on refuses such a log; and it may have been a value in another batch.
            Some(e) => Judged::Drop(format!(
                "a batch with sequence {}, where {e} comes next",
                facts.first
            )),
            None => Judged::Keep(facts),
        }),
        Err(e) if e.kind() == ErrorKind::NotSupported => Err(e),
        Err(e) => Ok(Judged::Drop(e.to_string())),
    }
}

/// Examines every log, in order.
pub(super) fn survey(logs: Vec<LogFile>, tracked: &Tracked) -> Outcome<Vec<Plan>> {
    let mut plans: Vec<Plan> = Vec::new();
    let mut expected = None;
    for log in logs {
        let mut plan = Plan::new(log, expected);
        expected = read(&mut plan, &mut plans, tracked.last_sequence)?;
        plans.push(plan);
    }
    let durable = durable(&plans)?;
    for plan in &mut plans {
        finish(plan, &durable, tracked)?;
    }
    Ok(plans)
}

/// Reads the log that follows those in `before`. Returns the next sequence number. Writes up to
/// `in_tables` are in table files: the first log may begin before or after that number.
fn read(plan: &mut Plan, before: &mut [Plan], in_tables: u64) -> Outcome<Option<u64>> {
    let file = std::sync::Arc::clone(&plan.log.file);
    let (number, path) = (plan.log.number, plan.log.path.clone());
    let mut next = plan.expected;
    let mut pending: Vec<Piece> = Vec::new();
    let summary = salvage::scan(&file, number, &mut |mut piece| {
        if piece.lost.is_some() {
            pending.push(piece);
            return Ok(());
        }
        let at = piece.range.start;
        let facts = match judge(&piece.bytes, next).map_err(|e| e.or_file(&path).offset(at))? {
            Judged::Keep(facts) => facts,
            Judged::Drop(why) => {
                piece.lost = Some("cannot be kept");
                pending.push(piece);
                plan.say(format!("  at offset {at}: {why}"));
                return Ok(());
            }
        };
        let gap = next.unwrap_or(in_tables + 1)..facts.first;
        let gap = Some(gap).filter(|g| !g.is_empty());
        let lost = std::mem::take(&mut pending);
        // Zeros are what a writer may leave, and a gap is what unlogged writes leave: both together
        // are a hole.
        let real = lost.iter().any(|p| !p.zeros) || (gap.is_some() && !lost.is_empty());
        for p in lost.iter().filter(|p| !p.zeros || gap.is_some()) {
            plan.lose(&p.range, p.lost.unwrap_or_default(), &p.bytes);
        }
        let first_here = plan.kept_batches == 0;
        match gap {
            Some(gap) if real => plan.lose_numbers(gap),
            Some(gap) if first_here => {
                let used = |p: &&mut Plan| p.kept_batches > 0 || !p.tail.is_empty();
                if let Some(p) = before.iter_mut().rfind(used) {
                    p.gap_behind = Some(gap);
                }
            }
            _ => {}
        }
        next = Some(facts.next);
        plan.end = piece.range.end;
        plan.kept_batches += 1;
        plan.kept_writes += facts.count;
        let fences = facts.notes.iter().filter(|n| !n.begins);
        plan.fences.extend(fences.map(|n| n.fence));
        Ok(())
    })?;
    plan.timestamps = summary.timestamps;
    pending.extend(summary.tail);
    plan.tail = pending;
    Ok(next)
}

/// The offset up to which each log was durable, according to the logs.
fn durable(plans: &[Plan]) -> Outcome<BTreeMap<u64, u64>> {
    let mut out = BTreeMap::new();
    let mut known = |log: u64, end: u64| {
        let upto: &mut u64 = out.entry(log).or_default();
        *upto = end.max(*upto);
    };
    for plan in plans {
        let number = plan.log.number;
        for f in &plan.fences {
            known(f.previous_log, f.previous_end);
            if f.log_number == number {
                known(number, f.durable);
            }
        }
        // And those in bytes that are no readable record any more.
        let trust = note::trust(&plan.log.file, number, None)?;
        if let Some(f) = fence::strongest(&plan.log.file, number, 0, trust)? {
            known(number, f.durable);
            known(f.previous_log, f.previous_end);
        }
    }
    Ok(out)
}

/// The end of a log: a torn tail, or damage.
fn finish(plan: &mut Plan, durable: &BTreeMap<u64, u64>, tracked: &Tracked) -> Outcome {
    let number = plan.log.number;
    let file_len = plan.log.file.len()?;
    let mut through = durable.get(&number).copied().unwrap_or(0);
    if let Some(&size) = tracked.sizes.get(&number) {
        if size > file_len {
            plan.say(format!(
                "  the MANIFEST says that {size} bytes were durable; the file has {file_len}"
            ));
        }
        // What others write, or was salvaged before, may end before the file does.
        let ours = note::head(&plan.log.file, number)? != note::Head::Without;
        if ours || size > file_len {
            through = through.max(size);
        }
    }
    let tail = std::mem::take(&mut plan.tail);
    let end = plan.end;
    if through > end {
        plan.say(format!("  the log was durable through offset {through}"));
    }
    // A log that goes on behind a torn tail is what a reopened database has; not behind a hole.
    let hole = plan
        .gap_behind
        .take()
        .filter(|_| through > end || !tail.is_empty());
    if through > end || hole.is_some() {
        for p in &tail {
            plan.lose(&p.range, p.lost.unwrap_or_default(), &p.bytes);
        }
        let listed = tail.last().map_or(end, |p| p.range.end);
        if through > listed {
            plan.lose(&(listed..through), "nothing that can be read", &[]);
        }
        if let Some(numbers) = hole {
            plan.lose_numbers(numbers);
        }
        return Ok(());
    }
    if let (Some(first), Some(last)) = (tail.first(), tail.last()) {
        let (from, to) = (first.range.start, last.range.end);
        let why = first.lost.unwrap_or_default();
        plan.say(format!(
            "  torn tail, no damage: {} bytes, offsets {from} to {to}: {why}; opening drops them",
            to - from
        ));
    }
    Ok(())
}

/// The logs to rewrite: the damaged logs, and the logs whose notes refer to one.
pub(super) fn to_rewrite(plans: &[Plan]) -> BTreeSet<u64> {
    let mut out: BTreeSet<u64> = BTreeSet::new();
    for plan in plans {
        let speaks = plan.fences.iter().any(|f| out.contains(&f.previous_log));
        if plan.is_damaged() || speaks {
            out.insert(plan.log.number);
        }
    }
    out
}
