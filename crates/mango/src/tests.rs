//! Queries on databases in memory, compared with a matcher that uses no indexes.
#![expect(clippy::unwrap_used, reason = "tests")]

mod edits;
mod naive;
mod plans;
mod random;
mod requests;
mod scripts;

use std::ops::ControlFlow;
use std::sync::Arc;

use settee_database::tasks::Tasks;
use settee_database::{
    AccessControl, Catalog, Database, DatabaseOptions, DocUpdate, EditMode, Layout, ReadClient, Reader, Waiting, Work,
};
use settee_design::{Language, LimitsSource};
use settee_model::json::Json;
use settee_model::{Document, RevisionHasher};
use settee_search::{Caches, SearchLimits, Searches};
use settee_storage_testing::engine;
use settee_views::{Settings, Views};

use crate::index::edit::{self, NewIndex};
use crate::{DocumentSink, FindOptions, Found, MangoError, MangoLanguage, Outcome, Readers, TextSearch, explain, find};

struct Place {
    database: Arc<Database>,
    views: Arc<Views>,
    searches: Arc<Searches>,
    /// The user that sends queries.
    reader: Reader,
}

const SEARCH: TextSearch = TextSearch { text: true, nouveau: true };

struct Page {
    documents: Vec<String>,
    found: Option<Found>,
}

#[derive(Default)]
struct Documents(Vec<String>);

impl DocumentSink for Documents {
    fn document(&mut self, json: &[u8]) -> ControlFlow<()> {
        self.0.push(String::from_utf8(json.to_vec()).unwrap());
        ControlFlow::Continue(())
    }
}

fn json(text: &str) -> Json {
    Json::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

impl Place {
    fn new() -> Self {
        Self::with(Layout::Whole, AccessControl::PerDatabase)
    }

    fn partitioned() -> Self {
        Self::with(Layout::Partitioned, AccessControl::PerDatabase)
    }

    fn with_access_lists() -> Self {
        Self::with(Layout::Whole, AccessControl::PerDocument)
    }

    fn with(layout: Layout, access: AccessControl) -> Self {
        let catalog = Arc::new(Catalog::open(engine(), 7).unwrap());
        let options = DatabaseOptions { created_ms: 0, instance: 1, layout, q: 1 };
        let database = catalog.create_with("db", options, access).unwrap();
        let language: Arc<dyn Language> = Arc::new(MangoLanguage);
        let languages = Arc::new(move |name: &str| (name == language.name()).then(|| Arc::clone(&language)));
        let settings = Settings {
            threads: 1,
            memory_bytes: 1 << 20,
            run_directory: std::env::temp_dir().join("settee-mango-tests"),
            checkpoint_interval_ms: u64::MAX,
            clock: settee_views::Clock::stopped(),
            limits: LimitsSource::default(),
            seed: 1,
        };
        let (tasks, log): (Tasks, settee_views::Log) = (Tasks::new(|| 0), Arc::new(|_| {}));
        let views = Arc::new(Views::new(catalog, languages, tasks.clone(), Arc::clone(&log), settings));
        let searches = Arc::new(Searches::new(Arc::clone(&views), tasks, log, Caches::new(1 << 20, 1 << 20), 1));
        Self { database, views, searches, reader: Reader::Administrator }
    }

    fn write(&self, text: &str) {
        let mut document = Document::parse(json(text).value()).unwrap();
        let id = document.id.take().unwrap();
        let head = self.database.read().unwrap().head(&id).unwrap();
        document.rev = document.rev.or(head.filter(|head| !head.stored.deleted).map(|head| head.rev));
        let mode = EditMode::Interactive;
        let update = DocUpdate::prepare(id, document, mode, &mut RevisionHasher::default()).unwrap();
        self.database.update(Work::Documents(vec![update])).unwrap();
    }

    fn index(&self, definition: &str, name: &str) {
        let body = json(&format!(r#"{{"index":{definition},"name":"{name}","ddoc":"d{name}"}}"#));
        edit::create(&self.database, &NewIndex::parse(body.value(), SEARCH).unwrap()).unwrap();
    }

    fn find(&self, body: &str) -> Result<Page, MangoError> {
        let options = FindOptions::parse(json(body).value())?;
        let mut documents = Documents::default();
        let (views, searches, limits) = (&self.views, &self.searches, &SearchLimits::none());
        let client = &ReadClient::default();
        let reader = &self.reader;
        let readers = Readers { views, searches, limits, client, search: SEARCH, reader, waiting: Waiting::Allowed };
        let outcome = find(readers, &self.database, &options, &mut documents)?;
        let found = match outcome {
            Outcome::Nothing => None,
            Outcome::Found(found) => Some(found),
        };
        Ok(Page { documents: documents.0, found })
    }

    fn explain(&self, body: &str) -> Json {
        let options = FindOptions::parse(json(body).value()).unwrap();
        Json::parse(&explain(&self.database, SEARCH, &options, &self.reader).unwrap()).unwrap()
    }
}
