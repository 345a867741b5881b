//! Shared parts of this crate's tests: helpers to open, write and read, and [`audit`].
#![expect(clippy::unwrap_used, reason = "tests")]

mod access;
mod attachments;
mod audit;
mod catalog;
mod concurrency;
mod convergence;
mod crashes;
mod documents;
mod events;
mod faults;
mod guesses;
mod model;
mod partitions;
mod processes;
mod reads;
mod subscriptions;
mod times;
mod validation;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use settee_model::json::Json;
use settee_model::{Document, Rev, RevHash, RevisionHasher, Revisions};
use settee_storage::Engine;
pub(crate) use settee_storage_testing::{Store, engine};

use crate::{Catalog, Database, DatabaseOptions, DocUpdate, EditMode, ReadView, Stored, UpdateOutcome, Work};

pub(crate) use audit::audit;
pub(crate) use settee_model::testing::Random;

pub(crate) fn open(engine: &Arc<dyn Engine>) -> Catalog {
    Catalog::open(Arc::clone(engine), RandomState::new().hash_one(1)).unwrap()
}

pub(crate) fn create(catalog: &Catalog, name: &str) -> Arc<Database> {
    catalog.create(name, DatabaseOptions { created_ms: 1, instance: 2, layout: crate::Layout::Whole, q: 1 }).unwrap()
}

pub(crate) fn database() -> Arc<Database> {
    create(&open(&engine()), "db")
}

pub(crate) fn rev(text: &str) -> Rev {
    Rev::parse(text).unwrap()
}

fn document(rev: Option<&Rev>, deleted: bool, body: &str) -> Document {
    let body = Json::parse(body.as_bytes()).unwrap();
    Document { id: None, rev: rev.cloned(), deleted, body, attachments: None, revisions: None }
}

pub(crate) fn edit(id: &str, parent: Option<&Rev>, deleted: bool, body: &str) -> DocUpdate {
    let mode = EditMode::Interactive;
    let document = document(parent, deleted, body);
    DocUpdate::prepare(id.to_owned(), document, mode, &mut RevisionHasher::default()).unwrap()
}

pub(crate) fn new(id: &str, body: &str) -> DocUpdate {
    edit(id, None, false, body)
}

pub(crate) fn replicated(id: &str, path: &[Rev], deleted: bool, body: &str) -> DocUpdate {
    let hashes: Vec<RevHash> = path.iter().map(|rev| rev.hash.clone()).collect();
    let revisions = Some(Revisions { start: path[0].generation, hashes });
    let document = Document { revisions, ..document(None, deleted, body) };
    DocUpdate::prepare(id.to_owned(), document, EditMode::Replicated, &mut RevisionHasher::default()).unwrap()
}

pub(crate) fn write(database: &Arc<Database>, updates: Vec<DocUpdate>) -> Vec<UpdateOutcome> {
    database.update(Work::Documents(updates)).unwrap()
}

pub(crate) fn save(database: &Arc<Database>, update: DocUpdate) -> Rev {
    saved(write(database, vec![update]).remove(0)).expect("no conflict")
}

pub(crate) fn saved(outcome: UpdateOutcome) -> Option<Rev> {
    if let UpdateOutcome::Saved(rev) = outcome { Some(rev) } else { None }
}

pub(crate) fn body(view: &ReadView<'_>, stored: Stored) -> Option<String> {
    let mut out = Vec::new();
    view.read_body(stored, &mut out).unwrap().then(|| String::from_utf8(out).unwrap())
}

pub(crate) fn ids(view: &ReadView<'_>) -> Vec<String> {
    let mut rows = view.all_docs(&crate::IdRange::default(), crate::Direction::Forward).unwrap();
    let mut ids = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        ids.push(row.id.to_owned());
    }
    ids
}
