//! `check` finds faults: for each of its rules, the binary checks a store in which one row breaks
//! it.

use std::path::Path;
use std::process::{Command, Output};

use ironstone::WriteBatch;
use serde_json::Value;
use tracks::geo::cell::Cell;
use tracks::geo::position::Position;
use tracks::model::key::{CellKey, Entity, EntityKey, Fleet, PointKey, VisitKey};
use tracks::model::newest::{Here, Newest};
use tracks::model::point::Point;
use tracks::model::time::{SECOND, Time};
use tracks::store::{Engine, Family, Store};

use crate::world::{NOW, World, at, report};

/// A store with two entities, and the rows of the first one.
struct Broken {
    dir: tempfile::TempDir,
    engine: Engine,
    fleet: Fleet,
    entity: Entity,
}

fn home() -> Position {
    at(59.0, 18.0)
}

fn old_home() -> Position {
    at(10.0, 20.0)
}

impl Broken {
    /// The first entity was elsewhere at first, and then twice at the same place.
    fn new() -> Self {
        let world = World::new();
        let fleet = world.fleet().fleet;
        for (entity, seconds, place) in [
            ("a", -3000, old_home()),
            ("a", -60, home()),
            ("a", 0, home()),
            ("b", 0, at(-33.0, 151.0)),
        ] {
            assert!(world.send(vec![report(entity, seconds, place)])[0].is_ok());
        }
        world.check();
        let World { tracks, dir } = world;
        drop(tracks);
        let engine = Engine::open(dir.path()).unwrap();
        let entity = {
            let view = engine.view();
            let mut rows = view.rows(Family::Entities, &[], None).unwrap();
            rows.seek(&[]);
            let mut found = None;
            while let Some((key, name)) = rows.row() {
                if name == b"a" {
                    found = Some(EntityKey::of_bytes(key).unwrap().entity);
                }
                rows.next();
            }
            found.unwrap()
        };
        Self {
            dir,
            engine,
            fleet,
            entity,
        }
    }

    fn key(&self) -> EntityKey {
        let (fleet, entity) = (self.fleet, self.entity);
        EntityKey { fleet, entity }
    }

    fn point(&self, seconds: i64) -> PointKey {
        let (fleet, entity) = (self.fleet, self.entity);
        let time = Time(NOW.0 + seconds * SECOND);
        PointKey {
            fleet,
            entity,
            time,
        }
    }

    fn index(&self, place: Position) -> CellKey {
        let (fleet, entity) = (self.fleet, self.entity);
        let cell = Cell::of(place);
        CellKey {
            fleet,
            cell,
            entity,
        }
    }

    fn visit(&self, seconds: i64, place: Position) -> VisitKey {
        let (fleet, entity) = (self.fleet, self.entity);
        let cell = Cell::of(place).at_depth(VisitKey::DEPTH);
        let bucket = self.point(seconds).time.bucket();
        VisitKey {
            fleet,
            bucket,
            cell,
            entity,
        }
    }

    fn get(&self, family: Family, key: &[u8]) -> Vec<u8> {
        self.engine.get(family, key).unwrap().unwrap()
    }

    fn put(&self, family: Family, key: &[u8], value: &[u8]) {
        let mut batch = WriteBatch::new();
        let id = self.engine.id(family);
        batch.cf_id(id).put(key, value).unwrap();
        self.engine.write(batch, None).unwrap();
    }

    /// Deletes a row, which must exist.
    fn delete(&self, family: Family, key: &[u8]) {
        self.get(family, key);
        let mut batch = WriteBatch::new();
        batch.cf_id(self.engine.id(family)).delete(key).unwrap();
        self.engine.write(batch, None).unwrap();
    }

    /// Writes the newest point of the first entity, with this time, place and content.
    fn put_newest(&self, time: Time, place: Position, point: &[u8]) {
        let value = Newest::encode("a", (time, Cell::of(place)), point);
        self.put(Family::Latest, &self.key().to_bytes(), &value);
    }

    fn close(self) -> tempfile::TempDir {
        let Self { dir, engine, .. } = self;
        engine.wait_durable(engine.last_number()).unwrap();
        drop(engine);
        dir
    }
}

fn run(dir: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ironstone-tracks"));
    let command = command.arg("check").args(args).arg("--dir").arg(dir);
    command.output().unwrap()
}

