//! Every database of the corpus. A covered one reads as RocksDB read it, for a writer and for a reader, and
//! RocksDB reads the same after Ironstone's recovery. One that is not covered yet is refused by name, and
//! left as it is.

use std::collections::BTreeMap;
use std::path::Path;

use ironstone::{Db, ErrorKind, Options};
use sim::corpus::{Entry, entries};
use sim::dirs;
use sim::oracle::content::{FamilyContent, difference, everything};
use sim::oracle::{self, ldb};

/// One line for each scenario or database: `name`, or `name | why not | words of the error`.
const COVERAGE: &str = include_str!("../data/corpus.txt");

/// Why a scenario is not covered, and what the error must say.
struct NotYet {
    reason: &'static str,
    error: &'static str,
}

fn coverage() -> BTreeMap<&'static str, Option<NotYet>> {
    COVERAGE
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| {
            let mut parts = line.split('|').map(str::trim);
            let name = parts.next().unwrap();
            let not_yet = parts.next().map(|reason| NotYet {
                reason,
                error: parts.next().expect("a reason comes with the error's words"),
            });
            (name, not_yet)
        })
        .collect()
}

#[test]
fn every_database_reads_as_rocksdb_read_it_or_is_refused_by_name() {
    let Some(entries) = entries() else { return };
    let coverage = coverage();
    let (mut covered, mut failures) = (0, Vec::new());
    let mut not_yet: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in &entries {
        let line = coverage
            .get(entry.name.as_str())
            .or_else(|| coverage.get(entry.scenario()));
        let result = match line {
            None => Err("the scenario is missing in tests/data/corpus.txt".to_owned()),
            Some(None) => check_covered(entry).inspect(|()| covered += 1),
            Some(Some(why)) => {
                *not_yet.entry(why.reason).or_default() += 1;
                check_refused(entry, why.error)
            }
        };
        if let Err(e) = result {
            failures.push(format!("{}: {e}", entry.name));
        }
    }
    for (reason, n) in not_yet {
        eprintln!("not yet: {reason}: {n}");
    }
    eprintln!("corpus: {covered} of {} covered", entries.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

fn compare(who: &str, want: &[FamilyContent], have: &[FamilyContent]) -> Result<(), String> {
    difference(want, have).map_or(Ok(()), |d| Err(format!("{who}: {d}")))
}

fn options(entry: &Entry) -> Result<Options, String> {
    let mut options = Options::default();
    let operator = entry.merge_operator().map_err(text)?;
    options.cf.merge_operator = base::merge::parse(&operator).map_err(text)?;
    Ok(options)
}

fn check_entities(entry: &Entry, db: &Db) -> Result<(), String> {
    for (family, key, want) in entry.entities().map_err(text)? {
        let cf = db.column_family(&family).ok_or("a family is missing")?;
        let have = db.cf(&cf).get_entity(&key).map_err(text)?;
        if have.as_ref() != Some(&want) {
            let key = key.escape_ascii();
            return Err(format!("entity {key}: expected {want:?}, found {have:?}"));
        }
    }
    Ok(())
}

fn check_covered(entry: &Entry) -> Result<(), String> {
    let temp = dirs::scratch().map_err(text)?;
    let dir = temp.path().join("db");
    dirs::copy(&entry.db(), &dir).map_err(text)?;
    let want = entry.expected().map_err(text)?;
    let options = options(entry)?;

    let before = dirs::State::of(&dir).map_err(text)?;
    let db = Db::open_read_only(&dir, &options).map_err(|e| format!("read-only open: {e}"))?;
    let have = everything(&db).map_err(|e| format!("read-only: {e}"))?;
    compare("read-only", &want, &have)?;
    check_entities(entry, &db)?;
    drop(db);
    let after = dirs::State::of(&dir).map_err(text)?;
    if let Some(changes) = before.changes(&after) {
        return Err(format!("the read-only open changed files: {changes}"));
    }

    for round in ["first open", "second open"] {
        let db = Db::open_all(&dir, &options).map_err(|e| format!("{round}: {e}"))?;
        let have = everything(&db).map_err(|e| format!("{round}: {e}"))?;
        compare(round, &want, &have)?;
        db.close().map_err(|e| format!("{round}: close: {e}"))?;
    }
    check_with_rocksdb(entry, &dir, &want)
}

/// RocksDB 11.8.1, and for a database of 7.8 also RocksDB 7.8.3, read the database after Ironstone.
fn check_with_rocksdb(entry: &Entry, dir: &Path, want: &[FamilyContent]) -> Result<(), String> {
    let families = entry.families().map_err(text)?;
    if entry.release() == "r78" && ldb::available() {
        let names: Vec<&str> = families.iter().map(|(name, _)| name.as_str()).collect();
        let have = ldb::scan_all(dir, &names).map_err(text)?;
        compare("ldb scan after recovery", want, &have)?;
        ldb::check_consistency(dir).map_err(text)?;
    }
    let Some(lib) = oracle::rocksdb() else {
        return Ok(());
    };
    let have = oracle::scan(&lib, dir, |name| {
        let mut options = lib.options();
        if let Some((_, comparator)) = families.iter().find(|(n, _)| n == name) {
            options.set("comparator", comparator)?;
        }
        options.set("merge_operator", &entry.merge_operator()?)?;
        Ok(options)
    })
    .map_err(|e| format!("librocksdb after recovery: {e}"))?;
    compare("librocksdb after recovery", want, &have)
}

fn check_refused(entry: &Entry, error: &str) -> Result<(), String> {
    let temp = dirs::scratch().map_err(text)?;
    let dir = temp.path().join("db");
    dirs::copy(&entry.db(), &dir).map_err(text)?;
    let before = dirs::State::of(&dir).map_err(text)?;
    let options = options(entry)?;
    let opens = [
        ("open_all", Db::open_all(&dir, &options)),
        ("open_read_only", Db::open_read_only(&dir, &options)),
    ];
    for (how, result) in opens {
        let e = match result {
            Err(e) => e,
            Ok(db) => match everything(&db) {
                Err(e) => e,
                Ok(have) => {
                    let want = entry.expected().map_err(text)?;
                    return Err(match difference(&want, &have) {
                        None => format!("{how} works: move the scenario to the covered ones"),
                        Some(d) => format!("{how} should be refused; it read wrong data: {d}"),
                    });
                }
            },
        };
        if e.kind() != ErrorKind::NotSupported || !e.to_string().contains(error) {
            return Err(format!(
                "{how}: {e:?}; expected NotSupported with {error:?}"
            ));
        }
    }
    let after = dirs::State::of(&dir).map_err(text)?;
    match before.changes(&after) {
        None => Ok(()),
        Some(changes) => Err(format!("the refused opens changed files: {changes}")),
    }
}
