//! The functions of design documents other than views.

use std::ops::ControlFlow;

use settee_model::json::{Json, Value};

use super::subject::{Subject, batch, text};
use crate::{CallError, CompileError, DesignProgram, DesignSource, ListSink, ListState, MoreRows};

const REQUEST: &[u8] = br#"{"method":"POST","path":["db"],"headers":{},"query":{"kind":"x"}}"#;

fn program(subject: &Subject<'_>) -> Option<Box<dyn DesignProgram>> {
    let json = Json::parse(subject.design.unwrap_or("{}").as_bytes());
    let json = json.unwrap_or_else(|error| panic!("the design document: {error}")).into_bytes();
    let source =
        DesignSource { database: 4711, id: "_design/conformance".into(), rev: "1-a".into(), json: json.into() };
    match (subject.language.design_program(&source, subject.limits), subject.design) {
        (Ok(program), Some(_)) => Some(program),
        (Err(CompileError::Unavailable(_)), None) => None,
        (Err(error), _) => panic!("the design document: {error}"),
        (Ok(_), None) => panic!("a language without other functions than those of views offers them"),
    }
}

fn called(program: &mut dyn DesignProgram, path: &[&str], arguments: &[&[u8]]) -> Json {
    let answer = program.call(path, arguments).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    Json::parse(&answer).unwrap_or_else(|error| panic!("{path:?} answers {}: {error}", text(&answer)))
}

pub fn other_functions_are_called(subject: &Subject<'_>) {
    let Some(mut program) = program(subject) else { return };
    let program = &mut *program;
    let document: &[u8] = br#"{"_id":"a","title":"A","n":[1.5,{"b":null,"a":true}]}"#;
    let (jo, anonymous): (&[u8], &[u8]) = (br#"{"name":"jo","roles":[]}"#, br#"{"name":null,"roles":[]}"#);
    let validate = |program: &mut dyn DesignProgram, document, user| {
        program.call(&["validate_doc_update"], &[document, b"null", user, b"{}"])
    };
    for _ in 0..2 {
        assert_eq!(validate(program, document, jo), Ok(b"1".to_vec()));
        let refused = validate(program, b"{\"_id\":\"a\"}", jo);
        assert!(matches!(refused, Err(CallError::Forbidden(_))), "{refused:?}");
        let refused = validate(program, document, anonymous);
        assert!(matches!(refused, Err(CallError::Unauthorized(_))), "{refused:?}");

        let shown = called(program, &["shows", "id"], &[document, REQUEST]);
        let mut parts = shown.value().elements();
        let (kind, response) = (parts.next().unwrap_or(Value::NULL), parts.next().unwrap_or(Value::NULL));
        assert!(kind.is_string("resp"), "{}", text(shown.as_bytes()));
        assert!(response.get("body").is_some_and(|body| body.is_string("a")), "{}", text(shown.as_bytes()));
        let failed = program.call(&["shows", "fails"], &[document, REQUEST]);
        assert!(matches!(failed, Err(CallError::Failed { .. })), "{failed:?}");
        let missing = program.call(&["shows", "missing"], &[document, REQUEST]);
        assert!(matches!(missing, Err(CallError::NotFound(_))), "{missing:?}");

        let updated = called(program, &["updates", "same"], &[document, REQUEST]);
        let parts: Vec<_> = updated.value().elements().collect();
        let [kind, same, response] = parts[..] else { panic!("{}", text(updated.as_bytes())) };
        assert!(kind.is_string("up") && same.raw() == document, "{}", text(updated.as_bytes()));
        assert!(response.get("body").is_some_and(|body| body.is_string("done")), "{}", text(updated.as_bytes()));
    }
}

/// A filter returns a result for each document, in order; a map function can be a filter.
pub fn filters_answer_for_each_document(subject: &Subject<'_>) {
    let Some(mut program) = program(subject) else { return };
    let documents: Vec<&str> = (0..250).map(|number| [r#"{"kind":"x"}"#, r#"{"kind":7}"#, "{}"][number % 3]).collect();
    let documents = batch(&documents);
    let right: Vec<bool> = (0..250).map(|number| number % 3 == 0).collect();
    assert_eq!(program.filter(&["filters", "kind"], &documents, Some(REQUEST)).as_ref(), Ok(&right));
    assert_eq!(program.filter(&["views", "x", "map"], &documents, None), Ok(right));
}

#[derive(Default)]
struct Sent(String);

impl ListSink for Sent {
    fn response(&mut self, response: &[u8]) {
        assert!(Value::trusted(response).is_object(), "{}", text(response));
    }

    fn chunk(&mut self, chunk: &[u8]) -> ControlFlow<()> {
        self.0.push_str(&text(chunk));
        ControlFlow::Continue(())
    }
}

/// A list function receives its rows in parts of any size, including none.
pub fn lists_take_rows(subject: &Subject<'_>) {
    let Some(mut program) = program(subject) else { return };
    let rows: [&[u8]; 3] = [br#"{"id":"a"}"#, br#"{"id":"b"}"#, br#"{"id":"c"}"#];
    for (parts, body) in [(vec![3], "head,a,b,c,tail"), (vec![1, 2, 0], "head,a,b,c,tail"), (vec![0], "head,tail")] {
        let mut sent = Sent::default();
        let list = program.list("ids", br#"{"total_rows":3,"offset":0}"#, REQUEST, &mut sent);
        let mut session = list.unwrap_or_else(|error| panic!("the list does not start: {error}"));
        let mut first = 0;
        for (number, count) in parts.iter().enumerate() {
            let more = if number + 1 == parts.len() { MoreRows::No } else { MoreRows::Perhaps };
            let state = session.rows(&rows[first..first + count], more, &mut sent);
            let right = if more == MoreRows::No { ListState::Ended } else { ListState::Waiting };
            assert_eq!(state, Ok(right), "{parts:?}");
            first += count;
        }
        drop(session);
        assert_eq!(sent.0, body, "{parts:?}");
    }
}
