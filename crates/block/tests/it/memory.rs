//! Exports in memory: sparse, and aware of their holes. Operations are executed when they are submitted;
//! slow exports complete them later, in any order.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use base::rng::Rng;
use base::{Error, Result};
use block::ids::BLOCK;
use block::nbd::command::{ExportId, ExportInfo, Extent, Op, Piece, Reply};
use block::nbd::exports::{Completion, Exports, Token};
use bytes::Bytes;
use rustix::event::{EventfdFlags, eventfd};

const B: u64 = BLOCK as u64;

/// Counters of the exports.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Attachments that are not detached.
    pub(crate) attached: AtomicI64,
    /// Operations that are not completed.
    pub(crate) out: AtomicI64,
    /// Operations that were submitted.
    pub(crate) submitted: AtomicI64,
    /// Slow exports complete nothing while fewer operations wait.
    pub(crate) least: AtomicUsize,
}

/// Exports in memory. They are "vol" and "", which are the same, and "vol@snap", which is the same but
/// read-only.
#[derive(Debug)]
pub(crate) struct Memory {
    size: u64,
    blocks: HashMap<u64, Bytes>,
    done: Vec<(Token, Completion)>,
    slow: Option<Slow>,
    pub(crate) counts: Arc<Counts>,
}

/// Completes one waiting operation at a time, in random order, once `least` of them wait: see [`Counts`].
#[derive(Debug)]
struct Slow {
    rng: Rng,
    event: OwnedFd,
}

impl Memory {
    pub(crate) fn new(size: u64) -> Self {
        Self {
            size,
            blocks: HashMap::new(),
            done: Vec::new(),
            slow: None,
            counts: Arc::default(),
        }
    }

    /// Exports that complete in any order, and nothing before `least` operations wait.
    pub(crate) fn slow(size: u64, least: usize) -> Self {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let mut memory = Self::new(size);
        memory.counts.least.store(least, Ordering::Relaxed);
        memory.slow = Some(Slow {
            rng: Rng::new(7),
            event,
        });
        memory
    }

    fn find(&self, name: &str) -> Result<ExportInfo> {
        let read_only = name == "vol@snap";
        if !read_only && !matches!(name, "vol" | "") {
            return Err(Error::not_found(format!("no export {name}")));
        }
        Ok(ExportInfo {
            id: ExportId(u64::from(read_only)),
            name: name.to_owned(),
            description: "in memory".to_owned(),
            size: self.size,
            read_only,
            fast_zero: true,
        })
    }

    fn push(&mut self, token: Token, how: Completion) {
        self.done.push((token, how));
        if let Some(slow) = &self.slow {
            rustix::io::write(&slow.event, &1_u64.to_ne_bytes()).unwrap();
        }
    }

    fn run(&mut self, op: Op) -> Reply {
        match op {
            Op::Read { offset, len, .. } => return self.read(offset, u64::from(len)),
            Op::Write { offset, bytes, .. } => self.write(offset, &bytes),
            Op::Zero {
                offset,
                len,
                no_hole,
                ..
            } => self.zero(offset, u64::from(len), no_hole),
            Op::Trim { offset, len, .. } => {
                for block in offset.div_ceil(B)..(offset + u64::from(len)) / B {
                    self.blocks.remove(&block);
                }
            }
            Op::BlockStatus { offset, len, .. } => {
                let extent = |(_, at, end): (u64, u64, u64), hole| Extent {
                    len: end - at,
                    hole,
                    zero: hole,
                };
                let parts = parts(offset, u64::from(len));
                let extents = parts.map(|p| extent(p, !self.blocks.contains_key(&p.0)));
                return Reply::Status(extents.collect());
            }
            Op::Flush | Op::Cache { .. } => {}
        }
        Reply::Done
    }

    fn read(&self, offset: u64, len: u64) -> Reply {
        let mut pieces = Vec::new();
        for (block, at, end) in parts(offset, len) {
            pieces.push(match self.blocks.get(&block) {
                Some(bytes) => Piece::Data(bytes.slice(at as usize..end as usize)),
                None => Piece::Hole((end - at) as u32),
            });
        }
        if let [Piece::Data(bytes)] = &pieces[..] {
            return Reply::Data(bytes.clone());
        }
        Reply::Pieces(pieces)
    }

