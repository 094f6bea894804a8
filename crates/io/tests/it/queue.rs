//! Requests in flight: io_uring and threads behave the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::rng::Rng;
use base::sync::thread::JoinHandle;
use base::threads::{Run, SystemThreads, Threads};
use base::{Error, ErrorKind};
use bytes::Bytes;
use io::posix::Posix;
use io::queue::{Act, DEPTH_MAX, Done, Request};
use io::testing::{Faulty, What};
use io::{AlignedBuf, File, FileSystem, OpenHow, Queue, QueueKind, SyncKind, WriteSync};

/// A queue of each kind that the system has.
fn queues(depth: u32) -> Vec<Queue> {
    [QueueKind::Ring, QueueKind::Threads]
        .into_iter()
        .filter_map(|kind| match Queue::new(kind, depth, &SystemThreads) {
            Ok(queue) => {
                assert_eq!(queue.kind(), kind);
                Some(queue)
            }
            Err(e) => {
                println!("skipped: {e}");
                assert_eq!(e.kind(), ErrorKind::NotSupported);
                None
            }
        })
        .collect()
}

fn file(dir: &tempfile::TempDir, name: &str) -> Arc<dyn File> {
    let path = dir.path().join(name);
    Posix.open(&path, OpenHow::CREATE_TRUNCATE).unwrap()
}

fn request(token: u64, file: &Arc<dyn File>, offset: u64, act: Act) -> Request {
    Request {
        token,
        file: Arc::clone(file),
        offset,
        act,
    }
}

fn read(len: usize) -> Act {
    Act::Read(AlignedBuf::zeroed(len, 512).unwrap())
}

fn write(data: &[u8]) -> Act {
    Act::Write(vec![Bytes::copy_from_slice(data)], WriteSync::None)
}

/// All requests in flight, by token.
fn all(queue: &mut Queue) -> BTreeMap<u64, Done> {
    let mut out = Vec::new();
    while !queue.is_empty() {
        queue.wait(1, &mut out).unwrap();
    }
    out.into_iter().map(|d| (d.token, d)).collect()
}

/// Blocks of a file are written and read in no order, each in slices, at every depth.
#[test]
fn what_is_written_is_read() {
    const BLOCK: usize = 1000;
    let dir = tempfile::tempdir().unwrap();
    for depth in [1, 3, 64] {
        for mut queue in queues(depth) {
            let f = file(&dir, "f");
            let mut rng = Rng::new(u64::from(depth));
            let mut expected = vec![0_u8; 50 * BLOCK];
            for round in 0..10_u64 {
                for block in 0..50_u64 {
                    let data: Vec<u8> = (0..BLOCK).map(|_| rng.next_u64() as u8).collect();
                    let at = block as usize * BLOCK;
                    expected[at..at + BLOCK].copy_from_slice(&data);
                    let data = Bytes::from(data);
                    let cut = rng.below(BLOCK as u64) as usize;
                    let slices = vec![data.slice(..cut), Bytes::new(), data.slice(cut..)];
                    let sync = [WriteSync::None, WriteSync::Dsync][usize::from(block == round)];
                    let act = Act::Write(slices, sync);
                    queue.push(request(block, &f, at as u64, act)).unwrap();
                }
                let done = all(&mut queue);
                assert_eq!(done.len(), 50);
                assert!(done.values().all(|d| matches!(d.result, Ok(BLOCK))));
                queue
                    .push(request(99, &f, 0, Act::Sync(SyncKind::Data)))
                    .unwrap();
                queue
                    .push(request(98, &f, 0, Act::Sync(SyncKind::All)))
                    .unwrap();
                for block in 0..50 {
                    let at = block * BLOCK as u64;
                    queue.push(request(block, &f, at, read(BLOCK))).unwrap();
                }
                let done = all(&mut queue);
                assert_eq!(done.len(), 52);
                for (token, d) in done {
                    let n = d.result.unwrap();
                    let Some(buf) = d.buf else {
                        assert!(token > 90 && n == 0);
                        continue;
                    };
                    let at = token as usize * BLOCK;
                    assert!(n == BLOCK && buf[..] == expected[at..at + BLOCK]);
                }
            }
        }
    }
}

