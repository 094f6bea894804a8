//! Writes the seeds of all targets: pieces of the databases below the directories that it is given, and
//! some that are made here; and of the corpus of RocksDB's databases, if there is one.
//!
//! `seeds OUT DIRECTORY…`

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use base::{SequenceNumber, ValueType, key};
use ironstone::{
    BackupEngine, BackupEngineOptions, CreateBackupOptions, Db, Env, Options, WideColumns,
    WriteBatch, WriteOptions,
};
use table::block::BlockBuilder;
use table::filter::FilterBuilder;
use table::{BlockHandle, Reader, ReaderOptions};

/// Larger files make slow inputs.
const BYTES_MAX: usize = 40 << 10;
/// The same for text: there is a lot to do for each of its bytes.
const TEXT_MAX: usize = 9 << 10;
/// So many of a target out of one directory are enough: the next one has others.
const SEEDS_MAX: usize = 16;

#[derive(Default)]
struct Seeds {
    /// By target, and by content: equal ones count once.
    all: BTreeMap<&'static str, BTreeMap<u32, Vec<u8>>>,
    /// How many came out of this directory.
    here: BTreeMap<&'static str, usize>,
}

impl Seeds {
    fn add(&mut self, target: &'static str, bytes: &[u8]) {
        let here = self.here.entry(target).or_default();
        if bytes.len() <= BYTES_MAX && *here < SEEDS_MAX {
            let sum = base::checksum::crc32c(bytes);
            let all = self.all.entry(target).or_default();
            *here += usize::from(all.insert(sum, bytes.to_vec()).is_none());
        }
    }

