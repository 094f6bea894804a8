//! The only way to change the parts of the database: its families, their files, and the first log that is needed.
//!
//! ```text
//!   Shared::change        locks the MANIFEST for this thread; the parts of the change are then added
//!   Change::log           makes the names of logs durable; the MANIFEST then has the whole change or nothing of it
//!   Logged::apply         makes the change visible: Views, log numbers, the set of families
//! ```
//!
//! A change may not complete: it fails, it is given up, or its thread panics. Its new tables then go to the
//! janitor. If the MANIFEST has failed, it may name these tables: they then stay until another MANIFEST is begun.
//!
//! Lock order: the MANIFEST is locked before the state of the database.

use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;

use base::stats::Activity;
use base::sync::MutexGuard;
use base::{FileNumber, Result};
use memtable::Memtable;

use crate::catalog::family::{Family, FamilySet};
use crate::catalog::version_set::{Contents, OpenTables, VersionSet, next_version};
use crate::catalog::view::View;
use crate::shared::Shared;
use manifest::edit::VersionEdit;
use manifest::{TableFile, Version};

/// The MANIFEST, locked by this thread while this lives. If a panic leaves the MANIFEST failed, the
/// database fails.
pub(crate) struct Manifest<'a> {
    db: &'a Shared,
    versions: MutexGuard<'a, VersionSet>,
}

impl Deref for Manifest<'_> {
    type Target = VersionSet;

    fn deref(&self) -> &VersionSet {
        &self.versions
    }
}

impl DerefMut for Manifest<'_> {
    fn deref_mut(&mut self) -> &mut VersionSet {
        &mut self.versions
    }
}

impl Drop for Manifest<'_> {
    fn drop(&mut self) {
        if base::sync::thread::panicking()
            && let Some(e) = self.versions.failure()
        {
            self.db.fail("MANIFEST", e);
        }
    }
}

/// Edits that become part of the database as a whole or not at all.
#[must_use = "nothing changes until it is logged and applied"]
pub(crate) struct Change<'a> {
    db: &'a Shared,
    versions: Manifest<'a>,
    /// The families before the change.
    families: Arc<FamilySet>,
    edits: Vec<VersionEdit>,
    steps: Vec<Step>,
    /// Tables that are part of no Version yet.
    tables: Vec<PathBuf>,
    /// The last sequence number that is used, if it is not visible yet; else 0.
    last_sequence: u64,
    refuse_writes: bool,
}

/// A part of a change that becomes visible.
enum Step {
    /// The family gets another Version.
    Files {
        family: Arc<Family>,
        version: Arc<Version>,
        /// Files that are not part of the new Version.
        removed: Vec<Arc<TableFile>>,
        /// Memtables that were flushed into files of the new Version.
        flushed: Vec<Arc<Memtable>>,
    },
    /// Logs before this log have no unflushed data of the family.
    Log(Arc<Family>, FileNumber),
    Born(Arc<Family>),
    Dropped(Arc<Family>),
}

impl Shared {
    /// Locks the MANIFEST to write to it.
    pub(crate) fn manifest(&self) -> Manifest<'_> {
        Manifest {
            db: self,
            versions: self.catalog.lock_versions(),
        }
    }

    /// Begins a change. Other changes wait until it is applied or given up.
    pub(crate) fn change(&self) -> Change<'_> {
        let versions = self.manifest();
        Change {
            db: self,
            families: self.catalog.families.load_full(),
            versions,
            edits: Vec::new(),
            steps: Vec::new(),
            tables: Vec::new(),
            last_sequence: 0,
            refuse_writes: false,
        }
    }

    /// Starts a new MANIFEST. If the old MANIFEST had failed, changes are accepted again.
    pub(crate) fn start_manifest_anew(&self) -> Result<()> {
        let mut versions = self.manifest();
        let families = self.catalog.families.load();
        versions.start_anew(self.contents(&families, 0))
    }

    /// Records in the MANIFEST which closed logs have become durable, if
    /// `track_and_verify_wals_in_manifest` is set.
    pub(crate) fn track_closed_logs(&self) -> Result<()> {
        if !self.options.db.track_and_verify_wals_in_manifest {
            return Ok(());
        }
        let closed = self.wal.with(|log| Ok(log.take_closed()))?;
        if closed.is_empty() {
            return Ok(());
        }
        self.manifest().track_logs(closed)
    }

    fn contents<'a>(&'a self, families: &'a FamilySet, last_sequence: u64) -> Contents<'a> {
        Contents {
            tables: &self.catalog.tables,
            numbers: &self.catalog.numbers,
            families,
            last_sequence: last_sequence.max(self.writes.visible().0),
        }
    }
}

impl<'a> Change<'a> {
    /// The families as they are before the change.
    pub(crate) fn families(&self) -> &Arc<FamilySet> {
        &self.families
    }

