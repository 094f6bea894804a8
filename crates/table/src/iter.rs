//! The iterator over one table.
//!
//! [`Iter`] reads blocks through the block cache. After it has read a few consecutive blocks from the
//! file, it reads several per read, twice as many bytes each time up to a limit. So a long scan costs
//! few system calls, and a short one reads little that it does not need. What the last scans of the
//! table needed is read at once.

use std::sync::Arc;

use base::stats::Activity;
use base::{Error, ErrorKind, Result};

use crate::block::{Block, Cursor, Target};
use crate::footer::BLOCK_TRAILER_LEN;
use crate::handle::BlockHandle;
use crate::index::Aim;
use crate::internal_iterator::InternalIterator;
use crate::reader::{
    Content, Filled, IndexCursor, Lacking, Pace, ReadAhead, ReadAheadSizes, ReadOptions, Reader,
    Scans, Spot,
};

/// The iterator over one table; see [`Reader::iter`].
#[derive(Debug)]
pub struct Iter {
    reader: Arc<Reader>,
    options: ReadOptions,
    /// Where it is in the index.
    place: IndexCursor,
    /// The block that it came to last: the current one, if there is one.
    at: Option<BlockHandle>,
    block: Option<Block>,
    cursor: Cursor,
    ahead: ReadAhead,
    error: Option<Error>,
    /// The internal key at which reading ahead ends, if it is not known yet where that is in the file.
    limit: Option<Vec<u8>>,
    /// The part of the index in which that was looked for last.
    limit_tried: Option<BlockHandle>,
    /// The last block that has something before that key, once it is known.
    last: Option<BlockHandle>,
    /// Whether it has ended behind that block.
    is_at_limit: bool,
    /// How to read ahead from the first block on.
    pace: Option<Pace>,
    /// Visited blocks that are kept, with [`ReadOptions::pin`].
    pinned: Vec<Block>,
    /// Whether the seek stops at a block that the device would have to be waited for.
    stops: bool,
    /// At what it has stopped.
    lacking: Option<Lacking>,
    /// The block before that, which the seek will need again.
    kept: Option<(BlockHandle, Block)>,
}

impl Reader {
    /// An iterator over the entries; it is invalid until the first seek.
    pub fn iter(self: &Arc<Self>, options: ReadOptions) -> Iter {
        Iter::new(Arc::clone(self), options)
    }
}

impl Iter {
    pub(crate) fn new(reader: Arc<Reader>, options: ReadOptions) -> Self {
        let sizes = match options.readahead_bytes {
            0 => reader.read_ahead(),
            n => ReadAheadSizes::steady(n),
        };
        let mut ahead = ReadAhead::new(sizes);
        ahead.set_for_all(options.whole_range);
        let cursor = Cursor::new(reader.keys());
        Self {
            place: reader.first_in_index(),
            reader,
            options,
            at: None,
            block: None,
            cursor,
            ahead,
            error: None,
            limit: None,
            limit_tried: None,
            last: None,
            is_at_limit: false,
            pace: None,
            pinned: Vec::new(),
            stops: false,
            lacking: None,
            kept: None,
        }
    }

    /// Makes the block at its place the current one; there is no current block at the end. `target` is what its place was
    /// made for. With `within`, there is none behind the last one that is wanted either.
    fn load(&mut self, target: Option<&Target<'_>>, within: bool) -> Result<()> {
        let left_at = self.at.take();
        if within && left_at.is_some() && left_at == self.last {
            self.is_at_limit = true;
            self.cursor.clear();
            let left = self.block.take();
            self.leave(left);
            return Ok(());
        }
        let spot = self.spot(target);
        let handle = match spot {
            Ok(Spot::At(handle)) => Some(handle),
            Ok(Spot::End) => {
                self.ahead.row().forget();
                None
            }
            Ok(Spot::Lacks(index)) => {
                let left = self.block.take();
                self.keep(left_at.zip(left));
                self.lacking = Some(self.reader.lacking_index(index, self.options)?);
                return Err(stopped());
            }
            Err(e) => {
                let left = self.block.take();
                self.leave(left);
                return Err(e);
            }
        };
        self.at = handle;
        // If a panic of the user's code ended the move before, there is a block whose place is not known.
        if handle.is_some() && self.block.is_some() && left_at == handle {
            return Ok(());
        }
        self.cursor.clear();
        let left = self.block.take();
        if self.limit.is_some() && self.limit_tried != self.place.part() {
            self.limit_if_wanted();
        }
        if let Some((_, block)) = self.kept.take_if(|(at, _)| Some(*at) == handle) {
            self.leave(left);
            self.block = Some(block);
            return Ok(());
        }
        if self.stops {
            // Without a wait for the block, so `left` may be needed again.
            let loaded = self.try_load();
            if self.lacking.is_some() {
                self.keep(left_at.zip(left));
            } else {
                self.leave(left);
            }
            return loaded;
        }
        self.leave(left);
        let kept = self.kept.take();
        self.leave(kept.map(|(_, block)| block));
        self.try_load()
    }

