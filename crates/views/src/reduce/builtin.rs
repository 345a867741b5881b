//! [`Builtin`].

use crate::leaf::{EncodedLeaf, Group};

#[derive(Clone, Debug)]
pub(super) enum Values<'a> {
    Of(Group<'a>),
    Encoded(&'a EncodedLeaf),
}

impl<'a> Values<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Of(group) => group.rows.len(),
            Self::Encoded(leaf) => leaf.len(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.len()).map(move |index| match self {
            Self::Of(group) => group.leaf.row(group.rows.start + index).value,
            Self::Encoded(leaf) => leaf.value(index),
        })
    }

    pub(super) fn content_bytes(&self) -> usize {
        match self {
            Self::Of(group) => group.rows().map(|row| row.content_bytes()).sum(),
            Self::Encoded(leaf) => leaf.content_bytes(),
        }
    }
}

/// Appends the stored reduction of values, at least one.
pub(super) trait OfValues {
    fn reduce(&self, values: &Values<'_>, out: &mut Vec<u8>);
}

/// Appends the stored reduction of rows, at least one.
pub(super) trait OfRows {
    fn reduce(&self, rows: &Group<'_>, out: &mut Vec<u8>);
}

pub(super) enum Input<'a> {
    Values(&'a dyn OfValues),
    Rows(&'a dyn OfRows),
}

pub(super) trait Builtin: Send + Sync {
    fn input(&self) -> Input<'_>;

    /// Appends the stored reduction of stored reductions, at least one.
    fn rereduce(&self, partials: &[&[u8]], out: &mut Vec<u8>);

    /// Appends the JSON text of a stored reduction.
    fn finish(&self, stored: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(stored);
    }
}
