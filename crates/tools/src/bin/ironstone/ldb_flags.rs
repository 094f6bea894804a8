//! Flags of `ldb` that Ironstone does not support: refused by name, with the reason.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use crate::fail::{Failure, Outcome};

/// Flags of `ldb` that Ironstone does not have, with a reason or an alternative.
pub(crate) const LDB_ONLY: &[(&str, &str)] = &[
    (
        "read_timestamp",
        "user-defined timestamps are not supported",
    ),
    ("get_write_time", "write times are not supported"),
    ("env_uri", "files are read through the operating system"),
    ("fs_uri", "files are read through the operating system"),
    (
        "backup_env_uri",
        "files are read through the operating system",
    ),
    (
        "backup_fs_uri",
        "files are read through the operating system",
    ),
    ("json", "leave it out for text"),
    (
        "write_committed",
        "records are shown as they stand in the log",
    ),
    ("bloom_bits", SETTING),
    ("fix_prefix_len", SETTING),
    ("compression_type", SETTING),
    ("compression_max_dict_bytes", SETTING),
    ("block_size", SETTING),
    ("auto_compaction", SETTING),
    ("db_write_buffer_size", SETTING),
    ("write_buffer_size", SETTING),
    ("file_size", SETTING),
    (
        "disable_consistency_checks",
        "the checks cannot be turned off",
    ),
    ("enable_blob_files", BLOBS),
    ("min_blob_size", BLOBS),
    ("blob_file_size", BLOBS),
    ("blob_compression_type", BLOBS),
    ("enable_blob_garbage_collection", BLOBS),
    ("blob_garbage_collection_age_cutoff", BLOBS),
    ("blob_garbage_collection_force_threshold", BLOBS),
    ("blob_compaction_readahead_size", BLOBS),
    ("blob_file_starting_level", BLOBS),
    ("prepopulate_blob_cache", BLOBS),
];

const SETTING: &str = "settings come from the database's OPTIONS file";
const BLOBS: &str = "blob files are not supported";

/// Refuses flags of `ldb` that Ironstone knows but does not have. Called for arguments that no command
/// accepts.
pub(crate) fn refuse_ldb_only(args: &[OsString]) -> Outcome {
    let flags = args
        .iter()
        .skip(1)
        .map(|arg| arg.as_bytes())
        .take_while(|&arg| arg != b"--")
        .filter_map(|arg| arg.strip_prefix(b"--"));
    for flag in flags {
        let name = flag.split(|&b| b == b'=').next().unwrap_or_default();
        if let Some((name, why)) = LDB_ONLY.iter().find(|(n, _)| n.as_bytes() == name) {
            return Err(Failure::message(format!(
                "Not implemented: ldb's flag --{name}: {why}"
            )));
        }
    }
    Ok(())
}
