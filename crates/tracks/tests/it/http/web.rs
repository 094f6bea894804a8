//! The files of the map, whether or not they are in this build, and the demo.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use tracks::http::{Config, Map};
use tracks::service::Options;

use super::{Answer, World, agent, answer};

fn world() -> World {
    let base = b"{\"type\":\"FeatureCollection\",\"features\":[]}".to_vec();
    let map = Map::default().with_base(base).unwrap();
    let map = map
        .with_tiles("https://tiles.example/{z}/{x}/{y}.png")
        .unwrap();
    let config = Config {
        map,
        ..Config::default()
    };
    World::with(&Options::default(), config, None)
}

fn get_with(world: &World, path: &str, (name, value): (&str, &str)) -> Answer {
    answer(world.agent.get(world.url(path)).header(name, value).call())
}

#[test]
fn the_page_loads_nothing_but_its_own_files_and_the_tiles_that_are_asked_for() {
    let world = world();
    let page = world.get("/map");
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), "text/html; charset=utf-8");
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; worker-src 'self';"));
    assert!(policy.contains("img-src 'self' data: blob: https://tiles.example;"));
    assert!(policy.ends_with("connect-src 'self' https://tiles.example"));
    assert!(!policy.contains("unsafe"));
    let config = world.get("/map/config.json").json();
    assert_eq!(config["base"], true);
    assert_eq!(config["tiles"], "https://tiles.example/{z}/{x}/{y}.png");
    let base = world.get("/map/base.geojson");
    assert_eq!(base.header("content-type"), "application/geo+json");
    let bare = World::new();
    assert_eq!(bare.get("/map/base.geojson").problem().0, 404);
    let own = bare.get("/map");
    assert!(!own.header("content-security-policy").contains("http"));
}

#[test]
fn files_have_names_of_their_contents_or_are_asked_for_again() {
    let world = world();
    for missing in [
        "/map/nothing.js",
        "/map/index.html",
        "/map/../map",
        "/map/a/b",
    ] {
        assert_eq!(world.get(missing).problem().0, 404, "{missing}");
    }
    let page = world.get("/map");
    let Some((_, rest)) = page.text.split_once("src=\"map/map-") else {
        // The map was not bundled before this build: the page says how to do it.
        assert!(page.text.contains("cargo xtask web"));
        return;
    };
    let script = format!("/map/map-{}", rest.split('"').next().unwrap());
    let file = world.get(&script);
    assert_eq!(
        file.header("content-type"),
        "text/javascript; charset=utf-8"
    );
    assert!(file.header("cache-control").contains("immutable"));
    assert_eq!(page.header("cache-control"), "no-cache");
    let etag = page.header("etag").to_owned();
    let again = get_with(&world, "/map", ("if-none-match", &etag));
    assert_eq!((again.status, again.text.as_str()), (304, ""));
    assert!(!again.header("content-security-policy").is_empty());
    let other = get_with(&world, "/map", ("if-none-match", "\"0\""));
    assert_eq!(other.status, 200);
    let licences = world.get("/map/licences.txt").text;
    assert!(licences.contains("maplibre-gl") && licences.contains("terra-draw"));
    assert!(!world.get("/metrics").text.contains("map-"));
}

#[test]
fn a_demo_moves_and_ends() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_ironstone-tracks"))
        .args([
            "demo",
            "--listen",
            "127.0.0.1:0",
            "--objects",
            "60",
            "--past",
            "1",
            "--seconds",
            "15",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let map = lines.find_map(|line| Some(line.trim().strip_prefix("map: ")?.to_owned()));
    let map = map.unwrap();
    let base = map.strip_suffix("/map").unwrap();
    let fleet = format!("{base}/v1/fleets/city");
    let agent = agent();
    let get = |path: String| answer(agent.get(path).call());
    assert_eq!(get(map.clone()).status, 200);
    let all = format!("{fleet}/within?circle=59.3293,18.0686,20000&max_age=30");
    let here = get(all.clone()).json();
    assert_eq!(here["results"].as_array().unwrap().len(), 60);
    // Every object reports once a second, so that some are elsewhere soon.
    let places = |all: &serde_json::Value| -> BTreeMap<String, String> {
        let all = all["results"].as_array().unwrap().iter();
        all.map(|of| {
            (
                of["entity"].to_string(),
                format!("{},{}", of["lat"], of["lon"]),
            )
        })
        .collect()
    };
    let began = places(&here);
    let moved = || {
        let now = places(&get(all.clone()).json());
        let elsewhere =
            |(name, at): &(&String, &String)| began.get(*name).is_some_and(|b| b != *at);
        now.iter().filter(elsewhere).count()
    };
    super::eventually("objects move", || moved() >= 5);
    let fences = get(format!("{fleet}/fences")).json();
    assert_eq!(fences["fences"].as_array().unwrap().len(), 4);
    let track = get(format!("{fleet}/entities/car-000001/track")).json();
    assert!(track["parts"][0].as_array().unwrap().len() > 20, "{track}");
    assert!(
        get(format!("{base}/map/base.geojson"))
            .text
            .contains("\"class\":\"fast\"")
    );
    // The curl lines are printed on single lines.
    assert_eq!(
        lines
            .filter(|line| line.contains("curl 'http://127."))
            .count(),
        3
    );
    assert!(demo.wait().unwrap().success());
}
