//! External sorting: items are sorted in memory, a part at a time, into runs, which are files in a
//! scratch folder; then the runs are merged.
//!
//! ```text
//!   a run   items: 4 length of the item, little-endian   the item
//! ```
//!
//! Items sort by their bytes. Runs are not synced: they are useless after the process has ended.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, Result};
use io::{File, FileSystem, OpenHow, WriteSync, write_all_at};

/// The most runs that are merged at once, each with a buffer.
const RUNS_MAX: usize = 64;
/// Bytes of the buffer for writing.
const WRITE_BYTES: usize = 256 << 10;
/// Bytes of memory for the position of an item.
const PLACE_BYTES: usize = size_of::<(usize, usize)>();
/// The longest item, bytes: a point with all optional fields has 1.3 KiB.
const ITEM_BYTES_MAX: usize = 1 << 20;

/// Sorts items; see the module.
pub(super) struct Sorter {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    name: &'static str,
    /// The most bytes of memory to use.
    memory: usize,
    bytes: Vec<u8>,
    places: Vec<(usize, usize)>,
    runs: Vec<PathBuf>,
    made: usize,
}

impl Sorter {
    /// A sorter whose runs are in `dir`, with names that begin with `name`.
    pub(super) fn new(
        fs: &Arc<dyn FileSystem>,
        dir: &Path,
        name: &'static str,
        memory: usize,
    ) -> Self {
        Self {
            fs: Arc::clone(fs),
            dir: dir.to_path_buf(),
            name,
            memory: memory.max(64 << 10),
            bytes: Vec::new(),
            places: Vec::new(),
            runs: Vec::new(),
            made: 0,
        }
    }

    /// Adds an item that consists of parts. Errors: a run cannot be written.
    pub(super) fn add(&mut self, parts: &[&[u8]]) -> Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let used = self.bytes.len() + len + (self.places.len() + 1) * PLACE_BYTES;
        // Vectors grow by doubling, so that they may take twice as much.
        if used > self.memory / 2 && !self.places.is_empty() {
            self.spill()?;
        }
        let start = self.bytes.len();
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.places.push((start, self.bytes.len()));
        Ok(())
    }

    /// The number of runs so far.
    pub(super) fn runs(&self) -> usize {
        self.made
    }

    fn spill(&mut self) -> Result<()> {
        if self.places.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.bytes);
        let mut places = std::mem::take(&mut self.places);
        let of = |&(start, end): &(usize, usize)| bytes.get(start..end).unwrap_or_default();
        places.sort_unstable_by(|a, b| of(a).cmp(of(b)));
        let mut out = self.create()?;
        for place in &places {
            out.add(of(place))?;
        }
        let path = out.finish()?;
        self.runs.push(path);
        // Reuses the memory.
        (self.bytes, self.places) = (bytes, places);
        self.bytes.clear();
        self.places.clear();
        Ok(())
    }

    fn create(&mut self) -> Result<Run> {
        let path = self.dir.join(format!("{}-{}.run", self.name, self.made));
        self.made += 1;
        let file = self.fs.open(&path, OpenHow::CREATE_NEW)?;
        Ok(Run {
            path,
            file,
            at: 0,
            buffer: Vec::with_capacity(WRITE_BYTES),
        })
    }

    /// All items in order; may be called more than once. Errors: runs cannot be written or read.
    pub(super) fn merged(&mut self) -> Result<Merged> {
        self.spill()?;
        self.bytes = Vec::new();
        self.places = Vec::new();
        while self.runs.len() > RUNS_MAX {
            let rest = self.runs.split_off(RUNS_MAX);
            let some = std::mem::replace(&mut self.runs, rest);
            let mut merged = self.open(&some)?;
            let mut out = self.create()?;
            while let Some(item) = merged.next()? {
                out.add(item)?;
            }
            let path = out.finish()?;
            self.runs.push(path);
            some.iter().try_for_each(|path| self.fs.remove(path))?;
        }
        self.open(&self.runs)
    }

    pub(super) fn open(&self, runs: &[PathBuf]) -> Result<Merged> {
        let buffer = (self.memory / (runs.len() + 1)).clamp(4 << 10, 1 << 20);
        let mut heads = BinaryHeap::with_capacity(runs.len());
        for path in runs {
            let file = self.fs.open(path, OpenHow::READ)?;
            let mut head = Head {
                file,
                at: 0,
                buffer: vec![0; buffer],
                start: 0,
                end: 0,
                item: Vec::new(),
            };
            if head.advance()? {
                heads.push(head);
            }
        }
        Ok(Merged {
            heads,
            item: Vec::new(),
        })
    }
}

