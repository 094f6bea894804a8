//! Reports of compactions: event lines in LOG, tickers, and the family's statistics by level.

use std::sync::Arc;

use base::stats::{HistogramKind, Ticker};

use super::Pick;
use super::run::{Written, records};
use crate::catalog::family::Family;
use crate::catalog::job_stats::LevelStats;
use crate::info::Info;
use crate::info::log::Event;
use crate::shared::snapshot::SnapshotList;
use manifest::edit::NewFile;
use manifest::{TableFile, Version};
use options::InfoLogLevel;
use options::hooks::listener::CompactionJobInfo;
use picking::candidates::level_summary;
use picking::{Kind, MANUAL};

/// A compaction that has begun.
pub(crate) struct Report {
    start_nanos: u64,
}

impl Report {
    /// Reports that the compaction begins.
    pub(crate) fn begin(
        info: &Info,
        snapshots: &SnapshotList,
        family: &Family,
        pick: &Pick,
    ) -> Self {
        let report = Self {
            start_nanos: info.clock.monotonic_nanos(),
        };
        if pick.kind != Kind::Merge {
            return report;
        }
        begun_lines(info, family, pick);
        let told = job_info(family, pick, None);
        info.tell(|l| l.on_compaction_begin(&told));
        let mut event = Event::new("compaction_started")
            .text("cf_name", &family.name)
            .number("job", pick.id)
            .text("compaction_reason", pick.reason);
        for (level, files) in &pick.inputs {
            let numbers = files.iter().map(|f| f.number().0);
            event = event.numbers(&format!("files_L{level}"), numbers);
        }
        let oldest = snapshots.oldest().map(|s| s.0);
        let oldest = oldest.map_or(-1, |s| i64::try_from(s).unwrap_or(i64::MAX));
        info.log.event(
            &event
                .fraction("score", pick.score)
                .number("input_data_size", pick.input_bytes())
                .signed("oldest_snapshot_seqno", oldest),
        );
        report
    }

    /// Reports the result of the compaction. `installed`: the result is part of the database; it is discarded if the
    /// family was dropped.
    pub(crate) fn end(
        self,
        info: &Info,
        family: &Arc<Family>,
        pick: &Pick,
        written: &Written,
        installed: bool,
    ) {
        let now = info.clock.monotonic_nanos();
        let micros = now.saturating_sub(self.start_nanos) / 1000;
        match pick.kind {
            Kind::Merge => {
                merged(info, family, pick, written, micros);
                if installed {
                    finished_lines(info, family, pick, written, micros);
                }
                let told = job_info(family, pick, Some(written));
                info.tell(|l| l.on_compaction_completed(&told));
            }
            Kind::Move => {
                moved(info, family, pick);
                if installed {
                    moved_lines(info, family, pick);
                }
            }
            Kind::Delete => deleted(info, family, pick),
        }
    }
}

/// The description of the compaction for listeners.
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

fn merged(info: &Info, family: &Family, pick: &Pick, written: &Written, micros: u64) {
    let version = Arc::clone(&family.view.load().version);
    let cpu_micros = written.cpu_nanos / 1000;
    let bytes: u64 = written.files.iter().map(|f| f.meta.file_size).sum();
    let read = pick.input_bytes();
    let records_in = records(pick);
    let ((files_upper, bytes_upper), (files_output, bytes_output)) = input_sizes(pick);
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
    count(info, pick.reason, read, bytes);
    let inputs = pick.files().count() as u64;
    info.record(HistogramKind::NumFilesInSingleCompaction, inputs);
    let parts = written.subcompactions as u64;
    info.record(HistogramKind::NumSubcompactionsScheduled, parts);
    if let Some(s) = &info.statistics {
        s.record_time(HistogramKind::CompactionTime, micros);
        s.record_time(HistogramKind::CompactionCpuTime, cpu_micros);
        s.add(Ticker::CompactionCpuTotalTime, cpu_micros);
    }
    finished_event(info, family, pick, written, (micros, cpu_micros));
}

