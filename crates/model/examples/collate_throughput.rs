//! Prints the cost of a sort key and of a comparison, in nanoseconds per value of the fastest round: `cargo run
//! --release -p settee-model --example collate_throughput`.

use std::hint::black_box;
use std::time::Instant;

use settee_model::collate::{Collation, compare, encode, encoded_len};
use settee_model::json::Value;

const VALUES: usize = 1_000;
const ROUNDS: usize = 200;

fn main() {
    measure("short ASCII, lower case", |n| format!("\"user{n}\""));
    measure("short ASCII, capitals", |n| format!("\"Score {n} Oslo\""));
    measure("ASCII with an escape", |n| format!("\"line\\n{n}\""));
    measure("long ASCII (200)", |n| format!("\"{}{n}\"", "The quick brown fox jumps over it. ".repeat(6).trim_end()));
    measure("Latin", |n| format!("\"Ångström élève {n}\""));
    measure("Cyrillic", |n| format!("\"Москва улица {n}\""));
    measure("Chinese", |n| format!("\"日本語文字列{}\"", char::from_u32(0x4e00 + n * 7).unwrap_or('一')));
    measure("small integers", |n| n.to_string());
    measure("timestamps", |n| (1_700_000_000_000_u64 + u64::from(n) * 997).to_string());
    measure("doubles", |n| format!("{}.1{n}", n * 31));
    measure("30-digit integers", |n| format!("123456789012345678901234567{n:03}"));
    measure("[year, month]", |n| format!("[{},{}]", 1990 + n % 40, n % 12 + 1));
    measure("[name, year, month]", |n| format!("[\"player{}\",{},{}]", n % 97, 1990 + n % 40, n % 12 + 1));
}

fn measure(name: &str, json: impl Fn(u32) -> String) {
    let texts: Vec<String> = (0..VALUES as u32).map(|n| json(n * 7 % 1000)).collect();
    let values: Vec<Value<'_>> = texts.iter().map(|text| Value::trusted(text.as_bytes())).collect();
    let mut out = Vec::new();
    let mut per_collation = [Collation::Unicode, Collation::Raw].map(|collation| {
        let encode_ns = best(|| {
            out.clear();
            for &value in &values {
                encode(value, collation, &mut out);
            }
            black_box(&out);
        });
        let bytes = out.len() as f64 / VALUES as f64;
        let skip_ns = best(|| {
            let mut rest: &[u8] = &out;
            while !rest.is_empty() {
                rest = &rest[black_box(encoded_len(rest))..];
            }
        });
        let compare_ns = best(|| {
            for pair in values.windows(2) {
                black_box(compare(pair[0], pair[1], collation));
            }
        });
        format!("key {encode_ns:6.1} ns, {bytes:5.1} bytes, skip {skip_ns:5.1} ns, compare {compare_ns:6.1} ns")
    });
    let [unicode, raw] = per_collation.each_mut();
    println!("{name:24} {unicode}   raw: {raw}");
}

fn best(mut round: impl FnMut()) -> f64 {
    let seconds = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        round();
        start.elapsed().as_secs_f64()
    });
    seconds.fold(f64::MAX, f64::min) * 1e9 / VALUES as f64
}
