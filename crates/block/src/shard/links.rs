//! A store's sockets: one connection to each other store, and those of clients.
//!
//! ```text
//!   accept, dial ──> hello ──> a peer: messages of replicas      a client: requests, answers
//! ```
//!
//! Of two stores, the one with the lower number dials, again and again with growing pauses. A connection is
//! refused and closed if the other side belongs to another cluster, is not the expected store, or sends invalid
//! frames; the reason is sent to it and printed.
//!
//! Messages to a peer are gathered during a turn and sent at its end, in one write if the socket takes it. The
//! queue of a slow peer is bounded: messages beyond the bound are dropped, and Raft sends them again; heartbeats
//! have a queue of their own. A client that does not read its responses is disconnected.

use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use base::clock::Clock;
use base::rng::Rng;
use base::{Error, Result};
use rustix::event::epoll::{self, EventData, EventFlags};

use super::connection::{Connection, Open, Who};
use super::core::Event;
use super::stats::Stats;
use crate::group::raft::Outgoing;
use crate::ids::{Group, Uuid};
use crate::memory::buffers::Buffers;
use crate::wire::client::{Request, Response};
use crate::wire::frame::{Frame, Lane, kind};
use crate::wire::hello::{Hello, Role};
use crate::wire::link::{Link, failed};
use crate::wire::raft::{self, Gather};
use crate::wire::{remedy, session};

/// The poller's name for the listener; connections have lower ones.
pub(super) const LISTENER: u64 = u64::MAX;
/// The most connections.
const CONNECTIONS_MAX: usize = 1024;
/// How long the other side may take to send its hello, ns.
const HELLO_NANOS_MAX: u64 = 5_000_000_000;
/// The first and the longest pause before a peer is dialed again, ns.
const PAUSE_NANOS: u64 = 50_000_000;
const PAUSE_NANOS_MAX: u64 = 2_000_000_000;
/// The most bytes queued for a connection, by lane. A client's responses stay below, because the limits of its
/// open requests come first.
const LANE_BYTES_MAX: [usize; 4] = [1 << 20, 40 << 20, 16 << 20, 16 << 20];

/// Prints messages.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// Another store.
#[derive(Debug)]
struct Peer {
    address: SocketAddr,
    /// The connection on which it has sent its hello.
    connection: Option<u64>,
    /// Whether a connection to it is being made.
    dialing: bool,
    /// Failures since the last hello.
    failures: u32,
    /// The last printed reason why there is no connection, and how often the peer has refused one since it last
    /// sent a message.
    said: String,
    refusals: u32,
    /// The store that was last refused under this number: it tries again and again.
    refused: Option<Uuid>,
    dial_at: u64,
    /// Messages to be sent at the end of this turn, by lane.
    gathers: [Gather; 2],
    frames: Vec<Frame>,
    touched: bool,
}

/// A store's sockets.
pub(super) struct Links {
    me: Hello,
    options: session::Options,
    poller: OwnedFd,
    listener: TcpListener,
    accepts: bool,
    peers: BTreeMap<u64, Peer>,
    /// The store of each number, and those that were met for the first time.
    known: BTreeMap<u64, Uuid>,
    met: Vec<(u64, Uuid)>,
    connections: HashMap<u64, Connection>,
    next_id: u64,
    /// Connections with output, or whose watched events may have changed.
    touched: Vec<u64>,
    /// Peers with gathered messages.
    gathered: Vec<u64>,
    frames: Vec<Frame>,
    clock: Arc<dyn Clock>,
    rng: Rng,
    stats: Arc<Stats>,
    say: Say,
}

