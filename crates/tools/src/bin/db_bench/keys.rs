//! Keys and values in exactly the form that RocksDB's db_bench writes, so that each program can
//! read the other's databases.
//!
//! ```text
//!   key 258, 16 bytes:  00 00 00 00 00 00 01 02  30 30 30 30 30 30 30 30
//!                       big-endian               the digit '0'
//!   with a prefix:      number modulo the number of prefixes, as long as the prefix, then as above
//! ```

use std::sync::Arc;

use base::rng::Rng;
use base::{Error, Result};

use crate::flags::Flags;

/// The format of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) len: usize,
    form: Form,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    Number,
    /// Bytes of the prefix, and the number of distinct prefixes.
    Prefixed(usize, u64),
    /// Keys that a database has.
    Existing(Arc<Vec<Vec<u8>>>),
}

impl Keys {
    /// `num` keys of `len` bytes.
    pub(crate) fn new(flags: &Flags, len: usize, num: u64) -> Self {
        let prefixes = num.checked_div(flags.keys_per_prefix.unsigned_abs());
        let prefixes = prefixes.filter(|&n| flags.prefix_size > 0 && n > 0);
        Self {
            len,
            form: prefixes.map_or(Form::Number, |n| {
                Form::Prefixed(flags.prefix_size as usize, n)
            }),
        }
    }

    /// The existing keys of the database, if they were read, to use instead of numbers.
    pub(crate) fn or_existing(mut self, keys: Option<&Arc<Vec<Vec<u8>>>>) -> Self {
        if let Some(keys) = keys.filter(|keys| !keys.is_empty()) {
            self.form = Form::Existing(Arc::clone(keys));
        }
        self
    }

    /// A buffer for a key.
    pub(crate) fn room(&self) -> Vec<u8> {
        vec![0; self.len]
    }

    /// Writes key number `number` into `key`.
    #[inline]
    pub(crate) fn write(&self, number: u64, key: &mut Vec<u8>) {
        match &self.form {
            Form::Number => write_number(number, key),
            Form::Prefixed(len, prefixes) => {
                let len = (*len).min(key.len());
                let (prefix, rest) = key.split_at_mut(len);
                write_number(number % prefixes, prefix);
                write_number(number, rest);
            }
            Form::Existing(keys) => {
                key.clear();
                key.extend_from_slice(&keys[(number % keys.len() as u64) as usize]);
            }
        }
    }

    /// The same for the target of a seek: with `--seek_missing_prefix` no key has its prefix.
    #[inline]
    pub(crate) fn write_for_seek(&self, number: u64, flags: &Flags, key: &mut Vec<u8>) {
        self.write(number, key);
        // Behind the 8 bytes of its number a prefix has zeros.
        if flags.seek_missing_prefix
            && let Some(byte) = key.get_mut(8)
        {
            *byte = b'1';
        }
    }
}

/// Writes the number as big-endian in the first 8 bytes (or fewer, if the buffer is shorter), then
/// fills with the digit `0`.
#[inline]
fn write_number(number: u64, place: &mut [u8]) {
    let digits = number.to_be_bytes();
    if let Some((head, tail)) = place.split_first_chunk_mut::<8>() {
        *head = digits;
        tail.fill(b'0');
    } else {
        let len = place.len();
        place.copy_from_slice(&digits[8 - len..]);
    }
}

/// Random key numbers below `num`, uniform or with a skew: in a shuffled order, the first number is
/// drawn `e^skew` times as often as the last.
#[inline]
pub(crate) fn random_number(rng: &mut Rng, num: u64, skew: f64) -> u64 {
    /// Much larger than any number of keys, so that keys of similar popularity are not adjacent.
    const MIX: u64 = 0x5bd1_e995;
    let random = rng.next_u64();
    let num = num.max(1);
    if skew == 0.0 {
        return random % num;
    }
    let share = random as f64 / 2f64.powi(64);
    let rank = ((-share * skew).exp() * num as f64) as u64;
    rank.wrapping_mul(MIX) % num
}

/// The lengths of values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sizes {
    Fixed(usize),
    Uniform(usize, usize),
    Normal(usize, usize),
}

