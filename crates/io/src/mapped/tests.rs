//! Tests with real files, real signals and pages that are missing.

use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt as _;

use base::sync::thread;

use crate::posix::Posix;
use crate::{FileSystem, OpenHow, write_all_at};

use super::*;

struct World {
    dir: tempfile::TempDir,
    file: Arc<MappedFile>,
}

/// Writes in pieces that may be stored.
fn write(file: &MappedFile, data: &[u8], at: u64) -> Result<()> {
    let mut at = at;
    for piece in data.chunks(STORE_MAX) {
        write_all_at(file, piece, at, WriteSync::None)?;
        at += piece.len() as u64;
    }
    Ok(())
}

impl World {
    /// In the usual place, or in memory if that is on a file system that is not mapped.
    fn new() -> Self {
        let usual = std::env::temp_dir();
        let world = Self::at(&usual).or_else(|| Self::at(Path::new("/dev/shm")));
        world.expect("a file system that is mapped")
    }

    fn at(place: &Path) -> Option<Self> {
        let dir = tempfile::tempdir_in(place).unwrap();
        let file = Posix
            .open(&dir.path().join("f"), OpenHow::CREATE_NEW)
            .unwrap();
        let file = MappedFile::new(&file, u64::MAX)?;
        Some(Self { dir, file })
    }

    fn content(&self) -> Vec<u8> {
        std::fs::read(self.dir.path().join("f")).unwrap()
    }

    /// Cuts the file while its windows stay, so that a store behind the first page finds none.
    fn cut_behind_its_back(&self, len: u64) {
        let path = self.dir.path().join("f");
        let other = Posix.open(&path, OpenHow::UPDATE).unwrap();
        other.truncate(len).unwrap();
    }

    fn has_window(&self) -> bool {
        self.file.windows().now.is_some()
    }

    /// Writes "first", and makes a window with it.
    fn begin(&self) {
        write_all_at(&*self.file, b"first", 0, WriteSync::None).unwrap();
        self.file.prepare().unwrap();
        assert!(self.has_window());
    }
}

/// Records of odd lengths, over many windows, with and without a thread that keeps up.
#[test]
fn what_is_stored_is_in_the_file() {
    for every in [1, 7, 50, usize::MAX] {
        let world = World::new();
        let (mut all, mut at) = (Vec::new(), 0);
        for n in 0..150_usize {
            let record: Vec<u8> = (0..(n * 7919) % 200_000).map(|i| (i + n) as u8).collect();
            write(&world.file, &record, at).unwrap();
            all.extend_from_slice(&record);
            at += record.len() as u64;
            if n % every == every - 1 {
                world.file.prepare().unwrap();
            }
        }
        let content = world.content();
        assert!(content.starts_with(&all));
        assert!(content[all.len()..].iter().all(|b| *b == 0));
        assert_eq!(world.has_window(), every != usize::MAX);
        world.file.truncate(at).unwrap();
        assert!(world.content() == all);
        // It goes on behind that, by calls and in new windows.
        for n in 0..3_u8 {
            write(&world.file, &[n; 5000], at).unwrap();
            all.extend([n; 5000]);
            at += 5000;
            world.file.prepare().unwrap();
        }
        world.file.sync(SyncKind::Data).unwrap();
        assert!(world.content().starts_with(&all));
    }
}

#[test]
fn windows_are_made_when_they_are_due_and_old_ones_go() {
    let world = World::new();
    assert!(!world.file.is_due(), "nothing is written");
    write_all_at(&*world.file, b"durable", 0, WriteSync::Dsync).unwrap();
    assert!(!world.file.is_due(), "only stores need windows");
    world.begin();
    assert!(!world.file.is_due());
    let piece = vec![1; 1 << 20];
    let mut at = 0;
    for _ in 0..20 {
        write(&world.file, &piece, at).unwrap();
        at += piece.len() as u64;
        if world.file.is_due() {
            world.file.prepare().unwrap();
        }
        let windows = world.file.windows();
        assert!(windows.old.len() < 2 && windows.now.is_some());
        assert!(windows.upto <= at + 2 * WINDOW);
    }
}

