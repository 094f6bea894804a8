//! Tests of a log on a real file system: durable batches are found again, whatever a crash leaves of the
//! others.

use std::path::PathBuf;

use base::checksum::crc32c;
use io::posix::Posix;
use io::{OpenHow, SyncKind};

use super::*;
use crate::ids::{BLOCK, Term};
use crate::store::data::{Data, SLOT_BYTES};
use crate::store::dirty::Dirty;
use crate::store::sync::SyncTicket;

const UNIT: u32 = 512;
const FILE_BYTES: u64 = 64 << 10;
const A: Group = Group(1);
const B: Group = Group(2);

struct Dir {
    _temp: tempfile::TempDir,
    log: PathBuf,
    data: Arc<dyn File>,
}

fn options(seed: u64) -> Options {
    Options {
        store: Uuid([9; 16]),
        unit: UNIT,
        depth: 2,
        file_bytes: FILE_BYTES,
        reserved_files: 2,
        memory_bytes: 1 << 20,
        seed,
    }
}

impl Dir {
    fn new(files: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        Files::make(&Posix::shared(), &log, files, FILE_BYTES, &mut |_| ()).unwrap();
        let data = Posix
            .open(&dir.path().join("data"), OpenHow::CREATE_NEW)
            .unwrap();
        data.truncate(SLOT_BYTES).unwrap();
        Self {
            _temp: dir,
            log,
            data,
        }
    }

    fn open(&self, seed: u64) -> RaftLog {
        self.try_open(seed, 0).unwrap()
    }

    fn try_open(&self, seed: u64, newest: u64) -> Result<RaftLog> {
        RaftLog::open(Posix::shared(), &self.log, options(seed), newest)
    }

    /// A ticket for everything of a group up to `through`.
    fn ticket(&self, group: Group, through: u64) -> SyncTicket {
        let mut data = Data::open(Arc::clone(&self.data), 1).unwrap();
        let marked = Dirty::after(group, Index(through)).mark(u64::MAX).unwrap();
        let written = data.write_back(vec![marked], &mut |_| ()).unwrap();
        written.sync().unwrap().pop().unwrap().0
    }

    /// Overwrites bytes of a file behind the log's back.
    fn overwrite(&self, number: u64, offset: u64, bytes: &[u8]) {
        let path = self.log.join(format!("{number:06}.log"));
        let file = Posix.open(&path, OpenHow::UPDATE).unwrap();
        io::write_all_at(&*file, bytes, offset, WriteSync::None).unwrap();
        file.sync(SyncKind::All).unwrap();
    }
}

fn entry(group: Group, index: u64, term: u64, blocks: usize) -> Item {
    let mut payload = AlignedBuf::zeroed(blocks * BLOCK, PAGE).unwrap();
    payload.fill((index * 7 + term) as u8);
    let mut inline = vec![term as u8; 48];
    for block in payload.chunks(BLOCK) {
        inline.extend(crc32c(block).to_le_bytes());
    }
    Item {
        kind: Kind::Entry,
        flags: 0,
        group,
        index: Index(index),
        term: Term(term),
        inline: inline.into(),
        payload: payload.into(),
    }
}

/// Appends a batch and waits until it is durable.
fn write(log: &mut RaftLog, items: Vec<Item>) {
    let (id, append) = log.append(items, &[]).unwrap();
    let outcome = append.run();
    let landed = log.landed(append, outcome).unwrap();
    assert_eq!(landed.durable, [id]);
    assert!(landed.again.is_none());
}

/// Lets the batches that are written again land, one after the other; returns those that are durable then.
fn land_again(log: &mut RaftLog, again: Option<Append>) -> Vec<BatchId> {
    let (mut next, mut durable) = (again, vec![]);
    while let Some(append) = next {
        let outcome = append.run();
        let landed = log.landed(append, outcome).unwrap();
        durable.extend(landed.durable);
        next = landed.again;
    }
    durable
}

