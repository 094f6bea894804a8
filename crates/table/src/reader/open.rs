//! Opens a table: reads the footer and everything that is decoded once.
#![deny(clippy::indexing_slicing)]

use std::sync::Arc;

use base::coding::Decoder;
use base::perf::{self, PerfCounter};
use base::{Comparator, Error, Result, SliceTransform};
use io::{File, LargeVec};

use super::fetch::{Fetch, Role};
use super::filters::{FilterAt, Filters, Parts};
use super::on_demand::{self, Meta, Metadata, OnDemand, Pinning, TableIndex};
use super::scans::Scans;
use super::{Reader, ReaderOptions};
use crate::block::{Block, Cursor, Keys, keys_bytes_max};
use crate::cache::{BlockCache, Reservation};
use crate::filter::{self, Filter};
use crate::footer::{self, Footer};
use crate::handle::BlockHandle;
use crate::index::{self, Encoding, Index, Root};
use crate::props::Properties;
use crate::unique_id::internal_unique_id;

pub(super) const PROPERTIES: &str = "rocksdb.properties";
pub(super) const RANGE_DEL: &str = "rocksdb.range_del";
const INDEX: &str = "rocksdb.index";
const DICTIONARY: &str = "rocksdb.compression_dict";
const GLOBAL_SEQNO: &[u8] = b"rocksdb.external_sst_file.global_seqno";

/// The suffix of the names of comparators whose user keys end with an 8-byte timestamp.
const TIMESTAMP_SUFFIX: &str = ".u64ts";

const INDEX_TWO_LEVEL: u32 = 2;
const INDEX_FIRST_KEY: u32 = 3;

/// Bytes that are read in one read from the end of the file: the meta blocks of most small tables.
const TAIL_BYTES: u64 = 64 << 10;

/// Opens a table; see [`Reader::open`].
pub(super) fn open(file: Arc<dyn File>, file_size: u64, options: ReaderOptions) -> Result<Reader> {
    let tail_len = file_size.min(TAIL_BYTES);
    let tail_at = file_size - tail_len;
    let mut tail = vec![0; tail_len as usize];
    options
        .meter
        .read(&*file, &mut tail, tail_at, options.activity)?;
    let footer = Footer::decode(&tail, file_size)?;
    let counted = (options.meter.clone(), options.activity);
    let mut fetch = Fetch::new(file, &footer, file_size - footer::LEN as u64, counted);
    fetch.set_tail(tail, tail_at);

    let metaindex = read_metaindex(&fetch, footer.metaindex)?;
    let (properties, global_seqno_at) = match find(&metaindex, PROPERTIES) {
        Some(handle) => read_properties(&fetch, handle)?,
        None => return Err(Error::corruption("the table has no properties")),
    };
    check(&properties, &options)?;
    let keys = keys_of(&properties, options.largest_seqno)?;
    let mut meta_blocks = known_blocks(&metaindex);
    meta_blocks.push(footer.metaindex);
    if let Some(handle) = find(&metaindex, DICTIONARY) {
        perf::count(PerfCounter::CompressionDictBlockReadCount, 1);
        fetch.dictionary = fetch.meta_block(handle)?.to_vec();
    }
    let index_handle = footer
        .index
        .or_else(|| find(&metaindex, INDEX))
        .ok_or_else(|| Error::corruption("the table has no index"))?;
    if footer.index.is_some() {
        meta_blocks.push(index_handle);
    }
    let encoding = Encoding {
        user_keys: properties.index_key_is_user_key,
        delta: properties.index_value_is_delta_encoded,
        first_keys: properties.index_type == INDEX_FIRST_KEY,
    };
    let mut opening = Opening {
        fetch: &fetch,
        options: &options,
        encoding,
        root: Root {
            handle: index_handle,
            is_partitioned: properties.index_type == INDEX_TWO_LEVEL,
        },
        metaindex: &metaindex,
        meta_blocks,
        metadata_left: options.metadata_bytes_max,
    };
    let cache = options.block_cache.as_ref();
    let cache_id = options
        .cache_id
        .unwrap_or_else(|| cache.map_or(0, |c| c.new_id()));
    let (index, filters, charge) = opening.metadata(&properties, cache_id)?;
    let meta_blocks = opening.meta_blocks;
    fetch.drop_tail();
    Ok(Reader {
        cache_id,
        scans: Scans::default(),
        fetch,
        footer,
        file_size,
        metaindex,
        properties: Arc::new(properties),
        global_seqno_at,
        keys,
        index,
        filters,
        meta_blocks,
        _charge: charge,
        options,
    })
}

