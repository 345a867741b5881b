//! Mango: finding documents by a selector instead of a view.
//!
//! A query walks through these layers:
//!
//! 1. [`FindOptions::parse`] resolves the body of a request once; the [`Selector`] in it is normalised as CouchDB does and
//!    compiled. The tests of single values are listed in `operator`.
//! 2. [`index::all`] reads the definitions of the indexes from the design documents.
//! 3. The `planner` chooses the index that CouchDB would choose and the ranges of it that are worth reading.
//! 4. [`find`] reads documents by their ids or through a view, tests each, cuts it and hands it to a [`DocumentSink`].
//!
//! JSON indexes are views of the language [`MangoLanguage`] and text indexes its search indexes, so that they are built,
//! stored and counted like all others; its validation functions are selectors. This crate knows no HTTP and no clock, and keeps nothing between two queries.

mod bookmark;
mod bounds;
mod error;
mod execute;
mod field;
pub mod index;
mod language;
mod operator;
mod options;
mod planner;
mod projection;
mod selector;
mod sort;
#[cfg(test)]
mod tests;
mod text;
mod validation;

pub use error::{MangoError, Refusal};
pub use execute::{DocumentSink, Found, Outcome, Readers, Stats, explain, find};
pub use index::TextSearch;
pub use language::MangoLanguage;
pub use options::{DEFAULT_LIMIT, FindOptions};
pub use projection::Projection;
pub use selector::{MAX_CONDITIONS, MAX_DEPTH, MAX_EXPRESSIONS, MAX_NAME_BYTES, Selector};

use settee_model::json::Value;

/// The longest piece of a request that an error repeats.
const SHOWN_BYTES: usize = 200;

/// A value as error messages show it.
fn shown(value: Value<'_>) -> String {
    let text = String::from_utf8_lossy(value.raw());
    match text.char_indices().nth(SHOWN_BYTES) {
        None => text.into_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
