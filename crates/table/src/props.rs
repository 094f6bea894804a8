//! Table properties: metadata about a table.
//!
//! They are stored in a separate block, as names and values, sorted by name. Numbers are varints,
//! except for a few older properties of fixed width; flags are `0`/`1` as a varint or as a digit. A
//! reader needs three of them: the index type, and how index keys and values are encoded. The rest are
//! statistics, the parts of the unique id, and the properties of users' collectors.
//!
//! Each property is declared once, in the table below; names are RocksDB's
//! (`table/table_properties.cc`). A property that is not declared is kept unchanged in
//! [`Properties::other`].
#![deny(clippy::indexing_slicing)]

use std::borrow::Cow;
use std::collections::BTreeMap;

use base::coding::{Decoder, put_varint};
use base::{Error, Result};

/// The column family id of a table that belongs to none, such as one made by an `SstFileWriter`.
pub const UNKNOWN_COLUMN_FAMILY: u64 = 0x7fff_ffff;

const INDEX_TYPE: &str = "rocksdb.block.based.table.index.type";
const WHOLE_KEY_FILTERING: &str = "rocksdb.block.based.table.whole.key.filtering";
const PREFIX_FILTERING: &str = "rocksdb.block.based.table.prefix.filtering";
const INDEX_KEY_IS_USER_KEY: &str = "rocksdb.index.key.is.user.key";
const INDEX_VALUE_IS_DELTA_ENCODED: &str = "rocksdb.index.value.is.delta.encoded";
const TIMESTAMPS_PERSISTED: &str = "rocksdb.user.defined.timestamps.persisted";
const EXTERNAL_VERSION: &str = "rocksdb.external_sst_file.version";
/// Which sequence numbers were written when, encoded.
pub const SEQNO_TIME_MAPPING: &[u8] = b"rocksdb.seqno.time.map";
const GLOBAL_SEQNO: &str = "rocksdb.external_sst_file.global_seqno";

