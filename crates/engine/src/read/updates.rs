//! The writes since a sequence number, read back from the logs: RocksDB's
//! `TransactionLogIterator`, for replication and change capture.
//!
//! ```text
//!   archive/000005.log   000008.log   000009.log (being written)
//!   ────────────────────>────────────>─────────>│ end: not valid, no error
//!                                               │ more is written: next() goes on
//! ```
//!
//! A record is shown once it is published, so that readers of the database see it too. Batches come out
//! as the application wrote them: the notes, sync fences and no-ops that Ironstone adds to records are
//! removed, and batches that consist of nothing else are skipped. `LogData` of the application stays.
//!
//! The file may change while it is read, and data that was read ahead may be stale. So wherever the log seems
//! to end or to have a gap, that place is read once more before the iterator reports it.

use std::sync::Arc;

use base::stats::Ticker;
use base::{Error, FileNumber, Result};
use log::{End, Fence};

use crate::batch::{HEADER_LEN, Record, WriteBatch};
use crate::shared::Shared;
use crate::wal::archive::plain_reader;
use crate::wal::directory::Pinned;
use crate::wal::{Wal, WalFile};

/// Goes through batches in the order of their sequence numbers; made by
/// [`Db::get_updates_since`](crate::Db::get_updates_since).
///
/// The iterator is at a batch, or at no batch if it has shown everything that is published and in the logs. In
/// the latter case [`UpdatesIterator::valid`] is false, the status is no error, and [`UpdatesIterator::next`]
/// goes on as soon as there is more. After an error the iterator stays at no batch. To skip a gap, make a new
/// iterator from the next sequence number on.
pub struct UpdatesIterator {
    db: Arc<Shared>,
    /// The first sequence number wanted.
    from: u64,
    /// The last sequence number that was shown; `None` before the first batch.
    last: Option<u64>,
    /// The last log that was read to its end, or that is skipped.
    done: FileNumber,
    log: Option<OpenLog>,
    /// A batch that was read and is not published yet, and the offset in its log before it.
    held: Option<(WriteBatch, u64)>,
    current: Option<WriteBatch>,
    failure: Option<Error>,
    /// The damage in which an earlier log ended.
    torn: Option<Error>,
}

/// The log being read.
struct OpenLog {
    number: FileNumber,
    reader: log::Reader,
    /// The reader has not read the file since it was placed at its offset.
    placed: bool,
    /// The last record was the first record after the reader was placed, so it is not stale.
    fresh: bool,
    /// It seemed to end in damage while it was being written.
    suspect: bool,
    pin: Pinned,
}

impl std::fmt::Debug for UpdatesIterator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UpdatesIterator({:?} in log {})", self.last, self.done)
    }
}

/// The iterator from the batch that contains `from` on; see `Db::get_updates_since`.
pub(crate) fn since(db: &Arc<Shared>, from: u64) -> Result<UpdatesIterator> {
    db.info.count(Ticker::GetUpdatesSinceCalls, 1);
    let visible = db.writes.visible().0;
    if from > visible {
        return Err(Error::not_found(format!(
            "sequence {from} is not written yet: the last one is {visible}"
        )));
    }
    let files = sorted(&db.wal)?;
    // If no log begins at or before `from`, start with the first log: a log that begins with damage may have held
    // the batch.
    let first = files.iter().rfind(|f| f.start_sequence() <= from);
    let mut it = UpdatesIterator {
        db: Arc::clone(db),
        from,
        last: None,
        done: FileNumber(first.map_or(0, |f| f.log_number() - 1)),
        log: None,
        held: None,
        current: None,
        failure: None,
        torn: None,
    };
    it.next();
    it.status().map(|()| it)
}

/// Every log that contains a batch, archived logs first.
pub(crate) fn sorted(wal: &Wal) -> Result<Vec<WalFile>> {
    wal.directory.sorted()
}

/// Whether nothing more is written to the log, because there is a newer log.
fn is_whole(wal: &Wal, number: FileNumber) -> Result<bool> {
    match wal.logs.newest() {
        Some(newest) => Ok(number < newest),
        None => Ok(wal.directory.numbers()?.keys().any(|n| *n > number)),
    }
}

impl UpdatesIterator {
    /// Whether the iterator is at a batch.
    pub fn valid(&self) -> bool {
        self.current.is_some()
    }

