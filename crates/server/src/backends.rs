//! The storage engines that can be chosen.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use settee_database::{SharedSettings, read_shared_settings};
use settee_storage::{Engine, StorageError, durable};
use settee_storage_postgres::PostgresEngine;
pub(crate) use settee_storage_rocksdb::files::{Checked, Depth, Fault, Salvaged};
use settee_storage_rocksdb::{Log, Options, RocksEngine, files};

use crate::{environment, storage};

/// The file in the data directory that is kept for its room.
pub(crate) const RESERVE: &str = "reserve";

/// How long commits are kept for those who send them elsewhere: who cannot send for longer begins anew, with a backup.
const LOG_KEPT_S: u64 = 600;

/// Opens the engine of the data directory `data`, which may keep so many files open.
pub(crate) fn open(data: &Path, files_max: u16) -> anyhow::Result<Arc<dyn Engine>> {
    open_with(data, files_max, Log::Discarded)
}

/// The same, and keeps the log of commits.
pub(crate) fn open_with_log(data: &Path, files_max: u16) -> anyhow::Result<Arc<dyn Engine>> {
    open_with(data, files_max, Log::Kept { clock_us: environment::now_us, seconds: LOG_KEPT_S })
}

fn open_with(data: &Path, files_max: u16, log: Log) -> anyhow::Result<Arc<dyn Engine>> {
    storage::refuse_elsewhere(data)?;
    let directory = data.join("engine");
    durable::create_directories(&directory).with_context(|| format!("{} cannot be made", directory.display()))?;
    // An engine syncs what is in its directory, and nothing above: the directory may be there since a start that was
    // killed before it was synced.
    durable::sync_directory(data).with_context(|| format!("{} cannot be synced", data.display()))?;
    let disk_bytes = rustix::fs::statvfs(data).map_or(u64::MAX, |disk| disk.f_blocks.saturating_mul(disk.f_frsize));
    let options = Options { max_open_files: files_max, log, ..Options::for_disk(disk_bytes, data.join(RESERVE)) };
    let opened = RocksEngine::open(&directory, &options);
    let hint = match &opened {
        Err(StorageError::Corrupt(_)) => {
            "\nSee what is damaged with `settee verify`; restore a backup, or get everything that can be read out with `settee salvage`"
        }
        _ => "",
    };
    let engine = opened.with_context(|| format!("the data in {} cannot be opened{hint}", directory.display()))?;
    if let Some(damage) = engine.damage() {
        tracing::error!(damage, "a part of the data is damaged; `settee verify` says which, everything else is served");
    }
    Ok(Arc::new(engine))
}

/// Opens the engine on a PostgreSQL, for the server that `id` names.
pub(crate) fn open_postgres(
    options: &settee_storage_postgres::Options,
    id: [u8; 16],
) -> anyhow::Result<Arc<dyn Engine>> {
    Ok(Arc::new(PostgresEngine::open(options, id)?))
}

/// The settings that nodes on a PostgreSQL share, if there are any; read without a trace.
pub(crate) fn shared_settings(options: &settee_storage_postgres::Options) -> anyhow::Result<Option<SharedSettings>> {
    read_shared_settings(|shard, space, key| Ok(settee_storage_postgres::look_up(options, shard, space, key)?))
}

/// Opens it to read it, without a trace.
pub(crate) fn open_read_only(directory: &Path) -> anyhow::Result<Arc<dyn Engine>> {
    let engine = RocksEngine::open_read_only(directory, &Options::default())
        .with_context(|| format!("the data in {} cannot be opened", directory.display()))?;
    Ok(Arc::new(engine))
}

/// Compares the engine's files in `directory` with their checksums.
pub(crate) fn check(directory: &Path, depth: Depth, progress: &mut dyn FnMut(u64, u64)) -> anyhow::Result<Checked> {
    files::check(directory, depth, progress).with_context(|| format!("{} cannot be read", directory.display()))
}

/// Makes engine files in `to` of what can be read of those in `from`.
pub(crate) fn salvage(from: &Path, to: &Path, progress: &mut dyn FnMut(u64)) -> anyhow::Result<Salvaged> {
    files::salvage(from, to, &Options::default(), progress).context("the new data cannot be written")
}
