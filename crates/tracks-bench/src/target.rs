//! The target of a measurement: an engine with the settings of a row.

use std::path::PathBuf;
use std::sync::Arc;

use base::{Error, Result};
use ironstone::{Db, Options};
use tools::librocksdb::{Library, PoolThreads};
use tracks::store::{Engine, Family, Store};

use crate::null::Null;
use crate::rocksdb::{Rocks, Sync};
use crate::settings::{Row, text};
use crate::shapes::{Shape, Shaped};

/// The engine and its settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A library of RocksDB to measure; without, Ironstone is
    #[arg(long, value_name = "PATH", global = true)]
    rocksdb: Option<PathBuf>,
    /// A store that does nothing, instead of an engine
    #[arg(long, global = true, conflicts_with = "rocksdb")]
    nothing: bool,
    /// The row of the table whose settings it has
    #[arg(long, default_value = "1")]
    row: Row,
    /// How RocksDB's writes become durable
    #[arg(long, default_value = "each")]
    sync: Sync,
    /// The folder of the database
    #[arg(long)]
    dir: String,
}

/// An open database.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    inside: Inside,
}

enum Inside {
    Nothing,
    Ironstone(Arc<Db>),
    Rocks(Arc<Rocks>),
}

impl Args {
    pub(crate) fn open(&self) -> Result<Opened> {
        if self.nothing {
            return Ok(Opened {
                store: Arc::new(Null::default()),
                inside: Inside::Nothing,
            });
        }
        let (db, family) = self.row.settings();
        let (store, inside): (Arc<dyn Store>, Inside) = match &self.rocksdb {
            None => {
                let options = Options::default()
                    .with_text(&text(db))?
                    .with_text(&text(family))?;
                let engine = Engine::open_with(&self.dir, options)?;
                let inside = Inside::Ironstone(Arc::clone(engine.db()));
                (Arc::new(engine), inside)
            }
            Some(path) => {
                let lib = Library::open(path)?;
                if let Some((low, high)) = self.row.threads() {
                    let threads = PoolThreads {
                        low,
                        high,
                        bottom: 0,
                    };
                    lib.background_threads(threads)?;
                }
                let text = format!("{}{}", text(db), text(family));
                let rocks = Arc::new(Rocks::open(&lib, &self.dir, &text, self.sync)?);
                let store: Arc<dyn Store> = Arc::clone(&rocks) as Arc<dyn Store>;
                (store, Inside::Rocks(rocks))
            }
        };
        let shape = match self.row {
            Row::Point => Some(Shape::Points),
            Row::FourCalls => Some(Shape::Single),
            _ => None,
        };
        let store = match shape {
            Some(shape) => Arc::new(Shaped { store, shape }),
            None => store,
        };
        Ok(Opened { store, inside })
    }

    pub(crate) fn engine(&self) -> &'static str {
        match (self.nothing, &self.rocksdb) {
            (true, _) => "nothing",
            (false, Some(_)) => "rocksdb",
            (false, None) => "ironstone",
        }
    }

    pub(crate) fn row(&self) -> Row {
        self.row
    }
}

impl Opened {
    /// An integer property of a family; 0 of a store that does nothing.
    fn property(&self, family: Family, name: &str) -> Result<u64> {
        let found = match &self.inside {
            Inside::Nothing => return Ok(0),
            Inside::Ironstone(db) => {
                let family = db.column_family(family.name());
                family.and_then(|family| db.cf(&family).property(name))
            }
            Inside::Rocks(rocks) => {
                let db = rocks.db();
                db.property_cf(db.cf(family.name())?, name)
            }
        };
        let number = found.and_then(|text| text.parse().ok());
        number.ok_or_else(|| Error::not_found(format!("no property {name}")))
    }

    /// Compacts all families.
    pub(crate) fn compact(&self) -> Result<()> {
        for family in Family::ALL {
            match &self.inside {
                Inside::Nothing => {}
                Inside::Ironstone(db) => {
                    let family = db.column_family(family.name());
                    let family = family.ok_or_else(|| Error::not_found("no such family"))?;
                    db.cf(&family).compact_range(None, None)?;
                }
                Inside::Rocks(rocks) => {
                    let db = rocks.db();
                    db.compact_range(db.cf(family.name())?, None, None);
                }
            }
        }
        Ok(())
    }

    /// The greatest number of level-0 files of a family.
    pub(crate) fn level0(&self) -> Result<u64> {
        let files = |family| self.property(family, "rocksdb.num-files-at-level0");
        let all: Result<Vec<u64>> = Family::ALL.into_iter().map(files).collect();
        Ok(all?.into_iter().max().unwrap_or(0))
    }

    /// 1 if writes are stopped now, otherwise 0.
    pub(crate) fn is_stopped(&self) -> Result<u64> {
        self.property(Family::Default, "rocksdb.is-write-stopped")
    }

    /// The number of puts and deletes since the start.
    pub(crate) fn operations(&self) -> u64 {
        match &self.inside {
            Inside::Nothing => 0,
            Inside::Ironstone(db) => db.latest_sequence_number(),
            Inside::Rocks(rocks) => rocks.db().latest_sequence_number(),
        }
    }

    /// The pending compaction bytes.
    pub(crate) fn debt(&self) -> Result<u64> {
        let bytes = |family| self.property(family, "rocksdb.estimate-pending-compaction-bytes");
        let all: Result<Vec<u64>> = Family::ALL.into_iter().map(bytes).collect();
        Ok(all?.into_iter().sum())
    }
}
