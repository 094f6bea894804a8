//! The concurrent clients of the database.

use std::sync::Arc;
use std::time::Duration;

use base::rng::Rng;
use base::sync::thread::{self, JoinHandle};
use base::{Error, ErrorKind, Result};
use ironstone::{ColumnFamily, Db, FlushOptions, PendingWrite, WriteBatch, WriteOptions};

use crate::check::{self, LIST, SECOND};
use crate::world::{Kind, World, watch};

/// A client.
pub(crate) struct Client {
    number: u64,
    written: u64,
    rng: Rng,
    world: Arc<World>,
    db: Option<Arc<Db>>,
    /// Threads that wait for the durability of writes, also when the database is closed.
    waiters: Vec<JoinHandle<()>>,
    last_sequence: u64,
}

impl Client {
    pub(crate) fn new(number: u64, rng: Rng, world: &Arc<World>, db: &Arc<Db>) -> Self {
        Self {
            number,
            written: 0,
            rng,
            world: Arc::clone(world),
            db: Some(Arc::clone(db)),
            waiters: Vec::new(),
            last_sequence: 0,
        }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("it is open")
    }

    pub(crate) fn run(&mut self) {
        for _ in 0..2 + self.rng.below(4) {
            self.step();
        }
        let _watched = watch("drop");
        self.db = None;
    }

    pub(crate) fn into_waiters(self) -> Vec<JoinHandle<()>> {
        self.waiters
    }

    fn step(&mut self) {
        match self.rng.below(24) {
            0..9 => self.write(),
            9..14 => self.write_async(),
            14 | 15 => self.sync_log(),
            16 => self.wait_durable(),
            17 => self.flush(),
            18 => self.lock_log(),
            19 | 20 => self.families(),
            21 => self.mend(),
            _ => self.read(),
        }
    }

    /// Returns whether the call succeeded. If nothing has failed, only the allowed errors may come.
    fn expect(&self, what: &str, result: Result<()>, allowed: &[ErrorKind]) -> bool {
        match result {
            Ok(()) => true,
            Err(e) => {
                let fine = self.world.kind == Kind::Failing || allowed.contains(&e.kind());
                assert!(fine, "{what}: {e}");
                false
            }
        }
    }

    fn batch(&mut self, extra: Option<&ColumnFamily>) -> (String, WriteBatch, bool) {
        let name = format!("{}.{}", self.number, self.written);
        self.written += 1;
        let len = [4, 3000, 3000, 9000][self.rng.below(4) as usize];
        let value = vec![b'v'; len];
        let mut batch = WriteBatch::new();
        let default = self.db().default_column_family();
        let second = self
            .rng
            .one_in(3)
            .then(|| self.db().column_family(SECOND))
            .flatten();
        batch.put(name.as_bytes(), &value).unwrap();
        batch.cf(&default).merge(LIST, name.as_bytes()).unwrap();
        if let Some(second) = &second {
            batch.cf(second).put(name.as_bytes(), b"v").unwrap();
        }
        if let Some(extra) = extra {
            batch.cf(extra).put(name.as_bytes(), b"v").unwrap();
        }
        (name, batch, second.is_some())
    }

    fn write(&mut self) {
        let extra = self
            .rng
            .one_in(4)
            .then(|| self.db().column_family("short"))
            .flatten();
        let options = WriteOptions {
            sync: self.rng.one_in(2),
            no_slowdown: self.rng.one_in(6),
            ..WriteOptions::default()
        };
        let options = WriteOptions {
            disable_wal: !options.sync && self.rng.one_in(4),
            ..options
        };
        self.write_with(&options, extra.as_ref());
    }

    fn write_with(&mut self, options: &WriteOptions, extra: Option<&ColumnFamily>) {
        let (name, mut batch, second) = self.batch(extra);
        let _watched = watch(&format!("write {name} {options:?}"));
        let book = &self.world.book;
        let before = book.pages().acknowledged(false);
        book.begin(&name, !options.disable_wal, second);
        let result = self.db().with(options).write(&mut batch);
        let refused = self.refused(&result, options, extra);
        book.end(&name, result.is_ok(), refused);
        if result.is_ok() && options.sync {
            book.durable(before);
            book.durable([name]);
        } else if let Err(e) = result {
            assert!(
                refused || self.world.kind == Kind::Failing,
                "write {name} {options:?}: {e}"
            );
        }
    }

    /// Whether the call was refused before it did anything.
    fn refused<T>(&self, r: &Result<T>, o: &WriteOptions, extra: Option<&ColumnFamily>) -> bool {
        let Err(e) = r else { return false };
        (o.no_slowdown && e.kind() == ErrorKind::Incomplete)
            || (extra.is_some() && e.kind() == ErrorKind::InvalidArgument)
    }