impl Links {
    /// Sockets with a listener, the addresses of peers, and the known stores by number. Errors: those of
    /// the system.
    pub(super) fn new(
        me: Hello,
        listener: TcpListener,
        peers: &BTreeMap<u64, SocketAddr>,
        known: BTreeMap<u64, Uuid>,
        clock: Arc<dyn Clock>,
        stats: Arc<Stats>,
        say: Say,
    ) -> Result<Self> {
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(poll_failed)?;
        let set = listener.set_nonblocking(true);
        set.map_err(|e| failed("set up a listening socket", e))?;
        let data = EventData::new_u64(LISTENER);
        epoll::add(&poller, &listener, data, EventFlags::IN).map_err(poll_failed)?;
        let peer = |address: &SocketAddr| Peer {
            address: *address,
            connection: None,
            dialing: false,
            failures: 0,
            said: String::new(),
            refusals: 0,
            refused: None,
            dial_at: 0,
            gathers: [Gather::new(Lane::Heartbeat), Gather::new(Lane::Foreground)],
            frames: Vec::new(),
            touched: false,
        };
        let others = peers.iter().filter(|(id, _)| **id != me.id);
        Ok(Self {
            rng: Rng::new(clock.wall_micros() ^ me.id),
            me,
            options: session::Options {
                lane_bytes_max: LANE_BYTES_MAX,
                buffers: Buffers::default(),
            },
            poller,
            listener,
            accepts: true,
            peers: others.map(|(&id, a)| (id, peer(a))).collect(),
            known,
            met: Vec::new(),
            connections: HashMap::new(),
            next_id: 1,
            touched: Vec::new(),
            gathered: Vec::new(),
            frames: Vec::new(),
            clock,
            stats,
            say,
        })
    }

    /// Stores that were met for the first time since the last call.
    pub(super) fn met(&mut self) -> Vec<(u64, Uuid)> {
        mem::take(&mut self.met)
    }

    /// The descriptor that waits for the sockets.
    pub(super) fn poller(&self) -> &OwnedFd {
        &self.poller
    }

    fn say(&self, text: &str) {
        (self.say)(text);
    }

    /// Accepts all waiting connections.
    pub(super) fn accept(&mut self, now: u64) -> Result<()> {
        loop {
            if self.connections.len() >= CONNECTIONS_MAX {
                return self.stop_accepting();
            }
            match self.listener.accept() {
                Ok((socket, _)) => match Link::accepted(socket, self.me, self.options.clone()) {
                    Ok(link) => {
                        if let Err(e) = self.admit(link, None, now) {
                            self.say(&format!("a connection was not taken: {e}"));
                        }
                    }
                    Err(e) => self.say(&format!("a connection was not taken: {e}")),
                },
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if is_about_the_client(&e) => {}
                // Descriptors or memory are short: the next tick tries again.
                Err(e) => {
                    self.say(&format!("no connection is taken for now: {e}"));
                    return self.stop_accepting();
                }
            }
        }
    }

    fn stop_accepting(&mut self) -> Result<()> {
        self.accepts = false;
        epoll::delete(&self.poller, &self.listener).map_err(poll_failed)
    }

    fn admit(&mut self, link: Link, dialed: Option<u64>, now: u64) -> Result<()> {
        let id = self.next_id;
        self.next_id += 1;
        let data = EventData::new_u64(id);
        epoll::add(&self.poller, &link, data, EventFlags::empty()).map_err(poll_failed)?;
        self.connections
            .insert(id, Connection::new(link, dialed, now));
        self.touch(id);
        Ok(())
    }

    fn touch(&mut self, id: u64) {
        if let Some(connection) = self.connections.get_mut(&id)
            && !mem::replace(&mut connection.touched, true)
        {
            self.touched.push(id);
        }
    }

    /// Dials the peers that are due, and closes connections on which no hello came in time.
    pub(super) fn tick(&mut self, now: u64) -> Result<()> {
        if !self.accepts && self.connections.len() < CONNECTIONS_MAX {
            self.accepts = true;
            let data = EventData::new_u64(LISTENER);
            epoll::add(&self.poller, &self.listener, data, EventFlags::IN).map_err(poll_failed)?;
        }
        let me = self.me.id;
        let due = |(id, p): &(&u64, &Peer)| {
            **id > me && p.connection.is_none() && !p.dialing && p.dial_at <= now
        };
        let due: Vec<u64> = self.peers.iter().filter(due).map(|(&id, _)| id).collect();
        for id in due {
            self.dial(id, now);
        }
        let silent = self.connections.iter().filter(|(_, c)| {
            c.who == Who::Unknown && now.saturating_sub(c.since) > HELLO_NANOS_MAX
        });
        let silent: Vec<u64> = silent.map(|(&id, _)| id).collect();
        for id in silent {
            self.close(
                id,
                &Error::aborted("wire: no hello came").hint(remedy::ADDRESS),
                now,
            );
        }
        let connected = self.peers.values().filter(|p| p.connection.is_some());
        self.stats.peers.set(connected.count() as u64);
        Ok(())
    }

