//! The state that writers share (queues, order, stalls), and the steps of a commit. The steps ask a
//! [`CommitEnv`](pipeline::CommitEnv) for everything else.

pub(crate) mod courtesy;
pub(crate) mod order;
pub(crate) mod pipeline;
pub(crate) mod plan;
pub(crate) mod queue;
pub(crate) mod stall;
#[cfg(any(test, shuttle))]
pub(crate) mod test_env;
pub(crate) mod write_controller;

use std::sync::Arc;

use arc_swap::ArcSwap;
use base::SequenceNumber;
use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::{Mutex, MutexGuard, PoisonError, ranked};
use memtable::WriteBuffers;

use crate::catalog::family::FamilySet;
use crate::commit::courtesy::Courtesy;
use crate::commit::order::Order;
use crate::commit::queue::Queue;
use crate::commit::stall::{Attention, Stall};
use crate::locks;
use options::DbOptions;

/// See the module.
pub(crate) struct Writes {
    /// The visible sequence number, and the groups in progress.
    pub(crate) order: Order,
    /// Writers that wait for the device.
    pub(crate) synced: Queue,
    /// Writers that do not wait for the device.
    pub(crate) others: Queue,
    /// Without `allow_concurrent_memtable_write`, held while a group is inserted.
    pub(crate) memtable_writer: Mutex<()>,
    /// Raised when the next leader must look at more than its own group: full memtables, large logs, a failure.
    pub(crate) attention: Attention,
    /// The stalls and the pace of writers.
    pub(crate) stall: Stall,
    /// Synced writes, to which background writers give way.
    pub(crate) courtesy: Courtesy,
    /// The budget of the memtables.
    buffers: Arc<WriteBuffers>,
    /// A write with `disable_wal` happened.
    pub(crate) unlogged: AtomicBool,
    /// How often `lock_wal` was called without `unlock_wal`.
    wal_locks: Mutex<u32>,
    /// The option of this name. It may change, and is read for each write group.
    pub(crate) max_total_wal_size: AtomicU64,
    /// See [`Writes::limit_logs`].
    log_limit: AtomicU64,
}

impl Writes {
    /// The state of writers after the sequence number `last`.
    pub(crate) fn after(last: u64, options: &DbOptions, buffers: Arc<WriteBuffers>) -> Self {
        Self {
            order: Order::after(last),
            synced: Queue::new(false),
            others: Queue::new(true),
            memtable_writer: ranked(locks::MEMTABLE_WRITER, ()),
            attention: Attention::default(),
            stall: Stall::new(options.delayed_rate()),
            courtesy: Courtesy::default(),
            buffers,
            unlogged: AtomicBool::new(false),
            wal_locks: ranked(locks::WAL_LOCKS, 0),
            max_total_wal_size: AtomicU64::new(options.max_total_wal_size),
            log_limit: AtomicU64::new(u64::MAX),
        }
    }

    /// The last write that a read which starts now sees.
    #[inline]
    pub(crate) fn visible(&self) -> SequenceNumber {
        SequenceNumber(self.order.visible.get())
    }

    /// The budget of the memtables.
    #[inline]
    pub(crate) fn buffers(&self) -> &WriteBuffers {
        &self.buffers
    }

    /// The budget of the memtables, for a new family to share.
    pub(crate) fn share_buffers(&self) -> Arc<WriteBuffers> {
        Arc::clone(&self.buffers)
    }

    /// Sets how large all logs together may become: `max_total_wal_size`, or four times all write buffers if that is 0.
    /// The write buffer of a single family bounds its logs, so that there is no default limit then.
    ///
    /// Called when families or options have changed.
    pub(crate) fn limit_logs(&self, families: &ArcSwap<FamilySet>) {
        // So that the last call has the last say.
        let _one_at_a_time = self.stall.lock();
        let families = families.load();
        let limit = match self.max_total_wal_size.load(Ordering::Relaxed) {
            0 if families.count() == 1 => u64::MAX,
            0 => {
                let all = families.iter().map(|f| f.write_buffers_size());
                all.fold(0, u64::saturating_add).saturating_mul(4)
            }
            set => set,
        };
        self.log_limit.store(limit, Ordering::Relaxed);
    }

    /// How large all logs together may become; `u64::MAX` means that there is no limit.
    #[inline]
    pub(crate) fn log_limit(&self) -> u64 {
        self.log_limit.load(Ordering::Relaxed)
    }

    /// How often `lock_wal` was called without `unlock_wal`. To be held while the log is locked or unlocked, and while it
    /// changes although no writer is let in.
    pub(crate) fn lock_wal_locks(&self) -> MutexGuard<'_, u32> {
        self.wal_locks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a write was acknowledged that is in no log and in no table yet.
    pub(crate) fn has_unlogged(&self) -> bool {
        self.unlogged.load(Ordering::Acquire)
    }
}
