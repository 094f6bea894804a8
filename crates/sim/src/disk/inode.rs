//! One file: its content as the process sees it, its durable content, and the operations in between.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use base::rng::Rng;

use super::Garbage;
use super::content::Content;

/// An operation on the file that is not durable.
#[derive(Clone, Debug)]
struct Pending {
    sequence: u64,
    /// Whether a sync of it failed: no later sync writes it.
    stuck: bool,
    /// The garbage that it may leave, if that was fixed; otherwise the current setting applies.
    garbage: Option<Garbage>,
    /// Whether all of its sectors are written, or none.
    atomic: bool,
    change: Change,
}

#[derive(Clone, Debug)]
enum Change {
    Write {
        offset: u64,
        data: Arc<[u8]>,
    },
    /// The length grows to this, without a write.
    Extend(u64),
    /// The length shrinks to this.
    Shrink(u64),
}

/// A file's content.
#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    now: Content,
    durable: Content,
    pending: Vec<Pending>,
    /// Sectors that became durable although older operations on them are pending; those are void.
    clean: BTreeMap<u64, u64>,
}

/// The choice of the pending operations that survive a power cut.
pub(super) struct Choice<'a> {
    pub(super) rng: &'a mut Rng,
    pub(super) sector: u64,
    /// The current setting of garbage; `None` in a file that never has garbage.
    pub(super) garbage: Option<Garbage>,
    /// Operations with later numbers never happened.
    pub(super) until: u64,
    /// The chance in 1000 that a sector gets the next operation on it.
    pub(super) data_permille: u64,
    /// The same for changes of the length.
    pub(super) size_permille: u64,
}

impl Choice<'_> {
    fn takes(&mut self, permille: u64) -> bool {
        permille >= 1000 || (permille > 0 && self.rng.below(1000) < permille)
    }
}

impl Inode {
    /// A file whose content is durable.
    pub(super) fn settled(content: Content) -> Self {
        Self {
            now: content.clone(),
            durable: content,
            ..Self::default()
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.now.len()
    }

    pub(super) fn content(&self) -> &Content {
        &self.now
    }

    /// Flips bits of one byte in both states.
    pub(super) fn flip(&mut self, at: u64, bits: u8) {
        for content in [&mut self.now, &mut self.durable] {
            content.flip(at, bits);
        }
    }

    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        self.now.read(buf, offset)
    }

    pub(super) fn write(&mut self, sequence: u64, data: &[u8], offset: u64) {
        self.now.write(data, offset);
        let data = Arc::from(data);
        self.pend(sequence, Change::Write { offset, data });
    }

    pub(super) fn set_len(&mut self, sequence: u64, len: u64) {
        let old = self.len();
        self.now.resize(len);
        if len > old {
            self.pend(sequence, Change::Extend(len));
        } else if len < old {
            self.pend(sequence, Change::Shrink(len));
        }
    }

    fn pend(&mut self, sequence: u64, change: Change) {
        self.pending.push(Pending {
            sequence,
            stuck: false,
            garbage: None,
            atomic: false,
            change,
        });
    }

    /// Fixes the garbage that pending operations may leave, whatever later writes may leave.
    pub(super) fn keep_garbage(&mut self, garbage: Garbage) {
        for p in &mut self.pending {
            p.garbage.get_or_insert(garbage);
        }
    }

    /// Makes the last write atomic.
    pub(super) fn last_is_atomic(&mut self) {
        if let Some(p) = self.pending.last_mut() {
            (p.garbage, p.atomic) = (Some(Garbage::None), true);
        }
    }

    /// A sync failed: pending operations count as written, and are not.
    pub(super) fn fail_sync(&mut self) {
        for p in &mut self.pending {
            p.stuck = true;
        }
    }

    /// Makes everything durable, except operations that a failed sync has lost.
    pub(super) fn sync(&mut self, sequence: u64, sector: u64) {
        if self
            .pending
            .iter()
            .any(|p| matches!(p.change, Change::Shrink(_)))
        {
            // The length is in the journal, and is committed in its current state.
            let stuck = self.pending.iter().any(|p| p.stuck);
            if !stuck {
                self.durable = self.now.clone();
                self.pending.clear();
                self.clean.clear();
                return;
            }
        }
        let written: Vec<Range<u64>> = self
            .pending
            .iter()
            .filter(|p| !p.stuck)
            .filter_map(|p| match &p.change {
                Change::Write { offset, data } => Some(*offset..*offset + data.len() as u64),
                _ => None,
            })
            .collect();
        self.durable.resize(self.now.len());
        for range in written {
            self.commit_range(sequence, range, sector);
        }
        self.cut_off_stuck();
        self.pending
            .retain(|p| p.stuck && matches!(p.change, Change::Write { .. }));
        if self.pending.is_empty() {
            self.clean.clear();
        }
    }

