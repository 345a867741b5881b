//! [`Grammar`]: the two grammars, and the limits and messages of both.

use super::number::Locale;
use crate::analysis::Analyzers;
use crate::limits::SearchLimits;

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
pub(super) const MAX_CLAUSES: usize = 1_024;

const SHOWN_CHARS: usize = 4_096;

pub(crate) struct Context<'a> {
    pub(crate) grammar: Grammar,
    pub(crate) analyzers: &'a Analyzers,
    pub(crate) fields: &'a dyn Fields,
    pub(crate) locale: Locale,
    pub(crate) limits: &'a SearchLimits,
}

pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// The text is Lucene's.
pub(super) fn too_many_clauses() -> String {
    format!("maxClauseCount is set to {MAX_CLAUSES}")
}
