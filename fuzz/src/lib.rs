//! What the fuzz targets do with their bytes: each hands them to one decoder, as a file or a user could,
//! and looks for more than a panic where there is something to look for: what is decoded can be encoded,
//! and is decoded to the same again.
//!
//! The last byte of an input is no part of the content. It says how the content is read: in which mode,
//! and whether checksums are mended before. Without mending a decoder would refuse nearly every input at
//! its first checksum; with it, every input gets behind them.

mod database;
mod devices;
#[expect(dead_code, reason = "files that tests of crates/sim use too")]
#[path = "../../crates/sim/src/dirs.rs"]
mod dirs;
#[expect(dead_code, reason = "the same")]
#[path = "../../crates/sim/src/frozen.rs"]
mod frozen;
mod mend;
mod positions;
mod tracks;
mod volumes;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use base::coding::Decoder;
use base::{Comparator, SequenceNumber, ValueType, key};
use io::{File, FileSystem, OpenHow};
use ironstone::batch::{Record, Records};
use base::values::entity::WideColumns;
use ironstone::options::codec;
use manifest::edit::VersionEdit;
use ironstone::{BackupEngine, BackupEngineOptions, WriteBatch};
use log::RecoveryMode;
use table::block::{Block, Cursor, Keys, Target};
use table::filter::{Filter, may_match_in};
use table::{
    BlockCache, BlockHandle, CompressionType, Footer, InternalIterator, Metadata, Pinning, Reader,
    ReaderOptions,
};

pub use database::{database, seeds as database_seeds};
pub use devices::{seeds as device_seeds, tracks_mqtt, tracks_osmand, tracks_owntracks};
use frozen::{DIR, Frozen};
pub use positions::{
    seeds as position_seeds, tracks_csv, tracks_geojson, tracks_gpx, tracks_ndjson,
};
pub use self::tracks::{seeds as track_seeds, tracks_http, tracks_rows};
pub use volumes::{nbd, seeds as volume_seeds, store, wire};

/// The number of the log that the bytes of a log are.
const LOG: u64 = 7;

/// Content, and how it is read.
fn split(data: &[u8]) -> Option<(u8, &[u8])> {
    data.split_last().map(|(how, content)| (*how, content))
}

fn in_memory(bytes: &[u8]) -> Arc<dyn File> {
    let path = Path::new(DIR).join("file");
    let fs = Frozen::default().with("file", bytes);
    fs.open(&path, OpenHow::READ).expect("it is there")
}

/// A log of writes: the reader in every mode, with fences and without; then all that looks at logs
/// besides.
pub fn log(data: &[u8]) {
    let Some((how, content)) = split(data) else {
        return;
    };
    let mut bytes = content.to_vec();
    if how & 8 != 0 {
        mend::log(&mut bytes, Some(LOG as u32));
    }
    let file = in_memory(&bytes);
    let mode = match how & 3 {
        0 => RecoveryMode::TolerateCorruptedTailRecords,
        1 => RecoveryMode::AbsoluteConsistency,
        2 => RecoveryMode::PointInTimeRecovery,
        _ => RecoveryMode::SkipAnyCorruptedRecords,
    };
    let fences = how & 4 != 0;
    let options = log::ReaderOptions { mode, fences };
    let mut reader = log::Reader::new(Arc::clone(&file), LOG, options);
    let mut record = Vec::new();
    while let Ok(true) = reader.read(&mut record) {
        batch_of(&record);
    }
    let _ = (reader.end().offset(), reader.damage_totals());
    for found in log::PhysicalRecords::new(Arc::clone(&file), LOG) {
        if found.is_err() {
            break;
        }
    }
    for known in [None, Some(1)] {
        if let Ok(trust) = log::note::trust(&file, LOG, known) {
            let _ = log::fence::strongest(&file, LOG, 0, trust);
        }
    }
    let _ = log::trim::find(&file, LOG);
    let _ = log::salvage::scan(&file, LOG, &mut |_| Ok(()));
    let secrets = log::Secrets::default().with(LOG, u64::from(how));
    if let Ok(chain) = log::Chain::read([(LOG, file)], &secrets) {
        let _ = (chain.stages(0), chain.proof(LOG));
    }
}

fn batch_of(bytes: &[u8]) {
    if let Ok(mut records) = Records::new(bytes) {
        while let Some(Ok(_)) = records.next() {
            assert!(records.offset() <= bytes.len());
        }
    }
}

/// A batch, as it comes from a log or a user.
pub fn batch(data: &[u8]) {
    batch_of(data);
    if let Ok(batch) = WriteBatch::from_data(data.to_vec()) {
        assert_eq!(batch.data(), data);
        let counted = |r: &ironstone::Result<Record<'_>>| r.as_ref().is_ok_and(Record::is_counted);
        let count = batch.records().filter(counted).count();
        assert_eq!(count as u64, u64::from(batch.count()));
        let mut twice = WriteBatch::new();
        twice.append(&batch).expect("there is room");
        assert_eq!(twice.count(), batch.count());
    }
}

