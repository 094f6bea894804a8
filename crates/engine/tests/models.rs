//! Models of the small parts that share memory without locks. Only with `--cfg loom`: `cargo xtask loom`.
#![cfg(loom)]

use base::sync::model;
use ironstone::models;

macro_rules! models {
    ($($name:ident($($preemptions:expr)?) = $body:path;)*) => {$(
        #[test]
        fn $name() {
            model(stringify!($name), None $(.or(Some($preemptions)))?, $body);
        }
    )*};
}

/// How often threads are interrupted in the two models that take minutes: once where `IRONSTONE_MODELS=short`.
fn of_long_ones() -> usize {
    match std::env::var("IRONSTONE_MODELS").as_deref() {
        Ok("short") => 1,
        _ => 2,
    }
}

// How often threads are interrupted at most; without a number as often as they can be.
models! {
    a_chunk_is_shared() = memtable::models::a_chunk_is_shared;
    a_chunk_is_full() = memtable::models::a_chunk_is_full;
    what_is_visible_is_found(3) = models::what_is_visible_is_found;
    entries_are_whole(2) = memtable::models::entries_are_whole;
    slots_move_beside_a_reader(2) = memtable::models::slots_move_beside_a_reader;
    the_index_is_cut_beside_a_reader(2) = memtable::models::the_index_is_cut_beside_a_reader;
    the_index_is_cut_beside_a_pass(2) = memtable::models::the_index_is_cut_beside_a_pass;
    a_lower_block_is_cut_beside_a_reader(1) = memtable::models::a_lower_block_is_cut_beside_a_reader;
    two_insert(of_long_ones()) = memtable::models::two_insert;
    two_insert_below_a_root(of_long_ones()) = memtable::models::two_insert_below_a_root;
    watermark_wakes(3) = models::watermark_wakes;
    watermark_calls_back(3) = models::watermark_calls_back;
    groups_are_visible_in_their_order(3) = models::groups_are_visible_in_their_order;
    the_gate_is_closed(3) = models::the_gate_is_closed;
    writers_queue(2) = models::writers_queue;
    writers_barge(2) = models::writers_barge;
    a_pinned_block_stays(3) = models::a_pinned_block_stays;
    a_block_comes_back(3) = models::a_block_comes_back;
    an_entry_is_used_again(3) = models::an_entry_is_used_again;
    marks_keep_their_order() = log::models::marks_keep_their_order;
}
