//! Writing an edit, with the tags and fields that RocksDB 7.8.3 and 11.8 both read.

use base::coding::{put_slice, put_varint};
use base::{Error, Result, SequenceNumber};

use super::tag::{self, field};
use super::{BlobAddition, BlobGarbage, FileMetaData, NewFile, VersionEdit, WalAddition};

impl VersionEdit {
    /// Encodes the record.
    ///
    /// A file's temperature, mark and range-deletion size are not written: they are hints that readers do not
    /// need. Errors: `NotSupported` for parts that must not be lost and cannot be written: user timestamps,
    /// and files outside the database's directory.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.check()?;
        let mut buffer = Vec::with_capacity(64 + 128 * self.new_files.len());
        let out = &mut buffer;
        self.put_head(out);
        for c in &self.compact_cursors {
            put_varint(out, u64::from(tag::COMPACT_CURSOR));
            put_varint(out, u64::from(c.level));
            put_slice(out, &c.key);
        }
        for (level, number) in &self.deleted_files {
            put_varint(out, u64::from(tag::DELETED_FILE));
            put_varint(out, u64::from(*level));
            put_varint(out, number.0);
        }
        for f in &self.new_files {
            put_file(out, f);
        }
        for b in &self.blob_file_additions {
            put_blob_addition(out, b);
        }
        for b in &self.blob_file_garbage {
            put_blob_garbage(out, b);
        }
        for wal in &self.wal_additions {
            put_wal_addition(out, wal);
        }
        if let Some(below) = self.wal_deletion {
            let mut body = Vec::new();
            put_varint(&mut body, below);
            put_bytes(out, tag::WAL_DELETION2, &body);
        }
        let ends = self.log_ends.iter().map(|log| (log.number.0, log.end.0));
        let secrets = self.log_secrets.iter().map(|pair| (tag::LOG_SECRET, *pair));
        for (tag, (log, about)) in secrets.chain(ends.map(|pair| (tag::LOG_END, pair))) {
            let body = [log.to_le_bytes(), about.to_le_bytes()].concat();
            put_bytes(out, tag, &body);
        }
        if self.column_family != 0 {
            put_number(out, tag::COLUMN_FAMILY, u64::from(self.column_family));
        }
        if let Some(name) = &self.add_column_family {
            put_bytes(out, tag::COLUMN_FAMILY_ADD, name.as_bytes());
        }
        if self.drop_column_family {
            put_varint(out, u64::from(tag::COLUMN_FAMILY_DROP));
        }
        if let Some(n) = self.atomic_group_remaining {
            put_number(out, tag::IN_ATOMIC_GROUP, u64::from(n));
        }
        Ok(buffer)
    }

    fn put_head(&self, out: &mut Vec<u8>) {
        if let Some(id) = &self.db_id {
            put_bytes(out, tag::DB_ID, id.as_bytes());
        }
        if let Some(name) = &self.comparator {
            put_bytes(out, tag::COMPARATOR, name.as_bytes());
        }
        let numbers = [
            (tag::LOG_NUMBER, self.log_number),
            (tag::PREV_LOG_NUMBER, self.prev_log_number),
            (tag::NEXT_FILE_NUMBER, self.next_file_number),
            (
                tag::MAX_COLUMN_FAMILY,
                self.max_column_family.map(u64::from),
            ),
            (tag::MIN_LOG_NUMBER_TO_KEEP, self.min_log_number_to_keep),
            (tag::LAST_SEQUENCE, self.last_sequence),
        ];
        for (tag, number) in numbers {
            if let Some(number) = number {
                put_number(out, tag, number);
            }
        }
    }

    fn check(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::not_supported(format!("writing a MANIFEST: {what}")));
        if self.full_history_ts_low.is_some() || self.persist_user_defined_timestamps == Some(false)
        {
            return refuse("column families with user-defined timestamps");
        }
        let numbers = self.new_files.iter().map(|f| f.meta.largest_seqno);
        if let Some(n) = numbers
            .chain(self.last_sequence)
            .max()
            .filter(|&n| n > SequenceNumber::MAX.0)
        {
            return Err(Error::broken(format!(
                "an edit has the sequence number {n}, which no reader takes"
            )));
        }
        for NewFile { level, meta } in &self.new_files {
            if meta.path_id != 0 {
                return refuse("table files in db_paths other than the first");
            }
            if !meta.user_defined_timestamps_persisted || meta.min_timestamp.is_some() {
                return refuse("table files with user-defined timestamps");
            }
            debug_assert!(*level < super::LEVELS_MAX, "level {level}");
        }
        Ok(())
    }
}

