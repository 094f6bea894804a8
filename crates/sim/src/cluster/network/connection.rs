//! The knowledge of two nodes about the connection between them. An end is *dying* from the moment when the
//! connection broke until it is told; messages that it sends in that time use the broken one.

use super::super::node::NodeId;

/// One end of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    /// When it is told that the connection is broken, if that is planned.
    told: Option<u64>,
    /// Whether messages that it sends over the broken connection are lost.
    silent: bool,
    /// The arrival of the last message to it.
    last: u64,
}

/// The connection of two nodes, and its successor.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    nodes: (NodeId, NodeId),
    ends: [End; 2],
}

impl Connection {
    pub(super) fn new(nodes: (NodeId, NodeId)) -> Self {
        Self {
            nodes,
            ends: [End::default(); 2],
        }
    }

    fn end(&mut self, node: NodeId) -> &mut End {
        let [first, second] = &mut self.ends;
        if node == self.nodes.0 { first } else { second }
    }

    /// Whether the connection is broken and the node will be told.
    pub(super) fn is_dying(&mut self, node: NodeId) -> bool {
        self.end(node).told.is_some()
    }

    /// When each of the two ends is told.
    pub(super) fn told(&mut self, a: NodeId, b: NodeId) -> (Option<u64>, Option<u64>) {
        (self.end(a).told, self.end(b).told)
    }

    /// The node will be told at this time.
    pub(super) fn die(&mut self, node: NodeId, at: u64) {
        let end = self.end(node);
        (end.told, end.silent) = (Some(at), false);
    }

    /// Messages that the node sends over the broken connection from now on are lost.
    pub(super) fn silence(&mut self, node: NodeId) {
        self.end(node).silent = true;
    }

    /// The node was told, or has ended: its messages use a new connection.
    pub(super) fn forget(&mut self, node: NodeId) {
        let end = self.end(node);
        (end.told, end.silent) = (None, false);
    }

    /// The arrival of a message over a new or intact connection: after those before it, and after the
    /// receiver knows that the previous connection is broken.
    pub(super) fn arrival(&mut self, to: NodeId, at: u64) -> u64 {
        let end = self.end(to);
        end.last = at.max(end.last).max(end.told.unwrap_or(0));
        end.last
    }

    /// The same over a connection that is broken, which the sender does not know; `None` if the message is
    /// lost, as are then all that follow it.
    pub(super) fn last_words(&mut self, from: NodeId, to: NodeId, at: Option<u64>) -> Option<u64> {
        let is_silent = self.end(from).silent;
        let end = self.end(to);
        let at = at.map(|at| at.max(end.last));
        let in_time = at.filter(|&at| !is_silent && end.told.is_some_and(|told| at < told));
        match in_time {
            Some(at) => end.last = at,
            None => self.silence(from),
        }
        in_time
    }

    /// Nothing arrives at the node before this time.
    pub(super) fn hold(&mut self, node: NodeId, until: u64) {
        if node != self.nodes.0 && node != self.nodes.1 {
            return;
        }
        let end = self.end(node);
        end.last = end.last.max(until);
        end.told = end.told.map(|told| told.max(until));
    }
}
