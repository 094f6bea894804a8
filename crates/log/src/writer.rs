//! Appends records to a log, in three steps that the caller times: to the process, to the
//! operating system, to the device.
//!
//! Any number of records appended before one [`Writer::begin`] make a group: they reach the file in
//! one write. That write is a [`Flight`]: the caller runs it without holding the writer, so that
//! others append meanwhile, and reports with [`Writer::landed`]. [`Writer::submit`] and
//! [`Writer::sync`] do all of that in one call, for a writer that nobody else uses.
//!
//! ```text
//!   append append ──> begin ──> Flight::run ──> landed ──> durable
//!         (locked)              (not locked)    (locked)
//! ```
//!
//! The first failed write or sync poisons the log: what the file holds then is unknown, so every
//! later call returns the same error, and nothing is tried again. (A second `fdatasync` may succeed
//! although the pages of the first are lost.) A direct log still has the bytes of its failed
//! flights: [`Writer::unacknowledged`] gives the records back, to be written to another file.

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use io::{AlignedBuf, File, SyncKind, WriteSync};

use crate::deflate::STORED_LONG_OVERHEAD;
use crate::format::{BLOCK, Framer};
use crate::inflate::Inflate;
use crate::names::Names;
use crate::options::{LogOptions, TailPolicy, WalSync};
use crate::pack::Packer;
use crate::sync::{Lsn, Syncer, Watermarks};
use crate::tail::{Chunk, Tail};

/// Appends to one log file.
#[derive(Debug)]
pub struct Writer {
    file: Arc<dyn File>,
    framer: Framer,
    tail: Tail,
    options: LogOptions,
    /// Of a compressed log, once it has a record.
    packer: Option<Packer>,
    marks: Arc<Watermarks>,
    /// Flights that have not landed, or landed before an earlier one, oldest first.
    flights: VecDeque<Pending>,
    /// Bytes were written without a sync since the last `fdatasync`: a durable write, which covers
    /// its own bytes only, is not enough.
    unsynced: bool,
    next_id: u64,
}

/// What the writer remembers of a flight.
#[derive(Debug)]
struct Pending {
    id: u64,
    end: u64,
    act: Act,
    landed: bool,
    /// Given back by a flight that landed: an earlier one may still fail, and both are then written
    /// again.
    chunk: Option<Chunk>,
}

/// How a flight makes its bytes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Not at all.
    Write,
    /// By the write itself.
    WriteDsync,
    /// By an `fdatasync`, which covers everything written before.
    WriteThenSync,
}

/// A write, a sync or both, on their way to the device.
#[derive(Debug)]
#[must_use = "the log waits until `Writer::landed` is told how it went"]
pub struct Flight {
    id: u64,
    file: Arc<dyn File>,
    marks: Arc<Watermarks>,
    chunk: Option<Chunk>,
    act: Act,
    /// See [`TailPolicy::Atomic`].
    atomic_unit: Option<u32>,
    /// See [`LogOptions::allocate_ahead`].
    allocate_ahead: u64,
    end: u64,
}

impl Flight {
    /// Bytes that it writes.
    pub fn bytes(&self) -> u64 {
        self.chunk.as_ref().map_or(0, Chunk::bytes)
    }

    /// Does it, and returns when the device has.
    pub fn run(&self) -> Result<()> {
        let sync = match self.act {
            Act::WriteDsync => WriteSync::Dsync,
            Act::Write | Act::WriteThenSync => WriteSync::None,
        };
        match (&self.chunk, self.atomic_unit) {
            (None, _) => {}
            (Some(chunk), Some(unit)) => chunk.write_atomic(&*self.file, unit as usize)?,
            (Some(chunk), None) => chunk.write(&*self.file, sync)?,
        }
        if self.act == Act::WriteThenSync {
            let mut device = self.marks.device();
            self.marks.check()?;
            if self.allocate_ahead > 0 && self.end > device.allocated {
                self.allocate(&mut device.allocated);
            }
            self.marks.sync(&mut device, &*self.file)?;
        } else if self.act == Act::WriteDsync {
            self.marks.check_held()?;
        }
        Ok(())
    }

    /// Asks for the blocks of the bytes to come. Without, a sync takes longer, and where space lacks
    /// the next write says so.
    fn allocate(&self, allocated: &mut u64) {
        let upto = self.end.saturating_add(self.allocate_ahead);
        let len = upto - *allocated;
        *allocated = match self.file.allocate(*allocated, len, true) {
            Ok(()) => upto,
            Err(_) => u64::MAX, // not asked again
        };
    }

