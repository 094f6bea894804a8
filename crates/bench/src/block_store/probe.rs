//! The two parts of a write other than NBD, measured without a store: the log's writes on the
//! copies' disks, and a message between two processes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use base::clock::{Clock, SystemClock};
use io::{AlignedBuf, OpenHow, SyncKind, WriteSync};

use super::fio::Figures;
use super::process::Process;

/// Bytes of a log's batch with one block, if the device's unit is 512.
pub(super) const BATCH_BYTES: u32 = 4608;
/// Batches in each file; the writes wrap around.
const BATCHES: u64 = 4096;
/// Bytes of a message, like a block, and of its answer, like a frame's header.
const MESSAGE_BYTES: usize = 4096;
const ANSWER_BYTES: usize = 64;
/// The most rounds that are kept.
const ROUNDS_MAX: usize = 10_000_000;

/// Three writers of one batch each begin at the same time, past the page cache and durably. A round
/// takes `max(a, min(b, c))`: the leader's write, and the faster one of two followers.
pub(super) fn three_writers(copies: &[PathBuf; 3], seconds: u32) -> Result<Figures, String> {
    let clock = SystemClock::shared();
    let writers = copies
        .iter()
        .zip(1..)
        .map(|(copy, number)| Writer::make(copy, number))
        .collect::<base::Result<Vec<_>>>()
        .map_err(|e| e.to_string())?;
    let [Some(a), Some(b), Some(c)] = [0, 1, 2].map(|n| writers.get(n)) else {
        return Err("three writers are needed".to_owned());
    };
    let gate = Gate {
        clock: &*clock,
        barrier: Barrier::new(3),
        until: clock.monotonic_nanos() + u64::from(seconds) * 1_000_000_000,
        over: AtomicBool::new(false),
    };
    let times = std::thread::scope(|scope| {
        let gate = &gate;
        let followers = [b, c].map(|writer| scope.spawn(move || gate.write(writer, false)));
        let mut all = vec![gate.write(a, true)];
        for follower in followers {
            all.push(
                follower
                    .join()
                    .map_err(|_| "a writer panicked".to_owned())?,
            );
        }
        all.into_iter().collect::<Result<Vec<_>, String>>()
    })?;
    let [Some(a), Some(b), Some(c)] = [0, 1, 2].map(|n| times.get(n)) else {
        return Err("three writers are needed".to_owned());
    };
    let rounds = a.iter().zip(b).zip(c);
    figures(rounds.map(|((a, b), c)| *a.max(b.min(c))).collect())
}

/// One file, and the data that is written to it.
struct Writer {
    path: PathBuf,
    file: std::sync::Arc<dyn io::File>,
    data: AlignedBuf,
}

impl Writer {
    /// Makes a file of zeros, so that nothing is allocated during the measurement.
    fn make(copy: &Path, number: u32) -> base::Result<Self> {
        let path = copy.join(format!("writer-{number}"));
        let fs = io::posix::Posix::shared();
        let unit = fs.probe(copy)?.write_unit().ok_or_else(|| {
            base::Error::not_supported("direct I/O (O_DIRECT) on this file system").file(copy)
        })?;
        let bytes = BATCH_BYTES.next_multiple_of(unit) as usize;
        let file = fs.open(&path, OpenHow::CREATE_TRUNCATE)?;
        file.zero(0, BATCHES * bytes as u64)?;
        file.sync(SyncKind::All)?;
        fs.sync_dir(copy)?;
        Ok(Self {
            file: fs.open(&path, OpenHow::UPDATE.direct())?,
            data: AlignedBuf::zeroed(bytes, unit.max(4096) as usize)?,
            path,
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        std::fs::remove_file(&self.path).ok(); // otherwise it is removed with the folder
    }
}

/// A barrier for the three writers.
struct Gate<'a> {
    clock: &'a dyn Clock,
    barrier: Barrier,
    /// The end of the time in which rounds may begin.
    until: u64,
    over: AtomicBool,
}

impl Gate<'_> {
    /// The time of each round's write, nanoseconds. The writer that `decides` determines whether
    /// there is another round; the others read this between two barriers, so that all do the same
    /// number of rounds.
    fn write(&self, writer: &Writer, decides: bool) -> Result<Vec<u64>, String> {
        let mut nanos = Vec::new();
        let mut failed = None;
        loop {
            if decides {
                let over = self.clock.monotonic_nanos() >= self.until || nanos.len() >= ROUNDS_MAX;
                self.over.store(over, Ordering::Release);
            }
            self.barrier.wait();
            if self.over.load(Ordering::Acquire) {
                break;
            }
            let offset = nanos.len() as u64 % BATCHES * writer.data.len() as u64;
            let begun = self.clock.monotonic_nanos();
            if failed.is_none() {
                let wrote = io::write_all_at(&*writer.file, &writer.data, offset, WriteSync::Dsync);
                failed = wrote.err();
            }
            nanos.push(self.clock.monotonic_nanos() - begun);
            self.barrier.wait();
        }
        failed.map_or(Ok(nanos), |e| Err(e.to_string()))
    }
}

