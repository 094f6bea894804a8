//! Background writers let synced writes go before them.
//!
//! Before a flush ends, a device brings everything to its medium that it was given, whoever gave it.
//! So a synced put pays for what compactions, flushes and the pool have handed over since the last
//! one. They hand over pieces, and of these one goes between two synced writes, right after the
//! first has landed: the device has it behind it, as far as it can, when the next one comes.
//!
//! Nobody waits for long: a synced write that takes its time may carry more, and where none comes,
//! none is waited for.

use std::time::Duration;

use base::clock::{self, Clock};
use base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use base::sync::{Condvar, Mutex, PoisonError};

/// Bytes that go between two synced writes.
pub(crate) const PIECE: u64 = 64 << 10;
/// The same beside synced writes that are slow: the piece is then a small part of them.
const PIECE_MAX: u64 = 256 << 10;
/// A piece while nobody syncs.
const IDLE_PIECE: u64 = 1 << 20;
/// How long a synced write is waited for before it is looked whether one is under way at all.
const LOOK: Duration = Duration::from_millis(1);
/// After so many looks in a row that found none, none is waited for until there is one again.
const IDLE_LOOKS: u32 = 4;
/// After so many looks a piece goes beside a synced write that does not end.
const LOOKS_MAX: u32 = 8;

/// What may go to the device now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) bytes: u64,
    /// Somebody writes synced: the piece should be on the device before the next is asked for.
    pub(crate) beside: bool,
}

/// Synced writes, and what is handed over beside them.
#[derive(Debug, Default)]
pub(crate) struct Courtesy {
    /// Synced writes that the device has now.
    flying: AtomicUsize,
    /// Synced writes that have ended.
    landed: AtomicU64,
    /// Background writers that wait for one to end.
    waiting: AtomicUsize,
    piled: Mutex<Piled>,
    told: Condvar,
}

#[derive(Debug, Default)]
struct Piled {
    /// [`Courtesy::landed`] when last looked at.
    seen: u64,
    /// Bytes granted since.
    bytes: u64,
    /// Nobody synced while somebody waited for it.
    idle: bool,
}

/// A synced write under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Flying<'a>(&'a Courtesy);

impl Drop for Flying<'_> {
    fn drop(&mut self) {
        let courtesy = self.0;
        courtesy.flying.fetch_sub(1, Ordering::SeqCst);
        courtesy.landed.fetch_add(1, Ordering::SeqCst);
        if courtesy.waiting.load(Ordering::SeqCst) > 0 {
            drop(courtesy.lock());
            courtesy.told.notify_all();
        }
    }
}

