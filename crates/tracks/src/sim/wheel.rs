//! A timing wheel: which object is next, and when.
//!
//! Each object waits in one place. Time is divided into slots of equal width; each slot has a list
//! of its objects, linked through an array. Only the objects of the open slot are sorted, in a
//! small heap. So the cost per object does not grow with their number, unlike in a heap of all
//! objects.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The end of a list.
const NONE: u32 = u32::MAX;
/// The time of a whole turn of the wheel, in intervals.
const TURN: i64 = 16;

/// When an object is due, µs, and the next object in its slot.
#[derive(Clone, Copy, Debug)]
struct Place {
    due: i64,
    next: u32,
}

/// The timing wheel.
#[derive(Debug)]
pub(super) struct Wheel {
    places: Vec<Place>,
    /// The first object of each slot.
    slots: Vec<u32>,
    /// The width of a slot, µs.
    width: i64,
    /// The number of the open slot, counted from time 0.
    open: i64,
    /// The objects of the open slot, and all that are due before its end.
    heap: BinaryHeap<Reverse<(i64, u32)>>,
    waiting: usize,
}

impl Wheel {
    /// A wheel for the objects `0..objects`, each due about every `interval` µs, from `start` on.
    /// No object waits yet.
    pub(super) fn new(objects: u32, interval: i64, start: i64) -> Self {
        let slots = (objects / 16).clamp(64, 1 << 16).next_power_of_two();
        let width = (interval.saturating_mul(TURN) / i64::from(slots)).max(1);
        let place = Place { due: 0, next: NONE };
        Self {
            places: vec![place; objects as usize],
            slots: vec![NONE; slots as usize],
            width,
            open: start.div_euclid(width),
            heap: BinaryHeap::new(),
            waiting: 0,
        }
    }

    /// Adds an object that does not wait yet.
    pub(super) fn put(&mut self, object: u32, due: i64) {
        if self.hang(object, due) {
            self.waiting += 1;
        }
    }

    /// Takes the object that is due next, with its time, µs. At equal times, the one with the
    /// lowest number is first.
    pub(super) fn take(&mut self) -> Option<(u32, i64)> {
        loop {
            if let Some(Reverse((due, object))) = self.heap.pop() {
                self.waiting -= 1;
                return Some((object, due));
            }
            if self.waiting == 0 {
                return None;
            }
            self.open += 1;
            let slot = self.slot_of(self.open);
            let mut next = self
                .slots
                .get_mut(slot)
                .map_or(NONE, |head| std::mem::replace(head, NONE));
            while let Some(&place) = self.places.get(next as usize) {
                // An object that is due a turn of the wheel later goes back to the same slot.
                self.hang(next, place.due);
                next = place.next;
            }
        }
    }

    fn slot_of(&self, number: i64) -> usize {
        number.rem_euclid(self.slots.len().max(1) as i64) as usize
    }

    fn hang(&mut self, object: u32, due: i64) -> bool {
        let number = due.div_euclid(self.width);
        if number <= self.open {
            self.heap.push(Reverse((due, object)));
            return true;
        }
        let slot = self.slot_of(number);
        let places = self.places.get_mut(object as usize);
        let (Some(place), Some(head)) = (places, self.slots.get_mut(slot)) else {
            return false;
        };
        let next = std::mem::replace(head, object);
        *place = Place { due, next };
        true
    }
}

#[cfg(test)]
mod tests {
    use base::rng::Rng;

    use super::*;

    /// The wheel gives the same order as one heap, for times far and near, equal and in the past.
    #[test]
    fn it_is_a_heap() {
        let mut rng = Rng::new(1);
        for (objects, start) in [(1, -5), (7, 0), (3000, 1_700_000_000_000_000)] {
            let mut wheel = Wheel::new(objects, 10_000, start);
            let mut heap = BinaryHeap::new();
            for object in 0..objects {
                let due = start + rng.below(10_000) as i64;
                wheel.put(object, due);
                heap.push(Reverse((due, object)));
            }
            for _ in 0..20_000 {
                let Reverse((due, object)) = heap.pop().unwrap();
                assert_eq!(wheel.take(), Some((object, due)));
                let range = 100_u64.pow(rng.below(4) as u32);
                let due = due + rng.below(2 * range) as i64;
                wheel.put(object, due);
                heap.push(Reverse((due, object)));
            }
            for _ in 0..objects {
                assert!(wheel.take().is_some());
            }
            assert_eq!(wheel.take(), None);
        }
    }
}
