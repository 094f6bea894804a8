//! Paces the filling of the next log's file with zeros: the file is ready in time, and is filled no faster than
//! the active log is used.
//!
//! The file that the next log needs is filled piece by piece while the second and the third quarter of
//! the active log are used. A file that is larger than the active log is filled from the beginning,
//! because no obsolete log will provide blocks for it.
//!
//! A log may be closed before it is full, when the memtable is full. So the quarters refer to the part of the log
//! that will be used: a memtable is expected to take as many bytes of logs as the memtable before it.
//!
//! Files that are not urgent (further files and the reserve) get one byte of zeros for each byte that is
//! logged. While the active log is not from the pool, every step is due.

use base::FileNumber;
use base::sync::atomic::{AtomicU64, Ordering};
use log::Next;
use log::pool::PIECE;

/// The active log from the pool, and how far it is used.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The number of the log.
    log: AtomicU64,
    /// The capacity of the log in bytes; 0 if the active log is not from the pool.
    capacity: AtomicU64,
    used: AtomicU64,
    /// Bytes that went to other logs since the last memtable was sealed.
    before: AtomicU64,
    /// Bytes of logs that a memtable is expected to take.
    memtable: AtomicU64,
    /// Bytes that may be filled in files that are not urgent.
    spare: AtomicU64,
}

/// How many more bytes of a log of `capacity` bytes must be used before this is reported to the pool.
pub(crate) fn step(capacity: u64) -> u64 {
    (capacity / 64).clamp(16 << 10, 128 << 10)
}

impl Pace {
    /// The pace for memtables of `memtable` bytes.
    pub(crate) fn new(memtable: u64) -> Self {
        Self {
            log: AtomicU64::new(0),
            capacity: AtomicU64::new(0),
            used: AtomicU64::new(0),
            before: AtomicU64::new(0),
            memtable: AtomicU64::new(memtable),
            spare: AtomicU64::new(0),
        }
    }

    /// Takes note of a new log, which will be the active one. `capacity`: the size of its pool file in
    /// bytes, or 0 if it is not from the pool.
    pub(crate) fn begin(&self, log: FileNumber, capacity: u64) {
        self.log.store(log.0, Ordering::Relaxed);
        let used = self.used.swap(0, Ordering::Relaxed);
        self.before.fetch_add(used, Ordering::Relaxed);
        self.capacity.store(capacity, Ordering::Relaxed);
    }

    /// Takes note that the active log was begun because a memtable was sealed.
    pub(crate) fn note_sealed(&self) {
        let taken = self.before.swap(0, Ordering::Relaxed);
        // A memtable that was sealed early, by a manual flush, says little about the next one.
        let known = self.memtable.load(Ordering::Relaxed);
        self.memtable.store(taken.max(known / 2), Ordering::Relaxed);
    }

    /// How many bytes of the active log will be used.
    fn expected(&self) -> u64 {
        let before = self.before.load(Ordering::Relaxed);
        let room = self.memtable.load(Ordering::Relaxed);
        let room = room.saturating_sub(before);
        self.capacity.load(Ordering::Relaxed).min(room)
    }

    /// Takes note that `bytes` of the active log are used. A log that is about to be closed does not count.
    pub(crate) fn note_used(&self, log: FileNumber, bytes: u64) {
        if self.log.load(Ordering::Relaxed) != log.0 {
            return;
        }
        let more = bytes.saturating_sub(self.used.swap(bytes, Ordering::Relaxed));
        self.spare.fetch_add(more, Ordering::Relaxed);
    }

    /// Whether the pool's next step is due. Only one thread calls this, and then does the step.
    pub(crate) fn is_due(&self, next: &Next) -> bool {
        let Next::Fill {
            bytes,
            filled,
            urgent,
        } = *next
        else {
            return true;
        };
        let capacity = self.capacity.load(Ordering::Relaxed);
        if capacity == 0 {
            return true;
        }
        if urgent {
            let used = self.used.load(Ordering::Relaxed);
            return filled < due(bytes, capacity, self.expected(), used);
        }
        // At most two pieces are saved up.
        let spare = self.spare.load(Ordering::Relaxed).min(2 * PIECE);
        let now = spare >= PIECE;
        let left = if now { spare - PIECE } else { spare };
        self.spare.store(left, Ordering::Relaxed);
        now
    }
}

