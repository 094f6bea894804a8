//! Which data blocks a block cache has, kept in a file: so that the next process that opens the database reads them before
//! they are asked for.
//!
//! ```text
//!   "ISCACHE1" | table… | u32 masked CRC32C of all before
//!   table:  varint file number | varint count | varint (offset after the last one × 2 + tier)…
//! ```
//!
//! The file names blocks and does not contain them. What is read is checked as always, so an old file, or that of another
//! database, costs reads and cannot give wrong values.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use base::checksum::{crc32c, mask};
use base::coding::{Decoder, put_u32, put_varint, u32_at};
use base::{Error, FileNumber, Result};
use manifest::TableFile;
use table::{Tier, Warmed};

use crate::read::options::ReadOptions;

use super::Db;

const MAGIC: &[u8] = b"ISCACHE1";
/// A longer file is refused, and not written: it would name more blocks than most caches have.
const BYTES_MAX: u64 = 256 << 20;
/// At most so many blocks of a table are named.
const BLOCKS_MAX: usize = 1 << 24;

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

/// Blocks of a table, ascending.
type Blocks = Vec<(u64, Tier)>;

/// The block cache's content, from one process to the next.
impl Db {
    /// Writes down which data blocks of this database are in the block cache, for [`Db::load_cache`]: their places, in 2 to 4
    /// bytes each, not the blocks themselves. To be called before a database is closed, or from time to time, but not twice at
    /// the same time with one path. Replaces the file, and leaves the old one if it fails. Returns the number of blocks.
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
        let mut blocks: BTreeMap<u64, Blocks> = BTreeMap::new();
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
        let (list, count) = encode(&blocks, BYTES_MAX as usize);
        io::replace_file(fs, path, Path::new(&temp), &list)?;
        Ok(count)
    }

    /// Reads the blocks that a file of [`Db::dump_cache`] names into the block cache: in the order of the files, neighbours
    /// together, many at once ([`DbOptions::read_io_mode`](crate::DbOptions)). No block is evicted for them; what has no room is
    /// skipped. Blocks of indexes and filters, which the list does not name, are read when they are needed. Meanwhile, the database can be used; a service that cannot wait calls this on a thread of its own.
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
        // Held weakly: a table that compactions replace meanwhile is deleted, and not read.
        let tables = self.tables();
        let tables: BTreeMap<_, _> = tables
            .iter()
            .map(|(number, table)| (*number, Arc::downgrade(table)))
            .collect();
        let list = List::new(&bytes, &|number| tables.contains_key(&number)).map_err(|e| {
            e.file(path)
                .hint("delete it: it only says which blocks to read into the cache")
        })?;
        let (mut done, total) = (0, list.blocks);
        let (mut warmed, mut goes_on) = (Warmed::default(), true);
        let options = ReadOptions::default().for_tables();
        for (number, table) in tables {
            self.default_cf().check()?;
            let blocks = list.blocks_of(number);
            let mut read = done;
            if let Some(table) = table.upgrade().filter(|_| !blocks.is_empty()) {
                let reader = table.reader()?;
                reader.warm(&blocks, &options, &mut warmed, &mut |count| {
                    read += count as u64;
                    goes_on = progress(CacheProgress { done: read, total });
                    goes_on
                })?;
            }
            done += blocks.len() as u64;
            goes_on = goes_on && (blocks.is_empty() || progress(CacheProgress { done, total }));
            if !goes_on {
                break;
            }
        }
        if goes_on {
            progress(CacheProgress { done: total, total });
        }
        Ok(CacheLoaded {
            blocks: warmed.blocks,
            bytes: warmed.bytes,
            skipped: total.saturating_sub(warmed.blocks),
        })
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

/// The list, with as many tables as fit into `bytes_max` bytes, and how many blocks it names.
fn encode(tables: &BTreeMap<u64, Blocks>, bytes_max: usize) -> (Vec<u8>, u64) {
    let (mut out, mut count) = (MAGIC.to_vec(), 0);
    for (number, blocks) in tables.iter().filter(|(_, blocks)| !blocks.is_empty()) {
        let start = out.len();
        let blocks = blocks.get(..BLOCKS_MAX).unwrap_or(blocks);
        put_varint(&mut out, *number);
        put_varint(&mut out, blocks.len() as u64);
        let mut last = 0;
        for (offset, tier) in blocks {
            put_varint(&mut out, (offset - last) << 1 | (*tier as u64));
            last = *offset;
        }
        if out.len() + 4 > bytes_max {
            out.truncate(start);
            break;
        }
        count += blocks.len() as u64;
    }
    let sum = mask(crc32c(&out));
    put_u32(&mut out, sum);
    (out, count)
}

/// A file of [`encode`], checked. The blocks of a table are decoded when they are needed: they take more memory then.
struct List<'a> {
    /// Where the blocks of each table are that the database has, and how many.
    tables: BTreeMap<u64, (&'a [u8], u64)>,
    /// How many all tables have, also those that are gone.
    blocks: u64,
}

