//! One partition of a partitioned database: a range of ids, see [`settee_model::partition`].

use settee_storage::{Direction, Expect, KeyRange, Keyspace, Snapshot};

use crate::read::id_range::IdRange;
use crate::record::{DocRecord, Head};
use crate::{Result, pieces};

/// Counts and sizes of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionInfo {
    /// Documents that are not deleted.
    pub doc_count: u64,
    /// Deleted documents.
    pub doc_del_count: u64,
    /// Bytes of the current bodies, uncompressed, and of their attachments.
    pub external_bytes: u64,
}

/// Returns the ids of the documents of a partition.
#[must_use]
pub fn partition_range(partition: &str) -> IdRange {
    let bound = |end: u8| Some([partition.as_bytes(), &[end]].concat());
    IdRange { start: bound(b':'), end: bound(b';') }
}

/// Counts the documents of a partition in `snapshot`.
pub(crate) fn read_partition(snapshot: &dyn Snapshot, partition: &str) -> Result<PartitionInfo> {
    let IdRange { start, end } = partition_range(partition);
    let range = KeyRange { start: start.as_deref(), end: end.as_deref() };
    let mut cursor = snapshot.scan(Keyspace::Documents, range, Direction::Forward, Expect::All)?;
    let mut info = PartitionInfo::default();
    while let Some((id, bytes)) = cursor.next()? {
        if Head::is_deleted(bytes) {
            info.doc_del_count += 1;
        } else {
            info.doc_count += 1;
        }
        let tree = DocRecord::decode(&pieces::whole(snapshot, id, bytes)?)?.tree;
        for (index, node) in (0..).zip(tree.nodes()) {
            if let Some(stored) = node.value.filter(|_| tree.is_leaf(index)) {
                info.external_bytes += u64::from(stored.size) + stored.attachments_length;
            }
        }
    }
    Ok(info)
}
