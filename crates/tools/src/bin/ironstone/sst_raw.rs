//! `dump-sst --command=raw`: prints the complete content of a table; or writes it in `sst_dump`'s
//! format to a file beside the table.

use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use base::key;
use io::posix::Posix;
use io::{File, FileSystem, OpenHow, WriteSync};
use table::{BlockHandle, Reader};

use crate::fail::{Failure, Outcome};
use crate::sst::{Range, entries, properties};
use crate::text::{Hex, push_hex, push_internal_key};

const RULE: &str = "--------------------------------------";

fn handle_hex(handle: BlockHandle) -> String {
    let mut bytes = Vec::new();
    handle.encode(&mut bytes);
    Hex(&bytes).to_string()
}

fn heading(title: &str, out: &mut dyn Write) -> Outcome {
    Ok(writeln!(out, "{title}\n{RULE}")?)
}

/// Prints the complete content of the table.
pub(crate) fn print(reader: &Arc<Reader>, out: &mut dyn Write) -> Outcome {
    footer(reader, out)?;
    writeln!(out, "  checksum: {:?}", reader.footer().checksum_type)?;

    heading("\nMetaindex Details:", out)?;
    for (name, handle) in reader.metaindex() {
        let BlockHandle { offset, size } = *handle;
        let hex = handle_hex(*handle);
        writeln!(out, "  {name}: {hex} offset: {offset} size: {size}")?;
    }

    heading("\nTable Properties:", out)?;
    properties(reader, "  ", ": ", out)?;

    heading("\nIndex Details:", out)?;
    for (i, block) in reader.data_blocks()?.into_iter().enumerate() {
        let handle = block.handle;
        let (BlockHandle { offset, size }, hex) = (handle, handle_hex(handle));
        let number = i + 1;
        writeln!(
            out,
            "  block # {number}: {hex} offset: {offset} size: {size}"
        )?;
    }
    tombstones(reader, out)?;
    blocks(reader, out)
}

fn footer(reader: &Reader, out: &mut dyn Write) -> Outcome {
    let footer = reader.footer();
    heading("Footer Details:", out)?;
    writeln!(out, "  metaindex handle: {}", handle_hex(footer.metaindex))?;
    if let Some(index) = footer.index {
        writeln!(out, "  index handle: {}", handle_hex(index))?;
    }
    writeln!(out, "  table_magic_number: {}", table::footer::MAGIC)?;
    Ok(writeln!(
        out,
        "  format version: {}",
        footer.format_version
    )?)
}

fn tombstones(reader: &Reader, out: &mut dyn Write) -> Outcome {
    let tombstones = reader.range_tombstones()?;
    if tombstones.is_empty() {
        return Ok(());
    }
    heading("\nRange deletions:", out)?;
    for t in tombstones {
        let (start, end) = (Hex(&t.start), Hex(&t.end));
        writeln!(out, "  HEX    {start} : {end} seq: {}", t.sequence.0)?;
    }
    Ok(())
}

