use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use settee_design::{
    CallError, DesignProgram, DesignSource, DocumentBatch, Language as _, Limits, ListSink, ListState, MoreRows,
    Reason, RunError,
};
use settee_model::json::Value;

use super::{batch, language};

fn program_of(rev: &str, json: &str, limits: Limits) -> Box<dyn DesignProgram> {
    let source = DesignSource { database: 7, id: "_design/d".into(), rev: rev.into(), json: json.as_bytes().into() };
    language().design_program(&source, limits).unwrap()
}

fn program(kind: &str, function: &str, more: &str) -> Box<dyn DesignProgram> {
    let mut text = Vec::new();
    settee_model::json::write_string(&mut text, function);
    let function = String::from_utf8(text).unwrap();
    let member = match kind {
        "validate_doc_update" | "rewrites" => format!("\"{kind}\":{function}"),
        _ => format!("\"{kind}\":{{\"f\":{function}}}"),
    };
    let json = format!("{{\"_id\":\"_design/d\",\"_rev\":\"1-a\",{member}{more}}}");
    program_of(&json, &json, Limits::default())
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

fn failed(name: &str, reason: &str) -> CallError {
    CallError::Failed { name: name.to_owned(), reason: reason.to_owned() }
}

const REQUEST: &str =
    r#"{"method":"POST","path":["db","_design","d","_show","f"],"headers":{"Accept":"text/html"},"query":{}}"#;

#[track_caller]
fn check(kind: &str, function: &str, arguments: &[&str], expected: &str) {
    let path: &[&str] = if matches!(kind, "shows" | "updates") { &[kind, "f"] } else { &[kind] };
    let arguments: Vec<&[u8]> = arguments.iter().map(|argument| argument.as_bytes()).collect();
    let lib = r#","lib":{"m":"exports.f = function(x) { return x * 21; };","n":"exports.g = require('./m').f(3);","deep":{"o":"module.exports = require('../n').g + 1;"}},"views":{"lib":{"v":"exports.v = 'view';"}}"#;
    let result = program(kind, function, lib).call(path, &arguments).map(text);
    assert_eq!(result.as_deref(), Ok(expected), "{function}");
}

#[track_caller]
fn check_throws(kind: &str, function: &str, arguments: &[&str], expected: &CallError) {
    let path: &[&str] = if matches!(kind, "shows" | "updates") { &[kind, "f"] } else { &[kind] };
    let arguments: Vec<&[u8]> = arguments.iter().map(|argument| argument.as_bytes()).collect();
    let result = program(kind, function, "").call(path, &arguments).map(text);
    assert_eq!(result.as_ref(), Err(expected), "{function}");
}

#[test]
fn shows_render_documents() {
    let doc = r#"{"_id":"a","n":1}"#;
    let table = [
        ("function(doc, req) { return 'Hello ' + doc._id; }", r#"["resp",{"body":"Hello a"}]"#),
        (
            "function(doc) { return {code: 203, headers: {'X-A': 'b'}, json: doc}; }",
            r#"["resp",{"code":203,"headers":{"X-A":"b"},"json":{"_id":"a","n":1}}]"#,
        ),
        ("function() {}", r#"["resp",{}]"#),
        ("function() { return require('lib/m').f(2) + ''; }", r#"["resp",{"body":"42"}]"#),
        ("function() { return require('lib/deep/o') + require('views/lib/v').v; }", r#"["resp",{"body":"64view"}]"#),
        ("function() { send('a'); send(1); return 'tail'; }", r#"["resp",{"body":"a1tail","headers":{}}]"#),
        (
            "function() { start({code: 202, headers: {A: 'b'}}); send('x'); }",
            r#"["resp",{"code":202,"headers":{"A":"b"},"body":"x"}]"#,
        ),
        (
            "function() { provides('json', function() { return '{}'; }); provides('html', function() { return '<b>' + this._id; }); }",
            r#"["resp",{"body":"<b>_design/d","headers":{"Content-Type":"text/html; charset=utf-8"}}]"#,
        ),
        (
            "function() { registerType('foo', 'text/html', 'x/y'); provides('foo', function() { send('1'); return {body: '2'}; }); }",
            r#"["resp",{"body":"12","headers":{"Content-Type":"text/html"}}]"#,
        ),
        (
            "function() { return [isArray([]), sum([1, 2]), toJSON({a: 1})].join(); }",
            r#"["resp",{"body":"true,3,{\"a\":1}"}]"#,
        ),
        ("function(doc) { doc.n = 2; return {json: doc}; }", r#"["resp",{"json":{"_id":"a","n":2}}]"#),
        (
            "function() { start({'X-A': 'b', 'X-N': 1}); send('x'); return 'y'; }",
            r#"["resp",{"body":"xy","headers":{"X-A":"b","X-N":"1"}}]"#,
        ),
        (
            "function() { start({'X-A': 'b'}); send('x'); return {code: 299, headers: {'X-A': 'c', 'X-B': 'd'}}; }",
            r#"["resp",{"code":299,"headers":{"X-A":"b","X-B":"d"},"body":"x"}]"#,
        ),
        ("function() { start({'X-A': 'b'}); return 'y'; }", r#"["resp",{"body":"y"}]"#),
        ("function() { return this.shows ? 'this' : 'other'; };\n", r#"["resp",{"body":"this"}]"#),
    ];
    for (function, expected) in table {
        check("shows", function, &[doc, REQUEST], expected);
    }
}

#[test]
fn provided_types_follow_the_request() {
    let function = "function() { provides('html', function() { return 'h'; }); provides('json', function() { return 'j'; }); provides('xml', function() { return 'x'; }); }";
    let table = [
        (r#"{"headers":{},"query":{}}"#, "h", "text/html; charset=utf-8"),
        (r#"{"headers":{"Accept":"*/*"},"query":{}}"#, "h", "text/html; charset=utf-8"),
        (r#"{"headers":{"Accept":"application/json"},"query":{}}"#, "j", "application/json"),
        (r#"{"headers":{"Accept":"text/*;q=0.3, application/json;q=0.9"},"query":{}}"#, "j", "application/json"),
        (r#"{"headers":{"Accept":"text/html;q=0.2, text/xml"},"query":{}}"#, "x", "text/xml"),
        (r#"{"headers":{"Accept":"text/html"},"query":{"format":"xml"}}"#, "x", "application/xml"),
    ];
    for (request, body, content_type) in table {
        let expected = format!(r#"["resp",{{"body":"{body}","headers":{{"Content-Type":"{content_type}"}}}}]"#);
        check("shows", function, &["null", request], &expected);
    }
    let reason = "Content-Type image/png not supported, try one of: application/xml, text/xml, application/x-xml, application/json, text/x-json, text/html; charset=utf-8";
    check_throws(
        "shows",
        function,
        &["{}", r#"{"headers":{"Accept":"image/png"}}"#],
        &failed("not_acceptable", reason),
    );
}

#[test]
fn shows_that_fail_say_how() {
    let named = r#"{"path":["db","_design","d","_show","f","a"],"headers":{},"query":{}}"#;
    let not_found = CallError::NotFound("document not found".to_owned());
    check_throws("shows", "function(doc) { return doc._id; }", &["null", named], &not_found);
    let table = [
        ("function() { throw ['error', 'teapot', 'short']; }", failed("teapot", "short")),
        ("function() { throw {error: 'a', reason: 'b'}; }", failed("a", "b")),
        ("function() { throw ['error', 'not_found', 'x']; }", CallError::NotFound("x".to_owned())),
        (
            "function() { throw {forbidden: 'no'}; }",
            failed("render_error", "function raised error: {\"forbidden\":\"no\"} \nstacktrace: undefined"),
        ),
        ("function() { throw 'text'; }", failed("render_error", "function raised error: text \nstacktrace: undefined")),
        ("function() { return 7; }", failed("render_error", "undefined response from show function")),
        ("function( {", failed("compilation_error", "")),
        ("42", failed("compilation_error", "Expression does not eval to a function. (42)")),
        ("function() { require('lib/nosuch'); }", failed("invalid_require_path", "")),
    ];
    for (function, expected) in table {
        let result = program("shows", function, r#","lib":{}"#).call(&["shows", "f"], &[b"{}", REQUEST.as_bytes()]);
        match (result, expected) {
            (Err(CallError::Failed { name, reason }), CallError::Failed { name: expected, reason: text }) => {
                assert_eq!(name, expected, "{function}: {reason}");
                assert!(text.is_empty() || reason == text, "{function}: {reason}");
            }
            (result, expected) => assert_eq!(result.map(text), Err(expected), "{function}"),
        }
    }
}

#[test]
fn updates_answer_documents_and_responses() {
    let table = [
        ("function(doc, req) { return [{_id: req.uuid}, 'made']; }", r#"["up",{"_id":"u"},{"body":"made"}]"#),
        ("function() { return [null, {code: 418, body: 'teapot'}]; }", r#"["up",null,{"code":418,"body":"teapot"}]"#),
        ("function() { return [undefined, 'x']; }", r#"["up",null,{"body":"x"}]"#),
    ];
    for (function, expected) in table {
        check("updates", function, &["null", r#"{"method":"POST","uuid":"u"}"#], expected);
    }
    let get = r#"{"method":"GET"}"#;
    let refusal = failed("method_not_allowed", "Update functions do not allow GET");
    check_throws("updates", "function() { return [null, 'x']; }", &["null", get], &refusal);
    let nothing = failed("render_error", "undefined response from update function");
    check_throws("updates", "function() { return [null]; }", &["null", REQUEST], &nothing);
}

fn thrown(json: &str) -> Reason {
    Value::trusted(json.as_bytes()).into()
}

#[test]
fn validations_accept_or_throw() {
    let arguments = [r#"{"_id":"a","n":1}"#, "null", r#"{"name":"jo","roles":["editor"]}"#, "{}"];
    check("validate_doc_update", "function(doc, old, user) { if (user.name !== 'jo') throw 1; }", &arguments, "1");
    let table = [
        ("throw {forbidden: 'no ' + doc._id}", CallError::Forbidden("no a".into())),
        ("throw({unauthorized: 'log in'})", CallError::Unauthorized("log in".into())),
        ("throw 'plain'", failed("unknown_error", "plain")),
        ("throw {other: 'x'}", failed("unknown_error", "x")),
        ("null.x", failed("TypeError", "TypeError: cannot read property 'x' of null")),
        ("throw {forbidden: {deep: 1}}", CallError::Forbidden(thrown(r#"{"deep":1}"#))),
        ("throw {forbidden: [1, 'a']}", CallError::Forbidden(thrown(r#"[1,"a"]"#))),
        ("throw {unauthorized: 7}", CallError::Unauthorized(thrown("7"))),
        ("throw {unauthorized: null}", CallError::Unauthorized(thrown("null"))),
        ("throw {forbidden: false}", CallError::Forbidden(thrown("false"))),
        ("throw {forbidden: ''}", CallError::Forbidden("".into())),
    ];
    for (body, expected) in table {
        check_throws("validate_doc_update", &format!("function(doc, old) {{ {body} }}"), &arguments, &expected);
    }
}

#[test]
fn rewrites_answer_where_to_go() {
    let request = [r#"{"method":"PUT"}"#];
    check("rewrites", "function(req) { return '../../x'; }", &request, r#"["ok",{"path":"../../x","method":"PUT"}]"#);
    check("rewrites", "function(req) { return {code: 302}; }", &request, r#"["ok",{"code":302}]"#);
    check("rewrites", "function(req) {}", &request, r#"["no_dispatch_rule"]"#);
    let forbidden = CallError::Forbidden("no".into());
    check_throws("rewrites", "function() { throw {forbidden: 'no'}; }", &request, &forbidden);
}

fn filter(program: &mut dyn DesignProgram, path: &[&str], documents: &DocumentBatch) -> Result<Vec<bool>, CallError> {
    program.filter(path, documents, Some(br#"{"query":{"type":"u"}}"#))
}

#[test]
fn filters_judge_batches() {
    let documents = batch(&[r#"{"type":"u","n":1}"#, r#"{"type":"v"}"#, r#"{"type":"u","_deleted":true}"#]);
    let check = |function: &str, expected: &[bool]| {
        let verdicts = filter(&mut *program("filters", function, ""), &["filters", "f"], &documents);
        assert_eq!(verdicts.as_deref(), Ok(expected), "{function}");
    };
    check("function(doc, req) { return doc.type === req.query.type; }", &[true, false, true]);
    check("function(doc) { return doc.n; }", &[true, false, false]);
    check("function(doc) { return doc._deleted; }", &[false, false, true]);
    let mut views = program("x", "1", r#","views":{"v":{"map":"function(doc) { if (doc.n) emit(doc.n, null); }"}}"#);
    assert_eq!(filter(&mut *views, &["views", "v", "map"], &documents), Ok(vec![true, false, false]));
    let thrown =
        filter(&mut *program("filters", "function() { throw {forbidden: 'no'}; }", ""), &["filters", "f"], &documents);
    assert_eq!(thrown, Err(failed("unnamed_error", "{\"forbidden\":\"no\"}")));
    let missing = CallError::NotFound("missing filters function g on design doc _design/d".to_owned());
    let mut none = program("filters", "function() {}", "");
    assert_eq!(filter(&mut *none, &["filters", "g"], &documents), Err(missing));
    assert_eq!(filter(&mut *none, &["filters", "f"], &documents), Ok(vec![false; 3]));
}

#[test]
fn large_batches_take_several_requests() {
    let large: Vec<String> = (0..40).map(|n| format!("{{\"n\":{n},\"x\":\"{}\"}}", "x".repeat(100_000))).collect();
    let documents = batch(&large.iter().map(String::as_str).collect::<Vec<_>>());
    let verdicts =
        filter(&mut *program("filters", "function(doc) { return doc.n % 3 == 0; }", ""), &["filters", "f"], &documents);
    let expected: Vec<bool> = (0..40).map(|n| n % 3 == 0).collect();
    assert_eq!(verdicts, Ok(expected));
}

#[derive(Default)]
struct Taken {
    responses: Vec<String>,
    body: Vec<u8>,
    chunks: usize,
    enough: Option<usize>,
}

impl ListSink for Taken {
    fn response(&mut self, response: &[u8]) {
        self.responses.push(String::from_utf8(response.to_vec()).unwrap());
    }

    fn chunk(&mut self, chunk: &[u8]) -> ControlFlow<()> {
        self.body.extend_from_slice(chunk);
        self.chunks += 1;
        match self.enough {
            Some(enough) if self.chunks >= enough => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

fn list(function: &str, batches: &[&[&str]]) -> Result<Taken, CallError> {
    let mut taken = Taken::default();
    let mut program = program("lists", function, "");
    let mut session = program.list("f", br#"{"total_rows":2}"#, REQUEST.as_bytes(), &mut taken)?;
    for (index, rows) in batches.iter().enumerate() {
        let rows: Vec<&[u8]> = rows.iter().map(|row| row.as_bytes()).collect();
        let more = if index + 1 == batches.len() { MoreRows::No } else { MoreRows::Perhaps };
        if session.rows(&rows, more, &mut taken)? == ListState::Ended {
            break;
        }
    }
    drop(session);
    Ok(taken)
}

#[test]
fn lists_read_rows_and_send_chunks() {
    let rows: &[&[&str]] = &[&[r#"{"id":"a"}"#, r#"{"id":"b"}"#], &[], &[r#"{"id":"c"}"#]];
    let all = "var row; while (row = getRow()) send(row.id);";
    let table = [
        (format!("{all} return '.';"), r#"{"headers":{}}"#, "abc."),
        (
            format!("start({{code: 201, headers: {{A: 'b'}}}}); send('<'); {all} send('>');"),
            r#"{"code":201,"headers":{"A":"b"}}"#,
            "<abc>",
        ),
        ("var row = getRow(); send(row.id);".to_owned(), r#"{"headers":{}}"#, "a"),
        ("return toJSON(head);".to_owned(), r#"{"headers":{}}"#, "{\"total_rows\":2}"),
        (
            "getRow(); getRow(); getRow(); return toJSON([getRow(), getRow()]);".to_owned(),
            r#"{"headers":{}}"#,
            "[null,null]",
        ),
        (
            format!("provides('html', function() {{ {all} return '!'; }});"),
            r#"{"headers":{"Content-Type":"text/html; charset=utf-8"}}"#,
            "abc!",
        ),
        ("getRow(); start({headers: {Late: 'yes'}}); send('x');".to_owned(), r#"{"headers":{"Late":"yes"}}"#, "x"),
        ("send('x'); getRow(); start({headers: {Late: 'yes'}});".to_owned(), r#"{"headers":{}}"#, "x"),
    ];
    for (body, response, expected) in table {
        let taken = list(&format!("function(head, req) {{ {body} }}"), rows).unwrap();
        assert_eq!(taken.responses.last().map(String::as_str), Some(response), "{body}");
        assert_eq!(String::from_utf8(taken.body).unwrap(), expected, "{body}");
    }
}

#[test]
fn lists_may_send_much() {
    let taken = list(
        "function() { var row; for (var i = 0; i < 30; i++) send('x'.repeat(100000)); while (row = getRow()) send('y'.repeat(300000)); }",
        &[&["{}", "{}"], &["{}"]],
    )
    .unwrap();
    assert_eq!(taken.body.len(), 3_000_000 + 900_000);
    assert!(taken.chunks > 10);
}

#[test]
fn an_endless_list_ends_without_a_reader_and_at_the_size_limit() {
    let limits = Limits { timeout_ms: 60_000, memory_bytes: 16 << 20, ..Limits::default() };
    let json = r#"{"_id":"_design/d","lists":{"f":"function() { for (;;) { send('x'.repeat(100)); send(''); } }"}}"#;
    for (enough, expected) in [(Some(3), None), (None, Some("render_error"))] {
        let mut endless = program_of("endless", json, limits);
        let mut taken = Taken { enough, ..Taken::default() };
        let ended = endless.list("f", b"{}", REQUEST.as_bytes(), &mut taken).map(drop);
        match expected {
            None => assert!(ended.is_err() && taken.chunks <= 4, "{ended:?} after {}", taken.chunks),
            Some(expected) => {
                assert!(matches!(&ended, Err(CallError::Failed { name, .. }) if name == expected), "{ended:?}");
                assert!(taken.body.len() > (15 << 20), "{}", taken.body.len());
            }
        }
    }
}

#[test]
fn lists_that_fail_or_are_given_up_leave_nothing_behind() {
    assert!(
        matches!(list("function() { null.x; }", &[&[]]), Err(CallError::Failed { name, .. }) if name == "render_error")
    );
    let late = list("function() { getRow(); throw ['error', 'late', 'too']; }", &[&["{}"]]);
    assert_eq!(late.map(|_| ()), Err(failed("late", "too")));
    let mut taken = Taken { enough: Some(1), ..Taken::default() };
    let mut endless = program("lists", "function() { for (;;) { send('x'.repeat(1000)); getRow(); } }", "");
    let mut session = endless.list("f", b"{}", REQUEST.as_bytes(), &mut taken).map_err(|_| ()).err();
    assert_eq!(session.take(), Some(()), "it is not read");
    let mut taken = Taken::default();
    let mut waiting = program("lists", "function() { send('a'); getRow(); getRow(); }", "");
    drop(waiting.list("f", b"{}", REQUEST.as_bytes(), &mut taken).unwrap());
    let mut again = Taken::default();
    let mut session = waiting.list("f", b"{}", REQUEST.as_bytes(), &mut again).unwrap();
    assert_eq!(session.rows(&[], MoreRows::No, &mut again), Ok(ListState::Ended));
    assert_eq!(session.rows(&[], MoreRows::No, &mut again), Ok(ListState::Ended));
    drop(session);
    assert_eq!((taken.body, again.body), (b"a".to_vec(), b"a".to_vec()));
}

#[test]
fn limits_hold_for_every_function() {
    let json = r#"{"_id":"_design/d","shows":{"loop":"function() { for (;;); }","eat":"function() { var a = []; for (;;) a.push('x'.repeat(1e5) + a.length); }","much":"function() { return 'x'.repeat(3e6); }","fine":"function() { return 'fine'; }"},"filters":{"loop":"function() { for (;;); }"},"lists":{"loop":"function() { getRow(); for (;;); }"}}"#;
    let limits = Limits { timeout_ms: 1_000, memory_bytes: 16 << 20, bytes_per_document: 1 << 20, ..Limits::default() };
    let mut program = program_of("limits", json, limits);
    let mut check = |name: &str, expected: &str| match program.call(&["shows", name], &[b"{}", b"{}"]) {
        Err(CallError::Run(RunError::Fatal { name, reason })) => {
            assert_eq!(name, expected, "{reason}");
            assert!(reason.contains("of _design/d"), "{reason}");
        }
        other => panic!("{name}: {other:?}"),
    };
    check("loop", "os_process_error");
    check("eat", "InternalError");
    check("much", "limit_exceeded");
    let filtered = program.filter(&["filters", "loop"], &batch(&["{}"]), None);
    assert!(matches!(filtered, Err(CallError::Run(RunError::Fatal { name, .. })) if name == "os_process_error"));
    let mut taken = Taken::default();
    let mut session = program.list("loop", b"{}", b"{\"headers\":{}}", &mut taken).unwrap();
    let looped = session.rows(&[b"{}"], MoreRows::No, &mut taken);
    assert!(matches!(looped, Err(CallError::Run(RunError::Fatal { name, .. })) if name == "os_process_error"));
    drop(session);
    let fine = program.call(&["shows", "fine"], &[b"{}", b"{}"]).map(text);
    assert_eq!(fine.as_deref(), Ok(r#"["resp",{"body":"fine"}]"#));
}

#[test]
fn compiled_functions_are_reused_only_for_their_revision() {
    let language = super::processes::marked("design-reuse");
    let source = |rev: &str, word: &str| DesignSource {
        database: 1,
        id: "_design/d".into(),
        rev: rev.into(),
        json: format!(r#"{{"shows":{{"f":"var calls = 0; (function() {{ return '{word}' + ++calls; }})"}}}}"#)
            .as_bytes()
            .into(),
    };
    let call = |source: &DesignSource| {
        let mut program = language.design_program(source, Limits::default()).unwrap();
        text(program.call(&["shows", "f"], &[b"{}", b"{}"]).unwrap())
    };
    let one = source("1-a", "one");
    assert_eq!(call(&one), r#"["resp",{"body":"one1"}]"#);
    assert_eq!(call(&one), r#"["resp",{"body":"one2"}]"#, "the same program, not compiled again");
    assert_eq!(call(&source("2-b", "two")), r#"["resp",{"body":"two1"}]"#);
    assert_eq!(call(&DesignSource { database: 2, ..one.clone() }), r#"["resp",{"body":"one1"}]"#);
    assert_eq!(call(&one), r#"["resp",{"body":"one3"}]"#);
    let many: Vec<_> = (0..16).map(|n| source(&format!("{n}-x"), "many")).collect();
    many.iter().for_each(|source| assert_eq!(call(source), r#"["resp",{"body":"many1"}]"#));
    assert_eq!(call(&one), r#"["resp",{"body":"one1"}]"#, "it had to yield");
    assert_eq!(super::processes::processes_with("design-reuse").len(), 1);
    for process in super::processes::processes_with("design-reuse") {
        super::processes::kill(process);
    }
    assert_eq!(call(&one), r#"["resp",{"body":"one1"}]"#, "a dead worker is replaced");
}

#[test]
fn log_lines_are_handed_over() {
    let mut program = program("shows", "function() { log('a line'); log({b: 1}); return 'x'; }", "");
    program.call(&["shows", "f"], &[b"{}", b"{}"]).unwrap();
    assert_eq!(program.take_log(), ["a line", "{\"b\":1}"]);
    assert_eq!(program.take_log(), [""; 0]);
}

#[test]
fn holders_of_a_worker_do_not_wait_for_another() {
    let settings = settee_js::PoolSettings { design_calls: 2, ..settee_js::PoolSettings::default() };
    let language = settee_js::JavaScript::new(super::command(), settings);
    let source = |rev: &str| DesignSource {
        database: 1,
        id: "_design/d".into(),
        rev: rev.into(),
        json: br#"{"validate_doc_update":"function() {}"}"#[..].into(),
    };
    let language = Arc::new(language);
    let (done, over) = mpsc::channel();
    for _ in 0..8 {
        let (language, done) = (Arc::clone(&language), done.clone());
        std::thread::spawn(move || {
            let programs = [source("1-a"), source("1-b"), source("1-c")];
            let mut programs = programs.map(|source| language.design_program(&source, Limits::default()).unwrap());
            for _ in 0..20 {
                for program in &mut programs {
                    assert_eq!(program.call(&["validate_doc_update"], &[]).map(text).as_deref(), Ok("1"));
                }
            }
            done.send(()).expect("the test waits");
        });
    }
    for _ in 0..8 {
        over.recv_timeout(Duration::from_secs(120)).expect("no session waits forever or fails");
    }
}

#[test]
fn functions_end_with_their_client() {
    let json = r#"{"_id":"_design/d","shows":{"loop":"function() { for (;;); }","fine":"function() { return 'fine'; }"},
        "filters":{"loop":"function() { for (;;); }"},"updates":{"loop":"function() { for (;;); }"}}"#;
    let limits = Limits { timeout_ms: 60_000, ..Limits::default() };
    let caller = settee_design::Caller::default();
    caller.cancellation.cancel();
    let began = std::time::Instant::now();
    let mut program = program_of("cancelled", json, limits);
    program.set_caller(&caller);
    let failures = [
        program.call(&["shows", "loop"], &[b"{}", b"{}"]).err(),
        program.call(&["updates", "loop"], &[b"null", b"{}"]).err(),
        program.filter(&["filters", "loop"], &batch(&["{}"]), None).err(),
    ];
    for failure in failures {
        assert_eq!(failure, Some(CallError::Run(RunError::cancelled())));
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "{:?}", began.elapsed());
    program.set_caller(&settee_design::Caller::default());
    assert!(program.call(&["shows", "fine"], &[b"{}", b"{}"]).is_ok());
}
