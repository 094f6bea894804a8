//! Items that groups have for the log and that are not in a batch yet.
//!
//! The items of one group keep their order. Groups take turns, so that large writes of one do not make others
//! wait; a group's items may be split over several batches.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::Group;
use crate::raftlog::batch::{self, Item};

/// The most bytes of a group in its turn; at least one item is taken.
const TURN_BYTES: u64 = 1 << 20;

/// The same for items without payloads, because there may be little room for them.
const SMALL_BYTES: u64 = 32 << 10;

/// Items of a group that go to one batch.
#[derive(Debug)]
struct Part {
    items: Vec<Item>,
    bytes: u64,
    has_payloads: bool,
    /// The number of its ready, if this is the ready's last part.
    number: Option<u64>,
}

/// The content of a batch.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) items: Vec<Item>,
    /// Readies whose last items are in the batch.
    pub(super) numbers: Vec<(Group, u64)>,
}

/// The items that wait for a batch.
#[derive(Debug, Default)]
pub(super) struct Held {
    groups: BTreeMap<Group, VecDeque<Part>>,
    bytes: u64,
    /// The group that had the last turn.
    last: Group,
}

impl Held {
    /// Bytes of all items.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the items of a ready.
    pub(super) fn push(&mut self, group: Group, items: Vec<Item>, number: Option<u64>) {
        let mut part = Part::empty();
        for item in items {
            let bytes = batch::bytes(std::slice::from_ref(&item), 1);
            let most = if part.has_payloads || !item.payload.is_empty() {
                TURN_BYTES
            } else {
                SMALL_BYTES
            };
            if !part.items.is_empty() && part.bytes + bytes > most {
                self.push_part(group, std::mem::replace(&mut part, Part::empty()));
            }
            part.has_payloads |= !item.payload.is_empty();
            part.bytes += bytes;
            part.items.push(item);
        }
        if !part.items.is_empty() {
            part.number = number;
            self.push_part(group, part);
        }
    }

    fn push_part(&mut self, group: Group, part: Part) {
        self.bytes += part.bytes;
        self.groups.entry(group).or_default().push_back(part);
    }

    /// Items of at most `bytes_max`, in turns, beginning after the group of the last turn; only items
    /// without payloads if the log has no room for others. `None`: there are none.
    pub(super) fn take(&mut self, bytes_max: u64, with_payloads: bool) -> Option<Batch> {
        let mut out = Batch::default();
        let mut bytes = 0;
        let mut order: VecDeque<Group> = self.groups.keys().copied().collect();
        order.rotate_left(order.partition_point(|&g| g <= self.last) % order.len().max(1));
        while let Some(group) = order.pop_front() {
            let Some(queue) = self.groups.get_mut(&group) else {
                continue;
            };
            let fits = |p: &&mut Part| {
                let is_first = bytes == 0 && with_payloads;
                (with_payloads || !p.has_payloads) && (is_first || bytes + p.bytes <= bytes_max)
            };
            let Some(part) = queue.front_mut().filter(fits).map(Part::take) else {
                continue;
            };
            queue.pop_front();
            if queue.is_empty() {
                self.groups.remove(&group);
            }
            bytes += part.bytes;
            self.bytes -= part.bytes;
            out.items.extend(part.items);
            out.numbers.extend(part.number.map(|n| (group, n)));
            self.last = group;
            order.push_back(group);
        }
        (!out.items.is_empty()).then_some(out)
    }
}

impl Part {
    fn empty() -> Self {
        Self {
            items: Vec::new(),
            bytes: 0,
            has_payloads: false,
            number: None,
        }
    }

    fn take(&mut self) -> Self {
        std::mem::replace(self, Self::empty())
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::ids::{BLOCK, Index, Term};
    use crate::raftlog::batch::Kind;
    use crate::raftlog::groups::HardState;

    fn entry(group: u32, index: u64, blocks: usize) -> Item {
        Item {
            kind: Kind::Entry,
            flags: 0,
            group: Group(group),
            index: Index(index),
            term: Term(1),
            inline: Bytes::new(),
            payload: vec![0; blocks * BLOCK].into(),
        }
    }

    fn indices(batch: &Batch) -> Vec<(u32, u64)> {
        let items = batch.items.iter();
        items.map(|i| (i.group.0, i.index.0)).collect()
    }

    /// A ready of 100 MiB became one batch, which is too large for a file.
    #[test]
    fn a_large_ready_goes_to_several_batches_and_is_told_with_the_last() {
        let mut held = Held::default();
        held.push(
            Group(1),
            (1..=100).map(|i| entry(1, i, 128)).collect(),
            Some(7),
        );
        let (mut next, mut batches) = (1, 0);
        while let Some(batch) = held.take(4 << 20, true) {
            for item in &batch.items {
                assert_eq!(item.index, Index(next));
                next += 1;
            }
            assert!(batch::bytes(&batch.items, 512) < 5 << 20);
            assert_eq!(batch.numbers.is_empty(), next <= 100);
            batches += 1;
        }
        assert_eq!((next, held.bytes()), (101, 0));
        assert!(batches > 10);
    }

    /// The lowest group always came first.
    #[test]
    fn groups_take_turns() {
        let mut held = Held::default();
        held.push(
            Group(1),
            (1..=20).map(|i| entry(1, i, 256)).collect(),
            Some(1),
        );
        held.push(Group(2), vec![entry(2, 1, 1)], Some(1));
        held.push(
            Group(3),
            (1..=20).map(|i| entry(3, i, 256)).collect(),
            Some(1),
        );
        let first = held.take(1 << 20, true).unwrap();
        assert_eq!(indices(&first), [(1, 1)]);
        let second = held.take(2 << 20, true).unwrap();
        assert_eq!(indices(&second), [(2, 1), (3, 1)]);
        assert_eq!(second.numbers, [(Group(2), 1)]);
        let third = held.take(2 << 20, true).unwrap();
        assert_eq!(indices(&third)[0], (1, 2));
    }

    /// A vote does not wait for entries of other groups that have no room, but it does wait for earlier
    /// entries of its own group.
    #[test]
    fn what_has_no_entries_goes_where_entries_have_no_room() {
        let mut held = Held::default();
        let vote = |group| HardState::default().to_item(Group(group));
        held.push(Group(1), vec![entry(1, 1, 1)], Some(1));
        held.push(Group(1), vec![vote(1)], Some(2));
        held.push(Group(2), vec![vote(2)], Some(1));
        let batch = held.take(1 << 20, false).unwrap();
        assert_eq!(batch.numbers, [(Group(2), 1)]);
        assert!(held.take(1 << 20, false).is_none());
        let batch = held.take(1 << 20, true).unwrap();
        assert_eq!(batch.numbers, [(Group(1), 1), (Group(1), 2)]);
    }
}
