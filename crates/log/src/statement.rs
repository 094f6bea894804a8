//! The encoding that fences and notes share: a magic, numbers, and a checksum, in two forms.
//!
//! ```text
//!   magic [8] | N numbers u64, the last is the nonce | crc u32
//!   magic [8] | N - 1 numbers u64                    | crc u32      the older form, without a nonce
//! ```
//!
//! Little-endian; the crc is masked CRC-32C of the bytes before it.
#![deny(clippy::indexing_slicing)]

use base::checksum::{crc32c, mask, unmask};
use base::coding::Decoder;

/// A kind of statement with `N` numbers.
pub(crate) struct Statement<const N: usize> {
    pub(crate) magic: [u8; 8],
    /// The magic of the older form.
    pub(crate) old_magic: [u8; 8],
}

impl<const N: usize> Statement<N> {
    /// Encoded length in bytes.
    pub(crate) const LEN: usize = 8 + 8 * N + 4;
    /// Encoded length of the older form.
    const OLD_LEN: usize = Self::LEN - 8;

    /// Encodes `numbers`: in the older form if the last number, the nonce, is 0.
    pub(crate) fn encode(&self, numbers: [u64; N]) -> Vec<u8> {
        let (magic, numbers) = match numbers.split_last() {
            Some((0, old)) => (self.old_magic, old),
            _ => (self.magic, &numbers[..]),
        };
        let mut out = Vec::with_capacity(Self::LEN);
        out.extend_from_slice(&magic);
        for number in numbers {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let crc = mask(crc32c(&out));
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Decodes the statement at the start of `bytes`: its numbers and its length. `None` if there is
    /// none with a correct checksum. The nonce is 0 in the older form, and never in the newer one.
    pub(crate) fn decode(&self, bytes: &[u8]) -> Option<([u64; N], usize)> {
        let old = bytes.starts_with(&self.old_magic);
        if !old && !bytes.starts_with(&self.magic) {
            return None;
        }
        let (len, given) = if old {
            (Self::OLD_LEN, N - 1)
        } else {
            (Self::LEN, N)
        };
        let (body, crc) = bytes.get(..len)?.split_last_chunk::<4>()?;
        if crc32c(body) != unmask(u32::from_le_bytes(*crc)) {
            return None;
        }
        let mut decoder = Decoder::new(body.get(self.magic.len()..)?);
        let mut numbers = [0; N];
        for number in numbers.iter_mut().take(given) {
            *number = decoder.u64()?;
        }
        (old || numbers.last() != Some(&0)).then_some((numbers, len))
    }
}
