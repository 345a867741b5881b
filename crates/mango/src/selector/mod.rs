//! [`Selector`]: a condition on documents, parsed, normalised as CouchDB does, and compiled once.
//!
//! 1. [`normal`] turns the text into a tree of [`Node`]s in CouchDB's normal form: bare values become `$eq`, several
//!    members `$and`, nested names dotted ones, and negations move down to the operators.
//! 2. [`matcher`] compiles the tree; matching looks only at the members that conditions name.
//!
//! Choosing an index from the normal form is the planner's work.

mod matcher;
mod normal;
#[cfg(test)]
mod tests;

use settee_model::json::{Json, Value};

use crate::error::Refusal;
use matcher::Matcher;
pub(crate) use normal::Node;

/// The deepest nesting of conditions. Documents may be nested deeper; people do not write such selectors.
pub const MAX_DEPTH: usize = 200;

/// The most conditions in a selector. The members of `$in` and its kin do not count: they cost little.
pub const MAX_CONDITIONS: usize = 20_000;

/// The most regular expressions in a selector: each may take a megabyte when it is compiled.
pub const MAX_EXPRESSIONS: usize = 200;

/// The most bytes that the names of fields may have together. Where names are nested, each condition counts the whole
/// path to it.
pub const MAX_NAME_BYTES: usize = 2 << 20;

/// A condition on documents.
pub struct Selector {
    node: Node,
    matcher: Matcher,
    /// The first field name that is no path. Such a selector matches nothing.
    wrong_name: Option<Refusal>,
}

impl std::fmt::Debug for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Selector").field(&String::from_utf8_lossy(self.to_json().as_bytes())).finish()
    }
}

impl Selector {
    /// Parses a selector.
    ///
    /// # Errors
    /// When it is none, with CouchDB's name and text.
    pub fn parse(value: Value<'_>) -> Result<Self, Refusal> {
        let parsed = Self::parse_unchecked(value)?;
        parsed.check_names()?;
        Ok(parsed)
    }

    /// Parses a selector whose field names are not checked yet: CouchDB finds a wrong one when it compares a document. Until
    /// [`Self::check_names`] the selector of a query can be explained; the filter of a partial index matches nothing.
    ///
    /// # Errors
    /// As [`Selector::parse`], except for names.
    pub(crate) fn parse_unchecked(value: Value<'_>) -> Result<Self, Refusal> {
        if !value.is_object() {
            return Err(Refusal::SelectorNotAnObject(crate::shown(value)));
        }
        let node = normal::normalise(value)?;
        let mut wrong_name = None;
        let compiled = Matcher::compile(&node, &mut wrong_name)?;
        let matcher = if wrong_name.is_some() { Matcher::never() } else { compiled };
        Ok(Self { node, matcher, wrong_name })
    }

    /// Refuses the first field name that is no path.
    pub(crate) fn check_names(&self) -> Result<(), Refusal> {
        self.wrong_name.clone().map_or(Ok(()), Err)
    }

    /// Whether a document matches. It has its members `_id`, `_rev` and so on.
    #[must_use]
    pub fn matches(&self, document: Value<'_>) -> bool {
        self.matcher.matches(document)
    }

    /// The normal form as JSON text, as CouchDB's `_explain` shows it.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let mut out = Vec::new();
        self.node.write(&mut out);
        Json::trusted(out)
    }

    /// The normal form.
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }
}
