//! Properties of the table files: lists, sums and estimates.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use table::Properties;

use manifest::{TableFile, Version};

/// The sums of the properties of several tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    data_blocks: u64,
    rejected: u64,
    bypassed: u64,
    uniform: u64,
    entries: u64,
    deletions: u64,
    merge_operands: u64,
    range_deletions: u64,
    raw_key: u64,
    raw_value: u64,
    data: u64,
    index: u64,
    index_partitions: u64,
    top_level_index: u64,
    user_keys: u64,
    delta_values: u64,
    filter: u64,
    filter_entries: u64,
    slow: u64,
    fast: u64,
}

impl Sums {
    /// The sums over the tables of one level or of all levels.
    pub(super) fn of(version: &Version, level: Option<usize>) -> Self {
        let mut out = Self::default();
        for (l, f) in version.files() {
            if level.is_none_or(|wanted| wanted == l) {
                out.add(&f.properties);
            }
        }
        out
    }

    fn add(&mut self, p: &Properties) {
        // Properties that only newer RocksDB versions write.
        let other = |name: &str| {
            let value = p.other.get(name.as_bytes());
            value
                .and_then(|v| base::coding::Decoder::new(v).varint64())
                .unwrap_or(0)
        };
        self.data_blocks += p.num_data_blocks;
        self.rejected += other("rocksdb.num.data.blocks.compression.rejected");
        self.bypassed += other("rocksdb.num.data.blocks.compression.bypassed");
        self.uniform += other("rocksdb.num.uniform.blocks");
        self.entries += p.num_entries;
        self.deletions += p.num_deletions;
        self.merge_operands += p.num_merge_operands;
        self.range_deletions += p.num_range_deletions;
        self.raw_key += p.raw_key_size;
        self.raw_value += p.raw_value_size;
        self.data += p.data_size;
        self.index += p.index_size;
        self.index_partitions += p.index_partitions;
        self.top_level_index += p.top_level_index_size;
        self.user_keys += u64::from(p.index_key_is_user_key);
        self.delta_values += u64::from(p.index_value_is_delta_encoded);
        self.filter += p.filter_size;
        self.filter_entries += p.num_filter_entries;
        self.slow += p.slow_compression_estimated_data_size;
        self.fast += p.fast_compression_estimated_data_size;
    }

    /// The text that RocksDB prints. A property that cannot be summed is printed as for a table without it.
    pub(super) fn text(&self) -> String {
        let mean = |n: u64| {
            if self.entries == 0 {
                0.0
            } else {
                n as f64 / self.entries as f64
            }
        };
        let none = u64::MAX;
        format!(
            "# data blocks={}; # data blocks compression rejected={}; \
             # data blocks compression bypassed={}; # uniform blocks={}; # entries={}; \
             # deletions={}; # merge operands={}; # range deletions={}; raw key size={}; \
             raw average key size={:.6}; raw value size={}; raw average value size={:.6}; \
             data block size={}; data uncompressed size=0; \
             index block size (user-key? {}, delta-value? {})={}; filter block size={}; \
             # entries for filter={}; (estimated) table size={}; filter policy name=N/A; \
             prefix extractor name=N/A; column family ID=N/A; column family name=N/A; \
             comparator name=N/A; user defined timestamps persisted=true; \
             largest sequence number in file={none}; smallest sequence number in file={none}; \
             merge operator name=N/A; property collectors names=N/A; \
             SST file compression algo=N/A; SST file compression options=N/A; creation time=0; \
             time stamp of earliest key=0; time stamp of newest key=0; file creation time=0; \
             slow compression estimated data size={}; fast compression estimated data size={}; \
             DB identity=; DB session identity=; DB host id=; original file number=0; \
             unique ID=N/A; Sequence number to time mapping=; ",
            self.data_blocks,
            self.rejected,
            self.bypassed,
            self.uniform,
            self.entries,
            self.deletions,
            self.merge_operands,
            self.range_deletions,
            self.raw_key,
            mean(self.raw_key),
            self.raw_value,
            mean(self.raw_value),
            self.data,
            self.user_keys,
            self.delta_values,
            self.index,
            self.filter,
            self.filter_entries,
            self.data + self.index + self.filter,
            self.slow,
            self.fast,
        )
    }

