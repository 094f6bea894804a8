//! A whole database of which one file is anything.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use ironstone::{Db, Env, Options, WriteBatch};

use crate::frozen::{DIR, Frozen};
use crate::{mend, split};

/// A small database: two tables on two levels, a log with a batch.
struct Sound {
    files: Frozen,
    manifest: String,
    log: (String, u32),
    table: String,
    options: String,
}

static SOUND: LazyLock<Sound> = LazyLock::new(|| make().expect("a database can be made"));

fn make() -> ironstone::Result<Sound> {
    let home = tempfile::tempdir().expect("a place for temporary files");
    let mut options = Options::default();
    options.db.create_if_missing = true;
    let db = Db::open(home.path(), &options)?;
    for n in 0..100 {
        db.put(format!("key{n:03}"), format!("value {n}"))?;
    }
    db.compact_range(None, None)?;
    db.delete_range("key010", "key020")?;
    db.put("key050", "new")?;
    db.flush()?;
    let mut batch = WriteBatch::new();
    batch.put("key060", "newest")?;
    batch.delete("key061")?;
    db.write(&mut batch)?;
    db.close()?;
    let mut files = Frozen::default();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(home.path()).expect("it was just made") {
        let path = entry.expect("it was just made").path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_file() && name != "LOCK" && !name.starts_with("LOG") {
            files = files.with(&name, std::fs::read(&path).expect("it was just written"));
            names.push(name);
        }
    }
    names.sort();
    let find = |start: &str, end: &str| {
        let is = |n: &&String| n.starts_with(start) && n.ends_with(end);
        names
            .iter()
            .rfind(is)
            .expect("every database has one")
            .clone()
    };
    let log = find("", ".log");
    let number = log
        .trim_end_matches(".log")
        .parse()
        .expect("it is a number");
    Ok(Sound {
        manifest: find("MANIFEST-", ""),
        log: (log, number),
        table: find("", ".sst"),
        options: find("OPTIONS-", ""),
        files,
    })
}

/// Each file of the sound database, with the byte that says which it is.
pub fn seeds() -> Vec<Vec<u8>> {
    let sound = &*SOUND;
    let names = [
        ("CURRENT", 0),
        (&*sound.options, 1),
        (&*sound.table, 2 | 8),
        (&*sound.log.0, 3 | 8),
        (&*sound.manifest, 5 | 8),
    ];
    let seed = |(name, how): (&str, u8)| {
        let file = sound.files.file(name).expect("it is there");
        let mut bytes = vec![0; file.len().expect("it is in memory") as usize];
        file.read_at(&mut bytes, 0).expect("it is in memory");
        bytes.push(how);
        bytes
    };
    names.map(seed).into()
}

/// Opens a database of which one file has these bytes, reads all of it, and closes it.
pub fn database(data: &[u8]) {
    let Some((how, content)) = split(data) else {
        return;
    };
    let sound = &*SOUND;
    let mut bytes = content.to_vec();
    let mended = how & 8 != 0;
    let name = match how & 7 {
        0 => "CURRENT",
        1 => &sound.options,
        2 => {
            if mended {
                mend::table(&mut bytes);
            }
            &sound.table
        }
        3 | 4 => {
            if mended {
                mend::log(&mut bytes, Some(sound.log.1));
            }
            &sound.log.0
        }
        _ => {
            if mended {
                mend::log(&mut bytes, None);
            }
            &sound.manifest
        }
    };
    let mut options = Options {
        env: Env {
            fs: Arc::new(sound.files.with(name, bytes)),
            ..Env::default()
        },
        ..Options::default()
    };
    options.cf.write_buffer_size = 1 << 20;
    options.cf.arena_block_size = 64 << 10;
    options.cf.table.no_block_cache = true;
    options.db.max_background_jobs = 1;
    let Ok(db) = Db::open_read_only(Path::new(DIR), &options) else {
        return;
    };
    let mut it = db.iterator().unwrap();
    it.seek_to_first();
    for _ in 0..1000 {
        if !it.valid() {
            break;
        }
        let _ = db.get(it.key());
        it.next();
    }
    drop(it);
    let _ = db.close();
}
