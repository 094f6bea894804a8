//! Records what a workload wrote and what it was promised, and checks whether a database agrees.
//!
//! Writes form two *lines*, each in the order of acknowledgement: logged writes, and those with
//! `disable_wal`, which go to one family of their own. After a crash, a line must be found up to some
//! write: all writes before it, none after it. That write is the same for every family of the line, and
//! lies between what was promised and what was begun.
//!
//! The content of a family is compared by a hash that does not depend on the order of its keys, so that a
//! write changes the hash by two values for each key.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::ops::Range;
use std::path::PathBuf;

/// The content of a column family.
pub(super) type Contents = BTreeMap<Vec<u8>, Vec<u8>>;
/// The content of a database, by the names of the families.
pub(super) type Found = BTreeMap<String, Contents>;
/// The existing families: name to incarnation. A family that is created again has another incarnation.
pub(super) type Families = BTreeMap<String, usize>;

/// The family of the unlogged writes; with atomic flushes, all families whose names begin with this.
pub(super) const UNLOGGED: &str = "unlogged";
/// The second of these families.
pub(super) const UNLOGGED_TOO: &str = "unlogged too";

/// Whether writes to the family bypass the log.
pub(super) fn is_unlogged(name: &str) -> bool {
    name.starts_with(UNLOGGED)
}

/// The most combinations of holes that are tried.
const WAYS_MAX: usize = 20_000;

/// The effect on a key, or on the keys from it on.
#[derive(Clone, Debug)]
pub(super) enum Op {
    Put(Vec<u8>),
    Delete,
    /// Appends, with a comma before it.
    Merge(Vec<u8>),
    /// Deletes up to this key, which is kept.
    DeleteTo(Vec<u8>),
}

/// One record of a batch.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) family: usize,
    pub(super) key: Vec<u8>,
    pub(super) op: Op,
}

/// Files that are being ingested by moving them. As long as their content is not in the database, they are
/// in their old place.
#[derive(Clone, Debug)]
pub(super) struct Outside {
    pub(super) files: Vec<PathBuf>,
    /// A family, and a key that it has once they are ingested.
    pub(super) mark: (String, Vec<u8>),
}

/// The progress of a line, as numbers of its writes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    /// Writes that were begun.
    pub(super) started: usize,
    /// Writes that must survive a power cut.
    pub(super) durable: usize,
    /// Writes that must survive the process.
    pub(super) submitted: usize,
}

/// The promises at a moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    pub(super) lines: [Marks; 2],
    pub(super) families: Families,
    /// The families after the creation or drop that is under way.
    pub(super) next: Option<Families>,
    /// Whether the database has been opened once, and so exists.
    pub(super) exists: bool,
    /// The files that are being moved into the database.
    pub(super) outside: Option<Outside>,
}

/// The index of the logged line; the other line is next.
pub(super) const LOGGED: usize = 0;
pub(super) const UNLOGGED_LINE: usize = 1;

/// All writes, and the promises so far.
#[derive(Debug, Default)]
pub(super) struct History {
    base: State,
    lines: [Line; 2],
    pub(super) incarnations: usize,
    pub(super) now: Progress,
    /// A logged write that failed: it may be there or not, whatever follows.
    failed: Option<usize>,
    /// The content that the process sees.
    now_visible: State,
    /// Whether a logged write is under way.
    writing: bool,
    /// The logged writes that are the first in a new log.
    boundaries: BTreeSet<usize>,
    /// Whether a hole before such a write is tolerated.
    pub(super) tolerate_holes: bool,
}

#[derive(Debug, Default)]
struct Line {
    writes: Vec<Vec<Change>>,
    /// For each write, the hashes of the families that it changes, after it.
    after: Vec<BTreeMap<usize, u64>>,
    /// The last write that changes each family.
    last: BTreeMap<usize, usize>,
}

/// Contents of families, and their hashes.
#[derive(Clone, Debug, Default)]
struct State {
    contents: BTreeMap<usize, Contents>,
    hashes: BTreeMap<usize, u64>,
}

