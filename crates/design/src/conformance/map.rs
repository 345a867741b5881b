//! The rows that map functions emit, and their order.

use super::subject::{Subject, expected, mapped, rows};

/// Rows are ordered by document, then by function, then by emission. A document may emit none or many.
pub fn rows_come_in_order(subject: &Subject<'_>) {
    let functions = [subject.map.each, subject.map.pair, subject.map.each];
    let documents = [r#"{"k":"a","list":[7,"b"]}"#, "{}", r#"{"list":[]}"#, r#"{"v":[1],"list":[null]}"#];
    let output = subject.map(&functions, &documents);
    let right = [
        (0, 0, "7", "0"),
        (0, 0, "\"b\"", "1"),
        (0, 1, "\"a\"", "null"),
        (0, 2, "7", "0"),
        (0, 2, "\"b\"", "1"),
        (1, 1, "null", "null"),
        (2, 1, "null", "null"),
        (3, 0, "null", "0"),
        (3, 1, "null", "[1]"),
        (3, 2, "null", "0"),
    ];
    assert_eq!(rows(&output), expected(&right));
    assert!(output.failures.is_empty() && output.log.is_empty(), "{:?} {:?}", output.failures, output.log);
    let long: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    let long = format!("{{\"list\":[{}]}}", long.join(","));
    let documents: Vec<&str> = (0..40).map(|number| if number % 4 == 0 { long.as_str() } else { "{}" }).collect();
    let output = subject.map(&[subject.map.each], &documents);
    assert_eq!(output.len(), 10_000);
    for (number, row) in (0..).zip(output.rows()) {
        assert_eq!(row.document, number / 1000 * 4, "row {number}");
        assert_eq!(row.key, (number % 1000).to_string().as_bytes(), "row {number}");
        assert_eq!(row.key, row.value, "row {number}");
    }
}

pub fn batches_may_be_empty(subject: &Subject<'_>) {
    let mut program = subject.program(&[subject.map.pair]);
    assert!(mapped(&mut *program, &[]).is_empty());
    assert_eq!(mapped(&mut *program, &["{}"]).len(), 1);
    assert!(subject.map(&[], &["{}"]).is_empty());
}

pub fn logs_come_with_the_rows(subject: &Subject<'_>) {
    let mut program = subject.program(&[subject.map.logs, subject.map.pair]);
    for _ in 0..2 {
        let output = mapped(&mut *program, &["{}", "{}"]);
        assert_eq!((output.len(), output.log), (2, vec!["hello".to_owned(); 2]));
    }
}

pub fn libraries_can_be_required(subject: &Subject<'_>) {
    let Some(functions) = &subject.library else { return };
    let program = subject.try_program(&[functions.twice], Some(functions.library));
    let mut program = program.unwrap_or_else(|error| panic!("{}: {error}", functions.twice));
    let output = mapped(&mut *program, &[r#"{"n":21}"#, r#"{"n":4}"#]);
    assert_eq!(rows(&output), expected(&[(0, 0, "42", "null"), (1, 0, "8", "null")]));
}

pub fn programs_do_not_disturb_each_other(subject: &Subject<'_>) {
    let mut pair = subject.program(&[subject.map.pair]);
    let mut each = subject.program(&[subject.map.each, subject.map.pair]);
    let mut count = subject.reducer(subject.reduce.count);
    for number in 0..20 {
        let document = format!("{{\"k\":{number},\"list\":[\"a\"]}}");
        let (key, documents) = (number.to_string(), [document.as_str(), "{}"]);
        let right = [(0, 0, key.as_str(), "null"), (1, 0, "null", "null")];
        assert_eq!(rows(&mapped(&mut *pair, &documents)), expected(&right));
        let counted = count.rereduce(&[vec![b"1", key.as_bytes()]]);
        let counted = counted.unwrap_or_else(|error| panic!("reductions between batches: {error}"));
        assert_eq!(counted, [(number + 1).to_string().into_bytes()]);
        let right = [(0, 0, "\"a\"", "0"), (0, 1, key.as_str(), "null"), (1, 1, "null", "null")];
        assert_eq!(rows(&mapped(&mut *each, &documents)), expected(&right));
    }
}

pub fn programs_work_at_the_same_time(subject: &Subject<'_>) {
    let work = |thread: u32| {
        let mut program = subject.program(&[subject.map.pair]);
        for round in 0..10 {
            let key = format!("[{thread},{round}]");
            let document = format!("{{\"k\":{key},\"v\":\"{}\"}}", "x".repeat(1000));
            let output = mapped(&mut *program, &[document.as_str(); 30]);
            assert_eq!(output.len(), 30);
            for (number, row) in (0..).zip(output.rows()) {
                assert_eq!((row.document, row.key, row.value.len()), (number, key.as_bytes(), 1002));
            }
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || work(thread));
        }
    });
}
