//! Random histories: small ones, all orders of which are tried, and long ones.

use base::rng::Rng;

use super::tests::{by_trying, counting};
use super::*;

/// A random small history: of a correct register, perhaps disturbed afterwards; or an arbitrary one.
fn random(rng: &mut Rng, unique: bool) -> Vec<Operation> {
    let length = 1 + rng.below(8);
    let span = 2 + rng.below(20);
    let (values, silent) = (1 + rng.below(3), 2 + rng.below(5));
    let mut present = ZERO;
    let by_construction = rng.below(3) > 0;
    let mut operations = Vec::new();
    for i in 0..length {
        let is_write = rng.below(5) < 2;
        let fresh = if unique { i + 1 } else { rng.below(values) };
        let at = if by_construction {
            i * span / 4
        } else {
            rng.below(span)
        };
        let early = at.saturating_sub(rng.below(1 + span / 3));
        let late = at + rng.below(1 + span / 3);
        let mut operation = Operation {
            client: i,
            block: 7,
            action: if is_write {
                Action::Write
            } else {
                Action::Read
            },
            value: if is_write { fresh } else { present },
            start: early,
            outcome: Outcome::Answered(late),
            nanos: [0, 0],
        };
        let happens = rng.below(4) > 0;
        if rng.one_in(silent) {
            operation.outcome = Outcome::Unanswered;
        }
        if rng.one_in(20) {
            operation.outcome = Outcome::Refused;
        } else if is_write && (happens || operation.is_answered()) {
            present = fresh;
        }
        if !by_construction && !is_write {
            operation.value = rng.below(length + 1);
        }
        operations.push(operation);
    }
    if by_construction && rng.one_in(2) {
        disturb(rng, &mut operations);
    }
    operations
}

/// Swaps two operations, or changes a read's value.
fn disturb(rng: &mut Rng, operations: &mut [Operation]) {
    let length = operations.len() as u64;
    let (a, b) = (rng.below(length) as usize, rng.below(length) as usize);
    if rng.one_in(2) {
        let (first, second) = (operations[a], operations[b]);
        (operations[a].start, operations[a].outcome) = (second.start, second.outcome);
        (operations[b].start, operations[b].outcome) = (first.start, first.outcome);
    } else if operations[a].action == Action::Read && operations[b].action == Action::Write {
        operations[a].value = operations[b].value;
    }
}

/// The checker, the search, and trying all orders agree on every small history.
#[test]
fn all_three_agree_on_small_histories() {
    let mut rng = Rng::new(0x11ea_0001);
    let (mut fine, mut wrong, mut zones, mut parts, mut longest) = (0, 0, 0, 0, 0);
    for case in 0..100_000 {
        let operations = random(&mut rng, case % 2 == 0);
        let truth = by_trying(&operations);
        let counting = counting(&operations);
        let said = check(&operations);
        let text = || {
            let lines: Vec<String> = operations.iter().map(ToString::to_string).collect();
            lines.join("\n")
        };
        assert_eq!(said.is_ok(), truth, "case {case}: {said:?}\n{}", text());
        // A contradiction that is found near a moment never comes from a valid history.
        if let Some((named, _)) = near(&counting, rng.below(25), u64::MAX) {
            parts += 1;
            assert!(!truth, "case {case}: {named:?}\n{}", text());
        }
        let found = search::linearizable(&counting, u64::MAX);
        assert_eq!(found, Some(truth), "case {case}\n{}", text());
        match said {
            Ok(tally) => {
                fine += 1;
                zones += usize::from(tally.searched == 0);
            }
            Err(violations) => {
                wrong += 1;
                // The named operations contradict each other, together with the writes of their values.
                let violation = &violations.0[0];
                let mut named = violation.operations();
                longest = longest.max(named.len());
                named.extend(&violation.writes);
                assert!(!by_trying(&named), "case {case}: {violation}\n{}", text());
                let order = matches!(violation.reason, Reason::TwoOrders { .. });
                assert!(!order || named.len() <= 6, "case {case}: {violation}");
            }
        }
    }
    assert!(
        fine > 20_000 && wrong > 20_000 && zones > 15_000,
        "{fine} {wrong} {zones}"
    );
    assert!(longest <= 8 && parts > 10_000, "{longest} {parts}");
}