    /// The length is durable: earlier writes can never bring bytes behind it back.
    fn cut_off_stuck(&mut self) {
        let mut shortest = u64::MAX;
        for p in self.pending.iter_mut().rev() {
            match &mut p.change {
                Change::Shrink(to) => shortest = shortest.min(*to),
                Change::Write { offset, data } if *offset + data.len() as u64 > shortest => {
                    let keep = shortest.saturating_sub(*offset) as usize;
                    *data = Arc::from(&data[..keep]);
                }
                _ => {}
            }
        }
    }

    /// Makes a range durable, with the length that it needs; other writes stay pending.
    pub(super) fn commit(&mut self, sequence: u64, range: Range<u64>, sector: u64) {
        if self
            .pending
            .iter()
            .any(|p| matches!(p.change, Change::Shrink(_)))
        {
            // Committing the length also commits everything before it in the journal.
            self.sync(sequence, sector);
        }
        if self.durable.len() < range.end {
            self.durable.resize(range.end);
        }
        self.commit_range(sequence, range, sector);
        let clean = &self.clean;
        let len = self.durable.len();
        self.pending.retain(|p| match &p.change {
            Change::Write { offset, data } => {
                let end = offset + data.len() as u64;
                end > len
                    || !sectors(&(*offset..end), sector)
                        .all(|s| clean.get(&s).is_some_and(|&c| c >= p.sequence))
            }
            Change::Extend(to) => *to > len,
            Change::Shrink(_) => true,
        });
        if self.pending.is_empty() {
            self.clean.clear();
        }
    }

    fn commit_range(&mut self, sequence: u64, range: Range<u64>, sector: u64) {
        let end = range.end.next_multiple_of(sector);
        let end = end.min(self.durable.len()).min(self.now.len());
        let start = range.start - range.start % sector;
        if start >= end {
            return;
        }
        self.durable.copy(&self.now, start, end);
        for s in sectors(&range, sector) {
            self.clean.insert(s, sequence);
        }
    }

    /// The content after a power cut.
    pub(super) fn after_crash(&self, choice: &mut Choice<'_>) -> Content {
        let mut out = self.durable.clone();
        if self.pending.is_empty() {
            return out;
        }
        let mut len = out.len();
        // Changes of the length are journalled in order: after the first lost one, all are lost.
        let mut lengths_lost = false;
        let mut lost_from = u64::MAX;
        let mut stopped: BTreeSet<u64> = BTreeSet::new();
        for p in &self.pending {
            let late = p.sequence > choice.until;
            lengths_lost |= late || !choice.takes(choice.size_permille);
            match &p.change {
                Change::Extend(to) if !lengths_lost => len = len.max(*to),
                Change::Extend(_) => {}
                Change::Shrink(to) if !lengths_lost => {
                    out.resize(out.len().min(*to));
                    len = *to;
                }
                // Later writes use new blocks, which are lost with the change.
                Change::Shrink(to) => lost_from = lost_from.min(to / choice.sector),
                Change::Write { offset, data } => {
                    let end = offset + data.len() as u64;
                    if !lengths_lost {
                        len = len.max(end);
                    }
                    let range = sectors(&(*offset..end), choice.sector);
                    let together = p.atomic.then(|| {
                        let free = range
                            .clone()
                            .all(|s| s < lost_from && !stopped.contains(&s));
                        free && !late && choice.takes(choice.data_permille)
                    });
                    for s in range {
                        let void = self.clean.get(&s).is_some_and(|&c| c >= p.sequence);
                        if void || s >= lost_from || stopped.contains(&s) {
                            continue;
                        }
                        let at = (s * choice.sector).max(*offset);
                        let to = ((s + 1) * choice.sector).min(end);
                        let piece = &data[(at - offset) as usize..(to - offset) as usize];
                        let taken = match together {
                            Some(taken) => taken,
                            None => !late && choice.takes(choice.data_permille),
                        };
                        if taken {
                            out.write(piece, at);
                        } else {
                            stopped.insert(s);
                            if let Some(of_today) = choice.garbage {
                                let garbage = p.garbage.unwrap_or(of_today);
                                destroy(&mut out, at..to, s, garbage, choice);
                            }
                        }
                    }
                }
            }
        }
        out.resize(len);
        out
    }
}

/// Numbers of the sectors that the range overlaps.
fn sectors(range: &Range<u64>, sector: u64) -> Range<u64> {
    range.start / sector..range.end.div_ceil(sector)
}

/// A write that was in flight may leave garbage, if the disk has that property.
fn destroy(
    out: &mut Content,
    bytes: Range<u64>,
    sector: u64,
    garbage: Garbage,
    choice: &mut Choice<'_>,
) {
    if garbage == Garbage::None || !choice.rng.one_in(4) {
        return;
    }
    let range = match garbage {
        Garbage::Sector => sector * choice.sector..(sector + 1) * choice.sector,
        _ => bytes,
    };
    let mut junk = vec![0; (range.end - range.start) as usize];
    choice.rng.fill(&mut junk);
    out.write(&junk, range.start);
}
