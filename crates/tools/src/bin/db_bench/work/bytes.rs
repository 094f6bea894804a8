//! Checksums and compression of blocks of `--block_size`, without a database. The amounts are RocksDB's.

use std::hint::black_box;
use std::sync::atomic::{AtomicPtr, Ordering};

use base::{Error, Result};
use table::checksum::{ChecksumType, plain};
use table::compress::{CompressionSettings, compress, compress_within, decompress};

use super::Worker;
use crate::benchmarks::Bytes;
use crate::engine::Engine;
use crate::keys::{Sizes, Values};
use crate::options;
use crate::stats::Op;

/// The data for checksums.
const CHECKSUMMED: u64 = 5000 << 20;
/// The data to compress.
const COMPRESSED: u64 = 3 << 30;
/// The decompressed data.
const UNCOMPRESSED: u64 = 20 << 30;
/// The format version of tables whose blocks state their size.
const FORMAT_VERSION: u32 = 5;

impl<E: Engine> Worker<'_, E> {
    pub(super) fn bytes(&mut self, what: Bytes) -> Result<()> {
        match what {
            Bytes::Crc32c => self.checksums(ChecksumType::Crc32c, Op::Crc),
            Bytes::XxHash => self.checksums(ChecksumType::XxHash, Op::Hash),
            Bytes::XxHash64 => self.checksums(ChecksumType::XxHash64, Op::Hash),
            Bytes::Xxh3 => self.checksums(ChecksumType::Xxh3, Op::Hash),
            Bytes::Compress => self.compress()?,
            Bytes::CompressReject => self.compress_reject()?,
            Bytes::Uncompress => self.uncompress()?,
            Bytes::AcquireLoad => self.loads(),
        }
        Ok(())
    }

    fn checksums(&mut self, kind: ChecksumType, op: Op) {
        let size = self.flags.block_size.max(1) as usize;
        let data = vec![b'x'; size];
        let (mut bytes, mut sum) = (0, 0u32);
        while bytes < CHECKSUMMED {
            sum = sum.wrapping_add(plain(kind, black_box(&data)));
            self.stats.finished(1, op);
            bytes += size as u64;
        }
        black_box(sum);
        self.stats.add_bytes(bytes);
        self.stats.add_message(&format!("({size} per op)"));
    }

    /// A block with the compression ratio of the flags, and the codec and settings that the flags
    /// name.
    fn block(&self) -> Result<(Vec<u8>, options::Compression)> {
        let size = self.flags.block_size.max(1) as usize;
        let ratio = self.flags.compression_ratio;
        let block = Values::new(Sizes::Fixed(size), ratio).next().to_vec();
        Ok((block, options::block_compression(self.flags)?))
    }

    fn compress(&mut self) -> Result<()> {
        let (block, kind) = self.block()?;
        let settings = CompressionSettings {
            level: self.flags.compression_level,
            ..CompressionSettings::default()
        };
        let (mut bytes, mut produced, mut out) = (0, 0, Vec::new());
        while bytes < COMPRESSED {
            out.clear();
            if !compress(kind, &settings, &[], black_box(&block), &mut out)? {
                self.stats.add_message("(a block does not become smaller)");
                return Ok(());
            }
            produced += out.len() as u64;
            bytes += block.len() as u64;
            self.stats.finished(1, Op::Compress);
        }
        let percent = produced as f64 * 100.0 / bytes as f64;
        self.stats.add_message(&format!("(output: {percent:.1}%)"));
        self.stats.add_bytes(bytes);
        Ok(())
    }

    /// Compresses with an output limit that is a tenth of the block smaller than
    /// `--compression_ratio` implies, so that the codec gives up.
    fn compress_reject(&mut self) -> Result<()> {
        let (block, kind) = self.block()?;
        let settings = CompressionSettings {
            level: self.flags.compression_level,
            ..CompressionSettings::default()
        };
        let share = (self.flags.compression_ratio - 0.1).max(0.0);
        let room = ((share * block.len() as f64) as usize).max(1);
        let (mut bytes, mut out) = (0, Vec::new());
        if kind == options::Compression::None {
            self.stats.add_message("(compression type not supported)");
            return Ok(());
        }
        while bytes < COMPRESSED {
            out.clear();
            if compress_within(kind, &settings, &[], black_box(&block), room, &mut out)? {
                self.stats.add_message(
                    "(compression failure: a block fits; try a larger compression_ratio)",
                );
                return Ok(());
            }
            bytes += block.len() as u64;
            self.stats.finished(1, Op::Compress);
        }
        let percent = room as f64 * 100.0 / block.len() as f64;
        self.stats
            .add_message(&format!("(rejected; output buffer {percent:.1}% of input)"));
        self.stats.add_bytes(bytes);
        Ok(())
    }

    /// Loads a pointer with acquire order.
    fn loads(&mut self) {
        const OPERATIONS: u32 = 100_000;
        const LOADS: u32 = 1000;
        let mut here = 0u8;
        let pointer = AtomicPtr::new(&raw mut here);
        self.stats.add_message("(each op is 1000 loads)");
        for _ in 0..OPERATIONS {
            for _ in 0..LOADS {
                black_box(pointer.load(Ordering::Acquire));
            }
            self.stats.finished(1, Op::Other);
        }
    }

    fn uncompress(&mut self) -> Result<()> {
        let (block, kind) = self.block()?;
        let mut payload = Vec::new();
        let settings = CompressionSettings::default();
        if !compress(kind, &settings, &[], &block, &mut payload)? {
            self.stats.add_message("(a block does not become smaller)");
            return Ok(());
        }
        let mut bytes = 0;
        while bytes < UNCOMPRESSED {
            let out = decompress(kind, black_box(&payload), FORMAT_VERSION, &[])?;
            if out.len() != block.len() {
                return Err(Error::corruption("a block has another size uncompressed"));
            }
            bytes += out.len() as u64;
            self.stats.finished(1, Op::Uncompress);
        }
        self.stats.add_bytes(bytes);
        Ok(())
    }
}
