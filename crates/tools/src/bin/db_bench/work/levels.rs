//! Databases with every level filled, the same way each time: `fillseqdeterministic` and
//! `filluniquerandomdeterministic`.
//!
//! Automatic compactions are disabled meanwhile. Puts go to level 0 in rounds, each a fraction of the
//! previous round. The tables of a round are a sorted run, and each run is compacted to a separate
//! level.
//!
//! ```text
//!   level compaction, 5 levels           universal, ratio 1
//!   round 1: n keys        -> level 4    round 1: n keys         -> level 4
//!   round 2: n/10, unique  -> level 3    round 2: n/2.01, unique -> level 3
//!   round 3: n/100         -> level 2    …                       -> level 0 from round 5 on, one
//!   round 4: n/1000        -> level 1                               file each
//!            its newest third stays in level 0
//! ```

use base::{Error, Result};

use super::Worker;
use crate::benchmarks::Order;
use crate::engine::{Engine, TableFile};
use crate::keys::Values;
use crate::say;

/// The tables of a round, newest first.
type Run = Vec<TableFile>;

/// The number of `--compaction_style` for universal compaction.
const UNIVERSAL: i32 = 1;

/// The range of tables: smallest and largest key, and smallest and largest sequence number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Extent {
    keys: (Vec<u8>, Vec<u8>),
    sequences: (u64, u64),
}

impl Extent {
    /// The range of these tables; `None` if there are none.
    fn of<'t>(tables: impl Iterator<Item = &'t TableFile>) -> Option<Self> {
        let own = |table: &TableFile| Self {
            keys: (table.smallest.clone(), table.largest.clone()),
            sequences: table.sequences,
        };
        tables.map(own).reduce(|a, b| Self {
            keys: (a.keys.0.min(b.keys.0), a.keys.1.max(b.keys.1)),
            sequences: (
                a.sequences.0.min(b.sequences.0),
                a.sequences.1.max(b.sequences.1),
            ),
        })
    }
}

impl<E: Engine> Worker<'_, E> {
    /// Fills the levels; the keys of the last level are written in this order.
    pub(super) fn fill_levels(&mut self, order: Order, values: &mut Values) -> Result<()> {
        let flags = self.flags;
        let none = "400000000";
        let triggers = [
            ("level0_slowdown_writes_trigger", none),
            ("level0_stop_writes_trigger", none),
        ];
        self.engine.set_options(&triggers)?;
        let filled = self.rounds(order, values);
        let filled = filled.and_then(|runs| self.place(&runs));
        let slowdown = flags.level0_slowdown_writes_trigger.to_string();
        let stop = flags.level0_stop_writes_trigger.to_string();
        let triggers = [
            ("level0_slowdown_writes_trigger", slowdown.as_str()),
            ("level0_stop_writes_trigger", stop.as_str()),
        ];
        let back = self.engine.set_options(&triggers);
        filled.and(back)
    }

    /// Writes until there are enough runs. Errors: a round becomes too small before it has two
    /// tables.
    fn rounds(&mut self, order: Order, values: &mut Values) -> Result<Vec<Run>> {
        let flags = self.flags;
        let levels = flags.num_levels as usize;
        let universal = flags.compaction_style == UNIVERSAL;
        let mut runs: Vec<Run> = Vec::new();
        let mut operations = self.plan.operations;
        while operations > 0 {
            let order = if runs.is_empty() {
                order
            } else {
                Order::Unique
            };
            self.write(order, values, operations)?;
            self.engine.flush()?;
            let mut new = self.engine.table_files()?;
            new.retain(|table| table.level == 0);
            let old: usize = runs.iter().map(Vec::len).sum();
            new.truncate(new.len().saturating_sub(old));
            let tables = new.len();
            if tables == 0 {
                break;
            }
            runs.push(new);
            if tables == 1 {
                break;
            }
            if !universal && runs.len() == levels - 1 {
                // The newest third stays in level 0.
                runs[levels - 2].drain(..tables / 3);
                break;
            }
            operations = if universal {
                operations * 100 / (200 + u64::from(self.size_ratio()))
            } else {
                operations / (flags.max_bytes_for_level_multiplier as u64).max(1)
            };
        }
        let needed = if universal { levels } else { levels - 1 };
        if runs.len() < needed {
            return Err(Error::invalid_argument(format!(
                "n is too small to fill {levels} levels: {} sorted runs of two tables or more, not \
                 {needed}; more --num, or a smaller --write_buffer_size",
                runs.len()
            )));
        }
        Ok(runs)
    }

    /// `--universal_size_ratio`, or the default that 0 stands for.
    fn size_ratio(&self) -> u32 {
        match self.flags.universal_size_ratio.unsigned_abs() {
            0 => 1,
            ratio => ratio,
        }
    }

    /// Compacts each run to its level, checks the result, and prints the content of the levels.
    fn place(&self, runs: &[Run]) -> Result<()> {
        let flags = self.flags;
        let last = flags.num_levels - 1;
        let level_of = |run: usize| (last - run as i32).max(0);
        let multiplier = u64::from(flags.target_file_size_multiplier.max(1).unsigned_abs());
        let factor = multiplier.saturating_pow((last - 1).max(0).unsigned_abs());
        let bytes = flags.target_file_size_base.max(1).unsigned_abs();
        for (i, run) in runs.iter().enumerate() {
            if flags.compaction_style != UNIVERSAL {
                say(&format!("{}\n", run.len()));
            }
            self.engine
                .compact_into(run, level_of(i), bytes.saturating_mul(factor))?;
        }
        let tables = self.engine.table_files()?;
        for (i, run) in runs.iter().enumerate() {
            let level = level_of(i);
            if level > 0 {
                check(run, level, &tables, level < last)?;
            }
        }
        let in_level0 = tables.iter().filter(|t| t.level == 0).count();
        let runs_above = runs.len().saturating_sub(last as usize);
        if flags.compaction_style == UNIVERSAL && in_level0 < runs_above {
            return Err(Error::aborted(format!(
                "level 0 has {in_level0} tables, fewer than the {runs_above} runs that belong there"
            )));
        }
        say(&shape(&tables));
        Ok(())
    }
}

