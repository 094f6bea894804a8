//! A database of which one file is anything, made of anything.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ironstone_fuzz::database(data));
