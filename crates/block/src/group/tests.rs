//! Tests of a group's replicas together: an entry that is committed anywhere is committed everywhere,
//! whatever happens.

use bytes::Bytes;

use self::pump::{Cluster, GROUP, command};
use super::members::{Change, Members};
use super::message::{Body, Message};
use super::raft::{Config, Node, Refused, Role};
use crate::ids::{Index, Term};
use crate::raftlog::batch::{Item, Kind};
use crate::raftlog::groups::HardState;

mod alone;
mod hostile;
mod pump;

fn change(voters: &[u64], learners: &[u64], remove: &[u64]) -> Change {
    Change {
        voters: voters.to_vec(),
        learners: learners.to_vec(),
        remove: remove.to_vec(),
    }
}

/// The next change on the way to the members `to`, via learners. `None`: wait, or there is none left.
fn next_change(now: &Members, to: &[u64]) -> Option<Change> {
    if now.is_joint() || now.voters == to {
        return None;
    }
    let new = |id: &&u64| !now.voters.contains(id);
    let learner = to.iter().find(new).filter(|_| now.learners.is_empty());
    if let Some(&learner) = learner {
        return Some(change(&[], &[learner], &[]));
    }
    let voters: Vec<u64> = to.iter().filter(new).copied().collect();
    let gone = now.voters.iter().filter(|id| !to.contains(id));
    let gone: Vec<u64> = gone.copied().collect();
    Some(change(&voters, &[], &gone))
}

/// Proposes the next change, if there is a leader that takes it.
fn move_on(c: &mut Cluster, to: &[u64]) {
    if let Some(leader) = c.leader()
        && let Some(next) = next_change(c.on(leader).node.members(), to)
    {
        c.change(&next);
    }
}

/// Runs without faults until the members are `to`.
fn arrive(c: &mut Cluster, to: &[u64]) {
    for _ in 0..4 {
        c.settle();
        move_on(c, to);
    }
    c.settle();
    let leader = c.elect();
    assert_eq!(*c.on(leader).node.members(), Members::of(to));
}

/// A random run: lost, duplicated, delayed and reordered messages, crashes, and a change of all members.
fn storm(seed: u64, steps: u64) -> Cluster {
    let moves = seed % 2 == 1;
    let others: &[u64] = if moves { &[4, 5, 6] } else { &[] };
    let mut c = Cluster::new(seed, &[1, 2, 3], others);
    c.quiet = false;
    let mut crashes = 12;
    for _ in 0..steps {
        c.step();
        if c.rng.one_in(3) {
            let blocks = c.rng.below(3) as usize;
            c.propose(blocks);
        }
        let ids = c.ids();
        let id = ids[c.rng.below(ids.len() as u64) as usize];
        if c.rng.one_in(40) {
            if !c.is_up(id) {
                c.start(id);
            } else if crashes > 0 {
                crashes -= 1;
                c.crash(id);
            }
        }
        if c.rng.one_in(20) && c.is_up(id) {
            c.checkpoint_here(id);
        }
        if c.rng.one_in(60) {
            c.cut_off.clear();
            if c.rng.one_in(2) {
                c.cut_off.insert(id);
            }
        }
        if c.rng.one_in(50)
            && let Some(leader) = c.leader()
        {
            // A replica that is not a voter is refused.
            let refused = c.on(leader).node.transfer_leader(id).is_err();
            assert!(!refused || moves);
            c.work(leader);
        }
        if moves && c.rng.one_in(30) {
            move_on(&mut c, &[4, 5, 6]);
        }
    }
    if moves {
        arrive(&mut c, &[4, 5, 6]);
    } else {
        c.settle();
    }
    c
}

/// `IRONSTONE_RAFT_SEEDS` is the number of seeds.
#[test]
fn what_is_committed_anywhere_is_committed_everywhere() {
    let seeds = std::env::var("IRONSTONE_RAFT_SEEDS").ok();
    let seeds: u64 = seeds.and_then(|s| s.parse().ok()).unwrap_or(120);
    let mut committed = 0;
    for seed in 0..seeds {
        let c = storm(seed, 250);
        committed += c.committed();
    }
    assert!(committed > seeds * 10, "{committed}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [4, 5] {
        let (a, b) = (storm(seed, 200), storm(seed, 200));
        assert!(a.trace.len() > 100);
        assert_eq!(a.trace, b.trace);
        assert_eq!(a.numbers(), b.numbers());
    }
}

