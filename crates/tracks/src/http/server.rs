//! The server: accepts connections, limits their number, and shuts down in order.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use base::clock::SystemClock;
use base::{Error, ErrorKind, Result};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use ironstone::Db;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinHandle;

use super::problem::{Kind, Problem};
use super::rest::Rest;
use super::socket::{Cut, Phase, Socket};
use super::tokens::Tokens;
use super::{App, Config};
use crate::devices::Intake;
use crate::service::Tracks;

/// The most bytes of a request's head.
const HEAD_MAX: usize = 32 * 1024;
/// How many surplus connections at a time get a 503; others are closed at once.
const REFUSED_MAX: usize = 64;
/// The backlog of connections to be accepted. A client that finds it full tries again a second
/// later.
const BACKLOG: u32 = 4096;
/// More of an answer is handed to the system only while fewer bytes than this are unsent.
const UNSENT: u32 = 16 * 1024;
/// Blocking threads for a backup, and for tasks that run once or in turn.
const OTHER_THREADS: usize = 8;
/// How long deliveries of webhooks may go on at the end, after the second that each gives its own.
const TASKS_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait for the device at the end.
const DURABLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The parts of the service that the server uses.
#[derive(Debug)]
pub struct Service {
    /// The tracks.
    pub tracks: Arc<Tracks>,
    /// The database of the tracks, for its metrics.
    pub db: Option<Arc<Db>>,
    /// The tokens. `None` allows everything to everybody.
    pub tokens: Option<Tokens>,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    app: Arc<App>,
    address: SocketAddr,
    runtime: Runtime,
    accepting: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl Server {
    /// Starts serving. Errors: the address cannot be listened on; no more threads can be started.
    pub fn start(listen: SocketAddr, service: Service, config: Config) -> Result<Self> {
        let failed = |what: &str, e: std::io::Error| {
            Error::new(ErrorKind::IoError, format!("cannot {what} {listen}: {e}")).because(e)
        };
        let threads = std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 4));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .max_blocking_threads(blocking_threads(&config))
            .thread_name("http")
            .enable_io()
            .enable_time()
            .build()
            .map_err(|e| failed("serve on", e))?;
        let app = Arc::new(App::new(service, config, (listen, SystemClock::shared()))?);
        let listener = runtime.block_on(async { bound(listen) });
        let listener = listener.map_err(|e| failed("listen on", e))?;
        let address = listener.local_addr().map_err(|e| failed("find", e))?;
        let (stop, stopped) = oneshot::channel();
        runtime.spawn(super::feed::pump(Arc::clone(&app)));
        runtime.spawn(super::positions::pump(Arc::clone(&app)));
        let hooks = app.webhooks.all();
        let inside = runtime.enter();
        for hook in &hooks {
            super::webhook::start(&app, hook);
        }
        drop(inside);
        let accepting = runtime.spawn(accept(listener, Arc::clone(&app), stopped));
        Ok(Self {
            app,
            address,
            runtime,
            accepting,
            stop,
        })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the tokens. Calls in progress go on. A server that was started without tokens stays
    /// without.
    pub fn set_tokens(&self, tokens: Tokens) {
        if self.app.tokens.load().is_some() {
            self.app.tokens.store(Some(Arc::new(tokens)));
        }
    }

    /// The intake of phones and trackers, for protocols other than HTTP.
    pub fn intake(&self) -> &Arc<Intake> {
        &self.app.intake
    }

    /// Stops taking calls, finishes those in progress, and waits until their reports are durable.
    /// Errors: they may not be.
    pub fn stop(self) -> Result<()> {
        self.app.stop();
        // The receiver may be gone already.
        self.stop.send(()).unwrap_or_default();
        let (accepting, webhooks) = (self.accepting, &self.app.webhooks);
        self.runtime.block_on(async {
            drop(accepting.await);
            drop(tokio::time::timeout(TASKS_TIMEOUT, webhooks.end()).await);
        });
        self.runtime.shutdown_timeout(Duration::from_secs(5));
        let (app, clock) = (&self.app, &self.app.clock);
        let end = clock.monotonic_nanos() + DURABLE_TIMEOUT.as_nanos() as u64;
        while app.tracks.in_flight() > 0 && clock.monotonic_nanos() < end {
            clock.sleep(Duration::from_millis(1));
        }
        let (sender, receiver) = mpsc::channel();
        app.tracks.store().when_durable(Box::new(move |_, result| {
            // If nobody waits any more, it has taken too long.
            drop(sender.send(result));
        }));
        let told = receiver.recv_timeout(DURABLE_TIMEOUT);
        told.map_err(|_| {
            let text = format!("reports were not durable within {DURABLE_TIMEOUT:?}");
            Error::new(ErrorKind::TimedOut, text)
        })?
    }
}

/// The most concurrent blocking tasks of all kinds, so that no kind has to wait for another: each
/// kind has its places.
fn blocking_threads(config: &Config) -> usize {
    let reads = super::feed::READS + 1;
    let webhooks = super::webhook::THREADS;
    config.queries + config.exports + super::BODIES + reads + webhooks + OTHER_THREADS
}

