//! [`IdRange`].

/// A range of document ids in byte order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdRange {
    /// Least id of the range.
    pub start: Option<Vec<u8>>,
    /// Least id beyond the range.
    pub end: Option<Vec<u8>>,
}

impl IdRange {
    /// Returns true if `id` is in the range.
    #[must_use]
    pub fn contains(&self, id: &str) -> bool {
        self.start.as_deref().is_none_or(|start| id.as_bytes() >= start)
            && self.end.as_deref().is_none_or(|end| id.as_bytes() < end)
    }
}
