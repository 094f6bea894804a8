//! Ingestion: tables made by an `SstFileWriter` become part of a database.
//!
//! ```text
//!   look      check that each file is complete and of the right kind   nothing is written
//!   bring in  link or copy it under a number of this database          no MANIFEST names it yet
//!   flush     memtables that contain keys of the files                 writers continue
//!   commit    writers wait: levels, sequence numbers, one group of MANIFEST edits, new Views
//!   tidy      remove the old names of moved files
//! ```
//!
//! Each call is atomic: either all of its files, in all families, are ingested or none. An error before the commit
//! removes the new files. Earlier writes are made durable before the MANIFEST names the files, so that a crash
//! never loses an earlier write but keeps an ingested file.

mod place;
mod prepare;
pub(crate) mod sst_file_writer;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::stats::{Activity, HistogramKind};
use base::{Error, ErrorKind, Result};
use io::{FileSystem, NewNames};

use crate::background::Background;
use crate::catalog::family::Family;
use crate::catalog::job_stats::Incoming as Added;
use crate::db::cf::Cf;
use crate::db::{ColumnFamily, Db, maintenance};
use crate::info::Info;
use crate::info::log::{Event, InfoLog};
use crate::shared::Shared;
use crate::shared::exclusive::Exclusive;
use crate::write::{debt, pace, submit};
use files::copies::{Made, parent};
use manifest::Version;
use manifest::edit::VersionEdit;
use options::hooks::listener::{ExternalFileIngestionInfo, FlushReason};
use options::{Env, FlushOptions};
use place::{Memory, Place};
use prepare::Incoming;

/// The epoch number of files that were ingested with `ingest_behind`, as in RocksDB.
const EPOCH_BEHIND: u64 = 1;

/// How often memtables are flushed while writers continue, before writers are made to wait for a flush.
const TRIES_BESIDE_WRITERS: u32 = 2;
/// How long writers are made to wait for a flush at most.
const WITHOUT_WRITERS_MAX: Duration = Duration::from_millis(500);

/// Options of an ingestion. Names and defaults are RocksDB's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "RocksDB's options, each a switch of its own"
)]
pub struct IngestExternalFileOptions {
    /// Whether the files are moved into the database by hard links instead of being copied. They must not be
    /// changed afterwards. Their old names are removed at the end.
    pub move_files: bool,
    /// Whether a file that cannot be hard-linked is copied instead.
    pub failed_move_fall_back_to_copy: bool,
    /// Whether the files are hidden from snapshots that already exist.
    pub snapshot_consistency: bool,
    /// Whether the files may be assigned a sequence number. If not, the ingestion fails if the database has any of
    /// their keys, or a snapshot that must not see them.
    pub allow_global_seqno: bool,
    /// Whether memtables that contain keys of the files may be flushed.
    pub allow_blocking_flush: bool,
    /// Whether the files are placed below all existing data, on the last level, so that existing keys hide theirs.
    /// The database must always have been opened with `allow_ingest_behind`.
    pub ingest_behind: bool,
    /// Whether an assigned sequence number is also written into the file, for RocksDB before 5.16. It is always
    /// stored in the MANIFEST.
    pub write_global_seqno: bool,
    /// Whether the checksum of every block is verified first.
    pub verify_checksums_before_ingest: bool,
    /// Whether the ingestion fails with `TryAgain` if a file does not fit into the last level.
    pub fail_if_not_bottommost_level: bool,
}

impl Default for IngestExternalFileOptions {
    fn default() -> Self {
        Self {
            move_files: false,
            failed_move_fall_back_to_copy: true,
            snapshot_consistency: true,
            allow_global_seqno: true,
            allow_blocking_flush: true,
            ingest_behind: false,
            write_global_seqno: false,
            verify_checksums_before_ingest: false,
            fail_if_not_bottommost_level: false,
        }
    }
}

/// Files for one column family.
#[derive(Clone, Debug)]
pub struct IngestExternalFileArg {
    /// The column family that receives the files.
    pub column_family: ColumnFamily,
    /// The files. If several have the same key, the later file wins.
    pub external_files: Vec<PathBuf>,
    /// The options of the ingestion.
    pub options: IngestExternalFileOptions,
}

/// The files of one family.
struct Job<'a> {
    family: &'a Arc<Family>,
    options: &'a IngestExternalFileOptions,
    files: Vec<Incoming>,
    /// Whether key ranges of the files overlap.
    overlap: bool,
}

