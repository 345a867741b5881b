//! Hand-written modules, valid and malicious.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use settee_design::{CompileError, DocumentBatch, Emissions, Language, Limits, MapSource, RunError};
use settee_model::base64;
use settee_wasm::{CompilerCommand, Wasm};

/// Common start of the modules: imports, memory, and an allocator that returns the second page.
const PRELUDE: &str = r#"
    (import "settee" "emit" (func $emit (param i32 i32 i32 i32)))
    (import "settee" "log" (func $log (param i32 i32)))
    (import "settee" "fail" (func $fail (param i32 i32)))
    (import "settee" "result" (func $result (param i32 i32)))
    (memory (export "memory") 4)
    (func (export "settee_alloc") (param i32) (result i32) i32.const 65536)
    (data (i32.const 0) "\"k\"1[2,3]nonsensebecause")
"#;

fn source(wat: &str) -> String {
    let bytes = wat::parse_str(format!("(module {PRELUDE} {wat})")).unwrap();
    let mut text = Vec::new();
    base64::encode(&bytes, &mut text);
    String::from_utf8(text).unwrap()
}

fn map_of(body: &str) -> String {
    source(&format!(r#"(func (export "map") (param $at i32) (param $len i32) (result i32) {body})"#))
}

fn batch(documents: &[(&str, &str)]) -> DocumentBatch {
    let mut batch = DocumentBatch::new();
    for (seq, (id, json)) in (1..).zip(documents) {
        let write = |out: &mut Vec<u8>| {
            out.extend_from_slice(json.as_bytes());
            Ok::<_, ()>(())
        };
        batch.push_with(seq, id, write).unwrap();
    }
    batch
}

fn language() -> Wasm {
    let program = env!("CARGO_BIN_EXE_settee-wasm-compiler").into();
    Wasm::new(CompilerCommand { program, args: Vec::new(), timeout_ms: 60_000 }).unwrap()
}

/// Checks the error of a compiler that runs `script`. Compiles twice: a cached result must run the script once.
#[track_caller]
fn check_compiler(script: &str, expected: &CompileError) {
    let ran = tempfile();
    let script = format!("echo ran >> {ran}; {script}");
    let compiler = CompilerCommand { program: "/bin/sh".into(), args: vec!["-c".into(), script], timeout_ms: 2_000 };
    let language = Wasm::new(compiler).unwrap();
    let source = MapSource { functions: vec![map_of("i32.const 0").into()], library: None };
    for _ in 0..2 {
        assert_eq!(language.program(&source, limits()).err().as_ref(), Some(expected));
    }
    let times = std::fs::read_to_string(&ran).unwrap().lines().count();
    // Failures of the machine are not cached.
    assert_eq!(times, if matches!(expected, CompileError::Source(_)) { 1 } else { 2 });
    std::fs::remove_file(ran).unwrap();
}

fn tempfile() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("settee-wasm-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    std::env::temp_dir().join(name).to_str().unwrap().to_owned()
}

#[test]
fn compilers_that_take_too_much_are_ended() {
    let source = |reason: &str| CompileError::Source(reason.to_owned());
    check_compiler("exec sleep 1000", &source("compiling the module takes more than 2000 ms"));
    check_compiler("exec sleep 1000 >&- 2>&-", &source("compiling the module takes more than 2000 ms"));
    let memory = source("compiling the module takes more than 1073741824 bytes of memory");
    check_compiler("echo 'memory allocation of 99 bytes failed' >&2; kill -ABRT $$", &memory);
    check_compiler("kill -KILL $$", &memory);
    check_compiler("echo 'the reason' >&2; exit 3", &source("the reason"));
    let panicked = source("the compiler cannot compile the module: code too large");
    check_compiler("printf '\\nthread panicked at file:1:2:\\ncode too large\\nnote: run\\n' >&2; exit 101", &panicked);
    check_compiler("cat /dev/zero", &source("the machine code of the module has more than 67108864 bytes"));
    let unavailable = |reason: &str| CompileError::Unavailable(reason.to_owned());
    let strange = unavailable("the WebAssembly compiler ended with exit status: 7: strange");
    check_compiler("echo strange >&2; exit 7", &strange);
    let missing = CompilerCommand { program: "/does/not/exist".into(), args: Vec::new(), timeout_ms: 1_000 };
    let source = MapSource { functions: vec![map_of("i32.const 0").into()], library: None };
    let refused = Wasm::new(missing).unwrap().program(&source, limits()).err();
    assert!(matches!(refused, Some(CompileError::Unavailable(_))), "{refused:?}");
}

#[test]
fn running_modules_share_a_memory() {
    let limits = Limits { memory_bytes: 1 << 30, ..limits() };
    let greedy = source(&format!(
        r#"(func (export "map") (param i32 i32) (result i32) {})"#,
        "(if (i32.eq (memory.grow (i32.const 3200)) (i32.const -1)) (then unreachable)) i32.const 0"
    ));
    let language = language();
    let source = MapSource { functions: vec![greedy.into()], library: None };
    let mut programs: Vec<_> = (0..3).map(|_| language.program(&source, limits).unwrap()).collect();
    let documents = batch(&[("a", "{}")]);
    let map = |program: &mut Box<dyn settee_design::Program>| program.map(&documents, &mut Emissions::new());
    assert_eq!((map(&mut programs[0]), map(&mut programs[1])), (Ok(()), Ok(())));
    assert!(matches!(map(&mut programs[2]), Err(RunError::Fatal { name, .. }) if name == "limit_exceeded"));
    programs.swap_remove(0);
    assert_eq!(map(programs.last_mut().unwrap()), Ok(()));
}

fn limits() -> Limits {
    Limits {
        timeout_ms: 200,
        memory_bytes: 1 << 20,
        rows_per_document: 100,
        bytes_per_document: 10_000,
        ..Limits::default()
    }
}

/// Returns rows as `document.function:key=value`, failures as `document.function!message`, and the log.
fn run(functions: &[String], documents: &[(&str, &str)]) -> Result<Vec<String>, RunError> {
    let source =
        MapSource { functions: functions.iter().map(|source| source.as_str().into()).collect(), library: None };
    let mut program = language().program(&source, limits()).unwrap();
    let mut output = Emissions::new();
    program.map(&batch(documents), &mut output)?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut stderr_text: Vec<String> = output
        .rows()
        .map(|row| format!("{}.{}:{}={}", row.document, row.function, text(row.key), text(row.value)))
        .collect();
    stderr_text.extend(
        output.failures.iter().map(|failure| format!("{}.{}!{}", failure.document, failure.function, failure.message)),
    );
    stderr_text.extend(output.log);
    Ok(stderr_text)
}

const EMIT_DOCUMENT: &str = "(call $emit (i32.const 0) (i32.const 3) (local.get $at) (local.get $len)) i32.const 0";
const EMIT_KEY: &str = "(call $emit (i32.const 3) (i32.const 1) (i32.const 0) (i32.const 0)) i32.const 0";

#[test]
fn documents_go_in_and_rows_come_out() {
    let documents = [("a", r#"{"_id":"a"}"#), ("b", r#"{ "_id": "b" }"#)];
    let stderr_text = run(&[map_of(EMIT_DOCUMENT), map_of(EMIT_KEY)], &documents).unwrap();
    assert_eq!(stderr_text, [r#"0.0:"k"={"_id":"a"}"#, "0.1:1=null", r#"1.0:"k"={"_id":"b"}"#, "1.1:1=null"]);
}

#[test]
fn a_document_longer_than_the_buffer_gets_a_larger_one() {
    // The allocator grows the memory and returns the requested size.
    let long = format!(r#"{{"text":"{}"}}"#, "x".repeat(9_000));
    let stderr_text = run(&[map_of(EMIT_DOCUMENT)], &[("a", "{}"), ("b", &long), ("c", "{}")]).unwrap();
    assert_eq!(stderr_text, [r#"0.0:"k"={}"#.to_owned(), format!(r#"1.0:"k"={long}"#), r#"2.0:"k"={}"#.to_owned()]);
}

#[test]
fn a_function_that_fails_emits_nothing_and_goes_on() {
    let check = |body: &str, expected: &str| {
        let stderr_text = run(&[map_of(body), map_of(EMIT_KEY)], &[("a", "{}")]).unwrap();
        assert_eq!(stderr_text, ["0.1:1=null", expected], "{body}");
    };
    let emit = "(call $emit (i32.const 3) (i32.const 1) (i32.const 0) (i32.const 0))";
    check(&format!("{emit} (call $fail (i32.const 17) (i32.const 7)) i32.const 0"), "0.0!because");
    check(&format!("{emit} i32.const 3"), "0.0!answered status 3");
    check(&format!("{emit} unreachable"), "0.0!wasm trap: wasm `unreachable` instruction executed");
    check(&format!("{emit} (i32.load (i32.const -1)) drop i32.const 0"), "0.0!wasm trap: out of bounds memory access");
    check(
        "(call $emit (i32.const 9) (i32.const 8) (i32.const 0) (i32.const 0)) i32.const 0",
        "0.0!an emitted key is not JSON: invalid JSON at byte 0",
    );
}

#[test]
fn limits_end_the_build_and_say_where() {
    let check = |body: &str, name: &str, reason: &str| {
        let began = Instant::now();
        let error = run(&[map_of(EMIT_KEY), map_of(body)], &[("a", "{}"), ("b", "{}")]).unwrap_err();
        let expected = RunError::Fatal {
            name: name.to_owned(),
            reason: format!("map function 2 (map) on document \"a\" {reason}"),
        };
        assert_eq!(error, expected, "{body}");
        assert!(began.elapsed() < Duration::from_secs(20), "{body}");
    };
    check("(loop (br 0)) i32.const 0", "os_process_error", "timed out: it took longer than 200 ms");
    check(
        "(if (i32.eq (memory.grow (i32.const 100)) (i32.const -1)) (then unreachable)) i32.const 0",
        "limit_exceeded",
        "needs more than 1048576 bytes of memory",
    );
}

#[test]
fn too_many_rows_end_the_build() {
    let check = |body: &str, message: &str| {
        let error = run(&[map_of(EMIT_KEY), map_of(body)], &[("a", "{}")]).unwrap_err();
        let reason = format!("map function 2 (map) on document \"a\" {message}");
        assert_eq!(error, RunError::Fatal { name: "limit_exceeded".to_owned(), reason }, "{body}");
    };
    check(
        "(loop (call $emit (i32.const 3) (i32.const 1) (i32.const 0) (i32.const 0)) (br 0)) i32.const 0",
        "emitted more than 100 rows",
    );
    check(
        "(call $emit (i32.const 0) (i32.const 20000) (i32.const 0) (i32.const 0)) i32.const 0",
        "emitted more than 10000 bytes",
    );
}

#[test]
fn endless_recursion_is_a_failure_of_the_document() {
    let recursive =
        source(r#"(func $down (export "map") (param i32 i32) (result i32) (call $down (local.get 0) (local.get 1)))"#);
    let stderr_text = run(&[recursive], &[("a", "{}"), ("b", "{}")]).unwrap();
    assert_eq!(stderr_text, ["0.0!wasm trap: call stack exhausted", "1.0!wasm trap: call stack exhausted"]);
}

#[test]
fn invalid_modules_are_rejected_with_a_reason() {
    let check = |source: &str, expected: &str| {
        let source = MapSource { functions: vec![source.into()], library: None };
        let Err(CompileError::Source(reason)) = language().program(&source, limits()) else {
            panic!("{source:?} compiles")
        };
        assert!(reason.contains(expected), "{reason}");
    };
    check("function(doc) {}", "a function is written as a module in base64");
    check("e30=", "no WebAssembly module");
    check("AGFzbQ==", "unexpected end");
    check("attachment:m.wasm", "no attachment `m.wasm`");
    check("lib:m#f", "no member `m`");
    check(&source(""), "exports no function `map` from address and length to a status");
    check(&format!("{}#other", map_of(EMIT_KEY)), "exports no function `other`");
    let wasi = r#"(module (import "wasi_snapshot_preview1" "fd_write" (func (param i32 i32 i32 i32) (result i32))))"#;
    let mut text = Vec::new();
    base64::encode(&wat::parse_str(wasi).unwrap(), &mut text);
    check(&String::from_utf8(text).unwrap(), "unknown import");
    check(
        &source(
            r#"(func $init (loop (br 0))) (start $init) (func (export "map") (param i32 i32) (result i32) i32.const 0)"#,
        ),
        "wasm trap",
    );
}

#[test]
fn functions_of_one_module_share_no_memory() {
    let counter = source(
        r#"(global $n (mut i32) (i32.const 48))
        (func (export "map") (param i32 i32) (result i32)
            (global.set $n (i32.add (global.get $n) (i32.const 1)))
            (i32.store8 (i32.const 30) (global.get $n))
            (call $emit (i32.const 30) (i32.const 1) (i32.const 0) (i32.const 0)) i32.const 0)"#,
    );
    let stderr_text = run(&[counter.clone(), counter], &[("a", "{}"), ("b", "{}")]).unwrap();
    assert_eq!(stderr_text, ["0.0:1=null", "0.1:1=null", "1.0:2=null", "1.1:2=null"]);
}

#[test]
fn a_reduction_that_fails_is_null_and_one_that_hangs_an_error() {
    let reduce_of = |body: &str| source(&format!(r#"(func (export "reduce") (param i32 i32) (result i32) {body})"#));
    let wasm = language();
    for body in ["unreachable", "i32.const 1", "i32.const 0"] {
        let mut reducer = wasm.reducer(&reduce_of(body), limits()).unwrap();
        assert_eq!(reducer.rereduce(&[vec![], vec![]]).unwrap(), [b"null".to_vec(), b"null".to_vec()], "{body}");
    }
    let mut reducer = wasm.reducer(&reduce_of("(loop (br 0)) i32.const 0"), limits()).unwrap();
    let error = reducer.rereduce(&[vec![]]).unwrap_err();
    assert_eq!(error.to_string(), "os_process_error: reduce function (reduce) timed out: it took longer than 200 ms");
}
