//! The cached states of shards, each behind its own lock, and their stored form. A commit locks only its shard, so that
//! concurrent commits to different shards share an object of the log.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::{Mutex, RwLock};
use settee_storage::{CommitToken, Result, Shard, ShardState, StorageError, Version};
use slatedb::DbSnapshot;

/// A shard in memory.
#[derive(Default)]
pub(crate) struct Slot {
    /// The last commit. Held during a commit.
    pub(crate) stored: Mutex<Option<Stored>>,
    /// Locked after [`Self::stored`], and only for short operations.
    pub(crate) pending: Mutex<Option<Pending>>,
    /// Number of the last buffered write.
    pub(crate) buffered: AtomicU64,
}

/// A commit that is applied but not durable. Readers do not see it, because a reader could act on a commit that the end
/// of the process loses.
pub(crate) struct Pending {
    /// State before the first commit that is not durable.
    pub(crate) before: Arc<DbSnapshot>,
    /// Number of the last write; `None` while it is being applied.
    pub(crate) number: Option<u64>,
}

impl Pending {
    pub(crate) fn is_durable(&self, durable: u64) -> bool {
        self.number.is_some_and(|number| number <= durable)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) state: ShardState,
    pub(crate) is_dropped: bool,
    pub(crate) head: Option<Vec<u8>>,
    /// Bytes of the entries that were written since they were last counted.
    pub(crate) bytes: u64,
}

#[derive(Default)]
pub(crate) struct Slots {
    slots: RwLock<HashMap<Shard, Arc<Slot>>>,
}

impl Slots {
    pub(crate) fn slot(&self, shard: Shard) -> Arc<Slot> {
        if let Some(slot) = self.slots.read().get(&shard) {
            return Arc::clone(slot);
        }
        Arc::clone(self.slots.write().entry(shard).or_default())
    }

    pub(crate) fn shards(&self) -> Vec<Shard> {
        self.slots.read().keys().copied().collect()
    }
}

const STATE_BYTES: usize = 32;

/// Flag in the stored version, beyond the range of versions.
const DROPPED: u64 = 1 << 63;

impl Stored {
    pub(crate) fn dropped(&self) -> Self {
        let state = ShardState { version: Version(self.state.version.0 + 1), ..ShardState::default() };
        Self { state, is_dropped: true, head: None, bytes: 0 }
    }

    /// Shape: version (8 bytes), token (16 bytes), size (8 bytes), head.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(STATE_BYTES + self.head.as_ref().map_or(0, Vec::len));
        let dropped = if self.is_dropped { DROPPED } else { 0 };
        bytes.extend_from_slice(&(self.state.version.0 | dropped).to_be_bytes());
        bytes.extend_from_slice(&self.state.token.0.to_be_bytes());
        bytes.extend_from_slice(&self.bytes.to_be_bytes());
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
        let (token, rest) = rest.split_first_chunk().ok_or_else(corrupt)?;
        let (size, head) = rest.split_first_chunk().ok_or_else(corrupt)?;
        let version = u64::from_be_bytes(*version);
        let state =
            ShardState { version: Version(version & !DROPPED), token: CommitToken(u128::from_be_bytes(*token)) };
        let head = (!head.is_empty()).then(|| head.to_vec());
        Ok(Self { state, is_dropped: version & DROPPED != 0, head, bytes: u64::from_be_bytes(*size) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_decoded_as_they_were_encoded() {
        let live = Stored {
            state: ShardState { version: Version(5_000_000_000), token: CommitToken(u128::MAX - 3) },
            is_dropped: false,
            head: Some(b"head".to_vec()),
            bytes: 1 << 40,
        };
        for stored in [Stored::default(), live.clone(), live.dropped()] {
            assert_eq!(Stored::decode(Some(&stored.encode())).map_err(|error| error.to_string()), Ok(stored));
        }
        assert_eq!(live.dropped().state.version, Version(5_000_000_001));
        assert_eq!(Stored::decode(None).map_err(|error| error.to_string()), Ok(Stored::default()));
        Stored::decode(Some(b"short")).expect_err("it is too short");
    }
}
