//! The connections of a client to all stores. Each is dialed, and dialed again when it is lost.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use base::rng::Rng;
use base::{Error, Result};
use rustix::event::epoll::{self, EventData, EventFlags};

use crate::memory::buffers::Buffers;
use crate::shard::Say;
use crate::wire::client::Response;
use crate::wire::frame::Frame;
use crate::wire::hello::{Hello, Role};
use crate::wire::link::{Link, failed};
use crate::wire::{remedy, session};

/// How long a store may take to send its hello, ns.
const HELLO_NANOS_MAX: u64 = 5_000_000_000;
/// The first and the longest pause before a store is dialed again, ns.
const PAUSE_NANOS: u64 = 50_000_000;
const PAUSE_NANOS_MAX: u64 = 1_000_000_000;

/// One store.
#[derive(Debug)]
struct Store {
    id: u64,
    address: SocketAddr,
    link: Option<Link>,
    /// Counts the connections, so that events of an older one are ignored.
    generation: u32,
    since: u64,
    dial_at: u64,
    failures: u32,
    is_greeted: bool,
    touched: bool,
}

/// An event of a store's connection.
#[derive(Debug)]
pub(super) enum News {
    /// A store's response.
    Answer(u64, Response),
    /// The connection to a store was lost.
    Gone(u64),
}

/// The connections to all stores.
pub(super) struct Stores {
    me: Hello,
    options: session::Options,
    poller: OwnedFd,
    all: Vec<Store>,
    by_id: BTreeMap<u64, usize>,
    rng: Rng,
    frames: Vec<Frame>,
    say: Say,
}

impl Stores {
    pub(super) fn new(
        me: Hello,
        addresses: &BTreeMap<u64, SocketAddr>,
        seed: u64,
        say: Say,
    ) -> Result<Self> {
        let store = |(&id, &address): (&u64, &SocketAddr)| Store {
            id,
            address,
            link: None,
            generation: 0,
            since: 0,
            dial_at: 0,
            failures: 0,
            is_greeted: false,
            touched: false,
        };
        Ok(Self {
            me,
            // The volumes bound how many requests are open, so responses need no limit of their own.
            options: session::Options {
                lane_bytes_max: [1 << 20, usize::MAX, 0, 0],
                buffers: Buffers::default(),
            },
            poller: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(poll_failed)?,
            all: addresses.iter().map(store).collect(),
            by_id: addresses.keys().copied().zip(0..).collect(),
            rng: Rng::new(seed),
            frames: Vec::new(),
            say,
        })
    }

    /// The descriptor that waits for the sockets.
    pub(super) fn poller(&self) -> &OwnedFd {
        &self.poller
    }

    /// Number of stores that have sent their hello.
    pub(super) fn greeted(&self) -> usize {
        self.all.iter().filter(|s| s.is_greeted).count()
    }

    /// When [`Stores::tick`] is due next.
    pub(super) fn next_due(&self) -> Option<u64> {
        let due = self.all.iter().filter_map(|s| match s.link {
            None => Some(s.dial_at),
            Some(_) if !s.is_greeted => Some(s.since + HELLO_NANOS_MAX),
            Some(_) => None,
        });
        due.min()
    }

