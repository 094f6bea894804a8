//! `dump-sst --command=recompress`: how large a table would be with each codec.
//!
//! The sizes are those of Ironstone's codecs, whose output is not identical to that of RocksDB's.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use base::Comparator;
use base::clock::SystemClock;
use base::stats::{Statistics, Ticker};
use io::{FileSystem, OpenHow, posix::Posix};
use table::{Builder, BuilderOptions, CompressionSettings, CompressionType, Reader, TableOptions};

use crate::cli_sst::Recompress;
use crate::fail::{Failure, Outcome};
use crate::sst::{Range, entries};

/// RocksDB's names of the codecs, in the order in which they are tried; `None`: Ironstone does not
/// have it.
const CODECS: [Codec; 8] = [
    ("kNoCompression", Some(CompressionType::None)),
    ("kSnappyCompression", Some(CompressionType::Snappy)),
    ("kZlibCompression", Some(CompressionType::Zlib)),
    ("kBZip2Compression", Some(CompressionType::BZip2)),
    ("kLZ4Compression", Some(CompressionType::Lz4)),
    ("kLZ4HCCompression", Some(CompressionType::Lz4hc)),
    ("kXpressCompression", None),
    ("kZSTD", Some(CompressionType::Zstd)),
];

/// The level that stands for the codec's default.
const DEFAULT_LEVEL: i32 = 32767;

/// A file that is removed when this is dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // Whoever cleans up temporary files finds it if this fails.
        drop(std::fs::remove_file(&self.0));
    }
}

/// A codec by RocksDB's name.
type Codec = (&'static str, Option<CompressionType>);

/// The requested codecs; all of them if none is requested.
pub(crate) fn chosen(args: &Recompress) -> Outcome<Vec<Codec>> {
    let mut chosen = Vec::new();
    for name in &args.types {
        let known = CODECS.iter().find(|(known, _)| known == name);
        let known = known.ok_or_else(|| {
            let all: Vec<&str> = CODECS.iter().map(|(name, _)| *name).collect();
            let all = all.join(", ");
            Failure::message(format!("{name} is not a valid CompressionType: {all}"))
        })?;
        chosen.push(*known);
    }
    if args.level_from.is_some() && chosen.len() != 1 {
        return Err(Failure::message(
            "Specify one compression type: --compression_types=kZSTD",
        ));
    }
    if chosen.is_empty() {
        chosen = CODECS.to_vec();
    }
    Ok(chosen)
}

/// Writes the table again with each codec, and prints its size.
pub(crate) fn recompress(reader: &Arc<Reader>, args: &Recompress, out: &mut dyn Write) -> Outcome {
    let chosen = chosen(args)?;
    let name = format!("ironstone-recompress-{}.sst", std::process::id());
    let scratch = Scratch(std::env::temp_dir().join(name));
    writeln!(out, "Block Size: {}", args.block_size)?;
    for (name, codec) in chosen {
        let Some(codec) = codec else {
            writeln!(out, "Unsupported compression type: {name}.")?;
            continue;
        };
        writeln!(out, "Compression: {name:<24}")?;
        let from = args.level_from.unwrap_or(DEFAULT_LEVEL);
        for level in from..=args.level_to.unwrap_or(from) {
            one(reader, args, (codec, level), &scratch, out)?;
        }
    }
    Ok(())
}

fn one(
    reader: &Arc<Reader>,
    args: &Recompress,
    (codec, level): (CompressionType, i32),
    scratch: &Scratch,
    out: &mut dyn Write,
) -> Outcome {
    let statistics = Arc::new(Statistics::new());
    let comparator = &reader.properties().comparator;
    let options = BuilderOptions {
        table: TableOptions {
            block_size: args.block_size,
            ..TableOptions::default()
        },
        comparator: Comparator::by_name(comparator).unwrap_or_else(Comparator::bytewise),
        compression: codec,
        compression_opts: CompressionSettings {
            level,
            max_dict_bytes: args.max_dict_bytes,
            zstd_max_train_bytes: args.zstd_max_train_bytes,
            max_dict_buffer_bytes: args.max_dict_buffer_bytes,
            use_zstd_dict_trainer: !args.use_zstd_finalize_dict,
            ..CompressionSettings::default()
        },
        statistics: Some(Arc::clone(&statistics)),
        ..BuilderOptions::default()
    };
    let clock = SystemClock::shared();
    let begun = clock.monotonic_nanos();
    let file = Posix.open(&scratch.0, OpenHow::CREATE_TRUNCATE)?;
    let mut builder = Builder::new(file, options)?;
    entries(reader, &Range::default(), u64::MAX, &mut |key, value| {
        Ok(builder.add(key, value)?)
    })?;
    let finished = builder.finish()?;
    let micros = (clock.monotonic_nanos() - begun) / 1000;

    let compressed = statistics.get(Ticker::NumberBlockCompressed);
    let aborted = statistics.get(Ticker::NumberBlockCompressionRejected);
    let bypassed = statistics.get(Ticker::NumberBlockCompressionBypassed);
    let all = (compressed + aborted + bypassed).max(1) as f64;
    let part = |n: u64| format!("{n:6} ({:5.1}%)", n as f64 * 100.0 / all);
    let (size, blocks) = (finished.file_size, finished.properties.num_data_blocks);
    Ok(writeln!(
        out,
        "Compression level: {level} Size: {size:10} Blocks: {blocks:6} Time Taken: {micros:10} \
         microsecs Compressed: {} Not compressed (ratio): {} Not compressed (abort): {}",
        part(compressed),
        part(bypassed),
        part(aborted)
    )?)
}
