//! Limits of what is stored, with the reasons for each.
//!
//! Limits that an operator can configure are here as the values that hold without configuration.

/// Largest document body in bytes, without attachments: CouchDB's default of `couchdb/max_document_size`.
pub const MAX_DOCUMENT_SIZE: usize = 8_000_000;

/// Longest document id in bytes.
///
/// CouchDB has no limit by default (`couchdb/max_document_id_length = infinity`). Here an id is part of storage keys, which
/// stay under 10,000 bytes with every engine.
pub const MAX_DOC_ID_LEN: usize = 8_000;

/// Longest text of one number.
///
/// Integers are exact at any size, and turning one into the binary form of which its revision hash is made takes time that
/// grows with the square of its length. At this length it is a few milliseconds; CouchDB itself stops at 1.2 million digits.
pub const MAX_NUMBER_LEN: usize = 100_000;

/// Highest generation of a revision that is accepted, the largest signed 64-bit number, so that a successor always exists.
///
/// CouchDB accepts integers of any size here.
pub const MAX_GENERATION: u64 = i64::MAX as u64;

/// Highest generation that a client may store. It leaves four billion generations for edits, so that a document can always be edited,
/// deleted and purged.
pub const MAX_STORED_GENERATION: u64 = MAX_GENERATION - (1 << 32);

/// Longest hash part of a revision, in bytes, when it is no MD5.
///
/// CouchDB has no limit; hashes are part of stored trees, which are read for every update of their document.
pub const MAX_REV_HASH_LEN: usize = 1_024;

/// Revisions kept for each leaf of a tree: CouchDB's default of `_revs_limit`.
pub const REVS_LIMIT: usize = 1_000;
