//! Everything that the service does, with power cuts and kills at any disk event: reports, late and replacing
//! ones, erasures, retention, thinning, fences, settings, new fleets, backups. After each cut, answered writes
//! are there, erased ones are not, all rows agree, and the events are exactly those that the stored reports make.
//! A write that was not answered is there or not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ::tracks::fleets::Info;
use ::tracks::geo::distance::distance;
use ::tracks::geo::position::Position;
use ::tracks::model::key::{Fleet, PointKey};
use ::tracks::model::name::Name;
use ::tracks::model::point::Point;
use ::tracks::model::report::Report;
use ::tracks::model::time::{SECOND, Time};
use ::tracks::read;
use ::tracks::service::{self, Tracks};
use ::tracks::store::{Engine, Family, Store, View};
use ::tracks::write::Ack;
use base::clock::Clock;
use base::rng::Rng;
use base::threads::SystemThreads;
use ironstone::{BackupEngine, BackupEngineOptions, CreateBackupOptions, Env, RestoreOptions};
use sim::disk::{Config, CrashKind, CrashWhen, SimDisk};

use super::model::Model;
use super::ops::{KINDS, Op, name, ops, report};
use super::{NOW, Rows, all_of, at, engine, event_ids};

const DAY: i64 = 86_400;
const KEEP_DAYS: u32 = 60;
const THIN_DAYS: u32 = 15;
/// The number of walks.
const SEEDS: u64 = 16;
/// The number of cuts in each walk.
const CUTS: u64 = 5;
const BACKUPS: &str = "/backups";

/// A wall clock that the test moves.
#[derive(Debug)]
struct WalkClock(AtomicU64);

impl WalkClock {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::Relaxed) as i64)
    }
}

