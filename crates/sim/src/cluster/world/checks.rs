//! The invariants, checked during a run and at its end.

use std::collections::BTreeMap;

use base::checksum::crc32c;
use block::group::apply::Found;
use block::ids::{BLOCK, Block, Chunk, Group, Index};
use block::raftlog::groups::GroupLog;
use block::shard::member::Member;
use block::store::data::Held;
use block::store::dirty::{Content, Key};

use super::super::history::{Action, Operation, Outcome, Ticket};
use super::super::linear;
use super::{ANSWERED_BY, BUSY_IN_CALM, World};

/// A process's life, and how many copies it has begun and completed, and their bytes.
type Copies = (u64, (u64, u64, u64));

/// What was seen of replicas at an entry: the first replica that had applied it, and a hash of its blocks.
#[derive(Default)]
pub(super) struct Seen {
    /// By group and entry.
    blocks: BTreeMap<(Group, u64), (u64, u64)>,
    /// The same with each block's crc, if a trace is kept.
    details: BTreeMap<(Group, u64), Vec<(Key, u64)>>,
    /// A group's state at a checkpoint.
    states: BTreeMap<(Group, u64), (u64, u32)>,
    /// The copies of each replica's process.
    copies: BTreeMap<(Group, u64), Copies>,
    /// The newest entry of each group that any replica has applied.
    newest: BTreeMap<Group, u64>,
    /// The entry up to which a replica's blocks may be too new, because it gets a copy.
    too_new: BTreeMap<(Group, u64), u64>,
    /// When a newer attachment was answered, by client.
    pub(super) replaced: BTreeMap<u32, u64>,
    /// The changes of clients that are gone.
    changes: Vec<(u32, Vec<Ticket>)>,
}

/// Mixes a value into a hash.
fn mix(hash: u64, value: u64) -> u64 {
    (hash ^ value)
        .wrapping_mul(0x0100_0000_01b3)
        .rotate_left(29)
}

/// Dirty bytes allowed beyond the policy's limit, for entries that were on their way when it was reached.
const DIRTY_SLACK: u64 = 2 << 20;

impl World {
    /// The blocks of a group, over all volumes.
    fn keys(&self, group: Group) -> Vec<Key> {
        let mut keys = Vec::new();
        for map in &self.shape.volumes {
            for piece in map.pieces(0, map.size()).filter(|p| p.group == group) {
                let first = piece.offset_in_chunk / 4096;
                keys.extend((first..first + piece.len.div_ceil(4096)).map(|block| Key {
                    tree: map.tree(),
                    layer: map.layer(),
                    chunk: Chunk(piece.chunk.0),
                    block: Block(block),
                }));
            }
        }
        keys
    }

    /// Compares replicas at the same entry, and checks the stores' memory and logs.
    pub(super) fn look(&mut self) {
        for group in self.shape.groups.keys().copied().collect::<Vec<_>>() {
            let keys = self.keys(group);
            self.note_copies(group);
            for n in 0..self.nodes.len() {
                if self.nodes[n].runs(group) {
                    self.look_at(n, group, &keys);
                }
            }
        }
        for n in 0..self.nodes.len() {
            let most = self.shape.policy.dirty_bytes_max + DIRTY_SLACK;
            let Some(process) = &mut self.nodes[n].process else {
                continue;
            };
            let file = process.core.log().file_number();
            self.coverage.log_files += file - process.log_file;
            process.log_file = file;
            let dirty = process.core.dirty_bytes();
            if dirty > most {
                self.fail(format!("{} has {dirty} dirty bytes", self.nodes[n].id));
            }
        }
        let fenced = self
            .clients
            .iter()
            .filter(|(_, c)| c.is_replaced && c.is_fenced());
        for id in fenced.map(|(&id, _)| id).collect::<Vec<_>>() {
            if let Some(client) = self.clients.get(&id) {
                self.seen.changes.push((id, client.changes().to_vec()));
            }
            self.forget_client(id);
        }
    }

