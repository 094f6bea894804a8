//! The log that all groups of a store share: the only place where a write must be durable before it is
//! answered.
//!
//! ```text
//!   log/000007.log   head  batch batch batch …      direct
//!                    │     └ one durable write each; batches share no unit of the device
//!                    └ 4 KiB: of which store, which number, what came before
//!
//!   append ──> Append, run or done by a queue ──> landed ──> Landed: these batches are durable
//! ```
//!
//! The first batch of a file repeats the state of every group, so that older files are needed for their entries
//! only. Each open begins a new file, so that bytes behind the end of an older one never become valid again. A
//! failed write ends its file: the batches that were not durable are written again to a new file, followed by
//! everything that was appended since.
//!
//! Only entries that the data file has durably may be dropped: see [`RaftLog::prove`].
#![deny(clippy::indexing_slicing)]

pub mod batch;
mod checkpoint;
pub mod file_head;
pub mod files;
pub mod groups;
mod recover;
mod room;
pub mod scan;
#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use base::rng::Rng;
use base::{Error, Result};
use bytes::Bytes;
use io::queue::Request;
use io::{AlignedBuf, File, FileSystem, WriteSync, buffer::PAGE};
use log::{Batches, Flight};

use crate::ids::{Group, Index, Uuid};
use batch::{Item, Kind, Place};
use file_head::FileHead;
use files::Files;
use groups::{Groups, Payload};

pub use checkpoint::{Checkpoint, TruncateToken};

/// The configuration of a store's log.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The store.
    pub store: Uuid,
    /// Bytes that the device writes atomically: see [`io::Probe::write_unit`].
    pub unit: u32,
    /// The most batches that may be on their way at once, at least 1.
    pub depth: u32,
    /// Bytes of a file.
    pub file_bytes: u64,
    /// This many files are reserved for batches without payloads, so that checkpoints always have room.
    pub reserved_files: usize,
    /// Bytes of payloads that are kept in memory; beyond that, the oldest are read from their files.
    pub memory_bytes: u64,
    /// Seed of the files' nonces.
    pub seed: u64,
}

/// The log of a store.
#[derive(Debug)]
pub struct RaftLog {
    options: Options,
    files: Files,
    rng: Rng,
    groups: Groups,
    /// Files in use that are no longer written.
    older: BTreeMap<u64, Arc<dyn File>>,
    current: Current,
    /// Batches that are not durable, the oldest first.
    flying: VecDeque<Flying>,
    /// Batches of a failed file that are not written again yet: they go before all others.
    again: VecDeque<Lost>,
    /// Entries whose payloads are in memory, the oldest first; some of these may be dropped already.
    in_memory: VecDeque<(Group, Index)>,
    /// Number of batches that were appended.
    count: u64,
    /// Up to which entry of each group tokens have proved that the data file has it.
    proven: BTreeMap<Group, Index>,
    /// For groups with a copy under way: entries behind this index are kept.
    pinned: BTreeMap<Group, Index>,
}

/// The file that is being written.
#[derive(Debug)]
struct Current {
    number: u64,
    nonce: u64,
    /// Number and end of the previous file, as in its head.
    predecessor: (u64, u64),
    /// Number of batches in the file.
    sequence: u64,
    log: Batches,
}

/// A batch that is not durable.
#[derive(Debug)]
struct Flying {
    batch: Lost,
    end: u64,
}

/// A batch's content, for the case that its file fails.
#[derive(Debug)]
struct Lost {
    id: BatchId,
    items: Vec<Item>,
    tokens: Vec<TruncateToken>,
}

impl Lost {
    /// Number of items with a payload.
    fn payloads(&self) -> usize {
        let with = |i: &&Item| !i.payload.is_empty();
        self.items.iter().filter(with).count()
    }
}

/// Identifies a batch while the log is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// A batch on its way to the device.
#[derive(Debug)]
#[must_use = "the log waits until `RaftLog::landed` is told how it went"]
pub struct Append {
    flight: Flight,
}

impl Append {
    /// Writes the batch; returns when it is durable.
    pub fn run(&self) -> Result<()> {
        self.flight.run()
    }