    fn dial(&mut self, id: u64, now: u64) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        peer.dialing = true;
        let link = Link::dial(peer.address, self.me, self.options.clone());
        // A failed dial must not keep the other connections from being served.
        if let Err(e) = link.and_then(|link| self.admit(link, Some(id), now)) {
            self.dial_failed(id, &e, now);
        }
    }

    fn dial_failed(&mut self, id: u64, why: &Error, now: u64) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        peer.dialing = false;
        let pause = (PAUSE_NANOS << peer.failures.min(8)).min(PAUSE_NANOS_MAX);
        peer.dial_at = now + pause / 2 + self.rng.below(pause / 2 + 1);
        peer.failures += 1;
        let text = format!("store {id} at {} is not reached: {why}", peer.address);
        if peer.failures == 1 || peer.said != text {
            (self.say)(&text);
            peer.said = text;
        }
    }

    /// Handles a socket that has input, has room, or is broken; received events go to `inbox`.
    pub(super) fn ready(&mut self, id: u64, flags: EventFlags, now: u64, inbox: &mut Vec<Event>) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        let mut outcome = Ok(());
        if broken || flags.contains(EventFlags::OUT) {
            outcome = connection.link.writable();
        }
        let mut frames = mem::take(&mut self.frames);
        if outcome.is_ok() && (broken || flags.contains(EventFlags::IN)) {
            outcome = connection.link.read(&mut frames);
        }
        self.touch(id);
        // Frames that arrived before the end of the connection are handled.
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.unheard.extend(frames.drain(..));
        }
        self.frames = frames;
        let heard = self.greet(id).and_then(|_| self.hear_all(id, now, inbox));
        self.end_if(id, heard, outcome, now);
    }

    /// Closes the connection if something has failed; if the peer's input is refused, tells it why.
    fn end_if(&mut self, id: u64, heard: Result<()>, outcome: Result<()>, now: u64) {
        if let Err(e) = &heard
            && let Some(connection) = self.connections.get_mut(&id)
        {
            connection.link.refuse(e);
        }
        if let Err(e) = heard.and(outcome) {
            self.close(id, &e, now);
        }
    }

    /// Handles frames that were read, as long as the limits for responses allow. Errors: a frame is invalid or
    /// not allowed.
    fn hear_all(&mut self, id: u64, now: u64, inbox: &mut Vec<Event>) -> Result<()> {
        while let Some(connection) = self.connections.get_mut(&id)
            && connection.is_heard()
            && let Some(frame) = connection.unheard.pop_front()
        {
            let who = connection.who;
            self.hear(id, who, frame, now, inbox)?;
        }
        Ok(())
    }

    /// Identifies the other side once its hello has arrived. Errors: it is not to be served.
    fn greet(&mut self, id: u64) -> Result<Who> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Ok(Who::Unknown);
        };
        let Some(hello) = connection.link.peer().copied() else {
            return Ok(Who::Unknown);
        };
        if connection.who != Who::Unknown {
            return Ok(connection.who);
        }
        let they = hello.id;
        if (hello.role, connection.dialed) == (Role::Client, None) {
            connection.who = Who::Client(they);
            return Ok(connection.who);
        }
        check_place(&hello, connection.dialed, self.me.id)?;
        let Some(peer) = self.peers.get_mut(&they) else {
            let what = format!("wire: store {they} is not of this cluster");
            let remedy = "add its [[store]] to every process's cluster file, or end it";
            return Err(Error::invalid_argument(what).hint(remedy));
        };
        let store = *self.known.entry(they).or_insert_with(|| {
            self.met.push((they, hello.store));
            hello.store
        });
        if store != hello.store {
            connection.is_told = peer.refused.replace(hello.store) == Some(hello.store);
            return Err(Error::invalid_argument(format!(
                "wire: store {they} was {store}, and is {} now: made anew, it lacks what it has acknowledged. Bring \
                 the old one back; a store that is lost cannot be replaced yet",
                hello.store
            )));
        }
        connection.who = Who::Peer(they);
        let older = peer.connection.replace(id);
        (peer.failures, peer.dialing) = (0, false);
        let refuses = peer.refusals > 0;
        if let Some(older) = older {
            self.forget(older);
        }
        if !refuses {
            self.say(&format!("store {they} is connected"));
        }
        Ok(Who::Peer(they))
    }

    fn hear(
        &mut self,
        id: u64,
        who: Who,
        frame: Frame,
        now: u64,
        inbox: &mut Vec<Event>,
    ) -> Result<()> {
        match (who, frame.kind) {
            (Who::Client(_), kind::REQUEST) => {
                let request = Request::of(frame)?;
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.begin(&request, now);
                }
                inbox.push(Event::Request {
                    client: id,
                    request,
                });
                Ok(())
            }
            (Who::Peer(peer), kind::RAFT) => {
                for received in raft::decode(frame)? {
                    if (received.message.from, received.message.to) != (peer, self.me.id) {
                        return Err(Error::corruption(format!(
                            "wire: store {peer} sent a message from {} to {}",
                            received.message.from, received.message.to
                        ))
                        .hint(remedy::SAME_RELEASE));
                    }
                    self.serves(peer);
                    inbox.push(Event::Message {
                        group: received.group,
                        message: received.message,
                        payloads: received.payloads,
                    });
                }
                Ok(())
            }
            (_, kind) => Err(Error::corruption(format!(
                "wire: a message of kind {kind} has no place here"
            ))
            .hint(remedy::SAME_RELEASE)),
        }
    }

    /// A store that had refused connections has sent a message on this one.
    fn serves(&mut self, number: u64) {
        if let Some(peer) = self.peers.get_mut(&number)
            && mem::take(&mut peer.refusals) > 0
        {
            peer.said.clear();
            (self.say)(&format!("store {number} is connected"));
        }
    }

    /// Closes a connection, and prints the reason.
    fn close(&mut self, id: u64, why: &Error, now: u64) {
        let Some(connection) = self.forget(id) else {
            return;
        };
        let address = connection.link.address();
        match (connection.who, connection.dialed) {
            (Who::Peer(number), _) => {
                let text = format!("store {number} is gone: {why}");
                let Some(peer) = self.peers.get_mut(&number) else {
                    return;
                };
                // A store that refuses connections does so again and again, so the same reason is printed
                // once.
                let refuses = why.kind() == base::ErrorKind::NotSupported;
                peer.refusals = if refuses { peer.refusals + 1 } else { 0 };
                if peer.connection == Some(id) {
                    peer.connection = None;
                    let pause = PAUSE_NANOS << peer.refusals.min(8);
                    peer.dial_at = now + pause.min(PAUSE_NANOS_MAX);
                }
                if !(refuses && peer.said == text) {
                    (self.say)(&text);
                    peer.said = text;
                }
            }
            (Who::Unknown, Some(peer)) => self.dial_failed(peer, why, now),
            (Who::Client(_), _) if why.kind() == base::ErrorKind::Aborted => {}
            (Who::Client(client), _) => {
                self.say(&format!("client {client} at {address} is closed: {why}"));
            }
            (Who::Unknown, None) if connection.is_told => {}
            (Who::Unknown, None) => self.say(&format!("{address} is closed: {why}")),
        }
    }

    fn forget(&mut self, id: u64) -> Option<Connection> {
        let connection = self.connections.remove(&id)?;
        // Closing the socket removes it from the poller in any case.
        epoll::delete(&self.poller, &connection.link).unwrap_or_default();
        Some(connection)
    }

    /// Queues a message for another replica until the end of the turn. It is dropped if the peer is not
    /// connected.
    pub(super) fn send(&mut self, group: Group, outgoing: &Outgoing) {
        let Some(peer) = self.peers.get_mut(&outgoing.to) else {
            return;
        };
        if peer.connection.is_none() {
            return;
        }
        let lane = raft::lane_of(&outgoing.message.body);
        let [beats, others] = &mut peer.gathers;
        let gather = if lane == Lane::Heartbeat {
            beats
        } else {
            others
        };
        let (message, payloads) = (&outgoing.message, &outgoing.payloads);
        let ends = (self.me.id, outgoing.to);
        let added = gather.add(ends, group, message, payloads, &mut peer.frames);
        if !mem::replace(&mut peer.touched, true) {
            self.gathered.push(outgoing.to);
        }
        if let Err(e) = added {
            self.say(&format!("store {}: {e}", outgoing.to));
        }
    }

    /// Sends a response to a client. Returns the request that it answers, if the connection still exists.
    pub(super) fn reply(&mut self, client: u64, response: Response) -> Option<Open> {
        let connection = self.connections.get_mut(&client)?;
        let open = connection.end(response.id);
        let Who::Client(name) = connection.who else {
            return open;
        };
        let sent = connection.link.send(response.frame(self.me.id, name));
        let why = match sent {
            Ok(None) => {
                self.touch(client);
                return open;
            }
            Ok(Some(_)) => Error::busy("wire: it does not read its answers"),
            Err(e) => e,
        };
        self.close(client, &why, self.clock.monotonic_nanos());
        open
    }

    /// An unanswered request of a client.
    pub(super) fn open(&mut self, client: u64, id: u64) -> Option<&mut Open> {
        self.connections.get_mut(&client)?.open.get_mut(&id)
    }

    /// Ends a turn: sends what is queued, and handles frames for which there is room again.
    pub(super) fn flush(&mut self, now: u64, inbox: &mut Vec<Event>) -> Result<()> {
        for to in mem::take(&mut self.gathered) {
            self.flush_peer(to);
        }
        let mut touched = mem::take(&mut self.touched);
        for id in touched.drain(..) {
            let Some(connection) = self.connections.get_mut(&id) else {
                continue;
            };
            connection.touched = false;
            if let Err(e) = connection.link.write() {
                self.close(id, &e, now);
                continue;
            }
            if !connection.unheard.is_empty() {
                let heard = self.hear_all(id, now, inbox);
                self.end_if(id, heard, Ok(()), now);
            }
            let Some(connection) = self.connections.get_mut(&id) else {
                continue;
            };
            let wants = connection.wants_input();
            if let Some(flags) = connection.link.watch(wants) {
                let data = EventData::new_u64(id);
                epoll::modify(&self.poller, &connection.link, data, flags).map_err(poll_failed)?;
            }
        }
        self.touched = touched;
        Ok(())
    }

    fn flush_peer(&mut self, to: u64) {
        let Some(peer) = self.peers.get_mut(&to) else {
            return;
        };
        peer.touched = false;
        let mut frames = mem::take(&mut peer.frames);
        for gather in &mut peer.gathers {
            frames.extend(gather.frame(self.me.id, to));
        }
        let Some(id) = peer.connection else {
            return;
        };
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        for frame in frames.drain(..) {
            match connection.link.send(frame) {
                Ok(None) => {}
                Ok(Some(_)) => self.stats.dropped_messages.add(1),
                Err(e) => (self.say)(&format!("store {to}: {e}")),
            }
        }
        peer.frames = frames;
        self.touch(id);
    }
}

