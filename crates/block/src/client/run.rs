//! The client of a cluster's volumes, with sockets: the exports of an NBD server.
//!
//! ```text
//!   nbd::Server ── Exports ── Remote ──┬─ Volume for each attachment: splits, numbers, sends again
//!                                      ├─ Stores: one connection to each store
//!                                      └─ a timer
//! ```
//!
//! It has no thread of its own: everything that it waits for is behind one descriptor, and the server's thread
//! calls it.
//!
//! **Epochs.** An attachment has a higher epoch than all attachments before it. A client that does not know the
//! last epoch begins with 1; the groups reply with the epoch that they have, and the client tries the next one.
//! All connections of one server to a volume share an attachment. Once it is fenced, the next connection
//! attaches the volume anew.
//!
//! The upper bits of a request id name the attachment, so that one connection per store serves all volumes.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use base::clock::Clock;
use base::rng::Rng;
use base::{Error, Result};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::map::Map;
use super::stats::Stats;
use super::stores::{News, Stores, poll_failed};
use super::volume::{self, Volume};
use crate::ids::{Attachment, Epoch, Group, Uuid};
use crate::nbd::codec::Errno;
use crate::nbd::command::{ExportId, ExportInfo, Op, Reply};
use crate::nbd::exports::{Completion, Exports, Token};
use crate::shard::Say;
use crate::wire::hello::{Hello, Role};

/// The poller's name for the timer; other names are stores.
const TIMER: u64 = u64::MAX;
/// The most events of one `epoll_wait`.
const EVENTS_MAX: usize = 64;
/// Bits of a request id that the volume uses; those above name the attachment.
const JOB_BITS: u32 = 40;
/// How long attaching a volume may take, ns.
const ATTACH_NANOS_MAX: u64 = 30_000_000_000;
/// How many epochs are tried for one attachment.
const EPOCHS_MAX: u32 = 64;

/// A volume of the cluster.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The name by which clients ask for it.
    pub name: String,
    /// Description for people.
    pub description: String,
    /// Where its bytes are.
    pub map: Map,
}

/// The configuration of a client.
pub struct Options {
    /// The cluster's id.
    pub cluster: Uuid,
    /// The addresses of its stores.
    pub stores: BTreeMap<u64, SocketAddr>,
    /// The stores that have replicas of each group.
    pub replicas: BTreeMap<Group, Vec<u64>>,
    /// Its volumes.
    pub volumes: Vec<Spec>,
    /// Timeouts and pauses of requests.
    pub volume: volume::Options,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The seed of the random numbers; no other client has the same.
    pub seed: u64,
    /// Prints messages.
    pub say: Say,
}

/// A volume that is attached or being attached.
struct Attached {
    spec: usize,
    volume: Volume,
    epoch: Epoch,
    /// Number of connections that use it.
    users: u32,
    /// The callers that wait until it is attached.
    waiting: Vec<Token>,
    is_up: bool,
    since: u64,
    tries: u32,
}

/// An operation that is not completed.
struct Begun {
    since: u64,
    bytes: u64,
    is_read: bool,
    is_write: bool,
}

/// The client of a cluster's volumes.
pub struct Remote {
    specs: Vec<Spec>,
    replicas: BTreeMap<Group, Vec<u64>>,
    options: volume::Options,
    stores: Stores,
    name: u64,
    clock: Arc<dyn Clock>,
    rng: Rng,
    timer: OwnedFd,
    /// When the timer fires; `u64::MAX`: it is not set.
    armed: u64,
    attached: BTreeMap<u64, Attached>,
    next_slot: u64,
    /// The newest known epoch of each volume.
    epochs: Vec<Epoch>,
    begun: HashMap<Token, Begun>,
    ready: Vec<(Token, Completion)>,
    news: Vec<News>,
    done: Vec<(Token, Result<Reply, Errno>)>,
    /// Whether the next call polls the sockets: the server calls until nothing is left, and waits then.
    is_fresh: bool,
    /// Whether an operation was submitted since the last call.
    has_begun: bool,
    stats: Arc<Stats>,
    say: Say,
}

