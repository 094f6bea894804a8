//! `dump-sst`: a table file, with `sst_dump`'s commands and output.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::key::{self, SequenceNumber, ValueType};
use base::{Comparator, ErrorKind};
use files::FileKind;
use io::{FileSystem, OpenHow, posix::Posix};
use ironstone::{Error, Result};
use table::props::SEQNO_TIME_MAPPING;
use table::reader::ReaderOptions;
use table::unique_id::{external_unique_id, internal_unique_id};
use table::{InternalIterator, ReadOptions, Reader};

use crate::cli_sst::{DumpSst, SstCommand};
use crate::fail::{Failure, Outcome, note};
use crate::text::{Hex, parse_bound, parse_field, push_hex, push_internal_key, until_zero};
use crate::{sst_raw, sst_recompress};

/// A comparator of which only the name is known: enough to read a table from start to end.
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

/// Opens a table without its database, with any of RocksDB's comparators.
pub(crate) fn open(path: &Path) -> Result<Arc<Reader>> {
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

/// The part of a table to read.
#[derive(Default)]
pub(crate) struct Range {
    /// The first key; empty is the table's start.
    from: Vec<u8>,
    /// The key to stop at; empty is the table's end.
    to: Vec<u8>,
    /// The prefix of the keys.
    prefix: Vec<u8>,
    /// Maximum number of entries; `None` means all.
    count: Option<u64>,
}

impl Range {
    fn new(args: &DumpSst) -> Outcome<Self> {
        let hex = args.input_key_hex;
        let bound = |arg: &Option<OsString>| {
            parse_bound(arg.as_deref(), hex).map(Option::unwrap_or_default)
        };
        let range = Self {
            from: bound(&args.range.from)?,
            to: bound(&args.range.to)?,
            prefix: bound(&args.prefix)?,
            count: args.read_num,
        };
        if !range.prefix.is_empty() && !range.from.is_empty() {
            return Err(Failure::message("Cannot specify --prefix and --from"));
        }
        Ok(range)
    }

    fn start(&self) -> &[u8] {
        if self.prefix.is_empty() {
            &self.from
        } else {
            &self.prefix
        }
    }
}

/// A run over tables.
struct Run<'a> {
    args: &'a DumpSst,
    range: Range,
    /// In `sst_dump`'s form.
    as_sst_dump: bool,
    /// Number of entries read.
    read: u64,
    /// Whether the range was printed.
    told_range: bool,
    /// Tables among the files.
    tables: Vec<PathBuf>,
}

/// Prints a table, or the tables of a directory; in `sst_dump`'s form, or with everything.
pub(crate) fn dump(args: &DumpSst, as_sst_dump: bool, out: &mut dyn Write) -> Outcome {
    if let Some(key) = &args.parse_internal_key {
        return internal_key(&parse_field(key, true)?, out);
    }
    let path = args.file.as_ref().or(args.file_flag.as_ref());
    let path = path.ok_or_else(|| Failure::message("file or directory must be specified."))?;
    let mut run = Run {
        args,
        range: Range::new(args)?,
        as_sst_dump,
        read: 0,
        told_range: false,
        tables: Vec::new(),
    };
    if args.command == SstCommand::Recompress {
        sst_recompress::chosen(&args.recompress)?;
    }
    let mut failed = false;
    for file in tables(path)? {
        if run.range.count.is_some_and(|n| n > 0 && run.read >= n) {
            break;
        }
        if let Err(failure) = run.one(&file, out) {
            let Failure::Status(e) = failure else {
                return Err(failure);
            };
            out.flush()?;
            note(format_args!("{}", e.or_file(&file)));
            failed = true;
        }
        if args.command == SstCommand::Recompress {
            break;
        }
    }
    if args.command == SstCommand::Identify {
        run.tell_tables(path, out)?;
    }
    if failed {
        return Err(Failure::Reported);
    }
    Ok(())
}

