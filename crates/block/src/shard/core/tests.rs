//! Tests of three stores on real files with random events: messages are lost and delayed, stores are killed
//! and opened again from their files, and one client reads and writes parts of blocks all the time.

use std::sync::Arc;

use io::FileSystem;
use io::posix::Posix;

use super::super::layout::{Make, Opened, make};
use super::super::member::TICK;
use super::*;
use crate::group::command::Origin;
use crate::group::message::Body;
use crate::ids::{Attachment, Chunk, Epoch, Layer, Tree, Uuid};
use crate::store::data::Data;
use crate::store::flush::ApplySync;
use crate::wire::client::{Outcome, Piece, Reason, Span, What};

mod copies;
mod damage;
mod limits;
mod room;

const CLUSTER: Uuid = Uuid([7; 16]);
const GROUP: Group = Group(1);
const CHUNKS: u32 = 2;
/// The client works on the first bytes of each chunk.
const BYTES: u32 = 40_000;

struct Process {
    core: Core,
    data: Data,
}

struct Cluster {
    rng: Rng,
    dirs: Vec<tempfile::TempDir>,
    up: Vec<Option<Process>>,
    now: Duration,
    /// Commands that are not executed yet, with their store, and messages on their way.
    todo: Vec<(usize, Command)>,
    wire: Vec<(usize, Event)>,
    answers: Vec<Response>,
    drop_permille: u64,
    /// Whether questions for damaged blocks are lost.
    asks_are_lost: bool,
    policy: Policy,
    groups: Vec<Group>,
}

impl Cluster {
    fn new(seed: u64) -> Self {
        Self::with_groups(seed, &[GROUP])
    }

    fn with_groups(seed: u64, groups: &[Group]) -> Self {
        let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        for (n, dir) in dirs.iter().enumerate() {
            let what = Make {
                store: Uuid([n as u8 + 1; 16]),
                cluster: CLUSTER,
                slots: CHUNKS * groups.len() as u32,
                log_files: 6 * groups.len() as u32,
                log_file_bytes: 4 << 20,
                allow_in_memory: true,
            };
            make(&Posix::shared(), &dir.path().join("s"), &what, &mut |_| ()).unwrap();
        }
        let modes = [
            ApplySync::Background,
            ApplySync::Snapshot,
            ApplySync::Odsync,
        ];
        let mode = modes[seed as usize % 3];
        let mut cluster = Self {
            rng: Rng::new(seed),
            dirs,
            up: vec![None, None, None],
            now: Duration::ZERO,
            todo: Vec::new(),
            wire: Vec::new(),
            answers: Vec::new(),
            drop_permille: 0,
            asks_are_lost: false,
            policy: Policy {
                checkpoint_bytes: 64 << 10,
                checkpoint_interval: Duration::from_secs(2),
                dirty_bytes_max: 4 << 20,
                ..Policy::of(mode)
            },
            groups: groups.to_vec(),
        };
        (0..3).for_each(|n| cluster.start(n));
        cluster
    }

    fn core(&mut self, n: usize) -> &mut Core {
        &mut self.up[n].as_mut().unwrap().core
    }

    fn start(&mut self, n: usize) {
        let fs: Arc<dyn FileSystem> = Posix::shared();
        let seed = self.rng.next_u64();
        let opened = Store::open(&fs, &self.dirs[n].path().join("s"), CLUSTER, 2, seed).unwrap();
        let Opened { store, log, data } = opened;
        let assign = |&group| Assignment {
            group,
            replica: n as u64 + 1,
            members: Members::of(&[1, 2, 3]),
            chunks_max: CHUNKS,
        };
        let groups: Vec<Assignment> = self.groups.iter().map(assign).collect();
        let reader = data.reader();
        let core = Core::open(store, log, reader, self.policy, &groups, &mut self.rng);
        self.up[n] = Some(Process {
            core: core.unwrap(),
            data,
        });
        self.event(n, Event::Tick);
    }

    /// Loses the store's memory; some of the writes on their way reach the disk.
    fn kill(&mut self, n: usize) {
        for (_, command) in self.todo.extract_if(.., |(by, _)| *by == n) {
            match command {
                Command::Log(append) if self.rng.one_in(2) => append.run().unwrap(),
                Command::InPlace { place, .. } if self.rng.one_in(2) => place.run().unwrap(),
                Command::WriteBack(marked, _) if self.rng.one_in(2) => {
                    let data = &mut self.up[n].as_mut().unwrap().data;
                    drop(data.write_back(marked, &mut |_| ()));
                }
                _ => {}
            }
        }
        self.wire.retain(|(to, _)| *to != n);
        self.up[n] = None;
    }

    fn event(&mut self, n: usize, event: Event) {
        let Some(process) = &mut self.up[n] else {
            return;
        };
        process.core.step(self.now, event);
        assert!(
            process.core.failure().is_none(),
            "{:?}",
            process.core.failure()
        );
        while let Some(command) = process.core.next_command() {
            self.todo.push((n, command));
        }
    }

