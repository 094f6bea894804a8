//! How long the log has had no space on its device.
//!
//! All writes wait for space together: the time begins with the first that finds none, and ends with the next that finds
//! some. So a write that comes late waits for the rest of the time only, and one that comes after it fails at once.

use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::{Mutex, MutexGuard, PoisonError, ranked};

use crate::locks;

/// If no write has looked for so long, nobody knows whether there was space meanwhile: the time begins anew.
const FORGOTTEN_NANOS: u64 = 60_000_000_000;

/// See the module.
pub(crate) struct Space {
    lacks: AtomicBool,
    state: Mutex<State>,
}

/// Times by the clock, in nanoseconds.
#[derive(Default)]
struct State {
    /// The first write that found no space, and the last one.
    lacking: Option<(u64, u64)>,
}

impl Space {
    pub(crate) fn new() -> Self {
        Self {
            lacks: AtomicBool::new(false),
            state: ranked(locks::LEAF, State::default()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note that a write found no space. Returns for how many nanoseconds there has been none; `None` if this
    /// is the first to find out.
    pub(crate) fn lacks(&self, now: u64) -> Option<u64> {
        let mut state = self.lock();
        let is_known = |last: u64| now.saturating_sub(last) <= FORGOTTEN_NANOS;
        let since = state
            .lacking
            .filter(|(_, last)| is_known(*last))
            .map(|(first, _)| first);
        state.lacking = Some((since.unwrap_or(now), now));
        self.lacks.store(true, Ordering::Relaxed);
        since.map(|first| now.saturating_sub(first))
    }

    /// Takes note that a write found space. Returns for how many nanoseconds there had been none, if there had been
    /// none.
    #[inline]
    pub(crate) fn is_there(&self, now: impl FnOnce() -> u64) -> Option<u64> {
        if !self.lacks.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = self.lock();
        self.lacks.store(false, Ordering::Relaxed);
        let (first, _) = state.lacking.take()?;
        Some(now().saturating_sub(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_wait_together_until_one_finds_space() {
        let space = Space::new();
        assert_eq!(space.is_there(|| 5), None);
        assert_eq!(space.lacks(10), None);
        assert_eq!(space.lacks(14), Some(4));
        assert_eq!(space.lacks(30), Some(20));
        assert_eq!(space.is_there(|| 40), Some(30));
        assert_eq!(space.is_there(|| 41), None);
        assert_eq!(space.lacks(50), None, "it is another time");
        assert_eq!(space.lacks(50 + FORGOTTEN_NANOS), Some(FORGOTTEN_NANOS));
        let late = 51 + 2 * FORGOTTEN_NANOS;
        assert_eq!(space.lacks(late), None, "nobody has looked for long");
        assert_eq!(space.lacks(late + 2), Some(2));
    }
}
