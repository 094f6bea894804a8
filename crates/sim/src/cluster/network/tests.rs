//! Tests of the network's promises, in random runs and step by step.

use super::*;

const A: NodeId = NodeId(0);
const B: NodeId = NodeId(1);
const NODES: [NodeId; 3] = [A, B, NodeId(2)];
const MS: u64 = 1_000_000;

fn steady(nanos: u64) -> Link {
    Link {
        delay: Delay {
            min_nanos: nanos,
            mean_nanos: nanos,
            long_permille: 0,
            long_nanos: 0,
        },
        ..Link::default()
    }
}

fn network(mode: Mode) -> Network<Bytes> {
    Network::new(1, mode, steady(MS))
}

/// All deliveries as text: `0>1 x` is a message, `0!1` tells node 0 that 1 is gone.
fn arrivals(network: &mut Network<Bytes>) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(at) = network.next_at() {
        while let Some(delivery) = network.deliver(at) {
            all.push(match delivery {
                Delivery::Message { from, to, message } => {
                    let text = String::from_utf8_lossy(&message).into_owned();
                    format!("{}>{} {text}", from.0, to.0)
                }
                Delivery::Broken { at, peer } => format!("{}!{}", at.0, peer.0),
            });
        }
    }
    all
}

fn send(network: &mut Network<Bytes>, now: u64, from: NodeId, to: NodeId, text: &str) {
    network.send(now, from, to, Bytes::copy_from_slice(text.as_bytes()));
}

#[test]
fn nothing_arrives_early() {
    let mut network = network(Mode::Datagrams);
    send(&mut network, 5, A, B, "x");
    assert_eq!(network.next_at(), Some(5 + MS));
    assert_eq!(network.deliver(4 + MS), None);
    let delivery = network.deliver(5 + MS).unwrap();
    assert_eq!(delivery.node(), B);
    assert_eq!((network.next_at(), network.in_flight()), (None, 0));
}

#[test]
fn a_cut_is_one_way_and_takes_what_is_on_its_way() {
    let mut network = network(Mode::Datagrams);
    send(&mut network, 0, A, B, "lost");
    network.cut(1, A, B);
    send(&mut network, 2, A, B, "lost too");
    send(&mut network, 2, B, A, "arrives");
    assert_eq!(arrivals(&mut network), ["1>0 arrives"]);
    network.lift(A, B);
    send(&mut network, 3, A, B, "again");
    assert_eq!(arrivals(&mut network), ["0>1 again"]);
    network.partition(4, &NODES, &[A]);
    assert!(network.is_cut(A, B) && network.is_cut(NODES[2], A) && !network.is_cut(B, NODES[2]));
    network.heal();
    assert!(!network.is_cut(A, B));
}

#[test]
fn a_connection_that_breaks_tells_both_ends() {
    let mut network = network(Mode::Connections);
    send(&mut network, 0, A, B, "one");
    assert_eq!(arrivals(&mut network), ["0>1 one"]);
    send(&mut network, 2 * MS, A, B, "lost");
    network.cut(2 * MS, A, B);
    network.lift(A, B);
    // The line works again, the connection does not.
    send(&mut network, 2 * MS, A, B, "into nothing");
    // Half open: the other direction works until its receiver knows.
    send(&mut network, 2 * MS, B, A, "still there");
    let mut all = arrivals(&mut network);
    assert_eq!(all.remove(0), "1>0 still there");
    all.sort();
    assert_eq!(all, ["0!1", "1!0"]);
    send(&mut network, 99_000 * MS, A, B, "new");
    assert_eq!(arrivals(&mut network), ["0>1 new"]);
}

#[test]
fn a_connection_that_cannot_be_made_tells_its_maker() {
    let mut network = network(Mode::Connections);
    network.cut(0, B, A);
    send(&mut network, 0, A, B, "no answer to it");
    assert_eq!(arrivals(&mut network), ["0!1"]);
}

#[test]
fn too_many_bytes_break_the_connection() {
    let mut network = network(Mode::Connections);
    let link = Link {
        bytes_max: 10,
        ..steady(MS)
    };
    network.set_link(A, B, link);
    send(&mut network, 0, A, B, "12345");
    send(&mut network, 0, A, B, "67890");
    assert_eq!(network.in_flight(), 2);
    send(&mut network, 0, A, B, "x");
    let mut all = arrivals(&mut network);
    all.sort();
    assert_eq!(all, ["0!1", "1!0"]);
    // Arrived and lost messages do not count any more.
    send(&mut network, 9_000 * MS, A, B, "1234567890");
    assert_eq!(arrivals(&mut network), ["0>1 1234567890"]);
}

