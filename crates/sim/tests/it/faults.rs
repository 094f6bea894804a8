//! Every file system operation fails, once or for ever: there is no panic, errors are clean and stay after
//! a failed sync, and every write that was acknowledged as durable is there after a reopen without faults.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use ironstone::{Db, Options, Result, WriteOptions};
use sim::dirs;
use sim::hooked::{Hook, HookedFs, Op, Verdict};
use sim::oracle::content::{everything, pair_difference};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Which operations fail, and how.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// One operation fails with this error number.
    Once(i32),
    /// Operations fail with this error number from there on.
    Forever(i32),
    /// A write is short.
    Short,
    /// The device is full from there on: writes and creations fail, other operations work.
    Full,
}

/// Fails the operation with the number `at`.
#[derive(Debug)]
struct Nth {
    fault: Fault,
    at: u64,
    count: AtomicU64,
    /// The operation that failed first.
    hit: Mutex<Option<(Op, PathBuf)>>,
}

impl Nth {
    fn new(fault: Fault, at: u64) -> Arc<Self> {
        Arc::new(Self {
            fault,
            at,
            count: AtomicU64::new(0),
            hit: Mutex::new(None),
        })
    }
}

impl Hook for Nth {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        // The LOG is for people: losing it is no failure.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("LOG") {
            return Verdict::Go;
        }
        let n = self.count.fetch_add(1, Ordering::SeqCst);
        let due = match self.fault {
            Fault::Once(_) | Fault::Short => n == self.at,
            Fault::Forever(_) => n >= self.at,
            Fault::Full => n >= self.at && matches!(op, Op::Write | Op::OpenWrite | Op::Allocate),
        };
        if !due {
            return Verdict::Go;
        }
        let mut hit = self.hit.lock().unwrap();
        hit.get_or_insert_with(|| (op, path.to_path_buf()));
        match self.fault {
            Fault::Once(errno) | Fault::Forever(errno) => Verdict::Fail(errno),
            Fault::Full => Verdict::Fail(ENOSPC),
            Fault::Short => Verdict::Short,
        }
    }
}

/// What the workload knows: the last acknowledged value of each key, and the values that failed writes may
/// have left.
#[derive(Debug, Default)]
struct Told {
    durable: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    maybe: BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>,
}

impl Told {
    /// A synced write of `key`; `None` deletes it.
    fn write(&mut self, db: &Db, key: &str, value: Option<&str>) -> Result<()> {
        let sync = WriteOptions {
            sync: true,
            ..WriteOptions::default()
        };
        let cf = db.default_column_family();
        let result = match value {
            Some(value) => db.cf(&cf).with(&sync).put(key, value),
            None => db.cf(&cf).with(&sync).delete(key),
        };
        let (key, value) = (
            key.as_bytes().to_vec(),
            value.map(|v| v.as_bytes().to_vec()),
        );
        match &result {
            Ok(()) => {
                self.maybe.remove(&key);
                self.durable.insert(key, value);
            }
            Err(_) => self.maybe.entry(key).or_default().push(value),
        }
        result
    }

    /// The first difference between this content and what the workload knows.
    fn check(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Option<String> {
        let have: BTreeMap<_, _> = pairs.iter().cloned().collect();
        let none = Vec::new();
        let keys = self
            .durable
            .keys()
            .chain(self.maybe.keys())
            .chain(have.keys());
        for key in keys {
            let found = have.get(key).cloned();
            let acknowledged = self.durable.get(key).cloned().flatten();
            let maybe = self.maybe.get(key).unwrap_or(&none);
            if found != acknowledged && !maybe.contains(&found) {
                return Some(format!(
                    "key {}: acknowledged {acknowledged:?}, possible {maybe:?}, found {found:?}",
                    key.escape_ascii()
                ));
            }
        }
        None
    }
}

/// Opens, writes with sync, flushes, compacts, reopens; continues after errors, as programs do.
fn workload(dir: &Path, options: &Options, told: &mut Told) -> Result<()> {
    for round in 0..2 {
        let db = Db::open(dir, options)?;
        // A full device fails only this write: later ones may succeed.
        let mut first: Option<String> = None;
        for i in 0..6 {
            let value = format!("round {round} {}", "x".repeat(300 * (i % 3)));
            let result = told.write(&db, &format!("key{i}"), Some(&value));
            let failed = result.is_err();
            if first.is_some() {
                assert!(failed, "writes work again after {first:?}");
            } else if let Err(e) = result
                && e.kind() != base::ErrorKind::NoSpace
            {
                first = Some(e.to_string());
            }
        }
        drop(told.write(&db, "key1", None));
        let flushed = db.flush();
        drop(told.write(&db, "key2", Some("after the flush")));
        let compacted = db.compact_range(None, None);
        for result in [flushed, compacted, db.wait_for_compact()] {
            if let (Some(first), Ok(())) = (&first, &result) {
                panic!("maintenance works after a failed write: {first}");
            }
        }
        // Reads still work, or fail cleanly.
        if let Ok(pairs) = everything(&db) {
            assert_eq!(told.check(&pairs[0].1), None, "while it is open");
        }
        db.close()?;
    }
    Ok(())
}

fn options(hook: Arc<dyn Hook>) -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o.db.wal_no_space_wait_ms = 0;
    o.env.fs = HookedFs::new(hook);
    o
}

