//! A query of OsmAnd or a message of Traccar Client, made of anything.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ironstone_fuzz::tracks_osmand(data));
