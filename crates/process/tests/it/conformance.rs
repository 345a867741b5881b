//! The conformance suite of languages, with a query server in Python and with the Erlang one.

use settee_design::Limits;
use settee_design::conformance::{
    MapExceptions, MapFunctions, Numbers, ReduceExceptions, ReduceFunctions, Subject, Ways, run_all,
};
use settee_process::{QueryServer, Settings};

use super::{command, server_with, settings};

const WAYS: Ways = Ways {
    numbers: Numbers::Integers,
    map_exceptions: MapExceptions::Logged,
    reduce_exceptions: ReduceExceptions::Fatal,
};

/// The second timeout is little more than the start of an interpreter.
fn servers(command: &str) -> [QueryServer; 2] {
    [60_000, 5_000].map(|timeout_ms| server_with(command, Settings { timeout_ms, ..settings() }).0)
}

#[test]
fn a_query_server_is_a_language() {
    let [server, short_timeout] = servers(&command());
    run_all(&Subject {
        language: &server,
        limits: Limits::default(),
        short_timeout: (&short_timeout, Limits::default()),
        map: MapFunctions {
            pair: "lambda doc: [(doc.get('k'), doc.get('v'))]",
            each: "lambda doc: [(element, at) for at, element in enumerate(doc.get('list', []))]",
            fails: "def fails(doc):\n    yield 1, None\n    if 'bad' in doc:\n        raise ValueError('bad')\n",
            hangs: "def hangs(doc):\n    yield 1, None\n    while 'bad' in doc:\n        time.sleep(1)\n",
            logs: "lambda doc: log('hello') or []",
            broken: &[("def broken(", "SyntaxError"), ("42", "Expression does not eval to a function. (42)")],
        },
        reduce: ReduceFunctions {
            count: "lambda keys, values, rereduce: sum(values) if rereduce else len(values)",
            gather: "lambda keys, values, rereduce: [keys, values, rereduce]",
            fails: "lambda keys, values, rereduce: 1 / 0 if values[0] == 'bad' else len(values)",
            hangs: "lambda keys, values, rereduce: time.sleep(1000) if values[0] == 'bad' else len(values)",
            broken: ("lambda:", "SyntaxError"),
        },
        index: None,
        library: None,
        design: Some(
            r#"{"_id":"_design/conformance",
            "validate_doc_update":"lambda doc, old, user, security: {'unauthorized': 'who?'} if not user['name'] else 1 if 'title' in doc else {'forbidden': 'no title'}",
            "shows":{"id":"lambda doc, req: ['resp', {'body': doc['_id']}]","fails":"lambda doc, req: 1 / 0"},
            "updates":{"same":"lambda doc, req: ['up', doc, {'body': 'done'}]"},
            "filters":{"kind":"lambda doc, req: doc.get('kind') == req['query']['kind']"},
            "views":{"x":{"map":"lambda doc: [(1, 2)] if doc.get('kind') == 'x' else []"}},
            "lists":{"ids":"ids"}}"#,
        ),
        ways: WAYS,
    });
}

#[test]
fn erlang_is_a_language() {
    let Some(command) = super::erlang::command() else { return };
    let [server, short_timeout] = servers(command);
    let member = |name: &str, other: &str| format!("proplists:get_value(<<\"{name}\">>, Doc, {other})");
    let if_bad = |body: &str| {
        format!("fun({{Doc}}) -> Emit(1, null), case {} of no -> ok; _ -> {body} end end.", member("bad", "no"))
    };
    let of_bad = |body: &str| format!("fun(_, [<<\"bad\">> | _], _) -> {body}; (_, Values, _) -> length(Values) end.");
    run_all(&Subject {
        language: &server,
        limits: Limits::default(),
        short_timeout: (&short_timeout, Limits::default()),
        map: MapFunctions {
            pair: &format!("fun({{Doc}}) -> Emit({}, {}) end.", member("k", "null"), member("v", "null")),
            each: &format!(
                "fun({{Doc}}) -> lists:foldl(fun(E, At) -> Emit(E, At), At + 1 end, 0, {}) end.",
                member("list", "[]")
            ),
            fails: &if_bad("erlang:error(bad)"),
            hangs: &if_bad("timer:sleep(infinity)"),
            logs: "fun(_) -> Log(\"hello\") end.",
            broken: &[("fun({Doc} -> ok end.", "syntax error"), ("42.", "Expression does not eval to a function.")],
        },
        reduce: ReduceFunctions {
            count: "fun(_, Values, true) -> lists:sum(Values); (_, Values, false) -> length(Values) end.",
            gather: "fun(Keys, Values, Again) -> [Keys, Values, Again] end.",
            fails: &of_bad("erlang:error(bad)"),
            hangs: &of_bad("timer:sleep(infinity)"),
            broken: ("fun(", "syntax error"),
        },
        index: None,
        library: None,
        design: Some(
            r#"{"_id":"_design/conformance",
            "validate_doc_update":"fun({Doc}, _, {User}, _) -> case {proplists:get_value(<<\"name\">>, User), proplists:get_value(<<\"title\">>, Doc)} of {null, _} -> throw({unauthorized, <<\"who?\">>}); {_, undefined} -> throw({forbidden, <<\"no title\">>}); _ -> 1 end end.",
            "shows":{"id":"fun({Doc}, _) -> proplists:get_value(<<\"_id\">>, Doc) end.","fails":"fun(_, _) -> erlang:error(bad) end."},
            "updates":{"same":"fun(Doc, _) -> [Doc, <<\"done\">>] end."},
            "filters":{"kind":"fun({Doc}, {Req}) -> {Query} = proplists:get_value(<<\"query\">>, Req), proplists:get_value(<<\"kind\">>, Doc) =:= proplists:get_value(<<\"kind\">>, Query) end."},
            "views":{"x":{"map":"fun({Doc}) -> case proplists:get_value(<<\"kind\">>, Doc) of <<\"x\">> -> Emit(1, 2); _ -> ok end end."}},
            "lists":{"ids":"fun(_, _) -> Send(<<\"head,\">>), FoldRows(fun({Row}, N) -> Send([proplists:get_value(<<\"id\">>, Row), <<\",\">>]), {ok, N} end, 0), <<\"tail\">> end."}}"#,
        ),
        ways: WAYS,
    });
}
