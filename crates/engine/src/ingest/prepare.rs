//! Checks a file that is to be ingested, and brings it into the database's directory under a new file number. The
//! MANIFEST does not name it yet.

use std::cmp::Ordering;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Comparator, Error, FileNumber, Result, ValueType, key};
use io::{OpenHow, SyncKind, WriteSync};
use keyspan::span::sentinel;
use table::{InternalIterator, Reader};

use super::IngestExternalFileOptions;
use crate::catalog::family::Family;
use crate::shared::Shared;
use files::copies::{self, Made};
use files::{self};
use manifest::edit::FileMetaData;
use options::Env;

/// The first or last entry of a file: user key and type.
type Point = (Vec<u8>, u8);

/// A file to ingest.
pub(super) struct Incoming {
    /// The path that the caller gave.
    pub(super) external: PathBuf,
    /// The path in the database's directory.
    pub(super) path: PathBuf,
    pub(super) number: FileNumber,
    /// Whether `path` is a hard link to `external`.
    pub(super) linked: bool,
    size: u64,
    /// The first and the last entry.
    points: Option<(Point, Point)>,
    /// The smallest start key and the largest end key (exclusive) of the range deletions.
    ranges: Option<(Vec<u8>, Vec<u8>)>,
    unique_id: Option<[u8; 16]>,
    tail_size: Option<u64>,
    /// The file offset of the global sequence number, and its value.
    seqno: Option<(u64, u64)>,
}

impl Incoming {
    /// The size of the file in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Opens and checks a file. Errors: `Corruption` if it is damaged or was not made by an `SstFileWriter`;
    /// `InvalidArgument` if it is empty, or was written with another comparator or for another column family.
    pub(super) fn look(
        env: &Env,
        family: &Family,
        path: &Path,
        options: &IngestExternalFileOptions,
    ) -> Result<Self> {
        Self::look_inside(env, family, path, options).map_err(|e| {
            e.or_file(path)
                .hint("nothing was ingested; the database is as it was")
        })
    }

    fn look_inside(
        env: &Env,
        family: &Family,
        path: &Path,
        options: &IngestExternalFileOptions,
    ) -> Result<Self> {
        let file = env.fs.open(path, OpenHow::READ)?;
        let size = file.len()?;
        let reader = Reader::open(
            file,
            size,
            table::ReaderOptions {
                comparator: family.comparator().clone(),
                ..table::ReaderOptions::default()
            },
        )?;
        let reader = Arc::new(reader);
        let seqno = external_seqno(&reader)?;
        if options.verify_checksums_before_ingest {
            reader.verify_checksums()?;
        }
        let p = reader.properties();
        let made_for = p.column_family_id;
        if made_for != table::props::UNKNOWN_COLUMN_FAMILY && made_for != u64::from(family.id) {
            return Err(Error::invalid_argument(format!(
                "the file was made for column family \"{}\" (id {made_for}), not for \"{}\" (id {})",
                p.column_family_name, family.name, family.id
            )));
        }
        let unique_id = table::unique_id::internal_unique_id(
            &p.db_id,
            &p.db_session_id,
            p.original_file_number,
        );
        let tail_size = (p.tail_start_offset > 0).then(|| size.saturating_sub(p.tail_start_offset));
        let me = Self {
            external: path.to_path_buf(),
            path: PathBuf::new(),
            number: FileNumber(0),
            linked: false,
            size,
            points: points(&reader)?,
            ranges: ranges(&reader, family.comparator())?,
            unique_id,
            tail_size,
            seqno,
        };
        if me.points.is_none() && me.ranges.is_none() {
            return Err(Error::invalid_argument("the file has no entries"));
        }
        Ok(me)
    }

    /// Links or copies the file into the database's directory. The directory is not synced.
    pub(super) fn bring_in(
        &mut self,
        db: &Shared,
        options: &IngestExternalFileOptions,
        made: &mut Made,
    ) -> Result<()> {
        let fs = &*db.env().fs;
        self.number = db.catalog.numbers.take();
        self.path = files::table_path(&db.dir, self.number);
        made.add(self.path.clone());
        self.linked = match (options.move_files, options.failed_move_fall_back_to_copy) {
            (false, _) => {
                copies::copy(fs, &self.external, &self.path, None, &mut copies::at_once)?;
                false
            }
            (true, true) => {
                let none = &mut copies::at_once;
                copies::link_or_copy(fs, &self.external, &self.path, none)?
            }
            (true, false) => {
                fs.hard_link(&self.external, &self.path)?;
                true
            }
        };
        if self.linked {
            fs.open(&self.path, OpenHow::READ)?.sync(SyncKind::Data)?;
        }
        let copied = fs.metadata(&self.path)?.len;
        if copied != self.size {
            return Err(Error::corruption(format!(
                "the file had {} bytes, and {copied} when it was copied",
                self.size
            ))
            .file(&self.external));
        }
        Ok(())
    }

