//! Writes a table.
//!
//! ```text
//!   [data block]… [filter]… [hash index] [index]… [dictionary] [range_del] [properties]
//!   [metaindex] [footer]
//!        each block: bytes (compressed if that saves an eighth) | u8 type | u32 checksum
//! ```
//!
//! By default the format is the newest that RocksDB 7.8 reads (format_version 5), with the
//! properties that RocksDB writes. Bytes are buffered and written to the file in large writes. The
//! builder does not sync the file; that is up to the caller. The file is not complete before
//! [`Builder::finish`] has returned.
//!
//! Index separators are kept as shortened internal keys until the end: only then is it known whether
//! some user key spans two blocks, in which case the whole index needs internal keys.

mod blocks;
mod filters;
mod index;
mod meter;
mod sink;

use std::cmp::Ordering;
use std::sync::Arc;

use base::clock::Clock;
use base::stats::{Activity, Statistics};
use base::{Comparator, Error, Result, SequenceNumber, SliceTransform, ValueType, key};
use io::File;

use crate::block::BlockBuilder;
use crate::compress::{CompressionSettings, CompressionType};
use crate::filter;
use crate::footer::{BLOCK_TRAILER_LEN, Footer};
use crate::handle::BlockHandle;
use crate::options::{DataBlockIndexType, FlushBlockPolicy, IndexType, TableOptions};
use crate::props::{Properties, UNKNOWN_COLUMN_FAMILY};
use crate::unique_id::internal_unique_id;
use crate::xxph3::hash64;
use blocks::{Codec, DataBlocks, Target};
pub use blocks::{Compressors, Prepopulate};
use filters::TableFilter;
use index::{IndexBlock, IndexBuilder};
use meter::WriteMeter;
use sink::Sink;

/// Settings of a [`Builder`], and facts about the table that it writes to the properties.
#[derive(Clone, Debug)]
pub struct BuilderOptions {
    /// The format.
    pub table: TableOptions,
    /// The order of user keys.
    pub comparator: Comparator,
    /// How blocks are compressed.
    pub compression: CompressionType,
    /// The codec's settings.
    pub compression_opts: CompressionSettings,
    /// Threads that compress; with `None`, the caller's thread compresses, whatever the settings say.
    pub compressors: Option<Arc<dyn Compressors>>,
    /// The target size of the table in bytes: at most this much data is held for a dictionary. 0 is
    /// unknown.
    pub target_file_size: u64,
    /// The level for which the table is made, -1 for a flush.
    pub level: i32,
    /// Extracts the prefix of a key, for filters and the hash index.
    pub prefix_extractor: Option<SliceTransform>,
    /// The block cache into which the data blocks are put as well.
    pub prepopulate: Option<Prepopulate>,
    /// The column family's id.
    pub column_family_id: u32,
    /// The column family's name.
    pub column_family_name: String,
    /// The database's id, for the unique id.
    pub db_id: String,
    /// The session's id, for the unique id.
    pub db_session_id: String,
    /// The machine's name.
    pub db_host_id: String,
    /// The file's number, for the unique id.
    pub file_number: u64,
    /// When the oldest of the data was flushed, in seconds since 1970; 0 if unknown.
    pub creation_time: u64,
    /// When the oldest key was written, in seconds since 1970; 0 if unknown.
    pub oldest_key_time: u64,
    /// Now, in seconds since 1970; 0 if unknown.
    pub file_creation_time: u64,
    /// The snapshots, in ascending order: what entries are kept for.
    pub snapshots: Vec<SequenceNumber>,
    /// The merge operator's name.
    pub merge_operator_name: Option<String>,
    /// Statistics to which blocks and writes are added.
    pub statistics: Option<Arc<Statistics>>,
    /// The clock that measures them; without it, times are not recorded.
    pub clock: Option<Arc<dyn Clock>>,
    /// The purpose of writing the table.
    pub activity: Activity,
}

impl Default for BuilderOptions {
    fn default() -> Self {
        Self {
            table: TableOptions::default(),
            comparator: Comparator::bytewise(),
            compression: CompressionType::None,
            compression_opts: CompressionSettings::default(),
            compressors: None,
            target_file_size: 0,
            level: i32::MAX,
            prefix_extractor: None,
            prepopulate: None,
            column_family_id: UNKNOWN_COLUMN_FAMILY as u32,
            column_family_name: String::new(),
            db_id: String::new(),
            db_session_id: String::new(),
            db_host_id: String::new(),
            file_number: 0,
            creation_time: 0,
            oldest_key_time: 0,
            file_creation_time: 0,
            snapshots: Vec::new(),
            merge_operator_name: None,
            statistics: None,
            clock: None,
            activity: Activity::Unknown,
        }
    }
}

