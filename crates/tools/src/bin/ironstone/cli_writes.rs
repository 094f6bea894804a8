//! The command line of the commands that copy, fill and rebuild databases: a part of [`crate::cli`].

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::{ArgAction, Args, Subcommand};

use crate::cli::{Create, Global};
use crate::fail::Outcome;
use crate::{copies, data, external, levels, load, repair, style, tables_of_manifest};

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum WriteCommand {
    /// Remove a key that was set once: ironstone --db=DIR singledelete KEY
    ///
    /// Only for keys that were set once: compaction drops the deletion together with that value. If
    /// the key was set more than once, an older value may reappear. It is not an error if the key
    /// does not exist.
    ///
    /// Example: ironstone --db=/data/db singledelete user:17
    #[command(verbatim_doc_comment)]
    Singledelete(SingleDelete),

    /// Fill a database from the standard input: ironstone --db=DIR load
    ///
    /// Each line is a key, " ==> ", and a value, as ldb dump prints them; with --hex both are hex
    /// after 0x. Lines "Keys in range: ..." and "Created bg thread 0x..." are skipped. Other lines
    /// count as bad; their number is printed at the end if there are any.
    ///
    /// Example: ldb --db=/data/old dump --hex | ironstone --db=/data/db load --hex
    #[command(verbatim_doc_comment)]
    Load(Load),

    /// Copy a database into a new directory: ironstone --db=DIR checkpoint --checkpoint_dir=NEW
    ///
    /// Tables are hard links where the file system supports them. The copy is made in NEW.tmp and
    /// then renamed, so that NEW is complete or does not exist. Database files that are already in
    /// NEW.tmp are deleted; anything else in it is an error.
    ///
    /// Example: ironstone --db=/data/db checkpoint --checkpoint_dir=/data/db-monday
    #[command(verbatim_doc_comment)]
    Checkpoint(Checkpoint),

    /// Add a backup to a backup directory: ironstone --db=DIR backup --backup_dir=BACKUPS
    ///
    /// Tables that the backup directory already has are not copied again. RocksDB can restore the
    /// backup too.
    ///
    /// Example: ironstone --db=/data/db backup --backup_dir=/backups/db
    #[command(verbatim_doc_comment)]
    Backup(Backup),

    /// Replace a database with its newest usable backup: ironstone --db=DIR restore --backup_dir=BACKUPS
    ///
    /// If DIR has a database and the backup is complete, that database is deleted. It must not be
    /// open. Damaged backups are named on standard error, and not used.
    /// With --wal_dir=LOGS, the logs are restored to LOGS, and logs that are there already are
    /// deleted. The flag is required if the database in DIR has its logs in another directory.
    ///
    /// Example: ironstone --db=/data/db restore --backup_dir=/backups/db
    #[command(verbatim_doc_comment)]
    Restore(Backup),

    /// Write a table from the standard input: ironstone --db=DIR write-extern-sst FILE
    ///
    /// The lines are as for load, with keys in strictly ascending order. The table has the options of
    /// the column family, and can be ingested only into that family. An existing regular file FILE is
    /// replaced when the new one is complete; any other kind of file is not replaced. The database is
    /// only read.
    ///
    /// Example: sort lines | ironstone --db=/data/db write-extern-sst /tmp/new.sst
    #[command(
        name = "write-extern-sst",
        alias = "write_extern_sst",
        verbatim_doc_comment
    )]
    WriteExternSst(WriteExternSst),

    /// Add a table to the database: ironstone --db=DIR ingest-extern-sst FILE
    ///
    /// Example: ironstone --db=/data/db ingest-extern-sst /tmp/new.sst --move_files
    #[command(
        name = "ingest-extern-sst",
        alias = "ingest_extern_sst",
        verbatim_doc_comment
    )]
    IngestExternSst(IngestExternSst),

    /// Use fewer levels: ironstone --db=DIR reduce-levels --new_levels=N
    ///
    /// Compacts the column family, and moves the result to level N-1. The OPTIONS file is unchanged
    /// afterwards, so open the database with num_levels=N from then on. If the command is killed,
    /// disable_auto_compactions=true stays in the OPTIONS file.
    ///
    /// Example: ironstone --db=/data/db reduce-levels --new_levels=3 --print_old_levels
    #[command(name = "reduce-levels", alias = "reduce_levels", verbatim_doc_comment)]
    ReduceLevels(ReduceLevels),

    /// Prepare for another style of compaction: ironstone --db=DIR change-compaction-style
    ///
    /// From level (0) to universal (1): compacts the column family into one file on level 0. In the
    /// other direction there is nothing to do. The OPTIONS file is unchanged afterwards, so open the
    /// database with the new style from then on. If the command is killed, its own values stay in the
    /// OPTIONS file: disable_auto_compactions, target_file_size_base, target_file_size_multiplier and
    /// max_compaction_bytes. The next run of this command, or of reduce-levels, sets these to their
    /// defaults.
    ///
    /// Example: ironstone --db=/data/db change-compaction-style --old_compaction_style=0
    ///          --new_compaction_style=1
    #[command(
        name = "change-compaction-style",
        alias = "change_compaction_style",
        verbatim_doc_comment
    )]
    ChangeCompactionStyle(ChangeCompactionStyle),

    /// Bring the MANIFEST up to date with the files: ironstone --db=DIR update-manifest
    ///
    /// RocksDB asks its file system for each table's temperature. The operating system has no
    /// temperatures, so there is nothing to update: the command only checks that every table exists.
    /// The database must not be open.
    ///
    /// Example: ironstone --db=/data/db update-manifest --update_temperatures
    #[command(
        name = "update-manifest",
        alias = "update_manifest",
        verbatim_doc_comment
    )]
    UpdateManifest(UpdateManifest),

    /// Forget a table and its data: ironstone --db=DIR unsafe-remove-sst-file NUMBER
    ///
    /// For a table that is lost or damaged beyond repair. Its data is lost, and older values of its
    /// keys may reappear. A new MANIFEST without the table is written. The old MANIFEST and the table
    /// stay until the database is next opened. The database must not be open.
    ///
    /// Example: ironstone --db=/data/db unsafe-remove-sst-file 000123
    #[command(
        name = "unsafe-remove-sst-file",
        alias = "unsafe_remove_sst_file",
        verbatim_doc_comment
    )]
    UnsafeRemoveSstFile(UnsafeRemoveSstFile),

    /// Not supported: rebuild a MANIFEST from the tables; see salvage
    Repair(Repair),
}

