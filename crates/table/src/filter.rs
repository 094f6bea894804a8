//! Filters: a few bits per key, which show for most absent keys that they are not in the table.
//!
//! ```text
//! filter block:  data | m0 m1 m2 m3 m4
//!                       m0 = 0xff      FastLocalBloom, see `bloom`
//!                       m0 = 0xfe      Standard128 Ribbon, see `ribbon`
//!                       m0 = 1…127     the Bloom filter of format versions up to 4, see `legacy`
//!                       anything else  a layout of the future: every key may be there
//! at most 5 bytes                      no key was added: no key is there
//! ```
//! The block states its own layout, so that a reader needs no setting. Invalid bytes in a filter never
//! cause an error or a missed key, only an unnecessary block read. New filters are FastLocalBloom,
//! RocksDB's default since format version 5, or Ribbon.

mod bloom;
mod legacy;
mod ribbon;

use base::options::OptionValue;
use base::{Error, Result};

use crate::xxph3::hash64;
pub use legacy::hash32;

/// Bytes at the end of each filter block.
const METADATA_LEN: usize = 5;
/// Maximum bits per key; higher settings are clamped, as in RocksDB.
const BITS_PER_KEY_MAX: f64 = 100.0;

/// The name in the metaindex of every built-in filter, after `fullfilter.` or
/// `partitionedfilter.`.
pub const BUILTIN_NAME: &str = "rocksdb.BuiltinBloomFilter";

/// Which filter a new table gets: RocksDB's option `filter_policy`.
///
/// ```
/// use base::options::OptionValue;
/// use table::filter::FilterPolicy;
/// let policy = FilterPolicy::parse("bloomfilter:10:false");
/// assert_eq!(policy, Some(FilterPolicy::Bloom { bits_per_key: 10.0 }));
/// assert_eq!(FilterPolicy::Bloom { bits_per_key: 9.5 }.print(), "bloomfilter:9.5:false");
/// assert_eq!(FilterPolicy::None.print(), "nullptr");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum FilterPolicy {
    /// No filter.
    #[default]
    None,
    /// A Bloom filter.
    Bloom {
        /// Bits per key; 10 gives a false positive rate of about 1 %. Below 0.5 no filter is made;
        /// other values are clamped to 1 to 100.
        bits_per_key: f64,
    },
    /// A Ribbon filter: about 30 % smaller, and several times as expensive to build.
    Ribbon {
        /// The false positive rate is that of a Bloom filter with this many bits per key.
        bits_per_key: f64,
        /// Tables of levels below this number get a Bloom filter; a flush counts as level -1.
        bloom_before_level: i32,
    },
}

impl FilterPolicy {
    /// A builder for the filter of one table that is written to `level`, -1 for a flush; `None` if
    /// the table gets no filter.
    #[doc(hidden)]
    pub fn builder(&self, level: i32) -> Option<FilterBuilder> {
        match *self {
            Self::Bloom { bits_per_key } if bits_per_key >= 0.5 => {
                Some(FilterBuilder::bloom(bits_per_key))
            }
            Self::Ribbon {
                bits_per_key,
                bloom_before_level,
            } if bits_per_key >= 0.5 => Some(if level < bloom_before_level {
                FilterBuilder::bloom(bits_per_key)
            } else {
                FilterBuilder::ribbon(bits_per_key)
            }),
            _ => None,
        }
    }

    /// The value of a table's property `rocksdb.filter.policy`; empty without a filter.
    pub fn property_name(&self) -> &'static str {
        match self {
            Self::None => "",
            Self::Bloom { .. } => "bloomfilter",
            Self::Ribbon { .. } => "ribbonfilter",
        }
    }
}

impl OptionValue for FilterPolicy {
    fn kind() -> String {
        "nullptr | bloomfilter:<bits per key>:false | ribbonfilter:<bits per key>:<level>"
            .to_owned()
    }

    /// Also reads the forms without a last part, and the `{id=…;…}` form of later RocksDB
    /// versions. The last part of a Bloom filter once chose block-based filters, which RocksDB no
    /// longer has; it is ignored.
    fn parse(text: &str) -> Option<Self> {
        let mut text = text.trim();
        let mut level = None;
        if let Some(inner) = text.strip_prefix("{id=") {
            let mut parts = inner.strip_suffix('}')?.split(';');
            text = parts.next()?;
            level = parts.find_map(|p| p.strip_prefix("bloom_before_level="));
        }
        if text == "nullptr" {
            return Some(Self::None);
        }
        let (name, rest) = text.split_once(':')?;
        let (bits, last) = match rest.split_once(':') {
            Some((bits, last)) => (bits, Some(last)),
            None => (rest, None),
        };
        let bits_per_key: f64 = bits.parse().ok()?;
        if !bits_per_key.is_finite() {
            return None;
        }
        let bits_per_key = match bits_per_key {
            none if none < 0.5 => 0.0,
            some => some.clamp(1.0, BITS_PER_KEY_MAX),
        };
        match (name, last) {
            ("bloomfilter", None | Some("false" | "true")) => Some(Self::Bloom { bits_per_key }),
            ("ribbonfilter", last) => Some(Self::Ribbon {
                bits_per_key,
                bloom_before_level: match level.or(last) {
                    Some(level) => level.parse().ok()?,
                    None => 0,
                },
            }),
            _ => None,
        }
    }

