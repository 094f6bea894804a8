//! Which data blocks a block cache has, kept in a file: so that the next process that opens the database reads them before
//! they are asked for.
//!
//! ```text
//!   u64 magic | table… | u32 masked CRC32C of all before
//!   table:  varint file number | varint count | varint (offset after the last one × 2 + tier)…
//! ```
//!
//! The file names blocks and does not contain them. What is read is checked as always, so an old file, or that of another
//! database, costs reads and cannot give wrong values.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use base::checksum::{crc32c, mask};
use base::coding::{Decoder, put_u32, put_u64, put_varint, u32_at};
use base::{Error, FileNumber, Result};
use manifest::TableFile;
use table::Tier;

use crate::read::options::ReadOptions;

use super::Db;

/// `ISCACHE1`.
const MAGIC: u64 = u64::from_be_bytes(*b"ISCACHE1");
/// A longer file is refused: it would name more blocks than caches have.
const BYTES_MAX: u64 = 1 << 30;

/// What became of the blocks that [`Db::load_cache`] was to read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheLoaded {
    /// Blocks that were read into the cache.
    pub blocks: u64,
    /// The bytes that the cache is charged for them.
    pub bytes: u64,
    /// Blocks that were not: their table is gone, they were in the cache already, or the cache was full.
    pub skipped: u64,
}

/// How far [`Db::load_cache_with`] has come, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheProgress {
    /// Blocks that were read or skipped.
    pub done: u64,
    /// All blocks that the file names.
    pub total: u64,
}

/// The blocks of each table, ascending.
type Blocks = BTreeMap<u64, Vec<(u64, Tier)>>;

/// The block cache's content, from one process to the next.
impl Db {
    /// Writes down which data blocks of this database are in the block cache, for [`Db::load_cache`]: their places, in 2 to 4
    /// bytes each, not the blocks themselves. To be called before a database is closed, or from time to time. Replaces the
    /// file, and leaves the old one if it fails. Returns the number of blocks.
    ///
    /// # Errors
    /// Those of writing the file; the database is closed.
    ///
    /// ```
    /// # use ironstone::{Db, Options};
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("db");
    /// # let options = Options::default().with_db(|db| db.create_if_missing = true);
    /// let dump = dir.path().join("cache.dump");
    /// let db = Db::open(&path, &options)?;
    /// db.put("k", "v")?;
    /// db.flush()?;
    /// db.get("k")?;
    /// assert_eq!(db.dump_cache(&dump)?, 1);
    /// db.close()?;
    ///
    /// let db = Db::open(&path, &options)?;
    /// assert_eq!(db.load_cache(&dump)?.blocks, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dump_cache(&self, path: impl AsRef<Path>) -> Result<u64> {
        self.default_cf().check()?;
        let tables = self.tables();
        let by_id: HashMap<u64, u64> = tables
            .iter()
            .filter_map(|(number, table)| Some((table.cache_id()?, *number)))
            .collect();
        let mut blocks = Blocks::new();
        let cache = &self.shared.catalog.tables.cache;
        cache.data_blocks(&mut |key, tier| {
            if let Some(number) = by_id.get(&key.id) {
                blocks.entry(*number).or_default().push((key.offset, tier));
            }
        });
        for of_table in blocks.values_mut() {
            // A block that both tiers have is one of the first.
            of_table.sort_unstable();
            of_table.dedup_by_key(|(offset, _)| *offset);
        }
        let path = path.as_ref();
        let mut temp = path.as_os_str().to_owned();
        temp.push(".tmp");
        let fs = &*self.shared.env().fs;
        io::replace_file(fs, path, Path::new(&temp), &encode(&blocks))?;
        Ok(blocks.values().map(|blocks| blocks.len() as u64).sum())
    }

    /// Reads the blocks that a file of [`Db::dump_cache`] names into the block cache: in the order of the files, neighbours
    /// together, many at once ([`DbOptions::read_io_mode`](crate::DbOptions)). Nothing is evicted for them. Meanwhile, the
    /// database can be used; a service that cannot wait calls this on a thread of its own.
    ///
    /// # Errors
    /// `Corruption` if the file is damaged or another one: delete it, and go on without; those of reading tables, after which
    /// the cache has the blocks that were read before; the database is closed.
    pub fn load_cache(&self, path: impl AsRef<Path>) -> Result<CacheLoaded> {
        self.load_cache_with(path, |_| true)
    }

    /// [`Db::load_cache`], which tells `progress` how far it has come, and ends when that returns false.
    ///
    /// # Errors
    /// Those of [`Db::load_cache`].
    pub fn load_cache_with(
        &self,
        path: impl AsRef<Path>,
        mut progress: impl FnMut(CacheProgress) -> bool,
    ) -> Result<CacheLoaded> {
        self.default_cf().check()?;
        let path = path.as_ref();
        let bytes = io::read_file(&*self.shared.env().fs, path, BYTES_MAX)?;
        let wanted = decode(&bytes).map_err(|e| {
            e.file(path)
                .hint("delete it: it only says which blocks to read into the cache")
        })?;
        let mut tables = self.tables();
        let total = wanted.values().map(|blocks| blocks.len() as u64).sum();
        let mut loaded = CacheLoaded::default();
        let (mut done, mut goes_on) = (0, true);
        let options = ReadOptions::default().for_tables();
        for (number, blocks) in &wanted {
            self.default_cf().check()?;
            // Not all tables are kept until the end: compactions may delete them meanwhile.
            if let Some(table) = tables.remove(number) {
                let mut read = 0;
                let warmed = table.reader()?.warm(blocks, &options, &mut |count| {
                    read += count as u64;
                    let done = done + read;
                    goes_on = progress(CacheProgress { done, total });
                    goes_on
                })?;
                loaded.blocks += warmed.blocks;
                loaded.bytes += warmed.bytes;
            }
            done += blocks.len() as u64;
            goes_on = goes_on && progress(CacheProgress { done, total });
            if !goes_on {
                break;
            }
        }
        loaded.skipped = total.saturating_sub(loaded.blocks);
        Ok(loaded)
    }

    /// All tables, by their numbers.
    fn tables(&self) -> BTreeMap<u64, Arc<TableFile>> {
        let mut all = BTreeMap::new();
        for family in self.shared.catalog.families.load().iter() {
            let version = Arc::clone(&family.view.load().version);
            for (_, file) in version.files() {
                let FileNumber(number) = file.meta.number;
                all.insert(number, Arc::clone(file));
            }
        }
        all
    }
}