impl Courtesy {
    fn lock(&self) -> base::sync::MutexGuard<'_, Piled> {
        self.piled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A synced write goes to the device.
    pub(crate) fn take_off(&self) -> Flying<'_> {
        self.flying.fetch_add(1, Ordering::SeqCst);
        Flying(self)
    }

    /// Whether anybody has ever synced: else there is nobody to be courteous to.
    pub(crate) fn is_wanted(&self) -> bool {
        self.landed.load(Ordering::Relaxed) > 0
    }

    /// How many of `wanted` bytes may be handed to the device now; waits for the synced write that
    /// is under way if the one before has its piece already.
    pub(crate) fn grant(&self, clock: &dyn Clock, wanted: u64) -> Grant {
        let mut piled = self.lock();
        let (mut looks, mut empty) = (0, 0);
        // Told from here on of each one that lands.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let grant = loop {
            let landed = self.landed.load(Ordering::SeqCst);
            if landed != piled.seen {
                *piled = Piled {
                    seen: landed,
                    ..Piled::default()
                };
            }
            if piled.idle || landed == 0 {
                break Grant {
                    bytes: wanted.min(IDLE_PIECE),
                    beside: false,
                };
            }
            let piece = (PIECE << looks.min(2)).min(PIECE_MAX);
            let bytes = wanted.min(piece);
            if piled.bytes + bytes <= piece || looks == LOOKS_MAX {
                piled.bytes += bytes;
                break Grant {
                    bytes,
                    beside: true,
                };
            }
            piled = clock::wait_timeout(clock, &self.told, piled, LOOK);
            if self.landed.load(Ordering::SeqCst) == piled.seen {
                looks += 1;
                let none = self.flying.load(Ordering::SeqCst) == 0;
                empty = if none { empty + 1 } else { 0 };
                piled.idle = empty == IDLE_LOOKS;
            }
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        grant
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::clock::SystemClock;
    use base::sync::atomic::AtomicBool;
    use base::sync::thread;

    #[test]
    fn without_synced_writes_nothing_is_held_back() {
        let courtesy = Courtesy::default();
        assert!(!courtesy.is_wanted());
        let free = Grant {
            bytes: IDLE_PIECE,
            beside: false,
        };
        assert_eq!(
            (
                courtesy.grant(&*SystemClock::shared(), 8 << 20),
                courtesy.grant(&*SystemClock::shared(), 8 << 20)
            ),
            (free, free)
        );
        // The last one was long ago: it is waited for once.
        drop(courtesy.take_off());
        assert!(courtesy.is_wanted() && courtesy.grant(&*SystemClock::shared(), 8 << 20).beside);
        assert_eq!(
            (
                courtesy.grant(&*SystemClock::shared(), 8 << 20),
                courtesy.grant(&*SystemClock::shared(), 8 << 20)
            ),
            (free, free)
        );
        drop(courtesy.take_off());
        assert_eq!(
            courtesy.grant(&*SystemClock::shared(), 8 << 20),
            Grant {
                bytes: PIECE,
                beside: true
            }
        );
    }

    #[test]
    fn small_pieces_share_a_turn() {
        let courtesy = Courtesy::default();
        drop(courtesy.take_off());
        let _slow = courtesy.take_off();
        for _ in 0..4 {
            assert_eq!(
                courtesy.grant(&*SystemClock::shared(), PIECE / 4).bytes,
                PIECE / 4
            );
        }
        assert_eq!(courtesy.lock().bytes, PIECE);
    }

    #[test]
    fn beside_a_slow_write_the_pieces_are_larger_and_go_all_the_same() {
        let courtesy = Courtesy::default();
        drop(courtesy.take_off());
        let _hangs = courtesy.take_off();
        let pieces = [(); 4].map(|()| courtesy.grant(&*SystemClock::shared(), 8 << 20));
        assert!(pieces.iter().all(|g| g.beside), "{pieces:?}");
        assert_eq!(pieces[0].bytes, PIECE);
        assert!(
            pieces
                .iter()
                .all(|g| (PIECE..=PIECE_MAX).contains(&g.bytes))
        );
        assert!(pieces.iter().any(|g| g.bytes > PIECE), "{pieces:?}");
    }

    /// What two background writers hand over between two synced writes is one piece, whoever gives
    /// it.
    #[test]
    fn all_together_hand_over_one_piece_between_two() {
        let courtesy = Courtesy::default();
        let (done, most) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        courtesy.grant(&*SystemClock::shared(), 8 << 20);
                    }
                });
            }
            for _ in 0..500 {
                let flying = courtesy.take_off();
                thread::sleep(Duration::from_micros(50));
                let piled = courtesy.lock();
                if !piled.idle && piled.seen == courtesy.landed.load(Ordering::SeqCst) {
                    most.fetch_max(piled.bytes, Ordering::Relaxed);
                }
                drop(piled);
                drop(flying);
            }
            done.store(true, Ordering::Relaxed);
        });
        let most = most.load(Ordering::Relaxed);
        // A machine that is busy may stretch a write beyond a look.
        assert!((PIECE..=2 * PIECE_MAX).contains(&most), "{most}");
    }
}
