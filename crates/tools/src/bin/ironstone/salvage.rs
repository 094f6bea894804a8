//! `salvage`: keeps every readable batch of damaged logs, and reports exactly what is lost.
//!
//! ```text
//!   survey ─ each log, in order: pieces, sequence numbers, notes    what would be lost
//!   report ─ text                                                    always
//!   rewrite ─ damaged logs, and those that speak of them             with --yes
//! ```
//!
//! A log counts as damaged if a batch can be read after an unreadable place, or if a fence, a later
//! log or the MANIFEST says that more of the log was durable than can be read. A torn tail meets
//! neither condition. Logs are replaced oldest first: until the last one is replaced, its notes, or
//! those in later logs, still prevent an open.

mod rewrite;
mod survey;

use std::io::Write;
use std::path::Path;

use io::posix::Posix;
use ironstone::{Db, Error, Options};

use crate::cli::{self, Global};
use crate::fail::{Failure, Outcome};
use crate::logs;
use survey::Plan;

/// Salvages a database.
pub(crate) fn salvage(global: &Global, args: &cli::Salvage, out: &mut dyn Write) -> Outcome {
    global.refuse_secondary()?;
    let dir = global.dir()?;
    files::read_current(&Posix, dir)?;
    let _lock = logs::lock(dir)?;
    let tracked = logs::tracked(dir)?;
    let all = logs::list(dir, tracked.first)?;
    let plans = survey::survey(all, &tracked)?;
    for plan in &plans {
        plan.lines.iter().try_for_each(|l| writeln!(out, "{l}"))?;
    }
    let damaged: Vec<&Plan> = plans.iter().filter(|p| p.is_damaged()).collect();
    if damaged.is_empty() {
        writeln!(out, "No log is damaged: nothing to salvage.")?;
        return Ok(());
    }
    let sum = |of: fn(&Plan) -> u64| plans.iter().map(of).sum::<u64>();
    writeln!(
        out,
        "damaged logs: {} of {}; lost: bytes {}, places {}, sequence numbers {}; kept: batches {}, \
         writes {}",
        damaged.len(),
        plans.len(),
        sum(|p| p.lost_bytes),
        sum(|p| p.lost_places),
        sum(|p| p.missing),
        sum(|p| p.kept_batches),
        sum(|p| p.kept_writes)
    )?;
    let rewritten = survey::to_rewrite(&plans);
    let refused = |p: &&Plan| p.timestamps && rewritten.contains(&p.log.number);
    if let Some(plan) = plans.iter().find(refused) {
        let e = Error::not_supported("rewriting a log with user-defined timestamps");
        return Err(e.file(&plan.log.path).into());
    }
    if !args.yes {
        for plan in plans.iter().filter(|p| rewritten.contains(&p.log.number)) {
            let path = plan.log.path.display();
            match &args.to {
                None => writeln!(out, "would rewrite {path}, and keep it as {path}.damaged")?,
                Some(to) => writeln!(out, "would write {path} anew in {}", to.display())?,
            }
        }
        writeln!(out, "Nothing was changed. Repeat with --yes to do this.")?;
        return Err(Failure::Reported);
    }
    match &args.to {
        None => rewrite::in_place(&plans, &rewritten, &tracked, out)?,
        Some(to) => rewrite::copy(dir, to, &plans, &rewritten, &tracked)?,
    }
    check(args.to.as_ref().unwrap_or(dir), out)
}

/// Opens the result for reading.
fn check(dir: &Path, out: &mut dyn Write) -> Outcome {
    let shown = dir.display();
    let opened = Db::open_read_only(dir, &Options::default()).and_then(Db::close);
    match opened {
        Ok(()) => writeln!(out, "{shown} was salvaged, and opens.")?,
        Err(e) => {
            writeln!(out, "The logs of {shown} were salvaged.")?;
            return Err(Failure::message(format!("it does not open yet: {e}")));
        }
    }
    Ok(())
}
