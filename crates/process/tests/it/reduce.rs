//! Reduce functions.

use settee_design::{Language as _, Limits, ReduceRows, Reducer, RunError};

use super::server;

fn reducer(source: &str) -> Box<dyn Reducer> {
    server().reducer(source, Limits::default()).unwrap()
}

fn texts(results: Vec<Vec<u8>>) -> Vec<String> {
    results.into_iter().map(|text| String::from_utf8(text).unwrap()).collect()
}

#[test]
fn groups_are_reduced_in_order() {
    let keys: [&[u8]; 2] = [b"\"k\"", b"[1]"];
    let groups = vec![
        ReduceRows { rows: vec![(keys[0], "a\"b", b"1"), (keys[1], "c", b"2")] },
        ReduceRows { rows: vec![(keys[1], "d", b"5")] },
        ReduceRows { rows: Vec::new() },
    ];
    let results = texts(reducer("keys").reduce(&groups).unwrap());
    let expected =
        [r#"{"sum":3,"keys":[["k","a\"b"],[[1],"c"]]}"#, r#"{"sum":5,"keys":[[[1],"d"]]}"#, r#"{"sum":0,"keys":[]}"#];
    assert_eq!(results, expected);
    let results = reducer("sum").rereduce(&[vec![b"1", b"2"], vec![b"40"], vec![]]).unwrap();
    assert_eq!(texts(results), ["3", "40", "0"]);
    assert_eq!(texts(reducer("sum").reduce(&[]).unwrap()), [""; 0]);
}

#[test]
fn many_groups_go_through_at_once() {
    let values: Vec<String> = (0..5_000).map(|number| number.to_string()).collect();
    let groups: Vec<Vec<&[u8]>> = values.iter().map(|value| vec![value.as_bytes(); 100]).collect();
    let results = texts(reducer("sum").rereduce(&groups).unwrap());
    for (number, result) in results.iter().enumerate() {
        assert_eq!(*result, (number * 100).to_string());
    }
}

#[test]
fn failures_name_the_function() {
    let check = |source: &str, name: &str, part: &str| {
        let error = reducer(source).rereduce(&[vec![b"1"]]).unwrap_err();
        let RunError::Fatal { name: actual, reason } = error else { panic!("{error:?}") };
        assert_eq!(actual, name);
        assert!(reason.contains(part) && reason.contains(&format!("(reduce function ({source}))")), "{reason}");
    };
    check("fail", "reduce_runtime_error", "it failed");
    check("strange", "os_process_error", "a reduction is not [true,[value]]: [true]");
}

#[test]
fn functions_that_do_not_compile_are_refused() {
    let server = server();
    for _ in 0..2 {
        assert!(server.reducer("42", Limits::default()).is_err());
    }
    assert!(server.reducer("sum", Limits::default()).is_ok());
}
