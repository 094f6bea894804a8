//! Ironstone's turns.

use std::path::Path;

use ironstone::{
    ColumnFamily, ColumnFamilyDescriptor, Db, IngestExternalFileOptions, Options, WriteBatch,
};

use super::{Act, Side, Step};
use crate::model::setup::for_family;
use crate::model::store::{Change, Family, FileContent};
use crate::oracle::content::{FamilyContent, everything};

pub(super) struct Ironstone {
    db: Db,
    options: Options,
}

pub(super) fn open(dir: &Path, options: &Options, model: &[Family]) -> Result<Ironstone, String> {
    let families: Vec<_> = model
        .iter()
        .map(|f| ColumnFamilyDescriptor::new(&f.name, for_family(options, f.reverse)))
        .collect();
    let db = Db::open_cf(dir, options, &families).map_err(|e| format!("open: {e}"))?;
    Ok(Ironstone {
        db,
        options: options.clone(),
    })
}

impl Ironstone {
    fn cf(&self, family: &Family) -> Result<ColumnFamily, String> {
        let cf = self.db.column_family(&family.name);
        cf.ok_or_else(|| format!("family {:?} is missing", family.name))
    }

    fn write(&self, changes: &[(usize, Vec<u8>, Change)], model: &[Family]) -> Step {
        let mut batch = WriteBatch::new();
        for (f, key, change) in changes {
            let id = self.cf(&model[*f])?.id();
            let added = match change {
                Change::Put(value) => batch.cf_id(id).put(key, value),
                Change::Delete => batch.cf_id(id).delete(key),
                Change::SingleDelete => batch.cf_id(id).single_delete(key),
                Change::DeleteTo(end) => batch.cf_id(id).delete_range(key, end),
                Change::Merge(operand) => batch.cf_id(id).merge(key, operand),
                Change::Entity(columns) => batch.cf_id(id).put_entity(key, columns),
            };
            added.map_err(|e| e.to_string())?;
        }
        self.db.write(&mut batch).map_err(|e| e.to_string())
    }

    fn ingest(&self, family: &Family, file: &FileContent, path: &Path) -> Result<(), String> {
        let mut options = self.options.clone();
        options.cf = for_family(&options, family.reverse);
        let failed = |e: base::Error| e.to_string();
        file.write(&options, path).map_err(failed)?;
        let how = IngestExternalFileOptions {
            move_files: true,
            ..IngestExternalFileOptions::default()
        };
        let cf = self.cf(family)?;
        let done = self.db.cf(&cf).ingest_external_file(&[path], &how);
        done.map_err(failed)
    }
}

impl Side for Ironstone {
    fn content(&self, _: &[Family]) -> Result<Vec<FamilyContent>, String> {
        everything(&self.db).map_err(|e| e.to_string())
    }

    fn act(&mut self, act: &Act, model: &[Family], scratch: &Path) -> Step {
        let done = match act {
            Act::Write(changes) => return self.write(changes, model),
            Act::Ingest(f, file) => return self.ingest(&model[*f], file, scratch),
            Act::Flush(f) => self.db.cf(&self.cf(&model[*f])?).flush(),
            Act::Compact(f, begin, end) => {
                let cf = self.cf(&model[*f])?;
                self.db
                    .cf(&cf)
                    .compact_range(begin.as_deref(), end.as_deref())
            }
            Act::Create(name, reverse) => {
                let options = for_family(&self.options, *reverse);
                self.db.create_column_family(name, &options).map(drop)
            }
            Act::Drop => {
                let last = model.last().ok_or("there is no family")?;
                self.db.drop_column_family(&self.cf(last)?)
            }
        };
        done.map_err(|e| e.to_string())
    }

    fn settle(&self) -> Step {
        self.db.wait_for_compact().map_err(|e| e.to_string())
    }

    fn close(self: Box<Self>) -> Step {
        self.db.close().map_err(|e| format!("close: {e}"))
    }
}