#[test]
fn a_node_that_ends_is_told_nothing() {
    for machine_runs in [true, false] {
        let mut network = network(Mode::Connections);
        send(&mut network, 0, A, B, "one");
        send(&mut network, 0, B, A, "two");
        network.node_down(0, B, machine_runs);
        send(&mut network, 1, A, B, "three");
        assert_eq!(arrivals(&mut network), ["0!1"]);
        send(&mut network, 10_000 * MS, A, B, "refused");
        let at = network.next_at().unwrap() - 10_000 * MS;
        assert_eq!(at < 150 * MS, machine_runs, "{at}");
        assert_eq!(arrivals(&mut network), ["0!1"]);
        network.node_up(B);
        send(&mut network, 20_000 * MS, B, A, "back");
        assert_eq!(arrivals(&mut network), ["1>0 back"]);
    }
}

#[test]
fn what_waits_for_a_held_node_keeps_its_order() {
    for mode in [Mode::Connections, Mode::Datagrams] {
        let mut network = network(mode);
        send(&mut network, 0, A, B, "1");
        send(&mut network, 9 * MS, A, B, "2");
        network.hold(B, 10 * MS);
        send(&mut network, 9 * MS, A, B, "3");
        send(&mut network, 9 * MS, B, A, "4");
        assert_eq!(network.next_at(), Some(10 * MS));
        let all = arrivals(&mut network);
        assert_eq!(all, ["0>1 1", "0>1 2", "0>1 3", "1>0 4"]);
    }
}

#[test]
fn delays_are_what_they_say() {
    let mut rng = Rng::new(5);
    let delay = Delay {
        min_nanos: 1000,
        mean_nanos: 5000,
        long_permille: 0,
        long_nanos: 0,
    };
    let drawn: Vec<u64> = (0..100_000).map(|_| delay.draw(&mut rng)).collect();
    let mean = drawn.iter().sum::<u64>() / drawn.len() as u64;
    assert!((4900..5100).contains(&mean), "{mean}");
    assert!(drawn.iter().all(|&d| d >= 1000));
    let late = drawn.iter().filter(|&&d| d > 1000 + 5 * 4000).count();
    assert!((300..1500).contains(&late), "{late}: an exponential tail");
    let long = Delay {
        long_permille: 500,
        long_nanos: 1_000_000,
        ..delay
    };
    let longs = (0..10_000)
        .filter(|_| long.draw(&mut rng) > 1_000_000)
        .count();
    assert!((4500..5500).contains(&longs), "{longs}");
}

#[test]
fn datagrams_are_lost_doubled_and_reordered() {
    let link = Link {
        drop_permille: 100,
        duplicate_permille: 100,
        ..Link::default()
    };
    let mut network: Network<Vec<u8>> = Network::new(9, Mode::Datagrams, link);
    for i in 0..10_000u64 {
        network.send(i * 1000, A, B, i.to_le_bytes().to_vec());
    }
    let mut last = 0;
    let mut back = 0;
    while let Some(at) = network.next_at() {
        if let Some(Delivery::Message { message, .. }) = network.deliver(at) {
            let n = u64::from_le_bytes(message.try_into().unwrap());
            back += u64::from(n < last);
            last = n;
        }
    }
    let counts = network.counts();
    assert!((800..1300).contains(&counts.lost), "{counts:?}");
    assert!((900..1100).contains(&counts.duplicated), "{counts:?}");
    assert_eq!(counts.delivered, 10_000 + counts.duplicated - counts.lost);
    assert!(back > 1000, "{back}");
}

/// The state of one direction in a random run.
#[derive(Clone, Default)]
struct Way {
    sent: u64,
    /// How many messages it had sent when it was last told.
    told_at: u64,
    /// The next number that may arrive without a break before it.
    next: u64,
    /// Whether the receiver was told since the last message.
    broken: bool,
}

/// A random run over connections, which changes everything that can be changed.
struct Storm {
    rng: Rng,
    network: Network<Vec<u8>>,
    ways: Vec<Way>,
    delivered: Vec<(u64, Delivery<Vec<u8>>)>,
    down: Vec<bool>,
}

fn way(from: NodeId, to: NodeId) -> usize {
    (from.0 * 3 + to.0) as usize
}

