//! A new MANIFEST for a closed database: everything that the old one says, and one edit more.
//!
//! Records are copied as they are, so that nothing is lost that only another release understands. The
//! old MANIFEST stays: after an error or a crash, CURRENT names the one or the other, and both are whole.

use std::path::Path;

use base::FileNumber;
use io::{FileSystem, OpenHow, posix::Posix};
use ironstone::version::edit::VersionEdit;
use ironstone::{Error, Result, files};

use crate::state::State;

/// The smallest unit that devices write as a whole.
const SECTOR: u32 = 512;
/// So many bytes are copied before they are made durable.
const SYNC_BYTES: usize = 1 << 20;

/// Writes the new MANIFEST, and makes CURRENT name it. The caller holds LOCK.
pub(crate) fn with_edit(dir: &Path, state: &State, mut edit: VersionEdit) -> Result<()> {
    let old = files::read_current(&Posix, dir)?;
    let used = files::list(&Posix, dir)?.into_iter().map(|e| e.number.0);
    let number = used.max().map_or(0, |n| n + 1).max(state.next_file_number);
    let number = FileNumber(number);
    edit.next_file_number = Some(number.0 + 1);
    edit.last_sequence = Some(state.last_sequence);
    let path = files::manifest_path(dir, number);
    let written = write(&files::manifest_path(dir, old), &path, &edit)
        .and_then(|()| check(&path, &edit))
        .and_then(|()| Posix.sync_dir(dir));
    written.inspect_err(|_| drop(Posix.remove(&path)))?;
    files::write_current(&Posix, dir, number)
}

/// Copies the records of whole groups of edits, and appends `edit`.
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

/// Reads the new MANIFEST as whoever opens the database does.
fn check(path: &Path, edit: &VersionEdit) -> Result<()> {
    let state = State::read(path, &mut |_| {})?;
    let gone = |number: &FileNumber| state.tables().all(|(_, meta)| meta.number != *number);
    if edit.deleted_files.iter().all(|(_, number)| gone(number)) {
        return Ok(());
    }
    Err(Error::corruption("the new MANIFEST does not say what was written to it").file(path))
}
