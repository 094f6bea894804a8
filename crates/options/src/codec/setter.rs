//! Sets options by name from text: from an OPTIONS file, from a string, or for a change while the database is open.
//! This module decides how values that Ironstone does not support are handled.

use base::options::{OptionTable, OptionValue as _};
use base::{Comparator, Error, ErrorKind, Result, SliceTransform};

use super::members;
use super::syntax::{same_shape, same_value, unescape};
use super::{ParsedOptions, Unsupported, cf_value, db_value};
use crate::kept::{Kept, Setting};
use crate::rocksdb::{self, CF_SECTION, DB_SECTION, KEYS, Key, TABLE_SECTION};
use crate::{ColumnFamilyDescriptor, ColumnFamilyOptions, CompressionOptions, DbOptions};

/// The column family option whose value contains the table options.
pub(crate) const TABLE_OPTION: &str = "block_based_table_factory";

/// The table options in a column family option, if it is [`TABLE_OPTION`].
pub(crate) fn table_members<'t>(
    name: &str,
    value: &'t str,
) -> Result<Option<Vec<(&'t str, &'t str)>>> {
    if !matches!(name, TABLE_OPTION | "table_factory") || !value.trim().starts_with('{') {
        return Ok(None);
    }
    members(value).map(Some)
}

/// Options that are being set. Family options apply to the last family.
pub(crate) struct Setter {
    unsupported: Unsupported,
    /// Whether unknown names are errors.
    strict: bool,
    /// The line number in the file, for warnings; 0 without a file.
    pub(super) line: usize,
    pub(super) out: ParsedOptions,
}

impl Setter {
    /// A setter for an OPTIONS file.
    pub(super) fn new(unsupported: Unsupported) -> Self {
        Self {
            unsupported,
            strict: false,
            line: 0,
            out: ParsedOptions::default(),
        }
    }

    /// A setter for changes of these options. Unknown and unsupported options are errors.
    pub(crate) fn onto(db: DbOptions, cf: ColumnFamilyOptions) -> Self {
        Self {
            unsupported: Unsupported::Refuse,
            strict: true,
            line: 0,
            out: ParsedOptions {
                db,
                families: vec![ColumnFamilyDescriptor::new("default", cf)],
                ..ParsedOptions::default()
            },
        }
    }

    /// The changed options, and messages about those that have no effect.
    pub(crate) fn into_options(self) -> (DbOptions, ColumnFamilyOptions, Vec<String>) {
        let family = self.out.families.into_iter().next();
        let cf = family.map(|f| f.options).unwrap_or_default();
        (self.out.db, cf, self.out.warnings)
    }

    /// Sets an option of one of these sections. It may also be [`TABLE_OPTION`] or a single member of a struct
    /// (`compression_opts.level`).
    pub(crate) fn assign(
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

    /// Sets the option for a key of an OPTIONS file.
    pub(super) fn key(&mut self, section: &'static str, name: &str, value: &str) -> Result<()> {
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
            // RocksDB may accept this value, but Ironstone does not.
            Err(e) => self.not_done(section, name, value, plain(&e.into_error())),
        }
    }

    /// Sets an option that an option table contains.
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

    /// Handles a key of RocksDB that is in no option table.
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

