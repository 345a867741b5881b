//! Measures the cost of an index in addition to scanning and mapping: builds one with `_sum` over small documents in
//! memory, then queries ranges and groups. `cargo run --release -p settee-views --example tree_throughput [documents]
//! [threads] [milliseconds between checkpoints]`

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use settee_database::tasks::Tasks;
use settee_database::{Catalog, Database, DatabaseOptions, Direction, DocUpdate, EditMode, Work};
use settee_design::{
    CompileError, DesignDocument, DocumentBatch, Emissions, Language, Limits, LimitsSource, MapSource, Program,
    Reducer, RunError, TakeRows,
};
use settee_model::json::{Json, Value};
use settee_model::{Document, RevisionHasher};
use settee_storage::memory::MemoryEngine;
use settee_views::{
    Clock, End, Header, Inclusion, Keys, MapRow, Reduce, ReduceRow, RowSink, Settings, Start, Urgency, ViewQuery, Views,
};

static MAPPING_NS: AtomicU64 = AtomicU64::new(0);

/// Its only map function is `emit([year, month], score)`.
struct Native;

impl Language for Native {
    fn name(&self) -> &str {
        "native"
    }

    fn program(&self, _: &MapSource, _: Limits) -> Result<Box<dyn Program>, CompileError> {
        Ok(Box::new(Native))
    }

    fn reducer(&self, _: &str, _: Limits) -> Result<Box<dyn Reducer>, CompileError> {
        Err(CompileError::Unavailable("only built-in reduce functions".to_owned()))
    }
}

impl Program for Native {
    fn map_in_parts(
        &mut self,
        batch: &DocumentBatch,
        output: &mut Emissions,
        _: &mut TakeRows<'_>,
    ) -> Result<(), RunError> {
        let start = Instant::now();
        let mut key = Vec::new();
        for (index, document) in (0..).zip(batch.iter()) {
            let document = Value::trusted(document.json);
            let created =
                document.get("metadata").and_then(|metadata| metadata.get("createdAt")).and_then(Value::as_str);
            let (Some(created), Some(score)) = (created, document.get("score")) else { continue };
            key.clear();
            key.push(b'[');
            key.extend_from_slice(created[..4].as_bytes());
            key.push(b',');
            key.extend_from_slice(created[5..7].trim_start_matches('0').as_bytes());
            key.push(b']');
            output.push(index, 0, &key, score.raw());
        }
        MAPPING_NS.fetch_add(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        Ok(())
    }
}

#[derive(Default)]
struct Count(u64);

impl RowSink for Count {
    fn header(&mut self, _: Header) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn map_row(&mut self, _: MapRow<'_>) -> ControlFlow<()> {
        self.0 += 1;
        ControlFlow::Continue(())
    }

    fn reduce_row(&mut self, _: ReduceRow<'_>) -> ControlFlow<()> {
        self.0 += 1;
        ControlFlow::Continue(())
    }
}

fn write(database: &Arc<Database>, from: u64, to: u64) {
    let mut hasher = RevisionHasher::default();
    let update = |number: u64| {
        let id = format!("{:016x}{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number);
        let (year, month) = (2010 + number % 7, 1 + number / 7 % 12);
        let text = format!(
            r#"{{"metadata":{{"docType":"score","createdAt":"{year}-{month:02}-19"}},"username":"u{number}","score":{}}}"#,
            number % 100
        );
        let json = Json::parse(text.as_bytes()).expect("the text is JSON");
        let document = Document::parse(json.value()).expect("the JSON is a document");
        let mode = EditMode::Interactive;
        DocUpdate::prepare(id, document, mode, &mut hasher).expect("interactive updates need no revision")
    };
    let updates = (from..to).map(update).collect();
    database.update(Work::Documents(updates)).expect("memory takes everything");
}

fn scan(database: &Arc<Database>) -> Duration {
    let start = Instant::now();
    let view = database.read().expect("memory is readable");
    let mut changes = view.changes(0, Direction::Forward).expect("memory is readable");
    let mut text = Vec::new();
    while changes.next().expect("memory is readable").is_some() {
        text.clear();
        changes.write_document(&mut text, |_| {}).expect("memory is readable");
    }
    start.elapsed()
}

fn ask(views: &Views, database: &Arc<Database>, ddoc: &DesignDocument, label: &str, query: &ViewQuery) {
    const TIMES: u32 = 20;
    let mut rows = Count::default();
    let _ = views.query(database, ddoc, "v", query, &mut rows).expect("queries succeed");
    let start = Instant::now();
    for _ in 0..TIMES {
        rows = Count::default();
        let _ = views.query(database, ddoc, "v", query, &mut rows).expect("queries succeed");
    }
    println!("{label:<34}{:>10.1} us, {} rows", start.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES), rows.0);
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>().expect("a number"));
    let documents = arguments.next().unwrap_or(1_000_000);
    let threads = usize::try_from(arguments.next().unwrap_or(1)).unwrap_or(1);
    let checkpoint_interval_ms = arguments.next().unwrap_or(u64::MAX);
    let catalog = Arc::new(Catalog::open(Arc::new(MemoryEngine::new()), 1).expect("memory is empty"));
    let database = catalog
        .create("db", DatabaseOptions { created_ms: 0, instance: 0, layout: settee_database::Layout::Whole, q: 1 })
        .expect("the name is free");
    (0..documents).step_by(10_000).for_each(|from| write(&database, from, (from + 10_000).min(documents)));

