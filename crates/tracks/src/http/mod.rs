//! The service over HTTP: JSON in and out, errors as RFC 9457, described by `/openapi.json`.
//!
//! ```text
//!   server ─ socket, rest     connections, their limits and their end
//!     └ mod ─ guard     routes; tokens, scopes and rates
//!         ├ devices     messages of phones and trackers
//!         ├ ingest      body ─> source ─> json ─> reports ─> the shards
//!         ├ entities, areas, fleets, fences, export, backups, status, webhook
//!         ├ web         the map
//!         ├ events, stream ─ feed, positions, sse     events and positions as they happen
//!         └ answers     their answers; problem: errors; openapi: the description of all calls
//! ```

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use axum::Router;
use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use axum::routing::{MethodRouter, delete, get, post, put};
use base::Result;
use base::clock::Clock;
use ironstone::Db;
use serde::Serialize;
use tokio::sync::{Semaphore, watch};

use crate::devices::Intake;
use crate::model::name::Name;
use crate::notices::Notices;
use crate::read::Patience;
use crate::service::Tracks;

mod answers;
mod areas;
mod ask;
mod backups;
mod body;
mod devices;
mod entities;
mod events;
mod export;
mod feed;
mod fences;
mod fleets;
#[doc(hidden)]
pub mod fuzzing;
mod geojson;
mod guard;
mod ingest;
mod json;
mod limits;
mod metrics;
mod openapi;
mod origin;
mod params;
mod positions;
mod problem;
mod rest;
mod server;
mod socket;
mod source;
mod sse;
mod status;
mod stream;
mod time;
pub mod tls;
pub mod tokens;
mod web;
mod webhook;

pub use server::{Server, Service};
pub use web::Map;
pub use webhook::{Host, Hosts, Options as WebhookOptions};

use problem::Problem;
use tokens::{Scope, Tokens};

/// The configuration of the HTTP interface.
#[derive(Clone, Debug)]
pub struct Config {
    /// The most bytes of a body, as it is sent.
    pub body_max: usize,
    /// The most bytes of a body after decompression.
    pub inflated_max: usize,
    /// The memory for bodies and large answers of all calls, bytes; further calls are answered with
    /// 503.
    pub memory: usize,
    /// The most bytes of a page of a track; a longer track has further pages.
    pub page_max: usize,
    /// The most open connections; further ones are answered with 503.
    pub connections: usize,
    /// The most concurrent streams; further ones are answered with 503. Tokens share them like
    /// exports.
    pub streams: usize,
    /// The most concurrent queries; further ones wait for at most [`Config::queue_timeout`]. If
    /// there are several tokens, each has at most half of them, and at least one.
    pub queries: usize,
    /// How long a query waits for its turn.
    pub queue_timeout: Duration,
    /// How long a query may run.
    pub query_timeout: Duration,
    /// The time for the head of a request, from its first byte on; on a new connection, also the
    /// time for that byte.
    pub head_timeout: Duration,
    /// The time for the body of a request, from its head on.
    pub body_timeout: Duration,
    /// The least average rate, bytes per second, at which a body must arrive and a client must take
    /// an answer. 0 means no limit.
    pub rate_min: usize,
    /// How far a body may lag behind that rate.
    pub body_lag: Duration,
    /// A client that takes nothing of an answer for this time, or lags this far behind the least
    /// rate, is cut off.
    pub write_timeout: Duration,
    /// A connection without a further request is closed after this time.
    pub idle_timeout: Duration,
    /// How long a call waits for the device.
    pub durable_timeout: Duration,
    /// How long calls may go on when the server stops.
    pub drain_timeout: Duration,
    /// The most concurrent exports; further ones are answered with 503. If there are several
    /// tokens, each has at most half of them, and at least one.
    pub exports: usize,
    /// How long an export may take before it is aborted.
    pub export_timeout: Duration,
    /// The folder of backups. `None` disables backups.
    pub backups: Option<PathBuf>,
    /// The fleet of phones and trackers that name no other.
    pub device_fleet: String,
    /// Where notices for the operator go.
    pub notices: Notices,
    /// The certificate for TLS on all connections. `None` disables TLS.
    pub tls: Option<Arc<tls::Tls>>,
    /// What the map shows beneath the objects.
    pub map: Map,
    /// Where webhooks may go, and how they are sent.
    pub webhooks: WebhookOptions,
}

impl Default for Config {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            body_max: 8 << 20,
            inflated_max: 64 << 20,
            memory: 256 << 20,
            page_max: 16 << 20,
            connections: 10_240,
            streams: 1000,
            queries: 16,
            queue_timeout: seconds(10),
            query_timeout: seconds(30),
            head_timeout: seconds(10),
            body_timeout: seconds(60),
            rate_min: 1024,
            body_lag: seconds(10),
            write_timeout: seconds(30),
            idle_timeout: seconds(300),
            durable_timeout: seconds(30),
            drain_timeout: seconds(30),
            exports: 4,
            export_timeout: seconds(6 * 3600),
            backups: None,
            device_fleet: "devices".to_owned(),
            notices: Notices::default(),
            tls: None,
            map: Map::default(),
            webhooks: WebhookOptions::default(),
        }
    }
}

