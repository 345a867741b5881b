//! Conformance suite of languages with the functions of `sdk/wasm/conformance`, compiled into `tests/data`.

#![expect(clippy::unwrap_used, reason = "tests")]

use settee_design::Limits;
use settee_design::conformance::{
    MapExceptions, MapFunctions, Numbers, ReduceExceptions, ReduceFunctions, Subject, Ways, run_all,
};
use settee_model::base64;
use settee_wasm::{CompilerCommand, Wasm};

#[test]
fn webassembly_is_a_language() {
    let mut module = Vec::new();
    base64::encode(include_bytes!("data/conformance.wasm"), &mut module);
    let module = String::from_utf8(module).unwrap();
    let export = |name: &str| format!("{module}#{name}");
    let [pair, each, fails, hangs, logs, missing] =
        ["pair", "each", "fails", "hangs", "logs", "missing"].map(|name| export(&format!("map_{name}")));
    let [count, gather, count_fails, count_hangs] =
        ["count", "gather", "fails", "hangs"].map(|name| export(&format!("reduce_{name}")));
    let wasm = Wasm::new(CompilerCommand {
        program: env!("CARGO_BIN_EXE_settee-wasm-compiler").into(),
        args: Vec::new(),
        timeout_ms: 60_000,
    })
    .unwrap();
    run_all(&Subject {
        language: &wasm,
        limits: Limits { timeout_ms: 60_000, ..Limits::default() },
        short_timeout: (&wasm, Limits { timeout_ms: 500, ..Limits::default() }),
        map: MapFunctions {
            pair: &pair,
            each: &each,
            fails: &fails,
            hangs: &hangs,
            logs: &logs,
            broken: &[("function(doc) {}", "module in base64"), (&missing, "exports no function `map_missing`")],
        },
        reduce: ReduceFunctions {
            count: &count,
            gather: &gather,
            fails: &count_fails,
            hangs: &count_hangs,
            broken: ("e30=", "no WebAssembly module"),
        },
        index: None,
        library: None,
        design: None,
        ways: Ways {
            numbers: Numbers::Kept,
            map_exceptions: MapExceptions::Reported,
            reduce_exceptions: ReduceExceptions::Null,
        },
    });
}