    /// Whether a replica's blocks must be those of the entry that it has applied.
    fn is_whole(&self, n: usize, group: Group, applied: Index) -> bool {
        let copied = self.seen.too_new.get(&(group, n as u64 + 1));
        let process = self.nodes[n].process.as_ref();
        let member = process.and_then(|p| p.core.member(group));
        // All stores may have crashed since a copy began, so that only the log knows of it.
        let of_log = process.and_then(|p| p.core.log().groups().get(group));
        self.nodes[n].is_replayed(group, applied)
            && copied.is_none_or(|&c| c <= applied.0)
            && of_log.is_none_or(|g| g.copying() <= applied)
            && !member.is_some_and(Member::is_taking)
    }

    /// Notes which replicas get a copy: until they have applied everything that any replica has now, their
    /// blocks may be too new.
    pub(super) fn note_copies(&mut self, group: Group) {
        // Including entries that a crash has undone, which are applied again.
        let mut newest = self.seen.newest.get(&group).copied().unwrap_or(0);
        let mut copied = Vec::new();
        for (node, name) in self.nodes.iter().zip(1..) {
            let Some(member) = node.process.as_ref().and_then(|p| p.core.member(group)) else {
                continue;
            };
            newest = newest.max(member.replica().applied().0);
            let counts = (node.life, member.copies());
            let before = self.seen.copies.insert((group, name), counts);
            if member.is_taking() {
                copied.push(name);
            }
            // The process has sent a copy; the receiver is unknown.
            if before.is_some_and(|b| b.0 == counts.0 && b.1 != counts.1) {
                copied.extend(self.shape.groups.get(&group).into_iter().flatten());
            }
            if member.node().has_applied_own_term() {
                for p in member.node().progress() {
                    if !p.needs_copy {
                        self.stranded.remove(&(group, p.id));
                    } else if self.stranded.insert((group, p.id)) {
                        self.coverage.stranded += 1;
                    }
                }
            }
        }
        let stranded = self.stranded.iter().filter(|s| s.0 == group);
        copied.extend(stranded.map(|s| s.1));
        for name in copied {
            self.seen.too_new.insert((group, name), newest);
        }
        self.seen.newest.insert(group, newest);
    }

    fn look_at(&mut self, n: usize, group: Group, keys: &[Key]) {
        let Some(process) = &self.nodes[n].process else {
            return;
        };
        let Some(member) = process.core.member(group) else {
            return;
        };
        let name = n as u64 + 1;
        let node = member.node();
        if node.has_applied_own_term() && self.leaders.insert((group, node.term().0)) {
            self.coverage.leaders += 1;
        }
        let of_log = process.core.log().groups().get(group);
        let first = of_log.map_or(0, |g| g.first().0);
        let before = self.firsts.insert((group, name), first);
        self.coverage.truncations += u64::from(before.is_some_and(|b| b < first));
        let reader = process.reader();
        let applied = member.replica().applied().0;
        let is_whole = !self.nodes[n].is_damaged && self.is_whole(n, group, Index(applied));
        let mut hash = 1;
        let mut all = Vec::new();
        let zeros = crc32c(&[0; BLOCK]);
        for map in &self.shape.volumes {
            hash = mix(hash, u64::from(member.replica().epoch(map.tree()).0));
        }
        for key in keys {
            let crc = match member.replica().find(key, &reader) {
                Found::Here(Content::Data { crc, .. }) | Found::File(Held::There { crc, .. }) => {
                    // A copy may store a block of zeros as data; both count as zero.
                    if crc == zeros { 0 } else { u64::from(crc) }
                }
                _ => 0,
            };
            hash = mix(hash, crc);
            all.push((*key, crc));
        }
        let state = of_log.map(|g| (g.synced().0.0, crc32c(g.state())));
        let blocks = &mut self.seen.blocks;
        let wrong = is_whole
            .then(|| differs(blocks, (group, applied), (name, hash), "blocks"))
            .flatten();
        let state = state.filter(|s| s.0 > 0).and_then(|(at, crc)| {
            differs(&mut self.seen.states, (group, at), (name, crc), "state")
        });
        self.coverage.compared += 1;
        if self.trace.is_some() {
            self.tell_difference((group, applied), name, &all, wrong.is_some());
        }
        if let Some(wrong) = wrong.or(state) {
            self.fail(wrong);
        }
    }

