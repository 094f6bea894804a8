//! READ THIS FIRST: the only way by which a log entry changes a replica's blocks.
//!
//! ```text
//!   Committed ──> Replica::apply ──> dirty map      leader, follower, and replay after a crash alike
//!                                       │
//!                 Replica::mark  ───────┤  all that is dirty, and the group's state at this entry
//!                                       ▼
//!                 Data::write_back, Written::sync ──> SyncTicket
//!                                       │
//!                 Replica::settle ──────┴──> Checkpoint ──> RaftLog ──> TruncateToken
//! ```
//!
//! Applying does no I/O. After a crash, a replica starts at its last checkpoint and applies the committed
//! entries behind it again, before it serves anything. The data file may hold any part of their changes; that
//! is harmless, because each entry writes whole blocks.

use base::coding::Decoder;
use base::{Error, Result};
use bytes::Bytes;

use super::command::{Command, Origin, Range};
use super::members::Members;
use super::raft::Committed;
use super::volumes::{Verdict, Volumes};
use crate::ids::{Epoch, Group, Index, Term, Tree};
use crate::memory::buffers::OWN_BYTES_MIN;
use crate::memory::pages::Pages;
use crate::raftlog::Checkpoint;
use crate::store::data::{ChunkKey, Held, Reader};
use crate::store::dirty::{Content, Dirty, Key};
use crate::store::sync::{Marked, SyncSlot, SyncTicket};

/// An entry that was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "somebody may wait for the answer"]
pub struct Applied {
    /// Its index.
    pub index: Index,
    /// The request that it came from.
    pub origin: Origin,
    /// Its blocks.
    pub range: Range,
    /// The outcome.
    pub verdict: Verdict,
}

/// The content of a checkpoint that is being written.
#[derive(Debug)]
struct Under {
    through: Index,
    term: Term,
    /// `None`: blocks of an unfinished copy, which are no checkpoint.
    state: Option<Bytes>,
}

/// The location of a block's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// In memory.
    Here(Content),
    /// In the data file, or nowhere.
    File(Held),
}

/// A group's blocks on one store, and the state of their volumes.
#[derive(Debug)]
pub struct Replica {
    dirty: Dirty,
    volumes: Volumes,
    /// The members of the group.
    members: Members,
    /// The term of the last entry that was applied.
    term: Term,
    under_way: Option<Under>,
    /// Whether a copy is being received.
    is_copying: bool,
}

impl Replica {
    /// A replica at its last checkpoint: the data file has everything up to `synced`, and `state` is the
    /// group's state there. `state` is empty for a new group, whose members are `members`.
    pub fn at(
        group: Group,
        synced: (Index, Term),
        state: &Bytes,
        members: &Members,
    ) -> Result<Self> {
        let (members, volumes) = if state.is_empty() {
            (members.clone(), Volumes::default())
        } else {
            decode(state)?
        };
        Ok(Self {
            dirty: Dirty::after(group, synced.0),
            volumes,
            members,
            term: synced.1,
            under_way: None,
            is_copying: false,
        })
    }

    /// Keeps blocks in these pages, which other replicas may use too.
    #[must_use]
    pub fn lies_in(mut self, pages: &Pages) -> Self {
        self.dirty.lies_in(pages);
        self
    }

    /// The pages that blocks are kept in.
    pub fn pages(&self) -> &Pages {
        self.dirty.pages()
    }

    /// The last applied entry.
    pub fn applied(&self) -> Index {
        self.dirty.applied()
    }

    /// The entry up to which everything is durable in the data file.
    pub fn synced(&self) -> Index {
        self.dirty.synced()
    }

