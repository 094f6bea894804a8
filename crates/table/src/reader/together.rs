//! Reads of several tables at the same time: the blocks at which seeks begin.

use std::sync::Arc;

use base::Result;
use base::stats::{Activity, HistogramKind, Ticker};
use io::queue::{Act, Request};
use io::{AlignedBuf, Lent};

use super::ahead::{Given, Pace, ReadAhead, Window};
use super::fetch::{self, Fetch, Span};
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
        let intended = self.fetch.intend(ahead, handle.offset, len);
        if intended.0.stored > len {
            self.check_may_read(options)?;
            let how = fetch::Read::from(options);
            if !self.fetch.fill_at_hand(ahead, intended, how)? {
                return Ok(None);
            }
            let ahead = Some((ahead, cursor));
            return self.read_block(handle, options, ahead).map(Some);
        }
        let block = self.block_at_hand(handle, options)?;
        if block.is_some() {
            self.fetch.plan(ahead, handle.offset, len);
            ahead.row().is_read(len);
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
    // One read is as fast without a queue. A queue is not kept while the rate limiter is waited for.
    let [first, _, ..] = lacking else {
        return lacking.iter().map(|_| None).collect();
    };
    let priority = first.options.rate_limiter_priority;
    if first.reader.fetch.meter().limits(priority) {
        return lacking.iter().map(|_| None).collect();
    }
    let reads: Vec<_> = lacking
        .iter()
        .map(|l| Wanted::new(&l.reader, l.span, l.options.activity))
        .collect();
    let bytes = read_at_once(&first.reader, &reads);
    let filled = lacking.iter().zip(&reads).zip(bytes);
    filled
        .map(|((lacking, read), bytes)| lacking.filled(bytes?, read.timer))
        .collect()
}

/// A read.
pub(super) struct Wanted<'a> {
    fetch: &'a Fetch,
    span: Span,
    activity: Activity,
    timer: Option<u64>,
}

impl<'a> Wanted<'a> {
    pub(super) fn new(reader: &'a Reader, span: Span, activity: Activity) -> Self {
        Self {
            fetch: &reader.fetch,
            span,
            activity,
            timer: reader.read_timer(),
        }
    }
}

/// The bytes of all reads, which are done at the same time; `None` for what could not be read, and for all without a queue.
pub(super) fn read_at_once(first: &Reader, reads: &[Wanted<'_>]) -> Vec<Option<AlignedBuf>> {
    let mut bytes: Vec<_> = reads.iter().map(|_| None).collect();
    if let Some(queues) = first.queues()
        && let Some(mut queue) = queues.lend()
    {
        for (token, wanted) in (0..).zip(reads) {
            if push(&mut queue, token, wanted).is_err() {
                queue.give_up();
                break;
            }
        }
        if collect(&mut queue, reads, &mut bytes).is_err() {
            queue.give_up();
        }
    }
    bytes
}

fn push(queue: &mut Lent<'_>, token: u64, Wanted { fetch, span, .. }: &Wanted<'_>) -> Result<()> {
    let file = Arc::clone(&fetch.file);
    let buf = queue.buffer(span.len, file.read_alignment())?;
    queue.push(Request {
        token,
        file,
        offset: span.offset,
        act: Act::Read(buf),
    })
}

fn collect(
    queue: &mut Lent<'_>,
    reads: &[Wanted<'_>],
    bytes: &mut [Option<AlignedBuf>],
) -> Result<()> {
    let mut done = Vec::new();
    let sent = queue.len();
    queue.wait(sent, &mut done)?;
    for done in done {
        let token = done.token as usize;
        let (Some(wanted), Some(place)) = (reads.get(token), bytes.get_mut(token)) else {
            continue;
        };
        let fetch = wanted.fetch;
        match (done.result, done.buf) {
            (Ok(n), Some(mut buf)) if n >= wanted.span.end_of_stored() => {
                buf.resize(n)?;
                let stored = wanted.span.stored as u64;
                let meter = fetch.meter();
                meter.was_read(stored, wanted.activity, wanted.timer);
                fetch.record(HistogramKind::AsyncReadBytes, stored);
                *place = Some(buf);
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
}
