//! A thread that does everything but writing keys of its own: flushes, compactions, creating and dropping
//! families, copies, changes of options, pauses.

use std::path::PathBuf;
use std::time::Duration;

use base::rng::Rng;
use base::sync::PoisonError;
use ironstone::{Db, FlushOptions, ImportColumnFamilyOptions};

use super::arena::Tools;
use super::ledger::FAMILIES;
use super::life::OUTSIDE;
use super::{Part, copies};
use crate::model::setup::Setup;

/// The longest pause between two operations, and the longest time that a lock or pause is held, in
/// milliseconds.
const PAUSE_MS: u64 = 30;
/// The most families that are created and dropped.
const PASSING_MAX: usize = 4;

/// A helper thread.
pub(super) struct Helper {
    pub tools: Tools,
    pub rng: Rng,
    /// The directory for copies.
    pub outside: PathBuf,
    /// The directory of this life's backups, under it.
    pub backups: String,
    /// Whether a family has an order that is not built in.
    pub own_order: bool,
    made: u64,
}

impl Helper {
    pub(super) fn new(tools: Tools, mut rng: Rng, own_order: bool) -> Self {
        let backups = format!("backups-{}", rng.below(1 << 40));
        Self {
            tools,
            rng,
            outside: PathBuf::from(OUTSIDE),
            backups,
            own_order,
            made: 0,
        }
    }

    /// Works until it is told to stop.
    pub(super) fn work(mut self) {
        while !self.tools.arena.stopped() {
            self.step();
            self.pause();
        }
    }

    fn pause(&mut self) {
        let time = Duration::from_millis(self.rng.below(PAUSE_MS));
        base::sync::thread::sleep(time);
    }

    fn step(&mut self) {
        let arena = std::sync::Arc::clone(&self.tools.arena);
        let has = |part| arena.has(part);
        match self.rng.below(30) {
            0..5 => self.flush(),
            5..8 => self.compact(),
            8..11 if has(Part::Resume) => self.resume(),
            11..13 if has(Part::Pauses) => self.lock_log(),
            13..15 if has(Part::Pauses) => self.pause_jobs(),
            15..17 if has(Part::SetOptions) => self.set_options(),
            17..21 if has(Part::Families) => self.come(),
            21..24 if has(Part::Families) => self.go(),
            24 if has(Part::Imports) => self.import(),
            25 if has(Part::Copies) => copies::checkpoint(self),
            26 if has(Part::Copies) => copies::follow(self),
            28 if has(Part::Copies) => copies::backup(self),
            27 => {
                let wait = |db: &Db| db.wait_for_compact();
                self.tools.run("wait_for_compact", wait);
            }
            _ => self.look(),
        }
    }

    fn family(&mut self) -> usize {
        self.rng.below(FAMILIES as u64) as usize
    }

    fn flush(&mut self) {
        let seen = self.tools.arena.promises.look();
        if self.rng.one_in(3) {
            if self.tools.run("flush of all", Db::flush).is_some() {
                for family in 0..FAMILIES {
                    self.tools.arena.promises.flushed(family, &seen);
                }
            }
            return;
        }
        let options = FlushOptions {
            wait: !self.rng.one_in(4),
            allow_write_stall: self.rng.one_in(2),
        };
        let family = self.family();
        let handle = &self.tools.families[family];
        let flush = |db: &Db| db.cf(handle).with(&options).flush();
        if self.tools.run("flush", flush).is_some() && options.wait {
            self.tools.arena.promises.flushed(family, &seen);
        }
    }

    fn compact(&mut self) {
        let family = self.family();
        let handle = &self.tools.families[family];
        if self.rng.one_in(2) {
            let compact = |db: &Db| db.cf(handle).compact_range(None, None);
            self.tools.run("compact_range", compact);
        } else {
            let suggest = |db: &Db| db.cf(handle).suggest_compact_range(None, None);
            self.tools.run("suggest_compact_range", suggest);
        }
    }

    fn resume(&mut self) {
        self.tools.run("resume", Db::resume);
    }

    fn lock_log(&mut self) {
        if self.tools.run("lock_wal", Db::lock_wal).is_some() {
            self.pause();
            self.unlock_log();
        }
    }