    /// The write, as a request for a queue. `None`: [`Append::run`] must do it.
    pub fn request(&mut self, token: u64) -> Option<Request> {
        self.flight.request(token)
    }

    /// Bytes to be written.
    pub fn bytes(&self) -> u64 {
        self.flight.bytes()
    }
}

/// The result of a landed [`Append`].
#[derive(Debug, Default)]
#[must_use = "batches may have to be written again"]
pub struct Landed {
    /// Batches that are durable now, in order.
    pub durable: Vec<BatchId>,
    /// Proofs that the checkpoints in them are durable.
    pub tokens: Vec<TruncateToken>,
    /// After a failed write: the first batch that was not durable, to be written to a new file. The others
    /// follow one by one as it lands.
    pub again: Option<Append>,
}

/// Reads the log in `dir`, which no process may have open, without changing anything. Errors: those of
/// [`RaftLog::open`].
pub fn look(fs: Arc<dyn FileSystem>, dir: &Path, options: &Options, newest: u64) -> Result<Groups> {
    recover::look(fs, dir, options, newest)
}

impl RaftLog {
    /// Opens the log in `dir`, which [`Files::make`] has created: reads what a crash has left, and begins a new
    /// file. `newest`: the number of a file that is known to exist, 0 if none is.
    ///
    /// Errors: Corruption, if an acknowledged entry is missing or damaged.
    pub fn open(
        fs: Arc<dyn FileSystem>,
        dir: &Path,
        options: Options,
        newest: u64,
    ) -> Result<Self> {
        recover::open(fs, dir, options, newest)
    }

    /// The log's knowledge of each group.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The number of the file that is being written.
    pub fn file_number(&self) -> u64 {
        self.current.number
    }

    /// Number of batches that are not durable.
    pub fn flying(&self) -> usize {
        self.flying.len() + self.again.len()
    }

    /// Bytes of payloads in memory.
    pub fn bytes_in_memory(&self) -> u64 {
        self.groups.bytes_in_memory()
    }

    /// Whether a batch of `bytes` ([`batch::bytes`]) may be appended now; otherwise a flight must land
    /// first.
    pub fn can_append(&self, bytes: u64) -> bool {
        // After a failure, everything on its way must land first, and is then written again.
        let failed = self.current.log.marks().failure().is_some() || !self.again.is_empty();
        !failed && (self.flying.is_empty() || (self.fits(bytes) && self.current.log.has_slot(true)))
    }

    /// Appends a batch of entries, hard states, purges, notes of copies, and checkpoints. It is one durable
    /// write.
    ///
    /// Errors: a flight must land first ([`RaftLog::can_append`]); an item is invalid; there is no room
    /// ([`RaftLog::has_room`]), and nothing is appended; or a new file could not be begun, and the log is
    /// unusable.
    pub fn append(
        &mut self,
        items: Vec<Item>,
        checkpoints: &[Checkpoint],
    ) -> Result<(BatchId, Append)> {
        let mine = |i: &Item| !matches!(i.kind, Kind::Checkpoint | Kind::GroupState);
        if !items.iter().all(mine) {
            return Err(Error::broken("a checkpoint without a ticket"));
        }
        let tokens = checkpoints.iter().map(|c| TruncateToken {
            group: c.group,
            through: c.through,
        });
        let tokens = tokens.collect();
        // The empty entry of a new leader may use reserved files: without it nothing is committed, and no
        // room is ever made.
        let has_payloads = items.iter().any(|i| !i.payload.is_empty());
        let mut items = items;
        items.extend(checkpoints.iter().flat_map(Checkpoint::items));
        let bytes = batch::bytes(&items, self.options.unit as usize);
        if !self.can_append(bytes) {
            return Err(Error::broken("a batch too many was appended"));
        }
        self.check_room(items.len(), bytes, has_payloads)?;
        if !self.fits(bytes) {
            self.begin_file(self.current.log.size())?;
        }
        self.count += 1;
        let id = BatchId(self.count);
        let append = self.start(Lost { id, items, tokens })?;
        Ok((id, append))
    }

