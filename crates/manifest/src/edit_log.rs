//! The MANIFEST: the log of version edits, framed like a WAL, named by CURRENT.
//!
//! [`read`] replays it into plain data and changes nothing on disk. [`Writer`] appends edits;
//! each append is durable before it returns, and a failed one leaves the writer unusable, because
//! what is on disk is then unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use base::{Error, FileNumber, Result};
use io::{FileSystem, NewNames, OpenHow};

use super::edit::{FileMetaData, VersionEdit};
use super::version::age;

/// A column family as the MANIFEST describes it.
#[derive(Debug, Default, Clone)]
pub struct RecoveredFamily {
    /// The family's name.
    pub name: String,
    /// The comparator's stored name; empty if no edit gave one.
    pub comparator: String,
    /// Logs with a smaller number hold nothing of the family that is not in tables.
    pub log_number: u64,
    /// (level, number) to file.
    pub files: BTreeMap<(u32, u64), FileMetaData>,
    /// By level, for `kRoundRobin`: where the level's next compaction starts.
    pub cursors: BTreeMap<u32, Vec<u8>>,
    /// Features of the family that Ironstone cannot preserve, by name.
    pub foreign: BTreeSet<&'static str>,
}

/// The content of the MANIFEST.
#[derive(Debug, Default)]
pub struct Recovered {
    /// The MANIFEST that CURRENT names.
    pub manifest_path: PathBuf,
    /// Its number.
    pub manifest_number: u64,
    /// The families by their ids.
    pub families: BTreeMap<u32, RecoveredFamily>,
    /// The largest id that a family has or had.
    pub max_column_family: u32,
    /// No file has this number or a larger one, unless it was made after the last edit.
    pub next_file_number: u64,
    /// The last sequence number that is in tables.
    pub last_sequence: u64,
    /// Logs before this one are obsolete.
    pub min_log_number_to_keep: u64,
    /// The identity of the database, if it is recorded.
    pub db_id: Option<String>,
    /// The logs that were recorded, with their durable sizes if these were recorded.
    pub wals: BTreeMap<u64, Option<u64>>,
    /// The secrets from which the nonces of logs are computed.
    pub log_secrets: log::Secrets,
    /// Where logs ended when the database was closed.
    pub log_ends: BTreeMap<u64, u64>,
}

/// Reads CURRENT and the MANIFEST that it names.
///
/// Errors: Corruption naming the file and the problem; nothing is changed.
pub fn read(fs: &dyn FileSystem, dir: &Path) -> Result<Recovered> {
    let number = files::read_current(fs, dir)?;
    let path = files::manifest_path(dir, number);
    let file = fs.open(&path, OpenHow::READ).map_err(|e| {
        if e.is_not_found() {
            Error::corruption("CURRENT names this file, but it does not exist")
                .file(&path)
                .hint("restore it, or restore the directory from a backup")
        } else {
            e
        }
    })?;
    let mut replay = Replay::default();
    replay.out.manifest_path.clone_from(&path);
    replay.out.manifest_number = number.0;
    let mut reader = log::Reader::manifest(file);
    let mut record = Vec::new();
    while reader.read(&mut record)? {
        let at = reader.record_offset();
        let edit = VersionEdit::decode(&record).map_err(|e| e.or_file(&path).offset(at))?;
        replay
            .record(edit)
            .map_err(|e| e.or_file(&path).offset(at))?;
    }
    replay.finish().map_err(|e| e.or_file(&path))
}

/// Applies edits to plain data; buffers atomic groups until they are complete.
#[derive(Default)]
struct Replay {
    out: Recovered,
    group: Vec<VersionEdit>,
    have_log_number: bool,
    have_next_file: bool,
    have_last_sequence: bool,
}

impl Replay {
    fn record(&mut self, edit: VersionEdit) -> Result<()> {
        match edit.atomic_group_remaining {
            Some(left) => {
                if let Some(previous) = self.group.last().and_then(|e| e.atomic_group_remaining)
                    && previous != left + 1
                {
                    return Err(Error::corruption(format!(
                        "an atomic group says {left} edits follow, {} were expected",
                        previous.saturating_sub(1)
                    )));
                }
                self.group.push(edit);
                if left == 0 {
                    for edit in std::mem::take(&mut self.group) {
                        self.apply(edit)?;
                    }
                }
                Ok(())
            }
            None if !self.group.is_empty() => Err(Error::corruption(
                "an atomic group of edits was not completed",
            )),
            None => self.apply(edit),
        }
    }

    fn apply(&mut self, edit: VersionEdit) -> Result<()> {
        self.apply_database(&edit);
        let id = edit.column_family;
        if id == 0 && self.out.families.is_empty() {
            let default = RecoveredFamily {
                name: "default".to_owned(),
                ..Default::default()
            };
            self.out.families.insert(0, default);
        }
        if let Some(name) = edit.add_column_family {
            let family = RecoveredFamily {
                name,
                comparator: edit.comparator.unwrap_or_default(),
                log_number: edit.log_number.unwrap_or(0),
                ..Default::default()
            };
            self.out.max_column_family = self.out.max_column_family.max(id);
            return match self.out.families.insert(id, family) {
                None => Ok(()),
                Some(_) => Err(Error::corruption(format!(
                    "column family {id} is added twice"
                ))),
            };
        }
        if edit.drop_column_family {
            return match self.out.families.remove(&id) {
                Some(_) if id != 0 => Ok(()),
                _ => Err(Error::corruption(format!(
                    "column family {id} cannot be dropped"
                ))),
            };
        }
        let Some(family) = self.out.families.get_mut(&id) else {
            return Err(Error::corruption(format!(
                "an edit names column family {id}, unknown"
            )));
        };
        if let Some(name) = edit.comparator {
            family.comparator = name;
        }
        family.log_number = family.log_number.max(edit.log_number.unwrap_or(0));
        if !edit.blob_file_additions.is_empty() {
            family.foreign.insert("blob files");
        }
        if edit.persist_user_defined_timestamps == Some(false) {
            family
                .foreign
                .insert("user-defined timestamps that are not persisted");
        }
        for cursor in edit.compact_cursors {
            family.cursors.insert(cursor.level, cursor.key);
        }
        for (level, number) in edit.deleted_files {
            if family.files.remove(&(level, number.0)).is_none() {
                return Err(Error::corruption(format!(
                    "an edit deletes file {number} from level {level}, where it is not"
                )));
            }
        }
        for new in edit.new_files {
            let key = (new.level, new.meta.number.0);
            if family.files.insert(key, new.meta).is_some() {
                return Err(Error::corruption(format!(
                    "file {} is added twice",
                    FileNumber(key.1)
                )));
            }
        }
        Ok(())
    }

