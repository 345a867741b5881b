use std::sync::OnceLock;

use settee_design::{CallError, CompileError, DesignSource, Emissions, Language as _, Limits, MapSource};
use settee_js::CoffeeScript;
use settee_model::json::Json;

use super::{batch, language, show};

fn coffeescript() -> &'static CoffeeScript {
    static LANGUAGE: OnceLock<CoffeeScript> = OnceLock::new();
    LANGUAGE.get_or_init(|| CoffeeScript::new(language().clone()))
}

fn rows(source: &str, library: Option<&str>, document: &str) -> String {
    let source = MapSource { functions: vec![source.into()], library: library.map(Into::into) };
    let mut program = coffeescript().program(&source, Limits::default()).unwrap();
    let mut output = Emissions::new();
    program.map(&batch(&[document]), &mut output).unwrap();
    assert_eq!(output.failures, []);
    show(&output)
}

#[test]
fn map_functions_run() {
    let table = [
        ("(doc) -> emit doc.a, null", "[[0,0,1,null]]"),
        (
            "(doc) ->\n  for tag, i in doc.tags when tag isnt 'b'\n    emit [tag, i], doc.a ? 'none'\n",
            r#"[[0,0,["a",0],1],[0,0,["c",2],1]]"#,
        ),
        (
            "(doc) ->\n  # a comment\n  emit \"#{doc.a}é\", (k for own k of doc) if 'a' in doc.tags",
            r#"[[0,0,"1é",["a","tags"]]]"#,
        ),
        ("helper = (x) -> x * 2\n(doc) -> emit helper(doc.a), doc.missing?.member", "[[0,0,2,null]]"),
        ("(doc) => emit doc.a ** 2, [1..3]", "[[0,0,1,[1,2,3]]]"),
    ];
    for (source, expected) in table {
        assert_eq!(rows(source, None, r#"{"a":1,"tags":["a","b","c"]}"#), expected, "{source}");
    }
}

#[test]
fn the_example_of_the_documentation_runs() {
    let page = include_str!("../../../../docs/languages.md");
    let lines = page.lines().skip_while(|line| *line != "(doc) ->");
    let example: Vec<&str> = lines.take_while(|line| *line != "```").collect();
    let rows = rows(&example.join("\n"), None, r#"{"date":"2016","tags":["a","b"]}"#);
    assert_eq!(rows, r#"[[0,0,["a","2016"],null],[0,0,["b","2016"],null]]"#);
}

#[test]
fn sources_that_do_not_compile_are_refused() {
    let refusal = |source: &str| {
        let source = MapSource { functions: vec![source.into()], library: None };
        match coffeescript().program(&source, Limits::default()) {
            Err(CompileError::Source(message)) => message,
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("{source:?} compiled"),
        }
    };
    assert_eq!(refusal("(doc) -> emit("), "SyntaxError: missing ) on line 1 ((doc) -> emit()");
    assert_eq!(refusal("\n(doc -> emit 1"), "SyntaxError: missing ) on line 2 (\n(doc -> emit 1)");
    let message = refusal("42");
    assert!(message.starts_with("Expression does not eval to a function. ("), "{message}");
}

#[test]
fn the_other_functions_run() {
    let json = r##"{"_id":"_design/d","lib":{"m":"exports.hi = 'hi';"},
        "validate_doc_update":"(doc) -> throw forbidden: 'no title' unless doc.title",
        "shows":{"s":"(doc, req) -> \"#{require('lib/m').hi} #{doc._id}\"","broken":"(doc -> 1"},
        "filters":{"f":"(doc, req) -> doc.title is req.query.title"},
        "updates":{"u":"(doc, req) -> [{_id: 'x'}, 'done']"},
        "views":{"lib":{"m":"exports.x = 1;"},"v":{"map":"(doc) -> emit 1 if doc.title","reduce":"_count"}}}"##;
    let json = Json::parse(json.as_bytes()).unwrap().into_bytes().into();
    let source = DesignSource { database: 1, id: "_design/d".into(), rev: "1-a".into(), json };
    let mut program = coffeescript().design_program(&source, Limits::default()).unwrap();
    let mut call =
        |path: &[&str], arguments: &[&[u8]]| program.call(path, arguments).map(|text| String::from_utf8(text).unwrap());
    let validate = ["validate_doc_update"];
    assert_eq!(call(&validate, &[br#"{"title":1}"#, b"null", b"{}", b"{}"]).unwrap(), "1");
    let refused = call(&validate, &[b"{}", b"null", b"{}", b"{}"]).unwrap_err();
    assert_eq!(refused, CallError::Forbidden("no title".into()));
    let shown = call(&["shows", "s"], &[br#"{"_id":"a"}"#, br#"{"headers":{},"query":{}}"#]).unwrap();
    assert!(shown.contains("\"hi a\""), "{shown}");
    assert!(call(&["updates", "u"], &[b"null", br#"{"method":"POST"}"#]).unwrap().starts_with(r#"["up",{"_id":"x"}"#));
    let error = call(&["shows", "broken"], &[b"null", b"{}"]).unwrap_err().to_string();
    assert_eq!(error, "compilation_error: SyntaxError: missing ) on line 1 ((doc -> 1)");
    let documents = batch(&[r#"{"title":"x"}"#, "{}"]);
    let request = Some(&br#"{"query":{"title":"x"}}"#[..]);
    assert_eq!(program.filter(&["filters", "f"], &documents, request).unwrap(), [true, false]);
    assert_eq!(program.filter(&["views", "v", "map"], &documents, None).unwrap(), [true, false]);
}

#[test]
fn the_compiler_is_loaded_once() {
    let compiled = |number: usize| rows(&format!("(doc) -> emit {number}, 0"), None, "{}");
    assert_eq!(compiled(0), "[[0,0,0,0]]");
    for number in 1..100 {
        assert_eq!(compiled(number), format!("[[0,0,{number},0]]"));
    }
}
