//! Writes all options to LOG in RocksDB's format: `Options.<name>: <value>`, members of a struct as
//! `Options.<name>.<member>`, and the table options as one text of several lines.

use std::fmt::Display;

use base::options::{OptionFlag, OptionTable};

use crate::info::log::InfoLog;
use options::{ColumnFamilyOptions, DbOptions, Env, Kept, codec};

/// The most families whose options are written; as in RocksDB, further ones are left out.
const FAMILIES_MAX: usize = 10;

/// Writes the options of the whole database.
pub(crate) fn database(log: &InfoLog, options: &DbOptions, env: &Env) {
    let given = |is: bool| if is { "given" } else { "(nil)" };
    let statistics = env.statistics.as_ref();
    line(log, "env", "default");
    line(log, "fs", "default");
    line(log, "info_log", "LOG");
    line(log, "statistics", given(statistics.is_some()));
    if let Some(s) = statistics {
        line(log, "statistics stats level", s.level() as u8);
    }
    line(
        log,
        "write_buffer_manager",
        given(env.write_buffer_manager.is_some()),
    );
    line(log, "rate_limiter", given(env.rate_limiter.is_some()));
    line(log, "sst_file_manager.rate_bytes_per_sec", 0);
    let rows = env.row_cache.as_ref();
    line(log, "row_cache", rows.map_or("None", |_| "given"));
    if let Some(rows) = rows {
        line(log, "row_cache capacity", rows.capacity());
    }
    for (name, dir) in [
        ("wal_dir", &options.wal_dir),
        ("db_log_dir", &options.db_log_dir),
    ] {
        if dir.is_empty() {
            line(log, name, "");
        }
    }
    let text = codec::to_text(options, &[]);
    for (section, name, value) in entries(&text) {
        if section.starts_with("DBOptions") {
            option(log, name, value);
        }
    }
    // Ironstone's own options, which are not in OPTIONS files.
    let own = DbOptions::infos().iter();
    for info in own.filter(|i| i.has(OptionFlag::Ironstone)) {
        if let Some(value) = options.get(info.name) {
            option(log, info.name, &value);
        }
    }
}

/// Writes the options of a family. `nth` is its index among the open families.
pub(crate) fn family(log: &InfoLog, nth: usize, name: &str, options: &ColumnFamilyOptions) {
    log.header(format_args!(
        "--------------- Options for column family [{name}]:"
    ));
    if nth >= FAMILIES_MAX {
        log.header(format_args!("\t(skipping printing options)"));
        return;
    }
    let text = codec::to_text(&DbOptions::default(), &[(name, options)]);
    let mut table = String::new();
    for (section, name, value) in entries(&text) {
        if section.starts_with("CFOptions") {
            option(log, name, value);
        } else if section.starts_with("TableOptions") {
            table += &format!("  {name}: {}\n", plain(value));
        }
    }
    line(log, "table_properties_collectors", "");
    log.header(format_args!(
        "           table_factory options: {}",
        table.trim_end()
    ));
}

/// Logs which values of a family's options were replaced, and which have no effect.
pub(crate) fn replaced(
    log: &InfoLog,
    family: &str,
    replaced: &[String],
    options: &ColumnFamilyOptions,
) {
    for line in replaced {
        log.warn(format_args!("[{family}] {line}"));
    }
    kept(log, &format!("column family [{family}]"), &options.kept);
}

/// Logs which settings of an OPTIONS file have no effect here.
pub(crate) fn kept(log: &InfoLog, of: &str, kept: &Kept) {
    for (name, value) in kept.told() {
        log.warn(format_args!(
            "option {name} = {value} of {of} has no effect here; OPTIONS files keep it"
        ));
    }
    for section in kept.sections() {
        log.warn(format_args!(
            "section {section} is not known; OPTIONS files keep it"
        ));
    }
}

/// Section, name and value of each setting in the text of an OPTIONS file.
fn entries(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let mut section = "";
    text.lines().filter_map(move |line| {
        if let Some(title) = line.strip_prefix('[') {
            section = title;
            return None;
        }
        let (name, value) = line.strip_prefix("  ")?.split_once('=')?;
        Some((section, name, value))
    })
}

/// A value in the form used in LOG: booleans are 0 and 1.
fn plain(value: &str) -> &str {
    match value {
        "true" => "1",
        "false" => "0",
        other => other,
    }
}

/// The name of a codec in the form used in LOG.
fn codec_name(value: &str) -> &str {
    match value.strip_prefix('k') {
        Some("NoCompression") => "NoCompression",
        Some("DisableCompressionOption") => "Disabled",
        Some(other) => other.strip_suffix("Compression").unwrap_or(other),
        None => value,
    }
}

fn option(log: &InfoLog, name: &str, value: &str) {
    if name == "max_bytes_for_level_multiplier_additional" {
        for (i, each) in value.split(':').enumerate() {
            line(
                log,
                &format!("max_bytes_for_level_multiplier_addtl[{i}]"),
                each,
            );
        }
        return;
    }
    if name.ends_with("compression") || name == "blob_compression_type" {
        return line(log, name, codec_name(value));
    }
    let members = value.strip_prefix('{').and_then(|v| v.strip_suffix('}'));
    let Some(members) = members else {
        return line(log, name, plain(value));
    };
    for member in members.split(';').filter(|m| !m.is_empty()) {
        let (member, value) = member.split_once('=').unwrap_or((member, ""));
        line(log, &format!("{name}.{member}"), plain(value));
    }
}

fn line(log: &InfoLog, name: &str, value: impl Display) {
    let name = format!("Options.{name}");
    log.header(format_args!("{name:>46}: {value}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use options::{InfoLogLevel, Options};
    use std::sync::Arc;

    #[test]
    fn options_stand_one_a_line_and_those_of_tables_together() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::default();
        let log = InfoLog::open(
            Arc::clone(&options.env.fs),
            dir.path(),
            Arc::clone(&options.env.clock),
            crate::info::log::Rolling {
                level: InfoLogLevel::Info,
                ..crate::info::log::Rolling::default()
            },
        );
        database(&log, &options.db, &options.env);
        family(&log, 0, "default", &options.cf);
        family(&log, 10, "eleventh", &options.cf);
        let text = std::fs::read_to_string(dir.path().join("LOG")).unwrap();
        for wanted in [
            "Options.max_background_jobs: 2\n",
            "Options.bottommost_compression: Disabled\n",
            "Options.create_if_missing: 0\n",
            "Options.write_buffer_size: 67108864\n",
            "Options.wal_io_mode: auto\n",
            "Options.max_bytes_for_level_multiplier_addtl[6]: 1\n",
            "Options.compaction_options_universal.size_ratio: 1\n",
            "table_factory options:   ",
            "\n  block_size: 4096\n",
            "[eleventh]:\n",
        ] {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }
        assert_eq!(text.matches("Options.write_buffer_size").count(), 1);
    }
}
