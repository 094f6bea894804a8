//! Tests of the room in the log and in the dirty map: what waits for it, and what does not.

use super::limits::{attached, one_more, request, span, write};
use super::*;
use crate::group::message::Body;

/// The response to a read of one block kept the whole buffer of a large write in memory until the client took
/// it.
#[test]
fn an_answer_to_a_small_read_keeps_no_large_buffer() {
    let (mut c, mut client) = attached(3);
    // Nothing is written back.
    c.policy.checkpoint_bytes = u64::MAX;
    c.policy.checkpoint_interval = Duration::MAX;
    for n in 0..3 {
        c.kill(n);
        c.start(n);
    }
    let what = write(span(0, 0, 256 << 10), 7);
    assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
    let leader = c.leader().unwrap();
    let replica = c.core(leader).member(GROUP).unwrap().replica();
    assert_eq!(replica.dirty_bytes(), 256 << 10);
    let What::Write { payload, .. } = what else {
        panic!("no write");
    };
    let held = payload.as_ptr_range();
    for (blocks, is_slice) in [(1, false), (31, false), (32, true)] {
        let read = What::Read(span(0, 0, blocks * 4096));
        let Outcome::Data { pieces, .. } = client.ask(&mut c, &read, false) else {
            panic!("no data");
        };
        for piece in pieces {
            let Piece::Data(bytes) = piece else {
                panic!("a hole");
            };
            assert!(bytes.iter().all(|&b| b == 7));
            assert_eq!(held.contains(&bytes.as_ptr()), is_slice, "{blocks}");
        }
    }
}

/// A log without room delayed heartbeats, votes and applies of all groups.
#[test]
fn a_log_without_room_keeps_nothing_else_waiting() {
    let (mut c, mut client) = attached(4);
    let leader = c.leader().unwrap();
    // Nothing is written back from here on.
    let mut n = 0;
    let mut answer = Outcome::Done;
    for _ in 0..200 {
        let chunk = n % CHUNKS;
        let what = write(span(chunk, (n % 8) << 19, 512 << 10), n as u8);
        let asked = request(&mut client, what);
        let id = asked.id;
        let now = c.now;
        c.core(leader).step(
            now,
            Event::Request {
                client: 1,
                request: asked,
            },
        );
        let mut found = None;
        for _ in 0..300 {
            pump_without_write_back(&mut c);
            if let Some(at) = c.answers.iter().position(|a| a.id == id) {
                found = Some(c.answers.swap_remove(at).outcome);
                break;
            }
        }
        n += 1;
        match found {
            Some(Outcome::Done) => {}
            other => {
                answer = other.unwrap_or(Outcome::Refused(Reason::Busy));
                break;
            }
        }
    }
    assert_eq!(answer, Outcome::Refused(Reason::Busy), "after {n}");
    // The leader stays the leader, and reads are served.
    let term = c.core(leader).member(GROUP).unwrap().node().term();
    for _ in 0..100 {
        c.now += TICK;
        (0..3).for_each(|n| c.event(n, Event::Tick));
        for _ in 0..40 {
            pump_without_write_back(&mut c);
        }
    }
    let node = c.core(leader).member(GROUP).unwrap().node();
    assert_eq!((node.term(), node.has_applied_own_term()), (term, true));
    client.at = leader;
    let outcome = client.ask(&mut c, &What::Read(span(0, 0, 4096)), false);
    assert!(matches!(outcome, Outcome::Data { .. }), "{outcome:?}");
    // Writes continue once blocks are written back.
    let outcome = client.ask(&mut c, &write(span(0, 0, 4096), 7), false);
    assert_eq!(outcome, Outcome::Done);
}

/// A full store dropped appends as a whole. So their leader never learned which entries it had, none of them
/// was committed, and the log never had room again.
#[test]
fn a_full_follower_says_what_it_has() {
    let (mut c, _) = attached(4);
    let leader = c.leader().unwrap();
    let follower = (leader + 1) % 3;
    let last = c.core(leader).member(GROUP).unwrap().node().last();
    while c.core(follower).member(GROUP).unwrap().node().commit() < last {
        c.turn();
    }
    let payload = vec![0; 4096].into();
    let event = one_more(&mut c, (leader, follower), b"left out", payload);
    let now = c.now;
    let core = c.core(follower);
    core.is_blocked = true;
    core.step(now, event);
    let says = |command: Command| match command {
        Command::Send { outgoing, .. } => match outgoing.message.body {
            Body::AppendResponse { index, reject, .. } => Some((index, reject)),
            _ => None,
        },
        _ => None,
    };
    let said: Vec<_> = std::iter::from_fn(|| core.next_command())
        .filter_map(says)
        .collect();
    assert_eq!(said, [(last, None)]);
}

/// A store had a little room left, and not enough for what it had to write: it restarted its count of ticks
/// without room each time, and never handed its groups over.
#[test]
fn a_store_that_has_too_little_room_gives_its_groups_to_others() {
    let (mut c, _) = attached(4);
    let leader = c.leader().unwrap();
    for _ in 0..60 {
        if c.leader().is_some_and(|n| n != leader) {
            return;
        }
        for _ in 0..60 {
            // As if an append larger than the remaining room had been tried.
            c.core(leader).is_blocked = true;
            c.turn();
        }
    }
    panic!("it leads still");
}

/// A store without room took no entries until it had something else to append, which followers may never have.
#[test]
fn a_log_that_has_room_again_takes_entries_again() {
    let (mut c, _) = attached(4);
    let now = c.now + TICK;
    let core = c.core(0);
    core.is_blocked = true;
    core.step(now, Event::Tick);
    assert!(!core.is_full());
}

