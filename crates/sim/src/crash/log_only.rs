//! Crashes of a log alone, without an engine.
//!
//! A workload appends records of many sizes, hands them to the operating system and syncs them at random.
//! At each event some images are read back: the records found must be the first ones written, unchanged,
//! and at least the acknowledged ones. Some images continue: their log is trimmed, resumed, written to and
//! crashed again, like a database that is opened after each crash. In padded logs, several writes are on
//! their way at once and land in any order.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use base::Result;
use base::rng::Rng;
use base::sync::{Mutex, MutexGuard, PoisonError};
use io::{Create, FileSystem, OpenHow, SyncKind};
use log::format::{BLOCK, LEGACY_HEADER, RECYCLABLE_HEADER};
use log::{Flight, LogOptions, Reader, ReaderOptions, TailPolicy, WalSync, Writer};

use super::Tally;
use crate::disk::{Config, CrashKind, Garbage, Lie, Lying, Moment, Phase, SimDisk, Watcher};

const LOG: &str = "/db/000007.log";
const LOG_NUMBER: u64 = 7;
/// Lengthens a record, so that the next one does not begin at the start of a block.
const FILLER: u8 = 0x0d;
/// Length of a file that is zeroed, or recycled, before it is used.
const PREPARED_BYTES: u64 = 160 << 10;
/// The shortest record that pads a unit: the header of an empty batch, as in a database.
const PADDING_MIN: u32 = 12;

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Whether it is written with `O_DIRECT`, in units of the disk's sector.
    pub direct: bool,
    /// Whether it is synced by durable writes.
    pub dsync: bool,
    /// Whether records carry the log's number.
    pub recyclable: bool,
    /// Whether the file is full of zeros, or of an older log if `recyclable`; otherwise it grows.
    pub prepared: bool,
    /// The sector of the disk, bytes.
    pub sector: u32,
    /// The possible content of torn sectors.
    pub garbage: Garbage,
    /// The most writes on their way in a direct, padded log; 0: it is not padded.
    pub depth: u32,
    /// Whether a log in the page cache is padded before each sync.
    pub padded: bool,
}

impl Mode {
    fn random(rng: &mut Rng) -> Self {
        let direct = rng.one_in(2);
        let dsync = rng.one_in(2);
        let depth = if direct && dsync {
            [0, 0, 1, 2, 8][rng.below(5) as usize]
        } else {
            0
        };
        let padded = !direct && rng.one_in(2);
        Self {
            direct,
            dsync,
            depth,
            padded,
            recyclable: rng.one_in(2),
            prepared: direct || rng.one_in(2),
            sector: if rng.one_in(3) { 4096 } else { 512 },
            garbage: match rng.below(3) {
                // A rewritten unit must be atomic: see the crate `log`, module `tail`.
                0 if depth > 0 || padded => Garbage::Sector,
                0 if !direct => Garbage::WrittenBytes,
                _ => Garbage::None,
            },
        }
    }

    fn options(&self, plant: Plant) -> LogOptions {
        LogOptions {
            log_number: LOG_NUMBER,
            recyclable: self.recyclable,
            direct_unit: self.direct.then_some(self.sector),
            sync: if self.dsync {
                WalSync::Dsync
            } else {
                WalSync::Fdatasync
            },
            filler: (plant != Plant::NoBoundaryRule).then_some(FILLER),
            sync_unit: self.padded.then_some(self.sector),
            tail: if self.depth > 0 || self.padded {
                TailPolicy::Pad {
                    payload_min: PADDING_MIN,
                }
            } else {
                TailPolicy::Rewrite
            },
            depth: self.depth.max(1),
            ..LogOptions::default()
        }
    }

    /// Whether a log may be resumed, which rewrites its last unit.
    fn lives_on(&self) -> bool {
        !(self.depth > 0 || self.padded) || self.garbage == Garbage::None
    }

    fn how(&self) -> OpenHow {
        OpenHow {
            write: true,
            create: Create::IfMissing,
            direct: self.direct,
        }
    }
}

/// A bug that is planted in the caller of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// None.
    None,
    /// The disk or the layer above it breaks its promises.
    Disk(Lie),
    /// A write is acknowledged as durable before the sync.
    AcknowledgeEarly,
    /// Records may begin at the start of a block: a zeroed block then hides a hole.
    NoBoundaryRule,
    /// A log is resumed without trimming the bytes behind its end.
    NoTrim,
    /// A log in the page cache is not padded: the next write overwrites durable data.
    NoPadding,
    /// After each sync the log continues in the next sector, with zeros in between.
    PadWithZeros,
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Determines everything.
    pub seed: u64,
    /// Images per event.
    pub images: u64,
    /// The bug to find.
    pub plant: Plant,
}

