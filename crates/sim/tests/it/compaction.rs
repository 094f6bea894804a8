//! Compactions beside RocksDB: the same shape of the tree, no more bytes written, and each engine goes on
//! with the other's layout; and tests of what only Ironstone does.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::rng::Rng;
use ironstone::{
    BottommostLevelCompaction, CompactRangeOptions, CompactionOptions, CompactionStyle,
    CompressionType, Db, ErrorKind, Options, PartitionerContext, PartitionerRequest,
    SstPartitioner, SstPartitionerFactory, SstPartitionerFixedPrefix,
};
use ironstone::{CompactionOptionsFifo, CompactionOptionsUniversal, PerLevel};
use sim::oracle::content::everything;
use sim::oracle::{self, Library, RocksDb, RocksOptions};
use sim::{corpus, dirs};

const KIB: u64 = 1 << 10;

/// Small sizes, so that a few megabytes make a tree of several levels.
fn small() -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o.cf.write_buffer_size = 64 * KIB;
    o.cf.target_file_size_base = 64 * KIB;
    o.cf.max_bytes_for_level_base = 256 * KIB;
    o.cf.max_bytes_for_level_multiplier = 4.0;
    o.cf.compression = CompressionType::None;
    o
}

/// The same for RocksDB.
fn small_rocks(lib: &Arc<Library>) -> RocksOptions {
    let mut o = lib.options();
    o.create_if_missing(true).compression(0);
    o.set_all(
        "write_buffer_size=65536;arena_block_size=8192;target_file_size_base=65536;\
         max_bytes_for_level_base=262144;max_bytes_for_level_multiplier=4",
    )
    .unwrap();
    o
}

/// A level's files: number and bytes of each.
type Level = Vec<(u64, u64)>;

fn shape(db: &Db) -> Vec<Level> {
    let mut out: Vec<Level> = Vec::new();
    for line in db.property("rocksdb.sstables").unwrap().lines() {
        if line.starts_with("--- level") {
            out.push(Vec::new());
            continue;
        }
        let (number, rest) = line.trim().split_once(':').unwrap();
        let bytes = rest.split_once('[').unwrap().0;
        let file = (number.parse().unwrap(), bytes.parse().unwrap());
        out.last_mut().unwrap().push(file);
    }
    out
}

fn bytes(level: &Level) -> u64 {
    level.iter().map(|f| f.1).sum()
}

fn number(db: &Db, name: &str) -> u64 {
    db.property(name).unwrap().parse().unwrap()
}

fn key(n: u64) -> Vec<u8> {
    format!("key{n:08}").into_bytes()
}

/// Overwrites at random: `puts` of `keys` keys with values of 200 bytes.
fn overwrite(seed: u64, keys: u64, puts: u64, mut put: impl FnMut(&[u8], &[u8])) {
    let mut rng = Rng::new(seed);
    let mut value = [0u8; 200];
    for _ in 0..puts {
        for chunk in value.chunks_mut(8) {
            chunk.copy_from_slice(&rng.below(u64::MAX).to_le_bytes());
        }
        put(&key(rng.below(keys)), &value);
    }
}

/// What the LOG reports as written, by output level: compactions and bytes.
fn by_level(dir: &Path) -> BTreeMap<u64, (u64, u64)> {
    let mut out: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let log = std::fs::read_to_string(dir.join("LOG")).unwrap();
    for line in log
        .lines()
        .filter(|l| l.contains("\"compaction_finished\""))
    {
        let field = |name: &str| -> u64 {
            let rest = line.split_once(&format!("\"{name}\": ")).unwrap().1;
            rest.split([',', '}'])
                .next()
                .unwrap()
                .trim()
                .parse()
                .unwrap()
        };
        let level = out.entry(field("output_level")).or_default();
        level.0 += 1;
        level.1 += field("total_output_size");
    }
    out
}

/// What an engine did in the workload.
#[derive(Debug)]
struct Outcome {
    base_level: u64,
    pending: u64,
    compactions: BTreeMap<u64, (u64, u64)>,
    shape: Vec<Level>,
}

