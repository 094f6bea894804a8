//! Loops that write.

use base::Result;

use super::chosen::Choice;
use super::{Worker, cursor_at};
use crate::benchmarks::Order;
use crate::engine::{Bounds, Cursor, Engine};
use crate::flags::Flags;
use crate::keys::{Keys, Shuffled, Values, random_number, standard_normal};
use crate::pace::Sine;
use crate::stats::Op;

/// Range deletions between writes, if the flags ask for them.
pub(super) struct RangeDeletions {
    before: u64,
    every: u64,
    width: u64,
    most: u64,
    one_by_one: bool,
    done: u64,
}

/// What was taken between writes, and is kept until the writes are done.
struct Kept<'a, E: Engine> {
    writes_per_snapshot: u64,
    writes_per_iterator: u64,
    snapshots: Vec<E::Snapshot<'a>>,
    iterators: Vec<E::Cursor<'a>>,
}

impl<'a, E: Engine> Kept<'a, E> {
    fn new(flags: &Flags) -> Self {
        Self {
            writes_per_snapshot: flags.writes_per_snapshot.max(0).unsigned_abs(),
            writes_per_iterator: flags.writes_per_iterator.max(0).unsigned_abs(),
            snapshots: Vec::new(),
            iterators: Vec::new(),
        }
    }

    /// Takes what is due after the writes from `before` to `next`.
    fn take(&mut self, engine: &'a E, before: u64, next: u64) -> Result<()> {
        let is_due = |every: u64| every > 0 && before / every != next / every;
        if is_due(self.writes_per_snapshot) {
            self.snapshots.push(engine.snapshot());
        }
        if is_due(self.writes_per_iterator) {
            let mut iterator = engine.cursor(Bounds::default())?;
            iterator.seek_to_first();
            self.iterators.push(iterator);
        }
        Ok(())
    }
}

