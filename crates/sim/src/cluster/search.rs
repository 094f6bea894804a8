//! Checks by trying whether a single copy of a block could have given these answers: for blocks whose
//! values are not unique, such as zero if blocks are trimmed.
//!
//! The search of Wing and Gong (Testing and verifying concurrent objects, 1993) with Lowe's memory of tried
//! states (2017): operations take effect one after the other; the next may be any operation that starts
//! before, or when, the first of the others ends. In the worst case it takes exponential time (the problem
//! is NP-complete: Gibbons, Korach 1997), so its work is bounded. Four rules keep it short; each leaves out
//! only orders for which another one is equally good:
//! - a read of the present value takes effect at once: it changes nothing;
//! - a write without an answer takes effect just before a read of its value, or never;
//! - of such writes of one value the oldest goes first: they differ only in their start;
//! - a value that cannot come back is not left while some read of it is still to come.
//!
//! ```text
//!   answered operations by start   ███████████▒██▒▒█······       █ taken  ▒ open  · too late yet
//!                                             │
//!                                             low: everything before is taken
//! ```
//!
//! A state is `low`, the operations taken behind it, the value, and the number of used unanswered writes.

use std::collections::HashSet;

use super::history::{Action, Operation, Outcome, ZERO};

/// The operations that a search looks at before it gives up, unless the caller sets another bound.
pub const WORK_MAX: u64 = 50_000_000;

/// Whether an order exists in which a single copy of a block, zero at first, gives these answers; `None` if
/// looking at `work_max` operations does not decide it. All operations are of one block.
pub fn linearizable(operations: &[Operation], work_max: u64) -> Option<bool> {
    linearizable_from(ZERO, operations, work_max)
}

/// [`linearizable`] for a block that initially holds `initial`.
pub fn linearizable_from(initial: u64, operations: &[Operation], work_max: u64) -> Option<bool> {
    explore(initial, operations, work_max).0
}

/// [`linearizable_from`], and the last end of an operation that the search has tried to place: if there is
/// no order, the reason is near.
pub(super) fn explore(
    initial: u64,
    operations: &[Operation],
    work_max: u64,
) -> (Option<bool>, u64) {
    let mut search = Search::new(initial, operations);
    let found = match search.read_of_nothing() {
        Some(end) => {
            search.reached = end;
            Some(false)
        }
        None => search.run(work_max),
    };
    (found, search.reached)
}

/// An answered operation.
#[derive(Clone, Copy, Debug)]
struct Answered {
    start: u64,
    end: u64,
    value: usize,
    is_write: bool,
}

/// The state of a value.
#[derive(Clone, Debug, Default)]
struct Value {
    /// Reads of it that are still to take effect.
    reads: usize,
    /// Writes that may still write it.
    sources: usize,
    /// The starts of its unanswered writes, oldest first.
    late: Vec<u64>,
    /// The number of these that have taken effect.
    used: usize,
}

/// The next operation to take effect.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// An answered operation.
    Take(usize),
    /// The next unanswered write of a value.
    Late(usize),
}

/// A state with more than one continuation.
struct Frame {
    choices: Vec<Step>,
    next: usize,
    trail: usize,
    low: usize,
    present: usize,
}

struct Search {
    answered: Vec<Answered>,
    values: Vec<Value>,
    /// Values that have unanswered writes and other writes too.
    counted: Vec<usize>,
    taken: Vec<bool>,
    low: usize,
    present: usize,
    trail: Vec<Step>,
    tried: HashSet<Box<[u32]>>,
    work: u64,
    /// The last end of an operation that had to be placed.
    reached: u64,
}

impl Search {
    fn new(initial: u64, operations: &[Operation]) -> Self {
        let mut known: Vec<u64> = operations.iter().map(|o| o.value).collect();
        known.push(initial);
        known.sort_unstable();
        known.dedup();
        let number = |value: u64| known.binary_search(&value).unwrap_or(0);
        let mut values = vec![Value::default(); known.len()];
        let mut answered = Vec::new();
        for operation in operations {
            let value = number(operation.value);
            let is_write = operation.action == Action::Write;
            match operation.outcome {
                Outcome::Answered(end) => {
                    answered.push(Answered {
                        start: operation.start,
                        end,
                        value,
                        is_write,
                    });
                    values[value].sources += usize::from(is_write);
                    values[value].reads += usize::from(!is_write);
                }
                Outcome::Unanswered if is_write => {
                    values[value].late.push(operation.start);
                    values[value].sources += 1;
                }
                Outcome::Unanswered | Outcome::Refused => {}
            }
        }
        answered.sort_by_key(|a| (a.start, a.end));
        let present = number(initial);
        let mut counted = Vec::new();
        for (i, value) in values.iter_mut().enumerate() {
            value.late.sort_unstable();
            if value.sources + usize::from(i == present) > 1 && !value.late.is_empty() {
                counted.push(i);
            }
        }
        Self {
            counted,
            taken: vec![false; answered.len()],
            answered,
            values,
            low: 0,
            present,
            trail: Vec::new(),
            tried: HashSet::new(),
            work: 0,
            reached: 0,
        }
    }

