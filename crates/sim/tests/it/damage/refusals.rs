//! Opens that must be refused although no file is damaged.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use base::options::{OptionTable, OptionValue};
use ironstone::{
    ColumnFamilyDescriptor, ColumnFamilyOptions, Comparator, CompressionType, Db, ErrorKind,
    Options,
};
use sim::dirs::State;
use sim::hooked::{Hook, HookedFs, Op, Verdict};
use sim::oracle::content::{difference, everything};
use table::ChecksumType;

use super::{Small, creating, names};

fn small() -> Small {
    Small::new(ChecksumType::Xxh3, CompressionType::None)
}

fn unchanged(small: &Small) {
    let now = State::of(&small.dir()).unwrap();
    assert_eq!(small.state.changes(&now), None);
}

fn reverse() -> ColumnFamilyOptions {
    ColumnFamilyOptions {
        comparator: Comparator::reverse_bytewise(),
        ..ColumnFamilyOptions::default()
    }
}

fn descriptor(name: &str, options: ColumnFamilyOptions) -> ColumnFamilyDescriptor {
    ColumnFamilyDescriptor::new(name, options)
}

#[test]
fn a_comparator_that_does_not_match_is_refused() {
    let small = small();
    let plain = ColumnFamilyOptions::default();
    let cases = [
        (reverse(), reverse(), "default"),
        (plain.clone(), plain.clone(), "reverse"),
    ];
    for (default, second, wrong) in cases {
        let families = [
            descriptor("default", default),
            descriptor("reverse", second),
        ];
        let e = Db::open_cf(small.dir(), &small.options, &families).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
        for word in [
            "MANIFEST-",
            wrong,
            "leveldb.BytewiseComparator",
            "rocksdb.ReverseBytewiseComparator",
        ] {
            assert!(names(&e, word), "{word}: {e}");
        }
        unchanged(&small);
    }
}

#[test]
fn unknown_and_missing_families_are_named() {
    let small = small();
    let default = || descriptor("default", ColumnFamilyOptions::default());
    let known = || descriptor("reverse", reverse());
    let unknown = || descriptor("unknown", ColumnFamilyOptions::default());
    let cases: [(&[ColumnFamilyDescriptor], &str); 5] = [
        (&[default()], "reverse"),
        (&[default(), known(), unknown()], "unknown"),
        (&[known()], "default"),
        (&[], "default"),
        (&[default(), known(), known()], "reverse"),
    ];
    for (families, name) in cases {
        let e = Db::open_cf(small.dir(), &small.options, families).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
        assert!(names(&e, name), "{name}: {e}");
        unchanged(&small);
    }
    let e = Db::open(small.dir(), &small.options).unwrap_err();
    assert!(names(&e, "reverse"), "{e}");
    let mut options = small.options.clone();
    options.db.error_if_exists = true;
    let e = Db::open_all(small.dir(), &options).unwrap_err();
    assert!(names(&e, "error_if_exists"), "{e}");
    unchanged(&small);

    let mut options = small.options.clone();
    options.db.create_missing_column_families = true;
    let db = Db::open_cf(small.dir(), &options, &[default(), known(), unknown()]).unwrap();
    assert!(db.column_family("unknown").is_some());
    assert!(db.column_family("another").is_none());
    let cf = db.column_family("unknown").unwrap();
    db.cf(&cf).put("k", "v").unwrap();
    db.drop_column_family(&cf).unwrap();
    let e = db.cf(&cf).put("k", "v").unwrap_err();
    assert!(names(&e, "dropped"), "{e}");
    let e = db.create_column_family("reverse", &reverse()).unwrap_err();
    assert!(names(&e, "reverse"), "{e}");
}

/// The numbers just outside of the bounds, as text.
fn outside(kind: &str, lo: &str, hi: &str) -> Vec<String> {
    if kind == "f64" {
        let (lo, hi): (f64, f64) = (lo.parse().unwrap(), hi.parse().unwrap());
        return vec![(lo - 1.0).to_string(), (hi + 1.0).to_string()];
    }
    let (lo, hi): (i128, i128) = (lo.parse().unwrap(), hi.parse().unwrap());
    vec![(lo - 1).to_string(), (hi + 1).to_string()]
}

/// Tries both sides of the range of every option in a table of options; `place` puts it into the options.
fn out_of_range<T: OptionTable>(small: &Small, place: impl Fn(&mut Options, T)) -> usize {
    let mut tried = 0;
    for info in T::infos() {
        let Some(range) = info.range else { continue };
        let (lo, hi) = range();
        for text in outside(&(info.kind)(), &lo, &hi) {
            let mut table = T::default();
            if table.set(info.name, &text).is_err() {
                continue; // not even a value of the type
            }
            if table.validate().is_ok() {
                continue; // the number below 0 wraps around to the largest one
            }
            if !info.is_strict() {
                let told = table.sanitize();
                assert_eq!(told.len(), 1, "{told:?}");
                assert!(told[0].contains(info.name), "{told:?}");
                table.validate().unwrap();
                continue;
            }
            let mut options = small.options.clone();
            place(&mut options, table);
            for result in [
                Db::open_all(small.dir(), &options),
                Db::open_read_only(small.dir(), &options),
            ] {
                let e = result.expect_err(info.name);
                assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
                assert!(names(&e, info.name), "{e}");
                assert!(names(&e, &lo) || names(&e, "allowed"), "{e}");
            }
            tried += 1;
        }
    }
    unchanged(small);
    tried
}

