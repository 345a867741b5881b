//! Functions in variables, variables without declaration, polyfills and dates: equal results in both engines.

use settee_design::Limits;

use super::super::{check, run};
use super::engines;

#[track_caller]
fn check_native(source: &str, document: &str, expected: &str) {
    check(source, document, expected);
    assert_eq!(engines(&[source]), ["native"], "{source}");
}

fn keys(source: &str) -> Vec<(String, String)> {
    let output = run(&[source], &["{}"], Limits::default()).unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap().trim_matches('"').to_owned();
    output.rows().map(|row| (text(row.key), text(row.value))).collect()
}

#[test]
fn names_of_the_environment_are_not_assigned() {
    let names = keys(
        "function(doc) { for (var o = globalThis; o; o = Object.getPrototypeOf(o)) \
                      Object.getOwnPropertyNames(o).forEach(function(n) { emit(n, null); }); }",
    );
    assert!(names.len() > 60, "{names:?}");
    for (name, _) in names {
        let source = format!("function(doc) {{ {name} = 1; emit(1, 1); }}");
        assert_eq!(engines(&[&source]), ["quickjs"], "{source}");
    }
}

#[test]
fn members_of_the_environment_exist() {
    let members: Vec<_> = settee_native::members_of_environment().collect();
    assert!(members.len() > 150);
    let emitted: Vec<_> = members.iter().map(|(path, _)| format!("emit('{path}', typeof {path});")).collect();
    let found = keys(&format!("function(doc) {{ {} }}", emitted.join(" ")));
    let expected: Vec<_> = members.iter().map(|(path, kind)| (path.clone(), (*kind).to_owned())).collect();
    assert_eq!(found, expected);
}

#[test]
fn functions_are_assigned_to_variables() {
    for (source, document, expected) in [
        (
            "function(doc) { if (doc.a) { var put = function(k, v) { emit([k, String(v)], null); }; put('a', doc.a); } }",
            "{\"a\":5}",
            "[[[\"a\",\"5\"],null]]",
        ),
        (
            "function(doc) { var f; if (doc.a) { f = function(x) { return x + 1; }; } else { f = x => x - 1; } emit(f(1), 1); }",
            "{}",
            "[[0,1]]",
        ),
        (
            "function(doc) { var one = function(x) { return two(x) + base; }; const two = x => x * 2; let base = 10; emit(one(4), 1); }",
            "{}",
            "[[18,1]]",
        ),
        (
            "function(doc) { var down = function(n) { if (n > 0) { emit(n, 1); down(n - 1); } }; down(2); }",
            "{}",
            "[[2,1],[1,1]]",
        ),
        (
            "function(doc) { var down = function again(n) { if (n > 0) { emit(n, 1); again(n - 1); } }; down(2); }",
            "{}",
            "[[2,1],[1,1]]",
        ),
        (
            "function(doc) { for (var i = 0; i < 2; i++) { var f = function() { return i; }; emit(f(), 1); } emit(f(), 2); }",
            "{}",
            "[[0,1],[1,1],[2,2]]",
        ),
        (
            "function(doc) { emit(doc.s.replace(/([a-z])(\\d)?/g, function(m, a, d, at) { return d === undefined ? a + at : d; }), 1); }",
            "{\"s\":\"a1 b é c2\"}",
            "[[\"1 b3 é 2\",1]]",
        ),
        (
            "function(doc) { emit(doc.s.replace(/[०-९]/g, d => String.fromCodePoint(d.codePointAt(0) - 0x0966 + 0x30)), 1); }",
            "{\"s\":\"१२ x\"}",
            "[[\"12 x\",1]]",
        ),
    ] {
        check_native(source, document, expected);
    }
    for source in [
        "function(doc) { for (let i = 0; i < 2; i++) { if (i === 0) { var f = function() { return i; }; } emit(f(), 1); } }",
        "function(doc) { for (const x of [1, 2]) { if (x === 1) { var f = () => x; } emit(f(), 1); } }",
    ] {
        check(source, "{}", if source.contains("const x") { "[[1,1],[1,1]]" } else { "[[0,1],[0,1]]" });
        assert_eq!(engines(&[source]), ["quickjs"], "{source}");
    }
    for source in [
        "function(doc) { if (doc.a) { var f = function() {}; } emit(1, 1); f(); }",
        "function(doc) { if (doc.a) { var f = function() {}; } emit(1, 1); [].forEach(f); }",
        "function(doc) { emit(1, 1); f(); const f = function() {}; }",
        "function(doc) { for (const doc of doc.l) { emit(doc, 1); } }",
    ] {
        let output = run(&[source], &["{\"l\":[1]}"], Limits::default()).unwrap();
        assert_eq!((output.len(), output.failures.len()), (0, 1), "{source}");
    }
}

