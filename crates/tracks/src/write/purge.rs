//! Entities that were erased but are still in tables: rows in `meta` keep them until those tables
//! are compacted, also over a restart.
//!
//! ```text
//!   meta   "purge/"  fleet 4  entity 8  number 8  count 8 → ranges of other erased rows of the entity, each:
//!                                     family 1, length 1, first key, length 1, last key; empty: they may be anywhere
//!          "events/" fleet 4  entity 8  id 8     → nothing: some of its events up to this id may be left
//! ```
//!
//! Such a row is in the same batch as each part of an erasure, so that neither exists without the
//! other. `number` is the last sequence number before it: an entity that is made again and erased
//! while its tables are compacted gets another row. `count` is a counter of this process, because
//! two rows that are made before either is written have the same number. Rows of older releases
//! have no count.

use base::coding::Decoder;
use base::sync::atomic::{AtomicU64, Ordering};
use base::{Error, Result};

use crate::model::key::{Entity, EntityKey, Fleet, behind};
use crate::store::{Batch, Family, Store, View, damaged};

const KEY: &[u8] = b"purge/";
const EVENTS_KEY: &[u8] = b"events/";
/// How many rows this process has made.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// An entity whose tables are to be compacted, and the rows that say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Purge {
    pub(crate) of: (Fleet, Entity),
    pub(crate) keys: Vec<Vec<u8>>,
    /// Ranges with other rows of the entity: those whose keys do not begin with its fleet and
    /// number.
    pub(crate) ranges: Vec<Range>,
}

/// Rows of a family: the first and the last key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) family: Family,
    pub(crate) first: Vec<u8>,
    pub(crate) last: Vec<u8>,
}

impl Range {
    pub(crate) fn new(family: Family, first: &[u8], last: &[u8]) -> Self {
        let (first, last) = (first.to_vec(), last.to_vec());
        Self {
            family,
            first,
            last,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.family as u8);
        for key in [&self.first, &self.last] {
            // Keys of these families are short.
            out.push(u8::try_from(key.len()).unwrap_or(u8::MAX));
            out.extend(key);
        }
    }

    fn decode(d: &mut Decoder<'_>) -> Option<Self> {
        let family = *Family::ALL.get(usize::from(d.u8()?))?;
        let mut key = || {
            let len = usize::from(d.u8()?);
            d.bytes(len)
        };
        Some(Self::new(family, key()?, key()?))
    }

    /// Decodes the ranges of a row. `None` if the row has none.
    fn all(value: &[u8]) -> Option<Vec<Self>> {
        let mut d = Decoder::new(value);
        let mut out = Vec::new();
        while !d.rest().is_empty() {
            out.push(Self::decode(&mut d)?);
        }
        (!out.is_empty()).then_some(out)
    }

    /// The range of all rows of a fleet.
    pub(crate) fn whole(family: Family, fleet: Fleet) -> Self {
        let first = fleet.prefix();
        Self::new(family, &first, &[&first[..], &[u8::MAX; 32]].concat())
    }
}

/// The range of the rows that name erased entities.
pub(crate) fn purge_rows() -> Range {
    Range::new(Family::Meta, KEY, &[KEY, &[u8::MAX; 32]].concat())
}

/// Adds a row to a batch that erases an entity or rows of it.
pub(crate) fn note(
    store: &dyn Store,
    batch: &mut Batch<'_>,
    (fleet, entity): (Fleet, Entity),
    ranges: &[Range],
) -> Result<()> {
    let number = store.last_number().to_be_bytes();
    let count = COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let key = EntityKey { fleet, entity }.to_bytes();
    let mut value = Vec::new();
    for range in ranges {
        range.encode(&mut value);
    }
    batch.put(Family::Meta, &[KEY, &key, &number, &count].concat(), &value)
}

fn events_key((fleet, entity): (Fleet, Entity)) -> Vec<u8> {
    [EVENTS_KEY, &EntityKey { fleet, entity }.to_bytes()].concat()
}

