//! The steps of a write, as data: the pipeline reads them instead of having one copy per variant.

use crate::wal::LogStep;
use options::WriteOptions;

/// The steps of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// How far the write is logged before it returns; `None` for `disable_wal`.
    pub(crate) log: Option<LogStep>,
    /// Whether the records go into the memtables.
    pub(crate) memtable: bool,
    /// The events that the writer may wait for before its turn.
    pub(crate) patience: Patience,
    /// The caller does not wait until the write is visible.
    pub(crate) detached: bool,
}

/// The events that a writer may wait for before its turn. If it would have to wait for any other event, it fails
/// with `Incomplete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Patience {
    /// Only other writers: `no_slowdown`.
    None,
    /// Everything but flushes and compactions. For threads that flush or compact: such a thread would wait for itself.
    Job,
    /// Everything.
    All,
}

impl Patience {
    fn of(options: &WriteOptions) -> Self {
        if options.no_slowdown {
            Self::None
        } else {
            Self::All
        }
    }

    /// Whether the writer may wait for flushes and compactions.
    pub(crate) fn bears_stalls(self) -> bool {
        self == Self::All
    }
}

impl Plan {
    /// The plan of a write with these options.
    pub(crate) fn new(options: &WriteOptions, manual_wal_flush: bool) -> Self {
        let log = match (options.disable_wal, options.sync, manual_wal_flush) {
            (true, _, _) => None,
            (false, true, _) => Some(LogStep::Sync),
            (false, false, false) => Some(LogStep::Submit),
            (false, false, true) => Some(LogStep::Append),
        };
        Self {
            log,
            memtable: true,
            patience: Patience::of(options),
            detached: false,
        }
    }

    /// The plan of an asynchronous write: another thread makes it durable and wakes the waiters.
    pub(crate) fn detached(options: &WriteOptions) -> Self {
        Self {
            log: Some(LogStep::Append),
            memtable: true,
            patience: Patience::of(options),
            detached: true,
        }
    }

    /// The plan for a batch that has nothing for a memtable.
    pub(crate) fn log_only(self) -> Self {
        Self {
            memtable: false,
            ..self
        }
    }

    /// Whether the write waits for the device.
    pub(crate) fn waits_for_device(&self) -> bool {
        self.log == Some(LogStep::Sync)
    }

    /// Whether a leader with this plan may carry a follower with the other plan.
    ///
    /// A leader may carry followers that need less than itself, but not followers that need more. Followers may
    /// wait at least as long as their leader: a leader that waits must not hold up a writer that must not wait.
    pub(crate) fn carries(&self, other: &Self) -> bool {
        self.memtable == other.memtable
            && self.log.is_some() == other.log.is_some()
            && self.log >= other.log
            && self.patience <= other.patience
            && (!self.detached || other.detached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_never_promises_less_than_a_member_asked_for() {
        let plan = |sync, disable_wal, no_slowdown| {
            let o = WriteOptions {
                sync,
                disable_wal,
                no_slowdown,
                ..WriteOptions::default()
            };
            Plan::new(&o, false)
        };
        let (sync, async_, no_wal) = (
            plan(true, false, false),
            plan(false, false, false),
            plan(false, true, false),
        );
        assert!(sync.carries(&async_) && sync.carries(&sync));
        assert!(!async_.carries(&sync));
        assert!(!sync.carries(&no_wal) && !no_wal.carries(&async_));
        assert!(!async_.carries(&plan(false, false, true)));
        let detached = Plan::detached(&WriteOptions::default());
        assert!(async_.carries(&detached) && !detached.carries(&async_));
        assert!(!async_.carries(&async_.log_only()));
    }
}
