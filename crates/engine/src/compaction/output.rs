//! Writes one table file and describes it for the MANIFEST.

use std::sync::Arc;

use base::clock::Clock;
use base::stats::{Activity, HistogramKind, Statistics};
use base::{Comparator, Error, FileNumber, Result, SequenceNumber, ValueType, key};
use io::{IoPriority, RateLimiter};
use keyspan::span::sentinel;
use keyspan::stripes::Tombstone;

use crate::catalog::family::Family;
use crate::catalog::version_set::Tables;
use crate::commit::courtesy::{Courtesy, PIECE};
use crate::commit::stall::Stall;
use crate::info::events::{Created, Teller};
use crate::shared::Shared;
use manifest::FileNumbers;
use manifest::edit::{FileMetaData, NewFile};
use options::ColumnFamilyOptions;
use options::hooks::filter::TableCreationReason;

/// The settings that all outputs of a job share.
pub(crate) struct OutputContext<'a> {
    pub(crate) family: &'a Family,
    /// The family's options when the job began.
    pub(crate) options: Arc<ColumnFamilyOptions>,
    pub(crate) tables: &'a Tables,
    pub(crate) numbers: &'a FileNumbers,
    pub(crate) db_id: &'a str,
    pub(crate) session_id: &'a str,
    /// The current time, in seconds since 1970.
    pub(crate) now: u64,
    /// The epoch number of the outputs: their age among level 0 files.
    pub(crate) epoch: u64,
    /// When the oldest of the input data was written, in seconds since 1970.
    pub(crate) oldest_ancestor_time: u64,
    pub(crate) statistics: Option<Arc<Statistics>>,
    /// Limits the rate at which the outputs are written.
    pub(crate) rate_limit: Option<(Arc<RateLimiter>, IoPriority)>,
    /// The snapshots that entries are kept for, in ascending order.
    pub(crate) snapshots: Vec<SequenceNumber>,
    /// Whether a single deletion over a deletion is an error.
    pub(crate) enforce_single_del_contracts: bool,
    /// Number of bytes after which writeback is started; 0 leaves writeback to the system.
    pub(crate) bytes_per_sync: u64,
    /// Synced writes, which take precedence unless writers are stalled until the job is done; `None` during
    /// recovery.
    pub(crate) courtesy: Option<(&'a Courtesy, &'a Stall)>,
    /// The codec of the blocks and its settings.
    pub(crate) compression: (table::CompressionType, table::CompressionSettings),
    pub(crate) teller: Teller<'a>,
}

impl<'a> OutputContext<'a> {
    /// The settings for the job with this number in LOG, of `family` with these options.
    pub(crate) fn of(
        db: &'a Shared,
        family: &'a Family,
        options: Arc<ColumnFamilyOptions>,
        job: u64,
        reason: TableCreationReason,
    ) -> Self {
        let whole = db.live_options.get();
        let now = db.env().clock.wall_micros() / 1_000_000;
        let limiter = db.env().rate_limiter.as_ref();
        let limiter = limiter.filter(|l| l.mode().writes());
        Self {
            family,
            tables: &db.catalog.tables,
            numbers: &db.catalog.numbers,
            db_id: &db.catalog.db_id,
            session_id: &db.catalog.session_id,
            now,
            epoch: family.take_epoch(),
            oldest_ancestor_time: now,
            statistics: db.env().statistics.clone(),
            rate_limit: limiter.map(|l| (Arc::clone(l), IoPriority::High)),
            snapshots: Vec::new(),
            enforce_single_del_contracts: whole.enforce_single_del_contracts,
            bytes_per_sync: whole.bytes_per_sync,
            courtesy: Some((&db.writes.courtesy, &db.writes.stall)),
            compression: options.cf.compression_of(0, 1, false),
            options,
            teller: Teller {
                info_log: &db.info.log,
                listeners: &db.env().listeners,
                db_dir: db.dir.clone(),
                cf_name: &family.name,
                job,
                reason,
            },
        }
    }

    fn clock(&self) -> &dyn Clock {
        &*self.tables.env.clock
    }

    /// The synced writes that take precedence now, if there are any.
    fn gives_way_to(&self) -> Option<&'a Courtesy> {
        let (courtesy, stall) = self.courtesy?;
        // Writers that are stalled until the job is done gain nothing if it runs slower.
        let pressed = stall.writes_delayed() || stall.writes_stopped();
        (courtesy.is_wanted() && !pressed).then_some(courtesy)
    }

    /// Number of bytes after which writeback is started.
    #[inline]
    fn writeback_step(&self) -> u64 {
        match (self.courtesy, self.bytes_per_sync) {
            (Some((courtesy, _)), _) if courtesy.is_wanted() => courtesy.step(),
            (_, 0) => u64::MAX,
            (_, step) => step,
        }
    }

    /// The purpose that files are written for.
    fn activity(&self) -> Activity {
        match self.teller.reason {
            TableCreationReason::Flush => Activity::Flush,
            TableCreationReason::Compaction => Activity::Compaction,
            TableCreationReason::Recovery => Activity::DbOpen,
            TableCreationReason::Misc => Activity::Unknown,
        }
    }
}

