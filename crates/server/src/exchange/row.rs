//! [`Row`]: what readers of all formats give.

/// A row of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// The line on which it begins.
    pub(super) line: u64,
    /// A document as text that was not checked, or why there is none.
    pub(super) content: Result<Vec<u8>, String>,
}

impl Row {
    pub(super) fn wrong(line: u64, why: &str) -> Self {
        Self { line, content: Err(why.to_owned()) }
    }
}
