//! Cuts a torn tail off a log, as recovery does, for readers that would take it for damage and refuse
//! to open the database.
//!
//! RocksDB refuses a torn record with zeros behind it in kTolerateCorruptedTailRecords and
//! kAbsoluteConsistency. [`find`] says where the torn part begins. It returns Corruption if a fence
//! proves that data behind that place were durable: then it is not a torn tail. [`apply`] removes the
//! torn part.
#![deny(clippy::indexing_slicing)]

use std::path::Path;
use std::sync::Arc;

use base::{Error, Result};
use io::{AlignedBuf, File, FileSystem, OpenHow, SyncKind, WriteSync, buffer};

use crate::format::BLOCK;
use crate::options::ReaderOptions;
use crate::reader::{End, Reader};
use crate::salvage;

/// The part of a log that a crash left incomplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// Where the last complete record ends: the log is cut here.
    pub offset: u64,
    /// The offset behind the last byte that is not zero; `offset` or less if there is nothing to cut.
    pub content_end: u64,
    /// Bytes of the file.
    pub file_len: u64,
    /// What is wrong at `offset`.
    pub reason: &'static str,
    /// Records behind `offset` that can still be read. If there are more of them than one group has,
    /// this is probably damage and not a torn tail.
    pub readable: u64,
}

/// What happens to the torn part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The file ends before it.
    Cut,
    /// It is overwritten with zeros; the file keeps its length.
    Zero,
}

/// The torn tail of the log `log_number`; `None` if the log ends as it should. Errors: Corruption
/// if a fence proves that data at or behind the torn place were durable.
pub fn find(file: &Arc<dyn File>, log_number: u64) -> Result<Option<Torn>> {
    let options = ReaderOptions {
        fences: true,
        ..ReaderOptions::default()
    };
    let mut reader = Reader::new(Arc::clone(file), log_number, options);
    let mut record = Vec::new();
    while reader.read(&mut record)? {}
    let (offset, reason) = match *reader.end() {
        End::Clean { .. } | End::OldRecord { .. } => return Ok(None),
        End::ZeroTail { offset } => (offset, "zeros, and bytes behind them"),
        End::Torn { offset, reason, .. } => (offset, reason),
    };
    let mut readable = 0;
    let summary = salvage::scan(file, log_number, &mut |piece| {
        readable += u64::from(piece.lost.is_none() && piece.range.start >= offset);
        Ok(())
    })?;
    if matches!(reader.end(), End::ZeroTail { .. }) && summary.content_end <= offset {
        return Ok(None);
    }
    Ok(Some(Torn {
        offset,
        content_end: summary.content_end,
        file_len: summary.file_len,
        reason,
        readable,
    }))
}

/// Copies the torn part to the new file `to`, durably.
pub fn keep(fs: &dyn FileSystem, log: &Path, torn: &Torn, to: &Path) -> Result<()> {
    let from = fs.open(log, OpenHow::READ)?;
    let file = fs.open(to, OpenHow::CREATE_NEW)?;
    let mut buf = AlignedBuf::zeroed(32 * BLOCK, buffer::PAGE)?;
    let mut at = torn.offset;
    while at < torn.content_end {
        let n = from
            .read_at(&mut buf, at)?
            .min((torn.content_end - at) as usize);
        if n == 0 {
            break;
        }
        let bytes = buf.get(..n).ok_or_else(|| too_much(&*from))?;
        io::write_all_at(&*file, bytes, at - torn.offset, WriteSync::None)?;
        at += n as u64;
    }
    file.sync(SyncKind::All)?;
    fs.sync_dir(directory(to))
}

/// Removes the torn part, durably. A crash in the middle leaves the torn part or a shorter one, but
/// never a readable record behind zeros.
pub fn apply(fs: &dyn FileSystem, log: &Path, torn: &Torn, how: How) -> Result<()> {
    let file = fs.open(log, OpenHow::UPDATE)?;
    match how {
        How::Cut => file.truncate(torn.offset)?,
        How::Zero => {
            // Later blocks first: a reader would skip zeros in this block and find a record there.
            let next_block = (torn.offset / BLOCK as u64 + 1) * BLOCK as u64;
            if torn.content_end > next_block {
                zero(&*file, next_block, torn.content_end)?;
            }
            zero(&*file, torn.offset, torn.content_end.min(next_block))?;
        }
    }
    file.sync(SyncKind::All)
}