impl Clock for WalkClock {
    fn wall_micros(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn monotonic_nanos(&self) -> u64 {
        0
    }
}

struct Open {
    tracks: Tracks,
    engine: Engine,
    /// The fleet with fences, and the one with retention.
    fleets: [Arc<Info>; 2],
}

fn open(disk: &SimDisk, clock: &Arc<WalkClock>) -> base::Result<Open> {
    let engine = engine(disk)?;
    let store: Arc<dyn Store> = Arc::new(engine.clone());
    let mut options = service::Options::default();
    options.write.shards = 2;
    let clock: Arc<dyn Clock> = Arc::<WalkClock>::clone(clock);
    let tracks = Tracks::over(store, &options, clock, &SystemThreads)?;
    let fleet = tracks.fleet_or_make(&name("fleet"))?;
    let old = tracks.change_fleet(&name("old"), |settings| {
        (settings.keep_days, settings.thin_days) = (KEEP_DAYS, THIN_DAYS);
        Ok(())
    })?;
    Ok(Open {
        tracks,
        engine,
        fleets: [fleet, old],
    })
}

fn backups(disk: &SimDisk) -> base::Result<BackupEngine> {
    let env = Env {
        fs: disk.shared(),
        ..Env::default()
    };
    BackupEngine::open(&BackupEngineOptions::new(BACKUPS), &env)
}

impl Open {
    /// Runs until everything due is thinned: thinning gives way to the tables of erased entities.
    fn keep(&self, disk: &SimDisk, walk: &mut Walk) -> base::Result<()> {
        let old = walk.clock.now().0 - i64::from(THIN_DAYS) * DAY * SECOND;
        let midnight = old.div_euclid(DAY * SECOND) * DAY * SECOND;
        let key = [b"thinned/", &self.fleets[1].fleet.0.to_be_bytes()[..]].concat();
        for _ in 0..2000 {
            walk.thinned += self.tracks.keep_house()?.thinned;
            let mark = self.engine.get(Family::Meta, &key)?;
            let mark = mark.and_then(|bytes| bytes.try_into().ok());
            if mark.map(i64::from_be_bytes) >= Some(midnight) {
                return Ok(());
            }
            if disk.is_crashed() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(disk.is_crashed(), "seed {}: it is not thinned", walk.seed);
        Err(base::Error::broken("the power is gone"))
    }

    fn send(&self, info: &Info, reports: &[Report], now: Time) -> base::Result<()> {
        let ticket = self
            .tracks
            .report_at(info, reports.to_vec(), Ack::Durable, now)?;
        let outcomes = ticket.wait().outcomes;
        outcomes.into_iter().try_for_each(|o| o.map(drop))
    }

    /// Runs the operation. After an error it may have been done or not.
    fn run(&self, disk: &SimDisk, op: &Op, walk: &mut Walk) -> base::Result<()> {
        let now = walk.clock.now();
        match op {
            Op::Report(reports) | Op::Late(reports) => self.send(&self.fleets[0], reports, now),
            Op::Drive(reports) => {
                // The reports are of days that are still to come, so the clock is moved to them.
                let last = reports.last().and_then(|r| r.time).unwrap();
                walk.clock.0.store(last.0 as u64, Ordering::Relaxed);
                self.send(&self.fleets[1], reports, last)
            }
            Op::Erase(entity) => self.tracks.erase(&self.fleets[0], entity).map(drop),
            Op::PutFence(fence, definition) => self
                .tracks
                .put_fence(&self.fleets[0], fence, definition.clone())
                .map(drop),
            Op::DeleteFence(fence) if !walk.model.has_fence(fence) => Ok(()),
            Op::DeleteFence(fence) => self.tracks.delete_fence(&self.fleets[0], fence),
            Op::Tag(tag) => {
                let change = self.tracks.change_fleet(&name("fleet"), |settings| {
                    if !settings.tags.contains(tag) {
                        settings.tags.push(tag.clone());
                    }
                    Ok(())
                });
                change.map(drop)
            }
            Op::NewFleet(fleet) => {
                self.tracks.fleet_or_make(fleet)?;
                let store = &**self.tracks.store();
                let tag = ["new".to_owned()];
                let info = self.tracks.fleets().with_tags(store, fleet, &tag)?;
                let mut one = report("first", 0, at(1.0, 1.0));
                one.point.tags = info.settings.bits(&tag)?;
                self.send(&info, &[one], now)
            }
            Op::Keep => self.keep(disk, walk),
            Op::Backup => {
                let rows = points(&*self.engine.view())?;
                let done = backups(disk)?
                    .create_new_backup(self.engine.db(), CreateBackupOptions::default());
                walk.backed_up = Some((done?, rows, self.fleets[1].fleet));
                Ok(())
            }
        }
    }
}

fn points(view: &dyn View) -> base::Result<Points> {
    let mut out = Vec::new();
    let mut rows = view.rows(Family::Default, &[], None)?;
    rows.seek(&[]);
    while let Some((key, value)) = rows.row() {
        out.push((key.to_vec(), value.to_vec()));
        rows.next();
    }
    rows.status()?;
    Ok(out)
}

/// Rows with points: keys and values.
type Points = Vec<(Vec<u8>, Vec<u8>)>;

/// The expected state of one walk.
struct Walk {
    seed: u64,
    clock: Arc<WalkClock>,
    model: Model,
    /// The answered reports of the fleet with retention.
    drives: BTreeMap<(Name, Time), Position>,
    tags: Vec<String>,
    new_fleets: BTreeSet<Name>,
    /// The last backup that was answered, the points before it, and the fleet with retention.
    backed_up: Option<(u32, Points, Fleet)>,
    thinned: u64,
}

type Stored = BTreeMap<(Name, Time), Position>;

impl Walk {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            clock: Arc::new(WalkClock(AtomicU64::new(NOW.0 as u64))),
            model: Model::default(),
            drives: BTreeMap::new(),
            tags: Vec::new(),
            new_fleets: BTreeSet::new(),
            backed_up: None,
            thinned: 0,
        }
    }

    /// Notes that the operation was done.
    fn is_done(&mut self, op: &Op) {
        match op {
            Op::Report(reports) | Op::Late(reports) => {
                for report in reports {
                    self.model.report(report);
                }
            }
            Op::Drive(reports) => {
                let of = |r: &Report| ((r.entity.clone(), r.time.unwrap()), r.point.position);
                self.drives.extend(reports.iter().map(of));
            }
            Op::Erase(entity) => self.model.erase(entity),
            Op::PutFence(fence, definition) => self.model.put_fence(fence, definition),
            Op::DeleteFence(fence) => self.model.delete_fence(fence),
            Op::Tag(tag) if !self.tags.contains(tag) => self.tags.push(tag.clone()),
            Op::NewFleet(fleet) => drop(self.new_fleets.insert(fleet.clone())),
            Op::Tag(_) | Op::Keep | Op::Backup => {}
        }
    }

