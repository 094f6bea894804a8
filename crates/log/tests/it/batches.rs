//! Batches that share no unit: their layout, several batches in flight at once, and the result of a
//! failure.

use std::sync::Arc;

use io::AlignedBuf;
use log::{Batches, Flight};

use crate::helpers::{Files, content};
use crate::write_errors::short;

const UNIT: u32 = 512;

/// Whole units of one byte.
fn payload(units: usize, byte: u8) -> bytes::Bytes {
    let mut buf = AlignedBuf::zeroed(units * UNIT as usize, UNIT as usize).unwrap();
    buf.fill(byte);
    buf.into()
}

fn append(log: &mut Batches, head: &[u8], payloads: &[bytes::Bytes]) -> base::Result<u64> {
    let frame = |_, out: &mut AlignedBuf| out.extend_from_slice(head);
    Ok(log.append(frame, payloads.iter().cloned())?.0)
}

fn start(log: &mut Batches, head: &[u8], payloads: &[bytes::Bytes]) -> Flight {
    append(log, head, payloads).unwrap();
    log.begin(true).unwrap().unwrap()
}

/// A head as it lies in the file.
fn filled_up(head: &[u8]) -> Vec<u8> {
    let mut all = head.to_vec();
    all.resize(head.len().next_multiple_of(UNIT as usize), 0);
    all
}

#[test]
fn a_batch_is_its_head_in_whole_units_and_its_payloads() {
    let files = Files::new();
    let file = files.create("log");
    let mut log = Batches::at(Arc::clone(&file), 0, UNIT, 1).unwrap();
    let mut expected = Vec::new();
    for i in 0..50_usize {
        let head = vec![i as u8 + 1; 1 + i * 37];
        let payloads: Vec<_> = (0..i % 4)
            .map(|n| payload(1 + n * 3, 0x80 + i as u8))
            .collect();
        assert_eq!(
            append(&mut log, &head, &payloads).unwrap(),
            expected.len() as u64
        );
        expected.extend(filled_up(&head));
        expected.extend(payloads.concat());
        assert_eq!(log.pending() as u64, log.size() - log.durable().0);
        assert_eq!(log.sync().unwrap().0, expected.len() as u64);
        if i == 30 {
            log = Batches::at(Arc::clone(&file), log.size(), UNIT, 1).unwrap();
        }
    }
    assert!(content(&file) == expected);
}

/// The system took a part of each write, sometimes not a whole slice.
#[test]
fn short_writes_are_gone_on_with() {
    let files = Files::new();
    let file = files.create("log");
    let mut log = Batches::at(short(&file, 700), 0, UNIT, 1).unwrap();
    let payloads = [payload(3, 7), payload(1, 8), payload(2, 9)];
    append(&mut log, b"head", &payloads).unwrap();
    log.sync().unwrap();
    let expected = [&filled_up(b"head")[..], &payloads.concat()].concat();
    assert!(content(&file) == expected);
}

#[test]
fn batches_that_overtake_each_other_count_in_order() {
    let files = Files::new();
    let file = files.create("log");
    let mut log = Batches::at(file, 0, UNIT, 2).unwrap();
    let a = start(&mut log, b"a", &[payload(2, 1)]);
    let b = start(&mut log, b"b", &[]);
    assert!(!log.has_slot(true), "two are out");
    let end = b.end();
    b.run().unwrap();
    log.landed(b, Ok(())).unwrap();
    assert_eq!(log.durable().0, 0);
    a.run().unwrap();
    log.landed(a, Ok(())).unwrap();
    assert_eq!(log.durable(), end);
}

