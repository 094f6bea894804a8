//! Lookups of many keys at once.
//!
//! Each key has a [`Search`] of its own. It runs until it needs a block that is neither in the block cache nor in the page
//! cache. All such blocks are read at the same time, over keys, files, levels and families. A search goes on when its block
//! comes, whatever the others wait for:
//!
//! ```text
//!   keys, sorted ── search ──┬─ the result is known ───────────────────────> result
//!                      ^     └─ lacks a block ── already on its way? ──┐
//!                      │                          no: read it, queued  │
//!                      └─────── the block, for all who wait for it <───┘
//! ```
//!
//! Who gets no queue (see [`io::ReadQueues`]) reads its blocks one after the other.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use base::perf::{self, PerfCounter};
use base::stats::{Activity, HistogramKind, Ticker};
use base::{Error, Result, SequenceNumber, ValueType, key};
use io::ReadQueues;
use manifest::Opened;
use table::{Block, Destination};

use crate::catalog::family::Family;
use crate::catalog::view::View;
use crate::commit::Writes;
use crate::info::Info;
use crate::read::block_reads::{BlockOf, Flight, Pushed, Reads, Wait, read_again};
use crate::read::get::{Lacking, Lookup, Search, Want, begin_search, search_tables};
use crate::read::options::ReadOptions;
use crate::read::pinned::PinnedValue;

/// After how many keys the reads are sent that wait for more to be sent with them.
const KEYS_BEFORE_SUBMIT: usize = 32;

/// For how many keys memory is asked for at a time, before their lookups.
const APPROACHED: usize = 16;
/// For fewer, there is little to gain.
const APPROACHED_MIN: usize = 4;
/// In how many tables a key is looked for before its lookup. There are more only if compactions do not keep up.
const TABLES_MAX: usize = 12;

/// The parts of a database that lookups need.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) info: &'a Info,
    pub(crate) writes: &'a Writes,
    pub(crate) queues: &'a ReadQueues,
    /// Who waits for reads.
    pub(crate) wait: Wait,
}

/// What to look up, and as of when.
#[derive(Clone, Copy)]
pub(crate) struct Moment<'a> {
    pub(crate) options: &'a ReadOptions,
    /// `None` for the newest.
    pub(crate) sequence: Option<SequenceNumber>,
}

/// Keys of one family, with their places among the results.
pub(crate) struct Keys<'a> {
    pub(crate) family: &'a Family,
    pub(crate) keys: Vec<(usize, &'a [u8])>,
}

/// Sets the places of the keys in `out` to their values as of the moment. Once the values exceed
/// [`ReadOptions::value_size_soft_limit`], in the order of families and keys, the remaining keys get an error.
pub(crate) async fn multi_get(
    parts: Parts<'_>,
    moment: Moment<'_>,
    keys: Vec<Keys<'_>>,
    out: &mut [Result<Option<Vec<u8>>>],
) {
    let value = |info: &Info, search: &mut Search<'_>| Ok(search.stored(info)?.map(|s| s.bytes));
    multi_get_as(parts, moment, keys, (Want::Plain, value), out).await;
}

/// The same, without copies: see [`PinnedValue`].
pub(crate) async fn multi_get_pinned(
    parts: Parts<'_>,
    moment: Moment<'_>,
    keys: Vec<Keys<'_>>,
    out: &mut [Result<Option<PinnedValue>>],
) {
    let value = |info: &Info, search: &mut Search<'_>| search.pinned(info);
    multi_get_as(parts, moment, keys, (Want::Pinned, value), out).await;
}

/// Takes the value that a search has found.
type Value<T> = fn(&Info, &mut Search<'_>) -> Result<Option<T>>;

async fn multi_get_as<T: AsRef<[u8]>>(
    parts: Parts<'_>,
    Moment { options, sequence }: Moment<'_>,
    mut keys: Vec<Keys<'_>>,
    (want, value): (Want, Value<T>),
    out: &mut [Result<Option<T>>],
) {
    let Parts { info, writes, .. } = parts;
    let began = info.timer();
    // Load the Views first: see `search_view`.
    let views: Vec<_> = keys.iter().map(|k| k.family.view.load_full()).collect();
    let sequence = sequence.unwrap_or_else(|| writes.visible());
    let tables = table::ReadOptions {
        activity: Activity::MultiGet,
        ..options.for_tables()
    };
    let seek_keys = SeekKeys::new(&mut keys, sequence);
    let limit = Limit::new(options.value_size_soft_limit, &keys);
    let mut batch = Batch {
        parts,
        options: &tables,
        value,
        results: Results { out, limit },
        reads: Reads::new(parts.queues, parts.wait),
        parked: VecDeque::new(),
        files_read: Vec::new(),
    };
    let mut turn = 0;
    'families: for (of, view) in keys.iter().zip(&views) {
        for (i, &(place, user_key)) in of.keys.iter().enumerate() {
            if i % APPROACHED == 0 {
                let coming = APPROACHED.min(of.keys.len() - i);
                approach(view, (turn..turn + coming).map(|turn| seek_keys.get(turn)));
            }
            let lookup = Lookup::new(of.family, &tables, user_key).with(writes, options);
            batch.look_up(Waiting {
                search: Search::new(lookup, want),
                view,
                seek_key: seek_keys.get(turn),
                turn,
                place,
            });
            turn += 1;
            if turn % KEYS_BEFORE_SUBMIT == 0 {
                batch.reads.submit(info);
                if parts.wait == Wait::Wakes {
                    let_others().await;
                }
            }
            while batch.must_wait() {
                batch.complete_some().await;
            }
            if batch.results.are_full() {
                break 'families;
            }
        }
    }
    while batch.is_waiting() && !batch.results.are_full() {
        batch.complete_some().await;
    }
    batch.count_files();
    count_call(info, seek_keys.len(), batch.results.out);
    info.timed(HistogramKind::DbMultiget, began);
}

