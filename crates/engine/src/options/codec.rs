//! The OPTIONS file: text, in sections.
//!
//! ```text
//!   [Version]
//!     rocksdb_version=7.8.3
//!     options_file_version=1.1
//!   [DBOptions]
//!     key=value                                one a line, value to the end of the line
//!   [CFOptions "default"]                      "default" is the first family
//!     compression_opts={level=3;enabled=false;}
//!   [TableOptions/BlockBasedTable "default"]   right after its family
//! ```
//!
//! `#` starts a comment unless a `\` stands before it. In names and values `\`, `#`, `:`, CR and
//! LF are escaped with `\`. RocksDB itself never reads the file at open; its tools do, and refuse
//! a key that they do not know: so the keys of 7.8.3 are written ([`super::rocksdb::KEYS`]). One that
//! came later is written only if it is set, and then the file says that 11.8.1 wrote it: a 7.8.3 that
//! is asked to ignore what it does not know then does.
//!
//! What was read and has no effect here is written again as it stood ([`Kept`]).
//!
//! Reading is lenient about what is unknown (keys, sections, newer versions: a warning each) and
//! strict about shape (an error with the line's number). What a known key asks for that
//! Ironstone does not do is an error or a warning: [`Unsupported`].

use base::options::{OptionTable, OptionValue};
use base::{Comparator, Error, ErrorKind, Result, SliceTransform};
use table::TableOptions;

use super::kept::{Kept, Setting};
use super::rocksdb::{self, CF_SECTION, DB_SECTION, KEYS, Key, Releases, TABLE_SECTION};
use super::{
    CfOptions, ColumnFamilyDescriptor, ColumnFamilyOptions, CompressionOptions, DbOptions,
};

/// The RocksDB release whose keys are written.
pub const ROCKSDB_VERSION: (u32, u32, u32) = (7, 8, 3);

/// The newest RocksDB release whose keys are known.
pub const ROCKSDB_NEWEST: (u32, u32, u32) = (11, 8, 1);

/// The version of the text format.
const FILE_VERSION: (u32, u32) = (1, 1);

/// What to do with a setting that RocksDB knows and Ironstone does not implement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// Fail with `NotSupported` naming it.
    Refuse,
    /// Keep Ironstone's default and add a warning.
    Warn,
}

/// What an OPTIONS file says.
#[derive(Clone, Debug, Default)]
pub struct ParsedOptions {
    /// The release that wrote it, or claims to have.
    pub rocksdb_version: (u32, u32, u32),
    /// Options of the whole database.
    pub db: DbOptions,
    /// The column families in the order of the file; the first is `default`.
    pub families: Vec<ColumnFamilyDescriptor>,
    /// What was not understood or not followed, each with the number of its line.
    pub warnings: Vec<String>,
    /// Those of the warnings that are about names that no known RocksDB has.
    pub unknown: Vec<String>,
}

/// The text of an OPTIONS file for a database with these families. `default` is written first.
pub fn to_text(db: &DbOptions, families: &[(&str, &ColumnFamilyOptions)]) -> String {
    let (body, newer) = sections(db, families);
    let mut v = if newer {
        ROCKSDB_NEWEST
    } else {
        ROCKSDB_VERSION
    };
    let all = families.iter().map(|(_, o)| &o.kept).chain([&db.kept]);
    for kept in all.filter(|k| !k.is_empty()) {
        v = v.max(kept.version);
    }
    let f = FILE_VERSION;
    let mut out = String::with_capacity(body.len() + 256);
    out.push_str("# Options of an Ironstone database, as RocksDB's tools read them.\n\n");
    let version = [
        ("rocksdb_version", format!("{}.{}.{}", v.0, v.1, v.2)),
        ("options_file_version", format!("{}.{}", f.0, f.1)),
    ];
    section(&mut out, "Version", None, version.into_iter());
    out + &body
}

