//! [`Definition`]: the properties of an index that determine its fields.

use crate::analysis::{Analyzers, Dialect};
use crate::vectors::VectorField;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Definition {
    pub dialect: Dialect,
    pub analyzers: Analyzers,
    pub vectors: Vec<VectorField>,
}

impl Definition {
    pub(crate) fn vectors_of(&self, field: &str) -> Option<&VectorField> {
        self.vectors.iter().find(|known| known.name == field)
    }
}
