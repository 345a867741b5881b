//! Selection and opening of storage engines.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use settee_couch_files::directory::is_couchdb;
use settee_database::{SharedSettings, read_shared_settings};
use settee_storage::{Engine, StorageError, durable};
use settee_storage_postgres::PostgresEngine;
pub use settee_storage_rocksdb::files::{Checked, Depth, Fault, Salvaged};
use settee_storage_rocksdb::{Inspected, Log, Options, RocksEngine, files};

use crate::{environment, migrate, names, storage, verify, version};

pub const RESERVE: &str = "reserve";

pub const SPILL: &str = "spill";

/// Commits are kept for log shipping for this time. If shipping is interrupted for longer, it restarts with a backup.
const LOG_KEPT_S: u64 = 600;

pub fn open(data: &Path, files_max: u16) -> anyhow::Result<Arc<dyn Engine>> {
    prepare(data)?.open(files_max)
}

/// An inspected data directory: its engine can be opened with every acknowledged commit, or created.
pub struct Prepared {
    data: PathBuf,
    inspected: Inspected,
}

/// Modifies no file. Fails if a store cannot be opened completely, or the directory belongs to another program.
pub fn prepare(data: &Path) -> anyhow::Result<Prepared> {
    storage::refuse_elsewhere(data)?;
    let directory = data.join(verify::ENGINE);
    let inspected = RocksEngine::inspect(&directory).map_err(|error| refused(data, error))?;
    if inspected.is_new() {
        refuse_to_create(data)?;
    }
    Ok(Prepared { data: data.to_owned(), inspected })
}

/// Retries [`prepare`], because a running server may remove files between two reads.
pub fn prepare_beside(data: &Path) -> anyhow::Result<()> {
    const ATTEMPTS: u32 = 3;
    let mut prepared = prepare(data);
    for _ in 1..ATTEMPTS {
        if prepared.is_err() {
            prepared = prepare(data);
        }
    }
    prepared.map(drop)
}

fn refused(data: &Path, error: StorageError) -> anyhow::Error {
    let data = data.display();
    let hint = format!(
        "the data in {data} cannot be opened completely, and nothing was changed.\n\
         Move the file back if it was moved, or mount its volume. Otherwise restore a backup:\n  \
         settee restore --from BACKUP --data NEW\n\
         or create a new data directory from everything that can be read:\n  \
         settee salvage --data {data} --to NEW\n\
         `settee verify --data {data}` lists the damage"
    );
    anyhow::Error::new(error).context(hint)
}

/// Fails if a store existed before, or if another program has files in the directory.
fn refuse_to_create(data: &Path) -> anyhow::Result<()> {
    let shown = data.display();
    let marks =
        [version::FILE, names::FILE].into_iter().chain((!data.join(verify::ENGINE).exists()).then_some(RESERVE));
    if let Some(mark) = marks.into_iter().find(|name| data.join(name).exists()) {
        bail!(
            "{shown}/{ENGINE} is missing or empty, and {shown}/{mark} shows that a store existed here. Nothing was changed.\n\
             Mount its volume, or move it back. Otherwise restore a backup:\n  \
             settee restore --from BACKUP --data NEW\n\
             To start with an empty store, choose an empty directory with --data.",
            ENGINE = verify::ENGINE,
        );
    }
    if is_couchdb(data) {
        bail!(
            "{shown} contains databases of CouchDB, and nothing was changed. Start with another directory, then import them:\n  \
             settee serve --data {shown}/settee\n  {}",
            migrate::import_command(data, None, migrate::DEFAULT_PORT)
        );
    }
    let Ok(entries) = fs::read_dir(data) else { return Ok(()) };
    let names: Vec<String> = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    // A configuration marks the directory as one for a server, whatever other files it contains.
    if names.iter().any(|name| matches!(name.as_str(), "local.ini" | "local.d")) {
        return Ok(());
    }
    let is_expected = |name: &str| {
        name.starts_with('.')
            || matches!(name, "lock" | "lost+found" | "log" | verify::ENGINE | SPILL)
            || name.ends_with(".log")
    };
    if let Some(other) = names.iter().find(|name| !is_expected(name)) {
        bail!(
            "{shown} contains other files, such as {other}, but no store: a store is created only in an empty directory.\n\
             Choose one with --data, or write a local.ini there first."
        );
    }
    Ok(())
}

impl Prepared {
    pub fn open(self, files_max: u16) -> anyhow::Result<Arc<dyn Engine>> {
        self.open_with(files_max, Log::Discarded)
    }

    pub fn open_with_log(self, files_max: u16) -> anyhow::Result<Arc<dyn Engine>> {
        self.open_with(files_max, Log::Kept { clock_us: environment::now_us, seconds: LOG_KEPT_S })
    }