    /// Notes an operation that may have been done: the stored rows tell.
    fn may_be_done(&mut self, open: &Open, op: &Op) {
        match op {
            Op::Report(reports) | Op::Late(reports) => {
                let there = stored(open, 0);
                for report in reports {
                    let found = there.get(&(report.entity.clone(), report.time.unwrap()));
                    if found == Some(&report.point.position) {
                        self.model.report(report);
                    }
                }
            }
            // An erasure may be done in part, and the same call does the rest.
            Op::Erase(entity) => {
                open.tracks.erase(&open.fleets[0], entity).unwrap();
                self.model.erase(entity);
            }
            Op::PutFence(fence, definition) => {
                let all = open.tracks.fences().list(open.fleets[0].fleet);
                let found = all.iter().find(|other| other.name == *fence);
                if found.is_some_and(|found| found.definition == *definition) {
                    self.model.put_fence(fence, definition);
                }
            }
            Op::DeleteFence(fence) => {
                let all = open.tracks.fences().list(open.fleets[0].fleet);
                if all.iter().all(|other| other.name != *fence) {
                    self.model.delete_fence(fence);
                }
            }
            Op::Tag(tag) => {
                if open.fleets[0].settings.tags.contains(tag) && !self.tags.contains(tag) {
                    self.tags.push(tag.clone());
                }
            }
            Op::Drive(_) | Op::NewFleet(_) | Op::Keep | Op::Backup => {}
        }
    }

    fn verify(&self, open: &Open) {
        let (seed, tracks) = (self.seed, &open.tracks);
        let options = ::tracks::check::Options { visits: true };
        let findings = ::tracks::check::check(&**tracks.store(), options, &mut |_| ()).unwrap();
        assert_eq!(findings.problems, [], "seed {seed}");
        // The points are exactly those that were answered, or found after a cut.
        assert!(stored(open, 0) == self.model.points, "seed {seed}: points");
        let all = tracks.fences().list(open.fleets[0].fleet);
        let fences: BTreeMap<_, _> = all
            .iter()
            .map(|f| (f.name.clone(), &f.definition))
            .collect();
        assert_eq!(fences, self.model.definitions(), "seed {seed}");
        let fleet = tracks.fleet(&name("fleet")).unwrap();
        assert_eq!(fleet.settings.tags, self.tags, "seed {seed}");
        for fleet in &self.new_fleets {
            let info = tracks.fleet(fleet).unwrap();
            assert_eq!(info.settings.tags, ["new"]);
            let entity = name("first").number(0);
            let latest = read::latest(&*tracks.view(), info.fleet, entity).unwrap();
            assert_eq!(latest.unwrap().point.tags, 1);
        }
        self.verify_drives(&stored(open, 1));
        self.verify_events(open);
    }

    fn verify_events(&self, open: &Open) {
        // Events are given out a little later than they are durable.
        for _ in 0..1000 {
            if event_ids(&open.tracks, &open.fleets[0]).len() >= self.model.events.values().sum() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let all = event_ids(&open.tracks, &open.fleets[0]);
        let ids: BTreeSet<u64> = all.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids.len(), all.len(), "seed {}: an id twice", self.seed);
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        for (_, said) in all {
            *found.entry(said).or_default() += 1;
        }
        assert_eq!(found, self.model.events, "seed {}", self.seed);
    }

    /// New points are there, old ones are not, and the thinned ones follow from the answered reports.
    fn verify_drives(&self, there: &Stored) {
        let now = self.clock.now();
        let before = |days: u32| Time(now.0 - i64::from(days) * DAY * SECOND);
        let (kept, thinned) = (before(KEEP_DAYS), before(THIN_DAYS));
        let day = |time: Time| time.0.div_euclid(DAY * SECOND);
        assert!(
            there.keys().all(|(_, time)| *time >= kept),
            "seed {}: too old",
            self.seed
        );
        for ((entity, time), position) in &self.drives {
            if *time < kept {
                continue;
            }
            let found = there.get(&(entity.clone(), *time));
            let is_exact = found == Some(position);
            if is_exact || found.is_none() && day(*time) < day(thinned) && day(*time) == day(kept) {
                continue;
            }
            assert!(
                found.is_none() && day(*time) < day(thinned),
                "seed {}: {entity} at {time:?} is lost",
                self.seed
            );
            let of = |time: Time| (entity.clone(), time);
            let (_, a) = (there.range(of(kept)..of(*time)).next_back())
                .map(|((_, t), p)| (t.0, (t.0, *p)))
                .expect("the first point of a day stays");
            let (_, b) = (there.range(of(*time)..=of(now)).next())
                .map(|((_, t), p)| (t.0, (t.0, *p)))
                .expect("the last point of a day stays");
            let part = (time.0 - a.0) as f64 / (b.0 - a.0) as f64;
            let ((a_lat, a_lon), (b_lat, b_lon)) = (a.1.degrees(), b.1.degrees());
            let between = at(
                a_lat + (b_lat - a_lat) * part,
                a_lon + (b_lon - a_lon) * part,
            );
            let off = distance(between, *position);
            assert!(off <= 10.1, "seed {}: {off} metres off", self.seed);
        }
    }

