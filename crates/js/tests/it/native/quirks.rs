//! Legacy behaviour that old design documents depend on, in both engines.

use settee_design::{CompileError, Language as _, Limits, MapSource};

use super::super::{check, language, native_language};
use super::engines;

#[track_caller]
fn check_on(engine: &str, source: &str, document: &str, expected: &str) {
    check(source, document, expected);
    assert_eq!(engines(&[source]), [engine], "{source}");
}

#[test]
fn sources_of_all_shapes_run_natively_where_nothing_stands_before_the_function() {
    for source in [
        "function(doc) { emit(1, 2); }",
        "function(doc) { emit(1, 2); };",
        "function(doc) { emit(1, 2); } ; ;\n;",
        "\n\n  function (doc)\n{\n\temit(1,\r\n 2)\r\n}\n",
        "\u{feff}function(doc) { emit(1, 2); }",
        "function(doc) { emit(1, 2) } // done",
        "function(doc) { emit(1, 2) } /* done */ ; // really",
        "// first\n// second\nfunction(doc) { emit(1, 2); }",
        "/* first */ function(doc) { emit(1, 2); }",
        "/**\n * @param doc\n */\nfunction named(doc) { emit(1, 2); }",
        "(function(doc) { emit(1, 2); })",
        "((function(doc) { emit(1, 2); }));",
        "(function named(doc) { emit(1, 2); }) // end",
        "doc => emit(1, 2)",
        "doc => emit(1, 2);",
        "doc => { emit(1, 2) }",
        "(doc) => (emit(1, 2))",
        "() => { emit(1, 2) }",
        "function() { emit(1, 2); }",
        "function(doc, req) { if (req === undefined) emit(1, 2); }",
        "function(doc) { if (true) { emit(1, 2); }; }",
        "function(doc) { emit(1, 2); return; }",
        "function(doc) { return emit(1, 2); }",
        "function(doc) { var e = 1\n var f = 2\n emit(e, f)\n }",
        "function(doc) { var a = 1, b; b = a; b++; emit(a, b) }",
        "function(doc) { emit(1, 2, 3) }",
        "function(doc) { x: { } emit(1, 2) }",
    ] {
        check(source, "{}", "[[1,2]]");
        let labelled = source.contains("x: {");
        assert_eq!(engines(&[source]), [if labelled { "quickjs" } else { "native" }], "{source}");
    }
    for source in [
        "function helper(x) { return x; }\nfunction(doc) { emit(helper(1), 2); }",
        "var one = 1; (function(doc) { emit(one, 2); })",
        "var f = function(doc) { emit(1, 2); }; f",
        "'use strict';\nfunction(doc) { emit(1, 2); }",
    ] {
        check_on("quickjs", source, "{}", "[[1,2]]");
    }
}

