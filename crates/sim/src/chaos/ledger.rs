//! Records what threads wrote and what was promised to them, and checks whether what is found agrees.
//!
//! Each thread has keys of its own and numbers its writes. A write that returned an error may have happened
//! or not; one that returned `Ok` must have. The values that may be found under a key are those of the
//! newest attempts, down to the newest one that must be there. After a crash, that is the newest one that
//! was promised, or the newest one before any other write of the thread that is found, because logged
//! writes come back as a prefix.

use std::collections::BTreeMap;

use base::sync::atomic::{AtomicU64, Ordering};

/// Number of families with known content.
pub(super) const FAMILIES: usize = 3;
/// The index of the one with the reverse order.
pub(super) const REVERSE: usize = 1;
/// Counters that all threads add to, in each family.
pub(super) const SUMS: usize = 4;

/// A key of a thread: family, whether it is written through the log, number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub family: usize,
    pub logged: bool,
    pub number: u64,
}

impl Key {
    /// The key as the database has it.
    pub(super) fn text(self, thread: usize) -> String {
        let kind = if self.logged { 'k' } else { 'u' };
        format!("t{thread:02}/{kind}{:04}", self.number)
    }
}

/// The value of write number `n` to a key; each write has another.
pub(super) fn value(thread: usize, n: u64, most: u64) -> Vec<u8> {
    let seed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ thread as u64;
    let len = 8 + (seed >> 7) % most.max(1);
    let mut out = n.to_le_bytes().to_vec();
    out.resize(len as usize, (seed >> 3) as u8);
    out
}

/// The number of the write that wrote a value. Errors: no write did.
pub(super) fn number(thread: usize, found: &[u8], most: u64) -> Result<u64, String> {
    let Some(head) = found.first_chunk::<8>() else {
        return Err(format!("a value of {} bytes", found.len()));
    };
    let n = u64::from_le_bytes(*head);
    if found == value(thread, n, most) {
        Ok(n)
    } else {
        Err(format!("bytes that nobody wrote, as if of write {n}"))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    n: u64,
    /// Whether it is a value; otherwise a deletion.
    present: bool,
    /// Whether it returned `Ok`.
    sure: bool,
}

/// The least that must be found.
#[derive(Clone, Copy, Debug)]
pub(super) enum Least {
    /// Everything that returned `Ok`.
    All,
    /// The thread's logged writes up to the first number, and the writes of each family up to its own
    /// number.
    Promised(u64, [u64; FAMILIES]),
}

impl Least {
    fn has(self, key: Key, attempt: Attempt) -> bool {
        attempt.sure
            && match self {
                Self::All => true,
                Self::Promised(logged, families) => {
                    (key.logged && attempt.n <= logged) || attempt.n <= families[key.family]
                }
            }
    }
}

/// The writes of one thread.
#[derive(Debug)]
pub(super) struct Ledger {
    pub thread: usize,
    pub value_bytes: u64,
    keys: BTreeMap<Key, Vec<Attempt>>,
    last: u64,
}

impl Ledger {
    pub(super) fn new(thread: usize, value_bytes: u64) -> Self {
        Self {
            thread,
            value_bytes,
            keys: BTreeMap::new(),
            last: 0,
        }
    }

    /// The number of the next write.
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Notes that write `n` sets or deletes a key; it has not returned yet.
    pub(super) fn attempt(&mut self, n: u64, key: Key, present: bool) {
        self.keys.entry(key).or_default().push(Attempt {
            n,
            present,
            sure: false,
        });
    }

    /// Notes that write `n` to these keys returned `Ok`.
    pub(super) fn succeeded(&mut self, n: u64, keys: &[Key]) {
        for key in keys {
            let attempts = self.keys.entry(*key).or_default();
            for attempt in attempts.iter_mut().rev().take_while(|a| a.n == n) {
                attempt.sure = true;
            }
        }
    }

    /// The keys that were ever written.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.keys.keys().copied()
    }

    /// The attempts on a key so far, to be compared with later.
    pub(super) fn attempts(&self, key: Key) -> Vec<Attempt> {
        self.keys.get(&key).cloned().unwrap_or_default()
    }

    /// Checks whether `found` is possible under the key while the database is open.
    pub(super) fn check(&self, key: Key, found: Option<&[u8]>) -> Result<(), String> {
        let attempts = self.keys.get(&key).map_or(&[][..], |a| a);
        self.check_against(key, attempts, found)
    }

    /// The same with the attempts of an earlier moment.
    pub(super) fn check_against(
        &self,
        key: Key,
        attempts: &[Attempt],
        found: Option<&[u8]>,
    ) -> Result<(), String> {
        let n = self.number(key, found)?;
        self.explain(key, attempts, n, Least::All).map(drop)
    }

    fn number(&self, key: Key, found: Option<&[u8]>) -> Result<Option<u64>, String> {
        let n = found.map(|v| number(self.thread, v, self.value_bytes));
        n.transpose()
            .map_err(|e| format!("{} of family {}: {e}", key.text(self.thread), key.family))
    }

    /// The attempt that was found.
    fn explain(
        &self,
        key: Key,
        attempts: &[Attempt],
        found: Option<u64>,
        least: Least,
    ) -> Result<Option<usize>, String> {
        for (i, a) in attempts.iter().enumerate().rev() {
            if found == a.present.then_some(a.n) {
                return Ok(Some(i));
            }
            if least.has(key, *a) {
                return Err(self.wrong(key, attempts, found, least));
            }
        }
        match found {
            None => Ok(None),
            Some(_) => Err(self.wrong(key, attempts, found, least)),
        }
    }

    fn wrong(&self, key: Key, attempts: &[Attempt], found: Option<u64>, least: Least) -> String {
        let tail = &attempts[attempts.len().saturating_sub(12)..];
        let tail: Vec<String> = tail
            .iter()
            .map(|a| {
                let what = if a.present { "" } else { " deletes" };
                let sure = if a.sure { "" } else { "?" };
                format!("{}{sure}{what}", a.n)
            })
            .collect();
        format!(
            "{} of family {}: found write {found:?}, expected at least {least:?} of the attempts {}",
            key.text(self.thread),
            key.family,
            tail.join(", ")
        )
    }

    /// Compares everything with what `get` finds after the database was opened again, and continues from
    /// there. `settled`: what is found is durable.
    pub(super) fn reopened(
        &mut self,
        least: Least,
        settled: bool,
        mut get: impl FnMut(Key) -> Result<Option<Vec<u8>>, String>,
    ) -> Result<(), String> {
        let mut found = BTreeMap::new();
        for key in self.keys.keys() {
            let value = get(*key)?;
            found.insert(*key, self.number(*key, value.as_deref())?);
        }
        let least = Self::with_prefix(least, &found);
        let mut places = Vec::with_capacity(found.len());
        for (key, attempts) in &self.keys {
            places.push(self.explain(*key, attempts, found[key], least)?);
        }
        for (attempts, place) in self.keys.values_mut().zip(places) {
            match place {
                Some(i) => {
                    attempts.truncate(i + 1);
                    attempts[i].sure = true;
                    if settled {
                        attempts.drain(..i);
                    }
                }
                None => attempts.clear(),
            }
        }
        Ok(())
    }

    /// Raises the bounds: if a logged write of the thread is found, all its logged writes before it must
    /// be.
    fn with_prefix(least: Least, found: &BTreeMap<Key, Option<u64>>) -> Least {
        let Least::Promised(logged, families) = least else {
            return least;
        };
        let logged_ones = found.iter().filter(|(key, _)| key.logged);
        let newest = logged_ones.filter_map(|(_, n)| *n).max().unwrap_or(0);
        Least::Promised(logged.max(newest), families)
    }
}