#[test]
fn reads_end_with_the_file_and_errors_name_it() {
    let dir = tempfile::tempdir().unwrap();
    let f = file(&dir, "f");
    io::write_all_at(&*f, &[7; 700], 0, WriteSync::None).unwrap();
    let for_reading = Posix.open(f.path(), OpenHow::READ).unwrap();
    for mut queue in queues(8) {
        queue.push(request(1, &f, 600, read(512))).unwrap();
        queue.push(request(2, &f, 9000, read(512))).unwrap();
        queue
            .push(request(3, &for_reading, 0, write(b"x")))
            .unwrap();
        queue.push(request(4, &f, 0, write(b""))).unwrap();
        let done = all(&mut queue);
        let n = |token| done[&token].result.as_ref().ok().copied();
        assert_eq!((n(1), n(2), n(4)), (Some(100), Some(0), Some(0)));
        assert_eq!(done[&1].buf.as_ref().unwrap()[..100], [7; 100]);
        let e = done[&3].result.as_ref().unwrap_err().to_string();
        assert!(
            e.contains("write") && e.contains(dir.path().to_str().unwrap()),
            "{e}"
        );
    }
}

/// `wait` returns when the requested number of requests is done, and returns all completed ones.
#[test]
fn waits_for_no_more_than_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let f = file(&dir, "f");
    for mut queue in queues(16) {
        let mut out = Vec::new();
        queue.wait(3, &mut out).unwrap();
        assert!(out.is_empty(), "there is nothing to wait for");
        for token in 0..10 {
            queue
                .push(request(token, &f, token * 512, write(&[1; 512])))
                .unwrap();
        }
        assert_eq!(queue.len(), 10);
        queue.wait(4, &mut out).unwrap();
        assert!(out.len() >= 4);
        assert_eq!(queue.len() + out.len(), 10);
        queue.wait(100, &mut out).unwrap();
        assert_eq!((out.len(), queue.len()), (10, 0));
    }
}

/// The event is readable when something is done, so that a thread can wait for sockets too.
#[test]
fn the_event_tells_that_something_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let f = file(&dir, "f");
    for mut queue in queues(4) {
        let readable = |queue: &Queue, millis: i64| {
            use rustix::event::{PollFd, PollFlags, Timespec, poll};
            let wait = Timespec {
                tv_sec: millis / 1000,
                tv_nsec: millis % 1000 * 1_000_000,
            };
            let mut fds = [PollFd::from_borrowed_fd(
                queue.event().unwrap(),
                PollFlags::IN,
            )];
            poll(&mut fds, Some(&wait)).unwrap() == 1
        };
        queue.clear_event().unwrap();
        assert!(!readable(&queue, 0));
        queue.push(request(1, &f, 0, write(b"one"))).unwrap();
        queue.submit().unwrap();
        assert!(readable(&queue, 10_000), "{:?}", queue.kind());
        queue.clear_event().unwrap();
        let mut out = Vec::new();
        queue.wait(0, &mut out).unwrap();
        assert_eq!(out.len(), 1);
        assert!(!readable(&queue, 0));
    }
}

/// A dropped queue has completed the requests that it took.
#[test]
fn what_was_taken_is_done_before_the_queue_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    for mut queue in queues(32) {
        let f = file(&dir, "f");
        for token in 0..32 {
            queue
                .push(request(token, &f, token * 4096, write(&[9; 4096])))
                .unwrap();
        }
        drop(queue);
        let content = io::read_file(&Posix, f.path(), 1 << 20).unwrap();
        assert!(content == vec![9; 32 * 4096]);
    }
}

#[test]
fn direct_files_want_their_alignment() {
    let dir = tempfile::tempdir().unwrap();
    if Posix.probe(dir.path()).unwrap().direct_alignment.is_none() {
        println!("no direct I/O here");
        return;
    }
    let how = OpenHow::CREATE_TRUNCATE.direct();
    let f = Posix.open(&dir.path().join("d"), how).unwrap();
    let mut block = AlignedBuf::zeroed(4096, 4096).unwrap();
    block.fill(5);
    let block = Bytes::from(block);
    for mut queue in queues(4) {
        let two = vec![block.clone(), block.clone()];
        queue
            .push(request(1, &f, 0, Act::Write(two, WriteSync::Dsync)))
            .unwrap();
        let odd = vec![block.slice(..100)];
        queue
            .push(request(2, &f, 0, Act::Write(odd, WriteSync::None)))
            .unwrap();
        let done = all(&mut queue);
        assert_eq!(*done[&1].result.as_ref().unwrap(), 8192);
        let e = done[&2].result.as_ref().unwrap_err().to_string();
        assert!(e.contains("length is not aligned"), "{e}");
        let buf = AlignedBuf::zeroed(16384, 4096).unwrap();
        queue.push(request(3, &f, 4096, Act::Read(buf))).unwrap();
        let done = all(&mut queue);
        assert_eq!(
            *done[&3].result.as_ref().unwrap(),
            4096,
            "the file ends there"
        );
        assert!(done[&3].buf.as_ref().unwrap()[..4096] == block[..]);
    }
}

