//! Rewrites logs with their readable batches.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;

use base::ValueType;
use files::FileKind;
use io::{AlignedBuf, FileSystem, OpenHow, SyncKind, WriteSync, buffer, posix::Posix};
use ironstone::{Error, WriteBatch};
use log::salvage::{self, Rewrite};

use super::survey::{Judged, Plan, judge};
use crate::fail::{Failure, Outcome};
use crate::logs::{self, Tracked};
use crate::notes;

/// Replaces the logs, oldest first; the old logs are kept under other names.
pub(super) fn in_place(
    plans: &[Plan],
    rewritten: &BTreeSet<u64>,
    tracked: &Tracked,
    out: &mut dyn Write,
) -> Outcome {
    for plan in plans.iter().filter(|p| rewritten.contains(&p.log.number)) {
        let path = &plan.log.path;
        let new = path.with_extension("log.salvaged");
        write(plan, &new, tracked)?;
        let kept = logs::free_name(path, "damaged")?;
        salvage::replace(&Posix, path, &new, &kept)?;
        writeln!(
            out,
            "{} was rewritten; the old one is {}",
            path.display(),
            kept.display()
        )?;
    }
    Ok(())
}

/// Writes the readable batches of a log to `to`, without the notes, which describe the old file.
fn write(plan: &Plan, to: &Path, tracked: &Tracked) -> Outcome {
    let mut new = Rewrite::create(&Posix, to, ValueType::Noop as u8)?;
    let (mut next, mut kept) = (plan.expected, false);
    salvage::scan(&plan.log.file, plan.log.number, &mut |piece| {
        if piece.lost.is_none()
            && let Judged::Keep(facts) = judge(&piece.bytes, next)?
        {
            (next, kept) = (Some(facts.next), true);
            new.append(&notes::without_notes(&piece.bytes))?;
        }
        Ok(())
    })?;
    // What tracks the log's size finds a file that is long enough; a log without any record looks as
    // if it had lost all.
    let len_min = tracked.sizes.get(&plan.log.number).copied().unwrap_or(0);
    if !kept && len_min > 0 {
        let mut nothing = WriteBatch::new();
        nothing.set_sequence(next.unwrap_or(tracked.last_sequence + 1));
        new.append(nothing.data())?;
    }
    new.finish(len_min)?;
    Ok(())
}

/// Makes a copy of the database in the new directory `to`, with the new logs. CURRENT is written
/// last; until then the copy is not a database.
pub(super) fn copy(
    dir: &Path,
    to: &Path,
    plans: &[Plan],
    rewritten: &BTreeSet<u64>,
    tracked: &Tracked,
) -> Outcome {
    if Posix.exists(to)? && !Posix.list(to)?.is_empty() {
        let shown = to.display();
        return Err(Failure::message(format!("{shown} exists and is not empty")));
    }
    io::create_dirs(&Posix, to)?;
    let manifest = files::read_current(&Posix, dir)?;
    for entry in files::list(&Posix, dir)? {
        let (from, new) = (dir.join(&entry.name), to.join(&entry.name));
        match entry.kind {
            FileKind::Table | FileKind::Blob => link(&from, &new)?,
            FileKind::Manifest if entry.number != manifest => {}
            FileKind::Manifest | FileKind::Options | FileKind::Identity => copy_file(&from, &new)?,
            _ => {}
        }
    }
    for plan in plans {
        let name = plan.log.path.file_name().unwrap_or(OsStr::new(""));
        let new = to.join(name);
        if rewritten.contains(&plan.log.number) {
            write(plan, &new, tracked)?;
        } else {
            copy_file(&plan.log.path, &new)?;
        }
    }
    Posix.sync_dir(to)?;
    files::write_current(&Posix, to, manifest)?;
    Ok(())
}

/// A second name for a file that never changes, or a copy where that is not possible.
fn link(from: &Path, to: &Path) -> Result<(), Error> {
    Posix.hard_link(from, to).or_else(|_| copy_file(from, to))
}

fn copy_file(from: &Path, to: &Path) -> Result<(), Error> {
    let source = Posix.open(from, OpenHow::READ)?;
    let file = Posix.open(to, OpenHow::CREATE_NEW)?;
    let mut buf = AlignedBuf::zeroed(1 << 20, buffer::PAGE)?;
    let mut at = 0;
    loop {
        let n = source.read_at(&mut buf, at)?;
        if n == 0 {
            break;
        }
        io::write_all_at(&*file, &buf[..n], at, WriteSync::None)?;
        at += n as u64;
    }
    file.sync(SyncKind::All)
}
