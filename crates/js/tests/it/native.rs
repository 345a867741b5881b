//! The native evaluator and the engine have equal results for the same functions and documents.

mod fuzz;
mod quirks;
mod state;

use std::sync::Arc;

use settee_design::{Emissions, Language as _, Limits, MapSource};

use super::{batch, language, native_language, run, show};

fn engines(functions: &[&str]) -> Vec<&'static str> {
    let functions = functions.iter().map(|source| Arc::from(*source)).collect();
    native_language().engines(&MapSource { functions, library: None }).iter().map(|engine| engine.name).collect()
}

#[test]
fn names_that_values_inherit_are_known() {
    let source = "function(doc) { [Object, String, Array, Number, Boolean, Date, RegExp].forEach(function(c) { \
                  Object.getOwnPropertyNames(c.prototype).forEach(function(n) { emit(n, null); }); }); }";
    let output = run(&[source], &["{}"], Limits::default()).unwrap();
    let names: Vec<_> = output.rows().map(|row| std::str::from_utf8(row.key).unwrap()).collect();
    assert!(names.len() > 150);
    let document = format!("{{\"names\":[{}]}}", names.join(","));
    let source = "function(doc) { doc.names.forEach(function(n) { \
                  emit(n, [typeof 'x'[n] === 'undefined', typeof doc[n] === 'undefined', typeof doc.names[n] === 'undefined', n in doc]); \
                  emit(n, [typeof (1)[n] === 'undefined', typeof true[n] === 'undefined']); }); }";
    run(&[source], &[&document], Limits::default()).unwrap();
    for name in &names {
        let document = format!("{{\"names\":[{name}]}}");
        run(&[source], &[&document], Limits::default()).unwrap();
    }
    assert_eq!(engines(&[source]), ["native"]);
}

#[test]
fn cases_of_letters_are_the_engines() {
    let source = "function(doc) { doc.s.split('').forEach(function(c) { emit(c.toLowerCase(), c.toUpperCase()); }); \
                  emit(doc.s.toLowerCase(), doc.s.toUpperCase()); }";
    let documents: Vec<_> = (0x20..0x1_0000u32)
        .collect::<Vec<_>>()
        .chunks(16)
        .map(|codes| {
            let text: String = codes.iter().filter_map(|code| char::from_u32(*code)).collect();
            let mut json = Vec::new();
            settee_model::json::write_string(&mut json, &text);
            format!("{{\"s\":{}}}", String::from_utf8(json).unwrap())
        })
        .collect();
    let documents: Vec<_> = documents.iter().map(String::as_str).collect();
    run(&[source], &documents, Limits::default()).unwrap();
    assert_eq!(engines(&[source]), ["native"]);
}

/// Published map functions in other words, each after a line with its name. A name may end with the source of the
/// original: `(after OWNER/REPOSITORY)`.
const PUBLISHED: &str = include_str!("../data/published.js");

const DOCUMENTS: &str = include_str!("../data/published.ndjson");

#[test]
fn published_functions_come_to_the_same_and_most_run_natively() {
    let documents: Vec<_> = DOCUMENTS.lines().collect();
    let library = r#"{"tools":"exports.key = function(doc) { return [doc.type, doc._id]; };"}"#;
    let mut natives = 0;
    let mut alone = (0, 0);
    let mut refused = Vec::new();
    let functions: Vec<_> = PUBLISHED.split("//// ").skip(1).filter_map(|part| part.split_once('\n')).collect();
    for (name, source) in &functions {
        let source = MapSource { functions: vec![Arc::from(*source)], library: Some(library.into()) };
        let [engine, native] = [language(), native_language()].map(|language| {
            fuzz::outcome(language, &source, &documents).unwrap_or_else(|error| panic!("{name}: {error}"))
        });
        assert_eq!(show(&native), show(&engine), "{name}");
        assert_eq!((native.failures, native.log), (engine.failures, engine.log), "{name}");
        if native_language().engines(&source).iter().all(|engine| engine.name == "native") {
            natives += 1;
            let done = fuzz::without_help(&source, &documents);
            alone = (alone.0 + done, alone.1 + documents.len());
            println!("native, {done} of {} documents without help: {name}", documents.len());
        } else {
            refused.push(*name);
        }
    }
    println!("{natives} of {} published functions run natively; not: {refused:?}", functions.len());
    let modelled = functions.iter().filter(|(name, _)| name.contains(" (after ")).count();
    assert!(modelled >= 100, "{modelled} of {} written after public ones", functions.len());
    assert!(functions.len() >= 250 && natives * 5 >= functions.len() * 4, "{natives} of {}", functions.len());
    assert!(alone.0 * 10 >= alone.1 * 8, "{alone:?}");
}

#[test]
fn reasons_are_reported() {
    let source = |functions: &[&str]| MapSource {
        functions: functions.iter().map(|function| (*function).into()).collect(),
        library: None,
    };
    let language = native_language();
    for (function, is_native) in [
        ("function(doc) { emit(1, 1); }", true),
        ("function(doc) { emit(this, 1); }", false),
        ("function(doc) { var e = emit; e(1, 1); }", false),
        ("function(doc) { eval('1'); }", false),
    ] {
        let engine = language.engines(&source(&[function]))[0];
        assert_eq!(engine.name, if is_native { "native" } else { "quickjs" }, "{function}");
        assert_eq!(engine.reason.is_none_or(str::is_empty), is_native, "{function}: {:?}", engine.reason);
    }
    let off = native_language().clone().with_evaluator(settee_js::Evaluator::Workers);
    let engine = off.engines(&source(&["function(doc) {}"]))[0];
    assert_eq!((engine.name, engine.reason), ("quickjs", Some("the native evaluator is switched off")));
    let functions = ["function(doc) { emit(1, 1); }", "function(doc) { if (doc.bad) throw 'x'; emit(2, 2); }"];
    let mut program = language.program(&source(&functions), Limits::default()).unwrap();
    let documents = ["{}", "{\"bad\":1}", "{}", "{\"bad\":2}"];
    program.map(&batch(&documents), &mut Emissions::new()).unwrap();
    let counted: Vec<_> =
        program.take_bail_outs().iter().map(|counted| (counted.function, counted.reason, counted.documents)).collect();
    assert_eq!(counted, [(1, "throw", 2)]);
    assert!(program.take_bail_outs().is_empty());
}
