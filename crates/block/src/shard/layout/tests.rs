//! Tests of creating and opening stores, and of stores that are not what they should be.

use io::posix::Posix;

use super::*;
use crate::ids::{Group, Index, Term};
use crate::raftlog::batch::{Item, Kind};

const CLUSTER: Uuid = Uuid([7; 16]);

fn what(store: u8) -> Make {
    Make {
        store: Uuid([store; 16]),
        cluster: CLUSTER,
        slots: 2,
        log_files: 4,
        log_file_bytes: 4 << 20,
        allow_in_memory: true,
    }
}

fn new(dir: &Path, store: u8) {
    make(&Posix::shared(), dir, &what(store), &mut |_| ()).unwrap();
}

fn open(dir: &Path) -> Result<Opened> {
    Store::open(&Posix::shared(), dir, CLUSTER, 2, 1)
}

fn write(opened: &mut Opened, index: u64) {
    let entry = Item {
        kind: Kind::Entry,
        flags: 0,
        group: Group(1),
        index: Index(index),
        term: Term(1),
        inline: bytes::Bytes::new(),
        payload: bytes::Bytes::new(),
    };
    let (_, append) = opened.log.append(vec![entry], &[]).unwrap();
    let outcome = append.run();
    assert_eq!(opened.log.landed(append, outcome).unwrap().durable.len(), 1);
    opened.store.note_log_file(&opened.log).unwrap();
}

#[test]
fn a_store_is_made_and_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("a/store");
    let mut said = 0;
    make(&Posix::shared(), &at, &what(1), &mut |n| said = n).unwrap();
    assert_eq!(said, 16 << 20);
    let mut first = open(&at).unwrap();
    assert_eq!(
        (first.store.uuid(), first.store.dir()),
        (Uuid([1; 16]), &*at)
    );
    write(&mut first, 1);
    let number = first.log.file_number();
    let second = open(&at).unwrap_err().to_string();
    assert!(
        second.contains("LOCK") && second.contains("end it first"),
        "{second}"
    );
    drop(first);
    let again = open(&at).unwrap();
    assert!(again.log.file_number() > number);
    assert_eq!(again.log.groups().get(Group(1)).unwrap().last(), Index(1));
    assert_eq!(again.data.reader().free_slots(), 2);
}

#[test]
fn what_is_no_store_or_another_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    let refused = |at: &Path, words: [&str; 2]| {
        let e = open(at).unwrap_err().to_string();
        assert!(words.iter().all(|w| e.contains(w)), "{words:?}: {e}");
    };
    refused(&a, ["there is no store", "mount its disk"]);
    for (at, store) in [(&a, 1), (&b, 2)] {
        new(at, store);
        write(&mut open(at).unwrap(), 1);
    }
    let fs = Posix::shared();
    let e = make(&fs, &a, &what(3), &mut |_| ())
        .unwrap_err()
        .to_string();
    assert!(
        e.contains("a store already") && e.contains("another directory"),
        "{e}"
    );
    let other = Store::open(&fs, &a, Uuid([8; 16]), 2, 1).unwrap_err();
    let other = other.to_string();
    assert!(
        other.contains("of cluster 07070707") && other.contains("cluster file"),
        "{other}"
    );
    // The logs are swapped.
    let away = dir.path().join("away");
    for (from, to) in [
        (a.join(LOG), away.clone()),
        (b.join(LOG), a.join(LOG)),
        (away, b.join(LOG)),
    ] {
        std::fs::rename(from, to).unwrap();
    }
    refused(&a, ["is of store 02020202", "each other's place"]);
    std::fs::remove_dir_all(a.join(LOG)).unwrap();
    refused(&a, ["a/log: the store's log is missing", "mount its disk"]);
    Files::make(&fs, &a.join(LOG), 4, 4 << 20, &mut |_| ()).unwrap();
    refused(
        &a,
        [
            ".log of the log was begun, and is missing",
            "bring the file back",
        ],
    );
}

