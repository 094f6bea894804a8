//! Reading an edit. Bytes come from disk: nothing panics, and nothing is allocated that the
//! record does not contain.
#![deny(clippy::indexing_slicing)]

use base::coding::Decoder;
use base::{Error, FileNumber, Result, SequenceNumber, key};
use log::{LogEnd, Lsn};

use super::tag::{self, field};
use super::{
    BlobAddition, BlobGarbage, CompactCursor, FileMetaData, LEVELS_MAX, VersionEdit, WalAddition,
};

/// Why a part could not be read. The caller knows the tag and creates the error.
enum Bad {
    /// It ends too early, or a number is too long.
    CutOff,
    /// Something else.
    Other(String),
}

impl From<String> for Bad {
    fn from(what: String) -> Self {
        Self::Other(what)
    }
}

/// `None` from a [`Decoder`] as an error.
trait OrCutOff<T> {
    fn or_cut_off(self) -> Result<T, Bad>;
}

impl<T> OrCutOff<T> for Option<T> {
    fn or_cut_off(self) -> Result<T, Bad> {
        self.ok_or(Bad::CutOff)
    }
}

impl VersionEdit {
    /// Reads a record of the MANIFEST. Errors: Corruption naming the tag and its place in the
    /// record, for a part that is cut off, is no valid value, or must be known and is not.
    pub fn decode(record: &[u8]) -> Result<Self> {
        let mut edit = Self::default();
        let mut d = Decoder::new(record);
        while !d.is_empty() {
            let at = record.len() - d.len();
            let tag = d.varint32();
            let read = tag.or_cut_off().and_then(|t| edit.part(t, &mut d));
            read.map_err(|bad| part_error(tag, at, bad))?;
        }
        Ok(edit)
    }

    fn part(&mut self, tag: u32, d: &mut Decoder<'_>) -> Result<(), Bad> {
        match tag {
            tag::COMPARATOR => self.comparator = Some(text(d)?),
            tag::LOG_NUMBER => self.log_number = Some(varint(d)?),
            tag::PREV_LOG_NUMBER => self.prev_log_number = Some(varint(d)?),
            tag::NEXT_FILE_NUMBER => self.next_file_number = Some(varint(d)?),
            tag::LAST_SEQUENCE => self.last_sequence = Some(sequence(d)?),
            tag::MIN_LOG_NUMBER_TO_KEEP => self.keep_logs_from(varint(d)?),
            tag::MAX_COLUMN_FAMILY => self.max_column_family = Some(d.varint32().or_cut_off()?),
            tag::COMPACT_CURSOR => {
                let level = level(d)?;
                let key = d.slice().or_cut_off()?.to_vec();
                self.compact_cursors.push(CompactCursor { level, key });
            }
            tag::DELETED_FILE => {
                let level = level(d)?;
                self.delete_file(level, number(d)?);
            }
            tag::NEW_FILE | tag::NEW_FILE2 | tag::NEW_FILE3 | tag::NEW_FILE4 => {
                self.new_file(tag, d)?;
            }
            tag::COLUMN_FAMILY => self.column_family = d.varint32().or_cut_off()?,
            tag::COLUMN_FAMILY_ADD => self.add_column_family = Some(text(d)?),
            tag::COLUMN_FAMILY_DROP => self.drop_column_family = true,
            tag::IN_ATOMIC_GROUP => {
                self.atomic_group_remaining = Some(d.varint32().or_cut_off()?);
            }
            tag::BLOB_ADDITION | tag::BLOB_ADDITION_OLD => {
                self.blob_file_additions.push(blob_addition(d)?);
            }
            tag::BLOB_GARBAGE | tag::BLOB_GARBAGE_OLD => {
                self.blob_file_garbage.push(blob_garbage(d)?);
            }
            _ => self.ignorable_part(tag, d)?,
        }
        Ok(())
    }

