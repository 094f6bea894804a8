//! Makes a running database from recovered data.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::rng::Rng;
use base::stats::Activity;
use base::{Error, ErrorKind, FileNumber, Result, SequenceNumber};
use log::LogEnd;

use super::replay::Replayed;
use super::{Opening, Wanted, create, new_secret, seeded};
use crate::background::state::RECOVERY_JOB;
use crate::catalog::Catalog;
use crate::catalog::family::{Family, FamilySet};
use crate::catalog::version_set::{Contents, OpenTables, VersionSet, next_version};
use crate::catalog::view::View;
use crate::commit::Writes;
use crate::compaction::output::OutputContext;
use crate::flush;
use crate::info::events::Teller;
use crate::info::log::Event;
use crate::shared::obsolete::obsolete_log;
use crate::shared::{Parts, Shared, persist};
use crate::wal::active::ActiveLog;
use crate::wal::directory::Directory;
use crate::wal::live::LiveLogs;
use crate::wal::log_files::{LogFiles, LogKind, NewLog};
use crate::wal::{Wal, WalFileKind};
use crate::write::{debt, rotate};
use files::{self, FileKind};
use io::{OpenHow, ReadQueues};
use manifest::edit::VersionEdit;
use manifest::{FileNumbers, Recovered};
use options::hooks::filter::TableCreationReason;
use options::hooks::listener::FlushReason;

/// The memory limit that a family has exceeded during recovery, if any.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Excess {
    None,
    /// The active memtable is full: a new memtable is begun.
    Memtable,
    /// The family's memtables are too large in total: all of them are flushed.
    All,
}

/// If there are more logs than this, recovered data is flushed before the open returns. Otherwise a program that
/// opens and closes the database repeatedly would accumulate logs.
const LOGS_KEPT: usize = 32;
/// Recovered data is also flushed before the open returns if each family has less recovered data than its write
/// buffer size divided by this number, because such a flush takes little time.
const MUCH: u64 = 4;

/// The outcome of a recovery.
struct Installed {
    versions: VersionSet,
    log_files: Option<LogFiles>,
    log_file: Option<ActiveLog>,
    logs: Vec<(FileNumber, u64)>,
    last_sequence: u64,
}

impl Opening {
    /// Recovers the database and, unless it is opened read-only, makes the result durable.
    pub(super) fn run(
        mut self,
        recovered: &Recovered,
        wanted: &Wanted<'_>,
        exists: bool,
    ) -> Result<Arc<Shared>> {
        self.check_direct_reads(exists)?;
        let read_queues = Arc::new(self.read_queues()?);
        self.tables.read_queues = Arc::downgrade(&read_queues);
        let families = self.families(recovered, wanted)?;
        let numbers = self.numbers(recovered)?;
        let db_id = self.db_id(recovered)?;
        let mut made = Vec::new();
        let done = match self.install(recovered, &families, &numbers, &db_id, &mut made) {
            Ok(done) => done,
            Err(e) => {
                self.info_log.error(format_args!("open failed: {e}"));
                self.recovery_finished(&e.to_string());
                self.remove(&made);
                return Err(e);
            }
        };
        let directory = Directory::new(self.logs.dir().to_path_buf(), &self.options);
        let wal = Wal::new(
            (directory, LiveLogs::new(done.logs.into_iter().collect())),
            (done.log_files, done.log_file),
            done.last_sequence,
            Duration::from_millis(self.options.db.wal_sync_interval_ms),
            &self.options.env.clock,
        );
        let catalog = Catalog::new(
            families,
            (self.tables, numbers),
            (self.session_id, db_id),
            done.versions,
        );
        let writes = Writes::after(done.last_sequence, &self.options.db, self.write_buffers);
        let shared = Arc::new(Shared::new(Parts {
            catalog,
            writes,
            wal,
            instance: self.instance,
            dir: self.dir,
            options: self.options,
            info_log: self.info_log,
            read_only: self.read_only,
            read_queues,
        }));
        if !shared.read_only {
            create::create_missing(&shared, wanted)?;
            persist::write_options_file(&shared)?;
            remove_leftovers(&shared)?;
            debt::debt_changed(&shared);
            rotate::note_full_memtables(&shared); // those that recovery has filled
            shared.info.log.info(format_args!(
                "{}: last sequence {}, {} column families",
                if exists { "opened" } else { "created" },
                shared.writes.visible(),
                shared.catalog.families.load().iter().count()
            ));
        }
        Ok(shared)
    }

