//! The service over HTTP: calls, errors, limits, tokens, and shutdown.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::clock::SystemClock;
use base::threads::SystemThreads;
use serde_json::{Value, json};
use tracks::http::tokens::Tokens;
use tracks::http::{Config, Server, Service};
use tracks::service::{Options, Tracks};
use tracks::store::{Engine, Store};

mod calls;
mod devices;
mod docs;
mod equal;
mod errors;
mod fences;
mod hostile;
mod kills;
mod limits;
mod neighbour;
mod overload;
mod pages;
mod process;
mod receiver;
mod shares;
mod sigterm;
mod slow;
mod stalled;
mod streams;
pub(crate) mod tls;
mod web;
mod webhooks;
mod whole;

const TIMEOUT: Duration = Duration::from_secs(15);

/// A server in this process, with a temporary folder.
pub(crate) struct World {
    pub(crate) server: Option<Server>,
    dir: tempfile::TempDir,
    agent: ureq::Agent,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: ureq::http::HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    /// The status of a problem, and the last part of its type.
    fn problem(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), "application/problem+json");
        let json = self.json();
        assert_eq!(json["status"], self.status);
        assert!(!json["detail"].as_str().unwrap().is_empty() && json["title"].is_string());
        let kind = json["type"].as_str().unwrap();
        (
            self.status,
            kind.strip_prefix("/problems/").unwrap().to_owned(),
        )
    }

    fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    fn detail(&self) -> String {
        self.json()["detail"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .http_status_as_error(false)
        .build();
    ureq::Agent::new_with_config(config)
}

fn start(dir: &Path, options: &Options, config: Config, tokens: Option<Tokens>) -> Server {
    let engine = Engine::open(dir).unwrap();
    let db = Some(Arc::clone(engine.db()));
    let store: Arc<dyn Store> = Arc::new(engine);
    let tracks = Tracks::over(store, options, SystemClock::shared(), &SystemThreads).unwrap();
    let service = Service {
        tracks: Arc::new(tracks),
        db,
        tokens,
    };
    Server::start("127.0.0.1:0".parse().unwrap(), service, config).unwrap()
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(&Options::default(), Config::default(), None)
    }

    pub(crate) fn with(options: &Options, config: Config, tokens: Option<Tokens>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = Some(start(dir.path(), options, config, tokens));
        Self {
            server,
            dir,
            agent: agent(),
        }
    }

    /// A server over a store, whose folder may be `dir`.
    pub(crate) fn over(
        dir: tempfile::TempDir,
        store: Arc<dyn Store>,
        options: &Options,
        (config, tokens): (Config, Option<Tokens>),
    ) -> Self {
        let tracks = Tracks::over(store, options, SystemClock::shared(), &SystemThreads).unwrap();
        let service = Service {
            tracks: Arc::new(tracks),
            db: None,
            tokens,
        };
        let server = Server::start("127.0.0.1:0".parse().unwrap(), service, config).unwrap();
        Self {
            server: Some(server),
            dir,
            agent: agent(),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.as_ref().unwrap().address()
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.get_as(path, "")
    }

    fn get_as(&self, path: &str, token: &str) -> Answer {
        let mut request = self.agent.get(self.url(path));
        if !token.is_empty() {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        answer(request.call())
    }

    fn send(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut request = self.agent.post(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answer(request.send(body))
    }

    fn post(&self, path: &str, body: &str) -> Answer {
        self.send(path, &[], body.as_bytes())
    }

    fn put(&self, path: &str, body: &str) -> Answer {
        answer(self.agent.put(self.url(path)).send(body))
    }

    fn delete(&self, path: &str) -> Answer {
        answer(self.agent.delete(self.url(path)).call())
    }

    /// A circle of 500 m at latitude 59, or the given area.
    fn fence(&self, name: &str, lon: f64) -> Value {
        let area = json!({"type": "Circle", "center": [lon, 59.0], "radius": 500});
        let body = json!({ "area": area }).to_string();
        let answer = self.put(&format!("/v1/fleets/f/fences/{name}"), &body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    }

    /// All events of the fleet.
    fn events(&self) -> Vec<Value> {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let page = self.get(&format!("/v1/fleets/f/events?after={after}&limit=10000"));
            let json = page.json();
            let events = json["events"].as_array().unwrap();
            if events.is_empty() {
                return all;
            }
            all.extend(events.iter().cloned());
            after = json["next"].as_u64().unwrap();
        }
    }

    /// Posts reports that must all be taken.
    fn report(&self, body: &str) -> Value {
        let answer = self.post("/v1/fleets/f/reports", body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop().unwrap();
        }
    }
}

fn answer(done: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Answer {
    let mut response = done.unwrap();
    Answer {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        text: response.body_mut().read_to_string().unwrap(),
    }
}

/// Waits until a condition holds, by polling.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = SystemClock::shared();
    let end = clock.monotonic_nanos() + 2 * TIMEOUT.as_nanos() as u64;
    while !holds() {
        assert!(
            clock.monotonic_nanos() < end,
            "{what}: not within {:?}",
            2 * TIMEOUT
        );
        clock.sleep(Duration::from_millis(20));
    }
}

/// Reads until the other side closes, which it must within five seconds of its last byte.
fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let mut piece = [0; 4096];
    loop {
        match stream.read(&mut piece) {
            Ok(len) if len > 0 => bytes.extend_from_slice(&piece[..len]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("still open after {:?}", String::from_utf8_lossy(&bytes))
            }
            _ => break,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Measures how long something takes.
fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let clock = SystemClock::shared();
    let begin = clock.monotonic_nanos();
    let done = run();
    (done, Duration::from_nanos(clock.monotonic_nanos() - begin))
}

fn thread<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> Joined<T> {
    base::sync::thread::Builder::new().spawn(run).unwrap()
}

type Joined<T> = base::sync::thread::JoinHandle<T>;

fn line(entity: &str, time: f64, lat: f64, lon: f64) -> String {
    json!({ "entity": entity, "lat": lat, "lon": lon, "time": time }).to_string()
}

const T: f64 = 1_700_000_000.0;
