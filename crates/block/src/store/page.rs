//! The encoding of an extent page: which blocks a slot's 2 MiB extent has, and their checksums.
//!
//! ```text
//!   0+4 "ISxp"  4+4 crc of the rest  8+2 version  10+1 extent  11+1 flags  12+4 group  16+8 generation
//!   24+8 tree  32+8 layer  40+4 chunk  44+4 slot  48+8 last_index  56+8 last_term
//!   64+64 present bits  128+64 zero bits  192+256 last_index of each 64 KiB region
//!   448+2048 crcs of blocks  2496… zeros
//! ```
//!
//! Little-endian; crcs are CRC-32C. Each extent has two pages, written in turns: of those that are intact, the
//! one with the higher generation counts. For damaged pages see [`Doubt`]. A block's crc accompanies it from
//! NBD on; a page stores that crc xor a fold of tree, chunk and block, so that a block that was written to a
//! wrong place is detected.

use base::checksum::crc32c;
use base::coding::{Decoder, put_u16, put_u32, put_u64};
use base::{Error, Result};

use crate::ids::{
    Block, CHUNK_EXTENTS, Chunk, EXTENT_BLOCKS, Group, Index, Layer, Slot, Term, Tree,
};
use crate::sealed;

/// Bytes of a page.
pub const LEN: usize = sealed::LEN;
/// The version that this code writes and reads.
pub const VERSION: u16 = 1;
/// Blocks of a region, the unit of copies between replicas: 64 KiB.
pub const REGION_BLOCKS: u32 = 16;
/// Regions of an extent.
pub const REGIONS: usize = (EXTENT_BLOCKS / REGION_BLOCKS) as usize;
/// The generation of an extent's first page. The previous generation is in the other place, with the same
/// content.
pub(super) const FIRST_GENERATION: u64 = 1;
const MAGIC: [u8; 4] = *b"ISxp";
const BLOCKS: usize = EXTENT_BLOCKS as usize;

/// A set of an extent's blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bits([u64; BLOCKS / 64]);

impl Bits {
    /// Whether the set has the block at `nth`; it never has blocks beyond the extent.
    pub fn has(&self, nth: u32) -> bool {
        let word = self.0.get(nth as usize / 64);
        word.is_some_and(|w| w >> (nth % 64) & 1 == 1)
    }

    /// Adds or removes a block.
    pub fn set(&mut self, nth: u32, is_in: bool) {
        if let Some(word) = self.0.get_mut(nth as usize / 64) {
            let bit = 1 << (nth % 64);
            *word = if is_in { *word | bit } else { *word & !bit };
        }
    }

    /// Number of blocks in the set.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|w| w.count_ones()).sum()
    }
}

/// The identity of an extent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The group of the replica.
    pub group: Group,
    /// The chunk's tree.
    pub tree: Tree,
    /// The chunk's layer.
    pub layer: Layer,
    /// The chunk.
    pub chunk: Chunk,
    /// The slot that holds it.
    pub slot: Slot,
    /// Its number in the slot, below [`CHUNK_EXTENTS`].
    pub extent: u8,
}

impl Owner {
    /// The number in the chunk of the block that is `nth` in this extent.
    pub fn block(&self, nth: u32) -> Block {
        Block(u32::from(self.extent) * EXTENT_BLOCKS + nth)
    }
}

/// A page of an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The extent that it describes.
    pub owner: Owner,
    /// Rises with each page of the extent.
    pub generation: u64,
    /// The last entry that changed the extent.
    pub last_index: Index,
    /// The term of that entry.
    pub last_term: Term,
    /// The blocks that this layer has; the others may be in its parent.
    pub present: Bits,
    /// Those of them that are zero, whatever is stored on disk.
    pub zero: Bits,
    /// The last entry that changed each region.
    pub regions: [Index; REGIONS],
    /// The stored crc of each block, 0 if there is none.
    pub crcs: [u32; BLOCKS],
}

impl Page {
    /// The page of an empty extent.
    pub fn empty(owner: Owner) -> Self {
        Self {
            owner,
            generation: 0,
            last_index: Index(0),
            last_term: Term(0),
            present: Bits::default(),
            zero: Bits::default(),
            regions: [Index(0); REGIONS],
            crcs: [0; BLOCKS],
        }
    }