    /// Errors: `NotSupported` if `use_direct_reads` asks for what the file system does not have. Writes nothing if the
    /// database exists.
    fn check_direct_reads(&self, exists: bool) -> Result<()> {
        if !self.options.db.use_direct_reads {
            return Ok(());
        }
        let fs = &*self.options.env.fs;
        let can = if exists {
            match fs.open(&files::current_path(&self.dir), OpenHow::READ.direct()) {
                Ok(file) => io::read_exact_at(&*file, &mut [0], 0).is_ok(),
                // Others are said when CURRENT is opened in the usual way.
                Err(e) => e.kind() != ErrorKind::NotSupported,
            }
        } else {
            fs.probe(&self.dir)?.direct_alignment.is_some()
        };
        if can {
            return Ok(());
        }
        Err(Error::not_supported("use_direct_reads on this file system")
            .file(&self.dir)
            .hint("set use_direct_reads = false, or put the database on ext4 or xfs"))
    }

    /// The queues for reads. Errors: `NotSupported` if `read_io_mode` asks for what the kernel does not allow.
    fn read_queues(&self) -> Result<ReadQueues> {
        let (mode, env) = (self.options.db.read_io_mode, &self.options.env);
        let (fs, threads) = (Arc::clone(&env.fs), Arc::clone(&env.threads));
        let (queues, no_ring) = ReadQueues::new(mode, fs, threads)
            .map_err(|e| e.hint("set read_io_mode = auto, pool or off"))?;
        match no_ring {
            None => self.info_log.header(format_args!("Reads: {queues}")),
            Some(e) if e.kind() != ErrorKind::NotSupported => self.info_log.warn(format_args!(
                "Reads: {queues}; threads as long as no ring can be made: {e}"
            )),
            Some(e) => self
                .info_log
                .warn(format_args!("Reads: {queues}, because {e}")),
        }
        Ok(queues)
    }

    /// The id of the database: from the MANIFEST, from IDENTITY, or a new id.
    fn db_id(&self, recovered: &Recovered) -> Result<String> {
        if let Some(id) = recovered.db_id.as_ref().filter(|id| !id.is_empty()) {
            return Ok(id.clone());
        }
        let written = files::read_identity(&*self.options.env.fs, &self.dir)?;
        Ok(written
            .filter(|id| !id.is_empty())
            .unwrap_or_else(|| new_uuid(&mut seeded(&self.options.env))))
    }

