//! Compression of blocks.
//!
//! ```text
//! payload by type     0 none    the bytes
//!                     1 snappy  snappy's own header and data
//!                     2 zlib    varint32 size | raw deflate, window up to 2^14 (2^15 is read)
//!                     3 bzip2   varint32 size | bzip2 stream
//!                     4, 5 lz4  varint32 size | LZ4 block (5: made by LZ4HC)
//!                     7 zstd    varint32 size | zstd frame        (0x40 in old files)
//! ```
//! This is the layout of format version 2 and later. The size is that of the block once
//! decompressed. A dictionary belongs to a file's data blocks; snappy and bzip2 have none.
//!
//! A declared size is trusted only if the payload can decompress to that size: each format has a
//! maximum ratio. For bzip2, whose ratio is no useful bound, memory grows with the output. A block must
//! decompress to exactly its declared size.
//!
//! Contexts are kept per thread, because creating one costs more than compressing a block.
#![deny(clippy::indexing_slicing)]

pub(crate) mod dictionary;
mod lz4;
mod zlib;
mod zstandard;

use std::cell::RefCell;

use base::coding::{Decoder, put_varint};
use base::{Error, Result};

base::option_enum! {
    /// How a block is compressed.
    pub enum CompressionType {
        /// Not at all.
        None = "kNoCompression",
        /// Snappy.
        Snappy = "kSnappyCompression",
        /// Deflate without a header.
        Zlib = "kZlibCompression",
        /// bzip2.
        BZip2 = "kBZip2Compression",
        /// LZ4.
        Lz4 = "kLZ4Compression",
        /// LZ4 with the slower, stronger compressor.
        Lz4hc = "kLZ4HCCompression",
        /// Zstandard.
        Zstd = "kZSTD",
    }
}

/// The level that stands for each codec's default (RocksDB's `kDefaultCompressionLevel`).
pub const DEFAULT_LEVEL: i32 = 32767;

/// The settings of a table's codec: RocksDB's `CompressionOptions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressionSettings {
    /// The level, in each codec's own meaning; [`DEFAULT_LEVEL`] is its default.
    pub level: i32,
    /// zlib's window, minus its power of two: -9 to -14.
    pub window_bits: i32,
    /// zlib's strategy, 0 to 4.
    pub strategy: i32,
    /// Maximum size of a table's dictionary in bytes; 0 for no dictionary. Data blocks are held in
    /// memory until the dictionary is made.
    pub max_dict_bytes: u32,
    /// Bytes of samples from which a zstd dictionary is trained; 0 uses the samples as the dictionary.
    pub zstd_max_train_bytes: u32,
    /// Maximum number of bytes of data blocks that are held in memory for the dictionary; 0 for no
    /// limit except the table's target size.
    pub max_dict_buffer_bytes: u64,
    /// Whether zstd's trainer makes the dictionary; otherwise zstd only adds statistics to the samples.
    pub use_zstd_dict_trainer: bool,
    /// Threads that compress one table's blocks.
    pub parallel_threads: u32,
}

impl Default for CompressionSettings {
    /// RocksDB's defaults.
    fn default() -> Self {
        Self {
            level: DEFAULT_LEVEL,
            window_bits: -14,
            strategy: 0,
            max_dict_bytes: 0,
            zstd_max_train_bytes: 0,
            max_dict_buffer_bytes: 0,
            use_zstd_dict_trainer: true,
            parallel_threads: 1,
        }
    }
}

impl CompressionSettings {
    /// The value of the property `rocksdb.compression_options`.
    pub fn property_text(&self) -> String {
        format!(
            "window_bits={}; level={}; strategy={}; max_dict_bytes={}; zstd_max_train_bytes={}; \
             enabled=0; max_dict_buffer_bytes={}; use_zstd_dict_trainer={}; ",
            self.window_bits,
            self.level,
            self.strategy,
            self.max_dict_bytes,
            self.zstd_max_train_bytes,
            self.max_dict_buffer_bytes,
            u8::from(self.use_zstd_dict_trainer),
        )
    }
}

