//! Manual compactions beside RocksDB's: on copies of the same database, both engines compact the same files
//! to the same levels, and leave the same tree.

use std::path::Path;
use std::sync::Arc;

use ironstone::{BottommostLevelCompaction, CompactRangeOptions, CompactionStyle, Db, Options};
use sim::dirs;
use sim::oracle::content::everything;
use sim::oracle::{self, Library, RocksDb, RocksOptions};

/// The tree at the start: the level of each file and its keys, from the oldest file on.
struct Tree {
    name: &'static str,
    style: CompactionStyle,
    dynamic: bool,
    num_levels: i32,
    files: &'static [(usize, &'static str)],
}

const TREES: &[Tree] = &[
    Tree {
        name: "level 0 only",
        style: CompactionStyle::Level,
        dynamic: true,
        num_levels: 7,
        files: &[(0, "a c e"), (0, "b d"), (0, "c z")],
    },
    Tree {
        name: "level 0 only, fixed",
        style: CompactionStyle::Level,
        dynamic: false,
        num_levels: 7,
        files: &[(0, "a c e"), (0, "b d"), (0, "c z")],
    },
    Tree {
        name: "one file on level 0",
        style: CompactionStyle::Level,
        dynamic: true,
        num_levels: 7,
        files: &[(0, "a c e")],
    },
    Tree {
        name: "the last level only",
        style: CompactionStyle::Level,
        dynamic: true,
        num_levels: 7,
        files: &[(6, "a c"), (6, "m p"), (6, "x z")],
    },
    Tree {
        name: "a level in the middle, fixed",
        style: CompactionStyle::Level,
        dynamic: false,
        num_levels: 7,
        files: &[(2, "a c"), (2, "m p"), (2, "x z")],
    },
    Tree {
        name: "several levels, fixed",
        style: CompactionStyle::Level,
        dynamic: false,
        num_levels: 7,
        files: &[
            (3, "m n"),
            (2, "a c"),
            (2, "x z"),
            (1, "a b"),
            (1, "m p"),
            (0, "c d"),
        ],
    },
    Tree {
        name: "several levels",
        style: CompactionStyle::Level,
        dynamic: true,
        num_levels: 7,
        files: &[(6, "a c"), (6, "m p"), (6, "x z"), (5, "b n"), (0, "a z")],
    },
    Tree {
        name: "universal, one run on the last level",
        style: CompactionStyle::Universal,
        dynamic: false,
        num_levels: 7,
        files: &[(6, "a c m z")],
    },
    Tree {
        name: "universal, one file on level 0",
        style: CompactionStyle::Universal,
        dynamic: false,
        num_levels: 7,
        files: &[(0, "a c m z")],
    },
    Tree {
        name: "universal, one run in the middle",
        style: CompactionStyle::Universal,
        dynamic: false,
        num_levels: 7,
        files: &[(4, "a c m z")],
    },
    Tree {
        name: "universal, several runs",
        style: CompactionStyle::Universal,
        dynamic: false,
        num_levels: 7,
        files: &[(6, "a z"), (5, "b m"), (0, "c d"), (0, "a e")],
    },
    Tree {
        name: "universal, one level",
        style: CompactionStyle::Universal,
        dynamic: false,
        num_levels: 1,
        files: &[(0, "a c"), (0, "m z")],
    },
    Tree {
        name: "universal, one level and one file",
        style: CompactionStyle::Universal,
        dynamic: false,
        num_levels: 1,
        files: &[(0, "a c")],
    },
];

impl Tree {
    fn ours(&self) -> Options {
        let mut options = Options::default();
        let cf = &mut options.cf.cf;
        cf.disable_auto_compactions = true;
        cf.compaction_style = self.style;
        cf.level_compaction_dynamic_level_bytes = self.dynamic;
        cf.num_levels = self.num_levels;
        options
    }

    fn theirs(&self, lib: &Arc<Library>) -> RocksOptions {
        let style = match self.style {
            CompactionStyle::Universal => "kCompactionStyleUniversal",
            _ => "kCompactionStyleLevel",
        };
        let mut options = lib.options();
        options.create_if_missing(true);
        let (dynamic, levels) = (self.dynamic, self.num_levels);
        options
            .set_all(&format!(
                "disable_auto_compactions=true;compaction_style={style};num_levels={levels};\
                 level_compaction_dynamic_level_bytes={dynamic}"
            ))
            .unwrap();
        options
    }

    /// Lets RocksDB build the tree.
    fn build(&self, lib: &Arc<Library>, dir: &Path) {
        let db = RocksDb::open(&self.theirs(lib), dir).unwrap();
        for (level, keys) in self.files {
            for k in keys.split(' ') {
                db.put(k.as_bytes(), keys.as_bytes()).unwrap();
            }
            db.flush().unwrap();
            if *level > 0 {
                let all = db.tables("default").unwrap();
                let newest = all.iter().find(|t| t.level == 0).unwrap();
                let (name, level) = (newest.name.clone(), i32::try_from(*level).unwrap());
                db.compact_files(db.default_cf(), &[name], level).unwrap();
            }
        }
        db.close();
    }
}

type Bounds<'a> = (Option<&'a str>, Option<&'a str>);

