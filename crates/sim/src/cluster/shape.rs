//! The parameters of a simulated cluster: everything that is drawn from a seed before it starts.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use base::rng::Rng;
use block::client::map::{Map, Striping};
use block::ids::{Chunk, Group, Layer, Tree};
use block::shard::time::ReadMode;
use block::store::flush::{ApplySync, Policy};

use super::network::{Delay, Link, Mode};
use super::node::NodeId;
use super::plan::{Setup, Weights};
use super::values::BLOCK_UNITS;

/// Replicas of a group.
const REPLICAS: u32 = 3;
/// Files of a short log.
const LOG_FILES_MIN: u32 = 4;
/// One cluster in this many has clocks that stop and go back.
const BROKEN_CLOCKS: u64 = 6;
/// Nanoseconds of a millisecond.
pub const MILLI: u64 = 1_000_000;
/// Nanoseconds of a second.
pub const SECOND: u64 = 1_000_000_000;

/// The speed of a store's device.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// A durable write of the log.
    pub log: Delay,
    /// A read of a block.
    pub read: Delay,
    /// A write of a write-back.
    pub write: Delay,
    /// An fdatasync.
    pub sync: Delay,
}

/// The parameters of a simulated cluster.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The seed that it was drawn from.
    pub seed: u64,
    /// Number of stores.
    pub nodes: u32,
    /// The stores of each group; a store's number is one more than its node's.
    pub groups: BTreeMap<Group, Vec<u64>>,
    /// The volumes.
    pub volumes: Vec<Map>,
    /// Files of each log.
    pub log_files: u32,
    /// When stores write back.
    pub policy: Policy,
    /// How leaders make sure that they still lead: clocks may stop or go back only if they ask a quorum.
    pub read_mode: ReadMode,
    /// Datagrams or connections.
    pub mode: Mode,
    /// The links of the network.
    pub link: Link,
    /// The devices.
    pub device: Device,
    /// The most open operations of an attachment.
    pub slots: usize,
    /// How long a client waits between two operations.
    pub think: Delay,
    /// When an unanswered operation fails.
    pub give_up_nanos: Option<u64>,
    /// Approximate lifetime of an attachment.
    pub attached_nanos: u64,
    /// Whether reads are sent to any store, even to one that is no longer the leader.
    pub is_watched: bool,
    /// The parameters of the plan of faults.
    pub faults: Setup,
}

/// Delays from a minimum to about ten times the mean.
fn delay(min_nanos: u64, mean_nanos: u64, long: (u32, u64)) -> Delay {
    Delay {
        min_nanos,
        mean_nanos,
        long_permille: long.0,
        long_nanos: long.1,
    }
}

