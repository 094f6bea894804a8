//! The dirty map: blocks of applied entries that a replica's data file does not have durably yet.
//!
//! Applying an entry puts blocks in and does no I/O. Reads look here first. Write-back goes in rounds: a round
//! takes all blocks that are dirty when it begins, in parts, each of which is a [`Marked`]. A block stays here,
//! readable, until the fdatasync after its write has returned.
//!
//! ```text
//!          S                        applied
//!   ───────┼──────────────────────────┼──────> entries of the group
//!    synced  some blocks of these are
//!            on disk, some torn
//! ```
//!
//! S is one less than the first entry with a block that is dirty or on its way. After a crash, the data file
//! has everything up to S, and any part of the later changes. Entries from S + 1 on are applied again, and each
//! writes whole blocks. So the log may be dropped up to S, and no further.
//!
//! The bytes of small writes are copied to [`Pages`]. Those of a large write stay in the buffer that they were
//! received in, as long as all of its blocks are here. When some of them are overwritten, or written back
//! without the others, the rest is copied. So memory holds little more than what is counted, and most bytes are
//! never copied.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use io::buffer::PAGE;

use super::sync::{Marked, SyncSlot, SyncTicket};
use crate::ids::{BLOCK, Block, Chunk, Group, Index, Layer, Term, Tree};
use crate::memory::pages::Pages;

/// A block of a layer of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The tree of layers.
    pub tree: Tree,
    /// The layer.
    pub layer: Layer,
    /// The chunk.
    pub chunk: Chunk,
    /// The block of the chunk.
    pub block: Block,
}

/// The content of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// These bytes, [`BLOCK`] of them, with their CRC-32C.
    Data {
        /// The bytes.
        bytes: Bytes,
        /// Their crc, which came with them.
        crc: u32,
    },
    /// Zeros, which take no space.
    Zero,
}

/// Approximate size of a block in the map, without its bytes.
const ENTRY_BYTES: u64 = 256;

impl Content {
    /// Approximate memory size.
    fn bytes(&self) -> u64 {
        match self {
            Self::Data { .. } => BLOCK as u64,
            Self::Zero => ENTRY_BYTES,
        }
    }
}

/// A block on its way to the data file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The block.
    pub key: Key,
    /// Its content.
    pub content: Content,
    /// The entry that wrote it.
    pub index: Index,
    /// The entry's term.
    pub term: Term,
    /// Whether the data file has the bytes already, so that only the page is written.
    pub in_place: bool,
    /// Whether the page has the checksum already, so that only the bytes are written: they were damaged.
    pub restored: bool,
}

/// A block that is dirty, or on its way, or both.
#[derive(Debug)]
struct Entry {
    newest: Write,
    /// The first entry that wrote the block since it was last marked. `None`: its newest content is on its
    /// way.
    first: Option<Index>,
    /// Whether it is in the current [`Marked`].
    flying: bool,
    /// Whether its bytes are in one buffer with those of its neighbors of the same entry.
    shares: bool,
}

impl Entry {
    fn shares_with(&self, index: Index) -> bool {
        self.shares && self.newest.index == index
    }
}

/// Removed blocks that shared a buffer: the first and last of each run, and the entry that wrote them.
#[derive(Debug, Default)]
struct Torn(Vec<(Key, Key, Index)>);

impl Torn {
    /// Adds the block that follows those before.
    fn add(&mut self, key: Key, of: Index) {
        match self.0.last_mut() {
            Some((_, last, index)) if *index == of => *last = key,
            _ => self.0.push((key, key, of)),
        }
    }
}

/// The source of blocks.
#[derive(Clone, Copy, Debug)]
struct By {
    index: Index,
    term: Term,
    /// While the blocks are dirty, S stays below this entry.
    first: Index,
    /// Whether their bytes are in one buffer.
    shares: bool,
    /// Whether their content is unchanged.
    restored: bool,
}

impl By {
    fn new(index: Index, term: Term) -> Self {
        Self {
            index,
            term,
            first: index,
            shares: false,
            restored: false,
        }
    }
}

/// A round of write-back.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// The last entry that it covers.
    through: Index,
    /// The last marked block.
    last: Option<Key>,
    /// Whether all of it is marked.
    is_last: bool,
}

