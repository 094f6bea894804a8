//! A plan of faults and their times, drawn from a seed.
//!
//! ```text
//!   0 ── storm: faults, and some of their ends ──> calm_at ── everything is well ──> end_at
//! ```
//!
//! Every plan ends in a period without faults, the calm, which is long enough for a cluster to work again:
//! everything that must happen some day must have happened by its end. The calm is not in the list of
//! faults, so it cannot be left out.
//!
//! Each fault is independent: one that does not apply, such as the restart of a running node, changes
//! nothing. So any fault can be left out of a plan, which [`reduce`] does as long as the rest still fails.

mod draw;

use std::fmt;

use super::node::NodeId;
use super::shrink::shrink;

/// A fault, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A node's process ends. Its disk loses everything that a power cut may take, or nothing.
    Crash {
        /// The node.
        node: NodeId,
        /// Whether its machine loses power.
        power: bool,
    },
    /// A node that does not run starts with the content of its disk.
    Restart {
        /// The node.
        node: NodeId,
    },
    /// All machines lose power at once.
    PowerCut,
    /// All nodes that do not run start.
    RestartAll,
    /// Some nodes are cut off from all others.
    Partition {
        /// These nodes.
        side: Vec<NodeId>,
    },
    /// One direction is cut.
    Cut {
        /// From this node.
        from: NodeId,
        /// To this one.
        to: NodeId,
    },
    /// One direction is slow.
    SlowLink {
        /// From this node.
        from: NodeId,
        /// To this one.
        to: NodeId,
        /// The additional mean delay.
        nanos: u64,
    },
    /// One direction loses messages.
    LossyLink {
        /// From this node.
        from: NodeId,
        /// To this one.
        to: NodeId,
        /// This many of a thousand; as many datagrams are duplicated.
        permille: u32,
    },
    /// All faults of the network end.
    HealNetwork,
    /// A node's clocks run fast or slow.
    ClockRate {
        /// The node.
        node: NodeId,
        /// Parts in a million.
        fast_ppm: i64,
    },
    /// A node's wall clock jumps.
    WallJump {
        /// The node.
        node: NodeId,
        /// By this much.
        nanos: i64,
    },
    /// A node's clocks jump forward, as after a sleep.
    ClockForward {
        /// The node.
        node: NodeId,
        /// By this much.
        nanos: u64,
    },
    /// A node's clocks stop: no correct clock does that, and leases are unsafe then.
    ClockStop {
        /// The node.
        node: NodeId,
    },
    /// A node's boottime goes back: no correct clock does that, and leases are unsafe then.
    ClockBack {
        /// The node.
        node: NodeId,
        /// By this much.
        nanos: u64,
    },
    /// A node is paused while time goes on, as after SIGSTOP.
    Pause {
        /// The node.
        node: NodeId,
        /// For this long.
        nanos: u64,
    },
    /// A node's disk fails.
    Disk {
        /// The node.
        node: NodeId,
        /// The kind of failure.
        fault: DiskFault,
    },
    /// The faults of a node's disk end; flipped bits stay.
    HealDisk {
        /// The node.
        node: NodeId,
    },
    /// All faults end: all nodes run, with an intact network, correct clocks, and disks without errors.
    Calm,
}

/// The kinds of disk failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// The next read fails with EIO.
    ReadError,
    /// The next write fails with EIO.
    WriteError,
    /// The next sync or durable write fails with EIO: the data is not durable.
    SyncError,
    /// All calls that need space fail with ENOSPC, until the disk is healed.
    NoSpace,
    /// A bit of a file flips.
    Rot {
        /// Determines the file and the bit.
        seed: u64,
    },
}

struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:09} s",
            self.0 / 1_000_000_000,
            self.0 % 1_000_000_000
        )
    }
}

impl fmt::Display for DiskFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ReadError => f.write_str("EIO for the next read"),
            Self::WriteError => f.write_str("EIO for the next write"),
            Self::SyncError => f.write_str("EIO for the next sync"),
            Self::NoSpace => f.write_str("ENOSPC"),
            Self::Rot { seed } => write!(f, "a bit flips, seed {seed:#x}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crash { node, power: true } => write!(f, "{node} loses its power"),
            Self::Crash { node, power: false } => write!(f, "{node} is killed"),
            Self::Restart { node } => write!(f, "{node} starts"),
            Self::PowerCut => f.write_str("all nodes lose their power"),
            Self::RestartAll => f.write_str("all nodes start"),
            Self::Partition { side } => {
                let side: Vec<String> = side.iter().map(ToString::to_string).collect();
                write!(f, "{} cut off from the others", side.join(", "))
            }
            Self::Cut { from, to } => write!(f, "cut from {from} to {to}"),
            Self::SlowLink { from, to, nanos } => {
                write!(f, "slow from {from} to {to} by {}", Seconds(*nanos))
            }
            Self::LossyLink { from, to, permille } => {
                write!(f, "lossy from {from} to {to}: {permille} of 1000")
            }
            Self::HealNetwork => f.write_str("the network is well"),
            Self::ClockRate { node, fast_ppm } => write!(f, "{node}: clocks {fast_ppm} ppm fast"),
            Self::WallJump { node, nanos } => {
                let way = if *nanos < 0 { "back" } else { "forward" };
                let by = Seconds(nanos.unsigned_abs());
                write!(f, "{node}: wall clock jumps {way} by {by}")
            }
            Self::ClockForward { node, nanos } => {
                write!(f, "{node}: clocks jump forward by {}", Seconds(*nanos))
            }
            Self::ClockStop { node } => write!(f, "{node}: clocks stand still"),
            Self::ClockBack { node, nanos } => {
                write!(f, "{node}: boottime goes back by {}", Seconds(*nanos))
            }
            Self::Pause { node, nanos } => write!(f, "{node} stands still for {}", Seconds(*nanos)),
            Self::Disk { node, fault } => write!(f, "{node}: disk: {fault}"),
            Self::HealDisk { node } => write!(f, "{node}: the disk is well"),
            Self::Calm => f.write_str("calm: everything is well"),
        }
    }
}

