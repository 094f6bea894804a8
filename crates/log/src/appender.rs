//! Appends to a log in three steps, which the caller starts: into the process, to the operating system,
//! to the device.
//!
//! All records appended before an [`Appender::begin`] make a group: they reach the file in one write.
//! That write is a [`Flight`]: the caller runs it without holding the appender, so that others can
//! append meanwhile, and then reports the outcome to [`Appender::landed`]. [`Appender::submit`] and
//! [`Appender::sync`] do all of that in one call, for a caller that does not share the appender.
//!
//! ```text
//!   append append ──> begin ──> Flight::run ──> landed ──> durable
//!         (locked)              (not locked)    (locked)
//! ```
//!
//! The first failed write or sync poisons the log: the content of the file is then unknown, so every
//! later call returns the same error, and nothing is retried. (A second `fdatasync` may succeed
//! although the pages of the first are lost.) A direct log still has the bytes of its failed
//! flights: [`Appender::unacknowledged`] returns the records, to be written to another file.
//!
//! A [`Framing`] turns records into bytes: [`Rocks`](crate::Rocks) for WAL and MANIFEST,
//! [`Aligned`](crate::Aligned) for batches that share no write unit of the device.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use io::queue::Request;
use io::{File, WriteSync};

use crate::names::Names;
use crate::options::{AppendOptions, TailPolicy, WalSync};
use crate::sync::{Lsn, Syncer, Watermarks};
use crate::tail::{Chunk, Content, Tail};

/// Turns records into the bytes of a log, and back.
pub trait Framing: Debug + Sized {
    /// The content of one append: enough to append it to another log.
    type Record;

    /// Extracts the records from appended bytes. `None`: the bytes are not a sequence of whole records.
    fn unframe(&self, content: Content<'_>, out: &mut Vec<Self::Record>) -> Option<()>;

    /// Writes a chunk to the page cache.
    fn write(&self, chunk: &Chunk, file: &dyn File) -> Result<()> {
        chunk.write(file, WriteSync::None)
    }
}

/// Appends to one log file: see the module documentation.
#[derive(Debug)]
pub struct Appender<F: Framing> {
    pub(crate) framing: F,
    file: Arc<dyn File>,
    pub(crate) tail: Tail,
    pub(crate) options: AppendOptions,
    pub(crate) marks: Arc<Watermarks>,
    /// Flights that have not landed, or landed before an earlier one, oldest first.
    flights: VecDeque<Pending>,
    /// Bytes were written without a sync since the last `fdatasync`: a durable write is then not
    /// enough, because it covers its own bytes only.
    unsynced: bool,
    next_id: u64,
}

/// What the appender remembers of a flight.
#[derive(Debug)]
struct Pending {
    id: u64,
    end: u64,
    act: Act,
    landed: bool,
    /// The chunk of a flight that has landed. It is kept because an earlier flight may still fail,
    /// and both are then written again.
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

/// A write, a sync or both, in flight to the device.
#[derive(Debug)]
#[must_use = "the log waits until `Appender::landed` is told how it went"]
pub struct Flight {
    id: u64,
    file: Arc<dyn File>,
    marks: Arc<Watermarks>,
    chunk: Option<Chunk>,
    act: Act,
    /// See [`TailPolicy::Atomic`].
    atomic_unit: Option<u32>,
    /// See [`AppendOptions::allocate_ahead`].
    allocate_ahead: u64,
    end: u64,
}

impl Flight {
    /// Number of bytes that it writes.
    pub fn bytes(&self) -> u64 {
        self.chunk.as_ref().map_or(0, Chunk::bytes)
    }

    /// Runs the write and the sync, and returns when they are done.
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

    /// The write that [`Flight::run`] would do, as a request for an [`io::Queue`]; the caller reports the
    /// outcome to [`Appender::landed`] as well. `None`: the flight is not a single durable write.
    pub fn request(&mut self, token: u64) -> Option<Request> {
        if self.act != Act::WriteDsync || self.atomic_unit.is_some() {
            return None;
        }
        let chunk = self.chunk.as_mut()?;
        Some(Request {
            token,
            file: Arc::clone(&self.file),
            offset: chunk.offset(),
            act: io::queue::Act::Write(chunk.lend(), WriteSync::Dsync),
        })
    }

