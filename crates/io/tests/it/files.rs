//! Opening, reading, writing, direct I/O, directories, probe.

use std::io::IoSlice;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use base::ErrorKind;
use io::posix::Posix;
use io::{Advice, AlignedBuf, Create, File, FileSystem, OpenHow, SyncKind, WriteSync};

fn temp() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn write_read_short_read_truncate() {
    let dir = temp();
    let path = dir.path().join("f");
    let fs = Posix::shared();
    let f = fs.open(&path, OpenHow::CREATE_NEW).unwrap();
    assert_eq!(f.path(), path);
    assert_eq!(f.write_at(b"hello", 3, WriteSync::None).unwrap(), 5);
    assert_eq!(f.write_at(b"abc", 0, WriteSync::Dsync).unwrap(), 3);
    assert_eq!(f.write_at(b"", 0, WriteSync::Dsync).unwrap(), 0);
    f.sync(SyncKind::Data).unwrap();
    f.sync(SyncKind::All).unwrap();
    let mut buf = [0; 20];
    assert_eq!(f.read_at(&mut buf, 0).unwrap(), 8);
    assert_eq!(&buf[..8], b"abchello");
    assert_eq!(f.read_at(&mut buf, 8).unwrap(), 0);
    assert_eq!(f.read_at(&mut buf, 1000).unwrap(), 0);
    f.truncate(2).unwrap();
    f.truncate(4).unwrap();
    assert_eq!(io::read_file(&*fs, &path, 100).unwrap(), b"ab\0\0");
    assert!(io::read_file(&*fs, &path, 3).unwrap_err().is_corruption());
    assert!(
        io::read_exact_at(&*f, &mut buf, 0)
            .unwrap_err()
            .is_corruption()
    );
    for a in [
        Advice::Normal,
        Advice::Random,
        Advice::Sequential,
        Advice::DontNeed,
        Advice::WillNeed { offset: 0, len: 1 },
        Advice::WillNeed {
            offset: 1 << 40,
            len: u64::MAX,
        },
    ] {
        f.advise(a);
    }
    f.start_writeback(0, 4).unwrap();
    assert_eq!(f.len().unwrap(), 4);
    assert!(!f.is_empty().unwrap());
}

#[test]
fn create_modes_and_errors_name_the_file() {
    let dir = temp();
    let path = dir.path().join("f");
    let fs = Posix;
    let e = fs.open(&path, OpenHow::READ).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NotFound);
    assert!(e.to_string().contains(path.to_str().unwrap()), "{e}");
    fs.open(&path, OpenHow::CREATE_NEW).unwrap();
    assert!(fs.open(&path, OpenHow::CREATE_NEW).is_err());
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let how = OpenHow {
        write: true,
        create: Create::IfMissing,
        direct: false,
    };
    let f = fs.open(&path, how).unwrap();
    io::write_all_at(&*f, b"kept", 0, WriteSync::None).unwrap();
    assert_eq!(fs.open(&path, how).unwrap().len().unwrap(), 4);
    assert_eq!(
        fs.open(&path, OpenHow::CREATE_TRUNCATE)
            .unwrap()
            .len()
            .unwrap(),
        0
    );
    let contradiction = OpenHow {
        write: false,
        ..how
    };
    assert_eq!(
        fs.open(&path, contradiction).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    // A read-only descriptor cannot write, and says so.
    let f = fs.open(&path, OpenHow::READ).unwrap();
    assert!(f.write_at(b"x", 0, WriteSync::None).is_err());
    assert!(f.write_at(b"x", 0, WriteSync::Dsync).is_err());
}

#[test]
fn a_symbolic_link_is_read_through_but_not_written_through() {
    let dir = temp();
    let (target, link) = (dir.path().join("target"), dir.path().join("link"));
    std::fs::write(&target, b"x").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    assert_eq!(Posix.open(&link, OpenHow::READ).unwrap().len().unwrap(), 1);
    let e = Posix.open(&link, OpenHow::CREATE_TRUNCATE).unwrap_err();
    assert!(e.to_string().contains("symbolic link"), "{e}");
    assert_eq!(std::fs::read(&target).unwrap(), b"x");
}