    /// Applies the parts of an edit that belong to no column family.
    fn apply_database(&mut self, edit: &VersionEdit) {
        let out = &mut self.out;
        self.have_log_number |= edit.log_number.is_some();
        if let Some(n) = edit.next_file_number {
            self.have_next_file = true;
            out.next_file_number = out.next_file_number.max(n);
        }
        if let Some(n) = edit.last_sequence {
            self.have_last_sequence = true;
            out.last_sequence = out.last_sequence.max(n);
        }
        if let Some(n) = edit.min_log_number_to_keep {
            out.min_log_number_to_keep = out.min_log_number_to_keep.max(n);
        }
        if let Some(n) = edit.max_column_family {
            out.max_column_family = out.max_column_family.max(n);
        }
        if let Some(id) = &edit.db_id {
            out.db_id = Some(id.clone());
        }
        for &(first_log, secret) in &edit.log_secrets {
            out.log_secrets.insert(first_log, secret);
        }
        let ends = edit.log_ends.iter();
        out.log_ends
            .extend(ends.map(|log| (log.number.0, log.end.0)));
        for wal in &edit.wal_additions {
            let size = out.wals.entry(wal.log_number).or_default();
            *size = (*size).max(wal.synced_size);
        }
        if let Some(below) = edit.wal_deletion {
            out.wals = out.wals.split_off(&below);
        }
    }

    fn finish(mut self) -> Result<Recovered> {
        // An incomplete atomic group at the end is ignored.
        for (have, what) in [
            (self.have_log_number, "log_number"),
            (self.have_next_file, "next_file_number"),
            (self.have_last_sequence, "last_sequence"),
        ] {
            if !have {
                return Err(Error::corruption(format!(
                    "no {what} entry in the MANIFEST"
                )));
            }
        }
        for family in self.out.families.values_mut() {
            derive_epochs(family);
        }
        Ok(self.out)
    }
}

/// If any level 0 file lacks an epoch, gives all of them epochs in the order of their sequence numbers.
fn derive_epochs(family: &mut RecoveredFamily) {
    let level0 = |files: &BTreeMap<(u32, u64), FileMetaData>| {
        files
            .keys()
            .copied()
            .filter(|(level, _)| *level == 0)
            .collect::<Vec<_>>()
    };
    let mut keys = level0(&family.files);
    if keys
        .iter()
        .all(|k| family.files[k].epoch_number.is_some_and(|e| e > 0))
    {
        return;
    }
    for meta in family.files.values_mut() {
        meta.epoch_number = Some(1);
    }
    keys.sort_by_key(|k| age(&family.files[k]));
    for (i, k) in keys.iter().enumerate() {
        if let Some(meta) = family.files.get_mut(k) {
            meta.epoch_number = Some(2 + i as u64);
        }
    }
}

/// The smallest unit, in bytes, that devices write as a whole.
const SECTOR: u32 = 512;

/// Appends edits to a MANIFEST.
pub struct Writer {
    number: FileNumber,
    log: log::Writer,
}

impl Writer {
    /// Creates MANIFEST-`number` durably with the edits of `snapshot`, and makes CURRENT name it.
    pub fn create(
        fs: &dyn FileSystem,
        dir: &Path,
        number: FileNumber,
        snapshot: &[VersionEdit],
    ) -> Result<Self> {
        let path = files::manifest_path(dir, number);
        let name = NewNames::begin(fs, dir);
        let file = fs.open(&path, OpenHow::CREATE_NEW)?;
        // RocksDB refuses a MANIFEST whose last record is torn: a record that lacks even one bit at its end
        // looks like one with a flipped bit. So the head of a record is written last.
        let options = log::LogOptions {
            head_last: Some(SECTOR),
            ..log::LogOptions::default()
        };
        let log = log::Writer::new(file, options);
        let mut writer = Self { number, log };
        for edit in snapshot {
            writer.log.append(&edit.encode()?)?;
        }
        writer.log.sync()?; // CURRENT does not name it yet
        name.sync(fs, dir)?;
        files::write_current(fs, dir, number)?;
        Ok(writer)
    }

    /// Appends edits and makes each one durable before the next is begun: a device may write the sectors of
    /// several records in any order, and a complete record after a missing one counts as damage.
    pub fn append(&mut self, edits: &[VersionEdit]) -> Result<()> {
        for edit in edits {
            self.log.append(&edit.encode()?)?;
            self.log.sync()?;
        }
        Ok(())
    }

    /// The number of the MANIFEST that it writes.
    pub fn number(&self) -> FileNumber {
        self.number
    }

    /// Number of bytes written.
    pub fn size(&self) -> u64 {
        self.log.size()
    }
}
