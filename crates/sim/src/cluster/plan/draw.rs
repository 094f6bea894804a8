//! Drawing the faults of a plan: by weight, each at any time of the storm, with durations of all orders of
//! magnitude.

use base::rng::Rng;

use super::super::node::NodeId;
use super::{DiskFault, Event, Fault, Setup};

/// The events of a seed, in the order of their times.
pub(super) fn events(seed: u64, setup: &Setup) -> Vec<Event> {
    let mut draw = Draw {
        rng: Rng::new(seed),
        setup: setup.clone(),
        damaged: Vec::new(),
        events: Vec::new(),
    };
    draw.pick_damaged();
    for _ in 0..setup.faults {
        draw.add();
    }
    draw.events.sort_by_key(|e| e.at);
    draw.events
}

/// A fault, and the fault that ends it, if any.
type Ended = (Fault, Option<Fault>);

/// The kinds of faults in [`super::Weights`].
#[derive(Clone, Copy)]
enum Kind {
    Crash,
    PowerCut,
    Partition,
    Cut,
    SlowLink,
    LossyLink,
    Clock,
    BrokenClock,
    Pause,
    DiskError,
    DiskDamage,
}

/// Draws events.
struct Draw {
    rng: Rng,
    setup: Setup,
    damaged: Vec<NodeId>,
    events: Vec<Event>,
}

impl Draw {
    fn pick_damaged(&mut self) {
        let mut nodes = self.setup.nodes.clone();
        for _ in 0..self.setup.damaged_max.min(nodes.len()) {
            let i = self.rng.below(nodes.len() as u64) as usize;
            self.damaged.push(nodes.swap_remove(i));
        }
    }

    fn node(&mut self) -> NodeId {
        let nodes = &self.setup.nodes;
        nodes[self.rng.below(nodes.len() as u64) as usize]
    }

    /// Two different nodes.
    fn two(&mut self) -> Option<(NodeId, NodeId)> {
        let from = self.node();
        let others: Vec<NodeId> = self
            .setup
            .nodes
            .iter()
            .copied()
            .filter(|&n| n != from)
            .collect();
        let count = others.len() as u64;
        (count > 0).then(|| (from, others[self.rng.below(count) as usize]))
    }

    /// Some nodes but not all.
    fn side(&mut self) -> Vec<NodeId> {
        let mut nodes = self.setup.nodes.clone();
        let most = (nodes.len() as u64).saturating_sub(1).max(1);
        let count = 1 + self.rng.below(most) as usize;
        while nodes.len() > count {
            let i = self.rng.below(nodes.len() as u64) as usize;
            nodes.remove(i);
        }
        nodes
    }

    /// A duration between the two, with all orders of magnitude equally likely.
    fn span(&mut self, min: u64, max: u64) -> u64 {
        let doublings = u64::from((max / min.max(1)).max(1).ilog2());
        let low = min << self.rng.below(doublings + 1);
        (low + self.rng.below(low.max(1))).min(max)
    }

    fn push(&mut self, at: u64, fault: Fault) {
        self.events.push(Event { at, fault });
    }

    /// Adds a fault, and perhaps its end.
    fn add(&mut self) {
        let at = self.rng.below(self.setup.storm_nanos);
        let left = self.setup.storm_nanos - at;
        let lasts = self.span(20_000_000, self.setup.storm_nanos / 2);
        let Some((fault, end)) = self.fault(lasts.min(left)) else {
            return;
        };
        self.push(at, fault);
        if let Some(end) = end.filter(|_| lasts < left) {
            self.push(at + lasts, end);
        }
    }