    /// Prints bits per key with up to three decimals, without trailing zeros, as RocksDB does.
    fn print(&self) -> String {
        let number = |bits: f64| {
            let text = format!("{bits:.3}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        match *self {
            Self::None => "nullptr".to_owned(),
            Self::Bloom { bits_per_key } => format!("bloomfilter:{}:false", number(bits_per_key)),
            Self::Ribbon {
                bits_per_key,
                bloom_before_level,
            } => format!("ribbonfilter:{}:{bloom_before_level}", number(bits_per_key)),
        }
    }
}

/// Collects the keys of one table and makes its filter.
///
/// ```
/// use table::filter::{Filter, FilterBuilder};
/// let mut builder = FilterBuilder::bloom(10.0);
/// builder.add_key(b"apple");
/// let filter = Filter::new(&builder.finish());
/// assert!(filter.may_match(b"apple"));
/// ```
#[derive(Clone, Debug)]
pub struct FilterBuilder {
    millibits_per_key: u64,
    /// For a Ribbon filter: the reciprocal of its false positive rate.
    ribbon_one_in: Option<f64>,
    hashes: Vec<u64>,
}

impl FilterBuilder {
    /// A FastLocalBloom builder; `bits_per_key` is clamped to 1 to 100.
    pub fn bloom(bits_per_key: f64) -> Self {
        let bits = if bits_per_key.is_nan() {
            1.0
        } else {
            bits_per_key.clamp(1.0, BITS_PER_KEY_MAX)
        };
        Self {
            // The odd fraction rounds as RocksDB does.
            millibits_per_key: (bits * 1000.0 + 0.500_001) as u64,
            ribbon_one_in: None,
            hashes: Vec::new(),
        }
    }

    /// A Ribbon builder for a filter with the false positive rate of a Bloom filter of `bits_per_key`.
    pub fn ribbon(bits_per_key: f64) -> Self {
        let bloom = Self::bloom(bits_per_key);
        Self {
            ribbon_one_in: Some(1.0 / bloom::false_positives(bloom.millibits_per_key)),
            ..bloom
        }
    }

    /// Adds a user key (or a prefix of one). Repeating the last key adds nothing.
    #[inline]
    pub fn add_key(&mut self, key: &[u8]) {
        self.add_hash(hash64(key));
    }

    /// Adds a key by its [`hash64`].
    #[inline]
    pub fn add_hash(&mut self, hash: u64) {
        if self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    /// Keys added so far, not counting repetitions.
    pub fn num_added(&self) -> usize {
        self.hashes.len()
    }

    /// Size in bytes of the filter that [`FilterBuilder::finish`] would return now.
    pub fn estimated_size(&self) -> usize {
        let keys = self.hashes.len();
        if keys == 0 {
            return 0;
        }
        let bloom = bloom::lines_for(keys, self.millibits_per_key) * bloom::LINE_LEN + METADATA_LEN;
        // For few keys a Ribbon filter is larger, and a Bloom filter is built instead.
        let ribbon = self.ribbon_one_in.and_then(|n| ribbon::size_for(keys, n));
        ribbon.unwrap_or(bloom).min(bloom)
    }

    /// The filter block of the keys added; empty if there are none, in which case a table has no
    /// filter block. The builder is empty afterwards.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut hashes = std::mem::take(&mut self.hashes);
        if hashes.is_empty() {
            return Vec::new();
        }
        let bytes = self.build(&hashes);
        hashes.clear();
        self.hashes = hashes;
        bytes
    }

    /// Like [`FilterBuilder::finish`], and checks that the filter matches each key.
    ///
    /// # Errors
    /// `Corruption` if it does not match one of them.
    pub fn finish_checked(&mut self) -> Result<Vec<u8>> {
        let hashes = self.hashes.clone();
        let bytes = self.finish();
        let filter = Filter::new(&bytes);
        if hashes.iter().all(|&h| filter.may_match_hash(h)) {
            Ok(bytes)
        } else {
            Err(Error::corruption(
                "a filter that was just made does not have all its keys",
            ))
        }
    }

