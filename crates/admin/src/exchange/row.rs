//! [`Row`]: output of the readers of all formats.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) line: u64,
    /// Not validated. The error is the reason why the row contains no document.
    pub(super) content: Result<Vec<u8>, String>,
}

impl Row {
    pub(super) fn wrong(line: u64, why: &str) -> Self {
        Self { line, content: Err(why.to_owned()) }
    }
}