    /// The sums as a map.
    pub(super) fn map(&self) -> BTreeMap<String, String> {
        [
            ("data_size", self.data),
            ("index_size", self.index),
            ("index_partitions", self.index_partitions),
            ("top_level_index_size", self.top_level_index),
            ("filter_size", self.filter),
            ("raw_key_size", self.raw_key),
            ("raw_value_size", self.raw_value),
            ("num_data_blocks", self.data_blocks),
            ("num_data_blocks_compression_rejected", self.rejected),
            ("num_data_blocks_compression_bypassed", self.bypassed),
            ("num_uniform_blocks", self.uniform),
            ("num_entries", self.entries),
            ("num_filter_entries", self.filter_entries),
            ("num_deletions", self.deletions),
            ("num_merge_operands", self.merge_operands),
            ("num_range_deletions", self.range_deletions),
            ("slow_compression_estimated_data_size", self.slow),
            ("fast_compression_estimated_data_size", self.fast),
        ]
        .into_iter()
        .map(|(name, n)| (name.to_owned(), n.to_string()))
        .collect()
    }
}

/// The ratio of the uncompressed size of keys and values to the size of their files; -1 without data.
pub(super) fn compression_ratio(version: &Version, level: usize) -> f64 {
    let sums = version.level(level).iter().map(|f| {
        let p = &f.properties;
        (p.raw_key_size + p.raw_value_size, f.meta.file_size)
    });
    let (raw, stored) = sums.fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
    if stored == 0 {
        -1.0
    } else {
        raw as f64 / stored as f64
    }
}

/// The total size in bytes of the lowest level, and of those files above it that overlap no file counted before.
pub(super) fn live_data_size(version: &Version) -> u64 {
    let cmp = &version.comparator;
    // Sorted by key and not overlapping: a file that overlaps one of these is not counted.
    let mut ranges: Vec<&TableFile> = Vec::new();
    let mut bytes = 0;
    for level in (0..version.num_levels()).rev() {
        for file in version.level(level) {
            let at = ranges.partition_point(|r| {
                cmp.compare(r.largest_user_key(), file.smallest_user_key()) == Ordering::Less
            });
            let overlaps = ranges.get(at).is_some_and(|r| {
                cmp.compare(r.smallest_user_key(), file.largest_user_key()) != Ordering::Greater
            });
            if !overlaps {
                ranges.insert(at, file);
                bytes += file.meta.file_size;
            }
        }
    }
    bytes
}

/// The text of `rocksdb.levelstats`.
pub(super) fn levelstats(version: &Version) -> String {
    let mut out = String::from("Level Files Size(MB)\n--------------------\n");
    for level in 0..version.num_levels() {
        let mb = version.level_bytes(level) as f64 / 1_048_576.0;
        out += &format!("{level:3} {:8} {mb:8.0}\n", version.level(level).len());
    }
    out
}

/// The text of `rocksdb.sstables`: number, size, sequence numbers and bounds of each file, and the number of its
/// sampled reads, which is always 0 because reads are not sampled.
pub(super) fn sstables(version: &Version, number: u64) -> String {
    let mut out = String::new();
    for level in 0..version.num_levels() {
        out += &format!("--- level {level} --- version# {number} ---\n");
        for f in version.level(level) {
            out += &format!(
                " {}:{}[{} .. {}][{} .. {}](0)\n",
                f.number().0,
                f.meta.file_size,
                f.meta.smallest_seqno,
                f.meta.largest_seqno,
                bound(&f.meta.smallest),
                bound(&f.meta.largest),
            );
        }
    }
    out
}

/// An internal key in RocksDB's format.
fn bound(internal: &[u8]) -> String {
    let Some((user, packed)) = base::key::split(internal) else {
        return "(bad)".to_owned();
    };
    let digits = user.iter().flat_map(|b| [b >> 4, b & 15]);
    let hex: String = digits
        .map(|d| char::from(b"0123456789ABCDEF"[usize::from(d)]))
        .collect();
    format!("'{hex}' seq:{}, type:{}", packed >> 8, packed & 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{SequenceNumber, ValueType, key};

    #[test]
    fn bounds_are_shown_as_rocksdb_shows_them() {
        let k = key::encode(b"key000000", SequenceNumber(2502), ValueType::Value);
        assert_eq!(bound(&k), "'6B6579303030303030' seq:2502, type:1");
        assert_eq!(bound(b"short"), "(bad)");
    }

    #[test]
    fn sums_count_what_newer_versions_add() {
        let mut p = Properties {
            num_entries: 4,
            raw_key_size: 40,
            ..Properties::default()
        };
        let name = b"rocksdb.num.data.blocks.compression.bypassed";
        p.other.insert(name.to_vec(), vec![14]);
        let mut sums = Sums::default();
        sums.add(&p);
        sums.add(&p);
        let text = sums.text();
        assert!(text.contains("compression bypassed=28; "), "{text}");
        assert!(text.contains("raw average key size=10.000000; "), "{text}");
        assert_eq!(sums.map()["num_entries"], "8");
    }
}
