//! A store's data file: slots of one chunk each.
//!
//! ```text
//!   slot   ├─ 8 extents × 2 pages × 4 KiB ─┼──────── 16 MiB of blocks ────────┤
//! ```
//!
//! Blocks are overwritten in place. An extent's page records which of its blocks are there, and their
//! checksums. It is written together with the blocks, to the older of its two places. A crash may leave any
//! of these writes out: all entries whose writes were on their way are applied again from the log before
//! anything is served.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::sync::{Mutex, MutexGuard, PoisonError};
use base::threads::SystemThreads;
use base::{Error, ErrorKind, Result};
use bytes::Bytes;
use io::queue::{Act, Queue, QueueKind, Request};
use io::{AlignedBuf, File, SyncKind, WriteSync, buffer::PAGE};

use super::dirty::{Content, Key, Write};
use super::page::{self, Doubt, FIRST_GENERATION, Owner, Page};
use crate::ids::{
    BLOCK, CHUNK_BLOCKS, CHUNK_EXTENTS, Chunk, EXTENT_BLOCKS, Group, Index, Layer, Slot, Tree,
};

/// Bytes of a slot's pages.
const HEAD: u64 = CHUNK_EXTENTS as u64 * 2 * page::LEN as u64;
/// Bytes of a slot.
pub const SLOT_BYTES: u64 = HEAD + CHUNK_BLOCKS as u64 * BLOCK as u64;
/// The most writes that are on their way at once.
const WRITES_MAX: usize = 8;
/// The most blocks of one write: 1 MiB.
const RUN_BLOCKS: usize = 256;

/// A chunk of a layer in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkKey {
    /// The group.
    pub group: Group,
    /// The tree of layers.
    pub tree: Tree,
    /// The layer.
    pub layer: Layer,
    /// The chunk.
    pub chunk: Chunk,
}

impl ChunkKey {
    /// The chunk of a block.
    pub fn of(group: Group, key: &Key) -> Self {
        let &Key {
            tree, layer, chunk, ..
        } = key;
        Self {
            group,
            tree,
            layer,
            chunk,
        }
    }

    fn owner(self, slot: Slot, extent: u8) -> Owner {
        Owner {
            group: self.group,
            tree: self.tree,
            layer: self.layer,
            chunk: self.chunk,
            slot,
            extent,
        }
    }

    /// The chunk of a page.
    pub fn of_page(owner: &Owner) -> Self {
        Self {
            group: owner.group,
            tree: owner.tree,
            layer: owner.layer,
            chunk: owner.chunk,
        }
    }
}

/// What the data file has of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// This layer does not have it: its parent may.
    Absent,
    /// It is zero.
    Zero,
    /// It is stored.
    There {
        /// Its offset in the file.
        offset: u64,
        /// The CRC-32C that its content must have.
        crc: u32,
    },
}

/// The data file, for writing; [`Reader`]s read at the same time.
#[derive(Debug)]
pub struct Data {
    file: Arc<dyn File>,
    index: Arc<Mutex<Map>>,
    /// Pages written since the last sync. Until the next sync, the durable page of each extent must not be
    /// overwritten.
    written: BTreeMap<(Slot, u8), Page>,
    /// Created for the first write.
    queue: Option<Queue>,
    /// A sync has failed: the content of the file is unknown.
    failure: Option<Error>,
    doubtful: Vec<Doubtful>,
}

/// An extent with a damaged page that was found at open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubtful {
    /// Its slot.
    pub slot: Slot,
    /// Its number in the slot.
    pub extent: u8,
    /// The chunk that the slot belongs to, if one of its pages is readable.
    pub chunk: Option<ChunkKey>,
    /// What is unknown about it.
    pub doubt: Doubt,
}

impl Doubtful {
    /// Offset of its pages in the data file, bytes.
    pub fn offset(&self) -> u64 {
        u64::from(self.slot.0) * SLOT_BYTES + u64::from(self.extent) * 2 * page::LEN as u64
    }
}