/// What stands behind the version, and whether there is a key in it that 7.8.3 does not have.
fn sections(db: &DbOptions, families: &[(&str, &ColumnFamilyOptions)]) -> (String, bool) {
    let mut out = String::with_capacity(16 << 10);
    let mut newer = false;
    let mut of = |section, kept: &Kept, value: &dyn Fn(&str) -> Option<String>| {
        let lines = lines(section, |n| kept.instead_of(section, n, value(n)));
        newer |= lines.iter().any(|(key, _)| key.releases == Releases::New);
        let known = lines
            .into_iter()
            .map(|(key, value)| (key.name.to_owned(), value));
        let unknown = kept
            .of(section)
            .filter(|s| rocksdb::find(section, &s.name).is_none());
        let unknown = unknown.map(|s| (s.name.clone(), s.value.clone()));
        known.chain(unknown).collect::<Vec<_>>()
    };
    let lines = of(DB_SECTION, &db.kept, &|n| db_value(db, n));
    section(&mut out, DB_SECTION, None, lines.into_iter());
    foreign(&mut out, &db.kept);
    let first = families.iter().filter(|(name, _)| *name == "default");
    let rest = families.iter().filter(|(name, _)| *name != "default");
    for (name, o) in first.chain(rest) {
        let lines = of(CF_SECTION, &o.kept, &|n| cf_value(o, n));
        section(&mut out, CF_SECTION, Some(name), lines.into_iter());
        let lines = of(TABLE_SECTION, &o.kept, &|n| o.table.get(n));
        section(&mut out, TABLE_SECTION, Some(name), lines.into_iter());
        foreign(&mut out, &o.kept);
    }
    (out, newer)
}

/// Sections that are not known, as they stood.
fn foreign(out: &mut String, kept: &Kept) {
    for line in &kept.foreign {
        let indent = if line.starts_with('[') { "" } else { "  " };
        out.extend([indent, line, "\n"]);
    }
    if !kept.foreign.is_empty() {
        out.push('\n');
    }
}

/// What is written of an option of the whole database.
fn db_value(db: &DbOptions, name: &str) -> Option<String> {
    match name {
        "wal_dir" | "db_log_dir" => Some(escape(&db.get(name)?)),
        name => db.get(name),
    }
}

/// What is written of an option of a family.
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

/// Every key of a section that is to be written with its value, or the default where no table has
/// it. Keys that 7.8.3 does not have are left out at their default; RocksDB leaves out what is empty,
/// too.
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

/// Escapes what would end a name or start a comment.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\\' | '#' | ':' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

/// Undoes [`escape`].
pub fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some(c) => out.push(c),
            None => out.push('\\'),
        }
    }
    out
}

/// The members of `{a=1;b={c=2;};}`, or of the same without braces.
/// Errors: braces that do not match, a member without `=`.
pub fn members(text: &str) -> Result<Vec<(&str, &str)>> {
    let text = text.trim();
    let inner = match text.strip_prefix('{') {
        Some(rest) => rest
            .strip_suffix('}')
            .ok_or_else(|| Error::invalid_argument(format!("\"{text}\" has no closing brace")))?,
        None => text,
    };
    let (mut out, mut depth, mut start) = (Vec::new(), 0usize, 0usize);
    let ends = inner.char_indices().chain([(inner.len(), ';')]);
    for (i, c) in ends {
        match c {
            '{' => depth += 1,
            '}' => {
                depth = depth.checked_sub(1).ok_or_else(|| {
                    Error::invalid_argument(format!("\"{text}\" closes a brace it did not open"))
                })?;
            }
            ';' if depth == 0 => {
                let part = inner.get(start..i).unwrap_or_default().trim();
                start = i + 1;
                if part.is_empty() {
                    continue;
                }
                let (name, value) = part.split_once('=').ok_or_else(|| {
                    Error::invalid_argument(format!("\"{part}\" is not of the form name=value"))
                })?;
                out.push((name.trim(), value.trim()));
            }
            _ => {}
        }
    }
    if depth != 0 {
        return Err(Error::invalid_argument(format!(
            "\"{text}\" has no closing brace"
        )));
    }
    Ok(out)
}

/// Reads the text of an OPTIONS file; what Ironstone does not implement becomes a warning.
/// Errors: `InvalidArgument` with the line's number for a malformed line, a value that is none, a
/// missing or misplaced section.
pub fn parse(text: &str) -> Result<ParsedOptions> {
    parse_with(text, Unsupported::Warn)
}

