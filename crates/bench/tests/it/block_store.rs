//! A short form of `bench-block` with qemu-nbd alone; skipped without fio or qemu-nbd.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// An empty directory for one test.
fn dir(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/bench-block-test")
        .join(name);
    fs::remove_dir_all(&dir).ok();
    fs::create_dir_all(&dir).unwrap();
    fs::canonicalize(dir).unwrap()
}

fn command(dir: &Path, seconds: u32, targets: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench"));
    command
        .args(["bench-block", "seed", "--pairs=1", "--size=64M"])
        .arg(format!("--seconds={seconds}"))
        .arg(format!("--targets={targets}"))
        .arg("--program=/bin/false")
        .arg(format!("--dir={}", dir.display()))
        .arg(format!("--out={}", dir.join("out").display()));
    command
}

/// Files left in the folder of the run, and processes left over from it.
fn left_over(dir: &Path) -> Vec<String> {
    let mut left: Vec<String> = fs::read_dir(dir.join("bench-block"))
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name != "lock")
        .collect();
    left.extend(processes(dir));
    left
}

/// Processes with the folder in their arguments.
fn processes(dir: &Path) -> Vec<String> {
    let dir = dir.display().to_string();
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.starts_with("qemu-nbd") && line.contains(&dir))
        .collect()
}

#[test]
fn a_short_run_measures_and_leaves_nothing() {
    let _alone = crate::alone();
    let dir = dir("short");
    let output = command(&dir, 1, "single,null,odsync").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    if output.status.code() == Some(2) {
        println!("skipped: {stderr}");
        return;
    }
    // A program that is not ironstone-block is an error, and the existing report is kept.
    assert_eq!(output.status.code(), Some(1), "{stdout}\n{stderr}");
    assert!(stderr.contains("odsync: false ended"), "{stderr}");
    assert_eq!(left_over(&dir), Vec::<String>::new());

    let output = command(&dir, 1, "single,null").output().unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert!(
        stdout.contains("| own disk | 4k randwrite QD1 | single copy |"),
        "{stdout}"
    );
    let tsv = fs::read_to_string(dir.join("out/report.tsv")).unwrap();
    assert_eq!(tsv.lines().count(), 1 + 3 * 2 + 1 + 2, "{tsv}");
    assert_eq!(left_over(&dir), Vec::<String>::new());

    let page = dir.join("out/report.html");
    let seen = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["bench", "check-page"])
        .arg(&page)
        .arg(format!("--out={}", dir.display()))
        .output()
        .unwrap();
    let (stdout, stderr) = (text(&seen.stdout), text(&seen.stderr));
    assert!(seen.status.success(), "{stdout}\n{stderr}");
    println!("{stdout}");
    let again = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["bench-block", "page"])
        .arg(dir.join("out/report.json"))
        .arg(format!("--out={}", dir.join("again").display()))
        .output()
        .unwrap();
    assert!(again.status.success(), "{}", text(&again.stderr));
    let pages = ["out", "again"].map(|d| fs::read(dir.join(d).join("report.html")).unwrap());
    assert_eq!(pages[0], pages[1], "the page of a stored report");
}

#[test]
fn a_killed_run_leaves_no_process() {
    let _alone = crate::alone();
    let dir = dir("killed");
    let mut run = command(&dir, 60, "single")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let began = within(&mut run, || !processes(&dir).is_empty());
    if !began {
        let output = run.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        println!("skipped: {}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    // qemu-nbd has only just started.
    run.kill().unwrap();
    run.wait().unwrap();
    assert!((0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        processes(&dir).is_empty()
    }));
}

/// Whether a condition becomes true while a process runs.
fn within(run: &mut Child, there: impl Fn() -> bool) -> bool {
    loop {
        if there() {
            return true;
        }
        if run.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
