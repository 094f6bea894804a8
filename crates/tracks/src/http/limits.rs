//! Limits: how much memory bodies and answers may have, how many reports a token may send, when to come again.

use std::sync::Arc;

use base::sync::{Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory is counted in pieces of so many bytes.
const PIECE: usize = 1024;
const NANOS: u64 = 1_000_000_000;

/// Bytes that bodies and answers of all calls may have together. An eighth of them is for small ones alone, so that large
/// ones that come slowly do not keep single reports away.
#[derive(Debug)]
pub(crate) struct Memory {
    all: Arc<Semaphore>,
    reserve: usize,
}

/// What has so many bytes is small.
const SMALL: usize = 64 * 1024;

/// Bytes that are given back when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Held {
    permit: Option<OwnedSemaphorePermit>,
    bytes: usize,
}

impl Memory {
    pub(crate) fn new(bytes: usize) -> Self {
        let pieces = (bytes / PIECE).min(Semaphore::MAX_PERMITS);
        Self {
            all: Arc::new(Semaphore::new(pieces)),
            reserve: pieces / 8,
        }
    }

    /// Lets `held` have so many bytes in all. Returns whether there are as many.
    pub(crate) fn grow(&self, held: &mut Held, bytes: usize) -> bool {
        if bytes <= held.bytes {
            return true;
        }
        let pieces = (bytes - held.bytes).div_ceil(PIECE);
        // Between this look and the taking others may take some: the reserve is as good as that.
        let is_kept = bytes > SMALL && self.all.available_permits() < self.reserve + pieces;
        let taken = u32::try_from(pieces)
            .ok()
            .filter(|_| !is_kept)
            .and_then(|pieces| Arc::clone(&self.all).try_acquire_many_owned(pieces).ok());
        let Some(permit) = taken else {
            return false;
        };
        match &mut held.permit {
            Some(all) => all.merge(permit),
            none => *none = Some(permit),
        }
        held.bytes += pieces * PIECE;
        true
    }
}

impl Held {
    /// Gives back what is more than so many bytes.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let pieces = self.bytes.saturating_sub(bytes) / PIECE;
        if let Some(permit) = &mut self.permit
            && let Some(more) = permit.split(pieces)
        {
            drop(more);
            self.bytes -= pieces * PIECE;
        }
    }
}

/// A rate: so many a second. What is taken at once may be more; then nothing is given until the rate has made up for
/// it.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate: f64,
    inner: Mutex<(f64, u64)>,
}

impl Bucket {
    /// One that is full.
    pub(crate) fn new(rate: f64, now: u64) -> Self {
        Self {
            rate,
            inner: Mutex::new((rate, now)),
        }
    }

    /// Errors: nothing is left, and after so many seconds there is something.
    pub(crate) fn check(&self, now: u64) -> Result<(), u64> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, since) = *inner;
        let new = now.saturating_sub(since) as f64 / NANOS as f64 * self.rate;
        let left = (left + new).min(self.rate.max(1.0));
        *inner = (left, now.max(since));
        if left > 0.0 {
            return Ok(());
        }
        Err((-left / self.rate).ceil().clamp(1.0, 3600.0) as u64)
    }

    /// Takes some, if there are as many or not.
    pub(crate) fn take(&self, count: usize) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.0 -= count as f64;
    }
}

/// How many reports are answered a second, of the last seconds.
#[derive(Debug, Default)]
pub(crate) struct Drain(Mutex<[(u64, u64); Drain::SECONDS]>);

impl Drain {
    const SECONDS: usize = 5;

    /// Some were answered.
    pub(crate) fn add(&self, now: u64, count: usize) {
        let second = now / NANOS;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = all.get_mut((second % Self::SECONDS as u64) as usize) {
            if place.0 != second {
                *place = (second, 0);
            }
            place.1 += count as u64;
        }
    }

    /// In how many seconds so many are answered, 1 to 60.
    pub(crate) fn seconds_for(&self, now: u64, count: usize) -> u64 {
        let second = now / NANOS;
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = |place: &&(u64, u64)| place.0 + Self::SECONDS as u64 > second;
        let answered: u64 = all.iter().filter(is_new).map(|place| place.1).sum();
        let seconds = (count as u64 * Self::SECONDS as u64).checked_div(answered);
        seconds.unwrap_or(60).clamp(1, 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_comes_back() {
        let memory = Memory::new(10 * PIECE);
        let (mut a, mut b) = (Held::default(), Held::default());
        assert!(memory.grow(&mut a, 3000) && memory.grow(&mut a, 8 * PIECE));
        assert!(!memory.grow(&mut b, 3 * PIECE) && memory.grow(&mut b, 2 * PIECE));
        drop(a);
        assert!(memory.grow(&mut b, 10 * PIECE) && !memory.grow(&mut b, 10 * PIECE + 1));
    }

    #[test]
    fn a_rate_is_made_up_for() {
        let bucket = Bucket::new(10.0, 0);
        assert_eq!(bucket.check(0), Ok(()));
        bucket.take(40);
        assert_eq!(bucket.check(0), Err(3));
        assert_eq!(bucket.check(2 * NANOS), Err(1));
        assert_eq!(bucket.check(4 * NANOS), Ok(()));
        bucket.take(10);
        assert_eq!(bucket.check(4 * NANOS), Err(1));
    }

    #[test]
    fn when_to_come_again() {
        let drain = Drain::default();
        assert_eq!(drain.seconds_for(9 * NANOS, 1), 60);
        (0..5).for_each(|second| drain.add((10 + second) * NANOS, 100));
        assert_eq!(drain.seconds_for(14 * NANOS, 50), 1);
        assert_eq!(drain.seconds_for(14 * NANOS, 1000), 10);
        assert_eq!(drain.seconds_for(14 * NANOS, 100_000), 60);
        assert_eq!(drain.seconds_for(17 * NANOS, 1000), 25);
    }
}
