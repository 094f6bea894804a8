//! Tests of blocks that are damaged on a disk, or change while they are read.

use super::limits::{attached, request, settle, span, write};
use super::*;
use crate::store::data::SLOT_BYTES;
use crate::store::page::{self, Page};
use base::checksum::crc32c;

/// Runs until a store has applied all committed entries and written them back.
fn written_back(c: &mut Cluster, n: usize) {
    let leader = c.leader().unwrap();
    for _ in 0..20_000 {
        let [here, there] =
            [n, leader].map(|n| c.core(n).member(GROUP).unwrap().replica().applied());
        if here == there && c.core(n).dirty_bytes() == 0 {
            return;
        }
        c.turn();
    }
    panic!("never written back");
}

/// Bytes that are damaged on disk are reported as such, and no request waits for them for ever.
#[test]
fn damage_is_answered_as_damage() {
    let (mut c, mut client) = attached(6);
    let what = write(span(0, 0, 4096), 1);
    assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
    for n in 0..3 {
        written_back(&mut c, n);
        let data = c.dirs[n].path().join("s").join("data");
        let bytes = std::fs::read(&data).unwrap();
        let at = bytes
            .windows(4096)
            .position(|w| w.iter().all(|&b| b == 1))
            .unwrap();
        let file = Posix.open(&data, io::OpenHow::UPDATE).unwrap();
        io::write_all_at(&*file, &[9; 16], at as u64 + 50, io::WriteSync::None).unwrap();
    }
    for what in [What::Read(span(0, 0, 4096)), write(span(0, 9, 9), 1)] {
        let outcome = client.ask(&mut c, &what, false);
        assert_eq!(outcome, Outcome::Refused(Reason::Corrupt), "{what:?}");
        client.next -= u64::from(what.is_change());
    }
    let what = write(span(0, 0, 4096), 3);
    assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
}

/// A block that was damaged on one disk was reported as damaged, although two other stores had it.
#[test]
fn a_damaged_block_is_repaired_from_another_replica() {
    for unreadable in [false, true] {
        let (mut c, mut client) = attached(6);
        let what = write(span(0, 0, 12 << 10), 1);
        assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
        let leader = c.leader().unwrap();
        settle(&mut c, leader);
        let asked = request(&mut client, What::Read(span(0, 0, 12 << 10)));
        let (id, now) = (asked.id, c.now);
        c.core(leader).step(
            now,
            Event::Request {
                client: 1,
                request: asked,
            },
        );
        while let Some(command) = c.core(leader).next_command() {
            let Command::Read { token, len, .. } = command else {
                c.todo.push((leader, command));
                continue;
            };
            let mut buf = AlignedBuf::zeroed(len, 4096).unwrap();
            buf.fill(1);
            buf[5000] = 7;
            let result = if unreadable {
                Err(Error::aborted("planted"))
            } else {
                Ok(buf)
            };
            let now = c.now;
            c.core(leader).step(now, Event::Read(token, result));
        }
        let pieces = pieces_of(&mut c, id);
        let is_right = |p: &Piece| matches!(p, Piece::Data(b) if b.iter().all(|&b| b == 1));
        assert!(pieces.iter().all(is_right));
        let repaired = c.core(leader).member(GROUP).unwrap().repaired();
        assert_eq!(repaired, if unreadable { 3 } else { 1 });
        // It is written back again.
        settle(&mut c, leader);
    }
}

/// Writes a block of 4 KiB, writes it back and reads it, but the disk fails; questions to other stores are lost
/// then.
fn read_of_a_damaged_block(block: &[u8; 4096]) -> (Cluster, Client, u64) {
    let (mut c, mut client) = attached(6);
    let mut payload = AlignedBuf::zeroed(4096, 4096).unwrap();
    payload.copy_from_slice(block);
    let what = What::Write {
        span: span(0, 0, 4096),
        crcs: vec![crc32c(block)].into(),
        payload: payload.into(),
    };
    assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
    let leader = c.leader().unwrap();
    settle(&mut c, leader);
    c.asks_are_lost = true;
    let asked = request(&mut client, What::Read(span(0, 0, 4096)));
    let (id, now) = (asked.id, c.now);
    let event = Event::Request {
        client: 1,
        request: asked,
    };
    c.core(leader).step(now, event);
    while let Some(command) = c.core(leader).next_command() {
        if let Command::Read { token, .. } = command {
            let failed = Event::Read(token, Err(Error::aborted("planted")));
            c.core(leader).step(now, failed);
        } else {
            c.todo.push((leader, command));
        }
    }
    (c, client, id)
}

/// The data of a read, once it is answered.
fn pieces_of(c: &mut Cluster, id: u64) -> Vec<Piece> {
    match c.answer(id) {
        Outcome::Data { pieces, .. } => pieces,
        other => panic!("{other:?}"),
    }
}

