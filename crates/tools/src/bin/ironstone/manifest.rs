//! `dump-manifest`: column families, levels and files, as `ldb manifest_dump` prints them.

use std::io::Write;

use base::Comparator;
use io::posix::Posix;
use manifest::edit::{FileMetaData, LEVELS_MAX};

use crate::cli::{self, Global};
use crate::fail::{Failure, Outcome, note};
use crate::state::{Family, State};
use crate::text::{Hex, push_internal_key};

/// Prints a MANIFEST.
pub(crate) fn dump(global: &Global, args: &cli::DumpManifest, out: &mut dyn Write) -> Outcome {
    let named = args.file.as_ref().or(args.path.as_ref());
    let path = match (named, &global.db) {
        (Some(path), _) => path.clone(),
        (None, Some(dir)) => files::manifest_path(dir, files::read_current(&Posix, dir)?),
        (None, None) => {
            return Err(Failure::message(
                "the MANIFEST must be named: ironstone dump-manifest FILE, or --db=DIR",
            ));
        }
    };
    let mut written = Ok(());
    if args.verbose {
        writeln!(out, "Processing Manifest file {}", path.display())?;
    }
    let state = State::read(&path, &mut |edit| {
        if args.verbose && written.is_ok() {
            written = if global.hex {
                write!(out, "{edit:#}")
            } else {
                write!(out, "{edit}")
            };
        }
    })?;
    written?;
    show(&state, global.hex, out)?;
    if args.verbose {
        writeln!(out, "Processing Manifest file {} done", path.display())?;
    }
    if let Some(log::End::Torn { offset, reason, .. }) = state.end {
        note(format_args!(
            "note: {} ends at offset {offset}: {reason}",
            path.display()
        ));
    }
    Ok(())
}

/// Prints families, levels and files.
pub(crate) fn show(state: &State, hex: bool, out: &mut dyn Write) -> Outcome {
    let live = state.families.len();
    for (i, (id, family)) in state.families.iter().enumerate() {
        let name = &family.name;
        writeln!(
            out,
            "--------------- Column family \"{name}\"  (ID {id}) --------------"
        )?;
        writeln!(out, "log number: {}", family.log_number)?;
        let comparator = &family.comparator;
        if *comparator == *Comparator::bytewise().name() {
            writeln!(out, "comparator: {comparator}")?;
        } else {
            writeln!(
                out,
                "comparator: <{comparator}>, but the comparator object is not available."
            )?;
        }
        // RocksDB makes a version for each family, and a second one when all edits are read.
        show_levels(family, live + i, hex, out)?;
    }
    let s = state;
    writeln!(
        out,
        "next_file_number {} last_sequence {}  prev_log_number {} max_column_family {} \
         min_log_number_to_keep {}",
        // RocksDB's tool takes one number itself.
        s.next_file_number.saturating_add(1),
        s.last_sequence,
        s.prev_log_number,
        s.max_column_family,
        s.min_log_number_to_keep
    )?;
    Ok(())
}

fn show_levels(family: &Family, version: usize, hex: bool, out: &mut dyn Write) -> Outcome {
    let mut line = Vec::new();
    for level in 0..LEVELS_MAX {
        writeln!(out, "--- level {level} --- version# {version} ---")?;
        for meta in family.level(level) {
            line.clear();
            push_file(&mut line, meta, hex);
            out.write_all(&line)?;
        }
    }
    if family.blobs.is_empty() {
        return Ok(());
    }
    writeln!(out, "--- blob files --- version# {version} ---")?;
    for (number, blob) in &family.blobs {
        let tables = family.levels.values().flat_map(|l| l.values());
        let mut linked: Vec<String> = tables
            .filter(|m| m.oldest_blob_file_number == Some(*number))
            .map(|m| m.number.0.to_string())
            .collect();
        linked.push("}".to_owned());
        let a = &blob.added;
        writeln!(
            out,
            "blob_file_number: {number} total_blob_count: {} total_blob_bytes: {} \
             checksum_method: {} checksum_value: {} linked_ssts: {{ {} \
             garbage_blob_count: {} garbage_blob_bytes: {}",
            a.blob_count,
            a.blob_bytes,
            a.checksum_method,
            Hex(&a.checksum),
            linked.join(" "),
            blob.garbage_count,
            blob.garbage_bytes
        )?;
    }
    Ok(())
}

/// ` 21:8591[101 .. 300]['a' seq:101, type:1 .. 'b' seq:300, type:1]`
fn push_file(line: &mut Vec<u8>, meta: &FileMetaData, hex: bool) {
    let (number, size) = (meta.number.0, meta.file_size);
    let (first, last) = (meta.smallest_seqno, meta.largest_seqno);
    line.extend_from_slice(format!(" {number}:{size}[{first} .. {last}][").as_bytes());
    push_internal_key(line, &meta.smallest, hex);
    line.extend_from_slice(b" .. ");
    push_internal_key(line, &meta.largest, hex);
    line.push(b']');
    if let Some(blob) = meta.oldest_blob_file_number {
        line.extend_from_slice(format!(" blob_file:{blob}").as_bytes());
    }
    line.push(b'\n');
}