/// All batches that are not known to be durable are returned, with their original payloads.
#[test]
fn what_a_failed_log_gives_back_can_go_to_another() {
    let files = Files::new();
    let mut log = Batches::at(files.create("log"), 0, UNIT, 3).unwrap();
    let payloads = [payload(1, 1), payload(2, 2)];
    append(&mut log, b"durable", &payloads).unwrap();
    log.sync().unwrap();
    let from = log.size();
    let fails = start(&mut log, b"fails", &payloads);
    let lands = start(&mut log, b"lands behind it", &[]);
    append(&mut log, b"waits", &payloads[..1]).unwrap();
    lands.run().unwrap();
    log.landed(lands, Ok(())).unwrap();
    let e = base::Error::aborted("planted");
    log.landed(fails, Err(e)).unwrap_err();
    append(&mut log, b"later", &[]).unwrap_err();

    let back = log.unacknowledged().unwrap();
    let heads: Vec<_> = back.iter().map(|b| b.head.clone()).collect();
    let given: [&[u8]; 3] = [b"fails", b"lands behind it", b"waits"];
    assert_eq!(heads, given.map(filled_up));
    assert_eq!(back[0].offset, from);
    assert_eq!(
        back[0].payloads[1].as_ptr(),
        payloads[1].as_ptr(),
        "not copied"
    );
    assert_eq!(back[2].payloads, payloads[..1]);
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_nothing() {
    let files = Files::new();
    let file = files.create("log");
    for (offset, unit) in [(0, 513), (100, 512), (0, 0)] {
        let e = Batches::at(Arc::clone(&file), offset, unit, 1).unwrap_err();
        assert!(e.to_string().contains("in units of"), "{e}");
    }
    let mut log = Batches::at(file, 0, UNIT, 1).unwrap();
    let e = append(
        &mut log,
        b"head",
        &[payload(1, 1), payload(1, 1).slice(..100)],
    )
    .unwrap_err();
    assert!(e.to_string().contains("no whole units"), "{e}");
    let no = |_, out: &mut AlignedBuf| {
        out.extend_from_slice(b"half")?;
        Err(base::Error::aborted("planted"))
    };
    log.append(no, []).unwrap_err();
    assert_eq!((log.size(), log.pending()), (0, 0));
    append(&mut log, b"one", &[]).unwrap();
    let e = append(&mut log, b"two", &[]).unwrap_err();
    assert!(
        e.to_string().contains("before the last one was begun"),
        "{e}"
    );
    assert_eq!(log.sync().unwrap().0, u64::from(UNIT));
}

/// A queue does the writes; the buffers are returned to the log nevertheless.
#[test]
fn a_queue_writes_what_a_flight_would() {
    let files = Files::new();
    let file = files.create("log");
    let mut log = Batches::at(Arc::clone(&file), 0, UNIT, 2).unwrap();
    let mut queue = io::Queue::new(io::QueueKind::Auto, 4, &base::threads::SystemThreads).unwrap();
    let mut expected = Vec::new();
    for i in 1..40_u8 {
        let head = vec![i; usize::from(i) * 20];
        let mut flight = start(&mut log, &head, &[payload(2, i)]);
        let request = flight.request(u64::from(i)).unwrap();
        assert_eq!(
            (request.token, request.offset),
            (u64::from(i), expected.len() as u64)
        );
        queue.push(request).unwrap();
        let mut done = Vec::new();
        queue.wait(1, &mut done).unwrap();
        let done = done.pop().unwrap();
        log.landed(flight, done.result.map(drop)).unwrap();
        expected.extend(filled_up(&head));
        expected.extend(payload(2, i));
        assert_eq!(log.durable().0, expected.len() as u64);
    }
    assert!(content(&file) == expected);
}

/// A queue's write failed: its data is returned.
#[test]
fn what_a_queue_could_not_write_is_given_back() {
    let files = Files::new();
    let mut log = Batches::at(files.create("log"), 0, UNIT, 2).unwrap();
    let mut flight = start(&mut log, b"one", &[payload(1, 3)]);
    let lent = flight.request(1).unwrap();
    let failed = Err(base::Error::aborted("planted"));
    log.landed(flight, failed).unwrap_err();
    let back = log.unacknowledged().unwrap();
    assert_eq!((back.len(), &back[0].head[..3]), (1, &b"one"[..]));
    assert_eq!(back[0].payloads, [payload(1, 3)]);
    drop(lent);
}

/// Payloads without a head were taken and never written.
#[test]
fn a_batch_without_a_head_is_refused() {
    let files = Files::new();
    let file = files.create("log");
    let mut log = Batches::at(Arc::clone(&file), 0, UNIT, 1).unwrap();
    let e = append(&mut log, b"", &[payload(1, 1)]).unwrap_err();
    assert!(e.to_string().contains("no head"), "{e}");
    assert_eq!((log.size(), log.pending()), (0, 0));
    append(&mut log, b"head", &[payload(1, 2)]).unwrap();
    log.sync().unwrap();
    assert!(content(&file) == [&filled_up(b"head")[..], &payload(1, 2)].concat());
}
