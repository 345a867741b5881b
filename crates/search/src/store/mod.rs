//! An index in its shard: files of segments in pieces ([`files`]), the record that says which of them count ([`record`]), and
//! the cache of what was read ([`cache`]). Key bytes are in [`keys`].

pub(crate) mod cache;
pub(crate) mod codec;
pub(crate) mod files;
pub(crate) mod keys;
pub(crate) mod record;

pub use cache::Cache;
pub use files::NewToken;
pub(crate) use files::{Files, Shelf};
pub(crate) use record::{FileRecord, Record, SegmentRecord, Slot, SlotKind};
