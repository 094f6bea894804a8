//! The server: one thread that waits for sockets and exports, and drives the connections.
//!
//! ```text
//!   loop  wait ── clients to accept · sockets to read (hand on) · exports that completed something · stop
//!         complete: replies to their sessions, then one writev for each session that has some
//! ```
//!
//! A closed connection is forgotten when all its requests are completed. Until then it counts against the
//! limit of connections. Clients beyond the limit wait to be accepted.
//!
//! A socket is watched for input only while its session wants some, and for room only after its buffer was
//! full. So requests cost no system calls but the wait, a read and a write, and many requests share them.

use std::collections::HashMap;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;
use base::sync::thread::JoinHandle;
use base::sync::{Mutex, PoisonError};
use base::threads::Threads;
use base::{Error, Result};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

use super::command::ExportId;
use super::connection::{Connection, Flow, connection_of};
use super::exports::{Completion, Exports, Token};
use super::session::{self, Session};
use super::socket::{Listener, Socket, failed};

/// The poller's names for what is not a connection.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;
const EXPORTS: u64 = u64::MAX - 2;
/// The most events of one `epoll_wait`.
const EVENTS_MAX: usize = 256;
/// How often deadlines are checked.
const TICK: Duration = Duration::from_secs(1);

/// Prints messages.
pub type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// The configuration of a server. The most memory that clients can make it occupy is the number of
/// connections times the bytes of each, plus one request of 32 MiB and the stage for each.
#[derive(Clone, Debug)]
pub struct Options {
    /// The most connections.
    pub connections_max: usize,
    /// How long a client may take for one step of the handshake.
    pub handshake_timeout: Duration,
    /// How long running operations may take to complete when the server is stopped.
    pub stop_timeout: Duration,
    /// Limits of each connection.
    pub session: session::Options,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connections_max: 256,
            handshake_timeout: Duration::from_secs(10),
            stop_timeout: Duration::from_secs(10),
            session: session::Options::default(),
        }
    }
}

/// Stops a server, from any thread.
#[derive(Clone, Debug)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// Tells the server to take no more requests, to finish those on their way, and to end.
    pub fn stop(&self) {
        // The write fails only if the counter is full, and then the server was told already.
        rustix::io::write(&*self.0, &1_u64.to_ne_bytes()).unwrap_or_default();
    }
}

/// An NBD server.
pub struct Server<E> {
    exports: E,
    listener: Option<Listener>,
    clock: Arc<dyn Clock>,
    options: Options,
    say: Say,
    poller: OwnedFd,
    stop: Stop,
    connections: HashMap<u32, Connection>,
    next_id: u32,
    /// Ids of connections to look at before the next wait.
    touched: Vec<u32>,
    /// Whether the poller watches the listener.
    accepts: bool,
    next_tick_nanos: u64,
    /// When the remaining operations are abandoned; set when the server is stopped.
    ends_at_nanos: Option<u64>,
}

impl<E: Exports> Server<E> {
    /// A server that does nothing until it is run.
    pub fn new(
        listener: Listener,
        exports: E,
        options: Options,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(poll_failed)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let stop = Stop(Arc::new(eventfd(0, flags).map_err(poll_failed)?));
        let readable = EventFlags::IN;
        epoll::add(&poller, &*stop.0, EventData::new_u64(STOP), readable).map_err(poll_failed)?;
        if let Some(event) = exports.event() {
            let data = EventData::new_u64(EXPORTS);
            epoll::add(&poller, event, data, readable).map_err(poll_failed)?;
        }
        let mut server = Self {
            exports,
            listener: Some(listener),
            clock,
            options,
            say: Arc::new(|_| ()),
            poller,
            stop,
            connections: HashMap::new(),
            next_id: 0,
            touched: Vec::new(),
            accepts: false,
            next_tick_nanos: 0,
            ends_at_nanos: None,
        };
        server.watch_listener()?;
        Ok(server)
    }

    /// The same server, which prints why it closes connections if the protocol has no reply for that.
    #[must_use]
    pub fn with_say(self, say: Say) -> Self {
        Self { say, ..self }
    }

    /// A handle that stops the server.
    pub fn stop_handle(&self) -> Stop {
        self.stop.clone()
    }

    /// The URI under which clients reach it.
    pub fn uri(&self) -> String {
        self.listener
            .as_ref()
            .map(Listener::uri)
            .unwrap_or_default()
    }

