//! Inputs of the kernels: the same bytes in every run, and files in memory.

use std::sync::Arc;

use base::rng::Rng;
use base::{SequenceNumber, ValueType, key};
use io::testing::Memory;

/// Bytes of a value.
const VALUE_LEN: usize = 100;

/// User key number `i`: 16 bytes, in the order of the numbers.
pub(crate) fn user_key(i: u64) -> [u8; 16] {
    let mut key = *b"................";
    key[..8].copy_from_slice(&i.to_be_bytes());
    key
}

/// Version 1 of that key.
pub(crate) fn internal_key(i: u64) -> Vec<u8> {
    key::encode(&user_key(i), SequenceNumber(1), ValueType::Value)
}

/// The internal key at which a reader that sees all sequence numbers seeks the key.
pub(crate) fn seek_key(i: u64) -> Vec<u8> {
    key::encode(&user_key(i), SequenceNumber::MAX, ValueType::FOR_SEEK)
}

/// The numbers from 0 up to `n`, in random order.
pub(crate) fn shuffled(n: u64) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..n).collect();
    let mut rng = Rng::new(1);
    for i in (1..numbers.len()).rev() {
        numbers.swap(i, rng.below(i as u64 + 1) as usize);
    }
    numbers
}

/// Random bytes.
pub(crate) fn bytes(len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    Rng::new(2).fill(&mut out);
    out
}

/// A value like those of the other benchmarks.
pub(crate) fn value() -> Vec<u8> {
    bytes(VALUE_LEN)
}

/// An empty file in memory, so that only our own code is counted, not the system's.
pub(crate) fn file() -> Arc<Memory> {
    zeros(0)
}

/// A file with as many zeros as the later writes need, so that it does not grow while they are counted.
pub(crate) fn zeros(len: u64) -> Arc<Memory> {
    Memory::new("memory", vec![0; len as usize])
}
