//! Tables made outside of a database become part of one: the fastest way to bring in much sorted data.
//!
//! ```text
//! cargo run --example ingestion
//! ```

#![expect(clippy::print_stdout, reason = "an example prints what it does")]

use ironstone::{Db, IngestExternalFileOptions, Options, Result, SstFileWriter};

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("ironstone-ingestion-{}", std::process::id()));
    let options = Options::default().with_db(|db| db.create_if_missing = true);
    let db = Db::open(dir.join("db"), &options)?;
    db.put("user/00000500", "written before")?;

    // Keys come in their order. No database need be open, and several writers may work at a time.
    let table = dir.join("users.sst");
    let mut writer = SstFileWriter::new(&options);
    writer.open(&table)?;
    for i in 0..100_000 {
        writer.put(format!("user/{i:08}"), format!("name {i}"))?;
    }
    let made = writer.finish()?;
    println!("{} entries in {} bytes", made.num_entries, made.file_size);

    // All of it is there at once, above what was written before. A hard link instead of a copy: the file moves in.
    let how = IngestExternalFileOptions {
        move_files: true,
        ..IngestExternalFileOptions::default()
    };
    db.ingest_external_file(&[&table], &how)?;
    assert_eq!(db.get("user/00000500")?.as_deref(), Some(&b"name 500"[..]));
    println!("{} entries in the database", db.prefix("user/")?.count());
    db.close()?;
    std::fs::remove_dir_all(&dir).map_err(|e| ironstone::Error::io("remove", &dir, e))
}
