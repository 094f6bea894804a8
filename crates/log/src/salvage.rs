//! Reads what is still readable in a damaged log, and rewrites the log from it.
//!
//! A reader stops at damage, or skips the rest of the block: a record's length is not covered by its
//! checksum, so the start of the next record is unknown. [`scan`] searches for it: first where the
//! damaged record says that it ends, then at every byte. A record found this way has a correct checksum
//! (and, in a recyclable log, the right log number), but it may lie inside a value: the caller must
//! check its sequence number before it trusts a record behind damage.
//!
//! ```text
//!   | whole | whole | ??????? | whole |  zeros  | whole | ??? | zeros to the end
//!    Piece   Piece   Piece     Piece   Piece     Piece   Summary::tail
//!                    lost              lost
//! ```
//!
//! The rewritten log goes to a new file. [`replace`] gives that file the log's name atomically, and
//! keeps the old file under another name.
#![deny(clippy::indexing_slicing)]

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use base::Result;
use io::{AlignedBuf, File, FileSystem, OpenHow, SyncKind, WriteSync, buffer};

use crate::format::{
    BLOCK, Fragment, Framer, Header, LEGACY_HEADER, RECYCLABLE_HEADER, RecordType, log_number_of,
};
use crate::inflate::Inflate;

/// Maximum number of lost pieces that are kept separate until a readable record follows.
const PENDING_MAX: usize = 4096;
/// Maximum number of bytes of a lost piece that are kept, to identify its content.
const LOST_BYTES_MAX: usize = 64 << 10;
/// The magic with which a zstd frame begins.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A part of a log file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where in the file, in bytes.
    pub range: Range<u64>,
    /// The record, decompressed. For a lost piece: at most 64 KiB of its content, any byte of which
    /// may be wrong.
    pub bytes: Vec<u8>,
    /// Why it cannot be read; `None` for a record with a correct checksum.
    pub lost: Option<&'static str>,
    /// True if the piece is only zeros: nothing is lost unless a record was there.
    pub zeros: bool,
}

/// The result of [`scan`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Where the last readable record ends.
    pub end: u64,
    /// The offset behind the last byte that is not zero.
    pub content_end: u64,
    /// Bytes of the file.
    pub file_len: u64,
    /// The pieces behind the last readable record, except for zeros at the end of the file.
    pub tail: Vec<Piece>,
    /// Records with the short header were seen.
    pub legacy: bool,
    /// Records with a log number were seen.
    pub recyclable: bool,
    /// The log is compressed.
    pub compressed: bool,
    /// The log has a record with sizes of user timestamps.
    pub timestamps: bool,
}

/// Scans the log `log_number` and passes its pieces to `visit`, in order, except for those of
/// [`Summary::tail`]. Errors: those of the file and of `visit`; damage is not an error.
pub fn scan(
    file: &Arc<dyn File>,
    log_number: u64,
    visit: &mut dyn FnMut(Piece) -> Result<()>,
) -> Result<Summary> {
    let mut scan = Scan {
        log_number: log_number as u32,
        visit,
        inflate: None,
        open: None,
        pending: Vec::new(),
        out: Summary::default(),
    };
    let mut block = AlignedBuf::zeroed(BLOCK, buffer::PAGE)?;
    let mut base = 0;
    loop {
        let n = file.read_at(&mut block, base)?;
        let bytes = block.get(..n).unwrap_or_default();
        if let Some(last) = bytes.iter().rposition(|&b| b != 0) {
            scan.out.content_end = base + last as u64 + 1;
        }
        scan.block(base, bytes)?;
        base += n as u64;
        if n < BLOCK {
            break;
        }
    }
    scan.out.file_len = base;
    Ok(scan.finish())
}

/// A logical record that has begun.
struct Open {
    start: u64,
    bytes: Vec<u8>,
}

struct Scan<'a> {
    log_number: u32,
    visit: &'a mut dyn FnMut(Piece) -> Result<()>,
    inflate: Option<Inflate>,
    open: Option<Open>,
    /// Lost pieces behind the last readable record.
    pending: Vec<Piece>,
    out: Summary,
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&b| b == 0)
}

