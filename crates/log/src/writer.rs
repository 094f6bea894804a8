//! Appends RocksDB's records to a log: the framing of WAL and MANIFEST.

use std::ops::Range;
use std::sync::Arc;

use base::{Error, Result};
use io::{AlignedBuf, File, SyncKind, WriteSync};

use crate::appender::{Appender, Framing};
use crate::deflate::STORED_LONG_OVERHEAD;
use crate::format::{BLOCK, Framer};
use crate::inflate::Inflate;
use crate::options::{LogOptions, TailPolicy};
use crate::pack::Packer;
use crate::sync::Lsn;
use crate::tail::{Chunk, Content, Tail};

/// Appends records to a WAL or a MANIFEST.
pub type Writer = Appender<Rocks>;

/// RocksDB's framing: see [`format`](mod@crate::format).
#[derive(Debug)]
pub struct Rocks {
    framer: Framer,
    /// See [`LogOptions::compressed`].
    compressed: bool,
    /// Compresses records; created for the first one.
    packer: Option<Packer>,
    /// See [`LogOptions::sync_unit`].
    sync_unit: Option<u32>,
}

impl Rocks {
    fn new(options: &LogOptions) -> Self {
        Self {
            framer: Framer {
                log_number: options.recyclable.then_some(options.log_number as u32),
                filler: options.filler,
                sector: options.head_last,
            },
            compressed: options.compressed,
            packer: None,
            sync_unit: options.sync_unit,
        }
    }

    /// Appends one record to `out`, whose next byte will lie at `start` of the file.
    fn frame(
        &mut self,
        parts: &[&[u8]],
        packed: &Range<usize>,
        start: u64,
        out: &mut AlignedBuf,
    ) -> Result<()> {
        if self.compressed {
            let framer = self.framer;
            self.packer()?.append(framer, parts, packed, start, out)
        } else {
            self.framer.frame(parts, start, out)
        }
    }

    /// Like [`Rocks::frame`], for a record that is stored uncompressed in a compressed log.
    fn frame_stored(&mut self, record: &[u8], start: u64, out: &mut AlignedBuf) -> Result<()> {
        let framer = self.framer;
        self.packer()?.append_stored(framer, record, start, out)
    }

    fn packer(&mut self) -> Result<&mut Packer> {
        let packer = match self.packer.take() {
            Some(packer) => packer,
            None => Packer::new()?,
        };
        Ok(self.packer.insert(packer))
    }
}

impl Framing for Rocks {
    type Record = Vec<u8>;

    fn unframe(&self, content: Content<'_>, out: &mut Vec<Vec<u8>>) -> Option<()> {
        let from = out.len();
        self.framer.unframe(content.offset, content.framed, out)?;
        if self.compressed {
            let mut inflate = Inflate::new().ok()?;
            for record in out.get_mut(from..)? {
                *record = inflate.all(record).ok()?;
            }
        }
        Some(())
    }

    /// With [`LogOptions::head_last`], writes in several steps.
    fn write(&self, chunk: &Chunk, file: &dyn File) -> Result<()> {
        let Some(sector) = self.framer.sector.map(u64::from) else {
            return chunk.write(file, WriteSync::None);
        };
        let from = chunk.fresh_from();
        let room = BLOCK as u64 - from % BLOCK as u64;
        let head = if room < self.framer.header_len() as u64 {
            from + room // behind the zeros at the end of a block
        } else {
            from
        };
        let behind = (head + 1).next_multiple_of(sector).min(chunk.end());
        if behind < chunk.end() {
            chunk.write_between(file, behind, u64::MAX)?;
            file.sync(SyncKind::Data)?;
        }
        // An error or a short write must not leave a header in the first sector without its payload. The
        // header of a very short record may extend beyond the sector.
        let payload = (head + self.framer.header_len() as u64).min(behind);
        chunk.write_between(file, payload, behind)?;
        chunk.write_between(file, from, payload)
    }
}

impl Writer {
    /// A log from the start of `file`. The file's content is overwritten as the log grows, and never
    /// truncated: the file must be empty, zero-filled, or, with recyclable records, an old log.
    ///
    /// # Panics
    /// If [`LogOptions::direct_unit`] is not a power of two.
    pub fn new(file: Arc<dyn File>, options: LogOptions) -> Self {
        let unit = options.direct_unit.unwrap_or(1);
        assert!(unit.is_power_of_two(), "direct_unit {unit}");
        let mut tail = Tail::empty(unit);
        // If the length is not known, the file may hold old records.
        if options.recyclable && !file.len().is_ok_and(|len| len == 0) {
            tail = tail.over_old_records();
        }
        Self::with(file, Rocks::new(&options), tail, 0, options.into())
    }

