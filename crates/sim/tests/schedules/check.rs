//! What must be true of a database after any schedule.

use std::collections::{BTreeMap, BTreeSet};

use base::Result;
use ironstone::Db;

use crate::book::{Outcome, Pages, Write};

/// The key that every write appends its name to.
pub(crate) const LIST: &str = "~list";
/// The family that some writes are also in.
pub(crate) const SECOND: &str = "second";

/// The content of the database.
pub(crate) struct Found {
    list: Vec<String>,
    first: BTreeSet<String>,
    second: BTreeSet<String>,
}

fn names(list: Option<Vec<u8>>) -> Vec<String> {
    let text = String::from_utf8(list.unwrap_or_default()).unwrap();
    text.split(',')
        .filter(|t| !t.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The names of all writes in the first family, in their order.
pub(crate) fn list(db: &Db) -> Result<Vec<String>> {
    Ok(names(db.get(LIST)?))
}

pub(crate) fn read(db: &Db) -> Found {
    let second = db
        .column_family(SECOND)
        .expect("the second family is there");
    let keys = |family| {
        let mut keys = BTreeSet::new();
        let mut it = db.cf(family).iterator().unwrap();
        it.seek_to_first();
        while it.valid() {
            keys.insert(String::from_utf8(it.key().to_vec()).unwrap());
            it.next();
        }
        it.status().unwrap();
        keys.remove(LIST);
        keys
    };
    Found {
        list: list(db).unwrap(),
        first: keys(&db.default_column_family()),
        second: keys(&second),
    }
}

/// The writes that have to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Must {
    /// All acknowledged writes.
    All,
    /// The durable writes.
    Durable,
}

/// Each merge must be there once, in an order that the writes allow.
pub(crate) fn check_list(list: &[String], writes: &BTreeMap<String, Write>) {
    let once: BTreeSet<_> = list.iter().collect();
    assert_eq!(once.len(), list.len(), "merged twice: {list:?}");
    for (i, later) in list.iter().enumerate() {
        let Some(write) = writes.get(later) else {
            panic!("{later} was never written: {list:?}")
        };
        assert_ne!(
            write.outcome,
            Outcome::Refused,
            "{later} was refused: {list:?}"
        );
        for earlier in list.iter().take(i) {
            if let Outcome::Done(done) = write.outcome
                && let Some(e) = writes.get(earlier)
            {
                assert!(e.begun < done, "{earlier} stands before {later}: {list:?}");
            }
        }
    }
}

/// `durable` are the writes that survive a power cut.
pub(crate) fn check(found: &Found, pages: &Pages, durable: &BTreeSet<String>, must: Must) {
    let Found {
        list,
        first,
        second,
    } = found;
    check_list(list, &pages.writes);
    let listed: BTreeSet<String> = list.iter().cloned().collect();
    for (name, write) in &pages.writes {
        let there = listed.contains(name);
        let done = matches!(write.outcome, Outcome::Done(_));
        let durable = durable.contains(name);
        let promised = match must {
            Must::All => done,
            Must::Durable => durable,
        };
        assert!(
            there || !promised,
            "{name} is lost, {must:?}: {write:?}; {list:?}"
        );
        assert_eq!(there, first.contains(name), "half of {name}: {write:?}");
        if write.logged || must == Must::All {
            let half = second.contains(name) != (there && write.second);
            assert!(!half, "{name} in one family: {write:?}");
        }
        if there && write.logged {
            for (earlier, e) in &pages.writes {
                let Outcome::Done(at) = e.outcome else {
                    continue;
                };
                let hole = e.logged && at < write.begun && !listed.contains(earlier);
                assert!(!hole, "{name} without {earlier} before it: {list:?}");
            }
        }
    }
}
