//! One connection to the broker: its messages, in order, until they are acknowledged.
//!
//! Acknowledgements are sent in the order of the messages, as the protocol demands. While
//! [`IN_FLIGHT_MAX`] messages wait, or the service has no room for one, nothing more is read, and
//! the broker waits. If the store fails, the connection ends, and the broker sends again what was
//! not acknowledged. If only one report fails, it does not end; see [`waiting`](super::waiting).

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use base::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::Sleep;

use super::Settings;
use super::client::Stop;
use super::packet::{Connect, Packet, Publish, Reader, disconnect, ping, subscribe};
use super::waiting::{Sent, Waiting};
use crate::devices::{Heard, Intake, Owner, Protocol, owntracks};

/// The most messages that may wait for their acknowledgement.
const IN_FLIGHT_MAX: usize = 1024;
/// The most bytes that are read at once.
const PIECE: usize = 16 * 1024;
/// The longest time that a write may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time to wait at the end for reports that were taken.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// How often [`Session::due`] runs.
const TICK: Duration = Duration::from_secs(1);
/// The same while the service has no room.
const TICK_BUSY: Duration = Duration::from_millis(20);

/// A connection, with TLS or without.
pub(super) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

pub(super) struct Session<'a> {
    stream: Box<dyn Io>,
    settings: &'a Settings,
    intake: &'a Arc<Intake>,
    reader: Reader,
    waiting: Waiting,
    /// A report that the service has no room for yet.
    held: Option<(Option<u16>, Box<Sent>)>,
    sent_at: u64,
    asked_at: Option<u64>,
    /// Since when the answer to the subscription is awaited.
    subscribing_since: Option<u64>,
    tick: Pin<Box<Sleep>>,
}

/// The next step of the session.
enum Event {
    Stop,
    /// The result of the first waiting message is known.
    Done,
    Came(usize),
    Tick,
}

fn refused(why: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, why.to_owned())
}

fn lost(e: std::io::Error) -> Error {
    Error::new(ErrorKind::IoError, format!("the connection broke: {e}")).because(e)
}

impl<'a> Session<'a> {
    pub(super) fn new(
        stream: Box<dyn Io>,
        settings: &'a Settings,
        intake: &'a Arc<Intake>,
    ) -> Self {
        Self {
            stream,
            settings,
            intake,
            reader: Reader::default(),
            waiting: Waiting::default(),
            held: None,
            sent_at: 0,
            asked_at: None,
            subscribing_since: None,
            tick: Box::pin(tokio::time::sleep(TICK)),
        }
    }

