//! [`Entry`]: the record of a database in the catalog, with its [`Layout`].

use settee_storage::Shard;
use settee_storage::codec::{Reader, put_varint};

use crate::access::AccessControl;
use crate::{DatabaseError, Result};

/// The shard of the catalog itself.
pub const CATALOG: Shard = Shard(0);

/// Prefix of attached records that start with a shard number (8 bytes, big-endian), which the database owns.
pub const OWNED_SHARDS: &[u8] = b"index/";

/// Partitioning of the documents of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// No partitions.
    #[default]
    Whole,
    /// Partitions by the part of the id before the first colon, see [`settee_model::partition`].
    Partitioned,
}

#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) shard: Shard,
    pub(crate) instance: u64,
    pub(crate) created_ms: u64,
    pub(crate) layout: Layout,
    pub(crate) q: u32,
    pub(crate) access: AccessControl,
}

/// Added to the number of the layout. Programs that ignore access lists refuse the entry.
const PER_DOCUMENT: u64 = 2;

impl Entry {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let layout = match self.layout {
            Layout::Whole => 0,
            Layout::Partitioned => 1,
        };
        let access = match self.access {
            AccessControl::PerDatabase => 0,
            AccessControl::PerDocument => PER_DOCUMENT,
        };
        for value in [self.shard.0, self.instance, self.created_ms, layout + access, self.q.into()] {
            put_varint(&mut out, value);
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "database entry");
        let (shard, instance, created_ms) = (Shard(reader.varint()?), reader.varint()?, reader.varint()?);
        let (layout, access) = match reader.varint()? {
            0 => (Layout::Whole, AccessControl::PerDatabase),
            1 => (Layout::Partitioned, AccessControl::PerDatabase),
            PER_DOCUMENT => (Layout::Whole, AccessControl::PerDocument),
            3 => (Layout::Partitioned, AccessControl::PerDocument),
            _ => return Err(DatabaseError::Corrupt("database entry")),
        };
        // Entries of earlier versions end here.
        let q = if reader.rest().is_empty() { 1 } else { u32::try_from(reader.varint()?).unwrap_or(u32::MAX) };
        Ok(Self { shard, instance, created_ms, layout, q, access })
    }
}
