//! Tests of messages: encoded and decoded, truncated, changed and made up.

use proptest::prelude::*;

use super::*;

fn any_body() -> impl Strategy<Value = Body> {
    let n = any::<u64>;
    let read = || proptest::option::of((n(), n())).prop_map(|r| r.map(to_read));
    prop_oneof![
        (n(), n(), proptest::option::of((n(), n()))).prop_map(|(index, commit, reject)| {
            Body::AppendResponse {
                index: Index(index),
                commit: Index(commit),
                reject: reject.map(|(at, term)| (Index(at), Term(term))),
            }
        }),
        (any::<bool>(), any::<bool>(), n(), n()).prop_map(|(pre, transfer, a, b)| Body::Vote {
            pre,
            transfer,
            index: Index(a),
            log_term: Term(b),
            commit: Index(a ^ 5),
            commit_term: Term(b ^ 9),
        }),
        (any::<bool>(), any::<bool>(), n(), n()).prop_map(|(pre, reject, a, b)| {
            Body::VoteResponse {
                pre,
                reject,
                commit: Index(a),
                commit_term: Term(b),
            }
        }),
        (n(), n(), read()).prop_map(|(commit, round, read)| Body::Heartbeat {
            commit: Index(commit),
            round,
            read,
        }),
        (n(), n(), read()).prop_map(|(commit, round, read)| Body::HeartbeatResponse {
            commit: Index(commit),
            round,
            read,
        }),
        (n(), n()).prop_map(|r| Body::ReadIndex { read: to_read(r) }),
        (n(), n(), n()).prop_map(|(a, b, index)| Body::ReadIndexResponse {
            read: to_read((a, b)),
            index: Index(index),
        }),
        Just(Body::TimeoutNow),
    ]
}

fn to_read((replica, context): (u64, u64)) -> Read {
    Read { replica, context }
}

#[test]
fn blocks_are_asked_for_and_given() {
    let key = Key {
        tree: Tree(1),
        layer: Layer(2),
        chunk: Chunk(3),
        block: Block(4),
    };
    for (body, payloads) in [
        (Body::Ask { key, crc: 7 }, vec![]),
        (Body::Have { key, crc: 7 }, vec![Bytes::from(vec![9; 4096])]),
    ] {
        let (mut gather, mut out) = (Gather::new(Lane::Repair), Vec::new());
        let message = message(body);
        gather
            .add((1, 2), Group(5), &message, &payloads, &mut out)
            .unwrap();
        let read = decode(gather.frame(1, 2).unwrap()).unwrap().remove(0);
        assert_eq!((read.message, read.payloads), (message, payloads));
    }
}

#[test]
fn steps_of_copies_are_read_as_they_were_said() {
    let range = Range {
        tree: Tree(7),
        layer: Layer(8),
        chunk: Chunk(9),
        first: Block(10),
        blocks: 3,
    };
    let attempt = 1 << 40;
    let blocks = CopyStep::Blocks {
        attempt,
        number: 77,
        range,
        crcs: vec![Some(5), None, Some(0)],
    };
    let copy = Copy {
        through: Index(123),
        term: Term(4),
    };
    let steps = [
        (CopyStep::Offer, vec![]),
        (
            CopyStep::Ready {
                from: Index(99),
                attempt,
            },
            vec![],
        ),
        (blocks, vec![Bytes::from(vec![1; 8192])]),
        (CopyStep::Taken { number: 77 }, vec![]),
        (
            CopyStep::End { attempt },
            vec![Bytes::from_static(b"state")],
        ),
        (CopyStep::Done, vec![]),
        (CopyStep::Gone { attempt }, vec![]),
    ];
    let mut gather = Gather::new(Lane::Repair);
    let mut out = Vec::new();
    for (step, payloads) in &steps {
        let body = Body::Copy {
            copy,
            step: step.clone(),
        };
        let message = message(body);
        assert_eq!(lane_of(&message.body), Lane::Repair);
        gather
            .add((1, 2), Group(5), &message, payloads, &mut out)
            .unwrap();
    }
    out.extend(gather.frame(1, 2));
    assert_eq!(out.len(), 1);
    let frame = out.remove(0);
    let whole = frame.fields.clone();
    let read = decode(frame).unwrap();
    assert_eq!(read.len(), steps.len());
    for (read, (step, payloads)) in read.into_iter().zip(&steps) {
        let Body::Copy { copy: c, step: s } = read.message.body else {
            panic!("{:?}", read.message);
        };
        assert_eq!((c, &s, &read.payloads), (copy, step, payloads));
    }
    for len in 0..whole.len() {
        let cut = Frame::new(kind::RAFT, Lane::Repair, whole.get(..len).unwrap().to_vec());
        let read = decode(cut).map_or(0, |read| read.len());
        assert!(read < steps.len(), "{len}");
    }
}

