//! Tracks what each thread does since when, and ends the process if something takes too long.
//!
//! A thread notes its current operation in its [`Slot`]. A watchdog checks all slots. If an operation
//! exceeds the bound, it prints the table and the stacks of all threads, as `gdb` shows them, and ends the
//! process.

use std::io::Write;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use base::clock::{Clock, SystemClock};
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::thread::{Builder, JoinHandle};
use base::sync::{Mutex, PoisonError};

use super::trouble::Injected;
use crate::disk::SimDisk;

/// How often the watchdog checks.
const LOOK: Duration = Duration::from_millis(250);

/// Panics that were not injected.
static UNEXPECTED: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());

/// The last lines to be printed at a failure.
static NOTES: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());

/// Number of lines that are kept.
const NOTES_MAX: usize = 40;

/// Keeps a line for the report of a failure.
pub(super) fn note(line: String) {
    let mut notes = NOTES
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if notes.len() >= NOTES_MAX {
        notes.remove(0);
    }
    notes.push(line);
}

/// The lines that were kept.
pub(super) fn notes() -> String {
    let notes = NOTES
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    notes.join("\n  ")
}

/// The current operation of a thread.
#[derive(Clone, Copy, Debug)]
struct Doing {
    what: &'static str,
    since_nanos: u64,
}

/// The entry of a thread.
pub(super) struct Slot {
    name: String,
    doing: Mutex<Option<Doing>>,
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    slots: Mutex<Vec<Arc<Slot>>>,
    operations: AtomicU64,
    longest: Mutex<(u64, &'static str)>,
    repeat: Mutex<String>,
    context: Mutex<String>,
    disk: Mutex<Option<SimDisk>>,
    dump: Option<PathBuf>,
    bound_nanos: u64,
}

/// The table of all threads, and the watchdog over it.
pub struct Watch {
    shared: Arc<Shared>,
    end: Option<(Sender<()>, JoinHandle<()>)>,
}

fn locked<T>(mutex: &Mutex<T>) -> base::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slot {
    /// Runs an operation under the watchdog. Returns `None` if a panic that was injected into user code
    /// came through; any other panic continues.
    pub(super) fn run<T>(&self, what: &'static str, f: impl FnOnce() -> T) -> Option<T> {
        let begun = self.shared.clock.monotonic_nanos();
        *locked(&self.doing) = Some(Doing {
            what,
            since_nanos: begun,
        });
        let done = catch_unwind(AssertUnwindSafe(f));
        *locked(&self.doing) = None;
        self.shared.operations.fetch_add(1, Ordering::Relaxed);
        let took = self.shared.clock.monotonic_nanos() - begun;
        let mut longest = locked(&self.shared.longest);
        if took > longest.0 {
            *longest = (took, what);
        }
        drop(longest);
        match done {
            Ok(value) => Some(value),
            Err(payload) if payload.is::<Injected>() => None,
            Err(payload) => std::panic::resume_unwind(payload),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.end.take() {
            drop(sender);
            drop(thread.join());
        }
    }
}

impl Watch {
    /// Starts the watchdog: an operation longer than `bound` ends the process. At a failure, the disk is
    /// copied to `dump`.
    pub fn start(bound: Duration, dump: Option<PathBuf>) -> std::io::Result<Self> {
        std::panic::set_hook(Box::new(note_panic));
        let shared = Arc::new(Shared {
            clock: SystemClock::shared(),
            slots: Mutex::default(),
            operations: AtomicU64::new(0),
            longest: Mutex::new((0, "nothing")),
            repeat: Mutex::default(),
            context: Mutex::default(),
            disk: Mutex::default(),
            dump,
            bound_nanos: bound.as_nanos() as u64,
        });
        let (sender, receiver) = channel::<()>();
        let watched = Arc::clone(&shared);
        let thread = Builder::new().name("watchdog".to_owned()).spawn(move || {
            while receiver.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                watched.look();
            }
        })?;
        Ok(Self {
            shared,
            end: Some((sender, thread)),
        })
    }

    /// Sets the command that repeats what is done from now on.
    pub fn set_repeat(&self, command: String) {
        *locked(&self.shared.repeat) = command;
    }

    /// Sets the options that are used, for the report.
    pub(super) fn set_context(&self, text: String) {
        *locked(&self.shared.context) = text;
    }

    /// The options that are used.
    pub(super) fn context(&self) -> String {
        locked(&self.shared.context).clone()
    }

    /// Sets the disk that is copied at a failure.
    pub(super) fn set_disk(&self, disk: SimDisk) {
        *locked(&self.shared.disk) = Some(disk);
    }

    /// Copies the disk, if that was requested.
    pub(super) fn dump(&self) {
        self.shared.dump();
    }

    /// Operations so far.
    pub fn operations(&self) -> u64 {
        self.shared.operations.load(Ordering::Relaxed)
    }

    /// The longest operation so far, in milliseconds, and what it was.
    pub fn longest(&self) -> (u64, &'static str) {
        let (nanos, what) = *locked(&self.shared.longest);
        (nanos / 1_000_000, what)
    }

    /// A new entry.
    pub(super) fn slot(&self, name: &str) -> Arc<Slot> {
        let slot = Arc::new(Slot {
            name: name.to_owned(),
            doing: Mutex::new(None),
            shared: Arc::clone(&self.shared),
        });
        locked(&self.shared.slots).push(Arc::clone(&slot));
        slot
    }

    /// Forgets all entries.
    pub(super) fn clear(&self) {
        locked(&self.shared.slots).clear();
    }

    /// The state of all threads, as a table.
    pub(super) fn table(&self) -> String {
        self.shared.table()
    }
}

impl Shared {
    fn look(&self) {
        let now = self.clock.monotonic_nanos();
        let slots = locked(&self.slots).clone();
        for slot in slots {
            let doing = *locked(&slot.doing);
            if let Some(d) = doing
                && now.saturating_sub(d.since_nanos) > self.bound_nanos
            {
                self.give_up(&slot.name, d.what);
            }
        }
    }

