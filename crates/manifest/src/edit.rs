//! One change of a database's files and families: a record of the MANIFEST.
//!
//! ```text
//!   edit:     (varint32 tag, body)*          in any order
//!   new file: 103 | varint level, number, size | slice smallest, largest | varint seq, seq
//!             | (varint32 field, slice)* | 1
//! ```
//!
//! Source: RocksDB `db/version_edit.cc`; tags in docs/formats.md, "VersionEdit tags". Every tag of RocksDB
//! up to 11.8 is read; parts that Ironstone does not use are kept as data. Unknown tags and fields whose
//! numbers mark them as safe to ignore are skipped. Any other unknown tag or field is Corruption, because the
//! meaning of the edit is then unknown.
//!
//! Only tags that both RocksDB 7.8.3 and 11.8 read are written: see [`VersionEdit::encode`].
#![deny(clippy::indexing_slicing)]

mod decode;
mod encode;
mod show;

use base::FileNumber;

/// Levels must be below this: RocksDB's tools do not read more either.
pub const LEVELS_MAX: u32 = 64;

/// Tags of a record's parts, and fields of a new file.
mod tag {
    pub(super) const COMPARATOR: u32 = 1;
    pub(super) const LOG_NUMBER: u32 = 2;
    pub(super) const NEXT_FILE_NUMBER: u32 = 3;
    pub(super) const LAST_SEQUENCE: u32 = 4;
    pub(super) const COMPACT_CURSOR: u32 = 5;
    pub(super) const DELETED_FILE: u32 = 6;
    pub(super) const NEW_FILE: u32 = 7;
    pub(super) const PREV_LOG_NUMBER: u32 = 9;
    pub(super) const MIN_LOG_NUMBER_TO_KEEP: u32 = 10;
    pub(super) const NEW_FILE2: u32 = 100;
    pub(super) const NEW_FILE3: u32 = 102;
    pub(super) const NEW_FILE4: u32 = 103;
    pub(super) const COLUMN_FAMILY: u32 = 200;
    pub(super) const COLUMN_FAMILY_ADD: u32 = 201;
    pub(super) const COLUMN_FAMILY_DROP: u32 = 202;
    pub(super) const MAX_COLUMN_FAMILY: u32 = 203;
    pub(super) const IN_ATOMIC_GROUP: u32 = 300;
    pub(super) const BLOB_ADDITION: u32 = 400;
    pub(super) const BLOB_GARBAGE: u32 = 401;
    /// A reader that does not know a tag with this bit may skip it.
    pub(super) const SAFE_TO_IGNORE: u32 = 1 << 13;
    pub(super) const DB_ID: u32 = SAFE_TO_IGNORE + 1;
    pub(super) const BLOB_ADDITION_OLD: u32 = SAFE_TO_IGNORE + 2;
    pub(super) const BLOB_GARBAGE_OLD: u32 = SAFE_TO_IGNORE + 3;
    pub(super) const WAL_ADDITION: u32 = SAFE_TO_IGNORE + 4;
    pub(super) const WAL_DELETION: u32 = SAFE_TO_IGNORE + 5;
    pub(super) const FULL_HISTORY_TS_LOW: u32 = SAFE_TO_IGNORE + 6;
    pub(super) const WAL_ADDITION2: u32 = SAFE_TO_IGNORE + 7;
    pub(super) const WAL_DELETION2: u32 = SAFE_TO_IGNORE + 8;
    pub(super) const PERSIST_TIMESTAMPS: u32 = SAFE_TO_IGNORE + 9;
    /// Ironstone's own tags, far from those that RocksDB will assign next.
    pub(super) const LOG_SECRET: u32 = SAFE_TO_IGNORE + 4097;
    pub(super) const LOG_END: u32 = SAFE_TO_IGNORE + 4098;

    pub(super) mod wal {
        pub(in super::super) const END: u32 = 1;
        pub(in super::super) const SYNCED_SIZE: u32 = 2;
    }

