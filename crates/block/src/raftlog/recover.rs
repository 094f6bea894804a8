//! Opens a log after whatever has happened: which files count, and what they hold.
//!
//! ```text
//!   newest file with a head ──> its predecessor ──> … ──> one that is not there: it was dropped
//!   then from the oldest to the newest: batches up to where the next file says this one ended
//! ```
//!
//! A file is begun only when everything before it is durable, and says where that ends. So a file of the chain
//! that ends earlier is damaged; what it has behind that end was never acknowledged, and is left out.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use base::rng::Rng;
use base::{Error, Result};
use bytes::Bytes;
use io::{File, FileSystem, SyncKind};

use super::batch::Item;
use super::files::{Files, Found};
use super::groups::{Groups, Payload};
use super::scan::Scan;
use super::{Current, Options, RaftLog, batch, file_head};

/// A file of the chain.
struct Link {
    number: u64,
    file: Arc<dyn File>,
    /// Where it ends, if a later file says so.
    end: Option<u64>,
}

/// See [`RaftLog::open`].
pub(super) fn open(
    fs: Arc<dyn FileSystem>,
    dir: &Path,
    options: Options,
    newest: u64,
) -> Result<RaftLog> {
    let Found { mut files, used } = Files::open(fs, dir)?;
    let chain = chain(&files, &used, &options)?;
    let last = chain.last().map_or(0, |l| l.number);
    if last < newest {
        return Err(Error::corruption(format!(
            "file {newest:06}.log of the log was begun, and is missing"
        ))
        .file(dir)
        .hint("bring the file back, or remove the store and let its peers fill a new one"));
    }
    let mut groups = Groups::find();
    let mut older = BTreeMap::new();
    let mut predecessor = (0, 0);
    // A process that was killed may have left batches that are written, and not durable. What is read here is
    // acted upon, so a power cut must not take it any more. Those before the last are known to be durable.
    if let Some(last) = chain.last() {
        last.file.sync(SyncKind::Data)?;
    }
    for link in chain {
        let end = replay(&link, &options, &mut groups)?;
        // One that has no batch is left out: openings that come to nothing must not use the files up.
        if end > file_head::LEN as u64 {
            predecessor = (link.number, end);
            older.insert(link.number, link.file);
        }
    }
    groups.found()?;
    // Checkpoints that were found are durable: what they cover goes as soon as there is no room for it.
    let proven = groups.iter().map(|(group, log)| (group, log.synced().0));
    let proven = proven.filter(|(_, through)| through.0 > 0).collect();
    let highest = used.last().map_or(0, |&n| n).max(newest);
    let mut rng = Rng::new(options.seed);
    let current = Current::begin(&mut files, &mut rng, &options, highest + 1, predecessor)?;
    // Not before: until then the last of them may be the only one that is known to have been begun.
    for number in used.iter().filter(|n| !older.contains_key(n)) {
        files.free(*number)?;
    }
    Ok(RaftLog {
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
    })
}

/// The files that count, oldest first.
fn chain(files: &Files, used: &[u64], options: &Options) -> Result<Vec<Link>> {
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
            // Its head is not of this name: it was taken, and not begun before the crash.
            other => {
                let is_begun = Scan::has_batch_of(&*file, number, options.unit)?;
                if next.is_some() || is_begun {
                    let e = other.err().unwrap_or_else(|| {
                        Error::corruption("the head is another file's").file(file.path())
                    });
                    return Err(e.hint("a file of the log is damaged"));
                }
                continue;
            }
        };
        if head.store != options.store || head.unit != options.unit {
            return Err(Error::corruption(format!(
                "the file is of store {} with units of {} bytes, and not of {} with {}",
                head.store, head.unit, options.store, options.unit
            ))
            .file(file.path()));
        }
        let end = next.map(|(_, end)| end);
        chain.push(Link { number, file, end });
        next = Some((head.predecessor, head.predecessor_end));
    }
    chain.reverse();
    Ok(chain)
}

/// Takes what a file holds, and returns where it ends.
fn replay(link: &Link, options: &Options, groups: &mut Groups) -> Result<u64> {
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
            // A copy: a slice would keep the whole batch in memory.
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
        .hint("repair the replicas of the store from their peers"));
    }
    debug_assert!(scan.end() >= file_head::LEN as u64);
    Ok(scan.end())
}
