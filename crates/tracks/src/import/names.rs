//! The entity of each name of an import: the number is the hash of the name, except where several
//! names share a hash. The rule is that of [`write`](crate::write).
//!
//! Nearly all names have a hash of their own. The others are found in the sorted names, and take
//! their numbers in the order of their first records.
//!
//! ```text
//!   an item   8 hash   1 length of the name   the name   8 number of the first record with it
//! ```

use std::collections::{BTreeMap, BTreeSet};

use base::{Error, Result};

use super::sorter::Sorter;
use crate::model::key::{Entity, EntityKey, Fleet};
use crate::model::name::{Name, TURNS};
use crate::store::{Family, View};

/// How many of the last names are remembered, so that a name is not sorted once for each record.
const KNOWN_MAX: usize = 50_000;
/// The most names with shared hashes: there are none unless somebody constructs them.
const SHARED_MAX: usize = 100_000;

/// The names of the records read so far.
pub(super) struct Names {
    sorter: Sorter,
    known: BTreeSet<Name>,
}

impl Names {
    pub(super) fn new(sorter: Sorter) -> Self {
        Self {
            sorter,
            known: BTreeSet::new(),
        }
    }

    /// Adds the name of a record.
    pub(super) fn add(&mut self, name: &Name, nth: u64) -> Result<()> {
        if self.known.contains(name) {
            return Ok(());
        }
        let hash = name.number(0).0.to_be_bytes();
        let text = name.as_str().as_bytes();
        self.sorter
            .add(&[&hash, &[text.len() as u8], text, &nth.to_be_bytes()])?;
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(name.clone());
        Ok(())
    }

    /// The names whose numbers are not their hashes, or may not be. Errors: there are too many; the
    /// store's.
    pub(super) fn resolve(mut self, view: &dyn View, fleet: Fleet) -> Result<Resolved> {
        self.known = BTreeSet::new();
        let mut shared: BTreeMap<Name, u64> = BTreeMap::new();
        let mut numbers: BTreeSet<Entity> = BTreeSet::new();
        loop {
            let before = shared.len();
            self.pass(view, fleet, &numbers, &mut shared)?;
            if shared.len() == before {
                break;
            }
            // A name that has one of the numbers that these may take is added in the next pass.
            let all = shared
                .keys()
                .flat_map(|name| (0..TURNS).map(|turn| name.number(turn)));
            numbers = all.collect();
        }
        let mut order: Vec<(u64, Name)> =
            shared.into_iter().map(|(name, nth)| (nth, name)).collect();
        order.sort_unstable();
        let mut out = Resolved::default();
        let mut taken: BTreeMap<Entity, Name> = BTreeMap::new();
        for (_, name) in order {
            out.hashes.insert(name.number(0));
            let number = number(view, fleet, &name, &taken)?;
            if let Some(number) = number {
                taken.insert(number, name.clone());
            }
            out.numbers.insert(name, number);
        }
        Ok(out)
    }

    /// Adds the names that share their hash with another name, with a row of another name, or with
    /// one of `numbers`.
    fn pass(
        &mut self,
        view: &dyn View,
        fleet: Fleet,
        numbers: &BTreeSet<Entity>,
        shared: &mut BTreeMap<Name, u64>,
    ) -> Result<()> {
        let mut merged = self.sorter.merged()?;
        let mut last: Option<(Entity, Name, u64)> = None;
        while let Some(item) = merged.next()? {
            let (entity, name, nth) = decode(item)?;
            if last.as_ref().is_some_and(|(_, other, _)| *other == name) {
                continue;
            }
            let key = EntityKey { fleet, entity }.to_bytes();
            let row = view.get(Family::Entities, &key)?;
            let is_others = row.is_some_and(|row| row != name.as_str().as_bytes());
            let next = (entity, name, nth);
            if let Some((_, name, nth)) = last.as_ref().filter(|(other, ..)| *other == entity) {
                shared.insert(name.clone(), *nth);
                shared.insert(next.1.clone(), nth_of(&next));
            } else if is_others || numbers.contains(&entity) {
                shared.insert(next.1.clone(), nth_of(&next));
            }
            if shared.len() > SHARED_MAX {
                return Err(Error::invalid_argument(format!(
                    "more than {SHARED_MAX} names have the hashes of other names"
                ))
                .hint("import a part of the reports at a time"));
            }
            last = Some(next);
        }
        Ok(())
    }
}

fn nth_of(of: &(Entity, Name, u64)) -> u64 {
    of.2
}

fn decode(item: &[u8]) -> Result<(Entity, Name, u64)> {
    let read = || {
        let (hash, rest) = item.split_first_chunk::<8>()?;
        let (len, rest) = rest.split_first()?;
        let (text, nth) = rest.split_at_checked(usize::from(*len))?;
        let nth = u64::from_be_bytes(nth.try_into().ok()?);
        Some((
            Entity(u64::from_be_bytes(*hash)),
            str::from_utf8(text).ok()?,
            nth,
        ))
    };
    let (entity, text, nth) = read().ok_or_else(|| Error::broken("a sorted name that is none"))?;
    Ok((entity, Name::new(text)?, nth))
}

/// The number of a name, by the rule of the shards. `None` if no number is left for it.
fn number(
    view: &dyn View,
    fleet: Fleet,
    name: &Name,
    taken: &BTreeMap<Entity, Name>,
) -> Result<Option<Entity>> {
    let mut free = None;
    for turn in 0..TURNS {
        let entity = name.number(turn);
        if taken.contains_key(&entity) {
            continue;
        }
        let key = EntityKey { fleet, entity }.to_bytes();
        match view.get(Family::Entities, &key)? {
            Some(row) if row == name.as_str().as_bytes() => return Ok(Some(entity)),
            Some(row) if row.is_empty() => free = free.or(Some(entity)),
            Some(_) => {}
            None => return Ok(free.or(Some(entity))),
        }
    }
    Ok(free)
}

/// The names whose numbers had to be looked up.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    numbers: BTreeMap<Name, Option<Entity>>,
    hashes: BTreeSet<Entity>,
}

impl Resolved {
    /// Whether the numbers of all names are their hashes.
    pub(super) fn is_plain(&self) -> bool {
        self.numbers.is_empty()
    }

    /// The number of a name with this hash. `None` if it has none.
    pub(super) fn number(&self, hash: Entity, name: &str) -> Result<Option<Entity>> {
        if !self.hashes.contains(&hash) {
            return Ok(Some(hash));
        }
        let found = self.numbers.get(&Name::new(name)?);
        Ok(found.copied().unwrap_or(Some(hash)))
    }

    /// The names without a number.
    pub(super) fn refused(&self) -> impl Iterator<Item = &Name> {
        let none = |(name, number): (_, &Option<Entity>)| number.is_none().then_some(name);
        self.numbers.iter().filter_map(none)
    }
}
