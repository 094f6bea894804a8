//! The encoding of a batch: the content of one durable write to a store's log, for any number of groups.
//!
//! ```text
//!   0+4 "ISrb"   4+4 crc of 8..head_bytes   8+4 head_bytes   12+4 items
//!   16+8 file number   24+8 sequence   32+8 batch_bytes   40+8 durable (the fence)
//!   48+8 nonce of the file   56+8 zero
//!   64…  items, zeros to a whole unit, then the payloads, each from a multiple of the unit
//!
//!   item: 0+1 kind  1+1 flags  2+2 inline_bytes  4+4 group  8+8 index  16+8 term
//!         24+4 payload_at, in units from the start of the batch  28+4 payload_bytes
//!         32… inline: a command's head and the crcs of its blocks; zeros to a multiple of 8
//! ```
//!
//! Little-endian; the crc is CRC-32C. It does not cover payloads: the crcs of their blocks, in the item, do
//! that.

use base::checksum::crc32c;
use base::coding::{Decoder, put_u16, put_u32, put_u64};
use base::{Error, Result};
use bytes::Bytes;
use io::AlignedBuf;

use crate::ids::{BLOCK, Group, Index, Term};

/// Bytes before the items.
pub const HEAD: usize = 64;
/// Bytes of an item before its inline bytes.
const ITEM: usize = 32;
const MAGIC: [u8; 4] = *b"ISrb";
/// Offset of the first byte that the crc covers.
const CRC_FROM: usize = 8;
/// Items are aligned to multiples of this.
const ITEM_ALIGN: usize = 8;
/// The most bytes of head and items.
pub const HEAD_BYTES_MAX: usize = 16 << 20;
/// The most bytes of a batch.
pub const BATCH_BYTES_MAX: u64 = 128 << 20;

/// The kind of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// An entry of a group's log.
    Entry = 1,
    /// A group's term, vote and commit.
    HardState = 2,
    /// The entry up to which a group's chunks are synced.
    Checkpoint = 3,
    /// A group's state at a checkpoint: members, epochs, windows. An item with [`MORE`] continues the previous
    /// one.
    GroupState = 4,
    /// The group was removed from the store.
    Purge = 5,
    /// A copy from a peer has begun: the data file may have blocks of entries up to the index.
    Copying = 6,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        [
            Self::Entry,
            Self::HardState,
            Self::Checkpoint,
            Self::GroupState,
            Self::Purge,
            Self::Copying,
        ]
        .into_iter()
        .find(|&kind| kind as u8 == byte)
    }
}

/// The flag of an item that continues the group state of the item before.
pub const MORE: u8 = 1;
/// The most bytes of group state in one item.
const STATE_PIECE: usize = 60 << 10;

/// An item of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its kind.
    pub kind: Kind,
    /// Flags, whose meaning depends on the kind.
    pub flags: u8,
    /// The group that it belongs to.
    pub group: Group,
    /// Its index in the group's log; for a checkpoint, the last entry that is synced.
    pub index: Index,
    /// Its term.
    pub term: Term,
    /// The inline bytes, at most 64 KiB. For an entry with a payload: the command's head, followed by the
    /// crc of each block of the payload.
    pub inline: Bytes,
    /// Whole blocks, or empty.
    pub payload: Bytes,
}

impl Item {
    /// A group's state at an entry, in as many items as it needs.
    pub fn states(group: Group, at: (Index, Term), state: &Bytes) -> impl Iterator<Item = Self> {
        let pieces = state.len().div_ceil(STATE_PIECE).max(1);
        (0..pieces).map(move |nth| {
            let from = nth * STATE_PIECE;
            let to = (from + STATE_PIECE).min(state.len());
            Self {
                kind: Kind::GroupState,
                flags: if nth == 0 { 0 } else { MORE },
                group,
                index: at.0,
                term: at.1,
                inline: state.slice(from..to),
                payload: Bytes::new(),
            }
        })
    }

