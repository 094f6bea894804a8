//! The reads that are on their way, and who waits for them.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;

use base::stats::{HistogramKind, Ticker};
use base::{Error, Result};
use foldhash::fast::RandomState;
use io::queue::{Act, Done, Request};
use io::{AlignedBuf, AsyncReads, File, Lent, READS_MAX, ReadQueues};
use manifest::Opened;
use table::{Block, Missing, Span};

use crate::info::Info;
use crate::read::get::Lacking;

/// How many reads are sent together while searches still run.
const SENT_TOGETHER: usize = 16;

/// How many bytes may be on their way. One read of any size always may.
const BYTES_MAX: usize = 8 << 20;

/// A block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BlockOf {
    /// The address of the file's entry in the Version.
    pub(super) file: usize,
    block: u64,
}

impl BlockOf {
    pub(super) fn new(lacking: &Lacking<'_>) -> Self {
        Self {
            file: std::ptr::from_ref(lacking.file).addr(),
            block: lacking.missing.number(),
        }
    }
}

/// A read that is on its way, and the `W`s that wait for it.
pub(super) struct Flight<'a, W> {
    pub(super) of: BlockOf,
    pub(super) reader: Opened<'a>,
    pub(super) missing: Missing,
    pub(super) span: Span,
    pub(super) timer: Option<u64>,
    /// The first of them apart, because there is usually no other.
    pub(super) first: Option<W>,
    pub(super) others: Vec<W>,
}

impl<'a, W> Flight<'a, W> {
    /// The read of a block for which nobody waits yet, and the file to read.
    ///
    /// Errors: those of [`table::Reader::prepare_read`].
    pub(super) fn new(
        lacking: &Lacking<'_>,
        reader: Opened<'a>,
        options: &table::ReadOptions,
    ) -> Result<(Self, Arc<dyn File>)> {
        let missing = lacking.missing.clone();
        let (file, span) = reader.prepare_read(&missing, options)?;
        let file = Arc::clone(file);
        let flight = Self {
            of: BlockOf::new(lacking),
            timer: reader.read_timer(),
            reader,
            missing,
            span,
            first: None,
            others: Vec::new(),
        };
        Ok((flight, file))
    }

    /// The block, read now, because the queue has failed.
    pub(super) fn read_again(&self, options: &table::ReadOptions) -> Result<Block> {
        read_again(&self.reader, &self.missing, options)
    }

    /// The block that was read.
    pub(super) fn block(
        &self,
        info: &Info,
        done: &Done,
        options: &table::ReadOptions,
    ) -> Result<Block> {
        match &done.result {
            Ok(_) => info.record(HistogramKind::AsyncReadBytes, self.span.len as u64),
            Err(_) => info.count(Ticker::AsyncReadErrorCount, 1),
        }
        let len = done.result.clone()?;
        let buf = done.buf.as_deref();
        let bytes = buf.and_then(|buf| buf.get(..len));
        let bytes = bytes.ok_or_else(|| Error::broken("a read has returned no buffer"))?;
        let read = (&self.missing, self.span);
        self.reader.finish_read(read, options, bytes, self.timer)
    }
}

/// Reads a block whose read was prepared, and charged to the rate limiter, but has failed in the queue.
pub(super) fn read_again(
    reader: &table::Reader,
    missing: &Missing,
    options: &table::ReadOptions,
) -> Result<Block> {
    let uncharged = table::ReadOptions {
        rate_limiter_priority: None,
        ..*options
    };
    reader.read_missing(missing, &uncharged)
}

/// Whether a read was queued.
pub(super) enum Pushed<'a> {
    Yes(usize),
    /// The queue has failed: the reader must read the block itself.
    No(Opened<'a>),
}

/// Who waits for reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The thread.
    Blocks,
    /// The task, which is woken.
    Wakes,
}

enum Queueing<'a> {
    /// No block was lacking yet.
    Unasked(Wait),
    Lent(Lent<'a>),
    Unattended(AsyncReads),
    /// There was no queue, or it has failed.
    Alone,
}

/// The reads on their way: see the module.
pub(super) struct Reads<'a, W> {
    queue: Queueing<'a>,
    flights: Vec<Option<Flight<'a, W>>>,
    free: Vec<usize>,
    /// The flights by their blocks.
    pub(super) by_block: HashMap<BlockOf, usize, RandomState>,
    /// Reads that were pushed and not sent yet.
    unsent: usize,
    /// See [`Reads::take_sent`].
    sent: usize,
    /// Bytes that are being read.
    bytes: usize,
    queues: &'a ReadQueues,
}

impl<'a, W> Reads<'a, W> {
    pub(super) fn new(queues: &'a ReadQueues, wait: Wait) -> Self {
        Self {
            queues,
            queue: Queueing::Unasked(wait),
            flights: Vec::new(),
            free: Vec::new(),
            by_block: HashMap::default(),
            unsent: 0,
            sent: 0,
            bytes: 0,
        }
    }

