//! A worker's own keys in a table file that is made outside and ingested.

use std::collections::BTreeMap;

use ironstone::{IngestExternalFileOptions, SstFileWriter};

use super::ledger::{FAMILIES, Key, REVERSE, Reach, value};
use super::life::OUTSIDE;
use super::worker::{KEYS, Worker};

/// Makes a file with a few keys, and ingests it.
pub(super) fn run(worker: &mut Worker) {
    let family = worker.rng.below(FAMILIES as u64) as usize;
    let thread = worker.ledger.thread;
    let n = worker.ledger.next();
    let mut keys = BTreeMap::new();
    for _ in 0..=worker.rng.below(5) {
        let number = worker.rng.below(KEYS);
        let key = Key {
            family,
            logged: true,
            number,
        };
        keys.insert(key.text(thread), key);
    }
    let mut texts: Vec<&String> = keys.keys().collect();
    if family == REVERSE {
        texts.reverse();
    }
    let mut options = worker.tools.arena.options.clone();
    options.cf = worker.tools.db.cf(&worker.tools.families[family]).options();
    let path = format!("{OUTSIDE}/ingest-{thread}-{n}.sst");
    let bytes = value(thread, n, worker.ledger.value_bytes);
    let make = |_: &ironstone::Db| {
        options.env.fs.create_dir(OUTSIDE.as_ref())?;
        let mut file = SstFileWriter::new(&options);
        file.open(&path)?;
        for text in texts {
            file.put(text, &bytes)?;
        }
        file.finish().map(drop)
    };
    if worker.tools.run("SstFileWriter", make).is_none() {
        return;
    }
    for key in keys.values() {
        worker.ledger.attempt(n, *key, true);
    }
    let how = IngestExternalFileOptions {
        move_files: worker.rng.one_in(2),
        failed_move_fall_back_to_copy: true,
        ..IngestExternalFileOptions::default()
    };
    let promises = &worker.tools.arena.promises;
    let mut seen = promises.look();
    let handle = &worker.tools.families[family];
    let ingest = |db: &ironstone::Db| db.cf(handle).ingest_external_file(&[&path], &how);
    if worker.tools.run("ingest_external_file", ingest).is_some() {
        let keys: Vec<Key> = keys.into_values().collect();
        worker.ledger.succeeded(n, &keys);
        promises.returned(thread, n);
        seen.threads[thread] = n;
        promises.promise(Reach::Durable, &seen);
    }
}
