//! Comparisons of reads with the model.

use base::rng::Rng;
use ironstone::{ColumnFamily, Db, DbIterator, ReadOptions};

use super::store::Family;
use crate::oracle::content;

type Check = Result<(), String>;

fn show(bytes: Option<&[u8]>) -> String {
    match bytes {
        None => "nothing".to_owned(),
        Some(b) => format!(
            "{} ({} bytes)",
            b[..b.len().min(40)].escape_ascii(),
            b.len()
        ),
    }
}

/// Checks a get.
pub(super) fn get(
    db: &Db,
    cf: &ColumnFamily,
    options: &ReadOptions,
    key: &[u8],
    want: Option<&[u8]>,
) -> Check {
    let have = db
        .cf(cf)
        .with(options)
        .get(key)
        .map_err(|e| format!("get {}: {e}", key.escape_ascii()))?;
    if have.as_deref() == want {
        return Ok(());
    }
    Err(format!(
        "get {} of {:?}: expected {}, found {}",
        key.escape_ascii(),
        cf.name(),
        show(want),
        show(have.as_deref())
    ))
}

/// Checks the other ways to read keys.
pub(super) fn other_gets(
    db: &Db,
    cf: &ColumnFamily,
    options: &ReadOptions,
    keys: &[Vec<u8>],
    want: &Family,
) -> Check {
    let failed =
        |what: &str, key: &[u8]| format!("{what} {} of {:?}", key.escape_ascii(), cf.name());
    let have = db.cf(cf).with(options).multi_get(keys);
    if have.len() != keys.len() {
        return Err(format!("multi_get: {} of {} keys", have.len(), keys.len()));
    }
    for (key, have) in keys.iter().zip(have) {
        let have = have.map_err(|e| format!("{}: {e}", failed("multi_get", key)))?;
        let value = want.get(key);
        if have.as_deref() != value {
            let (want, have) = (show(value), show(have.as_deref()));
            let what = failed("multi_get", key);
            return Err(format!("{what}: expected {want}, found {have}"));
        }
        if value.is_some() && !db.cf(cf).with(options).key_may_exist(key) {
            return Err(failed("key_may_exist says no to", key));
        }
    }
    let Some(key) = keys.first() else {
        return Ok(());
    };
    let have = db.cf(cf).with(options).get_entity(key);
    let have = have.map_err(|e| format!("{}: {e}", failed("get_entity", key)))?;
    let columns = want.columns(key);
    if have != columns {
        let what = failed("get_entity", key);
        return Err(format!("{what}: expected {columns:?}, found {have:?}"));
    }
    Ok(())
}

/// Checks everything in the family, now or at a snapshot.
pub(super) fn everything(
    db: &Db,
    cf: &ColumnFamily,
    options: &ReadOptions,
    want: &Family,
) -> Check {
    let want = want.pairs();
    let cuts = want.iter().step_by(1 + want.len() / 24);
    let cuts: Vec<_> = cuts.map(|(key, _)| key.clone()).collect();
    let scans = [
        ("forward", content::forward(db, cf, options)),
        ("backward", content::backward(db, cf, options)),
        ("ranged", content::in_ranges(db, cf, options, &cuts)),
    ];
    for (way, have) in scans {
        let have = have.map_err(|e| format!("{way} scan of {:?}: {e}", cf.name()))?;
        if let Some(text) = content::pair_difference(&want, &have) {
            return Err(format!("{way} scan of {:?}: {text}", cf.name()));
        }
    }
    Ok(())
}

/// Seeks and steps of an iterator, and the entries that it must show.
pub(super) struct Walk<'a> {
    options: &'a ReadOptions,
    want: &'a Family,
    entries: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> Walk<'a> {
    /// For an iterator with these options over the family.
    pub(super) fn new(options: &'a ReadOptions, want: &'a Family) -> Self {
        let lower = options.iterate_lower_bound.as_deref();
        let upper = options.iterate_upper_bound.as_deref();
        Self {
            options,
            want,
            entries: want.entries(lower, upper),
        }
    }

    fn failed(&self, trace: &[String], what: &str) -> String {
        format!(
            "iterator over {:?} from {} to {}{}: {}: {what}",
            self.want.name,
            show(self.options.iterate_lower_bound.as_deref()),
            show(self.options.iterate_upper_bound.as_deref()),
            if self.options.snapshot.is_some() {
                " at a snapshot"
            } else {
                ""
            },
            trace.join(", ")
        )
    }

    /// Does a seek and some steps; `key` draws keys.
    pub(super) fn steps(
        &self,
        it: &mut DbIterator,
        rng: &mut Rng,
        mut key: impl FnMut(&mut Rng) -> Vec<u8>,
    ) -> Check {
        let mut trace: Vec<String> = Vec::new();
        let mut at: Option<usize> = None;
        for _ in 0..=rng.below(30) {
            let choice = rng.below(if at.is_none() { 4 } else { 24 });
            let target = if choice < 4 { key(rng) } else { Vec::new() };
            let (name, new) = go(it, choice, &target, at, &self.entries, self.want);
            at = new;
            trace.push(name);
            it.status()
                .map_err(|e| self.failed(&trace, &e.to_string()))?;
            let have = it.valid().then(|| (it.key(), it.value()));
            let expected = at.map(|i| self.entries[i]);
            if have != expected {
                let what = format!(
                    "expected {} = {}, found {} = {}",
                    show(expected.map(|e| e.0)),
                    show(expected.map(|e| e.1)),
                    show(have.map(|e| e.0)),
                    show(have.map(|e| e.1)),
                );
                return Err(self.failed(&trace, &what));
            }
            if it.valid() && Some(it.columns()) != self.want.columns(it.key()) {
                return Err(self.failed(&trace, "other columns"));
            }
        }
        Ok(())
    }
}

/// Moves the iterator; returns a description, and the index of the entry where it should be now.
fn go(
    it: &mut DbIterator,
    choice: u64,
    target: &[u8],
    at: Option<usize>,
    entries: &[(&[u8], &[u8])],
    family: &Family,
) -> (String, Option<usize>) {
    match choice {
        0 => {
            it.seek_to_first();
            ("first".to_owned(), (!entries.is_empty()).then_some(0))
        }
        1 => {
            it.seek_to_last();
            ("last".to_owned(), entries.len().checked_sub(1))
        }
        2 => {
            it.seek(target);
            let i = entries.partition_point(|(k, _)| family.before(k, target));
            let name = format!("seek {}", target.escape_ascii());
            (name, (i < entries.len()).then_some(i))
        }
        3 => {
            it.seek_for_prev(target);
            let i = entries.partition_point(|(k, _)| !family.before(target, k));
            let name = format!("seek_for_prev {}", target.escape_ascii());
            (name, i.checked_sub(1))
        }
        4..16 => {
            it.next();
            let new = at.map(|i| i + 1).filter(|&i| i < entries.len());
            ("next".to_owned(), new)
        }
        _ => {
            it.prev();
            ("prev".to_owned(), at.and_then(|i| i.checked_sub(1)))
        }
    }
}