/// The inputs by number of files and level, and where they go: `4@0 + 2@1 files to L1`.
fn route(pick: &Pick) -> String {
    let inputs = pick.inputs.iter();
    let inputs: Vec<String> = inputs
        .map(|(level, files)| format!("{}@{level}", files.len()))
        .collect();
    format!("{} files to L{}", inputs.join(" + "), pick.output_level)
}

/// Writes the lines about the begin of a merge to LOG, in RocksDB's words.
fn begun_lines(info: &Info, family: &Family, pick: &Pick) {
    let name = &family.name;
    // RocksDB has no score for a manual compaction.
    let score = if pick.reason == MANUAL {
        -1.0
    } else {
        pick.score
    };
    info.log.info(format_args!(
        "[{name}] [JOB {}] Compacting {}, score {score:.2}",
        pick.id,
        route(pick)
    ));
    if !info.log.is_on(InfoLogLevel::Info) {
        return;
    }
    let mut inputs = String::new();
    for (i, (_, files)) in pick.inputs.iter().enumerate() {
        inputs += if i == 0 { "[" } else { ", [" };
        for (at, f) in files.iter().enumerate() {
            if inputs.len() > SUMMARY_MAX {
                inputs += " …";
                break;
            }
            let space = if at == 0 { "" } else { " " };
            inputs += &format!("{space}{}({})", f.number(), human(f.meta.file_size));
        }
        inputs += "]";
    }
    info.log.info(format_args!(
        "[{name}]: Compaction start summary: Base version {} Base level {}, inputs: {inputs}",
        family.view.versions(),
        pick.start_level(),
    ));
}

/// After this many bytes, a summary of inputs names no more files, as in RocksDB.
const SUMMARY_MAX: usize = 2345;

