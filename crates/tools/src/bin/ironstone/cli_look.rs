//! The commands that look into a database, and their flags: the second part of the table in
//! [`crate::cli`].

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::cli::Range;
use crate::ttl::{TimeRange, Ttl};

/// Commands that look into a database.
#[derive(Debug, Subcommand)]
pub(crate) enum Look {
    /// Print keys and values, or count them: ironstone --db=DIR dump --count_only
    ///
    /// Prints one line for each key: the key, " ==> ", and the value; at the end the number of keys.
    /// --count_only prints only the number of keys and how large the values are. --count_delim=:
    /// groups the counts by the part of the key before the first colon.
    /// --path=FILE prints a table, a log or a MANIFEST, and does not need --db.
    ///
    /// Example: ironstone --db=/data/db dump --from=user:1 --to=user:2 --stats
    #[command(verbatim_doc_comment)]
    Dump(Dump),

    /// Print every stored version of the keys: ironstone --db=DIR idump --max_keys=10
    ///
    /// Prints one line for each version: the key, its sequence number and type, " => ", and the value.
    /// Deletions are printed. Entries that a range deletion covers are not.
    ///
    /// Example: ironstone --db=/data/db idump --from=0x00 --to=0x10 --input_key_hex
    #[command(verbatim_doc_comment)]
    Idump(Idump),

    /// Print how many bytes of files a range takes: ironstone --db=DIR approxsize --from=A --to=Z
    Approxsize(Approxsize),

    /// Check that all files exist with the right size: ironstone --db=DIR checkconsistency
    ///
    /// Prints OK. ironstone verify reads every checksum as well.
    #[command(
        name = "checkconsistency",
        alias = "check-consistency",
        verbatim_doc_comment
    )]
    CheckConsistency,

    /// Read commands from the standard input: ironstone --db=DIR query
    ///
    /// Each line is one command, with one space between words: get KEY, put KEY VALUE, delete KEY,
    /// help. Ends at the end of the input, or at a key that does not exist.
    ///
    /// Example: echo get user:17 | ironstone --db=/data/db query
    #[command(verbatim_doc_comment)]
    Query(Query),

    /// Print the range deletions in tables: ironstone --db=DIR list-file-range-deletes
    ///
    /// Prints for each table its path, and the fragments into which its range deletions divide the
    /// keys. Keys are in hex.
    #[command(
        name = "list-file-range-deletes",
        alias = "list_file_range_deletes",
        verbatim_doc_comment
    )]
    ListFileRangeDeletes(ListFileRangeDeletes),

    /// Print which tables are on which level: ironstone --db=DIR list-live-files-metadata
    #[command(name = "list-live-files-metadata", alias = "list_live_files_metadata")]
    ListLiveFilesMetadata(ListLiveFilesMetadata),

    /// Print MANIFEST, tables and logs of a database: ironstone --db=DIR dump-live-files
    #[command(name = "dump-live-files", alias = "dump_live_files")]
    DumpLiveFiles(DumpLiveFiles),

    /// Print the checksums of whole tables: ironstone --db=DIR file-checksum-dump --hex
    ///
    /// Prints one line for each table: its number, the checksum function, and the checksum, as
    /// recorded in the MANIFEST.
    #[command(
        name = "file-checksum-dump",
        alias = "file_checksum_dump",
        verbatim_doc_comment
    )]
    FileChecksumDump(FileChecksumDump),
}

/// Flags for blob files, which Ironstone does not support.
#[derive(Debug, Args)]
pub(crate) struct BlobFlags {
    /// Accepted for scripts: databases with blob files do not open
    #[arg(long = "decode_blob_index", hide = true)]
    pub(crate) decode_blob_index: bool,
    /// The same
    #[arg(long = "dump_uncompressed_blobs", hide = true)]
    pub(crate) dump_uncompressed_blobs: bool,
}

/// The flags that dump and idump share.
#[derive(Debug, Args)]
pub(crate) struct Counting {
    /// Stop after this many keys; -1 means no limit
    #[arg(
        long = "max_keys",
        alias = "max-keys",
        value_name = "N",
        allow_hyphen_values = true
    )]
    pub(crate) max_keys: Option<String>,
    /// Print only the count
    #[arg(long = "count_only", alias = "count-only")]
    pub(crate) count_only: bool,
    /// Count keys and bytes by the part of the key before the first CHAR
    #[arg(
        long = "count_delim",
        alias = "count-delim",
        value_name = "CHAR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "."
    )]
    pub(crate) count_delim: Option<OsString>,
    /// Print rocksdb.stats first
    #[arg(long)]
    pub(crate) stats: bool,
    #[command(flatten)]
    pub(crate) blobs: BlobFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Dump {
    #[command(flatten)]
    pub(crate) range: Range,
    #[command(flatten)]
    pub(crate) counting: Counting,
    #[command(flatten)]
    pub(crate) ttl: Ttl,
    #[command(flatten)]
    pub(crate) times: TimeRange,
    /// With --ttl: count keys by time spans of this many seconds
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    pub(crate) bucket: Option<String>,
    /// Print this table, log or MANIFEST
    #[arg(long, value_name = "FILE")]
    pub(crate) path: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Idump {
    #[command(flatten)]
    pub(crate) range: Range,
    /// Keys of --from and --to are hex, after 0x
    #[arg(long = "input_key_hex", alias = "input-key-hex")]
    pub(crate) input_key_hex: bool,
    #[command(flatten)]
    pub(crate) counting: Counting,
}

#[derive(Debug, Args)]
pub(crate) struct Approxsize {
    #[command(flatten)]
    pub(crate) range: Range,
}

#[derive(Debug, Args)]
pub(crate) struct Query {
    #[command(flatten)]
    pub(crate) ttl: Ttl,
}

#[derive(Debug, Args)]
pub(crate) struct ListFileRangeDeletes {
    /// Stop after this many fragments; 1000 if not given
    #[arg(
        long = "max_keys",
        alias = "max-keys",
        value_name = "N",
        allow_hyphen_values = true
    )]
    pub(crate) max_keys: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ListLiveFilesMetadata {
    /// Print one list of all files, sorted by name
    #[arg(long = "sort_by_filename", alias = "sort-by-filename")]
    pub(crate) sort_by_filename: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DumpLiveFiles {
    #[command(flatten)]
    pub(crate) blobs: BlobFlags,
}

#[derive(Debug, Args)]
pub(crate) struct FileChecksumDump {
    /// The MANIFEST; if not given, the current one of --db
    #[arg(long, value_name = "FILE")]
    pub(crate) path: Option<PathBuf>,
}
