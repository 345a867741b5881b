//! Removal of unused search indexes.

use std::collections::HashSet;
use std::sync::Arc;

use settee_database::Database;
use settee_design::DesignDocument;
use settee_views::{Claimed, Signature, ViewError};

use super::definition::SearchIndex;
use super::state::{Indexes, SearchGuard, SearchHandle};
use super::{Result, Searches};

impl Searches {
    /// Removes the indexes that were unused for `grace_us`. `ddocs` must be all design documents of the database. Keeps
    /// the indexes that they require or that a build writes. Returns the number of removed indexes.
    pub fn cleanup(&self, database: &Arc<Database>, ddocs: &[DesignDocument], grace_us: u64) -> Result<usize> {
        let needed: HashSet<Signature> = ddocs.iter().flat_map(SearchIndex::all).map(|index| index.signature).collect();
        let indexes = self.indexes_of(database);
        let records = self.records(database);
        let known = records.all()?;
        let is_known = |signature: &Signature| known.iter().any(|(known, _)| known == signature);
        indexes.forgotten.lock().retain(|signature, _| !needed.contains(signature) && is_known(signature));
        indexes.failed_builds.lock().retain(|signature, _| is_known(signature));
        let mut removed = 0;
        for &(signature, shard) in &known {
            if needed.contains(&signature) || !self.is_forgotten(&indexes, signature, grace_us) {
                continue;
            }
            let mut handles = indexes.handles.lock();
            let guard = match handles.get(&signature).map(SearchHandle::try_build) {
                Some(None) => continue,
                Some(guard) => guard,
                None => None,
            };
            let claimed = Claimed::try_new(records.catalog.engine(), shard).map_err(ViewError::from)?;
            let Some(_claimed) = claimed else {
                guard.into_iter().for_each(|guard| guard.finish(Ok(())));
                continue;
            };
            records.remove(signature, shard)?;
            handles.remove(&signature);
            guard.into_iter().for_each(SearchGuard::retire);
            removed += 1;
        }
        Ok(removed)
    }

    fn is_forgotten(&self, indexes: &Indexes, signature: Signature, grace_us: u64) -> bool {
        let now_us = self.clock().now_us();
        let since_us = *indexes.forgotten.lock().entry(signature).or_insert(now_us);
        let used_us = indexes.handles.lock().get(&signature).map_or(0, |handle| handle.last_use_us());
        now_us.saturating_sub(since_us.max(used_us)) >= grace_us
    }

    pub fn compact(&self, database: &Arc<Database>, ddoc: &DesignDocument) -> Result<()> {
        for wanted in SearchIndex::all(ddoc) {
            self.handle(database, &wanted)?.store().reclaim()?;
        }
        Ok(())
    }

    /// Stops all work on the indexes of a database and prevents new work. The caller must call it before deleting the
    /// database. Waiting searches fail with [`ViewError::Stopped`].
    pub fn release(&self, database: &Arc<Database>) {
        self.indexes_of(database).stop_and_wait();
    }
}