    /// Bytes of blocks that are not durable in the data file yet.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty.bytes()
    }

    /// A volume's epoch.
    pub fn epoch(&self, tree: Tree) -> Epoch {
        self.volumes.epoch(tree)
    }

    /// The members of the group.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Applies the entry that follows the last applied one. Errors: Corruption, if it cannot be read; then
    /// it is not applied, and no later entry may be.
    pub fn apply(&mut self, entry: &Committed) -> Result<Applied> {
        self.check_next(entry.index)?;
        if let Some(members) = &entry.members {
            self.members = members.clone();
        }
        let (command, crcs) = if entry.inline.is_empty() || entry.members.is_some() {
            (Command::nothing(), Vec::new())
        } else {
            Command::decode(&entry.inline, entry.payload.len())?
        };
        let verdict = self.volumes.admit(&command);
        let contents = match verdict {
            Verdict::Apply => command.contents(&crcs, &entry.payload),
            _ => Vec::new(),
        };
        if entry.payload.len() >= OWN_BYTES_MIN {
            self.dirty.apply_buffer(entry.index, entry.term, contents);
        } else {
            self.dirty.apply(entry.index, entry.term, contents);
        }
        self.term = entry.term;
        Ok(Applied {
            index: entry.index,
            origin: command.origin,
            range: command.range,
            verdict,
        })
    }

    fn check_next(&self, index: Index) -> Result<()> {
        let applied = self.applied();
        if index.0 == applied.0 + 1 {
            return Ok(());
        }
        Err(Error::broken(format!(
            "entry {index} of group {} comes behind {applied}",
            self.dirty.group()
        )))
    }

    /// Takes some dirty blocks to be written back: see [`Dirty::mark`]. `None`: the blocks taken before are not
    /// settled.
    pub fn mark(&mut self, bytes_max: u64) -> Option<Marked> {
        let begins = !self.dirty.is_in_round();
        let marked = self.dirty.mark(bytes_max)?;
        if begins {
            self.under_way = Some(Under {
                through: self.applied(),
                term: self.term,
                state: (!self.is_copying).then(|| self.state()),
            });
        }
        Some(marked)
    }

    /// Whether a round of write-back is under way.
    pub fn is_in_round(&self) -> bool {
        self.dirty.is_in_round()
    }

    /// The marked blocks are durable. At the end of a round, returns the checkpoint for the log; `None` before
    /// that, and for a part of a copy. Errors: the ticket belongs to other blocks.
    pub fn settle(&mut self, ticket: SyncTicket, slot: SyncSlot) -> Result<Option<Checkpoint>> {
        self.dirty.settle(&ticket, slot);
        if self.dirty.is_in_round() {
            return Ok(None);
        }
        let under = self.under_way.take();
        let Some(under) = under.filter(|u| u.through == ticket.through()) else {
            return Err(Error::broken("a ticket for what was not marked"));
        };
        let checkpoint = |state| Checkpoint::at(ticket, under.term, state);
        Ok(under.state.map(checkpoint))
    }

    /// The group's state after the last applied entry.
    pub fn state(&self) -> Bytes {
        encode(&self.members, &self.volumes)
    }

    /// The term of the last entry that was applied.
    pub fn term(&self) -> Term {
        self.term
    }

    /// Chunks with blocks that are not durable in the data file yet.
    pub fn dirty_chunks(&self) -> impl Iterator<Item = ChunkKey> {
        let group = self.dirty.group();
        self.dirty.keys().map(move |key| ChunkKey::of(group, key))
    }

    /// The blocks of one chunk that are not durable in the data file yet.
    pub fn dirty_blocks(&self, chunk: &ChunkKey) -> impl Iterator<Item = u32> {
        let (group, chunk) = (self.dirty.group(), *chunk);
        let of = self.dirty.keys();
        let of = of.filter(move |key| ChunkKey::of(group, key) == chunk);
        of.map(|key| key.block.0)
    }

    /// Whether no block is on its way to the data file.
    pub fn is_settled(&self) -> bool {
        self.dirty.is_settled()
    }

    /// Puts back the content of a block that the data file has lost, so that it is written again.
    pub fn restore(&mut self, key: Key, content: Content) {
        self.dirty.restore(key, content, self.term);
    }

    /// Whether a block is on its way to the data file.
    pub fn is_flying(&self, key: &Key) -> bool {
        self.dirty.is_flying(key)
    }

    /// The bytes of a block, to be kept without its neighbors: copied if they share a buffer.
    pub fn alone(&self, key: &Key, bytes: Bytes) -> Bytes {
        if self.dirty.shares(key) {
            return self.pages().copy(&bytes);
        }
        bytes
    }

    /// The last entry that wrote a block, if the block is not durable in the data file.
    pub fn newest(&self, key: &Key) -> Option<Index> {
        self.dirty.newest(key)
    }

    /// Whether nothing waits to be written back, and nothing is on its way.
    pub fn is_clean(&self) -> bool {
        self.dirty.is_empty() && !self.dirty.is_in_round() && self.dirty.is_settled()
    }

    /// Whether a copy is being received.
    pub fn is_copying(&self) -> bool {
        self.is_copying
    }

    /// A block was written in its place, with the content of the entry at `index`.
    pub fn placed(&mut self, key: &Key, index: Index) {
        self.dirty.placed(key, index);
    }

    /// Begins to receive a copy from a peer, see [`Dirty::begin_copy`]; no entry is applied until the copy
    /// ends.
    pub fn begin_copy(&mut self) -> bool {
        let begins = self.dirty.begin_copy();
        if begins {
            self.under_way = None;
            self.is_copying = true;
        }
        begins
    }

    /// Takes blocks of a copy that ends at the entry `through`.
    pub fn take_copied(&mut self, blocks: Vec<(Key, Content)>, through: Index, term: Term) {
        self.dirty.take_copied(blocks, through, term);
    }

    /// The whole copy was received, with the group's state at its end; the next mark takes everything up to
    /// there. False: some blocks are still on their way to the data file. Errors: the state cannot be read.
    pub fn end_copy(&mut self, at: (Index, Term), state: &Bytes) -> Result<bool> {
        let (members, volumes) = decode(state)?;
        if !self.dirty.end_copy(at.0) {
            return Ok(false);
        }
        self.under_way = None;
        (self.members, self.volumes, self.term) = (members, volumes, at.1);
        self.is_copying = false;
        Ok(true)
    }

    /// The marked blocks could not be written: they are dirty again.
    pub fn give_back(&mut self, marked: Marked) {
        self.under_way = None;
        self.dirty.give_back(marked);
    }

    /// Where the content of a block is.
    pub fn find(&self, key: &Key, data: &Reader) -> Found {
        match self.dirty.get(key) {
            Some(content) => Found::Here(content.clone()),
            None => Found::File(data.held(self.dirty.group(), key)),
        }
    }
}

