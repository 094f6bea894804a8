//! The VersionSet: the only writer of the MANIFEST, and the keeper of the state that it must record.
//!
//! The files of an open database change only by a [`Change`](crate::shared::change::Change). Its edits are durable
//! in the MANIFEST before any reader sees the new Version, and before any file that they make obsolete may
//! be deleted.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use base::stats::{Activity, Histogram, HistogramKind, SharedHistogram};
use base::sync::{Mutex, MutexGuard, PoisonError};
use base::{Error, ErrorKind, FileNumber, Result};
use io::ReadQueues;
use log::LogEnd;
use table::RowCache;
use table::options::PrepopulateBlockCache;

use crate::catalog::family::{Family, FamilySet};
use crate::catalog::metadata::{is_fresh, metadata_of};
use manifest::edit::{CompactCursor, NewFile, VersionEdit, WalAddition};
use manifest::janitor::Janitor;
use manifest::table_cache::{Source, TableCache};
use manifest::version::{FileOnDisk, Next, TableFile};
use manifest::{FileNumbers, Writer};
use options::{ColumnFamilyOptions, Env};

/// Opens the database's table files.
pub(crate) struct Tables {
    pub(crate) dir: PathBuf,
    pub(crate) env: Env,
    pub(crate) cache: Arc<table::BlockCache>,
    /// Charge indexes and filters to the cache, regardless of the families' options.
    pub(crate) charge_metadata: bool,
    pub(crate) janitor: Arc<Janitor>,
    pub(crate) opened: Arc<TableCache>,
    /// Compare the unique id in each file with the MANIFEST's.
    pub(crate) verify_unique_id: bool,
    /// Read the files past the page cache.
    pub(crate) direct: bool,
    /// Queues for reads that are done at the same time; set before the first table is opened.
    pub(crate) read_queues: Weak<ReadQueues>,
    /// Keep blocks out of the second tier of the cache.
    pub(crate) first_tier_only: bool,
    /// Compare each file's size with the MANIFEST's.
    pub(crate) check_sizes: bool,
    /// Compress the blocks of new tables.
    pub(crate) compressors: Arc<dyn table::Compressors>,
    /// Cache numbers of tables whose blocks were put into the cache before the table was opened.
    pub(crate) prepopulated: Mutex<BTreeMap<FileNumber, u64>>,
    /// Durations of file reads in microseconds, by family and level.
    pub(crate) latencies: Mutex<BTreeMap<(u32, u32), Arc<SharedHistogram>>>,
}

impl Tables {
    /// The cache that gets the data blocks of a new table in addition to its file; `None` if no cache does.
    pub(crate) fn prepopulate(
        &self,
        number: FileNumber,
        level: usize,
        options: &ColumnFamilyOptions,
    ) -> Option<table::Prepopulate> {
        let wanted = options.table.prepopulate_block_cache == PrepopulateBlockCache::FlushOnly;
        if level > 0 || !wanted || options.table.no_block_cache {
            return None;
        }
        let cache_id = self.new_cache_id();
        self.lock_prepopulated().insert(number, cache_id);
        Some(table::Prepopulate {
            cache: Arc::clone(&self.cache),
            cache_id,
        })
    }

    /// A number for the blocks of a new table.
    fn new_cache_id(&self) -> u64 {
        if self.first_tier_only {
            self.cache.new_id_of_first_tier()
        } else {
            self.cache.new_id()
        }
    }

    fn lock_prepopulated(&self) -> MutexGuard<'_, BTreeMap<FileNumber, u64>> {
        self.prepopulated
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The durations of reads of a family's files, for each level with reads.
    pub(crate) fn read_latencies(&self, family: u32) -> Vec<(u32, Histogram)> {
        let latencies = self.lock_latencies();
        let mut out = Vec::new();
        for ((_, level), shared) in latencies.range((family, 0)..=(family, u32::MAX)) {
            let mut histogram = Histogram::new();
            shared.collect(&mut histogram);
            if !histogram.is_empty() {
                out.push((*level, histogram));
            }
        }
        out
    }

