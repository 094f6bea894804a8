//! Reads a table.
//!
//! [`Reader::open`] decodes once: footer, metaindex, properties, the compression dictionary, and by default the whole index and
//! the filters; with [`Metadata::Cached`], these are read on demand through the block cache, as data blocks are. Range
//! tombstones are read on demand too, and not cached: the caller keeps them in its own form.
//!
//! ```text
//!   get ─ filter ─ index ─┬─ cache hit: the block, pinned, no lock ─┬─ restart search, scan ─ visit
//!                         └─ miss: read, verify, decompress, insert ┘
//! ```
//!
//! A `get` allocates nothing if its block is in the cache: the only buffer it needs, for delta-encoded
//! keys, is kept per thread.

mod ahead;
mod approach;
mod fetch;
mod filters;
mod get;
mod meter;
mod on_demand;
mod open;
mod scans;
mod sizes;
mod together;
mod verify;
mod warm;

use std::path::Path;
use std::sync::{Arc, Weak};

use base::clock::Clock;
use base::perf::{self, PerfCounter};
use base::stats::{Activity, HistogramKind, Statistics, Ticker};
use base::{Comparator, Error, ErrorKind, Result, SliceTransform, ValueType, key};
use io::{File, IoPriority, ReadQueues};
use keyspan::RangeTombstone;

use crate::block::{Block, Cursor, Keys, Target};
use crate::cache::{BlockCache, CacheKey, Pinned, Priority, Reservation};
use crate::footer::{BLOCK_TRAILER_LEN, Footer};
use crate::handle::BlockHandle;
use crate::prefix::Prefix;
use crate::props::Properties;
use crate::rows::Rows;
pub(crate) use ahead::ReadAhead;
pub use ahead::{Pace, ReadAheadSizes};
pub use approach::{Approach, Destination};
use fetch::Fetch;
pub use fetch::Span;
use filters::Filters;
use get::Held;
pub use get::Missing;
pub use meter::ReadMeter;
pub(crate) use on_demand::{IndexCursor, Spot};
pub use on_demand::{Metadata, Pinning};
use on_demand::{TableIndex, Verdict};
pub(crate) use scans::Scans;
pub use sizes::DataBlock;
pub(crate) use together::Content;
pub use together::{Filled, Lacking, read_together};
pub use warm::Warmed;

/// Settings of a [`Reader`].
#[derive(Clone, Debug)]
pub struct ReaderOptions {
    /// The order of user keys. A table that was written with another comparator is refused.
    pub comparator: Comparator,
    /// The cache for data blocks, and perhaps for those of index and filters; with `None`, each is read from the file.
    pub block_cache: Option<Arc<BlockCache>>,
    /// Statistics to which hits and misses are added.
    pub statistics: Option<Arc<Statistics>>,
    /// The unique id that the MANIFEST has for the file; a table with another id is refused.
    pub expected_unique_id: Option<[u8; 16]>,
    /// The largest sequence number that the MANIFEST has for the file; `u64::MAX` if it is not known.
    /// In an ingested file, it is the sequence number of every entry.
    pub largest_seqno: u64,
    /// Where index and filters are kept.
    pub metadata: Metadata,
    /// Puts all blocks of index and filters into the cache, if they are to be kept there, before they are needed.
    pub warm: bool,
    /// A table whose index and filters take more bytes of memory than this is refused; a single block of them, if they are
    /// kept in the cache.
    pub metadata_bytes_max: usize,
    /// How iterators read ahead.
    pub read_ahead: ReadAheadSizes,
    /// Extracts the prefix of a key; needed for tables whose filter was made with a transform that
    /// is not built in.
    pub prefix_extractor: Option<SliceTransform>,
    /// The cache id of the file; `None` to take one from the cache.
    pub cache_id: Option<u64>,
    /// The rows of the table in the row cache; `None` without one.
    pub rows: Option<Rows>,
    /// Records statistics about reads of the file.
    pub meter: ReadMeter,
    /// The purpose of opening the table.
    pub activity: Activity,
    /// The clock for deadlines of reads; without it there are no deadlines.
    pub clock: Option<Arc<dyn Clock>>,
    /// Queues for reads that iterators do at the same time; without them, or when their owner has dropped them, they do one
    /// after the other. A table may live longer than its database, and must not keep the threads of the queues. An iterator
    /// that has read ahead keeps the thread that did so, as long as it lives.
    pub queues: Weak<ReadQueues>,
}

