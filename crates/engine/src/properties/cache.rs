//! `rocksdb.block-cache-entry-stats`: the content of the block cache.
//!
//! The cache holds data blocks, and with `cache_index_and_filter_blocks` those of indexes and filters. Memory outside of it
//! is charged to it: what is pinned, and memtables if the write-buffer manager charges them. The blocks are counted for each
//! answer, so its age is always 0.

use std::collections::BTreeMap;
use std::sync::Arc;

use table::BlockKind;

use super::text;
use crate::catalog::Catalog;
use crate::catalog::family::Family;

/// The roles of entries under RocksDB's names, in RocksDB's order.
const ROLES: [(&str, &str); 14] = [
    ("DataBlock", "data-block"),
    ("FilterBlock", "filter-block"),
    ("FilterMetaBlock", "filter-meta-block"),
    ("DeprecatedFilterBlock", "deprecated-filter-block"),
    ("IndexBlock", "index-block"),
    ("OtherBlock", "other-block"),
    ("WriteBuffer", "write-buffer"),
    (
        "CompressionDictionaryBuildingBuffer",
        "compression-dictionary-building-buffer",
    ),
    ("FilterConstruction", "filter-construction"),
    ("BlockBasedTableReader", "block-based-table-reader"),
    ("FileMetadata", "file-metadata"),
    ("BlobValue", "blob-value"),
    ("BlobCache", "blob-cache"),
    ("Misc", "misc"),
];

const TABLE_READER: usize = 9;

/// The number of the role of a block.
fn role(kind: BlockKind) -> usize {
    match kind {
        BlockKind::Data => 0,
        BlockKind::Filter => 1,
        BlockKind::FilterIndex => 2,
        BlockKind::Index => 4,
    }
}

/// The number of entries and their bytes, by role.
fn entries(catalog: &Catalog) -> [(u64, u64); 14] {
    let cache = &catalog.tables.cache;
    let charged = cache.reserved() as u64;
    let mut out = [(0, 0); 14];
    for (kind, (count, bytes)) in BlockKind::ALL.into_iter().zip(cache.kinds()) {
        out[role(kind)] = (count as u64, bytes as u64);
    }
    out[TABLE_READER] = (u64::from(charged > 0), charged);
    out
}

fn portion(bytes: u64, of: usize) -> f64 {
    if of == 0 {
        0.0
    } else {
        100.0 * bytes as f64 / of as f64
    }
}

/// A name that is unique among the caches of this process.
fn id(catalog: &Catalog) -> String {
    let cache = &catalog.tables.cache;
    format!("ClockCache@{:p}#{}", Arc::as_ptr(cache), std::process::id())
}

/// The text of the property; empty if the family uses no block cache.
pub(super) fn text(catalog: &Catalog, family: &Family) -> String {
    if family.options().table.no_block_cache {
        return String::new();
    }
    let cache = &catalog.tables.cache;
    let mut roles = String::new();
    for ((name, _), (count, bytes)) in ROLES.iter().zip(entries(catalog)) {
        if count > 0 {
            let share = portion(bytes, cache.capacity());
            roles += &format!(" {name}({count},{},{share:.6}%)", text::bytes(bytes));
        }
    }
    format!(
        "Block cache {} capacity: {} seed: 0 usage: {} table_size: {} occupancy: {} \
         collections: 1 last_copies: 0 last_secs: 0 secs_since: 0\n\
         Block cache entry stats(count,size,portion):{roles}\n",
        id(catalog),
        text::bytes(cache.capacity() as u64),
        text::bytes(cache.usage() as u64),
        cache.len(),
        cache.len(),
    )
}

/// The map property; `None` if the family uses no block cache.
pub(super) fn map(catalog: &Catalog, family: &Family) -> Option<BTreeMap<String, String>> {
    if family.options().table.no_block_cache {
        return None;
    }
    let capacity = catalog.tables.cache.capacity();
    let mut out = BTreeMap::from([
        ("id".to_owned(), id(catalog)),
        ("capacity".to_owned(), capacity.to_string()),
        ("secs_for_last_collection".to_owned(), "0.000000".to_owned()),
        ("secs_since_last_collection".to_owned(), "0".to_owned()),
    ]);
    for ((_, role), (count, bytes)) in ROLES.iter().zip(entries(catalog)) {
        out.insert(format!("count.{role}"), count.to_string());
        out.insert(format!("bytes.{role}"), bytes.to_string());
        let share = format!("{:.6}", portion(bytes, capacity));
        out.insert(format!("percent.{role}"), share);
    }
    Some(out)
}