    /// The last backup that was answered is restored as it was.
    fn verify_backup(&self, disk: &SimDisk) {
        let Some((id, rows, forgets)) = &self.backed_up else {
            return;
        };
        let to = Path::new("/restored");
        let how = RestoreOptions::default();
        let engine = backups(disk).unwrap();
        engine.restore_db_from_backup(*id, to, to, &how).unwrap();
        let mut options = super::options(disk);
        options.db.create_if_missing = false;
        let restored = Engine::open_with(to, options).unwrap();
        let check = ::tracks::check::Options { visits: true };
        let findings = ::tracks::check::check(&restored, check, &mut |_| ()).unwrap();
        assert_eq!(findings.problems, [], "seed {}", self.seed);
        // Some points of the fleet with retention may have been dropped before the backup was made.
        let is_of =
            |(key, _): &&(Vec<u8>, Vec<u8>)| PointKey::of_bytes(key).unwrap().fleet == *forgets;
        let found = points(&*restored.view()).unwrap();
        let (forgot, kept): (Vec<_>, Vec<_>) = found.iter().partition(is_of);
        let (all, before): (BTreeSet<_>, Vec<_>) = {
            let (all, before): (Vec<_>, Vec<_>) = rows.iter().partition(is_of);
            (all.into_iter().collect(), before)
        };
        assert!(kept == before, "seed {}", self.seed);
        assert!(
            forgot.iter().all(|row| all.contains(row)),
            "seed {}",
            self.seed
        );
    }
}

/// The visible points of a fleet.
fn stored(open: &Open, nth: usize) -> Stored {
    let (view, fleet) = (open.tracks.view(), open.fleets[nth].fleet);
    let mut names = BTreeMap::new();
    let mut out = BTreeMap::new();
    for (key, _) in points(&*open.tracks.store().view()).unwrap() {
        let key = PointKey::of_bytes(&key).unwrap();
        if key.fleet != fleet {
            continue;
        }
        // Points that are too old are hidden.
        let Some(value) = view.get(Family::Default, &key.to_bytes()).unwrap() else {
            continue;
        };
        let name: &Name = names.entry(key.entity).or_insert_with(|| {
            let name = read::name_of(&*open.tracks.store().view(), fleet, key.entity).unwrap();
            name.expect("points of nobody")
        });
        let point = Point::decode(&value).unwrap();
        out.insert((name.clone(), key.time), point.position);
    }
    out
}

/// The number of disk events of each operation without a cut, and of opening.
fn costs(seed: u64, ops: &[Op]) -> (Vec<u64>, u64) {
    let (disk, mut walk) = (SimDisk::new(Config::default()), Walk::new(seed));
    let open = open(&disk, &walk.clock).unwrap();
    let of_open = disk.events();
    let mut out = Vec::new();
    for op in ops {
        let before = disk.events();
        open.run(&disk, op, &mut walk).unwrap();
        walk.is_done(op);
        out.push(disk.events() - before);
    }
    walk.verify(&open);
    assert!(walk.thinned > 20, "seed {seed}: {}", walk.thinned);
    (out, of_open)
}

/// What the walks have covered.
#[derive(Debug, Default)]
struct Counts {
    /// Cuts in operations of each kind.
    cuts: [u64; KINDS],
    /// Second cuts, while the database was opened after the first.
    openings: u64,
    events: BTreeMap<String, u64>,
    thinned: u64,
    /// States that RocksDB has read.
    by_rocksdb: u64,
}

fn cut(rng: &mut Rng, disk: &SimDisk) -> SimDisk {
    if rng.one_in(3) {
        return disk.kill_image();
    }
    let kind = CrashKind::any(rng);
    disk.crash_image(rng, kind)
}

