//! Memory of whole pages: larger pieces, and single pages for blocks that stay.
//!
//! Payloads come in pieces with what came before and after. Blocks are written back in the order of their places, so
//! of each piece something would stay until the end of a round, and with it all of the piece. So a block that stays
//! has a page of its own, from [`Pages`], which gives no memory back: it has as much as was needed at once.

use std::sync::Arc;

use base::sync::{Mutex, PoisonError};
use bytes::{Bytes, BytesMut};
use io::buffer::PAGE;

/// Pages that are made at once.
const PAGES_AT_ONCE: usize = 256;

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
    free: Arc<Mutex<Vec<BytesMut>>>,
}

/// A page that is in use.
struct Page {
    bytes: BytesMut,
    pages: Pages,
}

impl AsRef<[u8]> for Page {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.pages
            .with_free(|free| free.push(std::mem::take(&mut self.bytes)));
    }
}

impl Pages {
    /// The same bytes, in a page of their own; more than a page has memory of its own.
    pub(crate) fn copy(&self, bytes: &[u8]) -> Bytes {
        if bytes.len() > PAGE {
            return Bytes::copy_from_slice(bytes);
        }
        let mut page = self.with_free(|free| {
            if free.is_empty() {
                let mut all = aligned(PAGES_AT_ONCE * PAGE);
                free.extend((0..PAGES_AT_ONCE).map(|_| all.split_to(PAGE)));
            }
            free.pop().unwrap_or_default()
        });
        if let Some(to) = page.get_mut(..bytes.len()) {
            to.copy_from_slice(bytes);
        }
        let page = Page {
            bytes: page,
            pages: self.clone(),
        };
        Bytes::from_owner(page).slice(..bytes.len())
    }

    fn with_free<T>(&self, f: impl FnOnce(&mut Vec<BytesMut>) -> T) -> T {
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
        assert_eq!(pages.with_free(|free| free.len()), PAGES_AT_ONCE);
        let few = pages.copy(&[5; 100]);
        drop(pages);
        assert_eq!(few, [5; 100][..]);
    }
}
