use settee_design::{CompileError, Limits};

use super::{batch, check, check_fatal, check_throws, program, run, show};

#[test]
fn emitted_values_look_as_json_stringify_writes_them() {
    let table = [
        ("emit('a', undefined)", r#"[["a",null]]"#),
        ("emit()", "[[null,null]]"),
        ("emit(NaN, Infinity)", "[[null,null]]"),
        ("emit('d', new Date(0))", r#"[["d","1970-01-01T00:00:00.000Z"]]"#),
        ("emit('e', function() {})", r#"[["e",null]]"#),
        ("emit('f', {x: undefined, y: function() {}, z: NaN})", r#"[["f",{"z":null}]]"#),
        ("emit('g', [undefined, NaN, function() {}, Symbol('s')])", r#"[["g",[null,null,null,null]]]"#),
        ("emit('j', -0)", r#"[["j",0]]"#),
        ("emit('k', [Object('s'), Object(1.5), Object(true)])", r#"[["k",["s",1.5,true]]]"#),
        (
            "emit(1e21, [1.0, 0.1 + 0.2, 123456789012345680000, 1e-7])",
            "[[1e+21,[1,0.30000000000000004,123456789012345680000,1e-7]]]",
        ),
        (
            r#"emit('"\\\n\t\u0001\u2028é\ud83d\ude00', '\ud800x')"#,
            "[[\"\\\"\\\\\\n\\t\\u0001\u{2028}é😀\",\"\u{fffd}x\"]]",
        ),
        ("emit({b: 1, 2: 2, 1: {}}, [[], [[]]])", r#"[[{"1":{},"2":2,"b":1},[[],[[]]]]]"#),
        (
            "emit({toJSON: function(k) { return [k, 7]; }}, {a: {toJSON: function(k) { return k; }}})",
            r#"[[["",7],{"a":"a"}]]"#,
        ),
        (
            "emit(new TypeError('bad'), [new Error('x')])",
            r#"[[{"error":"TypeError","message":"bad"},[{"error":"Error","message":"x"}]]]"#,
        ),
        ("emit(new Map([[1, 2]]), new Proxy([1, 2], {}))", "[[{},[1,2]]]"),
        ("var s = []; s[3] = 1; emit(s, Object.create({inherited: 1}))", "[[[null,null,null,1],{}]]"),
        (
            "var o = {}; Object.defineProperty(o, 'hidden', {value: 1}); emit(o, new (function C() { this.a = 1; }))",
            r#"[[{},{"a":1}]]"#,
        ),
        ("emit('a'.repeat(3) + 1, `t${1 + 1}`)", r#"[["aaa1","t2"]]"#),
        ("var o = {n: 1}; emit(0, o); o.n = 2; emit(1, o)", r#"[[0,{"n":2}],[1,{"n":2}]]"#),
        (
            "emit(sum([1, 2.5]), [sum([]), sum(['a', 1]), isArray([]), isArray({}), toJSON({a: 1})])",
            r#"[[3.5,[0,"0a1",true,false,"{\"a\":1}"]]]"#,
        ),
        (
            "const {n = 5} = doc; for (const [k, v] of Object.entries({a: 2 ** 3})) emit([n, k], [v, ...new Set([1, 1])]);",
            r#"[[[5,"a"],[8,1]]]"#,
        ),
        (
            "emit(new Date(2016, 11, 19, 12).getTimezoneOffset(), new Date(Date.UTC(2016, 11, 19)).getHours())",
            "[[0,0]]",
        ),
        ("emit(/^(\\w+)-/.exec('ab-c')[1], 'x1y22'.replace(/\\d+/g, '#'))", r##"[["ab","x#y#"]]"##),
        (
            "for (var i = 0; i < 9000; i++) if (i % 3000 === 0) emit(i, null); else if (i > 8998) emit([i], [i])",
            "[[0,null],[3000,null],[6000,null],[[8999],[8999]]]",
        ),
    ];
    for (body, expected) in table {
        check(&format!("function(doc) {{ {body} }}"), r#"{"_id":"a"}"#, expected);
    }
}

#[test]
fn many_rows_come_in_order() {
    let output = run(
        &[
            "function(doc) { for (var i = 0; i < doc.n; i++) emit([doc.n, i], 'x'.repeat(40)); }",
            "function(doc) { emit(doc.n, 0); }",
        ],
        &[r#"{"n":30000}"#, r#"{"n":2}"#, r#"{"n":50000}"#],
        Limits::default(),
    )
    .unwrap();
    assert_eq!(output.len(), 30_000 + 2 + 50_000 + 3);
    let mut last = (0, 0, 0);
    for row in output.rows() {
        let n = if row.function == 0 {
            let key = std::str::from_utf8(row.key).unwrap();
            key.trim_end_matches(']').rsplit(',').next().unwrap().parse::<u32>().unwrap() + 1
        } else {
            0
        };
        assert!((row.document, row.function, n) > last || (row.document, row.function) > (last.0, last.1));
        last = (row.document, row.function, n);
    }
}

#[test]
fn sources_may_come_in_many_shapes() {
    let table = [
        "function(doc) { emit(1, 2); }",
        "  function (doc) { emit(1, 2); } ;\n",
        "function named(doc) { emit(1, 2); }",
        "(function(doc) { emit(1, 2); })",
        "(function(doc) { emit(1, 2); });",
        "doc => emit(1, 2)",
        "(doc) => { emit(1, 2); };",
        "// comment\nfunction(doc) { emit(1, 2); } // end",
        "/* a */ function(doc) { emit(1, 2); }; /* b */",
        "function helper(x) { return x; }\nfunction(doc) { emit(helper(1), 2); }",
        "var one = 1; (function(doc) { emit(one, 2); })",
        "var f = function(doc) { emit(1, 2); }; f",
        "'use strict';\nfunction(doc) { emit(1, 2); }",
        "function é(x) { return x; } function other() {}\nfunction(doc) { emit(é(1), 2); }",
    ];
    for source in table {
        check(source, "{}", "[[1,2]]");
    }
}

#[test]
fn sources_that_are_no_functions_are_refused() {
    let refusal = |source: &str| match program(&["function(doc) {}", source], None, Limits::default()) {
        Err(CompileError::Source(message)) => message,
        Err(other) => panic!("{source}: {other:?}"),
        Ok(_) => panic!("{source} compiled"),
    };
    assert_eq!(refusal("42"), "Expression does not eval to a function. (42)");
    assert_eq!(refusal("{\"a\":1}"), "Expression does not eval to a function. ({\"a\":1})");
    for source in ["function(doc {}", "function(doc) {", "function(", "var", "function(doc) { emit(1,2) }}"] {
        let message = refusal(source);
        assert!(message.starts_with("SyntaxError: "), "{message}");
        assert!(message.ends_with(&format!("({source})")), "{message}");
    }
    assert_eq!(refusal("missing.member"), "ReferenceError: missing is not defined (missing.member)");
    assert_eq!(refusal("(function() { throw 'no'; })()"), "no ((function() { throw 'no'; })())");
}

#[test]
fn an_exception_skips_the_document_for_its_function_only() {
    let output = run(
        &[
            "function(doc) { emit(1, 1); doc.a.b.c; }",
            "function(doc) { log('hello'); log({a: [doc.n]}); log(); emit(doc.n, null); }",
            "function(doc) { if (doc.n == 2) throw {forbidden: 1}; emit(doc.n, doc.n); }",
        ],
        &[r#"{"n":1}"#, r#"{"n":2}"#],
        Limits::default(),
    )
    .unwrap();
    assert_eq!(show(&output), "[[0,1,1,null],[0,2,1,1],[1,1,2,null]]");
    let failures: Vec<_> =
        output.failures.iter().map(|failure| (failure.document, failure.function, failure.message.as_str())).collect();
    let message = "TypeError: cannot read property 'b' of undefined";
    assert_eq!(failures, [(0, 0, message), (1, 0, message), (1, 2, "[object Object]")]);
    let raised = |id| format!("function raised exception {message} with doc._id {id}");
    let (first, second) = (raised("doc1"), raised("doc2"));
    let lines = ["hello", "{\"a\":[1]}", "undefined", "hello", "{\"a\":[2]}", "undefined"];
    let expected = [
        &[first.as_str(), lines[0], lines[1], lines[2]][..],
        &[&second, lines[3], lines[4], lines[5]],
        &["function raised exception [object Object] with doc._id doc2"],
    ];
    assert_eq!(output.log, expected.concat());
}

#[test]
fn values_without_json_throw() {
    check_throws(
        "function(doc) { emit(0, 0); var a = []; a.push(a); emit(a, 1); }",
        "{}",
        "TypeError: circular reference",
    );
    check_throws("function(doc) { emit(1, 10n); }", "{}", "TypeError: BigInt are forbidden in JSON.stringify");
    check_throws(
        "function(doc) { var a = []; for (var i = 0; i < 1001; i++) a = [a]; emit(a, 1); }",
        "{}",
        "RangeError: JSON nested too deeply",
    );
    check_throws("function(doc) { emit({toJSON: function() { throw 'inside'; }}, 1); }", "{}", "inside");
    check_throws("function(doc) { throw {toString: function() { throw 1; }}; }", "{}", "an exception without a text");
}

#[test]
fn functions_can_end_the_indexing() {
    let fatal = |body: &str, name: &str, reason: &str| {
        let result = run(&[&format!("function(doc) {{ {body} }}")], &["{}"], Limits::default());
        check_fatal(result, name, &[reason]);
    };
    fatal("throw 'fatal_error'", "map_runtime_error", "function raised 'fatal_error'");
    fatal("throw ['fatal', 'my_key', 'my reason']", "my_key", "my reason");
    fatal("(function f() { f(); })()", "InternalError", "too much recursion in map function 1");
}

#[test]
fn eval_is_off() {
    let refused = "TypeError: eval is not supported";
    for body in [
        "eval('1')",
        "new Function('return 1')",
        "Function('return 1')()",
        "(function() {}).constructor('return 1')()",
        "(function*() {}).constructor('yield 1')",
        "[].map.constructor('return this')",
        "(0, eval)('1')",
    ] {
        check_throws(&format!("function(doc) {{ {body}; }}"), "{}", refused);
    }
}

#[test]
fn modules_of_the_library_can_be_required() {
    let library = r#"{"m":"exports.f = function(x) { return x * 2; };",
        "sub":{"n":"exports.g = require('../m').f; exports.h = 7;","o":"module.exports = require('./n').h + 1;"},
        "a":"exports.early = true; exports.b = require('./b').name; exports.late = true;",
        "b":"exports.name = 'b'; exports.seen = Object.keys(require('views/lib/a'));",
        "count":"exports.n = 0;","broken":"exports.x = ;","object":{"a":1},"throws":"throw new Error('no');"}"#;
    let rows = |body: &str| {
        let source = format!("function(doc) {{ {body} }}");
        let mut program = program(&[&source], Some(library), Limits::default()).unwrap();
        let mut output = settee_design::Emissions::new();
        program.map(&batch(&[r#"{"n":21}"#, r#"{"n":1}"#]), &mut output).unwrap();
        (show(&output), output.failures.into_iter().map(|failure| failure.message).collect::<Vec<_>>())
    };
    let emits = |body: &str, expected: &str| assert_eq!(rows(body), (expected.to_owned(), Vec::new()), "{body}");
    emits("var m = require('views/lib/m'); emit(m.f(doc.n), require('views/lib/sub/n').h);", "[[0,0,42,7],[1,0,2,7]]");
    emits("emit(require('views/lib/sub/n').g(doc.n), require('views/lib/sub/o'));", "[[0,0,42,8],[1,0,2,8]]");
    emits(
        "emit(require('views/lib/a').b, require('views/lib/b').seen);",
        "[[0,0,\"b\",[\"early\"]],[1,0,\"b\",[\"early\"]]]",
    );
    emits("emit(++require('views/lib/count').n, null);", "[[0,0,1,null],[1,0,2,null]]");
    let fails = |body: &str, message: &str| {
        let (rows, failures) = rows(body);
        assert_eq!(rows, "[]");
        assert!(failures.iter().all(|failure| failure.contains(message)), "{failures:?}");
        assert_eq!(failures.len(), 2);
    };
    fails("require('views/lib/none')", "invalid_require_path,Object has no property \"none\"");
    fails("require('views/lib/object')", "Must require a JavaScript string, not: object");
    fails("require('./m')", "Object has no parent");
    fails("require('views/lib/broken')", "compilation_error,Module require('views/lib/broken') raised error");
    fails("require('views/lib/throws')", "Error: no");
    fails("require('views/lib/m/constructor')", "invalid_require_path");
}

#[test]
fn functions_of_one_program_do_not_see_each_other() {
    let output = run(
        &[
            "function(doc) { shared = 1; Array.prototype.spoiled = 1; Object.prototype.toJSON = function() { return 0; }; emit(0, {}); }",
            "function(doc) { emit(typeof shared, [[].spoiled, {a: 1}]); }",
        ],
        &["{}", "{}"],
        Limits::default(),
    )
    .unwrap();
    assert_eq!(
        show(&output),
        "[[0,0,0,0],[0,1,\"undefined\",[null,{\"a\":1}]],[1,0,0,0],[1,1,\"undefined\",[null,{\"a\":1}]]]"
    );
}

#[test]
fn programs_do_not_see_each_other() {
    for _ in 0..3 {
        check("function(doc) { emit(typeof left, null); left = 1; }", "{}", "[[\"undefined\",null]]");
    }
}

#[test]
fn promises_and_generators_do_no_harm() {
    check(
        "function(doc) { (async function() { await 1; emit('later', 1); })(); function* g() { yield 1; yield 2; } emit([...g()], 0); }",
        "{}",
        "[[[1,2],0]]",
    );
}
