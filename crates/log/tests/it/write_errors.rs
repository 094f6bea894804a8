//! Writes and syncs that fail: the first failure ends the log, short writes do not.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Error, Result};
use io::posix::Posix;
use io::{Advice, File, FileSystem, OpenHow, SyncKind, WriteSync};
use log::{LogOptions, Lsn, RecoveryMode, WalSync, Writer};

use crate::helpers::{Files, content, read_all, wal};

/// A file that counts its calls and fails where told.
#[derive(Debug)]
pub(crate) struct Faulty {
    inner: Arc<dyn File>,
    /// At most so many bytes per write.
    bytes_max: usize,
    /// The write with this number fails, counted from 1.
    fail_write: u64,
    /// The sync with this number fails.
    fail_sync: u64,
    fail_read: bool,
    writes: AtomicU64,
    syncs: AtomicU64,
}

impl Faulty {
    fn new(inner: Arc<dyn File>) -> Self {
        Self {
            inner,
            bytes_max: usize::MAX,
            fail_write: 0,
            fail_sync: 0,
            fail_read: false,
            writes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
        }
    }

    /// Takes at most so many bytes a write.
    pub(crate) fn short(inner: Arc<dyn File>, bytes_max: usize) -> Self {
        Self {
            bytes_max,
            ..Self::new(inner)
        }
    }

    fn calls(&self) -> (u64, u64) {
        (
            self.writes.load(Ordering::Relaxed),
            self.syncs.load(Ordering::Relaxed),
        )
    }
}

fn eio(what: &str, path: &Path) -> Error {
    Error::io(what, path, std::io::Error::from_raw_os_error(5))
}

impl File for Faulty {
    fn path(&self) -> &Path {
        self.inner.path()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        if self.fail_read {
            return Err(eio("read", self.path()));
        }
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, data: &[u8], offset: u64, sync: WriteSync) -> Result<usize> {
        if self.writes.fetch_add(1, Ordering::Relaxed) + 1 == self.fail_write {
            return Err(eio("write", self.path()));
        }
        let n = data.len().min(self.bytes_max);
        self.inner.write_at(&data[..n], offset, sync)
    }
    fn sync(&self, kind: SyncKind) -> Result<()> {
        if self.syncs.fetch_add(1, Ordering::Relaxed) + 1 == self.fail_sync {
            return Err(eio("sync", self.path()));
        }
        self.inner.sync(kind)
    }
    fn start_writeback(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.start_writeback(offset, len)
    }
    fn truncate(&self, len: u64) -> Result<()> {
        self.inner.truncate(len)
    }
    fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        self.inner.allocate(offset, len, keep_size)
    }
    fn zero(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.zero(offset, len)
    }
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn advise(&self, advice: Advice) {
        self.inner.advise(advice);
    }
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
    let file = Arc::new(Faulty::new(files.create("log")));
    let mut w = Writer::new(file.clone(), options(WalSync::Dsync));
    for _ in 0..100 {
        w.append(&[1; 1000]).unwrap();
    }
    w.sync().unwrap();
    assert_eq!(file.calls(), (1, 0));
    // A write without sync before it: the durable write would not cover that one.
    w.append(b"a").unwrap();
    w.submit().unwrap();
    w.append(b"b").unwrap();
    w.sync().unwrap();
    assert_eq!(file.calls(), (3, 1));
    assert_eq!(w.durable().0, w.size());
    // Nothing to do: no call.
    w.submit().unwrap();
    w.sync().unwrap();
    assert_eq!(file.calls(), (3, 1));

    let file = Arc::new(Faulty::new(files.create("log")));
    let mut w = Writer::new(file.clone(), options(WalSync::Fdatasync));
    w.append(b"a").unwrap();
    w.append(b"b").unwrap();
    w.sync().unwrap();
    assert_eq!(file.calls(), (1, 1));
}

/// Through `O_DIRECT` too: the partial sector goes with the next group, not by itself.
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
    let file = Arc::new(Faulty::new(file));
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
        assert_eq!(file.calls(), (i, 0));
        assert_eq!(w.durable().0, w.size());
    }
    assert_eq!(file.len().unwrap(), 1 << 20);
}

/// A read that fails is an error in every mode, salvage included: it is not the end of the log.
#[test]
fn a_failed_read_is_an_error_in_every_mode() {
    let files = Files::new();
    let file = Arc::new(Faulty {
        fail_read: true,
        ..Faulty::new(files.with("log", &[0; 100]))
    });
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
        let file = Arc::new(Faulty {
            bytes_max: 7,
            ..Faulty::new(files.create("log"))
        });
        let mut w = Writer::new(file.clone(), options(sync));
        w.append(&[3; 100]).unwrap();
        w.sync().unwrap();
        assert_eq!(w.durable(), Lsn(107));
        assert_eq!(content(&file.inner).len(), 107);
    }
}

/// The first failure is returned by every later call, and no call reaches the file any more.
#[test]
fn a_failure_is_sticky_and_never_tried_again() {
    for (sync, fail_write, fail_sync) in [
        (WalSync::Dsync, 2, 0),
        (WalSync::Fdatasync, 2, 0),
        (WalSync::Fdatasync, 0, 2),
    ] {
        let files = Files::new();
        let file = Arc::new(Faulty {
            fail_write,
            fail_sync,
            ..Faulty::new(files.create("log"))
        });
        let mut w = Writer::new(file.clone(), options(sync));
        w.append(b"kept").unwrap();
        w.sync().unwrap();
        let durable = w.durable();
        w.append(b"lost").unwrap();
        let first = w.sync().unwrap_err().to_string();
        assert!(first.contains("log: "), "{first}");
        let calls = file.calls();
        let syncer = w.syncer();
        for _ in 0..3 {
            assert_eq!(w.append(b"x").unwrap_err().to_string(), first);
            assert_eq!(w.submit().unwrap_err().to_string(), first);
            assert_eq!(w.sync().unwrap_err().to_string(), first);
            assert_eq!(syncer.sync().unwrap_err().to_string(), first);
        }
        assert_eq!(file.calls(), calls);
        assert_eq!(w.durable(), durable);
        assert_eq!(w.marks().failure().unwrap().to_string(), first);
        let (read, _) = read_all(wal(&file.inner, 0, RecoveryMode::PointInTimeRecovery));
        assert_eq!(read[0], b"kept");
    }
}

/// A failed sync by someone else ends the log for the writer too.
#[test]
fn a_syncer_that_fails_ends_the_log() {
    let files = Files::new();
    let file = Arc::new(Faulty {
        fail_sync: 1,
        ..Faulty::new(files.create("log"))
    });
    let mut w = Writer::new(file.clone(), LogOptions::default());
    w.append(b"a").unwrap();
    w.submit().unwrap();
    assert!(w.syncer().sync().is_err());
    assert!(w.sync().is_err());
    assert!(w.append(b"b").is_err());
    assert_eq!(w.durable(), Lsn(0));
}
