//! The plan: what each task measures, on which disks and beside which targets.

use super::data::Settings;
use super::fio::{Job, Until};
use super::place::Disks;
use super::target::Kind;

/// The tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Seed,
    Floor,
    Modes,
}

/// The shape of a job: `rw`, bytes of a block, queue depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape(&'static str, u64, u32);

impl Shape {
    pub(super) fn named(self) -> Job {
        Job::new(self.0, self.1, self.2)
    }
}

pub(super) const DEEP: Shape = Shape("randwrite", 4096, 128);
pub(super) const SINGLE: Shape = Shape("randwrite", 4096, 1);
/// The jobs of the task `seed`.
pub(super) const SEED_WRITES: [Shape; 3] = [DEEP, SINGLE, Shape("randwrite", 512 << 10, 128)];
pub(super) const SEED_READS: [Shape; 2] =
    [Shape("randread", 4096, 1), Shape("randread", 4096, 128)];
/// Sequential writes to a file, past the page cache.
pub(super) const SEQUENTIAL: Shape = Shape("write", 1 << 20, 4);
/// Names of measurements without fio: `W` and `P` of the floor.
pub(super) const WRITERS: &str = "W: max(a, min(b, c)) of three writers of a batch";
pub(super) const PING: &str = "P: 4 KiB to another process";

/// The name of the writes to three files that are the lower bound of a job.
pub(super) fn pattern(job: &str) -> String {
    format!("the log's writes of {job}")
}

/// A piece of work, which alternates with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// A job on each of the targets.
    Job {
        job: Job,
        until: Until,
    },
    /// Writes like those of the log under this job.
    Pattern(Job),
    /// Sequential writes to a file.
    Sequential,
    Writers,
    Ping,
}

/// Works that alternate: in each pair they are done one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Turns {
    pub(super) works: Vec<(Work, Kind)>,
    /// Whether device operations are counted until everything is written back.
    pub(super) is_counted: bool,
}

impl Turns {
    /// Whether any of its jobs has one of these depths; true if `depths` is empty.
    pub(super) fn is_of(&self, depths: &[u32]) -> bool {
        let depth = |work: &Work| match work {
            Work::Job { job, .. } => Some(job.depth),
            _ => None,
        };
        let mut own = self.works.iter().filter_map(|(work, _)| depth(work));
        depths.is_empty() || own.any(|d| depths.contains(&d))
    }
}

impl Task {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Seed => "seed",
            Self::Floor => "floor",
            Self::Modes => "modes",
        }
    }

    /// The disks that are used by default.
    pub(super) fn disks(self) -> &'static [Disks] {
        match self {
            Self::Seed | Self::Modes => &[Disks::Dir],
            Self::Floor => &[Disks::Dir, Disks::LoopVolatile, Disks::LoopProtected],
        }
    }

    /// The targets that it needs on these disks.
    pub(super) fn targets(self, disks: Disks) -> &'static [Kind] {
        use Kind::{Background, Null, Odsync, Snapshot};
        match (self, disks) {
            (Self::Seed, Disks::Dir) => &Kind::ALL,
            (Self::Seed | Self::Modes, _) => &[Background, Snapshot, Odsync],
            (Self::Floor, Disks::Dir) => &[Background, Null],
            (Self::Floor, _) => &[Background],
        }
    }

    /// The works on these disks with these targets.
    pub(super) fn turns(self, disks: Disks, targets: &[Kind], settings: &Settings) -> Vec<Turns> {
        let until = Until::Seconds(settings.seconds);
        let on = |shape: Shape, kinds: &[Kind]| -> Vec<(Work, Kind)> {
            let kinds = kinds.iter().filter(|kind| targets.contains(kind));
            let job = shape.named();
            kinds
                .map(|kind| {
                    let job = job.clone();
                    (Work::Job { job, until }, *kind)
                })
                .collect()
        };
        let turns = |works| Turns {
            works,
            is_counted: false,
        };
        let is_own = disks == Disks::Dir;
        match self {
            Self::Seed => {
                let mut all: Vec<Turns> = SEED_WRITES.map(|shape| turns(on(shape, targets))).into();
                if is_own {
                    if let Some(large) = all.last_mut() {
                        large.works.push((Work::Sequential, Kind::Files));
                    }
                    let kinds = [Kind::Background, Kind::Single];
                    all.extend(SEED_READS.map(|shape| turns(on(shape, &kinds))));
                }
                all
            }
            Self::Floor if is_own => {
                let mut parts = vec![(Work::Writers, Kind::Files), (Work::Ping, Kind::Files)];
                parts.extend(on(SINGLE, &[Kind::Null, Kind::Background]));
                vec![turns(parts), turns(on(DEEP, &[Kind::Background]))]
            }
            Self::Floor => {
                let until = Until::Bytes(settings.count_bytes);
                let job = SINGLE.named();
                let counted = (Work::Job { job, until }, Kind::Background);
                vec![Turns {
                    works: targets.iter().map(|_| counted.clone()).take(1).collect(),
                    is_counted: true,
                }]
            }
            Self::Modes => [SINGLE, DEEP]
                .map(|shape| {
                    let mut works = on(shape, targets);
                    works.push((Work::Pattern(shape.named()), Kind::Files));
                    turns(works)
                })
                .into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings {
        seconds: 3,
        pairs: 1,
        size_bytes: 1,
        range_bytes: 1,
        count_bytes: 1,
    };

    #[test]
    fn each_task_has_work_for_its_targets() {
        for task in [Task::Seed, Task::Floor, Task::Modes] {
            for disks in [
                Disks::Dir,
                Disks::LoopVolatile,
                Disks::LoopProtected,
                Disks::Hdd,
            ] {
                let targets = task.targets(disks);
                let turns = task.turns(disks, targets, &SETTINGS);
                for kind in targets {
                    let used = |t: &Turns| t.works.iter().any(|(_, k)| k == kind);
                    assert!(turns.iter().any(used), "{task:?} {disks:?} {kind:?}");
                }
            }
        }
    }

    #[test]
    fn one_depth_may_be_chosen() {
        let turns = Task::Modes.turns(Disks::Dir, &Kind::ALL, &SETTINGS);
        let chosen = |depths: &[u32]| turns.iter().filter(|t| t.is_of(depths)).count();
        assert_eq!((chosen(&[]), chosen(&[1]), chosen(&[1, 128])), (2, 1, 2));
        assert_eq!(chosen(&[7]), 0);
    }

    #[test]
    fn targets_that_are_not_there_have_no_work() {
        let turns = Task::Seed.turns(Disks::Dir, &[Kind::Single], &SETTINGS);
        let kinds: Vec<Kind> = turns.iter().flat_map(|t| &t.works).map(|w| w.1).collect();
        assert!(!kinds.contains(&Kind::Background) && kinds.contains(&Kind::Single));
        let turns = Task::Floor.turns(Disks::LoopVolatile, &[], &SETTINGS);
        assert!(turns.iter().all(|t| t.works.is_empty()));
    }
}
