//! The content of a database according to its MANIFEST, whose edits are applied one after the
//! other.
//!
//! The engine does the same when it opens a database. This copy keeps only what tools show, and
//! works on a MANIFEST without its database.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;

use base::{Comparator, key};
use io::{FileSystem, OpenHow, posix::Posix};
use ironstone::{Error, Result};
use manifest::edit::{BlobAddition, FileMetaData, VersionEdit};

/// A column family.
#[derive(Debug, Default)]
pub(crate) struct Family {
    /// Its name.
    pub(crate) name: String,
    /// Its comparator's stored name.
    pub(crate) comparator: String,
    /// Logs with a smaller number have no data of the family.
    pub(crate) log_number: u64,
    /// Live tables by level and number.
    pub(crate) levels: BTreeMap<u32, BTreeMap<u64, FileMetaData>>,
    /// Live blob files by number.
    pub(crate) blobs: BTreeMap<u64, Blob>,
}

/// A blob file.
#[derive(Debug, Default)]
pub(crate) struct Blob {
    /// The file as it was added.
    pub(crate) added: BlobAddition,
    /// Number of unreferenced blobs.
    pub(crate) garbage_count: u64,
    /// Bytes of the unreferenced blobs.
    pub(crate) garbage_bytes: u64,
}

/// Everything in a MANIFEST.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Live families by id.
    pub(crate) families: BTreeMap<u32, Family>,
    pub(crate) next_file_number: u64,
    pub(crate) last_sequence: u64,
    pub(crate) prev_log_number: u64,
    pub(crate) max_column_family: u32,
    pub(crate) min_log_number_to_keep: u64,
    /// How the file ended.
    pub(crate) end: Option<log::End>,
    /// Edits read.
    pub(crate) edits: u64,
}

impl State {
    /// Reads a MANIFEST, and passes every edit to `visit`.
    pub(crate) fn read(path: &Path, visit: &mut dyn FnMut(&VersionEdit)) -> Result<Self> {
        let file = Posix.open(path, OpenHow::READ)?;
        let mut reader = log::Reader::manifest(file);
        let mut record = Vec::new();
        let mut state = Self::default();
        let mut group: Vec<VersionEdit> = Vec::new();
        let default = Family {
            name: "default".to_owned(),
            ..Family::default()
        };
        state.families.insert(0, default);
        while reader.read(&mut record)? {
            let offset = reader.record_offset();
            let located = |e: Error| e.or_file(path).offset(offset);
            let edit = VersionEdit::decode(&record).map_err(located)?;
            visit(&edit);
            state.edits += 1;
            let remaining = edit.atomic_group_remaining.unwrap_or(0);
            group.push(edit);
            // A group of edits counts only when it is whole.
            if remaining == 0 {
                for edit in group.drain(..) {
                    state.apply(edit).map_err(located)?;
                }
            }
        }
        state.end = Some(reader.end().clone());
        Ok(state)
    }

    fn apply(&mut self, edit: VersionEdit) -> Result<()> {
        let newest = |slot: &mut u64, value: Option<u64>| *slot = value.unwrap_or(*slot);
        newest(&mut self.next_file_number, edit.next_file_number);
        newest(&mut self.last_sequence, edit.last_sequence);
        newest(&mut self.prev_log_number, edit.prev_log_number);
        newest(
            &mut self.min_log_number_to_keep,
            edit.min_log_number_to_keep,
        );
        let id = edit.column_family;
        let highest = edit.max_column_family.unwrap_or(0).max(id);
        self.max_column_family = self.max_column_family.max(highest);
        if edit.is_wal_edit() {
            return Ok(());
        }
        if let Some(name) = &edit.add_column_family {
            let family = Family {
                name: name.clone(),
                ..Family::default()
            };
            self.families.insert(id, family);
        }
        if edit.drop_column_family {
            self.families.remove(&id);
            return Ok(());
        }
        let family = self
            .families
            .get_mut(&id)
            .ok_or_else(|| Error::corruption(format!("an edit of unknown column family {id}")))?;
        family.apply(edit);
        Ok(())
    }

    /// Live tables of all families.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (&Family, &FileMetaData)> {
        self.families.values().flat_map(|f| {
            f.levels
                .values()
                .flat_map(|l| l.values())
                .map(move |m| (f, m))
        })
    }
}

impl Family {
    fn apply(&mut self, edit: VersionEdit) {
        if let Some(name) = edit.comparator {
            self.comparator = name;
        }
        self.log_number = edit.log_number.unwrap_or(self.log_number);
        for (level, number) in edit.deleted_files {
            self.levels.entry(level).or_default().remove(&number.0);
        }
        for new in edit.new_files {
            let level = self.levels.entry(new.level).or_default();
            level.insert(new.meta.number.0, new.meta);
        }
        for added in edit.blob_file_additions {
            let blob = Blob {
                added,
                ..Blob::default()
            };
            self.blobs.insert(blob.added.number.0, blob);
        }
        for garbage in edit.blob_file_garbage {
            if let Some(blob) = self.blobs.get_mut(&garbage.number.0) {
                blob.garbage_count = blob.garbage_count.saturating_add(garbage.blob_count);
                blob.garbage_bytes = blob.garbage_bytes.saturating_add(garbage.blob_bytes);
            }
        }
        self.drop_old_blobs();
    }

    /// Blob files before the first one that a table refers to are not needed.
    fn drop_old_blobs(&mut self) {
        if self.blobs.is_empty() {
            return;
        }
        let tables = self.levels.values().flat_map(BTreeMap::values);
        match tables.filter_map(|m| m.oldest_blob_file_number).min() {
            Some(first) => self.blobs = self.blobs.split_off(&first),
            None => self
                .blobs
                .retain(|_, b| b.garbage_count < b.added.blob_count),
        }
    }

    /// The order of its keys; bytewise if its comparator is not built in.
    pub(crate) fn order(&self) -> Comparator {
        Comparator::by_name(&self.comparator).unwrap_or_else(Comparator::bytewise)
    }

    /// A level's tables: level 0 newest first, the others by key.
    pub(crate) fn level(&self, level: u32) -> Vec<&FileMetaData> {
        let mut files: Vec<&FileMetaData> = self
            .levels
            .get(&level)
            .into_iter()
            .flat_map(BTreeMap::values)
            .collect();
        if level == 0 {
            let known = files.iter().all(|m| m.epoch_number.is_some());
            let epoch = |m: &FileMetaData| m.epoch_number.filter(|_| known);
            files.sort_by_key(|m| {
                Reverse((epoch(m), m.largest_seqno, m.smallest_seqno, m.number.0))
            });
        } else {
            let order = self.order();
            files.sort_by(|a, b| key::compare(&order, &a.smallest, &b.smallest));
        }
        files
    }
}
