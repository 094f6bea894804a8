//! A store's thread: it waits for sockets, the disk and the clock, and executes the core's commands.
//!
//! ```text
//!   turn:  wait ── sockets: requests, messages ─┐
//!               ── the queue: batches, reads ───┼── Core: all of it in one step ── commands
//!               ── the flusher, a tick ─────────┘                                    │
//!          answers, messages ── one writev for each socket <────────────────────────┤
//!          one write of the log, reads ── one submit <──────────────────────────────┘
//! ```
//!
//! All events that are there are collected before the core handles them. So one write of the log holds the
//! changes of many clients, and while it is on its way the next ones gather. No step of a write goes through
//! another thread.
//!
//! A store that is stopped hands over the leadership of its groups first: their clients continue within
//! milliseconds, instead of after an election.

use std::collections::{BTreeMap, HashMap};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;
use base::rng::Rng;
use base::threads::Threads;
use base::{Error, Result};
use io::AlignedBuf;
use io::buffer::PAGE;
use io::queue::{Act, Done, Queue, QueueKind, Request};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::core::{Assignment, Command, Core, Event};
use super::flusher::Flusher;
use super::layout::{self, Opened};
use super::links::{LISTENER, Links, Say, poll_failed};
use super::member::TICK;
use super::stats::Stats;
use super::time::{ReadMode, Time};
use crate::ids::{Group, Uuid};
use crate::raftlog::Append;
use crate::store::data::Reader;
use crate::store::flush::Policy;
use crate::wake::Wake;
use crate::wire::client::{Outcome, Response};
use crate::wire::hello::{Hello, Role};

/// The poller's names for what is not a socket.
const QUEUE: u64 = u64::MAX - 1;
const FLUSHER: u64 = u64::MAX - 2;
const STOP: u64 = u64::MAX - 3;
/// The most events of one `epoll_wait`.
const EVENTS_MAX: usize = 256;
/// The most reads and writes on their way.
const QUEUE_DEPTH: u32 = 512;
/// The most writes for which the time until they are logged is measured.
const UNLOGGED_MAX: usize = 8192;
/// How long a stopping store waits for others to take over its groups, nanoseconds.
const LEAVE_NANOS: u64 = 500_000_000;
/// The longest time between two readings of the clocks for a valid comparison, unless the thread was preempted;
/// and the most tries.
const LOOK_NANOS: u64 = 1_000_000;
const LOOKS_MAX: u32 = 3;
/// Ticks between updates of slowly changing values.
const SLOW_TICKS: u64 = 10;

/// The configuration of a store's thread.
pub struct Options {
    /// The cluster's id.
    pub cluster: Uuid,
    /// The store's number: the peers dial it by this number, and its replicas have it as their id.
    pub id: u64,
    /// Accepts connections of the other stores and of clients.
    pub listener: TcpListener,
    /// The addresses of all stores.
    pub peers: BTreeMap<u64, SocketAddr>,
    /// The groups that it has replicas of.
    pub groups: Vec<Assignment>,
    /// Decides when to write back.
    pub policy: Policy,
    /// How leaders make sure that they still lead when they serve reads.
    pub read_mode: ReadMode,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Starts threads.
    pub threads: Arc<dyn Threads>,
    /// Prints messages.
    pub say: Say,
}

/// A job of the queue.
enum Job {
    /// A batch of the log, and the clients' writes in it.
    Log(Append, Vec<(u64, u64)>),
    /// A read, with the core's token.
    Read(u64),
    /// An in-place write, with the core's token.
    InPlace(u64),
}

/// A store's thread.
pub struct Server {
    core: Core,
    links: Links,
    queue: Queue,
    flusher: Flusher,
    reader: Reader,
    groups: Vec<Group>,
    stop: Wake,
    /// When it ends at the latest, once it is being stopped.
    leaves_by: Option<u64>,
    clock: Arc<dyn Clock>,
    time: Time,
    say: Say,
    stats: Arc<Stats>,
    inbox: Vec<Event>,
    /// Whether something waits to be submitted to the queue.
    has_pushed: bool,
    done: Vec<Done>,
    /// The jobs on their way in the queue, by their own numbers.
    jobs: HashMap<u64, Job>,
    next_job: u64,
    /// Number of log batches among them.
    batches: usize,
    /// Changes of clients that are not in a batch yet.
    unlogged: Vec<(u64, u64)>,
    next_tick: u64,
    ticks: u64,
}

