//! A scripted broker, and stores that fail: for one report, or for all of them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use base::sync::Mutex;
use base::threads::SystemThreads;
use base::{Error, ErrorKind, Result};
use ironstone::WriteBatch;
use serde_json::json;
use tracks::http::Config;
use tracks::model::name::Name;
use tracks::mqtt::{Broker, Client, Settings};
use tracks::notices::Notices;
use tracks::service::Options;
use tracks::store::{Engine, Store, Told, View};

use crate::http::{World, eventually};

/// The fault of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ill {
    No,
    /// The rows of one entity are damaged.
    Damaged,
    /// Reading them panics.
    Panics,
    /// Reading them panics once.
    PanicsOnce,
    /// No write is taken.
    Writes(ErrorKind),
}

/// The entity whose reports fail.
const SICK: &str = "jane/sick";

#[derive(Clone)]
struct Sick(Engine, Arc<Mutex<Ill>>);

impl Store for Sick {
    fn id(&self, family: tracks::store::Family) -> u32 {
        self.0.id(family)
    }

    fn get(&self, family: tracks::store::Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let sick = Name::new(SICK)?.number(0).0.to_be_bytes();
        let ill = *self.1.lock().unwrap();
        if key.get(4..12) == Some(&sick) {
            match ill {
                Ill::Damaged => return Err(Error::corruption("a block of this test")),
                Ill::Panics => panic!("a bug of this test"),
                Ill::PanicsOnce => {
                    *self.1.lock().unwrap() = Ill::No;
                    panic!("a bug of this test that passes")
                }
                _ => {}
            }
        }
        self.0.get(family, key)
    }

    fn view(&self) -> Box<dyn View + '_> {
        self.0.view()
    }

    fn write(&self, batch: WriteBatch, durable: Option<Told>) -> Result<u64> {
        if let Ill::Writes(kind) = *self.1.lock().unwrap() {
            return Err(Error::new(kind, "the disk of this test"));
        }
        self.0.write(batch, durable)
    }

    fn last_number(&self) -> u64 {
        self.0.last_number()
    }

    fn when_durable(&self, told: Told) {
        self.0.when_durable(told);
    }

    fn wait_durable(&self, number: u64) -> Result<()> {
        self.0.wait_durable(number)
    }
}

/// A service whose store fails on demand, and its notices.
struct Patient {
    world: World,
    ill: Arc<Mutex<Ill>>,
    said: Arc<Mutex<Vec<String>>>,
    broker: TcpListener,
    client: Option<Client>,
}

impl Patient {
    fn new(options: &Options, change: impl FnOnce(&mut Settings)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let ill = Arc::new(Mutex::new(Ill::No));
        let store = Sick(Engine::open(dir.path()).unwrap(), Arc::clone(&ill));
        let said = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&said);
        let config = Config {
            notices: Notices::new(move |line| to.lock().unwrap().push(line.to_owned())),
            ..Config::default()
        };
        let world = World::over(dir, Arc::new(store), options, (config, None));
        let broker = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("mqtt://{}", broker.local_addr().unwrap());
        let mut settings = Settings {
            wait: Duration::from_millis(20),
            wait_max: Duration::from_millis(100),
            ..Settings::new(Broker::parse(&url).unwrap())
        };
        change(&mut settings);
        let intake = Arc::clone(world.server.as_ref().unwrap().intake());
        Self {
            client: Some(Client::start(settings, intake, &SystemThreads).unwrap()),
            world,
            ill,
            said,
            broker,
        }
    }

    fn set(&self, ill: Ill) {
        *self.ill.lock().unwrap() = ill;
    }

    /// The next connection, accepted.
    fn connected(&self) -> Peer {
        let (stream, _) = self.broker.accept().unwrap();
        let timeout = Some(Duration::from_secs(15));
        stream.set_read_timeout(timeout).unwrap();
        stream.set_write_timeout(timeout).unwrap();
        let mut peer = Peer(stream);
        assert_eq!(peer.packet().unwrap().0, 0x10);
        peer.send(&[0x20, 2, 1, 0]);
        assert_eq!(peer.packet().unwrap().0, 0x82);
        peer
    }

    /// The next connection, accepted and subscribed.
    fn subscribed(&self) -> Peer {
        let mut peer = self.connected();
        peer.send(&SUBACK);
        peer
    }

    fn metric(&self, name: &str) -> i64 {
        let text = self.world.get("/metrics").text;
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map_or(-1, |value| value.parse().unwrap())
    }

    fn has(&self, name: &str) -> bool {
        let path = format!("/v1/fleets/devices/entities/jane%2F{name}");
        self.world.get(&path).status == 200
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        // Dropped first, so that the client has ended before the service does.
        drop(self.client.take());
    }
}