impl Outcome {
    fn read(dir: &Path, compactions: BTreeMap<u64, (u64, u64)>) -> Self {
        let db = Db::open_read_only(dir, &small()).unwrap();
        Self {
            base_level: number(&db, "rocksdb.base-level"),
            pending: number(&db, "rocksdb.estimate-pending-compaction-bytes"),
            compactions,
            shape: shape(&db),
        }
    }

    fn written(&self) -> u64 {
        self.compactions.values().map(|c| c.1).sum()
    }
}

/// Each flush waits for the compactions that it makes due, so that nothing depends on time.
#[test]
fn the_tree_has_rocksdbs_shape_for_no_more_writing() {
    let Some(lib) = oracle::rocksdb() else { return };
    let temp = dirs::scratch().unwrap();
    let (keys, rounds, puts) = (8_000, 120, 260);

    let dir = temp.path().join("theirs");
    let mut options = small_rocks(&lib);
    // Only the calls flush.
    options.set("write_buffer_size", "1048576").unwrap();
    let rocks = RocksDb::open(&options, &dir).unwrap();
    for round in 0..rounds {
        overwrite(round, keys, puts, |k, v| rocks.put(k, v).unwrap());
        rocks.flush().unwrap();
        rocks.wait_for_compaction().unwrap();
    }
    let property = |name: &str| -> u64 { rocks.property(name).unwrap().parse().unwrap() };
    let base = property("rocksdb.base-level");
    let pending = property("rocksdb.estimate-pending-compaction-bytes");
    rocks.close();
    let theirs = Outcome::read(&dir, by_level(&dir));
    // Our numbers about their tree are the same as theirs.
    assert_eq!((theirs.base_level, theirs.pending), (base, pending));

    let dir = temp.path().join("ours");
    let mut options = small();
    options.cf.write_buffer_size = 1 << 20;
    let db = Db::open(&dir, &options).unwrap();
    for round in 0..rounds {
        overwrite(round, keys, puts, |k, v| db.put(k, v).unwrap());
        db.flush().unwrap();
        db.wait_for_compact().unwrap();
    }
    let want = everything(&db).unwrap();
    db.close().unwrap();
    let ours = Outcome::read(&dir, by_level(&dir));
    let describe = |o: &Outcome| {
        let sizes: Vec<u64> = o.shape.iter().map(bytes).collect();
        format!(
            "levels {sizes:?}, compactions {:?}, {} bytes",
            o.compactions,
            o.written()
        )
    };
    eprintln!(
        "RocksDB: {}\nours:    {}",
        describe(&theirs),
        describe(&ours)
    );

    assert_eq!(ours.base_level, base);
    for (level, files) in ours.shape.iter().enumerate().skip(1) {
        let (have, want) = (bytes(files), bytes(&theirs.shape[level]));
        // Two files and an eighth.
        let slack = 128 * KIB + want / 8;
        assert!(
            have.abs_diff(want) <= slack,
            "L{level}: {have}, RocksDB {want}"
        );
    }
    assert!(ours.written() <= theirs.written() * 102 / 100);
    // RocksDB reads the database.
    assert_eq!(
        oracle::scan(&lib, &dir, |_| Ok(small_rocks(&lib))).unwrap(),
        want
    );
}

/// The three styles, for both.
fn styles(lib: &Arc<Library>) -> Vec<(&'static str, Options, RocksOptions)> {
    let mut out = Vec::new();
    for style in [
        "level",
        "level, fixed",
        "universal",
        "universal, moving",
        "fifo",
    ] {
        let (mut ours, mut theirs) = (small(), small_rocks(lib));
        match style {
            "level" => {}
            "level, fixed" => {
                ours.cf.level_compaction_dynamic_level_bytes = false;
                theirs
                    .set("level_compaction_dynamic_level_bytes", "false")
                    .unwrap();
            }
            "fifo" => {
                ours.cf.compaction_style = CompactionStyle::Fifo;
                ours.cf.compaction_options_fifo = CompactionOptionsFifo {
                    max_table_files_size: 1 << 30,
                    allow_compaction: true,
                };
                theirs
                    .set_all(
                        "compaction_style=kCompactionStyleFIFO;\
                         compaction_options_fifo={allow_compaction=true;}",
                    )
                    .unwrap();
            }
            _ => {
                let moves = style != "universal";
                ours.cf.compaction_style = CompactionStyle::Universal;
                ours.cf.compaction_options_universal = CompactionOptionsUniversal {
                    allow_trivial_move: moves,
                    ..Default::default()
                };
                theirs
                    .set_all(&format!(
                        "compaction_style=kCompactionStyleUniversal;\
                         compaction_options_universal={{allow_trivial_move={moves};}}"
                    ))
                    .unwrap();
            }
        }
        out.push((style, ours, theirs));
    }
    out
}

