//! `options!{}`: each option is declared once.
//!
//! From one table (name, type, default, range, flags, documentation) the macro generates the struct
//! with public fields, its `Default`, [`OptionTable::validate`], and [`OptionTable::set`] and
//! [`OptionTable::get`] by name, which the OPTIONS-file codec, command-line flags and `SetOptions`
//! use. The rows of `docs/options.md` come from it as well.
//!
//! ```
//! base::options! {
//!     /// Settings of a kettle.
//!     pub struct KettleOptions ["Kettle"] {
//!         /// Degrees Celsius at which it stops.
//!         stop_at: u32 = 100, in 40..=100, [Mutable];
//!         /// Whether it whistles.
//!         whistle: bool = false;
//!     }
//! }
//! use base::options::OptionTable;
//! let mut k = KettleOptions::default();
//! k.set("stop_at", "80").unwrap();
//! assert_eq!(k.get("stop_at").as_deref(), Some("80"));
//! k.stop_at = 120;
//! assert_eq!(
//!     k.validate().unwrap_err().to_string(),
//!     "Invalid argument: option stop_at = 120 is out of range (allowed: 40 to 100)"
//! );
//! ```

use crate::error::{Error, Result};

/// A special property of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionFlag {
    /// May be changed while the database is open.
    Mutable,
    /// Specific to Ironstone: RocksDB does not know it, so it is not written to the OPTIONS file. A
    /// value out of its range is refused.
    Ironstone,
    /// A value out of its range is refused, as RocksDB refuses it.
    Strict,
}

/// One row of an option table.
#[derive(Clone, Copy, Debug)]
pub struct OptionInfo {
    /// The name; RocksDB's if RocksDB has the option.
    pub name: &'static str,
    /// The type in words: `bool`, `u64`, or the values of an enumeration.
    pub kind: fn() -> String,
    /// The default in its OPTIONS-file form.
    pub default: fn() -> String,
    /// Smallest and largest allowed value, both included.
    pub range: Option<fn() -> (String, String)>,
    /// Its special properties.
    pub flags: &'static [OptionFlag],
    /// Its documentation, line by line as in the source.
    pub doc: &'static [&'static str],
}

impl OptionInfo {
    /// True if the option has the flag.
    pub fn has(&self, flag: OptionFlag) -> bool {
        self.flags.contains(&flag)
    }

    /// True if a value out of its range is an error, and is not clamped.
    pub fn is_strict(&self) -> bool {
        self.has(OptionFlag::Ironstone) || self.has(OptionFlag::Strict)
    }
}

/// A value that an option can have.
pub trait OptionValue: Sized + Clone + PartialEq {
    /// The type in words, for documentation and messages.
    fn kind() -> String;
    /// Reads the OPTIONS-file form.
    fn parse(text: &str) -> Option<Self>;
    /// Reads the OPTIONS-file form of a struct that may be given in part: members that the text does
    /// not name keep their values from `self`.
    fn parse_onto(&self, text: &str) -> Option<Self> {
        Self::parse(text)
    }
    /// Writes the OPTIONS-file form.
    fn print(&self) -> String;
}

