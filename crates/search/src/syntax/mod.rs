//! Lucene's query syntax: from text to [`Query`]. [`Grammar::Standard`] is that of Lucene's flexible parser
//! (`_nouveau`), [`Grammar::Classic`] that of its older one (`_search`). In both, `a OR b AND c` is `a +b +c`.

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

const MAX_QUERY_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grammar {
    Standard,
    Classic,
}

pub(crate) trait Fields {
    fn is_number(&self, field: &str) -> bool;

    fn is_text(&self, field: &str) -> bool;
}

pub(crate) const DEFAULT_FIELD: &str = "default";

/// Maximum number of clauses, as in Lucene. Each word that an analyzer yields counts as a clause.
const MAX_CLAUSES: usize = 1_024;

const SHOWN_CHARS: usize = 4_096;

const BYTES_PER_BYTE: usize = 24;

pub(crate) struct Context<'a> {
    pub(crate) grammar: Grammar,
    pub(crate) analyzers: &'a Analyzers,
    pub(crate) fields: &'a dyn Fields,
    pub(crate) locale: Locale,
    pub(crate) limits: &'a SearchLimits,
}

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

fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// The text is Lucene's.
fn too_many_clauses() -> String {
    format!("maxClauseCount is set to {MAX_CLAUSES}")
}

#[cfg(test)]
mod tests;