/// [`parse`], with a choice about what Ironstone does not implement.
pub fn parse_with(text: &str, unsupported: Unsupported) -> Result<ParsedOptions> {
    let mut p = Parser {
        unsupported,
        strict: false,
        line: 0,
        at: Section::None,
        seen_db: false,
        out: ParsedOptions::default(),
    };
    for (i, line) in text.lines().enumerate() {
        p.line = i + 1;
        p.line(line).map_err(|e| at_line(&e, i + 1))?;
    }
    if !p.seen_db {
        return Err(Error::invalid_argument("no section [DBOptions]"));
    }
    if p.out.families.is_empty() {
        return Err(Error::invalid_argument(
            "no section [CFOptions \"default\"]",
        ));
    }
    let version = p.out.rocksdb_version;
    let kept = p.out.families.iter_mut().map(|f| &mut f.options.kept);
    let all = kept.chain([&mut p.out.db.kept]);
    for kept in all.filter(|k| !k.is_empty()) {
        kept.version = version;
    }
    Ok(p.out)
}

/// Puts the line's number before an error's message.
fn at_line(e: &Error, line: usize) -> Error {
    Error::new(e.kind(), format!("line {line}: {}", plain(e)))
}

/// An error's text without the label of its kind.
fn plain(e: &Error) -> String {
    let label = format!("{}: ", e.kind().label());
    let text = e.to_string();
    text.strip_prefix(&label).unwrap_or(&text).to_owned()
}

/// The option of a family that has those of its tables in it.
pub(super) const TABLE_OPTION: &str = "block_based_table_factory";

/// The options of tables in an option of a family, if it is that.
pub(super) fn table_members<'t>(
    name: &str,
    value: &'t str,
) -> Result<Option<Vec<(&'t str, &'t str)>>> {
    if !matches!(name, TABLE_OPTION | "table_factory") || !value.trim().starts_with('{') {
        return Ok(None);
    }
    members(value).map(Some)
}

/// Where the parser is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    None,
    Version,
    Db,
    /// Of the last family.
    Cf,
    /// Of the last family.
    Table,
    /// Skipped.
    Unknown,
}

/// Options as they are read.
pub(super) struct Parser {
    unsupported: Unsupported,
    /// Whether what is not known is an error.
    strict: bool,
    line: usize,
    at: Section,
    seen_db: bool,
    out: ParsedOptions,
}

impl Parser {
    /// For changes of these options. What is not known, or not implemented, is an error.
    pub(super) fn onto(db: DbOptions, cf: ColumnFamilyOptions) -> Self {
        Self {
            unsupported: Unsupported::Refuse,
            strict: true,
            line: 0,
            at: Section::None,
            seen_db: true,
            out: ParsedOptions {
                db,
                families: vec![ColumnFamilyDescriptor::new("default", cf)],
                ..ParsedOptions::default()
            },
        }
    }

    /// The changed options, and what has no effect.
    pub(super) fn into_options(self) -> (DbOptions, ColumnFamilyOptions, Vec<String>) {
        let family = self.out.families.into_iter().next();
        let cf = family.map(|f| f.options).unwrap_or_default();
        (self.out.db, cf, self.out.warnings)
    }

