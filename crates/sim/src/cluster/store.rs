//! A simulated store: its disk, its clocks, its process, and the jobs on their way to its device.
//!
//! The device executes one job at a time of the simulation: its calls of the disk happen all at once when the
//! job is *due*. At a crash, each job on its way has happened, has not, or has in part: writes of the log are
//! torn sector by sector, and a write-back ends after any of its writes, pages or its sync. A crash may also be
//! *armed*: then the machine ends at the n-th later call of its disk, whatever the store is doing, even while
//! it opens or begins a new log file.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use base::Result;
use base::rng::Rng;
use base::sync::{Mutex, PoisonError};
use block::group::members::Members;
use block::ids::{BLOCK, Group, Index, Uuid};
use block::raftlog::Append;
use block::shard::core::{Assignment, Core, Event};
use block::shard::layout::{Make, Opened, Store, make};
use block::shard::member::TICK;
use block::shard::time::Time;
use block::store::data::{Data, Reader};
use block::store::flush::Speed;
use block::store::in_place::InPlace;
use block::store::sync::Marked;
use io::queue::{Act, Request};
use io::{AlignedBuf, FileSystem, OpenHow, SyncKind, WriteSync};

use super::clocks::NodeClock;
use super::coverage::Coverage;
use super::node::NodeId;
use super::shape::Shape;
use crate::disk::{self, CrashKind, CrashWhen, Repeat, SimDisk};

/// The store's directory on its disk.
const DIR: &str = "/store";
/// The cluster that all stores belong to.
const CLUSTER: Uuid = Uuid([7; 16]);
/// The most log batches on their way.
const DEPTH: u32 = 2;

/// A job of the device.
#[derive(Debug)]
pub enum Job {
    /// A batch of the log.
    Log(Append),
    /// A read.
    Read {
        /// The core's token.
        token: u64,
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        len: usize,
    },
    /// An in-place write.
    InPlace {
        /// The core's token.
        token: u64,
        /// The blocks, and where they go.
        place: InPlace,
    },
    /// A write-back with its sync.
    WriteBack(Vec<Marked>, Speed),
}

/// A process of a store.
#[derive(Debug)]
pub struct Process {
    /// The store.
    pub core: Core,
    data: Data,
    /// Its time, which advances even if the node's clock goes back.
    pub time: Time,
    /// When the next tick is due, by that time.
    pub next_tick: u64,
    /// The newest log file at the last check.
    pub log_file: u64,
}

impl Process {
    /// A reader of the data file.
    pub fn reader(&self) -> Reader {
        self.data.reader()
    }
}

/// A simulated store.
pub struct Node {
    /// Its number.
    pub id: NodeId,
    /// Its disk.
    pub disk: SimDisk,
    /// Its clocks.
    pub clock: NodeClock,
    /// Its process, if it runs.
    pub process: Option<Process>,
    /// Number of its processes so far.
    pub life: u64,
    /// The jobs on their way to its device.
    pub jobs: BTreeMap<u64, Job>,
    next_job: u64,
    /// A crash at a later call of the disk: whether the machine loses power.
    pub armed: Option<bool>,
    /// A crash while the next job of a kind is on its way: whether that is a write-back, and whether the
    /// machine loses power.
    pub waits_for: Option<(bool, bool)>,
    /// Whether the disk has lost durable data, or a sync has failed.
    pub is_damaged: bool,
    /// Whether a call of the disk has failed since the process began.
    pub met_fault: bool,
    /// The last entry of each group that its processes had applied.
    applied: BTreeMap<Group, Index>,
    /// Whether it never starts again.
    pub is_retired: bool,
    no_space: bool,
    rng: Rng,
}

/// Disks with a new store, by the store's number, the number of its log files, and its slots.
type Templates = Mutex<BTreeMap<(u32, u32, u32), SimDisk>>;

