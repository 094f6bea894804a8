//! A log of writes, made of anything.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ironstone_fuzz::log(data));