pub(super) fn pump_without_write_back(c: &mut Cluster) {
    let held: Vec<_> = c
        .todo
        .extract_if(.., |(_, command)| matches!(command, Command::WriteBack(..)))
        .collect();
    if c.todo.is_empty() && c.wire.is_empty() {
        c.todo.extend(held);
        return;
    }
    c.turn();
    c.todo.extend(held);
}

/// A store that leads two groups; no message reaches the followers of the second.
struct Halved {
    c: Cluster,
    clients: [Client; 2],
    leader: usize,
}

const OTHER: Group = Group(2);

impl Halved {
    fn new() -> Self {
        let mut c = Cluster::with_groups(4, &[GROUP, OTHER]);
        let mut clients = [GROUP, OTHER].map(|group| Client::of(group, 1));
        for client in &mut clients {
            assert_eq!(client.ask(&mut c, &What::Attach, false), Outcome::Done);
        }
        let leader = c.leader_of(GROUP).unwrap();
        while c.leader_of(OTHER) != Some(leader) {
            if let Some(other) = c.leader_of(OTHER) {
                c.core(other).members.get_mut(&OTHER).unwrap().hand_over();
            }
            (0..2000).for_each(|_| c.turn());
        }
        assert_eq!(c.leader_of(GROUP), Some(leader));
        Self { c, clients, leader }
    }

    /// Asks the leader; returns the answer, if there is one within some turns.
    fn ask(&mut self, which: usize, what: What) -> Option<Outcome> {
        let (c, client) = (&mut self.c, &mut self.clients[which]);
        let asked = request(client, what);
        let id = asked.id;
        let event = Event::Request {
            client: 1,
            request: asked,
        };
        c.event(self.leader, event);
        for _ in 0..300 {
            c.wire.retain(|(_, event)| match event {
                Event::Message { group, message, .. } => {
                    *group != OTHER || !matches!(message.body, Body::Append { .. })
                }
                _ => true,
            });
            pump_without_write_back(c);
            if let Some(at) = c.answers.iter().position(|a| a.id == id) {
                return Some(c.answers.swap_remove(at).outcome);
            }
        }
        None
    }
}

/// While the map is nearly full, few changes may be on their way. A group whose followers did not answer had
/// all these places, and no other group of the store was served.
#[test]
fn a_group_that_waits_for_its_followers_leaves_places_to_others() {
    let mut h = Halved::new();
    for n in 0..16 {
        let what = write(span(0, n << 12, 4096), 1);
        assert_eq!(h.ask(0, what), Some(Outcome::Done));
    }
    for n in 0..64 {
        assert_eq!(h.ask(1, write(span(0, n << 12, 4096), 1)), None);
    }
    let leader = h.leader;
    let now = h.c.now;
    let core = h.c.core(leader);
    core.policy = Policy::of(ApplySync::Background);
    core.policy.dirty_bytes_max = core.dirty_bytes() * 10 / 9;
    let max = core.policy.changes_max(&core.state(now));
    assert!(max.is_some_and(|max| (1..64).contains(&max)), "{max:?}");
    let what = write(span(0, 0, 4096), 2);
    assert_eq!(h.ask(0, what), Some(Outcome::Done));
    // The waiting group has its whole share of places.
    assert_eq!(h.ask(1, write(span(0, 0, 4096), 2)), None);
    assert_eq!(h.c.core(leader).waiting(), 1);
}

/// A leader whose followers do not answer took changes without a limit, and used up memory.
#[test]
fn a_leader_that_nobody_answers_takes_only_so_much() {
    let mut h = Halved::new();
    for n in 0..40 {
        assert_eq!(h.ask(1, write(span(0, (n % 8) << 19, 512 << 10), 1)), None);
    }
    let leader = h.leader;
    let core = h.c.core(leader);
    let uncommitted = core.member(OTHER).unwrap().node().uncommitted_bytes();
    assert!(uncommitted < 17 << 20, "{uncommitted}");
    assert!(uncommitted >= 16 << 20, "{uncommitted}");
    assert!(core.waiting() > 0 && !core.is_full());
    // The other group is still served.
    let what = write(span(0, 0, 4096), 2);
    assert_eq!(h.ask(0, what), Some(Outcome::Done));
}

/// Changes of a group that its store had handed over for want of room waited there for that room: their clients
/// did not learn that another store leads.
#[test]
fn changes_of_a_group_that_is_led_elsewhere_do_not_wait_for_room() {
    let (mut c, mut client) = attached(4);
    let what = write(span(0, 0, 4096), 1);
    assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
    let leader = c.leader().unwrap();
    let asked = [0, 1].map(|n| request(&mut client, write(span(0, n << 12, 4096), 1)));
    let [first, second] = asked.map(|request| Event::Request { client: 1, request });
    // The leader's map is full, and nothing is written back.
    let core = c.core(leader);
    assert!(core.dirty_bytes() > 0);
    core.policy.dirty_bytes_max = 1;
    c.event(leader, first);
    assert_eq!(c.core(leader).waiting(), 1);
    let member = c.core(leader).members.get_mut(&GROUP).unwrap();
    member.hand_over();
    let mut second = Some(second);
    for _ in 0..5000 {
        pump_without_write_back(&mut c);
        if c.leader().is_some_and(|n| n != leader)
            && let Some(second) = second.take()
        {
            c.event(leader, second);
        }
    }
    assert_eq!(c.core(leader).waiting(), 0);
    assert_eq!(c.answers.len(), 2);
    for answer in &c.answers {
        let is_elsewhere = matches!(answer.outcome, Outcome::Refused(Reason::NotLeader { .. }));
        assert!(is_elsewhere, "{:?}", answer.outcome);
    }
}
