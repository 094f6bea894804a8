//! Looks that are interrupted, and entities that cannot be read.

use std::sync::mpsc::channel;

use base::sync::Mutex;
use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::geo::position::at;
use crate::keep::house::tests::{DAY, MINUTE, NOW, World, eventually, failure, name, open};
use crate::model::point::Point;
use crate::model::report::Report;
use crate::store::faulty::{Act, count};
use crate::write::{Ack, owes_events};

fn key(info: &Info, entity: &str) -> Vec<u8> {
    let (fleet, entity) = (info.fleet, name(entity).number(0));
    EntityKey { fleet, entity }.to_bytes().to_vec()
}

impl World {
    fn sends(&self, info: &Info, entity: &str, all: impl IntoIterator<Item = (i64, f64)>) {
        let reports = all.into_iter().map(|(time, lat)| Report {
            entity: name(entity),
            time: Some(Time(NOW + time)),
            point: Point::at(at(lat, 18.0)),
        });
        let ticket = self.tracks.report_of(info, reports.collect(), Ack::Durable);
        let outcomes = ticket.unwrap().wait().outcomes;
        assert!(outcomes.iter().all(Result::is_ok));
    }

    fn count(&self, family: Family, first: &[u8]) -> usize {
        count(&*self.tracks.store().view(), family, first)
    }

    fn keeps(&self, info: &Info, (keep, thin): (u32, u32)) {
        let set = self.tracks.change_fleet(&info.name, |settings| {
            (settings.keep_days, settings.thin_days) = (keep, thin);
            Ok(())
        });
        set.unwrap();
    }
}

/// Rows that were hidden once are dropped even if the fleet keeps everything from then on.
#[test]
fn what_is_hidden_is_dropped_also_where_all_is_kept_later() {
    let world = open();
    let info = world.report("f", "old", 11);
    world.is_ill(|act| match act {
        Act::Reclaim(..) => Err(failure("of this test")),
        _ => Ok(()),
    });
    world.tracks.keep_house().unwrap_err();
    world.is_ill(|_| Ok(()));
    world.keeps(&info, (0, 0));
    assert!(world.is_there(&info, "old"));
    assert_eq!(world.tracks.keep_house().unwrap().entities, 1);
    assert!(!world.is_there(&info, "old"));
}

/// Events of an entity whose points were all too old can still be erased.
#[test]
fn events_of_who_was_too_old_can_be_erased() {
    let world = open();
    let info = world.moved();
    world.keeps(&info, (10, 0));
    // The points arrive late, but their events are of now.
    let old = [58.0, 59.0, 58.5, 59.0].into_iter().enumerate();
    let old: Vec<_> = old
        .map(|(n, lat)| (n as i64 * 3_600_000_000 - 40 * DAY, lat))
        .collect();
    world.sends(&info, "late", old);
    let events = || {
        let (store, events) = (world.tracks.store(), world.tracks.events());
        let all = events.read(&**store, info.fleet, 0, 1000).unwrap();
        all.iter().filter(|event| event.entity == "late").count()
    };
    assert_eq!(events(), 3);
    assert_eq!(world.tracks.keep_house().unwrap().entities, 1);
    assert_eq!(events(), 3);
    let late = name("late");
    assert!(world.tracks.erase(&info, &late).unwrap());
    assert_eq!(events(), 0);
    assert!(!world.tracks.erase(&info, &late).unwrap());
    let of = (info.fleet, late.number(0));
    assert!(!owes_events(&*world.tracks.store().view(), of).unwrap());
}

/// An error of one entity does not stop the entities after it.
#[test]
fn what_cannot_be_read_of_one_entity_keeps_no_other() {
    let world = open();
    let info = world.report("f", "a", 11);
    world.report("f", "b", 11);
    world.report("f", "c", 11);
    let bad = key(&info, "b");
    world.is_ill(move |act| match act {
        Act::Rows(Family::Default, key) if key.starts_with(&bad) => Err(failure("a bad sector")),
        _ => Ok(()),
    });
    let said = world.tracks.keep_house().unwrap_err().to_string();
    assert!(said.contains("a bad sector"), "{said}");
    let there = || ["a", "b", "c"].map(|entity| world.is_there(&info, entity));
    assert_eq!(there(), [false, true, false]);
    world.is_ill(|_| Ok(()));
    assert_eq!(world.tracks.keep_house().unwrap().entities, 1);
    assert_eq!(there(), [false; 3]);
    // Rows that were read before reading fails are handled.
    let mut keys = ["d", "e", "f"].map(|entity| {
        world.report("f", entity, 11);
        key(&info, entity)
    });
    keys.sort_unstable();
    let second = keys[1].clone();
    world.is_ill(move |act| match act {
        Act::Row(Family::Latest, key) if key == second => Err(failure("a bad block")),
        _ => Ok(()),
    });
    let said = world.tracks.keep_house().unwrap_err().to_string();
    assert!(said.contains("a bad block"), "{said}");
    let left = keys.iter().map(|key| world.count(Family::Latest, key));
    assert_eq!(left.collect::<Vec<_>>(), [0, 0, 1]);
}

