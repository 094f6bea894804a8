//! Tests at the limits: too much at once, nothing written back, a log without room, clocks that stop.

use super::super::write_back::WRITE_BACKS_MAX;
use super::*;
use crate::group::message::Body;
use crate::ids::{Index, Term};
use crate::raftlog::batch::{Item, Kind};
use crate::shard::time::ReadMode;

mod leases;

pub(super) fn span(chunk: u32, offset: u32, len: u32) -> Span {
    Span {
        chunk: Chunk(chunk),
        offset,
        len,
    }
}

pub(super) fn write(span: Span, byte: u8) -> What {
    let mut payload = AlignedBuf::zeroed(span.len as usize, 4096).unwrap();
    payload.fill(byte);
    let crcs: Vec<u32> = crate::wire::client::crcs_at(span.offset, &payload).collect();
    What::Write {
        span,
        crcs: crcs.into(),
        payload: payload.into(),
    }
}

pub(super) fn attached(seed: u64) -> (Cluster, Client) {
    let mut c = Cluster::new(seed);
    let mut client = Client::new(1);
    assert_eq!(client.ask(&mut c, &What::Attach, false), Outcome::Done);
    (c, client)
}

pub(super) fn request(client: &mut Client, what: What) -> Request {
    let seq = if what.is_change() { client.next } else { 0 };
    client.next += u64::from(seq > 0);
    client.next_id += 1;
    Request {
        id: client.next_id,
        group: client.group,
        tree: Tree(1),
        layer: Layer(1),
        origin: Origin {
            epoch: Epoch(client.epoch),
            attachment: Attachment(u64::from(client.epoch)),
            seq,
            lowest_open: 1,
        },
        what,
    }
}

/// Everything that arrived at once went to one batch, however large, and the store failed.
#[test]
fn many_large_writes_at_once_go_to_several_batches() {
    let (mut c, mut client) = attached(3);
    let leader = c.leader().unwrap();
    // The log's files have 4 MiB.
    let events: Vec<Event> = (0..8)
        .map(|n| Event::Request {
            client: 1,
            request: request(&mut client, write(span(0, n << 20, 1 << 20), n as u8 + 1)),
        })
        .collect();
    let now = c.now;
    c.core(leader).step_all(now, events);
    assert!(c.core(leader).failure().is_none());
    while let Some(command) = c.core(leader).next_command() {
        c.todo.push((leader, command));
    }
    let mut answers = 0;
    for _ in 0..20_000 {
        c.turn();
        answers += c
            .answers
            .drain(..)
            .filter(|a| a.outcome == Outcome::Done)
            .count();
        if answers == 8 {
            break;
        }
    }
    // With 256 MiB of dirty blocks allowed, these stay below the limit; the log has room for them only after
    // checkpoints.
    assert!(answers >= 3, "{answers}");
    for n in 0..3 {
        assert!(c.core(n).failure().is_none());
    }
}

#[test]
fn a_write_of_too_many_blocks_is_refused() {
    let (mut c, mut client) = attached(3);
    let outcome = client.ask(&mut c, &write(span(0, 7, 1 << 20), 1), false);
    let Outcome::Refused(Reason::Io(text)) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(text.contains("257 blocks: 256 at most"), "{text}");
}

/// Zeros that covered blocks partly became one entry with all of them. It fitted no frame, so nothing behind it
/// was committed; and in a log with small files it made the store fail.
#[test]
fn zeros_that_become_a_write_of_too_many_blocks_are_refused() {
    let (mut c, mut client) = attached(4);
    for what in [
        What::Zero(span(0, 1, (16 << 20) - 2)),
        What::Trim(span(0, 4096, (3 << 20) + 1)),
    ] {
        let outcome = client.ask(&mut c, &what, false);
        let Outcome::Refused(Reason::Io(text)) = outcome else {
            panic!("{what:?}: {outcome:?}");
        };
        assert!(text.contains("blocks: 256 at most"), "{text}");
        client.next -= 1;
    }
    for what in [What::Zero(span(0, 0, 16 << 20)), write(span(0, 0, 4096), 1)] {
        assert_eq!(client.ask(&mut c, &what, false), Outcome::Done, "{what:?}");
    }
}

