//! In every state, every property has RocksDB's type, and RocksDB's value where the engines must agree.

use sim::oracle;

use super::Pair;

const NAMES: &str = include_str!("../../data/rocksdb_properties.txt");

/// Numbers that are equal after the same operations.
const EQUAL: &[&str] = &[
    "background-errors",
    "base-level",
    "compaction-abort-count",
    "compaction-pending",
    "estimate-num-keys",
    "is-file-deletions-enabled",
    "is-write-stopped",
    "live-blob-file-size",
    "mem-table-flush-pending",
    "min-obsolete-sst-number-to-keep",
    "num-deletes-active-mem-table",
    "num-deletes-imm-mem-tables",
    "num-entries-active-mem-table",
    "num-entries-imm-mem-tables",
    "num-immutable-mem-table",
    "num-immutable-mem-table-flushed",
    "num-snapshots",
    "oldest-snapshot-sequence",
];

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Absent,
    Number,
    Text,
}

fn kind(text: Option<&String>, number: Option<u64>) -> Kind {
    match (text, number) {
        (None, None) => Kind::Absent,
        (Some(text), Some(n)) => {
            let again: u64 = text.parse().unwrap();
            // Some values change with the time.
            assert_eq!(again == 0, n == 0);
            Kind::Number
        }
        (Some(_), None) => Kind::Text,
        (None, Some(_)) => panic!("a number that is no text"),
    }
}

/// Compares all properties of a family.
fn compare(pair: &Pair, family: &str, state: &str) {
    let ours = pair.ours.column_family(family).unwrap();
    let theirs = pair.theirs.cf(family).unwrap();
    for name in NAMES.lines().filter(|l| !l.starts_with('#')) {
        let text = pair.ours.cf(&ours).property(name);
        let number = pair.ours.cf(&ours).int_property(name);
        let their_text = pair.theirs.property_cf(theirs, name);
        let their_number = pair.theirs.int_property_cf(theirs, name);
        let (mine, other) = (
            kind(text.as_ref(), number),
            kind(their_text.as_ref(), their_number),
        );
        assert_eq!(mine, other, "{name} of {family}, {state}");
        let plain = name.strip_prefix("rocksdb.").unwrap();
        if EQUAL.contains(&plain) || plain.starts_with("num-files-at-level") {
            assert_eq!(text, their_text, "{name} of {family}, {state}");
        }
        if plain.starts_with("aggregated") || plain.starts_with("oldest") {
            let masked = |t: &Option<String>| t.as_deref().map(mask);
            assert_eq!(masked(&text), masked(&their_text), "{name}, {state}");
        }
    }
}

/// The text with `N` for every number, `U` for every unit, and single spaces.
fn mask(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let negative = c == '-' && chars.peek().is_some_and(char::is_ascii_digit);
        if c.is_ascii_digit() || negative {
            while chars.next_if(|c| c.is_ascii_digit() || *c == '.').is_some() {}
            out.push('N');
        } else if c != ' ' || !out.ends_with([' ', '\n']) {
            out.push(c);
        }
    }
    for unit in [" KB", " MB", " GB", " TB"] {
        out = out.replace(&format!("N{unit}"), "N U");
    }
    out
}

/// The forms of the lines of a report. The number of lines of a histogram varies.
fn forms(text: &str) -> Vec<String> {
    let skipped = |l: &&str| !l.starts_with("Block cache ");
    let mut out: Vec<String> = text.lines().filter(skipped).map(mask).collect();
    let bucket = |l: &str| l.starts_with('(') || l.starts_with('[');
    out.retain(|l| !bucket(l));
    out
}

#[test]
fn every_property_is_of_rocksdbs_kind_in_every_state() {
    let Some(lib) = oracle::rocksdb() else { return };
    let mut pair = Pair::open(&lib);
    compare(&pair, "default", "empty");
    pair.put(0..1000);
    pair.delete("key000005");
    compare(&pair, "default", "data in the memtable");
    pair.fill_levels();
    compare(&pair, "default", "several levels");
    let (ours, theirs) = (pair.ours.snapshot(), pair.theirs.snapshot());
    pair.put(0..10);
    compare(&pair, "default", "a snapshot held");
    drop((ours, theirs));
    pair.ours
        .create_column_family("second", &ironstone::ColumnFamilyOptions::default())
        .unwrap();
    pair.theirs
        .create_cf("second", &pair.their_options)
        .unwrap();
    compare(&pair, "second", "a second family");
    compare(&pair, "default", "beside a second family");
}

#[test]
fn reports_have_rocksdbs_layout() {
    let Some(lib) = oracle::rocksdb() else { return };
    let pair = Pair::open(&lib);
    let same = |state: &str| {
        for name in [
            "stats",
            "cfstats",
            "cfstats-no-file-histogram",
            "dbstats",
            "levelstats",
            "cf-file-histogram",
            "sstables",
            "blob-stats",
        ] {
            let name = format!("rocksdb.{name}");
            let ours = pair.ours.property(&name).unwrap();
            let theirs = pair.theirs.property(&name).unwrap();
            assert_eq!(
                forms(&ours),
                forms(&theirs),
                "{name}, {state}:\n{ours}\n{theirs}"
            );
        }
    };
    same("empty");
    pair.put(0..100);
    same("data in the memtable");
    pair.fill_levels();
    same("several levels");
}

