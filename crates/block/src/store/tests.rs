//! Tests from applying to the ticket, on a real file. The states after crashes are tested in the simulator.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use base::Result;
use base::checksum::crc32c;
use base::rng::Rng;
use bytes::Bytes;
use io::posix::Posix;
use io::testing::{ALL, Faulty, What};
use io::{AlignedBuf, File, FileSystem, OpenHow, WriteSync, buffer::PAGE};

use super::data::{ChunkKey, Data, Held, SLOT_BYTES};
use super::dirty::{Content, Dirty, Key};
use super::page::{Doubt, Page};
use crate::ids::{BLOCK, Block, Chunk, Group, Index, Layer, Term, Tree};

const GROUP: Group = Group(5);
const TERM: Term = Term(2);

fn key(chunk: u32, block: u32) -> Key {
    Key {
        tree: Tree(1),
        layer: Layer(1),
        chunk: Chunk(chunk),
        block: Block(block),
    }
}

fn content(byte: u8) -> Content {
    let mut bytes = AlignedBuf::zeroed(BLOCK, PAGE).unwrap();
    bytes.fill(byte);
    Content::Data {
        crc: crc32c(&bytes),
        bytes: bytes.into(),
    }
}

/// The same blocks with their bytes in one buffer, and a weak reference to the buffer.
fn in_one_buffer(blocks: &[(Key, Content)]) -> (Vec<(Key, Content)>, Weak<AlignedBuf>) {
    struct Owner(Arc<AlignedBuf>);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    let mut all = AlignedBuf::new(PAGE);
    for (_, content) in blocks {
        if let Content::Data { bytes, .. } = content {
            all.extend_from_slice(bytes).unwrap();
        }
    }
    let all = Arc::new(all);
    let is_there = Arc::downgrade(&all);
    let mut left = Bytes::from_owner(Owner(all));
    let blocks = blocks.iter().map(|(key, content)| match content {
        &Content::Data { crc, .. } => {
            let bytes = left.split_to(BLOCK);
            (*key, Content::Data { bytes, crc })
        }
        Content::Zero => (*key, Content::Zero),
    });
    (blocks.collect(), is_there)
}

/// A data file whose writes or syncs fail while the test says so.
struct Disk {
    file: Arc<dyn File>,
    faulty: Arc<Faulty>,
    fails: Arc<Fails>,
    _dir: tempfile::TempDir,
}

#[derive(Default)]
struct Fails {
    writes: AtomicBool,
    syncs: AtomicBool,
}

impl Disk {
    fn new(slots: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let file = Posix.open(&path, OpenHow::CREATE_NEW).unwrap();
        file.truncate(u64::from(slots) * SLOT_BYTES).unwrap();
        let fails = Arc::new(Fails::default());
        let (inner, when) = (Arc::clone(&file), Arc::clone(&fails));
        let faulty = Faulty::new(Arc::clone(&file), move |call| match call.what {
            // Pages fail, after their blocks were written.
            What::Write
                if when.writes.load(Ordering::Relaxed) && Page::decode(call.data).is_ok() =>
            {
                inner.write_at(&call.data[..100], call.offset, WriteSync::None)?;
                Err(call.error())
            }
            What::Sync if when.syncs.load(Ordering::Relaxed) => Err(call.error()),
            _ => Ok(ALL),
        });
        Self {
            file,
            faulty,
            fails,
            _dir: dir,
        }
    }

    fn try_open(&self, slots: u32) -> Result<Data> {
        Data::open(Arc::clone(&self.faulty) as _, slots)
    }

    fn open(&self, slots: u32) -> Data {
        self.try_open(slots).unwrap()
    }

    fn block(&self, offset: u64) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        io::read_exact_at(&*self.file, &mut block, offset).unwrap();
        block
    }
}

/// Writes back everything dirty, and settles it.
fn write_back(data: &mut Data, dirty: &mut Dirty) -> Index {
    let marked = dirty.mark(u64::MAX).unwrap();
    let tickets = data
        .write_back(vec![marked], &mut |_| ())
        .unwrap()
        .sync()
        .unwrap();
    let mut through = Index(0);
    for (ticket, slot) in tickets {
        through = ticket.through();
        dirty.settle(&ticket, slot);
    }
    through
}

