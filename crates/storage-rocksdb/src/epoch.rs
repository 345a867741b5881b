//! [`Epoch`]: removes the files of a dropped shard when no snapshot can read it any more. The removal of files also
//! removes entries from snapshots. Dropping a shard ends an epoch. Every snapshot holds a reference to its epoch, and
//! an epoch to its successor, so one is destroyed when neither it nor an earlier one has a snapshot.

use std::sync::{Arc, OnceLock};

use crate::Database;
use crate::clear::{DroppedShard, remove_files};
use crate::damage::Damage;

pub(crate) struct Epoch {
    database: Arc<Database>,
    damage: Arc<Damage>,
    ended: OnceLock<(DroppedShard, Arc<Epoch>)>,
}

impl Epoch {
    pub(crate) fn new(database: Arc<Database>, damage: Arc<Damage>) -> Arc<Self> {
        Arc::new(Self { database, damage, ended: OnceLock::new() })
    }

    /// Returns true if files are removed when it is dropped.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.get().is_some()
    }

    pub(crate) fn end(current: &mut Arc<Self>, hidden: DroppedShard) -> Arc<Self> {
        let next = Self::new(Arc::clone(&current.database), Arc::clone(&current.damage));
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
            remove_files(&self.database, &self.damage, hidden);
            ended = Arc::into_inner(next).and_then(|mut epoch| epoch.ended.take());
        }
    }
}