#[test]
fn both_take_turns_in_every_style() {
    let Some(lib) = oracle::rocksdb() else { return };
    for (style, ours, theirs) in styles(&lib) {
        let temp = dirs::scratch().unwrap();
        let dir = temp.path().join("db");
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for turn in 0..6u64 {
            let mut rng = Rng::new(turn);
            let sequential = turn % 3 == 0;
            let mut changes = Vec::new();
            overwrite(turn, 2_000, 1_500, |k, v| {
                let k = if sequential {
                    key(turn * 10_000 + changes.len() as u64)
                } else {
                    k.to_vec()
                };
                let v = (rng.below(4) > 0).then(|| v.to_vec());
                changes.push((k, v));
            });
            for (k, v) in &changes {
                match v {
                    Some(v) => drop(model.insert(k.clone(), v.clone())),
                    None => drop(model.remove(k)),
                }
            }
            if turn % 2 == 0 {
                let db = RocksDb::open(&theirs, &dir).unwrap();
                for (k, v) in &changes {
                    match v {
                        Some(v) => db.put(k, v).unwrap(),
                        None => db.delete(k).unwrap(),
                    }
                }
                db.flush().unwrap();
                db.wait_for_compaction().unwrap();
                db.close();
            } else {
                let db = Db::open(&dir, &ours).unwrap();
                for (k, v) in &changes {
                    match v {
                        Some(v) => db.put(k, v).unwrap(),
                        None => db.delete(k).unwrap(),
                    }
                }
                db.flush().unwrap();
                db.wait_for_compact().unwrap();
                if turn == 3 {
                    let cf = db.default_column_family();
                    db.cf(&cf).compact_range(None, None).unwrap();
                }
                db.close().unwrap();
            }
            let want: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
            let db = Db::open_read_only(&dir, &ours).unwrap();
            assert!(
                everything(&db).unwrap()[0].1 == want,
                "{style}, turn {turn}: ours"
            );
            drop(db);
            let have = oracle::scan(&lib, &dir, |_| Ok(small_rocks(&lib))).unwrap();
            assert!(have[0].1 == want, "{style}, turn {turn}: theirs");
        }
    }
}

