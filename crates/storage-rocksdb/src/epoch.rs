//! [`Epoch`]: gives back the files of a dropped shard when nobody can read it any more. Does not hide the shard;
//! its deletion does.
//!
//! Removing files takes entries also from snapshots. A shard that is dropped ends an epoch; every snapshot holds
//! the epoch in which it was taken, and an epoch holds the one after it. So an epoch ends for good when neither it
//! nor an earlier one has a snapshot left.

use std::sync::{Arc, OnceLock};

use crate::Database;
use crate::clear::{Hidden, give_back};

pub(crate) struct Epoch {
    database: Arc<Database>,
    /// The shard whose removal ended the epoch, and the epoch after it.
    ended: OnceLock<(Hidden, Arc<Epoch>)>,
}

impl Epoch {
    pub(crate) fn new(database: Arc<Database>) -> Arc<Self> {
        Arc::new(Self { database, ended: OnceLock::new() })
    }

    /// Ends `current` with the removal of a shard, and begins the next epoch.
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
        // A loop, since a chain of thousands of epochs would overflow the stack.
        while let Some((hidden, next)) = ended {
            give_back(&self.database, hidden);
            ended = Arc::into_inner(next).and_then(|mut epoch| epoch.ended.take());
        }
    }
}