/// A newer release wrote a part of it: whichever part that is, the store stays unchanged.
#[test]
fn a_newer_format_is_refused_and_nothing_changed() {
    let dir = tempfile::tempdir().unwrap();
    new(dir.path(), 1);
    let mut opened = open(dir.path()).unwrap();
    write(&mut opened, 1);
    let log = format!("{LOG}/{:06}.log", opened.log.file_number());
    drop(opened);
    let files = || {
        let names = Posix.list(&dir.path().join(LOG)).unwrap();
        let store = std::fs::read(dir.path().join(STORE)).unwrap();
        (
            names.into_iter().collect::<std::collections::BTreeSet<_>>(),
            store,
        )
    };
    let slots = 2 * SLOT_BYTES;
    for (name, at, thing) in [
        (STORE, 0, "a store of version 7: this release knows 1"),
        (STORE, 4096, "a store of version 7: this release knows 1"),
        (
            DATA,
            slots,
            "a data file of version 7: this release knows 1",
        ),
        (&log, 0, "log files of version 7: this release knows 1"),
    ] {
        let file = Posix.open(&dir.path().join(name), OpenHow::UPDATE).unwrap();
        let mut before = [0; 4096];
        io::read_exact_at(&*file, &mut before, at).unwrap();
        let mut newer = before;
        newer[8..12].copy_from_slice(&7_u32.to_le_bytes());
        let crc = base::checksum::crc32c(&newer[8..]).to_le_bytes();
        newer[4..8].copy_from_slice(&crc);
        io::write_all_at(&*file, &newer, at, io::WriteSync::None).unwrap();
        let found = files();
        let e = open(dir.path()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotSupported, "{e}");
        let e = e.to_string();
        let words = [name, thing, "start that one; the store was not changed"];
        assert!(words.iter().all(|w| e.contains(w)), "{words:?}: {e}");
        assert_eq!(files(), found, "{name}");
        io::write_all_at(&*file, &before, at, io::WriteSync::None).unwrap();
    }
    drop(open(dir.path()).unwrap());
}

/// A data file with pages of entries that the log does not have is of another time.
#[test]
fn a_page_newer_than_the_log_is_refused() {
    use crate::store::dirty::{Content, Dirty, Key};
    let dir = tempfile::tempdir().unwrap();
    new(dir.path(), 1);
    let mut opened = open(dir.path()).unwrap();
    write(&mut opened, 1);
    let mut dirty = Dirty::after(Group(1), Index(1));
    let key = Key {
        tree: crate::ids::Tree(1),
        layer: crate::ids::Layer(1),
        chunk: crate::ids::Chunk(1),
        block: crate::ids::Block(1),
    };
    let content = Content::Data {
        bytes: io::AlignedBuf::zeroed(crate::ids::BLOCK, io::buffer::PAGE)
            .unwrap()
            .into(),
        crc: 1,
    };
    dirty.apply(Index(2), Term(1), [(key, content)]);
    let marked = dirty.mark(u64::MAX).unwrap();
    let written = opened.data.write_back(vec![marked], &mut |_| ()).unwrap();
    assert_eq!(written.sync().unwrap().len(), 1);
    drop(opened);
    let e = open(dir.path()).unwrap_err().to_string();
    assert!(
        e.contains("has entry 2 of group 1, and the log ends at 1") && e.contains("same time"),
        "{e}"
    );
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (wrong, needle) in [
        (
            Make {
                slots: 0,
                ..what(1)
            },
            "slots",
        ),
        (
            Make {
                log_files: 3,
                ..what(1)
            },
            "log_files must be at least 4",
        ),
        (
            Make {
                log_file_bytes: 1 << 20,
                ..what(1)
            },
            "log_file_bytes",
        ),
        (
            Make {
                log_file_bytes: (4 << 20) + 512,
                ..what(1)
            },
            "whole MiB",
        ),
    ] {
        let at = dir.path().join("s");
        let e = make(&Posix::shared(), &at, &wrong, &mut |_| ()).unwrap_err();
        assert!(e.to_string().contains(needle), "{e}");
        assert!(!at.exists());
    }
    let bytes = 2 * SLOT_BYTES + trailer::LEN + (16 << 20);
    assert_eq!(what(1).bytes(), bytes);
}

