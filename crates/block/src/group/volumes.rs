//! A group's knowledge of the volumes whose blocks it has: their attachments, and which requests were
//! applied. It is a part of the group's state, the same on every replica at the same entry.
//!
//! **Fencing.** Attaching raises a volume's epoch, by an entry in each of its groups. From there on, requests
//! of older attachments are refused, whatever store they were sent to.
//!
//! **Duplicates.** A client without an answer sends its request again, maybe to another leader. Each attachment
//! numbers its requests, and reports the lowest unanswered number. Requests below it were answered, and those
//! marked in the window were applied: a second copy changes nothing, so it cannot undo a newer write.

use std::collections::{BTreeMap, BTreeSet};

use base::coding::{Decoder, put_u32, put_u64};
use base::{Error, Result};
use bytes::Bytes;

use super::command::{Command, Op, Origin};
use crate::ids::{Attachment, Epoch, Tree};

/// The version of the encoding.
const VERSION: u32 = 1;
/// Width of the window of an attachment's request numbers, from the lowest unanswered one.
pub const WINDOW: u64 = 4096;
/// The most volumes of a group.
pub const VOLUMES_MAX: usize = 256;
/// The most bytes of the encoding: of each volume, 32 bytes and a bit for each request of the window.
pub const ENCODED_MAX: usize = 8 + VOLUMES_MAX * (32 + WINDOW as usize / 8);

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is applied now.
    Apply,
    /// It was applied before: it is answered as if it were applied now.
    Again,
    /// A newer attachment has the volume.
    Fenced,
    /// Its number is outside of the window of open ones: the client is faulty.
    OutOfWindow,
    /// The group has [`VOLUMES_MAX`] volumes already.
    TooMany,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Volume {
    epoch: Epoch,
    attachment: Attachment,
    /// Requests with lower numbers were answered.
    lowest_open: u64,
    /// The applied requests from there on.
    applied: BTreeSet<u64>,
}

impl Volume {
    /// A bitmap of the applied requests, from the lowest open one on, without trailing zero bytes.
    fn applied_bits(&self) -> Vec<u8> {
        let mut bits = Vec::new();
        for seq in &self.applied {
            let nth = (seq - self.lowest_open) as usize;
            bits.resize(nth / 8 + 1, 0);
            if let Some(byte) = bits.last_mut() {
                *byte |= 1 << (nth % 8);
            }
        }
        bits
    }

    fn note_bits(&mut self, bits: &[u8]) {
        let lowest = self.lowest_open;
        for (byte, at) in bits.iter().zip((lowest..).step_by(8)) {
            let set = (0..8).filter(|bit| byte >> bit & 1 == 1);
            self.applied.extend(set.map(|bit| at + bit));
        }
    }
}

/// The volumes of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volumes(BTreeMap<Tree, Volume>);

impl Volumes {
    /// The epoch of a volume; 0: it was never attached.
    pub fn epoch(&self, tree: Tree) -> Epoch {
        self.0.get(&tree).map_or(Epoch(0), |v| v.epoch)
    }

    /// Decides on a command, and notes it as applied if it is. Called for each entry, in order.
    pub fn admit(&mut self, command: &Command) -> Verdict {
        let (tree, origin) = (command.range.tree, &command.origin);
        match command.op {
            Op::Nothing => Verdict::Apply,
            Op::Epoch => self.attach(tree, origin),
            Op::Write | Op::Zero | Op::Trim => self.request(tree, origin),
        }
    }

    fn attach(&mut self, tree: Tree, origin: &Origin) -> Verdict {
        if self.0.len() >= VOLUMES_MAX && !self.0.contains_key(&tree) {
            return Verdict::TooMany;
        }
        let volume = self.0.entry(tree).or_default();
        let same = (volume.epoch, volume.attachment) == (origin.epoch, origin.attachment);
        if same {
            return Verdict::Again;
        }
        if origin.epoch <= volume.epoch {
            return Verdict::Fenced;
        }
        *volume = Volume {
            epoch: origin.epoch,
            attachment: origin.attachment,
            lowest_open: 1,
            applied: BTreeSet::new(),
        };
        Verdict::Apply
    }

