//! Merges the inputs of a compaction into new tables, in one part or in several at the same time.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use base::stats::{Activity, Ticker};
use base::sync::atomic::{AtomicBool, Ordering as Atomic};
use base::sync::{Mutex, MutexGuard, PoisonError, ranked};
use base::{Error, ErrorKind, FileNumber, Result, SequenceNumber, ValueType, key};
use io::IoPriority;
use keyspan::stripes::{Hidden, Tombstones};
use table::InternalIterator;

use super::filter::Filter;
use super::input::{Watch, tombstones_of};
use super::merge::{DropRules, MayExistBelow, Merge};
use super::output::{Output, OutputContext};
use super::progress::Progress;
use super::zero::Zero;
use super::{Pick, split};
use crate::background::parallel::in_parallel;
use crate::catalog::family::Family;
use crate::locks;
use crate::shared::Shared;
use manifest::TableFile;
use manifest::edit::NewFile;
use merging::LevelIter;
use merging::MergingIter;
use options::CompactionStyle;
use options::hooks::filter::{FilterContext, TableCreationReason};
use options::hooks::listener::SubcompactionJobInfo;
use options::hooks::partitioner::{PartitionerContext, SstPartitioner};
use picking::cut::{Cutter, Sizes};
use picking::{Candidate, MANUAL};

/// Bytes that a compaction reads at a time from each input: RocksDB's default since 8.7.
const READAHEAD_BYTES: usize = 2 << 20;
/// The same for all sorted runs of a compaction together: level 0 may have a thousand.
const READAHEAD_BYTES_OF_ALL: usize = 32 << 20;
const READAHEAD_BYTES_MIN: usize = 32 << 10;

/// How long a compaction steps aside before it checks again.
const ASIDE_AT_MOST: Duration = Duration::from_millis(50);

/// The result of a compaction.
#[derive(Default)]
pub(crate) struct Written {
    /// The new tables, in key order.
    pub(crate) files: Vec<NewFile>,
    pub(crate) records: u64,
    pub(crate) subcompactions: usize,
    /// CPU time in nanoseconds.
    pub(crate) cpu_nanos: u64,
    /// Number of single deletions over a version that they must not delete, and over no version.
    pub(crate) single_deletions: (u64, u64),
}

/// Writes the surviving entries of the inputs to new tables.
///
/// If this fails, the database is unchanged, and the new files are removed.
pub(crate) fn run(db: &Arc<Shared>, family: &Arc<Family>, pick: &Pick) -> Result<Written> {
    let snapshots = db.snapshots.sequences();
    let level0 = pick.files().filter(|(level, _)| *level == 0);
    let level0 = level0.map(|(_, f)| Arc::clone(f)).collect();
    let job = Job {
        db,
        family,
        pick,
        tombstones: tombstones(family, pick, &snapshots)?,
        snapshots,
        progress: Progress::new(level0, records(pick)),
        failed: AtomicBool::new(false),
        made: ranked(locks::OUTPUTS, Vec::new()),
    };
    let written = job.run()?;
    job.made().clear();
    Ok(written)
}

/// Unless the compaction succeeds, its new files do not belong to the database: all of them are deleted, even after a
/// panic.
impl Drop for Job<'_> {
    fn drop(&mut self) {
        for &number in self.made().iter() {
            let path = files::table_path(&self.db.dir, number);
            self.db.catalog.tables.janitor.add(path);
        }
    }
}

/// User keys from `from` (inclusive) to the end (exclusive); `None` is unbounded.
#[derive(Clone, Default)]
struct Part {
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
}

/// How long one part of a compaction has stepped aside.
struct Courtesy {
    began: u64,
    waited: u64,
}

impl Courtesy {
    fn beginning(now: u64) -> Self {
        Self {
            began: now,
            waited: 0,
        }
    }

    fn may_wait(&self, now: u64) -> bool {
        self.waited <= now.saturating_sub(self.began) / 2
    }
}

