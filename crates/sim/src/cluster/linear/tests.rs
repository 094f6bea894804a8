//! Histories written by hand, each with its story.

use super::*;
use crate::cluster::history::History;

/// Histories are written as lines: client, `w` or `r`, value, start, end. An end of `?` means no answer,
/// `!` a refusal.
fn parse(text: &str) -> Vec<Operation> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [client, action, value, start, end] = words[..] else {
            panic!("{line}");
        };
        Operation {
            client: client.parse().unwrap(),
            block: 7,
            action: if action == "w" {
                Action::Write
            } else {
                Action::Read
            },
            value: value.parse().unwrap(),
            start: start.parse().unwrap(),
            outcome: match end {
                "?" => Outcome::Unanswered,
                "!" => Outcome::Refused,
                end => Outcome::Answered(end.parse().unwrap()),
            },
            nanos: [0, 0],
        }
    };
    text.lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .map(line)
        .collect()
}

/// The checker's text for an impossible history; trying all orders confirms that it is impossible.
fn bad(text: &str) -> String {
    let operations = parse(text);
    assert!(!by_trying(&operations), "the story is wrong: {text}");
    assert_eq!(
        search::linearizable(&counting(&operations), u64::MAX),
        Some(false)
    );
    let violations = check(&operations).expect_err(text);
    assert_eq!(violations.0.len(), 1);
    let named = violations.0[0].operations();
    let contained = named
        .iter()
        .all(|o| operations.iter().any(|p| p.start == o.start));
    assert!(contained, "{violations}");
    violations.0[0].to_string()
}

fn good(text: &str) {
    let operations = parse(text);
    assert!(by_trying(&operations), "the story is wrong: {text}");
    assert_eq!(
        search::linearizable(&counting(&operations), u64::MAX),
        Some(true)
    );
    if let Err(violations) = check(&operations) {
        panic!("{text}\n{violations}");
    }
}

/// The operations that count.
pub(super) fn counting(operations: &[Operation]) -> Vec<Operation> {
    let counts = |o: &&Operation| {
        o.is_answered() || o.action == Action::Write && o.outcome == Outcome::Unanswered
    };
    operations.iter().filter(counts).copied().collect()
}

/// Tries every order, one operation after the other, without any cleverness.
pub(super) fn by_trying(operations: &[Operation]) -> bool {
    fn go(rest: &[Operation], present: u64) -> bool {
        if rest.iter().all(|o| !o.is_answered()) {
            return true;
        }
        (0..rest.len()).any(|i| {
            let next = rest[i];
            let too_early = rest.iter().any(|o| o.is_answered() && o.end() < next.start);
            let wrong = next.action == Action::Read && next.value != present;
            let others = || [&rest[..i], &rest[i + 1..]].concat();
            !too_early && !wrong && go(&others(), next.value)
        })
    }
    go(&counting(operations), ZERO)
}