/// Where everything is.
#[derive(Debug)]
struct Map {
    slots: u32,
    chunks: BTreeMap<ChunkKey, Slot>,
    /// The durable pages.
    pages: BTreeMap<(Slot, u8), Page>,
    free: Vec<Slot>,
}

/// The hint for a file that cannot come from this store.
const OWN_FILE: &str = "bring the store's own data file back";

/// Finds blocks, while a [`Data`] writes others.
#[derive(Clone, Debug)]
pub struct Reader {
    file: Arc<dyn File>,
    index: Arc<Mutex<Map>>,
}

/// The writes for some blocks.
#[derive(Debug, Default)]
struct Plan<'w> {
    /// Runs of adjacent blocks, with their offsets.
    runs: Vec<(u64, Vec<&'w Bytes>)>,
    pages: BTreeMap<(Slot, u8), Page>,
    /// Those extents that have no durable page yet.
    new: BTreeSet<(Slot, u8)>,
}

impl Data {
    /// Opens the data file with `slots` slots, and reads their pages. Errors: Corruption, if a page contradicts
    /// its place or another; a page of a newer version; errors of the file.
    pub fn open(file: Arc<dyn File>, slots: u32) -> Result<Self> {
        // A killed process may have left pages that are written and not durable. The next page of an extent
        // overwrites the other place, so a power cut must not be able to undo this one.
        file.sync(SyncKind::Data)?;
        let len = file.len()?;
        if len < u64::from(slots) * SLOT_BYTES {
            return Err(Error::corruption(format!(
                "{slots} slots take {} bytes, and the file has {len}",
                u64::from(slots) * SLOT_BYTES
            ))
            .file(file.path())
            .hint(OWN_FILE));
        }
        let mut index = Map {
            slots,
            chunks: BTreeMap::new(),
            pages: BTreeMap::new(),
            free: Vec::new(),
        };
        let mut doubtful = Vec::new();
        let mut head = AlignedBuf::zeroed(HEAD as usize, PAGE)?;
        for slot in (0..slots).rev().map(Slot) {
            let at = u64::from(slot.0) * SLOT_BYTES;
            io::read_exact_at(&*file, &mut head, at)?;
            index
                .read_slot(slot, &head, &mut doubtful)
                .map_err(|e| e.or_file(file.path()).offset(at))?;
        }
        Ok(Self {
            file,
            index: Arc::new(Mutex::new(index)),
            written: BTreeMap::new(),
            queue: None,
            failure: None,
            doubtful,
        })
    }

    /// Extents with a damaged page. The store must decide whether the log can repair them, before it serves
    /// anything.
    pub fn doubtful(&self) -> &[Doubtful] {
        &self.doubtful
    }

    /// Rewrites each extent with a damaged page, so that it has two intact ones or none: the log can repair the
    /// blocks now, but not for ever. Errors: those of the disk.
    pub fn mend(&mut self) -> Result<()> {
        if self.doubtful.is_empty() {
            return Ok(());
        }
        let mut index = lock(&self.index);
        for d in &self.doubtful {
            let place = (d.slot, d.extent);
            let Some(page) = index.pages.get_mut(&place) else {
                let none = AlignedBuf::zeroed(2 * page::LEN, PAGE)?;
                io::write_all_at(&*self.file, &none, d.offset(), WriteSync::None)?;
                continue;
            };
            // An older page is overwritten by the next one anyway, except for the twin of the first page.
            if d.doubt == Doubt::Older && page.generation >= FIRST_GENERATION {
                continue;
            }
            // The next page goes to the place of the damaged one.
            page.generation += 1;
            let (at, bytes) = page_at(place, page)?;
            for bytes in bytes {
                io::write_all_at(&*self.file, &bytes, at, WriteSync::None)?;
            }
        }
        drop(index);
        self.file.sync(SyncKind::Data)?;
        self.doubtful.clear();
        Ok(())
    }

    /// A reader, which can be used while blocks are written.
    pub fn reader(&self) -> Reader {
        Reader {
            file: Arc::clone(&self.file),
            index: Arc::clone(&self.index),
        }
    }