/// Errors: a store with this hello should not be on this connection. `dialed`: the store that was dialed.
fn check_place(hello: &Hello, dialed: Option<u64>, me: u64) -> Result<()> {
    let they = hello.id;
    let (what, remedy) = match (hello.role, dialed) {
        (Role::Chunk, Some(want)) if they != want => (
            format!("store {they} is where store {want} should be"),
            remedy::CLUSTER_FILE,
        ),
        (Role::Chunk, None) if they >= me => (
            format!("store {they} dialed store {me}: the lower number dials"),
            remedy::CLUSTER_FILE,
        ),
        (Role::Chunk, _) if hello.store == Uuid::default() => (
            format!("store {they} does not say which it is"),
            remedy::SAME_RELEASE,
        ),
        (Role::Chunk, _) => return Ok(()),
        (role, _) => (
            format!("a {role:?} has nothing to say to a store here"),
            remedy::SAME_RELEASE,
        ),
    };
    Err(Error::invalid_argument(format!("wire: {what}")).hint(remedy))
}

/// Whether a failed accept concerns one client only, so that the next one may succeed.
fn is_about_the_client(e: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, NotConnected};
    matches!(
        e.kind(),
        ConnectionAborted | ConnectionReset | Interrupted | NotConnected
    )
}

pub(super) fn poll_failed(e: rustix::io::Errno) -> Error {
    failed("poll sockets", e.into())
}