/// A disk with a new store.
fn new_disk(nth: u32, shape: &Shape) -> Result<SimDisk> {
    static MADE: OnceLock<Templates> = OnceLock::new();
    let made = MADE.get_or_init(Templates::default);
    let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (nth, shape.log_files, shape.slots_of_store());
    if let Some(disk) = made.get(&key) {
        return Ok(disk.kill_image());
    }
    let disk = SimDisk::new(disk::Config::default());
    let what = Make {
        store: Uuid([nth as u8 + 1; 16]),
        cluster: CLUSTER,
        slots: shape.slots_of_store(),
        log_files: shape.log_files,
        log_file_bytes: 4 << 20,
        allow_in_memory: true,
    };
    make(&disk.shared(), Path::new(DIR), &what, &mut |_| ())?;
    let image = disk.kill_image();
    made.insert(key, disk);
    Ok(image)
}

impl Node {
    /// A node with a new store, which does not run.
    pub fn new(id: NodeId, shape: &Shape, clock: NodeClock) -> Result<Self> {
        Ok(Self {
            id,
            disk: new_disk(id.0, shape)?,
            clock,
            process: None,
            life: 0,
            jobs: BTreeMap::new(),
            next_job: 0,
            armed: None,
            waits_for: None,
            is_damaged: false,
            met_fault: false,
            applied: BTreeMap::new(),
            is_retired: false,
            no_space: false,
            rng: Rng::new(shape.seed ^ u64::from(id.0 + 1) << 32 ^ 0x5704e),
        })
    }

    /// Starts the process with the disk's content. Errors: the store does not open.
    pub fn start(&mut self, shape: &Shape) -> Result<()> {
        let fs: Arc<dyn FileSystem> = self.disk.shared();
        let seed = self.rng.next_u64();
        self.life += 1;
        let Opened { store, log, data } = Store::open(&fs, Path::new(DIR), CLUSTER, DEPTH, seed)?;
        let store_name = u64::from(self.id.0) + 1;
        let mine = shape.groups.iter().filter(|(_, s)| s.contains(&store_name));
        let mine = mine.map(|(&group, stores)| Assignment {
            group,
            replica: store_name,
            members: Members::of(stores),
            chunks_max: shape.chunks_of(group),
        });
        let mine: Vec<Assignment> = mine.collect();
        for assignment in &mine {
            self.applied.entry(assignment.group).or_default();
        }
        let log_file = log.file_number();
        let reader = data.reader();
        let core = Core::open(store, log, reader, shape.policy, &mine, &mut self.rng)?
            .with_read_mode(shape.read_mode);
        self.process = Some(Process {
            core,
            data,
            time: Time::default(),
            next_tick: self.clock.boottime_nanos() + TICK.as_nanos() as u64,
            log_file,
        });
        Ok(())
    }

    /// Begins a job; returns its number, and how long it takes.
    pub fn put(&mut self, shape: &Shape, job: Job) -> (u64, u64) {
        let device = &shape.device;
        let nanos = match &job {
            Job::Log(_) | Job::InPlace { .. } => device.log.draw(&mut self.rng),
            Job::Read { .. } => device.read.draw(&mut self.rng),
            Job::WriteBack(marked, speed) => {
                let blocks: u64 = marked.iter().map(|m| m.writes().len() as u64).sum();
                let writes: u64 = (0..=blocks / 4)
                    .map(|_| device.write.draw(&mut self.rng))
                    .sum();
                let pace = match speed {
                    Speed::Full => 0,
                    Speed::Paced(rate) => blocks * BLOCK as u64 * 1_000_000_000 / rate.max(&1),
                };
                writes.max(pace) + device.sync.draw(&mut self.rng)
            }
        };
        self.next_job += 1;
        self.jobs.insert(self.next_job, job);
        (self.next_job, nanos)
    }

