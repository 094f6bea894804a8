//! Replaces values that RocksDB accepts but does not use by the values that it uses instead (measured on 11.8.1).
//!
//! A number out of range is replaced by the nearest one in range ([`OptionTable::sanitize`]). This module has the
//! other rules. Each replacement gives a line for LOG, unless 0 or a special number stands for a default. Values
//! that RocksDB refuses are left unchanged, and the later checks refuse them.

use base::options::{OptionTable, used_as};
use table::options::IndexType;

use super::{CfOptions, ColumnFamilyOptions, CompactionStyle, DbOptions, Options, TableOptions};

/// The least limit of files that are open at once.
const OPEN_FILES_MIN: i32 = 20;
/// The largest size of a data block in bytes: the one that RocksDB accepts, and the one that is used here.
const BLOCK_SIZE_TAKEN: u64 = u32::MAX as u64;
const BLOCK_SIZE_MAX: u64 = 1 << 28;
/// The default rate in bytes per second for writers that are slowed down.
const DELAYED_WRITE_RATE: u64 = 16 << 20;
/// The largest default for `arena_block_size`, and the page size of which it is a multiple.
const ARENA_BLOCK_MAX: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// The fewest levels with `allow_ingest_behind`: one for flushes, one for compactions, and the last one.
const LEVELS_BEHIND_MIN: i32 = 3;
/// The default age in seconds after which universal compaction compacts a file again.
const UNIVERSAL_PERIOD: u64 = 30 * 24 * 3600;

/// Replaces a value, and adds a line for LOG.
macro_rules! use_as {
    ($told:ident, $of:expr, $name:ident, $value:expr) => {
        let value = $value;
        if $of.$name != value {
            let before = $of.$name.to_string();
            $told.push(used_as(stringify!($name), &before, &value.to_string()));
            $of.$name = value;
        }
    };
}

impl Options {
    /// The options with the values that a database uses, as RocksDB's `SanitizeOptions` does it, and a line for
    /// each value that was replaced. Opening a database does this and writes the lines to LOG.
    ///
    /// ```
    /// let mut options = ironstone::Options::default();
    /// options.db.max_background_jobs = 0;
    /// let (options, told) = options.sanitized();
    /// assert_eq!(options.db.max_background_jobs, 1);
    /// assert_eq!(told, ["option max_background_jobs = 0 is used as 1"]);
    /// ```
    #[must_use]
    pub fn sanitized(&self) -> (Self, Vec<String>) {
        let mut options = self.clone();
        let mut told = whole(&mut options);
        told.extend(family(&mut options.cf, &options.db));
        (options, told)
    }
}

/// Sanitizes the options of the whole database. Its clock is one that does not panic.
pub fn whole(options: &mut Options) -> Vec<String> {
    options.env.clock = base::clock::guarded(&options.env.clock);
    let rate = options.env.background_rate();
    database(&mut options.db, rate)
}

/// Sanitizes the options of the whole database. `rate` is the limit of background work in bytes per second, if
/// there is one.
pub fn database(o: &mut DbOptions, rate: Option<u64>) -> Vec<String> {
    let mut told = Vec::new();
    if o.max_open_files != -1 {
        let most = io::posix::descriptor_limit().and_then(|n| i32::try_from(n).ok());
        let most = most.unwrap_or(i32::MAX).max(OPEN_FILES_MIN);
        use_as!(
            told,
            o,
            max_open_files,
            o.max_open_files.clamp(OPEN_FILES_MIN, most)
        );
    }
    if o.delayed_write_rate == 0 {
        o.delayed_write_rate = rate.filter(|r| *r > 0).unwrap_or(DELAYED_WRITE_RATE);
    }
    if let Some(dir) = o.wal_dir.strip_suffix('/').filter(|d| !d.is_empty()) {
        o.wal_dir = dir.to_owned();
    }
    told.extend(o.sanitize());
    told
}

/// Sanitizes the options of a family. `db` are the database's options.
pub fn family(o: &mut ColumnFamilyOptions, db: &DbOptions) -> Vec<String> {
    let mut told = tables(&mut o.table);
    told.extend(memtables(&mut o.cf, db));
    told.extend(levels(&mut o.cf, db));
    told
}

fn tables(o: &mut TableOptions) -> Vec<String> {
    let mut told = Vec::new();
    if !(0..=100).contains(&o.block_size_deviation) {
        use_as!(told, o, block_size_deviation, 0);
    }
    if o.block_size <= BLOCK_SIZE_TAKEN {
        use_as!(told, o, block_size, o.block_size.clamp(1, BLOCK_SIZE_MAX));
    }
    if o.partition_filters && o.index_type != IndexType::TwoLevel {
        use_as!(told, o, partition_filters, false);
    }
    if o.index_type == IndexType::Hash {
        use_as!(told, o, index_block_restart_interval, 1);
    }
    told.extend(o.sanitize());
    told
}