impl Scan<'_> {
    fn block(&mut self, base: u64, block: &[u8]) -> Result<()> {
        let mut at = 0;
        loop {
            let rest = block.get(at..).unwrap_or_default();
            let offset = base + at as u64;
            if rest.len() < LEGACY_HEADER {
                // The end of a block, or of the file.
                if block.len() < BLOCK && !is_zero(rest) {
                    self.damage(offset, rest, "the file ends inside a header");
                }
                return Ok(());
            }
            if let Some(header) = self.valid(rest) {
                at += header.record_len();
                self.record(offset, header, rest)?;
                continue;
            }
            if is_zero(rest) {
                // A writer of recyclable records leaves fewer zeros than a header at the end of a block.
                if rest.len() >= RECYCLABLE_HEADER {
                    self.zeros(offset, rest.len() as u64);
                }
                return Ok(());
            }
            let (len, reason) = self.unreadable(rest);
            self.damage(offset, rest.get(..len).unwrap_or(rest), reason);
            at += len;
        }
    }

    /// The header of a record at the start of `rest` that belongs to this log and is whole.
    fn valid(&self, rest: &[u8]) -> Option<Header> {
        let header = Header::decode(rest)?;
        let known = matches!(header.kind.0, 1..=11 | 0x80..);
        if !known || header.record_len() > rest.len() {
            return None;
        }
        let ours = !header.kind.is_recyclable() || log_number_of(rest) == Some(self.log_number);
        (ours && header.crc_matches(rest)).then_some(header)
    }

    /// How long the damage at the start of `rest` is, and what is wrong.
    fn unreadable(&self, rest: &[u8]) -> (usize, &'static str) {
        let mut reason = "not a record";
        if let Some(header) = Header::decode(rest) {
            let len = header.record_len();
            let known = matches!(header.kind.0, 1..=11);
            if known && len <= rest.len() {
                reason = if header.kind.is_recyclable()
                    && log_number_of(rest).is_some_and(|n| n != self.log_number)
                {
                    "a record of another log"
                } else {
                    "checksum mismatch"
                };
                let behind = rest.get(len..).unwrap_or_default();
                if is_zero(behind) || self.valid(behind).is_some() {
                    return (len, reason);
                }
            } else if known {
                reason = "bad record length";
            }
        }
        let next = (1..rest.len()).find(|&at| {
            let from = rest.get(at..).unwrap_or_default();
            // Check the type byte first: it rules out most places.
            from.get(6).is_some_and(|&kind| matches!(kind, 1..=11)) && self.valid(from).is_some()
        });
        (next.unwrap_or(rest.len()), reason)
    }

    /// Handles a whole physical record.
    fn record(&mut self, offset: u64, header: Header, rest: &[u8]) -> Result<()> {
        let (from, to) = (header.kind.header_len(), header.record_len());
        let payload = rest.get(from..to).unwrap_or_default();
        let end = offset + to as u64;
        let Some(fragment) = header.kind.fragment() else {
            self.about_the_log(header.kind, payload);
            return Ok(());
        };
        if header.kind.is_recyclable() {
            self.out.recyclable = true;
        } else {
            self.out.legacy = true;
        }
        match fragment {
            Fragment::Full | Fragment::First => {
                if let Some(open) = self.open.take().filter(|o| !o.bytes.is_empty()) {
                    self.push(open.start..offset, &open.bytes, "a record without its end");
                }
                if fragment == Fragment::Full {
                    return self.whole(offset..end, payload.to_vec());
                }
                self.open = Some(Open {
                    start: offset,
                    bytes: payload.to_vec(),
                });
            }
            Fragment::Middle | Fragment::Last => match self.open.take() {
                None => self.lost(
                    offset,
                    to as u64,
                    payload,
                    "the start of the record is lost",
                ),
                Some(mut open) => {
                    open.bytes.extend_from_slice(payload);
                    if fragment == Fragment::Last {
                        return self.whole(open.start..end, open.bytes);
                    }
                    self.open = Some(open);
                }
            },
        }
        Ok(())
    }

    fn about_the_log(&mut self, kind: RecordType, payload: &[u8]) {
        match kind {
            RecordType::SET_COMPRESSION => {
                self.out.compressed = !is_zero(payload);
                self.inflate = Inflate::new().ok().filter(|_| self.out.compressed);
            }
            RecordType::TIMESTAMP_SIZES | RecordType::RECYCLABLE_TIMESTAMP_SIZES => {
                self.out.timestamps = true;
            }
            _ => {}
        }
    }

    /// Handles a complete logical record: the pending pieces before it were lost in the middle of the log.
    fn whole(&mut self, range: Range<u64>, bytes: Vec<u8>) -> Result<()> {
        for piece in std::mem::take(&mut self.pending) {
            (self.visit)(piece)?;
        }
        self.out.end = range.end;
        let (bytes, lost) = self.decompressed(bytes);
        (self.visit)(Piece {
            range,
            bytes,
            lost,
            zeros: false,
        })
    }

    fn decompressed(&mut self, bytes: Vec<u8>) -> (Vec<u8>, Option<&'static str>) {
        if self.inflate.is_none() && bytes.starts_with(&ZSTD_MAGIC) {
            // The set-compression record may be damaged. If these bytes were not compressed, they would
            // be a batch with a sequence number that no database reaches.
            self.inflate = Inflate::new().ok();
            self.out.compressed = self.inflate.is_some();
        }
        let Some(inflate) = &mut self.inflate else {
            return (bytes, None);
        };
        let mut out = Vec::new();
        let done = inflate
            .begin()
            .and_then(|()| inflate.push(&bytes, &mut out))
            .and_then(|()| inflate.finish());
        match done {
            Ok(()) => (out, None),
            Err(reason) => (out, Some(reason)),
        }
    }

    /// Handles bytes that are no record of this log.
    fn damage(&mut self, offset: u64, bytes: &[u8], reason: &'static str) {
        let header = Header::decode(bytes);
        let from = header.map_or(bytes.len(), |h| h.kind.header_len());
        let payload = bytes.get(from..).unwrap_or_default();
        let begins = header
            .and_then(|h| h.kind.fragment())
            .is_some_and(|f| matches!(f, Fragment::Full | Fragment::First));
        if begins && self.open.is_none() && self.pending.len() < PENDING_MAX {
            return self.push(offset..offset + bytes.len() as u64, payload, reason);
        }
        self.lost(offset, bytes.len() as u64, payload, reason);
    }

    fn zeros(&mut self, offset: u64, len: u64) {
        if self.open.is_some() {
            return self.lost(offset, len, &[], "zeros inside a record");
        }
        // The unused end of a block may lie between the two.
        if let Some(last) = self.pending.last_mut().filter(|p| p.zeros) {
            last.range.end = offset + len;
            return;
        }
        self.pending.push(Piece {
            range: offset..offset + len,
            bytes: Vec::new(),
            lost: Some("zeros"),
            zeros: true,
        });
    }

    /// Handles lost bytes that continue the lost piece before them, or the record that has begun.
    fn lost(&mut self, offset: u64, len: u64, payload: &[u8], reason: &'static str) {
        let end = offset + len;
        if let Some(mut open) = self.open.take() {
            open.bytes.extend_from_slice(payload);
            return self.push(open.start..end, &open.bytes, reason);
        }
        match self.pending.last_mut().filter(|p| !p.zeros) {
            None => self.push(offset..end, payload, reason),
            Some(last) => {
                last.range.end = end;
                let room = LOST_BYTES_MAX.saturating_sub(last.bytes.len());
                let kept = payload.get(..room).unwrap_or(payload);
                last.bytes.extend_from_slice(kept);
            }
        }
    }

    fn push(&mut self, range: Range<u64>, bytes: &[u8], reason: &'static str) {
        let kept = bytes.get(..LOST_BYTES_MAX).unwrap_or(bytes);
        self.pending.push(Piece {
            range,
            bytes: kept.to_vec(),
            lost: Some(reason),
            zeros: false,
        });
    }

    fn finish(mut self) -> Summary {
        if let Some(open) = self.open.take() {
            let end = self.out.content_end.max(open.start);
            self.push(open.start..end, &open.bytes, "the last record is cut off");
        }
        while self.pending.last().is_some_and(|p| p.zeros) {
            self.pending.pop();
        }
        if let Some(last) = self.pending.last_mut() {
            last.range.end = last.range.end.min(self.out.content_end);
        }
        self.out.tail = self.pending;
        self.out
    }
}

