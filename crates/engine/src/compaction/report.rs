//! Reports of compactions: event lines in LOG, tickers, and the family's statistics by level.

use std::sync::Arc;

use base::stats::{HistogramKind, Ticker};

use super::Pick;
use super::run::{Written, records};
use crate::catalog::family::Family;
use crate::catalog::job_stats::LevelStats;
use crate::hooks::listener::CompactionJobInfo;
use crate::info::log::Event;
use crate::picking::Kind;
use crate::shared::Shared;
use crate::version::Version;

/// A compaction that has begun.
pub(crate) struct Report {
    start_nanos: u64,
}

impl Report {
    /// Reports that the compaction begins.
    pub(crate) fn begin(db: &Shared, family: &Family, pick: &Pick) -> Self {
        let report = Self {
            start_nanos: db.env().clock.monotonic_nanos(),
        };
        if pick.kind != Kind::Merge {
            return report;
        }
        let info = job_info(family, pick, None);
        db.tell(|l| l.on_compaction_begin(&info));
        let mut event = Event::new("compaction_started")
            .text("cf_name", &family.name)
            .number("job", pick.id)
            .text("compaction_reason", pick.reason);
        for (level, files) in &pick.inputs {
            let numbers = files.iter().map(|f| f.number().0);
            event = event.numbers(&format!("files_L{level}"), numbers);
        }
        let oldest = db.snapshots.oldest().map(|s| s.0);
        let oldest = oldest.map_or(-1, |s| i64::try_from(s).unwrap_or(i64::MAX));
        db.info_log.event(
            &event
                .fraction("score", pick.score)
                .number("input_data_size", pick.input_bytes())
                .signed("oldest_snapshot_seqno", oldest),
        );
        report
    }

    /// Reports what the compaction did, once its result is part of the database.
    pub(crate) fn end(self, db: &Shared, family: &Arc<Family>, pick: &Pick, written: &Written) {
        let now = db.env().clock.monotonic_nanos();
        let micros = now.saturating_sub(self.start_nanos) / 1000;
        match pick.kind {
            Kind::Merge => {
                merged(db, family, pick, written, micros);
                let info = job_info(family, pick, Some(written));
                db.tell(|l| l.on_compaction_completed(&info));
            }
            Kind::Move => moved(db, family, pick),
            Kind::Delete => deleted(db, family, pick),
        }
    }
}

/// What listeners are told.
fn job_info(family: &Family, pick: &Pick, written: Option<&Written>) -> CompactionJobInfo {
    let files = || written.iter().flat_map(|w| &w.files);
    CompactionJobInfo {
        cf_id: family.id,
        cf_name: family.name.clone(),
        compaction_reason: pick.reason,
        base_input_level: pick.start_level(),
        output_level: pick.output_level,
        input_files: pick.files().map(|(_, f)| f.number()).collect(),
        output_files: files().map(|f| f.meta.number).collect(),
        total_input_bytes: pick.input_bytes(),
        total_output_bytes: files().map(|f| f.meta.file_size).sum(),
    }
}

fn merged(db: &Shared, family: &Family, pick: &Pick, written: &Written, micros: u64) {
    let version = Arc::clone(&family.view.load().version);
    let cpu_micros = written.cpu_nanos / 1000;
    let bytes: u64 = written.files.iter().map(|f| f.meta.file_size).sum();
    let read = pick.input_bytes();
    let records_in = records(pick);
    let on_output = |l: usize| l == pick.output_level;
    let size = |output: bool| {
        let files = pick.files().filter(|(l, _)| on_output(*l) == output);
        files.fold((0u64, 0u64), |(n, b), (_, f)| (n + 1, b + f.meta.file_size))
    };
    let ((files_upper, bytes_upper), (files_output, bytes_output)) = (size(false), size(true));
    family.compactions.add(
        pick.output_level,
        &LevelStats {
            count: 1,
            reasons: [(pick.reason, 1)].into(),
            micros,
            cpu_micros,
            bytes_read_upper: bytes_upper,
            bytes_read_output: bytes_output,
            bytes_written: bytes,
            bytes_uncompressed: uncompressed(&version, written),
            bytes_moved: 0,
            files_in_upper: files_upper,
            files_in_output: files_output,
            files_written: written.files.len() as u64,
            records_in,
            records_dropped: records_in.saturating_sub(written.records),
        },
    );
    count(db, pick.reason, read, bytes);
    let inputs = pick.files().count() as u64;
    db.record(HistogramKind::NumFilesInSingleCompaction, inputs);
    let parts = written.subcompactions as u64;
    db.record(HistogramKind::NumSubcompactionsScheduled, parts);
    if let Some(s) = &db.env().statistics {
        s.record_time(HistogramKind::CompactionTime, micros);
        s.record_time(HistogramKind::CompactionCpuTime, cpu_micros);
        s.add(Ticker::CompactionCpuTotalTime, cpu_micros);
    }
    finished_event(db, family, pick, written, (micros, cpu_micros));
}