impl<E: Engine> Worker<'_, E> {
    /// Puts, in batches of the plan's size, as in RocksDB's db_bench.
    pub(super) fn write(
        &mut self,
        order: Order,
        values: &mut Values,
        operations: u64,
    ) -> Result<()> {
        let plan = self.plan;
        let databases = self.on.all().len();
        let mut limit = self.limit().of(operations).times(databases);
        if plan.num != self.flags.num as u64 {
            self.stats.add_message(&format!("({} ops)", plan.num));
        }
        if order == Order::Unique
            && let Some(choice) = Choice::of(self.flags, plan.num)
        {
            return self.write_chosen(choice, values, limit);
        }
        let options = self.engine.write_options(plan.sync, self.flags.disable_wal);
        let unique = (order == Order::Unique).then(|| Shuffled::new(plan.num, &mut self.rng));
        let place = |number| unique.as_ref().map_or(number, |u| u.at(number));
        let (keys, mut batch) = (self.keys(), self.engine.batch());
        let mut key = keys.room();
        let (families, all) = (&self.on.families, operations * databases as u64);
        let interval = self.flags.sine_write_rate_interval_milliseconds;
        let mut sine = self.flags.sine_write_rate.then(|| Sine::new(interval));
        let mut deletions = self.range_deletions();
        let mut kept = Kept::new(self.flags);
        let (mut next, mut bytes) = (0, 0);
        let every = self.flags.flush_wal_every.max(0).unsigned_abs();
        while limit.take(plan.batch_size, &self.stats) {
            let bytes_before = bytes;
            families.enter(next + plan.batch_size, all);
            let (first, mut family) = (self.turn(order, next), 0);
            for i in 0..plan.batch_size {
                let number = place(self.pick(order, first + i));
                keys.write(number, &mut key);
                let value = values.next();
                bytes += key.len() + value.len();
                family = families.of(number);
                if family == 0 {
                    self.engine.batch_put(&mut batch, &key, value)?;
                } else {
                    self.engine.batch_put_in(&mut batch, family, &key, value)?;
                }
            }
            self.engine.write(&options, &mut batch)?;
            let before = next;
            next += plan.batch_size;
            if every > 0 && before / every != next / every {
                self.engine.sync_wal()?;
            }
            kept.take(self.engine, before, next)?;
            self.stats.finished(plan.batch_size, Op::Write);
            self.pace_writes(bytes - bytes_before);
            self.move_write_pace(&mut sine);
            if let Some(deletions) = &mut deletions {
                self.delete_ranges(deletions, &options, &keys, before..next, family)?;
            }
        }
        self.stats.add_bytes(bytes as u64);
        Ok(())
    }

    /// Switches to the database of write number `next`, and returns the number of the write there.
    /// Sequential writes fill one database after the other; each random write picks a database.
    fn turn(&mut self, order: Order, next: u64) -> u64 {
        let (all, each) = (self.on.all(), self.plan.operations.max(1));
        if all.len() == 1 {
            return next;
        }
        if order == Order::Random {
            self.pick_engine();
            return next;
        }
        let at = (next / each).min(all.len() as u64 - 1);
        self.engine = &all[at as usize];
        next - at * each
    }

    pub(super) fn range_deletions(&self) -> Option<RangeDeletions> {
        let flags = self.flags;
        let every = u64::try_from(flags.writes_per_range_tombstone).ok()?;
        (every > 0).then(|| RangeDeletions {
            before: flags.writes_before_delete_range.max(0).unsigned_abs(),
            every,
            width: flags.range_tombstone_width.unsigned_abs(),
            most: flags.max_num_range_tombstones.max(0).unsigned_abs(),
            one_by_one: flags.expand_range_tombstones,
            done: 0,
        })
    }

    /// The range deletions that are due after these writes.
    pub(super) fn delete_ranges(
        &mut self,
        due: &mut RangeDeletions,
        options: &E::Write,
        keys: &Keys,
        writes: std::ops::Range<u64>,
        family: usize,
    ) -> Result<()> {
        let count = |n: u64| n.saturating_sub(due.before) / due.every;
        if count(writes.start) == count(writes.end) || due.done >= due.most {
            return Ok(());
        }
        due.done += 1;
        let first = random_number(&mut self.rng, self.plan.num, 0.0);
        let (mut begin, mut end) = (keys.room(), keys.room());
        keys.write(first, &mut begin);
        if due.one_by_one {
            for i in 0..due.width {
                keys.write(first + i, &mut begin);
                self.delete_in(options, family, &begin)?;
            }
        } else {
            keys.write(first + due.width, &mut end);
            match family {
                0 => self.engine.delete_range(options, &begin, &end)?,
                family => self.engine.delete_range_in(options, family, &begin, &end)?,
            }
        }
        self.stats.finished(1, Op::Write);
        Ok(())
    }

    fn delete_in(&self, options: &E::Write, family: usize, key: &[u8]) -> Result<()> {
        if family == 0 {
            return self.engine.delete(options, key);
        }
        let mut batch = self.engine.batch();
        self.engine.batch_delete_in(&mut batch, family, key)?;
        self.engine.write(options, &mut batch)
    }

    /// Puts keys in order, then seeks each key, with `seek_nexts` steps between the seeks. Only the
    /// seeks are counted.
    pub(super) fn fill_and_seek(&mut self, values: &mut Values) -> Result<()> {
        let (flags, num) = (self.flags, self.plan.num);
        let options = self.engine.write_options(self.plan.sync, flags.disable_wal);
        let (keys, mut key) = (self.keys(), self.keys().room());
        self.pick_engine();
        for i in 0..num {
            keys.write(i, &mut key);
            self.engine.put(&options, &key, values.next())?;
        }
        self.stats.start();
        let snapshot = self.snapshot(self.engine);
        let mut cursor = cursor_at(self.engine, snapshot.as_ref(), Bounds::default())?;
        let mut i = 0;
        while i < num {
            keys.write(i, &mut key);
            cursor.seek(&key);
            self.stats.finished(1, Op::Seek);
            for _ in 0..flags.seek_nexts {
                if i + 1 >= num || !cursor.valid() {
                    break;
                }
                cursor.next();
                i += 1;
                self.stats.finished(1, Op::Seek);
            }
            i += 1;
        }
        cursor.status()
    }

    /// Deletions, in batches if the plan says so.
    pub(super) fn delete(&mut self, order: Order) -> Result<()> {
        let plan = self.plan;
        let options = self.engine.write_options(plan.sync, self.flags.disable_wal);
        let (keys, mut batch) = (self.keys(), self.engine.batch());
        let (mut key, mut limit) = (keys.room(), self.limit());
        let mut next = 0;
        while limit.take(plan.batch_size, &self.stats) {
            self.pick_engine();
            if plan.batch_size == 1 {
                keys.write(self.pick(order, next), &mut key);
                self.engine.delete(&options, &key)?;
            } else {
                for i in 0..plan.batch_size {
                    keys.write(self.pick(order, next + i), &mut key);
                    self.engine.batch_delete(&mut batch, &key)?;
                }
                self.engine.write(&options, &mut batch)?;
            }
            next += plan.batch_size;
            self.stats.finished(plan.batch_size, Op::Delete);
        }
        Ok(())
    }

    /// Deletes the keys of normally distributed groups and puts their successors, alternating every
    /// 50.
    pub(super) fn replace_keys(&mut self, values: &mut Values) -> Result<()> {
        const SUCCESSORS: u64 = 50;
        let (flags, groups) = (self.flags, self.flags.numdistinct.unsigned_abs());
        let options = self.engine.write_options(self.plan.sync, flags.disable_wal);
        let (keys, mut key) = (self.keys(), self.keys().room());
        for group in 0..groups {
            keys.write(group * SUCCESSORS, &mut key);
            self.engine.put(&options, &key, values.next())?;
        }
        let mut successor = vec![0; groups as usize];
        let mut limit = self.limit();
        while limit.take(1, &self.stats) {
            let at = groups as f64 / 2.0 + flags.stddev * standard_normal(&mut self.rng);
            let group = (at.max(0.0) as u64).min(groups - 1);
            let current = &mut successor[group as usize];
            keys.write(group * SUCCESSORS + *current, &mut key);
            if flags.use_single_deletes {
                self.engine.single_delete(&options, &key)?;
            } else {
                self.engine.delete(&options, &key)?;
            }
            *current = (*current + 1) % SUCCESSORS;
            keys.write(group * SUCCESSORS + *current, &mut key);
            self.engine.put(&options, &key, b"")?;
            self.stats.finished(1, Op::Other);
        }
        self.stats.add_message(&format!(
            "use single deletes: {}, standard deviation: {:.6}\n",
            u8::from(flags.use_single_deletes),
            flags.stddev
        ));
        Ok(())
    }

    /// Writes random keys until the readers are done.
    pub(super) fn write_beside(
        &mut self,
        values: &mut Values,
        write: impl Fn(&E, &E::Write, &[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let flags = self.flags;
        let options = self.engine.write_options(self.plan.sync, flags.disable_wal);
        let num = match flags.bgwriter_num.unsigned_abs() {
            0 => flags.num.unsigned_abs(),
            num => num,
        };
        let keys = Keys::new(flags, flags.key_size as usize, num);
        let keys = keys.or_existing(self.on.keys.as_ref());
        let mut key = keys.room();
        let mut deletions = self.range_deletions();
        let most = flags.finish_after_writes.then_some(flags.writes);
        let most = most.and_then(|w| u64::try_from(w).ok());
        let mut written = 0;
        while most.map_or(!self.together.all_done(), |most| written < most) {
            self.pick_engine();
            keys.write(random_number(&mut self.rng, num, 0.0), &mut key);
            let value = values.next();
            write(self.engine, &options, &key, value)?;
            let bytes = key.len() + value.len();
            written += 1;
            self.stats.finished(1, Op::Write);
            self.pace_writes(bytes);
            if let Some(deletions) = &mut deletions {
                self.delete_ranges(deletions, &options, &keys, written - 1..written, 0)?;
            }
        }
        Ok(())
    }
}
