//! Text indexes: queries by search instead of by ranges of keys. A [`TextDefinition`](definition::TextDefinition)
//! replaces the function, a [`Mapper`](fields::Mapper) generates fields of documents, [`translate`] a query.

pub(crate) mod clause;
pub(crate) mod definition;
pub(crate) mod fields;
pub(crate) mod path;
pub(crate) mod search;
pub(crate) mod sort;
#[cfg(test)]
mod tests;
pub(crate) mod translate;
