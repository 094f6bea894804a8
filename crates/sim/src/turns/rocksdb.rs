//! RocksDB's turns, through its C API.

use std::path::Path;
use std::sync::Arc;

use base::rng::Rng;

use super::{Act, Side, Step};
use crate::model::setup::Setup;
use crate::model::store::{Change, Family, FileContent};
use crate::oracle::content::FamilyContent;
use crate::oracle::{Cf, Library, RocksDb, RocksIngest, RocksOptions, RocksSstFileWriter};

pub(super) struct Rocks {
    db: RocksDb,
    lib: Arc<Library>,
    drawn: Drawn,
}

/// The options of a turn, as text.
#[derive(Clone, Debug)]
pub(super) struct Drawn(String);

impl Drawn {
    pub(super) fn new(rng: &mut Rng, classic: bool, setup: &Setup) -> Self {
        fn pick<'a>(rng: &mut Rng, of: &[&'a str]) -> &'a str {
            of[rng.below(of.len() as u64) as usize]
        }
        let versions: &[&str] = if classic {
            &["2", "3", "4", "5"]
        } else {
            &["5", "6", "7"]
        };
        let version = pick(rng, versions);
        let checksum = pick(
            rng,
            &["kCRC32c", "kXXH3", "kxxHash", "kxxHash64", "kNoChecksum"],
        );
        let filter = pick(
            rng,
            &["nullptr", "bloomfilter:10:false", "ribbonfilter:10:-1"],
        );
        let index = pick(
            rng,
            &[
                "kBinarySearch",
                "kTwoLevelIndexSearch",
                "kBinarySearchWithFirstKey",
            ],
        );
        let partition = index == "kTwoLevelIndexSearch" && rng.one_in(2);
        let compression = pick(
            rng,
            &[
                "kNoCompression",
                "kSnappyCompression",
                "kZSTD",
                "kLZ4Compression",
                "kZlibCompression",
            ],
        );
        let dictionary = pick(rng, &["0", "0", "2000"]);
        let write_buffer = pick(rng, &["65536", "65536", "4194304"]);
        let subcompactions = pick(rng, &["1", "3"]);
        let recycled = pick(rng, &["0", "2"]);
        let atomic = pick(rng, &["false", "true"]);
        let cf = &setup.options.cf;
        let kept = setup.options.cf.num_levels;
        let dynamic = cf.cf.level_compaction_dynamic_level_bytes;
        let operator = cf.merge_operator.as_ref();
        let operator = operator.map_or_else(|| "nullptr".to_owned(), |o| o.options_text());
        let style = base::options::OptionValue::print(&cf.cf.compaction_style);
        Self(format!(
            "create_if_missing=true;create_missing_column_families=true;\
             block_based_table_factory={{block_size=1000;format_version={version};\
             checksum={checksum};filter_policy={filter};index_type={index};\
             partition_filters={partition}}};compression={compression};\
             compression_opts={{max_dict_bytes={dictionary}}};write_buffer_size={write_buffer};\
             level0_file_num_compaction_trigger=2;target_file_size_base=32768;\
             max_bytes_for_level_base=100000;max_subcompactions={subcompactions};\
             recycle_log_file_num={recycled};atomic_flush={atomic};num_levels={kept};\
             level_compaction_dynamic_level_bytes={dynamic};merge_operator={operator};\
             compaction_style={style}"
        ))
    }

    pub(super) fn text(&self) -> String {
        format!("RocksDB with {}", self.0)
    }

    fn options(&self, lib: &Arc<Library>, reverse: bool) -> Result<RocksOptions, String> {
        let mut o = lib.options();
        o.set_all(&self.0).map_err(|e| e.to_string())?;
        if reverse {
            o.set("comparator", "rocksdb.ReverseBytewiseComparator")
                .map_err(|e| e.to_string())?;
        }
        Ok(o)
    }
}

pub(super) fn open(
    dir: &Path,
    lib: &Arc<Library>,
    drawn: Drawn,
    model: &[Family],
) -> Result<Rocks, String> {
    let each = model
        .iter()
        .map(|f| drawn.options(lib, f.reverse))
        .collect::<Result<Vec<_>, _>>()?;
    let families: Vec<_> = model.iter().map(|f| f.name.as_str()).zip(&each).collect();
    let main = drawn.options(lib, false)?;
    let db = RocksDb::open_cf(&main, dir, &families).map_err(|e| format!("open: {e}"))?;
    Ok(Rocks {
        db,
        lib: Arc::clone(lib),
        drawn,
    })
}

