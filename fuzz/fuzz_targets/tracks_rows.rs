//! Rows and scratch files of the tracking service, made of anything.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ironstone_fuzz::tracks_rows(data));