    /// Where it is in the index. If it stops, it does not wait for a block of the index that can be read together with others.
    fn spot(&mut self, target: Option<&Target<'_>>) -> Result<Spot> {
        let (reader, place, options) = (&self.reader, &mut self.place, self.options);
        if self.stops && place.may_lack() && reader.reads_together() {
            reader.spot::<true>(place, target, options)
        } else {
            reader.spot::<false>(place, target, options)
        }
    }

    /// Keeps a block that the seek leaves, and leaves the one that was kept before.
    fn keep(&mut self, left: Option<(BlockHandle, Block)>) {
        // Nothing is left by the second stop of a seek.
        if left.is_some() || self.kept.is_none() {
            let before = std::mem::replace(&mut self.kept, left);
            self.leave(before.map(|(_, block)| block));
        }
    }

    fn leave(&mut self, block: Option<Block>) {
        if self.options.pin {
            self.pinned.extend(block);
        } else if let Some(block) = block {
            block.recycle();
        }
    }

    fn try_load(&mut self) -> Result<()> {
        if let Some(handle) = self.at {
            self.block = Some(self.fetch(handle)?);
        }
        Ok(())
    }

    fn fetch(&mut self, handle: BlockHandle) -> Result<Block> {
        let (options, ahead) = (self.options, &mut self.ahead);
        ahead.row().come_to(handle, scans_of(&self.reader, options));
        if !self.stops {
            let ahead = Some((ahead, &self.place));
            return self.reader.shared_block(handle, options, ahead);
        }
        if let Some(block) = self
            .reader
            .block_or_none(handle, options, (ahead, &self.place))?
        {
            return Ok(block);
        }
        self.lacking = Some(self.reader.lacking(handle, options, ahead)?);
        Err(stopped())
    }

    /// Nothing at or after this internal key is wanted, unless it is sought: reading ahead ends there, and [`InternalIterator::next`]
    /// at the end of its block.
    pub fn end_at(&mut self, key: &[u8]) {
        self.limit = Some(key.to_vec());
        self.limit_if_wanted();
    }

    /// Finds where reading ahead ends, as soon as that needs no wait for a block of the index.
    fn limit_if_wanted(&mut self) {
        let Some(key) = self.limit.take() else { return };
        self.limit_tried = self.place.part();
        let Ok(target) = Target::new(&key) else {
            return;
        };
        let (mut place, mut knows) = (self.place.clone(), true);
        self.reader
            .move_cursor(&mut place, Aim::Seek, Some(&target));
        match self
            .reader
            .spot::<true>(&mut place, Some(&target), self.options)
        {
            Ok(Spot::At(last)) => {
                self.last = Some(last);
                let len = last.size.saturating_add(BLOCK_TRAILER_LEN);
                self.ahead.set_limit(last.offset.saturating_add(len));
            }
            Ok(Spot::End) => {}
            Ok(Spot::Lacks(_)) => {
                self.limit = Some(key);
                knows = false;
            }
            Err(_) => knows = false, // what is damaged is said when the iterator comes there
        }
        self.ahead.set_for_all(self.options.whole_range && knows);
    }

    /// How far it has come with reading ahead.
    pub fn read_ahead_pace(&self) -> Pace {
        self.ahead.pace()
    }