    /// Serves until it is stopped; returns the exports, all detached. Errors: waiting for sockets failed.
    pub fn run(mut self) -> Result<E> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut done = Vec::new();
        while !self.is_over() {
            let wait = self.wait_time();
            match epoll::wait(&self.poller, spare_capacity(&mut events), wait.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(poll_failed(e)),
            }
            let now = self.clock.monotonic_nanos();
            for event in events.drain(..) {
                match event.data.u64() {
                    LISTENER => self.accept(now)?,
                    STOP => self.begin_stop(now)?,
                    EXPORTS => {}
                    id => self.ready(id as u32, event.flags),
                }
            }
            self.complete(&mut done, now)?;
            self.tick(now)?;
        }
        for (_, connection) in self.connections.drain() {
            if let Some(export) = connection.export {
                self.exports.detach(export);
            }
        }
        Ok(self.exports)
    }

    fn is_over(&self) -> bool {
        self.ends_at_nanos.is_some() && self.connections.is_empty()
    }

    /// Time until the next check of deadlines; `None` if there are none.
    fn wait_time(&self) -> Option<Timespec> {
        let has_deadline = !self.accepts || !self.connections.is_empty();
        has_deadline.then(|| Timespec {
            tv_sec: TICK.as_secs() as _,
            tv_nsec: 0,
        })
    }

    /// Watches the listener if more connections are allowed.
    fn watch_listener(&mut self) -> Result<()> {
        let wanted = self.connections.len() < self.options.connections_max;
        let Some(listener) = &self.listener else {
            return Ok(());
        };
        if wanted == self.accepts {
            return Ok(());
        }
        self.accepts = wanted;
        if wanted {
            let data = EventData::new_u64(LISTENER);
            epoll::add(&self.poller, listener, data, EventFlags::IN).map_err(poll_failed)
        } else {
            epoll::delete(&self.poller, listener).map_err(poll_failed)
        }
    }

    fn accept(&mut self, now: u64) -> Result<()> {
        while self.connections.len() < self.options.connections_max {
            let Some(listener) = self.listener.as_ref().filter(|_| self.accepts) else {
                return Ok(());
            };
            match listener.accept() {
                Ok(socket) => self.admit(socket, now)?,
                Err(e) if is_about_the_client(&e) => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => break,
                // Descriptors or memory are short: the next tick tries again.
                Err(_) => {
                    self.accepts = false;
                    return epoll::delete(&self.poller, listener).map_err(poll_failed);
                }
            }
        }
        self.watch_listener()
    }

    fn admit(&mut self, socket: Socket, now: u64) -> Result<()> {
        let mut id = self.next_id;
        while self.connections.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        self.next_id = id.wrapping_add(1);
        let data = EventData::new_u64(u64::from(id));
        epoll::add(&self.poller, &socket, data, EventFlags::empty()).map_err(poll_failed)?;
        let session = Session::new(self.options.session.clone());
        let mut connection = Connection::new(id, socket, session, now);
        touch(&mut self.touched, &mut connection);
        self.connections.insert(id, connection);
        Ok(())
    }

    /// Handles a socket that has input, has room, or is broken.
    fn ready(&mut self, id: u32, flags: EventFlags) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        touch(&mut self.touched, connection);
        let Some(link) = &mut connection.link else {
            return;
        };
        if flags.contains(EventFlags::OUT) {
            link.blocked = false;
        }
        let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        let flow = if link.session.wants_input() {
            connection.read(&mut self.exports)
        } else if broken {
            Flow::Break(())
        } else {
            Flow::Continue(())
        };
        if flow.is_break() {
            connection.link = None;
        }
    }

    /// Passes completions on and drives all connections that were touched.
    fn complete(&mut self, done: &mut Vec<(Token, Completion)>, now: u64) -> Result<()> {
        loop {
            self.exports.completed(done);
            if done.is_empty() && self.touched.is_empty() {
                return Ok(());
            }
            for (token, how) in done.drain(..) {
                self.route(token, how, now);
            }
            for id in mem::take(&mut self.touched) {
                self.go_on(id)?;
            }
        }
    }

    /// Passes a completion to the connection that it belongs to.
    fn route(&mut self, token: Token, how: Completion, now: u64) {
        let Some(connection) = self.connections.get_mut(&connection_of(token)) else {
            base::invariant!(false, "{token:?} is nobody's");
            return;
        };
        touch(&mut self.touched, connection);
        if connection.complete(token, how, now).is_break() {
            connection.link = None;
        }
    }

    /// Sends a connection's output, sets what its socket is watched for, and forgets it if it is finished.
    fn go_on(&mut self, id: u32) -> Result<()> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Ok(());
        };
        connection.touched = false;
        if connection.link.is_some() && connection.write(&mut self.exports).is_break() {
            connection.link = None;
        }
        if let Some((address, why)) = connection.refused.take() {
            (self.say)(&format!("a client at {address} is closed: {why}"));
        }
        if let Some(link) = &mut connection.link {
            let wanted = (link.session.wants_input(), link.blocked);
            if wanted == link.watched {
                return Ok(());
            }
            link.watched = wanted;
            let mut flags = EventFlags::empty();
            flags.set(EventFlags::IN, wanted.0);
            flags.set(EventFlags::OUT, wanted.1);
            let data = EventData::new_u64(u64::from(id));
            return epoll::modify(&self.poller, &link.socket, data, flags).map_err(poll_failed);
        }
        if connection.out == 0 {
            if let Some(export) = connection.export {
                self.exports.detach(export);
            }
            self.connections.remove(&id);
            return self.watch_listener();
        }
        Ok(())
    }

    /// Stops taking clients and requests.
    fn begin_stop(&mut self, now: u64) -> Result<()> {
        if self.ends_at_nanos.is_some() {
            return Ok(());
        }
        let time = self.options.stop_timeout.as_nanos() as u64;
        self.ends_at_nanos = Some(now.saturating_add(time));
        self.listener = None;
        for connection in self.connections.values_mut() {
            touch(&mut self.touched, connection);
            if let Some(link) = &mut connection.link {
                link.session.end();
            }
        }
        epoll::delete(&self.poller, &*self.stop.0).map_err(poll_failed)
    }

    /// Closes connections whose deadline has passed.
    fn tick(&mut self, now: u64) -> Result<()> {
        if now < self.next_tick_nanos {
            return Ok(());
        }
        self.next_tick_nanos = now + TICK.as_nanos() as u64;
        let ends = self.ends_at_nanos.is_some_and(|at| now >= at);
        let patience = self.options.handshake_timeout.as_nanos() as u64;
        let mut late = Vec::new();
        for connection in self.connections.values_mut() {
            let silent = connection.link.as_ref().is_some_and(|l| {
                let waits_for_us = l.session.waiting() > 0;
                let since = now.saturating_sub(l.since_nanos);
                l.session.in_handshake() && !waits_for_us && since >= patience
            });
            if silent || ends {
                connection.link = None;
                late.push(connection.id);
            }
        }
        for id in late {
            self.go_on(id)?;
        }
        if ends {
            // The exports may not have completed some requests; their completions are not waited for.
            self.forget_all();
        }
        self.watch_listener()
    }

    fn forget_all(&mut self) {
        let exports: Vec<ExportId> = self
            .connections
            .drain()
            .filter_map(|(_, c)| c.export)
            .collect();
        for export in exports {
            self.exports.detach(export);
        }
    }
}