/// Adds a row to a batch that erases an entity: its events up to an id must still be erased, unless
/// they become too old first.
pub(super) fn owe_events(batch: &mut Batch<'_>, of: (Fleet, Entity), last: u64) -> Result<()> {
    let key = [&events_key(of)[..], &last.to_be_bytes()].concat();
    batch.put(Family::Meta, &key, &[])
}

/// Calls `each` for the rows that begin with `first` and say that events may be left, with the
/// greatest id of these. Errors: the store's; those of `each`.
fn owed(
    view: &dyn View,
    first: &[u8],
    each: &mut dyn FnMut(&[u8], u64) -> Result<()>,
) -> Result<()> {
    let end = behind(first);
    let mut rows = view.rows(Family::Meta, first, end.as_deref())?;
    rows.seek(first);
    while let Some((key, _)) = rows.row() {
        let rest = key.get(EVENTS_KEY.len() + EntityKey::LEN..);
        // Rows of older releases have no id: all events of their entities are older than any later
        // erasure.
        let last = rest.and_then(|rest| rest.try_into().ok());
        each(key, last.map_or(0, u64::from_be_bytes))?;
        rows.next();
    }
    rows.status()
}

/// Whether events of an erased entity may be left; also true if its rows are damaged. Errors: the
/// store's.
pub(crate) fn owes_events(view: &dyn View, of: (Fleet, Entity)) -> Result<bool> {
    let mut owes = false;
    let read = owed(view, &events_key(of), &mut |_, _| {
        owes = true;
        Ok(())
    });
    match read {
        Err(e) if e.is_corruption() => Ok(true),
        read => read.map(|()| owes),
    }
}

/// Deletes the rows of entities whose events up to an id are erased. Rows of later erasures stay.
/// Damaged rows are deleted like the others. Errors: the store's.
pub(crate) fn events_are_erased(
    store: &dyn Store,
    all: &[(Fleet, Entity)],
    last: u64,
) -> Result<()> {
    let view = store.view();
    let mut keys = Vec::new();
    for of in all {
        let first = events_key(*of);
        let read = owed(&*view, &first, &mut |key, its| {
            if its <= last {
                keys.push(key.to_vec());
            }
            Ok(())
        });
        match read {
            Err(e) if e.is_corruption() => {
                let end = [&first[..], &last.saturating_add(1).to_be_bytes()].concat();
                let mut batch = Batch::new(store);
                batch.delete_range(Family::Meta, &first, &end)?;
                batch.write(None)?;
            }
            read => read?,
        }
    }
    are_done(store, &keys)
}

/// Deletes the rows of a fleet whose events are all below an id, because those events are gone.
/// Errors: the store's.
pub(crate) fn events_are_gone(store: &dyn Store, fleet: Fleet, first: u64) -> Result<()> {
    /// The most deletions in one batch.
    const PART: usize = 1000;
    let view = store.view();
    let mut keys = Vec::new();
    let of = [EVENTS_KEY, &fleet.prefix()].concat();
    let read = owed(&*view, &of, &mut |key, last| {
        // Rows of older releases stay: their events may have any id.
        if (1..first).contains(&last) {
            keys.push(key.to_vec());
        }
        if keys.len() < PART {
            return Ok(());
        }
        are_done(store, &std::mem::take(&mut keys))
    });
    // If reading failed, the rows found before are still deleted.
    are_done(store, &keys)?;
    read
}