#[test]
fn proposals_in_quiet_times_are_committed_in_their_order() {
    let mut c = Cluster::new(1, &[1, 2, 3], &[]);
    c.elect();
    for _ in 0..30 {
        assert!(c.propose(2));
        c.step();
    }
    c.settle();
    assert_eq!(c.numbers(), (0..=30).collect::<Vec<_>>());
}

/// A leader is cut off with entries that nobody else has. Its log conflicts when it is back, even after a
/// restart.
#[test]
fn a_conflicting_suffix_goes() {
    let mut c = Cluster::new(3, &[1, 2, 3], &[]);
    let old = c.elect();
    c.propose(1);
    c.run(10);
    c.cut_off.insert(old);
    for _ in 0..5 {
        assert!(c.propose(2));
    }
    c.run(4);
    let lonely = c.on(old).node.last();
    c.crash(old);
    c.elect();
    c.propose(1);
    c.run(10);
    c.start(old);
    assert_eq!(c.on(old).node.last(), lonely, "they are in its files");
    c.settle();
    assert_eq!(c.numbers(), [0, 6, 7]);
}

/// Entries whose payloads are only in the files are sent from there.
#[test]
fn a_follower_that_lags_is_served_from_the_files() {
    let mut c = Cluster::new(5, &[1, 2, 3], &[]);
    let leader = c.elect();
    let behind = if leader == 3 { 2 } else { 3 };
    c.cut_off.insert(behind);
    for _ in 0..40 {
        assert!(c.propose(3));
        c.step();
    }
    c.run(10);
    let (through, term) = (c.on(leader).applied, c.on(leader).node.term());
    c.checkpoint(leader, through, term, 1);
    let log = &c.on(leader).log;
    let entry = log.groups().get(GROUP).unwrap().entry(Index(9)).unwrap();
    assert!(entry.payload.here.is_none());
    c.settle();
    let applied = c.on(leader).applied;
    assert_eq!(c.on(behind).applied, applied);
    assert!(c.on(leader).needs_copy.is_empty());
}

/// A follower's next entry is no longer in the log: it needs a copy, and continues behind it.
#[test]
fn a_follower_behind_the_log_is_copied() {
    let mut c = Cluster::new(6, &[1, 2, 3], &[]);
    let leader = c.elect();
    let behind = if leader == 3 { 2 } else { 3 };
    c.propose(1);
    c.run(10);
    c.cut_off.insert(behind);
    for _ in 0..20 {
        assert!(c.propose(1));
        c.step();
    }
    c.run(10);
    let (through, term) = (c.on(leader).applied, c.on(leader).node.term());
    c.checkpoint(leader, through, term, through + 1);
    c.cut_off.clear();
    c.run(20);
    let (to, index) = c.on(leader).needs_copy[0];
    assert_eq!((to, index), (behind, Index(through)));
    let progress = c.on(leader).node.progress();
    assert!(progress.iter().any(|p| p.id == behind && p.needs_copy));
    let had = c.on(behind).applied;
    assert!(had < through);

    c.checkpoint(behind, through, term, through + 1);
    let members = c.first_members.clone();
    let running = c.on(behind);
    assert!(running.node.reopen(&running.log, &members).unwrap());
    running.applied = through;
    c.on(leader).node.copied(behind, true);
    c.settle();
    // The same after a restart.
    c.crash(behind);
    c.start(behind);
    assert_eq!(c.on(behind).applied, through);
    c.settle();
}

/// A group of one voter becomes leader at once: no message may mention a term that is not durable.
#[test]
fn a_group_of_one_grows_to_three() {
    for seed in 0..20 {
        let mut c = Cluster::new(seed, &[1], &[2, 3]);
        c.quiet = false;
        c.elect();
        for _ in 0..200 {
            c.step();
            c.propose(1);
            if c.rng.one_in(20) {
                let id = 1 + c.rng.below(3);
                c.crash(id);
                c.start(id);
            }
            move_on(&mut c, &[1, 2, 3]);
        }
        arrive(&mut c, &[1, 2, 3]);
    }
}