/// Bytes of keys and values in the new tables before compression.
fn uncompressed(version: &Version, written: &Written) -> u64 {
    let ours = |number| written.files.iter().any(|n| n.meta.number == number);
    let files = version.files().filter(|(_, f)| ours(f.number()));
    files
        .map(|(_, f)| {
            let p = &f.properties;
            p.raw_key_size + p.raw_value_size
        })
        .sum()
}

fn finished_event(
    db: &Shared,
    family: &Family,
    pick: &Pick,
    written: &Written,
    (micros, cpu_micros): (u64, u64),
) {
    let bytes: u64 = written.files.iter().map(|f| f.meta.file_size).sum();
    let (codec, _) = pick.compression();
    let version = Arc::clone(&family.view.load().version);
    db.info_log.event(
        &Event::new("compaction_finished")
            .text("cf_name", &family.name)
            .number("job", pick.id)
            .number("compaction_time_micros", micros)
            .number("compaction_time_cpu_micros", cpu_micros)
            .number("output_level", pick.output_level as u64)
            .number("num_output_files", written.files.len() as u64)
            .number("total_output_size", bytes)
            .number("num_input_records", records(pick))
            .number("num_output_records", written.records)
            .number("num_subcompactions", written.subcompactions as u64)
            .text("output_compression", codec.property_name())
            .number("num_single_delete_mismatches", written.single_deletions.0)
            .number("num_single_delete_fallthrough", written.single_deletions.1)
            .numbers("lsm_state", lsm_state(&version)),
    );
}

fn moved(db: &Shared, family: &Family, pick: &Pick) {
    let bytes = pick.input_bytes();
    let files = pick.files().count() as u64;
    family.compactions.add(
        pick.output_level,
        &LevelStats {
            bytes_moved: bytes,
            ..LevelStats::default()
        },
    );
    db.info_log.event(
        &Event::new("trivial_move")
            .text("cf_name", &family.name)
            .number("job", pick.id)
            .text("compaction_reason", pick.reason)
            .number("destination_level", pick.output_level as u64)
            .number("files", files)
            .number("total_files_size", bytes),
    );
}

fn deleted(db: &Shared, family: &Family, pick: &Pick) {
    let ticker = match pick.reason {
        "FIFOTtl" => Ticker::FifoTtlCompactions,
        _ => Ticker::FifoMaxSizeCompactions,
    };
    db.count(ticker, 1);
    for (_, f) in pick.files() {
        db.info_log.info(format_args!(
            "[{}] [JOB {}] {}: table file {} of {} bytes is deleted",
            family.name,
            pick.id,
            pick.reason,
            f.number(),
            f.meta.file_size
        ));
    }
}

fn count(db: &Shared, reason: &str, read: u64, written: u64) {
    db.count(Ticker::CompactReadBytes, read);
    db.count(Ticker::CompactWriteBytes, written);
    let own = match reason {
        "FilesMarkedForCompaction" => (
            Ticker::CompactReadBytesMarked,
            Ticker::CompactWriteBytesMarked,
        ),
        "PeriodicCompaction" => (
            Ticker::CompactReadBytesPeriodic,
            Ticker::CompactWriteBytesPeriodic,
        ),
        "Ttl" => (Ticker::CompactReadBytesTtl, Ticker::CompactWriteBytesTtl),
        _ => return,
    };
    db.count(own.0, read);
    db.count(own.1, written);
}

/// The number of files on each level.
fn lsm_state(version: &Version) -> impl Iterator<Item = u64> + '_ {
    (0..version.num_levels()).map(|l| version.level(l).len() as u64)
}
