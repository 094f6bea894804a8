//! One run of db_bench: its command, and its figures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::data::{Engine, Run, Settings, Stalls};
use super::device::{self, Block};
use super::suite::{Bench, Database, PREPARATION};
use super::{log, output};
use crate::driver::{Setup, outputs_of};

/// The settings that all runs of a suite share.
pub(super) struct Runner<'a> {
    setup: &'a Setup,
    settings: &'a Settings,
    block: Option<Block>,
}

/// A run, and the version that the engine reports.
pub(super) struct Outcome {
    pub(super) run: Run,
    pub(super) version: Option<String>,
}

impl<'a> Runner<'a> {
    pub(super) fn new(setup: &'a Setup, settings: &'a Settings) -> Self {
        Self {
            setup,
            settings,
            block: Block::of(&setup.dir),
        }
    }

    /// Makes the database that the runs of a benchmark use.
    pub(super) fn prepare(&self, database: Database, engine: Engine) -> Result<(), String> {
        let mut command = self.command(engine, database);
        command
            .arg(format!("--benchmarks={PREPARATION}"))
            .arg("--seed=1");
        outputs_of(command).map(|_| ())
    }

    /// Runs a benchmark once. Errors: db_bench failed, or printed no result.
    pub(super) fn measure(
        &self,
        bench: &Bench,
        engine: Engine,
        pair: u32,
    ) -> Result<Outcome, String> {
        let db = self.database(engine, bench.database);
        let rates = self.setup.dir.join("rates.csv");
        let mut command = self.command(engine, bench.database);
        command
            .arg(format!("--benchmarks={}", bench.benchmarks()))
            .arg(format!("--seed={}", 1000 + pair))
            .args(bench.flags(self.settings))
            .args(["--process_stats", "--report_interval_seconds=1"])
            .arg(format!("--report_file={}", rates.display()));
        if bench.database != Database::New {
            command.arg("--use_existing_db");
        }
        let text = text(&command);
        device::settle(&self.setup.dir)?;
        let before = self.block.as_ref().and_then(Block::counters);
        let (results, said) = outputs_of(command)?;
        device::settle(&self.setup.dir)?;
        let after = self.block.as_ref().and_then(Block::counters);
        let mut run = output::run(&results, bench.measured)
            .ok_or_else(|| format!("no result of {} in:\n{results}", bench.measured))?;
        run.command = text;
        run.device = before.zip(after).map(|(b, a)| device::between(b, a));
        run.database_bytes = device::size(&db);
        run.rates = output::rates(&fs::read_to_string(&rates).unwrap_or_default());
        let course = log::course(&fs::read_to_string(db.join("LOG")).unwrap_or_default());
        run.levels = course.levels;
        run.stalls = output::stalls(&results).map(|(seconds, count)| Stalls {
            count,
            seconds,
            at: course.stalls,
        });
        bench.complete(&mut run, self.settings);
        if bench.database == Database::New {
            fs::remove_dir_all(&db).map_err(|e| format!("{}: {e}", db.display()))?;
        }
        Ok(Outcome {
            run,
            version: output::version(&said),
        })
    }

    fn database(&self, engine: Engine, database: Database) -> PathBuf {
        let engine = engine.name().to_lowercase();
        self.setup.dir.join(engine).join(database.name())
    }

    fn command(&self, engine: Engine, database: Database) -> Command {
        let db = self.database(engine, database);
        let mut command = Command::new(&self.setup.driver);
        command
            .arg(self.setup.engine(engine == Engine::RocksDb))
            .arg(format!("--db={}", db.display()))
            .args(&self.settings.flags);
        command
    }
}

/// A command as it can be typed at the root of the source tree.
fn text(command: &Command) -> String {
    let root = xtask::root();
    let root = root.to_string_lossy();
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| relative(&word.to_string_lossy(), &root))
        .collect();
    words.join(" ")
}

/// A text without the path of the source tree.
pub(crate) fn relative(text: &str, root: &str) -> String {
    text.replace(&format!("{}/", Path::new(root).display()), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_those_of_the_source_tree() {
        let mut command = Command::new(xtask::root().join("target/release/db_bench"));
        command.arg(format!("--db={}/target/bench/x", xtask::root().display()));
        assert_eq!(
            text(&command),
            "target/release/db_bench --db=target/bench/x"
        );
        assert_eq!(relative("--num=5", "/a/b"), "--num=5");
    }
}
