//! `change-compaction-style`: rearranges a column family for another compaction style.

use std::io::Write;

use ironstone::{BottommostLevelCompaction, CompactRangeOptions};

use crate::calm::Calm;
use crate::cli::Global;
use crate::cli_writes::ChangeCompactionStyle;
use crate::fail::{Failure, Outcome};

/// RocksDB's numbers of the styles.
const LEVEL: u32 = 0;
const UNIVERSAL: u32 = 1;

/// From level to universal: one table on level 0.
pub(crate) fn change(
    global: &Global,
    args: &ChangeCompactionStyle,
    out: &mut dyn Write,
) -> Outcome {
    let old = style(args.old.as_deref(), "old")?;
    let new = style(args.new.as_deref(), "new")?;
    if old == new {
        return Err(Failure::message(
            "Old compaction style is the same as new compaction style. Nothing to do.",
        ));
    }
    if old == UNIVERSAL {
        return Err(Failure::message(
            "Convert from universal compaction to level compaction. Nothing to do.",
        ));
    }
    Calm::open(global, true)?.run(|db| {
        db.flush()?;
        writeln!(
            out,
            "files per level before compaction: {}",
            list(&db.levels()?)
        )?;
        let options = CompactRangeOptions {
            bottommost_level_compaction: BottommostLevelCompaction::Force,
            max_subcompactions: 1,
            ..CompactRangeOptions::default()
        };
        db.compact(options, 0)?;
        let files = db.levels()?;
        for (level, &found) in files.iter().enumerate() {
            let expected = usize::from(level == 0);
            if found != expected {
                return Err(Failure::message(format!(
                    "Number of db files at level {level} after compaction is {found}, not \
                     {expected}."
                )));
            }
        }
        Ok(writeln!(
            out,
            "files per level after compaction: {}",
            list(&files)
        )?)
    })
}

fn style(text: Option<&str>, which: &str) -> Outcome<u32> {
    match text.and_then(|t| t.parse().ok()) {
        Some(style @ (LEVEL | UNIVERSAL)) => Ok(style),
        _ => Err(Failure::message(format!(
            "Use --{which}_compaction_style to specify {which} compaction style: {LEVEL} for level \
             compaction, {UNIVERSAL} for universal compaction"
        ))),
    }
}

fn list(files: &[usize]) -> String {
    let numbers: Vec<String> = files.iter().map(usize::to_string).collect();
    numbers.join(",")
}