    /// Where the log ends that it makes durable.
    pub fn end(&self) -> Lsn {
        Lsn(self.end)
    }
}

impl Writer {
    /// A log from the start of `file`. What the file holds is overwritten as the log grows, never
    /// cut off: it must be empty, zero-filled, or, with recyclable records, another log's.
    ///
    /// # Panics
    /// If [`LogOptions::direct_unit`] is not a power of two.
    pub fn new(file: Arc<dyn File>, options: LogOptions) -> Self {
        let unit = options.direct_unit.unwrap_or(1);
        assert!(unit.is_power_of_two(), "direct_unit {unit}");
        let mut tail = Tail::empty(unit);
        // Where the length cannot be known, old records may be there.
        if options.recyclable && !file.len().is_ok_and(|len| len == 0) {
            tail = tail.over_old_records();
        }
        Self::with(file, tail, 0, options)
    }

    /// Notes in which directory the file is. With `unnamed` it is that one of `names`, whose name need
    /// not be durable: the first act that makes bytes of the log durable makes it so. Such a log is
    /// written with [`WalSync::Fdatasync`].
    #[must_use]
    pub fn named(self, names: Arc<Names>, unnamed: Option<u64>) -> Self {
        debug_assert!(unnamed.is_none() || self.options.sync == WalSync::Fdatasync);
        self.marks.set_names(names, unnamed);
        self
    }

    /// Continues a log that ends at `offset`, where the reader's
    /// [`End`](crate::End) says. What lies before counts as durable: the caller syncs the file
    /// first if it may not be. What lies after is the caller's to cut off or to zero. The record
    /// family must be the one that the file has.
    pub fn resume(file: Arc<dyn File>, offset: u64, options: LogOptions) -> Result<Self> {
        let len = file.len()?;
        if offset > len {
            return Err(base::Error::invalid_argument(format!(
                "a log cannot go on at offset {offset}: the file has {len} bytes"
            ))
            .file(file.path()));
        }
        let tail = Tail::at(offset, options.direct_unit.unwrap_or(1), &*file)?;
        Ok(Self::with(file, tail, offset, options))
    }

    fn with(file: Arc<dyn File>, tail: Tail, offset: u64, options: LogOptions) -> Self {
        Self {
            framer: Framer {
                log_number: options.recyclable.then_some(options.log_number as u32),
                filler: options.filler,
                sector: options.head_last,
            },
            tail,
            options,
            packer: None,
            marks: Arc::new(Watermarks::new(offset)),
            file,
            flights: VecDeque::new(),
            unsynced: false,
            next_id: 0,
        }
    }

    /// Frames one record into the process's buffer and returns the part of the log it takes.
    /// Nothing is written yet.
    pub fn append(&mut self, record: &[u8]) -> Result<Range<Lsn>> {
        self.append_parts(&[record])
    }

    /// The same for a record that lies in several pieces.
    pub fn append_parts(&mut self, parts: &[&[u8]]) -> Result<Range<Lsn>> {
        self.append_around(parts, 0..parts.len())
    }

