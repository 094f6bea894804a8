//! `cargo xtask check-map`: looks at the map of ironstone-tracks as a user would, in headless Chromium.
//!
//! A demo with 10,000 objects runs meanwhile, on a port and in a folder of its own. What is done and compared is in
//! `crates/tracks/web/check`. The tests of the page's parts that need no browser run first.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::web;

/// All of it takes so many seconds at most.
const SECONDS: &str = "240";
/// The demo ends by itself, whatever happens to this process.
const DEMO_SECONDS: &str = "300";
const OBJECTS: &str = "10000";
/// One report of each object in five seconds: browsers that draw by software, and debug builds, keep up.
const REPORTS: &str = "2000";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Use the release profile
    #[arg(long)]
    release: bool,
    /// Where pictures are written
    #[arg(long, default_value = "target/map")]
    pictures: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let (sources, modules) = web::bundle(false)?;
    // First what needs no browser.
    let mut tests = web::node(&sources);
    web::call(tests.args(["--test", "--test-reporter=dot", "test/"]))?;
    let profile = arguments.release.then_some("release");
    let program = crate::driver::program("ironstone-tracks", "ironstone-tracks", profile)?;
    let demo = Demo::start(&program)?;
    println!("\nthe map of {}", demo.address);
    web::call(
        Command::new("timeout")
            .args(["-k", "5", SECONDS, "node"])
            .arg(sources.join("check/check.mjs"))
            .arg(&modules)
            .arg(&demo.address)
            .arg(crate::root().join(&arguments.pictures)),
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
                demo.address = address.trim_end_matches("map").to_owned();
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
