//! Text indexes: queries by search instead of by ranges of keys.
//!
//! An index of type `text` or `nouveau` is a search index of a design document in the language `query`. Its
//! [`TextDefinition`](definition::TextDefinition) stands where others have a function, a [`Mapper`](fields::Mapper) makes
//! fields of documents, [`translate`] makes a query of a selector. Keeping the index up to date and searching it is the work
//! of those crates that do so for all search indexes.

pub(crate) mod clause;
pub(crate) mod definition;
pub(crate) mod fields;
pub(crate) mod path;
pub(crate) mod search;
pub(crate) mod sort;
#[cfg(test)]
mod tests;
pub(crate) mod translate;