/// How often each kind of fault is drawn, relative to the others; 0 is never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the fault of that name")]
pub struct Weights {
    pub crash: u32,
    pub power_cut: u32,
    pub partition: u32,
    pub cut: u32,
    pub slow_link: u32,
    pub lossy_link: u32,
    /// Clock rates, jumps of the wall clock, jumps forward.
    pub clock: u32,
    /// Clocks that stop or go back.
    pub broken_clock: u32,
    pub pause: u32,
    /// Errors that lose nothing: of reads and writes, and for lack of space.
    pub disk_error: u32,
    /// Failed syncs and flipped bits, only on the plan's damaged nodes.
    pub disk_damage: u32,
}

impl Weights {
    /// No faults, as a base for plans with one kind of fault.
    pub const NONE: Self = Self {
        crash: 0,
        power_cut: 0,
        partition: 0,
        cut: 0,
        slow_link: 0,
        lossy_link: 0,
        clock: 0,
        broken_clock: 0,
        pause: 0,
        disk_error: 0,
        disk_damage: 0,
    };
}

impl Default for Weights {
    /// Everything that leases and a quorum of disks must survive: no broken clocks.
    fn default() -> Self {
        Self {
            crash: 8,
            power_cut: 2,
            partition: 5,
            cut: 4,
            slow_link: 3,
            lossy_link: 3,
            clock: 3,
            broken_clock: 0,
            pause: 4,
            disk_error: 4,
            disk_damage: 2,
        }
    }
}

/// The parameters that plans are drawn with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Nodes, numbered from 0.
    pub nodes: Vec<NodeId>,
    /// Number of faults, without those that end one.
    pub faults: usize,
    /// The time with faults.
    pub storm_nanos: u64,
    /// The time without faults afterwards.
    pub calm_nanos: u64,
    /// The weights of the kinds of faults.
    pub weights: Weights,
    /// The most nodes whose disks may lose durable data: fewer than any quorum, or data is lost for good.
    pub damaged_max: usize,
}

impl Setup {
    /// This many nodes, 20 s with 12 faults, 30 s without, one damaged disk.
    pub fn new(nodes: u32) -> Self {
        Self {
            nodes: (0..nodes).map(NodeId).collect(),
            faults: 12,
            storm_nanos: 20_000_000_000,
            calm_nanos: 30_000_000_000,
            weights: Weights::default(),
            damaged_max: 1,
        }
    }
}

/// A fault and its time, in nanoseconds of the simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time.
    pub at: u64,
    /// The fault.
    pub fault: Fault,
}

/// A plan of faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed that it was drawn from.
    pub seed: u64,
    /// The events in order.
    pub events: Vec<Event>,
    /// When the calm begins: no event is later.
    pub calm_at: u64,
    /// When the calm ends.
    pub end_at: u64,
}

impl Plan {
    /// The plan of a seed.
    ///
    /// # Panics
    /// If there are no nodes, or the storm is shorter than a second.
    pub fn draw(seed: u64, setup: &Setup) -> Self {
        assert!(!setup.nodes.is_empty(), "a plan for no nodes");
        assert!(setup.storm_nanos >= 1_000_000_000, "a short storm");
        Self {
            seed,
            events: draw::events(seed, setup),
            calm_at: setup.storm_nanos,
            end_at: setup.storm_nanos + setup.calm_nanos,
        }
    }

    /// All events, followed by the calm.
    pub fn steps(&self) -> impl Iterator<Item = Event> + '_ {
        let calm = Event {
            at: self.calm_at,
            fault: Fault::Calm,
        };
        self.events.iter().cloned().chain([calm])
    }

    /// The plan without event `i`.
    #[must_use]
    pub fn without(&self, i: usize) -> Self {
        let mut plan = self.clone();
        if i < plan.events.len() {
            plan.events.remove(i);
        }
        plan
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "plan of seed {:#x}, {} events",
            self.seed,
            self.events.len()
        )?;
        for (i, step) in self.steps().enumerate() {
            write!(f, "\n  #{i} at {}: {}", Seconds(step.at), step.fault)?;
        }
        write!(f, "\n  end at {}", Seconds(self.end_at))
    }
}

/// A part of the plan that still fails, but not without any single event of it. `plan` must fail, and the
/// same plan must do the same each time.
pub fn reduce(plan: &Plan, mut fails: impl FnMut(&Plan) -> bool) -> Plan {
    let with = |events: &[Event]| Plan {
        events: events.to_vec(),
        ..plan.clone()
    };
    let events = shrink(&plan.events, usize::MAX, |events| fails(&with(events)));
    with(&events)
}

#[cfg(test)]
mod tests;