fn encode(blocks: &Blocks) -> Vec<u8> {
    let mut out = Vec::new();
    put_u64(&mut out, MAGIC);
    for (number, blocks) in blocks {
        put_varint(&mut out, *number);
        put_varint(&mut out, blocks.len() as u64);
        let mut last = 0;
        for (offset, tier) in blocks {
            put_varint(&mut out, (offset - last) << 1 | (*tier as u64));
            last = *offset;
        }
    }
    let sum = mask(crc32c(&out));
    put_u32(&mut out, sum);
    out
}

/// Errors: `Corruption`.
fn decode(bytes: &[u8]) -> Result<Blocks> {
    let bad = |what: &str| Error::corruption(format!("a list of cached blocks: {what}"));
    let end = bytes.len().checked_sub(4);
    let (content, sum) = end
        .and_then(|end| Some((bytes.get(..end)?, u32_at(bytes, end)?)))
        .ok_or_else(|| bad("cut short"))?;
    let mut from = Decoder::new(content);
    if from.u64() != Some(MAGIC) {
        return Err(bad("it does not begin as one"));
    }
    if sum != mask(crc32c(content)) {
        return Err(bad("its checksum is wrong"));
    }
    let mut tables = Blocks::new();
    while !from.is_empty() {
        let (number, count) = from
            .varint64()
            .zip(from.varint64())
            .ok_or_else(|| bad("cut short"))?;
        let mut blocks = Vec::new();
        let mut last = 0_u64;
        for _ in 0..count {
            let next = from.varint64().ok_or_else(|| bad("cut short"))?;
            let offset = last.checked_add(next >> 1);
            last = offset.ok_or_else(|| bad("an offset that no file has"))?;
            let tier = if next & 1 == 0 {
                Tier::First
            } else {
                Tier::Second
            };
            blocks.push((last, tier));
        }
        blocks.dedup_by_key(|(offset, _)| *offset);
        if tables.insert(number, blocks).is_some() {
            return Err(bad("a table twice"));
        }
    }
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Blocks {
        let of = |offsets: &[u64]| -> Vec<_> {
            let tier = |o: u64| {
                if o.is_multiple_of(3) {
                    Tier::First
                } else {
                    Tier::Second
                }
            };
            offsets.iter().map(|&o| (o, tier(o))).collect()
        };
        Blocks::from([
            (7, of(&[0, 4096, 1 << 40])),
            (9, of(&[12])),
            (1 << 50, of(&[])),
        ])
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        for list in [Blocks::new(), some()] {
            assert_eq!(decode(&encode(&list)).unwrap(), list);
        }
    }

    #[test]
    fn a_damaged_list_is_refused() {
        let good = encode(&some());
        for len in 0..good.len() {
            assert!(decode(&good[..len]).unwrap_err().is_corruption(), "{len}");
        }
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bad).unwrap_err().is_corruption(), "{bit}");
        }
    }

    #[test]
    fn a_hostile_list_is_refused() {
        let sealed = |numbers: &[u64]| {
            let mut out = Vec::new();
            put_u64(&mut out, MAGIC);
            for n in numbers {
                put_varint(&mut out, *n);
            }
            let sum = mask(crc32c(&out));
            put_u32(&mut out, sum);
            decode(&out)
        };
        let error = |numbers: &[u64]| sealed(numbers).unwrap_err().to_string();
        assert!(error(&[7, u64::MAX, 2, 4]).contains("cut short"));
        assert!(error(&[7]).contains("cut short"));
        assert!(error(&[7, 0, 7, 0]).contains("a table twice"));
        let far = [7, 3, u64::MAX, u64::MAX, u64::MAX];
        assert!(error(&far).contains("an offset that no file has"));
        let twice = sealed(&[7, 3, 8, 0, 1]).unwrap();
        assert_eq!(twice[&7], [(4, Tier::First)]);
    }
}
