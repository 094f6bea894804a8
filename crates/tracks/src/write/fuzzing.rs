//! Access to the rows that name erased entities, only for fuzzing.

use base::Result;

use super::purge;
use crate::store::View;

/// How many rows name erased entities.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Entities.
    pub entities: usize,
    /// Rows of them.
    pub rows: usize,
    /// Rows that are damaged.
    pub damaged: usize,
}

/// Reads all rows that name erased entities, page by page. Errors: the store's.
pub fn purges(view: &dyn View) -> Result<Found> {
    let (mut found, mut after) = (Found::default(), None);
    loop {
        let page = purge::purges(view, after, 3, &mut |_| found.damaged += 1)?;
        let Some(last) = page.last() else {
            return Ok(found);
        };
        assert!(after < Some(last.of), "pages go forward");
        after = Some(last.of);
        found.entities += page.len();
        found.rows += page.iter().map(|purge| purge.keys.len()).sum::<usize>();
    }
}
