use settee_design::{Language as _, Limits, ReduceRows, Reducer, RunError};
use settee_js::ReduceLimit;

use super::language;

type Row<'a> = (&'a [u8], &'a str, &'a [u8]);

const ROWS: [Row<'static>; 3] =
    [(b"[\"x\",1]", "a", b"1"), (b"\"y\"", "b\"q", b"{\"n\":2,\"s\":\"\\u00e9\"}"), (b"null", "c", b"\"three\\n\"")];

fn reducer(source: &str) -> Box<dyn Reducer> {
    language().reducer(source, Limits::default()).unwrap()
}

fn texts(results: Result<Vec<Vec<u8>>, RunError>) -> Vec<String> {
    results.unwrap().into_iter().map(|text| String::from_utf8(text).unwrap()).collect()
}

#[track_caller]
fn check(source: &str, rows: &[Row<'_>], expected: &str) {
    let results = reducer(source).reduce(&[ReduceRows { rows: rows.to_vec() }]);
    assert_eq!(texts(results), [expected], "{source}");
}

#[test]
fn functions_get_keys_ids_and_values() {
    check(
        "function(keys, values, rereduce) { return [keys, values, rereduce]; }",
        &ROWS,
        "[[[[\"x\",1],\"a\"],[\"y\",\"b\\\"q\"],[null,\"c\"]],[1,{\"n\":2,\"s\":\"é\"},\"three\\n\"],false]",
    );
    check("function(keys, values) { return keys.length + values.length; }", &ROWS, "6");
    check("function() { return arguments[0][0][1] + arguments.length; }", &ROWS, "\"a3\"");
    check("function(k, v) { v.push(4); v[1].n = 5; return v.length + v[1].n; }", &ROWS, "9");
    check("function(k, v) { return k; }", &[], "[]");
    check("(k, v) => v", &[], "[]");
    let numbers: [Row<'_>; 3] = [(b"1", "a", b"1.5"), (b"1", "b", b"-2e1"), (b"2", "c", b"12345678901234567890")];
    check("function(k, v) { return v; }", &numbers, "[1.5,-20,12345678901234567000]");
    check("function(k, v) { return sum(v); }", &numbers[..2], "-18.5");
}

#[test]
fn strange_results_become_json() {
    for (body, expected) in [
        ("", "null"),
        ("return null;", "null"),
        ("return NaN;", "null"),
        ("return {a: undefined, b: 1};", "{\"b\":1}"),
        ("return function() {};", "null"),
        ("emit(1, 2); log('x'); return 1;", "1"),
    ] {
        check(&format!("function(keys, values) {{ {body} }}"), &ROWS, expected);
    }
}

#[test]
fn log_lines_of_reduce_functions_can_be_requested() {
    let mut reducer = reducer("function(k, v, r) { log(r ? 'again' : 'first'); log(v); return v.length; }");
    assert_eq!(reducer.take_log(), Vec::<String>::new());
    reducer.reduce(&[ReduceRows { rows: ROWS[2..].to_vec() }, ReduceRows { rows: vec![] }]).unwrap();
    assert_eq!(reducer.take_log(), ["first", "[\"three\\n\"]", "first", "[]"]);
    reducer.rereduce(&[vec![b"1"]]).unwrap();
    assert_eq!(reducer.take_log(), ["again", "[1]"]);
    let mut noisy =
        language().reducer("function() { log(Array(10001).join('x')); return 1; }", Limits::default()).unwrap();
    noisy.reduce(&vec![ReduceRows { rows: vec![] }; 100]).unwrap();
    assert_eq!(noisy.take_log().len(), 26);
}

#[test]
fn reductions_must_shrink() {
    let rows: [Row<'_>; 2] = [(b"\"x\"", "a", b"\"aaaaaaaaaa\""), (b"\"x\"", "b", b"\"bbbbbbbbbb\"")];
    let group = || ReduceRows { rows: rows.to_vec() };
    let source = "function(k,v){return v.concat(v).concat(v)}";
    let strict = language().clone().with_reduce_limit(ReduceLimit::On { threshold_bytes: 10, ratio: 2.0 });
    let mut reducer = strict.reducer(source, Limits::default()).unwrap();
    let overflow =
        "{\"reduce_overflow_error\":\"Reduce output must shrink more rapidly: input size: 67 output size: 81\"}";
    assert_eq!(texts(reducer.reduce(&[group(), ReduceRows { rows: vec![] }])), [overflow, "[]"]);
    let parts: Vec<&[u8]> = vec![b"[1,2,3]", b"[4,5,6]"];
    let overflow =
        "{\"reduce_overflow_error\":\"Reduce output must shrink more rapidly: input size: 35 output size: 51\"}";
    assert_eq!(texts(reducer.rereduce(&[parts])), [overflow]);
    let off = language().clone().with_reduce_limit(ReduceLimit::Off);
    let mut reducer = off.reducer(source, Limits::default()).unwrap();
    assert_eq!(texts(reducer.reduce(&[group()]))[0].len(), 79);
}