    fn install(
        &self,
        recovered: &Recovered,
        families: &FamilySet,
        numbers: &FileNumbers,
        db_id: &str,
        made: &mut Vec<PathBuf>,
    ) -> Result<Installed> {
        let mut begun = BTreeSet::new();
        let flush = |family: &Arc<Family>, made: &mut Vec<PathBuf>| {
            self.flush_recovered(family, numbers, db_id, made)
        };
        let mut overflow = || self.relieve(families, &mut begun, |family| flush(family, made));
        let replayed = self.replay(recovered, families, &mut overflow)?;
        let mut versions = VersionSet::new(
            db_id.to_owned(),
            recovered.max_column_family,
            self.options.db.max_manifest_file_size,
        );
        if self.read_only {
            return Ok(Installed {
                versions,
                log_files: None,
                log_file: None,
                logs: Vec::new(),
                last_sequence: replayed.last_sequence,
            });
        }
        let keep_logs = self.keeps_logs(&replayed, families);
        let number = numbers.take();
        for family in families.iter() {
            let in_one = keep_logs && !begun.contains(&family.id);
            if !(in_one && self.keep_recovered(family, number)) {
                flush(family, made)?;
                start_on_log(family, number);
            }
        }
        if !replayed.logs.is_empty() {
            self.recovery_finished("OK");
        }
        let fs = &*self.options.env.fs;
        let oldest = oldest_log(families, number);
        let keeps_some = keep_logs && oldest < number.0;
        let previous = self.sync_kept_logs(&replayed, keeps_some)?;
        let (log_files, new_log, secret) = self.first_log(number)?;
        made.push(files::wal_path(self.logs.dir(), number));
        if files::read_identity(fs, &self.dir)?.as_deref() != Some(db_id) {
            files::write_identity(fs, &self.dir, db_id)?;
        }
        versions.min_log_number_to_keep = oldest;
        versions.log_names = Some(Arc::clone(log_files.names()));
        versions.log_secrets = recovered.log_secrets.with(number.0, secret);
        if keeps_some && self.options.db.track_and_verify_wals_in_manifest {
            versions.tracked_logs = replayed.ends_from(oldest);
        }
        made.push(files::manifest_path(&self.dir, FileNumber(numbers.peek())));
        versions.start_manifest(Contents {
            tables: &self.tables,
            numbers,
            families,
            last_sequence: replayed.last_sequence,
        })?;
        Ok(Installed {
            versions,
            log_files: Some(log_files),
            log_file: Some(ActiveLog::new(new_log, replayed.last_sequence).following(previous)),
            logs: live_logs(&replayed, oldest, number),
            last_sequence: replayed.last_sequence,
        })
    }

