//! Point lookups.

use base::stats::Ticker;
use base::{Error, Result, SequenceNumber, ValueType, key};

use super::view::View;
use crate::family::Family;
use crate::memtable::Lookup;
use crate::shared::Shared;
use crate::version::TableFile;

/// What the newest visible version of a key says.
enum Answer {
    /// No version was found yet.
    Open,
    Found(Vec<u8>),
    Deleted,
}

/// Longest user key whose seek key is built on the stack.
const STACK_KEY: usize = 120;

/// The value of `user_key` as of `sequence`.
pub(crate) fn get(
    db: &Shared,
    family: &Family,
    options: &table::ReadOptions,
    user_key: &[u8],
    sequence: Option<SequenceNumber>,
    range_deletions: bool,
) -> Result<Option<Vec<u8>>> {
    // The View is loaded before the sequence: what compaction may drop by the time we look is
    // hidden by something that this sequence shows.
    let view = family.view.load();
    let sequence = sequence.unwrap_or_else(|| db.visible());
    let trailer = key::pack(sequence, ValueType::FOR_SEEK).to_le_bytes();
    let answer = if user_key.len() <= STACK_KEY {
        let mut stack = [0u8; STACK_KEY + key::TRAILER_LEN];
        let n = user_key.len();
        stack[..n].copy_from_slice(user_key);
        stack[n..n + key::TRAILER_LEN].copy_from_slice(&trailer);
        lookup(
            db,
            &view,
            options,
            &stack[..n + key::TRAILER_LEN],
            range_deletions,
        )?
    } else {
        lookup(
            db,
            &view,
            options,
            &[user_key, &trailer].concat(),
            range_deletions,
        )?
    };
    db.count(Ticker::NumberKeysRead, 1);
    Ok(match answer {
        Answer::Found(value) => {
            db.count(Ticker::BytesRead, value.len() as u64);
            Some(value)
        }
        Answer::Open | Answer::Deleted => None,
    })
}

fn lookup(
    db: &Shared,
    view: &View,
    options: &table::ReadOptions,
    seek_key: &[u8],
    range_deletions: bool,
) -> Result<Answer> {
    let mut covered = 0;
    for mem in std::iter::once(&view.mem).chain(&view.imm) {
        if range_deletions {
            covered = mem.covering_tombstone(seek_key).max(covered);
        }
        if let Lookup::Found(sequence, kind, value) = mem.get(seek_key) {
            db.count(Ticker::MemtableHit, 1);
            if sequence.0 < covered {
                return Ok(Answer::Deleted);
            }
            return interpret(kind, value);
        }
        if covered > 0 {
            return Ok(Answer::Deleted);
        }
    }
    db.count(Ticker::MemtableMiss, 1);
    let user_key = key::user_key(seek_key);
    let version = &view.version;
    for file in version.level(0) {
        if !file.spans(&version.comparator, user_key) {
            continue;
        }
        let covered = if range_deletions {
            file.covering_tombstone(&version.comparator, seek_key)
        } else {
            0
        };
        let answer = in_table(file, options, seek_key, covered)?;
        if !matches!(answer, Answer::Open) {
            db.count(Ticker::GetHitL0, 1);
            return Ok(answer);
        }
    }
    for level in 1..version.num_levels() {
        let Some(file) = version.file_for(level, seek_key) else {
            continue;
        };
        let covered = if range_deletions {
            file.covering_tombstone(&version.comparator, seek_key)
        } else {
            0
        };
        let answer = in_table(file, options, seek_key, covered)?;
        if !matches!(answer, Answer::Open) {
            let t = if level == 1 {
                Ticker::GetHitL1
            } else {
                Ticker::GetHitL2AndUp
            };
            db.count(t, 1);
            return Ok(answer);
        }
    }
    Ok(Answer::Open)
}

#[inline]
fn in_table(
    file: &TableFile,
    options: &table::ReadOptions,
    seek_key: &[u8],
    covered: u64,
) -> Result<Answer> {
    let mut answer = Ok(if covered > 0 {
        Answer::Deleted
    } else {
        Answer::Open
    });
    file.reader.get(options, seek_key, &mut |internal, value| {
        answer = match key::parse(internal) {
            Some(p) if p.sequence.0 < covered => Ok(Answer::Deleted),
            Some(p) => interpret(p.value_type, value),
            None => Err(Error::corruption("a key of unknown type").file(file.path())),
        };
        false // the first entry at or behind the seek key decides
    })?;
    answer
}

#[inline]
fn interpret(kind: ValueType, value: &[u8]) -> Result<Answer> {
    match kind {
        ValueType::Value => Ok(Answer::Found(value.to_vec())),
        ValueType::Deletion | ValueType::SingleDeletion | ValueType::DeletionWithTimestamp => {
            Ok(Answer::Deleted)
        }
        other => visible_value(other, value).map(|v| Answer::Found(v.to_vec())),
    }
}

/// The plain value in a stored value of a kind other than [`ValueType::Value`].
pub(crate) fn visible_value(kind: ValueType, value: &[u8]) -> Result<&[u8]> {
    match kind {
        ValueType::Value => Ok(value),
        ValueType::WideColumnEntity => default_column(value),
        ValueType::Merge => Err(Error::not_supported("reading merge operands")),
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

/// The value of the column with the empty name, or nothing, as RocksDB's `Get` returns it.
fn default_column(entity: &[u8]) -> Result<&[u8]> {
    let bad = || Error::corruption("a wide-column entity is damaged");
    let mut d = base::coding::Decoder::new(entity);
    match d.varint32().ok_or_else(bad)? {
        1 => {}
        v => {
            return Err(Error::not_supported(format!(
                "wide-column entities of version {v}"
            )));
        }
    }
    let columns = d.varint32().ok_or_else(bad)?;
    let mut default = None;
    let mut total = 0usize;
    for i in 0..columns {
        let name = d.slice().ok_or_else(bad)?;
        let len = d.varint32().ok_or_else(bad)? as usize;
        if i == 0 && name.is_empty() {
            default = Some(len);
        }
        total = total.checked_add(len).ok_or_else(bad)?;
    }
    if d.len() != total {
        return Err(bad());
    }
    match default {
        Some(len) => d.bytes(len).ok_or_else(bad),
        None => Ok(b""),
    }
}