    pub(super) mod field {
        pub(in super::super) const END: u32 = 1;
        pub(in super::super) const MARKED_FOR_COMPACTION: u32 = 2;
        pub(in super::super) const MIN_LOG_NUMBER_TO_KEEP: u32 = 3;
        pub(in super::super) const OLDEST_BLOB_FILE: u32 = 4;
        pub(in super::super) const OLDEST_ANCESTOR_TIME: u32 = 5;
        pub(in super::super) const FILE_CREATION_TIME: u32 = 6;
        pub(in super::super) const CHECKSUM: u32 = 7;
        pub(in super::super) const CHECKSUM_FUNC_NAME: u32 = 8;
        pub(in super::super) const TEMPERATURE: u32 = 9;
        pub(in super::super) const MIN_TIMESTAMP: u32 = 10;
        pub(in super::super) const MAX_TIMESTAMP: u32 = 11;
        pub(in super::super) const UNIQUE_ID: u32 = 12;
        pub(in super::super) const EPOCH_NUMBER: u32 = 13;
        pub(in super::super) const RANGE_DELETION_SIZE: u32 = 14;
        pub(in super::super) const TAIL_SIZE: u32 = 15;
        pub(in super::super) const TIMESTAMPS_PERSISTED: u32 = 16;
        pub(in super::super) const PATH_ID: u32 = 65;
        /// A field with this bit must be understood.
        pub(in super::super) const MUST_KNOW: u32 = 1 << 6;
    }
}

/// What the MANIFEST knows about a table file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileMetaData {
    /// The number in its name.
    pub number: FileNumber,
    /// Which of `db_paths` holds it.
    pub path_id: u32,
    /// Bytes, exactly as on disk.
    pub file_size: u64,
    /// An internal key at or before the first one in the file, range tombstones included.
    pub smallest: Vec<u8>,
    /// An internal key at or after the last one. If it is a range tombstone's end (sequence
    /// [`base::SequenceNumber::MAX`], type 0x0f), the file does not reach the user key itself.
    pub largest: Vec<u8>,
    /// The smallest sequence number in the file.
    pub smallest_seqno: u64,
    /// The largest sequence number in the file.
    pub largest_seqno: u64,
    /// Whether the file should be compacted soon.
    pub marked_for_compaction: bool,
    /// The oldest blob file that its values refer to.
    pub oldest_blob_file_number: Option<u64>,
    /// When the oldest data in it was written, seconds since 1970; 0 is unknown.
    pub oldest_ancestor_time: u64,
    /// When the file was made, seconds since 1970; 0 is unknown.
    pub file_creation_time: u64,
    /// Checksum of the whole file.
    pub file_checksum: Vec<u8>,
    /// How `file_checksum` was computed; empty or `Unknown` if it was not.
    pub file_checksum_func_name: String,
    /// Storage temperature: 0 unknown, 4 hot, 8 warm, 10 cool, 12 cold, 16 ice.
    pub temperature: u8,
    /// RocksDB's internal unique id, as the file's properties give it.
    pub unique_id: Option<[u8; 16]>,
    /// Orders files of level 0: newer files have larger epochs.
    pub epoch_number: Option<u64>,
    /// Estimated bytes that its range tombstones cover.
    pub compensated_range_deletion_size: u64,
    /// Bytes after the last data block.
    pub tail_size: Option<u64>,
    /// Whether user timestamps are in the file.
    pub user_defined_timestamps_persisted: bool,
    /// The smallest user timestamp.
    pub min_timestamp: Option<Vec<u8>>,
    /// The largest user timestamp.
    pub max_timestamp: Option<Vec<u8>>,
}

impl Default for FileMetaData {
    /// A file about which nothing is known; number, size and keys must be set.
    fn default() -> Self {
        Self {
            number: FileNumber(0),
            path_id: 0,
            file_size: 0,
            smallest: Vec::new(),
            largest: Vec::new(),
            smallest_seqno: 0,
            largest_seqno: 0,
            marked_for_compaction: false,
            oldest_blob_file_number: None,
            oldest_ancestor_time: 0,
            file_creation_time: 0,
            file_checksum: Vec::new(),
            file_checksum_func_name: String::new(),
            temperature: 0,
            unique_id: None,
            epoch_number: None,
            compensated_range_deletion_size: 0,
            tail_size: None,
            user_defined_timestamps_persisted: true,
            min_timestamp: None,
            max_timestamp: None,
        }
    }
}

