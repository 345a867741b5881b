//! Compares `settee-search` with `tantivy` alone: indexes documents with three fields and prints rates, query times and
//! memory: `cargo run --release -p settee-search --example million -- 1000000`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use settee_search::{
    Analyzer, Analyzers, Caches, Definition, Dialect, Field, FieldOptions, FieldValue, Index, Locale, Request,
    SearchLimits,
};
use settee_storage::{CommitToken, Engine, Shard};
use settee_storage_rocksdb::{Options, RocksEngine};
use tantivy::schema::{FAST, STORED, STRING, Schema, TEXT};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn word(&mut self) -> u64 {
        let part = (self.next() >> 40) as f64 / (1_u64 << 24) as f64;
        (part * part * part * 50_000.0) as u64
    }
}

struct Document {
    id: String,
    text: String,
    tag: String,
    number: f64,
}

fn documents(count: u64) -> impl Iterator<Item = Document> {
    let mut random = Random(42);
    (0..count).map(move |number| {
        let words: Vec<_> = (0..40).map(|_| format!("w{}", random.word())).collect();
        let tag = format!("tag{}", random.next() % 100);
        Document { id: format!("doc{number:08}"), text: words.join(" "), tag, number: (random.next() % 10_000) as f64 }
    })
}

fn memory_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) / 1024
}

fn definition() -> Definition {
    let named = |name| Analyzer::named(Dialect::Nouveau, name, None).expect("a name");
    let fields = vec![("tag".to_owned(), named("keyword"))];
    let analyzers = Analyzers { default: named("standard"), fields };
    Definition { dialect: Dialect::Nouveau, analyzers, vectors: Vec::new() }
}

fn bare(count: u64) -> f64 {
    let mut schema = Schema::builder();
    let id = schema.add_text_field("id", STRING | STORED | FAST);
    let text = schema.add_text_field("text", TEXT);
    let tag = schema.add_text_field("tag", STRING | FAST);
    let number = schema.add_f64_field("number", FAST);
    let index = tantivy::Index::create_in_ram(schema.build());
    let start = Instant::now();
    let mut writer = index.writer_with_num_threads(1, 96 << 20).expect("a writer");
    for document in documents(count) {
        let fields =
            tantivy::doc!(id => document.id, text => document.text, tag => document.tag, number => document.number);
        writer.add_document(fields).expect("a document");
    }
    writer.commit().expect("a commit");
    writer.wait_merging_threads().expect("merges");
    count as f64 / start.elapsed().as_secs_f64()
}

fn ours(count: u64, engine: Arc<dyn Engine>) -> (f64, Index) {
    let next = AtomicU64::new(1);
    let new_token = Arc::new(move || CommitToken(u128::from(next.fetch_add(1, Ordering::Relaxed))));
    let index = Index::new(engine, Shard(9), definition(), new_token, Arc::new(Caches::new(64 << 20, 0)));
    let start = Instant::now();
    let mut writer = index.writer(0).expect("the store").expect("a writer");
    let field = |name: &str, value| Field { name: name.to_owned(), value, options: FieldOptions::default() };
    for document in documents(count) {
        let fields = vec![
            field("default", FieldValue::Text(document.text)),
            field("tag", FieldValue::String(document.tag)),
            field("n", FieldValue::Double(document.number)),
        ];
        writer.update(&document.id, None, fields).expect("a document");
    }
    writer.commit(b"end").expect("a commit");
    while writer.merge().expect("a merge") {}
    (count as f64 / start.elapsed().as_secs_f64(), index)
}

fn query_ms(index: &Index, text: &str, counts: &[&str]) -> f64 {
    let mut times: Vec<f64> = (0..15)
        .map(|_| {
            let start = Instant::now();
            let mut request =
                Request::new(index.parse(text, Locale::default(), &SearchLimits::none()).expect("a query"));
            request.limit = 10;
            request.counts = counts.iter().map(|&field| field.to_owned()).collect();
            index.search(&request, &SearchLimits::none()).expect("an answer");
            start.elapsed().as_secs_f64() * 1000.0
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(100_000);
    for round in 1..=2 {
        let directory = tempfile::tempdir().expect("a directory");
        let engine: Arc<dyn Engine> =
            Arc::new(RocksEngine::open(&directory.path().join("engine"), &Options::default()).expect("an engine"));
        let before = memory_mb();
        let (rate, index) = ours(count, engine);
        println!("round {round}: {rate:.0} documents a second, peak of memory {} MB ({before} before)", memory_mb());
        for (text, counts) in [
            ("w17", &[][..]),
            ("w40000", &[]),
            ("\"w0 w1\"", &[]),
            ("\"w17 w40\"", &[]),
            ("\"w900 w17\"", &[]),
            ("w3 w900", &[]),
            ("n:[10 TO 20]", &[]),
            ("w1*", &[]),
            ("*:*", &["tag"]),
        ] {
            println!("  {text} {counts:?}: {:.2} ms", query_ms(&index, text, counts));
        }
        println!("  {:?}", index.info().expect("numbers"));
        drop(index);
        let bare = bare(count);
        println!("  tantivy alone, in memory: {bare:.0} documents a second; ratio {:.2}", rate / bare);
    }
}
