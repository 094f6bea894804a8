//! Text tests: the input is files, options and running compactions; the output is targets, scores and picks.
//!
//! ```text
//!   define [now=…] [snapshot=…]
//!   any option of a column family=value            `8M` is 8 MiB
//!   L0
//!     5:a-f size=10 seq=5-9 [busy] [marked] [entries=… deletions=… tombstones=… kept=…] [made=…] [born=…]
//!   ----
//!   cut target= overlap= [early]
//!   pick  |  pick run  |  kept  |  targets  |  manual from= to=  |  files numbers= to=
//! ```
//!
//! Sizes are in MiB. `pick run` starts the compaction that was picked; `end` ends the oldest running one,
//! with one output file of all input bytes. `REWRITE=1 cargo test -p ironstone-picking` rewrites the outputs.

use std::cell::RefCell;
use std::fmt::Write as _;

use base::options::OptionTable;
use base::sync::atomic::{AtomicBool, Ordering};
use base::{Comparator, FileNumber, SequenceNumber, ValueType, key};
use datadriven::{TestCase, walk};

use super::manual::{Progress, Request, Step, next_step};
use super::*;
use crate::cut::{Cutter, Sizes};
use manifest::edit::FileMetaData;
use options::{BottommostLevelCompaction, CompactRangeOptions};

pub(super) const MIB: u64 = 1 << 20;

pub(super) struct File {
    meta: FileMetaData,
    counts: Counts,
    busy: AtomicBool,
    marked: bool,
}

impl File {
    pub(super) fn set_busy(&self, busy: bool) {
        self.busy.store(busy, Ordering::Relaxed);
    }
}

impl Candidate for File {
    fn meta(&self) -> &FileMetaData {
        &self.meta
    }
    fn counts(&self) -> Counts {
        self.counts
    }
    fn is_being_compacted(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }
    fn is_marked(&self) -> bool {
        self.marked
    }
}

/// `5:a-f size=10 …`
pub(super) fn file(line: &str) -> Arc<File> {
    let mut words = line.split_whitespace();
    let (number, keys) = words.next().unwrap().split_once(':').unwrap();
    let (smallest, largest) = keys.split_once('-').unwrap();
    let number: u64 = number.parse().unwrap();
    let mut out = File {
        meta: FileMetaData {
            number: FileNumber(number),
            file_size: MIB,
            smallest_seqno: number,
            largest_seqno: number,
            ..Default::default()
        },
        counts: Counts::default(),
        busy: AtomicBool::new(false),
        marked: false,
    };
    for word in words {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let n = || value.parse::<u64>().unwrap();
        match name {
            "size" => out.meta.file_size = (value.parse::<f64>().unwrap() * MIB as f64) as u64,
            "seq" => {
                let (a, b) = value.split_once('-').unwrap();
                out.meta.smallest_seqno = a.parse().unwrap();
                out.meta.largest_seqno = b.parse().unwrap();
            }
            "busy" => out.busy = AtomicBool::new(true),
            "marked" => out.marked = true,
            "entries" => out.counts.entries = n(),
            "deletions" => out.counts.deletions = n(),
            "kept" => out.counts.kept = n(),
            "tombstones" => out.counts.range_deletions = n(),
            "made" => out.meta.file_creation_time = n(),
            "born" => out.meta.oldest_ancestor_time = n(),
            _ => panic!("{word}"),
        }
    }
    out.counts.raw_key_bytes = out.counts.entries * 10;
    out.counts.raw_value_bytes = (out.counts.entries - out.counts.deletions) * 90;
    let newest = SequenceNumber(out.meta.largest_seqno);
    let oldest = SequenceNumber(out.meta.smallest_seqno);
    out.meta.smallest = key::encode(smallest.as_bytes(), newest, ValueType::Value);
    // `a-f)` ends before f: with the end of a range tombstone.
    out.meta.largest = match largest.strip_suffix(')') {
        Some(l) => key::encode(l.as_bytes(), SequenceNumber::MAX, ValueType::RangeDeletion),
        None => key::encode(largest.as_bytes(), oldest, ValueType::Value),
    };
    Arc::new(out)
}