    fn write_async(&mut self) {
        let options = WriteOptions {
            no_slowdown: self.rng.one_in(8),
            ..WriteOptions::default()
        };
        let (name, batch, second) = self.batch(None);
        let watched = watch(&format!("write_async {name}"));
        let book = &self.world.book;
        let before = book.pages().acknowledged(false);
        book.begin(&name, true, second);
        let written = self.db().with(&options).write_async(batch);
        let refused = self.refused(&written, &options, None);
        let written = match written {
            Ok(w) => w,
            Err(e) => {
                book.end(&name, false, refused);
                let fine = refused || self.world.kind == Kind::Failing;
                assert!(fine, "write_async {name}: {e}");
                return;
            }
        };
        self.last_sequence = written.seq;
        let applied = written.applied.wait();
        book.end(&name, applied.is_ok(), false);
        drop(watched);
        if self.expect("applied", applied, &[]) {
            self.follow(written, name, before);
        }
    }

    /// Waits for the durability of the write: at once, on another thread, or not at all.
    fn follow(&mut self, written: PendingWrite, name: String, mut before: Vec<String>) {
        let world = Arc::clone(&self.world);
        before.push(name.clone());
        let wait = move || {
            let _watched = watch(&format!("durable {name}"));
            match written.durable.wait() {
                Ok(()) => world.book.durable(before),
                Err(e) => {
                    let closed = e.kind() == ErrorKind::ShutdownInProgress;
                    let fine = closed || world.kind == Kind::Failing;
                    assert!(fine, "durable {name}: {e}");
                }
            }
        };
        match self.rng.below(4) {
            0 => wait(),
            1 | 2 => self.waiters.push(thread::spawn(wait)),
            _ => drop(wait),
        }
    }

    fn sync_log(&mut self) {
        let before = self.world.book.pages().acknowledged(false);
        let how = self.rng.below(4);
        let _watched = watch(&format!("sync of the log {how}"));
        let result = match how {
            0 => self.db().flush_wal(false),
            1 => self.db().sync_wal(),
            _ => self.db().flush_wal(true),
        };
        if self.expect("sync of the log", result, &[]) && how > 0 {
            self.world.book.durable(before);
        }
    }

    fn wait_durable(&mut self) {
        let _watched = watch("wait_durable");
        let result = self.db().wait_durable(self.last_sequence);
        self.expect("wait_durable", result, &[]);
    }

    fn flush(&mut self) {
        let before = self.world.book.pages().acknowledged(true);
        let options = FlushOptions {
            wait: self.rng.one_in(2),
            allow_write_stall: self.rng.one_in(2),
        };
        let _watched = watch(&format!("flush {options:?}"));
        let db = self.db();
        let families = [Some(db.default_column_family()), db.column_family(SECOND)];
        let flush = |f| db.cf(f).with(&options).flush();
        let result = families.iter().flatten().try_for_each(flush);
        if self.expect("flush", result, &[]) && options.wait {
            self.world.book.durable(before);
        }
    }

    fn lock_log(&mut self) {
        let _watched = watch("lock_wal");
        let locked = self.db().lock_wal();
        if self.expect("lock_wal", locked, &[]) {
            base::sync::time::switch();
            let unlocked = self.db().unlock_wal();
            self.expect("unlock_wal", unlocked, &[]);
        }
    }

    /// Creates a family, writes to it, as others do, and drops it.
    fn families(&mut self) {
        let known = [ErrorKind::InvalidArgument];
        let watched = watch("create_column_family");
        let mut options = ironstone::ColumnFamilyOptions::default();
        options.cf.write_buffer_size = 16384;
        options.cf.arena_block_size = 4096;
        let made = self.db().create_column_family("short", &options);
        drop(watched);
        let family = match made {
            Ok(family) => Some(family),
            Err(e) => {
                self.expect("create_column_family", Err(e), &known);
                self.db().column_family("short")
            }
        };
        let Some(family) = family else { return };
        for _ in 0..self.rng.below(3) {
            let options = WriteOptions {
                sync: self.rng.one_in(2),
                ..WriteOptions::default()
            };
            self.write_with(&options, Some(&family));
        }
        let _watched = watch("drop_column_family");
        let dropped = self.db().drop_column_family(&family);
        self.expect("drop_column_family", dropped, &known);
    }

    /// Mends the disk, and resumes the database.
    fn mend(&mut self) {
        if self.world.kind != Kind::Failing {
            return self.read();
        }
        if self.rng.one_in(2) {
            self.world.disk.clear_faults();
        }
        self.world.clock.sleep(Duration::from_millis(1));
        let _watched = watch("resume");
        let result: std::result::Result<(), Error> = self.db().resume();
        self.expect("resume", result, &[]);
    }

    /// A read sees all writes that were acknowledged before it.
    fn read(&mut self) {
        let before = self.world.book.pages().acknowledged(true);
        let list = match check::list(self.db()) {
            Ok(list) => list,
            Err(e) => {
                assert!(self.world.kind == Kind::Failing, "read: {e}");
                return;
            }
        };
        let missing = before.iter().find(|name| !list.contains(*name));
        assert!(missing.is_none(), "{missing:?} is not visible: {list:?}");
        check::check_list(&list, &self.world.book.pages().writes);
    }
}
