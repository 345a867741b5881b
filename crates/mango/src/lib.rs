//! Mango: queries with selectors instead of views.
//!
//! 1. [`FindOptions::parse`] parses the body of a request; its [`Selector`] is normalized as in CouchDB and compiled.
//!    `operator` contains the tests of single values.
//! 2. [`index::all`] reads the definitions of the indexes from the design documents.
//! 3. The `planner` chooses the index that CouchDB would choose, and the ranges to be read.
//! 4. [`find`] reads documents by id or through an index, tests and projects each, and passes it to a [`DocumentSink`].
//!
//! JSON indexes are views and text indexes are search indexes of the language [`MangoLanguage`], so the crates `views`
//! and `search` build and store them. No state is kept between queries.

mod bookmark;
mod bounds;
mod error;
mod execute;
mod field;
pub mod index;
mod language;
mod limits;
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
pub use limits::{MAX_CONDITIONS, MAX_DEPTH, MAX_EXPRESSIONS, MAX_NAME_BYTES};
pub use options::{DEFAULT_LIMIT, FindOptions};
pub use projection::Projection;
pub use selector::Selector;

use settee_model::json::Value;

const SHOWN_BYTES: usize = 200;

fn shown(value: Value<'_>) -> String {
    let text = String::from_utf8_lossy(value.raw());
    match text.char_indices().nth(SHOWN_BYTES) {
        None => text.into_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