    /// Parts that a reader may skip according to RocksDB.
    fn ignorable_part(&mut self, tag: u32, d: &mut Decoder<'_>) -> Result<(), Bad> {
        match tag {
            tag::DB_ID => self.db_id = Some(text(d)?),
            tag::WAL_ADDITION => self.wal_additions.push(wal_addition(d)?),
            tag::WAL_DELETION => self.wal_deletion = Some(varint(d)?),
            tag::WAL_ADDITION2 => {
                let mut body = Decoder::new(d.slice().or_cut_off()?);
                self.wal_additions.push(wal_addition(&mut body)?);
            }
            tag::WAL_DELETION2 => {
                let mut body = Decoder::new(d.slice().or_cut_off()?);
                self.wal_deletion = Some(varint(&mut body)?);
            }
            tag::FULL_HISTORY_TS_LOW => {
                let ts = d.slice().or_cut_off()?;
                if ts.is_empty() {
                    return Err(Bad::Other("an empty timestamp".to_owned()));
                }
                self.full_history_ts_low = Some(ts.to_vec());
            }
            tag::PERSIST_TIMESTAMPS => {
                let flag = switch(d.slice().or_cut_off()?)?;
                self.persist_user_defined_timestamps = Some(flag);
            }
            tag::LOG_SECRET | tag::LOG_END => {
                let mut body = Decoder::new(d.slice().or_cut_off()?);
                // A longer body is from a newer version.
                let pair = (body.u64().or_cut_off()?, body.u64().or_cut_off()?);
                if tag == tag::LOG_END {
                    self.log_ends.push(LogEnd {
                        number: FileNumber(pair.0),
                        end: Lsn(pair.1),
                    });
                } else {
                    self.log_secrets.push(pair);
                }
            }
            _ if tag & tag::SAFE_TO_IGNORE != 0 => {
                d.slice().or_cut_off()?;
            }
            _ => {
                let what = "it is not known, and its number says that it must be";
                return Err(Bad::Other(what.to_owned()));
            }
        }
        Ok(())
    }

    fn keep_logs_from(&mut self, number: u64) {
        self.min_log_number_to_keep = self.min_log_number_to_keep.max(Some(number));
    }

    fn new_file(&mut self, tag: u32, d: &mut Decoder<'_>) -> Result<(), Bad> {
        let level = level(d)?;
        let mut meta = FileMetaData {
            number: number(d)?,
            ..FileMetaData::default()
        };
        if tag == tag::NEW_FILE3 {
            meta.path_id = path_id(u64::from(d.varint32().or_cut_off()?))?;
        }
        meta.file_size = d.varint64().or_cut_off()?;
        meta.smallest = internal_key(d)?;
        meta.largest = internal_key(d)?;
        if tag != tag::NEW_FILE {
            meta.smallest_seqno = sequence(d)?;
            meta.largest_seqno = sequence(d)?;
        }
        if tag == tag::NEW_FILE4 {
            self.file_fields(&mut meta, d)?;
        }
        self.add_file(level, meta);
        Ok(())
    }

    fn file_fields(&mut self, meta: &mut FileMetaData, d: &mut Decoder<'_>) -> Result<(), Bad> {
        loop {
            let field = d.varint32().or_cut_off()?;
            if field == field::END {
                return Ok(());
            }
            let value = d.slice().or_cut_off()?;
            if field == field::MIN_LOG_NUMBER_TO_KEEP {
                let n = Decoder::new(value).u64();
                self.keep_logs_from(n.or_cut_off()?);
                continue;
            }
            file_field(meta, field, value).map_err(|bad| {
                let why = match bad {
                    Bad::CutOff => "cut off".to_owned(),
                    Bad::Other(why) => why,
                };
                Bad::Other(format!("file {}: field {field}: {why}", meta.number))
            })?;
        }
    }
}

fn part_error(tag: Option<u32>, at: usize, bad: Bad) -> Error {
    let tag = tag.map_or_else(|| "?".to_owned(), |t| t.to_string());
    let what = match bad {
        Bad::CutOff => "cut off".to_owned(),
        Bad::Other(what) => what,
    };
    Error::corruption(format!(
        "version edit: tag {tag} (byte {at} of the record): {what}"
    ))
}

fn file_field(meta: &mut FileMetaData, field: u32, value: &[u8]) -> Result<(), Bad> {
    let integer = || Decoder::new(value).varint64().or_cut_off();
    match field {
        field::MARKED_FOR_COMPACTION => meta.marked_for_compaction = switch(value)?,
        field::OLDEST_BLOB_FILE => meta.oldest_blob_file_number = Some(integer()?),
        field::OLDEST_ANCESTOR_TIME => meta.oldest_ancestor_time = integer()?,
        field::FILE_CREATION_TIME => meta.file_creation_time = integer()?,
        field::CHECKSUM => meta.file_checksum = value.to_vec(),
        field::CHECKSUM_FUNC_NAME => meta.file_checksum_func_name = utf8(value)?,
        field::TEMPERATURE => meta.temperature = *value.first().or_cut_off()?,
        field::MIN_TIMESTAMP => meta.min_timestamp = Some(value.to_vec()),
        field::MAX_TIMESTAMP => meta.max_timestamp = Some(value.to_vec()),
        field::UNIQUE_ID => {
            let id = value.try_into().ok();
            meta.unique_id = Some(id.ok_or_else(|| format!("{} bytes, not 16", value.len()))?);
        }
        field::EPOCH_NUMBER => meta.epoch_number = Some(integer()?),
        field::RANGE_DELETION_SIZE => meta.compensated_range_deletion_size = integer()?,
        field::TAIL_SIZE => {
            let tail = integer()?;
            if tail > meta.file_size {
                return Err(Bad::Other(format!("{tail} bytes, more than the file has")));
            }
            meta.tail_size = Some(tail);
        }
        field::TIMESTAMPS_PERSISTED => meta.user_defined_timestamps_persisted = switch(value)?,
        field::PATH_ID => meta.path_id = path_id(u64::from(*value.first().or_cut_off()?))?,
        _ if field & field::MUST_KNOW != 0 => {
            let what = "it is not known, and its number says that it must be";
            return Err(Bad::Other(what.to_owned()));
        }
        _ => {}
    }
    Ok(())
}

