//! Limits of stored values. For limits that an operator can configure, these are the defaults.

/// Maximum size of a document body in bytes, without attachments: CouchDB's default of `couchdb/max_document_size`.
pub const MAX_DOCUMENT_SIZE: usize = 8_000_000;

/// Maximum length of a document id in bytes, because storage keys must be shorter than 10,000 bytes. CouchDB has no
/// limit by default (`couchdb/max_document_id_length`).
pub const MAX_DOC_ID_LEN: usize = 8_000;

/// Maximum length of the text of one number: its revision hash takes time quadratic in the length, a few milliseconds
/// at this limit. CouchDB accepts 1.2 million digits.
pub const MAX_NUMBER_LEN: usize = 100_000;

/// Maximum generation of a revision, so that a successor always exists. CouchDB accepts integers of any size.
pub const MAX_GENERATION: u64 = i64::MAX as u64;

/// Maximum generation that a client may store. The remaining four billion permit further edits and purges.
pub const MAX_STORED_GENERATION: u64 = MAX_GENERATION - (1 << 32);

/// Maximum bytes of a hash that is not an MD5; CouchDB has no limit. Every update of a document reads its tree.
pub const MAX_REV_HASH_LEN: usize = 1_024;

/// Number of revisions kept for each leaf of a tree: CouchDB's default of `_revs_limit`.
pub const REVS_LIMIT: usize = 1_000;
