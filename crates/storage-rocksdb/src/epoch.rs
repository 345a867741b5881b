//! [`Epoch`]: gives back the files of a dropped shard when nobody can read it any more. Does not hide the shard;
//! the range deletion does.
//!
//! Removing files takes entries also from snapshots. A shard that is dropped ends an epoch; every snapshot holds
//! the epoch in which it was taken, and an epoch holds the one after it. So an epoch ends for good when neither it
//! nor an earlier one has a snapshot left.

use std::sync::{Arc, OnceLock};

use rocksdb::CompactOptions;
use settee_storage::{Keyspace, Shard};

use crate::{Database, keys};

pub(crate) struct Epoch {
    database: Arc<Database>,
    /// The shard whose removal ended the epoch, and the epoch after it.
    ended: OnceLock<(Shard, Arc<Epoch>)>,
}

impl Epoch {
    pub(crate) fn new(database: Arc<Database>) -> Arc<Self> {
        Arc::new(Self { database, ended: OnceLock::new() })
    }

    /// Ends `current` with the removal of `shard`, which must be hidden already, and begins the next epoch.
    pub(crate) fn end(current: &mut Arc<Self>, shard: Shard) -> Arc<Self> {
        let next = Self::new(Arc::clone(&current.database));
        let ended = std::mem::replace(current, Arc::clone(&next));
        assert!(ended.ended.set((shard, next)).is_ok(), "an epoch ends once, since the current one is replaced");
        ended
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        let mut ended = self.ended.take();
        // A loop, since a chain of thousands of epochs would overflow the stack.
        while let Some((shard, next)) = ended {
            reclaim(&self.database, shard);
            ended = Arc::into_inner(next).and_then(|mut epoch| epoch.ended.take());
        }
    }
}

/// What is left of a shard is worth a compaction from this size on.
const WORTH_COMPACTING_BYTES: u64 = 4 << 20;

/// Removes the files that hold nothing but the shard, and compacts what is left if it is much: the newest files,
/// those at the borders, and blobs, which live on while any file points to them. Less than that is left to the
/// compactions of everyday work. What cannot be removed costs space only, so errors are not reported.
fn reclaim(database: &Database, shard: Shard) {
    for space in Keyspace::ALL {
        let column = crate::column(database, space);
        let _ = database.delete_file_in_range_cf(column, keys::prefix(shard).as_slice(), keys::last(shard).as_slice());
    }
    // A removed file may have held the range deletion above older entries in a file that stays.
    let _ = crate::hide(database, shard);
    for space in Keyspace::ALL {
        if crate::size::in_files(database, shard, space) >= WORTH_COMPACTING_BYTES {
            let mut options = CompactOptions::default();
            options.set_exclusive_manual_compaction(false);
            let (start, end) = (keys::prefix(shard), keys::end(shard));
            database.compact_range_cf_opt(crate::column(database, space), Some(start), Some(end), &options);
        }
    }
}