/// Overwrites a range with zeros, and syncs. Plain writes keep the blocks allocated.
fn zero(file: &dyn File, from: u64, to: u64) -> Result<()> {
    let zeros = AlignedBuf::zeroed(BLOCK, buffer::PAGE)?;
    let mut at = from;
    while at < to {
        let n = (to - at).min(zeros.len() as u64) as usize;
        let bytes = zeros.get(..n).ok_or_else(|| too_much(file))?;
        io::write_all_at(file, bytes, at, WriteSync::None)?;
        at += n as u64;
    }
    file.sync(SyncKind::Data)
}

fn too_much(file: &dyn File) -> Error {
    Error::broken("more bytes than there is room for").file(file.path())
}

fn directory(path: &Path) -> &Path {
    let dir = path.parent().filter(|d| *d != Path::new(""));
    dir.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use io::posix::Posix;

    use super::*;
    use crate::{Fence, LogOptions, Note, Writer};

    const NOTE: Note = Note {
        log_number: 9,
        previous_log: 0,
        previous_end: 0,
        nonce: 0x5eed,
    };

    /// A log of two records, and a third that is torn, in a file of `len` bytes.
    fn torn_log(dir: &Path, len: u64) -> (PathBuf, u64, u64) {
        let path = dir.join("000009.log");
        let file = Posix.open(&path, OpenHow::CREATE_NEW).unwrap();
        let mut writer = Writer::new(Arc::clone(&file), LogOptions::default());
        let note = NOTE.encode();
        let entry = [3, note.len() as u8];
        writer.append_parts(&[&[0; 12], &entry, &note]).unwrap();
        let end = writer.append(b"the second").unwrap().end.0;
        let torn = writer.append(&vec![7; 100_000]).unwrap().end.0;
        writer.sync().unwrap();
        file.truncate(len.max(torn)).unwrap();
        zero(&*file, 50_000, 50_010).unwrap();
        (path, end, torn)
    }

    #[test]
    fn a_torn_tail_is_cut_or_zeroed_and_kept() {
        for how in [How::Cut, How::Zero] {
            let dir = tempfile::tempdir().unwrap();
            let (path, end, content_end) = torn_log(dir.path(), 300_000);
            let file = Posix.open(&path, OpenHow::READ).unwrap();
            let before = std::fs::read(&path).unwrap();
            let torn = find(&file, 9).unwrap().unwrap();
            assert_eq!((torn.offset, torn.content_end), (end, content_end));
            assert_eq!((torn.file_len, torn.readable), (300_000, 0));
            let kept = dir.path().join("kept");
            keep(&Posix, &path, &torn, &kept).unwrap();
            let range = end as usize..content_end as usize;
            assert!(std::fs::read(&kept).unwrap() == before.get(range).unwrap());
            apply(&Posix, &path, &torn, how).unwrap();
            assert_eq!(find(&file, 9).unwrap(), None);
            let after = std::fs::read(&path).unwrap();
            assert_eq!(
                after.len(),
                if how == How::Cut {
                    end as usize
                } else {
                    300_000
                }
            );
            assert!(after.iter().skip(end as usize).all(|&b| b == 0));
            assert!(after.get(..end as usize) == before.get(..end as usize));
        }
    }

    #[test]
    fn bytes_behind_zeros_are_trimmed_too() {
        let dir = tempfile::tempdir().unwrap();
        let (path, end, _) = torn_log(dir.path(), 0);
        let file = Posix.open(&path, OpenHow::UPDATE).unwrap();
        zero(&*file, end, end + 512).unwrap();
        let torn = find(&file, 9).unwrap().unwrap();
        assert_eq!(torn.offset, end);
        apply(&Posix, &path, &torn, How::Zero).unwrap();
        assert_eq!(find(&file, 9).unwrap(), None);
    }

    #[test]
    fn durable_data_are_not_trimmed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, end, torn_end) = torn_log(dir.path(), 0);
        let file = Posix.open(&path, OpenHow::UPDATE).unwrap();
        let mut fence = Fence {
            log_number: 9,
            durable: torn_end,
            nonce: NOTE.nonce,
            ..Fence::default()
        };
        io::write_all_at(&*file, &fence.encode(), torn_end, WriteSync::None).unwrap();
        let e = find(&file, 9).unwrap_err();
        assert!(e.is_corruption(), "{e}");
        assert_eq!(e.at(), Some(end));
        fence.nonce += 1;
        io::write_all_at(&*file, &fence.encode(), torn_end, WriteSync::None).unwrap();
        assert!(find(&file, 9).unwrap().is_some(), "not the log's own");
        fence.nonce = NOTE.nonce;
        fence.durable = end;
        io::write_all_at(&*file, &fence.encode(), torn_end, WriteSync::None).unwrap();
        assert!(find(&file, 9).unwrap().is_some());
    }
}
