//! `tests/fixtures/data` is the data directory of a CouchDB 3.5.2 that was stopped cleanly, each file compressed by
//! gzip; `tests/fixtures/expected` contains CouchDB's responses about its databases.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "../support/builder.rs"]
mod builder;
mod couchdb;
mod damage;
mod directory;
mod old;
mod support;
mod torn;
