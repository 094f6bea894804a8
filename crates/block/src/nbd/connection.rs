//! A session and its socket: reads, hands on what is asked for, writes.

use std::io::{ErrorKind, IoSlice};
use std::mem;
use std::ops::ControlFlow::{self, Break, Continue};

use base::Error;

use super::command::ExportId;
use super::exports::{Completion, Exports, Token};
use super::handshake::Ask;
use super::session::{Event, Handle, Session};
use super::socket::Socket;

/// How often one connection may read before the others have their turn.
const READS_MAX: u32 = 16;
/// The most slices of a `writev`.
const SLICES_MAX: usize = 128;

/// A connection. Once its link is gone it stays until all that it asked for is completed, so that no token
/// is left behind and nothing is detached under an operation.
#[derive(Debug)]
pub(super) struct Connection {
    /// Names it in tokens; no two connections of one server have the same within four billion.
    pub(super) id: u32,
    pub(super) link: Option<Link>,
    /// What it has attached.
    pub(super) export: Option<ExportId>,
    /// Whether it has asked for one.
    attaching: bool,
    /// What it asked for that is not completed.
    pub(super) out: u32,
    /// Whether it is on the list of those to be looked at.
    pub(super) touched: bool,
    /// Why it was closed, and where the client is, until that is said: it could not be told itself.
    pub(super) refused: Option<(String, Error)>,
}

/// The living part of a connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) socket: Socket,
    pub(super) session: Session,
    /// The socket takes no bytes now.
    pub(super) blocked: bool,
    /// What the poller watches it for.
    pub(super) watched: (bool, bool),
    /// When it was last waited for, by the clock.
    pub(super) since_nanos: u64,
}

/// The link is of no use any more.
pub(super) type Flow = ControlFlow<()>;

impl Connection {
    /// A client that was just accepted.
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

    /// Reads what is there, in turns, and hands on what it asks for.
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

    /// Hands on what the bytes that are there ask for.
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
                    // There is no request before an export is attached.
                    let Some(export) = self.export else {
                        return Break(());
                    };
                    exports.submit(token(self.id, handle), export, op);
                }
            }
            self.out += 1;
        }
    }

    /// Something that it asked for has ended.
    pub(super) fn complete(&mut self, token: Token, how: Completion, now_nanos: u64) -> Flow {
        self.out -= 1;
        if let Completion::Export(found) = &how
            && mem::take(&mut self.attaching)
        {
            // Also where nobody is left to use it: then it is detached.
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

    /// Sends what there is, and goes on with bytes that waited for that.
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

/// The connection that a token names.
pub(super) fn connection_of(token: Token) -> u32 {
    (token.0 >> 32) as u32
}