/// The handle of the meta block with this name.
pub(super) fn find(metaindex: &[(String, BlockHandle)], name: &str) -> Option<BlockHandle> {
    metaindex.iter().find(|(n, _)| n == name).map(|(_, h)| *h)
}

/// Calls `visit` with each entry of a block of plain keys.
fn for_each(block: &Block, mut visit: impl FnMut(&Cursor) -> Result<()>) -> Result<()> {
    let mut cursor = Cursor::new(Keys::Plain);
    let mut more = cursor.seek_to_first(block)?;
    let mut left = block.keys_bytes_max();
    while more {
        left = left
            .checked_sub(cursor.key().len())
            .ok_or_else(|| Error::corruption("names share more than is believable"))?;
        visit(&cursor)?;
        more = cursor.next(block)?;
    }
    Ok(())
}

fn read_metaindex(fetch: &Fetch, handle: BlockHandle) -> Result<Vec<(String, BlockHandle)>> {
    let mut out = Vec::new();
    let bytes = fetch.meta_block(handle)?;
    let mut walk = || {
        let block = Block::new(&bytes)?;
        for_each(&block, |cursor| {
            let target = BlockHandle::decode(&mut Decoder::new(cursor.value(&block)))
                .ok_or_else(|| Error::corruption("a handle of the metaindex is cut short"))?;
            out.push((String::from_utf8_lossy(cursor.key()).into_owned(), target));
            Ok(())
        })
    };
    walk().map_err(|e| fetch.locate(e, handle))?;
    Ok(out)
}

/// Every block that the metaindex names and that has a checksum to verify, except the properties.
fn known_blocks(metaindex: &[(String, BlockHandle)]) -> Vec<BlockHandle> {
    metaindex
        .iter()
        .filter(|(name, _)| name != PROPERTIES && !name.starts_with("rocksdb.user_defined_index"))
        .map(|(_, handle)| *handle)
        .collect()
}

/// Reads the properties, and finds the file offset of the global sequence number.
///
/// RocksDB may have written a global sequence number into the block of an ingested file after the
/// checksum was computed. So if the checksum is wrong, it is verified again with those 8 bytes zero.
pub(super) fn read_properties(
    fetch: &Fetch,
    handle: BlockHandle,
) -> Result<(Properties, Option<u64>)> {
    let read = || {
        let stored = fetch.stored(handle)?;
        let checked = fetch.decode(&stored, handle, Role::Meta, true);
        let damaged = checked.is_err();
        let bytes = match checked {
            Ok(bytes) => bytes,
            Err(e) if !e.is_corruption() => return Err(e),
            Err(_) => fetch.decode(&stored, handle, Role::Meta, false)?,
        };
        let block = Block::new(&bytes)?;
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut seqno_at = None;
        for_each(&block, |cursor| {
            if cursor.key() == GLOBAL_SEQNO {
                seqno_at = Some(cursor.value_at(&block));
            }
            entries.push((cursor.key().to_vec(), cursor.value(&block).to_vec()));
            Ok(())
        })?;
        if damaged {
            verify_without_seqno(fetch, handle, LargeVec::from(&*stored), seqno_at)?;
        }
        let pairs = entries.iter().map(|(k, v)| (k.as_slice(), v.as_slice()));
        let properties = Properties::from_entries(pairs)?;
        let plain = stored.get(handle.size as usize) == Some(&0);
        let seqno_at = seqno_at.filter(|_| plain);
        Ok((properties, seqno_at.map(|at| handle.offset + at as u64)))
    };
    read().map_err(|e| fetch.locate(e, handle))
}

fn verify_without_seqno(
    fetch: &Fetch,
    handle: BlockHandle,
    mut stored: LargeVec<u8>,
    seqno_at: Option<usize>,
) -> Result<()> {
    let compressed = stored.get(handle.size as usize).is_none_or(|&b| b != 0);
    if let Some(at) = seqno_at
        && !compressed
        && let Some(field) = stored.get_mut(at..at + 8)
    {
        field.fill(0);
    }
    fetch.decode(&stored, handle, Role::Meta, true).map(|_| ())
}

