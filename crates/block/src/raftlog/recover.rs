//! Opens a log after a crash: finds the files that count, and reads them.
//!
//! ```text
//!   newest file with a head ──> its predecessor ──> … ──> one that is not there: it was dropped
//!   then from the oldest to the newest: batches up to where the next file says this one ended
//! ```
//!
//! A file is begun only when everything before it is durable, and records where that ends. So if a file of the
//! chain ends earlier, it is damaged; bytes behind the recorded end were never acknowledged, and are ignored.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use base::rng::Rng;
use base::{Error, Result};
use bytes::Bytes;
use io::{File, FileSystem, WriteSync};

use super::batch::Item;
use super::files::{Files, Found};
use super::groups::{Groups, Payload};
use super::scan::{self, DAMAGED, Scan};
use super::{Current, Options, RaftLog, batch, file_head, read_entry};
use crate::ids::Index;

/// Bytes per write when the end of the newest file is written again.
const WRITE_AGAIN_BYTES: u64 = 1 << 20;

/// A file of the chain.
struct Link {
    number: u64,
    file: Arc<dyn File>,
    /// Its end, if a later file records it.
    end: Option<u64>,
}

/// The content of the files.
struct Held {
    files: Files,
    used: Vec<u64>,
    groups: Groups,
    /// The files of the chain.
    older: BTreeMap<u64, Arc<dyn File>>,
    ends: BTreeMap<u64, u64>,
    /// The newest file, with its highest fence and its end.
    last: Option<(Arc<dyn File>, u64, u64)>,
}

/// See [`super::look`].
pub(super) fn look(
    fs: Arc<dyn FileSystem>,
    dir: &Path,
    options: &Options,
    newest: u64,
) -> Result<Groups> {
    Ok(read(fs, dir, options, newest)?.groups)
}

/// Reads all files, and changes nothing.
fn read(fs: Arc<dyn FileSystem>, dir: &Path, options: &Options, newest: u64) -> Result<Held> {
    let Found { files, used } = Files::open(fs, dir)?;
    let (chain, begun) = chain(&files, &used, options, newest)?;
    if begun < newest {
        return Err(Error::corruption(format!(
            "file {newest:06}.log of the log was begun, and is missing"
        ))
        .file(dir)
        .hint("bring the file back: without it the store lacks what it has acknowledged"));
    }
    let mut held = Held {
        files,
        used,
        groups: Groups::find(),
        older: BTreeMap::new(),
        ends: BTreeMap::new(),
        last: None,
    };
    for link in chain {
        let (durable, end) = replay(&link, options, &mut held.groups)?;
        if link.end.is_none() {
            held.last = Some((Arc::clone(&link.file), durable, end));
        }
        held.ends.insert(link.number, end);
        held.older.insert(link.number, link.file);
    }
    held.groups.found().map_err(|e| e.or_file(dir))?;
    Ok(held)
}

/// See [`RaftLog::open`].
pub(super) fn open(
    fs: Arc<dyn FileSystem>,
    dir: &Path,
    options: Options,
    newest: u64,
) -> Result<RaftLog> {
    let Held {
        mut files,
        used,
        groups,
        older,
        ends,
        last,
    } = read(fs, dir, &options, newest)?;
    // Each file records that the older ones are durable up to their ends, so only the newest is in doubt.
    if let Some((file, durable, end)) = last {
        write_again(&*file, durable, end)?;
    }
    // The checkpoints that were found are durable, so the entries that they cover can be dropped when room
    // is needed.
    let proven = groups.iter().map(|(group, log)| (group, log.synced().0));
    let proven = proven.filter(|(_, through)| through.0 > 0).collect();
    // Files outside of the chain have no batch that counts, and the superblock names none of them.
    for number in used.iter().filter(|n| !older.contains_key(n)) {
        files.free(*number)?;
    }
    let gathered = if files.spare() <= options.reserved_files + 1 {
        gather(&groups, &older, &options)?
    } else {
        Gathered::default()
    };
    let kept = |n: &u64| !gathered.files.contains(n);
    let predecessor = ends.iter().rfind(|(n, _)| kept(n));
    let predecessor = predecessor.map_or((0, 0), |(&number, &end)| (number, end));
    let highest = used.last().map_or(0, |&n| n).max(newest);
    let mut rng = Rng::new(options.seed);
    let current = Current::begin(&mut files, &mut rng, &options, highest + 1, predecessor)?;
    let mut log = RaftLog {
        options,
        files,
        rng,
        groups,
        older,
        current,
        flying: VecDeque::new(),
        again: VecDeque::new(),
        in_memory: VecDeque::new(),
        count: 0,
        proven,
        pinned: BTreeMap::new(),
    };
    if !gathered.files.is_empty() {
        log.take_gathered(gathered)?;
    }
    Ok(log)
}

/// Entries to be written again to the new file of an opening, and the files that can be freed then.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) items: Vec<Item>,
    pub(super) files: Vec<u64>,
}

/// Each opening takes a file, and leaves little in it if the store is soon killed again. If too few files are
/// spare, the entries of the newest files are moved into one file: as many files as fit.
fn gather(
    groups: &Groups,
    older: &BTreeMap<u64, Arc<dyn File>>,
    options: &Options,
) -> Result<Gathered> {
    let unit = options.unit as usize;
    let states = batch::bytes(&groups.states(), unit);
    let most = options.file_bytes - file_head::LEN as u64 - states - unit as u64;
    let most = most.min(batch::BATCH_BYTES_MAX / 2);
    let mut out = Gathered::default();
    for &number in older.keys().rev() {
        let items = entries_from(number, groups, older)?;
        if batch::bytes(&items, unit) > most {
            break;
        }
        out.items = items;
        out.files.push(number);
    }
    Ok(out)
}