    /// If it begins at the first block, it goes on with reading ahead as far as the iterator over the file before has come.
    pub fn go_on_reading_ahead(&mut self, pace: Pace) {
        self.pace = Some(pace);
    }

    /// Whether it has ended behind the last block that is wanted: the table may have more entries.
    pub fn is_at_limit(&self) -> bool {
        self.is_at_limit
    }

    /// Runs one move; an error ends the iteration.
    fn run(&mut self, movement: impl FnOnce(&mut Self) -> Result<()>) {
        self.is_at_limit = false;
        if let Err(e) = movement(self) {
            let e = match self.at {
                Some(handle) => self.reader.locate(e, handle),
                None => e.or_file(self.reader.path()),
            };
            self.error = Some(e);
            self.cursor.clear();
            self.block = None;
        }
    }

    /// Moves to the first entry of the first block from its place on that has one.
    fn first_from_here(&mut self, within: bool) -> Result<()> {
        loop {
            self.load(None, within)?;
            let Some(block) = &self.block else {
                return Ok(());
            };
            if self.cursor.seek_to_first(block)? {
                return Ok(());
            }
            self.place.next();
        }
    }

    /// Moves to the last entry of the last block up to its place that has one.
    fn last_up_to_here(&mut self) -> Result<()> {
        loop {
            self.load(None, false)?;
            let Some(block) = &self.block else {
                return Ok(());
            };
            if self.cursor.seek_to_last(block)? {
                return Ok(());
            }
            self.place.prev();
        }
    }

    fn try_first(&mut self) -> Result<()> {
        self.reader.move_cursor(&mut self.place, Aim::First, None);
        if let Some(pace) = self.pace.take()
            && let Spot::At(first) = self.spot(None)?
        {
            self.ahead.go_on(pace, first);
        }
        self.first_from_here(false)
    }

    fn try_last(&mut self) -> Result<()> {
        self.reader.move_cursor(&mut self.place, Aim::Last, None);
        self.last_up_to_here()
    }

    fn try_next_block(&mut self, within: bool) -> Result<()> {
        self.place.next();
        self.first_from_here(within)
    }

    fn try_block_before(&mut self) -> Result<()> {
        self.place.prev();
        self.last_up_to_here()
    }

    fn try_seek(&mut self, target: &[u8]) -> Result<()> {
        let target = Target::new(target)?;
        self.reader
            .move_cursor(&mut self.place, Aim::Seek, Some(&target));
        self.load(Some(&target), false)?;
        let Some(block) = &self.block else {
            return Ok(());
        };
        let found = self.cursor.seek(block, self.reader.comparator(), &target)?;
        if found {
            Ok(())
        } else {
            self.try_next_block(false)
        }
    }
}

impl Drop for Iter {
    fn drop(&mut self) {
        let scans = scans_of(&self.reader, self.options);
        self.ahead.row().end(scans);
    }
}

/// The scans of a table, for an iterator of an application that does not say how much to read ahead.
fn scans_of(reader: &Reader, options: ReadOptions) -> Option<&Scans> {
    let learns = options.readahead_bytes == 0 && options.activity == Activity::DbIterator;
    learns.then(|| reader.scans())
}

#[cold]
fn stopped() -> Error {
    Error::new(ErrorKind::TryAgain, "the seek has stopped")
}

impl InternalIterator for Iter {
    fn valid(&self) -> bool {
        self.cursor.valid()
    }

    fn seek_to_first(&mut self) {
        self.error = None;
        self.run(Self::try_first);
    }

    fn seek_to_last(&mut self) {
        self.error = None;
        self.run(Self::try_last);
    }

    fn seek(&mut self, target: &[u8]) {
        self.error = None;
        self.run(|it| it.try_seek(target));
    }

    fn seek_for_prev(&mut self, target: &[u8]) {
        self.seek(target);
        if self.error.is_some() {
            return;
        }
        if !self.valid() {
            self.seek_to_last();
        } else if self.key() != target {
            self.prev();
        }
    }

    #[inline]
    fn next(&mut self) {
        let Some(block) = &self.block else {
            return;
        };
        match self.cursor.next(block) {
            Ok(true) => {}
            Ok(false) => self.run(|it| it.try_next_block(true)),
            Err(e) => self.run(|_| Err(e)),
        }
    }