/// Chunks counted as created although the first write to them was refused when it was applied: the volume had
/// no space.
#[test]
fn writes_that_are_fenced_take_no_chunks() {
    let (mut c, mut client) = attached(4);
    let leader = c.leader().unwrap();
    let now = c.now;
    // No client is attached to this tree, so each write is in the log before it is refused.
    for chunk in 0..CHUNKS {
        let asked = Request {
            tree: Tree(9),
            origin: Origin {
                seq: 1,
                lowest_open: 1,
                ..Origin::default()
            },
            ..request(&mut client, write(span(chunk, 0, 4096), 7))
        };
        client.next -= 1;
        let event = Event::Request {
            client: 9,
            request: asked,
        };
        c.core(leader).step(now, event);
    }
    while let Some(command) = c.core(leader).next_command() {
        c.todo.push((leader, command));
    }
    for _ in 0..20_000 {
        if c.answers.len() == CHUNKS as usize {
            break;
        }
        c.turn();
    }
    let is_fenced = |a: &Response| matches!(a.outcome, Outcome::Refused(Reason::Fenced { .. }));
    assert!(c.answers.drain(..).all(|a| is_fenced(&a)));
    for chunk in 0..CHUNKS {
        let what = write(span(chunk, 0, 4096), 1);
        assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
    }
}

/// A chunk counts once while several first writes to it are on their way, even if some of them are applied.
#[test]
fn a_chunk_that_many_begin_at_once_counts_once() {
    let (mut c, mut client) = attached(4);
    let leader = c.leader().unwrap();
    let mut answered = 0;
    for n in 0..40 {
        let what = write(span(0, n << 12, 4096), 1);
        let request = request(&mut client, what);
        c.event(leader, Event::Request { client: 1, request });
        for _ in 0..4 {
            c.turn();
        }
        answered += c
            .answers
            .drain(..)
            .filter(|a| a.outcome == Outcome::Done)
            .count();
        if answered > 0 {
            break;
        }
    }
    assert!(answered > 0);
    let last = request(&mut client, write(span(CHUNKS - 1, 0, 4096), 1));
    let id = last.id;
    let event = Event::Request {
        client: 1,
        request: last,
    };
    c.event(leader, event);
    assert_eq!(c.answer(id), Outcome::Done);
}

/// A write to a chunk without a slot was applied, and could never be written back.
#[test]
fn a_chunk_beyond_those_granted_is_refused_before_it_is_written() {
    let (mut c, mut client) = attached(4);
    for chunk in 0..CHUNKS {
        let what = write(span(chunk, 0, 4096), 1);
        assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
    }
    let beyond = span(CHUNKS, 0, 4096);
    for what in [write(beyond, 1), write(span(CHUNKS, 5, 100), 1)] {
        let outcome = client.ask(&mut c, &what, false);
        assert_eq!(outcome, Outcome::Refused(Reason::NoSpace));
        client.next -= 1;
    }
    // Zeros take no space, and existing chunks can be written as before.
    for what in [
        What::Zero(beyond),
        What::Trim(beyond),
        write(span(0, 0, 4096), 2),
    ] {
        assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
    }
    for n in 0..3 {
        c.kill(n);
        c.start(n);
    }
    let outcome = client.ask(&mut c, &write(beyond, 1), false);
    assert_eq!(
        outcome,
        Outcome::Refused(Reason::NoSpace),
        "after a restart"
    );
}

#[test]
fn a_store_with_too_few_slots_for_its_groups_is_refused() {
    let mut c = Cluster::new(3);
    c.kill(0);
    let fs: Arc<dyn FileSystem> = Posix::shared();
    let dir = c.dirs[0].path().join("s");
    let assignment = |group, chunks_max| Assignment {
        group: Group(group),
        replica: 1,
        members: Members::of(&[1, 2, 3]),
        chunks_max,
    };
    let policy = c.policy;
    let mut open = |groups: &[Assignment]| {
        let opened = Store::open(&fs, &dir, CLUSTER, 2, 1).unwrap();
        let reader = opened.data.reader();
        let core = Core::open(opened.store, opened.log, reader, policy, groups, &mut c.rng);
        core.map(drop).map_err(|e| e.to_string())
    };
    let e = open(&[assignment(1, CHUNKS), assignment(2, 1)]).unwrap_err();
    assert!(e.contains("may have 3 chunks, and it has 2 slots"), "{e}");
    let many: Vec<Assignment> = (1..30).map(|g| assignment(g, 0)).collect();
    let e = open(&many).unwrap_err();
    assert!(e.contains("has 29 groups"), "{e}");
    open(&[assignment(1, CHUNKS)]).unwrap();
}

/// Runs until a store has no dirty blocks.
pub(super) fn settle(c: &mut Cluster, n: usize) {
    for _ in 0..20_000 {
        if c.core(n).dirty_bytes() == 0 {
            return;
        }
        c.turn();
    }
    panic!("never written back");
}

