//! Damaged WALs, case by case and mode by mode, compared with the results of real RocksDB for the
//! same bytes. `tests/data/make_recovery_cases.py` made the record and describes it.

use std::sync::Arc;

use base::checksum::crc32c;
use base::options::OptionValue;
use io::{File, WriteSync};
use log::{LogOptions, RecoveryMode, Writer};
use serde_json::Value;

use crate::helpers::{Files, content, recyclable, wal};

const CASES: &str = include_str!("../data/recovery_cases.json");

/// Intended differences from a RocksDB: (part of the name, version, reason). If RocksDB hangs, it
/// is enough that Ironstone terminates.
const DIFFERENT: &[(&str, &str, &str)] = &[
    (
        "record type ",
        "7.8.3",
        "has no types that may be skipped, and gives unknown ones the longer header",
    ),
    ("timestamp sizes", "7.8.3", "does not know them"),
    ("predecessor", "7.8.3", "does not know it"),
    (
        "another log's cut record behind",
        "7.8.3",
        "looks at the log number before the length; 11.8.1 does it the other way round",
    ),
    (
        "flip in type of a fragment at a block's start",
        "7.8.3",
        "takes a legacy record with a damaged type for the end of a recycled log",
    ),
    (
        "compression behind the first record",
        "7.8.3",
        "salvage gives up there; we keep the records behind it",
    ),
    (
        "compression behind the first record",
        "11.8.1",
        "salvage gives up there; we keep the records behind it",
    ),
];

fn pattern(n: u64) -> Vec<u8> {
    (0..n).map(|i| (7 * i + 3) as u8).collect()
}

