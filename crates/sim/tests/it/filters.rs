//! Compaction filters: when they are called, with which arguments, and what a panic does.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ironstone::{
    CompactionFilter, CompactionFilterFactory, Db, FilterContext, FilterDecision, FilterValue,
    Options, ReadOptions, TableCreationReason,
};
use sim::dirs;
use sim::oracle::content::everything;

/// Drops values `drop`, panics on values `panic`, counts the rest.
#[derive(Default)]
struct Picky {
    kept: AtomicUsize,
}

impl CompactionFilter for Picky {
    fn name(&self) -> &'static str {
        "Picky"
    }

    fn filter(&self, _: usize, _: &[u8], value: FilterValue<'_>) -> FilterDecision {
        match value {
            FilterValue::Value(b"drop") => FilterDecision::Remove,
            FilterValue::Value(b"panic") => panic!("a bug in a filter"),
            _ => {
                self.kept.fetch_add(1, Ordering::Relaxed);
                FilterDecision::Keep
            }
        }
    }
}

fn options() -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o
}

#[test]
fn a_filter_sees_compactions_and_not_flushes() {
    let temp = dirs::scratch().unwrap();
    let filter = Arc::new(Picky::default());
    let mut options = options();
    options.cf.compaction_filter = Some(Arc::<Picky>::clone(&filter));
    let db = Db::open(temp.path(), &options).unwrap();
    for (k, v) in [("a", "1"), ("b", "drop"), ("c", "3")] {
        db.put(k, v).unwrap();
    }
    db.flush().unwrap();
    assert_eq!(db.get("b").unwrap().unwrap(), b"drop");
    assert_eq!(filter.kept.load(Ordering::Relaxed), 0);
    // A manual compaction filters even a table that overlaps nothing.
    let cf = db.default_column_family();
    db.cf(&cf).compact_range(None, None).unwrap();
    assert_eq!(db.get("b").unwrap(), None);
    assert_eq!(filter.kept.load(Ordering::Relaxed), 2);
    assert_eq!(everything(&db).unwrap()[0].1.len(), 2);
}

#[test]
fn a_filter_that_panics_fails_its_compaction_and_nothing_else() {
    let temp = dirs::scratch().unwrap();
    let mut options = options();
    options.cf.compaction_filter = Some(Arc::new(Picky::default()));
    let db = Db::open(temp.path(), &options).unwrap();
    let cf = db.default_column_family();
    for (k, v) in [("a", "1"), ("b", "drop"), ("c", "panic")] {
        db.put(k, v).unwrap();
    }
    db.flush().unwrap();
    let e = db
        .cf(&cf)
        .compact_range(None, None)
        .unwrap_err()
        .to_string();
    assert!(e.contains("compaction filter Picky panicked"), "{e}");
    assert!(e.contains("until the database is reopened"), "{e}");
    let before = everything(&db).unwrap();
    assert_eq!(before[0].1.len(), 3);
    // The database is used without the filter from now on.
    db.put("d", "drop").unwrap();
    db.flush().unwrap();
    db.cf(&cf).compact_range(None, None).unwrap();
    assert_eq!(everything(&db).unwrap()[0].1.len(), 4);
    db.put("c", "3").unwrap();
    drop(db);
    let db = Db::open(temp.path(), &options).unwrap();
    db.flush().unwrap();
    let cf = db.default_column_family();
    db.cf(&cf).compact_range(None, None).unwrap();
    assert_eq!(everything(&db).unwrap()[0].1.len(), 2);
}

#[test]
fn compactions_that_start_by_themselves_survive_a_panic() {
    let temp = dirs::scratch().unwrap();
    let mut options = options();
    options.cf.compaction_filter = Some(Arc::new(Picky::default()));
    options.cf.level0_file_num_compaction_trigger = 2;
    let db = Db::open(temp.path(), &options).unwrap();
    for i in 0..8 {
        db.put("k", "panic").unwrap();
        db.put(i.to_string(), "x").unwrap();
        db.flush().unwrap();
    }
    db.wait_for_compact().unwrap();
    db.put("k", "still").unwrap();
    assert_eq!(everything(&db).unwrap()[0].1.len(), 9);
}

/// Remembers the contexts of the filters that it made; they change every value.
#[derive(Default)]
struct Factory {
    made: Mutex<Vec<FilterContext>>,
}

struct Change;

impl CompactionFilter for Change {
    fn name(&self) -> &'static str {
        "Change"
    }

    fn filter(&self, _: usize, key: &[u8], _: FilterValue<'_>) -> FilterDecision {
        FilterDecision::ChangeValue(key.repeat(2))
    }
}

impl CompactionFilterFactory for Factory {
    fn name(&self) -> &'static str {
        "Factory"
    }

    fn should_filter_table_file_creation(&self, _: TableCreationReason) -> bool {
        true
    }

    fn create(&self, context: &FilterContext) -> Option<Box<dyn CompactionFilter>> {
        self.made.lock().unwrap().push(*context);
        Some(Box::new(Change))
    }
}

#[test]
fn a_factory_may_filter_flushes_too() {
    let temp = dirs::scratch().unwrap();
    let factory = Arc::new(Factory::default());
    let mut options = options();
    options.cf.compaction_filter_factory = Some(Arc::<Factory>::clone(&factory));
    let db = Db::open(temp.path(), &options).unwrap();
    db.put("a", "1").unwrap();
    let snapshot = db.snapshot();
    db.flush().unwrap();
    assert_eq!(db.get("a").unwrap().unwrap(), b"aa");
    // Snapshots do not protect from filters.
    let at = ReadOptions {
        snapshot: Some(snapshot),
        ..ReadOptions::default()
    };
    let cf = db.default_column_family();
    assert_eq!(db.cf(&cf).with(&at).get("a").unwrap().unwrap(), b"aa");
    db.put("b", "2").unwrap();
    db.flush().unwrap();
    db.cf(&cf).compact_range(None, None).unwrap();
    let made = factory.made.lock().unwrap();
    let reasons: Vec<_> = made.iter().map(|c| c.reason).collect();
    use TableCreationReason::{Compaction, Flush};
    assert_eq!(reasons, [Flush, Flush, Compaction]);
    assert!(made[2].is_full_compaction && made[2].is_manual_compaction);
    drop(made);
    drop(db);
    let text = dirs::files(temp.path()).unwrap();
    let (_, path) = text
        .into_iter()
        .rfind(|(n, _)| n.starts_with("OPTIONS-"))
        .unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains("compaction_filter_factory=Factory\n"));
}