const SUBACK: [u8; 5] = [0x90, 3, 0, 1, 1];

/// The client, as seen by the broker.
struct Peer(TcpStream);

impl Peer {
    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    /// The type and the body of the next packet; `None` if the connection has ended.
    fn packet(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).ok()?;
        assert!(head[1] < 128, "clients of this test send no long packets");
        let mut body = vec![0; head[1].into()];
        self.0.read_exact(&mut body).ok()?;
        Some((head[0], body))
    }

    /// Publishes a position of an entity with QoS 1.
    fn publish(&mut self, id: u16, entity: &str) {
        let topic = format!("owntracks/jane/{entity}");
        let time = 1_700_000_000 + u32::from(id);
        let payload =
            json!({"_type": "location", "lat": 59.0, "lon": 18.0, "tst": time}).to_string();
        let mut body = (topic.len() as u16).to_be_bytes().to_vec();
        body.extend(topic.as_bytes());
        body.extend(id.to_be_bytes());
        body.extend(payload.as_bytes());
        let len = [(body.len() & 127) as u8 | 128, (body.len() >> 7) as u8];
        self.send(&[&[0x32][..], &len, &body].concat());
    }

    /// The next acknowledged ids, at most `most`.
    fn acknowledged(&mut self, most: usize) -> Vec<u16> {
        let mut all = Vec::new();
        while all.len() < most
            && let Some((kind, body)) = self.packet()
        {
            if kind == 0x40 {
                all.push(u16::from_be_bytes(body.try_into().unwrap()));
            }
        }
        all
    }
}

/// A report that always fails is given up and reported, and the session goes on.
#[test]
fn a_report_that_always_fails_is_said_and_the_others_flow() {
    let mut options = Options::default();
    // One shard, so that a report that panics makes its neighbours fail, too.
    options.write.shards = 1;
    for ill in [Ill::Damaged, Ill::Panics] {
        let patient = Patient::new(&options, |_| ());
        let mut peer = patient.subscribed();
        peer.publish(1, "phone0");
        assert_eq!(peer.acknowledged(1), [1]);
        patient.set(ill);
        for id in 2..40 {
            let name = if id == 7 {
                "sick"
            } else {
                &format!("phone{id}")
            };
            peer.publish(id, name);
        }
        let all: Vec<u16> = (2..40).collect();
        assert_eq!(peer.acknowledged(all.len()), all, "{ill:?}");
        assert!((2..40).all(|id| id == 7 || patient.has(&format!("phone{id}"))));
        patient.set(Ill::No);
        assert!(!patient.has("sick"));
        assert_eq!(patient.metric("tracks_mqtt_given_up_total"), 1);
        assert_eq!(patient.metric("tracks_mqtt_connections_lost_total"), 0);
        let failed = "tracks_device_messages_total{protocol=\"mqtt\",outcome=\"failed\"}";
        assert!(patient.metric(failed) >= 4);
        let said = patient.said.lock().unwrap().join("\n");
        assert!(
            said.contains("\"owntracks/jane/sick\"") && said.contains("4 times"),
            "{said}"
        );
        // It is taken once its rows are sound.
        peer.publish(99, "sick");
        assert_eq!(peer.acknowledged(1), [99]);
        assert!(patient.has("sick"));
    }
}

