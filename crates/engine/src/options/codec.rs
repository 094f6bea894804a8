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
//! Reading is lenient about what is unknown (keys, sections, newer versions: a warning each) and
//! strict about shape (an error with the line's number). What a known key asks for that
//! Ironstone does not do is an error or a warning: [`Unsupported`].

use base::options::{OptionTable, OptionValue};
use base::{Comparator, Error, ErrorKind, Result, SliceTransform};
use table::TableOptions;

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
}

/// The text of an OPTIONS file for a database with these families. `default` is written first.
pub fn to_text(db: &DbOptions, families: &[(&str, &ColumnFamilyOptions)]) -> String {
    let (body, newer) = sections(db, families);
    let v = if newer {
        ROCKSDB_NEWEST
    } else {
        ROCKSDB_VERSION
    };
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
    let mut of = |section, value: &dyn Fn(&str) -> Option<String>| {
        let lines = lines(section, value);
        newer |= lines.iter().any(|(key, _)| key.releases == Releases::New);
        lines.into_iter().map(|(key, value)| (key.name, value))
    };
    let value = |n: &str| match n {
        "wal_dir" => Some(escape(&db.wal_dir)),
        n => db.get(n),
    };
    section(&mut out, DB_SECTION, None, of(DB_SECTION, &value));
    let first = families.iter().filter(|(name, _)| *name == "default");
    let rest = families.iter().filter(|(name, _)| *name != "default");
    for (name, o) in first.chain(rest) {
        let cf_value = |n: &str| match n {
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
            n => o.cf.get(n),
        };
        let cf_lines = of(CF_SECTION, &cf_value);
        section(&mut out, CF_SECTION, Some(name), cf_lines);
        let table = of(TABLE_SECTION, &|n| o.table.get(n));
        section(&mut out, TABLE_SECTION, Some(name), table);
    }
    (out, newer)
}

