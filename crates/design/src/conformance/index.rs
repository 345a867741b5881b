//! Functions of search indexes.

use std::sync::Arc;

use super::subject::{Subject, expected, mapped, rows};
use crate::{CompileError, Limits, MapSource, SearchKind};

impl Subject<'_> {
    fn indexed(&self, kind: SearchKind, function: &str, documents: &[&str]) -> crate::Emissions {
        let source = MapSource { functions: vec![Arc::from(function)], library: None };
        let program = self.language.index_program(kind, &source, self.limits);
        mapped(&mut *program.unwrap_or_else(|error| panic!("{function}: {error}")), documents)
    }
}

/// Fields are returned as rows, in the order in which they were indexed. Other languages return an error.
pub fn functions_index_fields(subject: &Subject<'_>) {
    let Some(functions) = &subject.index else {
        for kind in SearchKind::ALL {
            let program = subject.language.index_program(kind, &MapSource::default(), Limits::default());
            assert!(matches!(program.err(), Some(CompileError::Unavailable(_))), "{kind:?}");
        }
        return;
    };
    let documents = [r#"{"t":"some words","list":[1,2.5]}"#, "{}", r#"{"list":[-3]}"#];
    let typed = subject.indexed(SearchKind::Nouveau, functions.typed, &documents);
    let right = [
        (0, 0, r#"["text","default",{"store":true}]"#, "\"some words\""),
        (0, 0, r#"["double","n"]"#, "1"),
        (0, 0, r#"["double","n"]"#, "2.5"),
        (0, 0, r#"["vector","v"]"#, "[1,2.5]"),
        (2, 0, r#"["double","n"]"#, "-3"),
        (2, 0, r#"["vector","v"]"#, "[-3]"),
    ];
    assert_eq!(rows(&typed), expected(&right));
    let named = subject.indexed(SearchKind::Clouseau, functions.named, &documents);
    let right = [
        (0, 0, r#"["default",{"store":true}]"#, "\"some words\""),
        (0, 0, r#"["n"]"#, "1"),
        (0, 0, r#"["n"]"#, "2.5"),
        (2, 0, r#"["n"]"#, "-3"),
    ];
    assert_eq!(rows(&named), expected(&right));
    assert!(typed.failures.is_empty() && named.failures.is_empty(), "{:?} {:?}", typed.failures, named.failures);
}

pub fn documents_that_fail_have_no_fields(subject: &Subject<'_>) {
    let Some(functions) = &subject.index else { return };
    let documents = [r#"{"v":"a"}"#, r#"{"v":5}"#, "{}", r#"{"v":"b"}"#];
    let output = subject.indexed(SearchKind::Nouveau, functions.strict, &documents);
    let right = [
        (0, 0, r#"["string","s"]"#, "\"a\""),
        (0, 0, r#"["double","n"]"#, "1"),
        (3, 0, r#"["string","s"]"#, "\"b\""),
        (3, 0, r#"["double","n"]"#, "1"),
    ];
    assert_eq!(rows(&output), expected(&right));
    let failures: Vec<_> = output.failures.iter().map(|failure| failure.document).collect();
    assert_eq!(failures, [1, 2]);
}
