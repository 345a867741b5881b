//! View indexes: from a design document and a query to rows.
//!
//! The layers of a query:
//!
//! 1. [`Views::query`] finds the view in its design document and the `index` that contains its rows. Identical map
//!    functions share one index, in whatever design documents they are.
//! 2. If the index lags behind the database, the `indexer` updates it, together with all others of the design document:
//!    it maps documents in batches on several threads, sorts the emitted rows and loads or updates the tree.
//! 3. The `tree` is a B+tree of engine values whose inner nodes contain the number of rows below them and their
//!    reductions.
//! 4. The `query` traverses the tree in one snapshot and passes typed rows to a [`RowSink`].
//!
//! This crate depends on no language, no HTTP and no clock, and starts no thread that outlives a call. All functions
//! that return a `Result` fail if the engine fails; a section *Errors* lists other errors.

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
pub use pace::{Budget, Pace, PaceState, Urgency, Urgent};
pub use query::{
    Bounds, Docs, End, Header, Inclusion, Keys, LinkedDocument, MapRow, Order, Reduce, ReduceRow, RowSink, Stale,
    Start, Update, ViewQuery,
};
pub use records::{Family, IndexRecords};
pub use reduce::{is_builtin_reduce, overflow_reason, unsupported_reduce};
pub use shared::{About, Languages, Log, LogLine};
pub use trial::{Trial, TrialLimits};
pub use verify::verify_index;
pub use views::{Answer, Compaction, ViewInfo, Views};
