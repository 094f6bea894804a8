//! zstd for [`compress`](super): contexts and digested dictionaries kept per thread.
//!
//! A file's blocks share one dictionary, and digesting it costs more than compressing a block, so each
//! thread keeps the last digested dictionary. Comparing the dictionary's bytes on each call is cheap
//! compared with a block.
#![deny(clippy::indexing_slicing)]

use std::cell::RefCell;

use base::{Error, ErrorKind, Result};
use zstd::zstd_safe::{
    CCtx, CDict, DCtx, DDict, WriteBuf, get_frame_content_size, max_c_level, min_c_level,
};

use super::{DEFAULT_LEVEL, fill_room};

/// zstd's own default.
const ZSTD_DEFAULT_LEVEL: i32 = 3;
/// A block of a zstd frame has at least 3 bytes and decompresses to at most 128 KiB.
const BLOCK_BYTES_MAX: u64 = 128 << 10;

#[derive(Default)]
struct Encoder {
    context: Option<CCtx<'static>>,
    level: i32,
    dict: Vec<u8>,
    digested: Option<CDict<'static>>,
}

#[derive(Default)]
struct Decoder {
    context: Option<DCtx<'static>>,
    dict: Vec<u8>,
    digested: Option<DDict<'static>>,
}

thread_local! {
    static ENCODER: RefCell<Encoder> = RefCell::default();
    static DECODER: RefCell<Decoder> = RefCell::default();
}

/// The maximum number of bytes that a payload of `len` bytes can decompress to.
pub(super) fn size_max(len: usize) -> u64 {
    (len as u64 / 3 + 1) * BLOCK_BYTES_MAX
}

pub(super) fn compress(
    level: i32,
    dict: &[u8],
    input: &[u8],
    room: usize,
    out: &mut Vec<u8>,
) -> Result<bool> {
    let level = match level {
        DEFAULT_LEVEL => ZSTD_DEFAULT_LEVEL,
        level => level.clamp(min_c_level(), max_c_level()),
    };
    ENCODER.with_borrow_mut(|encoder| {
        let Encoder {
            context,
            level: digested_level,
            dict: digested_dict,
            digested,
        } = encoder;
        if context.is_none() {
            *context = CCtx::try_create();
        }
        let context = context.as_mut().ok_or_else(no_memory)?;
        if dict.is_empty() {
            return Ok(fill_room(out, room, |to| {
                context.compress(to, input, level).ok()
            }));
        }
        if digested.is_none() || *digested_level != level || digested_dict != dict {
            *digested = CDict::try_create(dict, level);
            *digested_level = level;
            dict.clone_into(digested_dict);
        }
        let digested = digested.as_ref().ok_or_else(no_memory)?;
        Ok(fill_room(out, room, |to| {
            context.compress_using_cdict(to, input, digested).ok()
        }))
    })
}

/// `None` if `body` is not one frame of `size` bytes.
pub(super) fn decompress(body: &[u8], size: usize, dict: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(size);
    decode(body, size, dict, &mut out)?;
    Some(out)
}

/// Decompresses into `out`. `None` if `body` is not one frame of that many bytes.
pub(super) fn decompress_into(body: &[u8], dict: &[u8], out: &mut [u8]) -> Option<()> {
    let size = out.len();
    (decode(body, size, dict, out)? == size).then_some(())
}

/// Writes the content of the frame, which has `size` bytes, to `out`, and returns how many bytes it has written.
fn decode<B: WriteBuf + ?Sized>(
    body: &[u8],
    size: usize,
    dict: &[u8],
    out: &mut B,
) -> Option<usize> {
    if let Some(declared) = get_frame_content_size(body).ok()?
        && declared != size as u64
    {
        return None;
    }
    DECODER.with_borrow_mut(|decoder| {
        let Decoder {
            context,
            dict: digested_dict,
            digested,
        } = decoder;
        if context.is_none() {
            *context = DCtx::try_create();
        }
        let context = context.as_mut()?;
        if dict.is_empty() {
            return context.decompress(out, body).ok();
        }
        if digested.is_none() || digested_dict != dict {
            *digested = DDict::try_create(dict);
            dict.clone_into(digested_dict);
        }
        context
            .decompress_using_ddict(out, body, digested.as_ref()?)
            .ok()
    })
}

fn no_memory() -> Error {
    Error::new(ErrorKind::Aborted, "zstd has no memory for its context")
}
