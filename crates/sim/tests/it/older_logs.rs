//! Logs that older versions of Ironstone wrote, whose notes and fences have no nonces. They are read, and
//! their fences still tell damage from a torn tail.

use std::collections::BTreeMap;

use ironstone::{Db, Options};
use sim::dirs;
use sim::frozen::{self, Frozen};

/// The number of puts in the database, all of them synced.
const PUTS: u64 = 12;

/// The files of the database in tests/data.
fn files() -> BTreeMap<String, Vec<u8>> {
    let text = include_str!("../data/logs_without_nonces.txt");
    let mut out: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        match line.strip_prefix("  ") {
            None => name = line.to_owned(),
            Some(hex) => {
                let digits = |i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
                let bytes = (0..hex.len()).step_by(2).map(digits);
                out.entry(name.clone()).or_default().extend(bytes);
            }
        }
    }
    out
}

fn count(db: &Db) -> u64 {
    let entries = db.property("rocksdb.num-entries-active-mem-table");
    entries.unwrap().parse().unwrap()
}

#[test]
fn logs_without_nonces_keep_their_protection() {
    let temp = dirs::scratch().unwrap();
    for (name, bytes) in files() {
        std::fs::write(temp.path().join(name), bytes).unwrap();
    }
    let state = dirs::State::of(temp.path()).unwrap();
    let whole = Frozen::of(&state);
    let open = |fs: Frozen| Db::open_read_only(frozen::DIR, &crate::rot::options(fs));
    assert_eq!(count(&open(whole.clone()).unwrap()), PUTS);
    let mut refused = 0;
    for log in ["000001.log", "000004.log"] {
        let bytes = state.get(log).unwrap();
        for at in 0..bytes.len() {
            let mut bad = bytes.to_vec();
            bad[at] ^= 0x10;
            match open(whole.with(log, bad)) {
                Err(e) => {
                    assert!(e.is_corruption(), "{log} at {at}: {e}");
                    refused += 1;
                }
                // The last put has no fence behind it.
                Ok(db) => assert!(count(&db) >= PUTS - 1, "{log} at {at}: {}", count(&db)),
            }
        }
    }
    assert!(refused > 1000, "{refused}");
    // After an open for writing, its logs stay in use behind new ones.
    let mut options = Options::default();
    options.db.avoid_flush_during_recovery = true;
    for i in 0..3_u64 {
        let db = Db::open(temp.path(), &options).unwrap();
        assert_eq!(count(&db), PUTS + i);
        db.put(format!("new{i}"), "value").unwrap();
        db.close().unwrap();
    }
}