/// Checks that the bytes are a group's state. Errors: they are not.
pub fn check_state(state: &Bytes) -> Result<()> {
    decode(state).map(drop)
}

fn encode(members: &Members, volumes: &Volumes) -> Bytes {
    let mut out = Vec::new();
    members.encode(&mut out);
    out.extend_from_slice(&volumes.encode());
    out.into()
}

fn decode(state: &Bytes) -> Result<(Members, Volumes)> {
    let mut d = Decoder::new(state);
    let members = Members::decode(&mut d)?;
    Ok((members, Volumes::decode(d.rest())?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use base::rng::Rng;
    use io::posix::Posix;
    use io::{FileSystem, OpenHow};

    use super::*;
    use crate::group::command::{Op, crcs_of};
    use crate::ids::{Attachment, BLOCK, Block, Chunk, Layer};
    use crate::store::data::{Data, SLOT_BYTES};

    const GROUP: Group = Group(3);
    const SLOTS: u32 = 3;

    fn entry(index: u64, op: Op, origin: Origin, first: u32, bytes: &[u8]) -> Committed {
        let blocks = bytes.len() as u16;
        let payload: Vec<u8> = bytes.iter().flat_map(|&b| vec![b; BLOCK]).collect();
        let payload = if op == Op::Write { payload } else { vec![] };
        let range = Range {
            tree: Tree(1),
            layer: Layer(1),
            chunk: Chunk(first / 4096),
            first: Block(first % 4096),
            blocks,
        };
        let command = Command { op, origin, range };
        Committed {
            index: Index(index),
            term: Term(1),
            inline: command.encode(&crcs_of(&payload)),
            payload: payload.into(),
            members: None,
        }
    }

    fn origin(seq: u64) -> Origin {
        Origin {
            epoch: Epoch(1),
            attachment: Attachment(9),
            seq,
            lowest_open: seq.saturating_sub(20).max(1),
        }
    }

    fn data_file(dir: &tempfile::TempDir) -> Arc<dyn io::File> {
        let path = dir.path().join("data");
        let file = Posix.open(&path, OpenHow::CREATE_NEW).unwrap();
        file.truncate(u64::from(SLOTS) * SLOT_BYTES).unwrap();
        file
    }

    fn content(replica: &Replica, data: &Data, key: &Key) -> Option<u8> {
        let reader = data.reader();
        match replica.find(key, &reader) {
            Found::Here(Content::Zero) | Found::File(Held::Zero | Held::Absent) => Some(0),
            Found::Here(Content::Data { bytes, .. }) => bytes.first().copied(),
            Found::File(Held::There { offset, crc }) => {
                let mut block = vec![0; BLOCK];
                io::read_exact_at(&**reader.file(), &mut block, offset).unwrap();
                assert_eq!(base::checksum::crc32c(&block), crc);
                block.first().copied()
            }
        }
    }

    /// Entries are applied, written back and settled in random turns. Now and then the store loses its memory,
    /// and starts again at its last checkpoint. All replicas that applied the same entries hold the same
    /// blocks, including one that writes nothing back.
    #[test]
    fn replay_from_the_last_checkpoint_gives_the_same_blocks() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let dir = tempfile::tempdir().unwrap();
            let file = data_file(&dir);
            let mut data = Data::open(Arc::clone(&file), SLOTS).unwrap();
            let members = Members::of(&[1, 2, 3]);
            let new = || Replica::at(GROUP, Default::default(), &Bytes::new(), &members);
            let (mut replica, mut other) = (new().unwrap(), new().unwrap());
            let mut log = vec![entry(1, Op::Epoch, origin(0), 0, &[])];
            let mut checkpoint: (Index, Term, Bytes) = Default::default();
            let mut model: BTreeMap<u32, u8> = BTreeMap::new();
            for seq in 1..150 {
                let (op, first) = match rng.below(5) {
                    0 => (Op::Zero, rng.below(6000) as u32),
                    _ => (Op::Write, rng.below(6000) as u32),
                };
                let len = 1 + rng.below(4).min(u64::from(4095 - first % 4096));
                let bytes: Vec<u8> = (0..len).map(|_| 1 + rng.below(200) as u8).collect();
                log.push(entry(log.len() as u64 + 1, op, origin(seq), first, &bytes));
                for (at, byte) in (first..).zip(bytes) {
                    model.insert(at, if op == Op::Write { byte } else { 0 });
                }
                if rng.one_in(4) {
                    // A retry by a client that received no answer.
                    let mut again = log.last().unwrap().clone();
                    again.index.0 += 1;
                    log.push(again);
                }
            }
            for e in &log {
                assert_eq!(other.apply(e).unwrap().index, e.index);
            }
            while replica.applied().0 < log.len() as u64 {
                let n = rng.below(12) as usize;
                let from = replica.applied().0 as usize;
                for e in log.iter().skip(from).take(n) {
                    assert_eq!(replica.apply(e).unwrap().index, e.index);
                }
                if !rng.one_in(3) {
                    // The round may not be over: it ends in a later turn.
                    let part = if rng.one_in(2) { u64::MAX } else { 32 << 10 };
                    let marked = replica.mark(part).unwrap();
                    assert!(replica.mark(part).is_none());
                    let done = data.write_back(vec![marked], &mut |_| ()).unwrap().sync();
                    for (ticket, slot) in done.unwrap() {
                        let through = ticket.through();
                        if let Some(c) = replica.settle(ticket, slot).unwrap() {
                            checkpoint = (through, c.term(), c.state().clone());
                        }
                    }
                }
                if rng.one_in(4) {
                    let (synced, term, state) = &checkpoint;
                    data = Data::open(Arc::clone(&file), SLOTS).unwrap();
                    replica = Replica::at(GROUP, (*synced, *term), state, &members).unwrap();
                }
            }
            for (at, byte) in &model {
                let key = Key {
                    tree: Tree(1),
                    layer: Layer(1),
                    chunk: Chunk(at / 4096),
                    block: Block(at % 4096),
                };
                assert_eq!(content(&replica, &data, &key), Some(*byte), "{seed}: {at}");
                assert_eq!(content(&other, &data, &key), Some(*byte), "{seed}: {at}");
            }
            assert_eq!(replica.members(), &members);
            assert_eq!(replica.volumes, other.volumes);
        }
    }

    #[test]
    fn what_cannot_be_applied_is_refused() {
        let mut replica =
            Replica::at(GROUP, Default::default(), &Bytes::new(), &Members::of(&[1])).unwrap();
        let mut bad = entry(1, Op::Write, origin(1), 0, &[1]);
        bad.payload = Bytes::new();
        assert!(replica.apply(&bad).unwrap_err().is_corruption());
        assert_eq!(replica.applied(), Index(0));
        let gap = entry(2, Op::Write, origin(1), 0, &[1]);
        assert!(replica.apply(&gap).is_err());
        let fenced = entry(1, Op::Write, origin(1), 0, &[1]);
        assert_eq!(replica.apply(&fenced).unwrap().verdict, Verdict::Fenced);
        assert_eq!(replica.dirty_bytes(), 0);
        let empty = Committed {
            index: Index(2),
            term: Term(1),
            inline: Bytes::new(),
            payload: Bytes::new(),
            members: None,
        };
        assert_eq!(replica.apply(&empty).unwrap().verdict, Verdict::Apply);
        let cut = Bytes::from_static(&[9, 0, 0, 0, 1]);
        assert!(Replica::at(GROUP, Default::default(), &cut, &Members::of(&[1])).is_err());
    }
}
