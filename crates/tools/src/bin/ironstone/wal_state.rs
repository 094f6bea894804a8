//! The state of a log file: where and how the log ends, which part is known to be durable, and a
//! verdict.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use io::File;
use log::salvage::{self, Summary};
use log::{End, Reader, ReaderOptions};

use crate::fail::Outcome;
use crate::notes;

/// With more zeros than this after the log, the file was probably filled with zeros in advance: it
/// is more than the unit in which a log is written.
const PRE_ZEROED_MIN: u64 = 64 << 10;

/// The result of a recovery.
#[derive(Debug, Default)]
struct Recovered {
    batches: u64,
    /// The largest durable offset in a fence of this log, and the number of fences.
    durable: u64,
    fences: u64,
    /// Readable batches after a place where recovery would stop or refuse.
    behind: u64,
}

/// Prints the state; false if durable data are damaged.
pub(crate) fn print(file: &Arc<dyn File>, number: u64, out: &mut dyn Write) -> Outcome<bool> {
    let options = ReaderOptions {
        fences: true,
        ..ReaderOptions::default()
    };
    let mut reader = Reader::new(Arc::clone(file), number, options);
    let mut record = Vec::new();
    let mut found = Recovered::default();
    let refused = loop {
        match reader.read(&mut record) {
            Ok(true) => found.batches += 1,
            Ok(false) => break None,
            Err(e) if e.is_corruption() => break Some(e),
            Err(e) => return Err(e.into()),
        }
    };
    let end = reader.end().offset();
    let summary = salvage::scan(file, number, &mut |piece| {
        if piece.lost.is_none() {
            found.behind += u64::from(piece.range.start >= end);
            let notes = notes::facts(&piece.bytes).map_or(Vec::new(), |f| f.notes);
            for fence in notes.iter().filter(|n| !n.begins).map(|n| n.fence) {
                if fence.log_number == number {
                    found.fences += 1;
                    found.durable = found.durable.max(fence.durable);
                }
            }
        }
        Ok(())
    })?;
    let ended = ending(reader.end(), refused.is_some(), &summary);
    let path = file.path();
    writeln!(out, "file state of {}", path.display())?;
    writeln!(
        out,
        "  logical end   offset {end} of {} bytes, {} batches",
        summary.file_len, found.batches
    )?;
    writeln!(out, "  how it ends   {ended}")?;
    writeln!(out, "  records       {}", family(&summary))?;
    let compression = if summary.compressed { "zstd" } else { "none" };
    writeln!(out, "  compression   {compression}")?;
    let zeros = summary.file_len.saturating_sub(summary.content_end);
    let pre_zeroed = zeros >= PRE_ZEROED_MIN && summary.file_len.is_multiple_of(4096);
    let shown = if pre_zeroed { "yes" } else { "no" };
    writeln!(out, "  pre-zeroed    {shown}, {zeros} zeros at the end")?;
    match found.fences {
        0 => writeln!(out, "  fences        none")?,
        n => writeln!(
            out,
            "  fences        {n}, durable through {}",
            found.durable
        )?,
    }
    let verdict = match &refused {
        Some(e) => format!("damaged: {e}"),
        None => verdict(reader.end(), &found, &summary, path),
    };
    writeln!(out, "  verdict       {verdict}")?;
    if refused.is_some() {
        let dir = path.parent().unwrap_or(Path::new("."));
        let dir = dir.display();
        writeln!(
            out,
            "                `ironstone salvage --db={dir}` shows what can be kept"
        )?;
    }
    Ok(refused.is_none())
}

fn ending(end: &End, refused: bool, summary: &Summary) -> String {
    let rest = summary.file_len.saturating_sub(end.offset());
    match end {
        _ if refused => "refused: see the verdict".to_owned(),
        End::Clean { .. } => "clean: nothing follows".to_owned(),
        End::ZeroTail { offset } if summary.content_end > *offset => {
            format!("torn: zeros, then {rest} bytes that are not all zeros")
        }
        End::ZeroTail { .. } => format!("zero tail: {rest} bytes of zeros follow"),
        End::OldRecord { .. } => "recycled: records of an older log follow".to_owned(),
        End::Torn {
            reason,
            dropped_bytes,
            ..
        } => {
            format!("torn: {reason}; {dropped_bytes} bytes follow that recovery does not read")
        }
    }
}

fn family(summary: &Summary) -> &'static str {
    match (summary.legacy, summary.recyclable) {
        (false, false) => "none",
        (true, false) => "legacy",
        (false, true) => "recyclable",
        (true, true) => "legacy and recyclable: RocksDB from 9.7 on does not open this",
    }
}

fn verdict(end: &End, found: &Recovered, summary: &Summary, path: &Path) -> String {
    let path = path.display();
    let stray = matches!(end, End::ZeroTail { offset } if summary.content_end > *offset)
        && found.behind == 0;
    match end {
        End::Torn { .. } | End::ZeroTail { .. } if found.behind > 0 => format!(
            "damaged, or a torn group: {} batches behind the end can still be read; \
             `ironstone salvage` keeps them",
            found.behind
        ),
        End::Torn { .. } => format!(
            "a torn tail, as a crash leaves it: opening drops it. For RocksDB in \
             kTolerateCorruptedTailRecords or kAbsoluteConsistency: ironstone wal-trim {path}"
        ),
        _ if stray => format!(
            "a torn tail, as a crash leaves it: opening drops it; ironstone wal-trim {path} \
             removes it"
        ),
        _ => "sound".to_owned(),
    }
}