impl Default for ReaderOptions {
    fn default() -> Self {
        Self {
            comparator: Comparator::bytewise(),
            block_cache: None,
            statistics: None,
            expected_unique_id: None,
            largest_seqno: u64::MAX,
            metadata: Metadata::InMemory,
            warm: false,
            metadata_bytes_max: 2 << 30,
            read_ahead: ReadAheadSizes::default(),
            prefix_extractor: None,
            cache_id: None,
            rows: None,
            meter: ReadMeter::default(),
            activity: Activity::Unknown,
            clock: None,
            queues: Weak::new(),
        }
    }
}

impl ReaderOptions {
    /// Counts a block that was put into the cache, by the tickers of its kind.
    fn count_added(&self, (add, inserted): (Ticker, Ticker), block: &Block) {
        if let Some(statistics) = &self.statistics {
            let bytes = BlockCache::charge(block) as u64;
            statistics.add(Ticker::BlockCacheAdd, 1);
            statistics.add(add, 1);
            statistics.add(Ticker::BlockCacheBytesWrite, bytes);
            statistics.add(inserted, bytes);
        }
    }
}

/// Settings of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Whether the checksums of blocks that come from the file are verified.
    pub verify_checksums: bool,
    /// Whether blocks that come from the file are put into the block cache.
    pub fill_cache: bool,
    /// Bytes that an iterator reads ahead from the start; 0 adapts the read-ahead to the access pattern.
    pub readahead_bytes: usize,
    /// Whether an iterator over several tables goes on in the next one with the read-ahead that it has reached.
    pub adaptive_readahead: bool,
    /// Whether an iterator will be used for everything up to where its reading ahead ends, so that it reads that much from the
    /// start.
    pub whole_range: bool,
    /// Whether only blocks in the cache are used; a read that needs another block fails with
    /// `Incomplete`.
    pub cache_only: bool,
    /// The purpose of the read.
    pub activity: Activity,
    /// Deadline in microseconds since 1970, after which a read that needs a block from the file
    /// fails with `TimedOut`; 0 is no deadline.
    pub deadline_micros: u64,
    /// Whether an iterator keeps all blocks that it has visited.
    pub pin: bool,
    /// The priority with which reads of the file are charged to [`ReadMeter::limiter`]; with `None`
    /// they are not.
    pub rate_limiter_priority: Option<IoPriority>,
}

impl ReadOptions {
    /// The settings of [`ReadOptions::default`].
    pub const DEFAULT: Self = Self {
        verify_checksums: true,
        fill_cache: true,
        readahead_bytes: 0,
        adaptive_readahead: false,
        whole_range: false,
        cache_only: false,
        activity: Activity::Unknown,
        deadline_micros: 0,
        pin: false,
        rate_limiter_priority: None,
    };
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// An open table. All methods may be called from several threads at once.
#[derive(Debug)]
pub struct Reader {
    fetch: Fetch,
    options: ReaderOptions,
    footer: Footer,
    file_size: u64,
    metaindex: Vec<(String, BlockHandle)>,
    properties: Arc<Properties>,
    /// File offset of the global sequence number.
    global_seqno_at: Option<u64>,
    /// The kind of keys in data blocks; in an ingested file all have the same sequence number.
    keys: Keys,
    index: TableIndex,
    filters: Filters,
    /// Every block that is not a data block and not the properties; partitions only if index and filters are in memory.
    meta_blocks: Vec<BlockHandle>,
    cache_id: u64,
    scans: Scans,
    _charge: Option<Reservation>,
}

impl Reader {
    /// Opens a table of `file_size` bytes.
    ///
    /// # Errors
    /// `Corruption` if the bytes are no table or damaged; `NotSupported`, naming the feature, for
    /// other table formats and for format versions other than 2 to 7; `InvalidArgument` if the table
    /// was written with another comparator.
    pub fn open(file: Arc<dyn File>, file_size: u64, options: ReaderOptions) -> Result<Self> {
        let path = file.path().to_path_buf();
        open::open(file, file_size, options).map_err(|e| e.or_file(path))
    }

    /// How long scans of the table are.
    pub(crate) fn scans(&self) -> &Scans {
        &self.scans
    }

