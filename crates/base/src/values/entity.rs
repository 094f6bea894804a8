//! Wide-column entities: a value that has named columns.
//!
//! ```text
//!   varint32 1 | varint32 n | n × ( slice name | varint32 length of value ) | values
//!                             names strictly ascending; the default column's name is empty
//! ```
//!
//! Source: RocksDB `db/wide/wide_column_serialization.h`. A plain value is an entity whose only
//! column is the default one, and a plain read of an entity gives its default column, or nothing
//! (an empty value) if it has none.
#![deny(clippy::indexing_slicing)]

use crate::coding::{Decoder, put_slice, put_varint};
use crate::{Error, Result};

/// The name of the column that plain reads see.
pub(crate) const DEFAULT_COLUMN: &[u8] = b"";

/// The only layout so far for entities without blob columns.
const VERSION: u32 = 1;

/// The columns of an entity in the order of their names, each name once.
///
/// ```
/// use base::values::entity::WideColumns;
/// let columns = WideColumns::new([("b", "2"), ("a", "1")]).unwrap();
/// assert_eq!(columns.get(b"b"), Some(&b"2"[..]));
/// let names: Vec<&[u8]> = columns.iter().map(|(name, _)| name).collect();
/// assert_eq!(names, [b"a", b"b"]);
/// assert!(WideColumns::new([("a", "1"), ("a", "2")]).is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WideColumns {
    columns: Vec<(Vec<u8>, Vec<u8>)>,
}

impl WideColumns {
    /// Columns from names and values in any order. Errors: `InvalidArgument` if a name occurs twice.
    pub fn new<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        columns: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self> {
        let mut columns: Vec<_> = columns
            .into_iter()
            .map(|(n, v)| (n.as_ref().to_vec(), v.as_ref().to_vec()))
            .collect();
        columns.sort();
        let twice = columns.iter().zip(columns.iter().skip(1));
        if let Some(((name, _), _)) = twice.into_iter().find(|(a, b)| a.0 == b.0) {
            return Err(Error::invalid_argument(format!(
                "a wide-column entity has column \"{}\" twice",
                name.escape_ascii()
            )));
        }
        Ok(Self { columns })
    }

    /// The one column of a plain value.
    #[doc(hidden)]
    pub fn plain(value: &[u8]) -> Self {
        Self {
            columns: vec![(DEFAULT_COLUMN.to_vec(), value.to_vec())],
        }
    }

    /// Names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.columns.iter().map(|(n, v)| (&n[..], &v[..]))
    }

    /// The value of a column.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let at = self.columns.binary_search_by(|(n, _)| n[..].cmp(name));
        at.ok()
            .and_then(|i| self.columns.get(i))
            .map(|(_, v)| &v[..])
    }

    /// Number of columns.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// True if there is no column.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Sets the default column.
    pub(crate) fn set_default(&mut self, value: Vec<u8>) {
        match self.columns.first_mut() {
            Some((name, old)) if name.is_empty() => *old = value,
            _ => self.columns.insert(0, (DEFAULT_COLUMN.to_vec(), value)),
        }
    }

    /// The stored form. Errors: `InvalidArgument` if a name or value is 4 GiB or longer.
    #[doc(hidden)]
    pub fn encode(&self) -> Result<Vec<u8>> {
        let too_long = |b: &[u8]| u32::try_from(b.len()).is_err();
        if self.iter().any(|(n, v)| too_long(n) || too_long(v)) {
            return Err(Error::invalid_argument(
                "a wide-column entity has a name or value of 4 GiB or more",
            ));
        }
        let bytes: usize = self.iter().map(|(n, v)| n.len() + v.len() + 10).sum();
        let mut out = Vec::with_capacity(10 + bytes);
        put_varint(&mut out, u64::from(VERSION));
        put_varint(&mut out, self.columns.len() as u64);
        for (name, value) in self.iter() {
            put_slice(&mut out, name);
            put_varint(&mut out, value.len() as u64);
        }
        for (_, value) in self.iter() {
            out.extend_from_slice(value);
        }
        Ok(out)
    }

    /// The columns in stored bytes. Errors: as [`default_column`].
    #[doc(hidden)]
    pub fn decode(entity: &[u8]) -> Result<Self> {
        let mut columns = Vec::new();
        let mut values = values_of(entity, |name, len| columns.push((name.to_vec(), len)))?;
        let take = |(name, len)| Some((name, values.bytes(len)?.to_vec()));
        let columns: Option<Vec<_>> = columns.into_iter().map(take).collect();
        columns.map(|columns| Self { columns }).ok_or_else(damaged)
    }
}

