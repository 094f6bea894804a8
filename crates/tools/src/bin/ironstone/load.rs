//! `load`: fills a database from lines of text.

use std::io::Write;

use io::{FileSystem, posix::Posix};
use ironstone::{Db, Options, WriteBatch, WriteOptions};

use crate::cli::Global;
use crate::cli_writes::Load;
use crate::fail::Outcome;
use crate::{lines, open};

/// The approximate size of a write batch in bytes.
const BATCH_BYTES: usize = 64 << 10;

/// Fills a database from the standard input.
pub(crate) fn load(global: &Global, args: &Load, out: &mut dyn Write) -> Outcome {
    let db = open(global, args)?;
    let family = open::family(&db, global)?;
    let options = WriteOptions {
        disable_wal: args.disable_wal,
        ..WriteOptions::default()
    };
    let mut batch = WriteBatch::new();
    let read = lines::read(global, &mut std::io::stdin().lock(), &mut |key, value| {
        batch.cf_id(family.id()).put(key, value)?;
        if batch.data().len() >= BATCH_BYTES {
            // Not again behind the loop if it fails.
            let written = db.with(&options).write(&mut batch);
            batch.clear();
            written?;
        }
        Ok(())
    });
    // Whatever came, the lines before it count.
    let written = db.with(&options).write(&mut batch).and_then(|()| {
        if args.disable_wal {
            db.cf(&family).flush()?;
        }
        Ok(())
    });
    let bad = read?;
    written?;
    if bad > 0 {
        writeln!(out, "Warning: {bad} bad lines ignored.")?;
    }
    if args.compact {
        db.cf(&family).compact_range(None, None)?;
    }
    drop(family);
    Ok(db.close()?)
}

/// Opens the database. As in `ldb`, `--bulk_load` affects only a new database: an existing one has
/// settings in its OPTIONS file.
fn open(global: &Global, args: &Load) -> Outcome<Db> {
    let create = args.create.create_if_missing;
    let new = create && !Posix.exists(&files::current_path(global.dir()?))?;
    if !(new && args.bulk) {
        return open::writable(global, create);
    }
    open::writable_as(global, create, &mut |_, cf| {
        let mut options = Options {
            cf: cf.clone(),
            ..Options::default()
        };
        options.prepare_for_bulk_load();
        *cf = options.cf;
    })
}
