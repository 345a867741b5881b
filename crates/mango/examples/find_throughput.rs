//! Measures the cost of queries without the disk, on documents in memory. `cargo run --release -p settee-mango
//! --example find_throughput [documents]`

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use settee_database::tasks::Tasks;
use settee_database::{
    Catalog, Database, DatabaseOptions, DocUpdate, EditMode, Layout, ReadClient, Reader, Waiting, Work,
};
use settee_design::{Language, LimitsSource};
use settee_mango::index::edit::{self, NewIndex};
use settee_mango::{DocumentSink, FindOptions, MangoLanguage, Outcome, Readers, TextSearch, find};
use settee_model::json::Json;
use settee_model::{Document, RevisionHasher};
use settee_search::{Caches, SearchLimits, Searches};
use settee_storage::memory::MemoryEngine;
use settee_views::{Log, Settings, Views};

type Failure = Box<dyn std::error::Error>;

const BATCH: usize = 1_000;

struct Count(u64);

impl DocumentSink for Count {
    fn document(&mut self, _: &[u8]) -> ControlFlow<()> {
        self.0 += 1;
        ControlFlow::Continue(())
    }
}

fn main() -> Result<(), Failure> {
    let documents: usize = std::env::args().nth(1).map_or(Ok(100_000), |text| text.parse())?;
    let catalog = Arc::new(Catalog::open(Arc::new(MemoryEngine::new()), 1)?);
    let options = DatabaseOptions { created_ms: 0, instance: 1, layout: Layout::Whole, q: 1 };
    let database = catalog.create("measured", options)?;
    let language: Arc<dyn Language> = Arc::new(MangoLanguage);
    let languages = Arc::new(move |name: &str| (name == language.name()).then(|| Arc::clone(&language)));
    let settings = Settings {
        threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        memory_bytes: 256 << 20,
        run_directory: std::env::temp_dir().join("settee-mango-tests"),
        checkpoint_interval_ms: u64::MAX,
        clock: settee_views::Clock::stopped(),
        limits: LimitsSource::default(),
        seed: 1,
    };
    let (tasks, log): (Tasks, Log) = (Tasks::new(|| 0), Arc::new(|_| {}));
    let views = Arc::new(Views::new(catalog, languages, tasks.clone(), Arc::clone(&log), settings));
    let searches = Arc::new(Searches::new(Arc::clone(&views), tasks, log, Caches::new(1 << 20, 1 << 20), 1));
    let search = TextSearch { text: false, nouveau: false };
    let (client, limits) = (&ReadClient::default(), &SearchLimits::none());
    let (reader, waiting) = (&Reader::Administrator, Waiting::Allowed);
    let readers = Readers { views: &views, searches: &searches, limits, client, search, reader, waiting };
    write(&database, documents)?;
    for field in ["group", "team"] {
        let index = Json::parse(format!(r#"{{"index":{{"fields":["{field}"]}},"name":"{field}"}}"#).as_bytes())?;
        edit::create(&database, &NewIndex::parse(index.value(), search)?)?;
        let start = Instant::now();
        find_all(readers, &database, &format!(r#"{{"selector":{{"{field}":-1}}}}"#))?;
        println!("index on {field}: {:.0} documents/s", documents as f64 / start.elapsed().as_secs_f64());
    }
    let groups: Vec<String> = (0..1_000).map(|n| (n * 7 % (documents / 10).max(1)).to_string()).collect();
    let groups = groups.join(",");
    let cases = [
        ("equality, 10 documents", r#"{"selector":{"group":5}}"#.to_owned()),
        ("$in of 1,000 values", format!(r#"{{"selector":{{"group":{{"$in":[{groups}]}}}},"limit":100000}}"#)),
        (
            "the same, covered",
            format!(r#"{{"selector":{{"group":{{"$in":[{groups}]}}}},"fields":["_id","group"],"limit":100000}}"#),
        ),
        ("$or of two fields", r#"{"selector":{"$or":[{"group":5},{"team":7}]},"limit":100000}"#.to_owned()),
        ("covered range", r#"{"selector":{"group":{"$gte":0}},"fields":["_id","group"],"limit":10000000}"#.to_owned()),
        ("scan", r#"{"selector":{"n":-1}}"#.to_owned()),
    ];
    for (name, query) in cases {
        let start = Instant::now();
        let (found, examined) = find_all(readers, &database, &query)?;
        println!("{name}: {found} documents, {examined} examined, {:.2} ms", start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(())
}

fn write(database: &Arc<Database>, documents: usize) -> Result<(), Failure> {
    let mut hasher = RevisionHasher::default();
    let groups = (documents / 10).max(1);
    for start in (0..documents).step_by(BATCH) {
        let mut updates = Vec::with_capacity(BATCH);
        for number in start..(start + BATCH).min(documents) {
            let (group, team, text) = (number % groups, number % 5_000, "x".repeat(300));
            let text = format!(r#"{{"group":{group},"team":{team},"n":{number},"text":"{text}"}}"#);
            let document = Document::parse(Json::parse(text.as_bytes())?.value())?;
            let mode = EditMode::Interactive;
            updates.push(DocUpdate::prepare(format!("{number:08}"), document, mode, &mut hasher).ok_or("refused")?);
        }
        database.update(Work::Documents(updates))?;
    }
    Ok(())
}

fn find_all(readers: Readers<'_>, database: &Arc<Database>, query: &str) -> Result<(u64, u64), Failure> {
    let options = FindOptions::parse(Json::parse(query.as_bytes())?.value())?;
    let mut count = Count(0);
    let examined = match find(readers, database, &options, &mut count)? {
        Outcome::Nothing => 0,
        Outcome::Found(found) => found.stats.keys_examined,
    };
    Ok((count.0, examined))
}
