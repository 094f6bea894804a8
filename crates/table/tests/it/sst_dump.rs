//! What the builder wrote, RocksDB's own `sst_dump` accepts.

use std::path::Path;
use std::process::Command;

use base::options::OptionValue;
use base::{SequenceNumber, ValueType, key};
use io::{FileSystem, OpenHow, posix::Posix};
use table::checksum::ChecksumType;
use table::compress::CompressionType;
use table::filter::FilterPolicy;
use table::{Builder, BuilderOptions, TableOptions};

use crate::util::ikey;

fn sst_dump(command: &str, file: &Path) -> Option<(bool, String)> {
    let out = Command::new("sst_dump")
        .arg(format!("--file={}", file.display()))
        .arg(format!("--command={command}"))
        .arg("--show_properties")
        .output();
    let out = match out {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: sst_dump is not installed");
            return None;
        }
        out => out.unwrap(),
    };
    let text =
        String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    Some((out.status.success(), text))
}

fn write(file: &Path, options: BuilderOptions) -> table::Finished {
    let file = Posix.open(file, OpenHow::CREATE_TRUNCATE).unwrap();
    let mut b = Builder::new(file, options).unwrap();
    for i in 0..2000u64 {
        let user = format!("key{i:06}");
        b.add(
            &ikey(user.as_bytes(), i + 10),
            format!("value {i} {}", "x".repeat(50)).as_bytes(),
        )
        .unwrap();
        if i % 100 == 0 {
            let old = key::encode(user.as_bytes(), SequenceNumber(3), ValueType::Deletion);
            b.add(&old, b"").unwrap();
        }
    }
    let start = key::encode(b"key000500", SequenceNumber(5), ValueType::RangeDeletion);
    b.add_range_tombstone(&start, b"key000600").unwrap();
    b.finish().unwrap()
}

#[test]
fn sst_dump_verifies_every_compression_checksum_and_filter() {
    let dir = tempfile::tempdir().unwrap();
    let mut combinations = 0;
    for &compression in CompressionType::ALL {
        for &checksum in ChecksumType::ALL {
            for bits in [0.0, 10.0] {
                for format_version in [2, 5] {
                    let options = BuilderOptions {
                        table: TableOptions {
                            checksum,
                            format_version,
                            filter_policy: FilterPolicy::Bloom { bits_per_key: bits },
                            ..TableOptions::default()
                        },
                        compression,
                        db_id: "f6047002-e844-458d-98ff-af9e0766b771".to_owned(),
                        db_session_id: "GXC3PQQYFRHBHV9UG0Z2".to_owned(),
                        file_number: 9,
                        column_family_name: "default".to_owned(),
                        column_family_id: 0,
                        ..BuilderOptions::default()
                    };
                    let file = dir.path().join("000009.sst");
                    let done = write(&file, options);
                    let what = format!("{} {}", compression.print(), checksum.print());
                    let Some((ok, text)) = sst_dump("verify", &file) else {
                        return;
                    };
                    assert!(ok && text.contains("The file is ok"), "{what}: {text}");
                    let entries = done.properties.num_entries;
                    let (ok, text) = sst_dump("check", &file).unwrap();
                    assert!(ok && !text.contains("orruption"), "{what}: {text}");
                    assert!(
                        text.contains(&format!("# entries: {entries}\n")),
                        "{what}: {text}"
                    );
                    let (_, text) = sst_dump("scan", &file).unwrap();
                    let rows = text.lines().filter(|l| l.contains("' seq:")).count();
                    assert_eq!(rows as u64, entries - 1, "{what}");
                    combinations += 1;
                }
            }
        }
    }
    eprintln!("{combinations} tables verified by sst_dump");
}
