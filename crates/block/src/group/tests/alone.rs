//! Tests of one node, step by step, in cases that raft 0.7.0 by itself gets wrong.

use super::change;
use super::pump::{Cluster, Running, command};
use crate::group::members::Members;
use crate::group::message::{Body, Entry, Message};
use crate::group::raft::{Ready, Role};
use crate::ids::{Index, Term};

/// The next ready; its items are appended to the log, and not durable yet.
fn take(running: &mut Running) -> Ready {
    let ready = running.node.ready(&running.log).unwrap().unwrap();
    if !ready.items.is_empty() {
        let (_, append) = running.log.append(ready.items.clone(), &[]).unwrap();
        let outcome = append.run();
        assert_eq!(
            running.log.landed(append, outcome).unwrap().durable.len(),
            1
        );
    }
    ready
}

/// Appends entries with these terms, from the start of the log on.
fn append(running: &mut Running, from: u64, term: u64, terms: &[u64]) {
    append_committed(running, from, (term, 0), terms);
}

/// The same, with the entries up to `commit` committed.
fn append_committed(running: &mut Running, from: u64, (term, commit): (u64, u64), terms: &[u64]) {
    let mut entries = Vec::new();
    let mut payloads = Vec::new();
    for (index, &term) in (1..).zip(terms) {
        let (inline, payload) = command(term * 100 + index, 1);
        entries.push(Entry {
            index: Index(index),
            term: Term(term),
            is_change: false,
            inline,
        });
        payloads.push(payload);
    }
    let message = Message {
        from,
        to: 1,
        term: Term(term),
        body: Body::Append {
            index: Index(0),
            log_term: Term(0),
            commit: Index(commit),
            entries,
        },
    };
    running.node.step(message, payloads).unwrap();
}

/// The entries that a checkpoint declares committed may be appended to the log after it. A store does not open
/// if its log ends before entries that it declares committed.
#[test]
fn what_is_not_durable_is_not_said_to_be_committed() {
    let mut c = Cluster::new(1, &[1, 2, 3], &[]);
    let running = c.on(1);
    append_committed(running, 2, (5, 2), &[5, 5]);
    assert_eq!(running.node.commit(), Index(2));
    assert_eq!(running.node.commit_item().index, Index(0));
    let ready = take(running);
    assert_eq!(running.node.persisted(ready.number).len(), 1);
    assert_eq!(running.node.commit_item().index, Index(2));
}

/// Entries arrived, others that overwrote them, and the first ones again, all before the first were durable.
/// Raft would take the end of the first write for that of the last.
#[test]
fn what_is_written_over_is_durable_when_the_last_of_it_is() {
    let mut c = Cluster::new(1, &[1, 2, 3], &[]);
    let running = c.on(1);
    append(running, 2, 5, &[5, 5]);
    let first = take(running);
    assert_eq!((first.items.len(), first.now.len()), (3, 0));
    append(running, 3, 6, &[6]);
    let second = take(running);
    append(running, 2, 7, &[5, 5]);
    let third = take(running);
    assert!(running.node.persisted(first.number).is_empty());
    assert!(running.node.persisted(second.number).is_empty());
    let after = running.node.persisted(third.number);
    let last = &after.last().unwrap().message;
    assert!(
        matches!(
            last.body,
            Body::AppendResponse {
                index: Index(2),
                reject: None,
                ..
            }
        ),
        "{after:?}"
    );
    let payload = running.log.payload(super::GROUP, Index(2)).unwrap();
    assert_eq!(payload, command(502, 1).1);
}

/// Raft asserts that all entries are durable when it becomes the leader; a group of one becomes leader at a
/// tick.
#[test]
fn a_group_of_one_waits_for_its_entries() {
    let mut c = Cluster::new(2, &[1], &[]);
    let running = c.on(1);
    append(running, 2, 5, &[5, 5]);
    let ready = take(running);
    for _ in 0..40 {
        running.node.tick().unwrap();
        running.node.campaign().unwrap();
    }
    assert_eq!(running.node.role(), Role::Follower);
    assert_eq!(running.node.persisted(ready.number).len(), 1);
    for _ in 0..20 {
        running.node.tick().unwrap();
    }
    assert_eq!(running.node.role(), Role::Leader);
}

/// Nobody was asked for these votes: they must come from a faulty peer.
#[test]
fn votes_do_not_count_before_all_is_durable() {
    let mut c = Cluster::new(3, &[1, 2, 3], &[]);
    let running = c.on(1);
    append(running, 2, 5, &[5, 5]);
    let ready = take(running);
    for _ in 0..20 {
        running.node.tick().unwrap();
    }
    assert_eq!(running.node.role(), Role::Candidate);
    let vote = |pre| Message {
        from: 2,
        to: 1,
        term: Term(6),
        body: Body::VoteResponse {
            pre,
            reject: false,
            commit: Index(0),
            commit_term: Term(0),
        },
    };
    for pre in [true, false] {
        running.node.step(vote(pre), vec![]).unwrap();
    }
    assert_eq!(
        (running.node.role(), running.node.term()),
        (Role::Candidate, Term(5))
    );
    let asks = take(running);
    assert!(asks.items.is_empty() && asks.now.is_empty());
    assert_eq!(running.node.persisted(ready.number).len(), 3);
    running.node.step(vote(true), vec![]).unwrap();
    let ready = take(running);
    assert!(!running.node.persisted(ready.number).is_empty());
    running.node.step(vote(false), vec![]).unwrap();
    assert_eq!(running.node.role(), Role::Leader);
}

/// The term is not durable: after a crash, the replica may lead the same term with other entries.
#[test]
fn a_group_of_one_says_nothing_of_a_term_that_is_not_durable() {
    let mut c = Cluster::new(4, &[1], &[2]);
    c.elect();
    assert!(c.change(&change(&[], &[2], &[])));
    c.run(20);
    let (through, term) = (c.on(1).applied, c.on(1).node.term());
    c.checkpoint(1, through, term, 1);
    c.crash(1);
    c.start(1);
    let running = c.on(1);
    assert_eq!(running.node.members().learners, [2]);
    while running.node.role() != Role::Leader {
        running.node.tick().unwrap();
    }
    let ready = take(running);
    assert!(ready.now.is_empty(), "{:?}", ready.now);
    assert!(!running.node.persisted(ready.number).is_empty());
    running.node.heartbeat_round(3);
    running.node.tick().unwrap();
    assert!(!take(running).now.is_empty(), "the term is durable now");
}

/// The leader is among the removed replicas: it transfers the leadership to one that stays, and no election is
/// needed.
#[test]
fn a_leader_that_goes_hands_over() {
    for seed in 0..10 {
        let mut c = Cluster::new(seed, &[1, 2, 3], &[4, 5, 6]);
        c.elect();
        c.propose(1);
        c.run(10);
        assert!(c.change(&change(&[4, 5, 6], &[], &[1, 2, 3])));
        c.run(9);
        let leader = c.leader().unwrap();
        assert!(leader > 3, "seed {seed}: {leader}");
        c.run(9);
        assert_eq!(*c.on(leader).node.members(), Members::of(&[4, 5, 6]));
        c.settle();
    }
}