    /// Makes the items the next batch of the file; the first batch of a file begins with the groups'
    /// states.
    fn start(&mut self, batch: Lost) -> Result<Append> {
        let items = &batch.items;
        let current = &mut self.current;
        let mut all = Vec::new();
        if current.sequence == 0 {
            all = self.groups.states();
            // Batches that are written again later have entries that are not durable here, so the hard
            // state must not say that they are committed.
            for later in self.again.iter().flat_map(|lost| &lost.items) {
                let before = Index(later.index.0.saturating_sub(1));
                let of = |i: &&mut Item| i.kind == Kind::HardState && i.group == later.group;
                if later.kind == Kind::Entry
                    && let Some(hard) = all.iter_mut().find(of)
                {
                    hard.index = hard.index.min(before);
                }
            }
        }
        let states = all.len();
        all.extend(items.iter().cloned());
        let place = Place {
            file_number: current.number,
            nonce: current.nonce,
            sequence: current.sequence + 1,
            durable: current.log.durable().0,
        };
        let unit = self.options.unit as usize;
        let payloads = items.iter().map(|i| i.payload.clone());
        let payloads: Vec<Bytes> = payloads.filter(|p| !p.is_empty()).collect();
        let frame = |_, out: &mut AlignedBuf| batch::frame(place, &all, unit, out);
        let start = current.log.append(frame, payloads)?.0;
        let Some(flight) = current.log.begin(true)? else {
            return Err(Error::broken("a batch has nothing to be written"));
        };
        current.sequence += 1;
        let mut at = start + batch::head_bytes(&all).next_multiple_of(unit) as u64;
        for item in all.get(states..).unwrap_or_default() {
            let payload = Payload {
                offset: at,
                bytes: item.payload.len() as u32,
                here: Some(item.payload.clone()),
            };
            at += item.payload.len() as u64;
            self.groups.take(item, current.number, payload)?;
            if !item.payload.is_empty() {
                self.in_memory.push_back((item.group, item.index));
            }
        }
        let end = flight.end().0;
        self.flying.push_back(Flying { batch, end });
        Ok(Append { flight })
    }

    /// Begins the next file; the current one ends at `end`. Errors: the log is unusable.
    fn begin_file(&mut self, end: u64) -> Result<()> {
        // A file without a durable batch is left out of the chain, and is freed as soon as possible.
        let predecessor = if end > file_head::LEN as u64 {
            (self.current.number, end)
        } else {
            self.current.predecessor
        };
        let number = self.current.number + 1;
        let next = Current::begin(
            &mut self.files,
            &mut self.rng,
            &self.options,
            number,
            predecessor,
        )?;
        let old = std::mem::replace(&mut self.current, next);
        self.older.insert(old.number, Arc::clone(old.log.file()));
        Ok(())
    }

    /// Takes the outcome of an append. Errors: the log is unusable; batches that were not reported as
    /// durable may or may not be.
    pub fn landed(&mut self, append: Append, outcome: Result<()>) -> Result<Landed> {
        let failed = self.current.log.landed(append.flight, outcome).is_err();
        let mut landed = Landed::default();
        let durable = self.current.log.durable().0;
        while self.flying.front().is_some_and(|f| f.end <= durable) {
            let Some(done) = self.flying.pop_front() else {
                break;
            };
            landed.durable.push(done.batch.id);
            landed.tokens.extend(done.batch.tokens);
        }
        if failed && self.current.log.all_landed() {
            self.begin_file(self.current.log.durable().0)?;
            for lost in self.flying.drain(..).rev() {
                let kept = self.in_memory.len().saturating_sub(lost.batch.payloads());
                self.in_memory.truncate(kept);
                self.again.push_front(lost.batch);
            }
        }
        // One at a time, because a file may have room for fewer batches than were on their way at once.
        if self.flying.is_empty()
            && let Some(lost) = self.again.pop_front()
        {
            landed.again = Some(self.write_again(lost)?);
        }
        self.bound_memory();
        Ok(landed)
    }

    /// Writes a batch of a failed file to the next one. Errors: there is no room.
    fn write_again(&mut self, lost: Lost) -> Result<Append> {
        let bytes = batch::bytes(&lost.items, self.options.unit as usize);
        if !self.fits(bytes) {
            self.check_room(lost.items.len(), bytes, false)?;
            self.begin_file(self.current.log.size())?;
        }
        self.start(lost)
    }