/// Runs the workload with a fault at operation `at`; false if the workload has fewer operations.
fn try_fault(fault: Fault, at: u64, tally: &mut BTreeMap<String, usize>) -> bool {
    let temp = dirs::scratch().unwrap();
    let dir = temp.path().join("db");
    let hook = Nth::new(fault, at);
    let mut told = Told::default();
    let result = workload(&dir, &options(Arc::<Nth>::clone(&hook)), &mut told);
    let Some((op, path)) = hook.hit.lock().unwrap().take() else {
        assert!(result.is_ok(), "no fault: {result:?}");
        return false;
    };
    let what = format!("{fault:?} at operation {at}, {op:?} of {}", path.display());
    if let Err(e) = &result {
        let kind = format!("{:?}", e.kind());
        *tally.entry(kind).or_default() += 1;
        assert!(e.path().is_some(), "{what}: no file is named: {e}");
    }
    // Without faults the database opens, with everything that was acknowledged.
    let mut plain = Options::default();
    plain.db.create_if_missing = true;
    let read = || -> Result<_> { everything(&Db::open(&dir, &plain)?) };
    let content = read().unwrap_or_else(|e| panic!("{what}: it does not open again: {e}"));
    if let Some(lost) = told.check(&content[0].1) {
        panic!("{what}: {lost}");
    }
    // And again, with the same content: recovery is idempotent.
    let again = read().unwrap();
    let difference = pair_difference(&content[0].1, &again[0].1);
    assert_eq!(difference, None, "{what}: the second open");
    true
}

fn every_operation(fault: Fault) {
    let mut tally = BTreeMap::new();
    let mut points = 0;
    while try_fault(fault, points, &mut tally) {
        points += 1;
    }
    assert!(points > 50, "the workload has operations");
    eprintln!("{fault:?}: {points} fault points, errors of the workload: {tally:?}");
}

#[test]
fn one_failed_operation_loses_nothing_acknowledged() {
    every_operation(Fault::Once(EIO));
}

#[test]
fn operations_that_fail_for_ever_lose_nothing_acknowledged() {
    every_operation(Fault::Forever(EIO));
}

#[test]
fn one_refusal_for_lack_of_space_loses_nothing_acknowledged() {
    every_operation(Fault::Once(ENOSPC));
}

#[test]
fn a_full_device_loses_nothing_acknowledged() {
    every_operation(Fault::Full);
}

/// A short write is continued without any error.
#[test]
fn short_writes_are_continued() {
    let mut points = 0;
    loop {
        let temp = dirs::scratch().unwrap();
        let dir = temp.path().join("db");
        let hook = Nth::new(Fault::Short, points);
        let mut told = Told::default();
        let result = workload(&dir, &options(Arc::<Nth>::clone(&hook)), &mut told);
        let Some((op, path)) = hook.hit.lock().unwrap().take() else {
            break;
        };
        assert!(
            result.is_ok(),
            "short {op:?} of {}: {result:?}",
            path.display()
        );
        assert!(told.maybe.is_empty());
        points += 1;
    }
    eprintln!("short writes: {points} points, all continued");
}

/// Fails syncs of logs while it is switched on.
#[derive(Debug, Default)]
struct LogSyncs(std::sync::atomic::AtomicBool);

impl Hook for LogSyncs {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        let is_log = path.extension().is_some_and(|e| e == "log");
        let durable = matches!(op, Op::Sync | Op::Write);
        if self.0.load(Ordering::SeqCst) && is_log && durable {
            return Verdict::Fail(EIO);
        }
        Verdict::Go
    }
}

/// After a failed sync of the log, no write is acknowledged until the database is reopened, although the
/// device works again: the kernel has dropped the pages that it could not write.
#[test]
fn a_failed_sync_is_sticky() {
    let temp = dirs::scratch().unwrap();
    let dir = temp.path().join("db");
    let hook = Arc::new(LogSyncs::default());
    let options = options(Arc::<LogSyncs>::clone(&hook));
    let db = Db::open(&dir, &options).unwrap();
    let mut told = Told::default();
    told.write(&db, "before", Some("1")).unwrap();
    hook.0.store(true, Ordering::SeqCst);
    let e = told.write(&db, "failed", Some("2")).unwrap_err();
    assert!(e.to_string().contains(".log"), "{e}");
    hook.0.store(false, Ordering::SeqCst);
    let e = told.write(&db, "after", Some("3")).unwrap_err();
    assert!(e.to_string().contains("reopened"), "{e}");
    assert!(db.put("unsynced", "4").is_err());
    assert!(db.sync_wal().is_err() && db.flush().is_err());
    assert_eq!(db.get("before").unwrap().unwrap(), b"1");
    assert_eq!(
        db.get("failed").unwrap(),
        None,
        "a failed write is not visible"
    );
    drop(db);
    let db = Db::open(&dir, &options).unwrap();
    assert_eq!(told.check(&everything(&db).unwrap()[0].1), None);
    told.write(&db, "again", Some("5")).unwrap();
}
