//! Changes of clients that wait until they may begin, in order for each group.
//!
//! A group may wait for long, for example for a majority. So each group has limits of its own, below the
//! store's, and other groups' changes may pass those of a waiting group.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::Group;
use crate::wire::client::Request;

/// The most waiting changes and their bytes: of the store, and of a group.
const COUNT_MAX: usize = 8192;
const BYTES_MAX: u64 = 48 << 20;
const GROUP_COUNT_MAX: usize = 2048;
const GROUP_BYTES_MAX: u64 = 24 << 20;

/// The waiting changes of a store.
#[derive(Debug, Default)]
pub(super) struct Pending {
    groups: BTreeMap<Group, Queue>,
    len: usize,
    bytes: u64,
    /// Number of changes that came.
    came: u64,
}

#[derive(Debug, Default)]
struct Queue {
    /// For each change: its number of arrival, the client, and the request.
    changes: VecDeque<(u64, u64, Request)>,
    bytes: u64,
}

impl Pending {
    /// Number of waiting changes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether no change waits.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a change. Returns its id as an error if too many wait, in total or of its group.
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

    /// Removes the change that came first, among the groups for which `may` is true.
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

/// The number of clients' changes on their way in each group, for a limit on them.
#[derive(Debug)]
pub(super) struct Open {
    groups: BTreeMap<Group, usize>,
    all: usize,
    /// Number of groups with some on their way.
    busy: usize,
}

impl Open {
    /// Counts by group.
    pub(super) fn new(groups: impl Iterator<Item = (Group, usize)>) -> Self {
        let groups: BTreeMap<Group, usize> = groups.filter(|&(_, count)| count > 0).collect();
        Self {
            all: groups.values().sum(),
            busy: groups.len(),
            groups,
        }
    }

    /// Whether another change of a group may begin, if `max` of all groups may be on their way. A group has its
    /// share even if others, which may wait for a replica that does not answer, have used all places. So at
    /// most `max` times 1 + 1/2 + … + 1/groups are on their way.
    pub(super) fn has_place(&self, group: Group, max: usize) -> bool {
        let count = self.groups.get(&group).copied().unwrap_or(0);
        let sharers = self.busy + usize::from(count == 0);
        self.all < max || count < max.div_ceil(sharers)
    }

    /// Notes that a change begins.
    pub(super) fn begin(&mut self, group: Group) {
        let count = self.groups.entry(group).or_default();
        self.busy += usize::from(*count == 0);
        *count += 1;
        self.all += 1;
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
    /// One group, which waited for its replicas, had all places, and no change of the others began.
    #[test]
    fn each_group_has_its_share_of_the_places() {
        let mut open = Open::new([(Group(1), 0), (Group(2), 0), (Group(3), 0)].into_iter());
        let fill = |open: &mut Open, group: u32, max: usize| {
            let mut count = 0;
            while open.has_place(Group(group), max) {
                open.begin(Group(group));
                count += 1;
            }
            count
        };
        assert_eq!(fill(&mut open, 1, 12), 12, "one alone has all");
        assert_eq!(fill(&mut open, 2, 12), 6);
        assert_eq!(fill(&mut open, 3, 12), 4);
        assert_eq!(fill(&mut open, 1, 12), 0);
        assert_eq!(fill(&mut open, 4, 1), 1, "something goes on");
        assert_eq!(fill(&mut open, 5, 0), 0, "there is no room at all");
    }
}
