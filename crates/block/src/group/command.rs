//! The command of a log entry: the head that precedes the crcs of the entry's blocks.
//!
//! ```text
//!   0+1 op   1+1 flags   2+2 blocks   4+4 epoch   8+8 layer   16+4 chunk   20+4 first block
//!   24+8 attachment   32+8 seq   40+8 lowest seq still open   48+8 tree
//! Little-endian. Commands are physical: they write whole blocks of a named layer, or make a range of
//! blocks zero. So entries may be applied any number of times, if their order is kept.
//!
//! Little-endian. Entries are physical: whole blocks of a named layer, or a range of them that becomes zero. So
//! an entry may be applied any number of times, as long as that happens in order.

use base::checksum::crc32c;
use base::coding::{Decoder, put_u16, put_u32, put_u64};
use base::{Error, Result};
use bytes::Bytes;

use crate::ids::{Attachment, BLOCK, Block, CHUNK_BLOCKS, Chunk, Epoch, Layer, Tree};
use crate::store::dirty::{Content, Key};

/// Bytes of the head.
pub const HEAD: usize = 56;

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// The payload's blocks are written.
    Write = 1,
    /// Blocks become zero.
    Zero = 2,
    /// The blocks are not needed any more: they become zero, and may lose their place in the data file.
    Trim = 3,
    /// The volume has a new attachment: lower epochs are refused from now on.
    Epoch = 4,
    /// Changes nothing. Earlier entries are committed with it.
    Nothing = 5,
}

impl Op {
    fn of(byte: u8) -> Option<Self> {
        [
            Self::Write,
            Self::Zero,
            Self::Trim,
            Self::Epoch,
            Self::Nothing,
        ]
        .into_iter()
        .find(|&op| op as u8 == byte)
    }
}

/// The origin of a request, and which earlier requests were answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The attachment's epoch.
    pub epoch: Epoch,
    /// The attachment.
    pub attachment: Attachment,
    /// Number of the request among those of the attachment to this group, from 1.
    pub seq: u64,
    /// Requests with lower numbers are answered: a retry of one is ignored.
    pub lowest_open: u64,
}

/// Consecutive blocks of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The tree of layers.
    pub tree: Tree,
    /// The layer.
    pub layer: Layer,
    /// The chunk.
    pub chunk: Chunk,
    /// The first block.
    pub first: Block,
    /// Number of blocks.
    pub blocks: u16,
}

impl Range {
    /// The blocks.
    pub fn keys(self) -> impl Iterator<Item = Key> {
        let first = self.first.0;
        (first..first + u32::from(self.blocks)).map(move |block| Key {
            tree: self.tree,
            layer: self.layer,
            chunk: self.chunk,
            block: Block(block),
        })
    }

    /// Whether its blocks lie in the chunk.
    pub fn is_possible(self) -> bool {
        self.first.0 <= CHUNK_BLOCKS && self.first.0 + u32::from(self.blocks) <= CHUNK_BLOCKS
    }
}

/// The command of a log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The operation.
    pub op: Op,
    /// The request that it came from.
    pub origin: Origin,
    /// The blocks.
    pub range: Range,
}

impl Command {
    /// A command that changes nothing.
    pub fn nothing() -> Self {
        Self {
            op: Op::Nothing,
            origin: Origin::default(),
            range: Range::default(),
        }
    }

    /// Its encoding, followed by the crcs of the payload's blocks, which came with the request.
    pub fn encode(&self, crcs: &[u32]) -> Bytes {
        let mut out = Vec::with_capacity(HEAD + crcs.len() * 4);
        let (o, r) = (&self.origin, &self.range);
        out.extend_from_slice(&[self.op as u8, 0]);
        put_u16(&mut out, r.blocks);
        put_u32(&mut out, o.epoch.0);
        put_u64(&mut out, r.layer.0);
        put_u32(&mut out, r.chunk.0);
        put_u32(&mut out, r.first.0);
        put_u64(&mut out, o.attachment.0);
        put_u64(&mut out, o.seq);
        put_u64(&mut out, o.lowest_open);
        put_u64(&mut out, r.tree.0);
        for &crc in crcs {
            put_u32(&mut out, crc);
        }
        out.into()
    }

    /// Decodes a command and the crcs behind it. `payload_bytes`: length of the entry's payload. Errors:
    /// Corruption.
    pub fn decode(inline: &[u8], payload_bytes: usize) -> Result<(Self, Vec<u32>)> {
        Self::read(inline, payload_bytes).ok_or_else(|| {
            Error::corruption(format!(
                "no command of {} bytes with a payload of {payload_bytes} can be",
                inline.len()
            ))
        })
    }

