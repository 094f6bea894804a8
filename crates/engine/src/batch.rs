//! A batch of writes, in the encoding of the write-ahead log.
//!
//! ```text
//!   u64 sequence | u32 count | record*          integers little-endian
//!   record:  u8 tag | [varint32 family] | slice key | [slice value]
//!                      only in the second tag of each pair; the first means family 0
//! ```
//!
//! Source: RocksDB `db/write_batch.cc`; tags in docs/formats.md, "WriteBatch". The bytes are the
//! batch: the log appends [`WriteBatch::data`] and the memtable reads [`WriteBatch::records`],
//! so nothing is encoded twice. `count` is the number of records that get a sequence number.
//!
//! Batches are built by [`WriteBatch::put`] and similar methods, or made from bytes by
//! [`WriteBatch::from_data`], which checks everything: later readers of a `WriteBatch` may rely
//! on its records.
#![deny(clippy::indexing_slicing)]

use base::coding::{Decoder, put_slice, put_varint, u32_at, u64_at};
use base::{Error, Result, ValueType as Tag};

use base::values::entity::WideColumns;

/// Bytes of sequence and count before the first record.
pub const HEADER_LEN: usize = 12;

/// Initial capacity of a new batch in bytes: most single puts need no second allocation.
const SMALL_PUT: usize = 180;

/// Maximum length of a key in bytes: an internal key, 8 bytes longer, must have a 32-bit length.
pub const KEY_LEN_MAX: usize = u32::MAX as usize - 8;

/// Maximum length of a value in bytes.
pub const VALUE_LEN_MAX: usize = u32::MAX as usize;

/// One record of a batch. Its slices point into the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record<'a> {
    /// Sets a key.
    Put {
        /// Column family id.
        cf: u32,
        /// User key.
        key: &'a [u8],
        /// Value.
        value: &'a [u8],
    },
    /// Removes a key.
    Delete {
        /// Column family id.
        cf: u32,
        /// User key.
        key: &'a [u8],
    },
    /// Removes a key that was put once since it was last removed.
    SingleDelete {
        /// Column family id.
        cf: u32,
        /// User key.
        key: &'a [u8],
    },
    /// Gives a merge operator an operand.
    Merge {
        /// Column family id.
        cf: u32,
        /// User key.
        key: &'a [u8],
        /// Operand.
        operand: &'a [u8],
    },
    /// Removes the keys from `begin` (inclusive) to `end` (exclusive).
    DeleteRange {
        /// Column family id.
        cf: u32,
        /// First user key removed.
        begin: &'a [u8],
        /// First user key not removed.
        end: &'a [u8],
    },
    /// Sets a key to a value in a blob file (RocksDB's stacked BlobDB).
    BlobIndex {
        /// Column family id.
        cf: u32,
        /// User key.
        key: &'a [u8],
        /// Encoded reference.
        index: &'a [u8],
    },
    /// Sets a key to a wide-column entity.
    PutEntity {
        /// Column family id.
        cf: u32,
        /// User key.
        key: &'a [u8],
        /// Encoded columns.
        entity: &'a [u8],
    },
    /// Sets a key, with the time at which it was written.
    TimedPut {
        /// Column family id.
        cf: u32,
        /// User key.
        key: &'a [u8],
        /// Value.
        value: &'a [u8],
        /// Seconds since 1970.
        write_time: u64,
    },
    /// Bytes for readers of the log; not applied.
    LogData(&'a [u8]),
    /// Nothing; marks a boundary.
    Noop,
    /// Begins a prepared transaction (WriteCommitted).
    BeginPrepare,
    /// Begins a prepared transaction (WritePrepared).
    BeginPersistedPrepare,
    /// Begins a prepared transaction (WriteUnprepared).
    BeginUnprepare,
    /// Ends a prepared transaction.
    EndPrepare(&'a [u8]),
    /// Commits the transaction with this id.
    Commit(&'a [u8]),
    /// Commits the transaction with this id at a timestamp.
    CommitWithTimestamp {
        /// The timestamp.
        timestamp: &'a [u8],
        /// The transaction.
        xid: &'a [u8],
    },
    /// Rolls the transaction with this id back.
    Rollback(&'a [u8]),
}

impl Record<'_> {
    /// The record's name, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Put { .. } => "Put",
            Self::Delete { .. } => "Delete",
            Self::SingleDelete { .. } => "SingleDelete",
            Self::Merge { .. } => "Merge",
            Self::DeleteRange { .. } => "DeleteRange",
            Self::BlobIndex { .. } => "BlobIndex",
            Self::PutEntity { .. } => "PutEntity",
            Self::TimedPut { .. } => "TimedPut",
            Self::LogData(_) => "LogData",
            Self::Noop => "Noop",
            Self::BeginPrepare => "BeginPrepare",
            Self::BeginPersistedPrepare => "BeginPersistedPrepare",
            Self::BeginUnprepare => "BeginUnprepare",
            Self::EndPrepare(_) => "EndPrepare",
            Self::Commit(_) => "Commit",
            Self::CommitWithTimestamp { .. } => "CommitWithTimestamp",
            Self::Rollback(_) => "Rollback",
        }
    }

    /// The column family's id; `None` for records that belong to no family.
    pub fn column_family(&self) -> Option<u32> {
        match *self {
            Self::Put { cf, .. }
            | Self::Delete { cf, .. }
            | Self::SingleDelete { cf, .. }
            | Self::Merge { cf, .. }
            | Self::DeleteRange { cf, .. }
            | Self::BlobIndex { cf, .. }
            | Self::PutEntity { cf, .. }
            | Self::TimedPut { cf, .. } => Some(cf),
            _ => None,
        }
    }

    /// True if the record gets a sequence number: the header's count counts it.
    pub fn is_counted(&self) -> bool {
        self.column_family().is_some()
    }
}

