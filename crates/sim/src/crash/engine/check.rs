//! Opens images and compares them with the history.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Result;
use base::rng::Rng;
use base::sync::Mutex;
use io::FileSystem;
use ironstone::{Db, Options};

use super::super::Tally;
use super::super::model::{Contents, Found, History, Progress};
use super::{DIR, Shot, lock, on, open_all, peer};
use crate::disk::{CrashKind, CrashWhen, Moment, SimDisk, Watcher};

/// The environment variable that names a directory for a copy of the first failing image.
const DUMP: &str = "IRONSTONE_CRASH_DUMP";

/// Everything in an open database.
pub(in crate::crash) fn contents(db: &Db) -> Result<Found> {
    let mut out = Found::new();
    for cf in db.column_families() {
        let mut all = Contents::new();
        let mut it = db.cf(&cf).iterator()?;
        it.seek_to_first();
        while it.valid() {
            all.insert(it.key().to_vec(), it.value().to_vec());
            it.next();
        }
        it.status()?;
        out.insert(cf.name().to_owned(), all);
    }
    Ok(out)
}

/// Opens the database on `disk`, reads everything and closes it. Errors and panics are returned as text.
pub(in crate::crash) fn open(options: &Options, disk: &SimDisk) -> Result<Found, String> {
    let options = on(options, disk.shared());
    let run = || -> Result<Found> {
        let db = open_all(&options)?;
        let found = contents(&db)?;
        db.close()?;
        Ok(found)
    };
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|_| Err(base::Error::aborted("PANIC while opening")))
        .map_err(|e| format!("cannot be opened: {e}"))
}

/// Copies a failing image to the directory in the environment; only the first one.
pub(in crate::crash) fn dump(image: &SimDisk) {
    if let Some(dir) = std::env::var_os(DUMP)
        && !std::path::Path::new(&dir).exists()
    {
        let done = image.export(dir.as_ref());
        assert!(done.is_ok(), "the dump cannot be written: {done:?}");
    }
}

/// The most bytes of a torn MANIFEST's last sector that may be one flipped bit instead.
const AMBIGUOUS_MAX: u64 = 4;

/// Whether the image was refused because its MANIFEST ends in a few zeros after a sector boundary. If those
/// bytes had a single bit set, a sector that was not written and a flipped bit give the same file; it
/// counts as damage.
pub(super) fn is_ambiguous(image: &SimDisk, what: &str) -> bool {
    let tail = || -> Result<bool> {
        let dir = Path::new(DIR);
        let current = io::read_file(image, &dir.join("CURRENT"), 100)?;
        let name = String::from_utf8_lossy(&current).trim().to_owned();
        let bytes = io::read_file(image, &dir.join(name), 1 << 30)?;
        let piece = bytes.len() as u64 % u64::from(image.config().sector);
        let (_, last) = bytes.split_at(bytes.len() - piece as usize);
        Ok((1..=AMBIGUOUS_MAX).contains(&piece) && last.iter().all(|&b| b == 0))
    };
    what.contains("MANIFEST") && what.contains("checksum mismatch") && tail().unwrap_or(false)
}

/// Checks that files which were being moved into the database are in it, or still where they were.
fn nothing_is_lost_outside(
    disk: &SimDisk,
    progress: &Progress,
    found: &Found,
) -> Result<(), String> {
    let Some(outside) = &progress.outside else {
        return Ok(());
    };
    let (family, key) = &outside.mark;
    if found.get(family).is_some_and(|all| all.contains_key(key)) {
        return Ok(());
    }
    let lost = |path: &&PathBuf| !disk.exists(path).unwrap_or(false);
    match outside.files.iter().find(lost) {
        None => Ok(()),
        Some(path) => Err(format!(
            "{} is gone, and what it holds is not in the database",
            path.display()
        )),
    }
}

/// Takes images during a recovery.
struct Again {
    state: Mutex<(Rng, Vec<(SimDisk, String)>)>,
}

impl Watcher for Again {
    fn at(&self, moment: &Moment<'_>) {
        let mut state = lock(&self.state);
        let (rng, images) = &mut *state;
        if rng.one_in(12) {
            let kind = CrashKind::any(rng);
            let label = format!("{} {:?} {kind:?}", moment.event, moment.phase);
            images.push((moment.crash_image(rng, kind), label));
        }
    }
}