/// A table that is being written. The file is created when the first entry is added.
pub(crate) struct Output<'a> {
    ctx: &'a OutputContext<'a>,
    level: usize,
    number: FileNumber,
    open: Option<Open>,
}

struct Open {
    name: io::NewNames,
    file: Arc<dyn io::File>,
    builder: table::Builder,
    smallest: Vec<u8>,
    largest: Vec<u8>,
    smallest_seqno: u64,
    largest_seqno: u64,
    /// Writeback has been started up to this offset.
    writeback_from: u64,
}

impl<'a> Output<'a> {
    pub(crate) fn new(ctx: &'a OutputContext<'a>, level: usize, number: FileNumber) -> Self {
        Self {
            ctx,
            level,
            number,
            open: None,
        }
    }

    /// Adds an entry, which must come after all earlier entries.
    #[inline]
    pub(crate) fn add(&mut self, internal_key: &[u8], value: &[u8]) -> Result<()> {
        if self.open.is_none() {
            let mut open = Open::create(self.ctx, self.level, self.number)?;
            open.smallest.extend_from_slice(internal_key);
            self.open = Some(open);
        }
        let open = self.open.as_mut().expect("it was just made");
        let seq = key::split(internal_key).map_or(0, |(_, packed)| packed >> 8);
        open.smallest_seqno = open.smallest_seqno.min(seq);
        open.largest_seqno = open.largest_seqno.max(seq);
        open.largest.clear();
        open.largest.extend_from_slice(internal_key);
        open.builder.add(internal_key, value)?;
        let more = open.builder.written() - open.writeback_from;
        if more > 0 && more >= self.ctx.writeback_step() {
            open.write_back(self.ctx, more)?;
        }
        Ok(())
    }

    /// Adds range tombstones after all entries. The file's bounds include them, so that overlap checks find
    /// them. If a tombstone is the last item, the upper bound is exclusive.
    pub(crate) fn add_tombstones<'t>(
        &mut self,
        tombstones: impl Iterator<Item = Tombstone<'t>>,
    ) -> Result<()> {
        let cmp = self.ctx.family.comparator();
        for t in tombstones {
            if self.open.is_none() {
                self.open = Some(Open::create(self.ctx, self.level, self.number)?);
            }
            let open = self.open.as_mut().expect("it was just made");
            open.add_tombstone(cmp, &t)?;
        }
        Ok(())
    }

    /// Approximate number of bytes written so far.
    pub(crate) fn size(&self) -> u64 {
        self.open
            .as_ref()
            .map_or(0, |o| o.builder.file_size_estimate())
    }

    /// The user key of the last entry.
    pub(crate) fn last_user_key(&self) -> Option<&[u8]> {
        self.open.as_ref().map(|o| key::user_key(&o.largest))
    }

    /// Completes the table and makes it and its directory entry durable; `None` if nothing was added.
    pub(crate) fn finish(mut self) -> Result<Option<NewFile>> {
        let Some(open) = self.open.take() else {
            return Ok(None);
        };
        let path = open.file.path().to_path_buf();
        let teller = &self.ctx.teller;
        let mut given_up = GivenUp(self.ctx, Some(&path));
        let new = self
            .complete(open)
            .inspect_err(|e| teller.failed(&path, self.number, e.clone()))?;
        given_up.1 = None;
        let (finished, meta) = new;
        let created = Created {
            number: meta.number,
            file_size: meta.file_size,
            smallest_seqno: meta.smallest_seqno,
            largest_seqno: meta.largest_seqno,
            properties: &finished.properties,
        };
        teller.created(&path, &created);
        Ok(Some(NewFile {
            level: self.level as u32,
            meta,
        }))
    }

    fn complete(&self, open: Open) -> Result<(table::Finished, FileMetaData)> {
        let (file, from) = (&open.file, open.writeback_from);
        let finished = open.builder.finish()?;
        if let Some(courtesy) = self.ctx.gives_way_to() {
            let more = finished.file_size.saturating_sub(from);
            hand_over(&**file, courtesy, self.ctx.clock(), (from, more), 1)?;
        }
        let clock = &self.ctx.tables.env.clock;
        let began = clock.monotonic_nanos();
        open.file.sync(io::SyncKind::Data)?;
        if let Some(s) = &self.ctx.statistics {
            let histogram = match self.ctx.teller.reason {
                TableCreationReason::Compaction => HistogramKind::CompactionOutfileSyncMicros,
                _ => HistogramKind::TableSyncMicros,
            };
            let nanos = clock.monotonic_nanos().saturating_sub(began);
            s.record_time(histogram, nanos / 1000);
        }
        let tables = self.ctx.tables;
        open.name.sync(&*tables.env.fs, &tables.dir)?;
        let meta = FileMetaData {
            number: self.number,
            file_size: finished.file_size,
            smallest: open.smallest,
            largest: open.largest,
            smallest_seqno: open.smallest_seqno,
            largest_seqno: open.largest_seqno,
            oldest_ancestor_time: self.ctx.oldest_ancestor_time,
            file_creation_time: self.ctx.now,
            unique_id: Some(finished.unique_id),
            epoch_number: Some(self.ctx.epoch),
            tail_size: Some(finished.tail_size),
            ..FileMetaData::default()
        };
        Ok((finished, meta))
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            let _given_up = GivenUp(self.ctx, Some(open.file.path()));
            let e = Error::aborted("the table was given up");
            self.ctx.teller.failed(open.file.path(), self.number, e);
        }
    }
}

