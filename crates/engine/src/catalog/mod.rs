//! The parts of the database: its column families, their files, and the numbers of new files.
//!
//! Readers load the set of families and a family's View, and take no lock. Only [`crate::shared::change`] changes the
//! set of families and their files.

pub(crate) mod family;
pub(crate) mod job_stats;
mod metadata;
pub(crate) mod version_set;
pub(crate) mod view;

use arc_swap::ArcSwap;
use base::sync::{Mutex, MutexGuard, PoisonError, ranked};

use crate::catalog::family::FamilySet;
use crate::catalog::version_set::{Tables, VersionSet};
use crate::locks;
use manifest::FileNumbers;

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
    /// The parts that were recovered or created at the opening. The ids are those of the session and of the database.
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

    /// Locks the VersionSet. Use [`Shared::manifest`](crate::shared::Shared::manifest) to write to the MANIFEST.
    pub(crate) fn lock_versions(&self) -> MutexGuard<'_, VersionSet> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