fn checkpoint(log: &mut RaftLog, ticket: SyncTicket, keep_from: u64) {
    let c = Checkpoint::at(ticket, Term(1), Bytes::from_static(b"members"));
    let (_, append) = log.append(vec![], &[c]).unwrap();
    let outcome = append.run();
    let landed = log.landed(append, outcome).unwrap();
    for token in landed.tokens {
        log.truncate(token, Index(keep_from)).unwrap();
    }
}

fn kept(log: &RaftLog, group: Group) -> Vec<(u64, u64)> {
    let Some(g) = log.groups().get(group) else {
        return vec![];
    };
    let range = g.first().0..=g.last().0;
    range
        .map(|i| {
            let e = g.entry(Index(i)).unwrap();
            let payload = log.payload(group, Index(i)).unwrap();
            let all = |b: &u8| *b == (i * 7 + e.term.0) as u8;
            assert!(payload.iter().all(all), "entry {i} of {group}");
            (i, e.term.0)
        })
        .collect()
}

#[test]
fn what_is_durable_is_found_again_over_several_files() {
    let dir = Dir::new(14);
    let mut log = dir.open(1);
    for i in 1..40 {
        write(
            &mut log,
            vec![entry(A, i, 1, 1), entry(B, i, 2, (i % 3) as usize)],
        );
    }
    assert!(log.file_number() > 3, "{}", log.file_number());
    let before = (kept(&log, A), kept(&log, B));
    drop(log);
    let mut log = dir.open(2);
    assert_eq!((kept(&log, A), kept(&log, B)), before);
    // A suffix of another leader is overwritten.
    write(&mut log, vec![entry(A, 30, 3, 2)]);
    drop(log);
    let log = dir.open(3);
    let a = kept(&log, A);
    assert_eq!((a.len(), a.last()), (30, Some(&(30, 3))));
}

#[test]
fn files_go_round_as_checkpoints_let_them() {
    let dir = Dir::new(6);
    let mut log = dir.open(1);
    let mut begun = 0;
    for i in 1..200 {
        write(&mut log, vec![entry(A, i, 1, 2)]);
        if log.fill() > 0.5 {
            checkpoint(&mut log, dir.ticket(A, i), i.saturating_sub(3));
            begun = log.file_number();
        }
    }
    assert!(begun > 12, "{begun}");
    assert!(log.fill() < 0.8);
    let before = kept(&log, A);
    let g = log.groups().get(A).unwrap();
    assert_eq!(&g.state()[..], b"members");
    let (first, synced) = (g.first(), g.synced());
    drop(log);
    let log = dir.open(2);
    let g = log.groups().get(A).unwrap();
    assert_eq!((g.synced(), &g.state()[..]), (synced, &b"members"[..]));
    assert!(g.first() <= first);
    assert!(kept(&log, A).ends_with(&before));
}

#[test]
fn a_full_log_takes_checkpoints_and_no_entries() {
    let dir = Dir::new(5);
    let mut log = dir.open(1);
    let mut i = 1;
    let e = loop {
        match log.append(vec![entry(A, i, 1, 4)], &[]) {
            Err(e) => break e,
            Ok((_, append)) => {
                let outcome = append.run();
                assert_eq!(log.landed(append, outcome).unwrap().durable.len(), 1);
                i += 1;
            }
        }
    };
    assert_eq!(e.kind(), base::ErrorKind::NoSpace);
    assert!(e.to_string().contains("written back"), "{e}");
    assert!(
        log.groups().get(A).unwrap().last() < Index(i),
        "nothing was taken in"
    );
    checkpoint(&mut log, dir.ticket(A, i - 1), i);
    write(&mut log, vec![entry(A, i, 1, 4)]);
}

/// Openings without writes use up no files.
#[test]
fn a_store_is_opened_any_number_of_times() {
    let dir = Dir::new(4);
    write(&mut dir.open(1), vec![entry(A, 1, 1, 1)]);
    let mut newest = 0;
    for seed in 2..20 {
        let log = dir.try_open(seed, newest).unwrap();
        assert!(log.file_number() > newest);
        newest = log.file_number();
        assert_eq!(kept(&log, A), [(1, 1)]);
    }
    assert!(dir.open(20).files.spare() >= 2);
}

