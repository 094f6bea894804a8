//! Page-aligned memory, and pools of single pages for blocks that stay.
//!
//! A payload shares its piece of memory with those received before and after it. Blocks are written back in the
//! order of their places on disk, so some block of each piece would stay until the end of a round, and keep the
//! whole piece in memory. So a small write's block gets a page of its own from [`Pages`] while it stays. Pages
//! are allocated in pieces of many. Those of the oldest piece are used first, and pieces that are wholly free
//! are returned to the system, except for `KEPT_PAGES_MAX` pages.

#![expect(
    unsafe_code,
    reason = "pages of one mapping are written and read by different owners"
)]

use std::collections::BTreeMap;
use std::sync::Arc;

use base::sync::{Mutex, PoisonError};
use bytes::{Bytes, BytesMut};
use io::buffer::PAGE;
use io::{AlignedBuf, MAPPINGS_ARE_USED, Mapping};

/// Pages of a piece. A piece is one mapping, so that it can be returned to the system.
const PAGES_AT_ONCE: usize = 256;
/// Most pages in wholly free pieces that are kept.
const KEPT_PAGES_MAX: usize = 8 * PAGES_AT_ONCE;

/// Zeroed memory at a page boundary.
pub(crate) fn aligned(len: usize) -> BytesMut {
    let mut all = BytesMut::zeroed(len + PAGE);
    let before = all.as_ptr().align_offset(PAGE);
    let mut piece = all.split_off(before.min(PAGE));
    piece.truncate(len);
    piece
}

/// A pool of pages; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    free: Arc<Mutex<Free>>,
}

/// Pages that were allocated together.
#[derive(Debug)]
struct Piece {
    number: u64,
    memory: Mapping,
}

/// An owned page of a piece.
#[derive(Debug)]
struct Page {
    piece: Arc<Piece>,
    nth: usize,
}

/// The free pages, by the number of their piece.
#[derive(Debug, Default)]
struct Free {
    pieces: BTreeMap<u64, Vec<Page>>,
    count: usize,
    /// Number of pieces that are wholly free.
    whole: usize,
    made: u64,
}

/// A page in use; dropping it returns it to the pool.
struct Used {
    page: Option<Page>,
    pages: Pages,
}

impl Page {
    fn write(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(PAGE);
        // SAFETY: the page lies within the mapping, `&mut self` has it alone, and `bytes` lies elsewhere.
        unsafe {
            let to = self.piece.memory.as_ptr().add(self.nth * PAGE);
            bytes.as_ptr().copy_to_nonoverlapping(to.as_ptr(), len);
        }
    }
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the page lies within the mapping, whose bytes are initialized from the beginning, and writing
        // it takes `&mut self`.
        unsafe {
            let from = self.piece.memory.as_ptr().add(self.nth * PAGE);
            std::slice::from_raw_parts(from.as_ptr(), PAGE)
        }
    }
}

impl AsRef<[u8]> for Used {
    fn as_ref(&self) -> &[u8] {
        self.page.as_ref().map_or(&[], AsRef::as_ref)
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        if let Some(page) = self.page.take() {
            let gone = self.pages.with_free(|free| free.keep(page));
            // Outside of the lock, because unmapping takes a while.
            drop(gone);
        }
    }
}

impl Free {
    /// A page of the oldest piece that has a free one. `None`: memory is short, or mappings are not used.
    fn take(&mut self) -> Option<Page> {
        if self.pieces.is_empty() {
            if !MAPPINGS_ARE_USED {
                return None;
            }
            let memory = Mapping::new(PAGES_AT_ONCE * PAGE)?;
            let piece = Arc::new(Piece {
                number: self.made,
                memory,
            });
            let page = |nth| Page {
                piece: Arc::clone(&piece),
                nth,
            };
            let pages = (0..PAGES_AT_ONCE).rev().map(page).collect();
            self.pieces.insert(self.made, pages);
            self.made += 1;
            self.whole += 1;
            self.count += PAGES_AT_ONCE;
        }
        let mut oldest = self.pieces.first_entry()?;
        let pages = oldest.get_mut();
        self.whole -= usize::from(pages.len() == PAGES_AT_ONCE);
        self.count -= 1;
        let page = pages.pop();
        if pages.is_empty() {
            oldest.remove();
        }
        page
    }

