use std::ops::ControlFlow;

use settee_design::{
    CallError, DesignProgram, DesignSource, Language as _, Limits, ListSink, ListState, MoreRows, RunError,
};
use settee_model::json::{Json, Value};
use settee_process::QueryServer;

use super::{batch, server};

pub(crate) fn design(server: &QueryServer, rev: &str, json: &str) -> Box<dyn DesignProgram> {
    let json = Json::parse(json.as_bytes()).unwrap().into_bytes();
    let source = DesignSource { database: 1, id: "_design/d".into(), rev: rev.into(), json: json.into() };
    server.design_program(&source, Limits::default()).unwrap()
}

#[derive(Default)]
pub(crate) struct Sent {
    pub(crate) response: String,
    pub(crate) body: String,
    wanted: usize,
    taken: usize,
}

impl ListSink for Sent {
    fn response(&mut self, response: &[u8]) {
        self.response = String::from_utf8(response.to_vec()).unwrap();
    }

    fn chunk(&mut self, chunk: &[u8]) -> ControlFlow<()> {
        self.body.push_str(std::str::from_utf8(chunk).unwrap());
        self.taken += 1;
        if self.taken == self.wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[test]
fn validations_accept_and_refuse_in_all_forms() {
    let server = server();
    let check = |answer: &str, expected: Result<&str, CallError>| {
        let json = format!("{{\"_id\":\"_design/d\",\"validate_doc_update\":{answer}}}");
        let called = design(&server, answer, &json).call(&["validate_doc_update"], &[b"{}", b"null", b"{}", b"{}"]);
        assert_eq!(called, expected.map(|text| text.as_bytes().to_vec()), "{answer}");
    };
    let failed = |name: &str, reason: &str| CallError::Failed { name: name.to_owned(), reason: reason.to_owned() };
    check("1", Ok("1"));
    check("true", Ok("1"));
    check("\"ok\"", Ok("1"));
    check(r#"{"forbidden":"title required"}"#, Err(CallError::Forbidden("title required".into())));
    check(r#"{"unauthorized":{"a":1}}"#, Err(CallError::Unauthorized(Value::trusted(br#"{"a":1}"#).into())));
    check("\"plain\"", Err(failed("unknown_error", "plain")));
    check(r#"{"other":"thing"}"#, Err(failed("unknown_error", "thing")));
    check(r#"["error","TypeError",{}]"#, Err(failed("TypeError", "{}")));
    check(r#"["error","forbidden","no"]"#, Err(CallError::Forbidden("no".into())));
    assert_eq!(server.processes(), (0, 1));
}

#[test]
fn results_are_checked_and_handed_on() {
    let server = server();
    let json = r#"{"shows":{"good":["resp",{"body":"x"}],"bad":["up",{}]},"updates":{"u":["up",{"_id":"a"},{"code":201}]},
        "rewrites":["no_dispatch_rule"]}"#;
    let mut program = design(&server, "1-a", json);
    let mut call = |path: &[&str]| program.call(path, &[b"null", b"{}"]);
    assert_eq!(call(&["shows", "good"]).unwrap(), br#"["resp",{"body":"x"}]"#);
    assert_eq!(call(&["updates", "u"]).unwrap(), br#"["up",{"_id":"a"},{"code":201}]"#);
    assert_eq!(call(&["rewrites"]).unwrap(), br#"["no_dispatch_rule"]"#);
    let error = call(&["shows", "bad"]).unwrap_err().to_string();
    assert!(error.contains("it answered [\"up\",{}] (the function shows.bad of _design/d)"), "{error}");
}

#[test]
fn a_process_that_knows_the_document_is_asked_again() {
    let server = server();
    let json = r#"{"shows":{"pid":"pid"}}"#;
    let mut program = design(&server, "1-a", json);
    let first = program.call(&["shows", "pid"], &[b"null", b"{}"]).unwrap();
    assert_eq!(design(&server, "1-a", json).call(&["shows", "pid"], &[b"null", b"{}"]).unwrap(), first);
    let changed = r#"{"shows":{"pid":["resp",{"body":"changed"}]}}"#;
    let second = design(&server, "2-b", changed).call(&["shows", "pid"], &[b"null", b"{}"]).unwrap();
    assert_eq!(second, br#"["resp",{"body":"changed"}]"#);
    assert_eq!(program.call(&["shows", "pid"], &[b"null", b"{}"]).unwrap(), first);
}

#[test]
fn filters_answer_for_each_document() {
    let server = server();
    let json = r#"{"filters":{"f":"type"},"views":{"v":{"map":"ok"}}}"#;
    let documents: Vec<String> = (0..250)
        .map(|number| format!("{{\"type\":\"{}\"{}}}", number % 3, if number % 5 == 0 { ",\"ok\":1" } else { "" }))
        .collect();
    let documents = batch(&documents);
    let mut program = design(&server, "1-a", json);
    let passed = program.filter(&["filters", "f"], &documents, Some(br#"{"query":{"type":"1"}}"#)).unwrap();
    assert!((0..250).zip(&passed).all(|(number, passed)| (number % 3 == 1) == *passed));
    let passed = program.filter(&["views", "v", "map"], &documents, None).unwrap();
    assert!((0..250).zip(&passed).all(|(number, passed)| (number % 5 == 0) == *passed));
    assert_eq!(passed.len(), 250);
}

#[test]
fn lists_take_rows_until_they_end() {
    let server = server();
    let mut program = design(&server, "1-a", r#"{"lists":{"l":"all","e":"early"}}"#);
    let rows: [&[u8]; 3] = [br#"{"id":"a"}"#, br#"{"id":"b"}"#, br#"{"id":"c"}"#];
    let mut sent = Sent::default();
    let mut session = program.list("l", b"{}", b"{}", &mut sent).unwrap();
    assert_eq!(session.rows(&rows[..2], MoreRows::Perhaps, &mut sent).unwrap(), ListState::Waiting);
    assert_eq!(session.rows(&rows[2..], MoreRows::No, &mut sent).unwrap(), ListState::Ended);
    drop(session);
    assert_eq!(
        (sent.body.as_str(), sent.response.as_str()),
        ("head,a,b,c,tail", r#"{"headers":{"Content-Type":"text/csv"}}"#)
    );
    let mut sent = Sent::default();
    let mut session = program.list("e", b"{}", b"{}", &mut sent).unwrap();
    assert_eq!(session.rows(&rows, MoreRows::No, &mut sent).unwrap(), ListState::Ended);
    drop(session);
    assert_eq!((sent.body.as_str(), server.processes()), ("head,a,b,", (0, 1)));
}

#[test]
fn lists_without_a_reader_are_aborted() {
    let server = server();
    let mut program = design(&server, "1-a", r#"{"lists":{"l":"all"}}"#);
    let mut sent = Sent { wanted: 2, ..Sent::default() };
    let mut session = program.list("l", b"{}", b"{}", &mut sent).unwrap();
    let rows: [&[u8]; 2] = [br#"{"id":"a"}"#, br#"{"id":"b"}"#];
    assert_eq!(session.rows(&rows, MoreRows::Perhaps, &mut sent).unwrap(), ListState::Ended);
    drop(session);
    assert_eq!((sent.body.as_str(), server.processes()), ("head,a,", (0, 0)));
    drop(program.list("l", b"{}", b"{}", &mut Sent::default()).unwrap());
    assert_eq!(server.processes(), (0, 0));
}

#[test]
fn a_server_with_views_only_says_so() {
    let (server, _) = super::server_with("sh -c 'read line; echo true; read line; exit 1'", super::settings());
    let error = design(&server, "1-a", "{}").call(&["shows", "s"], &[b"null", b"{}"]).unwrap_err();
    let CallError::Run(RunError::Fatal { name, reason }) = error else { panic!("{error:?}") };
    assert_eq!(name, "os_process_error");
    assert!(reason.contains("it may support only views and not the command ddoc"), "{reason}");
}

#[test]
fn a_function_that_ends_its_process_is_named() {
    let server = server();
    let mut program = design(&server, "1-a", r#"{"shows":{"s":"die","pid":"pid"}}"#);
    for _ in 0..2 {
        let error = program.call(&["shows", "s"], &[b"null", b"{}"]).unwrap_err().to_string();
        assert!(error.contains("exit status: 6 (the function shows.s of _design/d)"), "{error}");
        assert!(program.call(&["shows", "pid"], &[b"null", b"{}"]).is_ok());
    }
}