fn put_number(out: &mut Vec<u8>, tag: u32, number: u64) {
    put_varint(out, u64::from(tag));
    put_varint(out, number);
}

fn put_bytes(out: &mut Vec<u8>, tag: u32, bytes: &[u8]) {
    put_varint(out, u64::from(tag));
    put_slice(out, bytes);
}

fn put_wal_addition(out: &mut Vec<u8>, wal: &WalAddition) {
    let mut body = Vec::new();
    put_varint(&mut body, wal.log_number);
    if let Some(size) = wal.synced_size {
        put_number(&mut body, tag::wal::SYNCED_SIZE, size);
    }
    put_varint(&mut body, u64::from(tag::wal::END));
    put_bytes(out, tag::WAL_ADDITION2, &body);
}

fn put_file(out: &mut Vec<u8>, NewFile { level, meta }: &NewFile) {
    put_varint(out, u64::from(tag::NEW_FILE4));
    put_varint(out, u64::from(*level));
    put_varint(out, meta.number.0);
    put_varint(out, meta.file_size);
    put_slice(out, &meta.smallest);
    put_slice(out, &meta.largest);
    put_varint(out, meta.smallest_seqno);
    put_varint(out, meta.largest_seqno);
    put_fields(out, meta);
    put_varint(out, u64::from(field::END));
}

fn put_fields(out: &mut Vec<u8>, meta: &FileMetaData) {
    put_varint_field(out, field::OLDEST_ANCESTOR_TIME, meta.oldest_ancestor_time);
    put_varint_field(out, field::FILE_CREATION_TIME, meta.file_creation_time);
    if let Some(epoch) = meta.epoch_number {
        put_varint_field(out, field::EPOCH_NUMBER, epoch);
    }
    if !meta.file_checksum_func_name.is_empty() {
        put_bytes(out, field::CHECKSUM, &meta.file_checksum);
        let name = meta.file_checksum_func_name.as_bytes();
        put_bytes(out, field::CHECKSUM_FUNC_NAME, name);
    }
    if let Some(blob) = meta.oldest_blob_file_number {
        put_varint_field(out, field::OLDEST_BLOB_FILE, blob);
    }
    if let Some(id) = &meta.unique_id {
        put_bytes(out, field::UNIQUE_ID, id);
    }
    if let Some(tail) = meta.tail_size {
        put_varint_field(out, field::TAIL_SIZE, tail);
    }
}

fn put_varint_field(out: &mut Vec<u8>, field: u32, value: u64) {
    let mut body = Vec::with_capacity(10);
    put_varint(&mut body, value);
    put_bytes(out, field, &body);
}

fn put_blob_addition(out: &mut Vec<u8>, b: &BlobAddition) {
    put_number(out, tag::BLOB_ADDITION, b.number.0);
    put_varint(out, b.blob_count);
    put_varint(out, b.blob_bytes);
    put_slice(out, b.checksum_method.as_bytes());
    put_slice(out, &b.checksum);
    put_varint(out, 0);
}

fn put_blob_garbage(out: &mut Vec<u8>, b: &BlobGarbage) {
    put_number(out, tag::BLOB_GARBAGE, b.number.0);
    put_varint(out, b.blob_count);
    put_varint(out, b.blob_bytes);
    put_varint(out, 0);
}