    fn write(&mut self, offset: u64, bytes: &Bytes) {
        assert_eq!(bytes.as_ptr() as usize % BLOCK, 0);
        let mut from = 0;
        for (block, at, end) in parts(offset, bytes.len() as u64) {
            let part = bytes.slice(from..from + (end - at) as usize);
            from += part.len();
            self.put(block, at as usize, part);
        }
    }

    fn zero(&mut self, offset: u64, len: u64, no_hole: bool) {
        static ZEROS: [u8; BLOCK] = [0; BLOCK];
        for (block, at, end) in parts(offset, len) {
            if end - at == B && !no_hole {
                self.blocks.remove(&block);
            } else {
                let zeros = Bytes::from_static(&ZEROS[..(end - at) as usize]);
                self.put(block, at as usize, zeros);
            }
        }
    }

    fn put(&mut self, block: u64, at: usize, part: Bytes) {
        if part.len() == BLOCK {
            self.blocks.insert(block, part);
            return;
        }
        let mut whole = match self.blocks.get(&block) {
            Some(old) => old.to_vec(),
            None => vec![0; BLOCK],
        };
        whole[at..at + part.len()].copy_from_slice(&part);
        self.blocks.insert(block, whole.into());
    }
}

/// The blocks of a range: the number of each, and the range within it.
fn parts(offset: u64, len: u64) -> impl Iterator<Item = (u64, u64, u64)> {
    let end = offset + len;
    (offset / B..end.div_ceil(B)).map(move |block| {
        let start = block * B;
        (block, offset.max(start) - start, end.min(start + B) - start)
    })
}

impl Exports for Memory {
    fn list(&mut self, token: Token) {
        let names = vec!["vol".to_owned(), "vol@snap".to_owned()];
        self.push(token, Completion::Names(Ok(names)));
    }

    fn describe(&mut self, token: Token, name: &str) {
        let found = self.find(name);
        self.push(token, Completion::Export(found));
    }

    fn attach(&mut self, token: Token, name: &str) {
        let found = self.find(name);
        if found.is_ok() {
            self.counts.attached.fetch_add(1, Ordering::Relaxed);
        }
        self.push(token, Completion::Export(found));
    }

    fn detach(&mut self, _: ExportId) {
        self.counts.attached.fetch_sub(1, Ordering::Relaxed);
    }

    fn submit(&mut self, token: Token, export: ExportId, op: Op) {
        let changes = matches!(op, Op::Write { .. } | Op::Trim { .. } | Op::Zero { .. });
        assert!(export.0 == 0 || !changes, "a read-only export is changed");
        self.counts.out.fetch_add(1, Ordering::Relaxed);
        self.counts.submitted.fetch_add(1, Ordering::Relaxed);
        let reply = self.run(op);
        self.push(token, Completion::Done(Ok(reply)));
    }

    fn completed(&mut self, out: &mut Vec<(Token, Completion)>) {
        let before = out.len();
        if let Some(slow) = &mut self.slow {
            let least = self.counts.least.load(Ordering::Relaxed);
            let is_done = |how: &Completion| matches!(how, Completion::Done(_));
            let ask = self.done.iter().position(|(_, how)| !is_done(how));
            let waits = self.done.len();
            let any = (waits > 0 && waits >= least).then(|| slow.rng.below(waits as u64) as usize);
            if let Some(at) = ask.or(any) {
                out.push(self.done.swap_remove(at));
            }
            if self.done.is_empty() || waits < least {
                rustix::io::read(&slow.event, &mut [0; 8]).unwrap_or_default();
            }
        } else {
            out.append(&mut self.done);
        }
        let done = |how: &Completion| matches!(how, Completion::Done(_));
        let count = out[before..].iter().filter(|(_, how)| done(how)).count();
        self.counts.out.fetch_sub(count as i64, Ordering::Relaxed);
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        self.slow.as_ref().map(|s| s.event.as_fd())
    }
}