/// Ranges, and a key that is in a memtable. RocksDB flushes for a range with an open end whatever is in
/// memory, so there the key lies in the range.
const RANGES: &[(Bounds<'static>, &str)] = &[
    ((None, None), "g"),
    ((Some("a"), Some("c")), "g"),
    ((Some("b"), Some("n")), "g"),
    ((Some("f"), Some("l")), "g"),
    ((Some("n"), None), "y"),
    ((None, Some("b")), "aa"),
    ((Some("zz"), Some("zzz")), "g"),
];

/// The compactions and flushes in a LOG from `from` on: the kind, the number of files of each input level,
/// and the output level.
fn told(log: &str) -> Vec<String> {
    let mut out = Vec::new();
    for line in log.lines() {
        let Some((_, event)) = line.split_once("EVENT_LOG_v1 ") else {
            continue;
        };
        let field = |name: &str| {
            let (_, rest) = event.split_once(&format!("\"{name}\": "))?;
            Some(
                rest.split([',', '}'])
                    .next()?
                    .trim()
                    .trim_matches('"')
                    .to_owned(),
            )
        };
        let what = field("event").unwrap();
        match &*what {
            "compaction_started" => {
                let levels = event.split("\"files_L").skip(1);
                let counts = levels.filter_map(|l| {
                    let (level, rest) = l.split_once("\": [").unwrap();
                    let files = rest.split(']').next().unwrap();
                    let count = files.split(',').count();
                    (!files.is_empty()).then(|| format!("{count} of L{level}"))
                });
                out.push(counts.collect::<Vec<_>>().join(" and "));
            }
            "compaction_finished" => {
                let last = out.last_mut().unwrap();
                *last = format!("{last} to L{}", field("output_level").unwrap());
            }
            "trivial_move" => out.push(format!(
                "{} moved to L{}",
                field("files").unwrap(),
                field("destination_level").unwrap()
            )),
            "flush_started" => out.push("flush".to_owned()),
            _ => {}
        }
    }
    out
}

/// Levels with the first and last key of each file.
fn shape(db: &Db) -> Vec<String> {
    let mut files: Vec<(usize, Vec<u8>, Vec<u8>)> = db
        .get_live_files_metadata()
        .into_iter()
        .map(|f| (f.level, f.smallestkey, f.largestkey))
        .collect();
    files.sort();
    let line = |(level, a, b): &(usize, Vec<u8>, Vec<u8>)| {
        format!("L{level} {}-{}", a.escape_ascii(), b.escape_ascii())
    };
    files.iter().map(line).collect()
}

fn log(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("LOG")).unwrap()
}

/// Compares what both engines do, and the trees that they leave.
fn compare(
    lib: &Arc<Library>,
    tree: &Tree,
    built: &Path,
    (begin, end): Bounds<'_>,
    bottommost: BottommostLevelCompaction,
    unflushed: Option<&str>,
) -> Option<String> {
    let temp = dirs::scratch().unwrap();
    let (a, b) = (temp.path().join("ours"), temp.path().join("theirs"));
    dirs::copy(built, &a).unwrap();
    dirs::copy(built, &b).unwrap();
    let ours = Db::open(&a, &tree.ours()).unwrap();
    if let Some(k) = unflushed {
        ours.put(k, "new").unwrap();
    }
    let before = log(&a).len();
    let how = CompactRangeOptions {
        bottommost_level_compaction: bottommost,
        ..Default::default()
    };
    let cf = ours.default_column_family();
    let (from, to) = (begin.map(str::as_bytes), end.map(str::as_bytes));
    ours.cf(&cf).with(&how).compact_range(from, to).unwrap();
    let we_did = told(&log(&a)[before..]);
    let (we_have, our_content) = (shape(&ours), everything(&ours).unwrap());
    ours.close().unwrap();

    let theirs = RocksDb::open(&tree.theirs(lib), &b).unwrap();
    if let Some(k) = unflushed {
        theirs.put(k.as_bytes(), b"new").unwrap();
    }
    let before = log(&b).len();
    let number = match bottommost {
        BottommostLevelCompaction::Skip => 0,
        BottommostLevelCompaction::IfHaveCompactionFilter => 1,
        BottommostLevelCompaction::Force => 2,
        BottommostLevelCompaction::ForceOptimized => 3,
    };
    theirs.compact_range_with(theirs.default_cf(), from, to, number);
    theirs.close();
    let they_did = told(&log(&b)[before..]);
    let db = Db::open_read_only(&b, &tree.ours()).unwrap();
    let they_have = shape(&db);
    assert_eq!(our_content, everything(&db).unwrap(), "{}", tree.name);
    if (&we_did, &we_have) == (&they_did, &they_have) {
        return None;
    }
    Some(format!(
        "{}, {begin:?} to {end:?}, {bottommost:?}, in memory {unflushed:?}\n  \
         we: {we_did:?} -> {we_have:?}\n  they: {they_did:?} -> {they_have:?}\n",
        tree.name
    ))
}

/// A manual compaction in universal style did nothing when all was one run on the last level: a new filter,
/// an expired time to live or a new compression had no effect, even with `Force`. In level style with files
/// on level 0 only, `Force` made one pass where RocksDB makes two. And memtables were flushed that the
/// range does not touch.
#[test]
fn calls_compact_what_rocksdb_compacts() {
    let Some(lib) = oracle::rocksdb() else { return };
    let mut different = Vec::new();
    for tree in TREES {
        let temp = dirs::scratch().unwrap();
        let built = temp.path().join("built");
        tree.build(&lib, &built);
        for &(range, in_memory) in RANGES {
            for bottommost in [
                BottommostLevelCompaction::Skip,
                BottommostLevelCompaction::IfHaveCompactionFilter,
                BottommostLevelCompaction::Force,
                BottommostLevelCompaction::ForceOptimized,
            ] {
                different.extend(compare(&lib, tree, &built, range, bottommost, None));
            }
            let default = BottommostLevelCompaction::default();
            different.extend(compare(&lib, tree, &built, range, default, Some(in_memory)));
        }
    }
    assert!(
        different.is_empty(),
        "{} differ:\n{}",
        different.len(),
        different.concat()
    );
}
