//! Memory of whole pages: larger pieces, and single pages for blocks that stay.
//!
//! Payloads come in pieces with what came before and after. Blocks are written back in the order of their places, so
//! of each piece something would stay until the end of a round, and with it all of the piece. So a block of a small write
//! has a page of its own while it stays, from [`Pages`]. They are made many at a time, those of the oldest are taken first, and what
//! is free as a whole goes back, but for `KEPT_PAGES_MAX`.

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

/// Pages that are made at once: they are one mapping, so that they can go back to the system.
const PAGES_AT_ONCE: usize = 256;
/// Pages that are kept, at most, while nobody uses any of those that were made with them.
const KEPT_PAGES_MAX: usize = 8 * PAGES_AT_ONCE;

/// So many zeros at a page's boundary.
pub(crate) fn aligned(len: usize) -> BytesMut {
    let mut all = BytesMut::zeroed(len + PAGE);
    let before = all.as_ptr().align_offset(PAGE);
    let mut piece = all.split_off(before.min(PAGE));
    piece.truncate(len);
    piece
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    free: Arc<Mutex<Free>>,
}

/// Pages that were made at once.
#[derive(Debug)]
struct Piece {
    number: u64,
    memory: Mapping,
}

/// A page, and nobody else has it.
#[derive(Debug)]
struct Page {
    piece: Arc<Piece>,
    nth: usize,
}

/// Pages that nobody uses, by the number of their piece.
#[derive(Debug, Default)]
struct Free {
    pieces: BTreeMap<u64, Vec<Page>>,
    count: usize,
    /// How many of the pieces are free as a whole.
    whole: usize,
    made: u64,
}

/// A page that is in use; it comes back when it is dropped.
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
        // SAFETY: the page lies within the mapping, whose bytes are there from the beginning, and who writes it has
        // `&mut self`.
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
            // Without the lock: it takes the system a while.
            drop(gone);
        }
    }
}

impl Free {
    /// Of the oldest piece that has one. `None`: memory is short, or not to be mapped.
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

    /// Takes a page back. Returns pages that go.
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
    /// The same bytes, in a page of their own; more than a page has memory of its own.
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

    /// Whether many pages are free among others that are in use, and cannot go: they are to be used first.
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

    /// How many are free.
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
            // Now and then in another order than they came.
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
