//! Runs the fuzz target of this crate with random inputs; `fuzz/` runs the same check with libFuzzer.

mod rewrite_rules;

const RULES: &[&[u8]] = &[
    b"[{\"from\":\"/docs/:id\",\"to\":\"../../:id\",\"query\":{\"key\":[\":id\",1]}}]\n/docs/..?a=b",
    b"[{\"from\":\"*\",\"to\":\"_view/*\",\"method\":\"GET\",\"formats\":{\"a\":\"int\"}}]\n/x/../..",
    b"[{\"to\":\"../../*\"}]\n/..//%2e%2e/../../other",
];

const WORDS: &[&str] = &[
    "..",
    "/",
    "../",
    ":id",
    ":a",
    "*",
    "%2e%2e",
    "%2F",
    "%252e",
    "?",
    "#",
    "&",
    "=",
    "\\u002e",
    "\"to\":",
    "\"from\":",
    "\n",
];

#[test]
fn any_rules_and_paths() {
    settee_model::testing::fuzz(RULES, WORDS, rewrite_rules::check);
}