    fn now(&self) -> u64 {
        self.intake.clock().monotonic_nanos()
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let sent = tokio::time::timeout(WRITE_TIMEOUT, async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        });
        let sent = sent
            .await
            .map_err(|_| Error::new(ErrorKind::TimedOut, "the broker takes nothing"))?;
        sent.map_err(lost)?;
        self.sent_at = self.now();
        Ok(())
    }

    /// Connects, and sends the subscription. The broker may send stored messages before it answers
    /// the subscription, so that [`Session::run`] handles the answer. Errors: the broker rejects
    /// the client.
    pub(super) async fn begin(&mut self) -> Result<()> {
        let seconds = self.settings.keep_alive.as_secs().clamp(2, u16::MAX.into());
        let connect = Connect {
            client: &self.settings.client,
            user: self.settings.user.as_deref(),
            password: self.settings.password.as_deref().map(str::as_bytes),
            keep_alive: seconds as u16,
        };
        self.send(&connect.bytes()).await?;
        match self.next().await? {
            Packet::Connected { .. } => {}
            Packet::Rejected(why) => return Err(refused(why)),
            _ => {
                return Err(refused(
                    "something else than an answer to the connection came first",
                ));
            }
        }
        self.subscribing_since = Some(self.now());
        self.send(&subscribe(1, &self.settings.topics)).await
    }

    /// Handles the answer to the subscription. Errors: a topic was not granted.
    fn subscribed(&mut self, granted: &[bool]) -> Result<()> {
        let topics = &self.settings.topics;
        if granted.len() != topics.len() {
            return Err(refused("its answer to the subscription has other topics"));
        }
        let mut all = granted.iter().zip(topics);
        if let Some((_, topic)) = all.find(|(is_granted, _)| !**is_granted) {
            return Err(refused(&format!(
                "it does not let the client have the topic {topic:?}"
            )));
        }
        if self.subscribing_since.take().is_some() {
            self.intake.counts().broker.store(1, Relaxed);
            let broker = &self.settings.broker;
            let text = format!("MQTT broker {}:{}: connected", broker.host, broker.port);
            self.intake.say("mqtt connected", &text);
        }
        Ok(())
    }

    /// The next packet while connecting.
    async fn next(&mut self) -> Result<Packet> {
        let mut piece = vec![0; PIECE];
        loop {
            if let Some(packet) = self.reader.packet()? {
                return Ok(packet);
            }
            let len = self.stream.read(&mut piece).await.map_err(lost)?;
            self.came(piece.get(..len).unwrap_or_default())?;
        }
    }

    fn came(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            let text = "the broker closed the connection; another client may have the same id";
            return Err(Error::new(ErrorKind::IoError, text));
        }
        self.asked_at = None;
        self.reader.add(bytes);
        Ok(())
    }

    /// Whether nothing more can be taken now.
    fn is_full(&self) -> bool {
        self.held.is_some() || self.waiting.is_on_trial() || self.waiting.len() >= IN_FLIGHT_MAX
    }

    /// Takes messages until the signal to stop. Errors: why the connection ended.
    pub(super) async fn run(mut self, stop: &Stop) -> Result<()> {
        let mut piece = vec![0; PIECE];
        let mut stopped = pin!(stop.wait());
        loop {
            while !self.is_full() {
                match self.reader.packet()? {
                    Some(Packet::Publish(publish)) => self.take(publish)?,
                    Some(Packet::Subscribed(granted)) => self.subscribed(&granted)?,
                    Some(_) => {}
                    None => break,
                }
            }
            let in_flight = self.waiting.len() + usize::from(self.held.is_some());
            self.intake
                .counts()
                .broker_in_flight
                .store(in_flight as i64, Relaxed);
            let event = poll_fn(|cx| {
                if stopped.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Ok(Event::Stop));
                }
                self.poll(cx, &mut piece)
            });
            match event.await? {
                Event::Stop => return self.end().await,
                Event::Done => self.done().await?,
                Event::Came(len) => self.came(piece.get(..len).unwrap_or_default())?,
                Event::Tick => self.due().await?,
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, piece: &mut [u8]) -> Poll<Result<Event>> {
        if self.waiting.poll(cx).is_ready() {
            return Poll::Ready(Ok(Event::Done));
        }
        if !self.is_full() {
            let mut buf = ReadBuf::new(piece);
            if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(cx, &mut buf) {
                return Poll::Ready(read.map(|()| Event::Came(buf.filled().len())).map_err(lost));
            }
        }
        self.tick.as_mut().poll(cx).map(|()| Ok(Event::Tick))
    }

    /// Handles a message.
    fn take(&mut self, publish: Publish) -> Result<()> {
        let Publish { topic, id, payload } = publish;
        let owner = Owner {
            topic: Some(topic.clone()),
            ..Owner::default()
        };
        let heard = match payload {
            Some(payload) => {
                // Without this, a message that meets a bug would be delivered again for ever, and
                // end this thread each time.
                let read = catch_unwind(AssertUnwindSafe(|| owntracks(&payload, &owner)));
                read.unwrap_or_else(|_| Ok(Heard::Wrong("reading it panicked: a bug".to_owned())))
            }
            None => Ok(Heard::Wrong("it is too large".to_owned())),
        };
        let report = match heard {
            Ok(heard) => self.intake.sort(Protocol::Mqtt, heard),
            Err(why) => {
                self.intake.unusable(Protocol::Mqtt, why);
                None
            }
        };
        if let Some(report) = report {
            return self.submit(id, Box::new(Sent { topic, report }));
        }
        self.waiting.push_done(id);
        Ok(())
    }

    fn submit(&mut self, id: Option<u16>, sent: Box<Sent>) -> Result<()> {
        let (intake, report) = (Arc::clone(self.intake), sent.report.clone());
        match intake.submit(Protocol::Mqtt, intake.fleet(), report) {
            Ok(pending) => {
                let done = async move { intake.end(pending).await };
                self.waiting.push(id, sent, done);
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::Busy => {
                self.held = Some((id, sent));
                self.tick
                    .as_mut()
                    .reset(tokio::time::Instant::now() + TICK_BUSY);
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// Acknowledges what can be acknowledged. Errors: the store's; what came before the failure is
    /// acknowledged all the same.
    async fn done(&mut self) -> Result<()> {
        let settled = self.waiting.settle(self.intake);
        if !settled.acknowledgements.is_empty() {
            self.send(&settled.acknowledgements).await?;
        }
        settled.result
    }

    /// Does what is due: submits a report that there was no room for, sends a ping, checks for
    /// timeouts.
    async fn due(&mut self) -> Result<()> {
        if !self.waiting.is_on_trial()
            && let Some((id, sent)) = self.held.take()
        {
            self.submit(id, sent)?;
        }
        let now = self.now();
        let wait = if self.held.is_some() { TICK_BUSY } else { TICK };
        self.tick.as_mut().reset(tokio::time::Instant::now() + wait);
        if self.is_full() {
            // The answer of the broker would not be read.
            self.asked_at = None;
            self.subscribing_since = self.subscribing_since.map(|_| now);
        }
        let timeout = self.settings.answer_timeout;
        let is_late = |since: Option<u64>| {
            since.is_some_and(|at| now.saturating_sub(at) > timeout.as_nanos() as u64)
        };
        let late = |text: String| Err(Error::new(ErrorKind::TimedOut, text));
        if is_late(self.asked_at) {
            return late(format!("it is silent for {timeout:?}"));
        }
        if is_late(self.subscribing_since) {
            return late(format!(
                "it has not answered the subscription within {timeout:?}"
            ));
        }
        if now.saturating_sub(self.sent_at) * 2 > self.settings.keep_alive.as_nanos() as u64 {
            self.send(&ping()).await?;
            self.asked_at.get_or_insert(now);
        }
        Ok(())
    }

    /// Acknowledges what becomes durable soon, and disconnects. The rest is delivered again after
    /// the next start.
    async fn end(mut self) -> Result<()> {
        let end = tokio::time::timeout(END_TIMEOUT, async {
            while self.waiting.len() > 0 {
                poll_fn(|cx| self.waiting.poll(cx)).await;
                self.done().await?;
            }
            self.send(&disconnect()).await
        });
        // Errors do not matter here: the broker keeps what is not acknowledged.
        drop(end.await);
        Ok(())
    }
}