#[test]
fn variables_without_declaration_keep_nothing() {
    for source in [
        "function(doc) { for (i = 0; i < doc.l.length; i++) { emit(doc.l[i], i); } }",
        "function(doc) { for (k in doc.l) { v = doc.l[k]; emit(v, +k); } }",
        "function(doc) { for (i of [0, 1]) emit(doc.l[i], i); }",
        "function(doc) { var put = function(l) { for (i = 0; i < l.length; i++) emit(l[i], i); }; put(doc.l); }",
        "function(doc) { if (doc.l) { n = 0; } else { n = 1; } emit(doc.l[n], n); n++; emit(doc.l[n], n); }",
        "function(doc) { n = 0; doc.l.forEach(function(x) { emit(x, n); n += 1; }); }",
        "function(doc) { if (!doc.l) return; else n = 0; emit(doc.l[n], n); emit('b', 1); }",
        "function(doc) { var set = function() { n = 0; }; set(); emit(doc.l[n], n); emit('b', ++n); }",
        "function(doc) { put = function(x, i) { emit(x, i); }; doc.l.forEach(put); }",
        "function(doc) { try { n = 0; emit(doc.l[n], n); emit('b', 1); } catch (e) { } }",
    ] {
        check_native(source, "{\"l\":[\"a\",\"b\"]}", "[[\"a\",0],[\"b\",1]]");
    }
    for body in [
        "n = n || 0; n++; emit(n, 1);",
        "n++;",
        "n += 1; emit(n, 1);",
        "n ??= 1; emit(n, 1);",
        "if (doc.a) { n = 1; } emit(n, 1);",
        "if (doc.a) { n = 1; } emit(typeof n, 1);",
        "for (k in doc) { } emit(k, 1);",
        "while (doc.a) { n = 1; break; } emit(n, 1);",
        "do { if (doc.a) break; n = 1; } while (doc.b); emit(n, 1);",
        "switch (doc.a) { case 1: n = 1; } emit(n, 1);",
        "try { n = doc.a.b; } catch (e) { } emit(n, 1);",
        "try { n = doc.a.b; } catch (e) { emit(n, 1); }",
        "function get() { return n; } emit(get(), 1); n = 1;",
        "function get() { if (doc.a) n = 1; return n; } emit(get(), 1);",
        "function set() { if (doc.a) return; n = 1; } set(); emit(n, 1);",
        "var set = function() { n = 1; }; if (doc.a) set(); emit(n, 1);",
        "(doc.l || []).forEach(function(x) { n = x; }); emit(n, 1);",
        "doc.a && (n = 1); emit(n, 1);",
        "doc?.a?.[n = 1]; emit(n, 1);",
        "if (doc.a) { put = function() { emit(1, 1); }; } put();",
        "if (doc.a) { n = 1; } if (doc.b) { throw n; }",
        "if (doc.a) { n = 1; } if (doc.b) { throw \\u006e; }",
        "var f = function() { g = function() { }; }; f();",
        "g = function() { return 1; }; emit(g, 1);",
    ] {
        let source = format!("function(doc) {{ {body} }}");
        assert_eq!(engines(&[&source]), ["quickjs"], "{source}");
    }
}

