//! Disks and callers that break their promises, to test whether the tests notice.
//!
//! [`Lying`] is a layer between the code under test and a correct disk. It does one thing wrong, as if the
//! code above it had that bug.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Result;
use base::checksum::{crc32c, mask};
use base::coding::u32_at;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, MutexGuard, PoisonError};
use log::format::{LEGACY_HEADER, RecordType};
use manifest::edit::VersionEdit;

use io::{File, FileSystem, FileSystemWrapper, FileWrapper, OpenHow, SyncKind, WriteSync};

/// The kinds of wrong behavior.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Syncs of logs are forgotten.
    SkipLogSync,
    /// Syncs of table files are forgotten.
    SkipTableSync,
    /// Syncs of the MANIFEST and of CURRENT, also under its temporary name, are forgotten.
    SkipManifestSync,
    /// Syncs of directories are forgotten.
    SkipDirSync,
    /// Durable writes are done as plain writes.
    DsyncAsNone,
    /// A write takes only a part of the bytes, and reports all of them.
    IgnoreShortWrite,
    /// A sector inside a log is zeroed now and then.
    ZeroInterior,
    /// Every other write to a log is delayed until after the next one, even across a sync.
    Reorder,
    /// A log's sync is done one sync later.
    SyncLate,
    /// When a log is begun, the previous one is filled with zeros, as if it were not needed.
    ZeroLive,
    /// After a sync, a log continues at the next 512 bytes, with zeros in between.
    PadWithZeros,
    /// Now and then a batch is logged with the sequence numbers of the one before.
    ReuseSequence,
    /// Atomic writes are done as plain durable ones.
    TearAtomic,
    /// A file that gets a second name loses its first one, before the caller removes that.
    MoveEarly,
    /// The edits of an atomic group in the MANIFEST are written as separate ones.
    SplitAtomicGroup,
}

impl Lie {
    /// All lies.
    pub const ALL: [Self; 15] = [
        Self::SkipLogSync,
        Self::SkipTableSync,
        Self::SkipManifestSync,
        Self::SkipDirSync,
        Self::DsyncAsNone,
        Self::IgnoreShortWrite,
        Self::ZeroInterior,
        Self::Reorder,
        Self::SyncLate,
        Self::ZeroLive,
        Self::PadWithZeros,
        Self::ReuseSequence,
        Self::TearAtomic,
        Self::MoveEarly,
        Self::SplitAtomicGroup,
    ];
}

/// The kind of a file, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Log,
    Table,
    Manifest,
    Other,
}

fn role(path: &Path) -> Role {
    let extension = path.extension().and_then(|e| e.to_str());
    let name = path
        .file_name()
        .and_then(|n| n.to_str())
        .unwrap_or_default();
    if extension == Some("log") {
        Role::Log
    } else if extension == Some("sst") {
        Role::Table
    } else if name.starts_with("MANIFEST") || name == "CURRENT" || extension == Some("dbtmp") {
        Role::Manifest
    } else {
        Role::Other
    }
}

/// A file system with one kind of wrong behavior.
#[derive(Debug)]
pub struct Lying {
    inner: Arc<dyn FileSystem>,
    lie: Lie,
    /// The newest log.
    log: Mutex<Option<PathBuf>>,
}

impl Lying {
    /// `inner` with this lie.
    pub fn new(inner: Arc<dyn FileSystem>, lie: Lie) -> Arc<Self> {
        Arc::new(Self {
            inner,
            lie,
            log: Mutex::default(),
        })
    }
}

impl Lying {
    /// A log is begun: zeroes the previous one, if that is the lie.
    fn begin_log(&self, path: &Path) -> Result<()> {
        if self.lie != Lie::ZeroLive || role(path) != Role::Log {
            return Ok(());
        }
        let old = lock(&self.log).replace(path.to_path_buf());
        let Some(old) = old.filter(|old| old != path) else {
            return Ok(());
        };
        match self.inner.open(&old, OpenHow::UPDATE) {
            Ok(file) => file.zero(0, file.len()?),
            Err(e) if e.is_not_found() => Ok(()),
            Err(e) => Err(e),
        }
    }
}

impl FileSystemWrapper for Lying {
    fn inner(&self) -> &dyn FileSystem {
        &*self.inner
    }

