//! Keys and values in lines of text, as `ldb dump` prints them: `key ==> value`.

use std::ffi::OsStr;
use std::io::BufRead;
use std::os::unix::ffi::OsStrExt;

use crate::cli::Global;
use crate::fail::{Failure, Outcome};
use crate::text::parse_field;

const BETWEEN: &[u8] = b" ==> ";

/// Begins of lines that `ldb` prints besides keys and values.
const SKIPPED: &[&[u8]] = &[b"Keys in range:", b"Created bg thread 0x"];

/// Passes every key and value to `each`. Returns how many lines were neither that nor skipped.
/// Errors: those of `each` and of bad hex, with the number of the line; lines before are done.
pub(crate) fn read(
    global: &Global,
    input: &mut dyn BufRead,
    each: &mut dyn FnMut(&[u8], &[u8]) -> Outcome,
) -> Outcome<u64> {
    let (mut bad, mut number) = (0, 0u64);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.read_until(b'\n', &mut line);
        let read = read
            .map_err(|e| Failure::message(format!("IO error: reading the standard input: {e}")))?;
        if read == 0 {
            return Ok(bad);
        }
        number += 1;
        if line.last() == Some(&b'\n') {
            line.pop();
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
    fn the_first_arrow_parts_key_and_value() {
        assert_eq!(split(b"a ==> b ==> c"), Some((&b"a"[..], &b"b ==> c"[..])));
        assert_eq!(split(b" ==> "), Some((&b""[..], &b""[..])));
        for bad in [&b""[..], b"a", b"a==>b", b"a ==>", b" ==>b"] {
            assert_eq!(split(bad), None, "{bad:?}");
        }
    }
}
