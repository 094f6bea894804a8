//! Tests of followers whose next entry is no longer in the leader's log.

use super::limits::{attached, settle, span, write};
use super::*;
use crate::group::apply::Found;
use crate::group::message::{Body, Copy, CopyStep, Message};
use crate::ids::Index;
use crate::store::data::Held;
use crate::store::dirty::{Content, Key};

/// The content of a block in one store, from memory or from the file.
fn content(c: &mut Cluster, n: usize, chunk: u32, block: u32) -> Vec<u8> {
    let process = c.up[n].as_ref().unwrap();
    let key = Key {
        tree: Tree(1),
        layer: Layer(1),
        chunk: Chunk(chunk),
        block: crate::ids::Block(block),
    };
    let reader = process.data.reader();
    let replica = process.core.member(GROUP).unwrap().replica();
    match replica.find(&key, &reader) {
        Found::Here(Content::Data { bytes, .. }) => bytes.to_vec(),
        Found::Here(Content::Zero) | Found::File(Held::Zero | Held::Absent) => vec![0; 4096],
        Found::File(Held::There { offset, crc }) => {
            let mut block = AlignedBuf::zeroed(4096, 4096).unwrap();
            io::read_exact_at(&**reader.file(), &mut block, offset).unwrap();
            assert_eq!(base::checksum::crc32c(&block), crc);
            block.to_vec()
        }
    }
}

fn applied(c: &mut Cluster, n: usize) -> u64 {
    c.core(n).member(GROUP).unwrap().replica().applied().0
}

/// Runs until all stores have applied the same entries.
fn even(c: &mut Cluster) {
    for _ in 0..200_000 {
        let first = applied(c, 0);
        let node = |c: &mut Cluster, n: usize| c.core(n).member(GROUP).unwrap().node().commit().0;
        if (0..3).all(|n| applied(c, n) == first && node(c, n) == first) {
            return;
        }
        c.turn();
    }
    let all: Vec<u64> = (0..3).map(|n| applied(c, n)).collect();
    panic!("{all:?}");
}

fn same_blocks(c: &mut Cluster) {
    for chunk in 0..CHUNKS {
        for block in 0..1024 {
            let first = content(c, 0, chunk, block);
            for n in 1..3 {
                assert!(content(c, n, chunk, block) == first, "{n}: {chunk} {block}");
            }
        }
    }
}

/// Writes more than a log holds.
fn write_much(c: &mut Cluster, client: &mut Client, round: u32) {
    for n in 0..60 {
        let at = ((n * 7 + round) % 8) << 19;
        let what = write(span(n % CHUNKS, at, 512 << 10), (n + round) as u8 + 1);
        assert_eq!(client.ask(c, &what, false), Outcome::Done);
    }
}

/// A cluster in which a follower is down, and the leader's log no longer has its next entry: both stores'
/// numbers.
fn one_left_behind(seed: u64) -> (Cluster, Client, usize, usize) {
    let (mut c, mut client) = attached(seed);
    even(&mut c);
    let leader = c.leader().unwrap();
    let behind = (leader + 1) % 3;
    c.kill(behind);
    write_much(&mut c, &mut client, 1);
    (c, client, leader, behind)
}

#[test]
fn a_follower_behind_the_log_gets_what_has_changed() {
    for seed in [2, 3] {
        let (mut c, mut client) = attached(seed);
        assert_eq!(
            client.ask(&mut c, &write(span(1, 3 << 20, 4096), 9), false),
            Outcome::Done
        );
        even(&mut c);
        let behind = (c.leader().unwrap() + 1) % 3;
        for n in 0..3 {
            settle(&mut c, n);
        }
        c.kill(behind);
        write_much(&mut c, &mut client, 1);
        let what = What::Zero(span(0, 0, 70_000));
        assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
        c.start(behind);
        even(&mut c);
        (0..500).for_each(|_| c.turn());
        let copies = (0..3).map(|n| c.core(n).member(GROUP).unwrap().copies());
        let copies: Vec<_> = copies.collect();
        assert!(
            copies.iter().any(|&(_, done, bytes)| done > 0 && bytes > 0),
            "{copies:?}"
        );
        same_blocks(&mut c);
        // It continues with the log, and survives a restart.
        client.change(&mut c, false);
        even(&mut c);
        c.kill(behind);
        c.start(behind);
        client.change(&mut c, false);
        even(&mut c);
        same_blocks(&mut c);
    }
}

