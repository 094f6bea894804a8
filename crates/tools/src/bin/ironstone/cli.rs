//! The command line: declares every command and flag once, for parsing and for the help.
//!
//! Flags have `ldb`'s spelling (underscores) and may stand before or after the command. Flags of
//! `ldb` that Ironstone does not support are refused by name: [`crate::ldb_flags`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, ColorChoice, CommandFactory, Parser, Subcommand};

use crate::cli_look::Look;
use crate::cli_sst::DumpSst;
use crate::cli_writes::WriteCommand;
use crate::fail::{Failure, Outcome};
use crate::ttl::{TimeRange, Ttl};

const COMMON: &str = "Flags of all commands";

const EXIT_CODES: &str = "\
Exit codes: 0 done, and nothing wrong was found; 1 everything else: wrong arguments, a key that
is not there, an error, a problem that verify found, a repair that waits for --yes.

`ironstone <command> --help` explains a command. Commands, flags and output are those of RocksDB's
ldb, whose names with underscores are accepted too (dump_wal, manifest_dump, list_column_families).";

/// Reads and changes a RocksDB or Ironstone database.
#[derive(Debug, Parser)]
#[command(
    name = "ironstone",
    version,
    color = ColorChoice::Never,
    term_width = 100,
    after_help = EXIT_CODES,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags that every command accepts, anywhere on the command line.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// The database's directory
    #[arg(long, global = true, value_name = "DIR", help_heading = COMMON)]
    pub(crate) db: Option<PathBuf>,

    /// The WAL directory; if not given, the one in the OPTIONS file
    #[arg(
        long = "wal_dir",
        alias = "wal-dir",
        global = true,
        value_name = "DIR",
        help_heading = COMMON
    )]
    pub(crate) wal_dir: Option<String>,

    /// The column family to read or write
    #[arg(
        long = "column_family",
        alias = "column-family",
        global = true,
        value_name = "NAME",
        default_value = "default",
        hide_default_value = true,
        help_heading = COMMON
    )]
    pub(crate) column_family: String,

    /// Keys and values are hex, in arguments (after 0x) and in the output
    #[arg(long, global = true, help_heading = COMMON)]
    pub(crate) hex: bool,

    /// Keys are hex
    #[arg(long = "key_hex", alias = "key-hex", global = true, help_heading = COMMON)]
    pub(crate) key_hex: bool,

    /// Values are hex
    #[arg(long = "value_hex", alias = "value-hex", global = true, help_heading = COMMON)]
    pub(crate) value_hex: bool,

    /// Take the options from the database's newest OPTIONS file (the default); with =false, do not.
    /// If the flag is given, an option that Ironstone does not support is an error
    #[arg(
        long = "try_load_options",
        alias = "try-load-options",
        global = true,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        action = ArgAction::Set,
        hide_possible_values = true,
        help_heading = COMMON
    )]
    pub(crate) try_load_options: Option<bool>,

    /// With --try_load_options: ignore what Ironstone does not support
    #[arg(
        long = "ignore_unknown_options",
        alias = "ignore-unknown-options",
        global = true,
        help_heading = COMMON
    )]
    pub(crate) ignore_unknown_options: bool,

    /// Open the database as a secondary instance, while another process has it open for writing;
    /// the LOG of the secondary goes to this directory
    #[arg(
        long = "secondary_path",
        alias = "secondary-path",
        global = true,
        value_name = "DIR",
        help_heading = COMMON
    )]
    pub(crate) secondary_path: Option<OsString>,
}

impl Global {
    /// Whether keys are hex.
    pub(crate) fn keys_hex(&self) -> bool {
        self.hex || self.key_hex
    }

    /// Whether values are hex.
    pub(crate) fn values_hex(&self) -> bool {
        self.hex || self.value_hex
    }

    /// The directory of the secondary instance, if the database is to be opened as one.
    pub(crate) fn secondary(&self) -> Option<&Path> {
        let path = self.secondary_path.as_ref();
        path.filter(|path| !path.is_empty()).map(Path::new)
    }

    /// Refuses to change a database if it is to be opened as a secondary instance.
    pub(crate) fn refuse_secondary(&self) -> Outcome {
        match self.secondary() {
            None => Ok(()),
            Some(_) => Err(Failure::message(
                "Not implemented: Not supported operation in secondary mode: leave out \
                 --secondary_path",
            )),
        }
    }

