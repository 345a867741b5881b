//! Passes inputs of libFuzzer to the check that the gate runs with random ones.
#![no_main]

#[path = "../../crates/mango/tests/fuzz/selector.rs"]
mod selector;

libfuzzer_sys::fuzz_target!(|data: &[u8]| selector::check(data));
