//! Reads everything in a database in every possible way.
//!
//! A scan forward, a scan backward and a read of every key must agree, so a test that compares the result
//! with anything has compared all three.

use std::ops::Bound;

use base::{Error, Result};
use ironstone::{ColumnFamily, Db, ReadOptions};

pub use crate::oracle::FamilyContent;

/// Keys and values in a family's order.
pub type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// A scan of the family, first to last.
pub fn forward(db: &Db, family: &ColumnFamily, options: &ReadOptions) -> Result<Pairs> {
    let mut it = db.cf(family).with(options).iterator()?;
    let mut out = Vec::new();
    it.seek_to_first();
    while it.valid() {
        out.push((it.key().to_vec(), it.value().to_vec()));
        it.next();
    }
    it.status()?;
    Ok(out)
}

/// A scan of the family, last to first, in the order of the keys.
pub fn backward(db: &Db, family: &ColumnFamily, options: &ReadOptions) -> Result<Pairs> {
    let mut it = db.cf(family).with(options).iterator()?;
    let mut out = Vec::new();
    it.seek_to_last();
    while it.valid() {
        out.push((it.key().to_vec(), it.value().to_vec()));
        it.prev();
    }
    it.status()?;
    out.reverse();
    Ok(out)
}

/// The family in ranges that begin and end at these keys, read with one call.
pub fn in_ranges(
    db: &Db,
    family: &ColumnFamily,
    options: &ReadOptions,
    cuts: &[Vec<u8>],
) -> Result<Pairs> {
    let ends = |key: &Vec<u8>| Bound::Excluded(key.clone());
    let begins = |key: &Vec<u8>| Bound::Included(key.clone());
    let starts = std::iter::once(Bound::Unbounded).chain(cuts.iter().map(begins));
    let ends = cuts.iter().map(ends).chain([Bound::Unbounded]);
    let scan = db.cf(family).with(options).multi_scan(starts.zip(ends))?;
    scan.flatten().collect()
}

/// The family's content. Errors: also `Aborted` if the ways to read it disagree.
pub fn family(db: &Db, family: &ColumnFamily) -> Result<Pairs> {
    let options = ReadOptions::default();
    let pairs = forward(db, family, &options)?;
    let disagree = |what: &str, key: &[u8]| {
        Error::aborted(format!(
            "family {:?}: {what} differs from the forward scan at key {}",
            family.name(),
            key.escape_ascii()
        ))
    };
    let back = backward(db, family, &options)?;
    if back != pairs {
        let at = pairs.iter().zip(&back).find(|(a, b)| a != b);
        let key = at.map_or(&b""[..], |(a, _)| &a.0);
        return Err(disagree("the backward scan", key));
    }
    for (key, value) in &pairs {
        if db.cf(family).get(key)?.as_ref() != Some(value) {
            return Err(disagree("get", key));
        }
    }
    Ok(pairs)
}

/// The content of every family, by family id. Errors: as [`family`].
pub fn everything(db: &Db) -> Result<Vec<FamilyContent>> {
    db.column_families()
        .iter()
        .map(|cf| Ok((cf.name().to_owned(), family(db, cf)?)))
        .collect()
}

/// The first difference between two contents, as text; `None` if they are equal. The order of families does
/// not count.
pub fn difference(want: &[FamilyContent], have: &[FamilyContent]) -> Option<String> {
    for (name, _) in have {
        if !want.iter().any(|(n, _)| n == name) {
            return Some(format!("family {name:?} should not exist"));
        }
    }
    for (name, pairs) in want {
        let Some((_, other)) = have.iter().find(|(n, _)| n == name) else {
            return Some(format!("family {name:?} is missing"));
        };
        if let Some(text) = pair_difference(pairs, other) {
            return Some(format!("family {name:?}: {text}"));
        }
    }
    None
}

/// The first difference between two scans, as text.
pub fn pair_difference(want: &[(Vec<u8>, Vec<u8>)], have: &[(Vec<u8>, Vec<u8>)]) -> Option<String> {
    let show = |pair: Option<&(Vec<u8>, Vec<u8>)>| match pair {
        None => "the end".to_owned(),
        Some((k, v)) => format!(
            "{} = {} ({} bytes)",
            k.escape_ascii(),
            v[..v.len().min(40)].escape_ascii(),
            v.len()
        ),
    };
    let n = want.len().max(have.len());
    let at = (0..n).find(|&i| want.get(i) != have.get(i))?;
    Some(format!(
        "entry {at} of {}/{}: expected {}, found {}",
        want.len(),
        have.len(),
        show(want.get(at)),
        show(have.get(at))
    ))
}