    fn build(&self, hashes: &[u64]) -> Vec<u8> {
        let bloom = bloom::lines_for(hashes.len(), self.millibits_per_key) * bloom::LINE_LEN;
        if let Some(one_in) = self.ribbon_one_in
            && ribbon::size_for(hashes.len(), one_in).is_some_and(|n| n < bloom + METADATA_LEN)
            && let Some(bytes) = ribbon::build(hashes, one_in)
        {
            return bytes;
        }
        bloom::build(hashes, self.millibits_per_key)
    }
}

/// The data and the metadata of a filter block; `None` if it has no data, because no key was added.
fn split(bytes: &[u8]) -> Option<(&[u8], [u8; METADATA_LEN])> {
    let (data, metadata) = bytes.split_last_chunk::<METADATA_LEN>()?;
    (!data.is_empty()).then_some((data, *metadata))
}

/// [`Filter::may_match`] of a filter block that is not decoded: for one that is kept as it was read.
///
/// ```
/// use table::filter::{FilterBuilder, may_match_in};
/// let mut builder = FilterBuilder::bloom(10.0);
/// builder.add_key(b"apple");
/// let bytes = builder.finish();
/// assert!(may_match_in(&bytes, b"apple"));
/// ```
pub fn may_match_in(bytes: &[u8], key: &[u8]) -> bool {
    let Some((data, metadata)) = split(bytes) else {
        return false;
    };
    let may = match metadata[0] {
        0xff => bloom::may_match_in(data, metadata, hash64(key)),
        0xfe => ribbon::may_match_in(data, metadata, hash64(key)),
        1..=127 => legacy::Legacy::new(data, metadata).map(|filter| filter.may_match(key)),
        _ => None,
    };
    may.unwrap_or(true)
}

/// A decoded filter block, for lookups.
#[derive(Debug)]
pub struct Filter {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    AlwaysTrue,
    AlwaysFalse,
    Bloom(bloom::Bloom),
    Legacy(legacy::Legacy<'static>),
    Ribbon(ribbon::Ribbon),
}

impl Filter {
    /// A filter from the bytes of a filter block. Never fails: a filter of an unknown layout matches
    /// every key, and a block without data matches none.
    pub fn new(bytes: &[u8]) -> Self {
        Self {
            kind: Self::read(bytes),
        }
    }

    fn read(bytes: &[u8]) -> Kind {
        let Some((data, metadata)) = split(bytes) else {
            return Kind::AlwaysFalse;
        };
        let kind = match metadata[0] {
            0xff => bloom::Bloom::new(data, metadata).map(Kind::Bloom),
            0xfe => ribbon::Ribbon::new(data, metadata).map(Kind::Ribbon),
            1..=127 => legacy::Legacy::new(data, metadata).map(|f| Kind::Legacy(f.into_owned())),
            _ => None,
        };
        kind.unwrap_or(Kind::AlwaysTrue)
    }

    /// False only if `key` was certainly not added.
    #[inline]
    pub fn may_match(&self, key: &[u8]) -> bool {
        match &self.kind {
            Kind::Bloom(filter) => filter.may_match(hash64(key)),
            Kind::AlwaysTrue => true,
            Kind::AlwaysFalse => false,
            Kind::Legacy(filter) => filter.may_match(key),
            Kind::Ribbon(filter) => filter.may_match(hash64(key)),
        }
    }

    /// Like [`Filter::may_match`], by [`hash64`] of the key, for a caller that checks many filters.
    /// Always true for a legacy filter, which uses another hash.
    #[inline]
    pub fn may_match_hash(&self, hash: u64) -> bool {
        match &self.kind {
            Kind::Bloom(filter) => filter.may_match(hash),
            Kind::AlwaysTrue | Kind::Legacy(_) => true,
            Kind::AlwaysFalse => false,
            Kind::Ribbon(filter) => filter.may_match(hash),
        }
    }

    /// True if the filter matches every key, so that checking it is useless.
    pub fn is_useless(&self) -> bool {
        matches!(self.kind, Kind::AlwaysTrue)
    }

    /// Bytes of memory in use.
    pub fn memory_usage(&self) -> usize {
        size_of::<Self>()
            + match &self.kind {
                Kind::AlwaysTrue | Kind::AlwaysFalse => 0,
                Kind::Bloom(filter) => filter.data_len(),
                Kind::Legacy(filter) => filter.data_len(),
                Kind::Ribbon(filter) => filter.data_len(),
            }
    }
}

#[cfg(test)]
mod tests;
