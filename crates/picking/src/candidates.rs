//! The tables of a Version as the picker sees them, and figures that follow from their sizes alone.

use crate::score::Targets;
use crate::score::pending_compaction_bytes as pending;
use crate::{Candidate, Counts, Levels};
use manifest::edit::FileMetaData;
use manifest::{TableFile, Version};
use options::{CfOptions, CompactionStyle};

impl Candidate for TableFile {
    fn meta(&self) -> &FileMetaData {
        &self.meta
    }

    fn counts(&self) -> Counts {
        let p = &self.properties;
        Counts {
            entries: p.num_entries,
            deletions: p.num_deletions,
            range_deletions: p.num_range_deletions,
            kept: p.num_kept_for_snapshots,
            raw_key_bytes: p.raw_key_size,
            raw_value_bytes: p.raw_value_size,
        }
    }

    fn is_being_compacted(&self) -> bool {
        Self::is_being_compacted(self)
    }

    fn is_marked(&self) -> bool {
        self.meta.marked_for_compaction || self.is_suggested()
    }
}

/// The files of a Version that compactions may take.
pub fn levels(version: &Version) -> Levels<'_, TableFile> {
    Levels {
        comparator: &version.comparator,
        files: version.compacted_levels(),
    }
}

/// The level that level 0 is compacted into.
pub fn base_level(version: &Version, options: &CfOptions) -> usize {
    Targets::of(&levels(version), options).base_level
}

/// Bytes that compactions have yet to write until every level is within its target; 0 in compaction styles
/// other than level.
pub fn pending_compaction_bytes(version: &Version, options: &CfOptions) -> u64 {
    pending(&levels(version), options)
}

/// The scores of all levels, by level.
pub fn scores(version: &Version, options: &CfOptions, now: u64) -> Vec<f64> {
    super::scores(&levels(version), options, now)
}

/// The number of files of each level, the highest score, and the bytes left to compact, in the words of RocksDB's LOG.
pub fn level_summary(version: &Version, options: &CfOptions, now: u64) -> String {
    let all = levels(version);
    let targets = Targets::of(&all, options);
    let (base, sizes) = (targets.base_level, &targets.max_bytes);
    // RocksDB has a multiplier where the levels' targets follow the last level.
    let dynamic = options.level_compaction_dynamic_level_bytes
        && options.compaction_style == CompactionStyle::Level
        && (1..version.num_levels()).any(|l| !version.level(l).is_empty());
    let targets = match sizes.get(base) {
        Some(bytes) if dynamic => format!(
            "base level {base} level multiplier {:.2} max bytes base {bytes} ",
            options.max_bytes_for_level_multiplier
        ),
        _ => String::new(),
    };
    let files = (0..version.num_levels()).map(|l| version.level(l).len().to_string());
    let files: Vec<String> = files.collect();
    let score = scores(version, options, now)
        .into_iter()
        .fold(0.0, f64::max);
    let marked = version.files().filter(|(_, f)| f.is_marked()).count();
    let marked = match marked {
        0 => String::new(),
        n => format!(" ({n} files need compaction)"),
    };
    format!(
        "{targets}files[{}] max score {score:.2}{marked}, estimated pending compaction bytes {}",
        files.join(" "),
        pending_compaction_bytes(version, options)
    )
}