impl WriteCommand {
    /// Runs the command.
    pub(crate) fn run(self, global: &Global, out: &mut dyn Write) -> Outcome {
        // That one only reads the database.
        if !matches!(self, Self::WriteExternSst(_)) {
            global.refuse_secondary()?;
        }
        match self {
            Self::Singledelete(args) => data::single_delete(global, &args, out),
            Self::Load(args) => load::load(global, &args, out),
            Self::Checkpoint(args) => copies::checkpoint(global, &args, out),
            Self::Backup(args) => copies::backup(global, &args, out),
            Self::Restore(args) => copies::restore(global, &args, out),
            Self::WriteExternSst(args) => external::write(global, &args),
            Self::IngestExternSst(args) => external::ingest(global, &args),
            Self::ReduceLevels(args) => levels::reduce(global, &args, out),
            Self::ChangeCompactionStyle(args) => style::change(global, &args, out),
            Self::UpdateManifest(args) => tables_of_manifest::update(global, &args),
            Self::UnsafeRemoveSstFile(args) => tables_of_manifest::remove(global, &args),
            Self::Repair(_) => repair::repair(global, out),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct SingleDelete {
    /// The key
    #[arg(value_name = "KEY", allow_negative_numbers = true)]
    pub(crate) key: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct Load {
    #[command(flatten)]
    pub(crate) create: Create,
    /// Do not write the WAL; the data is flushed at the end
    #[arg(long = "disable_wal", alias = "disable-wal")]
    pub(crate) disable_wal: bool,
    /// If the database is created: give it options for bulk loading, two levels and no compaction
    #[arg(long = "bulk_load", alias = "bulk-load")]
    pub(crate) bulk: bool,
    /// Compact the column family at the end
    #[arg(long)]
    pub(crate) compact: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Checkpoint {
    /// The new directory
    #[arg(long = "checkpoint_dir", alias = "checkpoint-dir", value_name = "NEW")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Backup {
    /// The directory of the backups
    #[arg(long = "backup_dir", alias = "backup-dir", value_name = "BACKUPS")]
    pub(crate) dir: Option<PathBuf>,
    /// Accepted without effect: one thread copies
    #[arg(
        long = "num_threads",
        alias = "num-threads",
        value_name = "N",
        value_parser = clap::value_parser!(i32).range(1..)
    )]
    pub(crate) num_threads: Option<i32>,
    /// With 0 or 1, print on standard error which backup it is; with 2 to 5, do not
    #[arg(
        long = "stderr_log_level",
        alias = "stderr-log-level",
        value_name = "N",
        allow_negative_numbers = true
    )]
    pub(crate) stderr_log_level: Option<i32>,
}

#[derive(Debug, Args)]
pub(crate) struct WriteExternSst {
    /// The table
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct IngestExternSst {
    /// The table
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) create: Create,
    /// Move the file instead of copying it
    #[arg(long = "move_files", alias = "move-files", value_name = "BOOL", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", action = ArgAction::Set,
        default_value_t = false, hide_default_value = true, hide_possible_values = true)]
    pub(crate) move_files: bool,
    /// Hide the data from existing snapshots; true by default
    #[arg(long = "snapshot_consistency", alias = "snapshot-consistency", value_name = "BOOL",
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = ArgAction::Set, default_value_t = true, hide_default_value = true,
        hide_possible_values = true)]
    pub(crate) snapshot_consistency: bool,
    /// Allow a global sequence number for the table; true by default
    #[arg(long = "allow_global_seqno", alias = "allow-global-seqno", value_name = "BOOL",
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = ArgAction::Set, default_value_t = true, hide_default_value = true,
        hide_possible_values = true)]
    pub(crate) allow_global_seqno: bool,
    /// Allow a flush of memtables that overlap with the table; true by default
    #[arg(long = "allow_blocking_flush", alias = "allow-blocking-flush", value_name = "BOOL",
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = ArgAction::Set, default_value_t = true, hide_default_value = true,
        hide_possible_values = true)]
    pub(crate) allow_blocking_flush: bool,
    /// Put the table below all data of the database
    #[arg(long = "ingest_behind", alias = "ingest-behind", value_name = "BOOL", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", action = ArgAction::Set,
        default_value_t = false, hide_default_value = true, hide_possible_values = true)]
    pub(crate) ingest_behind: bool,
    /// Write the sequence number into the file, for RocksDB before 5.16; true by default
    #[arg(long = "write_global_seqno", alias = "write-global-seqno", value_name = "BOOL",
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = ArgAction::Set, default_value_t = true, hide_default_value = true,
        hide_possible_values = true)]
    pub(crate) write_global_seqno: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReduceLevels {
    /// The new number of levels, at least 2
    #[arg(
        long = "new_levels",
        alias = "new-levels",
        value_name = "N",
        allow_hyphen_values = true
    )]
    pub(crate) new_levels: Option<String>,
    /// Print the old number of levels
    #[arg(long = "print_old_levels", alias = "print-old-levels")]
    pub(crate) print_old_levels: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ChangeCompactionStyle {
    /// The old style: 0 for level, 1 for universal
    #[arg(
        long = "old_compaction_style",
        alias = "old-compaction-style",
        value_name = "STYLE"
    )]
    pub(crate) old: Option<String>,
    /// The new style: 0 for level, 1 for universal
    #[arg(
        long = "new_compaction_style",
        alias = "new-compaction-style",
        value_name = "STYLE"
    )]
    pub(crate) new: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct UpdateManifest {
    /// Update the temperatures of tables
    #[arg(long = "update_temperatures", alias = "update-temperatures", value_name = "BOOL",
        num_args = 0..=1, require_equals = true, default_missing_value = "true",
        action = ArgAction::Set, default_value_t = false, hide_default_value = true,
        hide_possible_values = true)]
    pub(crate) update_temperatures: bool,
    /// Print the tables that exist
    #[arg(long)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UnsafeRemoveSstFile {
    /// The table's number
    #[arg(value_name = "NUMBER", allow_negative_numbers = true)]
    pub(crate) number: String,
}

#[derive(Debug, Args)]
pub(crate) struct Repair {
    /// Accepted, as in ldb
    #[arg(long)]
    pub(crate) verbose: bool,
}
