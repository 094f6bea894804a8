//! Applies the faults of a plan to the stores.

use block::store::data::SLOT_BYTES;

use super::super::apply;
use super::super::node::NodeId;
use super::super::plan::{DiskFault, Fault};
use super::{Due, FIRST_CLIENT, MILLI, TRIED_AGAIN, World};

/// How long a crash waits for its job.
const ARMED: u64 = 300 * MILLI;

/// Bytes of a slot's pages, which come before its blocks.
const PAGES: u64 = 64 << 10;

impl World {
    pub(super) fn do_fault(&mut self, i: usize) {
        let fault = self.steps[i].fault.clone();
        self.say(format_args!("FAULT {fault}"));
        let stores = self.shape.stores();
        match &fault {
            Fault::Crash { node, power } => return self.crash_soon(node.0 as usize, *power),
            Fault::PowerCut => {
                for n in 0..self.nodes.len() {
                    self.crash(n, true);
                }
                return;
            }
            Fault::Restart { node } => return self.start(node.0 as usize),
            Fault::RestartAll => return (0..self.nodes.len()).for_each(|n| self.start(n)),
            Fault::Partition { side } => self.cut_clients(side),
            Fault::ClockForward { node, nanos } => {
                // A timer counts elapsed time, not the clock's reading.
                if let Some(process) = &mut self.nodes[node.0 as usize].process {
                    process.next_tick += nanos;
                }
            }
            Fault::HealDisk { node } => self.heal_disk(node.0 as usize),
            Fault::Disk { node, fault } => return self.disk_fault(node.0 as usize, *fault, i),
            Fault::Calm => return self.calm(i),
            _ => {}
        }
        apply::to_network(&fault, self.now, &stores, &mut self.network);
        self.coverage.stopped_clocks += u64::from(matches!(fault, Fault::ClockStop { .. }));
        for node in &self.nodes {
            apply::to_clock(&fault, self.now, node.id, &node.clock, &mut self.pauses);
        }
    }

    /// Each client is on one side of a partition, too.
    fn cut_clients(&mut self, side: &[NodeId]) {
        let clients: Vec<u32> = self.clients.keys().copied().collect();
        for client in clients {
            let is_inside = self.rng.one_in(2);
            for store in self.shape.stores() {
                if side.contains(&store) != is_inside {
                    self.network.cut(self.now, NodeId(client), store);
                    self.network.cut(self.now, store, NodeId(client));
                }
            }
        }
    }

    fn disk_fault(&mut self, n: usize, fault: DiskFault, i: usize) {
        let steps = &self.steps[i].fault;
        let node = &mut self.nodes[n];
        match fault {
            DiskFault::NoSpace => return node.set_no_space(true),
            DiskFault::SyncError | DiskFault::Rot { .. } => node.is_damaged = true,
            DiskFault::ReadError | DiskFault::WriteError => {}
        }
        let rots = |path: &std::path::Path| !path.ends_with("LOCK");
        let (id, disk) = (node.id, node.disk.clone());
        if let Some((path, at)) = apply::to_disk(steps, id, &disk, rots) {
            self.say(format_args!("{id}: {} has rotted at {at}", path.display()));
            // The older page of the extent is used then, and what was new in the other is lost unnoticed.
            if path.ends_with("data") && at % SLOT_BYTES < PAGES {
                self.retire(n);
            }
        }
    }

    fn heal_disk(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        node.note_fault(&mut self.coverage);
        node.set_no_space(false);
        node.disk.clear_faults();
    }

    /// Ends all faults; a store whose disk has lost data is retired.
    fn calm(&mut self, i: usize) {
        self.is_calm = true;
        let fault = self.steps[i].fault.clone();
        let stores = self.shape.stores();
        apply::to_network(&fault, self.now, &stores, &mut self.network);
        for n in 0..self.nodes.len() {
            self.heal_disk(n);
            let node = &mut self.nodes[n];
            apply::to_clock(&fault, self.now, node.id, &node.clock, &mut self.pauses);
            if node.is_damaged {
                self.retire(n);
            } else {
                self.start(n);
            }
        }
        // Timers of clocks that stood still.
        for n in 0..self.nodes.len() {
            let life = self.nodes[n].life;
            self.after(0, Due::Tick(n, life));
        }
    }

    /// Stops a node for ever.
    fn retire(&mut self, n: usize) {
        self.nodes[n].is_retired = true;
        if self.nodes[n].process.is_some() {
            self.crash(n, false);
        }
        self.network.node_down(self.now, self.nodes[n].id, true);
    }

    /// Crashes a node now, or within a call of its disk, or while a job is on its way to the device.
    fn crash_soon(&mut self, n: usize, power: bool) {
        let how = self.rng.below(4);
        let node = &mut self.nodes[n];
        match how {
            _ if node.process.is_none() => return self.crash(n, power),
            0 => return self.crash(n, power),
            1 => node.arm(power),
            _ => node.waits_for = Some((how == 2, power)),
        }
        let life = node.life;
        self.after(ARMED, Due::Crash(n, life, power));
    }

    /// The machine has ended within a call of its disk.
    pub(super) fn struck(&mut self, n: usize) {
        self.coverage.armed += 1;
        let power = self.nodes[n].armed.unwrap_or(true);
        self.crash(n, power);
        // The plan may have no later restart; then nothing else would start the node.
        self.after(TRIED_AGAIN, Due::Start(n));
    }

    pub(super) fn crash(&mut self, n: usize, power: bool) {
        // A copy may have begun since the last check.
        for group in self.shape.groups.keys().copied().collect::<Vec<_>>() {
            self.note_copies(group);
        }
        let id = self.nodes[n].id;
        self.say(format_args!("{id} crashes, power: {power}"));
        self.nodes[n].crash(power, &mut self.coverage);
        self.pauses.resume(id);
        self.network.node_down(self.now, id, !power);
        if self.is_calm {
            self.after(TRIED_AGAIN, Due::Start(n));
        }
    }

    /// A store has failed: its process ends, and is started again later.
    pub(super) fn out(&mut self, n: usize, why: &str) {
        let node = &mut self.nodes[n];
        node.note_fault(&mut self.coverage);
        let (id, is_excused) = (node.id, node.is_excused());
        self.say(format_args!("{id} is out: {why}"));
        if !is_excused {
            return self.fail(format!("{id} is out without a fault of its disk: {why}"));
        }
        self.coverage.outs += 1;
        self.crash(n, false);
        self.after(TRIED_AGAIN, Due::Start(n));
    }

    /// Removes a client.
    pub(super) fn forget_client(&mut self, id: u32) {
        debug_assert!(id >= FIRST_CLIENT, "client {id}");
        self.network.node_down(self.now, NodeId(id), true);
        self.clients.remove(&id);
    }
}
