//! The MANIFEST holds the place where round-robin compactions (`kRoundRobin`) continue. Ironstone continues
//! where it or RocksDB stopped, and RocksDB reads the places that Ironstone wrote.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use base::key;
use base::rng::Rng;
use io::FileSystem;
use ironstone::CompactionPri;
use ironstone::{Db, Options};
use manifest::edit::VersionEdit;
use sim::oracle::{self, RocksDb};
use sim::{dirs, oracle::content};

fn in_turn() -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o.cf.write_buffer_size = 64 << 10;
    o.cf.target_file_size_base = 32 << 10;
    o.cf.max_bytes_for_level_base = 128 << 10;
    o.cf.max_bytes_for_level_multiplier = 4.0;
    o.cf.level_compaction_dynamic_level_bytes = false;
    o.cf.compression = ironstone::CompressionType::None;
    o.cf.compaction_pri = CompactionPri::RoundRobin;
    o
}

/// The last place of each level in the current MANIFEST.
fn cursors(dir: &Path) -> BTreeMap<u32, Vec<u8>> {
    let fs: Arc<dyn FileSystem> = io::posix::Posix::shared();
    let number = files::read_current(&*fs, dir).unwrap();
    let path = files::manifest_path(dir, number);
    let mut reader = log::Reader::manifest(fs.open(&path, io::OpenHow::READ).unwrap());
    let (mut out, mut record) = (BTreeMap::new(), Vec::new());
    while reader.read(&mut record).unwrap() {
        let edit = VersionEdit::decode(&record).unwrap();
        out.extend(edit.compact_cursors.into_iter().map(|c| (c.level, c.key)));
    }
    out
}

fn overwrite(mut put: impl FnMut(&[u8], &[u8])) {
    let mut rng = Rng::new(1);
    for i in 0..20_000 {
        let k = format!("{:06}", rng.below(10_000));
        put(k.as_bytes(), format!("{i:080}").as_bytes());
    }
}

/// The places after a reopen that does no work.
fn opened_again(dir: &Path) -> BTreeMap<u32, Vec<u8>> {
    let mut options = in_turn();
    options.cf.disable_auto_compactions = true;
    let before = files::read_current(&*io::posix::Posix::shared(), dir).unwrap();
    Db::open(dir, &options).unwrap().close().unwrap();
    let after = files::read_current(&*io::posix::Posix::shared(), dir).unwrap();
    assert_ne!(before, after, "a new MANIFEST");
    cursors(dir)
}

#[test]
fn compactions_go_on_where_they_stopped() {
    let temp = dirs::scratch().unwrap();
    let db = Db::open(temp.path(), &in_turn()).unwrap();
    overwrite(|k, v| db.put(k, v).unwrap());
    db.flush().unwrap();
    db.wait_for_compact().unwrap();
    let all = content::everything(&db).unwrap();
    db.close().unwrap();
    let left = cursors(temp.path());
    assert!(left.keys().any(|&level| level > 0), "{left:?}");
    assert!(left.values().all(|k| key::split(k).is_some()));
    assert_eq!(opened_again(temp.path()), left);
    let Some(lib) = oracle::rocksdb() else { return };
    let mut theirs = lib.options();
    theirs
        .set_all("compaction_pri=kRoundRobin;level_compaction_dynamic_level_bytes=false")
        .unwrap();
    drop(RocksDb::open(&theirs, temp.path()).unwrap());
    assert_eq!(cursors(temp.path()), left, "RocksDB has taken them over");
    let db = Db::open(temp.path(), &in_turn()).unwrap();
    assert!(content::everything(&db).unwrap() == all);
}

#[test]
fn those_of_rocksdb_are_taken_over() {
    let Some(lib) = oracle::rocksdb() else { return };
    let temp = dirs::scratch().unwrap();
    let mut theirs = lib.options();
    theirs.create_if_missing(true).compression(0);
    theirs
        .set_all(
            "compaction_pri=kRoundRobin;level_compaction_dynamic_level_bytes=false;\
             write_buffer_size=65536;arena_block_size=8192;target_file_size_base=32768;\
             max_bytes_for_level_base=131072;max_bytes_for_level_multiplier=4",
        )
        .unwrap();
    let db = RocksDb::open(&theirs, temp.path()).unwrap();
    overwrite(|k, v| db.put(k, v).unwrap());
    db.flush().unwrap();
    db.wait_for_compaction().unwrap();
    db.close();
    let left = cursors(temp.path());
    assert!(!left.is_empty());
    assert_eq!(opened_again(temp.path()), left);
}
