//! Merge operators: how written operands change the value below them.
//!
//! ```text
//!   write:    Merge(key, operand)                   nothing is read
//!   read:     value ← op₁ ← op₂ ← … ← opₙ           full merge, oldest operand first
//!   compact:  op₁ ← op₂ becomes one operand         partial merge, if the operator supports it
//! ```
//!
//! A database stores only the name of an operator, as a property of each table and in the OPTIONS
//! file. The built-in operators have RocksDB's names and results (`utilities/merge_operators`), and
//! [`parse`] finds them under the names that RocksDB accepts.
//!
//! Operators are users' code: [`full`] and [`partial`] call them and catch panics.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::error::{Error, Result};

/// Defines how operands change values. The results must depend on the arguments only.
pub trait MergeOperator: Send + Sync {
    /// The name that is stored in tables and in the OPTIONS file.
    fn name(&self) -> &str;

    /// The value of `key` after `operands`, oldest first, are applied to `existing`, which is
    /// `None` if the key does not exist. Returns `None` if the merge fails: reads of the key then
    /// fail, and compactions keep the operands unchanged.
    fn full_merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Option<Vec<u8>>;

    /// One operand with the combined effect of `operands`, oldest first; `None` if there is none.
    /// Called with at least two operands, or with one if [`MergeOperator::allow_single_operand`]
    /// returns true.
    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let _ = (key, operands);
        None
    }

    /// Whether a partial merge of a single operand is useful, for example because it makes the operand
    /// smaller.
    fn allow_single_operand(&self) -> bool {
        false
    }

    /// The value of `merge_operator` in an OPTIONS file.
    fn options_text(&self) -> String {
        self.name().to_owned()
    }
}

impl fmt::Debug for dyn MergeOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.options_text())
    }
}

/// A merge operator from a closure. The closure gets the key, the existing value, and the operands, oldest first, and
/// returns the new value, or `None` if the merge fails. `name` is stored: a database that was written with an operator
/// opens with one of the same name.
///
/// ```
/// let max = base::merge::merge_operator("Longest", |_key, existing, operands| {
///     let all = existing.into_iter().chain(operands.iter().copied());
///     all.max_by_key(|value| value.len()).map(<[u8]>::to_vec)
/// });
/// assert_eq!(max.full_merge(b"k", Some(b"aa"), &[b"a", b"aaa"]).unwrap(), b"aaa");
/// ```
pub fn merge_operator<F>(name: impl Into<String>, full: F) -> Arc<dyn MergeOperator>
where
    F: Fn(&[u8], Option<&[u8]>, &[&[u8]]) -> Option<Vec<u8>> + Send + Sync + 'static,
{
    Arc::new(Full {
        name: name.into(),
        full,
    })
}

/// A merge operator from a closure that applies one operand to the existing value, to an older operand, or to nothing:
/// for operands that have the same form as values and can be combined before the value is known. The closure returns
/// `None` if the merge fails.
///
/// ```
/// let sum = base::merge::associative_merge_operator("Sum", |_key, existing, operand| {
///     let number = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
///     let sum = existing.map_or(Some(0), number)? + number(operand)?;
///     Some(sum.to_le_bytes().to_vec())
/// });
/// let one = 1u64.to_le_bytes();
/// assert_eq!(sum.full_merge(b"k", None, &[&one, &one]).unwrap(), 2u64.to_le_bytes());
/// assert_eq!(sum.partial_merge(b"k", &[&one, &one]).unwrap(), 2u64.to_le_bytes());
/// ```
pub fn associative_merge_operator<F>(name: impl Into<String>, merge: F) -> Arc<dyn MergeOperator>
where
    F: Fn(&[u8], Option<&[u8]>, &[u8]) -> Option<Vec<u8>> + Send + Sync + 'static,
{
    Arc::new(Associative {
        name: name.into(),
        merge,
    })
}

/// See [`merge_operator`].
struct Full<F> {
    name: String,
    full: F,
}

impl<F> MergeOperator for Full<F>
where
    F: Fn(&[u8], Option<&[u8]>, &[&[u8]]) -> Option<Vec<u8>> + Send + Sync,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn full_merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Option<Vec<u8>> {
        (self.full)(key, existing, operands)
    }
}

/// See [`associative_merge_operator`].
struct Associative<F> {
    name: String,
    merge: F,
}

