//! Malicious functions: an attack is attributed to the right function and document, and all others continue.

use std::time::{Duration, Instant};

use settee_design::{Emissions, Language as _, Limits, MapSource};
use settee_js::{Evaluator, JavaScript, PoolSettings};

use super::processes::{marked, processes_with, signal, wait_until_busy};
use super::{batch, check, check_fatal, command, native_language, program, run, show};

const SHORT: u64 = 300;

fn short() -> Limits {
    Limits { timeout_ms: SHORT, memory_bytes: 64 << 20, ..Limits::default() }
}

#[track_caller]
fn check_attack(body: &str, limits: Limits, names: &[&str]) {
    let bad = format!("function(doc) {{ if (doc.bad) {{ {body} }} emit(1, 1); }}");
    let began = Instant::now();
    let result = run(&["function(doc) { emit(0, 0); }", &bad], &["{}", "{}", "{\"bad\":true}", "{}"], limits);
    let name = names.iter().find(|name| format!("{result:?}").contains(&format!("name: \"{name}\"")));
    let name = name.unwrap_or_else(|| panic!("{body}: {result:?}"));
    check_fatal(result, name, &["map function 2 (function(doc) { if", "on document \"doc3\""]);
    assert!(began.elapsed() < Duration::from_secs(20), "{body} held the caller for {:?}", began.elapsed());
    check("function(doc) { emit('alive', null); }", "{}", "[[\"alive\",null]]");
}

#[test]
fn loops_without_an_end() {
    for body in [
        "while (true);",
        "do {} while (1 + 1 == 2);",
        "for (var i = 0; ; i++) { i = i % 7; }",
        "for (var i = 0; i < 1; i--) emit.x = i;",
        "var a = [1]; for (var i = 0; i < a.length; i++) { a.push(i); if (a.length > 100) a = [1, i]; i = 0; }",
        "function f() { for (;;); } f();",
        "[1].forEach(function() { for (;;); });",
        "while (true) { try { null.x; } catch (e) {} }",
        "var s = ''; while (true) { s = s.length > 10 ? '' : s + 'x'; }",
        "for (;;) 'a,b'.split(',').join('-').replace(/a/g, 'b');",
    ] {
        check_attack(body, short(), &["os_process_error"]);
    }
}

#[test]
fn loops_inside_of_uninterruptible_functions() {
    for body in [
        "var a = []; a.length = 4e9; a.join('');",
        "var a = []; a.length = 4294967295; a.sort();",
        "var a = new Array(3e5).fill(0).map(function(_, i) { return 'k' + (i * 7919) % 300007; }); for (;;) a.sort();",
        "[3, 2, 1].sort(function() { for (;;); });",
        "var a = []; a.length = 4e9; a.indexOf(1); a.reverse(); a.lastIndexOf(2);",
        "/(a+)+b/.test('a'.repeat(60));",
        "/^(\\w+\\s?)*$/.test('a'.repeat(60) + '!');",
        "'a'.repeat(50).replace(/(a|aa)+$/g, ''); ('a'.repeat(60) + 'b').match(/(a|aa)+$/);",
        "('a'.repeat(60) + 'c').split(/(a*)*b/);",
    ] {
        check_attack(body, short(), &["os_process_error", "InternalError"]);
    }
}

#[test]
fn bombs_of_memory() {
    for body in [
        "var s = 'x'; for (;;) s += s;",
        "var a = []; for (;;) a.push('x'.repeat(1e5) + a.length);",
        "var a = []; for (;;) a.push(a.slice());",
        "var o = {}; for (var i = 0; ; i++) o['k' + i] = {v: i};",
        "var a = [1]; for (;;) a = a.concat(a);",
        "var a = [0]; for (;;) a = [a, a];",
        "var m = new Map(); for (var i = 0; ; i++) m.set(i, [i]);",
        "new Uint8Array(1e9).fill(1);",
        "new Array(1e8).fill(1);",
        "var s = 'x'.repeat(1e8); for (;;) s = s.replace(/x/g, 'xx');",
        "var f = function() {}; for (;;) f = f.bind(null, f);",
        "JSON.parse('[' + new Array(1e7).join('[],') + '[]]');",
        "var s = 'ab'; for (;;) { s = s.split('').join(s); }",
    ] {
        check_attack(body, Limits { timeout_ms: 1_500, ..short() }, &["InternalError", "os_process_error"]);
    }
}

#[test]
fn recursion_without_an_end() {
    for body in [
        "(function f() { f(); })();",
        "function f(n) { return g(n + 1); } function g(n) { return f(n + 1); } f(0);",
        "function f(o) { for (var k in o) f(o); } f({a: 1});",
        "var o = {toString: function() { return o + ''; }}; '' + o;",
        "var o = {toJSON: function() { return JSON.stringify(o); }}; emit(o, 1);",
        "var o = {get a() { return o.a; }}; o.a;",
        "var p = new Proxy({}, {get: function(t, k, r) { return r[k]; }}); p.x;",
        "var f = function() { f.apply(null, arguments); }; f();",
        "[1].map(function m(x) { return [x].map(m); });",
    ] {
        check_attack(body, Limits { timeout_ms: 5_000, ..short() }, &["InternalError"]);
    }
}

