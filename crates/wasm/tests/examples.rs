//! Tests `sdk/wasm/examples`, compiled into `tests/data`, which benchmarks use as well.

#![expect(clippy::unwrap_used, reason = "tests")]

use settee_design::{DocumentBatch, Emissions, Language, Limits, MapSource, ReduceRows};
use settee_model::base64;
use settee_wasm::{CompilerCommand, Wasm};

const RUST: &[u8] = include_bytes!("data/scores-rust.wasm");
const ASSEMBLYSCRIPT: &[u8] = include_bytes!("data/scores-assemblyscript.wasm");

fn language() -> Wasm {
    let program = env!("CARGO_BIN_EXE_settee-wasm-compiler").into();
    Wasm::new(CompilerCommand { program, args: Vec::new(), timeout_ms: 60_000 }).unwrap()
}

fn source(module: &[u8], export: &str) -> String {
    let mut text = Vec::new();
    base64::encode(module, &mut text);
    format!("{}#{export}", String::from_utf8(text).unwrap())
}

fn document(index: u64) -> String {
    format!(
        r#"{{"_id":"{index}","_rev":"1-x","name":"player {}","score":{},"metadata":{{"createdAt":"{}-{:02}-11T09:00:00Z"}}}}"#,
        index % 100,
        index * 7919 % 1000,
        2000 + index % 20,
        index % 12 + 1
    )
}

fn batch(count: u64) -> DocumentBatch {
    let mut batch = DocumentBatch::new();
    for index in 0..count {
        let write = |out: &mut Vec<u8>| {
            out.extend_from_slice(document(index).as_bytes());
            Ok::<_, ()>(())
        };
        batch.push_with(index, &index.to_string(), write).unwrap();
    }
    batch
}

#[test]
fn the_examples_emit_and_sum_scores() {
    for (module, map, reduce) in [(RUST, "by_month_map", "sum_reduce"), (ASSEMBLYSCRIPT, "map", "reduce")] {
        let wasm = language();
        let functions = MapSource { functions: vec![source(module, map).into()], library: None };
        let mut program = wasm.program(&functions, Limits::default()).unwrap();
        let mut output = Emissions::new();
        program.map(&batch(1000), &mut output).unwrap();
        assert!(output.failures.is_empty(), "{:?}", output.failures);
        assert_eq!(output.len(), 1000);
        for (index, row) in (0..).zip(output.rows()) {
            let key = format!("[{},{}]", 2000 + index % 20, index % 12 + 1);
            let value = (index * 7919 % 1000).to_string();
            assert_eq!((row.key, row.value), (key.as_bytes(), value.as_bytes()), "{map} {index}");
        }
        let rows: Vec<_> = output.rows().map(|row| (row.key, "id", row.value)).collect();
        let sum: u64 = (0..1000).map(|index| index * 7919 % 1000).sum();
        let mut reducer = wasm.reducer(&source(module, reduce), Limits::default()).unwrap();
        let reduced = reducer.reduce(&[ReduceRows { rows }]).unwrap();
        assert_eq!(String::from_utf8_lossy(&reduced[0]), sum.to_string(), "{reduce}");
        let both = reducer.rereduce(&[vec![&reduced[0], &reduced[0]]]).unwrap();
        assert_eq!(String::from_utf8_lossy(&both[0]), (2 * sum).to_string(), "{reduce}");
    }
}