impl<F> MergeOperator for Associative<F>
where
    F: Fn(&[u8], Option<&[u8]>, &[u8]) -> Option<Vec<u8>> + Send + Sync,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn full_merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Option<Vec<u8>> {
        let (first, rest) = operands.split_first()?;
        let merged = (self.merge)(key, existing, first)?;
        rest.iter().try_fold(merged, |merged, operand| {
            (self.merge)(key, Some(&merged), operand)
        })
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let (first, rest) = operands.split_first()?;
        self.full_merge(key, Some(first), rest)
    }
}

/// Calls [`MergeOperator::full_merge`].
///
/// # Errors
/// `Corruption` naming the operator and the key if the operator fails or panics.
pub fn full(
    operator: &dyn MergeOperator,
    key: &[u8],
    existing: Option<&[u8]>,
    operands: &[&[u8]],
) -> Result<Vec<u8>> {
    let call = || operator.full_merge(key, existing, operands);
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(failed(operator, key, "cannot merge")),
        Err(_) => Err(failed(operator, key, "panicked on")),
    }
}

/// Calls [`MergeOperator::partial_merge`]; a panic counts as `None`.
pub fn partial(operator: &dyn MergeOperator, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
    let call = || operator.partial_merge(key, operands);
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_default()
}

#[cold]
fn failed(operator: &dyn MergeOperator, key: &[u8], what: &str) -> Error {
    let shown = key.get(..64).unwrap_or(key).escape_ascii();
    Error::corruption(format!(
        "merge operator {} {what} the operands of key {shown}",
        operator.name()
    ))
}

/// The built-in operator that `text` names: by its name, RocksDB's short name, or
/// `{id=name;option=value;}`; `Ok(None)` for `nullptr` and for empty text.
///
/// # Errors
/// `NotSupported` if there is no such built-in operator; `InvalidArgument` for an option that it does
/// not have.
pub fn parse(text: &str) -> Result<Option<Arc<dyn MergeOperator>>> {
    let text = text.trim();
    let inner = text.strip_prefix('{').and_then(|t| t.strip_suffix('}'));
    let (mut id, mut delimiter, mut odd) = (inner.is_none().then_some(text), None, None);
    for member in inner.unwrap_or_default().split(';') {
        match member.split_once('=') {
            None if member.trim().is_empty() => {}
            Some((name, value)) if name.trim() == "id" => id = Some(value.trim()),
            Some((name, value)) if name.trim() == "delimiter" => delimiter = Some(value),
            _ => odd = odd.or(Some(member)),
        }
    }
    let id = id.unwrap_or_default();
    let delimiter = |default: &str| delimiter.unwrap_or(default).as_bytes().to_vec();
    let operator: Option<Arc<dyn MergeOperator>> = match id {
        "" | "nullptr" => None,
        StringAppendOperator::NAME | "stringappend" => {
            Some(Arc::new(StringAppendOperator::new(delimiter(","))))
        }
        StringAppendTestOperator::NAME | "stringappendtest" => {
            Some(Arc::new(StringAppendTestOperator::new(delimiter(","))))
        }
        UInt64AddOperator::NAME | "uint64add" => Some(Arc::new(UInt64AddOperator)),
        PutOperator::NAME | "put" | "put_v1" => Some(Arc::new(PutOperator)),
        MaxOperator::NAME | "max" => Some(Arc::new(MaxOperator)),
        BytesXorOperator::NAME | "bytesxor" => Some(Arc::new(BytesXorOperator)),
        // An unknown operator may have any options.
        _ => {
            return Err(Error::not_supported(format!(
                "merge_operator = {text}, which is not built in"
            ))
            .hint("open the database with the operator in its column family's options"));
        }
    };
    match odd {
        None => Ok(operator),
        Some(member) => Err(Error::invalid_argument(format!(
            "merge_operator = {text}: {member:?} is not known"
        ))),
    }
}

/// Folds `operands` into `first`, or into the first of them.
fn fold(
    first: Option<&[u8]>,
    operands: &[&[u8]],
    mut add: impl FnMut(&mut Vec<u8>, &[u8]),
) -> Option<Vec<u8>> {
    let (first, rest) = match first {
        Some(first) => (first, operands),
        None => operands.split_first().map(|(f, rest)| (*f, rest))?,
    };
    let mut out = first.to_vec();
    for operand in rest {
        add(&mut out, operand);
    }
    Some(out)
}

/// Appends a delimiter and the operand to the value.
#[derive(Clone, Debug)]
pub struct StringAppendOperator {
    delimiter: Vec<u8>,
}

impl StringAppendOperator {
    /// The stored name.
    pub const NAME: &'static str = "StringAppendOperator";