impl Storm {
    fn new(seed: u64) -> Self {
        let link = Link {
            drop_permille: 3,
            bytes_max: 2000,
            ..Link::default()
        };
        Self {
            rng: Rng::new(seed),
            network: Network::new(seed, Mode::Connections, link),
            // The first connection has no predecessor that could have broken.
            ways: vec![
                Way {
                    broken: true,
                    ..Way::default()
                };
                9
            ],
            delivered: Vec::new(),
            down: vec![false; 3],
        }
    }

    fn two(&mut self) -> (NodeId, NodeId) {
        let from = self.rng.below(3);
        let to = (from + 1 + self.rng.below(2)) % 3;
        (NodeId(from as u32), NodeId(to as u32))
    }

    fn step(&mut self, now: u64) {
        let (from, to) = self.two();
        match self.rng.below(60) {
            0 => self.network.cut(now, from, to),
            1 => self.network.partition(now, &NODES, &[from]),
            2..4 => self.network.lift(from, to),
            4..10 => self.network.heal(),
            10 => self.network.hold(from, now + self.rng.below(500 * MS)),
            11 if !self.down[from.0 as usize] => {
                self.network.node_down(now, from, self.rng.one_in(2));
                self.down[from.0 as usize] = true;
                self.restart(from);
            }
            12..20 => {
                self.network.node_up(from);
                self.down[from.0 as usize] = false;
            }
            _ if !self.down[from.0 as usize] => {
                let way = &mut self.ways[way(from, to)];
                let message = way.sent.to_le_bytes().to_vec();
                way.sent += 1;
                self.network.send(now, from, to, message);
            }
            _ => {}
        }
    }

    /// A node that ends forgets the messages that it received and sent.
    fn restart(&mut self, node: NodeId) {
        for other in NODES.into_iter().filter(|&o| o != node) {
            self.ways[way(other, node)].broken = true;
            let out = &mut self.ways[way(node, other)];
            out.told_at = out.sent;
        }
    }

    fn deliver(&mut self, now: u64) {
        while let Some(delivery) = self.network.deliver(now) {
            match &delivery {
                Delivery::Message { from, to, message } => {
                    assert!(
                        !self.down[to.0 as usize],
                        "a message for a node that is down"
                    );
                    let n = u64::from_le_bytes(message[..].try_into().unwrap());
                    let way = &mut self.ways[way(*from, *to)];
                    assert!(n >= way.next, "{n} after {} from {from} to {to}", way.next);
                    assert!(
                        n == way.next || way.broken,
                        "a gap before {n} from {from} to {to}"
                    );
                    (way.next, way.broken) = (n + 1, false);
                }
                Delivery::Broken { at, peer } => {
                    assert!(!self.down[at.0 as usize], "{at} is told and does not run");
                    self.ways[way(*peer, *at)].broken = true;
                    let out = &mut self.ways[way(*at, *peer)];
                    out.told_at = out.sent;
                }
            }
            self.delivered.push((now, delivery));
        }
    }

    fn run(mut self, steps: u64) -> Self {
        let mut now = 0;
        for _ in 0..steps {
            let wait = [100, 100_000, 1_000_000, 400 * MS][self.rng.below(4) as usize];
            let until = now + self.rng.below(wait);
            while let Some(at) = self.network.next_at().filter(|&at| at <= until) {
                now = now.max(at);
                self.deliver(now);
            }
            now = until;
            self.step(now);
        }
        while let Some(at) = self.network.next_at() {
            self.deliver(at.max(now));
        }
        self
    }
}

/// Over connections, messages arrive in order and once. If one is missing, the receiver was told before the
/// next one, and the sender after it.
#[test]
fn connections_keep_their_promise_in_storms() {
    let (mut delivered, mut lost, mut broken) = (0, 0, 0);
    for seed in 0..300 {
        let storm = Storm::new(seed).run(3000);
        for (i, way) in storm.ways.iter().enumerate() {
            let all_known = way.next == way.sent || way.told_at >= way.sent;
            assert!(
                all_known,
                "seed {seed}, way {i}: a lost message and nobody was told"
            );
        }
        let counts = storm.network.counts();
        assert_eq!(counts.sent, counts.delivered + counts.lost);
        assert_eq!(storm.network.in_flight(), 0);
        assert!(storm.network.bytes.values().all(|&bytes| bytes == 0));
        delivered += counts.delivered;
        lost += counts.lost;
        broken += counts.broken;
    }
    assert!(
        delivered > 100_000 && lost > 50_000 && broken > 10_000,
        "{delivered} {lost} {broken}"
    );
}

#[test]
fn a_seed_repeats_everything() {
    let runs = [7, 7, 8].map(|seed| Storm::new(seed).run(2000).delivered);
    assert!(runs[0].len() > 500);
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}