    /// Takes a page back. Returns the pages of a piece to be unmapped.
    fn keep(&mut self, page: Page) -> Vec<Page> {
        let number = page.piece.number;
        let pages = self.pieces.entry(number).or_default();
        pages.push(page);
        self.count += 1;
        if pages.len() == PAGES_AT_ONCE {
            self.whole += 1;
            if self.whole * PAGES_AT_ONCE > KEPT_PAGES_MAX {
                self.whole -= 1;
                self.count -= PAGES_AT_ONCE;
                return self.pieces.remove(&number).unwrap_or_default();
            }
        }
        Vec::new()
    }
}

impl Pages {
    /// Copies the bytes into a page of their own; more than a page gets an allocation of its own.
    pub(crate) fn copy(&self, bytes: &[u8]) -> Bytes {
        let page = (bytes.len() <= PAGE).then(|| self.with_free(Free::take));
        let Some(mut page) = page.flatten() else {
            let mut all = AlignedBuf::new(PAGE);
            return match all.extend_from_slice(bytes) {
                Ok(()) => all.into(),
                Err(_) => Bytes::copy_from_slice(bytes),
            };
        };
        page.write(bytes);
        let used = Used {
            page: Some(page),
            pages: self.clone(),
        };
        Bytes::from_owner(used).slice(..bytes.len())
    }

    /// Whether many pages are free in pieces that are partly used, and so cannot be returned: they should
    /// be used first.
    pub(crate) fn are_scattered(&self) -> bool {
        let scattered = self.with_free(|free| free.count - free.whole * PAGES_AT_ONCE);
        scattered > KEPT_PAGES_MAX
    }

    fn with_free<T>(&self, f: impl FnOnce(&mut Free) -> T) -> T {
        f(&mut self.free.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_used_again_and_lie_at_boundaries() {
        let pages = Pages::default();
        let blocks = |from: u8| (from..from + 100).map(|n| vec![n; PAGE]);
        for round in 0..3 {
            let held: Vec<Bytes> = blocks(round).map(|b| pages.copy(&b)).collect();
            for (bytes, block) in held.iter().zip(blocks(round)) {
                assert_eq!(*bytes, block);
                assert!((bytes.as_ptr() as usize).is_multiple_of(PAGE));
            }
            let later = held.get(7).cloned();
            drop(held);
            assert_eq!(later.as_deref(), Some(&[round + 7; PAGE][..]));
        }
        assert_eq!(free(&pages), PAGES_AT_ONCE);
        let few = pages.copy(&[5; 100]);
        drop(pages);
        assert_eq!(few, [5; 100][..]);
    }

    /// Number of free pages.
    fn free(pages: &Pages) -> usize {
        pages.with_free(|free| {
            let whole = free.pieces.values().filter(|p| p.len() == PAGES_AT_ONCE);
            assert_eq!(whole.count(), free.whole);
            let count = free.pieces.values().map(Vec::len).sum();
            assert_eq!(free.count, count);
            count
        })
    }

    #[test]
    fn pages_that_are_not_used_any_more_go() {
        let pages = Pages::default();
        let mut rng = base::rng::Rng::new(3);
        let (mut held, mut peak) = (Vec::new(), 0);
        for round in 0..8 {
            let most = 10_000 + rng.below(10_000) as usize;
            while held.len() < most {
                held.push(pages.copy(&[round; PAGE]));
            }
            peak = peak.max(most.div_ceil(PAGES_AT_ONCE) * PAGES_AT_ONCE);
            assert!(held.len() + free(&pages) <= peak);
            // Now and then the pages are dropped in another order than they were taken.
            if round % 2 == 0 {
                let len = held.len() as u64;
                for n in 0..held.len() {
                    held.swap(n, rng.below(len) as usize);
                }
            }
            held.truncate(rng.below(3) as usize * 1000);
            assert!(!held.is_empty() || free(&pages) <= KEPT_PAGES_MAX);
        }
        held.clear();
        assert_eq!(free(&pages), KEPT_PAGES_MAX);
    }
}
