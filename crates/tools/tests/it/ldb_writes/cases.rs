//! The command lines of the comparison with `ldb`, run one after the other on both sides.

/// A line, and its standard input.
pub(super) type Case = (&'static str, &'static str);

/// Lines that begin without a database.
pub(super) const LOADS: &[Case] = &[
    ("--db=db load", "a ==> 1\n"),
    (
        "--db=db load --create_if_missing",
        "a ==> 1\nb ==> 2\nab ==> 3\n",
    ),
    ("load --db=db", "c ==> 1\nbad\nd ==> 2"),
    (
        "--db=db load",
        "c : 1\n ==> empty\ne ==> \nf ==> x ==> y\ng==>1\nh ==>2\n\ni ==> 3\r\n",
    ),
    ("--db=db load", ""),
    (
        "--db=db load",
        "Keys in range: 2\nCreated bg thread 0x7f\n Keys in range: 3\n",
    ),
    (
        "--db=db load --hex",
        "0x61 ==> 0x3132\n0x00FF ==> 0x00\n0x6A ==> 0x\n",
    ),
    (
        "--db=db load --hex",
        "0x6b31 ==> 0x31\nzz ==> 0x31\n0x6b32 ==> 0x32\n",
    ),
    ("--db=db load --key_hex", "0x6c ==> 0x31\n"),
    ("--db=db load --value_hex", "m ==> 0x31\n"),
    ("--db=db load --key_hex", "0x6 ==> 31\n"),
    ("--db=db load --disable_wal", "n ==> 1\no ==> 2\n"),
    ("--db=db load --bulk_load", "p ==> 1\n"),
    ("--db=db load --compact", "q ==> 1\nbad\n"),
    (
        "--db=db load --bulk_load --disable_wal --compact",
        "z ==> 1\na ==> 7\n",
    ),
    ("--db=db load --column_family=nope", "r ==> 1\n"),
    ("--db=db load --no_such_flag", "r ==> 1\n"),
    ("load", "r ==> 1\n"),
    ("--db=db create_column_family two", ""),
    ("--db=db load --column_family=two", "in ==> two\n"),
    ("--db=db scan --column_family=two", ""),
    (
        "--db=bulk load --create_if_missing --bulk_load",
        "s ==> 1\nt ==> 2\n",
    ),
    ("--db=bulk load --bulk_load", "u ==> 1\n"),
    ("--db=bulk scan", ""),
    ("--db=db singledelete", ""),
    ("--db=db singledelete q", ""),
    ("--db=db singledelete q q", ""),
    ("--db=db singledelete nothere", ""),
    ("--db=db singledelete 0x62 --hex", ""),
    ("--db=db singledelete zz --hex", ""),
    ("--db=db singledelete x --column_family=nope", ""),
    ("--db=db singledelete in --column_family=two", ""),
    ("--db=db scan --column_family=two", ""),
    ("--db=none singledelete x", ""),
    ("singledelete x", ""),
];

