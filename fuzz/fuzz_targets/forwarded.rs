//! Passes inputs of libFuzzer to the check that the gate runs with random ones.
#![no_main]

#[path = "../../crates/wire/tests/fuzz/forwarded.rs"]
mod forwarded;

libfuzzer_sys::fuzz_target!(|data: &[u8]| forwarded::check(data));
