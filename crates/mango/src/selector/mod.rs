//! [`Selector`]: a condition on documents, parsed, normalized as in CouchDB, and compiled once.
//!
//! 1. [`normal`] converts the text into a tree of [`Node`]s in CouchDB's normal form: bare values become `$eq`, several
//!    members `$and`, nested names dotted ones, and negations move down to the operators. The planner uses this form.
//! 2. [`matcher`] compiles the tree; matching reads only the members that conditions name.

mod matcher;
mod normal;
#[cfg(test)]
mod tests;

use settee_model::json::{Json, Value};

use crate::error::Refusal;
use matcher::Matcher;
pub(crate) use normal::Node;

pub struct Selector {
    node: Node,
    matcher: Matcher,
    /// Rejection of the first field name that is not a path. Such a selector matches nothing.
    wrong_name: Option<Refusal>,
}

impl std::fmt::Debug for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Selector").field(&String::from_utf8_lossy(self.to_json().as_bytes())).finish()
    }
}

impl Selector {
    pub fn parse(value: Value<'_>) -> Result<Self, Refusal> {
        let parsed = Self::parse_unchecked(value)?;
        parsed.check_names()?;
        Ok(parsed)
    }

    /// Parses a selector without validating field names, because CouchDB detects a wrong name only when it tests a
    /// document. Until [`Self::check_names`] succeeds, the caller may only explain the query.
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

    pub(crate) fn check_names(&self) -> Result<(), Refusal> {
        self.wrong_name.clone().map_or(Ok(()), Err)
    }

    /// The document must contain its special members, such as `_id` and `_rev`.
    #[must_use]
    pub fn matches(&self, document: Value<'_>) -> bool {
        self.matcher.matches(document)
    }

    #[must_use]
    pub fn to_json(&self) -> Json {
        let mut out = Vec::new();
        self.node.write(&mut out);
        Json::trusted(out)
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }
}