/// Its own methods are called, once each.
#[test]
fn files_that_are_not_the_systems_do_it_themselves() {
    let dir = tempfile::tempdir().unwrap();
    for mut queue in queues(1) {
        let f = file(&dir, "f");
        let own: Arc<dyn File> = Faulty::new(Arc::clone(&f), |call| {
            if call.what == What::Write {
                return Ok(10);
            }
            assert_ne!(call.offset, 13, "as planned");
            Err(Error::aborted("read by the file's own method"))
        });
        queue.push(request(1, &own, 0, read(512))).unwrap();
        queue.push(request(2, &own, 13, read(512))).unwrap();
        queue.push(request(3, &own, 0, write(&[8; 95]))).unwrap();
        assert_eq!(queue.len(), 3);
        let done = all(&mut queue);
        let e = |token| done[&token].result.as_ref().unwrap_err().to_string();
        assert!(e(1).contains("own method"), "{}", e(1));
        assert!(e(2).contains("panicked"), "{}", e(2));
        assert_eq!(*done[&3].result.as_ref().unwrap(), 95);
        assert_eq!(f.len().unwrap(), 95);
    }
}

/// A file that panics when its last owner lets it go.
#[derive(Debug)]
struct Grudging(Arc<dyn File>);

impl io::FileWrapper for Grudging {
    fn inner(&self) -> &dyn File {
        &*self.0
    }
}

impl Drop for Grudging {
    fn drop(&mut self) {
        panic!("as planned");
    }
}

/// The queue is the last owner of the file: its threads go on, and the request is done.
#[test]
fn a_file_may_panic_when_it_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let f = file(&dir, "f");
    f.write_at(&[7; 512], 0, WriteSync::None).unwrap();
    let mut queue = Queue::new(QueueKind::Threads, 8, &SystemThreads).unwrap();
    for token in 0..100 {
        let last: Arc<dyn File> = Arc::new(Grudging(Arc::clone(&f)));
        let request = request(token, &last, 0, read(512));
        drop(last);
        queue.push(request).unwrap();
        let done = all(&mut queue);
        assert_eq!(*done[&token].result.as_ref().unwrap(), 512);
    }
}

/// A system that has a few threads left.
#[derive(Debug)]
struct FewThreads(std::sync::atomic::AtomicUsize);

impl Threads for FewThreads {
    fn start(&self, name: &str, run: Run) -> std::io::Result<JoinHandle<()>> {
        use std::sync::atomic::Ordering::SeqCst;
        let left = self.0.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1));
        if left.is_err() {
            return Err(std::io::Error::from_raw_os_error(11)); // EAGAIN
        }
        SystemThreads.start(name, run)
    }
}

#[test]
fn a_queue_that_cannot_be_made_says_why() {
    for depth in [0, DEPTH_MAX + 1] {
        let e = Queue::new(QueueKind::Auto, depth, &SystemThreads).unwrap_err();
        assert!(e.to_string().contains("must be 1 to 4096"), "{e}");
    }
    let few = |n| FewThreads(std::sync::atomic::AtomicUsize::new(n));
    let e = Queue::new(QueueKind::Threads, 4, &few(0)).unwrap_err();
    assert!(e.to_string().contains("ulimit -u"), "{e}");
    let dir = tempfile::tempdir().unwrap();
    let f = file(&dir, "f");
    let mut queue = Queue::new(QueueKind::Threads, 8, &few(1)).unwrap();
    for token in 0..20 {
        queue.push(request(token, &f, token, write(b"x"))).unwrap();
    }
    assert_eq!(all(&mut queue).len(), 20);
}
