//! Loops that read and write.

use base::Result;

use super::Worker;
use crate::benchmarks::Order;
use crate::engine::Engine;
use crate::keys::{Keys, Values, random_number};
use crate::stats::Op;

/// Computes a new value from an old value and other bytes.
type Change = fn(&mut Vec<u8>, &[u8]);

/// The exclusive or of both.
#[expect(
    clippy::ptr_arg,
    reason = "one of two changes, the other of which adds to the value"
)]
pub(super) fn xor(old: &mut Vec<u8>, new: &[u8]) {
    for (old, new) in old.iter_mut().zip(new) {
        *old ^= new;
    }
}

/// Both, separated by a comma, as in RocksDB's `StringAppendOperator`.
pub(super) fn append(old: &mut Vec<u8>, new: &[u8]) {
    if !old.is_empty() {
        old.push(b',');
    }
    old.extend_from_slice(new);
}

/// The remaining operations of each 100: first reads, then puts, then deletions.
struct Hundred {
    left: [i32; 3],
    shares: [i32; 3],
}

impl Hundred {
    fn new(reads: i32, deletions: i32) -> Self {
        Self {
            left: [0; 3],
            shares: [reads, 100 - reads - deletions, deletions],
        }
    }

    /// The next operation: 0 is a read, 1 a put, 2 a deletion.
    fn next(&mut self) -> usize {
        if self.left == [0; 3] {
            self.left = self.shares;
        }
        let next = self.left.iter().position(|&n| n > 0).unwrap_or(0);
        self.left[next] -= 1;
        next
    }
}