    fn open(&self, path: &Path, how: OpenHow) -> Result<Arc<dyn File>> {
        if how.create == io::Create::New {
            self.begin_log(path)?;
        }
        Ok(Arc::new(LyingFile {
            inner: self.inner.open(path, how)?,
            lie: self.lie,
            role: role(path),
            writes: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            direct: how.direct,
            held: Mutex::default(),
            shift: AtomicU64::new(0),
            end: AtomicU64::new(0),
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.begin_log(to)?;
        self.inner.rename(from, to)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.hard_link(from, to)?;
        if self.lie == Lie::MoveEarly {
            self.inner.remove(from)?;
            self.inner.sync_dir(from.parent().unwrap_or(from))?;
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        match self.lie {
            Lie::SkipDirSync => Ok(()),
            _ => self.inner.sync_dir(dir),
        }
    }
}

/// The unit of wrong operations on direct files: no disk here has a larger one.
const DIRECT_UNIT: u64 = 4096;

/// The same log bytes, with the first batch's sequence number lowered by its count.
fn reuse_sequence(data: &[u8]) -> Vec<u8> {
    let mut out = data.to_vec();
    let word = |at: usize| u32_at(data, at).unwrap_or(0);
    let end = LEGACY_HEADER + (word(4) & 0xffff) as usize;
    let whole = data.get(6) == Some(&RecordType::FULL.0) && end <= data.len();
    if !whole || end < LEGACY_HEADER + 12 {
        return out;
    }
    let payload = &mut out[LEGACY_HEADER..end];
    let count = u64::from(word(LEGACY_HEADER + 8));
    let sequence = u64::from(word(LEGACY_HEADER)) | u64::from(word(LEGACY_HEADER + 4)) << 32;
    payload[..8].copy_from_slice(&sequence.saturating_sub(count).to_le_bytes());
    let crc = mask(crc32c(&out[6..end]));
    out[..4].copy_from_slice(&crc.to_le_bytes());
    out
}

fn is_manifest(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().starts_with("MANIFEST")
}

/// The tag of an atomic group in an edit of the MANIFEST.
const IN_ATOMIC_GROUP: [u8; 2] = [0xac, 0x02];
/// A tag that readers skip if they do not know it, with 0 bytes of data.
const SKIPPED: [u8; 3] = [0xe4, 0x40, 0];

/// The records of a MANIFEST, each whole and in one piece, without their atomic groups; `None` if the bytes
/// are something else.
fn without_groups(data: &[u8]) -> Option<Vec<u8>> {
    let mut out = data.to_vec();
    let mut at = 0;
    while at < out.len() {
        let record = out.get_mut(at..)?;
        let (crc, len) = (u32_at(record, 0)?, u32_at(record, 4)? & 0xffff);
        let end = LEGACY_HEADER + len as usize;
        let whole = record.get(6) == Some(&RecordType::FULL.0) && end <= record.len();
        if !whole || mask(crc32c(&record[6..end])) != crc {
            return None;
        }
        let payload = &mut record[LEGACY_HEADER..end];
        let grouped = |p: &[u8]| {
            let edit = VersionEdit::decode(p).ok()?;
            Some(edit.atomic_group_remaining.is_some())
        };
        if grouped(payload)? {
            let place = (0..payload.len().saturating_sub(2)).find(|&i| {
                let mut other = payload.to_vec();
                other[i..i + 3].copy_from_slice(&SKIPPED);
                payload[i..i + 2] == IN_ATOMIC_GROUP && grouped(&other) == Some(false)
            })?;
            payload[place..place + 3].copy_from_slice(&SKIPPED);
            let crc = mask(crc32c(&record[6..end]));
            record[..4].copy_from_slice(&crc.to_le_bytes());
        }
        at += end;
    }
    Some(out)
}

/// The same promise without atomicity.
fn torn(sync: WriteSync) -> WriteSync {
    match sync {
        WriteSync::AtomicDsync => WriteSync::Dsync,
        other => other,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct LyingFile {
    inner: Arc<dyn File>,
    lie: Lie,
    role: Role,
    writes: AtomicU64,
    syncs: AtomicU64,
    direct: bool,
    held: Mutex<Option<(Vec<u8>, u64)>>,
    /// Bytes of zeros in the file between the writes.
    shift: AtomicU64,
    /// The end of the last write in the file.
    end: AtomicU64,
}

impl LyingFile {
    fn skips_sync(&self) -> bool {
        match self.lie {
            Lie::SkipLogSync => self.role == Role::Log,
            Lie::SkipTableSync => self.role == Role::Table,
            Lie::SkipManifestSync => self.role == Role::Manifest,
            Lie::SyncLate if self.role == Role::Log => {
                self.syncs.fetch_add(1, Ordering::Relaxed).is_multiple_of(2)
            }
            _ => false,
        }
    }

    /// Writes the delayed bytes, after a later write.
    fn release(&self) -> Result<()> {
        let held = lock(&self.held).take();
        if let Some((data, offset)) = held {
            io::write_all_at(&*self.inner, &data, offset, WriteSync::None)?;
        }
        Ok(())
    }

    /// Writes edits of the MANIFEST without their atomic group. A record that crosses a sector's end
    /// arrives in two pieces, the last one first.
    fn write_split(&self, data: &[u8], offset: u64, sync: WriteSync) -> Result<usize> {
        let mut held = lock(&self.held);
        let mut whole = data.to_vec();
        if let Some((rest, at)) = held.take() {
            if at == offset + data.len() as u64 {
                whole.extend(rest);
            } else {
                io::write_all_at(&*self.inner, &rest, at, WriteSync::None)?;
            }
        }
        match without_groups(&whole) {
            Some(changed) => io::write_all_at(&*self.inner, &changed, offset, sync)?,
            None => *held = Some((whole, offset)),
        }
        Ok(data.len())
    }

    /// Zeroes 64 bytes, or a unit, in the middle of the written bytes.
    fn zero_interior(&self, end: u64) -> Result<()> {
        let at = end / 2;
        if self.direct && end >= 2 * DIRECT_UNIT {
            self.inner.zero(at - at % DIRECT_UNIT, DIRECT_UNIT)?;
            return self.inner.sync(SyncKind::Data);
        }
        if end < 1024 || self.direct {
            return Ok(());
        }
        io::write_all_at(&*self.inner, &[0; 64], at, WriteSync::Dsync)
    }

    /// Writes the first part of the bytes, and reports all of them as written.
    fn write_short(&self, data: &[u8], offset: u64, sync: WriteSync) -> Result<usize> {
        let mut part = data.len().div_ceil(2);
        if self.direct {
            part = part.next_multiple_of(DIRECT_UNIT as usize).min(data.len());
        }
        self.inner.write_at(&data[..part], offset, torn(sync))?;
        Ok(data.len())
    }
}

impl FileWrapper for LyingFile {
    fn inner(&self) -> &dyn File {
        &*self.inner
    }

    fn write_at(&self, data: &[u8], offset: u64, sync: WriteSync) -> Result<usize> {
        let n = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        let log = self.role == Role::Log;
        match self.lie {
            Lie::TearAtomic => self.inner.write_at(data, offset, torn(sync)),
            Lie::DsyncAsNone => self.inner.write_at(data, offset, WriteSync::None),
            Lie::IgnoreShortWrite if log && n.is_multiple_of(5) => {
                self.write_short(data, offset, sync)
            }
            Lie::PadWithZeros if log && !self.direct => {
                let at = offset + self.shift.load(Ordering::Relaxed);
                let taken = self.inner.write_at(data, at, sync)?;
                self.end.store(at + taken as u64, Ordering::Relaxed);
                Ok(taken)
            }
            Lie::ReuseSequence if log && !self.direct && n.is_multiple_of(3) => {
                self.inner.write_at(&reuse_sequence(data), offset, sync)
            }
            Lie::ZeroInterior if log && n.is_multiple_of(8) => {
                let taken = self.inner.write_at(data, offset, sync)?;
                self.zero_interior(offset)?;
                Ok(taken)
            }
            Lie::SplitAtomicGroup if is_manifest(self.inner.path()) => {
                self.write_split(data, offset, sync)
            }
            Lie::Reorder if log && !self.direct && !n.is_multiple_of(2) => {
                *lock(&self.held) = Some((data.to_vec(), offset));
                Ok(data.len())
            }
            Lie::Reorder if log => {
                let taken = self.inner.write_at(data, offset, sync)?;
                self.release()?;
                Ok(taken)
            }
            _ => self.inner.write_at(data, offset, sync),
        }
    }

    fn sync(&self, kind: SyncKind) -> Result<()> {
        if self.skips_sync() {
            return Ok(());
        }
        if self.lie == Lie::PadWithZeros && self.role == Role::Log && !self.direct {
            let end = self.end.load(Ordering::Relaxed);
            let pad = end.next_multiple_of(512) - end;
            self.shift.fetch_add(pad, Ordering::Relaxed);
        }
        self.inner.sync(kind)
    }
}
