//! The stores, network and clients of one seed, driven event by event.
//!
//! ```text
//!   plan ── faults ──> nodes, network           timers, jobs of devices ──> core.step ──> commands
//!   clients ── requests ──> network ── deliveries ──> core.step ──> answers ──> history
//! ```
//!
//! **The end.** After the storm all faults end. Clients continue for a while and then submit no more; all open
//! operations must be answered then, and a new attachment of each volume reads all of it.

mod checks;
mod clients;
mod faults;
mod watch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Arguments;
use std::time::Duration;

use base::rng::Rng;
use block::group::message::Message as RaftMessage;
use block::ids::Group;
use block::shard::core::{Command, Event};
use block::shard::member::TICK;
use block::wire::client::{Request, Response, What};
use bytes::Bytes;

use super::client::Client;
use super::clocks::{NodeClock, Pauses, TrueTime};
use super::coverage::Coverage;
use super::history::{History, Operation};
use super::network::{Delivery, Message, Network};
use super::node::NodeId;
use super::plan::{self, Plan};
use super::shape::{MILLI, SECOND, Shape};
use super::store::{Job, Node};
use watch::{WATCHER, Watcher};

/// Nodes from here on are clients.
const FIRST_CLIENT: u32 = 100;
/// How long clients continue in the calm.
const BUSY_IN_CALM: u64 = 6 * SECOND;
/// The time after that by which all open operations must be answered.
const ANSWERED_BY: u64 = 10 * SECOND;
/// The time after which a failed store is started again.
const TRIED_AGAIN: u64 = 2 * SECOND;
/// Time between two checks of the replicas.
const LOOK: u64 = 250 * MILLI;
/// Number of events that a trace keeps.
const TRACE_MAX: usize = 400;

/// A message between nodes.
#[derive(Clone, Debug)]
enum Packet {
    Peer {
        group: Group,
        message: RaftMessage,
        payloads: Vec<Bytes>,
    },
    Request(Request),
    Response(Response),
}

impl Message for Packet {
    fn bytes(&self) -> u64 {
        match self {
            Self::Peer { payloads, .. } => {
                128 + payloads.iter().map(|p| p.len() as u64).sum::<u64>()
            }
            Self::Request(request) => 128 + u64::from(request.what.span().len),
            Self::Response(_) => 4096,
        }
    }
}

/// An event that is due at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// A fault of the plan, by its index.
    Fault(usize),
    /// A tick of a node, in one of its lives.
    Tick(usize, u64),
    /// A job of a node, in one of its lives.
    Job(usize, u64, u64),
    /// A node that does not run starts, if it may.
    Start(usize),
    /// The crash of a node in one of its lives, and whether the machine loses power.
    Crash(usize, u64, bool),
    /// A client's timer.
    Wake(u32),
    /// A client submits an operation.
    Ask(u32),
    /// A volume gets a new attachment.
    Attach(usize),
    /// The watcher reads a block.
    Watch,
    /// The replicas are compared.
    Look,
    /// Clients submit no more.
    Quiet,
    /// All open operations must be answered.
    Answered,
}

/// A simulated cluster with its clients.
pub(super) struct World {
    shape: Shape,
    plan: Plan,
    steps: Vec<plan::Event>,
    truth: TrueTime,
    now: u64,
    rng: Rng,
    nodes: Vec<Node>,
    network: Network<Packet>,
    pauses: Pauses,
    queue: BTreeMap<(u64, u64), Due>,
    sequence: u64,
    clients: BTreeMap<u32, Client>,
    next_client: u32,
    watcher: Watcher,
    /// The newest attachment of each volume.
    current: Vec<u32>,
    history: History,
    pub(super) coverage: Coverage,
    is_calm: bool,
    is_quiet: bool,
    /// Per volume, the final reads: the next unit to read, and whether all of it is read.
    final_reads: Vec<(u64, bool)>,
    leaders: BTreeSet<(Group, u64)>,
    /// The first entry in the log of each replica.
    firsts: BTreeMap<(Group, u64), u64>,
    /// Replicas that need a copy.
    stranded: BTreeSet<(Group, u64)>,
    seen: checks::Seen,
    trace: Option<VecDeque<String>>,
    violation: Option<String>,
}

