//! Values that keep their memtable in memory.
#![expect(unsafe_code, reason = "a part of the unsafe island of memtables")]

use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::memtable::{Memtable, Value};

impl Value<'_> {
    /// A reference to `part` of this value that keeps the memtable in memory. `None` if the value is in another
    /// memtable, or `part` is elsewhere or empty.
    pub fn pin(self, memtable: &Arc<Memtable>, part: &[u8]) -> Option<PinnedBytes> {
        let (whole, wanted) = (self.bytes().as_ptr_range(), part.as_ptr_range());
        let inside = whole.start <= wanted.start && wanted.end <= whole.end && !part.is_empty();
        let pins = inside && std::ptr::eq(&raw const **memtable, self.memtable());
        pins.then(|| PinnedBytes {
            bytes: Bytes(NonNull::from(part)),
            _memtable: Arc::clone(memtable),
        })
    }
}

/// Bytes of a value in a memtable, which stays in memory while this lives.
pub struct PinnedBytes {
    bytes: Bytes,
    _memtable: Arc<Memtable>,
}

/// A part of a value in the arena of the memtable.
struct Bytes(NonNull<[u8]>);

// SAFETY: the bytes are only read, and nobody changes them any more.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

impl Deref for PinnedBytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: an entry's value is not changed after a lookup can find it, and the arena has it until the memtable,
        // which is held here, is gone.
        unsafe { self.bytes.0.as_ref() }
    }
}

impl fmt::Debug for PinnedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PinnedBytes").field(&&**self).finish()
    }
}