/// Runs only if there is a file system in memory.
#[test]
fn memory_is_no_place_for_a_store() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let careful = Make {
        allow_in_memory: false,
        ..what(1)
    };
    let e = make(&Posix::shared(), dir.path(), &careful, &mut |_| ()).unwrap_err();
    let e = e.to_string();
    assert!(
        e.contains("lives in memory") && e.contains("a directory on a disk"),
        "{e}"
    );
    // Directories that were not created are not there; those that existed stay.
    let at = dir.path().join("new");
    assert!(make(&Posix::shared(), &at, &careful, &mut |_| ()).is_err());
    assert!(!at.exists() && dir.path().exists());
}

/// Without `STORE`, the rest would be taken for garbage and overwritten.
#[test]
fn what_is_left_of_a_store_is_not_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    new(dir.path(), 1);
    write(&mut open(dir.path()).unwrap(), 1);
    std::fs::remove_file(dir.path().join(STORE)).unwrap();
    let again = || {
        let e = make(&Posix::shared(), dir.path(), &what(2), &mut |_| ());
        e.unwrap_err().to_string()
    };
    let e = again();
    assert!(e.contains(".log") && e.contains("bring STORE back"), "{e}");
    let log = dir.path().join(LOG);
    std::fs::remove_dir_all(&log).unwrap();
    let e = again();
    assert!(e.contains("data") && e.contains("bring STORE back"), "{e}");
    // A killed `make` has left spare files, which are created again.
    std::fs::create_dir(&log).unwrap();
    std::fs::write(log.join("spare-0"), "half").unwrap();
    new(dir.path(), 2);
    assert_eq!(open(dir.path()).unwrap().store.uuid(), Uuid([2; 16]));
}

#[test]
fn a_data_file_that_is_missing_or_cut_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    new(dir.path(), 1);
    drop(open(dir.path()).unwrap());
    let data = dir.path().join(DATA);
    std::fs::rename(&data, dir.path().join("away")).unwrap();
    let e = open(dir.path()).unwrap_err().to_string();
    assert!(
        e.contains("data: the store's data file is missing") && e.contains("mount its disk"),
        "{e}"
    );
    std::fs::write(&data, vec![0; 4096]).unwrap();
    let e = open(dir.path()).unwrap_err().to_string();
    assert!(
        e.contains("no copy of the data file's end is whole") && e.contains("as long as"),
        "{e}"
    );
}

/// Two stores that have written no page: nothing else would tell their data files apart.
#[test]
fn swapped_data_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = ["a", "b"].map(|name| dir.path().join(name));
    for (at, store) in [(&a, 1), (&b, 2)] {
        new(at, store);
        write(&mut open(at).unwrap(), 1);
    }
    let away = dir.path().join("away");
    for (from, to) in [(&a.join(DATA), &away), (&b.join(DATA), &a.join(DATA))] {
        std::fs::rename(from, to).unwrap();
    }
    let e = open(&a).unwrap_err().to_string();
    assert!(
        e.contains("is store 02020202") && e.contains("each other's place"),
        "{e}"
    );
    std::fs::rename(&away, a.join(DATA)).unwrap();
    drop(open(&a).unwrap());
}

/// A copy from before the last opening is refused; a crash between the two counts of an opening is not.
#[test]
fn a_data_file_of_another_time_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    new(dir.path(), 1);
    write(&mut open(dir.path()).unwrap(), 1);
    let [data, store, old_data, old_store] =
        [DATA, STORE, "old data", "old STORE"].map(|name| dir.path().join(name));
    std::fs::copy(&data, &old_data).unwrap();
    std::fs::copy(&store, &old_store).unwrap();
    drop(open(dir.path()).unwrap());
    std::fs::rename(&old_data, &data).unwrap();
    let e = open(dir.path()).unwrap_err().to_string();
    assert!(
        e.contains("opened 2 times, and its data file 1 times") && e.contains("older copy"),
        "{e}"
    );
    // As after a crash: the data file's count is one ahead of STORE's.
    std::fs::rename(&old_store, &store).unwrap();
    std::fs::copy(&store, &old_store).unwrap();
    drop(open(dir.path()).unwrap());
    std::fs::rename(&old_store, &store).unwrap();
    drop(open(dir.path()).unwrap());
}
