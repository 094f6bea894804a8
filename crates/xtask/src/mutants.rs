//! `cargo xtask mutants`: bugs are planted one at a time, and a test must find each.
//!
//! A mutant is a text file in `mutants/`: what is planted, which test must fail, and which lines of
//! which file are replaced.
//!
//! ```text
//! planted: acknowledged before the sync
//! killed by: -p ironstone-sim --test it write_path::errors
//! file: crates/engine/src/write/submit.rs
//! --- before
//!     lines that stand there once
//! --- after
//!     lines instead
//! ```
//!
//! The tests run in a copy of the tree under `target/mutants`, with a build of its own. A test that
//! fails or does not end kills the mutant. One that does not build is an error: it says nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::root;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only mutants whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Seconds after which a test counts as hanging
    #[arg(long, default_value_t = 120)]
    timeout: u64,
    /// Print the mutants, and whether each can still be planted, and end
    #[arg(long)]
    list: bool,
}

/// A bug to plant.
struct Mutant {
    /// The name of its file, without the ending.
    name: String,
    planted: String,
    /// Arguments for `cargo test`.
    killer: Vec<String>,
    file: PathBuf,
    before: String,
    after: String,
}

impl Mutant {
    fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&name, &text).map_err(|e| format!("{}: {e}", path.display()))
    }

    fn parse(name: &str, text: &str) -> Result<Self, String> {
        let (head, lines) = text
            .split_once("--- before\n")
            .ok_or("there is no line `--- before`")?;
        let (before, after) = lines
            .split_once("--- after\n")
            .ok_or("there is no line `--- after`")?;
        let field = |key: &str| {
            let line = head.lines().find_map(|l| l.strip_prefix(key));
            line.map(str::trim)
                .filter(|v| !v.is_empty())
                .ok_or(format!("there is no line `{key} …`"))
        };
        let killer = field("killed by:")?.split_whitespace();
        Ok(Self {
            name: name.to_owned(),
            planted: field("planted:")?.to_owned(),
            killer: killer.map(str::to_owned).collect(),
            file: field("file:")?.into(),
            before: before.to_owned(),
            after: after.to_owned(),
        })
    }

    /// The file with the bug in it.
    fn planted_in(&self, tree: &Path) -> Result<String, String> {
        let path = tree.join(&self.file);
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        match text.matches(&self.before).count() {
            1 => Ok(text.replacen(&self.before, &self.after, 1)),
            n => Err(format!(
                "{}: the lines before stand {n} times in {}; bring mutants/{}.txt up to date",
                self.name,
                self.file.display(),
                self.name
            )),
        }
    }
}

/// What became of a mutant.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Failed,
    Hung,
    Survived,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let wanted = arguments.only.as_deref().unwrap_or_default();
    let mutants: Vec<Mutant> = all(&root())?
        .into_iter()
        .filter(|m| m.name.contains(wanted))
        .collect();
    if mutants.is_empty() {
        return Err(format!("no mutant's name contains {wanted:?}"));
    }
    if arguments.list {
        return list(&mutants);
    }
    let tree = copy_of_the_tree()?;
    let bench = Bench {
        tree: &tree,
        limit: Duration::from_secs(arguments.timeout),
    };
    for (i, mutant) in mutants.iter().enumerate() {
        println!(
            "[{}/{}] without a bug: {}",
            i + 1,
            mutants.len(),
            mutant.killer.join(" ")
        );
        if bench.test(mutant)? != Fate::Survived {
            return Err(format!("{}: its test fails without the bug", mutant.name));
        }
    }
    let mut survivors = Vec::new();
    println!("\n| planted | killed by | how | seconds |\n|---|---|---|---:|");
    for mutant in &mutants {
        let begun = now();
        let fate = bench.plant(mutant)?;
        let how = match fate {
            Fate::Failed => "failed",
            Fate::Hung => "did not end",
            Fate::Survived => "**survived**",
        };
        let test = mutant.killer.last().map_or("", String::as_str);
        let seconds = begun.elapsed().as_secs();
        println!("| {} | `{test}` | {how} | {seconds} |", mutant.planted);
        if fate == Fate::Survived {
            survivors.push(mutant.name.clone());
        }
    }
    let killed = mutants.len() - survivors.len();
    println!("\n{killed} of {} killed", mutants.len());
    if survivors.is_empty() {
        return Ok(());
    }
    Err(format!("survived: {}", survivors.join(", ")))
}

