//! Runs the fuzz targets of this crate with random inputs; `fuzz/` runs them with libFuzzer.

mod selector;

use settee_model::testing::fuzz;

#[test]
fn any_selector() {
    let seeds: &[&[u8]] = &[
        br#"{"a":{"$gt":1,"$in":[1,"x",null]},"$or":[{"b.c":{"$elemMatch":{"$not":{"k":{"$regex":"^x+"}}}}},{"$nor":[{"d":2}]}]}"#,
        br#"{"l.0":{"$elemMatch":{"0":{"$allMatch":{"$mod":[2,1]}}}},"$and":[{"m":{"$keyMapMatch":{"$eq":"b"}}},{"n":{"$size":3}}]}"#,
    ];
    let words = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"$and\":[",
        "\"$or\":[",
        "\"$not\":{",
        "\"$nor\":[",
        "\"$elemMatch\":{",
        "\"$allMatch\":{",
        "\"$keyMapMatch\":{",
        "\"$text\":\"x\"",
        "\"$regex\":\"(a*)*b\"",
        "\"$exists\":false",
        "\"$type\":\"null\"",
        "\"$beginsWith\":\"a\"",
        "\"$all\":[[1]]",
        "\"a\":",
        "\"0\":",
        "\"a.b\\\\.c\":",
        "1",
        "null",
        "true",
        "\"x\"",
        "{}",
        "[]",
        "-1e400",
    ];
    fuzz(seeds, &words, selector::check);
}