    /// Whether each block of the payload matches its crc at the end of the inline bytes.
    pub fn payload_is_whole(&self) -> bool {
        let blocks = self.payload.len() / BLOCK;
        let crcs = self.inline.len().checked_sub(blocks * 4);
        let Some(crcs) = crcs.and_then(|at| self.inline.get(at..)) else {
            return false;
        };
        self.payload
            .chunks(BLOCK)
            .zip(crcs.chunks(4))
            .all(|(block, crc)| crc32c(block).to_le_bytes() == crc)
    }
}

/// The identity of a batch, and its fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file's number.
    pub file_number: u64,
    /// The file's nonce.
    pub nonce: u64,
    /// Number of the batch in its file, from 1.
    pub sequence: u64,
    /// The offset up to which the file was durable when the batch was made.
    pub durable: u64,
}

/// Appends the head of a batch of `items` to `out`, which must be empty. The payloads follow it, from the
/// next multiple of `unit` on.
///
/// Errors: too much for one batch, or a payload that is not whole blocks.
pub fn frame(place: Place, items: &[Item], unit: usize, out: &mut AlignedBuf) -> Result<()> {
    let head_bytes = head_bytes(items);
    let payload_bytes: usize = items.iter().map(|i| i.payload.len()).sum();
    let mut at = head_bytes.next_multiple_of(unit);
    let batch_bytes = (at + payload_bytes) as u64;
    if head_bytes > HEAD_BYTES_MAX || batch_bytes > BATCH_BYTES_MAX {
        return Err(Error::broken(format!(
            "a batch of {} items would have {batch_bytes} bytes, {head_bytes} of them in its head",
            items.len()
        )));
    }
    let mut body = Vec::with_capacity(head_bytes - CRC_FROM);
    put_u32(&mut body, head_bytes as u32);
    put_u32(&mut body, items.len() as u32);
    put_u64(&mut body, place.file_number);
    put_u64(&mut body, place.sequence);
    put_u64(&mut body, batch_bytes);
    put_u64(&mut body, place.durable);
    put_u64(&mut body, place.nonce);
    put_u64(&mut body, 0);
    for item in items {
        put_item(item, (at / unit) as u32, &mut body)?;
        at += item.payload.len();
    }
    out.extend_from_slice(&MAGIC)?;
    out.extend_from_slice(&crc32c(&body).to_le_bytes())?;
    out.extend_from_slice(&body)
}

/// Bytes of the head of a batch of `items`, before it is padded to a whole unit.
pub fn head_bytes(items: &[Item]) -> usize {
    HEAD + items.iter().map(item_bytes).sum::<usize>()
}

/// Bytes of a batch of `items`.
pub fn bytes(items: &[Item], unit: usize) -> u64 {
    let payloads: usize = items.iter().map(|i| i.payload.len()).sum();
    (head_bytes(items).next_multiple_of(unit) + payloads) as u64
}

fn item_bytes(item: &Item) -> usize {
    (ITEM + item.inline.len()).next_multiple_of(ITEM_ALIGN)
}

fn put_item(item: &Item, payload_at: u32, out: &mut Vec<u8>) -> Result<()> {
    let (Ok(inline), true) = (
        u16::try_from(item.inline.len()),
        item.payload.len().is_multiple_of(BLOCK),
    ) else {
        return Err(Error::broken(format!(
            "an item of {} bytes with a payload of {}",
            item.inline.len(),
            item.payload.len()
        )));
    };
    let end = out.len() + item_bytes(item);
    out.extend_from_slice(&[item.kind as u8, item.flags]);
    put_u16(out, inline);
    put_u32(out, item.group.0);
    put_u64(out, item.index.0);
    put_u64(out, item.term.0);
    let has_payload = !item.payload.is_empty();
    put_u32(out, if has_payload { payload_at } else { 0 });
    put_u32(out, item.payload.len() as u32);
    out.extend_from_slice(&item.inline);
    out.resize(end, 0);
    Ok(())
}

/// The sizes in the first bytes of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of head and items.
    pub head_bytes: usize,
    /// Bytes of the whole batch.
    pub batch_bytes: u64,
}