/// The state that the parts of a compaction share.
struct Job<'a> {
    db: &'a Arc<Shared>,
    family: &'a Arc<Family>,
    pick: &'a Pick,
    snapshots: Vec<SequenceNumber>,
    /// The range tombstones that are written again.
    tombstones: Option<Arc<Tombstones>>,
    progress: Progress,
    /// A part has failed: the others must end too.
    failed: AtomicBool,
    /// The numbers of all files that were begun.
    made: Mutex<Vec<FileNumber>>,
}

impl Job<'_> {
    fn run(&self) -> Result<Written> {
        let parts = self.parts();
        let subcompactions = parts.len();
        let tasks: Vec<_> = parts
            .iter()
            .enumerate()
            .map(|(nth, part)| {
                move || {
                    let result = self.told_part(nth, part, subcompactions);
                    if result.is_err() {
                        self.failed.store(true, Atomic::Relaxed);
                    }
                    result
                }
            })
            .collect();
        let mut out = Written {
            subcompactions,
            ..Written::default()
        };
        let mut failure: Option<Error> = None;
        for result in in_parallel("ironstone:sub", tasks) {
            match result {
                Ok(part) => {
                    out.files.extend(part.files);
                    out.records += part.records;
                    out.cpu_nanos += part.cpu_nanos;
                    out.single_deletions.0 += part.single_deletions.0;
                    out.single_deletions.1 += part.single_deletions.1;
                }
                // A part that ended because another part failed reports that as its error.
                Err(e) if failure.is_none() || is_consequence(failure.as_ref()) => {
                    failure = Some(e);
                }
                Err(_) => {}
            }
        }
        failure.map_or(Ok(out), Err)
    }

    fn parts(&self) -> Vec<Part> {
        let set = match self.pick.max_subcompactions {
            0 => self.db.live_options.get().max_subcompactions,
            n => n,
        };
        // Level 0 in level style may get only one file: its files are sorted by age.
        let several = set > 1 && self.pick.output_level > 0;
        let cuts = if several {
            split::boundaries(self.family.comparator(), self.pick, set as usize)
        } else {
            Vec::new()
        };
        let mut parts = vec![Part::default()];
        for cut in cuts {
            if let Some(last) = parts.last_mut() {
                last.to = Some(cut.clone());
            }
            parts.push(Part {
                from: Some(cut),
                to: None,
            });
        }
        parts
    }

    /// Writes one part, and calls listeners if there are several parts.
    fn told_part(&self, nth: usize, part: &Part, of: usize) -> Result<Written> {
        let clock = &self.db.env().clock;
        let cpu = clock.thread_cpu_nanos();
        let told = of > 1 && !self.db.env().listeners.is_empty();
        let info = told.then(|| SubcompactionJobInfo {
            cf_id: self.family.id,
            cf_name: self.family.name.clone(),
            job_id: self.pick.id,
            subcompaction_job_id: nth,
            base_input_level: self.pick.start_level(),
            output_level: self.pick.output_level,
            compaction_reason: self.pick.reason,
        });
        if let Some(info) = &info {
            self.db.info.tell(|l| l.on_subcompaction_begin(info));
        }
        let at_work = self.db.background.load.compaction();
        let mut written = self.part(part)?;
        drop(at_work);
        written.cpu_nanos = clock.thread_cpu_nanos().saturating_sub(cpu);
        if let Some(info) = &info {
            self.db.info.tell(|l| l.on_subcompaction_completed(info));
        }
        Ok(written)
    }

    /// Writes one part.
    fn part(&self, part: &Part) -> Result<Written> {
        let pick = self.pick;
        let ctx = self.context();
        let cmp = self.family.comparator();
        let snapshots = &self.snapshots;
        let tombstones = self.tombstones.as_ref();
        let below = below(pick, self.db.options.db.allow_ingest_behind);
        let rules = DropRules::drop_deletions(cmp.clone(), snapshots.clone(), below)
            .family(&ctx)
            .filter(Filter::of(self.family, &self.filter_context())?)
            .without(tombstones.map(|t| Hidden::by(Arc::clone(t), snapshots)));
        let mut merge = Merge::new(self.input(part), rules).watched(self.watch());
        let mut zero = self.zero();
        let mut cutter = self.cutter();
        let mut done = Vec::new();
        let mut output = Output::new(&ctx, pick.output_level, self.number());
        let mut entries = 0;
        // Where the output file begins; `None` is unbounded.
        let mut from = part.from.clone();
        merge.start()?;
        while merge.valid() {
            let user_key = key::user_key(merge.key());
            // All versions of a key go to one file: files of a level share no user key.
            let last = output.last_user_key();
            if cutter.looks_at(output.size())
                && last.is_none_or(|last| cmp.compare(last, user_key) != Ordering::Equal)
                && cutter.cuts_before(user_key, last.map(|last| (output.size(), last)))
            {
                if let Some(t) = tombstones {
                    output.add_tombstones(t.between(from.as_deref(), Some(user_key)))?;
                }
                from = Some(user_key.to_vec());
                let next = Output::new(&ctx, pick.output_level, self.number());
                done.extend(std::mem::replace(&mut output, next).finish()?);
            }
            output.add(zero.key(merge.key()), merge.value())?;
            merge.note_written();
            merge.next()?;
            entries += 1;
        }
        if let Some(t) = tombstones {
            output.add_tombstones(t.between(from.as_deref(), part.to.as_deref()))?;
            self.db
                .info
                .count(Ticker::CompactionKeyDropRangeDel, merge.num_hidden());
        }
        done.extend(output.finish()?);
        self.check_wanted()?;
        Ok(Written {
            files: done,
            records: entries,
            single_deletions: merge.single_deletions(),
            ..Written::default()
        })
    }

    /// Ends the part if its result is no longer wanted, tells how far it is, and lets flushes go first.
    fn watch(&self) -> Watch<'_> {
        let mut courtesy = Courtesy::beginning(self.db.env().clock.monotonic_nanos());
        let mut read = 0;
        Box::new(move |passed| {
            self.check_wanted()?;
            self.progress
                .add(passed - std::mem::replace(&mut read, passed));
            if self.db.background.load.is_full() {
                self.step_aside(&mut courtesy);
            }
            Ok(())
        })
    }

    fn zero(&self) -> Zero {
        let ingest_behind = self.db.options.db.allow_ingest_behind;
        Zero::of(self.pick, &self.snapshots, ingest_behind)
    }

    fn number(&self) -> FileNumber {
        let number = self.db.catalog.numbers.take();
        self.made().push(number);
        number
    }

    fn made(&self) -> MutexGuard<'_, Vec<FileNumber>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Errors: the result is no longer wanted.
    fn check_wanted(&self) -> Result<()> {
        if self.db.background.is_closing() || self.db.background.is_canceled() {
            return Err(Error::new(
                ErrorKind::ShutdownInProgress,
                "compaction given up",
            ));
        }
        if self.failed.load(Atomic::Relaxed) {
            return Err(Error::aborted(ANOTHER_PART));
        }
        self.pick.check_not_canceled()
    }

    /// Lets a flush have the processor, for at most half of the time that the part takes. Does nothing if
    /// the compaction's caller or writers wait for it.
    #[cold]
    fn step_aside(&self, courtesy: &mut Courtesy) {
        let stall = &self.db.writes.stall;
        let clock = &self.db.env().clock;
        let now = clock.monotonic_nanos();
        if self.pick.manual
            || stall.writes_delayed()
            || stall.writes_stopped()
            || self.is_pressed()
            || !courtesy.may_wait(now)
        {
            return;
        }
        let clock = &*self.db.env().clock;
        self.db.background.load.step_aside(clock, ASIDE_AT_MOST);
        courtesy.waited += clock.monotonic_nanos().saturating_sub(now);
    }

    /// Whether the number of waiting level 0 files is at least halfway from the compaction trigger to the
    /// slowdown trigger.
    fn is_pressed(&self) -> bool {
        let view = self.family.view.load();
        let files = view.version.level(0);
        let waiting = files.iter().filter(|f| !f.is_being_compacted()).count();
        let cf = &self.pick.options.cf;
        let due = cf.level0_file_num_compaction_trigger.unsigned_abs();
        let slow = cf.level0_slowdown_writes_trigger.unsigned_abs();
        waiting >= due.midpoint(slow).max(due) as usize
    }

    fn filter_context(&self) -> FilterContext {
        let pick = self.pick;
        FilterContext {
            is_full_compaction: pick.files().count() == pick.version.files().count(),
            is_manual_compaction: pick.reason == MANUAL,
            input_start_level: pick.start_level(),
            column_family_id: self.family.id,
            reason: TableCreationReason::Compaction,
        }
    }

    fn context(&self) -> OutputContext<'_> {
        let pick = self.pick;
        let reason = TableCreationReason::Compaction;
        let options = Arc::clone(&pick.options);
        let mut ctx = OutputContext::of(self.db, self.family, options, pick.id, reason);
        if let Some((_, priority)) = &mut ctx.rate_limit {
            *priority = IoPriority::Low;
        }
        let metas = || pick.files().map(|(_, f)| &f.meta);
        ctx.epoch = metas().filter_map(|m| m.epoch_number).min().unwrap_or(0);
        ctx.oldest_ancestor_time = metas()
            .map(|m| m.oldest_ancestor_time)
            .filter(|&t| t > 0)
            .min()
            .unwrap_or(ctx.now);
        ctx.compression = pick.compression();
        ctx.snapshots.clone_from(&self.snapshots);
        ctx
    }

    fn cutter(&self) -> Cutter<TableFile> {
        let pick = self.pick;
        let options = &pick.options.cf;
        let early = options.compaction_style == CompactionStyle::Level
            && options.level_compaction_dynamic_file_size
            && !pick.grandparents.is_empty();
        let target = pick.target_file_bytes;
        let sizes = Sizes {
            target,
            max: if early {
                target.saturating_mul(2)
            } else {
                target
            },
            overlap_max: pick.grandparent_bytes_max,
            early,
        };
        let cmp = self.family.comparator().clone();
        Cutter::new(cmp, sizes, pick.grandparents.clone(), self.partitioner())
    }

    fn partitioner(&self) -> Option<Box<dyn SstPartitioner>> {
        let factory = self.pick.options.sst_partitioner_factory.as_ref()?;
        // Level 0 is not cut: its files are ordered by age, not by key.
        if self.pick.output_level == 0 {
            return None;
        }
        factory.create_partitioner(&PartitionerContext {
            is_manual_compaction: self.pick.manual,
            output_level: self.pick.output_level,
            smallest_user_key: &self.pick.range.smallest,
            largest_user_key: &self.pick.range.largest,
        })
    }

    fn input(&self, part: &Part) -> Box<dyn InternalIterator> {
        let runs = |(level, files): &(usize, Vec<_>)| if *level == 0 { files.len() } else { 1 };
        let runs: usize = self.pick.inputs.iter().map(runs).sum();
        let options = table::ReadOptions {
            verify_checksums: true,
            fill_cache: false,
            readahead_bytes: (READAHEAD_BYTES_OF_ALL / runs.max(1))
                .clamp(READAHEAD_BYTES_MIN, READAHEAD_BYTES),
            cache_only: false,
            activity: Activity::Compaction,
            rate_limiter_priority: Some(IoPriority::Low),
            ..table::ReadOptions::default()
        };
        let cmp = self.family.comparator();
        let mut children: Vec<Box<dyn InternalIterator>> = Vec::new();
        for (level, files) in &self.pick.inputs {
            if *level == 0 {
                for f in files {
                    let file = Arc::clone(f);
                    children.push(LevelIter::one(cmp.clone(), file, options, false));
                }
            } else {
                let files = files.clone();
                children.push(LevelIter::new(cmp.clone(), files, options, false));
            }
        }
        let merged = MergingIter::new(cmp.clone(), children);
        if part.from.is_none() && part.to.is_none() {
            return Box::new(merged);
        }
        Box::new(Clipped {
            inner: merged,
            comparator: cmp.clone(),
            part: part.clone(),
        })
    }
}