#[test]
fn where_many_fail_the_next_look_goes_on_behind_them() {
    let world = open();
    let info = world.report("f", "new", 1);
    let names: Vec<String> = (0..100).map(|n| format!("old{n}")).collect();
    let mut keys = Vec::new();
    for entity in &names {
        world.sends(&info, entity, [(-11 * DAY, 59.0)]);
        keys.push(key(&info, entity));
    }
    keys.sort_unstable();
    let bad = keys[AT_ONCE].clone();
    world.is_ill(move |act| match act {
        Act::Rows(Family::Default, key) if key < &bad[..] => Err(failure("a bad disk")),
        _ => Ok(()),
    });
    world.tracks.keep_house().unwrap_err();
    let left = || {
        keys.iter()
            .filter(|key| world.count(Family::Latest, key) > 0)
            .count()
    };
    assert_eq!(left(), 100);
    assert_eq!(world.tracks.keep_house().unwrap().entities, 36);
    assert_eq!(left(), AT_ONCE);
    // And then from the beginning.
    world.is_ill(|_| Ok(()));
    assert_eq!(world.tracks.keep_house().unwrap().entities, 64);
}

/// Some entities with a day that can be thinned.
fn drives(world: &World, entities: &[&str]) -> Arc<Info> {
    let info = world.report("f", "new", 0);
    world.keeps(&info, (0, 0));
    for entity in entities {
        let all = (0..20).map(|n| (n * 60_000_000 - 12 * DAY, 59.0 + n as f64 / 1000.0));
        world.sends(&info, entity, all);
    }
    info
}

#[test]
fn an_entity_that_cannot_be_thinned_keeps_no_other_and_is_thinned_later() {
    let world = open();
    let all = ["a", "b", "c", "d"];
    let info = drives(&world, &all);
    let bad = key(&info, "b");
    world.is_ill(move |act| match act {
        Act::Row(Family::Default, key) if key.starts_with(&bad) => Err(failure("a bad sector")),
        _ => Ok(()),
    });
    world.keeps(&info, (0, 5));
    let said = world.tracks.keep_house().unwrap_err().to_string();
    assert!(said.contains("a bad sector"), "{said}");
    world.is_ill(|_| Ok(()));
    let counts = || all.map(|entity| world.count(Family::Default, &key(&info, entity)));
    assert_eq!(counts(), [2, 20, 2, 2]);
    assert_eq!(world.tracks.keep_house().unwrap().thinned, 18);
    assert_eq!(counts(), [2; 4]);
}

