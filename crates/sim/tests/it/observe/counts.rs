//! After the same operations, tickers and histograms have RocksDB's counts, except those where the engines
//! work differently.

use std::collections::BTreeMap;

use sim::oracle;

use super::Pair;

/// Counts that may differ, and why.
const MAY_DIFFER: &[(&str, &str)] = &[
    ("block.cache.bytes.", "blocks have other sizes in memory"),
    (
        "block.cache.data.bytes.insert",
        "blocks have other sizes in memory",
    ),
    (
        "block.cache.hit",
        "an iterator of ours may ask for a block once more",
    ),
    (
        "block.cache.data.hit",
        "an iterator of ours may ask for a block once more",
    ),
    (
        "block.checksum.compute.count",
        "meta blocks are read once, at open",
    ),
    (
        "bytes.compressed.",
        "tables have format version 5 here, 7 there",
    ),
    (
        "bytes.decompressed.",
        "tables have format version 5 here, 7 there",
    ),
    (
        "bytes.compression_bypassed",
        "tables have format version 5 here, 7 there",
    ),
    (
        "compact.read.bytes",
        "here: bytes of files, there: bytes that were read",
    ),
    (
        "compact.write.bytes",
        "tables have format version 5 here, 7 there",
    ),
    ("compaction.times.cpu_micros", "times are no counts"),
    ("compaction.total.time.cpu_micros", "times are no counts"),
    ("file.read.", "files are read in other portions"),
    ("file.write.", "files are written in larger portions"),
    ("files.deleted.immediately", "logs are reused here"),
    (
        "flush.memtable.memory.bytes",
        "memtables have another structure",
    ),
    (
        "flush.memtable.total.data.size.bytes",
        "there, lengths of keys and values are in it",
    ),
    (
        "flush.write.bytes",
        "tables have format version 5 here, 7 there",
    ),
    ("last.level.read.", "files are read in other portions"),
    (
        "manifest.file.sync.micros",
        "the MANIFEST is begun in other portions",
    ),
    ("non.last.level.read.", "files are read in other portions"),
    (
        "non.last.level.seek.",
        "iterators over a level are not told apart by filters",
    ),
    (
        "last.level.seek.",
        "iterators over a level are not told apart by filters",
    ),
    (
        "number.block.decompressed",
        "meta blocks are read once, at open",
    ),
    ("number.superversion_", "Views are not counted"),
    (
        "numfiles.in.singlecompaction",
        "there it is not counted in manual compactions",
    ),
    (
        "num.subcompactions.scheduled",
        "there it is counted only for several parts",
    ),
    (
        "number.iter.skip",
        "turning round passes the same entry there",
    ),
    ("read.block.", "meta blocks are read once, at open"),
    ("sst.batch.size", "a wave of reads is not a batch"),
    ("sst.read.micros", "files are read in other portions"),
    ("sst.write.micros", "files are written in larger portions"),
    ("table.open.prefetch.tail", "the tail is read once"),
    ("wal.", "logs are made ahead"),
];

fn may_differ(name: &str) -> bool {
    MAY_DIFFER.iter().any(|(start, _)| name.starts_with(start))
}

/// The count behind each name.
fn counts(text: &str) -> BTreeMap<String, u64> {
    let of = |line: &str| {
        let (name, rest) = line.split_once(' ')?;
        let (_, count) = rest.split_once("COUNT : ")?;
        let count = count.split(' ').next()?.parse().ok()?;
        Some((name.strip_prefix("rocksdb.")?.to_owned(), count))
    };
    text.lines().filter_map(of).collect()
}

fn compare(pair: &Pair) {
    let ours = counts(&pair.statistics.to_string());
    let theirs = counts(&pair.their_options.statistics().unwrap());
    let mut differ = Vec::new();
    for (name, &count) in &theirs {
        let mine = ours.get(name).copied().unwrap_or(0);
        if mine != count && !may_differ(name) {
            differ.push(format!("{name}: {mine}, theirs {count}"));
        }
        // RocksDB's event is counted here too.
        if count > 0 && mine == 0 && !NOT_HERE.iter().any(|n| name.starts_with(n)) {
            differ.push(format!("{name}: not counted, theirs {count}"));
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// Counts of things that Ironstone does not have.
const NOT_HERE: &[&str] = &[
    "file.read.flush.micros",
    "number.superversion_",
    "last.level.seek.",
    "non.last.level.seek.",
    "sst.batch.size",
    "table.open.prefetch.tail",
    "files.deleted.immediately",
];

#[test]
fn writes_flushes_and_compactions_count_as_in_rocksdb() {
    let Some(lib) = oracle::rocksdb() else { return };
    let pair = Pair::open(&lib);
    pair.fill_levels();
    compare(&pair);
}

#[test]
fn reads_count_as_in_rocksdb() {
    let Some(lib) = oracle::rocksdb() else { return };
    let pair = Pair::open(&lib);
    for i in 0..1000 {
        pair.put(2 * i..2 * i + 1);
    }
    pair.flush();
    for i in 0..1000 {
        pair.put(2 * i + 1..2 * i + 2);
    }
    pair.flush();
    (0..100).for_each(|i| pair.delete(&format!("key{i:06}")));
    for i in (0..3000).step_by(5) {
        pair.get(&format!("key{i:06}"));
    }
    let mut ours = pair.ours.iterator().unwrap();
    let mut theirs = pair.theirs.iterator();
    ours.seek_to_first();
    theirs.seek_to_first();
    for _ in 0..300 {
        assert_eq!(ours.key(), theirs.key());
        ours.next();
        theirs.next();
    }
    for _ in 0..20 {
        ours.prev();
        theirs.prev();
    }
    ours.seek(b"zzz");
    theirs.seek(b"zzz");
    drop((ours, theirs));
    compare(&pair);
}
