//! `--count_delim`: sums of keys and bytes, grouped by the part of the key before a character.
//!
//! As in `ldb`, adjacent keys with the same part form one group, and a key with an empty part is
//! counted in the group of the next key.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use crate::fail::Outcome;

/// The sums.
#[derive(Debug)]
pub(crate) struct Groups {
    delimiter: u8,
    row: Vec<u8>,
    count: u64,
    bytes: u64,
}

impl Groups {
    /// Groups by the first character of the argument, if there is one.
    pub(crate) fn new(argument: Option<&OsStr>) -> Option<Self> {
        argument.map(|text| Self {
            delimiter: text.as_bytes().first().copied().unwrap_or(0),
            row: Vec::new(),
            count: 0,
            bytes: 0,
        })
    }

    /// The part of a key that determines its group: up to the delimiter, or to one of the ends.
    pub(crate) fn row<'k>(&self, key: &'k [u8], ends: &[u8]) -> &'k [u8] {
        let end = |b: &u8| *b == self.delimiter || ends.contains(b);
        key.split(end).next().unwrap_or_default()
    }

    /// Adds a key; prints the previous group if it ends here.
    pub(crate) fn add(&mut self, row: &[u8], bytes: u64, out: &mut dyn Write) -> Outcome {
        if !self.row.is_empty() && self.row != row {
            self.print(out)?;
            (self.count, self.bytes) = (0, 0);
        }
        self.count += 1;
        self.bytes += bytes;
        self.row.clear();
        self.row.extend_from_slice(row);
        Ok(())
    }

    /// Prints the group.
    pub(crate) fn print(&self, out: &mut dyn Write) -> Outcome {
        out.write_all(&self.row)?;
        Ok(writeln!(
            out,
            " => count:{}\tsize:{}",
            self.count, self.bytes
        )?)
    }
}