impl World {
    /// The cluster of a shape, with a plan. Errors: a store cannot be created.
    pub(super) fn new(shape: Shape, plan: Plan, traced: bool) -> Result<Self, String> {
        let truth = TrueTime::default();
        let mut rng = Rng::new(shape.seed ^ 0x00d1_d000);
        let nodes = shape.stores().into_iter().map(|id| {
            let clock = NodeClock::new(&truth, rng.below(100 * SECOND));
            Node::new(id, &shape, clock).map_err(|e| e.to_string())
        });
        let nodes: Vec<Node> = nodes.collect::<Result<_, _>>()?;
        let volumes = shape.volumes.len();
        let mut world = Self {
            steps: plan.steps().collect(),
            plan,
            truth,
            now: 0,
            rng,
            nodes,
            network: Network::new(shape.seed ^ 0x7e7, shape.mode, shape.link),
            pauses: Pauses::default(),
            queue: BTreeMap::new(),
            sequence: 0,
            clients: BTreeMap::new(),
            next_client: FIRST_CLIENT,
            watcher: Watcher::new(shape.seed),
            current: vec![0; volumes],
            history: History::default(),
            coverage: Coverage::default(),
            is_calm: false,
            is_quiet: false,
            final_reads: vec![(0, false); volumes],
            leaders: BTreeSet::new(),
            firsts: BTreeMap::new(),
            stranded: BTreeSet::new(),
            seen: checks::Seen::default(),
            trace: traced.then(VecDeque::new),
            violation: None,
            shape,
        };
        world.begin();
        Ok(world)
    }

    fn begin(&mut self) {
        for n in 0..self.nodes.len() {
            self.start(n);
        }
        for i in 0..self.steps.len() {
            self.at(self.steps[i].at, Due::Fault(i));
        }
        for volume in 0..self.shape.volumes.len() {
            self.attach(volume);
        }
        if self.shape.is_watched {
            self.after(SECOND, Due::Watch);
        }
        let quiet = self.plan.calm_at + BUSY_IN_CALM;
        self.at(LOOK, Due::Look);
        self.at(quiet, Due::Quiet);
        self.at(quiet + ANSWERED_BY, Due::Answered);
    }

    /// Runs until the end. Errors: the violation.
    pub(super) fn run(&mut self) -> Result<(), String> {
        while self.violation.is_none() && !self.is_done() {
            let queued = self.queue.first_key_value().map(|(&(at, _), _)| at);
            let delivered = self.network.next_at();
            let Some(now) = queued.into_iter().chain(delivered).min() else {
                break;
            };
            if now > self.plan.end_at {
                break;
            }
            self.now = self.now.max(now);
            self.truth.set(self.now);
            self.coverage.events += 1;
            if delivered == Some(now) {
                if let Some(delivery) = self.network.deliver(now) {
                    self.deliver(delivery);
                }
            } else if let Some((_, due)) = self.queue.pop_first() {
                self.happen(due);
            }
        }
        self.finish()
    }

    /// The operations of all clients.
    pub(super) fn operations(&self) -> &[Operation] {
        self.history.operations()
    }

    /// The last events, if they were kept.
    pub(super) fn trace(&self) -> impl Iterator<Item = &String> {
        self.trace.iter().flatten()
    }

    fn say(&mut self, what: Arguments<'_>) {
        if let Some(trace) = &mut self.trace {
            if trace.len() == TRACE_MAX {
                trace.pop_front();
            }
            let micros = self.now / 1000;
            trace.push_back(format!(
                "{:>5}.{:06} {what}",
                micros / 1_000_000,
                micros % 1_000_000
            ));
        }
    }

    fn fail(&mut self, what: String) {
        self.say(format_args!("VIOLATION: {what}"));
        self.violation.get_or_insert(what);
    }

    fn at(&mut self, at: u64, due: Due) {
        self.sequence += 1;
        self.queue.insert((at.max(self.now), self.sequence), due);
    }

    fn after(&mut self, nanos: u64, due: Due) {
        self.at(self.now.saturating_add(nanos), due);
    }

    /// Whether a node's process is that of this life.
    fn lives(&self, n: usize, life: u64) -> bool {
        self.nodes[n].life == life && self.nodes[n].process.is_some()
    }

