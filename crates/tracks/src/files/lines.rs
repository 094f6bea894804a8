//! Lines of a file, in bounded memory.
//!
//! A line ends with LF or CR LF, or at the end of the file. A UTF-8 byte order mark at the
//! beginning is skipped. A line that is too long is refused, and skipped without being kept.

use std::io::{BufRead, Read as _};

use base::{Error, Result};

use super::record::{Place, bad, empty, unread};

const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";
const UTF16_MARKS: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];

/// Reads lines.
#[derive(Debug)]
pub(super) struct Lines<R> {
    read: R,
    bytes_max: usize,
    number: u64,
    line: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    /// A reader whose lines have at most this many bytes.
    pub(super) fn new(read: R, bytes_max: usize) -> Self {
        Self {
            read,
            bytes_max,
            number: 0,
            line: Vec::new(),
        }
    }

    /// The place of the current line.
    pub(super) fn place(&self) -> Place {
        Place::Line(self.number)
    }

    /// Reads the next line. Returns `false` at the end.
    ///
    /// Errors: `InvalidArgument` if the line is too long, which is skipped; Corruption if the file
    /// is empty; `NotSupported` if it is UTF-16; `IoError`.
    pub(super) fn advance(&mut self) -> Result<bool> {
        self.line.clear();
        // Room for the end of the line, and for a byte order mark.
        let most = self.bytes_max + 5;
        let mut limited = self.read.by_ref().take(most as u64);
        let read = limited.read_until(b'\n', &mut self.line).map_err(unread)?;
        if self.number == 0 {
            self.begin()?;
        } else if self.line.is_empty() {
            return Ok(false);
        }
        self.number += 1;
        let has_end = self.line.ends_with(b"\n");
        if has_end {
            self.line.pop();
            if self.line.ends_with(b"\r") {
                self.line.pop();
            }
        }
        let has_more = read == most && !has_end;
        if self.line.len() <= self.bytes_max && !has_more {
            return Ok(true);
        }
        if has_more {
            self.read.skip_until(b'\n').map_err(unread)?;
        }
        let e = bad(format!("a line of over {} bytes", self.bytes_max));
        Err(self.place().error(e))
    }

    /// Handles the beginning of the file.
    fn begin(&mut self) -> Result<()> {
        if UTF16_MARKS.iter().any(|mark| self.line.starts_with(mark)) {
            return Err(Error::not_supported("the file is UTF-16").hint("convert it to UTF-8"));
        }
        let has_mark = self.line.starts_with(UTF8_MARK);
        if has_mark {
            self.line.drain(..UTF8_MARK.len());
        }
        if self.line.is_empty() {
            return Err(empty());
        }
        Ok(())
    }

    /// The text of the line. Errors: `InvalidArgument` if it is not UTF-8.
    pub(super) fn text(&self) -> Result<&str> {
        std::str::from_utf8(&self.line).map_err(|e| {
            let at = e.valid_up_to() + 1;
            self.place().error(bad(format!("byte {at} is not UTF-8")))
        })
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use std::io::{BufReader, Read, repeat};

    use super::*;

    fn all(bytes: &[u8], most: usize) -> Vec<String> {
        let mut lines = Lines::new(bytes, most);
        let mut out = Vec::new();
        loop {
            match lines.advance() {
                Ok(false) => return out,
                Ok(true) => out.push(lines.text().map_or_else(|e| e.to_string(), str::to_owned)),
                Err(e) => {
                    out.push(e.to_string());
                    if !super::super::record::goes_on(&e) {
                        return out;
                    }
                }
            }
        }
    }

    #[test]
    fn lines_end_in_all_ways() {
        assert_eq!(
            all(b"\xef\xbb\xbfa\r\n\nb\r\r\nc", 9),
            ["a", "", "b\r", "c"]
        );
        assert_eq!(
            all(b"12345\r\n123456\r\n1234567\n12345678", 6)[..2],
            ["12345", "123456"]
        );
        let long = all(b"1234567\n1\n12345678901", 6);
        assert!(
            long[0].contains("line 1: a line of over 6 bytes"),
            "{long:?}"
        );
        assert_eq!((long.len(), long[1].as_str()), (3, "1"));
        assert!(long[2].contains("line 3"), "{long:?}");
        assert!(all(b"a\n\xffb\nc", 9)[1].contains("line 2: byte 1 is not UTF-8"));
        for nothing in [&b""[..], b"\xef\xbb\xbf"] {
            assert!(all(nothing, 9)[0].contains("empty"));
        }
        assert!(all(b"\xff\xfea\0", 9)[0].contains("UTF-16"));
    }

    /// A line of 1 GiB is refused without being kept in memory.
    #[test]
    fn a_line_of_a_gibibyte_costs_no_memory() {
        let file = repeat(b'x').take(1 << 30).chain(&b"\nnext\n"[..]);
        let mut lines = Lines::new(BufReader::with_capacity(1 << 20, file), 64 << 10);
        let e = lines.advance().unwrap_err().to_string();
        assert!(e.contains("65536"), "{e}");
        assert!(lines.advance().unwrap());
        assert_eq!(lines.text().unwrap(), "next");
        assert!(lines.line.capacity() < 1 << 18);
    }
}