/// Asks for the memory of cached blocks that lookups of these keys are going to read: in the first table whose filter may have
/// the key; without filters, in the last one that may have it.
fn approach<'k>(view: &View, seek_keys: impl ExactSizeIterator<Item = &'k [u8]>) {
    if seek_keys.len() < APPROACHED_MIN {
        return;
    }
    let mut approaches = [None; APPROACHED];
    for (approach, seek_key) in approaches.iter_mut().zip(seek_keys) {
        for reader in view.version.open_readers_for(seek_key).take(TABLES_MAX) {
            if !reader.is_cached_far() {
                return;
            }
            let destination = reader.destination(seek_key);
            if let Destination::Here(there) | Destination::Perhaps(there) = destination {
                *approach = there.map(|there| (there, seek_key));
            }
            if matches!(destination, Destination::Here(_)) {
                break;
            }
        }
    }
    let all = || approaches.iter().flatten();
    all().for_each(|(approach, _)| approach.entry());
    all().for_each(|(approach, _)| approach.block());
    all().for_each(|(approach, seek_key)| approach.entries(seek_key));
}

/// Lets other tasks of the executor go on.
async fn let_others() {
    let mut asked = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut asked, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The result of a lookup with [`Wait::Blocks`], which never waits as a task does.
pub(crate) fn at_once<T>(lookup: impl Future<Output = T>) -> T {
    let polled = pin!(lookup).poll(&mut Context::from_waker(Waker::noop()));
    match polled {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("a lookup whose thread waits gave its turn away"),
    }
}

/// Counts a call for `keys` keys.
fn count_call<T: AsRef<[u8]>>(info: &Info, keys: usize, out: &[Result<Option<T>>]) {
    let found = out.iter().filter_map(|r| r.as_ref().ok()?.as_ref());
    let (found, bytes) = found.fold((0, 0), |(n, bytes), value| {
        (n + 1, bytes + value.as_ref().len() as u64)
    });
    info.count(Ticker::NumberMultigetCalls, 1);
    info.count(Ticker::NumberMultigetKeysRead, keys as u64);
    info.count(Ticker::NumberMultigetKeysFound, found);
    info.count(Ticker::NumberMultigetBytesRead, bytes);
    perf::count(PerfCounter::MultigetReadBytes, bytes);
    info.record(HistogramKind::BytesPerMultiget, bytes);
}

/// The seek keys of all keys, in their order.
struct SeekKeys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl SeekKeys {
    /// Sorts the keys of each family first.
    fn new(keys: &mut [Keys<'_>], sequence: SequenceNumber) -> Self {
        let trailer = key::pack(sequence, ValueType::FOR_SEEK).to_le_bytes();
        let mut new = Self {
            bytes: Vec::new(),
            ends: Vec::with_capacity(keys.iter().map(|of| of.keys.len()).sum()),
        };
        for of in keys {
            let comparator = of.family.comparator();
            of.keys.sort_by(|a, b| comparator.compare(a.1, b.1));
            let lengths = of.keys.iter().map(|(_, key)| key.len() + trailer.len());
            new.bytes.reserve(lengths.sum());
            for (_, key) in &of.keys {
                new.bytes.extend_from_slice(key);
                new.bytes.extend_from_slice(&trailer);
                new.ends.push(new.bytes.len());
            }
        }
        new
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn get(&self, turn: usize) -> &[u8] {
        let start = turn.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[turn]]
    }
}

/// The results, which come in any order.
struct Results<'a, T> {
    out: &'a mut [Result<Option<T>>],
    /// `None` without a limit.
    limit: Option<Limit>,
}

/// How many bytes values may still have. They are counted in the order of the keys.
struct Limit {
    /// `None` once the limit is exceeded.
    left: Option<u64>,
    places: Vec<usize>,
    /// The size of each value that is known.
    sizes: Vec<Option<u64>>,
    /// The first key whose value is not counted yet.
    next: usize,
    /// Bytes of the known values that are not counted yet, because the value of `next` is not known.
    ahead: u64,
}

impl Limit {
    fn new(bytes: u64, keys: &[Keys<'_>]) -> Option<Self> {
        if bytes == u64::MAX {
            return None;
        }
        let places: Vec<usize> = keys
            .iter()
            .flat_map(|of| of.keys.iter().map(|&(place, _)| place))
            .collect();
        Some(Self {
            left: Some(bytes),
            sizes: vec![None; places.len()],
            places,
            next: 0,
            ahead: 0,
        })
    }

    /// Counts a value, and those after it that were known before.
    fn count(&mut self, turn: usize, size: u64) {
        self.sizes[turn] = Some(size);
        self.ahead += size;
        while let (Some(left), Some(&Some(size))) = (self.left, self.sizes.get(self.next)) {
            self.next += 1;
            self.ahead -= size;
            self.left = left.checked_sub(size);
        }
    }
}

impl<T: AsRef<[u8]>> Results<'_, T> {
    /// Whether the limit is exceeded.
    fn are_full(&self) -> bool {
        self.limit
            .as_ref()
            .is_some_and(|limit| limit.left.is_none())
    }

    /// Whether the values that came early are as many as the limit allows: more of them could be in vain.
    fn are_ahead(&self) -> bool {
        let limit = self.limit.as_ref();
        limit.is_some_and(|limit| limit.left.is_some_and(|left| limit.ahead > left))
    }

    fn set(&mut self, (turn, place): (usize, usize), result: Result<Option<T>>) {
        if self.are_full() {
            return;
        }
        let value = result.as_ref().ok().and_then(Option::as_ref);
        let size = value.map_or(0, |value| value.as_ref().len() as u64);
        self.out[place] = result;
        let Some(limit) = &mut self.limit else {
            return;
        };
        limit.count(turn, size);
        if limit.left.is_none() {
            for &place in &limit.places[limit.next..] {
                self.out[place] = Err(Error::aborted("value_size_soft_limit is reached"));
            }
        }
    }
}

/// A search that is not over.
struct Waiting<'a> {
    search: Search<'a>,
    view: &'a View,
    seek_key: &'a [u8],
    /// Which key it is in the order of families and keys.
    turn: usize,
    /// The place of the result.
    place: usize,
}

