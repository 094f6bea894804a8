//! Numeric properties, each with the function that computes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::tables;
use crate::background::Background;
use crate::catalog::Catalog;
use crate::catalog::family::Family;
use crate::catalog::view::View;
use crate::shared::Shared;
use crate::write::debt;
use options::CompactionStyle;
use picking::candidates;

/// The database and the family whose number is computed.
pub(super) struct Ask<'a> {
    db: &'a Shared,
    family: &'a Family,
    view: Arc<View>,
}

impl<'a> Ask<'a> {
    pub(super) fn new(db: &'a Shared, family: &'a Family) -> Self {
        Self {
            db,
            family,
            view: family.view.load_full(),
        }
    }

    fn memtables(&self, f: impl Fn(&memtable::Memtable) -> u64) -> u64 {
        self.view.imm.iter().map(|m| f(m)).sum()
    }

    fn now_seconds(&self) -> u64 {
        self.db.env().clock.wall_micros() / 1_000_000
    }
}

/// The scope of a numeric property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Family,
    Db,
    /// The block cache, which other databases may share.
    Cache,
}

/// A numeric property.
pub(super) struct Number {
    /// The name without the prefix `rocksdb.`.
    pub(super) name: &'static str,
    pub(super) scope: Scope,
    /// Computes the value; `None` if the property does not apply.
    pub(super) get: fn(&Ask<'_>) -> Option<u64>,
}

const fn family(name: &'static str, get: fn(&Ask<'_>) -> Option<u64>) -> Number {
    Number {
        name,
        scope: Scope::Family,
        get,
    }
}

const fn db(name: &'static str, get: fn(&Ask<'_>) -> Option<u64>) -> Number {
    Number {
        name,
        scope: Scope::Db,
        get,
    }
}

const fn cache(name: &'static str, get: fn(&Ask<'_>) -> Option<u64>) -> Number {
    Number {
        name,
        scope: Scope::Cache,
        get,
    }
}

/// All numeric properties.
pub(super) const ALL: &[Number] = &[
    family("num-immutable-mem-table", |a| Some(a.view.imm.len() as u64)),
    family("num-immutable-mem-table-flushed", |a| {
        Some(a.family.history().len() as u64)
    }),
    family("mem-table-flush-pending", |a| {
        Some(u64::from(a.family.flush_due()))
    }),
    db("num-running-flushes", |a| {
        Some(a.db.background.state().flushing.len() as u64)
    }),
    family("compaction-pending", |a| {
        let options = &a.family.options().cf;
        let scores = candidates::scores(&a.view.version, options, a.now_seconds());
        Some(u64::from(scores.iter().any(|s| *s >= 1.0)))
    }),
    db("num-running-compactions", |a| {
        Some(a.db.background.state().compacting.len() as u64)
    }),
    db("num-running-compaction-sorted-runs", |a| {
        Some(running_sorted_runs(&a.db.background, &a.db.catalog))
    }),
    db("compaction-abort-count", |a| {
        Some(u64::from(a.db.background.is_canceled()))
    }),
    db("background-errors", |a| {
        Some(u64::from(a.db.background.state().failure.is_some()))
    }),
    family("cur-size-active-mem-table", |a| {
        Some(a.view.mem.memory_usage() as u64)
    }),
    family("cur-size-all-mem-tables", |a| Some(memory(a))),
    family("size-all-mem-tables", |a| {
        Some(memory(a) + a.family.history().memory_usage() as u64)
    }),
    family("num-entries-active-mem-table", |a| {
        Some(a.view.mem.len() as u64)
    }),
    family("num-entries-imm-mem-tables", |a| {
        Some(a.memtables(|m| m.len() as u64))
    }),
    family("num-deletes-active-mem-table", |a| {
        Some(a.view.mem.num_deletes())
    }),
    family("num-deletes-imm-mem-tables", |a| {
        Some(a.memtables(memtable::Memtable::num_deletes))
    }),
    family("estimate-num-keys", |a| Some(estimate_num_keys(&a.view))),
    family("estimate-table-readers-mem", |a| {
        let files = a.view.version.files();
        let open = files.filter_map(|(_, f)| f.open_reader());
        Some(open.map(|r| r.metadata_memory() as u64).sum())
    }),
    db("is-file-deletions-enabled", |a| {
        Some(u64::from(a.db.deletions.are_enabled()))
    }),
    db("num-snapshots", |a| Some(a.db.snapshots.count())),
    db("oldest-snapshot-time", |a| {
        Some(a.db.snapshots.oldest_seconds())
    }),
    db("oldest-snapshot-sequence", |a| {
        let sequences = a.db.snapshots.sequences();
        Some(sequences.first().map_or(0, |s| s.0))
    }),
    family("num-live-versions", |a| {
        Some(a.family.view.live_versions().len() as u64)
    }),
    family("current-super-version-number", |a| {
        Some(a.family.view.number())
    }),
    family("estimate-live-data-size", |a| {
        Some(tables::live_data_size(&a.view.version))
    }),
    db("min-log-number-to-keep", |a| {
        Some(a.db.catalog.lock_versions().min_log_number_to_keep)
    }),
    // No file is protected by its number: files that are being written are tracked by name.
    db("min-obsolete-sst-number-to-keep", |_| Some(u64::MAX)),
    family("base-level", |a| {
        let base = candidates::base_level(&a.view.version, &a.family.options().cf);
        Some(base as u64)
    }),
    family("total-sst-files-size", |a| Some(total_table_bytes(a))),
    family("live-sst-files-size", |a| Some(live_table_bytes(&a.view))),
    db("obsolete-sst-files-size", |a| {
        Some(a.db.catalog.tables.janitor.bytes())
    }),
    family("estimate-pending-compaction-bytes", |a| {
        let options = &a.family.options().cf;
        Some(candidates::pending_compaction_bytes(
            &a.view.version,
            options,
        ))
    }),
    family("estimate-oldest-key-time", oldest_key_time),
    db("actual-delayed-write-rate", |a| Some(debt::rate(a.db))),
    db("is-write-stopped", |a| {
        Some(u64::from(a.db.writes.stall.writes_stopped()))
    }),
    cache("block-cache-capacity", |a| {
        uses_cache(a).then(|| a.db.catalog.tables.cache.capacity() as u64)
    }),
    cache("block-cache-usage", |a| {
        uses_cache(a).then(|| a.db.catalog.tables.cache.usage() as u64)
    }),
    cache("block-cache-pinned-usage", |a| {
        uses_cache(a).then(|| a.db.catalog.tables.cache.pinned_usage() as u64)
    }),
    // Blob files, and a cache for them, do not exist.
    family("num-blob-files", |_| Some(0)),
    family("total-blob-file-size", |_| Some(0)),
    family("live-blob-file-size", |_| Some(0)),
    family("live-blob-file-garbage-size", |_| Some(0)),
    cache("blob-cache-capacity", |_| None),
    cache("blob-cache-usage", |_| None),
    cache("blob-cache-pinned-usage", |_| None),
];

