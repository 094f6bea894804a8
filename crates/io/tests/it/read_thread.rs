//! Reads for tasks, by a thread that wakes them: what is asked for comes, and whatever fails is told.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use base::Result;
use base::sync::thread::{self, JoinHandle, Thread};
use base::threads::{Run, SystemThreads, Threads};
use io::posix::Posix;
use io::queue::Done;
use io::{AlignedBuf, AsyncReads, File, FileSystem, OpenHow, ReadIoMode, ReadQueues, WriteSync};

const MODES: [ReadIoMode; 3] = [ReadIoMode::Auto, ReadIoMode::Uring, ReadIoMode::Pool];

/// Counts the threads that run.
#[derive(Debug, Default, Clone)]
struct Counted(Arc<AtomicUsize>);

impl Threads for Counted {
    fn start(&self, name: &str, run: Run) -> std::io::Result<JoinHandle<()>> {
        let count = Arc::clone(&self.0);
        count.fetch_add(1, Ordering::SeqCst);
        let run = move || {
            run();
            count.fetch_sub(1, Ordering::SeqCst);
        };
        SystemThreads.start(name, Box::new(run))
    }
}

fn queues(mode: ReadIoMode, threads: &Counted) -> Option<ReadQueues> {
    let threads = Arc::new(threads.clone());
    match ReadQueues::new(mode, Posix::shared(), threads) {
        Ok((queues, _)) => Some(queues),
        Err(e) => {
            println!("skipped: {e}");
            None
        }
    }
}

fn content() -> Vec<u8> {
    (0..300_000_u32).map(|n| (n / 7) as u8).collect()
}

fn file(dir: &tempfile::TempDir) -> Arc<dyn File> {
    let file = Posix
        .open(&dir.path().join("f"), OpenHow::CREATE_NEW)
        .unwrap();
    io::write_all_at(&*file, &content(), 0, WriteSync::None).unwrap();
    file
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(task: impl Future<Output = T>) -> T {
    let mut task = pin!(task);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

fn push(reads: &mut AsyncReads, token: u64, file: &Arc<dyn File>, (offset, len): (u64, usize)) {
    let buf = AlignedBuf::for_reads(len, file.read_alignment()).unwrap();
    reads.push(token, Arc::clone(file), offset, buf);
}

/// Waits for `count` reads, as a task and as a thread in turns.
fn wait(reads: &mut AsyncReads, count: usize) -> Result<Vec<Done>> {
    let mut all = Vec::new();
    while all.len() < count {
        all.extend(if all.len() % 2 == 0 {
            block_on(poll_fn(|cx| reads.poll_done(cx)))?
        } else {
            reads.wait()?
        });
    }
    Ok(all)
}

/// More reads than the queue takes, of all lengths, some beyond the end of the file, by several tasks at once.
#[test]
fn every_read_comes_once() {
    let dir = tempfile::tempdir().unwrap();
    let (file, content, threads) = (file(&dir), content(), Counted::default());
    for mode in MODES {
        let Some(queues) = queues(mode, &threads) else {
            continue;
        };
        thread::scope(|scope| {
            for task in 0..6_usize {
                let (queues, file, content) = (&queues, &file, &content);
                scope.spawn(move || {
                    for round in 0..20 {
                        let mut reads = queues.unattended().unwrap();
                        for n in 0..200_usize {
                            let (offset, len) = ((n * 1511 + task) as u64, 1 + (n * 37) % 9000);
                            push(&mut reads, n as u64, file, (offset, len));
                            if n % 50 == round {
                                reads.submit();
                            }
                        }
                        let mut seen = [false; 200];
                        for Done { token, result, buf } in wait(&mut reads, 200).unwrap() {
                            let n = token as usize;
                            assert!(!std::mem::replace(&mut seen[n], true));
                            let (offset, len) = (n * 1511 + task, 1 + (n * 37) % 9000);
                            let within = |at: usize| at.min(content.len());
                            let expected = &content[within(offset)..within(offset + len)];
                            assert_eq!(buf.unwrap()[..result.unwrap()], *expected);
                        }
                        // Some are never waited for.
                        push(&mut reads, 0, file, (0, 5000));
                        reads.submit();
                    }
                });
            }
        });
    }
    assert_eq!(threads.0.load(Ordering::SeqCst), 0, "threads are left");
}

/// A file without a descriptor, one that fails, and one that panics.
#[test]
fn a_file_that_fails_fails_its_reads_only() {
    #[derive(Debug)]
    struct Odd(Arc<dyn File>, &'static str);
    impl io::FileWrapper for Odd {
        fn inner(&self) -> &dyn File {
            &*self.0
        }
        fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
            match self.1 {
                "error" => Err(base::Error::aborted("as planned")),
                "panic" => panic!("as planned"),
                _ => self.0.read_at(buf, offset),
            }
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let (plain, threads) = (file(&dir), Counted::default());
    for mode in MODES {
        let Some(queues) = queues(mode, &threads) else {
            continue;
        };
        let mut reads = queues.unattended().unwrap();
        for (token, how) in ["", "error", "panic"].into_iter().enumerate() {
            let odd: Arc<dyn File> = Arc::new(Odd(Arc::clone(&plain), how));
            push(&mut reads, token as u64, &odd, (7000, 20));
        }
        push(&mut reads, 3, &plain, (7000, 20));
        let mut done = wait(&mut reads, 4).unwrap();
        done.sort_by_key(|done| done.token);
        for (done, fine) in done.iter().zip([true, false, false, true]) {
            assert_eq!(done.result.is_ok(), fine, "{done:?}");
        }
    }
}

/// A task that is polled with another waker each time: the last one is woken, whatever the others do.
#[test]
fn the_last_waker_is_woken() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("an executor that panics");
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let (file, threads) = (file(&dir), Counted::default());
    let queues = queues(ReadIoMode::Auto, &threads).unwrap();
    for _ in 0..200 {
        let mut reads = queues.unattended().unwrap();
        push(&mut reads, 1, &file, (0, 4096));
        let waker = Waker::from(Arc::new(Panics));
        if reads
            .poll_done(&mut Context::from_waker(&waker))
            .is_pending()
        {
            assert_eq!(wait(&mut reads, 1).unwrap().len(), 1);
        }
    }
}