    /// Keeps the blocks of a replica at an entry, and prints which of them differ from those of another.
    fn tell_difference(&mut self, at: (Group, u64), name: u64, all: &[(Key, u64)], differs: bool) {
        let first = self.seen.details.entry(at).or_insert_with(|| all.to_vec());
        let pairs = first.iter().zip(all).filter(|(a, b)| a != b);
        let pairs: Vec<(Key, u64, u64)> = pairs.map(|(a, b)| (a.0, a.1, b.1)).collect();
        for (key, first, mine) in pairs.into_iter().filter(|_| differs) {
            self.say(format_args!(
                "{key:?} was {first:#x}, and is {mine:#x} on store {name}"
            ));
        }
    }

    /// Whether every volume was read completely, and nothing is open.
    pub(super) fn is_done(&self) -> bool {
        self.final_reads.iter().all(|(_, is_read)| *is_read)
    }

    /// Number of a group's running replicas on stores without a replica that needs a copy: entries that such a
    /// replica cannot commit fill the log of its store, which then takes no entries of other groups either.
    fn sound(&self, group: Group) -> usize {
        let stores = self.shape.groups.get(&group).into_iter().flatten();
        let sound = stores.filter(|&&name| {
            let is_stranded = self.stranded.iter().any(|s| s.1 == name);
            self.nodes[name as usize - 1].runs(group) && !is_stranded
        });
        sound.count()
    }

    /// Whether the leader of a group is on a store with a replica that needs a copy: the store takes nothing,
    /// and never hands the leadership over.
    fn is_led_in_vain(&self, group: Group) -> bool {
        self.stranded.iter().any(|&(_, name)| {
            let process = self.nodes[name as usize - 1].process.as_ref();
            let member = process.and_then(|p| p.core.member(group));
            member.is_some_and(|m| m.node().leader() == Some(name))
        })
    }

    /// Whether a volume has a group without a quorum.
    fn lacks_quorum(&self, volume: usize) -> bool {
        let groups = self.shape.volumes[volume].groups();
        let mut groups = groups.iter();
        groups.any(|&g| self.sound(g) < 2 || self.is_led_in_vain(g))
    }

    /// Checks that operations which were open when clients stopped are answered.
    pub(super) fn check_answered(&mut self) {
        for volume in 0..self.current.len() {
            let Some(client) = self.clients.get(&self.current[volume]) else {
                continue;
            };
            // The final reads begin after everything else is answered, and have time until the end of the
            // run.
            if self.final_reads[volume].0 > 0 || self.lacks_quorum(volume) {
                continue;
            }
            let seconds = (BUSY_IN_CALM + ANSWERED_BY) / 1_000_000_000;
            let (open, stuck) = (client.open(), client.stuck_since());
            let text = format!(
                "no progress: {seconds} s after everything was well {open} operations of client {} are open, \
                 stuck since {stuck:?}",
                client.node.0
            );
            self.fail(text + &self.state_of_groups());
            return;
        }
    }

    /// A line for each replica.
    pub(super) fn state_of_groups(&self) -> String {
        let mut out = String::new();
        for (&group, stores) in &self.shape.groups {
            for &name in stores {
                let node = &self.nodes[name as usize - 1];
                out += &format!("\n  group {group} {}: ", node.id);
                let Some(process) = &node.process else {
                    out += if node.is_retired { "retired" } else { "down" };
                    continue;
                };
                if let Some(member) = process.core.member(group) {
                    let raft = member.node();
                    let of_log = process.core.log().groups().get(group);
                    let first = of_log.map_or(Index(0), GroupLog::first);
                    let file = of_log.and_then(|g| g.entry(first)).map(|e| e.file);
                    out += &format!(
                        "{:?} term {} leader {:?} applied {} commit {} last {} log {:.2} full, {} dirty, {} in flight, first entry {first} in \
                         file {file:?} of {}, synced {:?} {:?}",
                        raft.role(),
                        raft.term(),
                        raft.leader(),
                        member.replica().applied(),
                        raft.commit(),
                        raft.last(),
                        process.core.log().fill(),
                        process.core.dirty_bytes(),
                        process.core.log().flying(),
                        process.core.log().file_number(),
                        of_log.map(GroupLog::synced),
                        raft.progress(),
                    );
                }
            }
        }
        out
    }

