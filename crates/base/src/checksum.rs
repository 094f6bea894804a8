//! CRC-32C (Castagnoli) and RocksDB's mask over it.
//!
//! Stored checksums are *masked*, because the CRC of data that itself contains CRCs would be weaker.
//! Source of the constants: RocksDB `util/crc32c.h`.

use crc_fast::{CrcAlgorithm, Digest, checksum};

const MASK_DELTA: u32 = 0xa282_ead8;

/// CRC-32C of `data`.
///
/// ```
/// assert_eq!(base::checksum::crc32c(b"123456789"), 0xe306_9283);
/// ```
#[inline]
pub fn crc32c(data: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, data) as u32
}

/// CRC-32C of the concatenation of `parts`.
pub fn crc32c_parts(parts: &[&[u8]]) -> u32 {
    let mut d = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for p in parts {
        d.update(p);
    }
    d.finalize() as u32
}

/// CRC-32C of data that comes in pieces.
///
/// ```
/// let mut crc = base::checksum::Crc32c::new();
/// crc.update(b"12345");
/// crc.update(b"6789");
/// assert_eq!(crc.value(), 0xe306_9283);
/// ```
pub struct Crc32c(Digest);

impl Crc32c {
    /// The checksum of no data.
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Takes the next piece.
    pub fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    /// The checksum of everything so far.
    pub fn value(&self) -> u32 {
        self.0.finalize() as u32
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Crc32c {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Crc32c({:08x})", self.value())
    }
}

/// The masked form of the checksum `crc`, which is stored.
#[inline]
pub fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(MASK_DELTA)
}

/// The checksum whose masked form is `masked`.
#[inline]
pub fn unmask(masked: u32) -> u32 {
    masked.wrapping_sub(MASK_DELTA).rotate_left(15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors() {
        assert_eq!(crc32c(b""), 0);
        assert_eq!(crc32c(&[0u8; 32]), 0x8a91_36aa);
        assert_eq!(crc32c_parts(&[b"1234", b"", b"56789"]), 0xe306_9283);
        let c = crc32c(b"foo");
        assert_ne!(mask(c), c);
        assert_eq!(unmask(mask(c)), c);
        assert_eq!(unmask(unmask(mask(mask(c)))), c);
    }
}
