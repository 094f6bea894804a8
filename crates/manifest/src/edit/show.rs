//! Displays an edit in the format of RocksDB's `ldb manifest_dump --verbose`. With `{:#}`, keys are in hex,
//! as with its option `--hex`.

use std::fmt;

use base::key;

use super::{FileMetaData, VersionEdit};

impl fmt::Display for VersionEdit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = f.alternate();
        f.write_str("VersionEdit {")?;
        self.show_head(f)?;
        for c in &self.compact_cursors {
            write!(f, "\n  CompactCursor: {} {}", c.level, Key(&c.key, hex))?;
        }
        for (level, number) in &self.deleted_files {
            write!(f, "\n  DeleteFile: {level} {}", number.0)?;
        }
        for n in &self.new_files {
            write!(f, "\n  AddFile: {} {}", n.level, File(&n.meta, hex))?;
        }
        for b in &self.blob_file_additions {
            write!(
                f,
                "\n  BlobFileAddition: blob_file_number: {} total_blob_count: {} \
                 total_blob_bytes: {} checksum_method: {} checksum_value: {}",
                b.number.0,
                b.blob_count,
                b.blob_bytes,
                b.checksum_method,
                Hex(&b.checksum)
            )?;
        }
        for b in &self.blob_file_garbage {
            write!(
                f,
                "\n  BlobFileGarbage: blob_file_number: {} garbage_blob_count: {} \
                 garbage_blob_bytes: {}",
                b.number.0, b.blob_count, b.blob_bytes
            )?;
        }
        self.show_tail(f)?;
        f.write_str("\n}\n")
    }
}

impl VersionEdit {
    fn show_head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(id) = &self.db_id {
            write!(f, "\n  DB ID: {id}")?;
        }
        if let Some(name) = &self.comparator {
            write!(f, "\n  Comparator: {name}")?;
        }
        if let Some(persist) = self.persist_user_defined_timestamps {
            write!(f, "\n  PersistUserDefinedTimestamps: {persist}")?;
        }
        let numbers = [
            ("LogNumber", self.log_number),
            ("PrevLogNumber", self.prev_log_number),
            ("NextFileNumber", self.next_file_number),
            ("MaxColumnFamily", self.max_column_family.map(u64::from)),
            ("MinLogNumberToKeep", self.min_log_number_to_keep),
            ("LastSeq", self.last_sequence),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                write!(f, "\n  {name}: {number}")?;
            }
        }
        Ok(())
    }

    fn show_tail(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for w in &self.wal_additions {
            write!(f, "\n  WalAddition: log_number: {}", w.log_number)?;
            match w.synced_size {
                Some(n) => write!(f, " synced_size_in_bytes: {n}")?,
                None => f.write_str(" synced_size_in_bytes: unknown")?,
            }
        }
        if let Some(n) = self.wal_deletion {
            write!(f, "\n  WalDeletion: log_number: {n}")?;
        }
        write!(f, "\n  ColumnFamily: {}", self.column_family)?;
        if let Some(name) = &self.add_column_family {
            write!(f, "\n  ColumnFamilyAdd: {name}")?;
        }
        if self.drop_column_family {
            f.write_str("\n  ColumnFamilyDrop")?;
        }
        if let Some(n) = self.atomic_group_remaining {
            write!(f, "\n  AtomicGroup: {n} entries remains")?;
        }
        if let Some(ts) = &self.full_history_ts_low {
            write!(f, "\n  FullHistoryTsLow: {}", Hex(ts))?;
        }
        Ok(())
    }
}

/// A file, and whether its keys are hex.
struct File<'a>(&'a FileMetaData, bool);