/// A report of an entity of which one was given up before is still tried once alone, so that it is
/// not lost because of another report.
#[test]
fn who_was_given_up_has_one_try_alone() {
    let mut options = Options::default();
    options.write.shards = 1;
    let patient = Patient::new(&options, |_| ());
    let mut peer = patient.subscribed();
    patient.set(Ill::Damaged);
    peer.publish(1, "sick");
    assert_eq!(peer.acknowledged(1), [1]);
    assert_eq!(patient.metric("tracks_mqtt_given_up_total"), 1);
    patient.set(Ill::PanicsOnce);
    peer.publish(2, "sick");
    assert_eq!(peer.acknowledged(1), [2]);
    assert!(patient.has("sick"));
    assert_eq!(patient.metric("tracks_mqtt_given_up_total"), 1);
}

/// Whatever error the store returns, the broker keeps the messages while no write is taken.
#[test]
fn nothing_is_acknowledged_while_the_store_takes_no_writes() {
    let patient = Patient::new(&Options::default(), |_| ());
    let mut peer = patient.subscribed();
    peer.publish(1, "phone1");
    assert_eq!(peer.acknowledged(1), [1]);
    let kinds = [
        ErrorKind::NoSpace,
        ErrorKind::IoError,
        ErrorKind::NotSupported,
        ErrorKind::Corruption,
        ErrorKind::Aborted,
    ];
    for kind in kinds {
        patient.set(Ill::Writes(kind));
        peer.publish(2, "phone2");
        assert!(peer.acknowledged(1).is_empty(), "{kind:?}");
        peer = patient.subscribed();
    }
    patient.set(Ill::No);
    peer.publish(2, "phone2");
    assert_eq!(peer.acknowledged(1), [2]);
    assert!(patient.has("phone2"));
    assert_eq!(patient.metric("tracks_mqtt_given_up_total"), 0);
    eventually("a loss for each", || {
        patient.metric("tracks_mqtt_connections_lost_total") == kinds.len() as i64
    });
}

/// The broker may send stored messages before it answers the subscription: they are acknowledged
/// meanwhile, also if there are more than `IN_FLIGHT_MAX`.
#[test]
fn a_backlog_before_the_answer_to_the_subscription_is_acknowledged() {
    let mut options = Options::default();
    (options.write.shards, options.write.reports_in_flight) = (1, 100);
    let patient = Patient::new(&options, |_| ());
    let mut peer = patient.connected();
    let all: Vec<u16> = (1..=1500).collect();
    let mut sender = Peer(peer.0.try_clone().unwrap());
    let sending = base::sync::thread::Builder::new().spawn(move || {
        for id in 1..=1500 {
            sender.publish(id, "phone");
        }
    });
    assert_eq!(peer.acknowledged(all.len()), all);
    sending.unwrap().join().unwrap();
    assert_eq!(patient.metric("tracks_mqtt_connected"), 0);
    peer.send(&SUBACK);
    eventually("a subscription", || {
        patient.metric("tracks_mqtt_connected") == 1
    });
    peer.publish(1501, "phone");
    assert_eq!(peer.acknowledged(1), [1501]);
    assert_eq!(patient.metric("tracks_mqtt_connections_lost_total"), 0);
    let summary = patient
        .world
        .get("/v1/fleets/devices/entities/jane%2Fphone/summary");
    assert!(summary.text.contains("\"points\":1501"), "{}", summary.text);
}

#[test]
fn a_broker_that_does_not_answer_the_subscription_is_left() {
    let patient = Patient::new(&Options::default(), |settings| {
        settings.answer_timeout = Duration::from_millis(300);
    });
    let mut peer = patient.connected();
    // The session works otherwise.
    peer.publish(1, "phone");
    assert_eq!(peer.acknowledged(2), [1]);
    let mut peer = patient.subscribed();
    eventually("a subscription", || {
        patient.metric("tracks_mqtt_connected") == 1
    });
    peer.publish(2, "phone");
    assert_eq!(peer.acknowledged(1), [2]);
    let said = patient.said.lock().unwrap().join("\n");
    assert!(said.contains("has not answered the subscription"), "{said}");
}