/// The range tombstones of the inputs. Tombstones that hide no data below are not written again.
fn tombstones(
    family: &Family,
    pick: &Pick,
    snapshots: &[SequenceNumber],
) -> Result<Option<Arc<Tombstones>>> {
    let inputs = pick.files().map(|(_, f)| f);
    let mut all = tombstones_of(family.comparator(), inputs, snapshots)?;
    if let Some(all) = &mut all {
        let version = &pick.version;
        // Level 0 is not one sorted run: a table written there may hide data in any of its other files.
        let first = match pick.output_level {
            0 => 0,
            level => level + 1,
        };
        all.drop_obsolete(snapshots, &|begin, end| {
            (first..version.num_levels()).any(|level| version.has_between(level, begin, end))
        });
    }
    Ok(all.map(Arc::new))
}

const ANOTHER_PART: &str = "another part of the compaction failed";

/// Whether a part failed only because another part failed.
fn is_consequence(e: Option<&Error>) -> bool {
    e.is_some_and(|e| e.to_string().contains(ANOTHER_PART))
}

/// Whether a key may exist below the output, outside of the inputs. Keys must be passed in ascending
/// order: each sorted level keeps a position, so the whole compaction passes over it once. With
/// `allow_ingest_behind`, any key may still appear.
fn below(pick: &Pick, ingest_behind: bool) -> MayExistBelow {
    if ingest_behind {
        return Box::new(|_| true);
    }
    let version = Arc::clone(&pick.version);
    let output = pick.output_level;
    let inputs: Vec<FileNumber> = pick.files().map(|(_, f)| f.number()).collect();
    // Level 0 files older than the inputs stay in level 0 if the output does.
    let old: Vec<_> = if output == 0 {
        let all = version.level(0).iter();
        all.filter(|f| !inputs.contains(&f.number()))
            .cloned()
            .collect()
    } else {
        Vec::new()
    };
    let mut positions = vec![0usize; version.num_levels()];
    Box::new(move |user_key| {
        if old.iter().any(|f| f.spans(&version.comparator, user_key)) {
            return true;
        }
        for (level, at) in positions.iter_mut().enumerate().skip(output + 1) {
            let files = version.level(level);
            while let Some(f) = files.get(*at) {
                if version.comparator.compare(f.largest_user_key(), user_key) != Ordering::Less {
                    if version.comparator.compare(f.smallest_user_key(), user_key)
                        != Ordering::Greater
                    {
                        return true;
                    }
                    break;
                }
                *at += 1;
            }
        }
        false
    })
}

