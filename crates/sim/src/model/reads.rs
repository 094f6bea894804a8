//! Operations that read: the current content, snapshots, and iterators that are kept.

use base::rng::Rng;
use ironstone::{ColumnFamily, DbIterator, ReadOptions};

use super::check::{self, Walk};
use super::runner::{Runner, Step};
use super::setup::FAMILIES;
use super::store::Family;

/// The most iterators and snapshots that are kept.
const HELD_MAX: usize = 4;
const SNAPSHOTS_MAX: usize = 6;

/// An iterator that is kept, with the content that it must show.
pub(super) struct Held {
    it: DbIterator,
    options: ReadOptions,
    family: Family,
}

impl Runner {
    /// The current content, or one of the snapshots: read options, and the snapshot's index.
    fn moment(&mut self) -> (ReadOptions, Option<usize>) {
        let mut options = ReadOptions {
            verify_checksums: !self.rng.one_in(4),
            fill_cache: !self.rng.one_in(4),
            readahead_size: if self.rng.one_in(10) { 4096 } else { 0 },
            total_order_seek: self.rng.one_in(4),
            auto_prefix_mode: self.rng.one_in(4),
            pin_data: self.rng.one_in(10),
            ..ReadOptions::default()
        };
        let at = (!self.snapshots.is_empty() && self.rng.one_in(3))
            .then(|| self.rng.below(self.snapshots.len() as u64) as usize);
        options.snapshot = at.map(|i| self.snapshots[i].0.clone());
        (options, at)
    }

    /// The family's content at a moment, and its handle.
    fn view(&self, f: usize, at: Option<usize>) -> Result<(&Family, ColumnFamily), String> {
        let family = &at.map_or(&self.model, |i| &self.snapshots[i].1)[f];
        Ok((family, self.handle(f)?))
    }

    pub(super) fn get(&mut self) -> Step {
        let f = self.family();
        let (options, at) = self.moment();
        let key = Self::key(&mut self.rng, self.setup.keys + 20);
        let (family, cf) = self.view(f, at)?;
        check::get(self.db(), &cf, &options, &key, family.get(&key))
    }

    pub(super) fn get_several(&mut self) -> Step {
        let f = self.family();
        let (options, at) = self.moment();
        let n = 1 + self.rng.below(20);
        let keys: Vec<_> = (0..n)
            .map(|_| Self::key(&mut self.rng, self.setup.keys + 20))
            .collect();
        let (family, cf) = self.view(f, at)?;
        check::other_gets(self.db(), &cf, &options, &keys, family)?;
        self.get_over_families(&options, at, &keys)
    }

    /// Reads the same keys in all families at once.
    fn get_over_families(
        &self,
        options: &ReadOptions,
        at: Option<usize>,
        keys: &[Vec<u8>],
    ) -> Step {
        let views = (0..self.model.len())
            .map(|f| self.view(f, at))
            .collect::<Result<Vec<_>, _>>()?;
        let asked: Vec<_> = views
            .iter()
            .zip(keys)
            .map(|((family, cf), key)| (*family, cf, key))
            .collect();
        let pairs: Vec<_> = asked.iter().map(|(_, cf, key)| (*cf, *key)).collect();
        let found = self.db().with(options).multi_get_families(&pairs);
        for ((family, _, key), have) in asked.iter().zip(found) {
            let have = have.map_err(|e| format!("multi_get_families: {e}"))?;
            if have.as_deref() != family.get(key) {
                let (key, name) = (key.escape_ascii(), &family.name);
                return Err(format!("multi_get_families differs at {key} of {name:?}"));
            }
        }
        Ok(())
    }

    /// Checks an iterator that ends at the end of its prefix.
    pub(super) fn walk_prefix(&mut self) -> Step {
        let f = self.family();
        let (mut options, at) = self.bounded();
        let Some(extractor) = self.setup.options.cf.prefix_extractor.clone() else {
            return Ok(());
        };
        options.prefix_same_as_start = true;
        (options.total_order_seek, options.auto_prefix_mode) = (false, false);
        let target = self.some_key();
        let Some(prefix) = extractor.prefix(&target) else {
            return Ok(());
        };
        let (family, cf) = self.view(f, at)?;
        let lower = options.iterate_lower_bound.as_deref();
        let upper = options.iterate_upper_bound.as_deref();
        let entries = family.entries(lower, upper);
        let want = entries
            .iter()
            .skip_while(|(key, _)| family.before(key, &target))
            .take_while(|(key, _)| extractor.prefix(key) == Some(prefix));
        let failed = |what: String| {
            let (target, name) = (target.escape_ascii(), &family.name);
            format!("prefix of {target} in {name:?}: {what}")
        };
        let mut it = self
            .db()
            .cf(&cf)
            .with(&options)
            .iterator()
            .map_err(|e| format!("iterator: {e}"))?;
        it.seek(&target);
        for (key, value) in want.take(20) {
            if !it.valid() || it.key() != *key || it.value() != *value {
                return Err(failed(format!("{} is missing", key.escape_ascii())));
            }
            it.next();
        }
        it.status().map_err(|e| failed(e.to_string()))
    }