/// An append behind entry 7, whose entries have these numbers of inline bytes and blocks.
fn append(sizes: &[(usize, usize)]) -> (Message, Vec<Bytes>) {
    let entries = sizes.iter().enumerate().map(|(n, &(inline, _))| Entry {
        index: Index(8 + n as u64),
        term: Term(3 + n as u64 / 4),
        is_change: n % 3 == 2,
        inline: vec![n as u8; inline].into(),
    });
    let body = Body::Append {
        index: Index(7),
        log_term: Term(2),
        commit: Index(6),
        entries: entries.collect(),
    };
    let payloads = sizes.iter().enumerate();
    let payloads = payloads.map(|(n, &(_, blocks))| vec![n as u8; blocks * 4096].into());
    (message(body), payloads.collect())
}

fn message(body: Body) -> Message {
    Message {
        from: 1,
        to: 2,
        term: Term(9),
        body,
    }
}

fn through(messages: &[(Message, Vec<Bytes>)]) -> Vec<Received> {
    let mut gather = Gather::new(Lane::Foreground);
    let mut frames = Vec::new();
    for (message, payloads) in messages {
        let ends = (1, 2);
        gather
            .add(ends, Group(5), message, payloads, &mut frames)
            .unwrap();
    }
    frames.extend(gather.frame(1, 2));
    assert!(gather.is_empty());
    let all = frames.into_iter().flat_map(|frame| {
        assert!(frame.encode().is_ok(), "over the bounds");
        assert_eq!((frame.sender, frame.receiver), (1, 2));
        decode(frame).unwrap()
    });
    all.collect()
}

proptest! {
    #[test]
    fn what_is_said_is_heard(
        bodies in proptest::collection::vec(any_body(), 1..50),
        sizes in proptest::collection::vec((0_usize..200, 0_usize..3), 0..20),
    ) {
        let mut said: Vec<_> = bodies.into_iter().map(|b| (message(b), vec![])).collect();
        said.insert(said.len() / 2, append(&sizes));
        let heard = through(&said);
        prop_assert_eq!(heard.len(), said.len());
        for (heard, (message, payloads)) in heard.into_iter().zip(said) {
            prop_assert_eq!(heard, Received { group: Group(5), message, payloads });
        }
    }

    #[test]
    fn hostile_bytes_are_refused_or_read(
        mut fields in proptest::collection::vec(any::<u8>(), 0..300),
        what in 0_u8..11,
        payload in 0_usize..9000,
    ) {
        if let Some(first) = fields.first_mut() {
            *first = what;
        }
        let frame = Frame {
            payload: vec![vec![0; payload].into()],
            ..Frame::new(kind::RAFT, Lane::Foreground, fields)
        };
        if let Err(e) = decode(frame) {
            prop_assert!(e.is_corruption());
        }
    }

    #[test]
    fn cut_and_changed_messages_are_no_panic(
        cut in 0_usize..400, at in 0_usize..400, byte in any::<u8>(),
    ) {
        let mut gather = Gather::new(Lane::Foreground);
        let (message, payloads) = append(&[(60, 1), (9, 0), (70, 2)]);
        gather.add((1, 2), Group(5), &message, &payloads, &mut vec![]).unwrap();
        let mut frame = gather.frame(1, 2).unwrap();
        let mut fields = frame.fields.to_vec();
        if let Some(place) = fields.get_mut(at) {
            *place = byte;
        }
        fields.truncate(fields.len().max(cut) - cut.min(fields.len()));
        frame.fields = fields.into();
        if let Err(e) = decode(frame) {
            prop_assert!(e.is_corruption());
        }
    }
}

