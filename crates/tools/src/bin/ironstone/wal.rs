//! `dump-wal`: a write-ahead log, batch by batch or fragment by fragment, and the file's state.
//!
//! `dump_wal` prints the same in `ldb`'s format, without the parts that `ldb` does not print.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use files::FileKind;
use io::{File, FileSystem, OpenHow, posix::Posix};
use ironstone::batch::{Record, Records};
use log::format::RecordType;
use log::{End, PhysicalRecords, Reader, ReaderOptions, RecoveryMode};

use crate::cli::{self, Global};
use crate::fail::{Failure, Outcome, note};
use crate::notes::Note;
use crate::open;
use crate::text::{Hex, push_hex};
use crate::wal_state;

/// The parts of a batch to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Show {
    /// Values.
    pub(crate) values: bool,
    /// Notes and padding, which `ldb` does not show.
    pub(crate) details: bool,
}

/// Prints a log, or every log of the database; in `ldb`'s format, or with all details.
pub(crate) fn dump(
    global: &Global,
    args: &cli::DumpWal,
    as_ldb: bool,
    out: &mut dyn Write,
) -> Outcome {
    let show = Show {
        values: args.print_value,
        details: !as_ldb,
    };
    let one = args.file.as_ref().or(args.walfile.as_ref());
    let logs = match one {
        Some(path) => vec![path.clone()],
        None => all_logs(global)?,
    };
    let header = if args.print_value {
        "Sequence,Count,ByteSize,Physical Offset,Key(s) : value "
    } else {
        "Sequence,Count,ByteSize,Physical Offset,Key(s)"
    };
    let mut damaged = false;
    for path in logs {
        let (file, number) =
            open(&path).map_err(|e| Failure::message(format!("Failed to open WAL file {e}")))?;
        if one.is_none() {
            writeln!(out, "{}:", path.display())?;
        }
        if args.physical {
            physical(&file, number, out)?;
        } else {
            if args.header {
                writeln!(out, "{header}")?;
            }
            damaged |= batches(Arc::clone(&file), number, show, out)?;
        }
        if !as_ldb {
            damaged |= !wal_state::print(&file, number, out)?;
        }
    }
    if damaged {
        return Err(Failure::Reported);
    }
    Ok(())
}

fn all_logs(global: &Global) -> Outcome<Vec<PathBuf>> {
    let Some(dir) = &global.db else {
        return Err(Failure::message(
            "Argument walfile must be specified: ironstone dump-wal FILE, or --db=DIR for every log",
        ));
    };
    let dir = open::log_dir(global, dir)?;
    let logs = files::list(&Posix, &dir)?
        .into_iter()
        .filter(|e| e.kind == FileKind::Wal)
        .map(|e| dir.join(e.name));
    Ok(logs.collect())
}

/// Opens a log; its number is in its name.
pub(crate) fn open(path: &Path) -> ironstone::Result<(Arc<dyn File>, u64)> {
    let file = Posix.open(path, OpenHow::READ)?;
    let number = path
        .file_name()
        .and_then(files::parse_name)
        .map_or(0, |(_, number)| number.0);
    Ok((file, number))
}

/// A row for each batch; true if something was skipped.
fn batches(file: Arc<dyn File>, number: u64, show: Show, out: &mut dyn Write) -> Outcome<bool> {
    let path = file.path().to_path_buf();
    // Skips what is damaged: a dump shows whatever can be read.
    let options = ReaderOptions {
        mode: RecoveryMode::SkipAnyCorruptedRecords,
        fences: false,
    };
    let mut reader = Reader::new(file, number, options);
    let mut record = Vec::new();
    let mut line = Vec::new();
    let mut damaged = false;
    while reader.read(&mut record)? {
        line.clear();
        let offset = reader.record_offset();
        if let Err(e) = push_row(&mut line, &record, offset, show) {
            let e = e.or_file(&path).offset(offset);
            note(format_args!("Corruption detected in log file {e}"));
            damaged = true;
        }
        out.write_all(&line)?;
    }
    for d in reader.damages() {
        let (offset, bytes, reason) = (d.offset, d.bytes, d.reason);
        note(format_args!(
            "Corruption detected in log file {}: at offset {offset}: {reason}, {bytes} bytes skipped",
            path.display()
        ));
        damaged = true;
    }
    if let End::Torn {
        offset,
        reason,
        dropped_bytes,
    } = reader.end()
    {
        note(format_args!(
            "note: {} ends at offset {offset}: {reason}, {dropped_bytes} bytes not read",
            path.display()
        ));
    }
    Ok(damaged)
}

/// The row of a batch. If a batch cannot be decoded to its end, the row has the decodable part.
fn push_row(
    line: &mut Vec<u8>,
    data: &[u8],
    offset: u64,
    show: Show,
) -> Result<(), ironstone::Error> {
    Records::new(data)?; // has a whole header
    let mut row = Vec::new();
    let result = push_records(&mut row, data, show);
    let number = |at: usize| base::coding::u64_at(data, at).unwrap_or(0);
    let (sequence, count) = (number(0), number(4) >> 32);
    let head = format!("{sequence},{count},{},{offset},", data.len());
    line.extend_from_slice(head.as_bytes());
    line.extend_from_slice(&row);
    line.push(b'\n');
    result
}

