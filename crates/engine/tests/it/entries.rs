//! Ranges and prefixes as Rust's iterators, beside a `BTreeMap`.

use std::collections::BTreeMap;
use std::ops::Bound;

use base::rng::Rng;
use ironstone::{Comparator, Db, Entries, ErrorKind, Options, ReadOptions};

type Entry = (Vec<u8>, Vec<u8>);

/// A database and the same entries in a map, some in a table and some in memory, and some deleted.
fn filled(rng: &mut Rng, options: &Options) -> (tempfile::TempDir, Db, BTreeMap<Vec<u8>, Vec<u8>>) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), options).unwrap();
    let mut map = BTreeMap::new();
    for i in 0..150u32 {
        let key = some_key(rng);
        if rng.one_in(4) {
            db.delete(&key).unwrap();
            map.remove(&key);
        } else {
            db.put(&key, i.to_string()).unwrap();
            map.insert(key, i.to_string().into_bytes());
        }
        if i == 75 {
            db.flush().unwrap();
        }
    }
    (dir, db, map)
}

/// Few enough that some are met twice, and some lie on bounds; bytes of 0 and 255 among them.
fn some_key(rng: &mut Rng) -> Vec<u8> {
    let byte = |rng: &mut Rng| [0, b'a', b'b', 254, 255][rng.below(5) as usize];
    (0..=rng.below(3)).map(|_| byte(rng)).collect()
}

fn some_bound(rng: &mut Rng) -> Bound<Vec<u8>> {
    match rng.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(some_key(rng)),
        _ => Bound::Excluded(some_key(rng)),
    }
}

/// Takes all of the entries, from the front and from the back as it is drawn, and returns them in order.
fn drain(rng: &mut Rng, mut entries: Entries) -> Vec<Entry> {
    let (mut front, mut back) = (Vec::new(), Vec::new());
    let backward = rng.below(5);
    loop {
        let from_back = rng.below(4) < backward;
        let next = if from_back {
            entries.next_back()
        } else {
            entries.next()
        };
        match next {
            Some(entry) if from_back => back.push(entry.unwrap()),
            Some(entry) => front.push(entry.unwrap()),
            None => break,
        }
    }
    assert!(entries.next().is_none() && entries.next_back().is_none());
    back.reverse();
    front.extend(back);
    front
}

fn between<'a>(
    map: &'a BTreeMap<Vec<u8>, Vec<u8>>,
    range: &'a (Bound<Vec<u8>>, Bound<Vec<u8>>),
) -> impl DoubleEndedIterator<Item = Entry> + 'a {
    let behind_start = |key: &Vec<u8>| match &range.0 {
        Bound::Unbounded => true,
        Bound::Included(start) => key >= start,
        Bound::Excluded(start) => key > start,
    };
    let before_end = |key: &Vec<u8>| match &range.1 {
        Bound::Unbounded => true,
        Bound::Included(end) => key <= end,
        Bound::Excluded(end) => key < end,
    };
    let all = map.iter().map(|(k, v)| (k.clone(), v.clone()));
    all.filter(move |(key, _)| behind_start(key) && before_end(key))
}

#[test]
fn ranges_and_prefixes_are_those_of_a_map() {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let rng = &mut rng;
        let reverse = seed % 4 == 3;
        options.cf.comparator = if reverse {
            Comparator::reverse_bytewise()
        } else {
            Comparator::bytewise()
        };
        let (_dir, db, map) = filled(rng, &options);
        let in_order = |mut wanted: Vec<Entry>| {
            if reverse {
                wanted.reverse();
            }
            wanted
        };
        for _ in 0..50 {
            let range = (some_bound(rng), some_bound(rng));
            let have = drain(rng, db.range(range.clone()).unwrap());
            let (start, end) = range.clone();
            let range = if reverse { (end, start) } else { (start, end) };
            let wanted = in_order(between(&map, &range).collect());
            assert_eq!(have, wanted, "seed {seed}, {range:?}");
            let prefix = some_key(rng);
            let have = drain(rng, db.prefix(&prefix).unwrap());
            let all = map.iter().filter(|(key, _)| key.starts_with(&prefix));
            let wanted = in_order(all.map(|(k, v)| (k.clone(), v.clone())).collect());
            assert_eq!(have, wanted, "seed {seed}, prefix {prefix:?}");
        }
    }
}

