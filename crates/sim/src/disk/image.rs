//! Images: other disks, in a possible state of this one.

use std::collections::BTreeMap;

use base::rng::Rng;

use super::inode::{Choice, Inode};
use super::names::{Names, Node};
use super::{Config, Event, Phase, SimDisk, State};

/// The pending operations that survive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashKind {
    /// None.
    Nothing,
    /// All.
    Everything,
    /// Those before a random moment, in all files and directories.
    Prefix,
    /// Names and lengths, no content: files full of zeros.
    MetadataOnly,
    /// Content and lengths, no names.
    NoNames,
    /// Any of them, chosen for each sector and name separately.
    Random,
}

impl CrashKind {
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::Nothing,
        Self::Everything,
        Self::Prefix,
        Self::MetadataOnly,
        Self::NoNames,
        Self::Random,
    ];

    /// A random kind; half of the time [`CrashKind::Random`].
    pub fn any(rng: &mut Rng) -> Self {
        if rng.one_in(2) {
            return Self::Random;
        }
        Self::ALL[rng.below(Self::ALL.len() as u64) as usize]
    }
}

/// The disk at an event.
pub struct Moment<'a> {
    config: &'a Config,
    state: &'a State,
    /// The event.
    pub event: &'a Event,
    /// In flight, or after it.
    pub phase: Phase,
}

impl<'a> Moment<'a> {
    pub(super) fn new(
        config: &'a Config,
        state: &'a State,
        event: &'a Event,
        phase: Phase,
    ) -> Self {
        Self {
            config,
            state,
            event,
            phase,
        }
    }

    /// A disk in a state that a power cut now allows.
    pub fn crash_image(&self, rng: &mut Rng, kind: CrashKind) -> SimDisk {
        self.state.crash_image(self.config, rng, kind)
    }

    /// A disk in the state after SIGKILL now.
    pub fn kill_image(&self) -> SimDisk {
        self.state.kill_image(self.config)
    }
}

impl SimDisk {
    /// A disk in a state that a power cut now allows.
    #[must_use]
    pub fn crash_image(&self, rng: &mut Rng, kind: CrashKind) -> Self {
        self.lock_state().crash_image(&self.core.config, rng, kind)
    }

    /// A disk in the state after the death of the process: nothing written is lost, and nothing pending has
    /// become durable.
    #[must_use]
    pub fn kill_image(&self) -> Self {
        self.lock_state().kill_image(&self.core.config)
    }
}

impl SimDisk {
    /// Copies all files, as the process sees them, into a directory of the real file system, so that other
    /// tools can examine them.
    pub fn export(&self, to: &std::path::Path) -> std::io::Result<()> {
        let state = self.lock_state();
        for (path, node) in state.names.all() {
            let real = to.join(path.strip_prefix("/").unwrap_or(path));
            match node {
                Node::Dir => std::fs::create_dir_all(real)?,
                Node::File(i) => std::fs::write(real, state.inodes[*i].content().to_vec())?,
            }
        }
        Ok(())
    }
}

impl State {
    fn crash_image(&self, config: &Config, rng: &mut Rng, kind: CrashKind) -> SimDisk {
        let chance = [100, 500, 900, 990][rng.below(4) as usize];
        let (data, size, name) = match kind {
            CrashKind::Nothing => (0, 0, 0),
            CrashKind::Everything | CrashKind::Prefix => (1000, 1000, 1000),
            CrashKind::MetadataOnly => (0, 1000, 1000),
            CrashKind::NoNames => (1000, 1000, 0),
            CrashKind::Random => (chance, [chance, 990][rng.below(2) as usize], chance),
        };
        let until = match kind {
            CrashKind::Prefix => rng.below(self.sequence + 1),
            _ => u64::MAX,
        };
        let names = self.names.after_crash(|op| {
            op.sequence <= until && (name >= 1000 || (name > 0 && rng.below(1000) < name))
        });
        let mut files: BTreeMap<usize, usize> = BTreeMap::new();
        let mut inodes = Vec::new();
        let mut moved = BTreeMap::new();
        for (path, node) in names {
            let with_garbage = path.to_string_lossy().ends_with(config.garbage_in);
            let node = match node {
                Node::Dir => Node::Dir,
                Node::File(old) => Node::File(*files.entry(old).or_insert_with(|| {
                    let mut choice = Choice {
                        rng,
                        sector: u64::from(config.sector),
                        garbage: with_garbage.then_some(self.garbage),
                        until,
                        data_permille: data,
                        size_permille: size,
                    };
                    let content = self.inodes[old].after_crash(&mut choice);
                    inodes.push(Inode::settled(content));
                    inodes.len() - 1
                })),
            };
            moved.insert(path, node);
        }
        let state = State::new(inodes, Names::settled(moved), self.garbage);
        SimDisk::with_state(config.clone(), state)
    }

    fn kill_image(&self, config: &Config) -> SimDisk {
        let keep = self.names.reachable();
        let inodes = self.inodes.iter().enumerate().map(|(i, inode)| {
            if keep.contains(&i) {
                inode.clone()
            } else {
                Inode::default()
            }
        });
        let mut state = State::new(inodes.collect(), self.names.clone(), self.garbage);
        state.sequence = self.sequence;
        state.micros = self.micros;
        SimDisk::with_state(config.clone(), state)
    }
}