impl<'a> List<'a> {
    /// Errors: `Corruption`.
    fn new(bytes: &'a [u8], is_there: &dyn Fn(u64) -> bool) -> Result<Self> {
        let bad = |what: &str| Error::corruption(format!("a list of cached blocks: {what}"));
        let end = bytes.len().checked_sub(4);
        let (content, sum) = end
            .and_then(|end| Some((bytes.get(..end)?, u32_at(bytes, end)?)))
            .ok_or_else(|| bad("cut short"))?;
        let tables = content.strip_prefix(MAGIC);
        let mut from = Decoder::new(tables.ok_or_else(|| bad("it does not begin as one"))?);
        if sum != mask(crc32c(content)) {
            return Err(bad("its checksum is wrong"));
        }
        let mut list = Self {
            tables: BTreeMap::new(),
            blocks: 0,
        };
        while !from.is_empty() {
            let head = from.varint64().zip(from.varint64());
            let (number, count) = head.ok_or_else(|| bad("cut short"))?;
            if !(1..=BLOCKS_MAX as u64).contains(&count) {
                return Err(bad("a table without blocks, or with too many"));
            }
            let blocks = from.rest();
            let mut last = None;
            for _ in 0..count {
                let (offset, _) = next_block(&mut from, last)
                    .ok_or_else(|| bad("cut short, or no offset of a block"))?;
                last = Some(offset);
            }
            list.blocks += count;
            if is_there(number) && list.tables.insert(number, (blocks, count)).is_some() {
                return Err(bad("a table twice"));
            }
        }
        Ok(list)
    }

    fn blocks_of(&self, number: u64) -> Blocks {
        let Some(&(bytes, count)) = self.tables.get(&number) else {
            return Vec::new();
        };
        let (mut from, mut last) = (Decoder::new(bytes), None);
        let blocks = (0..count).map_while(|_| {
            let block = next_block(&mut from, last)?;
            last = Some(block.0);
            Some(block)
        });
        blocks.collect()
    }
}

/// The next block, which comes after the `last` one. `None` if there is none, or it does not.
fn next_block(from: &mut Decoder<'_>, last: Option<u64>) -> Option<(u64, Tier)> {
    let next = from.varint64()?;
    let tier = if next & 1 == 0 {
        Tier::First
    } else {
        Tier::Second
    };
    let offset = last.unwrap_or(0).checked_add(next >> 1)?;
    (last != Some(offset)).then_some((offset, tier))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> BTreeMap<u64, Blocks> {
        let of = |offsets: &[u64]| -> Blocks {
            let tier = |o: u64| {
                if o.is_multiple_of(3) {
                    Tier::First
                } else {
                    Tier::Second
                }
            };
            offsets.iter().map(|&o| (o, tier(o))).collect()
        };
        BTreeMap::from([
            (7, of(&[0, 4096, 1 << 40])),
            (9, of(&[12])),
            (1 << 50, of(&[5, 6])),
        ])
    }

    #[test]
    fn a_list_is_read_as_it_was_written() {
        for tables in [BTreeMap::new(), some()] {
            let (bytes, count) = encode(&tables, 1000);
            let list = List::new(&bytes, &|_| true).unwrap();
            assert_eq!(count, tables.values().map(Vec::len).sum::<usize>() as u64);
            assert_eq!((list.tables.len(), list.blocks), (tables.len(), count));
            let known = List::new(&bytes, &|number| number == 9).unwrap();
            assert_eq!((known.tables.len() <= 1, known.blocks), (true, count));
            for (number, blocks) in tables {
                assert_eq!(list.blocks_of(number), blocks);
            }
            assert!(list.blocks_of(3).is_empty());
        }
    }

    #[test]
    fn a_list_has_as_many_tables_as_fit() {
        let (whole, _) = encode(&some(), 1000);
        let (bytes, count) = encode(&some(), whole.len() - 1);
        assert!(bytes.len() < whole.len() && count == 4);
        assert_eq!(List::new(&bytes, &|_| true).unwrap().blocks, 4);
        assert_eq!(encode(&some(), 0), encode(&BTreeMap::new(), 0));
    }

    fn error(bytes: &[u8]) -> String {
        let e = List::new(bytes, &|_| true).err().unwrap();
        assert!(e.is_corruption());
        e.to_string()
    }

    #[test]
    fn a_damaged_list_is_refused() {
        let (good, _) = encode(&some(), 1000);
        for len in 0..good.len() {
            error(&good[..len]);
        }
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            error(&bad);
        }
    }

    #[test]
    fn a_hostile_list_is_refused() {
        let error_of = |numbers: &[u64]| {
            let mut out = MAGIC.to_vec();
            for n in numbers {
                put_varint(&mut out, *n);
            }
            let sum = mask(crc32c(&out));
            put_u32(&mut out, sum);
            error(&out)
        };
        assert!(error_of(&[7, u64::MAX, 2, 4]).contains("too many"));
        assert!(error_of(&[7, 0]).contains("a table without blocks"));
        assert!(error_of(&[7, 3, 2, 4]).contains("cut short"));
        assert!(error_of(&[7]).contains("cut short"));
        assert!(error_of(&[7, 1, 0, 7, 1, 0]).contains("a table twice"));
        let far = [7, 3, u64::MAX, u64::MAX, u64::MAX];
        assert!(error_of(&far).contains("no offset of a block"));
        assert!(
            error_of(&[7, 3, 8, 0, 2]).contains("no offset of a block"),
            "twice"
        );
    }
}
