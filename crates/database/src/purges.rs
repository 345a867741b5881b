//! Purge records, by which view indexes follow purges. An index that misses removed records must be rebuilt.

use std::sync::Arc;

use settee_storage::codec::Reader;
use settee_storage::{Direction, Expect, KeyRange, Keyspace};

use crate::update::{Purge, decode_purge_number};
use crate::{Database, ReadView, Result, keys};

/// CouchDB's default.
const DEFAULT_LIMIT: u64 = 1000;

impl ReadView<'_> {
    /// Number of the latest purge; 0 if no document was purged.
    pub fn purge_seq(&self) -> Result<u64> {
        Ok(self.meta()?.purge_seq)
    }

    /// Number of the latest purge whose record was removed; 0 if all records are stored.
    pub fn purges_forgotten(&self) -> Result<u64> {
        Ok(self.meta()?.purges_forgotten)
    }

    /// Calls `each` with the number and content of each stored purge record after `since`, oldest first.
    pub fn purges(&self, since: u64, mut each: impl FnMut(u64, Purge)) -> Result<()> {
        let start = keys::prefixed(keys::PURGE, &keys::sequence(since.saturating_add(1)));
        let end = keys::after_prefix(keys::PURGE);
        let range = KeyRange { start: Some(&start), end: Some(&end) };
        let mut cursor = self.snapshot().scan(Keyspace::Catalog, range, Direction::Forward, Expect::Few)?;
        while let Some((key, bytes)) = cursor.next()? {
            each(decode_purge_number(key)?, Purge::decode(bytes)?);
        }
        Ok(())
    }

    /// Number of purge records that a compaction keeps.
    pub fn purged_infos_limit(&self) -> Result<u64> {
        match self.snapshot().get(Keyspace::Catalog, keys::PURGED_INFOS_LIMIT)? {
            Some(bytes) => Ok(Reader::new(&bytes, "purged_infos_limit").varint()?),
            None => Ok(DEFAULT_LIMIT),
        }
    }
}

impl Database {
    /// Number of purge records that a compaction keeps.
    pub fn purged_infos_limit(self: &Arc<Self>) -> Result<u64> {
        self.read()?.purged_infos_limit()
    }
}