    /// Dials the stores that are due, and closes connections on which no hello came in time.
    pub(super) fn tick(&mut self, now: u64, news: &mut Vec<News>) -> Result<()> {
        for nth in 0..self.all.len() {
            let Some(store) = self.all.get(nth) else {
                return Ok(());
            };
            match store.link {
                None if store.dial_at <= now => self.dial(nth, now)?,
                Some(_) if !store.is_greeted && now >= store.since + HELLO_NANOS_MAX => {
                    let why = Error::aborted("wire: no hello came").hint(remedy::ADDRESS);
                    self.lose(nth, &why, now, news);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn dial(&mut self, nth: usize, now: u64) -> Result<()> {
        let Some(store) = self.all.get_mut(nth) else {
            return Ok(());
        };
        match Link::dial(store.address, self.me, self.options.clone()) {
            Ok(link) => {
                store.generation = store.generation.wrapping_add(1);
                let name = (nth as u64) << 32 | u64::from(store.generation);
                let data = EventData::new_u64(name);
                epoll::add(&self.poller, &link, data, EventFlags::empty()).map_err(poll_failed)?;
                store.link = Some(link);
                store.since = now;
                store.is_greeted = false;
                store.touched = true;
                Ok(())
            }
            Err(e) => {
                self.lose(nth, &e, now, &mut Vec::new());
                Ok(())
            }
        }
    }

    /// Closes a connection that has failed.
    fn lose(&mut self, nth: usize, why: &Error, now: u64, news: &mut Vec<News>) {
        let Some(store) = self.all.get_mut(nth) else {
            return;
        };
        if let Some(link) = store.link.take() {
            epoll::delete(&self.poller, &link).unwrap_or_default();
            news.push(News::Gone(store.id));
        }
        if store.is_greeted || store.failures == 0 {
            let text = format!("store {} at {} is gone: {why}", store.id, store.address);
            (self.say)(&text);
        }
        let failures = if store.is_greeted { 0 } else { store.failures };
        let pause = (PAUSE_NANOS << failures.min(8)).min(PAUSE_NANOS_MAX);
        store.failures = failures + 1;
        store.is_greeted = false;
        store.dial_at = now + pause / 2 + self.rng.below(pause / 2 + 1);
    }

    /// Handles an event of a socket.
    pub(super) fn ready(&mut self, name: u64, flags: EventFlags, now: u64, news: &mut Vec<News>) {
        let nth = (name >> 32) as usize;
        let Some(store) = self.all.get_mut(nth) else {
            return;
        };
        let Some(link) = store
            .link
            .as_mut()
            .filter(|_| store.generation == name as u32)
        else {
            return;
        };
        store.touched = true;
        let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        let mut outcome = Ok(());
        if broken || flags.contains(EventFlags::OUT) {
            outcome = link.writable();
        }
        if outcome.is_ok() && (broken || flags.contains(EventFlags::IN)) {
            outcome = link.read(&mut self.frames);
        }
        let id = store.id;
        let greeted = match link.peer() {
            Some(hello) if (hello.role, hello.id) != (Role::Chunk, id) => {
                Err(Error::invalid_argument(format!(
                    "wire: {:?} {} is where store {id} should be",
                    hello.role, hello.id
                ))
                .hint("check the addresses in the cluster file, and --store of that process"))
            }
            Some(_) => {
                if !store.is_greeted {
                    store.is_greeted = true;
                    store.failures = 0;
                    (self.say)(&format!("store {id} is connected"));
                }
                Ok(())
            }
            None => Ok(()),
        };
        let heard = greeted.and_then(|()| {
            self.frames.drain(..).try_for_each(|frame| {
                news.push(News::Answer(id, Response::of(frame)?));
                Ok(())
            })
        });
        self.frames.clear();
        if let Err(e) = heard.and(outcome) {
            self.lose(nth, &e, now, news);
        }
    }

    /// Queues a request. False: the store is not connected.
    pub(super) fn send(&mut self, id: u64, frame: Frame) -> Result<bool> {
        let nth = self.by_id.get(&id).copied();
        let Some(store) = nth.and_then(|nth| self.all.get_mut(nth)) else {
            return Ok(false);
        };
        let Some(link) = &mut store.link else {
            return Ok(false);
        };
        store.touched = true;
        Ok(link.send(frame)?.is_none())
    }

    /// Writes what is queued, and sets the events that each socket waits for.
    pub(super) fn flush(&mut self, now: u64, news: &mut Vec<News>) -> Result<()> {
        for nth in 0..self.all.len() {
            let Some(store) = self.all.get_mut(nth).filter(|s| s.touched) else {
                continue;
            };
            store.touched = false;
            let Some(link) = &mut store.link else {
                continue;
            };
            if let Err(e) = link.write() {
                self.lose(nth, &e, now, news);
                continue;
            }
            if let Some(flags) = link.watch(true) {
                let name = (nth as u64) << 32 | u64::from(store.generation);
                let data = EventData::new_u64(name);
                epoll::modify(&self.poller, &*link, data, flags).map_err(poll_failed)?;
            }
        }
        Ok(())
    }
}

pub(super) fn poll_failed(e: rustix::io::Errno) -> Error {
    failed("poll sockets", e.into())
}
