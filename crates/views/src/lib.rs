//! View indexes: from a design document and a query to rows.
//!
//! A query walks through these layers:
//!
//! 1. [`Views::query`] finds the view in its design document and the `index` that holds its rows. Identical map
//!    functions share one index, whatever design document they come from.
//! 2. If the index lags behind the database, the `indexer` brings it up to date, together with all others of the design
//!    document: it maps documents in batches on several threads, sorts the emitted rows and loads or updates the tree.
//! 3. The `tree` is a B+tree of engine values whose inner nodes know how many rows lie below them and what the
//!    `reduce` functions make of these.
//! 4. The `query` walks the tree in one snapshot and hands typed rows to a [`RowSink`].
//!
//! This crate knows no language, no HTTP and no clock, and starts no thread that outlives a call.

mod build;
mod clock;
mod codec;
mod control;
mod designs;
mod error;
mod garbage;
mod handle;
mod host;
mod index;
mod indexer;
mod keys;
mod pace;
mod query;
mod reduce;
mod serving;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tree;
mod trial;
mod verify;
mod views;

pub use clock::Clock;
pub use control::{BuildState, BuildStatus};
pub use designs::{design_documents, embed_modules};
pub use error::ViewError;
pub use index::identity::layout_of;
pub use indexer::Settings;
pub use pace::{Budget, Urgency};
pub use query::{
    Bounds, Docs, End, Header, Inclusion, Keys, LinkedDocument, MapRow, Order, QueryError, Reduce, ReduceRow, RowSink,
    Start, Update, ViewQuery,
};
pub use reduce::{is_builtin_reduce, overflow_reason};
pub use serving::Stale;
pub use trial::{Trial, TrialLimits};
pub use verify::verify_index;
pub use views::{About, Answer, Languages, Log, LogLine, ViewInfo, Views};