/// A cursor that begins at the first entry of a part and ends after its last one. Forward only.
struct Clipped {
    inner: MergingIter,
    comparator: base::Comparator,
    part: Part,
}

impl InternalIterator for Clipped {
    fn valid(&self) -> bool {
        self.inner.valid()
            && self.part.to.as_ref().is_none_or(|to| {
                self.comparator
                    .compare(key::user_key(self.inner.key()), to)
                    .is_lt()
            })
    }

    fn seek_to_first(&mut self) {
        match &self.part.from {
            None => self.inner.seek_to_first(),
            Some(from) => {
                let first = key::encode(from, SequenceNumber::MAX, ValueType::FOR_SEEK);
                self.inner.seek(&first);
            }
        }
    }

    fn seek_to_last(&mut self) {
        self.inner.seek_to_last();
    }

    fn seek(&mut self, target: &[u8]) {
        self.inner.seek(target);
    }

    fn seek_for_prev(&mut self, target: &[u8]) {
        self.inner.seek_for_prev(target);
    }

    fn next(&mut self) {
        self.inner.next();
    }

    fn prev(&mut self) {
        self.inner.prev();
    }

    fn key(&self) -> &[u8] {
        self.inner.key()
    }

    fn value(&self) -> &[u8] {
        self.inner.value()
    }

    fn status(&self) -> Result<()> {
        self.inner.status()
    }
}

/// The number of entries in all inputs, for LOG.
pub(crate) fn records(pick: &Pick) -> u64 {
    pick.files().map(|(_, f)| f.counts().entries).sum()
}
