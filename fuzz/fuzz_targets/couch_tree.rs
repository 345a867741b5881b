//! Passes inputs of libFuzzer to the check that the gate runs with random ones.
#![no_main]

#[path = "../../crates/couch-files/tests/support/builder.rs"]
mod builder;
#[path = "../../crates/couch-files/tests/fuzz/couch_tree.rs"]
mod couch_tree;

libfuzzer_sys::fuzz_target!(|data: &[u8]| couch_tree::check(data));
