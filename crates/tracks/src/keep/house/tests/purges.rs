//! What was erased is gone from the tables.

use super::*;

/// A purge that fails delays neither the others nor retention.
#[test]
fn a_purge_that_fails_keeps_nothing_waiting() {
    for does_panic in [false, true] {
        let world = open();
        let info = world.report("f", "a", 1);
        world.report("f", "b", 1);
        world.report("f", "old", 11);
        let number = name("a").number(0);
        let bad = EntityKey {
            fleet: info.fleet,
            entity: number,
        };
        let tries = Arc::new(AtomicU64::new(0));
        let its = Arc::clone(&tries);
        world.is_ill(move |act| match act {
            Act::Compact(Family::Default, key) if key == bad.to_bytes() => {
                let nth = its.fetch_add(1, Ordering::Relaxed) + 1;
                assert!(!does_panic, "a bug of this test, {nth}");
                Err(failure(&format!("a damaged table, {nth}")))
            }
            _ => Ok(()),
        });
        assert!(world.tracks.erase(&info, &name("a")).unwrap());
        eventually("it fails", || !world.failed().is_empty());
        assert!(world.tracks.erase(&info, &name("b")).unwrap());
        eventually("others are merged", || world.left() == 1);
        let text = if does_panic {
            "a bug of this test"
        } else {
            "a damaged table"
        };
        let said = world.failed();
        assert!(said.contains(text) && said.contains("erased"), "{said}");
        world.go_on(61);
        eventually("what is too old goes", || !world.is_there(&info, "old"));
        // At 0, 61, then after pauses that double: 2 minutes, 4, 8. A pause begins when the try has failed, not when
        // it began.
        let has_failed = |count: u64| {
            let nth = format!("{text}, {count}");
            tries.load(Ordering::Relaxed) == count && world.failed().contains(&nth)
        };
        eventually("it is tried again", || has_failed(2));
        for (minutes, count) in [(1, 2), (1, 3), (2, 3), (2, 4), (7, 4), (1, 5)] {
            world.go_on(minutes);
            std::thread::sleep(Duration::from_millis(20));
            eventually("it is tried then", || has_failed(count));
        }
        world.is_ill(|_| Ok(()));
        world.go_on(60);
        eventually("it is merged", || world.left() == 0);
        eventually("all is well", || world.failed().is_empty());
        assert_eq!(lock(&world.merged).len(), 2);
    }
}

/// The former places of an entity in the index and its events are compacted away, too, not only its name and points.
#[test]
fn nothing_of_who_was_erased_is_left_in_tables() {
    let world = open();
    let info = world.moved();
    let before = world.in_tables(Family::Visits);
    assert!(world.tables_have(SECRET.as_bytes()));
    assert!(world.tracks.erase(&info, &name(SECRET)).unwrap());
    eventually("it is merged", || world.left() == 0);
    // Tables are deleted once nobody reads them.
    eventually("its name is gone", || !world.tables_have(SECRET.as_bytes()));
    assert!(world.tables_have(b"other"));
    // Five of the other one are left: its first point was replaced by one elsewhere, and its visit with it.
    assert_eq!((before, world.in_tables(Family::Visits)), (11, 5));
    assert_eq!(world.failed(), "");
}

/// A compaction under an old view preserves deleted rows: the purge counts as done only after the view is gone.
#[test]
fn a_purge_is_done_once_no_view_has_what_was_erased() {
    let world = open();
    let info = world.moved();
    let view = world.tracks.view();
    let rows = || count(&*view, Family::Events, &[]);
    assert_eq!(rows(), 7);
    assert!(world.tracks.erase(&info, &name(SECRET)).unwrap());
    for _ in 0..3 {
        world.go_on(1);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!((world.left(), world.failed()), (1, String::new()));
    // Other compactions meanwhile: everything is then in tables of the lowest level, which a plain compaction leaves
    // alone.
    world.db.flush().unwrap();
    for family in Family::ALL {
        world.merge(family);
    }
    assert_eq!(rows(), 7);
    assert!(world.tables_have(SECRET.as_bytes()));
    // The last place of the entity, which is in the row of its purge.
    let (fleet, entity) = (info.fleet, name(SECRET).number(0));
    let cell = Cell::of(at(58.2, 18.0));
    let last = CellKey {
        fleet,
        cell,
        entity,
    };
    assert!(world.tables_have(&last.to_bytes()));
    drop(view);
    world.go_on(1);
    eventually("it is merged", || world.left() == 0);
    eventually("its name is gone", || !world.tables_have(SECRET.as_bytes()));
    eventually("its place is gone", || !world.tables_have(&last.to_bytes()));
}

/// The rows of a purge say where the entity was: their tables are compacted, too.
#[test]
fn what_the_rows_of_a_purge_said_is_gone_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    {
        let engine = Engine::open_with(dir.path(), plain()).unwrap();
        let mut batch = Batch::new(&engine);
        let range = Range::new(Family::Geohash, b"where it was", b"where it was");
        note(&engine, &mut batch, (Fleet(1), Entity(7)), &[range]).unwrap();
        batch.write(None).unwrap();
        let meta = engine.db().column_family(Family::Meta.name()).unwrap();
        engine.db().cf(&meta).compact_range(None, None).unwrap();
        let found = purges(&*engine.view(), None, 10, &mut |e| panic!("{e}")).unwrap();
        // The process ends before the tables of the rows are compacted.
        are_done(&engine, &found[0].keys).unwrap();
    }
    assert!(tables_have(dir.path(), b"where it was"));
    let world = open_in(dir);
    eventually("it is gone", || !world.tables_have(b"where it was"));
}

/// Rows that no view sees do not wait for the views of rows that are deleted later.
#[test]
fn rows_of_purges_do_not_wait_for_views_of_later_ones() {
    let world = open();
    let info = world.report("f", "a", 1);
    world.report("f", "b", 1);
    let (merged, is_bad) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let (its, bad, clock) = (
        Arc::clone(&merged),
        Arc::clone(&is_bad),
        Arc::clone(&world.clock),
    );
    world.is_ill(move |act| {
        match act {
            // A pause ten times as long follows.
            Act::Compact(Family::Visits, _) => drop(clock.0.fetch_add(MINUTE, Ordering::Relaxed)),
            Act::Compact(Family::Meta, _) if bad.load(Ordering::Relaxed) => {
                return Err(failure("a damaged table of meta"));
            }
            Act::Compact(Family::Meta, _) => drop(its.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        }
        Ok(())
    });
    is_bad.store(true, Ordering::Relaxed);
    assert!(world.tracks.erase(&info, &name("a")).unwrap());
    eventually("it fails", || world.failed().contains("of meta"));
    assert_eq!(world.left(), 0);
    assert!(world.tracks.erase(&info, &name("b")).unwrap());
    let view = world.tracks.view();
    world.go_on(11);
    eventually("the next ones are deleted", || world.left() == 0);
    is_bad.store(false, Ordering::Relaxed);
    let merged = || {
        world.go_on(1);
        merged.load(Ordering::Relaxed)
    };
    let before = merged();
    eventually("the first ones are merged", || merged() > before);
    let before = merged();
    drop(view);
    eventually("the next ones are", || merged() > before);
    let before = merged();
    let looks = lock(&world.clock.1).len();
    eventually("it looks", || lock(&world.clock.1).len() > looks + 3);
    assert_eq!(merged(), before);
}