#[test]
fn a_file_that_is_missing_or_damaged_is_named() {
    let dir = Dir::new(8);
    let mut log = dir.open(1);
    for i in 1..40 {
        write(&mut log, vec![entry(A, i, 1, 1)]);
    }
    let newest = log.file_number();
    drop(log);
    let path = |n: u64| dir.log.join(format!("{n:06}.log"));
    let away = dir.log.join("away");
    let refused = |what: &str, needle: &str| {
        let e = dir.try_open(7, newest).unwrap_err();
        let text = e.to_string();
        let words = [needle, dir.log.to_str().unwrap(), "bring "];
        assert!(e.is_corruption(), "{what}: {e}");
        assert!(words.iter().all(|w| text.contains(w)), "{what}: {e}");
    };
    for n in 1..=newest {
        std::fs::rename(path(n), &away).unwrap();
        refused(
            "gone",
            if n == newest {
                "is missing"
            } else {
                "missing from the log"
            },
        );
        std::fs::rename(&away, path(n)).unwrap();
    }
    for n in 1..=newest {
        let whole = std::fs::read(path(n)).unwrap();
        dir.overwrite(n, 16, b"another store...");
        refused("a head", "head of a log file");
        std::fs::write(path(n), &whole).unwrap();
        // Below the fence of a later batch or file: in the first batch's bytes, and in the second's.
        for at in [4096 + 512, 4096 + 4608 + 512] {
            dir.overwrite(n, at + 77, b"?");
            refused("a batch", &format!("{n:06}.log"));
            std::fs::write(path(n), &whole).unwrap();
        }
    }
    std::fs::copy(path(1), path(newest)).unwrap();
    refused("another file", "is missing");
}

/// The only batch of the newest file was damaged, and was taken for one that had not arrived.
#[test]
fn damage_to_the_first_batch_of_a_file_that_was_durable_is_named() {
    let dir = Dir::new(8);
    let mut log = dir.open(1);
    write(&mut log, vec![entry(A, 1, 1, 1)]);
    let (number, newest) = (log.file_number(), log.durable_file_number());
    assert_eq!(number, newest);
    drop(log);
    dir.overwrite(number, 4096 + 77, b"?");
    let e = dir.try_open(7, newest).unwrap_err();
    let text = e.to_string();
    assert!(e.is_corruption() && text.contains("was durable"), "{text}");
    assert!(text.contains(&format!("{number:06}.log")), "{text}");
    // If the superblock does not know of the file, nothing in it was acknowledged.
    drop(dir.try_open(8, number - 1).unwrap());
}

/// Another store's log is in this store's place.
#[test]
fn a_log_of_another_store_is_refused() {
    let dir = Dir::new(4);
    write(&mut dir.open(1), vec![entry(A, 1, 1, 1)]);
    let theirs = Options {
        store: Uuid([8; 16]),
        ..options(2)
    };
    let e = RaftLog::open(Posix::shared(), &dir.log, theirs, 0).unwrap_err();
    let e = e.to_string();
    assert!(
        e.contains("is of store 09090909") && e.contains("each other's place"),
        "{e}"
    );
}

