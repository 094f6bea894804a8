//! A volume whose answers the test gives one by one.

use super::*;

/// A volume of one group of three replicas, 1 to 3, with the answers given by hand.
fn by_hand(size: u64, options: Options) -> Volume {
    let map = Map::new(
        size,
        (Tree(1), Layer(1)),
        Striping::default(),
        vec![Group(1)],
    )
    .unwrap();
    let replicas = [(Group(1), vec![1, 2, 3])].into();
    let id = (Epoch(1), Attachment(1));
    let mut volume = Volume::new(map, &replicas, id, options, 0).unwrap();
    write(&mut volume, 0, 0);
    let attach = sends(&mut volume);
    assert_eq!(attach.len(), 1, "operations wait");
    assert_eq!(attach[0].request.what, What::Attach);
    done(&mut volume, &attach[0]);
    let first = sends(&mut volume);
    assert_eq!(first.len(), 1);
    done(&mut volume, &first[0]);
    assert_eq!(completed(&mut volume), [(Token(0), Ok(Reply::Done))]);
    volume
}

fn write(volume: &mut Volume, token: u64, offset: u64) {
    let bytes = vec![7; 512].into();
    let fua = false;
    volume.submit(Token(token), Op::Write { offset, bytes, fua });
}

fn sends(volume: &mut Volume) -> Vec<Send> {
    std::iter::from_fn(|| volume.next_send()).collect()
}

fn completed(volume: &mut Volume) -> Vec<(Token, Result<Reply, Errno>)> {
    let mut out = Vec::new();
    volume.completed(&mut out);
    out
}

fn answer(volume: &mut Volume, send: &Send, outcome: Outcome) {
    let id = send.request.id;
    volume.response(send.store, Response { id, outcome });
}

fn done(volume: &mut Volume, send: &Send) {
    answer(volume, send, Outcome::Done);
}

/// No group is asked for anything before all of them refuse requests of older attachments.
#[test]
fn a_volume_is_attached_when_all_its_groups_have_the_epoch() {
    let groups = vec![Group(1), Group(2)];
    let replicas = groups.iter().map(|&g| (g, vec![1, 2, 3])).collect();
    let ids = (Tree(1), Layer(1));
    let map = Map::new(64 << 20, ids, Striping::default(), groups).unwrap();
    let id = (Epoch(2), Attachment(2));
    let mut volume = Volume::new(map, &replicas, id, options(), 0).unwrap();
    write(&mut volume, 0, 0);
    write(&mut volume, 1, 1 << 20);
    let attach = sends(&mut volume);
    assert_eq!(attach.len(), 2);
    done(&mut volume, &attach[0]);
    assert!(!volume.is_attached() && sends(&mut volume).is_empty());
    done(&mut volume, &attach[1]);
    assert!(volume.is_attached());
    assert_eq!(sends(&mut volume).len(), 2);
}

#[test]
fn numbers_stay_in_the_window_when_one_is_not_answered() {
    let mut volume = by_hand(64 << 20, options());
    for n in 0..2 * OPEN_MAX {
        write(&mut volume, n, n * 4096);
    }
    let first = sends(&mut volume);
    assert_eq!(first.len() as u64, OPEN_MAX);
    for send in &first[1..] {
        done(&mut volume, send);
    }
    assert!(sends(&mut volume).is_empty(), "the first is open");
    done(&mut volume, &first[0]);
    let next = sends(&mut volume);
    assert_eq!(next.len() as u64, OPEN_MAX);
    let origin = next[0].request.origin;
    assert_eq!(
        (origin.seq, origin.lowest_open),
        (OPEN_MAX + 2, OPEN_MAX + 2)
    );
    assert_eq!(completed(&mut volume).len() as u64, OPEN_MAX);
}

#[test]
fn overlapping_changes_go_one_behind_the_other() {
    let mut volume = by_hand(64 << 20, options());
    for (token, offset) in [(1, 0), (2, 1024), (3, 4096), (4, 512)] {
        write(&mut volume, token, offset);
    }
    let first = sends(&mut volume);
    let offset = |s: &Send| s.request.what.span().offset;
    assert_eq!(first.iter().map(offset).collect::<Vec<_>>(), [0, 4096]);
    done(&mut volume, &first[0]);
    let second = sends(&mut volume);
    assert_eq!(second.iter().map(offset).collect::<Vec<_>>(), [1024]);
    done(&mut volume, &second[0]);
    done(&mut volume, &second[0]);
    assert_eq!(offset(&sends(&mut volume)[0]), 512);
}

#[test]
fn huge_ranges_are_sent_a_few_at_a_time() {
    let mut volume = by_hand(8 << 30, options());
    let (offset, fua) = (5, false);
    let len = u32::MAX;
    volume.submit(Token(1), Op::Trim { offset, len, fua });
    let mut bytes = 0;
    while completed(&mut volume).is_empty() {
        let some = sends(&mut volume);
        assert!(!some.is_empty() && some.len() <= JOBS_MAX as usize);
        for send in some {
            bytes += u64::from(send.request.what.span().len);
            done(&mut volume, &send);
        }
    }
    assert_eq!(bytes, u64::from(u32::MAX));
    let one = false;
    volume.submit(Token(2), Op::BlockStatus { offset, len, one });
    let mut extents = Vec::new();
    while extents.is_empty() {
        for send in sends(&mut volume) {
            let len = send.request.what.span().len;
            let (hole, zero) = (true, true);
            answer(
                &mut volume,
                &send,
                Outcome::Status(vec![Run { len, hole, zero }]),
            );
        }
        extents = completed(&mut volume);
    }
    let (len, hole, zero) = ((64 << 20) - 5, true, true);
    let want = Reply::Status(vec![Extent { len, hole, zero }]);
    assert_eq!(extents, [(Token(2), Ok(want))]);
}

