//! `metrics_text` is in the format that Prometheus reads.

#![expect(clippy::float_cmp, reason = "whole numbers are exact")]

use std::collections::{BTreeMap, BTreeSet};

use ironstone::{ColumnFamilyOptions, Db, Options, Statistics};

/// A metric that was declared.
struct Declared {
    kind: String,
    has_samples: bool,
}

/// Checks the exposition format: HELP and TYPE come once, before the samples of their metric; samples are
/// unique, and their values are numbers. Returns the samples.
fn check(text: &str) -> Result<BTreeMap<String, f64>, String> {
    let mut declared: BTreeMap<String, Declared> = BTreeMap::new();
    let mut helped = BTreeSet::new();
    let mut samples = BTreeMap::new();
    for line in text.lines() {
        let fail = |what: &str| Err(format!("{what}: {line}"));
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').ok_or(format!("no help: {line}"))?;
            if help.is_empty() || !helped.insert(name.to_owned()) {
                return fail("helped twice");
            }
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or(format!("no type: {line}"))?;
            if !["counter", "gauge", "summary"].contains(&kind) {
                return fail("an unknown type");
            }
            let new = Declared {
                kind: kind.to_owned(),
                has_samples: false,
            };
            if !helped.contains(name) || declared.insert(name.to_owned(), new).is_some() {
                return fail("not helped, or declared twice");
            }
        } else {
            let (series, value) = line.rsplit_once(' ').ok_or(format!("no value: {line}"))?;
            let value: f64 = value.parse().map_err(|_| format!("no number: {line}"))?;
            let name = series.split('{').next().unwrap_or_default();
            check_name(name).map_err(|e| format!("{e}: {line}"))?;
            check_labels(&series[name.len()..]).map_err(|e| format!("{e}: {line}"))?;
            let of_summary = |end: &str| {
                let base = name.strip_suffix(end)?;
                declared
                    .get(base)
                    .is_some_and(|d| d.kind == "summary")
                    .then_some(base)
            };
            let base = of_summary("_sum").or(of_summary("_count")).unwrap_or(name);
            if samples.insert(series.to_owned(), value).is_some() {
                return fail("twice");
            }
            let base = base.to_owned();
            match declared.get_mut(&base) {
                Some(metric) => metric.has_samples = true,
                None => return fail("not declared"),
            }
        }
    }
    match declared.iter().find(|(_, d)| !d.has_samples) {
        Some((name, _)) => Err(format!("{name} has no samples")),
        None => Ok(samples),
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let first = name.chars().next().ok_or("no name")?;
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if first.is_ascii_digit() || !name.chars().all(good) {
        return Err(format!("the name {name:?}"));
    }
    Ok(())
}

fn check_labels(labels: &str) -> Result<(), String> {
    if labels.is_empty() {
        return Ok(());
    }
    let inner = labels.strip_prefix('{').and_then(|l| l.strip_suffix('}'));
    let mut rest = inner.ok_or("labels without braces")?;
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").ok_or("a label without value")?;
        check_name(name.trim_start_matches(','))?;
        let mut escaped = false;
        let end = after.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        rest = &after[end.ok_or("a label without end")? + 1..];
    }
    Ok(())
}

#[test]
fn the_checker_finds_what_is_wrong() {
    let good = "# HELP a Help.\n# TYPE a gauge\na{x=\"1\\\"2\"} 3\na 4\n";
    assert_eq!(check(good).unwrap()["a"], 4.0);
    for bad in [
        "a 1\n",
        "# TYPE a gauge\na 1\n",
        "# HELP a Help.\n# TYPE a gauge\n",
        "# HELP a Help.\n# TYPE a gauge\na 1\na 1\n",
        "# HELP a Help.\n# TYPE a gauge\na{x=1} 1\n",
        "# HELP a Help.\n# TYPE a gauge\na x\n",
        "# HELP a Help.\n# TYPE a gauge\n# TYPE a gauge\na 1\n",
        "# HELP a Help.\n# TYPE a thing\na 1\n",
    ] {
        assert!(check(bad).is_err(), "{bad}");
    }
}

#[test]
fn metrics_are_what_prometheus_takes() {
    let dir = sim::dirs::scratch().unwrap();
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.env.statistics = Some(std::sync::Arc::new(Statistics::new()));
    let db = Db::open(dir.path(), &options).unwrap();
    let odd = "odd \"name\" \\";
    let second = db
        .create_column_family(odd, &ColumnFamilyOptions::default())
        .unwrap();
    for i in 0..10 {
        db.put(format!("{i}"), "v").unwrap();
        db.cf(&second).put(format!("{i}"), "v").unwrap();
    }
    db.flush().unwrap();
    let samples = check(&db.metrics_text()).unwrap();
    assert_eq!(samples["rocksdb_estimate_num_keys{cf=\"default\"}"], 10.0);
    assert_eq!(
        samples["rocksdb_estimate_num_keys{cf=\"odd \\\"name\\\" \\\\\"}"],
        10.0
    );
    let files = "rocksdb_num_files_at_level{cf=\"default\",level=\"0\"}";
    assert_eq!(samples[files], 1.0);
    assert_eq!(samples["rocksdb_num_snapshots"], 0.0);
    assert_eq!(samples["rocksdb_db_user_keys_written"], 20.0);
    assert_eq!(samples["rocksdb_number_keys_written"], 20.0);
    assert_eq!(samples["rocksdb_db_flush_micros_count"], 2.0);
    let work = "rocksdb_compactions_to_level{cf=\"default\",level=\"0\"}";
    assert_eq!(samples[work], 1.0);
}

#[test]
fn without_statistics_the_rest_is_there() {
    let dir = sim::dirs::scratch().unwrap();
    let mut options = Options::default();
    options.db.create_if_missing = true;
    let db = Db::open(dir.path(), &options).unwrap();
    db.put("a", "1").unwrap();
    let samples = check(&db.metrics_text()).unwrap();
    assert_eq!(samples["rocksdb_db_user_writes_by_self"], 1.0);
    assert!(!samples.contains_key("rocksdb_number_keys_written"));
}
