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

/// Reads a query.
pub(crate) fn parse(
    grammar: Grammar,
    text: &str,
    analyzers: &Analyzers,
    fields: &dyn Fields,
    locale: Locale,
) -> Result<Query> {
    if text.len() > MAX_QUERY_BYTES {
        return Err(Error::TooLarge(format!("a query has at most {MAX_QUERY_BYTES} bytes")));
    }
    let fail = |reason: String| match grammar {
        Grammar::Standard => Error::Syntax { query: text.to_owned(), reason },
        Grammar::Classic => Error::bad_request(format!("Cannot parse '{text}': {reason}")),
    };
    let tokens = lexer::tokens(grammar, text).map_err(fail)?;
    let node = parser::parse(grammar, &tokens).map_err(fail)?;
    resolve::Context { grammar, analyzers, fields, locale }.resolve(&node)
}

#[cfg(test)]
mod tests;