    /// The id of the next family.
    pub(crate) fn next_family(&self) -> u32 {
        let born = self.steps.iter().filter(|s| matches!(s, Step::Born(_)));
        self.versions.max_column_family + 1 + born.count() as u32
    }

    /// The first log that counts as needed. Logs before it are already recorded as obsolete.
    pub(crate) fn needed_logs(&self) -> FileNumber {
        FileNumber(self.versions.min_log_number_to_keep)
    }

    /// Adds new tables of the change. They become obsolete unless the change is logged.
    pub(crate) fn makes(&mut self, tables: impl IntoIterator<Item = PathBuf>) {
        self.tables.extend(tables);
    }

    /// Gives tables that are not needed after all to the janitor.
    pub(crate) fn discard(&mut self, tables: impl IntoIterator<Item = PathBuf>) {
        self.versions
            .discard(&self.db.catalog.tables.janitor, tables);
    }

    /// Records that sequence numbers up to `last` are used, although they are not visible yet.
    pub(crate) fn uses_sequences_through(&mut self, last: u64) {
        self.last_sequence = last;
    }

    /// If the MANIFEST fails, it may or may not contain the edits. With this setting the database then refuses
    /// writes: nothing may be acknowledged as durable until another MANIFEST settles the question. Background jobs
    /// do not need it, because they make the database fail themselves.
    pub(crate) fn refuse_writes_if_it_fails(mut self) -> Self {
        self.refuse_writes = true;
        self
    }

    /// Adds and removes files of a family. The new tables are opened for `activity`.
    ///
    /// Errors: `Corruption` if a new table is missing or damaged, or a file to be removed is not in the Version.
    pub(crate) fn files(
        &mut self,
        family: &Arc<Family>,
        edit: VersionEdit,
        activity: Activity,
    ) -> Result<()> {
        self.replace(family, edit, activity, (Vec::new(), OpenTables::new()))
    }

    /// [`Change::files`] for a compaction, whose new tables are `open`.
    pub(crate) fn compacted(
        &mut self,
        family: &Arc<Family>,
        edit: VersionEdit,
        open: OpenTables,
    ) -> Result<()> {
        self.replace(family, edit, Activity::Compaction, (Vec::new(), open))
    }

    /// [`Change::files`] for a flush: the memtables in `flushed` are not needed any more, and neither are
    /// logs before `edit.log_number`.
    pub(crate) fn flush(
        &mut self,
        family: &Arc<Family>,
        edit: VersionEdit,
        activity: Activity,
        flushed: Vec<Arc<Memtable>>,
    ) -> Result<()> {
        self.replace(family, edit, activity, (flushed, OpenTables::new()))
    }

    fn replace(
        &mut self,
        family: &Arc<Family>,
        edit: VersionEdit,
        activity: Activity,
        (flushed, open): (Vec<Arc<Memtable>>, OpenTables),
    ) -> Result<()> {
        let next = next_version(&self.db.catalog.tables, family, &edit, activity, open)?;
        self.steps.push(Step::Files {
            family: Arc::clone(family),
            version: Arc::new(next.version),
            removed: next.removed,
            flushed,
        });
        if let Some(log) = edit.log_number {
            let step = Step::Log(Arc::clone(family), FileNumber(log));
            self.steps.push(step);
        }
        self.edits.push(edit);
        Ok(())
    }

    /// Records that logs before `first` have no unflushed data of the family.
    pub(crate) fn leaves_logs(&mut self, family: &Arc<Family>, first: FileNumber) {
        self.edits.push(VersionEdit {
            column_family: family.id,
            log_number: Some(first.0),
            ..VersionEdit::default()
        });
        self.steps.push(Step::Log(Arc::clone(family), first));
    }

    /// Adds the family to the database.
    pub(crate) fn adds_family(&mut self, family: &Arc<Family>) {
        self.edits.push(VersionEdit {
            column_family: family.id,
            add_column_family: Some(family.name.clone()),
            comparator: Some(family.comparator().name().to_owned()),
            log_number: Some(family.log_number().0),
            ..VersionEdit::default()
        });
        self.steps.push(Step::Born(Arc::clone(family)));
    }

    /// Removes the family from the database.
    pub(crate) fn drops_family(&mut self, family: &Arc<Family>) {
        self.edits.push(VersionEdit {
            column_family: family.id,
            drop_column_family: true,
            max_column_family: Some(self.versions.max_column_family),
            ..VersionEdit::default()
        });
        self.steps.push(Step::Dropped(Arc::clone(family)));
    }

