//! `reduce-levels`: moves a column family's tables up, so that it opens with fewer levels.

use std::io::Write;

use io::posix::Posix;
use ironstone::CompactRangeOptions;

use crate::calm::Calm;
use crate::cli::Global;
use crate::cli_writes::ReduceLevels;
use crate::fail::{Failure, Outcome, note};
use crate::logs;
use crate::state::State;

/// Compacts the column family, and moves the result to the last of the new levels.
pub(crate) fn reduce(global: &Global, args: &ReduceLevels, out: &mut dyn Write) -> Outcome {
    let wanted = args.new_levels.as_deref().and_then(|n| n.parse().ok());
    let new: i32 = wanted.filter(|&n| n > 0).ok_or_else(|| {
        Failure::message("Use --new_levels to specify a new level number, 2 or more")
    })?;
    if new == 1 {
        return Err(Failure::message(
            "Invalid number of levels: --new_levels must be 2 or more",
        ));
    }
    let old = in_use(global)?;
    if args.print_old_levels {
        writeln!(out, "The old number of levels in use is {old}")?;
    }
    if i64::from(old) <= i64::from(new) {
        return Ok(());
    }
    writeln!(out, "Compacting the db...")?;
    let db = Calm::open(global, false)?;
    db.run(|db| {
        db.compact(CompactRangeOptions::default(), new - 1)?;
        let files = db.levels()?;
        let below = files.iter().skip(new as usize).sum::<usize>();
        match below {
            0 => {
                note(format_args!("open the database with num_levels={new} now"));
                Ok(())
            }
            n => Err(Failure::message(format!(
                "{n} tables are below level {} still; run the command again",
                new - 1
            ))),
        }
    })
}

/// The number of levels that the column family uses: one more than the number of the last level
/// with tables.
fn in_use(global: &Global) -> Outcome<u32> {
    let dir = global.dir()?;
    files::read_current(&Posix, dir)?;
    // Refuses a database that is open: its levels may change at any time.
    let _lock = logs::lock(dir)?;
    let manifest = files::manifest_path(dir, files::read_current(&Posix, dir)?);
    let state = State::read(&manifest, &mut |_| {})?;
    let name = &global.column_family;
    let family = state.families.values().find(|f| f.name == *name);
    let family =
        family.ok_or_else(|| Failure::message(format!("Non-existing column family {name}")))?;
    let used = family.levels.iter().filter(|(_, files)| !files.is_empty());
    Ok(used.map(|(level, _)| level + 1).max().unwrap_or(0))
}
