//! Errors of this crate: [`FileError`] for one position of a file, [`DocumentError`] for a document.

/// Reason why something cannot be read from a file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be read.
    #[error("cannot be read at byte {position}: {error}")]
    Io { position: u64, error: std::io::Error },
    /// A chunk extends beyond the end of the file.
    #[error("the data at byte {position} extend beyond the end of the file")]
    BeyondEnd { position: u64 },
    /// A length exceeds a limit of this reader.
    #[error("the data at byte {position} are too large")]
    TooLarge { position: u64 },
    /// The checksum of a chunk does not match.
    #[error("the checksum of the data at byte {position} does not match")]
    Checksum { position: u64 },
    /// A chunk cannot be decompressed.
    #[error("the data at byte {position} cannot be decompressed")]
    Compression { position: u64 },
    /// A chunk is compressed by a method that this reader lacks.
    #[error("the data at byte {position} are compressed by {method}, which is not supported")]
    Method { position: u64, method: &'static str },
    /// A chunk is not a term of Erlang's external format.
    #[error("the data at byte {position} are no term: {error}")]
    Term { position: u64, error: TermError },
    /// A term does not have the structure that its position requires.
    #[error("the data at byte {position} are not {expected}")]
    Structure { position: u64, expected: &'static str },
    #[error("it contains no valid header of a database")]
    NoHeader,
    /// The newest header has a version that this reader does not support.
    #[error("its disk version is {0}; versions 6 to 8 are supported, which CouchDB 1.2 and later write")]
    DiskVersion(u64),
}

/// Reason why bytes are not a term.
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

/// Reason why a term has no JSON text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotJson {
    #[error("the document contains a value that is not JSON")]
    Structure,
    /// A string is not UTF-8.
    #[error("the document contains a string that is not UTF-8")]
    NotUtf8,
    /// Arrays and objects are nested too deeply.
    #[error("the document is nested deeper than {} levels", settee_model::json::MAX_DEPTH)]
    TooDeep,
    #[error("the document contains a number of more than {} digits", settee_model::json::MAX_NUMBER_LEN)]
    NumberTooLarge,
}

/// Reason why a document, a revision of it or an attachment cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// A chunk that it consists of is damaged.
    #[error(transparent)]
    File(#[from] FileError),
    /// Its body is not JSON.
    #[error(transparent)]
    NotJson(#[from] NotJson),
    /// The id or the name of an attachment is not UTF-8.
    #[error("a name is not UTF-8")]
    NotUtf8,
    /// Its record does not have the structure of a document.
    #[error("its record is not one of a document")]
    Malformed,
    /// The revision has no body: it is only known as an ancestor.
    #[error("the revision has no body")]
    NoBody,
    /// The by-sequence tree of an old disk version lists the revision, but not its history.
    #[error("its history is lost")]
    NoHistory,
    /// The data of an attachment do not have the length that is recorded for them.
    #[error("the attachment {name} has {found} bytes instead of {expected}")]
    AttachmentLength { name: String, expected: u64, found: u64 },
    /// The MD5 of an attachment does not match.
    #[error("the MD5 of the attachment {0} does not match")]
    AttachmentDigest(String),
}
