//! The note with which a log begins: which log came before it, and where that one ended.
//!
//! A crash affects each log separately: of two unsynced logs, the older may have lost its end while
//! the newer is whole, and each looks intact on its own. So the first record of every log says where
//! its predecessor ended. If the predecessor is found shorter, it has lost writes, and the logs after
//! it must not be recovered either. If it is found longer, it still ends at the noted place: the
//! records behind were written again to the new log.
//!
//! ```text
//!   magic "ISbegin2" | log number u64 | previous log u64 | its end u64 | nonce u64 | crc u32
//!   magic "ISbegin1" | log number u64 | previous log u64 | its end u64 | crc u32
//! ```
//!
//! Little-endian; the crc is masked CRC-32C of the bytes before it. The engine writes the note as a
//! `LogData` entry, which every RocksDB ignores, directly behind the header of the log's first batch,
//! so that it can be read even if the rest of that record is torn. Readers look for it only there:
//! anything further behind may be a value. Older versions wrote the second form.
//!
//! The *nonce* is a random number that distinguishes the log's own fences from copies in values.
//!
//! A note says where the predecessor ended, not that it was durable: that is what a
//! [`Fence`](crate::Fence) proves.
#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use base::{Result, ValueType};
use io::File;

use crate::deflate::STORED_OVERHEAD;
use crate::fence::Trust;
use crate::format::{BLOCK, Header, LEGACY_HEADER, RECYCLABLE_HEADER, RecordType, log_number_of};
use crate::statement::Statement;

const STATEMENT: Statement<4> = Statement {
    magic: *b"ISbegin2",
    old_magic: *b"ISbegin1",
};
/// Bytes of a note.
pub const LEN: usize = Statement::<4>::LEN;
/// Bytes of a batch's header.
const BATCH_HEADER: usize = 12;
/// Bytes of the record that says that a log is compressed.
const SET_COMPRESSION_LEN: usize = LEGACY_HEADER + 4;

/// What a log says about its predecessor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// The log that holds the note.
    pub log_number: u64,
    /// The log before it; 0 if it needs none.
    pub previous_log: u64,
    /// Where that log ends; bytes of its file behind this offset are not part of it.
    pub previous_end: u64,
    /// The nonce that the log's fences carry; 0 in the older form, which has none.
    pub nonce: u64,
}

impl Note {
    /// Encodes the note: in the older form if it has no nonce.
    pub fn encode(&self) -> Vec<u8> {
        STATEMENT.encode([
            self.log_number,
            self.previous_log,
            self.previous_end,
            self.nonce,
        ])
    }

    /// Decodes `bytes` as exactly one note, if its checksum is correct.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let (numbers, len) = STATEMENT.decode(bytes)?;
        let [log_number, previous_log, previous_end, nonce] = numbers;
        let note = Self {
            log_number,
            previous_log,
            previous_end,
            nonce,
        };
        (bytes.len() == len).then_some(note)
    }

    /// The note of log `log_number` in the batch that begins at `at`.
    fn in_batch(bytes: &[u8], at: usize, log_number: u64) -> Option<Self> {
        let entry = bytes.get(at + BATCH_HEADER..)?;
        let (&[tag, len], rest) = entry.split_first_chunk::<2>()?;
        if tag != ValueType::LogData as u8 {
            return None;
        }
        // A log never names a later one as its predecessor.
        let right = |n: &Self| n.log_number == log_number && n.previous_log < log_number;
        Self::of(rest.get(..usize::from(len))?).filter(right)
    }
}

/// How a log begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// With this note.
    Note(Note),
    /// With a whole record that has no note.
    Without,
    /// With nothing readable: the log is empty, was never written, or is damaged.
    Unreadable,
}

impl Head {
    /// Parses the first bytes of log `log_number`.
    fn of(bytes: &[u8], log_number: u64) -> Self {
        let mut at = 0;
        let mut stored = 0;
        while let Some(rest) = bytes.get(at..)
            && let Some(header) = Header::decode(rest)
            && header.crc_matches(rest)
        {
            let kind = header.kind;
            if kind.is_recyclable() && log_number_of(rest) != Some(log_number as u32) {
                break;
            }
            if kind.fragment().is_some() {
                let batch = at + kind.header_len() + stored;
                return Note::in_batch(bytes, batch, log_number).map_or(Self::Without, Self::Note);
            }
            if kind == RecordType::SET_COMPRESSION {
                stored = STORED_OVERHEAD;
            }
            at += header.record_len();
        }
        // The record is torn or damaged, but the note may still be whole. Try every place where a log of
        // ours may have it. None of these places lies behind the note, so no value is mistaken for one.
        for (before, stored) in [(0, 0), (SET_COMPRESSION_LEN, STORED_OVERHEAD)] {
            for header in [LEGACY_HEADER, RECYCLABLE_HEADER] {
                if let Some(n) = Note::in_batch(bytes, before + header + stored, log_number) {
                    return Self::Note(n);
                }
            }
        }
        Self::Unreadable
    }

    /// The note, if it could be read.
    pub fn note(self) -> Option<Note> {
        match self {
            Self::Note(note) => Some(note),
            Self::Without | Self::Unreadable => None,
        }
    }

