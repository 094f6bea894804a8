//! The OPTIONS file: text in sections.
//!
//! ```text
//!   [Version]
//!     rocksdb_version=7.8.3
//!     options_file_version=1.1
//!   [DBOptions]
//!     key=value                                one per line; the value extends to the end of the line
//!   [CFOptions "default"]                      "default" is the first family
//!     compression_opts={level=3;enabled=false;}
//!   [TableOptions/BlockBasedTable "default"]   directly after its family
//! ```
//!
//! `#` starts a comment, unless a `\` precedes it. In names and values `\`, `#`, `:`, CR and LF are escaped with
//! `\`. RocksDB does not read the file when it opens a database. Its tools do, and refuse unknown keys, so the keys
//! of 7.8.3 are written ([`super::rocksdb::KEYS`]). A later key is written only if it is set. The file then claims
//! to be written by 11.8.1, because 7.8.3 can ignore unknown keys only in a file of a newer release.
//!
//! Settings that were read but have no effect here are written again unchanged ([`Kept`]).
//!
//! Unknown keys, sections and newer versions are accepted, each with a warning. A malformed file is an error that
//! names the line. A setting that Ironstone knows but does not support is an error or a warning: [`Unsupported`].

mod reader;
mod setter;
mod syntax;

use base::Result;
use base::options::{OptionTable, OptionValue};

use super::kept::Kept;
use super::rocksdb::{self, CF_SECTION, DB_SECTION, KEYS, Key, Releases, TABLE_SECTION};
use super::{ColumnFamilyDescriptor, ColumnFamilyOptions, DbOptions};
use reader::Reader;

pub use base::options::members;
pub use setter::is_object;
pub(super) use setter::{Setter, TABLE_OPTION, table_members, unknown};
pub use syntax::{escape, unescape};

/// The RocksDB release whose keys are written.
pub const ROCKSDB_VERSION: (u32, u32, u32) = (7, 8, 3);

/// The newest RocksDB release whose keys are known here.
pub const ROCKSDB_NEWEST: (u32, u32, u32) = (11, 8, 1);

/// The version of the text format.
const FILE_VERSION: (u32, u32) = (1, 1);

/// What to do with a setting that RocksDB knows and Ironstone does not implement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// Fail with `NotSupported`, naming the setting.
    Refuse,
    /// Keep Ironstone's default and add a warning.
    Warn,
}

/// The content of an OPTIONS file.
#[derive(Clone, Debug, Default)]
pub struct ParsedOptions {
    /// The release that wrote the file, according to the file.
    pub rocksdb_version: (u32, u32, u32),
    /// Options of the whole database.
    pub db: DbOptions,
    /// The column families in the order of the file. The first one is `default`.
    pub families: Vec<ColumnFamilyDescriptor>,
    /// Messages about settings that are unknown or not supported, each with its line number.
    pub warnings: Vec<String>,
    /// The warnings about names that no known RocksDB release has.
    pub unknown: Vec<String>,
}

/// The text of an OPTIONS file for a database with these families. `default` is written first.
pub fn to_text(db: &DbOptions, families: &[(&str, &ColumnFamilyOptions)]) -> String {
    let first = families.iter().filter(|(name, _)| *name == "default");
    let rest = families.iter().filter(|(name, _)| *name != "default");
    let sections = first.chain(rest).map(|(name, o)| Sections::of(name, o));
    compose(db, sections.collect::<Vec<_>>().iter())
}

/// [`to_text`] from the sections of the families, in the order of the file.
pub fn compose<'a>(db: &DbOptions, families: impl Iterator<Item = &'a Sections>) -> String {
    let mut all = Sections::new(&db.kept);
    all.add(DB_SECTION, None, &db.kept, &|n| db_value(db, n));
    foreign(&mut all.text, &db.kept);
    for family in families {
        all.text.push_str(&family.text);
        all.version = all.version.max(family.version);
    }
    let (v, f) = (all.version, FILE_VERSION);
    let mut out = String::with_capacity(all.text.len() + 256);
    out.push_str("# Options of an Ironstone database, as RocksDB's tools read them.\n\n");
    let version = [
        ("rocksdb_version", format!("{}.{}.{}", v.0, v.1, v.2)),
        ("options_file_version", format!("{}.{}", f.0, f.1)),
    ];
    section(&mut out, "Version", None, version.into_iter());
    out + &all.text
}

/// The sections of one family in an OPTIONS file.
#[derive(Clone, Debug)]
pub struct Sections {
    text: String,
    /// The least RocksDB release that has all keys of these sections.
    version: (u32, u32, u32),
}