    /// The sequence number of the batch's first record.
    ///
    /// # Panics
    /// If the iterator is not valid.
    pub fn sequence(&self) -> u64 {
        self.batch().sequence()
    }

    /// The batch.
    ///
    /// # Panics
    /// If the iterator is not valid.
    pub fn batch(&self) -> &WriteBatch {
        #[expect(clippy::expect_used, reason = "the contract of the method")]
        self.current.as_ref().expect("the iterator is not valid")
    }

    /// Takes the batch out. The iterator is not valid until the next [`UpdatesIterator::next`].
    pub fn take(&mut self) -> Option<WriteBatch> {
        self.current.take()
    }

    /// The error that ended the iteration. `NotFound`: the logs with the next writes were deleted, or those
    /// writes were made with `disable_wal`. `Corruption`: sequence numbers are missing inside a log (they were
    /// written with `disable_wal`, or lost), or a log is damaged.
    pub fn status(&self) -> Result<()> {
        self.failure.as_ref().map_or(Ok(()), |e| Err(e.clone()))
    }

    /// Moves to the next batch, or to no batch if there is none now. Does nothing after an error.
    pub fn next(&mut self) {
        self.current = None;
        if self.failure.is_some() {
            return;
        }
        match self.advance() {
            Ok(batch) => self.current = batch,
            Err(e) => self.failure = Some(e),
        }
    }

    fn advance(&mut self) -> Result<Option<WriteBatch>> {
        loop {
            let visible = self.db.writes.visible().0;
            if self.last.is_some_and(|last| last >= visible) {
                return Ok(None);
            }
            let next = match self.held.take() {
                Some(held) => Some(held),
                None => self.read()?,
            };
            let Some((batch, before)) = next else {
                return Ok(None);
            };
            if last_of(&batch) > visible {
                self.held = Some((batch, before));
                return Ok(None);
            }
            if let Some(batch) = self.judge(batch, before)? {
                return Ok(Some(batch));
            }
        }
    }

    /// Shows the next batch of the logs, or skips it. Errors: there is a gap before it.
    fn judge(&mut self, batch: WriteBatch, before: u64) -> Result<Option<WriteBatch>> {
        let (first, last) = (batch.sequence(), last_of(&batch));
        let Some(shown) = self.last else {
            if last < self.from {
                return Ok(None);
            }
            if first > self.from && self.torn.is_some() {
                return Err(self.gap(self.from, first, before));
            }
            return self.show(batch);
        };
        if last <= shown && batch.count() > 0 {
            return Ok(None); // logged again after a failure
        }
        if first == shown + 1 || (batch.count() == 0 && first <= shown) {
            return self.show(batch);
        }
        if self.look_again(before) {
            return Ok(None);
        }
        Err(self.gap(shown + 1, first, before))
    }

    /// The batch without what Ironstone added; `None` if nothing is left of it.
    fn show(&mut self, batch: WriteBatch) -> Result<Option<WriteBatch>> {
        let last = last_of(&batch);
        self.last = Some(self.last.map_or(last, |shown| shown.max(last)));
        self.torn = None;
        strip(batch)
    }

    /// Goes back to `offset` to read the log again, unless the last record is not stale. Returns whether
    /// it does.
    fn look_again(&mut self, offset: u64) -> bool {
        match &mut self.log {
            Some(log) if !log.fresh => {
                log.place(offset);
                true
            }
            _ => false,
        }
    }

    /// The error of missing sequence numbers, `expected` to `found` - 1.
    fn gap(&mut self, expected: u64, found: u64, before: u64) -> Error {
        let go_on = format!("go on with get_updates_since({found}), or copy the database anew");
        if let Some(torn) = self.torn.take() {
            return torn.hint(format!(
                "sequence {expected} should follow; the next log begins with {found}; {go_on}"
            ));
        }
        let path = self.log.as_ref().map(|l| l.pin.file.path().to_path_buf());
        let missing = if found > expected {
            format!("sequences {expected} to {} are missing", found - 1)
        } else {
            format!("a batch from sequence {found} on overlaps what was written before it")
        };
        let error = if before == 0 && found > expected {
            Error::not_found(format!(
                "{missing}: the logs that held them were deleted, or they were written with \
                 disable_wal"
            ))
        } else {
            Error::corruption(format!("gap in sequence numbers: {missing}")).offset(before)
        };
        match path {
            Some(path) => error.file(path).hint(go_on),
            None => error.hint(go_on),
        }
    }