impl Remote {
    /// A client that dials all stores with its first call. Errors: the system is out of descriptors.
    pub fn new(options: Options) -> Result<Self> {
        let mut rng = Rng::new(options.seed);
        let name = rng.next_u64();
        let me = Hello::new(options.cluster, Role::Client, name);
        let say = Arc::clone(&options.say);
        let stores = Stores::new(me, &options.stores, rng.next_u64(), Arc::clone(&say))?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(poll_failed)?;
        let data = EventData::new_u64(TIMER);
        epoll::add(stores.poller(), &timer, data, EventFlags::IN).map_err(poll_failed)?;
        let mut remote = Self {
            epochs: vec![Epoch(0); options.volumes.len()],
            specs: options.volumes,
            replicas: options.replicas,
            options: options.volume,
            stores,
            name,
            clock: options.clock,
            rng,
            timer,
            armed: u64::MAX,
            attached: BTreeMap::new(),
            next_slot: 1,
            begun: HashMap::new(),
            ready: Vec::new(),
            news: Vec::new(),
            done: Vec::new(),
            is_fresh: true,
            has_begun: false,
            stats: Arc::new(Stats::default()),
            say,
        };
        let now = remote.clock.monotonic_nanos();
        remote.turn(now)?;
        Ok(remote)
    }