/// How many bytes of a file of `bytes` are to be filled when `used` bytes of the active log are used. The active
/// log has `capacity` bytes, of which `expected` will be used.
fn due(bytes: u64, capacity: u64, expected: u64, used: u64) -> u64 {
    // An obsolete log comes back when its memtable is flushed: reusing its blocks saves allocating new
    // ones.
    let from = if bytes > capacity { 0 } else { expected / 4 };
    let to = expected / 4 * 3;
    if used >= to {
        return bytes;
    }
    let part = used.saturating_sub(from).min(to - from);
    // A log may be as large as the file system allows.
    let due = u128::from(bytes) * u128::from(part) / u128::from((to - from).max(1));
    u64::try_from(due).unwrap_or(u64::MAX).min(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const LOG: FileNumber = FileNumber(7);

    fn urgent(bytes: u64, filled: u64) -> Next {
        Next::Fill {
            bytes,
            filled,
            urgent: true,
        }
    }

    #[test]
    fn the_next_file_is_done_at_three_quarters_and_not_begun_before_one() {
        for used in 0..=64 {
            let due = due(64 * MIB, 64 * MIB, 64 * MIB, used * MIB);
            let expected = (used.clamp(16, 48) - 16) * 2 * MIB;
            assert_eq!(due, expected);
        }
        // A larger file is filled from the beginning.
        assert_eq!(due(64 * MIB, 16 * MIB, 16 * MIB, 6 * MIB), 32 * MIB);
        assert_eq!(due(64 * MIB, 16 * MIB, 16 * MIB, 16 * MIB), 64 * MIB);
        assert_eq!(due(u64::MAX, 4, 4, 4), u64::MAX);
        assert_eq!(due(4, 1, 0, 0), 4, "it may be left at any time");
    }

    /// The next file gets its zeros in pieces of 64 KiB while the log grows in steps: it never lags far behind the
    /// log, and never gets all zeros at once.
    #[test]
    fn zeros_come_piece_by_piece_as_the_log_grows() {
        let (pace, capacity) = (Pace::new(u64::MAX), 4 * MIB);
        assert!(pace.is_due(&urgent(capacity, 0)), "no log of the pool yet");
        pace.begin(LOG, capacity);
        let (mut filled, mut most) = (0, 0);
        for used in (0..=capacity).step_by(step(capacity) as usize) {
            pace.note_used(LOG, used);
            let before = filled;
            while pace.is_due(&urgent(capacity, filled)) {
                filled += PIECE;
            }
            most = most.max(filled - before);
            assert_eq!(filled == capacity, used >= capacity / 4 * 3, "{used}");
        }
        assert_eq!(most, 2 * PIECE);
        // The next log is created, but some bytes still go to the log before it.
        pace.begin(FileNumber(8), capacity);
        pace.note_used(LOG, capacity);
        assert!(!pace.is_due(&urgent(capacity, 0)));
    }

    /// Regression: a memtable was sealed in the first quarter of a log, and no file was ready for the
    /// next log. That log got only a small part of a file and was full in the middle of the
    /// next memtable, and the pool never caught up.
    #[test]
    fn a_log_that_is_left_early_has_a_next_one() {
        let (memtable, file) = (64 * MIB, 70 * MIB);
        let pace = Pace::new(memtable);
        let left = |log, capacity, used, sealed| {
            pace.begin(FileNumber(log), capacity);
            if sealed {
                pace.note_sealed();
            }
            pace.note_used(FileNumber(log), used);
            pace.is_due(&urgent(file, file - PIECE))
        };
        // The logs of a new database grow, and the last of these has a quarter of the first memtable.
        assert!(left(1, 48 * MIB, 40 * MIB, false));
        pace.note_used(FileNumber(1), 48 * MIB);
        assert!(!left(2, file, 4 * MIB, false));
        pace.note_used(FileNumber(2), 12 * MIB);
        assert!(pace.is_due(&urgent(file, file - PIECE)));
        pace.note_used(FileNumber(2), 16 * MIB);
        for log in 3..6 {
            assert!(!left(log, file, 46 * MIB, true), "{log}");
            pace.note_used(FileNumber(log), 49 * MIB);
            assert!(pace.is_due(&urgent(file, file - PIECE)), "{log}");
            pace.note_used(FileNumber(log), 64 * MIB);
        }
        // Memtables become smaller; after two of them the pace has adapted.
        assert!(!left(6, file, 10 * MIB, true));
        assert!(!left(7, file, 10 * MIB, true));
        assert!(left(8, file, 13 * MIB, true));
    }

    #[test]
    fn what_nobody_waits_for_gets_what_is_logged() {
        let pace = Pace::new(64 * MIB);
        let reserve = Next::Fill {
            bytes: 4 * MIB,
            filled: 0,
            urgent: false,
        };
        pace.begin(LOG, 64 * MIB);
        assert!(!pace.is_due(&reserve));
        let mut pieces = 0;
        for used in (0..=MIB).step_by(16 << 10) {
            pace.note_used(LOG, used);
            pieces += u64::from(pace.is_due(&reserve));
        }
        assert_eq!(pieces, MIB / PIECE);
        pace.note_used(LOG, 32 * MIB);
        assert!(pace.is_due(&reserve) && pace.is_due(&reserve));
        assert!(!pace.is_due(&reserve), "that is not caught up with");
        assert!(pace.is_due(&Next::Tidy));
    }
}