    /// Sets an option of these sections; one that has those of tables in it, and single members of
    /// a struct (`compression_opts.level`), too.
    pub(super) fn assign(
        &mut self,
        sections: &[&'static str],
        name: &str,
        value: &str,
    ) -> Result<()> {
        if let Some((head, member)) = name.split_once('.') {
            return self.assign(sections, head, &format!("{{{member}={value}}}"));
        }
        if sections.contains(&CF_SECTION)
            && let Some(members) = table_members(name, value)?
        {
            for (name, value) in members {
                self.known_key(&[TABLE_SECTION], name, value)?;
            }
            return Ok(());
        }
        let name = match name {
            "memtable" => "memtable_factory", // RocksDB's other name for it
            name => name,
        };
        self.known_key(sections, name, value)
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
                self.kept().foreign.push(line.to_owned());
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
                self.kept().foreign.push(line.to_owned());
                Ok(())
            }
            Section::Version => self.version(name, value),
            Section::Db => self.key(DB_SECTION, name, value),
            Section::Cf => self.key(CF_SECTION, name, value),
            Section::Table => self.key(TABLE_SECTION, name, value),
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
                if self.out.families.last().is_none_or(|f| f.name != name) {
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
                self.warn_unknown(format!("unknown section [{header}] is skipped"));
                Section::Unknown
            }
        };
        Ok(())
    }

    fn family(&mut self, name: String) -> Result<()> {
        let first = self.out.families.is_empty();
        if first != (name == "default") || self.out.families.iter().any(|f| f.name == name) {
            return Err(Error::invalid_argument(format!(
                "[CFOptions \"{}\"]: \"default\" must come first, and every family once",
                escape(&name)
            )));
        }
        let options = ColumnFamilyOptions::default();
        self.out
            .families
            .push(ColumnFamilyDescriptor::new(name, options));
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
                self.out.rocksdb_version = (a, b, c);
                if (a, b, c) > ROCKSDB_NEWEST {
                    self.warn(format!("written by RocksDB {value}, newer than 11.8.1"));
                }
            }
            "options_file_version" => {
                if a != FILE_VERSION.0 {
                    return Err(Error::not_supported(format!(
                        "options_file_version {value}; 1.x is known"
                    )));
                }
                if (a, b) > FILE_VERSION {
                    self.warn(format!("options_file_version {value} is newer than 1.1"));
                }
            }
            _ => self.warn_unknown(format!("unknown key {name} in [Version]")),
        }
        Ok(())
    }

    fn key(&mut self, section: &'static str, name: &str, value: &str) -> Result<()> {
        self.kept_of(section).forget(section, name);
        if section == TABLE_SECTION && has_table_rule(name) {
            return self.table_rule(name, value);
        }
        let Some(known) = rocksdb::find(section, name) else {
            self.unknown_key(section, name, value);
            return Ok(());
        };
        if section == CF_SECTION
            && (name == "compression_opts" || name == "bottommost_compression_opts")
        {
            return self.compression(name, value);
        }
        if section == CF_SECTION && rocksdb::COMPONENT_KEYS.contains(&name) {
            return self.component(name, value);
        }
        if !rocksdb::is_implemented(known) {
            return self.without_effect(known, value);
        }
        if section == TABLE_SECTION && name == "filter_policy" && reads_only(value) {
            self.warn(format!(
                "option {name} = {value} makes no filters, as in RocksDB"
            ));
            let set = self.set(section, name, "nullptr");
            set.map_err(Unset::into_error)?;
            self.keep(section, name, value, false);
            return Ok(());
        }
        if name == "wal_compression" && uncompressed(value) {
            self.warn(format!("option {name} = {value} is used as kNoCompression"));
            return self
                .set(section, name, "kNoCompression")
                .map_err(Unset::into_error);
        }
        match self.set(section, name, value) {
            Ok(()) => Ok(()),
            Err(Unset::OutOfRange(e)) if self.strict => Err(e),
            Err(e) if !same_shape(value, known.default) => Err(e.into_error()),
            // A value that RocksDB may have, but Ironstone does not.
            Err(e) => self.not_done(section, name, value, plain(&e.into_error())),
        }
    }

    /// Sets an option that Ironstone has.
    fn set(&mut self, section: &str, name: &str, value: &str) -> Result<(), Unset> {
        match section {
            DB_SECTION if name == "wal_dir" => {
                self.out.db.wal_dir = unescape(value);
                Ok(())
            }
            DB_SECTION if name == "db_log_dir" => {
                self.out.db.db_log_dir = unescape(value);
                Ok(())
            }
            DB_SECTION => set(&mut self.out.db, name, value),
            _ => match self.out.families.last_mut() {
                None => Ok(()),
                Some(f) if section == CF_SECTION => set(&mut f.options.cf, name, value),
                Some(f) => set(&mut f.options.table, name, value),
            },
        }
    }

    /// A key that RocksDB has and no option table.
    fn without_effect(&mut self, known: &'static Key, value: &str) -> Result<()> {
        let (section, name) = (known.section, known.name);
        if same_value(value, known.default) {
            return Ok(());
        }
        if rocksdb::is_also_accepted(known, value) {
            self.keep(section, name, value, false);
            return Ok(());
        }
        if rocksdb::is_without_effect(known) {
            if !same_shape(value, known.default) || !rocksdb::is_in_type(known, value) {
                let default = known.default;
                return Err(Error::invalid_argument(format!(
                    "option {name}: \"{value}\" is no value like {default}"
                )));
            }
            self.warn(format!("option {name} = {value} has no effect"));
            self.keep(section, name, value, true);
            return Ok(());
        }
        self.not_done(
            section,
            name,
            value,
            format!(
                "option {name} = {value} (only {} is implemented)",
                known.default
            ),
        )
    }

    /// A key that no known RocksDB has, or an object, which text cannot make.
    fn unknown_key(&mut self, section: &'static str, name: &str, value: &str) {
        self.keep(
            section,
            name,
            value,
            !matches!(value, "" | "nullptr" | "{}"),
        );
        if let Some((_, field)) = OBJECTS.iter().find(|(object, _)| *object == name) {
            self.warn(format!(
                "option {name} is an object, which is given as options.{field}"
            ));
            return;
        }
        let known = KEYS.iter().filter(|k| k.section == section);
        let nearest = base::options::nearest(name, known.map(|k| k.name));
        let hint = nearest.map_or(String::new(), |n| format!(" (did you mean {n}?)"));
        self.warn_unknown(format!("unknown key {name} in [{section}]{hint}"));
    }

    /// Where settings without effect of the section just read are kept.
    fn kept_of(&mut self, section: &str) -> &mut Kept {
        match self.out.families.last_mut() {
            Some(f) if section != DB_SECTION => &mut f.options.kept,
            _ => &mut self.out.db.kept,
        }
    }

    /// The same for sections that are not known.
    fn kept(&mut self) -> &mut Kept {
        self.kept_of("")
    }

    /// Keeps a setting as it stands. `asks`: for something that it does not get.
    fn keep(&mut self, section: &'static str, name: &str, value: &str, asks: bool) {
        let family = self.out.families.last().map(|f| &f.options);
        let instead = match (section, family) {
            (DB_SECTION, _) => db_value(&self.out.db, name),
            (CF_SECTION, Some(o)) => cf_value(o, name),
            (_, Some(o)) => o.table.get(name),
            (_, None) => None,
        };
        self.kept_of(section).keep(Setting {
            section,
            name: name.to_owned(),
            value: value.to_owned(),
            instead,
            asks,
        });
    }

    /// A key of one of these sections, or the error that none has it.
    fn known_key(&mut self, sections: &[&'static str], name: &str, value: &str) -> Result<()> {
        let own = |section: &str| match section {
            DB_SECTION => DbOptions::infos().iter().any(|i| i.name == name),
            CF_SECTION => CfOptions::infos().iter().any(|i| i.name == name),
            _ => TableOptions::infos().iter().any(|i| i.name == name),
        };
        let known = |s: &&&'static str| {
            rocksdb::find(s, name).is_some() || **s == TABLE_SECTION && has_table_rule(name)
        };
        if let Some(section) = sections.iter().find(known) {
            return self.key(section, name, value);
        }
        // Options that only Ironstone has do not stand in OPTIONS files.
        match sections.iter().find(|s| own(s)) {
            Some(&DB_SECTION) => set(&mut self.out.db, name, value).map_err(Unset::into_error),
            Some(&CF_SECTION) => match self.out.families.last_mut() {
                Some(f) => set(&mut f.options.cf, name, value).map_err(Unset::into_error),
                None => Ok(()),
            },
            _ => Err(unknown(sections, name)),
        }
    }

    /// An option of tables that has no effect there and may keep only some values.
    fn table_rule(&mut self, name: &str, value: &str) -> Result<()> {
        let Some(f) = self.out.families.last_mut() else {
            return Ok(());
        };
        match f.options.table.apply(name, value) {
            Ok(()) => {
                let known = rocksdb::find(TABLE_SECTION, name);
                if known.is_some_and(|k| !same_value(value, k.default)) {
                    self.keep(TABLE_SECTION, name, value, false);
                }
                Ok(())
            }
            Err(e) => self.not_done(TABLE_SECTION, name, value, plain(&e)),
        }
    }

    fn compression(&mut self, name: &str, value: &str) -> Result<()> {
        let Some(before) = self.out.families.last().map(|f| &f.options.cf) else {
            return Ok(());
        };
        let before = match name {
            "compression_opts" => &before.compression_opts,
            _ => &before.bottommost_compression_opts,
        };
        let (mut options, unknown) = before
            .parse_members(value)
            .map_err(|e| Error::invalid_argument(format!("option {name}: {}", plain(&e))))?;
        let mut refused = None;
        for (member, value) in unknown {
            match CompressionOptions::only_value(member) {
                Some(only) => {
                    let what = format!("{member} = {value} (only {only} is implemented)");
                    self.refuse(format!("option {name}: {what}"))?;
                }
                None if self.strict => {
                    return Err(Error::invalid_argument(format!(
                        "unknown member {member} in {name}"
                    )));
                }
                None => self.warn_unknown(format!("unknown member {member} in {name}")),
            }
            refused = Some(member);
        }
        if let Some(member) = options.unsupported() {
            self.refuse(format!(
                "option {name}: {member} that RocksDB does not read"
            ))?;
            refused = Some(member);
            options = options.supported_part();
        }
        if let Some(f) = self.out.families.last_mut() {
            match name {
                "compression_opts" => f.options.cf.compression_opts = options,
                _ => f.options.cf.bottommost_compression_opts = options,
            }
        }
        if refused.is_some() {
            self.keep(CF_SECTION, name, value, true);
        }
        Ok(())
    }

    fn component(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "comparator" => self.comparator(value),
            "prefix_extractor" => self.prefix_extractor(value),
            "merge_operator" => self.merge_operator(value),
            _ if matches!(value, "nullptr" | "") => Ok(()),
            _ => {
                let why = "a filter is given with the family's options";
                self.not_done(
                    CF_SECTION,
                    name,
                    value,
                    format!("option {name} = {value}: {why}"),
                )
            }
        }
    }

    fn merge_operator(&mut self, value: &str) -> Result<()> {
        match base::merge::parse(value) {
            Ok(operator) => {
                if let Some(f) = self.out.families.last_mut() {
                    f.options.merge_operator = operator;
                }
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::NotSupported => {
                let message = format!("option {}", plain(&e));
                self.not_done(CF_SECTION, "merge_operator", value, message)
            }
            Err(e) => Err(e),
        }
    }

    fn comparator(&mut self, value: &str) -> Result<()> {
        match Comparator::by_name(value) {
            Some(c) => {
                if let Some(f) = self.out.families.last_mut() {
                    f.options.comparator = c;
                }
                Ok(())
            }
            None => self.refuse(format!(
                "option comparator = {value}, which is not built in"
            )),
        }
    }

    fn prefix_extractor(&mut self, value: &str) -> Result<()> {
        let Some(transform) = Option::<SliceTransform>::parse(value) else {
            let message = format!("option prefix_extractor = {value}, which is not built in");
            return self.not_done(CF_SECTION, "prefix_extractor", value, message);
        };
        if let Some(f) = self.out.families.last_mut() {
            f.options.prefix_extractor = transform;
        }
        Ok(())
    }

    /// What Ironstone does not have: refused, or told and kept as it stands.
    fn not_done(
        &mut self,
        section: &'static str,
        name: &str,
        value: &str,
        message: String,
    ) -> Result<()> {
        self.refuse(message)?;
        self.keep(section, name, value, true);
        Ok(())
    }

    fn refuse(&mut self, message: String) -> Result<()> {
        match self.unsupported {
            Unsupported::Refuse => Err(Error::not_supported(message)),
            Unsupported::Warn => {
                self.warn(format!("not supported: {message}"));
                Ok(())
            }
        }
    }

    fn warn(&mut self, message: String) {
        self.out.warnings.push(if self.line == 0 {
            message
        } else {
            format!("line {}: {message}", self.line)
        });
    }

    /// A warning about a name that no known RocksDB has.
    fn warn_unknown(&mut self, message: String) {
        self.warn(message);
        self.out.unknown.extend(self.out.warnings.last().cloned());
    }
}