    fn lock_latencies(&self) -> MutexGuard<'_, BTreeMap<(u32, u32), Arc<SharedHistogram>>> {
        self.latencies
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The meter of the reads of a table. Without statistics, reads are not counted.
    fn meter(&self, family: u32, level: u32, options: &ColumnFamilyOptions) -> table::ReadMeter {
        let limiter = self.env.rate_limiter.as_ref();
        let limiter = limiter.filter(|l| l.mode().reads()).cloned();
        let Some(statistics) = &self.env.statistics else {
            return table::ReadMeter {
                clock: Some(Arc::clone(&self.env.clock)),
                limiter,
                ..table::ReadMeter::default()
            };
        };
        let mut latencies = self.lock_latencies();
        let latency = latencies.entry((family, level)).or_default();
        table::ReadMeter {
            clock: Some(Arc::clone(&self.env.clock)),
            statistics: Some(Arc::clone(statistics)),
            latency: Some(Arc::clone(latency)),
            last_level: level as i32 == options.cf.num_levels - 1,
            limiter,
        }
    }

    /// Opens a table file of the family with this id, for as long as a Version contains it. Its reads are
    /// counted as `activity`. `moved` is the table before it moves here from another level: the new one has its file, and its
    /// blocks in the cache.
    ///
    /// Errors: `Corruption` with the name of the file if it is missing or damaged, or its size differs from the
    /// size in the MANIFEST.
    pub(crate) fn open(
        &self,
        new: &NewFile,
        family: u32,
        options: &ColumnFamilyOptions,
        activity: Activity,
        moved: Option<&Arc<TableFile>>,
    ) -> Result<Arc<TableFile>> {
        let meta = &new.meta;
        let path = files::table_path(&self.dir, meta.number);
        let source = Source {
            path: path.clone(),
            size: self.check_sizes.then_some(meta.file_size),
            direct: self.direct,
            env: self.env.clone(),
        };
        let prepopulated = self.lock_prepopulated().remove(&meta.number);
        let known = prepopulated.or_else(|| moved?.cache_id());
        let rows = moved.and_then(|table| table.rows()).cloned();
        let rows = rows.or_else(|| self.env.row_cache.as_ref().map(RowCache::of_table));
        let how = table::ReaderOptions {
            comparator: options.comparator.clone(),
            block_cache: (!options.table.no_block_cache).then(|| Arc::clone(&self.cache)),
            read_ahead: (&options.table).into(),
            statistics: self.env.statistics.clone(),
            expected_unique_id: meta.unique_id.filter(|_| self.verify_unique_id),
            largest_seqno: meta.largest_seqno,
            warm: prepopulated.is_some(),
            metadata: metadata_of(is_fresh(new, options), &options.table, self.charge_metadata),
            cache_id: Some(known.unwrap_or_else(|| self.new_cache_id())),
            rows,
            prefix_extractor: options.prefix_extractor.clone(),
            meter: self.meter(family, new.level, options),
            activity,
            clock: Some(Arc::clone(&self.env.clock)),
            queues: self.read_queues.clone(),
            ..table::ReaderOptions::default()
        };
        let reader = Arc::new(source.open(how)?);
        let slot = self.opened.slot(&reader, source);
        let on_disk = moved.map_or_else(
            || FileOnDisk::new(path, meta.file_size, Arc::clone(&self.janitor)),
            |table| table.on_disk(),
        );
        TableFile::new(meta.clone(), (&reader, slot), &options.comparator, on_disk)
    }
}

/// The state of the database that a new MANIFEST describes.
#[derive(Clone, Copy)]
pub(crate) struct Contents<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) numbers: &'a FileNumbers,
    pub(crate) families: &'a FamilySet,
    /// The last sequence number in use.
    pub(crate) last_sequence: u64,
}

