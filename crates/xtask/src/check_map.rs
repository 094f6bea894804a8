//! `cargo xtask check-map`: checks the map of ironstone-tracks as a user sees it, in headless
//! Chromium.
//!
//! Meanwhile a demo with 10,000 objects runs, on a free port and in a temporary folder. The checks
//! are in `crates/tracks/web/check`. The tests of the page's parts that need no browser run first.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use xtask::cargo;

use crate::web;

/// The time limit, seconds.
const SECONDS: &str = "200";
/// The demo ends by itself, even if this process is killed.
const DEMO_SECONDS: &str = "300";
const OBJECTS: &str = "10000";
/// Reports per second, one of each object in five seconds: slow enough for browsers that render by
/// software, and for debug builds.
const REPORTS: &str = "2000";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Use the release profile
    #[arg(long)]
    release: bool,
    /// An already built ironstone-tracks [default: build it]
    #[arg(long, conflicts_with = "release")]
    program: Option<PathBuf>,
    /// The directory for the pictures
    #[arg(long, default_value = "target/map")]
    pictures: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let (sources, modules) = web::bundle(false)?;
    // First the tests without a browser.
    let mut tests = web::node(&sources);
    web::call(tests.args(["--test", "--test-reporter=dot", "test/"]))?;
    let program = if let Some(program) = &arguments.program {
        fs::canonicalize(program).map_err(|e| format!("--program {}: {e}", program.display()))?
    } else {
        let profile = arguments.release.then_some("release");
        cargo::program("ironstone-tracks", "ironstone-tracks", profile)?
    };
    let demo = Demo::start(&program)?;
    println!("\nthe map of {}", demo.address);
    web::call(
        Command::new("timeout")
            .args(["-k", "5", SECONDS, "node"])
            .arg(sources.join("check/check.mjs"))
            .arg(&modules)
            .arg(&demo.address)
            .arg(xtask::root().join(&arguments.pictures)),
    )
    .map_err(|e| format!("the map is not as it should be: {e}"))
}

/// A demo that runs until this is dropped.
struct Demo {
    child: Child,
    address: String,
}

impl Demo {
    fn start(program: &PathBuf) -> Result<Self, String> {
        let failed = |e: std::io::Error| format!("{}: {e}", program.display());
        let mut child = Command::new(program)
            .args(["demo", "--listen", "127.0.0.1:0", "--past", "3"])
            .args(["--objects", OBJECTS, "--reports-per-second", REPORTS])
            .args(["--seconds", DEMO_SECONDS])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let lines = child.stdout.take().map(BufReader::new);
        let mut demo = Self {
            child,
            address: String::new(),
        };
        let lines = lines
            .into_iter()
            .flat_map(BufReader::lines)
            .map_while(Result::ok);
        for line in lines {
            if let Some(address) = line.trim().strip_prefix("map: ") {
                address
                    .trim_end_matches("map")
                    .clone_into(&mut demo.address);
                return Ok(demo);
            }
        }
        Err("the demo has ended before it began: what it said is above".to_owned())
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        // SIGTERM lets it remove its folder.
        let pid = self.child.id().to_string();
        let told = Command::new("kill").arg(pid).status();
        if told.is_err() || self.child.wait().is_err() {
            eprintln!("note: the demo may still run");
        }
    }
}