    /// If a crash waits for such a job: whether the machine loses power, and when within `nanos`.
    pub fn crash_within(&mut self, is_write_back: bool, nanos: u64) -> Option<(bool, u64)> {
        let (_, power) = self.waits_for.take_if(|w| w.0 == is_write_back)?;
        Some((power, self.rng.below(nanos.max(1))))
    }

    /// Executes a job that is due; returns the event for the core.
    pub fn do_job(&mut self, id: u64, coverage: &mut Coverage) -> Option<Event> {
        let job = self.jobs.remove(&id)?;
        let process = self.process.as_mut()?;
        Some(match job {
            Job::Log(append) => {
                coverage.batches += 1;
                let outcome = append.run();
                Event::Landed(append, outcome)
            }
            Job::Read { token, offset, len } => {
                coverage.block_reads += 1;
                Event::Read(token, read(&process.data, offset, len))
            }
            Job::InPlace { token, place } => Event::InPlace(token, place.run()),
            Job::WriteBack(marked, _) => match process.data.write_back(marked, &mut |_| ()) {
                Ok(written) => match written.sync() {
                    Ok(tickets) => {
                        coverage.checkpoints += 1;
                        Event::WrittenBack(tickets)
                    }
                    Err(e) => Event::NotSynced(e),
                },
                Err(failed) => {
                    coverage.not_written += 1;
                    Event::NotWritten(failed)
                }
            },
        })
    }

    /// Arms a crash within some later calls of the disk.
    pub fn arm(&mut self, power: bool) {
        let whens = [CrashWhen::Before, CrashWhen::During, CrashWhen::After];
        let when = whens[self.rng.below(3) as usize];
        let doublings = self.rng.below(7);
        let acts = 1 + self.rng.below(1 << doublings);
        self.disk.crash_at(self.disk.events() + acts, when);
        self.armed = Some(power);
    }

    /// Ends the process, and the machine if it loses power; the disk's content is what is left.
    pub fn crash(&mut self, power: bool, coverage: &mut Coverage) {
        let mut jobs: Vec<Job> = std::mem::take(&mut self.jobs).into_values().collect();
        if let Some(core) = self.process.as_ref().map(|p| &p.core) {
            for (group, before) in &mut self.applied {
                let member = core.member(*group);
                *before = member.map_or(*before, |m| m.replica().applied().max(*before));
            }
        }
        if let Some(process) = self.process.take().filter(|_| !self.disk.is_crashed()) {
            self.cut_jobs(process, &mut jobs, power, coverage);
        }
        drop(jobs);
        self.note_fault(coverage);
        (self.armed, self.waits_for) = (None, None);
        self.met_fault = false;
        self.disk = if power {
            coverage.power_cuts += 1;
            let kind = CrashKind::any(&mut self.rng);
            self.disk.crash_image(&mut self.rng, kind)
        } else {
            coverage.kills += 1;
            self.disk.kill_image()
        };
        if !power && SETTLES_AFTER_KILL {
            self.settle();
        }
        self.set_no_space(self.no_space);
    }