impl Rocks {
    fn cf(&self, family: &Family) -> Result<Cf<'_>, String> {
        self.db.cf(&family.name).map_err(|e| e.to_string())
    }

    fn write(&self, changes: &[(usize, Vec<u8>, Change)], model: &[Family]) -> Step {
        let mut batch = self.lib.batch();
        for (f, key, change) in changes {
            let cf = self.cf(&model[*f])?;
            match change {
                Change::Put(value) => batch.put_cf(cf, key, value),
                Change::Delete => batch.delete_cf(cf, key),
                Change::SingleDelete => batch.single_delete_cf(cf, key),
                Change::DeleteTo(end) => batch.delete_range_cf(cf, key, end),
                Change::Merge(operand) => batch.merge_cf(cf, key, operand),
                Change::Entity(_) => return Err("the C API cannot write entities".to_owned()),
            }
        }
        self.db.write(&batch).map_err(|e| e.to_string())
    }

    fn ingest(&self, family: &Family, file: &FileContent, path: &Path) -> Step {
        let failed = |e: base::Error| e.to_string();
        let options = self.drawn.options(&self.lib, family.reverse)?;
        let writer = RocksSstFileWriter::open(&options, path).map_err(failed)?;
        for (begin, end) in &file.ranges {
            writer.delete_range(begin, end).map_err(failed)?;
        }
        for (key, change) in &file.points {
            let added = match change {
                Change::Put(value) => writer.put(key, value),
                Change::Merge(operand) => writer.merge(key, operand),
                _ => writer.delete(key),
            };
            added.map_err(failed)?;
        }
        writer.finish().map_err(failed)?;
        let how = RocksIngest {
            move_files: true,
            ..RocksIngest::default()
        };
        let done = self.db.ingest(self.cf(family)?, &[path], how);
        done.map_err(failed)
    }

    /// A family, read forward; reads backward and by gets must agree.
    fn family(&self, family: &Family) -> Result<FamilyContent, String> {
        let cf = self.cf(family)?;
        let failed = |e: base::Error| e.to_string();
        let pairs = self.db.iterator_cf(cf).collect_all().map_err(failed)?;
        let mut it = self.db.iterator_cf(cf);
        it.seek_to_last();
        for (key, value) in pairs.iter().rev() {
            if !it.valid() || it.key() != key || it.value() != value {
                let key = key.escape_ascii();
                return Err(format!("RocksDB's backward scan differs at {key}"));
            }
            it.prev();
        }
        it.status().map_err(failed)?;
        if it.valid() {
            return Err("RocksDB's backward scan has more".to_owned());
        }
        for (key, value) in &pairs {
            if self.db.get_cf(cf, key).map_err(failed)?.as_ref() != Some(value) {
                let key = key.escape_ascii();
                return Err(format!("RocksDB's get differs from its scan at {key}"));
            }
        }
        Ok((family.name.clone(), pairs))
    }
}

impl Side for Rocks {
    fn content(&self, model: &[Family]) -> Result<Vec<FamilyContent>, String> {
        model.iter().map(|f| self.family(f)).collect()
    }

    fn act(&mut self, act: &Act, model: &[Family], scratch: &Path) -> Step {
        let done = match act {
            Act::Write(changes) => return self.write(changes, model),
            Act::Ingest(f, file) => return self.ingest(&model[*f], file, scratch),
            Act::Flush(f) => self.db.flush_cf(self.cf(&model[*f])?),
            Act::Compact(f, begin, end) => {
                let cf = self.cf(&model[*f])?;
                self.db.compact_range(cf, begin.as_deref(), end.as_deref());
                Ok(())
            }
            Act::Create(name, reverse) => {
                let options = self.drawn.options(&self.lib, *reverse)?;
                self.db.create_cf(name, &options)
            }
            Act::Drop => {
                let last = model.last().ok_or("there is no family")?;
                self.db.drop_cf(&last.name)
            }
        };
        done.map_err(|e| e.to_string())
    }

    fn settle(&self) -> Step {
        self.db.wait_for_compaction().map_err(|e| e.to_string())
    }

    fn close(self: Box<Self>) -> Step {
        self.db.close();
        Ok(())
    }
}
