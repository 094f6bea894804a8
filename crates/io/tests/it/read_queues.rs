//! Queues that are lent: never more than there may be, and given back whatever happens.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use base::sync::thread::JoinHandle;
use base::threads::{Run, SystemThreads, Threads};
use base::{Error, ErrorKind, Result};
use io::posix::Posix;
use io::queue::{Act, Backend, Done, Request};
use io::{File, FileSystem, OpenHow, ReadIoMode, ReadQueues, WriteSync};

fn queues(mode: ReadIoMode) -> Option<ReadQueues> {
    match ReadQueues::new(mode, Posix::shared(), SystemThreads::shared()) {
        Ok((queues, _)) => Some(queues),
        Err(e) => {
            assert_eq!(
                (mode, e.kind()),
                (ReadIoMode::Uring, ErrorKind::NotSupported)
            );
            println!("skipped: {e}");
            None
        }
    }
}

fn read(token: u64, file: &Arc<dyn File>, offset: u64, buf: io::AlignedBuf) -> Request {
    Request {
        token,
        file: Arc::clone(file),
        offset,
        act: Act::Read(buf),
    }
}

/// How many queues can be lent at once.
fn most(queues: &ReadQueues) -> usize {
    let mut lent = Vec::new();
    while let Some(queue) = queues.lend() {
        lent.push(queue);
        assert!(lent.len() < 10_000);
    }
    lent.len()
}

#[test]
fn as_many_as_there_may_be_are_lent_again_and_again() {
    let processors = std::thread::available_parallelism().unwrap().get();
    for mode in [ReadIoMode::Auto, ReadIoMode::Uring, ReadIoMode::Pool] {
        let Some(queues) = queues(mode) else { continue };
        assert!(queues.is_on());
        for _ in 0..3 {
            assert_eq!(most(&queues), 2 * processors);
        }
    }
    let off = queues(ReadIoMode::Off).unwrap();
    assert!(!off.is_on() && off.lend().is_none());
}

/// Reads that were not waited for are waited for when the queue is given back; the next one who gets it finds it empty.
#[test]
fn a_queue_comes_back_empty() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let file = Posix.open(&path, OpenHow::CREATE_NEW).unwrap();
    let content: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
    io::write_all_at(&*file, &content, 0, WriteSync::None).unwrap();
    for mode in [ReadIoMode::Auto, ReadIoMode::Pool] {
        let Some(queues) = queues(mode) else { continue };
        for round in 0..50 {
            let mut lent = queues.lend().unwrap();
            assert!(lent.is_empty());
            for token in 0..40 {
                let buf = lent
                    .buffer(1 + (token as usize * 37 + round) % 5000, 1)
                    .unwrap();
                lent.push(read(token, &file, token * 2000, buf)).unwrap();
            }
            let mut done = Vec::new();
            lent.wait(round % 40, &mut done).unwrap();
            for Done { token, result, buf } in done {
                let buf = buf.unwrap();
                assert_eq!(result.unwrap(), buf.len());
                let at = token as usize * 2000;
                assert_eq!(*buf, content[at..at + buf.len()]);
                lent.reuse(buf);
            }
        }
    }
}

/// A system on which no thread can be started, until it is told otherwise.
#[derive(Debug, Default)]
struct NoThreads(AtomicBool);

impl Threads for NoThreads {
    fn start(&self, name: &str, run: Run) -> std::io::Result<JoinHandle<()>> {
        if self.0.load(Ordering::Relaxed) {
            return SystemThreads.start(name, run);
        }
        Err(std::io::Error::from_raw_os_error(11))
    }
}

#[test]
fn without_threads_there_is_no_queue_and_it_is_tried_again() {
    let threads = Arc::new(NoThreads::default());
    let (queues, _) = ReadQueues::new(ReadIoMode::Pool, Posix::shared(), threads.clone()).unwrap();
    for _ in 0..100 {
        assert!(queues.lend().is_none());
    }
    threads.0.store(true, Ordering::Relaxed);
    assert!(most(&queues) >= 2);
}

/// A file system whose queues fail, and count how many of them exist.
#[derive(Debug, Clone, Default)]
struct Broken {
    exist: Arc<AtomicUsize>,
    fails: Arc<AtomicBool>,
}

#[derive(Debug)]
struct BrokenQueue(Broken, VecDeque<Request>);

impl io::FileSystemWrapper for Broken {
    fn inner(&self) -> &dyn FileSystem {
        &Posix
    }

    fn queue(&self) -> Option<Box<dyn Backend>> {
        self.exist.fetch_add(1, Ordering::Relaxed);
        Some(Box::new(BrokenQueue(self.clone(), VecDeque::new())))
    }
}

impl Drop for BrokenQueue {
    fn drop(&mut self) {
        self.0.exist.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Backend for BrokenQueue {
    fn takes_any_file(&self) -> bool {
        true
    }

    fn flying(&self) -> usize {
        self.1.len()
    }

    fn push(&mut self, request: Request) -> Result<()> {
        self.1.push_back(request);
        Ok(())
    }

    fn submit(&mut self) -> Result<()> {
        Ok(())
    }

    fn wait(&mut self, _: usize, out: &mut VecDeque<Done>) -> Result<()> {
        if self.0.fails.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::IoError, "broken"));
        }
        out.extend(self.1.drain(..).map(|request| Done {
            token: request.token,
            result: Ok(0),
            buf: None,
        }));
        Ok(())
    }
}

/// A queue that fails while it is given back is dropped, and its place is free again.
#[test]
fn a_broken_queue_leaves_its_place() {
    let fs = Broken::default();
    let file = Posix
        .open(Path::new("/proc/self/exe"), OpenHow::READ)
        .unwrap();
    let (queues, _) = ReadQueues::new(
        ReadIoMode::Auto,
        Arc::new(fs.clone()),
        SystemThreads::shared(),
    )
    .unwrap();
    let all = most(&queues);
    assert_eq!(fs.exist.load(Ordering::Relaxed), all);
    for broken in [true, false, true] {
        fs.fails.store(broken, Ordering::Relaxed);
        let mut lent = queues.lend().unwrap();
        let buf = lent.buffer(10, 1).unwrap();
        lent.push(read(1, &file, 0, buf)).unwrap();
        drop(lent);
        let left = fs.exist.load(Ordering::Relaxed);
        assert_eq!(left, if broken { all - 1 } else { all });
        fs.fails.store(false, Ordering::Relaxed);
        assert_eq!(most(&queues), all);
    }
    drop(queues);
    assert_eq!(fs.exist.load(Ordering::Relaxed), 0);
}
