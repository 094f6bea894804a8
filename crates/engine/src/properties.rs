//! Properties: what the database tells about itself, by RocksDB's names.

use std::collections::BTreeMap;

use crate::compaction::candidates;
use crate::family::Family;
use crate::shared::Shared;
use crate::version::Version;
use crate::write::admit;

/// The value of a property of a family, or of the database; `None` for an unknown name.
pub(crate) fn get(db: &Shared, family: &Family, name: &str) -> Option<String> {
    let name = name.strip_prefix("rocksdb.")?;
    let view = family.view.load();
    let version = &view.version;
    if let Some(level) = name.strip_prefix("num-files-at-level") {
        let level: usize = level.parse().ok()?;
        return (level < version.num_levels()).then(|| version.level(level).len().to_string());
    }
    let number = match name {
        "stats" => return Some(stats(db, family)),
        "levelstats" => return Some(levelstats(version)),
        "sstables" => return Some(sstables(version)),
        "cf-write-stall-stats" => return Some(stall_text(&cf_stalls(db, family))),
        "db-write-stall-stats" => return Some(stall_text(&db_stalls(db))),
        "actual-delayed-write-rate" => admit::rate(db),
        "is-write-stopped" => u64::from(db.stall.writes_stopped()),
        "num-immutable-mem-table-flushed" => family.history().len() as u64,
        "size-all-mem-tables" => {
            let imm: usize = view.imm.iter().map(|m| m.memory_usage()).sum();
            (imm + view.mem.memory_usage() + family.history().memory_usage()) as u64
        }
        "num-immutable-mem-table" => view.imm.len() as u64,
        "mem-table-flush-pending" => u64::from(!view.imm.is_empty()),
        "background-errors" => u64::from(db.state().failure.is_some()),
        "cur-size-active-mem-table" => view.mem.memory_usage() as u64,
        "cur-size-all-mem-tables" => {
            let imm: usize = view.imm.iter().map(|m| m.memory_usage()).sum();
            (imm + view.mem.memory_usage()) as u64
        }
        "num-entries-active-mem-table" => view.mem.len() as u64,
        "num-entries-imm-mem-tables" => view.imm.iter().map(|m| m.len() as u64).sum(),
        "num-deletes-active-mem-table" => view.mem.num_deletes(),
        "num-deletes-imm-mem-tables" => view.imm.iter().map(|m| m.num_deletes()).sum(),
        "estimate-num-keys" => estimate_num_keys(&view),
        "num-snapshots" => db.snapshots.sequences().len() as u64,
        "oldest-snapshot-sequence" => db.snapshots.sequences().first().map_or(0, |s| s.0),
        "num-running-flushes" => db.state().flushing.len() as u64,
        "base-level" => candidates::base_level(version, &family.options().cf) as u64,
        "estimate-pending-compaction-bytes" => {
            candidates::pending_compaction_bytes(version, &family.options().cf)
        }
        "compaction-pending" => {
            let now = db.env().clock.wall_micros() / 1_000_000;
            let scores = candidates::scores(version, &family.options().cf, now);
            u64::from(scores.iter().any(|s| *s >= 1.0))
        }
        "num-running-compactions" => db.state().compacting.len() as u64,
        "total-sst-files-size" | "live-sst-files-size" => {
            version.files().map(|(_, f)| f.meta.file_size).sum()
        }
        "estimate-live-data-size" => version.files().map(|(_, f)| f.meta.file_size).sum(),
        "estimate-table-readers-mem" => version
            .files()
            .map(|(_, f)| f.reader.metadata_memory() as u64)
            .sum(),
        "block-cache-capacity" => db.tables.cache.capacity() as u64,
        "block-cache-usage" => db.tables.cache.usage() as u64,
        "block-cache-pinned-usage" => db.tables.cache.pinned_usage() as u64,
        _ => return None,
    };
    Some(number.to_string())
}

/// A property that is a map, by RocksDB's keys; `None` for any other name.
pub(crate) fn get_map(
    db: &Shared,
    family: &Family,
    name: &str,
) -> Option<BTreeMap<String, String>> {
    let pairs = match name.strip_prefix("rocksdb.")? {
        "cf-write-stall-stats" => cf_stalls(db, family),
        "db-write-stall-stats" => db_stalls(db),
        _ => return None,
    };
    let text = |(name, value): (String, u64)| (name, value.to_string());
    Some(pairs.into_iter().map(text).collect())
}

