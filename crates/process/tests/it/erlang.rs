//! The Erlang query server of this crate. Without `escript` these tests fail, unless `SETTEE_ALLOW_MISSING` is set.

use std::sync::OnceLock;

use settee_design::{CallError, CompileError, DesignProgram, Emissions, ListState, MoreRows};
use settee_process::{QueryServer, erlang};

use super::functions::Sent;
use super::{batch, program, run, server_with, settings, show};

fn erlang() -> Option<&'static QueryServer> {
    static SERVER: OnceLock<Option<QueryServer>> = OnceLock::new();
    SERVER.get_or_init(|| Some(server_with(command()?, settings()).0)).as_ref()
}

pub(crate) fn command() -> Option<&'static str> {
    static COMMAND: OnceLock<Option<String>> = OnceLock::new();
    let command = COMMAND.get_or_init(|| {
        let version = std::process::Command::new("escript").arg("--version").output();
        if version.is_err() {
            let missing = "escript is missing: install the Debian package erlang-base";
            let allowed = std::env::var_os("SETTEE_ALLOW_MISSING").is_some();
            assert!(allowed, "{missing}, or set SETTEE_ALLOW_MISSING=1 to skip the tests that need it");
            println!("skipped: {missing}");
            return None;
        }
        let copy = std::env::temp_dir().join(format!("settee-erlang-{}.escript", std::process::id()));
        std::fs::write(&copy, erlang::SCRIPT).unwrap();
        Some(erlang::command(&copy))
    });
    command.as_deref()
}

#[track_caller]
fn check(source: &str, document: &str, expected: &str) {
    let Some(server) = erlang() else { return };
    let output = run(server, &[source], &[document]).unwrap();
    assert_eq!(show(&output), expected, "{source} on {document}; log: {:?}", output.log);
}

#[test]
fn published_functions_run_unchanged() {
    check(
        r#"fun({Doc}) ->
             case proplists:get_value(<<"tags">>, Doc) of
               undefined -> ok;
               Tags -> lists:foreach(fun(Tag) -> Emit(Tag, 1) end, Tags)
             end
           end."#,
        r#"{"tags":["a","b"]}"#,
        r#"[[0,0,"a",1],[0,0,"b",1]]"#,
    );
    check(
        "fun({Doc}) -> <<K:1/binary, _/binary>> = couch_util:get_value(<<\"_rev\">>, Doc), Emit(K, null) end.",
        r#"{"_rev":"3-abc"}"#,
        r#"[[0,0,"3",null]]"#,
    );
    check(
        "fun({Doc}) -> case couch_util:get_nested_json_value({Doc}, [<<\"a\">>, <<\"b\">>]) of V -> Emit([V, null], {[{<<\"x\">>, true}, {y, [1, 2.5]}]}) end end",
        r#"{"a":{"b":7}}"#,
        r#"[[0,0,[7,null],{"x":true,"y":[1,2.5]}]]"#,
    );
    check(
        "fun(_) -> Emit(lists:flatten(io_lib:format(\"~B\", [7])), undefined) end.",
        "{}",
        r#"[[0,0,[55],"undefined"]]"#,
    );
}

