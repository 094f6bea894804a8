//! A short form of `soak drill`: a few kills of processes under load, and a cut of each kind if
//! namespaces are possible.

use std::path::Path;
use std::process::Command;

#[test]
fn killed_processes_lose_nothing_and_gaps_are_short() {
    let _alone = crate::alone();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/drill-test");
    let program = crate::program("ironstone-block-cli", "ironstone-block");
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["soak", "drill", "--kills=2", "--partitions=3", "--all=3"])
        // For a debug build on a machine that runs other tests.
        .args(["--gap-ms=15000", "--volume-mib=64"])
        .arg(format!("--program={}", program.display()))
        .arg(format!("--dir={}", dir.display()))
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success(), "{text}");
    let cut_off = match text.lines().find(|l| l.contains("left out")) {
        Some(why) => {
            println!("SKIPPED: {why}");
            0
        }
        None => 1,
    };
    assert_eq!(text.matches("linearizable").count(), 2 + cut_off, "{text}");
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "{text}");
}
