//! The tracking service: what comes over HTTP, and the rows and scratch files of a store.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use base::clock::SystemClock;
use base::{Error, Result};
use io::FileSystem;
use ironstone::WriteBatch;
use tracks::check;
use tracks::fence::{Events, Fences, State};
use tracks::fleets::Fleets;
use tracks::geo::position::Position;
use tracks::geo::shape::Rectangle;
use tracks::geo::surface::Surface;
use tracks::http::fuzzing::{KINDS, Read, read, webhooks};
use tracks::http::{Host, Hosts};
use tracks::import::fuzzing::{item, runs};
use tracks::keep;
use tracks::model::key::{CellKey, Entity, EntityKey, Fleet, PointKey, VisitKey};
use tracks::model::newest::{Here, Newest};
use tracks::model::point::Point;
use tracks::model::time::{SECOND, Time};
use tracks::mqtt::Broker;
use tracks::read::{self, Choice, Filter, Patience};
use tracks::store::{Family, Rows, Store, Told, View};
use tracks::write::fuzzing::purges;

use crate::frozen::{DIR, Frozen};

/// What is asked over HTTP: the last byte says of which kind it is.
pub fn tracks_http(data: &[u8]) {
    let Some((how, content)) = super::split(data) else {
        return;
    };
    let hosts = ["example.org:443", "[::1]"].map(|host| Host::new(host, true).expect("it is one"));
    let found = match how % (KINDS + 1) {
        KINDS => broker(content),
        kind => read(kind, content, &Hosts::new(hosts.to_vec())),
    };
    match found {
        Ok(None) => {}
        Ok(Some((first, again))) => assert_eq!(first, again),
        // A detail is for people; what was sent is not sent back.
        Err(why) => assert!(!why.is_empty() && why.len() < 4000, "{why}"),
    }
}

/// The address of a broker: of its parts the same one can be made.
fn broker(bytes: &[u8]) -> Read {
    let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
    let broker = Broker::parse(text).map_err(|e| e.to_string())?;
    let scheme = if broker.tls { "mqtts" } else { "mqtt" };
    let host = match broker.host.contains(':') {
        true => format!("[{}]", broker.host),
        false => broker.host.clone(),
    };
    let again = Broker::parse(&format!("{scheme}://{host}:{}", broker.port)).expect("it was one");
    Ok(Some((format!("{broker:?}"), format!("{again:?}"))))
}

/// What a store has: values and keys one by one, scratch of an import, or all rows of a small store.
pub fn tracks_rows(data: &[u8]) {
    let Some((how, content)) = super::split(data) else {
        return;
    };
    match how % 8 {
        0 => point(content),
        1 => {
            if let Ok(newest) = Newest::decode(content) {
                let point = newest.point.encode().expect("it was one");
                let bytes = Newest::encode(newest.name, (newest.time, newest.cell), &point);
                assert_eq!(Newest::decode(&bytes).expect("it was written"), newest);
            }
        }
        2 => {
            if let Ok(here) = Here::decode(content) {
                let bytes = here.encode();
                assert_eq!(Here::decode(&bytes).expect("it was written"), here);
            }
        }
        3 => {
            if let Ok(state) = State::decode(content) {
                assert_eq!(State::decode(&state.encode()).expect("it was written"), state);
            }
        }
        4 => keys(content),
        5 => {
            if let Ok(bytes) = item(content) {
                assert_eq!(bytes, content);
            }
        }
        6 => scratch(content),
        _ => store(content),
    }
}

fn point(bytes: &[u8]) {
    if let Ok(point) = Point::decode(bytes) {
        point.check().expect("fields are within their ranges");
        let bytes = point.encode().expect("it was one");
        assert_eq!(Point::decode(&bytes).expect("it was written"), point);
    }
}

fn keys(bytes: &[u8]) {
    if let Ok(key) = PointKey::of_bytes(bytes) {
        assert_eq!(key.to_bytes(), bytes);
    }
    if let Ok(key) = CellKey::of_bytes(bytes) {
        assert_eq!(key.to_bytes(), bytes);
    }
    if let Ok(key) = EntityKey::of_bytes(bytes) {
        assert_eq!(key.to_bytes(), bytes);
    }
    if let Ok(key) = VisitKey::of_bytes(bytes) {
        assert_eq!(key.to_bytes(), bytes);
    }
}

/// Two runs of an import, of which the second may be empty.
fn scratch(bytes: &[u8]) {
    let half = bytes.len() / 2;
    let (first, second) = bytes.split_at(half);
    let frozen = Frozen::default().with("a.run", first).with("b.run", second);
    let fs: Arc<dyn FileSystem> = Arc::new(frozen);
    let paths = ["a.run", "b.run"].map(|name| Path::new(DIR).join(name));
    for some in [&paths[..], &paths[..1]] {
        if let Ok((count, len)) = runs(&fs, some) {
            assert!(count * 4 + len <= bytes.len() + 8, "{count} items of {len} bytes");
        }
    }
}

/// Rows that nobody can change.
struct Hostile(BTreeMap<(Family, Vec<u8>), Vec<u8>>);

