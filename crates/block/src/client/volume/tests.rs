//! Tests of a client against a cluster in memory, whose network loses, delays and duplicates messages, and
//! whose leaders change; and with answers given by hand.
#![expect(clippy::indexing_slicing, reason = "a test may panic")]

use bytes::Bytes;

use super::*;
use crate::client::map::Striping;
use crate::client::target::OPEN_MAX;
use crate::group::command::{Command, Op as GroupOp, Range};
use crate::group::volumes::{Verdict, Volumes};
use crate::ids::{BLOCK, Block, Layer, Tree};
use crate::nbd::command::{Extent, Piece};
use crate::wire::client::{self as wire, Run};

mod by_hand;

const SECTOR: usize = 512;
const SIZE: u64 = 1 << 20;
const SECTORS: u64 = SIZE / SECTOR as u64;
const STORES: u64 = 5;
const MS: u64 = 1_000_000;

/// A group whose replicas are always equal: what is applied is committed.
struct FakeGroup {
    volumes: Volumes,
    blocks: BTreeMap<(u32, u32), Vec<u8>>,
    /// How often each change was applied.
    applied: BTreeMap<(Epoch, u64), u32>,
    replicas: Vec<u64>,
    leader: u64,
}

impl FakeGroup {
    fn new(replicas: Vec<u64>) -> Self {
        Self {
            volumes: Volumes::default(),
            blocks: BTreeMap::new(),
            applied: BTreeMap::new(),
            leader: replicas[0],
            replicas,
        }
    }

    fn handle(&mut self, store: u64, request: Request, rng: &mut Rng, faults: bool) -> Outcome {
        if store != self.leader {
            let hint = [None, Some(self.leader), Some(rng.below(STORES))][rng.below(3) as usize];
            return Outcome::Refused(Reason::NotLeader { hint });
        }
        if faults && rng.one_in(20) {
            return Outcome::Refused(Reason::Busy);
        }
        let current = self.volumes.epoch(request.tree);
        let fenced = Outcome::Refused(Reason::Fenced { epoch: current });
        let span = request.what.span();
        let (chunk, at) = (span.chunk.0, span.offset as usize);
        let op = match &request.what {
            What::Read(_) | What::Status(_) if request.origin.epoch != current => return fenced,
            What::Read(_) => {
                let pieces =
                    parts(span).map(
                        |(block, from, len)| match self.blocks.get(&(chunk, block)) {
                            None => wire::Piece::Hole(len as u32),
                            Some(b) => {
                                wire::Piece::Data(Bytes::copy_from_slice(&b[from..from + len]))
                            }
                        },
                    );
                return Response::data(0, span.offset, pieces.collect()).outcome;
            }
            What::Status(_) => {
                let runs = parts(span).map(|(block, _, len)| {
                    let hole = !self.blocks.contains_key(&(chunk, block));
                    let (len, zero) = (len as u32, hole);
                    Run { len, hole, zero }
                });
                return Outcome::Status(runs.collect());
            }
            What::Attach => GroupOp::Epoch,
            What::Write { crcs, payload, .. } => {
                let pieces = [wire::Piece::Data(payload.clone())];
                assert!(is_intact(span.offset, &pieces, crcs));
                GroupOp::Write
            }
            What::Zero(_) => GroupOp::Zero,
            What::Trim(_) => GroupOp::Trim,
        };
        let command = Command {
            op,
            origin: request.origin,
            range: Range {
                tree: request.tree,
                layer: request.layer,
                chunk: span.chunk,
                first: Block((at / BLOCK) as u32),
                blocks: 0,
            },
        };
        match self.volumes.admit(&command) {
            Verdict::Apply if op == GroupOp::Epoch => Outcome::Done,
            Verdict::Apply => {
                let key = (request.origin.epoch, request.origin.seq);
                *self.applied.entry(key).or_default() += 1;
                self.change(&request.what);
                Outcome::Done
            }
            Verdict::Again => Outcome::Done,
            Verdict::Fenced => fenced,
            Verdict::OutOfWindow | Verdict::TooMany => Outcome::Refused(Reason::TooFar),
        }
    }

    fn change(&mut self, what: &What) {
        let span = what.span();
        let mut at = 0;
        let parts: Vec<_> = parts(span).collect();
        for (block, from, len) in parts {
            let block = self.blocks.entry((span.chunk.0, block));
            let block = block.or_insert_with(|| vec![0; BLOCK]);
            match what {
                What::Write { payload, .. } => {
                    block[from..from + len].copy_from_slice(&payload[at..at + len]);
                }
                _ => block[from..from + len].fill(0),
            }
            at += len;
        }
    }
}