/// The problems that the binary reports: families and texts. Checks that the exit code agrees.
fn wrong(dir: &Path, args: &[&str]) -> Vec<(String, String)> {
    let out = run(dir, &[args, &["--json"]].concat());
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    let problems = json["problems"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let said = |p: &Value| (text(&p["family"]), text(&p["what"]));
    let all: Vec<(String, String)> = problems.iter().map(said).collect();
    assert_eq!(json["wrong"], all.len());
    assert_eq!(out.status.code(), Some(i32::from(!all.is_empty())));
    // The same as text.
    let out = run(dir, args);
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(i32::from(!all.is_empty())));
    for (family, what) in &all {
        let is_it = |line: &str| {
            line.starts_with(&format!("wrong: {family}, key ")) && line.ends_with(what)
        };
        assert!(text.lines().any(is_it), "{family}, {what}: {text}");
    }
    all
}

type Case = (
    &'static str,
    fn(&Broken),
    &'static [(&'static str, &'static str)],
);

/// A change of one row, and all problems that it causes.
const CASES: &[Case] = &[
    ("nothing", |_| (), &[]),
    (
        "a second row of the index, in another cell",
        |b| {
            let here = b.get(Family::Geohash, &b.index(home()).to_bytes());
            b.put(Family::Geohash, &b.index(old_home()).to_bytes(), &here);
        },
        &[("geohash", "the entity is in another cell")],
    ),
    (
        "a row of the index of an entity that is not there",
        |b| {
            let mut key = b.index(home());
            let here = b.get(Family::Geohash, &key.to_bytes());
            key.entity = Entity(b.entity.0 + 1000);
            b.put(Family::Geohash, &key.to_bytes(), &here);
        },
        &[("geohash", "the entity is in another cell")],
    ),
    (
        "no row of the index",
        |b| b.delete(Family::Geohash, &b.index(home()).to_bytes()),
        &[("geohash", "it is not as latest has it")],
    ),
    (
        "a row of the index from before the last report",
        |b| {
            let time = b.point(-60).time;
            let here = Here::of("a", time, &Point::at(home())).encode();
            b.put(Family::Geohash, &b.index(home()).to_bytes(), &here);
        },
        &[("geohash", "it is not as latest has it")],
    ),
    (
        "the entity and its row of the index in an old cell",
        |b| {
            let newest = b.point(0);
            let point = b.get(Family::Default, &newest.to_bytes());
            let here = b.get(Family::Geohash, &b.index(home()).to_bytes());
            b.put_newest(newest.time, old_home(), &point);
            b.put(Family::Geohash, &b.index(old_home()).to_bytes(), &here);
            b.delete(Family::Geohash, &b.index(home()).to_bytes());
        },
        &[("latest", "its cell is not its position's")],
    ),
    (
        "no newest point",
        |b| b.delete(Family::Latest, &b.key().to_bytes()),
        &[
            ("latest", "the newest point is missing"),
            ("geohash", "the entity is in another cell"),
        ],
    ),
    (
        "an older point as the newest, at another place",
        |b| {
            let old = b.point(-3000);
            let point = b.get(Family::Default, &old.to_bytes());
            b.put_newest(old.time, old_home(), &point);
            let here = Here::of("a", old.time, &Point::decode(&point).unwrap()).encode();
            b.put(Family::Geohash, &b.index(old_home()).to_bytes(), &here);
            b.delete(Family::Geohash, &b.index(home()).to_bytes());
        },
        &[("latest", "it is not the newest point's")],
    ),
    (
        "an older point as the newest, and they differ in nothing but their times",
        |b| {
            let old = b.point(-60);
            let point = b.get(Family::Default, &b.point(0).to_bytes());
            b.put(Family::Default, &old.to_bytes(), &point);
            b.put_newest(old.time, home(), &point);
            let here = Here::of("a", old.time, &Point::decode(&point).unwrap()).encode();
            b.put(Family::Geohash, &b.index(home()).to_bytes(), &here);
        },
        &[("latest", "it is not the newest point's")],
    ),
    (
        "a newest point that history lacks",
        |b| b.delete(Family::Default, &b.point(0).to_bytes()),
        &[
            ("latest", "it is not the newest point's"),
            ("latest", "the point is not in default"),
        ],
    ),
    (
        "no visit",
        |b| b.delete(Family::Visits, &b.visit(-3000, old_home()).to_bytes()),
        &[("default", "its visit is missing")],
    ),
    (
        "no name",
        |b| b.delete(Family::Entities, &b.key().to_bytes()),
        &[
            ("entities", "an entity with points has no name"),
            ("latest", "its name is not the entity's"),
            ("geohash", "it is not as latest has it"),
        ],
    ),
    (
        "another name in latest",
        |b| {
            let newest = b.point(0);
            let point = b.get(Family::Default, &newest.to_bytes());
            let value = Newest::encode("b", (newest.time, Cell::of(home())), &point);
            b.put(Family::Latest, &b.key().to_bytes(), &value);
        },
        &[("latest", "its name is not the entity's")],
    ),
    (
        "a point with a key that is none",
        |b| b.put(Family::Default, b"short", &[]),
        &[(
            "default",
            "Corruption: default: a key of 5 bytes, and not of 20",
        )],
    ),
    (
        "a point that is none",
        |b| b.put(Family::Default, &b.point(-3000).to_bytes(), &[1, 2]),
        &[("default", "Corruption: a point that cannot be")],
    ),
    (
        "a newest point with a key that is none",
        |b| b.put(Family::Latest, b"short", &[]),
        &[(
            "latest",
            "Corruption: latest: a key of 5 bytes, and not of 12",
        )],
    ),
    (
        "a newest point that is none",
        |b| b.put(Family::Latest, &b.key().to_bytes(), &[7; 9]),
        &[
            ("latest", "it is not the newest point's"),
            ("latest", "Corruption: latest: a value that is too short"),
            ("geohash", "the entity is in another cell"),
        ],
    ),
    (
        "a row of the index with a key that is none",
        |b| b.put(Family::Geohash, b"short", &[]),
        &[(
            "geohash",
            "Corruption: geohash: a key of 5 bytes, and not of 17",
        )],
    ),
    (
        "a row of the index that is none",
        |b| b.put(Family::Geohash, &b.index(home()).to_bytes(), &[7; 9]),
        &[
            ("geohash", "it is not as latest has it"),
            ("geohash", "Corruption: geohash: a value that cannot be"),
        ],
    ),
    (
        "a fleet with the number of another one",
        |b| {
            let [of, twin] = [&b"fleet/fleet"[..], b"fleet/twin"];
            b.put(Family::Meta, twin, &b.get(Family::Meta, of));
        },
        &[(
            "meta",
            "fleet twin has the number of fleet fleet: their rows are mixed",
        )],
    ),
    (
        "a fleet whose row is none",
        |b| b.put(Family::Meta, b"fleet/g", &[0, 0]),
        &[("meta", "Corruption: it is too short")],
    ),
    (
        "a visit with a key that is none",
        |b| b.put(Family::Visits, b"short", &[]),
        &[(
            "visits",
            "Corruption: visits: a key of 5 bytes, and not of 20",
        )],
    ),
];

