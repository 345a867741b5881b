//! The memory of purges: view indexes read it to follow, operators to know.
//!
//! Each purge has a number. Compactions forget the oldest beyond a limit; who has not seen those cannot follow any
//! more and has to start over.

use std::sync::Arc;

use settee_storage::codec::Reader;
use settee_storage::{Direction, Expect, KeyRange, Keyspace};

use crate::update::{Purge, decode_purge_number};
use crate::{Database, ReadView, Result, keys};

/// The number of purges that are remembered unless a database says otherwise, as in CouchDB.
const DEFAULT_LIMIT: u64 = 1000;

impl ReadView {
    /// The number of the last purge; 0 if there was none.
    ///
    /// # Errors
    /// When the engine failed.
    pub fn purge_seq(&self) -> Result<u64> {
        Ok(self.meta()?.purge_seq)
    }

    /// The number of the newest purge that is no longer remembered; 0 if all are.
    ///
    /// # Errors
    /// When the engine failed.
    pub fn purges_forgotten(&self) -> Result<u64> {
        Ok(self.meta()?.purges_forgotten)
    }

    /// Calls `each` with the number and content of each remembered purge after `since`, oldest first.
    ///
    /// # Errors
    /// When the engine failed.
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

    /// The number of purges that are remembered after a compaction.
    ///
    /// # Errors
    /// When the engine failed.
    pub fn purged_infos_limit(&self) -> Result<u64> {
        match self.snapshot().get(Keyspace::Catalog, keys::PURGED_INFOS_LIMIT)? {
            Some(bytes) => Ok(Reader::new(&bytes, "purged_infos_limit").varint()?),
            None => Ok(DEFAULT_LIMIT),
        }
    }
}

impl Database {
    /// The number of purges that are remembered after a compaction.
    ///
    /// # Errors
    /// When the engine failed.
    pub fn purged_infos_limit(self: &Arc<Self>) -> Result<u64> {
        self.read()?.purged_infos_limit()
    }
}
