//! Loops that read.

use base::Result;

use super::{Worker, cursor_at};
use crate::engine::{Bounds, Cursor, Engine};
use crate::flags::Flags;
use crate::stats::Op;

/// Moves one key further, in the direction of the flags.
#[inline]
fn step(cursor: &mut impl Cursor, flags: &Flags) {
    if flags.reverse_iterator {
        cursor.prev();
    } else {
        cursor.next();
    }
}

impl<'a, E: Engine> Worker<'a, E> {
    /// Reads all keys in order, or in reverse order.
    pub(super) fn scan(&mut self, reverse: bool) -> Result<()> {
        for engine in self.on.all() {
            self.scan_one(engine, reverse)?;
        }
        Ok(())
    }

    fn scan_one(&mut self, engine: &'a E, reverse: bool) -> Result<()> {
        let snapshot = self.snapshot(engine).filter(|_| !reverse);
        let mut cursor = cursor_at(engine, snapshot.as_ref(), Bounds::default())?;
        let (mut read, mut bytes) = (0, 0);
        if reverse {
            cursor.seek_to_last();
        } else {
            cursor.seek_to_first();
        }
        let (operations, pace) = (self.plan.operations, self.together.read_pace.as_ref());
        while read < operations && cursor.valid() {
            bytes += cursor.key().len() + cursor.value().len();
            read += 1;
            self.stats.finished(1, Op::Read);
            if let Some(pace) = pace {
                pace.take(1);
            }
            if reverse {
                cursor.prev();
            } else {
                cursor.next();
            }
        }
        cursor.status()?;
        self.stats.add_bytes(bytes as u64);
        Ok(())
    }

    /// Reads all keys repeatedly, until the other threads are done.
    pub(super) fn scan_beside(&mut self) -> Result<()> {
        let snapshot = self.snapshot(self.engine);
        let mut cursor = cursor_at(self.engine, snapshot.as_ref(), Bounds::default())?;
        while !self.together.all_done() {
            if cursor.valid() {
                cursor.next();
            } else {
                cursor.status()?;
                cursor.seek_to_first();
            }
            self.stats.finished(1, Op::Seek);
        }
        cursor.status()
    }

    /// Reads random keys with `get`, which returns the size of a value. With a stride, `batch_size` keys at that
    /// distance follow one another.
    pub(super) fn get(
        &mut self,
        get: impl Fn(&Self, u64, &[u8], &mut Vec<u8>) -> Result<Option<usize>>,
    ) -> Result<()> {
        let (keys, mut limit) = (self.keys(), self.limit());
        let mut key = keys.room();
        let mut scratch = Vec::with_capacity(self.plan.value_size.max(1024));
        let (stride, batch) = (self.flags.multiread_stride as u64, self.plan.batch_size);
        let (mut read, mut found, mut bytes) = (0u64, 0u64, 0);
        let mut number = 0;
        while limit.take(1, &self.stats) {
            self.pick_engine();
            if stride == 0 || batch == 1 || read.is_multiple_of(batch) {
                number = self.pick_read();
                if stride > 0 {
                    number = number.min(self.plan.num.saturating_sub(batch * stride));
                }
            } else {
                number += stride;
            }
            keys.write(number, &mut key);
            read += 1;
            if let Some(len) = get(self, number, &key, &mut scratch)? {
                found += 1;
                bytes += key.len() + len;
            }
            self.stats.finished(1, Op::Read);
            self.pace_reads(1);
        }
        self.stats.add_bytes(bytes as u64);
        self.stats
            .add_message(&format!("({found} of {read} found)\n"));
        Ok(())
    }

