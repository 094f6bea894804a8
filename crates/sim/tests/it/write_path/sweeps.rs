//! One file system call fails, or one comparison panics, at every place in turn: the operation comes to an
//! end, can be repeated, and leaves nothing behind.

use std::cmp::Ordering as Order;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use ironstone::WalIoMode;
use ironstone::{
    Comparator, Db, ImportColumnFamilyOptions, IngestExternalFileOptions, Options, SstFileWriter,
    UserComparator,
};
use sim::hooked::{Hook, HookedFs, Op, Verdict};

use super::{DIR, Machine, SYNC, in_time, put};

/// Fails one operation, after a given number of others.
#[derive(Debug)]
pub(super) struct Nth {
    left: AtomicI64,
    hit: Mutex<Option<(Op, PathBuf)>>,
}

impl Nth {
    /// A hook that fails nothing yet.
    pub(super) fn off() -> Arc<Self> {
        Arc::new(Self {
            left: AtomicI64::new(OFF),
            hit: Mutex::new(None),
        })
    }

    pub(super) fn arm(&self, n: i64) {
        self.left.store(n, Ordering::SeqCst);
    }

    /// Fails nothing any more; returns the operation that failed.
    pub(super) fn disarm(&self) -> Option<(Op, PathBuf)> {
        self.left.store(OFF, Ordering::SeqCst);
        self.hit.lock().unwrap().clone()
    }
}

impl Hook for Nth {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        let log = path.file_name().is_some_and(|n| n == "LOG");
        if log || path.starts_with("/made") {
            return Verdict::Go;
        }
        if self.left.load(Ordering::SeqCst) < 0 || self.left.fetch_sub(1, Ordering::SeqCst) != 0 {
            return Verdict::Go;
        }
        *self.hit.lock().unwrap() = Some((op, path.to_owned()));
        Verdict::Fail(5)
    }
}

const OFF: i64 = -1;

type Act = fn(&Db, &Options, u64) -> base::Result<()>;

fn prepare(db: &Db, options: &Options) {
    let other = db.create_column_family("other", &options.cf).unwrap();
    for round in 0..2 {
        for i in 0..20 {
            db.put(format!("{i:03}"), format!("{round}")).unwrap();
        }
        db.cf(&other).put("k", "v").unwrap();
        db.flush().unwrap();
    }
    db.put("in a memtable", "v").unwrap();
    db.cf(&other).put("in a memtable", "v").unwrap();
}

fn external(options: &Options, path: &str) -> base::Result<()> {
    let mut writer = SstFileWriter::new(options);
    writer.open(path)?;
    writer.put("000", "ingested")?;
    writer.finish().map(drop)
}

const ACTS: &[(&str, Act)] = &[
    ("flush", |db, _, _| db.flush()),
    ("compact", |db, _, _| db.compact_range(None, None)),
    ("create", |db, o, n| {
        db.create_column_family(&format!("new{n}"), &o.cf).map(drop)
    }),
    ("drop", |db, _, _| match db.column_family("other") {
        Some(other) => db.drop_column_family(&other),
        None => Ok(()),
    }),
    ("ingest", |db, o, n| {
        let path = format!("/made{n}.sst");
        drop(io::FileSystem::remove(&*o.env.fs, Path::new(&path)));
        external(o, &path)?;
        db.ingest_external_file(&[path], &IngestExternalFileOptions::default())
    }),
    ("export, import", |db, o, n| {
        let dir = format!("/exported{n}");
        let files = db.cf(&db.default_column_family()).export(&dir)?;
        let how = ImportColumnFamilyOptions::default();
        db.create_column_family_with_import(&format!("imported{n}"), &o.cf, &how, &files)
            .map(drop)
    }),
    ("checkpoint", |db, _, n| {
        db.create_checkpoint(format!("/copy{n}"), 0).map(drop)
    }),
    ("set_options", |db, _, _| db.set_options(&[("ttl", "3600")])),
    ("synced put", |db, _, _| put(db, &SYNC, "synced").map(drop)),
];

/// Files that should not be there.
fn strays(machine: &Machine, db: &Db) -> Vec<String> {
    let live: BTreeSet<String> = db
        .get_live_files_metadata()
        .into_iter()
        .map(|f| f.name.trim_start_matches('/').to_owned())
        .collect();
    let names = machine.names(DIR);
    let extension = |n: &str| Path::new(n).extension().map(|e| e.to_owned());
    let of = |kind: &str| {
        let same = |n: &&String| extension(n).is_some_and(|e| e == kind);
        names.iter().filter(same).count()
    };
    let is_stray = |n: &String| match extension(n) {
        Some(e) if e == "sst" => !live.contains(n),
        Some(e) => e == "dbtmp" || e == "tmp",
        None => false,
    };
    let mut out: Vec<String> = names.iter().filter(|n| is_stray(n)).cloned().collect();
    if of("log") > 2 {
        out.push(format!("{} logs", of("log")));
    }
    let manifests = names.iter().filter(|n| n.starts_with("MANIFEST"));
    let manifests = manifests.count();
    if manifests > 1 {
        out.push(format!("{manifests} MANIFESTs"));
    }
    out
}