/// The value of the default column, empty if there is none. Errors: `Corruption` if the bytes are
/// no entity, `NotSupported` for a layout that is not known.
pub fn default_column(entity: &[u8]) -> Result<&[u8]> {
    let mut default = None;
    let mut values = values_of(entity, |name, len| {
        if name.is_empty() {
            default = Some(len);
        }
    })?;
    values
        .bytes(default.unwrap_or_default())
        .ok_or_else(damaged)
}

/// Calls `visit` with each column's name and length; returns the values, which have these lengths.
fn values_of<'a>(entity: &'a [u8], mut visit: impl FnMut(&'a [u8], usize)) -> Result<Decoder<'a>> {
    let mut d = Decoder::new(entity);
    let version = d.varint32().ok_or_else(damaged)?;
    if version != VERSION {
        return Err(Error::not_supported(format!(
            "wide-column entities of version {version}"
        )));
    }
    let (mut total, mut last) = (0usize, None);
    for _ in 0..d.varint32().ok_or_else(damaged)? {
        let name = d.slice().ok_or_else(damaged)?;
        let len = d.varint32().ok_or_else(damaged)? as usize;
        if last.is_some_and(|last| last >= name) {
            return Err(damaged());
        }
        last = Some(name);
        total = total.checked_add(len).ok_or_else(damaged)?;
        visit(name, len);
    }
    if d.len() == total {
        Ok(d)
    } else {
        Err(damaged())
    }
}

#[cold]
fn damaged() -> Error {
    Error::corruption("a wide-column entity is damaged")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_layout_is_rocksdbs() {
        let e = WideColumns::new([("b", "22"), ("", "d"), ("a", "")]).unwrap();
        let bytes = e.encode().unwrap();
        assert_eq!(bytes, b"\x01\x03\x00\x01\x01a\x00\x01b\x02d22");
        assert_eq!(WideColumns::decode(&bytes).unwrap(), e);
        assert_eq!(default_column(&bytes).unwrap(), b"d");
        let none = WideColumns::new([("a", "1")]).unwrap().encode().unwrap();
        assert_eq!(default_column(&none).unwrap(), b"");
        let empty = WideColumns::default().encode().unwrap();
        assert_eq!(empty, b"\x01\x00");
        assert!(WideColumns::decode(&empty).unwrap().is_empty());
    }

    #[test]
    fn the_default_column_is_set_in_its_place() {
        let mut e = WideColumns::new([("b", "2")]).unwrap();
        e.set_default(b"x".to_vec());
        e.set_default(b"y".to_vec());
        assert_eq!(e, WideColumns::new([("", "y"), ("b", "2")]).unwrap());
        assert_eq!(
            WideColumns::plain(b"v").get(DEFAULT_COLUMN),
            Some(&b"v"[..])
        );
    }

    #[test]
    fn damage_is_found() {
        let names_descend = b"\x01\x02\x01b\x00\x01a\x00";
        let name_twice = b"\x01\x02\x01a\x00\x01a\x00";
        let too_long = b"\x01\x01\x01a\x02x";
        let more_behind = b"\x01\x01\x01a\x00x";
        let many = b"\x01\xff\xff\xff\xff\x0f";
        for bytes in [
            &names_descend[..],
            name_twice,
            too_long,
            more_behind,
            many,
            b"",
        ] {
            assert!(default_column(bytes).unwrap_err().is_corruption());
            assert!(WideColumns::decode(bytes).unwrap_err().is_corruption());
        }
        let e = WideColumns::decode(b"\x02\x00").unwrap_err().to_string();
        assert!(e.contains("entities of version 2"), "{e}");
    }

    proptest! {
        #[test]
        fn encoded_columns_come_back(
            columns in prop::collection::btree_map(
                prop::collection::vec(any::<u8>(), 0..5),
                prop::collection::vec(any::<u8>(), 0..200),
                0..6,
            ),
            garbage in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let e = WideColumns::new(columns).unwrap();
            let bytes = e.encode().unwrap();
            prop_assert_eq!(WideColumns::decode(&bytes).unwrap(), e);
            let same = WideColumns::decode(&garbage).is_ok();
            prop_assert_eq!(default_column(&garbage).is_ok(), same);
        }
    }
}
