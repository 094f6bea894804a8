//! A CSV file of positions, made of anything.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ironstone_fuzz::tracks_csv(data));