/// The records that were written, and the promises.
#[derive(Default)]
struct Book {
    records: Vec<Arc<[u8]>>,
    durable: usize,
    submitted: usize,
    rng: Option<Rng>,
    tally: Tally,
    /// Disks to continue with, and the number of records in their logs.
    heirs: Vec<(SimDisk, usize)>,
    heirs_max: usize,
}

struct Checker {
    setup: Setup,
    mode: Mode,
    images: u64,
    book: Mutex<Book>,
}

impl Checker {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads an image and checks it; returns the number of its records.
    fn check(book: &Book, image: &SimDisk, floor: usize) -> Result<usize, String> {
        let found = recovered(image, &book.records)?.0;
        if found < floor {
            return Err(format!("{floor} records acknowledged, {found} recovered"));
        }
        Ok(found)
    }

    fn one_image(&self, book: &mut Book, moment: &Moment<'_>, rng: &mut Rng) {
        let killed = rng.one_in(8);
        let kind = CrashKind::any(rng);
        let (image, floor) = if killed {
            (moment.kill_image(), book.submitted)
        } else {
            (moment.crash_image(rng, kind), book.durable)
        };
        book.tally.states += 1;
        match Self::check(book, &image, floor) {
            Ok(found) => {
                if book.heirs.len() < book.heirs_max && rng.one_in(16) {
                    book.heirs.push((image, found));
                }
            }
            Err(what) => {
                let kind = if killed {
                    "kill".into()
                } else {
                    format!("{kind:?}")
                };
                book.tally.fail(format!(
                    "{what}; {} {:?} {kind}; {:?}; reproduce: IRONSTONE_CRASH_SEED={} \
                     cargo test -p ironstone-sim --test crash log_only",
                    moment.event, moment.phase, self.mode, self.setup.seed
                ));
            }
        }
    }
}

impl Watcher for Checker {
    fn at(&self, moment: &Moment<'_>) {
        let mut book = self.book();
        let Some(mut rng) = book.rng.take() else {
            return;
        };
        if moment.phase == Phase::After {
            book.tally.points += 1;
        }
        for _ in 0..self.images {
            self.one_image(&mut book, moment, &mut rng);
        }
        book.rng = Some(rng);
    }
}

/// Whether a record is the written one, perhaps lengthened for the boundary rule.
fn is_record(found: &[u8], written: &[u8]) -> bool {
    found.strip_prefix(written).is_some_and(|filler| {
        filler.len() <= RECYCLABLE_HEADER + 1 && filler.iter().all(|&b| b == FILLER)
    })
}

/// Reads the log on `disk`; returns the number of records, and the log's end. Errors: a record differs from
/// the written one.
fn recovered(disk: &SimDisk, written: &[Arc<[u8]>]) -> Result<(usize, u64), String> {
    let file = match disk.open(Path::new(LOG), OpenHow::READ) {
        Ok(file) => file,
        Err(e) if e.is_not_found() => return Ok((0, 0)),
        Err(e) => return Err(e.to_string()),
    };
    let mut reader = Reader::new(file, LOG_NUMBER, ReaderOptions::default());
    let mut record = Vec::new();
    let mut found = 0;
    while reader.read(&mut record).map_err(|e| e.to_string())? {
        match written.get(found) {
            Some(want) if is_record(&record, want) => found += 1,
            _ => {
                return Err(format!(
                    "record {found} at {} is not the one written: a hole or old content",
                    reader.record_offset()
                ));
            }
        }
    }
    Ok((found, reader.end().offset()))
}

/// Makes the next record: it has its number, its length, and bytes that no other record has.
fn make_record(rng: &mut Rng, number: usize, offset: u64, mode: &Mode) -> Arc<[u8]> {
    let mut len = 16
        + match rng.below(40) {
            0 => rng.below(80_000),
            1..=4 => rng.below(6000),
            5 => 0,
            _ => rng.below(200),
        } as usize;
    let header = if mode.recyclable {
        RECYCLABLE_HEADER
    } else {
        LEGACY_HEADER
    };
    if rng.one_in(12) {
        // It ends near the end of the block.
        let room = BLOCK - (offset % BLOCK as u64) as usize;
        len = (room + 8)
            .saturating_sub(header + rng.below(20) as usize)
            .max(16);
    }
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
    bytes.into()
}