macro_rules! properties {
    (
        text { $( $(#[doc = $tdoc:literal])* $tfield:ident = $tname:literal; )* }
        always { $( $(#[doc = $adoc:literal])* $afield:ident = $aname:literal, $adefault:expr; )* }
        unless_zero { $( $(#[doc = $zdoc:literal])* $zfield:ident = $zname:literal; )* }
    ) => {
        /// The properties of one table. Sizes are in bytes, times in seconds since 1970.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Properties {
            $( $(#[doc = $tdoc])* pub $tfield: String, )*
            $( $(#[doc = $adoc])* pub $afield: u64, )*
            $( $(#[doc = $zdoc])* pub $zfield: u64, )*
            /// 0 binary search, 1 hash, 2 two-level, 3 binary search with first keys.
            pub index_type: u32,
            /// Index keys are user keys, without sequence number and type.
            pub index_key_is_user_key: bool,
            /// Index values give sizes as differences.
            pub index_value_is_delta_encoded: bool,
            /// Some(false) if the filter holds no whole keys; `None` if the table does not say.
            pub whole_key_filtering: Option<bool>,
            /// Some(false) if the filter holds no prefixes; `None` if the table does not say.
            pub prefix_filtering: Option<bool>,
            /// False if the timestamps that the comparator expects were dropped from the keys.
            pub user_defined_timestamps_persisted: bool,
            /// The version of a table made by an `SstFileWriter`, 1 or 2.
            pub external_sst_file_version: Option<u32>,
            /// The sequence number that all keys of an ingested table have.
            pub global_seqno: Option<u64>,
            /// Every other property, by name.
            pub other: BTreeMap<Vec<u8>, Vec<u8>>,
        }

        impl Default for Properties {
            /// The values of a table without any properties.
            fn default() -> Self {
                Self {
                    $( $tfield: String::new(), )*
                    $( $afield: $adefault, )*
                    $( $zfield: 0, )*
                    index_type: 0,
                    index_key_is_user_key: false,
                    index_value_is_delta_encoded: false,
                    whole_key_filtering: None,
                    prefix_filtering: None,
                    user_defined_timestamps_persisted: true,
                    external_sst_file_version: None,
                    global_seqno: None,
                    other: BTreeMap::new(),
                }
            }
        }

        impl Properties {
            /// Sets a text or number; false if the name is no such property's.
            fn set_plain(&mut self, name: &str, value: &[u8]) -> Result<bool> {
                match name {
                    $( $tname => self.$tfield = String::from_utf8_lossy(value).into_owned(), )*
                    $( $aname => self.$afield = number(name, value)?, )*
                    $( $zname => self.$zfield = number(name, value)?, )*
                    _ => return Ok(false),
                }
                Ok(true)
            }

            fn plain_entries(&self, add: &mut impl FnMut(&str, Vec<u8>)) {
                $( if !self.$tfield.is_empty() {
                    add($tname, self.$tfield.clone().into_bytes());
                } )*
                $( add($aname, varint(self.$afield)); )*
                $( if self.$zfield != 0 {
                    add($zname, varint(self.$zfield));
                } )*
            }
        }
    };
}

properties! {
    text {
        /// The comparator's name.
        comparator = "rocksdb.comparator";
        /// The merge operator's name, `nullptr` for none.
        merge_operator = "rocksdb.merge.operator";
        /// The prefix extractor's name, `nullptr` for none.
        prefix_extractor_name = "rocksdb.prefix.extractor.name";
        /// The collectors' names in brackets, `[]` for none.
        property_collectors = "rocksdb.property.collectors";
        /// `bloomfilter` or `ribbonfilter`; empty without filter.
        filter_policy = "rocksdb.filter.policy";
        /// Which codec the blocks may need: a name, or from format version 7 a list.
        compression = "rocksdb.compression";
        /// The compressor's settings, for users.
        compression_options = "rocksdb.compression_options";
        /// The column family's name.
        column_family_name = "rocksdb.column.family.name";
        /// The id of the database that made the table.
        db_id = "rocksdb.creating.db.identity";
        /// The session that made the table.
        db_session_id = "rocksdb.creating.session.identity";
        /// The machine that made the table.
        db_host_id = "rocksdb.creating.host.identity";
    }
    always {
        /// Data blocks with their trailers.
        data_size = "rocksdb.data.size", 0;
        /// The index with its trailers.
        index_size = "rocksdb.index.size", 0;
        /// The filter.
        filter_size = "rocksdb.filter.size", 0;
        /// Keys before compression and delta encoding.
        raw_key_size = "rocksdb.raw.key.size", 0;
        /// Values before compression.
        raw_value_size = "rocksdb.raw.value.size", 0;
        /// Entries, range tombstones included.
        num_entries = "rocksdb.num.entries", 0;
        /// Data blocks. Not to be relied on: some versions of RocksDB write it wrong.
        num_data_blocks = "rocksdb.num.data.blocks", 0;
        /// Keys that were added to the filter.
        num_filter_entries = "rocksdb.num.filter_entries", 0;
        /// Tombstones of every kind.
        num_deletions = "rocksdb.deleted.keys", 0;
        /// Merge operands.
        num_merge_operands = "rocksdb.merge.operands", 0;
        /// Range tombstones.
        num_range_deletions = "rocksdb.num.range-deletions", 0;
        /// Always 0 in block-based tables: it is not the footer's format version.
        format_version = "rocksdb.format.version", 0;
        /// Always 0 in block-based tables.
        fixed_key_len = "rocksdb.fixed.key.length", 0;
        /// The column family's id; 0x7fffffff if unknown.
        column_family_id = "rocksdb.column.family.id", UNKNOWN_COLUMN_FAMILY;
        /// When the oldest of the table's data was first flushed; 0 if unknown.
        creation_time = "rocksdb.creation.time", 0;
        /// When the oldest key was written; 0 if unknown.
        oldest_key_time = "rocksdb.oldest.key.time", 0;
        /// The number under which the table was made.
        original_file_number = "rocksdb.original.file.number", 0;
    }
    unless_zero {
        /// When this file was made; 0 if unknown.
        file_creation_time = "rocksdb.file.creation.time";
        /// Partitions of a two-level index.
        index_partitions = "rocksdb.index.partitions";
        /// The top level of a two-level index.
        top_level_index_size = "rocksdb.top-level.index.size";
        /// Offset of the first byte after the data blocks.
        tail_start_offset = "rocksdb.tail.start.offset";
        /// When the newest key was written; 0 if unknown.
        newest_key_time = "rocksdb.newest.key.time";
        /// Entries that were kept for a snapshot between them and a newer entry of their key. RocksDB has no such
        /// property.
        num_kept_for_snapshots = "ironstone.kept.for.snapshots";
        /// Estimate of the data's size under a slow, strong codec.
        slow_compression_estimated_data_size = "rocksdb.sample_for_compression.slow.data.size";
        /// Estimate of the data's size under a fast, weak codec.
        fast_compression_estimated_data_size = "rocksdb.sample_for_compression.fast.data.size";
    }
}

impl Properties {
    /// The initial properties of a new table: RocksDB's values if nothing is configured.
    pub fn for_new_table() -> Self {
        Self {
            merge_operator: "nullptr".to_owned(),
            prefix_extractor_name: "nullptr".to_owned(),
            property_collectors: "[]".to_owned(),
            compression: "NoCompression".to_owned(),
            compression_options: "window_bits=-14; level=32767; strategy=0; max_dict_bytes=0; \
                zstd_max_train_bytes=0; enabled=0; max_dict_buffer_bytes=0; \
                use_zstd_dict_trainer=1; "
                .to_owned(),
            whole_key_filtering: Some(true),
            prefix_filtering: Some(false),
            ..Self::default()
        }
    }

    /// Reads the entries of a properties block, in any order.
    ///
    /// # Errors
    /// `Corruption` if a declared property has a malformed value.
    pub fn from_entries<'a>(
        entries: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Self> {
        let mut out = Self::default();
        for (name, value) in entries {
            let text = String::from_utf8_lossy(name);
            if !out.set_special(&text, value)? && !out.set_plain(&text, value)? {
                out.other.insert(name.to_vec(), value.to_vec());
            }
        }
        Ok(out)
    }

    fn set_special(&mut self, name: &str, value: &[u8]) -> Result<bool> {
        match name {
            INDEX_TYPE => self.index_type = fixed32(name, value)?,
            INDEX_KEY_IS_USER_KEY => self.index_key_is_user_key = number(name, value)? != 0,
            INDEX_VALUE_IS_DELTA_ENCODED => {
                self.index_value_is_delta_encoded = number(name, value)? != 0;
            }
            WHOLE_KEY_FILTERING => self.whole_key_filtering = Some(value != b"0"),
            PREFIX_FILTERING => self.prefix_filtering = Some(value != b"0"),
            TIMESTAMPS_PERSISTED => {
                self.user_defined_timestamps_persisted = number(name, value)? != 0;
            }
            EXTERNAL_VERSION => self.external_sst_file_version = Some(fixed32(name, value)?),
            GLOBAL_SEQNO => {
                let seqno = Decoder::new(value).u64();
                self.global_seqno = Some(seqno.ok_or_else(|| malformed(name))?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The entries of a properties block, sorted by name.
    pub fn to_entries(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut all = self.other.clone();
        let mut add = |name: &str, value: Vec<u8>| {
            all.insert(name.as_bytes().to_vec(), value);
        };
        self.plain_entries(&mut add);
        add(INDEX_TYPE, self.index_type.to_le_bytes().to_vec());
        add(
            INDEX_KEY_IS_USER_KEY,
            varint(u64::from(self.index_key_is_user_key)),
        );
        add(
            INDEX_VALUE_IS_DELTA_ENCODED,
            varint(u64::from(self.index_value_is_delta_encoded)),
        );
        let digit = |on: bool| if on { b"1".to_vec() } else { b"0".to_vec() };
        if let Some(on) = self.whole_key_filtering {
            add(WHOLE_KEY_FILTERING, digit(on));
        }
        if let Some(on) = self.prefix_filtering {
            add(PREFIX_FILTERING, digit(on));
        }
        if !self.user_defined_timestamps_persisted {
            add(TIMESTAMPS_PERSISTED, varint(0));
        }
        if let Some(version) = self.external_sst_file_version {
            add(EXTERNAL_VERSION, version.to_le_bytes().to_vec());
        }
        if let Some(seqno) = self.global_seqno {
            add(GLOBAL_SEQNO, seqno.to_le_bytes().to_vec());
        }
        all.into_iter().collect()
    }

    /// The properties that RocksDB 7.8 counts as user-collected, as they are stored: those of collectors, RocksDB's
    /// own collectors included, and those of later versions.
    pub fn user_collected(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        const OF_COLLECTORS: [&str; 11] = [
            INDEX_TYPE,
            WHOLE_KEY_FILTERING,
            PREFIX_FILTERING,
            TIMESTAMPS_PERSISTED,
            EXTERNAL_VERSION,
            GLOBAL_SEQNO,
            "rocksdb.deleted.keys",
            "rocksdb.merge.operands",
            "rocksdb.tail.start.offset",
            "rocksdb.newest.key.time",
            "rocksdb.key.largest.seqno",
        ];
        const KNOWN: [&[u8]; 1] = [SEQNO_TIME_MAPPING];
        let is_one = |(name, _): &(Vec<u8>, Vec<u8>)| {
            OF_COLLECTORS.iter().any(|n| n.as_bytes() == name)
                || (self.other.contains_key(name) && !KNOWN.contains(&name.as_slice()))
        };
        self.to_entries().into_iter().filter(is_one).collect()
    }

    /// The properties as `sst_dump --show_properties` of RocksDB 7.8 names and orders them, except
    /// the unique id, which is not a property.
    pub fn rows(&self) -> Vec<(Cow<'static, str>, String)> {
        let mut rows: Vec<(Cow<'static, str>, String)> = Vec::new();
        self.count_rows(&mut rows);
        self.name_rows(&mut rows);
        rows
    }

    fn count_rows(&self, rows: &mut Vec<(Cow<'static, str>, String)>) {
        let mean = |sum: u64| {
            let mean = match self.num_entries {
                0 => 0.0,
                n => sum as f64 / n as f64,
            };
            format!("{mean:.6}")
        };
        let mut add = |name: &'static str, value: String| rows.push((name.into(), value));
        add("# data blocks", self.num_data_blocks.to_string());
        add("# entries", self.num_entries.to_string());
        add("# deletions", self.num_deletions.to_string());
        add("# merge operands", self.num_merge_operands.to_string());
        add("# range deletions", self.num_range_deletions.to_string());
        add("raw key size", self.raw_key_size.to_string());
        add("raw average key size", mean(self.raw_key_size));
        add("raw value size", self.raw_value_size.to_string());
        add("raw average value size", mean(self.raw_value_size));
        add("data block size", self.data_size.to_string());
        let index_name = format!(
            "index block size (user-key? {}, delta-value? {})",
            u8::from(self.index_key_is_user_key),
            u8::from(self.index_value_is_delta_encoded)
        );
        rows.push((index_name.into(), self.index_size.to_string()));
        let mut add = |name: &'static str, value: u64| rows.push((name.into(), value.to_string()));
        if self.index_partitions != 0 {
            add("# index partitions", self.index_partitions);
            add("top-level index size", self.top_level_index_size);
        }
        add("filter block size", self.filter_size);
        add("# entries for filter", self.num_filter_entries);
        let table = [self.data_size, self.index_size, self.filter_size];
        let table = table.into_iter().fold(0, u64::saturating_add);
        add("(estimated) table size", table);
    }

    fn name_rows(&self, rows: &mut Vec<(Cow<'static, str>, String)>) {
        let mut add = |name: &'static str, value: String| rows.push((name.into(), value));
        let or_none = |text: &str| if text.is_empty() { "N/A" } else { text }.to_owned();
        add("filter policy name", or_none(&self.filter_policy));
        add(
            "prefix extractor name",
            or_none(&self.prefix_extractor_name),
        );
        let family = match self.column_family_id {
            UNKNOWN_COLUMN_FAMILY => "N/A".to_owned(),
            id => id.to_string(),
        };
        add("column family ID", family);
        add("column family name", or_none(&self.column_family_name));
        add("comparator name", or_none(&self.comparator));
        add("merge operator name", or_none(&self.merge_operator));
        add(
            "property collectors names",
            or_none(&self.property_collectors),
        );
        add("SST file compression algo", or_none(&self.compression));
        add(
            "SST file compression options",
            or_none(&self.compression_options),
        );
        add("creation time", self.creation_time.to_string());
        add(
            "time stamp of earliest key",
            self.oldest_key_time.to_string(),
        );
        add("file creation time", self.file_creation_time.to_string());
        let slow = self.slow_compression_estimated_data_size;
        add("slow compression estimated data size", slow.to_string());
        let fast = self.fast_compression_estimated_data_size;
        add("fast compression estimated data size", fast.to_string());
        add("DB identity", self.db_id.clone());
        add("DB session identity", self.db_session_id.clone());
        add("DB host id", self.db_host_id.clone());
        add(
            "original file number",
            self.original_file_number.to_string(),
        );
    }
}

fn malformed(name: &str) -> Error {
    Error::corruption(format!("property {name} has a malformed value"))
}

fn number(name: &str, value: &[u8]) -> Result<u64> {
    Decoder::new(value)
        .varint64()
        .ok_or_else(|| malformed(name))
}

fn fixed32(name: &str, value: &[u8]) -> Result<u32> {
    Decoder::new(value).u32().ok_or_else(|| malformed(name))
}

fn varint(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, value);
    out
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests;