    /// How many reads are on their way.
    pub(super) fn flying(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// Whether no more reads should be queued until one is done: because of their number, or the memory that they take.
    pub(super) fn are_enough(&self) -> bool {
        self.flying() >= READS_MAX as usize || self.bytes >= BYTES_MAX
    }

    /// Whether reads can be queued.
    pub(super) fn is_queued(&mut self) -> bool {
        if let Queueing::Unasked(wait) = self.queue {
            let queue = match wait {
                Wait::Blocks => self.queues.lend().map(Queueing::Lent),
                Wait::Wakes => self.queues.unattended().map(Queueing::Unattended),
            };
            self.queue = queue.unwrap_or(Queueing::Alone);
        }
        !matches!(self.queue, Queueing::Alone)
    }

    /// Queues a read. Errors: there is no memory for it.
    pub(super) fn push(
        &mut self,
        info: &Info,
        file: Arc<dyn File>,
        flight: Flight<'a, W>,
    ) -> Result<Pushed<'a>> {
        let Span { offset, len, .. } = flight.span;
        let id = self.free.last().copied().unwrap_or(self.flights.len());
        let token = id as u64;
        let pushed = match &mut self.queue {
            Queueing::Lent(queue) => {
                let act = Act::Read(queue.buffer(len, file.read_alignment())?);
                queue.push(Request {
                    token,
                    file,
                    offset,
                    act,
                })
            }
            // It would be read by one thread for all, one file after the other.
            Queueing::Unattended(_) if !self.queues.takes(&*file) => {
                return Ok(Pushed::No(flight.reader));
            }
            Queueing::Unattended(reads) => {
                let buf = AlignedBuf::for_reads(len, file.read_alignment())?;
                reads.push(token, file, offset, buf);
                Ok(())
            }
            Queueing::Unasked(_) | Queueing::Alone => return Ok(Pushed::No(flight.reader)),
        };
        if let Err(e) = pushed {
            self.fail(info, &e);
            return Ok(Pushed::No(flight.reader));
        }
        if self.free.pop().is_none() {
            self.flights.push(None);
        }
        self.by_block.insert(flight.of, id);
        self.bytes += flight.span.len;
        self.flights[id] = Some(flight);
        self.unsent += 1;
        if self.unsent >= SENT_TOGETHER {
            self.submit(info);
        }
        Ok(Pushed::Yes(id))
    }

    /// Sends the reads that were pushed.
    pub(super) fn submit(&mut self, info: &Info) {
        if self.unsent == 0 {
            return;
        }
        let submitted = match &mut self.queue {
            Queueing::Lent(queue) => queue.submit(),
            Queueing::Unattended(reads) => {
                reads.submit();
                Ok(())
            }
            Queueing::Unasked(_) | Queueing::Alone => Ok(()),
        };
        if let Err(e) = submitted {
            self.fail(info, &e);
        }
        self.count_sent();
    }

    fn count_sent(&mut self) {
        self.sent += std::mem::take(&mut self.unsent);
    }

    /// Makes `waiting` wait for a read on its way.
    pub(super) fn wait_for(&mut self, read: usize, waiting: W) {
        let flight = self.flights.get_mut(read).and_then(Option::as_mut);
        base::invariant!(
            flight.is_some(),
            "a search waits for a read that is not there"
        );
        if let Some(flight) = flight {
            if flight.first.is_none() {
                flight.first = Some(waiting);
            } else {
                flight.others.push(waiting);
            }
        }
    }

    /// How many reads were sent, or are about to be, since this was last asked.
    pub(super) fn take_sent(&mut self) -> usize {
        self.count_sent();
        std::mem::take(&mut self.sent)
    }

    /// Waits until at least one read is done, or none is on its way.
    pub(super) async fn wait(&mut self, info: &Info) -> Vec<Done> {
        let mut done = Vec::new();
        self.count_sent();
        if self.flying() == 0 {
            return done;
        }
        let began = info.timer();
        let waited = match &mut self.queue {
            Queueing::Lent(queue) => queue.wait(1, &mut done),
            Queueing::Unattended(reads) => {
                let came = poll_fn(|cx| reads.poll_done(cx)).await;
                came.map(|came| done = came)
            }
            Queueing::Unasked(_) | Queueing::Alone => return done,
        };
        info.timed(HistogramKind::PollWaitMicros, began);
        match waited {
            Ok(()) => drop(self.queues.is_news(false)),
            Err(e) => self.fail(info, &e),
        }
        done
    }

    /// The read that is done.
    pub(super) fn land(&mut self, token: u64) -> Option<Flight<'a, W>> {
        let id = token as usize;
        let flight = self.flights.get_mut(id)?.take()?;
        self.free.push(id);
        self.by_block.remove(&flight.of);
        self.bytes -= flight.span.len;
        Some(flight)
    }

    /// Waits for the only read that is on its way; returns its block.
    pub(super) async fn only(
        &mut self,
        info: &Info,
        options: &table::ReadOptions,
    ) -> Result<Block> {
        loop {
            for done in self.wait(info).await {
                if let Some(flight) = self.land(done.token) {
                    return flight.block(info, &done, options);
                }
            }
            if let Some(flight) = self.take_lost().pop() {
                return flight.read_again(options);
            }
            if self.flying() == 0 {
                return Err(Error::broken("a read was lost"));
            }
        }
    }

    /// The reads on their way, if the queue has failed; they will not be done.
    pub(super) fn take_lost(&mut self) -> Vec<Flight<'a, W>> {
        if !matches!(self.queue, Queueing::Alone) {
            return Vec::new();
        }
        self.by_block.clear();
        self.free.clear();
        self.bytes = 0;
        self.flights.drain(..).flatten().collect()
    }

    pub(super) fn reuse(&mut self, buf: Option<AlignedBuf>) {
        if let (Queueing::Lent(queue), Some(buf)) = (&mut self.queue, buf) {
            queue.reuse(buf);
        }
    }

    /// The queue has failed: reads are done one after the other from now on.
    fn fail(&mut self, info: &Info, e: &Error) {
        if self.queues.is_news(true) {
            info.log
                .warn(format_args!("lookups read one block after the other: {e}"));
        }
        if let Queueing::Lent(queue) = &mut self.queue {
            queue.give_up();
        }
        self.queue = Queueing::Alone; // waits for the reads on their way, as far as it can
    }
}
