//! Lucene's query syntax: from text to [`Query`]. [`Grammar::Standard`] is that of Lucene's flexible parser
//! (`_nouveau`), [`Grammar::Classic`] that of its older one (`_search`). In both, `a OR b AND c` is `a +b +c`.

mod functions;
mod grammar;
mod lexer;
mod number;
mod parser;
mod resolve;
mod tree;

use self::grammar::shown;
pub(crate) use self::grammar::{Context, Fields, Grammar};
pub use self::number::Locale;
use crate::error::{Error, Result};
use crate::query::Query;

const MAX_QUERY_BYTES: usize = 1 << 20;

const BYTES_PER_BYTE: usize = 24;

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

#[cfg(test)]
mod tests;
