//! The entries of several ranges, whose first blocks are read at the same time.

use std::collections::VecDeque;
use std::iter::FusedIterator;

use base::SequenceNumber;
use base::stats::{HistogramKind, Ticker};

use super::entries::{self, Entries, KeyRange};
use super::iter::DbIterator;
use super::sources::Origin;

/// How many ranges are begun at the same time.
const AT_ONCE: usize = 16;

/// How many bytes these may read at most, unless a single range reads more.
const BYTES_AT_ONCE: usize = 128 << 20;

/// The entries of several ranges, one [`Entries`] for each, in the order in which the ranges were given. All show the state at
/// the time of [`Cf::multi_scan`](crate::Cf::multi_scan). Ranges may overlap.
///
/// Up to sixteen ranges at a time are begun together: what they lack of all tables is read at the same time. Of each table, a
/// range is read as a whole, up to [`max_auto_readahead_size`](crate::TableOptions::max_auto_readahead_size) bytes at once, or
/// [`readahead_size`](crate::ReadOptions::readahead_size). So many small ranges of cold data take a fraction of the time that one
/// iterator takes which seeks to each of them. A range without an end is not read as a whole, and neither is one with an
/// inclusive end with a comparator other than the default. Ranges without a start, and those of a family with a
/// `prefix_extractor` whose filters may be asked, are begun one after the other.
///
/// What was read stays in memory until the `Entries` of the range is dropped: for the ranges that are begun together, 128 MiB at
/// most, unless a single one has more.
///
/// The last item of an [`Entries`] may be an error, which ends that range only.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let mut options = ironstone::Options::default();
/// # options.db.create_if_missing = true;
/// # let db = ironstone::Db::open(dir.path(), &options)?;
/// for key in ["a/1", "a/2", "b/1", "c/1"] {
///     db.put(key, "value")?;
/// }
/// let mut found = Vec::new();
/// for entries in db.multi_scan(["a/2".."b", "c".."d"])? {
///     for entry in entries {
///         found.push(entry?.0);
///     }
/// }
/// assert_eq!(found, [b"a/2", b"c/1"]);
/// # Ok::<(), ironstone::Error>(())
/// ```
#[must_use = "iterators are lazy and do nothing unless consumed"]
pub struct MultiScan {
    origin: Origin,
    sequence: SequenceNumber,
    /// The ranges that are not begun yet.
    ranges: VecDeque<KeyRange>,
    begun: VecDeque<Entries>,
}

impl MultiScan {
    pub(crate) fn new(
        origin: Origin,
        sequence: SequenceNumber,
        ranges: VecDeque<KeyRange>,
    ) -> Self {
        Self {
            origin,
            sequence,
            ranges,
            begun: VecDeque::new(),
        }
    }

    /// Begins some ranges.
    fn begin(&mut self) {
        let (origin, statistics) = (&self.origin, self.origin.statistics.as_deref());
        let timer = statistics
            .is_some_and(base::stats::Statistics::wants_times)
            .then(|| origin.clock.monotonic_nanos());
        let comparator = origin.family.comparator();
        let cursor = |range: &KeyRange| {
            let options = entries::bounded(&origin.options, comparator, range);
            DbIterator::new(Box::new(origin.of_range(options)), self.sequence)
        };
        let mut ranges = self.ranges.iter();
        let mut cursors: Vec<_> = ranges.next().map(cursor).into_iter().collect();
        let of_one = cursors.first().map_or(0, DbIterator::reads_at_most);
        let count = BYTES_AT_ONCE.checked_div(of_one).unwrap_or(AT_ONCE);
        let count = count.clamp(1, AT_ONCE).min(self.ranges.len());
        cursors.extend(ranges.take(count - 1).map(cursor));
        // A panic of the user's code here leaves the ranges for another try.
        let reads = DbIterator::begin_together(&mut cursors);
        if let Some(statistics) = statistics {
            statistics.add(Ticker::MultiscanPrepareCalls, 1);
            statistics.add(Ticker::MultiscanIoRequests, reads as u64);
        }
        if let (Some(statistics), Some(began)) = (statistics, timer) {
            let nanos = origin.clock.monotonic_nanos().saturating_sub(began);
            statistics.record_time(HistogramKind::MultiscanPrepareMicros, nanos / 1000);
        }
        let ranges = self.ranges.drain(..count);
        let entries = |(cursor, range)| Entries::begun(cursor, comparator.clone(), range);
        self.begun
            .extend(cursors.into_iter().zip(ranges).map(entries));
    }
}

impl Iterator for MultiScan {
    type Item = Entries;

    fn next(&mut self) -> Option<Entries> {
        if self.begun.is_empty() && !self.ranges.is_empty() {
            self.begin();
        }
        self.begun.pop_front()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.ranges.len() + self.begun.len();
        (left, Some(left))
    }
}

impl ExactSizeIterator for MultiScan {}

impl FusedIterator for MultiScan {}

impl std::fmt::Debug for MultiScan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MultiScan({} ranges left)", self.len())
    }
}