fn varint(d: &mut Decoder<'_>) -> Result<u64, Bad> {
    d.varint64().or_cut_off()
}

fn number(d: &mut Decoder<'_>) -> Result<FileNumber, Bad> {
    d.varint64().map(FileNumber).or_cut_off()
}

fn sequence(d: &mut Decoder<'_>) -> Result<u64, Bad> {
    let s = d.varint64().or_cut_off()?;
    if s > SequenceNumber::MAX.0 {
        return Err(Bad::Other(format!(
            "{s} is larger than any sequence number"
        )));
    }
    Ok(s)
}

fn level(d: &mut Decoder<'_>) -> Result<u32, Bad> {
    let level = d.varint32().or_cut_off()?;
    if level >= LEVELS_MAX {
        return Err(Bad::Other(format!(
            "level {level}; levels are below {LEVELS_MAX}"
        )));
    }
    Ok(level)
}

fn path_id(id: u64) -> Result<u32, Bad> {
    match id {
        0..=3 => Ok(id as u32),
        _ => Err(Bad::Other(format!("path id {id}; there are at most 4"))),
    }
}

fn internal_key(d: &mut Decoder<'_>) -> Result<Vec<u8>, Bad> {
    let bytes = d.slice().or_cut_off()?;
    if !key::is_boundary(bytes) {
        let what = format!("a boundary of {} bytes is no internal key", bytes.len());
        return Err(Bad::Other(what));
    }
    Ok(bytes.to_vec())
}

fn text(d: &mut Decoder<'_>) -> Result<String, Bad> {
    utf8(d.slice().or_cut_off()?)
}

fn utf8(bytes: &[u8]) -> Result<String, Bad> {
    let text = std::str::from_utf8(bytes);
    text.map(str::to_owned)
        .map_err(|_| Bad::Other("a name that is not UTF-8".to_owned()))
}

fn switch(value: &[u8]) -> Result<bool, Bad> {
    match value {
        [0] => Ok(false),
        [1] => Ok(true),
        _ => Err(Bad::Other("neither 0 nor 1".to_owned())),
    }
}

fn blob_addition(d: &mut Decoder<'_>) -> Result<BlobAddition, Bad> {
    let out = BlobAddition {
        number: number(d)?,
        blob_count: d.varint64().or_cut_off()?,
        blob_bytes: d.varint64().or_cut_off()?,
        checksum_method: text(d)?,
        checksum: d.slice().or_cut_off()?.to_vec(),
    };
    blob_fields(d)?;
    Ok(out)
}

fn blob_garbage(d: &mut Decoder<'_>) -> Result<BlobGarbage, Bad> {
    let out = BlobGarbage {
        number: number(d)?,
        blob_count: d.varint64().or_cut_off()?,
        blob_bytes: d.varint64().or_cut_off()?,
    };
    blob_fields(d)?;
    Ok(out)
}

/// Fields that no version of RocksDB up to 11.8 writes.
fn blob_fields(d: &mut Decoder<'_>) -> Result<(), Bad> {
    loop {
        let field = d.varint32().or_cut_off()?;
        if field == 0 {
            return Ok(());
        }
        if field & field::MUST_KNOW != 0 {
            return Err(Bad::Other(format!(
                "field {field} is not known, and its number says that it must be"
            )));
        }
        d.slice().or_cut_off()?;
    }
}

fn wal_addition(d: &mut Decoder<'_>) -> Result<WalAddition, Bad> {
    let mut out = WalAddition {
        log_number: varint(d)?,
        synced_size: None,
    };
    loop {
        match d.varint32().or_cut_off()? {
            tag::wal::END => return Ok(out),
            tag::wal::SYNCED_SIZE => out.synced_size = Some(d.varint64().or_cut_off()?),
            t => return Err(Bad::Other(format!("unknown tag {t} of a log's addition"))),
        }
    }
}
