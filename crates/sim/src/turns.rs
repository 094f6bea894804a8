//! Ironstone and RocksDB take turns on one directory, with other options each time: each reads what all
//! earlier turns have written, and writes more.
//!
//! ```text
//!   turn:   open ─ compare everything with the model ─ random operations ─ close, or crash
//!   players Ironstone │ RocksDB 11.8.1 (C API) │ ldb 7.8.3, where only what it reads is written
//! ```
//!
//! A crash is a copy of the directory while the database is open and idle: the next turn finds the logs as
//! they are. Each family is compared forward and backward, and with a get of every key.

mod ironstone;
mod rocksdb;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::rng::Rng;

use crate::dirs;
use crate::model::setup::{FAMILIES, Setup};
use crate::model::store::{Change, Family, FileContent, Model};
use crate::oracle::content::{FamilyContent, difference};
use crate::oracle::{Library, ldb};

/// The environment variable with the number of turns of each game in the tests.
pub const SWITCHES_VARIABLE: &str = "IRONSTONE_TURNS_SWITCHES";

/// Number of different keys in a family.
const KEYS: u64 = 600;
/// The most operations of a turn.
const OPERATIONS_MAX: u64 = 400;
/// The most families at a time.
const FAMILIES_MAX: usize = 5;
/// Number of operations in the trace of a failure.
const TRACE: usize = 16;

/// The outcome: the difference, as text.
type Step = Result<(), String>;

/// The database that has a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Player {
    Ironstone,
    /// RocksDB's newest available release, through its C API.
    Rocks,
    /// `ldb` of 7.8.3.
    Ldb,
}

/// The parameters of a game.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Determines everything.
    pub seed: u64,
    /// Number of turns.
    pub switches: u64,
    /// Whether only formats that 7.8.3 reads are written, and its `ldb` takes part.
    pub classic: bool,
}

/// Counts over games.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Turns.
    pub switches: u64,
    /// Turns that ended in a crash.
    pub crashes: u64,
    /// Number of compared entries.
    pub entries: u64,
    /// Turns of `ldb`.
    pub ldb: u64,
    /// Operations by kind.
    pub operations: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Adds the counts of another game.
    pub fn add(&mut self, other: Self) {
        self.switches += other.switches;
        self.crashes += other.crashes;
        self.entries += other.entries;
        self.ldb += other.ldb;
        for (name, n) in other.operations {
            *self.operations.entry(name).or_default() += n;
        }
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            switches,
            crashes,
            entries,
            ldb,
            ..
        } = self;
        write!(
            f,
            "{switches} switches, {crashes} crashes, {ldb} turns of ldb, {entries} entries compared"
        )?;
        for (name, n) in &self.operations {
            write!(f, ", {n} {name}")?;
        }
        Ok(())
    }
}

/// An operation of a turn.
#[derive(Clone, Debug)]
enum Act {
    /// One batch: family, key, change.
    Write(Vec<(usize, Vec<u8>, Change)>),
    Flush(usize),
    Compact(usize, Option<Vec<u8>>, Option<Vec<u8>>),
    Ingest(usize, FileContent),
    /// Creates a family, with the reverse order or not.
    Create(String, bool),
    /// Drops the last family.
    Drop,
}

impl Act {
    fn name(&self) -> &'static str {
        match self {
            Self::Write(_) => "batches",
            Self::Flush(_) => "flushes",
            Self::Compact(..) => "compactions",
            Self::Ingest(..) => "ingestions",
            Self::Create(..) => "families created",
            Self::Drop => "families dropped",
        }
    }

    fn shown(&self) -> String {
        let mut out = self.name().to_owned();
        match self {
            Self::Write(changes) => {
                for (f, key, change) in changes {
                    out += &format!(" {f}/{}: {}", key.escape_ascii(), shown(change));
                }
            }
            Self::Flush(f) => out += &format!(" {f}"),
            Self::Compact(f, begin, end) => {
                let [begin, end] = [begin, end].map(|k| {
                    k.as_ref()
                        .map_or("…".to_owned(), |k| k.escape_ascii().to_string())
                });
                out += &format!(" {f} {begin} to {end}");
            }
            Self::Ingest(f, file) => {
                let (points, ranges) = (file.points.len(), file.ranges.len());
                out += &format!(" {f} {points} keys, {ranges} ranges");
            }
            Self::Create(name, reverse) => out += &format!(" {name}, reverse {reverse}"),
            Self::Drop => {}
        }
        out
    }
}

