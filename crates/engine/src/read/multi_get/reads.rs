//! The reads that are on their way, and who waits for them.

use std::collections::HashMap;
use std::sync::Arc;

use base::stats::HistogramKind;
use base::{Error, Result};
use foldhash::fast::RandomState;
use io::queue::{Act, Done, Request};
use io::{AlignedBuf, File, Lent, READS_MAX, ReadQueues};
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
    offset: u64,
}

impl BlockOf {
    pub(super) fn new(lacking: &Lacking<'_>) -> Self {
        Self {
            file: std::ptr::from_ref(lacking.file).addr(),
            offset: lacking.missing.handle().offset,
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

impl<W> Flight<'_, W> {
    /// The block that was read.
    pub(super) fn block(&self, done: &Done, options: &table::ReadOptions) -> Result<Block> {
        let len = done.result.clone()?;
        let buf = done.buf.as_deref();
        let bytes = buf.and_then(|buf| buf.get(..len));
        let bytes = bytes.ok_or_else(|| Error::broken("a read has returned no buffer"))?;
        let read = (self.missing, self.span);
        self.reader.finish_read(read, options, bytes, self.timer)
    }
}

/// Whether a read was queued.
pub(super) enum Pushed<'a> {
    Yes(usize),
    /// The queue has failed: the reader must read the block itself.
    No(Opened<'a>),
}

enum Queueing<'a> {
    /// No block was lacking yet.
    Unasked(&'a ReadQueues),
    Lent(Lent<'a>),
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
    /// Reads that were sent since the last wait.
    sent: usize,
    /// Bytes that are being read.
    bytes: usize,
}

impl<'a, W> Reads<'a, W> {
    pub(super) fn new(queues: &'a ReadQueues) -> Self {
        Self {
            queue: Queueing::Unasked(queues),
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
        if let Queueing::Unasked(queues) = self.queue {
            self.queue = queues.lend().map_or(Queueing::Alone, Queueing::Lent);
        }
        matches!(self.queue, Queueing::Lent(_))
    }

    /// Queues a read. Errors: there is no memory for it.
    pub(super) fn push(
        &mut self,
        info: &Info,
        file: Arc<dyn File>,
        flight: Flight<'a, W>,
    ) -> Result<Pushed<'a>> {
        let Queueing::Lent(queue) = &mut self.queue else {
            return Ok(Pushed::No(flight.reader));
        };
        let buf = queue.buffer(flight.span.len, file.read_alignment())?;
        let id = self.free.pop().unwrap_or(self.flights.len());
        let request = Request {
            token: id as u64,
            file,
            offset: flight.span.offset,
            act: Act::Read(buf),
        };
        let pushed = queue.push(request);
        if id == self.flights.len() {
            self.flights.push(None);
        }
        if let Err(e) = pushed {
            self.free.push(id);
            self.fail(info, &e);
            return Ok(Pushed::No(flight.reader));
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
        if let Queueing::Lent(queue) = &mut self.queue
            && let Err(e) = queue.submit()
        {
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

    /// Waits until at least one read is done, or none is on its way.
    pub(super) fn wait(&mut self, info: &Info) -> Vec<Done> {
        let mut done = Vec::new();
        self.count_sent();
        let sent = std::mem::take(&mut self.sent);
        let Queueing::Lent(queue) = &mut self.queue else {
            return done;
        };
        if sent > 0 {
            info.record(HistogramKind::MultigetIoBatchSize, sent as u64);
        }
        let began = info.timer();
        let waited = queue.wait(1, &mut done);
        info.timed(HistogramKind::PollWaitMicros, began);
        if let Err(e) = waited {
            self.fail(info, &e);
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

    /// The reads on their way, if the queue has failed; they will not be done.
    pub(super) fn take_lost(&mut self) -> Vec<Flight<'a, W>> {
        if matches!(self.queue, Queueing::Lent(_)) {
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
        info.log.warn(format_args!(
            "multi_get reads one block after the other: {e}"
        ));
        if let Queueing::Lent(queue) = &mut self.queue {
            queue.give_up();
        }
        self.queue = Queueing::Alone; // waits for the reads on their way, as far as it can
    }
}
