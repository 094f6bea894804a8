//! Physical records one after the other, from a bounded buffer.
//!
//! `Blocks` walks through a file block by block and reports what it finds; the reader decides what to
//! do about it. The checks inside a block run in RocksDB's order, because that order determines how a
//! torn tail is classified. [`PhysicalRecords`] shows the same to tools.
#![deny(clippy::indexing_slicing)]

use std::ops::Range;
use std::sync::Arc;

use base::Result;
use base::checksum::crc32c;
use io::{AlignedBuf, File, buffer};

use crate::format::{BLOCK, Header, LEGACY_HEADER, RECYCLABLE_HEADER, RecordType, log_number_of};

/// Bytes read at a time.
const CHUNK: usize = 8 * BLOCK;

/// What lies at a place of the file. `bytes`: how many bytes are skipped, up to the end of the block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A record with a correct checksum; pass `payload` to [`Blocks::bytes`].
    Record {
        offset: u64,
        kind: RecordType,
        payload: Range<usize>,
    },
    /// The end of the file.
    End,
    /// The file ends inside a header.
    ShortHeader { offset: u64, bytes: u64 },
    /// The record would extend beyond the bytes of its block.
    BadLength {
        offset: u64,
        bytes: u64,
        header: Header,
        last_block: bool,
    },
    /// A record of an earlier log in a recycled file. `damaged`: it is in fact a record of this log
    /// with a wrong type or log number in its header.
    OldRecord { offset: u64, damaged: bool },
    /// Type and length are zero: the rest of the block counts as zero-filled space.
    Zeros { offset: u64, bytes: u64 },
    /// The checksum is wrong.
    BadCrc {
        offset: u64,
        bytes: u64,
        header: Header,
    },
    /// Bytes other than zero in the unused end of a block. Reported only for a file that allows legacy
    /// records only.
    DirtyTrailer { offset: u64 },
}

/// A walk through the blocks of a log file.
#[derive(Debug)]
pub(crate) struct Blocks {
    file: Arc<dyn File>,
    log_number: u32,
    /// For a MANIFEST: the type bytes of recyclable records have no special meaning.
    legacy_only: bool,
    buf: AlignedBuf,
    /// File offset of `buf`'s first byte.
    start: u64,
    /// The bytes of the current block that were not examined yet, as a range of `buf`.
    block: Range<usize>,
    /// The current block is shorter than a block: nothing follows.
    last_block: bool,
    /// The buffer was not filled: the file ends with it.
    file_ended: bool,
    /// Bytes to skip at the start of the next block, after a seek.
    skip: usize,
    /// File offset where the log ends; bytes behind it are ignored.
    limit: u64,
}

impl Blocks {
    pub(crate) fn new(file: Arc<dyn File>, log_number: u64, legacy_only: bool) -> Self {
        Self {
            file,
            log_number: log_number as u32,
            legacy_only,
            buf: AlignedBuf::new(buffer::PAGE),
            start: 0,
            block: 0..0,
            last_block: false,
            file_ended: false,
            skip: 0,
            limit: u64::MAX,
        }
    }

    /// Continues at `offset`, with the current content of the file.
    pub(crate) fn seek(&mut self, offset: u64) {
        self.skip = (offset % BLOCK as u64) as usize;
        self.start = offset - self.skip as u64;
        self.buf.clear();
        self.block = 0..0;
        self.last_block = false;
        self.file_ended = false;
    }

    /// Ignores everything from `limit` on.
    pub(crate) fn end_at(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Number of bytes of the file that may belong to the log.
    pub(crate) fn len(&self) -> Result<u64> {
        Ok(self.file.len()?.min(self.limit))
    }

    pub(crate) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// The bytes of a range that [`Found::Record`] named; valid until the next call of `next`.
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.buf.get(range).unwrap_or_default()
    }

    /// File offset of the next byte that [`Blocks::next`] examines.
    pub(crate) fn position(&self) -> u64 {
        self.start + self.block.start as u64
    }

    /// Moves on to the next block; false if the current one is the last.
    fn next_block(&mut self) -> Result<bool> {
        if self.last_block {
            return Ok(false);
        }
        let mut from = self.block.end;
        if from == self.buf.len() && !self.file_ended {
            self.start += from as u64;
            from = 0;
            self.buf.resize(CHUNK)?;
            let n = self.file.read_at(&mut self.buf, self.start)?;
            let left = self.limit.saturating_sub(self.start);
            let n = n.min(usize::try_from(left).unwrap_or(usize::MAX));
            self.buf.resize(n)?;
            self.file_ended = n < CHUNK;
        }
        let to = self.buf.len().min(from + BLOCK);
        self.block = to.min(from + std::mem::take(&mut self.skip))..to;
        self.last_block = to - from < BLOCK;
        Ok(true)
    }

    /// Skips the rest of the block; returns its length in bytes.
    fn drop_block(&mut self) -> u64 {
        let n = self.block.len() as u64;
        self.block.start = self.block.end;
        n
    }

    /// Finds what comes next in the file.
    pub(crate) fn next(&mut self) -> Result<Found> {
        loop {
            let offset = self.position();
            let rest = self.buf.get(self.block.clone()).unwrap_or_default();
            let decoded = Header::decode(rest).and_then(|h| self.normalized(h, rest.len()));
            let Some(header) = decoded else {
                let dirty = self.legacy_only && rest.iter().any(|&b| b != 0);
                if !self.last_block {
                    if dirty {
                        return Ok(Found::DirtyTrailer { offset });
                    }
                    self.next_block()?;
                    continue;
                }
                return Ok(match self.drop_block() {
                    0 => Found::End,
                    bytes => Found::ShortHeader { offset, bytes },
                });
            };
            return Ok(self.examine(offset, header));
        }
    }