/// The promises to one thread, as numbers of its writes.
#[derive(Debug, Default)]
struct Marks {
    /// Writes that have returned.
    returned: AtomicU64,
    /// Logged writes that survive a power cut.
    durable: AtomicU64,
    /// Logged writes that survive the death of the process.
    handed: AtomicU64,
    /// Writes that are in tables, by family.
    flushed: [AtomicU64; FAMILIES],
}

/// A counter that all threads add to.
#[derive(Debug, Default)]
struct SumMarks {
    attempted: AtomicU64,
    added: AtomicU64,
    durable: AtomicU64,
    handed: AtomicU64,
}

/// The promises to all threads.
#[derive(Debug)]
pub(super) struct Promises {
    threads: Vec<Marks>,
    sums: Vec<SumMarks>,
}

/// The writes that had returned at some moment.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub threads: Vec<u64>,
    sums: Vec<u64>,
}

/// How far data must have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// To the operating system.
    Handed,
    /// To the device.
    Durable,
}

/// The least that must be found after the database has ended.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    pub threads: Vec<Least>,
    pub sums: Vec<u64>,
}

impl Promises {
    pub(super) fn new(threads: usize) -> Self {
        Self {
            threads: (0..threads).map(|_| Marks::default()).collect(),
            sums: (0..FAMILIES * SUMS).map(|_| SumMarks::default()).collect(),
        }
    }

    /// The writes that have returned so far.
    pub(super) fn look(&self) -> Seen {
        let load = |a: &AtomicU64| a.load(Ordering::SeqCst);
        Seen {
            threads: self.threads.iter().map(|m| load(&m.returned)).collect(),
            sums: self.sums.iter().map(|s| load(&s.added)).collect(),
        }
    }

    /// Notes that all of them survive, according to `reach`.
    pub(super) fn promise(&self, reach: Reach, seen: &Seen) {
        for (marks, n) in self.threads.iter().zip(&seen.threads) {
            if reach == Reach::Durable {
                marks.durable.fetch_max(*n, Ordering::SeqCst);
            }
            marks.handed.fetch_max(*n, Ordering::SeqCst);
        }
        for (marks, n) in self.sums.iter().zip(&seen.sums) {
            if reach == Reach::Durable {
                marks.durable.fetch_max(*n, Ordering::SeqCst);
            }
            marks.handed.fetch_max(*n, Ordering::SeqCst);
        }
    }