    /// The next batch in the logs, and the offset in its log before it; `None` if there is none now.
    fn read(&mut self) -> Result<Option<(WriteBatch, u64)>> {
        let mut record = Vec::new();
        loop {
            if self.log.is_none() && !self.open_next()? {
                return Ok(None);
            }
            let Some(log) = &mut self.log else {
                return Ok(None);
            };
            // Both are read before the file: the file then has at least that much.
            let whole = is_whole(&self.db.wal, log.number)?;
            let submitted = if log.suspect {
                self.db.wal.submitted(log.number)
            } else {
                None
            };
            let before = log.reader.end().offset();
            let placed = std::mem::take(&mut log.placed);
            if log.reader.read(&mut record)? {
                (log.fresh, log.suspect) = (placed, false);
                let at = log.reader.record_offset();
                let located = |e: Error| e.or_file(log.pin.file.path()).offset(at);
                if record.len() < HEADER_LEN {
                    return Err(located(Error::corruption("log record too small")));
                }
                let batch = WriteBatch::from_data(record).map_err(located)?;
                return Ok(Some((batch, before)));
            }
            if !placed {
                log.place(before);
                continue;
            }
            if !whole {
                let damage = log.damage();
                let first_time = damage.is_some() && !log.suspect;
                log.suspect = damage.is_some();
                match damage {
                    Some(damage) if submitted.is_some_and(|end| before < end) => {
                        return Err(damage);
                    }
                    _ => log.place(before),
                }
                if first_time {
                    continue;
                }
                return Ok(None);
            }
            if let Some(error) = log.damage() {
                self.torn = Some(error);
            }
            self.done = log.number;
            self.log = None;
        }
    }

    /// Opens the next log; false if there is none yet.
    fn open_next(&mut self) -> Result<bool> {
        let directory = &self.db.wal.directory;
        for number in directory.numbers()?.into_keys().filter(|n| *n > self.done) {
            match directory.open_log(number) {
                Ok(pin) => {
                    self.log = Some(OpenLog {
                        number,
                        reader: plain_reader(Arc::clone(&pin.file), number),
                        placed: true,
                        fresh: false,
                        suspect: false,
                        pin,
                    });
                    return Ok(true);
                }
                // Deleted since the listing: the next log shows whether something is missing.
                Err(e) if e.is_not_found() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(false)
    }
}

impl OpenLog {
    /// Places the reader at `offset`, to go on with the current content of the file.
    fn place(&mut self, offset: u64) {
        self.reader.resume(offset);
        self.placed = true;
    }

    /// The damage in which the log ended.
    fn damage(&self) -> Option<Error> {
        match self.reader.end() {
            End::Torn { offset, reason, .. } => Some(
                Error::corruption(*reason)
                    .file(self.pin.file.path())
                    .offset(*offset),
            ),
            _ => None,
        }
    }
}

/// The sequence number of the batch's last record; one less than its own if it has none.
fn last_of(batch: &WriteBatch) -> u64 {
    (batch.sequence() + u64::from(batch.count())).saturating_sub(1)
}

/// Removes notes from the front, and fences and no-ops from the end. `None` if the batch consists of nothing
/// else.
fn strip(batch: WriteBatch) -> Result<Option<WriteBatch>> {
    let (mut from, mut keep) = (HEADER_LEN, HEADER_LEN);
    let mut records = batch.records();
    while let Some(record) = records.next() {
        let added = match record? {
            Record::Noop => true,
            Record::LogData(bytes) => {
                let note = log::Note::of(bytes).is_some();
                if note && keep == from {
                    from = records.offset();
                    keep = from;
                }
                note || Fence::of(bytes).is_some()
            }
            _ => false,
        };
        if !added {
            keep = records.offset();
        }
    }
    if keep == from {
        return Ok(None);
    }
    if from == HEADER_LEN && keep == batch.data().len() {
        return Ok(Some(batch));
    }
    let mut data = batch.into_data();
    data.truncate(keep);
    data.drain(HEADER_LEN..from);
    WriteBatch::from_data(data).map(Some)
}
