//! What a database reports about itself: the same as RocksDB, with true values.

mod counts;
mod listeners;
mod log;
mod metrics;
mod perf;
mod properties;

use std::path::PathBuf;
use std::sync::Arc;

use ironstone::{Db, IngestExternalFileOptions, Options, SstFileWriter, Statistics, WriteOptions};
use sim::oracle::{Library, RocksDb, RocksIngest, RocksOptions, RocksSstFileWriter};

/// The two databases, which get the same operations.
struct Pair {
    ours: Db,
    theirs: RocksDb,
    options: Options,
    statistics: Arc<Statistics>,
    their_options: RocksOptions,
    dir: tempfile::TempDir,
}

/// Options for both, with which nothing happens in the background.
const QUIET: &[(&str, &str)] = &[
    ("disable_auto_compactions", "true"),
    ("compression", "kNoCompression"),
];

impl Pair {
    fn open(lib: &Arc<Library>) -> Self {
        Self::open_with(lib, |_| {}, |_| {})
    }

    fn open_with(
        lib: &Arc<Library>,
        ours: impl FnOnce(&mut Options),
        theirs: impl FnOnce(&mut RocksOptions),
    ) -> Self {
        use base::options::OptionTable;

        let dir = sim::dirs::scratch().unwrap();
        let mut options = Options::default();
        options.db.create_if_missing = true;
        let statistics = Arc::new(Statistics::new());
        options.env.statistics = Some(Arc::clone(&statistics));
        let mut their_options = lib.options();
        their_options.create_if_missing(true).enable_statistics();
        for (name, value) in QUIET {
            options.cf.set(name, value).unwrap();
            their_options.set(name, value).unwrap();
        }
        ours(&mut options);
        theirs(&mut their_options);
        Self {
            ours: Db::open(dir.path().join("ours"), &options).unwrap(),
            theirs: RocksDb::open(&their_options, dir.path().join("theirs")).unwrap(),
            options,
            statistics,
            their_options,
            dir,
        }
    }

    fn put(&self, keys: std::ops::Range<usize>) {
        for i in keys {
            let key = format!("key{i:06}");
            self.ours.put(&key, [b'v'; 100]).unwrap();
            self.theirs.put(key.as_bytes(), &[b'v'; 100]).unwrap();
        }
    }

    fn put_synced(&self, key: &str) {
        let sync = WriteOptions {
            sync: true,
            ..WriteOptions::default()
        };
        let cf = self.ours.default_column_family();
        self.ours.cf(&cf).with(&sync).put(key, "synced").unwrap();
        let theirs = self.theirs.library().write_options().sync(true);
        let cf = self.theirs.default_cf();
        self.theirs
            .put_opt(&theirs, cf, key.as_bytes(), b"synced")
            .unwrap();
    }

    fn delete(&self, key: &str) {
        self.ours.delete(key).unwrap();
        self.theirs.delete(key.as_bytes()).unwrap();
    }

    fn get(&self, key: &str) -> Option<Vec<u8>> {
        let ours = self.ours.get(key).unwrap();
        assert_eq!(ours, self.theirs.get(key.as_bytes()).unwrap());
        ours
    }

    fn flush(&self) {
        self.ours.flush().unwrap();
        self.theirs.flush().unwrap();
    }

    fn compact(&self) {
        let cf = self.ours.default_column_family();
        self.ours.cf(&cf).compact_range(None, None).unwrap();
        let cf = self.theirs.default_cf();
        self.theirs.compact_range(cf, None, None);
    }

    /// The files of level 0 are moved, as they are, to a level where nothing overlaps them.
    fn moving_down(mut self) -> Self {
        self.options.cf.disable_auto_compactions = false;
        self.options.cf.level0_file_num_compaction_trigger = 1;
        let theirs = "disable_auto_compactions=false;level0_file_num_compaction_trigger=1";
        self.their_options.set_all(theirs).unwrap();
        let pair = self.reopen();
        pair.ours.wait_for_compact().unwrap();
        pair.theirs.wait_for_compaction().unwrap();
        pair
    }

    /// Closes and opens both.
    fn reopen(self) -> Self {
        let Self {
            ours,
            theirs,
            options,
            statistics,
            their_options,
            dir,
        } = self;
        drop((ours, theirs));
        Self {
            ours: Db::open(dir.path().join("ours"), &options).unwrap(),
            theirs: RocksDb::open(&their_options, dir.path().join("theirs")).unwrap(),
            options,
            statistics,
            their_options,
            dir,
        }
    }

    /// Closes both. The two directories exist as long as the returned temporary one.
    fn close(self) -> (PathBuf, PathBuf, tempfile::TempDir) {
        let (ours, theirs) = (self.dir.path().join("ours"), self.dir.path().join("theirs"));
        drop((self.ours, self.theirs));
        (ours, theirs, self.dir)
    }

    /// Ingests a table with one key, made by each engine.
    fn ingest(&self, key: &str) {
        let file = self.dir.path().join("ours.sst");
        let mut writer = SstFileWriter::new(&self.options);
        writer.open(&file).unwrap();
        writer.put(key, "1").unwrap();
        writer.finish().unwrap();
        let how = IngestExternalFileOptions::default();
        self.ours.ingest_external_file(&[&file], &how).unwrap();
        let file = self.dir.path().join("theirs.sst");
        let writer = RocksSstFileWriter::open(&self.their_options, &file).unwrap();
        writer.put(key.as_bytes(), b"1").unwrap();
        writer.finish().unwrap();
        let cf = self.theirs.default_cf();
        self.theirs
            .ingest(cf, &[&file], RocksIngest::default())
            .unwrap();
    }

    /// Fills both databases, with files on several levels.
    fn fill_levels(&self) {
        self.put(0..1000);
        self.delete("key000005");
        for _ in 0..3 {
            self.put(0..500);
            self.flush();
        }
        self.compact();
        self.put(0..500);
        self.flush();
        for i in (0..2000).step_by(7) {
            self.get(&format!("key{i:06}"));
        }
    }
}
