//! Decides where one output file of a compaction ends and the next begins.
//!
//! A file ends when it is large enough, or when the files of the next level that it overlaps are too large.
//! It may also end a little early, where one of those files ends: the next compaction then has to merge
//! less. All versions of a user key go to one file; the caller ensures that.

use std::sync::Arc;

use base::Comparator;

use crate::Candidate;
use options::hooks::partitioner::{PartitionerRequest, SstPartitioner};

/// The sizes at which files are cut.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Intended size of a file in bytes.
    pub target: u64,
    /// Approximate maximum size of a file in bytes.
    pub max: u64,
    /// Maximum for the bytes of a file plus the bytes of the next level's files that it overlaps.
    pub overlap_max: u64,
    /// Whether files may end early, where files of the next level end.
    pub early: bool,
}

/// Decides before each entry whether a new file begins with it.
pub struct Cutter<F> {
    comparator: Comparator,
    sizes: Sizes,
    /// The files of the level after the output level, by key.
    behind: Vec<Arc<F>>,
    /// The first of these files that the keys have not passed.
    at: usize,
    /// Whether the keys are before the start of that file.
    in_gap: bool,
    started: bool,
    /// Bytes of these files that the current output file overlaps.
    overlap: u64,
    /// Number of starts and ends of these files within the current output file.
    boundaries: u64,
    partitioner: Option<Box<dyn SstPartitioner>>,
}

impl<F: Candidate> Cutter<F> {
    /// Cuts files of these sizes. `behind`: the files of the next level, by key.
    pub fn new(
        comparator: Comparator,
        sizes: Sizes,
        behind: Vec<Arc<F>>,
        partitioner: Option<Box<dyn SstPartitioner>>,
    ) -> Self {
        Self {
            comparator,
            sizes,
            behind,
            at: 0,
            in_gap: true,
            started: false,
            overlap: 0,
            boundaries: 0,
            partitioner,
        }
    }

    /// Whether [`Cutter::cuts_before`] must be called at all when the file has `size` bytes.
    #[inline]
    pub fn looks_at(&self, size: u64) -> bool {
        size >= self.sizes.max || !self.behind.is_empty() || self.partitioner.is_some()
    }

    /// Whether a new file begins with `key`, which differs from the last user key. `file` is the current
    /// file: its size and its last user key.
    #[inline]
    pub fn cuts_before(&mut self, key: &[u8], file: Option<(u64, &[u8])>) -> bool {
        let overlap_before = self.overlap;
        let crossed = if self.behind.is_empty() {
            0
        } else {
            self.advance(key)
        };
        let Some((size, last)) = file else {
            return false;
        };
        let cut = self.partitions(size, last, key)
            || size >= self.sizes.max
            || (crossed > 0 && self.cuts_at_boundary(size, crossed, overlap_before));
        if cut {
            self.begin_file();
        }
        cut
    }

    fn partitions(&mut self, size: u64, last: &[u8], key: &[u8]) -> bool {
        self.partitioner.as_mut().is_some_and(|p| {
            p.should_partition(&PartitionerRequest {
                prev_user_key: last,
                current_user_key: key,
                current_output_file_size: size,
            })
        })
    }

    fn cuts_at_boundary(&self, size: u64, crossed: u64, overlap_before: u64) -> bool {
        let Sizes {
            target,
            overlap_max,
            early,
            ..
        } = self.sizes;
        if self.overlap.saturating_add(size) > overlap_max {
            return true;
        }
        if !early {
            return false;
        }
        // Whole files of the next level lie between the last key and this one. A cut here spares them the
        // next compaction.
        let skippable = if self.in_gap { 2 } else { 3 };
        if crossed >= skippable && self.overlap - overlap_before > target / 8 {
            return true;
        }
        // The more boundaries the file has passed, the fuller it should be.
        let percent = 50 + (self.boundaries * 5).min(40);
        size >= target.div_ceil(100) * percent
    }

    /// Advances to `key`; returns the number of starts and ends of files of the next level that were
    /// passed.
    fn advance(&mut self, key: &[u8]) -> u64 {
        let mut crossed = 0;
        while let Some(f) = self.behind.get(self.at) {
            if self.in_gap {
                if self.comparator.compare(key, f.smallest()).is_lt() {
                    break;
                }
                if self.started {
                    crossed += 1;
                    self.overlap += f.size();
                }
                self.in_gap = false;
            } else {
                let order = self.comparator.compare(key, f.largest());
                let next_has_it = self
                    .behind
                    .get(self.at + 1)
                    .is_some_and(|n| self.comparator.compare(key, n.smallest()).is_ge());
                if order.is_lt() || (order.is_eq() && !next_has_it) {
                    break;
                }
                if self.started {
                    crossed += 1;
                }
                self.in_gap = true;
                self.at += 1;
            }
        }
        if !self.started {
            self.started = true;
            self.overlap = self.current_overlap();
        }
        self.boundaries += crossed;
        crossed
    }

    fn current_overlap(&self) -> u64 {
        match self.behind.get(self.at) {
            Some(f) if !self.in_gap => f.size(),
            _ => 0,
        }
    }

    fn begin_file(&mut self) {
        self.overlap = self.current_overlap();
        self.boundaries = 0;
    }
}
