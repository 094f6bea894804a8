//! What a broker of MQTT sends, made of anything.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ironstone_fuzz::tracks_mqtt(data));
