//! Exports a column family's tables to a directory, and imports such tables as a new family of this or another
//! database.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::stats::Activity;
use base::{Error, Result, SequenceNumber, key};
use io::{NewNames, OpenHow, SyncKind};
use table::{InternalIterator, Reader};

use crate::backup::checkpoint::in_new_dir;
use crate::backup::live_files::{self, LiveFileMetaData, NoDeletions};
use crate::catalog::family::Family;
use crate::db::cf::Cf;
use crate::db::{ColumnFamily, Db, families, maintenance};
use crate::shared::change::Logged;
use crate::shared::{Shared, persist};
use crate::write::{debt, submit};
use files::copies::{self, Made};
use files::{self};
use manifest::edit::{FileMetaData, LEVELS_MAX, VersionEdit};
use options::{ColumnFamilyOptions, Env, FlushOptions, sanitize};

/// Describes an export; needed to import it. RocksDB's `ExportImportFilesMetaData`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportImportFilesMetaData {
    /// The name of the family's comparator.
    pub db_comparator_name: String,
    /// The exported files.
    pub files: Vec<LiveFileMetaData>,
}

/// How files are imported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportColumnFamilyOptions {
    /// Whether the files are moved into the database, by hard links, instead of copied.
    pub move_files: bool,
}

/// Export of a column family.
impl Cf<'_> {
    /// Flushes the family and hard-links its tables into the new directory `dir`; on another file system they are
    /// copied. An import needs the returned metadata. Errors: `InvalidArgument` if `dir` exists; as [`Cf::flush`];
    /// those of the file system.
    pub fn export(&self, dir: impl AsRef<Path>) -> Result<ExportImportFilesMetaData> {
        self.check()?;
        export(self.shared, self.family, dir.as_ref())
    }
}

/// Import of a column family.
impl Db {
    /// Creates a column family from the files of an export.
    ///
    /// Errors: `InvalidArgument` if a family with this name exists, the comparators differ, or the metadata has no
    /// files; a file is missing, changed or damaged; the MANIFEST cannot be written.
    pub fn create_column_family_with_import(
        &self,
        name: &str,
        options: &ColumnFamilyOptions,
        import: &ImportColumnFamilyOptions,
        metadata: &ExportImportFilesMetaData,
    ) -> Result<ColumnFamily> {
        self::import(&self.shared, name, options, import, metadata).map(ColumnFamily::new)
    }
}

/// Flushes the family and links its tables, or copies them, into the new directory `dir`.
pub(crate) fn export(
    db: &Shared,
    family: &Arc<Family>,
    dir: &Path,
) -> Result<ExportImportFilesMetaData> {
    let fs = &*db.env().fs;
    let one = std::slice::from_ref(family);
    maintenance::flush(db, one, &FlushOptions::default())?;
    let _guard = NoDeletions::begin(db);
    let version = Arc::clone(&family.view.load().version); // keeps the files alive
    let mut metadata = live_files::family_metadata_of(&family.name, &version);
    in_new_dir(fs, dir, |temp| {
        for (_, file) in version.files() {
            let name = file.path().file_name().unwrap_or_default();
            copies::link_or_copy(fs, file.path(), &temp.join(name), &mut copies::at_once)?;
        }
        Ok(())
    })?;
    let mut files: Vec<_> = std::mem::take(&mut metadata.levels)
        .into_iter()
        .flat_map(|level| level.files)
        .collect();
    for file in &mut files {
        file.directory = dir.to_path_buf();
    }
    db.info.log.info(format_args!(
        "[{}] exported to {}: {} files",
        family.name,
        dir.display(),
        files.len()
    ));
    Ok(ExportImportFilesMetaData {
        db_comparator_name: family.comparator().name().to_owned(),
        files,
    })
}

