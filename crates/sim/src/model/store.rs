//! The model: the expected content of a database, as ordered maps.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use base::Result;
use ironstone::{ExternalSstFileInfo, MergeOperator, Options, SstFileWriter, WideColumns};

/// A value, shared by snapshots.
pub(crate) type Value = Arc<[u8]>;

/// The content of a key.
#[derive(Clone, Debug)]
struct Cell {
    /// The value that plain reads show.
    plain: Value,
    /// The columns, if it is an entity.
    columns: Option<Arc<WideColumns>>,
}

/// A change of one key, or of the keys from it on.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put(Value),
    Delete,
    /// Valid only for a key that was put once since it was deleted.
    SingleDelete,
    /// Deletes the keys up to this one, which is kept.
    DeleteTo(Vec<u8>),
    Merge(Vec<u8>),
    Entity(WideColumns),
}

/// The content of a table that is created outside of the database.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileContent {
    /// Deletions from the first key to before the second.
    pub(crate) ranges: Vec<(Vec<u8>, Vec<u8>)>,
    /// Each key once, in the family's order.
    pub(crate) points: Vec<(Vec<u8>, Change)>,
}

impl FileContent {
    /// Writes the table to `path`.
    pub(crate) fn write(&self, options: &Options, path: &Path) -> Result<ExternalSstFileInfo> {
        let mut writer = SstFileWriter::new(options);
        writer.open(path)?;
        for (begin, end) in &self.ranges {
            writer.delete_range(begin, end)?;
        }
        for (key, change) in &self.points {
            match change {
                Change::Put(value) => writer.put(key, value)?,
                Change::Merge(operand) => writer.merge(key, operand)?,
                _ => writer.delete(key)?,
            }
        }
        writer.finish()
    }
}

/// A family of the model.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) reverse: bool,
    map: BTreeMap<Vec<u8>, Cell>,
}

impl Family {
    pub(crate) fn new(name: &str, reverse: bool) -> Self {
        Self {
            name: name.to_owned(),
            reverse,
            map: BTreeMap::new(),
        }
    }

    /// Applies a change; merges use the operator.
    pub(crate) fn apply(&mut self, operator: &dyn MergeOperator, key: Vec<u8>, change: Change) {
        match change {
            Change::Put(value) => {
                let cell = Cell {
                    plain: value,
                    columns: None,
                };
                self.map.insert(key, cell);
            }
            Change::Delete | Change::SingleDelete => {
                self.map.remove(&key);
            }
            Change::DeleteTo(end) => {
                let reverse = self.reverse;
                let before = |a: &[u8], b: &[u8]| if reverse { a > b } else { a < b };
                self.map.retain(|k, _| before(k, &key) || !before(k, &end));
            }
            Change::Merge(operand) => {
                let old = self.map.remove(&key);
                let existing = old.as_ref().map(|c| &*c.plain);
                let merged = operator.full_merge(&key, existing, &[&operand]);
                let plain: Value = merged.expect("the operators here always can").into();
                let columns = old.and_then(|c| c.columns).map(|columns| {
                    let rest = columns.iter().filter(|(n, _)| !n.is_empty());
                    let all = rest.chain([(&b""[..], &*plain)]);
                    Arc::new(WideColumns::new(all).expect("each name once"))
                });
                self.map.insert(key, Cell { plain, columns });
            }
            Change::Entity(columns) => {
                let cell = Cell {
                    plain: columns.get(b"").unwrap_or_default().into(),
                    columns: Some(Arc::new(columns)),
                };
                self.map.insert(key, cell);
            }
        }
    }

    /// Applies an ingested file: its range deletions hide the existing entries, not those of the file
    /// itself.
    pub(crate) fn ingest(&mut self, operator: &dyn MergeOperator, file: FileContent) {
        for (begin, end) in file.ranges {
            self.apply(operator, begin, Change::DeleteTo(end));
        }
        for (key, change) in file.points {
            self.apply(operator, key, change);
        }
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.map.get(key).map(|c| &*c.plain)
    }

    /// The columns of a key; a plain value is the default column.
    pub(crate) fn columns(&self, key: &[u8]) -> Option<WideColumns> {
        let cell = self.map.get(key)?;
        Some(match &cell.columns {
            Some(columns) => WideColumns::clone(columns),
            None => WideColumns::new([("", &cell.plain)]).expect("one name"),
        })
    }

    /// The family's order.
    pub(crate) fn order(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        if self.reverse { b.cmp(a) } else { a.cmp(b) }
    }

    /// Whether `a` comes before `b` in the family's order.
    pub(crate) fn before(&self, a: &[u8], b: &[u8]) -> bool {
        if self.reverse { a > b } else { a < b }
    }

    /// The entries from `lower` on and before `upper`, in the family's order.
    pub(crate) fn entries(
        &self,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Vec<(&[u8], &[u8])> {
        let mut out: Vec<(&[u8], &[u8])> = self
            .map
            .iter()
            .map(|(k, c)| (&k[..], &*c.plain))
            .filter(|(k, _)| lower.is_none_or(|l| !self.before(k, l)))
            .filter(|(k, _)| upper.is_none_or(|u| self.before(k, u)))
            .collect();
        if self.reverse {
            out.reverse();
        }
        out
    }

    /// The content, as [`crate::oracle::content::family`] gives it.
    pub(crate) fn pairs(&self) -> crate::oracle::content::Pairs {
        let own = |(k, v): &(&[u8], &[u8])| (k.to_vec(), v.to_vec());
        self.entries(None, None).iter().map(own).collect()
    }
}

/// All families.
pub(crate) type Model = Vec<Family>;
