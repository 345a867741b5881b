//! Databases: documents with revision trees on a storage engine.
//!
//! A [`Catalog`] owns the databases of one engine. A [`Database`] takes updates through a queue whose leader commits
//! all waiting work with one sync. A [`ReadView`] is a snapshot with repeatable reads. This crate is synchronous and
//! independent of clocks and HTTP.
//!
//! All functions that return a [`Result`] fail if the engine fails; their documentation lists other errors.

#![warn(missing_docs)]

mod access;
mod attachment;
mod attempt;
mod catalog;
mod catalog_context;
mod compacting;
mod compaction;
mod counters;
mod database;
mod design_cache;
mod designs;
mod entry;
mod events;
mod follow;
mod keys;
mod local;
mod meta;
mod notifications;
mod open;
mod partitions;
mod pieces;
mod purges;
mod rank;
mod read;
mod record;
mod salvage;
mod shared;
mod stored;
pub mod tasks;
mod time_seq;
mod times;
mod update;
pub mod verify;

#[cfg(test)]
mod tests;

pub use access::{AccessControl, AccessList, EVERY_USER, InvalidAccess, Member, Reader};
pub use attachment::{
    Attachment, Content, ContentEncoding, ContentId, ContentReader, EncodingInfo, Form, write_marked, write_stubs,
};
pub use catalog::{Catalog, DatabaseOptions, validate_name};
pub use catalog_context::{CatalogContext, DatabaseEventKind, GLOBAL_CHANGES};
pub use compaction::{Compaction, Garbage, pause_between_pieces};
pub use counters::{Counter, Counters};
pub use database::{Closed, Database, DatabaseInfo, Event, Subscription};
pub use entry::{CATALOG, Layout, OWNED_SHARDS};
pub use local::LocalDocument;
pub use partitions::{PartitionInfo, partition_range};
pub use read::ReadView;
pub use read::ahead::{BODIES_MAX, Bodies, DOCUMENTS_TOGETHER};
pub use read::all_docs::{AllDocs, DocRow};
pub use read::changes::{Change, Changes, Leaves};
pub use read::client::{Memory, MemoryGrant, ReadClient};
pub use read::id_range::IdRange;
pub use read::indexed::IndexPosition;
pub use read::parent::ParentAttachments;
pub use read::revision::Revision;
pub use record::{DocRecord, Head, Stored};
pub use salvage::{LostData, SalvagedDatabase};
pub use shared::{SharedSettings, read_shared_settings};
pub use times::CommitClock;
pub use update::{
    Completion, Compression, DocUpdate, EditMode, NewAttachment, NewAttachments, Origin, Precheck, Purge, Stage,
    Submitted, UpdateOutcome, Upload, Uploaded, Validated, ValidationBasis, Work, WorkResult, aborted,
};

use settee_storage::codec::Corrupt;
pub use settee_storage::members;
pub use settee_storage::nonblocking::{self, Waiting};
pub use settee_storage::tally::{Reads, Tally};
/// Types of the storage interface that the other crates use without a dependency on it.
pub use settee_storage::{Direction, Engine, Expect, PeerService, Shard, StorageError};

/// Error of a database operation.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The database does not exist or was deleted.
    #[error("Database does not exist.")]
    NotFound,
    /// A database of this name exists.
    #[error("The database could not be created, the file already exists.")]
    Exists,
    /// The name violates the rules for names.
    #[error(
        "Name: '{0}'. Only lowercase characters (a-z), digits (0-9), and any of the characters _, $, (, ), +, -, and / are allowed. Must begin with a letter."
    )]
    IllegalName(String),
    /// The name is valid but too long.
    #[error("At least one path segment of `{0}` is too long.")]
    NameTooLong(String),
    /// The engine failed.
    #[error(transparent)]
    Storage(StorageError),
    /// Stored bytes do not decode.
    #[error("stored {0} does not decode")]
    Corrupt(&'static str),
    /// The client of the reads has disconnected.
    #[error(transparent)]
    Cancelled(#[from] settee_design::Cancelled),
}

impl DatabaseError {
    /// Converts an error after a write that may have been applied: see [`StorageError::in_doubt`].
    #[must_use]
    pub fn in_doubt(self) -> Self {
        match self {
            Self::Storage(error) => error.in_doubt().into(),
            Self::Corrupt(_) => StorageError::InDoubt(self.to_string()).into(),
            error => error,
        }
    }
}

impl From<StorageError> for DatabaseError {
    fn from(error: StorageError) -> Self {
        match error {
            // A dropped shard means a deleted database, in this or another process.
            StorageError::Dropped => Self::NotFound,
            error => Self::Storage(error),
        }
    }
}

impl From<Corrupt> for DatabaseError {
    fn from(Corrupt(label): Corrupt) -> Self {
        Self::Corrupt(label)
    }
}

/// Result of a database operation.
pub type Result<T, E = DatabaseError> = std::result::Result<T, E>;