/// On a database with the keys b and zz and the families default and two.
pub(super) const TABLES: &[Case] = &[
    ("--db=db write_extern_sst x.sst", "a ==> 1\nb ==> 2\n"),
    (
        "--db=db write_extern_sst x.sst",
        "a ==> 1\nb ==> 3\nc ==> 4\n",
    ),
    ("--db=db write_extern_sst y.sst", "b ==> 1\na ==> 2\n"),
    ("--db=db write_extern_sst y.sst", "b ==> 1\nb ==> 2\n"),
    ("--db=db write_extern_sst z.sst", "bad\nf ==> 2\nbad\n"),
    ("--db=db write_extern_sst y.sst", "bad\n"),
    ("--db=db write_extern_sst y.sst", ""),
    ("--db=db write_extern_sst", "d ==> 2\n"),
    ("write_extern_sst y.sst", "d ==> 2\n"),
    ("--db=none write_extern_sst y.sst", "d ==> 2\n"),
    ("--db=db write_extern_sst y.sst w.sst", "d ==> 2\n"),
    ("--db=db write_extern_sst nodir/y.sst", "d ==> 2\n"),
    ("--db=db write_extern_sst h.sst --hex", "0x65 ==> 0x3332\n"),
    ("--db=db write_extern_sst i.sst --hex", "65 ==> 0x3332\n"),
    (
        "--db=db write_extern_sst i.sst --column_family=nope",
        "d ==> 2\n",
    ),
    (
        "--db=db write_extern_sst two.sst --column_family=two",
        "d ==> 2\n",
    ),
    ("--db=db ingest_extern_sst", ""),
    ("--db=db ingest_extern_sst x.sst", ""),
    ("--db=db ingest_extern_sst x.sst", ""),
    ("--db=db ingest_extern_sst x.sst z.sst", ""),
    ("--db=db ingest_extern_sst nothere.sst", ""),
    ("--db=db ingest_extern_sst empty.sst", ""),
    ("--db=db ingest_extern_sst text.sst", ""),
    ("--db=db ingest_extern_sst two.sst", ""),
    ("--db=db ingest_extern_sst two.sst --column_family=two", ""),
    ("--db=db ingest_extern_sst two.sst --column_family=nope", ""),
    ("--db=db scan --column_family=two", ""),
    ("--db=db ingest_extern_sst h.sst --move_files", ""),
    ("--db=db ingest_extern_sst h.sst", ""),
    (
        "--db=db ingest_extern_sst z.sst --move_files=true --snapshot_consistency \
         --allow_global_seqno --allow_blocking_flush",
        "",
    ),
    ("--db=db ingest_extern_sst x.sst --no-such", ""),
    (
        "--db=db ingest_extern_sst x.sst --allow_global_seqno=false",
        "",
    ),
    (
        "--db=db ingest_extern_sst x.sst --allow_global_seqno=no",
        "",
    ),
    (
        "--db=db ingest_extern_sst x.sst --allow_global_seqno=false --write_global_seqno=false",
        "",
    ),
    ("--db=db put b 9", ""),
    (
        "--db=db ingest_extern_sst x.sst --allow_blocking_flush=true",
        "",
    ),
    ("--db=db ingest_extern_sst x.sst --ingest_behind", ""),
    ("--db=db ingest_extern_sst x.sst --ingest_behind=false", ""),
    (
        "--db=db ingest_extern_sst x.sst --snapshot_consistency=false",
        "",
    ),
    (
        "--db=db ingest_extern_sst x.sst --write_global_seqno=false",
        "",
    ),
    ("--db=db ingest_extern_sst x.sst --write_global_seqno", ""),
    ("--db=new ingest_extern_sst x.sst", ""),
    ("--db=new ingest_extern_sst x.sst --create_if_missing", ""),
    ("--db=new scan", ""),
    ("ingest_extern_sst x.sst", ""),
];

/// On the same database.
pub(super) const COPIES: &[Case] = &[
    ("--db=db checkpoint", ""),
    ("--db=db checkpoint --checkpoint_dir=", ""),
    ("--db=db checkpoint --checkpoint_dir=cp", ""),
    ("--db=db checkpoint --checkpoint_dir=cp", ""),
    ("checkpoint --db=db --checkpoint_dir=./cp2", ""),
    ("--db=none checkpoint --checkpoint_dir=cp3", ""),
    ("checkpoint --checkpoint_dir=cp3", ""),
    ("--db=db checkpoint --checkpoint_dir=cp3 --no_such", ""),
    ("--db=cp scan", ""),
    ("--db=cp scan --column_family=two", ""),
    ("--db=cp2 list_column_families", ""),
    ("--db=db backup", ""),
    ("--db=db backup --backup_dir=", ""),
    ("--db=db backup --backup_dir=bk", ""),
    ("--db=db put later 1", ""),
    (
        "--db=db backup --backup_dir=bk --num_threads=2 --stderr_log_level=0",
        "",
    ),
    ("--db=db backup --backup_dir=bk --num_threads=x", ""),
    ("--db=db backup --backup_dir=bk --stderr_log_level=6", ""),
    ("--db=db backup --backup_dir=bk --stderr_log_level=-1", ""),
    ("--db=db backup --backup_dir=bk --stderr_log_level=x", ""),
    ("--db=none backup --backup_dir=bk3", ""),
    ("backup --backup_dir=bk3", ""),
    ("--db=r1 restore", ""),
    ("--db=r1 restore --backup_dir=bk", ""),
    ("--db=r1 scan", ""),
    ("--db=r1 scan --column_family=two", ""),
    ("--db=r1 put gone 1", ""),
    (
        "--db=r1 restore --backup_dir=bk --num_threads=3 --stderr_log_level=5",
        "",
    ),
    ("--db=r1 scan", ""),
    ("--db=r2 restore --backup_dir=none", ""),
    ("--db=r2 restore --backup_dir=emptydir", ""),
    ("--db=r2 restore --backup_dir=emptybackups", ""),
    ("--db=r2 restore --backup_dir=bk --stderr_log_level=7", ""),
];

