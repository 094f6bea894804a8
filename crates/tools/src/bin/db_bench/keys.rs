//! Keys and values, byte for byte of the form that RocksDB's db_bench writes, so that each can
//! read the other's databases.
//!
//! ```text
//!   key 258, 16 bytes:  00 00 00 00 00 00 01 02  30 30 30 30 30 30 30 30
//!                       big-endian               the digit '0'
//! ```

use base::rng::Rng;

/// Writes key number `number` into `key`: big-endian in the first 8 bytes (in all of a shorter
/// key), then the digit `0`.
#[inline]
pub(crate) fn write_key(number: u64, key: &mut [u8]) {
    let digits = number.to_be_bytes();
    if let Some((head, tail)) = key.split_first_chunk_mut::<8>() {
        *head = digits;
        tail.fill(b'0');
    } else {
        let len = key.len();
        key.copy_from_slice(&digits[8 - len..]);
    }
}

/// Hands out values: slices of 1 MiB of text that compresses as asked for.
pub(crate) struct Values {
    data: Vec<u8>,
    at: usize,
    len: usize,
}

impl Values {
    /// Values of `len` bytes. Each 100 bytes of the text are printable random characters,
    /// `ratio` of them new, the rest their repetition.
    pub(crate) fn new(len: usize, ratio: f64) -> Self {
        const PIECE: usize = 100;
        let mut rng = Rng::new(301);
        let total = len.max(1 << 20);
        let new = ((PIECE as f64 * ratio) as usize).max(1);
        let mut data = Vec::with_capacity(total + PIECE);
        while data.len() < total {
            let start = data.len();
            data.extend((0..new).map(|_| b' ' + rng.below(95) as u8));
            while data.len() < start + PIECE {
                let more = new.min(start + PIECE - data.len());
                data.extend_from_within(start..start + more);
            }
        }
        Self { data, at: 0, len }
    }

    /// The next value.
    #[inline]
    pub(crate) fn next(&mut self) -> &[u8] {
        if self.at + self.len > self.data.len() {
            self.at = 0;
        }
        self.at += self.len;
        &self.data[self.at - self.len..self.at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_rocksdbs_bytes() {
        // `ldb scan --hex` of a database that RocksDB 7.8.3's fillseq wrote shows keys of this
        // form, and its readrandom finds all of ours.
        let mut key = [0xff; 16];
        write_key(258, &mut key);
        assert_eq!(key, *b"\0\0\0\0\0\0\x01\x0200000000");
        let mut short = [0xff; 4];
        write_key(0x0102_0304_0506_0708, &mut short);
        assert_eq!(short, [5, 6, 7, 8]);
        let mut eight = [0xff; 8];
        write_key(1, &mut eight);
        assert_eq!(eight, [0, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn values_repeat_half_of_each_piece() {
        let mut values = Values::new(100, 0.5);
        let first = values.next().to_vec();
        assert_eq!(first[..50], first[50..]);
        assert!(first.iter().all(|b| (b' '..=b'~').contains(b)));
        assert_ne!(first, values.next());
        assert_eq!(Values::new(0, 0.5).next(), b"");
        assert_eq!(Values::new(3 << 20, 1.0).next().len(), 3 << 20);
    }
}