/// The records of a batch from front to back; the result of [`WriteBatch::records`] and
/// [`Records::new`]. After an error it ends.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: Decoder<'a>,
    len: usize,
}

impl<'a> Records<'a> {
    /// The records in `data`, which is a whole batch, header included. The header's count is not
    /// checked. Errors: `Corruption` if `data` is shorter than a header.
    pub fn new(data: &'a [u8]) -> Result<Self> {
        let body = data.get(HEADER_LEN..).ok_or_else(|| too_short(data))?;
        Ok(Self {
            rest: Decoder::new(body),
            len: data.len(),
        })
    }

    /// Where in the batch the next record begins, in bytes.
    pub fn offset(&self) -> usize {
        self.len - self.rest.len()
    }

    /// Decodes the next record; `None` if it is cut off.
    ///
    /// Most records are puts and deletions. They are decoded inline, so that the record is built in registers.
    /// A record that is returned in memory is written field by field and read sixteen bytes at a time. Such a
    /// read waits until all earlier stores, including those of memtable entries, are in the cache.
    #[inline(always)]
    fn decode(&mut self, tag: Tag) -> Option<Record<'a>> {
        let d = &mut self.rest;
        match tag {
            Tag::Value | Tag::ColumnFamilyValue => Some(Record::Put {
                cf: family(d, tag == Tag::ColumnFamilyValue)?,
                key: d.slice()?,
                value: d.slice()?,
            }),
            Tag::Deletion | Tag::ColumnFamilyDeletion => Some(Record::Delete {
                cf: family(d, tag == Tag::ColumnFamilyDeletion)?,
                key: d.slice()?,
            }),
            _ => self.decode_other(tag),
        }
    }

    #[inline(never)]
    fn decode_other(&mut self, tag: Tag) -> Option<Record<'a>> {
        let d = &mut self.rest;
        Some(match tag {
            Tag::SingleDeletion | Tag::ColumnFamilySingleDeletion => Record::SingleDelete {
                cf: family(d, tag == Tag::ColumnFamilySingleDeletion)?,
                key: d.slice()?,
            },
            Tag::Merge | Tag::ColumnFamilyMerge => Record::Merge {
                cf: family(d, tag == Tag::ColumnFamilyMerge)?,
                key: d.slice()?,
                operand: d.slice()?,
            },
            Tag::RangeDeletion | Tag::ColumnFamilyRangeDeletion => Record::DeleteRange {
                cf: family(d, tag == Tag::ColumnFamilyRangeDeletion)?,
                begin: d.slice()?,
                end: d.slice()?,
            },
            Tag::BlobIndex | Tag::ColumnFamilyBlobIndex => Record::BlobIndex {
                cf: family(d, tag == Tag::ColumnFamilyBlobIndex)?,
                key: d.slice()?,
                index: d.slice()?,
            },
            Tag::WideColumnEntity | Tag::ColumnFamilyWideColumnEntity => Record::PutEntity {
                cf: family(d, tag == Tag::ColumnFamilyWideColumnEntity)?,
                key: d.slice()?,
                entity: d.slice()?,
            },
            Tag::ValuePreferredSeqno | Tag::ColumnFamilyValuePreferredSeqno => {
                let cf = family(d, tag == Tag::ColumnFamilyValuePreferredSeqno)?;
                let key = d.slice()?;
                let (value, time) = d.slice()?.split_last_chunk::<8>()?;
                Record::TimedPut {
                    cf,
                    key,
                    value,
                    write_time: u64::from_le_bytes(*time),
                }
            }
            Tag::LogData => Record::LogData(d.slice()?),
            Tag::Noop => Record::Noop,
            Tag::BeginPrepareXid => Record::BeginPrepare,
            Tag::BeginPersistedPrepareXid => Record::BeginPersistedPrepare,
            Tag::BeginUnprepareXid => Record::BeginUnprepare,
            Tag::EndPrepareXid => Record::EndPrepare(d.slice()?),
            Tag::CommitXid => Record::Commit(d.slice()?),
            Tag::RollbackXid => Record::Rollback(d.slice()?),
            Tag::CommitXidAndTimestamp => Record::CommitWithTimestamp {
                timestamp: d.slice()?,
                xid: d.slice()?,
            },
            Tag::Value
            | Tag::ColumnFamilyValue
            | Tag::Deletion
            | Tag::ColumnFamilyDeletion
            // Only in tables, never in a batch; `next` has refused it already.
            | Tag::DeletionWithTimestamp => return None,
        })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let at = self.offset();
        let byte = self.rest.u8()?;
        let tag = Tag::from_u8(byte).filter(|&t| t != Tag::DeletionWithTimestamp);
        let Some(tag) = tag else {
            self.rest = Decoder::new(&[]);
            return Some(Err(unknown_tag(at, byte)));
        };
        let Some(record) = self.decode(tag) else {
            self.rest = Decoder::new(&[]);
            return Some(Err(cut_off(at, tag)));
        };
        Some(Ok(record))
    }
}

