//! Passes inputs of libFuzzer to the check that the gate runs with random ones.
#![no_main]

#[path = "../../crates/model/tests/fuzz/json.rs"]
mod json;

libfuzzer_sys::fuzz_target!(|data: &[u8]| json::check(data));