    /// The crc that a block's content must have; `None`: the block is not on disk.
    pub fn crc(&self, nth: u32) -> Option<u32> {
        let on_disk = self.present.has(nth) && !self.zero.has(nth);
        self.crcs.get(nth as usize).copied().filter(|_| on_disk)
    }

    /// The place of the page among the extent's two: 0 or 1.
    pub fn copy(&self) -> u64 {
        self.generation % 2
    }

    /// The encoding.
    pub fn encode(&self) -> Vec<u8> {
        let o = &self.owner;
        let mut body = Vec::with_capacity(LEN);
        put_u16(&mut body, VERSION);
        body.extend_from_slice(&[o.extent, 0]);
        put_u32(&mut body, o.group.0);
        put_u64(&mut body, self.generation);
        put_u64(&mut body, o.tree.0);
        put_u64(&mut body, o.layer.0);
        put_u32(&mut body, o.chunk.0);
        put_u32(&mut body, o.slot.0);
        put_u64(&mut body, self.last_index.0);
        put_u64(&mut body, self.last_term.0);
        let words = self.present.0.iter().chain(&self.zero.0);
        words.for_each(|&w| put_u64(&mut body, w));
        self.regions.iter().for_each(|i| put_u64(&mut body, i.0));
        for (nth, crc) in (0..).zip(self.crcs) {
            let stored = self.crc(nth).map_or(0, |_| crc ^ fold(o, nth));
            put_u32(&mut body, stored);
        }
        sealed::seal(MAGIC, body)
    }

    /// Decodes a page. Errors: Corruption; `NotSupported` for an unknown version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut d = sealed::open(bytes, MAGIC, "extent page")?;
        let version = d.u16().unwrap_or_default();
        if version != VERSION {
            let (version, known) = (version.into(), VERSION.into());
            return Err(sealed::unknown_version("extent pages", version, known));
        }
        Self::decode_rest(&mut d).map_or_else(
            || Err(Error::corruption("extent page: values that cannot be")),
            Ok,
        )
    }

    fn decode_rest(d: &mut Decoder<'_>) -> Option<Self> {
        let (extent, _flags) = (d.u8()?, d.u8()?);
        let group = Group(d.u32()?);
        let generation = d.u64()?;
        let owner = Owner {
            group,
            tree: Tree(d.u64()?),
            layer: Layer(d.u64()?),
            chunk: Chunk(d.u32()?),
            slot: Slot(d.u32()?),
            extent: (extent < CHUNK_EXTENTS).then_some(extent)?,
        };
        let mut page = Self {
            generation,
            last_index: Index(d.u64()?),
            last_term: Term(d.u64()?),
            ..Self::empty(owner)
        };
        for word in page.present.0.iter_mut().chain(&mut page.zero.0) {
            *word = d.u64()?;
        }
        for region in &mut page.regions {
            *region = Index(d.u64()?);
        }
        let mut stored = [0; BLOCKS];
        for crc in &mut stored {
            *crc = d.u32()?;
        }
        for (nth, crc) in (0..).zip(stored) {
            let on_disk = page.crc(nth).is_some();
            if let Some(into) = page.crcs.get_mut(nth as usize).filter(|_| on_disk) {
                *into = crc ^ fold(&owner, nth);
            }
        }
        Some(page)
    }

    /// The page of an extent that counts: the newer of the intact ones, and the doubt if one is damaged. No
    /// page and no doubt: the extent was never written. The first page is written to both places, so that
    /// damage to one never looks like that. Errors: a newer version.
    pub fn of_extent(copies: [&[u8]; 2]) -> Result<(Option<Self>, Option<Doubt>)> {
        let decode = |bytes| match Self::decode(bytes) {
            Ok(page) => Ok(Some(page)),
            Err(e) if e.is_corruption() => Ok(None),
            Err(e) => Err(e),
        };
        let [first, second] = copies;
        Ok(match (decode(first)?, decode(second)?) {
            (Some(a), Some(b)) if a.generation < b.generation => (Some(b), None),
            (Some(a), Some(_)) => (Some(a), None),
            (Some(page), None) => {
                let doubt = Doubt::beside(&page, second);
                (Some(page), Some(doubt))
            }
            (None, Some(page)) => {
                let doubt = Doubt::beside(&page, first);
                (Some(page), Some(doubt))
            }
            (None, None) if copies.iter().all(|c| is_zero(c)) => (None, None),
            (None, None) => {
                let is_first = copies.iter().all(|c| said(c).0 <= FIRST_GENERATION);
                (None, Some(Doubt::Both { is_first }))
            }
        })
    }
}

