//! Connections to the broker, one after the other, on a separate thread.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use base::sync::thread::JoinHandle;
use base::threads::Threads;
use base::{Error, ErrorKind, Result};
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsConnector;

use super::Settings;
use super::session::{Io, Session};
use crate::devices::Intake;
use crate::http::tls;

/// The longest time to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The signal to stop.
#[derive(Debug, Default)]
pub(super) struct Stop {
    is_told: AtomicBool,
    told: Notify,
}

impl Stop {
    fn tell(&self) {
        self.is_told.store(true, Ordering::Release);
        self.told.notify_waiters();
    }

    pub(super) fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Acquire)
    }

    /// Returns once the signal is given.
    pub(super) async fn wait(&self) {
        let mut told = pin!(self.told.notified());
        poll_fn(|cx| {
            // Polled first, so that this task is registered before the flag is read.
            let is_told = told.as_mut().poll(cx).is_ready();
            if is_told || self.is_told() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// The result of `done`. `None` if the signal is given before.
    async fn or<T>(&self, done: impl Future<Output = T>) -> Option<T> {
        let (mut done, mut stopped) = (pin!(done), pin!(self.wait()));
        poll_fn(|cx| {
            if stopped.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            done.as_mut().poll(cx).map(Some)
        })
        .await
    }
}

/// A running subscriber. Dropping it stops it; reports that were taken are acknowledged first, if
/// that does not take long.
#[derive(Debug)]
pub struct Client {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    /// Subscribes, and reconnects whenever the connection is lost. Errors: a setting is wrong, or
    /// no more threads can be started. A broker that cannot be reached is not an error.
    pub fn start(settings: Settings, intake: Arc<Intake>, threads: &dyn Threads) -> Result<Self> {
        settings.check()?;
        let connector = settings
            .broker
            .tls
            .then(|| connector(&settings))
            .transpose()?;
        let failed = |e: std::io::Error| {
            Error::new(
                ErrorKind::IoError,
                format!("cannot start the client of MQTT: {e}"),
            )
            .because(e)
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build();
        let runtime = runtime.map_err(failed)?;
        intake.counts().broker.store(0, Relaxed);
        let stop = Arc::new(Stop::default());
        let all = Subscriber {
            settings,
            connector,
            intake,
            stop: Arc::clone(&stop),
        };
        let run = move || {
            runtime.block_on(all.run());
            // A look-up of the broker's name may still be in progress.
            runtime.shutdown_background();
        };
        let thread = threads.start("mqtt", Box::new(run)).map_err(failed)?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.tell();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended, too.
            drop(thread.join());
        }
    }
}

fn connector(settings: &Settings) -> Result<TlsConnector> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(Error::broken)?;
    let config = builder
        .with_root_certificates(tls::roots(&settings.ca)?)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

struct Subscriber {
    settings: Settings,
    connector: Option<TlsConnector>,
    intake: Arc<Intake>,
    stop: Arc<Stop>,
}

impl Subscriber {
    async fn run(self) {
        let mut wait = self.settings.wait;
        while !self.stop.is_told() {
            let (counts, clock) = (self.intake.counts(), self.intake.clock());
            let since = clock.monotonic_nanos();
            let ended = self.connection().await;
            counts.broker.store(0, Relaxed);
            counts.broker_in_flight.store(0, Relaxed);
            let Err(e) = ended else {
                return;
            };
            counts.broker_lost.fetch_add(1, Relaxed);
            let lasted = Duration::from_nanos(clock.monotonic_nanos().saturating_sub(since));
            if lasted > self.settings.wait_max {
                wait = self.settings.wait;
            }
            let broker = &self.settings.broker;
            let text = format!(
                "MQTT broker {}:{}: {e}; tried again in {wait:?}",
                broker.host, broker.port
            );
            self.intake.say("mqtt lost", &text);
            self.stop.or(tokio::time::sleep(wait)).await;
            wait = (wait * 2).min(self.settings.wait_max);
        }
    }

    /// Runs one connection until it ends. Errors: why it ended; none if the signal to stop was
    /// given.
    async fn connection(&self) -> Result<()> {
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, async {
            let stream = self.connect().await?;
            let mut session = Session::new(stream, &self.settings, &self.intake);
            session.begin().await?;
            Ok(session)
        });
        let Some(connected) = self.stop.or(connected).await else {
            return Ok(());
        };
        let late = |_| {
            Error::new(
                ErrorKind::TimedOut,
                format!("it has not answered within {CONNECT_TIMEOUT:?}"),
            )
        };
        let session = connected.map_err(late)??;
        session.run(&self.stop).await
    }

    async fn connect(&self) -> Result<Box<dyn Io>> {
        let broker = &self.settings.broker;
        let failed = |e: std::io::Error| Error::new(ErrorKind::IoError, e.to_string()).because(e);
        let stream = TcpStream::connect((broker.host.as_str(), broker.port))
            .await
            .map_err(failed)?;
        // If this fails, acknowledgements may be some milliseconds later.
        stream.set_nodelay(true).unwrap_or_default();
        let Some(connector) = &self.connector else {
            return Ok(Box::new(stream));
        };
        let name = ServerName::try_from(broker.host.clone());
        let name = name
            .map_err(|e| Error::invalid_argument(format!("no certificate has this name: {e}")))?;
        Ok(Box::new(
            connector.connect(name, stream).await.map_err(failed)?,
        ))
    }
}
