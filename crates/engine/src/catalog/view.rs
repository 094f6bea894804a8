//! The set of sources that a read of a column family uses, as one unit.

use std::sync::Arc;

use memtable::Memtable;

use manifest::Version;

/// The active memtable, the immutable memtables (newest first), and the files. A reader that holds a View sees
/// the same data, whatever is flushed or compacted meanwhile.
pub(crate) struct View {
    pub(crate) mem: Arc<Memtable>,
    pub(crate) imm: Vec<Arc<Memtable>>,
    pub(crate) version: Arc<Version>,
}

impl View {
    /// Checks the order: from the active memtable down, each memtable is older than the memtable before it, and
    /// does not need a newer log.
    fn checked(self) -> Self {
        base::invariant!(
            std::iter::once(&self.mem)
                .chain(&self.imm)
                .is_sorted_by(|a, b| a.id() > b.id() && a.log_number() >= b.log_number()),
            "memtables out of order"
        );
        self
    }

    /// The same View with another Version.
    pub(crate) fn with_version(&self, version: Arc<Version>) -> Self {
        Self {
            mem: Arc::clone(&self.mem),
            imm: self.imm.clone(),
            version,
        }
    }

    /// The View after a rotation: the active memtable becomes immutable, and `mem` becomes active.
    pub(crate) fn rotated(&self, mem: Arc<Memtable>) -> Self {
        let mut imm = Vec::with_capacity(self.imm.len() + 1);
        imm.push(Arc::clone(&self.mem));
        imm.extend(self.imm.iter().cloned());
        Self {
            mem,
            imm,
            version: Arc::clone(&self.version),
        }
        .checked()
    }

    /// The View without the memtables that were flushed into `version`.
    pub(crate) fn flushed(&self, gone: &[Arc<Memtable>], version: Arc<Version>) -> Self {
        let stays = |m: &&Arc<Memtable>| !gone.iter().any(|g| Arc::ptr_eq(g, m));
        base::invariant!(
            !self.imm.iter().skip_while(&stays).any(|m| stays(&m)),
            "a memtable was flushed before an older one"
        );
        Self {
            mem: Arc::clone(&self.mem),
            imm: self.imm.iter().filter(stays).cloned().collect(),
            version,
        }
    }
}
