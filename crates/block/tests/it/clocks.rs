//! Stores on machines whose clocks go back and stand still.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use base::clock::{Clock, SystemClock};
use base::threads::SystemThreads;
use block::client::map::{Map, Striping};
use block::client::run::{self as remote, Remote, Spec};
use block::client::volume;
use block::group::members::Members;
use block::ids::{Group, Layer, Tree, Uuid};
use block::nbd::codec::Command;
use block::nbd::serve;
use block::nbd::socket::Listener;
use block::shard::core::Assignment;
use block::shard::layout::{Make, Store, make};
use block::shard::run::{Options, Server};
use block::shard::stats::Stats;
use block::shard::time::ReadMode;
use block::store::flush::{ApplySync, Policy};
use block::wake::Wake;
use io::FileSystem;
use io::posix::Posix;

use crate::client::Client;

const CLUSTER: Uuid = Uuid([9; 16]);
const GROUP: Group = Group(1);
const SIZE: u64 = 32 << 20;
/// How long a machine has been up, ns.
const UP: u64 = 86_400_000_000_000;

/// A machine's clocks, whose CLOCK_BOOTTIME the test controls; the others are correct.
#[derive(Debug)]
struct Wrong {
    right: Arc<dyn Clock>,
    back: AtomicU64,
    /// The reading at which it stands still; 0: it does not.
    stands: AtomicU64,
}

impl Wrong {
    fn go_back(&self, by: Duration) {
        self.back.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
    }

    fn stand_still(&self) {
        self.stands.store(self.boot_nanos(), Ordering::Relaxed);
    }
}

impl Clock for Wrong {
    fn wall_micros(&self) -> u64 {
        self.right.wall_micros()
    }

    fn monotonic_nanos(&self) -> u64 {
        self.right.monotonic_nanos()
    }

    fn boot_nanos(&self) -> u64 {
        match self.stands.load(Ordering::Relaxed) {
            0 => UP + self.right.boot_nanos() - self.back.load(Ordering::Relaxed),
            at => at,
        }
    }
}

struct Running {
    clock: Arc<Wrong>,
    stats: Arc<Stats>,
    said: Arc<Mutex<String>>,
    stop: Wake,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(dir: &Path, n: u64, listener: TcpListener, at: &BTreeMap<u64, SocketAddr>) -> Self {
        let fs: Arc<dyn FileSystem> = Posix::shared();
        let what = Make {
            store: Uuid([n as u8; 16]),
            cluster: CLUSTER,
            slots: 2,
            log_files: 6,
            log_file_bytes: 4 << 20,
            allow_in_memory: true,
        };
        let dir = dir.join(n.to_string());
        make(&fs, &dir, &what, &mut |_| ()).unwrap();
        let clock = Arc::new(Wrong {
            right: SystemClock::shared(),
            back: AtomicU64::new(0),
            stands: AtomicU64::new(0),
        });
        let said = Arc::new(Mutex::new(String::new()));
        let says = Arc::clone(&said);
        let options = Options {
            cluster: CLUSTER,
            id: n,
            listener,
            peers: at.clone(),
            groups: vec![Assignment {
                group: GROUP,
                replica: n,
                members: Members::of(&[1, 2, 3]),
                chunks_max: 2,
            }],
            policy: Policy::of(ApplySync::Background),
            read_mode: ReadMode::ReadIndex,
            clock: Arc::clone(&clock) as _,
            threads: SystemThreads::shared(),
            say: Arc::new(move |text| says.lock().unwrap().push_str(text)),
        };
        let opened = Store::open(&fs, &dir, CLUSTER, 2, n).unwrap();
        let server = Server::new(opened, options).unwrap();
        let (stats, stop) = (server.stats(), server.stop_handle());
        #[expect(
            clippy::disallowed_methods,
            reason = "the test's own thread, to be joined"
        )]
        let thread = std::thread::spawn(move || server.run().unwrap());
        Self {
            clock,
            stats,
            said,
            stop,
            thread: Some(thread),
        }
    }

    fn end(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop.wake();
            thread.join().unwrap();
        }
    }
}

fn nbd_server(at: &BTreeMap<u64, SocketAddr>) -> serve::Running {
    let striping = Striping {
        unit_bytes: 1 << 20,
        count: 1,
    };
    let map = Map::new(SIZE, (Tree(1), Layer(1)), striping, vec![GROUP]).unwrap();
    let spec = Spec {
        name: "vol".to_owned(),
        description: String::new(),
        map,
    };
    let remote = Remote::new(remote::Options {
        cluster: CLUSTER,
        stores: at.clone(),
        replicas: [(GROUP, vec![1, 2, 3])].into(),
        volumes: vec![spec],
        volume: volume::Options::default(),
        clock: SystemClock::shared(),
        seed: 7,
        say: Arc::new(|_| ()),
    });
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap(), false).unwrap();
    let options = serve::Options::default();
    let server = serve::Server::new(listener, remote.unwrap(), options, SystemClock::shared());
    server.unwrap().start(&SystemThreads).unwrap()
}

/// Waits until a condition holds, at most a minute.
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("never: {what}");
}

/// Writes a block, and reads it back.
fn write_and_read(client: &mut Client, byte: u8) {
    let cookie = u64::from(byte);
    client.send(Command::Write, cookie, 8192, 4096, &[byte; 4096]);
    assert_eq!(client.reply(), (0, cookie));
    client.send(Command::Read, cookie, 8192, 4096, &[]);
    assert_eq!(client.reply(), (0, cookie));
    let mut bytes = [0; 4096];
    client.stream.read_exact(&mut bytes).unwrap();
    assert!(bytes == [byte; 4096], "{byte}");
}

/// Ticks were measured with the clock alone: after the clock had gone back by an hour, a store had no
/// heartbeats and no elections for an hour.
#[test]
fn stores_go_on_where_clocks_go_back_or_stand_still() {
    let dir = tempfile::tempdir().unwrap();
    let listeners: Vec<TcpListener> = (0..3)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let addresses = listeners.iter().map(|l| l.local_addr().unwrap());
    let at: BTreeMap<u64, SocketAddr> = (1..).zip(addresses).collect();
    let mut stores: Vec<Running> = (1..)
        .zip(listeners)
        .map(|(n, listener)| Running::start(dir.path(), n, listener, &at))
        .collect();
    let server = nbd_server(&at);
    let mut client = Client::attached(server.uri(), "vol");
    write_and_read(&mut client, 1);
    for (n, store) in (2..).zip(&stores) {
        store.clock.go_back(Duration::from_secs(3600));
        write_and_read(&mut client, n);
    }
    let wrong = |s: &Running| s.stats.wrong_clocks.get();
    wait_for("each has seen its clock go back", || {
        stores.iter().all(|s| wrong(s) > 0)
    });
    let before = wrong(&stores[0]);
    stores[0].clock.stand_still();
    wait_for("a clock that stands still is seen", || {
        wrong(&stores[0]) > before
    });
    write_and_read(&mut client, 5);
    let leads = |s: &Running| s.stats.leaders.get() == 1;
    wait_for("one leads", || stores.iter().any(leads));
    let leader = stores.iter().position(leads).unwrap();
    for store in &stores {
        let said = store.said.lock().unwrap();
        assert!(
            said.contains("CLOCK_BOOTTIME") && said.contains("read_index"),
            "{said}"
        );
    }
    // A leader is also elected with such clocks.
    stores[leader].end();
    write_and_read(&mut client, 6);
    drop(client);
    server.stop().unwrap();
    stores.iter_mut().for_each(Running::end);
}