/// What a reader gets.
fn found(disk: &Disk, dirty: &Dirty, data: &Data, key: &Key) -> Vec<u8> {
    match dirty.get(key) {
        Some(Content::Zero) => return vec![0; BLOCK],
        Some(Content::Data { bytes, .. }) => return bytes.to_vec(),
        None => {}
    }
    match data.reader().held(GROUP, key) {
        // Zeros in a chunk that was never written are stored nowhere.
        Held::Absent | Held::Zero => vec![0; BLOCK],
        Held::There { offset, crc } => {
            let block = disk.block(offset);
            assert_eq!(crc32c(&block), crc);
            block
        }
    }
}

/// A round of write-back in parts, with other entries applied meanwhile; returns the number of parts.
fn round(
    data: &mut Data,
    dirty: &mut Dirty,
    part: u64,
    apply: &mut dyn FnMut(&mut Dirty) -> u64,
) -> u64 {
    let (before, mut during) = (dirty.applied(), 0);
    loop {
        let marked = dirty.mark(part).unwrap();
        assert!(dirty.mark(part).is_none(), "one is out");
        assert!(part == u64::MAX || marked.writes().len() <= 15);
        during += apply(dirty);
        let synced = dirty.synced();
        assert!(synced <= before);
        let written = data.write_back(vec![marked], &mut |_| ()).unwrap();
        for (ticket, slot) in written.sync().unwrap() {
            // Only the ticket at the end of a round covers everything in it.
            let through = ticket.through();
            assert!(ticket.group() == GROUP && (through == before || through <= synced));
            dirty.settle(&ticket, slot);
        }
        if !dirty.is_in_round() {
            return during;
        }
        assert!(dirty.synced() < before);
    }
}

/// Random writes and checkpoints, some with writes between mark and ticket: S, the map and the file are as they
/// should be, also after the file is opened again.
#[test]
fn what_is_settled_is_in_the_file_and_the_rest_in_the_map() {
    const SLOTS: u32 = 4;
    let disk = Disk::new(SLOTS);
    let mut data = disk.open(SLOTS);
    let mut dirty = Dirty::after(GROUP, Index(0));
    let mut rng = Rng::new(7);
    // For each block its content, and the first entry of it that is not durable.
    let mut model = std::collections::BTreeMap::new();
    let mut index = 0;
    let mut apply =
        |rng: &mut Rng, dirty: &mut Dirty, model: &mut std::collections::BTreeMap<_, _>| {
            index += 1;
            let at = key(rng.below(3) as u32, rng.below(1200) as u32);
            let blocks: Vec<_> = (0..rng.below(5) as u32)
                .map(|i| {
                    let mut key = at;
                    key.block.0 += i;
                    let byte = rng.below(5) as u8;
                    let content = if byte == 0 {
                        Content::Zero
                    } else {
                        content(byte)
                    };
                    model.insert(key, byte);
                    (key, content)
                })
                .collect();
            if rng.one_in(2) {
                dirty.apply_buffer(Index(index), TERM, in_one_buffer(&blocks).0);
            } else {
                dirty.apply(Index(index), TERM, blocks);
            }
            index
        };
    for _ in 0..60 {
        for _ in 0..rng.below(30) {
            apply(&mut rng, &mut dirty, &mut model);
        }
        let before = dirty.applied();
        let part = if rng.one_in(2) {
            u64::MAX
        } else {
            1 + rng.below(60 << 10)
        };
        let during = round(&mut data, &mut dirty, part, &mut |dirty| {
            let more = rng.below(10);
            for _ in 0..more {
                apply(&mut rng, dirty, &mut model);
            }
            more
        });
        assert!(dirty.synced() >= before);
        if during == 0 {
            assert!(dirty.is_empty() && dirty.bytes() == 0 && dirty.synced() == before);
            data = disk.open(SLOTS);
        }
        for (key, byte) in &model {
            assert!(
                found(&disk, &dirty, &data, key) == vec![*byte; BLOCK],
                "{key:?}"
            );
        }
    }
    assert_eq!(data.reader().free_slots(), 1);
    let last = write_back(&mut data, &mut dirty);
    assert_eq!(dirty.synced(), last);
}

/// Weak references to buffers, and the blocks that were in them.
type Buffers = Vec<(Vec<Key>, Weak<AlignedBuf>)>;

/// Number of buffers that have lost some of their blocks, but not all.
fn cut(dirty: &Dirty, buffers: &mut Buffers) -> usize {
    buffers.retain(|(_, buffer)| buffer.strong_count() > 0);
    let is_whole = |(keys, buffer): &&(Vec<Key>, Weak<AlignedBuf>)| {
        let range = buffer.upgrade().unwrap().as_ptr_range();
        keys.iter().all(|key| match dirty.get(key) {
            Some(Content::Data { bytes, .. }) => range.contains(&bytes.as_ptr()),
            _ => false,
        })
    };
    buffers.len() - buffers.iter().filter(is_whole).count()
}