/// Two batches are on their way, and a crash leaves any part of them. Each is found whole or not at all,
/// the second never without the first.
#[test]
fn a_crash_leaves_a_prefix_of_what_was_on_its_way() {
    let dir = Dir::new(6);
    let mut log = dir.open(1);
    write(&mut log, vec![entry(A, 1, 1, 1)]);
    let number = log.file_number();
    let from = log.current.log.size();
    let (_, first) = log.append(vec![entry(A, 2, 1, 1)], &[]).unwrap();
    let middle = log.current.log.size();
    let (_, second) = log.append(vec![entry(A, 3, 1, 2)], &[]).unwrap();
    assert!(!log.can_append(1), "two are on their way");
    let end = log.current.log.size();
    first.run().unwrap();
    second.run().unwrap();
    drop(log);
    let path = dir.log.join(format!("{number:06}.log"));
    let whole = std::fs::read(&path).unwrap();
    let units = (end - from) / u64::from(UNIT);
    for lost in 0..units {
        let at = (from + lost * u64::from(UNIT)) as usize;
        let mut torn = whole.clone();
        torn[at..at + UNIT as usize].fill(0);
        std::fs::write(&path, &torn).unwrap();
        let names = std::fs::read_dir(&dir.log).unwrap();
        let names: Vec<_> = names.map(|n| n.unwrap().path()).collect();
        let log = dir.open(100 + lost);
        let last = log.groups().get(A).unwrap().last().0;
        let unchanged = whole[at..at + UNIT as usize].iter().all(|&b| b == 0);
        let expected = match at as u64 {
            _ if unchanged => 3,
            at if at < middle => 1,
            _ => 2,
        };
        assert_eq!(last, expected, "unit {lost} of {units}");
        // The new file is removed for the next round.
        let begun = log.file_number();
        drop(log);
        std::fs::rename(
            dir.log.join(format!("{begun:06}.log")),
            dir.log.join("spare-99"),
        )
        .unwrap();
        drop(names);
    }
}

/// A write failed while the next was on its way: both go to a new file, and nothing behind the hole counts.
#[test]
fn what_failed_is_written_to_a_new_file() {
    let dir = Dir::new(6);
    let mut log = dir.open(1);
    write(&mut log, vec![entry(A, 1, 1, 1)]);
    let number = log.file_number();
    for order in [[0, 1], [1, 0]] {
        let last = log.groups().get(A).unwrap().last().0;
        let (one, first) = log.append(vec![entry(A, last + 1, 1, 1)], &[]).unwrap();
        let (two, second) = log.append(vec![entry(A, last + 2, 1, 2)], &[]).unwrap();
        second.run().unwrap();
        let failed = Err(Error::aborted("planted"));
        let mut both = [Some((first, failed)), Some((second, Ok(())))];
        let mut again = None;
        for which in order {
            assert!(again.is_none());
            let (append, outcome) = both[which].take().unwrap();
            let landed = log.landed(append, outcome).unwrap();
            assert!(landed.durable.is_empty());
            again = landed.again;
        }
        assert!(log.file_number() > number);
        assert_eq!(land_again(&mut log, again), [one, two]);
        write(&mut log, vec![entry(A, last + 3, 1, 0)]);
    }
    let before = kept(&log, A);
    assert_eq!(before.len(), 7);
    drop(log);
    assert_eq!(kept(&dir.open(2), A), before);
}

/// A checkpoint that was on its way with a failed write gives its token once, when it is durable.
#[test]
fn a_token_comes_when_its_checkpoint_is_durable() {
    let dir = Dir::new(6);
    let mut log = dir.open(1);
    write(&mut log, vec![entry(A, 1, 1, 1)]);
    let ticket = dir.ticket(A, 1);
    let c = Checkpoint::at(ticket, Term(1), Bytes::new());
    let (id, append) = log.append(vec![], &[c]).unwrap();
    let landed = log.landed(append, Err(Error::aborted("planted"))).unwrap();
    assert!(landed.tokens.is_empty());
    let again = landed.again.unwrap();
    let outcome = again.run();
    let landed = log.landed(again, outcome).unwrap();
    assert_eq!((landed.durable, landed.tokens.len()), (vec![id], 1));
    let mut forged = entry(A, 1, 1, 0);
    forged.kind = Kind::Checkpoint;
    let e = log.append(vec![forged], &[]).unwrap_err();
    assert!(e.to_string().contains("without a ticket"), "{e}");
}

/// The first batch of a new file failed; two openings later, the files before it were no longer in the chain.
#[test]
fn a_file_whose_first_batch_failed_is_no_link() {
    let dir = Dir::new(8);
    let mut log = dir.open(1);
    write(&mut log, vec![entry(A, 1, 1, 1)]);
    drop(log);
    let mut log = dir.open(2);
    let (_, append) = log.append(vec![entry(A, 2, 1, 1)], &[]).unwrap();
    let failed = Err(Error::aborted("planted"));
    let again = log.landed(append, failed).unwrap().again.unwrap();
    let outcome = again.run();
    assert_eq!(log.landed(again, outcome).unwrap().durable.len(), 1);
    drop(log);
    for seed in 3..8 {
        assert_eq!(kept(&dir.open(seed), A), [(1, 1), (2, 1)], "{seed}");
    }
}

