//! Reading ahead, for iterators.
//!
//! ```text
//!   file:  … [ window: blocks of now ][ coming: read by a thread meanwhile ] …
//! ```
//!
//! After a few consecutive reads, an iterator reads several blocks at once. What comes next of a file that is read directly is
//! on its way while the window is used; for other files, the operating system reads ahead itself.
//!
//! Where the last scans of a table had about the same length, the next one reads as much at once: see [`Scans`](super::scans::Scans).

use std::ops::Range;

use base::stats::{Activity, HistogramKind, Ticker};
use base::{Comparator, Result};
use io::{AlignedBuf, AsyncReads, ReadQueues};

use super::fetch::{AT_HAND_MAX, Fetch, Read, Span, cut_short};
use super::scans::Row;
use crate::block::Block;
use crate::handle::BlockHandle;
use crate::options::TableOptions;

/// When and how much iterators read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAheadSizes {
    /// Bytes of the first read-ahead; 0 turns it off.
    pub initial: usize,
    /// Largest read-ahead; 0 turns it off.
    pub max: usize,
    /// Number of consecutive reads after which it starts.
    pub after: u64,
    /// Bytes after each read that the operating system is advised to read ahead; 0 is none.
    pub told: u64,
}

/// Bytes per read of a steady read-ahead: small enough for the CPU cache.
const STEADY_BYTES: usize = 256 << 10;

impl ReadAheadSizes {
    /// Reads `bytes` ahead from the first block on: the operating system reads them into the page
    /// cache, from where they are copied in smaller pieces.
    pub(crate) fn steady(bytes: usize) -> Self {
        let at_once = bytes.min(STEADY_BYTES);
        Self {
            initial: at_once,
            max: at_once,
            after: 0,
            told: if bytes > at_once { bytes as u64 } else { 0 },
        }
    }
}

impl Default for ReadAheadSizes {
    /// RocksDB's defaults.
    fn default() -> Self {
        Self {
            initial: 8 << 10,
            max: 256 << 10,
            after: 2,
            told: 0,
        }
    }
}

impl From<&TableOptions> for ReadAheadSizes {
    fn from(o: &TableOptions) -> Self {
        Self {
            initial: o.initial_auto_readahead_size as usize,
            max: o.max_auto_readahead_size as usize,
            after: o.num_file_reads_for_auto_readahead,
            told: 0,
        }
    }
}

/// Bytes of the file in memory.
#[derive(Debug)]
pub(crate) struct Window {
    pub(crate) bytes: AlignedBuf,
    /// Their offset in the file.
    pub(crate) at: u64,
}

impl Window {
    fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    /// Where `len` bytes at an offset are in it.
    fn range(&self, offset: u64, len: usize) -> Option<Range<usize>> {
        let from = usize::try_from(offset.checked_sub(self.at)?).ok()?;
        let end = from.checked_add(len)?;
        (end <= self.bytes.len()).then_some(from..end)
    }
}

/// How far an iterator has come with reading ahead: what the next file of its level may go on with.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// File offset at which a read would continue the last one.
    expected: u64,
    consecutive: u64,
    next_size: usize,
}

/// Bytes that were read for a block that an iterator lacked, and the pace that it has with them.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) window: Window,
    pub(crate) pace: Pace,
    /// Whether there are more than the block.
    pub(crate) is_ahead: bool,
}

/// The read-ahead of one iterator.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    sizes: ReadAheadSizes,
    window: Window,
    /// The span that is on its way, with `reads`.
    coming: Option<Span>,
    reads: Option<AsyncReads>,
    /// Memory for what comes next.
    spare: Option<AlignedBuf>,
    /// Whether what comes next can be asked for now.
    is_new: bool,
    /// Whether the window has more than the block for which it was read.
    is_ahead: bool,
    /// Whether that block was not used yet.
    is_given: bool,
    /// Nothing at or after this offset is wanted.
    limit: u64,
    pace: Pace,
    row: Row,
    /// Whether everything up to the limit will be wanted.
    is_for_all: bool,
    /// The range that the operating system was last advised to read.
    told: Range<u64>,
}

impl ReadAhead {
    pub(crate) fn new(sizes: ReadAheadSizes) -> Self {
        Self {
            sizes,
            window: Window {
                bytes: AlignedBuf::new(1),
                at: 0,
            },
            coming: None,
            reads: None,
            spare: None,
            is_new: false,
            is_ahead: false,
            is_given: false,
            limit: u64::MAX,
            pace: Pace {
                expected: u64::MAX,
                consecutive: 0,
                next_size: sizes.initial,
            },
            row: Row::default(),
            is_for_all: false,
            told: 0..0,
        }
    }