/// A record of the MANIFEST.
pub fn edit(data: &[u8]) {
    if let Ok(edit) = VersionEdit::decode(data) {
        let _ = format!("{edit:?}");
        if let Ok(bytes) = edit.encode() {
            let again = VersionEdit::decode(&bytes).expect("what was written is read");
            assert_eq!(again.encode().expect("it was written before"), bytes);
        }
    }
}

/// A MANIFEST as a file.
pub fn manifest(data: &[u8]) {
    let mut bytes = data.to_vec();
    mend::log(&mut bytes, None);
    let mut reader = log::Reader::manifest(in_memory(&bytes));
    let mut record = Vec::new();
    while let Ok(true) = reader.read(&mut record) {
        edit(&record);
    }
}

/// An OPTIONS file, or options in one line. One reading for each input, as each takes long.
pub fn options(data: &[u8]) {
    let Some((how, content)) = split(data) else {
        return;
    };
    let text = String::from_utf8_lossy(content);
    let unsupported = match how & 3 {
        0 => {
            let _ = codec::members(&text);
            assert_eq!(codec::unescape(&codec::escape(&text)), text);
            let _ = ironstone::Options::default().with_text(&text);
            return;
        }
        1 => codec::Unsupported::Refuse,
        _ => codec::Unsupported::Warn,
    };
    let Ok(parsed) = codec::parse_with(&text, unsupported) else {
        return;
    };
    let written = options_text(&parsed);
    let again = codec::parse(&written).unwrap_or_else(|e| panic!("{e}\n{written}"));
    assert_eq!(options_text(&again), written);
}

fn options_text(parsed: &codec::ParsedOptions) -> String {
    let families = parsed.families.iter().map(|f| (&*f.name, &f.options));
    let families: Vec<_> = families.collect();
    codec::to_text(&parsed.db, &families)
}

/// The end of a table, and handles of blocks.
pub fn footer(data: &[u8]) {
    let Some((how, content)) = split(data) else {
        return;
    };
    let size = content.len() as u64 + u64::from(how) * 1000;
    if let Ok(footer) = Footer::decode(content, size) {
        let at = size - table::footer::LEN as u64;
        let again = Footer::decode(&footer.encode(at), size).expect("what was written is read");
        assert_eq!(format!("{again:?}"), format!("{footer:?}"));
    }
    let _ = BlockHandle::decode(&mut Decoder::new(content));
}

/// A decompressed block: from both ends, and searched.
pub fn block(data: &[u8]) {
    let Some((how, content)) = split(data) else {
        return;
    };
    let comparator = Comparator::bytewise();
    let keys = match how & 3 {
        0 => Keys::Plain,
        1 => Keys::Ingested(77),
        _ => Keys::Internal,
    };
    let block = if how & 4 != 0 {
        Block::searchable(content, &comparator)
    } else {
        Block::new(content)
    };
    let Ok(block) = block else { return };
    let mut cursor = Cursor::new(keys);
    let mut at = cursor.seek_to_first(&block);
    while let Ok(true) = at {
        let _ = (cursor.key().len(), cursor.value(&block).len());
        at = cursor.next(&block);
    }
    let mut at = cursor.seek_to_last(&block);
    for _ in 0..1000 {
        if !matches!(at, Ok(true)) {
            break;
        }
        at = cursor.prev(&block);
    }
    let len = content.len().min(usize::from(how));
    let seek = key::encode(&content[..len], SequenceNumber(9), ValueType::FOR_SEEK);
    if let Ok(target) = Target::new(&seek)
        && let Ok(true) = cursor.seek(&block, &comparator, &target)
    {
        let _ = (cursor.key().len(), cursor.value(&block).len());
    }
}

/// A filter block of any kind.
pub fn filter(data: &[u8]) {
    let filter = Filter::new(data);
    let _ = (filter.is_useless(), filter.memory_usage());
    for n in 0..64u64 {
        let hash = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let _ = (
            filter.may_match(&hash.to_le_bytes()),
            filter.may_match_hash(hash),
        );
        let key = hash.to_le_bytes();
        assert_eq!(may_match_in(data, &key), filter.may_match(&key));
    }
}

