//! Lucene's query syntax: from text to [`Query`]. [`Grammar::Standard`] is that of Lucene's flexible parser (`_nouveau`),
//! [`Grammar::Classic`] that of its older one (`_search`). A text is cut into tokens (`lexer`), read into a tree of what was
//! written (`parser`), and that into what is meant (`resolve`), for which one has to know analyzers and types of fields.
//!
//! Of both, precedence is Lucene's: `a OR b AND c` is `a +b +c`.

mod functions;
mod lexer;
mod number;
mod parser;
mod resolve;
mod tree;

pub use number::Locale;

use crate::analysis::Analyzers;
use crate::error::{Error, Result};
use crate::limits::SearchLimits;
use crate::query::Query;

/// The longest query, in bytes.
const MAX_QUERY_BYTES: usize = 1 << 20;

/// Whose syntax a query has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grammar {
    Standard,
    Classic,
}

/// What has to be known of an index to read a query to it.
pub(crate) trait Fields {
    /// Whether a field has numbers.
    fn is_number(&self, field: &str) -> bool;

    /// Whether a field has texts or strings.
    fn is_text(&self, field: &str) -> bool;
}

/// The field of terms for which a query names none.
pub(crate) const DEFAULT_FIELD: &str = "default";

/// The greatest number of clauses: Lucene's. The words that an analyzer makes of one are clauses, too.
const MAX_CLAUSES: usize = 1_024;

/// The most characters of a query that an error repeats.
const SHOWN_CHARS: usize = 4_096;

/// About the bytes that each byte of a query takes while it is read.
const BYTES_PER_BYTE: usize = 24;

/// The state of a reader of queries.
pub(crate) struct Context<'a> {
    pub(crate) grammar: Grammar,
    pub(crate) analyzers: &'a Analyzers,
    pub(crate) fields: &'a dyn Fields,
    pub(crate) locale: Locale,
    pub(crate) limits: &'a SearchLimits,
}

/// Reads a query.
pub(crate) fn parse(context: &Context<'_>, text: &str) -> Result<Query> {
    let Context { grammar, limits, .. } = *context;
    if text.len() > MAX_QUERY_BYTES {
        return Err(Error::TooLarge(format!("a query has at most {MAX_QUERY_BYTES} bytes")));
    }
    limits.check()?;
    limits.charge(BYTES_PER_BYTE * text.len())?;
    let fail = |reason: String| match grammar {
        Grammar::Standard => Error::Syntax { query: shown(text), reason },
        Grammar::Classic => Error::bad_request(format!("Cannot parse '{}': {reason}", shown(text))),
    };
    let tokens = lexer::tokens(grammar, text).map_err(fail)?;
    let node = parser::parse(grammar, &tokens).map_err(fail)?;
    resolve::resolve(context, &node)
}

/// The beginning of a query.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// The message of Lucene for a query with more clauses.
fn too_many_clauses() -> String {
    format!("maxClauseCount is set to {MAX_CLAUSES}")
}

#[cfg(test)]
mod tests;
