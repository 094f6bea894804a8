//! `cargo xtask miri`: runs the parts that manage memory by hand, and the codecs beside them, under
//! Miri, which stops at data races, at uses of freed memory, and at pointers that are used beyond
//! their permissions.
//!
//! Only nightly toolchains have Miri. It interprets, about a thousand times slower than a
//! processor: tests are smaller in it (`cfg!(miri)`), and code that calls C is left out.

use std::process::Command;

/// A part: a description, its package, the tests of its library to run, and those to skip.
struct Part {
    name: &'static str,
    package: &'static str,
    tests: &'static [&'static str],
    skipped: &'static [&'static str],
}

/// Miri does not support `openat`, which opens files.
const WITH_FILES: &[&str] = &[
    "only_fences_that_are_trusted_count",
    "a_note_counts_where_a_log_has_it_and_nowhere_else",
    "the_note_says_which_fences_count",
];

const PARTS: &[Part] = &[
    Part {
        name: "buffers",
        package: "ironstone-io",
        tests: &["buffer::"],
        skipped: &[],
    },
    Part {
        name: "numbers",
        package: "ironstone-base",
        tests: &[
            "coding::",
            "key::",
            "checksum::",
            "comparator::",
            "values::",
        ],
        skipped: &[],
    },
    Part {
        name: "logs",
        package: "ironstone-log",
        tests: &["format::", "fence::", "note::"],
        skipped: WITH_FILES,
    },
    Part {
        name: "cache",
        package: "ironstone-table",
        tests: &["cache::"],
        skipped: &[],
    },
    Part {
        name: "tables",
        package: "ironstone-table",
        tests: &["block::", "index::", "handle::", "footer::", "props::"],
        skipped: &[],
    },
    Part {
        name: "batches",
        package: "ironstone",
        tests: &["batch::"],
        skipped: &[],
    },
    Part {
        name: "edits",
        package: "ironstone-manifest",
        tests: &["edit::"],
        skipped: &[
            "edits_are_shown_as_ldb_shows_them",
            "every_manifest_of_the_corpus",
        ],
    },
    Part {
        name: "memtable",
        package: "ironstone-memtable",
        tests: &[
            "arena::",
            "bloom::",
            "history::",
            "list::",
            "tests::",
            "tombstones::",
            "vector::",
        ],
        skipped: &[],
    },
];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The parts to run, separated by commas: buffers, numbers, logs, cache, tables, batches, edits,
    /// memtable; if not given, all
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The toolchain with Miri
    #[arg(long, default_value = "nightly")]
    toolchain: String,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let known = |name: &String| PARTS.iter().any(|p| p.name == name);
    if let Some(unknown) = arguments.only.iter().find(|name| !known(name)) {
        let names: Vec<_> = PARTS.iter().map(|p| p.name).collect();
        return Err(format!("no part {unknown}; there are {}", names.join(", ")));
    }
    let toolchain = format!("+{}", arguments.toolchain);
    let cargo = || {
        let mut cargo = Command::new("cargo");
        cargo.current_dir(xtask::root()).arg(&toolchain).arg("miri");
        cargo
    };
    let there = cargo().arg("--version").output();
    if !there.is_ok_and(|said| said.status.success()) {
        return Err(format!(
            "there is no Miri: rustup toolchain install {0}, then rustup component add --toolchain {0} miri rust-src",
            arguments.toolchain
        ));
    }
    let wanted = |part: &&Part| {
        arguments.only.is_empty() || arguments.only.iter().any(|name| name == part.name)
    };
    let mut failed = Vec::new();
    for part in PARTS.iter().filter(wanted) {
        eprintln!(
            "{}: {} in {}",
            part.name,
            part.tests.join(" "),
            part.package
        );
        let mut cargo = cargo();
        cargo
            // Allows the real clock, and files of this machine.
            .env("MIRIFLAGS", "-Zmiri-disable-isolation")
            // For proptest: enough cases for every branch.
            .env("PROPTEST_CASES", "3")
            .env("CARGO_TARGET_DIR", "target/miri")
            .args(["test", "--quiet", "--lib", "--package", part.package])
            .arg("--")
            .args(part.tests);
        for skipped in part.skipped {
            cargo.args(["--skip", skipped]);
        }
        let status = cargo.status().map_err(|e| format!("cargo: {e}"))?;
        if !status.success() {
            failed.push(part.name);
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!("Miri found something in: {}", failed.join(", ")))
}