/// The blocks of a span, with the range of each that lies in the span.
fn parts(span: Span) -> impl Iterator<Item = (u32, usize, usize)> {
    let (mut at, end) = (span.offset as usize, (span.offset + span.len) as usize);
    std::iter::from_fn(move || {
        let from = at % BLOCK;
        let len = (BLOCK - from).min(end - at);
        let part = ((at / BLOCK) as u32, from, len);
        at += len;
        (len > 0).then_some(part)
    })
}

enum Message {
    Ask(u64, Request),
    /// For the attachment with this epoch.
    Answer(Epoch, u64, Response),
}

/// Groups and the network between them and one client.
struct Cluster {
    rng: Rng,
    groups: BTreeMap<Group, FakeGroup>,
    messages: BTreeMap<(u64, u64), Message>,
    sent: u64,
    faults: bool,
    no_space: bool,
}

impl Cluster {
    fn new(seed: u64) -> Self {
        let groups = (1..=3).map(|g| (Group(g), FakeGroup::new(vec![g.into(), 4, 0])));
        Self {
            rng: Rng::new(seed),
            groups: groups.collect(),
            messages: BTreeMap::new(),
            sent: 0,
            faults: true,
            no_space: false,
        }
    }

    fn attach(&self, epoch: u32, options: Options, now: u64) -> Volume {
        let striping = Striping {
            unit_bytes: 16 << 10,
            count: 4,
        };
        let groups: Vec<Group> = self.groups.keys().copied().collect();
        let map = Map::new(SIZE, (Tree(1), Layer(1)), striping, groups).unwrap();
        let replicas = self.groups.iter().map(|(&g, f)| (g, f.replicas.clone()));
        let id = (Epoch(epoch), Attachment(u64::from(epoch) * 77));
        Volume::new(map, &replicas.collect(), id, options, now).unwrap()
    }

    /// Queues a message, or loses it, or queues it twice.
    fn post(&mut self, now: u64, make: impl Fn() -> Message) {
        let copies = match self.rng.below(20) {
            0 if self.faults => 0,
            1 | 2 if self.faults => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let delay = match self.rng.below(10) {
                0 if self.faults => self.rng.below(300 * MS),
                _ => self.rng.below(2 * MS),
            };
            self.sent += 1;
            self.messages.insert((now + delay, self.sent), make());
        }
    }

    /// Delivers the messages that are due, and maybe changes leaders or breaks connections.
    fn step(&mut self, volume: &mut Volume, now: u64) {
        if self.faults && self.rng.one_in(40) {
            let group = Group(1 + self.rng.below(3) as u32);
            let group = self.groups.get_mut(&group).unwrap();
            group.leader = group.replicas[self.rng.below(3) as usize];
        }
        if self.faults && self.rng.one_in(60) {
            volume.disconnected(self.rng.below(STORES));
        }
        volume.tick(now);
        while let Some(Send { store, request }) = volume.next_send() {
            self.post(now, || Message::Ask(store, request.clone()));
        }
        while let Some(entry) = self.messages.first_entry().filter(|e| e.key().0 <= now) {
            match entry.remove() {
                Message::Ask(store, request) => {
                    let (id, group) = (request.id, request.group);
                    let epoch = request.origin.epoch;
                    let request = Request::of(request.frame(9, store)).unwrap();
                    let refuse = self.no_space && request.what.is_change() && self.rng.one_in(30);
                    let outcome = if refuse && request.what.span().len > 0 {
                        Outcome::Refused(Reason::NoSpace)
                    } else {
                        let group = self.groups.get_mut(&group).unwrap();
                        group.handle(store, request, &mut self.rng, self.faults)
                    };
                    let response = Response { id, outcome };
                    self.post(now, || Message::Answer(epoch, store, response.clone()));
                }
                Message::Answer(epoch, _, _) if epoch != volume.epoch => {}
                Message::Answer(_, store, response) => {
                    volume.response(store, Response::of(response.frame(store, 9)).unwrap());
                }
            }
        }
    }
}