impl State {
    fn set(&mut self, family: usize, contents: &Contents) {
        self.hashes.insert(family, hash_all(family, contents));
        self.contents.insert(family, contents.clone());
    }

    fn apply(&mut self, changes: &[Change]) {
        for c in changes {
            match &c.op {
                Op::Put(v) => self.change(c.family, &c.key, Some(v.clone())),
                Op::Delete => self.change(c.family, &c.key, None),
                Op::Merge(operand) => {
                    let old = self.contents.get(&c.family).and_then(|all| all.get(&c.key));
                    let merged = match old {
                        Some(old) => [old, &b","[..], operand].concat(),
                        None => operand.clone(),
                    };
                    self.change(c.family, &c.key, Some(merged));
                }
                Op::DeleteTo(end) => {
                    let contents = self.contents.entry(c.family).or_default();
                    let in_range = |k: &&Vec<u8>| **k >= c.key && *k < end;
                    let keys: Vec<_> = contents.keys().filter(in_range).cloned().collect();
                    self.hashes.entry(c.family).or_default();
                    for key in keys {
                        self.change(c.family, &key, None);
                    }
                }
            }
        }
    }

    fn change(&mut self, family: usize, key: &[u8], value: Option<Vec<u8>>) {
        let h = self.hashes.entry(family).or_default();
        *h ^= value.as_ref().map_or(0, |v| hash(family, key, v));
        let contents = self.contents.entry(family).or_default();
        let old = match value {
            Some(v) => contents.insert(key.to_vec(), v),
            None => contents.remove(key),
        };
        *h ^= old.map_or(0, |v| hash(family, key, &v));
    }

    fn is(&self, want: &BTreeMap<usize, u64>) -> bool {
        want.iter()
            .all(|(f, h)| self.hashes.get(f).copied().unwrap_or(0) == *h)
    }
}

fn hash(family: usize, key: &[u8], value: &[u8]) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one((family, key, value))
}

fn hash_all(family: usize, contents: &Contents) -> u64 {
    contents.iter().fold(0, |h, (k, v)| h ^ hash(family, k, v))
}

impl History {
    /// A history that begins with the content of an existing database.
    #[cfg(test)]
    fn beginning(found: &Found, exists: bool) -> Self {
        let mut me = Self::default();
        for (name, contents) in found {
            let family = me.incarnations;
            me.incarnations += 1;
            me.base.set(family, contents);
            me.now_visible.set(family, contents);
            me.now.families.insert(name.clone(), family);
        }
        me.now.exists = exists;
        me
    }

    /// Notes that a batch is about to be written.
    pub(super) fn start(&mut self, line: usize, changes: &[Change]) {
        self.now_visible.apply(changes);
        let hashes = &self.now_visible.hashes;
        let after = changes.iter().map(|c| (c.family, hashes[&c.family]));
        let number = self.lines[line].writes.len();
        let of_line = &mut self.lines[line];
        of_line.after.push(after.collect());
        of_line.writes.push(changes.to_vec());
        of_line
            .last
            .extend(changes.iter().map(|c| (c.family, number)));
        self.now.lines[line].started = number + 1;
        self.writing |= line == LOGGED;
    }

    /// Notes that the last write of the line was acknowledged.
    pub(super) fn acknowledge(&mut self, line: usize, submitted: bool, durable: bool) {
        self.writing &= line != LOGGED;
        let marks = &mut self.now.lines[line];
        if submitted || durable {
            marks.submitted = marks.started;
        }
        if durable {
            marks.durable = marks.started;
        }
    }

    /// Notes that the first `number` logged writes are durable.
    pub(super) fn durable_up_to(&mut self, number: usize) {
        let marks = &mut self.now.lines[LOGGED];
        marks.durable = marks.durable.max(number);
        marks.submitted = marks.submitted.max(number);
    }

    /// A new log begins. If holes are tolerated, non-durable writes in closed logs may from now on be lost
    /// although later writes are found.
    pub(super) fn log_begins(&mut self) {
        let number = self.now.lines[LOGGED].started - usize::from(self.writing);
        self.boundaries.insert(number);
    }