/// A rewritten log in a new file. Its records are legacy records, uncompressed.
#[derive(Debug)]
pub struct Rewrite {
    file: Arc<dyn File>,
    framer: Framer,
    buf: AlignedBuf,
    written: u64,
}

impl Rewrite {
    /// Creates `path`, or empties it. `filler`: see [`crate::LogOptions::filler`].
    pub fn create(fs: &dyn FileSystem, path: &Path, filler: u8) -> Result<Self> {
        Ok(Self {
            file: fs.open(path, OpenHow::CREATE_TRUNCATE)?,
            framer: Framer {
                log_number: None,
                filler: Some(filler),
                sector: None,
            },
            buf: AlignedBuf::new(buffer::PAGE),
            written: 0,
        })
    }

    /// Appends a record.
    pub fn append(&mut self, record: &[u8]) -> Result<()> {
        let at = self.written + self.buf.len() as u64;
        self.framer.frame(&[record], at, &mut self.buf)?;
        if self.buf.len() >= 32 * BLOCK {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        io::write_all_at(&*self.file, &self.buf, self.written, WriteSync::None)?;
        self.written += self.buf.len() as u64;
        self.buf.resize(0)
    }

    /// Makes the file durable, extended with zeros to at least `len_min` bytes (a MANIFEST may state a
    /// minimum length for the log). Returns where the records end.
    pub fn finish(mut self, len_min: u64) -> Result<u64> {
        self.write()?;
        if self.written < len_min {
            self.file.truncate(len_min)?;
        }
        self.file.sync(SyncKind::All)?;
        Ok(self.written)
    }
}

/// Renames the file `new` to `log`, and keeps the old file under the name `kept`, which must be free.
/// The name `log` refers to either the old or the new file at every moment. The change is durable
/// when this returns.
pub fn replace(fs: &dyn FileSystem, log: &Path, new: &Path, kept: &Path) -> Result<()> {
    let dir = log.parent().filter(|d| *d != Path::new(""));
    let dir = dir.unwrap_or(Path::new("."));
    fs.hard_link(log, kept)?;
    fs.sync_dir(dir)?;
    fs.rename(new, log)?;
    fs.sync_dir(dir)
}

#[cfg(test)]
#[path = "salvage_tests.rs"]
mod tests;