impl<'a> Waiting<'a> {
    /// Goes on, now that the block is there.
    fn resume(
        &mut self,
        info: &Info,
        lacking: &Lacking<'a>,
        (reader, block): (Opened<'a>, Block),
    ) -> Result<Option<Lacking<'a>>> {
        let version = &self.view.version;
        let from = lacking.found(reader, block);
        search_tables::<true>(info, version, &mut self.search, self.seek_key, from)
    }
}

/// A search, and what it needs to go on.
type Stopped<'a> = (Waiting<'a>, Lacking<'a>);

/// The lookups of one call.
struct Batch<'a, T> {
    parts: Parts<'a>,
    options: &'a table::ReadOptions,
    value: Value<T>,
    results: Results<'a, T>,
    reads: Reads<'a, Stopped<'a>>,
    /// Searches whose blocks are not queued yet, because enough are.
    parked: VecDeque<Stopped<'a>>,
    /// Level and address of the files with blocks that were waited for, for the statistics.
    files_read: Vec<(usize, usize)>,
}

impl<'a, T: AsRef<[u8]>> Batch<'a, T> {
    /// Whether a read must be done before the next search begins.
    fn must_wait(&self) -> bool {
        self.is_waiting() && (self.reads.are_enough() || self.results.are_ahead())
    }

    /// Whether searches wait for reads.
    fn is_waiting(&self) -> bool {
        self.reads.flying() > 0 || !self.parked.is_empty()
    }

    /// Begins a search, unless no more results are wanted.
    fn look_up(&mut self, mut key: Waiting<'a>) {
        if self.results.are_full() {
            return;
        }
        self.submit_before_limiter();
        let (info, search) = (self.parts.info, &mut key.search);
        let step = if self.parts.queues.is_on() {
            begin_search::<true>(info, key.view, search, key.seek_key)
        } else {
            begin_search::<false>(info, key.view, search, key.seek_key)
        };
        if let Some(lacking) = self.end(&mut key, step) {
            self.follow(key, lacking); // moved only if it is not over yet
        }
    }

