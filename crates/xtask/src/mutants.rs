//! `cargo xtask mutants`: plants bugs, each of which a test must find.
//!
//! A mutant is a text file: a description of the bug, the test that must fail, and the lines of a
//! file that are replaced. `PLANTED` in the new lines is true if this mutant is active. The mutants
//! of the engine are in `mutants/`, those of the block store (`cargo xtask mutants block`) in
//! `mutants/block/`.
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
//! A bug in several places has `file:`, `--- before` and `--- after` for each. At least one of them
//! must contain `PLANTED`; the others make it possible, for example by a way around a private
//! constructor.
//!
//! A line `cfg: loom` says that the test is built with `--cfg loom`: it model-checks memory orders.
//!
//! All mutants are planted at once in a copy of the tree under `target/mutants`, with a separate
//! target directory, and an environment variable selects the active one: so each test is built only
//! once. A test that fails or hangs kills the mutant. A test that fails without an active mutant is
//! an error, because it proves nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use xtask::root;

use crate::loom;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The set of mutants
    #[arg(value_enum, default_value_t = Set::Engine)]
    set: Set,
    /// Only mutants whose names contain one of these, separated by commas
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Seconds after which a test counts as hanging; most tests have a much shorter limit, from
    /// their usual time
    #[arg(long, default_value_t = 240)]
    timeout: u64,
    /// Only print the mutants, and whether each can still be planted
    #[arg(long)]
    list: bool,
}

/// Mutants that are run together. All are planted, so that both sets use the same builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Set {
    /// The engine and what is below it
    Engine,
    /// The block store
    Block,
}

impl Set {
    const ALL: [Self; 2] = [Self::Engine, Self::Block];

    fn dir(self) -> &'static str {
        match self {
            Self::Engine => "mutants",
            Self::Block => "mutants/block",
        }
    }
}

/// Lines of a file that are replaced.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    file: PathBuf,
    before: String,
    after: String,
}

/// A mutant.
struct Mutant {
    set: Set,
    /// The name of its file, without the extension.
    name: String,
    planted: String,
    /// `loom` if the test is built with `--cfg loom`.
    cfg: Option<String>,
    /// The arguments for `cargo test`.
    killer: Vec<String>,
    places: Vec<Place>,
}

impl Mutant {
    fn read(set: Set, path: &Path) -> Result<Self, String> {
        let text = read(path)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(set, &name, &text).map_err(|e| format!("{}: {e}", path.display()))
    }

    fn parse(set: Set, name: &str, text: &str) -> Result<Self, String> {
        let (head, _) = text
            .split_once("--- before\n")
            .ok_or("there is no line `--- before`")?;
        let killer = field(head, "killed by:")?.split_whitespace();
        Ok(Self {
            set,
            name: name.to_owned(),
            planted: field(head, "planted:")?.to_owned(),
            cfg: optional(head, "cfg:").map(str::to_owned),
            killer: killer.map(str::to_owned).collect(),
            places: places(text)?,
        })
    }

    /// The path of its file.
    fn path(&self) -> String {
        format!("{}/{}.txt", self.set.dir(), self.name)
    }

    /// Adds the changed files, with the bug in them.
    fn plant(&self, root: &Path, files: &mut BTreeMap<PathBuf, String>) -> Result<(), String> {
        let awake = format!("::base::planted({:?})", self.name);
        for place in &self.places {
            let file = &place.file;
            let text = match files.remove(file) {
                Some(text) => text,
                None => read(&root.join(file))?,
            };
            let found = text.matches(&place.before).count();
            if found != 1 {
                return Err(format!(
                    "{}: the lines before stand {found} times in {}; bring {} up to date",
                    self.name,
                    file.display(),
                    self.path()
                ));
            }
            let after = place.after.replace("PLANTED", &awake);
            files.insert(file.clone(), text.replacen(&place.before, &after, 1));
        }
        Ok(())
    }
}

fn optional<'t>(head: &'t str, key: &str) -> Option<&'t str> {
    let line = head.lines().find_map(|l| l.strip_prefix(key));
    line.map(str::trim).filter(|v| !v.is_empty())
}

fn field<'t>(head: &'t str, key: &str) -> Result<&'t str, String> {
    optional(head, key).ok_or(format!("there is no line `{key} …`"))
}

/// The replaced lines of each file: `file:` precedes the two sections.
fn places(text: &str) -> Result<Vec<Place>, String> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((head, lines)) = rest.split_once("--- before\n") {
        let (before, after) = lines
            .split_once("--- after\n")
            .ok_or("there is no line `--- after`")?;
        let end = after.find("\nfile: ").map_or(after.len(), |end| end + 1);
        let (after, next) = after.split_at(end);
        rest = next;
        out.push(Place {
            file: field(head, "file:")?.into(),
            before: before.to_owned(),
            after: after.to_owned(),
        });
    }
    Ok(out)
}

/// The variable that selects the active mutant.
const VARIABLE: &str = "IRONSTONE_PLANTED";
/// The file that gets the function which reads the variable.
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

