//! Background writers give way to synced writes.
//!
//! When a device flushes its cache, it brings all data to its medium, whichever writer wrote it. So a synced
//! put pays for the data that compactions, flushes and the pool have written since the last synced write.
//! Therefore these background writers write in pieces. Only one piece is written between two synced writes,
//! right after the first has landed. The device has then finished the piece, as far as possible, when the
//! next synced write comes.
//!
//! No background writer waits for long: beside a slow synced write the pieces are larger, and if no
//! synced write comes, the background writer does not wait for one.

use std::time::Duration;

use base::clock::{self, Clock};
use base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use base::sync::{Condvar, Mutex, MutexGuard, PoisonError, ranked};

use crate::locks;

/// Bytes that background writers write between two synced writes.
pub(crate) const PIECE: u64 = 64 << 10;
/// The most bytes of a piece beside slow synced writes: the piece is then a small part of the device's work.
const PIECE_MAX: u64 = 256 << 10;
/// Beside large synced writes a piece is this many times their size: otherwise flushes and compactions could
/// never keep up with the writes.
const TIMES_WRITTEN: u64 = 8;
/// The most bytes of a piece beside large synced writes.
const LARGE_PIECE_MAX: u64 = 4 << 20;
/// Bytes of a piece while there are no synced writes.
const IDLE_PIECE: u64 = 1 << 20;
/// How long to wait for a synced write before checking whether any synced write is under way.
const LOOK: Duration = Duration::from_millis(1);
/// After this many checks in a row that found no synced write, background writers do not wait until a synced
/// write has landed again.
const IDLE_LOOKS: u32 = 4;
/// After this many checks a piece is written beside a synced write that does not end.
const LOOKS_MAX: u32 = 8;

/// The permission of a background writer to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) bytes: u64,
    /// Whether there are synced writes: the piece should then be on the device before the next grant is requested.
    pub(crate) beside: bool,
}

/// Synced writes, and what background writers write beside them.
#[derive(Debug)]
pub(crate) struct Courtesy {
    /// Synced writes that are under way now.
    flying: AtomicUsize,
    /// Synced writes that have ended.
    landed: AtomicU64,
    /// Bytes of the last synced write.
    carried: AtomicU64,
    /// Background writers that wait for a synced write to end.
    waiting: AtomicUsize,
    /// One more than [`Courtesy::landed`] was when a background writer last waited for a synced write in
    /// vain; 0 if that never happened. There are no synced writes while this is still one more than `landed`.
    idle_at: AtomicU64,
    piled: Mutex<Piled>,
    told: Condvar,
}

#[derive(Debug, Default)]
struct Piled {
    /// [`Courtesy::landed`] when it was last read.
    seen: u64,
    /// Bytes granted since then.
    bytes: u64,
}

/// A synced write under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct Flying<'a>(&'a Courtesy);

impl Drop for Flying<'_> {
    fn drop(&mut self) {
        let courtesy = self.0;
        let before = courtesy.flying.fetch_sub(1, Ordering::SeqCst);
        base::invariant!(before > 0, "a synced write lands twice");
        courtesy.landed.fetch_add(1, Ordering::SeqCst);
        if courtesy.waiting.load(Ordering::SeqCst) > 0 {
            drop(courtesy.lock());
            courtesy.told.notify_all();
        }
    }
}

impl Default for Courtesy {
    fn default() -> Self {
        Self {
            flying: AtomicUsize::new(0),
            landed: AtomicU64::new(0),
            carried: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            idle_at: AtomicU64::new(0),
            piled: ranked(locks::LEAF, Piled::default()),
            told: Condvar::new(),
        }
    }
}