/// The dirty map of one replica.
#[derive(Debug)]
pub struct Dirty {
    group: Group,
    blocks: BTreeMap<Key, Entry>,
    /// Number of blocks with each `first`.
    firsts: BTreeMap<Index, usize>,
    /// The last applied entry.
    applied: Index,
    /// The right to have blocks on their way. `None`: some are on their way.
    slot: Option<SyncSlot>,
    /// The blocks on their way.
    flying: Vec<Key>,
    /// The first entry of the blocks on their way.
    from: Option<Index>,
    /// The round that is under way.
    round: Option<Round>,
    /// Whether a copy is being received.
    is_copying: bool,
    bytes: u64,
    pages: Pages,
}

impl Dirty {
    /// A map of a replica whose data file has everything up to `synced`.
    pub fn after(group: Group, synced: Index) -> Self {
        Self {
            group,
            blocks: BTreeMap::new(),
            firsts: BTreeMap::new(),
            applied: synced,
            slot: Some(SyncSlot::only_one_of(group)),
            flying: Vec::new(),
            from: None,
            round: None,
            is_copying: false,
            bytes: 0,
            pages: Pages::default(),
        }
    }

    /// Keeps blocks in these pages from now on, which other replicas may use too.
    pub fn lies_in(&mut self, pages: &Pages) {
        self.pages = pages.clone();
    }

    /// The pages that blocks are kept in.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// The group.
    pub fn group(&self) -> Group {
        self.group
    }

    /// The last applied entry.
    pub fn applied(&self) -> Index {
        self.applied
    }

    /// S: everything up to this entry is durable in the data file.
    pub fn synced(&self) -> Index {
        let dirty = self.firsts.first_key_value().map(|(first, _)| *first);
        let first = dirty.into_iter().chain(self.from).min();
        first.map_or(self.applied, |first| Index(first.0.saturating_sub(1)))
    }

    /// Approximate size of all blocks in the map.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of blocks in the map.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// True if nothing is dirty or on its way.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Applies the entry at `index`, which follows the last applied one; it writes `blocks`, maybe none.
    ///
    /// # Panics
    /// In debug builds, if entries are skipped or repeated.
    pub fn apply(
        &mut self,
        index: Index,
        term: Term,
        blocks: impl IntoIterator<Item = (Key, Content)>,
    ) {
        self.apply_by(By::new(index, term), blocks);
    }

    /// The same for blocks whose bytes are in one buffer that has nothing else. They stay there, unless many
    /// pages of smaller writes are free.
    ///
    /// # Panics
    /// As [`Dirty::apply`].
    pub fn apply_buffer(
        &mut self,
        index: Index,
        term: Term,
        blocks: impl IntoIterator<Item = (Key, Content)>,
    ) {
        let by = By {
            shares: !self.pages.are_scattered(),
            ..By::new(index, term)
        };
        self.apply_by(by, blocks);
    }

    fn apply_by(&mut self, by: By, blocks: impl IntoIterator<Item = (Key, Content)>) {
        base::invariant!(
            by.index.0 == self.applied.0 + 1,
            "entry {} of group {} is applied behind {}",
            by.index,
            self.group,
            self.applied
        );
        self.applied = by.index;
        self.put_all(by, blocks);
    }

    fn put_all(&mut self, by: By, blocks: impl IntoIterator<Item = (Key, Content)>) {
        let mut torn = Torn::default();
        for (key, content) in blocks {
            if let Some(index) = self.put(by, key, content) {
                torn.add(key, index);
            }
        }
        self.copy_rest(&torn);
    }

    /// Puts a block in. Returns the entry that wrote the replaced content, if that shared a buffer.
    fn put(&mut self, by: By, key: Key, mut content: Content) -> Option<Index> {
        self.bytes += content.bytes();
        let mut shares = false;
        if let Content::Data { bytes, .. } = &mut content {
            // Bytes to be written back must be page-aligned.
            shares = by.shares && (bytes.as_ptr() as usize).is_multiple_of(PAGE);
            if !shares {
                *bytes = self.pages.copy(bytes);
            }
        }
        let newest = Write {
            key,
            content,
            index: by.index,
            term: by.term,
            in_place: false,
            restored: by.restored,
        };
        let mut torn = None;
        let is_first = if let Some(entry) = self.blocks.get_mut(&key) {
            self.bytes -= entry.newest.content.bytes();
            torn = entry.shares.then_some(entry.newest.index);
            (entry.newest, entry.shares) = (newest, shares);
            let first = entry.first.unwrap_or(by.first);
            entry.first.replace(first).is_none()
        } else {
            let entry = Entry {
                newest,
                first: Some(by.first),
                flying: false,
                shares,
            };
            self.blocks.insert(key, entry);
            true
        };
        if is_first {
            *self.firsts.entry(by.first).or_default() += 1;
        }
        torn
    }