#[test]
fn a_request_goes_to_the_leader_and_pauses_when_nobody_leads() {
    let mut volume = by_hand(64 << 20, options());
    write(&mut volume, 1, 0);
    let refused = |hint| Outcome::Refused(Reason::NotLeader { hint });
    let mut asked = Vec::new();
    for hint in [Some(3), None, None] {
        let send = sends(&mut volume).remove(0);
        asked.push((send.store, send.request.origin.seq));
        answer(&mut volume, &send, refused(hint));
    }
    assert_eq!(asked, [(1, 2), (3, 2), (1, 2)]);
    assert!(sends(&mut volume).is_empty());
    assert_eq!(volume.stuck_since(), Some(0));
    let due = volume.next_due().unwrap();
    assert!((2 * MS..=3 * MS).contains(&due));
    volume.tick(due);
    let send = sends(&mut volume).remove(0);
    assert_eq!(send.store, 2);
    volume.disconnected(2);
    assert_eq!(sends(&mut volume)[0].store, 3);
    // A late answer of the second store counts.
    done(&mut volume, &send);
    assert_eq!(completed(&mut volume), [(Token(1), Ok(Reply::Done))]);
    assert!(volume.next_due().is_none() && volume.stuck_since().is_none());
}

/// Followers that still heard a leader which had been cut off, or did not yet know better, named it: clients
/// went back to it and waited for another timeout, four seconds in all.
#[test]
fn a_store_without_an_answer_is_not_asked_again_at_once() {
    let mut volume = by_hand(64 << 20, options());
    let named = || Outcome::Refused(Reason::NotLeader { hint: Some(1) });
    let (offset, len, df) = (0, 4096, false);
    volume.submit(Token(1), Op::Read { offset, len, df });
    assert_eq!(sends(&mut volume)[0].store, 1);
    volume.tick(50 * MS);
    let mut asked = Vec::new();
    while asked.len() < 8 {
        let Some(send) = sends(&mut volume).pop() else {
            volume.tick(volume.next_due().unwrap());
            continue;
        };
        asked.push(send.store);
        answer(&mut volume, &send, named());
    }
    assert!(
        asked.starts_with(&[2, 3]) && !asked.contains(&1),
        "{asked:?}"
    );
}

#[test]
fn a_read_without_an_answer_is_asked_of_others_in_turn() {
    let mut volume = by_hand(64 << 20, options());
    let (offset, len, df) = (0, 4096, false);
    volume.submit(Token(1), Op::Read { offset, len, df });
    let mut stores = Vec::new();
    for n in 1..4 {
        let send = sends(&mut volume).remove(0);
        stores.push(send.store);
        volume.tick(n * 50 * MS);
    }
    assert_eq!(stores, [1, 2, 3]);
    // Bytes that do not match their crcs are requested again, three times in all.
    for n in 0..3 {
        volume.tick((300 + n * 20) * MS);
        let send = sends(&mut volume).pop().unwrap();
        let pieces = vec![wire::Piece::Data(vec![1; 4096].into())];
        let crcs = vec![1];
        answer(&mut volume, &send, Outcome::Data { pieces, crcs });
    }
    assert_eq!(completed(&mut volume), [(Token(1), Err(Errno::Io))]);
}

#[test]
fn a_change_that_failed_uses_up_its_number() {
    let mut volume = by_hand(64 << 20, options());
    write(&mut volume, 1, 0);
    write(&mut volume, 2, 0);
    let send = sends(&mut volume).remove(0);
    answer(&mut volume, &send, Outcome::Refused(Reason::NoSpace));
    assert_eq!(completed(&mut volume), [(Token(1), Err(Errno::NoSpace))]);
    assert!(sends(&mut volume).is_empty(), "the newer one waits");
    volume.tick(10 * MS);
    let empty = sends(&mut volume).remove(0);
    assert_eq!(empty.request.origin.seq, send.request.origin.seq);
    assert_eq!(empty.request.what, What::Zero(Span::default()));
    done(&mut volume, &empty);
    assert_eq!(sends(&mut volume).len(), 1);
    volume.submit(Token(3), Op::Flush);
    let len = 2;
    let offset = (64 << 20) - 1;
    volume.submit(Token(4), Op::Cache { offset, len });
    let want = [(Token(3), Ok(Reply::Done)), (Token(4), Err(Errno::Invalid))];
    assert_eq!(completed(&mut volume), want);
    let none = Volume::new(
        volume.map,
        &BTreeMap::new(),
        (Epoch(1), Attachment(1)),
        options(),
        0,
    );
    assert!(none.is_err());
}