/// Runs `act` when rows of a family are next read.
fn meets(
    world: &World,
    family: Family,
    also: impl Fn(Act<'_>) + Send + Sync + 'static,
) -> impl FnOnce(&mut dyn FnMut()) {
    let (tell, told) = channel();
    let (go, gone) = channel::<()>();
    let (gone, is_met) = (Mutex::new(gone), AtomicBool::new(false));
    let clock = Arc::clone(&world.clock);
    world.is_ill(move |act| {
        also(act);
        if matches!(act, Act::Rows(of, _) if of == family) && !is_met.swap(true, Ordering::Relaxed)
        {
            tell.send(()).unwrap();
            lock(&gone).recv().unwrap();
            // As if it had taken long.
            clock.0.fetch_add(MINUTE / 20, Ordering::Relaxed);
        }
        Ok(())
    });
    move |run| {
        told.recv_timeout(Duration::from_secs(20)).unwrap();
        run();
        go.send(()).unwrap();
    }
}

/// After an erasure, thinning goes on without waiting for an hour.
#[test]
fn thinning_goes_on_behind_an_erasure() {
    let world = open();
    let all = ["a", "b", "c", "d"];
    let info = drives(&world, &all);
    world.sends(&info, "x", [(0, 59.0)]);
    world.keeps(&info, (0, 5));
    // The fleet keeps everything, so that this is thinning.
    let meet = meets(&world, Family::Latest, |_| ());
    world.go_on(61);
    meet(&mut || assert!(world.tracks.erase(&info, &name("x")).unwrap()));
    eventually("it is merged", || world.left() == 0);
    let counts = || all.map(|entity| world.count(Family::Default, &key(&info, entity)));
    eventually("all is thinned", || counts() == [2; 4]);
    eventually("all is well", || world.failed().is_empty());
}

/// An erasure does not wait until all old rows are dropped.
#[test]
fn an_erasure_waits_for_no_retention() {
    let world = open();
    let info = world.report("f", "x", 1);
    for n in 0..200 {
        world.sends(&info, &format!("old{n}"), [(-11 * DAY, 59.0)]);
    }
    let left = || world.count(Family::Latest, &info.fleet.prefix());
    assert_eq!(left(), 201);
    let x = key(&info, "x");
    let (swept, then) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None)));
    let (count, at) = (Arc::clone(&swept), Arc::clone(&then));
    let also = move |act: Act<'_>| match act {
        Act::Rows(Family::Default, key) if !key.starts_with(&x) => {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Act::Compact(..) => {
            lock(&at).get_or_insert(count.load(Ordering::Relaxed));
        }
        _ => {}
    };
    let meet = meets(&world, Family::Latest, also);
    world.go_on(61);
    meet(&mut || assert!(world.tracks.erase(&info, &name("x")).unwrap()));
    eventually("it is merged", || world.left() == 0);
    eventually("what is too old goes", || left() == 0);
    // The old entities were erased after the compaction.
    assert_eq!(
        (*lock(&then), swept.load(Ordering::Relaxed)),
        (Some(0), 200)
    );
    eventually("all is well", || world.failed().is_empty());
}

/// An entity is erased although its newest point, or a block with its points, is damaged.
#[test]
fn who_cannot_be_read_is_erased_all_the_same() {
    // The newest point is damaged; its name is, too; its cell is, too; a block with its points is.
    for (bytes, is_block) in [(20, false), (13, false), (3, false), (0, true)] {
        let world = open();
        let info = world.report("f", "other", 1);
        let times = (0..10).map(|n| (n * 60_000_000 - 2 * DAY, 59.0 + n as f64 / 10.0));
        world.sends(&info, "a", times);
        let key = key(&info, "a");
        let store = &**world.tracks.store();
        let latest = store.get(Family::Latest, &key).unwrap().unwrap();
        if !is_block {
            let mut batch = Batch::new(store);
            batch.put(Family::Latest, &key, &latest[..bytes]).unwrap();
            batch.write(None).unwrap();
        }
        let (its, count) = (key.clone(), AtomicU64::new(0));
        world.is_ill(move |act| match act {
            Act::Row(Family::Default, key) if is_block && key.starts_with(&its) => {
                let nth = count.fetch_add(1, Ordering::Relaxed);
                let bad = Err(Error::corruption("a damaged block"));
                if nth == 4 { bad } else { Ok(()) }
            }
            _ => Ok(()),
        });
        assert!(world.tracks.erase(&info, &name("a")).unwrap(), "{bytes}");
        world.is_ill(|_| Ok(()));
        assert!(!world.tracks.erase(&info, &name("a")).unwrap());
        let fleet = info.fleet.prefix();
        assert_eq!(world.count(Family::Default, &key), 0);
        assert_eq!(world.count(Family::Latest, &fleet), 1);
        assert_eq!(world.count(Family::Geohash, &fleet), 1);
        eventually("it is merged", || world.left() == 0);
    }
}

/// Damaged rows in `meta` that note visits which may have no point.
fn has_damaged_notes(world: &World, of: (Fleet, Entity)) -> Vec<u8> {
    let places = [0_u32, 1].map(|bucket| [bucket.to_be_bytes(), [7; 4]].concat());
    has_damaged_rows(world, of, (b"visits/", &places))
}