    /// Nothing at or after this offset of the file is wanted, unless it is asked for.
    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// How far it has come.
    pub(crate) fn pace(&self) -> Pace {
        self.pace
    }

    /// Whether everything up to the limit will be wanted.
    pub(crate) fn set_for_all(&mut self, is_for_all: bool) {
        self.is_for_all = is_for_all;
    }

    /// The blocks to which the iterator has come in a row.
    pub(crate) fn row(&mut self) -> &mut Row {
        &mut self.row
    }

    /// Goes on at the first block of another file as if that were the same one.
    pub(crate) fn go_on(&mut self, pace: Pace, first: BlockHandle) {
        self.pace = pace;
        self.pace.expected = first.offset;
    }

    /// Takes bytes that were read for it.
    pub(crate) fn give(&mut self, given: Given) {
        self.pace = given.pace;
        self.set_window(given.window, given.is_ahead);
        self.is_given = true;
        // It was to follow another window.
        if self.coming.take().is_some() {
            self.reads = None;
        }
    }

    /// Returns the window before.
    fn set_window(&mut self, window: Window, is_ahead: bool) -> Window {
        let before = std::mem::replace(&mut self.window, window);
        self.window_is_new(is_ahead);
        before
    }

    /// What comes next is asked for only after the second read of a row: the first may be one of a few at random.
    fn window_is_new(&mut self, is_ahead: bool) {
        self.is_ahead = is_ahead;
        self.is_given = false;
        self.is_new = is_ahead && self.pace.consecutive > 1;
    }

    /// Whether a block of `len` bytes is in memory, or on its way.
    pub(super) fn expects(&self, offset: u64, len: usize) -> bool {
        self.has(offset, len) || self.coming.is_some_and(|span| span.covers(offset, len))
    }

    fn has(&self, offset: u64, len: usize) -> bool {
        self.window.range(offset, len).is_some()
    }

    fn find(&mut self, offset: u64, len: usize) -> Option<&[u8]> {
        let range = self.window.range(offset, len)?;
        self.pace.expected = offset + len as u64;
        self.window.bytes.get(range)
    }

    /// The range to advise the operating system to read, before `len` bytes at `offset` are read:
    /// everything ahead, once half of the range advised before is used up; `None` until then.
    fn tell(&mut self, offset: u64, len: usize, end: u64) -> Option<Range<u64>> {
        let (ahead, read_to) = (self.sizes.told, offset + len as u64);
        if ahead == 0 {
            return None;
        }
        let known = self.told.contains(&offset);
        if known && read_to + ahead / 2 <= self.told.end {
            return None;
        }
        let from = if known { self.told.end } else { offset };
        let to = read_to.saturating_add(ahead).min(end);
        self.told = offset..to;
        (from < to).then_some(from..to)
    }

    /// How many bytes to read for a block of `len` bytes at `offset` that is not in memory.
    pub(super) fn plan(&mut self, offset: u64, len: usize, end: u64) -> usize {
        if offset == self.pace.expected {
            self.pace.consecutive += 1;
        } else {
            self.pace.consecutive = 1;
            self.pace.next_size = self.sizes.initial;
        }
        self.pace.expected = offset + len as u64;
        if self.sizes.max == 0 || self.sizes.initial == 0 {
            return len;
        }
        let usual = if self.is_for_all && !self.row.is_reverse() {
            self.pace.next_size = self.sizes.max;
            self.sizes.max
        } else {
            self.row.left(len).saturating_add(len).min(self.sizes.max)
        };
        let size = if self.pace.consecutive > self.sizes.after {
            self.grow().max(usual)
        } else {
            usual
        };
        // `len` lies inside the file, so the limit is not below it.
        let left = usize::try_from(end - offset).unwrap_or(usize::MAX);
        size.max(len).min(left)
    }

    /// The size of the next read; the one after it is larger.
    fn grow(&mut self) -> usize {
        let size = self.pace.next_size.min(self.sizes.max);
        self.pace.next_size = (size * 2).min(self.sizes.max);
        size
    }

    /// Where the window ends, if what comes next is to be asked for.
    pub(super) fn ask(&mut self) -> Option<u64> {
        std::mem::take(&mut self.is_new).then(|| self.window.end())
    }
}

impl Span {
    /// Where the last block ends.
    fn end(&self) -> u64 {
        self.offset + (self.skip + self.stored) as u64
    }

    /// Whether a block of `len` bytes is in the span.
    fn covers(&self, offset: u64, len: usize) -> bool {
        offset >= self.offset && offset + len as u64 <= self.end()
    }
}

