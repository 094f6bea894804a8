//! A simulated network: messages between nodes that decide nothing themselves when they arrive.
//!
//! ```text
//!   send(now, from, to, message) ──> on its way, by arrival ──> deliver(now) ──> Delivery
//! ```
//!
//! Each direction between two nodes is a [`Link`]: how long a message takes, how often one is lost, how
//! many bytes may be on their way. It can be cut. All of that can change at any time. There are two
//! [`Mode`]s:
//! - *datagrams*: each message for itself: lost, late, twice, out of order;
//! - *connections*, as those of TCP: in order and once, or the connection breaks. What was on its way is
//!   lost then, and both ends are told, each when its own system finds out. Until then an end sends
//!   into nothing. The next message after that is sent over a new connection.
//!
//! ```text
//!   a ──m1──m2──X  lost                      a told ├─ new connection: m4 ──────────┐
//!   b <─m1                     b told of it first ──┤ <───── m4, never before that ─┘
//! ```
//!
//! In a broken connection a direction that is not cut goes on until its receiver knows: half-open
//! connections are the rule where one direction fails.
//!
//! Deterministic: the same seed and the same calls give the same deliveries. Delays are drawn with
//! integers alone, so that they do not depend on a machine's logarithm.

mod connection;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use base::rng::Rng;
use bytes::Bytes;

use super::node::NodeId;
use connection::Connection;

/// What can be sent. A datagram may arrive twice.
pub trait Message: Clone {
    /// How much it counts of [`Link::bytes_max`].
    fn bytes(&self) -> u64;
}

impl Message for Bytes {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }
}

impl Message for Vec<u8> {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }
}

/// How messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In order and once, until the connection breaks.
    Connections,
    /// Each for itself.
    Datagrams,
}

/// How long something takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// At least.
    pub min_nanos: u64,
    /// On average, without the long ones; what is more than the minimum falls off exponentially.
    pub mean_nanos: u64,
    /// Of a thousand, so many take [`Delay::long_nanos`] more.
    pub long_permille: u32,
    /// See there.
    pub long_nanos: u64,
}

impl Delay {
    /// A time.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        // -log2 of a random fraction: its leading zeros, and between them a straight line. 1.5 on average.
        let bits = rng.next_u64() | 1;
        let zeros = u64::from(bits.leading_zeros());
        let rest = !(bits << zeros << 1) >> 48;
        let spread = u128::from(self.mean_nanos.saturating_sub(self.min_nanos));
        let more = (spread * u128::from((zeros << 16) + rest) * 2 / 3) >> 16;
        let long = permille(rng, self.long_permille);
        let long_nanos = if long { self.long_nanos } else { 0 };
        self.min_nanos
            .saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
            .saturating_add(long_nanos)
    }
}

/// One direction between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// How long a message takes.
    pub delay: Delay,
    /// Of a thousand messages, so many are lost: a connection breaks then.
    pub drop_permille: u32,
    /// Of a thousand datagrams, so many arrive twice.
    pub duplicate_permille: u32,
    /// Bytes on their way at most: what is more is a lost datagram, or breaks the connection.
    pub bytes_max: u64,
}

impl Default for Link {
    /// A quick and reliable local network: 100 µs, one message in a thousand 5 ms more; 64 MiB.
    fn default() -> Self {
        Self {
            delay: Delay {
                min_nanos: 50_000,
                mean_nanos: 100_000,
                long_permille: 1,
                long_nanos: 5_000_000,
            },
            drop_permille: 0,
            duplicate_permille: 0,
            bytes_max: 64 << 20,
        }
    }
}

/// What a node sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery<M> {
    /// A message.
    Message {
        /// Who sent it.
        from: NodeId,
        /// Who gets it.
        to: NodeId,
        /// It.
        message: M,
    },
    /// The connection between the two is broken, or could not be made: what `at` has sent to `peer` and
    /// has no answer for may have arrived or not.
    Broken {
        /// Who is told.
        at: NodeId,
        /// Who was at the other end.
        peer: NodeId,
    },
}

impl<M> Delivery<M> {
    /// The node that sees it.
    pub fn node(&self) -> NodeId {
        match self {
            Self::Message { to, .. } => *to,
            Self::Broken { at, .. } => *at,
        }
    }
}

/// How long an end needs to find out that its connection is broken when the other end says so.
const RESET: Delay = Delay {
    min_nanos: 20_000,
    mean_nanos: 200_000,
    long_permille: 20,
    long_nanos: 20_000_000,
};