    /// All files below a directory.
    fn tree(&mut self, dir: &Path) {
        let Ok(entries) = fs::read_dir(dir) else {
            return;
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
        paths.sort();
        let (dirs, files): (Vec<_>, Vec<_>) = paths.into_iter().partition(|p| p.is_dir());
        self.here.clear();
        files.iter().for_each(|path| self.file(path));
        dirs.iter().for_each(|path| self.tree(path));
    }

    fn add_as(&mut self, target: &'static str, bytes: &[u8], how: u8) {
        self.add(target, &[bytes, &[how]].concat());
    }

    /// What the files of a database, or of a directory of samples, are good for.
    fn file(&mut self, path: &Path) {
        let Ok(bytes) = fs::read(path) else { return };
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        self.add("names", name.as_bytes());
        let cut = &bytes[..bytes.len().min(BYTES_MAX - 1)];
        if name.ends_with(".log") {
            self.add_as("log", cut, 2 | 4 | 8);
            self.add_as("log", cut, 3 | 8);
            let number = name.trim_end_matches(".log").parse().unwrap_or(0);
            self.records("batch", path, Some(number));
        } else if name.starts_with("MANIFEST") {
            self.add("manifest", cut);
            self.records("edit", path, None);
        } else if name.starts_with("OPTIONS") && bytes.len() <= TEXT_MAX {
            self.add_as("options", &bytes, 1);
            self.add_as("options", &bytes, 2);
        } else if name.ends_with(".sst") {
            self.table(path, &bytes);
        }
    }

    fn records(&mut self, target: &'static str, path: &Path, log: Option<u64>) {
        let fs = io::posix::Posix::shared();
        let Ok(file) = fs.open(path, io::OpenHow::READ) else {
            return;
        };
        let mut reader = match log {
            None => log::Reader::manifest(file),
            Some(number) => {
                let mode = log::RecoveryMode::PointInTimeRecovery;
                log::Reader::new(
                    file,
                    number,
                    log::ReaderOptions {
                        mode,
                        fences: false,
                    },
                )
            }
        };
        let mut record = Vec::new();
        while let Ok(true) = reader.read(&mut record) {
            self.add(target, &record);
        }
    }

    fn table(&mut self, path: &Path, bytes: &[u8]) {
        // Index and filters in memory; in a cache; pinned.
        for how in [1, 2 | 8 | 1 << 7, 2 | 8 | 4 | 16 | 32] {
            self.add_as("table", bytes, how);
        }
        let footer = bytes.len().saturating_sub(table::footer::LEN);
        self.add_as("footer", &bytes[footer..], 1);
        let fs = io::posix::Posix::shared();
        let Ok(file) = fs.open(path, io::OpenHow::READ) else {
            return;
        };
        let Ok(reader) = Reader::open(file, bytes.len() as u64, ReaderOptions::default()) else {
            return;
        };
        let slice = |h: BlockHandle| {
            let (from, size) = (h.offset as usize, h.size as usize);
            Some((bytes.get(from..from + size)?, *bytes.get(from + size)?))
        };
        let blocks = reader.data_blocks().unwrap_or_default();
        for block in blocks.iter().take(2) {
            match slice(block.handle) {
                Some((block, 0)) => self.add_as("block", block, 2 | 4),
                Some((block, kind)) => self.add_as("compress", block, kind & 7 | 3 << 6),
                None => {}
            }
        }
        for (name, handle) in reader.metaindex() {
            match slice(*handle) {
                Some((block, 0)) if name.contains("filter") => self.add("filter", block),
                Some((block, 0)) => self.add_as("block", block, 0),
                _ => {}
            }
        }
    }

    /// What no file has.
    fn made(&mut self) -> ironstone::Result<()> {
        self.blocks();
        self.batches()?;
        self.texts();
        for seed in ironstone_fuzz::database_seeds() {
            self.add("database", &seed);
        }
        let more = [
            ironstone_fuzz::volume_seeds(),
            ironstone_fuzz::position_seeds(),
            ironstone_fuzz::device_seeds(),
            ironstone_fuzz::track_seeds(),
        ];
        for (target, seed) in more.into_iter().flatten() {
            self.add(target, &seed);
        }
        self.files()
    }

    fn blocks(&mut self) {
        for (interval, hash) in [(1, false), (4, false), (16, true)] {
            let mut block = BlockBuilder::new(interval);
            if hash {
                block = block.hash_index(0.75);
            }
            for n in 0..40u64 {
                let k = format!("key{n:04}");
                let k = key::encode(k.as_bytes(), SequenceNumber(n), ValueType::Value);
                block.add(&k, &[b'v'; 9]);
            }
            self.add_as("block", &block.finish(), 2 | 4);
        }
        for mut filter in [FilterBuilder::bloom(10.0), FilterBuilder::ribbon(10.0)] {
            (0..200u32).for_each(|n| filter.add_key(&n.to_le_bytes()));
            self.add("filter", &filter.finish());
        }
    }

    fn batches(&mut self) -> ironstone::Result<()> {
        let columns = WideColumns::new([("", "default"), ("a", "1"), ("b", "")])?;
        // The entity as it lies in a batch: behind header, tag, key and length.
        let mut batch = WriteBatch::new();
        batch.put_entity("e", &columns)?;
        self.add("entity", &batch.data()[16..]);
        let mut batch = WriteBatch::new();
        batch.put("k", "v")?;
        batch.delete("k")?;
        batch.single_delete("k")?;
        batch.delete_range("a", "z")?;
        batch.merge("k", "1")?;
        batch.put_entity("e", &columns)?;
        batch.put_log_data(b"blob")?;
        self.add("batch", batch.data());
        Ok(())
    }

    fn texts(&mut self) {
        for text in [
            "MANIFEST-000004\n",
            "CURRENT",
            "000007.sst",
            "OPTIONS-000012",
            "LOG.old.17",
        ] {
            self.add("names", text.as_bytes());
        }
        for text in [
            "uint64add",
            "{id=StringAppendOperator;delimiter=;;}",
            "nullptr",
        ] {
            self.add_as("merge", text.as_bytes(), 0);
        }
        for how in 0..6 {
            self.add_as(
                "merge",
                b"key\xff12345678\xff87654321\xffoperand",
                how | 128,
            );
        }
        self.add_as(
            "options",
            b"write_buffer_size=64M;max_background_jobs=4;compression=kZSTD",
            0,
        );
    }

    /// Files of every kind, for those who have no corpus.
    fn files(&mut self) -> ironstone::Result<()> {
        let home = tempfile::tempdir().expect("a place for temporary files");
        let mut options = Options::default();
        options.db.create_if_missing = true;
        let db = Db::open(home.path().join("db"), &options)?;
        let synced = WriteOptions {
            sync: true,
            ..WriteOptions::default()
        };
        for n in 0..20 {
            let mut batch = WriteBatch::new();
            batch.put(format!("key{n}"), "value")?;
            db.with(&synced).write(&mut batch)?;
        }
        db.flush()?;
        db.put("k", "v")?;
        let options = BackupEngineOptions::new(home.path().join("backup"));
        let mut engine = BackupEngine::open(&options, &Env::default())?;
        engine.create_new_backup(&db, CreateBackupOptions::default())?;
        self.add(
            "backup",
            &fs::read(home.path().join("backup/meta/1")).unwrap_or_default(),
        );
        self.tree(home.path());
        Ok(())
    }

    fn write(&self, out: &Path) -> std::io::Result<()> {
        for (target, all) in &self.all {
            let dir = out.join(target);
            fs::create_dir_all(&dir)?;
            for (sum, bytes) in all {
                fs::write(dir.join(format!("{sum:08x}")), bytes)?;
            }
        }
        Ok(())
    }
}

fn main() {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let out = arguments.next().expect("seeds OUT DIRECTORY…");
    let mut seeds = Seeds::default();
    seeds.made().expect("seeds can be made");
    arguments.for_each(|dir| seeds.tree(&dir));
    // Where the tests of crates/sim look too.
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/corpus");
    let corpus = std::env::var_os("IRONSTONE_CORPUS").map_or_else(|| beside.into(), PathBuf::from);
    if corpus.is_dir() {
        seeds.tree(&corpus);
    } else {
        eprintln!("note: no corpus at {}; fewer seeds", corpus.display());
    }
    seeds.write(&out).expect("seeds can be written");
}