    /// The first log that any family needs after the change is applied.
    pub(crate) fn first_needed_log(&self) -> FileNumber {
        let left_behind = |family: &Arc<Family>| {
            let mut steps = self.steps.iter().rev();
            let found = steps.find_map(|step| match step {
                Step::Log(f, log) if f.id == family.id => Some(*log),
                _ => None,
            });
            found.unwrap_or_else(|| family.log_number())
        };
        let first = self.families.iter().map(left_behind).min();
        first.unwrap_or_default().max(self.needed_logs())
    }

    /// Records that logs before `first` are obsolete.
    pub(crate) fn needs_logs_from(&mut self, first: FileNumber) {
        if first <= self.needed_logs() {
            return;
        }
        if self.edits.is_empty() {
            self.edits.push(VersionEdit::default());
        }
        if let Some(edit) = self.edits.last_mut() {
            edit.min_log_number_to_keep = Some(first.0);
        }
    }

    /// [`Change::log`] and [`Logged::apply`].
    pub(crate) fn log_and_apply(self) -> Result<()> {
        self.log().map(Logged::apply).map(drop)
    }

    /// Makes the change durable in the MANIFEST. Readers do not see it yet.
    ///
    /// Errors: the database is open for reading only; the MANIFEST fails, or has failed.
    pub(crate) fn log(mut self) -> Result<Logged<'a>> {
        let edits = std::mem::take(&mut self.edits);
        if !edits.is_empty() {
            let contents = self.db.contents(&self.families, self.last_sequence);
            let logged = self.versions.log(contents, edits);
            if let Err(e) = &logged
                && self.refuse_writes
                && self.versions.failure().is_some()
            {
                self.db.fail("MANIFEST", e);
            }
            logged?;
        }
        self.tables.clear();
        Ok(Logged(self))
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let tables = std::mem::take(&mut self.tables);
        self.versions
            .discard(&self.db.catalog.tables.janitor, tables);
    }
}

/// A change that is recorded in the MANIFEST.
#[must_use = "the MANIFEST has it, so that everybody must see it"]
pub(crate) struct Logged<'a>(Change<'a>);

impl<'a> Logged<'a> {
    /// The new Versions, in the order in which they were added.
    pub(crate) fn versions(&self) -> impl Iterator<Item = &Arc<Version>> {
        self.0.steps.iter().filter_map(|step| match step {
            Step::Files { version, .. } => Some(version),
            _ => None,
        })
    }

    /// Makes the change visible. Other changes wait until the result is dropped.
    pub(crate) fn apply(mut self) -> Applied<'a> {
        let steps = std::mem::take(&mut self.0.steps);
        let db = self.0.db;
        let mut set = None;
        // Files and Views that are not used any more are freed after the lock is released.
        let mut removed = Vec::new();
        let state = db.background.state();
        for step in steps {
            match step {
                Step::Files {
                    family,
                    version,
                    removed: gone,
                    flushed,
                } => {
                    for file in &gone {
                        file.mark_obsolete();
                    }
                    removed.push((family.view.load_full(), gone));
                    show(&family, version, &flushed);
                }
                Step::Log(family, first) => {
                    family.set_log_number(first);
                    // An active memtable that is empty may have begun with a later log.
                    let view = family.view.load();
                    let oldest = view.imm.last().unwrap_or(&view.mem).log_number();
                    if oldest > first {
                        family.skip_logs(oldest);
                    }
                }
                Step::Born(family) => {
                    let versions = &mut self.0.versions;
                    versions.max_column_family = versions.max_column_family.max(family.id);
                    let set = set.get_or_insert_with(|| FamilySet::clone(&self.0.families));
                    set.insert(family);
                }
                Step::Dropped(family) => {
                    family.mark_dropped();
                    let view = family.view.load_full();
                    for (_, file) in view.version.files() {
                        file.mark_obsolete();
                    }
                    let set = set.get_or_insert_with(|| FamilySet::clone(&self.0.families));
                    set.remove(family.id);
                }
            }
        }
        if let Some(set) = set {
            db.catalog.families.store(Arc::new(set));
        }
        drop(state);
        let applied = Applied(self.0);
        drop(removed);
        applied
    }
}

/// Makes readers see another Version of the family. The state of the database is locked.
fn show(family: &Family, version: Arc<Version>, flushed: &[Arc<Memtable>]) {
    let view = family.view.load_full();
    if flushed.is_empty() {
        family.view.store(Arc::new(view.with_version(version)));
        return;
    }
    let new: View = view.flushed(flushed, version);
    let living: Vec<_> = new.imm.iter().chain([&new.mem]).collect();
    let mut history = family.history();
    history.add(flushed, &living, family.history_limit());
    drop(history);
    drop(living);
    family.view.store(Arc::new(new));
}

/// A change that is part of the database. No other change begins until this is dropped; then jobs and
/// waiters check the state again.
pub(crate) struct Applied<'a>(Change<'a>);

impl Drop for Applied<'_> {
    fn drop(&mut self) {
        self.0.db.background.notify();
    }
}
