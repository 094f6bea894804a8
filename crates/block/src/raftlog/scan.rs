//! What is left of a log file after a crash.
//!
//! A file is read batch by batch from its head on. Where none follows that is whole, the log ends, if a
//! crash can have made that: a batch that was on its way is torn or missing, and so may be later ones be
//! there that were on their way with it. Whatever was acknowledged is covered by a *fence*: each batch says
//! up to where the file was durable when it was made. A fence beyond a bad place makes it damage.

use base::{Error, Result};
use bytes::Bytes;
use io::{AlignedBuf, File, buffer::PAGE};

use super::batch::{self, HEAD, Item, Place, Sizes};
use super::file_head::{self, FileHead};
use crate::sealed;

/// What to do about a file whose bytes are not what was written.
pub(super) const DAMAGED: &str =
    "a file of the log is damaged: bring its own files back, or leave the store out";
/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// A whole batch.
#[derive(Clone, Debug)]
pub struct Found {
    /// Where it lies in the file.
    pub offset: u64,
    /// What it says of itself.
    pub place: Place,
    /// What it holds.
    pub items: Vec<Item>,
}

/// Reads a file's batches in order.
#[derive(Debug)]
pub struct Scan<'a> {
    file: &'a dyn File,
    head: FileHead,
    len: u64,
    /// Where the next batch would be.
    at: u64,
    sequence: u64,
    /// The highest fence of the batches so far.
    durable: u64,
}

impl<'a> Scan<'a> {
    /// Begins behind the head. Errors: the file's, or those of [`FileHead::decode`], naming the file.
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

    /// Whether behind the file's head, which cannot be read, lies the first batch of a file with `number`.
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

    /// Where the last batch ends that was found.
    pub fn end(&self) -> u64 {
        self.at
    }

    /// Up to where the batches so far say that the file was durable.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The next batch; `None` where the log ends. Errors: Corruption, where it was durable beyond that.
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

    /// The batch here and its bytes, if it is whole and this file's next.
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

    /// The sizes and the place of the batch at `offset`, if one of this file begins there, whose head is
    /// whole.
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

    /// Errors: something says that the file was durable beyond this place. Batches may begin at any
    /// multiple of the unit behind it.
    fn check_end(&self) -> Result<()> {
        let unit = self.unit();
        let mut fence = self.durable;
        let mut at = self.at;
        while at < self.len && fence <= self.at {
            let piece = read(self.file, at, PIECE)?;
            for (i, start) in piece.chunks(unit).enumerate() {
                // Before anything is read: payloads may look like heads, and be many.
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

/// What of `len` bytes at `offset` the file has.
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
        /// Where each batch begins, and the end.
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
        /// Batches, each made when the one before was durable, as long as `synced` says so.
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

        /// How many batches there are, or the error.
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

    /// A unit of any batch is zero: of one that was durable, damage; of a later one, the end.
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

    /// A payload holds what looks like a later batch with a fence, as that of another file: the application
    /// keeps logs in its volume.
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

    /// A batch of an earlier sequence, as a write that went astray leaves one, is not gone on with.
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
