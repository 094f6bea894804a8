//! Manual flushes and compactions, and the database's properties.

use std::sync::Arc;

use base::sync::atomic::AtomicBool;

use ironstone::{
    BottommostLevelCompaction, CompactRangeOptions, CompactionOptions, ErrorKind, FlushOptions,
    LiveFileMetaData, SizeApproximationOptions,
};

use super::runner::{Runner, Step};
use super::setup::Setup;

/// Bytes by which an estimate may exceed the real size.
const ESTIMATE_SLACK: u64 = 1 << 20;

/// Properties that always have a numeric value.
const NUMBERS: &[&str] = &[
    "rocksdb.num-immutable-mem-table",
    "rocksdb.cur-size-active-mem-table",
    "rocksdb.cur-size-all-mem-tables",
    "rocksdb.num-entries-active-mem-table",
    "rocksdb.estimate-num-keys",
    "rocksdb.total-sst-files-size",
    "rocksdb.live-sst-files-size",
    "rocksdb.num-running-compactions",
    "rocksdb.num-running-flushes",
    "rocksdb.base-level",
    "rocksdb.estimate-pending-compaction-bytes",
    "rocksdb.is-write-stopped",
];
const TEXTS: &[&str] = &["rocksdb.stats", "rocksdb.levelstats", "rocksdb.cfstats"];

impl Runner {
    pub(super) fn flush(&mut self) -> Step {
        if self.rng.one_in(2) {
            self.note("flush".to_owned());
            self.unlogged = false;
            return self.db().flush().map_err(|e| format!("flush: {e}"));
        }
        let f = self.family();
        let options = FlushOptions {
            wait: !self.rng.one_in(3),
            allow_write_stall: self.rng.one_in(2),
        };
        self.note(format!("flush of {f}, {options:?}"));
        let cf = self.handle(f)?;
        self.db()
            .cf(&cf)
            .with(&options)
            .flush()
            .map_err(|e| format!("flush of a family: {e}"))
    }

    /// Changes options of a family while it is open; after a reopen, it has the run's options again.
    pub(super) fn set_options(&mut self) -> Step {
        let f = self.family();
        let changes = Setup::changes(&mut self.rng);
        self.note(format!("set options of {f}: {changes:?}"));
        let cf = self.handle(f)?;
        match self.db().cf(&cf).set_options(&changes) {
            // They may contradict the current options: then nothing changes.
            Err(e) if e.kind() == ErrorKind::InvalidArgument => Ok(()),
            other => other.map_err(|e| format!("set_options: {e}")),
        }
    }

    pub(super) fn sync_wal(&mut self) -> Step {
        let sync = self.rng.one_in(2);
        self.note(format!("flush_wal({sync})"));
        self.db()
            .flush_wal(sync)
            .map_err(|e| format!("flush_wal: {e}"))
    }

