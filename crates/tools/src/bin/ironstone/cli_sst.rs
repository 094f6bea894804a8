//! The flags of `dump-sst`: the third part of the table in [`crate::cli`].

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::cli::Range;

/// What to do with a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SstCommand {
    /// Read every entry
    Check,
    /// Print every entry
    Scan,
    /// Read every block and verify its checksum
    Verify,
    /// Print everything, block by block
    Raw,
    /// Print how large the table would be with each codec
    Recompress,
    /// Say whether the file is a table
    Identify,
}

#[derive(Debug, Args)]
pub(crate) struct DumpSst {
    /// The table, or a directory of tables
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Same as FILE, in sst_dump's spelling
    #[arg(
        long = "file",
        id = "file_flag",
        value_name = "FILE",
        conflicts_with = "file"
    )]
    pub(crate) file_flag: Option<PathBuf>,
    /// What to do
    #[arg(long, value_name = "COMMAND", default_value = "check")]
    pub(crate) command: SstCommand,
    /// Print the table's properties too
    #[arg(long = "show_properties", alias = "show-properties")]
    pub(crate) show_properties: bool,
    /// Print keys and values as hex
    #[arg(long = "output_hex", alias = "output-hex")]
    pub(crate) output_hex: bool,
    /// Keys of --from, --to and --prefix are hex, after 0x
    #[arg(long = "input_key_hex", alias = "input-key-hex")]
    pub(crate) input_key_hex: bool,
    #[command(flatten)]
    pub(crate) range: Range,
    /// Only keys that begin with PREFIX
    #[arg(long, value_name = "PREFIX")]
    pub(crate) prefix: Option<OsString>,
    /// Stop after this many entries
    #[arg(long = "read_num", alias = "read-num", value_name = "N")]
    pub(crate) read_num: Option<u64>,
    /// With check and scan: verify the checksum of every block first
    #[arg(long = "verify_checksum", alias = "verify-checksum")]
    pub(crate) verify_checksum: bool,
    /// Accepted for scripts: blob indexes are shown as they are
    #[arg(long = "decode_blob_index", hide = true)]
    pub(crate) decode_blob_index: bool,
    /// Print the parts of this internal key (0x and hex digits) instead
    #[arg(
        long = "parse_internal_key",
        alias = "parse-internal-key",
        value_name = "KEY"
    )]
    pub(crate) parse_internal_key: Option<OsString>,
    #[command(flatten)]
    pub(crate) recompress: Recompress,
}

/// Flags of --command=recompress.
#[derive(Debug, Args)]
pub(crate) struct Recompress {
    /// With recompress: size of a data block in bytes
    #[arg(
        long = "set_block_size",
        alias = "set-block-size",
        value_name = "BYTES",
        default_value_t = 16384
    )]
    pub(crate) block_size: u64,
    /// With recompress: only these codecs, for example kZSTD,kSnappyCompression
    #[arg(
        long = "compression_types",
        alias = "compression-types",
        value_name = "TYPES",
        value_delimiter = ','
    )]
    pub(crate) types: Vec<String>,
    /// With recompress and one codec: the first compression level
    #[arg(
        long = "compression_level_from",
        value_name = "LEVEL",
        allow_hyphen_values = true,
        requires = "level_to"
    )]
    pub(crate) level_from: Option<i32>,
    /// The last compression level
    #[arg(
        long = "compression_level_to",
        value_name = "LEVEL",
        allow_hyphen_values = true,
        requires = "level_from"
    )]
    pub(crate) level_to: Option<i32>,
    /// With recompress: size of a dictionary in bytes
    #[arg(
        long = "compression_max_dict_bytes",
        value_name = "BYTES",
        default_value_t = 0
    )]
    pub(crate) max_dict_bytes: u32,
    /// With recompress: bytes of samples for zstd's dictionary trainer
    #[arg(
        long = "compression_zstd_max_train_bytes",
        value_name = "BYTES",
        default_value_t = 0
    )]
    pub(crate) zstd_max_train_bytes: u32,
    /// With recompress: bytes of data blocks to take samples from
    #[arg(
        long = "compression_max_dict_buffer_bytes",
        value_name = "BYTES",
        default_value_t = 0
    )]
    pub(crate) max_dict_buffer_bytes: u64,
    /// With recompress: zstd adds statistics to the samples instead of training a dictionary
    #[arg(long = "compression_use_zstd_finalize_dict")]
    pub(crate) use_zstd_finalize_dict: bool,
}