    /// The header, or `None` if it is a longer, recyclable one that does not fit the rest of the block.
    fn normalized(&self, header: Header, available: usize) -> Option<Header> {
        let short =
            !self.legacy_only && header.kind.is_recyclable() && available < RECYCLABLE_HEADER;
        (!short).then_some(header)
    }

    /// Classifies the record at the start of the block's rest, which has at least a header.
    fn examine(&mut self, offset: u64, header: Header) -> Found {
        let rest = self.buf.get(self.block.clone()).unwrap_or_default();
        let recyclable = header.kind.is_recyclable() && !self.legacy_only;
        let header_len = if recyclable {
            RECYCLABLE_HEADER
        } else {
            LEGACY_HEADER
        };
        let record_len = header_len + usize::from(header.length);
        if record_len > rest.len() {
            let last_block = self.last_block;
            let bytes = self.drop_block();
            return Found::BadLength {
                offset,
                bytes,
                header,
                last_block,
            };
        }
        if recyclable && log_number_of(rest) != Some(self.log_number) {
            let damaged = is_ours(header, rest, self.log_number);
            self.block.start += record_len;
            return Found::OldRecord { offset, damaged };
        }
        if header.kind == RecordType::ZERO && header.length == 0 {
            let bytes = self.drop_block();
            return Found::Zeros { offset, bytes };
        }
        let crc_ok = rest
            .get(6..record_len)
            .is_some_and(|covered| crc32c(covered) == header.crc);
        if !crc_ok {
            let bytes = self.drop_block();
            return Found::BadCrc {
                offset,
                bytes,
                header,
            };
        }
        let from = self.block.start;
        self.block.start += record_len;
        Found::Record {
            offset,
            kind: header.kind,
            payload: from + header_len..from + record_len,
        }
    }
}

/// True if the record at the start of `rest`, which looks like another log's, is a damaged record of
/// the log that is read: its checksum is correct after flipping one bit of its type to make it a legacy
/// record, or after replacing its log number by that of the log.
fn is_ours(header: Header, rest: &[u8], log_number: u32) -> bool {
    let crc_of = |kind: u8, number: &[u8], payload: Option<&[u8]>| {
        payload.map(|p| crc32c(&[&[kind], number, p].concat()))
    };
    let length = usize::from(header.length);
    let legacy = rest.get(LEGACY_HEADER..LEGACY_HEADER + length);
    let kinds = (0..8).map(|bit| RecordType(header.kind.0 ^ (1 << bit)));
    let mut legacy_kinds = kinds.filter(|k| k.fragment().is_some() && !k.is_recyclable());
    if legacy_kinds.any(|k| crc_of(k.0, &[], legacy) == Some(header.crc)) {
        return true;
    }
    let payload = rest.get(RECYCLABLE_HEADER..RECYCLABLE_HEADER + length);
    crc_of(header.kind.0, &log_number.to_le_bytes(), payload) == Some(header.crc)
}

/// One physical record, or a place where there is none, as tools show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhysicalRecord {
    /// Where its header begins, bytes from the start of the file.
    pub offset: u64,
    /// The type byte; [`RecordType::ZERO`] for zero-filled space.
    pub kind: RecordType,
    /// Bytes of payload, or bytes that are skipped if there is a problem.
    pub length: u64,
    /// What is wrong with it; `None` for a record with a correct checksum.
    pub problem: Option<&'static str>,
}

/// Iterates over the physical records of a file. After damage it continues with the next block.
#[derive(Debug)]
pub struct PhysicalRecords {
    blocks: Blocks,
    done: bool,
}

impl PhysicalRecords {
    /// The records of the log `log_number`; the number matters for recyclable records only.
    pub fn new(file: Arc<dyn File>, log_number: u64) -> Self {
        Self {
            blocks: Blocks::new(file, log_number, false),
            done: false,
        }
    }
}

impl Iterator for PhysicalRecords {
    type Item = Result<PhysicalRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let row = |offset, kind, length, problem| {
            Some(Ok(PhysicalRecord {
                offset,
                kind,
                length,
                problem,
            }))
        };
        let zero = RecordType::ZERO;
        match self.blocks.next() {
            Err(e) => {
                self.done = true;
                Some(Err(e))
            }
            Ok(Found::End) => {
                self.done = true;
                None
            }
            Ok(Found::Record {
                offset,
                kind,
                payload,
            }) => row(offset, kind, payload.len() as u64, None),
            Ok(Found::ShortHeader { offset, bytes }) => {
                row(offset, zero, bytes, Some("the file ends inside a header"))
            }
            Ok(Found::BadLength {
                offset,
                bytes,
                header,
                ..
            }) => row(offset, header.kind, bytes, Some("bad record length")),
            Ok(Found::OldRecord { offset, damaged }) => {
                let bytes = self.blocks.position() - offset;
                let problem = if damaged {
                    "damaged record header"
                } else {
                    "record of an older log"
                };
                row(offset, zero, bytes, Some(problem))
            }
            Ok(Found::Zeros { offset, bytes }) => row(offset, zero, bytes, Some("zeros")),
            Ok(Found::BadCrc {
                offset,
                bytes,
                header,
            }) => row(offset, header.kind, bytes, Some("checksum mismatch")),
            Ok(Found::DirtyTrailer { offset }) => row(
                offset,
                zero,
                0,
                Some("bytes after the last record of a block"),
            ),
        }
    }
}
