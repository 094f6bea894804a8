//! `--report_file_operations`: a file system that counts its operations, and prints the counts in the
//! format of RocksDB's db_bench.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Result;
use io::{File, FileSystem, FileSystemWrapper, FileWrapper, OpenHow, SyncKind, WriteSync};

/// The counts since the last report.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    opens: AtomicU64,
    deletes: AtomicU64,
    renames: AtomicU64,
    syncs: AtomicU64,
    fsyncs: AtomicU64,
    dir_syncs: AtomicU64,
    closes: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl Counts {
    /// Prints the counts, one per line, and resets them. Ironstone hands its writes to the operating
    /// system at once, so there are no flushes to count.
    pub(crate) fn take(&self) -> String {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        let dirs = take(&self.dir_syncs);
        let lines = [
            ("files opened", take(&self.opens)),
            ("files deleted", take(&self.deletes)),
            ("files renamed", take(&self.renames)),
            ("Flush()", 0),
            ("Sync()", take(&self.syncs)),
            ("Fsync()", take(&self.fsyncs)),
            ("Dir Fsync()", dirs),
            ("Close()", take(&self.closes)),
            ("Dir Open()", dirs),
            ("Dir Close()", dirs),
            ("Read()", take(&self.reads)),
            ("Append()", take(&self.writes)),
            ("bytes read", take(&self.read_bytes)),
            ("bytes written", take(&self.written_bytes)),
        ];
        let lines = lines.iter().map(|(name, n)| format!("Num {name}: {n}\n"));
        lines.collect()
    }

    fn synced(&self, kind: SyncKind) {
        match kind {
            SyncKind::Data => add(&self.syncs, 1),
            SyncKind::All => add(&self.fsyncs, 1),
        }
    }
}

fn add(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

/// A file system that counts calls and passes them on.
#[derive(Debug)]
pub(crate) struct CountedFiles {
    inner: Arc<dyn FileSystem>,
    counts: Arc<Counts>,
}

impl CountedFiles {
    /// Counts the operations on `inner`.
    pub(crate) fn over(inner: Arc<dyn FileSystem>, counts: Arc<Counts>) -> Arc<dyn FileSystem> {
        Arc::new(Self { inner, counts })
    }
}

impl FileSystemWrapper for CountedFiles {
    fn inner(&self) -> &dyn FileSystem {
        &*self.inner
    }
    fn open(&self, path: &Path, how: OpenHow) -> Result<Arc<dyn File>> {
        let inner = self.inner.open(path, how)?;
        add(&self.counts.opens, 1);
        let counts = Arc::clone(&self.counts);
        Ok(Arc::new(CountedFile { inner, counts }))
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        add(&self.counts.renames, 1);
        self.inner.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        add(&self.counts.deletes, 1);
        self.inner.remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> Result<()> {
        add(&self.counts.dir_syncs, 1);
        self.inner.sync_dir(dir)
    }
    fn hold(&self, dir: &Path) -> Result<Option<Arc<dyn FileSystem>>> {
        let held = self.inner.hold(dir)?;
        Ok(held.map(|inner| Self::over(inner, Arc::clone(&self.counts))))
    }
}

#[derive(Debug)]
struct CountedFile {
    inner: Arc<dyn File>,
    counts: Arc<Counts>,
}

impl Drop for CountedFile {
    fn drop(&mut self) {
        add(&self.counts.closes, 1);
    }
}

impl FileWrapper for CountedFile {
    fn inner(&self) -> &dyn File {
        &*self.inner
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let len = self.inner.read_at(buf, offset)?;
        add(&self.counts.reads, 1);
        add(&self.counts.read_bytes, len);
        Ok(len)
    }
    fn write_at(&self, data: &[u8], offset: u64, sync: WriteSync) -> Result<usize> {
        let len = self.inner.write_at(data, offset, sync)?;
        add(&self.counts.writes, 1);
        add(&self.counts.written_bytes, len);
        if sync != WriteSync::None {
            self.counts.synced(SyncKind::Data);
        }
        Ok(len)
    }
    fn sync(&self, kind: SyncKind) -> Result<()> {
        self.counts.synced(kind);
        self.inner.sync(kind)
    }
}