#[test]
fn layouts_of_the_corpus_are_compacted() {
    let (Some(lib), Some(entries)) = (oracle::rocksdb(), corpus::entries()) else {
        return;
    };
    let mut count = 0;
    for entry in entries {
        let style = match entry.scenario() {
            "universal" => CompactionStyle::Universal,
            "levels" => CompactionStyle::Level,
            _ => continue,
        };
        let temp = dirs::scratch().unwrap();
        let dir = temp.path().join("db");
        dirs::copy(&entry.db(), &dir).unwrap();
        let mut options = Options::default();
        options.cf.compaction_style = style;
        options.cf.max_bytes_for_level_base = 64 * KIB;
        options.cf.target_file_size_base = 16 * KIB;
        let want = entry.expected().unwrap();
        for force in [false, true] {
            let db = Db::open_all(&dir, &options).unwrap();
            db.wait_for_compact().unwrap();
            let how = CompactRangeOptions {
                bottommost_level_compaction: if force {
                    BottommostLevelCompaction::Force
                } else {
                    BottommostLevelCompaction::default()
                },
                ..Default::default()
            };
            for cf in db.column_families() {
                db.cf(&cf).with(&how).compact_range(None, None).unwrap();
            }
            assert!(everything(&db).unwrap() == want, "{}", entry.name);
            db.close().unwrap();
        }
        let have = oracle::scan(&lib, &dir, |_| Ok(lib.options())).unwrap();
        assert!(have == want, "{}", entry.name);
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn compactions_of_one_family_run_side_by_side_and_in_parts() {
    let temp = dirs::scratch().unwrap();
    let mut options = small();
    options.db.max_background_jobs = 6;
    options.db.max_subcompactions = 3;
    let dir = temp.path().join("db");
    let db = Db::open(&dir, &options).unwrap();
    let mut model = BTreeMap::new();
    overwrite(11, 6_000, 30_000, |k, v| {
        db.put(k, v).unwrap();
        model.insert(k.to_vec(), v.to_vec());
    });
    db.flush().unwrap();
    db.wait_for_compact().unwrap();
    let want: Vec<_> = model.into_iter().collect();
    assert!(everything(&db).unwrap()[0].1 == want);
    db.close().unwrap();
    let log = std::fs::read_to_string(dir.join("LOG")).unwrap();
    let (mut open, mut together, mut parts) = (0i32, 0, false);
    for line in log.lines() {
        open += i32::from(line.contains("\"compaction_started\""));
        open -= i32::from(line.contains("\"compaction_finished\""));
        together = together.max(open);
        parts |= line.contains("\"num_subcompactions\": 2")
            || line.contains("\"num_subcompactions\": 3");
    }
    assert!(together > 1, "never two at a time");
    assert!(parts, "never in parts");
    let db = Db::open(&dir, &options).unwrap();
    assert!(everything(&db).unwrap()[0].1 == want);
}

fn filled(dir: &Path, options: &Options, keys: u64) -> Db {
    let db = Db::open(dir, options).unwrap();
    for round in 0..3u64 {
        for n in 0..keys {
            db.put(key(n), format!("{round}-{n}-{}", "x".repeat(100)))
                .unwrap();
        }
        db.flush().unwrap();
    }
    db
}

#[test]
fn compactions_by_call_can_be_steered() {
    let temp = dirs::scratch().unwrap();
    let mut options = small();
    options.cf.disable_auto_compactions = true;
    options.cf.level_compaction_dynamic_level_bytes = false;
    let db = filled(&temp.path().join("db"), &options, 3_000);
    let cf = db.default_column_family();
    assert!(shape(&db)[0].len() >= 3);
    let run = |how: &CompactRangeOptions| db.cf(&cf).with(how).compact_range(None, None);

    let canceled = CompactRangeOptions {
        canceled: Some(Arc::new(AtomicBool::new(true))),
        ..Default::default()
    };
    let e = run(&canceled).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Incomplete, "{e}");

    run(&CompactRangeOptions {
        exclusive_manual_compaction: true,
        change_level: true,
        target_level: 4,
        max_subcompactions: 4,
        ..Default::default()
    })
    .unwrap();
    let at: Vec<usize> = shape(&db).iter().map(Vec::len).collect();
    assert!(at[4] > 1, "{at:?}");
    assert_eq!(at.iter().sum::<usize>(), at[4]);

    // A file that does not exist, a level that does not exist, and files for a level of the caller's
    // choice.
    let how = CompactionOptions::default();
    let e = db
        .cf(&cf)
        .with(&how)
        .compact_files(&[999_999], 5)
        .unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
    let files: Vec<u64> = shape(&db)[4].iter().map(|f| f.0).collect();
    let e = db
        .cf(&cf)
        .with(&how)
        .compact_files(&files[..1], 7)
        .unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
    db.cf(&cf).with(&how).compact_files(&files[..2], 5).unwrap();
    let now = shape(&db);
    assert_eq!((now[4].len(), now[5].len()), (files.len() - 2, 1));

    // Writes go on while background work is paused; a suggestion is followed when it continues.
    db.pause_background_work().unwrap();
    db.put("more", "1").unwrap();
    db.continue_background_work().unwrap();
    assert!(db.continue_background_work().is_err());
    assert_eq!(everything(&db).unwrap()[0].1.len(), 3_001);
    db.cancel_all_background_work(true);
    let e = db.cf(&cf).compact_range(None, None).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::ShutdownInProgress, "{e}");
    assert_eq!(db.get("more").unwrap().unwrap(), b"1");
}