/// A run that is being written.
struct Run {
    path: PathBuf,
    file: Arc<dyn File>,
    at: u64,
    buffer: Vec<u8>,
}

impl Run {
    fn add(&mut self, item: &[u8]) -> Result<()> {
        if self.buffer.len() + item.len() + 4 > WRITE_BYTES {
            self.write()?;
        }
        self.buffer
            .extend_from_slice(&(item.len() as u32).to_le_bytes());
        self.buffer.extend_from_slice(item);
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        write_all_at(&*self.file, &self.buffer, self.at, WriteSync::None)?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    fn finish(mut self) -> Result<PathBuf> {
        self.write()?;
        Ok(self.path)
    }
}

/// A run that is being read, and its next item.
struct Head {
    file: Arc<dyn File>,
    at: u64,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    item: Vec<u8>,
}

impl Head {
    /// Goes to the next item. Returns whether there is one.
    fn advance(&mut self) -> Result<bool> {
        let mut len = [0; 4];
        if !self.read(&mut len)? {
            return Ok(false);
        }
        let len = u32::from_le_bytes(len) as usize;
        if len > ITEM_BYTES_MAX {
            return Err(self.damaged());
        }
        let mut item = std::mem::take(&mut self.item);
        item.resize(len, 0);
        let is_there = self.read(&mut item)?;
        self.item = item;
        if is_there || len == 0 {
            return Ok(true);
        }
        Err(self.damaged())
    }

    fn damaged(&self) -> Error {
        Error::corruption("a run of sorted items that is damaged").file(self.file.path())
    }

    /// Fills `out`. Returns `false` at the end of the file; errors: the file ends within `out`.
    fn read(&mut self, out: &mut [u8]) -> Result<bool> {
        let mut done = 0;
        while done < out.len() {
            if self.start == self.end {
                self.end = self.file.read_at(&mut self.buffer, self.at)?;
                self.at += self.end as u64;
                self.start = 0;
                if self.end == 0 {
                    return if done == 0 {
                        Ok(false)
                    } else {
                        Err(self.damaged())
                    };
                }
            }
            let from = self.buffer.get(self.start..self.end).unwrap_or_default();
            let to = out.get_mut(done..).unwrap_or_default();
            let count = from.len().min(to.len());
            to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            self.start += count;
            done += count;
        }
        Ok(done > 0)
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.item == other.item
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    /// Reversed, because the heap gives the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.item.cmp(&self.item)
    }
}

/// All items of some runs, in order.
pub(super) struct Merged {
    heads: BinaryHeap<Head>,
    item: Vec<u8>,
}

impl Merged {
    /// The next item. Errors: a run cannot be read.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>> {
        let Some(mut head) = self.heads.peek_mut() else {
            return Ok(None);
        };
        self.item.clear();
        std::mem::swap(&mut self.item, &mut head.item);
        if !head.advance()? {
            PeekMut::pop(head);
        }
        Ok(Some(&self.item))
    }
}

#[cfg(test)]
mod tests {
    use base::rng::Rng;

    use super::*;

    fn sorted(memory: usize, items: &[Vec<u8>]) -> (Vec<Vec<u8>>, usize) {
        let dir = tempfile::tempdir().unwrap();
        let fs: Arc<dyn FileSystem> = Arc::new(io::posix::Posix);
        let mut sorter = Sorter::new(&fs, dir.path(), "x", memory);
        for item in items {
            let (a, b) = item.split_at(item.len() / 2);
            sorter.add(&[a, b]).unwrap();
        }
        for _ in 0..2 {
            let mut merged = sorter.merged().unwrap();
            let mut count = 0;
            while merged.next().unwrap().is_some() {
                count += 1;
            }
            assert_eq!(count, items.len());
        }
        let mut merged = sorter.merged().unwrap();
        let mut out = Vec::new();
        while let Some(item) = merged.next().unwrap() {
            out.push(item.to_vec());
        }
        (out, sorter.runs())
    }

    #[test]
    fn items_come_in_order_from_any_number_of_runs() {
        let mut rng = Rng::new(3);
        let mut item = |most: u64| {
            let len = rng.below(most);
            (0..len).map(|_| rng.below(4) as u8).collect::<Vec<u8>>()
        };
        for (count, most) in [(0, 1), (1, 9), (1000, 5), (30_000, 300)] {
            let items: Vec<_> = (0..count).map(|_| item(most)).collect();
            let (found, runs) = sorted(64 << 10, &items);
            let mut right = items.clone();
            right.sort();
            assert!(found == right, "{count} items in {runs} runs");
            // More runs than are merged at once.
            assert!(runs > RUNS_MAX || count < 30_000, "{runs}");
        }
    }
}
