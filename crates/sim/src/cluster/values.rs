//! The values that simulated clients write, and how they are recognized in reads.
//!
//! The register that is checked is a *unit*, a quarter of a block: so changes of parts of blocks, which the
//! leader merges, are checked as exactly as those of whole ones. A unit consists of one value of eight bytes,
//! repeated. A unit with bytes of two values was never written.

use base::coding::{put_u64, u64_at};
use block::ids::BLOCK;

use super::history::ZERO;

/// Bytes of a unit.
pub const UNIT: usize = BLOCK / 4;
/// Units of a block.
pub const BLOCK_UNITS: u64 = (BLOCK / UNIT) as u64;

/// Appends the bytes of a unit with this value.
pub fn put(out: &mut Vec<u8>, value: u64) {
    for _ in 0..UNIT / 8 {
        put_u64(out, value);
    }
}

/// The value of a unit. Errors: it has bytes of several values.
pub fn value_of(unit: &[u8]) -> Result<u64, String> {
    let words = unit.chunks_exact(8).map(|word| u64_at(word, 0));
    let mut words = words.map(|word| word.unwrap_or(ZERO));
    let first = words.next().unwrap_or(ZERO);
    match words.find(|&word| word != first) {
        None => Ok(first),
        Some(other) => Err(format!(
            "a unit has bytes of value {first:#x} and of value {other:#x}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_back_and_two_are_not_one() {
        let mut bytes = Vec::new();
        put(&mut bytes, 77);
        assert_eq!(bytes.len(), UNIT);
        assert_eq!(value_of(&bytes), Ok(77));
        bytes[UNIT - 8] += 1;
        assert!(value_of(&bytes).unwrap_err().contains("0x4e"));
        assert_eq!(value_of(&[0; UNIT]), Ok(ZERO));
    }
}