fn shown(change: &Change) -> String {
    match change {
        Change::Put(v) => format!("put {} bytes;", v.len()),
        Change::Delete => "delete;".to_owned(),
        Change::SingleDelete => "single delete;".to_owned(),
        Change::DeleteTo(end) => format!("delete to {};", end.escape_ascii()),
        Change::Merge(v) => format!("merge {} bytes;", v.len()),
        Change::Entity(_) => "entity;".to_owned(),
    }
}

/// An open database of one player.
trait Side {
    /// The whole content.
    fn content(&self, model: &[Family]) -> Result<Vec<FamilyContent>, String>;
    /// Executes an operation. `scratch` is an unused path, for a table.
    fn act(&mut self, act: &Act, model: &[Family], scratch: &Path) -> Step;
    /// Waits for background work, and makes everything durable in files.
    fn settle(&self) -> Step;
    fn close(self: Box<Self>) -> Step;
}

struct Game {
    rng: Rng,
    /// Ironstone's options, which include those that both players must share.
    setup: Setup,
    classic: bool,
    temp: tempfile::TempDir,
    dir: PathBuf,
    model: Model,
    named: u64,
    created: u64,
    /// Keys that were put once, with their families.
    once: Vec<(String, Vec<u8>)>,
    made: u64,
    tally: Tally,
    trace: VecDeque<String>,
}

/// Plays a game.
///
/// # Errors
/// The first difference, with the seed, the turn and the last operations; the directory is copied to the
/// machine's temporary directory.
pub fn play(plan: Plan, lib: &Arc<Library>, progress: &dyn Fn(u64)) -> Result<Tally, String> {
    let with_ldb = plan.classic && ldb::available();
    let mut game = Game::new(plan)?;
    for turn in 0..=plan.switches {
        // Ironstone has every other turn; ldb follows Ironstone, whose OPTIONS file it loads.
        let player = match turn % 6 {
            3 if with_ldb => Player::Ldb,
            1 | 3 | 5 => Player::Rocks,
            _ => Player::Ironstone,
        };
        game.note(format!("turn {turn} of {player:?}"));
        if let Err(what) = game.turn(player, lib) {
            let trace: Vec<_> = game.trace.iter().map(String::as_str).collect();
            return Err(format!(
                "  {}\n{plan:?}, turn {turn} of {player:?}: {what}\nwith {}\n{}",
                trace.join("\n  "),
                game.setup.text(),
                keep(&game.dir)
            ));
        }
        progress(turn);
    }
    game.tally.switches = plan.switches;
    Ok(game.tally)
}

/// Keeps the directory of a failed turn for examination.
fn keep(dir: &Path) -> String {
    let to = std::env::temp_dir().join(format!("ironstone-turns-{}", std::process::id()));
    match dirs::copy(dir, &to) {
        Ok(()) => format!("the directory is kept in {}", to.display()),
        Err(e) => format!("the directory cannot be kept: {e}"),
    }
}

/// Options that are not drawn: both players support them, and the content can be compared.
fn fixed(classic: bool, seed: u64) -> String {
    let style = if seed % 3 == 2 { "Universal" } else { "Level" };
    let versions: u64 = if classic { 5 } else { 7 };
    let version = 2 + seed % (versions - 1);
    // RocksDB before 10 requires it if memtables are vectors, and ldb reads the OPTIONS file.
    let classic = if classic {
        "allow_concurrent_memtable_write=false;"
    } else {
        ""
    };
    format!(
        "{classic}compaction_style=kCompactionStyle{style};prefix_extractor=nullptr;\
         create_missing_column_families=true;manual_wal_flush=false;allow_ingest_behind=false;\
         WAL_ttl_seconds=0;track_and_verify_wals_in_manifest=false;\
         block_based_table_factory={{format_version={version}}};"
    )
}

impl Game {
    fn new(plan: Plan) -> Result<Self, String> {
        let mut rng = Rng::new(plan.seed);
        let temp = dirs::scratch().map_err(|e| e.to_string())?;
        let setup = Setup::with(plan.seed, &mut rng, &fixed(plan.classic, plan.seed));
        let families = FAMILIES.iter();
        Ok(Self {
            rng,
            setup,
            classic: plan.classic,
            dir: temp.path().join("db"),
            temp,
            model: families.map(|(n, r)| Family::new(n, *r)).collect(),
            named: 0,
            created: 0,
            once: Vec::new(),
            made: 0,
            tally: Tally::default(),
            trace: VecDeque::new(),
        })
    }

    fn note(&mut self, what: String) {
        if self.trace.len() == TRACE {
            self.trace.pop_front();
        }
        self.trace.push_back(what);
    }

    fn new_path(&mut self) -> PathBuf {
        self.named += 1;
        self.temp.path().join(self.named.to_string())
    }

