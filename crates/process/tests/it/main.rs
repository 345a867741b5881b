//! Query servers with real processes: a test server in Python, and the Erlang one.
#![expect(clippy::unwrap_used, reason = "tests")]

mod conformance;
mod erlang;
mod failures;
mod functions;
mod map;
mod processes;
mod projection;
mod reduce;

use std::sync::{Arc, Mutex};

use settee_design::{CompileError, DocumentBatch, Emissions, Language as _, Limits, MapSource, Program, RunError};
use settee_process::{QueryServer, Settings};

type Lines = Arc<Mutex<Vec<String>>>;

fn settings() -> Settings {
    let path = std::env::var_os("PATH").unwrap();
    Settings { environment: vec![("PATH".into(), path)], ..Settings::default() }
}

fn command() -> String {
    format!("python3 -S -E {}/tests/it/server.py", env!("CARGO_MANIFEST_DIR"))
}

fn server_with(command: &str, settings: Settings) -> (QueryServer, Lines) {
    language("test", command, settings)
}

fn language(name: &str, command: &str, settings: Settings) -> (QueryServer, Lines) {
    let lines = Lines::default();
    let written = Arc::clone(&lines);
    let log = move |language: &str, line: &str| written.lock().unwrap().push(format!("{language}: {line}"));
    (QueryServer::new(name, command, settings, Arc::new(log)), lines)
}

fn server() -> QueryServer {
    server_with(&command(), settings()).0
}

fn source(functions: &[&str]) -> MapSource {
    MapSource { functions: functions.iter().map(|function| Arc::from(*function)).collect(), library: None }
}

fn program(server: &QueryServer, functions: &[&str]) -> Result<Box<dyn Program>, CompileError> {
    server.program(&source(functions), Limits::default())
}

fn batch(documents: &[impl AsRef<str>]) -> DocumentBatch {
    let mut batch = DocumentBatch::new();
    for (seq, text) in (1..).zip(documents) {
        let id = format!("doc{seq}");
        let rest = text.as_ref().strip_prefix('{').unwrap();
        let comma = if rest == "}" { "" } else { "," };
        let write = |out: &mut Vec<u8>| {
            out.extend_from_slice(format!("{{\"_id\":\"{id}\"{comma}{rest}").as_bytes());
            Ok::<(), ()>(())
        };
        batch.push_with(seq, &id, write).unwrap();
    }
    batch
}

fn run(server: &QueryServer, functions: &[&str], documents: &[impl AsRef<str>]) -> Result<Emissions, RunError> {
    let mut output = Emissions::new();
    program(server, functions).unwrap().map(&batch(documents), &mut output)?;
    Ok(output)
}

/// Format: `[[document,function,key,value],…]`.
fn show(output: &Emissions) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let rows =
        output.rows().map(|row| format!("[{},{},{},{}]", row.document, row.function, text(row.key), text(row.value)));
    format!("[{}]", rows.collect::<Vec<_>>().join(","))
}

fn pid(server: &QueryServer) -> String {
    let output = run(server, &["act"], &[r#"{"do":"pid"}"#]).unwrap();
    let row = output.rows().next().unwrap();
    String::from_utf8(row.value.to_vec()).unwrap()
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
