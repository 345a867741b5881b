//! Built-in reductions equal those of CouchDB, and rereduce of partials equals reduce of all rows.

#![expect(clippy::unwrap_used, reason = "tests")]

use super::{Aggregate, is_builtin_reduce, overflow_of};
use crate::leaf::{EncodedLeaf, Group, Leaf, Row};
use crate::testing::NoLanguage;
use settee_model::testing::Random;

fn aggregate(name: &str) -> Aggregate {
    Aggregate::open(&name.into(), &NoLanguage::shared(), Default::default()).unwrap()
}

fn leaf(values: &[&str]) -> Leaf {
    let mut leaf = Leaf::default();
    for (index, value) in values.iter().enumerate() {
        let row_key = [&u16::try_from(index).unwrap().to_be_bytes()[..], b"id\0\0"].concat();
        leaf.push(Row { row_key: &row_key, sort_len: 2, key: b"0", value: value.as_bytes() });
    }
    leaf
}

fn text(aggregate: &Aggregate, stored: &[u8]) -> String {
    let mut out = Vec::new();
    aggregate.finish(stored, &mut out);
    String::from_utf8(out).unwrap()
}

fn reduced(name: &str, values: &[&str]) -> String {
    let mut aggregate = aggregate(name);
    let stored = aggregate.reduce(&[Group::whole(&leaf(values))]).unwrap().pop().unwrap();
    text(&aggregate, &stored)
}

#[test]
fn overflows_name_the_view_that_is_queried() {
    let stored =
        r#"{"reduce_overflow_error":"Reduce output must shrink more rapidly: input size: 67 output size: 81"}"#;
    let shown = r#"{"reduce_overflow_error":"Reduce output must shrink more rapidly: input size: 90 output size: 81 context: db/_design/t/_view/v"}"#;
    assert_eq!(overflow_of(stored.as_bytes(), "db/_design/t/_view/v").as_deref(), Some(shown));
    for other in ["1", r#"{"reduce_overflow_error":"mine"}"#, r#"{"reduce_overflow_error":7}"#] {
        assert_eq!(overflow_of(other.as_bytes(), "db/_design/t/_view/v"), None);
    }
}

