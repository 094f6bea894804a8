//! RocksDB's block-based tables (SST files): builder, reader, filters, compression and the block
//! cache.
//!
//! ```text
//!   Builder ──> [data block]… [filter] [index] [dictionary] [range_del] [properties] … [footer] ──> Reader
//!
//!   Reader::get:  filter ─> index (decoded once: arrays of 8-byte key prefixes; or in the block cache)
//!                        ─> block cache (lock-free hit) or one positional read
//!                        ─> restart binary search, then a scan of one restart interval
//! ```
//!
//! [`Builder`] writes block-based tables of format_version 2 to 7 with every kind of index, with
//! full or partitioned Bloom and Ribbon filters, and with compression dictionaries. By default it
//! writes a format that RocksDB 7.8 and later read. [`Reader`] reads every block-based table of these
//! versions. Keys are internal keys ([`base::key`]). The byte formats are in `docs/formats.md`.
//!
//! Errors: bytes that no correct engine writes give `Corruption` with the file and the offset of
//! the block; a feature that is not implemented gives `NotSupported` with its name.

pub mod block;
pub mod builder;
pub mod cache;
pub mod checksum;
pub mod compress;
pub mod filter;
pub mod footer;
pub mod handle;
mod index;
mod internal_iterator;
pub mod iter;
mod locks;
pub mod options;
mod prefix;
pub mod props;
pub mod reader;
mod rows;
pub mod unique_id;
pub mod xxph3;

pub use block::{Block, PinnedBytes, Value};
pub use builder::{Builder, BuilderOptions, Compressors, Finished, Prepopulate};
pub use cache::{
    BlockCache, BlockKind, CompressedSecondaryCache, CompressedSecondaryCacheOptions, Tier,
};
pub use checksum::ChecksumType;
pub use compress::{CompressionSettings, CompressionType};
pub use footer::Footer;
pub use handle::BlockHandle;
pub use internal_iterator::InternalIterator;
pub use iter::Iter;
pub use keyspan::RangeTombstone;
pub use options::TableOptions;
pub use prefix::Prefix;
pub use props::Properties;
pub use reader::{
    Approach, DataBlock, Destination, Filled, Lacking, Metadata, Missing, Pinning, ReadAheadSizes,
    ReadMeter, ReadOptions, Reader, ReaderOptions, Span, Warmed, read_together,
};
pub use rows::{RowCache, Rows};