fn blocks(reader: &Arc<Reader>, out: &mut dyn Write) -> Outcome {
    let mut line = Vec::new();
    each_block(reader, &mut |begins, entry| {
        if let Some((number, handle)) = begins {
            let offset = handle.offset;
            heading(&format!("\nData Block # {number} @ offset {offset}"), out)?;
        }
        let (key, value) = entry;
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

/// Receives an entry: the number and handle of its block if it is the first entry of the block, the
/// internal key and the value.
type Entry<'a> = dyn FnMut(Option<(usize, BlockHandle)>, (&[u8], &[u8])) -> Outcome + 'a;

/// Passes every entry to `visit`.
fn each_block(reader: &Arc<Reader>, visit: &mut Entry<'_>) -> Outcome {
    let blocks = reader.data_blocks()?;
    let mut next = 0;
    let all = Range::default();
    entries(reader, &all, u64::MAX, &mut |key, value| {
        let offset = reader.approximate_offset_of(key)?;
        let mut begins = None;
        while let Some(block) = blocks.get(next).filter(|b| b.handle.offset <= offset) {
            next += 1;
            begins = Some((next, block.handle));
        }
        visit(begins, (key, value))
    })
}

/// A file that is written from its start.
struct Text {
    file: Arc<dyn File>,
    end: u64,
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        io::write_all_at(&*self.file, bytes, self.end, WriteSync::None)
            .map_err(std::io::Error::other)?;
        self.end += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Writes `<table>_dump.txt`, and prints its name.
pub(crate) fn to_file(reader: &Arc<Reader>, table: &Path, out: &mut dyn Write) -> Outcome {
    let mut name = table.with_extension("").into_os_string();
    name.push("_dump.txt");
    let path = Path::new(&name);
    let text = Text {
        file: Posix.open(path, OpenHow::CREATE_TRUNCATE)?,
        end: 0,
    };
    let mut text = BufWriter::with_capacity(64 << 10, text);
    as_sst_dump(reader, &mut text)
        .and_then(|()| Ok(text.flush()?))
        .map_err(|failure| match failure {
            Failure::Output(e) => Failure::message(e.to_string()),
            other => other,
        })?;
    let path = path.display();
    Ok(writeln!(out, "raw dump written to file {path}")?)
}

/// Writes the output of `sst_dump`.
fn as_sst_dump(reader: &Arc<Reader>, out: &mut dyn Write) -> Outcome {
    footer(reader, out)?;
    writeln!(out, "  ")?;
    heading("Metaindex Details:", out)?;
    for (title, names) in SHOWN_BLOCKS {
        let is_one = |name: &str| names.iter().any(|n| name.starts_with(n));
        for (_, handle) in reader.metaindex().iter().filter(|(name, _)| is_one(name)) {
            writeln!(out, "  {title} block handle: {}", handle_hex(*handle))?;
        }
    }
    heading("\nTable Properties:", out)?;
    properties(reader, "  ", ": ", out)?;
    writeln!(out, "  ")?;

    heading("Index Details:", out)?;
    writeln!(out, "  Block key hex dump: Data block handle")?;
    writeln!(out, "  Block key ascii\n")?;
    let mut line = Vec::new();
    for block in reader.data_blocks()? {
        line.clear();
        let separator = &block.separator;
        let (key, handle) = (Hex(separator), handle_hex(block.handle));
        line.extend_from_slice(format!("  HEX    {key}: {handle}\n  ASCII  ").as_bytes());
        line.extend(separator.iter().flat_map(|b| [*b, b' ']));
        line.extend_from_slice(b"\n  ------\n");
        out.write_all(&line)?;
    }
    writeln!(out)?;
    let tombstones = reader.range_tombstones()?;
    if !tombstones.is_empty() {
        heading("Range deletions:", out)?;
        for t in tombstones {
            pair(&t.start, &t.end, &mut line, out)?;
        }
        writeln!(out)?;
    }
    sst_dump_blocks(reader, out)
}

/// `sst_dump`'s labels for the blocks of the metaindex, and the prefixes of their names.
const SHOWN_BLOCKS: [(&str, &[&str]); 4] = [
    ("Filter", &["filter.", "fullfilter.", "partitionedfilter."]),
    ("Compression dictionary", &["rocksdb.compression_dict"]),
    ("Properties", &["rocksdb.properties"]),
    ("Range deletion", &["rocksdb.range_del"]),
];

/// The data blocks, and their sizes.
fn sst_dump_blocks(reader: &Arc<Reader>, out: &mut dyn Write) -> Outcome {
    let mut line = Vec::new();
    let mut first = true;
    each_block(reader, &mut |begins, (key, value)| {
        if let Some((number, handle)) = begins {
            if !std::mem::take(&mut first) {
                writeln!(out)?;
            }
            heading(
                &format!("Data Block # {number} @ {}", handle_hex(handle)),
                out,
            )?;
        }
        pair(key::user_key(key), value, &mut line, out)
    })?;
    let sizes = reader.data_blocks()?.into_iter();
    let sizes: Vec<u64> = sizes.map(|block| block.handle.size).collect();
    let (Some(min), Some(max)) = (sizes.iter().min(), sizes.iter().max()) else {
        return Ok(());
    };
    let mean = sizes.iter().sum::<u64>() as f64 / sizes.len() as f64;
    writeln!(out)?;
    heading("Data Block Summary:", out)?;
    writeln!(out, "  # data blocks: {}", sizes.len())?;
    writeln!(out, "  min data block size: {min}")?;
    writeln!(out, "  max data block size: {max}")?;
    Ok(writeln!(out, "  avg data block size: {mean:.6}")?)
}

/// Two texts in hex and as characters, each followed by a space.
fn pair(first: &[u8], second: &[u8], line: &mut Vec<u8>, out: &mut dyn Write) -> Outcome {
    let spread = |line: &mut Vec<u8>, bytes: &[u8]| {
        for b in bytes {
            match b {
                0 => line.extend_from_slice(b"\\0"),
                b => line.push(*b),
            }
            line.push(b' ');
        }
    };
    line.clear();
    line.extend_from_slice(format!("  HEX    {}: {}\n", Hex(first), Hex(second)).as_bytes());
    line.extend_from_slice(b"  ASCII  ");
    spread(line, first);
    line.extend_from_slice(b": ");
    spread(line, second);
    line.extend_from_slice(b"\n  ------\n");
    Ok(out.write_all(line)?)
}