fn uses_cache(a: &Ask<'_>) -> bool {
    !a.family.options().table.no_block_cache
}

fn memory(a: &Ask<'_>) -> u64 {
    a.view.mem.memory_usage() as u64 + a.memtables(|m| m.memory_usage() as u64)
}

fn live_table_bytes(view: &View) -> u64 {
    view.version.files().map(|(_, f)| f.meta.file_size).sum()
}

/// The total size in bytes of the tables of all Versions that are still in use, each table once.
fn total_table_bytes(a: &Ask<'_>) -> u64 {
    let mut sizes = BTreeMap::new();
    for version in a.family.view.live_versions() {
        for (_, f) in version.files() {
            sizes.insert(f.number(), f.meta.file_size);
        }
    }
    sizes.values().sum()
}

/// The number of entries minus twice the number of deletions: a deletion hides itself and one other entry. This is
/// RocksDB's estimate.
fn estimate_num_keys(view: &View) -> u64 {
    let memory = std::iter::once(&view.mem).chain(&view.imm);
    let (mut entries, mut deletes) = memory.fold((0, 0), |(e, d), m| {
        (e + m.len() as u64, d + m.num_deletes())
    });
    for (_, f) in view.version.files() {
        let p = &f.properties;
        entries += p.num_entries;
        deletes += p.num_deletions;
    }
    entries.saturating_sub(2 * deletes)
}

/// The number of sorted runs that compactions are reading: each file of level 0, and each other level.
fn running_sorted_runs(background: &Background, catalog: &Catalog) -> u64 {
    let families = catalog.families.load();
    let state = background.state();
    let mut runs = 0;
    for job in &state.compacting {
        let Some(family) = families.get(job.family) else {
            continue;
        };
        let version = Arc::clone(&family.view.load().version);
        for level in job.start_level..=job.output_level {
            let busy = version
                .level(level)
                .iter()
                .filter(|f| f.is_being_compacted());
            runs += match level {
                0 => busy.count() as u64,
                _ => u64::from(busy.count() > 0),
            };
        }
    }
    runs
}

/// The oldest key time. Known only if files are dropped by age: with FIFO compaction and without
/// `allow_compaction`.
fn oldest_key_time(a: &Ask<'_>) -> Option<u64> {
    let options = &a.family.options().cf;
    let fifo = options.compaction_style == CompactionStyle::Fifo;
    if !fifo || options.compaction_options_fifo.allow_compaction {
        return None;
    }
    let files = a.view.version.files();
    let oldest = files.map(|(_, f)| f.properties.oldest_key_time).min();
    oldest.filter(|&t| t > 0)
}