/// An operation of the test.
enum Asked {
    /// From this sector on: the position of the operation in each sector's history.
    Change(u64, Vec<usize>),
    /// From this sector on: how much of each history was acknowledged when the read was submitted.
    Read(u64, Vec<usize>),
    Other,
}

/// The possible contents of each sector: its changes in order, and how many of them are acknowledged.
struct Model {
    histories: Vec<Vec<u32>>,
    acked: Vec<usize>,
    asked: BTreeMap<u64, Asked>,
    next: u64,
    failed: u32,
}

impl Model {
    fn new() -> Self {
        Self {
            histories: vec![vec![0]; SECTORS as usize],
            acked: vec![0; SECTORS as usize],
            asked: BTreeMap::new(),
            next: 1,
            failed: 0,
        }
    }

    fn submit(&mut self, volume: &mut Volume, op: Op) {
        let token = self.next;
        self.next += 1;
        let (offset, len) = range(&op);
        let (first, n) = (offset / SECTOR as u64, len / SECTOR as u64);
        let asked = match &op {
            Op::Write { .. } | Op::Zero { .. } | Op::Trim { .. } => {
                let value = if matches!(op, Op::Write { .. }) {
                    token as u32
                } else {
                    0
                };
                let places = (first..first + n).map(|s| {
                    let history = &mut self.histories[s as usize];
                    history.push(value);
                    history.len() - 1
                });
                Asked::Change(first, places.collect())
            }
            Op::Read { .. } => {
                let acked = &self.acked[first as usize..(first + n) as usize];
                Asked::Read(first, acked.to_vec())
            }
            _ => Asked::Other,
        };
        self.asked.insert(token, asked);
        volume.submit(Token(token), op);
    }

    fn random(&mut self, rng: &mut Rng, volume: &mut Volume) {
        // Half of the operations go to a small range, where they overlap.
        let span = if rng.one_in(2) { 100 } else { SECTORS };
        let first = rng.below(span);
        let most = if rng.one_in(10) { 600 } else { 24 };
        let n = (1 + rng.below(most)).min(SECTORS - first);
        let (offset, len) = (first * SECTOR as u64, (n * SECTOR as u64) as u32);
        let value = (self.next as u32).to_le_bytes();
        let op = match rng.below(12) {
            0 => Op::Trim {
                offset,
                len,
                fua: false,
            },
            1 => Op::Zero {
                offset,
                len,
                no_hole: false,
                fast: false,
                fua: false,
            },
            2 => Op::Flush,
            3 => Op::BlockStatus {
                offset,
                len,
                one: rng.one_in(2),
            },
            4..7 => Op::Read {
                offset,
                len,
                df: false,
            },
            _ => Op::Write {
                offset,
                bytes: value.repeat(len as usize / 4).into(),
                fua: false,
            },
        };
        self.submit(volume, op);
    }

    /// Checks completed operations: each completes once, and each sector that was read has a possible
    /// content.
    fn check(&mut self, volume: &mut Volume, what: &str) {
        let mut done = Vec::new();
        volume.completed(&mut done);
        for (token, how) in done {
            let asked = self.asked.remove(&token.0).expect("completed twice");
            let Ok(reply) = how else {
                self.failed += 1;
                continue;
            };
            match asked {
                Asked::Change(first, places) => {
                    assert_eq!(reply, Reply::Done);
                    for (sector, place) in (first as usize..).zip(places) {
                        self.acked[sector] = self.acked[sector].max(place);
                    }
                }
                Asked::Read(first, acked) => {
                    let bytes = bytes_of(reply);
                    assert_eq!(bytes.len(), acked.len() * SECTOR);
                    for (i, sector) in bytes.chunks(SECTOR).enumerate() {
                        let value = u32::from_le_bytes(sector[..4].try_into().unwrap());
                        let at = first as usize + i;
                        let may = &self.histories[at][acked[i]..];
                        assert!(may.contains(&value), "{what}: sector {at} {value}: {may:?}");
                        let all = sector.chunks(4).all(|c| c == value.to_le_bytes());
                        assert!(all, "{what}: sector {at} is torn");
                    }
                }
                Asked::Other => {
                    let some = |e: &Vec<Extent>| !e.is_empty() && e.iter().all(|e| e.len > 0);
                    assert!(reply == Reply::Done || matches!(reply, Reply::Status(e) if some(&e)));
                }
            }
        }
    }
}

