//! Servers that die, hang, violate the protocol, or cannot start.

use std::time::{Duration, Instant};

use settee_design::{CompileError, Emissions};
use settee_process::{QueryServer, Settings};

use super::{batch, check_fatal, command, pid, program, run, server, server_with, settings, show};

fn short_timeout() -> QueryServer {
    server_with(&command(), Settings { timeout_ms: 1_500, ..settings() }).0
}

#[track_caller]
fn check_compile(server: &QueryServer, function: &str, expected: &CompileError) {
    let error = program(server, &["act", function]).err().unwrap();
    match (&error, expected) {
        (CompileError::Unavailable(text), CompileError::Unavailable(part)) => assert!(text.contains(part), "{text}"),
        _ => assert_eq!(&error, expected),
    }
}

#[test]
fn functions_that_do_not_compile_are_refused_in_the_words_of_the_server() {
    let refused = |text: &str| CompileError::Source(text.to_owned());
    let server = server();
    check_compile(&server, "42", &refused("Expression does not eval to a function. (42)"));
    check_compile(&server, "old", &refused("an old error"));
    check_compile(&server, "oldest", &refused("the oldest error"));
    assert_eq!(server.processes(), (0, 1));
    assert!(program(&server, &["act"]).is_ok());
}

#[test]
fn compiling_ends_in_time() {
    let unavailable = |text: &str| CompileError::Unavailable(text.to_owned());
    let server = short_timeout();
    check_compile(&server, "hang", &unavailable("the query server for test returned no response within 1500 ms"));
    check_compile(&server, "die", &unavailable("the query server for test ended: exit status: 7"));
    assert_eq!(server.processes(), (0, 0));
}

#[test]
fn programs_that_are_no_query_servers_are_reported() {
    let check = |command: &str, part: &str| {
        let (server, _) = server_with(command, Settings { timeout_ms: 700, start_timeout_ms: 700, ..settings() });
        let began = Instant::now();
        check_compile(&server, "f", &CompileError::Unavailable(part.to_owned()));
        assert!(began.elapsed() < Duration::from_secs(5));
    };
    check("/does/not/exist --option", "ended: exit status: 127; it said: /bin/sh: 1: exec: /does/not/exist: not found");
    check("/dev/null", "exit status: 126");
    check("true", "ended: exit status: 0");
    check("sh -c 'echo no such module >&2; exit 1'", "exit status: 1; it said: no such module");
    check("sleep 1000", "returned no response within 700 ms");
    check("echo hello", "broke the protocol: it wrote no JSON (invalid JSON at byte 0): hello");
    check("echo '[]'", "broke the protocol");
    check("sh -c 'read line; echo 7; sleep 1000'", "its answer to reset is not true but 7");
}

#[test]
fn a_process_that_starts_slowly_has_more_time_for_its_first_answer_only() {
    let slow = format!("sh -c 'sleep 1; exec {}'", command());
    let (server, _) = server_with(&slow, Settings { timeout_ms: 900, ..settings() });
    assert!(program(&server, &["act"]).is_ok());
    check_compile(&server, "hang", &CompileError::Unavailable("returned no response within 900 ms".to_owned()));
}

#[test]
fn a_process_that_was_killed_is_replaced_and_nothing_is_lost() {
    let server = server();
    let flag = std::env::temp_dir().join(format!("settee-process-{}", std::process::id()));
    let _ = std::fs::remove_file(&flag);
    let mut documents: Vec<String> = (0..500).map(|number| format!("{{\"value\":{number}}}")).collect();
    documents[321] = format!("{{\"do\":\"die_once\",\"flag\":\"{}\",\"value\":321}}", flag.display());
    let output = run(&server, &["act", "nothing"], &documents).unwrap();
    std::fs::remove_file(&flag).unwrap();
    let documents: Vec<u32> = output.rows().map(|row| row.document).collect();
    assert_eq!(documents, (0..500).collect::<Vec<_>>());
}

