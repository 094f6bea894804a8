//! Keys and values in lines of text, as `ldb dump` prints them: `key ==> value`.

use std::ffi::OsStr;
use std::io::{BufRead, Read};
use std::os::unix::ffi::OsStrExt;

use crate::cli::Global;
use crate::fail::{Failure, Outcome};
use crate::text::parse_field;

/// Maximum length of a line in bytes.
const LINE_BYTES_MAX: u64 = 256 << 20;

const BETWEEN: &[u8] = b" ==> ";

/// Prefixes of other lines that `ldb` prints, besides keys and values.
const SKIPPED: &[&[u8]] = &[b"Keys in range:", b"Created bg thread 0x"];

/// Passes every key and value to `each`. Returns the number of bad lines, which are neither entries
/// nor skipped. Errors: those of `each`, and bad hex, with the line number; the lines before are
/// processed.
pub(crate) fn read(
    global: &Global,
    input: &mut dyn BufRead,
    each: &mut dyn FnMut(&[u8], &[u8]) -> Outcome,
) -> Outcome<u64> {
    let (mut bad, mut number) = (0, 0u64);
    let mut line = Vec::new();
    loop {
        number += 1;
        if !next(input, number, &mut line)? {
            return Ok(bad);
        }
        match split(&line) {
            Some((key, value)) => field(key, global.keys_hex())
                .and_then(|key| each(&key, &field(value, global.values_hex())?))
                .map_err(|e| located(number, &e))?,
            None if SKIPPED.iter().any(|begin| line.starts_with(begin)) => {}
            None => bad += 1,
        }
    }
}

/// Reads a line of standard input, without its line feed. Returns false at the end of the input.
pub(crate) fn next(input: &mut dyn BufRead, number: u64, line: &mut Vec<u8>) -> Outcome<bool> {
    next_within(LINE_BYTES_MAX, input, number, line)
}

fn next_within(
    bytes_max: u64,
    input: &mut dyn BufRead,
    number: u64,
    line: &mut Vec<u8>,
) -> Outcome<bool> {
    line.clear();
    let mut limited = input.take(bytes_max + 1);
    let read = limited
        .read_until(b'\n', line)
        .map_err(|e| Failure::message(format!("IO error: reading the standard input: {e}")))?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    if line.len() as u64 > bytes_max {
        return Err(Failure::message(format!(
            "line {number} is longer than {bytes_max} bytes"
        )));
    }
    Ok(read > 0)
}

/// Key and value of a line.
fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.windows(BETWEEN.len()).position(|w| w == BETWEEN)?;
    Some((line.get(..at)?, line.get(at + BETWEEN.len()..)?))
}

fn field(bytes: &[u8], hex: bool) -> Outcome<Vec<u8>> {
    parse_field(OsStr::from_bytes(bytes), hex)
}

fn located(number: u64, failure: &Failure) -> Failure {
    let what = match failure {
        Failure::Status(e) => e.to_string(),
        Failure::Message(text) | Failure::Usage(text) => text.clone(),
        Failure::Output(e) => e.to_string(),
        Failure::Reported => String::new(),
    };
    Failure::message(format!("line {number}: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_limit() {
        let mut input = &b"abc\n\nabcd\nx\nabcde"[..];
        let mut line = Vec::new();
        for expected in ["abc", "", "abcd", "x"] {
            assert!(next_within(4, &mut input, 1, &mut line).unwrap());
            assert_eq!(line, expected.as_bytes());
        }
        let e = next_within(4, &mut input, 5, &mut line).unwrap_err();
        assert!(
            format!("{e:?}").contains("line 5 is longer than 4 bytes"),
            "{e:?}"
        );
        assert!(!next_within(4, &mut &b""[..], 1, &mut line).unwrap());
    }

    #[test]
    fn the_first_arrow_parts_key_and_value() {
        assert_eq!(split(b"a ==> b ==> c"), Some((&b"a"[..], &b"b ==> c"[..])));
        assert_eq!(split(b" ==> "), Some((&b""[..], &b""[..])));
        for bad in [&b""[..], b"a", b"a==>b", b"a ==>", b" ==>b"] {
            assert_eq!(split(bad), None, "{bad:?}");
        }
    }
}