    /// Continues a log that ends at `offset`, as the reader's [`End`](crate::End) says. The bytes
    /// before `offset` count as durable: if they may not be, the caller must sync the file first. The
    /// caller also truncates or zeroes the bytes behind it. [`LogOptions::recyclable`] must match the
    /// records in the file.
    pub fn resume(file: Arc<dyn File>, offset: u64, options: LogOptions) -> Result<Self> {
        let len = file.len()?;
        if offset > len {
            return Err(base::Error::invalid_argument(format!(
                "a log cannot go on at offset {offset}: the file has {len} bytes"
            ))
            .file(file.path()));
        }
        let tail = Tail::at(offset, options.direct_unit.unwrap_or(1), &*file)?;
        let framing = Rocks::new(&options);
        Ok(Self::with(file, framing, tail, offset, options.into()))
    }

    /// Frames one record into the buffer in memory and returns the part of the log that it takes up.
    /// Nothing is written yet.
    pub fn append(&mut self, record: &[u8]) -> Result<Range<Lsn>> {
        self.append_parts(&[record])
    }

    /// Like [`Writer::append`], for a record that consists of several parts.
    pub fn append_parts(&mut self, parts: &[&[u8]]) -> Result<Range<Lsn>> {
        self.append_around(parts, 0..parts.len())
    }

    /// Like [`Writer::append_parts`], for a record of which only the parts in `packed` may be compressed.
    /// The others are stored unchanged, so that they can be found by their bytes.
    pub fn append_around(&mut self, parts: &[&[u8]], packed: Range<usize>) -> Result<Range<Lsn>> {
        self.marks.check()?;
        let start = self.tail.end();
        self.framing
            .frame(parts, &packed, start, self.tail.buf())
            .map_err(|e| {
                let e = e.or_file(self.file().path());
                // Part of a record remains in the buffer: nothing may be appended behind it.
                let half = self.tail.end() != start;
                if half { self.marks.poison(e) } else { e }
            })?;
        let end = self.tail.end();
        self.marks.set_appended(end);
        if base::INVARIANTS {
            self.check_appended(parts, &packed, start)
                .map_err(|e| self.end_with(e))?;
        }
        Ok(Lsn(start)..Lsn(end))
    }

    /// Errors: the bytes from `start` on are not one whole record of `parts` with correct checksums.
    fn check_appended(&self, parts: &[&[u8]], packed: &Range<usize>, start: u64) -> Result<()> {
        let not = |why| Error::broken(format!("what was appended {why}")).offset(start);
        let pending = self.tail.pending().ok_or_else(|| not("is gone"))?;
        let framed = start
            .checked_sub(pending.offset)
            .and_then(|at| pending.framed.get(at as usize..))
            .ok_or_else(|| not("is written already"))?;
        let mut records = Vec::new();
        self.framing
            .framer
            .unframe(start, framed, &mut records)
            .ok_or_else(|| not("is no whole record"))?;
        let [record] = &mut records[..] else {
            return Err(not("is not one record"));
        };
        if self.framing.compressed {
            *record = Inflate::new()
                .and_then(|mut i| i.all(record))
                .map_err(not)?;
        }
        // A compressed record may have no-ops between the compressed parts and the stored parts behind.
        let cut = if self.framing.compressed {
            packed.end
        } else {
            parts.len()
        };
        let (content, behind) = parts
            .split_at_checked(cut)
            .ok_or_else(|| not("has no such parts"))?;
        let rest = record
            .strip_prefix(&content.concat()[..])
            .ok_or_else(|| not("has other content"))?;
        let noops = rest
            .iter()
            .take_while(|&&b| Some(b) == self.framing.framer.filler);
        let (noops, behind) = (noops.count(), behind.concat());
        let found = [0, noops]
            .iter()
            .any(|&n| rest.get(n..).is_some_and(|r| r.starts_with(&behind)));
        if !found {
            return Err(not("has another end"));
        }
        Ok(())
    }

    /// Appends a padding record, whose payload has the length that [`Writer::padding`] returned.
    pub fn append_padding(&mut self, record: &[u8]) -> Result<()> {
        if !self.framing.compressed {
            self.append(record)?;
            return Ok(());
        }
        self.marks.check()?;
        let start = self.tail.end();
        self.framing.frame_stored(record, start, self.tail.buf())?;
        self.marks.set_appended(self.tail.end());
        Ok(())
    }

    /// With [`TailPolicy::Pad`]: the payload in bytes of the padding record that the caller must append
    /// so that the log ends at a multiple of the unit, but not at a block boundary; 0 if no padding is
    /// needed. A direct log is padded before each write, a buffered one before each sync.
    pub fn padding(&self) -> usize {
        let unit = self.options.direct_unit.or(self.framing.sync_unit);
        let (TailPolicy::Pad { payload_min }, Some(unit)) = (self.options.tail, unit) else {
            return 0;
        };
        let nothing_new = if self.options.direct_unit.is_some() {
            !self.tail.is_pending()
        } else {
            self.marks.durable().0 >= self.tail.end()
        };
        if nothing_new {
            return 0;
        }
        let (unit, block) = (u64::from(unit), BLOCK as u64);
        let (end, header) = (self.tail.end(), self.framing.framer.header_len() as u64);
        let stored = if self.framing.compressed {
            STORED_LONG_OVERHEAD as u64
        } else {
            0
        };
        let mut target = end.next_multiple_of(unit);
        if target == end {
            return 0;
        }
        loop {
            let headers = if end / block == target / block {
                header
            } else {
                2 * header
            };
            let payload = (target - end).checked_sub(headers + stored);
            if let Some(n) = payload
                && n >= u64::from(payload_min)
                && !target.is_multiple_of(block)
            {
                return n as usize;
            }
            target += unit;
        }
    }
}