#[test]
fn a_leader_gives_the_group_away() {
    let mut c = Cluster::new(8, &[1, 2, 3], &[]);
    let leader = c.elect();
    let to = leader % 3 + 1;
    c.on(leader).node.transfer_leader(to).unwrap();
    assert_eq!(
        c.on(leader).node.propose(command(1, 0).0, Bytes::new()),
        Err(Refused::Busy)
    );
    c.run(5);
    assert_eq!(c.leader(), Some(to));
    assert_eq!(c.on(leader).node.role(), Role::Follower);
    let refused = c.on(to).node.transfer_leader(9);
    assert!(matches!(refused, Err(Refused::Invalid(_))));
}

/// An isolated peer and a restarted one would elect a leader within the lease of another that both have
/// forgotten.
#[test]
fn a_started_replica_gives_no_votes_for_a_while() {
    let mut c = Cluster::new(9, &[1, 2, 3], &[]);
    c.config.silent_ticks = 10;
    let leader = c.elect();
    let voter = leader % 3 + 1;
    let third = voter % 3 + 1;
    c.crash(voter);
    c.start(voter);
    let term = c.on(voter).node.term();
    let last = c.on(voter).node.last();
    let ask = |pre| Message {
        from: third,
        to: voter,
        term: Term(term.0 + 1),
        body: Body::Vote {
            pre,
            transfer: false,
            index: Index(last.0 + 9),
            log_term: term,
            commit: Index(0),
            commit_term: Term(0),
        },
    };
    for _ in 0..10 {
        let node = &mut c.on(voter).node;
        node.step(ask(true), vec![]).unwrap();
        node.step(ask(false), vec![]).unwrap();
        node.campaign().unwrap();
        assert_eq!((node.term(), node.role()), (term, Role::Follower));
        node.tick().unwrap();
    }
    let running = c.on(voter);
    running.node.step(ask(false), vec![]).unwrap();
    let ready = running.node.ready(&running.log).unwrap().unwrap();
    assert!(ready.now.is_empty(), "the vote is not durable");
    let hard = ready.items.last().unwrap();
    assert_eq!((ready.items.len(), hard.term), (1, Term(term.0 + 1)));
    let (_, _append) = running.log.append(ready.items.clone(), &[]).unwrap();
    let after = running.node.persisted(ready.number);
    assert!(
        matches!(
            after[0].message.body,
            Body::VoteResponse {
                pre: false,
                reject: false,
                ..
            }
        ),
        "{after:?}"
    );
}

#[test]
fn proposals_are_refused_where_they_cannot_be() {
    let mut c = Cluster::new(10, &[1, 2, 3], &[]);
    c.config.uncommitted_bytes_max = 20_000;
    let (inline, payload) = command(1, 1);
    let refused = c.on(1).node.propose(inline.clone(), payload.clone());
    assert_eq!(refused, Err(Refused::NotLeader { leader: None }));
    for id in 1..=3 {
        c.crash(id);
        c.start(id);
    }
    let leader = c.elect();
    let other = leader % 3 + 1;
    let refused = c.on(other).node.propose(inline.clone(), payload.clone());
    assert_eq!(
        refused,
        Err(Refused::NotLeader {
            leader: Some(leader)
        })
    );
    let node = &mut c.on(leader).node;
    let half = payload.slice(..2048);
    for (inline, payload) in [
        (Bytes::new(), Bytes::new()),
        (inline.clone(), half),
        (Bytes::from_static(b"no"), payload.clone()),
        (vec![0; 1 << 16].into(), Bytes::new()),
    ] {
        let refused = node.propose(inline, payload);
        assert!(matches!(refused, Err(Refused::Invalid(_))), "{refused:?}");
    }
    for _ in 0..4 {
        node.propose(inline.clone(), payload.clone()).unwrap();
    }
    assert_eq!(
        node.propose(inline.clone(), payload.clone()),
        Err(Refused::Busy)
    );
    assert_eq!(node.uncommitted_bytes(), 4 * (inline.len() + payload.len()));
    c.run(5);
    let node = &mut c.on(leader).node;
    assert_eq!(node.uncommitted_bytes(), 0);
    node.propose(inline, payload).unwrap();
    let twice = change(&[1], &[], &[]);
    assert!(matches!(
        node.propose_members(&twice),
        Err(Refused::Invalid(_))
    ));
}