    /// Two keys in the family's order, either of which may be missing.
    fn ends(&mut self, f: usize) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let (a, b) = self.range(f);
        let begin = (!self.rng.one_in(3)).then_some(a);
        let end = (!self.rng.one_in(3)).then_some(b);
        (begin, end)
    }

    pub(super) fn compact_range(&mut self) -> Step {
        let f = self.family();
        let (begin, end) = self.ends(f);
        let bottom = [
            BottommostLevelCompaction::Skip,
            BottommostLevelCompaction::IfHaveCompactionFilter,
            BottommostLevelCompaction::Force,
            BottommostLevelCompaction::ForceOptimized,
        ];
        let canceled = self.rng.one_in(20);
        let change_level = self.rng.one_in(6);
        let options = CompactRangeOptions {
            exclusive_manual_compaction: self.rng.one_in(3),
            change_level,
            target_level: self.rng.below(4) as i32 - 1,
            bottommost_level_compaction: bottom[self.rng.below(4) as usize],
            max_subcompactions: self.rng.below(4) as u32,
            canceled: canceled.then(|| Arc::new(AtomicBool::new(true))),
        };
        self.note(format!(
            "compact {f} from {begin:?} to {end:?}, {options:?}"
        ));
        let cf = self.handle(f)?;
        let done = self
            .db()
            .cf(&cf)
            .with(&options)
            .compact_range(begin.as_deref(), end.as_deref());
        match done {
            Err(e) if canceled && e.kind() == ErrorKind::Incomplete => Ok(()),
            // The level does not exist, or the change is not possible.
            Err(e) if change_level && refused(e.kind()) => Ok(()),
            other => other.map_err(|e| format!("compact_range: {e}")),
        }
    }

    /// Compacts files of one level to that level or to the next.
    pub(super) fn compact_files(&mut self) -> Step {
        let f = self.family();
        let cf = self.handle(f)?;
        let metadata = self.db().cf(&cf).get_column_family_metadata();
        let metadata = metadata.map_err(|e| format!("get_column_family_metadata: {e}"))?;
        let full: Vec<_> = metadata
            .levels
            .iter()
            .filter(|l| !l.files.is_empty())
            .collect();
        let draw = self.rng.next_u64();
        let depth = self.rng.below(3) as usize;
        let options = CompactionOptions {
            output_file_size_limit: if self.rng.one_in(2) { 20_000 } else { u64::MAX },
            max_subcompactions: self.rng.below(4) as u32,
            canceled: None,
        };
        let Some(level) = full.get(draw as usize % full.len().max(1)) else {
            return Ok(());
        };
        let first = (draw >> 20) as usize % level.files.len();
        let numbers = level.files[first..].iter().map(|f| f.file_number);
        let numbers: Vec<u64> = numbers.take(1 + (draw >> 40) as usize % 4).collect();
        let to = level.level + depth;
        self.note(format!("compact files {numbers:?} of {f} to level {to}"));
        match self.db().cf(&cf).with(&options).compact_files(&numbers, to) {
            // Background compactions may have removed the files, and levels have rules.
            Err(e) if refused(e.kind()) => Ok(()),
            other => other.map_err(|e| format!("compact_files: {e}")),
        }
    }

    pub(super) fn suggest_compact(&mut self) -> Step {
        let f = self.family();
        let (begin, end) = self.ends(f);
        self.note(format!("suggest to compact {f}"));
        let cf = self.handle(f)?;
        self.db()
            .cf(&cf)
            .suggest_compact_range(begin.as_deref(), end.as_deref())
            .map_err(|e| format!("suggest_compact_range: {e}"))
    }

    /// Reads while background work is paused.
    pub(super) fn pause(&mut self) -> Step {
        self.note("background work pauses".to_owned());
        let failed = |e| format!("pause: {e}");
        self.db().pause_background_work().map_err(failed)?;
        for _ in 0..10 {
            self.walk()?;
        }
        self.db().continue_background_work().map_err(failed)
    }

    pub(super) fn look_at_sizes(&mut self) -> Step {
        let f = self.family();
        let (begin, end) = self.range(f);
        let options = SizeApproximationOptions {
            include_memtables: self.rng.one_in(2),
            include_files: true,
            files_size_error_margin: if self.rng.one_in(2) { -1.0 } else { 0.1 },
        };
        let cf = self.handle(f)?;
        let db = self.db();
        let files: u64 = db
            .get_live_files_metadata()
            .iter()
            .map(|f: &LiveFileMetaData| f.size)
            .sum();
        let memory = db.cf(&cf).get_approximate_memtable_stats((&begin, &end));
        let (_, memory) = memory.map_err(|e| format!("get_approximate_memtable_stats: {e}"))?;
        let ranges = [(&begin[..], &end[..]), (&end[..], &end[..])];
        let sizes = db.cf(&cf).get_approximate_sizes(&options, &ranges);
        let sizes = sizes.map_err(|e| format!("get_approximate_sizes: {e}"))?;
        let most = files + memory + ESTIMATE_SLACK;
        match sizes[..] {
            [some, 0] if some <= most => Ok(()),
            _ => Err(format!(
                "approximate sizes {sizes:?}; files have {files}, memtables about {memory}"
            )),
        }
    }

    pub(super) fn look_at_properties(&mut self) -> Step {
        let f = self.family();
        let cf = self.handle(f)?;
        let db = self.db();
        let get = |name: &str| db.cf(&cf).property(name).ok_or(format!("no {name}"));
        for name in NUMBERS {
            let text = get(name)?;
            if text.parse::<u64>().is_err() {
                return Err(format!("{name} is {text:?}"));
            }
        }
        for name in TEXTS {
            if get(name)?.len() < 10 {
                return Err(format!("{name} is almost empty"));
            }
        }
        let errors = get("rocksdb.background-errors")?;
        if errors != "0" {
            return Err(format!("{errors} errors in the background"));
        }
        // An iterator that was created at a snapshot holds it.
        let least = self.snapshots.len();
        let most = least + self.held.len();
        let have = get("rocksdb.num-snapshots")?;
        if have.parse().is_ok_and(|n| (least..=most).contains(&n)) {
            return Ok(());
        }
        Err(format!(
            "rocksdb.num-snapshots is {have}, there are {least} to {most}"
        ))
    }
}

/// Whether an error means that the call is not possible, and not that something is wrong.
fn refused(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::InvalidArgument
            | ErrorKind::NotSupported
            | ErrorKind::Aborted
            | ErrorKind::Busy
            | ErrorKind::NotFound
    )
}