/// The entities after `after` whose tables are to be compacted, at most `limit`, in order. A
/// damaged row is passed to `wrong` and skipped. Errors: the store's.
pub(crate) fn purges(
    view: &dyn View,
    after: Option<(Fleet, Entity)>,
    limit: usize,
    wrong: &mut dyn FnMut(Error),
) -> Result<Vec<Purge>> {
    let from = after.map_or_else(
        || Some(KEY.to_vec()),
        |(fleet, entity)| behind(&[KEY, &EntityKey { fleet, entity }.to_bytes()].concat()),
    );
    let Some(from) = from else {
        return Ok(Vec::new());
    };
    let end = behind(KEY);
    let mut rows = view.rows(Family::Meta, &from, end.as_deref())?;
    rows.seek(&from);
    let mut out: Vec<Purge> = Vec::new();
    while let Some((key, value)) = rows.row() {
        let of = key.strip_prefix(KEY).and_then(|key| {
            let (of, rest) = key.split_at_checked(EntityKey::LEN)?;
            EntityKey::of_bytes(of)
                .ok()
                .filter(|_| matches!(rest.len(), 8 | 16))
        });
        let Some(EntityKey { fleet, entity }) = of else {
            let e = Error::corruption("it is no entity that was erased");
            wrong(damaged(Family::Meta, key, &e));
            rows.next();
            continue;
        };
        let of = (fleet, entity);
        if out.last().is_none_or(|last| last.of != of) {
            if out.len() == limit {
                return Ok(out);
            }
            out.push(Purge {
                of,
                keys: Vec::new(),
                ranges: Vec::new(),
            });
        }
        if let Some(purge) = out.last_mut() {
            purge.keys.push(key.to_vec());
            let anywhere = || {
                let families = [Family::Visits, Family::Events];
                families.map(|family| Range::whole(family, fleet)).to_vec()
            };
            let ranges = Range::all(value).unwrap_or_else(anywhere);
            purge.ranges.extend(ranges);
        }
        rows.next();
    }
    rows.status()?;
    Ok(out)
}

