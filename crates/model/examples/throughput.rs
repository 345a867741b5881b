//! Prints the throughput of this crate in megabytes and documents per second on one core. `cargo run --release -p
//! settee-model --example throughput`

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use settee_model::json::{Json, Value, compact};
use settee_model::{Document, RevisionHasher};

fn main() {
    let samples = [
        ("small document, 120 B", small()),
        ("40 KB document, long strings", big()),
        ("100 short members", members(100)),
        ("100,000 members", members(100_000)),
        ("pretty-printed, nested", pretty()),
        ("numbers", numbers()),
        ("escapes and Cyrillic text", text()),
    ];
    println!(
        "{:30} {:>9} | {}",
        "MB/s (thousand documents/s)",
        "bytes",
        STEPS.map(|step| format!("{step:17}")).join(" ")
    );
    for (name, text) in samples {
        let rates = rates(text.as_bytes());
        let columns: Vec<String> = rates
            .iter()
            .map(|seconds| format!("{:7.0} ({:7.1})", text.len() as f64 / seconds / 1e6, 1e-3 / seconds))
            .collect();
        println!("{name:30} {:9} | {}", text.len(), columns.join(" "));
    }
}

const STEPS: [&str; 5] = ["compact", "Document", "hash", "members", "get two"];

fn rates(text: &[u8]) -> [f64; 5] {
    let json = Json::parse(text).expect("the samples are valid");
    let document = Document::parse(json.value()).expect("the samples are documents");
    let mut out = Vec::new();
    let mut hasher = RevisionHasher::default();
    [
        seconds(|| {
            out.clear();
            compact(black_box(text), &mut out).expect("the samples are valid");
        }),
        seconds(|| drop(black_box(Document::parse(black_box(json.value()))))),
        seconds(|| {
            black_box(hasher.hash(false, None, black_box(document.body.value()), &[]));
        }),
        seconds(|| {
            black_box(black_box(json.value()).members().count());
        }),
        seconds(|| {
            black_box(get_two(black_box(json.value())));
        }),
    ]
}

/// Reads two members, as a typical map function does.
fn get_two(document: Value<'_>) -> usize {
    let month = document.get("metadata").and_then(|metadata| metadata.get("createdAt"));
    month.map_or(0, |month| month.raw().len()) + document.get("score").map_or(0, |score| score.raw().len())
}

fn seconds(mut step: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..10 {
        let started = Instant::now();
        let mut times = 0;
        while started.elapsed() < Duration::from_millis(20) {
            for _ in 0..10 {
                step();
            }
            times += 10;
        }
        best = best.min(started.elapsed().as_secs_f64() / f64::from(times));
    }
    best
}

fn small() -> String {
    r#"{"_id":"0000012345","metadata":{"docType":"score","createdAt":"2016-12-19"},"username":"user1234","score":5678}"#
        .to_owned()
}

fn big() -> String {
    let filler = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo0".repeat(22);
    let mut text = small();
    text.pop();
    for index in 0..50 {
        write!(text, r#","random{index}":"{filler}""#).expect("writing to memory");
    }
    text + "}"
}

fn members(count: usize) -> String {
    let members: Vec<String> = (0..count).map(|index| format!("\"member{index}\":\"value {index}\"")).collect();
    format!("{{{}}}", members.join(","))
}

fn pretty() -> String {
    let item = "    {\n      \"name\": \"something\",\n      \"price\": 12.50,\n      \"tags\": [\n        \"a\",\n        \"b\"\n      ]\n    }";
    format!("{{\n  \"items\": [\n{}\n  ]\n}}\n", vec![item; 200].join(",\n"))
}

fn numbers() -> String {
    let numbers: Vec<String> =
        (0..2_000).map(|index| format!("{},{}", index * 7_919, f64::from(index) * 1.37)).collect();
    format!("{{\"numbers\":[{}]}}", numbers.join(","))
}

fn text() -> String {
    let line = r#""Съешь ещё этих мягких французских булок,\n да выпей \"чаю\"""#;
    format!("{{\"lines\":[{}]}}", vec![line; 200].join(","))
}