/// The sizes of the batch at the start of `bytes`, if it has a batch's magic and possible lengths; its checksum
/// is not verified. `None`: it is not a batch.
pub fn sizes(bytes: &[u8], unit: usize) -> Option<Sizes> {
    let mut d = Decoder::new(bytes.get(..HEAD)?);
    if d.bytes(MAGIC.len())? != MAGIC {
        return None;
    }
    d.u32()?;
    let head_bytes = d.u32()? as usize;
    d.bytes(20)?;
    let batch_bytes = d.u64()?;
    let possible = (HEAD..=HEAD_BYTES_MAX).contains(&head_bytes)
        && (head_bytes.next_multiple_of(unit) as u64..=BATCH_BYTES_MAX).contains(&batch_bytes)
        && batch_bytes.is_multiple_of(unit as u64);
    possible.then_some(Sizes {
        head_bytes,
        batch_bytes,
    })
}

/// The number and the nonce of the file in a batch's head; the checksum is not verified.
pub fn unchecked_file(head: &[u8]) -> Option<(u64, u64)> {
    let mut d = Decoder::new(head.get(..HEAD)?);
    d.bytes(16)?;
    let number = d.u64()?;
    d.bytes(24)?;
    Some((number, d.u64()?))
}

/// The identity of a batch, if `head`, which has at least [`Sizes::head_bytes`], matches its checksum.
pub fn place(head: &[u8], sizes: Sizes) -> Option<Place> {
    let covered = head.get(CRC_FROM..sizes.head_bytes)?;
    let mut d = Decoder::new(head.get(..HEAD)?);
    d.bytes(MAGIC.len())?;
    if d.u32()? != crc32c(covered) {
        return None;
    }
    d.bytes(8)?;
    let (file_number, sequence) = (d.u64()?, d.u64()?);
    d.u64()?;
    Some(Place {
        file_number,
        sequence,
        durable: d.u64()?,
        nonce: d.u64()?,
    })
}

