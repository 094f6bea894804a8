//! Whether a source has any entry or range tombstone in a range of user keys. The bounds of a file show where it
//! may have keys; these checks find out whether it has any. Manual compactions use them, to leave out levels
//! without data in the range.

use std::sync::Arc;

use base::stats::Activity;
use base::{Comparator, Result, key};
use keyspan::span::{Span, before_versions};
use memtable::Memtable;
use table::InternalIterator;

use crate::catalog::family::Family;
use crate::catalog::view::View;
use manifest::{TableFile, Version};
use merging::LevelIter;
use options::CompactionStyle;

/// User keys, both ends inclusive; `None` is unbounded.
struct Keys<'a> {
    comparator: &'a Comparator,
    begin: Option<&'a [u8]>,
    end: Option<&'a [u8]>,
}

impl Keys<'_> {
    /// Whether the cursor finds an entry.
    fn meet(&self, cursor: &mut dyn InternalIterator) -> bool {
        match self.begin {
            Some(begin) => cursor.seek(&before_versions(begin)),
            None => cursor.seek_to_first(),
        }
        cursor.valid() && !self.end_before(key::user_key(cursor.key()))
    }

    /// Whether a tombstone covers any of the keys.
    fn meet_any(&self, spans: &[Span]) -> bool {
        let cmp = self.comparator;
        spans.iter().any(|s| {
            let ends_before = |begin| cmp.compare(key::user_key(&s.end), begin).is_le();
            !self.begin.is_some_and(ends_before) && !self.end_before(key::user_key(&s.start))
        })
    }

    fn end_before(&self, user_key: &[u8]) -> bool {
        self.end
            .is_some_and(|end| self.comparator.compare(end, user_key).is_lt())
    }
}

/// Whether a memtable has any entry or range tombstone between two user keys, both inclusive.
pub(crate) fn in_memory(view: &View, begin: Option<&[u8]>, end: Option<&[u8]>) -> bool {
    let keys = Keys {
        comparator: &view.version.comparator,
        begin,
        end,
    };
    let touches = |mem: &Arc<Memtable>| {
        !mem.is_empty() && (keys.meet(&mut mem.iter()) || keys.meet_any(&mem.tombstone_spans()))
    };
    std::iter::once(&view.mem).chain(&view.imm).any(touches)
}

/// The uppermost level that has, or may have, data between two user keys; the number of levels if no level has.
/// As in RocksDB, this is determined only for level style, where a compaction goes down from that level, and for
/// ranges with two ends. Otherwise the result is 0.
pub(crate) fn first_level(family: &Family, begin: Option<&[u8]>, end: Option<&[u8]>) -> usize {
    let options = family.options();
    // A partitioner may want a file to be cut where the file has no keys.
    let looks = options.cf.compaction_style == CompactionStyle::Level
        && begin.is_some()
        && end.is_some()
        && options.sst_partitioner_factory.is_none();
    if !looks {
        return 0;
    }
    let version = Arc::clone(&family.view.load().version);
    let keys = Keys {
        comparator: &version.comparator,
        begin,
        end,
    };
    // If a table cannot be read, the compaction will report why.
    let touched = |level: &usize| has_keys(&version, *level, &keys).unwrap_or(true);
    let levels = version.num_levels();
    (0..levels).find(touched).unwrap_or(levels)
}

fn has_keys(version: &Version, level: usize, keys: &Keys<'_>) -> Result<bool> {
    let files = version.overlapping(level, keys.begin, keys.end);
    for file in files.iter().filter(|f| f.tombstones().is_some()) {
        let tombstones = file.reader()?.range_tombstones()?;
        let spans = tombstones
            .iter()
            .map(|t| Span::new(&t.start, &t.end, t.sequence));
        if keys.meet_any(&spans.collect::<Vec<_>>()) {
            return Ok(true);
        }
    }
    // Level 0 files overlap: each is a run of its own.
    let runs: Vec<Vec<Arc<TableFile>>> = match level {
        0 => files.into_iter().map(|f| vec![f]).collect(),
        _ => vec![files],
    };
    let options = table::ReadOptions {
        fill_cache: false,
        activity: Activity::Compaction,
        ..table::ReadOptions::default()
    };
    for run in runs.into_iter().filter(|run| !run.is_empty()) {
        let mut cursor = LevelIter::new(keys.comparator.clone(), run, options, false);
        if keys.meet(&mut *cursor) {
            return Ok(true);
        }
        cursor.status()?;
    }
    Ok(false)
}