#[test]
fn each_rule_finds_the_row_that_breaks_it() {
    for (done, break_it, expected) in CASES {
        let broken = Broken::new();
        break_it(&broken);
        let dir = broken.close();
        let found = wrong(dir.path(), &[]);
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|(f, w)| (f.as_str(), w.as_str()))
            .collect();
        assert_eq!(found, *expected, "{done}");
    }
}

/// Checks that were not requested report nothing. Without readable marks there is an error instead
/// of a list of problems.
#[test]
fn visits_may_be_left_out_and_more_than_a_hundred_are_counted() {
    let broken = Broken::new();
    let visit = broken.visit(-3000, old_home()).to_bytes();
    broken.delete(Family::Visits, &visit);
    let dir = broken.close();
    assert_eq!(wrong(dir.path(), &["--no-visits"]), []);
    assert_eq!(wrong(dir.path(), &[]).len(), 1);

    let broken = Broken::new();
    for n in 0..250_u8 {
        broken.put(Family::Visits, &[n], &[]);
    }
    let dir = broken.close();
    let out = run(dir.path(), &["--json"]);
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&json["wrong"], out.status.code()), (&250.into(), Some(1)));
    assert_eq!(json["problems"].as_array().unwrap().len(), 100);
    let text = String::from_utf8(run(dir.path(), &[]).stdout).unwrap();
    assert!(text.contains("\nwrong: 150 more"), "{text}");

    let broken = Broken::new();
    broken.put(Family::Meta, b"kept/no mark", b"");
    let dir = broken.close();
    let out = run(dir.path(), &[]);
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(
        !out.status.success() && said.contains("it is no mark"),
        "{said}"
    );
}