    fn turn(&mut self, player: Player, lib: &Arc<Library>) -> Step {
        if player == Player::Ldb {
            return self.ldb();
        }
        self.setup.vary(&mut self.rng);
        let mut side: Box<dyn Side> = if player == Player::Ironstone {
            Box::new(ironstone::open(
                &self.dir,
                &self.setup.options,
                &self.model,
            )?)
        } else {
            let drawn = rocksdb::Drawn::new(&mut self.rng, self.classic, &self.setup);
            self.note(drawn.text());
            Box::new(rocksdb::open(&self.dir, lib, drawn, &self.model)?)
        };
        self.compare(&side.content(&self.model)?)?;
        let operations = self.rng.below(OPERATIONS_MAX);
        for n in 0..operations {
            let act = self.draw(player);
            *self.tally.operations.entry(act.name()).or_default() += 1;
            self.note(act.shown());
            let scratch = self.new_path();
            side.act(&act, &self.model, &scratch)
                .map_err(|e| format!("{}: {e}", act.name()))?;
            self.apply(act);
            // A comparison within the turn, now and then.
            if n > 0 && self.rng.one_in(600) {
                self.compare(&side.content(&self.model)?)?;
            }
        }
        if self.rng.one_in(3) {
            // A crash: the next turn finds a copy of the open directory.
            side.settle()?;
            self.tally.crashes += 1;
            self.note("crash".to_owned());
            let copy = self.new_path();
            dirs::copy(&self.dir, &copy).map_err(|e| e.to_string())?;
            side.close()?;
            let old = std::mem::replace(&mut self.dir, copy);
            return std::fs::remove_dir_all(old).map_err(|e| format!("remove: {e}"));
        }
        side.close()
    }

    fn compare(&mut self, have: &[FamilyContent]) -> Step {
        let want: Vec<FamilyContent> = self
            .model
            .iter()
            .map(|f| (f.name.clone(), f.pairs()))
            .collect();
        self.tally.entries += want
            .iter()
            .map(|(_, pairs)| pairs.len() as u64)
            .sum::<u64>();
        difference(&want, have).map_or(Ok(()), Err)
    }