    fn read(inline: &[u8], payload_bytes: usize) -> Option<(Self, Vec<u32>)> {
        let mut d = Decoder::new(inline);
        let (op, _flags, blocks) = (Op::of(d.u8()?)?, d.u8()?, d.u16()?);
        let epoch = Epoch(d.u32()?);
        let (layer, chunk, first) = (Layer(d.u64()?), Chunk(d.u32()?), Block(d.u32()?));
        let (attachment, seq, lowest_open) = (Attachment(d.u64()?), d.u64()?, d.u64()?);
        let range = Range {
            tree: Tree(d.u64()?),
            layer,
            chunk,
            first,
            blocks,
        };
        let held = if op == Op::Write { blocks } else { 0 };
        let mut crcs = Vec::with_capacity(usize::from(held).min(inline.len() / 4));
        for _ in 0..held {
            crcs.push(d.u32()?);
        }
        let command = Self {
            op,
            origin: Origin {
                epoch,
                attachment,
                seq,
                lowest_open,
            },
            range,
        };
        let whole = d.is_empty() && payload_bytes == usize::from(held) * BLOCK;
        (whole && range.is_possible()).then_some((command, crcs))
    }

    /// The new content of each block that the command changes.
    pub fn contents(&self, crcs: &[u32], payload: &Bytes) -> Vec<(Key, Content)> {
        let at = |n: usize| n * BLOCK..(n + 1) * BLOCK;
        let keys = self.range.keys().enumerate();
        let contents = keys.map(|(n, key)| {
            let content = match (self.op, crcs.get(n)) {
                (Op::Write, Some(&crc)) => Content::Data {
                    bytes: payload.slice(at(n)),
                    crc,
                },
                _ => Content::Zero,
            };
            (key, content)
        });
        match self.op {
            Op::Write | Op::Zero | Op::Trim => contents.collect(),
            Op::Epoch | Op::Nothing => Vec::new(),
        }
    }
}

/// Whether the blocks of a payload match the crcs at the end of the inline bytes.
pub fn is_whole(inline: &[u8], payload: &[u8]) -> bool {
    let blocks = payload.len() / BLOCK;
    let crcs = inline.len().checked_sub(blocks * 4);
    let crcs = crcs.and_then(|at| inline.get(at..));
    crcs.is_some_and(|crcs| {
        let stored = crcs.chunks(4);
        payload
            .chunks(BLOCK)
            .zip(stored)
            .all(|(block, crc)| crc32c(block).to_le_bytes() == crc)
    })
}

/// The crc of each block of a payload.
pub fn crcs_of(payload: &[u8]) -> Vec<u32> {
    payload.chunks(BLOCK).map(crc32c).collect()
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn command(op: Op, first: u32, blocks: u16) -> Command {
        Command {
            op,
            origin: Origin {
                epoch: Epoch(3),
                attachment: Attachment(4),
                seq: 5,
                lowest_open: 2,
            },
            range: Range {
                tree: Tree(6),
                layer: Layer(7),
                chunk: Chunk(8),
                first: Block(first),
                blocks,
            },
        }
    }

    #[test]
    fn what_is_encoded_is_read() {
        let payload = Bytes::from(vec![5; 3 * BLOCK]);
        let crcs = crcs_of(&payload);
        let write = command(Op::Write, 9, 3);
        let bytes = write.encode(&crcs);
        assert_eq!(
            Command::decode(&bytes, payload.len()).unwrap(),
            (write, crcs.clone())
        );
        let contents = write.contents(&crcs, &payload);
        let blocks: Vec<u32> = contents.iter().map(|(k, _)| k.block.0).collect();
        assert_eq!(blocks, [9, 10, 11]);
        let zero = command(Op::Trim, 4095, 1);
        assert_eq!(
            Command::decode(&zero.encode(&[]), 0).unwrap(),
            (zero, vec![])
        );
        let contents = zero.contents(&[], &Bytes::new());
        assert!(matches!(contents.first(), Some((_, Content::Zero))));
        assert!(command(Op::Epoch, 0, 1).contents(&[], &payload).is_empty());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let crcs = [1, 2, 3];
        let bytes = command(Op::Write, 9, 3).encode(&crcs);
        for (bytes, payload) in [
            (&bytes[..], 2 * BLOCK),
            (&bytes[..bytes.len() - 1], 3 * BLOCK),
            (&bytes[..10], 0),
            (&command(Op::Zero, 4095, 2).encode(&[])[..], 0),
            (&command(Op::Zero, u32::MAX, 2).encode(&[])[..], 0),
            (&command(Op::Zero, 1, 2).encode(&[])[..], BLOCK),
        ] {
            assert!(Command::decode(bytes, payload).unwrap_err().is_corruption());
        }
        let mut other = bytes.to_vec();
        other[0] = 77;
        assert!(Command::decode(&other, 3 * BLOCK).is_err());
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..120), payload in 0_usize..9000) {
            if let Ok((command, crcs)) = Command::decode(&bytes, payload) {
                prop_assert_eq!(command.encode(&crcs).len(), bytes.len());
            }
        }
    }
}