    /// Notes that the last logged write failed.
    pub(super) fn fail_last(&mut self) {
        self.writing = false;
        self.failed = self.now.lines[LOGGED].started.checked_sub(1);
    }

    /// The history of a database that continues with the content of an image. After a power cut, everything
    /// found is durable; after a kill, only what was durable before.
    pub(super) fn heir(&self, progress: &Progress, found: &Found, killed: bool) -> Option<Self> {
        let families = Self::families(progress, found).ok()?;
        let mut me = Self {
            base: self.base.clone(),
            boundaries: self.boundaries.clone(),
            tolerate_holes: self.tolerate_holes,
            incarnations: self.incarnations,
            ..Self::default()
        };
        if killed && progress.next.is_some() {
            // A change of families that was under way may be there without being durable, until the
            // database is open again.
            let as_before = families == progress.families;
            me.now.next = if as_before {
                progress.next.clone()
            } else {
                Some(progress.families.clone())
            };
        }
        me.now.families = families;
        me.now.exists = true;
        for (name, contents) in found {
            me.now_visible.set(me.now.families[name], contents);
        }
        for line in 0..2 {
            let marks = progress.lines[line];
            let want = Self::hashes(line, found, &me.now.families);
            let floor = if killed {
                marks.submitted
            } else {
                marks.durable
            };
            let at = *self.matches(line, floor, marks.started, &want).last()?;
            let writes = self.lines[line].writes[..at].to_vec();
            me.lines[line] = Line {
                last: writes
                    .iter()
                    .enumerate()
                    .flat_map(|(n, w)| w.iter().map(move |c| (c.family, n)))
                    .collect(),
                after: self.lines[line].after[..at].to_vec(),
                writes,
            };
            me.now.lines[line] = Marks {
                started: at,
                submitted: at,
                durable: if killed { marks.durable.min(at) } else { at },
            };
        }
        Some(me)
    }

    fn hashes(line: usize, found: &Found, families: &Families) -> BTreeMap<usize, u64> {
        let of_line = |name: &str| is_unlogged(name) == (line == UNLOGGED_LINE);
        found
            .iter()
            .filter(|(name, _)| of_line(name))
            .map(|(name, contents)| (families[name], hash_all(families[name], contents)))
            .collect()
    }

    /// Notes that everything in the family up to now is in tables.
    pub(super) fn flushed(&mut self, family: usize) {
        for (line, marks) in self.lines.iter().zip(&mut self.now.lines) {
            let upto = line.last.get(&family).map_or(0, |n| n + 1);
            marks.durable = marks.durable.max(upto);
            marks.submitted = marks.submitted.max(upto);
        }
    }

    /// The content that the process must read now.
    pub(super) fn visible(&self) -> Found {
        let of = |family: &usize| {
            self.now_visible
                .contents
                .get(family)
                .cloned()
                .unwrap_or_default()
        };
        self.now
            .families
            .iter()
            .map(|(name, family)| (name.clone(), of(family)))
            .collect()
    }

    /// Whether a database with this content may be found after a crash at `progress`.
    pub(super) fn check(
        &self,
        progress: &Progress,
        found: &Found,
        killed: bool,
    ) -> Result<(), String> {
        self.check_as(progress, found, killed, self.tolerate_holes)
    }

    /// The same for RocksDB, which does not notice that the end of a closed log is missing; the promised
    /// writes must be there.
    pub(super) fn check_of_rocksdb(
        &self,
        progress: &Progress,
        found: &Found,
        killed: bool,
    ) -> Result<(), String> {
        self.check_as(progress, found, killed, true)
    }

    fn check_as(
        &self,
        progress: &Progress,
        found: &Found,
        killed: bool,
        holes: bool,
    ) -> Result<(), String> {
        let families = Self::families(progress, found)?;
        for (line, marks) in progress.lines.iter().enumerate() {
            let floor = if killed {
                marks.submitted
            } else {
                marks.durable
            };
            let want = Self::hashes(line, found, &families);
            if !self.reaches(line, floor..marks.started, &want, holes) {
                return Err(self.explain(line, floor, marks.started, &want));
            }
        }
        Ok(())
    }

