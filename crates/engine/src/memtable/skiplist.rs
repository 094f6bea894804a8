//! A skiplist of internal keys, with lock-free reads and concurrent inserts.
//!
//! One allocation per entry; nothing is ever removed or moved, so a reader needs no protection
//! but the list's lifetime.
//!
//! ```text
//!   | next[height-1] … next[0] | prefix u64 | key_len u32 | value_len u32 | key | value |
//!                              └ a node's address points here               └ internal key
//! ```
//!
//! The comparator's integer prefix of the user key stands in the node, so most comparisons during
//! a search touch no key bytes. The tower stands before it: prefix and the low pointers share a
//! cache line, and the key is found without knowing the height.
//!
//! Inserts link a node bottom-up with one compare-and-swap a level. A [`Splice`] remembers where
//! the last insert went: a run of ascending keys then costs O(1) each. It is reused only by the
//! thread that gets its lock without waiting; others search from the head. Entries that come together
//! are searched for side by side: [`interleaved`].
//!
//! Casts from bytes to nodes are to multiples of 8 from an 8-aligned allocation.
//!
//! Invariants: keys are unique (each sequence number is used once per user key); a node is fully
//! written before it is linked (release), and read after its pointer was loaded (acquire).

#![expect(
    clippy::cast_ptr_alignment,
    reason = "the arena aligns to 8 and towers are multiples of 8"
)]

use std::cmp::Ordering as Order;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use base::{Comparator, key};

use super::arena::Arena;

pub(super) mod interleaved;

/// Towers are at most this high: 4^12 entries are searched in about 12 × 4 / 2 steps.
const MAX_HEIGHT: usize = 12;
/// A node is one level higher with probability 1 in 4.
const BRANCHING_BITS: u32 = 2;

#[repr(C)]
pub(super) struct Node {
    prefix: u64,
    key_len: u32,
    value_len: u32,
    // The tower stands before, key and value behind: see the module's picture.
}

const HEADER: usize = size_of::<Node>();
const POINTER: usize = size_of::<AtomicPtr<Node>>();

impl Node {
    /// The pointer to the next node on `level`.
    ///
    /// # Safety
    /// `node` must be a live node whose tower is higher than `level`.
    #[inline]
    unsafe fn next<'a>(node: *const Node, level: usize) -> &'a AtomicPtr<Node> {
        // SAFETY: the tower stands right before the header and has more than `level` pointers;
        // allocations and the header's offset are multiples of 8.
        unsafe {
            &*node
                .byte_sub((level + 1) * POINTER)
                .cast::<AtomicPtr<Node>>()
        }
    }

    /// The internal key.
    ///
    /// # Safety
    /// `node` must be a live, linked node other than the head, and the list must outlive `'a`.
    #[inline]
    unsafe fn key<'a>(node: *const Node) -> &'a [u8] {
        // SAFETY: `new_node` put `key_len` bytes behind the header.
        unsafe {
            std::slice::from_raw_parts(node.byte_add(HEADER).cast(), (*node).key_len as usize)
        }
    }

    /// The value.
    ///
    /// # Safety
    /// As for [`Node::key`].
    #[inline]
    unsafe fn value<'a>(node: *const Node) -> &'a [u8] {
        // SAFETY: `new_node` put `value_len` bytes behind the key.
        unsafe {
            let at = node.byte_add(HEADER + (*node).key_len as usize);
            std::slice::from_raw_parts(at.cast(), (*node).value_len as usize)
        }
    }
}

/// Asks for a node's cache line: most of a search is waiting for memory.
#[inline]
fn prefetch(node: *const Node) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(node.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = node;
}

/// Where an insert goes: on each level the last node before the key and the first behind it.
struct Splice {
    height: usize,
    prev: [*mut Node; MAX_HEIGHT + 1],
    next: [*mut Node; MAX_HEIGHT + 1],
}

// SAFETY: the pointers are to nodes of the list that owns the splice; nodes never move or die
// before the list.
unsafe impl Send for Splice {}

impl Splice {
    fn empty() -> Self {
        Self {
            height: 0,
            prev: [ptr::null_mut(); MAX_HEIGHT + 1],
            next: [ptr::null_mut(); MAX_HEIGHT + 1],
        }
    }
}

