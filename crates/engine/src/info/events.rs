//! Reports new table files: event lines in LOG, and calls of listeners.

use std::path::{Path, PathBuf};

use base::{Error, FileNumber, Result};
use table::Properties;

use crate::info::log::{Event, InfoLog};
use options::hooks::filter::TableCreationReason;
use options::hooks::listener::{Listeners, TableFileCreationBriefInfo, TableFileCreationInfo};

/// Reports the tables that one job writes.
#[derive(Clone)]
pub(crate) struct Teller<'a> {
    pub(crate) info_log: &'a InfoLog,
    pub(crate) listeners: &'a Listeners,
    pub(crate) db_dir: PathBuf,
    pub(crate) cf_name: &'a str,
    /// The job's number in LOG.
    pub(crate) job: u64,
    pub(crate) reason: TableCreationReason,
}

/// A completed table.
pub(crate) struct Created<'a> {
    pub(crate) number: FileNumber,
    pub(crate) file_size: u64,
    pub(crate) smallest_seqno: u64,
    pub(crate) largest_seqno: u64,
    pub(crate) properties: &'a Properties,
}

impl Teller<'_> {
    /// Reports that a table was begun.
    pub(crate) fn started(&self, path: &Path) {
        if self.listeners.is_empty() {
            return;
        }
        let brief = self.brief(path);
        let panics = self
            .listeners
            .tell(|l| l.on_table_file_creation_started(&brief));
        self.panicked(panics);
    }

    /// Reports that a table is complete and durable.
    pub(crate) fn created(&self, path: &Path, created: &Created<'_>) {
        self.info_log.event(
            &Event::new("table_file_creation")
                .text("cf_name", self.cf_name)
                .number("job", self.job)
                .number("file_number", created.number.0)
                .number("file_size", created.file_size)
                .text("file_checksum", "")
                .text("file_checksum_func_name", "Unknown")
                .number("smallest_seqno", created.smallest_seqno)
                .number("largest_seqno", created.largest_seqno)
                .object("table_properties", |e| members(e, created))
                .text("status", "OK"),
        );
        self.tell_created(path, created.file_size, created.properties, Ok(()));
    }

    /// Reports that a table could not be completed.
    pub(crate) fn failed(&self, path: &Path, number: FileNumber, error: Error) {
        self.info_log.event(
            &Event::new("table_file_creation")
                .text("cf_name", self.cf_name)
                .number("job", self.job)
                .number("file_number", number.0)
                .number("file_size", 0)
                .text("status", &error.to_string()),
        );
        self.tell_created(path, 0, &Properties::default(), Err(error));
    }

    fn tell_created(&self, path: &Path, size: u64, properties: &Properties, status: Result<()>) {
        if self.listeners.is_empty() {
            return;
        }
        let info = TableFileCreationInfo {
            brief: self.brief(path),
            file_size: size,
            table_properties: properties.clone(),
            status,
        };
        let panics = self.listeners.tell(|l| l.on_table_file_created(&info));
        self.panicked(panics);
    }

    fn brief(&self, path: &Path) -> TableFileCreationBriefInfo {
        TableFileCreationBriefInfo {
            db_name: self.db_dir.clone(),
            cf_name: self.cf_name.to_owned(),
            file_path: path.to_path_buf(),
            job_id: self.job,
            reason: self.reason,
        }
    }

    fn panicked(&self, listeners: usize) {
        if listeners > 0 {
            self.info_log
                .error(format_args!("{listeners} event listeners panicked"));
        }
    }
}

/// The properties of a table under the names that RocksDB uses in its LOG.
fn members(e: Event, created: &Created<'_>) -> Event {
    let p = created.properties;
    let mean = |n: u64| n.checked_div(p.num_entries).unwrap_or(0);
    e.number("data_size", p.data_size)
        .number("index_size", p.index_size)
        .number("index_partitions", p.index_partitions)
        .number("top_level_index_size", p.top_level_index_size)
        .number("index_key_is_user_key", u64::from(p.index_key_is_user_key))
        .number(
            "index_value_is_delta_encoded",
            u64::from(p.index_value_is_delta_encoded),
        )
        .number("filter_size", p.filter_size)
        .number("raw_key_size", p.raw_key_size)
        .number("raw_average_key_size", mean(p.raw_key_size))
        .number("raw_value_size", p.raw_value_size)
        .number("raw_average_value_size", mean(p.raw_value_size))
        .number("num_data_blocks", p.num_data_blocks)
        .number("num_entries", p.num_entries)
        .number("num_filter_entries", p.num_filter_entries)
        .number("num_deletions", p.num_deletions)
        .number("num_merge_operands", p.num_merge_operands)
        .number("num_range_deletions", p.num_range_deletions)
        .number("format_version", p.format_version)
        .number("fixed_key_len", p.fixed_key_len)
        .text("filter_policy", &p.filter_policy)
        .text("column_family_name", &p.column_family_name)
        .number("column_family_id", p.column_family_id)
        .text("comparator", &p.comparator)
        .number(
            "user_defined_timestamps_persisted",
            u64::from(p.user_defined_timestamps_persisted),
        )
        .number("key_largest_seqno", created.largest_seqno)
        .number("key_smallest_seqno", created.smallest_seqno)
        .text("merge_operator", &p.merge_operator)
        .text("prefix_extractor_name", &p.prefix_extractor_name)
        .text("property_collectors", &p.property_collectors)
        .text("compression", &p.compression)
        .text("compression_options", &p.compression_options)
        .number("creation_time", p.creation_time)
        .number("oldest_key_time", p.oldest_key_time)
        .number("newest_key_time", p.newest_key_time)
        .number("file_creation_time", p.file_creation_time)
        .number(
            "slow_compression_estimated_data_size",
            p.slow_compression_estimated_data_size,
        )
        .number(
            "fast_compression_estimated_data_size",
            p.fast_compression_estimated_data_size,
        )
        .text("db_id", &p.db_id)
        .text("db_session_id", &p.db_session_id)
        .number("orig_file_number", p.original_file_number)
        .text("seqno_to_time_mapping", "N/A")
}
