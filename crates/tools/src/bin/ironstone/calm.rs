//! A database without automatic compactions, for commands that move tables.
//!
//! The settings of the column family are changed while the command runs, also in the OPTIONS file:
//! if the process is killed, the database does not compact automatically. At the end the settings
//! are restored while background work is paused, so that no compaction changes the result. Settings
//! of a killed process are recognized by the size of the tables, and are reset to the defaults.

use ironstone::CfOptions;
use ironstone::{ColumnFamily, ColumnFamilyMetaData, CompactRangeOptions, Db};

use crate::cli::Global;
use crate::fail::{Outcome, note};
use crate::open;

/// Larger than any table; no user sets this size.
const TABLE_BYTES_MAX: u64 = 1 << 50;

/// The database, and its original settings.
pub(crate) struct Calm {
    db: Db,
    family: ColumnFamily,
    before: Vec<(&'static str, String)>,
}

impl Calm {
    /// Opens the database. With `one_table`, a compaction writes one table.
    pub(crate) fn open(global: &Global, one_table: bool) -> Outcome<Self> {
        let mut before = Vec::new();
        let mut left_over = false;
        let db = open::writable_as(global, false, &mut |name, options| {
            if *name != *global.column_family {
                return;
            }
            let cf = &mut options.cf;
            left_over = cf.target_file_size_base == TABLE_BYTES_MAX;
            if left_over {
                set_defaults(cf);
            }
            before = settings(cf);
            cf.disable_auto_compactions = true;
            if one_table {
                cf.target_file_size_base = TABLE_BYTES_MAX;
                cf.target_file_size_multiplier = 1;
                cf.max_compaction_bytes = TABLE_BYTES_MAX;
            }
        })?;
        let family = open::family(&db, global)?;
        if left_over {
            let names: Vec<&str> = before.iter().map(|(name, _)| *name).collect();
            note(format_args!(
                "note: an earlier run was killed and left its settings in the OPTIONS file: the \
                 defaults are set for {}",
                names.join(", ")
            ));
        }
        Ok(Self { db, family, before })
    }

    /// Runs `work`, restores the settings and closes the database.
    pub(crate) fn run(self, work: impl FnOnce(&Self) -> Outcome) -> Outcome {
        let worked = work(&self);
        let before: Vec<(&str, &str)> = self.before.iter().map(|(n, v)| (*n, &v[..])).collect();
        let ended = self.db.pause_background_work().and_then(|()| {
            self.db.cf(&self.family).set_options(&before)?;
            drop(self.family);
            self.db.close()
        });
        worked?;
        Ok(ended?)
    }

    /// Flushes the memtables to tables.
    pub(crate) fn flush(&self) -> Outcome {
        Ok(self.db.cf(&self.family).flush()?)
    }

    /// Compacts the column family, and moves the result to a level.
    pub(crate) fn compact(&self, options: CompactRangeOptions, level: i32) -> Outcome {
        let options = CompactRangeOptions {
            exclusive_manual_compaction: true,
            change_level: true,
            target_level: level,
            ..options
        };
        let family = &self.family;
        Ok(self
            .db
            .cf(family)
            .with(&options)
            .compact_range(None, None)?)
    }

    /// The tables on each level.
    pub(crate) fn levels(&self) -> Outcome<Vec<usize>> {
        let all: ColumnFamilyMetaData = self.db.cf(&self.family).get_column_family_metadata()?;
        Ok(all.levels.iter().map(|level| level.files.len()).collect())
    }
}

/// The settings while a command runs.
fn settings(cf: &CfOptions) -> Vec<(&'static str, String)> {
    let (base, times) = (cf.target_file_size_base, cf.target_file_size_multiplier);
    vec![
        (
            "disable_auto_compactions",
            cf.disable_auto_compactions.to_string(),
        ),
        ("target_file_size_base", base.to_string()),
        ("target_file_size_multiplier", times.to_string()),
        ("max_compaction_bytes", cf.max_compaction_bytes.to_string()),
    ]
}

/// The defaults of the settings that are changed while a command runs.
fn set_defaults(cf: &mut CfOptions) {
    let default = CfOptions::default();
    cf.disable_auto_compactions = default.disable_auto_compactions;
    cf.target_file_size_base = default.target_file_size_base;
    cf.target_file_size_multiplier = default.target_file_size_multiplier;
    cf.max_compaction_bytes = default.max_compaction_bytes;
}
