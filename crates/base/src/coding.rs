//! Integers and slices as RocksDB's files store them: little-endian fixed widths, LEB128
//! varints, and length-prefixed slices (docs/formats.md, "Primitives").
//!
//! [`Decoder`] reads from a byte slice. It never panics and never allocates: if the input is too short
//! or malformed, it returns `None`, and the caller, which knows the file and the field, makes the
//! error.
#![deny(clippy::indexing_slicing)]

/// Longest encoding of a `u32` varint.
pub const MAX_VARINT32_LEN: usize = 5;
/// Longest encoding of a `u64` varint.
pub const MAX_VARINT64_LEN: usize = 10;

/// Appends `v` as 2 little-endian bytes.
pub fn put_u16(out: &mut Vec<u8>, v: u16) {
    out.extend_from_slice(&v.to_le_bytes());
}

/// Appends `v` as 4 little-endian bytes.
pub fn put_u32(out: &mut Vec<u8>, v: u32) {
    out.extend_from_slice(&v.to_le_bytes());
}

/// Appends `v` as 8 little-endian bytes.
pub fn put_u64(out: &mut Vec<u8>, v: u64) {
    out.extend_from_slice(&v.to_le_bytes());
}

/// Appends `v` as a LEB128 varint of 1 to 10 bytes.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Appends `v` as a zigzag varint: small magnitudes of either sign are short.
pub fn put_varint_signed(out: &mut Vec<u8>, v: i64) {
    put_varint(out, ((v << 1) ^ (v >> 63)) as u64);
}

/// Appends the length of `s` as a varint, then its bytes.
///
/// # Panics
/// If `s` is 4 GiB or longer, which the format cannot express. Callers check the length first.
#[inline]
pub fn put_slice(out: &mut Vec<u8>, s: &[u8]) {
    assert!(
        u32::try_from(s.len()).is_ok(),
        "slice of {} bytes does not fit the format",
        s.len()
    );
    put_varint(out, s.len() as u64);
    out.extend_from_slice(s);
}

/// Number of bytes that [`put_varint`] appends for `v`.
pub fn varint_len(v: u64) -> usize {
    (64 - (v | 1).leading_zeros() as usize).div_ceil(7)
}

/// The little-endian `u32` at `at`, or `None` if it does not lie inside `b`.
#[inline]
pub fn u32_at(b: &[u8], at: usize) -> Option<u32> {
    let s = b.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(s.try_into().ok()?))
}

/// The little-endian `u64` at `at`, or `None` if it does not lie inside `b`.
#[inline]
pub fn u64_at(b: &[u8], at: usize) -> Option<u64> {
    let s = b.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(s.try_into().ok()?))
}

/// A cursor over bytes from disk.
///
/// ```
/// use base::coding::{put_slice, put_varint, Decoder};
/// let mut b = Vec::new();
/// put_varint(&mut b, 300);
/// put_slice(&mut b, b"key");
/// let mut d = Decoder::new(&b);
/// assert_eq!(d.varint64(), Some(300));
/// assert_eq!(d.slice(), Some(&b"key"[..]));
/// assert!(d.is_empty());
/// assert_eq!(d.u8(), None);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// A cursor at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Number of bytes not read yet.
    pub fn len(&self) -> usize {
        self.rest.len()
    }

    /// True if everything was read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `n` bytes.
    #[inline]
    pub fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(head)
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        let (&b, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(b)
    }

    /// A little-endian `u16`.
    pub fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.bytes(2)?.try_into().ok()?))
    }

    /// A little-endian `u32`.
    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes(4)?.try_into().ok()?))
    }

    /// A little-endian `u64`.
    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(8)?.try_into().ok()?))
    }

    /// A varint that fits 32 bits; at most 5 bytes.
    #[inline]
    pub fn varint32(&mut self) -> Option<u32> {
        if let Some((&b, rest)) = self.rest.split_first()
            && b < 0x80
        {
            self.rest = rest;
            return Some(u32::from(b));
        }
        let v = self.varint(MAX_VARINT32_LEN)?;
        u32::try_from(v).ok()
    }

    /// A varint that fits 64 bits; at most 10 bytes.
    #[inline]
    pub fn varint64(&mut self) -> Option<u64> {
        self.varint(MAX_VARINT64_LEN)
    }

    /// A zigzag varint.
    pub fn varint_signed(&mut self) -> Option<i64> {
        let v = self.varint64()?;
        Some((v >> 1) as i64 ^ -((v & 1) as i64))
    }

    /// A length-prefixed slice.
    #[inline]
    pub fn slice(&mut self) -> Option<&'a [u8]> {
        let saved = self.rest;
        let n = self.varint32()? as usize;
        let s = self.bytes(n);
        if s.is_none() {
            self.rest = saved;
        }
        s
    }

    #[inline]
    fn varint(&mut self, max_len: usize) -> Option<u64> {
        let mut v = 0u64;
        for (i, &b) in self.rest.iter().take(max_len).enumerate() {
            let low = u64::from(b & 0x7f);
            if i == 9 && low > 1 {
                return None;
            }
            v |= low << (7 * i);
            if b < 0x80 {
                self.rest = self.rest.get(i + 1..)?;
                return Some(v);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn varints_that_do_not_fit_are_refused() {
        assert_eq!(Decoder::new(&[0x80]).varint64(), None);
        assert_eq!(Decoder::new(&[0xff; 10]).varint64(), None);
        assert_eq!(
            Decoder::new(&[0xff, 0xff, 0xff, 0xff, 0x1f]).varint32(),
            None
        );
        assert_eq!(
            Decoder::new(&[0xff, 0xff, 0xff, 0xff, 0x0f]).varint32(),
            Some(u32::MAX)
        );
        // A non-minimal encoding is read, as RocksDB does.
        assert_eq!(Decoder::new(&[0x81, 0x00]).varint64(), Some(1));
        assert_eq!(Decoder::new(&[5, 1, 2]).slice(), None);
    }

    proptest! {
        #[test]
        fn integers_round_trip(v: u64, s: i64, w: u32) {
            let mut b = Vec::new();
            put_varint(&mut b, v);
            prop_assert_eq!(b.len(), varint_len(v));
            put_varint_signed(&mut b, s);
            put_varint(&mut b, u64::from(w));
            put_u64(&mut b, v);
            let mut d = Decoder::new(&b);
            prop_assert_eq!(d.varint64(), Some(v));
            prop_assert_eq!(d.varint_signed(), Some(s));
            prop_assert_eq!(d.varint32(), Some(w));
            prop_assert_eq!(d.u64(), Some(v));
            prop_assert!(d.is_empty());
        }

        #[test]
        fn any_bytes_decode_without_panic(b: Vec<u8>) {
            let mut d = Decoder::new(&b);
            while d.slice().is_some() {}
            let mut d = Decoder::new(&b);
            while d.varint64().is_some() {}
        }
    }
}
