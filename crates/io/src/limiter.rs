//! A rate limit in bytes per second for background work: flushes and compactions.
//!
//! The budget is refilled once per refill period. A request for more bytes than are left waits in the
//! queue of its priority. At each refill the queues are served from the highest priority down, each
//! in order. To prevent a flood of flushes from starving compactions, one refill in `fairness`, chosen
//! at random, serves lower priorities first; requests of [`IoPriority::User`] always come first. Writes
//! of the log are never limited.
//!
//! With `auto_tuned`, the rate varies between a twentieth of the configured rate and all of it, by
//! RocksDB's rules: it falls by 5 % at a time while requests wait at fewer than half of the refills,
//! and rises by 5 % at a time while they wait at more than 90 %. If no request waits, it falls to the
//! lowest rate at once.
//!
//! The arithmetic is a state machine that gets the time as an argument; only [`RateLimiter::request`]
//! waits.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::Result;
use base::clock::{self, Clock};
use base::rng::Rng;
use base::sync::{Condvar, Mutex, MutexGuard, PoisonError, ranked};

use crate::locks;
use crate::{File, FileWrapper, WriteSync};

/// How urgent a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IoPriority {
    /// Compactions.
    Low,
    /// Between `Low` and `High`.
    Mid,
    /// Flushes.
    High,
    /// I/O that a user's call waits for.
    User,
}

impl IoPriority {
    const ALL: [Self; 4] = [Self::Low, Self::Mid, Self::High, Self::User];
}

/// What is limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateLimiterMode {
    /// Reads only.
    ReadsOnly,
    /// Writes only.
    #[default]
    WritesOnly,
    /// Both.
    AllIo,
}

impl RateLimiterMode {
    /// Whether writes are limited.
    pub fn writes(self) -> bool {
        self != Self::ReadsOnly
    }

    /// Whether reads are limited.
    pub fn reads(self) -> bool {
        self != Self::WritesOnly
    }
}

/// Settings of a [`RateLimiter`].
#[derive(Clone, Copy, Debug)]
pub struct RateLimiterOptions {
    /// Bytes per second; the maximum with `auto_tuned`.
    pub rate_bytes_per_sec: u64,
    /// Microseconds between two refills of the budget.
    pub refill_period_us: u64,
    /// One refill in this many, on average, serves lower priorities first.
    pub fairness: u32,
    /// What is limited.
    pub mode: RateLimiterMode,
    /// Whether the rate is adapted to the demand.
    pub auto_tuned: bool,
}

impl RateLimiterOptions {
    /// RocksDB's defaults for this many bytes per second.
    pub fn new(rate_bytes_per_sec: u64) -> Self {
        Self {
            rate_bytes_per_sec,
            refill_period_us: 100_000,
            fairness: 10,
            mode: RateLimiterMode::default(),
            auto_tuned: false,
        }
    }
}

/// Limits the rate of I/O. May be shared by several databases.
pub struct RateLimiter {
    clock: Arc<dyn Clock>,
    mode: RateLimiterMode,
    bucket: Mutex<Bucket>,
    served: Condvar,
}

