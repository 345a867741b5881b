use std::sync::Arc;

use settee_design::{Emissions, Language as _, Limits, MapSource, SearchKind};
use settee_js::JavaScript;

use super::{batch, language, native_language, show};

fn run(language: &JavaScript, kind: SearchKind, function: &str, document: &str) -> Emissions {
    let source = MapSource { functions: vec![Arc::from(function)], library: None };
    let mut output = Emissions::new();
    let mut program = language.index_program(kind, &source, Limits::default()).unwrap();
    program.map(&batch(&[document]), &mut output).unwrap();
    output
}

#[track_caller]
fn check(kind: SearchKind, body: &str, expected: &str) {
    let document = r#"{"t":"a text","n":1.5,"o":{"store":true},"l":[1,2],"b":false}"#;
    let function = format!("function(doc) {{ {body} }}");
    let [engine, native] = [language(), native_language()].map(|language| run(language, kind, &function, document));
    assert_eq!(show(&native), show(&engine), "{body}");
    assert_eq!((&native.failures, &native.log), (&engine.failures, &engine.log), "{body}");
    let shown = match engine.failures.first() {
        Some(failure) => failure.message.clone(),
        None => show(&engine),
    };
    assert_eq!(shown, expected, "{body}");
}

#[test]
fn typed_fields() {
    let check = |body: &str, expected: &str| check(SearchKind::Nouveau, body, expected);
    check("index('text', 'a', doc.t)", r#"[[0,0,["text","a"],"a text"]]"#);
    check("index('string', 'a', doc.t, {store: true})", r#"[[0,0,["string","a",{"store":true}],"a text"]]"#);
    check("index('double', 'n', doc.n, doc.o)", r#"[[0,0,["double","n",{"store":true}],1.5]]"#);
    check(
        "index('stored', 'a', doc.n); index('stored', 'a', 'x')",
        r#"[[0,0,["stored","a"],1.5],[0,0,["stored","a"],"x"]]"#,
    );
    check(
        "index('vector', 'v', doc.l); index('vector', 'w', [0.5])",
        r#"[[0,0,["vector","v"],[1,2]],[0,0,["vector","w"],[0.5]]]"#,
    );
    check("index('double', 'n', NaN)", r#"[[0,0,["double","n"],null]]"#);
    check("index('text', 'a', doc.t, null)", r#"[[0,0,["text","a"],"a text"]]"#);
    check(
        "var o = {}; index('text', 'a', 'x', o); o.store = true; index('text', 'b', 'y')",
        r#"[[0,0,["text","a",{"store":true}],"x"],[0,0,["text","b"],"y"]]"#,
    );
    check(
        "if (doc.t) index('text', 'a', doc.t); if (doc.none) index('text', 'b', doc.none);",
        r#"[[0,0,["text","a"],"a text"]]"#,
    );
}

#[test]
fn typed_fields_that_are_refused() {
    let check = |body: &str, expected: &str| check(SearchKind::Nouveau, body, expected);
    check("index('text', 'a', doc.none)", "TypeError: type of value must be a string not undefined");
    check("index('text', 'a', doc.n)", "TypeError: type of value must be a string not number");
    check("index('vector', 'v', doc.o)", "TypeError: type of value must be an array not object");
    check("index('string', 'a', doc.b)", "TypeError: type of value must be a string not boolean");
    check("index('double', 'a', doc.t)", "TypeError: type of value must be a number not string");
    check("index('stored', 'a', doc.o)", "TypeError: type of value must be a string or number not object");
    check("index('nosuch', 'a', 'x')", "TypeError: nosuch not supported");
    check("index('constructor', 'a', 'x')", "TypeError: constructor not supported");
    check("index(1, 'a', 'x')", "TypeError: type of type must be a string not number");
    check("index('text', 5, 'x')", "TypeError: type of name must be a string not number");
    check("index('text', '_a', 'x')", "ReservedName: name must not start with an underscore");
    check("index('text')", "TypeError: type of name must be a string not undefined");
    check("index('text', 'a', 'x'); throw 'no'", "no");
    check("emit(1, 2)", "TypeError: not a function");
}

#[test]
fn named_fields() {
    let check = |body: &str, expected: &str| check(SearchKind::Clouseau, body, expected);
    check("index('a b', doc.t)", r#"[[0,0,["a b"],"a text"]]"#);
    check("index('n', doc.n, {facet: true, boost: 2})", r#"[[0,0,["n",{"facet":true,"boost":2}],1.5]]"#);
    check("index('b', doc.b)", r#"[[0,0,["b"],false]]"#);
    check("index('a', doc.none)", "TypeError: value must be a string, a number or boolean not undefined");
    check("index('a', null)", "TypeError: value must be a string, a number or boolean not object");
    check("index(1, 'x')", "TypeError: name must be a string not number");
    check("index('_a', 'x')", "ReservedName: name must not start with an underscore");
    check("index('a', 'x', 5)", "TypeError: options must be an object not number");
}

#[test]
fn common_functions_run_natively() {
    let check = |kind, body: &str, is_native: bool| {
        let source = MapSource { functions: vec![Arc::from(format!("function(doc) {{ {body} }}"))], library: None };
        let program = native_language().index_program(kind, &source, Limits::default()).unwrap();
        assert_eq!(program.engine(0).unwrap().name == "native", is_native, "{body}");
    };
    check(SearchKind::Nouveau, "if (doc.t) index('text', 'a', doc.t, {store: true});", true);
    check(SearchKind::Clouseau, "if (doc.t) index('a', doc.t);", true);
    check(SearchKind::Nouveau, "emit(1, 2);", false);
    check(SearchKind::Clouseau, "var i = index; i('a', 'b');", false);
}