/// The columns of a line of the table of levels.
fn columns(text: &str, first: &str) -> Vec<String> {
    let is = |l: &&str| l.split_whitespace().next() == Some(first);
    let line = text
        .lines()
        .find(is)
        .unwrap_or_else(|| panic!("{first} in {text}"));
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn reports_have_true_values() {
    let Some(lib) = oracle::rocksdb() else { return };
    let pair = Pair::open(&lib);
    pair.fill_levels();
    pair.put_synced("a");
    pair.put_synced("b");
    let both = |name: &str| {
        (
            pair.ours.property(name).unwrap(),
            pair.theirs.property(name).unwrap(),
        )
    };
    let (ours, theirs) = both("rocksdb.cfstats");
    for first in ["L0", "L6", "Sum", "Int", "Low", "High"] {
        let (a, b) = (columns(&ours, first), columns(&theirs, first));
        // Number of files; number of jobs, of entries read, of entries dropped.
        for at in [1, 17, 19, 20] {
            assert_eq!(a[at], b[at], "column {at} of {first}:\n{ours}\n{theirs}");
        }
    }
    // Reading the property does not end the interval.
    let (ours, theirs) = both("rocksdb.cfstats");
    assert_eq!(columns(&ours, "Int")[17], columns(&theirs, "Int")[17]);
    let (ours, theirs) = both("rocksdb.dbstats");
    let of = |text: &str, line: &str| {
        let line = text.lines().find(|l| l.starts_with(line)).unwrap();
        let end = line.find(", ingest").or(line.find(", written"));
        line[..end.unwrap_or(line.len())].to_owned()
    };
    for line in ["Cumulative writes", "Cumulative WAL", "Interval writes"] {
        assert_eq!(of(&ours, line), of(&theirs, line));
    }
    let (ours, _) = both("rocksdb.dbstats");
    assert!(
        of(&ours, "Interval writes").contains(" 0 writes, 0 keys"),
        "{ours}"
    );
}

#[test]
fn maps_have_rocksdbs_keys() {
    let Some(lib) = oracle::rocksdb() else { return };
    let pair = Pair::open(&lib);
    pair.fill_levels();
    let map = |name: &str| pair.ours.map_property(&format!("rocksdb.{name}"));
    let levels = map("cfstats").unwrap();
    assert_eq!(levels["compaction.L0.NumFiles"], "1.000000");
    assert_eq!(levels["compaction.Sum.CompCount"], "5.000000");
    assert_eq!(levels["total-stops"], "0");
    let writes = map("dbstats").unwrap();
    assert_eq!(writes["db.user_keys_written"], "3001");
    let sums = map("aggregated-table-properties").unwrap();
    assert_eq!(sums["num_entries"], "1500");
    let level = map("aggregated-table-properties-at-level0").unwrap();
    assert_eq!(level["num_entries"], "500");
    let cache = map("block-cache-entry-stats").unwrap();
    let blocks: u64 = cache["count.data-block"].parse().unwrap();
    assert!(blocks > 0, "{cache:?}");
    assert!(map("aggregated-table-properties-at-level7").is_none());
    for number in ["num-snapshots", "levelstats", "nothing"] {
        assert!(map(number).is_none(), "{number}");
    }
}

#[test]
fn numbers_of_all_families_are_added_up() {
    let Some(lib) = oracle::rocksdb() else { return };
    let pair = Pair::open(&lib);
    let second = pair
        .ours
        .create_column_family("second", &ironstone::ColumnFamilyOptions::default())
        .unwrap();
    pair.ours.put("a", "1").unwrap();
    pair.ours.cf(&second).put("b", "2").unwrap();
    pair.ours.cf(&second).put("c", "2").unwrap();
    let sum = |name: &str| {
        pair.ours
            .aggregated_int_property(&format!("rocksdb.{name}"))
    };
    assert_eq!(sum("estimate-num-keys"), Some(3));
    assert_eq!(sum("num-entries-active-mem-table"), Some(3));
    assert_eq!(
        sum("block-cache-capacity"),
        pair.ours.int_property("rocksdb.block-cache-capacity")
    );
    assert_eq!(sum("levelstats"), None);
}

/// The numbers of files had leading zeros, as in names of files. RocksDB writes them plain, and a program
/// that reads its text compares them as text.
#[test]
fn sstables_says_of_the_same_files_what_rocksdb_says() {
    let Some(lib) = oracle::rocksdb() else { return };
    let pair = Pair::open(&lib);
    pair.fill_levels();
    let theirs = pair.theirs.property("rocksdb.sstables").unwrap();
    pair.theirs.close();
    let options = &pair.options;
    let db = ironstone::Db::open_read_only(pair.dir.path().join("theirs"), options).unwrap();
    let ours = db.property("rocksdb.sstables").unwrap();
    let comparable = |text: &str| -> Vec<String> { text.lines().map(without_luck).collect() };
    assert!(theirs.contains(".."), "{theirs}");
    assert_eq!(comparable(&ours), comparable(&theirs));
}

/// A line of `rocksdb.sstables` without the parts that differ between two runs of the same work: the number
/// of the version, and the file's sampled reads in the last brackets. RocksDB samples one read in 1,024 at
/// random and counts it as 1,024, so that a file that was read once has `(0)` or, rarely, `(1024)`.
fn without_luck(line: &str) -> String {
    let line = line.split(" version# ").next().unwrap_or_default();
    match line.rsplit_once('(') {
        Some((file, reads)) if reads.strip_suffix(')').is_some_and(is_sampled) => file.to_owned(),
        _ => line.to_owned(),
    }
}

fn is_sampled(reads: &str) -> bool {
    reads.parse::<u64>().is_ok_and(|n| n % 1024 == 0)
}