/// Refuses tables that cannot be read correctly, or are not the expected one.
fn check(properties: &Properties, options: &ReaderOptions) -> Result<()> {
    let (ours, theirs) = (options.comparator.name(), properties.comparator.as_str());
    if !theirs.is_empty() && ours != theirs {
        return Err(Error::invalid_argument(format!(
            "the table was written with comparator {theirs}, and is opened with {ours}"
        )));
    }
    if !properties.user_defined_timestamps_persisted {
        return Err(Error::not_supported(
            "tables whose user-defined timestamps are not persisted",
        ));
    }
    if properties.index_type > INDEX_FIRST_KEY {
        let kind = properties.index_type;
        return Err(Error::not_supported(format!("index type {kind}")));
    }
    if let Some(expected) = options.expected_unique_id {
        let found = internal_unique_id(
            &properties.db_id,
            &properties.db_session_id,
            properties.original_file_number,
        );
        if found != Some(expected) {
            return Err(Error::corruption(
                "the table's unique id is not the one in the MANIFEST: it is another table",
            ));
        }
    }
    Ok(())
}

/// The kind of keys of the table. In an ingested file (version 2), all entries have one sequence
/// number, from the properties or else from the MANIFEST.
fn keys_of(properties: &Properties, largest_seqno: u64) -> Result<Keys> {
    if properties.external_sst_file_version != Some(2) {
        return Ok(Keys::Internal);
    }
    let known = largest_seqno != u64::MAX;
    match properties.global_seqno.unwrap_or(0) {
        0 if known => Ok(Keys::Ingested(largest_seqno)),
        own if known && own != largest_seqno => Err(Error::corruption(format!(
            "the table has global sequence number {own}, the MANIFEST {largest_seqno}"
        ))),
        own if own >> 56 != 0 => Err(Error::corruption("a sequence number of over 56 bits")),
        own => Ok(Keys::Ingested(own)),
    }
}

/// State while index and filters are decoded.
struct Opening<'a> {
    fetch: &'a Fetch,
    options: &'a ReaderOptions,
    encoding: Encoding,
    root: Root,
    metaindex: &'a [(String, BlockHandle)],
    meta_blocks: Vec<BlockHandle>,
    /// Remaining bytes of memory for metadata.
    metadata_left: usize,
}

