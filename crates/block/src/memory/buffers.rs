//! Reusable memory for large payloads.
//!
//! Memory from the system is zeroed, and each page faults at its first use, which costs as much as copying the
//! payload. So up to [`FREE_BYTES_MAX`] of unused buffers are kept. Others are returned to the system: each
//! buffer is a mapping of its own, because an allocator would keep free memory that lies between used buffers.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use base::sync::{Mutex, PoisonError};
use base::{Error, ErrorKind, Result};
use bytes::Bytes;
use io::buffer::PAGE;
use io::{AlignedBuf, LargeVec, MAPPED_MIN, MAPPINGS_ARE_USED};

/// Most bytes of unused buffers that are kept.
pub const FREE_BYTES_MAX: usize = 16 << 20;
/// A payload of at least so many bytes travels in a frame of its own, so that nothing else shares the buffer
/// that it is read into.
pub const OWN_BYTES_MIN: usize = 128 << 10;
/// Sizes are rounded up to a multiple, so that buffers of nearly the same size can replace each other.
const STEP: usize = 16 << 10;
/// Larger buffers are not kept.
const KEPT_BYTES_MAX: usize = 4 << 20;

/// The source of a process's buffers; clones share them.
#[derive(Clone, Default)]
pub struct Buffers {
    free: Arc<Mutex<Free>>,
}

/// The unused buffers, the last returned one at the end.
#[derive(Default)]
struct Free {
    buffers: VecDeque<LargeVec<u8>>,
    bytes: usize,
}

enum Memory {
    Small(AlignedBuf),
    Large(LargeVec<u8>),
}

/// A page-aligned buffer. Converted to [`Bytes`], it is returned when the last of them is dropped.
///
/// ```
/// use block::memory::buffers::Buffers;
///
/// let buffers = Buffers::default();
/// let mut buffer = buffers.take(100_000)?;
/// buffer.fill(7);
/// let bytes = bytes::Bytes::from(buffer);
/// assert_eq!(bytes.len(), 100_000);
/// # Ok::<(), base::Error>(())
/// ```
pub struct Buffer {
    /// `None`: the buffer is being dropped.
    memory: Option<Memory>,
    len: usize,
    from: Buffers,
}

impl Buffers {
    /// A buffer of `len` bytes with arbitrary content: the caller must write all of it. Fails with `Aborted` if
    /// memory is short.
    pub fn take(&self, len: usize) -> Result<Buffer> {
        let memory = if len < MAPPED_MIN || !MAPPINGS_ARE_USED {
            Memory::Small(AlignedBuf::zeroed(len.next_multiple_of(PAGE), PAGE)?)
        } else {
            let size = len.next_multiple_of(STEP);
            let found = self.with_free(|free| free.take(size));
            let memory = found.or_else(|| LargeVec::zeroed(size));
            Memory::Large(memory.ok_or_else(|| no_memory(size))?)
        };
        Ok(Buffer {
            memory: Some(memory),
            len,
            from: self.clone(),
        })
    }