    /// The database's directory.
    pub(crate) fn dir(&self) -> Outcome<&PathBuf> {
        self.db
            .as_ref()
            .ok_or_else(|| Failure::message("the database must be named: --db=DIR"))
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print a key's value: ironstone --db=DIR get KEY
    ///
    /// Prints the value and a line feed. Without --hex the value ends at its first zero byte, as
    /// in ldb. Exits with 1 if the key does not exist.
    ///
    /// Example: ironstone --db=/data/db get user:17
    #[command(verbatim_doc_comment)]
    Get(Get),

    /// Set a key: ironstone --db=DIR put KEY VALUE
    ///
    /// Prints OK. The write survives the end of the process. A power failure right after it may lose
    /// the write.
    ///
    /// Example: ironstone --db=/data/db put 0x00ff 0xdead --hex
    #[command(verbatim_doc_comment)]
    Put(Put),

    /// Remove a key: ironstone --db=DIR delete KEY
    ///
    /// It is not an error if the key does not exist.
    ///
    /// Example: ironstone --db=/data/db delete user:17
    #[command(verbatim_doc_comment)]
    Delete(Delete),

    /// Remove the keys of a range: ironstone --db=DIR deleterange BEGIN END
    ///
    /// The key END itself is not removed.
    ///
    /// Example: ironstone --db=/data/db deleterange user:17 user:18
    #[command(verbatim_doc_comment)]
    Deleterange(DeleteRange),

    /// Print keys and values in order: ironstone --db=DIR scan --max_keys=10
    ///
    /// Prints one line for each key: the key, " : ", and the value. Without --hex, keys and values
    /// end at their first zero byte, as in ldb.
    ///
    /// Example: ironstone --db=/data/db scan --from=user:1 --to=user:2 --no_value
    #[command(verbatim_doc_comment)]
    Scan(Scan),

    /// Set several keys at once: ironstone --db=DIR batchput K1 V1 K2 V2
    ///
    /// Either all keys are set, or none.
    ///
    /// Example: ironstone --db=/data/db batchput a 1 b 2
    #[command(verbatim_doc_comment)]
    Batchput(BatchPut),

    /// Print the names of the column families: ironstone --db=DIR list-column-families
    #[command(name = "list-column-families", alias = "list_column_families")]
    ListColumnFamilies,

    /// Create a column family: ironstone --db=DIR create-column-family NAME
    #[command(name = "create-column-family", alias = "create_column_family")]
    CreateColumnFamily(FamilyName),

    /// Drop a column family and its data: ironstone --db=DIR drop-column-family NAME
    #[command(name = "drop-column-family", alias = "drop_column_family")]
    DropColumnFamily(FamilyName),

    /// Print a property: ironstone --db=DIR get-property rocksdb.stats
    #[command(name = "get-property", alias = "get_property")]
    GetProperty(Property),

    /// Compact a column family: ironstone --db=DIR compact --from=A --to=Z
    ///
    /// Compacts the range between the two keys, both included, into one level.
    #[command(verbatim_doc_comment)]
    Compact(Compact),

    /// Print a write-ahead log and its state: ironstone dump-wal DIR/000004.log --header
    ///
    /// Prints one line for each batch: its first sequence number, the number of its writes, its size
    /// in bytes, its offset in the file, and the writes with keys in hex. Entries that are not writes:
    ///     FENCE(log 7: durable through 4096, log 4 before ends at 812)   a sync fence
    ///     BEGIN(log 7: log 4 before ends at 812)                         the log before this one
    ///     FILLER(3 bytes), PADDING(40 bytes)                             no-ops in a batch, or as one
    /// With --physical, prints one line for each fragment of the file: its offset, its type, the
    /// length of its payload, and whether the checksum is correct.
    /// At the end prints the state of the file: where and how the log ends, whether the file was
    /// filled with zeros in advance, what the fences say, and a verdict.
    ///
    /// dump_wal, with an underscore, prints exactly what ldb dump_wal prints.
    ///
    /// Exits with 1 if a part of the log had to be skipped, or if a fence says that this part was
    /// durable. It is not an error if a crash cut off the end of the log; a note on standard error
    /// says where.
    ///
    /// Example: ironstone dump-wal --walfile=/data/db/000004.log --header --print_value
    #[command(name = "dump-wal", verbatim_doc_comment)]
    DumpWal(DumpWal),

    /// dump-wal in ldb's form: ironstone dump_wal --walfile=DIR/000004.log
    #[command(name = "dump_wal", hide = true)]
    DumpWalAsLdb(DumpWal),

    /// Cut a torn tail off a log: ironstone wal-trim DIR/000004.log
    ///
    /// A crash can leave an incomplete (torn) record at the end of a log. Ironstone, and RocksDB in
    /// its default mode, drop this record when they open the database. RocksDB refuses to open it with
    /// wal_recovery_mode kTolerateCorruptedTailRecords or kAbsoluteConsistency. This command cuts off
    /// the torn record and everything after it, and saves these bytes as DIR/000004.log.trimmed.
    /// The log that remains is durable when the command ends.
    ///
    /// Without --yes, the command only prints what it would do, and exits with 1.
    /// It refuses to change a log if a sync fence, a later log, or the MANIFEST says that more of the
    /// log was durable: then the damage is not a torn tail (see ironstone salvage --help). The
    /// database must not be open.
    ///
    /// Example: ironstone wal-trim --db=/data/db --yes
    #[command(name = "wal-trim", alias = "wal_trim", verbatim_doc_comment)]
    WalTrim(WalTrim),

    /// Keep what can be read of damaged logs: ironstone --db=DIR salvage
    ///
    /// For a database that does not open because a log is damaged. Prints what would be lost. For
    /// each damaged place this is the file, the byte range, the missing sequence numbers, and the
    /// writes that can still be decoded there (their checksum is wrong, so a key may be wrong).
    /// If you have a backup or a copy, restore it: the data lost here was acknowledged as durable.
    ///
    /// Without --yes, the command changes nothing, and exits with 1 if a log is damaged. With --yes,
    /// it writes every readable batch to new logs; with these, the database opens in the default mode.
    /// The old logs are kept beside them as 000004.log.damaged. With --to=NEWDIR, DIR is not changed:
    /// the command makes a copy of the database with the new logs. Tables are hard links where the
    /// file system supports them. The database must not be open.
    ///
    /// Example: ironstone --db=/data/db salvage --to=/data/salvaged --yes
    #[command(verbatim_doc_comment)]
    Salvage(Salvage),

    /// Print a MANIFEST: ironstone --db=DIR dump-manifest --verbose
    ///
    /// Prints the column families, and the files on each level:
    ///     number:bytes[first sequence .. last sequence][first key .. last key]
    /// With --verbose, prints every VersionEdit first.
    ///
    /// Example: ironstone dump-manifest --path=/data/db/MANIFEST-000005 --hex
    #[command(
        name = "dump-manifest",
        aliases = ["manifest_dump", "manifest-dump", "dump_manifest"],
        verbatim_doc_comment
    )]
    DumpManifest(DumpManifest),

    /// Print a table file: ironstone dump-sst DIR/000009.sst --command=scan
    ///
    /// The commands are those of sst_dump. check reads every entry and prints nothing. scan prints
    /// the entries. verify reads every block and verifies its checksum. raw prints the footer, block
    /// handles, properties, and the entries block by block. recompress prints how large the table
    /// would be with each codec. identify says whether the file is a table. If FILE is a directory,
    /// the command is run for each table in it.
    ///
    /// sst_dump, with an underscore, writes the output of raw to FILE_dump.txt, in sst_dump's format.
    ///
    /// Example: ironstone dump-sst /data/db/000009.sst --show_properties --command=scan --output_hex
    #[command(name = "dump-sst", alias = "dump_sst", verbatim_doc_comment)]
    DumpSst(DumpSst),

    /// dump-sst in sst_dump's form: ironstone sst_dump --file=DIR/000009.sst
    #[command(name = "sst_dump", hide = true)]
    SstDump(DumpSst),

    /// Verify every checksum: ironstone --db=DIR verify
    ///
    /// Opens the database without changing it, then reads its MANIFEST, every block of every
    /// table and every record of every log. Prints every problem with file and offset, then figures,
    /// and OK if there was no problem. Exits with 1 if there was one.
    /// If the database is intact but uses features that Ironstone does not support, the command
    /// prints a note. Blob files without a checksum in the MANIFEST cannot be verified, and count as
    /// a problem.
    ///
    /// Example: ironstone --db=/data/db verify
    #[command(verbatim_doc_comment)]
    Verify,

    #[command(flatten)]
    Look(Look),

    #[command(flatten)]
    Write(WriteCommand),
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The key
    #[arg(value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) key: OsString,
    #[command(flatten)]
    pub(crate) ttl: Ttl,
}