/// Creates a disk with the directory, and with the log file as the mode requires.
fn prepare(rng: &mut Rng, mode: &Mode) -> Result<SimDisk> {
    let config = Config {
        garbage: mode.garbage,
        ..Config::default().with_sector(mode.sector)
    };
    let disk = SimDisk::new(config);
    disk.create_dir(Path::new("/db"))?;
    disk.sync_dir(Path::new("/"))?;
    if mode.prepared {
        let file = disk.open(Path::new(LOG), OpenHow::CREATE_NEW)?;
        file.zero(0, PREPARED_BYTES)?;
        if mode.recyclable && rng.one_in(2) {
            let old = LogOptions {
                log_number: LOG_NUMBER - 1,
                recyclable: true,
                ..LogOptions::default()
            };
            let mut writer = Writer::new(Arc::clone(&file), old);
            while writer.size() < PREPARED_BYTES - 10_000 {
                let record = make_record(rng, 0, writer.size(), mode);
                if writer.size() + record.len() as u64 + 1000 < PREPARED_BYTES {
                    writer.append(&record)?;
                }
            }
            writer.sync()?;
        }
        file.sync(SyncKind::Data)?;
        disk.sync_dir(Path::new("/db"))?;
    }
    Ok(disk)
}

/// Prepares a log for being continued after a crash: nothing is left behind its end.
fn trim(disk: &SimDisk, mode: &Mode, end: u64, plant: Plant) -> Result<()> {
    let how = OpenHow {
        write: true,
        create: Create::IfMissing,
        direct: false,
    };
    let file = disk.open(Path::new(LOG), how)?;
    if plant != Plant::NoTrim {
        let len = file.len()?;
        if mode.prepared {
            file.zero(end, len.saturating_sub(end))?;
        } else if len > end {
            file.truncate(end)?;
        }
    }
    file.sync(SyncKind::Data)?;
    disk.sync_dir(Path::new("/db"))
}

/// A log that is being written, and its writes on their way.
struct Log<'a> {
    checker: &'a Checker,
    writer: Writer,
    /// The writes on their way, each with the number of records up to its end.
    out: Vec<(Flight, usize)>,
    /// The ends of all writes that do not count yet, in order, with the same numbers.
    ends: VecDeque<(log::Lsn, usize)>,
}

impl Log<'_> {
    /// Appends a few records. False: a prepared file is full.
    fn append_some(&mut self, rng: &mut Rng) -> Result<bool> {
        let mode = &self.checker.mode;
        for _ in 0..=rng.below(4) {
            let number = self.checker.book().records.len();
            let record = make_record(rng, number, self.writer.size(), mode);
            let room = PREPARED_BYTES - 2 * u64::from(mode.sector);
            if mode.prepared && self.writer.size() + record.len() as u64 > room {
                return Ok(false);
            }
            self.checker.book().records.push(Arc::clone(&record));
            self.writer.append(&record)?;
        }
        Ok(true)
    }

    /// Pads the last unit of a log.
    fn pad(&mut self, rng: &mut Rng) -> Result<()> {
        let n = self.writer.padding();
        if n > 0 {
            let mut record = vec![0; n];
            rng.fill(&mut record);
            self.checker.book().records.push(record.as_slice().into());
            self.writer.append_padding(&record)?;
        }
        Ok(())
    }

    fn submit(&mut self, rng: &mut Rng) -> Result<()> {
        if self.checker.mode.direct {
            self.pad(rng)?;
        }
        self.land_all(rng)?;
        self.writer.submit()?;
        let mut book = self.checker.book();
        book.submitted = book.records.len();
        Ok(())
    }

    fn sync(&mut self, rng: &mut Rng) -> Result<()> {
        if self.checker.mode.depth > 0 {
            return self.begin(rng);
        }
        if self.checker.setup.plant != Plant::NoPadding {
            self.pad(rng)?;
        }
        if self.checker.setup.plant == Plant::AcknowledgeEarly {
            let mut book = self.checker.book();
            book.durable = book.records.len();
        }
        self.writer.sync()?;
        let mut book = self.checker.book();
        book.submitted = book.records.len();
        book.durable = book.records.len();
        Ok(())
    }

    /// Begins a durable write; some earlier ones may land first.
    fn begin(&mut self, rng: &mut Rng) -> Result<()> {
        self.pad(rng)?;
        while !self.writer.can_begin(true) || (!self.out.is_empty() && rng.one_in(4)) {
            self.land_one(rng)?;
        }
        let all = self.checker.book().records.len();
        if let Some(flight) = self.writer.begin(true)? {
            self.ends.push_back((flight.end(), all));
            self.out.push((flight, all));
        }
        Ok(())
    }

    /// Lets a random write land.
    fn land_one(&mut self, rng: &mut Rng) -> Result<()> {
        let n = rng.below(self.out.len() as u64) as usize;
        let (flight, records) = self.out.swap_remove(n);
        if self.checker.setup.plant == Plant::AcknowledgeEarly {
            self.checker.book().durable = records;
        }
        let outcome = flight.run();
        self.writer.landed(flight, outcome)?;
        let reached = self.writer.durable();
        let mut book = self.checker.book();
        while let Some(&(end, records)) = self.ends.front()
            && end <= reached
        {
            self.ends.pop_front();
            book.submitted = records;
            book.durable = records;
        }
        Ok(())
    }

    fn land_all(&mut self, rng: &mut Rng) -> Result<()> {
        while !self.out.is_empty() {
            self.land_one(rng)?;
        }
        Ok(())
    }
}