    fn with_free<T>(&self, f: impl FnOnce(&mut Free) -> T) -> T {
        f(&mut self.free.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Free {
    /// A buffer of at least `size` bytes, and at most a quarter more.
    fn take(&mut self, size: usize) -> Option<LargeVec<u8>> {
        let fits = |b: &LargeVec<u8>| (size..=size + size / 4).contains(&b.len());
        let at = self.buffers.iter().rposition(fits)?;
        let found = self.buffers.remove(at)?;
        self.bytes -= found.len();
        Some(found)
    }

    /// Keeps a buffer. Returns those beyond the limit: the ones that were unused for the longest time.
    fn keep(&mut self, memory: LargeVec<u8>) -> Vec<LargeVec<u8>> {
        self.bytes += memory.len();
        self.buffers.push_back(memory);
        let mut gone = Vec::new();
        while self.bytes > FREE_BYTES_MAX
            && let Some(oldest) = self.buffers.pop_front()
        {
            self.bytes -= oldest.len();
            gone.push(oldest);
        }
        gone
    }
}

fn no_memory(bytes: usize) -> Error {
    let text = format!("no memory for a buffer of {bytes} bytes");
    Error::new(ErrorKind::Aborted, text)
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.memory {
            Some(Memory::Small(memory)) => memory,
            Some(Memory::Large(memory)) => memory,
            None => &[],
        };
        all.get(..self.len).unwrap_or_default()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let all: &mut [u8] = match &mut self.memory {
            Some(Memory::Small(memory)) => memory,
            Some(Memory::Large(memory)) => memory,
            None => &mut [],
        };
        all.get_mut(..self.len).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(Memory::Large(memory)) = self.memory.take()
            && memory.len() <= KEPT_BYTES_MAX
        {
            let gone = self.from.with_free(|free| free.keep(memory));
            // Outside of the lock, because unmapping takes a while.
            drop(gone);
        }
    }
}

impl From<Buffer> for Bytes {
    fn from(buffer: Buffer) -> Self {
        Self::from_owner(buffer)
    }
}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.with_free(|free| free.bytes);
        f.debug_struct("Buffers")
            .field("free_bytes", &bytes)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free_bytes(buffers: &Buffers) -> usize {
        buffers.with_free(|free| {
            let bytes = free.buffers.iter().map(|b| b.len()).sum::<usize>();
            assert_eq!(bytes, free.bytes);
            bytes
        })
    }

    #[test]
    fn a_buffer_is_used_again_when_the_last_of_its_bytes_is_gone() {
        let buffers = Buffers::default();
        let mut first = buffers.take(500_000).unwrap();
        assert!((first.as_ptr() as usize).is_multiple_of(PAGE));
        let at = first.as_ptr();
        first.fill(1);
        let bytes = Bytes::from(first);
        let part = bytes.slice(4096..8192);
        drop(bytes);
        let mut second = buffers.take(500_000).unwrap();
        second.fill(2);
        assert_ne!(second.as_ptr(), at);
        assert_eq!(part, [1; 4096][..]);
        drop(part);
        // A buffer is used again for a slightly smaller size, not for a much smaller or a larger one.
        assert_ne!(buffers.take(390_000).unwrap().as_ptr(), at);
        assert_ne!(buffers.take(900_000).unwrap().as_ptr(), at);
        let third = buffers.take(440_000).unwrap();
        assert_eq!((third.as_ptr(), third.len()), (at, 440_000));
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let buffers = Buffers::default();
        for round in 0..3 {
            let sizes = (0..100).map(|n| (n * 7919 + round * 31) % (2 << 20));
            let held: Vec<Buffer> = sizes.map(|size| buffers.take(size).unwrap()).collect();
            assert!(free_bytes(&buffers) <= FREE_BYTES_MAX);
            drop(held);
            let free = free_bytes(&buffers);
            assert!(
                free <= FREE_BYTES_MAX && free > FREE_BYTES_MAX / 2,
                "{free}"
            );
        }
        // A large buffer does not displace the others.
        let before = free_bytes(&buffers);
        drop(buffers.take(2 * FREE_BYTES_MAX).unwrap());
        assert_eq!(free_bytes(&buffers), before);
        drop(buffers.take(0).unwrap());
        drop(buffers.take(4097).unwrap());
        assert_eq!(free_bytes(&buffers), before);
        // Newer buffers displace those that are not used any more.
        let most = FREE_BYTES_MAX / OWN_BYTES_MIN;
        let others: Vec<Buffer> = (0..most)
            .map(|_| buffers.take(OWN_BYTES_MIN).unwrap())
            .collect();
        drop(others);
        let is_new = |b: &&LargeVec<u8>| b.len() == OWN_BYTES_MIN;
        assert!(buffers.with_free(|free| free.buffers.iter().filter(is_new).count()) == most);
    }
}