    /// Sets full memtables aside, or flushes them if there are too many. `begun` collects the families of which a
    /// part was flushed. The rest of such a family must be flushed too, or the next recovery would find that part
    /// both in a table and in the logs.
    fn relieve(
        &self,
        families: &FamilySet,
        begun: &mut BTreeSet<u32>,
        mut flush: impl FnMut(&Arc<Family>) -> Result<()>,
    ) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        for family in families.iter() {
            match self.excess_of(family) {
                Excess::None => {}
                Excess::Memtable => set_aside(family),
                Excess::All => {
                    flush(family)?;
                    begun.insert(family.id);
                }
            }
        }
        Ok(())
    }

    /// Creates the first log of this run and returns it with the secret of this open. The names of this log and of
    /// the logs that are kept are durable.
    fn first_log(&self, number: FileNumber) -> Result<(LogFiles, NewLog, u64)> {
        let secret = new_secret(&self.options.env);
        let dir = self.logs.dir().to_path_buf();
        let files = LogFiles::open(dir, &self.options, self.probe.as_ref(), secret)?;
        let log = files.create(number, LogKind::Buffered)?;
        files
            .names()
            .make_newest_durable()
            .inspect_err(|_| files.discard_unused(number))?;
        Ok((files, log, secret))
    }

    /// Writes to LOG that the recovery of the logs has ended.
    fn recovery_finished(&self, status: &str) {
        self.info_log.event(
            &Event::new("recovery_finished")
                .number("job", RECOVERY_JOB)
                .text("status", status),
        );
    }

    /// The limit that the recovered data of a family has exceeded, if any.
    fn excess_of(&self, family: &Family) -> Excess {
        let view = family.view.load();
        let memory = &self.write_buffers;
        let too_much = memory.enabled()
            && self.options.db.enforce_write_buffer_manager_during_recovery
            && (memory.should_flush() || memory.used() >= memory.limit());
        if too_much && !(view.mem.is_empty() && view.imm.is_empty()) {
            return Excess::All;
        }
        if !family.is_full(&view.mem) {
            return Excess::None;
        }
        let most = family.options().cf.max_write_buffer_number.unsigned_abs() as usize;
        if view.imm.len() + 1 < most {
            Excess::Memtable
        } else {
            Excess::All
        }
    }

    /// Whether the logs stay in use. They must not stay if data in them was given up, because that data would come
    /// back.
    fn keeps_logs(&self, replayed: &Replayed, families: &FamilySet) -> bool {
        let later =
            replayed.logs.len() <= LOGS_KEPT && families.iter().any(|family| is_much(family));
        !replayed.cut && (self.options.db.avoid_flush_during_recovery || later)
    }

    /// Leaves the recovered data of a family in memory. It is flushed in the background, unless
    /// `avoid_flush_during_recovery` is set and all of it is in one memtable. Returns false if there is no such data.
    ///
    /// All of the data goes to one table: otherwise the next recovery could find a part of it both in a table and in
    /// the logs.
    fn keep_recovered(&self, family: &Arc<Family>, log: FileNumber) -> bool {
        let view = family.view.load_full();
        if view.mem.is_empty() && view.imm.is_empty() {
            return false;
        }
        if !self.options.db.avoid_flush_during_recovery || !view.imm.is_empty() {
            flush_soon(family, log);
        }
        true
    }

    /// Syncs the logs that stay in use. A killed process may have left them in the page cache, and no record of a
    /// later log may become durable before them. Returns the end of the last log that stays in use, if any.
    fn sync_kept_logs(&self, replayed: &Replayed, any: bool) -> Result<LogEnd> {
        if !any {
            return Ok(LogEnd::NONE);
        }
        let fs = &*self.options.env.fs;
        for (number, _) in &replayed.logs {
            let path = files::wal_path(self.logs.dir(), *number);
            fs.open(&path, io::OpenHow::READ)?
                .sync(io::SyncKind::Data)?;
        }
        Ok(replayed.ends.last().copied().unwrap_or_default())
    }

    /// Writes the recovered data of a family, if there is any, to a table that no MANIFEST names yet.
    fn flush_recovered(
        &self,
        family: &Arc<Family>,
        numbers: &FileNumbers,
        db_id: &str,
        made: &mut Vec<PathBuf>,
    ) -> Result<()> {
        let view = family.view.load_full();
        if view.mem.is_empty() && view.imm.is_empty() {
            return Ok(());
        }
        let now = self.options.env.clock.wall_micros() / 1_000_000;
        let options = family.options_now();
        let ctx = OutputContext {
            family,
            tables: &self.tables,
            numbers,
            db_id,
            session_id: &self.session_id,
            now,
            epoch: family.take_epoch(),
            oldest_ancestor_time: now,
            statistics: self.options.env.statistics.clone(),
            rate_limit: None,
            snapshots: Vec::new(),
            enforce_single_del_contracts: self.options.db.enforce_single_del_contracts,
            bytes_per_sync: self.options.db.bytes_per_sync,
            courtesy: None,
            compression: options.cf.compression_of(0, 1, false),
            options,
            teller: Teller {
                info_log: &self.info_log,
                listeners: &self.options.env.listeners,
                db_dir: self.dir.clone(),
                cf_name: &family.name,
                job: RECOVERY_JOB,
                reason: TableCreationReason::Recovery,
            },
        };
        let number = numbers.take();
        made.push(files::table_path(&self.dir, number));
        let none: &[SequenceNumber] = &[];
        let memtables: Vec<_> = view.imm.iter().rev().chain([&view.mem]).cloned().collect();
        let new = flush::build_level0(&ctx, &memtables, none, number)?;
        let edit = VersionEdit {
            new_files: new.into_iter().collect(),
            ..Default::default()
        };
        let next = next_version(
            &self.tables,
            family,
            &edit,
            Activity::DbOpen,
            OpenTables::new(),
        )?;
        let log_number = family.log_number();
        family.view.store(Arc::new(View {
            mem: family.new_memtable(log_number),
            imm: Vec::new(),
            version: Arc::new(next.version),
        }));
        Ok(())
    }

    /// Removes the files that a failed open created. Files that existed before stay.
    ///
    /// An open may fail after CURRENT was renamed, in the sync of the directory. A crash may then leave either the
    /// old or the new state, so the files of both must stay.
    fn remove(&self, made: &[PathBuf]) {
        let fs = &*self.options.env.fs;
        let named = match files::read_current(fs, &self.dir) {
            Ok(number) => made.contains(&files::manifest_path(&self.dir, number)),
            Err(e) => !e.is_not_found(),
        };
        if named {
            return;
        }
        for path in made {
            match fs.remove(path) {
                Ok(()) => {}
                Err(e) if e.is_not_found() => {}
                Err(e) => self.info_log.warn(format_args!("cannot remove: {e}")),
            }
        }
    }
}