impl Sections {
    /// The sections of a family with this name and these options.
    pub fn of(name: &str, o: &ColumnFamilyOptions) -> Self {
        let mut out = Self::new(&o.kept);
        out.add(CF_SECTION, Some(name), &o.kept, &|n| cf_value(o, n));
        out.add(TABLE_SECTION, Some(name), &o.kept, &|n| o.table.get(n));
        foreign(&mut out.text, &o.kept);
        out.text.shrink_to_fit();
        out
    }

    fn new(kept: &Kept) -> Self {
        let version = if kept.is_empty() {
            ROCKSDB_VERSION
        } else {
            ROCKSDB_VERSION.max(kept.version)
        };
        Self {
            text: String::new(),
            version,
        }
    }

    fn add(
        &mut self,
        of: &'static str,
        family: Option<&str>,
        kept: &Kept,
        value: &dyn Fn(&str) -> Option<String>,
    ) {
        let lines = lines(of, |n| kept.instead_of(of, n, value(n)));
        if lines.iter().any(|(key, _)| key.releases == Releases::New) {
            self.version = self.version.max(ROCKSDB_NEWEST);
        }
        let known = lines
            .into_iter()
            .map(|(key, value)| (key.name.to_owned(), value));
        let unknown = kept.of(of).filter(|s| rocksdb::find(of, &s.name).is_none());
        let unknown = unknown.map(|s| (s.name.clone(), s.value.clone()));
        section(&mut self.text, of, family, known.chain(unknown));
    }
}

/// Writes unknown sections unchanged.
fn foreign(out: &mut String, kept: &Kept) {
    for line in &kept.foreign {
        let indent = if line.starts_with('[') { "" } else { "  " };
        out.extend([indent, line, "\n"]);
    }
    if !kept.foreign.is_empty() {
        out.push('\n');
    }
}

/// The value that is written for an option of the whole database.
fn db_value(db: &DbOptions, name: &str) -> Option<String> {
    match name {
        "wal_dir" | "db_log_dir" => Some(escape(&db.get(name)?)),
        name => db.get(name),
    }
}

/// The value that is written for an option of a family.
fn cf_value(o: &ColumnFamilyOptions, name: &str) -> Option<String> {
    match name {
        "comparator" => Some(o.comparator.name().to_owned()),
        "prefix_extractor" => Some(o.prefix_extractor.print()),
        "merge_operator" => o.merge_operator.as_ref().map(|m| m.options_text()),
        "compaction_filter" => o.compaction_filter.as_ref().map(|f| f.name().to_owned()),
        "compaction_filter_factory" => {
            let factory = o.compaction_filter_factory.as_ref();
            factory.map(|f| f.name().to_owned())
        }
        "max_compaction_bytes" => Some(o.cf.compaction_bytes_max().to_string()),
        "ttl" => Some(o.cf.ttl_seconds().to_string()),
        "periodic_compaction_seconds" => Some(o.cf.periodic_seconds().to_string()),
        name => o.cf.get(name),
    }
}

/// Every key of a section that is to be written, with its value; the default value if no table has the key. Keys
/// that 7.8.3 does not have are left out if they have their default value. Empty values are left out too, as in
/// RocksDB.
fn lines(section: &str, value: impl Fn(&str) -> Option<String>) -> Vec<(&'static Key, String)> {
    let keys = KEYS.iter().filter(|k| k.section == section);
    keys.map(|k| (k, value(k.name).unwrap_or_else(|| k.default.to_owned())))
        .filter(|(k, v)| k.releases == Releases::Both || v != k.default)
        .filter(|(_, v)| !v.is_empty())
        .collect()
}

fn section(
    out: &mut String,
    title: &str,
    family: Option<&str>,
    keys: impl Iterator<Item = (impl AsRef<str>, String)>,
) {
    out.push('[');
    out.push_str(title);
    if let Some(name) = family {
        out.push_str(" \"");
        out.push_str(&escape(name));
        out.push('"');
    }
    out.push_str("]\n");
    for (name, value) in keys {
        out.extend(["  ", name.as_ref(), "=", &value, "\n"]);
    }
    out.push('\n');
}

/// Reads the text of an OPTIONS file. Settings that Ironstone does not implement become warnings. Errors:
/// `InvalidArgument`, with the line number, for a malformed line, an invalid value, or a missing or misplaced
/// section.
pub fn parse(text: &str) -> Result<ParsedOptions> {
    parse_with(text, Unsupported::Warn)
}

/// Like [`parse`], with a choice of how to handle settings that Ironstone does not implement.
pub fn parse_with(text: &str, unsupported: Unsupported) -> Result<ParsedOptions> {
    Reader::read(text, unsupported)
}

#[cfg(test)]
#[expect(clippy::print_stdout, reason = "tests say what they skipped")]
mod tests;
