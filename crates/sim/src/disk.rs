//! A simulated disk: a file system in memory that models what a power cut may lose.
//!
//! It keeps two states of everything: the state that the process sees, and the durable state. The
//! difference is pending operations. A *crash image* is a new disk in one of the states that a power cut at
//! this moment allows: the durable state plus some of the pending operations.
//!
//! ```text
//!   write_at(None) ──> pending ──sync──> durable        content, per sector
//!   write_at(Dsync) ────────────────────> durable        its sectors, and the size it needs
//!   create, rename, remove, link ──> pending ──sync_dir──> durable     names, per name
//! ```
//!
//! A power cut may leave the following, for each file independently of the others:
//! - each sector ([`Config::sector`], the unit in which a device tears) has any of the contents
//!   that it had since it was last durable; other sectors of the same write may differ;
//! - the size is any that the file had, even with sectors behind it that were never written (zeros), or
//!   without sectors that were (lost);
//! - each name is old or new, in any order, except that operations on one name keep their order, and a
//!   rename is one operation;
//! - with [`Config::garbage`], bytes of a pending write may have any value.
//!
//! Direct I/O is as volatile as buffered I/O, because the device has a cache. A sync that fails leaves the
//! pages clean and unwritten, as Linux does: a later sync succeeds and does not write them. The same holds
//! for the names of a directory: those that were new when its sync failed become durable by chance, or with
//! the next change of the same name.
//!
//! [`SimDisk::kill_image`] is the state after SIGKILL: everything that the process has written, with the
//! same operations pending. Every operation that matters for durability is an *event* with a number;
//! operations on LOG files are not counted. A [`Watcher`] sees each event twice, in flight and after it,
//! and may take images then; [`SimDisk::crash_at`] ends the machine at an event instead.
//!
//! Deterministic: the same calls give the same events, and images depend only on the random generator.

mod content;
mod fault;
mod file;
mod image;
mod inode;
mod lies;
mod names;
mod rot;
mod system;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::clock::Clock;
use base::sync::{Mutex, MutexGuard, PoisonError};
use base::{Error, Result};
use io::{FileSystem, Probe};

use crate::queues::Queues;

pub use fault::{Fault, Repeat};
pub use image::{CrashKind, Moment};
pub use lies::{Lie, Lying};

use fault::Faults;
use inode::Inode;
use names::Names;

/// The properties of the disk.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes that the device writes atomically; a power of two.
    pub sector: u32,
    /// The garbage that pending writes may leave, until [`SimDisk::set_garbage`].
    pub garbage: Garbage,
    /// The end of the names of the files in which they may; all files, if empty.
    pub garbage_in: &'static str,
    /// Whether durable writes of several threads overtake each other more often than by chance: some sleep
    /// before they begin.
    pub overtaking: bool,
    /// The result of [`FileSystem::probe`]; its `direct_alignment` is enforced.
    pub probe: Probe,
}

impl Default for Config {
    /// Sectors of 512 bytes, no garbage, direct I/O aligned to 512.
    fn default() -> Self {
        Self {
            sector: 512,
            garbage: Garbage::None,
            garbage_in: "",
            overtaking: false,
            probe: Probe {
                file_system: "simulated".to_owned(),
                direct_alignment: Some(512),
                physical_block: 512,
                atomic_write_unit: None,
                volatile_cache: Some(true),
                fua: Some(false),
                copy_on_write: false,
                in_memory: false,
            },
        }
    }
}

impl Config {
    /// The same disk with atomic writes of one sector up to `max` bytes: they are never torn, and leave no
    /// garbage.
    #[must_use]
    pub fn with_atomic_writes(mut self, max: u32) -> Self {
        self.probe.atomic_write_unit = Some((self.sector, max));
        self
    }

    /// The same disk with another sector, which is also the alignment of direct I/O and the physical block.
    #[must_use]
    pub fn with_sector(mut self, bytes: u32) -> Self {
        self.sector = bytes;
        self.probe.direct_alignment = Some(bytes);
        self.probe.physical_block = bytes;
        self
    }
}

/// The content that a write in flight may leave, besides the old and the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garbage {
    /// No other: sectors are atomic.
    None,
    /// Any content in the bytes that it writes; the rest of the sector is kept.
    WrittenBytes,
    /// Any content in the whole sector: a device that destroys the sectors that it rewrites.
    Sector,
}