/// The type byte for zstd in old files ("not final").
const ZSTD_NOT_FINAL: u8 = 0x40;
/// Deflate encodes up to 258 bytes in 2 bits.
const ZLIB_RATIO_MAX: u64 = 1032;
/// Each length byte of LZ4 stands for at most 255 bytes.
const LZ4_RATIO_MAX: u64 = 255;
/// A snappy copy is at most 64 bytes, in at least 3.
const SNAPPY_RATIO_MAX: u64 = 22;
/// The initial size in bytes of the output buffer for bzip2, which then doubles.
const BZIP2_FIRST_BYTES: usize = 64 << 10;

impl CompressionType {
    /// The type that a block's type byte names.
    pub fn from_u8(v: u8) -> Option<Self> {
        Some(match v {
            0 => Self::None,
            1 => Self::Snappy,
            2 => Self::Zlib,
            3 => Self::BZip2,
            4 => Self::Lz4,
            5 => Self::Lz4hc,
            7 | ZSTD_NOT_FINAL => Self::Zstd,
            _ => return None,
        })
    }

    /// The type byte of a block.
    pub fn to_u8(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Snappy => 1,
            Self::Zlib => 2,
            Self::BZip2 => 3,
            Self::Lz4 => 4,
            Self::Lz4hc => 5,
            Self::Zstd => 7,
        }
    }

    /// The value of the property `rocksdb.compression`.
    pub fn property_name(self) -> &'static str {
        match self {
            Self::None => "NoCompression",
            Self::Snappy => "Snappy",
            Self::Zlib => "Zlib",
            Self::BZip2 => "BZip2",
            Self::Lz4 => "LZ4",
            Self::Lz4hc => "LZ4HC",
            Self::Zstd => "ZSTD",
        }
    }

    /// The type whose [`CompressionType::property_name`] is `name`.
    pub fn from_property_name(name: &str) -> Option<Self> {
        if name == "ZSTDNotFinal" {
            return Some(Self::Zstd);
        }
        Self::ALL
            .iter()
            .copied()
            .find(|t| t.property_name() == name)
    }

    /// True if the codec can use a dictionary.
    pub fn takes_dictionary(self) -> bool {
        matches!(self, Self::Zlib | Self::Lz4 | Self::Lz4hc | Self::Zstd)
    }
}

/// Appends the payload for `input` to `out`.
///
/// Settings outside of the codec's range are clamped. `dict` is the dictionary, empty for none.
///
/// Returns false, with `out` unchanged, if the payload would not save an eighth of the input, or if
/// the input is too large for the codec: the block is then stored uncompressed.
///
/// # Errors
/// `Aborted` if a codec has no memory for its context.
///
/// ```
/// use table::compress::{CompressionSettings, CompressionType, compress, decompress};
/// let (input, settings) = (vec![7; 4096], CompressionSettings::default());
/// let mut payload = Vec::new();
/// assert!(compress(CompressionType::Lz4, &settings, &[], &input, &mut payload)?);
/// assert_eq!(decompress(CompressionType::Lz4, &payload, 5, &[])?, input);
/// # Ok::<(), base::Error>(())
/// ```
pub fn compress(
    kind: CompressionType,
    settings: &CompressionSettings,
    dict: &[u8],
    input: &[u8],
    out: &mut Vec<u8>,
) -> Result<bool> {
    // RocksDB keeps a payload only if it is shorter than this.
    let limit = input.len() - input.len() / 8;
    compress_within(kind, settings, dict, input, limit.saturating_sub(1), out)
}