/// Creates a family from exported files. After an error the database does not have the family, unless the MANIFEST
/// failed: it may then have the family after it is opened again.
pub(crate) fn import(
    db: &Shared,
    name: &str,
    options: &ColumnFamilyOptions,
    import: &ImportColumnFamilyOptions,
    metadata: &ExportImportFilesMetaData,
) -> Result<Arc<Family>> {
    options.validate_in(&db.options.db)?;
    db.check_writable()?;
    let mut options = options.clone();
    let replaced = sanitize::family(&mut options, &db.options.db);
    let options = &options;
    if metadata.db_comparator_name != options.comparator.name() {
        return Err(Error::invalid_argument(format!(
            "Comparator name mismatch: the files are of {}, the column family of {}",
            metadata.db_comparator_name,
            options.comparator.name()
        )));
    }
    if metadata.files.is_empty() {
        return Err(Error::invalid_argument("The list of files is empty"));
    }
    let mut all = Vec::with_capacity(metadata.files.len());
    for file in &metadata.files {
        all.push(Import::look(db, options, file)?);
    }
    let mut made = Made::new(Arc::clone(&db.env().fs));
    let names = NewNames::begin(&*db.env().fs, &db.dir);
    for file in &mut all {
        file.bring_in(db, import, &mut made)?;
    }
    names.sync(&*db.env().fs, &db.dir)?;
    let family = db.alone(|| {
        // Earlier writes must be durable before the family is: otherwise a log that lacks some of them would stop
        // recovery.
        submit::flush_wal(db, true)?;
        add(db, (name, options), &mut all, &mut made)
    })?;
    let others = db.catalog.families.load().count() - 1;
    families::report(&db.info.log, others, &family, options, &replaced);
    persist::follow_change(db);
    if import.move_files {
        for file in &all {
            drop(db.env().fs.remove(&file.external)); // a file that cannot be removed stays
        }
    }
    db.writes.attention.raise();
    debt::debt_changed(db);
    Ok(family)
}

/// A file to import.
struct Import {
    external: PathBuf,
    level: u32,
    /// Orders the files of level 0: epoch number, then largest sequence number.
    age: (u64, u64),
    meta: FileMetaData,
}

impl Import {
    fn look(db: &Shared, options: &ColumnFamilyOptions, file: &LiveFileMetaData) -> Result<Self> {
        let external = file.directory.join(file.name.trim_start_matches('/'));
        Self::look_inside(db.env(), options, file, external.clone())
            .map_err(|e| e.or_file(external))
    }

    fn look_inside(
        env: &Env,
        options: &ColumnFamilyOptions,
        file: &LiveFileMetaData,
        external: PathBuf,
    ) -> Result<Self> {
        let levels = options.cf.num_levels.unsigned_abs().min(LEVELS_MAX) as usize;
        if file.level >= levels {
            return Err(Error::invalid_argument(format!(
                "the file stands on level {}, but num_levels is {levels}",
                file.level
            )));
        }
        if file.smallest_seqno > file.largest_seqno || file.largest_seqno > SequenceNumber::MAX.0 {
            return Err(Error::invalid_argument(format!(
                "the file has sequence numbers from {} to {}: there are none above {}",
                file.smallest_seqno,
                file.largest_seqno,
                SequenceNumber::MAX.0
            ))
            .hint("are the exported metadata damaged?"));
        }
        let handle = env.fs.open(&external, OpenHow::READ)?;
        let size = handle.len()?;
        if size != file.size {
            return Err(Error::corruption(format!(
                "file size mismatch: {} bytes were exported, the file has {size}",
                file.size
            )));
        }
        let reader_options = table::ReaderOptions {
            comparator: options.comparator.clone(),
            largest_seqno: file.largest_seqno,
            ..table::ReaderOptions::default()
        };
        let reader = Arc::new(Reader::open(handle, size, reader_options)?);
        let (smallest, largest) = bounds(&reader, file)?;
        let p = reader.properties();
        let unique_id = table::unique_id::internal_unique_id(
            &p.db_id,
            &p.db_session_id,
            p.original_file_number,
        );
        let tail = (p.tail_start_offset > 0).then(|| size.saturating_sub(p.tail_start_offset));
        Ok(Self {
            external,
            level: file.level as u32,
            age: (file.epoch_number, file.largest_seqno),
            meta: FileMetaData {
                file_size: size,
                smallest,
                largest,
                smallest_seqno: file.smallest_seqno,
                largest_seqno: file.largest_seqno,
                oldest_ancestor_time: file.oldest_ancester_time,
                file_creation_time: file.file_creation_time,
                unique_id,
                tail_size: tail,
                ..FileMetaData::default()
            },
        })
    }

