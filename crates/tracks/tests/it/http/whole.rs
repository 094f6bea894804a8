//! Whole fleets and entities: exports, erasures, retention, backups.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use tracks::files::{self, Format};
use tracks::http::Config;
use tracks::import::{self, Import};
use tracks::model::name::Name;
use tracks::service::Options;
use tracks::store::Engine;

use super::{T, World, agent, answer, line, start};
use crate::world::NOW;

fn command(args: &[&str]) -> (bool, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_ironstone-tracks"))
        .args(args)
        .output()
        .unwrap();
    let text = [out.stdout, out.stderr].concat();
    (out.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn a_fleet_is_exported() {
    let world = World::new();
    for n in 0..50 {
        world.report(&line(&format!("c{}", n % 2), T + f64::from(n), 1.0, 2.0));
    }
    let export = |query: &str| world.get(&format!("/v1/fleets/f/export?{query}"));
    let all = export("");
    assert_eq!(all.header("content-type"), "application/x-ndjson");
    assert_eq!(all.text.lines().count(), 50);
    let some = export(&format!("entity=c1&format=csv&from={}", T + 40.0));
    assert_eq!((some.status, some.text.lines().count()), (200, 6));
    assert!(export("format=gpx").text.ends_with("</gpx>\n"));
    assert!(
        export("format=geojson&to=1970-01-01T00:00:00Z")
            .text
            .contains("FeatureCollection")
    );
    assert_eq!(export("format=xls").problem().0, 400);
    assert_eq!(
        export("entity=none").problem(),
        (404, "no-such-entity".to_owned())
    );
    assert_eq!(
        world.get("/v1/fleets/g/export").problem(),
        (404, "no-such-fleet".to_owned())
    );
}

#[test]
fn an_entity_is_erased() {
    let world = World::new();
    world.report(&line("a/b", T, 1.0, 2.0));
    let path = "/v1/fleets/f/entities/a%2Fb";
    let delete = || answer(world.agent.delete(world.url(path)).call());
    assert_eq!(delete().status, 204);
    assert_eq!(delete().problem(), (404, "no-such-entity".to_owned()));
    assert_eq!(world.get(path).status, 404);
    world.report(&line("a/b", T + 1.0, 1.0, 2.0));
    assert_eq!(world.get(path).status, 200);
}

#[test]
fn a_fleet_says_what_it_keeps() {
    let world = World::new();
    world.report(&line("old", T, 1.0, 2.0));
    assert_eq!(world.get("/v1/fleets/f/entities/old").status, 200);
    let changed = world
        .put("/v1/fleets/f", "{\"keep_days\":30,\"silent_days\":7}")
        .json();
    assert_eq!(
        (&changed["keep_days"], &changed["silent_days"]),
        (&30.into(), &7.into())
    );
    assert_eq!(world.get("/v1/fleets/f/entities/old").status, 404);
    let wrong = world.put("/v1/fleets/f", "{\"keep_days\":100001}");
    assert!(wrong.problem().0 == 400 && wrong.detail().contains("keep_days"));
    assert_eq!(
        world.put("/v1/fleets/f", "{\"keep_days\":-1}").problem().0,
        400
    );
}

#[test]
fn backups_are_made_meanwhile_and_brought_back() {
    let world = World::new();
    assert_eq!(
        world.get("/v1/backups").problem(),
        (404, "no-backups".to_owned())
    );
    let top = tempfile::tempdir().unwrap();
    let at = |name: &str| top.path().join(name).to_str().unwrap().to_owned();
    let (backups, restored, again) = (at("backups"), at("restored"), at("again"));
    let config = Config {
        backups: Some((&backups).into()),
        ..Config::default()
    };
    let world = World::with(&Options::default(), config, None);
    world.report(&line("a", T, 1.0, 2.0));
    let made = world.post("/v1/backups", "");
    assert_eq!((made.status, &made.json()["id"]), (201, &1.into()));
    world.report(&line("b", T, 1.0, 2.0));
    // What a server that was killed left of a backup goes with the next one.
    let left = top.path().join("backups/shared_checksum/000099_left.sst");
    std::fs::write(&left, "x").unwrap();
    assert_eq!(world.post("/v1/backups", "").json()["id"], 2);
    assert!(!left.exists());
    // While another process makes one there, none is made.
    let making = tracks::backups::Making::begin(&top.path().join("backups")).unwrap();
    let busy = world.post("/v1/backups", "");
    assert_eq!(busy.problem().0, 503);
    assert!(
        busy.detail().contains("being made in this folder"),
        "{}",
        busy.text
    );
    assert_eq!(world.get("/v1/backups").status, 200);
    drop(making);
    let list = world.get("/v1/backups").json();
    assert_eq!(list["backups"].as_array().unwrap().len(), 2);
    drop(world);
    let restore = ["restore", "--from", &backups, "--dir", &restored];
    assert!(command(&restore).0);
    let (is_ok, said) = command(&["check", "--dir", &restored]);
    assert!(
        is_ok && said.starts_with("2 points of 2 entities"),
        "{said}"
    );
    assert!(!command(&restore).0);
    assert!(command(&[&restore[..], &["--replace", "--id", "1"]].concat()).0);
    let (is_ok, said) = command(&["check", "--dir", &restored]);
    assert!(
        is_ok && said.starts_with("1 points of 1 entities"),
        "{said}"
    );
    let (is_ok, said) = command(&["backup", "--dir", &restored, "--to", &backups]);
    assert!(is_ok && said == "backup 3\n", "{said}");
    let export = [
        "export", "--dir", &restored, "--fleet", "f", "--format", "csv",
    ];
    let (is_ok, said) = command(&export);
    assert!(
        is_ok && said.contains("\na,2023-11-14T22:13:20Z,1,2,"),
        "{said}"
    );
    assert!(!command(&["restore", "--from", &again, "--dir", &again]).0);
    assert!(!command(&["backup", "--dir", &again, "--to", &backups]).0);
}

/// A folder with many points, not open.
pub(super) fn many_points() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open_for_import(dir.path()).unwrap();
    let fleet = Name::new("f").unwrap();
    let mut import = Import::begin(&engine, &fleet, NOW, &import::Options::default()).unwrap();
    let attributes = format!("{{\"x\":\"{}\"}}", "y".repeat(900));
    let lines = (0..40_000).map(|n| {
        format!(
            "{{\"entity\":\"c{}\",\"time\":{n},\"lat\":1,\"lon\":1,\"attributes\":{attributes}}}\n",
            n % 9
        )
    });
    let file: String = lines.collect();
    let mut reader = files::open(Format::Ndjson, file.as_bytes(), &files::Options::default());
    import
        .read("x", &mut reader, &mut |_| Ok(()), &mut |_| ())
        .unwrap();
    import.finish(&mut |_| Ok(()), &mut |_| ()).unwrap();
    drop(engine);
    dir
}

pub(super) fn served(dir: tempfile::TempDir, config: Config) -> World {
    World {
        server: Some(start(dir.path(), &Options::default(), config, None)),
        dir,
        agent: agent(),
    }
}

#[test]
fn who_reads_an_export_too_slowly_is_cut_off() {
    let dir = many_points();
    let config = Config {
        exports: 1,
        write_timeout: Duration::from_millis(300),
        ..Config::default()
    };
    let world = served(dir, config);
    let mut slow = TcpStream::connect(world.address()).unwrap();
    slow.write_all(b"GET /v1/fleets/f/export HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .unwrap();
    let mut some = [0; 1000];
    slow.read_exact(&mut some).unwrap();
    assert!(some.starts_with(b"HTTP/1.1 200"));
    assert_eq!(
        world.get("/v1/fleets/f/export").problem(),
        (503, "busy".to_owned())
    );
    let mut tries = 0;
    let whole = loop {
        let mut answer = world
            .agent
            .get(world.url("/v1/fleets/f/export"))
            .call()
            .unwrap();
        if answer.status() == 200 {
            let body = answer.body_mut().with_config().limit(1 << 30);
            break body.read_to_string().unwrap();
        }
        tries += 1;
        assert!(tries < 400);
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(whole.lines().count(), 40_000);
    // The other one was cut off.
    let mut rest = Vec::new();
    drop(slow.read_to_end(&mut rest));
    assert!(rest.len() < whole.len());
}

/// A client that takes bytes in time but below the least rate is cut off.
#[test]
fn who_takes_less_of_an_answer_than_the_least_rate_is_cut_off() {
    let config = Config {
        write_timeout: Duration::from_secs(2),
        rate_min: 16 << 20,
        ..Config::default()
    };
    let world = served(many_points(), config);
    let mut slow = TcpStream::connect(world.address()).unwrap();
    slow.write_all(b"GET /v1/fleets/f/export HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .unwrap();
    let (mut piece, mut seen) = (vec![0; 40_000], 0);
    // Reads 2 MB per second of 40 MB.
    while let Ok(len) = slow.read(&mut piece)
        && len > 0
    {
        seen += len;
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!((1..30_000_000).contains(&seen), "{seen}");
}