/// Messages are lost, and stores are killed during a copy: it is completed in the end.
#[test]
fn a_copy_that_is_broken_off_is_made_again() {
    let mut done = 0;
    for seed in 0..8 {
        let (mut c, mut client) = attached(seed);
        even(&mut c);
        let behind = (c.leader().unwrap() + 1) % 3;
        c.kill(behind);
        write_much(&mut c, &mut client, seed as u32);
        c.drop_permille = 30 * (seed % 3);
        c.start(behind);
        for round in 0..6 {
            let turns = c.rng.below(1500);
            (0..turns).for_each(|_| c.turn());
            match (round + seed) % 3 {
                0 => {
                    c.kill(behind);
                    c.start(behind);
                }
                1 => {
                    if let Some(leader) = c.leader() {
                        done += c.core(leader).member(GROUP).unwrap().copies().1;
                        c.kill(leader);
                        c.start(leader);
                    }
                }
                _ => client.change(&mut c, false),
            }
        }
        c.drop_permille = 0;
        even(&mut c);
        same_blocks(&mut c);
        client.change(&mut c, false);
        done += (0..3)
            .map(|n| c.core(n).member(GROUP).unwrap().copies().1)
            .sum::<u64>();
    }
    assert!(done >= 4, "{done}");
}

/// The log was truncated during a copy: afterwards the follower needed another, and so on as long as clients
/// wrote.
#[test]
fn the_log_is_kept_behind_a_copy() {
    let (mut c, mut client, leader, behind) = one_left_behind(3);
    let pinned = |c: &mut Cluster| c.core(leader).member(GROUP).unwrap().pinned();
    let first = |c: &mut Cluster| c.core(leader).log().groups().get(GROUP).unwrap().first();
    settle(&mut c, leader);
    c.start(behind);
    while pinned(&mut c).is_none() {
        c.turn();
    }
    // The copy makes no progress.
    c.kill(behind);
    let mut cut = 0;
    for n in 0..40 {
        let fill = c.core(leader).log().fill();
        if fill > 0.6 {
            break;
        }
        cut += u32::from(fill > 0.5);
        let what = write(span(n % CHUNKS, 0, 256 << 10), n as u8 + 1);
        assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
        settle(&mut c, leader);
        let through = pinned(&mut c).unwrap();
        assert!(first(&mut c).0 <= through.0 + 1, "{n}");
    }
    assert!(cut > 0);
}

/// Blocks that the leader had only in memory were left out of a copy, although the log behind the copy does not
/// have them.
#[test]
fn what_the_leader_has_not_written_back_is_copied_too() {
    let (mut c, mut client, leader, behind) = one_left_behind(3);
    settle(&mut c, leader);
    let what = write(span(0, 4 << 20, 8192), 9);
    assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
    c.start(behind);
    let copied = |c: &mut Cluster| c.core(leader).member(GROUP).unwrap().copies().1;
    while copied(&mut c) == 0 {
        let held: Vec<_> = c
            .todo
            .extract_if(.., |(n, command)| {
                *n == leader && matches!(command, Command::WriteBack(..))
            })
            .collect();
        c.turn();
        c.todo.extend(held);
        assert_eq!(c.leader().unwrap_or(leader), leader);
    }
    even(&mut c);
    assert_eq!(content(&mut c, behind, 0, 1024), vec![9; 4096]);
    same_blocks(&mut c);
}

/// A store that was killed while it received a copy had blocks that were newer than its log, and did not
/// open.
#[test]
fn a_store_that_is_killed_within_a_copy_opens() {
    let (mut c, _, _, behind) = one_left_behind(3);
    c.start(behind);
    let is_newer = |c: &mut Cluster| {
        let process = c.up[behind].as_ref().unwrap();
        let last = process.data.reader().last_indices();
        let log = process.core.log().groups().get(GROUP);
        last.get(&GROUP) > log.map(|g| g.last()).as_ref()
    };
    // The copy does not end.
    let is_answer = |event: &Event| match event {
        Event::Message { message, .. } => matches!(
            message.body,
            Body::Copy {
                step: CopyStep::Taken { .. },
                ..
            }
        ),
        _ => false,
    };
    while !is_newer(&mut c) {
        c.turn();
        c.wire.retain(|(_, event)| !is_answer(event));
    }
    c.kill(behind);
    c.start(behind);
    even(&mut c);
    same_blocks(&mut c);
}