    fn families(progress: &Progress, found: &Found) -> Result<Families, String> {
        let names: BTreeSet<&String> = found.keys().collect();
        let same = |f: &&Families| f.keys().collect::<BTreeSet<_>>() == names;
        let mut allowed = [Some(&progress.families), progress.next.as_ref()]
            .into_iter()
            .flatten();
        if !progress.exists && names.len() == 1 {
            return Ok([("default".to_owned(), usize::MAX)].into());
        }
        allowed.find(same).cloned().ok_or_else(|| {
            format!(
                "families {names:?}, expected {:?} or {:?}",
                progress.families.keys(),
                progress.next.as_ref().map(|f| f.keys())
            )
        })
    }

    /// Whether the line has these hashes after between `floor` and `ceiling` writes.
    fn reaches(
        &self,
        line: usize,
        Range {
            start: floor,
            end: ceiling,
        }: Range<usize>,
        want: &BTreeMap<usize, u64>,
        holes: bool,
    ) -> bool {
        !self.matches(line, floor, ceiling, want).is_empty()
            || (line == LOGGED && self.reaches_without(floor, ceiling, want, holes))
    }

    /// The same without the failed write, or with holes at the ends of some closed logs.
    fn reaches_without(
        &self,
        floor: usize,
        ceiling: usize,
        want: &BTreeMap<usize, u64>,
        holes: bool,
    ) -> bool {
        let writes = &self.lines[LOGGED].writes[..ceiling];
        if let Some(failed) = self.failed.filter(|&f| f < ceiling) {
            let mut state = self.base.clone();
            for (n, write) in writes.iter().enumerate() {
                if n != failed {
                    state.apply(write);
                }
                if n + 1 >= floor && state.is(want) {
                    return true;
                }
            }
        }
        if !holes {
            return false;
        }
        let mut left = WAYS_MAX;
        self.reaches_over_holes(self.base.clone(), 0..ceiling, floor, want, &mut left)
    }

    /// Whether the state reaches these hashes with the writes from `range`, if at the end of each log some
    /// of the writes from `floor` on may be missing.
    fn reaches_over_holes(
        &self,
        mut state: State,
        range: Range<usize>,
        floor: usize,
        want: &BTreeMap<usize, u64>,
        left: &mut usize,
    ) -> bool {
        let next_log = self.boundaries.range(range.start + 1..range.end).next();
        for n in range.clone() {
            if n >= floor && state.is(want) {
                return true;
            }
            if let Some(&next) = next_log
                && n >= floor
                && n < next
            {
                if *left == 0 {
                    return false;
                }
                *left -= 1;
                let rest = next..range.end;
                if self.reaches_over_holes(state.clone(), rest, floor, want, left) {
                    return true;
                }
            }
            if next_log == Some(&n) {
                return self.reaches_over_holes(state, n..range.end, floor, want, left);
            }
            state.apply(&self.lines[LOGGED].writes[n]);
        }
        state.is(want)
    }

    /// The numbers of writes between `floor` and `ceiling` after which the line has these hashes.
    fn matches(
        &self,
        line: usize,
        floor: usize,
        ceiling: usize,
        want: &BTreeMap<usize, u64>,
    ) -> Vec<usize> {
        let base = |f: &usize| self.base.hashes.get(f).copied().unwrap_or(0);
        let mut now: BTreeMap<usize, u64> = want.keys().map(|f| (*f, base(f))).collect();
        let mut out = Vec::new();
        for n in 0..=ceiling {
            if n >= floor && now == *want {
                out.push(n);
            }
            if let Some(after) = self.lines[line].after.get(n) {
                for (family, h) in after {
                    now.entry(*family).and_modify(|now| *now = *h);
                }
            }
        }
        out
    }