    /// The client's counters.
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.stats)
    }

    fn info(&self, spec: usize, slot: u64) -> Result<ExportInfo> {
        let spec = self
            .specs
            .get(spec)
            .ok_or_else(|| Error::broken("an attachment of no volume"))?;
        Ok(ExportInfo {
            id: ExportId(slot),
            name: spec.name.clone(),
            description: spec.description.clone(),
            size: spec.map.size(),
            read_only: false,
            fast_zero: true,
        })
    }

    fn find(&self, name: &str) -> Result<usize> {
        let found = self.specs.iter().position(|s| s.name == name);
        found.ok_or_else(|| {
            Error::not_found(format!("there is no volume {name:?}"))
                .hint("choose one of the list, or add a [[volume]] to the cluster file")
        })
    }

    /// Begins to attach a volume; the slot is a new number for the attachment.
    fn begin(&mut self, spec: usize, waiting: Vec<Token>, since: u64, tries: u32) -> Result<()> {
        let known = self.epochs.get(spec).copied().unwrap_or_default();
        let epoch = Epoch(known.0.saturating_add(1));
        let of = self
            .specs
            .get(spec)
            .ok_or_else(|| Error::broken("an attachment of no volume"))?;
        let attachment = Attachment(self.rng.next_u64());
        let now = self.clock.monotonic_nanos();
        let volume = Volume::new(
            of.map.clone(),
            &self.replicas,
            (epoch, attachment),
            self.options,
            now,
        )?;
        let slot = self.next_slot;
        self.next_slot += 1;
        let attached = Attached {
            spec,
            volume,
            epoch,
            users: 0,
            waiting,
            is_up: false,
            since,
            tries,
        };
        self.attached.insert(slot, attached);
        Ok(())
    }

    /// Polls the sockets and timers, and does everything that has become possible.
    fn turn(&mut self, now: u64) -> Result<()> {
        let mut news = std::mem::take(&mut self.news);
        if self.is_fresh {
            self.look(now, &mut news)?;
        }
        for attached in self.attached.values_mut() {
            attached.volume.tick(now);
        }
        loop {
            for item in news.drain(..) {
                self.take(item);
            }
            self.attach_or_fail(now);
            self.send()?;
            self.stores.flush(now, &mut news)?;
            if news.is_empty() {
                break;
            }
        }
        self.news = news;
        self.collect(now);
        self.arm(now)
    }

    /// Polls the sockets.
    fn look(&mut self, now: u64, news: &mut Vec<News>) -> Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let poller = self.stores.poller();
        match epoll::wait(poller, spare_capacity(&mut events), Some(&at_once)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(poll_failed(e)),
        }
        for event in events {
            match event.data.u64() {
                TIMER => {
                    let mut count = [0; 8];
                    // The read fails if the timer was set anew meanwhile.
                    rustix::io::read(&self.timer, &mut count).unwrap_or_default();
                    self.armed = u64::MAX;
                }
                name => self.stores.ready(name, event.flags, now, news),
            }
        }
        self.stores.tick(now, news)?;
        self.stats.stores.set(self.stores.greeted() as u64);
        Ok(())
    }

    fn take(&mut self, news: News) {
        match news {
            News::Gone(store) => {
                for attached in self.attached.values_mut() {
                    attached.volume.disconnected(store);
                }
            }
            News::Answer(store, mut response) => {
                let slot = response.id >> JOB_BITS;
                response.id &= (1 << JOB_BITS) - 1;
                if let Some(attached) = self.attached.get_mut(&slot) {
                    attached.volume.response(store, response);
                }
            }
        }
    }

    /// Tells the waiting callers the outcome of an attachment; tries the next epoch if a group has a newer
    /// one.
    fn attach_or_fail(&mut self, now: u64) {
        let begun = self.attached.iter().filter(|(_, a)| !a.is_up);
        let begun: Vec<u64> = begun.map(|(&slot, _)| slot).collect();
        for slot in begun {
            let Some(a) = self.attached.get_mut(&slot) else {
                continue;
            };
            if a.volume.is_attached() && !a.volume.is_fenced() {
                a.is_up = true;
                a.users = a.waiting.len() as u32;
                let (spec, waiting) = (a.spec, std::mem::take(&mut a.waiting));
                if let Some(known) = self.epochs.get_mut(spec) {
                    *known = a.epoch.max(*known);
                }
                for token in waiting {
                    let info = self.info(spec, slot);
                    self.ready.push((token, Completion::Export(info)));
                }
                continue;
            }
            let is_late = now.saturating_sub(a.since) >= ATTACH_NANOS_MAX;
            let Some(fenced) = a.volume.fenced().filter(|_| a.tries < EPOCHS_MAX) else {
                if is_late || a.volume.is_fenced() {
                    self.fail(slot);
                }
                continue;
            };
            let Some(a) = self.attached.remove(&slot) else {
                continue;
            };
            if let Some(known) = self.epochs.get_mut(a.spec) {
                *known = fenced.max(*known);
            }
            let waiting = a.waiting.clone();
            if let Err(e) = self.begin(a.spec, a.waiting, a.since, a.tries + 1) {
                self.refuse(waiting, &e);
            }
        }
        let up = self.attached.values().filter(|a| a.is_up).count();
        self.stats.attached.set(up as u64);
    }

    fn fail(&mut self, slot: u64) {
        let Some(a) = self.attached.remove(&slot) else {
            return;
        };
        let name = self.specs.get(a.spec).map_or("", |s| s.name.as_str());
        let why = if a.volume.is_fenced() {
            Error::busy(format!(
                "volume {name:?} is attached by others again and again"
            ))
        } else {
            Error::aborted(format!(
                "volume {name:?} could not be attached within 30 s: some group has no leader"
            ))
            .hint("see `ironstone-block ctl status`")
        };
        (self.say)(&why.to_string());
        self.refuse(a.waiting, &why);
    }

    fn refuse(&mut self, waiting: Vec<Token>, why: &Error) {
        for token in waiting {
            let refused = Completion::Export(Err(why.clone()));
            self.ready.push((token, refused));
        }
    }

    /// Sends the requests of all volumes. A volume is told if a store is not connected.
    fn send(&mut self) -> Result<()> {
        for (&slot, attached) in &mut self.attached {
            while let Some(send) = attached.volume.next_send() {
                let mut request = send.request;
                request.id |= slot << JOB_BITS;
                if !self
                    .stores
                    .send(send.store, request.frame(self.name, send.store))?
                {
                    attached.volume.disconnected(send.store);
                }
            }
        }
        Ok(())
    }

    /// Collects completed operations.
    fn collect(&mut self, now: u64) {
        for attached in self.attached.values_mut() {
            attached.volume.completed(&mut self.done);
        }
        for (token, result) in self.done.drain(..) {
            if let Some(begun) = self.begun.remove(&token) {
                let took = now.saturating_sub(begun.since);
                let stats = &self.stats;
                if result.is_err() {
                    stats.failures.add(1);
                } else if begun.is_read {
                    stats.reads.add(1);
                    stats.read_bytes.add(begun.bytes);
                    stats.read_time.note(took);
                } else if begun.is_write {
                    stats.writes.add(1);
                    stats.written_bytes.add(begun.bytes);
                    stats.write_time.note(took);
                } else {
                    stats.others.add(1);
                }
            }
            self.ready.push((token, Completion::Done(result)));
        }
    }

    /// Sets the timer, unless it fires early enough already.
    fn arm(&mut self, now: u64) -> Result<()> {
        let mut due = self.stores.next_due().unwrap_or(u64::MAX);
        for attached in self.attached.values() {
            due = due.min(attached.volume.next_due().unwrap_or(u64::MAX));
            if !attached.is_up {
                due = due.min(attached.since + ATTACH_NANOS_MAX);
            }
        }
        if due >= self.armed {
            return Ok(());
        }
        let left = due.saturating_sub(now).max(1);
        let spec = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: Timespec {
                tv_sec: (left / 1_000_000_000) as _,
                tv_nsec: (left % 1_000_000_000) as _,
            },
        };
        let set = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec);
        set.map_err(poll_failed)?;
        self.armed = due;
        Ok(())
    }
}

