//! Isolation of functions: reachable global names, attempts to escape, and changes of built-in objects.

use settee_design::Limits;

use super::{check, run};

fn rows(source: &str) -> Vec<String> {
    let output = run(&[source], &["{}"], Limits { timeout_ms: 60_000, ..Limits::default() }).unwrap();
    assert!(output.failures.is_empty(), "{source}: {:?}", output.failures);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    output.rows().map(|row| format!("{} {}", text(row.key), text(row.value))).collect()
}

#[test]
fn everything_that_can_be_reached() {
    let source = "function(doc) {
        var seen = [];
        var walk = function(path, thing, depth) {
            if (thing === null || typeof thing !== 'object' && typeof thing !== 'function') return;
            if (depth > 3 || seen.indexOf(thing) >= 0) return;
            seen.push(thing);
            var names = Object.getOwnPropertyNames(thing).filter(function(name) {
                return ['length', 'name', 'constructor', 'globalThis'].indexOf(name) < 0;
            }).sort();
            emit(path, names.join(' '));
            names.forEach(function(name) {
                var found = Object.getOwnPropertyDescriptor(thing, name);
                if (found && 'value' in found) walk(path + '.' + name, found.value, depth + 1);
            });
        };
        walk('globalThis', globalThis, 0);
    }";
    let mut lines: Vec<String> = rows(source).into_iter().filter(|row| !row.ends_with("\"\"")).collect();
    lines.sort();
    settee_model::testing::check_file(
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data"),
        "reachable.txt",
        &(lines.join("\n") + "\n"),
    );
}

