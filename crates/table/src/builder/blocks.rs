//! Data blocks on their way to the file: held until there is a dictionary, compressed by this thread
//! or by others, written in order.
//!
//! ```text
//!   block ──> held (max_dict_bytes > 0) ──dictionary──> compressed ──> sink, handle to the index
//!                                                         └ in turn, or by `Compressors`
//! ```
//!
//! The output does not depend on which thread compresses: blocks wait in a queue and leave it in order,
//! and the queue's length depends only on the number of blocks.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use base::sync::{Condvar, Mutex, PoisonError, ranked};
use base::{Comparator, Error, Result};

use super::index::IndexBuilder;
use super::meter::WriteMeter;
use super::sink::Sink;
use crate::block::Block;
use crate::cache::{BlockCache, CacheKey};
use crate::checksum::{self, ChecksumType};
use crate::compress::{self, CompressionSettings, CompressionType, dictionary};
use crate::locks;

/// Maximum number of threads that are used.
const THREADS_MAX: u32 = 64;

/// Runs jobs that compress blocks, on its own threads.
pub trait Compressors: Send + Sync + fmt::Debug {
    /// Runs `job` soon; jobs may run in any order. If a job is dropped instead, writing the table fails.
    fn run(&self, job: Box<dyn FnOnce() + Send>);

    /// Ends the threads once their jobs are done. Later jobs run on the thread that calls
    /// [`Compressors::run`].
    fn end(&self) {}
}

/// A block cache for the data blocks of a new table, so that its first readers find them in memory.
#[derive(Clone, Debug)]
pub struct Prepopulate {
    /// The cache.
    pub cache: Arc<BlockCache>,
    /// The cache id with which the table will be opened: [`crate::ReaderOptions::cache_id`].
    pub cache_id: u64,
}

/// Converts blocks to their stored form.
#[derive(Clone, Debug)]
pub(super) struct Codec {
    pub(super) kind: CompressionType,
    pub(super) settings: CompressionSettings,
    pub(super) verify: bool,
    pub(super) format_version: u32,
    pub(super) checksum: ChecksumType,
    pub(super) meter: WriteMeter,
}

impl Codec {
    /// Compresses a block into `out`. False if it should be stored uncompressed.
    pub(super) fn compress(&self, dict: &[u8], raw: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
        if self.kind == CompressionType::None {
            return Ok(false);
        }
        let timer = self.meter.detailed_timer();
        let worth_it = compress::compress(self.kind, &self.settings, dict, raw, out)?;
        self.meter.compressed(timer);
        if worth_it && self.verify {
            let back = compress::decompress(self.kind, out, self.format_version, dict)?;
            if back != raw {
                return Err(Error::corruption(
                    "a compressed block does not decompress to what it was made of",
                ));
            }
        }
        Ok(worth_it)
    }
}

/// Blocks that wait for the dictionary.
#[derive(Debug)]
struct Held {
    blocks: Vec<Vec<u8>>,
    bytes: u64,
    /// The dictionary is made when `bytes` exceeds this.
    limit: u64,
}

/// A block that another thread has processed.
#[derive(Debug)]
struct Done {
    raw: Vec<u8>,
    compressed: Option<Vec<u8>>,
    checksum: u32,
}

/// The place for a job's result.
#[derive(Debug)]
struct Slot {
    result: Mutex<Option<Result<Done>>>,
    ready: Condvar,
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            result: ranked(locks::COMPRESSED, None),
            ready: Condvar::new(),
        }
    }
}

impl Slot {
    fn set(&self, result: Result<Done>) {
        let mut slot = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none() {
            *slot = Some(result);
        }
        self.ready.notify_one();
    }

