//! View indexes: from a design document and a query to rows.
//!
//! 1. [`Views::query`] finds the view in its design document and the `index` that contains its rows. Views with
//!    identical map functions share one index, also in different design documents.
//! 2. If the index is behind the database, the `indexer` updates it together with all others of the design document:
//!    threads map batches of documents, sort the emitted rows, and load or update the tree.
//! 3. The `tree` is a B+tree of engine values whose inner nodes store the number and the reductions of the rows below.
//! 4. The `query` traverses the tree in one snapshot and passes rows to a [`RowSink`].
//!
//! This crate starts no thread that outlives a call. All functions that return a `Result` fail if the engine fails; the
//! documentation lists only other errors.

#![warn(missing_docs)]

mod build;
mod build_lock;
mod claims;
mod clock;
mod control;
mod designs;
mod error;
mod garbage;
mod handle;
mod host;
mod index;
mod indexer;
mod keys;
mod leaf;
mod pace;
mod query;
mod records;
mod reduce;
mod serving;
mod shared;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tree;
mod trial;
mod verify;
mod views;

pub use build_lock::{Abandoned, Acquired, BuildGuard, Handle};
pub use claims::{Claimed, Claims, Watch};
pub use clock::Clock;
pub use control::{BuildState, BuildStatus};
pub use designs::{design_documents, embed_modules};
pub use error::{QueryError, ViewError};
pub use handle::BuildControl;
pub use index::Tokens;
pub use index::identity::{Signature, layout_of};
pub use indexer::Settings;
pub use indexer::source::{ChangeBatch, ChangeSnapshot, Changes, Fill};
pub use pace::{Budget, ClientBuildGuard, Pace, PaceState, Urgency};
pub use query::{
    Bounds, Docs, End, Header, Inclusion, Keys, LinkedDocument, MapRow, Order, Reduce, ReduceRow, RowSink, Stale,
    Start, Update, ViewQuery,
};
pub use records::{Family, IndexRecords};
pub use reduce::{is_builtin_reduce, overflow_reason, unsupported_reduce};
pub use shared::{Languages, Log, LogLine, LogSubject};
pub use trial::{Trial, TrialLimits};
pub use verify::verify_index;
pub use views::{Answer, Compaction, ViewInfo, Views};