/// One group is idle, and its entries are proved to be in the data file: they must not use up the log.
#[test]
fn an_idle_group_keeps_no_files() {
    let dir = Dir::new(6);
    let mut log = dir.open(1);
    write(&mut log, vec![entry(B, 1, 1, 1)]);
    checkpoint(&mut log, dir.ticket(B, 1), 1);
    assert_eq!(kept(&log, B).len(), 1, "kept for followers");
    for i in 1..120 {
        write(&mut log, vec![entry(A, i, 1, 2)]);
        if log.fill() > 0.5 {
            checkpoint(&mut log, dir.ticket(A, i), i + 1);
            log.truncate_proven(0.0).unwrap();
        }
    }
    assert!(kept(&log, B).is_empty());
}

/// After an opening, nobody knew what the checkpoints had proved: entries that an idle group kept for followers
/// filled the log.
#[test]
fn what_an_opening_finds_proven_makes_room() {
    let dir = Dir::new(6);
    let mut log = dir.open(1);
    write(&mut log, vec![entry(B, 1, 1, 1)]);
    checkpoint(&mut log, dir.ticket(B, 1), 1);
    drop(log);
    let mut log = dir.open(2);
    assert_eq!(kept(&log, B).len(), 1, "kept for followers");
    log.truncate_proven(0.0).unwrap();
    assert!(kept(&log, B).is_empty());
}

/// The first of two batches had failed, the second had not landed, and a third was appended.
#[test]
fn nothing_is_appended_between_a_failure_and_the_last_landing() {
    let dir = Dir::new(6);
    let mut log = dir.open(1);
    let (_, first) = log.append(vec![entry(A, 1, 1, 1)], &[]).unwrap();
    let (_, second) = log.append(vec![entry(A, 2, 1, 1)], &[]).unwrap();
    let landed = log.landed(first, Err(Error::aborted("planted"))).unwrap();
    assert!(landed.again.is_none() && !log.can_append(1));
    let outcome = second.run();
    let again = log.landed(second, outcome).unwrap().again;
    assert!(!log.can_append(1), "one is not written again yet");
    assert_eq!(land_again(&mut log, again).len(), 2);
    write(&mut log, vec![entry(A, 3, 1, 1)]);
}

/// Entries that came with a checkpoint used up the reserved files, one by one, until no checkpoint had room.
#[test]
fn entries_that_come_with_a_checkpoint_do_not_use_what_is_reserved() {
    let dir = Dir::new(5);
    let mut log = dir.open(1);
    write(&mut log, vec![entry(B, 1, 1, 1)]);
    let mut last = 0;
    for i in 1.. {
        let Ok((_, append)) = log.append(vec![entry(A, i, 1, 4)], &[]) else {
            break;
        };
        let outcome = append.run();
        assert_eq!(log.landed(append, outcome).unwrap().durable.len(), 1);
        last = i;
    }
    // Group B is not written back, so no file is freed.
    for _ in 0..50 {
        let c = Checkpoint::at(dir.ticket(A, last), Term(1), Bytes::from_static(b"state"));
        let with = log.append(vec![entry(A, last + 1, 1, 4)], std::slice::from_ref(&c));
        assert_eq!(with.unwrap_err().kind(), base::ErrorKind::NoSpace);
        let (_, append) = log.append(vec![], &[c]).unwrap();
        let outcome = append.run();
        let landed = log.landed(append, outcome).unwrap();
        for token in landed.tokens {
            log.truncate(token, Index(last + 1)).unwrap();
        }
    }
    checkpoint(&mut log, dir.ticket(B, 1), 2);
    write(&mut log, vec![entry(A, last + 1, 1, 4)]);
}