/// A damaged block was overwritten while other stores were asked for its old content: the read was answered
/// with an error, although the newer bytes were here.
#[test]
fn a_read_that_waits_for_a_repair_finds_what_was_written_meanwhile() {
    let (mut c, mut client, id) = read_of_a_damaged_block(&[1; 4096]);
    let what = write(span(0, 0, 4096), 2);
    assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
    let pieces = pieces_of(&mut c, id);
    assert!(matches!(&pieces[..], [Piece::Data(b)] if b.iter().all(|&b| b == 2)));
}

/// A question was lost, or reached a replica that had not applied the content yet: the client was told of
/// damage, although other stores had the block.
#[test]
fn others_are_asked_again_for_a_damaged_block() {
    let (mut c, _client, id) = read_of_a_damaged_block(&[1; 4096]);
    let begun = c.now;
    while c.now < begun + 3 * TICK {
        c.turn();
    }
    c.asks_are_lost = false;
    let pieces = pieces_of(&mut c, id);
    assert!(matches!(&pieces[..], [Piece::Data(b)] if b.iter().all(|&b| b == 1)));
}

/// The checksum of no bytes at all is 0. If the disk failed, a block that has this checksum too was answered
/// with no bytes.
#[test]
fn no_bytes_are_no_block() {
    let mut block = [1; 4096];
    block[4092..].copy_from_slice(&[0x6e, 0x59, 0xca, 0xf1]);
    assert_eq!(crc32c(&block), 0);
    let (mut c, _client, id) = read_of_a_damaged_block(&block);
    c.asks_are_lost = false;
    let pieces = pieces_of(&mut c, id);
    assert!(matches!(&pieces[..], [Piece::Data(b)] if b[..] == block));
}

/// A read of a block that was written back meanwhile found other bytes than expected, and reported damage.
#[test]
fn a_read_beside_a_write_back_finds_the_newer_bytes() {
    for settled in [false, true] {
        let (mut c, mut client) = attached(6);
        let what = write(span(0, 0, 8192), 1);
        assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
        let leader = c.leader().unwrap();
        settle(&mut c, leader);
        let asked = request(&mut client, What::Read(span(0, 0, 8192)));
        let id = asked.id;
        let (now, client_id) = (c.now, 1);
        c.core(leader).step(
            now,
            Event::Request {
                client: client_id,
                request: asked,
            },
        );
        let mut read = None;
        while let Some(command) = c.core(leader).next_command() {
            match command {
                Command::Read { .. } => {
                    assert!(read.replace(command).is_none(), "one for both blocks");
                }
                other => c.todo.push((leader, other)),
            }
        }
        let Some(Command::Read { token, offset, len }) = read else {
            panic!("it is in the data file");
        };
        assert_eq!(len, 8192);
        // The first block is written again, and written back.
        let what = write(span(0, 0, 4096), 2);
        assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
        if settled {
            settle(&mut c, leader);
        }
        let mut buf = AlignedBuf::zeroed(len, 4096).unwrap();
        let reader = c.up[leader].as_ref().unwrap().data.reader();
        io::read_exact_at(&**reader.file(), &mut buf, offset).unwrap();
        // As a read may find it during the write.
        buf[..512].fill(2);
        buf[512..4096].fill(1);
        c.event(leader, Event::Read(token, Ok(buf)));
        let pieces = pieces_of(&mut c, id);
        let mut all = Vec::new();
        for piece in pieces {
            if let Piece::Data(bytes) = piece {
                all.extend_from_slice(&bytes);
            }
        }
        assert_eq!(all, [vec![2; 4096], vec![1; 4096]].concat());
    }
}

/// The offsets of the two pages of an extent that was written at least twice, the newer first.
fn pages_of(data: &dyn io::File) -> [u64; 2] {
    let page = |at| {
        let mut bytes = [0; page::LEN];
        io::read_exact_at(data, &mut bytes, at).unwrap();
        Page::decode(&bytes).ok()
    };
    let heads = (0..u64::from(CHUNKS)).map(|slot| slot * SLOT_BYTES);
    let generation = |at| page(at).map(|p: Page| p.generation);
    let at = heads.clone().find(|&at| generation(at).is_some()).unwrap();
    let other = at + page::LEN as u64;
    let [here, there] = [at, other].map(|at| generation(at).unwrap());
    assert_eq!(here.abs_diff(there), 1);
    if here > there {
        [at, other]
    } else {
        [other, at]
    }
}

/// A cluster whose first extent was written back twice by store `n`, which was killed then; and that
/// store's data file.
fn written_twice(n: usize) -> (Cluster, Client, std::sync::Arc<dyn io::File>) {
    let (mut c, mut client) = attached(6);
    for block in [0, 2] {
        let what = write(span(0, block << 12, 4096), block as u8 + 1);
        assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
        written_back(&mut c, n);
    }
    // Until the checkpoint is in the log.
    for _ in 0..500 {
        c.turn();
    }
    c.kill(n);
    let path = c.dirs[n].path().join("s").join("data");
    let file = Posix.open(&path, io::OpenHow::UPDATE).unwrap();
    (c, client, file)
}

fn flip(file: &dyn io::File, at: u64) {
    let mut byte = [0];
    io::read_exact_at(file, &mut byte, at).unwrap();
    io::write_all_at(file, &[byte[0] ^ 1], at, io::WriteSync::None).unwrap();
}

