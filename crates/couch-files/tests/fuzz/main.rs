//! Runs the fuzz targets of this crate with random inputs; `fuzz/` runs them with libFuzzer.

#[path = "../support/builder.rs"]
mod builder;
mod couch_header;
mod couch_term;
mod couch_tree;

use builder::{Builder, atom, bin, chain, int, list, root, tuple, whole};
use settee_model::testing::fuzz;

const WORDS: &[&str] =
    &["\0\0\0\x01", "\0\0\0\0", "\x68\x02", "\x6a", "\x6c\0\0\0\x02", "\x61\x01", "\x6d\0\0\0\x01a", "\x01", "h\x03"];

#[test]
fn any_term() {
    let term = tuple(&[list(&[bin("a"), int(1 << 40)]), atom("true"), list(&[]), vec![107, 0, 2, 1, 2]]);
    let object = whole(&tuple(&[list(&[tuple(&[bin("a"), term.clone()])])]));
    fuzz(&[&whole(&term), &object], WORDS, couch_term::check);
}

#[test]
fn any_header() {
    let mut builder = Builder::default();
    let nil = || atom("nil");
    builder.chunk(b"abc", true);
    builder.header(&[int(8), int(9), int(0), root(1), nil(), nil(), int(0), nil(), nil(), int(1000)]);
    let term = tuple(&[atom("db_header"), int(6), int(9), int(0), root(1), nil(), nil(), int(0), nil(), nil(), int(1)]);
    fuzz(&[&builder.file, &whole(&term)], WORDS, couch_header::check);
}

#[test]
fn any_tree() {
    let mut builder = Builder::default();
    builder.file.push(0);
    let body = builder.chunk(&whole(&tuple(&[tuple(&[list(&[])]), list(&[])])), false);
    let record = |id: &str| (bin(id), tuple(&[int(1), int(0), int(1), chain(b"ab", body)]));
    let leaves = [builder.leaf(&[record("a"), record("b")]), builder.leaf(&[record("c"), record("d")])];
    let root = builder.inner(&[(bin("b"), leaves[0]), (bin("d"), leaves[1])]);
    let file = [&(root as u16).to_be_bytes()[..], &builder.file].concat();
    fuzz(&[&file], WORDS, couch_tree::check);
}