/// Whether so much data was recovered that a flush would take long.
fn is_much(family: &Family) -> bool {
    let view = family.view.load();
    let memtables = view.imm.iter().chain([&view.mem]);
    let bytes: u64 = memtables.map(|m| m.data_bytes()).sum();
    bytes >= family.write_buffer_size() / MUCH
}

/// Makes the family's full memtable immutable and begins a new memtable.
fn set_aside(family: &Family) {
    let view = family.view.load_full();
    let next = family.new_memtable(family.log_number());
    family.view.store(Arc::new(view.rotated(next)));
}

/// Schedules one background flush for all of the family's memtables. Later writes go to the log `number`.
fn flush_soon(family: &Family, number: FileNumber) {
    let view = family.view.load_full();
    for memtable in view.imm.iter().chain([&view.mem]) {
        family.seal(memtable, number);
    }
    family.set_flush_reason(FlushReason::Others);
    let next = family.new_memtable(number);
    family.view.store(Arc::new(view.rotated(next)));
    family.want_flush();
}

/// Continues with an empty memtable and the log `number`. All data of the family is in tables.
fn start_on_log(family: &Family, number: FileNumber) {
    let view = family.view.load_full();
    family.set_log_number(number);
    family.view.store(Arc::new(View {
        mem: family.new_memtable(number),
        imm: Vec::new(),
        version: Arc::clone(&view.version),
    }));
}

/// The number of the oldest log that any family needs.
fn oldest_log(families: &FamilySet, active: FileNumber) -> u64 {
    let numbers = families.iter().map(|f| f.log_number().0);
    numbers.min().unwrap_or(active.0)
}

fn live_logs(replayed: &Replayed, oldest: u64, active: FileNumber) -> Vec<(FileNumber, u64)> {
    let old = replayed.logs.iter().copied().filter(|(n, _)| n.0 >= oldest);
    old.chain([(active, 0)]).collect()
}

/// A random UUID, version 4 of RFC 9562.
fn new_uuid(rng: &mut Rng) -> String {
    let (mut high, mut low) = (rng.next_u64(), rng.next_u64());
    high = (high & !0xf000) | 0x4000;
    low = (low & !(3 << 62)) | (2 << 62);
    let (a, b, c) = (high >> 32, (high >> 16) & 0xffff, high & 0xffff);
    let (d, e) = (low >> 48, low & 0xffff_ffff_ffff);
    format!("{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
}

/// Deletes files of earlier runs that no MANIFEST names any more.
fn remove_leftovers(db: &Shared) -> Result<()> {
    let families = db.catalog.families.load();
    let oldest_log = families
        .iter()
        .map(|f| f.log_number())
        .min()
        .unwrap_or_default();
    let manifest = db.catalog.lock_versions().manifest_number();
    let live: std::collections::BTreeSet<FileNumber> = families
        .iter()
        .flat_map(|f| {
            let version = Arc::clone(&f.view.load().version);
            version.files().map(|(_, t)| t.number()).collect::<Vec<_>>()
        })
        .collect();
    for entry in files::list(&*db.env().fs, &db.dir)? {
        let leftover = match entry.kind {
            FileKind::Wal => db.wal.directory.dir() != db.dir && entry.number < oldest_log,
            FileKind::Table => !live.contains(&entry.number),
            FileKind::Manifest => Some(entry.number) != manifest,
            FileKind::Temp => true,
            _ => false,
        };
        if leftover {
            db.catalog.tables.janitor.add(db.dir.join(&entry.name));
        }
    }
    for (number, kind) in db.wal.directory.numbers()? {
        if kind == WalFileKind::Alive && number < oldest_log {
            let path = db.wal.directory.path(number);
            let remove = || db.env().fs.remove(&path);
            if !obsolete_log(&db.wal.directory, &db.info.log, number, remove) {
                db.wal.logs.is_left(number);
            }
        }
    }
    db.delete_obsolete_files();
    Ok(())
}
