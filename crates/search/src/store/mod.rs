//! Storage of an index in its shard: files of segments in pieces, the record of the valid ones, and the read cache.

pub(crate) mod cache;
pub(crate) mod files;
pub(crate) mod keys;
pub(crate) mod record;

pub use cache::Caches;
pub(crate) use cache::VECTORS;
pub(crate) use files::{FileStore, Files};
pub use files::{NewToken, verify};
pub(crate) use record::{FileRecord, Record, SegmentRecord, Slot, SlotKind};