/// The MANIFEST, and the numbers that it records.
pub(crate) struct VersionSet {
    manifest: Option<Writer>,
    /// The error because of which no more edits are accepted.
    failure: Option<Error>,
    /// Tables of edits that a failed MANIFEST may or may not contain.
    undecided: Vec<PathBuf>,
    pub(crate) max_column_family: u32,
    pub(crate) db_id: String,
    /// Logs below this number are not needed for recovery.
    pub(crate) min_log_number_to_keep: u64,
    pub(crate) max_manifest_file_size: u64,
    /// Closed logs that the MANIFEST records, with the number of their durable bytes.
    pub(crate) tracked_logs: BTreeMap<u64, u64>,
    /// The secrets from which the nonces of logs are derived.
    pub(crate) log_secrets: log::Secrets,
    /// The last log and its end, once the database is being closed.
    log_end: Option<LogEnd>,
    /// The directory entries of logs. They are made durable before an edit that may rely on them.
    pub(crate) log_names: Option<Arc<log::Names>>,
}

impl VersionSet {
    pub(crate) fn new(db_id: String, max_column_family: u32, max_manifest_file_size: u64) -> Self {
        Self {
            manifest: None,
            failure: None,
            undecided: Vec::new(),
            max_column_family,
            db_id,
            min_log_number_to_keep: 0,
            max_manifest_file_size,
            tracked_logs: BTreeMap::new(),
            log_secrets: log::Secrets::default(),
            log_end: None,
            log_names: None,
        }
    }

    /// Makes the names of the logs durable before edits are written. Edits record the first log that is needed. At
    /// least one log from there on must exist after a power cut; otherwise it looks as if the logs had been removed.
    fn make_log_names_durable(&self) -> Result<()> {
        let names = self.log_names.as_ref();
        names.map_or(Ok(()), |names| names.make_newest_durable())
    }

    /// Starts a new MANIFEST that describes the database as it is.
    pub(crate) fn start_manifest(&mut self, contents: Contents<'_>) -> Result<()> {
        let Contents {
            tables, numbers, ..
        } = contents;
        self.make_log_names_durable()?;
        self.log_secrets.forget_below(self.min_log_number_to_keep);
        let number = numbers.take();
        let mut edits = vec![VersionEdit {
            db_id: Some(self.db_id.clone()),
            ..Default::default()
        }];
        for family in contents.families.iter() {
            edits.push(VersionEdit {
                column_family: family.id,
                add_column_family: (family.id != 0).then(|| family.name.clone()),
                comparator: Some(family.comparator().name().to_owned()),
                ..Default::default()
            });
            let version = Arc::clone(&family.view.load().version);
            edits.push(VersionEdit {
                column_family: family.id,
                log_number: Some(family.recorded_log().0),
                compact_cursors: cursors(family),
                new_files: version
                    .files()
                    .map(|(level, f)| NewFile {
                        level: level as u32,
                        meta: f.meta.clone(),
                    })
                    .collect(),
                ..Default::default()
            });
        }
        edits.push(VersionEdit {
            prev_log_number: Some(0),
            next_file_number: Some(numbers.peek()),
            last_sequence: Some(contents.last_sequence),
            max_column_family: Some(self.max_column_family),
            min_log_number_to_keep: Some(self.min_log_number_to_keep),
            log_secrets: self.log_secrets.iter().collect(),
            log_ends: self.log_end.into_iter().collect(),
            ..Default::default()
        });
        if !self.tracked_logs.is_empty() {
            edits.push(additions(&self.tracked_logs));
        }
        let old = self.manifest.as_ref().map(Writer::number);
        self.manifest = Some(Writer::create(
            &*tables.env.fs,
            &tables.dir,
            number,
            &edits,
        )?);
        if let Some(old) = old {
            tables.janitor.add(files::manifest_path(&tables.dir, old));
        }
        Ok(())
    }

    /// Starts a new MANIFEST in place of the current MANIFEST. If that fails, or the file system panics, CURRENT
    /// may already name the new MANIFEST, so nothing is written to the old MANIFEST any more.
    fn replace_manifest(&mut self, contents: Contents<'_>) -> Result<()> {
        self.failure = Some(panicked("was begun"));
        let started = self.start_manifest(contents);
        self.failure = started.as_ref().err().cloned();
        started
    }

    /// Starts a new MANIFEST after the old MANIFEST may have failed. If that succeeds, edits are accepted again.
    pub(crate) fn start_anew(&mut self, contents: Contents<'_>) -> Result<()> {
        let started = self.replace_manifest(contents);
        if started.is_ok() {
            for path in self.undecided.drain(..) {
                contents.tables.janitor.add(path);
            }
        }
        started
    }

