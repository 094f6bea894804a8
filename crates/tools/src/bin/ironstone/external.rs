//! `write-extern-sst`, `ingest-extern-sst`: tables that are made outside of a database.

use std::path::Path;

use io::{FileSystem, posix::Posix};
use ironstone::{IngestExternalFileOptions, Options, SstFileWriter};

use crate::cli::Global;
use crate::cli_writes::{IngestExternSst, WriteExternSst};
use crate::fail::{Failure, Outcome, note};
use crate::{lines, logs, open};

/// Writes a table from the standard input.
pub(crate) fn write(global: &Global, args: &WriteExternSst) -> Outcome {
    let path = &args.file;
    check_place(path)?;
    let db = open::read_only(global)?;
    let family = open::family(&db, global)?;
    let options = Options {
        cf: db.cf(&family).options(),
        ..Options::default()
    };
    // The table gets its name when it is complete, and the file that has it is not lost before.
    let temp = logs::free_name(path, "tmp")?;
    let mut writer = SstFileWriter::new(&options).with_column_family(&family);
    writer
        .open(&temp)
        .map_err(|e| Failure::message(format!("failed to open SST file: {e}")))?;
    let bad = lines::read(global, &mut std::io::stdin().lock(), &mut |key, value| {
        writer
            .put(key, value)
            .map_err(|e| Failure::message(format!("failed to write record to file: {e}")))
    })?;
    if bad > 0 {
        note(format_args!("Warning: {bad} bad lines ignored."));
    }
    writer
        .finish()
        .map_err(|e| Failure::message(format!("Failed to finish writing to file: {e}")))?;
    let named = Posix.rename(&temp, path).and_then(|()| {
        let dir = path.parent().filter(|p| !p.as_os_str().is_empty());
        Posix.sync_dir(dir.unwrap_or(Path::new(".")))
    });
    named.inspect_err(|_| drop(Posix.remove(&temp)))?;
    db.close()?;
    note(format_args!(
        "external SST file written to {}",
        path.display()
    ));
    Ok(())
}

/// Refuses to replace anything but a regular file: a device, a pipe, a directory, a symbolic link.
fn check_place(path: &Path) -> Outcome {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => Err(Failure::message(format!(
            "failed to open SST file: {} is no regular file: choose another name",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// Adds a table to the database.
pub(crate) fn ingest(global: &Global, args: &IngestExternSst) -> Outcome {
    match (args.write_global_seqno, args.allow_global_seqno) {
        (true, false) => {
            return Err(Failure::message(
                "a sequence number that is not allowed cannot be written into the table: \
                 --allow_global_seqno=false needs --write_global_seqno=false",
            ));
        }
        (false, true) => note(format_args!(
            "Warning: without --write_global_seqno, RocksDB before 5.16 cannot read the table in the \
             database"
        )),
        _ => {}
    }
    let options = IngestExternalFileOptions {
        move_files: args.move_files,
        snapshot_consistency: args.snapshot_consistency,
        allow_global_seqno: args.allow_global_seqno,
        allow_blocking_flush: args.allow_blocking_flush,
        ingest_behind: args.ingest_behind,
        write_global_seqno: args.write_global_seqno,
        ..IngestExternalFileOptions::default()
    };
    let db = open::writable(global, args.create.create_if_missing)?;
    let family = open::family(&db, global)?;
    db.cf(&family)
        .ingest_external_file(&[&args.file], &options)
        .map_err(|e| Failure::message(format!("failed to ingest external SST: {e}")))?;
    drop(family);
    db.close()?;
    note(format_args!("external SST files ingested"));
    Ok(())
}