macro_rules! value_by_from_str {
    ($($t:ty),*) => {$(
        impl OptionValue for $t {
            fn kind() -> String {
                stringify!($t).to_owned()
            }
            /// A number, optionally with a suffix `K`, `M`, `G` or `T` for powers of 1024, as in RocksDB.
            /// Negative numbers wrap around for unsigned types of 64 bits, as in RocksDB.
            fn parse(text: &str) -> Option<Self> {
                let text = text.trim();
                let (digits, shift) = match text.as_bytes().last()? {
                    b'k' | b'K' => (text.split_at(text.len() - 1).0, 10),
                    b'm' | b'M' => (text.split_at(text.len() - 1).0, 20),
                    b'g' | b'G' => (text.split_at(text.len() - 1).0, 30),
                    b't' | b'T' => (text.split_at(text.len() - 1).0, 40),
                    _ => (text, 0),
                };
                let down = digits.strip_prefix('-').filter(|_| <$t>::MIN == 0 && <$t>::BITS == 64);
                let number: $t = match down {
                    Some(digits) => <$t>::wrapping_neg(digits.parse().ok()?),
                    None => digits.parse().ok()?,
                };
                <$t>::try_from(1u64 << shift).ok().and_then(|f| number.checked_mul(f))
            }
            fn print(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
value_by_from_str!(i32, i64, u32, u64, usize);

impl OptionValue for bool {
    fn kind() -> String {
        "bool".to_owned()
    }
    /// `true`/`false`, and `1`/`0` as RocksDB's parser allows.
    fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => None,
        }
    }
    fn print(&self) -> String {
        self.to_string()
    }
}

impl OptionValue for f64 {
    fn kind() -> String {
        "f64".to_owned()
    }
    fn parse(text: &str) -> Option<Self> {
        text.trim().parse().ok().filter(|v: &f64| v.is_finite())
    }
    /// Six digits, as RocksDB prints doubles.
    fn print(&self) -> String {
        format!("{self:.6}")
    }
}

impl OptionValue for String {
    fn kind() -> String {
        "string".to_owned()
    }
    fn parse(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
    fn print(&self) -> String {
        self.clone()
    }
}

/// A struct generated by [`options!`](crate::options!).
pub trait OptionTable: Default + Clone {
    /// The section of the OPTIONS file that holds it.
    const SECTION: &'static str;
    /// Its rows in the order of declaration.
    fn infos() -> &'static [OptionInfo];
    /// The value of an option in OPTIONS-file form; `None` for an unknown name.
    fn get(&self, name: &str) -> Option<String>;
    /// Sets an option from its OPTIONS-file form. Errors: an unknown name, or text that is no
    /// value of the option's type. Ranges are checked by [`OptionTable::validate`].
    fn set(&mut self, name: &str, text: &str) -> Result<()>;
    /// Clamps values that are out of their ranges, except those of strict options
    /// ([`OptionInfo::is_strict`]). Returns a line for each value that was changed.
    fn sanitize(&mut self) -> Vec<String>;
    /// Checks every range; the error names the option, its value and what is allowed.
    fn validate(&self) -> Result<()>;
}

/// The error for an unknown option name; suggests the most similar name of `known`.
pub fn unknown_option<'a>(
    section: &str,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Error {
    let e = Error::invalid_argument(format!("unknown option {name} in {section}"));
    match nearest(name, known) {
        Some(nearest) => e.hint(format!("did you mean {nearest}?")),
        None => e,
    }
}

/// The name most similar to `name`: the one with the smallest edit distance, the first of several.
/// `None` if the distance is more than a third of the name's length.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LENGTH_MAX: usize = 128;
    if name.len() > LENGTH_MAX {
        return None;
    }
    let distances = known.into_iter().map(|k| (distance(name, k), k));
    let (least, nearest) = distances.min_by_key(|(d, _)| *d)?;
    (least <= name.len().div_ceil(3)).then_some(nearest)
}

/// The edit distance of two texts: how many bytes must be changed, inserted or removed.
fn distance(a: &str, b: &str) -> usize {
    // Column by column: the distances from the first bytes of `b` to all prefixes of `a`.
    let mut column: Vec<usize> = (0..=a.len()).collect();
    for (j, y) in b.bytes().enumerate() {
        let mut diagonal = j;
        let mut above = j + 1;
        for (cell, x) in column.iter_mut().skip(1).zip(a.bytes()) {
            let changed = diagonal + usize::from(x != y);
            diagonal = *cell;
            above = changed.min(above + 1).min(*cell + 1);
            *cell = above;
        }
        if let Some(first) = column.first_mut() {
            *first = j + 1;
        }
    }
    column.last().copied().unwrap_or_default()
}

/// The error for text that is no value of the option's type.
pub fn bad_value(name: &str, text: &str, kind: &str) -> Error {
    Error::invalid_argument(format!(
        "option {name}: \"{text}\" is not a value of type {kind}"
    ))
}

/// The message about a value that is replaced by another.
pub fn used_as(name: &str, value: &str, instead: &str) -> String {
    format!("option {name} = {value} is used as {instead}")
}

/// The nearest value of a range; `None` if the value is in the range, or cannot be compared.
pub fn nearest_in<T: PartialOrd + Clone>(
    value: &T,
    range: &std::ops::RangeInclusive<T>,
) -> Option<T> {
    if value < range.start() {
        return Some(range.start().clone());
    }
    (value > range.end()).then(|| range.end().clone())
}

/// The error for a value outside its range.
pub fn out_of_range(name: &str, value: &str, lo: &str, hi: &str) -> Error {
    Error::invalid_argument(format!("option {name} = {value} is out of range"))
        .hint(format!("allowed: {lo} to {hi}"))
}

/// Declares a struct of options; see [the module](mod@crate::options) for the syntax.
#[macro_export]
macro_rules! options {
    (
        $(#[$meta:meta])*
        pub struct $name:ident [$section:literal]
        $(and { $(#[doc = $edoc:literal])* $extra:ident : $ety:ty })? {
            $(
                $(#[doc = $doc:literal])*
                $field:ident $(as $file_name:literal)? : $ty:ty = $default:expr
                $(, in $range:expr)?
                $(, [$($flag:ident),*])? ;
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( $(#[doc = $doc])* pub $field: $ty, )*
            $( $(#[doc = $edoc])* pub $extra: $ety, )?
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: $default, )* $( $extra: <$ety>::default(), )? }
            }
        }

        impl $crate::options::OptionTable for $name {
            const SECTION: &'static str = $section;

            fn infos() -> &'static [$crate::options::OptionInfo] {
                &[ $(
                    $crate::options::OptionInfo {
                        name: $crate::options!(@name $field $($file_name)?),
                        kind: <$ty as $crate::options::OptionValue>::kind,
                        default: || {
                            let value: $ty = $default;
                            $crate::options::OptionValue::print(&value)
                        },
                        range: $crate::options!(@range $ty $(, $range)?),
                        flags: &[ $($( $crate::options::OptionFlag::$flag ),*)? ],
                        doc: &[ $( $doc ),* ],
                    },
                )* ]
            }

            fn get(&self, name: &str) -> Option<String> {
                $(
                    if name == $crate::options!(@name $field $($file_name)?) {
                        return Some($crate::options::OptionValue::print(&self.$field));
                    }
                )*
                None
            }

            fn set(&mut self, name: &str, text: &str) -> $crate::Result<()> {
                $(
                    if name == $crate::options!(@name $field $($file_name)?) {
                        let old = &self.$field;
                        self.$field = $crate::options::OptionValue::parse_onto(old, text)
                            .ok_or_else(|| {
                                let kind = <$ty as $crate::options::OptionValue>::kind();
                                $crate::options::bad_value(name, text, &kind)
                            })?;
                        return Ok(());
                    }
                )*
                let known = <Self as $crate::options::OptionTable>::infos();
                let known = known.iter().map(|info| info.name);
                Err($crate::options::unknown_option($section, name, known))
            }

            fn sanitize(&mut self) -> Vec<String> {
                #[allow(unused_mut, reason = "a table may have no ranges")]
                let mut told = Vec::new();
                $( $crate::options!(@clamp self told $field $ty, $crate::options!(@name $field $($file_name)?) $(, $range)?); )*
                told
            }

            fn validate(&self) -> $crate::Result<()> {
                $( $crate::options!(@check self $field $ty, $crate::options!(@name $field $($file_name)?) $(, $range)?); )*
                Ok(())
            }
        }
    };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $file_name:literal) => { $file_name };
    (@range $ty:ty) => { None };
    (@range $ty:ty, $range:expr) => {
        Some(|| {
            let range: std::ops::RangeInclusive<$ty> = $range;
            (
                $crate::options::OptionValue::print(range.start()),
                $crate::options::OptionValue::print(range.end()),
            )
        })
    };
    (@clamp $self:ident $told:ident $field:ident $ty:ty, $name:expr) => {};
    (@clamp $self:ident $told:ident $field:ident $ty:ty, $name:expr, $range:expr) => {
        let range: std::ops::RangeInclusive<$ty> = $range;
        let infos = <Self as $crate::options::OptionTable>::infos();
        if let Some(nearest) = $crate::options::nearest_in(&$self.$field, &range)
            && infos.iter().any(|i| i.name == $name && !i.is_strict())
        {
            $told.push($crate::options::used_as(
                $name,
                &$crate::options::OptionValue::print(&$self.$field),
                &$crate::options::OptionValue::print(&nearest),
            ));
            $self.$field = nearest;
        }
    };
    (@check $self:ident $field:ident $ty:ty, $name:expr) => {};
    (@check $self:ident $field:ident $ty:ty, $name:expr, $range:expr) => {
        let range: std::ops::RangeInclusive<$ty> = $range;
        if !range.contains(&$self.$field) {
            return Err($crate::options::out_of_range(
                $name,
                &$crate::options::OptionValue::print(&$self.$field),
                &$crate::options::OptionValue::print(range.start()),
                &$crate::options::OptionValue::print(range.end()),
            ));
        }
    };
}

/// Declares an enumeration whose values have names in the OPTIONS file.
///
/// ```
/// base::option_enum! {
///     /// How fast.
///     pub enum Speed {
///         /// Not fast.
///         Slow = "kSlow",
///         /// Fast.
///         Fast = "kFast",
///     }
/// }
/// use base::options::OptionValue;
/// assert_eq!(Speed::parse("kFast"), Some(Speed::Fast));
/// assert_eq!(Speed::Slow.print(), "kSlow");
/// ```
#[macro_export]
macro_rules! option_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $( $(#[$vmeta:meta])* $variant:ident = $text:literal ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $( $(#[$vmeta])* $variant, )*
        }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [Self] = &[ $( Self::$variant ),* ];
        }

        impl $crate::options::OptionValue for $name {
            fn kind() -> String {
                [ $( $text ),* ].join(" | ")
            }
            fn parse(text: &str) -> Option<Self> {
                match text.trim() {
                    $( $text => Some(Self::$variant), )*
                    _ => None,
                }
            }
            fn print(&self) -> String {
                match self {
                    $( Self::$variant => $text.to_owned(), )*
                }
            }
        }
    };
}

/// The members of `{a=1;b={c=2;};}`, also without the outer braces. Errors: unbalanced braces; a member without
/// `=`.
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

/// Sets the members of `{name=value;…}` in a copy of a struct. `None` if a value is invalid for its member, or if a
/// member is unknown and not at an accepted value.
#[macro_export]
macro_rules! parse_struct {
    ($onto:expr, $text:expr, [$($field:ident),* $(,)?], accepted: $accepted:expr) => {{
        let mut out = $onto.clone();
        let accepted: &[(&str, &str)] = $accepted;
        for (name, value) in $crate::options::members($text).ok()? {
            match name {
                $( stringify!($field) => out.$field = $crate::options::OptionValue::parse(value)?, )*
                _ if accepted.contains(&(name, value)) => {}
                _ => return None,
            }
        }
        Some(out)
    }};
}

#[cfg(test)]
#[expect(unreachable_pub, reason = "the macro makes public structs")]
mod tests {
    use super::*;

    options! {
        /// Test table.
        pub struct TestOptions ["Test"] {
            /// A number.
            number: u64 = 7, in 1..=10, [Mutable];
            /// A name that differs in the file.
            ttl_seconds as "WAL_ttl_seconds": u64 = 0;
            /// A fraction.
            ratio: f64 = 0.5, in 0.0..=1.0, [Mutable, Ironstone];
            /// A switch.
            on: bool = true;
        }
    }

    #[test]
    fn a_table_sets_gets_and_validates_by_name() {
        let mut t = TestOptions::default();
        assert_eq!(t.get("WAL_ttl_seconds").as_deref(), Some("0"));
        assert_eq!(t.get("ttl_seconds"), None);
        t.set("WAL_ttl_seconds", "9").unwrap();
        t.set("on", "0").unwrap();
        assert_eq!((t.ttl_seconds, t.on), (9, false));
        let e = t.set("number", "x").unwrap_err().to_string();
        assert_eq!(
            e,
            "Invalid argument: option number: \"x\" is not a value of type u64"
        );
        let e = t.set("numbers", "1").unwrap_err().to_string();
        assert_eq!(
            e,
            "Invalid argument: unknown option numbers in Test (did you mean number?)"
        );
        t.validate().unwrap();
        t.ratio = 2.0;
        let e = t.validate().unwrap_err().to_string();
        assert!(e.contains("option ratio = 2.000000 is out of range"), "{e}");
    }

    #[test]
    fn values_out_of_range_are_brought_to_the_nearest() {
        let mut t = TestOptions::default();
        assert_eq!(t.sanitize(), [""; 0]);
        t.set("number", "-1").unwrap();
        assert_eq!(t.number, u64::MAX);
        t.ratio = 2.0; // Ironstone's own: refused
        assert_eq!(
            t.sanitize(),
            ["option number = 18446744073709551615 is used as 10"]
        );
        assert_eq!(t.number, 10);
        assert!(t.validate().is_err());
        t.set("number", "0").unwrap();
        assert_eq!(t.sanitize(), ["option number = 0 is used as 1"]);
        assert_eq!(u32::parse("-1"), None);
        assert_eq!(i32::parse("-1"), Some(-1));
    }

    #[test]
    fn the_nearest_name_is_found() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("same", "same"), 0);
        let names = ["write_buffer_size", "max_write_buffer_number", "ttl"];
        assert_eq!(
            nearest("write_bufer_size", names),
            Some("write_buffer_size")
        );
        assert_eq!(nearest("writeBufferSize", names), Some("write_buffer_size"));
        assert_eq!(nearest("compression", names), None);
        assert_eq!(nearest("", names), None);
        assert_eq!(nearest(&"x".repeat(200), names), None);
    }

    #[test]
    fn rows_carry_what_the_documentation_needs() {
        let rows = TestOptions::infos();
        assert_eq!(rows.len(), 4);
        assert_eq!((rows[0].default)(), "7");
        assert_eq!(rows[0].range.unwrap()(), ("1".to_owned(), "10".to_owned()));
        assert!(rows[2].has(OptionFlag::Ironstone));
        assert_eq!(rows[3].doc, &[" A switch."]);
    }
}
