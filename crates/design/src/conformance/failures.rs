//! Functions that do not compile, throw, or exceed limits.

use std::ops::ControlFlow;

use super::subject::{MapExceptions, Subject, batch, check_fatal, expected, mapped, rows, try_map};
use crate::{CompileError, Emissions, Excess, Limits};

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

/// An excess of rows or bytes fails the build with an error that names the document. A document with a longer key or
/// value has no rows of this function and is reported.
pub fn rows_and_bytes_are_limited(subject: &Subject<'_>) {
    let few = Limits { rows_per_document: 10, bytes_per_document: 10_000, ..subject.limits };
    let check = |limits: Limits, functions: &[&str], documents: [&str; 3], excess: Excess| {
        let mut program = Subject { limits, ..*subject }.program(functions);
        for _ in 0..2 {
            if excess.ends_build() {
                check_fatal(try_map(&mut *program, &documents), "limit_exceeded", "doc2");
                assert_eq!(mapped(&mut *program, &documents[..1]).failures, []);
                continue;
            }
            let output = mapped(&mut *program, &documents);
            let count = |document| output.rows().filter(|row| row.document == document && row.function == 0).count();
            assert!(count(0) > 0 && count(1) == 0 && count(2) > 0, "{excess}: {:?}", rows(&output));
            let failures: Vec<_> = output.failures.iter().map(|failure| (failure.document, failure.function)).collect();
            assert_eq!(failures, [(1, 0)], "{excess}");
            assert_eq!(output.failures[0].message, excess.to_string());
            let others = output.rows().filter(|row| row.function == 1).count();
            assert_eq!(others, 3 * (functions.len() - 1), "{excess}");
        }
    };
    let list = |count: usize| format!("{{\"list\":[{}]}}", vec!["7"; count].join(","));
    let long = |name: &str, bytes: usize| format!("{{\"{name}\":\"{}\"}}", "x".repeat(bytes));
    let (each, pair) = (subject.map.each, subject.map.pair);
    check(few, &[each], [&list(10), &list(11), &list(1)], Excess::Rows(10));
    check(few, &[each, pair], [&list(10), &list(11), &list(1)], Excess::Rows(10));
    check(few, &[pair], [&long("v", 9_900), &long("v", 10_000), "{}"], Excess::Bytes(10_000));
    let short = Limits { key_bytes: 100, value_bytes: 200, ..subject.limits };
    check(short, &[pair], [&long("k", 98), &long("k", 99), "{}"], Excess::Key(100));
    check(short, &[pair], [&long("v", 198), &long("v", 199), "{}"], Excess::Value(200));
}

pub fn rows_are_handed_on_in_parts(subject: &Subject<'_>) {
    let functions = [subject.map.pair, subject.map.each];
    let documents: Vec<String> = (0..60).map(|n| format!("{{\"k\":{n},\"list\":[1,2,3,{n}]}}")).collect();
    let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
    let mut expected = rows(&subject.map(&functions, &documents));
    let limits = Limits { bytes_per_part: 1_000, ..subject.limits };
    let mut program = Subject { limits, ..*subject }.program(&functions);
    let (mut found, mut sizes, mut output) = (Vec::new(), Vec::new(), Emissions::new());
    let mapped = program.map_in_parts(&batch(&documents), &mut output, &mut |part| {
        found.extend(rows(part));
        sizes.push(part.size_bytes());
        part.clear();
        ControlFlow::Continue(())
    });
    mapped.unwrap_or_else(|error| panic!("documents cannot be mapped: {error}"));
    found.extend(rows(&output));
    assert!(sizes.len() > 3 && sizes.iter().all(|size| (1_000..2_000).contains(size)), "{sizes:?}");
    // Rows of one document and function are passed on together.
    let mut seen = Vec::new();
    for (document, function, ..) in &found {
        if seen.last() != Some(&(*document, *function)) {
            assert!(!seen.contains(&(*document, *function)));
            seen.push((*document, *function));
        }
    }
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    output.clear();
    let broken = program.map_in_parts(&batch(&documents), &mut output, &mut |_| ControlFlow::Break(()));
    assert!(broken.is_err());
    assert_eq!(
        rows(&{
            output.clear();
            program.map(&batch(&["{}"]), &mut output).unwrap_or_else(|error| panic!("it does not continue: {error}"));
            output
        })
        .len(),
        1
    );
}

pub fn functions_that_hang_are_ended(subject: &Subject<'_>) {
    let subject = subject.short_timeout();
    let mut program = subject.program(&[subject.map.hangs]);
    let bad = r#"{"bad":true}"#;
    check_fatal(try_map(&mut *program, &["{}", "{}", bad, "{}"]), "os_process_error", "doc3");
    assert_eq!(rows(&mapped(&mut *program, &["{}"])), expected(&[(0, 0, "1", "null")]));
    assert_eq!(subject.map(&[subject.map.pair], &["{}"]).len(), 1);
}