    /// Errors: a sync has failed.
    fn check(&self) -> Result<()> {
        self.failure.as_ref().map_or(Ok(()), |e| Err(e.clone()))
    }

    /// Writes blocks of a group, in order, and the pages of their extents, a few at once; `pace` is called with
    /// the bytes of each write before it, and may wait. After an error some of them are written, which does no
    /// harm, because they are still dirty.
    pub(super) fn write(
        &mut self,
        group: Group,
        writes: &[Write],
        pace: &mut dyn FnMut(u64),
    ) -> Result<()> {
        self.check()?;
        let plan = lock(&self.index)
            .plan(&self.written, group, writes)
            .map_err(|e| e.or_file(self.file.path()))?;
        let mut queue = match self.queue.take() {
            Some(queue) => queue,
            None => Queue::new(QueueKind::Auto, WRITES_MAX as u32, &SystemThreads)?,
        };
        let blocks = plan.runs.into_iter().map(|(at, run)| {
            let slices: Vec<Bytes> = run.into_iter().cloned().collect();
            Ok((at, slices))
        });
        let mut result = write_all(&self.file, &mut queue, blocks, pace);
        if result.is_ok() {
            let pages = plan.pages.iter().flat_map(|(&place, page)| {
                // A new extent gets two equal pages: if it had one, and that were damaged, it would look as
                // if it had never been written.
                let before = plan.new.contains(&place).then(|| Page {
                    generation: FIRST_GENERATION - 1,
                    ..page.clone()
                });
                let second = before.map(|page| page_at(place, &page));
                [Some(page_at(place, page)), second].into_iter().flatten()
            });
            result = write_all(&self.file, &mut queue, pages, pace);
        }
        self.queue = Some(queue);
        result?;
        self.written.extend(plan.pages);
        Ok(())
    }

    /// Makes the written blocks durable. An error is kept: the content of the file can no longer be
    /// trusted.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.check()?;
        let synced = self.file.sync(SyncKind::Data);
        match &synced {
            Ok(()) => lock(&self.index).pages.append(&mut self.written),
            Err(e) => self.failure = Some(e.clone()),
        }
        synced
    }
}

/// A page's bytes, and their offset.
fn page_at((slot, extent): (Slot, u8), page: &Page) -> Result<(u64, Vec<Bytes>)> {
    let mut bytes = AlignedBuf::new(PAGE);
    bytes.extend_from_slice(&page.encode())?;
    let nth = u64::from(extent) * 2 + page.copy();
    let at = u64::from(slot.0) * SLOT_BYTES + nth * page::LEN as u64;
    Ok((at, vec![bytes.into()]))
}

/// Writes all, [`WRITES_MAX`] at once. No write is on its way when it returns. Errors: the first one.
fn write_all(
    file: &Arc<dyn File>,
    queue: &mut Queue,
    writes: impl Iterator<Item = Result<(u64, Vec<Bytes>)>>,
    pace: &mut dyn FnMut(u64),
) -> Result<()> {
    let mut writes = writes.peekable();
    let mut done = Vec::new();
    while writes.peek().is_some() {
        let mut some = Vec::with_capacity(WRITES_MAX);
        for write in writes.by_ref().take(WRITES_MAX) {
            some.push(write?);
        }
        let bytes = some.iter().flat_map(|(_, slices)| slices);
        pace(bytes.map(|b| b.len() as u64).sum());
        for (offset, slices) in some {
            queue.push(Request {
                token: 0,
                file: Arc::clone(file),
                offset,
                act: Act::Write(slices, WriteSync::None),
            })?;
        }
        queue.wait(queue.len(), &mut done)?;
        for done in done.drain(..) {
            done.result?;
        }
    }
    Ok(())
}

