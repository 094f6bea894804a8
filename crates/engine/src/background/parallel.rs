//! Several threads for one piece of work.

use std::panic::resume_unwind;
use std::sync::OnceLock;

use base::Result;
use base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use base::sync::{Mutex, PoisonError, ranked};

use crate::locks;
use crate::outbox;

/// Runs the tasks in parallel: the first on this thread, every other on a thread of its own. The results are in the
/// order of the tasks. A task whose thread cannot be started runs on this thread.
pub(crate) fn in_parallel<T, F>(name: &str, tasks: Vec<F>) -> Vec<Result<T>>
where
    T: Send,
    F: FnOnce() -> Result<T> + Send,
{
    let slots: Vec<Mutex<Option<F>>> = tasks
        .into_iter()
        .map(|t| ranked(locks::LEAF, Some(t)))
        .collect();
    let run = |slot: &Mutex<Option<F>>| {
        let task = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        task.map(|task| task())
    };
    let run = &run;
    let whole = outbox::work();
    base::sync::thread::scope(|scope| {
        let start = |slot| {
            let builder = base::sync::thread::Builder::new().name(name.to_owned());
            let part = move || {
                // A waiter for the whole job also waits for this part.
                if let Some((instance, job)) = whole {
                    outbox::begin_work(instance, job);
                }
                run(slot)
            };
            builder.spawn_scoped(scope, part).ok()
        };
        let threads: Vec<_> = slots.iter().skip(1).map(start).collect();
        let mut out = Vec::with_capacity(slots.len());
        out.extend(slots.first().and_then(run));
        for (thread, slot) in threads.into_iter().zip(slots.iter().skip(1)) {
            let result = match thread {
                // A panic is handled by the caller that started the job.
                Some(thread) => thread.join().unwrap_or_else(|p| resume_unwind(p)),
                None => run(slot),
            };
            out.extend(result);
        }
        out
    })
}

/// The least number of items for each thread of [`map_parallel`], because starting a thread takes time.
const ITEMS_PER_THREAD: usize = 8;

/// Calls `work` with each item, on at most `threads` threads named `ironstone:<name>`. The results are in the order
/// of the items. Errors: the first error in that order. Items after a failed item may be skipped.
pub(crate) fn map_parallel<T: Sync, R: Send + Sync>(
    name: &str,
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let threads = threads.min(items.len() / ITEMS_PER_THREAD);
    if threads < 2 {
        return items.iter().map(work).collect();
    }
    let results: Vec<OnceLock<Result<R>>> = items.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let run = || {
        while !failed.load(Ordering::Relaxed) {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let (Some(item), Some(slot)) = (items.get(i), results.get(i)) else {
                return;
            };
            let result = work(item);
            if result.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            drop(slot.set(result));
        }
    };
    base::sync::thread::scope(|scope| {
        for i in 1..threads {
            let thread = base::sync::thread::Builder::new().name(format!("ironstone:{name}{i}"));
            // If a thread cannot be started, the others do its share.
            drop(thread.spawn_scoped(scope, run));
        }
        run();
    });
    let done = results.into_iter().filter_map(OnceLock::into_inner);
    let done: Vec<R> = done.collect::<Result<_>>()?;
    debug_assert_eq!(done.len(), items.len(), "without an error, all was done");
    Ok(done)
}

#[cfg(test)]
mod tests {
    use base::Error;

    use super::*;

    #[test]
    fn parallel_work_keeps_its_order_and_its_first_error() {
        let items: Vec<usize> = (0..1000).collect();
        for threads in [1, 2, 7] {
            let doubled = map_parallel("test", threads, &items, |i| Ok(i * 2)).unwrap();
            assert!(doubled.iter().enumerate().all(|(i, d)| *d == 2 * i));
            let failing = map_parallel("test", threads, &items, |i| match i {
                500.. => Err(Error::aborted("late")),
                _ => Ok(()),
            });
            assert!(failing.is_err());
        }
        let none: [usize; 0] = [];
        assert!(
            map_parallel("test", 4, &none, |_| Ok(()))
                .unwrap()
                .is_empty()
        );
    }
}
