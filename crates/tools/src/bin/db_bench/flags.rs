//! Command-line flags: each is declared once, in the table in `flags/table.rs` and `flags/engines.rs`.
//! The parser, the defaults, `--help` and the engines' options all come from that table. Options that
//! only Ironstone has are also flags; they come from the engine's option tables (`flags/own.rs`).
//!
//! The syntax is RocksDB's: `--name=value`, `--name value` and `-name=value`; for a Boolean also
//! `--name` and `--noname`. `--undefok=a,b` allows unknown flags of these names.

/// A type of flag values.
pub(crate) trait Value: Sized {
    /// The type's name in messages.
    const KIND: &'static str;
    fn parse(text: &str) -> Option<Self>;
    fn print(&self) -> String;
}

macro_rules! integer_value {
    ($($t:ty = $kind:literal),*) => {$(
        impl Value for $t {
            const KIND: &'static str = $kind;
            fn parse(text: &str) -> Option<Self> {
                match text.strip_prefix("0x") {
                    Some(hex) => Self::from_str_radix(hex, 16).ok(),
                    None => text.parse().ok(),
                }
            }
            fn print(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
integer_value!(i32 = "int32", i64 = "int64", u32 = "uint32", u64 = "uint64");

impl Value for f64 {
    const KIND: &'static str = "double";
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|v: &f64| v.is_finite())
    }
    fn print(&self) -> String {
        self.to_string()
    }
}

impl Value for bool {
    const KIND: &'static str = "bool";
    fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "1" | "t" | "true" | "y" | "yes" => Some(true),
            "0" | "f" | "false" | "n" | "no" => Some(false),
            _ => None,
        }
    }
    fn print(&self) -> String {
        self.to_string()
    }
}

impl Value for String {
    const KIND: &'static str = "string";
    fn parse(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
    fn print(&self) -> String {
        self.clone()
    }
}

/// The option table that has an engine's option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Options of the database.
    Db,
    /// Options of a column family.
    Cf,
    /// Options of the block-based table format.
    Table,
}

/// One flag.
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    group: &'static str,
    pub(crate) default: fn() -> String,
    doc: &'static [&'static str],
    /// The engine's option that the flag sets.
    pub(crate) option: Option<(Place, &'static str)>,
    set: fn(&mut Flags, &str) -> bool,
    pub(crate) get: fn(&Flags) -> String,
}

