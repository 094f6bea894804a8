//! LZ4 and LZ4HC for [`compress`](super), on the C library: no other has LZ4HC and dictionaries.
//!
//! Functions that are missing in the `lz4-sys` crate are declared here, as in `lz4.h` and `lz4hc.h` of
//! LZ4 1.10; the crate links them. Each call passes slices by pointer and length. After a call, C keeps
//! no pointer but the stream's pointer to its dictionary, which is set again before each use.
#![deny(clippy::indexing_slicing)]
#![expect(
    unsafe_code,
    reason = "calls the LZ4 library, which has no safe crate with LZ4HC and dictionaries"
)]

use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use base::{Error, ErrorKind, Result};
use lz4_sys::{LZ4_compress_fast, LZ4_decompress_safe, LZ4StreamEncode};

use super::{DEFAULT_LEVEL, fill_room};

/// `LZ4_MAX_INPUT_SIZE`.
const INPUT_LEN_MAX: usize = 0x7e00_0000;
/// The window: matches reach back at most this many bytes.
const WINDOW_LEN: usize = 64 << 10;

/// `LZ4_streamHC_t`.
#[repr(C)]
struct StreamHc {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn LZ4_createStream() -> *mut LZ4StreamEncode;
    fn LZ4_freeStream(stream: *mut LZ4StreamEncode) -> c_int;
    fn LZ4_loadDict(stream: *mut LZ4StreamEncode, dict: *const c_char, len: c_int) -> c_int;
    fn LZ4_compress_fast_continue(
        stream: *mut LZ4StreamEncode,
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        dst_capacity: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_createStreamHC() -> *mut StreamHc;
    fn LZ4_freeStreamHC(stream: *mut StreamHc) -> c_int;
    fn LZ4_resetStreamHC_fast(stream: *mut StreamHc, level: c_int);
    fn LZ4_loadDictHC(stream: *mut StreamHc, dict: *const c_char, len: c_int) -> c_int;
    fn LZ4_compress_HC_continue(
        stream: *mut StreamHc,
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        dst_capacity: c_int,
    ) -> c_int;
    fn LZ4_decompress_safe_usingDict(
        src: *const c_char,
        dst: *mut c_char,
        src_len: c_int,
        dst_capacity: c_int,
        dict: *const c_char,
        dict_len: c_int,
    ) -> c_int;
}

/// A compressor with a dictionary; freed with its thread.
struct Fast(NonNull<LZ4StreamEncode>);

impl Drop for Fast {
    fn drop(&mut self) {
        // SAFETY: the pointer is from LZ4_createStream and is not used again.
        unsafe { LZ4_freeStream(self.0.as_ptr()) };
    }
}

/// An LZ4HC compressor; freed with its thread.
struct Hc(NonNull<StreamHc>);

impl Drop for Hc {
    fn drop(&mut self) {
        // SAFETY: the pointer is from LZ4_createStreamHC and is not used again.
        unsafe { LZ4_freeStreamHC(self.0.as_ptr()) };
    }
}

thread_local! {
    static FAST: RefCell<Option<Fast>> = const { RefCell::new(None) };
    static HC: RefCell<Option<Hc>> = const { RefCell::new(None) };
}

fn no_memory() -> Error {
    Error::new(ErrorKind::Aborted, "LZ4 has no memory for its context")
}

/// The last 64 KiB, which is all that LZ4 uses of a dictionary.
fn window(dict: &[u8]) -> &[u8] {
    dict.get(dict.len().saturating_sub(WINDOW_LEN)..)
        .unwrap_or(dict)
}

/// The length of a slice as a C integer, capped at its maximum.
fn c_len(slice: &[u8]) -> c_int {
    c_int::try_from(slice.len()).unwrap_or(c_int::MAX)
}

/// The number of bytes written, from LZ4's result; `None` if they did not fit.
fn written(result: c_int) -> Option<usize> {
    usize::try_from(result).ok().filter(|&n| n > 0)
}

/// Negative levels are faster and compress less, as in RocksDB; all others are LZ4's default.
pub(super) fn compress(
    level: i32,
    dict: &[u8],
    input: &[u8],
    room: usize,
    out: &mut Vec<u8>,
) -> Result<bool> {
    let acceleration = if level < 0 { level.saturating_neg() } else { 1 };
    if input.len() > INPUT_LEN_MAX {
        return Ok(false);
    }
    if dict.is_empty() {
        return Ok(fill_room(out, room, |to| {
            // SAFETY: reads `input` and writes at most `to.len()` bytes at `to`; both lengths
            // are those of live slices (`to` possibly shortened to fit a C int).
            written(unsafe {
                LZ4_compress_fast(
                    input.as_ptr().cast(),
                    to.as_mut_ptr().cast(),
                    c_len(input),
                    c_len(to),
                    acceleration,
                )
            })
        }));
    }
    FAST.with_borrow_mut(|kept| {
        if kept.is_none() {
            // SAFETY: takes nothing; null means no memory.
            *kept = NonNull::new(unsafe { LZ4_createStream() }).map(Fast);
        }
        let stream = kept.as_ref().ok_or_else(no_memory)?.0.as_ptr();
        let dict = window(dict);
        // SAFETY: `stream` is live and used by this thread alone. Loading forgets what the stream
        // held before. It keeps a pointer to `dict`, which outlives the compression below, the
        // stream's only use until a dictionary is loaded again.
        unsafe { LZ4_loadDict(stream, dict.as_ptr().cast(), c_len(dict)) };
        Ok(fill_room(out, room, |to| {
            // SAFETY: as for LZ4_compress_fast above; the dictionary is alive.
            written(unsafe {
                LZ4_compress_fast_continue(
                    stream,
                    input.as_ptr().cast(),
                    to.as_mut_ptr().cast(),
                    c_len(input),
                    c_len(to),
                    acceleration,
                )
            })
        }))
    })
}

/// Levels are 1 to 12; LZ4HC uses its default for 0 and less, and 12 for anything higher.
pub(super) fn compress_hc(
    level: i32,
    dict: &[u8],
    input: &[u8],
    room: usize,
    out: &mut Vec<u8>,
) -> Result<bool> {
    let level = if level == DEFAULT_LEVEL { 0 } else { level };
    if input.len() > INPUT_LEN_MAX {
        return Ok(false);
    }
    HC.with_borrow_mut(|kept| {
        if kept.is_none() {
            // SAFETY: takes nothing; null means no memory.
            *kept = NonNull::new(unsafe { LZ4_createStreamHC() }).map(Hc);
        }
        let stream = kept.as_ref().ok_or_else(no_memory)?.0.as_ptr();
        // SAFETY: `stream` was made by LZ4_createStreamHC and is used by this thread alone. The
        // reset forgets earlier input and dictionary.
        unsafe { LZ4_resetStreamHC_fast(stream, level) };
        if !dict.is_empty() {
            let dict = window(dict);
            // SAFETY: the stream keeps a pointer to `dict`, which outlives the compression below,
            // the stream's only use until the next reset.
            unsafe { LZ4_loadDictHC(stream, dict.as_ptr().cast(), c_len(dict)) };
        }
        Ok(fill_room(out, room, |to| {
            // SAFETY: reads `input` and writes at most `to.len()` bytes at `to`; both lengths
            // are those of live slices (`to` possibly shortened to fit a C int).
            written(unsafe {
                LZ4_compress_HC_continue(
                    stream,
                    input.as_ptr().cast(),
                    to.as_mut_ptr().cast(),
                    c_len(input),
                    c_len(to),
                )
            })
        }))
    })
}

/// `None` if `body` is not an LZ4 block of at most `size` bytes.
pub(super) fn decompress(body: &[u8], size: usize, dict: &[u8]) -> Option<Vec<u8>> {
    let mut out: Vec<u8> = Vec::with_capacity(size);
    let room = out.spare_capacity_mut().get_mut(..size)?;
    let len = decompress_to(body, dict, room)?;
    // SAFETY: the first `len` bytes were written.
    unsafe { out.set_len(len) };
    Some(out)
}

/// Decompresses into `out`. `None` if `body` is not an LZ4 block of that many bytes.
pub(super) fn decompress_into(body: &[u8], dict: &[u8], out: &mut [u8]) -> Option<()> {
    let size = out.len();
    // SAFETY: of the same layout; only initialised bytes are written.
    let room = unsafe { &mut *(std::ptr::from_mut(out) as *mut [MaybeUninit<u8>]) };
    (decompress_to(body, dict, room)? == size).then_some(())
}

/// Writes what `body` decompresses to at the start of `out`, and returns its length.
fn decompress_to(body: &[u8], dict: &[u8], out: &mut [MaybeUninit<u8>]) -> Option<usize> {
    let capacity = c_int::try_from(out.len()).ok()?;
    let body_len = c_int::try_from(body.len()).ok()?;
    let dict = window(dict);
    let to = out.as_mut_ptr().cast::<c_char>();
    // SAFETY: both functions check hostile input themselves: they read `body_len` bytes of `body`
    // (and the dictionary), and write at most `capacity` bytes, which `out` has.
    let result = unsafe {
        let from = body.as_ptr().cast::<c_char>();
        if dict.is_empty() {
            LZ4_decompress_safe(from, to, body_len, capacity)
        } else {
            let dict_at = dict.as_ptr().cast::<c_char>();
            LZ4_decompress_safe_usingDict(from, to, body_len, capacity, dict_at, c_len(dict))
        }
    };
    // LZ4 returns the number of bytes that it wrote from the start.
    usize::try_from(result).ok().filter(|&len| len <= out.len())
}