#[test]
fn the_example_of_the_documentation_runs() {
    let page = include_str!("../../../../docs/languages.md");
    let lines = page.lines().skip_while(|line| !line.starts_with("fun({Doc}) ->"));
    let example: Vec<&str> = lines.take_while(|line| *line != "```").collect();
    assert_eq!(example.len(), 6);
    check(&example.join("\n"), r#"{"tags":["a","b"]}"#, r#"[[0,0,"a",1],[0,0,"b",1]]"#);
}

#[test]
fn values_survive_the_way_there_and_back() {
    let echo = r#"fun({Doc}) -> Emit(proplists:get_value(<<"v">>, Doc), null) end."#;
    let same = [
        "[1,-2,0,123456789012345678901234567890,-7]",
        "[1.5,0.001,100000.0,1e+21,1.5e-7,1.7976931348623157e+308,5e-324,0.1,-2.5,12345678.125]",
        r#"{"b":1,"a":{"c":[true,false,null,[],{},""]}}"#,
        r#""quote \" backslash \\ line \n tab \t é 😀""#,
        r#""\u0001""#,
        r#"[[[[[[]]]]]]"#,
    ];
    for value in same {
        check(echo, &format!("{{\"v\":{value}}}"), &format!("[[0,0,{value},null]]"));
    }
    let long = "x".repeat(70);
    let printed = [
        ("1e2", "100.0".to_owned()),
        ("1E-2", "0.01".to_owned()),
        ("1.0", "1.0".to_owned()),
        (r#""\u00e9\ud83d\ude00\/""#, "\"é😀/\"".to_owned()),
        (&format!("\"{long}\\n{long}\""), format!("\"{long}\\n{long}\"")),
        (&format!("\"{long}é\\\\\""), format!("\"{long}é\\\\\"")),
        (&format!("\"{long}\""), format!("\"{long}\"")),
    ];
    for (value, expected) in printed {
        check(echo, &format!("{{\"v\":{value}}}"), &format!("[[0,0,{expected},null]]"));
    }
}

#[test]
fn an_exception_skips_the_document_for_its_function_only() {
    let Some(server) = erlang() else { return };
    let good = "fun({Doc}) -> Log(\"hello\"), Emit(proplists:get_value(<<\"n\">>, Doc), null) end.";
    let bad = "fun({Doc}) -> Emit(1, 1), {_} = proplists:get_value(<<\"n\">>, Doc) end.";
    let no_json = "fun({Doc}) -> Emit({a, b}, 1) end.";
    let output = run(server, &[good, bad], &[r#"{"n":1}"#, r#"{"n":{}}"#]).unwrap();
    assert_eq!(show(&output), "[[0,0,1,null],[1,0,{},null],[1,1,1,1]]");
    assert_eq!(output.log[0], "hello");
    assert_eq!(output.log[1], "function raised exception {error,{badmatch,1}} with doc._id doc1");
    super::check_fatal(run(server, &[no_json], &["{}"]), "invalid_value", &["no JSON value: {a,b}", "doc1"]);
}

#[test]
fn sources_that_are_no_functions_are_refused() {
    let Some(server) = erlang() else { return };
    let check = |source: &str, expected: &str| match program(server, &[source]) {
        Err(CompileError::Source(message)) => assert_eq!(message, format!("{expected} ({source})")),
        Err(other) => panic!("{source}: {other:?}"),
        Ok(_) => panic!("{source} compiled"),
    };
    check("fun({Doc} -> ok end.", "line 1: syntax error before: '->'");
    check("42.", "Expression does not eval to a function.");
    check("fun(Doc) -> \"open end.", "line 1: unterminated string starting with \"open end.\"");
    check("fun(Doc) -> Emit(Unknown, null) end.", "{unbound_var,'Unknown'}");
    check("nosuch:module().", "undef");
}

fn design(json: &str) -> Option<Box<dyn DesignProgram>> {
    Some(super::functions::design(erlang()?, json, json))
}

#[test]
fn the_other_functions_of_design_documents_run() {
    let json = r#"{"_id":"_design/d","greeting":"Hi","shows":{
        "s":"fun({Doc}, {Req}) -> {D} = DDoc, {[{<<\"body\">>, [proplists:get_value(<<\"greeting\">>, D), proplists:get_value(<<\"_id\">>, Doc)]}]} end.",
        "plain":"fun(_, _) -> <<\"text\">> end.", "throws":"fun(_, _) -> throw([error, not_found, <<\"nowhere\">>]) end.",
        "fails":"fun(_, _) -> 1 = 2 end.", "syntax":"fun("},
        "updates":{"u":"fun(Doc, _) -> [Doc, {[{<<\"code\">>, 201}]}] end."},
        "rewrites":"fun(_) -> {[{<<\"path\">>, <<\"../x\">>}]} end."}"#;
    let Some(mut program) = design(json) else { return };
    let mut call =
        |path: &[&str], arguments: &[&[u8]]| program.call(path, arguments).map(|text| String::from_utf8(text).unwrap());
    let document: &[&[u8]] = &[br#"{"_id":"a"}"#, b"{}"];
    assert_eq!(call(&["shows", "s"], document).unwrap(), r#"["resp",{"body":["Hi","a"]}]"#);
    assert_eq!(call(&["shows", "plain"], document).unwrap(), r#"["resp",{"body":"text"}]"#);
    assert_eq!(call(&["shows", "throws"], document).unwrap_err(), CallError::NotFound("nowhere".to_owned()));
    assert_eq!(call(&["updates", "u"], document).unwrap(), r#"["up",{"_id":"a"},{"code":201}]"#);
    assert_eq!(call(&["rewrites"], &[b"{}"]).unwrap(), r#"["ok",{"path":"../x"}]"#);
    let missing = "missing function nix on design doc _design/d".to_owned();
    assert_eq!(call(&["shows", "nix"], document).unwrap_err(), CallError::NotFound(missing));
    let error = call(&["shows", "fails"], document).unwrap_err().to_string();
    assert_eq!(error, "native_query_server: {error,{badmatch,2}}");
    let error = call(&["shows", "syntax"], document).unwrap_err().to_string();
    assert!(error.starts_with("compilation_error: line 1: syntax error"), "{error}");
}

#[test]
fn validations_accept_and_refuse() {
    let check = |body: &str, expected: Result<Vec<u8>, CallError>| {
        let function = format!("fun(New, Old, {{Ctx}}, Sec) -> {body} end.");
        let json = format!("{{\"validate_doc_update\":{function:?}}}");
        let Some(mut program) = design(&json) else { return };
        let context = br#"{"name":"jo","roles":["_admin"]}"#;
        assert_eq!(program.call(&["validate_doc_update"], &[b"{}", b"null", context, b"{}"]), expected, "{body}");
    };
    check("1", Ok(b"1".to_vec()));
    check("ok", Ok(b"1".to_vec()));
    check("case proplists:get_value(<<\"name\">>, Ctx) of <<\"jo\">> -> 1 end", Ok(b"1".to_vec()));
    let forbidden = || Err(CallError::Forbidden("no".into()));
    check("throw({forbidden, <<\"no\">>})", forbidden());
    check("throw({[{<<\"forbidden\">>, <<\"no\">>}]})", forbidden());
    check("{[{<<\"forbidden\">>, <<\"no\">>}]}", forbidden());
    check("throw({unauthorized, <<\"anonymous\">>})", Err(CallError::Unauthorized("anonymous".into())));
}

#[test]
fn filters_pass_documents() {
    let json = r#"{"filters":{"f":"fun({Doc}, {Req}) -> {Q} = proplists:get_value(<<\"query\">>, Req), proplists:get_value(<<\"t\">>, Doc) =:= proplists:get_value(<<\"t\">>, Q) end.",
        "fails":"fun(_, _) -> 1 = 2 end."},
        "views":{"v":{"map":"fun({Doc}) -> case proplists:get_value(<<\"t\">>, Doc) of <<\"x\">> -> Emit(1, 1); _ -> ok end end."}}}"#;
    let Some(mut program) = design(json) else { return };
    let documents = batch(&[r#"{"t":"x"}"#, r#"{"t":"y"}"#]);
    let request = Some(&br#"{"query":{"t":"y"}}"#[..]);
    assert_eq!(program.filter(&["filters", "f"], &documents, request).unwrap(), [false, true]);
    assert_eq!(program.filter(&["views", "v", "map"], &documents, None).unwrap(), [true, false]);
    assert_eq!(program.filter(&["filters", "fails"], &documents, request).unwrap(), [false, false]);
    assert_eq!(program.take_log()[0], "filter raised exception {error,{badmatch,2}} with doc._id doc1");
}

#[test]
fn lists_fold_over_rows() {
    let json = r#"{"lists":{
        "fold":"fun(Head, {Req}) -> Start({[{<<\"headers\">>, {[{<<\"Content-Type\">>, <<\"text/plain\">>}]}}]}), Send(<<\"head\">>), Fun = fun({Row}, N) -> Send([<<\",\">>, proplists:get_value(<<\"id\">>, Row)]), {ok, N + 1} end, {ok, N} = FoldRows(Fun, 0), Send(integer_to_binary(N)), <<\"tail\">> end.",
        "one":"fun(_, _) -> {Row} = GetRow(), Send(proplists:get_value(<<\"id\">>, Row)), <<\"!\">> end.",
        "none":"fun(_, _) -> <<\"nothing\">> end."}}"#;
    let Some(mut program) = design(json) else { return };
    let rows: [&[u8]; 3] = [br#"{"id":"a"}"#, br#"{"id":"b"}"#, br#"{"id":"c"}"#];
    for (name, body, response) in [
        ("fold", "head,a,b,c3tail", r#"{"headers":{"Content-Type":"text/plain"}}"#),
        ("one", "a!", r#"{"headers":{}}"#),
        ("none", "nothing", r#"{"headers":{}}"#),
    ] {
        let mut sent = Sent::default();
        let mut session = program.list(name, b"{}", b"{}", &mut sent).unwrap();
        assert_eq!(session.rows(&rows, MoreRows::No, &mut sent).unwrap(), ListState::Ended);
        drop(session);
        assert_eq!((sent.body.as_str(), sent.response.as_str()), (body, response), "{name}");
    }
}

#[test]
fn many_documents_and_functions_go_through() {
    let Some(server) = erlang() else { return };
    let long = "x".repeat(40_000);
    let documents: Vec<String> = (0..300).map(|number| format!("{{\"n\":{number},\"long\":\"{long}\"}}")).collect();
    let documents = batch(&documents);
    for number in (0..500).step_by(7) {
        let source = format!("fun({{Doc}}) -> Emit(proplists:get_value(<<\"n\">>, Doc), {number}) end.");
        let mut program = program(server, &[&source, &source]).unwrap();
        if number % 70 == 0 {
            let mut output = Emissions::new();
            program.map(&documents, &mut output).unwrap();
            assert_eq!(output.len(), 600);
            assert!(output.rows().all(|row| row.value == number.to_string().as_bytes()));
        }
    }
}
