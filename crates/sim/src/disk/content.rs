//! The bytes of a file, in pages that copies share until one of them is written: a large file that is
//! mostly zeros takes no memory, and an image of a disk takes memory only for what differs.

use std::sync::Arc;

/// Bytes of a page.
const PAGE: u64 = 16 << 10;

/// The bytes of a file. Missing pages are zero, and so is everything behind the end.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    len: u64,
    pages: Vec<Option<Arc<Vec<u8>>>>,
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Copies the bytes from `offset` on, at most as many as `buf` takes; returns their number.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let n = self.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        let mut done = 0;
        while done < n {
            let (page, start) = place(offset + done as u64);
            let step = (PAGE as usize - start).min(n - done);
            let into = &mut buf[done..done + step];
            match &self.pages[page] {
                Some(bytes) => into.copy_from_slice(&bytes[start..start + step]),
                None => into.fill(0),
            }
            done += step;
        }
        n
    }

    /// Writes bytes; the file grows if necessary.
    pub(super) fn write(&mut self, data: &[u8], offset: u64) {
        let end = offset + data.len() as u64;
        if end > self.len {
            self.resize(end);
        }
        let mut rest = data;
        let mut at = offset;
        while !rest.is_empty() {
            let (page, start) = place(at);
            let step = (PAGE as usize - start).min(rest.len());
            let (now, later) = rest.split_at(step);
            let page = &mut self.pages[page];
            if page.is_some() || now.iter().any(|&b| b != 0) {
                let page = page.get_or_insert_with(|| Arc::new(vec![0; PAGE as usize]));
                Arc::make_mut(page)[start..start + step].copy_from_slice(now);
            }
            (rest, at) = (later, at + step as u64);
        }
    }

    /// Changes the length; new bytes are zero.
    pub(super) fn resize(&mut self, len: u64) {
        let (page, start) = place(len);
        if len < self.len
            && start > 0
            && let Some(Some(last)) = self.pages.get_mut(page)
        {
            Arc::make_mut(last)[start..].fill(0);
        }
        self.pages.resize(len.div_ceil(PAGE) as usize, None);
        self.len = len;
    }

    /// Copies `start..end`, which both files have, from another file.
    pub(super) fn copy(&mut self, from: &Self, start: u64, end: u64) {
        let mut at = start;
        while at < end {
            let (page, offset) = place(at);
            let step = (PAGE - offset as u64).min(end - at);
            match &from.pages[page] {
                // Neither file has bytes other than zero behind its end.
                Some(bytes) if step == PAGE => self.pages[page] = Some(Arc::clone(bytes)),
                Some(bytes) => {
                    let bytes = &bytes[offset..offset + step as usize];
                    let into =
                        self.pages[page].get_or_insert_with(|| Arc::new(vec![0; PAGE as usize]));
                    Arc::make_mut(into)[offset..offset + step as usize].copy_from_slice(bytes);
                }
                None if step == PAGE => self.pages[page] = None,
                None => {
                    if let Some(into) = &mut self.pages[page] {
                        Arc::make_mut(into)[offset..offset + step as usize].fill(0);
                    }
                }
            }
            at += step;
        }
    }

    /// The next position with a byte that is not zero.
    pub(super) fn next_written(&self, from: u64) -> Option<u64> {
        let (first, mut start) = place(from);
        for (nth, page) in self.pages.iter().enumerate().skip(first) {
            let bytes = page.as_ref().and_then(|p| p.get(start..));
            if let Some(i) = bytes.and_then(|b| b.iter().position(|&b| b != 0)) {
                return Some(nth as u64 * PAGE + (start + i) as u64);
            }
            start = 0;
        }
        None
    }

    /// Flips bits of one byte, if the file has it.
    pub(super) fn flip(&mut self, at: u64, bits: u8) {
        let mut byte = [0];
        if self.read(&mut byte, at) == 1 {
            self.write(&[byte[0] ^ bits], at);
        }
    }

    /// All bytes.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut all = vec![0; self.len as usize];
        self.read(&mut all, 0);
        all
    }
}

/// The page of a position, and the offset in it.
fn place(at: u64) -> (usize, usize) {
    ((at / PAGE) as usize, (at % PAGE) as usize)
}

#[cfg(test)]
mod tests {
    use base::rng::Rng;

    use super::*;

    #[test]
    fn it_is_as_a_plain_vector() {
        let mut rng = Rng::new(3);
        for _ in 0..40 {
            let (mut content, mut plain) = (Content::default(), Vec::new());
            let (mut old, mut old_plain) = (content.clone(), plain.clone());
            for _ in 0..60 {
                let at = rng.below(5 * PAGE);
                match rng.below(6) {
                    0 => {
                        content.resize(at);
                        plain.resize(at as usize, 0);
                    }
                    1 => (old, old_plain) = (content.clone(), plain.clone()),
                    2 => {
                        let both = content.len().min(old.len());
                        let start = at.min(both);
                        let end = start + rng.below(both - start + 1);
                        let range = start as usize..end as usize;
                        content.copy(&old, start, end);
                        plain[range.clone()].copy_from_slice(&old_plain[range]);
                    }
                    _ => {
                        let mut data = vec![0; rng.below(3 * PAGE) as usize];
                        if !rng.one_in(3) {
                            rng.fill(&mut data);
                        }
                        content.write(&data, at);
                        let end = at as usize + data.len();
                        plain.resize(plain.len().max(end), 0);
                        plain[at as usize..end].copy_from_slice(&data);
                    }
                }
                assert_eq!(content.to_vec(), plain);
                assert_eq!(old.to_vec(), old_plain);
                let next = plain.iter().skip(at as usize).position(|&b| b != 0);
                assert_eq!(content.next_written(at), next.map(|i| at + i as u64));
            }
        }
    }
}