    /// A data block, from the cache or the file.
    pub(crate) fn shared_block(
        &self,
        handle: BlockHandle,
        options: ReadOptions,
        ahead: Option<(&mut ReadAhead, &IndexCursor)>,
    ) -> Result<Block> {
        match self.cached_or_decompressed(handle, options) {
            Some(held) => Ok(held.into_block()),
            None => self.read_block(handle, options, ahead),
        }
    }

    /// A data block from one of the tiers of the cache.
    #[inline]
    fn cached_or_decompressed(
        &self,
        handle: BlockHandle,
        options: ReadOptions,
    ) -> Option<Held<'_>> {
        if let Some(pinned) = self.cached_block(handle) {
            return Some(Held::Pinned(pinned));
        }
        let cache = self.options.block_cache.as_ref()?;
        cache.secondary()?;
        let (key, low) = (self.cache_key(handle), Priority::Low);
        let block = self.decompressed(cache, key, options.fill_cache.then_some(low))?;
        self.count_hit(Ticker::BlockCacheDataHit, handle);
        self.count(Ticker::SecondaryCacheDataHits, 1);
        Some(Held::Own(block))
    }

    /// A block from the second tier of the cache, which puts it into the first one with this priority if it was hit before.
    #[inline(never)]
    fn decompressed(
        &self,
        cache: &BlockCache,
        key: CacheKey,
        promote: Option<Priority>,
    ) -> Option<Block> {
        let (block, is_promoted) = cache.get_secondary(key, promote)?;
        perf::count(PerfCounter::SecondaryCacheHitCount, 1);
        perf::count(
            if is_promoted {
                PerfCounter::BlockCacheRealHandleCount
            } else {
                PerfCounter::BlockCacheStandaloneHandleCount
            },
            1,
        );
        self.count(Ticker::SecondaryCacheHits, 1);
        self.count(Ticker::CompressedSecondaryCacheHits, 1);
        Some(block)
    }

