//! Import: the reports of files become rows in one step, all of them or none.
//!
//! ```text
//!   records ─> sorted by entity and time, in runs ─> merged with the rows of the database
//!                 └ names that share a hash             └─> one or more tables for each family ─> one ingestion
//! ```
//!
//! The rows are those that the same reports would make one by one, in the order of the input. An
//! import that is killed leaves nothing but its scratch folder,
//! [`store::SCRATCH`](crate::store::SCRATCH), which the next opening removes: the new fleet, its
//! tags and the tombstones of old index rows are in the same ingestion.
//!
//! Fences ignore an import: its points are history for them, and no event is made. Memory is
//! bounded by [`Options::memory`], whatever the size of the input; the engine's memory comes on
//! top.

#[doc(hidden)]
pub mod fuzzing;
mod names;
mod rows;
mod sorter;
mod tables;

use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;

use base::{Error, ErrorKind, Result};

use self::names::{Names, Resolved};
use self::rows::{Counts, Item, Making};
use self::sorter::Sorter;
use self::tables::Tables;
use crate::files::{Place, Reader, Record, goes_on};
use crate::fleets::{Fleets, Info};
use crate::model::key::{Fleet, PointKey};
use crate::model::name::Name;
use crate::model::time::Time;
use crate::store::{Engine, Family, SCRATCH, Store};

/// The least memory for sorting, bytes.
const MEMORY_MIN: usize = 1 << 20;

/// The options of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes that sorting may use, at least 1 MiB.
    pub memory: usize,
    /// Whether visits are written.
    pub visits: bool,
    /// The import ends if there are more bad records than this. `None` allows any number.
    pub bad_max: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory: 256 << 20,
            visits: true,
            bad_max: None,
        }
    }
}

/// The progress of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The number of records read so far.
    Read(u64),
    /// The number of records, of those that were read, that are rows in tables.
    Sorted(u64),
    /// The tables are being ingested.
    Ingest,
    /// Tables are being compacted.
    Compact,
}

/// The result of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Records that changed something.
    pub stored: u64,
    /// Records that were stored already.
    pub same: u64,
    /// Records that were left out because they are invalid.
    pub bad: u64,
    /// Entities that had records.
    pub entities: u64,
    /// Entities whose newest point is newer than before.
    pub moved: u64,
    /// How often the memory for sorting was full, so that a run was written.
    pub runs: u64,
}

/// Receives each bad record, with the reason. Its errors end the import.
pub type Bad<'a> = &'a mut dyn FnMut(&str) -> Result<()>;

/// An import in progress. Dropping it before [`Import::finish`] changes nothing.
pub struct Import<'a> {
    engine: &'a Engine,
    options: Options,
    arrival: Time,
    dir: PathBuf,
    /// The fleet in the database. `None` if the import makes it.
    old: Option<Arc<Info>>,
    info: Info,
    /// Whether any record was read.
    has_any: bool,
    names: Names,
    points: Sorter,
    nth: u64,
    bad: u64,
}

impl std::fmt::Debug for Import<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Import({}, {} records)", self.info.name, self.nth)
    }
}

impl<'a> Import<'a> {
    /// Begins an import; `arrival` is the arrival time of its reports. The database must have no
    /// other writer until the import is finished.
    ///
    /// Errors: another import is in progress; the store's.
    pub fn begin(
        engine: &'a Engine,
        fleet: &Name,
        arrival: Time,
        options: &Options,
    ) -> Result<Self> {
        let fleets = Fleets::open(engine)?;
        let old = fleets.get(fleet);
        let info = fleets.planned(fleet, |_| Ok(()))?;
        let dir = engine.dir().join(SCRATCH);
        let fs = &engine.options().env.fs;
        if fs.exists(&dir)? {
            return Err(Error::new(ErrorKind::Busy, "an import goes on already").file(&dir));
        }
        fs.create_dir(&dir)?;
        let memory = options.memory.max(MEMORY_MIN);
        Ok(Self {
            engine,
            options: Options {
                memory,
                ..options.clone()
            },
            arrival,
            old,
            info,
            has_any: false,
            names: Names::new(Sorter::new(fs, &dir, "names", memory / 8)),
            points: Sorter::new(fs, &dir, "points", memory / 4 * 3),
            dir,
            nth: 0,
            bad: 0,
        })
    }

    /// Reads the records of a file; `name` precedes the message about a bad record. If a file is
    /// truncated or malformed, the rest of it is left out.
    ///
    /// Errors: there are too many bad records; those of `bad`; the file cannot be read; a run
    /// cannot be written. After an error, the import can only be dropped.
    pub fn read<R: BufRead>(
        &mut self,
        name: &str,
        reader: &mut Reader<R>,
        bad: Bad<'_>,
        told: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        for record in reader {
            let found = match record {
                Ok(record) => {
                    let place = record.place;
                    self.take(record).map_err(|e| (Some(place), e))
                }
                Err(e) => Err((None, e)),
            };
            if self.nth.is_multiple_of(16_384) {
                told(Progress::Read(self.nth));
            }
            let Err((place, e)) = found else {
                continue;
            };
            if !goes_on(&e) && (place.is_some() || !e.is_corruption()) {
                return Err(e);
            }
            let at = match place {
                Some(Place::Line(line)) => format!("line {line}: "),
                Some(Place::Offset(at)) => format!("offset {at}: "),
                None => String::new(),
            };
            self.is_bad(&format!("{name}: {at}{e}"), bad)?;
        }
        told(Progress::Read(self.nth));
        Ok(())
    }