#[derive(Debug, Args)]
pub(crate) struct Put {
    /// The key
    #[arg(value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) key: OsString,
    /// The value
    #[arg(value_name = "VALUE", allow_negative_numbers = true)]
    pub(crate) value: OsString,
    #[command(flatten)]
    pub(crate) create: Create,
    #[command(flatten)]
    pub(crate) ttl: Ttl,
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Create the database if there is none
    #[arg(long = "create_if_missing", alias = "create-if-missing")]
    pub(crate) create_if_missing: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// The key
    #[arg(value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) key: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteRange {
    /// The first key that is removed
    #[arg(value_name = "BEGIN", allow_negative_numbers = true)]
    pub(crate) begin: OsString,
    /// The first key that is not removed
    #[arg(value_name = "END", allow_negative_numbers = true)]
    pub(crate) end: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct Range {
    /// The start of the range; if not given, the first key
    #[arg(long, value_name = "KEY")]
    pub(crate) from: Option<OsString>,
    /// The end of the range; if not given, the last key
    #[arg(long, value_name = "KEY")]
    pub(crate) to: Option<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Scan {
    #[command(flatten)]
    pub(crate) range: Range,
    /// Stop after this many keys; -1 means no limit
    #[arg(
        long = "max_keys",
        alias = "max-keys",
        value_name = "N",
        allow_hyphen_values = true
    )]
    pub(crate) max_keys: Option<String>,
    /// Print only the keys
    #[arg(long = "no_value", alias = "no-value")]
    pub(crate) no_value: bool,
    #[command(flatten)]
    pub(crate) ttl: Ttl,
    #[command(flatten)]
    pub(crate) times: TimeRange,
}