/// Checks images.
pub(super) struct Checker<'a> {
    pub(super) options: &'a Options,
    pub(super) history: &'a Mutex<History>,
    pub(super) rng: Rng,
    pub(super) heirs: Vec<(SimDisk, History)>,
    pub(super) heirs_max: usize,
    pub(super) tally: &'a mut Tally,
    pub(super) rocksdb_one_in: u64,
    pub(super) context: String,
}

impl Checker<'_> {
    pub(super) fn fail(&mut self, what: &str) {
        self.tally.fail(format!("{what}; {}", self.context));
    }

    pub(super) fn check_all(&mut self, shots: Vec<Shot>) {
        for shot in shots {
            let before = shot.disk.kill_image();
            if let Err(what) = self.check(&shot) {
                if is_ambiguous(&before, &what) {
                    self.tally.ambiguous += 1;
                    continue;
                }
                dump(&before);
                self.fail(&format!("{what}; {}", shot.label));
                return;
            }
        }
    }

    fn check(&mut self, shot: &Shot) -> Result<(), String> {
        let deep = self.rng.one_in(10);
        let heir = shot.progress.exists && self.heirs.len() < self.heirs_max && self.rng.one_in(40);
        let copy = (deep || heir).then(|| shot.disk.kill_image());
        let ask = self.rocksdb_one_in > 0
            && self.rng.one_in(self.rocksdb_one_in)
            && peer::has_database(&shot.disk);
        let endless = ask && peer::reads_for_ever(&shot.disk);
        self.tally.endless += u64::from(endless);
        let ask = ask && !endless;
        if ask {
            self.tally.rocksdb[0] += 1;
            let (found, cut) = peer::open_unrecovered(&shot.disk)?;
            self.tally.manifests_cut += u64::from(cut);
            lock(self.history)
                .check_of_rocksdb(&shot.progress, &found, shot.killed)
                .map_err(|e| format!("RocksDB before the recovery: {e}"))?;
        }
        let found = self.open_and_check(&shot.disk, &shot.progress, shot.killed)?;
        if ask {
            self.tally.rocksdb[1] += 1;
            let after = peer::open(&shot.disk)?;
            if after != found {
                return Err("RocksDB after the recovery shows other content".to_owned());
            }
        }
        if self.rng.one_in(5) {
            self.tally.states += 1;
            let again = open(self.options, &shot.disk).map_err(|e| format!("opened twice: {e}"))?;
            if again != found {
                return Err("opened twice: the second time it shows other content".to_owned());
            }
        }
        if let Some(copy) = &copy
            && deep
        {
            self.crash_in_recovery(copy.kill_image(), shot, &found)?;
        }
        if let Some(copy) = copy
            && heir
        {
            let history = lock(self.history).heir(&shot.progress, &found, shot.killed);
            self.heirs.extend(history.map(|h| (copy, h)));
        }
        Ok(())
    }

    fn open_and_check(
        &mut self,
        disk: &SimDisk,
        progress: &Progress,
        killed: bool,
    ) -> Result<Found, String> {
        self.tally.states += 1;
        let found = open(self.options, disk)?;
        lock(self.history).check(progress, &found, killed)?;
        nothing_is_lost_outside(disk, progress, &found)?;
        Ok(found)
    }

    /// Crashes again during the recovery, and checks the images.
    fn crash_in_recovery(
        &mut self,
        disk: SimDisk,
        shot: &Shot,
        found: &Found,
    ) -> Result<(), String> {
        let seed = self.rng.next_u64();
        let again = Arc::new(Again {
            state: Mutex::new((Rng::new(seed), Vec::new())),
        });
        disk.watch(Arc::clone(&again) as Arc<dyn Watcher>);
        if self.rng.one_in(2) {
            disk.crash_at(1 + self.rng.below(30), CrashWhen::During);
        }
        // It fails if the machine ends before it is complete.
        drop(open(self.options, &disk));
        disk.unwatch();
        let mut images = std::mem::take(&mut lock(&again.state).1);
        let last = disk.crash_image(&mut self.rng, CrashKind::Random);
        images.push((last, "at the end".to_owned()));
        for (image, label) in images {
            let before = image.kill_image();
            let again = match self.open_and_check(&image, &shot.progress, false) {
                Ok(again) => again,
                Err(what) if is_ambiguous(&before, &what) => {
                    self.tally.ambiguous += 1;
                    continue;
                }
                Err(what) => {
                    dump(&before);
                    return Err(format!("{what}; crash in recovery at {label}"));
                }
            };
            if !shot.killed && again != *found {
                return Err(format!(
                    "a crash in recovery changes the content; at {label}"
                ));
            }
        }
        Ok(())
    }
}