fn memtables(o: &mut CfOptions, db: &DbOptions) -> Vec<String> {
    let asks_for_default = o.arena_block_size == 0;
    let mut told = Vec::new();
    if asks_for_default {
        o.arena_block_size = ARENA_BLOCK_MAX;
    }
    told.extend(o.sanitize());
    if asks_for_default {
        let fits = (o.write_buffer_size / 8).next_multiple_of(PAGE);
        o.arena_block_size = fits.clamp(PAGE, ARENA_BLOCK_MAX);
    }
    let most = if db.atomic_flush {
        1
    } else {
        o.max_write_buffer_number.saturating_sub(1)
    };
    use_as!(
        told,
        o,
        min_write_buffer_number_to_merge,
        o.min_write_buffer_number_to_merge.min(most)
    );
    if o.max_write_buffer_size_to_maintain < 0 {
        let number = u64::from(o.max_write_buffer_number.unsigned_abs());
        let all = number.saturating_mul(o.write_buffer_size);
        o.max_write_buffer_size_to_maintain = i64::try_from(all).unwrap_or(i64::MAX);
    }
    told
}

fn levels(o: &mut CfOptions, db: &DbOptions) -> Vec<String> {
    let mut told = Vec::new();
    let level_style = o.compaction_style == CompactionStyle::Level;
    if level_style {
        use_as!(told, o, num_levels, o.num_levels.max(2));
    } else {
        o.level_compaction_dynamic_level_bytes = false;
    }
    if db.allow_ingest_behind {
        use_as!(told, o, num_levels, o.num_levels.max(LEVELS_BEHIND_MIN));
    }
    use_as!(
        told,
        o,
        level0_slowdown_writes_trigger,
        o.level0_slowdown_writes_trigger
            .max(o.level0_file_num_compaction_trigger)
    );
    use_as!(
        told,
        o,
        level0_stop_writes_trigger,
        o.level0_stop_writes_trigger
            .max(o.level0_slowdown_writes_trigger)
    );
    let (soft, hard) = (
        o.soft_pending_compaction_bytes_limit,
        o.hard_pending_compaction_bytes_limit,
    );
    if soft == 0 {
        o.soft_pending_compaction_bytes_limit = hard;
    } else if hard != 0 {
        use_as!(told, o, soft_pending_compaction_bytes_limit, soft.min(hard));
    }
    if o.compaction_style == CompactionStyle::Universal {
        universal(o);
    }
    told
}

/// Files are compacted again at the smaller of the two ages; 0 means never.
fn universal(o: &mut CfOptions) {
    let period = match o.periodic_compaction_seconds {
        CfOptions::UNSET => UNIVERSAL_PERIOD,
        n => n,
    };
    let ttl = match o.ttl {
        CfOptions::UNSET => UNIVERSAL_PERIOD,
        n => n,
    };
    o.periodic_compaction_seconds = match (ttl, period) {
        (0, n) | (n, 0) => n,
        (a, b) => a.min(b),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_for_a_default_is_not_told() {
        let mut o = Options::default();
        o.db.delayed_write_rate = 0;
        o.db.wal_dir = "/logs/".to_owned();
        o.cf.arena_block_size = 0;
        o.cf.write_buffer_size = 1 << 20;
        o.cf.max_write_buffer_size_to_maintain = -1;
        o.cf.soft_pending_compaction_bytes_limit = 0;
        let (o, told) = o.sanitized();
        assert_eq!(told, [""; 0]);
        assert_eq!(
            (o.db.delayed_write_rate, o.db.wal_dir.as_str()),
            (16 << 20, "/logs")
        );
        assert_eq!(o.cf.arena_block_size, 128 << 10);
        assert_eq!(o.cf.max_write_buffer_size_to_maintain, 2 << 20);
        assert_eq!(o.cf.soft_pending_compaction_bytes_limit, 256 << 30);
        // Sanitized options do not change again.
        let (again, told) = o.sanitized();
        assert_eq!((again.db, again.cf.cf, told), (o.db, o.cf.cf, Vec::new()));
    }

    #[test]
    fn what_is_replaced_is_told() {
        let mut o = Options::default();
        o.cf.max_write_buffer_number = 1;
        o.cf.min_write_buffer_number_to_merge = 5;
        o.cf.level0_file_num_compaction_trigger = 40;
        o.cf.table.partition_filters = true;
        o.cf.table.block_restart_interval = 0;
        let (o, told) = o.sanitized();
        assert_eq!(
            told,
            [
                "option partition_filters = true is used as false",
                "option block_restart_interval = 0 is used as 1",
                "option max_write_buffer_number = 1 is used as 2",
                "option min_write_buffer_number_to_merge = 5 is used as 1",
                "option level0_slowdown_writes_trigger = 20 is used as 40",
                "option level0_stop_writes_trigger = 36 is used as 40",
            ]
        );
        o.validate().unwrap();
    }
}