    /// Gives all entries the sequence number `seqno`. With `write`, the number is also written into the file.
    /// Without it, a different number in the file is replaced by 0. Errors: the file has no place for the number.
    pub(super) fn assign(&mut self, env: &Env, seqno: u64, write: bool) -> Result<()> {
        let Some((at, old)) = self.seqno else {
            return if seqno == 0 {
                Ok(())
            } else {
                Err(Error::invalid_argument(
                    "Trying to set global seqno for a file that don't have a global seqno field",
                )
                .file(&self.external))
            };
        };
        // If the file says 0, the number in the MANIFEST counts.
        if old == seqno || (old == 0 && !write) {
            return Ok(());
        }
        let file = env.fs.open(&self.path, OpenHow::UPDATE)?;
        let bytes = if write { seqno } else { 0 }.to_le_bytes();
        io::write_all_at(&*file, &bytes, at, WriteSync::None)?;
        file.sync(SyncKind::Data)
    }

    /// The smallest user key.
    pub(super) fn smallest(&self, cmp: &Comparator) -> &[u8] {
        let point = self.points.as_ref().map(|(first, _)| &first.0[..]);
        let range = self.ranges.as_ref().map(|(begin, _)| &begin[..]);
        match (point, range) {
            (Some(p), Some(r)) if cmp.compare(r, p) == Ordering::Less => r,
            (Some(p), _) => p,
            (None, r) => r.unwrap_or_default(),
        }
    }

    /// The largest user key. The end of a range deletion counts as a key.
    pub(super) fn largest(&self, cmp: &Comparator) -> &[u8] {
        let point = self.points.as_ref().map(|(_, last)| &last.0[..]);
        let range = self.ranges.as_ref().map(|(_, end)| &end[..]);
        match (point, range) {
            (Some(p), Some(r)) if cmp.compare(r, p) == Ordering::Greater => r,
            (Some(p), _) => p,
            (None, r) => r.unwrap_or_default(),
        }
    }

    /// The file's metadata for the MANIFEST, with all entries at `seqno`.
    pub(super) fn meta(&self, cmp: &Comparator, seqno: u64, epoch: u64, now: u64) -> FileMetaData {
        let packed = |kind: u8| (seqno << 8) | u64::from(kind);
        let internal = |user: &[u8], packed: u64| [user, &packed.to_le_bytes()].concat();
        let mut bounds = self.points.as_ref().map(|(first, last)| {
            (
                internal(&first.0, packed(first.1)),
                internal(&last.0, packed(last.1)),
            )
        });
        if let Some((begin, end)) = &self.ranges {
            let begin = internal(begin, packed(ValueType::RangeDeletion as u8));
            let end = sentinel(end);
            let (first, last) = bounds.unwrap_or_else(|| (begin.clone(), end.clone()));
            let before = |a: &Vec<u8>, b: &Vec<u8>| key::compare(cmp, a, b) == Ordering::Less;
            bounds = Some((
                if before(&begin, &first) { begin } else { first },
                if before(&last, &end) { end } else { last },
            ));
        }
        let (smallest, largest) = bounds.unwrap_or_default();
        FileMetaData {
            number: self.number,
            file_size: self.size,
            smallest,
            largest,
            smallest_seqno: seqno,
            largest_seqno: seqno,
            oldest_ancestor_time: now,
            file_creation_time: now,
            unique_id: self.unique_id,
            epoch_number: Some(epoch),
            tail_size: self.tail_size,
            ..FileMetaData::default()
        }
    }
}

/// Offset and value of the global sequence number; `None` in a file of version 1.
fn external_seqno(reader: &Reader) -> Result<Option<(u64, u64)>> {
    let p = reader.properties();
    match p.external_sst_file_version {
        None => Err(Error::corruption("External file version not found")
            .hint("only files of an SstFileWriter can be ingested")),
        Some(1) => Ok(None),
        Some(2) => {
            let place = reader.global_seqno_offset().zip(p.global_seqno);
            place
                .map(Some)
                .ok_or_else(|| Error::corruption("External file global sequence number not found"))
        }
        Some(v) => Err(Error::invalid_argument(format!(
            "External file version {v} is not supported"
        ))),
    }
}

fn points(reader: &Arc<Reader>) -> Result<Option<(Point, Point)>> {
    let options = table::ReadOptions {
        fill_cache: false,
        ..table::ReadOptions::default()
    };
    let mut it = reader.iter(options);
    let version_1 = reader.properties().external_sst_file_version == Some(1);
    let point = |internal: &[u8]| {
        let (user, packed) = key::split(internal)
            .ok_or_else(|| Error::corruption("External file have corrupted keys"))?;
        if ValueType::from_u8(packed as u8).is_none() {
            return Err(Error::corruption("External file have corrupted keys"));
        }
        if version_1 && packed >> 8 != 0 {
            return Err(Error::corruption(
                "External file has non zero sequence number",
            ));
        }
        Ok((user.to_vec(), packed as u8))
    };
    it.seek_to_first();
    if !it.valid() {
        return it.status().map(|()| None);
    }
    let first = point(it.key())?;
    it.seek_to_last();
    it.status()?;
    if !it.valid() {
        return Err(Error::corruption(
            "the file has a first entry and no last one",
        ));
    }
    Ok(Some((first, point(it.key())?)))
}

fn ranges(reader: &Reader, cmp: &Comparator) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let tombstones = reader.range_tombstones()?;
    let begin = tombstones
        .iter()
        .map(|t| &t.start)
        .min_by(|a, b| cmp.compare(a, b));
    let end = tombstones
        .iter()
        .map(|t| &t.end)
        .max_by(|a, b| cmp.compare(a, b));
    Ok(begin.zip(end).map(|(b, e)| (b.clone(), e.clone())))
}