/// The newer page of an extent was damaged, and the older one believed: blocks written in between were read as
/// zeros.
#[test]
fn a_store_that_has_lost_a_page_does_not_open() {
    let (mut c, mut client, file) = written_twice(1);
    let [newer, older] = pages_of(&*file);
    let dir = c.dirs[1].path().join("s");
    let open = || Store::open(&Posix::shared(), &dir, CLUSTER, 2, 9);
    for lost in [[newer].as_slice(), &[newer, older]] {
        for at in lost {
            flip(&*file, at + 1000);
        }
        let e = open().unwrap_err().to_string();
        let which = ["a page", "both pages"][lost.len() - 1];
        for word in [which, "extent 0", "data", "has lost blocks", "leave it out"] {
            assert!(e.contains(word), "{word}: {e}");
        }
        for at in lost {
            flip(&*file, at + 1000);
        }
    }
    // The damage of the older page loses nothing.
    flip(&*file, older + 1000);
    c.start(1);
    written_back(&mut c, 1);
    let read = What::Read(span(0, 0, 12 << 10));
    assert!(matches!(
        client.ask(&mut c, &read, false),
        Outcome::Data { .. }
    ));
}

/// A power cut damages a page, and the log has the entries that belong to it.
#[test]
fn a_page_that_was_being_written_is_written_again() {
    let (mut c, mut client, file) = written_twice(1);
    let [newer, older] = pages_of(&*file);
    let often = c.policy.checkpoint_interval;
    c.policy.checkpoint_interval = Duration::from_secs(3600);
    c.start(1);
    let what = write(span(0, 1 << 12, 4096), 7);
    assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
    let applied = |c: &mut Cluster, n: usize| c.core(n).member(GROUP).unwrap().replica().applied();
    let leader = c.leader().unwrap();
    while applied(&mut c, 1) < applied(&mut c, leader) {
        c.turn();
    }
    assert!(c.core(1).dirty_bytes() > 0);
    c.kill(1);
    let mut bytes = [0; page::LEN];
    io::read_exact_at(&*file, &mut bytes, newer).unwrap();
    let mut page = Page::decode(&bytes).unwrap();
    (page.generation, page.last_index.0) = (page.generation + 1, page.last_index.0 + 1);
    let mut torn = page.encode();
    torn[2048..].fill(0);
    io::write_all_at(&*file, &torn, older, io::WriteSync::None).unwrap();
    c.policy.checkpoint_interval = often;
    c.start(1);
    written_back(&mut c, 1);
    let [newest, _] = pages_of(&*file);
    io::read_exact_at(&*file, &mut bytes, newest).unwrap();
    let page = Page::decode(&bytes).unwrap();
    let has = [0, 1, 2, 3].map(|nth| page.crc(nth).is_some());
    assert_eq!(has, [true, true, true, false]);
}

/// Torn first pages were excused because of the log, and stayed in a slot that the chunk did not get again:
/// later openings had no excuse for them.
#[test]
fn what_the_log_excuses_is_mended_at_once() {
    let (mut c, mut client, file) = written_twice(1);
    c.policy.checkpoint_interval = Duration::from_secs(3600);
    c.start(1);
    let extent = 3;
    let what = write(span(2, extent << 21, 4096), 7);
    assert_eq!(client.ask(&mut c, &what, false), Outcome::Done);
    for _ in 0..500 {
        c.turn();
    }
    assert!(c.core(1).dirty_bytes() > 0);
    c.kill(1);
    let slots: Vec<u64> = (0..u64::from(CHUNKS)).map(|n| n * SLOT_BYTES).collect();
    let mut head = [0; page::LEN];
    let mut is_free = |at: &&u64| {
        io::read_exact_at(&*file, &mut head, **at).unwrap();
        head.iter().all(|b| *b == 0)
    };
    let at =
        slots.iter().rev().find(&mut is_free).unwrap() + u64::from(extent) * 2 * page::LEN as u64;
    io::write_all_at(&*file, &[0xee; 2048], at + 2048, io::WriteSync::None).unwrap();
    c.start(1);
    io::read_exact_at(&*file, &mut head, at).unwrap();
    assert!(head.iter().all(|b| *b == 0));
    c.kill(1);
    c.policy.checkpoint_interval = Duration::from_secs(2);
    for _ in 0..2 {
        c.start(1);
        written_back(&mut c, 1);
        for _ in 0..500 {
            c.turn();
        }
        c.kill(1);
    }
    // Without an entry behind the checkpoint, a crash cannot explain the damage.
    let next = at + 2 * page::LEN as u64;
    io::write_all_at(&*file, &[0xee; 2048], next + 2048, io::WriteSync::None).unwrap();
    let dir = c.dirs[1].path().join("s");
    let opened = Store::open(&Posix::shared(), &dir, CLUSTER, 2, 9);
    let e = opened.map(|_| ()).unwrap_err().to_string();
    assert!(e.contains("both pages of extent 4"), "{e}");
}
