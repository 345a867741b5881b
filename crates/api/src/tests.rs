//! Shared test utilities: a database in memory, short requests, and expected texts in files.
#![expect(clippy::unwrap_used, reason = "tests")]

mod access;
mod access_costs;
mod access_feeds;
mod access_functions;
mod changes;
mod cluster;
mod differential;
mod document_access;
mod documents;
mod edits;
mod engine_calls;
mod first_fault;
mod forwarding;
mod headers;
mod heartbeats;
mod large_bodies;
mod late;
mod lists;
pub(crate) mod live;
mod matrix;
pub(crate) mod node;
mod nodes;
pub(crate) mod parts;
mod protocols;
mod proxies;
mod read_faults;
mod refused_bodies;
mod revisions;
mod rewrites;
mod routes;
mod sampled;
mod sampled_edits;
mod slow_readers;
mod time_seq;
mod unknown_outcomes;

use std::sync::Arc;

use settee_database::{Catalog, Database, DatabaseOptions};
use settee_model::json::Json;
use settee_storage::memory::MemoryEngine;

use crate::Error;
use crate::params::Query;
use settee_edge::budget::{Account, Budget, Share};
use settee_threads::GiveWay;

pub(crate) const INSTANCE: u64 = 0x0123_4567_89ab_cdef;

pub(crate) fn database() -> Arc<Database> {
    let catalog = Catalog::open(Arc::new(MemoryEngine::new()), 1).unwrap();
    catalog
        .create(
            "db",
            DatabaseOptions { created_ms: 0, instance: INSTANCE, layout: settee_database::Layout::Whole, q: 1 },
        )
        .unwrap()
}

pub(crate) fn query(text: &str) -> Query {
    Query::parse(Some(text)).unwrap()
}

pub(crate) fn json(text: &str) -> Json {
    Json::parse(text.as_bytes()).unwrap()
}

/// Returns `status name: reason`.
pub(crate) fn show(error: &Error) -> String {
    format!("{} {}: {}", error.status.as_u16(), error.name, error.reason)
}

#[track_caller]
pub(crate) fn check_file(name: &str, text: &str) {
    settee_model::testing::check_file(concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests"), name, text);
}

pub(crate) fn account() -> Arc<Account> {
    Account::new(&Budget::new(64 << 20), None, Share::Admin)
}

pub(crate) fn nothing() -> GiveWay {
    Arc::new(|| {})
}