    /// Checks everything once more. Errors: the violation.
    pub(super) fn finish(&mut self) -> Result<(), String> {
        self.coverage.runs = 1;
        self.coverage.seconds = self.now / 1_000_000_000;
        let counts = self.network.counts();
        self.coverage.messages = counts.sent;
        self.coverage.lost = counts.lost;
        self.coverage.duplicated = counts.duplicated;
        if self.violation.is_none() && !self.is_done() {
            if (0..self.current.len()).any(|v| self.lacks_quorum(v)) {
                self.coverage.without_quorum = 1;
            } else {
                let state = self.state_of_groups();
                self.fail(format!("not all volumes could be read in the end{state}"));
            }
        }
        if self.violation.is_none() {
            self.look();
            self.scrub();
        }
        if let Some(violation) = self.violation.take() {
            return Err(violation);
        }
        self.judge()
    }

    /// Checks that every block in a data file matches its page.
    fn scrub(&mut self) {
        let mut wrong = None;
        for (&group, stores) in &self.shape.groups {
            let keys = self.keys(group);
            for &name in stores {
                let node = &self.nodes[name as usize - 1];
                let Some(process) = node.process.as_ref().filter(|_| !node.is_damaged) else {
                    continue;
                };
                let reader = process.reader();
                let Some(member) = process.core.member(group) else {
                    continue;
                };
                if !self.is_whole(name as usize - 1, group, member.replica().applied()) {
                    continue;
                }
                for key in &keys {
                    // Dirty blocks, and blocks on their way, are not checked.
                    if let Found::File(Held::There { offset, crc }) =
                        member.replica().find(key, &reader)
                        && node.read_block(offset).is_none_or(|b| crc32c(&b) != crc)
                    {
                        wrong = Some(format!("{}: {key:?} is not what its page says", node.id));
                    }
                }
            }
        }
        if let Some(wrong) = wrong {
            self.fail(wrong);
        }
    }

    /// Checks whether a single copy of each register could have given these answers.
    fn judge(&mut self) -> Result<(), String> {
        if let Some(violation) = self.violation.take() {
            return Err(violation);
        }
        for client in self.clients.values() {
            self.seen
                .changes
                .push((client.node.0, client.changes().to_vec()));
        }
        for (client, changes) in &self.seen.changes {
            if let Some(&moment) = self.seen.replaced.get(client) {
                self.history.end_by(changes, moment);
            }
        }
        let judged = self.history.judged();
        let unanswered =
            |o: &&Operation| o.action == Action::Write && o.outcome == Outcome::Unanswered;
        self.coverage.unanswered = judged.iter().filter(unanswered).count() as u64;
        let tally = linear::check(&judged).map_err(|v| v.to_string())?;
        self.coverage.registers = tally.blocks as u64;
        self.coverage.undecided = tally.undecided.len() as u64;
        Ok(())
    }
}

/// Notes a value of a replica at an entry; returns how it differs from another replica's.
fn differs<T: Copy + PartialEq>(
    seen: &mut BTreeMap<(Group, u64), (u64, T)>,
    at: (Group, u64),
    mine: (u64, T),
    what: &str,
) -> Option<String> {
    let first = *seen.entry(at).or_insert(mine);
    (first.1 != mine.1).then(|| {
        let (group, index) = at;
        format!(
            "stores {} and {} have another {what} of group {group} at entry {index}",
            first.0, mine.0
        )
    })
}
