//! [`RevisionCountCache`]: sizes of partitions. Documents of a partition that has reached `max_partition_size` must not
//! grow. Sizes are those of [`PartitionInfo::external_bytes`](crate::PartitionInfo). A scan determines the size of a
//! partition once, and only in databases that are as large as the limit; each commit then updates the cached size.

use std::collections::{HashMap, HashSet};

use settee_model::partition;
use settee_storage::Snapshot;

use crate::Result;
use crate::meta::{LeafBytes, Meta};
use crate::partitions::read_partition;

const REMEMBERED_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct RevisionCountCache {
    committed: HashMap<Box<str>, u64>,
    changes: HashMap<Box<str>, Change>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Change {
    added: u64,
    removed: u64,
}

impl RevisionCountCache {
    pub(super) fn begin(&mut self) {
        self.changes.clear();
    }

    pub(super) fn commit(&mut self) {
        for (partition, Change { added, removed }) in self.changes.drain() {
            if let Some(size) = self.committed.get_mut(&partition) {
                *size = (*size + added).saturating_sub(removed);
            }
        }
    }

    pub(super) fn count(&mut self, id: &str, before: LeafBytes, now: LeafBytes) {
        let Some((partition, _)) = partition::split(id) else { return };
        if !self.changes.contains_key(partition) {
            self.changes.insert(partition.into(), Change::default());
        }
        if let Some(changes) = self.changes.get_mut(partition) {
            changes.added += now.total();
            changes.removed += before.total();
        }
    }

    /// Returns the partitions whose documents must not grow. `updates` are ids with the limit of their partition.
    pub(super) fn full<'u>(
        &mut self,
        snapshot: &dyn Snapshot,
        meta: &Meta,
        updates: impl Iterator<Item = (&'u str, Option<u64>)>,
    ) -> Result<HashSet<&'u str>> {
        let mut full = HashSet::new();
        for (id, limit) in updates {
            // A partition is not larger than its database.
            let limit = limit.filter(|limit| meta.leaves().total() >= *limit);
            if let (Some(limit), Some((partition, _))) = (limit, partition::split(id))
                && !full.contains(partition)
                && self.size(snapshot, partition)? >= limit
            {
                full.insert(partition);
            }
        }
        Ok(full)
    }

    fn size(&mut self, snapshot: &dyn Snapshot, partition: &str) -> Result<u64> {
        let committed = match self.committed.get(partition) {
            Some(size) => *size,
            None => {
                let size = read_partition(snapshot, partition)?.external_bytes;
                if self.committed.len() >= REMEMBERED_MAX {
                    self.committed.clear();
                }
                self.committed.insert(partition.into(), size);
                size
            }
        };
        let Change { added, removed } = self.changes.get(partition).copied().unwrap_or_default();
        Ok((committed + added).saturating_sub(removed))
    }
}