/// The most bodies that are processed at a time on blocking threads, so that others are left for
/// queries.
const BODIES: usize = 16;

/// The state that all calls share.
pub(crate) struct App {
    tracks: Arc<Tracks>,
    /// For the metrics of the database.
    db: Option<Arc<Db>>,
    config: Config,
    tokens: ArcSwapOption<Tokens>,
    /// Whether it listens on this machine only, and has no tokens.
    is_local: bool,
    intake: Arc<Intake>,
    clock: Arc<dyn Clock>,
    /// Identifies this start in receipts.
    start: String,
    memory: limits::Memory,
    queries: limits::Places,
    /// Places for the processing of bodies.
    bodies: Arc<Semaphore>,
    exports: limits::Places,
    /// One place, for the task that tries whether the store takes writes again.
    trying: Arc<Semaphore>,
    backing_up: Arc<Semaphore>,
    drain: limits::Drain,
    counts: metrics::Counts,
    stopping: watch::Sender<bool>,
    feeds: feed::Feeds,
    positions: positions::Positions,
    webhooks: webhook::Webhooks,
    /// Places for streams.
    streams: limits::Places,
}

/// Tells when the server stops, or a part of it.
#[derive(Clone, Debug)]
pub(crate) struct Stopping(watch::Receiver<bool>);

impl Stopping {
    /// Returns when it stops.
    pub(crate) async fn wait(&mut self) {
        // An error means that the sender is gone, which is the same.
        drop(self.0.wait_for(|stops| *stops).await);
    }

    /// Whether it stops already.
    pub(crate) fn is_now(&self) -> bool {
        *self.0.borrow()
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "App({})", self.start)
    }
}

impl App {
    fn new(
        service: Service,
        config: Config,
        (listen, clock): (SocketAddr, Arc<dyn Clock>),
    ) -> Result<Self> {
        let fleet = Name::new(&config.device_fleet)?;
        let tracks = Arc::clone(&service.tracks);
        tracks.say_to(config.notices.clone());
        let intake = Intake::new(tracks, fleet, Arc::clone(&clock), config.notices.clone());
        let tracks = &service.tracks;
        let (store, hosts) = (tracks.store(), config.webhooks.hosts.clone());
        let seed = u64::from_le_bytes(tokens::random()?);
        let webhooks = webhook::Webhooks::open(&**store, tracks.fleets(), hosts, seed)?;
        Ok(Self {
            webhooks,
            tracks: service.tracks,
            db: service.db,
            is_local: listen.ip().is_loopback() && service.tokens.is_none(),
            tokens: ArcSwapOption::new(service.tokens.map(Arc::new)),
            intake: Arc::new(intake),
            clock,
            start: tokens::hex(&tokens::random::<16>()?),
            memory: limits::Memory::new(config.memory),
            queries: limits::Places::new(config.queries),
            bodies: Arc::new(Semaphore::new(BODIES)),
            exports: limits::Places::new(config.exports),
            trying: Arc::new(Semaphore::new(1)),
            backing_up: Arc::new(Semaphore::new(1)),
            drain: limits::Drain::default(),
            counts: metrics::Counts::default(),
            stopping: watch::Sender::new(false),
            feeds: feed::Feeds::new(),
            positions: positions::Positions::default(),
            streams: limits::Places::new(config.streams),
            config,
        })
    }

    fn now(&self) -> u64 {
        self.clock.monotonic_nanos()
    }

    /// Whether there is more than one token.
    fn has_more_tokens(&self) -> bool {
        let tokens = self.tokens.load();
        tokens.as_ref().is_some_and(|tokens| tokens.count() > 1)
    }

    /// The token whose share of places a call uses. `None` if the call has no token, or there is no
    /// other one.
    fn sharer(&self) -> Option<Arc<tokens::Token>> {
        guard::caller().filter(|_| self.has_more_tokens())
    }

    fn patience(&self) -> Patience {
        Patience::new(Arc::clone(&self.clock), self.config.query_timeout)
    }

