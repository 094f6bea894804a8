//! Data that goes by itself: values with a time to live, and a compaction filter that decides.
//!
//! ```text
//! cargo run --example ttl_and_filters
//! ```

#![expect(clippy::print_stdout, reason = "an example prints what it does")]

use ironstone::{Db, FilterDecision, FilterValue, Options, Result, compaction_filter};

fn main() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("ironstone-ttl-{}", std::process::id()));
    let mut options = Options::default();
    options.db.create_if_missing = true;

    // Sessions live for an hour. What is older goes with the next compaction of its table.
    let sessions = Db::open_with_ttl(dir.join("sessions"), &options, 3600)?;
    sessions.put("session/1", "ann")?;
    println!(
        "session/1 is {:?}, for an hour",
        sessions
            .get("session/1")?
            .map(|v| v.escape_ascii().to_string())
    );
    sessions.close()?;

    // A filter sees each value that a compaction writes. It is asked without regard to snapshots.
    options.cf.compaction_filter = Some(compaction_filter(
        "Tidy",
        |_level, key, value| match value {
            _ if key.starts_with(b"tmp/") => FilterDecision::Remove,
            FilterValue::Value(v) if v.len() > 8 => FilterDecision::ChangeValue(v[..8].to_vec()),
            _ => FilterDecision::Keep,
        },
    ));
    let db = Db::open(dir.join("filtered"), &options)?;
    db.put("tmp/1", "goes")?;
    db.put("note/1", "is cut behind eight bytes")?;
    db.put("note/2", "stays")?;
    db.flush()?;
    db.compact_range(None, None)?;
    for entry in db.range(..)? {
        let (key, value) = entry?;
        println!("{} = {}", key.escape_ascii(), value.escape_ascii());
    }
    assert_eq!(db.get("tmp/1")?, None);
    assert_eq!(db.get("note/1")?.as_deref(), Some(&b"is cut b"[..]));
    db.close()?;
    std::fs::remove_dir_all(&dir).map_err(|e| ironstone::Error::io("remove", &dir, e))
}
