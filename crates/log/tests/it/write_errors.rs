//! Writes and syncs that fail: the first failure ends the log, short writes do not.

use std::sync::Arc;

use io::posix::Posix;
use io::testing::{ALL, Faulty, What};
use io::{File, FileSystem, OpenHow};
use log::{LogOptions, Lsn, RecoveryMode, WalSync, Writer};

use crate::helpers::{Files, content, read_all, wal};

/// A file whose write or sync of this number fails; without one, it only counts.
fn faulty(inner: &Arc<dyn File>, fails: Option<(What, u64)>) -> Arc<Faulty> {
    Faulty::new(Arc::clone(inner), move |call| {
        if fails == Some((call.what, call.number)) {
            return Err(call.error());
        }
        Ok(ALL)
    })
}

/// Writes at most this many bytes per call.
pub(crate) fn short(inner: &Arc<dyn File>, bytes_max: usize) -> Arc<dyn File> {
    Faulty::new(Arc::clone(inner), move |_| Ok(bytes_max))
}

/// The number of writes and syncs so far.
fn calls(file: &Faulty) -> (u64, u64) {
    (file.calls(What::Write), file.calls(What::Sync))
}

fn options(sync: WalSync) -> LogOptions {
    LogOptions {
        sync,
        ..LogOptions::default()
    }
}

#[test]
fn a_group_is_one_write_and_a_durable_group_one_call_with_dsync() {
    let files = Files::new();
    let file = faulty(&files.create("log"), None);
    let mut w = Writer::new(file.clone(), options(WalSync::Dsync));
    for _ in 0..100 {
        w.append(&[1; 1000]).unwrap();
    }
    w.sync().unwrap();
    assert_eq!(calls(&file), (1, 0));
    // A write without sync before it: the durable write would not cover that one.
    w.append(b"a").unwrap();
    w.submit().unwrap();
    w.append(b"b").unwrap();
    w.sync().unwrap();
    assert_eq!(calls(&file), (3, 1));
    assert_eq!(w.durable().0, w.size());
    // Nothing to do: no call.
    w.submit().unwrap();
    w.sync().unwrap();
    assert_eq!(calls(&file), (3, 1));

    let file = faulty(&files.create("log"), None);
    let mut w = Writer::new(file.clone(), options(WalSync::Fdatasync));
    w.append(b"a").unwrap();
    w.append(b"b").unwrap();
    w.sync().unwrap();
    assert_eq!(calls(&file), (1, 1));
}

/// Also with `O_DIRECT`: the partial sector is written with the next group, not separately.
#[test]
fn a_direct_group_is_one_durable_write() {
    let files = Files::new();
    let Some(unit) = Posix.probe(files.root()).unwrap().write_unit() else {
        println!("skipped: no direct I/O here");
        return;
    };
    let how = OpenHow::CREATE_NEW.direct();
    let file = Posix.open(&files.path("log"), how).unwrap();
    file.zero(0, 1 << 20).unwrap();
    let file = faulty(&file, None);
    let options = LogOptions {
        direct_unit: Some(unit),
        sync: WalSync::Dsync,
        ..LogOptions::default()
    };
    let mut w = Writer::new(file.clone(), options);
    for i in 1..=50 {
        w.append(&[9; 300]).unwrap();
        w.append(&[9; 20]).unwrap();
        w.sync().unwrap();
        assert_eq!(calls(&file), (i, 0));
        assert_eq!(w.durable().0, w.size());
    }
    assert_eq!(file.len().unwrap(), 1 << 20);
}

/// A read that fails is an error in every mode, salvage included: it is not the end of the log.
#[test]
fn a_failed_read_is_an_error_in_every_mode() {
    let files = Files::new();
    let file = Faulty::new(files.with("log", &[0; 100]), |call| Err(call.error()));
    for mode in RecoveryMode::ALL {
        let file: Arc<dyn File> = file.clone();
        let e = read_all(wal(&file, 0, *mode)).1.unwrap_err();
        assert_eq!(e.kind(), base::ErrorKind::IoError);
    }
    let e = read_all(log::Reader::manifest(file)).1.unwrap_err();
    assert_eq!(e.kind(), base::ErrorKind::IoError);
}

#[test]
fn short_writes_are_continued() {
    for sync in [WalSync::Dsync, WalSync::Fdatasync] {
        let files = Files::new();
        let file = files.create("log");
        let mut w = Writer::new(short(&file, 7), options(sync));
        w.append(&[3; 100]).unwrap();
        w.sync().unwrap();
        assert_eq!(w.durable(), Lsn(107));
        assert_eq!(content(&file).len(), 107);
    }
}

/// The first failure is returned by every later call, and no call reaches the file any more.
#[test]
fn a_failure_is_sticky_and_never_tried_again() {
    for (sync, fails) in [
        (WalSync::Dsync, What::Write),
        (WalSync::Fdatasync, What::Write),
        (WalSync::Fdatasync, What::Sync),
    ] {
        let files = Files::new();
        let inner = files.create("log");
        let file = faulty(&inner, Some((fails, 2)));
        let mut w = Writer::new(file.clone(), options(sync));
        w.append(b"kept").unwrap();
        w.sync().unwrap();
        let durable = w.durable();
        w.append(b"lost").unwrap();
        let first = w.sync().unwrap_err().to_string();
        assert!(first.contains("log: "), "{first}");
        let before = calls(&file);
        let syncer = w.syncer();
        for _ in 0..3 {
            assert_eq!(w.append(b"x").unwrap_err().to_string(), first);
            assert_eq!(w.submit().unwrap_err().to_string(), first);
            assert_eq!(w.sync().unwrap_err().to_string(), first);
            assert_eq!(syncer.sync().unwrap_err().to_string(), first);
        }
        assert_eq!(calls(&file), before);
        assert_eq!(w.durable(), durable);
        assert_eq!(w.marks().failure().unwrap().to_string(), first);
        let (read, _) = read_all(wal(&inner, 0, RecoveryMode::PointInTimeRecovery));
        assert_eq!(read[0], b"kept");
    }
}

/// A failed sync by another caller also ends the log for the writer.
#[test]
fn a_syncer_that_fails_ends_the_log() {
    let files = Files::new();
    let file = faulty(&files.create("log"), Some((What::Sync, 1)));
    let mut w = Writer::new(file, LogOptions::default());
    w.append(b"a").unwrap();
    w.submit().unwrap();
    assert!(w.syncer().sync().is_err());
    assert!(w.sync().is_err());
    assert!(w.append(b"b").is_err());
    assert_eq!(w.durable(), Lsn(0));
}
