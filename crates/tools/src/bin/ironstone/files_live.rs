//! Commands about the files of a database: their names, sizes and content.

use std::io::Write;
use std::path::{Path, PathBuf};

use base::Comparator;
use io::posix::Posix;
use ironstone::{Db, LiveFileMetaData, SizeApproximationOptions};
use table::RangeTombstone;

use crate::cli::Global;
use crate::cli_look::{Approxsize, FileChecksumDump, ListFileRangeDeletes, ListLiveFilesMetadata};
use crate::fail::{Failure, Outcome};
use crate::state::State;
use crate::text::{Hex, parse_bound};
use crate::{dump, manifest, open, sst};

/// The default number of range-deletion fragments to print.
const PARTS: i64 = 1000;

/// Prints how many bytes of files a range takes.
pub(crate) fn approximate_size(global: &Global, args: &Approxsize, out: &mut dyn Write) -> Outcome {
    let end = |arg: &Option<std::ffi::OsString>, name: &str| {
        parse_bound(arg.as_deref(), global.keys_hex())?.ok_or_else(|| {
            Failure::message(format!("{name} must be specified for approxsize command"))
        })
    };
    let from = end(&args.range.from, "from")?;
    let to = end(&args.range.to, "to")?;
    let db = open::read_only(global)?;
    let family = open::family(&db, global)?;
    let options = SizeApproximationOptions::default();
    let sizes = db
        .cf(&family)
        .get_approximate_sizes(&options, &[(&from, &to)])?;
    Ok(writeln!(out, "{}", sizes.first().copied().unwrap_or(0))?)
}

/// Opens the database, which checks for every file. As in `ldb`, a column family that is named must exist.
pub(crate) fn check(global: &Global, out: &mut dyn Write) -> Outcome {
    let db = open::read_only(global)?;
    drop(open::family(&db, global)?);
    db.close()?;
    Ok(writeln!(out, "OK")?)
}

fn path(file: &LiveFileMetaData) -> PathBuf {
    file.directory.join(file.name.trim_start_matches('/'))
}

/// Prints the tables of every level.
pub(crate) fn list(global: &Global, args: &ListLiveFilesMetadata, out: &mut dyn Write) -> Outcome {
    let db = open::read_only(global)?;
    if args.sort_by_filename {
        by_name(&db, out)?;
    } else {
        by_level(&db, out)?;
    }
    Ok(writeln!(out, "------------------------------")?)
}

fn by_name(db: &Db, out: &mut dyn Write) -> Outcome {
    writeln!(out, "Live SST and Blob Files:")?;
    let mut all = db.get_live_files_metadata();
    all.sort_by_key(path);
    for file in all {
        let (path, level, family) = (path(&file), file.level, &file.column_family_name);
        writeln!(
            out,
            "{} : level {level}, column family '{family}'",
            path.display()
        )?;
    }
    Ok(())
}

fn by_level(db: &Db, out: &mut dyn Write) -> Outcome {
    for family in db.column_families() {
        writeln!(out, "===== Column Family: {} =====", family.name())?;
        writeln!(out, "Live SST Files:")?;
        for level in db.cf(&family).get_column_family_metadata()?.levels {
            writeln!(out, "---------- level {} ----------", level.level)?;
            for file in &level.files {
                writeln!(out, "{}", path(file).display())?;
            }
        }
        writeln!(out, "Live Blob Files:")?;
    }
    Ok(())
}

/// Prints the range deletions of every table.
pub(crate) fn range_deletes(
    global: &Global,
    args: &ListFileRangeDeletes,
    out: &mut dyn Write,
) -> Outcome {
    let mut left = match args.max_keys.as_deref() {
        None | Some("") => PARTS,
        Some(text) => text
            .parse::<i64>()
            .map_err(|_| Failure::message(format!("max_keys has an invalid value: {text}")))?,
    };
    let db = open::read_only(global)?;
    let family = open::family(&db, global)?;
    let levels = db.cf(&family).get_column_family_metadata()?.levels;
    for file in levels.iter().flat_map(|level| &level.files) {
        if left <= 0 {
            break;
        }
        left = tombstones(&path(file), left, out)?;
    }
    Ok(writeln!(out)?)
}

/// Prints the range deletions of one table; returns how many more may be printed.
fn tombstones(path: &Path, mut left: i64, out: &mut dyn Write) -> Outcome<i64> {
    writeln!(out, "=== file : {} ===", path.display())?;
    let reader = sst::open(path)?;
    let order = Comparator::by_name(&reader.properties().comparator);
    let order = order.unwrap_or_else(Comparator::bytewise);
    visit_parts(reader.range_tombstones()?, &order, &mut |part| {
        for sequence in &part.sequences {
            let (start, end) = (Hex(part.start), Hex(part.end));
            writeln!(out, "start: {start} end: {end} seq: {sequence}")?;
            left -= 1;
            if left == 0 {
                writeln!(out, "(results may not be complete)")?;
                break;
            }
        }
        Ok(left > 0)
    })?;
    Ok(left)
}

/// A range of keys that the same range deletions cover.
struct Part<'a> {
    start: &'a [u8],
    end: &'a [u8],
    /// Their sequence numbers, newest first.
    sequences: Vec<u64>,
}

