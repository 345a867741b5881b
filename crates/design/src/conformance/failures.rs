//! Functions that do not compile, throw, or take too much.

use super::{MapExceptions, Subject, check_fatal, expected, mapped, rows, try_map};
use crate::{CompileError, Limits};

/// What is no function is refused with the language's own words, whatever stands beside it.
pub fn sources_that_do_not_compile_are_refused(subject: &Subject<'_>) {
    let check = |result: Option<CompileError>, source: &str, part: &str| match result {
        Some(CompileError::Source(message)) => assert!(message.contains(part), "{source}: {message}"),
        Some(error) => panic!("{source}: {error:?}"),
        None => panic!("{source} compiles"),
    };
    for (source, part) in subject.map.broken {
        for functions in [vec![*source], vec![subject.map.pair, source]] {
            check(subject.try_program(&functions, None).err(), source, part);
        }
        assert_eq!(subject.map(&[subject.map.pair], &["{}"]).len(), 1);
    }
    let (source, part) = subject.reduce.broken;
    check(subject.language.reducer(source, subject.limits).err(), source, part);
}

/// A function that throws emits nothing for this document; others, and the same on other documents, go on.
pub fn exceptions_cost_their_document_only(subject: &Subject<'_>) {
    let mut program = subject.program(&[subject.map.fails, subject.map.pair]);
    for _ in 0..2 {
        let output = mapped(&mut *program, &["{}", r#"{"bad":true,"k":2}"#, r#"{"k":3}"#]);
        let right = [
            (0, 0, "1", "null"),
            (0, 1, "null", "null"),
            (1, 1, "2", "null"),
            (2, 0, "1", "null"),
            (2, 1, "3", "null"),
        ];
        assert_eq!(rows(&output), expected(&right));
        let failures: Vec<_> = output.failures.iter().map(|failure| (failure.document, failure.function)).collect();
        match subject.ways.map_exceptions {
            MapExceptions::Reported => assert_eq!(failures, [(1, 0)]),
            MapExceptions::Logged => {
                assert!(failures.is_empty() && output.log.iter().any(|line| line.contains("doc2")), "{:?}", output.log);
            }
        }
    }
}

/// A document may emit up to a number of rows and of bytes; a program can be used after that was too much.
pub fn rows_and_bytes_are_limited(subject: &Subject<'_>) {
    let limits = Limits { rows_per_document: 10, bytes_per_document: 10_000, ..subject.limits };
    let limited = Subject { limits, ..*subject };
    let list = |count: usize| format!("{{\"list\":[{}]}}", vec!["7"; count].join(","));
    let mut each = limited.program(&[subject.map.each]);
    assert_eq!(mapped(&mut *each, &[&list(10), &list(10)]).len(), 20);
    check_fatal(try_map(&mut *each, &["{}", &list(11), "{}"]), "limit_exceeded", "doc2");
    let long = |bytes: usize| format!("{{\"v\":\"{}\"}}", "x".repeat(bytes));
    let mut pair = limited.program(&[subject.map.pair]);
    assert_eq!(mapped(&mut *pair, &[&long(9_900), &long(9_900)]).len(), 2);
    check_fatal(try_map(&mut *pair, &[&long(10), &long(10_000)]), "limit_exceeded", "doc2");
    assert_eq!(mapped(&mut *each, &[&list(10)]).len(), 10);
    assert_eq!(mapped(&mut *pair, &["{}"]).len(), 1);
}

/// A function that does not end is ended: the error names the document. The language goes on, and so does the program.
pub fn functions_that_hang_are_ended(subject: &Subject<'_>) {
    let subject = subject.impatient();
    let mut program = subject.program(&[subject.map.hangs]);
    let bad = r#"{"bad":true}"#;
    check_fatal(try_map(&mut *program, &["{}", "{}", bad, "{}"]), subject.ways.timeout, "doc3");
    assert_eq!(rows(&mapped(&mut *program, &["{}"])), expected(&[(0, 0, "1", "null")]));
    assert_eq!(subject.map(&[subject.map.pair], &["{}"]).len(), 1);
}
