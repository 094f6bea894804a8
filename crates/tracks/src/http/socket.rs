//! A connection with timeouts: for the first request and its head, for the next request, and for a
//! client that takes nothing of its answer, or takes it too slowly.
//!
//! Only the time counts for which nothing could be written because the client took nothing. So idle
//! streams may go on for ever.

use std::future::Future;
use std::io::{ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

use super::Config;

/// Whether the connection has a call in progress, whose time is limited elsewhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct Phase(Arc<Calls>);

#[derive(Debug, Default)]
struct Calls {
    number: AtomicU64,
    /// Whether there was a call.
    has_called: AtomicBool,
    /// The number of answers that are still being sent after their calls have returned.
    streams: AtomicU64,
}

/// An answer that is being sent, until this is dropped: the idle timeout does not run meanwhile.
#[derive(Debug)]
pub(crate) struct Streaming(Arc<Calls>);

impl Drop for Streaming {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Phase {
    /// A call begins.
    pub(crate) fn begin(&self) {
        self.0.has_called.store(true, Ordering::Relaxed);
        self.next();
    }

    /// A call, or a handshake, begins or ends.
    pub(crate) fn next(&self) {
        self.0.number.fetch_add(1, Ordering::Relaxed);
    }

    /// An answer begins that takes longer than its call.
    pub(crate) fn streams(&self) -> Streaming {
        self.0.streams.fetch_add(1, Ordering::Relaxed);
        Streaming(Arc::clone(&self.0))
    }

    fn number(&self) -> u64 {
        self.0.number.load(Ordering::Relaxed)
    }

    fn has_called(&self) -> bool {
        self.0.has_called.load(Ordering::Relaxed)
    }

    fn is_busy(&self) -> bool {
        self.number() % 2 == 1 || self.0.streams.load(Ordering::Relaxed) > 0
    }
}

/// Lets a call close its connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cut(Arc<Notify>);

impl Cut {
    /// Closes the connection after this time, whatever it is doing, unless it has ended before.
    pub(crate) fn after(self, time: Duration) {
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            self.0.notify_one();
        });
    }

    /// Returns when the connection is to be closed.
    pub(crate) async fn wait(&self) {
        self.0.notified().await;
    }
}

/// A timeout that may be running.
#[derive(Debug, Default)]
struct Wait(Option<Pin<Box<Sleep>>>);

impl Wait {
    fn begin(&mut self, time: Duration) {
        self.0
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
    }

    /// Errors: the time is up.
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

/// How far a client lags behind the least rate in taking an answer.
#[derive(Debug, Default)]
struct Lag {
    /// The time for which nothing could be written, minus the other time, and minus the time that
    /// the taken bytes need at the least rate.
    lag: Duration,
    /// The time of the last write, and whether it was blocked.
    last: Option<(Instant, bool)>,
}

impl Lag {
    /// Whether the last write was blocked.
    fn is_blocked(&self) -> bool {
        self.last.is_some_and(|(_, was_blocked)| was_blocked)
    }

    /// Records a write of this many bytes, or a blocked one. A rate of 0 means no limit.
    fn written(&mut self, now: Instant, bytes: Option<usize>, rate: usize) {
        if let Some((at, was_blocked)) = self.last.replace((now, bytes.is_none())) {
            let passed = now.saturating_duration_since(at);
            self.lag = if was_blocked {
                self.lag.saturating_add(passed)
            } else {
                self.lag.saturating_sub(passed)
            };
        }
        if let Some(bytes) = bytes {
            // With a rate of 0, a single byte removes all lag.
            let nanos = (bytes as u64).saturating_mul(1_000_000_000);
            let made_up = nanos.checked_div(rate as u64).unwrap_or(u64::MAX);
            self.lag = self.lag.saturating_sub(Duration::from_nanos(made_up));
        }
    }
}

/// A connection with timeouts.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    phase: Phase,
    /// The phase in which `read` and `has_begun` were set.
    seen: u64,
    /// Whether a part of a head has arrived.
    has_begun: bool,
    read: Wait,
    write: Wait,
    lag: Lag,
    rate_min: usize,
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
            lag: Lag::default(),
            rate_min: config.rate_min,
            head_timeout: config.head_timeout,
            idle_timeout: config.idle_timeout,
            write_timeout: config.write_timeout,
        }
    }

    /// Records the result of a write, and checks its timeout.
    fn written(&mut self, cx: &mut Context<'_>, done: Poll<Result<usize>>) -> Poll<Result<usize>> {
        let bytes = match &done {
            Poll::Ready(Ok(bytes)) => Some(*bytes),
            Poll::Ready(Err(_)) => return done,
            Poll::Pending => None,
        };
        self.lag.written(Instant::now(), bytes, self.rate_min);
        if done.is_ready() {
            self.write.end();
            // A client that takes an answer is not idle.
            self.read.end();
            return done;
        }
        self.write
            .begin(self.write_timeout.saturating_sub(self.lag.lag));
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
        // An answer that is not written completely belongs to a call, too.
        let is_in_call = this.phase.is_busy() || this.lag.is_blocked();
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
        // A new connection must send a head soon; later ones may be idle for longer.
        let time = if this.has_begun || !this.phase.has_called() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_less_than_the_least_rate_lags_behind() {
        let seconds = |n: u64| Duration::from_secs(n);
        let (begin, mut lag) = (Instant::now(), Lag::default());
        let at = |n: u64| begin + seconds(n);
        // Ten seconds for each 4,000 bytes, at 1,000 bytes per second.
        lag.written(at(0), None, 1000);
        for n in 1..=4 {
            lag.written(at(10 * n), Some(4000), 1000);
            lag.written(at(10 * n), None, 1000);
            assert_eq!(lag.lag, seconds(6 * n));
        }
        // A client that takes much at once gets no credit for later.
        lag.written(at(50), Some(1 << 20), 1000);
        lag.written(at(50), None, 1000);
        lag.written(at(60), None, 1000);
        assert_eq!(lag.lag, seconds(10));
        // There is nothing to write for a while.
        lag.written(at(60), Some(1000), 1000);
        lag.written(at(64), Some(1000), 1000);
        assert_eq!(lag.lag, seconds(4));
        lag.written(at(1000), None, 1000);
        assert_eq!(lag.lag, seconds(0));
        // Without a least rate any byte suffices.
        lag.written(at(1020), Some(1), 0);
        assert_eq!(lag.lag, seconds(0));
    }
}
