//! OPTIONS files that cannot be written.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ironstone::Db;
use sim::dirs;
use sim::hooked::HookedFs;

use super::{NoOptions, log_of, newest_options, options, set, wait_until};

/// A family was created or dropped, and then the OPTIONS file could not be written. The call returned an
/// error although the change was done; a second try was refused. The file was not written later.
#[test]
fn families_come_and_go_although_the_options_file_cannot_be_written() {
    let dir = dirs::scratch().unwrap();
    let hook = Arc::new(NoOptions::default());
    let mut o = options();
    o.env.fs = HookedFs::new(Arc::<NoOptions>::clone(&hook));
    let has_new = || newest_options(dir.path()).1.contains("[CFOptions \"new\"]");
    let db = Db::open(dir.path(), &o).unwrap();
    hook.0.store(true, Ordering::SeqCst);
    let new = db.create_column_family("new", &o.cf).unwrap();
    db.cf(&new).put("key", "value").unwrap();
    assert!(!has_new());
    assert!(log_of(dir.path()).contains("Unable to persist options"));
    // It is written in the background.
    hook.0.store(false, Ordering::SeqCst);
    wait_until("the OPTIONS file", has_new);
    // It is written at close.
    hook.0.store(true, Ordering::SeqCst);
    db.drop_column_family(&new).unwrap();
    drop(new);
    assert!(db.column_family("new").is_none() && has_new());
    db.pause_background_work().unwrap(); // so that the background does not write it first
    hook.0.store(false, Ordering::SeqCst);
    db.close().unwrap();
    assert!(!has_new());
    let left = dirs::files(dir.path()).unwrap();
    let left: Vec<_> = left.iter().filter(|(n, _)| n.contains("dbtmp")).collect();
    assert!(left.is_empty(), "{left:?}");
    let db = Db::open(dir.path(), &o).unwrap();
    assert!(db.column_family("new").is_none());
}

/// Options were changed while the OPTIONS file could not be written. They were in no file until the next
/// change.
#[test]
fn changed_options_are_written_when_that_can_be_done_again() {
    let dir = dirs::scratch().unwrap();
    let hook = Arc::new(NoOptions::default());
    let mut o = options();
    o.env.fs = HookedFs::new(Arc::<NoOptions>::clone(&hook));
    let db = Db::open(dir.path(), &o).unwrap();
    hook.0.store(true, Ordering::SeqCst);
    set(&db, &[("ttl", "77")]).unwrap_err();
    let same = [("max_background_jobs", "5")];
    db.set_db_options(&same).unwrap_err();
    // Nothing changes any more, but the file is still not written.
    db.set_db_options(&same).unwrap_err();
    hook.0.store(false, Ordering::SeqCst);
    wait_until("the OPTIONS file", || {
        let (_, text) = newest_options(dir.path());
        text.contains("ttl=77\n") && text.contains("max_background_jobs=5\n")
    });
    db.set_db_options(&same).unwrap();
}