/// Appends, submits and syncs at random until an error or the end of the workload.
fn write_some(
    fs: &dyn FileSystem,
    checker: &Checker,
    rng: &mut Rng,
    resume_at: Option<u64>,
) -> Result<()> {
    let plant = checker.setup.plant;
    let file = fs.open(Path::new(LOG), checker.mode.how())?;
    let writer = if let Some(offset) = resume_at {
        Writer::resume(file, offset, checker.mode.options(plant))?
    } else {
        fs.sync_dir(Path::new("/db"))?;
        Writer::new(file, checker.mode.options(plant))
    };
    let mut log = Log {
        checker,
        writer,
        out: Vec::new(),
        ends: VecDeque::new(),
    };
    for _ in 0..8 + rng.below(30) {
        if !log.append_some(rng)? {
            break;
        }
        match rng.below(4) {
            0 => {}
            1 => log.submit(rng)?,
            _ => {
                log.sync(rng)?;
                if plant == Plant::PadWithZeros && checker.mode.prepared && checker.mode.depth == 0
                {
                    let sector = u64::from(checker.mode.sector);
                    let at = log.writer.size().next_multiple_of(sector);
                    let file = Arc::clone(log.writer.file());
                    log.writer = Writer::resume(file, at, checker.mode.options(plant))?;
                }
            }
        }
    }
    log.land_all(rng)
}

/// A workload, its crashes, and the lives after them.
pub fn run(setup: Setup) -> Tally {
    let mut rng = Rng::new(setup.seed);
    let mode = Mode::random(&mut rng);
    run_mode(setup, mode, rng)
}

/// [`run`] with a given mode.
pub fn run_mode(setup: Setup, mode: Mode, mut rng: Rng) -> Tally {
    let mut total = Tally {
        workloads: 1,
        ..Tally::default()
    };
    let disk = match prepare(&mut rng, &mode) {
        Ok(disk) => disk,
        Err(e) => {
            total.fail(format!("seed {}: cannot prepare: {e}", setup.seed));
            return total;
        }
    };
    let mut lives = vec![(disk, Vec::new(), None, 0)];
    while let Some((disk, records, resume_at, generation)) = lives.pop() {
        let book = one_life(setup, mode, &mut rng, &disk, records, resume_at, generation);
        for (heir, found) in book.heirs {
            match recovered(&heir, &book.records) {
                Ok((_, end)) => {
                    let records = book.records[..found].to_vec();
                    lives.push((heir, records, Some(end), generation + 1));
                }
                Err(e) => total.fail(format!("read twice, differs: {e}")),
            }
        }
        total.add(book.tally);
    }
    total
}

fn one_life(
    setup: Setup,
    mode: Mode,
    rng: &mut Rng,
    disk: &SimDisk,
    records: Vec<Arc<[u8]>>,
    resume_at: Option<u64>,
    generation: usize,
) -> Book {
    let found = records.len();
    let heirs_max = if mode.lives_on() {
        [3, 1, 0][generation.min(2)]
    } else {
        0
    };
    // A log that was killed, not crashed, is not durable until the trim has synced it.
    let book = Book {
        records,
        rng: Some(Rng::new(rng.next_u64())),
        heirs_max,
        ..Book::default()
    };
    let checker = Arc::new(Checker {
        setup,
        mode,
        images: setup.images,
        book: Mutex::new(book),
    });
    disk.watch(Arc::clone(&checker) as Arc<dyn Watcher>);
    let fs: Arc<dyn FileSystem> = match setup.plant {
        Plant::Disk(lie) => Lying::new(disk.shared(), lie),
        _ => disk.shared(),
    };
    let trimmed = match resume_at {
        Some(end) => trim(disk, &mode, end, setup.plant).map(|()| {
            let mut book = checker.book();
            book.durable = found;
            book.submitted = found;
        }),
        None => Ok(()),
    };
    let done = trimmed.and_then(|()| write_some(&*fs, &checker, rng, resume_at));
    disk.unwatch();
    let mut book = std::mem::take(&mut *checker.book());
    if let Err(e) = done {
        book.tally
            .fail(format!("seed {}: the workload failed: {e}", setup.seed));
    }
    book
}