macro_rules! flags {
    ($(
        $group:literal {
            $(
                $(#[doc = $doc:literal])*
                $name:ident : $ty:ty = $default:expr $(, option $place:ident $option:literal)? ;
            )*
        }
    )*) => {
        /// The values of all flags.
        #[derive(Clone)]
        #[expect(non_snake_case, reason = "flags have RocksDB's names")]
        pub(crate) struct Flags {
            $($( $(#[doc = $doc])* pub(crate) $name: $ty, )*)*
            /// Options that only Ironstone has.
            pub(crate) own: super::own::Own,
        }

        impl Default for Flags {
            fn default() -> Self {
                Self { $($( $name: $default, )*)* own: super::own::Own::default() }
            }
        }

        /// The table.
        pub(crate) static FLAGS: &[Flag] = &[ $($( Flag {
            name: stringify!($name),
            kind: <$ty as Value>::KIND,
            group: $group,
            default: || { let value: $ty = $default; value.print() },
            doc: &[ $($doc),* ],
            option: flags!(@option $($place $option)?),
            set: |flags, text| match <$ty as Value>::parse(text) {
                Some(value) => { flags.$name = value; true }
                None => false,
            },
            get: |flags| flags.$name.print(),
        }, )*)* ];
    };
    (@option) => { None };
    (@option $place:ident $option:literal) => { Some((Place::$place, $option)) };
}

mod engines;
mod own;
mod refused;
mod table;

#[cfg(test)]
pub(crate) use refused::ENGINE;
pub(crate) use refused::{by_ironstone, check as refused_by};
pub(crate) use table::{FLAGS, Flags};

/// The request of the command line.
pub(crate) enum Command {
    /// Run benchmarks.
    Run(Box<Flags>),
    /// Print the help.
    Help,
    /// Print the version.
    Version,
}

/// Reads the command line, without the program's name. The errors are lines to print.
pub(crate) fn parse(arguments: &[String]) -> Result<Command, Vec<String>> {
    let mut flags = Flags::default();
    let mut errors = Vec::new();
    // Flags without an effect, and the error for each.
    let mut without: Vec<(String, String)> = Vec::new();
    let mut allowed: Vec<String> = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let Some(body) = argument.strip_prefix("--").or(argument.strip_prefix('-')) else {
            errors.push(format!("ERROR: unexpected argument '{argument}'"));
            continue;
        };
        if body.is_empty() {
            errors.extend(rest.map(|a| format!("ERROR: unexpected argument '{a}'")));
            break;
        }
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (body, None),
        };
        let name = name.replace('-', "_");
        match name.as_str() {
            "help" | "h" => return Ok(Command::Help),
            "version" => return Ok(Command::Version),
            "undefok" => {
                let list = value.or_else(|| rest.next().map(String::as_str));
                allowed.extend(list.unwrap_or_default().split(',').map(str::to_owned));
                continue;
            }
            _ => {}
        }
        match find(&name) {
            Some((flag, negated)) => {
                if let Err(e) = set(&mut flags, flag, negated, value, &mut rest) {
                    errors.push(e);
                }
            }
            None => match own::find(&name) {
                Some((flag, negated)) => {
                    if let Err(e) = set_own(&mut flags, flag, negated, value, &mut rest) {
                        errors.push(e);
                    }
                }
                None => {
                    if let Some(error) = refuse(&name, value, &mut rest) {
                        without.push((name, error));
                    }
                }
            },
        }
    }
    for (name, error) in without {
        let base = name.strip_prefix("no").unwrap_or(&name);
        if !allowed.iter().any(|a| *a == name || a == base) {
            errors.push(error);
        }
    }
    if flags.is_librocksdb() {
        flags.own.forget(&allowed);
    }
    // A flag that may be unknown may be one of the other engine, too.
    for flag in FLAGS.iter().filter(|f| allowed.iter().any(|a| a == f.name)) {
        if refused::is_others(flag.name, &flags.engine) {
            (flag.set)(&mut flags, &(flag.default)());
        }
    }
    // A database that is only read exists.
    flags.use_existing_db |= flags.readonly;
    errors.extend(check(&flags));
    if errors.is_empty() {
        Ok(Command::Run(Box::new(flags)))
    } else {
        Err(errors)
    }
}

impl Flags {
    /// Whether the engine is RocksDB.
    pub(crate) fn is_librocksdb(&self) -> bool {
        self.engine.starts_with("librocksdb")
    }
}

/// The flag with this name; also whether the name is `no` and the name of a Boolean flag.
fn find(name: &str) -> Option<(&'static Flag, bool)> {
    let by_name = |name: &str| FLAGS.iter().find(|f| f.name == name);
    if let Some(flag) = by_name(name) {
        return Some((flag, false));
    }
    let flag = by_name(name.strip_prefix("no")?)?;
    (flag.kind == bool::KIND).then_some((flag, true))
}

fn set<'a>(
    flags: &mut Flags,
    flag: &'static Flag,
    negated: bool,
    value: Option<&'a str>,
    rest: &mut impl Iterator<Item = &'a String>,
) -> Result<(), String> {
    let value = value_of(flag.kind, negated, value, rest).ok_or_else(|| {
        let (name, doc) = (flag.name, flag.doc.join("").trim().to_owned());
        format!("ERROR: flag '--{name}' is missing its argument; flag description: {doc}")
    })?;
    if !(flag.set)(flags, value) {
        let (kind, name) = (flag.kind, flag.name);
        return Err(format!(
            "ERROR: illegal value '{value}' specified for {kind} flag '{name}'"
        ));
    }
    Ok(())
}

/// Like [`set`], for an option that only Ironstone has.
fn set_own<'a>(
    flags: &mut Flags,
    flag: own::OwnFlag,
    negated: bool,
    value: Option<&'a str>,
    rest: &mut impl Iterator<Item = &'a String>,
) -> Result<(), String> {
    let (name, kind) = (flag.info.name, flag.kind());
    let value = value_of(&kind, negated, value, rest).ok_or_else(|| {
        let doc = flag.info.doc.join("");
        let doc = doc.trim();
        format!("ERROR: flag '--{name}' is missing its argument; flag description: {doc}")
    })?;
    if !flags.own.set(flag, value) {
        return Err(format!(
            "ERROR: illegal value '{value}' specified for {kind} flag '{name}'"
        ));
    }
    Ok(())
}

