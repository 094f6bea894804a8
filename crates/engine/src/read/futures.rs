//! Lookups as futures, for any executor.
//!
//! A lookup that lacks a block gives the thread back until the block is read: see [`io::AsyncReads`]. What it uses is its
//! own, so it outlives the database's handle.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::stats::{Activity, HistogramKind};
use base::{Result, SequenceNumber, ValueType, key};
use table::Block;

use crate::catalog::family::Family;
use crate::read::block_reads::{Flight, Pushed, Reads, Wait, read_again};
use crate::read::get::{Lacking, Lookup, Search, Want, begin_search, count_read, search_tables};
use crate::read::multi_get::{self, Keys, Moment, Parts};
use crate::read::options::ReadOptions;
use crate::shared::Shared;
use manifest::Opened;

/// A lookup that was begun: a future for any executor, with the result `T`. It can be sent to another thread.
///
/// The call that returns it looks in memory, and begins to read the blocks that are not there, so that a device is busy
/// before the future is first polled. When a block has been read, a thread of the database wakes the task. Dropping the
/// future ends the lookup.
///
/// The future keeps what it needs of the database, also after the database was closed: its memtables and tables, so keep it
/// no longer than necessary.
///
/// Some lookups do block the thread, in the call or in a poll: those of a database with `read_io_mode = off`, or with a file
/// system whose files have no descriptor; of options with a `rate_limiter_priority`; those that must first open a table (see
/// `max_open_files`); and those for which the system refuses a thread or a queue. Merge operators run in the call or in a
/// poll. If the future is the last that is left of a closed database, dropping it waits for reads that are on their way.
///
/// A waker should not wait: the thread that calls it reads for all tasks, which wait meanwhile. Most executors only queue the
/// task there. On an executor that runs the task instead, lookups of the task block that thread, iterators and compactions
/// that are held up by it read for themselves, and [`Db::close`](crate::Db::close) returns `Busy`.
#[must_use = "a lookup is ended when its future is dropped"]
pub struct ReadFuture<T>(Progress<T>);

enum Progress<T> {
    Waits(Pin<Box<dyn Future<Output = T> + Send>>),
    /// `None` once the result was taken.
    Over(Option<T>),
}

impl<T> ReadFuture<T> {
    /// Runs the lookup until it waits.
    pub(crate) fn begin(lookup: impl Future<Output = T> + Send + 'static) -> Self {
        let mut lookup = Box::pin(lookup);
        // The task is not known yet. The first poll asks again.
        let polled = lookup
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        Self(match polled {
            Poll::Ready(result) => Progress::Over(Some(result)),
            Poll::Pending => Progress::Waits(lookup),
        })
    }
}

impl<T: Unpin> Future for ReadFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match &mut self.0 {
            Progress::Waits(lookup) => lookup.as_mut().poll(cx),
            Progress::Over(result) => Poll::Ready(
                result
                    .take()
                    .expect("a future was polled after it was ready"),
            ),
        }
    }
}

impl<T> fmt::Debug for ReadFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadFuture")
    }
}

/// Where, when and how to look up.
pub(crate) struct Asked {
    pub(crate) shared: Arc<Shared>,
    pub(crate) family: Arc<Family>,
    /// Also keeps the snapshot.
    pub(crate) options: ReadOptions,
    /// `None` for the newest.
    pub(crate) sequence: Option<SequenceNumber>,
}

/// See [`Cf::get_async`](crate::Cf::get_async).
pub(crate) async fn get(asked: Asked, user_key: Vec<u8>) -> Result<Option<Vec<u8>>> {
    let Asked {
        shared,
        family,
        options,
        sequence,
    } = &asked;
    let info = &shared.info;
    let began = info.timer();
    // Load the View first: see `search_view`.
    let view = family.view.load_full();
    let sequence = sequence.unwrap_or_else(|| shared.writes.visible());
    let tables = table::ReadOptions {
        activity: Activity::Get,
        ..options.for_tables()
    };
    let seek_key = key::encode(&user_key, sequence, ValueType::FOR_SEEK);
    let lookup = Lookup::new(family, &tables, &user_key).with(&shared.writes, options);
    let mut search = Search::new(lookup, Want::Plain);
    let mut lacking = if shared.read_queues.is_on() {
        begin_search::<true>(info, &view, &mut search, &seek_key)?
    } else {
        begin_search::<false>(info, &view, &mut search, &seek_key)?
    };
    let mut reads = Reads::new(&shared.read_queues, Wait::Wakes);
    while let Some(lacks) = lacking {
        let (reader, block) = fetch(shared, &mut reads, &lacks, &tables).await?;
        let from = lacks.found(reader, block);
        lacking = search_tables::<true>(info, &view.version, &mut search, &seek_key, from)?;
    }
    let value = search.stored(info)?.map(|stored| stored.bytes);
    count_read(info, value.as_ref().map_or(0, Vec::len));
    info.timed(HistogramKind::DbGet, began);
    Ok(value)
}

/// Reads the block that a lookup lacks.
async fn fetch<'a>(
    shared: &Shared,
    reads: &mut Reads<'a, ()>,
    lacking: &Lacking<'a>,
    options: &table::ReadOptions,
) -> Result<(Opened<'a>, Block)> {
    let info = &shared.info;
    let reader = lacking.file.reader_for(options)?;
    if !reads.is_queued() {
        let block = reader.read_missing(&lacking.missing, options)?;
        return Ok((reader, block));
    }
    let (flight, file) = Flight::new(lacking, reader.clone(), options)?;
    let block = match reads.push(info, file, flight)? {
        Pushed::Yes(_) => reads.only(info, options).await,
        Pushed::No(_) => read_again(&reader, &lacking.missing, options),
    };
    Ok((reader, block?))
}

/// See [`Cf::multi_get_async`](crate::Cf::multi_get_async).
pub(crate) async fn multi_get(asked: Asked, keys: Vec<Vec<u8>>) -> Vec<Result<Option<Vec<u8>>>> {
    let shared = &asked.shared;
    let parts = Parts {
        info: &shared.info,
        writes: &shared.writes,
        queues: &shared.read_queues,
        wait: Wait::Wakes,
    };
    let moment = Moment {
        options: &asked.options,
        sequence: asked.sequence,
    };
    let of_family = Keys {
        family: &asked.family,
        keys: keys.iter().map(Vec::as_slice).enumerate().collect(),
    };
    let mut out: Vec<_> = keys.iter().map(|_| Ok(None)).collect();
    multi_get::multi_get(parts, moment, vec![of_family], &mut out).await;
    out
}
