//! A connection that does not wait for ever: for the head of a request, for the next one, or for a client that takes
//! nothing of its answer.

use std::future::Future;
use std::io::{ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Sleep;

use super::Config;

/// Whether a call of the connection is being done. Then its time is bounded by the call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phase(Arc<Calls>);

#[derive(Debug, Default)]
struct Calls {
    number: AtomicU64,
    /// Answers that are on their way behind their calls.
    streams: AtomicU64,
}

/// An answer of the connection is on its way, until this is dropped: the next call is not waited for meanwhile.
#[derive(Debug)]
pub(crate) struct Streaming(Arc<Calls>);

impl Drop for Streaming {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Phase {
    /// A call begins, or ends.
    pub(crate) fn next(&self) {
        self.0.number.fetch_add(1, Ordering::Relaxed);
    }

    /// An answer begins that is on its way for longer.
    pub(crate) fn streams(&self) -> Streaming {
        self.0.streams.fetch_add(1, Ordering::Relaxed);
        Streaming(Arc::clone(&self.0))
    }

    fn number(&self) -> u64 {
        self.0.number.load(Ordering::Relaxed)
    }

    fn is_busy(&self) -> bool {
        self.number() % 2 == 1 || self.0.streams.load(Ordering::Relaxed) > 0
    }
}

/// Lets a call cut its connection off.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cut(Arc<Notify>);

impl Cut {
    /// Cuts the connection off when so much time has passed, whatever it is doing, unless it has ended before.
    pub(crate) fn after(self, time: Duration) {
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            self.0.notify_one();
        });
    }

    /// Returns when the connection is to be cut off.
    pub(crate) async fn wait(&self) {
        self.0.notified().await;
    }
}

/// A wait that may have begun.
#[derive(Debug, Default)]
struct Wait(Option<Pin<Box<Sleep>>>);

impl Wait {
    fn begin(&mut self, time: Duration) {
        self.0
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
    }

    /// Errors: it is over.
    fn check(&mut self, cx: &mut Context<'_>) -> Result<()> {
        let Some(sleep) = &mut self.0 else {
            return Ok(());
        };
        if sleep.as_mut().poll(cx).is_ready() {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(())
    }

    fn end(&mut self) {
        self.0 = None;
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    phase: Phase,
    /// The phase in which `read` and `has_begun` were set.
    seen: u64,
    /// Some of a head is there.
    has_begun: bool,
    read: Wait,
    write: Wait,
    head_timeout: Duration,
    idle_timeout: Duration,
    write_timeout: Duration,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, phase: Phase, config: &Config) -> Self {
        Self {
            stream,
            phase,
            seen: 0,
            has_begun: false,
            read: Wait::default(),
            write: Wait::default(),
            head_timeout: config.head_timeout,
            idle_timeout: config.idle_timeout,
            write_timeout: config.write_timeout,
        }
    }

    /// What a write came to, within its time.
    fn written(&mut self, cx: &mut Context<'_>, done: Poll<Result<usize>>) -> Poll<Result<usize>> {
        if done.is_ready() {
            self.write.end();
            return done;
        }
        self.write.begin(self.write_timeout);
        match self.write.check(cx) {
            Ok(()) => Poll::Pending,
            Err(e) => Poll::Ready(Err(e)),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let this = self.get_mut();
        let phase = this.phase.number();
        if phase != this.seen {
            this.seen = phase;
            this.has_begun = false;
            this.read.end();
        }
        let is_in_call = this.phase.is_busy();
        let before = buf.filled().len();
        let done = Pin::new(&mut this.stream).poll_read(cx, buf);
        if is_in_call {
            this.read.end();
            return done;
        }
        let has_more = done.is_ready() && buf.filled().len() > before;
        if has_more && !this.has_begun {
            this.has_begun = true;
            this.read.end();
        }
        let time = if this.has_begun {
            this.head_timeout
        } else {
            this.idle_timeout
        };
        this.read.begin(time);
        if let Err(e) = this.read.check(cx) {
            return Poll::Ready(Err(e));
        }
        done
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let this = self.get_mut();
        let done = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.written(cx, done)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let this = self.get_mut();
        let done = Pin::new(&mut this.stream).poll_write_vectored(cx, bytes);
        this.written(cx, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
