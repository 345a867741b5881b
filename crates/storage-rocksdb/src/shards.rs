//! The cached versions of shards, each behind its own lock, so that commits to different shards share a sync.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use settee_storage::{CommitToken, Result, Shard, ShardState, StorageError, Version};

use crate::size::RecentSizes;

#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) state: Option<Stored>,
    pub(crate) recent: RecentSizes,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) state: ShardState,
    pub(crate) is_dropped: bool,
    pub(crate) head: Option<Vec<u8>>,
}

#[derive(Debug, Default)]
pub(crate) struct Slots {
    slots: RwLock<HashMap<Shard, Arc<Mutex<Slot>>>>,
}

impl Slots {
    pub(crate) fn slot(&self, shard: Shard) -> Arc<Mutex<Slot>> {
        if let Some(slot) = self.slots.read().get(&shard) {
            return Arc::clone(slot);
        }
        Arc::clone(self.slots.write().entry(shard).or_default())
    }

    pub(crate) fn used(&self, shard: Shard) -> Option<Arc<Mutex<Slot>>> {
        self.slots.read().get(&shard).cloned()
    }

    pub(crate) fn forget_states(&self) {
        for slot in self.slots.read().values() {
            slot.lock().state = None;
        }
    }

    pub(crate) fn forget(&self, shard: Shard) {
        self.slots.write().remove(&shard);
    }
}

const STATE_BYTES: usize = 24;

/// Flag in the stored version, beyond the range of versions.
const DROPPED: u64 = 1 << 63;

impl Stored {
    pub(crate) fn dropped(self) -> Self {
        if self.is_dropped {
            return self;
        }
        let state = ShardState { version: Version(self.state.version.0 + 1), ..ShardState::default() };
        Self { state, is_dropped: true, head: None }
    }

    /// Shape: version (8 bytes), token (16 bytes), head.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(STATE_BYTES + self.head.as_ref().map_or(0, Vec::len));
        let dropped = if self.is_dropped { DROPPED } else { 0 };
        bytes.extend_from_slice(&(self.state.version.0 | dropped).to_be_bytes());
        bytes.extend_from_slice(&self.state.token.0.to_be_bytes());
        bytes.extend_from_slice(self.head.as_deref().unwrap_or_default());
        bytes
    }

    /// Absent bytes are the state of a shard that was never written.
    pub(crate) fn decode(bytes: Option<&[u8]>) -> Result<Self> {
        let Some(bytes) = bytes else {
            return Ok(Self::default());
        };
        let corrupt = || StorageError::Corrupt(format!("a shard's state has {} bytes", bytes.len()));
        let (version, rest) = bytes.split_first_chunk().ok_or_else(corrupt)?;
        let (token, head) = rest.split_first_chunk().ok_or_else(corrupt)?;
        let version = u64::from_be_bytes(*version);
        let state =
            ShardState { version: Version(version & !DROPPED), token: CommitToken(u128::from_be_bytes(*token)) };
        let is_dropped = version & DROPPED != 0;
        Ok(Self { state, is_dropped, head: (!head.is_empty()).then(|| head.to_vec()) })
    }
}
