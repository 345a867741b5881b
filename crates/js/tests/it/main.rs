//! The language with real worker processes.
#![expect(clippy::unwrap_used, reason = "tests")]

mod attacks;
mod coffeescript;
mod conformance;
mod design;
mod documents;
mod escapes;
mod index;
mod limits;
mod map;
mod native;
mod processes;
mod reduce;

use std::sync::{Arc, OnceLock};

use settee_design::{CompileError, DocumentBatch, Emissions, Language as _, Limits, MapSource, Program, RunError};
use settee_js::{Evaluator, JavaScript, PoolSettings, WorkerCommand};

fn language() -> &'static JavaScript {
    static LANGUAGE: OnceLock<JavaScript> = OnceLock::new();
    LANGUAGE.get_or_init(|| JavaScript::new(command(), PoolSettings::default()).with_evaluator(Evaluator::Workers))
}

fn native_language() -> &'static JavaScript {
    static LANGUAGE: OnceLock<JavaScript> = OnceLock::new();
    LANGUAGE.get_or_init(|| language().clone().with_evaluator(Evaluator::Native))
}

fn command() -> WorkerCommand {
    WorkerCommand { program: env!("CARGO_BIN_EXE_settee-js-worker").into(), args: Vec::new() }
}

fn program(functions: &[&str], library: Option<&str>, limits: Limits) -> Result<Box<dyn Program>, CompileError> {
    let functions = functions.iter().map(|source| Arc::from(*source)).collect();
    language().program(&MapSource { functions, library: library.map(Arc::from) }, limits)
}

fn batch(documents: &[&str]) -> DocumentBatch {
    let mut batch = DocumentBatch::new();
    for (seq, text) in (1..).zip(documents) {
        let write = |out: &mut Vec<u8>| {
            out.extend_from_slice(text.as_bytes());
            Ok::<(), ()>(())
        };
        batch.push_with(seq, &format!("doc{seq}"), write).unwrap();
    }
    batch
}

fn run(functions: &[&str], documents: &[&str], limits: Limits) -> Result<Emissions, RunError> {
    let source = MapSource { functions: functions.iter().map(|source| Arc::from(*source)).collect(), library: None };
    let run = |language: &JavaScript| {
        let mut output = Emissions::new();
        language.program(&source, limits).unwrap().map(&batch(documents), &mut output)?;
        Ok(output)
    };
    let (engine, native) = (run(language()), run(native_language()));
    match (&engine, &native) {
        (Ok(engine), Ok(native)) => {
            assert_eq!(show(native), show(engine), "{functions:?}");
            assert_eq!((&native.failures, &native.log), (&engine.failures, &engine.log), "{functions:?}");
        }
        (Err(RunError::Fatal { name, .. }), Err(RunError::Fatal { name: native, .. })) => {
            assert!(native == name || [name, native].iter().any(|name| *name == "os_process_error"), "{native} {name}");
        }
        (engine, native) => assert_eq!(engine.is_ok(), native.is_ok(), "{functions:?}: {engine:?}, {native:?}"),
    }
    native
}

/// Format: `[[document,function,key,value],…]`.
fn show(output: &Emissions) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let rows =
        output.rows().map(|row| format!("[{},{},{},{}]", row.document, row.function, text(row.key), text(row.value)));
    format!("[{}]", rows.collect::<Vec<_>>().join(","))
}

/// Format: `[[key,value],…]`.
#[track_caller]
fn check(source: &str, document: &str, expected: &str) {
    let output = run(&[source], &[document], Limits { timeout_ms: 60_000, ..Limits::default() }).unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let rows = output.rows().map(|row| format!("[{},{}]", text(row.key), text(row.value)));
    let rows = format!("[{}]", rows.collect::<Vec<_>>().join(","));
    assert_eq!(rows, expected, "{source} on {document}; failures: {:?}", output.failures);
}

#[track_caller]
fn check_throws(source: &str, document: &str, message: &str) {
    let output = run(&[source], &[document], Limits::default()).unwrap();
    assert_eq!(show(&output), "[]", "{source}");
    let messages: Vec<_> = output.failures.iter().map(|failure| failure.message.as_str()).collect();
    assert_eq!(messages, [message], "{source}");
    assert_eq!(output.log.last().unwrap(), &format!("function raised exception {message} with doc._id doc1"));
}

#[track_caller]
fn check_fatal(result: Result<Emissions, RunError>, name: &str, parts: &[&str]) {
    match result {
        Err(RunError::Fatal { name: actual, reason }) => {
            assert_eq!(actual, name, "{reason}");
            for part in parts {
                assert!(reason.contains(part), "{reason} should contain {part}");
            }
        }
        other => panic!("expected a fatal {name}, got {other:?}"),
    }
}
