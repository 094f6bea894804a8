//! Statistics have RocksDB's names, in RocksDB's order, printed as RocksDB prints them.

use std::sync::Arc;

use base::stats::{HistogramKind, Statistics, Ticker};
use ironstone::{Db, Options};
use sim::oracle;

#[test]
fn names_and_layout_are_rocksdbs() {
    let Some(lib) = oracle::rocksdb() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut options = lib.options();
    options.create_if_missing(true).enable_statistics();
    let db = tools::librocksdb::RocksDb::open(&options, dir.path().join("theirs")).unwrap();
    db.put(b"a", b"1").unwrap();
    let theirs = options.statistics().unwrap();
    drop(db);

    let statistics = Arc::new(Statistics::new());
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.env.statistics = Some(Arc::clone(&statistics));
    let db = Db::open(dir.path().join("ours"), &options).unwrap();
    db.put(b"a", b"1").unwrap();
    let ours = statistics.to_string();

    let name = |line: &str| line.split(' ').next().unwrap_or("").to_owned();
    let (mut ours_only, mut theirs_only) = (Vec::new(), Vec::new());
    let known: Vec<String> = ours.lines().map(name).collect();
    let real: Vec<String> = theirs.lines().map(name).collect();
    ours_only.extend(known.iter().filter(|n| !real.contains(n)));
    theirs_only.extend(real.iter().filter(|n| !known.contains(n)));
    ours_only.retain(|n| !n.starts_with("ironstone."));
    assert_eq!((ours_only, theirs_only), (vec![], vec![]));
    let words = |text: &str, of: &str| -> Vec<String> {
        let line = text.lines().find(|l| name(l) == of).unwrap_or("");
        let is_number = |w: &&str| w.parse::<f64>().is_err();
        let words = line.split(' ').filter(is_number).map(str::to_owned);
        words.collect()
    };
    for of in ["rocksdb.db.write.micros", "rocksdb.bytes.written"] {
        assert_eq!(words(&ours, of), words(&theirs, of));
    }
    assert_eq!(statistics.get(Ticker::NumberKeysWritten), 1);
    assert_eq!(statistics.histogram(HistogramKind::DbWrite).count(), 1);
}
