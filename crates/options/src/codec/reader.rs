//! Reads an OPTIONS file: lines, sections and versions. [`Setter`] decides what a key means.

use base::{Error, Result};

use super::setter::{Setter, plain};
use super::syntax::{escape, strip_comment, unescape};
use super::{FILE_VERSION, ParsedOptions, ROCKSDB_NEWEST, Unsupported};
use crate::rocksdb::{CF_SECTION, DB_SECTION, TABLE_SECTION};
use crate::{ColumnFamilyDescriptor, ColumnFamilyOptions};

/// The section that the reader is in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    None,
    Version,
    Db,
    /// Options of the family that was read last.
    Cf,
    /// Table options of the family that was read last.
    Table,
    /// An unknown section, which is skipped.
    Unknown,
}

/// A file that is being read.
pub(super) struct Reader {
    at: Section,
    seen_db: bool,
    setter: Setter,
}

impl Reader {
    /// See [`super::parse_with`].
    pub(super) fn read(text: &str, unsupported: Unsupported) -> Result<ParsedOptions> {
        let mut reader = Self {
            at: Section::None,
            seen_db: false,
            setter: Setter::new(unsupported),
        };
        for (i, line) in text.lines().enumerate() {
            reader.setter.line = i + 1;
            reader.line(line).map_err(|e| at_line(&e, i + 1))?;
        }
        let mut out = reader.setter.out;
        if !reader.seen_db {
            return Err(Error::invalid_argument("no section [DBOptions]"));
        }
        if out.families.is_empty() {
            return Err(Error::invalid_argument(
                "no section [CFOptions \"default\"]",
            ));
        }
        let kept = out.families.iter_mut().map(|f| &mut f.options.kept);
        let all = kept.chain([&mut out.db.kept]);
        for kept in all.filter(|k| !k.is_empty()) {
            kept.version = out.rocksdb_version;
        }
        Ok(out)
    }

    fn line(&mut self, raw: &str) -> Result<()> {
        let line = strip_comment(raw).trim();
        if line.is_empty() {
            return Ok(());
        }
        if let Some(header) = line.strip_prefix('[') {
            let header = header.strip_suffix(']').ok_or_else(|| {
                Error::invalid_argument(format!("the section header \"{line}\" does not end in ]"))
            })?;
            let header = self.section(header);
            if self.at == Section::Unknown {
                self.setter.kept().foreign.push(line.to_owned());
            }
            return header;
        }
        let (name, value) = line.split_once('=').ok_or_else(|| {
            Error::invalid_argument(format!("\"{line}\" is not of the form key=value"))
        })?;
        let (name, value) = (name.trim(), value.trim());
        match self.at {
            Section::None => Err(Error::invalid_argument("a key before the first section")),
            Section::Unknown => {
                self.setter.kept().foreign.push(line.to_owned());
                Ok(())
            }
            Section::Version => self.version(name, value),
            Section::Db => self.setter.key(DB_SECTION, name, value),
            Section::Cf => self.setter.key(CF_SECTION, name, value),
            Section::Table => self.setter.key(TABLE_SECTION, name, value),
        }
    }

    fn section(&mut self, header: &str) -> Result<()> {
        let (title, family) = match header.split_once(char::is_whitespace) {
            None => (header, None),
            Some((title, rest)) => {
                let quoted = rest.trim().strip_prefix('"');
                let name = quoted.and_then(|r| r.strip_suffix('"')).ok_or_else(|| {
                    Error::invalid_argument(format!("the name in [{header}] is not in quotes"))
                })?;
                (title, Some(unescape(name)))
            }
        };
        self.at = match (title, family) {
            ("Version", _) => Section::Version,
            (DB_SECTION, _) if self.seen_db => {
                return Err(Error::invalid_argument("a second section [DBOptions]"));
            }
            (DB_SECTION, _) => {
                self.seen_db = true;
                Section::Db
            }
            (CF_SECTION, Some(name)) => {
                self.family(name)?;
                Section::Cf
            }
            (TABLE_SECTION, Some(name)) => {
                let family = self.setter.out.families.last();
                if family.is_none_or(|f| f.name != name) {
                    return Err(Error::invalid_argument(format!(
                        "[{header}] does not follow the section of its column family"
                    )));
                }
                Section::Table
            }
            (CF_SECTION | TABLE_SECTION, None) => {
                return Err(Error::invalid_argument(format!(
                    "[{header}] names no column family"
                )));
            }
            _ => {
                self.setter
                    .warn_unknown(format!("unknown section [{header}] is skipped"));
                Section::Unknown
            }
        };
        Ok(())
    }

    fn family(&mut self, name: String) -> Result<()> {
        let families = &mut self.setter.out.families;
        let first = families.is_empty();
        if first != (name == "default") || families.iter().any(|f| f.name == name) {
            return Err(Error::invalid_argument(format!(
                "[CFOptions \"{}\"]: \"default\" must come first, and every family once",
                escape(&name)
            )));
        }
        let options = ColumnFamilyOptions::default();
        families.push(ColumnFamilyDescriptor::new(name, options));
        Ok(())
    }

    fn version(&mut self, name: &str, value: &str) -> Result<()> {
        let mut parts = [0u32; 3];
        for (part, text) in parts.iter_mut().zip(value.split('.')) {
            *part = text.trim().parse().map_err(|_| {
                Error::invalid_argument(format!("{name}=\"{value}\" is no version number"))
            })?;
        }
        let [a, b, c] = parts;
        match name {
            "rocksdb_version" => {
                self.setter.out.rocksdb_version = (a, b, c);
                if (a, b, c) > ROCKSDB_NEWEST {
                    self.setter
                        .warn(format!("written by RocksDB {value}, newer than 11.8.1"));
                }
            }
            "options_file_version" => {
                if a != FILE_VERSION.0 {
                    return Err(Error::not_supported(format!(
                        "options_file_version {value}; 1.x is known"
                    )));
                }
                if (a, b) > FILE_VERSION {
                    self.setter
                        .warn(format!("options_file_version {value} is newer than 1.1"));
                }
            }
            _ => self
                .setter
                .warn_unknown(format!("unknown key {name} in [Version]")),
        }
        Ok(())
    }
}

/// Prefixes an error's message with the line number.
fn at_line(e: &Error, line: usize) -> Error {
    Error::new(e.kind(), format!("line {line}: {}", plain(e)))
}
