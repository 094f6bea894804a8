//! Replicas with logs on a real file system, a network with random faults, and the invariants of every step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use base::checksum::crc32c;
use base::rng::Rng;
use bytes::Bytes;
use io::posix::Posix;
use io::{File, FileSystem, OpenHow};

use crate::group::members::{Change, Members};
use crate::group::raft::{Committed, Config, Node, Outgoing, Role};
use crate::ids::{BLOCK, Group, Index, Term, Uuid};
use crate::raftlog::batch::{self, Item};
use crate::raftlog::files::Files;
use crate::raftlog::{Append, Checkpoint, Options, RaftLog};
use crate::store::data::{Data, SLOT_BYTES};
use crate::store::dirty::Dirty;

pub(super) const GROUP: Group = Group(7);
const UNIT: u32 = 512;
const FILE_BYTES: u64 = 512 << 10;

/// A replica's files, which outlive it.
pub(super) struct Dir {
    _temp: tempfile::TempDir,
    log: PathBuf,
    data: Arc<dyn File>,
}

impl Dir {
    fn new(files: u32) -> Self {
        // In memory if possible: there are hundreds of runs, and the device is not what they test.
        let shm = std::path::Path::new("/dev/shm");
        let dir = tempfile::tempdir_in(shm).or_else(|_| tempfile::tempdir());
        let dir = dir.unwrap();
        let log = dir.path().join("log");
        Files::make(&Posix::shared(), &log, files, FILE_BYTES, &mut |_| ()).unwrap();
        let data = dir.path().join("data");
        let data = Posix.open(&data, OpenHow::CREATE_NEW).unwrap();
        data.truncate(SLOT_BYTES).unwrap();
        Self {
            _temp: dir,
            log,
            data,
        }
    }

    pub(super) fn open(&self, seed: u64) -> RaftLog {
        let options = Options {
            store: Uuid([9; 16]),
            unit: UNIT,
            depth: 2,
            file_bytes: FILE_BYTES,
            reserved_files: 0,
            memory_bytes: 1 << 20,
            seed,
        };
        RaftLog::open(Posix::shared(), &self.log, options, 0).unwrap()
    }
}

/// A running replica.
pub(super) struct Running {
    pub(super) log: RaftLog,
    pub(super) node: Node,
    flights: VecDeque<(Append, u64)>,
    pending: Option<(u64, Vec<Item>)>,
    pub(super) applied: u64,
    /// The members after each change that it has applied.
    pub(super) members: BTreeMap<u64, Members>,
    pub(super) reads: Vec<(u64, Index)>,
    pub(super) needs_copy: Vec<(u64, Index)>,
}

pub(super) struct Replica {
    pub(super) dir: Dir,
    pub(super) running: Option<Running>,
}

type Fact = (Term, Bytes, Bytes, Option<Members>);

pub(super) struct Cluster {
    pub(super) rng: Rng,
    pub(super) replicas: BTreeMap<u64, Replica>,
    pub(super) first_members: Members,
    /// Messages, and when they arrive.
    network: Vec<(u64, u64, Outgoing)>,
    pub(super) now: u64,
    /// Whether nothing is lost, late, or down.
    pub(super) quiet: bool,
    /// Replicas that hear nobody and are heard by nobody.
    pub(super) cut_off: BTreeSet<u64>,
    /// Replicas that hear nobody, and are heard.
    pub(super) deaf: BTreeSet<u64>,
    history: BTreeMap<u64, Fact>,
    leaders: BTreeMap<Term, u64>,
    pub(super) proposed: u64,
    /// A record of the run, for comparison.
    pub(super) trace: Vec<u32>,
    pub(super) config: Config,
}