    fn happen(&mut self, due: Due) {
        if let Due::Tick(n, _) | Due::Job(n, ..) = due {
            let id = self.nodes[n].id;
            if self.pauses.is_paused(id, self.now) {
                return self.at(self.pauses.runs_at(id, self.now), due);
            }
        }
        match due {
            Due::Fault(i) => self.do_fault(i),
            Due::Tick(n, life) if self.lives(n, life) => self.tick(n),
            Due::Job(n, life, job) if self.lives(n, life) => {
                let event = self.nodes[n].do_job(job, &mut self.coverage);
                match event {
                    _ if self.nodes[n].disk.is_crashed() => self.struck(n),
                    Some(event) => self.step(n, event),
                    None => {}
                }
            }
            Due::Crash(n, life, power) if self.lives(n, life) => self.crash(n, power),
            Due::Tick(..) | Due::Job(..) | Due::Crash(..) => {}
            Due::Start(n) => self.start(n),
            Due::Wake(id) => self.wake(id),
            Due::Ask(id) => self.ask(id),
            Due::Attach(volume) => self.attach(volume),
            Due::Watch => self.watch(),
            Due::Look => {
                self.look();
                self.after(LOOK, Due::Look);
            }
            Due::Quiet => self.quiet(),
            Due::Answered => self.check_answered(),
        }
    }

    /// Starts a node that does not run, unless it is retired.
    fn start(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        if node.process.is_some() || node.is_retired {
            return;
        }
        let id = node.id;
        match node.start(&self.shape) {
            Ok(()) => {
                self.coverage.opens += 1;
                self.say(format_args!("{id} runs"));
                self.network.node_up(id);
                let life = self.nodes[n].life;
                self.step(n, Event::Tick);
                self.after(0, Due::Tick(n, life));
            }
            Err(_) if node.disk.is_crashed() => self.struck(n),
            Err(e) => {
                node.note_fault(&mut self.coverage);
                let is_excused = node.is_excused();
                self.say(format_args!("{id} does not open: {e}"));
                if is_excused {
                    self.coverage.refused += 1;
                    self.after(TRIED_AGAIN, Due::Start(n));
                } else {
                    self.fail(format!("{id} has lost nothing and does not open: {e}"));
                }
            }
        }
    }

    /// Gives a node all ticks that are due by its clock: several after it stood still.
    fn tick(&mut self, n: usize) {
        let life = self.nodes[n].life;
        let nanos = TICK.as_nanos() as u64;
        while self.lives(n, life) {
            let node = &mut self.nodes[n];
            let boottime = node.clock.boottime_nanos();
            let Some(process) = &mut node.process else {
                return;
            };
            // The store learns of a wrong clock with the next event.
            let mut time = process.time;
            let (now, _) = time.at(boottime, [boottime; 2]);
            if process.next_tick > now {
                let due = node.clock.when(time.reading_at(process.next_tick));
                return self.at(due.unwrap_or(self.now + SECOND), Due::Tick(n, life));
            }
            process.next_tick += nanos;
            self.step(n, Event::Tick);
        }
    }

    /// Passes an event to a store, and executes its commands.
    fn step(&mut self, n: usize, event: Event) {
        let node = &mut self.nodes[n];
        let boottime = node.clock.boottime_nanos();
        let Some(process) = &mut node.process else {
            return;
        };
        let (now, lost) = process.time.at(boottime, [boottime; 2]);
        let now = Duration::from_nanos(now);
        if lost.is_some() {
            self.coverage.wrong_clocks += 1;
            process.core.step(now, Event::WrongClock);
        }
        let read = match &event {
            Event::Request { client, request } => {
                matches!(request.what, What::Read(_)).then_some((*client, request.id))
            }
            _ => None,
        };
        process.core.step(now, event);
        if node.disk.is_crashed() {
            return self.struck(n);
        }
        if let Some(e) = process.core.failure() {
            let e = e.to_string();
            return self.out(n, &e);
        }
        let mut commands = VecDeque::new();
        while let Some(command) = process.core.next_command() {
            commands.push_back(command);
        }
        if let Some(read) = read {
            self.count_read(n, read, &commands);
        }
        for command in commands {
            self.command(n, command);
        }
    }