impl<E: Exports + Send + 'static> Server<E> {
    /// Runs the server in a thread of its own.
    pub fn start(self, threads: &dyn Threads) -> Result<Running> {
        let (uri, stop) = (self.uri(), self.stop_handle());
        let result = Arc::new(Mutex::new(Ok(())));
        let out = Arc::clone(&result);
        let run = Box::new(move || {
            let ended = self.run().map(drop);
            *out.lock().unwrap_or_else(PoisonError::into_inner) = ended;
        });
        let thread = threads.start("nbd", run);
        let thread = thread.map_err(|e| failed("start", "its thread", e))?;
        Ok(Running {
            uri,
            stop,
            thread: Some(thread),
            result,
        })
    }
}

/// A server in a thread of its own; dropping it stops it.
#[derive(Debug)]
pub struct Running {
    uri: String,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
    result: Arc<Mutex<Result<()>>>,
}

impl Running {
    /// The URI under which clients reach it.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Stops the server and waits for its end. Errors: those of [`Server::run`].
    pub fn stop(mut self) -> Result<()> {
        self.join()
    }

    fn join(&mut self) -> Result<()> {
        self.stop.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            return Err(Error::broken("the NBD server panicked"));
        }
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        mem::replace(&mut *result, Ok(()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Callers that want the result call `stop`.
        drop(self.join());
    }
}

fn touch(touched: &mut Vec<u32>, connection: &mut Connection) {
    if !mem::replace(&mut connection.touched, true) {
        touched.push(connection.id);
    }
}

/// Whether a failed accept concerns one client only, so that the next one may succeed.
fn is_about_the_client(e: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, NotConnected};
    matches!(
        e.kind(),
        ConnectionAborted | ConnectionReset | Interrupted | NotConnected
    )
}

fn poll_failed(e: rustix::io::Errno) -> Error {
    failed("poll", "its sockets", e.into())
}