/// The batch that puts record `index`, as the script makes it.
fn batch(index: u64, size: u64) -> Vec<u8> {
    let mut b = (index + 1).to_le_bytes().to_vec();
    b.extend([1, 0, 0, 0, 1]);
    base::coding::put_slice(&mut b, format!("k{index:05}").as_bytes());
    base::coding::put_slice(&mut b, &pattern(size));
    b
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

fn append(file: &Arc<dyn File>, bytes: &[u8]) {
    let at = file.len().unwrap();
    io::write_all_at(&**file, bytes, at, WriteSync::None).unwrap();
}

/// One physical record, framed by hand, because the writer makes only valid records.
fn physical(kind: u8, log_number: Option<u64>, payload: &[u8]) -> Vec<u8> {
    let mut covered = vec![kind];
    if let Some(n) = log_number {
        covered.extend((n as u32).to_le_bytes());
    }
    covered.extend(payload);
    let mut out = base::checksum::mask(crc32c(&covered))
        .to_le_bytes()
        .to_vec();
    out.extend((payload.len() as u16).to_le_bytes());
    out.extend(covered);
    out
}

fn step(file: &Arc<dyn File>, step: &[Value]) {
    let n = |i: usize| step[i].as_u64();
    match step[0].as_str().unwrap() {
        "records" => {
            let options = n(1).map_or_else(LogOptions::default, recyclable);
            let at = file.len().unwrap();
            let mut writer = Writer::resume(Arc::clone(file), at, options).unwrap();
            for (i, size) in step[3].as_array().unwrap().iter().enumerate() {
                let record = batch(n(2).unwrap() + i as u64, size.as_u64().unwrap());
                writer.append(&record).unwrap();
            }
            writer.submit().unwrap();
        }
        "physical" => {
            let payload = hex(step[3].as_str().unwrap());
            append(file, &physical(n(1).unwrap() as u8, n(2), &payload));
        }
        "bytes" => append(file, &hex(step[1].as_str().unwrap())),
        "fill" => append(file, &vec![n(1).unwrap() as u8; n(2).unwrap() as usize]),
        "zeros" => append(file, &vec![0; n(1).unwrap() as usize]),
        "truncate" => file.truncate(n(1).unwrap()).unwrap(),
        "zero" => {
            let (from, to) = (n(1).unwrap(), n(2).unwrap());
            let zeros = vec![0; (to - from) as usize];
            io::write_all_at(&**file, &zeros, from, WriteSync::None).unwrap();
        }
        "flip" => {
            let mut byte = [0];
            let at = n(1).unwrap();
            io::read_exact_at(&**file, &mut byte, at).unwrap();
            byte[0] ^= 1 << n(2).unwrap();
            io::write_all_at(&**file, &byte, at, WriteSync::None).unwrap();
        }
        other => panic!("unknown step {other}"),
    }
}

/// The result of Ironstone's recovery, in the form of the record.
fn recover(file: &Arc<dyn File>, log_number: u64, mode: RecoveryMode) -> String {
    let mut reader = wal(file, log_number, mode);
    let (mut found, mut record) = (Vec::new(), Vec::new());
    let result = loop {
        match reader.read(&mut record) {
            Err(e) => break Err(e),
            Ok(false) => break Ok(()),
            // As the engine does with what cannot be a batch.
            Ok(true) if record.len() < 12 => {
                if let Err(e) = reader.reject("log record too small") {
                    break Err(e);
                }
            }
            Ok(true) => {
                let key = std::str::from_utf8(&record[15..20]).unwrap();
                found.push(key.parse::<u64>().unwrap());
            }
        }
    };
    if let Err(e) = result {
        assert!(e.is_corruption(), "{e}");
        assert!(e.path().is_some() && e.at().is_some(), "{e}");
        format!("fails: {e}")
    } else {
        found.sort_unstable();
        found.dedup();
        ranges(&found)
    }
}

fn ranges(numbers: &[u64]) -> String {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for &n in numbers {
        match parts.last_mut() {
            Some(last) if last.1 + 1 == n => last.1 = n,
            _ => parts.push((n, n)),
        }
    }
    if parts.is_empty() {
        return "none".to_owned();
    }
    let text: Vec<String> = parts
        .iter()
        .map(|&(a, b)| {
            if a == b {
                a.to_string()
            } else {
                format!("{a}-{b}")
            }
        })
        .collect();
    text.join(",")
}

fn agree(ours: &str, theirs: &str) -> bool {
    ours == theirs || (ours.starts_with("fails") && theirs.starts_with("fails"))
}

#[test]
fn recovery_equals_real_rocksdb() {
    let files = Files::new();
    let record: Value = serde_json::from_str(CASES).unwrap();
    let log_number = record["log_number"].as_u64().unwrap();
    let modes: Vec<RecoveryMode> = record["modes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| RecoveryMode::parse(m.as_str().unwrap()).unwrap())
        .collect();
    let mut compared = 0;
    let mut used = std::collections::BTreeSet::new();
    let mut wrong = Vec::new();
    for case in record["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let file = files.create("wal");
        for s in case["steps"].as_array().unwrap() {
            step(&file, s.as_array().unwrap());
        }
        let sum = u64::from(crc32c(&content(&file)));
        assert_eq!(sum, case["crc32c"].as_u64().unwrap(), "{name}: other bytes");
        for (version, results) in case["results"].as_object().unwrap() {
            for (mode, theirs) in modes.iter().zip(results.as_array().unwrap()) {
                let mode = *mode;
                let (ours, theirs) = (recover(&file, log_number, mode), theirs.as_str().unwrap());
                compared += 1;
                if agree(&ours, theirs) || theirs == "hangs" {
                    continue;
                }
                let expected = DIFFERENT
                    .iter()
                    .position(|(part, v, _)| name.contains(part) && v == version);
                if let Some(i) = expected {
                    used.insert(i);
                } else {
                    wrong.push(format!(
                        "{name}, {version}, {mode:?}: {theirs}, ours: {ours}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(
        used.len(),
        DIFFERENT.len(),
        "a difference is gone: {used:?}"
    );
    assert!(compared > 1000, "{compared}");
}
