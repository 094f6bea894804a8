//! Listeners are called for table files, parts of compactions, ingestion and recovery.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use base::options::OptionTable;
use ironstone::WalIoMode;
use ironstone::listener::{
    BackgroundErrorReason, BackgroundErrorRecoveryInfo, EventListener, ExternalFileIngestionInfo,
    SubcompactionJobInfo, TableFileCreationBriefInfo, TableFileCreationInfo, TableFileDeletionInfo,
};
use ironstone::{Db, Error, IngestExternalFileOptions, Options, SstFileWriter};
use sim::hooked::{Hook, HookedFs, Op, Verdict};

/// Writes down each call.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Notes {
    fn add(&self, note: String) {
        self.0.lock().unwrap().push(note);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

impl EventListener for Notes {
    fn on_table_file_creation_started(&self, info: &TableFileCreationBriefInfo) {
        self.add(format!("begin {} {:?}", name(&info.file_path), info.reason));
    }
    fn on_table_file_created(&self, info: &TableFileCreationInfo) {
        assert!(info.status.is_ok());
        assert_eq!(
            std::fs::metadata(&info.brief.file_path).unwrap().len(),
            info.file_size
        );
        let entries = info.table_properties.num_entries;
        self.add(format!("made {} of {entries}", name(&info.brief.file_path)));
    }
    fn on_table_file_deleted(&self, info: &TableFileDeletionInfo) {
        assert!(info.status.is_ok());
        self.add(format!("gone {}", name(&info.file_path)));
    }
    fn on_external_file_ingested(&self, info: &ExternalFileIngestionInfo) {
        let from = name(&info.external_file_path);
        let to = name(&info.internal_file_path);
        let entries = info.table_properties.num_entries;
        self.add(format!(
            "{from} is {to} of {entries}, sequence {}",
            info.global_seqno
        ));
    }
    fn on_subcompaction_begin(&self, info: &SubcompactionJobInfo) {
        self.add(format!("part {} begins", info.subcompaction_job_id));
    }
    fn on_subcompaction_completed(&self, info: &SubcompactionJobInfo) {
        self.add(format!("part {} ends", info.subcompaction_job_id));
    }
    fn on_column_family_handle_deletion_started(&self, cf_name: &str) {
        if cf_name != "default" {
            self.add(format!("no handle of {cf_name}"));
        }
    }
    fn on_error_recovery_begin(&self, _reason: BackgroundErrorReason, error: &Error) {
        self.add(format!("recovers from {:?}", error.kind()));
    }
    fn on_error_recovery_end(&self, info: &BackgroundErrorRecoveryInfo) {
        self.add(format!("recovered: {}", info.new_bg_error.is_ok()));
    }
}

fn open(dir: &Path, notes: &Arc<Notes>, change: impl FnOnce(&mut Options)) -> Db {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.cf.disable_auto_compactions = true;
    options
        .env
        .listeners
        .add(Arc::clone(notes) as Arc<dyn EventListener>);
    change(&mut options);
    Db::open(dir, &options).unwrap()
}

#[test]
fn they_learn_of_every_table_file() {
    let dir = sim::dirs::scratch().unwrap();
    let notes = Arc::new(Notes::default());
    let db = open(dir.path(), &notes, |_| {});
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    db.put("a", "2").unwrap();
    db.flush().unwrap();
    let told = notes.take();
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(told[0].ends_with(".sst Flush"), "{told:?}");
    assert!(told[1].ends_with(".sst of 1"), "{told:?}");
    let cf = db.default_column_family();
    db.cf(&cf).compact_range(None, None).unwrap();
    drop(cf);
    drop(db); // the close deletes obsolete files
    let told = notes.take();
    let count = |what: &str| told.iter().filter(|t| t.contains(what)).count();
    assert_eq!((count("Compaction"), count("made")), (1, 1), "{told:?}");
    let db = open(dir.path(), &notes, |_| {});
    drop(db);
    let later = notes.take();
    let gone = |all: &[String]| all.iter().filter(|t| t.starts_with("gone")).count();
    assert_eq!(gone(&told) + gone(&later), 2, "{told:?} {later:?}");
}

#[test]
fn they_learn_of_recovered_tables_and_ingested_files() {
    let dir = sim::dirs::scratch().unwrap();
    let notes = Arc::new(Notes::default());
    let path = dir.path().join("db");
    let db = open(&path, &notes, |o| o.db.avoid_flush_during_shutdown = true);
    db.put("a", "1").unwrap();
    drop(db);
    let db = open(&path, &notes, |_| {});
    db.wait_for_compact().unwrap();
    let told = notes.take();
    assert!(told[1].ends_with(".sst of 1"), "{told:?}");
    let file = dir.path().join("made.sst");
    let mut writer = SstFileWriter::new(&Options::default());
    writer.open(&file).unwrap();
    writer.put("a", "3").unwrap();
    writer.finish().unwrap();
    db.ingest_external_file(&[&file], &IngestExternalFileOptions::default())
        .unwrap();
    let told = notes.take();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("made.sst is 0"), "{told:?}");
    assert!(told[0].ends_with("of 1, sequence 2"), "{told:?}");
}