/// An entry with a number in it.
pub(super) fn command(number: u64, blocks: usize) -> (Bytes, Bytes) {
    let payload: Vec<u8> = (0..blocks * BLOCK)
        .map(|i| (number as usize * 31 + i / 512) as u8)
        .collect();
    let mut inline = vec![0; 16];
    inline[..8].copy_from_slice(&number.to_le_bytes());
    for block in payload.chunks(BLOCK) {
        inline.extend(crc32c(block).to_le_bytes());
    }
    (inline.into(), payload.into())
}

impl Cluster {
    /// Replicas of a group, of which `voters` are its members.
    pub(super) fn new(seed: u64, voters: &[u64], others: &[u64]) -> Self {
        let mut config = Config::new(Rng::new(seed));
        config.silent_ticks = 3;
        let mut cluster = Self {
            rng: Rng::new(seed),
            replicas: BTreeMap::new(),
            first_members: Members::of(voters),
            network: vec![],
            now: 0,
            quiet: true,
            cut_off: BTreeSet::new(),
            deaf: BTreeSet::new(),
            history: BTreeMap::new(),
            leaders: BTreeMap::new(),
            proposed: 0,
            trace: vec![],
            config,
        };
        for &id in voters.iter().chain(others) {
            let dir = Dir::new(12);
            cluster.replicas.insert(id, Replica { dir, running: None });
            cluster.start(id);
        }
        cluster
    }

    pub(super) fn start(&mut self, id: u64) {
        let log = self.replicas[&id].dir.open(self.rng.next_u64());
        let synced = log.groups().get(GROUP).map_or(0, |g| g.synced().0.0);
        let members = if synced == 0 {
            self.first_members.clone()
        } else {
            let state = log.groups().get(GROUP).unwrap().state().clone();
            Members::decode(&mut base::coding::Decoder::new(&state)).unwrap()
        };
        let mut config = self.config.clone();
        config.rng = Rng::new(self.rng.next_u64());
        let node = Node::open(GROUP, id, &members, &log, Index(synced), config).unwrap();
        self.replicas.get_mut(&id).unwrap().running = Some(Running {
            log,
            node,
            flights: VecDeque::new(),
            pending: None,
            applied: synced,
            members: BTreeMap::from([(synced, members)]),
            reads: vec![],
            needs_copy: vec![],
        });
    }

    /// The process ends; some of the writes on their way reach the device.
    pub(super) fn crash(&mut self, id: u64) {
        let running = self.replicas.get_mut(&id).unwrap().running.take();
        for (append, _) in running.into_iter().flat_map(|r| r.flights) {
            if self.rng.one_in(2) {
                append.run().unwrap();
            }
        }
    }

    pub(super) fn on(&mut self, id: u64) -> &mut Running {
        self.replicas
            .get_mut(&id)
            .unwrap()
            .running
            .as_mut()
            .unwrap()
    }

    pub(super) fn ids(&self) -> Vec<u64> {
        self.replicas.keys().copied().collect()
    }

    pub(super) fn is_up(&self, id: u64) -> bool {
        self.replicas[&id].running.is_some()
    }

    /// The leader with the highest term.
    pub(super) fn leader(&self) -> Option<u64> {
        let running = self.replicas.iter().filter_map(|(&id, r)| {
            let node = &r.running.as_ref()?.node;
            (node.role() == Role::Leader).then_some((node.term(), id))
        });
        running.max().map(|(_, id)| id)
    }

    fn send(&mut self, from: u64, messages: Vec<Outgoing>) {
        for message in messages {
            assert_eq!(message.message.from, from);
            if !self.quiet && self.rng.one_in(12) {
                continue;
            }
            let copies = if !self.quiet && self.rng.one_in(12) {
                2
            } else {
                1
            };
            for _ in 0..copies {
                let late = match self.quiet {
                    true => 0,
                    false if self.rng.one_in(20) => self.rng.below(60),
                    false => self.rng.below(4),
                };
                self.network.push((self.now + late, from, message.clone()));
            }
        }
    }

