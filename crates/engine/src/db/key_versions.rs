//! All stored versions of keys, as tools show them: RocksDB's `GetAllKeyVersions`.

use std::borrow::Cow;

use base::{Result, key};
use keyspan::span::before_versions;
use table::InternalIterator;

use crate::db::cf::Cf;
use crate::read::options::ReadOptions;
use crate::read::sources::Origin;

/// Stored versions.
impl Cf<'_> {
    /// Passes the stored versions of the family's keys to `visit`, in key order and the newest version of a key first,
    /// until `visit` returns false. The arguments of `visit` are the internal key and the value. An internal key is the
    /// user key followed by 8 bytes with sequence number and type. `begin` is inclusive, `end` exclusive; `None` is
    /// unbounded. Deletions are among the versions. Versions that a range deletion hides are not.
    pub fn visit_key_versions(
        &self,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.check()?;
        let options = ReadOptions {
            fill_cache: false,
            ..ReadOptions::default()
        };
        let origin = Origin::new(
            self.shared,
            self.family.view.load_full(),
            self.family,
            Cow::Owned(options),
        );
        let mut it = origin.cursors(self.shared.writes.visible());
        match begin {
            Some(key) => it.seek(&before_versions(key)),
            None => it.seek_to_first(),
        }
        let comparator = self.family.comparator();
        let inside = |internal: &[u8]| {
            let user = key::user_key(internal);
            end.is_none_or(|end| comparator.compare(user, end).is_lt())
        };
        while it.valid() && inside(it.key()) && visit(it.key(), it.value()) {
            it.next();
        }
        it.status()
    }
}