    /// The log must always be unlocked again, whatever happens.
    fn unlock_log(&self) {
        if let Some(Err(e)) = self
            .tools
            .slot
            .run("unlock_wal", || self.tools.db.unlock_wal())
        {
            self.tools.arena.fail(format!("unlock_wal: {e}"));
        }
    }

    fn pause_jobs(&mut self) {
        let begin = |db: &Db| db.pause_background_work();
        if self.tools.run("pause_background_work", begin).is_some() {
            self.pause();
            let end = || self.tools.db.continue_background_work();
            if let Some(Err(e)) = self.tools.slot.run("continue_background_work", end) {
                self.tools
                    .arena
                    .fail(format!("continue_background_work: {e}"));
            }
        }
    }

    fn set_options(&mut self) {
        let changes = Setup::changes(&mut self.rng);
        let family = self.family();
        let handle = &self.tools.families[family];
        let change = |db: &Db| db.cf(handle).set_options(&changes);
        self.tools.run("set_options", change);
    }

    /// Creates a family.
    fn come(&mut self) {
        if self.tools.arena.passing().len() >= PASSING_MAX {
            return self.go();
        }
        let name = self.new_name("passing");
        let options = &self.tools.arena.options.cf;
        let create = |db: &Db| db.create_column_family(&name, options);
        if let Some(family) = self.tools.run("create_column_family", create) {
            self.tools.arena.change_passing(|all| all.push(family));
        }
    }

    /// Drops a family.
    fn go(&mut self) {
        let mut gone = None;
        let draw = self.rng.next_u64() as usize;
        self.tools.arena.change_passing(|all| {
            if !all.is_empty() {
                gone = Some(all.swap_remove(draw % all.len()));
            }
        });
        if let Some(family) = gone {
            let drop = |db: &Db| db.drop_column_family(&family);
            self.tools.run("drop_column_family", drop);
        }
    }

    pub(super) fn new_name(&mut self, of: &str) -> String {
        self.made += 1;
        format!("{of}-{}-{}", self.made, self.rng.below(1 << 40))
    }

    /// Exports a family, and imports it as another.
    fn import(&mut self) {
        let name = self.new_name("export");
        let dir = self.outside.join(name);
        let from = self.tools.families[0].clone();
        let export = |db: &Db| db.cf(&from).export(&dir);
        let Some(exported) = self.tools.run("export_column_family", export) else {
            return;
        };
        let name = self.new_name("imported");
        let how = ImportColumnFamilyOptions {
            move_files: self.rng.one_in(2),
        };
        let options = &self.tools.arena.options.cf;
        let import = |db: &Db| db.create_column_family_with_import(&name, options, &how, &exported);
        if exported.files.is_empty() {
            return;
        }
        if let Some(family) = self.tools.run("create_column_family_with_import", import) {
            self.tools.arena.change_passing(|all| all.push(family));
        }
    }

    fn look(&mut self) {
        let seq = self.tools.db.latest_sequence_number();
        match self.rng.below(6) {
            0 => drop(
                self.tools
                    .run("stats", |db| Ok(db.property("rocksdb.stats"))),
            ),
            1 => drop(self.tools.run("metrics_text", |db| Ok(db.metrics_text()))),
            // At sequence 0 nothing was written yet, which is an error by contract.
            2 if seq == 0 => {}
            2 => {
                let from = seq.saturating_sub(self.rng.below(100)).max(1);
                drop(
                    self.tools
                        .run("get_updates_since", |db| db.get_updates_since(from)),
                );
            }
            3 => drop(self.tools.run("verify_checksum", Db::verify_checksum)),
            4 => drop(
                self.tools
                    .run("get_live_files", |db| db.get_live_files(false)),
            ),
            _ => drop(
                self.tools
                    .run("get_sorted_wal_files", Db::get_sorted_wal_files),
            ),
        }
    }
}

impl super::arena::Arena {
    /// Changes the list of families that are created and dropped.
    fn change_passing(&self, change: impl FnOnce(&mut Vec<ironstone::ColumnFamily>)) {
        let mut all = self.passing.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut all);
    }
}
