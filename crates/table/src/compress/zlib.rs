//! zlib for [`compress`](super): raw deflate, contexts kept per thread.
//!
//! RocksDB always inflates with a window of 2^14 and without a header, whatever settings a table was
//! written with. So streams written here never have a larger window, or a header.
#![deny(clippy::indexing_slicing)]

use std::cell::RefCell;

use zlib_rs::{
    Deflate, DeflateConfig, DeflateFlush, Inflate, InflateFlush, Method, Status, Strategy,
};

use super::{CompressionSettings, DEFAULT_LEVEL, fill_room};

/// zlib's own default.
const ZLIB_DEFAULT_LEVEL: i32 = 6;
/// zlib's memory level, the same as RocksDB's.
const MEM_LEVEL: i32 = 8;
/// zlib's largest window; it also reads streams with any smaller window.
const WINDOW_BITS_MAX: u8 = 15;

type Choice = (i32, i32, i32);

thread_local! {
    static DEFLATE: RefCell<Option<(Choice, Deflate)>> = const { RefCell::new(None) };
    static INFLATE: RefCell<Inflate> = RefCell::new(Inflate::new(false, WINDOW_BITS_MAX));
}

/// A stream for these settings; the window is clamped to the allowed range.
fn stream(settings: &CompressionSettings, level: i32) -> Deflate {
    Deflate::new_with_config(DeflateConfig {
        level,
        method: Method::Deflated,
        window_bits: settings.window_bits.clamp(-14, -9),
        mem_level: MEM_LEVEL,
        strategy: Strategy::try_from(settings.strategy).unwrap_or_default(),
    })
}

pub(super) fn compress(
    settings: &CompressionSettings,
    dict: &[u8],
    input: &[u8],
    room: usize,
    out: &mut Vec<u8>,
) -> bool {
    let level = match settings.level {
        DEFAULT_LEVEL | -1 => ZLIB_DEFAULT_LEVEL,
        level => level.clamp(0, 9),
    };
    let choice = (level, settings.window_bits, settings.strategy);
    DEFLATE.with_borrow_mut(|kept| {
        if kept.as_ref().is_none_or(|(c, _)| *c != choice) {
            *kept = None;
        }
        let mut fresh;
        let deflate = if dict.is_empty() {
            let (_, kept) = kept.get_or_insert_with(|| (choice, stream(settings, level)));
            kept.reset();
            kept
        } else {
            // With a dictionary, the output of a stream that is reset depends on its earlier input,
            // and a table must not depend on which thread compressed it.
            fresh = stream(settings, level);
            if fresh.set_dictionary(dict).is_err() {
                return false;
            }
            &mut fresh
        };
        fill_room(out, room, |to| {
            match deflate.compress(input, to, DeflateFlush::Finish) {
                Ok(Status::StreamEnd) => usize::try_from(deflate.total_out()).ok(),
                _ => None,
            }
        })
    })
}

/// `None` if `body` is not a stream of at most `size` bytes.
pub(super) fn decompress(body: &[u8], size: usize, dict: &[u8]) -> Option<Vec<u8>> {
    INFLATE.with_borrow_mut(|inflate| {
        inflate.reset(false);
        if !dict.is_empty() {
            inflate.set_dictionary(dict).ok()?;
        }
        // One byte more than expected, to detect a stream that is too long.
        let mut out = vec![0; size + 1];
        let status = inflate
            .decompress(body, &mut out, InflateFlush::Finish)
            .ok()?;
        let all_read = inflate.total_in() == body.len() as u64;
        out.truncate(usize::try_from(inflate.total_out()).ok()?);
        (status == Status::StreamEnd && all_read).then_some(out)
    })
}