/// What RocksDB takes as text and Ironstone as an object: name and where it is given.
const OBJECTS: &[(&str, &str)] = &[
    ("block_cache", "env.block_cache"),
    ("compaction_thread_limiter", "db.max_background_jobs"),
    ("env", "env"),
    ("info_log", "env"),
    ("listeners", "env.listeners"),
    ("persistent_cache", "env.block_cache"),
    ("rate_limiter", "env.rate_limiter"),
    ("rate_limiter_bytes_per_sec", "env.rate_limiter"),
    ("row_cache", "env.block_cache"),
    ("sst_file_manager", "env"),
    ("statistics", "env.statistics"),
    ("write_buffer_manager", "env.write_buffer_manager"),
];

/// Whether an option is an object, which text cannot make.
pub fn is_object(name: &str) -> bool {
    OBJECTS.iter().any(|(object, _)| *object == name)
}

/// The error of a name that none of the sections has.
pub(super) fn unknown(sections: &[&str], name: &str) -> Error {
    if let Some((_, field)) = OBJECTS.iter().find(|(object, _)| *object == name) {
        return Error::not_supported(format!("option {name} as text"))
            .hint(format!("it is an object: options.{field}"));
    }
    let own = |s: &&str| match *s {
        DB_SECTION => DbOptions::infos(),
        CF_SECTION => CfOptions::infos(),
        _ => TableOptions::infos(),
    };
    let own = sections.iter().flat_map(own).map(|info| info.name);
    let theirs = KEYS.iter().filter(|k| sections.contains(&k.section));
    let known = own.chain(theirs.map(|k| k.name));
    base::options::unknown_option(&sections.join(" and "), name, known)
}

