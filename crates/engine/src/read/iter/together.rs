//! Several iterators that are positioned at the same time.

use base::perf::PerfCounter;
use base::stats::Ticker;
use base::{ValueType, key};

use super::{DbIterator, Direction};
use merging::MergingIter;

impl DbIterator {
    /// Moves each of the iterators to its first entry. What all of them lack is read at the same time. Returns how many reads were
    /// done together.
    pub(crate) fn begin_together(iters: &mut [Self]) -> usize {
        let (mut begun, mut seeks) = (Vec::new(), Vec::new());
        let began = iters.first().and_then(Self::clocked);
        for (i, iter) in iters.iter_mut().enumerate() {
            if let Some(target) = iter.begin_at_lower() {
                begun.push(i);
                seeks.push((&mut iter.inner, target));
            }
        }
        let Some(first) = begun.first().copied() else {
            return 0;
        };
        let reads = MergingIter::seek_together(&mut seeks);
        iters[first].took(PerfCounter::SeekInternalSeekTime, began);
        let began = iters[first].clocked();
        for i in &begun {
            iters[*i].find_next(false);
            iters[*i].count_arrival(Ticker::NumberDbSeekFound);
        }
        iters[first].took(PerfCounter::FindNextUserEntryTime, began);
        reads
    }

    /// The most bytes that its cursors read at once, each of them.
    pub(crate) fn reads_at_most(&self) -> usize {
        let origin = &self.origin;
        let of_each = match origin.options.readahead_size {
            0 => origin.family.options().table.max_auto_readahead_size,
            bytes => bytes,
        };
        let of_each = usize::try_from(of_each).unwrap_or(usize::MAX);
        of_each.saturating_mul(self.inner.cursors())
    }

    /// Begins to move to the first entry; returns where the cursors must seek to. `None` if it is done: without a lower bound,
    /// and where filters of prefixes are asked.
    fn begin_at_lower(&mut self) -> Option<Vec<u8>> {
        let Some(lower) = self.lower.clone() else {
            self.seek_to_first();
            return None;
        };
        let upper = self.upper.as_deref();
        if self.scope.aim(&lower, &lower, upper, true).is_some() {
            self.seek(&lower);
            return None;
        }
        let may_go = self.begin(Direction::Forward);
        may_go.then(|| key::encode(&lower, self.sequence, ValueType::FOR_SEEK))
    }
}