/// And when nothing comes through any more.
const SILENCE: Delay = Delay {
    min_nanos: 200_000_000,
    mean_nanos: 800_000_000,
    long_permille: 50,
    long_nanos: 3_000_000_000,
};

/// When something arrives; things of one moment in the order in which they were sent.
type Arrival = (u64, u64);

/// The network.
pub struct Network<M> {
    mode: Mode,
    rng: Rng,
    usual: Link,
    special: BTreeMap<(NodeId, NodeId), Link>,
    cuts: BTreeSet<(NodeId, NodeId)>,
    /// Nodes that do not run, and whether their machines do.
    down: BTreeMap<NodeId, bool>,
    /// Nodes that receive nothing until then.
    held: BTreeMap<NodeId, u64>,
    connections: BTreeMap<(NodeId, NodeId), Connection>,
    flying: BTreeMap<Arrival, Delivery<M>>,
    /// Bytes on their way, by direction.
    bytes: BTreeMap<(NodeId, NodeId), u64>,
    sequence: u64,
    counts: Counts,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages sent.
    pub sent: u64,
    /// Messages delivered, duplicates too.
    pub delivered: u64,
    /// Messages lost.
    pub lost: u64,
    /// Messages that were put on their way twice.
    pub duplicated: u64,
    /// Ends that were told of a broken connection.
    pub broken: u64,
}

impl<M: Message> Network<M> {
    /// A network whose links are all like `usual`.
    pub fn new(seed: u64, mode: Mode, usual: Link) -> Self {
        Self {
            mode,
            rng: Rng::new(seed),
            usual,
            special: BTreeMap::new(),
            cuts: BTreeSet::new(),
            down: BTreeMap::new(),
            held: BTreeMap::new(),
            connections: BTreeMap::new(),
            flying: BTreeMap::new(),
            bytes: BTreeMap::new(),
            sequence: 0,
            counts: Counts::default(),
        }
    }

    /// Puts a message on its way. It may never arrive.
    ///
    /// # Panics
    /// If a node sends to itself.
    pub fn send(&mut self, now: u64, from: NodeId, to: NodeId, message: M) {
        assert_ne!(from, to, "a node sends to itself");
        self.counts.sent += 1;
        let link = self.link(from, to);
        match self.mode {
            Mode::Datagrams => self.send_datagram(now, from, to, &link, message),
            Mode::Connections => self.send_in_order(now, from, to, &link, message),
        }
    }

    /// When [`Network::deliver`] has something next.
    pub fn next_at(&self) -> Option<u64> {
        self.flying.first_key_value().map(|((at, _), _)| *at)
    }

    /// What arrives by now, one thing after the other.
    pub fn deliver(&mut self, now: u64) -> Option<Delivery<M>> {
        let first = self.flying.first_entry()?;
        if first.key().0 > now {
            return None;
        }
        let delivery = first.remove();
        match &delivery {
            Delivery::Message { from, to, message } => {
                self.counts.delivered += 1;
                self.landed((*from, *to), message.bytes());
            }
            Delivery::Broken { at, peer } => {
                self.counts.broken += 1;
                self.connection(*at, *peer).forget(*at);
            }
        }
        Some(delivery)
    }

    /// One direction as it is.
    pub fn link(&self, from: NodeId, to: NodeId) -> Link {
        self.special.get(&(from, to)).copied().unwrap_or(self.usual)
    }

    /// Changes one direction, for what is sent from now on.
    pub fn set_link(&mut self, from: NodeId, to: NodeId, link: Link) {
        self.special.insert((from, to), link);
    }

    /// Makes every link usual again, and lifts every cut. Connections that a cut has broken stay so.
    pub fn heal(&mut self) {
        self.special.clear();
        self.cuts.clear();
    }

    /// Heals, and loses no message from here on: where answers are awaited in time, each loss costs two seconds.
    pub fn calm(&mut self) {
        self.heal();
        self.usual.drop_permille = 0;
    }

    /// Cuts one direction: what is on its way there is lost.
    pub fn cut(&mut self, now: u64, from: NodeId, to: NodeId) {
        if !self.cuts.insert((from, to)) {
            return;
        }
        self.lose(|m_from, m_to, _| (m_from, m_to) == (from, to));
        if self.mode == Mode::Connections && self.connections.contains_key(&pair(from, to)) {
            self.break_off(now, from, to, SILENCE);
            self.connection(from, to).silence(from);
        }
    }