    fn wait(&self) -> Result<Done> {
        let mut slot = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = slot.take() {
                return result;
            }
            slot = self
                .ready
                .wait(slot)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A job's side of a slot; fails the slot if the job never sets it.
struct Promise(Arc<Slot>);

impl Drop for Promise {
    fn drop(&mut self) {
        self.0.set(Err(Error::aborted(
            "a block was not compressed: its job was dropped",
        )));
    }
}

/// Compression of this table's blocks by other threads.
#[derive(Debug)]
struct Parallel {
    compressors: Arc<dyn Compressors>,
    /// The slots of the blocks, in order, each with the block's uncompressed size in bytes.
    queue: VecDeque<(Arc<Slot>, usize)>,
    queue_max: usize,
}

/// The data blocks of one table.
#[derive(Debug)]
pub(super) struct DataBlocks {
    codec: Arc<Codec>,
    dictionary: Arc<Vec<u8>>,
    held: Option<Held>,
    parallel: Option<Parallel>,
    /// Blocks start at multiples of this many bytes.
    alignment: Option<u64>,
    prepopulate: Option<Prepopulate>,
    comparator: Comparator,
    /// Bytes written, before compression and after.
    raw_bytes: u64,
    stored_bytes: u64,
    /// Scratch.
    compressed: Vec<u8>,
}

/// The parts of a builder that a written block changes.
pub(super) struct Target<'a> {
    pub(super) sink: &'a mut Sink,
    pub(super) index: &'a mut IndexBuilder,
}

impl DataBlocks {
    pub(super) fn new(codec: Codec, options: &super::BuilderOptions) -> Self {
        let settings = &codec.settings;
        let table = &options.table;
        let held = settings.max_dict_bytes > 0 && codec.kind.takes_dictionary();
        let limits = [options.target_file_size, settings.max_dict_buffer_bytes];
        let limit = limits.into_iter().filter(|&n| n > 0).min();
        let threads = settings.parallel_threads.min(THREADS_MAX) as usize;
        let compressors = options.compressors.as_ref();
        let compressors =
            compressors.filter(|_| threads > 1 && codec.kind != CompressionType::None);
        Self {
            held: held.then(|| Held {
                blocks: Vec::new(),
                bytes: 0,
                limit: limit.unwrap_or(u64::MAX),
            }),
            parallel: compressors.map(|c| Parallel {
                compressors: Arc::clone(c),
                queue: VecDeque::new(),
                queue_max: threads,
            }),
            alignment: table.block_align.then(|| table.block_size.min(4096)),
            prepopulate: options.prepopulate.clone(),
            comparator: options.comparator.clone(),
            dictionary: Arc::default(),
            codec: Arc::new(codec),
            raw_bytes: 0,
            stored_bytes: 0,
            compressed: Vec::new(),
        }
    }

    pub(super) fn codec(&self) -> &Codec {
        &self.codec
    }

    /// The dictionary, once [`DataBlocks::finish`] has returned; empty if there is none.
    pub(super) fn dictionary(&self) -> &[u8] {
        &self.dictionary
    }

    /// Estimated number of bytes that the blocks not written yet will take.
    #[inline]
    pub(super) fn unwritten(&self) -> u64 {
        let held = self.held.as_ref().map_or(0, |h| h.bytes);
        let queued = self.parallel.as_ref().map_or(0, |p| {
            let raw = p.queue.iter().map(|(_, n)| *n as u64).sum::<u64>();
            match self.raw_bytes {
                0 => raw,
                written => raw * self.stored_bytes / written,
            }
        });
        held + queued
    }

    /// Takes the next block; the content of `raw` is undefined afterwards.
    #[inline]
    pub(super) fn push(&mut self, raw: &mut Vec<u8>, to: &mut Target<'_>) -> Result<()> {
        if let Some(held) = &mut self.held {
            held.bytes += raw.len() as u64;
            held.blocks.push(std::mem::take(raw));
            if held.bytes > held.limit {
                self.release(to)?;
            }
            return Ok(());
        }
        self.send(raw, to)
    }

    /// Writes all remaining blocks.
    pub(super) fn finish(&mut self, to: &mut Target<'_>) -> Result<()> {
        self.release(to)?;
        self.drain(0, to)
    }

