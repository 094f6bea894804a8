//! Reading a log file after a crash.
//!
//! A file is read batch by batch, from its head on. The log ends at the first place without a whole batch,
//! if a crash can explain that: a batch that was on its way is torn or missing, and later ones that were on
//! their way with it may be there. Everything acknowledged is covered by a *fence*: each batch records up
//! to where the file was durable when the batch was made. If some fence lies beyond the place, the file is
//! damaged.

use base::{Error, Result};
use bytes::Bytes;
use io::{AlignedBuf, File, buffer::PAGE};

use super::batch::{self, HEAD, Item, Place, Sizes};
use super::file_head::{self, FileHead};
use crate::sealed;

/// The hint for a file whose bytes are not what was written.
pub(super) const DAMAGED: &str =
    "a file of the log is damaged: bring its own files back, or leave the store out";
/// Bytes per read.
const PIECE: usize = 1 << 20;

/// A whole batch that was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its offset in the file.
    pub offset: u64,
    /// Its identity, and its fence.
    pub place: Place,
    /// Its items.
    pub items: Vec<Item>,
}

/// Reads a file's batches in order.
#[derive(Debug)]
pub struct Scan<'a> {
    file: &'a dyn File,
    head: FileHead,
    len: u64,
    /// Offset of the next batch, if there is one.
    at: u64,
    sequence: u64,
    /// The highest fence so far.
    durable: u64,
}

impl<'a> Scan<'a> {
    /// Begins behind the head. Errors: those of the file, or those of [`FileHead::decode`], with the file's
    /// name.
    pub fn begin(file: &'a dyn File) -> Result<Self> {
        let head = read(file, 0, file_head::LEN)?;
        let head = FileHead::decode(&head).map_err(|e| e.or_file(file.path()))?;
        Ok(Self {
            file,
            head,
            len: file.len()?,
            at: file_head::LEN as u64,
            sequence: 0,
            durable: 0,
        })
    }

    /// Whether the first batch of a file with `number` follows the head, which may be unreadable.
    pub fn has_batch_of(file: &dyn File, number: u64, unit: u32) -> Result<bool> {
        let unit = unit as usize;
        let first = read(file, file_head::LEN as u64, PAGE)?;
        let Some(sizes) = batch::sizes(&first, unit) else {
            return Ok(false);
        };
        let head = read(file, file_head::LEN as u64, sizes.head_bytes)?;
        Ok(batch::place(&head, sizes).is_some_and(|p| p.file_number == number))
    }

    /// The file's head.
    pub fn head(&self) -> FileHead {
        self.head
    }

    /// End of the last batch that was found.
    pub fn end(&self) -> u64 {
        self.at
    }

    /// The highest fence so far: the file was durable up to there.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The next batch; `None` at the end of the log. Errors: Corruption, if a fence lies beyond that.
    pub fn next_batch(&mut self) -> Result<Option<Found>> {
        let Some((found, bytes)) = self.whole_batch()? else {
            self.check_end()?;
            return Ok(None);
        };
        self.durable = self.durable.max(found.place.durable);
        self.sequence = found.place.sequence;
        self.at += bytes;
        Ok(Some(found))
    }

    fn unit(&self) -> usize {
        self.head.unit as usize
    }

    /// The batch at this place and its length, if it is whole and the next of this file.
    fn whole_batch(&self) -> Result<Option<(Found, u64)>> {
        let Some((sizes, place)) = self.head_at(self.at)? else {
            return Ok(None);
        };
        if place.sequence != self.sequence + 1 || self.at + sizes.batch_bytes > self.len {
            return Ok(None);
        }
        let all = Bytes::from(read(self.file, self.at, sizes.batch_bytes as usize)?);
        let Some(items) = batch::items(&all, sizes, self.unit()) else {
            let what = "a batch with a right checksum cannot be read";
            return Err(self.damage(what).hint(sealed::NEWER));
        };
        if all.len() as u64 != sizes.batch_bytes || !items.iter().all(Item::payload_is_whole) {
            return Ok(None);
        }
        let found = Found {
            offset: self.at,
            place,
            items,
        };
        Ok(Some((found, sizes.batch_bytes)))
    }

