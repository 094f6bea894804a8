//! Tests of the disk's promises.

use super::*;
use base::rng::Rng;
use io::{OpenHow, SyncKind, WriteSync, write_all_at};

fn dir() -> &'static Path {
    Path::new("/db")
}

fn p(name: &str) -> std::path::PathBuf {
    dir().join(name)
}

/// A disk with a durable directory `/db`.
fn disk() -> SimDisk {
    let disk = SimDisk::new(Config::default());
    disk.create_dir(dir()).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

fn content(disk: &SimDisk, name: &str) -> Option<Vec<u8>> {
    match io::read_file(disk, &p(name), 1 << 20) {
        Ok(b) => Some(b),
        Err(e) if e.is_not_found() => None,
        Err(e) => panic!("{e}"),
    }
}

/// All contents of the file in many crash images.
fn outcomes(disk: &SimDisk, name: &str) -> std::collections::BTreeSet<Option<Vec<u8>>> {
    let mut rng = Rng::new(1);
    let mut out = std::collections::BTreeSet::new();
    for kind in CrashKind::ALL {
        for _ in 0..200 {
            out.insert(content(&disk.crash_image(&mut rng, kind), name));
        }
    }
    out
}

#[test]
fn content_and_names_are_durable_only_after_their_own_sync() {
    let disk = disk();
    let file = disk.open(&p("a"), OpenHow::CREATE_NEW).unwrap();
    write_all_at(&*file, b"hello", 0, WriteSync::None).unwrap();
    file.sync(SyncKind::Data).unwrap();
    let all = outcomes(&disk, "a");
    assert!(all.contains(&None) && all.contains(&Some(b"hello".to_vec())));
    assert_eq!(all.len(), 2, "{all:?}");
    disk.sync_dir(dir()).unwrap();
    assert_eq!(outcomes(&disk, "a").len(), 1);

    write_all_at(&*file, b" world", 5, WriteSync::None).unwrap();
    let all = outcomes(&disk, "a");
    let want = [&b"hello"[..], b"hello world", b"hello\0\0\0\0\0\0"];
    assert_eq!(all, want.iter().map(|b| Some(b.to_vec())).collect());
    assert_eq!(
        content(&disk.kill_image(), "a").unwrap(),
        b"hello world".to_vec()
    );
    assert!(outcomes(&disk.kill_image(), "a").len() > 1, "still pending");
}

#[test]
fn a_failed_sync_of_a_directory_loses_its_new_names_for_good() {
    for fault in [Fault::Eio, Fault::Sync, Fault::NoSpace] {
        let disk = disk();
        disk.open(&p("old"), OpenHow::CREATE_NEW).unwrap();
        disk.sync_dir(dir()).unwrap();
        disk.open(&p("a"), OpenHow::CREATE_NEW).unwrap();
        disk.fail_on(fault, Repeat::Once, |act, _| act == Act::SyncDir);
        disk.sync_dir(dir()).unwrap_err();
        disk.open(&p("b"), OpenHow::CREATE_NEW).unwrap();
        disk.sync_dir(dir()).unwrap();
        assert_eq!(outcomes(&disk, "old").len(), 1);
        assert_eq!(outcomes(&disk, "a").len(), 2, "a later sync does nothing");
        assert_eq!(outcomes(&disk, "b").len(), 1);
        // A change of the same name makes it durable too.
        disk.rename(&p("a"), &p("c")).unwrap();
        disk.sync_dir(dir()).unwrap();
        assert_eq!(outcomes(&disk, "c").len(), 1);
    }
}

#[test]
fn a_durable_write_covers_itself_and_nothing_else() {
    let disk = disk();
    let file = disk.open(&p("a"), OpenHow::CREATE_NEW).unwrap();
    disk.sync_dir(dir()).unwrap();
    write_all_at(&*file, &[1; 512], 0, WriteSync::None).unwrap();
    write_all_at(&*file, &[2; 512], 512, WriteSync::Dsync).unwrap();
    let all = outcomes(&disk, "a");
    assert_eq!(all.len(), 2);
    for found in all.into_iter().map(Option::unwrap) {
        assert!(found[..512] == [0; 512] || found[..512] == [1; 512]);
        assert_eq!(found[512..], [2; 512]);
    }
    file.sync(SyncKind::Data).unwrap();
    assert_eq!(outcomes(&disk, "a").len(), 1);
}

#[test]
fn sectors_of_one_write_tear_and_names_reorder() {
    let disk = disk();
    let file = disk.open(&p("a"), OpenHow::CREATE_NEW).unwrap();
    disk.sync_dir(dir()).unwrap();
    file.zero(0, 1536).unwrap();
    file.sync(SyncKind::Data).unwrap();
    write_all_at(&*file, &[7; 1536], 0, WriteSync::None).unwrap();
    assert_eq!(outcomes(&disk, "a").len(), 8);

    disk.open(&p("b"), OpenHow::CREATE_NEW).unwrap();
    disk.open(&p("c"), OpenHow::CREATE_NEW).unwrap();
    let mut rng = Rng::new(2);
    let only_c = (0..100).any(|_| {
        let image = disk.crash_image(&mut rng, CrashKind::Random);
        content(&image, "b").is_none() && content(&image, "c").is_some()
    });
    assert!(only_c);
}

#[test]
fn a_rename_is_old_or_new_and_never_both_or_neither() {
    let disk = disk();
    disk.create_dir(&p("pool")).unwrap();
    disk.sync_dir(dir()).unwrap();
    let file = disk.open(&p("pool/1"), OpenHow::CREATE_NEW).unwrap();
    write_all_at(&*file, b"x", 0, WriteSync::Dsync).unwrap();
    disk.sync_dir(&p("pool")).unwrap();
    disk.rename(&p("pool/1"), &p("5.log")).unwrap();
    let mut rng = Rng::new(3);
    for _ in 0..100 {
        let image = disk.crash_image(&mut rng, CrashKind::Random);
        let (old, new) = (content(&image, "pool/1"), content(&image, "5.log"));
        assert!(old.is_some() != new.is_some());
    }
    disk.sync_dir(dir()).unwrap();
    assert_eq!(outcomes(&disk, "pool/1"), [None].into());
    assert_eq!(outcomes(&disk, "5.log"), [Some(b"x".to_vec())].into());
    disk.remove(&p("5.log")).unwrap();
    assert_eq!(outcomes(&disk, "5.log").len(), 2);
}

#[test]
fn after_a_failed_sync_the_next_one_promises_nothing_for_the_old_writes() {
    let disk = disk();
    let file = disk.open(&p("a"), OpenHow::CREATE_NEW).unwrap();
    disk.sync_dir(dir()).unwrap();
    write_all_at(&*file, &[1; 512], 0, WriteSync::None).unwrap();
    disk.fail_at(1, Fault::Sync, Repeat::Once);
    file.sync(SyncKind::Data).unwrap_err();
    assert_eq!(disk.failed().unwrap(), (Act::Sync, p("a")));
    file.sync(SyncKind::Data).unwrap();
    assert_eq!(outcomes(&disk, "a").len(), 2, "lost or not");
    write_all_at(&*file, &[2; 1], 0, WriteSync::None).unwrap();
    file.sync(SyncKind::Data).unwrap();
    assert_eq!(outcomes(&disk, "a").len(), 1, "dirtied anew");
}

#[test]
fn truncation_brings_nothing_back() {
    let disk = disk();
    let file = disk.open(&p("a"), OpenHow::CREATE_NEW).unwrap();
    disk.sync_dir(dir()).unwrap();
    write_all_at(&*file, &[1; 600], 0, WriteSync::None).unwrap();
    file.sync(SyncKind::Data).unwrap();
    file.truncate(10).unwrap();
    write_all_at(&*file, &[2; 10], 10, WriteSync::None).unwrap();
    for found in outcomes(&disk, "a").into_iter().map(Option::unwrap) {
        assert_eq!(found[..10], [1; 10]);
        let rest = &found[10..];
        let old = rest.len() == 590 && rest.iter().all(|&b| b == 1);
        let new = rest.len() <= 10 && rest.iter().all(|&b| b == 2 || b == 0);
        assert!(old || new, "{found:?}");
    }
    file.sync(SyncKind::Data).unwrap();
    assert_eq!(outcomes(&disk, "a").len(), 1);
}

#[test]
fn the_machine_ends_where_it_is_told_to() {
    for (when, sizes) in [
        (CrashWhen::Before, [0, 0]),
        (CrashWhen::During, [0, 1]),
        (CrashWhen::After, [1, 1]),
    ] {
        let disk = disk();
        let file = disk.open(&p("a"), OpenHow::CREATE_NEW).unwrap();
        disk.sync_dir(dir()).unwrap();
        disk.crash_at(disk.events() + 1, when);
        file.write_at(b"x", 0, WriteSync::Dsync).unwrap_err();
        file.len().unwrap_err();
        disk.metadata(&p("a")).unwrap_err();
        let mut rng = Rng::new(5);
        for (kind, size) in [CrashKind::Nothing, CrashKind::Everything]
            .iter()
            .zip(sizes)
        {
            let image = disk.crash_image(&mut rng, *kind);
            assert_eq!(
                content(&image, "a").unwrap().len(),
                size,
                "{when:?} {kind:?}"
            );
        }
    }
}

#[test]
fn direct_io_must_be_aligned_and_short_writes_stay_aligned() {
    let disk = disk();
    let file = disk.open(&p("a"), OpenHow::CREATE_NEW.direct()).unwrap();
    let mut buf = io::AlignedBuf::zeroed(1024, 512).unwrap();
    buf.fill(3);
    assert!(file.write_at(&buf[..100], 0, WriteSync::None).is_err());
    assert!(file.write_at(&buf, 5, WriteSync::None).is_err());
    disk.fail_at(1, Fault::Short, Repeat::Once);
    assert_eq!(file.write_at(&buf, 0, WriteSync::None).unwrap(), 512);
    assert_eq!(file.write_at(&buf, 512, WriteSync::None).unwrap(), 1024);
    assert_eq!(file.len().unwrap(), 1536);
}

#[test]
fn garbage_stays_in_the_bytes_that_were_in_flight() {
    let config = Config {
        garbage: Garbage::WrittenBytes,
        ..Config::default()
    };
    let disk = SimDisk::new(config);
    let file = disk.open(Path::new("/a"), OpenHow::CREATE_NEW).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    write_all_at(&*file, &[1; 100], 0, WriteSync::Dsync).unwrap();
    write_all_at(&*file, &[2; 100], 100, WriteSync::None).unwrap();
    let mut rng = Rng::new(9);
    let mut junk = 0;
    for _ in 0..200 {
        let image = disk.crash_image(&mut rng, CrashKind::Random);
        let bytes = io::read_file(&image, Path::new("/a"), 1000).unwrap();
        assert_eq!(bytes[..100], [1; 100]);
        junk += u32::from(bytes[100..].iter().any(|&b| b != 0 && b != 2));
    }
    assert!(junk > 0);
}

#[test]
fn what_was_pending_before_garbage_was_allowed_stays_old_or_new() {
    let disk = disk();
    let file = disk.open(&p("a"), OpenHow::CREATE_NEW).unwrap();
    disk.sync_dir(dir()).unwrap();
    write_all_at(&*file, &[1; 512], 0, WriteSync::Dsync).unwrap();
    write_all_at(&*file, &[2; 512], 0, WriteSync::None).unwrap();
    let killed = disk.kill_image();
    killed.set_garbage(Garbage::Sector);
    assert_eq!(outcomes(&killed, "a").len(), 2);
    let file = killed.open(&p("a"), OpenHow::UPDATE).unwrap();
    write_all_at(&*file, &[3; 512], 0, WriteSync::None).unwrap();
    assert!(outcomes(&killed, "a").len() > 3);
}

#[test]
fn what_was_pending_keeps_to_the_garbage_of_its_day() {
    let disk = disk();
    disk.set_garbage(Garbage::WrittenBytes);
    let file = disk.open(&p("a"), OpenHow::CREATE_NEW).unwrap();
    disk.sync_dir(dir()).unwrap();
    write_all_at(&*file, &[1; 100], 0, WriteSync::Dsync).unwrap();
    write_all_at(&*file, &[2; 100], 100, WriteSync::None).unwrap();
    let killed = disk.kill_image();
    killed.set_garbage(Garbage::Sector);
    let outcomes = outcomes(&killed, "a");
    assert!(outcomes.len() > 2, "the bytes in flight may be garbage");
    assert!(outcomes.iter().flatten().all(|o| o[..100] == [1; 100]));
}

#[test]
fn one_opener_at_a_time() {
    let disk = disk();
    let lock = disk.lock(&p("LOCK")).unwrap();
    assert!(disk.lock(&p("LOCK")).is_err());
    assert!(disk.kill_image().lock(&p("LOCK")).is_ok());
    drop(lock);
    disk.lock(&p("LOCK")).unwrap();
}

#[test]
fn a_directory_gets_another_name_with_all_that_is_in_it() {
    let disk = SimDisk::new(Config::default());
    let [old, new] = ["/copy.tmp", "/copy"].map(Path::new);
    disk.create_dir(old).unwrap();
    disk.create_dir(&old.join("deep")).unwrap();
    let file = disk.open(&old.join("deep/a"), OpenHow::CREATE_NEW).unwrap();
    write_all_at(&*file, b"text", 0, WriteSync::Dsync).unwrap();
    for dir in [&old.join("deep"), old, Path::new("/")] {
        disk.sync_dir(dir).unwrap();
    }
    disk.create_dir(Path::new("/taken")).unwrap();
    assert!(disk.rename(old, Path::new("/taken")).is_err());
    disk.rename(old, new).unwrap();
    let read = |disk: &SimDisk, dir: &Path| io::read_file(disk, &dir.join("deep/a"), 100).ok();
    assert_eq!(read(&disk, new).as_deref(), Some(&b"text"[..]));
    assert_eq!(read(&disk, old), None);
    let mut rng = Rng::new(1);
    let before = disk.crash_image(&mut rng, CrashKind::Nothing);
    assert_eq!(read(&before, old).as_deref(), Some(&b"text"[..]));
    disk.sync_dir(Path::new("/")).unwrap();
    let after = disk.crash_image(&mut rng, CrashKind::Nothing);
    assert_eq!(read(&after, new).as_deref(), Some(&b"text"[..]));
}

#[test]
fn when_the_power_goes_nothing_more_becomes_durable() {
    let disk = disk();
    let file = disk.open(&p("a"), OpenHow::CREATE_NEW).unwrap();
    disk.sync_dir(dir()).unwrap();
    write_all_at(&*file, &[1; 1024], 0, WriteSync::Dsync).unwrap();
    assert_eq!(outcomes(&disk, "a").len(), 1);
    disk.fade();
    write_all_at(&*file, &[2; 1024], 0, WriteSync::Dsync).unwrap();
    file.sync(SyncKind::Data).unwrap();
    // Each of the two sectors is old or new.
    assert_eq!(outcomes(&disk, "a").len(), 4);
    assert!(!disk.is_crashed());
}
