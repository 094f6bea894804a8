//! `--peers`: other engines written in Rust, beside Ironstone on the same keys.
//!
//! Their driver is a separate workspace, `bench/`, so that nothing else links these engines. In
//! each round every engine runs once, one right after the other, each round beginning with another
//! engine; the result is the ratio to Ironstone within a round.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::data::{Extra, Settings};
use super::output;
use crate::driver::{Setup, outputs_of};
use crate::spread::Spread;

/// Ironstone first; then the engines of the driver in `bench/`.
const ENGINES: [(&str, &str); 5] = [
    ("ironstone", "Ironstone"),
    ("fjall", "fjall 3"),
    ("redb", "redb 4"),
    ("lmdb", "LMDB (heed)"),
    ("surrealkv", "surrealkv 1"),
];

/// The most keys: some engines are slow if each put is a separate transaction.
const NUM_MAX: u64 = 200_000;

const BENCHMARKS: [&str; 4] = ["fillsync", "fillrandom", "readrandom", "readseq"];

/// Builds the driver of the other engines.
pub(super) fn build() -> Result<PathBuf, String> {
    xtask::cargo::built(
        "peers",
        &[
            "--release",
            "--manifest-path=bench/Cargo.toml",
            "--target-dir=target/bench-peers",
        ],
    )
}

/// Microseconds per operation of each benchmark, for each engine.
type Round = [[f64; BENCHMARKS.len()]; ENGINES.len()];

/// Runs the other engines beside Ironstone.
pub(super) struct Peers<'a> {
    pub(super) driver: &'a Path,
    pub(super) setup: &'a Setup,
    pub(super) settings: &'a Settings,
}

impl Peers<'_> {
    fn num(&self) -> u64 {
        self.settings.num.min(NUM_MAX)
    }

    /// Runs all rounds; `check` is called between runs, and its error ends the measurement.
    pub(super) fn measure(
        &self,
        say: impl Fn(&str),
        check: impl Fn() -> Result<(), String>,
    ) -> Result<Extra, String> {
        let mut rounds = Vec::new();
        for number in 0..self.settings.pairs {
            let mut round = Round::default();
            for place in 0..ENGINES.len() {
                let engine = (number as usize + place) % ENGINES.len();
                let (flag, name) = ENGINES[engine];
                say(&format!(
                    "other engines {}/{}: {name}",
                    number + 1,
                    self.settings.pairs
                ));
                let measured = self.once(flag, number);
                round[engine] = measured.map_err(|e| format!("{name}: {e}"))?;
                check()?;
            }
            rounds.push(round);
        }
        Ok(Extra {
            title: "Other engines written in Rust".to_owned(),
            command: "cargo xtask bench --peers".to_owned(),
            text: table(&rounds, self.num()),
        })
    }

    /// The figures of one engine: synced puts into a separate database, then the other benchmarks.
    fn once(&self, engine: &str, round: u32) -> Result<[f64; BENCHMARKS.len()], String> {
        let (results, _) =
            outputs_of(self.command(engine, round, "fillsync", self.settings.syncs))?;
        let fills = "fillrandom,readseq,readrandom,readseq";
        let (more, _) = outputs_of(self.command(engine, round, fills, self.num()))?;
        let db = self.setup.dir.join("peer");
        fs::remove_dir_all(&db).map_err(|e| format!("{}: {e}", db.display()))?;
        let all = results + &more;
        let mut micros = [0.0; BENCHMARKS.len()];
        for (place, name) in micros.iter_mut().zip(BENCHMARKS) {
            let run = output::run(&all, name);
            *place = run
                .ok_or_else(|| format!("no result of {name} in:\n{all}"))?
                .micros_per_op;
        }
        Ok(micros)
    }

    fn command(&self, engine: &str, round: u32, benchmarks: &str, writes: u64) -> Command {
        let ironstone = engine == ENGINES[0].0;
        let mut command = Command::new(if ironstone {
            &self.setup.driver
        } else {
            self.driver
        });
        command
            .arg(format!("--engine={engine}"))
            .arg(format!("--db={}", self.setup.dir.join("peer").display()))
            .arg(format!("--benchmarks={benchmarks}"))
            .arg(format!("--num={}", self.num()))
            .arg(format!("--writes={writes}"))
            .arg(format!("--seed={}", 1000 + round))
            .arg("--cache_size=1073741824");
        if ironstone {
            command.args(["--compression_type=none", "--bloom_bits=10"]);
        }
        command
    }
}

/// A Markdown table: medians, and the ratio to Ironstone within the rounds.
fn table(rounds: &[Round], num: u64) -> String {
    let mut text = format!(
        "{num} keys of 16 bytes with values of 100, each engine with its defaults, each put a transaction \
         where it has them. Microseconds of an operation, and in brackets its time over Ironstone's in the \
         same round: above 1, Ironstone is faster.\n\n| engine |"
    );
    for name in BENCHMARKS {
        text += &format!(" {name} |");
    }
    text += &format!("\n|---|{}\n", "---:|".repeat(BENCHMARKS.len()));
    for (engine, (_, name)) in ENGINES.iter().enumerate() {
        text += &format!("| {name} |");
        for benchmark in 0..BENCHMARKS.len() {
            let micros = Spread::of(rounds.iter().map(|r| r[engine][benchmark]));
            let ratio = Spread::of(
                rounds
                    .iter()
                    .map(|r| r[engine][benchmark] / r[0][benchmark]),
            );
            let ratio = match engine {
                0 => String::new(),
                _ => format!(" ({:.2}, {:.2}–{:.2})", ratio.median, ratio.low, ratio.high),
            };
            text += &format!(" {:.3}{ratio} |", micros.median);
        }
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_to_ironstone() {
        let mut round = Round::default();
        for (engine, row) in round.iter_mut().enumerate() {
            *row = [1.0 + engine as f64; BENCHMARKS.len()];
        }
        let text = table(&[round, round], 10);
        assert!(text.contains("| Ironstone | 1.000 | 1.000 |"), "{text}");
        assert!(
            text.contains("| fjall 3 | 2.000 (2.00, 2.00–2.00) |"),
            "{text}"
        );
    }
}
