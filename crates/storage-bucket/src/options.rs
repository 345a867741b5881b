//! [`Options`] of the engine, and the settings of the library that follow from them.

use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use slatedb::Settings;
use slatedb::config::{
    CompactionWorkerOptions, CompactorOptions, CompressionCodec, GarbageCollectorDirectoryOptions,
    GarbageCollectorOptions, ObjectStoreCacheOptions,
};

use crate::identity::ClusterId;

/// Size of a memtable of a group that is written as a file of the first level. Larger files cause fewer requests and
/// more memory.
const MEMTABLE_BYTES: usize = 16 << 20;

/// Bytes of a group in memory that are not in files yet, beyond which writers wait.
const UNFLUSHED_BYTES_MAX: usize = 64 << 20;

/// Files of the first level beyond which writers wait for a compaction.
const FIRST_LEVEL_FILES_MAX: usize = 32;

/// A part of the disk cache. One request fetches a part, which contains about 250 blocks.
const CACHE_PART_BYTES: usize = 1 << 20;

/// Age of an unused object before it is removed. Must exceed the longest read, and the time for which an earlier writer
/// that was suspended may continue.
const GARBAGE_MIN_AGE: Duration = Duration::from_secs(900);

/// Settings of an engine.
#[derive(Clone)]
pub struct Options {
    /// Random number of this process, and the id of a cluster that it creates.
    pub id: u128,
    /// Start time of this process in milliseconds of the Unix epoch.
    pub started_ms: u64,
    /// Name of this process for operators.
    pub name: String,
    /// Root of the HTTP interface of this process before it announces itself; may be empty.
    pub address: String,
    /// Cluster of this node. `None` if it has not used the store yet.
    pub cluster: Option<ClusterId>,
    /// Number of groups of shards of a store that this process creates.
    pub groups: NonZeroU32,
    /// Secret of a store that this process creates. Must be random.
    pub secret: [u8; 32],
    /// True if no other process may use the store at the same time.
    pub is_exclusive: bool,
    /// Duration after which another node takes over from a coordinator that does not respond.
    pub lease: Duration,
    /// Minimum time between two objects of the log. It limits the number of puts; a commit after a longer pause does
    /// not wait.
    pub commit_interval: Duration,
    /// Time after which commits with [`Durability::Buffered`](settee_storage::Durability::Buffered) are durable.
    pub flush_interval: Duration,
    /// Time after which an unused group is closed: an open group sends requests to the store, a closed one none. Its next
    /// operation opens it again.
    pub idle_time: Duration,
    /// Time for which replaced objects are kept, so that earlier states can be copied.
    pub history: Duration,
    /// Interval at which finished compactions are detected.
    pub poll_interval: Duration,
    /// Time after which a request to the store is repeated, and after which a commit that is not durable has an unknown
    /// outcome.
    pub timeout: Duration,
    /// Cache of blocks in memory.
    pub cache_bytes: u64,
    /// Directory and size of the cache on disk. Its contents can be removed while no engine uses it.
    pub disk_cache: Option<(PathBuf, usize)>,
}

impl fmt::Debug for Options {
    /// Contains no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            id: 0,
            started_ms: 0,
            name: String::new(),
            address: String::new(),
            cluster: None,
            groups: NonZeroU32::MIN,
            secret: [0; 32],
            is_exclusive: false,
            lease: Duration::from_secs(3),
            commit_interval: Duration::from_millis(50),
            flush_interval: Duration::from_secs(1),
            idle_time: Duration::from_secs(120),
            history: Duration::from_secs(24 * 3600),
            poll_interval: Duration::from_secs(10),
            timeout: Duration::from_secs(30),
            cache_bytes: 128 << 20,
            disk_cache: None,
        }
    }
}

impl Options {
    /// `is_past` disables what changes objects in the background.
    pub(crate) fn settings(&self, is_past: bool) -> Settings {
        let mut cache = ObjectStoreCacheOptions::default();
        if let Some((directory, bytes)) = &self.disk_cache {
            cache.root_folder = Some(directory.clone());
            cache.max_cache_size_bytes = Some(*bytes);
            cache.part_size_bytes = CACHE_PART_BYTES;
        }
        let compression = Some(CompressionCodec::Lz4);
        let compactor = CompactorOptions {
            poll_interval: self.poll_interval,
            worker: Some(CompactionWorkerOptions {
                compactions_poll_interval: self.poll_interval,
                compression_codec: compression,
                max_concurrent_compactions: 2,
                ..CompactionWorkerOptions::default()
            }),
            ..CompactorOptions::default()
        };
        Settings {
            flush_interval: Some(self.flush_interval),
            manifest_poll_interval: self.poll_interval,
            l0_sst_size_bytes: MEMTABLE_BYTES,
            max_unflushed_bytes: UNFLUSHED_BYTES_MAX,
            l0_max_ssts: FIRST_LEVEL_FILES_MAX,
            l0_max_ssts_per_key: FIRST_LEVEL_FILES_MAX,
            compression_codec: compression,
            compactor_options: (!is_past).then_some(compactor),
            // Groups remove unused objects themselves, because the library removes all of them.
            garbage_collector_options: None,
            object_store_cache_options: cache,
            ..Settings::default()
        }
    }
}

/// `is_directory` disables what a directory does not support: conditional replacement of objects.
pub(crate) fn garbage(is_directory: bool) -> GarbageCollectorOptions {
    let unused = || GarbageCollectorDirectoryOptions { interval: None, min_age: GARBAGE_MIN_AGE, dry_run: false };
    GarbageCollectorOptions {
        manifest_options: Some(unused()),
        wal_options: Some(unused()),
        compacted_options: Some(unused()),
        compactions_options: Some(unused()),
        boundary_files_enabled: !is_directory,
        ..GarbageCollectorOptions::default()
    }
}