    /// An operator with this delimiter, which may be empty. RocksDB's default is `,`.
    pub fn new(delimiter: impl Into<Vec<u8>>) -> Self {
        Self {
            delimiter: delimiter.into(),
        }
    }

    fn join(&self, first: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        fold(first, operands, |out, operand| {
            out.extend_from_slice(&self.delimiter);
            out.extend_from_slice(operand);
        })
    }
}

impl MergeOperator for StringAppendOperator {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn full_merge(&self, _: &[u8], existing: Option<&[u8]>, ops: &[&[u8]]) -> Option<Vec<u8>> {
        self.join(existing, ops)
    }

    fn partial_merge(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.join(None, operands)
    }

    fn options_text(&self) -> String {
        let delimiter = String::from_utf8_lossy(&self.delimiter);
        format!("{{id={};delimiter={delimiter};}}", Self::NAME)
    }
}

/// [`StringAppendOperator`] without partial merges, as used by RocksDB's tests and its `ldb`.
#[derive(Clone, Debug)]
pub struct StringAppendTestOperator(StringAppendOperator);

impl StringAppendTestOperator {
    /// The stored name.
    pub const NAME: &'static str = "StringAppendTESTOperator";

    /// An operator with this delimiter.
    pub fn new(delimiter: impl Into<Vec<u8>>) -> Self {
        Self(StringAppendOperator::new(delimiter))
    }
}

impl MergeOperator for StringAppendTestOperator {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn full_merge(&self, _: &[u8], existing: Option<&[u8]>, ops: &[&[u8]]) -> Option<Vec<u8>> {
        self.0.join(existing, ops)
    }

    fn options_text(&self) -> String {
        let delimiter = String::from_utf8_lossy(&self.0.delimiter);
        format!("{{id={};delimiter={delimiter};}}", Self::NAME)
    }
}

/// Adds little-endian `u64`s; the sum wraps. A value or operand that is not 8 bytes long counts as 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct UInt64AddOperator;

impl UInt64AddOperator {
    /// The stored name.
    pub const NAME: &'static str = "UInt64AddOperator";

    fn number(bytes: &[u8]) -> u64 {
        bytes.try_into().map_or(0, u64::from_le_bytes)
    }

    fn sum<'a>(bytes: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
        let sum = bytes
            .into_iter()
            .fold(0u64, |sum, b| sum.wrapping_add(Self::number(b)));
        sum.to_le_bytes().to_vec()
    }
}

impl MergeOperator for UInt64AddOperator {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn full_merge(&self, _: &[u8], existing: Option<&[u8]>, ops: &[&[u8]]) -> Option<Vec<u8>> {
        Some(Self::sum(existing.into_iter().chain(ops.iter().copied())))
    }

    fn partial_merge(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        Some(Self::sum(operands.iter().copied()))
    }
}

/// The newest operand is the value: a merge that behaves like a put.
#[derive(Clone, Copy, Debug, Default)]
pub struct PutOperator;

impl PutOperator {
    /// The stored name.
    pub const NAME: &'static str = "PutOperator";
}

impl MergeOperator for PutOperator {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn full_merge(&self, _: &[u8], _: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        operands.last().map(|o| o.to_vec())
    }

    fn partial_merge(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        operands.last().map(|o| o.to_vec())
    }
}

/// The largest of value and operands, compared as bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct MaxOperator;

impl MaxOperator {
    /// The stored name.
    pub const NAME: &'static str = "MaxOperator";
}

impl MergeOperator for MaxOperator {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn full_merge(&self, _: &[u8], existing: Option<&[u8]>, ops: &[&[u8]]) -> Option<Vec<u8>> {
        let all = existing.into_iter().chain(ops.iter().copied());
        all.max().map(<[u8]>::to_vec)
    }

    fn partial_merge(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        operands.iter().copied().max().map(<[u8]>::to_vec)
    }
}

/// Bitwise exclusive or; the shorter input is padded with zeros.
#[derive(Clone, Copy, Debug, Default)]
pub struct BytesXorOperator;

impl BytesXorOperator {
    /// The stored name.
    pub const NAME: &'static str = "BytesXOR";

    fn xor(first: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        fold(first, operands, |out, operand| {
            out.resize(out.len().max(operand.len()), 0);
            for (byte, with) in out.iter_mut().zip(operand) {
                *byte ^= with;
            }
        })
    }
}

impl MergeOperator for BytesXorOperator {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn full_merge(&self, _: &[u8], existing: Option<&[u8]>, ops: &[&[u8]]) -> Option<Vec<u8>> {
        Self::xor(existing, ops)
    }