/// True if the table crate says which values of the option it accepts.
fn has_table_rule(name: &str) -> bool {
    let rules = table::options::WITHOUT_EFFECT;
    rules.iter().any(|(n, _)| *n == name)
}

/// Why an option was not set.
enum Unset {
    /// The text is no value of its type.
    NoValue(Error),
    /// The value is not allowed.
    OutOfRange(Error),
}

impl Unset {
    fn into_error(self) -> Error {
        match self {
            Self::NoValue(e) | Self::OutOfRange(e) => e,
        }
    }
}

/// Sets an option if the result is valid; the table is unchanged otherwise.
fn set<T: OptionTable>(table: &mut T, name: &str, value: &str) -> Result<(), Unset> {
    let mut changed = table.clone();
    changed.set(name, value).map_err(Unset::NoValue)?;
    let mut used = changed.clone();
    used.sanitize();
    used.validate().map_err(Unset::OutOfRange)?;
    *table = changed;
    Ok(())
}

/// Whether RocksDB takes a compression for logs, and then leaves them uncompressed.
fn uncompressed(compression: &str) -> bool {
    let codec = table::CompressionType::parse(compression);
    codec.is_some_and(|c| {
        !matches!(
            c,
            table::CompressionType::None | table::CompressionType::Zstd
        )
    })
}