/// Blocks of a large write stay in its buffer, and no buffer stays for only some of its blocks.
#[test]
fn a_buffer_stays_as_long_as_all_of_its_blocks() {
    let disk = Disk::new(1);
    let mut data = disk.open(1);
    let mut dirty = Dirty::after(GROUP, Index(0));
    let mut rng = Rng::new(7);
    let (mut buffers, mut whole, mut index) = (Buffers::new(), 0, 0);
    let mut out = None;
    for _ in 0..3000 {
        if rng.one_in(4) {
            let part = 1 + rng.below(400 << 10);
            match out.take() {
                None => out = dirty.mark(part),
                Some(marked) if rng.one_in(4) => dirty.give_back(marked),
                Some(marked) => {
                    let written = data.write_back(vec![marked], &mut |_| ()).unwrap();
                    for (ticket, slot) in written.sync().unwrap() {
                        dirty.settle(&ticket, slot);
                    }
                }
            }
        } else {
            index += 1;
            let first = rng.below(200) as u32;
            let byte = 1 + rng.below(250) as u8;
            let blocks = first..first + 1 + rng.below(40) as u32;
            let blocks: Vec<_> = blocks.map(|b| (key(0, b), content(byte))).collect();
            if rng.one_in(4) {
                dirty.apply(Index(index), TERM, blocks);
            } else {
                let (blocks, buffer) = in_one_buffer(&blocks);
                buffers.push((blocks.iter().map(|(key, _)| *key).collect(), buffer));
                dirty.apply_buffer(Index(index), TERM, blocks);
            }
        }
        // Blocks on their way hold the buffer too.
        if out.is_none() {
            let cut = cut(&dirty, &mut buffers);
            assert!(cut <= usize::from(dirty.is_in_round()), "{cut}");
            whole += buffers.len() - cut;
        }
    }
    assert!(whole > 1000, "{whole}");
    if let Some(marked) = out {
        dirty.give_back(marked);
    }
    while !dirty.is_empty() {
        write_back(&mut data, &mut dirty);
    }
    assert_eq!((cut(&dirty, &mut buffers), buffers.len()), (0, 0));
}

/// A block that is written again while it is on its way stays dirty after the ticket, and S stays before
/// it.
#[test]
fn a_block_written_on_its_way_stays_dirty() {
    let disk = Disk::new(1);
    let mut data = disk.open(1);
    let mut dirty = Dirty::after(GROUP, Index(10));
    assert_eq!(dirty.synced(), Index(10));
    dirty.apply(
        Index(11),
        TERM,
        [(key(0, 1), content(1)), (key(0, 2), content(1))],
    );
    dirty.apply(Index(12), TERM, []);
    assert_eq!(dirty.synced(), Index(10));
    let marked = dirty.mark(u64::MAX).unwrap();
    dirty.apply(Index(13), TERM, [(key(0, 1), content(2))]);
    assert_eq!(dirty.synced(), Index(10), "the ticket is not there");
    let tickets = data
        .write_back(vec![marked], &mut |_| ())
        .unwrap()
        .sync()
        .unwrap();
    for (ticket, slot) in tickets {
        dirty.settle(&ticket, slot);
    }
    assert_eq!((dirty.synced(), dirty.len()), (Index(12), 1));
    assert_eq!(dirty.get(&key(0, 1)), Some(&content(2)));
    assert_eq!(dirty.get(&key(0, 2)), None);
    assert_eq!(write_back(&mut data, &mut dirty), Index(13));
}