    /// The value of the key with this number, in the family that the number determines.
    #[inline]
    pub(super) fn get_one(
        &self,
        number: u64,
        key: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<Option<usize>> {
        match self.on.families.of(number) {
            0 => self.engine.get(key, scratch),
            family => self.engine.get_in(family, key, scratch),
        }
    }

    /// Reads all keys one after the other, so that the engine caches their rows.
    pub(super) fn get_all(&mut self) -> Result<()> {
        let keys = self.keys();
        let (mut key, mut scratch) = (keys.room(), Vec::with_capacity(self.plan.value_size));
        let (mut found, mut bytes) = (0u64, 0);
        for number in 0..self.plan.num {
            keys.write(number, &mut key);
            if let Some(len) = self.get_one(number, &key, &mut scratch)? {
                found += 1;
                bytes += key.len() + len;
            }
            self.stats.finished(1, Op::Read);
            self.pace_reads(1);
        }
        self.stats.add_bytes(bytes as u64);
        let read = self.plan.num;
        self.stats
            .add_message(&format!("({found} of {read} found)\n"));
        Ok(())
    }

    /// Reads `batch_size` random keys at once with `get`, which returns the number of existing keys and
    /// their bytes.
    pub(super) fn multi_get(
        &mut self,
        get: impl Fn(&E, &[&[u8]]) -> Result<(u64, u64)>,
    ) -> Result<()> {
        let (keys, mut limit, batch) = (self.keys(), self.limit(), self.plan.batch_size);
        let stride = self.flags.multiread_stride as u64;
        let mut room: Vec<Vec<u8>> = (0..batch).map(|_| keys.room()).collect();
        let (mut read, mut found, mut bytes) = (0, 0, 0);
        while limit.take(batch, &self.stats) {
            self.pick_engine();
            let mut number = self.pick_read();
            if stride > 0 {
                number = number.min(self.plan.num.saturating_sub(batch * stride));
            }
            for key in &mut room {
                keys.write(number, key);
                number = if stride > 0 {
                    number + stride
                } else {
                    self.pick_read()
                };
            }
            let wanted: Vec<&[u8]> = room.iter().map(Vec::as_slice).collect();
            let (these, value_bytes) = get(self.engine, &wanted)?;
            read += batch;
            found += these;
            bytes += these * keys.len as u64 + value_bytes;
            self.stats.finished(batch, Op::Read);
            self.pace_reads(batch);
        }
        self.stats.add_bytes(bytes);
        self.stats
            .add_message(&format!("({found} of {read} found)"));
        Ok(())
    }

    /// Makes cursors.
    pub(super) fn new_iterator(&mut self) -> Result<()> {
        let mut limit = self.limit();
        while limit.take(1, &self.stats) {
            self.pick_engine();
            drop(self.engine.cursor(Bounds::default())?);
            self.stats.finished(1, Op::Other);
        }
        Ok(())
    }

    /// Seeks random keys and reads the keys after them.
    pub(super) fn seek(&mut self) -> Result<()> {
        let (keys, mut limit, flags) = (self.keys(), self.limit(), self.flags);
        let (mut key, mut bound) = (keys.room(), keys.room());
        let tailing = flags.use_tailing_iterator;
        let engines = self.on.all();
        let each = engines.iter().map(|engine| self.snapshot(engine));
        let snapshots: Vec<_> = each.collect();
        let each = engines.iter().filter(|_| tailing);
        let mut kept = each
            .map(|engine| engine.cursor(Bounds::default()))
            .collect::<Result<Vec<_>>>()?;
        let options = engines[0].write_options(false, false);
        let distance = flags.max_scan_distance.unsigned_abs();
        let (mut read, mut found, mut bytes) = (0u64, 0u64, 0);
        while limit.take(1, &self.stats) {
            let number = self.pick_read();
            let at = match engines.len() {
                1 => 0,
                count => self.rng.below(count as u64) as usize,
            };
            keys.write_for_seek(number, flags, &mut key);
            let mut bounds = Bounds::default();
            if distance > 0 && flags.reverse_iterator {
                keys.write(number.saturating_sub(distance), &mut bound);
                bounds.lower = Some(&bound);
            } else if distance > 0 {
                keys.write((number + distance).min(self.plan.num), &mut bound);
                bounds.upper = Some(&bound);
            }
            let mut own = if tailing {
                None
            } else {
                Some(cursor_at(
                    engines[at].as_ref(),
                    snapshots[at].as_ref(),
                    bounds,
                )?)
            };
            let Some(cursor) = kept.get_mut(at).or(own.as_mut()) else {
                break; // there is one of the two
            };
            cursor.seek(&key);
            read += 1;
            if cursor.valid() && cursor.key() == key {
                found += 1;
            }
            for _ in 0..flags.seek_nexts {
                if !cursor.valid() {
                    break;
                }
                bytes += cursor.key().len() + cursor.value().len();
                step(cursor, flags);
            }
            for _ in 0..flags.seek_nexts_to_delete {
                if !cursor.valid() {
                    break;
                }
                engines[at].delete(&options, cursor.key())?;
                step(cursor, flags);
            }
            cursor.status()?;
            self.stats.finished(1, Op::Seek);
            self.pace_reads(1);
        }
        self.stats.add_bytes(bytes as u64);
        self.stats
            .add_message(&format!("({found} of {read} found)\n"));
        Ok(())
    }

    /// Estimates the size of the data between random keys.
    pub(super) fn approximate_size(&mut self) -> Result<()> {
        let (keys, mut limit) = (self.keys(), self.limit());
        let (mut begin, mut end) = (keys.room(), keys.room());
        let (mut asked, mut total) = (0u64, 0u64);
        while limit.take(1, &self.stats) {
            self.pick_engine();
            let (a, b) = (self.pick_read(), self.pick_read());
            keys.write(a.min(b), &mut begin);
            keys.write(a.max(b), &mut end);
            asked += 1;
            total += self.engine.approximate_size(&begin, &end)?;
            self.stats.finished(1, Op::Other);
        }
        let mean = total.checked_div(asked).unwrap_or(0);
        self.stats.add_message(&format!("(mean size {mean} bytes)"));
        Ok(())
    }
}
