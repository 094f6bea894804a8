//! Repair: a block that cannot be read, or does not match its page, is requested from the other replicas.
//! Content with the right checksum is served, and written back here again.
//!
//! The checksum identifies the content, so it does not matter which replica is the leader, and how far the
//! other has applied.

use std::collections::{BTreeMap, VecDeque};

use base::checksum::crc32c;
use bytes::Bytes;

use super::super::core::Command;
use super::Member;
use super::reads::Purpose;
use crate::group::apply::Found;
use crate::group::command::Range;
use crate::group::message::Body;
use crate::ids::BLOCK;
use crate::store::data::{Held, Reader};
use crate::store::dirty::{Content, Key};

/// Ticks after which a block is given up.
const GIVE_UP_TICKS: u32 = 10;

/// Blocks that other replicas were asked for.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    open: BTreeMap<Key, Repair>,
    pub(super) done: u64,
}

#[derive(Debug)]
struct Repair {
    crc: u32,
    /// The parts that wait for it: the reading and the number of the part.
    waits: Vec<(u64, usize)>,
    ticks: u32,
}

/// Whether the bytes are a block with this checksum. The length counts, because the checksum of no bytes is
/// 0, which a block may have too.
pub(super) fn is_block(bytes: &[u8], crc: u32) -> bool {
    bytes.len() == BLOCK && crc32c(bytes) == crc
}

impl Member {
    /// Number of blocks that were repaired from other replicas since the start.
    pub fn repaired(&self) -> u64 {
        self.repairs.done
    }

    /// Asks the other replicas for a block; part `nth` of reading `id` waits for it.
    pub(super) fn ask_for_block(
        &mut self,
        key: Key,
        crc: u32,
        (id, nth): (u64, usize),
        data: &Reader,
        out: &mut VecDeque<Command>,
    ) {
        let is_asked = |r: &&mut Repair| r.crc == crc;
        if let Some(repair) = self.repairs.open.get_mut(&key).filter(is_asked) {
            repair.waits.push((id, nth));
            return;
        }
        let repair = Repair {
            crc,
            waits: vec![(id, nth)],
            ticks: 0,
        };
        if let Some(other) = self.repairs.open.insert(key, repair) {
            self.give_repair_up(&other, data, out);
        }
        self.ask(key, crc, out);
    }

    fn ask(&mut self, key: Key, crc: u32, out: &mut VecDeque<Command>) {
        let voters = &self.node.members().voters;
        let others: Vec<u64> = voters
            .iter()
            .copied()
            .filter(|&v| v != self.node.id())
            .collect();
        for to in others {
            self.send(to, Body::Ask { key, crc }, vec![], out);
        }
    }

    /// Another replica asks for a block.
    pub(super) fn asked_for_block(
        &mut self,
        to: u64,
        key: Key,
        crc: u32,
        data: &Reader,
        out: &mut VecDeque<Command>,
    ) {
        match self.replica.find(&key, data) {
            Found::Here(Content::Data { bytes, crc: mine }) if mine == crc => {
                let bytes = self.replica.alone(&key, bytes);
                self.send(to, Body::Have { key, crc }, vec![bytes], out);
            }
            Found::File(Held::There { crc: mine, .. }) if mine == crc => {
                let range = Range {
                    tree: key.tree,
                    layer: key.layer,
                    chunk: key.chunk,
                    first: key.block,
                    blocks: 1,
                };
                self.read_for(Purpose::Other { to, crc }, range, data, out);
            }
            _ => {}
        }
    }

    /// Sends a block to the replica that asked for it.
    pub(super) fn answer_block(
        &mut self,
        (to, crc): (u64, u32),
        range: Range,
        block: Option<Bytes>,
        out: &mut VecDeque<Command>,
    ) {
        if let (Some(bytes), Some(key)) = (block, range.keys().next())
            && is_block(&bytes, crc)
        {
            self.send(to, Body::Have { key, crc }, vec![bytes], out);
        }
    }

    /// Another replica has sent a block that was asked for.
    pub(super) fn has_block(
        &mut self,
        key: Key,
        crc: u32,
        bytes: Bytes,
        data: &Reader,
        out: &mut VecDeque<Command>,
    ) {
        if !is_block(&bytes, crc) || self.repairs.open.get(&key).is_none_or(|r| r.crc != crc) {
            return;
        }
        let Some(repair) = self.repairs.open.remove(&key) else {
            return;
        };
        let is_damaged =
            |held: &Found| matches!(held, Found::File(Held::There { crc: c, .. }) if *c == crc);
        // A copy that is being received brings the leader's content.
        if !self.is_taking() && is_damaged(&self.replica.find(&key, data)) {
            let content = Content::Data {
                bytes: bytes.clone(),
                crc,
            };
            self.replica.restore(key, content);
            self.has_applied = true;
            self.repairs.done += 1;
        }
        for (id, nth) in repair.waits {
            self.part_is_here(id, nth, Some(bytes.clone()), data, out);
        }
    }

    /// Gives up blocks that were asked for too long ago, and asks again for the others: messages may be lost,
    /// and a replica that has not applied the content yet does not answer.
    pub(super) fn repairs_tick(&mut self, data: &Reader, out: &mut VecDeque<Command>) {
        if self.repairs.open.is_empty() {
            return;
        }
        let all = std::mem::take(&mut self.repairs.open);
        for (key, mut repair) in all {
            repair.ticks += 1;
            if repair.ticks > GIVE_UP_TICKS {
                self.give_repair_up(&repair, data, out);
            } else {
                self.ask(key, repair.crc, out);
                self.repairs.open.insert(key, repair);
            }
        }
    }

    fn give_repair_up(&mut self, repair: &Repair, data: &Reader, out: &mut VecDeque<Command>) {
        for &(id, nth) in &repair.waits {
            self.part_is_here(id, nth, None, data, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A failed read returns no bytes, which were taken for a block with the checksum 0.
    #[test]
    fn no_bytes_are_no_block() {
        assert_eq!(crc32c(&[]), 0);
        assert!(!is_block(&[], 0));
        let block = [3; BLOCK];
        assert!(is_block(&block, crc32c(&block)) && !is_block(&block, 0));
    }
}