    fn key(&mut self) -> Vec<u8> {
        let n = self.rng.below(KEYS);
        match n {
            0 => Vec::new(),
            1..20 => vec![n as u8 * 12; 1 + n as usize % 5],
            _ => format!("key{n:05}").into_bytes(),
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let len = match self.rng.below(300) {
            0 => 40_000,
            1..20 => 0,
            20..100 => 8,
            _ => self.rng.below(120),
        };
        let mut value = vec![0; len as usize];
        self.rng.fill(&mut value);
        let half = value.len() / 2;
        value[half..].fill(b'c');
        value
    }

    fn operand(&mut self) -> Vec<u8> {
        let mut operand = vec![0; if self.rng.one_in(3) { 5 } else { 8 }];
        self.rng.fill(&mut operand);
        operand
    }

    /// Two keys in the family's order, mostly close to each other.
    fn range(&mut self, f: usize) -> (Vec<u8>, Vec<u8>) {
        let (mut a, mut b) = if self.rng.one_in(10) {
            (self.key(), self.key())
        } else {
            let n = self.rng.below(KEYS);
            let to = n + self.rng.below(20);
            let name = |n: u64| format!("key{n:05}").into_bytes();
            (name(n), name(to))
        };
        if self.model[f].before(&b, &a) {
            std::mem::swap(&mut a, &mut b);
        }
        (a, b)
    }

    fn draw(&mut self, player: Player) -> Act {
        let f = self.rng.below(self.model.len() as u64) as usize;
        match self.rng.below(1000) {
            0..5 => Act::Flush(f),
            5..9 => {
                let (a, b) = self.range(f);
                let all = self.rng.one_in(2);
                Act::Compact(f, (!all).then_some(a), (!all).then_some(b))
            }
            9..15 => Act::Ingest(f, self.file_content(f)),
            15..17 if self.model.len() < FAMILIES_MAX => {
                self.created += 1;
                Act::Create(format!("extra{}", self.created), self.rng.one_in(2))
            }
            17..18 if self.model.len() > FAMILIES.len() => Act::Drop,
            _ => {
                let n = 1 + self.rng.below(4);
                Act::Write((0..n).map(|_| self.change(player)).collect())
            }
        }
    }

    fn change(&mut self, player: Player) -> (usize, Vec<u8>, Change) {
        let f = self.rng.below(self.model.len() as u64) as usize;
        let change = match self.rng.below(100) {
            0..20 => Change::Delete,
            20..40 => Change::Merge(self.operand()),
            40..43 => {
                let (begin, end) = self.range(f);
                return (f, begin, Change::DeleteTo(end));
            }
            // The C API cannot write entities, and 7.8.3 cannot merge them.
            43..47 if player == Player::Ironstone && !self.classic => {
                let columns = [("", self.operand()), ("a", self.operand())];
                let columns = ::ironstone::WideColumns::new(columns);
                Change::Entity(columns.expect("each name once"))
            }
            47..52 => return self.once(f),
            _ => Change::Put(self.value().into()),
        };
        (f, self.key(), change)
    }

    /// Changes a key that is put and single-deleted in turns.
    fn once(&mut self, f: usize) -> (usize, Vec<u8>, Change) {
        let n = self.once.len();
        if n < 100 || self.rng.one_in(2) {
            self.made += 1;
            let key = format!("once{:06}", self.made).into_bytes();
            self.once.push((self.model[f].name.clone(), key.clone()));
            return (f, key, Change::Put(self.value().into()));
        }
        let at = self.rng.below(n as u64) as usize;
        let (name, key) = self.once.swap_remove(at);
        match self.model.iter().position(|family| family.name == name) {
            Some(f) if self.model[f].get(&key).is_some() => (f, key, Change::SingleDelete),
            // The key was deleted with its family, or in a range.
            _ => (f, self.key(), Change::Delete),
        }
    }

    fn file_content(&mut self, f: usize) -> FileContent {
        let mut file = FileContent::default();
        for _ in 0..=self.rng.below(30) {
            let key = self.key();
            let change = match self.rng.below(10) {
                0..2 => Change::Delete,
                2..4 => Change::Merge(self.operand()),
                _ => Change::Put(self.value().into()),
            };
            file.points.push((key, change));
        }
        if self.rng.one_in(3) {
            file.ranges.push(self.range(f));
        }
        let family = &self.model[f];
        file.ranges.retain(|(a, b)| family.before(a, b));
        file.points.sort_by(|(a, _), (b, _)| family.order(a, b));
        file.points.dedup_by(|(a, _), (b, _)| a == b);
        file
    }

    fn apply(&mut self, act: Act) {
        let operator = self.setup.options.cf.merge_operator.clone();
        let operator = operator.expect("every game has one");
        match act {
            Act::Write(changes) => {
                for (f, key, change) in changes {
                    self.model[f].apply(&*operator, key, change);
                }
            }
            Act::Ingest(f, file) => self.model[f].ingest(&*operator, file),
            Act::Create(name, reverse) => self.model.push(Family::new(&name, reverse)),
            Act::Drop => drop(self.model.pop()),
            Act::Flush(_) | Act::Compact(..) => {}
        }
    }

    /// Compares what RocksDB 7.8.3 reads, and lets it write something.
    fn ldb(&mut self) -> Step {
        let failed = |e: base::Error| e.to_string();
        self.tally.ldb += 1;
        let names: Vec<String> = self.model.iter().map(|f| f.name.clone()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.compare(&ldb::scan_all(&self.dir, &names).map_err(failed)?)?;
        for f in 0..self.model.len() {
            let family = format!("--column_family={}", self.model[f].name);
            let mut puts = Vec::new();
            for _ in 0..10 {
                let (key, value) = (self.key(), self.value());
                // Long values do not fit on the command line.
                if !key.is_empty() && value.len() < 1000 {
                    puts.push((key, value));
                }
            }
            let texts: Vec<_> = puts.iter().flat_map(|(k, v)| [hex(k), hex(v)]).collect();
            let mut args = vec!["--hex", "--try_load_options", &family, "batchput"];
            args.extend(texts.iter().map(String::as_str));
            ldb::ldb(&self.dir, &args).map_err(failed)?;
            let changes = puts.into_iter().map(|(k, v)| (f, k, Change::Put(v.into())));
            self.apply(Act::Write(changes.collect()));
            let (begin, end) = self.range(f);
            if self.rng.one_in(2) && !begin.is_empty() {
                let (b, e) = (hex(&begin), hex(&end));
                let args = [
                    "--hex",
                    "--try_load_options",
                    &family,
                    "deleterange",
                    &b,
                    &e,
                ];
                ldb::ldb(&self.dir, &args).map_err(failed)?;
                self.apply(Act::Write(vec![(f, begin, Change::DeleteTo(end))]));
            }
        }
        if self.rng.one_in(2) {
            ldb::ldb(&self.dir, &["--try_load_options", "compact"]).map_err(failed)?;
        }
        ldb::check_consistency(&self.dir).map_err(failed)
    }
}

fn hex(bytes: &[u8]) -> String {
    let digit = |all: String, b: &u8| all + &format!("{b:02X}");
    format!("0x{}", bytes.iter().fold(String::new(), digit))
}
