//! Names: the directory tree as the process sees it, its durable state, and the operations in between.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use base::Result;

use super::{Act, not_found};

/// The object of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Dir,
    /// A file, by its index in the table of inodes.
    File(usize),
}

/// An atomic change of a name, of two names, or of all names in a renamed directory.
#[derive(Clone, Debug)]
pub(super) struct NameOp {
    pub(super) sequence: u64,
    changes: Vec<(PathBuf, Option<Node>)>,
    /// The directory whose sync makes it durable.
    dir: PathBuf,
    /// Whether a sync of the directory has failed since: later syncs do not affect it.
    lost: bool,
}

/// All names, by full path.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    now: BTreeMap<PathBuf, Node>,
    durable: BTreeMap<PathBuf, Node>,
    pending: Vec<NameOp>,
}

impl Names {
    /// A tree whose names are all durable.
    pub(super) fn settled(names: BTreeMap<PathBuf, Node>) -> Self {
        Self {
            now: names.clone(),
            durable: names,
            pending: Vec::new(),
        }
    }

    pub(super) fn get(&self, path: &Path) -> Option<Node> {
        if is_root(path) {
            return Some(Node::Dir);
        }
        self.now.get(path).copied()
    }

    /// All names, directories before their content.
    pub(super) fn all(&self) -> impl Iterator<Item = (&PathBuf, &Node)> {
        self.now.iter()
    }

    pub(super) fn check_parent(&self, act: Act, path: &Path) -> Result<()> {
        match path.parent().map(|p| self.get(p)) {
            Some(Some(Node::Dir)) => Ok(()),
            _ => Err(not_found(act, path)),
        }
    }

    pub(super) fn list(&self, dir: &Path) -> Result<Vec<OsString>> {
        if self.get(dir) != Some(Node::Dir) {
            return Err(not_found(Act::List, dir));
        }
        let below = self.now.keys().filter(|p| p.parent() == Some(dir));
        Ok(below
            .filter_map(|p| p.file_name().map(OsString::from))
            .collect())
    }

    /// Sets and clears names of files; durable with the directory of `target`.
    pub(super) fn change(
        &mut self,
        sequence: u64,
        changes: &[(&Path, Option<usize>)],
        target: &Path,
    ) {
        let changes = changes
            .iter()
            .map(|(p, inode)| (p.to_path_buf(), inode.map(Node::File)))
            .collect();
        self.pend(sequence, changes, target);
    }

    pub(super) fn add_dir(&mut self, sequence: u64, dir: &Path) {
        self.pend(sequence, vec![(dir.to_path_buf(), Some(Node::Dir))], dir);
    }

    /// Renames a directory, with everything under it.
    pub(super) fn rename_dir(&mut self, sequence: u64, from: &Path, to: &Path) {
        let under = self.now.iter().filter(|(p, _)| p.starts_with(from));
        let mut changes = Vec::new();
        for (path, node) in under {
            let rest = path.strip_prefix(from).unwrap_or(path);
            let new = if rest.as_os_str().is_empty() {
                to.to_path_buf()
            } else {
                to.join(rest)
            };
            changes.push((path.clone(), None));
            changes.push((new, Some(*node)));
        }
        self.pend(sequence, changes, to);
    }

    fn pend(&mut self, sequence: u64, changes: Vec<(PathBuf, Option<Node>)>, target: &Path) {
        apply(&mut self.now, &changes);
        self.pending.push(NameOp {
            sequence,
            changes,
            dir: target.parent().unwrap_or(target).to_path_buf(),
            lost: false,
        });
    }

    /// A sync of `dir` has failed: earlier changes in it may become durable by themselves, or with another
    /// change of the same name, but not with a later sync.
    pub(super) fn lose(&mut self, dir: &Path) {
        for op in self.pending.iter_mut().filter(|op| op.dir == dir) {
            op.lost = true;
        }
    }

    /// Makes the changes in `dir` durable, and those that they depend on.
    pub(super) fn sync(&mut self, dir: &Path) {
        let mut needed: BTreeSet<PathBuf> = BTreeSet::new();
        let mut chosen = vec![false; self.pending.len()];
        for (op, chosen) in self.pending.iter().zip(&mut chosen).rev() {
            let own = op.dir == dir && !op.lost;
            if own || op.changes.iter().any(|(p, _)| needed.contains(p)) {
                *chosen = true;
                needed.extend(op.changes.iter().map(|(p, _)| p.clone()));
            }
        }
        let mut left = Vec::new();
        for (op, chosen) in std::mem::take(&mut self.pending).into_iter().zip(chosen) {
            if chosen {
                apply(&mut self.durable, &op.changes);
            } else {
                left.push(op);
            }
        }
        self.pending = left;
    }

    /// The names after a power cut: the durable ones, and the pending changes for which `survives` is true,
    /// if no earlier one of the same name was lost.
    pub(super) fn after_crash(
        &self,
        mut survives: impl FnMut(&NameOp) -> bool,
    ) -> BTreeMap<PathBuf, Node> {
        let mut out = self.durable.clone();
        let mut lost: BTreeSet<&Path> = BTreeSet::new();
        for op in &self.pending {
            let blocked = op.changes.iter().any(|(p, _)| lost.contains(p.as_path()));
            if !blocked && survives(op) {
                apply(&mut out, &op.changes);
            } else {
                lost.extend(op.changes.iter().map(|(p, _)| p.as_path()));
            }
        }
        let dirs: BTreeSet<PathBuf> = out
            .iter()
            .filter(|(_, n)| **n == Node::Dir)
            .map(|(p, _)| p.clone())
            .collect();
        out.retain(|p, _| {
            let mut above = p.ancestors().skip(1);
            above.all(|a| is_root(a) || dirs.contains(a))
        });
        out
    }

    /// Files that have a name, or may have one after a crash.
    pub(super) fn reachable(&self) -> BTreeSet<usize> {
        let file = |n: &Node| match n {
            Node::Dir => None,
            Node::File(i) => Some(*i),
        };
        let pending = self.pending.iter().flat_map(|op| &op.changes);
        self.now
            .values()
            .chain(self.durable.values())
            .filter_map(file)
            .chain(pending.filter_map(|(_, n)| n.as_ref().and_then(file)))
            .collect()
    }
}

fn is_root(path: &Path) -> bool {
    path.parent().is_none() || path.as_os_str().is_empty()
}

fn apply(names: &mut BTreeMap<PathBuf, Node>, changes: &[(PathBuf, Option<Node>)]) {
    for (path, node) in changes {
        match node {
            Some(node) => {
                names.insert(path.clone(), *node);
            }
            None => {
                names.remove(path);
            }
        }
    }
}
