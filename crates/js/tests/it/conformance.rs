use settee_design::conformance::{
    IndexFunctions, LibraryFunctions, MapExceptions, MapFunctions, Numbers, ReduceExceptions, ReduceFunctions, Subject,
    Ways, run_all,
};
use settee_design::{Language, Limits};
use settee_js::CoffeeScript;

use super::{language, native_language};

const WAYS: Ways = Ways {
    numbers: Numbers::Doubles,
    map_exceptions: MapExceptions::Reported,
    reduce_exceptions: ReduceExceptions::Null,
};

const LIBRARY: &str = r#"{"numbers":"exports.twice = function(x) { return 2 * x; };"}"#;

fn limits(timeout_ms: u64) -> Limits {
    Limits { timeout_ms, ..Limits::default() }
}

fn javascript(language: &dyn Language) -> Subject<'_> {
    Subject {
        language,
        limits: limits(60_000),
        short_timeout: (language, limits(500)),
        map: MapFunctions {
            pair: "function(doc) { emit(doc.k, doc.v); }",
            each: "function(doc) { if (doc.list) for (var i = 0; i < doc.list.length; i++) emit(doc.list[i], i); }",
            fails: "function(doc) { emit(1, null); if (doc.bad) throw new Error('bad'); }",
            hangs: "function(doc) { emit(1, null); while (doc.bad); }",
            logs: "function(doc) { log('hello'); }",
            broken: &[("function(doc {", "SyntaxError"), ("42", "Expression does not eval to a function. (42)")],
        },
        reduce: ReduceFunctions {
            count: "function(keys, values, rereduce) { return rereduce ? sum(values) : values.length; }",
            gather: "function(keys, values, rereduce) { return [keys, values, rereduce]; }",
            fails: "function(keys, values) { if (values[0] === 'bad') throw new Error('bad'); return values.length; }",
            hangs: "function(keys, values) { while (values[0] === 'bad'); return values.length; }",
            broken: ("function(", "SyntaxError"),
        },
        index: Some(IndexFunctions {
            typed: "function(doc) { if (doc.t) index('text', 'default', doc.t, {store: true}); for (var i in doc.list) index('double', 'n', doc.list[i]); if (doc.list) index('vector', 'v', doc.list); }",
            named: "function(doc) { if (doc.t) index('default', doc.t, {store: true}); for (var i in doc.list) index('n', doc.list[i]); }",
            strict: "function(doc) { index('string', 's', doc.v); index('double', 'n', 1); }",
        }),
        library: Some(LibraryFunctions {
            library: LIBRARY,
            twice: "function(doc) { emit(require('views/lib/numbers').twice(doc.n), null); }",
        }),
        design: Some(
            r#"{"_id":"_design/conformance",
            "validate_doc_update":"function(doc, old, user) { if (!user.name) throw {unauthorized: 'who?'}; if (!doc.title) throw {forbidden: 'no title'}; }",
            "shows":{"id":"function(doc) { return doc._id; }","fails":"function() { throw new Error('bad'); }"},
            "updates":{"same":"function(doc) { return [doc, 'done']; }"},
            "filters":{"kind":"function(doc, req) { return doc.kind === req.query.kind; }"},
            "views":{"x":{"map":"function(doc) { if (doc.kind === 'x') emit(1, 2); }"}},
            "lists":{"ids":"function() { send('head,'); var row; while ((row = getRow())) send(row.id + ','); return 'tail'; }"}}"#,
        ),
        ways: WAYS,
    }
}

#[test]
fn javascript_in_workers_is_a_language() {
    run_all(&javascript(language()));
}

#[test]
fn javascript_with_the_native_evaluator_is_a_language() {
    run_all(&javascript(native_language()));
}

#[test]
fn coffeescript_is_a_language() {
    let language = CoffeeScript::new(language().clone());
    run_all(&Subject {
        language: &language,
        limits: limits(60_000),
        short_timeout: (&language, limits(500)),
        map: MapFunctions {
            pair: "(doc) -> emit doc.k, doc.v",
            each: "(doc) -> emit element, position for element, position in doc.list ? []",
            fails: "(doc) ->\n  emit 1, null\n  throw new Error 'bad' if doc.bad\n",
            hangs: "(doc) ->\n  emit 1, null\n  0 while doc.bad\n  return\n",
            logs: "(doc) -> log 'hello'",
            broken: &[("(doc -> emit 1", "SyntaxError: missing )"), ("42", "Expression does not eval to a function.")],
        },
        reduce: ReduceFunctions {
            count: "(keys, values, rereduce) -> if rereduce then sum values else values.length",
            gather: "(keys, values, rereduce) -> [keys, values, rereduce]",
            fails: "(keys, values) ->\n  throw new Error 'bad' if values[0] is 'bad'\n  values.length\n",
            hangs: "(keys, values) ->\n  0 while values[0] is 'bad'\n  values.length\n",
            broken: ("(keys", "SyntaxError"),
        },
        index: Some(IndexFunctions {
            typed: "(doc) ->\n  index 'text', 'default', doc.t, {store: true} if doc.t\n  index 'double', 'n', n for n in doc.list ? []\n  index 'vector', 'v', doc.list if doc.list\n  return\n",
            named: "(doc) ->\n  index 'default', doc.t, {store: true} if doc.t\n  index 'n', n for n in doc.list ? []\n  return\n",
            strict: "(doc) ->\n  index 'string', 's', doc.v\n  index 'double', 'n', 1\n",
        }),
        library: Some(LibraryFunctions {
            library: LIBRARY,
            twice: "(doc) -> emit require('views/lib/numbers').twice(doc.n), null",
        }),
        design: Some(
            r#"{"_id":"_design/conformance",
            "validate_doc_update":"(doc, old, user) ->\n  throw unauthorized: 'who?' unless user.name\n  throw forbidden: 'no title' unless doc.title",
            "shows":{"id":"(doc) -> doc._id","fails":"-> throw new Error 'bad'"},
            "updates":{"same":"(doc) -> [doc, 'done']"},
            "filters":{"kind":"(doc, req) -> doc.kind is req.query.kind"},
            "views":{"x":{"map":"(doc) -> emit 1, 2 if doc.kind is 'x'"}},
            "lists":{"ids":"->\n  send 'head,'\n  send row.id + ',' while row = getRow()\n  'tail'"}}"#,
        ),
        ways: WAYS,
    });
}
