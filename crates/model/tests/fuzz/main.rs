//! Runs the fuzz targets of this crate with random inputs; `fuzz/` runs the same checks with libFuzzer.

mod collate;
mod json;
mod rev_tree;

use settee_model::testing::fuzz;

const TEXTS: &[&[u8]] = &[
    br#"{"_id":"a","_rev":"1-00000000000000000000000000000001","a":[1,-2.5e3,"\u00e9\ud83d\ude00",null,true],"b":{"a":{}}}"#,
    br#"[{"_deleted":true,"_attachments":{"x":{"stub":true,"digest":"md5-","revpos":1,"length":0}}},"z",0.1,1e400,-0]"#,
];

const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u",
    "\\ud800",
    "\u{e9}",
    "\u{1f600}",
    "null",
    "true",
    "false",
    "-",
    "0",
    "1e5",
    "1E-400",
    "123456789012345678901",
    "\"a\":",
    "\"_id\":\"b\"",
    "\"_rev\":\"2-b\"",
    " ",
    "\n",
    "\t",
];

#[test]
fn any_json() {
    fuzz(TEXTS, WORDS, json::check);
}

#[test]
fn any_two_values() {
    fuzz(
        &[b"[1,\"a\"][1,\"b\"]  ", br#"{"a":[null,false]}{"a":[null,true]}"#, b"1234512346", b"\"aA\"\"Aa\""],
        WORDS,
        collate::check,
    );
}

#[test]
fn any_revision_trees() {
    fuzz(&[b"\x00\x01abcd\x01\x82abcd\x07\x04dcba", &[0; 24]], &["\u{80}"], rev_tree::check);
}