/// The entries of file `number`, and for each of their groups all entries behind the first of them, because an
/// entry that is written again ends the group's log.
fn entries_from(
    number: u64,
    groups: &Groups,
    older: &BTreeMap<u64, Arc<dyn File>>,
) -> Result<Vec<Item>> {
    let mut out = Vec::new();
    for (group, log) in groups.iter() {
        let indices = (log.first().0..=log.last().0).map(Index);
        let is_before = |i: &Index| log.entry(*i).is_none_or(|e| e.file < number);
        for index in indices.skip_while(is_before) {
            let Some(entry) = log.entry(index) else {
                continue;
            };
            let file = older.get(&entry.file);
            let file = file.ok_or_else(|| Error::broken("an entry's file is not in use"))?;
            out.push(read_entry(&**file, group, index, entry)?);
        }
    }
    Ok(out)
}

/// The files of the chain, oldest first, and the number of the newest file with a valid head. That file may
/// have no batch; then it is not in the chain. `newest`: a file that is known to have a durable batch.
fn chain(files: &Files, used: &[u64], options: &Options, newest: u64) -> Result<(Vec<Link>, u64)> {
    let mut begun = 0;
    let mut chain: Vec<Link> = Vec::new();
    let mut next: Option<(u64, u64)> = None;
    for &number in used.iter().rev() {
        if next.is_some_and(|(wanted, _)| wanted != number) {
            continue;
        }
        let file = files.get(number)?;
        let head = match Scan::begin(&*file).map(|s| s.head()) {
            Ok(head) if head.number == number => head,
            Err(e) if !e.is_corruption() => return Err(e),
            // The head is not this file's: it was renamed, and a crash came before its head was written.
            other => {
                let is_begun = Scan::has_batch_of(&*file, number, options.unit)?;
                if next.is_some() || is_begun {
                    let e = other.err().unwrap_or_else(|| {
                        Error::corruption("the head is another file's").file(file.path())
                    });
                    return Err(e.hint(DAMAGED));
                }
                continue;
            }
        };
        if head.store != options.store || head.unit != options.unit {
            return Err(Error::corruption(format!(
                "the file is of store {} with units of {} bytes, and not of {} with {}",
                head.store, head.unit, options.store, options.unit
            ))
            .file(file.path())
            .hint(
                "bring the store's own log back: were two disks mounted in each other's place?",
            ));
        }
        begun = number.max(begun);
        if next.is_none() && Scan::begin(&*file)?.next_batch()?.is_none() {
            if number == newest {
                return Err(Error::corruption(
                    "its first batch was durable, and is not whole any more",
                )
                .file(file.path())
                .hint(DAMAGED));
            }
            continue;
        }
        let end = next.map(|(_, end)| end);
        chain.push(Link { number, file, end });
        next = Some((head.predecessor, head.predecessor_end));
    }
    chain.reverse();
    Ok((chain, begun))
}

/// Writes a file's bytes from `durable` on again, unchanged. If the process was killed, they may not be on the
/// disk yet; and after a failed write or sync they may be readable without being on the disk, whatever a later
/// sync reports. The store acts on what it has read, so a power cut must not be able to undo that.
fn write_again(file: &dyn File, durable: u64, end: u64) -> Result<()> {
    let mut at = durable.max(file_head::LEN as u64);
    while at < end {
        let piece = scan::read(file, at, (end - at).min(WRITE_AGAIN_BYTES) as usize)?;
        if piece.is_empty() {
            let e = Error::corruption("the file has become shorter");
            return Err(e.file(file.path()).hint(DAMAGED));
        }
        io::write_all_at(file, &piece, at, WriteSync::Dsync)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// Takes the batches of a file; returns its highest fence, and its end.
fn replay(link: &Link, options: &Options, groups: &mut Groups) -> Result<(u64, u64)> {
    let mut scan = Scan::begin(&*link.file)?;
    let unit = options.unit as usize;
    while link.end.is_none_or(|end| scan.end() < end) {
        let Some(found) = scan.next_batch()? else {
            break;
        };
        let mut at = found.offset + batch::head_bytes(&found.items).next_multiple_of(unit) as u64;
        for item in &found.items {
            let payload = Payload {
                offset: at,
                bytes: item.payload.len() as u32,
                here: None,
            };
            at += item.payload.len() as u64;
            // A copy, because a slice would keep the whole batch in memory.
            let item = Item {
                inline: Bytes::copy_from_slice(&item.inline),
                payload: Bytes::new(),
                ..item.clone()
            };
            groups
                .take(&item, link.number, payload)
                .map_err(|e| e.or_file(link.file.path()))?;
        }
    }
    if let Some(end) = link.end.filter(|&end| scan.end() != end) {
        return Err(Error::corruption(format!(
            "a file of the log ends at {}, and was durable up to {end}",
            scan.end()
        ))
        .file(link.file.path())
        .hint(DAMAGED));
    }
    debug_assert!(scan.end() >= file_head::LEN as u64);
    Ok((scan.durable(), scan.end()))
}