/// Deletes rows whose work is done. If that fails, the work is done again. Errors: the store's.
pub(crate) fn are_done<'a>(
    store: &dyn Store,
    keys: impl IntoIterator<Item = &'a Vec<u8>>,
) -> Result<()> {
    let mut batch = Batch::new(store);
    let mut are_any = false;
    for key in keys {
        batch.delete(Family::Meta, key)?;
        are_any = true;
    }
    if !are_any {
        return Ok(());
    }
    batch.write(None).map(drop)
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::store::Engine;

    #[test]
    fn each_entity_is_there_until_it_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let store = Engine::open(dir.path()).unwrap();
        let all = [(1, 7), (1, u64::MAX), (2, 0)].map(|(f, e)| (Fleet(f), Entity(e)));
        for of in all.into_iter().chain([all[1]]) {
            let mut batch = Batch::new(&store);
            note(&store, &mut batch, of, &[]).unwrap();
            batch.write(None).unwrap();
        }
        let of = |after, limit| {
            let found = purges(&*store.view(), after, limit, &mut |e| panic!("{e}")).unwrap();
            found.iter().map(|purge| purge.of).collect::<Vec<_>>()
        };
        assert_eq!(of(None, 10), all);
        assert_eq!(of(None, 2), all[..2]);
        assert_eq!(of(Some(all[0]), 10), all[1..]);
        assert_eq!(of(Some(all[1]), 10), all[2..]);
        assert_eq!(of(Some(all[2]), 10), []);
        let purge_behind_first = || {
            let found = purges(&*store.view(), Some(all[0]), 1, &mut |e| panic!("{e}"));
            found.unwrap().remove(0)
        };
        let second = purge_behind_first();
        // The entity is erased again while its tables are compacted.
        let mut batch = Batch::new(&store);
        note(&store, &mut batch, all[1], &[]).unwrap();
        batch.write(None).unwrap();
        are_done(&store, &second.keys).unwrap();
        assert_eq!(of(None, 10), all);
        are_done(&store, &purge_behind_first().keys).unwrap();
        assert_eq!(of(None, 10), [all[0], all[2]]);
        let mut batch = Batch::new(&store);
        batch.put(Family::Meta, b"purge/x", &[]).unwrap();
        batch.write(None).unwrap();
        let mut said = Vec::new();
        let found = purges(&*store.view(), None, 10, &mut |e| said.push(e)).unwrap();
        assert_eq!(found.len(), 2);
        assert!(said.len() == 1 && said[0].is_corruption());
    }

    #[test]
    fn a_row_says_where_else_the_entity_was() {
        let dir = tempfile::tempdir().unwrap();
        let store = Engine::open(dir.path()).unwrap();
        let of = (Fleet(1), Entity(7));
        let ranges = [
            Range::new(Family::Geohash, b"cell", b"cell"),
            Range::new(Family::Visits, b"", &[255; 40]),
        ];
        let mut batch = Batch::new(&store);
        note(&store, &mut batch, of, &ranges).unwrap();
        batch.write(None).unwrap();
        let found = || purges(&*store.view(), None, 10, &mut |e| panic!("{e}")).unwrap();
        assert_eq!(found()[0].ranges, ranges);
        // Rows of an older release, or damaged ones, have no ranges: the rows of the entity may be
        // anywhere.
        let anywhere =
            [Family::Visits, Family::Events].map(|family| Range::whole(family, Fleet(1)));
        let key = found()[0].keys[0].clone();
        for value in [&[][..], &[1], &[200, 0, 0], &[3, 0, 9, 1]] {
            let mut batch = Batch::new(&store);
            batch.put(Family::Meta, &key, value).unwrap();
            batch.write(None).unwrap();
            assert_eq!(found()[0].ranges, anywhere, "{value:?}");
        }
    }

    /// Two rows of one entity that are made before either is written have different keys, so that
    /// neither replaces the other.
    #[test]
    fn two_rows_that_are_made_at_once_are_two() {
        let dir = tempfile::tempdir().unwrap();
        let store = Engine::open(dir.path()).unwrap();
        let of = (Fleet(1), Entity(7));
        let ranges = [b"one", b"two"].map(|key| Range::new(Family::Geohash, key, key));
        let batches = ranges.each_ref().map(|range| {
            let mut batch = Batch::new(&store);
            note(&store, &mut batch, of, std::slice::from_ref(range)).unwrap();
            batch
        });
        for batch in batches {
            batch.write(None).unwrap();
        }
        // A row of an older release.
        let key = EntityKey {
            fleet: of.0,
            entity: of.1,
        };
        let mut batch = Batch::new(&store);
        let old = [KEY, &key.to_bytes(), &[0, 0, 0, 0, 0, 0, 0, 9]].concat();
        batch.put(Family::Meta, &old, &[]).unwrap();
        batch.write(None).unwrap();
        let found = purges(&*store.view(), None, 10, &mut |e| panic!("{e}")).unwrap();
        assert_eq!((found.len(), found[0].keys.len()), (1, 3));
        assert!(ranges.iter().all(|range| found[0].ranges.contains(range)));
        are_done(&store, &found[0].keys).unwrap();
        let found = purges(&*store.view(), None, 10, &mut |e| panic!("{e}")).unwrap();
        assert_eq!(found, []);
    }

    /// The first of two erasures of a name leaves the row of the second one.
    #[test]
    fn what_another_erasure_owes_stays() {
        let dir = tempfile::tempdir().unwrap();
        let store = Engine::open(dir.path()).unwrap();
        let (of, other) = ((Fleet(1), Entity(7)), (Fleet(1), Entity(8)));
        let mut batch = Batch::new(&store);
        for (of, last) in [(of, 5), (of, 9), (other, 9)] {
            owe_events(&mut batch, of, last).unwrap();
        }
        // A row of an older release.
        batch.put(Family::Meta, &events_key(other), &[]).unwrap();
        batch.write(None).unwrap();
        let ids = |of| {
            let mut all = Vec::new();
            let each = &mut |_: &[u8], last| {
                all.push(last);
                Ok(())
            };
            owed(&*store.view(), &events_key(of), each).unwrap();
            all
        };
        assert_eq!((ids(of), ids(other)), (vec![5, 9], vec![0, 9]));
        events_are_erased(&store, &[of], 5).unwrap();
        assert_eq!((ids(of), ids(other)), (vec![9], vec![0, 9]));
        assert!(owes_events(&*store.view(), of).unwrap());
        events_are_gone(&store, Fleet(2), 100).unwrap();
        events_are_gone(&store, Fleet(1), 9).unwrap();
        assert_eq!((ids(of), ids(other)), (vec![9], vec![0, 9]));
        events_are_gone(&store, Fleet(1), 10).unwrap();
        assert_eq!((ids(of), ids(other)), (vec![], vec![0]));
        events_are_erased(&store, &[other], 3).unwrap();
        assert!(!owes_events(&*store.view(), other).unwrap());
    }
}