    /// Notes that those of them in a family are in tables.
    pub(super) fn flushed(&self, family: usize, seen: &Seen) {
        for (marks, n) in self.threads.iter().zip(&seen.threads) {
            marks.flushed[family].fetch_max(*n, Ordering::SeqCst);
        }
        for i in family * SUMS..(family + 1) * SUMS {
            let n = seen.sums[i];
            self.sums[i].durable.fetch_max(n, Ordering::SeqCst);
            self.sums[i].handed.fetch_max(n, Ordering::SeqCst);
        }
    }

    /// Notes that write `n` of a thread has returned.
    pub(super) fn returned(&self, thread: usize, n: u64) {
        self.threads[thread].returned.fetch_max(n, Ordering::SeqCst);
    }

    /// Notes an attempt to add 1 to a counter; [`Promises::added`] notes its success.
    pub(super) fn adding(&self, sum: usize) {
        self.sums[sum].attempted.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn added(&self, sum: usize) {
        self.sums[sum].added.fetch_add(1, Ordering::SeqCst);
    }

    /// The bounds of a counter: the successful additions, and the attempted ones.
    pub(super) fn added_to(&self, sum: usize) -> u64 {
        self.sums[sum].added.load(Ordering::SeqCst)
    }

    pub(super) fn attempted(&self, sum: usize) -> u64 {
        self.sums[sum].attempted.load(Ordering::SeqCst)
    }

    /// Notes the value of a counter after the database was opened again.
    pub(super) fn settle(&self, sum: usize, found: u64, settled: bool) {
        let marks = &self.sums[sum];
        marks.attempted.store(found, Ordering::SeqCst);
        marks.added.store(found, Ordering::SeqCst);
        if settled {
            marks.durable.store(found, Ordering::SeqCst);
            marks.handed.store(found, Ordering::SeqCst);
        }
    }

    /// What must be found if the database ends now.
    pub(super) fn bounds(&self, reach: Reach) -> Bounds {
        let load = |a: &AtomicU64| a.load(Ordering::SeqCst);
        let least = |m: &Marks| {
            let logged = match reach {
                Reach::Handed => load(&m.handed),
                Reach::Durable => load(&m.durable),
            };
            Least::Promised(logged, std::array::from_fn(|f| load(&m.flushed[f])))
        };
        let sum = |s: &SumMarks| match reach {
            Reach::Handed => load(&s.handed),
            Reach::Durable => load(&s.durable),
        };
        Bounds {
            threads: self.threads.iter().map(least).collect(),
            sums: self.sums.iter().map(sum).collect(),
        }
    }

    /// What must be found after a clean end.
    pub(super) fn everything(&self) -> Bounds {
        Bounds {
            threads: vec![Least::All; self.threads.len()],
            sums: (0..self.sums.len()).map(|i| self.added_to(i)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key {
        family: 0,
        logged: true,
        number: 1,
    };

    /// Writes 1 (sure), 2 (unsure) and 3 (sure, a deletion).
    fn ledger() -> Ledger {
        let mut ledger = Ledger::new(0, 100);
        for (present, sure) in [(true, true), (true, false), (false, true)] {
            let n = ledger.next();
            ledger.attempt(n, KEY, present);
            if sure {
                ledger.succeeded(n, &[KEY]);
            }
        }
        ledger
    }

    #[test]
    fn what_returned_ok_must_be_found() {
        let mut ledger = ledger();
        ledger.check(KEY, None).unwrap();
        assert!(ledger.check(KEY, Some(&value(0, 2, 100))).is_err());
        let n = ledger.next();
        ledger.attempt(n, KEY, true);
        ledger.check(KEY, None).unwrap();
        ledger.check(KEY, Some(&value(0, n, 100))).unwrap();
        assert!(ledger.check(KEY, Some(b"other bytes")).is_err());
    }

    #[test]
    fn after_a_crash_it_is_what_was_promised() {
        let promised = |n| Least::Promised(n, [0; FAMILIES]);
        let found = |n: u64| move |_| Ok((n > 0).then(|| value(0, n, 100)));
        for (least, n, right) in [
            (promised(0), 0, true),
            (promised(0), 1, true),
            (promised(1), 1, true),
            (promised(2), 2, true),
            (promised(1), 2, true),
            (promised(3), 2, false),
            (promised(3), 0, true),
            (promised(0), 7, false),
        ] {
            let result = ledger().reopened(least, true, found(n));
            assert_eq!(result.is_ok(), right, "{least:?} {n}: {result:?}");
        }
    }

    #[test]
    fn what_is_found_has_all_before_it() {
        let mut ledger = ledger();
        let other = Key { number: 2, ..KEY };
        let n = ledger.next();
        ledger.attempt(n, other, true);
        let get = |key| Ok(Some(value(0, if key == KEY { 1 } else { 4 }, 100)));
        let least = Least::Promised(0, [0; FAMILIES]);
        assert!(ledger.reopened(least, true, get).is_err());
    }
}
