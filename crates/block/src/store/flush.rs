//! When blocks are written back, and how fast.
//!
//! | `apply_sync` | when | how fast |
//! |---|---|---|
//! | `odsync` | each block before its write is answered, in place; pages at checkpoints | – |
//! | `snapshot` | when the log is half full, the map full, or the interval over | all at once |
//! | `background` | a checkpoint for each 64 MiB or 30 s | paced by how full log and map are |
//!
//! The mode is data: there is one code path for write-back in all modes.

use std::time::Duration;

use base::{Error, Result};

/// The most and the fewest bytes of a part of a background round. The store's thread marks a part at once, and
/// settles it at once: for 8 MiB of single blocks, each of these takes about a millisecond.
const PART_BYTES_MAX: u64 = 8 << 20;
const PART_BYTES_MIN: u64 = 512 << 10;
/// Approximate number of parts per second in a paced round.
const PARTS_A_SECOND: u64 = 8;
/// Fill level of the map at which a snapshot is begun: changes on their way still have room then.
const SNAPSHOT_FULL: f64 = 0.9;
/// Fill level of log or map at which clients begin to wait, and how many changes may be on their way then.
const CROWDED: f64 = 0.6;
const CHANGES_MAX: f64 = 256.0;

/// What happens to a block between its commit and its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApplySync {
    /// It is written in place, durably, before the answer: slow, for comparison.
    Odsync,
    /// Nothing; now and then everything is written back at once.
    Snapshot,
    /// Nothing; blocks are written back continuously in the background.
    #[default]
    Background,
}

impl std::str::FromStr for ApplySync {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match s {
            "odsync" => Ok(Self::Odsync),
            "snapshot" => Ok(Self::Snapshot),
            "background" => Ok(Self::Background),
            _ => Err(Error::invalid_argument(format!(
                "apply_sync is odsync, snapshot or background, not {s}"
            ))),
        }
    }
}

/// Decides when to write back.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// The mode.
    pub apply_sync: ApplySync,
    /// Most bytes of dirty blocks in memory, over all groups of a store.
    pub dirty_bytes_max: u64,
    /// Dirty bytes at which a background checkpoint is begun.
    pub checkpoint_bytes: u64,
    /// Time after which a checkpoint is begun even if little is dirty.
    pub checkpoint_interval: Duration,
}

impl Policy {
    /// The default values of a mode.
    pub fn of(apply_sync: ApplySync) -> Self {
        Self {
            apply_sync,
            dirty_bytes_max: 256 << 20,
            checkpoint_bytes: 64 << 20,
            checkpoint_interval: match apply_sync {
                ApplySync::Snapshot => Duration::from_secs(1800),
                ApplySync::Odsync | ApplySync::Background => Duration::from_secs(30),
            },
        }
    }

    /// Errors: values that cannot work.
    pub fn check(&self) -> Result<()> {
        if self.dirty_bytes_max < 4 << 20 || self.checkpoint_bytes == 0 {
            return Err(Error::invalid_argument(format!(
                "dirty_bytes_max must be at least 4 MiB and checkpoint_bytes at least 1; they are {} and {}",
                self.dirty_bytes_max, self.checkpoint_bytes
            )));
        }
        Ok(())
    }

    /// Whether to begin a write-back now, and how fast.
    pub fn due(&self, state: &State) -> Option<Speed> {
        let map = state.dirty_bytes as f64 / self.dirty_bytes_max as f64;
        let full = map.max(state.log_fill);
        let late = state.since_last >= self.checkpoint_interval;
        match self.apply_sync {
            ApplySync::Snapshot | ApplySync::Odsync => {
                (map >= SNAPSHOT_FULL || state.log_fill >= 0.5 || (late && state.has_applied))
                    .then_some(Speed::Full)
            }
            ApplySync::Background => {
                let much = state.dirty_bytes >= self.checkpoint_bytes;
                let wanted = much || full >= 0.5 || (late && state.has_applied);
                wanted.then(|| self.speed(state))
            }
        }
    }

    /// The speed of a write-back: always faster than blocks become dirty, and the faster the fuller log or
    /// map are.
    pub fn speed(&self, state: &State) -> Speed {
        let map = state.dirty_bytes as f64 / self.dirty_bytes_max as f64;
        let full = map.max(state.log_fill);
        if full >= 0.75 || self.apply_sync != ApplySync::Background {
            return Speed::Full;
        }
        let factor = 1.25 + full * 2.0;
        Speed::Paced((state.rate as f64 * factor) as u64 + (1 << 20))
    }

    /// The most bytes of a part of a round. A snapshot writes everything at once. Paced parts are short, so
    /// that the next one can be faster.
    pub fn part_bytes(&self, speed: Speed) -> u64 {
        match (self.apply_sync, speed) {
            (ApplySync::Background, Speed::Full) => PART_BYTES_MAX,
            (ApplySync::Background, Speed::Paced(rate)) => {
                (rate / PARTS_A_SECOND).clamp(PART_BYTES_MIN, PART_BYTES_MAX)
            }
            (ApplySync::Snapshot | ApplySync::Odsync, _) => u64::MAX,
        }
    }