/// Whether a filter policy is one by which RocksDB reads filters and makes none: what its releases
/// before 7.0 wrote into OPTIONS files.
fn reads_only(policy: &str) -> bool {
    let name = policy.strip_prefix("{id=").unwrap_or(policy);
    let name = name.split([':', ';', '}']).next().unwrap_or_default();
    name == table::filter::BUILTIN_NAME
}

/// True if two values mean the same: as text, as numbers, or member by member in any order.
fn same_value(value: &str, default: &str) -> bool {
    if value == default {
        return true;
    }
    if let (Ok(a), Ok(b)) = (value.parse::<f64>(), default.parse::<f64>()) {
        return a.to_bits() == b.to_bits();
    }
    if !(value.starts_with('{') && default.starts_with('{')) {
        return false;
    }
    match (members(value), members(default)) {
        (Ok(a), Ok(b)) => a
            .iter()
            .all(|(name, v)| b.iter().any(|(n, w)| n == name && same_value(v, w))),
        _ => false,
    }
}

/// False if the default is a number or a switch and the value is not.
fn same_shape(value: &str, default: &str) -> bool {
    let number = |s: &str| s.parse::<f64>().is_ok();
    let switch = |s: &str| matches!(s, "true" | "false" | "0" | "1");
    let is_switch = matches!(default, "true" | "false");
    (!number(default) || number(value)) && (!is_switch || switch(value))
}

/// The line without its comment.
fn strip_comment(line: &str) -> &str {
    let mut before = ' ';
    for (i, c) in line.char_indices() {
        if c == '#' && before != '\\' {
            return line.get(..i).unwrap_or(line);
        }
        before = c;
    }
    line
}

#[cfg(test)]
#[expect(clippy::print_stdout, reason = "tests say what they skipped")]
#[path = "codec_tests.rs"]
mod tests;