    /// Copies the remaining blocks of buffers that have lost some. Blocks of one buffer are adjacent in the
    /// map.
    fn copy_rest(&mut self, torn: &Torn) {
        let (round, is_copying) = (self.round, self.is_copying);
        let pages = &self.pages;
        let copy = |entry: &mut Entry| {
            // This block is on its way: it is removed soon, and holds the buffer until then.
            if entry.flying && entry.first.is_none() {
                return;
            }
            if let Content::Data { bytes, .. } = &mut entry.newest.content {
                *bytes = pages.copy(bytes);
            }
            entry.shares = false;
        };
        for &(first, last, index) in &torn.0 {
            let before = self.blocks.range_mut(..first).rev();
            let before = before.map(|(_, e)| e);
            before.take_while(|e| e.shares_with(index)).for_each(copy);
            let between = self.blocks.range_mut(first..=last).map(|(_, e)| e);
            between.filter(|e| e.shares_with(index)).for_each(copy);
            let behind = (Bound::Excluded(last), Bound::Unbounded);
            let mut behind = self.blocks.range_mut(behind).map(|(_, e)| e).peekable();
            // The next part of the round removes the rest of the buffer's blocks.
            let goes = |entry: &Entry| {
                round.is_some_and(|round| {
                    let is_next = !round.is_last && round.last == Some(last);
                    let first = entry.first.is_some_and(|first| first <= round.through);
                    is_next && (is_copying || first)
                })
            };
            if !behind.peek().is_some_and(|entry| goes(entry)) {
                behind.take_while(|e| e.shares_with(index)).for_each(copy);
            }
        }
    }

    /// Drops everything and begins to receive a copy from a peer: the data file keeps what it has up to S.
    /// False: some blocks are on their way to it.
    pub fn begin_copy(&mut self) -> bool {
        if self.slot.is_none() {
            return false;
        }
        self.applied = self.synced();
        self.round = None;
        self.is_copying = true;
        self.blocks.clear();
        self.firsts.clear();
        self.bytes = 0;
        true
    }

    /// Takes blocks of a copy that ends at `through`. They are dirty, and S does not move.
    pub fn take_copied(
        &mut self,
        blocks: impl IntoIterator<Item = (Key, Content)>,
        through: Index,
        term: Term,
    ) {
        let by = By {
            first: Index(self.applied.0 + 1),
            ..By::new(through, term)
        };
        self.put_all(by, blocks);
    }

    /// The whole copy was received: with the blocks in the map, the replica has everything up to `through`.
    /// False: some blocks are on their way to the data file.
    pub fn end_copy(&mut self, through: Index) -> bool {
        if self.slot.is_none() {
            return false;
        }
        base::invariant!(
            self.applied <= through,
            "a copy up to {through:?} ends where {:?} is applied",
            self.applied
        );
        self.applied = through;
        self.round = None;
        self.is_copying = false;
        true
    }

    /// Whether no block is on its way to the data file.
    pub fn is_settled(&self) -> bool {
        self.slot.is_some()
    }

