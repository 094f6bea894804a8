//! A session and its TCP socket, which never blocks.
//!
//! Bytes are read into the session, frames come out of it; what the session has to send leaves by `writev`, as
//! much as the socket takes. A link is at its end with the first error, which says why; what the session has to
//! tell the other side then was sent, if the socket took it.

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

/// How often one link may read before the others have their turn.
const READS_MAX: u32 = 16;
/// The most slices of a `writev`.
const SLICES_MAX: usize = 256;
/// After how long without a word the system asks whether a peer is there.
const KEEP_IDLE: Duration = Duration::from_secs(30);
/// After how long the system gives up a peer that acknowledges nothing, ms.
const SILENT_MS_MAX: u32 = 10_000;

/// See the module.
#[derive(Debug)]
pub struct Link {
    socket: TcpStream,
    /// Where the other side is, for messages.
    address: String,
    session: Session,
    /// It is not known yet whether somebody is there.
    connecting: bool,
    /// The socket takes no bytes now.
    blocked: bool,
    /// What a poller watches it for.
    watched: EventFlags,
}

impl Link {
    /// Begins to connect. Errors: the system's.
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

    /// Of somebody who was accepted. Errors: the system's.
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
        // A host that is gone is noticed although nothing is sent to it.
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

    /// Who the other side is, once it has said so.
    pub fn peer(&self) -> Option<&Hello> {
        self.session.peer()
    }

    /// Where the other side is, for messages.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What a poller should watch it for, where that has changed since the last call.
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

    /// The poller says that there is room, or that something has happened to the socket. Errors: it could not
    /// be connected.
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

    /// Reads what is there, in turns, and appends the frames that it has. Errors: the link is at its end.
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
                        // A last word; whoever does not take it at once has closed, or reads nothing.
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

    /// Whether a lane takes a frame now.
    pub fn has_room(&self, lane: Lane) -> bool {
        self.session.has_room(lane)
    }

    /// Queues a frame, to leave with the next [`Link::write`]. Gives it back where its lane is full. Errors: it
    /// is over the bounds of frames.
    pub fn send(&mut self, frame: Frame) -> Result<Option<Frame>> {
        self.session.send(frame)
    }

    /// Tells the other side why it is not served, if it takes that at once.
    pub fn refuse(&mut self, why: &Error) {
        if matches!(self.session.send(hello::refusal(why)), Ok(None)) {
            // The connection is closed behind this, whether it was heard or not.
            self.write().unwrap_or_default();
        }
    }

    /// Sends what there is, as far as the socket takes it. Errors: the link is at its end.
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

/// A failed call about a socket.
pub(crate) fn failed(what: &str, e: std::io::Error) -> Error {
    Error::new(base::ErrorKind::IoError, format!("cannot {what}: {e}")).because(e)
}
