//! The same reports make the same rows, whether they are posted or imported, and in any order of
//! posting if the fleet's tags are declared. The clock stands still, so that all reports arrive at
//! the same time.

use std::path::Path;
use std::sync::Arc;

use base::clock::{Clock, SystemClock};
use base::rng::Rng;
use base::threads::SystemThreads;
use serde_json::{Value, json};
use tracks::files::Format;
use tracks::http::{Config, Server, Service};
use tracks::service::{Options, Tracks};
use tracks::store::{Engine, Family, Store};

use super::{agent, answer};
use crate::import::{by_import, rows, some};
use crate::world::{NOW, around, near};

/// A clock that always shows [`NOW`]; waits take real time.
#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn wall_micros(&self) -> u64 {
        NOW.0 as u64
    }

    fn monotonic_nanos(&self) -> u64 {
        SystemClock::shared().monotonic_nanos()
    }
}

/// A server that is stopped when this is dropped.
struct Served(Option<Server>);

impl Served {
    fn new(dir: &Path) -> Self {
        let store: Arc<dyn Store> = Arc::new(Engine::open(dir).unwrap());
        let tracks = Tracks::over(store, &Options::default(), Arc::new(Still), &SystemThreads);
        let service = Service {
            tracks: Arc::new(tracks.unwrap()),
            db: None,
            tokens: None,
        };
        let address = "127.0.0.1:0".parse().unwrap();
        Self(Some(
            Server::start(address, service, Config::default()).unwrap(),
        ))
    }

    fn url(&self, path: &str) -> String {
        let address = self.0.as_ref().unwrap().address();
        format!("http://{address}/v1/fleets/fleet{path}")
    }

    fn put(&self, path: &str, body: &Value) {
        let done = answer(agent().put(self.url(path)).send(body.to_string()));
        assert_eq!(done.status, 200, "{}", done.text);
    }

    /// Posts reports; returns how many were refused.
    fn post(&self, kind: &str, body: &str) -> u64 {
        let request = agent()
            .post(self.url("/reports"))
            .header("content-type", kind);
        let done = answer(request.send(body));
        assert!(matches!(done.status, 200 | 422), "{}", done.text);
        let json = done.json();
        json["refused"].as_array().map_or(0, |all| all.len() as u64)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.0.take().unwrap().stop().unwrap();
    }
}

/// Posts a file as lines, some at a time, or as a whole; returns how many reports were refused.
fn by_http(dir: &Path, format: Format, file: &str) -> u64 {
    let server = Served::new(dir);
    if format == Format::GeoJson {
        return server.post("application/geo+json", file);
    }
    let lines: Vec<&str> = file.lines().collect();
    let some = lines.chunks(37).map(|some| some.join("\n"));
    some.map(|body| server.post("application/x-ndjson", &body))
        .sum()
}

#[test]
fn an_import_is_what_posting_the_same_file_is() {
    let mut rng = Rng::new(43);
    for format in [Format::Ndjson, Format::GeoJson] {
        for before in [0, 150] {
            let dirs = [0; 2].map(|_| tempfile::tempdir().unwrap());
            let first = some(&mut rng, Format::Ndjson, before);
            for dir in dirs.iter().filter(|_| before > 0) {
                by_http(dir.path(), Format::Ndjson, &first);
            }
            let file = some(&mut rng, format, 400);
            let refused = by_http(dirs[0].path(), format, &file);
            let done = by_import(dirs[1].path(), format, file.as_bytes(), 1 << 20);
            assert!(refused > 0 && done.bad == refused, "{format}: {done:?}");
            let right = rows(dirs[0].path());
            assert!(right.len() > 100, "{format}: {}", right.len());
            assert!(rows(dirs[1].path()) == right, "{format} behind {before}");
        }
    }
}

/// Reports of walks as lines, each with a different time, with tags.
fn walks(rng: &mut Rng, count: i64) -> Vec<String> {
    let mut centres: Vec<_> = (0..12).map(|_| near(rng)).collect();
    let line = |n: i64| {
        let nth = rng.below(12) as usize;
        centres[nth] = around(rng, centres[nth], 0.01).degrees();
        let (lat, lon) = centres[nth];
        let tags = [&[][..], &["free"], &["bus", "free"], &["night"]][rng.below(4) as usize];
        let time = NOW.0 / 1_000_000 - count + n;
        json!({"entity": format!("car{nth}"), "time": time, "lat": lat, "lon": lon, "tags": tags})
            .to_string()
    };
    (0..count).map(line).collect()
}

/// With fences: only their state and events depend on the order of reports, as documented.
#[test]
fn neither_order_nor_repetition_of_posts_matters_where_tags_are_declared() {
    let mut rng = Rng::new(44);
    for round in 0..3 {
        let lines = walks(&mut rng, 400);
        let mut first = None;
        for turn in 0..3 {
            let mut all = lines.clone();
            all.extend((0..80).map(|_| lines[rng.below(400) as usize].clone()));
            let count = all.len() as u64;
            for n in (0..all.len()).filter(|_| turn > 0) {
                all.swap(n, rng.below(count) as usize);
            }
            let dir = tempfile::tempdir().unwrap();
            {
                let server = Served::new(dir.path());
                server.put("", &json!({"tags": ["night", "free", "bus"]}));
                let area = json!({"type": "Rectangle", "bbox": [16, 57, 18, 59]});
                server.put("/fences/f", &json!({"area": area, "tags": ["free"]}));
                while !all.is_empty() {
                    let take = 1 + rng.below(1 << (3 * turn)) as usize;
                    let some: Vec<_> = all.drain(..take.min(all.len())).collect();
                    assert_eq!(server.post("application/x-ndjson", &some.join("\n")), 0);
                }
            }
            let mut found = rows(dir.path());
            found.retain(|(family, ..)| !matches!(family, Family::Events | Family::Inside));
            let first = first.get_or_insert_with(|| found.clone());
            assert!(found == *first, "round {round}, turn {turn}");
        }
    }
}
