//! Files and logs for the tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use io::posix::Posix;
use io::{File, FileSystem, OpenHow, WriteSync};
use log::{LogOptions, Reader, ReaderOptions, RecoveryMode, Writer};

/// A directory that is removed with the value, and files in it.
pub(crate) struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn create(&self, name: &str) -> Arc<dyn File> {
        let how = OpenHow::CREATE_TRUNCATE;
        Posix.open(&self.path(name), how).unwrap()
    }

    pub(crate) fn with(&self, name: &str, content: &[u8]) -> Arc<dyn File> {
        let file = self.create(name);
        io::write_all_at(&*file, content, 0, WriteSync::None).unwrap();
        file
    }

    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }
}

pub(crate) fn content(file: &Arc<dyn File>) -> Vec<u8> {
    let mut all = vec![0; file.len().unwrap() as usize];
    io::read_exact_at(&**file, &mut all, 0).unwrap();
    all
}

/// Writes the records as one group.
pub(crate) fn write(file: &Arc<dyn File>, options: LogOptions, records: &[Vec<u8>]) -> u64 {
    let mut writer = Writer::new(Arc::clone(file), options);
    for r in records {
        writer.append(r).unwrap();
    }
    writer.submit().unwrap();
    writer.size()
}

pub(crate) fn recyclable(log_number: u64) -> LogOptions {
    LogOptions {
        log_number,
        recyclable: true,
        ..LogOptions::default()
    }
}

/// Reads to the end; the records, and the reader or the error.
pub(crate) fn read_all(mut reader: Reader) -> (Vec<Vec<u8>>, base::Result<Reader>) {
    let (mut records, mut record) = (Vec::new(), Vec::new());
    loop {
        match reader.read(&mut record) {
            Ok(true) => records.push(record.clone()),
            Ok(false) => return (records, Ok(reader)),
            Err(e) => return (records, Err(e)),
        }
    }
}

pub(crate) fn wal(file: &Arc<dyn File>, log_number: u64, mode: RecoveryMode) -> Reader {
    Reader::new(
        Arc::clone(file),
        log_number,
        ReaderOptions {
            mode,
            fences: false,
        },
    )
}
