//! Applies the faults of a plan to network, clocks and disks. The owner of the nodes starts and ends them,
//! and takes the image of a disk that lost power.

use std::path::{Path, PathBuf};

use super::clocks::{NodeClock, Pauses};
use super::network::{Link, Message, Network};
use super::node::NodeId;
use super::plan::{DiskFault, Fault};
use crate::disk::{self, Act, Repeat, SimDisk};

/// Applies a fault to the network, which is also told of nodes that crash or start.
pub fn to_network<M: Message>(fault: &Fault, now: u64, nodes: &[NodeId], network: &mut Network<M>) {
    match fault {
        Fault::Crash { node, power } => network.node_down(now, *node, !power),
        Fault::Restart { node } => network.node_up(*node),
        Fault::PowerCut => {
            for &node in nodes {
                network.node_down(now, node, false);
            }
        }
        Fault::RestartAll => {
            for &node in nodes {
                network.node_up(node);
            }
        }
        Fault::Partition { side } => network.partition(now, nodes, side),
        Fault::Cut { from, to } => network.cut(now, *from, *to),
        Fault::SlowLink { from, to, nanos } => {
            let mut link = network.link(*from, *to);
            link.delay.mean_nanos = link.delay.mean_nanos.saturating_add(*nanos);
            network.set_link(*from, *to, link);
        }
        Fault::LossyLink { from, to, permille } => {
            let link = Link {
                drop_permille: *permille,
                duplicate_permille: *permille,
                ..network.link(*from, *to)
            };
            network.set_link(*from, *to, link);
        }
        Fault::HealNetwork => network.heal(),
        Fault::Pause { node, nanos } => network.hold(*node, now.saturating_add(*nanos)),
        Fault::Calm => {
            network.calm();
            for &node in nodes {
                network.node_up(node);
            }
        }
        Fault::ClockRate { .. }
        | Fault::WallJump { .. }
        | Fault::ClockForward { .. }
        | Fault::ClockStop { .. }
        | Fault::ClockBack { .. }
        | Fault::Disk { .. }
        | Fault::HealDisk { .. } => {}
    }
}

/// Applies a fault to the clock and the pauses of `node`; faults of other nodes change nothing. A crash
/// ends a pause.
pub fn to_clock(fault: &Fault, now: u64, node: NodeId, clock: &NodeClock, pauses: &mut Pauses) {
    match fault {
        Fault::ClockRate { node: n, fast_ppm } if *n == node => clock.set_rate(*fast_ppm),
        Fault::WallJump { node: n, nanos } if *n == node => clock.jump_wall(*nanos),
        Fault::ClockForward { node: n, nanos } if *n == node => clock.jump_forward(*nanos),
        Fault::ClockStop { node: n } if *n == node => clock.stop(),
        Fault::ClockBack { node: n, nanos } if *n == node => clock.set_back(*nanos),
        Fault::Pause { node: n, nanos } if *n == node => {
            pauses.pause(node, now.saturating_add(*nanos));
        }
        Fault::Crash { node: n, .. } if *n == node => pauses.resume(node),
        Fault::PowerCut => pauses.resume(node),
        Fault::Calm => {
            clock.heal();
            pauses.heal();
        }
        _ => {}
    }
}