    /// How many changes of clients may be on their way: the fuller log and map, the fewer. So each change waits
    /// a little, instead of all of them for long. `None`: any number.
    pub fn changes_max(&self, state: &State) -> Option<usize> {
        let map = state.dirty_bytes as f64 / self.dirty_bytes_max as f64;
        let room = (1.0 - map.max(state.log_fill)) / (1.0 - CROWDED);
        let max = (room.max(0.0).powi(2) * CHANGES_MAX).ceil() as usize;
        // A snapshot is not begun before the map is full, so slowing clients down for it has no use.
        let from = if self.apply_sync == ApplySync::Background {
            1.0
        } else {
            0.0
        };
        (room <= from).then_some(max)
    }
}

/// The state that [`Policy`] decides by.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// Fill level of the log without entries that are written back, 0 to 1.
    pub log_fill: f64,
    /// Bytes of dirty blocks.
    pub dirty_bytes: u64,
    /// Time since the last checkpoint was begun.
    pub since_last: Duration,
    /// Bytes of changes per second.
    pub rate: u64,
    /// Whether entries were applied since the last checkpoint was begun.
    pub has_applied: bool,
}

/// The speed of a write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// As fast as the device takes it.
    Full,
    /// At most this many bytes per second.
    Paced(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(log_fill: f64, dirty_mib: u64, seconds: u64) -> State {
        State {
            log_fill,
            dirty_bytes: dirty_mib << 20,
            since_last: Duration::from_secs(seconds),
            rate: (dirty_mib << 20) / seconds.max(1),
            has_applied: dirty_mib > 0,
        }
    }

    #[test]
    fn snapshots_are_rare_and_whole() {
        let p = Policy::of(ApplySync::Snapshot);
        assert_eq!(p.due(&state(0.4, 200, 60)), None);
        assert_eq!(p.due(&state(0.5, 1, 1)), Some(Speed::Full));
        assert_eq!(p.due(&state(0.1, 256, 1)), Some(Speed::Full));
        assert_eq!(p.due(&state(0.1, 1, 1800)), Some(Speed::Full));
        assert_eq!(p.due(&state(0.1, 0, 1800)), None, "nothing came");
    }

    #[test]
    fn the_background_is_the_faster_the_fuller() {
        let p = Policy::of(ApplySync::Background);
        assert_eq!(p.due(&state(0.1, 10, 5)), None);
        assert!(matches!(p.due(&state(0.0, 1, 30)), Some(Speed::Paced(_))));
        let mut last = 0;
        for fill in [0.1, 0.3, 0.5, 0.7] {
            let Some(Speed::Paced(rate)) = p.due(&state(fill, 64, 4)) else {
                panic!("{fill}");
            };
            // Faster than blocks become dirty at any fill level.
            assert!(rate > (16 << 20) && rate > last, "{fill}: {rate}");
            last = rate + 1;
        }
        assert_eq!(p.due(&state(0.75, 1, 1)), Some(Speed::Full));
        assert_eq!(p.due(&state(0.1, 200, 1)), Some(Speed::Full));
    }

    /// All clients waited together for a whole write-back when the map was full.
    #[test]
    fn the_fuller_the_fewer_changes_are_on_their_way() {
        let p = Policy::of(ApplySync::Background);
        assert_eq!(p.changes_max(&state(0.5, 64, 1)), None, "room for all");
        let mut last = 256;
        for mib in [160, 180, 200, 220, 240] {
            let max = p.changes_max(&state(0.1, mib, 1)).unwrap();
            assert!(max < last, "{mib}: {max}");
            last = max;
        }
        assert_eq!(p.changes_max(&state(0.1, 256, 1)), Some(0));
        assert_eq!(p.changes_max(&state(1.0, 1, 1)), Some(0));
        // While there is any room, one change may go on: otherwise a nearly full map would stay as it is.
        assert_eq!(p.changes_max(&state(0.0, 255, 1)), Some(1));
        let p = Policy::of(ApplySync::Snapshot);
        assert_eq!(p.changes_max(&state(0.4, 255, 1)), None);
        assert_eq!(p.changes_max(&state(0.4, 256, 1)), Some(0));
        assert_eq!(p.due(&state(0.4, 240, 1)), Some(Speed::Full));
    }

    #[test]
    fn wrong_values_are_named() {
        assert!("odsync".parse::<ApplySync>().is_ok());
        let e = "fast".parse::<ApplySync>().unwrap_err().to_string();
        assert!(e.contains("not fast"), "{e}");
        let p = Policy {
            dirty_bytes_max: 1,
            ..Policy::of(ApplySync::Background)
        };
        assert!(
            p.check()
                .unwrap_err()
                .to_string()
                .contains("dirty_bytes_max")
        );
        assert!(Policy::of(ApplySync::Odsync).check().is_ok());
    }
}
