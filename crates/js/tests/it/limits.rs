//! After a function exceeds a limit of time, memory or rows, the worker is replaced and the language stays usable.

use settee_design::{Limits, RunError};

use super::{check, check_fatal, program, run};

const SHORT: u64 = 300;

fn short() -> Limits {
    Limits { timeout_ms: SHORT, ..Limits::default() }
}

#[track_caller]
fn check_stops(body: &str, limits: Limits, name: &str, parts: &[&str]) {
    let bad = format!("function(doc) {{ if (doc.bad) {{ {body} }} emit(1, 1); }}");
    let result = run(&["function(doc) {}", &bad], &["{}", "{}", "{\"bad\":true}", "{}"], limits);
    check_fatal(result, name, parts);
    check("function(doc) { emit('alive', null); }", "{}", "[[\"alive\",null]]");
}

const BLAME: &str = "on document \"doc3\"";

#[test]
fn endless_loops_are_ended() {
    for body in [
        "while (true);",
        "for (;;) try { for (;;); } catch (e) {}",
        "emit(1, {toJSON: function() { for (;;); }})",
        "throw {toString: function() { for (;;); }}",
    ] {
        check_stops(
            body,
            short(),
            "os_process_error",
            &["map function 2 (function(doc) { if", BLAME, "took longer than 300 ms"],
        );
    }
}

#[test]
fn work_that_the_engine_cannot_interrupt_is_killed() {
    for body in [
        "var a = []; a.length = 4e9; a.join('')",
        "var a = new Array(3e6).fill(0).map(function(_, i) { return 'k' + i; }); for (;;) a.sort()",
        "var s = 'x'.repeat(1e6); JSON.stringify(new Array(1e7).fill(s)).length; for (;;);",
        "/(a+)+b/.exec('a'.repeat(60))",
    ] {
        let limits = Limits { memory_bytes: 1 << 30, ..short() };
        let bad = format!("function(doc) {{ {body} }}");
        let result = run(&[&bad], &["{}"], limits);
        match result {
            Err(RunError::Fatal { name, reason }) => {
                assert!(name == "os_process_error" || name == "InternalError", "{body}: {name} {reason}");
                assert!(reason.contains("on document \"doc1\""), "{reason}");
            }
            other => panic!("{body}: {other:?}"),
        }
        check("function(doc) { emit('alive', null); }", "{}", "[[\"alive\",null]]");
    }
}

#[test]
fn a_kill_blames_the_right_function_and_document() {
    check_stops("var a = []; a.length = 4e9; a.join('')", short(), "os_process_error", &["map function 2", BLAME]);
}

#[test]
fn slow_batches_of_fast_documents_are_fine() {
    let documents = vec!["{\"n\":1}"; 60];
    let source = "function(doc) { var until = Date.now() + 20; while (Date.now() < until); emit(doc.n, null); }";
    assert_eq!(run(&[source], &documents, short()).unwrap().len(), 60);
}

#[test]
fn memory_is_limited() {
    let limits = Limits { memory_bytes: 16 << 20, ..Limits::default() };
    let table = [
        ("var a = []; for (;;) a.push('x'.repeat(1e5) + a.length)", "out of memory"),
        ("var s = 'x'; for (;;) s += s", "string too long"),
        ("new Array(1e8).fill(1)", "out of memory"),
        ("new Uint8Array(1e9)", "out of memory"),
        ("var a = {}; for (var i = 0; ; i++) a['k' + i] = i", "out of memory"),
        ("var a = null; for (;;) a = {a: a, d: doc}", "out of memory"),
        ("var a = []; for (;;) a = [a]", "out of memory"),
    ];
    for (body, reason) in table {
        let bad = format!("function(doc) {{ {body}; }}");
        check_fatal(run(&[&bad], &["{}"], limits), "InternalError", &[reason, "on document \"doc1\""]);
        check("function(doc) { emit('alive', null); }", "{}", "[[\"alive\",null]]");
    }
    let caught = "function(doc) { try { new Array(1e8).fill(1); } catch (e) { emit(e instanceof Error, 1); } }";
    assert_eq!(run(&[caught], &["{}"], limits).unwrap().len(), 1);
}

#[test]
fn keeping_every_document_is_limited_too() {
    let limits = Limits { memory_bytes: 16 << 20, ..Limits::default() };
    let document = format!("{{\"pad\":\"{}\"}}", "x".repeat(1 << 20));
    let documents = vec![document.as_str(); 40];
    let result = run(&["function(doc) { (this.all = this.all || []).push(doc); }"], &documents, limits);
    check_fatal(result, "InternalError", &["out of memory", "on document"]);
}

#[test]
fn rows_and_bytes_are_limited() {
    let limits = Limits { rows_per_document: 10, bytes_per_document: 1000, ..Limits::default() };
    let check = |body: &str, limits: Limits, message: &str| {
        let result = run(&[&format!("function(doc) {{ {body} }}"), "function(doc) { emit(1, 1); }"], &["{}"], limits);
        if !message.starts_with("a ") {
            return check_fatal(result, "limit_exceeded", &["map function 1", "doc1", message]);
        }
        let output = result.unwrap();
        assert_eq!(super::show(&output), "[[0,1,1,1]]", "{body}");
        let messages: Vec<_> = output.failures.iter().map(|failure| failure.message.as_str()).collect();
        assert_eq!(messages, [format!("limit_exceeded: emitted {message}")], "{body}");
    };
    check("for (;;) emit(1, 1)", limits, "more than 10 rows");
    check("try { for (;;) emit(1, 1) } catch (e) {}", limits, "more than 10 rows");
    check("emit('x'.repeat(600), 'y'.repeat(600))", limits, "more than 1000 bytes");
    check("emit(new Array(1e6).fill(1), 1)", limits, "more than 1000 bytes");
    check("emit(1, 'x'.repeat(600)); emit(1, 'y'.repeat(600))", limits, "more than 1000 bytes");
    check("emit(1, 1); emit('x'.repeat(99), 1)", Limits { key_bytes: 100, ..limits }, "a key of more than 100 bytes");
    check(
        "emit('x'.repeat(98), ['y'.repeat(97)])",
        Limits { key_bytes: 100, value_bytes: 100, ..limits },
        "a value of more than 100 bytes",
    );
    let fine = run(&["function(doc) { for (var i = 0; i < 10; i++) emit(i, 'x'.repeat(90)); }"], &["{}", "{}"], limits);
    assert_eq!(fine.unwrap().len(), 20);
    let caught = "for (;;) try { emit(1, 1) } catch (e) {}";
    check_stops(caught, Limits { timeout_ms: SHORT, ..limits }, "os_process_error", &[BLAME]);
}

#[test]
fn long_logs_are_cut_short() {
    let output = run(
        &["function(doc) { for (var i = 0; i < 100; i++) log('x'.repeat(1e4)); emit(1, 1); }"],
        &["{}"],
        Limits::default(),
    );
    let output = output.unwrap();
    assert_eq!((output.len(), output.log.len()), (1, 6));
}

#[test]
fn loops_at_the_top_of_a_source_do_not_compile() {
    let refused = program(&["(function() { for (;;); })()"], None, short());
    assert!(refused.is_err());
    check("function(doc) { emit('alive', null); }", "{}", "[[\"alive\",null]]");
}