/// Passes range deletions to `each`, split wherever one of them begins or ends, until `each`
/// returns false.
fn visit_parts(
    mut all: Vec<RangeTombstone>,
    order: &Comparator,
    each: &mut dyn FnMut(Part<'_>) -> Outcome<bool>,
) -> Outcome {
    all.sort_by(|a, b| order.compare(&a.start, &b.start));
    let ends = all.iter().flat_map(|t| [&t.start[..], &t.end[..]]);
    let mut cuts: Vec<&[u8]> = ends.collect();
    cuts.sort_by(|a, b| order.compare(a, b));
    cuts.dedup();
    let mut open: Vec<&RangeTombstone> = Vec::new();
    let mut coming = all.iter().peekable();
    for pair in cuts.windows(2) {
        let &[start, end] = pair else { continue };
        open.retain(|t| order.compare(&t.end, start).is_gt());
        while let Some(next) = coming.next_if(|t| order.compare(&t.start, start).is_le()) {
            open.push(next);
        }
        let mut sequences: Vec<u64> = open.iter().map(|t| t.sequence.0).collect();
        sequences.sort_unstable_by(|a, b| b.cmp(a));
        let part = Part {
            start,
            end,
            sequences,
        };
        if !part.sequences.is_empty() && !each(part)? {
            break;
        }
    }
    Ok(())
}

/// Prints MANIFEST, tables and logs.
pub(crate) fn dump_all(global: &Global, out: &mut dyn Write) -> Outcome {
    const RULE: &str = "==============================";
    let dir = global.dir()?;
    let db = open::read_only(global)?;
    let current = files::manifest_path(dir, files::read_current(&Posix, dir)?);
    writeln!(out, "Manifest File\n{RULE}\n{}", current.display())?;
    manifest::show(&State::read(&current, &mut |_| {})?, false, out)?;
    writeln!(out)?;
    for family in db.column_families() {
        writeln!(out, "Column family name: {}\n{RULE}", family.name())?;
        writeln!(out, "\nSST Files\n{RULE}")?;
        for level in db.cf(&family).get_column_family_metadata()?.levels {
            for file in &level.files {
                let path = path(file);
                writeln!(out, "{} level:{}", path.display(), level.level)?;
                writeln!(out, "------------------------------")?;
                sst::dump_as_ldb(&path, false, out)?;
                writeln!(out)?;
            }
        }
        writeln!(out, "Blob Files\n{RULE}")?;
    }
    writeln!(out, "\nWrite Ahead Log Files\n{RULE}")?;
    let logs = open::log_dir(global, dir)?;
    for log in db.get_sorted_wal_files()? {
        let path = logs.join(log.path_name().trim_start_matches('/'));
        writeln!(out, "{}", path.display())?;
        dump::log(global, &path, out)?;
    }
    Ok(())
}

/// Prints the checksums of whole tables and blob files, as the MANIFEST has them.
pub(crate) fn checksums(global: &Global, args: &FileChecksumDump, out: &mut dyn Write) -> Outcome {
    let path = if let Some(path) = &args.path {
        path.clone()
    } else {
        let dir = global.dir()?;
        files::manifest_path(dir, files::read_current(&Posix, dir)?)
    };
    let state = State::read(&path, &mut |_| {})?;
    // Number, function, checksum.
    let tables = state.tables().map(|(_, meta)| {
        let function = meta.file_checksum_func_name.as_str();
        (meta.number.0, function, &meta.file_checksum)
    });
    let blobs = state.families.values().flat_map(|f| f.blobs.values());
    let blobs = blobs.map(|blob| &blob.added);
    let blobs = blobs.map(|b| (b.number.0, b.checksum_method.as_str(), &b.checksum));
    let mut all: Vec<_> = tables.chain(blobs).collect();
    all.sort_unstable();
    for (number, function, checksum) in all {
        let function = if function.is_empty() {
            "Unknown"
        } else {
            function
        };
        write!(out, "{number}, {function}, ")?;
        if global.hex {
            writeln!(out, "0x{}", Hex(checksum))?;
        } else {
            out.write_all(checksum)?;
            writeln!(out)?;
        }
    }
    Ok(writeln!(
        out,
        "Print SST file checksum information finished "
    )?)
}

#[cfg(test)]
mod tests {
    use base::SequenceNumber;

    use super::*;

    #[test]
    fn range_deletions_are_cut_where_one_begins_or_ends() {
        let tombstone = |start: &str, end: &str, sequence| RangeTombstone {
            start: start.into(),
            end: end.into(),
            sequence: SequenceNumber(sequence),
        };
        let all = vec![
            tombstone("c", "f", 5),
            tombstone("a", "d", 3),
            tombstone("x", "z", 9),
        ];
        for parts in 1..=5 {
            let mut text = Vec::new();
            visit_parts(all.clone(), &Comparator::bytewise(), &mut |p| {
                let (start, end) = (p.start.escape_ascii(), p.end.escape_ascii());
                text.push(format!("{start}{end}{:?}", p.sequences));
                Ok(text.len() < parts)
            })
            .unwrap();
            let expected = ["ac[3]", "cd[5, 3]", "df[5]", "xz[9]"];
            assert_eq!(text, expected[..parts.min(4)]);
        }
    }
}
