//! `update-manifest`, `unsafe-remove-sst-file`: changes the tables in the MANIFEST of a closed
//! database.

use std::path::Path;

use base::FileNumber;
use io::{FileSystem, posix::Posix};
use manifest::edit::VersionEdit;

use crate::cli::Global;
use crate::cli_writes::{UnsafeRemoveSstFile, UpdateManifest};
use crate::fail::{Failure, Outcome, note};
use crate::state::State;
use crate::{logs, new_manifest};

/// Checks that every table exists. There is nothing to write, because the operating system has no
/// temperatures.
pub(crate) fn update(global: &Global, args: &UpdateManifest) -> Outcome {
    if !args.update_temperatures {
        return Err(Failure::message(
            "No action like --update_temperatures specified for update_manifest",
        ));
    }
    let dir = global.dir()?;
    files::read_current(&Posix, dir)?;
    let _lock = logs::lock(dir)?;
    for (family, meta) in read(dir)?.tables() {
        let number = meta.number;
        let path = files::table_path(dir, number);
        if !Posix.exists(&path)? && !Posix.exists(&files::leveldb_table_path(dir, number))? {
            return Err(Failure::message(format!(
                "failed to update manifest: IO error: No such file or directory: {}, a table of \
                 column family {}",
                path.display(),
                family.name
            )));
        }
        if args.verbose {
            note(format_args!("{}: temperature unknown", path.display()));
        }
    }
    note(format_args!("Manifest updates successful"));
    Ok(())
}

/// Removes a table from the MANIFEST.
pub(crate) fn remove(global: &Global, args: &UnsafeRemoveSstFile) -> Outcome {
    let digits = args.number.bytes().all(|b| b.is_ascii_digit());
    let number = args.number.parse::<u64>().ok().filter(|_| digits);
    let number = number.ok_or_else(|| {
        Failure::message(format!(
            "Failed to parse SST file number {}: it must be decimal digits",
            args.number
        ))
    })?;
    let dir = global.dir()?;
    let failed = |e| Failure::message(format!("failed to unsafely remove SST file: {e}"));
    files::read_current(&Posix, dir).map_err(failed)?;
    let _lock = logs::lock(dir).map_err(failed)?;
    let state = read(dir)?;
    let place = state.families.iter().find_map(|(id, family)| {
        let mut levels = family.levels.iter();
        let (level, _) = levels.find(|(_, files)| files.contains_key(&number))?;
        Some((*id, *level))
    });
    let (column_family, level) = place.ok_or_else(|| {
        Failure::message(
            "failed to unsafely remove SST file: NotFound: File not present in any level",
        )
    })?;
    let edit = VersionEdit {
        column_family,
        deleted_files: vec![(level, FileNumber(number))],
        ..VersionEdit::default()
    };
    new_manifest::with_edit(dir, &state, edit).map_err(failed)?;
    note(format_args!("unsafely removed SST file"));
    Ok(())
}

fn read(dir: &Path) -> Outcome<State> {
    let manifest = files::manifest_path(dir, files::read_current(&Posix, dir)?);
    Ok(State::read(&manifest, &mut |_| {})?)
}
