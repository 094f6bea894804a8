//! The model: what a database should hold, as ordered maps.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A value; snapshots share it.
pub(super) type Value = Arc<[u8]>;

/// A family of the model.
#[derive(Clone, Debug)]
pub(super) struct Family {
    pub(super) name: String,
    pub(super) reverse: bool,
    map: BTreeMap<Vec<u8>, Value>,
}

impl Family {
    pub(super) fn new(name: &str, reverse: bool) -> Self {
        Self {
            name: name.to_owned(),
            reverse,
            map: BTreeMap::new(),
        }
    }

    pub(super) fn put(&mut self, key: Vec<u8>, value: Value) {
        self.map.insert(key, value);
    }

    pub(super) fn delete(&mut self, key: &[u8]) {
        self.map.remove(key);
    }

    /// Removes the keys from `begin` up to, and without, `end`.
    pub(super) fn delete_range(&mut self, begin: &[u8], end: &[u8]) {
        let reverse = self.reverse;
        let before = |a: &[u8], b: &[u8]| if reverse { a > b } else { a < b };
        self.map.retain(|k, _| before(k, begin) || !before(k, end));
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.map.get(key).map(|v| &**v)
    }

    /// Whether `a` comes before `b` in the family's order.
    pub(super) fn before(&self, a: &[u8], b: &[u8]) -> bool {
        if self.reverse { a > b } else { a < b }
    }

    /// The entries from `lower` on and before `upper`, in the family's order.
    pub(super) fn entries(
        &self,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Vec<(&[u8], &[u8])> {
        let mut out: Vec<(&[u8], &[u8])> = self
            .map
            .iter()
            .map(|(k, v)| (&k[..], &**v))
            .filter(|(k, _)| lower.is_none_or(|l| !self.before(k, l)))
            .filter(|(k, _)| upper.is_none_or(|u| self.before(k, u)))
            .collect();
        if self.reverse {
            out.reverse();
        }
        out
    }

    /// The content, as [`crate::content::family`] gives it.
    pub(super) fn pairs(&self) -> crate::content::Pairs {
        let own = |(k, v): &(&[u8], &[u8])| (k.to_vec(), v.to_vec());
        self.entries(None, None).iter().map(own).collect()
    }
}

/// All families.
pub(super) type Model = Vec<Family>;
