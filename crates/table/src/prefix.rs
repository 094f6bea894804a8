//! Prefixes of keys, for seeks that need only keys with one of them.

use base::SliceTransform;

/// The prefix of the keys that a seek looks for.
#[derive(Clone, Copy, Debug)]
pub struct Prefix<'a> {
    /// The transform that extracts the prefix of a key.
    pub transform: &'a SliceTransform,
    /// The prefix.
    pub bytes: &'a [u8],
}

impl Prefix<'_> {
    /// Whether a user key has the prefix.
    #[inline]
    pub fn is_of(&self, user_key: &[u8]) -> bool {
        self.transform.prefix(user_key) == Some(self.bytes)
    }
}