impl<E: Engine> Worker<'_, E> {
    /// Gets and puts of random keys, in one thread.
    pub(super) fn read_write(&mut self, values: &mut Values) -> Result<()> {
        let plan = self.plan;
        let options = self.engine.write_options(plan.sync, self.flags.disable_wal);
        let (keys, mut limit) = (self.keys(), self.limit());
        let (mut key, mut scratch) = (keys.room(), Vec::with_capacity(plan.value_size));
        let mut hundred = Hundred::new(self.flags.readwritepercent, 0);
        let (mut reads, mut writes, mut found) = (0u64, 0u64, 0u64);
        while limit.take(1, &self.stats) {
            self.pick_engine();
            keys.write(self.pick(Order::Random, 0), &mut key);
            if hundred.next() == 0 {
                reads += 1;
                found += u64::from(self.engine.get(&key, &mut scratch)?.is_some());
                self.stats.finished(1, Op::Read);
            } else {
                writes += 1;
                self.engine.put(&options, &key, values.next())?;
                self.stats.finished(1, Op::Write);
            }
        }
        let total = plan.operations;
        self.stats.add_message(&format!(
            "( reads:{reads} writes:{writes} total:{total} found:{found})"
        ));
        Ok(())
    }

    /// Gets a random key, changes its value, and puts it. Without an old value, or without `change`, the
    /// value is entirely new.
    pub(super) fn update(&mut self, values: &mut Values, change: Option<Change>) -> Result<()> {
        let plan = self.plan;
        let options = self.engine.write_options(plan.sync, self.flags.disable_wal);
        let (keys, mut limit) = (self.keys(), self.limit());
        let (mut key, mut value) = (keys.room(), Vec::new());
        let (mut updates, mut found, mut bytes) = (0u64, 0u64, 0);
        while limit.take(1, &self.stats) {
            self.pick_engine();
            keys.write(self.pick(Order::Random, 0), &mut key);
            let is_there = self.engine.get_value(&key, &mut value)?;
            if is_there {
                found += 1;
                bytes += key.len() + value.len();
            } else {
                value.clear();
            }
            let new = values.next();
            let put = match change.filter(|_| is_there) {
                Some(change) => {
                    change(&mut value, new);
                    &value
                }
                None => new,
            };
            bytes += key.len() + put.len();
            let written = key.len() + put.len();
            self.engine.put(&options, &key, put)?;
            updates += 1;
            self.stats.finished(1, Op::Update);
            self.pace_writes(written);
        }
        self.stats.add_bytes(bytes as u64);
        self.stats
            .add_message(&format!("( updates:{updates} found:{found})"));
        Ok(())
    }

    /// Number of distinct keys of merge benchmarks.
    fn merge_keys(&self) -> (u64, Keys) {
        let num = match u64::try_from(self.flags.merge_keys) {
            Ok(num) if num > 0 => num,
            _ => self.plan.num,
        };
        (num, self.keys_below(num))
    }

    /// Merges into random keys.
    pub(super) fn merge(&mut self, values: &mut Values) -> Result<()> {
        let options = self
            .engine
            .write_options(self.plan.sync, self.flags.disable_wal);
        let ((num, keys), mut limit) = (self.merge_keys(), self.limit());
        let mut key = keys.room();
        let (mut updates, mut bytes) = (0u64, 0);
        while limit.take(1, &self.stats) {
            self.pick_engine();
            let number = random_number(&mut self.rng, num, 0.0);
            keys.write(number, &mut key);
            let operand = values.next();
            match self.on.families.of(number) {
                0 => self.engine.merge(&options, &key, operand)?,
                family => self.engine.merge_in(&options, family, &key, operand)?,
            }
            updates += 1;
            bytes += key.len() + operand.len();
            self.stats.finished(1, Op::Merge);
        }
        self.stats.add_bytes(bytes as u64);
        self.stats.add_message(&format!("( updates:{updates})"));
        Ok(())
    }

    /// Gets random keys, or merges into them.
    pub(super) fn read_merge(&mut self, values: &mut Values) -> Result<()> {
        let plan = self.plan;
        let options = self.engine.write_options(plan.sync, self.flags.disable_wal);
        let ((num, keys), mut limit) = (self.merge_keys(), self.limit());
        let (mut key, mut scratch) = (keys.room(), Vec::with_capacity(plan.value_size));
        let percent = self.flags.mergereadpercent.max(0).unsigned_abs();
        let (mut reads, mut merges, mut hits, mut longest) = (0u64, 0u64, 0u64, 0);
        while limit.take(1, &self.stats) {
            self.pick_engine();
            keys.write(random_number(&mut self.rng, num, 0.0), &mut key);
            if self.rng.below(100) < u64::from(percent) {
                self.engine.merge(&options, &key, values.next())?;
                merges += 1;
                self.stats.finished(1, Op::Merge);
            } else {
                reads += 1;
                if let Some(len) = self.engine.get(&key, &mut scratch)? {
                    hits += 1;
                    longest = longest.max(len);
                }
                self.stats.finished(1, Op::Read);
            }
        }
        let total = plan.operations;
        self.stats.add_message(&format!(
            "(reads:{reads} merges:{merges} total:{total} hits:{hits} maxlength:{longest})"
        ));
        Ok(())
    }

    /// Puts, gets and deletes triples of keys, whose values must be equal at every moment. Errors:
    /// they were not equal.
    pub(super) fn verify(&mut self, values: &mut Values) -> Result<()> {
        const SUFFIXES: [u8; 3] = [b'0', b'1', b'2'];
        let flags = self.flags;
        let options = self.engine.write_options(self.plan.sync, flags.disable_wal);
        let distinct = flags.numdistinct.unsigned_abs();
        let keys = Keys::new(flags, self.plan.key_size, distinct);
        let mut triple: Vec<Vec<u8>> = SUFFIXES.iter().map(|_| keys.room()).collect();
        let mut hundred = Hundred::new(flags.readwritepercent, flags.deletepercent);
        let (mut batch, mut limit) = (self.engine.batch(), self.limit());
        let (mut done, mut found) = ([0u64; 3], 0u64);
        while limit.take(1, &self.stats) {
            self.pick_engine();
            let number = random_number(&mut self.rng, distinct, 0.0);
            for (key, suffix) in triple.iter_mut().zip(SUFFIXES) {
                key.resize(keys.len, 0);
                keys.write(number, key);
                key.push(suffix);
            }
            let what = hundred.next();
            done[what] += 1;
            match what {
                0 => {
                    let wanted: Vec<&[u8]> = triple.iter().map(Vec::as_slice).collect();
                    let got = self.engine.get_at_once(&wanted)?;
                    if got.windows(2).any(|two| two[0] != two[1]) {
                        return Err(base::Error::corruption(format!(
                            "keys that were written together differ: number {number}"
                        )));
                    }
                    found += u64::from(got.iter().all(Option::is_some));
                    self.stats.finished(1, Op::Read);
                }
                1 => {
                    let value = values.next();
                    for key in &triple {
                        self.engine.batch_put(&mut batch, key, value)?;
                    }
                    self.engine.write(&options, &mut batch)?;
                    self.stats.finished(1, Op::Write);
                }
                _ => {
                    for key in &triple {
                        self.engine.batch_delete(&mut batch, key)?;
                    }
                    self.engine.write(&options, &mut batch)?;
                    self.stats.finished(1, Op::Delete);
                }
            }
        }
        let [gets, puts, deletions] = done;
        self.stats.add_message(&format!(
            "( get:{gets} put:{puts} del:{deletions} total:{} found:{found})",
            self.plan.operations
        ));
        Ok(())
    }
}