/// Like [`compress`], but keeps the payload only if it has at most `payload_bytes_max` bytes. Compression
/// stops as soon as the payload exceeds that.
///
/// # Errors
/// As [`compress`].
pub fn compress_within(
    kind: CompressionType,
    settings: &CompressionSettings,
    dict: &[u8],
    input: &[u8],
    payload_bytes_max: usize,
    out: &mut Vec<u8>,
) -> Result<bool> {
    let level = settings.level;
    let start = out.len();
    if kind == CompressionType::None
        || payload_bytes_max == 0
        || u32::try_from(input.len()).is_err()
    {
        return Ok(false);
    }
    if kind != CompressionType::Snappy {
        put_varint(out, input.len() as u64);
    }
    let prefix = out.len() - start;
    let kept = match payload_bytes_max
        .checked_sub(prefix)
        .filter(|&room| room > 0)
    {
        None => false,
        Some(room) => match kind {
            CompressionType::None => false,
            CompressionType::Snappy => compress_snappy(input, room, out),
            CompressionType::Zlib => zlib::compress(settings, dict, input, room, out),
            CompressionType::BZip2 => compress_bzip2(input, room, out),
            CompressionType::Lz4 => lz4::compress(level, dict, input, room, out)?,
            CompressionType::Lz4hc => lz4::compress_hc(level, dict, input, room, out)?,
            CompressionType::Zstd => zstandard::compress(level, dict, input, room, out)?,
        },
    };
    if !kept {
        out.truncate(start);
    }
    Ok(kept)
}

/// Decompresses the block in `payload`.
///
/// # Errors
/// `Corruption` if the payload is not what the codec writes or is not of its declared size,
/// `NotSupported` for a `format_version` below 2.
pub fn decompress(
    kind: CompressionType,
    payload: &[u8],
    format_version: u32,
    dict: &[u8],
) -> Result<Vec<u8>> {
    if format_version < 2 {
        return Err(Error::not_supported(format!(
            "compressed blocks of format_version {format_version}"
        )));
    }
    if kind == CompressionType::None {
        return Ok(payload.to_vec());
    }
    let (size, body) = size_and_body(kind, payload)?;
    let out = match kind {
        CompressionType::Zlib => zlib::decompress(body, size, dict),
        CompressionType::BZip2 => decompress_bzip2(body, size),
        CompressionType::Lz4 | CompressionType::Lz4hc => lz4::decompress(body, size, dict),
        CompressionType::Zstd => zstandard::decompress(body, size, dict),
        CompressionType::Snappy => {
            let mut out = vec![0; size];
            decompress_snappy(body, &mut out).map(|()| out)
        }
        CompressionType::None => None,
    };
    out.filter(|out| out.len() == size)
        .ok_or_else(|| wrong_size(kind, size))
}

/// The size in bytes of the block in a payload, for [`decompress_into`]. `None` if the codec cannot decompress in
/// place: then only [`decompress`] works.
pub(crate) fn size_in_place(
    kind: CompressionType,
    payload: &[u8],
    format_version: u32,
) -> Result<Option<usize>> {
    let in_place = matches!(
        kind,
        CompressionType::Snappy
            | CompressionType::Lz4
            | CompressionType::Lz4hc
            | CompressionType::Zstd
    );
    if !in_place || format_version < 2 {
        return Ok(None);
    }
    size_and_body(kind, payload).map(|(size, _)| Some(size))
}

/// Decompresses the block in `payload` into `out`, which has the length that [`size_in_place`] tells.
pub(crate) fn decompress_into(
    kind: CompressionType,
    payload: &[u8],
    dict: &[u8],
    out: &mut [u8],
) -> Result<()> {
    let (size, body) = size_and_body(kind, payload)?;
    let done = match kind {
        _ if size != out.len() => None,
        CompressionType::Snappy => decompress_snappy(body, out),
        CompressionType::Lz4 | CompressionType::Lz4hc => lz4::decompress_into(body, dict, out),
        CompressionType::Zstd => zstandard::decompress_into(body, dict, out),
        CompressionType::None | CompressionType::Zlib | CompressionType::BZip2 => None,
    };
    done.ok_or_else(|| wrong_size(kind, size))
}

