//! A store's data file: slots of one chunk each.
//!
//! ```text
//!   slot   ├─ 8 extents × 2 pages × 4 KiB ─┼──────── 16 MiB of blocks ────────┤
//! ```
//!
//! Blocks are overwritten in place. A page says which of them are there and what their checksums are; it is
//! written with them, to the older of its two places. In which order a crash lets them be is of no account:
//! whatever is on its way is applied again from the log before anything is served.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use io::{AlignedBuf, File, SyncKind, WriteSync, buffer::PAGE};

use super::dirty::{Content, Key, Write};
use super::page::{self, Owner, Page};
use crate::ids::{
    BLOCK, CHUNK_BLOCKS, CHUNK_EXTENTS, Chunk, EXTENT_BLOCKS, Group, Index, Layer, Slot, Tree,
};

/// Bytes of a slot's pages.
const HEAD: u64 = CHUNK_EXTENTS as u64 * 2 * page::LEN as u64;
/// Bytes of a slot.
pub const SLOT_BYTES: u64 = HEAD + CHUNK_BLOCKS as u64 * BLOCK as u64;
/// The most blocks that are written at once: 1 MiB.
const RUN_BLOCKS: usize = 256;

/// A chunk of a layer, as a group has it.
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
    fn of(group: Group, key: &Key) -> Self {
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

    fn of_page(owner: &Owner) -> Self {
        Self {
            group: owner.group,
            tree: owner.tree,
            layer: owner.layer,
            chunk: owner.chunk,
        }
    }
}

/// What the data file says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// This layer does not have it: its parent is asked.
    Absent,
    /// It is zero.
    Zero,
    /// It lies there, and has this crc if it is right.
    There {
        /// Where in the file.
        offset: u64,
        /// The content's CRC-32C.
        crc: u32,
    },
}

/// See the module.
#[derive(Debug)]
pub struct Data {
    file: Arc<dyn File>,
    slots: u32,
    chunks: BTreeMap<ChunkKey, Slot>,
    /// The pages that are durable.
    pages: BTreeMap<(Slot, u8), Page>,
    /// Those written since the last sync. Until then the durable one of an extent must not be written over.
    written: BTreeMap<(Slot, u8), Page>,
    free: Vec<Slot>,
    /// A failed sync: what the file holds is not known any more.
    failure: Option<Error>,
}

impl Data {
    /// Opens the data file, which has `slots` slots, and reads their pages. Errors: Corruption, where a page
    /// says what cannot be; a newer version; the file's own.
    pub fn open(file: Arc<dyn File>, slots: u32) -> Result<Self> {
        let len = file.len()?;
        if len < u64::from(slots) * SLOT_BYTES {
            return Err(Error::corruption(format!(
                "{slots} slots take {} bytes, and the file has {len}",
                u64::from(slots) * SLOT_BYTES
            ))
            .file(file.path())
            .hint("is it another store's data file?"));
        }
        let mut data = Self {
            file,
            slots,
            chunks: BTreeMap::new(),
            pages: BTreeMap::new(),
            written: BTreeMap::new(),
            free: Vec::new(),
            failure: None,
        };
        let mut head = AlignedBuf::zeroed(HEAD as usize, PAGE)?;
        for slot in (0..slots).rev().map(Slot) {
            let at = u64::from(slot.0) * SLOT_BYTES;
            io::read_exact_at(&*data.file, &mut head, at)?;
            data.read_slot(slot, &head)
                .map_err(|e| e.or_file(data.file.path()).offset(at))?;
        }
        Ok(data)
    }

