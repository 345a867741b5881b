//! [`restore`]: writes a part of a copy of a shard, which keeps the version of the original.

use std::sync::atomic::Ordering;

use rocksdb::{WriteBatch, WriteOptions};
use settee_storage::{Batch, Result, Shard, ShardState, StorageError};

use crate::shards::Stored;
use crate::{RocksEngine, fill, keys, state_column};

pub(crate) fn restore(engine: &RocksEngine, shard: Shard, state: ShardState, batch: &Batch) -> Result<()> {
    batch.check()?;
    engine.admit(batch.purpose())?;
    let store = engine.store()?;
    let mut writes = WriteBatch::with_capacity_bytes(batch.size_bytes() + 32 * (batch.len() + 1));
    engine.stamp(&mut writes);
    fill(&mut writes, &store.database, shard, batch);
    let slot = engine.slots.slot(shard);
    let mut slot = slot.lock();
    engine.check_store()?;
    let current = RocksEngine::load_state(&store, shard, &mut slot)?;
    if current.is_dropped {
        return Err(StorageError::Dropped);
    }
    let head = batch.head().map(<[u8]>::to_vec).or_else(|| current.head.clone());
    let stored = Stored { state, is_dropped: false, head };
    writes.put_cf(state_column(&store.database), keys::prefix(shard), stored.encode());
    let bytes = writes.size_in_bytes() as u64;
    store.database.write_opt(writes, &WriteOptions::default()).map_err(|error| engine.failed(error))?;
    slot.state = Some(stored);
    let total = engine.written.fetch_add(bytes, Ordering::Relaxed) + bytes;
    slot.recent.wrote(total, bytes);
    engine.space.wrote(bytes);
    Ok(())
}