    /// Lifts the cut of one direction.
    pub fn lift(&mut self, from: NodeId, to: NodeId) {
        self.cuts.remove(&(from, to));
    }

    /// Cuts `side` off from all `nodes` that are not in it, both ways.
    pub fn partition(&mut self, now: u64, nodes: &[NodeId], side: &[NodeId]) {
        for &inside in side {
            for &outside in nodes.iter().filter(|n| !side.contains(n)) {
                self.cut(now, inside, outside);
                self.cut(now, outside, inside);
            }
        }
    }

    /// Whether messages get from one to the other.
    pub fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.cuts.contains(&(from, to))
    }

    /// A node ends: nothing that is on its way to it arrives, and its peers' connections break. They
    /// are told soon if its machine still runs, and says so. Datagrams that it has sent arrive.
    pub fn node_down(&mut self, now: u64, node: NodeId, machine_runs: bool) {
        self.down.insert(node, machine_runs);
        self.held.remove(&node);
        let is_connections = self.mode == Mode::Connections;
        self.lose(|from, to, _| to == node || is_connections && from == node);
        self.flying
            .retain(|_, d| !matches!(d, Delivery::Broken { at, .. } if *at == node));
        for peer in self.peers(node) {
            self.break_off(now, peer, node, if machine_runs { RESET } else { SILENCE });
            self.connection(node, peer).silence(peer);
            self.connection(node, peer).forget(node);
        }
    }

    /// The node runs again, with no connections.
    pub fn node_up(&mut self, node: NodeId) {
        self.down.remove(&node);
    }

    /// The node does nothing until then: what arrives for it waits, in its order.
    pub fn hold(&mut self, node: NodeId, until: u64) {
        let until = until.max(self.held.get(&node).copied().unwrap_or(0));
        self.held.insert(node, until);
        let early =
            |(at, d): (&Arrival, &Delivery<M>)| (at.0 <= until && d.node() == node).then_some(*at);
        let early: Vec<Arrival> = self.flying.iter().filter_map(early).collect();
        for at in early {
            if let Some(delivery) = self.flying.remove(&at) {
                self.fly(until, delivery);
            }
        }
        for connection in self.connections.values_mut() {
            connection.hold(node, until);
        }
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Messages and notices on their way.
    pub fn in_flight(&self) -> usize {
        self.flying.len()
    }

    fn send_datagram(&mut self, now: u64, from: NodeId, to: NodeId, link: &Link, message: M) {
        let copies = 1 + u32::from(permille(&mut self.rng, link.duplicate_permille));
        self.counts.duplicated += u64::from(copies - 1);
        for _ in 0..copies {
            let arrival = now.saturating_add(link.delay.draw(&mut self.rng));
            let is_lost = permille(&mut self.rng, link.drop_permille)
                || self.is_unreachable(from, to)
                || !self.fits((from, to), link, &message);
            if is_lost {
                self.counts.lost += 1;
                continue;
            }
            self.put(self.not_held(to, arrival), from, to, message.clone());
        }
    }

    /// Sends over the connection of the two, or over a new one.
    fn send_in_order(&mut self, now: u64, from: NodeId, to: NodeId, link: &Link, message: M) {
        let arrival = now.saturating_add(link.delay.draw(&mut self.rng));
        let arrival = self.not_held(to, arrival);
        let is_dropped = permille(&mut self.rng, link.drop_permille);
        let is_lost = is_dropped || !self.fits((from, to), link, &message);
        let arrives = !is_lost && !self.is_unreachable(from, to);
        let connects = !self.is_unreachable(from, to) && !self.is_unreachable(to, from);
        let connection = self.connection(from, to);
        let arrival = if connection.is_dying(from) {
            connection.last_words(from, to, arrives.then_some(arrival))
        } else if !connects {
            // No connection can be made: the sender finds out after a while.
            let is_refused = !self.is_cut(from, to) && !self.is_cut(to, from);
            let is_refused = is_refused && self.down.get(&to) == Some(&true);
            self.break_end(now, from, to, if is_refused { RESET } else { SILENCE });
            self.connection(from, to).silence(from);
            None
        } else if is_lost {
            self.break_off(now, from, to, RESET);
            self.lose(|a, b, _| pair(a, b) == pair(from, to));
            self.connection(from, to).silence(from);
            self.connection(from, to).silence(to);
            None
        } else {
            Some(connection.arrival(to, arrival))
        };
        match arrival {
            Some(arrival) => self.put(arrival, from, to, message),
            None => self.counts.lost += 1,
        }
    }

    /// The connection of the two breaks: both ends will be told. A direction that still works does so
    /// until its receiver knows.
    fn break_off(&mut self, now: u64, a: NodeId, b: NodeId, finds_out: Delay) {
        let before = self.connection(a, b).told(a, b);
        self.break_end(now, a, b, finds_out);
        self.break_end(now, b, a, finds_out);
        // An end that does not know of an earlier break hears nothing of this connection.
        for (end, peer) in [(a, before.1), (b, before.0)] {
            if peer.is_some() {
                self.connection(a, b).silence(end);
            }
        }
        let told = self.connection(a, b).told(a, b);
        self.lose(|from, to, arrival| {
            let at = if to == a { told.0 } else { told.1 };
            pair(from, to) == pair(a, b) && at.is_some_and(|at| arrival >= at)
        });
    }

    /// One end will be told, unless it will be already, or does not run.
    fn break_end(&mut self, now: u64, at: NodeId, peer: NodeId, finds_out: Delay) {
        if self.down.contains_key(&at) || self.connection(at, peer).is_dying(at) {
            return;
        }
        let when = now.saturating_add(finds_out.draw(&mut self.rng));
        let when = self.not_held(at, when);
        self.connection(at, peer).die(at, when);
        self.fly(when, Delivery::Broken { at, peer });
    }

    fn connection(&mut self, a: NodeId, b: NodeId) -> &mut Connection {
        let ends = pair(a, b);
        self.connections
            .entry(ends)
            .or_insert_with(|| Connection::new(ends))
    }

    fn peers(&self, node: NodeId) -> Vec<NodeId> {
        let ends = self.connections.keys();
        let peer = |&(a, b): &(NodeId, NodeId)| match () {
            () if a == node => Some(b),
            () if b == node => Some(a),
            () => None,
        };
        ends.filter_map(peer).collect()
    }

    fn is_unreachable(&self, from: NodeId, to: NodeId) -> bool {
        self.is_cut(from, to) || self.down.contains_key(&to) || self.down.contains_key(&from)
    }

    fn not_held(&self, node: NodeId, at: u64) -> u64 {
        at.max(self.held.get(&node).copied().unwrap_or(0))
    }

    fn fits(&self, way: (NodeId, NodeId), link: &Link, message: &M) -> bool {
        let there = self.bytes.get(&way).copied().unwrap_or(0);
        there.saturating_add(message.bytes()) <= link.bytes_max
    }

    fn landed(&mut self, way: (NodeId, NodeId), bytes: u64) {
        if let Some(there) = self.bytes.get_mut(&way) {
            *there -= bytes;
        }
    }

    fn put(&mut self, at: u64, from: NodeId, to: NodeId, message: M) {
        *self.bytes.entry((from, to)).or_default() += message.bytes();
        self.fly(at, Delivery::Message { from, to, message });
    }

    fn fly(&mut self, at: u64, delivery: Delivery<M>) {
        self.sequence += 1;
        self.flying.insert((at, self.sequence), delivery);
    }

    /// Loses the messages on their way that `which` picks by sender, receiver, arrival.
    fn lose(&mut self, which: impl Fn(NodeId, NodeId, u64) -> bool) {
        let (bytes, counts) = (&mut self.bytes, &mut self.counts);
        self.flying.retain(|at, delivery| {
            let Delivery::Message { from, to, message } = delivery else {
                return true;
            };
            let is_lost = which(*from, *to, at.0);
            if is_lost {
                counts.lost += 1;
                if let Some(there) = bytes.get_mut(&(*from, *to)) {
                    *there -= message.bytes();
                }
            }
            !is_lost
        });
    }
}

impl<M> fmt::Debug for Network<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?}: {} in flight, {:?}",
            self.mode,
            self.flying.len(),
            self.counts
        )
    }
}

/// The two, in their order.
fn pair(a: NodeId, b: NodeId) -> (NodeId, NodeId) {
    (a.min(b), a.max(b))
}

/// True so many times in a thousand.
fn permille(rng: &mut Rng, of_thousand: u32) -> bool {
    of_thousand > 0 && rng.below(1000) < u64::from(of_thousand)
}

#[cfg(test)]
mod tests;
