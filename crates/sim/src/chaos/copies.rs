//! Copies of the database, and secondary instances: they must open, and show no more than was written.

use ironstone::{BackupEngine, BackupEngineOptions, CreateBackupOptions, Db};

use super::helper::Helper;
use super::ledger::SUMS;
use super::life::DIR;
use super::worker::{check_sum, sum_key};

/// Backups that are kept.
const BACKUPS: u32 = 2;

/// Creates a checkpoint, and checks it.
pub(super) fn checkpoint(helper: &mut Helper) {
    let name = helper.new_name("checkpoint");
    let dir = helper.outside.join(name);
    let flush_at = [0, 10_000, u64::MAX][helper.rng.below(3) as usize];
    let create = |db: &Db| db.create_checkpoint(&dir, flush_at);
    if helper.tools.run("create_checkpoint", create).is_none() || helper.own_order {
        return;
    }
    let options = &helper.tools.arena.options;
    let open = |_: &Db| Db::open_read_only(&dir, options);
    if let Some(copy) = helper.tools.run("open of a checkpoint", open) {
        look(helper, &copy);
    }
}

/// Runs a secondary instance for a while.
pub(super) fn follow(helper: &mut Helper) {
    if helper.own_order {
        return;
    }
    let name = helper.new_name("secondary");
    let dir = helper.outside.join(name);
    let options = &helper.tools.arena.options;
    let open = |_: &Db| Db::open_as_secondary(DIR, &dir, options);
    let Some(other) = helper.tools.run("open_as_secondary", open) else {
        return;
    };
    for _ in 0..3 {
        let catch_up = |_: &Db| other.try_catch_up_with_primary();
        helper.tools.run("try_catch_up_with_primary", catch_up);
        look(helper, &other);
    }
}

/// Checks that the counters of the default family are not higher than the attempted additions.
fn look(helper: &Helper, copy: &Db) {
    for sum in 0..SUMS {
        let get = |_: &Db| copy.get(sum_key(sum));
        let Some(found) = helper.tools.run("get from a copy", get) else {
            continue;
        };
        let most = helper.tools.arena.promises.attempted(sum);
        if let Err(text) = check_sum(sum, found.as_deref(), 0, most) {
            helper.tools.arena.fail(format!("in a copy: {text}"));
        }
    }
}

/// Creates a backup, and deletes old ones.
pub(super) fn backup(helper: &mut Helper) {
    let dir = helper.outside.join(&helper.backups);
    let mut how = BackupEngineOptions::new(dir);
    how.share_table_files = helper.rng.one_in(2);
    let env = &helper.tools.arena.options.env;
    let open = |_: &Db| BackupEngine::open(&how, env);
    let Some(mut engine) = helper.tools.run("BackupEngine::open", open) else {
        return;
    };
    let trouble = std::sync::Arc::clone(&helper.tools.arena.trouble);
    let options = CreateBackupOptions {
        flush_before_backup: helper.rng.one_in(2),
        progress_callback: Some(Box::new(move || trouble.maybe_panic())),
    };
    let create = |db: &Db| engine.create_new_backup(db, options);
    let made = helper.tools.run("create_new_backup", create);
    if let Some(id) = made {
        let verify = |_: &Db| engine.verify_backup(id, true);
        helper.tools.run("verify_backup", verify);
    }
    let purge = |_: &Db| engine.purge_old_backups(BACKUPS);
    helper.tools.run("purge_old_backups", purge);
}