    /// The blocks in the map.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.blocks.keys()
    }

    /// Takes the content of a block that is damaged in the data file. It matches the block's page, and is dirty
    /// again.
    pub fn restore(&mut self, key: Key, content: Content, term: Term) {
        let by = By {
            restored: true,
            ..By::new(self.applied, term)
        };
        self.put_all(by, [(key, content)]);
    }

    /// The last entry that wrote a block, if the block is in the map.
    pub fn newest(&self, key: &Key) -> Option<Index> {
        self.blocks.get(key).map(|e| e.newest.index)
    }

    /// Whether a block's bytes are in one buffer with others.
    pub fn shares(&self, key: &Key) -> bool {
        self.blocks.get(key).is_some_and(|e| e.shares)
    }

    /// Whether a block is on its way to the data file.
    pub fn is_flying(&self, key: &Key) -> bool {
        self.blocks.get(key).is_some_and(|e| e.flying)
    }

    /// The data file has a block durably, as the entry at `index` wrote it; its page does not record it
    /// yet.
    pub fn placed(&mut self, key: &Key, index: Index) {
        if let Some(entry) = self.blocks.get_mut(key).filter(|e| e.newest.index == index) {
            entry.newest.in_place = true;
        }
    }

    /// The content of a block, if it is in the map.
    pub fn get(&self, key: &Key) -> Option<&Content> {
        self.blocks.get(key).map(|e| &e.newest.content)
    }

    /// Takes a part of the dirty blocks to be written back: about `bytes_max` bytes, in the order of blocks.
    /// The first part begins a round of all blocks that are dirty then. The last part ends it, and its ticket
    /// covers everything that was applied when the round began. The blocks stay in the map until their ticket
    /// comes ([`Dirty::settle`]) or they are given back ([`Dirty::give_back`]). `None`: the previous part is
    /// still out.
    pub fn mark(&mut self, bytes_max: u64) -> Option<Marked> {
        let slot = self.slot.take()?;
        let synced = self.synced();
        let mut round = self.round.unwrap_or(Round {
            through: self.applied,
            last: None,
            is_last: false,
        });
        let from = round.last.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut writes, mut bytes) = (Vec::new(), 0);
        round.is_last = true;
        for (key, entry) in self.blocks.range_mut((from, Bound::Unbounded)) {
            // Blocks of a copy belong to entries behind the applied ones, and all of them count.
            let counts = |first: &Index| self.is_copying || *first <= round.through;
            let Some(first) = entry.first.filter(counts) else {
                continue;
            };
            if bytes >= bytes_max {
                round.is_last = false;
                break;
            }
            bytes += BLOCK as u64;
            round.last = Some(*key);
            entry.first = None;
            entry.flying = true;
            self.flying.push(*key);
            writes.push(entry.newest.clone());
            self.from = Some(self.from.map_or(first, |from| from.min(first)));
            forget(&mut self.firsts, first);
        }
        self.round = Some(round);
        let covers_all = round.is_last && !self.is_copying;
        Some(slot.mark(if covers_all { round.through } else { synced }, writes))
    }

    /// Whether a round is under way.
    pub fn is_in_round(&self) -> bool {
        self.round.is_some()
    }

    /// The marked blocks are durable.
    pub fn settle(&mut self, ticket: &SyncTicket, slot: SyncSlot) {
        base::invariant!(
            ticket.group() == self.group && slot.is_of(self.group) && self.slot.is_none(),
            "a ticket of group {} comes to group {}",
            ticket.group(),
            self.group
        );
        let mut torn = Torn::default();
        for key in std::mem::take(&mut self.flying) {
            let Some(entry) = self.blocks.get_mut(&key) else {
                continue;
            };
            entry.flying = false;
            // With a `first` it was written again meanwhile, and is still dirty.
            if entry.first.is_none() {
                self.bytes -= entry.newest.content.bytes();
                if entry.shares {
                    torn.add(key, entry.newest.index);
                }
                self.blocks.remove(&key);
            }
        }
        self.copy_rest(&torn);
        self.slot = Some(slot);
        self.from = None;
        if self.round.is_some_and(|round| round.is_last) {
            self.round = None;
        }
    }

    /// The marked blocks could not be written, and are dirty again.
    pub fn give_back(&mut self, marked: Marked) {
        let (slot, writes) = marked.take_apart();
        base::invariant!(slot.is_of(self.group) && self.slot.is_none());
        let from = self.from.take().unwrap_or(self.applied);
        self.flying.clear();
        self.round = None;
        for key in writes.iter().map(|w| &w.key) {
            let Some(entry) = self.blocks.get_mut(key) else {
                continue;
            };
            if let Some(later) = entry.first.replace(from) {
                forget(&mut self.firsts, later);
            }
            *self.firsts.entry(from).or_default() += 1;
            if let Some(entry) = self.blocks.get_mut(key) {
                entry.flying = false;
            }
        }
        // Some blocks of their buffers may be removed already.
        let mut torn = Torn::default();
        for Write { key, index, .. } in &writes {
            let entry = self.blocks.get(key);
            if entry.is_some_and(|e| e.shares_with(*index)) {
                torn.add(*key, *index);
            }
        }
        self.copy_rest(&torn);
        self.slot = Some(slot);
    }
}

fn forget(firsts: &mut BTreeMap<Index, usize>, first: Index) {
    if let Some(count) = firsts.get_mut(&first) {
        *count -= 1;
        if *count == 0 {
            firsts.remove(&first);
        }
    }
}