fn run(seed: u64, counts: &mut Counts) {
    let ops = ops(seed);
    let (costs, of_open) = costs(seed, &ops);
    let (mut rng, mut walk) = (Rng::new(!seed), Walk::new(seed));
    let mut disk = SimDisk::new(Config::default());
    let (mut next, mut cuts) = (0, 0);
    let mut opened = open(&disk, &walk.clock).unwrap();
    while next < ops.len() {
        // Any of the operations that are left. Each kind has its turn, so that rare ones are cut as often.
        let kind = ((seed * CUTS + cuts) % KINDS as u64) as usize;
        let target =
            (cuts < CUTS).then(|| target(&mut rng, (&ops, &costs), (next, CUTS - cuts), kind));
        let unsure = loop {
            let Some(op) = ops.get(next) else {
                break None;
            };
            if target == Some(next) {
                // Also near the beginning: the count includes the background work of the operation.
                let part = [1, 4][rng.below(2) as usize];
                let after = 1 + rng.below(costs[next].div_ceil(part).max(1));
                disk.crash_at(disk.events() + after, CrashWhen::During);
            }
            if opened.run(&disk, op, &mut walk).is_err() {
                assert!(disk.is_crashed(), "seed {seed}: {op:?}");
                break Some(op);
            }
            walk.is_done(op);
            next += 1;
        };
        let Some(op) = unsure else {
            break;
        };
        counts.cuts[op.kind()] += 1;
        cuts += 1;
        let mut image = cut(&mut rng, &disk);
        drop(opened);
        // A second cut, during the open.
        if rng.one_in(3) {
            let after = 1 + rng.below(of_open);
            image.crash_at(image.events() + after, CrashWhen::During);
            drop(open(&image, &walk.clock));
            image = cut(&mut rng, &image);
            counts.openings += 1;
        }
        if cuts == 3 {
            counts.by_rocksdb += u64::from(assert_rocksdb_reads(&image));
        }
        disk = image;
        opened = open(&disk, &walk.clock).unwrap();
        walk.may_be_done(&opened, op);
        walk.verify(&opened);
    }
    // A cut that was drawn for a moment after the last operation may not have happened, or only after it.
    disk.crash_at(u64::MAX, CrashWhen::During);
    if disk.is_crashed() {
        let image = cut(&mut rng, &disk);
        drop(opened);
        disk = image;
        opened = open(&disk, &walk.clock).unwrap();
    }
    walk.verify(&opened);
    drop(opened);
    walk.verify_backup(&disk);
    counts.by_rocksdb += u64::from(assert_rocksdb_reads(&disk));
    counts.thinned += walk.thinned;
    for (event, count) in &walk.model.events {
        let kind = event.split(' ').next().unwrap_or_default();
        *counts.events.entry(kind.to_owned()).or_default() += *count as u64;
    }
}

/// One of the next operations, of the given kind if there is one.
fn target(
    rng: &mut Rng,
    (ops, costs): (&[Op], &[u64]),
    (next, left): (usize, u64),
    kind: usize,
) -> usize {
    let near = next + 1 + (ops.len() - next) / left as usize;
    let all: Vec<usize> = (next..near.min(ops.len()))
        .filter(|n| ops[*n].kind() == kind && costs[*n] > 0)
        .collect();
    if all.is_empty() {
        return next + rng.below((near.min(ops.len()) - next) as u64) as usize;
    }
    all[rng.below(all.len() as u64) as usize]
}

/// Compares with RocksDB on the disk as it is, before our own recovery.
fn assert_rocksdb_reads(disk: &SimDisk) -> bool {
    let dir = sim::dirs::scratch().unwrap();
    // The same one for both: threads of a service that was dropped may still end.
    let image = disk.kill_image();
    image.export(dir.path()).unwrap();
    let ours: Rows = {
        let engine = engine(&image).unwrap();
        all_of(&*engine.view())
    };
    super::assert_rocksdb_reads(&dir.path().join("tracks"), &ours, 1)
}

/// `IRONSTONE_TRACKS_SEEDS` sets the number of seeds.
#[test]
fn cuts_anywhere_keep_all_that_was_promised() {
    let seeds = std::env::var("IRONSTONE_TRACKS_SEEDS").map_or(SEEDS, |n| n.parse().unwrap());
    let mut counts = Counts::default();
    for seed in 0..seeds {
        run(seed, &mut counts);
    }
    eprintln!("{seeds} walks: {counts:?}");
    // With fewer seeds a kind may be missing.
    assert!(
        seeds < SEEDS || counts.cuts.iter().all(|n| *n > 0),
        "{counts:?}"
    );
    assert!(counts.openings > seeds / 2 && counts.thinned > 20 * seeds);
    // RocksDB has read both states of each seed, or there is no RocksDB.
    assert!(
        counts.by_rocksdb == 0 || counts.by_rocksdb > seeds,
        "{counts:?}"
    );
    for kind in ["Enter", "Exit", "Dwell", "Cross"] {
        assert!(counts.events[kind] > 2 * seeds, "{kind}: {counts:?}");
    }
}