    fn stop(&self) {
        self.stopping.send_replace(true);
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    pub(crate) fn stopping(&self) -> Stopping {
        Stopping(self.stopping.subscribe())
    }
}

/// A route.
struct Route {
    method: &'static str,
    path: &'static str,
    /// The scope that a token needs. `None` if no token is needed.
    scope: Option<Scope>,
    handler: MethodRouter<Arc<App>>,
}

fn table() -> Vec<Route> {
    let route = |method, path, scope, handler| Route {
        method,
        path,
        scope,
        handler,
    };
    let (ingest, read, admin) = (Some(Scope::Ingest), Some(Scope::Read), Some(Scope::Admin));
    let fleet = "/v1/fleets/{fleet}";
    let reports = "/v1/fleets/{fleet}/reports";
    let durable = "/v1/durable/{receipt}";
    let entity = "/v1/fleets/{fleet}/entities/{entity}";
    let track = "/v1/fleets/{fleet}/entities/{entity}/track";
    let summary = "/v1/fleets/{fleet}/entities/{entity}/summary";
    let points = "/v1/fleets/{fleet}/export";
    let within = "/v1/fleets/{fleet}/within";
    let nearby = "/v1/fleets/{fleet}/nearby";
    let density = "/v1/fleets/{fleet}/density";
    let change = Some(Scope::Fences);
    let fences = "/v1/fleets/{fleet}/fences";
    let fence = "/v1/fleets/{fleet}/fences/{fence}";
    let events = "/v1/fleets/{fleet}/events";
    let stream = "/v1/fleets/{fleet}/stream";
    let webhooks = "/v1/fleets/{fleet}/webhooks";
    let webhook = "/v1/fleets/{fleet}/webhooks/{webhook}";
    vec![
        route("post", reports, ingest, post(ingest::reports)),
        route("get", durable, ingest, get(ingest::durable)),
        route("get", "/v1/fleets", read, get(fleets::list)),
        route("get", fleet, read, get(fleets::settings)),
        route("put", fleet, admin, put(fleets::change)),
        route("get", entity, read, get(entities::latest)),
        route("delete", entity, admin, delete(entities::erase)),
        route("get", track, read, get(entities::track)),
        route("get", summary, read, get(entities::summary)),
        route("get", within, read, get(areas::within)),
        route("post", within, read, post(areas::within_polygon)),
        route("get", nearby, read, get(areas::nearby)),
        route("get", density, read, get(areas::density)),
        route("get", points, read, get(export::points)),
        route("get", "/v1/backups", admin, get(backups::list)),
        route("post", "/v1/backups", admin, post(backups::make)),
        route("post", "/owntracks", ingest, post(devices::owntracks)),
        route("get", "/osmand", ingest, get(devices::osmand)),
        route("post", "/osmand", ingest, post(devices::osmand_post)),
        route("get", fences, read, get(fences::list)),
        route("get", fence, read, get(fences::show)),
        route("put", fence, change, put(fences::put)),
        route("delete", fence, change, delete(fences::delete)),
        route("get", events, read, get(events::list)),
        route("get", stream, read, get(stream::stream)),
        route("get", webhooks, admin, get(webhook::list)),
        route("get", webhook, admin, get(webhook::show)),
        route("put", webhook, admin, put(webhook::put)),
        route("delete", webhook, admin, delete(webhook::delete)),
        route("get", "/healthz", None, get(status::health)),
        route("get", "/readyz", None, get(status::ready)),
        route("get", "/metrics", admin, get(status::metrics)),
        route("get", "/openapi.json", None, get(status::openapi)),
    ]
}

/// The methods and paths of all calls.
pub fn routes() -> Vec<(&'static str, &'static str)> {
    let all = table().into_iter();
    all.map(|route| (route.method, route.path)).collect()
}

/// For metrics, whose labels must not be arbitrary paths from clients.
static PATHS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    routes()
        .into_iter()
        .map(|(_, path)| path)
        .chain(web::PATHS)
        .collect()
});

fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new();
    for route in table() {
        let handler = guard::guarded(app, route.scope, route.handler);
        router = router.route(route.path, handler);
    }
    let router = web::routes(router)
        .fallback(status::no_such_path)
        .method_not_allowed_fallback(status::no_such_method);
    guard::counted(app, router).with_state(Arc::clone(app))
}

/// A JSON response.
fn answer_of(app: &App, answer: &impl Serialize) -> std::result::Result<Response, Problem> {
    let json = serde_json::to_vec(answer).map_err(Problem::internal)?;
    typed_answer(app, "application/json", json)
}

/// A response with a body. The memory of a large one is counted until it is sent.
fn typed_answer(
    app: &App,
    content_type: &'static str,
    body: Vec<u8>,
) -> std::result::Result<Response, Problem> {
    held_answer(app, content_type, body, limits::Held::default())
}

/// Like [`typed_answer`], with memory that is already reserved.
fn held_answer(
    app: &App,
    content_type: &'static str,
    body: Vec<u8>,
    mut held: limits::Held,
) -> std::result::Result<Response, Problem> {
    const SMALL: usize = 16 * 1024;
    if body.len() > SMALL && !app.memory.grow(&mut held, body.capacity()) {
        return Err(body::no_memory());
    }
    held.shrink(body.capacity());
    let mut response = Response::new(Body::from(body::counted(body, held)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    Ok(response)
}