impl Map {
    fn read_slot(&mut self, slot: Slot, head: &[u8], doubtful: &mut Vec<Doubtful>) -> Result<()> {
        let mut owner: Option<ChunkKey> = None;
        let mut doubts = Vec::new();
        let mut extents = head.chunks_exact(2 * page::LEN);
        for extent in 0..CHUNK_EXTENTS {
            let Some(copies) = extents.next() else { break };
            let (first, second) = copies.split_at(page::LEN);
            let (page, doubt) = Page::of_extent([first, second])?;
            doubts.extend(doubt.map(|doubt| (extent, doubt)));
            let Some(page) = page else { continue };
            let of = ChunkKey::of_page(&page.owner);
            let here = (page.owner.slot, page.owner.extent) == (slot, extent);
            if !here || owner.is_some_and(|o| o != of) {
                return Err(Error::corruption(format!(
                    "extent {extent} of slot {slot} has the page of {:?}",
                    page.owner
                ))
                .hint(OWN_FILE));
            }
            owner = Some(of);
            self.pages.insert((slot, extent), page);
        }
        doubtful.extend(doubts.into_iter().map(|(extent, doubt)| Doubtful {
            slot,
            extent,
            chunk: owner,
            doubt,
        }));
        match owner {
            None => self.free.push(slot),
            Some(owner) => {
                if let Some(other) = self.chunks.insert(owner, slot) {
                    return Err(Error::corruption(format!(
                        "slots {slot} and {other} are both of {owner:?}"
                    ))
                    .hint(OWN_FILE));
                }
            }
        }
        Ok(())
    }

    /// The slot of a chunk; a new chunk gets a free one. Errors: none is free.
    fn slot_for(&mut self, chunk: ChunkKey) -> Result<Slot> {
        if let Some(&slot) = self.chunks.get(&chunk) {
            return Ok(slot);
        }
        let slot = self.free.pop().ok_or_else(|| {
            Error::new(
                ErrorKind::NoSpace,
                format!("all {} slots are taken", self.slots),
            )
            .hint("add a store, or move groups elsewhere")
        })?;
        self.chunks.insert(chunk, slot);
        Ok(slot)
    }

    /// The plan for `writes`, which are in order.
    fn plan<'w>(
        &mut self,
        written: &BTreeMap<(Slot, u8), Page>,
        group: Group,
        writes: &'w [Write],
    ) -> Result<Plan<'w>> {
        let mut plan = Plan::default();
        let mut end = None;
        for write in writes {
            let chunk = ChunkKey::of(group, &write.key);
            // A block that is stored nowhere is zero, because layers have no parents yet.
            if write.content == Content::Zero && !self.chunks.contains_key(&chunk) {
                continue;
            }
            let slot = self.slot_for(chunk)?;
            if !write.restored {
                self.note(slot, group, write, written, &mut plan.pages);
            }
            let Content::Data { bytes, .. } = &write.content else {
                continue;
            };
            if write.in_place {
                end = None;
                continue;
            }
            let at = block_at(slot, &write.key);
            match plan.runs.last_mut() {
                Some((_, run)) if end == Some(at) && run.len() < RUN_BLOCKS => run.push(bytes),
                _ => plan.runs.push((at, vec![bytes])),
            }
            end = Some(at + BLOCK as u64);
        }
        let is_new = |place: &&(Slot, u8)| !self.pages.contains_key(place);
        plan.new = plan.pages.keys().filter(is_new).copied().collect();
        Ok(plan)
    }

    /// Notes a block in the next page of its extent.
    fn note(
        &self,
        slot: Slot,
        group: Group,
        write: &Write,
        written: &BTreeMap<(Slot, u8), Page>,
        pages: &mut BTreeMap<(Slot, u8), Page>,
    ) {
        let (extent, nth) = place_of(&write.key);
        let page = pages.entry((slot, extent)).or_insert_with(|| {
            let owner = ChunkKey::of(group, &write.key).owner(slot, extent);
            let durable = self.pages.get(&(slot, extent));
            let last = written.get(&(slot, extent)).or(durable);
            let generation = durable.map_or(0, |p| p.generation) + 1;
            Page {
                generation,
                ..last.cloned().unwrap_or_else(|| Page::empty(owner))
            }
        });
        page.present.set(nth, true);
        let crc = match write.content {
            Content::Data { crc, .. } => Some(crc),
            Content::Zero => None,
        };
        page.zero.set(nth, crc.is_none());
        if let Some(into) = page.crcs.get_mut(nth as usize) {
            *into = crc.unwrap_or(0);
        }
        if let Some(region) = page.regions.get_mut((nth / page::REGION_BLOCKS) as usize) {
            *region = write.index.max(*region);
        }
        if write.index > page.last_index {
            (page.last_index, page.last_term) = (write.index, write.term);
        }
    }
}