#[test]
fn directories() {
    let dir = temp();
    let fs = Posix;
    let sub = dir.path().join("a/b");
    assert!(fs.create_dir(&sub).unwrap_err().is_not_found());
    assert!(!dir.path().join("a").exists(), "nothing is made in passing");
    io::create_dirs(&fs, &sub).unwrap();
    io::create_dirs(&fs, &sub).unwrap();
    fs.create_dir(&sub).unwrap();
    assert_eq!(
        std::fs::metadata(&sub).unwrap().permissions().mode() & 0o777,
        0o700
    );
    io::replace_file(&fs, &sub.join("f"), &sub.join("t"), b"one").unwrap();
    io::replace_file(&fs, &sub.join("f"), &sub.join("t"), b"two").unwrap();
    fs.hard_link(&sub.join("f"), &sub.join("g")).unwrap();
    let mut names = fs.list(&sub).unwrap();
    names.sort();
    assert_eq!(names, ["f", "g"]);
    let m = fs.metadata(&sub.join("g")).unwrap();
    assert_eq!((m.len, m.is_dir), (3, false));
    assert!(m.modified_micros > 1_600_000_000_000_000);
    assert!(fs.metadata(&sub).unwrap().is_dir);
    assert!(fs.exists(&sub).unwrap());
    assert!(!fs.exists(&sub.join("nothing")).unwrap());
    fs.rename(&sub.join("g"), &sub.join("f")).unwrap();
    fs.remove(&sub.join("f")).unwrap();
    if fs.exists(&sub.join("g")).unwrap() {
        // rename(2) between two names of one file does nothing.
        fs.remove(&sub.join("g")).unwrap();
    }
    fs.sync_dir(&sub).unwrap();
    fs.remove_dir(&sub).unwrap();
    assert!(fs.sync_dir(&sub).unwrap_err().is_not_found());
    assert!(fs.list(&sub).unwrap_err().is_not_found());
    assert!(fs.remove(&sub).unwrap_err().is_not_found());
}

#[test]
fn zero_leaves_real_blocks_and_overwrites() {
    let dir = temp();
    let path = dir.path().join("f");
    let f = Posix.open(&path, OpenHow::CREATE_NEW).unwrap();
    io::write_all_at(&*f, &[7; 10_000], 0, WriteSync::None).unwrap();
    f.zero(5, 3 << 20).unwrap();
    f.sync(SyncKind::Data).unwrap();
    assert_eq!(f.len().unwrap(), 5 + (3 << 20));
    assert!(std::fs::metadata(&path).unwrap().blocks() * 512 >= 3 << 20);
    let content = std::fs::read(&path).unwrap();
    assert_eq!(&content[..5], &[7; 5]);
    assert!(content[5..].iter().all(|&b| b == 0));
    f.zero(0, 0).unwrap();
}

#[test]
fn allocate_keeps_or_grows_the_length() {
    let dir = temp();
    let f = Posix
        .open(&dir.path().join("f"), OpenHow::CREATE_NEW)
        .unwrap();
    match f.allocate(0, 65536, true) {
        Err(e) if e.kind() == ErrorKind::NotSupported => return,
        other => other.unwrap(),
    }
    assert_eq!(f.len().unwrap(), 0);
    f.allocate(0, 65536, false).unwrap();
    assert_eq!(f.len().unwrap(), 65536);
}

#[test]
fn direct_io_and_its_alignment_errors() {
    let dir = temp();
    let probe = Posix.probe(dir.path()).unwrap();
    println!("{probe}");
    let path = dir.path().join("f");
    let Some(align) = probe.direct_alignment else {
        let e = Posix.open(&path, OpenHow::CREATE_NEW.direct()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NotSupported);
        println!("no direct I/O here: {e}");
        return;
    };
    let align = align as usize;
    let f = Posix.open(&path, OpenHow::CREATE_NEW.direct()).unwrap();
    let mut block = AlignedBuf::zeroed(align, align.max(512)).unwrap();
    block.fill(9);
    for sync in [WriteSync::None, WriteSync::Dsync] {
        assert_eq!(f.write_at(&block, 0, sync).unwrap(), align);
    }
    let e = f.write_at(&block, 1, WriteSync::None).unwrap_err();
    assert!(e.to_string().contains("offset is not aligned"), "{e}");
    let e = f
        .write_at(&block[..align - 1], 0, WriteSync::Dsync)
        .unwrap_err();
    assert!(e.to_string().contains("length is not aligned"), "{e}");
    // A read past the end of an odd-sized file is short, not an error.
    f.truncate(100).unwrap();
    assert_eq!(f.read_at(&mut block, 0).unwrap(), 100);
    assert_eq!(&block[..100], &[9; 100]);
    f.zero(0, 1 << 21).unwrap();
    assert_eq!(f.len().unwrap(), 1 << 21);
}