    /// Handles a key that no known RocksDB release has, or an object, which text cannot create.
    fn unknown_key(&mut self, section: &'static str, name: &str, value: &str) {
        self.keep(
            section,
            name,
            value,
            !matches!(value, "" | "nullptr" | "{}"),
        );
        if let Some(field) = field_of(name) {
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

    /// Where settings of this section without effect are kept.
    fn kept_of(&mut self, section: &str) -> &mut Kept {
        match self.out.families.last_mut() {
            Some(f) if section != DB_SECTION => &mut f.options.kept,
            _ => &mut self.out.db.kept,
        }
    }

    /// Where lines of unknown sections are kept.
    pub(super) fn kept(&mut self) -> &mut Kept {
        self.kept_of("")
    }

    /// Keeps a setting unchanged. `asks`: it requests something that Ironstone does not provide.
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

    /// Sets a key of one of these sections. Errors: none of them has the key.
    fn known_key(&mut self, sections: &[&'static str], name: &str, value: &str) -> Result<()> {
        let known = |s: &&&'static str| {
            rocksdb::find(s, name).is_some() || **s == TABLE_SECTION && has_table_rule(name)
        };
        if let Some(section) = sections.iter().find(known) {
            return self.key(section, name, value);
        }
        // Ironstone's own options do not occur in OPTIONS files.
        let own = |s: &&&'static str| rocksdb::own(s).iter().any(|i| i.name == name);
        match sections.iter().find(own) {
            Some(section) => self.set(section, name, value).map_err(Unset::into_error),
            None => Err(unknown(sections, name)),
        }
    }

    /// Sets a table option that has no effect in the table crate and may accept only some values.
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

    /// Handles a value that Ironstone does not support: it is refused, or kept with a warning.
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

    pub(super) fn warn(&mut self, message: String) {
        self.out.warnings.push(if self.line == 0 {
            message
        } else {
            format!("line {}: {message}", self.line)
        });
    }

    /// Adds a warning about a name that no known RocksDB release has.
    pub(super) fn warn_unknown(&mut self, message: String) {
        self.warn(message);
        self.out.unknown.extend(self.out.warnings.last().cloned());
    }
}

/// Options that RocksDB accepts as text, but that are objects in Ironstone: the name, and the field of `Options`.
const OBJECTS: &[(&str, &str)] = &[
    ("block_cache", "env.block_cache"),
    ("compaction_thread_limiter", "db.max_background_jobs"),
    ("env", "env"),
    ("info_log", "env"),
    ("listeners", "env.listeners"),
    ("persistent_cache", "env.block_cache"),
    ("rate_limiter", "env.rate_limiter"),
    ("rate_limiter_bytes_per_sec", "env.rate_limiter"),
    ("row_cache", "env.row_cache"),
    ("sst_file_manager", "env"),
    ("statistics", "env.statistics"),
    ("write_buffer_manager", "env.write_buffer_manager"),
];

/// The field of `Options` for an option that is an object.
fn field_of(name: &str) -> Option<&'static str> {
    let object = OBJECTS.iter().find(|(object, _)| *object == name);
    object.map(|(_, field)| *field)
}

/// Whether an option is an object, which text cannot create.
pub fn is_object(name: &str) -> bool {
    field_of(name).is_some()
}

/// The error for a name that none of the sections has.
pub(crate) fn unknown(sections: &[&str], name: &str) -> Error {
    if let Some(field) = field_of(name) {
        return Error::not_supported(format!("option {name} as text"))
            .hint(format!("it is an object: options.{field}"));
    }
    let own = sections.iter().flat_map(|s| rocksdb::own(s));
    let own = own.map(|info| info.name);
    let theirs = KEYS.iter().filter(|k| sections.contains(&k.section));
    let known = own.chain(theirs.map(|k| k.name));
    base::options::unknown_option(&sections.join(" and "), name, known)
}

/// Whether the table crate defines which values of the option it accepts.
fn has_table_rule(name: &str) -> bool {
    let rules = table::options::WITHOUT_EFFECT;
    rules.iter().any(|(n, _)| *n == name)
}

/// Why an option was not set.
enum Unset {
    /// The text is not a valid value of the option's type.
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

/// Sets an option if the result is valid. Otherwise the table is unchanged.
fn set<T: OptionTable>(table: &mut T, name: &str, value: &str) -> Result<(), Unset> {
    let mut changed = table.clone();
    changed.set(name, value).map_err(Unset::NoValue)?;
    let mut used = changed.clone();
    used.sanitize();
    used.validate().map_err(Unset::OutOfRange)?;
    *table = changed;
    Ok(())
}

/// Whether RocksDB accepts a compression type for logs, but then leaves them uncompressed.
fn uncompressed(compression: &str) -> bool {
    let codec = table::CompressionType::parse(compression);
    codec.is_some_and(|c| {
        !matches!(
            c,
            table::CompressionType::None | table::CompressionType::Zstd
        )
    })
}

/// Whether a filter policy only lets RocksDB read filters, without creating any. Releases before 7.0 wrote such
/// policies into OPTIONS files.
fn reads_only(policy: &str) -> bool {
    let name = policy.strip_prefix("{id=").unwrap_or(policy);
    let name = name.split([':', ';', '}']).next().unwrap_or_default();
    name == table::filter::BUILTIN_NAME
}

/// An error's text without the label of its kind.
pub(super) fn plain(e: &Error) -> String {
    let label = format!("{}: ", e.kind().label());
    let text = e.to_string();
    text.strip_prefix(&label).unwrap_or(&text).to_owned()
}
