//! With a real broker, Debian's mosquitto: messages with QoS 1 are stored, even if the service is
//! killed meanwhile.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use base::clock::SystemClock;
use base::sync::thread::Builder;
use serde_json::{Value, json};
use tracks::http::Config;
use tracks::mqtt::{Broker, Client, Settings};
use tracks::service::Options;

use crate::http::{World, eventually};

/// A process that is killed when this is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Finds a tool; if it is missing, prints that the test is skipped.
fn find(tool: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/usr/local/sbin";
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join(tool))
        .find(|file| file.is_file());
    if found.is_none() {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "no {tool}: install the Debian package {package}"
        );
        eprintln!("skipped: no {tool}: install the Debian package {package}");
    }
    found
}

fn pause(millis: u64) {
    SystemClock::shared().sleep(Duration::from_millis(millis));
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn broker(tool: &Path, dir: &Path, port: u16, more: &str) -> Process {
    let file = dir.join("mosquitto.conf");
    let text = format!("listener {port} 127.0.0.1\nmax_queued_messages 0\n{more}\n");
    std::fs::write(&file, text).unwrap();
    let child = Command::new(tool)
        .arg("-c")
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let process = Process(child.unwrap());
    eventually("a broker", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    process
}

fn serve(dir: &Path, args: &[&str]) -> (Process, SocketAddr) {
    let child = Command::new(env!("CARGO_BIN_EXE_ironstone-tracks"))
        .args(["serve", "--listen", "127.0.0.1:0", "--dir"])
        .arg(dir)
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut process = Process(child.unwrap());
    let mut first = String::new();
    let out = process.0.stdout.take().unwrap();
    BufReader::new(out).read_line(&mut first).unwrap();
    let address = first.trim().strip_prefix("listening on http://").unwrap();
    (process, address.parse().unwrap())
}

fn get(address: SocketAddr, path: &str) -> Option<String> {
    let agent = crate::http::agent();
    let mut answer = agent.get(format!("http://{address}{path}")).call().ok()?;
    answer.body_mut().read_to_string().ok()
}

/// Publishes lines with QoS 1, and returns once the broker has them.
fn publish(tool: &Path, port: u16, topic: &str, lines: &[String]) {
    let port = port.to_string();
    let child = Command::new(tool)
        .args(["-h", "127.0.0.1", "-p", &port, "-q", "1", "-t", topic, "-l"])
        .stdin(Stdio::piped())
        .spawn();
    let mut child = child.unwrap();
    let mut to = child.stdin.take().unwrap();
    to.write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
    drop(to);
    assert!(child.wait().unwrap().success());
}

fn location(nth: u32) -> String {
    let (time, lat) = (1_700_000_000 + nth, 59.0 + f64::from(nth) / 10_000.0);
    json!({"_type": "location", "lat": lat, "lon": 18.0, "tst": time}).to_string()
}

fn points(address: SocketAddr, name: &str) -> u64 {
    let path = format!("/v1/fleets/devices/entities/jane%2F{name}/summary");
    let text = get(address, &path).unwrap_or_default();
    let json: Value = serde_json::from_str(&text).unwrap_or_default();
    json["points"].as_u64().unwrap_or(0)
}

#[test]
fn what_was_published_is_there_though_the_service_is_killed() {
    let Some((mosquitto, sender)) =
        find("mosquitto", "mosquitto").zip(find("mosquitto_pub", "mosquitto-clients"))
    else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let _broker = broker(&mosquitto, dir.path(), port, "allow_anonymous true");
    let url = format!("mqtt://127.0.0.1:{port}");
    let args = ["--mqtt", url.as_str()];
    let tracks = dir.path().join("tracks");
    let (mut process, address) = serve(&tracks, &args);
    let connected = |address| {
        get(address, "/metrics").is_some_and(|text| text.contains("tracks_mqtt_connected 1"))
    };
    eventually("a subscription", || connected(address));
    let publishers: Vec<_> = (0..4)
        .map(|n| {
            let sender = sender.clone();
            let run = move || {
                for part in 0..5 {
                    let lines: Vec<String> =
                        (0..200).map(|nth| location(part * 200 + nth)).collect();
                    publish(&sender, port, &format!("owntracks/jane/phone{n}"), &lines);
                    pause(150);
                }
            };
            Builder::new().spawn(run).unwrap()
        })
        .collect();
    for _ in 0..3 {
        pause(300);
        // SIGKILL, in the middle of it.
        drop(process);
        (process, _) = serve(&tracks, &args);
    }
    for publisher in publishers {
        publisher.join().unwrap();
    }
    drop(process);
    let (_process, address) = serve(&tracks, &args);
    for n in 0..4 {
        let name = format!("phone{n}");
        eventually(&name, || points(address, &name) == 1000);
    }
    // All messages are acknowledged, also those without a position.
    publish(
        &sender,
        port,
        "owntracks/jane/phone0/event",
        &[r#"{"_type":"transition"}"#.to_owned()],
    );
    publish(
        &sender,
        port,
        "owntracks/jane/phone0",
        &["no JSON".to_owned(), r#"{"_type":"encrypted"}"#.to_owned()],
    );
    let counted = |text: &str| {
        ["other_type", "refused", "unusable"].iter().all(|outcome| {
            text.contains(&format!("{{protocol=\"mqtt\",outcome=\"{outcome}\"}} 1\n"))
        })
    };
    eventually("counts", || {
        get(address, "/metrics").is_some_and(|text| counted(&text))
    });
    eventually("acknowledgements", || {
        get(address, "/metrics").is_some_and(|text| text.contains("tracks_mqtt_in_flight 0"))
    });
}

/// A subscriber in this process.
fn subscribe(world: &World, settings: Settings) -> Client {
    let intake = Arc::clone(world.server.as_ref().unwrap().intake());
    Client::start(settings, intake, &base::threads::SystemThreads).unwrap()
}

fn settings(port: u16) -> Settings {
    Settings {
        wait: Duration::from_millis(50),
        wait_max: Duration::from_millis(400),
        ..Settings::new(Broker::parse(&format!("mqtt://127.0.0.1:{port}")).unwrap())
    }
}

#[test]
fn a_broker_that_goes_is_found_again_with_a_password() {
    let Some((mosquitto, sender)) =
        find("mosquitto", "mosquitto").zip(find("mosquitto_pub", "mosquitto-clients"))
    else {
        return;
    };
    let Some(passwd) = find("mosquitto_passwd", "mosquitto") else {
        return;
    };
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    let passwords = dir.path().join("passwords");
    let made = Command::new(passwd)
        .args(["-c", "-b"])
        .arg(&passwords)
        .args(["tracks", "secret"])
        .status();
    assert!(made.unwrap().success());
    let acl = dir.path().join("acl");
    std::fs::write(
        &acl,
        "topic readwrite owntracks/#\nuser tracks\ntopic read owntracks/#\n",
    )
    .unwrap();
    let more = format!(
        "allow_anonymous true\nuser root\npassword_file {}\nacl_file {}",
        passwords.display(),
        acl.display()
    );
    let world = World::new();
    let metric = |name: &str| {
        let text = world.get("/metrics").text;
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map_or(-1, |value| value.parse::<i64>().unwrap())
    };
    assert_eq!(metric("tracks_mqtt_connected"), -1);
    // Nobody is subscribed yet.
    let of = |password: &str| Settings {
        user: Some("tracks".to_owned()),
        password: Some(password.to_owned()),
        ..settings(port)
    };
    let client = subscribe(&world, of("secret"));
    eventually("tries", || metric("tracks_mqtt_connections_lost_total") > 1);
    assert_eq!(world.get("/readyz").status, 200);
    let first = broker(&mosquitto, dir.path(), port, &more);
    eventually("a subscription", || metric("tracks_mqtt_connected") == 1);
    publish(&sender, port, "owntracks/jane/phone", &[location(1)]);
    let of_mqtt = "tracks_device_messages_total{protocol=\"mqtt\",outcome=\"stored\"}";
    eventually("a report", || metric(of_mqtt) == 1);
    drop(first);
    eventually("a loss", || metric("tracks_mqtt_connected") == 0);
    let _second = broker(&mosquitto, dir.path(), port, &more);
    eventually("a subscription again", || {
        metric("tracks_mqtt_connected") == 1
    });
    publish(
        &sender,
        port,
        "owntracks/jane/phone",
        &[location(2), location(2)],
    );
    eventually("another report", || metric(of_mqtt) == 2);
    drop(client);
    let lost = metric("tracks_mqtt_connections_lost_total");
    let client = subscribe(&world, of("wrong"));
    eventually("refusals", || {
        metric("tracks_mqtt_connections_lost_total") > lost + 1
    });
    assert_eq!(metric("tracks_mqtt_connected"), 0);
    drop(client);
}

#[test]
fn back_pressure_reaches_the_broker_and_all_is_taken_in_the_end() {
    let Some((mosquitto, sender)) =
        find("mosquitto", "mosquitto").zip(find("mosquitto_pub", "mosquitto-clients"))
    else {
        return;
    };
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    let more = "allow_anonymous true\nmax_inflight_messages 0";
    let _broker = broker(&mosquitto, dir.path(), port, more);
    let mut options = Options::default();
    (options.write.shards, options.write.reports_in_flight) = (1, 1);
    let world = World::with(&options, Config::default(), None);
    let _client = subscribe(&world, settings(port));
    eventually("a subscription", || {
        world
            .get("/metrics")
            .text
            .contains("tracks_mqtt_connected 1")
    });
    let lines: Vec<String> = (0..300).map(location).collect();
    publish(&sender, port, "owntracks/jane/phone", &lines);
    eventually("all", || points(world.address(), "phone") == 300);
}

/// If the server is not a broker, the client keeps trying, and nothing else is affected.
#[test]
fn what_is_no_broker_is_said_and_left_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let world = World::new();
    let client = subscribe(&world, settings(port));
    let replies: [&[u8]; 5] = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        &[0x20, 2, 0, 5],
        &[0x20, 2, 0, 0, 0x90, 3, 0, 1, 128],
        &[0x20, 2, 0, 0, 0x90, 255, 255, 255, 255, 255],
        &[],
    ];
    for reply in replies {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(reply).unwrap();
    }
    eventually("losses", || {
        let text = world.get("/metrics").text;
        let lost = text
            .lines()
            .find_map(|line| line.strip_prefix("tracks_mqtt_connections_lost_total "));
        lost.is_some_and(|lost| lost.parse::<u32>().unwrap() >= 4)
    });
    drop(client);
}

#[test]
fn a_broker_with_tls_is_trusted_by_its_certificate_alone() {
    let Some((mosquitto, sender)) =
        find("mosquitto", "mosquitto").zip(find("mosquitto_pub", "mosquitto-clients"))
    else {
        return;
    };
    let (dir, port, plain) = (tempfile::tempdir().unwrap(), free_port(), free_port());
    crate::http::tls::write_certificate(dir.path());
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| dir.path().join(name));
    let more = format!(
        "certfile {}\nkeyfile {}\nlistener {plain} 127.0.0.1\nuser root\nallow_anonymous true",
        cert.display(),
        key.display()
    );
    let _broker = broker(&mosquitto, dir.path(), port, &more);
    let world = World::new();
    let connected = || {
        world
            .get("/metrics")
            .text
            .contains("tracks_mqtt_connected 1")
    };
    let of = |host: &str, ca: &Path| Settings {
        broker: Broker::parse(&format!("mqtts://{host}:{port}")).unwrap(),
        ca: ca.to_owned(),
        ..settings(port)
    };
    // A certificate for another name, and another certificate.
    let other = tempfile::tempdir().unwrap();
    crate::http::tls::write_certificate(other.path());
    for settings in [
        of("127.0.0.1", &cert),
        of("localhost", &other.path().join("cert.pem")),
    ] {
        let client = subscribe(&world, settings);
        pause(500);
        assert!(!connected());
        drop(client);
    }
    let _client = subscribe(&world, of("localhost", &cert));
    eventually("a subscription", connected);
    publish(&sender, plain, "owntracks/jane/phone", &[location(1)]);
    eventually("a report", || points(world.address(), "phone") == 1);
}