    /// Counts whether a read was served at once, or waits for a round of heartbeats.
    fn count_read(&mut self, n: usize, (client, id): (u64, u64), commands: &VecDeque<Command>) {
        let is_answered = commands.iter().any(|c| match c {
            Command::Reply {
                client: c,
                response,
            } => (*c, response.id) == (client, id),
            Command::Read { .. } => true,
            _ => false,
        });
        let core = self.nodes[n].process.as_ref().map(|p| &p.core);
        let leads = |g| core.and_then(|c| c.member(g)).map(|m| m.node().leader());
        let leads = self.shape.groups.keys().any(|&g| leads(g).is_some());
        if is_answered && leads {
            self.coverage.lease_reads += 1;
        } else if !is_answered {
            self.coverage.index_reads += 1;
        }
    }

    fn command(&mut self, n: usize, command: Command) {
        let id = self.nodes[n].id;
        match command {
            Command::Send { group, outgoing } => {
                let to = NodeId(outgoing.to as u32 - 1);
                let (message, payloads) = (outgoing.message, outgoing.payloads);
                let packet = Packet::Peer {
                    group,
                    message,
                    payloads,
                };
                self.network.send(self.now, id, to, packet);
            }
            Command::Reply { client, response } => {
                if self.trace.is_some() {
                    self.say(format_args!("{id} answers {client} #{}", short(&response)));
                }
                let to = NodeId(client as u32);
                self.network
                    .send(self.now, id, to, Packet::Response(response));
            }
            Command::Log(append) => self.put(n, Job::Log(append)),
            Command::Read { token, offset, len } => self.put(n, Job::Read { token, offset, len }),
            Command::InPlace { token, place } => self.put(n, Job::InPlace { token, place }),
            Command::WriteBack(marked, speed) => {
                self.say(format_args!("{id} writes back, {speed:?}"));
                self.put(n, Job::WriteBack(marked, speed));
            }
        }
    }

    fn put(&mut self, n: usize, job: Job) {
        let node = &mut self.nodes[n];
        let life = node.life;
        let is_write_back = match &job {
            Job::WriteBack(..) => Some(true),
            Job::Log(_) => Some(false),
            Job::Read { .. } | Job::InPlace { .. } => None,
        };
        let (job, nanos) = node.put(&self.shape, job);
        let crash = is_write_back.and_then(|is| node.crash_within(is, nanos));
        self.after(nanos, Due::Job(n, life, job));
        if let Some((power, at)) = crash {
            self.after(at, Due::Crash(n, life, power));
        }
    }

    fn deliver(&mut self, delivery: Delivery<Packet>) {
        match delivery {
            Delivery::Message { from, to, message } if to.0 < FIRST_CLIENT => {
                let event = match message {
                    Packet::Peer {
                        group,
                        message,
                        payloads,
                    } => Event::Message {
                        group,
                        message,
                        payloads,
                    },
                    Packet::Request(request) => {
                        let client = u64::from(from.0);
                        if self.trace.is_some() {
                            let (id, what) = (request.id, kind(&request.what));
                            let seq = request.origin.seq;
                            let span = request.what.span();
                            self.say(format_args!(
                                "{to} is asked by {client} #{id}: {what} {seq} of group {}, chunk {} {}+{}",
                                request.group, span.chunk, span.offset, span.len
                            ));
                        }
                        Event::Request { client, request }
                    }
                    Packet::Response(_) => return,
                };
                self.step(to.0 as usize, event);
            }
            Delivery::Message { to, message, .. } if to == WATCHER => {
                if let Packet::Response(response) = message {
                    self.watched(response);
                }
            }
            Delivery::Message { from, to, message } => {
                if let Packet::Response(response) = message
                    && let Some(client) = self.clients.get_mut(&to.0)
                {
                    client.response(u64::from(from.0) + 1, response);
                    self.drive(to.0);
                }
            }
            Delivery::Broken { at, peer } => {
                if let Some(client) = self.clients.get_mut(&at.0) {
                    client.disconnected(u64::from(peer.0) + 1);
                    self.drive(at.0);
                }
            }
        }
    }
}

/// A response, without its bytes.
fn short(response: &Response) -> String {
    use block::wire::client::Outcome;
    match &response.outcome {
        Outcome::Refused(reason) => format!("{}: {reason:?}", response.id),
        Outcome::Data { .. } => format!("{}: data", response.id),
        other => format!("{}: {other:?}", response.id),
    }
}

fn kind(what: &What) -> &'static str {
    match what {
        What::Attach => "attach",
        What::Read(_) => "read",
        What::Write { .. } => "write",
        What::Zero(_) => "zero",
        What::Trim(_) => "trim",
        What::Status(_) => "status",
    }
}