impl Sizes {
    /// The distribution that the flags name. Errors: an unknown name, or an empty range.
    pub(crate) fn new(flags: &Flags, fixed: usize) -> Result<Self> {
        let (min, max) = (flags.value_size_min, flags.value_size_max);
        let kind = flags.value_size_distribution_type.as_str();
        if kind != "fixed" && !(0..=max).contains(&min) {
            return Err(Error::invalid_argument(format!(
                "value_size_min {min}, value_size_max {max}: must be from 0 on, and in this order"
            )));
        }
        let (min, max) = (min as usize, max as usize);
        Ok(match kind {
            "fixed" => Self::Fixed(fixed),
            "uniform" => Self::Uniform(min, max),
            "normal" => Self::Normal(min, max),
            other => {
                return Err(Error::invalid_argument(format!(
                    "value_size_distribution_type {other}: must be fixed, uniform or normal"
                )));
            }
        })
    }

    fn max(self) -> usize {
        match self {
            Self::Fixed(len) => len,
            Self::Uniform(_, max) | Self::Normal(_, max) => max,
        }
    }

    /// The next length. For a normal distribution, the mean is in the middle of the range, and its
    /// ends are three standard deviations away.
    #[inline]
    fn next(self, rng: &mut Rng) -> usize {
        match self {
            Self::Fixed(len) => len,
            Self::Uniform(min, max) => min + rng.below((max - min + 1) as u64) as usize,
            Self::Normal(min, max) => {
                let (mean, deviation) = ((min + max) as f64 / 2.0, (max - min) as f64 / 6.0);
                let len = mean + deviation * standard_normal(rng);
                len.clamp(min as f64, max as f64) as usize
            }
        }
    }
}

