//! Output queued for `writev`: heads of a few bytes, and bodies that are shared instead of copied.
//!
//! A reply's weight counts against its connection until its last byte is sent, so that a client that does
//! not read its replies cannot make memory grow.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

use super::codec::Head;

/// The resources that requests occupy: counted when a request is taken, released when its reply is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weight {
    /// Number of requests.
    pub(super) requests: u32,
    /// Bytes of their payloads or replies.
    pub(super) bytes: u64,
}

#[derive(Debug)]
struct Part {
    head: Head,
    body: Bytes,
    weight: Weight,
}

/// The queue of what is to be sent.
#[derive(Debug, Default)]
pub(super) struct Output {
    parts: VecDeque<Part>,
    /// Bytes of the first part's head that are sent; its body is cut as it is sent.
    head_sent: usize,
    /// Whether replies are structured.
    pub(super) structured: bool,
}

impl Output {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Appends a head and its body; `weight` is released when both are sent.
    pub(super) fn push(&mut self, head: Head, body: Bytes, weight: Weight) {
        self.parts.push_back(Part { head, body, weight });
    }

    /// Fills `out` with slices of the queue, as many as it has room for; returns their number.
    pub(super) fn slices<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        let mut room = out.iter_mut();
        let mut sent = self.head_sent;
        let mut count = 0;
        for part in &self.parts {
            let head = part.head.bytes().get(sent..).unwrap_or_default();
            sent = 0;
            for bytes in [head, &part.body[..]] {
                if bytes.is_empty() {
                    continue;
                }
                let Some(slot) = room.next() else {
                    return count;
                };
                *slot = IoSlice::new(bytes);
                count += 1;
            }
        }
        count
    }

    /// Removes the first `n` bytes, which are sent. Returns the weight that is released.
    pub(super) fn sent(&mut self, mut n: usize) -> Weight {
        let mut back = Weight::default();
        while let Some(part) = self.parts.front_mut() {
            let head = part.head.bytes().len() - self.head_sent;
            if n < head {
                self.head_sent += n;
                break;
            }
            n -= head;
            if n < part.body.len() {
                part.body.advance(n);
                self.head_sent += head;
                break;
            }
            n -= part.body.len();
            back.requests += part.weight.requests;
            back.bytes += part.weight.bytes;
            self.head_sent = 0;
            self.parts.pop_front();
        }
        back
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::nbd::codec::simple_reply;

    proptest! {
        /// However the output is cut, the same bytes are sent, and a part's weight is released when its
        /// last byte is.
        #[test]
        fn any_pieces_give_the_same_bytes(
            bodies in proptest::collection::vec(0..40_usize, 1..20),
            steps in proptest::collection::vec(1..70_usize, 1..200),
            room in 1..5_usize,
        ) {
            let mut output = Output::default();
            let mut want = Vec::new();
            let mut ends = Vec::new();
            for (i, &len) in bodies.iter().enumerate() {
                let head = if i % 3 == 2 { Head::default() } else { simple_reply(i as u64, 0) };
                let body = vec![i as u8; len];
                want.extend_from_slice(head.bytes());
                want.extend_from_slice(&body);
                ends.push(want.len());
                output.push(head, body.into(), Weight { requests: 1, bytes: len as u64 });
            }
            let mut got = Vec::new();
            let mut back = 0;
            for step in steps.iter().cycle() {
                let mut slices = vec![IoSlice::new(&[]); room];
                let count = output.slices(&mut slices);
                let there: Vec<u8> = slices[..count].iter().flat_map(|s| s.to_vec()).collect();
                let n = there.len().min(*step);
                got.extend_from_slice(&there[..n]);
                back += output.sent(n).requests as usize;
                prop_assert_eq!(back, ends.iter().filter(|&&e| e <= got.len()).count());
                if output.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(got, want);
        }
    }
}