/// A size in the format of RocksDB's LOG: in the largest unit that gives at least 10.
fn human(bytes: u64) -> String {
    for (shift, unit) in [(40, "TB"), (30, "GB"), (20, "MB"), (10, "KB")] {
        if bytes >= 10 << shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

/// Writes the lines about the result of a merge to LOG, in RocksDB's words. The result is part of the database.
fn finished_lines(info: &Info, family: &Family, pick: &Pick, written: &Written, micros: u64) {
    if !info.log.is_on(InfoLogLevel::Info) {
        return;
    }
    let (name, id) = (&family.name, pick.id);
    let version = Arc::clone(&family.view.load().version);
    for (_, f) in version.files().filter(|(_, f)| is_new(written, f)) {
        info.log.info(format_args!(
            "[{name}] [JOB {id}] Generated table #{}: {} keys, {} bytes, temperature: kUnknown",
            f.number(),
            f.properties.num_entries,
            f.meta.file_size
        ));
    }
    let out: u64 = written.files.iter().map(|f| f.meta.file_size).sum();
    info.log.info(format_args!(
        "[{name}] [JOB {id}] Compacted {} => {out} bytes",
        route(pick)
    ));
    let ((files_in, bytes_in), (files_at_output, bytes_at_output)) = input_sizes(pick);
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let ratio = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
    let a_second = |bytes: u64| ratio(bytes, micros);
    let read = bytes_in + bytes_at_output;
    let records = records(pick);
    let (codec, _) = pick.compression();
    let summary = level_summary(&version, &pick.options.cf, info.log.now_seconds());
    info.log.info(format_args!(
        "[{name}] compacted to: {summary}, MB/sec: {:.1} rd, {:.1} wr, level {}, \
         files in({files_in}, {files_at_output}) filtered(0, 0) out({} +0 blob) \
         MB in({:.1}, {:.1} +0.0 blob) filtered(0.0, 0.0) out({:.1} +0.0 blob), \
         read-write-amplify({:.1}) write-amplify({:.1}) OK, \
         records in: {records}, records dropped: {} output_compression: {}",
        a_second(read),
        a_second(out),
        pick.output_level,
        written.files.len(),
        mib(bytes_in),
        mib(bytes_at_output),
        mib(out),
        ratio(read + out, bytes_in),
        ratio(out, bytes_in),
        records.saturating_sub(written.records),
        codec.property_name(),
    ));
}

/// Whether a table was written by this compaction.
fn is_new(written: &Written, file: &TableFile) -> bool {
    let new = |n: &NewFile| n.meta.number == file.number();
    written.files.iter().any(new)
}

/// The numbers of input files and bytes from levels above the output level, and from the output level.
fn input_sizes(pick: &Pick) -> ((u64, u64), (u64, u64)) {
    let size = |output: bool| {
        let files = pick.files();
        let files = files.filter(|(level, _)| (*level == pick.output_level) == output);
        files.fold((0, 0), |(n, b), (_, f)| (n + 1, b + f.meta.file_size))
    };
    (size(false), size(true))
}

/// The bytes of keys and values in the new tables, before compression.
fn uncompressed(version: &Version, written: &Written) -> u64 {
    let files = version.files().filter(|(_, f)| is_new(written, f));
    files
        .map(|(_, f)| {
            let p = &f.properties;
            p.raw_key_size + p.raw_value_size
        })
        .sum()
}

fn finished_event(
    info: &Info,
    family: &Family,
    pick: &Pick,
    written: &Written,
    (micros, cpu_micros): (u64, u64),
) {
    let bytes: u64 = written.files.iter().map(|f| f.meta.file_size).sum();
    let (codec, _) = pick.compression();
    let version = Arc::clone(&family.view.load().version);
    info.log.event(
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

fn moved(info: &Info, family: &Family, pick: &Pick) {
    let bytes = pick.input_bytes();
    let files = pick.files().count() as u64;
    family.compactions.add(
        pick.output_level,
        &LevelStats {
            bytes_moved: bytes,
            ..LevelStats::default()
        },
    );
    info.log.event(
        &Event::new("trivial_move")
            .text("cf_name", &family.name)
            .number("job", pick.id)
            .text("compaction_reason", pick.reason)
            .number("destination_level", pick.output_level as u64)
            .number("files", files)
            .number("total_files_size", bytes),
    );
}

/// Writes the lines about a trivial move to LOG, in RocksDB's words.
fn moved_lines(info: &Info, family: &Family, pick: &Pick) {
    if !info.log.is_on(InfoLogLevel::Info) {
        return;
    }
    let (files, bytes) = (pick.files().count(), pick.input_bytes());
    let version = Arc::clone(&family.view.load().version);
    let summary = level_summary(&version, &pick.options.cf, info.log.now_seconds());
    let (name, level) = (&family.name, pick.output_level);
    info.log.info(format_args!(
        "[{name}] Moving {files} files to level-{level}"
    ));
    for (_, f) in pick.files() {
        info.log.info(format_args!(
            "[{name}] Moved #{} to level-{level} {} bytes",
            f.number(),
            f.meta.file_size
        ));
    }
    info.log.info(format_args!(
        "[{name}] Moved #{files} files to level-{level} {bytes} bytes OK: {summary}"
    ));
}

fn deleted(info: &Info, family: &Family, pick: &Pick) {
    let ticker = match pick.reason {
        "FIFOTtl" => Ticker::FifoTtlCompactions,
        _ => Ticker::FifoMaxSizeCompactions,
    };
    info.count(ticker, 1);
    for (_, f) in pick.files() {
        info.log.info(format_args!(
            "[{}] [JOB {}] {}: table file {} of {} bytes is deleted",
            family.name,
            pick.id,
            pick.reason,
            f.number(),
            f.meta.file_size
        ));
    }
}

fn count(info: &Info, reason: &str, read: u64, written: u64) {
    info.count(Ticker::CompactReadBytes, read);
    info.count(Ticker::CompactWriteBytes, written);
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
    info.count(own.0, read);
    info.count(own.1, written);
}

/// The number of files on each level.
fn lsm_state(version: &Version) -> impl Iterator<Item = u64> + '_ {
    (0..version.num_levels()).map(|l| version.level(l).len() as u64)
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn sizes_have_at_least_ten_of_their_unit() {
        for (bytes, text) in [
            (0, "0B"),
            (10_239, "10239B"),
            (10_240, "10KB"),
            ((10 << 20) - 1, "10239KB"),
            (12 << 20, "12MB"),
            (10 << 30, "10GB"),
            (u64::MAX, "16777215TB"),
        ] {
            assert_eq!(human(bytes), text);
        }
    }
}