/// An operation that matters for durability.
#[derive(Clone, Debug)]
pub struct Event {
    /// Number of the event on its disk, from 1.
    pub number: u64,
    /// The operation.
    pub act: Act,
    /// The file or directory.
    pub path: Arc<Path>,
    /// Offset in bytes; 0 for operations on names.
    pub offset: u64,
    /// Length in bytes; 0 for operations on names.
    pub len: u64,
}

impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{} {:?} {}", self.number, self.act, self.path.display())?;
        if self.len > 0 {
            write!(f, " {}+{}", self.offset, self.len)?;
        }
        Ok(())
    }
}

/// The operations on a disk. `Read`, `Open` and `List` change nothing and are not events, but faults can
/// hit them too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the call of the same name")]
pub enum Act {
    Read,
    Open,
    List,
    Create,
    Write,
    WriteDsync,
    Sync,
    Truncate,
    Allocate,
    Zero,
    CreateDir,
    Rename,
    Remove,
    Link,
    SyncDir,
}

impl Act {
    fn is_event(self) -> bool {
        !matches!(self, Self::Read | Self::Open | Self::List)
    }
}

/// When the watcher is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The operation has begun: its changes are pending, and its promise is not fulfilled yet.
    InFlight,
    /// The operation has returned.
    After,
}

/// Sees every event, while the disk is locked.
pub trait Watcher: Send + Sync {
    /// Called twice for each event. Must not use the disk itself, only `moment`.
    fn at(&self, moment: &Moment<'_>);
}

/// The moment within an event at which the machine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashWhen {
    /// Nothing of it has happened.
    Before,
    /// In flight.
    During,
    /// It has happened, but the caller is not told.
    After,
}

/// A simulated disk. Clones share it.
#[derive(Clone, Debug)]
pub struct SimDisk {
    core: Arc<Core>,
}

#[derive(Debug)]
struct Core {
    config: Config,
    state: Mutex<State>,
    /// Number of durable writes that could have slept, see [`Config::overtaking`].
    overtakings: AtomicU64,
    queues: Arc<Queues>,
}

/// The content of the disk.
struct State {
    inodes: Vec<Inode>,
    names: Names,
    locked: Vec<std::path::PathBuf>,
    /// Orders the pending operations.
    sequence: u64,
    events: u64,
    calls: u64,
    trace: Vec<Event>,
    faults: Faults,
    crash: Option<(u64, CrashWhen)>,
    crashed: bool,
    /// Whether nothing becomes durable any more.
    fading: bool,
    watcher: Option<Arc<dyn Watcher>>,
    micros: u64,
    garbage: Garbage,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} events, crashed: {}", self.events, self.crashed)
    }
}

/// With [`Config::overtaking`], one durable write in this many sleeps, and for how long.
const LINGERING: u64 = 3;
const LINGER: Duration = Duration::from_micros(200);

/// Number of events that [`SimDisk::trace`] keeps.
const TRACE_EVENTS_MAX: usize = 4096;

impl State {
    fn new(inodes: Vec<Inode>, names: Names, garbage: Garbage) -> Self {
        Self {
            garbage,
            inodes,
            names,
            locked: Vec::new(),
            sequence: 0,
            events: 0,
            calls: 0,
            trace: Vec::new(),
            faults: Faults::default(),
            crash: None,
            crashed: false,
            fading: false,
            watcher: None,
            micros: 1_700_000_000_000_000,
        }
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn check_alive(&self, what: Act, path: &Path) -> Result<()> {
        if self.crashed {
            Err(crashed(what, path))
        } else {
            Ok(())
        }
    }
}

fn crashed(what: Act, path: &Path) -> Error {
    let cause = std::io::Error::other("the simulated machine has crashed");
    Error::io(&format!("{what:?}"), path, cause)
}

fn not_found(what: Act, path: &Path) -> Error {
    os_error(what, path, 2)
}

/// The error of the system call with this `errno`.
fn os_error(what: Act, path: &Path, errno: i32) -> Error {
    let name = format!("{what:?}").to_lowercase();
    Error::io(&name, path, std::io::Error::from_raw_os_error(errno))
}

/// LOG files are for people, so their operations have no event numbers.
fn is_counted(path: &Path) -> bool {
    !path
        .file_name()
        .is_some_and(|n| n.to_string_lossy().starts_with("LOG"))
}

/// An operation, as its caller describes it.
struct Call<'a> {
    act: Act,
    path: &'a Arc<Path>,
    offset: u64,
    len: u64,
}

