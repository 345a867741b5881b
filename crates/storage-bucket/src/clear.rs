//! Removal of the entries of dropped shards, in the background. The library has no range deletions, so the entries are
//! deleted one by one. A marker in the store lets the removal continue after a restart.

use std::sync::Arc;

use settee_storage::Shard;
use slatedb::config::ScanOptions;
use slatedb::{Db, Error, WriteBatch};

use crate::keys;

/// Maximum number of entries of one batch.
const ENTRIES: usize = 2_000;

/// Bytes that a scan of a whole shard requests at once.
const READ_AHEAD_BYTES: usize = 1 << 20;

fn scan_options() -> ScanOptions {
    ScanOptions::new().with_read_ahead_bytes(READ_AHEAD_BYTES).with_cache_blocks(false)
}

/// Deletes all entries of a dropped shard. Errors are ignored, because the marker remains.
pub(crate) async fn clear(database: Arc<Db>, shard: Shard) {
    if let Err(error) = try_clear(&database, shard).await {
        tracing::debug!(shard = shard.0, %error, "entries of a dropped shard are removed after the next start");
    }
}

async fn try_clear(database: &Db, shard: Shard) -> Result<(), Error> {
    let (start, end) = keys::all(shard);
    let mut entries = database.scan_with_options(start..end, &scan_options()).await?;
    loop {
        let (mut batch, mut count) = (WriteBatch::new(), 0);
        while count < ENTRIES
            && let Some(entry) = entries.next().await?
        {
            batch.delete(&entry.key);
            count += 1;
        }
        if count < ENTRIES {
            batch.delete(keys::clearing(shard));
        }
        database.write(batch).await?;
        if count < ENTRIES {
            return Ok(());
        }
    }
}

/// Continues removals that an earlier process did not complete.
pub(crate) async fn resume(database: Arc<Db>) {
    let (start, end) = keys::all_clearing();
    let mut shards = Vec::new();
    match database.scan(start..end).await {
        Ok(mut markers) => {
            while let Ok(Some(marker)) = markers.next().await {
                shards.extend(keys::clearing_shard(&marker.key));
            }
        }
        Err(error) => tracing::debug!(%error, "the dropped shards cannot be read"),
    }
    for shard in shards {
        clear(Arc::clone(&database), shard).await;
    }
}

/// Returns the bytes of the keys and values of a shard.
pub(crate) async fn size(database: &Db, shard: Shard) -> Result<u64, Error> {
    let (start, end) = keys::all(shard);
    let mut entries = database.scan_with_options(start..end, &scan_options()).await?;
    let mut bytes = 0;
    while let Some(entry) = entries.next().await? {
        bytes += (entry.key.len().saturating_sub(keys::PREFIX) + entry.value.len()) as u64;
    }
    Ok(bytes)
}
