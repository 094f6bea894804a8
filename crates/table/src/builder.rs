//! Writes a table.
//!
//! ```text
//!   [data block]… [filter] [index] [range_del] [properties] [metaindex] [footer]
//!        each block: bytes (compressed if that saves an eighth) | u8 type | u32 checksum
//! ```
//!
//! The format is the newest that RocksDB 7.8 reads (format_version 5), with the properties that
//! RocksDB writes. Bytes collect in a buffer and go to the file in large writes; the file is not
//! synced, which is the caller's decision. Nothing is known to be in the file before
//! [`Builder::finish`] has returned.
//!
//! Index separators are kept as shortened user keys until the end: only then is it known whether
//! some user key stands in two blocks, which forces internal keys on the whole index.

mod index;

use std::sync::Arc;

use base::coding::put_u32;
use base::stats::{Statistics, Ticker};
use base::{Comparator, Error, Result, ValueType, key};
use io::{File, WriteSync, write_all_at};

use crate::block::BlockBuilder;
use crate::checksum;
use crate::compress::{self, CompressionType, DEFAULT_LEVEL};
use crate::filter::{self, FilterBuilder};
use crate::footer::{BLOCK_TRAILER_LEN, Footer};
use crate::handle::BlockHandle;
use crate::options::TableOptions;
use crate::props::{Properties, UNKNOWN_COLUMN_FAMILY};
use crate::unique_id::internal_unique_id;
use index::IndexBuilder;

/// Bytes that collect before they are written to the file.
const BUFFER_BYTES: usize = 1 << 20;

/// What a builder needs to know beyond the entries.
#[derive(Clone, Debug)]
pub struct BuilderOptions {
    /// The format.
    pub table: TableOptions,
    /// The order of user keys.
    pub comparator: Comparator,
    /// How blocks are compressed.
    pub compression: CompressionType,
    /// The codec's level; [`DEFAULT_LEVEL`] for its default.
    pub compression_level: i32,
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
    /// The merge operator's name.
    pub merge_operator_name: Option<String>,
    /// Where compressed blocks are counted.
    pub statistics: Option<Arc<Statistics>>,
}

impl Default for BuilderOptions {
    fn default() -> Self {
        Self {
            table: TableOptions::default(),
            comparator: Comparator::bytewise(),
            compression: CompressionType::None,
            compression_level: DEFAULT_LEVEL,
            column_family_id: UNKNOWN_COLUMN_FAMILY as u32,
            column_family_name: String::new(),
            db_id: String::new(),
            db_session_id: String::new(),
            db_host_id: String::new(),
            file_number: 0,
            creation_time: 0,
            oldest_key_time: 0,
            file_creation_time: 0,
            merge_operator_name: None,
            statistics: None,
        }
    }
}

/// What [`Builder::finish`] tells about the table.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Bytes of the file.
    pub file_size: u64,
    /// Bytes behind the data blocks.
    pub tail_size: u64,
    /// The properties that were written.
    pub properties: Properties,
    /// For the MANIFEST; all zero if the ids that it is made of were not given.
    pub unique_id: [u8; 16],
}

/// Writes one table.
#[derive(Debug)]
pub struct Builder {
    file: Arc<dyn File>,
    options: BuilderOptions,
    /// Bytes not written yet, and where they belong.
    buffer: Vec<u8>,
    buffer_at: u64,
    data: BlockBuilder,
    index: IndexBuilder,
    filter: Option<FilterBuilder>,
    /// Internal key and end of each range tombstone.
    tombstones: Vec<(Vec<u8>, Vec<u8>)>,
    last_key: Vec<u8>,
    /// The data block whose separator waits for the next key.
    pending: Option<BlockHandle>,
    properties: Properties,
    /// Scratch: a block before and after compression.
    raw: Vec<u8>,
    compressed: Vec<u8>,
    /// A write failed; nothing that follows can succeed.
    failed: bool,
}

impl Builder {
    /// A builder that writes to `file` from its start. The file must be empty.
    ///
    /// # Errors
    /// `InvalidArgument` and `NotSupported` for options with which no table can be written.
    pub fn new(file: Arc<dyn File>, options: BuilderOptions) -> Result<Self> {
        options.table.check_writable()?;
        let table = &options.table;
        let filter = if table.whole_key_filtering {
            table.filter_policy.builder()
        } else {
            None
        };
        Ok(Self {
            buffer: Vec::with_capacity(BUFFER_BYTES + BUFFER_BYTES / 8),
            buffer_at: 0,
            data: BlockBuilder::new(table.block_restart_interval as u32),
            index: IndexBuilder::new(options.comparator.clone(), table.index_shortening),
            filter,
            tombstones: Vec::new(),
            last_key: Vec::new(),
            pending: None,
            properties: Properties::for_new_table(),
            raw: Vec::new(),
            compressed: Vec::new(),
            failed: false,
            file,
            options,
        })
    }