    /// Read options with or without bounds.
    fn bounded(&mut self) -> (ReadOptions, Option<usize>) {
        let (mut options, at) = self.moment();
        let mut bound = || {
            let some = self.rng.one_in(3);
            let key = self.some_key();
            some.then_some(key)
        };
        options.iterate_lower_bound = bound();
        options.iterate_upper_bound = bound();
        (options, at)
    }

    pub(super) fn walk(&mut self) -> Step {
        let f = self.family();
        let (options, at) = self.bounded();
        let mut rng = Rng::new(self.rng.next_u64());
        let keys = self.setup.keys + 20;
        let (family, cf) = self.view(f, at)?;
        let mut it = self
            .db()
            .cf(&cf)
            .with(&options)
            .iterator()
            .map_err(|e| format!("iterator: {e}"))?;
        Walk::new(&options, family).steps(&mut it, &mut rng, |rng| Self::key(rng, keys))
    }

    /// Creates an iterator, which is kept.
    pub(super) fn hold(&mut self, f: usize) -> Step {
        let (mut options, at) = self.bounded();
        let (family, cf) = self.view(f, at)?;
        let family = family.clone();
        let it = self
            .db()
            .cf(&cf)
            .with(&options)
            .iterator()
            .map_err(|e| format!("iterator: {e}"))?;
        self.note(format!("an iterator over {:?} is kept", family.name));
        // The iterator is not affected when the snapshot is released.
        options.snapshot = None;
        self.held.push(Held {
            it,
            options,
            family,
        });
        if self.held.len() > HELD_MAX {
            self.held.remove(0);
        }
        Ok(())
    }

    /// Moves an iterator that was kept, or creates one.
    pub(super) fn walk_held(&mut self) -> Step {
        if self.held.is_empty() || self.rng.one_in(4) {
            let f = self.family();
            self.hold(f)?;
        }
        let i = self.rng.below(self.held.len() as u64) as usize;
        let mut rng = Rng::new(self.rng.next_u64());
        let keys = self.setup.keys + 20;
        let ends = self.rng.one_in(3);
        // The initial families are never dropped, so their iterators can be refreshed.
        let name = &self.held[i].family.name;
        let still = FAMILIES.iter().position(|(n, _)| n == name);
        if let Some(f) = still.filter(|_| self.rng.one_in(4)) {
            let held = &mut self.held[i];
            held.family = self.model[f].clone();
            held.it.refresh().map_err(|e| format!("refresh: {e}"))?;
        }
        let held = &mut self.held[i];
        Walk::new(&held.options, &held.family)
            .steps(&mut held.it, &mut rng, |rng| Self::key(rng, keys))
            .map_err(|e| format!("kept {e}"))?;
        if ends {
            self.held.swap_remove(i);
        }
        Ok(())
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "it stands in the table of operations"
    )]
    pub(super) fn snapshot(&mut self) -> Step {
        self.note("snapshot".to_owned());
        let taken = (self.db().snapshot(), self.model.clone());
        self.snapshots.push(taken);
        if self.snapshots.len() > SNAPSHOTS_MAX {
            self.snapshots.remove(0);
        }
        Ok(())
    }

    /// Releases a snapshot; at times everything at it is compared first.
    pub(super) fn release(&mut self) -> Step {
        let full = self.rng.one_in(8);
        self.release_one(full)
    }

    pub(super) fn release_one(&mut self, full: bool) -> Step {
        if self.snapshots.is_empty() {
            return Ok(());
        }
        let i = self.rng.below(self.snapshots.len() as u64) as usize;
        let (snapshot, model) = self.snapshots.remove(i);
        self.note("release of a snapshot".to_owned());
        let options = ReadOptions {
            snapshot: Some(snapshot),
            ..ReadOptions::default()
        };
        for (f, family) in model.iter().enumerate().filter(|_| full) {
            check::everything(self.db(), &self.handle(f)?, &options, family)
                .map_err(|e| format!("at a snapshot: {e}"))?;
        }
        Ok(())
    }
}
