//! Measures map functions of the compiled examples: `cargo run --release -p settee-wasm --example wasm_throughput`.

#![expect(clippy::unwrap_used, reason = "an example")]

use std::time::Instant;

use settee_design::{DocumentBatch, Emissions, Language, Limits, MapSource};
use settee_model::base64;
use settee_wasm::{CompilerCommand, Wasm};

const MODULES: [(&str, &[u8], &str); 2] = [
    ("Rust", include_bytes!("../tests/data/scores-rust.wasm"), "by_month_map"),
    ("AssemblyScript", include_bytes!("../tests/data/scores-assemblyscript.wasm"), "map"),
];
const DOCUMENTS: u64 = 10_000;
const ROUNDS: u32 = 100;

fn main() {
    // The example is also the compiler process that it starts.
    if std::env::args().nth(1).as_deref() == Some("compile") {
        let _ = settee_wasm::compiler_main();
        return;
    }
    let program = std::env::current_exe().unwrap();
    let compiler = CompilerCommand { program, args: vec!["compile".to_owned()], timeout_ms: 60_000 };
    let mut batch = DocumentBatch::new();
    for index in 0..DOCUMENTS {
        let (score, year, month) = (index * 7919 % 1000, 2000 + index % 20, index % 12 + 1);
        let created = format!("{year}-{month:02}-11T09:00:00Z");
        let text = format!(r#"{{"_id":"{index}","score":{score},"metadata":{{"createdAt":"{created}"}}}}"#);
        let write = |out: &mut Vec<u8>| {
            out.extend_from_slice(text.as_bytes());
            Ok::<_, ()>(())
        };
        batch.push_with(index, &index.to_string(), write).unwrap();
    }
    for (name, module, map) in MODULES {
        let mut text = Vec::new();
        base64::encode(module, &mut text);
        let source = format!("{}#{map}", String::from_utf8(text).unwrap());
        let functions = MapSource { functions: vec![source.into()], library: None };
        let mut program = Wasm::new(compiler.clone()).unwrap().program(&functions, Limits::default()).unwrap();
        let mut output = Emissions::new();
        let began = Instant::now();
        for _ in 0..ROUNDS {
            output.clear();
            program.map(&batch, &mut output).unwrap();
        }
        let rate = f64::from(ROUNDS) * DOCUMENTS as f64 / began.elapsed().as_secs_f64();
        println!("{name}: {rate:.0} documents/s on one core");
    }
}