#[test]
fn polyfills_have_no_effect() {
    for polyfill in [
        "Object.keys = Object.keys || function(o) { return ['none']; };",
        "Array.prototype.map = Array.prototype.map || function(f) { return this; };",
        "if (!Array.prototype.forEach) { Array.prototype.forEach = function() { undeclared(); }; }",
        "if (typeof Array.isArray === 'undefined') { Array.isArray = function() { return 1; }; }",
        "if (typeof String.prototype.trim != 'function') String.prototype.trim = function() { };",
        "Object.values || (Object.values = function() { });",
        "Date.now = Date.now ? Date.now : function() { return 1; };",
        "Object.keys ||= () => []; isArray = isArray || function() { };",
        "if (Object.keys) { } else { Object.keys = 1; }",
    ] {
        let source =
            format!("function(doc) {{ {polyfill} emit(Object.keys(doc).map(function(k) {{ return k; }}), 1); }}");
        check_native(&source, "{\"a\":1}", "[[[\"a\"],1]]");
    }
    for statement in [
        "Object.missing = Object.missing || function() { };",
        "Object.keys = function(o) { return []; };",
        "Array.prototype.map = Array.prototype.filter;",
        "Array.prototype.extra = Array.prototype.extra || function() { };",
        "emit = emit && function() { };",
        "var a = (Object.keys = Object.keys || 1);",
    ] {
        let source = format!("function(doc) {{ {statement} }}");
        assert_eq!(engines(&[&source]), ["quickjs"], "{source}");
    }
    check(
        "function(doc) { var Object = {keys: 0}; Object.keys = Object.keys || 7; emit(Object.keys, 1); }",
        "{}",
        "[[7,1]]",
    );
}

#[test]
fn dates_change() {
    let parse = "function(doc) { function parse(s) { s = s.split('T'); var ds = s[0], ts = s[1], d = new Date(); \
                 ds = ds.split('-'); ts = ts.split(':'); ts[2] = ts[2].substr(0, 2); d.setUTCFullYear(+ds[0]); \
                 d.setUTCMonth(+ds[1] - 1, +ds[2]); d.setUTCDate(+ds[2]); d.setUTCHours(+ts[0]); d.setUTCMinutes(+ts[1]); \
                 d.setUTCSeconds(+ts[2]); d.setUTCMilliseconds(0); return d.getTime(); } emit(parse(doc.t), 1); }";
    check_native(parse, "{\"t\":\"2010-12-29T07:31:06Z\"}", "[[1293607866000,1]]");
    for (source, expected) in [
        (
            "function(doc) { var d = new Date(0); emit(d, d); d.setUTCHours(1); }",
            "[[\"1970-01-01T01:00:00.000Z\",\"1970-01-01T01:00:00.000Z\"]]",
        ),
        ("function(doc) { var d = new Date(0); emit(d.setFullYear(50), d.getFullYear()); }", "[[-60589296000000,50]]"),
        (
            "function(doc) { var d = new Date(2012, 0, 31); d.setMonth(1); emit(d, d.getTimezoneOffset()); }",
            "[[\"2012-03-02T00:00:00.000Z\",0]]",
        ),
        (
            "function(doc) { emit(new Date(1e12).toString(), new Date(0).toUTCString()); }",
            "[[\"Sun Sep 09 2001 01:46:40 GMT+0000\",\"Thu, 01 Jan 1970 00:00:00 GMT\"]]",
        ),
        ("function(doc) { emit(new Date() > new Date(1e12), Date.now() % 1); }", "[[true,0]]"),
        ("function(doc) { emit(typeof Date(), Math.random() < 1); }", "[[\"string\",true]]"),
        (
            "function(doc) { emit(new Date(Date.now()).setHours(0, 0, 0, 0) % 86400000, new Date - 1 > 1e12); }",
            "[[0,true]]",
        ),
    ] {
        check_native(source, "{}", expected);
    }
}