/// A failed write-back was begun again at once, without end.
#[test]
fn a_write_back_that_fails_is_tried_again_after_pauses_and_not_for_ever() {
    let (mut c, mut client) = attached(4);
    let leader = c.leader().unwrap();
    let mut tries = 0;
    let begun = c.now;
    let what = write(span(0, 0, 128 << 10), 1);
    assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
    while c.core(leader).failure().is_none() {
        let now = c.now;
        let core = c.core(leader);
        while let Some(command) = core.next_command() {
            let Command::WriteBack(marked, _) = command else {
                continue;
            };
            tries += 1;
            let error = Error::aborted("planted");
            core.step(now, Event::NotWritten(Failed { error, marked }));
        }
        c.now += TICK;
        let now = c.now;
        c.core(leader).step(now, Event::Tick);
        let mine = |(n, command): &(usize, Command)| {
            *n == leader && matches!(command, Command::WriteBack(..))
        };
        if let Some(at) = c.todo.iter().position(mine) {
            let (_, Command::WriteBack(marked, _)) = c.todo.remove(at) else {
                unreachable!()
            };
            tries += 1;
            let error = Error::aborted("planted");
            let now = c.now;
            c.core(leader)
                .step(now, Event::NotWritten(Failed { error, marked }));
        }
        assert!(c.now < begun + Duration::from_secs(300));
    }
    assert_eq!(tries, WRITE_BACKS_MAX);
    assert!(c.now > begun + Duration::from_secs(20));
    let e = c.core(leader).failure().unwrap().to_string();
    assert!(
        e.contains("planted") && e.contains("replace the disk"),
        "{e}"
    );
}

/// The second of two changes of parts of one block was merged with the block's content before the first.
#[test]
fn parts_of_one_block_that_come_at_once_are_all_there() {
    let (mut c, mut client) = attached(4);
    let leader = c.leader().unwrap();
    let parts = [0, 1024, 2048, 3072];
    let events = parts.map(|at| Event::Request {
        client: 1,
        request: request(&mut client, write(span(0, at, 1024), (at / 1024) as u8 + 1)),
    });
    let now = c.now;
    c.core(leader).step_all(now, events);
    while let Some(command) = c.core(leader).next_command() {
        c.todo.push((leader, command));
    }
    let mut done = 0;
    while done < parts.len() {
        c.turn();
        let answers = c.answers.drain(..);
        done += answers.filter(|a| a.outcome == Outcome::Done).count();
    }
    client.at = leader;
    let outcome = client.ask(&mut c, &What::Read(span(0, 0, 4096)), false);
    let Outcome::Data { pieces, .. } = outcome else {
        panic!("{outcome:?}");
    };
    let [Piece::Data(bytes)] = &pieces[..] else {
        panic!("{pieces:?}");
    };
    for at in parts {
        assert_eq!(bytes[at as usize], (at / 1024) as u8 + 1);
    }
}

/// A message of the leader with one more entry, which the leader does not have.
pub(super) fn one_more(
    c: &mut Cluster,
    (leader, follower): (usize, usize),
    inline: &'static [u8],
    payload: Bytes,
) -> Event {
    let node = c.core(leader).member(GROUP).unwrap().node();
    let (term, last) = (node.term(), node.last());
    Event::Message {
        group: GROUP,
        message: Message {
            from: leader as u64 + 1,
            to: follower as u64 + 1,
            term,
            body: Body::Append {
                index: last,
                log_term: term,
                commit: last,
                entries: vec![crate::group::message::Entry {
                    index: Index(last.0 + 1),
                    term,
                    is_change: false,
                    inline: Bytes::from_static(inline),
                }],
            },
        },
        payloads: vec![payload],
    }
}

/// An entry that no replica can apply got into the log, and made each store fail that read it.
#[test]
fn an_entry_that_cannot_be_applied_does_not_come_into_the_log() {
    let (mut c, _) = attached(4);
    let leader = c.leader().unwrap();
    let follower = (leader + 1) % 3;
    let append = one_more(&mut c, (leader, follower), b"no command", Bytes::new());
    for _ in 0..200 {
        c.turn();
    }
    let before = c.core(follower).member(GROUP).unwrap().node().last();
    let now = c.now;
    c.core(follower).step(now, append);
    assert_eq!(
        c.core(follower).member(GROUP).unwrap().node().last(),
        before
    );
}

/// Commit indices alone were never written: after a restart, a group knew only the commits that its leader had
/// repeated.
#[test]
fn a_checkpoint_says_what_is_committed() {
    let (mut c, mut client) = attached(4);
    for n in 0..10 {
        let what = write(span(0, n << 12, 4096), 1);
        assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
    }
    let leader = c.leader().unwrap();
    settle(&mut c, leader);
    for _ in 0..500 {
        c.turn();
    }
    let applied = c.core(leader).member(GROUP).unwrap().replica().synced();
    let dir = c.dirs[leader].path().join("s");
    c.kill(leader);
    let fs: Arc<dyn FileSystem> = Posix::shared();
    let opened = Store::open(&fs, &dir, CLUSTER, 2, 1).unwrap();
    let group = opened.log.groups().get(GROUP).unwrap();
    assert_eq!(group.synced().0, applied);
    assert!(group.hard().commit >= applied, "{:?}", group.hard());
}