/// More slices than one call takes, empty ones among them.
#[test]
fn slices_are_written_one_behind_the_other() {
    let dir = temp();
    let f = Posix
        .open(&dir.path().join("f"), OpenHow::CREATE_NEW)
        .unwrap();
    let all: Vec<Vec<u8>> = (0..3000).map(|i| vec![i as u8; i % 7]).collect();
    for sync in [WriteSync::None, WriteSync::Dsync] {
        f.truncate(0).unwrap();
        let mut slices: Vec<_> = all.iter().map(|s| IoSlice::new(s)).collect();
        let n = f.write_vectored_at(&slices, 3, sync).unwrap();
        assert!(n > 0 && n < all.concat().len());
        io::write_all_vectored_at(&*f, &mut slices, 3, sync).unwrap();
        let read = io::read_file(&Posix, f.path(), 1 << 20).unwrap();
        assert!(read[3..] == all.concat());
    }
    io::write_all_vectored_at(&*f, &mut [IoSlice::new(b"")], 0, WriteSync::None).unwrap();
}

#[test]
fn slices_of_direct_files_are_aligned_each() {
    let dir = temp();
    let Some(align) = Posix.probe(dir.path()).unwrap().direct_alignment else {
        println!("no direct I/O here");
        return;
    };
    let (align, path) = (align as usize, dir.path().join("f"));
    let f = Posix.open(&path, OpenHow::CREATE_NEW.direct()).unwrap();
    let mut blocks = AlignedBuf::zeroed(3 * align, align.max(512)).unwrap();
    blocks[2 * align..].fill(7);
    let (two, one) = blocks.split_at(2 * align);
    let write = |slices: &[&[u8]], offset| {
        let slices: Vec<_> = slices.iter().map(|s| IoSlice::new(s)).collect();
        f.write_vectored_at(&slices, offset, WriteSync::Dsync)
    };
    assert_eq!(write(&[one, two, one], 0).unwrap(), 4 * align);
    let mut read = AlignedBuf::zeroed(4 * align, align.max(512)).unwrap();
    io::read_exact_at(&*f, &mut read, 0).unwrap();
    assert!(read[..] == [one, two, one].concat());
    for (slices, offset) in [
        ([one, &one[..1]], 0),
        ([two, one], 1),
        ([two, &two[1..=align]], 0),
    ] {
        let e = write(&slices, offset).unwrap_err();
        assert!(e.to_string().contains("is not aligned"), "{e}");
    }
}

#[test]
fn probe_leaves_nothing_and_names_tmpfs() {
    let dir = temp();
    let p = Posix.probe(dir.path()).unwrap();
    assert!(Posix.list(dir.path()).unwrap().is_empty());
    assert!(p.physical_block.is_power_of_two());
    assert!(Posix.probe(&dir.path().join("nothing")).is_err());
    let shm = Path::new("/dev/shm");
    if shm.is_dir() {
        let p = Posix.probe(shm).unwrap();
        println!("{p}");
        assert_eq!(p.file_system, "tmpfs");
        assert!(p.in_memory);
    }
}

#[test]
fn one_file_from_several_threads() {
    let dir = temp();
    let f = Posix
        .open(&dir.path().join("f"), OpenHow::CREATE_NEW)
        .unwrap();
    std::thread::scope(|s| {
        for t in 0..4u8 {
            let f: &dyn File = &*f;
            s.spawn(move || {
                for i in 0..100u64 {
                    let at = (i * 4 + u64::from(t)) * 100;
                    io::write_all_at(f, &[t; 100], at, WriteSync::None).unwrap();
                }
            });
        }
    });
    let mut all = vec![0; 40_000];
    io::read_exact_at(&*f, &mut all, 0).unwrap();
    assert!(
        all.chunks(100)
            .enumerate()
            .all(|(i, c)| c.iter().all(|&b| b == (i % 4) as u8))
    );
}