/// Two rows of an entity in `meta`; reading fails after the first one. Returns the common prefix of
/// such rows of its fleet.
fn has_damaged_rows(
    world: &World,
    (fleet, entity): (Fleet, Entity),
    (first, endings): (&'static [u8], &[Vec<u8>; 2]),
) -> Vec<u8> {
    let store = &**world.tracks.store();
    let mut batch = Batch::new(store);
    for ending in endings {
        let key = EntityKey { fleet, entity }.to_bytes();
        let key = [first, &key, ending].concat();
        batch.put(Family::Meta, &key, &[]).unwrap();
    }
    batch.write(None).unwrap();
    world.is_ill(move |act| match act {
        Act::Row(Family::Meta, key) if key.starts_with(first) => {
            Err(Error::corruption("a damaged block of notes"))
        }
        _ => Ok(()),
    });
    [first, &fleet.prefix()].concat()
}

/// Writes an old event of a fleet. Returns its key.
fn has_old_event(world: &World, info: &Info) -> [u8; 12] {
    let event = fence::key(info.fleet, 5);
    let mut batch = Batch::new(&**world.tracks.store());
    batch.put(Family::Events, &event, b"of long ago").unwrap();
    batch.write(None).unwrap();
    event
}

/// An erasure is finished although the notes of the entity are damaged.
#[test]
fn who_has_notes_that_cannot_be_read_is_erased_all_the_same() {
    let world = open();
    let info = world.report("f", "a", 1);
    let notes = has_damaged_notes(&world, (info.fleet, name("a").number(0)));
    assert!(world.tracks.erase(&info, &name("a")).unwrap());
    assert!(!world.is_there(&info, "a"));
    world.is_ill(|_| Ok(()));
    assert_eq!(world.count(Family::Meta, &notes), 0);
    eventually("it is merged", || world.left() == 0);
}

/// Damaged notes do not keep other old rows of their fleet.
#[test]
fn notes_that_cannot_be_read_keep_nothing_else() {
    let world = open();
    let info = world.report("f", "old", 11);
    let event = has_old_event(&world, &info);
    let notes = has_damaged_notes(&world, (info.fleet, Entity(1)));
    let said = world.tracks.keep_house().unwrap_err().to_string();
    assert!(said.contains("a damaged block of notes"), "{said}");
    assert!(!world.is_there(&info, "old"));
    let event = world.tracks.store().get(Family::Events, &event);
    assert_eq!(event.unwrap(), None);
    // The first note was readable, but was kept with the others.
    world.is_ill(|_| Ok(()));
    assert_eq!(world.count(Family::Meta, &notes), 1);
    world.tracks.keep_house().unwrap();
    assert_eq!(world.count(Family::Meta, &notes), 0);
}

/// An old entity is erased although its notes are damaged.
#[test]
fn who_is_too_old_goes_though_its_notes_cannot_be_read() {
    let world = open();
    let info = world.report("f", "old", 11);
    let notes = has_damaged_notes(&world, (info.fleet, name("old").number(0)));
    // The notes of the fleet that are too old are looked for afterwards.
    drop(world.tracks.keep_house());
    assert!(!world.is_there(&info, "old"));
    world.is_ill(|_| Ok(()));
    assert_eq!(world.count(Family::Meta, &notes), 0);
}

/// Damaged rows that say that events may be left.
fn owes_damaged_events(world: &World, of: (Fleet, Entity)) -> Vec<u8> {
    let ids = [4_u64, 5].map(|id| id.to_be_bytes().to_vec());
    has_damaged_rows(world, of, (b"events/", &ids))
}

/// An erasure ends although the rows that say which events are left are damaged.
#[test]
fn an_erasure_ends_though_it_cannot_be_read_what_it_owes() {
    let world = open();
    let info = world.moved(); // there are events, so that the erasure records those up to the last
    world.sends(&info, "a", [(-DAY, 58.0)]);
    let owed = owes_damaged_events(&world, (info.fleet, name("a").number(0)));
    assert!(world.tracks.erase(&info, &name("a")).unwrap());
    assert!(!world.tracks.erase(&info, &name("a")).unwrap());
    world.is_ill(|_| Ok(()));
    assert_eq!(world.count(Family::Meta, &owed), 0);
}

/// Readable rows before a damaged one are deleted.
#[test]
fn owed_events_before_a_damaged_row_are_gone_with_their_fleet_s() {
    let world = open();
    let info = world.report("f", "a", 1);
    has_old_event(&world, &info);
    let owed = owes_damaged_events(&world, (info.fleet, Entity(1)));
    world.tracks.keep_house().unwrap_err();
    world.is_ill(|_| Ok(()));
    assert_eq!(world.count(Family::Meta, &owed), 1);
    world.tracks.keep_house().unwrap();
    assert_eq!(world.count(Family::Meta, &owed), 0);
}

/// Events before a damaged one are erased.
#[test]
fn events_before_one_that_cannot_be_read_are_erased() {
    let world = open();
    let info = world.moved();
    let crossings = [58.0, 59.0, 58.5, 59.0].into_iter().enumerate();
    let crossings = crossings.map(|(n, lat)| (n as i64 * 3_600_000_000 - DAY, lat));
    world.sends(&info, "a", crossings.collect::<Vec<_>>());
    let ids = || {
        let (store, events) = (world.tracks.store(), world.tracks.events());
        let all = events.read(&**store, info.fleet, 0, 1000).unwrap();
        let its = all.iter().filter(|event| event.entity == "a");
        its.map(|event| event.id).collect::<Vec<_>>()
    };
    let before = ids();
    assert!(before.len() > 1, "{before:?}");
    let bad = fence::key(info.fleet, *before.last().unwrap() - 1);
    let at = before.len() - 1;
    world.is_ill(move |act| match act {
        Act::Row(Family::Events, key) if key == bad => Err(Error::corruption("a damaged block")),
        _ => Ok(()),
    });
    world.tracks.erase(&info, &name("a")).unwrap_err();
    world.is_ill(|_| Ok(()));
    assert_eq!(ids(), before.get(at..).unwrap());
    assert!(world.tracks.erase(&info, &name("a")).unwrap());
    assert!(ids().is_empty());
}

/// A look checks after each fleet whether to stop, also if nothing is to be erased.
#[test]
fn a_look_stops_behind_each_fleet() {
    let world = open();
    for fleet in ["f", "g", "h"] {
        world.report(fleet, "a", 1);
    }
    let shared = &world.tracks.house().shared;
    let mut look = shared.look();
    for count in 1..=3 {
        assert!(!shared.go_on(&mut look, &|| true));
        let marks = crate::keep::marks(&*world.tracks.store().view()).unwrap();
        assert_eq!(marks.len(), count);
    }
    assert!((0..4).any(|_| shared.go_on(&mut look, &|| true)));
}

/// A look goes by the settings of when it reaches a fleet: a mistake that was taken back deletes nothing.
#[test]
fn settings_that_were_taken_back_delete_nothing() {
    let world = open();
    let info = world.report("f", "old", 11);
    let shared = &world.tracks.house().shared;
    let mut look = shared.look();
    world.keeps(&info, (365, 0));
    assert!(shared.go_on(&mut look, &|| false));
    assert_eq!(look.end().unwrap().entities, 0);
    assert!(world.is_there(&info, "old"));
}

/// The next slice does not repeat the search of the one before.
#[test]
fn what_was_found_is_not_looked_for_again() {
    let world = open();
    let info = world.report("f", "new", 1);
    for n in 0..200 {
        world.sends(&info, &format!("old{n}"), [(-11 * DAY, 59.0)]);
    }
    let reads = Arc::new(AtomicU64::new(0));
    let its = Arc::clone(&reads);
    world.is_ill(move |act| {
        if matches!(act, Act::Rows(Family::Latest, _)) {
            its.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    });
    let shared = &world.tracks.house().shared;
    let mut look = shared.look();
    // One chunk each time.
    let nth = AtomicU64::new(0);
    let stops = || nth.fetch_add(1, Ordering::Relaxed) % 2 == 1;
    let slices = (1..10).find(|_| shared.go_on(&mut look, &stops));
    assert!(slices.is_some_and(|slices| slices > 3), "{slices:?}");
    assert_eq!(reads.load(Ordering::Relaxed), 1);
    assert_eq!(look.end().unwrap().entities, 200);
}

/// Thinning goes on within an entity that takes longer than a slice.
#[test]
fn thinning_goes_on_within_an_entity() {
    let world = open();
    let info = world.report("f", "new", 0);
    world.keeps(&info, (0, 0));
    for day in 7..12 {
        let all = (0..20).map(|n| (n * 60_000_000 - day * DAY, 59.0 + n as f64 / 1000.0));
        world.sends(&info, "a", all);
    }
    world.keeps(&info, (0, 5));
    let shared = &world.tracks.house().shared;
    let mut look = shared.look();
    let mut counts = Vec::new();
    for _ in 0..20 {
        let is_done = shared.go_on(&mut look, &|| true);
        counts.push(world.count(Family::Default, &key(&info, "a")));
        if is_done {
            break;
        }
    }
    counts.dedup();
    assert_eq!(counts, [100, 82, 64, 46, 28, 10]);
    assert_eq!(look.end().unwrap().thinned, 90);
    // The fleet is known to be thinned.
    let again = world.tracks.keep_house().unwrap();
    assert_eq!(again.thinned, 0);
}
