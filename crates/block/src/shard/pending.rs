//! Changes of clients that wait for room, in order for each group.
//!
//! A group may wait for long, as for a majority that is not there. So each has bounds of its own, below the store's, and
//! what waits of one is passed by what others have.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::Group;
use crate::wire::client::Request;

/// The most changes that wait, and their bytes: of the store, and of a group.
const COUNT_MAX: usize = 8192;
const BYTES_MAX: u64 = 64 << 20;
const GROUP_COUNT_MAX: usize = 2048;
const GROUP_BYTES_MAX: u64 = 24 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pending {
    groups: BTreeMap<Group, Queue>,
    len: usize,
    bytes: u64,
    /// Counts those that came.
    came: u64,
}

#[derive(Debug, Default)]
struct Queue {
    /// When each came, who asks, and for what.
    changes: VecDeque<(u64, u64, Request)>,
    bytes: u64,
}

impl Pending {
    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes a change. Gives its number back where too many wait, of all or of its group.
    pub(super) fn push(&mut self, client: u64, request: Request) -> Result<(), u64> {
        let is_full = |q: &Queue| q.changes.len() >= GROUP_COUNT_MAX || q.bytes >= GROUP_BYTES_MAX;
        if self.len >= COUNT_MAX
            || self.bytes >= BYTES_MAX
            || self.groups.get(&request.group).is_some_and(is_full)
        {
            return Err(request.id);
        }
        let queue = self.groups.entry(request.group).or_default();
        let bytes = request.what.payload_bytes();
        queue.bytes += bytes;
        self.bytes += bytes;
        self.len += 1;
        self.came += 1;
        queue.changes.push_back((self.came, client, request));
        Ok(())
    }

    /// The one that came first, of the groups that may go on.
    pub(super) fn pop(&mut self, may: impl Fn(Group) -> bool) -> Option<(u64, Request)> {
        let first = |queue: &Queue| queue.changes.front().map(|(came, ..)| *came);
        let firsts = self.groups.iter().filter(|(group, _)| may(**group));
        let firsts = firsts.filter_map(|(&group, queue)| Some((first(queue)?, group)));
        let (_, group) = firsts.min()?;
        let queue = self.groups.get_mut(&group)?;
        let (_, client, request) = queue.changes.pop_front()?;
        let bytes = request.what.payload_bytes();
        queue.bytes -= bytes;
        if queue.changes.is_empty() {
            self.groups.remove(&group);
        }
        self.bytes -= bytes;
        self.len -= 1;
        Some((client, request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::command::Origin;
    use crate::ids::{Chunk, Layer, Tree};
    use crate::wire::client::{Span, What};

    fn zero(group: u32, id: u64) -> Request {
        Request {
            id,
            group: Group(group),
            tree: Tree(1),
            what: What::Zero(Span {
                chunk: Chunk(0),
                offset: 0,
                len: 4096,
            }),
            layer: Layer(1),
            origin: Origin::default(),
        }
    }

    /// A group that waited for its majority kept all others from being served.
    #[test]
    fn a_group_that_waits_is_passed_and_does_not_take_all_places() {
        let mut pending = Pending::default();
        let refused = (0..20_000).find(|&id| pending.push(1, zero(1, id)).is_err());
        assert_eq!(refused, Some(GROUP_COUNT_MAX as u64));
        assert_eq!(pending.push(1, zero(2, 7)), Ok(()));
        assert_eq!(pending.push(1, zero(3, 8)), Ok(()));
        let next = |pending: &mut Pending, may: fn(Group) -> bool| {
            pending
                .pop(may)
                .map(|(_, request)| (request.group.0, request.id))
        };
        assert_eq!(next(&mut pending, |g| g != Group(1)), Some((2, 7)));
        assert_eq!(next(&mut pending, |_| true), Some((1, 0)));
        assert_eq!(next(&mut pending, |_| true), Some((1, 1)));
        assert_eq!(next(&mut pending, |g| g != Group(1)), Some((3, 8)));
        assert_eq!(next(&mut pending, |g| g != Group(1)), None);
        while next(&mut pending, |_| true).is_some() {}
        assert!(pending.is_empty() && pending.bytes == 0);
    }
}