#[test]
fn a_document_that_ends_every_process_is_named() {
    let server = server();
    let fatal = |document: &str, parts: &[&str]| {
        check_fatal(run(&server, &["act"], &["{}", document, "{}"]), "os_process_error", parts);
        assert_eq!(server.processes(), (0, 0));
        assert_eq!(run(&server, &["act"], &["{}"]).unwrap().len(), 1);
    };
    let place = r#"(map function (act) on document "doc2")"#;
    fatal(r#"{"do":"die"}"#, &["ended: exit status: 3; it said: I am dying", place]);
    fatal(r#"{"do":"kill"}"#, &["signal: 9", place]);
    let several = run(&server, &["act", "f"], &[r#"{"do":"die"}"#]);
    check_fatal(several, "os_process_error", &[r#"(one of 2 map functions on document "doc1")"#]);
}

#[test]
fn a_document_that_takes_too_long_is_named() {
    let server = short_timeout();
    let began = Instant::now();
    let place = r#"OS process timed out: map function (act) on document "doc2" took longer than 1500 ms"#;
    check_fatal(run(&server, &["act"], &["{}", r#"{"do":"hang"}"#, "{}"]), "os_process_error", &[place]);
    assert!(began.elapsed() < Duration::from_secs(10));
    let slow = vec![r#"{"do":"slow","seconds":0.4}"#; 6];
    assert_eq!(run(&server, &["act"], &slow).unwrap().len(), 6);
}

#[test]
fn a_server_that_closes_its_output_is_found_out() {
    let result = run(&server(), &["act"], &[r#"{"do":"close"}"#]);
    check_fatal(result, "os_process_error", &["it closed its output", "doc1"]);
}

#[test]
fn errors_and_nonsense_end_the_build_and_name_the_document() {
    let server = server();
    let raise = |line: &str, name: &str, parts: &[&str]| {
        let document = format!("{{\"do\":\"say\",\"line\":{line}}}");
        let result = run(&server, &["act"], &["{}", &document, "{}"]);
        let parts: Vec<&str> = parts.iter().copied().chain([r#"map function (act) on document "doc2""#]).collect();
        check_fatal(result, name, &parts);
    };
    raise(r#""[\"error\",\"my_key\",\"my reason\"]""#, "my_key", &["my reason"]);
    raise(r#""[\"fatal\",\"my_key\",{\"a\":1}]""#, "my_key", &["{\"a\":1}"]);
    raise(r#""{\"error\":\"old_key\",\"reason\":\"old reason\"}""#, "old_key", &["old reason"]);
    raise(r#""{\"error\":{\"id\":\"oldest\",\"reason\":\"its reason\"}}""#, "oldest", &["its reason"]);
    raise(r#""[\"error\"]""#, "", &[]);
    let nonsense = |line: &str, part: &str| raise(line, "os_process_error", &["broke the protocol", part]);
    nonsense(r#""what?""#, "it wrote no JSON (invalid JSON at byte 0): what?");
    nonsense(r#""[[[\"a\",NaN]]]""#, "it wrote no JSON");
    nonsense(r#""[[[\"\\ud800\",1]]]""#, "it wrote no JSON");
    nonsense(r#""true""#, "the response to map_doc is not a list of 1 lists of rows: true");
    nonsense(r#""[[],[]]""#, "is not a list of 1 lists of rows: [[],[]]");
    nonsense(r#""[1]""#, "are not pairs of key and value: [1]");
    nonsense(r#""[[[1,2,3]]]""#, "are not pairs");
    nonsense(r#""[[{\"a\":1}]]""#, "are not pairs");
    assert_eq!(run(&server, &["act"], &["{}"]).unwrap().len(), 1);
}

#[test]
fn unexpected_answers_are_not_assigned_to_other_requests() {
    let server = server();
    let result = run(&server, &["act"], &[r#"{"do":"twice"}"#]);
    // The second response arrives before the exit or after it; in either case no other document gets it.
    match result {
        Ok(output) => assert_eq!(output.len(), 0),
        Err(error) => assert!(error.to_string().contains("it answered without a request"), "{error}"),
    }
    let output = run(&server, &["act"], &[r#"{"value":1}"#]).unwrap();
    assert_eq!(show(&output), r#"[[0,0,"doc1",1]]"#);
}

#[test]
fn a_process_that_speaks_while_it_is_idle_is_replaced() {
    let server = server();
    let directory = tempfile("speaks");
    for half in [false, true] {
        let idle = pid(&server);
        let document = format!("{{\"do\":\"late\",\"directory\":\"{}\",\"half\":{half}}}", directory.display());
        assert_eq!(run(&server, &["act"], &[&document]).unwrap().len(), 1);
        std::fs::write(directory.join("speak"), "").unwrap();
        while !directory.join("spoken").exists() {
            std::thread::yield_now();
        }
        std::fs::remove_file(directory.join("spoken")).unwrap();
        assert_eq!(show(&run(&server, &["act"], &[r#"{"value":1}"#]).unwrap()), r#"[[0,0,"doc1",1]]"#);
        assert_ne!(pid(&server), idle);
    }
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_document_is_not_blamed_for_those_around_it() {
    let server = short_timeout();
    let function = "late_answers";
    let fine: Vec<String> = (0..30).map(|_| "{}".to_owned()).collect();
    assert_eq!(run(&server, &[function, "act"], &fine).unwrap().len(), 30);
    for (action, number) in [("hang", 17), ("die", 23)] {
        let mut documents = fine.clone();
        documents[number] = format!("{{\"do\":\"{action}\"}}");
        let place = format!("on document \"doc{}\"", number + 1);
        check_fatal(run(&server, &[function, "act"], &documents), "os_process_error", &[&place]);
    }
}

fn tempfile(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("settee-process-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir(&path).unwrap();
    path
}

#[test]
fn processes_that_die_while_idle_are_no_failure() {
    let server = server();
    for _ in 0..3 {
        let idle = pid(&server);
        let killed = std::process::Command::new("kill").args(["-9", &idle]).status().unwrap();
        assert!(killed.success());
        assert_ne!(pid(&server), idle);
    }
}

#[test]
fn a_program_goes_on_after_a_failure() {
    let server = server();
    let mut program = program(&server, &["act"]).unwrap();
    let mut output = Emissions::new();
    for _ in 0..2 {
        output.clear();
        assert!(program.map(&batch(&[r#"{"do":"die"}"#]), &mut output).is_err());
        output.clear();
        program.map(&batch(&["{}"]), &mut output).unwrap();
        assert_eq!(output.len(), 1);
    }
}