    /// The end of a read whose value was neither initial nor written.
    fn read_of_nothing(&self) -> Option<u64> {
        let has_no_source = |a: &&Answered| {
            !a.is_write && a.value != self.present && self.values[a.value].sources == 0
        };
        self.answered.iter().find(has_no_source).map(|a| a.end)
    }

    fn run(&mut self, work_max: u64) -> Option<bool> {
        let mut frames: Vec<Frame> = Vec::new();
        loop {
            let window = self.settle();
            if self.low == self.answered.len() {
                return Some(true);
            }
            self.reached = self.reached.max(window.1);
            if self.work > work_max {
                return None;
            }
            let present = &self.values[self.present];
            let is_stuck = present.reads > 0 && present.sources == 0;
            let choices = if is_stuck || !self.tried.insert(self.key(window)) {
                Vec::new()
            } else {
                self.choices(window)
            };
            frames.push(Frame {
                choices,
                next: 0,
                trail: self.trail.len(),
                low: self.low,
                present: self.present,
            });
            loop {
                let Some(frame) = frames.last_mut() else {
                    return Some(false);
                };
                let choice = frame.choices.get(frame.next).copied();
                frame.next += 1;
                let (trail, low, present) = (frame.trail, frame.low, frame.present);
                self.go_back(trail, low, present);
                if let Some(step) = choice {
                    self.take(step);
                    break;
                }
                frames.pop();
            }
        }
    }

    /// The end of the range `low..` of operations that may be next, and the end of the first of them to
    /// end.
    fn window(&mut self) -> (usize, u64) {
        let (mut at, mut first_end) = (self.low, u64::MAX);
        while let Some(operation) = self.answered.get(at)
            && operation.start <= first_end
        {
            if !self.taken[at] {
                first_end = first_end.min(operation.end);
            }
            at += 1;
        }
        self.work += (at - self.low) as u64 + 1;
        (at, first_end)
    }

    /// Takes every read of the present value that may be next.
    fn settle(&mut self) -> (usize, u64) {
        loop {
            let window = self.window();
            let before = self.trail.len();
            for i in self.low..window.0 {
                let operation = self.answered[i];
                if !self.taken[i] && !operation.is_write && operation.value == self.present {
                    self.take(Step::Take(i));
                }
            }
            while self.taken.get(self.low) == Some(&true) {
                self.low += 1;
            }
            if self.trail.len() == before {
                return window;
            }
        }
    }

    /// The writes that may be next, ordered by their ends.
    fn choices(&self, (end, first_end): (usize, u64)) -> Vec<Step> {
        let open = (self.low..end).filter(|&i| !self.taken[i]);
        let (mut writes, mut late) = (Vec::new(), Vec::new());
        for i in open {
            let operation = self.answered[i];
            if operation.is_write {
                writes.push(i);
                continue;
            }
            let value = &self.values[operation.value];
            let oldest = value.late.get(value.used);
            if oldest.is_some_and(|&start| start <= first_end) {
                late.push(operation.value);
            }
        }
        writes.sort_by_key(|&i| self.answered[i].end);
        late.sort_unstable();
        late.dedup();
        let writes = writes.into_iter().map(Step::Take);
        writes.chain(late.into_iter().map(Step::Late)).collect()
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Take(i) => {
                self.taken[i] = true;
                let operation = self.answered[i];
                let value = &mut self.values[operation.value];
                if operation.is_write {
                    value.sources -= 1;
                    self.present = operation.value;
                } else {
                    value.reads -= 1;
                }
            }
            Step::Late(v) => {
                self.values[v].used += 1;
                self.values[v].sources -= 1;
                self.present = v;
            }
        }
        self.trail.push(step);
    }

    fn go_back(&mut self, trail: usize, low: usize, present: usize) {
        for step in self.trail.drain(trail..) {
            match step {
                Step::Take(i) => {
                    self.taken[i] = false;
                    let operation = self.answered[i];
                    let value = &mut self.values[operation.value];
                    value.sources += usize::from(operation.is_write);
                    value.reads += usize::from(!operation.is_write);
                }
                Step::Late(v) => {
                    self.values[v].used -= 1;
                    self.values[v].sources += 1;
                }
            }
        }
        (self.low, self.present) = (low, present);
    }

    /// The state in the fewest numbers that identify it. Whether the only write of a value has taken effect
    /// follows from the value and from the reads of it.
    fn key(&self, (end, _): (usize, u64)) -> Box<[u32]> {
        let mut key = vec![self.low as u32, self.present as u32];
        key.extend(self.counted.iter().map(|&v| self.values[v].used as u32));
        key.extend((self.low..end).filter(|&i| self.taken[i]).map(|i| i as u32));
        key.into()
    }
}