#[test]
fn reads_and_rounds_are_answered_by_a_quorum() {
    let mut c = Cluster::new(11, &[1, 2, 3], &[]);
    let leader = c.elect();
    let follower = leader % 3 + 1;
    c.on(leader).node.heartbeat_round(41);
    c.run(3);
    assert_eq!(c.on(leader).node.quorum_acked_round(), Some(41));
    assert_eq!(c.on(follower).node.quorum_acked_round(), None);
    c.propose(1);
    c.run(5);
    for id in [leader, follower] {
        c.on(id).node.read_index(5);
        c.work(id);
    }
    c.run(4);
    let commit = c.on(leader).node.commit();
    assert_eq!(c.on(leader).reads, [(5, commit)]);
    assert_eq!(c.on(follower).reads, [(5, commit)]);
    // Alone it gets no answers, and steps down.
    c.cut_off.insert(leader);
    c.on(leader).node.heartbeat_round(42);
    c.on(leader).node.read_index(6);
    c.run(3);
    assert_eq!(c.on(leader).node.quorum_acked_round(), Some(41));
    c.run(25);
    assert_eq!(c.on(leader).node.role(), Role::Follower);
    assert_eq!(c.on(leader).reads.len(), 1);
}

/// The others hear a deaf leader, and do not campaign before it steps down: it hands the group over, and not to
/// a voter that lacks entries.
#[test]
fn a_leader_that_hears_nobody_gives_the_group_away() {
    for seed in 0..20 {
        let mut c = Cluster::new(seed, &[1, 2, 3], &[]);
        c.quiet = true;
        let leader = c.elect();
        let lags = leader % 3 + 1;
        c.cut_off.insert(lags);
        let tick = |c: &mut Cluster, round: u64| {
            c.on(leader).node.heartbeat_round(round);
            c.step();
        };
        (1..8).for_each(|round| tick(&mut c, round));
        assert!(c.propose(1));
        (8..12).for_each(|round| tick(&mut c, round));
        c.cut_off.clear();
        c.deaf.insert(leader);
        let (term, ticks) = (c.on(leader).node.term(), c.config.unheard_ticks as u64);
        for round in 12..20 {
            tick(&mut c, round);
            assert_eq!(c.on(leader).node.role(), Role::Leader, "{seed} {round}");
        }
        (20..16 + ticks).for_each(|round| tick(&mut c, round));
        assert_eq!(c.on(leader).node.role(), Role::Follower, "{seed}");
        let next = 6 - leader - lags;
        c.run(6);
        assert_eq!(c.on(next).node.role(), Role::Leader, "{seed}");
        assert_eq!(
            c.on(next).node.term().0,
            term.0 + 1,
            "{seed}: campaigned once"
        );
    }
}

/// Raft panics on a log that ends before an entry that is known to be committed: such a log is refused.
#[test]
fn a_log_that_ends_too_early_is_corrupt() {
    let c = Cluster::new(12, &[1], &[]);
    let mut log = c.replicas[&1].dir.open(5);
    let entry = |index, term| Item {
        kind: Kind::Entry,
        flags: 0,
        group: GROUP,
        index: Index(index),
        term: Term(term),
        inline: Bytes::from_static(b"command"),
        payload: Bytes::new(),
    };
    let hard = |term, commit| HardState {
        term: Term(term),
        vote: 1,
        commit: Index(commit),
    };
    let open = |log: &_, applied| {
        let config = Config::new(base::rng::Rng::new(1));
        Node::open(GROUP, 1, &Members::of(&[1]), log, Index(applied), config)
    };
    let items = vec![entry(1, 2), entry(2, 5), hard(3, 1).to_item(GROUP)];
    let (_, append) = log.append(items, &[]).unwrap();
    append.run().unwrap();
    // The entries are of a later term than the hard state: the state was lost, and no message about it was
    // sent.
    let node = open(&log, 2).unwrap();
    assert_eq!((node.term(), node.commit()), (Term(5), Index(2)));
    assert_eq!(node.hard_state().vote, 0);
    let e = open(&log, 3).unwrap_err();
    assert!(
        e.is_corruption() && e.to_string().contains("applied entry 3"),
        "{e}"
    );
    let (_, append) = log.append(vec![hard(5, 4).to_item(GROUP)], &[]).unwrap();
    append.run().unwrap();
    let e = open(&log, 2).unwrap_err();
    assert!(
        e.to_string()
            .contains("committed entry 4, and its log ends at 2"),
        "{e}"
    );
    let bad = Members::of(&[]);
    let config = Config::new(base::rng::Rng::new(1));
    assert!(Node::open(GROUP, 1, &bad, &log, Index(0), config).is_err());
}