#[test]
fn they_learn_of_the_last_handle_of_a_family() {
    let dir = sim::dirs::scratch().unwrap();
    let notes = Arc::new(Notes::default());
    let db = open(dir.path(), &notes, |_| {});
    let options = ironstone::ColumnFamilyOptions::default();
    let handle = db.create_column_family("second", &options).unwrap();
    let other = handle.clone();
    drop(handle);
    assert!(notes.take().is_empty());
    drop(other);
    assert_eq!(notes.take(), ["no handle of second"]);
}

#[test]
fn they_learn_of_the_parts_of_a_compaction() {
    let dir = sim::dirs::scratch().unwrap();
    let notes = Arc::new(Notes::default());
    let db = open(dir.path(), &notes, |o| {
        o.db.max_subcompactions = 2;
        o.cf.target_file_size_base = 64 << 10;
        o.cf.set("compression", "kNoCompression").unwrap();
    });
    for round in 0..2 {
        for i in 0..4000 {
            db.put(format!("{i:06}"), [round; 100]).unwrap();
        }
        db.flush().unwrap();
    }
    notes.take();
    let cf = db.default_column_family();
    db.cf(&cf).compact_range(None, None).unwrap();
    let told = notes.take();
    let parts: Vec<_> = told.iter().filter(|t| t.starts_with("part")).collect();
    let of = |n: usize, what: &str| {
        parts
            .iter()
            .filter(|t| ***t == format!("part {n} {what}"))
            .count()
    };
    for n in 0..2 {
        assert_eq!((of(n, "begins"), of(n, "ends")), (1, 1), "{told:?}");
    }
}

/// Fails one sync of a log.
#[derive(Debug, Default)]
struct OneFailedSync(AtomicBool);

impl Hook for OneFailedSync {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        let of_log = op == Op::Sync && path.extension().is_some_and(|e| e == "log");
        if of_log && !self.0.swap(true, Ordering::Relaxed) {
            Verdict::Fail(5)
        } else {
            Verdict::Go
        }
    }
}

#[test]
fn they_learn_of_recovery_from_an_error() {
    let dir = sim::dirs::scratch().unwrap();
    let notes = Arc::new(Notes::default());
    let db = open(dir.path(), &notes, |o| {
        o.env.fs = HookedFs::new(Arc::new(OneFailedSync::default()));
        o.db.wal_io_mode = WalIoMode::Buffered;
    });
    db.put("a", "1").unwrap();
    assert!(db.flush_wal(true).is_err());
    assert!(db.put("b", "2").is_err());
    assert!(notes.take().iter().all(|t| !t.starts_with("recover")));
    db.resume().unwrap();
    db.put("c", "3").unwrap();
    let told = notes.take();
    let recovery: Vec<&String> = told.iter().filter(|t| t.starts_with("recover")).collect();
    assert_eq!(recovery, ["recovers from IoError", "recovered: true"]);
    db.resume().unwrap();
    assert!(notes.take().iter().all(|t| !t.starts_with("recover")));
}
