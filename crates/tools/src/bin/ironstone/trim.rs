//! `wal-trim`: cuts off the torn tail of a log, as recovery would, but never durable data.

use std::io::Write;
use std::path::{Path, PathBuf};

use files::FileKind;
use io::{FileSystem, posix::Posix};
use log::trim::{self, How, Torn};

use crate::cli::{self, Global};
use crate::fail::{Failure, Outcome};
use crate::logs::{self, LogFile, Tracked};
use crate::notes;

/// Trims a log, or every log of the database.
pub(crate) fn trim(global: &Global, args: &cli::WalTrim, out: &mut dyn Write) -> Outcome {
    global.refuse_secondary()?;
    let (dir, only) = match &args.file {
        Some(path) => (directory(path), Some(number(path)?)),
        None => (global.dir()?.clone(), None),
    };
    let is_database = Posix.exists(&files::current_path(&dir))?;
    let _lock = is_database.then(|| logs::lock(&dir)).transpose()?;
    let tracked = match (is_database, only) {
        (true, _) => logs::tracked(&dir)?,
        (false, Some(_)) => Tracked::default(),
        (false, None) => {
            return Err(Failure::message(format!(
                "{} is not a database: it has no CURRENT",
                dir.display()
            )));
        }
    };
    let all = logs::list(&dir, only.unwrap_or(tracked.first))?;
    let mut waiting = false;
    for (i, log) in all.iter().enumerate() {
        if only.is_some_and(|n| n != log.number) {
            break;
        }
        let Some(torn) = plan(log, &all[i + 1..], &tracked)? else {
            writeln!(out, "{}: nothing to trim", log.path.display())?;
            continue;
        };
        waiting |= !args.yes;
        carry_out(log, &torn, args, out)?;
    }
    if waiting {
        writeln!(out, "Nothing was changed. Repeat with --yes to do this.")?;
        return Err(Failure::Reported);
    }
    Ok(())
}

fn directory(path: &Path) -> PathBuf {
    let dir = path.parent().filter(|d| *d != Path::new(""));
    dir.unwrap_or(Path::new(".")).to_path_buf()
}

/// The number in a log's name: it distinguishes the log's fences and records from those of other
/// logs.
fn number(path: &Path) -> Outcome<u64> {
    let parsed = path.file_name().and_then(files::parse_name);
    match parsed {
        Some((FileKind::Wal, number)) if Posix.exists(path)? => Ok(number.0),
        Some((FileKind::Wal, _)) => Err(Failure::message(format!(
            "{}: no such file",
            path.display()
        ))),
        _ => Err(Failure::message(format!(
            "{}: not the name of a log, such as 000004.log; the number is needed to tell its \
             records from those of other logs",
            path.display()
        ))),
    }
}

/// The torn tail of a log; refuses if it cannot be one.
fn plan(log: &LogFile, later: &[LogFile], tracked: &Tracked) -> Outcome<Option<Torn>> {
    let refuse = |why: String| {
        let dir = directory(&log.path);
        Failure::message(format!(
            "{why}\nThis is no torn tail, and nothing was changed. `ironstone salvage --db={}` \
             shows what can be kept.",
            dir.display()
        ))
    };
    let found = trim::find(&log.file, log.number);
    let torn = match found {
        Ok(None) => return Ok(None),
        Ok(Some(torn)) => torn,
        Err(e) if e.is_corruption() => return Err(refuse(e.to_string())),
        Err(e) => return Err(e.into()),
    };
    let path = log.path.display();
    let offset = torn.offset;
    if let Some(size) = tracked.sizes.get(&log.number).filter(|s| **s > offset) {
        return Err(refuse(format!(
            "{path}: the log is damaged at offset {offset} ({}), and the MANIFEST says that {size} \
             bytes of it are durable",
            torn.reason
        )));
    }
    let next = next_sequence(log, offset)?;
    for other in later {
        let (first, durable) = said_by(other, log.number)?;
        if durable > offset {
            return Err(refuse(format!(
                "{path}: the log is damaged at offset {offset} ({}), and {} says that it was \
                 durable through {durable}",
                torn.reason,
                other.path.display()
            )));
        }
        if let (Some(first), Some(next)) = (first, next)
            && first != next
        {
            return Err(refuse(format!(
                "{path}: the log is damaged at offset {offset} ({}); its next batch would have \
                 sequence {next}, and {} goes on with {first}: without the damage, nobody would \
                 see that batches are missing",
                torn.reason,
                other.path.display()
            )));
        }
        if first.is_some() {
            break;
        }
    }
    Ok(Some(torn))
}

/// The next sequence number after the last batch before `end`.
fn next_sequence(log: &LogFile, end: u64) -> Outcome<Option<u64>> {
    let mut next = None;
    log::salvage::scan(&log.file, log.number, &mut |piece| {
        if piece.lost.is_none() && piece.range.start < end {
            next = Some(notes::facts(&piece.bytes)?.next);
        }
        Ok(())
    })?;
    Ok(next)
}

/// The first sequence number in a later log, and the offset up to which that log says that log
/// `number` was durable.
fn said_by(log: &LogFile, number: u64) -> Outcome<(Option<u64>, u64)> {
    let (mut first, mut durable) = (None, 0);
    log::salvage::scan(&log.file, log.number, &mut |piece| {
        let facts = match piece.lost {
            None => notes::facts(&piece.bytes).unwrap_or_default(),
            Some(_) => return Ok(()),
        };
        if first.is_none() {
            first = Some(facts.first);
        }
        let fences = facts.notes.iter().filter(|n| !n.begins);
        for fence in fences.map(|n| n.fence) {
            if fence.previous_log == number {
                durable = durable.max(fence.previous_end);
            }
        }
        Ok(())
    })?;
    Ok((first, durable))
}

/// Prints the planned change, and makes it with `--yes`.
fn carry_out(log: &LogFile, torn: &Torn, args: &cli::WalTrim, out: &mut dyn Write) -> Outcome {
    let path = log.path.display();
    let Torn {
        offset,
        content_end,
        file_len,
        reason,
        readable,
    } = torn;
    writeln!(out, "{path}: torn at offset {offset}: {reason}")?;
    let content = content_end.saturating_sub(*offset);
    match (args.zero, args.yes) {
        (true, yes) => writeln!(
            out,
            "  {} {content} bytes with zeros, offsets {offset} to {content_end}; the file keeps \
             its {file_len} bytes",
            if yes {
                "overwriting"
            } else {
                "would overwrite"
            },
        )?,
        (false, yes) => writeln!(
            out,
            "  {} {} bytes off, {content} of them before the zeros at the end; the file is then \
             {offset} bytes long",
            if yes { "cutting" } else { "would cut" },
            file_len - offset
        )?,
    }
    if *readable > 0 {
        writeln!(
            out,
            "  note: {readable} batches in this part can still be read, and go too. Opening in the \
             default mode drops them as well; `ironstone salvage` keeps them"
        )?;
    }
    let kept = (!args.no_backup && content > 0)
        .then(|| logs::free_name(&log.path, "trimmed"))
        .transpose()?;
    if let Some(kept) = &kept {
        let verb = if args.yes { "keeping" } else { "would keep" };
        writeln!(out, "  {verb} these {content} bytes in {}", kept.display())?;
    }
    if !args.yes {
        return Ok(());
    }
    if let Some(kept) = &kept {
        trim::keep(&Posix, &log.path, torn, kept)?;
    }
    let how = if args.zero { How::Zero } else { How::Cut };
    trim::apply(&Posix, &log.path, torn, how)?;
    writeln!(out, "  done")?;
    Ok(())
}