    /// The sizes and the identity of the batch at `offset`, if a batch of this file with a valid head
    /// begins there.
    fn head_at(&self, offset: u64) -> Result<Option<(Sizes, Place)>> {
        let first = read(self.file, offset, PAGE.max(self.unit()))?;
        let Some(sizes) = batch::sizes(&first, self.unit()) else {
            return Ok(None);
        };
        let rest;
        let head = if sizes.head_bytes <= first.len() {
            &first
        } else {
            rest = read(
                self.file,
                offset,
                sizes.head_bytes.next_multiple_of(self.unit()),
            )?;
            &rest
        };
        Ok(batch::place(head, sizes)
            .filter(|p| p.file_number == self.head.number && p.nonce == self.head.nonce)
            .map(|p| (sizes, p)))
    }

    /// Errors: a fence lies beyond this place. It may be in any batch that begins at a multiple of the unit
    /// behind it.
    fn check_end(&self) -> Result<()> {
        let unit = self.unit();
        let mut fence = self.durable;
        let mut at = self.at;
        while at < self.len && fence <= self.at {
            let piece = read(self.file, at, PIECE)?;
            for (i, start) in piece.chunks(unit).enumerate() {
                // Checked before anything is read, because many payloads may look like heads.
                let head = start.get(..HEAD).unwrap_or_default();
                if batch::sizes(head, unit).is_none()
                    || batch::unchecked_file(head) != Some((self.head.number, self.head.nonce))
                {
                    continue;
                }
                if let Some((_, place)) = self.head_at(at + (i * unit) as u64)? {
                    fence = fence.max(place.durable);
                }
            }
            at += PIECE as u64;
        }
        if fence > self.at {
            let what = format!("the log was durable up to {fence}, and is damaged before");
            return Err(self.damage(&what));
        }
        Ok(())
    }

    fn damage(&self, what: &str) -> Error {
        Error::corruption(what)
            .file(self.file.path())
            .offset(self.at)
            .hint(DAMAGED)
    }
}

