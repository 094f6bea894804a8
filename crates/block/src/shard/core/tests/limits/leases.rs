//! When a leader may read without asking, and when it may not.

use super::*;

/// A follower whose process had been stopped counted all ticks that it had missed, and granted its vote to
/// another replica within the lease of its leader.
#[test]
fn missed_ticks_are_no_time_since_the_last_heartbeat() {
    let (mut c, _) = attached(4);
    let leader = c.leader().unwrap();
    let follower = (leader + 1) % 3;
    let now = c.now + TICK * 50;
    let term = c.core(follower).member(GROUP).unwrap().node().term();
    for _ in 0..50 {
        c.core(follower).step(now, Event::Tick);
    }
    assert_eq!(c.core(follower).member(GROUP).unwrap().node().term(), term);
    let is_vote = |command: Command| match command {
        Command::Send { outgoing, .. } => matches!(outgoing.message.body, Body::Vote { .. }),
        _ => false,
    };
    let core = c.core(follower);
    assert!(!std::iter::from_fn(|| core.next_command()).any(is_vote));
}

/// A leader that was transferring its group served reads under its lease, while the other replica led
/// already.
#[test]
fn a_leader_that_gives_its_group_away_has_no_lease() {
    let (mut c, mut client) = attached(4);
    let what = write(span(0, 0, 4096), 1);
    assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
    let leader = c.leader().unwrap();
    while !is_served(&mut c, leader, &mut client) {
        c.turn();
    }
    let member = c.core(leader).members.get_mut(&GROUP).unwrap();
    member.hand_over();
    assert!(member.node().is_transferring());
    assert!(!is_served(&mut c, leader, &mut client));
}

/// A store that was stopped in order left its groups without a leader until an election.
#[test]
fn a_store_that_leaves_is_followed_at_once() {
    let (mut c, mut client) = attached(4);
    let what = write(span(0, 0, 4096), 1);
    assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
    let leader = c.leader().unwrap();
    let begun = c.now;
    c.event(leader, Event::Leave);
    assert!(c.core(leader).gives_away());
    while c.core(leader).gives_away() {
        c.turn();
    }
    c.kill(leader);
    while c.leader().is_none() {
        c.turn();
    }
    let took = c.now.saturating_sub(begun);
    assert!(took < 5 * TICK, "an election takes ten at least: {took:?}");
    assert_eq!(
        client.ask(&mut c, &write(span(0, 0, 4096), 2), false),
        Outcome::Done
    );
    // A store that leads no group stops at once.
    let follower = (0..3)
        .find(|&n| c.up[n].is_some() && Some(n) != c.leader())
        .unwrap();
    c.event(follower, Event::Leave);
    assert!(!c.core(follower).gives_away());
}

/// Whether a store answers a read, or reads for it, at once.
fn is_served(c: &mut Cluster, n: usize, client: &mut Client) -> bool {
    let request = request(client, What::Read(span(0, 0, 4096)));
    let now = c.now;
    c.core(n).step(now, Event::Request { client: 1, request });
    let mut is_served = false;
    while let Some(command) = c.core(n).next_command() {
        is_served |= matches!(command, Command::Read { .. } | Command::Reply { .. });
        c.todo.push((n, command));
    }
    is_served
}

/// The lease of a leader without answers ends before another replica can be elected, and before it steps down.
#[test]
fn a_leader_that_nobody_answers_has_no_lease() {
    let (mut c, mut client) = attached(4);
    let leader = c.leader().unwrap();
    while !is_served(&mut c, leader, &mut client) {
        c.turn();
    }
    // Ten ticks after the last heartbeat, another replica may be elected.
    for _ in 0..9 {
        c.now += TICK;
        c.event(leader, Event::Tick);
        c.wire.clear();
    }
    let node = c.core(leader).member(GROUP).unwrap().node();
    assert!(node.has_applied_own_term());
    assert!(!is_served(&mut c, leader, &mut client));
}

/// A leader whose clock was wrong waits for the next round; in read mode `read_index` it asks the quorum
/// for each read.
#[test]
fn no_read_goes_by_a_wrong_clock() {
    let (mut c, mut client) = attached(4);
    let leader = c.leader().unwrap();
    while !is_served(&mut c, leader, &mut client) {
        c.turn();
    }
    c.event(leader, Event::WrongClock);
    assert!(!is_served(&mut c, leader, &mut client));
    while !is_served(&mut c, leader, &mut client) {
        c.turn();
    }
    let Process { core, data } = c.up[leader].take().unwrap();
    let core = core.with_read_mode(ReadMode::ReadIndex);
    c.up[leader] = Some(Process { core, data });
    for _ in 0..200 {
        assert!(!is_served(&mut c, leader, &mut client));
        c.turn();
    }
    let read = What::Read(span(0, 0, 4096));
    assert!(matches!(
        client.ask(&mut c, &read, false),
        Outcome::Data { .. }
    ));
}

/// A new leader would have a lease as soon as its heartbeats are answered, and may not know yet what was
/// committed before.
#[test]
fn a_new_leader_reads_when_it_has_applied_an_entry_of_its_own() {
    let (mut c, mut client) = attached(4);
    let what = write(span(0, 0, 4096), 1);
    assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
    let old = c.leader().unwrap();
    c.kill(old);
    let node = |c: &Cluster, n: usize| {
        let process = c.up[n].as_ref()?;
        let node = process.core.member(GROUP)?.node();
        (node.role() == crate::group::raft::Role::Leader).then(|| node.quorum_acked_round())
    };
    let new = loop {
        let leads = (0..3).find(|&n| node(&c, n).is_some());
        // Its writes to the log do not land from now on.
        let held: Vec<_> = c
            .todo
            .extract_if(.., |(n, command)| {
                leads == Some(*n) && matches!(command, Command::Log(_))
            })
            .collect();
        if let Some(n) = leads
            && node(&c, n).flatten() > Some(0)
        {
            c.todo.extend(held);
            break n;
        }
        c.turn();
        c.todo.extend(held);
    };
    let is_ready = |c: &mut Cluster| {
        let member = c.core(new).member(GROUP).unwrap();
        member.node().has_applied_own_term()
    };
    assert!(!is_ready(&mut c));
    assert!(!is_served(&mut c, new, &mut client));
    while !is_ready(&mut c) {
        c.turn();
    }
}
