//! A session and its TCP socket, which never blocks.
//!
//! Bytes are read into the session, and frames come out of it; its output is sent with `writev`, as much as the
//! socket takes. A link ends with its first error. The session's last message to the peer was sent then, if the
//! socket took it.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use base::{Error, Result};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::frame::{Frame, Lane};
use super::hello::{self, Hello};
use super::session::{Options, Session};

/// How often one link may read before the others get their turn.
const READS_MAX: u32 = 16;
/// The most slices of one `writev`.
const SLICES_MAX: usize = 256;
/// Idle time after which the system probes whether a peer is still there.
const KEEP_IDLE: Duration = Duration::from_secs(30);
/// Time after which the system gives up a peer that acknowledges nothing, ms.
const SILENT_MS_MAX: u32 = 10_000;

/// A connection over TCP.
#[derive(Debug)]
pub struct Link {
    socket: TcpStream,
    /// The peer's address, for messages.
    address: String,
    session: Session,
    /// Whether the connection is not established yet.
    connecting: bool,
    /// Whether the socket takes no bytes at present.
    blocked: bool,
    /// The events that a poller watches it for.
    watched: EventFlags,
}

impl Link {
    /// Begins to connect. Errors: those of the system.
    pub fn dial(address: SocketAddr, me: Hello, options: Options) -> Result<Self> {
        let family = if address.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)
            .map_err(|e| failed("make a socket", e.into()))?;
        let connecting = match rustix::net::connect(&socket, &address) {
            Ok(()) => false,
            Err(Errno::INPROGRESS | Errno::INTR) => true,
            Err(e) => return Err(failed(&format!("connect to {address}"), e.into())),
        };
        Self::new(socket.into(), address.to_string(), connecting, me, options)
    }

    /// The link of an accepted connection. Errors: those of the system.
    pub fn accepted(socket: TcpStream, me: Hello, options: Options) -> Result<Self> {
        let blocking = socket.set_nonblocking(true);
        blocking.map_err(|e| failed("set up a socket", e))?;
        let address = socket.peer_addr();
        let address = address.map_or_else(|_| "?".to_owned(), |a| a.to_string());
        Self::new(socket, address, false, me, options)
    }

    fn new(
        socket: TcpStream,
        address: String,
        connecting: bool,
        me: Hello,
        options: Options,
    ) -> Result<Self> {
        let set = |what, done: rustix::io::Result<()>| done.map_err(|e| failed(what, e.into()));
        set("set TCP_NODELAY", sockopt::set_tcp_nodelay(&socket, true))?;
        set(
            "set SO_KEEPALIVE",
            sockopt::set_socket_keepalive(&socket, true),
        )?;
        // So that a host that is gone is noticed although nothing is sent to it.
        set(
            "set TCP_KEEPIDLE",
            sockopt::set_tcp_keepidle(&socket, KEEP_IDLE),
        )?;
        set(
            "set TCP_KEEPINTVL",
            sockopt::set_tcp_keepintvl(&socket, KEEP_IDLE / 3),
        )?;
        let timeout = sockopt::set_tcp_user_timeout(&socket, SILENT_MS_MAX);
        set("set TCP_USER_TIMEOUT", timeout)?;
        Ok(Self {
            socket,
            address,
            session: Session::new(me, options)?,
            connecting,
            blocked: connecting,
            watched: EventFlags::empty(),
        })
    }

    /// The session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The peer's hello, once it has arrived.
    pub fn peer(&self) -> Option<&Hello> {
        self.session.peer()
    }

    /// The peer's address, for messages.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The events that a poller should watch it for, if they have changed since the last call.
    pub fn watch(&mut self, wants_input: bool) -> Option<EventFlags> {
        let mut wanted = EventFlags::empty();
        wanted.set(EventFlags::IN, wants_input && !self.connecting);
        wanted.set(EventFlags::OUT, self.blocked);
        if wanted == self.watched {
            return None;
        }
        self.watched = wanted;
        Some(wanted)
    }

    /// The poller has reported room, or an event of the socket. Errors: the connection could not be
    /// established.
    pub fn writable(&mut self) -> Result<()> {
        self.blocked = false;
        if !std::mem::take(&mut self.connecting) {
            return Ok(());
        }
        match self.socket.take_error() {
            Ok(None) => Ok(()),
            Ok(Some(e)) | Err(e) => Err(failed("connect", e)),
        }
    }

    /// Reads the available bytes, a bounded number of times, and appends the frames in them. Errors: the
    /// link has ended.
    pub fn read(&mut self, frames: &mut Vec<Frame>) -> Result<()> {
        for _ in 0..READS_MAX {
            let space = self.session.space();
            let room = space.len();
            let n = match (&self.socket).read(space) {
                Ok(0) => return Err(Error::aborted("wire: the peer has closed the connection")),
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(failed("read from a peer", e)),
            };
            self.session.filled(n);
            loop {
                match self.session.next_frame() {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(e) => {
                        // The refusal; a peer that does not take it at once is gone or does not read.
                        self.write().unwrap_or_default();
                        return Err(e);
                    }
                }
            }
            if n < room {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether a lane takes another frame.
    pub fn has_room(&self, lane: Lane) -> bool {
        self.session.has_room(lane)
    }

    /// Queues a frame for the next [`Link::write`]. Returns the frame if its lane is full. Errors: it exceeds
    /// the limits of frames.
    pub fn send(&mut self, frame: Frame) -> Result<Option<Frame>> {
        self.session.send(frame)
    }

    /// Sends the peer the reason why it is refused, if the socket takes it at once.
    pub fn refuse(&mut self, why: &Error) {
        if matches!(self.session.send(hello::refusal(why)), Ok(None)) {
            // The connection is closed after this, whether the peer got the reason or not.
            self.write().unwrap_or_default();
        }
    }

    /// Sends the output, as much as the socket takes. Errors: the link has ended.
    pub fn write(&mut self) -> Result<()> {
        while !self.blocked && self.session.has_output() {
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = self.session.output(&mut slices);
            let slices = slices.get(..count).unwrap_or_default();
            let all: usize = slices.iter().map(|s| s.len()).sum();
            match (&self.socket).write_vectored(slices) {
                Ok(n) => {
                    self.session.sent(n);
                    self.blocked = n < all;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.blocked = true,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(failed("write to a peer", e)),
            }
        }
        Ok(())
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A failed call on a socket.
pub(crate) fn failed(what: &str, e: std::io::Error) -> Error {
    Error::new(base::ErrorKind::IoError, format!("cannot {what}: {e}")).because(e)
}
