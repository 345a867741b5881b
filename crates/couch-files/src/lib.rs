//! Reads CouchDB's data directories without a running server and without Erlang.
//!
//! [`DataDirectory`] lists the databases of a directory and the files of each; [`Database`] reads one file. Files are
//! opened for reading only.
//!
//! # The format
//!
//! A file is written by appending. It consists of blocks of 4,096 bytes. The first byte of a block is 1 if a header
//! starts there, and 0 otherwise; it is not part of the data, which continue in the next block.
//!
//! * A *chunk* is a length of four bytes, a checksum of 16 bytes if the highest bit of the length is set, and data. It
//!   is addressed by its position. The checksum is the MD5 of the data, or since version 3.4 their 128-bit XXH3 hash.
//! * Most chunks contain a *term* of Erlang's external format ([`term`]), possibly compressed by snappy or deflate;
//!   chunks of attachments contain their bytes.
//! * A *node* of a B-tree is a chunk with its entries; an update writes the changed nodes again up to the root.
//! * A *header* ([`Header`]) contains the positions of the roots, of the security object and of the properties. Data
//!   after the newest header are uncommitted.
//!
//! The tree by id contains each document with its revisions ([`DocInfo`]) and the positions of their bodies
//! ([`Contents`]). The tree by sequence contains the same by the sequence of the last change. Since version 2 a
//! database consists of shards, one file each ([`directory`]).
//!
//! # Damage
//!
//! After a torn write the newest valid header is used, and [`Header::tail`] is the number of bytes after it. A damaged
//! chunk loses only what it contains or refers to: iterators return [`Lost`] for it and continue. [`Database::recover`]
//! finds the documents of lost nodes in the tree by sequence.
//!
//! Files may come from untrusted sources: no input causes a panic or an endless loop, and memory is bounded by limits
//! on the size of terms (256 MiB) and on the number of their values.

mod body;
mod btree;
mod compress;
pub mod configuration;
mod database;
pub mod directory;
mod document;
mod error;
mod header;
mod json;
mod source;
pub mod term;

pub use crate::body::{Attachment, Contents};
pub use crate::btree::{Key, LostRange};
pub use crate::database::{Database, LocalDocument, Lost, Purge};
pub use crate::directory::DataDirectory;
pub use crate::document::{DocInfo, LostDocument, Revision};
pub use crate::error::{DocumentError, FileError, NotJson, TermError};
pub use crate::header::Header;
pub use crate::json::write_json;
pub use crate::source::{FileSource, Source};