#[inline]
fn family(d: &mut Decoder<'_>, present: bool) -> Option<u32> {
    if present { d.varint32() } else { Some(0) }
}

#[cold]
fn unknown_tag(at: usize, byte: u8) -> Error {
    bad_record(at, &format!("unknown tag 0x{byte:02x}"))
}

#[cold]
fn cut_off(at: usize, tag: Tag) -> Error {
    bad_record(at, &format!("the record {tag:?} is cut off"))
}

fn bad_record(at: usize, what: &str) -> Error {
    Error::corruption(format!("write batch: {what} (byte {at} of the batch)"))
}

#[cold]
fn too_short(data: &[u8]) -> Error {
    Error::corruption(format!(
        "write batch of {} bytes; its header has {HEADER_LEN}",
        data.len()
    ))
}

/// The state that [`WriteBatch::rollback_to_save_point`] restores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SavePoint {
    len: usize,
    count: u32,
}

/// Writes that are applied together: all of them, or none.
///
/// ```
/// use ironstone::WriteBatch;
/// let mut batch = WriteBatch::new();
/// batch.put(b"key", b"value").unwrap();
/// batch.delete(b"other").unwrap();
/// assert_eq!(batch.count(), 2);
/// ```
#[derive(Clone, Debug)]
pub struct WriteBatch {
    /// A complete header, then complete records of known kinds; the header's count is right.
    data: Vec<u8>,
    save_points: Vec<SavePoint>,
}

impl Default for WriteBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl WriteBatch {
    /// An empty batch.
    #[inline]
    pub fn new() -> Self {
        Self::with_capacity(SMALL_PUT)
    }

    /// An empty batch with room for `bytes` bytes of records.
    pub fn with_capacity(bytes: usize) -> Self {
        let mut data = Vec::with_capacity(HEADER_LEN + bytes);
        data.resize(HEADER_LEN, 0);
        Self {
            data,
            save_points: Vec::new(),
        }
    }

    /// A batch from its bytes, header included. Errors: `Corruption` if the header is cut off or its count is
    /// wrong; `Corruption` with the offset in the batch if a record has an unknown tag or is cut off.
    pub fn from_data(data: Vec<u8>) -> Result<Self> {
        let mut counted = 0u64;
        for record in Records::new(&data)? {
            counted += u64::from(record?.is_counted());
        }
        let count = u32_at(&data, 8).ok_or_else(|| too_short(&data))?;
        if u64::from(count) != counted {
            return Err(Error::corruption(format!(
                "write batch: the header counts {count} records, there are {counted}"
            )));
        }
        Ok(Self {
            data,
            save_points: Vec::new(),
        })
    }

