//! The server's sockets: TCP, on this machine only unless the caller insists, or a Unix socket.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::{Error, Result};
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepidle, set_tcp_keepintvl};

/// Idle time after which the system probes whether a client is still there.
const KEEP_IDLE: Duration = Duration::from_secs(30);

/// A socket that accepts clients.
#[derive(Debug)]
pub struct Listener {
    kind: Kind,
    /// The path of a Unix socket, which is removed at the end.
    path: Option<PathBuf>,
}

#[derive(Debug)]
enum Kind {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Listens on a TCP address; port 0 means any free one. There is no TLS, so everybody who reaches the
    /// address reads and writes all exports. Addresses that other machines reach are refused unless
    /// `insecure`.
    pub fn tcp(address: SocketAddr, insecure: bool) -> Result<Self> {
        if !address.ip().is_loopback() && !insecure {
            return Err(Error::invalid_argument(format!(
                "NBD on {address} would be open to other machines without TLS"
            ))
            .hint("listen on 127.0.0.1 or a Unix socket, or say that it may be insecure"));
        }
        let listener = TcpListener::bind(address).map_err(|e| failed("listen", address, e))?;
        Self::new(Kind::Tcp(listener), None)
    }

    /// Listens on a path. A socket that nobody listens on any more is replaced; any other file there is an
    /// error.
    pub fn unix(path: &Path) -> Result<Self> {
        let is_socket = path
            .symlink_metadata()
            .is_ok_and(|m| m.file_type().is_socket());
        if is_socket && UnixStream::connect(path).is_err() {
            std::fs::remove_file(path).map_err(|e| Error::io("remove", path, e))?;
        }
        let listener = UnixListener::bind(path).map_err(|e| Error::io("listen", path, e))?;
        Self::new(Kind::Unix(listener), Some(path.to_owned()))
    }

    fn new(kind: Kind, path: Option<PathBuf>) -> Result<Self> {
        match &kind {
            Kind::Tcp(l) => l.set_nonblocking(true),
            Kind::Unix(l) => l.set_nonblocking(true),
        }
        .map_err(|e| failed("set up", "a listening socket", e))?;
        Ok(Self { kind, path })
    }

    /// The URI under which clients reach it.
    pub fn uri(&self) -> String {
        match (&self.kind, &self.path) {
            (Kind::Tcp(l), _) => l
                .local_addr()
                .map_or_else(|_| "nbd://?".to_owned(), |a| format!("nbd://{a}")),
            (Kind::Unix(_), path) => {
                let path = path.as_deref().unwrap_or(Path::new("?"));
                format!("nbd+unix:///?socket={}", path.display())
            }
        }
    }

    /// Accepts the next client, if there is one.
    pub(super) fn accept(&self) -> io::Result<Socket> {
        match &self.kind {
            Kind::Tcp(l) => {
                let (stream, _) = l.accept()?;
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                // So that a client whose machine is gone is noticed although nothing is sent to it.
                set_socket_keepalive(&stream, true)?;
                set_tcp_keepidle(&stream, KEEP_IDLE)?;
                set_tcp_keepintvl(&stream, KEEP_IDLE / 3)?;
                Ok(Socket::Tcp(stream))
            }
            Kind::Unix(l) => {
                let (stream, _) = l.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Socket::Unix(stream))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            Kind::Tcp(l) => l.as_fd(),
            Kind::Unix(l) => l.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // If the file stays behind, the next listener replaces it.
            drop(std::fs::remove_file(path));
        }
    }
}

/// A client's connection; never blocks.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// The client's address, for messages.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Tcp(s) => s
                .peer_addr()
                .map_or_else(|_| "?".to_owned(), |a| a.to_string()),
            Self::Unix(_) => "the Unix socket".to_owned(),
        }
    }

    pub(super) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => (&mut &*s).read(into),
            Self::Unix(s) => (&mut &*s).read(into),
        }
    }

    pub(super) fn write_vectored(&self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => (&mut &*s).write_vectored(from),
            Self::Unix(s) => (&mut &*s).write_vectored(from),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(s) => s.as_fd(),
            Self::Unix(s) => s.as_fd(),
        }
    }
}

/// A failed call on something that is not a file.
pub(super) fn failed(what: &str, whom: impl fmt::Display, e: io::Error) -> Error {
    Error::new(base::ErrorKind::IoError, format!("NBD: {what} {whom}: {e}")).because(e)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_are_kept_out() {
        let open = "0.0.0.0:0".parse().unwrap();
        let e = Listener::tcp(open, false).unwrap_err().to_string();
        assert!(e.contains("without TLS"), "{e}");
        assert!(Listener::tcp(open, true).is_ok());
        let own = Listener::tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
        assert!(own.uri().starts_with("nbd://127.0.0.1:"));
    }

    #[test]
    fn a_path_is_taken_over_from_the_dead_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nbd");
        let first = Listener::unix(&path).unwrap();
        assert!(Listener::unix(&path).is_err(), "somebody listens");
        drop(first);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Listener::unix(&path).unwrap());
        std::fs::write(&path, "a file").unwrap();
        assert!(Listener::unix(&path).is_err(), "not a socket");
        assert!(path.exists());
    }
}
