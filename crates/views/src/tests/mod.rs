//! Views over databases in memory, compared with a model that sorts and scans.

#![expect(clippy::unwrap_used, reason = "tests")]

mod builds;
mod control;
mod crashes;
mod database;
mod host;
mod lifecycle;
mod mixture;
mod model;
mod partitions;
mod processes;
mod purges;
mod queries;
mod random;
mod resume;
mod sizes;
mod swaps;
mod visible;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use settee_database::tasks::Tasks;
use settee_design::{DesignDocument, Language, LimitsSource};
use settee_model::json::Json;

use crate::clock::Clock;
use crate::error::Result;
use crate::indexer::Settings;
use crate::query::Stale;
use crate::query::{Header, MapRow, ReduceRow, RowSink, ViewQuery};
use crate::shared::{Core, Log, LogSubject};
use crate::testing::{CountedRules, Rules};
use crate::views::Answer;
use host::TestHost;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) header: Option<Header>,
    pub(super) map: Vec<(String, String, String)>,
    pub(super) reduce: Vec<(String, String)>,
    pub(super) stale: Option<Stale>,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

impl RowSink for Rows {
    fn stale(&mut self, stale: &Stale) {
        assert!(self.header.is_none() && self.stale.replace(stale.clone()).is_none());
    }

    fn header(&mut self, header: Header) -> ControlFlow<()> {
        assert!(self.header.replace(header).is_none() && self.map.is_empty() && self.reduce.is_empty());
        ControlFlow::Continue(())
    }

    fn map_row(&mut self, row: MapRow<'_>) -> ControlFlow<()> {
        self.map.push((text(row.key), row.id.to_owned(), text(row.value)));
        ControlFlow::Continue(())
    }

    fn reduce_row(&mut self, row: ReduceRow<'_>) -> ControlFlow<()> {
        self.reduce.push((text(row.key), text(row.value)));
        ControlFlow::Continue(())
    }
}

pub(crate) fn settings(threads: usize, memory_bytes: usize) -> Settings {
    Settings {
        threads,
        memory_bytes,
        run_directory: run_directory(),
        checkpoint_interval_ms: u64::MAX,
        clock: Clock::stopped(),
        limits: LimitsSource::default(),
        seed: 1,
    }
}

fn run_directory() -> PathBuf {
    static ALL: OnceLock<tempfile::TempDir> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let all = ALL.get_or_init(|| tempfile::tempdir().unwrap());
    all.path().join(COUNT.fetch_add(1, Ordering::Relaxed).to_string())
}

fn counted_core(settings: Settings) -> (Core, CountedRules) {
    let language = CountedRules::default();
    let shared: Arc<dyn Language> = Arc::new(language.clone());
    let core = Core::new(Arc::new(move |_| Some(Arc::clone(&shared))), Tasks::new(|| 0), Arc::new(|_| {}), settings);
    (core, language)
}

pub(crate) fn core(settings: Settings) -> Core {
    core_with_log(settings, Arc::new(|_| {}))
}

fn core_with_log(settings: Settings, log: Log) -> Core {
    let languages = Arc::new(|name: &str| (name == "rules").then(Rules::shared));
    Core::new(languages, Tasks::new(|| 0), log, settings)
}

pub(crate) fn ddoc(views: &str) -> DesignDocument {
    let body = Json::parse(format!(r#"{{"language":"rules","views":{{{views}}}}}"#).as_bytes()).unwrap();
    DesignDocument::parse("_design/d", body.value()).unwrap()
}

fn ask(core: &Core, host: &TestHost, ddoc: &DesignDocument, view: &str, query: &ViewQuery) -> Result<Rows> {
    let mut rows = Rows::default();
    let answer = core.query((host, None), ddoc, view, query, &mut rows)?;
    assert!(answer == Answer::Complete || query.update == crate::Update::Lazy);
    Ok(rows)
}

fn kept_log() -> (Log, Arc<Mutex<Vec<String>>>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&lines);
    let log: Log = Arc::new(move |line| {
        let failed_document = match line.subject {
            LogSubject::Failure(document) => Some(document),
            LogSubject::Message => None,
            LogSubject::Engine => return,
        };
        kept.lock().push(format!("{} {failed_document:?} {}", line.design_document, line.message));
    });
    (log, lines)
}