/// The file is cut behind the back of its windows, so that a store finds no page: the write fails, and nothing else.
#[test]
fn a_page_that_cannot_be_written_is_an_error() {
    let world = World::new();
    world.begin();
    world.cut_behind_its_back(5);
    // The first page has the end of the file in it.
    let e = write(&world.file, &[7; 10_000], 5).unwrap_err();
    assert!(
        e.to_string().contains("mapped") && e.path().is_some(),
        "{e}"
    );
    // The failed window is unmapped, and none is made any more.
    assert!(world.file.is_due());
    world.file.prepare().unwrap();
    assert!(!world.file.is_due() && !world.has_window());
    // Calls work; a database does not make them after a failure.
    write_all_at(&*world.file, b"third", 5, WriteSync::None).unwrap();
    assert!(world.content().starts_with(b"firstthird"));
    // Other files have their windows.
    let another = World::new();
    another.begin();
    write(&another.file, &[7; 10_000], 5).unwrap();
    assert!(another.has_window());
}

/// Runs `f` in a child process, and returns how that ended.
fn in_child(name: &str, f: impl FnOnce()) -> std::process::ExitStatus {
    const CHILD: &str = "IRONSTONE_TEST_SIGBUS";
    if std::env::var_os(CHILD).is_some_and(|child| child == name) {
        f();
        std::process::exit(0);
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let test = format!("mapped::tests::{}", name.split('/').next().unwrap());
    child.args(["--exact", &test, "--nocapture"]);
    child.env(CHILD, name).output().unwrap().status
}

fn signal_of(ended: std::process::ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&ended)
}

/// A fault elsewhere ends the process as it would without the handler.
#[test]
fn other_faults_are_passed_on() {
    let ended = in_child("other_faults_are_passed_on", || {
        let world = World::new();
        world.begin();
        let path = world.dir.path().join("other");
        let file = std::fs::File::create_new(&path).unwrap();
        file.write_all_at(&[1; 4096], 0).unwrap();
        // SAFETY: a new mapping; reading it faults, on purpose.
        unsafe {
            let flags = MapFlags::SHARED;
            let base = mmap(ptr::null_mut(), 8192, ProtFlags::READ, flags, &file, 0);
            let base: *const u8 = base.unwrap().cast();
            std::hint::black_box(base.add(4096).read_volatile());
        }
        unreachable!("the process has ended");
    });
    let signal = signal_of(ended);
    assert!(
        signal == Some(libc::SIGBUS) || signal == Some(libc::SIGABRT),
        "{ended:?}"
    );
}

/// A signal that somebody sends does what it would do without the handler.
#[test]
fn sent_signals_are_passed_on() {
    for (name, before, expected) in [
        (
            "sent_signals_are_passed_on/default",
            libc::SIG_DFL,
            Some(libc::SIGBUS),
        ),
        ("sent_signals_are_passed_on/ignored", libc::SIG_IGN, None),
    ] {
        let ended = in_child(name, || {
            // SAFETY: neither action is a function.
            unsafe { libc::signal(libc::SIGBUS, before) };
            let world = World::new();
            world.begin();
            // SAFETY: no preconditions.
            unsafe { libc::raise(libc::SIGBUS) };
            // The handler is still there.
            world.cut_behind_its_back(5);
            write(&world.file, &[7; 10_000], 5).unwrap_err();
        });
        assert_eq!(signal_of(ended), expected, "{name}: {ended:?}");
        assert_eq!(ended.success(), expected.is_none(), "{name}: {ended:?}");
    }
}

/// The fault of a thread that blocks the signal would end the process.
#[test]
fn a_thread_that_blocks_the_signal_writes_by_calls() {
    let world = World::new();
    world.begin();
    world.cut_behind_its_back(5);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut all = MaybeUninit::uninit();
            // SAFETY: the first call fills the set that the second one reads.
            unsafe {
                libc::sigfillset(all.as_mut_ptr());
                libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), ptr::null_mut());
            }
            write_all_at(&*world.file, b", by a call", 5, WriteSync::None).unwrap();
        });
    });
    assert!(world.content() == b"first, by a call");
    write(&world.file, &[7; 10_000], 16).unwrap_err();
}

