//! How a database reports its operations: LOG and the events in it, counters, and listeners.

pub(crate) mod dump;
pub(crate) mod events;
pub(crate) mod log;
pub(crate) mod stats;

use std::sync::Arc;

use base::clock::Clock;
use base::stats::{HistogramKind, Statistics, Ticker};

use crate::info::log::InfoLog;
use crate::info::stats::DbStats;
use crate::outbox::Outbox;
use options::Env;
use options::hooks::listener::{EventListener, Listeners};

/// The outputs for reports about an open database: LOG, counters, and the application's listeners.
pub(crate) struct Info {
    pub(crate) log: InfoLog,
    /// Counts of the database's operations since it was opened.
    pub(crate) stats: DbStats,
    /// The application's statistics, if it has set any.
    pub(crate) statistics: Option<Arc<Statistics>>,
    pub(crate) clock: Arc<dyn Clock>,
    listeners: Listeners,
    /// Calls of listeners that are queued until no lock is held.
    pub(crate) outbox: Outbox,
}

impl Info {
    /// The outputs of a database that is being opened.
    pub(crate) fn new(log: InfoLog, env: &Env) -> Self {
        Self {
            log,
            stats: DbStats::new(env.clock.monotonic_nanos()),
            statistics: env.statistics.clone(),
            clock: Arc::clone(&env.clock),
            listeners: env.listeners.clone(),
            outbox: Outbox::default(),
        }
    }

    #[inline]
    pub(crate) fn count(&self, t: Ticker, n: u64) {
        self.stats.count(t, n);
        if let Some(s) = &self.statistics {
            s.add(t, n);
        }
    }

    /// Adds a value to a histogram; for times see [`Info::timed`].
    #[inline]
    pub(crate) fn record(&self, h: HistogramKind, value: u64) {
        if let Some(s) = &self.statistics {
            s.record(h, value);
        }
    }

    /// The time in nanoseconds, if times are recorded; to be given to [`Info::timed`].
    #[inline]
    pub(crate) fn timer(&self) -> Option<u64> {
        let statistics = self.statistics.as_ref()?;
        statistics
            .wants_times()
            .then(|| self.clock.monotonic_nanos())
    }

    /// Adds the microseconds since [`Info::timer`] to a histogram.
    #[inline]
    pub(crate) fn timed(&self, h: HistogramKind, since: Option<u64>) {
        if let (Some(s), Some(since)) = (&self.statistics, since) {
            let nanos = self.clock.monotonic_nanos() - since;
            s.record_time(h, nanos / 1000);
        }
    }

    /// The listeners.
    pub(crate) fn listeners(&self) -> &Listeners {
        &self.listeners
    }

    /// Calls `f` with each listener now. No lock may be held: see also [`Info::tell_later`].
    pub(crate) fn tell(&self, f: impl Fn(&dyn EventListener)) {
        let panicked = self.listeners.tell(f);
        if panicked > 0 {
            self.log
                .error(format_args!("{panicked} event listeners panicked"));
        }
    }

    /// Calls `f` with each listener as soon as this thread holds no lock.
    pub(crate) fn tell_later(&self, f: impl Fn(&dyn EventListener) + Send + 'static) {
        if !self.listeners.is_empty() {
            self.outbox.put(Box::new(f));
        }
    }

    /// Called before this thread waits: leaves its letters to another thread.
    #[inline]
    pub(crate) fn leave_letters(&self) {
        self.outbox.leave();
    }

    /// Delivers this thread's letters. No lock may be held.
    #[inline]
    pub(crate) fn hand_out(&self) {
        for letter in self.outbox.take_mine() {
            self.tell(|l| letter(l));
        }
    }

    /// Delivers the letters of all threads. No thread of the database runs any more.
    pub(crate) fn hand_out_all(&self) {
        for letter in self.outbox.take_all() {
            self.tell(|l| letter(l));
        }
    }
}