/// Sends messages to another process for some seconds, one after the other, over TCP on the
/// loopback interface; each is answered when it is complete.
pub(super) fn ping(seconds: u32, dir: &Path) -> Result<Figures, String> {
    let clock = SystemClock::shared();
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let arguments = ["bench-block", "echo"].map(str::to_owned);
    let mut process = Process::start(&program, &arguments, &dir.join("echo.log"))?;
    let port: u16 = process.wait(30, |p| {
        p.said()
            .lines()
            .find_map(|line| line.strip_prefix(PORT)?.parse().ok())
    })?;
    let failed = |e: std::io::Error| format!("the other process: {e}");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let (message, mut answer) = ([7; MESSAGE_BYTES], [0; ANSWER_BYTES]);
    let mut nanos = Vec::new();
    let until = clock.monotonic_nanos() + u64::from(seconds) * 1_000_000_000;
    let mut last = clock.monotonic_nanos();
    while last < until && nanos.len() < ROUNDS_MAX {
        stream.write_all(&message).map_err(failed)?;
        stream.read_exact(&mut answer).map_err(failed)?;
        let now = clock.monotonic_nanos();
        nanos.push(now - last);
        last = now;
    }
    figures(nanos)
}

/// The text before the port in the other process's output.
const PORT: &str = "port ";

/// The other process: answers the messages of one connection until it is closed.
pub(super) fn echo() -> Result<(), String> {
    let failed = |e: std::io::Error| format!("echo: {e}");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    println!("{PORT}{}", listener.local_addr().map_err(failed)?.port());
    let (mut stream, _) = listener.accept().map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let (mut message, answer) = ([0; MESSAGE_BYTES], [7; ANSWER_BYTES]);
    while stream.read_exact(&mut message).is_ok() {
        if stream.write_all(&answer).is_err() {
            break;
        }
    }
    Ok(())
}

/// Percentiles by the nearest rank.
fn figures(mut nanos: Vec<u64>) -> Result<Figures, String> {
    if nanos.is_empty() {
        return Err("no round was measured".to_owned());
    }
    let sum: u64 = nanos.iter().sum();
    nanos.sort_unstable();
    let rank = |share: f64| {
        let at = (nanos.len() as f64 * share).ceil() as usize;
        let at = at.clamp(1, nanos.len()) - 1;
        nanos.get(at).copied().unwrap_or_default() as f64 / 1000.0
    };
    let mean = sum as f64 / 1000.0 / nanos.len() as f64;
    Ok(Figures {
        operations: nanos.len() as u64,
        per_second: 1e6 / mean,
        mean,
        p50: rank(0.5),
        p99: rank(0.99),
        p99_9: rank(0.999),
        max: rank(1.0),
        ..Figures::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_writers_do_the_same_rounds() {
        let dir = std::env::temp_dir().join(format!("bench-block-probe-{}", std::process::id()));
        let copies = [1, 2, 3].map(|n| dir.join(n.to_string()));
        for copy in &copies {
            std::fs::create_dir_all(copy).unwrap();
        }
        match three_writers(&copies, 1) {
            Ok(figures) => assert!(figures.operations > 0 && figures.p50 > 0.0),
            // The folder may be on tmpfs.
            Err(e) => assert!(e.contains("O_DIRECT"), "{e}"),
        }
        assert!(!copies[0].join("writer-1").exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn ranks_are_exact() {
        let of = figures((1..=1000).rev().map(|n| n * 1000).collect()).unwrap();
        assert!((of.p50 - 500.0).abs() < 1e-9 && (of.p99_9 - 999.0).abs() < 1e-9);
        assert!(figures(Vec::new()).is_err());
    }
}