    /// Does one of the things that are due, or lets time pass.
    fn turn(&mut self) {
        if self.rng.one_in(60) {
            self.now += TICK;
            (0..3).for_each(|n| self.event(n, Event::Tick));
        }
        let (todo, wire) = (self.todo.len() as u64, self.wire.len() as u64);
        if todo + wire == 0 {
            self.now += TICK;
            return (0..3).for_each(|n| self.event(n, Event::Tick));
        }
        let which = self.rng.below(todo + wire);
        if which < wire {
            let (to, event) = self.wire.swap_remove(which as usize);
            let is_ask = |e: &Event| matches!(e, Event::Message { message, .. } if matches!(message.body, Body::Ask { .. }));
            if self.asks_are_lost && is_ask(&event) {
                return;
            }
            if self.rng.below(1000) >= self.drop_permille {
                self.event(to, event);
            }
            return;
        }
        let (n, command) = self.todo.remove((which - wire) as usize);
        let event = match command {
            Command::Log(append) => {
                let outcome = append.run();
                Event::Landed(append, outcome)
            }
            Command::Send { group, outgoing } => {
                let event = Event::Message {
                    group,
                    message: outgoing.message,
                    payloads: outgoing.payloads,
                };
                return self.wire.push((outgoing.to as usize - 1, event));
            }
            Command::Reply { response, .. } => return self.answers.push(response),
            Command::Read { token, offset, len } => {
                let mut buf = AlignedBuf::zeroed(len, 4096).unwrap();
                let reader = self.up[n].as_ref().unwrap().data.reader();
                let read = io::read_exact_at(&**reader.file(), &mut buf, offset);
                Event::Read(token, read.map(|()| buf))
            }
            Command::InPlace { token, place } => Event::InPlace(token, place.run()),
            Command::WriteBack(marked, _) => {
                let data = &mut self.up[n].as_mut().unwrap().data;
                let written = data.write_back(marked, &mut |_| ()).unwrap();
                Event::WrittenBack(written.sync().unwrap())
            }
        };
        self.event(n, event);
    }

    /// The answer to a request, once it is there.
    fn answer(&mut self, id: u64) -> Outcome {
        for _ in 0..100_000 {
            if let Some(at) = self.answers.iter().position(|a| a.id == id) {
                return self.answers.swap_remove(at).outcome;
            }
            self.turn();
        }
        panic!("request {id} is never answered");
    }

    fn leader(&self) -> Option<usize> {
        self.leader_of(GROUP)
    }

    fn leader_of(&self, group: Group) -> Option<usize> {
        let leads = |p: &Process| p.core.member(group).unwrap().node().has_applied_own_term();
        self.up.iter().position(|p| p.as_ref().is_some_and(leads))
    }
}

struct Client {
    group: Group,
    epoch: u32,
    next: u64,
    next_id: u64,
    at: usize,
    model: Vec<Vec<u8>>,
}

impl Client {
    fn new(epoch: u32) -> Self {
        Self::of(GROUP, epoch)
    }

    fn of(group: Group, epoch: u32) -> Self {
        Self {
            group,
            epoch,
            next: 1,
            next_id: u64::from(epoch) << 32,
            at: 0,
            model: vec![vec![0; 64 << 10]; CHUNKS as usize],
        }
    }

    /// Sends a request to the presumed leader until it is answered, with the same number each time.
    fn ask(&mut self, c: &mut Cluster, what: &What, chaos: bool) -> Outcome {
        let seq = if what.is_change() { self.next } else { 0 };
        self.next += u64::from(seq > 0);
        let origin = Origin {
            epoch: Epoch(self.epoch),
            attachment: Attachment(u64::from(self.epoch)),
            seq,
            lowest_open: seq,
        };
        for _ in 0..400 {
            self.next_id += 1;
            let id = self.next_id;
            let request = Request {
                id,
                group: self.group,
                tree: Tree(1),
                layer: Layer(1),
                origin,
                what: what.clone(),
            };
            let event = Event::Request { client: 1, request };
            c.wire.push((self.at, event));
            let mut answer = None;
            for _ in 0..400 {
                c.turn();
                if chaos && c.rng.one_in(300) {
                    Self::disturb(c);
                }
                if let Some(at) = c.answers.iter().position(|a| a.id == id) {
                    answer = Some(c.answers.swap_remove(at).outcome);
                    break;
                }
            }
            c.answers.clear();
            match answer {
                Some(Outcome::Refused(Reason::NotLeader { hint: Some(hint) })) => {
                    self.at = hint as usize - 1;
                }
                Some(Outcome::Refused(Reason::Busy)) => {}
                Some(Outcome::Refused(Reason::NotLeader { hint: None })) | None => {
                    (0..200).for_each(|_| c.turn());
                    self.at = c.leader_of(self.group).unwrap_or((self.at + 1) % 3);
                }
                Some(outcome) => return outcome,
            }
        }
        panic!("{what:?} is never answered");
    }

    fn disturb(c: &mut Cluster) {
        let n = c.rng.below(3) as usize;
        match c.rng.below(3) {
            0 if c.up.iter().all(Option::is_some) => c.kill(n),
            1 => c.drop_permille = c.rng.below(200),
            _ => {
                if let Some(down) = c.up.iter().position(Option::is_none) {
                    c.start(down);
                }
            }
        }
    }