/// The declared size of the block, which the payload can decompress to, and what the codec reads.
fn size_and_body(kind: CompressionType, payload: &[u8]) -> Result<(usize, &[u8])> {
    let (size, body) = if kind == CompressionType::Snappy {
        let size = snap::raw::decompress_len(payload);
        let size = size.map_err(|e| bad(kind, "has no size").because(e))?;
        (size as u64, payload)
    } else {
        let mut from = Decoder::new(payload);
        let size = from.varint32().ok_or_else(|| bad(kind, "has no size"))?;
        (u64::from(size), from.rest())
    };
    let len = body.len() as u64;
    let size_max = match kind {
        CompressionType::Snappy => len * SNAPPY_RATIO_MAX,
        CompressionType::Zlib => len * ZLIB_RATIO_MAX,
        CompressionType::Lz4 | CompressionType::Lz4hc => len * LZ4_RATIO_MAX,
        CompressionType::Zstd => zstandard::size_max(body.len()),
        CompressionType::None | CompressionType::BZip2 => u64::MAX,
    };
    check_size(kind, size, size_max, body.len())?;
    Ok((size as usize, body))
}

#[cold]
fn wrong_size(kind: CompressionType, size: usize) -> Error {
    bad(kind, &format!("does not decompress to {size} bytes"))
}

fn bad(kind: CompressionType, what: &str) -> Error {
    Error::corruption(format!("{} block {what}", kind.property_name()))
}

fn check_size(kind: CompressionType, size: u64, size_max: u64, body_len: usize) -> Result<()> {
    if size <= size_max {
        return Ok(());
    }
    Err(bad(
        kind,
        &format!("of {body_len} bytes declares {size} bytes"),
    ))
}

/// Grows `out` by `room` bytes for `fill`, which returns how many of them it used; `None` is failure.
fn fill_room(
    out: &mut Vec<u8>,
    room: usize,
    fill: impl FnOnce(&mut [u8]) -> Option<usize>,
) -> bool {
    let start = out.len();
    out.resize(start + room, 0);
    let used = out.get_mut(start..).and_then(fill).filter(|&n| n <= room);
    out.truncate(start + used.unwrap_or(0));
    used.is_some()
}

thread_local! {
    static SNAPPY: RefCell<snap::raw::Encoder> = RefCell::new(snap::raw::Encoder::new());
}

fn compress_snappy(input: &[u8], room: usize, out: &mut Vec<u8>) -> bool {
    let bound = snap::raw::max_compress_len(input.len());
    fill_room(out, bound, |to| {
        let used = SNAPPY.with_borrow_mut(|encoder| encoder.compress(input, to));
        used.ok().filter(|&used| used <= room)
    })
}

fn decompress_snappy(payload: &[u8], out: &mut [u8]) -> Option<()> {
    let used = snap::raw::Decoder::new().decompress(payload, out).ok()?;
    (used == out.len()).then_some(())
}

fn compress_bzip2(input: &[u8], room: usize, out: &mut Vec<u8>) -> bool {
    // Blocks of 100 kB and work factor 30, as RocksDB does.
    let mut stream = bzip2::Compress::new(bzip2::Compression::new(1), 30);
    fill_room(out, room, |to| {
        match stream.compress(input, to, bzip2::Action::Finish) {
            Ok(bzip2::Status::StreamEnd) => usize::try_from(stream.total_out()).ok(),
            _ => None,
        }
    })
}

fn decompress_bzip2(body: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut stream = bzip2::Decompress::new(false);
    let mut out = Vec::with_capacity((size + 1).min(BZIP2_FIRST_BYTES));
    loop {
        let at = usize::try_from(stream.total_in()).ok()?;
        let before = (at, out.len());
        let status = stream.decompress_vec(body.get(at..)?, &mut out).ok()?;
        if status == bzip2::Status::StreamEnd {
            return (stream.total_in() == body.len() as u64).then_some(out);
        }
        if out.len() > size {
            return None;
        }
        if out.len() == out.capacity() {
            out.reserve_exact(out.len().min(size + 1 - out.len()));
        } else if (usize::try_from(stream.total_in()).ok()?, out.len()) == before {
            return None;
        }
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests;
