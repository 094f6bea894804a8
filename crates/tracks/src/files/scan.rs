//! Finds the end of a JSON value without parsing it: in a text, and in a stream that is too large
//! to be kept.
//!
//! Brackets are counted but not matched, so that the value must still be parsed to be known as
//! valid JSON. Nesting costs no memory.

use std::io::BufRead;
use std::ops::Range;

use base::{Error, Result};

use super::record::{cut_off, unread};

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// A value whose end is being searched.
#[derive(Debug, Default)]
struct Extent {
    is_begun: bool,
    is_scalar: bool,
    in_string: bool,
    is_escaped: bool,
    depth: u64,
}

impl Extent {
    /// Takes more bytes of a value. If its end is among them, returns how many of them belong to
    /// it.
    fn feed(&mut self, bytes: &[u8]) -> Option<usize> {
        bytes
            .iter()
            .enumerate()
            .find_map(|(at, &byte)| self.step(at, byte))
    }

    fn step(&mut self, at: usize, byte: u8) -> Option<usize> {
        if self.is_scalar {
            return (is_space(byte) || matches!(byte, b',' | b':' | b']' | b'}')).then_some(at);
        }
        if self.in_string {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => {
                    self.in_string = false;
                    return (self.depth == 0).then_some(at + 1);
                }
                _ => {}
            }
            return None;
        }
        match byte {
            b'"' => self.in_string = true,
            b'[' | b'{' => self.depth += 1,
            b']' | b'}' if self.is_begun => {
                self.depth = self.depth.saturating_sub(1);
                return (self.depth == 0).then_some(at + 1);
            }
            _ if !self.is_begun => self.is_scalar = true,
            _ => {}
        }
        self.is_begun = true;
        None
    }
}

/// The element of an array that follows `at`, the offset after the opening bracket or after an
/// element. `None` if there is none. The text must be valid JSON.
pub(super) fn element(text: &str, at: usize) -> Option<Range<usize>> {
    let rest = text.as_bytes().get(at..)?;
    let skipped = rest.iter().position(|&b| !is_space(b) && b != b',')?;
    let value = rest
        .get(skipped..)
        .filter(|value| !value.starts_with(b"]"))?;
    let len = Extent::default().feed(value)?;
    let from = at + skipped;
    Some(from..from + len)
}

/// The elements of an array. The text must be valid JSON.
pub(super) fn elements(array: &str) -> impl Iterator<Item = &str> {
    let mut at = 1;
    std::iter::from_fn(move || {
        let range = element(array, at)?;
        at = range.end;
        array.get(range)
    })
}

/// A stream of JSON.
#[derive(Debug)]
pub(super) struct Stream<R> {
    read: R,
    at: u64,
}

impl<R: BufRead> Stream<R> {
    pub(super) fn new(read: R) -> Self {
        Self { read, at: 0 }
    }

    /// The number of bytes that were taken.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    fn chunk(&mut self) -> Result<&[u8]> {
        // Two calls of `fill_buf`, because the borrow checker does not accept a chunk that is
        // returned from within a loop.
        while let Err(e) = self.read.fill_buf() {
            if e.kind() != std::io::ErrorKind::Interrupted {
                return Err(unread(e));
            }
        }
        self.read.fill_buf().map_err(unread)
    }

    fn take(&mut self, bytes: usize) {
        self.read.consume(bytes);
        self.at += bytes as u64;
    }

    /// The next byte, without taking it. `None` at the end of the file.
    pub(super) fn peek(&mut self) -> Result<Option<u8>> {
        Ok(self.chunk()?.first().copied())
    }

    /// The next byte that is not a space, without taking it. `None` at the end of the file.
    pub(super) fn peek_token(&mut self) -> Result<Option<u8>> {
        loop {
            let chunk = self.chunk()?;
            let spaces = chunk.iter().position(|&b| !is_space(b));
            let found = spaces.and_then(|at| chunk.get(at).copied());
            let skipped = spaces.unwrap_or(chunk.len());
            self.take(skipped);
            if found.is_some() || skipped == 0 {
                return Ok(found);
            }
        }
    }

    /// Skips spaces, and takes a byte that must be one of `wanted`. Errors: Corruption.
    pub(super) fn token(&mut self, wanted: &[u8], within: &str) -> Result<u8> {
        let found = self
            .peek_token()?
            .ok_or_else(|| cut_off(within).offset(self.at))?;
        if wanted.contains(&found) {
            self.take(1);
            return Ok(found);
        }
        let wanted: Vec<String> = wanted.iter().map(|b| char::from(*b).to_string()).collect();
        Err(Error::corruption(format!(
            "{within} has {:?} where {} is expected",
            char::from(found),
            wanted.join(" or ")
        ))
        .offset(self.at))
    }

    /// Takes these bytes if they come next.
    pub(super) fn take_mark(&mut self, mark: &[u8]) -> Result<()> {
        if self.chunk()?.starts_with(mark) {
            self.take(mark.len());
        }
        Ok(())
    }

    /// Takes the value that begins here, and appends it to `out`, up to `most` bytes. Returns
    /// `false` if it has more. Errors: Corruption if the file ends within it; `IoError`.
    pub(super) fn value(&mut self, out: &mut Vec<u8>, most: usize, within: &str) -> Result<bool> {
        let mut extent = Extent::default();
        let mut is_whole = true;
        loop {
            let chunk = self.chunk()?;
            if chunk.is_empty() {
                return Err(cut_off(within).offset(self.at));
            }
            let end = extent.feed(chunk);
            let part = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or_default();
            let room = most.saturating_sub(out.len());
            is_whole &= part.len() <= room;
            out.extend(part.iter().take(room));
            let taken = part.len();
            self.take(taken);
            if end.is_some() {
                return Ok(is_whole);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn elements_of_arrays() {
        let all = |text| elements(text).collect::<Vec<_>>();
        assert_eq!(
            all(r#"[1, -2.5 ,[3,[4]],"],\"[" ,{"a":"}"},null]"#),
            ["1", "-2.5", "[3,[4]]", r#""],\"[""#, r#"{"a":"}"}"#, "null"]
        );
        assert!(all("[]").is_empty() && all("[ ]").is_empty() && all("").is_empty());
    }

    #[test]
    fn values_of_streams_are_found_whatever_the_buffer() {
        let text = r#" {"a":[1,"}\\",{}]} "b\"" 12,"#;
        for size in 1..20 {
            let mut stream = Stream::new(BufReader::with_capacity(size, text.as_bytes()));
            let mut value = |most| {
                let mut out = Vec::new();
                stream.peek_token().unwrap();
                let is_whole = stream.value(&mut out, most, "x").unwrap();
                (String::from_utf8(out).unwrap(), is_whole)
            };
            assert_eq!(value(99), (r#"{"a":[1,"}\\",{}]}"#.into(), true));
            assert_eq!(value(3), ("\"b\\".into(), false));
            assert_eq!(value(99), ("12".into(), true));
            assert_eq!(stream.token(b",", "x").unwrap(), b',');
            let e = stream.token(b"]", "the list").unwrap_err().to_string();
            assert!(e.contains("cut off within the list"), "{e}");
        }
        let deep = "[".repeat(100_000);
        let mut deep = Stream::new(deep.as_bytes());
        assert!(
            deep.value(&mut Vec::new(), 10, "x")
                .unwrap_err()
                .is_corruption()
        );
    }
}
