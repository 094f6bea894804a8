//! The 64-bit hash of keys in filters: a preview of XXH3 that RocksDB froze.
//!
//! RocksDB adopted XXH3 for its filters before XXH3 was final (xxHash 0.7.2; RocksDB calls its
//! copy XXPH3), and filters on disk have kept that form. It differs from the released XXH3 in
//! the formulas for short inputs, in how long inputs are accumulated, and in the hash of the empty
//! input, so current libraries do not implement it. Block checksums use the released XXH3; see
//! [`crate::checksum`].
//!
//! Inputs of 0, 1–3, 4–8, 9–16, 17–128 and 129–240 bytes have a formula each; longer input is added
//! to eight accumulators, 64 bytes (a stripe) at a time, which are scrambled after each 1024 bytes.
//! Keys are short: the formulas up to 128 bytes are the hot part.

const PRIME32_1: u64 = 0x9e37_79b1;
const PRIME32_2: u64 = 0x85eb_ca77;
const PRIME32_3: u64 = 0xc2b2_ae3d;
const PRIME64_1: u64 = 0x9e37_79b1_85eb_ca87;
const PRIME64_2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const PRIME64_3: u64 = 0x1656_67b1_9e37_79f9;
const PRIME64_4: u64 = 0x85eb_ca77_c2b2_ae63;
const PRIME64_5: u64 = 0x27d4_eb2f_1656_67c5;

const STRIPE_LEN: usize = 64;
const BLOCK_LEN: usize = 1024;
const SECRET_LEN: usize = 192;

/// xxHash's default secret, part of the algorithm.
#[rustfmt::skip]
static SECRET: [u8; SECRET_LEN] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
];

/// The hash of a key that Bloom and Ribbon filters use.
///
/// ```
/// assert_eq!(table::xxph3::hash64(b""), 0x5342_c301_0fe1_dd04);
/// ```
#[inline]
pub fn hash64(data: &[u8]) -> u64 {
    match data.len() {
        0 => fold(secret64(0), PRIME64_2),
        1..=3 => hash_1_to_3(data),
        4..=8 => hash_4_to_8(data),
        9..=16 => hash_9_to_16(data),
        17..=128 => hash_17_to_128(data),
        129..=240 => hash_129_to_240(data),
        _ => hash_long(data),
    }
}

#[inline]
fn hash_1_to_3(data: &[u8]) -> u64 {
    let n = data.len();
    let combined = u64::from(data[0])
        | u64::from(data[n / 2]) << 8
        | u64::from(data[n - 1]) << 16
        | (n as u64) << 24;
    avalanche((combined ^ u64::from(secret64(0) as u32)).wrapping_mul(PRIME64_1))
}

#[inline]
fn hash_4_to_8(data: &[u8]) -> u64 {
    let n = data.len();
    let key = (u64::from(le32(data, 0)) | u64::from(le32(data, n - 4)) << 32) ^ secret64(0);
    let mixed = (n as u64).wrapping_add((key ^ (key >> 51)).wrapping_mul(PRIME32_1));
    avalanche((mixed ^ (mixed >> 47)).wrapping_mul(PRIME64_2))
}

#[inline]
fn hash_9_to_16(data: &[u8]) -> u64 {
    let n = data.len();
    let low = le64(data, 0) ^ secret64(0);
    let high = le64(data, n - 8) ^ secret64(8);
    let sum = (n as u64).wrapping_add(low).wrapping_add(high);
    avalanche(sum.wrapping_add(fold(low, high)))
}

#[inline]
fn hash_17_to_128(data: &[u8]) -> u64 {
    let n = data.len();
    let mut acc = (n as u64).wrapping_mul(PRIME64_1);
    if n > 32 {
        if n > 64 {
            if n > 96 {
                acc = acc
                    .wrapping_add(mix(data, 48, 96))
                    .wrapping_add(mix(data, n - 64, 112));
            }
            acc = acc
                .wrapping_add(mix(data, 32, 64))
                .wrapping_add(mix(data, n - 48, 80));
        }
        acc = acc
            .wrapping_add(mix(data, 16, 32))
            .wrapping_add(mix(data, n - 32, 48));
    }
    acc = acc
        .wrapping_add(mix(data, 0, 0))
        .wrapping_add(mix(data, n - 16, 16));
    avalanche(acc)
}