    /// The bytes, as the log stores them.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The bytes, as the log stores them, without a copy.
    pub fn into_data(self) -> Vec<u8> {
        self.data
    }

    /// Bytes that the batch takes in the log, without the framing of the log.
    pub fn approximate_size(&self) -> usize {
        self.data.len()
    }

    /// Number of records that get a sequence number.
    #[inline]
    pub fn count(&self) -> u32 {
        u32_at(&self.data, 8).unwrap_or_default()
    }

    /// True if there is no record at all.
    pub fn is_empty(&self) -> bool {
        self.data.len() <= HEADER_LEN
    }

    /// The sequence number of the first counted record.
    pub fn sequence(&self) -> u64 {
        u64_at(&self.data, 0).unwrap_or_default()
    }

    /// Sets the sequence number of the first counted record.
    pub fn set_sequence(&mut self, sequence: u64) {
        if let Some(head) = self.data.first_chunk_mut::<8>() {
            *head = sequence.to_le_bytes();
        }
    }

    /// The sequence number of the last counted record; if there is none, the number before the batch's.
    pub(crate) fn last_sequence(&self) -> u64 {
        (self.sequence() + u64::from(self.count())).saturating_sub(1)
    }

    /// The records from front to back.
    pub fn records(&self) -> Records<'_> {
        Records {
            rest: Decoder::new(self.data.get(HEADER_LEN..).unwrap_or_default()),
            len: self.data.len(),
        }
    }

    /// Sets a key of the default family. Errors: `InvalidArgument` if the key is longer
    /// than [`KEY_LEN_MAX`] or the value longer than [`VALUE_LEN_MAX`], or the batch is full.
    #[inline]
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_cf_id(0, key.as_ref(), value.as_ref())
    }

    /// Removes a key of the default family.
    #[inline]
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_cf_id(0, key.as_ref())
    }

    /// Removes the keys of the default family from `begin` (inclusive) to `end` (exclusive). Writing the
    /// batch fails if `end` comes before `begin`.
    pub fn delete_range(&mut self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        self.delete_range_cf_id(0, begin.as_ref(), end.as_ref())
    }

    /// Removes a key of the default family that was put exactly once since it was last removed.
    pub fn single_delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.single_delete_cf_id(0, key.as_ref())
    }

    /// Gives the default family's merge operator an operand for a key.
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.merge_cf_id(0, key.as_ref(), operand.as_ref())
    }

    /// Sets a key of the default family to a wide-column entity.
    pub fn put_entity(&mut self, key: impl AsRef<[u8]>, columns: &WideColumns) -> Result<()> {
        self.put_entity_cf_id(0, key.as_ref(), columns)
    }

    /// Sets a key of the family with the id `cf`. Errors: `InvalidArgument` if the key is longer
    /// than [`KEY_LEN_MAX`] or the value longer than [`VALUE_LEN_MAX`], or the batch is full.
    #[inline]
    pub(crate) fn put_cf_id(&mut self, cf: u32, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(Tag::Value, Tag::ColumnFamilyValue, cf, key, Some(value))
    }

    /// Removes a key.
    #[inline]
    pub(crate) fn delete_cf_id(&mut self, cf: u32, key: &[u8]) -> Result<()> {
        self.add(Tag::Deletion, Tag::ColumnFamilyDeletion, cf, key, None)
    }

    /// Removes a key that was put exactly once since it was last removed.
    pub(crate) fn single_delete_cf_id(&mut self, cf: u32, key: &[u8]) -> Result<()> {
        let long = Tag::ColumnFamilySingleDeletion;
        self.add(Tag::SingleDeletion, long, cf, key, None)
    }

    /// Removes the keys from `begin` (inclusive) to `end` (exclusive).
    pub(crate) fn delete_range_cf_id(&mut self, cf: u32, begin: &[u8], end: &[u8]) -> Result<()> {
        check_len("key", end, KEY_LEN_MAX)?;
        let long = Tag::ColumnFamilyRangeDeletion;
        self.add(Tag::RangeDeletion, long, cf, begin, Some(end))
    }

    /// Gives the family's merge operator an operand for a key.
    pub(crate) fn merge_cf_id(&mut self, cf: u32, key: &[u8], operand: &[u8]) -> Result<()> {
        self.add(Tag::Merge, Tag::ColumnFamilyMerge, cf, key, Some(operand))
    }

    /// Sets a key to a wide-column entity.
    pub(crate) fn put_entity_cf_id(
        &mut self,
        cf: u32,
        key: &[u8],
        columns: &WideColumns,
    ) -> Result<()> {
        let long = Tag::ColumnFamilyWideColumnEntity;
        let entity = columns.encode()?;
        self.add(Tag::WideColumnEntity, long, cf, key, Some(&entity))
    }

    /// Adds bytes that are only logged. The record gets no sequence number. Errors: `InvalidArgument` if there are
    /// more than [`VALUE_LEN_MAX`] bytes.
    pub fn put_log_data(&mut self, blob: &[u8]) -> Result<()> {
        check_len("log data", blob, VALUE_LEN_MAX)?;
        self.data.push(Tag::LogData as u8);
        put_slice(&mut self.data, blob);
        Ok(())
    }

    /// Adds the records of another batch. The sequence stays this batch's.
    /// Errors: `InvalidArgument` if there would be more than `u32::MAX` records.
    pub fn append(&mut self, other: &Self) -> Result<()> {
        let count = self.count().checked_add(other.count()).ok_or_else(full)?;
        let records = other.data.get(HEADER_LEN..).unwrap_or_default();
        self.data.extend_from_slice(records);
        self.set_count(count);
        Ok(())
    }

    /// Takes the content out of the batch. The batch that stays has no memory and no header until the content is given
    /// back, or until [`WriteBatch::make_whole`] is called.
    pub(crate) fn lend(&mut self) -> Self {
        let hollow = Self {
            data: Vec::new(),
            save_points: Vec::new(),
        };
        std::mem::replace(self, hollow)
    }

    /// Makes this an empty batch if its content was lent and did not come back.
    pub(crate) fn make_whole(&mut self) {
        if self.data.is_empty() {
            self.clear();
        }
    }

    /// Removes all records and save points, and keeps the memory.
    pub fn clear(&mut self) {
        self.data.clear();
        self.data.resize(HEADER_LEN, 0);
        self.save_points.clear();
    }

    /// Sets a save point at the current content for [`WriteBatch::rollback_to_save_point`].
    pub fn set_save_point(&mut self) {
        self.save_points.push(SavePoint {
            len: self.data.len(),
            count: self.count(),
        });
    }

    /// Removes the records that were added since the last save point, and the save point.
    /// Errors: `NotFound` if there is no save point.
    pub fn rollback_to_save_point(&mut self) -> Result<()> {
        let point = self.save_points.pop().ok_or_else(no_save_point)?;
        self.data.truncate(point.len);
        self.set_count(point.count);
        Ok(())
    }

    /// Removes the last save point and keeps the content. Errors: `NotFound` if there is no save point.
    pub fn pop_save_point(&mut self) -> Result<()> {
        self.save_points.pop().map(|_| ()).ok_or_else(no_save_point)
    }

    #[inline]
    fn add(
        &mut self,
        short: Tag,
        long: Tag,
        cf: u32,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        check_len("key", key, KEY_LEN_MAX)?;
        check_len("value", value.unwrap_or_default(), VALUE_LEN_MAX)?;
        let count = self.count().checked_add(1).ok_or_else(full)?;
        // Tag, family and two lengths take at most 16 bytes.
        let size = 16 + key.len() + value.map_or(0, <[u8]>::len);
        self.data.reserve(size);
        if cf == 0 {
            self.data.push(short as u8);
        } else {
            self.data.push(long as u8);
            put_varint(&mut self.data, u64::from(cf));
        }
        put_slice(&mut self.data, key);
        if let Some(value) = value {
            put_slice(&mut self.data, value);
        }
        self.set_count(count);
        Ok(())
    }

    #[inline]
    fn set_count(&mut self, count: u32) {
        if let Some(field) = self.data.get_mut(8..HEADER_LEN) {
            field.copy_from_slice(&count.to_le_bytes());
        }
    }
}

#[inline]
fn check_len(what: &str, bytes: &[u8], max: usize) -> Result<()> {
    if bytes.len() <= max {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "{what} of {} bytes; the longest allowed has {max}",
        bytes.len()
    )))
}

#[cold]
fn full() -> Error {
    Error::invalid_argument(format!("a batch has at most {} records", u32::MAX))
}

#[cold]
fn no_save_point() -> Error {
    Error::not_found("the batch has no save point")
}

#[cfg(test)]
mod tests;