    let started = Instant::now();
    let settings = Settings {
        threads,
        memory_bytes: 64 << 20,
        run_directory: std::env::temp_dir().join("settee-runs"),
        checkpoint_interval_ms,
        clock: Clock::new(move || u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)),
        limits: LimitsSource::default(),
        seed: 1,
    };
    let languages = Arc::new(|_: &str| Some(Arc::new(Native) as Arc<dyn Language>));
    let views = Views::new(Arc::clone(&catalog), languages, Tasks::new(|| 0), Arc::new(|_| {}), settings);
    let body = Json::parse(br#"{"language":"native","views":{"v":{"map":"score","reduce":"_sum"}}}"#).expect("JSON");
    let ddoc = DesignDocument::parse("_design/d", body.value()).expect("a design document");

    let scanning = scan(&database);
    let start = Instant::now();
    views.update(&database, &ddoc, Urgency::Client).expect("the index is built");
    let building = start.elapsed();
    let mapping = Duration::from_nanos(MAPPING_NS.load(Ordering::Relaxed));
    let per_row = |time: Duration| time.as_secs_f64() * 1e6 / documents as f64;
    println!("{documents} documents, {threads} threads");
    println!("build                             {:>10.3} us a row", per_row(building));
    println!("  scan (measured alone)           {:>10.3} us a row", per_row(scanning));
    println!("  map (all threads)               {:>10.3} us a row", per_row(mapping));
    if threads == 1 {
        println!(
            "  index                           {:>10.3} us a row",
            per_row(building.saturating_sub(scanning + mapping))
        );
    }

    let json = |text: &str| Json::parse(text.as_bytes()).expect("JSON");
    let range = |from: &str, to: &str| Keys::Range {
        start: Some(Start { key: json(from), docid: None }),
        end: Some(End { key: json(to), docid: None, inclusion: Inclusion::Inclusive }),
    };
    let all = ViewQuery::default;
    ask(&views, &database, &ddoc, "reduce of everything", &all());
    ask(&views, &database, &ddoc, "reduce of a range", &ViewQuery { keys: range("[2011,3]", "[2014,9]"), ..all() });
    ask(&views, &database, &ddoc, "group_level=1", &ViewQuery { reduce: Reduce::Level(1), ..all() });
    ask(&views, &database, &ddoc, "group=true", &ViewQuery { reduce: Reduce::Exact, ..all() });
    let page = ViewQuery { reduce: Reduce::Off, skip: documents / 2, limit: Some(10), ..all() };
    ask(&views, &database, &ddoc, "skip half, limit=10", &page);
    ask(&views, &database, &ddoc, "all rows", &ViewQuery { reduce: Reduce::Off, ..all() });

    write(&database, documents, documents + 1);
    let start = Instant::now();
    views.update(&database, &ddoc, Urgency::Client).expect("the index is updated");
    println!("{:<34}{:>10.1} us", "update by one document", start.elapsed().as_secs_f64() * 1e6);
    write(&database, documents + 1, documents + 1001);
    let start = Instant::now();
    views.update(&database, &ddoc, Urgency::Client).expect("the index is updated");
    println!("{:<34}{:>10.1} us", "update by 1000 documents", start.elapsed().as_secs_f64() * 1e6);
}
