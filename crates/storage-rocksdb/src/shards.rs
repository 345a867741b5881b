//! The shards' versions in memory, each behind its own lock, and how they are stored. Commits hold the lock of
//! their shard only, so that commits to different shards reach the log together.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use settee_storage::{CommitToken, Result, Shard, ShardState, StorageError, Version};

use crate::size::Recent;

/// One shard.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// None until it was read from the store.
    pub(crate) state: Option<ShardState>,
    pub(crate) recent: Recent,
}

/// The shards that were used since the store was opened.
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

    /// Looks without making room for a shard that was not used.
    pub(crate) fn used(&self, shard: Shard) -> Option<Arc<Mutex<Slot>>> {
        self.slots.read().get(&shard).cloned()
    }

    pub(crate) fn forget(&self, shard: Shard) {
        self.slots.write().remove(&shard);
    }
}

const ENCODED: usize = 24;

pub(crate) fn encode(state: ShardState) -> [u8; ENCODED] {
    let mut bytes = [0; ENCODED];
    bytes[..8].copy_from_slice(&state.version.0.to_be_bytes());
    bytes[8..].copy_from_slice(&state.token.0.to_be_bytes());
    bytes
}

/// # Errors
/// When the bytes are no state. Absent bytes are the state of a shard that was never written.
pub(crate) fn decode(bytes: Option<&[u8]>) -> Result<ShardState> {
    let Some(bytes) = bytes else {
        return Ok(ShardState::default());
    };
    let split = bytes.split_first_chunk::<8>();
    let Some((version, token)) = split.and_then(|(version, token)| Some((version, token.try_into().ok()?))) else {
        return Err(StorageError::Corrupt(format!("a shard's state has {} bytes", bytes.len())));
    };
    Ok(ShardState { version: Version(u64::from_be_bytes(*version)), token: CommitToken(u128::from_be_bytes(token)) })
}