/// A table file that an edit adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// The level that it is on, below [`LEVELS_MAX`].
    pub level: u32,
    /// What is known about it.
    pub meta: FileMetaData,
}

/// Where a level's next compaction starts: a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactCursor {
    /// The level, below [`LEVELS_MAX`].
    pub level: u32,
    /// An internal key.
    pub key: Vec<u8>,
}

/// A blob file that an edit adds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlobAddition {
    /// The number in its name.
    pub number: FileNumber,
    /// Blobs in it.
    pub blob_count: u64,
    /// Bytes of its records: 32, key and value of each.
    pub blob_bytes: u64,
    /// How `checksum` was computed; empty if it was not.
    pub checksum_method: String,
    /// Checksum of the whole file.
    pub checksum: Vec<u8>,
}

/// Blobs that nothing refers to any more, counted since the last edit about the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlobGarbage {
    /// The blob file.
    pub number: FileNumber,
    /// Blobs that became garbage.
    pub blob_count: u64,
    /// Bytes of their records.
    pub blob_bytes: u64,
}

/// A write-ahead log that exists, or how much of it is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalAddition {
    /// The number in its name.
    pub log_number: u64,
    /// The number of its durable bytes, if stated.
    pub synced_size: Option<u64>,
}

/// One change. A field that is `None` or empty says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionEdit {
    /// The family that the whole edit is about.
    pub column_family: u32,
    /// The id of the database.
    pub db_id: Option<String>,
    /// The name of the family's comparator.
    pub comparator: Option<String>,
    /// Whether the family's files hold user timestamps.
    pub persist_user_defined_timestamps: Option<bool>,
    /// Logs with a smaller number hold nothing of the family that is not in table files.
    pub log_number: Option<u64>,
    /// A field of LevelDB's; always 0.
    pub prev_log_number: Option<u64>,
    /// No file has this number or a larger one.
    pub next_file_number: Option<u64>,
    /// The last sequence number that is in table files.
    pub last_sequence: Option<u64>,
    /// The largest id that any family ever had.
    pub max_column_family: Option<u32>,
    /// Logs with a smaller number are not needed.
    pub min_log_number_to_keep: Option<u64>,
    /// Hints for compactions.
    pub compact_cursors: Vec<CompactCursor>,
    /// Files that are removed: the level, below [`LEVELS_MAX`], and the number.
    pub deleted_files: Vec<(u32, FileNumber)>,
    /// Files that are added.
    pub new_files: Vec<NewFile>,
    /// Blob files that are added.
    pub blob_file_additions: Vec<BlobAddition>,
    /// Blobs that became garbage.
    pub blob_file_garbage: Vec<BlobGarbage>,
    /// Logs whose existence is tracked.
    pub wal_additions: Vec<WalAddition>,
    /// Logs below this number are gone.
    pub wal_deletion: Option<u64>,
    /// Secrets of logs, each with the number of the first log that uses it: see [`log::secret`].
    pub log_secrets: Vec<(u64, u64)>,
    /// Numbers and ends of logs when the database was closed; all their bytes are durable. This is not a
    /// [`WalAddition`], because RocksDB 7.8.3 aborts if it finds one and opens for reading only.
    pub log_ends: Vec<log::LogEnd>,
    /// User timestamps below this may be collapsed.
    pub full_history_ts_low: Option<Vec<u8>>,
    /// The edit creates the family under this name.
    pub add_column_family: Option<String>,
    /// The edit drops the family.
    pub drop_column_family: bool,
    /// The edit belongs to an atomic group, which only counts as a whole. This is the number of its edits
    /// still to come.
    pub atomic_group_remaining: Option<u32>,
}

impl VersionEdit {
    /// Adds a file to a level.
    pub fn add_file(&mut self, level: u32, meta: FileMetaData) {
        self.new_files.push(NewFile { level, meta });
    }

    /// Removes a file from a level.
    pub fn delete_file(&mut self, level: u32, number: FileNumber) {
        self.deleted_files.push((level, number));
    }

    /// True if the edit only tracks logs: it is then not about any family.
    pub fn is_wal_edit(&self) -> bool {
        !self.wal_additions.is_empty() || self.wal_deletion.is_some()
    }
}

#[cfg(test)]
#[expect(
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests may panic, and say what they skipped"
)]
mod tests;