#[test]
fn a_running_compaction_is_canceled_and_a_suggestion_is_followed() {
    let temp = dirs::scratch().unwrap();
    let mut options = small();
    options.cf.level0_file_num_compaction_trigger = 20;
    options.cf.max_bytes_for_level_base = 1 << 30;
    options.cf.level_compaction_dynamic_level_bytes = false;
    let db = filled(&temp.path().join("db"), &options, 1_500);
    let cf = db.default_column_family();
    let flag = Arc::new(AtomicBool::new(false));
    let how = CompactRangeOptions {
        canceled: Some(Arc::clone(&flag)),
        ..Default::default()
    };
    std::thread::scope(|scope| {
        let call = scope.spawn(|| db.cf(&cf).with(&how).compact_range(None, None));
        flag.store(true, Ordering::Relaxed);
        // It may also be too late to cancel.
        if let Err(e) = call.join().unwrap() {
            assert_eq!(e.kind(), ErrorKind::Incomplete, "{e}");
        }
    });
    for n in 0..1_500u64 {
        db.put(key(n), "last").unwrap();
    }
    db.flush().unwrap();
    db.cf(&cf).suggest_compact_range(None, None).unwrap();
    db.wait_for_compact().unwrap();
    let at: Vec<usize> = shape(&db).iter().map(Vec::len).collect();
    assert_eq!(at[0], 0, "{at:?}");
    let all = everything(&db).unwrap().remove(0).1;
    assert_eq!(all.len(), 1_500);
    assert!(all.iter().all(|(_, v)| v == b"last"));
}

#[test]
fn files_end_where_the_partitioner_wants_and_are_compressed_by_level() {
    let temp = dirs::scratch().unwrap();
    let dir = temp.path().join("db");
    let mut options = small();
    options.cf.sst_partitioner_factory = Some(Arc::new(SstPartitionerFixedPrefix::new(8)));
    options.cf.compression_per_level = PerLevel(vec![CompressionType::None, CompressionType::Lz4]);
    options.cf.bottommost_compression = ironstone::BottommostCompression::Zstd;
    let db = filled(&dir, &options, 3_000);
    let cf = db.default_column_family();
    db.cf(&cf).compact_range(None, None).unwrap();
    let lowest = shape(&db);
    let lowest = lowest.last().unwrap();
    // key00000 to key00002, as the first eight bytes have it… all are `key00000`.
    assert!(!lowest.is_empty());
    for (file, _) in lowest {
        let path = dir.join(format!("{file:06}.sst"));
        let text = std::fs::read(&path).unwrap();
        let has = |what: &[u8]| text.windows(what.len()).any(|w| w == what);
        assert!(has(b"ZSTD"), "{file}");
    }
    drop(db);
    options.cf.sst_partitioner_factory = Some(Arc::new(SstPartitionerFixedPrefix::new(9)));
    let db = Db::open(&dir, &options).unwrap();
    let how = CompactRangeOptions {
        bottommost_level_compaction: BottommostLevelCompaction::Force,
        ..Default::default()
    };
    db.with(&how).compact_range(None, None).unwrap();
    for line in db.property("rocksdb.sstables").unwrap().lines() {
        // number:size[sequences]['smallest key' … .. 'largest key' …], the keys in hexadecimal
        let parts: Vec<&str> = line.split('\'').collect();
        if let [_, a, _, b, _] = parts[..] {
            assert_eq!(a[..18], b[..18], "{line}");
        }
    }
    assert_eq!(everything(&db).unwrap()[0].1.len(), 3_000);
}

/// Forbids trivial moves, and cuts nowhere.
#[derive(Debug)]
struct NoMoves;

impl SstPartitionerFactory for NoMoves {
    fn name(&self) -> &'static str {
        "NoMoves"
    }

    fn create_partitioner(&self, _: &PartitionerContext<'_>) -> Option<Box<dyn SstPartitioner>> {
        Some(Box::new(Self))
    }
}

