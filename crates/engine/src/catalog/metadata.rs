//! Where the indexes and filters of tables are kept.

use manifest::edit::NewFile;
use options::ColumnFamilyOptions;
use table::options::PinningTier;
use table::{Metadata, Pinning, TableOptions};

/// Whether a table is on level 0, and so small that it may be that of a flush. The bound is RocksDB's.
pub(super) fn is_fresh(new: &NewFile, options: &ColumnFamilyOptions) -> bool {
    let buffer = options.cf.write_buffer_size;
    new.level == 0 && new.meta.file_size <= buffer.saturating_add(buffer / 2)
}

/// Where index and filters of a table are kept, which is fresh or not. If they are in memory, `charge` says whether that is charged to the block
/// cache.
pub(super) fn metadata_of(is_fresh: bool, table: &TableOptions, charge: bool) -> Metadata {
    if !table.cache_index_and_filter_blocks {
        return if charge {
            Metadata::Charged
        } else {
            Metadata::InMemory
        };
    }
    let fresh = if table.pin_l0_filter_and_index_blocks_in_cache {
        PinningTier::FlushedAndSimilar
    } else {
        PinningTier::None
    };
    let top_level = if table.pin_top_level_index_and_filter {
        PinningTier::All
    } else {
        PinningTier::None
    };
    let pins = |tier, fallback| {
        let tier = match tier {
            PinningTier::Fallback => fallback,
            tier => tier,
        };
        tier == PinningTier::All || tier == PinningTier::FlushedAndSimilar && is_fresh
    };
    let tiers = &table.metadata_cache_options;
    Metadata::Cached(Pinning {
        top_level: pins(tiers.top_level_index_pinning, top_level),
        partitions: pins(tiers.partition_pinning, fresh),
        unpartitioned: pins(tiers.unpartitioned_pinning, fresh),
        high_priority: table.cache_index_and_filter_blocks_with_high_priority,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is pinned of a fresh table and of another: top levels, partitions, and what has none.
    fn pins(text: &str) -> [[bool; 3]; 2] {
        let mut table = TableOptions::default();
        let text = format!("cache_index_and_filter_blocks=true;{text}");
        for part in text.split(';').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap();
            table.apply(name, &value.replace('+', ";")).unwrap();
        }
        [true, false].map(|is_fresh| match metadata_of(is_fresh, &table, true) {
            Metadata::Cached(p) => [p.top_level, p.partitions, p.unpartitioned],
            kept => panic!("{kept:?}"),
        })
    }

    #[test]
    fn options_say_what_is_pinned() {
        let nothing = [false; 3];
        let top = [true, false, false];
        assert_eq!(pins(""), [top, top]);
        assert_eq!(
            pins("pin_top_level_index_and_filter=false"),
            [nothing, nothing]
        );
        let pin_l0 = "pin_l0_filter_and_index_blocks_in_cache=true";
        assert_eq!(pins(pin_l0), [[true; 3], top]);
        let tiers = |of: &str| pins(&format!("{pin_l0};metadata_cache_options={{{of}}}"));
        assert_eq!(tiers("partition_pinning=kNone"), [[true, false, true], top]);
        assert_eq!(
            tiers("unpartitioned_pinning=kAll+top_level_index_pinning=kNone"),
            [[false, true, true], [false, false, true]]
        );
        assert_eq!(
            tiers("top_level_index_pinning=kFlushedAndSimilar+partition_pinning=kAll"),
            [[true; 3], [false, true, false]]
        );
        let table = TableOptions::default();
        assert_eq!(metadata_of(true, &table, true), Metadata::Charged);
        assert_eq!(metadata_of(true, &table, false), Metadata::InMemory);
    }
}
