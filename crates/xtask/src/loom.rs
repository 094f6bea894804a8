//! `cargo xtask loom`: model-checks the small parts that share memory without locks: all
//! interleavings of a few threads, and all values that a weak memory order lets a thread read.
//! Built with `--cfg loom` in a separate target directory.

use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only the models whose names contain this
    #[arg(long)]
    only: Option<String>,
    /// The maximum number of preemptions, instead of the limit of each model
    #[arg(long)]
    preemptions: Option<u32>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let mut cargo = Command::new("cargo");
    cargo
        .current_dir(xtask::root())
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", "target/loom")
        .args(["test", "--quiet", "--package", "ironstone"])
        .args(["--test", "models"])
        .args(profile());
    cargo
        .args(["--", "--nocapture", "--test-threads=1"])
        .args(&arguments.only);
    if let Some(preemptions) = arguments.preemptions {
        cargo.env("LOOM_MAX_PREEMPTIONS", preemptions.to_string());
    }
    let status = cargo.status().map_err(|e| format!("cargo: {e}"))?;
    if status.success() {
        return Ok(());
    }
    Err("a model fails; LOOM_LOG=trace tells what happened in it".to_owned())
}

/// How packages are built: codecs do not work in models.
pub(crate) fn profile() -> Vec<String> {
    // An override for a package of the workspace's manifest must be repeated here.
    let codecs = [
        "bytes",
        "crc-fast",
        "libbz2-rs-sys",
        "lz4-sys",
        "raft",
        "snap",
        "twox-hash",
        "zlib-rs",
        "zstd-sys",
    ];
    let codecs = codecs.map(|package| (package, 0));
    let levels = [("'*'", 0), ("loom", 3), ("generator", 3)];
    let levels = codecs.into_iter().chain(levels).map(|(package, level)| {
        let level = format!("profile.dev.package.{package}.opt-level={level}");
        ["--config".to_owned(), level]
    });
    levels.flatten().collect()
}