/// A window costs more than it saves where writes are large.
#[test]
fn large_writes_are_calls_and_mean_no_windows() {
    let World { file, dir: _dir } = World::new();
    let large = vec![1; 1 << 20];
    let mut at = 0;
    for n in 0..20 {
        write_all_at(&*file, &large, at, WriteSync::None).unwrap();
        at += large.len() as u64;
        assert!(!file.is_due(), "{n}");
        // Small ones between them change nothing.
        write(&file, &[2; 1000], at).unwrap();
        at += 1000;
        assert!(!file.is_due(), "{n}");
    }
    write(&file, &vec![3; UNSYNCED_MIN as usize], at).unwrap();
    file.prepare().unwrap();
    assert!(file.windows().now.is_some());
    // Into the window, but by a call.
    let at = at + UNSYNCED_MIN;
    write_all_at(&*file, &large, at, WriteSync::None).unwrap();
    let mut read = vec![0; large.len()];
    file.read_at(&mut read, at).unwrap();
    assert!(read == large);
    assert_eq!(file.unsynced(), UNSYNCED_MIN - large.len() as u64);
    // So are several slices.
    let slices = [IoSlice::new(&large), IoSlice::new(b"end")];
    let len = file
        .write_vectored_at(&slices, at, WriteSync::None)
        .unwrap();
    assert_eq!(len, large.len() + 3);
    assert_eq!(file.unsynced(), UNSYNCED_MIN - (large.len() + len) as u64);
}

/// Writers do not wait for a window that is being made: the file is cut when it is there.
#[test]
fn a_file_that_is_left_while_a_window_is_made_ends_where_it_was_left() {
    for making in [false, true] {
        let world = World::new();
        world.begin();
        write_all_at(&*world.file, b", second", 5, WriteSync::None).unwrap();
        world.file.windows().is_making = making;
        world.file.leave(Some(13));
        assert!(!world.has_window() && world.file.windows().old.len() == 1);
        assert_eq!(world.content().len() == 13, !making);
        let waits = thread::scope(|scope| {
            let waits = scope.spawn(|| world.file.finish());
            drop(Making(&world.file));
            waits.join()
        });
        waits.unwrap();
        assert!(world.content() == b"first, second");
        assert!(world.file.is_due() && !world.file.is_finished());
        world.file.prepare().unwrap(); // unmaps the old window
        assert!(!world.file.is_due() && world.file.is_finished());
    }
}

/// A window that came very late, because the device was slow, is no reason to begin the next one far ahead.
#[test]
fn windows_begin_near_the_writer() {
    let world = World::new();
    write_all_at(&*world.file, b"first", 0, WriteSync::None).unwrap();
    let late = {
        let mut windows = world.file.windows();
        assert_eq!(windows.begin(5), 0);
        windows.is_making = false;
        world.file.file.allocate(0, WINDOW, false).unwrap();
        drop(windows);
        world.file.make(0).unwrap().unwrap()
    };
    let mut windows = world.file.windows();
    let end = 100 << 20;
    windows.take(late, 5, end);
    assert!(windows.now.is_none() && windows.late == 1);
    let from = windows.begin(end);
    assert!(from <= end + WINDOW, "{from}");
}

#[test]
fn files_beyond_the_most_windows_are_written_by_calls() {
    // All places: in a process of its own.
    let ended = in_child("files_beyond_the_most_windows_are_written_by_calls", || {
        let places: Vec<_> = std::iter::from_fn(Known::reserve).collect();
        assert!(places.len() >= 100);
        let world = World::new();
        write_all_at(&*world.file, b"first", 0, WriteSync::None).unwrap();
        world.file.prepare().unwrap();
        assert!(!world.has_window() && !world.file.is_due());
        assert_eq!(world.content(), b"first", "nothing was prepared in vain");
        drop(places);
        World::new().begin();
    });
    assert!(ended.success());
}