#[cfg(test)]
mod tests {
    use io::posix::Posix;
    use io::{FileSystem, OpenHow};

    use super::*;

    fn writer(dir: &tempfile::TempDir) -> Writer {
        let path = dir.path().join("000004.log");
        let file = Posix.open(&path, OpenHow::CREATE_NEW).unwrap();
        Writer::new(file, LogOptions::default())
    }

    /// Regression test: a range outside of the buffer became an empty write that returned Ok, so the
    /// group was acknowledged but not written. Now every violated invariant ends the log with an error.
    #[test]
    fn what_does_not_hold_ends_the_log() {
        type Break = fn(&mut Writer);
        let breaks: [(&str, Break); 3] = [
            ("marks out of order", |w| w.marks.set_submitted(1 << 20)),
            ("bytes that nobody wrote", |w| w.marks.set_submitted(5)),
            ("a tail that lost its bytes", |w| {
                let tail = Tail::empty(1);
                w.tail = tail;
            }),
        ];
        for (what, broken) in breaks {
            let dir = tempfile::tempdir().unwrap();
            let mut w = writer(&dir);
            w.append(b"the first").unwrap();
            w.sync().unwrap();
            w.append(b"the second").unwrap();
            broken(&mut w);
            w.append(b"the third").ok();
            let e = w.sync().map(|_| what).unwrap_err();
            assert!(e.to_string().contains("internal error"), "{what}: {e}");
            assert!(w.append(b"later").is_err(), "{what}");
            assert!(w.sync().is_err(), "{what}");
            assert!(w.durable().0 < 1 << 20, "{what}");
        }
    }

    /// Regression test: a file panicked during a write, and the bytes were lost. The next sync had nothing
    /// to write, and counted them as durable.
    #[test]
    fn what_was_taken_and_not_written_is_not_durable() {
        let dir = tempfile::tempdir().unwrap();
        let mut w = writer(&dir);
        w.append(b"the first").unwrap();
        w.sync().unwrap();
        let durable = w.durable();
        w.append(b"the second").unwrap();
        drop(w.tail.take().unwrap());
        let e = w.sync().unwrap_err();
        assert!(e.to_string().contains("nothing is left to write"), "{e}");
        assert_eq!(w.durable(), durable);
        assert!(w.append(b"the third").is_err());
    }

    /// The same for a write of a part of a chunk.
    #[test]
    fn a_chunk_writes_what_it_has_or_fails() {
        let dir = tempfile::tempdir().unwrap();
        let mut w = writer(&dir);
        w.append(b"the first").unwrap();
        w.sync().unwrap();
        let start = w.size();
        w.append(b"the second").unwrap();
        let end = w.size();
        let chunk = w.tail.take().unwrap();
        for (from, to) in [(0, end), (end + 1, end + 9), (end, start)] {
            let e = chunk.write_between(&**w.file(), from, to).unwrap_err();
            assert!(e.to_string().contains("internal error"), "{from} {to}: {e}");
        }
        assert_eq!(w.file().len().unwrap(), start);
        chunk.write_between(&**w.file(), start, u64::MAX).unwrap();
        assert_eq!(w.file().len().unwrap(), end);
    }

    #[test]
    fn a_log_is_cut_back_only_to_what_no_write_has_taken() {
        let dir = tempfile::tempdir().unwrap();
        let mut w = writer(&dir);
        let first = w.append(b"the first").unwrap();
        w.sync().unwrap();
        let second = w.append(b"the second").unwrap();
        w.append(b"the third").unwrap();
        for wrong in [first.start, Lsn(w.size() + 1)] {
            assert!(w.cut_back(wrong).is_err(), "{wrong}");
        }
        w.cut_back(second.end).unwrap();
        w.cut_back(second.start).unwrap();
        assert_eq!((w.size(), w.pending()), (first.end.0, 0));
    }

    #[test]
    fn parts_that_are_not_there_are_not_compressed() {
        let dir = tempfile::tempdir().unwrap();
        let mut w = writer(&dir);
        w.framing.compressed = true;
        for (packed, right) in [(0..1, true), (0..2, false), (1..2, false)] {
            let done = w.append_around(&[b"one part"], packed.clone());
            assert_eq!(done.is_ok(), right, "{packed:?}");
        }
    }
}