    fn change(&mut self, c: &mut Cluster, chaos: bool) {
        let chunk = c.rng.below(u64::from(CHUNKS)) as u32;
        let mut offset = c.rng.below(u64::from(BYTES)) as u32;
        let mut len = 1 + c.rng.below(u64::from((BYTES - offset).min(9000))) as u32;
        if c.rng.one_in(2) {
            offset = offset / 4096 * 4096;
            len = len.next_multiple_of(4096);
        }
        let span = Span {
            chunk: Chunk(chunk),
            offset,
            len,
        };
        let zero = c.rng.one_in(5);
        let byte = if zero { 0 } else { 1 + c.rng.below(250) as u8 };
        let what = if zero {
            What::Zero(span)
        } else {
            let mut payload = AlignedBuf::zeroed(len as usize, 4096).unwrap();
            payload.fill(byte);
            let crcs: Vec<u32> = crate::wire::client::crcs_at(offset, &payload).collect();
            What::Write {
                span,
                crcs: crcs.into(),
                payload: payload.into(),
            }
        };
        assert_eq!(self.ask(c, &what, chaos), Outcome::Done);
        let model = &mut self.model[chunk as usize];
        model[offset as usize..(offset + len) as usize].fill(byte);
    }

    fn check(&mut self, c: &mut Cluster, chaos: bool) {
        for chunk in 0..CHUNKS {
            let span = Span {
                chunk: Chunk(chunk),
                offset: 0,
                len: BYTES,
            };
            let Outcome::Data { pieces, .. } = self.ask(c, &What::Read(span), chaos) else {
                panic!("no data");
            };
            let mut all = Vec::new();
            for piece in pieces {
                match piece {
                    Piece::Data(bytes) => all.extend_from_slice(&bytes),
                    Piece::Hole(len) => all.resize(all.len() + len as usize, 0),
                }
            }
            let model = &self.model[chunk as usize];
            assert_eq!(all.len(), BYTES as usize);
            let differs = all.iter().zip(model).position(|(a, b)| a != b);
            assert_eq!(differs, None, "chunk {chunk}");
        }
    }
}

fn run(seed: u64, changes: usize, chaos: bool) -> Cluster {
    let mut c = Cluster::new(seed);
    let mut client = Client::new(1);
    assert_eq!(client.ask(&mut c, &What::Attach, false), Outcome::Done);
    for n in 0..changes {
        client.change(&mut c, chaos);
        if n % 10 == 9 {
            client.check(&mut c, chaos);
        }
    }
    // All stores are killed at once, and are opened again from their files.
    for n in 0..3 {
        if c.up[n].is_some() {
            c.kill(n);
        }
    }
    c.drop_permille = 0;
    (0..3).for_each(|n| c.start(n));
    client.check(&mut c, false);
    c
}

#[test]
fn what_was_answered_is_read_back() {
    let c = run(1, 60, false);
    let begun = c.up[0].as_ref().unwrap().core.log().file_number();
    assert!(begun >= 2, "{begun}");
}

/// Stores are killed and messages lost: answered changes stay, and nothing is applied twice.
#[test]
fn stores_that_are_killed_lose_nothing_that_was_answered() {
    for seed in 0..12 {
        run(seed, 40, true);
    }
}

/// The second attachment takes the volume over; the first is told so.
#[test]
fn an_older_attachment_is_fenced() {
    let mut c = Cluster::new(5);
    let (mut first, mut second) = (Client::new(1), Client::new(2));
    assert_eq!(first.ask(&mut c, &What::Attach, false), Outcome::Done);
    first.change(&mut c, false);
    assert_eq!(second.ask(&mut c, &What::Attach, false), Outcome::Done);
    let span = Span {
        chunk: Chunk(0),
        offset: 0,
        len: 4096,
    };
    let epoch = Epoch(2);
    for what in [What::Zero(span), What::Read(span), What::Attach] {
        let outcome = first.ask(&mut c, &what, false);
        assert_eq!(
            outcome,
            Outcome::Refused(Reason::Fenced { epoch }),
            "{what:?}"
        );
    }
    second.change(&mut c, false);
}

/// Bytes that were damaged on the way are refused, whole blocks and parts of them.
#[test]
fn bytes_with_another_checksum_are_refused() {
    let mut c = Cluster::new(3);
    let mut client = Client::new(1);
    assert_eq!(client.ask(&mut c, &What::Attach, false), Outcome::Done);
    for (offset, len) in [(0, 4096), (7, 100)] {
        let span = Span {
            chunk: Chunk(0),
            offset,
            len,
        };
        let what = What::Write {
            span,
            crcs: vec![77].into(),
            payload: vec![1; len as usize].into(),
        };
        let outcome = client.ask(&mut c, &what, false);
        assert!(
            matches!(outcome, Outcome::Refused(Reason::Io(_))),
            "{outcome:?}"
        );
    }
    client.check(&mut c, false);
}
