//! Stored versions of keys: what each kind means to a reader, and how merge operands are applied to it.

pub mod entity;

use crate::merge::{self, MergeOperator};
use crate::stats::{Statistics, Ticker};
use crate::{Error, Result, ValueType};

use entity::WideColumns;

/// Whether a version of this kind says that the key does not exist.
#[inline]
pub fn is_deletion(kind: ValueType) -> bool {
    matches!(
        kind,
        ValueType::Deletion | ValueType::SingleDeletion | ValueType::DeletionWithTimestamp
    )
}

/// The plain value in a stored value of a kind other than [`ValueType::Merge`].
pub fn visible_value(kind: ValueType, value: &[u8]) -> Result<&[u8]> {
    match kind {
        ValueType::Value => Ok(value),
        ValueType::WideColumnEntity => entity::default_column(value),
        ValueType::BlobIndex => Err(Error::not_supported("reading values from blob files")),
        ValueType::ValuePreferredSeqno => value
            .len()
            .checked_sub(8)
            .and_then(|n| value.get(..n))
            .ok_or_else(|| Error::corruption("a TimedPut value is shorter than its time")),
        other => Err(Error::not_supported(format!(
            "reading values of kind {other:?}"
        ))),
    }
}

/// What operands are applied to.
#[derive(Clone, Copy, Debug)]
pub enum Base<'a> {
    /// The key does not exist.
    Nothing,
    /// A plain value.
    Value(&'a [u8]),
    /// An entity: operands change its default column.
    Entity(&'a [u8]),
}

impl<'a> Base<'a> {
    /// A version of this kind, which must not be an operand, as the base of the operands on top of it. Errors: the
    /// version cannot be read.
    pub fn of(kind: ValueType, value: &'a [u8]) -> Result<Self> {
        Ok(match kind {
            kind if is_deletion(kind) => Self::Nothing,
            ValueType::WideColumnEntity => Self::Entity(value),
            kind => Self::Value(visible_value(kind, value)?),
        })
    }
}

/// A value in one of its stored forms.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// As they are stored.
    pub bytes: Vec<u8>,
    /// Whether they are an entity.
    pub is_entity: bool,
}

impl Stored {
    /// The type of a version with this value.
    pub fn kind(&self) -> ValueType {
        if self.is_entity {
            ValueType::WideColumnEntity
        } else {
            ValueType::Value
        }
    }

    /// The value, or the default column.
    pub fn into_plain(self) -> Result<Vec<u8>> {
        if self.is_entity {
            entity::default_column(&self.bytes).map(<[u8]>::to_vec)
        } else {
            Ok(self.bytes)
        }
    }

    /// The columns; of a plain value, the default one.
    pub fn columns(&self) -> Result<WideColumns> {
        if self.is_entity {
            WideColumns::decode(&self.bytes)
        } else {
            Ok(WideColumns::plain(&self.bytes))
        }
    }
}

/// Applies `operands`, oldest first. Errors: `Corruption` if the operator fails, or the entity is
/// damaged.
pub fn apply(
    operator: &dyn MergeOperator,
    statistics: Option<&Statistics>,
    user_key: &[u8],
    base: Base<'_>,
    operands: &[&[u8]],
) -> Result<Stored> {
    let merged = |existing| {
        merge::full(operator, user_key, existing, operands).inspect_err(|_| {
            if let Some(s) = statistics {
                s.add(Ticker::NumberMergeFailures, 1);
            }
        })
    };
    let plain = |existing| {
        Ok(Stored {
            bytes: merged(existing)?,
            is_entity: false,
        })
    };
    match base {
        Base::Nothing => plain(None),
        Base::Value(value) => plain(Some(value)),
        Base::Entity(stored) => {
            let mut columns = WideColumns::decode(stored)?;
            let existing = columns.get(entity::DEFAULT_COLUMN).unwrap_or_default();
            let value = merged(Some(existing))?;
            columns.set_default(value);
            Ok(Stored {
                bytes: columns.encode()?,
                is_entity: true,
            })
        }
    }
}

/// The error of operands in a family without a merge operator.
#[cold]
pub fn no_operator(family: &str) -> Error {
    Error::invalid_argument(format!(
        "column family {family:?} has merge operands but no merge operator"
    ))
    .hint("open it with the merge_operator that they were written for")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::StringAppendOperator;

    #[test]
    fn operands_change_the_default_column_of_an_entity() {
        let operator = StringAppendOperator::new(",");
        let run = |columns: &[(&str, &str)]| {
            let e = WideColumns::new(columns.iter().copied()).unwrap();
            let stored = e.encode().unwrap();
            let merged = apply(&operator, None, b"k", Base::Entity(&stored), &[b"x", b"y"]);
            merged.unwrap().columns().unwrap()
        };
        let want = WideColumns::new([("", "d,x,y"), ("a", "1")]).unwrap();
        assert_eq!(run(&[("", "d"), ("a", "1")]), want);
        let want = WideColumns::new([("", ",x,y"), ("a", "1")]).unwrap();
        assert_eq!(run(&[("a", "1")]), want);
    }
}