/// What is unknown about an extent with a damaged page. A power cut damages a page while it is written; then
/// the log has the entries that were in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// One page is intact, and the damaged one had nothing newer.
    Older,
    /// One page is intact, and the damaged one may have been newer.
    Newer,
    /// Neither page is intact.
    Both {
        /// Whether they may be the extent's first pages.
        is_first: bool,
    },
}

impl Doubt {
    /// The doubt about a damaged page beside an intact one, as far as it can be read: it was the previous page,
    /// or both are copies of the first.
    fn beside(whole: &Page, damaged: &[u8]) -> Self {
        let (generation, last) = said(damaged);
        let last = Index(last);
        let is_before = Some(generation) == whole.generation.checked_sub(1);
        let is_older = match whole.generation {
            // A later page would have overwritten the intact one, or follow one that did.
            0 => is_zero(damaged) || (generation == FIRST_GENERATION && last == whole.last_index),
            FIRST_GENERATION => is_before && last == whole.last_index,
            _ => is_before && last <= whole.last_index,
        };
        if is_older { Self::Older } else { Self::Newer }
    }
}

/// The generation and last entry in the bytes of a page, damaged or not.
fn said(bytes: &[u8]) -> (u64, u64) {
    let at = |n| Some(u64::from_le_bytes(*bytes.get(n..)?.first_chunk()?));
    (at(16).unwrap_or(0), at(48).unwrap_or(0))
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&b| b == 0)
}

