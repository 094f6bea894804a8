//! Unique ids of tables, and the session ids from which they are made.
//!
//! A table's properties name the database and the session (one opening of the database) that made it,
//! and its file number. These three determine a 128-bit id, which the MANIFEST stores too: a reader
//! refuses to open a table with another id, because the file was replaced.
//!
//! ```text
//! session id   8 digits A | 12 digits B         base 36, upper case; 13 to 24 digits are read
//! upper, lower A >> 2, (B mod 2^62) | A << 62
//! id           u64 lower | u64 high64(XXH3_128(db id, seed upper)) xor file number
//! ```
//! Source: RocksDB `table/unique_id.cc`.

use base::rng::Rng;
use twox_hash::XxHash3_128;

const LOW_DIGITS: usize = 12;
const HIGH_DIGITS: usize = 8;
const LOW_BITS: u32 = 62;
const LOW_MASK: u64 = (1 << LOW_BITS) - 1;

/// The id of the table that session `session_id` of database `db_id` made under `file_number`, as the
/// MANIFEST stores it; `None` if a part is missing or the session id is malformed.
///
/// ```
/// use table::unique_id::internal_unique_id;
/// assert_eq!(internal_unique_id("db", "not a session", 9), None);
/// ```
pub fn internal_unique_id(db_id: &str, session_id: &str, file_number: u64) -> Option<[u8; 16]> {
    if db_id.is_empty() || file_number == 0 {
        return None;
    }
    let (upper, lower) = decode_session(session_id)?;
    let hash = XxHash3_128::oneshot_with_seed(upper, db_id.as_bytes());
    let high = (hash >> 64) as u64 ^ file_number;
    Some((u128::from(high) << 64 | u128::from(lower)).to_le_bytes())
}

/// Added to the lower half of an internal id, and [`HIGH_OFFSET`] to the upper one. The hash of these two
/// numbers is zero, so the id zero stays zero.
const LOW_OFFSET: u64 = 0x590e_b907_c873_e891;
const HIGH_OFFSET: u64 = 0xf159_8607_fb45_cbd8;

/// The id as RocksDB shows it to applications, in two halves: a bijection of the internal one.
///
/// ```
/// use table::unique_id::external_unique_id;
/// let internal = 15_367_427_892_779_171_026_u128 << 64 | 15_955_698_748_943_869_938;
/// let shown = external_unique_id(internal.to_le_bytes()).map(u64::swap_bytes);
/// assert_eq!(shown, [0x032a_6a39_8200_24e6, 0x6323_b705_0b32_0b71]);
/// ```
pub fn external_unique_id(internal: [u8; 16]) -> [u64; 2] {
    let both = u128::from_le_bytes(internal);
    let (low, high) = (both as u64, (both >> 64) as u64);
    let low = u128::from(low.wrapping_add(LOW_OFFSET));
    let high = u128::from(high.wrapping_add(HIGH_OFFSET));
    let hash = XxHash3_128::oneshot(&(high << 64 | low).to_le_bytes());
    [hash as u64, (hash >> 64) as u64]
}

/// A fresh session id of 20 digits.
pub fn new_session_id(rng: &mut Rng) -> String {
    encode_session(rng.next_u64(), rng.next_u64())
}

/// The 20 digits for a session; of `upper` only the part that fits 8 digits is kept.
pub fn encode_session(upper: u64, lower: u64) -> String {
    let a = (upper << 2) | (lower >> LOW_BITS);
    let b = lower & LOW_MASK;
    let mut digits = String::with_capacity(HIGH_DIGITS + LOW_DIGITS);
    push_base36(&mut digits, a, HIGH_DIGITS);
    push_base36(&mut digits, b, LOW_DIGITS);
    digits
}

/// The two halves of a session id; `None` if it is not 13 to 24 upper-case base-36 digits.
pub fn decode_session(session_id: &str) -> Option<(u64, u64)> {
    if !(LOW_DIGITS + 1..=2 * LOW_DIGITS).contains(&session_id.len()) {
        return None;
    }
    let (high, low) = session_id.split_at_checked(session_id.len() - LOW_DIGITS)?;
    let (a, b) = (base36(high)?, base36(low)?);
    Some((a >> 2, (b & LOW_MASK) | (a << LOW_BITS)))
}

fn push_base36(out: &mut String, value: u64, digits: usize) {
    for place in (0..digits as u32).rev() {
        let digit = (value / 36u64.pow(place) % 36) as u32;
        out.extend(char::from_digit(digit, 36).map(|c| c.to_ascii_uppercase()));
    }
}

/// At most 12 digits, so that the value fits 64 bits.
fn base36(digits: &str) -> Option<u64> {
    digits.bytes().try_fold(0u64, |value, c| {
        let digit = match c {
            b'0'..=b'9' => c - b'0',
            b'A'..=b'Z' => c - b'A' + 10,
            _ => return None,
        };
        value.checked_mul(36)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_that_rocksdb_wrote_into_a_manifest() {
        let id = internal_unique_id(
            "f6047002-e844-458d-98ff-af9e0766b771",
            "GXC3PQQYFRHBHV9UG0Z2",
            9,
        );
        let want = 0xee3a_00c0_522c_cb9c_30f2_0216_abe8_6247_u128.to_be_bytes();
        assert_eq!(id, Some(want));
    }

    #[test]
    fn session_ids() {
        let mut rng = Rng::new(1);
        for _ in 0..1000 {
            let id = new_session_id(&mut rng);
            assert_eq!(id.len(), 20);
            let (upper, lower) = decode_session(&id).unwrap();
            assert_eq!(encode_session(upper, lower), id);
        }
        assert_eq!(encode_session(0, u64::MAX >> 2), "00000000Z1CI99JJ7473");
    }

    #[test]
    fn what_is_no_session_id() {
        let long = "Z".repeat(25);
        for bad in [
            "",
            "ABCDEFGHIJKL",
            "gxc3pqqyfrhbhv9ug0z2",
            "GXC3PQQYFRHBHV9UG0Z-",
            &long,
            "ééééééééé",
        ] {
            assert_eq!(decode_session(bad), None, "{bad}");
            assert_eq!(internal_unique_id("db", bad, 1), None);
        }
        assert_eq!(internal_unique_id("", "GXC3PQQYFRHBHV9UG0Z2", 1), None);
        assert_eq!(internal_unique_id("db", "GXC3PQQYFRHBHV9UG0Z2", 0), None);
    }
}