/// How often writers of a family were held back.
fn cf_stalls(db: &Shared, family: &Family) -> BTreeMap<String, u64> {
    let counts = db.stall.counts(family.id);
    let mut out = BTreeMap::new();
    for (cause, pair) in [
        ("memtable-limit", counts.memtable),
        ("l0-file-count-limit", counts.l0),
        ("pending-compaction-bytes", counts.pending),
        ("total", counts.total()),
    ] {
        out.insert(format!("{cause}-delays"), pair.delays);
        out.insert(format!("{cause}-stops"), pair.stops);
    }
    let busy = counts.l0_with_compaction;
    let name = |what| format!("cf-l0-file-count-limit-{what}-with-ongoing-compaction");
    out.insert(name("delays"), busy.delays);
    out.insert(name("stops"), busy.stops);
    out
}

fn db_stalls(db: &Shared) -> BTreeMap<String, u64> {
    let name = "write-buffer-manager-limit-stops".to_owned();
    BTreeMap::from([(name, db.stall.memory_stops())])
}

fn stall_text(pairs: &BTreeMap<String, u64>) -> String {
    let each = pairs.iter().map(|(name, n)| format!("{name}: {n}"));
    format!(
        "Write Stall (count): {}\n",
        each.collect::<Vec<_>>().join(", ")
    )
}

/// Entries less twice the deletions, which hide themselves and one other: RocksDB's estimate.
fn estimate_num_keys(view: &crate::read::view::View) -> u64 {
    let memory = std::iter::once(&view.mem).chain(&view.imm);
    let (mut entries, mut deletes) = memory.fold((0, 0), |(e, d), m| {
        (e + m.len() as u64, d + m.num_deletes())
    });
    for (_, f) in view.version.files() {
        let p = f.reader.properties();
        entries += p.num_entries;
        deletes += p.num_deletions;
    }
    entries.saturating_sub(2 * deletes)
}

fn levelstats(version: &Version) -> String {
    let mut out = String::from("Level Files Size(MB)\n--------------------\n");
    for level in 0..version.num_levels() {
        let mb = version.level_bytes(level) as f64 / 1_048_576.0;
        out += &format!("{level:3} {:8} {mb:8.0}\n", version.level(level).len());
    }
    out
}

fn sstables(version: &Version) -> String {
    let mut out = String::new();
    for level in 0..version.num_levels() {
        out += &format!("--- level {level} --- version# 0 ---\n");
        for f in version.level(level) {
            out += &format!(
                " {}:{}[{} .. {}]\n",
                f.number(),
                f.meta.file_size,
                f.smallest_user_key().escape_ascii(),
                f.largest_user_key().escape_ascii()
            );
        }
    }
    out
}

fn stats(db: &Shared, family: &Family) -> String {
    let view = family.view.load();
    let version = &view.version;
    let mut out = format!("\n** Compaction Stats [{}] **\n", family.name);
    out.push_str(
        "Level    Files   Size     Score Read(MB) Write(MB) Moved(MB) Comp(sec) Comp(cnt)\n",
    );
    out.push_str("-----------------------------------------------------------------------------\n");
    let now = db.env().clock.wall_micros() / 1_000_000;
    let scores = candidates::scores(version, &family.options().cf, now);
    let done = family.compactions.levels();
    let mut total = 0;
    for (level, score) in scores.into_iter().enumerate() {
        let files = version.level(level);
        if files.is_empty() && level > 0 {
            continue;
        }
        let busy = files.iter().filter(|f| f.is_being_compacted()).count();
        let mb = version.level_bytes(level) as f64 / 1_048_576.0;
        total += version.level_bytes(level);
        let count = format!("{}/{busy}", files.len());
        let work = done.get(level).cloned().unwrap_or_default();
        out += &format!(
            "  L{level} {count:>10} {mb:9.2} MB {score:6.1} {:8.1} {:9.1} {:9.1} {:9.2} {:9}\n",
            (work.bytes_read_upper + work.bytes_read_output) as f64 / 1_048_576.0,
            work.bytes_written as f64 / 1_048_576.0,
            work.bytes_moved as f64 / 1_048_576.0,
            work.micros as f64 / 1e6,
            work.count,
        );
    }
    out += &format!(
        " Sum {:>10} {:9.2} MB\n",
        version.files().count(),
        total as f64 / 1_048_576.0
    );
    out += &format!(
        "\n** DB Stats **\nLast sequence: {}\nMemtables: {} active, {} immutable, {} bytes\nBlock cache: {} of {} bytes\nSnapshots: {}\n",
        db.visible(),
        view.mem.len(),
        view.imm.len(),
        view.mem.memory_usage() + view.imm.iter().map(|m| m.memory_usage()).sum::<usize>(),
        db.tables.cache.usage(),
        db.tables.cache.capacity(),
        db.snapshots.sequences().len(),
    );
    if let Some(s) = &db.env().statistics {
        out += &format!("\n{s}");
    }
    out
}