    /// Makes the dictionary, and passes on the blocks that were held for it.
    fn release(&mut self, to: &mut Target<'_>) -> Result<()> {
        let Some(held) = self.held.take() else {
            return Ok(());
        };
        let codec = &self.codec;
        self.dictionary = Arc::new(dictionary::make(codec.kind, &codec.settings, &held.blocks));
        for mut raw in held.blocks {
            self.send(&mut raw, to)?;
        }
        Ok(())
    }

    fn send(&mut self, raw: &mut Vec<u8>, to: &mut Target<'_>) -> Result<()> {
        if self.parallel.is_some() {
            return self.send_away(std::mem::take(raw), to);
        }
        let mut compressed = std::mem::take(&mut self.compressed);
        let result = match self.codec.compress(&self.dictionary, raw, &mut compressed) {
            Ok(true) => self.write(raw, Some(&compressed), None, to),
            Ok(false) => self.write(raw, None, None, to),
            Err(e) => Err(e.file(to.sink.path()).offset(to.sink.offset())),
        };
        self.compressed = compressed;
        result
    }

    fn send_away(&mut self, raw: Vec<u8>, to: &mut Target<'_>) -> Result<()> {
        let Some(parallel) = &mut self.parallel else {
            return Ok(());
        };
        let slot = Arc::new(Slot::default());
        let promise = Promise(Arc::clone(&slot));
        parallel.queue.push_back((slot, raw.len()));
        let (codec, dictionary) = (Arc::clone(&self.codec), Arc::clone(&self.dictionary));
        parallel.compressors.run(Box::new(move || {
            let promise = promise;
            promise.0.set(work(&codec, &dictionary, raw));
        }));
        let max = parallel.queue_max;
        self.drain(max, to)
    }

    /// Writes blocks from the front of the queue until `left` of them remain.
    fn drain(&mut self, left: usize, to: &mut Target<'_>) -> Result<()> {
        while let Some(parallel) = &mut self.parallel
            && parallel.queue.len() > left
            && let Some((slot, _)) = parallel.queue.pop_front()
        {
            let done = slot
                .wait()
                .map_err(|e| e.file(to.sink.path()).offset(to.sink.offset()))?;
            let compressed = done.compressed.as_deref();
            self.write(&done.raw, compressed, Some(done.checksum), to)?;
        }
        Ok(())
    }

    #[inline]
    fn write(
        &mut self,
        raw: &[u8],
        compressed: Option<&[u8]>,
        checksum: Option<u32>,
        to: &mut Target<'_>,
    ) -> Result<()> {
        let (stored, kind) = match compressed {
            Some(compressed) => (compressed, self.codec.kind),
            None => (raw, CompressionType::None),
        };
        let handle = match checksum {
            Some(sum) => to.sink.summed_block(stored, kind.to_u8(), sum)?,
            None => to.sink.block(stored, kind.to_u8())?,
        };
        let saved = compressed.map(<[u8]>::len);
        to.sink.compression.add(self.codec.kind, raw.len(), saved);
        if let Some(alignment) = self.alignment {
            to.sink.pad(alignment);
        }
        to.index.block_written(handle);
        self.raw_bytes += raw.len() as u64;
        self.stored_bytes += stored.len() as u64;
        if let Some(p) = &self.prepopulate {
            let key = CacheKey {
                id: p.cache_id,
                offset: handle.offset,
            };
            p.cache
                .insert(key, &Block::searchable(raw, &self.comparator)?);
        }
        Ok(())
    }
}

fn work(codec: &Codec, dictionary: &[u8], raw: Vec<u8>) -> Result<Done> {
    let mut compressed = Vec::new();
    let worth_it = codec.compress(dictionary, &raw, &mut compressed)?;
    let (stored, kind) = if worth_it {
        (&compressed, codec.kind)
    } else {
        (&raw, CompressionType::None)
    };
    Ok(Done {
        checksum: checksum::block_checksum(codec.checksum, stored, kind.to_u8()),
        compressed: worth_it.then_some(compressed),
        raw,
    })
}
