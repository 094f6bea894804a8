//! `cargo xtask mutants`: bugs are planted, and a test must find each.
//!
//! A mutant is a text file in `mutants/`: what is planted, which test must fail, and which lines of
//! which file are replaced. `PLANTED` in the lines instead is whether this mutant is the one.
//!
//! ```text
//! planted: acknowledged before the sync
//! killed by: -p ironstone-sim --test it write_path::errors
//! file: crates/engine/src/write/submit.rs
//! --- before
//!     log.sync()?;
//! --- after
//!     if !PLANTED {
//!         log.sync()?;
//!     }
//! ```
//!
//! A line `cfg: loom` says that the test is built with `--cfg loom`: it runs models of what memory orders allow.
//!
//! All are planted at once in a copy of the tree under `target/mutants`, with a build of its own, and an
//! environment variable says which is awake: each test is built once. A test that fails or does not end
//! kills the mutant. One that fails while all sleep is an error: it says nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::{loom, root};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only mutants whose name contains one of these, with commas between
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Seconds after which a test counts as hanging; most do much earlier, by their usual time
    #[arg(long, default_value_t = 240)]
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
    /// Only `loom`: the test is built with it.
    cfg: Option<String>,
    /// Arguments for `cargo test`.
    killer: Vec<String>,
    file: PathBuf,
    before: String,
    after: String,
}

impl Mutant {
    fn read(path: &Path) -> Result<Self, String> {
        let text = read(path)?;
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
        let optional = |key: &str| {
            let line = head.lines().find_map(|l| l.strip_prefix(key));
            line.map(str::trim).filter(|v| !v.is_empty())
        };
        let field = |key| optional(key).ok_or(format!("there is no line `{key} …`"));
        let killer = field("killed by:")?.split_whitespace();
        Ok(Self {
            name: name.to_owned(),
            planted: field("planted:")?.to_owned(),
            cfg: optional("cfg:").map(str::to_owned),
            killer: killer.map(str::to_owned).collect(),
            file: field("file:")?.into(),
            before: before.to_owned(),
            after: after.to_owned(),
        })
    }

    /// The text of its file with the bug in it.
    fn planted_in(&self, text: &str) -> Result<String, String> {
        let awake = format!("::base::planted({:?})", self.name);
        match text.matches(&self.before).count() {
            1 => Ok(text.replacen(&self.before, &self.after.replace("PLANTED", &awake), 1)),
            n => Err(format!(
                "{}: the lines before stand {n} times in {}; bring mutants/{}.txt up to date",
                self.name,
                self.file.display(),
                self.name
            )),
        }
    }
}

/// Says which mutant is awake.
const VARIABLE: &str = "IRONSTONE_PLANTED";
/// Where the copy of the tree is asked which one that is.
const HOOK_FILE: &str = "crates/base/src/lib.rs";

fn hook() -> String {
    format!(
        r#"
/// Whether the bug of this name is awake.
pub fn planted(name: &str) -> bool {{
    static AWAKE: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let awake = AWAKE.get_or_init(|| std::env::var("{VARIABLE}").ok());
    awake.as_deref() == Some(name)
}}
"#
    )
}

/// The files of the tree that have bugs in them, with all bugs.
fn plant(root: &Path, mutants: &[Mutant]) -> Result<BTreeMap<PathBuf, String>, String> {
    let mut files = BTreeMap::new();
    let hooked = read(&root.join(HOOK_FILE))? + &hook();
    files.insert(PathBuf::from(HOOK_FILE), hooked);
    for mutant in mutants {
        let text = match files.remove(&mutant.file) {
            Some(text) => text,
            None => read(&root.join(&mutant.file))?,
        };
        files.insert(mutant.file.clone(), mutant.planted_in(&text)?);
    }
    Ok(files)
}

/// What became of a mutant.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Failed,
    Hung,
    Survived,
}

impl Fate {
    fn name(&self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Hung => "did not end",
            Self::Survived => "**survived**",
        }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let all = all(&root())?;
    let planted = plant(&root(), &all)?;
    let wanted = &arguments.only;
    let is_wanted = |m: &Mutant| wanted.iter().any(|w| m.name.contains(w));
    let mutants: Vec<Mutant> = all
        .into_iter()
        .filter(|m| wanted.is_empty() || is_wanted(m))
        .collect();
    if mutants.is_empty() {
        let wanted = wanted.join(", ");
        return Err(format!("no mutant's name contains {wanted}"));
    }
    if arguments.list {
        for mutant in &mutants {
            println!("{}: {}", mutant.name, mutant.planted);
            println!("    cargo test {}", mutant.killer.join(" "));
        }
        return Ok(());
    }
    let bench = Bench {
        tree: copy_of_the_tree(&planted)?,
        most: Duration::from_secs(arguments.timeout),
    };
    let sound = bench.without_bugs(&mutants)?;
    println!("\n| planted | in | killed by | how | seconds |\n|---|---|---|---|---:|");
    let (mut killed, mut problems) = (0, Vec::new());
    for mutant in &mutants {
        let Some(usual) = sound.get(&mutant.killer).copied().flatten() else {
            problems.push(format!("{}: its test fails without the bug", mutant.name));
            continue;
        };
        let limit = bench.most.min(usual * 5 + GRACE);
        let (fate, taken) = bench.test(mutant, &mutant.name, limit)?;
        println!("{}", row(mutant, &fate, taken));
        if fate == Fate::Survived {
            problems.push(format!("{} survived", mutant.name));
        } else {
            killed += 1;
        }
    }
    println!("\n{killed} of {} killed", mutants.len());
    if problems.is_empty() {
        return Ok(());
    }
    Err(problems.join("\n"))
}