impl Shape {
    /// The cluster of a seed.
    ///
    /// # Panics
    /// Never: the drawn volumes are valid.
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5ba9_e000);
        let nodes = if rng.one_in(4) { 5 } else { 3 };
        let count = 2 + rng.below(3) as u32;
        let groups = (1..=count).map(|g| {
            let stores = (0..REPLICAS).map(|i| u64::from((g + i) % nodes) + 1);
            (Group(g), stores.collect())
        });
        let groups: BTreeMap<Group, Vec<u64>> = groups.collect();
        let volumes = (0..=rng.below(2)).map(|v| Self::volume(v, count, &mut rng));
        let volumes: Vec<Map> = volumes.collect();
        // A short log is truncated all the time, and leaves followers behind, which need a copy.
        let is_tight = rng.one_in(3);
        let mode = if rng.one_in(3) {
            Mode::Datagrams
        } else {
            Mode::Connections
        };
        let mut faults = Setup::new(nodes);
        faults.faults = 6 + rng.below(24) as usize;
        faults.storm_nanos = 36 * SECOND;
        faults.calm_nanos = 24 * SECOND;
        faults.damaged_max = usize::from(!is_tight);
        faults.weights = Self::weights(&mut rng);
        // Drawn by a separate generator, so that the clusters of other seeds do not change.
        let read_mode = if Rng::new(seed ^ 0xc10c_0000).one_in(BROKEN_CLOCKS) {
            faults.weights.broken_clock = 8;
            ReadMode::ReadIndex
        } else {
            ReadMode::Lease
        };
        Self {
            seed,
            nodes,
            groups,
            volumes,
            log_files: if is_tight {
                LOG_FILES_MIN + rng.below(2) as u32
            } else {
                12
            },
            policy: Self::policy(&mut rng),
            read_mode,
            mode,
            link: Self::link(mode, &mut rng),
            device: Self::device(&mut rng),
            slots: 2 + rng.below(7) as usize,
            think: delay(MILLI, (40 + rng.below(120)) * MILLI, (10, SECOND)),
            give_up_nanos: rng.one_in(3).then(|| (1 + rng.below(5)) * SECOND),
            attached_nanos: (4 + rng.below(20)) * SECOND,
            is_watched: Rng::new(seed ^ 0x3a7c_0000).one_in(2),
            faults,
        }
    }

    fn volume(nth: u64, groups: u32, rng: &mut Rng) -> Map {
        let striping = Striping {
            unit_bytes: 4096 << (2 * rng.below(3)),
            count: 1 + rng.below(4) as u32,
        };
        let blocks = 12 + rng.below(52);
        let own = (1..=groups).filter(|_| !rng.one_in(4)).map(Group);
        let mut own: Vec<Group> = own.collect();
        if own.is_empty() {
            own.push(Group(1));
        }
        let ids = (Tree(nth + 1), Layer(1));
        let map = Map::new(blocks * 4096, ids, striping, own);
        map.unwrap_or_else(|e| unreachable!("a volume that cannot be: {e}"))
    }

    /// The weights of faults: all kinds, or mostly one.
    fn weights(rng: &mut Rng) -> Weights {
        let all = Weights::default();
        match rng.below(6) {
            0 => Weights {
                crash: 40,
                power_cut: 8,
                ..all
            },
            1 => Weights {
                partition: 20,
                cut: 20,
                lossy_link: 8,
                ..all
            },
            2 => Weights {
                pause: 25,
                clock: 15,
                ..all
            },
            3 => Weights {
                disk_error: 20,
                disk_damage: 8,
                ..all
            },
            _ => all,
        }
    }

    fn policy(rng: &mut Rng) -> Policy {
        let mode = match rng.below(8) {
            0 => ApplySync::Odsync,
            1 | 2 => ApplySync::Snapshot,
            _ => ApplySync::Background,
        };
        Policy {
            checkpoint_bytes: (16 << 10) << rng.below(4),
            checkpoint_interval: Duration::from_millis(300 << rng.below(5)),
            dirty_bytes_max: 4 << 20,
            ..Policy::of(mode)
        }
    }

    fn link(mode: Mode, rng: &mut Rng) -> Link {
        let usual = Link::default();
        if mode == Mode::Datagrams {
            // Duplicates that arrive after newer requests were answered.
            return Link {
                delay: delay(50_000, 100_000 << rng.below(5), (150, 100 * MILLI)),
                drop_permille: rng.below(10) as u32,
                duplicate_permille: 50 + rng.below(200) as u32,
                ..usual
            };
        }
        if rng.one_in(2) {
            return usual;
        }
        Link {
            delay: delay(50_000, 100_000 << rng.below(6), (20, 20 * MILLI)),
            drop_permille: rng.below(4) as u32,
            duplicate_permille: rng.below(30) as u32,
            ..usual
        }
    }

    fn device(rng: &mut Rng) -> Device {
        let slow = 1 << rng.below(5);
        Device {
            log: delay(50_000, 150_000 * slow, (10, 30 * MILLI)),
            read: delay(50_000, 200_000 * slow, (10, 200 * MILLI)),
            write: delay(20_000, 100_000 * slow, (10, 20 * MILLI)),
            sync: delay(500_000, MILLI * slow, (50, 200 * MILLI)),
        }
    }

    /// The nodes of the stores.
    pub fn stores(&self) -> Vec<NodeId> {
        (0..self.nodes).map(NodeId).collect()
    }

    /// Number of units in a volume.
    pub fn units(&self, volume: usize) -> u64 {
        self.volumes[volume].size() / 4096 * BLOCK_UNITS
    }

    /// The most chunks that a group may get.
    pub fn chunks_of(&self, group: Group) -> u32 {
        let of = |map: &Map| {
            let chunks = (0..map.chunks() as u32).map(Chunk);
            chunks.filter(|&chunk| map.group(chunk) == group).count()
        };
        self.volumes.iter().map(of).sum::<usize>() as u32
    }

    /// The most chunks that a store may get.
    pub fn slots_of_store(&self) -> u32 {
        let chunks: u64 = self.volumes.iter().map(Map::chunks).sum();
        chunks as u32 + 1
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} stores, groups {:?}", self.nodes, self.groups)?;
        for volume in &self.volumes {
            writeln!(f, "{volume:?}")?;
        }
        writeln!(f, "{} log files, {:?}", self.log_files, self.policy)?;
        writeln!(f, "reads by {:?}", self.read_mode)?;
        writeln!(f, "{:?} over {:?}", self.mode, self.link)?;
        writeln!(f, "{:?}", self.device)?;
        write!(
            f,
            "{} operations at once, {:?}, give up {:?}, attached for {} ms",
            self.slots,
            self.think,
            self.give_up_nanos,
            self.attached_nanos / MILLI
        )
    }
}