/// Gives the file of a failed table to the janitor when this is dropped: the file would only take up space.
struct GivenUp<'a>(&'a OutputContext<'a>, Option<&'a std::path::Path>);

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.1 {
            self.0.tables.janitor.add(path.to_path_buf());
        }
    }
}

/// Starts writeback of the range piece by piece, as synced writes permit: if a whole table were in the device's
/// cache, a synced write would wait until all of it is on the medium. Fewer than `least` bytes are
/// left for a later call. Returns the offset where it stopped.
fn hand_over(
    file: &dyn io::File,
    courtesy: &Courtesy,
    clock: &dyn Clock,
    (mut from, mut more): (u64, u64),
    least: u64,
) -> Result<u64> {
    while more >= least && more > 0 {
        let grant = courtesy.grant(clock, more);
        if grant.beside {
            file.write_back(from, grant.bytes)?;
        } else {
            file.start_writeback(from, grant.bytes)?;
        }
        from += grant.bytes;
        more -= grant.bytes;
    }
    Ok(from)
}

impl Open {
    /// Starts writeback of the `more` bytes that were written since the last call.
    #[cold]
    fn write_back(&mut self, ctx: &OutputContext<'_>, more: u64) -> Result<()> {
        let from = self.writeback_from;
        if let Some(courtesy) = ctx.gives_way_to() {
            self.writeback_from =
                hand_over(&*self.file, courtesy, ctx.clock(), (from, more), PIECE)?;
        } else if ctx.bytes_per_sync > 0 && more >= ctx.bytes_per_sync {
            self.file.start_writeback(from, more)?;
            self.writeback_from = from + more;
        }
        Ok(())
    }

    fn add_tombstone(&mut self, cmp: &Comparator, t: &Tombstone<'_>) -> Result<()> {
        let start = key::encode(t.begin, t.sequence, ValueType::RangeDeletion);
        self.builder.add_range_tombstone(&start, t.end)?;
        self.smallest_seqno = self.smallest_seqno.min(t.sequence.0);
        self.largest_seqno = self.largest_seqno.max(t.sequence.0);
        if self.smallest.is_empty() || key::compare(cmp, &start, &self.smallest).is_lt() {
            self.smallest = start;
        }
        let end = sentinel(t.end);
        if self.largest.is_empty() || key::compare(cmp, &end, &self.largest).is_gt() {
            self.largest = end;
        }
        Ok(())
    }

    fn create(ctx: &OutputContext<'_>, level: usize, number: FileNumber) -> Result<Self> {
        let path = files::table_path(&ctx.tables.dir, number);
        ctx.teller.started(&path);
        let name = io::NewNames::begin(&*ctx.tables.env.fs, &ctx.tables.dir);
        let mut file = ctx.tables.env.fs.open(&path, io::OpenHow::CREATE_NEW)?;
        if let Some((limiter, priority)) = &ctx.rate_limit {
            file = io::limiter::limited(file, Arc::clone(limiter), *priority);
        }
        let options = &ctx.options;
        let builder = table::Builder::new(
            Arc::clone(&file),
            table::BuilderOptions {
                table: options.table.clone(),
                comparator: options.comparator.clone(),
                compression: ctx.compression.0,
                compression_opts: ctx.compression.1.clone(),
                compressors: Some(Arc::clone(&ctx.tables.compressors)),
                target_file_size: if level == 0 {
                    0
                } else {
                    options.cf.target_file_size_base
                },
                // -1 stands for a flush, and tables of flushes are on level 0.
                level: if level == 0 { -1 } else { level as i32 },
                prefix_extractor: options.prefix_extractor.clone(),
                prepopulate: ctx.tables.prepopulate(number, level, options),
                column_family_id: ctx.family.id,
                column_family_name: ctx.family.name.clone(),
                db_id: ctx.db_id.to_owned(),
                db_session_id: ctx.session_id.to_owned(),
                db_host_id: String::new(),
                file_number: number.0,
                creation_time: ctx.oldest_ancestor_time,
                oldest_key_time: if level == 0 {
                    ctx.oldest_ancestor_time
                } else {
                    0
                },
                file_creation_time: ctx.now,
                snapshots: ctx.snapshots.clone(),
                merge_operator_name: options.merge_operator.as_ref().map(|m| m.name().to_owned()),
                statistics: ctx.statistics.clone(),
                clock: Some(Arc::clone(&ctx.tables.env.clock)),
                activity: ctx.activity(),
            },
        )
        .map_err(|e: Error| e.or_file(&path))?;
        Ok(Self {
            name,
            file,
            builder,
            smallest: Vec::new(),
            largest: Vec::new(),
            smallest_seqno: u64::MAX,
            largest_seqno: 0,
            writeback_from: 0,
        })
    }
}