/// Reads `len` bytes at `offset`, fewer if the file ends before.
pub(super) fn read(file: &dyn File, offset: u64, len: usize) -> Result<AlignedBuf> {
    let mut buf = AlignedBuf::zeroed(len.next_multiple_of(PAGE), PAGE)?;
    let n = file.read_at(&mut buf, offset)?;
    buf.resize(n.min(len))?;
    Ok(buf)
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use std::sync::Arc;

    use base::checksum::crc32c;
    use base::rng::Rng;
    use io::posix::Posix;
    use io::{FileSystem, OpenHow, WriteSync};
    use log::Batches;

    use super::*;
    use crate::ids::{BLOCK, Group, Index, Term, Uuid};
    use crate::raftlog::batch::Kind;

    const UNIT: u32 = 512;

    struct Log {
        _dir: tempfile::TempDir,
        file: Arc<dyn File>,
        head: FileHead,
        /// Offset of each batch, and the end.
        ends: Vec<u64>,
        durable: u64,
    }

    fn entry(rng: &mut Rng, index: u64) -> Item {
        let blocks = rng.below(3) as usize;
        let payload: Vec<u8> = (0..blocks * BLOCK).map(|_| rng.next_u64() as u8).collect();
        let mut inline = vec![9; 48];
        for block in payload.chunks(BLOCK) {
            inline.extend(crc32c(block).to_le_bytes());
        }
        Item {
            kind: Kind::Entry,
            flags: 0,
            group: Group(3),
            index: Index(index),
            term: Term(1),
            inline: inline.into(),
            payload: payload.into(),
        }
    }

    impl Log {
        /// Writes batches. Up to number `synced`, each is made when the one before it is durable.
        fn new(batches: u64, synced: u64) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("000007.log");
            let file = Posix.open(&path, OpenHow::CREATE_NEW).unwrap();
            file.zero(0, 1 << 20).unwrap();
            let head = FileHead {
                unit: UNIT,
                store: Uuid([1; 16]),
                number: 7,
                predecessor: 0,
                predecessor_end: 0,
                nonce: 77,
            };
            io::write_all_at(&*file, &head.encode(), 0, WriteSync::None).unwrap();
            let from = file_head::LEN as u64;
            let mut log = Batches::at(Arc::clone(&file), from, UNIT, 1).unwrap();
            let mut rng = Rng::new(batches);
            let (mut ends, mut durable) = (vec![from], from);
            for sequence in 1..=batches {
                let items: Vec<Item> = (0..=rng.below(2)).map(|i| entry(&mut rng, i)).collect();
                if sequence <= synced {
                    durable = log.durable().0;
                }
                let place = Place {
                    file_number: 7,
                    nonce: 77,
                    sequence,
                    durable,
                };
                let payloads = items.iter().map(|i| i.payload.clone());
                let payloads: Vec<_> = payloads.filter(|p| !p.is_empty()).collect();
                let frame = |_, out: &mut AlignedBuf| batch::frame(place, &items, 512, out);
                log.append(frame, payloads).unwrap();
                ends.push(log.sync().unwrap().0);
            }
            Self {
                _dir: dir,
                file,
                head,
                ends,
                durable,
            }
        }

        /// The number of batches and the end, or the error.
        fn scan(&self) -> Result<(u64, u64)> {
            let mut scan = Scan::begin(&*self.file)?;
            assert_eq!(scan.head(), self.head);
            let mut count = 0;
            while let Some(found) = scan.next_batch()? {
                count += 1;
                assert_eq!(found.place.sequence, count);
                assert_eq!(found.offset, self.ends[count as usize - 1]);
            }
            Ok((count, scan.end()))
        }

        fn with_bytes<T>(&self, offset: u64, bytes: &[u8], f: impl FnOnce() -> T) -> T {
            let mut old = vec![0; bytes.len()];
            io::read_exact_at(&*self.file, &mut old, offset).unwrap();
            io::write_all_at(&*self.file, bytes, offset, WriteSync::None).unwrap();
            let out = f();
            io::write_all_at(&*self.file, &old, offset, WriteSync::None).unwrap();
            out
        }
    }

    #[test]
    fn all_batches_of_a_whole_file_are_found() {
        let log = Log::new(40, 40);
        assert_eq!(log.scan().unwrap(), (40, log.ends[40]));
        assert_eq!(Log::new(0, 0).scan().unwrap(), (0, file_head::LEN as u64));
    }

    /// One unit of a batch becomes zero: in a durable batch that is damage, in a later one the end.
    #[test]
    fn a_hole_is_damage_below_a_fence_and_the_end_above() {
        let log = Log::new(20, 12);
        let unit = u64::from(UNIT);
        for at in (log.ends[0]..log.ends[20]).step_by(UNIT as usize) {
            let mut old = vec![0; UNIT as usize];
            io::read_exact_at(&*log.file, &mut old, at).unwrap();
            if old.iter().all(|&b| b == 0) {
                continue;
            }
            let scanned = log.with_bytes(at, &[0; UNIT as usize], || log.scan());
            let batch = log.ends.partition_point(|&end| end <= at) as u64 - 1;
            match scanned {
                Ok(found) => {
                    assert!(at >= log.durable, "{at}");
                    assert_eq!(found, (batch, log.ends[batch as usize]), "{}", at / unit);
                }
                Err(e) => {
                    assert!(at < log.durable, "{at}: {e}");
                    assert!(e.is_corruption() && e.to_string().contains("000007.log"));
                }
            }
        }
    }

    /// A payload contains bytes that look like a later batch with a fence, for example because the
    /// application keeps a log in its volume.
    #[test]
    fn a_payload_does_not_pass_for_a_fence() {
        let log = Log::new(3, 0);
        let end = log.ends[3];
        for (file_number, nonce, counts) in [(7, 77, true), (7, 78, false), (8, 77, false)] {
            let place = Place {
                file_number,
                nonce,
                sequence: 9,
                durable: end + 4096,
            };
            let mut out = AlignedBuf::new(512);
            batch::frame(place, &[], 512, &mut out).unwrap();
            let scanned = log.with_bytes(end + 4096, &out, || log.scan());
            assert_eq!(scanned.is_err(), counts, "{file_number} {nonce}");
        }
    }

    /// A batch with an earlier sequence number, as a misdirected write leaves it, ends the log.
    #[test]
    fn a_batch_that_is_not_the_next_ends_the_log() {
        let log = Log::new(8, 0);
        let (from, to) = (log.ends[2], log.ends[3]);
        let mut bytes = vec![0; (to - from) as usize];
        io::read_exact_at(&*log.file, &mut bytes, from).unwrap();
        let found = log.with_bytes(log.ends[8], &bytes, || log.scan());
        assert_eq!(found.unwrap(), (8, log.ends[8]));
    }

    #[test]
    fn a_file_without_a_head_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("000009.log");
        let file = Posix.open(&path, OpenHow::CREATE_NEW).unwrap();
        let e = Scan::begin(&*file).unwrap_err().to_string();
        assert!(e.contains("000009.log") && e.contains("shorter"), "{e}");
    }
}