/// On a database with tables on several levels. `LAST` is the number of the newest table.
pub(super) const LEVELS: &[Case] = &[
    ("--db=db reduce_levels", ""),
    ("--db=db reduce_levels --new_levels=0", ""),
    ("--db=db reduce_levels --new_levels=-3", ""),
    ("--db=db reduce_levels --new_levels=x", ""),
    ("--db=db reduce_levels --new_levels=", ""),
    (
        "--db=db reduce_levels --new_levels=1 --print_old_levels",
        "",
    ),
    ("--db=db reduce_levels --print_old_levels", ""),
    ("--db=none reduce_levels --new_levels=3", ""),
    ("reduce_levels --new_levels=3", ""),
    (
        "--db=db reduce_levels --new_levels=3 --column_family=nope",
        "",
    ),
    (
        "--db=db reduce_levels --new_levels=9 --print_old_levels",
        "",
    ),
    (
        "--db=db reduce_levels --new_levels=3 --print_old_levels",
        "",
    ),
    ("--db=db change_compaction_style", ""),
    (
        "--db=db change_compaction_style --old_compaction_style=0",
        "",
    ),
    (
        "--db=db change_compaction_style --new_compaction_style=1",
        "",
    ),
    (
        "--db=db change_compaction_style --old_compaction_style=0 --new_compaction_style=0",
        "",
    ),
    (
        "--db=db change_compaction_style --old_compaction_style=1 --new_compaction_style=1",
        "",
    ),
    (
        "--db=db change_compaction_style --old_compaction_style=0 --new_compaction_style=2",
        "",
    ),
    (
        "--db=db change_compaction_style --old_compaction_style=2 --new_compaction_style=1",
        "",
    ),
    (
        "--db=db change_compaction_style --old_compaction_style=x --new_compaction_style=1",
        "",
    ),
    (
        "--db=db change_compaction_style --old_compaction_style=1 --new_compaction_style=0",
        "",
    ),
    (
        "--db=none change_compaction_style --old_compaction_style=0 --new_compaction_style=1",
        "",
    ),
    (
        "change_compaction_style --old_compaction_style=0 --new_compaction_style=1",
        "",
    ),
    (
        "--db=db change_compaction_style --old_compaction_style=0 --new_compaction_style=1 \
         --column_family=nope",
        "",
    ),
    ("--db=db update_manifest", ""),
    ("--db=db update_manifest --update_temperatures=false", ""),
    ("--db=db update_manifest --update_temperatures=x", ""),
    ("--db=none update_manifest --update_temperatures", ""),
    ("update_manifest", ""),
    ("--db=db update_manifest --update_temperatures", ""),
    ("--db=db unsafe_remove_sst_file", ""),
    ("--db=db unsafe_remove_sst_file x", ""),
    ("--db=db unsafe_remove_sst_file 12x", ""),
    ("--db=db unsafe_remove_sst_file -1", ""),
    ("--db=db unsafe_remove_sst_file 0", ""),
    ("--db=db unsafe_remove_sst_file 1 2", ""),
    ("--db=db unsafe_remove_sst_file 99999999999999999999", ""),
    ("--db=db unsafe_remove_sst_file 999999", ""),
    ("--db=none unsafe_remove_sst_file 12", ""),
    ("unsafe_remove_sst_file 12", ""),
    ("--db=db unsafe_remove_sst_file LAST", ""),
    ("--db=db unsafe_remove_sst_file LAST", ""),
    (
        "--db=db update_manifest --update_temperatures --verbose",
        "",
    ),
    // How many levels are in use here depends on whether a compaction began while an earlier line had the database open.
    ("--db=db reduce_levels --new_levels=2", ""),
    ("--db=db reduce_levels --new_levels=2", ""),
    ("--db=db checkconsistency", ""),
];