impl Server {
    /// The thread of an open store; it does nothing until it is run. Errors: those of the store; the system is
    /// out of descriptors or threads.
    pub fn new(opened: Opened, options: Options) -> Result<Self> {
        let Opened { store, log, data } = opened;
        let clock = options.clock;
        let stats = Arc::new(Stats::default());
        let reader = data.reader();
        let (me, known) = (store.uuid(), store.peers().clone());
        stats.slots.set(u64::from(reader.slots()));
        stats.free_slots.set(reader.free_slots() as u64);
        let mut rng = Rng::new(clock.wall_micros() ^ options.id.rotate_left(32));
        let core = Core::open(
            store,
            log,
            data.reader(),
            options.policy,
            &options.groups,
            &mut rng,
        )?
        .with_read_mode(options.read_mode);
        let threads = &*options.threads;
        let written = Arc::clone(&stats.flusher_bytes);
        let flusher = Flusher::start(data, Arc::clone(&clock), threads, written)?;
        let queue = Queue::new(QueueKind::Auto, QUEUE_DEPTH, threads)?;
        let me = Hello::new(options.cluster, Role::Chunk, options.id).of_store(me);
        let links = Links::new(
            me,
            options.listener,
            &options.peers,
            known,
            Arc::clone(&clock),
            Arc::clone(&stats),
            Arc::clone(&options.say),
        )?;
        let stop = Wake::new()?;
        let watch = |fd: &dyn AsFd, name| {
            let data = EventData::new_u64(name);
            epoll::add(links.poller(), fd.as_fd(), data, EventFlags::IN).map_err(poll_failed)
        };
        let event = queue.event();
        let event = event.ok_or_else(|| Error::broken("the queue has no event"))?;
        watch(&event, QUEUE)?;
        watch(&flusher.event(), FLUSHER)?;
        watch(&stop, STOP)?;
        Ok(Self {
            core,
            links,
            queue,
            flusher,
            reader,
            groups: options.groups.iter().map(|a| a.group).collect(),
            stop,
            leaves_by: None,
            clock,
            time: Time::default(),
            say: options.say,
            stats,
            inbox: Vec::new(),
            has_pushed: false,
            done: Vec::new(),
            jobs: HashMap::new(),
            next_job: 0,
            batches: 0,
            unlogged: Vec::new(),
            next_tick: 0,
            ticks: 0,
        })
    }

    /// Stops the thread.
    pub fn stop_handle(&self) -> Wake {
        self.stop.clone()
    }

