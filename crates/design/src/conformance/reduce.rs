//! Reduce functions.

use super::subject::{ReduceExceptions, Subject, check_fatal, text};
use crate::{ReduceRows, RunError};

fn texts(results: Result<Vec<Vec<u8>>, RunError>) -> Vec<String> {
    let results = results.unwrap_or_else(|error| panic!("groups cannot be reduced: {error}"));
    results.iter().map(|result| text(result)).collect()
}

/// Functions receive keys with ids, values, and the rereduce flag; groups are returned in order, including empty ones.
pub fn groups_are_reduced(subject: &Subject<'_>) {
    let mut gather = subject.reducer(subject.reduce.gather);
    let groups = [
        ReduceRows { rows: vec![(b"[\"x\",1]", "a", b"1"), (b"\"y\"", "b\"é", b"{\"n\":[2]}")] },
        ReduceRows { rows: vec![(b"null", "c", b"\"three\\n\"")] },
        ReduceRows::default(),
    ];
    let right = [
        r#"[[[["x",1],"a"],["y","b\"é"]],[1,{"n":[2]}],false]"#,
        r#"[[[null,"c"]],["three\n"],false]"#,
        "[[],[],false]",
    ];
    assert_eq!(texts(gather.reduce(&groups)), right);
    let groups = [vec![&b"[1,2]"[..], b"null"], vec![], vec![b"\"x\""]];
    assert_eq!(texts(gather.rereduce(&groups)), ["[null,[[1,2],null],true]", "[null,[],true]", "[null,[\"x\"],true]"]);
    let mut count = subject.reducer(subject.reduce.count);
    assert_eq!(texts(count.rereduce(&[vec![b"1", b"2.5"], vec![b"40"]])), ["3.5", "40"]);
    assert!(texts(count.reduce(&[])).is_empty() && texts(count.rereduce(&[])).is_empty());
}

pub fn many_groups_are_reduced(subject: &Subject<'_>) {
    let mut count = subject.reducer(subject.reduce.count);
    let value = format!("\"{}\"", "x".repeat(200));
    let groups: Vec<_> =
        (0..2000).map(|number| ReduceRows { rows: vec![(&b"1"[..], "a", value.as_bytes()); number % 7] }).collect();
    let right: Vec<String> = (0..2000).map(|number| (number % 7).to_string()).collect();
    assert_eq!(texts(count.reduce(&groups)), right);
    let large = ReduceRows { rows: vec![(b"1", "a", value.as_bytes()); 20_000] };
    assert_eq!(texts(count.reduce(&[large])), ["20000"]);
    let numbers: Vec<String> = (0..2000).map(|number: u32| number.to_string()).collect();
    let groups: Vec<Vec<&[u8]>> = numbers.iter().map(|number| vec![number.as_bytes(); 10]).collect();
    let right: Vec<String> = (0..2000).map(|number: u32| (number * 10).to_string()).collect();
    assert_eq!(texts(count.rereduce(&groups)), right);
}

pub fn reductions_that_fail(subject: &Subject<'_>) {
    let mut reducer = subject.reducer(subject.reduce.fails);
    let group = |value: &'static [u8]| ReduceRows { rows: vec![(b"1", "a", value)] };
    let reduced = reducer.reduce(&[group(b"1"), group(b"\"bad\""), group(b"2")]);
    match subject.ways.reduce_exceptions {
        ReduceExceptions::Null => assert_eq!(texts(reduced), ["1", "null", "1"]),
        ReduceExceptions::Fatal => check_fatal(reduced, "reduce_runtime_error", "reduce function"),
    }
    assert_eq!(texts(reducer.reduce(&[group(b"1")])), ["1"]);
}

pub fn reductions_that_hang_are_ended(subject: &Subject<'_>) {
    let mut reducer = subject.short_timeout().reducer(subject.reduce.hangs);
    let group = |value: &'static [u8]| ReduceRows { rows: vec![(b"1", "a", value)] };
    check_fatal(reducer.reduce(&[group(b"1"), group(b"\"bad\"")]), "os_process_error", "reduce function");
    assert_eq!(texts(reducer.reduce(&[group(b"1")])), ["1"]);
}