/// Listens with a large backlog.
fn bound(listen: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match listen {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(listen)?;
    socket.listen(BACKLOG)
}

/// Accepts connections until it is stopped, and then waits for those that are open.
async fn accept(listener: TcpListener, app: Arc<App>, mut stopped: oneshot::Receiver<()>) {
    let router = super::router(&app);
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(app.config.connections));
    let refused = Arc::new(Semaphore::new(REFUSED_MAX));
    loop {
        let next = poll_fn(|cx| {
            if Pin::new(&mut stopped).poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            listener.poll_accept(cx).map(Some)
        });
        let stream = match next.await {
            None => break,
            Some(Ok((stream, _))) => stream,
            Some(Err(_)) => {
                // For example, no more file descriptors are available.
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            let (router, watcher) = (router.clone(), graceful.watcher());
            tokio::spawn(serve(stream, Arc::clone(&app), router, watcher, place));
            continue;
        }
        app.counts.connections_refused.fetch_add(1, Relaxed);
        // With TLS, no answer is possible before a handshake.
        if app.config.tls.is_none()
            && let Ok(place) = Arc::clone(&refused).try_acquire_owned()
        {
            tokio::spawn(refuse(stream, place));
        }
    }
    drop(listener);
    drop(tokio::time::timeout(app.config.drain_timeout, graceful.shutdown()).await);
}

/// Counts an open connection, until this is dropped.
struct Open(Arc<App>);

impl Open {
    fn new(app: &Arc<App>) -> Self {
        app.counts.connections.fetch_add(1, Relaxed);
        Self(Arc::clone(app))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.counts.connections.fetch_sub(1, Relaxed);
    }
}

async fn serve(
    mut stream: TcpStream,
    app: Arc<App>,
    router: Router,
    watcher: Watcher,
    place: OwnedSemaphorePermit,
) {
    let open = Open::new(&app);
    // If this fails, answers may be some milliseconds later.
    stream.set_nodelay(true).unwrap_or_default();
    // With this limit, a slow client takes bytes steadily: otherwise a socket becomes writable only
    // once a third of its buffer is free, and that buffer may have megabytes. Systems without this
    // option work as before.
    let socket = SockRef::from(&stream);
    socket.set_tcp_notsent_lowat(UNSENT).unwrap_or_default();
    let (phase, body_max) = (Phase::default(), app.config.body_max);
    if let Some(tls) = &app.config.tls {
        let shake = async {
            if !super::tls::begins(&mut stream).await? {
                return std::io::Result::Ok(None);
            }
            let socket = Socket::new(stream, phase.clone(), &app.config);
            tls.acceptor().accept(socket).await.map(Some)
        };
        // Slow clients, and those that do not speak TLS, are cut off without delaying others.
        let shaken = until_stop(&app, tokio::time::timeout(app.config.head_timeout, shake)).await;
        if let Some(Ok(Ok(Some(socket)))) = shaken {
            // The bytes of the handshake do not count as a part of a head.
            phase.next();
            phase.next();
            drive(socket, (phase, body_max), router, watcher).await;
        } else {
            app.counts.handshakes_failed.fetch_add(1, Relaxed);
        }
    } else {
        let socket = Socket::new(stream, phase.clone(), &app.config);
        drive(socket, (phase, body_max), router, watcher).await;
    }
    drop((open, place));
}

/// The result of `done`. `None` if the server stops before.
async fn until_stop<T>(app: &App, done: impl Future<Output = T>) -> Option<T> {
    let mut stopping = app.stopping();
    tokio::select! {
        done = done => Some(done),
        () = stopping.wait() => None,
    }
}

/// Serves the calls of a connection until it ends. `body_max` is the most bytes of a body.
async fn drive(
    socket: impl AsyncRead + AsyncWrite + Unpin + 'static,
    (phase, body_max): (Phase, usize),
    router: Router,
    watcher: Watcher,
) {
    let inner = TowerToHyperService::new(router);
    let cut = Cut::default();
    let given = cut.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let phase = phase.clone();
        request.extensions_mut().insert(phase.clone());
        phase.begin();
        request.extensions_mut().insert(given.clone());
        let (request, rest) = Rest::of(request);
        let call = inner.call(request);
        async move {
            let mut response = call.await;
            if let Ok(response) = &mut response {
                rest.end(response.headers_mut(), body_max).await;
            }
            phase.next();
            response
        }
    });
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(HEAD_MAX)
        .serve_connection(TokioIo::new(socket), service);
    tokio::select! {
        // Errors of a connection concern its client only.
        done = watcher.watch(connection) => drop(done),
        () = cut.wait() => {}
    }
}

/// Answers that there are too many connections.
async fn refuse(mut stream: TcpStream, place: OwnedSemaphorePermit) {
    let problem = Problem::new(
        Kind::Busy,
        "there are too many connections: come again later",
    );
    let body = problem.into_json();
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let talk = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&body).await?;
        stream.shutdown().await?;
        // Reads what was sent, because otherwise closing would discard the answer.
        let mut rest = [0; 4096];
        for _ in 0..16 {
            if stream.read(&mut rest).await? == 0 {
                break;
            }
        }
        std::io::Result::Ok(())
    };
    drop(tokio::time::timeout(Duration::from_secs(1), talk).await);
    drop(place);
}
