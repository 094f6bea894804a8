//! A session and its socket: reads bytes, passes requests to the exports, writes replies.

use std::io::{ErrorKind, IoSlice};
use std::mem;
use std::ops::ControlFlow::{self, Break, Continue};

use base::Error;

use super::command::ExportId;
use super::exports::{Completion, Exports, Token};
use super::handshake::Ask;
use super::session::{Event, Handle, Session};
use super::socket::Socket;

/// How often one connection may read before the others get their turn.
const READS_MAX: u32 = 16;
/// The most slices of one `writev`.
const SLICES_MAX: usize = 128;

/// A connection. After its link is closed, it stays until all its requests are completed, so that no token
/// is orphaned, and no export is detached while operations on it run.
#[derive(Debug)]
pub(super) struct Connection {
    /// Identifies the connection in tokens. The server's ids repeat after four billion connections.
    pub(super) id: u32,
    pub(super) link: Option<Link>,
    /// The attached export.
    pub(super) export: Option<ExportId>,
    /// Whether it has asked to attach an export.
    attaching: bool,
    /// Number of questions and requests that are not completed.
    pub(super) out: u32,
    /// Whether it is in the server's list of connections to look at.
    pub(super) touched: bool,
    /// The client's address and the reason why its connection was closed, until the server has logged them:
    /// the protocol has no way to tell the client.
    pub(super) refused: Option<(String, Error)>,
}

/// The part of a connection that lives until it is closed.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: Socket,
    pub(super) session: Session,
    /// Whether the socket takes no bytes at present.
    pub(super) blocked: bool,
    /// Whether the poller watches it for reading and for writing.
    pub(super) watched: (bool, bool),
    /// When the current step of the handshake began, by the clock.
    pub(super) since_nanos: u64,
}

/// `Break`: the link is to be closed.
pub(super) type Flow = ControlFlow<()>;

impl Connection {
    /// A connection that was just accepted.
    pub(super) fn new(id: u32, socket: Socket, session: Session, now_nanos: u64) -> Self {
        Self {
            id,
            link: Some(Link {
                socket,
                session,
                blocked: false,
                watched: (false, false),
                since_nanos: now_nanos,
            }),
            export: None,
            attaching: false,
            out: 0,
            touched: false,
            refused: None,
        }
    }

    /// Reads the available bytes, a bounded number of times, and passes on the requests in them.
    pub(super) fn read(&mut self, exports: &mut impl Exports) -> Flow {
        for _ in 0..READS_MAX {
            self.hand_on(exports)?;
            let Some(link) = self.link.as_mut().filter(|l| l.session.wants_input()) else {
                return Continue(());
            };
            let space = link.session.space();
            let room = space.len();
            let n = match link.socket.read(space) {
                Ok(0) => return Break(()),
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Continue(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return Break(()),
            };
            link.session.filled(n);
            if n < room {
                break;
            }
        }
        self.hand_on(exports)
    }

    /// Passes on the requests in the bytes that were read.
    fn hand_on(&mut self, exports: &mut impl Exports) -> Flow {
        let Some(link) = &mut self.link else {
            return Break(());
        };
        loop {
            match link.session.next_event() {
                Ok(None) => return Continue(()),
                Err(e) => {
                    self.refused = Some((link.socket.address(), e));
                    return Break(());
                }
                Ok(Some(Event::Ask(ask))) => {
                    let token = token(self.id, Handle(u32::MAX));
                    match ask {
                        Ask::List => exports.list(token),
                        Ask::Describe(name) => exports.describe(token, &name),
                        Ask::Attach(name) => {
                            self.attaching = true;
                            exports.attach(token, &name);
                        }
                    }
                }
                Ok(Some(Event::Request(handle, op))) => {
                    // A client cannot make requests before an export is attached.
                    let Some(export) = self.export else {
                        return Break(());
                    };
                    exports.submit(token(self.id, handle), export, op);
                }
            }
            self.out += 1;
        }
    }

    /// Handles the completion of a question or request.
    pub(super) fn complete(&mut self, token: Token, how: Completion, now_nanos: u64) -> Flow {
        self.out -= 1;
        if let Completion::Export(found) = &how
            && mem::take(&mut self.attaching)
        {
            // Stored even if the client is gone: then the export is detached later.
            self.export = found.as_ref().ok().map(|e| e.id);
        }
        let Some(link) = &mut self.link else {
            return Continue(());
        };
        link.since_nanos = now_nanos;
        let kept = match how {
            Completion::Names(names) => {
                link.session.names(names);
                Ok(())
            }
            Completion::Export(found) => link.session.answer(found),
            Completion::Done(result) => link.session.reply(Handle(token.0 as u32), result),
        };
        if let Err(e) = kept {
            self.refused = Some((link.socket.address(), e));
            return Break(());
        }
        Continue(())
    }

    /// Sends the output, and then goes on with input that had to wait for room.
    pub(super) fn write(&mut self, exports: &mut impl Exports) -> Flow {
        loop {
            self.hand_on(exports)?;
            let Some(link) = &mut self.link else {
                return Break(());
            };
            if link.session.is_finished() {
                return Break(());
            }
            if link.blocked || !link.session.has_output() {
                return Continue(());
            }
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = link.session.output(&mut slices);
            let slices = slices.get(..count).unwrap_or_default();
            let all: usize = slices.iter().map(|s| s.len()).sum();
            match link.socket.write_vectored(slices) {
                Ok(n) => {
                    link.session.sent(n);
                    link.blocked = n < all;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => link.blocked = true,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Break(()),
            }
        }
    }
}

fn token(connection: u32, handle: Handle) -> Token {
    Token(u64::from(connection) << 32 | u64::from(handle.0))
}

/// The id of the connection that a token belongs to.
pub(super) fn connection_of(token: Token) -> u32 {
    (token.0 >> 32) as u32
}