impl fmt::Display for File<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = self.0;
        write!(
            f,
            "{} {} {} .. {}",
            m.number.0,
            m.file_size,
            Key(&m.smallest, self.1),
            Key(&m.largest, self.1)
        )?;
        if let Some(n) = m.oldest_blob_file_number {
            write!(f, " blob_file:{n}")?;
        }
        // RocksDB's spelling.
        write!(f, " oldest_ancester_time:{}", m.oldest_ancestor_time)?;
        write!(f, " file_creation_time:{}", m.file_creation_time)?;
        if let Some(n) = m.epoch_number {
            write!(f, " epoch_number:{n}")?;
        }
        let func = match m.file_checksum_func_name.as_str() {
            "" => "Unknown",
            name => name,
        };
        write!(
            f,
            " file_checksum:{} file_checksum_func_name: {func}",
            Hex(&m.file_checksum)
        )?;
        if m.temperature != 0 {
            write!(f, " temperature: {}", m.temperature)?;
        }
        if let Some(id) = &m.unique_id {
            let (low, high) = halves(id);
            write!(f, " unique_id(internal): {{{low},{high}}}")?;
            let [a, b] = public_id(low, high);
            write!(f, " public_unique_id: {}-{}", Hex(&a), Hex(&b))?;
        }
        if let Some(n) = m.tail_size {
            write!(f, " tail size: {n}")?;
        }
        if !m.user_defined_timestamps_persisted {
            f.write_str(" user_defined_timestamps_persisted: false")?;
        }
        Ok(())
    }
}

/// `'user key' seq:1, type:1`. The user key is in hex if the flag is set; otherwise bytes that are not
/// UTF-8 are replaced.
struct Key<'a>(&'a [u8], bool);

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((user, packed)) = key::split(self.0) else {
            return write!(f, "(bad){}", Hex(self.0));
        };
        if self.1 {
            write!(f, "'{}'", Hex(user))?;
        } else {
            write!(f, "'{}'", String::from_utf8_lossy(user))?;
        }
        write!(f, " seq:{}, type:{}", packed >> 8, packed & 0xff)
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02X}"))
    }
}

fn halves(id: &[u8; 16]) -> (u64, u64) {
    let id = u128::from_le_bytes(*id);
    (id as u64, (id >> 64) as u64)
}

/// The id that RocksDB shows for a file: XXH3's 128-bit hash of the internal id's 16 bytes, which
/// for that length is a bijection, moved so that zero stays zero. Constants: xxHash's primes and
/// words of its secret; the offsets from RocksDB `table/unique_id.cc`.
fn public_id(low: u64, high: u64) -> [[u8; 8]; 2] {
    const PRIME_1: u64 = 0x9e37_79b1_85eb_ca87;
    const PRIME_2: u64 = 0xc2b2_ae3d_27d4_eb4f;
    const PRIME_32_2: u64 = 0x85eb_ca77;
    const SECRET_LOW: u64 = 0x5997_3f00_3336_2349;
    const SECRET_HIGH: u64 = 0xc202_7976_92d6_3d58;
    let high = high.wrapping_add(17_391_078_804_906_429_400);
    let low = low.wrapping_add(6_417_269_962_128_484_497);
    let wide = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        (product as u64, (product >> 64) as u64)
    };
    let avalanche = |mut h: u64| {
        h ^= h >> 37;
        h = h.wrapping_mul(0x1656_6791_9e37_79f9);
        h ^ (h >> 32)
    };
    let (mut lo, mut hi) = wide(low ^ high ^ SECRET_LOW, PRIME_1);
    lo = lo.wrapping_add(15 << 54);
    let mixed = high ^ SECRET_HIGH;
    let low_half = mixed & 0xffff_ffff;
    hi = hi
        .wrapping_add(mixed)
        .wrapping_add(low_half.wrapping_mul(PRIME_32_2 - 1));
    lo ^= hi.swap_bytes();
    let (out_lo, out_hi) = wide(lo, PRIME_2);
    let out_hi = out_hi.wrapping_add(hi.wrapping_mul(PRIME_2));
    [
        avalanche(out_lo).to_le_bytes(),
        avalanche(out_hi).to_le_bytes(),
    ]
}
