//! Limits: memory for bodies and answers, places for queries, rates of reports, and the time after
//! which to try again.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use base::sync::{Mutex, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// Memory is counted in pieces of this many bytes.
const PIECE: usize = 1024;
const NANOS: u64 = 1_000_000_000;

/// The memory for bodies and answers of all calls. An eighth of it is reserved for small ones, so
/// that large bodies that arrive slowly do not block single reports.
#[derive(Debug)]
pub(crate) struct Memory {
    all: Arc<Semaphore>,
    reserve: usize,
}

/// Up to this many bytes are small.
const SMALL: usize = 64 * 1024;

/// Memory that is given back when this is dropped.
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

    /// Grows `held` to this many bytes. Returns `false` if there is not enough memory.
    pub(crate) fn grow(&self, held: &mut Held, bytes: usize) -> bool {
        if bytes <= held.bytes {
            return true;
        }
        let pieces = (bytes - held.bytes).div_ceil(PIECE);
        // Not atomic: others may take some in between, but the reserve need not be exact.
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
    /// Gives back the memory beyond this many bytes.
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

/// Places for queries, exports or streams. If there are several tokens, each has at most half of
/// the places, so that slow calls with one token do not block the others.
#[derive(Debug)]
pub(crate) struct Places {
    all: Arc<Semaphore>,
    count: usize,
    /// The shares of tokens that have places or wait for one.
    shares: Mutex<BTreeMap<String, Weak<Semaphore>>>,
}

/// A place, until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _of_all: OwnedSemaphorePermit,
    _of_share: Option<OwnedSemaphorePermit>,
}

/// Why there was no place in time; with the number of taken places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// All places are taken.
    All(usize),
    /// All places of the token's share are taken.
    Share(usize),
}

impl Places {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(count)),
            count,
            shares: Mutex::default(),
        }
    }

    /// Waits for a place until `end`; with a token, for one of its share.
    pub(crate) async fn take(&self, token: Option<&str>, end: Instant) -> Result<Place, NoPlace> {
        let share = (self.count / 2).max(1);
        let of_share = match token {
            None => None,
            Some(token) => {
                let permit = self.share(token, share).acquire_owned();
                let permit = timeout_at(end, permit).await.ok().and_then(Result::ok);
                Some(permit.ok_or(NoPlace::Share(share))?)
            }
        };
        let permit = timeout_at(end, Arc::clone(&self.all).acquire_owned()).await;
        let permit = permit.ok().and_then(Result::ok);
        Ok(Place {
            _of_all: permit.ok_or(NoPlace::All(self.count))?,
            _of_share: of_share,
        })
    }

    /// A place, if there is one now.
    pub(crate) fn try_take(&self, token: Option<&str>) -> Result<Place, NoPlace> {
        let share = (self.count / 2).max(1);
        let of_share = match token {
            None => None,
            Some(token) => {
                let permit = self.share(token, share).try_acquire_owned();
                Some(permit.map_err(|_| NoPlace::Share(share))?)
            }
        };
        let permit = Arc::clone(&self.all).try_acquire_owned();
        Ok(Place {
            _of_all: permit.map_err(|_| NoPlace::All(self.count))?,
            _of_share: of_share,
        })
    }

    /// The number of taken places.
    pub(crate) fn taken(&self) -> usize {
        self.count.saturating_sub(self.all.available_permits())
    }

    fn share(&self, token: &str, places: usize) -> Arc<Semaphore> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(token).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(places));
        shares.insert(token.to_owned(), Arc::downgrade(&share));
        share
    }
}

/// A rate limit per second. A single take may exceed it; then nothing is given until the rate has
/// made up for it.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate: f64,
    inner: Mutex<(f64, u64)>,
}

impl Bucket {
    /// A full bucket.
    pub(crate) fn new(rate: f64, now: u64) -> Self {
        Self {
            rate,
            inner: Mutex::new((rate, now)),
        }
    }

    /// Errors: nothing is left; the error is the number of seconds until there is something.
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

    /// Takes `count`, even if less is left.
    pub(crate) fn take(&self, count: usize) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.0 -= count as f64;
    }
}

/// The rate of answered reports in the last seconds.
#[derive(Debug, Default)]
pub(crate) struct Drain(Mutex<[(u64, u64); Drain::SECONDS]>);

impl Drain {
    const SECONDS: usize = 5;

    /// Counts answered reports.
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

    /// The time in which this many reports are answered, 1 to 60 seconds.
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
    fn a_token_has_half_of_the_places_and_one_at_least() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let places = Places::new(5);
            let take = |token| places.take(token, Instant::now());
            let mut held = vec![
                take(Some("a")).await.unwrap(),
                take(Some("a")).await.unwrap(),
            ];
            assert_eq!(take(Some("a")).await.unwrap_err(), NoPlace::Share(2));
            held.push(take(Some("b")).await.unwrap());
            held.push(take(None).await.unwrap());
            held.push(take(None).await.unwrap());
            assert_eq!(take(Some("b")).await.unwrap_err(), NoPlace::All(5));
            held.remove(0);
            held.push(take(Some("a")).await.unwrap());
            drop(held);
            let all: Vec<Place> = (0..2)
                .map(|_| places.try_take(Some("a")).unwrap())
                .collect();
            assert_eq!(places.taken(), 2);
            let e = places.try_take(Some("a")).unwrap_err();
            assert_eq!(e, NoPlace::Share(2));
            drop(all);
            assert_eq!(places.taken(), 0);
            let one = Places::new(1);
            drop(one.take(Some("a"), Instant::now()).await.unwrap());
            drop(one.take(Some("b"), Instant::now()).await.unwrap());
            assert_eq!(one.shares.lock().unwrap().len(), 1);
        });
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
