//! Column families, each with its own options, written in one batch, and read by ranges and prefixes.
//!
//! ```text
//! cargo run --example families
//! ```

#![expect(clippy::print_stdout, reason = "an example prints what it does")]

use ironstone::{ColumnFamilyOptions, CompressionType, Db, FilterPolicy, Options, WriteBatch};

fn main() -> ironstone::Result<()> {
    let dir = std::env::temp_dir().join(format!("ironstone-families-{}", std::process::id()));
    let options = Options::default().with_db(|db| db.create_if_missing = true);
    let db = Db::open(&dir, &options)?;

    // Messages by user and time; who is online, of which only the newest state counts.
    let mut messages = ColumnFamilyOptions::new();
    messages.compression = CompressionType::Zstd;
    messages.table.filter_policy = FilterPolicy::Bloom { bits_per_key: 10.0 };
    let messages = db.create_column_family("messages", &messages)?;
    let online = db.create_column_family("online", &ColumnFamilyOptions::new())?;

    // All of a batch is there after a crash, or nothing of it.
    for (user, time, text) in [("ann", 1, "hi"), ("bob", 2, "hello"), ("ann", 3, "bye")] {
        let mut batch = WriteBatch::new();
        batch
            .cf(&messages)
            .put(format!("{user}/{time:020}"), text)?;
        batch.cf(&online).put(user, time.to_string())?;
        db.write(&mut batch)?;
    }

    let read = ironstone::ReadOptions::default();
    println!("what ann wrote, the newest first:");
    for entry in db.cf(&messages).with(&read).prefix("ann/")?.rev() {
        let (key, value) = entry?;
        println!("  {} = {}", key.escape_ascii(), value.escape_ascii());
    }
    println!("who is online, up to b and without c:");
    for entry in db.cf(&online).with(&read).range("a".."c")? {
        let (key, value) = entry?;
        println!("  {} since {}", key.escape_ascii(), value.escape_ascii());
    }

    // A snapshot is the database as it is now, whatever is written afterwards.
    let before = ironstone::ReadOptions {
        snapshot: Some(db.snapshot()),
        ..ironstone::ReadOptions::default()
    };
    db.cf(&online).delete("ann")?;
    assert_eq!(db.cf(&online).get("ann")?, None);
    assert!(db.cf(&online).with(&before).get("ann")?.is_some());

    drop(before);
    db.close()?;
    // A database with families is opened with all of them.
    let db = Db::open_all(&dir, &options)?;
    let names: Vec<_> = db
        .column_families()
        .iter()
        .map(|f| f.name().to_owned())
        .collect();
    println!("families: {}", names.join(", "));
    db.close()?;
    std::fs::remove_dir_all(&dir).map_err(|e| ironstone::Error::io("remove", &dir, e))
}