    /// Discards tables that are part of no Version. If the MANIFEST has failed, it may name them: they are
    /// kept until a new MANIFEST is begun.
    pub(crate) fn discard(&mut self, janitor: &Janitor, paths: impl IntoIterator<Item = PathBuf>) {
        if self.failure.is_some() {
            self.undecided.extend(paths);
        } else {
            paths.into_iter().for_each(|path| janitor.add(path));
        }
    }

    /// Makes edits durable, all or none: several edits form an atomic group. `contents` is the state before
    /// the edits. Edits that only add families are no group, because RocksDB's secondaries refuse a group that adds
    /// families. They are written together, but after a crash the first of them may be there alone.
    pub(crate) fn log(
        &mut self,
        contents: Contents<'_>,
        mut edits: Vec<VersionEdit>,
    ) -> Result<()> {
        if let Some(e) = &self.failure {
            return Err(e.clone());
        }
        self.make_log_names_durable()?;
        let needed = edits.iter().filter_map(|e| e.min_log_number_to_keep).max();
        let needed = needed.unwrap_or(self.min_log_number_to_keep);
        base::invariant!(
            needed >= self.min_log_number_to_keep,
            "logs from {} on are needed, and then from {needed} on",
            self.min_log_number_to_keep
        );
        let adds_families = edits.iter().all(|e| e.add_column_family.is_some());
        let group = if adds_families { 1 } else { edits.len() };
        for (i, edit) in edits.iter_mut().enumerate() {
            edit.prev_log_number = Some(0);
            edit.next_file_number = Some(contents.numbers.peek());
            edit.last_sequence = Some(contents.last_sequence);
            edit.atomic_group_remaining = (group > 1).then(|| (group - 1 - i) as u32);
        }
        if self
            .manifest
            .as_ref()
            .is_some_and(|m| m.size() > self.max_manifest_file_size)
        {
            self.replace_manifest(contents)?;
        }
        // Logs that are no longer needed may be deleted: the MANIFEST must not require them.
        let goes = self.tracked_logs.range(..needed).next().is_some();
        let forget = goes.then(|| VersionEdit {
            wal_deletion: Some(needed),
            ..Default::default()
        });
        edits.extend(forget);
        self.append(&edits, Some(&contents.tables.env))?;
        // Only now: a MANIFEST that was begun above describes the database without these edits.
        self.min_log_number_to_keep = needed;
        self.tracked_logs = self.tracked_logs.split_off(&needed);
        Ok(())
    }

    /// Records in the MANIFEST closed logs with the number of their durable bytes.
    pub(crate) fn track_logs(&mut self, logs: impl IntoIterator<Item = LogEnd>) -> Result<()> {
        if let Some(e) = &self.failure {
            return Err(e.clone());
        }
        let needed = self.min_log_number_to_keep;
        let new = logs.into_iter().map(|log| (log.number.0, log.end.0));
        let new: BTreeMap<u64, u64> = new.filter(|(n, _)| *n >= needed).collect();
        if !new.is_empty() && self.manifest.is_some() {
            self.append(&[additions(&new)], None)?;
            self.tracked_logs.extend(new);
        }
        Ok(())
    }

    /// Appends edits to the MANIFEST; with `env`, records how long that took. If this fails, or the file
    /// system or the clock panics, the MANIFEST may or may not contain the edits, and no more edits are accepted.
    fn append(&mut self, edits: &[VersionEdit], env: Option<&Env>) -> Result<()> {
        let manifest = self.manifest.as_mut().ok_or_else(|| {
            Error::not_supported("changing the files of a database that is open for reading only")
        })?;
        self.failure = Some(panicked("was written"));
        let timer = env.and_then(|env| Some((&*env.clock, env.statistics.as_ref()?)));
        let began = timer.map(|(clock, _)| clock.monotonic_nanos());
        let appended = manifest.append(edits);
        if let (Some((clock, statistics)), Some(began), Ok(())) = (timer, began, &appended) {
            let nanos = clock.monotonic_nanos().saturating_sub(began);
            statistics.record_time(HistogramKind::ManifestFileSyncMicros, nanos / 1000);
        }
        self.failure = appended.as_ref().err().cloned();
        appended
    }