    fn bring_in(
        &mut self,
        db: &Shared,
        options: &ImportColumnFamilyOptions,
        made: &mut Made,
    ) -> Result<()> {
        let fs = &*db.env().fs;
        self.meta.number = db.catalog.numbers.take();
        let path = files::table_path(&db.dir, self.meta.number);
        made.add(path.clone());
        let nothing = &mut copies::at_once;
        if options.move_files {
            copies::link_or_copy(fs, &self.external, &path, nothing)?;
            fs.open(&path, OpenHow::READ)?.sync(SyncKind::Data)
        } else {
            copies::copy(
                fs,
                &self.external,
                &path,
                Some(self.meta.file_size),
                nothing,
            )?;
            Ok(())
        }
    }
}

/// The smallest and largest internal key of the file: the exported ones or, if they are not valid, those in the
/// file.
fn bounds(reader: &Arc<Reader>, file: &LiveFileMetaData) -> Result<(Vec<u8>, Vec<u8>)> {
    let given = [&file.smallest, &file.largest];
    if given.iter().all(|k| key::parse(k).is_some()) {
        return Ok((file.smallest.clone(), file.largest.clone()));
    }
    if reader.has_range_tombstones() {
        return Err(Error::invalid_argument(
            "a file with range deletions whose internal keys were not exported",
        ));
    }
    let mut it = reader.iter(table::ReadOptions::default());
    let mut ends = Vec::with_capacity(2);
    it.seek_to_first();
    for last in [false, true] {
        if last {
            it.seek_to_last();
        }
        it.status()?;
        if !it.valid() {
            return Err(Error::invalid_argument("the file has no entries"));
        }
        ends.push(it.key().to_vec());
    }
    let largest = ends.pop().unwrap_or_default();
    Ok((ends.pop().unwrap_or_default(), largest))
}

/// Makes a family of the files. The gate of the order of writes is closed.
fn add(
    db: &Shared,
    (name, options): (&str, &ColumnFamilyOptions),
    all: &mut [Import],
    made: &mut Made,
) -> Result<Arc<Family>> {
    db.check_writable()?;
    let mut change = db.change().refuse_writes_if_it_fails();
    let family = families::prepare(db, &change, name, options)?;
    // Oldest first: epoch numbers are assigned in this order.
    all.sort_by_key(|f| (std::cmp::Reverse(f.level), f.age));
    let mut edit = VersionEdit {
        column_family: family.id,
        ..VersionEdit::default()
    };
    for file in all.iter_mut() {
        file.meta.epoch_number = Some(family.take_epoch());
        edit.add_file(file.level, file.meta.clone());
    }
    // One group of edits: the MANIFEST contains the family with its files, or neither.
    change.adds_family(&family);
    change.files(&family, edit, Activity::Unknown)?;
    // From here on the MANIFEST may name the files.
    change.makes(made.take());
    // Later writes must be newer than the files.
    let newest = all.iter().map(|f| f.meta.largest_seqno).max().unwrap_or(0);
    let mut ticket = db.writes.order.begin_through(newest);
    let used = ticket.last >= ticket.first;
    change.uses_sequences_through(ticket.last);
    let result = change.log().map(Logged::apply);
    ticket.end(result.is_ok() && used);
    drop(result?);
    if used {
        // The log was synced before, while writers were kept out: all earlier logged writes are durable.
        db.is_durable_through(ticket.last);
    }
    Ok(family)
}