/// A long append arrives in consecutive pieces, and nothing is copied when it is sent.
#[test]
fn a_long_append_is_cut() {
    let (said, payloads) = append(&[(1080, 256); 7]);
    let mut gather = Gather::new(Lane::Foreground);
    let mut frames = Vec::new();
    gather
        .add((1, 2), Group(5), &said, &payloads, &mut frames)
        .unwrap();
    let sent = frames.iter().flat_map(|f| &f.payload);
    assert!(sent.zip(&payloads).all(|(a, b)| a.as_ptr() == b.as_ptr()));
    let heard = through(&[(said.clone(), payloads)]);
    assert!(heard.len() > 3, "{}", heard.len());
    let Body::Append { entries: want, .. } = said.body else {
        panic!("no append");
    };
    let (mut got, mut before) = (Vec::new(), (Index(7), Term(2)));
    for received in heard {
        let Body::Append {
            index,
            log_term,
            commit,
            entries,
        } = received.message.body
        else {
            panic!("no append");
        };
        assert_eq!((index, log_term, commit.0), (before.0, before.1, 6));
        if let Some(last) = entries.last() {
            before = (last.index, last.term);
        }
        got.extend(entries);
    }
    assert_eq!(got, want);
}

/// The buffer of a large payload has nothing else, so that its blocks may stay there.
#[test]
fn a_large_payload_has_a_frame_of_its_own() {
    let (small, large) = (1, OWN_BYTES_MIN / 4096);
    for (blocks, frames) in [
        (vec![small; 40], 1),
        (vec![large - 1; 3], 1),
        (vec![large, large], 2),
        (vec![small, large, small, small, 0, large], 4),
        (vec![0, large, 0], 1),
    ] {
        let sizes: Vec<_> = blocks.iter().map(|&n| (8 + 4 * n, n)).collect();
        let (mut gather, mut out) = (Gather::new(Lane::Foreground), Vec::new());
        // In one message, and each in its own.
        let (message, payloads) = append(&sizes);
        gather
            .add((1, 2), Group(5), &message, &payloads, &mut out)
            .unwrap();
        out.extend(gather.frame(1, 2));
        let together = out.len();
        for &size in &sizes {
            let (message, payloads) = append(&[size]);
            gather
                .add((1, 2), Group(5), &message, &payloads, &mut out)
                .unwrap();
        }
        out.extend(gather.frame(1, 2));
        assert_eq!((together, out.len()), (frames, 2 * frames), "{blocks:?}");
        for frame in out {
            let is_large = |p: &Bytes| p.len() >= OWN_BYTES_MIN;
            assert!(frame.payload.len() == 1 || !frame.payload.iter().any(is_large));
            for received in decode(frame).unwrap() {
                let Body::Append { entries, .. } = received.message.body else {
                    panic!("no append");
                };
                assert!(!entries.is_empty(), "{blocks:?}");
            }
        }
    }
}

#[test]
fn what_cannot_be_sent_is_an_error() {
    let mut gather = Gather::new(Lane::Foreground);
    for (inline, blocks) in [(FIELDS_BYTES_MAX, 0), (1, 1000)] {
        let (message, payloads) = append(&[(inline, blocks)]);
        let added = gather.add((1, 2), Group(1), &message, &payloads, &mut vec![]);
        assert!(added.is_err());
    }
    let (message, _) = append(&[(1, 1)]);
    let added = gather.add((1, 2), Group(1), &message, &[], &mut vec![]);
    assert!(added.is_err());
}