/// Blocks that could not be written are dirty again, S has not moved, and the durable page was not
/// overwritten: after a crash there is an intact one.
#[test]
fn what_could_not_be_written_is_tried_again() {
    let disk = Disk::new(1);
    let mut data = disk.open(1);
    let mut dirty = Dirty::after(GROUP, Index(0));
    dirty.apply(Index(1), TERM, [(key(0, 1), content(1))]);
    write_back(&mut data, &mut dirty);
    dirty.apply(
        Index(2),
        TERM,
        [(key(0, 1), content(2)), (key(0, 5), Content::Zero)],
    );
    disk.fails.writes.store(true, Ordering::Relaxed);
    for later in [3, 4] {
        let marked = dirty.mark(u64::MAX).unwrap();
        dirty.apply(Index(later), TERM, [(key(0, 1), content(later as u8))]);
        let failed = data.write_back(vec![marked], &mut |_| ()).unwrap_err();
        assert!(
            failed.error.to_string().contains("write"),
            "{}",
            failed.error
        );
        for marked in failed.marked {
            dirty.give_back(marked);
        }
        assert_eq!(dirty.synced(), Index(1));
        assert_eq!(dirty.get(&key(0, 1)), Some(&content(later as u8)));
        let crashed = disk.open(1);
        assert!(
            matches!(crashed.reader().held(GROUP, &key(0, 1)), Held::There { crc, .. } if content(1) == Content::Data { bytes: vec![1; BLOCK].into(), crc })
        );
        assert_eq!(crashed.reader().last_indices().get(&GROUP), Some(&Index(1)));
    }
    disk.fails.writes.store(false, Ordering::Relaxed);
    assert_eq!(write_back(&mut data, &mut dirty), Index(4));
    assert!(dirty.is_empty());
    let again = disk.open(1);
    assert_eq!(again.reader().last_indices().get(&GROUP), Some(&Index(4)));
    assert_eq!(again.reader().held(GROUP, &key(0, 5)), Held::Zero);
    assert_eq!(again.reader().held(GROUP, &key(0, 6)), Held::Absent);
}

/// A failed fdatasync is never tried again: a second one would succeed although data was lost.
#[test]
fn a_failed_sync_spoils_the_file() {
    let disk = Disk::new(1);
    let mut data = disk.open(1);
    let mut dirty = Dirty::after(GROUP, Index(0));
    dirty.apply(Index(1), TERM, [(key(0, 1), content(1))]);
    disk.fails.syncs.store(true, Ordering::Relaxed);
    let marked = dirty.mark(u64::MAX).unwrap();
    data.write_back(vec![marked], &mut |_| ())
        .unwrap()
        .sync()
        .unwrap_err();
    disk.fails.syncs.store(false, Ordering::Relaxed);
    assert!(dirty.mark(u64::MAX).is_none(), "the slot went with it");
    assert_eq!(dirty.synced(), Index(0));
    assert!(dirty.get(&key(0, 1)).is_some(), "it is readable still");
    let mut other = Dirty::after(Group(6), Index(0));
    other.apply(Index(1), TERM, [(key(0, 2), content(1))]);
    let failed = data
        .write_back(vec![other.mark(u64::MAX).unwrap()], &mut |_| ())
        .unwrap_err();
    assert!(
        failed.error.to_string().contains("sync"),
        "{}",
        failed.error
    );
}

#[test]
fn a_full_or_wrong_file_is_named() {
    let disk = Disk::new(1);
    let mut data = disk.open(1);
    let mut dirty = Dirty::after(GROUP, Index(0));
    dirty.apply(
        Index(1),
        TERM,
        [(key(0, 1), content(1)), (key(1, 1), content(1))],
    );
    let failed = data
        .write_back(vec![dirty.mark(u64::MAX).unwrap()], &mut |_| ())
        .unwrap_err();
    assert_eq!(failed.error.kind(), base::ErrorKind::NoSpace);
    let e = disk.try_open(2).unwrap_err().to_string();
    assert!(
        e.contains("2 slots take") && e.contains("own data file"),
        "{e}"
    );

    // A page of another slot, which is intact.
    let disk = Disk::new(2);
    let mut data = disk.open(2);
    let mut dirty = Dirty::after(GROUP, Index(0));
    dirty.apply(Index(1), TERM, [(key(0, 1), content(1))]);
    write_back(&mut data, &mut dirty);
    let chunk = ChunkKey {
        group: GROUP,
        tree: Tree(1),
        layer: Layer(1),
        chunk: Chunk(1),
    };
    let first = ChunkKey {
        chunk: Chunk(0),
        ..chunk
    };
    assert_eq!(data.reader().chunks_of(GROUP), [first]);
    let mut pages = vec![0; 2 * BLOCK];
    io::read_exact_at(&*disk.file, &mut pages, 0).unwrap();
    io::write_all_at(&*disk.file, &pages, SLOT_BYTES, WriteSync::None).unwrap();
    let e = disk.try_open(2).unwrap_err().to_string();
    assert!(
        e.contains("extent 0 of slot 1 has the page of") && e.contains("own data file"),
        "{e}"
    );
}

