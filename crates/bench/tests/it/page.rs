//! The page of `bench` in a real browser; skipped without Chromium.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The report of a small real suite.
const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/sample-report.json");

fn bench(arguments: &[&str], paths: &[&Path]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(arguments)
        .args(paths)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An empty directory for one test.
fn dir(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/bench-page-test")
        .join(name);
    fs::remove_dir_all(&dir).ok();
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// Checks a page; `None` without a browser.
fn look(page: &Path, out: &Path) -> Option<Output> {
    let output = bench(&["bench", "check-page"], &[page, Path::new("--out"), out]);
    if text(&output.stdout).contains("skipped") {
        println!("{}", text(&output.stdout));
        return None;
    }
    Some(output)
}

#[test]
fn the_page_shows_without_errors_or_overflow() {
    let _alone = crate::alone();
    let dir = dir("good");
    let made = bench(&["bench", "page", SAMPLE], &[Path::new("--out"), &dir]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let Some(seen) = look(&dir.join("report.html"), &dir) else {
        return;
    };
    assert!(seen.status.success(), "{}", text(&seen.stderr));
    for name in ["light.png", "dark.png", "phone.png"] {
        let picture = fs::read(dir.join(name)).unwrap();
        assert!(picture.starts_with(b"\x89PNG"), "{name}");
    }
    let pictures = ["light.png", "dark.png"].map(|name| fs::read(dir.join(name)).unwrap());
    assert_ne!(
        pictures[0], pictures[1],
        "dark is another picture than light"
    );
}

#[test]
fn the_page_of_cliffs_shows_without_errors_or_overflow() {
    let _alone = crate::alone();
    let dir = dir("cliffs");
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/sample-cliffs.tsv");
    let out = [Path::new("--out"), &dir];
    let made = bench(&["bench", "cliffs", "--from", sample], &out);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let (stored, again) = (fs::read(sample), fs::read(dir.join("cliffs.tsv")));
    assert_eq!(stored.unwrap(), again.unwrap());
    let judged = bench(&["bench", "cliffs", "--judge", "--from", sample], &out);
    assert!(text(&judged.stderr).contains("filters-10000000-readrandom: space 1.14"));
    assert!(!judged.status.success());
    if let Some(seen) = look(&dir.join("cliffs.html"), &dir) {
        assert!(seen.status.success(), "{}", text(&seen.stderr));
    }
}

#[test]
fn what_is_wrong_with_a_page_is_seen() {
    let _alone = crate::alone();
    let dir = dir("bad");
    let page = dir.join("bad.html");
    let bad = "<html><body><main><div style='width:2000px'>wide</div></main>\
        <script>console.error('broken'); fetch('nowhere.json').catch(() => {});</script>\
        <script>throw new Error('thrown')</script></body></html>";
    fs::write(&page, bad).unwrap();
    let Some(seen) = look(&page, &dir) else {
        return;
    };
    let told = text(&seen.stderr);
    assert!(!seen.status.success());
    for wrong in [
        "wider than its window",
        "broken",
        "thrown",
        "no title",
        "no language",
    ] {
        assert!(told.contains(wrong), "{wrong} in {told}");
    }
    for view in ["light view", "dark view", "phone view"] {
        assert!(told.contains(view), "{view} in {told}");
    }
}

#[test]
fn stored_reports_are_compared() {
    let dir = dir("compare");
    let same = bench(&["bench", "compare", SAMPLE, SAMPLE], &[]);
    assert!(same.status.success(), "{}", text(&same.stderr));
    assert!(text(&same.stdout).contains("within noise"));
    // Each of Ironstone's runs of readseq becomes ten times slower.
    let mut report: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(SAMPLE).unwrap()).unwrap();
    for benchmark in report["benchmarks"].as_array_mut().unwrap() {
        if benchmark["name"] != "readseq" {
            continue;
        }
        for pair in benchmark["pairs"].as_array_mut().unwrap() {
            let micros = &mut pair["ironstone"]["micros_per_op"];
            *micros = (micros.as_f64().unwrap() * 10.0).into();
        }
    }
    let slower = dir.join("slower.json");
    fs::write(&slower, report.to_string()).unwrap();
    let compared = bench(&["bench", "compare", SAMPLE], &[&slower]);
    assert_eq!(compared.status.code(), Some(1));
    assert!(text(&compared.stdout).contains("SLOWER"));
    assert!(text(&compared.stderr).contains("readseq has become slower"));
    report["settings"]["num"] = 5.into();
    fs::write(&slower, report.to_string()).unwrap();
    let refused = bench(&["bench", "compare", SAMPLE], &[&slower]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("not measured alike"));
    fs::write(&slower, "{\"schema\":99}").unwrap();
    let refused = bench(&["bench", "compare", SAMPLE], &[&slower]);
    assert!(text(&refused.stderr).contains("schema 99"));
}