    /// Executes the jobs on their way, wholly, partly, or not at all.
    fn cut_jobs(
        &mut self,
        mut process: Process,
        jobs: &mut Vec<Job>,
        power: bool,
        coverage: &mut Coverage,
    ) {
        let mut write_back = None;
        if let Some(at) = jobs.iter().position(|j| matches!(j, Job::WriteBack(..)))
            && let Job::WriteBack(marked, _) = jobs.remove(at)
        {
            if self.rng.one_in(8) {
                // It was completed just before the crash, without being reported.
                drop(
                    process
                        .data
                        .write_back(marked, &mut |_| ())
                        .map(|w| w.sync()),
                );
            } else {
                write_back = Some(marked);
            }
        }
        if power {
            self.disk.fade();
        }
        while !jobs.is_empty() {
            let at = self.rng.below(jobs.len() as u64) as usize;
            let job = jobs.swap_remove(at);
            if self.rng.one_in(3) {
                continue;
            }
            match job {
                Job::Log(mut append) => {
                    coverage.torn_batches += u64::from(power);
                    match append.request(0).filter(|_| !power) {
                        Some(request) => left_behind(request),
                        None => drop(append.run()),
                    }
                }
                Job::InPlace { place, .. } if power => drop(place.run()),
                Job::InPlace { token, place } => left_behind(place.request(token)),
                Job::Read { .. } | Job::WriteBack(..) => {}
            }
        }
        if let Some(marked) = write_back {
            let blocks: u64 = marked.iter().map(|m| m.writes().len() as u64).sum();
            let acts = self.rng.below(blocks + 3);
            if acts > 0 {
                coverage.cut_write_backs += 1;
                self.disk.set_crash_after(acts);
                drop(
                    process
                        .data
                        .write_back(marked, &mut |_| ())
                        .map(|w| w.sync()),
                );
            }
        }
    }

    /// Makes everything durable that a killed process has written.
    fn settle(&self) {
        let dir = Path::new(DIR);
        let log = dir.join("log");
        let names = self.disk.list(&log).unwrap_or_default();
        let logs = names.iter().map(|name| log.join(name));
        for path in logs.chain([dir.join("data"), dir.join("STORE")]) {
            if let Ok(file) = self.disk.open(&path, OpenHow::UPDATE) {
                file.sync(SyncKind::All).ok();
            }
        }
        for dir in [log.as_path(), dir] {
            self.disk.sync_dir(dir).ok();
        }
    }

    /// Sets whether calls that need space fail from now on.
    pub fn set_no_space(&mut self, no_space: bool) {
        self.no_space = no_space;
        if no_space {
            let all = |act, _: &Path| act != disk::Act::Sync;
            self.disk
                .fail_on(disk::Fault::NoSpace, Repeat::Forever, all);
        }
    }

    /// Notes that a call of the disk has failed since the process began.
    pub fn note_fault(&mut self, coverage: &mut Coverage) {
        if !self.met_fault && self.disk.failed().is_some() {
            self.met_fault = true;
            coverage.disk_faults += 1;
        }
    }

    /// Whether a fault of the disk explains that the store fails or does not open.
    pub fn is_excused(&self) -> bool {
        self.met_fault || self.is_damaged
    }

    /// Whether a replica at this entry has everything that earlier processes had applied. Until then, its data
    /// file may have any part of later entries.
    pub fn is_replayed(&self, group: Group, applied: Index) -> bool {
        self.applied
            .get(&group)
            .is_none_or(|&before| before <= applied)
    }

    /// Whether it runs and has a replica of the group.
    pub fn runs(&self, group: Group) -> bool {
        let core = self.process.as_ref().map(|p| &p.core);
        core.is_some_and(|core| core.member(group).is_some())
    }

    /// Reads a block of the data file, without a check.
    pub fn read_block(&self, offset: u64) -> Option<AlignedBuf> {
        read(&self.process.as_ref()?.data, offset, BLOCK).ok()
    }
}

/// A durable write of a killed process: the system has it, and nobody waits until it is durable.
fn left_behind(request: Request) {
    if let Act::Write(slices, _) = request.act {
        let mut at = request.offset;
        for slice in slices {
            drop(io::write_all_at(
                &*request.file,
                &slice,
                at,
                WriteSync::None,
            ));
            at += slice.len() as u64;
        }
    }
}

/// Whether the writes of a process are durable when it is killed. If not, a store that opens after a kill
/// relies on what it reads, and a later power cut may undo that.
const SETTLES_AFTER_KILL: bool = false;

fn read(data: &Data, offset: u64, len: usize) -> Result<AlignedBuf> {
    let mut buf = AlignedBuf::zeroed(len, 4096)?;
    io::read_exact_at(&**data.reader().file(), &mut buf, offset)?;
    Ok(buf)
}