fn sweep(mode: WalIoMode) {
    let mut bad = Vec::new();
    for &(what, act) in ACTS {
        for n in 0..400 {
            let hook = Nth::off();
            let mut machine = Machine::new(mode);
            machine.options.cf.disable_auto_compactions = true;
            machine.options.env.fs = HookedFs::over(machine.disk.shared(), Arc::clone(&hook) as _);
            let db = Arc::new(machine.open());
            prepare(&db, &machine.options);
            hook.arm(n);
            let run = |times: u64| {
                let (db, options) = (Arc::clone(&db), machine.options.clone());
                in_time(what, move || {
                    catch_unwind(AssertUnwindSafe(|| act(&db, &options, times)))
                })
            };
            let first = run(0);
            let Some((op, path)) = hook.disarm() else {
                break;
            };
            let at = format!("{what} {n}: {op:?} {}", path.display());
            let resumed = db.resume();
            let again = run(1);
            let after = {
                let db = Arc::clone(&db);
                in_time("what comes after", move || {
                    put(&db, &SYNC, "after")?;
                    db.flush()?;
                    db.pause_background_work()?;
                    db.continue_background_work()?;
                    db.wait_for_compact()
                })
            };
            if resumed.is_err() || !matches!(again, Ok(Ok(()))) || after.is_err() {
                bad.push(format!(
                    "{at}: {first:?}, {resumed:?}, {again:?}, {after:?}"
                ));
                continue;
            }
            let strays = strays(&machine, &db);
            if !strays.is_empty() {
                bad.push(format!("{at}: {first:?}; left: {strays:?}"));
            }
            let db = Arc::into_inner(db).unwrap();
            in_time("close", move || db.close().unwrap());
        }
    }
    assert!(bad.is_empty(), "{} of them:\n{}", bad.len(), bad.join("\n"));
}

/// Tables of failed flushes, compactions and copies stayed until the next open: on a full device they took
/// the last of the space. So did tables that a failed MANIFEST might name, though a new MANIFEST had been
/// begun.
#[test]
fn whatever_fails_can_be_done_again_and_leaves_nothing() {
    sweep(WalIoMode::Buffered);
}

/// An order that panics once, after so many comparisons.
struct Fragile {
    left: AtomicI64,
}

impl UserComparator for Fragile {
    fn name(&self) -> &'static str {
        "fragile"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Order {
        if self.left.load(Ordering::SeqCst) >= 0 {
            assert!(self.left.fetch_sub(1, Ordering::SeqCst) != 0, "as planned");
        }
        a.cmp(b)
    }
}

/// Wherever an order panics, in a call or on the thread that looks for compactions, the call comes to an
/// end and can be made again.
#[test]
fn whatever_an_order_panics_in_comes_to_an_end() {
    for &(what, act) in ACTS {
        if !["compact", "ingest"].contains(&what) {
            continue;
        }
        let mut done = 0;
        for n in 0..2000 {
            let fragile = Arc::new(Fragile {
                left: AtomicI64::new(OFF),
            });
            let mut machine = Machine::new(WalIoMode::Buffered);
            machine.options.cf.comparator = Comparator::user(Arc::clone(&fragile) as _);
            let db = Arc::new(machine.open());
            prepare(&db, &machine.options);
            fragile.left.store(n, Ordering::SeqCst);
            let run = |times: u64| {
                let (db, options) = (Arc::clone(&db), machine.options.clone());
                in_time(&format!("{what} {n}"), move || {
                    catch_unwind(AssertUnwindSafe(|| act(&db, &options, times)))
                })
            };
            let first = run(0);
            if fragile.left.swap(OFF, Ordering::SeqCst) >= 0 {
                done = n;
                break;
            }
            db.resume().unwrap();
            let again = run(1);
            assert!(
                matches!(again, Ok(Ok(()))),
                "{what} {n}: {first:?}, {again:?}"
            );
            put(&db, &SYNC, "after").unwrap();
            in_time("what comes after", move || {
                db.flush().unwrap();
                db.pause_background_work().unwrap();
                db.continue_background_work().unwrap();
                Arc::into_inner(db).unwrap().close().unwrap();
            });
        }
        assert!(done > 0, "{what}");
    }
}