fn bytes_of(reply: Reply) -> Vec<u8> {
    let pieces = match reply {
        Reply::Data(bytes) => vec![Piece::Data(bytes)],
        Reply::Pieces(pieces) => pieces,
        other => panic!("{other:?} for a read"),
    };
    let bytes = pieces.into_iter().map(|p| match p {
        Piece::Data(bytes) => bytes.to_vec(),
        Piece::Hole(len) => vec![0; len as usize],
    });
    bytes.collect::<Vec<_>>().concat()
}

fn options() -> Options {
    Options {
        timeout_nanos: 50 * MS,
        pause_nanos: 2 * MS,
        pause_nanos_max: 40 * MS,
        give_up_nanos: None,
    }
}

/// Operations with faults, then without: all complete, and acknowledged writes are read back.
fn run(seed: u64, ops: u64, options: Options, no_space: bool) -> Model {
    let mut cluster = Cluster::new(seed);
    cluster.no_space = no_space;
    let mut rng = Rng::new(seed + 1000);
    let (mut model, mut now) = (Model::new(), 0);
    let mut volume = cluster.attach(1, options, now);
    let what = format!("seed {seed}");
    while model.next < ops {
        for _ in 0..rng.below(8) {
            if model.asked.len() < 60 {
                model.random(&mut rng, &mut volume);
            }
        }
        now += rng.below(3 * MS);
        cluster.step(&mut volume, now);
        model.check(&mut volume, &what);
    }
    cluster.faults = false;
    let heal = now;
    let mut asked_all = false;
    while !model.asked.is_empty() || !asked_all || !volume.jobs.is_empty() {
        if model.asked.is_empty() && !asked_all {
            asked_all = true;
            let (offset, len, df) = (0, SIZE as u32, false);
            model.submit(&mut volume, Op::Read { offset, len, df });
        }
        now += MS;
        assert!(
            now < heal + 5_000 * MS,
            "{what}: {} are stuck",
            model.asked.len()
        );
        cluster.step(&mut volume, now);
        model.check(&mut volume, &what);
    }
    assert!(volume.is_attached() && volume.stuck_since().is_none());
    assert_eq!(volume.operations.iter().count(), 0);
    assert!(volume.timers.is_empty() && volume.next_due().is_none());
    for group in cluster.groups.values() {
        assert!(group.applied.values().all(|&n| n == 1), "{what}");
    }
    model
}

#[test]
fn what_is_acknowledged_is_read_whatever_happens_on_the_way() {
    for seed in 0..12 {
        assert_eq!(run(seed, 2000, options(), false).failed, 0);
    }
}

/// Operations fail here, and copies of them are on their way: none is applied after what was acknowledged
/// since.
#[test]
fn what_failed_never_undoes_what_came_after_it() {
    let mut failed = 0;
    for seed in 100..110 {
        let options = Options {
            give_up_nanos: Some(120 * MS),
            ..options()
        };
        failed += run(seed, 1500, options, true).failed;
    }
    assert!(failed > 100);
}

#[test]
fn a_newer_attachment_fences_the_older() {
    for seed in 200..210 {
        let mut cluster = Cluster::new(seed);
        let mut rng = Rng::new(seed);
        let (mut model, mut now) = (Model::new(), 0);
        let mut older = cluster.attach(1, options(), now);
        while model.next < 300 {
            model.random(&mut rng, &mut older);
            now += MS;
            cluster.step(&mut older, now);
            model.check(&mut older, "older");
        }
        let mut newer = cluster.attach(2, options(), now);
        // The responses to the older one are lost meanwhile; its requests are still delivered.
        while !newer.is_attached() {
            now += MS;
            cluster.step(&mut newer, now);
        }
        let (offset, len, df) = (0, SIZE as u32, false);
        model.submit(&mut newer, Op::Read { offset, len, df });
        let token = model.next - 1;
        while model.asked.contains_key(&token) {
            now += MS;
            cluster.step(&mut newer, now);
            model.check(&mut newer, "newer");
        }
        cluster.messages.clear();
        while !older.is_fenced() {
            if model.next < 2000 {
                model.random(&mut rng, &mut older);
            }
            now += MS;
            cluster.step(&mut older, now);
        }
        older.submit(Token(0), Op::Flush);
        let mut done = Vec::new();
        older.completed(&mut done);
        assert_eq!(done.last(), Some(&(Token(0), Err(Errno::Shutdown))));
        assert!(older.next_send().is_none() && older.next_due().is_none());
    }
}