    /// Does everything that a replica has to do; or a part of it, unless it is quiet.
    pub(super) fn work(&mut self, id: u64) {
        let land = self.quiet || self.rng.one_in(2);
        let is_applied = self.quiet || self.rng.one_in(2);
        let running = self.on(id);
        if is_applied {
            running.node.applied(Index(running.applied)).unwrap();
        }
        if land && let Some((append, number)) = running.flights.pop_front() {
            let outcome = append.run();
            let landed = running.log.landed(append, outcome).unwrap();
            assert!(landed.again.is_none());
            let after = running.node.persisted(number);
            self.send(id, after);
        }
        loop {
            let running = self.on(id);
            if let Some((number, items)) = running.pending.take() {
                if !running.log.can_append(batch::bytes(&items, UNIT as usize)) {
                    running.pending = Some((number, items));
                    return;
                }
                let (_, append) = running.log.append(items, &[]).unwrap();
                running.flights.push_back((append, number));
            }
            let Some(ready) = running.node.ready(&running.log).unwrap() else {
                return;
            };
            assert!(ready.unreadable.is_empty(), "{:?}", ready.unreadable);
            if !ready.items.is_empty() {
                running.pending = Some((ready.number, ready.items));
            }
            running.reads.extend(ready.reads);
            running.needs_copy.extend(ready.needs_copy);
            self.trace.push(crc32c(
                format!("{id} {:?} {:?}", ready.now, ready.role).as_bytes(),
            ));
            if let Some(role) = ready.role
                && role.role == Role::Leader
            {
                let first = *self.leaders.entry(role.term).or_insert(id);
                assert_eq!(first, id, "two leaders in term {}", role.term);
            }
            self.apply(id, ready.committed);
            self.send(id, ready.now);
        }
    }

    fn apply(&mut self, id: u64, committed: Vec<Committed>) {
        for entry in committed {
            let index = entry.index.0;
            let fact = (entry.term, entry.inline, entry.payload, entry.members);
            let running = self
                .replicas
                .get_mut(&id)
                .unwrap()
                .running
                .as_mut()
                .unwrap();
            assert_eq!(index, running.applied + 1, "replica {id}");
            running.applied = index;
            if let Some(members) = &fact.3 {
                running.members.insert(index, members.clone());
            }
            let known = self.history.entry(index).or_insert_with(|| fact.clone());
            assert_eq!(*known, fact, "entry {index} at replica {id}");
        }
        for p in self.on(id).node.progress() {
            assert!(p.next > p.matched, "{p:?}");
        }
    }

    fn deliver(&mut self) {
        let mut due = Vec::new();
        let now = self.now;
        self.network.retain(|m| {
            let is_due = m.0 <= now;
            if is_due {
                due.push(m.clone());
            }
            !is_due
        });
        while !due.is_empty() {
            let nth = if self.quiet {
                0
            } else {
                self.rng.below(due.len() as u64)
            };
            let (_, from, m) = due.remove(nth as usize);
            let is_cut = self.cut_off.contains(&from) || self.cut_off.contains(&m.to);
            if is_cut || self.deaf.contains(&m.to) || !self.is_up(m.to) {
                continue;
            }
            self.on(m.to).node.step(m.message, m.payloads).unwrap();
            self.work(m.to);
        }
    }

    pub(super) fn propose(&mut self, blocks: usize) -> bool {
        let Some(leader) = self.leader() else {
            return false;
        };
        let (inline, payload) = command(self.proposed, blocks);
        let taken = self.on(leader).node.propose(inline, payload).is_ok();
        self.proposed += u64::from(taken);
        self.work(leader);
        taken
    }

    /// One step of time.
    pub(super) fn step(&mut self) {
        self.now += 1;
        self.deliver();
        for id in self.ids() {
            let ticks = self.quiet || self.rng.one_in(3);
            if self.is_up(id) {
                if ticks {
                    self.on(id).node.tick().unwrap();
                }
                self.work(id);
            }
        }
    }

