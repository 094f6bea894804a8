//! Describes a history that is not that of a single copy of each block, so that the text of a failed test
//! shows which acknowledgement or which read was wrong.

use std::fmt;

use super::history::Operation;

/// Why a block's history is impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A read returned a value that was never written.
    NeverWritten {
        /// The read.
        read: Operation,
    },
    /// A read returned the value of a write that was refused.
    OfRefused {
        /// The read.
        read: Operation,
        /// The refused write.
        write: Operation,
    },
    /// A read ended before the write of its value began.
    BeforeItsWrite {
        /// The read.
        read: Operation,
        /// The write.
        write: Operation,
    },
    /// One value was there both before and after another.
    TwoOrders {
        /// An operation of the one value that ended before one of the other began; no first operation if
        /// the one is the initial value.
        forth: (Option<Operation>, Operation),
        /// An operation of the other value that ended before one of the one began.
        back: (Operation, Operation),
    },
    /// No order of these operations gives these answers. Without any one read or value an order exists,
    /// unless looking for fewer operations took too long.
    NoOrder {
        /// The operations, by their starts.
        operations: Vec<Operation>,
        /// A moment from which on that holds, whatever the block held then; writes that were open then are
        /// shown as unanswered.
        since: Option<u64>,
    },
}

/// A block whose history is impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The block.
    pub block: u64,
    /// The reason.
    pub reason: Reason,
    /// The writes of these values, unless `reason` has them.
    pub writes: Vec<Operation>,
}

impl Violation {
    /// The operations that contradict each other, each once.
    pub fn operations(&self) -> Vec<Operation> {
        let mut all = match &self.reason {
            Reason::NeverWritten { read } => vec![*read],
            Reason::OfRefused { read, write } | Reason::BeforeItsWrite { read, write } => {
                vec![*write, *read]
            }
            Reason::TwoOrders { forth, back } => {
                let mut all = vec![forth.1, back.0, back.1];
                all.extend(forth.0);
                all
            }
            Reason::NoOrder { operations, .. } => operations.clone(),
        };
        all.sort_by_key(|o| (o.start, o.end(), o.client, o.value));
        all.dedup();
        all
    }

    /// Sort key: few operations within a short time come first.
    pub(super) fn length(&self) -> (usize, u64) {
        let all = self.operations();
        let first = all.iter().map(|o| o.start).min().unwrap_or(0);
        let ends = all
            .iter()
            .map(|o| if o.is_answered() { o.end() } else { o.start });
        (all.len(), ends.max().unwrap_or(0).saturating_sub(first))
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {}: ", self.block)?;
        match &self.reason {
            Reason::NeverWritten { read } => {
                write!(f, "value {} was never written\n  {read}", read.value)?;
            }
            Reason::OfRefused { read, write } => {
                let value = read.value;
                write!(
                    f,
                    "value {value} is of a refused write\n  {write}\n  {read}"
                )?;
            }
            Reason::BeforeItsWrite { read, write } => {
                let value = read.value;
                write!(
                    f,
                    "value {value} was read before it was written\n  {read}\n  {write}"
                )?;
            }
            Reason::TwoOrders { forth, back } => {
                let (one, other) = (back.1.value, back.0.value);
                write!(
                    f,
                    "value {one} was there before value {other}, and after it"
                )?;
                write!(f, "\n  {one} before {other}: ")?;
                match &forth.0 {
                    Some(first) => write!(f, "{first} ended before {} began", forth.1)?,
                    None => write!(f, "blocks hold {one} at first, before {}", forth.1)?,
                }
                write!(
                    f,
                    "\n  {other} before {one}: {} ended before {} began",
                    back.0, back.1
                )?;
            }
            Reason::NoOrder { operations, since } => {
                write!(f, "no order of these operations gives these answers")?;
                if let Some(since) = since {
                    write!(f, ", whatever it held at {since}")?;
                }
                let earlier = operations.len().saturating_sub(LAST_SHOWN);
                if earlier > 0 {
                    write!(f, "\n  {earlier} earlier ones, and")?;
                }
                for operation in operations.iter().skip(earlier) {
                    write!(f, "\n  {operation}")?;
                }
            }
        }
        for write in &self.writes {
            write!(f, "\n  {} is of {write}", write.value)?;
        }
        Ok(())
    }
}

/// All blocks with an impossible history, the shortest contradiction first. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violations(pub Vec<Violation>);

/// The most contradictions that are printed.
const SHOWN: usize = 4;
/// The most operations without an order that are printed.
const LAST_SHOWN: usize = 40;

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blocks = self.0.len();
        write!(f, "{blocks} blocks with answers that one copy cannot give")?;
        for violation in self.0.iter().take(SHOWN) {
            write!(f, "\n{violation}")?;
        }
        match blocks.saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\nand {more} blocks more"),
        }
    }
}