    /// Makes it a table that is to be ingested by some database, RocksDB's `SstFileWriter` kind,
    /// version 2: its entries have sequence 0, and get the one that is assigned at ingestion.
    #[must_use]
    pub fn external(mut self) -> Self {
        self.properties.external_sst_file_version = Some(2);
        self.properties.global_seqno = Some(0);
        self
    }

    /// Adds an entry. Internal keys come in strictly ascending order.
    ///
    /// # Errors
    /// `InvalidArgument` for a key that is no internal key, is out of order, or is of 1 GiB or
    /// more, or a value of 3 GiB or more; otherwise those of writing, after which the builder is
    /// of no more use.
    pub fn add(&mut self, internal_key: &[u8], value: &[u8]) -> Result<()> {
        self.check_usable()?;
        let (user, packed) = key::split(internal_key)
            .filter(|_| internal_key.len() < 1 << 30 && value.len() < 3 << 30)
            .ok_or_else(|| self.error("a key or value whose length does not fit a table"))?;
        if self.properties.num_entries > self.properties.num_range_deletions
            && key::compare(&self.options.comparator, &self.last_key, internal_key).is_ge()
        {
            return Err(self.error("keys added out of order"));
        }
        if self.block_is_full(internal_key, value) {
            self.finish_data_block()?;
        }
        if let Some(handle) = self.pending.take() {
            self.index.add(&self.last_key, Some(internal_key), handle);
        }
        if let Some(filter) = &mut self.filter
            && (self.last_key.is_empty() || key::user_key(&self.last_key) != user)
        {
            filter.add_key(user);
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

    /// Adds a range tombstone: an internal key of type `RangeDeletion` that starts with the first
    /// user key, and the user key behind the last one. Any order.
    ///
    /// # Errors
    /// `InvalidArgument` for a key of another type.
    pub fn add_range_tombstone(&mut self, start_internal_key: &[u8], end: &[u8]) -> Result<()> {
        self.check_usable()?;
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

    /// About how long the file would be if no more was added, in bytes.
    pub fn file_size_estimate(&self) -> u64 {
        let filter = self
            .filter
            .as_ref()
            .map_or(0, FilterBuilder::estimated_size);
        let unfinished = if self.data.is_empty() {
            0
        } else {
            self.data.size()
        };
        self.offset() + (unfinished + filter + self.index.size_estimate()) as u64
    }

    /// Writes what is left. The file is complete, and not synced.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(mut self) -> Result<Finished> {
        self.check_usable()?;
        self.finish_data_block()?;
        if let Some(handle) = self.pending.take() {
            self.index.add(&self.last_key, None, handle);
        }
        let tail_at = self.offset();
        self.properties.tail_start_offset = tail_at;

        let mut metaindex = Vec::new();
        if let Some(handle) = self.write_filter()? {
            metaindex.push((format!("fullfilter.{}", filter::BUILTIN_NAME), handle));
        }
        let index = self.write_index()?;
        if let Some(handle) = self.write_tombstones()? {
            metaindex.push(("rocksdb.range_del".to_owned(), handle));
        }
        let handle = self.write_properties()?;
        metaindex.push(("rocksdb.properties".to_owned(), handle));
        self.write_end(metaindex, index)?;
        self.flush_buffer()?;

        let file_size = self.offset();
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
        let limit = self.options.table.block_size;
        let size = self.data.size() as u64;
        if size >= limit {
            return true;
        }
        let deviation = self.options.table.block_size_deviation as u64;
        let full_enough = (limit * (100 - deviation)).div_ceil(100);
        deviation != 0 && size > full_enough && self.data.size_after(key, value) as u64 > limit
    }

    fn finish_data_block(&mut self) -> Result<()> {
        if self.data.is_empty() {
            return Ok(());
        }
        let mut raw = std::mem::take(&mut self.raw);
        self.data.finish_into(&mut raw);
        let handle = self.write_block(&raw, true);
        self.raw = raw;
        self.pending = Some(handle?);
        self.properties.num_data_blocks += 1;
        self.properties.data_size = self.offset();
        Ok(())
    }

    fn write_filter(&mut self) -> Result<Option<BlockHandle>> {
        let Some(mut filter) = self.filter.take() else {
            return Ok(None);
        };
        if filter.num_added() == 0 {
            return Ok(None);
        }
        self.properties.num_filter_entries = filter.num_added() as u64;
        let bytes = filter.finish();
        self.properties.filter_size = bytes.len() as u64;
        let policy = self.options.table.filter_policy.property_name();
        self.properties.filter_policy = policy.to_owned();
        self.write_block(&bytes, false).map(Some)
    }

    fn write_index(&mut self) -> Result<BlockHandle> {
        let table = &self.options.table;
        let built = self.index.finish(
            table.format_version,
            table.index_block_restart_interval as u32,
        );
        let compress = table.enable_index_compression;
        let handle = self.write_block(&built.bytes, compress)?;
        let p = &mut self.properties;
        p.index_size = handle.size + BLOCK_TRAILER_LEN;
        p.index_key_is_user_key = built.user_keys;
        p.index_value_is_delta_encoded = built.delta;
        Ok(handle)
    }

    fn write_tombstones(&mut self) -> Result<Option<BlockHandle>> {
        let mut all = std::mem::take(&mut self.tombstones);
        if all.is_empty() {
            return Ok(None);
        }
        all.sort_by(|a, b| {
            key::compare(&self.options.comparator, &a.0, &b.0).then_with(|| a.1.cmp(&b.1))
        });
        let mut block = BlockBuilder::new(1);
        for (start, end) in &all {
            block.add(start, end);
        }
        self.write_block(&block.finish(), false).map(Some)
    }

    fn write_properties(&mut self) -> Result<BlockHandle> {
        let o = &self.options;
        let p = &mut self.properties;
        o.comparator.name().clone_into(&mut p.comparator);
        if let Some(name) = &o.merge_operator_name {
            p.merge_operator.clone_from(name);
        }
        o.compression.property_name().clone_into(&mut p.compression);
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
        self.write_block(&block.finish(), false)
    }

    /// Metaindex and footer.
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
        let metaindex = self.write_block(&block.finish(), false)?;
        let footer = Footer {
            checksum_type: self.options.table.checksum,
            metaindex,
            index: Some(index),
            format_version: self.options.table.format_version,
            base_context: 0,
        };
        self.buffer.extend_from_slice(&footer.encode());
        Ok(())
    }

    /// Appends a block and its trailer.
    fn write_block(&mut self, raw: &[u8], compress: bool) -> Result<BlockHandle> {
        let kind = self.options.compression;
        let mut compressed = std::mem::take(&mut self.compressed);
        compressed.clear();
        let is_compressed =
            compress && kind != CompressionType::None && self.compress(raw, &mut compressed)?;
        if is_compressed && let Some(s) = &self.options.statistics {
            s.add(Ticker::NumberBlockCompressed, 1);
        }
        let (stored, kind): (&[u8], _) = if is_compressed {
            (&compressed, kind)
        } else {
            (raw, CompressionType::None)
        };
        let handle = BlockHandle {
            offset: self.offset(),
            size: stored.len() as u64,
        };
        let type_byte = kind.to_u8();
        let sum = checksum::block_checksum(self.options.table.checksum, stored, type_byte);
        self.buffer.extend_from_slice(stored);
        self.buffer.push(type_byte);
        put_u32(&mut self.buffer, sum);
        self.compressed = compressed;
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush_buffer()?;
        }
        Ok(handle)
    }

    fn compress(&self, raw: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let kind = self.options.compression;
        let level = self.options.compression_level;
        let worth_it = compress::compress(kind, level, &[], raw, out)?;
        if worth_it && self.options.table.verify_compression {
            let version = self.options.table.format_version;
            let back = compress::decompress(kind, out, version, &[])?;
            if back != raw {
                return Err(Error::corruption(
                    "a compressed block does not decompress to what it was made of",
                )
                .file(self.file.path())
                .offset(self.offset()));
            }
        }
        Ok(worth_it)
    }

    /// Where the next byte goes.
    fn offset(&self) -> u64 {
        self.buffer_at + self.buffer.len() as u64
    }

    fn flush_buffer(&mut self) -> Result<()> {
        let written = write_all_at(&*self.file, &self.buffer, self.buffer_at, WriteSync::None);
        self.failed |= written.is_err();
        written?;
        self.buffer_at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn check_usable(&self) -> Result<()> {
        if self.failed {
            return Err(
                Error::aborted("an earlier write to the table failed").file(self.file.path())
            );
        }
        Ok(())
    }

    #[cold]
    fn error(&self, what: &str) -> Error {
        Error::invalid_argument(what).file(self.file.path())
    }
}
