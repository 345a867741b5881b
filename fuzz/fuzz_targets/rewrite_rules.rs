//! Passes inputs of libFuzzer to the check that the gate runs with random ones.
#![no_main]

#[path = "../../crates/design/tests/fuzz/rewrite_rules.rs"]
mod rewrite_rules;

libfuzzer_sys::fuzz_target!(|data: &[u8]| rewrite_rules::check(data));
