//! Passes inputs of libFuzzer to the check that the gate runs with random ones.
#![no_main]

#[path = "../../crates/couch-files/tests/fuzz/couch_header.rs"]
mod couch_header;

libfuzzer_sys::fuzz_target!(|data: &[u8]| couch_header::check(data));