    /// A block from the cache. One function for all callers, which the compiler then makes fast once.
    #[inline(never)]
    fn cached(&self, key: CacheKey) -> Option<Pinned<'_>> {
        self.options.block_cache.as_ref()?.get(key)
    }

    /// A data block from the cache.
    #[inline]
    fn cached_block(&self, handle: BlockHandle) -> Option<Pinned<'_>> {
        let pinned = self.cached(self.cache_key(handle))?;
        self.count_hit(Ticker::BlockCacheDataHit, handle);
        Some(pinned)
    }

    /// A data block from the file.
    fn read_block(
        &self,
        handle: BlockHandle,
        options: ReadOptions,
        ahead: Option<(&mut ReadAhead, &IndexCursor)>,
    ) -> Result<Block> {
        self.check_may_read(options)?;
        let timer = self.options.meter.block_timer();
        let (how, comparator) = (fetch::Read::from(options), self.comparator());
        let block = match ahead {
            None => self.fetch.data_block(handle, comparator, how)?,
            Some((ahead, cursor)) => {
                let block = self.fetch.data_block_from(ahead, handle, comparator, how)?;
                self.ask_for_next(ahead, cursor, how);
                block
            }
        };
        self.block_was_read(handle, options, &block, timer);
        Ok(block)
    }

    /// Begins to read what comes after the window of `ahead`, if that is new.
    fn ask_for_next(&self, ahead: &mut ReadAhead, cursor: &IndexCursor, how: fetch::Read) {
        if let Some(end) = ahead.ask()
            && let Some(queues) = self.queues()
            && self.fetch.reads_meanwhile(&queues)
            && let Some(from) = self.first_ending_after(cursor, end)
        {
            self.fetch.send_next(ahead, from, &queues, how);
        }
    }

    fn queues(&self) -> Option<Arc<ReadQueues>> {
        self.options
            .queues
            .upgrade()
            .filter(|queues| queues.is_on())
    }

    /// Errors: a read with these options may not read the file, or no more.
    #[inline]
    fn check_may_read(&self, options: ReadOptions) -> Result<()> {
        if options.cache_only {
            return Err(not_cached());
        }
        if options.deadline_micros != 0 {
            self.check_deadline(options.deadline_micros)?;
        }
        Ok(())
    }

    /// Counts a block that was read from the file, with the timer from [`ReadMeter::block_timer`], and puts it into the
    /// cache.
    fn block_was_read(
        &self,
        handle: BlockHandle,
        options: ReadOptions,
        block: &Block,
        timer: Option<u64>,
    ) {
        let miss = Ticker::BlockCacheDataMiss;
        self.count_read(options.activity, miss, handle, timer);
        if let Some(cache) = &self.options.block_cache
            && options.fill_cache
            && cache.insert(self.cache_key(handle), block)
        {
            let tickers = (Ticker::BlockCacheDataAdd, Ticker::BlockCacheDataBytesInsert);
            self.options.count_added(tickers, block);
        }
    }

    /// Counts a block that was read from the file.
    fn count_read(
        &self,
        activity: Activity,
        miss: Ticker,
        handle: BlockHandle,
        timer: Option<u64>,
    ) {
        self.options.meter.block_read(
            match activity {
                Activity::Compaction => HistogramKind::ReadBlockCompactionMicros,
                _ => HistogramKind::ReadBlockGetMicros,
            },
            timer,
        );
        perf::count(PerfCounter::BlockReadCount, 1);
        perf::count(PerfCounter::BlockReadByte, handle.size + BLOCK_TRAILER_LEN);
        if self.options.block_cache.is_some() {
            self.count(Ticker::BlockCacheMiss, 1);
            self.count(miss, 1);
        }
    }

    #[cold]
    fn check_deadline(&self, deadline_micros: u64) -> Result<()> {
        match &self.options.clock {
            Some(clock) if clock.wall_micros() > deadline_micros => {
                Err(Error::new(ErrorKind::TimedOut, "Deadline exceeded").file(self.path()))
            }
            _ => Ok(()),
        }
    }

    #[inline]
    fn cache_key(&self, handle: BlockHandle) -> CacheKey {
        CacheKey {
            id: self.cache_id,
            offset: handle.offset,
        }
    }

    /// Counts a block that the cache had, by the ticker of its kind.
    #[inline]
    fn count_hit(&self, ticker: Ticker, handle: BlockHandle) {
        perf::count(PerfCounter::BlockCacheHitCount, 1);
        if let Some(statistics) = &self.options.statistics {
            statistics.add(Ticker::BlockCacheHit, 1);
            statistics.add(ticker, 1);
            statistics.add(Ticker::BlockCacheBytesRead, handle.size);
        }
    }

    #[inline]
    fn count(&self, ticker: Ticker, n: u64) {
        if let Some(statistics) = &self.options.statistics {
            statistics.add(ticker, n);
        }
    }

    /// True if the table has a block of range tombstones.
    pub fn has_range_tombstones(&self) -> bool {
        self.meta_handle(open::RANGE_DEL).is_some()
    }

    /// The range tombstones, sorted by start, as stored: they may overlap.
    pub fn range_tombstones(&self) -> Result<Vec<RangeTombstone>> {
        let Some(handle) = self.meta_handle(open::RANGE_DEL) else {
            return Ok(Vec::new());
        };
        let bytes = self.fetch.meta_block(handle)?;
        self.decode_tombstones(&bytes)
            .map_err(|e| self.locate(e, handle))
    }

    fn decode_tombstones(&self, bytes: &[u8]) -> Result<Vec<RangeTombstone>> {
        let block = Block::new(bytes)?;
        let mut cursor = Cursor::new(self.keys);
        let mut out = Vec::new();
        let mut more = cursor.seek_to_first(&block)?;
        let mut left = block.keys_bytes_max();
        while more {
            left = left
                .checked_sub(cursor.key().len())
                .ok_or_else(|| Error::corruption("keys share more than is believable"))?;
            let parsed = key::parse(cursor.key())
                .filter(|p| p.value_type == ValueType::RangeDeletion)
                .ok_or_else(|| Error::corruption("an entry that is no range tombstone"))?;
            out.push(RangeTombstone {
                start: parsed.user_key.to_vec(),
                end: cursor.value(&block).to_vec(),
                sequence: parsed.sequence,
            });
            more = cursor.next(&block)?;
        }
        Ok(out)
    }

    /// The transform of the prefixes in the table's filter; `None` if the filter has none, or if the
    /// transform is neither built in nor that of the options.
    pub fn prefix_extractor(&self) -> Option<&SliceTransform> {
        self.filters.prefixes.as_ref()
    }

    /// False only if no key of the table has this prefix, which must come from
    /// [`Reader::prefix_extractor`].
    pub fn prefix_may_match(&self, prefix: &[u8]) -> bool {
        if self.filters.prefixes.is_none() || self.filters.is_none() {
            return true;
        }
        self.count(Ticker::BloomFilterPrefixChecked, 1);
        let may = self.filter_has_prefix(prefix, ReadOptions::default());
        if may {
            perf::count(PerfCounter::BloomSstHitCount, 1);
        } else {
            perf::count(PerfCounter::BloomSstMissCount, 1);
            self.count(Ticker::BloomFilterPrefixUseful, 1);
        }
        may
    }

    /// False only if no key of the table has this prefix: to be called before a seek of an iterator.
    /// `last_level` says whether the file is on the last level, for the statistics. A filter that cannot be read counts as a
    /// match.
    pub fn seek_may_match(
        &self,
        prefix: Prefix<'_>,
        last_level: bool,
        options: &ReadOptions,
    ) -> bool {
        if self.filters.is_none() || self.filters.prefixes.as_ref() != Some(prefix.transform) {
            return true;
        }
        // The partition of a prefix is known only if a prefix sorts before its keys.
        if self.filters.is_partitioned() && !self.comparator().is_bytewise() {
            return true;
        }
        let may = self.filter_has_prefix(prefix.bytes, *options);
        let ticker = match (may, last_level) {
            (true, true) => Ticker::LastLevelSeekFilterMatch,
            (true, false) => Ticker::NonLastLevelSeekFilterMatch,
            (false, true) => Ticker::LastLevelSeekFiltered,
            (false, false) => Ticker::NonLastLevelSeekFiltered,
        };
        self.count(ticker, 1);
        may
    }

    /// False only if no entry's user key has this prefix.
    fn filter_has_prefix(&self, prefix: &[u8], options: ReadOptions) -> bool {
        if self.filters.prefixes.is_none() {
            return true;
        }
        // Sorts before every key with the prefix. The partition found so has the prefix even if its keys
        // are in the next one, because it also has the prefix of the key after it.
        let first = key::encode(prefix, base::SequenceNumber::MAX, ValueType::FOR_SEEK);
        let Ok(target) = Target::new(&first) else {
            return true;
        };
        let (TableIndex::OnDemand(on_demand), Some(at)) = (&self.index, self.filters.on_demand())
        else {
            return self.filters.ask(&target, prefix);
        };
        let asked = self.ask_on_demand::<false>((on_demand, at), None, (&target, prefix), options);
        !matches!(asked, Ok(Verdict::IsNotThere))
    }

    /// The properties that the table was written with.
    pub fn properties(&self) -> &Arc<Properties> {
        &self.properties
    }

    /// The number under which its blocks are in the cache; `None` if it was opened without a cache, and was not given one.
    pub fn cache_id(&self) -> Option<u64> {
        Some(self.cache_id).filter(|&id| id > 0)
    }

    /// Its rows in the row cache.
    pub fn rows(&self) -> Option<&Rows> {
        self.options.rows.as_ref()
    }

    /// Options to open the same table again, so that it finds its blocks and rows in the caches.
    pub fn options_to_open_again(&self) -> ReaderOptions {
        ReaderOptions {
            cache_id: Some(self.cache_id),
            warm: false,
            ..self.options.clone()
        }
    }

    /// Offset in the file of the 8 bytes of the property
    /// `rocksdb.external_sst_file.global_seqno`, which RocksDB overwrites in place when it ingests
    /// the table; `None` if the table has no such property.
    pub fn global_seqno_offset(&self) -> Option<u64> {
        self.global_seqno_at
    }

    /// The footer.
    pub fn footer(&self) -> &Footer {
        &self.footer
    }

    /// Names and handles of the meta blocks.
    pub fn metaindex(&self) -> &[(String, BlockHandle)] {
        &self.metaindex
    }

    /// The size of the file in bytes.
    pub fn file_size(&self) -> u64 {
        self.file_size
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        self.fetch.path()
    }

    pub(crate) fn comparator(&self) -> &Comparator {
        &self.options.comparator
    }

    pub(crate) fn keys(&self) -> Keys {
        self.keys
    }

    pub(crate) fn read_ahead(&self) -> ReadAheadSizes {
        self.options.read_ahead
    }

    pub(crate) fn locate(&self, e: Error, handle: BlockHandle) -> Error {
        self.fetch.locate(e, handle)
    }

    fn meta_handle(&self, name: &str) -> Option<BlockHandle> {
        open::find(&self.metaindex, name)
    }
}

#[cold]
fn not_cached() -> Error {
    Error::new(ErrorKind::Incomplete, "the block is not in the block cache")
}