    /// The error of the MANIFEST, if it has failed. It may or may not contain the last edits, and no more
    /// edits are accepted until a new MANIFEST is begun.
    pub(crate) fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// Records where the last log ends when the database is closed; the whole log is durable.
    pub(crate) fn mark_log_end(&mut self, end: LogEnd) -> Result<()> {
        if let Some(e) = &self.failure {
            return Err(e.clone());
        }
        if self.manifest.is_some() {
            let edit = VersionEdit {
                log_ends: vec![end],
                ..Default::default()
            };
            self.append(&[edit], None)?;
            self.log_end = Some(end);
        }
        Ok(())
    }

    /// The number of the current MANIFEST, and its size in bytes. All of its bytes are durable. `None` if it has
    /// failed.
    pub(crate) fn manifest_end(&self) -> Option<(FileNumber, u64)> {
        let writer = self.manifest.as_ref().filter(|_| self.failure.is_none());
        writer.map(|m| (m.number(), m.size()))
    }

    /// The number of the current MANIFEST.
    pub(crate) fn manifest_number(&self) -> Option<FileNumber> {
        self.manifest.as_ref().map(Writer::number)
    }
}

/// The error of a MANIFEST while an operation on it is running, in case the operation panics. It must not look
/// like an error of a compaction, which may be forgiven.
fn panicked(what: &str) -> Error {
    Error::new(
        ErrorKind::IoError,
        format!("the file system panicked when a MANIFEST {what}"),
    )
}

/// The keys where the family's next compactions start, with `kRoundRobin`.
fn cursors(family: &Family) -> Vec<CompactCursor> {
    let levels = family.compactions.cursors().into_iter().enumerate();
    let known = levels.filter_map(|(level, key)| Some((level as u32, key?)));
    known
        .map(|(level, key)| CompactCursor { level, key })
        .collect()
}

/// The edit that records these logs.
fn additions(logs: &BTreeMap<u64, u64>) -> VersionEdit {
    let addition = |(&log_number, &size)| WalAddition {
        log_number,
        synced_size: Some(size),
    };
    VersionEdit {
        wal_additions: logs.iter().map(addition).collect(),
        ..Default::default()
    }
}

/// New tables of an edit that are open already.
pub(crate) type OpenTables = HashMap<FileNumber, Arc<TableFile>>;

/// The levels from which an edit removes tables, by the number of the table. A table that moves is among the new ones, too.
fn levels_before(edit: &VersionEdit) -> HashMap<FileNumber, usize> {
    let deleted = edit.deleted_files.iter();
    deleted.map(|&(level, n)| (n, level as usize)).collect()
}

impl Tables {
    /// Opens the new tables of an edit for `family`, counted as `activity`, except those that move: they take time, and what
    /// follows is done under the lock of the MANIFEST.
    pub(crate) fn open_ahead(
        &self,
        family: &Family,
        edit: &VersionEdit,
        activity: Activity,
    ) -> Result<OpenTables> {
        let before = levels_before(edit);
        let options = family.options();
        let new = edit.new_files.iter();
        new.filter(|new| !before.contains_key(&new.meta.number))
            .map(|new| {
                let table = self.open(new, family.id, &options, activity, None)?;
                Ok((new.meta.number, table))
            })
            .collect()
    }
}

/// Opens the new files of an edit for `family` that are not open yet, counted as `activity`, and builds its next Version.
pub(crate) fn next_version(
    tables: &Tables,
    family: &Family,
    edit: &VersionEdit,
    activity: Activity,
    mut open: OpenTables,
) -> Result<Next> {
    let mut added = Vec::with_capacity(edit.new_files.len());
    let view = family.view.load();
    let before = levels_before(edit);
    let options = family.options();
    for new in &edit.new_files {
        let from = before.get(&new.meta.number);
        let moved = from.and_then(|&level| view.version.find(level, &new.meta));
        let table = match open.remove(&new.meta.number) {
            Some(table) => table,
            None => tables.open(new, family.id, &options, activity, moved)?,
        };
        added.push((new.level as usize, table));
    }
    view.version.apply(edit, added)
}