impl Reader {
    /// The file.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Number of free slots.
    pub fn free_slots(&self) -> usize {
        lock(&self.index).free.len()
    }

    /// Number of slots.
    pub fn slots(&self) -> u32 {
        lock(&self.index).slots
    }

    /// The offset of a block; its chunk gets a slot if it has none. Errors: none is free.
    pub(super) fn claim(&self, group: Group, key: &Key) -> Result<u64> {
        let slot = lock(&self.index).slot_for(ChunkKey::of(group, key))?;
        Ok(block_at(slot, key))
    }

    /// The chunks of a group that have a slot.
    pub fn chunks_of(&self, group: Group) -> Vec<ChunkKey> {
        let index = lock(&self.index);
        let of = index.chunks.keys().filter(|c| c.group == group);
        of.copied().collect()
    }

    /// All chunks that have a slot.
    pub fn chunks(&self) -> BTreeSet<ChunkKey> {
        lock(&self.index).chunks.keys().copied().collect()
    }

    /// The blocks of a chunk in regions that were changed by entries behind `index`.
    pub fn changed_after(&self, chunk: &ChunkKey, index: Index) -> Vec<u32> {
        let map = lock(&self.index);
        let Some(&slot) = map.chunks.get(chunk) else {
            return Vec::new();
        };
        let mut out = Vec::new();
        for extent in 0..CHUNK_EXTENTS {
            let Some(page) = map.pages.get(&(slot, extent)) else {
                continue;
            };
            for (region, _) in (0..).zip(page.regions).filter(|(_, last)| *last > index) {
                let from = region * page::REGION_BLOCKS;
                let blocks = (from..from + page::REGION_BLOCKS).filter(|&n| page.present.has(n));
                out.extend(blocks.map(|n| u32::from(extent) * EXTENT_BLOCKS + n));
            }
        }
        out
    }

    /// The last entry of each group that is recorded in a page.
    pub fn last_indices(&self) -> BTreeMap<Group, Index> {
        let mut last = BTreeMap::new();
        for page in lock(&self.index).pages.values() {
            let entry = last.entry(page.owner.group).or_default();
            *entry = page.last_index.max(*entry);
        }
        last
    }

    /// What the file has of a block, regardless of the dirty map.
    pub fn held(&self, group: Group, key: &Key) -> Held {
        let index = lock(&self.index);
        let Some(&slot) = index.chunks.get(&ChunkKey::of(group, key)) else {
            return Held::Absent;
        };
        let (extent, nth) = place_of(key);
        let Some(page) = index.pages.get(&(slot, extent)) else {
            return Held::Absent;
        };
        match page.crc(nth) {
            Some(crc) => Held::There {
                offset: block_at(slot, key),
                crc,
            },
            None if page.present.has(nth) => Held::Zero,
            None => Held::Absent,
        }
    }
}

fn lock(index: &Mutex<Map>) -> MutexGuard<'_, Map> {
    index.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The extent of a block, and the block's number in it.
fn place_of(key: &Key) -> (u8, u32) {
    let block = key.block.0;
    ((block / EXTENT_BLOCKS) as u8, block % EXTENT_BLOCKS)
}

fn block_at(slot: Slot, key: &Key) -> u64 {
    u64::from(slot.0) * SLOT_BYTES + HEAD + u64::from(key.block.0) * BLOCK as u64
}