impl SimDisk {
    /// An empty disk with the directory `/`.
    pub fn new(config: Config) -> Self {
        assert!(config.sector.is_power_of_two(), "sector {}", config.sector);
        let state = State::new(Vec::new(), Names::default(), config.garbage);
        Self::with_state(config, state)
    }

    fn with_state(config: Config, state: State) -> Self {
        let state = Mutex::new(state);
        Self {
            core: Arc::new(Core {
                config,
                state,
                overtakings: AtomicU64::new(0),
                queues: Arc::default(),
            }),
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.core
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk as the engine's `Env` takes it.
    pub fn shared(&self) -> Arc<dyn FileSystem> {
        Arc::new(self.clone())
    }

    /// The properties of the disk.
    pub fn config(&self) -> &Config {
        &self.core.config
    }

    /// Changes the garbage that later writes may leave, here and in images of this disk. Pending writes
    /// keep the setting of their time.
    pub fn set_garbage(&self, garbage: Garbage) {
        let mut state = self.lock_state();
        let old = std::mem::replace(&mut state.garbage, garbage);
        if old != garbage {
            state.inodes.iter_mut().for_each(|i| i.keep_garbage(old));
        }
    }

    /// Makes all queues of reads fail when they are waited for, after `waits` more times; with `None` they work again.
    pub fn fail_queues(&self, waits: Option<u64>) {
        self.core.queues.fail_after(waits);
    }

    /// Makes a third of the blocks readable without a queue, as if a page cache had them.
    pub fn set_page_cache(&self, on: bool) {
        self.core.queues.set_cached(on);
    }

    /// How many reads queues have done.
    pub fn queued_reads(&self) -> u64 {
        self.core.queues.done()
    }

    /// Number of the last event.
    pub fn events(&self) -> u64 {
        self.lock_state().events
    }

    /// Number of the last operation that a fault could hit: events, reads, opens, lists.
    pub fn calls(&self) -> u64 {
        self.lock_state().calls
    }

    /// Ends the machine at event `number`: it and everything later fails. Images have the state of that
    /// moment.
    pub fn crash_at(&self, number: u64, when: CrashWhen) {
        self.lock_state().crash = Some((number, when));
    }

    /// Like [`SimDisk::crash_at`] for the n-th event from now, counting from 1, after its effect.
    pub fn set_crash_after(&self, n: u64) {
        let mut state = self.lock_state();
        state.crash = Some((state.events + n, CrashWhen::After));
    }

    /// Ends the machine now.
    pub fn crash_now(&self) {
        self.lock_state().crashed = true;
    }

    /// Whether the machine has ended.
    pub fn is_crashed(&self) -> bool {
        self.lock_state().crashed
    }

    /// The power fails: from now on nothing becomes durable, whatever syncs report. Later operations are
    /// pending in a [`SimDisk::crash_image`], like calls that were on their way when the power failed.
    pub fn fade(&self) {
        self.lock_state().fading = true;
    }

    /// Makes operation `n` from now fail, counting from 1, and with [`Repeat::Forever`] every later one;
    /// operations that cannot fail this way are skipped.
    pub fn fail_at(&self, n: u64, fault: Fault, repeat: Repeat) {
        let mut state = self.lock_state();
        let at = state.calls + n;
        state.faults.add(at, fault, repeat);
    }

    /// Makes the next operation fail for which `which` is true, and with [`Repeat::Forever`] all of them;
    /// operations that cannot fail this way are skipped.
    pub fn fail_on(
        &self,
        fault: Fault,
        repeat: Repeat,
        which: impl Fn(Act, &Path) -> bool + Send + 'static,
    ) {
        self.lock_state().faults.aim(Box::new(which), fault, repeat);
    }

    /// Removes all faults: every operation succeeds from now on.
    pub fn clear_faults(&self) {
        self.lock_state().faults.clear();
    }

    /// The first operation that an injected fault has hit, and its file.
    pub fn failed(&self) -> Option<(Act, std::path::PathBuf)> {
        self.lock_state().faults.hit()
    }

    /// Calls `watcher` at every event from now on.
    pub fn watch(&self, watcher: Arc<dyn Watcher>) {
        self.lock_state().watcher = Some(watcher);
    }

    /// Ends [`SimDisk::watch`].
    pub fn unwatch(&self) {
        self.lock_state().watcher = None;
    }

    /// The last few thousand events.
    pub fn trace(&self) -> Vec<Event> {
        self.lock_state().trace.clone()
    }

    /// Executes an operation: counts it, injects faults, lets `pend` change the state that the process
    /// sees, and `commit` the durable state.
    fn act<T>(
        &self,
        call: &Call<'_>,
        pend: impl FnOnce(&mut State, Option<Fault>) -> Result<T>,
        commit: impl FnOnce(&mut State, &T),
    ) -> Result<T> {
        let mut state = self.lock_state();
        let state = &mut *state;
        state.check_alive(call.act, call.path)?;
        let counted = is_counted(call.path);
        let mut fault = None;
        if counted {
            state.calls += 1;
            fault = state.faults.meet(state.calls, call.act, call.path);
        }
        let event = (counted && call.act.is_event()).then(|| state.event(call));
        let when = event
            .as_ref()
            .zip(state.crash)
            .and_then(|(e, (n, when))| (e.number >= n).then_some(when));
        if when == Some(CrashWhen::Before) {
            state.crashed = true;
        }
        state.check_alive(call.act, call.path)?;
        let value = pend(state, fault)?;
        self.show(state, event.as_ref(), Phase::InFlight);
        if when == Some(CrashWhen::During) {
            state.crashed = true;
        }
        state.check_alive(call.act, call.path)?;
        if !state.fading {
            commit(state, &value);
        }
        self.show(state, event.as_ref(), Phase::After);
        state.crashed |= when.is_some();
        state.check_alive(call.act, call.path)?;
        Ok(value)
    }

    /// Sleeps now and then, see [`Config::overtaking`].
    fn linger(&self) {
        let n = self.core.overtakings.fetch_add(1, Ordering::Relaxed);
        if n.is_multiple_of(LINGERING) {
            base::sync::thread::sleep(LINGER);
        }
    }

    fn show(&self, state: &State, event: Option<&Event>, phase: Phase) {
        if let (Some(event), Some(watcher)) = (event, &state.watcher) {
            watcher.at(&Moment::new(&self.core.config, state, event, phase));
        }
    }

    /// An operation on names: pending until the directory is synced.
    fn name_act(
        &self,
        act: Act,
        path: &Path,
        pend: impl FnOnce(&mut State, Option<Fault>) -> Result<()>,
    ) -> Result<()> {
        let path: Arc<Path> = Arc::from(path);
        let call = Call {
            act,
            path: &path,
            offset: 0,
            len: 0,
        };
        let pend = |state: &mut State, fault: Option<Fault>| {
            Fault::refuse(fault, act, &path)?;
            pend(state, fault)
        };
        self.act(&call, pend, |_, ()| {})
    }
}

impl State {
    fn event(&mut self, call: &Call<'_>) -> Event {
        self.events += 1;
        let event = Event {
            number: self.events,
            act: call.act,
            path: Arc::clone(call.path),
            offset: call.offset,
            len: call.len,
        };
        if self.trace.len() >= TRACE_EVENTS_MAX {
            self.trace.drain(..TRACE_EVENTS_MAX / 2);
        }
        self.trace.push(event.clone());
        event
    }

    fn add_file(&mut self, path: &Path) -> Result<usize> {
        self.names.check_parent(Act::Create, path)?;
        self.inodes.push(Inode::default());
        let inode = self.inodes.len() - 1;
        let sequence = self.next_sequence();
        self.names.change(sequence, &[(path, Some(inode))], path);
        Ok(inode)
    }
}

/// A clock that advances by a microsecond each time it is read, and by the time that is slept.
#[derive(Debug, Default)]
pub struct SimClock {
    micros: AtomicU64,
}

impl SimClock {
    /// A clock as the engine's `Env` wants it.
    pub fn shared() -> Arc<dyn Clock> {
        Arc::new(Self::default())
    }

    /// Microseconds so far.
    fn look(&self) -> u64 {
        #[cfg(shuttle)]
        let slept = base::sync::time::now_nanos() / 1000;
        #[cfg(not(shuttle))]
        let slept = 0;
        slept + self.micros.fetch_add(1, Ordering::Relaxed)
    }
}

impl Clock for SimClock {
    fn wall_micros(&self) -> u64 {
        1_700_000_000_000_000 + self.look()
    }

    fn monotonic_nanos(&self) -> u64 {
        self.look() * 1000
    }

    fn sleep(&self, time: Duration) {
        #[cfg(shuttle)]
        base::sync::thread::sleep(time);
        #[cfg(not(shuttle))]
        {
            let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            self.micros.fetch_add(micros, Ordering::Relaxed);
            base::sync::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests;