pub(super) struct Bench {
    comparator: Comparator,
    pub(super) options: CfOptions,
    pub(super) levels: Vec<Arc<Vec<Arc<File>>>>,
    pub(super) running: Vec<(Running, Plan<File>)>,
    cursors: Vec<Option<Vec<u8>>>,
    pub(super) now: u64,
    snapshot: Option<u64>,
    next: u64,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self {
            comparator: Comparator::bytewise(),
            options: CfOptions::default(),
            levels: Vec::new(),
            running: Vec::new(),
            cursors: Vec::new(),
            now: 0,
            snapshot: None,
            next: 1000,
        }
    }

    fn define(&mut self, case: &TestCase) {
        *self = Self::new();
        let number = |name: &str| Some(case.args.get(name)?.first()?.parse().unwrap());
        self.now = number("now").unwrap_or(0);
        self.snapshot = number("snapshot");
        let lines = case.input.lines().map(str::trim).filter(|l| !l.is_empty());
        let (options, files): (Vec<&str>, Vec<&str>) =
            lines.partition(|l| l.starts_with(|c: char| c.is_ascii_lowercase()));
        for line in options {
            let (name, value) = line.split_once('=').unwrap();
            let mib = value.strip_suffix('M').and_then(|n| n.parse::<u64>().ok());
            let value = mib.map_or_else(|| value.to_owned(), |n| (n * MIB).to_string());
            self.options.set(name, &value).unwrap();
        }
        self.options.validate().unwrap();
        self.levels = vec![Arc::default(); self.options.num_levels as usize];
        let mut level = 0;
        for line in files {
            match line.strip_prefix('L').and_then(|l| l.parse().ok()) {
                Some(l) => level = l,
                None => self.level_mut(level).push(file(line)),
            }
        }
        // As a Version sorts them.
        self.level_mut(0)
            .sort_by_key(|f| std::cmp::Reverse(f.meta.largest_seqno));
    }

    pub(super) fn level_mut(&mut self, level: usize) -> &mut Vec<Arc<File>> {
        Arc::make_mut(&mut self.levels[level])
    }

    pub(super) fn view(&self) -> Levels<'_, File> {
        Levels {
            comparator: &self.comparator,
            files: &self.levels,
        }
    }

    pub(super) fn with<R>(&self, f: impl FnOnce(&Input<'_, File>) -> R) -> R {
        let running: Vec<&Running> = self.running.iter().map(|(r, _)| r).collect();
        f(&Input {
            levels: self.view(),
            options: &self.options,
            now: self.now,
            oldest_snapshot: self.snapshot,
            running: &running,
            cursors: &self.cursors,
        })
    }

    fn targets(&self) -> String {
        let levels = self.view();
        let targets = Targets::of(&levels, &self.options);
        let mut out = format!("base level: {}\n", targets.base_level);
        let shown = levels.non_empty().max(targets.base_level + 1);
        for (level, target) in targets.max_bytes.iter().enumerate().take(shown) {
            if *target < u64::MAX || levels.bytes(level) > 0 {
                let mib = levels.bytes(level) as f64 / MIB as f64;
                let target = match *target {
                    u64::MAX => "none".to_owned(),
                    t => format!("{:.1}", t as f64 / MIB as f64),
                };
                writeln!(out, "L{level}: {mib:.1} of {target}").unwrap();
            }
        }
        out += &self.scores();
        let pending = score::pending_compaction_bytes(&levels, &self.options);
        writeln!(out, "pending: {:.1}", pending as f64 / MIB as f64).unwrap();
        out
    }

    fn scores(&self) -> String {
        let targets = Targets::of(&self.view(), &self.options);
        let mut out = "scores:".to_owned();
        for s in score::scores(&self.view(), &self.options, &targets, self.now) {
            if s.score > 0.0 {
                write!(out, " L{}={:.3}", s.level, s.score).unwrap();
            }
        }
        out + "\n"
    }

    fn show(plan: Option<&Plan<File>>) -> String {
        let Some(plan) = plan else {
            return "nothing\n".to_owned();
        };
        let numbers = |files: &[Arc<File>]| {
            let all: Vec<String> = files.iter().map(|f| f.meta.number.to_string()).collect();
            all.join(" ")
        };
        let mut out = format!(
            "{:?} to L{} because of {}:",
            plan.kind, plan.output_level, plan.reason
        );
        for (level, files) in &plan.inputs {
            write!(out, " L{level}[{}]", numbers(files)).unwrap();
        }
        if !plan.grandparents.is_empty() {
            write!(out, " over [{}]", numbers(&plan.grandparents)).unwrap();
        }
        if !plan.compress {
            out += " not compressed";
        }
        out + "\n"
    }

    pub(super) fn start(&mut self, plan: Plan<File>) {
        for (_, f) in plan.files() {
            assert!(!f.busy.swap(true, Ordering::Relaxed), "taken twice");
        }
        let range = self.view().range(plan.files().map(|(_, f)| f)).unwrap();
        self.next += 1;
        let running = Running {
            id: self.next,
            family: 0,
            start_level: plan.start_level(),
            output_level: plan.output_level,
            range,
            manual: false,
            exclusive: false,
        };
        self.running.push((running, plan));
    }

    /// Ends the oldest running compaction.
    fn end(&mut self) -> String {
        let (_, plan) = self.running.remove(0);
        let range = self.view().range(plan.files().map(|(_, f)| f)).unwrap();
        let bytes = plan.input_bytes();
        let newest = plan
            .files()
            .map(|(_, f)| f.meta.largest_seqno)
            .max()
            .unwrap();
        for (_, f) in plan.files() {
            f.busy.store(false, Ordering::Relaxed);
        }
        for (level, files) in &plan.inputs {
            let gone = |f: &Arc<File>| files.iter().any(|g| g.meta.number == f.meta.number);
            self.level_mut(*level).retain(|f| !gone(f));
        }
        let output = plan.output_level;
        let mut new = match plan.kind {
            Kind::Delete => Vec::new(),
            Kind::Move => plan.files().map(|(_, f)| Arc::clone(f)).collect(),
            Kind::Merge => {
                self.next += 1;
                let key = |k: &[u8]| String::from_utf8_lossy(k).into_owned();
                vec![file(&format!(
                    "{}:{}-{} size={} seq={newest}-{newest}",
                    self.next,
                    key(&range.smallest),
                    key(&range.largest),
                    bytes as f64 / MIB as f64
                ))]
            }
        };
        self.level_mut(output).append(&mut new);
        if output > 0 {
            self.level_mut(output)
                .sort_by(|a, b| a.meta.smallest.cmp(&b.meta.smallest));
        } else {
            self.level_mut(0)
                .sort_by_key(|f| std::cmp::Reverse(f.meta.largest_seqno));
        }
        self.shape()
    }

    fn shape(&self) -> String {
        let mut out = String::new();
        for (level, files) in self.levels.iter().enumerate() {
            if files.is_empty() {
                continue;
            }
            write!(out, "L{level}:").unwrap();
            for f in files.iter() {
                let (a, b) = (f.smallest().escape_ascii(), f.largest().escape_ascii());
                write!(out, " {}:{a}-{b}", f.meta.number).unwrap();
            }
            out.push('\n');
        }
        out
    }

    /// Runs all steps of a request.
    fn manual(&mut self, request: &Request) -> String {
        let mut progress = Progress::default();
        let mut out = String::new();
        for _ in 0..20 {
            match self.with(|input| next_step(input, request, &mut progress)) {
                Err(e) => return format!("{out}{e}\n"),
                Ok(Step::Wait) => return out + "waits\n",
                Ok(Step::Done) => return out + "done\n" + &self.shape(),
                Ok(Step::Run(plan)) => {
                    out += &Self::show(Some(&plan));
                    self.start(*plan);
                    self.end();
                }
            }
        }
        out + "does not end\n"
    }

    fn run(&mut self, case: &TestCase) -> String {
        let args = &case.args;
        let arg = |name: &str| args.get(name).map(|v| v.join(","));
        match case.directive.as_str() {
            "define" => {
                self.define(case);
                self.targets()
            }
            "targets" => self.targets(),
            "kept" => match self.with(|input| kept_until(input, self.snapshot.unwrap_or(0))) {
                Some(number) => format!("until {number}\n"),
                None => "nothing\n".to_owned(),
            },
            "pick" => {
                let plan = self.with(automatic);
                let text = Self::show(plan.as_ref());
                if let (Some(plan), Some(_)) = (plan, arg("run")) {
                    if let Some((level, key)) = &plan.cursor {
                        self.cursors.resize(level + 1, None);
                        self.cursors[*level] = Some(key.clone());
                    }
                    self.start(plan);
                }
                text
            }
            "end" => self.end(),
            "cut" => {
                let mib = |name: &str| arg(name).unwrap().parse::<u64>().unwrap() * MIB;
                let sizes = Sizes {
                    target: mib("target"),
                    max: 2 * mib("target"),
                    overlap_max: mib("overlap"),
                    early: arg("early").is_some(),
                };
                cuts(sizes, &case.input)
            }
            "manual" => {
                let bottommost_level_compaction = match arg("bottommost").as_deref() {
                    None => BottommostLevelCompaction::default(),
                    Some("force") => BottommostLevelCompaction::Force,
                    Some("optimized") => BottommostLevelCompaction::ForceOptimized,
                    Some(_) => BottommostLevelCompaction::Skip,
                };
                let target = arg("target");
                let request = Request::Range {
                    begin: arg("from").map(String::into_bytes),
                    end: arg("to").map(String::into_bytes),
                    options: CompactRangeOptions {
                        bottommost_level_compaction,
                        change_level: target.is_some(),
                        target_level: target.map_or(-1, |t| t.parse().unwrap()),
                        ..Default::default()
                    },
                    first_level: 0,
                    first_new_file: FileNumber(1000),
                };
                self.manual(&request)
            }
            "files" => {
                let numbers = arg("numbers").unwrap();
                let request = Request::Files {
                    numbers: numbers.split(',').map(|n| n.parse().unwrap()).collect(),
                    output_level: arg("level").unwrap().parse().unwrap(),
                    output_file_bytes: u64::MAX,
                };
                self.manual(&request)
            }
            other => panic!("{other}"),
        }
    }
}

/// Where output files end. The text has the files of the next level, and then words `key=MiB`.
fn cuts(sizes: Sizes, text: &str) -> String {
    let (behind, keys): (Vec<&str>, Vec<&str>) = text.lines().partition(|l| l.contains(':'));
    let behind = behind.into_iter().map(file).collect();
    let mut cutter: Cutter<File> = Cutter::new(Comparator::bytewise(), sizes, behind, None);
    let mut out = String::new();
    let mut last: Option<(u64, &str)> = None;
    for word in keys.iter().flat_map(|l| l.split_whitespace()) {
        let (key, size) = word.split_once('=').unwrap();
        let file = last.map(|(size, last)| (size, last.as_bytes()));
        if cutter.cuts_before(key.as_bytes(), file) {
            out += "| ";
            last = None;
        }
        let before = last.map_or(0, |l| l.0);
        last = Some((before + size.parse::<u64>().unwrap() * MIB, key));
        write!(out, "{key} ").unwrap();
    }
    out.trim_end().to_owned() + "\n"
}

#[test]
fn picks_are_as_written() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src/testdata");
    walk(dir, |f| {
        let bench = RefCell::new(Bench::new());
        f.run(|case| bench.borrow_mut().run(case));
    });
}