/// Batches that were on their way together had to fit into one file when they were written again.
#[test]
fn what_failed_together_need_not_fit_one_file() {
    let dir = Dir::new(6);
    let mut log = dir.open(1);
    let blocks = log.batch_bytes_max() as usize / BLOCK - 1;
    for round in 0..3 {
        let at = log.groups().get(A).map_or(0, |g| g.last().0);
        let (_, first) = log.append(vec![entry(A, at + 1, 1, blocks)], &[]).unwrap();
        let (_, second) = log.append(vec![entry(A, at + 2, 1, 1)], &[]).unwrap();
        let failed = || Err(Error::aborted("planted"));
        assert!(log.landed(first, failed()).unwrap().again.is_none());
        let again = log.landed(second, failed()).unwrap().again;
        // The second try fails as well.
        let again = log.landed(again.unwrap(), failed()).unwrap().again;
        assert_eq!(land_again(&mut log, again).len(), 2, "{round}");
        checkpoint(&mut log, dir.ticket(A, at + 2), at + 3);
    }
    let before = kept(&log, A);
    drop(log);
    assert!(kept(&dir.open(2), A).ends_with(&before));
}

/// Payloads stayed in memory until a checkpoint, however often the same block was written.
#[test]
fn payloads_in_memory_are_bounded_and_read_from_the_file_then() {
    let dir = Dir::new(20);
    let mut log = RaftLog::open(
        Posix::shared(),
        &dir.log,
        Options {
            memory_bytes: 64 << 10,
            ..options(1)
        },
        0,
    )
    .unwrap();
    for i in 1..100 {
        write(&mut log, vec![entry(A, i, 1, 2)]);
        assert!(log.bytes_in_memory() <= 64 << 10);
    }
    for i in 1..100 {
        assert_eq!(log.payload(A, Index(i)).unwrap(), entry(A, i, 1, 2).payload);
    }
    // An overwritten entry does not count.
    write(&mut log, vec![entry(A, 50, 2, 0)]);
    assert_eq!(log.bytes_in_memory(), 0);
}

/// Each opening took a file. A store that was killed again and again, with entries that were not written back,
/// could not be opened any more.
#[test]
fn a_store_that_is_killed_again_and_again_can_be_opened() {
    let dir = Dir::new(5);
    for round in 1..40 {
        let mut log = dir.open(round);
        let last = log.groups().get(A).map_or(0, |g| g.last().0);
        assert_eq!(last, round - 1);
        write(&mut log, vec![entry(A, last + 1, round, 0)]);
        // Both groups have entries in each file.
        let last = log.groups().get(B).map_or(0, |g| g.last().0);
        if log.has_room(20 << 10) {
            write(&mut log, vec![entry(B, last + 1, 1, 2)]);
        }
        for index in 1..=last {
            let bytes = log.payload(B, Index(index)).unwrap();
            assert_eq!(bytes, entry(B, index, 1, 2).payload, "{round}");
        }
    }
}

/// A file was freed while the states in the next file were on their way: after a crash there were none.
#[test]
fn a_file_stays_until_the_states_behind_it_are_durable() {
    let dir = Dir::new(6);
    let mut log = dir.open(1);
    let mut last = 0;
    while log.current.log.size() < FILE_BYTES / 4 * 3 {
        last += 1;
        write(&mut log, vec![entry(A, last, 1, 1)]);
    }
    checkpoint(&mut log, dir.ticket(A, last), 1);
    let (number, newest) = (log.file_number(), log.durable_file_number());
    let blocks = log.batch_bytes_max() as usize / BLOCK - 1;
    let (_, append) = log
        .append(vec![entry(A, last + 1, 1, blocks)], &[])
        .unwrap();
    assert!(log.file_number() > number);
    log.truncate_proven(0.0).unwrap();
    // The write never arrives.
    drop(append);
    drop(log);
    let log = dir.try_open(2, newest).unwrap();
    assert_eq!(log.groups().get(A).unwrap().synced().0, Index(last));
}