    fn read_slot(&mut self, slot: Slot, head: &[u8]) -> Result<()> {
        let mut owner: Option<ChunkKey> = None;
        let mut extents = head.chunks_exact(2 * page::LEN);
        for extent in 0..CHUNK_EXTENTS {
            let Some(copies) = extents.next() else { break };
            let (first, second) = copies.split_at(page::LEN);
            let Some(page) = Page::newer([first, second])? else {
                continue;
            };
            let of = ChunkKey::of_page(&page.owner);
            let here = (page.owner.slot, page.owner.extent) == (slot, extent);
            if !here || owner.is_some_and(|o| o != of) {
                return Err(Error::corruption(format!(
                    "extent {extent} of slot {slot} has the page of {:?}",
                    page.owner
                )));
            }
            owner = Some(of);
            self.pages.insert((slot, extent), page);
        }
        match owner {
            None => self.free.push(slot),
            Some(owner) => {
                if let Some(other) = self.chunks.insert(owner, slot) {
                    return Err(Error::corruption(format!(
                        "slots {slot} and {other} are both of {owner:?}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// How many slots are free.
    pub fn free_slots(&self) -> usize {
        self.free.len()
    }

    /// How many slots there are.
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The chunks that are here.
    pub fn chunks(&self) -> impl Iterator<Item = (&ChunkKey, &Slot)> {
        self.chunks.iter()
    }

    /// The last entry of which something is in a page.
    pub fn last_index(&self, group: Group) -> Option<Index> {
        let pages = self.pages.values().filter(|p| p.owner.group == group);
        pages.map(|p| p.last_index).max()
    }

    /// What the file has of a block, the dirty map aside.
    pub fn held(&self, group: Group, key: &Key) -> Held {
        let Some(&slot) = self.chunks.get(&ChunkKey::of(group, key)) else {
            return Held::Absent;
        };
        let (extent, nth) = place_of(key);
        let Some(page) = self.pages.get(&(slot, extent)) else {
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

    /// Errors: a sync has failed.
    fn check(&self) -> Result<()> {
        self.failure.as_ref().map_or(Ok(()), |e| Err(e.duplicate()))
    }

    /// Writes blocks of a group, in their order, and the pages of their extents. An error leaves some of
    /// them written, which is of no account: they are dirty still.
    pub(super) fn write(&mut self, group: Group, writes: &[Write]) -> Result<()> {
        self.check()?;
        let mut pages: BTreeMap<(Slot, u8), Page> = BTreeMap::new();
        let mut run: Vec<&Write> = Vec::new();
        for write in writes {
            let slot = self.slot_for(ChunkKey::of(group, &write.key))?;
            self.note(slot, group, write, &mut pages);
            if !matches!(write.content, Content::Data { .. }) {
                continue;
            }
            if !run.last().is_some_and(|l| goes_on(l, write)) || run.len() == RUN_BLOCKS {
                self.write_run(group, &run)?;
                run.clear();
            }
            run.push(write);
        }
        self.write_run(group, &run)?;
        for ((slot, extent), page) in pages {
            let mut bytes = AlignedBuf::new(PAGE);
            bytes.extend_from_slice(&page.encode())?;
            let nth = u64::from(extent) * 2 + page.copy();
            let at = u64::from(slot.0) * SLOT_BYTES + nth * page::LEN as u64;
            io::write_all_at(&*self.file, &bytes, at, WriteSync::None)?;
            self.written.insert((slot, extent), page);
        }
        Ok(())
    }

    /// The slot of a chunk, a free one for a new chunk. Errors: there is none.
    fn slot_for(&mut self, chunk: ChunkKey) -> Result<Slot> {
        if let Some(&slot) = self.chunks.get(&chunk) {
            return Ok(slot);
        }
        let slot = self.free.pop().ok_or_else(|| {
            Error::new(
                ErrorKind::NoSpace,
                format!("all {} slots are taken", self.slots),
            )
            .file(self.file.path())
            .hint("add a store, or move groups elsewhere")
        })?;
        self.chunks.insert(chunk, slot);
        Ok(slot)
    }

    /// Notes a block in its extent's next page.
    fn note(
        &self,
        slot: Slot,
        group: Group,
        write: &Write,
        pages: &mut BTreeMap<(Slot, u8), Page>,
    ) {
        let (extent, nth) = place_of(&write.key);
        let page = pages.entry((slot, extent)).or_insert_with(|| {
            let owner = ChunkKey::of(group, &write.key).owner(slot, extent);
            let durable = self.pages.get(&(slot, extent));
            let last = self.written.get(&(slot, extent)).or(durable);
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

    /// Writes blocks that lie one behind the other.
    fn write_run(&self, group: Group, run: &[&Write]) -> Result<()> {
        let Some(first) = run.first() else {
            return Ok(());
        };
        let slot = self.chunks.get(&ChunkKey::of(group, &first.key));
        let slot = *slot.ok_or_else(|| Error::broken("a chunk has lost its slot"))?;
        let bytes = run.iter().filter_map(|w| match &w.content {
            Content::Data { bytes, .. } => Some(IoSlice::new(bytes)),
            Content::Zero => None,
        });
        let mut slices: Vec<IoSlice<'_>> = bytes.collect();
        let at = block_at(slot, &first.key);
        io::write_all_vectored_at(&*self.file, &mut slices, at, WriteSync::None)
    }

    /// Makes what was written durable. An error is kept: nothing of the file is trusted any more.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.check()?;
        let synced = self.file.sync(SyncKind::Data);
        match &synced {
            Ok(()) => self.pages.append(&mut self.written),
            Err(e) => self.failure = Some(e.duplicate()),
        }
        synced
    }
}

/// The extent of a block, and which of the extent's blocks it is.
fn place_of(key: &Key) -> (u8, u32) {
    let block = key.block.0;
    ((block / EXTENT_BLOCKS) as u8, block % EXTENT_BLOCKS)
}

fn block_at(slot: Slot, key: &Key) -> u64 {
    u64::from(slot.0) * SLOT_BYTES + HEAD + u64::from(key.block.0) * BLOCK as u64
}

/// Whether `next` lies right behind `last`.
fn goes_on(last: &Write, next: &Write) -> bool {
    let (a, b) = (&last.key, &next.key);
    (a.tree, a.layer, a.chunk) == (b.tree, b.layer, b.chunk) && a.block.0 + 1 == b.block.0
}