/// The level of a file, and its sequence number as an offset from the last used sequence number. An offset of 0 stands
/// for sequence number 0.
struct Assigned {
    level: usize,
    nth: u64,
}

/// The result of a commit.
struct Committed {
    /// By index of the job and of the file.
    assigned: Vec<Vec<Assigned>>,
    /// The last sequence number that was used before the commit.
    before: u64,
}

/// Bulk loading.
impl Cf<'_> {
    /// Adds files written by an [`SstFileWriter`](crate::SstFileWriter) to the family, as one atomic write that is
    /// newer than all existing data. With [`ingest_behind`](IngestExternalFileOptions::ingest_behind), it is older.
    ///
    /// Errors: a file is damaged, is empty, or was not made by an `SstFileWriter` of Ironstone or RocksDB; it was
    /// written with another comparator or for another column family; the options forbid it. An error leaves the data
    /// unchanged. The exception is a failure of the MANIFEST: the database then refuses writes, and may have the
    /// files after it is opened again.
    pub fn ingest_external_file(
        &self,
        files: &[impl AsRef<Path>],
        options: &IngestExternalFileOptions,
    ) -> Result<()> {
        let arg = IngestExternalFileArg {
            column_family: self.column_family(),
            external_files: files.iter().map(|f| f.as_ref().to_path_buf()).collect(),
            options: options.clone(),
        };
        ingest(self.shared, &[arg])
    }
}

/// Bulk loading.
impl Db {
    /// Adds files to the default column family: see [`Cf::ingest_external_file`].
    pub fn ingest_external_file(
        &self,
        files: &[impl AsRef<Path>],
        options: &IngestExternalFileOptions,
    ) -> Result<()> {
        self.default_cf().ingest_external_file(files, options)
    }

    /// [`Db::ingest_external_file`] into several column families atomically: after a crash, the database has either all
    /// files or none. Errors: as [`Cf::ingest_external_file`]; a family occurs twice.
    pub fn ingest_external_files(&self, args: &[IngestExternalFileArg]) -> Result<()> {
        ingest(&self.shared, args)
    }
}

/// Ingests files into families. An error leaves the data unchanged, unless the MANIFEST failed.
pub(crate) fn ingest(db: &Shared, args: &[IngestExternalFileArg]) -> Result<()> {
    db.check_writable()?;
    check(db, args)?;
    let preparing = db.info.timer();
    let mut jobs = Vec::with_capacity(args.len());
    for arg in args {
        jobs.push(Job::look(db.env(), arg)?);
    }
    let mut made = Made::new(Arc::clone(&db.env().fs));
    let names = NewNames::begin(&*db.env().fs, &db.dir);
    for job in &mut jobs {
        for file in &mut job.files {
            file.bring_in(db, job.options, &mut made)?;
        }
    }
    names.sync(&*db.env().fs, &db.dir)?;
    db.info
        .timed(HistogramKind::IngestExternalFilePrepareMicros, preparing);
    let mut tries = 0;
    let (began, done) = loop {
        // Most flushing and syncing is done before writers have to wait.
        for job in &jobs {
            if job.needs_flush()? {
                let one = std::slice::from_ref(job.family);
                maintenance::flush(db, one, &FlushOptions::default())?;
            }
        }
        // Listeners are called only after the families are released, because they may want to compact them.
        let _courier = db.courier();
        let exclusives = exclusives(db, &jobs)?;
        submit::flush_wal(db, true)?;
        let began = db.info.timer();
        let done = db.alone_unless_kept(|| {
            if !flushed(db, &jobs, tries >= TRIES_BESIDE_WRITERS)? {
                return Ok(None);
            }
            submit::flush_wal(db, true)?;
            commit(db, &mut jobs, &exclusives, &mut made).map(Some)
        })?;
        match done {
            Some(Some(done)) => break (began, done),
            Some(None) => tries += 1,
            None => {
                // The thread that has locked the WAL may compact one of the families and wait for that.
                drop(exclusives);
                db.wait_for_gate()?;
            }
        }
    };
    db.info
        .timed(HistogramKind::IngestExternalFileRunTime, began);
    tell(&db.info, &jobs, &done);
    db.writes.attention.raise();
    debt::debt_changed(db);
    remove_moved(&*db.env().fs, &db.info.log, &jobs);
    Ok(())
}

