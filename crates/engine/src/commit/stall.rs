//! Stalls: the flags that writers check, and the controller that decides how long they wait.

use base::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use base::sync::{Mutex, MutexGuard, PoisonError, ranked};

use crate::commit::write_controller::{Controller, Counts};
use crate::locks;
use options::hooks::listener::WriteStallCondition;

/// A flag that the write path checks once per group.
#[derive(Default)]
pub(crate) struct Attention(AtomicBool);

impl Attention {
    pub(crate) fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn clear(&self) {
        // A thread that raised the flag before has already written the state that the caller reads next.
        self.0.swap(false, Ordering::AcqRel);
    }
}

/// The state of stalls, as writers see it.
pub(crate) struct Stall {
    shaping: AtomicBool,
    /// The worst [`WriteStallCondition`] of all families.
    condition: AtomicU8,
    /// Bytes that may be written before the controller must be asked.
    pub(crate) allowance: AtomicI64,
    controller: Mutex<Controller>,
    /// How often the write-buffer manager stopped this database's writers.
    pub(crate) memory_stops: AtomicU64,
}

impl Stall {
    pub(crate) fn new(delayed_write_rate: u64) -> Self {
        Self {
            shaping: AtomicBool::new(false),
            condition: AtomicU8::new(0),
            allowance: AtomicI64::new(0),
            controller: ranked(locks::STALLS, Controller::new(delayed_write_rate)),
            memory_stops: AtomicU64::new(0),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Controller> {
        self.controller
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn is_shaping(&self) -> bool {
        self.shaping.load(Ordering::Acquire)
    }

    pub(crate) fn publish(&self, controller: &Controller) {
        let (condition, _) = controller.worst();
        self.condition.store(condition as u8, Ordering::Release);
        self.shaping
            .store(controller.is_shaping(), Ordering::Release);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.condition.load(Ordering::Acquire) == WriteStallCondition::Stopped as u8
    }

    pub(crate) fn is_normal(&self) -> bool {
        self.condition.load(Ordering::Acquire) == WriteStallCondition::Normal as u8
    }

    /// Whether writers are stopped by RocksDB's rules.
    pub(crate) fn writes_stopped(&self) -> bool {
        self.is_stopped()
    }

    /// Whether writers are slowed down by RocksDB's rules.
    pub(crate) fn writes_delayed(&self) -> bool {
        self.condition.load(Ordering::Acquire) == WriteStallCondition::Delayed as u8
    }

    /// Changes `delayed_write_rate`.
    pub(crate) fn set_delayed_write_rate(&self, rate: u64) {
        self.lock().set_delayed_write_rate(rate);
    }

    /// How often the family was found delayed or stopped.
    pub(crate) fn counts(&self, family: u32) -> Counts {
        self.lock().counts(family)
    }

    /// How often the write-buffer manager stopped this database's writers.
    pub(crate) fn memory_stops(&self) -> u64 {
        self.memory_stops.load(Ordering::Relaxed)
    }
}
