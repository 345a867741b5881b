use settee_design::{Emissions, Language as _, Limits};

use super::{batch, program, run, server, server_with, settings, show, source};

#[test]
fn rows_come_in_the_order_of_documents_and_functions() {
    let server = server();
    let documents = [r#"{"n":1.50,"é":"\u00e9\n"}"#, "{}"];
    let output = run(&server, &["f", "nothing", "act", "g"], &documents).unwrap();
    let expected = r#"[[0,0,["f","doc1"],{"_id":"doc1","n":1.5,"é":"é\n"}],[0,2,"doc1",null],[0,3,["g","doc1"],{"_id":"doc1","n":1.5,"é":"é\n"}],[1,0,["f","doc2"],{"_id":"doc2"}],[1,2,"doc2",null],[1,3,["g","doc2"],{"_id":"doc2"}]]"#;
    assert_eq!(show(&output), expected);
}

#[test]
fn many_small_documents_go_through() {
    let documents: Vec<String> = (0..30_000).map(|number| format!("{{\"value\":{number}}}")).collect();
    let server = server();
    let mut program = program(&server, &["act"]).unwrap();
    let batch = batch(&documents);
    for _ in 0..2 {
        let mut output = Emissions::new();
        program.map(&batch, &mut output).unwrap();
        assert_eq!(output.len(), documents.len());
        for (number, row) in (0u32..).zip(output.rows()) {
            assert_eq!((row.document, row.value), (number, number.to_string().as_bytes()));
            assert_eq!(row.key, format!("\"doc{}\"", number + 1).as_bytes());
        }
    }
    assert_eq!(server.processes(), (0, 1));
}

#[test]
fn documents_and_rows_larger_than_pipes_do_not_deadlock() {
    let long = "x".repeat(3 << 20);
    let documents: Vec<String> = (0..12).map(|_| format!("{{\"value\":\"{long}\"}}")).collect();
    let output = run(&server(), &["f", "g"], &documents).unwrap();
    assert_eq!(output.len(), 24);
    assert!(output.rows().all(|row| row.value.len() > long.len()));
}

#[test]
fn the_library_is_sent_before_the_functions() {
    let mut source = source(&["act"]);
    source.library = Some(r#"{"m":"exports.x = 1"}"#.into());
    assert!(server().program(&source, Limits::default()).is_ok());
}

#[test]
fn log_lines_of_all_versions_are_taken() {
    let output = run(&server(), &["act"], &["{}", r#"{"do":"log"}"#]).unwrap();
    assert_eq!(output.log, ["new form", "old form", "{\"a\":1}"]);
    assert_eq!(output.len(), 2);
}

#[test]
fn standard_error_is_logged_up_to_a_limit() {
    let (server, lines) = server_with(&command_that_complains(), settings());
    let output = run(&server, &["act"], &[r#"{"do":"stderr","lines":2000}"#, "{}"]).unwrap();
    assert_eq!(output.len(), 2);
    let lines = lines.lock().unwrap();
    assert_eq!(lines[0], "test: complaint");
    assert!(lines.len() < 300, "{} lines", lines.len());
    assert_eq!(lines.last().unwrap(), "test: (further output on standard error is omitted)");
}

fn command_that_complains() -> String {
    format!("sh -c 'echo complaint >&2; exec {}'", super::command())
}