/// A heartbeat declared entries committed that the log had already dropped, because the end of a copy was on
/// its way to it: the follower failed.
#[test]
fn entries_that_a_copy_stands_for_may_become_committed_as_it_ends() {
    let (mut c, _, leader, behind) = one_left_behind(3);
    c.start(behind);
    let node = |c: &mut Cluster| {
        let node = c.core(behind).member(GROUP).unwrap().node();
        (node.commit(), node.last())
    };
    let before = node(&mut c);
    assert!(before.0 < before.1);
    let begins_anew = |c: &mut Cluster| {
        let log = c.core(behind).log();
        log.groups().get(GROUP).unwrap().first() > Index(before.1.0 + 1)
    };
    // No message says what is committed until the log starts anew.
    while !begins_anew(&mut c) {
        for (to, event) in &mut c.wire {
            if let Event::Message { message, .. } = event
                && *to == behind
                && let Body::Heartbeat { commit, .. } | Body::Append { commit, .. } =
                    &mut message.body
            {
                *commit = before.0;
            }
        }
        c.turn();
    }
    assert_eq!(node(&mut c), before);
    let term = c.core(leader).member(GROUP).unwrap().node().term();
    let message = Message {
        from: leader as u64 + 1,
        to: behind as u64 + 1,
        term,
        body: Body::Heartbeat {
            commit: before.1,
            read: None,
            round: 0,
        },
    };
    c.event(behind, says(message));
    even(&mut c);
    same_blocks(&mut c);
}

/// A step of a copy that is on its way to a store.
fn on_its_way(c: &Cluster, n: usize, which: fn(&CopyStep) -> bool) -> Option<Message> {
    c.wire.iter().find_map(|(to, event)| match event {
        Event::Message { message, .. } if *to == n => match &message.body {
            Body::Copy { step, .. } if which(step) => Some(message.clone()),
            _ => None,
        },
        _ => None,
    })
}

fn lose(c: &mut Cluster, n: usize, which: fn(&CopyStep) -> bool) {
    c.wire.retain(|(to, event)| match event {
        Event::Message { message, .. } if *to == n => match &message.body {
            Body::Copy { step, .. } => !which(step),
            _ => true,
        },
        _ => true,
    });
}

fn is_more(step: &CopyStep) -> bool {
    matches!(step, CopyStep::Blocks { .. } | CopyStep::End { .. })
}

fn is_ready(step: &CopyStep) -> bool {
    matches!(step, CopyStep::Ready { .. })
}

fn says(message: Message) -> Event {
    Event::Message {
        group: GROUP,
        message,
        payloads: vec![],
    }
}

/// A late offer made a follower start a copy anew that it had given up. The leader sent the rest of the first,
/// so the follower lacked the blocks that it had taken before.
#[test]
fn a_copy_that_is_taken_anew_lacks_nothing() {
    let (mut c, _, leader, behind) = one_left_behind(3);
    // The blocks that it takes stay in memory.
    c.policy.checkpoint_bytes = 64 << 20;
    c.policy.checkpoint_interval = Duration::from_secs(1000);
    c.start(behind);
    let member = |c: &mut Cluster| {
        let member = c.core(behind).member(GROUP).unwrap();
        (member.is_taking(), member.replica().dirty_bytes())
    };
    let is_taken: fn(&CopyStep) -> bool = |step| matches!(step, CopyStep::Taken { .. });
    let mut late = None;
    while on_its_way(&c, leader, is_taken).is_none() {
        late = late.or_else(|| on_its_way(&c, behind, |step| *step == CopyStep::Offer));
        c.turn();
    }
    let late = late.unwrap();
    // The leader learns what was taken; then the log seems to reach the follower after all.
    while on_its_way(&c, leader, is_taken).is_some() {
        lose(&mut c, behind, is_more);
        c.turn();
    }
    let (is_taking, dirty) = member(&mut c);
    assert!(is_taking && dirty > 0, "{is_taking} {dirty}");
    let (index, log_term) = (Index(1), late.term);
    let append = Body::Append {
        index,
        log_term,
        commit: index,
        entries: vec![],
    };
    let append = Message {
        body: append,
        ..late.clone()
    };
    c.event(behind, says(append));
    while member(&mut c).0 {
        lose(&mut c, behind, is_more);
        c.turn();
    }
    // The follower starts anew, and the leader does not learn of it.
    lose(&mut c, behind, |step| *step == CopyStep::Offer);
    while on_its_way(&c, leader, is_ready).is_none() {
        if !member(&mut c).0 {
            c.event(behind, says(late.clone()));
        }
        lose(&mut c, behind, is_more);
        c.turn();
    }
    lose(&mut c, leader, is_ready);
    let begun = |c: &mut Cluster| c.core(leader).member(GROUP).unwrap().copies().0;
    assert_eq!(begun(&mut c), 1, "the leader goes on with the first");
    let before = c.now;
    even(&mut c);
    same_blocks(&mut c);
    assert_eq!(begun(&mut c), 2);
    // The leader notices it before its timeout.
    let took = c.now.saturating_sub(before);
    assert!(took < Duration::from_secs(8), "{took:?}");
}