/// Zeros in a chunk that was never written took a slot, and counted nothing in the map.
#[test]
fn zeros_of_nothing_take_no_slot() {
    let disk = Disk::new(1);
    let mut data = disk.open(1);
    let mut dirty = Dirty::after(GROUP, Index(0));
    let zeros = (0..100).map(|block| (key(1, block), Content::Zero));
    dirty.apply(Index(1), TERM, zeros);
    assert!(dirty.bytes() >= 100 * 64, "{}", dirty.bytes());
    assert_eq!(write_back(&mut data, &mut dirty), Index(1));
    assert_eq!((dirty.bytes(), data.reader().free_slots()), (0, 1));
    dirty.apply(Index(2), TERM, [(key(0, 7), content(1))]);
    write_back(&mut data, &mut dirty);
    dirty.apply(Index(3), TERM, [(key(0, 7), Content::Zero)]);
    write_back(&mut data, &mut dirty);
    let reader = disk.open(1).reader();
    assert_eq!(reader.held(GROUP, &key(0, 7)), Held::Zero);
    assert_eq!(reader.held(GROUP, &key(1, 7)), Held::Absent);
}

/// The only page of an extent was damaged, and its blocks were read as zeros.
#[test]
fn an_extent_with_one_damaged_page_is_no_extent_that_was_never_written() {
    for writes in 1..5 {
        for copy in 0..2 {
            let disk = Disk::new(1);
            let mut data = disk.open(1);
            let mut dirty = Dirty::after(GROUP, Index(0));
            for index in 1..=writes {
                dirty.apply(Index(index), TERM, [(key(0, 7), content(1))]);
                write_back(&mut data, &mut dirty);
            }
            let at = copy * BLOCK as u64 + 100;
            io::write_all_at(&*disk.file, &[0xee; 8], at, WriteSync::None).unwrap();
            let held = disk.open(1).reader().held(GROUP, &key(0, 7));
            assert!(matches!(held, Held::There { .. }), "{writes} {copy}");
        }
    }
}

/// Blocks that are dirty when a copy begins are dropped: the copy has all changes since the checkpoint, not
/// since the last applied entry.
#[test]
fn a_copy_begins_at_what_is_synced() {
    let disk = Disk::new(1);
    let mut data = disk.open(1);
    let mut dirty = Dirty::after(GROUP, Index(10));
    dirty.apply(Index(11), TERM, [(key(0, 1), content(1))]);
    assert!(dirty.begin_copy());
    assert_eq!((dirty.applied(), dirty.synced()), (Index(10), Index(10)));
    dirty.take_copied([(key(0, 2), content(2))], Index(20), TERM);
    assert_eq!(dirty.synced(), Index(10));
    assert!(dirty.end_copy(Index(20)));
    assert_eq!((dirty.applied(), dirty.synced()), (Index(20), Index(10)));
    assert_eq!(write_back(&mut data, &mut dirty), Index(20));
    assert_eq!(dirty.synced(), Index(20));
}

/// A page that was written and not synced is overwritten by the next; the durable one stays until a sync.
#[test]
fn the_durable_page_stays_until_the_next_is_durable() {
    let disk = Disk::new(1);
    let mut data = disk.open(1);
    let mut dirty = Dirty::after(GROUP, Index(0));
    for index in 1..4 {
        dirty.apply(Index(index), TERM, [(key(0, 1), content(1))]);
        write_back(&mut data, &mut dirty);
    }
    let pages = || [disk.block(0), disk.block(BLOCK as u64)];
    let before = pages();
    let generation = |page: &Vec<u8>| Page::decode(page).unwrap().generation;
    let durable = usize::from(generation(&before[0]) < generation(&before[1]));
    for index in 4..8 {
        // Each has a map of its own: the slot is lost with the blocks that are written and never synced.
        let mut dirty = Dirty::after(GROUP, Index(index - 1));
        dirty.apply(Index(index), TERM, [(key(0, 1), content(2))]);
        let marked = dirty.mark(u64::MAX).unwrap();
        drop(data.write_back(vec![marked], &mut |_| ()).unwrap());
        let after = pages();
        assert!(after[durable] == before[durable] && after[1 - durable] != before[1 - durable]);
    }
}

/// The writes of a killed process may not be durable. Its pages count from an opening on, and the next page of
/// an extent overwrites the one before.
#[test]
fn an_opening_makes_durable_what_it_believes() {
    let disk = Disk::new(1);
    disk.fails.syncs.store(true, Ordering::Relaxed);
    let e = disk.try_open(1).unwrap_err();
    assert!(e.to_string().contains("sync"), "{e}");
}

