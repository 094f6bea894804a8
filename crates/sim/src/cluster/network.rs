//! A simulated network between nodes.
//!
//! ```text
//!   send(now, from, to, message) ──> on its way, by arrival ──> deliver(now) ──> Delivery
//! ```
//!
//! Each direction between two nodes is a [`Link`]: how long a message takes, how often one is lost, how
//! many bytes may be on their way. It can be cut. All of that can change at any time. There are two
//! [`Mode`]s:
//! - *datagrams*: each message travels by itself: it may be lost, late, duplicated, or reordered;
//! - *connections*, like those of TCP: messages arrive in order and once, or the connection breaks. Then
//!   those on their way are lost, and both ends are told, each when its own system notices. Until then, an
//!   end sends in vain. The next message after that uses a new connection.
//!
//! ```text
//!   a ──m1──m2──X  lost                      a told ├─ new connection: m4 ──────────┐
//!   b <─m1                     b told of it first ──┤ <───── m4, never before that ─┘
//! ```
//!
//! In a broken connection, a direction that is not cut works until its receiver knows: half-open
//! connections are the rule if one direction fails.
//!
//! Deterministic: the same seed and the same calls give the same deliveries. Delays are drawn with integers
//! only, so that they do not depend on a machine's logarithm.

mod connection;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use base::rng::Rng;
use bytes::Bytes;

use super::node::NodeId;
use connection::Connection;

/// A message that can be sent. A datagram may arrive twice.
pub trait Message: Clone {
    /// Its size, which counts towards [`Link::bytes_max`].
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
    /// Messages arrive in order and once, until the connection breaks.
    Connections,
    /// Each message travels by itself.
    Datagrams,
}

/// A distribution of delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// The minimum.
    pub min_nanos: u64,
    /// The mean without the long delays; the part above the minimum is distributed exponentially.
    pub mean_nanos: u64,
    /// This many of a thousand take [`Delay::long_nanos`] longer.
    pub long_permille: u32,
    /// The additional time of the long delays.
    pub long_nanos: u64,
}

impl Delay {
    /// Draws a delay.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        // -log2 of a random fraction: the number of its leading zeros, with linear interpolation; the mean
        // is 1.5.
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
    /// This many of a thousand messages are lost, which breaks a connection.
    pub drop_permille: u32,
    /// This many of a thousand datagrams arrive twice.
    pub duplicate_permille: u32,
    /// The most bytes on their way: beyond that a datagram is lost, or the connection breaks.
    pub bytes_max: u64,
}

impl Default for Link {
    /// A fast and reliable local network: 100 µs; one message in a thousand takes 5 ms longer; 64 MiB.
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

/// An event of the network at a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery<M> {
    /// A message.
    Message {
        /// The sender.
        from: NodeId,
        /// The receiver.
        to: NodeId,
        /// The message.
        message: M,
    },
    /// The connection between two nodes is broken, or could not be made: messages from `at` to `peer` that
    /// were not answered may have arrived or not.
    Broken {
        /// The node that is told.
        at: NodeId,
        /// The other end.
        peer: NodeId,
    },
}

impl<M> Delivery<M> {
    /// The node at which the event occurs.
    pub fn node(&self) -> NodeId {
        match self {
            Self::Message { to, .. } => *to,
            Self::Broken { at, .. } => *at,
        }
    }
}

/// How long an end takes to notice that its connection is broken if the other end reports it.
const RESET: Delay = Delay {
    min_nanos: 20_000,
    mean_nanos: 200_000,
    long_permille: 20,
    long_nanos: 20_000_000,
};

/// How long it takes if nothing comes through any more.
const SILENCE: Delay = Delay {
    min_nanos: 200_000_000,
    mean_nanos: 800_000_000,
    long_permille: 50,
    long_nanos: 3_000_000_000,
};

/// The time of an arrival, and a number that keeps simultaneous ones in the order of their sending.
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
    /// Nodes that receive nothing until a moment.
    held: BTreeMap<NodeId, u64>,
    connections: BTreeMap<(NodeId, NodeId), Connection>,
    flying: BTreeMap<Arrival, Delivery<M>>,
    /// Bytes on their way, by direction.
    bytes: BTreeMap<(NodeId, NodeId), u64>,
    sequence: u64,
    counts: Counts,
}

/// Counts of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages sent.
    pub sent: u64,
    /// Messages delivered, duplicates too.
    pub delivered: u64,
    /// Messages lost.
    pub lost: u64,
    /// Messages that were duplicated.
    pub duplicated: u64,
    /// Ends that were told of a broken connection.
    pub broken: u64,
}

impl<M: Message> Network<M> {
    /// A network whose links are all equal to `usual`.
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

    /// Sends a message. It may never arrive.
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

    /// The time of the next delivery.
    pub fn next_at(&self) -> Option<u64> {
        self.flying.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next delivery up to now.
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

    /// The current state of one direction.
    pub fn link(&self, from: NodeId, to: NodeId) -> Link {
        self.special.get(&(from, to)).copied().unwrap_or(self.usual)
    }

    /// Changes one direction, for later messages.
    pub fn set_link(&mut self, from: NodeId, to: NodeId, link: Link) {
        self.special.insert((from, to), link);
    }

    /// Restores every link, and lifts every cut. Connections that a cut has broken stay broken.
    pub fn heal(&mut self) {
        self.special.clear();
        self.cuts.clear();
    }

    /// Heals, and loses no message from here on: when answers are awaited within a time, each loss would cost
    /// two seconds.
    pub fn calm(&mut self) {
        self.heal();
        self.usual.drop_permille = 0;
    }

    /// Cuts one direction: messages on their way are lost.
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

    /// Whether one direction is cut.
    pub fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.cuts.contains(&(from, to))
    }

    /// A node ends: messages on their way to it are lost, and its peers' connections break. They are told
    /// soon if its machine still runs. Datagrams that it has sent still arrive.
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

    /// The node runs again, without connections.
    pub fn node_up(&mut self, node: NodeId) {
        self.down.remove(&node);
    }

    /// The node does nothing until then: deliveries to it wait, in order.
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

    /// Counts of events so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Number of messages and notices on their way.
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

    /// Sends over the connection of two nodes, or over a new one.
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
            // No connection can be made: the sender notices after a while.
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

    /// Breaks the connection of two nodes: both ends will be told. A direction that still works does so
    /// until its receiver knows.
    fn break_off(&mut self, now: u64, a: NodeId, b: NodeId, finds_out: Delay) {
        let before = self.connection(a, b).told(a, b);
        self.break_end(now, a, b, finds_out);
        self.break_end(now, b, a, finds_out);
        // An end that does not know of an earlier break receives nothing over this connection.
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

    /// One end will be told, unless that is planned already or it does not run.
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

    /// Loses the messages on their way for which `which` is true, given sender, receiver, arrival.
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

/// The two nodes in order.
fn pair(a: NodeId, b: NodeId) -> (NodeId, NodeId) {
    (a.min(b), a.max(b))
}

/// True this many times in a thousand.
fn permille(rng: &mut Rng, of_thousand: u32) -> bool {
    of_thousand > 0 && rng.below(1000) < u64::from(of_thousand)
}

#[cfg(test)]
mod tests;
