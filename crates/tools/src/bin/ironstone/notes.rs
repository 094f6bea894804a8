//! The content of batches besides their writes: sequence numbers, and notes about durability.

use std::borrow::Cow;

use base::coding::u64_at;
use ironstone::batch::{HEADER_LEN, Record, Records};
use ironstone::{Error, Result};
use log::Fence;

/// A note in a `LogData` entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// A note about the previous log, at the start of a log; otherwise a sync fence.
    pub(crate) begins: bool,
    /// The content of the note.
    pub(crate) fence: Fence,
}

impl Note {
    /// The entry as a note.
    pub(crate) fn decode(blob: &[u8]) -> Option<Self> {
        if let Some(fence) = Fence::decode(blob) {
            return Some(Self {
                begins: false,
                fence,
            });
        }
        let note = log::Note::of(blob)?;
        let fence = Fence {
            log_number: note.log_number,
            durable: 0,
            previous_log: note.previous_log,
            previous_end: note.previous_end,
            nonce: note.nonce,
        };
        Some(Self {
            begins: true,
            fence,
        })
    }
}

/// The properties of a batch apart from the content of its writes.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Its first sequence number.
    pub(crate) first: u64,
    /// The first sequence number of the next batch.
    pub(crate) next: u64,
    /// Writes in it.
    pub(crate) count: u64,
    /// Its notes.
    pub(crate) notes: Vec<Note>,
}

/// Reads a batch to its end. Errors: Corruption if it is not a batch, or does not have the number
/// of writes that it states; `NotSupported` for prepared transactions that are written before they
/// commit.
pub(crate) fn facts(data: &[u8]) -> Result<Facts> {
    let mut records = Records::new(data)?;
    let mut out = Facts {
        first: u64_at(data, 0).unwrap_or(0),
        ..Facts::default()
    };
    let stated = u64_at(data, 4).unwrap_or(0) >> 32;
    let mut prepares = false;
    records.try_for_each(|record| {
        let record = record?;
        out.count += u64::from(record.is_counted());
        match record {
            Record::LogData(blob) => out.notes.extend(Note::decode(blob)),
            Record::BeginPrepare => prepares = true,
            Record::BeginPersistedPrepare | Record::BeginUnprepare => {
                return Err(Error::not_supported(
                    "transactions that are written before they commit (WritePrepared)",
                ));
            }
            _ => {}
        }
        Ok(())
    })?;
    if out.count != stated {
        return Err(Error::corruption(format!(
            "the batch says that it has {stated} writes, and has {}",
            out.count
        )));
    }
    // A prepared batch gets its numbers when it commits.
    out.next = out.first + if prepares { 0 } else { out.count };
    Ok(out)
}

/// The batch without its notes, because these describe its old file.
pub(crate) fn without_notes(data: &[u8]) -> Cow<'_, [u8]> {
    let Ok(mut records) = Records::new(data) else {
        return Cow::Borrowed(data);
    };
    let mut out = data.get(..HEADER_LEN).unwrap_or_default().to_vec();
    let mut from = HEADER_LEN;
    let mut found = false;
    while let Some(Ok(record)) = records.next() {
        let to = records.offset();
        if matches!(record, Record::LogData(blob) if Note::decode(blob).is_some()) {
            found = true;
        } else {
            out.extend_from_slice(data.get(from..to).unwrap_or_default());
        }
        from = to;
    }
    if found {
        Cow::Owned(out)
    } else {
        Cow::Borrowed(data)
    }
}

#[cfg(test)]
mod tests {
    use ironstone::WriteBatch;

    use super::*;

    #[test]
    fn notes_are_found_and_taken_out() {
        let fence = Fence {
            log_number: 7,
            durable: 100,
            previous_log: 4,
            previous_end: 50,
            nonce: 8,
        };
        let mut begin = log::Note {
            log_number: 7,
            previous_log: 4,
            previous_end: 50,
            nonce: 8,
        }
        .encode();
        let begins = Fence {
            durable: 0,
            ..fence
        };
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").unwrap();
        batch.put_log_data(b"somebody's own").unwrap();
        let plain = batch.data().to_vec();
        batch.put_log_data(&begin).unwrap();
        batch.put_log_data(&fence.encode()).unwrap();
        let facts = facts(batch.data()).unwrap();
        assert_eq!((facts.first, facts.next, facts.count), (0, 1, 1));
        let kinds: Vec<_> = facts.notes.iter().map(|n| (n.begins, n.fence)).collect();
        assert_eq!(kinds, [(true, begins), (false, fence)]);
        assert_eq!(without_notes(batch.data()), plain);
        assert_eq!(without_notes(&plain), plain);
        begin[12] ^= 1;
        assert_eq!(Note::decode(&begin), None);
    }

    #[test]
    fn a_batch_with_a_wrong_count_is_none() {
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").unwrap();
        let mut data = batch.data().to_vec();
        data[8] = 2;
        assert!(facts(&data).is_err());
        assert!(facts(&data[..11]).is_err());
    }
}