fn hash_129_to_240(data: &[u8]) -> u64 {
    let n = data.len();
    let mut acc = (n as u64).wrapping_mul(PRIME64_1);
    for i in 0..8 {
        acc = acc.wrapping_add(mix(data, 16 * i, 16 * i));
    }
    acc = avalanche(acc);
    for i in 8..n / 16 {
        acc = acc.wrapping_add(mix(data, 16 * i, 16 * (i - 8) + 3));
    }
    avalanche(acc.wrapping_add(mix(data, n - 16, 119)))
}

fn hash_long(data: &[u8]) -> u64 {
    let mut acc = [
        PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1,
    ];
    let blocks = data.chunks_exact(BLOCK_LEN);
    let rest = blocks.remainder();
    for block in blocks {
        accumulate(&mut acc, block);
        for (i, a) in acc.iter_mut().enumerate() {
            *a = (*a ^ (*a >> 47) ^ secret64(128 + 8 * i)).wrapping_mul(PRIME32_1);
        }
    }
    accumulate(&mut acc, rest);
    if !data.len().is_multiple_of(STRIPE_LEN) {
        stripe(&mut acc, &data[data.len() - STRIPE_LEN..], 121);
    }
    let mut sum = (data.len() as u64).wrapping_mul(PRIME64_1);
    for i in 0..4 {
        let low = acc[2 * i] ^ secret64(11 + 16 * i);
        let high = acc[2 * i + 1] ^ secret64(19 + 16 * i);
        sum = sum.wrapping_add(fold(low, high));
    }
    avalanche(sum)
}

/// The whole stripes of `data`, at most 16 of them.
fn accumulate(acc: &mut [u64; 8], data: &[u8]) {
    for (j, bytes) in data.chunks_exact(STRIPE_LEN).enumerate() {
        stripe(acc, bytes, 8 * j);
    }
}

#[inline]
fn stripe(acc: &mut [u64; 8], bytes: &[u8], secret: usize) {
    for (i, a) in acc.iter_mut().enumerate() {
        let value = le64(bytes, 8 * i);
        let key = value ^ secret64(secret + 8 * i);
        *a = a
            .wrapping_add(value)
            .wrapping_add((key & 0xffff_ffff).wrapping_mul(key >> 32));
    }
}

/// The low half of the 128-bit product, xor the high half.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline(always)]
fn avalanche(mut h: u64) -> u64 {
    h ^= h >> 37;
    h = h.wrapping_mul(PRIME64_3);
    h ^ (h >> 32)
}

#[inline(always)]
fn mix(data: &[u8], at: usize, secret: usize) -> u64 {
    fold(
        le64(data, at) ^ secret64(secret),
        le64(data, at + 8) ^ secret64(secret + 8),
    )
}

#[inline(always)]
fn secret64(at: usize) -> u64 {
    le64(&SECRET, at)
}

/// # Panics
/// If there are fewer than 8 bytes at `at`; callers have checked the length.
#[inline(always)]
fn le64(data: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&data[at..at + 8]);
    u64::from_le_bytes(bytes)
}

#[inline(always)]
fn le32(data: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&data[at..at + 4]);
    u32::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_rocksdb() {
        let all: serde_json::Value =
            serde_json::from_str(include_str!("../tests/data/hashes.json")).unwrap();
        let cases = all["xxph3_64"].as_object().unwrap();
        assert!(cases.len() >= 32);
        for (n, want) in cases {
            let n: usize = n.parse().unwrap();
            let data: Vec<u8> = (0..n).map(|i| (7 * i + 3) as u8).collect();
            let want = u64::from_str_radix(want.as_str().unwrap(), 16).unwrap();
            assert_eq!(hash64(&data), want, "length {n}");
        }
    }

    #[test]
    fn every_length_is_hashed() {
        let data = vec![0x5a; 4200];
        let mut seen = std::collections::HashSet::new();
        for n in 0..data.len() {
            assert!(seen.insert(hash64(&data[..n])), "length {n}");
        }
    }
}
