//! [`Row`]: output of the readers of all formats.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Number of the line on which it starts.
    pub(super) line: u64,
    /// The unvalidated text of a document. The error is the reason why there is none.
    pub(super) content: Result<Vec<u8>, String>,
}

impl Row {
    pub(super) fn wrong(line: u64, why: &str) -> Self {
        Self { line, content: Err(why.to_owned()) }
    }
}
