//! Ironstone and RocksDB take turns on one directory, with other options each time: each reads
//! what all turns before have written, and writes on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base::rng::Rng;
use ironstone::{
    ColumnFamilyDescriptor, Comparator, CompressionType, Db, Options, WriteBatch, WriteOptions,
};
use sim::content::{FamilyContent, difference, everything};
use sim::dirs;
use sim::oracle::{self, RocksDb, RocksOptions, ldb};
use table::ChecksumType;
use table::filter::FilterPolicy;

/// The environment variable with the number of turns of each run.
const SWITCHES: &str = "IRONSTONE_PINGPONG_SWITCHES";

const FAMILIES: [&str; 3] = ["default", "second", "reverse"];

/// What one turn does to a key.
#[derive(Clone, Debug)]
enum Change {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    /// Of a key that was written once.
    SingleDelete(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Player {
    Ironstone,
    /// The C API of the newest release at hand.
    Rocks,
    /// `ldb` of 7.8.3.
    Ldb,
}

struct Game {
    rng: Rng,
    temp: tempfile::TempDir,
    dir: PathBuf,
    crashes: u64,
    model: [BTreeMap<Vec<u8>, Vec<u8>>; 3],
    once: u64,
    /// Keys that were put once, by family: to be single-deleted.
    single: Vec<(usize, Vec<u8>)>,
    /// Only what 7.8.3 reads is written.
    classic: bool,
    entries: usize,
}

impl Game {
    fn new(seed: u64, classic: bool) -> Self {
        let temp = dirs::scratch().unwrap();
        Self {
            rng: Rng::new(seed),
            dir: temp.path().join("db"),
            temp,
            crashes: 0,
            model: Default::default(),
            once: 0,
            single: Vec::new(),
            classic,
            entries: 0,
        }
    }

    fn want(&self) -> Vec<FamilyContent> {
        let mut out: Vec<FamilyContent> = FAMILIES
            .iter()
            .zip(&self.model)
            .map(|(name, map)| {
                let pairs = map.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
                ((*name).to_owned(), pairs)
            })
            .collect();
        out[2].1.reverse();
        out
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.rng.below(of.len() as u64) as usize].clone()
    }

    /// A turn's changes, already in the model.
    fn changes(&mut self, player: Player) -> Vec<(usize, Change)> {
        let n = match player {
            Player::Ldb => 20,
            _ => 1 + self.rng.below(800),
        };
        let mut out = Vec::new();
        for _ in 0..n {
            let f = self.rng.below(3) as usize;
            let change = self.change(f, player);
            match &change {
                Change::Put(k, v) => drop(self.model[f].insert(k.clone(), v.clone())),
                Change::Delete(k) => drop(self.model[f].remove(k)),
                Change::SingleDelete(_) => {}
            }
            out.push((f, change));
        }
        if player == Player::Rocks {
            let n = self.single.len() / 2;
            for (f, key) in self.single.drain(..n).collect::<Vec<_>>() {
                self.model[f].remove(&key);
                out.push((f, Change::SingleDelete(key)));
            }
        }
        out
    }

    fn change(&mut self, f: usize, player: Player) -> Change {
        let len = match self.rng.below(300) {
            0 => 40_000,
            1..20 => 0,
            _ => self.rng.below(120),
        };
        let mut value = vec![0; len as usize];
        self.rng.fill(&mut value);
        let half = value.len() / 2;
        value[half..].fill(b'c');
        if self.rng.one_in(20) && player != Player::Ldb {
            self.once += 1;
            let key = format!("once{:06}", self.once).into_bytes();
            self.single.push((f, key.clone()));
            return Change::Put(key, value);
        }
        let n = self.rng.below(600);
        let key = match n {
            0 if player != Player::Ldb => Vec::new(),
            1..20 => vec![n as u8; 1 + n as usize % 5],
            _ => format!("key{:05}", n * 31 % 600).into_bytes(),
        };
        if self.rng.one_in(4) {
            Change::Delete(key)
        } else {
            Change::Put(key, value)
        }
    }

    fn ironstone_options(&mut self) -> Options {
        let mut o = Options::default();
        o.db.create_if_missing = true;
        o.db.create_missing_column_families = true;
        o.db.avoid_flush_during_recovery = self.rng.one_in(2);
        o.cf.cf.write_buffer_size = self.pick(&[16 << 10, 64 << 10, 4 << 20]);
        o.cf.cf.arena_block_size = 4096;
        o.cf.cf.level0_file_num_compaction_trigger = self.pick(&[2, 4]);
        o.cf.cf.target_file_size_base = self.pick(&[16 << 10, 1 << 20]);
        o.cf.cf.compression = self.pick(&[
            CompressionType::None,
            CompressionType::Snappy,
            CompressionType::Lz4,
            CompressionType::Zstd,
            CompressionType::Zlib,
        ]);
        let t = &mut o.cf.table;
        t.block_size = 1000;
        t.format_version = 2 + self.rng.below(4) as u32;
        if self.rng.one_in(2) {
            t.checksum = ChecksumType::Crc32c;
        }
        if self.rng.one_in(2) {
            t.filter_policy = FilterPolicy::Bloom { bits_per_key: 8.0 };
        }
        o
    }

    fn ironstone(&mut self) {
        let options = self.ironstone_options();
        let families = FAMILIES.map(|name| {
            let mut o = options.cf.clone();
            if name == "reverse" {
                o.comparator = Comparator::reverse_bytewise();
            }
            ColumnFamilyDescriptor::new(name, o)
        });
        let db = Db::open_cf(&self.dir, &options, &families).unwrap();
        self.compare(&everything(&db).unwrap());
        let cfs = FAMILIES.map(|name| db.column_family(name).unwrap());
        let mut batch = WriteBatch::new();
        for (f, change) in self.changes(Player::Ironstone) {
            match change {
                Change::Put(k, v) => batch.put_cf_id(cfs[f].id(), &k, &v).unwrap(),
                Change::Delete(k) => batch.delete_cf_id(cfs[f].id(), &k).unwrap(),
                Change::SingleDelete(_) => unreachable!("RocksDB's"),
            }
            if self.rng.one_in(3) {
                let options = WriteOptions {
                    sync: self.rng.one_in(10),
                    ..WriteOptions::default()
                };
                db.write_opt(&options, std::mem::take(&mut batch)).unwrap();
            }
            match self.rng.below(400) {
                0 => db.flush_cf(&cfs[f]).unwrap(),
                1 => db.compact_range(&cfs[f], None, None).unwrap(),
                _ => {}
            }
        }
        db.write(batch).unwrap();
        if self.rng.one_in(3) {
            // A crash: the next turn finds a copy of the open directory.
            db.wait_for_compact().unwrap();
            self.crashes += 1;
            let copy = self.temp.path().join(format!("crash{}", self.crashes));
            dirs::copy(&self.dir, &copy).unwrap();
            drop(db);
            self.dir = copy;
        } else {
            db.close().unwrap();
        }
    }

    fn rocks_options(
        &mut self,
        lib: &std::sync::Arc<oracle::Library>,
        reverse: bool,
    ) -> RocksOptions {
        let mut o = lib.options();
        o.create_if_missing(true);
        let versions: &[u32] = if self.classic {
            &[2, 3, 4, 5]
        } else {
            &[5, 6, 7]
        };
        let version = self.pick(versions);
        let checksum = self.pick(&["kCRC32c", "kXXH3", "kxxHash", "kxxHash64", "kNoChecksum"]);
        let filter = self.pick(&["nullptr", "bloomfilter:10:false", "ribbonfilter:10:-1"]);
        let index = self.pick(&[
            "kBinarySearch",
            "kTwoLevelIndexSearch",
            "kBinarySearchWithFirstKey",
        ]);
        let partition = index == "kTwoLevelIndexSearch" && self.rng.one_in(2);
        let table = format!(
            "{{block_size=1000;format_version={version};checksum={checksum};\
             filter_policy={filter};index_type={index};partition_filters={partition}}}"
        );
        let compression = self.pick(&[
            "kNoCompression",
            "kSnappyCompression",
            "kZSTD",
            "kLZ4Compression",
        ]);
        let write_buffer = self.pick(&[65_536, 4 << 20]);
        o.set_all(&format!(
            "block_based_table_factory={table};compression={compression};\
             write_buffer_size={write_buffer};level0_file_num_compaction_trigger=2;\
             target_file_size_base=32768;create_missing_column_families=true"
        ))
        .unwrap();
        if reverse {
            o.set("comparator", "rocksdb.ReverseBytewiseComparator")
                .unwrap();
        }
        o
    }

    fn rocks(&mut self, lib: &std::sync::Arc<oracle::Library>) {
        let plain = self.rocks_options(lib, false);
        let second = self.rocks_options(lib, false);
        let reverse = self.rocks_options(lib, true);
        let families = [
            ("default", &plain),
            ("second", &second),
            ("reverse", &reverse),
        ];
        let db = RocksDb::open_cf(&plain, &self.dir, &families).unwrap();
        let cfs = FAMILIES.map(|name| db.cf(name).unwrap());
        let have: Vec<FamilyContent> = FAMILIES
            .iter()
            .zip(cfs)
            .map(|(name, cf)| {
                (
                    (*name).to_owned(),
                    db.iterator_cf(cf).collect_all().unwrap(),
                )
            })
            .collect();
        self.compare(&have);
        for (name, map) in FAMILIES.iter().zip(&self.model) {
            let cf = db.cf(name).unwrap();
            for (k, v) in map {
                assert_eq!(db.get_cf(cf, k).unwrap().as_ref(), Some(v));
            }
        }
        for (f, change) in self.changes(Player::Rocks) {
            match change {
                Change::Put(k, v) => db.put_cf(cfs[f], &k, &v).unwrap(),
                Change::Delete(k) => db.delete_cf(cfs[f], &k).unwrap(),
                Change::SingleDelete(k) => db.single_delete_cf(cfs[f], &k).unwrap(),
            }
            match self.rng.below(400) {
                0 => db.flush_cf(cfs[f]).unwrap(),
                1 => db.compact_range(cfs[f], None, None),
                _ => {}
            }
        }
        db.close();
    }

    fn ldb(&mut self) {
        let have = ldb::scan_all(&self.dir, &FAMILIES).unwrap();
        self.compare(&have);
        let hex = |b: &[u8]| {
            let digits = b
                .iter()
                .fold(String::new(), |all, b| all + &format!("{b:02X}"));
            format!("0x{digits}")
        };
        for (f, change) in self.changes(Player::Ldb) {
            let family = format!("--column_family={}", FAMILIES[f]);
            let mut args = vec!["--hex", "--try_load_options", &family];
            let (k, v);
            match change {
                Change::Put(key, value) => {
                    (k, v) = (hex(&key), hex(&value));
                    args.extend(["put", &k, &v]);
                }
                Change::Delete(key) => {
                    k = hex(&key);
                    args.extend(["delete", &k]);
                }
                Change::SingleDelete(_) => unreachable!("the C API's"),
            }
            ldb::ldb(&self.dir, &args).unwrap();
        }
        if self.rng.one_in(2) {
            ldb::ldb(&self.dir, &["--try_load_options", "compact"]).unwrap();
        }
        ldb::check_consistency(&self.dir).unwrap();
    }

    fn compare(&mut self, have: &[FamilyContent]) {
        let want = self.want();
        self.entries += want.iter().map(|(_, pairs)| pairs.len()).sum::<usize>();
        assert_eq!(difference(&want, have), None);
    }

    fn turn(&mut self, player: Player, lib: &std::sync::Arc<oracle::Library>) {
        match player {
            Player::Ironstone => self.ironstone(),
            Player::Rocks => self.rocks(lib),
            Player::Ldb => self.ldb(),
        }
    }
}

fn play(seed: u64, classic: bool) {
    let Some(lib) = oracle::rocksdb() else { return };
    let turns: u64 = std::env::var(SWITCHES).map_or(60, |n| n.parse().unwrap());
    let with_ldb = classic && ldb::available();
    let mut game = Game::new(seed, classic);
    for turn in 0..turns {
        // Ironstone has every other turn; ldb follows Ironstone, whose OPTIONS file it loads.
        let player = match turn % 6 {
            3 if with_ldb => Player::Ldb,
            1 | 3 | 5 => Player::Rocks,
            _ => Player::Ironstone,
        };
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            game.turn(player, &lib);
        }));
        if let Err(cause) = played {
            eprintln!("seed {seed}, turn {turn} of {player:?}, classic: {classic}");
            keep(&game.dir);
            std::panic::resume_unwind(cause);
        }
    }
    game.turn(Player::Ironstone, &lib);
    eprintln!(
        "turns on one directory: {turns}, {} crashes, {} entries compared, 7.8.3 took part: {with_ldb}",
        game.crashes, game.entries
    );
}

/// Keeps what a failed turn left, for a look at it.
fn keep(dir: &Path) {
    let to = std::env::temp_dir().join(format!("ironstone-pingpong-{}", std::process::id()));
    if dirs::copy(dir, &to).is_ok() {
        eprintln!("the directory is kept in {}", to.display());
    }
}

#[test]
fn ironstone_and_three_releases_take_turns() {
    play(1, true);
}

#[test]
fn ironstone_and_the_newest_formats_take_turns() {
    play(2, false);
}