/// With `prefix_same_as_start` a cursor ends with the prefix of the key that it is sent to: of the start for one end, and of
/// what is behind the end for the other.
#[test]
fn both_ends_are_those_of_the_range_whatever_its_prefixes() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.cf.prefix_extractor = Some(ironstone::SliceTransform::fixed_prefix(5));
    let db = Db::open(dir.path(), &options).unwrap();
    for key in ["user/1", "user/2", "vase/1"] {
        db.put(key, "").unwrap();
    }
    db.flush().unwrap();
    let cf = db.default_column_family();
    let within = ReadOptions {
        prefix_same_as_start: true,
        ..ReadOptions::default()
    };
    let first = |entry: Option<ironstone::Result<Entry>>| entry.unwrap().unwrap().0;
    let user = || db.cf(&cf).with(&within).prefix("user/").unwrap();
    assert_eq!(first(user().next()), b"user/1");
    assert_eq!(first(user().next_back()), b"user/2");
    assert_eq!(user().count(), 2);
    let all = || db.cf(&cf).with(&within).range("user/2".."w").unwrap();
    assert_eq!((all().count(), all().rev().count()), (2, 2));
}

/// What lies behind an end that is included is nobody's business: a cursor without a bound read on up to the next key.
#[test]
fn a_range_ends_with_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.db.create_if_missing = true;
    let db = Db::open(dir.path(), &options).unwrap();
    for key in ["a", "b", "c1", "c2", "c3", "c4"] {
        db.put(key, "").unwrap();
    }
    let _seen = db.snapshot();
    for key in ["c1", "c2", "c3", "c4"] {
        db.delete(key).unwrap();
    }
    let few = ReadOptions {
        max_skippable_internal_keys: 2,
        ..ReadOptions::default()
    };
    let cf = db.default_column_family();
    let range = db.cf(&cf).with(&few).range("a"..="b").unwrap();
    assert_eq!(
        range.map(|entry| entry.unwrap().0).collect::<Vec<_>>(),
        [b"a", b"b"]
    );
    let mut beyond = db.cf(&cf).with(&few).range("a"..).unwrap();
    let kinds: Vec<_> = (0..4)
        .map(|_| beyond.next().map(|e| e.err().map(|e| e.kind())))
        .collect();
    // An error is the last item.
    assert_eq!(
        kinds,
        [
            Some(None),
            Some(None),
            Some(Some(ErrorKind::Incomplete)),
            None
        ]
    );
}

#[test]
fn every_form_of_a_range_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.db.create_if_missing = true;
    let db = Db::open(dir.path(), &options).unwrap();
    for key in ["a", "b", "c"] {
        db.put(key, key).unwrap();
    }
    let keys = |entries: ironstone::Result<Entries>| -> String {
        let keys = entries.unwrap().map(|entry| entry.unwrap().0);
        String::from_utf8(keys.flatten().collect()).unwrap()
    };
    assert_eq!(keys(db.range(..)), "abc");
    assert_eq!(keys(db.range("a".."c")), "ab");
    assert_eq!(keys(db.range("a"..="c")), "abc");
    assert_eq!(keys(db.range(b"b"..)), "bc");
    assert_eq!(keys(db.range(..vec![b'b'])), "a");
    assert_eq!(keys(db.range(..="b".to_owned())), "ab");
    assert_eq!(keys(db.range("c".."a")), "");
    assert_eq!(keys(db.prefix("")), "abc");
    // What comes later is not shown, and options count.
    let cf = db.default_column_family();
    let before = ReadOptions {
        snapshot: Some(db.snapshot()),
        ..ReadOptions::default()
    };
    let all = db.range(..);
    db.delete("b").unwrap();
    assert_eq!(keys(all), "abc");
    assert_eq!(keys(db.cf(&cf).with(&before).range("b"..)), "bc");
    assert_eq!(keys(db.cf(&cf).with(&before).prefix("b")), "b");
    let refused = |options: &ReadOptions| {
        let e = db.cf(&cf).with(options).range(..).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
    };
    refused(&ReadOptions {
        tailing: true,
        ..ReadOptions::default()
    });
    refused(&ReadOptions {
        iterate_upper_bound: Some(b"b".to_vec()),
        ..ReadOptions::default()
    });
}
