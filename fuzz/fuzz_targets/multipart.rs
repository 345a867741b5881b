//! Passes inputs of libFuzzer to the check that the gate runs with random ones.
#![no_main]

#[path = "../../crates/wire/tests/fuzz/multipart.rs"]
mod multipart;

libfuzzer_sys::fuzz_target!(|data: &[u8]| multipart::check(data));
