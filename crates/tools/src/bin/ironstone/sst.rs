//! `dump-sst`: a table file, with `sst_dump`'s commands and output.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::key::{self, SequenceNumber, ValueType};
use base::{Comparator, ErrorKind};
use io::{FileSystem, OpenHow, posix::Posix};
use ironstone::files::{self, FileKind};
use ironstone::{Error, Result};
use table::reader::ReaderOptions;
use table::{BlockHandle, InternalIterator, ReadOptions, Reader};

use crate::cli::{DumpSst, SstCommand};
use crate::fail::{Failure, Outcome};
use crate::text::{Hex, parse_field, push_hex, push_internal_key, until_zero};

/// An order known by its name only: enough to read a table from front to back.
struct Foreign(&'static str);

impl base::comparator::UserComparator for Foreign {
    fn name(&self) -> &str {
        self.0
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        a.cmp(b)
    }
}

/// RocksDB's comparators beyond the two that the engine has.
const FOREIGN: [&str; 2] = [
    "leveldb.BytewiseComparator.u64ts",
    "rocksdb.ReverseBytewiseComparator.u64ts",
];

/// Opens a table on its own, whichever of RocksDB's comparators it was written with.
fn open(path: &Path) -> Result<Arc<Reader>> {
    let foreign = FOREIGN.map(|name| Comparator::user(Arc::new(Foreign(name))));
    let known = [Comparator::bytewise(), Comparator::reverse_bytewise()];
    let mut last = None;
    for comparator in known.into_iter().chain(foreign) {
        let options = ReaderOptions {
            comparator,
            ..ReaderOptions::default()
        };
        let file = Posix.open(path, OpenHow::READ)?;
        let size = file.len()?;
        match Reader::open(file, size, options) {
            Ok(reader) => return Ok(Arc::new(reader)),
            Err(e) if e.kind() == ErrorKind::InvalidArgument => last = Some(e),
            Err(e) => return Err(e),
        }
    }
    Err(last.unwrap_or_else(|| Error::invalid_argument("no comparator fits")))
}

/// What of a table is read: an inclusive start, an exclusive end, and a count.
struct Range {
    from: Vec<u8>,
    to: Vec<u8>,
    count: u64,
}

/// Prints a table, or the tables of a directory.
pub(crate) fn dump(args: &DumpSst, out: &mut dyn Write) -> Outcome {
    let path = args.file.as_ref().or(args.file_flag.as_ref());
    let path = path.ok_or_else(|| Failure::message("file or directory must be specified."))?;
    let bound = |arg: &Option<std::ffi::OsString>| match arg {
        Some(text) => parse_field(text, args.input_key_hex),
        None => Ok(Vec::new()),
    };
    let range = Range {
        from: bound(&args.range.from)?,
        to: bound(&args.range.to)?,
        count: args.read_num.unwrap_or(u64::MAX),
    };
    let mut failed = false;
    for path in tables(path)? {
        if let Err(failure) = dump_one(&path, args, &range, out) {
            let Failure::Status(e) = failure else {
                return Err(failure);
            };
            out.flush()?;
            eprintln!("{}", e.or_file(&path));
            failed = true;
        }
    }
    if failed {
        return Err(Failure::Reported);
    }
    Ok(())
}

fn tables(path: &Path) -> Outcome<Vec<PathBuf>> {
    if !Posix.metadata(path)?.is_dir {
        return Ok(vec![path.to_path_buf()]);
    }
    let found: Vec<PathBuf> = files::list(&Posix, path)?
        .into_iter()
        .filter(|e| e.kind == FileKind::Table)
        .map(|e| path.join(e.name))
        .collect();
    if found.is_empty() {
        let dir = path.display();
        return Err(Failure::message(format!("no table files in {dir}")));
    }
    Ok(found)
}

fn dump_one(path: &Path, args: &DumpSst, range: &Range, out: &mut dyn Write) -> Outcome {
    let reader = open(path)?;
    writeln!(out, "Process {}", path.display())?;
    writeln!(out, "Sst file format: block-based")?;
    match args.command {
        SstCommand::Check | SstCommand::Scan => {
            writeln!(out, "from [{}] to [{}]", Hex(&range.from), Hex(&range.to))?;
            let print = args.command == SstCommand::Scan;
            entries(&reader, range, &mut |key, value| {
                if print {
                    print_entry(key, value, args.output_hex, out)?;
                }
                Ok(())
            })?;
        }
        SstCommand::Verify => {
            reader.verify_checksums()?;
            writeln!(out, "The file is ok")?;
        }
        SstCommand::Raw => return raw(&reader, out),
    }
    if args.show_properties && args.command != SstCommand::Verify {
        writeln!(out, "Table Properties:")?;
        writeln!(out, "------------------------------")?;
        properties(&reader, out)?;
    }
    Ok(())
}

/// Passes the entries of the range to `visit`.
fn entries(
    reader: &Arc<Reader>,
    range: &Range,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> Outcome,
) -> Outcome {
    let options = ReadOptions {
        fill_cache: false,
        ..ReadOptions::default()
    };
    let mut it = reader.iter(options);
    if range.from.is_empty() {
        it.seek_to_first();
    } else {
        it.seek(&key::encode(
            &range.from,
            SequenceNumber::MAX,
            ValueType::FOR_SEEK,
        ));
    }
    let order =
        Comparator::by_name(&reader.properties().comparator).unwrap_or_else(Comparator::bytewise);
    let mut left = range.count;
    while it.valid() && left > 0 {
        let user = key::user_key(it.key());
        if !range.to.is_empty() && order.compare(user, &range.to).is_ge() {
            break;
        }
        visit(it.key(), it.value())?;
        left -= 1;
        it.next();
    }
    Ok(it.status()?)
}

/// As in `sst_dump`, plain keys and values end at their first zero byte.
fn print_entry(key: &[u8], value: &[u8], hex: bool, out: &mut dyn Write) -> Outcome {
    let mut line = Vec::with_capacity(key.len() + value.len() + 32);
    push_internal_key(&mut line, key, hex);
    line.truncate(until_zero(&line).len());
    line.extend_from_slice(b" => ");
    if hex {
        push_hex(&mut line, value);
    } else {
        line.extend_from_slice(until_zero(value));
    }
    line.push(b'\n');
    Ok(out.write_all(&line)?)
}

fn properties(reader: &Reader, out: &mut dyn Write) -> Outcome {
    for (name, value) in reader.properties().rows() {
        writeln!(out, "  {name}: {value}")?;
    }
    Ok(())
}

fn handle_hex(handle: BlockHandle) -> String {
    let mut bytes = Vec::new();
    handle.encode(&mut bytes);
    Hex(&bytes).to_string()
}

const RULE: &str = "--------------------------------------";

fn heading(title: &str, out: &mut dyn Write) -> Outcome {
    Ok(writeln!(out, "\n{title}\n{RULE}")?)
}

/// Everything that is in the table.
fn raw(reader: &Arc<Reader>, out: &mut dyn Write) -> Outcome {
    let footer = reader.footer();
    heading("Footer Details:", out)?;
    writeln!(out, "  metaindex handle: {}", handle_hex(footer.metaindex))?;
    if let Some(index) = footer.index {
        writeln!(out, "  index handle: {}", handle_hex(index))?;
    }
    writeln!(out, "  table_magic_number: {}", table::footer::MAGIC)?;
    writeln!(out, "  format version: {}", footer.format_version)?;
    writeln!(out, "  checksum: {:?}", footer.checksum_type)?;

    heading("Metaindex Details:", out)?;
    for (name, handle) in reader.metaindex() {
        let BlockHandle { offset, size } = *handle;
        let hex = handle_hex(*handle);
        writeln!(out, "  {name}: {hex} offset: {offset} size: {size}")?;
    }

    heading("Table Properties:", out)?;
    properties(reader, out)?;

    heading("Index Details:", out)?;
    for i in 0..reader.blocks() {
        let Some(handle) = reader.data_block(i) else {
            break;
        };
        let BlockHandle { offset, size } = handle;
        let hex = handle_hex(handle);
        writeln!(
            out,
            "  block # {}: {hex} offset: {offset} size: {size}",
            i + 1
        )?;
    }
    raw_tombstones(reader, out)?;
    raw_blocks(reader, out)
}

fn raw_tombstones(reader: &Reader, out: &mut dyn Write) -> Outcome {
    let tombstones = reader.range_tombstones()?;
    if tombstones.is_empty() {
        return Ok(());
    }
    heading("Range deletions:", out)?;
    for t in tombstones {
        let (start, end) = (Hex(&t.start), Hex(&t.end));
        writeln!(out, "  HEX    {start} : {end} seq: {}", t.sequence.0)?;
    }
    Ok(())
}

fn raw_blocks(reader: &Arc<Reader>, out: &mut dyn Write) -> Outcome {
    let mut at = None;
    let mut number = 0;
    let all = Range {
        from: Vec::new(),
        to: Vec::new(),
        count: u64::MAX,
    };
    let mut line = Vec::new();
    entries(reader, &all, &mut |key, value| {
        let offset = reader.approximate_offset_of(key);
        if at != Some(offset) {
            at = Some(offset);
            number += 1;
            heading(&format!("Data Block # {number} @ offset {offset}"), out)?;
        }
        line.clear();
        line.extend_from_slice(b"  HEX    ");
        push_internal_key(&mut line, key, true);
        line.extend_from_slice(b" : ");
        push_hex(&mut line, value);
        line.extend_from_slice(b"\n  ASCII  ");
        let shown = |b: &u8| {
            if b.is_ascii_graphic() || *b == b' ' {
                *b
            } else {
                b'.'
            }
        };
        line.extend(key::user_key(key).iter().map(shown));
        line.extend_from_slice(b" : ");
        line.extend(value.iter().map(shown));
        line.extend_from_slice(b"\n");
        Ok(out.write_all(&line)?)
    })
}