    /// Allocates blocks for the bytes to come. If that fails, syncs take longer, and a lack of space is
    /// reported by the next write.
    fn allocate(&self, allocated: &mut u64) {
        let upto = self.end.saturating_add(self.allocate_ahead);
        let len = upto - *allocated;
        *allocated = match self.file.allocate(*allocated, len, true) {
            Ok(()) => upto,
            Err(_) => u64::MAX, // not tried again
        };
    }

    /// The end of the log that the flight writes, or makes durable if it syncs.
    pub fn end(&self) -> Lsn {
        Lsn(self.end)
    }
}

impl<F: Framing> Appender<F> {
    /// A log whose first `offset` bytes are durable.
    pub(crate) fn with(
        file: Arc<dyn File>,
        framing: F,
        tail: Tail,
        offset: u64,
        options: AppendOptions,
    ) -> Self {
        Self {
            framing,
            tail,
            options,
            marks: Arc::new(Watermarks::new(offset)),
            file,
            flights: VecDeque::new(),
            unsynced: false,
            next_id: 0,
        }
    }

    /// Sets the directory that holds the file. `unnamed` is the file's place in `names`, if its name
    /// may not be durable yet: the first sync that makes bytes of the log durable makes the name durable
    /// too. Such a log must be written with [`WalSync::Fdatasync`].
    #[must_use]
    pub fn named(self, names: Arc<Names>, unnamed: Option<u64>) -> Self {
        debug_assert!(unnamed.is_none() || self.options.sync == WalSync::Fdatasync);
        self.marks.set_names(names, unnamed);
        self
    }

    /// Ends the log with `error`, to which the file's path is added.
    pub(crate) fn end_with(&self, error: Error) -> Error {
        self.marks.poison(error.or_file(self.file.path()))
    }

    /// The end of the last write that is done or in flight.
    fn flown(&self) -> u64 {
        let submitted = self.marks.submitted().0;
        self.flights.back().map_or(0, |p| p.end).max(submitted)
    }

    /// Errors: `chunk` does not begin where the last one ended.
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

    /// Whether [`Appender::begin`] may be called now; if not, a flight has to land first.
    pub fn can_begin(&self, sync: bool) -> bool {
        !self.is_flying()
            || self.marks.failure().is_some()
            || (self.tail.is_pending() && self.has_slot(sync))
    }

    /// Whether [`Appender::begin`] may be called once more bytes are appended.
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

    /// True while a flight has not landed.
    pub fn is_flying(&self) -> bool {
        !self.flights.is_empty()
    }

