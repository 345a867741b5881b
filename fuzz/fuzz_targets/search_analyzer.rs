//! Passes inputs of libFuzzer to the check that the gate runs with random ones.
#![no_main]

#[path = "../../crates/search/tests/fuzz/analyzer.rs"]
mod analyzer;

libfuzzer_sys::fuzz_target!(|data: &[u8]| analyzer::check(data));
