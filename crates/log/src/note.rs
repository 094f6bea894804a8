//! The note with which a log begins: which log came before it, and where that one ended.
//!
//! Logs are written one after the other, and a crash takes them one by one: of two logs that nobody
//! had synced, the older may have lost its end while the newer is whole. Each log alone looks well.
//! So the first record of every log says where its predecessor ended. A predecessor that is found
//! shorter has lost writes, and what follows it must not be recovered either; one that is found
//! longer ends at the noted place all the same: what is behind was written again in the new log.
//!
//! ```text
//!   magic "ISbegin1" | log number u64 | previous log u64 | its end u64 | crc u32
//! ```
//!
//! Little-endian; the crc is masked CRC-32C of the 32 bytes before it. The engine puts it, as a
//! `LogData` entry, which every RocksDB ignores, right behind the header of the log's first batch:
//! it can be read although the rest of that record may be torn.
//!
//! A note says where the predecessor ended, not that it was durable: that is what a
//! [`Fence`](crate::Fence) proves.
#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use base::Result;
use io::File;

use crate::fence::{find_magic, seal, unseal};
use crate::format::RecordType;
use crate::options::ReaderOptions;
use crate::reader::Reader;

/// How a note begins.
pub const MAGIC: [u8; 8] = *b"ISbegin1";
/// Bytes of a note.
pub const LEN: usize = 36;
/// The first bytes of a log, among which its note lies: records about the log may come first.
const HEAD: usize = 512;

/// What a log says about its predecessor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// The log that holds the note.
    pub log_number: u64,
    /// The log before it; 0 if it needs none.
    pub previous_log: u64,
    /// Where that log ends: what its file holds behind is not part of it.
    pub previous_end: u64,
}

impl Note {
    /// Its bytes.
    pub fn encode(&self) -> [u8; LEN] {
        seal(
            MAGIC,
            &[self.log_number, self.previous_log, self.previous_end],
        )
    }

    /// The note at the start of `bytes`, if there is one with a right checksum.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut d = unseal::<LEN>(MAGIC, bytes)?;
        Some(Self {
            log_number: d.u64()?,
            previous_log: d.u64()?,
            previous_end: d.u64()?,
        })
    }

    /// The note of log `log_number` in these bytes.
    fn find(bytes: &[u8], log_number: u64) -> Option<Self> {
        let mut from = 0;
        loop {
            let at = find_magic(MAGIC, bytes, from)?;
            let note = Self::decode(bytes.get(at..)?);
            // A log never names one that came later.
            let right = |n: &Self| n.log_number == log_number && n.previous_log < log_number;
            if let Some(note) = note.filter(right) {
                return Some(note);
            }
            from = at + 1;
        }
    }
}

/// The note of log `log_number`, if its file has one.
pub fn read(file: &Arc<dyn File>, log_number: u64) -> Result<Option<Note>> {
    let mut head = vec![0; HEAD];
    let n = file.read_at(&mut head, 0)?;
    head.truncate(n);
    if let Some(note) = Note::find(&head, log_number) {
        return Ok(Some(note));
    }
    // In a compressed log the bytes are not there to be seen.
    let compressed = head.get(6) == Some(&RecordType::SET_COMPRESSION.0);
    let mut first = Vec::new();
    let mut reader = Reader::new(Arc::clone(file), log_number, ReaderOptions::default());
    if compressed && reader.read(&mut first)? {
        return Ok(Note::find(first.get(..HEAD).unwrap_or(&first), log_number));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_round_trips_is_no_fence_and_every_bit_counts() {
        let note = Note {
            log_number: 9,
            previous_log: 7,
            previous_end: 123,
        };
        let bytes = note.encode();
        assert_eq!(Note::decode(&bytes), Some(note));
        assert_eq!(crate::Fence::decode(&[&bytes[..], &[0; 8]].concat()), None);
        for bit in 0..LEN * 8 {
            let mut bad = bytes;
            if let Some(b) = bad.get_mut(bit / 8) {
                *b ^= 1 << (bit % 8);
            }
            assert_eq!(Note::decode(&bad), None, "bit {bit}");
        }
    }

    #[test]
    fn another_logs_note_is_not_taken() {
        let note = |log_number, previous_log| Note {
            log_number,
            previous_log,
            previous_end: 5,
        };
        let bytes = [
            &b"ISbeginISbegin"[..],
            &note(8, 7).encode(),
            &note(9, 11).encode(),
            b"I",
            &note(9, 6).encode(),
        ]
        .concat();
        assert_eq!(Note::find(&bytes, 9), Some(note(9, 6)));
        assert_eq!(Note::find(&bytes, 10), None);
        assert_eq!(Note::find(bytes.get(..60).unwrap_or_default(), 9), None);
    }
}