/// Blocks of a copy stayed in memory until its end. A follower takes no more than 32 MiB, so a larger copy
/// never ended.
#[test]
fn blocks_of_a_copy_are_written_back_before_it_ends() {
    let disk = Disk::new(1);
    let mut data = disk.open(1);
    let mut dirty = Dirty::after(GROUP, Index(10));
    assert!(dirty.begin_copy());
    for block in 0..4 {
        let blocks = (0..8).map(|n| (key(0, block * 8 + n), content(2)));
        dirty.take_copied(blocks, Index(20), TERM);
        assert_eq!(write_back(&mut data, &mut dirty), Index(10));
        assert_eq!((dirty.bytes(), dirty.synced()), (0, Index(10)));
    }
    assert_eq!(data.reader().last_indices().get(&GROUP), Some(&Index(20)));
    assert!(dirty.end_copy(Index(20)));
    assert_eq!(write_back(&mut data, &mut dirty), Index(20));
}

/// Only the ticket of a round's last part proves that everything in the round is durable.
#[test]
fn a_part_of_a_round_proves_nothing_of_the_rest() {
    let disk = Disk::new(1);
    let mut data = disk.open(1);
    let mut dirty = Dirty::after(GROUP, Index(10));
    let blocks = (0..3).map(|block| (key(0, block), content(1)));
    dirty.apply(Index(11), TERM, blocks);
    for through in [10, 10, 11] {
        let marked = dirty.mark(BLOCK as u64).unwrap();
        let written = data.write_back(vec![marked], &mut |_| ()).unwrap();
        let (ticket, slot) = written.sync().unwrap().pop().unwrap();
        assert_eq!(ticket.through(), Index(through));
        dirty.settle(&ticket, slot);
        assert_eq!(dirty.synced(), Index(through));
    }
}

/// A repair wrote a page, with the last applied entry: if a power cut tore it, it looked like a page whose
/// entries are lost.
#[test]
fn a_repair_writes_no_page() {
    let disk = Disk::new(1);
    let mut data = disk.open(1);
    let mut dirty = Dirty::after(GROUP, Index(0));
    for index in 1..3 {
        dirty.apply(Index(index), TERM, [(key(0, 1), content(1))]);
        write_back(&mut data, &mut dirty);
    }
    let pages = || [disk.block(0), disk.block(BLOCK as u64)];
    let before = pages();
    let at = SLOT_BYTES - u64::from(crate::ids::CHUNK_BLOCKS) * BLOCK as u64 + BLOCK as u64;
    let block = disk.block(at);
    io::write_all_at(&*disk.file, &[0xee; 8], at, WriteSync::None).unwrap();
    dirty.restore(key(0, 1), content(1), TERM);
    write_back(&mut data, &mut dirty);
    assert!(pages() == before && disk.block(at) == block);
    // A later write of the block is not a repair any more.
    dirty.restore(key(0, 1), content(1), TERM);
    dirty.apply(Index(3), TERM, [(key(0, 1), content(2))]);
    write_back(&mut data, &mut dirty);
    assert!(pages() != before);
}

/// Parts of a round may have the same last entry. The page of the second was damaged, and that of the first
/// believed.
#[test]
fn a_damaged_page_of_a_part_is_not_taken_for_one_without_news() {
    let disk = Disk::new(1);
    let mut data = disk.open(1);
    let mut dirty = Dirty::after(GROUP, Index(0));
    dirty.apply(Index(1), TERM, [(key(0, 9), content(1))]);
    write_back(&mut data, &mut dirty);
    assert!(dirty.begin_copy());
    for (block, generation) in [(1, 2), (2, 3)] {
        dirty.take_copied([(key(0, block), content(1))], Index(20), TERM);
        write_back(&mut data, &mut dirty);
        let newest = disk.block(generation % 2 * BLOCK as u64);
        assert_eq!(Page::decode(&newest).unwrap().generation, generation);
    }
    io::write_all_at(
        &*disk.file,
        &[0xee; 8],
        BLOCK as u64 + 1000,
        WriteSync::None,
    )
    .unwrap();
    let doubts: Vec<_> = disk.open(1).doubtful().iter().map(|d| d.doubt).collect();
    assert_eq!(doubts, [Doubt::Newer]);
}