    fn prev(&mut self) {
        let Some(block) = &self.block else {
            return;
        };
        match self.cursor.prev(block) {
            Ok(true) => {}
            Ok(false) => self.run(Self::try_block_before),
            Err(e) => self.run(|_| Err(e)),
        }
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.cursor.key()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        match &self.block {
            Some(block) => self.cursor.value(block),
            None => &[],
        }
    }

    fn status(&self) -> Result<()> {
        match &self.error {
            Some(e) => Err(e.clone()),
            None => Ok(()),
        }
    }

    fn is_value_pinned(&self) -> bool {
        self.options.pin
    }

    fn stop_if_lacking(&mut self, _again: bool) {
        self.stops = true;
    }

    fn take_lacking(&mut self) -> Option<Lacking> {
        self.stops = false;
        let lacking = self.lacking.take();
        if lacking.is_none()
            && let Some((_, block)) = self.kept.take()
        {
            self.leave(Some(block)); // the seek is over
        }
        lacking
    }

    fn give(&mut self, filled: Filled) {
        match filled.0 {
            Content::Ahead(given) => self.ahead.give(given),
            Content::Index(handle, block) => {
                self.reader.give_index(&mut self.place, handle, block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::threads::SystemThreads;
    use base::{SequenceNumber, ValueType, key};
    use io::posix::Posix;
    use io::{File, FileSystem, OpenHow, ReadIoMode, ReadQueues};

    use crate::{
        Builder, BuilderOptions, InternalIterator, ReadOptions, Reader, ReaderOptions,
        read_together,
    };

    /// A file of which the page cache has nothing.
    #[derive(Debug)]
    struct Cold(Arc<dyn File>);

    impl io::FileWrapper for Cold {
        fn inner(&self) -> &dyn File {
            &*self.0
        }
        fn read_cached_at(&self, _: &mut [u8], _: u64) -> base::Result<bool> {
            Ok(false)
        }
    }

    fn internal(n: u32) -> Vec<u8> {
        let user = format!("key{n:04}");
        key::encode(user.as_bytes(), SequenceNumber(1), ValueType::Value)
    }

    /// A seek that stops keeps the block that it leaves: for itself, and for the application if it pins.
    #[test]
    fn a_seek_that_stops_pins_what_it_leaves() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.sst");
        let file = Posix.open(&path, OpenHow::CREATE_NEW).unwrap();
        let mut options = BuilderOptions::default();
        options.table.block_size = 100;
        let mut builder = Builder::new(file, options).unwrap();
        for n in 0..500 {
            builder.add(&internal(n), &[7; 60]).unwrap();
        }
        let size = builder.finish().unwrap().file_size;
        let (fs, threads) = (Posix::shared(), SystemThreads::shared());
        let (queues, _) = ReadQueues::new(ReadIoMode::Pool, fs, threads).unwrap();
        let queues = Arc::new(queues);
        let file: Arc<dyn File> = Arc::new(Cold(Posix.open(&path, OpenHow::READ).unwrap()));
        let options = ReaderOptions {
            queues: Arc::downgrade(&queues),
            ..ReaderOptions::default()
        };
        let reader = Arc::new(Reader::open(file, size, options).unwrap());
        for pin in [false, true] {
            let mut it = reader.iter(ReadOptions {
                pin,
                ..ReadOptions::default()
            });
            let mut stops = 0;
            for n in [3, 400, 200, 201, 499, 0] {
                it.stop_if_lacking(false);
                it.seek(&internal(n));
                if let Some(lacking) = it.take_lacking() {
                    assert!(!it.valid() && it.status().is_err());
                    stops += 1;
                    let filled = read_together(&[lacking]).remove(0);
                    assert!(filled.is_none(), "one block is read alone");
                    it.seek(&internal(n));
                }
                assert_eq!((it.key(), it.value()), (&*internal(n), &[7; 60][..]));
            }
            assert!(stops >= 5);
            // All but the current block.
            assert_eq!(it.pinned.len(), if pin { stops - 1 } else { 0 });
        }
    }
}