    /// Begins to write everything appended to the operating system and, with `sync`, to the device.
    /// `None` if nothing is left to wait for: without `sync`, bytes for the page cache are written
    /// before it returns.
    ///
    /// # Panics
    /// If [`Appender::can_begin`] is false.
    pub fn begin(&mut self, sync: bool) -> Result<Option<Flight>> {
        assert!(self.can_begin(sync), "a flight too many");
        self.marks.check()?;
        let dsync = sync && self.options.sync == WalSync::Dsync && !self.unsynced;
        let mut chunk = None;
        if self.tail.is_pending() {
            let taken = self.take()?;
            if self.options.direct_unit.is_none() && !dsync {
                // A write to the page cache does not wait for the device.
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

    /// Writes everything appended to the page cache, even while a sync is in flight.
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

    /// To be called when nothing is pending. Errors: bytes were taken and never written, because the file
    /// panicked. They must not count as submitted or durable.
    fn check_all_taken(&self) -> Result<()> {
        let (flown, end) = (self.flown(), self.tail.end());
        if flown == end {
            return Ok(());
        }
        Err(self.end_with(Error::broken(format!(
            "a log that was written up to {flown} ends at {end}, and nothing is left to write"
        ))))
    }

    /// Takes everything pending. An error ends the log: its state is then unknown.
    fn take(&mut self) -> Result<Chunk> {
        let taken = self.tail.take();
        taken
            .and_then(|chunk| self.check_follows(&chunk).map(|()| chunk))
            .map_err(|e| self.end_with(e))
    }

    /// Reports that a flight has landed, with its outcome. A flight counts only once all earlier ones
    /// have landed. Errors: the one that ended the log.
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

    /// True if every flight has landed, successfully or not.
    pub fn all_landed(&self) -> bool {
        self.flights.iter().all(|p| p.landed)
    }

    /// After a failure, once all flights have landed: the records that are not known to be durable,
    /// oldest first. `None` if the process no longer has all of them, because some were only in the page
    /// cache.
    pub fn unacknowledged(&self) -> Option<Vec<F::Record>> {
        let all_here = self
            .flights
            .iter()
            .all(|p| p.landed && p.act == Act::WriteDsync && p.chunk.is_some());
        if !all_here || self.unsynced || self.marks.durable() != self.marks.submitted() {
            return None;
        }
        let mut records = Vec::new();
        for chunk in self.flights.iter().filter_map(|p| p.chunk.as_ref()) {
            self.framing.unframe(chunk.fresh()?, &mut records)?;
        }
        self.framing.unframe(self.tail.pending()?, &mut records)?;
        Some(records)
    }

    /// Writes everything appended to the operating system, in one write. The bytes then survive the
    /// process, but not a power cut.
    pub fn submit(&mut self) -> Result<Lsn> {
        self.complete(false)?;
        Ok(self.marks.submitted())
    }

    /// Makes everything appended durable: one durable write, or a write and an `fdatasync`, as
    /// [`WalSync`] says.
    pub fn sync(&mut self) -> Result<Lsn> {
        self.complete(true)?;
        Ok(self.marks.durable())
    }

    fn complete(&mut self, sync: bool) -> Result<()> {
        if let Some(flight) = self.begin(sync)? {
            // Nobody else can report this flight, so it has to land even if the file panics.
            let outcome = catch_unwind(AssertUnwindSafe(|| flight.run()));
            let panicked = |_| Err(Error::aborted("the file panicked when the log was written"));
            self.landed(flight, outcome.unwrap_or_else(panicked))?;
        }
        Ok(())
    }

    /// Size of the log in bytes, including bytes not yet written.
    pub fn size(&self) -> u64 {
        self.tail.end()
    }

    /// Number of appended bytes that no write has taken yet.
    pub fn pending(&self) -> usize {
        self.tail.pending_len()
    }

    /// Whether blocks are allocated behind the log's end: see
    /// [`LogOptions::allocate_ahead`](crate::LogOptions::allocate_ahead).
    pub fn has_room_ahead(&self) -> bool {
        let allocated = self.marks.device().allocated;
        allocated > self.size() && allocated < u64::MAX
    }

    /// Everything before this position is on the device.
    pub fn durable(&self) -> Lsn {
        self.marks.durable()
    }

    /// The log's appended, submitted and durable positions, readable from other threads.
    pub fn marks(&self) -> &Arc<Watermarks> {
        &self.marks
    }

    /// A handle that syncs this log while others append.
    pub fn syncer(&self) -> Syncer {
        Syncer::new(Arc::clone(&self.file), Arc::clone(&self.marks))
    }

    /// The file.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Discards the bytes appended from `to` on. Errors: a write has taken some of them.
    pub fn cut_back(&mut self, to: Lsn) -> Result<()> {
        self.marks.check()?;
        self.tail.cut_pending(to.0)?;
        self.marks.set_appended(self.tail.end());
        Ok(())
    }

    /// Writes a chunk to the page cache; see [`AppendOptions::outlives_full_disk`].
    fn write_now(&mut self, chunk: Chunk) -> Result<()> {
        let Err(e) = self.framing.write(&chunk, &*self.file) else {
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