    /// Which fences of the log count; `known` is the log's nonce from the MANIFEST.
    pub fn trust(self, known: Option<u64>) -> Trust {
        match self {
            Self::Note(Note { nonce: 0, .. }) => Trust::Old,
            Self::Note(note) => Trust::Nonce(note.nonce),
            Self::Without => Trust::Nobody,
            Self::Unreadable => known.map_or(Trust::Anybody, Trust::Nonce),
        }
    }
}

/// How the file of log `log_number` begins.
pub fn head(file: &Arc<dyn File>, log_number: u64) -> Result<Head> {
    let mut head = vec![0; BLOCK];
    let n = file.read_at(&mut head, 0)?;
    head.truncate(n);
    Ok(Head::of(&head, log_number))
}

/// Which fences of log `log_number` count; `known` is the log's nonce from the MANIFEST.
pub fn trust(file: &Arc<dyn File>, log_number: u64, known: Option<u64>) -> Result<Trust> {
    Ok(head(file, log_number)?.trust(known))
}

#[cfg(test)]
mod tests {
    use io::AlignedBuf;

    use super::*;
    use crate::format::Framer;
    use crate::pack::Packer;

    const NOTE: Note = Note {
        log_number: 9,
        previous_log: 7,
        previous_end: 123,
        nonce: 0x5eed,
    };

    #[test]
    fn a_note_round_trips_is_no_fence_and_every_bit_counts() {
        for (note, len) in [(NOTE, 44), (Note { nonce: 0, ..NOTE }, 36)] {
            let bytes = note.encode();
            assert_eq!(bytes.len(), len);
            assert_eq!(Note::of(&bytes), Some(note));
            assert_eq!(Note::of(&[&bytes[..], &[0]].concat()), None);
            assert_eq!(crate::Fence::decode(&[&bytes[..], &[0; 8]].concat()), None);
            for bit in 0..bytes.len() * 8 {
                let mut bad = bytes.clone();
                if let Some(b) = bad.get_mut(bit / 8) {
                    *b ^= 1 << (bit % 8);
                }
                assert_eq!(Note::of(&bad), None, "bit {bit}");
            }
        }
    }

    /// A batch with `note` in front of another entry.
    fn parts(note: &[u8], value: &[u8]) -> Vec<Vec<u8>> {
        let entry = |bytes: &[u8]| {
            if bytes.is_empty() {
                return Vec::new();
            }
            [&[ValueType::LogData as u8, bytes.len() as u8], bytes].concat()
        };
        vec![vec![0; BATCH_HEADER], entry(note), entry(value)]
    }

    /// The bytes of a log that begins with that batch.
    fn log(recyclable: bool, compressed: bool, note: &[u8], value: &[u8]) -> Vec<u8> {
        let framer = Framer {
            log_number: recyclable.then_some(9),
            filler: Some(0x0d),
            sector: None,
        };
        let parts = parts(note, value);
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let mut out = AlignedBuf::new(1);
        if compressed {
            let mut packer = Packer::new().unwrap();
            packer.append(framer, &parts, &(2..3), 0, &mut out).unwrap();
        } else {
            framer.frame(&parts, 0, &mut out).unwrap();
        }
        out.to_vec()
    }

    /// A note of another log, and one that names a later log, are none; nor is one that lies where
    /// an entry of the application may lie, be the record around it whole or torn.
    #[test]
    fn a_note_counts_where_a_log_has_it_and_nowhere_else() {
        for (recyclable, compressed) in [(false, false), (true, false), (false, true), (true, true)]
        {
            let head = |note: &[u8], value: &[u8]| {
                let mut bytes = log(recyclable, compressed, note, value);
                let whole = Head::of(&bytes, 9);
                if let Some(last) = bytes.last_mut() {
                    *last ^= 1;
                }
                (whole, Head::of(&bytes, 9))
            };
            let note = NOTE.encode();
            let forged = Note {
                nonce: 0xbad,
                ..NOTE
            };
            let forged = forged.encode();
            assert_eq!(
                head(&note, &forged),
                (Head::Note(NOTE), Head::Note(NOTE)),
                "{recyclable} {compressed}"
            );
            for other in [
                Note {
                    log_number: 8,
                    ..NOTE
                },
                Note {
                    previous_log: 11,
                    ..NOTE
                },
            ] {
                let heads = head(&other.encode(), &forged);
                assert_eq!(heads, (Head::Without, Head::Unreadable));
            }
            // Zeros where the note was: a sector that was not written.
            let mut torn = log(recyclable, compressed, &note, &forged);
            torn.iter_mut().take(64).for_each(|b| *b = 0);
            assert_eq!(Head::of(&torn, 9), Head::Unreadable);
        }
        assert_eq!(Head::of(&[], 9), Head::Unreadable);
    }

    #[test]
    fn the_note_says_which_fences_count_and_the_manifest_where_it_is_damaged() {
        let old = Note { nonce: 0, ..NOTE };
        for (head, alone, known) in [
            (Head::Note(NOTE), Trust::Nonce(0x5eed), Trust::Nonce(0x5eed)),
            (Head::Note(old), Trust::Old, Trust::Old),
            (Head::Without, Trust::Nobody, Trust::Nobody),
            (Head::Unreadable, Trust::Anybody, Trust::Nonce(5)),
        ] {
            assert_eq!((head.trust(None), head.trust(Some(5))), (alone, known));
        }
    }
}