impl Hostile {
    /// Rows one behind the other: a byte of the family, one of the key's length, two of the value's.
    fn new(mut bytes: &[u8]) -> Self {
        let mut all = BTreeMap::new();
        while let [family, key, a, b, rest @ ..] = bytes {
            let family = Family::ALL[usize::from(*family) % Family::ALL.len()];
            let (key, rest) = rest.split_at(usize::from(*key).min(rest.len()));
            let value = usize::from(u16::from_le_bytes([*a, *b]));
            let (value, rest) = rest.split_at(value.min(rest.len()));
            all.insert((family, key.to_vec()), value.to_vec());
            bytes = rest;
        }
        Self(all)
    }
}

impl Store for Hostile {
    fn id(&self, family: Family) -> u32 {
        family as u32
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(&(family, key.to_vec())).cloned())
    }

    fn view(&self) -> Box<dyn View + '_> {
        Box::new(Seen(self))
    }

    fn write(&self, _: WriteBatch, _: Option<Told>) -> Result<u64> {
        Err(Error::not_supported("nobody writes here"))
    }

    fn last_number(&self) -> u64 {
        0
    }

    fn when_durable(&self, told: Told) {
        told(0, Ok(()));
    }

    fn wait_durable(&self, _: u64) -> Result<()> {
        Ok(())
    }
}

struct Seen<'a>(&'a Hostile);

impl View for Seen<'_> {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.0.get(family, key)
    }

    fn rows(&self, family: Family, from: &[u8], to: Option<&[u8]>) -> Result<Box<dyn Rows + '_>> {
        let is_in = |key: &[u8]| key >= from && to.is_none_or(|to| key < to);
        let range = (Bound::Included((family, Vec::new())), Bound::Unbounded);
        let all = self.0.0.range(range).take_while(|((of, _), _)| *of == family);
        let all = all.filter(|((_, key), _)| is_in(key));
        let all: Vec<(&[u8], &[u8])> = all.map(|((_, k), v)| (&k[..], &v[..])).collect();
        let at = all.len();
        Ok(Box::new(Going { all, at }))
    }
}

struct Going<'a> {
    all: Vec<(&'a [u8], &'a [u8])>,
    at: usize,
}

impl Rows for Going<'_> {
    fn seek(&mut self, key: &[u8]) {
        self.at = self.all.partition_point(|(k, _)| *k < key);
    }

    fn next(&mut self) {
        self.at += 1;
    }

    fn row(&self) -> Option<(&[u8], &[u8])> {
        self.all.get(self.at).copied()
    }

    fn status(&self) -> Result<()> {
        Ok(())
    }
}

/// All that reads a store: what is opened with it, what is checked, what is asked.
fn store(bytes: &[u8]) {
    let store = Hostile::new(bytes);
    let view = store.view();
    let told = |e: &Error| assert!(e.to_string().len() < 10_000, "{e}");
    if let Ok(fleets) = Fleets::open(&store) {
        webhooks(&store, &fleets).err().iter().for_each(told);
    }
    Fences::open(&store).err().iter().for_each(told);
    keep::marks(&*view).err().iter().for_each(told);
    let found = check::check(&store, check::Options { visits: true }, &mut |_| ());
    if let Ok(found) = &found {
        assert!(found.problems.len() as u64 <= found.count);
        found.problems.iter().for_each(|p| assert!(p.to_string().len() < 10_000));
    }
    let fleet = Fleet(1);
    if let Ok(events) = Events::open(&store) {
        let page = events.read(&store, fleet, 0, 100);
        page.err().iter().for_each(told);
    }
    let patience = || Patience::new(SystemClock::shared(), std::time::Duration::from_secs(5));
    let earth = Rectangle::of_degrees(-180.0, -90.0, 180.0, 90.0).expect("it is one");
    let all = Filter::default();
    let page = read::within(&*view, fleet, (&earth, all), (100, None), &patience());
    page.err().iter().for_each(told);
    let here = Position::of_degrees(0.0, 0.0).expect("it is one");
    let how = (10, f64::MAX, Surface::Sphere);
    let near = read::nearby(&*view, fleet, (here, all), how, &patience());
    near.err().iter().for_each(told);
    let density = read::density(&*view, fleet, (&earth, all), 20, &patience());
    density.err().iter().for_each(told);
    history(&*view, fleet, &earth);
}