/// A random number with standard normal distribution (Box and Muller, 1958).
pub(crate) fn standard_normal(rng: &mut Rng) -> f64 {
    let unit = |rng: &mut Rng| (rng.next_u64() as f64 + 1.0) / (2f64.powi(64) + 1.0);
    let (radius, angle) = (unit(rng), unit(rng));
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// Provides values: slices of a text of 1 MiB with the requested compression ratio.
pub(crate) struct Values {
    data: Vec<u8>,
    at: usize,
    sizes: Sizes,
    rng: Rng,
    /// Percentage of values that equal the first value.
    same: u64,
}

impl Values {
    /// Values with these lengths. In each 100 bytes of the text, a share of `ratio` are new random
    /// printable characters, and the rest repeats them.
    pub(crate) fn new(sizes: Sizes, ratio: f64) -> Self {
        const PIECE: usize = 100;
        let mut rng = Rng::new(301);
        let total = sizes.max().max(1 << 20);
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
        Self {
            data,
            at: 0,
            sizes,
            rng,
            same: 0,
        }
    }

    /// Sets the percentage of values that are the same.
    pub(crate) fn with_same(mut self, percent: i32) -> Self {
        self.same = percent.max(0).unsigned_abs().into();
        self
    }

    /// The next value.
    #[inline]
    pub(crate) fn next(&mut self) -> &[u8] {
        let len = self.sizes.next(&mut self.rng);
        self.take(len)
    }

    /// The next `len` bytes, or fewer if the text is shorter.
    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> &[u8] {
        let len = len.min(self.data.len());
        if self.same > 0 && self.rng.below(100) < self.same {
            return &self.data[..len];
        }
        if self.at + len > self.data.len() {
            self.at = 0;
        }
        self.at += len;
        &self.data[self.at - len..self.at]
    }
}

/// All numbers below `count`, each once, in an order that the seed determines: a Feistel network of
/// four rounds over the next power of four, applied repeatedly until the result is below `count`. It
/// needs no memory.
pub(crate) struct Shuffled {
    count: u64,
    half_bits: u32,
    rounds: [u64; 4],
}

impl Shuffled {
    pub(crate) fn new(count: u64, rng: &mut Rng) -> Self {
        let bits = (u64::BITS - count.saturating_sub(1).leading_zeros()).max(2);
        let mut round = || rng.next_u64() | 1;
        Self {
            count,
            half_bits: bits.div_ceil(2),
            rounds: [round(), round(), round(), round()],
        }
    }

    /// The number at position `i`, which must be below the count.
    pub(crate) fn at(&self, i: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let mut number = i;
        loop {
            let (mut left, mut right) = (number >> self.half_bits, number & mask);
            for round in self.rounds {
                let mixed = (right.wrapping_add(round)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(round) >> 32;
                (left, right) = (right, left ^ (mixed & mask));
            }
            number = left << self.half_bits | right;
            if number < self.count {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_key(number: u64, key: &mut [u8]) {
        let mut room = key.to_vec();
        Keys::new(&Flags::default(), key.len(), 100).write(number, &mut room);
        key.copy_from_slice(&room);
    }

    #[test]
    fn keys_that_a_database_has() {
        let existing = Arc::new(vec![b"one".to_vec(), b"three".to_vec()]);
        let keys = Keys::new(&Flags::default(), 16, 2).or_existing(Some(&existing));
        let mut key = keys.room();
        keys.write(1, &mut key);
        assert_eq!(key, b"three");
        keys.write(2, &mut key);
        assert_eq!(key, b"one");
        let none = Keys::new(&Flags::default(), 16, 2).or_existing(None);
        assert_eq!(none, Keys::new(&Flags::default(), 16, 2));
    }

    #[test]
    fn some_values_are_the_same() {
        let count = |percent| {
            let mut values = Values::new(Sizes::Fixed(50), 1.0).with_same(percent);
            let first = values.data[..50].to_vec();
            (0..1000).filter(|_| values.next() == first).count()
        };
        assert_eq!((count(0), count(100)), (1, 1000));
        assert!((250..350).contains(&count(30)), "{}", count(30));
    }

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
    fn keys_with_prefixes() {
        let flags = Flags {
            prefix_size: 10,
            keys_per_prefix: 20,
            ..Flags::default()
        };
        let keys = Keys::new(&flags, 20, 100);
        let mut key = keys.room();
        keys.write(7, &mut key); // 5 prefixes
        assert_eq!(key, *b"\0\0\0\0\0\0\0\x0200\0\0\0\0\0\0\0\x0700");
        let missing = Flags {
            seek_missing_prefix: true,
            ..flags
        };
        keys.write_for_seek(7, &missing, &mut key);
        assert_eq!(&key[..10], b"\0\0\0\0\0\0\0\x0210");
    }

    #[test]
    fn values_repeat_half_of_each_piece() {
        let mut values = Values::new(Sizes::Fixed(100), 0.5);
        let first = values.next().to_vec();
        assert_eq!(first[..50], first[50..]);
        assert!(first.iter().all(|b| (b' '..=b'~').contains(b)));
        assert_ne!(first, values.next());
        assert_eq!(Values::new(Sizes::Fixed(0), 0.5).next(), b"");
        assert_eq!(
            Values::new(Sizes::Fixed(3 << 20), 1.0).next().len(),
            3 << 20
        );
    }

    #[test]
    fn values_have_the_lengths_asked_for() {
        for (sizes, spread) in [
            (Sizes::Uniform(10, 110), 25.0), // mean distance from the mean: a quarter of the range
            (Sizes::Normal(10, 110), 13.3),  // deviation / 6, times sqrt(2 / pi)
        ] {
            let mut values = Values::new(sizes, 0.5);
            let lens: Vec<f64> = (0..10_000).map(|_| values.next().len() as f64).collect();
            assert!(lens.iter().all(|l| (10.0..=110.0).contains(l)));
            let mean = lens.iter().sum::<f64>() / 1e4;
            let from_mean = lens.iter().map(|l| (l - mean).abs()).sum::<f64>() / 1e4;
            assert!((mean - 60.0).abs() < 2.0, "{sizes:?}: mean {mean}");
            assert!((from_mean - spread).abs() < 1.0, "{sizes:?}: {from_mean}");
        }
    }

    #[test]
    fn a_shuffle_has_every_number_once() {
        for count in [1, 2, 5, 1000, 4097] {
            let shuffled = Shuffled::new(count, &mut Rng::new(count));
            let mut all: Vec<u64> = (0..count).map(|i| shuffled.at(i)).collect();
            let in_order = (0..count).eq(all.iter().copied());
            assert!(!in_order || count < 3);
            all.sort_unstable();
            assert!((0..count).eq(all), "{count}");
        }
    }

    #[test]
    fn a_skew_makes_few_keys_hot() {
        let mut rng = Rng::new(1);
        let mut counts = vec![0u32; 1000];
        for _ in 0..100_000 {
            counts[random_number(&mut rng, 1000, 10.0) as usize] += 1;
        }
        counts.sort_unstable();
        let hottest: u32 = counts[990..].iter().sum();
        assert!(hottest > 30_000, "{hottest}");
    }
}