/// A whole table: opened, read in both directions, searched, verified.
pub fn table(data: &[u8]) {
    let Some((how, content)) = split(data) else {
        return;
    };
    let mut bytes = content.to_vec();
    if how & 1 != 0 {
        mend::table(&mut bytes);
    }
    let options = ReaderOptions {
        metadata_bytes_max: 32 << 20,
        block_cache: (how & 2 != 0).then(|| Arc::new(BlockCache::new(usize::from(how >> 6) << 12))),
        metadata: match how & 12 {
            0 => Metadata::InMemory,
            4 => Metadata::Charged,
            _ => Metadata::Cached(Pinning {
                top_level: how & 4 != 0,
                partitions: how & 16 != 0,
                unpartitioned: how & 32 != 0,
                high_priority: false,
            }),
        },
        ..ReaderOptions::default()
    };
    let Ok(reader) = Reader::open(in_memory(&bytes), bytes.len() as u64, options) else {
        return;
    };
    let reader = Arc::new(reader);
    let _ = (reader.properties().rows(), reader.anchors(10));
    let _ = reader.range_tombstones();
    let read = table::ReadOptions::default();
    let mut it = reader.iter(read);
    let mut keys: Vec<Vec<u8>> = Vec::new();
    it.seek_to_first();
    while it.valid() && keys.len() < 2000 {
        let _ = it.value().len();
        keys.push(it.key().to_vec());
        it.next();
    }
    it.seek_to_last();
    for _ in 0..2000 {
        if !it.valid() {
            break;
        }
        let _ = it.value().len();
        it.prev();
    }
    for key in keys.iter().step_by(keys.len() / 10 + 1) {
        it.seek(key);
        it.seek_for_prev(key);
        let _ = reader.get(&read, key, &mut |_, value| value.bytes().is_empty());
        let _ = reader.approximate_offset_of(key);
        let mut visit = |_: &[u8], value: table::Value<'_>| value.bytes().is_empty();
        let mut missing = reader.begin_get(&read, key, &mut visit);
        while let Ok(Some(lacks)) = missing {
            let Ok(block) = reader.read_missing(&lacks, &read) else {
                break;
            };
            missing = reader.resume_get(&read, key, (lacks, block), &mut visit);
        }
    }
    let _ = (reader.data_blocks(), reader.prefix_may_match(b"key"));
    let _ = reader.verify_blocks(&mut |_| Ok(()));
}

/// A compressed block, of each kind of compression, with a dictionary and without.
pub fn compress(data: &[u8]) {
    let Some((how, content)) = split(data) else {
        return;
    };
    let Some(kind) = CompressionType::from_u8(how & 7) else {
        return;
    };
    let version = 2 + u32::from(how >> 6);
    let (dict, body) = match how & 8 {
        0 => (&[][..], content),
        _ => content.split_at(content.len() / 4),
    };
    let _ = table::compress::decompress(kind, body, version, dict);
}

/// A wide-column entity.
pub fn entity(data: &[u8]) {
    if let Ok(columns) = WideColumns::decode(data) {
        let mut batch = WriteBatch::new();
        batch
            .put_entity("", &columns)
            .expect("names and values are short");
        let Some(Ok(Record::PutEntity { entity, .. })) = batch.records().next() else {
            panic!("a batch of one entity");
        };
        let again = WideColumns::decode(entity).expect("what was written is read");
        assert!(again.iter().eq(columns.iter()));
    }
}

/// Names of files; CURRENT and IDENTITY.
pub fn names(data: &[u8]) {
    let _ = files::parse_name(OsStr::from_bytes(data));
    let fs = Frozen::default()
        .with("CURRENT", data)
        .with("IDENTITY", data);
    if let Ok(number) = files::read_current(&fs, Path::new(DIR)) {
        let name = format!("MANIFEST-{number}\n");
        assert!(data.starts_with(b"MANIFEST-") && name.len() <= data.len().max(16));
    }
    let _ = files::read_identity(&fs, Path::new(DIR));
    let _ = log::Note::of(data);
    let _ = (log::Fence::decode(data), log::Fence::of(data));
}

/// The text that names a merge operator; what each does with operands that are not its own.
pub fn merge(data: &[u8]) {
    let Some((how, content)) = split(data) else {
        return;
    };
    let _ = base::merge::parse(&String::from_utf8_lossy(content));
    let names = [
        "stringappend",
        "stringappendtest",
        "uint64add",
        "put",
        "max",
        "bytesxor",
    ];
    let name = names[usize::from(how) % names.len()];
    let Ok(Some(operator)) = base::merge::parse(name) else {
        panic!("{name} is built in");
    };
    let mut parts = content.split(|&b| b == 0xff);
    let key = parts.next().unwrap_or_default();
    let existing = parts.next().filter(|_| how & 128 != 0);
    let operands: Vec<&[u8]> = parts.collect();
    if !operands.is_empty() {
        let _ = base::merge::full(&*operator, key, existing, &operands);
        let _ = base::merge::partial(&*operator, key, &operands);
    }
}

/// The list of a backup's files.
pub fn backup(data: &[u8]) {
    static HOME: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
        let memory = Path::new("/dev/shm");
        let made = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        };
        let made = made.expect("a place for temporary files");
        std::fs::create_dir(made.path().join("meta")).expect("it is empty");
        made
    });
    std::fs::write(HOME.path().join("meta/1"), data).expect("it is ours");
    let options = BackupEngineOptions {
        sync: false,
        ..BackupEngineOptions::new(HOME.path())
    };
    let engine = BackupEngine::open(&options, &ironstone::Env::default()).expect("it is there");
    let _ = (engine.get_backup_info(), engine.get_corrupted_backups());
    let _ = engine.verify_backup(1, true);
}
