//! Clients that read and write while processes are killed, and the history of their answers.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use base::clock::Clock;
use base::rng::Rng;
use sim::cluster::history::{Action, History, Outcome, Ticket};
use sim::cluster::linear::{self, Tally};

use super::client::{Client, Failure};

/// The number of connections; each has one request in progress.
const CLIENTS: u64 = 8;
/// The number of blocks that they use, spread over the volume.
pub(super) const BLOCKS: u64 = 256;
/// The longest pause between two requests of a connection, µs.
const PAUSE_MICROS_MAX: u64 = 4000;
/// The pause before a connection is tried again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(10);
/// The number of the client that does not use the NBD server.
pub(super) const PROBE: u64 = 1000;

/// The gaps in an interval, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gaps {
    /// The longest time without any answer, without one to a read, and without one to a write.
    pub(super) any: f64,
    pub(super) reads: f64,
    pub(super) writes: f64,
    /// The time of the slowest operation.
    pub(super) slowest: f64,
}

impl Gaps {
    /// The longest of the three gaps.
    pub(super) fn worst(&self) -> f64 {
        self.any.max(self.reads).max(self.writes)
    }
}

struct State {
    history: History,
    last_value: u64,
    /// Operations without an answer, with the server that they were sent to.
    lost: Vec<(u64, Ticket)>,
    answers: u64,
    wrong: Option<String>,
}

/// The state that the clients share.
pub(super) struct Shared {
    clock: Arc<dyn Clock>,
    socket: PathBuf,
    volume_bytes: u64,
    state: Mutex<State>,
    is_stopped: AtomicBool,
    /// The number of the current NBD server: each fences the one before.
    server: AtomicU64,
}

impl Shared {
    /// The offset of a block in the volume.
    pub(super) fn offset(&self, block: u64) -> u64 {
        let stride = self.volume_bytes / BLOCKS;
        // Neighbouring blocks are at different places of their stripe units.
        block * stride + (block % (stride / 4096).max(1)) * 4096
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the begin of a read that does not go through the NBD server.
    pub(super) fn begin_probe(&self, block: u64) -> Ticket {
        let mut state = self.lock();
        let now = self.clock.monotonic_nanos();
        state.history.read(PROBE, block, now)
    }

    /// Records its answer.
    pub(super) fn end_probe(&self, ticket: Ticket, value: u64) {
        let mut state = self.lock();
        let now = self.clock.monotonic_nanos();
        state.history.returned(ticket, value, now);
    }
}

/// The running clients.
pub(super) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts the clients, which run until the end.
    pub(super) fn start(
        clock: &Arc<dyn Clock>,
        socket: &Path,
        volume_bytes: u64,
        seed: u64,
    ) -> Result<Self, String> {
        let shared = Arc::new(Shared {
            clock: Arc::clone(clock),
            socket: socket.to_owned(),
            volume_bytes,
            state: Mutex::new(State {
                history: History::default(),
                last_value: 0,
                lost: Vec::new(),
                answers: 0,
                wrong: None,
            }),
            is_stopped: AtomicBool::new(false),
            server: AtomicU64::new(1),
        });
        let mut load = Self {
            shared,
            threads: Vec::new(),
        };
        for client in 1..=CLIENTS {
            let shared = Arc::clone(&load.shared);
            let rng = Rng::new(seed ^ client << 32);
            let thread = std::thread::Builder::new()
                .name(format!("client-{client}"))
                .spawn(move || work(&shared, client, rng));
            load.threads.push(thread.map_err(|e| e.to_string())?);
        }
        Ok(load)
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// Records that the NBD server is gone, and that another one follows.
    pub(super) fn next_server(&self) {
        self.shared.server.fetch_add(1, Ordering::SeqCst);
    }

    /// The number of answers so far. Errors: a client got an impossible answer.
    pub(super) fn answers(&self) -> Result<u64, String> {
        let state = self.shared.lock();
        match &state.wrong {
            Some(wrong) => Err(wrong.clone()),
            None => Ok(state.answers),
        }
    }

    /// The gaps between two times.
    pub(super) fn gaps(&self, from: u64, to: u64) -> Gaps {
        let state = self.shared.lock();
        let mut ends: Vec<(u64, Action)> = Vec::new();
        let mut slowest = 0;
        for o in state.history.operations() {
            let [start, end] = o.nanos;
            if o.client != PROBE && o.is_answered() && end >= from {
                ends.push((end, o.action));
                slowest = slowest.max(end - start);
            }
        }
        ends.sort_unstable_by_key(|e| e.0);
        let longest = |counts: &dyn Fn(Action) -> bool| {
            let (mut last, mut longest) = (from, 0);
            let counted = ends.iter().filter(|e| counts(e.1)).map(|e| e.0);
            for at in counted.chain([to]) {
                longest = longest.max(at.saturating_sub(last));
                last = at;
            }
            longest as f64 / 1e6
        };
        Gaps {
            any: longest(&|_| true),
            reads: longest(&|a| a == Action::Read),
            writes: longest(&|a| a == Action::Write),
            slowest: slowest as f64 / 1e6,
        }
    }

    /// Checks whether a single copy of each block could have given all answers. Errors: the
    /// operations that contradict this.
    pub(super) fn check(&self) -> Result<Tally, String> {
        self.answers()?;
        let judged = self.shared.lock().history.judged();
        let tally = linear::check(&judged)
            .map_err(|wrong| format!("the history is not linearizable: {wrong}"))?;
        if tally.undecided.is_empty() {
            return Ok(tally);
        }
        Err(format!("nothing is known of blocks {:?}", tally.undecided))
    }

    /// The number of answered writes, and of writes with an unknown result.
    pub(super) fn writes(&self) -> (u64, u64) {
        let state = self.shared.lock();
        let writes = state.history.operations().iter();
        let writes = writes.filter(|o| o.action == Action::Write);
        writes.fold((0, 0), |(done, open), o| match o.outcome {
            Outcome::Answered(_) => (done + 1, open),
            Outcome::Unanswered | Outcome::Refused => (done, open + 1),
        })
    }

    /// Stops the clients; each waits for its answer first.
    pub(super) fn stop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            // A client that panicked has reported it.
            thread.join().ok();
        }
    }

    /// Reads all blocks back, as the end of the history. Errors: a block cannot be read.
    pub(super) fn read_back(&self) -> Result<(), String> {
        let shared = &self.shared;
        let gone = |e: Failure| format!("blocks cannot be read back: {e:?}");
        let mut client = Client::connect(&shared.socket, super::cluster::VOLUME).map_err(gone)?;
        for block in 0..BLOCKS {
            let ticket = shared.begin_probe(block);
            let value = client.read(shared.offset(block)).map_err(gone)?;
            let value = value.ok_or_else(|| format!("block {block} holds parts of two writes"))?;
            shared.end_probe(ticket, value);
        }
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop();
    }
}