    /// Sets the result of a search that is over; returns what another one lacks.
    fn end(
        &mut self,
        key: &mut Waiting<'a>,
        step: Result<Option<Lacking<'a>>>,
    ) -> Option<Lacking<'a>> {
        let result = match step {
            Ok(Some(lacking)) => return Some(lacking),
            Ok(None) => (self.value)(self.parts.info, &mut key.search),
            Err(e) => Err(e),
        };
        self.results.set((key.turn, key.place), result);
        None
    }

    /// Fetches what the search lacks, and goes on until it is over or waits.
    fn follow(&mut self, mut key: Waiting<'a>, mut lacking: Lacking<'a>) {
        loop {
            let step = match self.fetch(&lacking) {
                Ok(Fetched::Later(read)) => return self.reads.wait_for(read, (key, lacking)),
                Ok(Fetched::NotYet) => return self.parked.push_back((key, lacking)),
                Ok(Fetched::Now(found)) => key.resume(self.parts.info, &lacking, found),
                Err(e) => Err(e),
            };
            match self.end(&mut key, step) {
                Some(next) => lacking = next,
                None => return,
            }
        }
    }

    /// Queues the read of a block, unless it is queued already, or reads it now.
    fn fetch(&mut self, lacking: &Lacking<'a>) -> Result<Fetched<'a>> {
        let of = BlockOf::new(lacking);
        if let Some(&read) = self.reads.by_block.get(&of) {
            return Ok(Fetched::Later(read));
        }
        if self.reads.are_enough() {
            return Ok(Fetched::NotYet);
        }
        if self.parts.info.statistics.is_some() {
            self.files_read.push((lacking.level, of.file));
        }
        let reader = lacking.file.reader_for(self.options)?;
        let missing = &lacking.missing;
        if self.reads.is_queued() {
            self.submit_before_limiter();
            let (flight, file) = Flight::new(lacking, reader, self.options)?;
            return match self.reads.push(self.parts.info, file, flight)? {
                Pushed::Yes(read) => Ok(Fetched::Later(read)),
                Pushed::No(reader) => {
                    let block = read_again(&reader, missing, self.options)?;
                    Ok(Fetched::Now((reader, block)))
                }
            };
        }
        let block = reader.read_missing(missing, self.options)?;
        Ok(Fetched::Now((reader, block)))
    }

    /// Sends the reads that were pushed, if the rate limiter may have to be waited for.
    fn submit_before_limiter(&mut self) {
        if self.options.rate_limiter_priority.is_some() {
            self.reads.submit(self.parts.info);
        }
    }

    /// Waits until at least one read is done, and goes on with the searches that waited for it.
    async fn complete_some(&mut self) {
        let info = self.parts.info;
        let sent = self.reads.take_sent();
        if sent > 0 {
            info.record(HistogramKind::MultigetIoBatchSize, sent as u64);
        }
        for done in self.reads.wait(info).await {
            let Some(flight) = self.reads.land(done.token) else {
                continue;
            };
            let block = flight.block(info, &done, self.options);
            self.reads.reuse(done.buf);
            self.resume(flight, &block);
        }
        // What a queue that failed has not done.
        for flight in self.reads.take_lost() {
            if !self.results.are_full() {
                let block = flight.read_again(self.options);
                self.resume(flight, &block);
            }
        }
        while !self.parked.is_empty() && !self.reads.are_enough() && !self.results.are_full() {
            if let Some((key, lacking)) = self.parked.pop_front() {
                self.follow(key, lacking);
            }
        }
    }

    /// Goes on with the searches that waited for a read.
    fn resume(&mut self, flight: Flight<'a, Stopped<'a>>, block: &Result<Block>) {
        let reader = flight.reader;
        for (mut key, lacking) in flight.first.into_iter().chain(flight.others) {
            if self.results.are_full() {
                return;
            }
            let block = block.clone();
            let step = block.and_then(|block| {
                let found = (reader.clone(), block);
                key.resume(self.parts.info, &lacking, found)
            });
            if let Some(lacking) = self.end(&mut key, step) {
                self.follow(key, lacking);
            }
        }
    }

    /// Records from how many files and levels blocks were waited for.
    fn count_files(&mut self) {
        self.files_read.sort_unstable();
        self.files_read.dedup();
        let info = self.parts.info;
        let levels = self.files_read.chunk_by(|a, b| a.0 == b.0);
        let levels = levels.map(|files| {
            info.record(HistogramKind::NumSstReadPerLevel, files.len() as u64);
        });
        let levels = levels.count() as u64;
        if levels > 0 {
            info.record(HistogramKind::NumLevelReadPerMultiget, levels);
        }
    }
}

/// How a block comes.
enum Fetched<'a> {
    /// With this read.
    Later(usize),
    /// Enough other blocks come first.
    NotYet,
    Now((Opened<'a>, Block)),
}