impl SstPartitioner for NoMoves {
    fn should_partition(&mut self, _: &PartitionerRequest<'_>) -> bool {
        false
    }

    fn can_do_trivial_move(&mut self, _: &[u8], _: &[u8]) -> bool {
        false
    }
}

/// Files of level 0 were to be moved to both sides of a file of level 1. The partitioner forbade trivial
/// moves, and they were merged into one table that overlapped the file between them: the database refused
/// writes, again after each `resume`. Found by chaos, seed 10048.
#[test]
fn what_may_not_be_moved_is_not_merged_over_what_lies_between() {
    let temp = dirs::scratch().unwrap();
    let mut o = small();
    o.cf.num_levels = 3;
    o.cf.level_compaction_dynamic_level_bytes = false;
    o.cf.level0_file_num_compaction_trigger = 2;
    o.cf.sst_partitioner_factory = Some(Arc::new(NoMoves));
    let db = Db::open(temp.path(), &o).unwrap();
    let cf = db.default_column_family();
    let flush = |keys: [&str; 2], bytes: usize| {
        for key in keys {
            db.put(key, vec![b'v'; bytes]).unwrap();
        }
        db.flush().unwrap();
    };
    flush(["m", "n"], 10);
    db.cf(&cf).compact_range(None, None).unwrap();
    assert_eq!(shape(&db)[1].len(), 1);
    db.cf(&cf)
        .set_options(&[("disable_auto_compactions", "true")])
        .unwrap();
    flush(["a", "b"], 10_000);
    flush(["y", "z"], 10_000);
    db.cf(&cf)
        .set_options(&[("disable_auto_compactions", "false")])
        .unwrap();
    db.wait_for_compact().unwrap();
    let files: Vec<usize> = shape(&db).iter().map(Vec::len).collect();
    assert_eq!(files, [1, 2, 0]);
    assert_eq!(everything(&db).unwrap()[0].1.len(), 6);
}

/// A change of level moves files as they are. Files of level 0 overlap, and FIFO leaves them there. A
/// manual compaction moved them all to level 1, where no reader expects overlaps, and the database did not
/// open again.
#[test]
fn overlapping_files_of_level_0_are_not_moved() {
    let temp = dirs::scratch().unwrap();
    let mut o = small();
    o.cf.compaction_style = CompactionStyle::Fifo;
    let db = Db::open(temp.path(), &o).unwrap();
    let cf = db.default_column_family();
    for i in 0..3 {
        for key in ["a", "m", "z"] {
            db.put(key, i.to_string()).unwrap();
        }
        db.flush().unwrap();
    }
    let before = everything(&db).unwrap();
    let change = CompactRangeOptions {
        change_level: true,
        target_level: 1,
        ..CompactRangeOptions::default()
    };
    let e = db
        .cf(&cf)
        .with(&change)
        .compact_range(None, None)
        .unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NotSupported, "{e}");
    assert!(e.to_string().contains("may overlap"), "{e}");
    assert_eq!(everything(&db).unwrap(), before);
    db.close().unwrap();
    let db = Db::open(temp.path(), &o).unwrap();
    assert_eq!(everything(&db).unwrap(), before);
}

/// The size of a table while it is written is an estimate, which falls when a block turns out to be small.
/// With `bytes_per_sync` the negative difference became a huge number.
#[test]
fn write_back_follows_an_estimate_that_falls() {
    let temp = dirs::scratch().unwrap();
    let mut o = small();
    o.db.bytes_per_sync = 100;
    o.cf.compression = CompressionType::Zstd;
    o.cf.compression_opts.max_dict_bytes = 1000;
    o.cf.table.block_size = 500;
    let db = Db::open(temp.path(), &o).unwrap();
    for i in 0..2000 {
        db.put(format!("key{i:05}"), "the same text ".repeat(10))
            .unwrap();
    }
    db.flush().unwrap();
    let cf = db.default_column_family();
    db.cf(&cf).compact_range(None, None).unwrap();
    assert_eq!(everything(&db).unwrap()[0].1.len(), 2000);
}