/// Only a faulty tool makes this: an item of a kind that groups never give.
#[test]
fn hard_states_and_entries_are_all_that_groups_give() {
    let item = Item {
        kind: Kind::GroupState,
        flags: 0,
        group: GROUP,
        index: Index(0),
        term: Term(0),
        inline: Bytes::new(),
        payload: Bytes::new(),
    };
    let mut c = Cluster::new(1);
    let now = c.now;
    let core = c.core(0);
    core.held.push(GROUP, vec![item], None);
    core.step(now, Event::Tick);
    let e = core.failure().unwrap().to_string();
    assert!(e.contains("without a ticket"), "{e}");
}

/// `apply_sync=odsync`: blocks are in place when their write is answered, and a write-back skips them.
#[test]
fn what_is_answered_in_mode_odsync_is_in_its_place() {
    let (mut c, mut client) = attached(2);
    assert_eq!(c.policy.apply_sync, ApplySync::Odsync);
    for n in 0..4 {
        let what = write(span(0, n << 14, 8192), n as u8 + 1);
        let leader = client.at;
        assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
        assert_eq!(client.at, leader);
        let data = c.dirs[leader].path().join("s").join("data");
        let bytes = std::fs::read(data).unwrap();
        let block = vec![n as u8 + 1; 8192];
        assert!(
            bytes
                .chunks(4096)
                .collect::<Vec<_>>()
                .windows(2)
                .any(|w| w.concat() == block)
        );
    }
    // Only pages are left for the write-back.
    let leader = client.at;
    let mut bytes = 0;
    while c.core(leader).dirty_bytes() > 0 {
        let mine = |(n, command): &(usize, Command)| {
            *n == leader && matches!(command, Command::WriteBack(..))
        };
        let Some(at) = c.todo.iter().position(mine) else {
            c.turn();
            continue;
        };
        let (_, Command::WriteBack(marked, _)) = c.todo.remove(at) else {
            unreachable!()
        };
        let data = &mut c.up[leader].as_mut().unwrap().data;
        let written = data.write_back(marked, &mut |n| bytes += n).unwrap();
        let tickets = written.sync().unwrap();
        c.event(leader, Event::WrittenBack(tickets));
    }
    assert_eq!(
        bytes, 8192,
        "the first page of an extent goes to both places"
    );
    for n in 0..4 {
        let outcome = client.ask(&mut c, &What::Read(span(0, n << 14, 8192)), false);
        let Outcome::Data { pieces, .. } = outcome else {
            panic!("{outcome:?}");
        };
        assert!(
            matches!(&pieces[..], [Piece::Data(b)] if b.iter().all(|&b| b == n as u8 + 1))
                || pieces.len() == 2
        );
    }
}

/// Writes a block until an in-place write of it is on its way, and takes that away.
fn hold_in_place(c: &mut Cluster, client: &mut Client, n: usize) -> (usize, Command) {
    loop {
        let request = request(client, write(span(0, 0, 4096), 1));
        let id = request.id;
        c.event(n, Event::Request { client: 1, request });
        while !c.answers.iter().any(|a| a.id == id) {
            let is_mine = |(by, command): &(usize, Command)| {
                *by == n && matches!(command, Command::InPlace { .. })
            };
            if let Some(at) = c.todo.iter().position(is_mine) {
                return c.todo.remove(at);
            }
            c.turn();
        }
    }
}

/// If a write-back takes a block while an in-place write of it is on its way, it may reach the disk first, and
/// the newer content would be overwritten.
#[test]
fn a_write_back_waits_for_writes_to_their_place() {
    let (mut c, mut client) = attached(2);
    let leader = c.leader().unwrap();
    let in_place = hold_in_place(&mut c, &mut client, leader);
    let until = c.now + 2 * c.policy.checkpoint_interval;
    while c.now < until {
        c.turn();
        assert!(c.core(leader).dirty_bytes() > 0);
    }
    c.todo.push(in_place);
    settle(&mut c, leader);
}

/// Two in-place writes of a block were on their way at once, and the older one could reach the disk last.
#[test]
fn writes_to_one_place_go_one_behind_the_other() {
    let (mut c, mut client) = attached(2);
    let leader = c.leader().unwrap();
    let first = hold_in_place(&mut c, &mut client, leader);
    let request = request(&mut client, write(span(0, 0, 4096), 2));
    let id = request.id;
    c.event(leader, Event::Request { client: 1, request });
    let is_answered = |c: &Cluster| c.answers.iter().any(|a| a.id == id);
    for _ in 0..1000 {
        c.turn();
        assert!(!is_answered(&c));
    }
    c.todo.push(first);
    while !is_answered(&c) {
        c.turn();
    }
}
