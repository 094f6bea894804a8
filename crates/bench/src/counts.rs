//! `cargo xtask counts`: instructions of the hot leaf functions, compared with a checked-in
//! baseline.
//!
//! Callgrind counts the instructions on an emulated processor: the number is the same in each run
//! and on a busy machine, unlike times. It says nothing about caches, branches and waiting, so that
//! it guards leaf functions, but does not measure speed.
//!
//! This is a plain program under `valgrind`, without a framework: frameworks need a second program
//! of exactly their version, which has to be compiled.

mod baseline;
mod lines;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xtask::cargo;

use baseline::Baseline;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only kernels whose names contain one of these [default: all]
    names: Vec<String>,
    /// Write the counts to the baseline
    #[arg(long, conflicts_with = "names")]
    bless: bool,
    /// Instead, list the source files that each kernel passes, with the number of their lines that run
    #[arg(long, conflicts_with = "bless")]
    files: bool,
    /// An already built program `counts` [default: build it]
    #[arg(long)]
    program: Option<PathBuf>,
}

const BASELINE: &str = "crates/counts/baseline.tsv";
/// The profiles of Callgrind, for callgrind_annotate.
const PROFILES: &str = "target/counts-profiles";
/// Keeps glibc from copying and filling with `rep movsb` and `rep stosb`, of which Callgrind counts
/// every byte.
const C_LIBRARY: (&str, &str) = ("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-ERMS,-FSRM");
/// The function whose instructions are counted, in every mangling.
const COUNTED: &str = "--toggle-collect=*counts*measured*";

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let root = xtask::root();
    let program = match &arguments.program {
        Some(program) => fs::canonicalize(program).map_err(|e| fail(program, &e))?,
        None => cargo::program("counts", "counts", Some("counts"))?,
    };
    let profiles = root.join(PROFILES);
    fs::create_dir_all(&profiles).map_err(|e| fail(&profiles, &e))?;
    let counter = Counter { program, profiles };
    let mut now = Baseline {
        compiler: output(Command::new("rustc").arg("--version").current_dir(&root))?,
        machine: counter.machine()?,
        ..Baseline::default()
    };
    let wanted = |name: &str| {
        arguments.names.is_empty() || arguments.names.iter().any(|w| name.contains(w.as_str()))
    };
    for (name, operations) in kernels(&output(&mut Command::new(&counter.program))?)? {
        if !wanted(&name) {
            continue;
        }
        let profile = counter.profile(&name)?;
        if arguments.files {
            print!("{}", lines::table(&name, &profile));
        }
        lines::check(&name, &profile)?;
        let count = total(&profile).map_err(|e| format!("{name}: {e}"))?;
        now.counts.insert(name, count as f64 / operations as f64);
    }
    if now.counts.is_empty() {
        return Err(format!("no kernel has {:?} in its name", arguments.names));
    }
    if arguments.files {
        return Ok(());
    }
    let path = root.join(BASELINE);
    let stored = match fs::read_to_string(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Baseline::default(),
        text => Baseline::parse(&text.map_err(|e| fail(&path, &e))?)?,
    };
    print!("{}", baseline::table(&stored, &now));
    if arguments.bless {
        fs::write(&path, now.text()).map_err(|e| fail(&path, &e))?;
        println!("\nwritten to {BASELINE}");
        return Ok(());
    }
    let said = baseline::judge(&stored, &now, arguments.names.is_empty())?;
    println!("\n{said}");
    Ok(())
}

fn fail(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// The output of a program, without the final line break.
fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{name}: {e}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{name} failed: {said}"));
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned())
}

/// Names and numbers of operations, from the program's list.
fn kernels(list: &str) -> Result<Vec<(String, u64)>, String> {
    let kernel = |line: &str| {
        let (name, operations) = line.split_once('\t')?;
        let operations = operations.parse().ok().filter(|&n| n > 0)?;
        Some((name.to_owned(), operations))
    };
    list.lines()
        .map(|line| kernel(line).ok_or_else(|| format!("not a kernel: {line}")))
        .collect()
}

/// The total number of instructions in a profile of Callgrind.
fn total(profile: &str) -> Result<u64, String> {
    let value = |name: &str| profile.lines().find_map(|line| line.strip_prefix(name));
    if value("events:").map(str::trim) != Some("Ir") {
        return Err("Callgrind has not counted instructions alone".to_owned());
    }
    match value("totals:").map(|n| n.trim().parse()) {
        Some(Ok(0)) => Err(format!(
            "Callgrind has counted nothing: no function fits {COUNTED}"
        )),
        Some(Ok(n)) => Ok(n),
        _ => Err("Callgrind's profile has no total".to_owned()),
    }
}

struct Counter {
    program: PathBuf,
    profiles: PathBuf,
}

impl Counter {
    /// A command that runs the program under Valgrind, in a fixed environment.
    fn valgrind(&self) -> Command {
        let mut command = Command::new("valgrind");
        command.current_dir(&self.profiles);
        command.env_clear().env(C_LIBRARY.0, C_LIBRARY.1);
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command
    }

    /// The machine that the program sees, which Valgrind emulates.
    fn machine(&self) -> Result<String, String> {
        let mut valgrind = self.valgrind();
        valgrind.args(["--tool=none", "-q"]).arg(&self.program);
        let features = output(valgrind.arg("features"))
            .map_err(|e| format!("{e}\n(Valgrind is needed: the package valgrind)"))?;
        let library = output(Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
        Ok(format!("{features}; {library}"))
    }

    /// What Callgrind says of one kernel.
    fn profile(&self, name: &str) -> Result<String, String> {
        let profile = format!("{name}.out");
        let mut valgrind = self.valgrind();
        valgrind
            .args(["--tool=callgrind", "-q", COUNTED])
            .arg(format!("--callgrind-out-file={profile}"))
            .arg(&self.program)
            .arg(name);
        output(&mut valgrind).map_err(|e| format!("{name}: {e}"))?;
        let path = self.profiles.join(profile);
        fs::read_to_string(&path).map_err(|e| fail(&path, &e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_read() {
        let profile = |events: &str, totals: &str| {
            format!(
                "# callgrind format\nversion: 1\ncmd: ./counts a\npositions: line\n\
                 events: {events}\nsummary: 9\n\nfn=(1) counts::measured\n0 7\ntotals: {totals}\n"
            )
        };
        assert_eq!(total(&profile("Ir", "1234567")), Ok(1_234_567));
        assert!(total(&profile("Ir", "0")).unwrap_err().contains("nothing"));
        assert!(total(&profile("Ir Dr Dw", "1 2 3")).is_err());
        assert!(total("events: Ir\n").is_err());
    }

    #[test]
    fn kernels_are_listed() {
        let two = vec![("a".to_owned(), 10), ("b".to_owned(), 2)];
        assert_eq!(kernels("a\t10\nb\t2"), Ok(two));
        assert!(kernels("a\t0").is_err());
        assert!(kernels("a").is_err());
    }
}
