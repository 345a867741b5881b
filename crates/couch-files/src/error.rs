//! Errors: [`FileError`] for one position of a file, [`DocumentError`] for a document.

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot be read at byte {position}: {error}")]
    Io { position: u64, error: std::io::Error },
    #[error("the data at byte {position} extend beyond the end of the file")]
    BeyondEnd { position: u64 },
    /// A length exceeds a limit of this crate.
    #[error("the data at byte {position} are too large")]
    TooLarge { position: u64 },
    #[error("the checksum of the data at byte {position} does not match")]
    Checksum { position: u64 },
    #[error("the data at byte {position} cannot be decompressed")]
    Compression { position: u64 },
    #[error("the data at byte {position} are compressed by {method}, which is not supported")]
    Method { position: u64, method: &'static str },
    /// A chunk is not a term of Erlang's external format.
    #[error("the data at byte {position} is not a term: {error}")]
    Term { position: u64, error: TermError },
    #[error("the data at byte {position} are not {expected}")]
    Structure { position: u64, expected: &'static str },
    #[error("it contains no valid header of a database")]
    NoHeader,
    #[error("its disk version is {0}; versions 6 to 8 are supported, which CouchDB 1.2 and later write")]
    DiskVersion(u64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TermError {
    #[error("it ends too early")]
    Incomplete,
    #[error("bytes follow it")]
    Trailing,
    /// The first byte is not 131.
    #[error("its version is unknown")]
    Version,
    #[error("it contains a term with the unknown tag {0}")]
    Tag(u8),
    #[error("it is too large")]
    TooLarge,
    #[error("it contains a malformed number or atom")]
    Malformed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotJson {
    #[error("the document contains a value that is not JSON")]
    Structure,
    #[error("the document contains a string that is not UTF-8")]
    NotUtf8,
    #[error("the document is nested deeper than {} levels", settee_model::json::MAX_DEPTH)]
    TooDeep,
    #[error("the document contains a number of more than {} digits", settee_model::json::MAX_NUMBER_LEN)]
    NumberTooLarge,
}

#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    NotJson(#[from] NotJson),
    #[error("a name is not UTF-8")]
    NotUtf8,
    #[error("its record is not one of a document")]
    Malformed,
    /// The revision is an ancestor without a stored body.
    #[error("the revision has no body")]
    NoBody,
    /// The file is one of CouchDB 1, whose tree by sequence contains no histories.
    #[error("its history is lost")]
    NoHistory,
    #[error("the attachment {name} has {found} bytes instead of {expected}")]
    AttachmentLength { name: String, expected: u64, found: u64 },
    #[error("the MD5 of the attachment {0} does not match")]
    AttachmentDigest(String),
}