impl Courtesy {
    fn lock(&self) -> MutexGuard<'_, Piled> {
        self.piled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a synced write of `bytes` as under way. It has landed when the result is dropped.
    pub(crate) fn take_off(&self, bytes: u64) -> Flying<'_> {
        self.carried.store(bytes, Ordering::Relaxed);
        self.flying.fetch_add(1, Ordering::SeqCst);
        Flying(self)
    }

    /// Whether a synced write has ever landed: otherwise there is nothing to give way to.
    pub(crate) fn is_wanted(&self) -> bool {
        self.landed.load(Ordering::Relaxed) > 0
    }

    /// How many bytes a background writer gathers before it requests a grant.
    pub(crate) fn step(&self) -> u64 {
        let landed = self.landed.load(Ordering::Relaxed);
        if self.idle_at.load(Ordering::Relaxed) == landed + 1 {
            IDLE_PIECE
        } else {
            PIECE
        }
    }

    /// Bytes of a piece between two synced writes after a wait of `looks` checks.
    fn piece(&self, looks: u32) -> u64 {
        let carried = self.carried.load(Ordering::Relaxed);
        let least = carried
            .saturating_mul(TIMES_WRITTEN)
            .clamp(PIECE, LARGE_PIECE_MAX);
        (least << looks.min(2)).min(PIECE_MAX.max(least))
    }

    /// How many of `wanted` bytes may be written now. If the piece after the last synced write was already
    /// granted, waits until the next synced write lands, but not for long.
    pub(crate) fn grant(&self, clock: &dyn Clock, wanted: u64) -> Grant {
        let mut piled = self.lock();
        // From here on, each synced write that lands wakes this thread.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let (mut waited, mut looks, mut empty) = (0, 0, 0);
        let grant = loop {
            let landed = self.landed.load(Ordering::SeqCst);
            if landed != piled.seen {
                (piled.seen, piled.bytes) = (landed, 0);
            }
            if landed != waited {
                // Another synced write has landed: count the checks anew, because another background
                // writer may take this piece.
                (waited, looks, empty) = (landed, 0, 0);
            }
            if landed == 0 || self.idle_at.load(Ordering::Relaxed) == landed + 1 {
                break Grant {
                    bytes: wanted.min(IDLE_PIECE),
                    beside: false,
                };
            }
            let piece = self.piece(looks);
            let bytes = wanted.min(piece);
            if piled.bytes + bytes <= piece || looks == LOOKS_MAX {
                piled.bytes += bytes;
                break Grant {
                    bytes,
                    beside: true,
                };
            }
            piled = clock::wait_timeout(clock, &self.told, piled, LOOK);
            looks += 1;
            let none = self.flying.load(Ordering::SeqCst) == 0;
            empty = if none { empty + 1 } else { 0 };
            if empty == IDLE_LOOKS && self.landed.load(Ordering::SeqCst) == waited {
                self.idle_at.store(waited + 1, Ordering::Relaxed);
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

    fn grant(courtesy: &Courtesy, wanted: u64) -> Grant {
        courtesy.grant(&*SystemClock::shared(), wanted)
    }

    #[test]
    fn without_synced_writes_nothing_is_held_back() {
        let courtesy = Courtesy::default();
        assert!(!courtesy.is_wanted());
        assert_eq!(courtesy.step(), PIECE);
        let free = Grant {
            bytes: IDLE_PIECE,
            beside: false,
        };
        assert_eq!(
            (grant(&courtesy, 8 << 20), grant(&courtesy, 8 << 20)),
            (free, free)
        );
        // The last synced write was long ago: the grant waits for the next one once.
        drop(courtesy.take_off(100));
        assert!(courtesy.is_wanted() && grant(&courtesy, 8 << 20).beside);
        assert_eq!(
            (grant(&courtesy, 8 << 20), grant(&courtesy, 8 << 20)),
            (free, free)
        );
        assert_eq!(courtesy.step(), IDLE_PIECE);
        drop(courtesy.take_off(100));
        assert_eq!(courtesy.step(), PIECE);
        assert_eq!(
            grant(&courtesy, 8 << 20),
            Grant {
                bytes: PIECE,
                beside: true
            }
        );
    }

    #[test]
    fn small_pieces_share_a_turn() {
        let courtesy = Courtesy::default();
        drop(courtesy.take_off(100));
        let _slow = courtesy.take_off(100);
        for _ in 0..4 {
            assert_eq!(grant(&courtesy, PIECE / 4).bytes, PIECE / 4);
        }
        assert_eq!(courtesy.lock().bytes, PIECE);
    }

    #[test]
    fn beside_a_slow_write_the_pieces_are_larger_and_go_all_the_same() {
        let courtesy = Courtesy::default();
        drop(courtesy.take_off(100));
        let _hangs = courtesy.take_off(100);
        let pieces = [(); 4].map(|()| grant(&courtesy, 8 << 20));
        assert!(pieces.iter().all(|g| g.beside), "{pieces:?}");
        assert_eq!(pieces[0].bytes, PIECE);
        assert!(
            pieces
                .iter()
                .all(|g| (PIECE..=PIECE_MAX).contains(&g.bytes))
        );
        assert!(pieces.iter().any(|g| g.bytes > PIECE), "{pieces:?}");
    }

    /// One small piece for each of a few large writes would hold up the tables that these writes need, until writers
    /// have to wait for the tables.
    #[test]
    fn beside_large_writes_the_pieces_are_large() {
        let courtesy = Courtesy::default();
        for (bytes, piece) in [
            (1 << 10, PIECE),
            (64 << 10, 512 << 10),
            (1 << 40, LARGE_PIECE_MAX),
        ] {
            drop(courtesy.take_off(bytes));
            let granted = grant(&courtesy, 8 << 20);
            assert_eq!(
                granted,
                Grant {
                    bytes: piece,
                    beside: true
                }
            );
        }
    }

    /// Two background writers share one piece between two synced writes.
    #[test]
    fn all_together_hand_over_one_piece_between_two() {
        let courtesy = Courtesy::default();
        let (done, most) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        grant(&courtesy, 8 << 20);
                    }
                });
            }
            for _ in 0..500 {
                let flying = courtesy.take_off(100);
                thread::sleep(Duration::from_micros(50));
                let piled = courtesy.lock();
                let landed = courtesy.landed.load(Ordering::SeqCst);
                let idle = courtesy.idle_at.load(Ordering::Relaxed) == landed + 1;
                if !idle && piled.seen == landed {
                    most.fetch_max(piled.bytes, Ordering::Relaxed);
                }
                drop(piled);
                drop(flying);
            }
            done.store(true, Ordering::Relaxed);
        });
        let most = most.load(Ordering::Relaxed);
        // On a busy machine a write may last longer than one check.
        assert!((PIECE..=2 * PIECE_MAX).contains(&most), "{most}");
    }
}