impl Fetch {
    /// Reads, verifies and decompresses a data block, from `ahead` if it is there.
    pub(super) fn data_block_from(
        &self,
        ahead: &mut ReadAhead,
        handle: BlockHandle,
        comparator: &Comparator,
        how: Read,
    ) -> Result<Block> {
        let mut read = || {
            let len = self.stored_len(handle)?;
            let stored = self.read_ahead(handle, len, ahead, how)?;
            let open = |stored| self.open(stored, handle, comparator, how.verify);
            stored.map(open).transpose()
        };
        let block = match read().map_err(|e| self.locate(e, handle))? {
            Some(block) => block,
            None => self.data_block(handle, comparator, how)?,
        };
        ahead.row.is_read(self.stored_len(handle)?);
        Ok(block)
    }

    /// The stored bytes of a block from `ahead`, after filling it if necessary; `None` if the block
    /// should be read alone.
    fn read_ahead<'a>(
        &self,
        handle: BlockHandle,
        len: usize,
        ahead: &'a mut ReadAhead,
        how: Read,
    ) -> Result<Option<&'a [u8]>> {
        let offset = handle.offset;
        if !ahead.has(offset, len) && !self.land(ahead, (offset, len), how) {
            let want = self.plan(ahead, offset, len);
            if want <= len {
                return Ok(None);
            }
            let end = self.end().min(ahead.limit.max(offset + len as u64));
            if let Some(soon) = ahead.tell(offset, want, end) {
                self.file.advise(io::Advice::WillNeed {
                    offset: soon.start,
                    len: soon.end - soon.start,
                });
            }
            // What was read only because scans are usually long must not fail a shorter one.
            let is_early = ahead.pace.consecutive <= ahead.sizes.after;
            if let Err(e) = self.fill(ahead, self.span_of(offset, want), how) {
                return if is_early { Ok(None) } else { Err(e) };
            }
        } else if !std::mem::take(&mut ahead.is_given)
            && ahead.is_ahead
            && how.activity == Activity::DbIterator
        {
            self.count(Ticker::PrefetchHits, 1);
            self.count(Ticker::PrefetchBytesUseful, len as u64);
        }
        Ok(ahead.find(offset, len))
    }

    /// How many bytes to read for a block that is not in memory.
    pub(super) fn plan(&self, ahead: &mut ReadAhead, offset: u64, len: usize) -> usize {
        let limit = ahead.limit.max(offset + len as u64);
        ahead.plan(offset, len, self.end().min(limit))
    }

    /// What to read for a block that is not in memory, without doing it, and the pace that follows.
    pub(super) fn intend(&self, ahead: &mut ReadAhead, offset: u64, len: usize) -> (Span, Pace) {
        let before = ahead.pace;
        let want = self.plan(ahead, offset, len);
        let after = std::mem::replace(&mut ahead.pace, before);
        (self.span_of(offset, want), after)
    }

    fn fill(&self, ahead: &mut ReadAhead, span: Span, how: Read) -> Result<()> {
        let window = &mut ahead.window;
        let read = |bytes: &mut AlignedBuf| {
            bytes.clear();
            if bytes.align() < self.file.read_alignment() {
                *bytes = AlignedBuf::for_reads(span.len, self.file.read_alignment())?;
            }
            bytes.resize_for_overwrite(span.len)?;
            self.charge(span, how);
            let timer = self.meter().block_timer();
            let n = self.file.read_at(bytes, span.offset)?;
            self.meter()
                .was_read(span.stored as u64, how.activity, timer);
            if n < span.skip + span.stored {
                return Err(cut_short());
            }
            bytes.resize(n)
        };
        window.at = span.offset;
        read(&mut window.bytes).inspect_err(|_| window.bytes.clear())?;
        self.count_ahead(span, how, ahead.limit);
        ahead.window_is_new(true);
        Ok(())
    }

    /// Fills the window with a span, if the page cache has it.
    pub(super) fn fill_at_hand(
        &self,
        ahead: &mut ReadAhead,
        (span, pace): (Span, Pace),
        how: Read,
    ) -> Result<bool> {
        if span.len > AT_HAND_MAX || self.file.read_alignment() > 1 {
            return Ok(false);
        }
        let mut bytes = std::mem::replace(&mut ahead.window.bytes, AlignedBuf::new(1));
        bytes.resize_for_overwrite(span.len)?;
        // What fails is read again.
        if !self
            .read_at_hand(&mut bytes, span.offset, how)
            .unwrap_or(false)
        {
            bytes.clear();
            ahead.window.bytes = bytes;
            return Ok(false);
        }
        let at = span.offset;
        ahead.give(Given {
            window: Window { bytes, at },
            pace,
            is_ahead: true,
        });
        self.count_ahead(span, how, ahead.limit);
        Ok(true)
    }

    /// Makes what was coming the window, if that has the block. Returns false if not, or if its read has failed.
    fn land(&self, ahead: &mut ReadAhead, (offset, len): (u64, usize), how: Read) -> bool {
        let (Some(span), Some(mut reads)) = (ahead.coming.take(), ahead.reads.take()) else {
            return false;
        };
        if !span.covers(offset, len) {
            self.record(HistogramKind::PrefetchedBytesDiscarded, span.stored as u64);
            return false; // and forgets the read
        }
        let timer = self.meter().block_timer();
        let Some(done) = reads.wait().ok().and_then(|mut done| done.pop()) else {
            self.count(Ticker::AsyncReadErrorCount, 1);
            return false;
        };
        let (Ok(n), Some(mut bytes)) = (done.result, done.buf) else {
            self.count(Ticker::AsyncReadErrorCount, 1);
            return false;
        };
        if n < span.skip + span.stored || bytes.resize(n).is_err() {
            return false;
        }
        self.meter()
            .was_read(span.stored as u64, how.activity, timer);
        self.record(HistogramKind::AsyncReadBytes, span.stored as u64);
        let at = span.offset;
        let before = ahead.set_window(Window { bytes, at }, true);
        ahead.spare = Some(before.bytes);
        ahead.reads = Some(reads);
        true
    }

    /// Whether what comes next is read while the window is used.
    pub(super) fn reads_meanwhile(&self, queues: &ReadQueues) -> bool {
        self.file.read_alignment() > 1 && queues.takes(&*self.file)
    }

    /// Begins to read what comes next: from this block on.
    pub(super) fn send_next(
        &self,
        ahead: &mut ReadAhead,
        first: BlockHandle,
        queues: &ReadQueues,
        how: Read,
    ) {
        let (from, end) = (first.offset, self.end().min(ahead.limit));
        // A damaged index may say that the block ends behind the file.
        let Ok(len) = self.stored_len(first) else {
            return;
        };
        if from >= end || ahead.coming.is_some() {
            return;
        }
        let left = usize::try_from(end - from).unwrap_or(usize::MAX);
        let size = ahead.grow().min(left);
        if size == 0 {
            return;
        }
        let span = self.span_of(from, size.max(len));
        let align = self.file.read_alignment();
        let spare = ahead.spare.take().filter(|buf| buf.align() >= align);
        let buf = match spare {
            Some(mut buf) => buf.resize_for_overwrite(span.len).map(|()| buf),
            None => AlignedBuf::for_reads(span.len, align),
        };
        let Ok(buf) = buf else { return };
        let reads = ahead.reads.take().or_else(|| queues.unattended());
        let Some(mut reads) = reads else { return };
        self.charge(span, how);
        reads.push(0, self.file.clone(), span.offset, buf);
        reads.submit();
        self.count_ahead(span, how, ahead.limit);
        ahead.reads = Some(reads);
        ahead.coming = Some(span);
    }

    /// Counts bytes that are read ahead for iterators; RocksDB does not count those of compactions.
    pub(super) fn count_ahead(&self, span: Span, how: Read, limit: u64) {
        if how.activity != Activity::DbIterator {
            return;
        }
        self.count(Ticker::PrefetchBytes, span.len as u64);
        if limit < self.end() && span.end() == limit {
            self.count(Ticker::ReadaheadTrimmed, 1);
        }
    }

    pub(super) fn count(&self, ticker: Ticker, n: u64) {
        if let Some(statistics) = &self.meter().statistics {
            statistics.add(ticker, n);
        }
    }

    pub(super) fn record(&self, histogram: HistogramKind, value: u64) {
        if let Some(statistics) = &self.meter().statistics {
            statistics.record(histogram, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_told_before_it_is_asked() {
        const MIB: u64 = 1 << 20;
        let end = 5 * MIB;
        let mut ahead = ReadAhead::new(ReadAheadSizes::steady(2 << 20));
        let (mut at, mut told) = (0, Vec::new());
        while at < end {
            let n = ahead.plan(at, 4096, end);
            if let Some(range) = ahead.tell(at, n, end) {
                assert!(
                    told.last()
                        .is_none_or(|l: &Range<u64>| l.end == range.start)
                );
                told.push(range);
            }
            at += n as u64;
            let known = told.last().unwrap().end;
            assert!(known == end || known >= at + MIB, "{at}: {told:?}");
        }
        assert_eq!(told.last().unwrap().end, end);
        assert!(told.len() <= 5, "{told:?}");
        // A read elsewhere: advised again.
        assert_eq!(ahead.tell(MIB, 4096, end).unwrap().start, MIB);
        let mut small = ReadAhead::new(ReadAheadSizes::steady(64 << 10));
        assert_eq!(small.tell(0, 64 << 10, end), None);
    }
}
