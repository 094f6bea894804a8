//! A write's payload while it is received into a buffer of its own, which is reused.
//!
//! A request's head has 28 bytes, and may announce 32 MiB. The buffer has the full size at once up to 1 MiB,
//! which is as much as kernels send. A larger one grows fourfold as data arrives, at the price of copying a
//! third of it. So a client that announces much and sends nothing occupies little more than 1 MiB.

use base::Result;
use bytes::Bytes;

use crate::memory::buffers::{Buffer, Buffers};

/// Most bytes that are allocated before they have arrived.
pub(super) const AHEAD_BYTES: usize = 1 << 20;
/// Factor by which a full buffer grows.
const GROWTH: usize = 4;

/// A payload that is being received.
#[derive(Debug)]
pub(super) struct Payload {
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) fua: bool,
    /// Bytes of the whole payload.
    len: usize,
    buf: Buffer,
    buffers: Buffers,
    filled: usize,
}

impl Payload {
    /// The payload of a write of `len` bytes, none of which have arrived. Fails if memory is short.
    pub(super) fn new(
        (cookie, offset, fua): (u64, u64, bool),
        len: usize,
        buffers: &Buffers,
    ) -> Result<Self> {
        Ok(Self {
            cookie,
            offset,
            fua,
            len,
            buf: buffers.take(len.min(AHEAD_BYTES))?,
            buffers: buffers.clone(),
            filled: 0,
        })
    }

    /// Bytes of the whole payload.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes that have not arrived.
    pub(super) fn left(&self) -> usize {
        self.len - self.filled
    }

    /// The space for the next bytes: never empty while some are missing.
    pub(super) fn space(&mut self) -> &mut [u8] {
        self.buf.get_mut(self.filled..).unwrap_or_default()
    }

    /// The first `n` bytes of the space have arrived. Fails if memory is short.
    pub(super) fn filled(&mut self, n: usize) -> Result<()> {
        self.filled = (self.filled + n).min(self.buf.len());
        if self.filled == self.buf.len() && self.left() > 0 {
            let mut more = self.buffers.take(self.len.min(self.filled * GROWTH))?;
            copy(&self.buf, self.filled, &mut more);
            self.buf = more;
        }
        Ok(())
    }

    /// Takes the payload's bytes from the beginning of `bytes`; returns their number. Fails if memory is
    /// short.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut taken = 0;
        while self.left() > 0 && taken < bytes.len() {
            let rest = bytes.get(taken..).unwrap_or_default();
            let space = self.space();
            let n = rest.len().min(space.len());
            copy(rest, n, space);
            taken += n;
            self.filled(n)?;
        }
        Ok(taken)
    }

    /// The payload, once all of it has arrived.
    pub(super) fn into_bytes(self) -> Bytes {
        self.buf.into()
    }
}

/// Copies the first `n` bytes.
fn copy(from: &[u8], n: usize, to: &mut [u8]) {
    if let (Some(from), Some(to)) = (from.get(..n), to.get_mut(..n)) {
        to.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use io::buffer::PAGE;

    use super::*;

    #[test]
    fn the_buffer_grows_with_what_is_there() {
        let len = 32 << 20;
        let bytes: Vec<u8> = (0..len).map(|i: usize| (i / 4096 + i) as u8).collect();
        for step in [100_000, 1 << 20, len] {
            let buffers = Buffers::default();
            let mut payload = Payload::new((1, 2, false), len, &buffers).unwrap();
            let mut at = 0;
            while payload.left() > 0 {
                assert!(payload.buf.len() <= AHEAD_BYTES.max(at * GROWTH));
                assert!(!payload.space().is_empty());
                let end = len.min(at + step);
                at += payload.take(bytes.get(at..end).unwrap()).unwrap();
            }
            let all = payload.into_bytes();
            assert!(all == bytes && (all.as_ptr() as usize).is_multiple_of(PAGE));
        }
    }
}
