//! Keys and values as text: plain as `ldb` prints them, or as hex.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use crate::fail::{Failure, Outcome};

/// Upper-case hex digits, two for each byte.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02X}"))
    }
}

/// Appends a key or value as `ldb` prints it: `0x` and hex digits, or the bytes up to the first
/// zero byte, where a C string ends.
pub(crate) fn push_field(line: &mut Vec<u8>, bytes: &[u8], hex: bool) {
    if hex {
        line.extend_from_slice(b"0x");
        push_hex(line, bytes);
    } else {
        line.extend_from_slice(until_zero(bytes));
    }
}

/// Appends upper-case hex digits.
pub(crate) fn push_hex(line: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    line.extend(
        bytes
            .iter()
            .flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]),
    );
}

/// Appends an internal key as RocksDB's tools print it: `'user key' seq:1, type:1`.
pub(crate) fn push_internal_key(line: &mut Vec<u8>, internal: &[u8], hex: bool) {
    let Some((user, packed)) = base::key::split(internal) else {
        line.extend_from_slice(b"(bad)");
        push_hex(line, internal);
        return;
    };
    line.push(b'\'');
    if hex {
        push_hex(line, user);
    } else {
        line.extend_from_slice(user);
    }
    line.extend_from_slice(format!("' seq:{}, type:{}", packed >> 8, packed & 0xff).as_bytes());
}

/// The bytes before the first zero byte.
pub(crate) fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|&b| b == 0).next().unwrap_or_default()
}

/// An input for a message: if it is long, its first bytes and its length.
pub(crate) fn shown(input: &[u8]) -> String {
    const SHOWN: usize = 64;
    let head = input.get(..SHOWN).unwrap_or(input);
    let text = String::from_utf8_lossy(head);
    if head.len() == input.len() {
        return text.into_owned();
    }
    format!("{text}... ({} bytes)", input.len())
}

/// The bytes that an argument stands for: the argument itself, or the bytes of its hex digits after
/// `0x`.
pub(crate) fn parse_field(arg: &OsStr, hex: bool) -> Outcome<Vec<u8>> {
    let bytes = arg.as_bytes();
    if !hex {
        return Ok(bytes.to_vec());
    }
    let bad = |what: &str| Failure::message(format!("Invalid hex input {}.  {what}", shown(bytes)));
    let digits = bytes
        .strip_prefix(b"0x")
        .ok_or_else(|| bad("Must start with 0x"))?;
    if digits.len() % 2 != 0 {
        return Err(bad("Must have an even number of digits"));
    }
    let digit = |d: u8| char::from(d).to_digit(16);
    digits
        .chunks_exact(2)
        .map(|pair| Some((digit(pair[0])? * 16 + digit(pair[1])?) as u8))
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(|| bad("Digits are 0-9, a-f and A-F"))
}

/// Appends `key ==> value` as `ldb dump` prints it: plain, it ends as a whole at the first zero byte.
pub(crate) fn push_pair(
    line: &mut Vec<u8>,
    (key, key_hex): Field<'_>,
    (value, value_hex): Field<'_>,
) {
    let begin = line.len();
    let push = |line: &mut Vec<u8>, bytes: &[u8], hex| {
        if hex {
            push_field(line, bytes, true);
        } else {
            line.extend_from_slice(bytes);
        }
    };
    push(line, key, key_hex);
    line.extend_from_slice(b" ==> ");
    push(line, value, value_hex);
    let pair = line.get(begin..).unwrap_or_default();
    let shown = until_zero(pair).len();
    line.truncate(begin + shown);
}

/// A key or value, and whether it is printed as hex.
type Field<'a> = (&'a [u8], bool);

/// A bound of a range: `None` if it is not given or empty.
pub(crate) fn parse_bound(arg: Option<&OsStr>, hex: bool) -> Outcome<Option<Vec<u8>>> {
    match arg {
        Some(text) if !text.is_empty() => parse_field(text, hex).map(Some),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_input_and_output_are_each_others_inverse() {
        let bytes: Vec<u8> = (0..=255).collect();
        let mut line = Vec::new();
        push_field(&mut line, &bytes, true);
        assert_eq!(parse_field(OsStr::from_bytes(&line), true).unwrap(), bytes);
        assert_eq!(Hex(&bytes[250..]).to_string(), "FAFBFCFDFEFF");
        for bad in ["61", "0x6", "0xzz", "0X61", ""] {
            assert!(parse_field(OsStr::new(bad), true).is_err(), "{bad}");
        }
    }

    #[test]
    fn plain_output_ends_at_the_first_zero_byte() {
        assert_eq!(until_zero(b"ab\0cd"), b"ab");
        assert_eq!(until_zero(b""), b"");
        assert_eq!(until_zero(b"\0"), b"");
    }

    #[test]
    fn long_inputs_are_shown_in_part() {
        assert_eq!(shown(b"abc"), "abc");
        assert_eq!(shown(&[b'a'; 64]), "a".repeat(64));
        let long = format!("{}... (65 bytes)", "a".repeat(64));
        assert_eq!(shown(&[b'a'; 65]), long);
    }

    #[test]
    fn internal_keys_look_as_in_ldb() {
        let mut line = Vec::new();
        push_internal_key(&mut line, b"k\x01\x09\0\0\0\0\0\0", false);
        line.push(b' ');
        push_internal_key(&mut line, b"k\x01\x09\0\0\0\0\0\0", true);
        push_internal_key(&mut line, b"\x01", true);
        assert_eq!(line, b"'k' seq:9, type:1 '6B' seq:9, type:1(bad)01");
    }
}