/// The items of a batch whose head matches its checksum; `batch` is all of it. `None`: the content is
/// invalid.
pub fn items(batch: &Bytes, sizes: Sizes, unit: usize) -> Option<Vec<Item>> {
    let head = batch.get(..sizes.head_bytes)?;
    let mut d = Decoder::new(head.get(HEAD..)?);
    let count = Decoder::new(head.get(12..)?).u32()? as usize;
    if count > head.len() / ITEM {
        return None;
    }
    let mut out = Vec::with_capacity(count);
    let mut next_payload = sizes.head_bytes.next_multiple_of(unit);
    for _ in 0..count {
        let (kind, flags) = (Kind::of(d.u8()?)?, d.u8()?);
        let inline_bytes = usize::from(d.u16()?);
        let (group, index, term) = (Group(d.u32()?), Index(d.u64()?), Term(d.u64()?));
        let (payload_at, payload_bytes) = (d.u32()? as usize, d.u32()? as usize);
        let padded = (ITEM + inline_bytes).next_multiple_of(ITEM_ALIGN) - ITEM;
        let inline = batch.slice_ref(d.bytes(padded)?.get(..inline_bytes)?);
        let payload = if payload_bytes == 0 {
            Bytes::new()
        } else {
            let from = payload_at.checked_mul(unit)?;
            let to = from.checked_add(payload_bytes)?;
            if from != next_payload || !payload_bytes.is_multiple_of(BLOCK) || to > batch.len() {
                return None;
            }
            next_payload = to;
            batch.slice(from..to)
        };
        out.push(Item {
            kind,
            flags,
            group,
            index,
            term,
            inline,
            payload,
        });
    }
    (d.is_empty() && next_payload as u64 == sizes.batch_bytes).then_some(out)
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use base::rng::Rng;
    use proptest::prelude::*;

    use super::*;

    const UNIT: usize = 512;

    fn item(rng: &mut Rng) -> Item {
        let blocks = rng.below(4) as usize;
        let payload: Vec<u8> = (0..blocks * BLOCK).map(|_| rng.next_u64() as u8).collect();
        let mut inline: Vec<u8> = (0..rng.below(90)).map(|_| rng.next_u64() as u8).collect();
        for block in payload.chunks(BLOCK) {
            inline.extend(crc32c(block).to_le_bytes());
        }
        Item {
            kind: Kind::of(1 + rng.below(5) as u8).unwrap(),
            flags: rng.next_u64() as u8,
            group: Group(rng.next_u64() as u32),
            index: Index(rng.next_u64()),
            term: Term(rng.next_u64()),
            inline: inline.into(),
            payload: payload.into(),
        }
    }

    fn batch(seed: u64) -> (Place, Vec<Item>, Bytes) {
        let mut rng = Rng::new(seed);
        let items: Vec<Item> = (0..rng.below(6)).map(|_| item(&mut rng)).collect();
        let place = Place {
            file_number: rng.next_u64(),
            nonce: rng.next_u64(),
            sequence: rng.next_u64(),
            durable: rng.next_u64(),
        };
        let mut out = AlignedBuf::new(UNIT);
        frame(place, &items, UNIT, &mut out).unwrap();
        out.pad_to_alignment().unwrap();
        for item in &items {
            out.extend_from_slice(&item.payload).unwrap();
        }
        (place, items, out.into())
    }

    fn read(bytes: &Bytes) -> Option<(Place, Vec<Item>)> {
        let sizes = sizes(bytes, UNIT)?;
        Some((place(bytes, sizes)?, items(bytes, sizes, UNIT)?))
    }

    #[test]
    fn what_is_framed_is_read() {
        for seed in 0..300 {
            let (place, items, bytes) = batch(seed);
            assert_eq!(sizes(&bytes, UNIT).unwrap().batch_bytes, bytes.len() as u64);
            assert_eq!(read(&bytes), Some((place, items.clone())), "seed {seed}");
            assert!(items.iter().all(Item::payload_is_whole));
            for item in items.iter().filter(|i| !i.payload.is_empty()) {
                let mut torn = item.clone();
                let mut payload = torn.payload.to_vec();
                *payload.last_mut().unwrap() ^= 1;
                torn.payload = payload.into();
                assert!(!torn.payload_is_whole());
            }
        }
    }

    #[test]
    fn a_flipped_bit_of_the_head_is_found() {
        for seed in 0..4 {
            let (_, _, bytes) = batch(seed);
            let head = sizes(&bytes, UNIT).unwrap().head_bytes;
            for bit in 0..head * 8 {
                let mut flipped = bytes.to_vec();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(read(&flipped.into()), None, "seed {seed}, bit {bit}");
            }
        }
    }

    #[test]
    fn what_no_batch_can_have_is_refused_by_who_writes() {
        let (place, mut items, _) = batch(1);
        items.push(item(&mut Rng::new(4)));
        let last = items.last_mut().unwrap();
        last.payload = Bytes::from_static(b"no whole block");
        let mut out = AlignedBuf::new(UNIT);
        assert!(frame(place, &items, UNIT, &mut out).is_err());
        let last = items.last_mut().unwrap();
        (last.payload, last.inline) = (Bytes::new(), vec![0; 1 << 16].into());
        assert!(frame(place, &items, UNIT, &mut out).is_err());
    }

    proptest! {
        /// Arbitrary bytes, even with a valid checksum, are read or refused.
        #[test]
        fn hostile_bytes_are_refused(
            mut bytes in proptest::collection::vec(any::<u8>(), HEAD..600),
            head_bytes in HEAD as u32..700,
            items in 0_u32..9,
        ) {
            bytes.splice(..4, MAGIC);
            bytes.splice(8..12, head_bytes.to_le_bytes());
            bytes.splice(12..16, items.to_le_bytes());
            let all = (bytes.len().next_multiple_of(UNIT)) as u64;
            bytes.splice(32..40, all.to_le_bytes());
            bytes.resize(all as usize, 0);
            if let Some(covered) = bytes.get(CRC_FROM..head_bytes as usize) {
                let crc = crc32c(covered);
                bytes.splice(4..8, crc.to_le_bytes());
            }
            read(&bytes.into());
        }
    }
}