impl Exports for Remote {
    fn list(&mut self, token: Token) {
        let names = self.specs.iter().map(|s| s.name.clone()).collect();
        self.ready.push((token, Completion::Names(Ok(names))));
    }

    fn describe(&mut self, token: Token, name: &str) {
        let info = self.find(name).and_then(|spec| self.info(spec, 0));
        self.ready.push((token, Completion::Export(info)));
    }

    fn attach(&mut self, token: Token, name: &str) {
        let spec = match self.find(name) {
            Ok(spec) => spec,
            Err(e) => return self.refuse(vec![token], &e),
        };
        let living = self
            .attached
            .iter_mut()
            .find(|(_, a)| a.spec == spec && !a.volume.is_fenced());
        match living {
            Some((&slot, a)) if a.is_up => {
                a.users += 1;
                let info = self.info(spec, slot);
                self.ready.push((token, Completion::Export(info)));
            }
            Some((_, a)) => a.waiting.push(token),
            None => {
                let now = self.clock.monotonic_nanos();
                if let Err(e) = self.begin(spec, vec![token], now, 0) {
                    self.refuse(vec![token], &e);
                }
            }
        }
    }

    fn detach(&mut self, export: ExportId) {
        let Some(a) = self.attached.get_mut(&export.0) else {
            return;
        };
        a.users = a.users.saturating_sub(1);
        if a.users == 0 {
            self.attached.remove(&export.0);
        }
    }

    fn submit(&mut self, token: Token, export: ExportId, op: Op) {
        let Some(attached) = self.attached.get_mut(&export.0) else {
            let shutdown = Completion::Done(Err(Errno::Shutdown));
            return self.ready.push((token, shutdown));
        };
        let now = self.clock.monotonic_nanos();
        let (bytes, is_write) = match &op {
            Op::Write { bytes, .. } => (bytes.len() as u64, true),
            Op::Read { len, .. } => (u64::from(*len), false),
            Op::Zero { .. } | Op::Trim { .. } => (0, true),
            _ => (0, false),
        };
        let begun = Begun {
            since: now,
            bytes,
            is_read: matches!(op, Op::Read { .. }),
            is_write,
        };
        self.begun.insert(token, begun);
        self.has_begun = true;
        attached.volume.tick(now);
        attached.volume.submit(token, op);
    }

    fn completed(&mut self, out: &mut Vec<(Token, Completion)>) {
        let now = self.clock.monotonic_nanos();
        if let Err(e) = self.turn(now) {
            // Nothing was lost: the next call tries again.
            (self.say)(&e.to_string());
        }
        self.is_fresh = self.ready.is_empty() && !std::mem::take(&mut self.has_begun);
        out.append(&mut self.ready);
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.stores.poller().as_fd())
    }
}