    /// Reports a bad record. Errors: those of `bad`; there are too many.
    fn is_bad(&mut self, what: &str, bad: Bad<'_>) -> Result<()> {
        self.bad += 1;
        bad(what)?;
        match self.options.bad_max {
            Some(most) if self.bad > most => Err(Error::invalid_argument(format!(
                "more than {most} bad records; the last is {what}"
            ))
            .hint("nothing was imported: correct them, or allow more")),
            _ => Ok(()),
        }
    }

    /// Adds a record. Errors: `InvalidArgument` says what is wrong with it; any other error ends
    /// the import.
    fn take(&mut self, record: Record) -> Result<()> {
        let Record {
            mut report, tags, ..
        } = record;
        // Refused records make neither fleets nor tags.
        report.check(self.arrival, self.info.settings.ahead())?;
        if self.info.settings.bits(&tags).is_err() {
            self.info.settings = self.info.settings.with_tags(&self.info.name, &tags)?;
        }
        report.point.tags = self.info.settings.bits(&tags)?;
        let dated = report.dated(self.arrival, self.info.settings.ahead())?;
        let point = dated.point.encode()?;
        let item = Item {
            key: PointKey {
                fleet: self.info.fleet,
                entity: dated.entity.number(0),
                time: dated.time,
            },
            nth: self.nth.to_be_bytes(),
            name: dated.entity.as_str(),
            point: &point,
        };
        self.has_any = true;
        // Errors from here on do not concern the record.
        let added = self
            .names
            .add(&dated.entity, self.nth)
            .and_then(|()| item.add_to(&mut self.points));
        self.nth += 1;
        added.map_err(|e| match e.kind() {
            ErrorKind::InvalidArgument => Error::broken(e.to_string()),
            _ => e,
        })
    }

    /// Makes the tables and ingests them. Returns once this is durable and tables are compacted.
    ///
    /// Errors: the store's; there are too many bad records; those of `bad`. On an error nothing was
    /// imported, unless only the compaction failed, which the error says.
    pub fn finish(mut self, bad: Bad<'_>, told: &mut dyn FnMut(Progress)) -> Result<Summary> {
        let engine = self.engine;
        let view = engine.view();
        let fs = &engine.options().env.fs;
        let names = Names::new(Sorter::new(fs, &self.dir, "none", 0));
        let names = std::mem::replace(&mut self.names, names);
        let resolved = names.resolve(&*view, self.info.fleet)?;
        if !resolved.is_plain() {
            self.renumber(&resolved, bad)?;
        }
        let mut making = Making::new(
            (engine, &*view),
            (&self.dir, self.info.fleet),
            self.options.memory.max(MEMORY_MIN),
            self.options.visits,
        );
        making.run(&mut self.points, told)?;
        let Counts {
            stored,
            same,
            entities,
            moved,
            ..
        } = making.counts;
        let mut tables = making.finish(engine, &self.dir)?;
        tables.extend(self.fleet()?);
        drop(view);
        told(Progress::Ingest);
        engine.ingest(tables)?;
        told(Progress::Compact);
        engine.settle().map_err(|e| {
            let text = format!("all is imported, and merging its tables failed: {e}");
            Error::new(e.kind(), text)
        })?;
        Ok(Summary {
            stored,
            same,
            bad: self.bad,
            entities,
            moved,
            runs: self.points.runs() as u64,
        })
    }

    /// Sorts the records again, by the resolved numbers of their names.
    fn renumber(&mut self, resolved: &Resolved, bad: Bad<'_>) -> Result<()> {
        for name in resolved.refused() {
            let text = format!("{name}: its reports are left out: too many names have its hash");
            self.is_bad(&text, bad)?;
        }
        let fs = &self.engine.options().env.fs;
        let mut out = Sorter::new(fs, &self.dir, "numbered", self.options.memory / 4);
        let mut merged = self.points.merged()?;
        while let Some(bytes) = merged.next()? {
            let mut item = Item::decode(bytes)?;
            if let Some(entity) = resolved.number(item.key.entity, item.name)? {
                item.key.entity = entity;
                item.add_to(&mut out)?;
            }
        }
        self.points = out;
        Ok(())
    }

    /// The table with the row of the fleet, if the fleet is new or has new tags.
    fn fleet(&self) -> Result<Option<(Family, Vec<PathBuf>)>> {
        let is_old = self.old.as_ref().is_some_and(|old| **old == self.info);
        if is_old || !self.has_any {
            return Ok(None);
        }
        let (key, value) = self.info.row()?;
        let mut tables = Tables::new(self.engine, &self.dir, Family::Meta);
        tables.put(&key, &value)?;
        tables.finish().map(Some)
    }

    /// The number of the fleet, also if it is new.
    pub fn fleet_number(&self) -> Fleet {
        self.info.fleet
    }
}

impl Drop for Import<'_> {
    fn drop(&mut self) {
        // The next opening removes what is left.
        drop(self.engine.clear_scratch());
    }
}