/// The records of a batch, as far as it can be decoded.
pub(crate) fn push_records(
    line: &mut Vec<u8>,
    data: &[u8],
    show: Show,
) -> Result<(), ironstone::Error> {
    let mut records = Records::new(data)?;
    // No-ops with nothing behind them are filler.
    let (mut noops, mut others) = (0, 0);
    let result = records.try_for_each(|record| {
        let record = record?;
        if record == Record::Noop {
            noops += 1;
            return Ok(());
        }
        (0..noops).for_each(|_| line.extend_from_slice(b"NOOP "));
        (noops, others) = (0, others + 1);
        push_record(line, &record, show);
        Ok(())
    });
    let filler = match (noops, others) {
        (0, _) => String::new(),
        (n, _) if !show.details => "NOOP ".repeat(n),
        (n, 0) => format!("PADDING({n} bytes) "),
        (n, _) => format!("FILLER({n} bytes) "),
    };
    line.extend_from_slice(filler.as_bytes());
    result
}

/// An entry that is not applied, in words.
fn log_data(blob: &[u8]) -> String {
    let Some(Note { begins, fence }) = Note::decode(blob) else {
        return format!("LOG_DATA({} bytes) ", blob.len());
    };
    let before = match (fence.previous_log, fence.previous_end) {
        (0, _) => "no log before".to_owned(),
        (log, end) => format!("log {log} before ends at {end}"),
    };
    let number = fence.log_number;
    if begins {
        return format!("BEGIN(log {number}: {before}) ");
    }
    format!(
        "FENCE(log {number}: durable through {}, {before}) ",
        fence.durable
    )
}

/// A record as `ldb` prints it, followed by a space.
fn push_record(line: &mut Vec<u8>, record: &Record<'_>, show: Show) {
    let mut keyed = |word: &str, cf: u32, key: &[u8], value: Option<&[u8]>| {
        line.extend_from_slice(format!("{word}({cf}) : 0x").as_bytes());
        push_hex(line, key);
        if let Some(value) = value.filter(|_| show.values) {
            line.extend_from_slice(b" : 0x");
            push_hex(line, value);
        }
        line.push(b' ');
    };
    match *record {
        Record::Put { cf, key, value } => keyed("PUT", cf, key, Some(value)),
        Record::Delete { cf, key } => keyed("DELETE", cf, key, None),
        Record::SingleDelete { cf, key } => keyed("SINGLE_DELETE", cf, key, None),
        Record::Merge { cf, key, operand } => keyed("MERGE", cf, key, Some(operand)),
        Record::BlobIndex { cf, key, index } => keyed("BLOB_INDEX", cf, key, Some(index)),
        Record::PutEntity { cf, key, entity } => keyed("PUT_ENTITY", cf, key, Some(entity)),
        Record::TimedPut { cf, key, value, .. } => keyed("TIMED_PUT", cf, key, Some(value)),
        Record::DeleteRange { cf, begin, end } => {
            keyed("DELETE_RANGE", cf, begin, None);
            line.extend_from_slice(format!("0x{} ", Hex(end)).as_bytes());
        }
        ref other => {
            let text = match *other {
                Record::BeginUnprepare => "BEGIN_PREPARE(true) ".to_owned(),
                Record::BeginPrepare | Record::BeginPersistedPrepare => {
                    "BEGIN_PREPARE(false) ".to_owned()
                }
                Record::EndPrepare(xid) => format!("END_PREPARE(0x{}) ", Hex(xid)),
                Record::Commit(xid) => format!("COMMIT(0x{}) ", Hex(xid)),
                Record::CommitWithTimestamp { timestamp, xid } => {
                    format!(
                        "COMMIT_WITH_TIMESTAMP(0x{}, 0x{}) ",
                        Hex(xid),
                        Hex(timestamp)
                    )
                }
                Record::Rollback(xid) => format!("ROLLBACK(0x{}) ", Hex(xid)),
                Record::Noop => "NOOP ".to_owned(),
                Record::LogData(blob) if show.details => log_data(blob),
                // `ldb` does not show them.
                _ => String::new(),
            };
            line.extend_from_slice(text.as_bytes());
        }
    }
}

/// A row for each fragment.
fn physical(file: &Arc<dyn File>, number: u64, out: &mut dyn Write) -> Outcome {
    writeln!(
        out,
        "{:>10}  {:<24}{:>8}  state",
        "offset", "type", "length"
    )?;
    for fragment in PhysicalRecords::new(Arc::clone(file), number) {
        let f = fragment?;
        let kind = match (f.kind, f.problem) {
            (RecordType::ZERO, Some(_)) => "-".to_owned(),
            (kind, _) => kind_name(kind),
        };
        let state = f.problem.unwrap_or("crc ok");
        writeln!(out, "{:>10}  {kind:<24}{:>8}  {state}", f.offset, f.length)?;
    }
    Ok(())
}

/// RocksDB's name of a record type.
fn kind_name(kind: RecordType) -> String {
    let name = match kind {
        RecordType::ZERO => "zero",
        RecordType::FULL => "full",
        RecordType::FIRST => "first",
        RecordType::MIDDLE => "middle",
        RecordType::LAST => "last",
        RecordType::RECYCLABLE_FULL => "recyclable full",
        RecordType::RECYCLABLE_FIRST => "recyclable first",
        RecordType::RECYCLABLE_MIDDLE => "recyclable middle",
        RecordType::RECYCLABLE_LAST => "recyclable last",
        RecordType::SET_COMPRESSION => "set compression",
        RecordType::TIMESTAMP_SIZES | RecordType::RECYCLABLE_TIMESTAMP_SIZES => "timestamp sizes",
        RecordType::PREDECESSOR | RecordType::RECYCLABLE_PREDECESSOR => "predecessor",
        RecordType(other) => return format!("unknown ({other})"),
    };
    name.to_owned()
}