    fn request(&mut self, tree: Tree, origin: &Origin) -> Verdict {
        let Some(volume) = self.0.get_mut(&tree) else {
            return Verdict::Fenced;
        };
        if (volume.epoch, volume.attachment) != (origin.epoch, origin.attachment) {
            return Verdict::Fenced;
        }
        let window = volume.lowest_open..volume.lowest_open.saturating_add(WINDOW);
        if origin.seq < window.start || volume.applied.contains(&origin.seq) {
            return Verdict::Again;
        }
        if origin.lowest_open > origin.seq || origin.lowest_open >= window.end {
            return Verdict::OutOfWindow;
        }
        if origin.lowest_open > volume.lowest_open {
            volume.lowest_open = origin.lowest_open;
            volume.applied = volume.applied.split_off(&origin.lowest_open);
        }
        if origin.seq >= volume.lowest_open.saturating_add(WINDOW) {
            return Verdict::OutOfWindow;
        }
        volume.applied.insert(origin.seq);
        Verdict::Apply
    }

    /// The encoding, for a checkpoint.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        put_u32(&mut out, VERSION);
        put_u32(&mut out, self.0.len() as u32);
        for (tree, v) in &self.0 {
            put_u64(&mut out, tree.0);
            put_u32(&mut out, v.epoch.0);
            put_u64(&mut out, v.attachment.0);
            put_u64(&mut out, v.lowest_open);
            let bits = v.applied_bits();
            put_u32(&mut out, bits.len() as u32);
            out.extend_from_slice(&bits);
        }
        out.into()
    }

    /// The inverse of [`Volumes::encode`]. Errors: Corruption; `NotSupported` for another version.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut d = Decoder::new(bytes);
        match d.u32() {
            Some(VERSION) => {}
            Some(other) => {
                return Err(Error::not_supported(format!(
                    "a group's volumes of version {other}: this release knows {VERSION}"
                )));
            }
            None => return Err(Error::corruption("a group's volumes are cut off")),
        }
        Self::read(&mut d).ok_or_else(|| Error::corruption("a group's volumes cannot be read"))
    }

    fn read(d: &mut Decoder<'_>) -> Option<Self> {
        let mut all = BTreeMap::new();
        for _ in 0..d.u32()? {
            let tree = Tree(d.u64()?);
            let mut volume = Volume {
                epoch: Epoch(d.u32()?),
                attachment: Attachment(d.u64()?),
                lowest_open: d.u64()?,
                applied: BTreeSet::new(),
            };
            // The whole window must fit into 64 bits, and no request outside of it can have been applied.
            volume.lowest_open.checked_add(WINDOW)?;
            let bits = d.u32()?;
            if u64::from(bits) > WINDOW.div_ceil(8) {
                return None;
            }
            volume.note_bits(d.bytes(bits as usize)?);
            all.insert(tree, volume);
        }
        d.is_empty().then_some(Self(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::command::Range;

    const TREE: Tree = Tree(7);

    /// The state in a copy from another store may hold any number: additions to the largest ones overflowed.
    #[test]
    fn numbers_that_cannot_be_are_refused() {
        let volumes = |lowest_open: u64, bits: usize| {
            let mut out = Vec::new();
            put_u32(&mut out, VERSION);
            put_u32(&mut out, 1);
            put_u64(&mut out, TREE.0);
            put_u32(&mut out, 1);
            put_u64(&mut out, 1);
            put_u64(&mut out, lowest_open);
            put_u32(&mut out, bits as u32);
            out.resize(out.len() + bits, 0xff);
            Volumes::decode(&out)
        };
        let bits_max = WINDOW as usize / 8;
        assert!(volumes(u64::MAX - WINDOW, bits_max).is_ok());
        for (lowest_open, bits) in [(u64::MAX, 1), (u64::MAX - WINDOW + 1, 9), (1, bits_max + 1)] {
            let e = volumes(lowest_open, bits).unwrap_err();
            assert!(e.is_corruption(), "{lowest_open} {bits}: {e}");
        }
    }

    fn command(op: Op, epoch: u32, seq: u64, lowest_open: u64) -> Command {
        Command {
            op,
            origin: Origin {
                epoch: Epoch(epoch),
                attachment: Attachment(u64::from(epoch) * 100),
                seq,
                lowest_open,
            },
            range: Range {
                tree: TREE,
                ..Range::default()
            },
        }
    }

    fn attach(v: &mut Volumes, epoch: u32) -> Verdict {
        v.admit(&command(Op::Epoch, epoch, 0, 0))
    }

    fn write(v: &mut Volumes, epoch: u32, seq: u64, lowest_open: u64) -> Verdict {
        v.admit(&command(Op::Write, epoch, seq, lowest_open))
    }

    #[test]
    fn a_newer_attachment_fences_the_older() {
        let mut v = Volumes::default();
        assert_eq!(
            write(&mut v, 1, 1, 1),
            Verdict::Fenced,
            "nobody is attached"
        );
        assert_eq!(attach(&mut v, 1), Verdict::Apply);
        assert_eq!(write(&mut v, 1, 1, 1), Verdict::Apply);
        assert_eq!(attach(&mut v, 3), Verdict::Apply);
        assert_eq!(attach(&mut v, 3), Verdict::Again);
        assert_eq!(write(&mut v, 1, 2, 1), Verdict::Fenced);
        assert_eq!(attach(&mut v, 2), Verdict::Fenced);
        assert_eq!(write(&mut v, 4, 1, 1), Verdict::Fenced, "not attached yet");
        assert_eq!(write(&mut v, 3, 1, 1), Verdict::Apply);
        assert_eq!(v.epoch(TREE), Epoch(3));
    }

    /// The case that windows are for: a write is applied and its answer lost, a newer write overwrites it, and
    /// then the client's second copy of the first arrives.
    #[test]
    fn a_second_copy_never_undoes_a_newer_write() {
        let mut v = Volumes::default();
        attach(&mut v, 1);
        assert_eq!(write(&mut v, 1, 1, 1), Verdict::Apply);
        assert_eq!(write(&mut v, 1, 2, 1), Verdict::Apply);
        assert_eq!(write(&mut v, 1, 1, 1), Verdict::Again);
        assert_eq!(write(&mut v, 1, 4, 3), Verdict::Apply);
        assert_eq!(write(&mut v, 1, 2, 1), Verdict::Again, "answered long ago");
        assert_eq!(write(&mut v, 1, 3, 3), Verdict::Apply, "out of order");
        assert_eq!(write(&mut v, 1, 3 + WINDOW, 3), Verdict::OutOfWindow);
        assert_eq!(write(&mut v, 1, 5, 6), Verdict::OutOfWindow);
        let again = Volumes::decode(&v.encode()).unwrap();
        assert_eq!(again, v);
    }

    /// The state of many busy volumes was larger than a batch of the log may be, and the store failed.
    #[test]
    fn the_encoding_is_bounded() {
        let mut v = Volumes::default();
        for n in 0..2 * VOLUMES_MAX as u64 {
            let tree = |op, seq| {
                let mut c = command(op, 1, seq, 1);
                c.range.tree = Tree(n);
                c
            };
            let expected = if n < VOLUMES_MAX as u64 {
                Verdict::Apply
            } else {
                Verdict::TooMany
            };
            assert_eq!(v.admit(&tree(Op::Epoch, 0)), expected);
            // Only request 1 is unanswered.
            for seq in 2..=WINDOW {
                v.admit(&tree(Op::Write, seq));
            }
        }
        let bytes = v.encode();
        assert!(bytes.len() <= ENCODED_MAX, "{}", bytes.len());
        assert_eq!(Volumes::decode(&bytes).unwrap(), v);
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let mut v = Volumes::default();
        attach(&mut v, 1);
        write(&mut v, 1, 3, 2);
        let bytes = v.encode();
        for len in 0..bytes.len() {
            assert!(Volumes::decode(bytes.get(..len).unwrap()).is_err(), "{len}");
        }
        let mut newer = bytes.to_vec();
        newer.splice(..4, 2_u32.to_le_bytes());
        let e = Volumes::decode(&newer).unwrap_err();
        assert_eq!(e.kind(), base::ErrorKind::NotSupported);
        let mut many = bytes.to_vec();
        many.splice(4..8, u32::MAX.to_le_bytes());
        assert!(Volumes::decode(&many).unwrap_err().is_corruption());
    }
}