/// A flag's value: the text after `=`, the value that the name of a Boolean flag implies, or the
/// next argument.
fn value_of<'a>(
    kind: &str,
    negated: bool,
    value: Option<&'a str>,
    rest: &mut impl Iterator<Item = &'a String>,
) -> Option<&'a str> {
    match value {
        Some(value) => Some(value),
        None if kind == bool::KIND => Some(if negated { "false" } else { "true" }),
        None => rest.next().map(String::as_str),
    }
}

/// The error for a flag that is not in the table; `None` if the flag has its default value.
fn refuse<'a>(
    name: &str,
    value: Option<&'a str>,
    rest: &mut impl Iterator<Item = &'a String>,
) -> Option<String> {
    let Some((reason, flag, negated)) = refused::find(name) else {
        return Some(format!("ERROR: unknown command line flag '{name}'"));
    };
    let value = value_of(flag.1, negated, value, rest).unwrap_or_default();
    (!refused::is_default(flag, value))
        .then(|| format!("ERROR: command line flag '{name}' is not supported: {reason}"))
}

/// Checks for values with which no benchmark can run.
fn check(flags: &Flags) -> Vec<String> {
    let at_least = |name: &str, value: i64, min: i64| {
        (value < min)
            .then(|| format!("ERROR: flag '{name}' is {value}, but must be at least {min}"))
    };
    let mut errors: Vec<String> = [
        at_least("num", flags.num, 1),
        at_least("threads", i64::from(flags.threads), 1),
        at_least("key_size", i64::from(flags.key_size), 1),
        at_least("value_size", i64::from(flags.value_size), 0),
        at_least("batch_size", flags.batch_size, 1),
        at_least("cache_size", flags.cache_size, 0),
        at_least("numdistinct", flags.numdistinct, 1),
        at_least("key_id_range", i64::from(flags.key_id_range), 1),
        at_least("range_tombstone_width", flags.range_tombstone_width, 1),
        at_least("num_levels", i64::from(flags.num_levels), 1),
        at_least("prefix_size", i64::from(flags.prefix_size), 0),
        at_least("multiread_stride", flags.multiread_stride, 0),
        at_least("readahead_size", i64::from(flags.readahead_size), 0),
        at_least(
            "ops_between_duration_checks",
            i64::from(flags.ops_between_duration_checks),
            1,
        ),
        at_least("bgwriter_num", flags.bgwriter_num, 0),
        at_least("mix_max_scan_len", flags.mix_max_scan_len, 1),
        at_least("mix_max_value_size", flags.mix_max_value_size, 10),
        at_least("keyrange_num", flags.keyrange_num, 1),
        at_least("duration", i64::from(flags.duration), 0),
        at_least("stats_interval", flags.stats_interval, 0),
        at_least("stats_interval_seconds", flags.stats_interval_seconds, 0),
        at_least("report_interval_seconds", flags.report_interval_seconds, 0),
        at_least(
            "num_column_families",
            i64::from(flags.num_column_families),
            1,
        ),
        at_least("num_multi_db", i64::from(flags.num_multi_db), 0),
        at_least(
            "seek_nexts_to_delete",
            i64::from(flags.seek_nexts_to_delete),
            0,
        ),
        at_least("stats_level", i64::from(flags.stats_level), 0),
        at_least(
            "same_value_percentage",
            i64::from(flags.same_value_percentage),
            0,
        ),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !(0.0..=1.0).contains(&flags.compression_ratio) {
        let ratio = flags.compression_ratio;
        errors.push(format!(
            "ERROR: flag 'compression_ratio' is {ratio}, but must be from 0 to 1"
        ));
    }
    errors.extend(unmet(flags));
    if flags.prefix_size >= flags.key_size {
        let (prefix, key) = (flags.prefix_size, flags.key_size);
        errors.push(format!(
            "ERROR: flag 'prefix_size' is {prefix}, but must be less than key_size, which is {key}"
        ));
    }
    errors
}

/// Checks for flags that require or exclude other flags.
fn unmet(flags: &Flags) -> Vec<String> {
    let needs = [
        (
            flags.readwritepercent.max(flags.mergereadpercent) > 100
                || flags.readwritepercent + flags.deletepercent > 100,
            "'readwritepercent', and those of merges and deletions, are above 100",
        ),
        (
            flags.pause_every > 0 && flags.threads > 1,
            "'pause_every' needs threads=1: the others would go on",
        ),
        (
            flags.use_existing_keys && !flags.use_existing_db,
            "'use_existing_keys' needs use_existing_db",
        ),
        (
            flags.use_existing_keys && flags.num_multi_db > 1,
            "'use_existing_keys' is for one database, not for num_multi_db",
        ),
        (
            flags.use_existing_keys && flags.bgwriter_num > flags.num,
            "'bgwriter_num' must not be above num with use_existing_keys",
        ),
        (
            flags.use_secondary_db && !flags.use_existing_db,
            "'use_secondary_db' needs use_existing_db: the primary makes the database",
        ),
        (
            flags.use_secondary_db && (flags.num_multi_db > 1 || flags.readonly),
            "'use_secondary_db' is for one database, without num_multi_db and readonly",
        ),
        (
            flags.use_uint64_comparator && flags.key_size != 8,
            "'use_uint64_comparator' needs key_size=8",
        ),
        (
            flags.seek_missing_prefix && flags.prefix_size <= 8,
            "'seek_missing_prefix' needs a prefix_size above 8",
        ),
        (
            flags.statistics && !flags.statistics_string.is_empty(),
            "'statistics' and 'statistics_string' exclude each other",
        ),
    ];
    let unmet = needs.iter().filter(|(unmet, _)| *unmet);
    unmet
        .map(|(_, text)| format!("ERROR: flag {text}"))
        .collect()
}

/// The text of `--help`.
pub(crate) fn help() -> String {
    let mut lines = vec![INTRODUCTION.to_owned()];
    let benchmarks = crate::benchmarks::BENCHMARKS;
    lines.extend(
        benchmarks
            .iter()
            .map(|(name, doc)| format!("  {name:<18} {doc}")),
    );
    let mut group = "";
    for flag in FLAGS {
        if flag.group != group {
            group = flag.group;
            lines.push(format!("\n{group}:"));
        }
        let mut default = (flag.default)();
        if flag.kind == "string" {
            default = format!("{default:?}");
        }
        let (name, kind) = (flag.name, flag.kind);
        lines.push(format!("  --{name} ({kind}, default {default})"));
        lines.extend(flag.doc.iter().map(|line| format!("      {}", line.trim())));
    }
    lines.push("\nIronstone's own options, which --engine=librocksdb refuses:".to_owned());
    for flag in own::all() {
        let (name, default) = (flag.info.name, (flag.info.default)());
        lines.push(format!("  --{name} ({}, default {default})", flag.kind()));
        lines.extend(
            flag.info
                .doc
                .iter()
                .map(|line| format!("      {}", line.trim())),
        );
    }
    lines
        .push("\n--undefok=a,b ignores flags of these names that db_bench does not have.\nThe environment variable DB_BENCH_FLAGS has further flags, separated by spaces.\n".into());
    lines.join("\n")
}

const INTRODUCTION: &str = "\
db_bench: benchmarks with RocksDB's names, flags and result lines

usage: db_bench [--flag=value]...

examples:
  db_bench --benchmarks=fillrandom,compact,readrandom --num=1000000 --compression_type=none
  db_bench --benchmarks=fillsync --num=10000000 --db=/mnt/disk/bench
  db_bench --benchmarks=readrandom --use_existing_db --db=/mnt/disk/bench --duration=60
  db_bench --engine=librocksdb:target/peers/librocksdb-11.8.1.so --benchmarks=fillseq

benchmarks:";

#[cfg(test)]
mod tests;