fn work(shared: &Shared, client: u64, mut rng: Rng) {
    let is_stopped = || shared.is_stopped.load(Ordering::SeqCst);
    while !is_stopped() {
        let server = shared.server.load(Ordering::SeqCst);
        let connected = Client::connect(&shared.socket, super::cluster::VOLUME);
        let (Ok(mut connection), true) =
            (connected, server == shared.server.load(Ordering::SeqCst))
        else {
            shared.clock.sleep(RECONNECT_PAUSE);
            continue;
        };
        while !is_stopped() && step(shared, &mut connection, (client, server), &mut rng) {
            let pause = rng.below(PAUSE_MICROS_MAX);
            shared.clock.sleep(Duration::from_micros(pause));
        }
    }
}

/// Does one operation; returns whether the connection is still there.
fn step(
    shared: &Shared,
    connection: &mut Client,
    (client, server): (u64, u64),
    rng: &mut Rng,
) -> bool {
    let block = rng.below(BLOCKS);
    let write = rng.one_in(2);
    let mut state = shared.lock();
    let now = shared.clock.monotonic_nanos();
    let (ticket, value) = if write {
        state.last_value += 1;
        let value = state.last_value;
        (state.history.write(client, block, value, now), value)
    } else {
        (state.history.read(client, block, now), 0)
    };
    drop(state);
    let offset = shared.offset(block);
    let outcome = if write {
        connection.write(offset, value).map(|()| Some(value))
    } else {
        connection.read(offset)
    };
    let mut state = shared.lock();
    let now = shared.clock.monotonic_nanos();
    match outcome {
        Ok(Some(_)) if write => state.history.answered(ticket, now),
        Ok(Some(value)) => state.history.returned(ticket, value, now),
        Ok(None) => {
            let text = format!("client {client}: block {block} holds parts of two writes");
            state.wrong.get_or_insert(text);
            return false;
        }
        Err(failure) => {
            if let Failure::Refused(errno) = failure {
                let what = if write { "write" } else { "read" };
                let text =
                    format!("client {client}: a {what} of block {block} failed with error {errno}");
                state.wrong.get_or_insert(text);
            }
            state.lost.push((server, ticket));
            return false;
        }
    }
    state.answers += 1;
    // Requests to older servers have taken effect by now, or never will: these servers are fenced.
    if state.lost.iter().any(|l| l.0 < server) {
        let (old, rest) = std::mem::take(&mut state.lost)
            .into_iter()
            .partition::<Vec<_>, _>(|l| l.0 < server);
        state.lost = rest;
        let tickets: Vec<Ticket> = old.into_iter().map(|l| l.1).collect();
        let moment = state.history.mark(now);
        state.history.end_by(&tickets, moment);
    }
    true
}