    fn explain(
        &self,
        line: usize,
        floor: usize,
        ceiling: usize,
        want: &BTreeMap<usize, u64>,
    ) -> String {
        let all = self.lines[line].writes.len();
        let anywhere = self.matches(line, 0, all, want);
        let each: Vec<String> = want
            .iter()
            .map(|(&f, &h)| {
                let at = self.matches(line, 0, all, &[(f, h)].into());
                let span = at.first().zip(at.last());
                format!(
                    "family {f}: {}",
                    span.map_or("never".to_owned(), |s| format!("{s:?}"))
                )
            })
            .collect();
        format!(
            "line {line}: expected the state after {floor} to {ceiling} writes, logs begin at {:?}, \
             found {}",
            self.boundaries,
            if let Some(n) = anywhere.last() {
                format!("that after {n}: acknowledged writes are lost")
            } else {
                format!("no prefix ({})", each.join(", "))
            }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(family: usize, key: &str, value: &str) -> Change {
        Change {
            family,
            key: key.into(),
            op: Op::Put(value.into()),
        }
    }

    fn contents(pairs: &[(&str, &str)]) -> Contents {
        pairs
            .iter()
            .map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec()))
            .collect()
    }

    #[test]
    fn holes_losses_and_families_out_of_step_are_seen() {
        let names = ["default", "a"];
        let empty: Found = names
            .iter()
            .map(|n| ((*n).to_owned(), Contents::new()))
            .collect();
        let mut h = History::beginning(&empty, true);
        let (a, default) = (h.now.families["a"], h.now.families["default"]);
        h.start(LOGGED, &[put(default, "k1", "v")]);
        h.acknowledge(LOGGED, true, true);
        h.start(LOGGED, &[put(a, "k2", "v")]);
        h.acknowledge(LOGGED, true, false);
        h.start(LOGGED, &[put(default, "k3", "v")]);
        let found = |d: &[(&str, &str)], a: &[(&str, &str)]| -> Found {
            [
                ("default".to_owned(), contents(d)),
                ("a".to_owned(), contents(a)),
            ]
            .into()
        };
        let one = [("k1", "v")];
        let (two, all) = ([("k2", "v")], [("k1", "v"), ("k3", "v")]);
        let ok = |f: &Found, killed| h.check(&h.now, f, killed).is_ok();
        assert!(ok(&found(&one, &[]), false));
        assert!(ok(&found(&one, &two), false));
        assert!(ok(&found(&all, &two), false));
        assert!(!ok(&found(&one, &[]), true), "submitted");
        assert!(!ok(&found(&[], &[]), false), "durable");
        assert!(!ok(&found(&all, &[]), false), "a hole");
        assert!(!ok(&found(&[("k1", "w")], &[]), false), "a wrong value");
        let mut less = found(&one, &[]);
        less.remove("a");
        assert!(!ok(&less, false), "a family is gone");
        assert_eq!(h.visible(), found(&all, &two));
    }

    #[test]
    fn holes_are_tolerated_at_the_ends_of_closed_logs_only() {
        let empty: Found = [("default".to_owned(), Contents::new())].into();
        let mut h = History::beginning(&empty, true);
        for n in 0..6 {
            if n == 2 || n == 4 {
                h.log_begins();
                h.tolerate_holes = true;
            }
            h.start(LOGGED, &[put(0, &format!("k{n}"), "v")]);
            h.acknowledge(LOGGED, true, n == 0);
        }
        let found = |keys: &[&str]| -> Found {
            let pairs: Vec<_> = keys.iter().map(|k| (*k, "v")).collect();
            [("default".to_owned(), contents(&pairs))].into()
        };
        let ok = |keys: &[&str]| h.check(&h.now, &found(keys), false).is_ok();
        assert!(ok(&["k0", "k2", "k4"]), "a hole behind each log");
        assert!(ok(&["k0", "k4"]), "a whole log");
        assert!(ok(&["k0", "k2"]) && ok(&["k0", "k1", "k2"]));
        assert!(!ok(&["k2", "k3"]), "k0 was durable");
        assert!(!ok(&["k0", "k3"]), "a hole at the start of a log");
        assert!(!ok(&["k0", "k1", "k2", "k3", "k5"]), "the same");
    }
}