    /// Drops the oldest payloads of durable entries from memory, if too many are there.
    fn bound_memory(&mut self) {
        let flying = self.flying.iter().map(|f| f.batch.payloads());
        let flying: usize = flying.sum();
        while self.groups.bytes_in_memory() > self.options.memory_bytes
            && self.in_memory.len() > flying
            && let Some((group, index)) = self.in_memory.pop_front()
        {
            self.groups.unload_one(group, index);
        }
    }

    /// Writes entries of other files again to the current one, which is new, and frees those files.
    fn take_gathered(&mut self, gathered: recover::Gathered) -> Result<()> {
        self.count += 1;
        let append = self.start(Lost {
            id: BatchId(self.count),
            items: gathered.items,
            tokens: Vec::new(),
        })?;
        append.run()?;
        let landed = self.landed(append, Ok(()))?;
        debug_assert!(landed.again.is_none() && landed.durable.len() == 1);
        for number in gathered.files {
            self.files.free(number)?;
            self.older.remove(&number);
        }
        Ok(())
    }

    /// The payload of a group's entry. Errors: the entry is not kept; its file cannot be read, or its content
    /// does not match.
    pub fn payload(&self, group: Group, index: Index) -> Result<Bytes> {
        let entry = self.groups.get(group).and_then(|g| g.entry(index));
        let Some(entry) = entry else {
            return Err(Error::broken(format!(
                "entry {index} of group {group} is not in the log"
            )));
        };
        if let Some(here) = &entry.payload.here {
            return Ok(here.clone());
        }
        let file = if entry.file == self.current.number {
            Some(self.current.log.file())
        } else {
            self.older.get(&entry.file)
        };
        let file = file.ok_or_else(|| Error::broken("an entry's file is not in use"))?;
        Ok(read_entry(&**file, group, index, entry)?.payload)
    }

    /// The number of the newest file with a durable batch; 0: none.
    pub fn durable_file_number(&self) -> u64 {
        if self.current.log.durable().0 > file_head::LEN as u64 {
            return self.current.number;
        }
        self.older.last_key_value().map_or(0, |(&number, _)| number)
    }
}

/// An entry with its payload, read from its file. Errors: it cannot be read, or does not match its
/// checksums.
fn read_entry(file: &dyn File, group: Group, index: Index, entry: &groups::Entry) -> Result<Item> {
    let Payload { offset, bytes, .. } = entry.payload;
    let mut payload = Bytes::new();
    if bytes > 0 {
        let mut buf = AlignedBuf::zeroed((bytes as usize).next_multiple_of(PAGE), PAGE)?;
        io::read_exact_at(file, &mut buf, offset)?;
        buf.resize(bytes as usize)?;
        payload = buf.into();
    }
    let item = Item {
        kind: Kind::Entry,
        flags: entry.flags,
        group,
        index,
        term: entry.term,
        inline: entry.inline.clone(),
        payload,
    };
    if !item.payload_is_whole() {
        let what = format!("entry {index} of group {group} has another checksum");
        return Err(Error::corruption(what).file(file.path()).offset(offset));
    }
    Ok(item)
}

impl Current {
    /// Turns a spare file into a log file; its head is durable on return.
    fn begin(
        files: &mut Files,
        rng: &mut Rng,
        options: &Options,
        number: u64,
        predecessor: (u64, u64),
    ) -> Result<Self> {
        let file = files.take(number)?;
        let head = FileHead {
            unit: options.unit,
            store: options.store,
            number,
            predecessor: predecessor.0,
            predecessor_end: predecessor.1,
            nonce: rng.next_u64(),
        };
        let mut bytes = AlignedBuf::new(PAGE);
        bytes.extend_from_slice(&head.encode())?;
        io::write_all_at(&*file, &bytes, 0, WriteSync::Dsync)?;
        let log = Batches::at(file, file_head::LEN as u64, options.unit, options.depth)?;
        Ok(Self {
            number,
            nonce: head.nonce,
            predecessor,
            sequence: 0,
            log,
        })
    }
}
