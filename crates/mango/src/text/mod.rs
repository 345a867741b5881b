//! Text indexes: queries by search instead of by ranges of keys. An index of type `text` or `nouveau` is a search index
//! of a design document in the language `query`. Its [`TextDefinition`](definition::TextDefinition) replaces the
//! function, a [`Mapper`](fields::Mapper) generates fields of documents, [`translate`] converts a selector to a query.
//! The crate `search` updates and searches the index.

pub(crate) mod clause;
pub(crate) mod definition;
pub(crate) mod fields;
pub(crate) mod path;
pub(crate) mod search;
pub(crate) mod sort;
#[cfg(test)]
mod tests;
pub(crate) mod translate;
