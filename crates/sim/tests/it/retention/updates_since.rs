//! The log as a source of updates.

use super::*;

#[test]
fn every_batch_comes_once_in_order() {
    let place = Place::new();
    let mut options = place.options();
    options.db.wal_ttl_seconds = 1000;
    let db = Db::open(&place.db, &options).unwrap();
    let family = db.default_column_family();
    for i in 0..60u32 {
        let mut batch = WriteBatch::new();
        for k in 0..=i % 3 {
            batch.put(format!("{i}-{k}"), vec![0; 3000]).unwrap();
        }
        batch.put_log_data(b"mine").unwrap();
        let written = batch.data().to_vec();
        let o = WriteOptions {
            sync: i % 2 == 0,
            ..WriteOptions::default()
        };
        let next = db.latest_sequence_number() + 1;
        db.with(&o).write(&mut batch).unwrap();
        // The batch as the user wrote it, without the fence that a synced one gets.
        let it = db.get_updates_since(next).unwrap();
        assert_eq!(it.sequence(), next);
        assert_eq!(it.batch().data()[8..], written[8..]);
        if i % 20 == 19 {
            db.cf(&family).flush().unwrap();
        }
    }
    let all = updates(&db, 0);
    assert_eq!(all.len(), 60);
    let mut next = 1;
    for &(sequence, count) in &all {
        assert_eq!(sequence, next);
        next += u64::from(count);
    }
    assert_eq!(next, db.latest_sequence_number() + 1);
    // A start inside a batch gives the batch that contains it.
    for from in 1..next {
        let first = updates(&db, from)[0];
        assert!(first.0 <= from && from < first.0 + u64::from(first.1));
    }
    let e = db.get_updates_since(next).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NotFound);
    // The same after a reopen.
    drop(db);
    let db = Db::open(&place.db, &options).unwrap();
    assert_eq!(updates(&db, 0), all);
    drop(db);
    let db = Db::open_read_only(&place.db, &options).unwrap();
    assert_eq!(updates(&db, 0), all);
}

#[test]
fn its_end_is_not_the_end() {
    let place = Place::new();
    let db = Db::open(&place.db, &place.options()).unwrap();
    let mut it = db.get_updates_since(0).unwrap();
    assert!(!it.valid());
    for i in 1..=50 {
        it.next();
        assert!(!it.valid());
        it.status().unwrap();
        db.put(format!("key{i}"), vec![0; 5000]).unwrap();
        it.next();
        assert_eq!(it.sequence(), i);
        if i % 10 == 0 {
            db.flush().unwrap(); // deletes the log that the iterator reads
        }
    }
}

#[test]
fn what_is_not_submitted_is_not_seen() {
    let place = Place::new();
    let mut options = place.options();
    options.db.manual_wal_flush = true;
    let db = Db::open(&place.db, &options).unwrap();
    db.put("a", "1").unwrap();
    let mut it = db.get_updates_since(1).unwrap();
    assert!(!it.valid());
    db.flush_wal(false).unwrap();
    it.next();
    assert_eq!(it.sequence(), 1);
    db.put("b", "2").unwrap();
    it.next();
    assert!(!it.valid());
    it.status().unwrap();
    db.flush_wal(true).unwrap();
    it.next();
    assert_eq!(it.sequence(), 2);
}

#[test]
fn gaps_are_errors() {
    let place = Place::new();
    let db = Db::open(&place.db, &place.options()).unwrap();
    let family = db.default_column_family();
    let unlogged = WriteOptions {
        disable_wal: true,
        ..WriteOptions::default()
    };
    db.put("a", "1").unwrap();
    db.cf(&family).with(&unlogged).put("b", "2").unwrap();
    let mut it = db.get_updates_since(1).unwrap();
    it.next();
    assert!(!it.valid());
    it.status().unwrap();
    db.put("c", "3").unwrap();
    it.next();
    let e = it.status().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Corruption, "{e}");
    assert!(e.to_string().contains("2 to 2 are missing"), "{e}");
    it.next();
    assert!(!it.valid() && it.status().is_err());
    assert_eq!(updates(&db, 2), [(3, 1)], "what is there from 2 on");
    // A log that was deleted.
    let mut it = db.get_updates_since(3).unwrap();
    put_and_flush(&db, "d");
    put_and_flush(&db, "e");
    db.put("f", "6").unwrap();
    it.next();
    assert_eq!(it.sequence(), 4, "the open log is still there");
    it.next();
    let e = it.status().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NotFound, "{e}");
    assert_eq!(updates(&db, 1), [(6, 1)]);
}

#[test]
fn damage_in_the_live_log_is_told() {
    let place = Place::new();
    let db = Db::open(&place.db, &place.options()).unwrap();
    for i in 0..10 {
        db.put(format!("key{i}"), [i; 100]).unwrap();
    }
    let path = place.logs.join(&logs_in(&place.logs)[0]);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let mut it = db.get_updates_since(1).unwrap();
    while it.valid() {
        it.next();
    }
    let e = it.status().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Corruption, "{e}");
    assert_eq!(e.path(), Some(&*path));
}

/// A reader follows writers while the logs that it reads are switched, deleted or archived.
#[test]
fn a_reader_races_writers() {
    for (archive, manual) in [(true, false), (true, true), (false, false)] {
        let place = Place::new();
        let mut options = place.options();
        options.db.wal_ttl_seconds = if archive { 1000 } else { 0 };
        options.db.manual_wal_flush = manual;
        options.cf.write_buffer_size = 64 << 10;
        options.cf.disable_auto_compactions = true;
        let default = ColumnFamilyDescriptor::new("default", options.cf.clone());
        let db = Db::open_cf(&place.db, &options, &[default]).unwrap();
        race(&db, archive, manual);
    }
}

const WRITERS: u64 = 2;
const BATCHES: u64 = 1500;

fn race(db: &Db, archive: bool, manual: bool) {
    let running = AtomicU64::new(WRITERS);
    std::thread::scope(|scope| {
        for w in 0..WRITERS {
            let running = &running;
            scope.spawn(move || {
                for i in 0..BATCHES {
                    let mut batch = WriteBatch::new();
                    for k in 0..=i % 3 {
                        batch.put(format!("{w}-{i}-{k}"), vec![1; 100]).unwrap();
                    }
                    let o = WriteOptions {
                        sync: i % 7 == 0,
                        ..WriteOptions::default()
                    };
                    db.with(&o).write(&mut batch).unwrap();
                    if manual && i % 50 == 0 {
                        db.flush_wal(false).unwrap();
                    }
                }
                db.flush_wal(false).unwrap();
                running.fetch_sub(1, Ordering::SeqCst);
            });
        }
        let mut it = db.get_updates_since(0).unwrap();
        let mut next = 1;
        // Without an archive, a new iterator begins with the oldest log that is left.
        let mut begins = !archive;
        loop {
            let done = running.load(Ordering::SeqCst) == 0;
            if !it.valid() {
                it.next();
            }
            if let Some(batch) = it.take() {
                if std::mem::take(&mut begins) {
                    assert!(batch.sequence() >= next);
                    next = batch.sequence();
                }
                assert_eq!(batch.sequence(), next);
                next += u64::from(batch.count());
                assert!(next <= db.latest_sequence_number() + 1, "not published");
            } else if let Err(e) = it.status() {
                assert!(!archive && e.kind() == ErrorKind::NotFound, "{e}");
                it = db.get_updates_since(next).unwrap();
                begins = true;
            } else if done {
                break;
            }
        }
        assert!(!archive || next == db.latest_sequence_number() + 1);
    });
}