/// Keeps compactions away from the families as each job requires. The families are taken in the order of their ids,
/// so that two calls cannot deadlock.
fn exclusives<'db>(db: &'db Shared, jobs: &[Job<'_>]) -> Result<Vec<Option<Exclusive<'db>>>> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|i| jobs[*i].family.id);
    let mut all: Vec<_> = jobs.iter().map(|_| None).collect();
    for i in order {
        all[i] = jobs[i].exclusive(&db.background)?;
    }
    Ok(all)
}

/// Whether no memtable contains keys of the files; no writer is active meanwhile. With `wait`, waits for flushes if
/// needed, but only for a short time, because a listener that the flush calls may write. Does not wait while
/// background work is paused, because the thread that paused it may write.
fn flushed(db: &Shared, jobs: &[Job<'_>], wait: bool) -> Result<bool> {
    for job in jobs {
        if !job.needs_flush()? {
            continue;
        }
        // Without room for another memtable, a rotation would stall writers until background work continues.
        if !wait || !(job.family.view.load().mem.is_empty() || pace::has_room(job.family)) {
            return Ok(false);
        }
        let one = std::slice::from_ref(job.family);
        let flush = maintenance::begin_flush(db, one, FlushReason::ExternalFileIngestion)?;
        if !flush.wait_unless_paused(&db.background, &*db.info.clock, WITHOUT_WRITERS_MAX)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn check(db: &Shared, args: &[IngestExternalFileArg]) -> Result<()> {
    if args.is_empty() {
        return Err(Error::invalid_argument("ingestion arg list is empty"));
    }
    let mut ids = BTreeSet::new();
    for arg in args {
        let family = &arg.column_family.0;
        db.check_handle(family)?;
        db.catalog.families.load().require(family.id)?;
        if !ids.insert(family.id) {
            return Err(Error::invalid_argument(
                "ingestion args have duplicate column families",
            ));
        }
        if arg.external_files.is_empty() {
            return Err(Error::invalid_argument("external_files is empty"));
        }
        if arg.options.ingest_behind && !db.options.db.allow_ingest_behind {
            return Err(Error::invalid_argument(
                "can't ingest_behind file in DB with allow_ingest_behind=false",
            )
            .hint("open the database with allow_ingest_behind = true from its creation on"));
        }
    }
    Ok(())
}

impl<'a> Job<'a> {
    fn look(env: &Env, arg: &'a IngestExternalFileArg) -> Result<Self> {
        let family = &arg.column_family.0;
        let cmp = family.comparator();
        let files = arg
            .external_files
            .iter()
            .map(|path| Incoming::look(env, family, path, &arg.options))
            .collect::<Result<Vec<_>>>()?;
        let mut sorted: Vec<&Incoming> = files.iter().collect();
        sorted.sort_by(|a, b| cmp.compare(a.smallest(cmp), b.smallest(cmp)));
        let overlap = sorted
            .windows(2)
            .any(|w| cmp.compare(w[0].largest(cmp), w[1].smallest(cmp)).is_ge());
        if overlap && arg.options.ingest_behind {
            return Err(Error::not_supported(
                "Files with overlapping ranges cannot be ingested with ingestion behind mode.",
            ));
        }
        Ok(Self {
            family,
            options: &arg.options,
            files,
            overlap,
        })
    }

    /// Whether a memtable contains keys of the files. Errors: `InvalidArgument` if it does but must not be flushed.
    fn needs_flush(&self) -> Result<bool> {
        if self.options.ingest_behind {
            return Ok(false);
        }
        let cmp = self.family.comparator();
        let view = self.family.view.load();
        let memory = Memory::of(&view);
        for file in &self.files {
            if memory.has_keys(file.smallest(cmp), file.largest(cmp))? {
                if self.options.allow_blocking_flush {
                    return Ok(true);
                }
                return Err(Error::invalid_argument("External file requires flush")
                    .file(&file.external)
                    .hint("flush first, or set allow_blocking_flush = true"));
            }
        }
        Ok(false)
    }

    /// Keeps compactions away from the family. If a compaction is running, returns `None` if the files may go to
    /// level 0 with a sequence number, and otherwise waits for the compaction.
    fn exclusive<'db>(&self, background: &'db Background) -> Result<Option<Exclusive<'db>>> {
        let o = self.options;
        let must = o.ingest_behind || !o.allow_global_seqno || o.fail_if_not_bottommost_level;
        if must {
            Exclusive::take(background, self.family).map(Some)
        } else {
            Ok(Exclusive::try_take(background, self.family))
        }
    }

    /// Assigns a level and a sequence number to each file. `free`: no compaction is running. `hidden`: a sequence
    /// number is needed to hide the files from snapshots.
    fn assign(
        &self,
        (version, levels): (&Version, usize),
        free: bool,
        hidden: bool,
    ) -> Result<Vec<Assigned>> {
        let mut out = Vec::with_capacity(self.files.len());
        let mut used = 0;
        for file in &self.files {
            let at = if self.options.ingest_behind {
                self.behind(version, file)?
            } else if self.overlap || !free {
                Place {
                    level: 0,
                    hides: true,
                }
            } else {
                let cmp = self.family.comparator();
                place::place(version, levels, file.smallest(cmp), file.largest(cmp))?
            };
            let needs = !self.options.ingest_behind && (at.hides || hidden);
            self.check_place(at, needs, version)
                .map_err(|e| e.file(&file.external))?;
            used += u64::from(needs);
            out.push(Assigned {
                level: at.level,
                nth: if needs { used } else { 0 },
            });
        }
        Ok(out)
    }

    fn check_place(&self, at: Place, needs_seqno: bool, version: &Version) -> Result<()> {
        if needs_seqno && !self.options.allow_global_seqno {
            return Err(Error::invalid_argument(
                "Global seqno is required, but disabled",
            )
            .hint("the database has keys of the file or a snapshot; set allow_global_seqno = true"));
        }
        if self.options.fail_if_not_bottommost_level && at.level + 1 < version.num_levels() {
            return Err(Error::new(
                ErrorKind::TryAgain,
                "Files cannot be ingested to Lmax. Please make sure key range of Lmax and ongoing \
                 compaction's output to Lmax does not overlap with files to ingest.",
            ));
        }
        Ok(())
    }

    /// The place of a file that is ingested with `ingest_behind`.
    fn behind(&self, version: &Version, file: &Incoming) -> Result<Place> {
        let cmp = self.family.comparator();
        let last = version.num_levels() - 1;
        let refuse = |what: &str| Err(Error::invalid_argument(what).file(&file.external));
        if !place::fits(version, last, file.smallest(cmp), file.largest(cmp)) {
            return refuse("Can't ingest_behind file as it doesn't fit at the last level!");
        }
        if version
            .files()
            .any(|(level, f)| level < last && f.meta.smallest_seqno == 0)
        {
            return refuse(
                "Can't ingest_behind file as despite allow_ingest_behind=true there are files \
                 with 0 seqno in database at upper levels!",
            );
        }
        Ok(Place {
            level: last,
            hides: false,
        })
    }

    /// The edit that adds the files. `last` is the last sequence number that was used before.
    fn edit(&mut self, env: &Env, assigned: &[Assigned], last: u64) -> Result<VersionEdit> {
        let now = env.clock.wall_micros() / 1_000_000;
        let mut edit = VersionEdit {
            column_family: self.family.id,
            ..VersionEdit::default()
        };
        for (file, at) in self.files.iter_mut().zip(assigned) {
            let seqno = if at.nth == 0 { 0 } else { last + at.nth };
            file.assign(env, seqno, self.options.write_global_seqno)?;
            let epoch = if self.options.ingest_behind {
                EPOCH_BEHIND
            } else {
                self.family.take_epoch()
            };
            let meta = file.meta(self.family.comparator(), seqno, epoch, now);
            edit.add_file(at.level as u32, meta);
        }
        Ok(edit)
    }
}

/// Makes the files part of the database. The gate of the order of writes is closed.
fn commit(
    db: &Shared,
    jobs: &mut [Job<'_>],
    exclusives: &[Option<Exclusive<'_>>],
    made: &mut Made,
) -> Result<Committed> {
    db.check_writable()?;
    let mut change = db.change();
    for job in &*jobs {
        change.families().require(job.family.id)?;
    }
    // Files at sequence number 0 are visible to every snapshot: no snapshot may be taken until the files are visible.
    let snapshots = db.snapshots.hold();
    let hidden = |job: &Job<'_>| job.options.snapshot_consistency && !snapshots.is_empty();
    // The last one is for files that are ingested behind all others.
    let reserved = usize::from(db.options.db.allow_ingest_behind);
    let levels = |version: &Version| version.num_levels() - reserved;
    let mut all = Vec::with_capacity(jobs.len());
    for (job, exclusive) in jobs.iter().zip(exclusives) {
        let version = Arc::clone(&job.family.view.load().version);
        all.push(job.assign(
            (&version, levels(&version)),
            exclusive.is_some(),
            hidden(job),
        )?);
    }
    let snapshots = needs_hold(jobs, &all).then_some(snapshots);
    let used = all.iter().flatten().map(|a| a.nth).max().unwrap_or(0);
    let mut ticket = db.writes.order.begin(used);
    let before = ticket.first - 1;
    change.uses_sequences_through(ticket.last);
    let result = (|| {
        for (job, assigned) in jobs.iter_mut().zip(&all) {
            let edit = job.edit(db.env(), assigned, before)?;
            change.files(job.family, edit, Activity::Unknown)?;
        }
        // From here on the MANIFEST may name the files.
        change.makes(made.take());
        let logged = change.refuse_writes_if_it_fails().log()?;
        // Compactions see the files from here on. Until their sequence numbers are visible, no snapshot may be
        // taken: a compaction would not know about it, but it must not see the files.
        let held = match snapshots {
            Some(held) => held,
            None => db.snapshots.hold(),
        };
        Ok((held, logged.apply()))
    })();
    ticket.end(result.is_ok() && used > 0);
    let (held, applied) = result?;
    drop(applied);
    drop(held);
    if used > 0 {
        // The log was synced before, while writers were kept out: all earlier logged writes are durable.
        db.is_durable_through(ticket.last);
    }
    Ok(Committed {
        assigned: all,
        before,
    })
}

/// Whether a snapshot that is taken now could see a file that it must not see.
fn needs_hold(jobs: &[Job<'_>], all: &[Vec<Assigned>]) -> bool {
    jobs.iter().zip(all).any(|(job, assigned)| {
        job.options.snapshot_consistency && assigned.iter().any(|a| a.nth == 0)
    })
}

/// Reports the ingested files in LOG and to listeners.
fn tell(info: &Info, jobs: &[Job<'_>], done: &Committed) {
    for (job, assigned) in jobs.iter().zip(&done.assigned) {
        let version = Arc::clone(&job.family.view.load().version);
        let files = job.files.iter().zip(assigned);
        info.log.event(
            &Event::new("ingest_finished")
                .text("cf_name", &job.family.name)
                .files(
                    "files_ingested",
                    files
                        .clone()
                        .map(|(f, at)| (f.path.as_path(), at.level as u64)),
                )
                .numbers(
                    "lsm_state",
                    (0..version.num_levels()).map(|l| version.level(l).len() as u64),
                ),
        );
        for (file, at) in files {
            let number = file.number;
            let table = version.files().find(|(_, f)| f.number() == number);
            let properties = table.map(|(_, f)| table::Properties::clone(&f.properties));
            let told = ExternalFileIngestionInfo {
                cf_name: job.family.name.clone(),
                external_file_path: file.external.clone(),
                internal_file_path: file.path.clone(),
                global_seqno: if at.nth == 0 { 0 } else { done.before + at.nth },
                table_properties: properties.unwrap_or_default(),
            };
            job.family.compactions.add_files(&Added {
                added_bytes: file.size(),
                added_files: 1,
                added_l0_files: u64::from(at.level == 0),
                added_keys: told.table_properties.num_entries,
                ..Added::default()
            });
            info.log.info(format_args!(
                "[AddFile] External SST file {} was ingested in L{} with path {} (global_seqno={})",
                told.external_file_path.display(),
                at.level,
                told.internal_file_path.display(),
                told.global_seqno
            ));
            info.tell(|l| l.on_external_file_ingested(&told));
        }
    }
}

/// Removes the old names of files that were moved.
fn remove_moved(fs: &dyn FileSystem, log: &InfoLog, jobs: &[Job<'_>]) {
    let mut dirs: BTreeSet<&Path> = BTreeSet::new();
    for job in jobs.iter().filter(|job| job.options.move_files) {
        for file in &job.files {
            match fs.remove(&file.external) {
                Ok(()) => {
                    dirs.insert(parent(&file.external));
                }
                Err(e) => log.warn(format_args!("an ingested file keeps its old name: {e}")),
            }
        }
    }
    for dir in dirs {
        if let Err(e) = fs.sync_dir(dir) {
            log.warn(format_args!("an ingested file's old name: {e}"));
        }
    }
}
