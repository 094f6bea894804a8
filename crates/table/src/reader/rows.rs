//! Gets that look into the row cache first.

use base::stats::Ticker;
use base::{Result, SequenceNumber, key};

use super::get::{Missing, Visit};
use super::{ReadOptions, Reader};
use crate::block::Target;
use crate::rows::{Replayed, Rows};

impl Reader {
    /// The rows that a get may use: if there is a row cache, and the get sees all entries of the table.
    #[inline]
    pub(super) fn rows_for(&self, target: &Target<'_>) -> Option<&Rows> {
        let rows = self.options.rows.as_ref()?;
        let newest = SequenceNumber(self.options.largest_seqno);
        (key::packed_sequence(target.packed) >= newest).then_some(rows)
    }

    /// A get that is served by a row, or makes one.
    #[inline(never)]
    pub(super) fn get_row<const LATER: bool>(
        &self,
        rows: &Rows,
        options: &ReadOptions,
        target: &Target<'_>,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Missing>> {
        let replayed = rows.replay(self.comparator(), target, visit);
        let (ticker, known) = match replayed {
            Replayed::Done => (Ticker::RowCacheHit, 0),
            Replayed::NoRow => (Ticker::RowCacheMiss, 0),
            Replayed::Wants(visited) => (Ticker::RowCacheMiss, visited),
        };
        self.count(ticker, 1);
        match replayed {
            Replayed::Done => Ok(None),
            Replayed::NoRow => fill_row(rows, options, (target, known), visit, |visit| {
                self.get_in_table::<LATER>(options, target, visit)
            }),
            // The get may not go on later: then nobody would know what it has visited. This is rare.
            Replayed::Wants(_) => fill_row(rows, options, (target, known), visit, |visit| {
                self.get_in_table::<false>(options, target, visit)
            }),
        }
    }
}

/// Does `get`, and puts what it has found into the row cache. `visit` has had the first `known` entries already.
pub(super) fn fill_row(
    rows: &Rows,
    options: &ReadOptions,
    (target, known): (&Target<'_>, usize),
    visit: &mut Visit<'_>,
    get: impl FnOnce(&mut Visit<'_>) -> Result<Option<Missing>>,
) -> Result<Option<Missing>> {
    let mut row = options.fill_cache.then(|| rows.new_row());
    let mut passed = 0;
    let missing = get(&mut |key, value| {
        passed += 1;
        let more = passed <= known || visit(key, value);
        if let Some(row) = &mut row {
            row.push(key, value.bytes(), more);
        }
        more
    })?;
    // What was found before a block is lacking is not all; the get goes on later.
    if let (Some(row), None) = (row, &missing) {
        rows.insert(target.user, &row, known > 0)?;
    }
    Ok(missing)
}