/// The level must have the content of the run. Compaction into the last level changes sequence
/// numbers.
fn check(run: &Run, level: i32, tables: &[TableFile], with_sequences: bool) -> Result<()> {
    let written = Extent::of(run.iter());
    let there = Extent::of(tables.iter().filter(|t| t.level == level));
    let same = match (&written, &there) {
        (Some(a), Some(b)) => a.keys == b.keys && (!with_sequences || a.sequences == b.sequences),
        _ => false,
    };
    if same {
        return Ok(());
    }
    Err(Error::aborted(format!(
        "level {level} has keys and sequence numbers {there:?}, but the run for it had {written:?}"
    )))
}

/// RocksDB's lines about the tables of each level.
fn shape(tables: &[TableFile]) -> String {
    let mut text = "---------------------- DB 0 LSM ---------------------\n".to_owned();
    let name = |table: &TableFile| table.name.to_string_lossy().into_owned();
    for level in tables.chunk_by(|a, b| a.level == b.level) {
        let number = level[0].level;
        if number == 0 {
            for table in level {
                let (name, bytes) = (name(table), table.bytes);
                text += &format!("Level[{number}]: {name}(size: {bytes} bytes)\n");
            }
            continue;
        }
        let bytes: u64 = level.iter().map(|table| table.bytes).sum();
        let (first, last) = (name(&level[0]), name(&level[level.len() - 1]));
        text += &format!("Level[{number}]: {first} - {last}(total size: {bytes} bytes)\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(level: i32, number: u64, keys: [&str; 2], sequences: (u64, u64)) -> TableFile {
        TableFile {
            level,
            name: std::ffi::CString::new(format!("/{number:06}.sst")).unwrap(),
            bytes: number * 10,
            smallest: keys[0].into(),
            largest: keys[1].into(),
            sequences,
        }
    }

    #[test]
    fn a_level_has_what_its_run_had() {
        let run = vec![
            table(0, 6, ["c", "f"], (4, 6)),
            table(0, 5, ["a", "d"], (1, 3)),
        ];
        let good = [table(2, 9, ["a", "f"], (1, 6))];
        check(&run, 2, &good, true).unwrap();
        let zeroed = [table(2, 9, ["a", "f"], (0, 0))];
        check(&run, 2, &zeroed, false).unwrap();
        let e = check(&run, 2, &zeroed, true).unwrap_err().to_string();
        assert!(e.contains("level 2 has"), "{e}");
        let less = [table(2, 9, ["b", "f"], (1, 6))];
        assert!(check(&run, 2, &less, false).is_err());
        assert!(check(&run, 1, &good, false).is_err());
    }

    #[test]
    fn the_shape_is_told_in_rocksdbs_words() {
        let tables = [
            table(0, 8, ["a", "b"], (9, 9)),
            table(0, 7, ["a", "b"], (8, 8)),
            table(3, 1, ["a", "b"], (0, 0)),
            table(3, 2, ["c", "d"], (0, 0)),
        ];
        assert_eq!(
            shape(&tables),
            "---------------------- DB 0 LSM ---------------------\n\
             Level[0]: /000008.sst(size: 80 bytes)\n\
             Level[0]: /000007.sst(size: 70 bytes)\n\
             Level[3]: /000001.sst - /000002.sst(total size: 30 bytes)\n"
        );
    }
}