#[test]
fn built_in_functions_answer_as_couchdb() {
    let check = |name: &str, values: &[&str], expected: &str| assert_eq!(reduced(name, values), expected, "{name}");
    check("_count", &["null", "\"x\"", "{}", "[]", "[1]"], "5");
    check("_sum", &["1", "2", "3", "4.5", "-7"], "3.5");
    check("_sum", &["1", "2"], "3");
    check("_sum", &["1e300", "1e300"], "2e+300");
    check("_sum", &["9007199254740993", "9007199254740993"], "18014398509481986");
    check("_sum", &["[1,2]", "[10,20]", "[1]", "[1,2,3]", "5", "[1,1]"], "[19,25,3]");
    check("_sum", &["5", "[1,1]"], "[6,1]");
    check("_sum", &["[]", "[1.5]"], "[1.5]");
    check("_sum", &[r#"{"y":2,"x":"any"}"#], r#"{"y":2,"x":"any"}"#);
    check("_sum", &[r#"{"x":1,"y":2}"#, r#"{"y":3,"z":4}"#], r#"{"x":1,"y":5,"z":4}"#);
    check("_sum", &[r#"{"n":{"m":1}}"#, r#"{"n":{"m":2,"k":5}}"#], r#"{"n":{"k":5,"m":3}}"#);
    let stats = r#"{"sum":3.5,"count":5,"min":-7,"max":4.5,"sumsqr":83.25}"#;
    check("_stats", &["1", "2", "3", "4.5", "-7"], stats);
    let places =
        r#"[{"sum":8,"count":3,"min":1,"max":5,"sumsqr":30},{"sum":35,"count":3,"min":5,"max":20,"sumsqr":525}]"#;
    check("_stats", &["[1,10]", "[2,20]", "[5,5]"], places);
    let before = r#"{"sum":10,"count":4,"min":1,"max":5,"sumsqr":30}"#;
    check("_stats", &[before, "7"], r#"{"sum":17,"count":5,"min":1,"max":7,"sumsqr":79}"#);
    check("_approx_count_distinct", &["1", "1", "1"], "3");
    check("_first", &["3", "1", "2"], "3");
    check("_last", &["3", "1", "2"], "2");
    check("_top_3", &["0", "7", "10", "3", "10", "9"], "[10,9,7]");
    check("_bottom_2", &["0", "7", "0", "3", "1"], "[0,1]");
    check("_top_100", &["\"a\"", "1", "null"], "[\"a\",1,null]");
}

#[test]
fn failed_reductions_are_stored_as_error_values() {
    let check = |name: &str, values: &[&str], cause: &str| {
        let error = reduced(name, values);
        assert!(error.starts_with(r#"{"error":"builtin_reduce_error","reason":"The _s"#), "{error}");
        assert!(error.ends_with(&format!(r#""caused_by":{cause}}}"#)), "{error}");
        let mut aggregate = aggregate(name);
        let partials = vec![error.as_bytes(), b"17"];
        assert_eq!(aggregate.rereduce(&[partials]).unwrap()[0], error.as_bytes());
    };
    check("_sum", &["1", "\"x\""], "\"x\"");
    check("_sum", &["5", r#"{"a":1}"#], r#"{"a":1}"#);
    check("_sum", &[r#"{"a":1}"#, "5"], "5");
    check("_sum", &[r#"{"a":1}"#, r#"{"a":null}"#], "null");
    check("_sum", &["[1,\"y\"]", "[1,2,3]"], "[\"y\"]");
    check("_stats", &["1", "\"x\""], "\"x\"");
    check("_stats", &["[1,2]", "[1]"], "[1]");
    let missing = reduced("_stats", &[r#"{"sum":1}"#]);
    assert!(missing.contains("user _stats input missing required field count"), "{missing}");
    let wide = format!("{{{}}}", (0..2000).map(|n| format!("\"k{n}\":1")).collect::<Vec<_>>().join(","));
    let overflow = reduced("_sum", &[&wide]);
    assert!(overflow.contains("Reduce output must shrink more rapidly: input size: "), "{overflow}");
}

#[test]
fn a_name_that_starts_with_a_built_in_function_is_one() {
    let exact = ["_sum", "_count", "_stats", "_approx_count_distinct", "_first", "_last", "_top_1", "_bottom_100"];
    let exact = exact.into_iter().chain(["_top_01", "_top_+1", "_bottom_0100"]);
    let longer = ["_sum\n", "_sum ", "_counter", "_statsorama", "_approx_count_distinct_", "_first1", "_last(1)"];
    for name in exact.chain(longer) {
        assert!(is_builtin_reduce(name), "{name}");
        assert!(Aggregate::open(&name.into(), &NoLanguage::shared(), Default::default()).is_ok(), "{name}");
    }
    let (unknown, no_rank) = (None, Some("invalid rank reducer"));
    let out_of_range = Some("rank value must be between 1 and 100");
    for (name, reason) in [
        ("_nosuch", unknown),
        ("_SUM", unknown),
        ("_su", unknown),
        ("_top", unknown),
        ("_top5", unknown),
        ("_Top_5", unknown),
        ("_bottom_", no_rank),
        ("_top_Foo", no_rank),
        ("_top_5x", no_rank),
        ("_top_ 5", no_rank),
        ("_top_1.5", no_rank),
        ("_top_-", no_rank),
        ("_top_0", out_of_range),
        ("_top_-0", out_of_range),
        ("_top_-5", out_of_range),
        ("_top_101", out_of_range),
        ("_bottom_99999999999999999999999", out_of_range),
    ] {
        assert!(!is_builtin_reduce(name), "{name}");
        let error = Aggregate::open(&name.into(), &NoLanguage::shared(), Default::default()).map(drop).unwrap_err();
        let unknown = format!("`{name}` is not a supported reduce function.");
        assert_eq!(error.to_string(), reason.unwrap_or(&unknown), "{name}");
    }
    assert!(!is_builtin_reduce("function(k, v) {}"));
}

fn random_value(random: &mut Random, kind: u64) -> String {
    let mut number = || match random.below(4) {
        0 => format!("{}.5", random.below(1000)),
        1 => format!("-{}", random.below(1000)),
        2 => random.below(1 << 20).to_string(),
        _ => random.below(10).to_string(),
    };
    match kind {
        0 | 1 => number(),
        2 => format!("[{},{}]", number(), number()),
        _ => format!(r#"{{"a":{},"b{}":{}}}"#, number(), number().len() % 3, number()),
    }
}

#[test]
fn rereducing_the_parts_is_reducing_the_whole() {
    let names = ["_sum", "_count", "_stats", "_approx_count_distinct", "_first", "_last", "_top_5", "_bottom_3"];
    for seed in 0..60 {
        let mut random = Random::of(seed);
        let kind = random.below(4);
        let count = random.below(400) + 1;
        let values: Vec<String> = (0..count).map(|_| random_value(&mut random, kind)).collect();
        let leaf = leaf(&values.iter().map(String::as_str).collect::<Vec<_>>());
        for name in names.iter().filter(|name| kind != 3 || **name != "_stats") {
            let mut aggregate = aggregate(name);
            let whole = aggregate.reduce(&[Group::whole(&leaf)]).unwrap();
            let mut groups = Vec::new();
            let mut start = 0;
            while start < leaf.len() {
                let end = leaf.len().min(start + 1 + usize::try_from(random.below(90)).unwrap());
                groups.push(Group { leaf: &leaf, rows: start..end });
                start = end;
            }
            let partials = aggregate.reduce(&groups).unwrap();
            let lists: Vec<Vec<&[u8]>> =
                partials.chunks(3).map(|partials| partials.iter().map(Vec::as_slice).collect()).collect();
            let middle = aggregate.rereduce(&lists).unwrap();
            let top = aggregate.rereduce(&[middle.iter().map(Vec::as_slice).collect()]).unwrap();
            assert_eq!(text(&aggregate, &top[0]), text(&aggregate, &whole[0]), "{name}, seed {seed}");
        }
    }
}

#[test]
fn distinct_estimates_are_close() {
    for count in [1, 10, 100, 1_000, 30_000] {
        let mut leaf = Leaf::default();
        for number in 0..count {
            let row_key = format!("{number:06}");
            leaf.push(Row { row_key: row_key.as_bytes(), sort_len: 6, key: b"0", value: b"0" });
        }
        let mut aggregate = aggregate("_approx_count_distinct");
        let stored = aggregate.reduce(&[Group::whole(&leaf)]).unwrap();
        let estimate: f64 = text(&aggregate, &stored[0]).parse().unwrap();
        let error = (estimate - f64::from(count)).abs() / f64::from(count);
        assert!(error < 0.06, "{count} estimated as {estimate}");
    }
}

#[test]
fn encoded_leaves_reduce_as_others_do() {
    let names = ["_count", "_sum", "_stats", "_top_2", "_bottom_3", "_first", "_last", "_approx_count_distinct"];
    let mut random = Random::new();
    for _ in 0..200 {
        let long = format!("[{}1]", "7,".repeat(3000));
        let kinds = ["1", "-2.5", "[1,2]", "{\"a\":1}", "\"x\"", "null", &long];
        let among = &kinds[..1 + random.below(kinds.len())];
        let values: Vec<&str> = (0..1 + random.below(20)).map(|_| random.pick(among)).collect();
        let leaf = leaf(&values);
        let mut encoded = EncodedLeaf::default();
        leaf.rows().for_each(|row| encoded.push(row));
        for name in names {
            let mut aggregate = aggregate(name);
            let expected = aggregate.reduce(&[Group::whole(&leaf)]).unwrap().pop();
            let reduced = aggregate.reduce_encoded(&encoded);
            assert_eq!(reduced.is_some(), aggregate.reduces_encoded());
            assert!(reduced.is_none() || reduced == expected, "{name} of {values:?}");
        }
        assert_eq!(names.iter().filter(|name| aggregate(name).reduces_encoded()).count(), 5);
    }
}