    fn partial_merge(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        Self::xor(None, operands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(text: &str, existing: Option<&[u8]>, operands: &[&[u8]]) -> Vec<u8> {
        let operator = parse(text).unwrap().unwrap();
        full(&*operator, b"k", existing, operands).unwrap()
    }

    #[test]
    fn built_in_operators_merge_as_rocksdbs() {
        let ops: &[&[u8]] = &[b"a", b"", b"c"];
        assert_eq!(merged("stringappend", None, ops), b"a,,c");
        assert_eq!(merged("stringappend", Some(b""), ops), b",a,,c");
        let own = "{id=StringAppendOperator;delimiter=::;}";
        assert_eq!(merged(own, Some(b"x"), ops), b"x::a::::c");
        assert_eq!(merged("stringappendtest", Some(b"x"), ops), b"x,a,,c");
        let one = 1u64.to_le_bytes();
        assert_eq!(merged("uint64add", None, &[&one, &one]), 2u64.to_le_bytes());
        let max = u64::MAX.to_le_bytes();
        assert_eq!(merged("uint64add", Some(&max), &[&one]), 0u64.to_le_bytes());
        assert_eq!(merged("uint64add", Some(b"short"), &[&one, b"x"]), one);
        assert_eq!(merged("put", Some(b"x"), ops), b"c");
        assert_eq!(merged("max", Some(b"b"), ops), b"c");
        assert_eq!(merged("max", Some(b"d"), ops), b"d");
        assert_eq!(
            merged("bytesxor", Some(&[1, 2]), &[&[3], &[0, 0, 9]]),
            [2, 2, 9]
        );
    }

    #[test]
    fn partial_merges_do_not_change_the_result() {
        let names = ["stringappend", "uint64add", "put", "max", "bytesxor"];
        let ops: [&[u8]; 3] = [b"12345678", b"b", b"abcdefgh"];
        for operator in names.map(|n| parse(n).unwrap().unwrap()) {
            for existing in [None, Some(&b"87654321"[..]), Some(&b""[..])] {
                let want = full(&*operator, b"k", existing, &ops).unwrap();
                let joined = partial(&*operator, b"k", &ops[..2]).unwrap();
                let have = full(&*operator, b"k", existing, &[&joined, ops[2]]).unwrap();
                assert_eq!(have, want, "{operator:?} on {existing:?}");
            }
        }
        let test = parse("stringappendtest").unwrap().unwrap();
        assert_eq!(partial(&*test, b"k", &ops), None);
    }

    #[test]
    fn names_that_rocksdb_accepts_are_found() {
        for text in ["", "nullptr", " nullptr "] {
            assert!(parse(text).unwrap().is_none());
        }
        let written = [
            "{id=StringAppendOperator;delimiter=,;}",
            "{id=StringAppendTESTOperator;delimiter=,;}",
            "UInt64AddOperator",
            "PutOperator",
            "MaxOperator",
            "BytesXOR",
        ];
        for text in written {
            assert_eq!(parse(text).unwrap().unwrap().options_text(), text);
        }
        let e = parse("MyOperator").unwrap_err().to_string();
        assert!(e.contains("MyOperator, which is not built in"), "{e}");
        let ttl = "{user_operator={id=StringAppendOperator;delimiter=,;};id=TtlMergeOperator;}";
        let e = parse(ttl).unwrap_err();
        assert_eq!(e.kind(), crate::ErrorKind::NotSupported, "{e}");
        let e = parse("{id=put;delimeter=,;}").unwrap_err().to_string();
        assert!(e.contains("delimeter=,"), "{e}");
    }

    #[test]
    fn an_operator_that_fails_is_named() {
        struct Bad;
        impl MergeOperator for Bad {
            fn name(&self) -> &'static str {
                "Bad"
            }
            fn full_merge(&self, key: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Option<Vec<u8>> {
                assert!(key == b"none", "a bug in an operator");
                None
            }
            fn partial_merge(&self, _: &[u8], _: &[&[u8]]) -> Option<Vec<u8>> {
                panic!("another")
            }
        }
        let e = full(&Bad, b"none", None, &[b"x"]).unwrap_err();
        assert!(e.is_corruption());
        assert!(
            e.to_string().contains("merge operator Bad cannot merge"),
            "{e}"
        );
        let e = full(&Bad, b"key\0", None, &[b"x"]).unwrap_err().to_string();
        assert!(
            e.contains("Bad panicked on the operands of key key\\x00"),
            "{e}"
        );
        assert_eq!(partial(&Bad, b"k", &[b"a", b"b"]), None);
    }
}