#[test]
fn ways_out_that_are_none() {
    let ways = [
        "typeof require",
        "typeof process",
        "typeof module",
        "typeof exports",
        "typeof Deno",
        "typeof Bun",
        "typeof std",
        "typeof os",
        "typeof bjson",
        "typeof Worker",
        "typeof SharedArrayBuffer === 'function' && typeof Atomics.wait",
        "typeof fetch",
        "typeof XMLHttpRequest",
        "typeof WebSocket",
        "typeof WebAssembly",
        "typeof setTimeout",
        "typeof setInterval",
        "typeof queueMicrotask",
        "typeof console",
        "typeof print",
        "typeof readline",
        "typeof load",
        "typeof quit",
        "typeof gc",
        "typeof scriptArgs",
        "typeof __loadScript",
        "typeof importScripts",
        "typeof window",
        "typeof self",
        "typeof document",
        "typeof Function('return this')().require",
        "typeof (function() { return this })().process",
        "typeof (0, eval)('this').std",
        "typeof new Function('return globalThis')().os",
        "typeof (function*() {}).constructor('return this')().next().value.std",
        "typeof this.constructor.constructor('return process')",
        "Object.keys(emit).join()",
        "typeof emit.constructor('return this')().std",
        "(function() { try { return typeof arguments.callee.caller } catch (e) { return 'threw' } })()",
        "new Error().stack.indexOf('/') >= 0",
        "typeof Error.prepareStackTrace",
        "Object.getOwnPropertyNames(Error).indexOf('captureStackTrace') >= 0 && typeof Error.captureStackTrace",
    ];
    let mut table = String::new();
    for way in ways {
        let source = format!(
            "function(doc) {{ var found; try {{ found = {way}; }} catch (error) {{ found = 'threw ' + error; }} emit(found, 1); }}"
        );
        table.push_str(&format!("{way}\n    {}\n", rows(&source).join(" ")));
    }
    settee_model::testing::check_file(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data"), "ways_out.txt", &table);
}

#[test]
fn nothing_is_imported() {
    for import in ["import('std')", "import('os')", "import('/etc/passwd')", "import('./x.js')", "import(doc.x)"] {
        let source = format!(
            "function(doc) {{ var done = 'nothing'; {import}.then(function() {{ done = 'loaded'; }}, function() {{}}); emit(done, 1); }}"
        );
        let result = super::program(&[&source], None, Limits::default());
        let Ok(mut program) = result else { continue };
        let mut output = settee_design::Emissions::new();
        for _ in 0..3 {
            if program.map(&super::batch(&["{}"]), &mut output).is_err() {
                break;
            }
        }
        let shown = super::show(&output);
        assert!(!shown.contains("loaded"), "{import}: {shown}");
        check("function(doc) { emit('alive', null); }", "{}", "[[\"alive\",null]]");
    }
}

#[test]
fn a_modified_global_affects_no_other_function() {
    let spoils = [
        "Object.prototype.x = 1",
        "Object.prototype.toJSON = function() { return 'spoiled'; }",
        "Object.prototype.emit = 1",
        "Object.defineProperty(Object.prototype, 'y', {get: function() { return 'spoiled'; }})",
        "Object.defineProperty(Object.prototype, 'a', {set: function() { throw 'spoiled'; }})",
        "Array.prototype.push = function() { return 'spoiled'; }",
        "Array.prototype.concat = null",
        "Array.prototype.join = function() { return 'spoiled'; }",
        "Array.prototype[0] = 'spoiled'",
        "Array.prototype[Symbol.iterator] = null",
        "String.prototype.split = function() { return ['spoiled']; }",
        "String.prototype.toString = function() { return 'spoiled'; }",
        "Number.prototype.toString = function() { return 'spoiled'; }",
        "Function.prototype.call = function() { return 'spoiled'; }",
        "Function.prototype.apply = null",
        "JSON.stringify = function() { return 'spoiled'; }",
        "JSON.parse = function() { return 'spoiled'; }",
        "JSON = null",
        "Object.keys = function() { return ['spoiled']; }",
        "Object = null",
        "Array = function() { return 'spoiled'; }",
        "Math.max = function() { return 'spoiled'; }",
        "Date = null",
        "RegExp.prototype.exec = function() { return null; }",
        "emit = function() {}",
        "log = null",
        "sum = function() { return 'spoiled'; }",
        "isArray = function() { return 'spoiled'; }",
        "toJSON = null",
        "globalThis.doc = 'spoiled'",
        "undefined_name = 'spoiled'",
        "globalThis.undefined_name = 'spoiled'",
        "delete globalThis.JSON",
        "delete Array.prototype.map",
        "delete globalThis.emit",
        "Object.freeze(Array.prototype)",
        "Object.freeze(globalThis)",
        "Object.preventExtensions(globalThis)",
        "Object.setPrototypeOf(Array.prototype, null)",
        "Object.setPrototypeOf(globalThis, null)",
        "Object.defineProperty(globalThis, 'emit', {value: 'spoiled', writable: false, configurable: false})",
        "eval('var JSON = null')",
    ];
    let probe = "function(doc) {
        var list = [3, 1].concat([2]); list.push(0);
        var name; try { name = undefined_name; } catch (error) { name = 'none'; }
        emit([list.map(String).join('-'), 'a b'.split(' '), JSON.stringify({a: 1}), JSON.parse('[1]'), Object.keys({k: 1})],
             [Math.max(1, 2), (5).toString(), /x/.exec('x').length, isArray([]), sum([1, 2]), typeof Date, name, typeof {}.x, typeof {}.y]);
    }";
    let expected = "[[[\"3-1-2-0\",[\"a\",\"b\"],\"{\\\"a\\\":1}\",[1],[\"k\"]],[2,\"5\",1,true,3,\"function\",\"none\",\"undefined\",\"undefined\"]]]";
    check(probe, "{}", expected);
    for spoil in spoils {
        let source = format!("function(doc) {{ try {{ {spoil}; }} catch (error) {{}} }}");
        let _ = super::program(&[&source], None, Limits::default()).map(|mut program| {
            let mut output = settee_design::Emissions::new();
            let _ = program.map(&super::batch(&["{}", "{}"]), &mut output);
        });
        check(probe, "{}", expected);
    }
}

#[test]
fn documents_are_no_way_from_one_to_the_next() {
    let keeps = [
        "if (!this.kept) this.kept = []; this.kept.push(doc._id); emit(this.kept.length, 1)",
        "globalThis.count = (globalThis.count || 0) + 1; emit(typeof globalThis.count, 1)",
        "emit.count = (emit.count || 0) + 1; emit(typeof emit.count, 1)",
    ];
    for keep in keeps {
        let source = format!("function(doc) {{ try {{ {keep}; }} catch (error) {{ emit('threw', 1); }} }}");
        let output = run(&[&source], &["{}", "{}"], Limits { timeout_ms: 60_000, ..Limits::default() }).unwrap();
        assert_eq!(output.rows().count(), 2, "{keep}");
        let other = "function(doc) { emit([typeof globalThis.count, typeof globalThis.kept, typeof emit.count], 1); }";
        check(other, "{}", "[[[\"undefined\",\"undefined\",\"undefined\"],1]]");
    }
}
