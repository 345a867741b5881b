//! [`Served`]: the snapshots that other processes read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use settee_storage::{Result, StorageError};

use crate::protocol::{Refusal, SnapshotId};
use crate::snapshot::BucketSnapshot;

/// Time after which an unused snapshot is closed: its process has probably ended.
const IDLE_TIME: Duration = Duration::from_secs(60);

/// Maximum number of snapshots.
const SNAPSHOTS_MAX: usize = 8192;

#[derive(Default)]
pub(crate) struct Served {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    snapshots: HashMap<SnapshotId, (Arc<BucketSnapshot>, Instant)>,
    last: SnapshotId,
}

impl Served {
    pub(crate) fn add(&self, snapshot: Arc<BucketSnapshot>) -> Result<SnapshotId> {
        let mut state = self.state.lock();
        if state.snapshots.len() >= SNAPSHOTS_MAX {
            return Err(StorageError::Unreached("other nodes read too much at the same time".to_owned()));
        }
        state.last += 1;
        let id = state.last;
        state.snapshots.insert(id, (snapshot, Instant::now()));
        Ok(id)
    }

    pub(crate) fn get(&self, id: SnapshotId) -> Result<Arc<BucketSnapshot>, Refusal> {
        let mut state = self.state.lock();
        let Some((snapshot, used)) = state.snapshots.get_mut(&id) else { return Err(Refusal::NotHere) };
        *used = Instant::now();
        Ok(Arc::clone(snapshot))
    }

    pub(crate) fn close(&self, id: SnapshotId) {
        self.state.lock().snapshots.remove(&id);
    }

    pub(crate) fn close_idle(&self) {
        self.state.lock().snapshots.retain(|_, (_, used)| used.elapsed() < IDLE_TIME);
    }

    pub(crate) fn len(&self) -> usize {
        self.state.lock().snapshots.len()
    }
}