/// A key to be searched for: user key, packed trailer, and the comparator's prefix.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    user_key: &'a [u8],
    packed: u64,
    prefix: u64,
}

/// The list.
pub(super) struct SkipList {
    arena: Arena,
    comparator: Comparator,
    head: *mut Node,
    height: AtomicUsize,
    random: AtomicU32,
    splice: Mutex<Splice>,
    entries: AtomicUsize,
}

// SAFETY: nodes are reached through atomics only and are immutable once linked.
unsafe impl Send for SkipList {}
// SAFETY: as above.
unsafe impl Sync for SkipList {}

impl SkipList {
    pub(super) fn new(comparator: Comparator, arena: Arena) -> Self {
        let raw = arena.alloc(MAX_HEIGHT * POINTER + HEADER).as_ptr();
        // SAFETY: the arena gave these bytes to this list alone.
        unsafe { raw.write_bytes(0, MAX_HEIGHT * POINTER + HEADER) };
        // SAFETY: the header lies behind the tower inside the allocation.
        let head = unsafe { raw.add(MAX_HEIGHT * POINTER).cast::<Node>() };
        Self {
            arena,
            comparator,
            head, // zeroed: all its pointers are null
            height: AtomicUsize::new(1),
            random: AtomicU32::new(0x1234_5679),
            splice: Mutex::new(Splice::empty()),
            entries: AtomicUsize::new(0),
        }
    }

    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    pub(super) fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// The search form of an internal key.
    #[inline]
    pub(super) fn target<'a>(&self, internal: &'a [u8]) -> Target<'a> {
        let (user_key, packed) = key::split(internal).unwrap_or((internal, u64::MAX));
        self.target_of(user_key, packed)
    }

    #[inline]
    fn target_of<'a>(&self, user_key: &'a [u8], packed: u64) -> Target<'a> {
        Target {
            user_key,
            packed,
            prefix: self.comparator.prefix(user_key),
        }
    }

    /// Adds an entry; its internal key must not be in the list yet.
    pub(super) fn insert(&self, user_key: &[u8], packed: u64, value: &[u8]) {
        let target = self.target_of(user_key, packed);
        let height = self.random_height();
        let node = self.new_node(&target, value, height);
        if let Ok(mut splice) = self.splice.try_lock() {
            self.link(node, height, &target, &mut splice);
        } else {
            self.link(node, height, &target, &mut Splice::empty());
        }
        self.entries.fetch_add(1, Ordering::Relaxed);
    }

    fn new_node(&self, target: &Target<'_>, value: &[u8], height: usize) -> *mut Node {
        let key_len = target.user_key.len() + key::TRAILER_LEN;
        let size = height * POINTER + HEADER + key_len + value.len();
        let raw = self.arena.alloc(size).as_ptr();
        // SAFETY: the arena gave `size` bytes, 8-aligned, to this thread alone; tower, header and
        // the three copies lie inside them one behind the other. Zeros in a tower are null.
        unsafe {
            raw.write_bytes(0, height * POINTER);
            let node = raw.add(height * POINTER).cast::<Node>();
            node.write(Node {
                prefix: target.prefix,
                key_len: key_len as u32,
                value_len: value.len() as u32,
            });
            let at = node.cast::<u8>().add(HEADER);
            ptr::copy_nonoverlapping(target.user_key.as_ptr(), at, target.user_key.len());
            let at = at.add(target.user_key.len());
            at.cast::<[u8; 8]>()
                .write_unaligned(target.packed.to_le_bytes());
            ptr::copy_nonoverlapping(value.as_ptr(), at.add(8), value.len());
            node
        }
    }

    /// 1 with probability 3/4, 2 with 3/16, …; at most [`MAX_HEIGHT`].
    fn random_height(&self) -> usize {
        // A lost update between threads only repeats a number.
        let mut x = self.random.load(Ordering::Relaxed);
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        self.random.store(x, Ordering::Relaxed);
        let height = 1 + (x.trailing_zeros() / BRANCHING_BITS) as usize;
        height.min(MAX_HEIGHT)
    }

    /// How the node's key compares with the target.
    ///
    /// # Safety
    /// `node` must be a live, linked node other than the head.
    #[inline]
    unsafe fn compare(&self, node: *const Node, target: &Target<'_>) -> Order {
        // SAFETY: the caller's contract.
        let (prefix, internal) = unsafe { ((*node).prefix, Node::key(node)) };
        if prefix != target.prefix {
            return prefix.cmp(&target.prefix);
        }
        let (user, packed) = key::split(internal).unwrap_or((internal, 0));
        self.comparator
            .compare(user, target.user_key)
            .then_with(|| target.packed.cmp(&packed))
    }

    /// On `level`, starting at `from` (which is before the target): the last node before the
    /// target and the first at or behind it, which may be null.
    #[inline]
    fn bracket(
        &self,
        mut from: *mut Node,
        level: usize,
        target: &Target<'_>,
        known_behind: *mut Node,
    ) -> (*mut Node, *mut Node) {
        loop {
            // SAFETY: `from` is the head or a linked node reached on this level or above it.
            let next = unsafe { Node::next(from, level) }.load(Ordering::Acquire);
            if next.is_null() || next == known_behind {
                return (from, next);
            }
            if level > 0 {
                // If `next` is behind the target, this is where the search goes on.
                // SAFETY: the tower of `from` is higher than `level`.
                prefetch(unsafe { Node::next(from, level - 1) }.load(Ordering::Relaxed));
            }
            // SAFETY: `next` is a linked node: it was loaded with acquire.
            if unsafe { self.compare(next, target) } != Order::Less {
                return (from, next);
            }
            from = next;
        }
    }

    /// Links a new node, starting from what `splice` remembers and leaving it around the node.
    fn link(&self, node: *mut Node, height: usize, target: &Target<'_>, splice: &mut Splice) {
        let list_height = self.raise_to(height);
        let from = self.usable_levels(splice, list_height, target);
        for level in (0..from).rev() {
            let (above_prev, above_next) = (splice.prev[level + 1], splice.next[level + 1]);
            (splice.prev[level], splice.next[level]) =
                self.bracket(above_prev, level, target, above_next);
        }
        self.link_at(node, height, target, splice);
    }

    /// Links a new node between the neighbours in `splice`, or near them where other nodes were
    /// linked meanwhile.
    fn link_at(&self, node: *mut Node, height: usize, target: &Target<'_>, splice: &mut Splice) {
        for level in 0..height {
            loop {
                let (prev, next) = (splice.prev[level], splice.next[level]);
                // SAFETY: `node` is ours until it is linked and its tower has `height` levels;
                // `prev` was reached on this level.
                let linked = unsafe {
                    Node::next(node, level).store(next, Ordering::Relaxed);
                    Node::next(prev, level).compare_exchange(
                        next,
                        node,
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    )
                };
                if linked.is_ok() {
                    break;
                }
                // Another thread linked a node here: look again from where we were.
                (splice.prev[level], splice.next[level]) =
                    self.bracket(prev, level, target, ptr::null_mut());
            }
            splice.prev[level] = node;
        }
    }

    /// Makes the list at least `height` high and returns its height.
    fn raise_to(&self, height: usize) -> usize {
        let before = self.height.fetch_max(height, Ordering::Relaxed);
        before.max(height)
    }

    /// The number of lowest levels of the splice that must be searched anew for this target;
    /// the levels above are valid for it.
    fn usable_levels(&self, splice: &mut Splice, list_height: usize, target: &Target<'_>) -> usize {
        if splice.height < list_height {
            splice.height = list_height;
            splice.prev[list_height] = self.head;
            splice.next[list_height] = ptr::null_mut();
            return list_height;
        }
        let mut level = 0;
        while level < splice.height {
            let (prev, next) = (splice.prev[level], splice.next[level]);
            // SAFETY: splices hold nodes that were reached on their level.
            let tight = unsafe { Node::next(prev, level) }.load(Ordering::Acquire) == next;
            // SAFETY: `prev` and `next` are linked nodes where they are not head or null.
            let around = unsafe {
                (prev == self.head || self.compare(prev, target) == Order::Less)
                    && (next.is_null() || self.compare(next, target) == Order::Greater)
            };
            if tight && around {
                return level;
            }
            // Far from here on this level: a search from the top is cheaper than climbing on.
            if !around && level >= 3 {
                break;
            }
            level += 1;
        }
        splice.prev[splice.height] = self.head;
        splice.next[splice.height] = ptr::null_mut();
        splice.height
    }

    /// The first node at or behind the target; null if there is none.
    #[inline]
    fn lower_bound(&self, target: &Target<'_>) -> *mut Node {
        let mut from = self.head;
        let mut behind = ptr::null_mut();
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            (from, behind) = self.bracket(from, level, target, behind);
        }
        behind
    }

    /// The last node before the target; null if there is none.
    fn before(&self, target: &Target<'_>) -> *mut Node {
        let mut from = self.head;
        let mut behind = ptr::null_mut();
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            (from, behind) = self.bracket(from, level, target, behind);
        }
        if from == self.head {
            ptr::null_mut()
        } else {
            from
        }
    }

    fn last(&self) -> *mut Node {
        let mut at = self.head;
        for level in (0..self.height.load(Ordering::Relaxed)).rev() {
            loop {
                // SAFETY: `at` is the head or a node reached on this level or above.
                let next = unsafe { Node::next(at, level) }.load(Ordering::Acquire);
                if next.is_null() {
                    break;
                }
                at = next;
            }
        }
        if at == self.head { ptr::null_mut() } else { at }
    }

    /// A cursor that is nowhere yet.
    #[cfg(test)]
    pub(super) fn cursor(&self) -> Cursor<'_> {
        Cursor {
            list: self,
            at: ptr::null_mut(),
        }
    }

    /// A cursor at the first entry at or behind the target.
    #[inline]
    pub(super) fn cursor_at(&self, target: &Target<'_>) -> Cursor<'_> {
        Cursor {
            list: self,
            at: self.lower_bound(target),
        }
    }
}

