//! What the database consists of: its column families, their files, and the numbers of new ones.
//!
//! Readers load the set of families and a family's View, and take no lock. It is changed by [`crate::shared::change`] alone.

pub(crate) mod family;
pub(crate) mod job_stats;
pub(crate) mod version_set;
pub(crate) mod view;

use arc_swap::ArcSwap;
use base::sync::{Mutex, MutexGuard, PoisonError, ranked};

use crate::catalog::family::FamilySet;
use crate::catalog::version_set::{FileNumbers, Tables, VersionSet};
use crate::locks;

/// See the module.
pub(crate) struct Catalog {
    pub(crate) families: ArcSwap<FamilySet>,
    pub(crate) tables: Tables,
    pub(crate) numbers: FileNumbers,
    pub(crate) session_id: String,
    pub(crate) db_id: String,
    versions: Mutex<VersionSet>,
}

impl Catalog {
    /// What was found or made at the opening; the ids are those of the session and of the database.
    pub(crate) fn new(
        families: FamilySet,
        (tables, numbers): (Tables, FileNumbers),
        (session_id, db_id): (String, String),
        versions: VersionSet,
    ) -> Self {
        Self {
            families: ArcSwap::from_pointee(families),
            tables,
            numbers,
            session_id,
            db_id,
            versions: ranked(locks::VERSIONS, versions),
        }
    }

    /// The MANIFEST and the versions. To write to it: [`Shared::manifest`](crate::shared::Shared::manifest).
    pub(crate) fn lock_versions(&self) -> MutexGuard<'_, VersionSet> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