/// A history of `length` operations over `blocks` blocks, with `clients` clients that each wait for their
/// answers; one of `zeros` writes is a trim, if that is not 0.
fn long(rng: &mut Rng, length: usize, blocks: u64, clients: usize, zeros: u64) -> Vec<Operation> {
    let mut present = vec![ZERO; blocks as usize];
    let mut free_at = vec![1u64; clients];
    let mut operations = Vec::with_capacity(length);
    let mut now = 10u64;
    for i in 0..length {
        // A single order of effects, at `now`, each between the start and the end of its operation.
        now += 1 + rng.below(10);
        let client = rng.below(clients as u64) as usize;
        let block = rng.below(blocks);
        let start = free_at[client]
            .max(now.saturating_sub(rng.below(60)))
            .min(now);
        let end = now + rng.below(60);
        free_at[client] = end + 1;
        if free_at[client] > now + 60 {
            now = free_at[client];
        }
        let is_write = rng.one_in(2);
        let answered = !is_write || !rng.one_in(100);
        let value = if zeros > 0 && rng.one_in(zeros) {
            ZERO
        } else {
            i as u64 + 1
        };
        if is_write {
            present[block as usize] = value;
        }
        operations.push(Operation {
            client: client as u64,
            block,
            action: if is_write {
                Action::Write
            } else {
                Action::Read
            },
            value: present[block as usize],
            start,
            outcome: if answered {
                Outcome::Answered(end)
            } else {
                Outcome::Unanswered
            },
            nanos: [start, end],
        });
    }
    operations
}

#[test]
fn long_histories_are_checked() {
    let mut rng = Rng::new(3);
    for zeros in [0, 3] {
        let operations = long(&mut rng, 20_000, 4, 12, zeros);
        let tally = check(&operations).unwrap();
        assert_eq!((tally.blocks, tally.operations), (4, 20_000));
        assert!(tally.undecided.is_empty());
        // An old value is read somewhere in the middle.
        let mut stale = operations.clone();
        let at = (10_000..stale.len())
            .find(|&i| stale[i].action == Action::Read)
            .unwrap();
        let block = stale[at].block;
        let old = stale[..5000]
            .iter()
            .rev()
            .find(|o| o.block == block && o.value != 0);
        stale[at].value = old.unwrap().value;
        let violations = check(&stale).unwrap_err();
        assert_eq!(violations.0.len(), 1);
        assert!(violations.0[0].operations().len() <= 4, "{violations}");
    }
}

/// Prints how long it takes to find one old zero among many trims; `--nocapture` shows the output.
#[test]
#[ignore = "a measurement: run it in release"]
#[expect(
    clippy::disallowed_methods,
    reason = "a measurement asks the machine for the time"
)]
#[expect(clippy::print_stdout, reason = "a measurement is printed")]
fn old_zeros_among_trims() {
    for clients in [4, 8, 16, 24] {
        let mut rng = Rng::new(5);
        let mut operations = long(&mut rng, 100_000, 1, clients, 3);
        let is_read = |o: &Operation| o.action == Action::Read && o.value != ZERO;
        let at = (50_000..99_000).find(|&i| is_read(&operations[i])).unwrap();
        // No trim is near enough, and none can take effect late.
        for (i, o) in operations.iter_mut().enumerate() {
            let is_trim = o.action == Action::Write && o.value == ZERO;
            if is_trim && (i.abs_diff(at) < 200 || !o.is_answered()) {
                o.outcome = Outcome::Refused;
            }
        }
        let start = std::time::Instant::now();
        let verdict = check(&operations);
        let named = verdict
            .as_ref()
            .map_or_else(|v| v.0[0].operations().len(), |_| 0);
        let undecided = verdict.map_or(0, |t| t.undecided.len());
        let took = start.elapsed();
        println!("{clients} clients: {took:?}, {named} operations named, {undecided} undecided");
    }
}

/// Prints how long a million operations take; `--nocapture` shows the output.
#[test]
#[ignore = "a measurement: run it in release"]
#[expect(
    clippy::disallowed_methods,
    reason = "a measurement asks the machine for the time"
)]
#[expect(clippy::print_stdout, reason = "a measurement is printed")]
fn a_million_operations() {
    let mut rng = Rng::new(4);
    for (blocks, zeros) in [(1, 0), (1000, 0), (1000, 10), (1, 10)] {
        let operations = long(&mut rng, 1_000_000, blocks, 32, zeros);
        let start = std::time::Instant::now();
        let tally = check(&operations).unwrap();
        let took = start.elapsed();
        let (searched, undecided) = (tally.searched, tally.undecided.len());
        println!(
            "1,000,000 operations, {blocks} blocks, a trim in {zeros} writes: {took:?}, \
             {searched} searched, {undecided} undecided"
        );
    }
}
