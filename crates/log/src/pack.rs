//! Builds the records of a compressed log: some bytes are compressed, others are stored unchanged.
//!
//! ```text
//!   stored            compressed          stored           stored
//!   header and note   body of the batch   sync fence       no-ops
//!   (first record)                        (synced groups)  (boundary rule)
//! ```
//!
//! Each column is a zstd frame. The frames together are the record's payload; their contents, one
//! after the other, are the record. Notes and fences, which recovery looks for without reading the log
//! record by record, are stored contiguously: if the framing would put a fragment's header inside one
//! of them, no-ops are stored before it.
#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use base::{Error, Result};
use io::AlignedBuf;

use crate::deflate::{Deflate, STORED_MAX, STORED_OVERHEAD};
use crate::format::Framer;

/// Builds one record after the other.
#[derive(Debug)]
pub(crate) struct Packer {
    deflate: Deflate,
    payload: Vec<u8>,
    raw: Vec<u8>,
}

impl Packer {
    /// Errors: no memory.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            deflate: Deflate::new()?,
            payload: Vec::new(),
            raw: Vec::new(),
        })
    }

    /// Appends the record that `parts` make up together to `out`, whose next byte will lie at
    /// `offset` of the file; at the start of the file, the set-compression record goes first. Only the
    /// parts in `packed` are compressed. An error leaves `out` as it was.
    pub(crate) fn append(
        &mut self,
        framer: Framer,
        parts: &[&[u8]],
        packed: &Range<usize>,
        offset: u64,
        out: &mut AlignedBuf,
    ) -> Result<()> {
        let cut = parts
            .split_at_checked(packed.end)
            .and_then(|(until, behind)| Some((until.split_at_checked(packed.start)?, behind)));
        let Some(((before, body), behind)) = cut else {
            return Err(Error::broken(format!(
                "parts {packed:?} of {} were to be compressed",
                parts.len()
            )));
        };
        self.payload.clear();
        self.store(framer, before)?;
        if body.iter().any(|p| !p.is_empty()) || before.is_empty() {
            self.deflate.compress(body, &mut self.payload)?;
        }
        self.store(framer, behind)?;
        self.frame(framer, offset, out)
    }

    /// Like [`Packer::append`], for one part that is stored uncompressed, in a frame that is
    /// [`STORED_LONG_OVERHEAD`](crate::deflate::STORED_LONG_OVERHEAD) bytes longer than the part.
    pub(crate) fn append_stored(
        &mut self,
        framer: Framer,
        content: &[u8],
        offset: u64,
        out: &mut AlignedBuf,
    ) -> Result<()> {
        self.payload.clear();
        Deflate::stored_long(content, &mut self.payload);
        self.frame(framer, offset, out)
    }

    /// Stores `parts` in one frame that does not cross a multiple of [`Framer::piece`] of the payload,
    /// where a fragment ends inside a block.
    fn store(&mut self, framer: Framer, parts: &[&[u8]]) -> Result<()> {
        self.raw.clear();
        for part in parts {
            self.raw.extend_from_slice(part);
        }
        if self.raw.is_empty() {
            return Ok(());
        }
        let at = self.payload.len();
        let to_cut = at.next_multiple_of(framer.piece()) - at;
        if let Some(byte) = framer.filler
            && (1..self.raw.len() + STORED_OVERHEAD).contains(&to_cut)
            && self.raw.len() <= STORED_MAX
        {
            self.fill(byte, to_cut)?;
        }
        if self.raw.len() <= STORED_MAX {
            Deflate::stored(&self.raw, &mut self.payload);
        } else {
            Deflate::stored_long(&self.raw, &mut self.payload);
        }
        Ok(())
    }

    /// Lengthens the payload by a stored frame of `bytes` in total, or by the shortest possible frame.
    fn fill(&mut self, byte: u8, bytes: usize) -> Result<()> {
        let noops = [byte; STORED_MAX];
        let n = bytes.saturating_sub(STORED_OVERHEAD); // the shortest frame has no content
        let noops = noops.get(..n).ok_or_else(|| {
            Error::broken(format!("a record was to be lengthened by {bytes} bytes"))
        })?;
        Deflate::stored(noops, &mut self.payload);
        Ok(())
    }

    fn frame(&mut self, framer: Framer, offset: u64, out: &mut AlignedBuf) -> Result<()> {
        let before = out.len();
        let mut at = offset;
        if offset == 0 {
            let start = Deflate::start_record();
            out.extend_from_slice(&start)?;
            at += start.len() as u64;
        }
        if let Some(byte) = framer.filler {
            let spill = framer.spill_compressed(self.payload.len(), at, STORED_OVERHEAD);
            if spill > 0 {
                self.fill(byte, spill)?;
            }
        }
        let framed = framer.frame_compressed(&self.payload, at, out);
        if framed.is_err() {
            out.resize(before)?;
        }
        framed
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use std::sync::Arc;

    use base::rng::Rng;
    use io::posix::Posix;
    use io::{File, FileSystem, OpenHow};

    use crate::fence::{self, Fence, Trust};
    use crate::format::BLOCK;
    use crate::options::{LogOptions, RecoveryMode, TailPolicy, WalSync};
    use crate::{PhysicalRecords, Reader, ReaderOptions, Writer};

    const NOOP: u8 = 0x0d;

    fn file() -> (tempfile::TempDir, Arc<dyn File>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("000004.log");
        let file = Posix.open(&path, OpenHow::CREATE_NEW).unwrap();
        (dir, file)
    }

    fn options(recyclable: bool) -> LogOptions {
        LogOptions {
            log_number: 4,
            recyclable,
            compressed: true,
            filler: Some(NOOP),
            ..LogOptions::default()
        }
    }

    fn fence(durable: u64) -> Vec<u8> {
        let fence = Fence {
            log_number: 4,
            durable,
            previous_log: 0,
            previous_end: 0,
            nonce: 5,
        };
        [&[3, fence::LEN as u8][..], &fence.encode()].concat()
    }

    /// What the file holds.
    fn records(file: &Arc<dyn File>) -> Vec<Vec<u8>> {
        let options = ReaderOptions {
            mode: RecoveryMode::AbsoluteConsistency,
            fences: true,
        };
        let mut reader = Reader::new(Arc::clone(file), 4, options);
        let (mut out, mut record) = (Vec::new(), Vec::new());
        while reader.read(&mut record).unwrap() {
            out.push(record.clone());
        }
        out
    }

    fn without_noops(record: &[u8]) -> &[u8] {
        let end = record.iter().rposition(|&b| b != NOOP).map_or(0, |i| i + 1);
        &record[..end]
    }

    /// Bytes that do not compress much, without no-ops.
    fn noise(rng: &mut Rng, len: usize) -> Vec<u8> {
        (0..len).map(|_| rng.next_u64() as u8 | 0x10).collect()
    }

    /// Sizes such that fences, ends and fillers lie at, before and behind every boundary.
    #[test]
    fn fences_lie_in_one_piece_and_no_record_begins_at_a_block() {
        let mut rng = Rng::new(7);
        for recyclable in [false, true] {
            let (_dir, file) = file();
            let mut writer = Writer::new(Arc::clone(&file), options(recyclable));
            let mut expected: Vec<Vec<u8>> = Vec::new();
            for i in 0..600_usize {
                // The frame's own bytes included, about a multiple of a block or of a piece.
                let full = [BLOCK, 2 * BLOCK - 22][i % 2];
                let to_end = full - writer.size() as usize % BLOCK;
                let len = to_end.saturating_sub(i / 4);
                let body = [&[2][..], &noise(&mut rng, len), &[1]].concat();
                let mark = fence(writer.size());
                let range = writer.append_around(&[&body, &mark], 0..1).unwrap();
                let start = range.start.0;
                let begins = start.next_multiple_of(BLOCK as u64) - start;
                assert!(start == 0 || begins >= 11, "record {i} at {start}");
                assert!(start == 0 || !start.is_multiple_of(BLOCK as u64));
                writer.submit().unwrap();
                let found = fence::strongest(&file, 4, range.start.0, Trust::Nonce(5));
                let found = found.unwrap().unwrap();
                assert_eq!(found.durable, start, "record {i} of {len}");
                expected.push(body);
            }
            let read = records(&file);
            assert_eq!(read.len(), expected.len());
            for (read, body) in read.iter().zip(&expected) {
                // No-ops may lie before the fence too.
                let (head, rest) = read.split_at(body.len());
                assert_eq!(head, body);
                let at = rest.iter().position(|&b| b != NOOP).unwrap();
                let (mark, filler) = rest[at..].split_at(2 + fence::LEN);
                assert!(Fence::decode(&mark[2..]).is_some());
                assert!(filler.iter().all(|&b| b == NOOP));
            }
        }
    }

    #[test]
    fn a_compressed_log_is_padded_to_whole_units() {
        for recyclable in [false, true] {
            let (_dir, file) = file();
            let options = LogOptions {
                direct_unit: Some(4096),
                sync: WalSync::Dsync,
                tail: TailPolicy::Pad { payload_min: 12 },
                ..options(recyclable)
            };
            let mut writer = Writer::new(Arc::clone(&file), options);
            let mut rng = Rng::new(3);
            let mut bodies = Vec::new();
            for _ in 0..300 {
                let len = rng.below(6000) as usize;
                let body = [&[2][..], &noise(&mut rng, len)].concat();
                writer.append(&body).unwrap();
                let pad = writer.padding();
                if pad > 0 {
                    writer.append_padding(&vec![NOOP; pad]).unwrap();
                }
                assert!(writer.size().is_multiple_of(4096), "{}", writer.size());
                writer.sync().unwrap();
                bodies.push(body);
            }
            let read: Vec<Vec<u8>> = records(&file)
                .iter()
                .map(|r| without_noops(r).to_vec())
                .filter(|r| !r.is_empty())
                .collect();
            assert!(read == bodies);
        }
    }

    #[test]
    fn what_a_failed_log_gives_back_is_decompressed() {
        for recyclable in [false, true] {
            let (dir, file) = file();
            let mut writer = Writer::new(
                Arc::clone(&file),
                LogOptions {
                    sync: WalSync::Dsync,
                    direct_unit: Some(512),
                    ..options(recyclable)
                },
            );
            let big = noise(&mut Rng::new(1), 100_000);
            writer.append(b"one").unwrap();
            writer.append(&big).unwrap();
            let flight = writer.begin(true).unwrap().unwrap();
            writer.append(b"three").unwrap();
            let failed = Err(base::Error::aborted("planted"));
            writer.landed(flight, failed).unwrap_err();
            let back = writer.unacknowledged().unwrap();
            let trimmed: Vec<&[u8]> = back.iter().map(|r| without_noops(r)).collect();
            assert_eq!(trimmed, [&b"one"[..], &big[..], b"three"]);
            drop(dir);
        }
    }

    #[test]
    fn a_compressed_log_begins_with_what_says_so_and_goes_on() {
        let (_dir, file) = file();
        let mut writer = Writer::new(Arc::clone(&file), options(true));
        assert_eq!(writer.size(), 0, "nothing before the first record");
        writer.append(b"one").unwrap();
        writer.cut_back(crate::Lsn(0)).unwrap();
        writer.append(b"one").unwrap();
        let end = writer.sync().unwrap().0;
        let mut writer = Writer::resume(Arc::clone(&file), end, options(true)).unwrap();
        writer.append(b"two").unwrap();
        writer.sync().unwrap();
        assert_eq!(records(&file), [b"one", b"two"]);
        let kinds: Vec<u8> = PhysicalRecords::new(file, 4)
            .map(|r| r.unwrap().kind.0)
            .collect();
        assert_eq!(kinds, [9, 5, 5]);
    }
}