impl Opening<'_> {
    fn clocked(&self) -> Option<u64> {
        perf::start(&**self.options.clock.as_ref()?)
    }

    fn took(&self, what: PerfCounter, since: Option<u64>) {
        if let Some(clock) = &self.options.clock {
            perf::stop(what, &**clock, since);
        }
    }

    /// Index and filters, where the options want them, and what charges them to the cache.
    fn metadata(
        &mut self,
        properties: &Properties,
        cache_id: u64,
    ) -> Result<(TableIndex, Filters, Option<Reservation>)> {
        let (metadata, cache) = (self.options.metadata, self.options.block_cache.as_ref());
        if let (Metadata::Cached(pinning), Some(cache)) = (metadata, cache) {
            let at = self.filter_at();
            let filters =
                self.filters(properties, |_| Ok(at.map_or(Parts::None, Parts::OnDemand)))?;
            let on_demand = self.on_demand(pinning, filters.on_demand(), (cache, cache_id))?;
            return Ok((TableIndex::OnDemand(Box::new(on_demand)), filters, None));
        }
        let began = self.clocked();
        let index = self.index()?;
        self.took(PerfCounter::ReadIndexBlockNanos, began);
        let began = self.clocked();
        let filters = self.filters(properties, Self::filter_parts)?;
        self.took(PerfCounter::ReadFilterBlockNanos, began);
        let charge = cache
            .filter(|_| metadata == Metadata::Charged)
            .map(|c| c.reserve(index.memory() + filters.memory()));
        Ok((TableIndex::Memory(index), filters, charge))
    }

    /// The index in memory.
    fn index(&mut self) -> Result<Index> {
        let Root {
            handle,
            is_partitioned,
        } = self.root;
        if !is_partitioned {
            return self.one_index(&[handle], self.encoding);
        }
        let partitions = self.partitions(handle)?;
        self.meta_blocks.extend_from_slice(&partitions);
        self.one_index(&partitions, self.encoding)
    }

    /// The partitions that a top level holds.
    fn partitions(&self, top: BlockHandle) -> Result<Vec<BlockHandle>> {
        self.fetch
            .partitions(top, &self.index_block(top)?, self.encoding)
    }

    /// One index from the entries of one or more index blocks.
    fn one_index(&mut self, blocks: &[BlockHandle], encoding: Encoding) -> Result<Index> {
        let comparator: Comparator = self.options.comparator.clone();
        let mut out = Index::new(comparator, encoding.user_keys);
        for &handle in blocks {
            let block = self.index_block(handle)?;
            let limit = out.memory().saturating_add(keys_bytes_max(block.len()));
            index::for_each(&block, encoding, &mut |separator, data| {
                out.push(separator, data)?;
                if out.memory() > limit {
                    return Err(Error::corruption(
                        "separators share more than is believable",
                    ));
                }
                self.check_memory(out.memory())
            })
            .map_err(|e| self.fetch.locate(e, handle))?;
        }
        out.seal();
        self.metadata_left -= out.memory().min(self.metadata_left);
        Ok(out)
    }

    fn index_block(&self, handle: BlockHandle) -> Result<LargeVec<u8>> {
        perf::count(PerfCounter::IndexBlockReadCount, 1);
        self.fetch.meta_block(handle)
    }

    fn check_memory(&self, used: usize) -> Result<()> {
        if used <= self.metadata_left {
            return Ok(());
        }
        let max = self.options.metadata_bytes_max;
        Err(Error::not_supported(format!(
            "a table whose index and filters take more than {max} bytes"
        )))
    }

    /// The filters, whose parts `parts` finds.
    fn filters(
        &mut self,
        properties: &Properties,
        parts: impl FnOnce(&mut Self) -> Result<Parts>,
    ) -> Result<Filters> {
        let whole_keys = properties.whole_key_filtering != Some(false);
        let prefixes = self.prefixes(properties);
        if !whole_keys && prefixes.is_none() {
            return Ok(Filters::new(Parts::None));
        }
        let name = self.options.comparator.name();
        Ok(Filters {
            timestamp: name.strip_suffix(TIMESTAMP_SUFFIX).map_or(0, |_| 8),
            whole_keys,
            prefixes,
            parts: parts(self)?,
        })
    }

    /// The transform of the prefixes in the table's filter, if it has prefixes and the transform is known.
    fn prefixes(&self, properties: &Properties) -> Option<SliceTransform> {
        let name = properties.prefix_extractor_name.as_str();
        if properties.prefix_filtering == Some(false) || name.is_empty() {
            return None;
        }
        let own = self.options.prefix_extractor.as_ref();
        own.filter(|own| own.name() == name)
            .cloned()
            .or_else(|| SliceTransform::by_name(name))
    }

    /// Where the filters are; `None` without any.
    fn filter_at(&self) -> Option<FilterAt> {
        let named = |kind: &str| {
            let name = format!("{kind}.{}", filter::BUILTIN_NAME);
            find(self.metaindex, &name)
        };
        let full = named("fullfilter").map(|handle| (handle, false));
        let at = full.or_else(|| named("partitionedfilter").map(|handle| (handle, true)));
        at.map(|(handle, is_partitioned)| FilterAt {
            handle,
            is_partitioned,
        })
    }

    /// The filters in memory.
    fn filter_parts(&mut self) -> Result<Parts> {
        let Some(FilterAt {
            handle,
            is_partitioned,
        }) = self.filter_at()
        else {
            return Ok(Parts::None);
        };
        if !is_partitioned {
            return self.filter(handle).map(Parts::Full);
        }
        let index = self.one_index(&[handle], self.encoding.of_top_level())?;
        let handles: Vec<_> = (0..index.len()).filter_map(|i| index.handle(i)).collect();
        self.fetch.check_partitions(&handles)?;
        self.meta_blocks.extend_from_slice(&handles);
        let filters: Result<Vec<Filter>> = handles.iter().map(|&h| self.filter(h)).collect();
        Ok(Parts::Partitioned {
            index: Box::new(index),
            filters: filters?,
        })
    }

    /// An index and filters that are read when they are needed. Reads what is pinned, and puts what was read with the end of
    /// the file into the cache.
    fn on_demand(
        &mut self,
        pinning: Pinning,
        filter: Option<FilterAt>,
        (cache, cache_id): (&Arc<BlockCache>, u64),
    ) -> Result<OnDemand> {
        let limit = self.options.metadata_bytes_max;
        let mut kept = OnDemand::new(self.root, self.encoding, (pinning, limit));
        let index = (Meta::Index, self.root.handle, self.root.is_partitioned);
        let filter = filter.map(|at| {
            let meta = if at.is_partitioned {
                Meta::FilterIndex
            } else {
                Meta::Filter
            };
            (meta, at.handle, at.is_partitioned)
        });
        let mut pins = Vec::new();
        for (meta, handle, is_partitioned) in std::iter::once(index).chain(filter) {
            let is_pinned = if is_partitioned {
                pinning.top_level
            } else {
                pinning.unpartitioned
            };
            let has_parts = is_partitioned && (pinning.partitions || self.options.warm);
            let is_warm = !is_pinned && (self.options.warm || self.fetch.is_in_tail(handle));
            let is_new = is_warm && cache.get(meta.key(cache_id, handle)).is_none();
            if !(is_pinned || has_parts || is_new) {
                continue;
            }
            let block = self.kept(meta, handle)?;
            if has_parts {
                let part = if meta == Meta::Index {
                    Meta::Index
                } else {
                    Meta::Filter
                };
                for handle in self.parts_in(&kept, (meta, handle), &block)? {
                    let block = self.kept(part, handle)?;
                    if pinning.partitions {
                        self.take_memory(&block)?;
                        pins.push((part.number(handle), block));
                    } else {
                        self.warm(&kept, (part, handle), &block, (cache, cache_id));
                    }
                }
            }
            if is_pinned {
                self.take_memory(&block)?;
                pins.push((meta.number(handle), block));
            } else if is_new {
                self.warm(&kept, (meta, handle), &block, (cache, cache_id));
            }
        }
        kept.pin(pins, cache);
        Ok(kept)
    }

    /// The partitions that a top level names.
    fn parts_in(
        &self,
        kept: &OnDemand,
        (meta, top): (Meta, BlockHandle),
        block: &Block,
    ) -> Result<Vec<BlockHandle>> {
        let parts = kept.index(meta, block.clone()).handles();
        let checked = parts.and_then(|parts| {
            self.fetch.check_partitions(&parts)?;
            Ok(parts)
        });
        checked.map_err(|e| self.fetch.locate(e, top))
    }

    /// Puts a block into the cache before it is needed.
    fn warm(
        &self,
        kept: &OnDemand,
        (meta, handle): (Meta, BlockHandle),
        block: &Block,
        (cache, cache_id): (&BlockCache, u64),
    ) {
        if kept.warm(meta, handle, block, (cache, cache_id)) {
            on_demand::count_added(self.options, meta, block);
        }
    }

    /// Takes the memory of a block that stays there from what index and filters may have. Errors: it is too much.
    fn take_memory(&mut self, block: &Block) -> Result<()> {
        self.check_memory(block.memory())?;
        self.metadata_left -= block.memory();
        Ok(())
    }

    fn kept(&self, meta: Meta, handle: BlockHandle) -> Result<Block> {
        let (count, nanos) = match meta {
            Meta::Index => (
                PerfCounter::IndexBlockReadCount,
                PerfCounter::ReadIndexBlockNanos,
            ),
            _ => (
                PerfCounter::FilterBlockReadCount,
                PerfCounter::ReadFilterBlockNanos,
            ),
        };
        perf::count(count, 1);
        let began = self.clocked();
        let bytes = self.fetch.meta_block(handle)?;
        let bounds = (&self.options.comparator, self.options.metadata_bytes_max);
        let kept = on_demand::keep(meta, &bytes, self.encoding, bounds);
        self.took(nanos, began);
        kept.map_err(|e| self.fetch.locate(e, handle))
    }

    fn filter(&mut self, handle: BlockHandle) -> Result<Filter> {
        perf::count(PerfCounter::FilterBlockReadCount, 1);
        let bytes = self.fetch.meta_block(handle)?;
        self.check_memory(bytes.len())?;
        self.metadata_left -= bytes.len();
        Ok(Filter::new(&bytes))
    }
}
