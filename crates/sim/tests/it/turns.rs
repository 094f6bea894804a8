//! Ironstone and RocksDB take turns on one directory: the short form of `cargo xtask soak switches`.

use sim::oracle;
use sim::turns::{Plan, SWITCHES_VARIABLE, play};

fn switches() -> u64 {
    std::env::var(SWITCHES_VARIABLE).map_or(30, |n| n.parse().unwrap())
}

fn game(seed: u64, classic: bool) {
    let Some(lib) = oracle::rocksdb() else { return };
    let plan = Plan {
        seed,
        switches: switches(),
        classic,
    };
    match play(plan, &lib, &|_| {}) {
        Ok(tally) => eprintln!("turns on one directory: {tally}"),
        Err(what) => panic!("{what}"),
    }
}

#[test]
fn ironstone_and_three_releases_take_turns() {
    game(1, true);
}

#[test]
fn ironstone_and_the_newest_formats_take_turns() {
    game(2, false);
}
