//! Search indexes of databases: updates, sharing, removal, and crashes.

mod crashes;
mod life;
mod processes;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use settee_database::tasks::Tasks;
use settee_database::{Catalog, Database, DatabaseOptions, DocUpdate, EditMode, Layout, Purge, UpdateOutcome, Work};
use settee_design::{
    CompileError, DesignDocument, DocumentBatch, Emissions, Language, Limits, LimitsSource, MapFailure, MapSource,
    Program, RunError, SearchKind, TakeRows,
};
use settee_model::json::{Json, Value};
use settee_model::{Document, Rev, RevisionHasher};
use settee_storage::Engine;
use settee_views::{Clock, Settings, Views};

use super::{Freshness, Result, Searches};
use crate::{Answer, Caches, Hit, Query, Request, SearchLimits, Sort, SortBy, StoredValue};

/// Indexes the member `t` as a stored text `default`, `s` as a string, `n` as a double, and throws for documents with a
/// member `bad`. The source only distinguishes functions.
#[derive(Default)]
struct Members {
    mapped: AtomicU64,
    watcher: Mutex<Option<Box<dyn Fn() + Send>>>,
}

struct Mapping(Arc<Members>);

struct Shared(Arc<Members>);

impl Language for Shared {
    fn name(&self) -> &str {
        "javascript"
    }

    fn index_program(&self, _: SearchKind, source: &MapSource, _: Limits) -> Result<Box<dyn Program>, CompileError> {
        match &*source.functions[0] {
            "broken" => Err(CompileError::Source("broken".to_owned())),
            _ => Ok(Box::new(Mapping(Arc::clone(&self.0)))),
        }
    }
}

impl Program for Mapping {
    fn map_in_parts(
        &mut self,
        batch: &DocumentBatch,
        output: &mut Emissions,
        take: &mut TakeRows<'_>,
    ) -> Result<(), RunError> {
        if let Some(watcher) = &*self.0.watcher.lock() {
            watcher();
        }
        for (number, document) in (0..).zip(batch.iter()) {
            self.0.mapped.fetch_add(1, Ordering::Relaxed);
            let value = Value::trusted(document.json);
            if value.get("bad").is_some() {
                output.failures.push(MapFailure { document: number, function: 0, message: "bad".to_owned() });
                continue;
            }
            for (member, key) in [
                ("t", r#"["text","default",{"store":true}]"#),
                ("s", r#"["string","s",{"store":true}]"#),
                ("n", r#"["double","n",{"store":true}]"#),
                ("text_s", r#"["text","s"]"#),
            ] {
                if let Some(value) = value.get(member) {
                    output.push(number, 0, key.as_bytes(), value.raw());
                }
            }
            if number % 7 == 0 && take(output) == ControlFlow::Break(()) {
                return Err(RunError::unwanted());
            }
        }
        Ok(())
    }
}

struct World {
    catalog: Arc<Catalog>,
    members: Arc<Members>,
    views: Arc<Views>,
    searches: Arc<Searches>,
    log: Arc<Mutex<Vec<String>>>,
    tasks: Tasks,
    now_us: Arc<AtomicU64>,
}

impl World {
    fn over(engine: Arc<dyn Engine>) -> Self {
        static SEEDS: AtomicU64 = AtomicU64::new(7);
        let catalog = Arc::new(Catalog::open(engine, SEEDS.fetch_add(1, Ordering::Relaxed) << 32).unwrap());
        let members: Arc<Members> = Arc::default();
        let language: Arc<dyn Language> = Arc::new(Shared(Arc::clone(&members)));
        let now_us = Arc::new(AtomicU64::new(1));
        let clock = Arc::clone(&now_us);
        let settings = Settings {
            threads: 2,
            memory_bytes: 1 << 20,
            run_directory: std::env::temp_dir().join("settee-search-tests"),
            checkpoint_interval_ms: 0,
            clock: Clock::new(move || clock.fetch_add(1, Ordering::Relaxed)),
            limits: LimitsSource::default(),
            seed: 5,
        };
        let (tasks, log) = (Tasks::new(|| 0), Arc::<Mutex<Vec<String>>>::default());
        let languages = Arc::new(move |_: &str| Some(Arc::clone(&language)));
        let views = Arc::new(Views::new(Arc::clone(&catalog), languages, tasks.clone(), Arc::new(|_| {}), settings));
        let lines = Arc::clone(&log);
        let log_event: settee_views::Log =
            Arc::new(move |line| lines.lock().push(format!("{:?} {}", line.subject, line.message)));
        let caches = Caches::new(1 << 20, 1 << 20);
        let searches = Arc::new(Searches::new(Arc::clone(&views), tasks.clone(), log_event, caches, 9));
        Self { catalog, members, views, searches, log, tasks, now_us }
    }

    fn create(&self, layout: Layout) -> Arc<Database> {
        self.catalog.create("db", DatabaseOptions { created_ms: 0, instance: 1, layout, q: 1 }).unwrap()
    }

    fn mapped(&self) -> u64 {
        self.members.mapped.load(Ordering::Relaxed)
    }

    fn search(&self, database: &Arc<Database>, ddoc: &DesignDocument, query: Query) -> Result<Answer> {
        let (kind, limits) = (SearchKind::Nouveau, SearchLimits::none());
        let index = self.searches.open(database, ddoc, kind, "i", Freshness::Current, &limits)?;
        let sort = vec![Sort { by: SortBy::Id, descending: false }];
        Ok(index.search(&Request { limit: 10_000, sort, ..Request::new(query) }, &SearchLimits::none())?)
    }

    fn all(&self, database: &Arc<Database>, ddoc: &DesignDocument) -> String {
        shown(&self.search(database, ddoc, Query::All).unwrap().hits)
    }
}

fn shown(hits: &[Hit]) -> String {
    let value = |value: &StoredValue| match value {
        StoredValue::String(text) => text.clone(),
        StoredValue::Double(number) => number.to_string(),
        StoredValue::Bool(value) => value.to_string(),
    };
    let hit = |hit: &Hit| {
        let fields = hit.fields.iter().map(|(name, values)| {
            let values: Vec<String> = values.iter().map(value).collect();
            format!("{name}={}", values.join("+"))
        });
        let mut fields: Vec<String> = fields.collect();
        fields.sort();
        format!("{}({})", hit.id, fields.join(","))
    };
    hits.iter().map(hit).collect::<Vec<_>>().join(" ")
}

fn ddoc(members: &str) -> DesignDocument {
    let json = Json::parse(format!("{{{members}}}").as_bytes()).unwrap();
    DesignDocument::parse("_design/d", json.value()).unwrap()
}

fn design(function: &str) -> DesignDocument {
    ddoc(&format!(r#""nouveau":{{"i":{{"index":"{function}"}}}}"#))
}

fn update(text: &str, mode: EditMode) -> DocUpdate {
    let json = Json::parse(text.as_bytes()).unwrap();
    let mut document = Document::parse(json.value()).unwrap();
    let id = document.id.take().unwrap();
    DocUpdate::prepare(id, document, mode, &mut RevisionHasher::default()).unwrap()
}

fn write(database: &Arc<Database>, text: &str) -> Rev {
    match database.update(Work::Documents(vec![update(text, EditMode::Interactive)])).unwrap().pop() {
        Some(UpdateOutcome::Saved(rev)) => rev,
        other => panic!("{other:?}"),
    }
}

fn purge(database: &Arc<Database>, id: &str, rev: &Rev) {
    let purge = Purge { id: id.to_owned(), revs: vec![rev.clone()] };
    database.update(Work::Purge(vec![purge])).unwrap();
}