/// A copy was offered while a follower had blocks to write back, and began when the follower's checkpoint was
/// behind the copy's end: it took the copy's older state of the group under the newer index.
#[test]
fn a_copy_of_less_than_is_written_back_is_not_taken() {
    let (mut c, mut client) = attached(3);
    even(&mut c);
    (0..3).for_each(|n| settle(&mut c, n));
    let leader = c.leader().unwrap();
    let follower = (leader + 1) % 3;
    let synced = |c: &mut Cluster| {
        let replica = c.core(follower).member(GROUP).unwrap().replica();
        (replica.synced(), replica.applied())
    };
    let at = synced(&mut c).0;
    client.change(&mut c, false);
    client.change(&mut c, false);
    even(&mut c);
    let (synced_then, through) = synced(&mut c);
    assert!(synced_then <= at && at < through);
    // A copy that ends before entries that are applied and not written back.
    let term = c.core(leader).member(GROUP).unwrap().node().term();
    let copy = Copy {
        through: Index(through.0 - 1),
        term,
    };
    let body = Body::Copy {
        copy,
        step: CopyStep::Offer,
    };
    let offer = Message {
        from: leader as u64 + 1,
        to: follower as u64 + 1,
        term,
        body,
    };
    c.event(follower, says(offer));
    let is_taking = |c: &mut Cluster| c.core(follower).member(GROUP).unwrap().is_taking();
    assert!(is_taking(&mut c));
    while is_taking(&mut c) {
        c.turn();
        assert!(on_its_way(&c, leader, is_ready).is_none());
    }
    assert!(synced(&mut c).0 >= through);
    client.change(&mut c, false);
    even(&mut c);
    same_blocks(&mut c);
}

/// A copy of more than a follower keeps in memory could not end: its blocks were written back only at the end.
#[test]
fn a_copy_may_be_larger_than_memory() {
    let (mut c, mut client) = attached(2 + 1);
    even(&mut c);
    let behind = (c.leader().unwrap() + 1) % 3;
    c.kill(behind);
    for n in 0..48 {
        let what = write(span(n % CHUNKS, (n / CHUNKS) << 19, 512 << 10), n as u8 + 1);
        assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
    }
    c.start(behind);
    even(&mut c);
    let copied = (0..3).map(|n| c.core(n).member(GROUP).unwrap().copies().2);
    assert!(copied.sum::<u64>() >= 20 << 20);
    for n in 0..48 {
        let block = (n / CHUNKS) * 128 + n % 128;
        assert!(
            content(&mut c, behind, n % CHUNKS, block) == vec![n as u8 + 1; 4096],
            "{n}"
        );
    }
}

/// Raft had built an append of entries that the log then dropped, before their payloads were read: the leader
/// failed.
#[test]
fn an_append_of_entries_that_are_dropped_meanwhile_is_left_out() {
    let (mut c, mut client) = attached(4);
    even(&mut c);
    let leader = c.leader().unwrap();
    for n in 0..4 {
        let what = write(span(0, n << 19, 512 << 10), 1);
        assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
    }
    even(&mut c);
    settle(&mut c, leader);
    (0..200).for_each(|_| c.turn());
    let now = c.now;
    let term = c.core(leader).member(GROUP).unwrap().node().term();
    let follower = (leader + 1) % 3;
    // A follower says that it lacks the last entries; then the log is truncated in the same step.
    let applied = applied(&mut c, leader);
    let rejects = Event::Message {
        group: GROUP,
        message: Message {
            from: follower as u64 + 1,
            to: leader as u64 + 1,
            term,
            body: Body::AppendResponse {
                index: Index(applied),
                commit: Index(1),
                reject: Some((Index(applied), term)),
            },
        },
        payloads: vec![],
    };
    let core = c.core(leader);
    core.take(now, rejects).unwrap();
    core.log.truncate_proven(-1.0).unwrap();
    core.pump(now).unwrap();
    assert!(core.failure().is_none());
}
