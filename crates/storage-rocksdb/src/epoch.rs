//! [`Epoch`]: removes the files of a dropped shard when no snapshot can read it any more. The deletion of its entries
//! hides the shard before that.
//!
//! The removal of files also removes entries from snapshots. Dropping a shard ends an epoch; every snapshot holds a
//! reference to its epoch, and an epoch to its successor. So an epoch is destroyed when neither it nor an earlier one
//! has a snapshot.

use std::sync::{Arc, OnceLock};

use crate::Database;
use crate::clear::{Hidden, give_back};

pub(crate) struct Epoch {
    database: Arc<Database>,
    /// The shard whose removal ended the epoch, and the next epoch.
    ended: OnceLock<(Hidden, Arc<Epoch>)>,
}

impl Epoch {
    pub(crate) fn new(database: Arc<Database>) -> Arc<Self> {
        Arc::new(Self { database, ended: OnceLock::new() })
    }

    /// Ends `current` with the removal of a shard, and starts the next epoch.
    pub(crate) fn end(current: &mut Arc<Self>, hidden: Hidden) -> Arc<Self> {
        let next = Self::new(Arc::clone(&current.database));
        let ended = std::mem::replace(current, Arc::clone(&next));
        assert!(ended.ended.set((hidden, next)).is_ok(), "an epoch ends once, since the current one is replaced");
        ended
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        let mut ended = self.ended.take();
        // A loop, because recursion over thousands of epochs would overflow the stack.
        while let Some((hidden, next)) = ended {
            give_back(&self.database, hidden);
            ended = Arc::into_inner(next).and_then(|mut epoch| epoch.ended.take());
        }
    }
}