/// A position in the list. It stays valid while entries are added.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    list: &'a SkipList,
    at: *mut Node,
}

impl<'a> Cursor<'a> {
    /// The entry under the cursor as (internal key, value).
    #[inline]
    pub(super) fn entry(&self) -> Option<(&'a [u8], &'a [u8])> {
        if self.at.is_null() {
            return None;
        }
        // SAFETY: a non-null cursor is at a linked node, and the list is borrowed for 'a.
        Some(unsafe { (Node::key(self.at), Node::value(self.at)) })
    }

    pub(super) fn seek_to_first(&mut self) {
        // SAFETY: the head has a full tower.
        self.at = unsafe { Node::next(self.list.head, 0) }.load(Ordering::Acquire);
    }

    pub(super) fn seek_to_last(&mut self) {
        self.at = self.list.last();
    }

    /// To the first entry at or behind the internal key.
    pub(super) fn seek(&mut self, internal: &[u8]) {
        self.at = self.list.lower_bound(&self.list.target(internal));
    }

    /// To the next entry.
    ///
    /// # Panics
    /// If there is no entry under the cursor.
    #[inline]
    pub(super) fn next(&mut self) {
        assert!(!self.at.is_null(), "next() on an invalid cursor");
        // SAFETY: the cursor is at a linked node; every node has level 0.
        self.at = unsafe { Node::next(self.at, 0) }.load(Ordering::Acquire);
    }

    /// To the previous entry. A search: nodes have no back pointers.
    pub(super) fn prev(&mut self) {
        if let Some((internal, _)) = self.entry() {
            self.at = self.list.before(&self.list.target(internal));
        }
    }

    /// The cursor's position as an opaque token for [`Cursor::restore`].
    pub(super) fn save(&self) -> Position {
        Position(self.at)
    }
}

/// A saved position of a [`Cursor`]; meaningful for the list it came from only.
#[derive(Clone, Copy)]
pub(super) struct Position(*mut Node);

// SAFETY: it is dereferenced only through `SkipList::resume`, whose contract covers it.
unsafe impl Send for Position {}

impl Position {
    pub(super) const NOWHERE: Self = Self(ptr::null_mut());
}

impl SkipList {
    /// The cursor that was saved as `position`.
    ///
    /// # Safety
    /// `position` must come from a cursor of this same list.
    pub(super) unsafe fn resume(&self, position: Position) -> Cursor<'_> {
        Cursor {
            list: self,
            at: position.0,
        }
    }
}

#[cfg(test)]
#[path = "skiplist/tests.rs"]
mod tests;