/// Every key of a section that is to be written with its value, or the default where no table has
/// it. Keys that 7.8.3 does not have are left out at their default; RocksDB leaves out what is empty,
/// too.
fn lines(section: &str, value: &dyn Fn(&str) -> Option<String>) -> Vec<(&'static Key, String)> {
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
    keys: impl Iterator<Item = (&'static str, String)>,
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
        out.extend(["  ", name, "=", &value, "\n"]);
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
            return self.section(header);
        }
        let (name, value) = line.split_once('=').ok_or_else(|| {
            Error::invalid_argument(format!("\"{line}\" is not of the form key=value"))
        })?;
        let (name, value) = (name.trim(), value.trim());
        match self.at {
            Section::None => Err(Error::invalid_argument("a key before the first section")),
            Section::Unknown => Ok(()),
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
                self.warn(format!("unknown section [{header}] is skipped"));
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
            _ => self.warn(format!("unknown key {name} in [Version]")),
        }
        Ok(())
    }

    fn key(&mut self, section: &'static str, name: &str, value: &str) -> Result<()> {
        if section == TABLE_SECTION && has_table_rule(name) {
            return self.table_rule(name, value);
        }
        let Some(known) = rocksdb::find(section, name) else {
            let known = KEYS.iter().filter(|k| k.section == section);
            let nearest = base::options::nearest(name, known.map(|k| k.name));
            let hint = nearest.map_or(String::new(), |n| format!(" (did you mean {n}?)"));
            self.warn(format!("unknown key {name} in [{section}]{hint}"));
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
            if same_value(value, known.default) || rocksdb::is_also_accepted(known, value) {
                return Ok(());
            }
            if rocksdb::is_without_effect(known) {
                self.warn(format!("option {name} = {value} has no effect"));
                return Ok(());
            }
            return self.not_done(format!(
                "option {name} = {value} (only {} is implemented)",
                known.default
            ));
        }
        let set = match section {
            DB_SECTION if name == "wal_dir" => {
                self.out.db.wal_dir = unescape(value);
                Ok(())
            }
            DB_SECTION => set(&mut self.out.db, name, value, DbOptions::validate),
            _ => match self.out.families.last_mut() {
                None => Ok(()),
                Some(f) if section == CF_SECTION => {
                    set(&mut f.options.cf, name, value, CfOptions::validate)
                }
                Some(f) => set(
                    &mut f.options.table,
                    name,
                    value,
                    TableOptions::check_writable,
                ),
            },
        };
        match set {
            Ok(()) => Ok(()),
            Err(Unset::OutOfRange(e)) if self.strict => Err(e),
            Err(e) if !same_shape(value, known.default) => Err(e.into_error()),
            // A value that RocksDB may have, but Ironstone does not.
            Err(e) => self.not_done(plain(&e.into_error())),
        }
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
            Some(&DB_SECTION) => {
                set(&mut self.out.db, name, value, DbOptions::validate).map_err(Unset::into_error)
            }
            Some(&CF_SECTION) => match self.out.families.last_mut() {
                Some(f) => set(&mut f.options.cf, name, value, CfOptions::validate)
                    .map_err(Unset::into_error),
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
            Ok(()) => Ok(()),
            Err(e) => self.not_done(plain(&e)),
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
        for (member, value) in unknown {
            match CompressionOptions::only_value(member) {
                Some(only) => self.not_done(format!(
                    "option {name}: {member} = {value} (only {only} is implemented)"
                ))?,
                None if self.strict => {
                    return Err(Error::invalid_argument(format!(
                        "unknown member {member} in {name}"
                    )));
                }
                None => self.warn(format!("unknown member {member} in {name}")),
            }
        }
        if let Some(member) = options.unsupported() {
            self.not_done(format!(
                "option {name}: {member} that RocksDB does not read"
            ))?;
            options = options.supported_part();
        }
        if let Some(f) = self.out.families.last_mut() {
            match name {
                "compression_opts" => f.options.cf.compression_opts = options,
                _ => f.options.cf.bottommost_compression_opts = options,
            }
        }
        Ok(())
    }

    fn component(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "comparator" => self.comparator(value),
            "prefix_extractor" => self.prefix_extractor(value),
            "merge_operator" => self.merge_operator(value),
            _ if matches!(value, "nullptr" | "") => Ok(()),
            _ => self.not_done(format!(
                "option {name} = {value}: a filter is given with the family's options"
            )),
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
                self.not_done(format!("option {}", plain(&e)))
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
            None => self.not_done(format!(
                "option comparator = {value}, which is not built in"
            )),
        }
    }

    fn prefix_extractor(&mut self, value: &str) -> Result<()> {
        match Option::<SliceTransform>::parse(value) {
            Some(transform) => {
                if let Some(f) = self.out.families.last_mut() {
                    f.options.prefix_extractor = transform;
                }
                Ok(())
            }
            None => self.not_done(format!(
                "option prefix_extractor = {value}, which is not built in"
            )),
        }
    }

    fn not_done(&mut self, message: String) -> Result<()> {
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
}

/// What RocksDB takes as text and Ironstone as an object: name and where it is given.
const OBJECTS: &[(&str, &str)] = &[
    ("block_cache", "env.block_cache"),
    ("env", "env"),
    ("listeners", "env.listeners"),
    ("rate_limiter", "env.rate_limiter"),
    ("rate_limiter_bytes_per_sec", "env.rate_limiter"),
    ("statistics", "env.statistics"),
    ("write_buffer_manager", "env.write_buffer_manager"),
];

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
fn set<T: OptionTable>(
    table: &mut T,
    name: &str,
    value: &str,
    check: fn(&T) -> Result<()>,
) -> Result<(), Unset> {
    let mut changed = table.clone();
    changed.set(name, value).map_err(Unset::NoValue)?;
    check(&changed).map_err(Unset::OutOfRange)?;
    *table = changed;
    Ok(())
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
    (!number(default) || number(value)) && (!switch(default) || switch(value))
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