    fn table(&self) -> String {
        let now = self.clock.monotonic_nanos();
        let line = |slot: &Arc<Slot>| match *locked(&slot.doing) {
            Some(d) => {
                let seconds = now.saturating_sub(d.since_nanos) as f64 / 1e9;
                format!("  {:12} {} for {seconds:.1} s\n", slot.name, d.what)
            }
            None => format!("  {:12} between operations\n", slot.name),
        };
        locked(&self.slots).iter().map(line).collect()
    }

    fn dump(&self) {
        let (Some(dir), Some(disk)) = (&self.dump, &*locked(&self.disk)) else {
            return;
        };
        match disk.export(dir) {
            Ok(()) => eprintln!("the disk is in {}", dir.display()),
            Err(e) => eprintln!("the disk cannot be copied: {e}"),
        }
    }

    /// Prints everything, and ends the process. It does not use `eprintln`, which a test would capture.
    fn give_up(&self, name: &str, what: &str) {
        let bound = self.bound_nanos as f64 / 1e9;
        let text = format!(
            "\nchaos: FAILED: {what} of thread {name} takes longer than {bound} s\n{}\n{}\n\
             panics: {:?}\nlast events:\n  {}\n{}\nrepeat: {}\n",
            self.table(),
            stacks(),
            unexpected_panics(),
            notes(),
            *locked(&self.context),
            *locked(&self.repeat)
        );
        drop(std::io::stderr().write_all(text.as_bytes()));
        self.dump();
        std::process::exit(1);
    }
}

/// The stacks of all threads of this process. gdb writes them to a file first: it stops this process, which
/// therefore could not empty a pipe.
pub(super) fn stacks() -> String {
    let pid = std::process::id().to_string();
    let out = tempfile::NamedTempFile::new();
    let told = out.and_then(|out| {
        Command::new("gdb")
            .args(["-p", &pid, "-batch", "-nx"])
            .args(["-ex", "set print frame-arguments none"])
            .args(["-ex", "thread apply all bt 40"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .stdout(out.reopen()?)
            .status()?;
        std::fs::read_to_string(out.path())
    });
    told.unwrap_or_else(|e| format!("no stacks: gdb: {e}"))
}

/// Keeps the message of a panic, unless it was injected.
fn note_panic(info: &PanicHookInfo<'_>) {
    if info.payload().is::<Injected>() {
        return;
    }
    let thread = std::thread::current();
    let trace = std::backtrace::Backtrace::force_capture();
    let text = format!("{}: {info}\n{trace}", thread.name().unwrap_or("?"));
    eprintln!("{text}");
    let mut all = UNEXPECTED
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    all.push(text);
}

/// The panics since the last call that were not injected.
pub(super) fn unexpected_panics() -> Vec<String> {
    let mut all = UNEXPECTED
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    std::mem::take(&mut *all)
}

/// Names of the database's threads in this process.
pub(super) fn engine_threads() -> Vec<String> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        let name = std::fs::read_to_string(task.ok()?.path().join("comm")).ok()?;
        Some(name.trim().to_owned())
    };
    let all = tasks.filter_map(name);
    all.filter(|n| n.starts_with("ironstone")).collect()
}

/// Resident memory of this process in bytes.
pub(super) fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}