    /// A fault by weight, and the fault that ends it.
    fn fault(&mut self, lasts: u64) -> Option<Ended> {
        let w = self.setup.weights;
        let kinds = [
            (w.crash, Kind::Crash),
            (w.power_cut, Kind::PowerCut),
            (w.partition, Kind::Partition),
            (w.cut, Kind::Cut),
            (w.slow_link, Kind::SlowLink),
            (w.lossy_link, Kind::LossyLink),
            (w.clock, Kind::Clock),
            (w.broken_clock, Kind::BrokenClock),
            (w.pause, Kind::Pause),
            (w.disk_error, Kind::DiskError),
            (w.disk_damage, Kind::DiskDamage),
        ];
        match self.one_of(&kinds)? {
            Kind::Crash => Some(self.crash()),
            Kind::PowerCut => Some((Fault::PowerCut, Some(Fault::RestartAll))),
            Kind::Partition => {
                let side = self.side();
                Some((Fault::Partition { side }, Some(Fault::HealNetwork)))
            }
            kind @ (Kind::Cut | Kind::SlowLink | Kind::LossyLink) => self.link(kind),
            Kind::Clock => Some(self.clock()),
            Kind::BrokenClock => Some(self.broken_clock()),
            Kind::Pause => {
                let (node, nanos) = (self.node(), lasts);
                Some((Fault::Pause { node, nanos }, None))
            }
            Kind::DiskError => Some(self.disk_error()),
            Kind::DiskDamage => self.disk_damage(),
        }
    }

    fn one_of(&mut self, kinds: &[(u32, Kind)]) -> Option<Kind> {
        let sum: u64 = kinds.iter().map(|k| u64::from(k.0)).sum();
        if sum == 0 {
            return None;
        }
        let mut at = self.rng.below(sum);
        for &(weight, kind) in kinds {
            match at.checked_sub(u64::from(weight)) {
                Some(rest) => at = rest,
                None => return Some(kind),
            }
        }
        None
    }

    fn link(&mut self, kind: Kind) -> Option<Ended> {
        let (from, to) = self.two()?;
        let fault = match kind {
            Kind::SlowLink => {
                let nanos = self.span(1_000_000, 2_000_000_000);
                Fault::SlowLink { from, to, nanos }
            }
            Kind::LossyLink => {
                let permille = self.span(5, 500) as u32;
                Fault::LossyLink { from, to, permille }
            }
            _ => Fault::Cut { from, to },
        };
        Some((fault, Some(Fault::HealNetwork)))
    }

    fn crash(&mut self) -> Ended {
        let (node, power) = (self.node(), self.rng.one_in(2));
        (Fault::Crash { node, power }, Some(Fault::Restart { node }))
    }

    fn clock(&mut self) -> Ended {
        let node = self.node();
        let right = Fault::ClockRate { node, fast_ppm: 0 };
        match self.rng.below(3) {
            0 => {
                let fast_ppm = self.rng.below(1001) as i64 - 500;
                (Fault::ClockRate { node, fast_ppm }, Some(right))
            }
            1 => {
                let nanos = self.span(1_000_000, 3_600_000_000_000) as i64;
                let nanos = if self.rng.one_in(2) { -nanos } else { nanos };
                (Fault::WallJump { node, nanos }, None)
            }
            _ => {
                let nanos = self.span(1_000_000, 60_000_000_000);
                (Fault::ClockForward { node, nanos }, None)
            }
        }
    }

    fn broken_clock(&mut self) -> Ended {
        let node = self.node();
        if self.rng.one_in(2) {
            let right = Fault::ClockRate { node, fast_ppm: 0 };
            return (Fault::ClockStop { node }, Some(right));
        }
        let nanos = self.span(1_000_000, 10_000_000_000);
        (Fault::ClockBack { node, nanos }, None)
    }

    fn disk_error(&mut self) -> Ended {
        let node = self.node();
        let fault = match self.rng.below(3) {
            0 => DiskFault::ReadError,
            1 => DiskFault::WriteError,
            _ => DiskFault::NoSpace,
        };
        (Fault::Disk { node, fault }, Some(Fault::HealDisk { node }))
    }

    fn disk_damage(&mut self) -> Option<Ended> {
        let count = self.damaged.len() as u64;
        if count == 0 {
            return None;
        }
        let node = self.damaged[self.rng.below(count) as usize];
        let rots = self.rng.one_in(2);
        let seed = self.rng.next_u64();
        let fault = if rots {
            DiskFault::Rot { seed }
        } else {
            DiskFault::SyncError
        };
        Some((Fault::Disk { node, fault }, None))
    }
}