    /// The store's counters.
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.stats)
    }

    /// Runs until it is stopped, and then until others have taken over its groups or half a second has passed;
    /// jobs on their way to the disk are completed then. Errors: the store has failed.
    pub fn run(self) -> Result<()> {
        self.serve().map_err(layout::with_remedy)
    }

    fn serve(mut self) -> Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            let wait = self.wait_time();
            let poller = self.links.poller();
            match epoll::wait(poller, spare_capacity(&mut events), Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(poll_failed(e)),
            }
            let now = self.clock.monotonic_nanos();
            let mut disk = false;
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => self.links.accept(now)?,
                    QUEUE => disk = true,
                    FLUSHER => self.flusher_answers(),
                    STOP => self.leave(),
                    id => self.links.ready(id, event.flags, now, &mut self.inbox),
                }
            }
            if disk {
                self.collect(now)?;
            }
            self.tick(now)?;
            // Before any message of these stores is handled.
            for (number, peer) in self.links.met() {
                self.core.note_peer(number, peer)?;
            }
            self.step(now)?;
            // Followers first, because their part takes longer than our own write.
            self.links.flush(now, &mut self.inbox)?;
            if std::mem::take(&mut self.has_pushed) {
                self.queue.submit()?;
            }
            // A follower that takes over waits for this store's vote, which is sent when it is durable in
            // the log.
            let is_done = !self.core.gives_away() && self.batches == 0 && self.inbox.is_empty();
            let now = self.now();
            let is_over = |by| is_done || now >= by;
            if self.leaves_by.is_some_and(is_over) {
                return Ok(());
            }
        }
    }

    fn leave(&mut self) {
        self.stop.clear();
        if self.leaves_by.is_none() {
            self.leaves_by = Some(self.now() + LEAVE_NANOS);
            self.inbox.push(Event::Leave);
        }
    }

    /// The time for leases and elections, in nanoseconds. A faulty clock is reported.
    fn now(&mut self) -> u64 {
        let (boot, around) = self.look();
        let (now, lost) = self.time.at(boot, around);
        if let Some(lost) = lost {
            if self.stats.wrong_clocks.get() == 0 {
                (self.say)(&format!(
                    "this machine's clock (CLOCK_BOOTTIME) went back or stood still, by {:.3} s: leases were given up, and \
                     elections are later; mend the clock source, or say read_mode = \"read_index\" in the cluster file",
                    lost as f64 / 1e9
                ));
            }
            self.stats.wrong_clocks.add(1);
            // Before any read that would be served under a lease.
            self.inbox.insert(0, Event::WrongClock);
        }
        now
    }

    /// The clock, and the other clock before and after it. A slow reading has little value, so there is another
    /// try.
    fn look(&self) -> (u64, [u64; 2]) {
        let mut looks = 0;
        loop {
            let before = self.clock.monotonic_nanos();
            let boot = self.clock.boot_nanos();
            let behind = self.clock.monotonic_nanos();
            looks += 1;
            if behind.saturating_sub(before) <= LOOK_NANOS || looks == LOOKS_MAX {
                return (boot, [before, behind]);
            }
        }
    }

    fn wait_time(&mut self) -> Timespec {
        let now = self.now();
        let left = if self.inbox.is_empty() {
            self.next_tick.saturating_sub(now)
        } else {
            0
        };
        Timespec {
            tv_sec: (left / 1_000_000_000) as _,
            tv_nsec: (left % 1_000_000_000) as _,
        }
    }

    fn tick(&mut self, now: u64) -> Result<()> {
        let time = self.now();
        if time < self.next_tick {
            return Ok(());
        }
        // Missed ticks are not made up for.
        self.next_tick = time + TICK.as_nanos() as u64;
        self.ticks += 1;
        self.inbox.push(Event::Tick);
        if self.ticks.is_multiple_of(SLOW_TICKS) {
            let free = self.reader.free_slots();
            self.stats.free_slots.set(free as u64);
        }
        self.stats.look_at(&self.core, &self.groups);
        self.links.tick(now)
    }

    /// Handles the completions of the disk.
    fn collect(&mut self, now: u64) -> Result<()> {
        self.queue.clear_event()?;
        self.queue.wait(0, &mut self.done)?;
        for done in self.done.drain(..) {
            match self.jobs.remove(&done.token) {
                Some(Job::Log(append, writes)) => {
                    self.batches -= 1;
                    for (client, id) in writes {
                        if let Some(open) = self.links.open(client, id) {
                            open.landed = now;
                        }
                    }
                    let outcome = done.result.map(drop);
                    self.inbox.push(Event::Landed(append, outcome));
                }
                Some(Job::InPlace(token)) => {
                    let result = done.result.map(drop);
                    self.inbox.push(Event::InPlace(token, result));
                }
                Some(Job::Read(token)) => {
                    let result = read_of(done.result, done.buf);
                    self.inbox.push(Event::Read(token, result));
                }
                None => base::invariant!(false, "nobody asked for this"),
            }
        }
        self.flusher.foreground(self.batches);
        Ok(())
    }

    fn flusher_answers(&mut self) {
        let from = self.inbox.len();
        self.flusher.answers(&mut self.inbox);
        for event in self.inbox.iter().skip(from) {
            if !matches!(event, Event::WrittenBack(_)) {
                self.stats.flusher_failures.add(1);
            }
            if let Event::NotWritten(failed) = event {
                let e = &failed.error;
                (self.say)(&format!(
                    "blocks are not written back, and tried again: {e}"
                ));
            }
        }
    }

    /// Passes all events to the core, and executes its commands.
    fn step(&mut self, now: u64) -> Result<()> {
        if self.inbox.is_empty() {
            return Ok(());
        }
        for event in &self.inbox {
            if let Event::Request { client, request } = event
                && request.what.is_change()
            {
                self.unlogged.push((*client, request.id));
            }
        }
        // Bounds the list while nothing is logged, because such changes are answered in other ways.
        let over = self.unlogged.len().saturating_sub(UNLOGGED_MAX);
        self.unlogged.drain(..over);
        let time = Duration::from_nanos(self.now());
        self.core.step_all(time, self.inbox.drain(..));
        while let Some(command) = self.core.next_command() {
            self.execute(command, now)?;
        }
        self.core.failure().map_or(Ok(()), |e| Err(e.clone()))
    }

    fn execute(&mut self, command: Command, now: u64) -> Result<()> {
        match command {
            Command::Log(append) => self.log(append, now),
            Command::Send { group, outgoing } => {
                self.links.send(group, &outgoing);
                Ok(())
            }
            Command::Reply { client, response } => {
                self.reply(client, response, now);
                Ok(())
            }
            Command::Read { token, offset, len } => match AlignedBuf::zeroed(len, PAGE) {
                Ok(buf) => {
                    let job = self.job(Job::Read(token));
                    self.queue.push(Request {
                        token: job,
                        file: Arc::clone(self.reader.file()),
                        offset,
                        act: Act::Read(buf),
                    })
                }
                // If memory is short, only this read fails.
                Err(e) => {
                    self.inbox.push(Event::Read(token, Err(e)));
                    Ok(())
                }
            },
            Command::InPlace { token, place } => {
                let job = self.job(Job::InPlace(token));
                self.queue.push(place.request(job))
            }
            Command::WriteBack(marked, speed) => {
                self.flusher.begin(marked, speed);
                Ok(())
            }
        }
    }

    /// Registers a job; returns its number.
    fn job(&mut self, job: Job) -> u64 {
        self.has_pushed = true;
        self.next_job += 1;
        self.jobs.insert(self.next_job, job);
        self.next_job
    }

    fn log(&mut self, mut append: Append, now: u64) -> Result<()> {
        self.next_job += 1;
        let token = self.next_job;
        self.stats.log_batches.add(1);
        self.stats.log_bytes.add(append.bytes());
        let Some(request) = append.request(token) else {
            let outcome = append.run();
            self.inbox.push(Event::Landed(append, outcome));
            return Ok(());
        };
        for &(client, id) in &self.unlogged {
            if let Some(open) = self.links.open(client, id) {
                open.logged = now;
            }
        }
        let writes = std::mem::take(&mut self.unlogged);
        self.jobs.insert(token, Job::Log(append, writes));
        self.batches += 1;
        self.flusher.foreground(self.batches);
        self.has_pushed = true;
        self.queue.push(request)
    }

    fn reply(&mut self, client: u64, response: Response, now: u64) {
        let is_refused = matches!(response.outcome, Outcome::Refused(_));
        let Some(open) = self.links.reply(client, response) else {
            return;
        };
        let stats = &self.stats;
        if is_refused {
            stats.refusals.add(1);
            return;
        }
        let end = self.clock.monotonic_nanos();
        let took = end.saturating_sub(open.since);
        if open.is_read {
            stats.reads.add(1);
            stats.read_bytes.add(u64::from(open.bytes));
            stats.read_time.note(took);
        } else if open.is_write {
            stats.writes.add(1);
            stats.written_bytes.add(u64::from(open.bytes));
            stats.write_time.note(took);
            if open.landed > 0 {
                stats
                    .queue_time
                    .note(open.logged.saturating_sub(open.since));
                stats.log_time.note(open.landed.saturating_sub(open.logged));
                stats.peers_time.note(now.saturating_sub(open.landed));
                stats.apply_time.note(end.saturating_sub(now));
            }
        } else {
            stats.others.add(1);
        }
    }
}

/// The bytes of a completed read. Errors: fewer than requested.
fn read_of(result: Result<usize>, buf: Option<AlignedBuf>) -> Result<AlignedBuf> {
    let n = result?;
    let buf = buf.ok_or_else(|| Error::broken("a read without its memory"))?;
    if n < buf.len() {
        return Err(Error::corruption(format!(
            "the data file gave {n} of {} bytes",
            buf.len()
        )));
    }
    Ok(buf)
}