/// What is read of the past: of the entity of the seeds, and of all during two days.
fn history(view: &dyn View, fleet: Fleet, earth: &Rectangle) {
    let told = |e: &Error| assert!(e.to_string().len() < 10_000, "{e}");
    let patience = || Patience::new(SystemClock::shared(), std::time::Duration::from_secs(5));
    let of = (fleet, ENTITY);
    read::latest(view, fleet, ENTITY).err().iter().for_each(told);
    read::name_of(view, fleet, ENTITY).err().iter().for_each(told);
    let simplified = Choice { simplify: Some(10.0), gap: 600 * SECOND, ..Choice::default() };
    let sparse = Choice { every: SECOND, max_points: 2, ..Choice::default() };
    for choice in [Choice::default(), simplified, sparse] {
        match read::track(view, of, &choice, &patience()) {
            Ok(track) => {
                let points = track.parts.iter().map(Vec::len).sum::<usize>();
                assert!(points <= choice.max_points && track.parts.iter().all(|part| !part.is_empty()));
            }
            Err(e) => told(&e),
        }
    }
    for surface in [Surface::Sphere, Surface::Ellipsoid] {
        match read::summary(view, of, (Time::MIN, Time::MAX, surface), &patience()) {
            Ok(summary) => assert!(summary.moving() >= 0 && summary.metres >= 0.0, "{summary:?}"),
            Err(e) => told(&e),
        }
    }
    let day = 86_400 * SECOND;
    let (from, to) = (Time(TIME.0 - day), Time(TIME.0 + day));
    let was_here = read::visitors(view, fleet, (earth, from, to), (100, None), &patience());
    was_here.err().iter().for_each(told);
    match purges(view) {
        Ok(found) => assert!(found.entities <= found.rows),
        Err(e) => told(&e),
    }
}

/// The entity and the time of the seeds.
const ENTITY: Entity = Entity(7);
const TIME: Time = Time(1_700_000_000 * SECOND);

/// What fuzzing begins with.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let http = tracks::http::fuzzing::SEEDS.iter().zip(0..);
    let http = http.map(|(text, kind)| ("tracks_http", [text.as_bytes(), &[kind]].concat()));
    let http = http.chain([("tracks_http", [&b"mqtts://[::1]:8884"[..], &[KINDS]].concat())]);
    let position = Position::of_degrees(59.3, 18.1).expect("it is one");
    let mut point = Point::at(position);
    (point.speed, point.course, point.altitude) = (Some(7), Some(9000), Some(-5));
    (point.battery, point.tags) = (Some(80), 3);
    point.attributes = "{\"a\":1}".to_owned();
    let (fleet, entity, time) = (Fleet(1), ENTITY, TIME);
    let cell = tracks::geo::cell::Cell::of(position);
    let bytes = point.encode().expect("it is one");
    let newest = Newest::encode("car ü", (time, cell), &bytes);
    let here = Here::of("car ü", time, &point).encode();
    let key = PointKey { fleet, entity, time }.to_bytes();
    let at = CellKey { fleet, cell, entity }.to_bytes();
    let of = EntityKey { fleet, entity }.to_bytes();
    let (bucket, depth) = (time.bucket(), VisitKey::DEPTH);
    let visit = VisitKey { fleet, bucket, cell: cell.at_depth(depth), entity }.to_bytes();
    let one = |len: usize, bytes: &[u8]| [&(len as u32).to_le_bytes()[..], bytes].concat();
    let run = [one(3, b"abc"), one(0, b""), one(5, b"defgh")].concat();
    let sorted = [&key[..], &[0; 8], &[5], b"car12", &bytes].concat();
    let state = State {
        newest: 9,
        inside: vec![tracks::fence::Inside { fence: 5, since: time, has_dwelled: true }],
        ..State::default()
    };
    let row = |family: u8, key: &[u8], value: &[u8]| {
        let len = (value.len() as u16).to_le_bytes();
        [&[family, key.len() as u8, len[0], len[1]], key, value].concat()
    };
    let meta = |key: &[u8], value: &[u8]| row(5, key, value);
    let store = [
        row(0, &key, &bytes),
        row(1, &at, &here),
        row(2, &of, &newest),
        row(3, &visit, b""),
        row(4, &of, "car ü".as_bytes()),
        meta(b"fleet/taxis", b"\0\0\0\x01{\"tags\":[\"free\"],\"keep_days\":7}"),
        meta(b"webhook/1/hook", b"{\"id\":1,\"url\":\"https://example.org/\",\"secret\":\"s\",\"events\":[],\
            \"fences\":[],\"cursor\":5}"),
        row(6, b"\0\0\0\x01depot", b"{\"number\":5,\"tags\":0,\"definition\":{\"area\":{\"type\":\"circle\",\
            \"centre\":[18.1,59.3],\"radius\":500}}}"),
        row(7, &of, &state.encode()),
        row(8, b"\0\0\0\x01\0\0\0\0\0\0\0\x09", b"{\"kind\":\"enter\",\"fence\":\"depot\",\"entity\":\"car\",\"time\":5,\"lat\":1.5,\"lon\":2.5}"),
        meta(b"kept/\0\0\0\x01", &[0; 16]),
        meta(&[&b"purge/"[..], &of, &[0; 16]].concat(), b"\x03\x04\0\0\0\x01\x04\0\0\0\x01"),
    ]
    .concat();
    let rows: [(u8, Vec<u8>); 12] = [
        (0, bytes),
        (1, newest),
        (2, here),
        (3, state.encode()),
        (4, key.to_vec()),
        (4, at.to_vec()),
        (4, of.to_vec()),
        (4, visit.to_vec()),
        (5, sorted),
        (6, [run.clone(), run].concat()),
        (7, store),
        (7, Vec::new()),
    ];
    let rows = rows.into_iter();
    let rows = rows.map(|(how, bytes)| ("tracks_rows", [bytes, vec![how]].concat()));
    http.chain(rows).collect()
}