    /// The same, for a record of which only the parts in `packed` may be compressed: the others
    /// stand in the file as they are, to be found by their bytes.
    pub fn append_around(&mut self, parts: &[&[u8]], packed: Range<usize>) -> Result<Range<Lsn>> {
        self.marks.check()?;
        let start = self.tail.end();
        if self.options.compressed {
            let framer = self.framer;
            let (packer, out) = self.packer()?;
            packer.append(framer, parts, &packed, start, out)
        } else {
            self.framer.frame(parts, start, self.tail.buf())
        }
        .map_err(|e| {
            let e = e.or_file(self.file.path());
            // Half a record stays: nothing may go behind it.
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

    /// Ends the log with an error that says where.
    fn end_with(&self, error: Error) -> Error {
        self.marks.poison(error.or_file(self.file.path()))
    }

    /// Errors: what lies at `start` and behind is not the record of `parts`, whole, with right
    /// checksums.
    fn check_appended(&self, parts: &[&[u8]], packed: &Range<usize>, start: u64) -> Result<()> {
        let not = |why| Error::broken(format!("what was appended {why}")).offset(start);
        let (from, pending) = self.tail.pending().ok_or_else(|| not("is gone"))?;
        let framed = start
            .checked_sub(from)
            .and_then(|at| pending.get(at as usize..))
            .ok_or_else(|| not("is written already"))?;
        let mut records = Vec::new();
        self.framer
            .unframe(start, framed, &mut records)
            .ok_or_else(|| not("is no whole record"))?;
        let [record] = &mut records[..] else {
            return Err(not("is not one record"));
        };
        if self.options.compressed {
            *record = Inflate::new()
                .and_then(|mut i| i.all(record))
                .map_err(not)?;
        }
        // A compressed record may have no-ops before what is stored behind the compressed parts.
        let cut = if self.options.compressed {
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
        let noops = rest.iter().take_while(|&&b| Some(b) == self.options.filler);
        let (noops, behind) = (noops.count(), behind.concat());
        let found = [0, noops]
            .iter()
            .any(|&n| rest.get(n..).is_some_and(|r| r.starts_with(&behind)));
        if !found {
            return Err(not("has another end"));
        }
        Ok(())
    }

    /// Where the last write ends that was done or is on its way.
    fn flown(&self) -> u64 {
        let submitted = self.marks.submitted().0;
        self.flights.back().map_or(0, |p| p.end).max(submitted)
    }

    /// Errors: `chunk` does not go on where the last one ended.
    fn check_follows(&self, chunk: &Chunk) -> Result<()> {
        let flown = self.flown();
        if chunk.fresh_from() != flown || chunk.end() != self.tail.end() {
            let (from, end) = (chunk.fresh_from(), chunk.end());
            return Err(Error::broken(format!(
                "a log that was written up to {flown} and ends at {} goes on with {from} to {end}",
                self.tail.end()
            )));
        }
        Ok(())
    }

    /// Appends a record as long as [`Writer::padding`] said.
    pub fn append_padding(&mut self, record: &[u8]) -> Result<()> {
        if !self.options.compressed {
            self.append(record)?;
            return Ok(());
        }
        self.marks.check()?;
        let (framer, start) = (self.framer, self.tail.end());
        let (packer, out) = self.packer()?;
        packer.append_stored(framer, record, start, out)?;
        self.marks.set_appended(self.tail.end());
        Ok(())
    }

    /// What compresses, and where to.
    fn packer(&mut self) -> Result<(&mut Packer, &mut AlignedBuf)> {
        let packer = match self.packer.take() {
            Some(packer) => packer,
            None => Packer::new()?,
        };
        Ok((self.packer.insert(packer), self.tail.buf()))
    }

    /// With [`TailPolicy::Pad`]: the payload in bytes of the record that the caller has to append
    /// so that the log ends with a whole unit, not at the start of a block; 0 if it does already.
    /// A direct log is filled up before each write, a buffered one before each sync.
    pub fn padding(&self) -> usize {
        let unit = self.options.direct_unit.or(self.options.sync_unit);
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
        let (end, header) = (self.tail.end(), self.framer.header_len() as u64);
        let stored = if self.options.compressed {
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

    /// Whether [`Writer::begin`] may be called now, or has to wait for a flight to land.
    pub fn can_begin(&self, sync: bool) -> bool {
        !self.is_flying()
            || self.marks.failure().is_some()
            || (self.tail.is_pending() && self.has_slot(sync))
    }

    /// Whether [`Writer::begin`] may be called once something more is appended.
    pub fn has_slot(&self, sync: bool) -> bool {
        let out = self.flights.len();
        out == 0
            || self.marks.failure().is_some()
            || (sync
                && !self.unsynced
                && self.options.direct_unit.is_some()
                && matches!(self.options.tail, TailPolicy::Pad { .. })
                && !self.tail.reaches_beyond()
                && out < self.options.depth.max(1) as usize
                && self.flights.iter().all(|f| f.act == Act::WriteDsync))
    }

    /// True while a flight is out.
    pub fn is_flying(&self) -> bool {
        !self.flights.is_empty()
    }

    /// Takes everything appended on its way to the operating system and, with `sync`, to the
    /// device. `None` if nothing is left to wait for: without `sync`, bytes for the page cache are
    /// written before it returns.
    ///
    /// # Panics
    /// If [`Writer::can_begin`] is false.
    pub fn begin(&mut self, sync: bool) -> Result<Option<Flight>> {
        assert!(self.can_begin(sync), "a flight too many");
        self.marks.check()?;
        let dsync = sync && self.options.sync == WalSync::Dsync && !self.unsynced;
        let mut chunk = None;
        if self.tail.is_pending() {
            let taken = self.take()?;
            if self.options.direct_unit.is_none() && !dsync {
                // The page cache takes them at once.
                self.write_now(taken)?;
            } else {
                chunk = Some(taken);
            }
        } else {
            self.check_all_taken()?;
        }
        let act = match (sync, dsync && chunk.is_some()) {
            (true, true) => Act::WriteDsync,
            (true, false) => Act::WriteThenSync,
            (false, _) => Act::Write,
        };
        let end = self.tail.end();
        if chunk.is_none() && (!sync || self.marks.durable().0 >= end) {
            return Ok(None);
        }
        self.unsynced |= act == Act::Write;
        self.next_id += 1;
        self.flights.push_back(Pending {
            id: self.next_id,
            end,
            act,
            landed: false,
            chunk: None,
        });
        Ok(Some(Flight {
            id: self.next_id,
            file: Arc::clone(&self.file),
            marks: Arc::clone(&self.marks),
            chunk,
            act,
            atomic_unit: self
                .options
                .direct_unit
                .filter(|_| self.options.tail == TailPolicy::Atomic),
            allocate_ahead: self.options.allocate_ahead,
            end,
        }))
    }

    /// Writes everything appended to the page cache, also while a sync is on its way.
    ///
    /// # Panics
    /// If the log is direct.
    pub fn hand_over(&mut self) -> Result<()> {
        assert!(
            self.options.direct_unit.is_none(),
            "a direct log has flights"
        );
        self.marks.check()?;
        if self.tail.is_pending() {
            let chunk = self.take()?;
            self.write_now(chunk)
        } else {
            self.check_all_taken()
        }
    }

    /// Nothing is pending. Errors: some of it was taken and never written, because the file panicked. It must
    /// count as nothing.
    fn check_all_taken(&self) -> Result<()> {
        let (flown, end) = (self.flown(), self.tail.end());
        if flown == end {
            return Ok(());
        }
        Err(self.end_with(Error::broken(format!(
            "a log that was written up to {flown} ends at {end}, and nothing is left to write"
        ))))
    }

    /// Everything pending. An error ends the log: what it then holds is not known.
    fn take(&mut self) -> Result<Chunk> {
        let taken = self.tail.take();
        taken
            .and_then(|chunk| self.check_follows(&chunk).map(|()| chunk))
            .map_err(|e| self.end_with(e))
    }

    /// A flight has landed, well or not. Later flights count only once the earlier ones have
    /// landed. The error is the one that ends the log.
    pub fn landed(&mut self, flight: Flight, outcome: Result<()>) -> Result<()> {
        if let Err(e) = outcome {
            self.marks.poison(e.or_file(self.file.path()));
        }
        if let Some(p) = self.flights.iter_mut().find(|p| p.id == flight.id) {
            p.landed = true;
            p.chunk = flight.chunk;
        }
        if let Some(e) = self.marks.failure() {
            return Err(e);
        }
        while self.flights.front().is_some_and(|p| p.landed) {
            let Some(p) = self.flights.pop_front() else {
                break;
            };
            if let Some(chunk) = p.chunk {
                self.tail.reuse(chunk);
            }
            if p.end > self.marks.submitted().0 {
                self.marks.set_submitted(p.end);
            }
            if p.act != Act::Write {
                self.marks.raise_durable(Lsn(p.end));
            }
            if p.act == Act::WriteThenSync && self.marks.submitted().0 == p.end {
                self.unsynced = false;
            }
        }
        self.marks.check_order().map_err(|e| self.end_with(e))
    }

    /// True if every flight has landed, well or not.
    pub fn all_landed(&self) -> bool {
        self.flights.iter().all(|p| p.landed)
    }

    /// After a failure: the records that are in the process still and not known to be durable,
    /// oldest first, or `None` if some are not (bytes that only the page cache had). All flights
    /// have landed.
    pub fn unacknowledged(&self) -> Option<Vec<Vec<u8>>> {
        let all_here = self
            .flights
            .iter()
            .all(|p| p.landed && p.act == Act::WriteDsync && p.chunk.is_some());
        if !all_here || self.unsynced || self.marks.durable() != self.marks.submitted() {
            return None;
        }
        let mut records = Vec::new();
        for chunk in self.flights.iter().filter_map(|p| p.chunk.as_ref()) {
            self.framer
                .unframe(chunk.fresh_from(), chunk.fresh()?, &mut records)?;
        }
        let (from, bytes) = self.tail.pending()?;
        self.framer.unframe(from, bytes, &mut records)?;
        if self.options.compressed {
            let mut inflate = Inflate::new().ok()?;
            for record in &mut records {
                *record = inflate.all(record).ok()?;
            }
        }
        Some(records)
    }

    /// Writes everything appended to the operating system, in one write: it then survives the
    /// process, not a power cut.
    pub fn submit(&mut self) -> Result<Lsn> {
        self.complete(false)?;
        Ok(self.marks.submitted())
    }

    /// Makes everything appended durable: one durable write, or a write and an `fdatasync`, as
    /// [`LogOptions::sync`] says.
    pub fn sync(&mut self) -> Result<Lsn> {
        self.complete(true)?;
        Ok(self.marks.durable())
    }

    fn complete(&mut self, sync: bool) -> Result<()> {
        if let Some(flight) = self.begin(sync)? {
            // Nobody else has the flight: it lands also if the file panics.
            let outcome = catch_unwind(AssertUnwindSafe(|| flight.run()));
            let panicked = |_| Err(Error::aborted("the file panicked when the log was written"));
            self.landed(flight, outcome.unwrap_or_else(panicked))?;
        }
        Ok(())
    }

    /// Bytes of the log, those not yet written included.
    pub fn size(&self) -> u64 {
        self.tail.end()
    }

    /// Bytes that were appended and that no write has taken yet.
    pub fn pending(&self) -> usize {
        self.tail.pending_len()
    }

    /// Whether the file has blocks behind the log's end: [`LogOptions::allocate_ahead`].
    pub fn has_room_ahead(&self) -> bool {
        let allocated = self.marks.device().allocated;
        allocated > self.size() && allocated < u64::MAX
    }

    /// Everything before it is on the device.
    pub fn durable(&self) -> Lsn {
        self.marks.durable()
    }

    /// How far the log has come, to watch from other threads.
    pub fn marks(&self) -> &Arc<Watermarks> {
        &self.marks
    }

    /// Something that syncs this log while others append.
    pub fn syncer(&self) -> Syncer {
        Syncer::new(Arc::clone(&self.file), Arc::clone(&self.marks))
    }

    /// The file.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Forgets what was appended from `to` on, which no flight has taken.
    pub fn cut_back(&mut self, to: Lsn) -> Result<()> {
        self.marks.check()?;
        self.tail.cut_pending(to.0)?;
        self.marks.set_appended(self.tail.end());
        Ok(())
    }

    /// Writes a chunk, with [`LogOptions::head_last`] in steps.
    fn write_chunk(&self, chunk: &Chunk) -> Result<()> {
        let Some(sector) = self.options.head_last.map(u64::from) else {
            return chunk.write(&*self.file, WriteSync::None);
        };
        let from = chunk.fresh_from();
        let room = BLOCK as u64 - from % BLOCK as u64;
        let head = if room < self.framer.header_len() as u64 {
            from + room // behind the trailer of a block
        } else {
            from
        };
        let behind = (head + 1).next_multiple_of(sector).min(chunk.end());
        if behind < chunk.end() {
            chunk.write_between(&*self.file, behind, u64::MAX)?;
            self.file.sync(SyncKind::Data)?;
        }
        // What an error or a short write leaves within the sector must not be a header of a record whose
        // payload is not there. The header of a very short record may reach behind the sector.
        let payload = (head + self.framer.header_len() as u64).min(behind);
        chunk.write_between(&*self.file, payload, behind)?;
        chunk.write_between(&*self.file, from, payload)
    }

    /// Writes a chunk to the page cache; see [`LogOptions::outlives_full_disk`].
    fn write_now(&mut self, chunk: Chunk) -> Result<()> {
        let Err(e) = self.write_chunk(&chunk) else {
            self.unsynced = true;
            self.marks.set_submitted(chunk.end());
            self.tail.reuse(chunk);
            return Ok(());
        };
        let e = e.or_file(self.file.path());
        let full = self.options.outlives_full_disk && e.kind() == ErrorKind::NoSpace;
        if full && self.file.truncate(chunk.fresh_from()).is_ok() {
            self.tail.restore(chunk)?;
            return Err(e);
        }
        Err(self.marks.poison(e))
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

    /// A range that lay outside of the buffer became an empty write that returned Ok: the group was
    /// acknowledged and nowhere. Whatever does not hold ends the log with an error now.
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

    /// A file panicked when it was written to, and the bytes were gone: the next sync had nothing to write,
    /// and made them count as durable.
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

    /// The same where the bytes go to the file.
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
            let e = chunk.write_between(&*w.file, from, to).unwrap_err();
            assert!(e.to_string().contains("internal error"), "{from} {to}: {e}");
        }
        assert_eq!(w.file.len().unwrap(), start);
        chunk.write_between(&*w.file, start, u64::MAX).unwrap();
        assert_eq!(w.file.len().unwrap(), end);
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
        w.options.compressed = true;
        for (packed, right) in [(0..1, true), (0..2, false), (1..2, false)] {
            let done = w.append_around(&[b"one part"], packed.clone());
            assert_eq!(done.is_ok(), right, "{packed:?}");
        }
    }
}