    pub(super) fn run(&mut self, steps: u64) {
        (0..steps).for_each(|_| self.step());
    }

    /// Runs until there is a leader that has committed an entry of its own.
    pub(super) fn elect(&mut self) -> u64 {
        for _ in 0..400 {
            self.step();
            if let Some(leader) = self.leader()
                && self.on(leader).node.has_applied_own_term()
            {
                return leader;
            }
        }
        panic!(
            "no leader in quiet times, {:?}",
            self.replicas[&1].running.is_some()
        );
    }

    /// Runs without faults until a last proposal has reached all members.
    pub(super) fn settle(&mut self) {
        self.quiet = true;
        self.cut_off.clear();
        for id in self.ids() {
            if !self.is_up(id) {
                self.start(id);
            }
        }
        self.elect();
        self.run(60);
        let leader = self.elect();
        assert!(self.propose(1), "leader {leader}");
        self.run(60);
        let leader = self.elect();
        let members = self.on(leader).node.members().clone();
        assert!(!members.is_joint(), "{members:?}");
        let last = *self.history.last_key_value().unwrap().0;
        assert_eq!(self.history.len() as u64, last, "no gaps");
        for id in members.voters.iter().chain(&members.learners) {
            assert_eq!(
                self.on(*id).applied,
                last,
                "replica {id}, members {members:?}"
            );
            assert_eq!(*self.on(*id).node.members(), members);
        }
    }

    /// Number of committed entries.
    pub(super) fn committed(&self) -> u64 {
        self.history.len() as u64
    }

    /// The numbers in the committed commands.
    pub(super) fn numbers(&self) -> Vec<u64> {
        let commands = self
            .history
            .values()
            .filter(|f| f.3.is_none() && !f.1.is_empty());
        let number = |f: &Fact| u64::from_le_bytes(f.1[..8].try_into().unwrap());
        commands.map(number).collect()
    }

    /// Writes a checkpoint of a replica at `through`, and truncates the log before it, except for entries from
    /// `keep_from` on.
    pub(super) fn checkpoint(&mut self, id: u64, through: u64, term: Term, keep_from: u64) {
        let file = Arc::clone(&self.replicas[&id].dir.data);
        let running = self.on(id);
        assert!(running.flights.is_empty() && running.pending.is_none());
        let mut data = Data::open(file, 1).unwrap();
        let marked = Dirty::after(GROUP, Index(through)).mark(u64::MAX).unwrap();
        let written = data.write_back(vec![marked], &mut |_| ()).unwrap();
        let ticket = written.sync().unwrap().pop().unwrap().0;
        let mut state = Vec::new();
        running
            .members
            .range(..=through)
            .next_back()
            .unwrap()
            .1
            .encode(&mut state);
        let c = Checkpoint::at(ticket, term, state.into());
        let (_, append) = running.log.append(vec![], &[c]).unwrap();
        let outcome = append.run();
        for token in running.log.landed(append, outcome).unwrap().tokens {
            running.log.truncate(token, Index(keep_from)).unwrap();
        }
        running.node.truncated(Index(keep_from - 1));
    }

    /// Writes a checkpoint at the replica's last applied entry, if nothing is on its way; all entries are
    /// kept.
    pub(super) fn checkpoint_here(&mut self, id: u64) {
        let running = self.on(id);
        let (through, is_idle) = (running.applied, running.flights.is_empty());
        if is_idle && running.pending.is_none() && through > 0 {
            let term = self.history[&through].0;
            self.checkpoint(id, through, term, 1);
        }
    }

    /// Proposes a change of the members, if there is a leader that takes it.
    pub(super) fn change(&mut self, change: &Change) -> bool {
        let Some(leader) = self.leader() else {
            return false;
        };
        let taken = self.on(leader).node.propose_members(change).is_ok();
        self.work(leader);
        taken
    }
}
