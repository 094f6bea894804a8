//! Tests with messages that no correct peer sends.

use base::rng::Rng;
use bytes::Bytes;

use super::change;
use super::pump::{Cluster, command};
use crate::group::message::{Body, Entry, Message, Read};
use crate::ids::{Index, Term};

fn number(rng: &mut Rng, around: u64) -> u64 {
    match rng.below(6) {
        0 => 0,
        1 => u64::MAX,
        2 => rng.next_u64(),
        _ => (around + rng.below(5)).saturating_sub(2),
    }
}

/// Entries behind `index`, mostly valid.
fn entries(
    rng: &mut Rng,
    index: Index,
    log_term: Term,
    last: u64,
    term: u64,
) -> (Vec<Entry>, Vec<Bytes>) {
    let mut payloads = Vec::new();
    let mut entries = Vec::new();
    for i in 0..rng.below(4) {
        let (inline, payload) = command(i, rng.below(2) as usize);
        let odd = rng.one_in(8);
        entries.push(Entry {
            index: Index(if odd {
                number(rng, last)
            } else {
                index.0.wrapping_add(i + 1)
            }),
            term: if odd {
                Term(number(rng, term))
            } else {
                log_term
            },
            is_change: rng.one_in(8),
            inline: if rng.one_in(4) {
                change(&[9], &[], &[1]).encode().into()
            } else {
                inline
            },
        });
        payloads.push(payload);
    }
    (entries, payloads)
}

fn hostile(rng: &mut Rng, to: u64, last: u64, term: u64) -> (Message, Vec<Bytes>) {
    let mut n = |around| number(rng, around);
    let (index, commit, log_term) = (Index(n(last)), Index(n(last)), Term(n(term)));
    let (commit_term, round, m_term, from) = (Term(n(term)), n(3), n(term), n(2));
    let kind = rng.below(10);
    let (entries, mut payloads) = entries(rng, index, log_term, last, term);
    let flip = rng.one_in(2);
    let read = Read {
        replica: from,
        context: round,
    };
    if kind != 0 {
        payloads.clear();
    }
    let body = match kind {
        0 => Body::Append {
            index,
            log_term,
            commit,
            entries,
        },
        1 => Body::AppendResponse {
            index,
            commit,
            reject: flip.then_some((commit, log_term)),
        },
        2 => Body::Vote {
            pre: flip,
            transfer: rng.one_in(2),
            index,
            log_term,
            commit,
            commit_term,
        },
        3 => Body::VoteResponse {
            pre: flip,
            reject: rng.one_in(2),
            commit,
            commit_term,
        },
        4 => Body::Heartbeat {
            commit,
            round,
            read: flip.then_some(read),
        },
        5 => Body::HeartbeatResponse {
            commit,
            round,
            read: flip.then_some(read),
        },
        6 => Body::ReadIndex { read },
        7 => Body::ReadIndexResponse { read, index },
        _ => Body::TimeoutNow,
    };
    let term = Term(if kind == 6 { 0 } else { m_term });
    (
        Message {
            from,
            to,
            term,
            body,
        },
        payloads,
    )
}

/// Any message is refused or handled, and the node keeps working.
#[test]
fn hostile_messages_do_not_panic() {
    let (mut refused, mut taken) = (0, 0);
    for seed in 0..60 {
        let mut c = Cluster::new(seed, &[1, 2, 3], &[]);
        let mut rng = Rng::new(seed);
        let leader = c.elect();
        c.propose(1);
        c.run(3);
        let target = if seed % 2 == 0 {
            leader
        } else {
            leader % 3 + 1
        };
        let others: Vec<u64> = c.ids().into_iter().filter(|&id| id != target).collect();
        c.cut_off.extend(others);
        for round in 0..200 {
            let running = c.on(target);
            let (last, term) = (running.node.last().0, running.node.term().0);
            let (message, payloads) = hostile(&mut rng, target, last, term);
            match running.node.step(message, payloads) {
                Ok(()) => taken += 1,
                Err(e) => {
                    assert!(e.is_corruption(), "{e}");
                    refused += 1;
                }
            }
            if round % 3 == 0 {
                running.node.tick().unwrap();
            }
            let Some(ready) = running.node.ready(&running.log).unwrap() else {
                continue;
            };
            if !ready.items.is_empty() {
                let (_, append) = running.log.append(ready.items, &[]).unwrap();
                let outcome = append.run();
                assert_eq!(
                    running.log.landed(append, outcome).unwrap().durable.len(),
                    1
                );
                if rng.one_in(2) {
                    let _after = running.node.persisted(ready.number);
                }
            }
        }
    }
    assert!(refused > 1000 && taken > 1000, "{refused} {taken}");
}