#[test]
fn a_stale_read_after_a_newer_acknowledgement() {
    let said = bad("1 w 5 10 20
                    1 w 9 30 40
                    2 r 5 50 60");
    assert_eq!(
        said,
        "block 7: value 5 was there before value 9, and after it\n  \
         5 before 9: client 1 write 5 [10, 20] ended before client 1 write 9 [30, 40] began\n  \
         9 before 5: client 1 write 9 [30, 40] ended before client 2 read 5 [50, 60] began"
    );
}

#[test]
fn an_acknowledged_write_is_lost() {
    let said = bad("1 w 5 10 20
                    2 r 0 30 40");
    assert_eq!(
        said,
        "block 7: value 0 was there before value 5, and after it\n  \
         0 before 5: blocks hold 0 at first, before client 1 write 5 [10, 20]\n  \
         5 before 0: client 1 write 5 [10, 20] ended before client 2 read 0 [30, 40] began"
    );
}

#[test]
fn a_zero_read_after_a_newer_read() {
    // The write has no answer, but a client has seen it.
    let said = bad("1 w 5 10 ?
                    2 r 5 20 30
                    2 r 0 40 50");
    assert!(
        said.contains("5 before 0: client 2 read 5 [20, 30] ended before"),
        "{said}"
    );
    assert!(
        said.ends_with("5 is of client 1 write 5 [10, unanswered]"),
        "{said}"
    );
}

#[test]
fn a_value_that_never_was() {
    let said = bad("1 w 5 10 20
                    2 r 6 15 40");
    assert_eq!(
        said,
        "block 7: value 6 was never written\n  client 2 read 6 [15, 40]"
    );
}

#[test]
fn two_reads_that_go_back_in_time() {
    let said = bad("1 w 5 10 20
                    1 w 9 25 90
                    2 r 9 30 40
                    3 r 5 50 60");
    assert!(
        said.contains("5 before 9: client 1 write 5 [10, 20] ended before"),
        "{said}"
    );
    assert!(
        said.contains("9 before 5: client 2 read 9 [30, 40] ended before"),
        "{said}"
    );
    assert!(said.contains("9 is of client 1 write 9 [25, 90]"), "{said}");
}

#[test]
fn a_duplicate_applied_after_a_newer_write() {
    // The leader changed, the client sent 5 again, and both copies were applied.
    let said = bad("1 w 5 10 50
                    2 w 9 60 70
                    3 r 9 80 90
                    3 r 5 95 99");
    assert!(
        said.contains("9 before 5: client 2 write 9 [60, 70] ended before"),
        "{said}"
    );
}

#[test]
fn a_phantom_of_a_refused_write() {
    let said = bad("1 w 5 10 20
                    1 w 9 30 !
                    2 r 9 50 60");
    assert!(
        said.starts_with("block 7: value 9 is of a refused write"),
        "{said}"
    );
}

#[test]
fn a_split_brain_with_two_readers() {
    // Two leaders, each with its own write and its own reader: both readers read again.
    let said = bad("1 w 5 10 100
                    2 w 9 10 100
                    3 r 5 20 30
                    4 r 9 40 50
                    3 r 5 60 70
                    4 r 9 80 90");
    assert!(said.contains("read 5") && said.contains("read 9"), "{said}");
}

#[test]
fn a_value_is_read_before_it_is_written() {
    let said = bad("1 r 5 10 20
                    2 w 5 30 40");
    assert!(
        said.starts_with("block 7: value 5 was read before it was written"),
        "{said}"
    );
}

#[test]
fn a_write_between_two_reads_of_another() {
    // The write of 9 was acknowledged while two reads, before and after, saw 5.
    bad("1 w 5 10 200
         2 r 5 20 30
         3 w 9 40 50
         2 r 5 60 70");
}

#[test]
fn an_acknowledged_write_disappears_behind_an_older_one_without_an_answer() {
    // 5 may take effect late, but not once before and once after 9.
    bad("1 w 5 10 ?
         2 r 5 20 30
         2 w 9 40 50
         3 r 5 60 70");
}

#[test]
fn a_trim_is_lost() {
    let said = bad("1 w 5 10 20
                    1 w 0 30 40
                    2 r 5 50 60");
    assert!(said.contains("0 before 5"), "{said}");
}

#[test]
fn a_trim_comes_back_after_a_newer_write() {
    let said = bad("1 r 0 1 2
                    1 w 0 10 20
                    1 r 0 22 24
                    1 w 9 30 40
                    2 r 0 50 60");
    assert!(
        said.starts_with("block 7: no order of these operations"),
        "{said}"
    );
    // Unrelated operations are not named.
    assert!(
        said.contains("write 9") && !said.contains("[1, 2]"),
        "{said}"
    );
    assert!(!said.contains("[22, 24]"), "{said}");
}

#[test]
fn one_unanswered_trim_is_not_two() {
    bad("1 w 0 1 ?
         1 w 5 10 20
         2 r 0 30 40
         1 w 9 50 60
         2 r 0 70 80");
}

#[test]
fn the_same_value_twice_is_searched() {
    good(
        "1 w 5 10 20
          1 w 9 30 40
          1 w 5 50 60
          2 r 5 70 80",
    );
    bad("1 w 5 10 20
         1 w 9 30 40
         1 w 5 50 60
         2 r 9 70 80");
}

#[test]
fn unanswered_writes_show_up_late() {
    good(
        "1 w 5 10 ?
          2 w 9 20 30
          2 r 9 40 50
          2 r 5 60 70
          2 r 5 80 90",
    );
    good(
        "1 w 5 10 ?
          2 w 9 20 30
          2 r 9 40 50",
    );
    good(
        "1 w 5 10 ?
          2 r 0 20 30",
    );
}

#[test]
fn reads_without_an_answer_say_nothing() {
    good(
        "1 w 5 10 20
          2 r 9 30 ?
          2 r 5 40 50",
    );
    good(
        "1 w 5 10 20
          2 r 9 30 !
          1 w 6 31 !
          2 r 5 40 50",
    );
}

#[test]
fn concurrent_writes_have_any_order() {
    good(
        "1 w 5 10 100
          2 w 9 10 100
          3 r 9 20 30
          3 r 5 40 50
          4 r 5 110 120",
    );
    // The read that began first returns the newer value.
    good(
        "1 w 5 10 20
          2 r 9 30 100
          3 r 5 40 50
          4 w 9 60 70",
    );
    // A backward zone may touch both ends of a forward zone.
    good(
        "1 w 5 10 20
          2 r 5 40 50
          3 w 9 20 30
          4 w 8 30 40",
    );
}

#[test]
fn the_same_moment_is_concurrent() {
    good(
        "1 w 5 10 20
          2 r 0 20 30",
    );
    bad("1 w 5 10 20
         2 r 0 21 30");
    good(
        "1 w 5 10 10
          2 r 0 10 10
          2 r 5 10 10",
    );
    good(
        "1 r 5 10 20
          2 w 5 20 30",
    );
    // At the very first moment.
    good(
        "1 w 5 0 0
          1 r 0 0 5",
    );
    bad("1 w 5 0 0
         1 r 0 1 5");
}

#[test]
fn trims_that_nobody_confuses_need_no_search() {
    let good = "1 w 5 10 20
                2 r 5 25 30
                1 w 0 30 40
                1 w 0 50 60
                2 w 9 70 80
                2 r 9 90 99";
    let tally = check(&parse(good)).unwrap();
    assert_eq!((tally.blocks, tally.searched), (1, 0));
    // A read of zero after a trim may belong to the trim or to the beginning.
    let tally = check(&parse(&format!("{good}\n3 w 0 100 110\n3 r 0 120 130"))).unwrap();
    assert_eq!((tally.blocks, tally.searched), (1, 1));
    assert!(tally.undecided.is_empty());
}

#[test]
fn a_search_that_is_too_long_says_so() {
    let text = "1 w 0 10 20\n1 r 0 30 40";
    let tally = check_within(&parse(text), 0).unwrap();
    assert_eq!(tally.undecided, [7]);
}

#[test]
fn the_shortest_contradiction_comes_first() {
    let mut all = parse(
        "1 w 5 10 20
         1 w 9 30 40
         2 r 5 500 600
         1 w 3 700 710
         1 w 4 720 730
         2 r 3 740 750",
    );
    let (mut other, mut third) = (all[..3].to_vec(), all[..3].to_vec());
    other[2].outcome = Outcome::Answered(501);
    for (o, p) in other.iter_mut().zip(&mut third) {
        (o.block, p.block) = (3, 8);
    }
    third[2].value = 77;
    all.extend(other);
    all.extend(third);
    let violations = check(&all).unwrap_err();
    let blocks: Vec<u64> = violations.0.iter().map(|v| v.block).collect();
    assert_eq!(blocks, [8, 7, 3], "{violations}");
    assert!(
        violations.to_string().contains("3 before 4"),
        "{violations}"
    );
}

#[test]
fn a_recorded_history_has_no_equal_moments() {
    let mut history = History::default();
    let first = history.write(1, 0, 5, 100);
    history.answered(first, 100);
    let second = history.read(2, 0, 100);
    history.returned(second, ZERO, 100);
    let lost = check(history.operations()).unwrap_err().to_string();
    assert!(
        lost.contains("client 2 read 0 [3, 4] at 100..100 ns"),
        "{lost}"
    );
}