/// The result of [`Builder::finish`].
#[derive(Clone, Debug)]
pub struct Finished {
    /// Size of the file in bytes.
    pub file_size: u64,
    /// Bytes after the data blocks.
    pub tail_size: u64,
    /// The properties that were written.
    pub properties: Properties,
    /// The unique id, for the MANIFEST; all zero if the ids from which it is made were not given.
    pub unique_id: [u8; 16],
}

/// Writes one table.
#[derive(Debug)]
pub struct Builder {
    options: BuilderOptions,
    sink: Sink,
    /// The current data block.
    data: BlockBuilder,
    /// The finished data blocks.
    blocks: DataBlocks,
    index: IndexBuilder,
    filter: Option<TableFilter>,
    /// Internal key and end of each range tombstone.
    tombstones: Vec<(Vec<u8>, Vec<u8>)>,
    last_key: Vec<u8>,
    properties: Properties,
    /// Scratch: a block before compression.
    raw: Vec<u8>,
}

impl Builder {
    /// A builder that writes to `file` from its start. The file must be empty.
    ///
    /// # Errors
    /// `InvalidArgument` and `NotSupported` for options with which no table can be written.
    pub fn new(file: Arc<dyn File>, options: BuilderOptions) -> Result<Self> {
        let table = &options.table;
        let prefix_extractor = options.prefix_extractor.as_ref();
        table.check_writable()?;
        // Aligned blocks may be compressed here; callers reject that combination before.
        table.check_together(false, prefix_extractor.is_some())?;
        let meter = WriteMeter {
            clock: options.clock.clone(),
            statistics: options.statistics.clone(),
            activity: options.activity,
        };
        let codec = Codec {
            kind: options.compression,
            settings: options.compression_opts.clone(),
            verify: table.verify_compression,
            format_version: table.format_version,
            checksum: table.checksum,
            meter: meter.clone(),
        };
        let mut data = BlockBuilder::new(table.block_restart_interval as u32);
        // Keys that are equal for a custom comparator, but differ in bytes, would hash to different buckets.
        if table.data_block_index_type == DataBlockIndexType::BinaryAndHash
            && Comparator::by_name(options.comparator.name()).is_some()
        {
            data = data.hash_index(table.data_block_hash_table_util_ratio.clamp(0.01, 100.0));
        }
        Ok(Self {
            sink: Sink::new(file, table.checksum, base_context(&options), meter),
            data,
            blocks: DataBlocks::new(codec, &options),
            index: IndexBuilder::new(options.comparator.clone(), table, prefix_extractor),
            filter: TableFilter::new(table, options.level, prefix_extractor),
            tombstones: Vec::new(),
            last_key: Vec::new(),
            properties: Properties::for_new_table(),
            raw: Vec::new(),
            options,
        })
    }

    /// Makes this a table for ingestion, like one of RocksDB's `SstFileWriter`, version 2: its entries have
    /// sequence number 0, and get the one that is assigned at ingestion.
    #[must_use]
    pub fn external(mut self) -> Self {
        self.properties.external_sst_file_version = Some(2);
        self.properties.global_seqno = Some(0);
        self
    }

    /// Adds an entry. Internal keys must be added in strictly ascending order.
    ///
    /// # Errors
    /// `InvalidArgument` for a key that is no internal key, is out of order, or has 1 GiB or more, or
    /// for a value of 3 GiB or more; otherwise those of writing, after which the builder is unusable.
    pub fn add(&mut self, internal_key: &[u8], value: &[u8]) -> Result<()> {
        self.sink.check_usable()?;
        let (user, packed) = key::split(internal_key)
            .filter(|_| internal_key.len() < 1 << 30 && value.len() < 3 << 30)
            .ok_or_else(|| self.error("a key or value whose length does not fit a table"))?;
        let is_first = self.properties.num_entries == self.properties.num_range_deletions;
        let repeats = !is_first && self.repeats_key(user, packed)?;
        if self.block_is_full(internal_key, value) {
            self.finish_data_block(Some(internal_key))?;
        }
        self.index.key(internal_key, self.data.is_empty());
        if let Some(filter) = &mut self.filter {
            filter.add(user, repeats && key::user_key(&self.last_key) == user);
        }
        self.data.add(internal_key, value);
        self.last_key.clear();
        self.last_key.extend_from_slice(internal_key);

        let p = &mut self.properties;
        p.num_entries += 1;
        p.raw_key_size += internal_key.len() as u64;
        p.raw_value_size += value.len() as u64;
        match ValueType::from_u8(packed as u8) {
            Some(
                ValueType::Deletion | ValueType::SingleDeletion | ValueType::DeletionWithTimestamp,
            ) => p.num_deletions += 1,
            Some(ValueType::Merge) => p.num_merge_operands += 1,
            _ => {}
        }
        Ok(())
    }

