//! Reads of several tables at the same time: the blocks at which seeks begin.

use std::sync::Arc;

use base::Result;
use base::stats::{HistogramKind, Ticker};
use io::queue::{Act, Request};
use io::{AlignedBuf, Lent};

use super::ahead::{Given, Pace, ReadAhead, Window};
use super::fetch::{self, Span};
use super::on_demand::Meta;
use super::{IndexCursor, ReadOptions, Reader};
use crate::block::Block;
use crate::handle::BlockHandle;

/// What a seek lacks of a table.
#[derive(Debug)]
pub struct Lacking {
    reader: Arc<Reader>,
    span: Span,
    what: What,
    options: ReadOptions,
}

#[derive(Debug)]
enum What {
    Data {
        /// Whether the span has more than one block.
        is_ahead: bool,
        /// The pace and the limit of the iterator with this read.
        pace: Pace,
        limit: u64,
    },
    /// This block of the index.
    Index(BlockHandle),
}

/// What a seek lacked.
#[derive(Debug)]
pub struct Filled(pub(crate) Content);

#[derive(Debug)]
pub(crate) enum Content {
    /// Data blocks.
    Ahead(Given),
    /// A block of the index.
    Index(BlockHandle, Block),
}

impl Reader {
    /// A data block, unless the device would have to be waited for, and it can be read together with others; `None` then.
    pub(crate) fn block_or_none(
        &self,
        handle: BlockHandle,
        options: ReadOptions,
        (ahead, cursor): (&mut ReadAhead, &IndexCursor),
    ) -> Result<Option<Block>> {
        if let Some(held) = self.cached_or_decompressed(handle, options) {
            return Ok(Some(held.into_block()));
        }
        let len = self.fetch.stored_len(handle)?;
        if !self.reads_together() || ahead.expects(handle.offset, len) {
            let ahead = Some((ahead, cursor));
            return self.read_block(handle, options, ahead).map(Some);
        }
        let block = self.block_at_hand(handle, options)?;
        if block.is_some() {
            self.fetch.plan(ahead, handle.offset, len);
        }
        Ok(block)
    }

    /// What to read for a block that is not at hand. Errors: the block does not lie inside the file.
    pub(crate) fn lacking(
        self: &Arc<Self>,
        handle: BlockHandle,
        options: ReadOptions,
        ahead: &mut ReadAhead,
    ) -> Result<Lacking> {
        let len = self.fetch.stored_len(handle)?;
        let (span, pace) = self.fetch.intend(ahead, handle.offset, len);
        Ok(Lacking {
            span,
            what: What::Data {
                is_ahead: span.stored > len,
                pace,
                limit: ahead.limit(),
            },
            reader: Arc::clone(self),
            options,
        })
    }

    /// What to read for a block of the index that is not at hand. Errors: the block does not lie inside the file; it may not be
    /// read.
    pub(crate) fn lacking_index(
        self: &Arc<Self>,
        handle: BlockHandle,
        options: ReadOptions,
    ) -> Result<Lacking> {
        Ok(Lacking {
            span: self.fetch.span(handle)?,
            what: What::Index(handle),
            reader: Arc::clone(self),
            options,
        })
    }

    /// Whether reads for several seeks can be done at the same time.
    pub(crate) fn reads_together(&self) -> bool {
        self.queues().is_some()
    }
}

/// Reads all of them at the same time. `None` for what could not be read: it should be read again, alone, which also tells the
/// error.
pub fn read_together(lacking: &[Lacking]) -> Vec<Option<Filled>> {
    let mut filled: Vec<_> = lacking.iter().map(|_| None).collect();
    // One read is as fast without a queue. A queue is not kept while the rate limiter is waited for.
    if let [first, _, ..] = lacking
        && !first
            .reader
            .fetch
            .meter()
            .limits(first.options.rate_limiter_priority)
        && let Some(queues) = first.reader.queues()
        && let Some(mut queue) = queues.lend()
    {
        for (token, lacks) in lacking.iter().enumerate() {
            if lacks.push(&mut queue, token as u64).is_err() {
                queue.give_up();
                break;
            }
        }
        if collect(&mut queue, lacking, &mut filled).is_err() {
            queue.give_up();
        }
    }
    filled
}

fn collect(queue: &mut Lent<'_>, lacking: &[Lacking], filled: &mut [Option<Filled>]) -> Result<()> {
    let timers: Vec<_> = lacking.iter().map(|l| l.reader.read_timer()).collect();
    let mut done = Vec::new();
    let sent = queue.len();
    queue.wait(sent, &mut done)?;
    for done in done {
        let token = done.token as usize;
        let (Some(lacks), Some(place)) = (lacking.get(token), filled.get_mut(token)) else {
            continue;
        };
        let (fetch, span) = (&lacks.reader.fetch, lacks.span);
        match (done.result, done.buf) {
            (Ok(n), Some(mut bytes)) if n >= span.skip + span.stored => {
                bytes.resize(n)?;
                let stored = span.stored as u64;
                fetch
                    .meter()
                    .was_read(stored, lacks.options.activity, timers[token]);
                fetch.record(HistogramKind::AsyncReadBytes, stored);
                *place = lacks.filled(bytes, timers[token]);
            }
            _ => fetch.count(Ticker::AsyncReadErrorCount, 1),
        }
    }
    Ok(())
}

impl Lacking {
    /// Whether the seek needs more after this.
    pub fn is_of_index(&self) -> bool {
        matches!(self.what, What::Index(_))
    }

    /// What was lacking, in the bytes that were read; `None` if they are damaged.
    fn filled(&self, bytes: AlignedBuf, timer: Option<u64>) -> Option<Filled> {
        match self.what {
            What::Data {
                is_ahead,
                pace,
                limit,
            } => {
                if is_ahead {
                    let how = fetch::Read::from(self.options);
                    self.reader.fetch.count_ahead(self.span, how, limit);
                }
                let at = self.span.offset;
                Some(Filled(Content::Ahead(Given {
                    window: Window { bytes, at },
                    pace,
                    is_ahead,
                })))
            }
            What::Index(handle) => {
                let stored = self.span.stored_in(&bytes);
                let what = (Meta::Index, handle);
                let block = self
                    .reader
                    .meta_in(what, stored, self.options, timer)
                    .ok()?;
                Some(Filled(Content::Index(handle, block)))
            }
        }
    }

    fn push(&self, queue: &mut Lent<'_>, token: u64) -> Result<()> {
        let file = &self.reader.fetch.file;
        let buf = queue.buffer(self.span.len, file.read_alignment())?;
        let (file, offset, act) = (Arc::clone(file), self.span.offset, Act::Read(buf));
        queue.push(Request {
            token,
            file,
            offset,
            act,
        })
    }
}
