//! Prefixes of user keys: RocksDB's `SliceTransform`.
//!
//! A [`SliceTransform`] defines which keys have a prefix (are in its domain), and extracts it. Filters
//! contain prefixes beside the keys, and iterators can stay within one prefix. The transform's name is
//! stored in the properties of tables, so that a filter is not used with another transform.
//!
//! The built-in transforms are enum variants, so that extracting a prefix is inlined; an application's
//! own transforms go through [`UserSliceTransform`].

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::options::OptionValue;

/// A transform that the application defines. It must never change under its name, and keys with the
/// same prefix must be contiguous in the order of keys.
pub trait UserSliceTransform: Send + Sync {
    /// The name that is stored in tables and in the OPTIONS file.
    fn name(&self) -> &str;
    /// True if the key has a prefix.
    fn in_domain(&self, key: &[u8]) -> bool;
    /// The prefix of a key in the domain: its first bytes.
    fn transform<'k>(&self, key: &'k [u8]) -> &'k [u8];
}

/// Extracts the prefix of a key; cheap to clone.
#[derive(Clone)]
pub struct SliceTransform(Kind);

#[derive(Clone)]
enum Kind {
    Fixed(usize),
    Capped(usize),
    Noop,
    User(Arc<dyn UserSliceTransform>),
}

impl SliceTransform {
    /// The first `length` bytes; shorter keys have no prefix. `rocksdb.FixedPrefix.N`.
    pub fn fixed_prefix(length: usize) -> Self {
        Self(Kind::Fixed(length))
    }

    /// The first `length` bytes, or the whole key if it is shorter. `rocksdb.CappedPrefix.N`.
    pub fn capped_prefix(length: usize) -> Self {
        Self(Kind::Capped(length))
    }

    /// The whole key. `rocksdb.Noop`.
    pub fn noop() -> Self {
        Self(Kind::Noop)
    }

    /// A transform that the application defines.
    pub fn user(transform: Arc<dyn UserSliceTransform>) -> Self {
        Self(Kind::User(transform))
    }

    /// The built-in transform with this name: as [`SliceTransform::name`] gives it, or in the short
    /// forms `fixed:N` and `capped:N` that RocksDB reads too.
    ///
    /// ```
    /// use base::SliceTransform;
    /// assert_eq!(SliceTransform::by_name("fixed:4").unwrap().name(), "rocksdb.FixedPrefix.4");
    /// assert!(SliceTransform::by_name("my.Transform").is_none());
    /// ```
    pub fn by_name(name: &str) -> Option<Self> {
        if name == "rocksdb.Noop" {
            return Some(Self::noop());
        }
        let fixed = name.strip_prefix("rocksdb.FixedPrefix.");
        if let Some(n) = fixed.or_else(|| name.strip_prefix("fixed:")) {
            return n.parse().ok().map(Self::fixed_prefix);
        }
        let capped = name.strip_prefix("rocksdb.CappedPrefix.");
        let n = capped.or_else(|| name.strip_prefix("capped:"))?;
        n.parse().ok().map(Self::capped_prefix)
    }

    /// The name in tables and OPTIONS files.
    pub fn name(&self) -> String {
        match &self.0 {
            Kind::Fixed(n) => format!("rocksdb.FixedPrefix.{n}"),
            Kind::Capped(n) => format!("rocksdb.CappedPrefix.{n}"),
            Kind::Noop => "rocksdb.Noop".to_owned(),
            Kind::User(t) => t.name().to_owned(),
        }
    }

    /// The length of every prefix that is not a whole key; `None` if there is no such length.
    pub fn full_length(&self) -> Option<usize> {
        match &self.0 {
            Kind::Fixed(n) | Kind::Capped(n) => Some(*n),
            Kind::Noop | Kind::User(_) => None,
        }
    }

    /// True if the key has a prefix.
    #[inline]
    pub fn in_domain(&self, key: &[u8]) -> bool {
        match &self.0 {
            Kind::Fixed(n) => key.len() >= *n,
            Kind::Capped(_) | Kind::Noop => true,
            Kind::User(_) => self.prefix(key).is_some(),
        }
    }