    /// Whether the last entry is a newer one of this key. Errors: this entry belongs before it.
    #[inline]
    fn repeats_key(&mut self, user: &[u8], packed: u64) -> Result<bool> {
        let (last_user, last_packed) = key::split(&self.last_key).unwrap_or_default();
        match self.options.comparator.compare(last_user, user) {
            Ordering::Less => Ok(false),
            Ordering::Equal if last_packed > packed => {
                let snapshots = &self.options.snapshots;
                let older = |packed: u64| snapshots.partition_point(|s| s.0 < packed >> 8);
                let kept = older(packed) < older(last_packed);
                self.properties.num_kept_for_snapshots += u64::from(kept);
                Ok(true)
            }
            _ => Err(self.error("keys added out of order")),
        }
    }

    /// Adds a range tombstone: an internal key of type `RangeDeletion` with the first user key, and the
    /// first user key after the range. Tombstones may be added in any order.
    ///
    /// # Errors
    /// `InvalidArgument` for a key of another type.
    pub fn add_range_tombstone(&mut self, start_internal_key: &[u8], end: &[u8]) -> Result<()> {
        self.sink.check_usable()?;
        key::parse(start_internal_key)
            .filter(|p| p.value_type == ValueType::RangeDeletion)
            .ok_or_else(|| self.error("a range tombstone of another type"))?;
        let p = &mut self.properties;
        p.num_entries += 1;
        p.num_deletions += 1;
        p.num_range_deletions += 1;
        p.raw_key_size += start_internal_key.len() as u64;
        p.raw_value_size += end.len() as u64;
        self.tombstones
            .push((start_internal_key.to_vec(), end.to_vec()));
        Ok(())
    }

    /// Number of entries added, range tombstones included.
    pub fn num_entries(&self) -> u64 {
        self.properties.num_entries
    }

    /// Number of bytes that have been written to the file.
    pub fn written(&self) -> u64 {
        self.sink.written()
    }

    /// Estimated size of the file in bytes if nothing more is added.
    pub fn file_size_estimate(&self) -> u64 {
        let filter = self.filter.as_ref().map_or(0, TableFilter::estimated_size);
        let unfinished = if self.data.is_empty() {
            0
        } else {
            self.data.size()
        };
        let tail = (unfinished + filter + self.index.size_estimate()) as u64;
        self.sink.offset() + self.blocks.unwritten() + tail
    }

    /// Writes the rest of the table. The file is then complete, but not synced.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(mut self) -> Result<Finished> {
        self.sink.check_usable()?;
        self.finish_data_block(None)?;
        self.blocks.finish(&mut Target {
            sink: &mut self.sink,
            index: &mut self.index,
        })?;
        let tail_at = self.sink.offset();
        self.properties.data_size = tail_at;
        self.properties.tail_start_offset = tail_at;

        let mut metaindex = Vec::new();
        self.write_filter(&mut metaindex)?;
        let index = self.write_index(&mut metaindex)?;
        self.write_dictionary(&mut metaindex)?;
        self.write_tombstones(&mut metaindex)?;
        self.write_properties(&mut metaindex)?;
        self.write_end(metaindex, index)?;
        self.sink.flush()?;
        if let Some(s) = &self.options.statistics {
            self.sink.compression.tell(s);
        }