#[test]
fn gigabytes_of_rows() {
    let limits = Limits { timeout_ms: 4_000, bytes_per_document: 4 << 20, rows_per_document: 50_000, ..short() };
    for body in [
        "for (;;) emit(1, 1);",
        "for (;;) emit(doc, doc);",
        "var s = 'x'.repeat(1e6); for (var i = 0; i < 1000; i++) emit(i, s);",
        "var a = ['x'.repeat(1e3)]; for (var i = 0; i < 20; i++) a = [a, a]; emit(null, a);",
        "for (var i = 0; i < 1e9; i++) { var o = {i: i}; emit(o, o); }",
    ] {
        check_attack(body, limits, &["limit_exceeded"]);
    }
    let key =
        "function() { var s = 'x'.repeat(1e6), a = []; for (var i = 0; i < 1000; i++) a.push(s); emit(a, null); }";
    let result = run(&[key], &["{}"], limits);
    assert!(result.is_ok() && format!("{result:?}").contains("limit_exceeded: emitted a key"), "{result:?}");
    check_attack("for (;;) try { emit('x'.repeat(1e5), 1); } catch (e) {}", limits, &["os_process_error"]);
}

#[test]
fn spoiled_environments_stay_where_they_were_spoiled() {
    let settings = PoolSettings { idle_workers: 1, ..PoolSettings::default() };
    let language = JavaScript::new(command(), settings).with_evaluator(Evaluator::Workers);
    let spoil = "function(doc) { \
        Object.prototype.polluted = 1; Array.prototype.push = function() { return 'stolen'; }; \
        Object.prototype.toJSON = function() { return 'owned'; }; String.prototype.split = null; \
        Array.isArray = function() { return true; }; JSON.stringify = null; Math.max = null; parseInt = null; \
        Object.keys = function() { return ['none']; }; emit = undefined; log = null; isArray = null; sum = null; \
        globalThis.kept = doc; Object.freeze(Array.prototype); RegExp.prototype.exec = null; Date = null; }";
    let honest = "function(doc) { var a = []; a.push(doc.n); \
        emit([a, {}.polluted, isArray(a), Array.isArray({}), Object.keys(doc)], \
             [JSON.stringify(doc), Math.max(1, 2), parseInt('7'), 'a,b'.split(','), sum([1, 2]), typeof kept, /b/.test('abc'), {}]); }";
    let expected = r#"[[[5],null,true,false,["n"]],["{\"n\":5}",2,7,["a","b"],3,"undefined",true,{}]]"#;
    let text = |output: &Emissions| show(output).replace("[0,0,", "[").replace("[1,0,", "[");
    for _ in 0..3 {
        let source = |function: &str| MapSource { functions: vec![function.into()], library: None };
        let mut output = Emissions::new();
        let spoiler =
            language.program(&source(spoil), Limits::default()).unwrap().map(&batch(&["{\"n\":5}"]), &mut output);
        spoiler.unwrap();
        output.clear();
        language.program(&source(honest), Limits::default()).unwrap().map(&batch(&["{\"n\":5}"]), &mut output).unwrap();
        assert_eq!(text(&output), format!("[{expected}]"), "{:?}", output.failures);
    }
    let output =
        run(&[spoil, "function(doc) { emit(doc.n, {}); }", honest], &["{\"n\":5}"], Limits::default()).unwrap();
    let rows: Vec<_> = output.rows().map(|row| row.function).collect();
    assert_eq!((rows, &output.failures), (vec![1, 2], &Vec::new()));
}

#[cfg(target_os = "linux")]
#[test]
fn an_engine_that_crashes_is_blamed_and_replaced() {
    // Abort, segmentation fault, and the signal of the kernel when memory is short.
    for number in [6, 4, 9] {
        let mark = format!("crashes{number}");
        let language = marked(&mark).with_evaluator(Evaluator::Native);
        let source = MapSource {
            functions: vec![
                "function(doc) { emit(doc.n, 0); }".into(),
                "function(doc) { if (doc.n == 2) for (;;); }".into(),
            ],
            library: None,
        };
        let limits = Limits { timeout_ms: 20_000, ..Limits::default() };
        let mut program = language.program(&source, limits).unwrap();
        assert!([0, 1].iter().all(|index| program.engine(*index).is_some_and(|engine| engine.name == "native")));
        assert!(processes_with(&mark).is_empty(), "nothing has needed a worker");
        let killer = std::thread::spawn(move || {
            let victim = loop {
                if let Some(victim) = processes_with(&mark).first() {
                    break *victim;
                }
                std::thread::yield_now();
            };
            wait_until_busy(victim, 40);
            signal(victim, number);
        });
        let mut output = Emissions::new();
        let result = program.map(&batch(&["{\"n\":1}", "{\"n\":2}"]), &mut output);
        killer.join().unwrap();
        check_fatal(
            result.map(|()| output),
            "os_process_error",
            &["map function 2", "on document \"doc2\"", &format!("signal {number}")],
        );
        let mut output = Emissions::new();
        program.map(&batch(&["{\"n\":1}"]), &mut output).unwrap();
        assert_eq!(show(&output), "[[0,0,1,0]]");
    }
}

#[test]
fn others_go_on_meanwhile() {
    std::thread::scope(|scope| {
        let attack = scope.spawn(|| {
            let mut attacker =
                program(&["function(doc) { for (;;); }"], None, Limits { timeout_ms: 1_000, ..short() }).unwrap();
            attacker.map(&batch(&["{}"]), &mut Emissions::new())
        });
        let mut rows = 0;
        while !attack.is_finished() {
            let source = MapSource {
                functions: vec![
                    "function(doc) { emit(doc.n, 1); }".into(),
                    "function(doc) { emit(typeof this, 1); }".into(),
                ],
                library: None,
            };
            let mut output = Emissions::new();
            native_language().program(&source, short()).unwrap().map(&batch(&["{\"n\":1}"]), &mut output).unwrap();
            rows += output.len();
        }
        assert!(attack.join().unwrap().is_err());
        assert!(rows >= 2);
    });
}