#[derive(Debug, Args)]
pub(crate) struct BatchPut {
    /// Alternating keys and values
    #[arg(value_name = "KEY VALUE", allow_negative_numbers = true)]
    pub(crate) pairs: Vec<OsString>,
    #[command(flatten)]
    pub(crate) create: Create,
    #[command(flatten)]
    pub(crate) ttl: Ttl,
}

#[derive(Debug, Args)]
pub(crate) struct FamilyName {
    /// The column family
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct Property {
    /// For example rocksdb.stats
    #[arg(value_name = "PROPERTY")]
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct Compact {
    #[command(flatten)]
    pub(crate) range: Range,
}

#[derive(Debug, Args)]
pub(crate) struct DumpWal {
    /// The log; if not given, every log of --db
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Same as FILE, in ldb's spelling
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) walfile: Option<PathBuf>,
    /// Print the column names first
    #[arg(long)]
    pub(crate) header: bool,
    /// Print values too
    #[arg(long = "print_value", alias = "print-value")]
    pub(crate) print_value: bool,
    /// Print fragments instead of batches
    #[arg(long, conflicts_with_all = ["header", "print_value"])]
    pub(crate) physical: bool,
}

#[derive(Debug, Args)]
pub(crate) struct WalTrim {
    /// The log; if not given, every log of --db
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Make the changes
    #[arg(long)]
    pub(crate) yes: bool,
    /// Overwrite the torn part with zeros and keep the file's length, for a file that was filled
    /// with zeros in advance
    #[arg(long)]
    pub(crate) zero: bool,
    /// Do not save the bytes that are cut off
    #[arg(long = "no-backup", alias = "no_backup")]
    pub(crate) no_backup: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Salvage {
    /// Make the changes
    #[arg(long)]
    pub(crate) yes: bool,
    /// Make a salvaged copy here, and do not change --db
    #[arg(long, value_name = "NEWDIR")]
    pub(crate) to: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DumpManifest {
    /// The MANIFEST; if not given, the current one of --db
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Same as FILE, in ldb's spelling
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pub(crate) path: Option<PathBuf>,
    /// Print every VersionEdit first
    #[arg(long)]
    pub(crate) verbose: bool,
}

/// Moves the command's name in front of its flags, which may also stand before it.
pub(crate) fn command_first(mut args: Vec<OsString>) -> Vec<OsString> {
    let cli = Cli::command();
    let is_command = |arg: &OsString| cli.get_subcommands().any(|c| names(c).any(|n| arg == n));
    // Which command's flag it is is not known yet: each means the same in all that have it.
    let takes_next = |arg: &OsString| {
        let all = std::iter::once(&cli).chain(cli.get_subcommands());
        let mut flags = all.flat_map(|c| c.get_arguments());
        flags.any(|a| takes_word(a) && spelled(a).any(|flag| *arg == *flag))
    };
    let mut at = 1;
    while let Some(arg) = args.get(at) {
        if arg == "--" {
            break;
        }
        if is_command(arg) {
            args[1..=at].rotate_right(1);
            break;
        }
        at += 1 + usize::from(takes_next(arg));
    }
    args
}

fn names(command: &clap::Command) -> impl Iterator<Item = &str> {
    std::iter::once(command.get_name()).chain(command.get_all_aliases())
}

/// Whether the word after the flag is its value.
fn takes_word(arg: &clap::Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

fn spelled(arg: &clap::Arg) -> impl Iterator<Item = String> {
    let long = arg.get_long().map(ToOwned::to_owned);
    let aliases = arg.get_all_aliases().unwrap_or_default();
    let aliases = aliases.into_iter().map(ToOwned::to_owned);
    long.into_iter()
        .chain(aliases)
        .map(|name| format!("--{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declarations_fit_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_flag_is_both_known_and_refused() {
        let command = Cli::command();
        // A flag of ldb's may be another one of sst_dump's.
        let of_ldb = |c: &&clap::Command| !["dump-sst", "sst_dump"].contains(&c.get_name());
        for sub in command.get_subcommands().filter(of_ldb) {
            for long in sub.get_arguments().filter_map(clap::Arg::get_long) {
                assert!(
                    crate::ldb_flags::LDB_ONLY.iter().all(|(n, _)| *n != long),
                    "{long}"
                );
            }
        }
    }

    fn parse(line: &str) -> Cli {
        let args = line.split(' ').map(OsString::from).collect();
        Cli::try_parse_from(command_first(args)).unwrap()
    }

    #[test]
    fn flags_stand_before_the_command_too() {
        for line in [
            "ironstone --max_keys=2 --db=/d scan",
            "ironstone --db /d --max_keys 2 scan",
            "ironstone --db /d scan --max_keys=2",
        ] {
            let Command::Scan(scan) = parse(line).command else {
                panic!("{line}");
            };
            assert_eq!(scan.max_keys.as_deref(), Some("2"), "{line}");
        }
        // A directory called as a command is.
        let cli = parse("ironstone --db scan get put");
        assert_eq!(cli.global.db, Some(PathBuf::from("scan")));
        assert!(matches!(cli.command, Command::Get(get) if get.key == "put"));
        let cli = parse("ironstone --db=d --backup_dir restore backup");
        let Command::Write(WriteCommand::Backup(backup)) = cli.command else {
            panic!("restore was the value");
        };
        assert_eq!(backup.dir, Some(PathBuf::from("restore")));
        let cli = parse("ironstone --db=d --from get scan");
        assert!(matches!(cli.command, Command::Scan(s) if s.range.from == Some("get".into())));
    }

    /// Otherwise it would be ambiguous which word is the command.
    #[test]
    fn a_flag_takes_a_word_in_all_commands_or_in_none() {
        let cli = Cli::command();
        let mut known = std::collections::BTreeMap::new();
        for arg in cli.get_subcommands().flat_map(|c| c.get_arguments()) {
            for flag in spelled(arg) {
                let takes = takes_word(arg);
                assert_eq!(*known.entry(flag.clone()).or_insert(takes), takes, "{flag}");
            }
        }
    }

    #[test]
    fn flags_stand_anywhere() {
        for line in [
            "ironstone --db=/d --hex get 0x61",
            "ironstone get --db /d 0x61 --hex",
            "ironstone get 0x61 --hex --db=/d",
        ] {
            let cli = parse(line);
            assert!(cli.global.keys_hex() && cli.global.values_hex(), "{line}");
            assert_eq!(cli.global.db, Some(PathBuf::from("/d")), "{line}");
        }
    }
}