/// All mutants, by name.
fn all(root: &Path) -> Result<Vec<Mutant>, String> {
    let dir = root.join("mutants");
    let entries = fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "txt"));
    paths.sort();
    paths.iter().map(|p| Mutant::read(p)).collect()
}

fn list(mutants: &[Mutant]) -> Result<(), String> {
    for mutant in mutants {
        mutant.planted_in(&root())?;
        println!("{}: {}", mutant.name, mutant.planted);
        println!("    cargo test {}", mutant.killer.join(" "));
    }
    Ok(())
}

/// Where mutants are planted and tests run.
struct Bench<'a> {
    tree: &'a Path,
    limit: Duration,
}

impl Bench<'_> {
    fn plant(&self, mutant: &Mutant) -> Result<Fate, String> {
        let path = self.tree.join(&mutant.file);
        let sound = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        write(&path, &mutant.planted_in(self.tree)?)?;
        let fate = self.test(mutant);
        write(&path, &sound)?;
        fate
    }

    fn cargo(&self, mutant: &Mutant) -> Command {
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .arg("test")
            .args(&mutant.killer)
            .arg("--quiet")
            .current_dir(self.tree)
            .env("CARGO_TARGET_DIR", root().join("target/mutants/target"))
            .env("IRONSTONE_CRASH_STATES", "20000")
            .stdin(Stdio::null());
        cargo
    }

    fn test(&self, mutant: &Mutant) -> Result<Fate, String> {
        let built = output(self.cargo(mutant).arg("--no-run"))?;
        if !built.status.success() {
            let text = String::from_utf8_lossy(&built.stderr);
            return Err(format!("{} does not build:\n{text}", mutant.name));
        }
        let mut child = self
            .cargo(mutant)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("cargo: {e}"))?;
        let begun = now();
        loop {
            let ended = child.try_wait().map_err(|e| format!("cargo: {e}"))?;
            match ended {
                Some(status) if status.success() => return Ok(Fate::Survived),
                Some(_) => return Ok(Fate::Failed),
                None if begun.elapsed() > self.limit => {
                    stop(&mut child)?;
                    return Ok(Fate::Hung);
                }
                None => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }
}

/// Ends cargo and the test that it started.
fn stop(child: &mut std::process::Child) -> Result<(), String> {
    let parent = child.id().to_string();
    output(Command::new("pkill").args(["-KILL", "-P", &parent]))?;
    drop(child.kill()); // it may have ended with its test
    child.wait().map(drop).map_err(|e| format!("cargo: {e}"))
}

fn output(command: &mut Command) -> Result<Output, String> {
    command.output().map_err(|e| format!("{command:?}: {e}"))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// What git knows of the tree, as it stands here. Files that have not changed keep their times, or
/// everything would be built anew.
fn copy_of_the_tree() -> Result<PathBuf, String> {
    let (from, to) = (root(), root().join("target/mutants/tree"));
    let listed = output(
        Command::new("git")
            .args(["ls-files", "-z"])
            .current_dir(&from),
    )?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    for name in text.split('\0').filter(|n| !n.is_empty()) {
        let (source, copy) = (from.join(name), to.join(name));
        let Ok(new) = fs::read(&source) else {
            continue; // removed, and not committed yet
        };
        if fs::read(&copy).is_ok_and(|old| old == new) {
            continue;
        }
        let dir = copy.parent().unwrap_or(&to);
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        fs::write(&copy, new).map_err(|e| format!("{}: {e}", copy.display()))?;
    }
    Ok(to)
}

#[expect(clippy::disallowed_methods, reason = "a program that waits for others")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mutant_can_be_planted() {
        let root = root();
        for mutant in all(&root).unwrap() {
            let text = mutant.planted_in(&root).unwrap();
            assert!(text.contains(&mutant.after), "{}", mutant.name);
            assert!(mutant.killer.len() >= 3, "{}: which test?", mutant.name);
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let e = Mutant::parse("m", "planted: x\n--- before\na\n--- after\nb\n");
        assert!(e.is_err_and(|e| e.contains("killed by:")));
        assert!(Mutant::parse("m", "planted: x\n").is_err());
    }
}
