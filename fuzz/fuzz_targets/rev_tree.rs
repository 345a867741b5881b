//! Passes inputs of libFuzzer to the check that the gate runs with random ones.
#![no_main]

#[path = "../../crates/model/tests/fuzz/rev_tree.rs"]
mod rev_tree;

libfuzzer_sys::fuzz_target!(|data: &[u8]| rev_tree::check(data));