/// Prints the parts of an internal key.
fn internal_key(internal: &[u8], out: &mut dyn Write) -> Outcome {
    let Some((user, packed)) = key::split(internal) else {
        return Err(Failure::message(format!(
            "Corrupted Key: Internal Key too small. Size={}. It ends with 8 bytes of type and sequence \
             number",
            internal.len()
        )));
    };
    let (sequence, kind) = (packed >> 8, packed & 0xff);
    let user = Hex(user);
    writeln!(out, "key='{user}' seq:{sequence}, type:{kind}")?;
    if ValueType::from_u8(kind as u8).is_none() {
        return Err(Failure::message(format!(
            "Corrupted Key: there is no type {kind}"
        )));
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

impl Run<'_> {
    fn one(&mut self, path: &Path, out: &mut dyn Write) -> Outcome {
        let args = self.args;
        let reader = open(path)?;
        begin(path, out)?;
        match args.command {
            SstCommand::Check | SstCommand::Scan => self.entries(&reader, out)?,
            SstCommand::Verify => {
                reader.verify_checksums()?;
                writeln!(out, "The file is ok")?;
                return Ok(());
            }
            SstCommand::Raw if self.as_sst_dump => return sst_raw::to_file(&reader, path, out),
            SstCommand::Raw => return sst_raw::print(&reader, out),
            SstCommand::Recompress => {
                return sst_recompress::recompress(&reader, &args.recompress, out);
            }
            SstCommand::Identify => self.tables.push(path.to_path_buf()),
        }
        if args.show_properties {
            writeln!(out, "Table Properties:")?;
            writeln!(out, "------------------------------")?;
            properties(&reader, "  ", ": ", out)?;
            writeln!(out, "  Raw user collected properties")?;
            writeln!(out, "------------------------------")?;
            for (name, value) in reader.properties().user_collected() {
                out.write_all(&[b"  # ", &*name, b": 0x"].concat())?;
                writeln!(out, "{}", Hex(&value))?;
            }
        }
        Ok(())
    }

    fn entries(&mut self, reader: &Arc<Reader>, out: &mut dyn Write) -> Outcome {
        let range = &self.range;
        if !self.told_range {
            writeln!(out, "from [{}] to [{}]", Hex(range.start()), Hex(&range.to))?;
            self.told_range = true;
        }
        if self.args.verify_checksum {
            reader.verify_checksums()?;
        }
        let print = self.args.command == SstCommand::Scan;
        let hex = (self.args.output_hex, self.args.output_hex);
        let left = range
            .count
            .map_or(u64::MAX, |n| n.saturating_sub(self.read));
        let mut read = 0;
        entries(reader, range, left, &mut |key, value| {
            read += 1;
            if print {
                print_entry(key, value, hex, out)?;
            }
            Ok(())
        })?;
        self.read += read;
        Ok(())
    }

    /// Says which files are tables.
    fn tell_tables(&self, path: &Path, out: &mut dyn Write) -> Outcome {
        if !Posix.metadata(path)?.is_dir {
            for file in &self.tables {
                writeln!(out, "{} is a valid SST file", file.display())?;
            }
            return Ok(());
        }
        writeln!(out, "------------------------------")?;
        writeln!(out, "List of valid SST files found in {}:", path.display())?;
        for file in &self.tables {
            writeln!(out, "{}", file.display())?;
        }
        writeln!(out, "Number of valid SST files: {}", self.tables.len())?;
        Ok(())
    }
}

fn begin(path: &Path, out: &mut dyn Write) -> Outcome {
    writeln!(out, "Process {}", path.display())?;
    Ok(writeln!(out, "Sst file format: block-based")?)
}

/// Prints a table as `ldb dump` does: entries and properties.
pub(crate) fn dump_as_ldb(path: &Path, hex: bool, out: &mut dyn Write) -> Outcome {
    let reader = open(path).map_err(|e| e.or_file(path))?;
    begin(path, out)?;
    entries(&reader, &Range::default(), u64::MAX, &mut |key, value| {
        print_entry(key, value, (hex, hex), out)
    })?;
    writeln!(out, "\nTable Properties:")?;
    properties(&reader, "", "=", out)?;
    Ok(writeln!(out)?)
}

/// Passes the entries of the range to `visit`, `left` of them at most.
pub(crate) fn entries(
    reader: &Arc<Reader>,
    range: &Range,
    mut left: u64,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> Outcome,
) -> Outcome {
    let options = ReadOptions {
        fill_cache: false,
        ..ReadOptions::default()
    };
    let mut it = reader.iter(options);
    if range.start().is_empty() {
        it.seek_to_first();
    } else {
        it.seek(&key::encode(
            range.start(),
            SequenceNumber::MAX,
            ValueType::FOR_SEEK,
        ));
    }
    let order =
        Comparator::by_name(&reader.properties().comparator).unwrap_or_else(Comparator::bytewise);
    while it.valid() && left > 0 {
        let user = key::user_key(it.key());
        let behind = !range.to.is_empty() && order.compare(user, &range.to).is_ge();
        if behind || !user.starts_with(&range.prefix) {
            break;
        }
        visit(it.key(), it.value())?;
        left -= 1;
        it.next();
    }
    Ok(it.status()?)
}

/// Prints an entry, keys and values in hex or not. As in `sst_dump`, plain ones end at their first zero
/// byte.
pub(crate) fn print_entry(
    key: &[u8],
    value: &[u8],
    (key_hex, value_hex): (bool, bool),
    out: &mut dyn Write,
) -> Outcome {
    let mut line = Vec::with_capacity(key.len() + value.len() + 32);
    push_internal_key(&mut line, key, key_hex);
    line.truncate(until_zero(&line).len());
    line.extend_from_slice(b" => ");
    if value_hex {
        push_hex(&mut line, value);
    } else {
        line.extend_from_slice(until_zero(value));
    }
    line.push(b'\n');
    Ok(out.write_all(&line)?)
}

/// Prints the properties, one per line: a prefix, the name, a separator, and the value.
pub(crate) fn properties(
    reader: &Reader,
    before: &str,
    between: &str,
    out: &mut dyn Write,
) -> Outcome {
    let p = reader.properties();
    for (name, value) in p.rows() {
        writeln!(out, "{before}{name}{between}{value}")?;
    }
    let id = internal_unique_id(&p.db_id, &p.db_session_id, p.original_file_number);
    let id = match id.map(external_unique_id) {
        Some([first, second]) => {
            let (first, second) = (first.to_le_bytes(), second.to_le_bytes());
            format!("{}-{}", Hex(&first), Hex(&second))
        }
        None => "N/A".to_owned(),
    };
    writeln!(out, "{before}unique ID{between}{id}")?;
    let times = p.other.get(SEQNO_TIME_MAPPING);
    let times = times.map(|t| Hex(t).to_string()).unwrap_or_default();
    Ok(writeln!(
        out,
        "{before}Sequence number to time mapping{between}{times}"
    )?)
}