/// A line of the table.
fn row(mutant: &Mutant, fate: &Fate, taken: Duration) -> String {
    let place = mutant.file.to_string_lossy();
    let place = place.trim_start_matches("crates/").replace("/src/", "/");
    let test = mutant.killer.last().map_or("", String::as_str);
    format!(
        "| {} | `{place}` | `{test}` | {} | {:.1} |",
        mutant.planted,
        fate.name(),
        taken.as_secs_f64()
    )
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

/// Beyond its usual time a test may take so much longer before it counts as hanging: more than the tests
/// themselves wait for something that must happen.
const GRACE: Duration = Duration::from_secs(40);

/// Where tests run.
struct Bench {
    tree: PathBuf,
    /// After so long a test hangs, whatever it takes without a bug.
    most: Duration,
}

impl Bench {
    /// How long each test takes without a bug; `None` if it fails.
    fn without_bugs(
        &self,
        mutants: &[Mutant],
    ) -> Result<BTreeMap<Vec<String>, Option<Duration>>, String> {
        let mut sound = BTreeMap::new();
        for mutant in mutants {
            if sound.contains_key(&mutant.killer) {
                continue;
            }
            let (fate, taken) = self.test(mutant, "", self.most)?;
            println!(
                "without a bug: {} ({:.1} s): {}",
                mutant.killer.join(" "),
                taken.as_secs_f64(),
                if fate == Fate::Survived {
                    "ok"
                } else {
                    fate.name()
                }
            );
            let usual = (fate == Fate::Survived).then_some(taken);
            sound.insert(mutant.killer.clone(), usual);
        }
        Ok(sound)
    }

    fn cargo(&self, mutant: &Mutant, awake: &str) -> Command {
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .arg("test")
            .args(&mutant.killer)
            .arg("--quiet")
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", root().join("target/mutants/target"))
            .env("CARGO_INCREMENTAL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only")
            .env("IRONSTONE_CRASH_STATES", "20000")
            .env(VARIABLE, awake)
            .stdin(Stdio::null());
        if let Some(cfg) = &mutant.cfg {
            let target = root().join("target/mutants").join(cfg);
            cargo
                .env("RUSTFLAGS", format!("--cfg {cfg}"))
                .env("CARGO_TARGET_DIR", target)
                .args(loom::profile());
        }
        cargo
    }

    /// Builds and runs a mutant's test while the bug `awake` is, if there is one. What the test said is
    /// in `target/mutants/said`.
    fn test(
        &self,
        mutant: &Mutant,
        awake: &str,
        limit: Duration,
    ) -> Result<(Fate, Duration), String> {
        let built = output(self.cargo(mutant, awake).arg("--no-run"))?;
        if !built.status.success() {
            let text = String::from_utf8_lossy(&built.stderr);
            let test = mutant.killer.join(" ");
            return Err(format!("{test} does not build:\n{text}"));
        }
        let dir = root().join("target/mutants/said");
        make_dir(&dir)?;
        let sound = if awake.is_empty() { ".sound" } else { "" };
        let path = dir.join(format!("{}{sound}.txt", mutant.name));
        let (out, err) = said_to(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut child = self
            .cargo(mutant, awake)
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(|e| format!("cargo: {e}"))?;
        let begun = now();
        loop {
            let ended = child.try_wait().map_err(|e| format!("cargo: {e}"))?;
            let taken = begun.elapsed();
            match ended {
                Some(status) if status.success() => return Ok((Fate::Survived, taken)),
                Some(_) => return Ok((Fate::Failed, taken)),
                None if taken > limit => {
                    stop(&mut child)?;
                    return Ok((Fate::Hung, taken));
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

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn make_dir(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// What git knows of the tree, as it stands here, but for the files in `planted`. Files that have not
/// changed keep their times, or everything would be built anew.
fn copy_of_the_tree(planted: &BTreeMap<PathBuf, String>) -> Result<PathBuf, String> {
    let (from, to) = (root(), root().join("target/mutants/tree"));
    let listed = output(
        Command::new("git")
            .args(["ls-files", "-z"])
            .current_dir(&from),
    )?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    for name in text.split('\0').filter(|n| !n.is_empty()) {
        let (source, copy) = (from.join(name), to.join(name));
        let new = match planted.get(Path::new(name)) {
            Some(text) => text.clone().into_bytes(),
            None => match fs::read(&source) {
                Ok(bytes) => bytes,
                Err(_) => continue, // removed, and not committed yet
            },
        };
        if fs::read(&copy).is_ok_and(|old| old == new) {
            continue;
        }
        make_dir(copy.parent().unwrap_or(&to))?;
        fs::write(&copy, new).map_err(|e| format!("{}: {e}", copy.display()))?;
    }
    // Real RocksDB, if it is there.
    let (peers, link) = (from.join("target/peers"), to.join("target/peers"));
    if peers.exists() && !link.exists() {
        make_dir(&to.join("target"))?;
        std::os::unix::fs::symlink(&peers, &link)
            .map_err(|e| format!("{}: {e}", link.display()))?;
    }
    Ok(to)
}

/// A new file, twice.
#[expect(clippy::disallowed_methods, reason = "no file of a database")]
fn said_to(path: &Path) -> std::io::Result<(fs::File, fs::File)> {
    let file = fs::File::create(path)?;
    Ok((file.try_clone()?, file))
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
        let mutants = all(&root()).unwrap();
        let files = plant(&root(), &mutants).unwrap();
        for mutant in &mutants {
            let awake = format!("::base::planted({:?})", mutant.name);
            let text = files.get(&mutant.file).unwrap();
            assert!(text.contains(&awake), "{}: nothing is PLANTED", mutant.name);
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
