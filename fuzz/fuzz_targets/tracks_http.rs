//! What is asked of the tracking service over HTTP, made of anything.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ironstone_fuzz::tracks_http(data));
