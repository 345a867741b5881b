//! Passes inputs of libFuzzer to the check that the gate runs with random ones.
#![no_main]

#[path = "../../crates/auth/tests/fuzz/credentials.rs"]
mod credentials;

libfuzzer_sys::fuzz_target!(|data: &[u8]| credentials::check(data));
