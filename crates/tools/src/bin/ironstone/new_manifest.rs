//! A new MANIFEST for a closed database: all records of the old one, and one more edit.
//!
//! Records are copied unchanged, so that no data of other releases is lost. The old MANIFEST stays: after
//! an error or a crash, CURRENT names either the old or the new MANIFEST, and both are complete.

use std::path::Path;

use base::FileNumber;
use io::{FileSystem, OpenHow, posix::Posix};
use ironstone::{Error, Result};
use manifest::edit::{FileMetaData, VersionEdit};

use crate::state::State;

/// The smallest unit that devices write as a whole.
const SECTOR: u32 = 512;
/// Number of bytes that are copied between two syncs.
const SYNC_BYTES: usize = 1 << 20;

/// Writes the new MANIFEST, and makes CURRENT name it. The caller holds LOCK.
pub(crate) fn with_edit(dir: &Path, state: &State, mut edit: VersionEdit) -> Result<()> {
    let old = files::read_current(&Posix, dir)?;
    let (number, next) = free_number(dir, state)?;
    edit.next_file_number = Some(next);
    edit.last_sequence = Some(state.last_sequence);
    let path = files::manifest_path(dir, number);
    let written = write(&files::manifest_path(dir, old), &path, &edit)
        .and_then(|()| check(&path, state, &edit))
        .and_then(|()| Posix.sync_dir(dir));
    written.inspect_err(|_| drop(Posix.remove(&path)))?;
    files::write_current(&Posix, dir, number)
}

/// An unused file number, and the next one.
fn free_number(dir: &Path, state: &State) -> Result<(FileNumber, u64)> {
    let all = files::list(&Posix, dir)?.into_iter();
    let used = all.filter(|e| e.kind.is_counted()).map(|e| e.number.0);
    let free = used.max().map_or(Some(0), |n| n.checked_add(1));
    let free = free.map(|n| n.max(state.next_file_number));
    free.and_then(|n| Some((FileNumber(n), n.checked_add(1)?)))
        .ok_or_else(|| {
            Error::corruption("the file numbers are used up: none is left for a new MANIFEST")
                .file(dir)
        })
}

/// Copies the records of complete groups of edits, and appends `edit`.
fn write(old: &Path, new: &Path, edit: &VersionEdit) -> Result<()> {
    let file = Posix.open(new, OpenHow::CREATE_NEW)?;
    let options = log::LogOptions {
        head_last: Some(SECTOR),
        ..log::LogOptions::default()
    };
    let mut writer = log::Writer::new(file, options);
    let mut reader = log::Reader::manifest(Posix.open(old, OpenHow::READ)?);
    let (mut record, mut group) = (Vec::new(), Vec::new());
    let mut unsynced = 0;
    while reader.read(&mut record)? {
        let at = reader.record_offset();
        let decoded = VersionEdit::decode(&record).map_err(|e| e.or_file(old).offset(at))?;
        unsynced += record.len();
        group.push(std::mem::take(&mut record));
        if decoded.atomic_group_remaining.unwrap_or(0) > 0 {
            continue;
        }
        for whole in group.drain(..) {
            writer.append(&whole)?;
        }
        if unsynced >= SYNC_BYTES {
            writer.sync()?;
            unsynced = 0;
        }
    }
    writer.append(&edit.encode()?)?;
    writer.sync()?;
    Ok(())
}

/// Reads the new MANIFEST as an open does, and checks it: it must have the tables of the old MANIFEST,
/// without those that the edit removes.
fn check(path: &Path, old: &State, edit: &VersionEdit) -> Result<()> {
    let new = State::read(path, &mut |_| {})?;
    let goes = |family: u32, level: u32, meta: &FileMetaData| {
        family == edit.column_family && edit.deleted_files.contains(&(level, meta.number))
    };
    let left = tables(old).filter(|&(family, level, meta)| !goes(family, level, meta));
    if tables(&new).eq(left) {
        return Ok(());
    }
    Err(Error::corruption("the new MANIFEST does not say what was written to it").file(path))
}

/// The tables with their families and levels.
fn tables(state: &State) -> impl Iterator<Item = (u32, u32, &FileMetaData)> {
    state.families.iter().flat_map(|(id, family)| {
        let levels = family.levels.iter();
        levels.flat_map(|(level, files)| files.values().map(|meta| (*id, *level, meta)))
    })
}
