//! Removal of unused indexes, and of files that interrupted builds left.

use std::collections::HashSet;

use settee_design::DesignDocument;

use crate::claims::Claimed;
use crate::error::Result;
use crate::handle::{BuildGuard, DatabaseIndexes, Handle};
use crate::host::IndexHost;
use crate::index::Signature;
use crate::index::identity::definitions;
use crate::indexer::runs::{RunDirectory, directories};
use crate::shared::Core;

impl Core {
    /// Removes the indexes that were unused for `grace_us`, except those that are required, serve queries or are built.
    pub(crate) fn collect(&self, host: &dyn IndexHost, ddocs: &[DesignDocument], grace_us: u64) -> Result<usize> {
        let wanted = ddocs.iter().flat_map(|ddoc| definitions(host.layout(), ddoc)).map(|index| index.signature);
        let needed: HashSet<Signature> = wanted.chain(self.serving_indexes(host, ddocs)?).collect();
        let indexes = self.indexes_of(host.shard());
        let known = host.indexes()?;
        indexes
            .forgotten
            .lock()
            .retain(|signature, _| !needed.contains(signature) && known.iter().any(|(known, _)| known == signature));
        let mut removed = 0;
        for (signature, shard) in known {
            if needed.contains(&signature) || !self.is_forgotten(&indexes, signature, grace_us) {
                continue;
            }
            let mut handles = indexes.handles.lock();
            let guard = match handles.get(&signature).map(Handle::try_build) {
                Some(None) => continue,
                Some(guard) => guard,
                None => None,
            };
            let Some(_claimed) = Claimed::try_new(host.engine(), shard)? else {
                guard.into_iter().for_each(|guard| guard.finish(Ok(())));
                continue;
            };
            host.remove_index(signature, shard)?;
            handles.remove(&signature);
            guard.into_iter().for_each(BuildGuard::retire);
            RunDirectory::new(&self.settings().run_directory, shard).remove()?;
            removed += 1;
        }
        self.forget_served(host, ddocs)?;
        Ok(removed)
    }

    fn is_forgotten(&self, indexes: &DatabaseIndexes, signature: Signature, grace_us: u64) -> bool {
        let now_us = self.clock().now_us();
        let since_us = *indexes.forgotten.lock().entry(signature).or_insert(now_us);
        let used_us = indexes.handles.lock().get(&signature).map_or(0, |handle| handle.last_use_us());
        now_us.saturating_sub(since_us.max(used_us)) >= grace_us
    }

    pub(crate) fn sweep(&self, is_known: impl Fn(settee_storage::Shard) -> bool) -> Result<usize> {
        let mut removed = 0;
        for (shard, _) in directories(&self.settings().run_directory)? {
            if !is_known(shard) {
                RunDirectory::new(&self.settings().run_directory, shard).remove()?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    pub(crate) fn remove_runs(&self, host: &dyn IndexHost) -> Result<()> {
        for (_, shard) in host.indexes()? {
            RunDirectory::new(&self.settings().run_directory, shard).remove()?;
        }
        Ok(())
    }
}