    /// The prefix of a key; `None` if it has none.
    #[inline]
    pub fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        match &self.0 {
            Kind::Fixed(n) => key.get(..*n),
            Kind::Capped(n) => Some(key.get(..*n).unwrap_or(key)),
            Kind::Noop => Some(key),
            Kind::User(t) => user_prefix(&**t, key),
        }
    }
}

/// The prefix by the application's transform. If that panics, the key has no prefix.
fn user_prefix<'k>(transform: &dyn UserSliceTransform, key: &'k [u8]) -> Option<&'k [u8]> {
    let ask = || {
        transform
            .in_domain(key)
            .then(|| transform.transform(key).len())
    };
    let len = catch_unwind(AssertUnwindSafe(ask)).ok().flatten()?;
    key.get(..len)
}

impl fmt::Debug for SliceTransform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl PartialEq for SliceTransform {
    /// Transforms with the same name are equal.
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Kind::Fixed(a), Kind::Fixed(b)) | (Kind::Capped(a), Kind::Capped(b)) => a == b,
            (Kind::Noop, Kind::Noop) => true,
            (Kind::User(a), Kind::User(b)) => a.name() == b.name(),
            (Kind::User(user), _) => user.name() == other.name(),
            (_, Kind::User(user)) => user.name() == self.name(),
            _ => false,
        }
    }
}

/// `nullptr`, or the name of a built-in transform.
impl OptionValue for Option<SliceTransform> {
    fn kind() -> String {
        "nullptr | rocksdb.FixedPrefix.N | rocksdb.CappedPrefix.N | rocksdb.Noop".to_owned()
    }

    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let id = text
            .strip_prefix("{id=")
            .map_or(text, |t| t.trim_end_matches('}').trim_end_matches(';'));
        match id {
            "" | "nullptr" => Some(None),
            name => SliceTransform::by_name(name).map(Some),
        }
    }

    fn print(&self) -> String {
        self.as_ref()
            .map_or_else(|| "nullptr".to_owned(), SliceTransform::name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_and_domains() {
        let fixed = SliceTransform::fixed_prefix(3);
        assert_eq!(fixed.prefix(b"abcd"), Some(&b"abc"[..]));
        assert_eq!((fixed.prefix(b"ab"), fixed.in_domain(b"ab")), (None, false));
        let capped = SliceTransform::capped_prefix(3);
        assert_eq!(capped.prefix(b"ab"), Some(&b"ab"[..]));
        assert_eq!(capped.prefix(b"abcd"), Some(&b"abc"[..]));
        assert_eq!(SliceTransform::noop().prefix(b""), Some(&b""[..]));
    }

    #[test]
    fn a_transform_that_panics_gives_no_prefix() {
        struct Bad;
        impl UserSliceTransform for Bad {
            fn name(&self) -> &'static str {
                "bad"
            }
            fn in_domain(&self, _: &[u8]) -> bool {
                true
            }
            fn transform<'k>(&self, key: &'k [u8]) -> &'k [u8] {
                &key[..2]
            }
        }
        let t = SliceTransform::user(Arc::new(Bad));
        assert_eq!(t.prefix(b"abc"), Some(&b"ab"[..]));
        assert_eq!((t.prefix(b"a"), t.in_domain(b"a")), (None, false));
    }

    #[test]
    fn transforms_of_one_name_are_equal() {
        let texts = [
            "rocksdb.FixedPrefix.3",
            "rocksdb.FixedPrefix.4",
            "rocksdb.CappedPrefix.3",
            "rocksdb.Noop",
        ];
        for a in texts {
            for b in texts {
                let (x, y) = (SliceTransform::by_name(a), SliceTransform::by_name(b));
                assert_eq!(x == y, a == b, "{a} {b}");
            }
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in [
            "nullptr",
            "rocksdb.FixedPrefix.8",
            "rocksdb.CappedPrefix.0",
            "rocksdb.Noop",
        ] {
            let value = Option::<SliceTransform>::parse(text).unwrap();
            assert_eq!(value.print(), text);
        }
        let nested = Option::<SliceTransform>::parse("{id=rocksdb.FixedPrefix.8;}");
        assert_eq!(nested.unwrap().print(), "rocksdb.FixedPrefix.8");
        for bad in ["rocksdb.FixedPrefix.", "fixed:-1", "x"] {
            assert!(Option::<SliceTransform>::parse(bad).is_none(), "{bad}");
        }
    }
}