#[test]
fn every_option_outside_of_its_range_is_refused_or_replaced() {
    let small = small();
    let tried = out_of_range(&small, |o, t| o.db = t)
        + out_of_range(&small, |o, t| o.cf.cf = t)
        + out_of_range(&small, |o, t| o.cf.table = t);
    eprintln!("options: {tried} values out of range refused");
    assert!(tried > 10, "the tables have ranges");
    assert_eq!(bool::kind(), "bool");
}

#[test]
fn a_second_opener_in_the_process_is_told_the_holder() {
    let small = small();
    let db = Db::open_all(small.dir(), &small.options).unwrap();
    let e = Db::open_all(small.dir(), &small.options).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Busy);
    assert!(names(&e, &format!("pid {}", std::process::id())), "{e}");
    assert!(names(&e, "LOCK"), "{e}");
    // The refused opener has not taken the lock away, and the first one still works.
    let e = Db::open_all(small.dir(), &small.options).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Busy);
    db.put("still", "works").unwrap();
    let reader = Db::open_read_only(small.dir(), &small.options).unwrap();
    assert_eq!(reader.get("still").unwrap().unwrap(), b"works");
    drop(reader);
    let e = Db::open_all(small.dir(), &small.options).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Busy, "a reader's close keeps the lock");
    db.close().unwrap();
    drop(Db::open_all(small.dir(), &small.options).unwrap());
}

const HOLD: &str = "IRONSTONE_TEST_HOLD";

/// Not a test of its own: holds a database open for the test below.
#[test]
fn child_that_holds_a_database() {
    let Some(dir) = std::env::var_os(HOLD) else {
        return;
    };
    let db = Db::open_all(Path::new(&dir), &Options::default());
    eprintln!("opened: {:?}", db.as_ref().map(|_| ()));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

/// Starts this binary again to run one test; it inherits nothing but `variable`.
pub(crate) fn start_child(test: &str, variable: &str, value: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(variable, value)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_second_opener_in_another_process_is_told_the_holder() {
    let small = small();
    let test = "damage::refusals::child_that_holds_a_database";
    let mut child = start_child(test, HOLD, &small.dir());
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let opened = lines.find(|l| l.as_ref().unwrap().starts_with("opened: "));
    assert_eq!(opened.unwrap().unwrap(), "opened: Ok(())");
    let before = State::of(&small.dir()).unwrap();
    let e = Db::open_all(small.dir(), &small.options).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Busy);
    assert!(names(&e, &format!("pid {}", child.id())), "{e}");
    let now = State::of(&small.dir()).unwrap();
    assert_eq!(before.changes(&now), None);
    child.kill().unwrap();
    child.wait().unwrap();
    // The kernel has released the lock; the database that the child left is whole.
    let db = Db::open_all(small.dir(), &small.options).unwrap();
    assert_eq!(difference(&small.content, &everything(&db).unwrap()), None);

    // And the other way round.
    let mut child = start_child(test, HOLD, &small.dir());
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let refused = lines.find(|l| l.as_ref().unwrap().starts_with("opened: "));
    let text = refused.unwrap().unwrap();
    assert!(
        text.contains("Busy") && text.contains(&format!("pid {}", std::process::id())),
        "{text}"
    );
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// Answers as a directory without write permission does, for root too.
#[derive(Debug)]
struct ReadOnly;

impl Hook for ReadOnly {
    fn before(&self, op: Op, _: &Path) -> Verdict {
        const EACCES: i32 = 13;
        if op.changes() {
            Verdict::Fail(EACCES)
        } else {
            Verdict::Go
        }
    }
}

#[test]
fn a_directory_that_cannot_be_written_to_opens_for_reading_only() {
    let small = small();
    small.state.restore(&small.dir()).unwrap();
    let mut options = small.options.clone();
    options.env.fs = HookedFs::new(Arc::new(ReadOnly));
    let e = Db::open_all(small.dir(), &options).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::IoError);
    assert!(names(&e, "LOCK"), "{e}");
    let db = Db::open_read_only(small.dir(), &options).unwrap();
    assert_eq!(difference(&small.content, &everything(&db).unwrap()), None);
    unchanged(&small);
    let mut options = creating();
    options.env.fs = HookedFs::new(Arc::new(ReadOnly));
    let new = small.temp.path().join("new");
    let e = Db::open(&new, &options).unwrap_err();
    assert!(names(&e, "new"), "{e}");
    assert!(!new.exists());
}