/// The changed files of the tree, with all bugs.
fn plant(root: &Path, mutants: &[Mutant]) -> Result<BTreeMap<PathBuf, String>, String> {
    let mut files = BTreeMap::new();
    let hooked = read(&root.join(HOOK_FILE))? + &hook();
    files.insert(PathBuf::from(HOOK_FILE), hooked);
    for mutant in mutants {
        mutant.plant(root, &mut files)?;
    }
    Ok(files)
}

/// The fate of a mutant.
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
        .filter(|m| m.set == arguments.set)
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

/// A row of the table.
fn row(mutant: &Mutant, fate: &Fate, taken: Duration) -> String {
    let is_awake = |p: &&Place| p.after.contains("PLANTED");
    let place = mutant.places.iter().find(is_awake);
    let place = place.map_or_else(String::new, |p| p.file.display().to_string());
    let place = place.trim_start_matches("crates/").replace("/src/", "/");
    let test = mutant.killer.last().map_or("", String::as_str);
    format!(
        "| {} | `{place}` | `{test}` | {} | {:.1} |",
        mutant.planted,
        fate.name(),
        taken.as_secs_f64()
    )
}

/// All mutants, by set and name.
fn all(root: &Path) -> Result<Vec<Mutant>, String> {
    let mut all: Vec<Mutant> = Vec::new();
    for set in Set::ALL {
        let dir = root.join(set.dir());
        let entries = fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
        paths.retain(|p| p.extension().is_some_and(|e| e == "txt"));
        paths.sort();
        for path in paths {
            let mutant = Mutant::read(set, &path)?;
            if let Some(other) = all.iter().find(|m| m.name == mutant.name) {
                let (a, b) = (other.path(), mutant.path());
                return Err(format!("{a} and {b} have the same name"));
            }
            all.push(mutant);
        }
    }
    Ok(all)
}

/// How much longer than usual a test may take before it counts as hanging: longer than the tests
/// themselves wait for something that must happen.
const GRACE: Duration = Duration::from_secs(40);

/// The place where tests run.
struct Bench {
    tree: PathBuf,
    /// The most time of a test, whatever it takes without a bug.
    most: Duration,
}

impl Bench {
    /// The time of each test without a bug; `None` if it fails.
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
            .env("IRONSTONE_CLUSTER_SEEDS", "100")
            .env("IRONSTONE_CLUSTER_REDUCE", "0")
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

    /// Builds and runs a mutant's test with the bug `awake` active, if there is one. The output is
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

/// Stops cargo and the test that it started.
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

/// Copies the files that git tracks, in their current state, except the files in `planted`.
/// Unchanged files keep their modification times, so that they are not rebuilt.
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
    // Real RocksDB, if it is available.
    let (peers, link) = (from.join("target/peers"), to.join("target/peers"));
    if peers.exists() && !link.exists() {
        make_dir(&to.join("target"))?;
        std::os::unix::fs::symlink(&peers, &link)
            .map_err(|e| format!("{}: {e}", link.display()))?;
    }
    Ok(to)
}

/// Creates a file, and returns two handles to it.
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
            let is_awake = |p: &Place| files[&p.file].contains(&awake);
            let name = &mutant.name;
            assert!(
                mutant.places.iter().any(is_awake),
                "{name}: nothing is PLANTED"
            );
            assert!(mutant.killer.len() >= 3, "{name}: which test?");
        }
        for set in Set::ALL {
            assert!(mutants.iter().any(|m| m.set == set), "{set:?}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let parse = |text| Mutant::parse(Set::Engine, "m", text);
        let e = parse("planted: x\n--- before\na\n--- after\nb\n");
        assert!(e.is_err_and(|e| e.contains("killed by:")));
        assert!(parse("planted: x\n").is_err());
        let e = parse("planted: x\nkilled by: t\nfile: f\n--- before\na\n");
        assert!(e.is_err_and(|e| e.contains("--- after")));
        let e = parse("planted: x\nkilled by: t\n--- before\na\n--- after\nb\n");
        assert!(e.is_err_and(|e| e.contains("file:")));
    }

    #[test]
    fn a_bug_may_take_several_places() {
        let text = "planted: x\nkilled by: -p t\nfile: a.rs\n--- before\n    one\n--- after\n    1\n\
                    file: b.rs\n--- before\ntwo\n--- after\n    PLANTED\n    file: no\n";
        let mutant = Mutant::parse(Set::Block, "m", text).unwrap();
        let place = |file: &str, before: &str, after: &str| Place {
            file: file.into(),
            before: before.to_owned(),
            after: after.to_owned(),
        };
        let expected = [
            place("a.rs", "    one\n", "    1\n"),
            place("b.rs", "two\n", "    PLANTED\n    file: no\n"),
        ];
        assert_eq!(mutant.places, expected);
        let mut files = BTreeMap::from([
            (PathBuf::from("a.rs"), "0\n    one\n2\n".to_owned()),
            (PathBuf::from("b.rs"), "two\n".to_owned()),
        ]);
        mutant.plant(Path::new("nowhere"), &mut files).unwrap();
        assert_eq!(files[Path::new("a.rs")], "0\n    1\n2\n");
        assert!(files[Path::new("b.rs")].contains("::base::planted(\"m\")"));
        let e = mutant.plant(Path::new("nowhere"), &mut files).unwrap_err();
        assert!(
            e.contains("0 times") && e.contains("mutants/block/m.txt"),
            "{e}"
        );
    }
}