#[test]
fn the_environment_is_the_same() {
    let natively = [
        ("emit()", "[[null,null]]"),
        ("emit(1)", "[[1,null]]"),
        ("emit(undefined, null)", "[[null,null]]"),
        ("emit(NaN, -0)", "[[null,0]]"),
        ("emit(doc.missing, doc.missing)", "[[null,null]]"),
        ("log(); log(1, 2); log({a: [undefined]}); emit(log('x'), 0)", "[[null,0]]"),
        ("emit(toJSON({a: undefined, b: [undefined]}), toJSON(undefined))", r#"[["{\"b\":[null]}",null]]"#),
        ("emit(isArray(doc.l), [isArray('x'), isArray({length: 1}), isArray()])", "[[true,[false,false,false]]]"),
        ("emit(sum(doc.l), sum([0.1, 0.2]))", "[[6,0.30000000000000004]]"),
        ("var sum = 1; for (var i = 0; i < 3; i++) sum += i; emit(sum, 0)", "[[4,0]]"),
        ("emit(doc.class, doc['default'])", r#"[["c","d"]]"#),
        ("emit(typeof doc.x, void 0)", r#"[["undefined",null]]"#),
        ("var doc = {a: 1}; emit(doc.a, 0)", "[[1,0]]"),
        ("doc.l.x = 1; doc.y = 2; emit(doc.y, 0)", "[[null,0]]"),
        ("emit(f(1), 0); function f(a) { return a + 1; }", "[[2,0]]"),
        ("if (doc.l) { var hoisted = 1; } emit(hoisted, later); var later = 2;", "[[1,null]]"),
        ("emit(new Array().concat(doc.l), new Object())", "[[[3,1,2],{}]]"),
        ("for (var i in doc.l) emit(i, doc.l[i])", r#"[["0",3],["1",1],["2",2]]"#),
        ("emit('\\u00e9\\x41\\'', \"\\n\")", r#"[["éA'","\n"]]"#),
        ("var o = {n: 1}; emit(0, o); o.n = 2; emit(1, o)", r#"[[0,{"n":2}],[1,{"n":2}]]"#),
    ];
    let document = r#"{"l":[3,1,2],"class":"c","default":"d"}"#;
    for (body, expected) in natively {
        check_on("native", &format!("function(doc) {{ {body} }}"), document, expected);
    }
    let not = [
        ("emit.call(null, 1, 2)", "[[1,2]]"),
        ("var e = emit; e(1, 2)", "[[1,2]]"),
        ("emit(arguments[0] === doc, arguments.length)", "[[true,1]]"),
        ("x = 1; emit(x, this.x)", "[[1,1]]"),
        ("with (doc) { emit(l, 0) }", "[[[3,1,2],0]]"),
        ("emit(010, '\\101')", r#"[[8,"A"]]"#),
        ("emit(typeof nothing, 0)", r#"[["undefined",0]]"#),
        ("emit(delete doc.l, 0)", "[[false,0]]"),
        ("outer: for (var i = 0; i < 3; i++) for (;;) { emit(i, 0); continue outer; }", "[[0,0],[1,0],[2,0]]"),
        ("emit(function() {}, [function() {}])", "[[null,[null]]]"),
        ("emit(1, 2) <!-- old\n", "[[1,2]]"),
        ("emit({toJSON: function() { return 7; }}, 0)", "[[7,0]]"),
        ("emit(Object.create(null), Object)", "[[{},null]]"),
        ("if (true) { function g() { return 1; } } emit(g(), 0)", "[[1,0]]"),
        ("var o = {get a() { return 1; }}; emit(o.a, 0)", "[[1,0]]"),
        ("emit((function(a, a) { return a; })(1, 2), 0)", "[[2,0]]"),
    ];
    for (body, expected) in not {
        check_on("quickjs", &format!("function(doc) {{ {body} }}"), document, expected);
    }
}

#[test]
fn uris_are_encoded_and_decoded() {
    let document = r#"{"s":"a b/é€😀?&=+$,#;:@-_.!~*'()%\"<>\u0000"}"#;
    check_on(
        "native",
        "function(doc) { emit(encodeURI(doc.s), encodeURIComponent(doc.s)); }",
        document,
        r#"[["a%20b/%C3%A9%E2%82%AC%F0%9F%98%80?&=+$,#;:@-_.!~*'()%25%22%3C%3E%00","a%20b%2F%C3%A9%E2%82%AC%F0%9F%98%80%3F%26%3D%2B%24%2C%23%3B%3A%40-_.!~*'()%25%22%3C%3E%00"]]"#,
    );
    let source =
        "function(doc) { var t = '%41%c3%a9%F0%9F%98%80%2F%3f%23%25é'; emit(decodeURI(t), decodeURIComponent(t)); }";
    check_on("native", source, "{}", r#"[["Aé😀%2F%3f%23%é","Aé😀/?#%é"]]"#);
    check_on(
        "native",
        "function() { emit(encodeURIComponent(), encodeURI(null)); }",
        "{}",
        r#"[["undefined","null"]]"#,
    );
    for invalid in ["%", "%4", "%4g", "%c3", "%c3é", "%a9", "%ed%a0%80", "%c0%80", "%f5%80%80%80"] {
        let source =
            format!("function() {{ try {{ decodeURIComponent('{invalid}'); }} catch (e) {{ emit(e.name, 1); }} }}");
        check(&source, "{}", r#"[["URIError",1]]"#);
        let source = format!("function() {{ try {{ decodeURI('{invalid}'); }} catch (e) {{ emit(1, 1); }} }}");
        check(&source, "{}", "[[1,1]]");
    }
    check("function() { try { encodeURI('\\ud800'); } catch (e) { emit(1, 1); } }", "{}", "[[1,1]]");
}

#[test]
fn removed_features_are_rejected_alike() {
    for source in
        ["function(doc) { for each (var x in doc.l) emit(x, 1); }", "function(doc) { emit(1, 2); }}", "}, {", ""]
    {
        let refusal = |language: &settee_js::JavaScript| {
            let source = MapSource { functions: vec![source.into()], library: None };
            match language.program(&source, Limits::default()) {
                Err(CompileError::Source(message)) => message,
                Err(other) => panic!("{source:?}: {other}"),
                Ok(_) => panic!("{source:?} compiled"),
            }
        };
        assert_eq!(refusal(native_language()), refusal(language()));
    }
}

#[test]
fn long_and_deeply_nested_sources_affect_no_other() {
    for (open, close) in [
        ("(", ")"),
        ("[", "]"),
        ("!", ""),
        ("- ", ""),
        ("typeof ", ""),
        ("1?", ":1"),
        ("a=>", ""),
        ("a=", ""),
        ("{", "}"),
        ("if(1)", ""),
        ("`${", "}`"),
        ("new ", ""),
        ("function(){", "}"),
        ("x.y(", ")"),
        ("1+", ""),
        ("2**", ""),
        ("[...", "]"),
        ("async()=>", ""),
        ("for(;;)", ""),
        ("{a:", "}"),
        ("/(", ")/"),
    ] {
        for size in [1_000, 16_000] {
            let times = size / (open.len() + close.len());
            let middle = open.repeat(times) + "1" + &close.repeat(times);
            for source in
                [middle.clone(), format!("function(doc) {{ {middle} }}"), format!("function(doc) {{ emit({middle}) }}")]
            {
                assert_eq!(engines(&[&source]).len(), 1);
            }
        }
    }
    let long = format!("function(doc) {{ {} emit(1, 2); }}", "/* long */ ".repeat(3_000));
    check_on("quickjs", &long, "{}", "[[1,2]]");
}