impl RateLimiter {
    /// A limiter that takes its time from `clock`.
    pub fn new(options: RateLimiterOptions, clock: Arc<dyn Clock>) -> Self {
        let clock = base::clock::guarded(&clock);
        let bucket = Bucket::new(options, clock.monotonic_nanos());
        Self {
            clock,
            mode: options.mode,
            bucket: ranked(locks::LIMITER, bucket),
            served: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Bucket> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is limited.
    pub fn mode(&self) -> RateLimiterMode {
        self.mode
    }

    /// The current rate in bytes per second.
    pub fn bytes_per_second(&self) -> u64 {
        self.lock().rate
    }

    /// Changes the rate; with auto-tuning, the maximum rate.
    pub fn set_bytes_per_second(&self, bytes: u64) {
        self.lock().set_rate(bytes);
        self.served.notify_all();
    }

    /// The maximum number of bytes that one refill provides.
    pub fn single_burst_bytes(&self) -> u64 {
        self.lock().per_period()
    }

    /// Bytes requested with a priority so far.
    pub fn total_bytes_through(&self, priority: IoPriority) -> u64 {
        self.lock().through[priority as usize]
    }

    /// Requests made with a priority so far.
    pub fn total_requests(&self, priority: IoPriority) -> u64 {
        self.lock().requests[priority as usize]
    }

    /// Returns when `bytes` may be written or read.
    pub fn request(&self, bytes: u64, priority: IoPriority) {
        let mut bucket = self.lock();
        let Some(ticket) = bucket.ask(self.clock.monotonic_nanos(), bytes, priority) else {
            return;
        };
        loop {
            let now = self.clock.monotonic_nanos();
            if bucket.turn(now) {
                self.served.notify_all();
            }
            if bucket.is_served(ticket) {
                return;
            }
            let wait = Duration::from_nanos(bucket.next_refill.saturating_sub(now).max(1000));
            bucket = clock::wait_timeout(&*self.clock, &self.served, bucket, wait);
        }
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RateLimiter({} bytes/s)", self.bytes_per_second())
    }
}

/// Refills between two adaptations of the rate.
const REFILLS_PER_TUNE: u64 = 100;

struct Waiting {
    ticket: u64,
    left: u64,
}

/// The budget, and the requests that wait for it.
struct Bucket {
    rate: u64,
    rate_max: u64,
    period_nanos: u64,
    fairness: u32,
    auto_tuned: bool,
    available: u64,
    next_refill: u64,
    queues: [VecDeque<Waiting>; 4],
    next_ticket: u64,
    rng: Rng,
    through: [u64; 4],
    requests: [u64; 4],
    /// Refills that found a waiting request, since the last tuning.
    drained: u64,
    tuned_at: u64,
}

impl Bucket {
    fn new(o: RateLimiterOptions, now: u64) -> Self {
        let rate_max = o.rate_bytes_per_sec.max(1);
        let period_nanos = o.refill_period_us.clamp(100, 10_000_000) * 1000;
        let mut bucket = Self {
            rate: if o.auto_tuned { rate_max / 2 } else { rate_max }.max(1),
            rate_max,
            period_nanos,
            fairness: o.fairness.clamp(1, 100),
            auto_tuned: o.auto_tuned,
            available: 0,
            next_refill: now + period_nanos,
            queues: Default::default(),
            next_ticket: 0,
            rng: Rng::new(0x9e37),
            through: [0; 4],
            requests: [0; 4],
            drained: 0,
            tuned_at: now,
        };
        bucket.available = bucket.per_period();
        bucket
    }

    fn per_period(&self) -> u64 {
        let bytes = u128::from(self.rate) * u128::from(self.period_nanos) / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX).max(1)
    }

    fn set_rate(&mut self, rate: u64) {
        self.rate_max = rate.max(1);
        self.rate = self.rate_max;
    }

    fn nobody_waits(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
    }

    /// Takes the bytes from the budget if there are enough; otherwise queues the request and returns its
    /// ticket.
    fn ask(&mut self, now: u64, bytes: u64, priority: IoPriority) -> Option<u64> {
        self.turn(now);
        self.requests[priority as usize] += 1;
        self.through[priority as usize] += bytes;
        if self.nobody_waits() && bytes <= self.available {
            self.available -= bytes;
            return None;
        }
        self.next_ticket += 1;
        let ticket = self.next_ticket;
        self.queues[priority as usize].push_back(Waiting {
            ticket,
            left: bytes,
        });
        self.serve();
        Some(ticket)
    }

    fn is_served(&self, ticket: u64) -> bool {
        !self.queues.iter().flatten().any(|w| w.ticket == ticket)
    }

    /// Refills the budget if it is time, and serves the waiting requests. True if there were any.
    fn turn(&mut self, now: u64) -> bool {
        if now < self.next_refill {
            return false;
        }
        let waited = !self.nobody_waits();
        self.drained += u64::from(waited);
        self.tune(now);
        // Unused budget is lost: an idle time does not allow a burst later.
        self.available = self.per_period();
        self.next_refill = now + self.period_nanos;
        self.serve();
        waited
    }

    fn serve(&mut self) {
        for priority in self.order() {
            let queue = &mut self.queues[priority as usize];
            while let Some(first) = queue.front_mut() {
                let given = first.left.min(self.available);
                first.left -= given;
                self.available -= given;
                if first.left > 0 {
                    return;
                }
                queue.pop_front();
            }
        }
    }

    /// The order in which the queues are served at a refill.
    fn order(&mut self) -> [IoPriority; 4] {
        let [low, mid, high, user] = IoPriority::ALL;
        let one_in = u64::from(self.fairness);
        let (high_last, low_before_mid) = (self.rng.one_in(one_in), self.rng.one_in(one_in));
        match (high_last, low_before_mid) {
            (false, false) => [user, high, mid, low],
            (false, true) => [user, high, low, mid],
            (true, false) => [user, mid, low, high],
            (true, true) => [user, low, mid, high],
        }
    }

    fn tune(&mut self, now: u64) {
        let elapsed = now.saturating_sub(self.tuned_at) / self.period_nanos;
        if !self.auto_tuned || elapsed < REFILLS_PER_TUNE {
            return;
        }
        let percent = self.drained * 100 / elapsed;
        let least = (self.rate_max / 20).max(1);
        let rate = u128::from(self.rate);
        let scaled = |n: u128, d: u128| u64::try_from(rate * n / d).unwrap_or(u64::MAX);
        self.rate = match percent {
            0 => least,
            1..50 => scaled(100, 105).max(least),
            50..=90 => self.rate,
            _ => scaled(105, 100).max(self.rate + 1).min(self.rate_max),
        };
        self.drained = 0;
        self.tuned_at = now;
    }
}

/// Wraps a file so that its reads and writes are limited, as the limiter's mode says.
pub fn limited(
    file: Arc<dyn File>,
    limiter: Arc<RateLimiter>,
    priority: IoPriority,
) -> Arc<dyn File> {
    Arc::new(Limited {
        file,
        limiter,
        priority,
    })
}

#[derive(Debug)]
struct Limited {
    file: Arc<dyn File>,
    limiter: Arc<RateLimiter>,
    priority: IoPriority,
}

impl FileWrapper for Limited {
    fn inner(&self) -> &dyn File {
        &*self.file
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        if self.limiter.mode().reads() {
            self.limiter.request(buf.len() as u64, self.priority);
        }
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64, sync: WriteSync) -> Result<usize> {
        if self.limiter.mode().writes() {
            self.limiter.request(data.len() as u64, self.priority);
        }
        self.file.write_at(data, offset, sync)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::clock::SystemClock;

    const MS: u64 = 1_000_000;
    const PERIOD: u64 = 100 * MS;

    fn bucket(rate: u64, auto_tuned: bool) -> Bucket {
        let options = RateLimiterOptions {
            auto_tuned,
            ..RateLimiterOptions::new(rate)
        };
        Bucket::new(options, 0)
    }

    #[test]
    fn a_second_gives_what_was_set_and_a_pause_gives_no_more() {
        let mut b = bucket(1000, false);
        assert_eq!(b.ask(0, 60, IoPriority::Low), None);
        assert_eq!(b.ask(0, 40, IoPriority::Low), None);
        let ticket = b.ask(0, 250, IoPriority::Low).unwrap();
        for (now, done) in [(1, false), (2, false), (3, true)] {
            b.turn(now * PERIOD);
            assert_eq!(b.is_served(ticket), done, "{now}");
        }
        assert_eq!(b.ask(3 * PERIOD, 50, IoPriority::Low), None);
        assert!(b.ask(3 * PERIOD, 1, IoPriority::Low).is_some());
        b.turn(100 * PERIOD);
        assert_eq!(b.available, 99);
    }

    #[test]
    fn flushes_go_before_compactions_but_do_not_starve_them() {
        let mut b = bucket(1000, false);
        b.ask(0, 100, IoPriority::Low);
        let low = b.ask(0, 100, IoPriority::Low).unwrap();
        let high = b.ask(0, 100, IoPriority::High).unwrap();
        let user = b.ask(0, 100, IoPriority::User).unwrap();
        b.turn(PERIOD);
        assert!(b.is_served(user) && !b.is_served(high));
        let mut periods = 1;
        while !b.is_served(low) {
            periods += 1;
            b.ask(periods * PERIOD, 100, IoPriority::High);
            b.turn(periods * PERIOD);
            assert!(periods < 200, "starved");
        }
        assert!(b.total_served() > 0);
    }

    impl Bucket {
        fn total_served(&self) -> u64 {
            self.through.iter().sum()
        }
    }

    #[test]
    fn the_rate_follows_the_demand_within_bounds() {
        let mut b = bucket(1_000_000, true);
        assert_eq!(b.rate, 500_000);
        let mut now = 0;
        for _ in 0..3000 {
            now += PERIOD;
            b.ask(now, b.per_period() * 2, IoPriority::Low);
            b.turn(now);
        }
        assert_eq!(b.rate, 1_000_000, "always drained");
        b.queues = Default::default();
        b.drained = 0;
        for _ in 0..200 {
            now += PERIOD;
            b.turn(now);
        }
        assert_eq!(b.rate, 50_000, "idle: a twentieth");
    }

    #[test]
    fn requests_wait_for_their_turn() {
        let options = RateLimiterOptions {
            refill_period_us: 1000,
            ..RateLimiterOptions::new(1_000_000)
        };
        let limiter = RateLimiter::new(options, SystemClock::shared());
        let start = limiter.clock.monotonic_nanos();
        base::sync::thread::scope(|s| {
            for priority in [IoPriority::Low, IoPriority::High] {
                let limiter = &limiter;
                s.spawn(move || (0..10).for_each(|_| limiter.request(1000, priority)));
            }
        });
        let took = limiter.clock.monotonic_nanos() - start;
        assert!(took > 15 * MS, "{took}");
        assert_eq!(limiter.total_bytes_through(IoPriority::Low), 10_000);
        assert_eq!(limiter.total_requests(IoPriority::High), 10);
    }
}