/// Applies a fault to the disk of `node`; faults of other nodes change nothing. Bits flip in files for
/// which `rots` is true; returns the file and the byte.
pub fn to_disk(
    fault: &Fault,
    node: NodeId,
    disk: &SimDisk,
    rots: impl Fn(&Path) -> bool,
) -> Option<(PathBuf, u64)> {
    let is_write = |act: Act, _: &Path| matches!(act, Act::Write | Act::WriteDsync);
    match fault {
        Fault::Disk { node: n, fault } if *n == node => match fault {
            DiskFault::ReadError => {
                let is_read = |act, _: &Path| act == Act::Read;
                disk.fail_on(disk::Fault::Eio, Repeat::Once, is_read);
            }
            DiskFault::WriteError => disk.fail_on(disk::Fault::Eio, Repeat::Once, is_write),
            DiskFault::SyncError => disk.fail_on(disk::Fault::Sync, Repeat::Once, |_, _| true),
            DiskFault::NoSpace => {
                disk.fail_on(disk::Fault::NoSpace, Repeat::Forever, |_, _| true);
            }
            DiskFault::Rot { seed } => return disk.flip_bit(*seed, rots),
        },
        Fault::HealDisk { node: n } if *n == node => disk.clear_faults(),
        Fault::Calm => disk.clear_faults(),
        _ => {}
    }
    None
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use io::{FileSystem, OpenHow, SyncKind, WriteSync};

    use super::*;
    use crate::cluster::clocks::TrueTime;
    use crate::cluster::network::{Delivery, Mode};
    use crate::cluster::plan::{Plan, Setup};
    use crate::disk::Config;

    #[test]
    fn the_calm_heals_every_plan() {
        let mut setup = Setup::new(3);
        setup.weights.broken_clock = 3;
        let nodes = setup.nodes.clone();
        for seed in 0..300 {
            let plan = Plan::draw(seed, &setup);
            let truth = TrueTime::default();
            let clocks: Vec<NodeClock> = nodes.iter().map(|_| NodeClock::new(&truth, 0)).collect();
            let disk = SimDisk::new(Config::default());
            let mut pauses = Pauses::default();
            let mut network: Network<Bytes> =
                Network::new(seed, Mode::Connections, Link::default());
            for step in plan.steps() {
                truth.set(step.at);
                while network.deliver(step.at).is_some() {}
                to_network(&step.fault, step.at, &nodes, &mut network);
                for (node, clock) in nodes.iter().zip(&clocks) {
                    to_clock(&step.fault, step.at, *node, clock, &mut pauses);
                    to_disk(&step.fault, *node, &disk, |_| true);
                }
                for (from, to) in [(0, 1), (1, 2), (2, 0)] {
                    network.send(step.at, NodeId(from), NodeId(to), Bytes::new());
                }
            }
            let later = plan.calm_at + setup.calm_nanos / 2;
            truth.set(later);
            while network.deliver(later).is_some() {}
            for (from, to) in [(0, 1), (1, 0), (1, 2), (2, 1), (2, 0), (0, 2)] {
                network.send(later, NodeId(from), NodeId(to), Bytes::new());
            }
            let mut arrived = 0;
            while let Some(delivery) = network.deliver(plan.end_at) {
                arrived += u32::from(matches!(delivery, Delivery::Message { .. }));
            }
            assert_eq!(arrived, 6, "{plan}");
            let wall = 1_700_000_000_000_000 + later / 1000;
            for (node, clock) in nodes.iter().zip(&clocks) {
                use base::clock::Clock;
                assert!(clock.wall_micros().abs_diff(wall) <= 1, "{plan}");
                assert!(!pauses.is_paused(*node, later), "{plan}");
            }
            assert!(
                disk.open(Path::new("/x"), OpenHow::CREATE_TRUNCATE).is_ok(),
                "{plan}"
            );
        }
    }

    #[test]
    fn disks_fail_as_planned() {
        let disk = SimDisk::new(Config::default());
        let node = NodeId(1);
        let path = Path::new("/data");
        let file = disk.open(path, OpenHow::CREATE_TRUNCATE).unwrap();
        let write = || io::write_all_at(&*file, &[7; 512], 0, WriteSync::None);
        let read = || io::read_exact_at(&*file, &mut [0; 512], 0);
        write().unwrap();
        let apply = |fault| to_disk(&Fault::Disk { node, fault }, node, &disk, |_| true);

        apply(DiskFault::ReadError);
        write().unwrap();
        assert!(read().is_err() && read().is_ok());
        apply(DiskFault::WriteError);
        assert!(write().is_err() && write().is_ok());
        apply(DiskFault::SyncError);
        write().unwrap();
        assert!(file.sync(SyncKind::Data).is_err() && file.sync(SyncKind::Data).is_ok());
        apply(DiskFault::NoSpace);
        assert!(write().is_err() && write().is_err() && read().is_ok());
        to_disk(&Fault::HealDisk { node: NodeId(2) }, node, &disk, |_| true);
        assert!(write().is_err());
        to_disk(&Fault::HealDisk { node }, node, &disk, |_| true);
        write().unwrap();
        let (rotten, at) = apply(DiskFault::Rot { seed: 3 }).unwrap();
        assert!(rotten == path && at < 512);
    }
}