    fn open_with(self, files_max: u16, log: Log) -> anyhow::Result<Arc<dyn Engine>> {
        let Self { data, inspected } = self;
        let directory = data.join(verify::ENGINE);
        let is_new = inspected.is_new();
        if !is_new {
            version::mark(&data)?;
        }
        if let Some(torn) = inspected.torn() {
            tracing::warn!(torn, "a power loss left incomplete writes that were not acknowledged; they are dropped");
        }
        durable::create_directories(&directory)
            .with_context(|| format!("{} cannot be created", directory.display()))?;
        // A previous start may have been killed before it synced the parents of the engine's directory.
        durable::sync_directory(&data).with_context(|| format!("{} cannot be synced", data.display()))?;
        let disk_bytes =
            rustix::fs::statvfs(&data).map_or(u64::MAX, |disk| disk.f_blocks.saturating_mul(disk.f_frsize));
        let options = Options { max_open_files: files_max, log, ..Options::for_disk(disk_bytes, data.join(RESERVE)) };
        let opened = inspected.open(&options);
        let engine = opened.map_err(|error| match error {
            StorageError::Corrupt(_) => refused(&data, error),
            _ => anyhow::Error::new(error).context(format!("the data in {} cannot be opened", directory.display())),
        })?;
        if is_new {
            version::mark(&data)?;
        }
        if let Some(damage) = engine.damage() {
            tracing::error!(
                damage,
                "a part of the data is damaged; `settee verify` lists it; all other data is served"
            );
        }
        Ok(Arc::new(engine))
    }
}

pub fn open_postgres(options: &settee_storage_postgres::Options, id: [u8; 16]) -> anyhow::Result<Arc<dyn Engine>> {
    Ok(Arc::new(PostgresEngine::open(options, id)?))
}

/// The server that opens a store on object storage.
pub struct Opener<'a> {
    /// Its data directory.
    pub data: &'a Path,
    /// Its name for operators.
    pub name: &'a str,
    /// Random id of the process, and of a cluster that it creates.
    pub id: [u8; 16],
    /// Random secret of a store that it creates.
    pub secret: [u8; 32],
    /// Messages to other servers.
    pub peers: Arc<settee_api::PeerClient>,
}

/// Opens a store on object storage. Also returns its location for operators.
#[cfg(feature = "bucket")]
pub fn open_bucket(
    configuration: &dyn settee_settings::Settings,
    url: &str,
    opener: Opener<'_>,
) -> anyhow::Result<(Arc<dyn Engine>, String)> {
    crate::bucket::open(configuration, url, opener)
}

/// Opens a store on object storage for a command. Fails if a server uses it.
#[cfg(feature = "bucket")]
pub fn open_bucket_for_command(url: &str, id: [u8; 16], secret: [u8; 32]) -> anyhow::Result<Arc<dyn Engine>> {
    crate::bucket::open_for_command(url, id, secret)
}

/// Opens the state of a store on object storage of a second of the Unix epoch, or the newest one. Servers
/// may use it. Also returns the second.
#[cfg(feature = "bucket")]
pub fn open_bucket_at(url: &str, time_s: Option<u64>) -> anyhow::Result<(Arc<dyn Engine>, u64)> {
    crate::bucket::open_at(url, time_s)
}

#[cfg(not(feature = "bucket"))]
pub fn open_bucket(
    _: &dyn settee_settings::Settings,
    url: &str,
    _: Opener<'_>,
) -> anyhow::Result<(Arc<dyn Engine>, String)> {
    Err(without_buckets(url))
}

#[cfg(not(feature = "bucket"))]
pub fn open_bucket_for_command(url: &str, _: [u8; 16], _: [u8; 32]) -> anyhow::Result<Arc<dyn Engine>> {
    Err(without_buckets(url))
}

#[cfg(not(feature = "bucket"))]
pub fn open_bucket_at(url: &str, _: Option<u64>) -> anyhow::Result<(Arc<dyn Engine>, u64)> {
    Err(without_buckets(url))
}

#[cfg(not(feature = "bucket"))]
fn without_buckets(url: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "{url} cannot be used: this program was built without object storage. Install a package, or build with \
         --features bucket"
    )
}

/// Reads the settings shared by the nodes on a PostgreSQL, without writing anything.
pub fn shared_settings(options: &settee_storage_postgres::Options) -> anyhow::Result<Option<SharedSettings>> {
    read_shared_settings(|shard, space, key| Ok(settee_storage_postgres::read_value(options, shard, space, key)?))
}

pub fn open_read_only(directory: &Path) -> anyhow::Result<Arc<dyn Engine>> {
    let engine = RocksEngine::open_read_only(directory, &Options::default())
        .with_context(|| format!("the data in {} cannot be opened", directory.display()))?;
    Ok(Arc::new(engine))
}

pub fn check(directory: &Path, depth: Depth, progress: &mut dyn FnMut(u64, u64)) -> anyhow::Result<Checked> {
    files::check(directory, depth, progress).with_context(|| format!("{} cannot be read", directory.display()))
}

pub fn salvage(from: &Path, to: &Path, progress: &mut dyn FnMut(u64)) -> anyhow::Result<Salvaged> {
    files::salvage(from, to, &Options::default(), progress).context("the new data cannot be written")
}