        let file_size = self.sink.offset();
        let p = self.properties;
        let unique_id = internal_unique_id(&p.db_id, &p.db_session_id, p.original_file_number);
        Ok(Finished {
            file_size,
            tail_size: file_size - tail_at,
            unique_id: unique_id.unwrap_or_default(),
            properties: p,
        })
    }

    /// True if the data block should end before this entry, by RocksDB's rule.
    fn block_is_full(&self, key: &[u8], value: &[u8]) -> bool {
        if self.data.is_empty() {
            return false;
        }
        let table = &self.options.table;
        let limit = table.block_size;
        let size = self.data.size() as u64;
        if size >= limit || table.flush_block_policy_factory == FlushBlockPolicy::EveryKey {
            return true;
        }
        let deviation = table.block_size_deviation as u64;
        if deviation == 0 {
            return false;
        }
        if table.block_align {
            let with_entry = self.data.size_after(key, value) as u64;
            return with_entry + BLOCK_TRAILER_LEN > limit;
        }
        let full_enough = (limit * (100 - deviation)).div_ceil(100);
        size > full_enough && self.data.size_after(key, value) as u64 > limit
    }

    /// Ends the current data block; `next` is the internal key that follows, if there is one.
    fn finish_data_block(&mut self, next: Option<&[u8]>) -> Result<()> {
        if self.data.is_empty() {
            return Ok(());
        }
        self.index.block_ends(&self.last_key, next);
        if let (Some(filter), Some(next)) = (&mut self.filter, next) {
            filter.block_ends(self.index.blocks() - 1, key::user_key(next))?;
        }
        self.properties.num_data_blocks += 1;
        self.data.finish_into(&mut self.raw);
        self.blocks.push(
            &mut self.raw,
            &mut Target {
                sink: &mut self.sink,
                index: &mut self.index,
            },
        )
    }

    fn write_filter(&mut self, metaindex: &mut Vec<(String, BlockHandle)>) -> Result<()> {
        let Some(filter) = self.filter.take() else {
            return Ok(());
        };
        let partitioned = filter.is_partitioned();
        let (parts, entries) = filter.finish(self.index.blocks())?;
        let encoding = self.index.encoding(&self.options.table);
        let mut top = IndexBlock::new(encoding);
        let mut handle = None;
        for part in &parts {
            let written = self.sink.block(&part.bytes, 0)?;
            top.add(
                self.index.separator(part.last_block, encoding),
                written,
                None,
            );
            self.properties.filter_size += part.bytes.len() as u64;
            handle = Some(written);
        }
        let Some(mut handle) = handle else {
            return Ok(());
        };
        let mut kind = "fullfilter";
        if partitioned {
            kind = "partitionedfilter";
            handle = self.sink.block(&top.finish().bytes, 0)?;
            self.properties.filter_size += handle.size;
        }
        self.properties.num_filter_entries = entries;
        let policy = self.options.table.filter_policy.property_name();
        policy.clone_into(&mut self.properties.filter_policy);
        metaindex.push((format!("{kind}.{}", filter::BUILTIN_NAME), handle));
        Ok(())
    }

    fn write_index(&mut self, metaindex: &mut Vec<(String, BlockHandle)>) -> Result<BlockHandle> {
        let table = &self.options.table;
        let encoding = self.index.encoding(table);
        let two_level = table.index_type == IndexType::TwoLevel;
        let part_bytes = if two_level {
            table.metadata_block_size as usize
        } else {
            usize::MAX
        };
        if let Some((prefixes, metadata)) = self.index.finish_prefixes() {
            for (name, bytes) in [("prefixes", prefixes), ("metadata", metadata)] {
                let handle = self.write_index_block(&bytes)?;
                metaindex.push((format!("rocksdb.hashindex.{name}"), handle));
            }
        }
        let mut top = IndexBlock::new(encoding);
        let mut handle = BlockHandle::default();
        let parts = self.index.finish(encoding, part_bytes);
        for part in &parts {
            handle = self.write_index_block(&part.bytes)?;
            self.properties.index_size += handle.size + BLOCK_TRAILER_LEN;
            top.add(&part.separator, handle, None);
        }
        if two_level {
            handle = self.write_index_block(&top.finish().bytes)?;
            let p = &mut self.properties;
            p.index_partitions = parts.len() as u64;
            p.top_level_index_size = handle.size + BLOCK_TRAILER_LEN;
            p.index_size += p.top_level_index_size;
        }
        let p = &mut self.properties;
        p.index_type = match self.options.table.index_type {
            IndexType::BinarySearch => 0,
            IndexType::Hash => 1,
            IndexType::TwoLevel => 2,
            IndexType::BinarySearchWithFirstKey => 3,
        };
        p.index_key_is_user_key = encoding.user_keys;
        p.index_value_is_delta_encoded = encoding.delta;
        if self.options.table.format_version >= 6 {
            metaindex.push(("rocksdb.index".to_owned(), handle));
        }
        Ok(handle)
    }

    /// Appends a block that is compressed like data blocks, but without their dictionary.
    fn write_index_block(&mut self, raw: &[u8]) -> Result<BlockHandle> {
        let codec = self.blocks.codec();
        let mut compressed = Vec::new();
        let counts = &mut self.sink.compression;
        if !self.options.table.enable_index_compression {
            counts.add(CompressionType::None, raw.len(), None);
        } else if codec.compress(&[], raw, &mut compressed)? {
            counts.add(codec.kind, raw.len(), Some(compressed.len()));
            return self.sink.block(&compressed, codec.kind.to_u8());
        } else {
            counts.add(codec.kind, raw.len(), None);
        }
        self.sink.block(raw, 0)
    }

    fn write_dictionary(&mut self, metaindex: &mut Vec<(String, BlockHandle)>) -> Result<()> {
        let dictionary = self.blocks.dictionary();
        if !dictionary.is_empty() {
            let handle = self.sink.block(dictionary, 0)?;
            metaindex.push(("rocksdb.compression_dict".to_owned(), handle));
        }
        Ok(())
    }

    fn write_tombstones(&mut self, metaindex: &mut Vec<(String, BlockHandle)>) -> Result<()> {
        let mut all = std::mem::take(&mut self.tombstones);
        if all.is_empty() {
            return Ok(());
        }
        all.sort_by(|a, b| {
            key::compare(&self.options.comparator, &a.0, &b.0).then_with(|| a.1.cmp(&b.1))
        });
        let mut block = BlockBuilder::new(1);
        for (start, end) in &all {
            block.add(start, end);
        }
        let handle = self.sink.block(&block.finish(), 0)?;
        metaindex.push(("rocksdb.range_del".to_owned(), handle));
        Ok(())
    }

    fn write_properties(&mut self, metaindex: &mut Vec<(String, BlockHandle)>) -> Result<()> {
        let o = &self.options;
        let p = &mut self.properties;
        o.comparator.name().clone_into(&mut p.comparator);
        if let Some(name) = &o.merge_operator_name {
            p.merge_operator.clone_from(name);
        }
        if let Some(extractor) = &o.prefix_extractor {
            p.prefix_extractor_name = extractor.name();
            p.prefix_filtering = Some(true);
        }
        p.compression = compression_name(o, self.sink.compression.count() > 0);
        p.compression_options = o.compression_opts.property_text();
        p.column_family_id = u64::from(o.column_family_id);
        p.column_family_name.clone_from(&o.column_family_name);
        p.db_id.clone_from(&o.db_id);
        p.db_session_id.clone_from(&o.db_session_id);
        p.db_host_id.clone_from(&o.db_host_id);
        p.original_file_number = o.file_number;
        p.creation_time = o.creation_time;
        p.oldest_key_time = o.oldest_key_time;
        p.file_creation_time = o.file_creation_time;
        p.whole_key_filtering = Some(o.table.whole_key_filtering);
        let mut block = BlockBuilder::new(u32::MAX);
        for (name, value) in p.to_entries() {
            block.add(&name, &value);
        }
        let handle = self.sink.block(&block.finish(), 0)?;
        metaindex.push(("rocksdb.properties".to_owned(), handle));
        Ok(())
    }

    /// Writes metaindex and footer.
    fn write_end(
        &mut self,
        mut metaindex: Vec<(String, BlockHandle)>,
        index: BlockHandle,
    ) -> Result<()> {
        metaindex.sort_by(|a, b| a.0.cmp(&b.0));
        let mut block = BlockBuilder::new(1);
        for (name, handle) in &metaindex {
            let mut value = Vec::new();
            handle.encode(&mut value);
            block.add(name.as_bytes(), &value);
        }
        let metaindex = self.sink.block(&block.finish(), 0)?;
        let footer = Footer {
            checksum_type: self.options.table.checksum,
            metaindex,
            index: Some(index),
            format_version: self.options.table.format_version,
            base_context: base_context(&self.options),
        };
        let bytes = footer.encode(self.sink.offset());
        self.sink.raw(&bytes);
        Ok(())
    }

    #[cold]
    fn error(&self, what: &str) -> Error {
        Error::invalid_argument(what).file(self.sink.path())
    }
}

/// The base context for checksums, a number that is probably unique to the table; 0 for none, before
/// format version 6.
fn base_context(o: &BuilderOptions) -> u32 {
    if o.table.format_version < 6 {
        return 0;
    }
    let own = format!("{}/{}/{}", o.db_id, o.db_session_id, o.file_number);
    (hash64(own.as_bytes()) as u32).max(1)
}

/// The property `rocksdb.compression`: the codec; from format version 7 on, the compression manager and
/// the codecs that blocks use.
fn compression_name(o: &BuilderOptions, any_compressed: bool) -> String {
    if o.table.format_version < 7 {
        return o.compression.property_name().to_owned();
    }
    match (o.compression, any_compressed) {
        (CompressionType::None, _) => ";;".to_owned(),
        (_, false) => "BuiltinV2;;".to_owned(),
        (kind, true) => format!("BuiltinV2;{:02X};", kind.to_u8()),
    }
}