/// The value that a block's crc is xored with at its place.
fn fold(owner: &Owner, nth: u32) -> u32 {
    let mut place = Vec::with_capacity(16);
    put_u64(&mut place, owner.tree.0);
    put_u32(&mut place, owner.chunk.0);
    put_u32(&mut place, owner.block(nth).0);
    crc32c(&place)
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use base::rng::Rng;

    use super::*;

    fn page(seed: u64) -> Page {
        let mut rng = Rng::new(seed);
        let owner = Owner {
            group: Group(rng.next_u64() as u32),
            tree: Tree(rng.next_u64()),
            layer: Layer(rng.next_u64()),
            chunk: Chunk(rng.next_u64() as u32),
            slot: Slot(rng.next_u64() as u32),
            extent: rng.below(8) as u8,
        };
        let mut page = Page::empty(owner);
        page.generation = rng.next_u64();
        page.last_index = Index(rng.next_u64());
        page.last_term = Term(rng.next_u64());
        for nth in 0..EXTENT_BLOCKS {
            page.present.set(nth, rng.one_in(2));
            page.zero.set(nth, rng.one_in(4));
            if page.crc(nth).is_some() {
                page.crcs[nth as usize] = rng.next_u64() as u32;
            }
        }
        page.regions = std::array::from_fn(|_| Index(rng.next_u64()));
        page
    }

    #[test]
    fn what_is_written_is_read_and_any_flipped_bit_refused() {
        for seed in 0..20 {
            let bytes = page(seed).encode();
            assert_eq!(bytes.len(), LEN);
            assert_eq!(Page::decode(&bytes).unwrap(), page(seed));
        }
        let bytes = page(1).encode();
        for bit in 0..LEN * 8 {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(
                Page::decode(&bytes).unwrap_err().is_corruption(),
                "bit {bit}"
            );
        }
    }

    /// The fold differs for each place, so a block in a wrong place has a wrong crc.
    #[test]
    fn a_block_at_another_place_has_another_checksum() {
        let owner = page(1).owner;
        let other = |change: fn(&mut Owner)| {
            let mut other = owner;
            change(&mut other);
            other
        };
        let here = fold(&owner, 5);
        assert_ne!(here, fold(&owner, 6));
        assert_ne!(here, fold(&other(|o| o.tree.0 ^= 1), 5));
        assert_ne!(here, fold(&other(|o| o.chunk.0 ^= 1), 5));
        assert_ne!(here, fold(&other(|o| o.extent ^= 1), 5));
        // The layer does not count, so content may be moved between the layers of a tree.
        assert_eq!(here, fold(&other(|o| o.layer.0 ^= 1), 5));
    }

    #[test]
    fn the_newer_whole_page_counts() {
        let (mut old, mut new) = (page(1), page(2));
        (old.generation, new.generation) = (6, 7);
        assert_ne!(old.copy(), new.copy());
        let (old_bytes, new_bytes) = (old.encode(), new.encode());
        let mut torn = new_bytes.clone();
        torn[512..].copy_from_slice(&old_bytes[512..]);
        let newer = |a: &[u8], b: &[u8]| Page::of_extent([a, b]).unwrap();
        assert_eq!(newer(&old_bytes, &new_bytes), (Some(new.clone()), None));
        assert_eq!(newer(&new_bytes, &old_bytes), (Some(new), None));
        assert_eq!(newer(&old_bytes, &torn), (Some(old), Some(Doubt::Newer)));
        let lost = Doubt::Both { is_first: false };
        assert_eq!(newer(&[0; LEN], &torn), (None, Some(lost)));
        assert_eq!(newer(&[0; LEN], &[0; LEN]), (None, None));
        let mut later = old_bytes.clone();
        later[sealed::COVERED] = 9;
        let crc = crc32c(&later[sealed::COVERED..]).to_le_bytes();
        later[4..sealed::COVERED].copy_from_slice(&crc);
        let e = Page::of_extent([&old_bytes, &later]).unwrap_err();
        let e = e.to_string();
        assert!(
            e.contains("version 9") && e.contains("start that one"),
            "{e}"
        );
    }

    /// When one page of an extent was damaged, the other one was believed, even if it was the older.
    #[test]
    fn a_damaged_page_may_have_been_the_newer() {
        let numbered = |generation, last| {
            let mut page = page(1);
            (page.generation, page.last_index) = (generation, Index(last));
            page
        };
        let damaged = |page: &Page| {
            let mut bytes = page.encode();
            bytes[1000] ^= 1;
            bytes
        };
        let doubt = |a: &[u8], b: &[u8]| Page::of_extent([a, b]).unwrap().1;
        let (old, new) = (numbered(6, 10), numbered(7, 12));
        let (newer, older) = (Some(Doubt::Newer), Some(Doubt::Older));
        assert_eq!(doubt(&old.encode(), &damaged(&new)), newer);
        assert_eq!(doubt(&damaged(&new), &old.encode()), newer);
        assert_eq!(doubt(&damaged(&old), &new.encode()), older);
        // Several parts of a round may have the same last entry.
        assert_eq!(doubt(&old.encode(), &damaged(&numbered(7, 10))), newer);
        // The first page is in both places; later ones are written in turns.
        let (zeroth, first, second) = (numbered(0, 10), numbered(1, 10), numbered(2, 10));
        let (zeroth_bytes, first_bytes) = (zeroth.encode(), first.encode());
        assert_eq!(doubt(&zeroth_bytes, &damaged(&first)), older);
        assert_eq!(doubt(&damaged(&zeroth), &first_bytes), older);
        assert_eq!(doubt(&damaged(&second), &first_bytes), newer);
        assert_eq!(doubt(&zeroth_bytes, &[0; LEN]), older);
        // The zeros may have been the second page.
        assert_eq!(doubt(&[0; LEN], &first_bytes), newer);
        assert_eq!(doubt(&[0; LEN], &new.encode()), newer);
        let both = doubt(&damaged(&zeroth), &damaged(&first));
        assert_eq!(both, Some(Doubt::Both { is_first: true }));
        let both = doubt(&damaged(&old), &damaged(&first));
        assert_eq!(both, Some(Doubt::Both { is_first: false }));
    }
}