/// The pages of a window are written by the next sync, so there are none where syncs are frequent.
#[test]
fn frequent_syncs_mean_no_windows() {
    let World { file, dir: _dir } = World::new();
    file.written.unsynced.store(0, Ordering::Relaxed);
    let piece = vec![1; 1 << 20];
    let mut at = 0;
    let mut write = |n: u64, syncs: bool| {
        for _ in 0..n {
            write(&file, &piece, at).unwrap();
            at += piece.len() as u64;
            file.prepare().unwrap();
            if syncs {
                file.sync(SyncKind::Data).unwrap();
            }
        }
        (file.unsynced(), file.windows().now.is_some())
    };
    assert_eq!(write(40, true), (0, false));
    assert_eq!(write(7, false), (7 << 20, false));
    assert_eq!(write(1, true), (0, true));
    // That window is used up, and is the last one.
    assert_eq!(write(20, true), (0, false));
    assert!(!file.is_due());
    let end = file.len().unwrap();
    assert!(end < at + 2 * WINDOW, "{end}");
}

/// A cut goes on behind any end, and an end is for good.
#[test]
fn files_are_cut_and_ended_anywhere() {
    let world = World::new();
    world.begin();
    for len in [8, 5, 4097, 12_345, 0, WINDOW - 1, WINDOW + 1] {
        world.file.truncate(len).unwrap();
        assert_eq!(world.content().len() as u64, len);
        write_all_at(&*world.file, b"more", len, WriteSync::None).unwrap();
        world.file.prepare().unwrap();
        assert!(world.has_window(), "{len}");
        write_all_at(&*world.file, b" again", len + 4, WriteSync::None).unwrap();
        assert!(world.content()[len as usize..].starts_with(b"more again"));
    }
    world.file.end(7).unwrap();
    write_all_at(&*world.file, b"behind", 7, WriteSync::None).unwrap();
    world.file.prepare().unwrap();
    assert!(!world.has_window());
    assert_eq!(world.content().len(), 13);
    // A file that is there already, with an odd length.
    let path = world.dir.path().join("f");
    let file = Posix.open(&path, OpenHow::UPDATE).unwrap();
    let file = MappedFile::new(&file, u64::MAX).unwrap();
    write_all_at(&*file, b"more", 13, WriteSync::None).unwrap();
    file.prepare().unwrap();
    assert!(file.windows().now.is_some());
    let direct = Posix.open(&path, OpenHow::UPDATE.direct());
    assert!(direct.is_ok_and(|file| MappedFile::new(&file, u64::MAX).is_none()));
}

/// A writer, which cuts the file now and then, beside a thread that makes windows as fast as it can.
#[test]
fn windows_are_made_beside_a_writer() {
    let world = World::new();
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                world.file.prepare().unwrap();
                thread::yield_now();
            }
        });
        // Also after a failed assertion.
        let _ends = Ends(&ends);
        let mut all = Vec::new();
        for n in 0..400_usize {
            let record: Vec<u8> = (0..(n * 7919) % 100_000).map(|i| (i * n) as u8).collect();
            let at = all.len() as u64;
            write(&world.file, &record, at).unwrap();
            all.extend_from_slice(&record);
            if n % 40 == 39 {
                let content = world.content();
                assert!(content.starts_with(&all) && content[all.len()..].iter().all(|b| *b == 0));
                all.truncate(all.len() / 2);
                world.file.truncate(all.len() as u64).unwrap();
            }
        }
        world.file.end(all.len() as u64).unwrap();
        thread::yield_now();
        assert!(world.content() == all, "nobody makes it longer again");
    });
}

#[test]
fn files_of_no_descriptor_have_no_windows() {
    #[derive(Debug)]
    struct Wrapped(Arc<dyn File>);
    impl crate::FileWrapper for Wrapped {
        fn inner(&self) -> &dyn File {
            &*self.0
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let file = Posix
        .open(&dir.path().join("f"), OpenHow::CREATE_NEW)
        .unwrap();
    let file: Arc<dyn File> = Arc::new(Wrapped(file));
    assert!(MappedFile::new(&file, u64::MAX).is_none());
}
