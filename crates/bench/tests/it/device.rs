//! The quick check of `bench-device` on real loop devices; skipped if there can be none.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The figures of a line `ext4 write-back ironstone: writes/put 1.00 flushes/put 1.00 …`. For a
/// range of writes, the upper end.
fn figures(output: &str, start: &str) -> (f64, f64) {
    let line = output.lines().find(|line| line.starts_with(start));
    let line = line.unwrap_or_else(|| panic!("no line '{start}' in:\n{output}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    let of = |name: &str| {
        let at = words.iter().position(|word| *word == name).unwrap();
        let most = words[at + 1].rsplit("..").next().unwrap();
        most.parse().unwrap()
    };
    (of("writes/put"), of("flushes/put"))
}

/// Loop devices whose backing file is that of the check.
fn left_over() -> Vec<String> {
    let mut left = Vec::new();
    for entry in fs::read_dir("/sys/block").unwrap().flatten() {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file"));
        left.extend(backing.into_iter().filter(|b| b.contains("/bench-device/")));
    }
    left
}

#[test]
fn operations_of_a_put_are_counted_and_nothing_is_left() {
    let _alone = crate::alone();
    let output = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args([
            "bench-device",
            "--count-only",
            "--image-mib=384",
            "--driver",
        ])
        .arg(crate::program("ironstone-tools", "db_bench"))
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(2) {
        println!("skipped: {stderr}");
        return;
    }
    assert!(output.status.success(), "{stdout}\n{stderr}");

    // The floor validates the method: one write, and one flush if the cache is volatile.
    let near = |figure: f64, wanted: f64| (figure - wanted).abs() < 0.05;
    let (_, flushes) = figures(&stdout, "ext4 write-back raw:");
    assert!(near(flushes, 1.0), "{stdout}");
    let (writes, flushes) = figures(&stdout, "ext4 write-through raw:");
    assert!(near(writes, 1.0) && near(flushes, 0.0), "{stdout}");

    // No put is durable without a write, nor without a flush on a volatile cache.
    let (_, flushes) = figures(&stdout, "ext4 write-back ironstone:");
    // And none costs more: the excess over 1 is caused by files that are made in advance, which so
    // few puts do not outweigh. Over 100,000 puts it is at most 1.01 (docs/benchmarks.md).
    assert!(flushes > 0.95 && flushes < 1.1, "{stdout}");
    let (writes, flushes) = figures(&stdout, "ext4 write-through ironstone:");
    assert!(writes > 0.95 && writes < 1.15, "{stdout}");
    assert!(flushes < 0.05, "{stdout}");

    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench-device");
    assert!(!dir.join("ext4.img").exists());
    assert_eq!(left_over(), Vec::<String>::new());
}
