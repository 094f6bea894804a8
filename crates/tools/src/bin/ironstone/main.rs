//! `ironstone`: reads and changes databases, with `ldb`'s commands, flags and output.
//!
//! ```text
//!   arguments ── cli (one table: parsing and help) ── run ─┬─ data      get, put, delete, scan, batchput
//!                                                          ├─ families  list, create, drop, properties, compact
//!                                                          ├─ dump, idump, query   all keys, versions, a dialogue
//!                                                          ├─ files_live   which files there are, and their content
//!                                                          ├─ wal, manifest, sst   dumps of single files
//!                                                          ├─ trim, salvage        repair logs, with --yes
//!                                                          ├─ verify    checksums of everything
//!                                                          └─ cli_writes   singledelete, load, copies, external
//!                                                                          tables, levels, MANIFEST, repair
//! ```
//!
//! Where output and exit code matter to scripts, they are those of RocksDB's `ldb` and `sst_dump`
//! 7.8.3 (`tests/it/cli.rs`, `ldb_commands.rs` and `ldb_writes.rs` run both side by side). Intended
//! differences: arguments that `ldb` ignores or aborts on are errors, and every failure exits with 1.

#![deny(clippy::print_stderr)] // it panics where nobody reads the standard error: see fail::note

mod calm;
mod cli;
mod cli_look;
mod cli_sst;
mod cli_writes;
mod copies;
mod data;
mod dump;
mod external;
mod fail;
mod families;
mod files_live;
mod groups;
mod idump;
mod ldb_flags;
mod levels;
mod lines;
mod load;
mod logs;
mod manifest;
mod new_manifest;
mod notes;
mod open;
mod query;
mod repair;
mod salvage;
mod sst;
mod sst_raw;
mod sst_recompress;
mod state;
mod style;
mod tables_of_manifest;
mod text;
mod trim;
mod ttl;
mod verify;
mod wal;
mod wal_state;

use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command, Global};
use cli_look::Look;
use fail::{Failure, Outcome};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let mut out = BufWriter::with_capacity(64 << 10, std::io::stdout().lock());
    let result = run(&args, &mut out);
    let flushed = out.flush().map_err(Failure::from);
    match result.and(flushed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(args: &[OsString], out: &mut dyn Write) -> Outcome {
    let cli = match Cli::try_parse_from(cli::command_first(args.to_vec())) {
        Ok(cli) => cli,
        Err(e) if e.use_stderr() => {
            ldb_flags::refuse_ldb_only(args)?;
            return Err(Failure::Usage(e.to_string()));
        }
        Err(help) => return Ok(writeln!(out, "{}", help.to_string().trim_end())?),
    };
    let global = &cli.global;
    match cli.command {
        Command::Get(args) => data::get(global, &args, out),
        Command::Put(args) => data::put(global, &args, out),
        Command::Delete(args) => data::delete(global, &args, out),
        Command::Deleterange(args) => data::deleterange(global, &args, out),
        Command::Scan(args) => data::scan(global, &args, out),
        Command::Batchput(args) => data::batchput(global, &args, out),
        Command::ListColumnFamilies => families::list(global, out),
        Command::CreateColumnFamily(args) => families::create(global, &args, out),
        Command::DropColumnFamily(args) => families::drop_family(global, &args, out),
        Command::GetProperty(args) => families::property(global, &args, out),
        Command::Compact(args) => families::compact(global, &args, out),
        Command::DumpWal(args) => wal::dump(global, &args, false, out),
        Command::DumpWalAsLdb(args) => wal::dump(global, &args, true, out),
        Command::WalTrim(args) => trim::trim(global, &args, out),
        Command::Salvage(args) => salvage::salvage(global, &args, out),
        Command::DumpManifest(args) => manifest::dump(global, &args, out),
        Command::DumpSst(args) => sst::dump(&args, false, out),
        Command::SstDump(args) => sst::dump(&args, true, out),
        Command::Verify => verify::verify(global, out),
        Command::Look(command) => look(global, &command, out),
        Command::Write(command) => command.run(global, out),
    }
}

/// The commands that read a database.
fn look(global: &Global, command: &Look, out: &mut dyn Write) -> Outcome {
    match command {
        Look::Dump(args) => dump::dump(global, args, out),
        Look::Idump(args) => idump::dump(global, args, out),
        Look::Approxsize(args) => files_live::approximate_size(global, args, out),
        Look::CheckConsistency => files_live::check(global, out),
        Look::Query(args) => query::query(global, args, out),
        Look::ListFileRangeDeletes(args) => files_live::range_deletes(global, args, out),
        Look::ListLiveFilesMetadata(args) => files_live::list(global, args, out),
        Look::DumpLiveFiles(_) => files_live::dump_all(global, out),
        Look::FileChecksumDump(args) => files_live::checksums(global, args, out),
    }
}
