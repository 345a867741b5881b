//! All tuned options of the store, each with its reason, and [`Options`], those that a server may choose. The goals, in
//! this order: no acknowledged write is lost; memory is bounded and an idle store needs almost none; random keys are as
//! efficient as ascending ones; a few cores are sufficient.

use std::path::PathBuf;

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, DBRecoveryMode, LogLevel,
    WriteBufferManager,
};
use settee_storage::Keyspace;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// The column family of the shards' versions. It is separate from the keyspaces, so that scans do not include it.
pub(crate) const STATE: &str = "state";

#[derive(Clone, Debug)]
pub struct Options {
    pub block_cache_bytes: usize,
    pub write_buffer_bytes: usize,
    pub background_jobs: u16,
    pub max_open_files: u16,
    /// Enables automatic compactions and the garbage collection of blob files. A damaged store is opened without them;
    /// those of undamaged column families are enabled afterwards.
    pub compacts: bool,
    pub tickers: Tickers,
    /// Free space of the disk below which the store refuses growth.
    pub free_min_bytes: u64,
    /// Path and size of the reserve, a file that only occupies space and is removed when space is needed.
    pub reserve: Option<(PathBuf, u64)>,
    pub log: Log,
}

/// Retention of the commit log, for backups that ship it.
#[derive(Clone, Copy, Debug)]
pub enum Log {
    Discarded,
    /// A log is kept for this time, and each commit contains its time.
    Kept {
        clock_us: fn() -> u64,
        seconds: u64,
    },
}

impl Options {
    /// Options for a disk of `bytes`: memtables that can be flushed when the disk is full, and space for that.
    #[must_use]
    pub fn for_disk(bytes: u64, reserve: PathBuf) -> Self {
        let buffer = (bytes / 32).clamp(2 * MIB as u64, 64 * MIB as u64);
        Self {
            write_buffer_bytes: usize::try_from(buffer).unwrap_or(64 * MIB),
            free_min_bytes: 2 * buffer,
            reserve: Some((reserve, buffer.max(4 * MIB as u64))),
            ..Self::default()
        }
    }
}

/// Statistics for [`RocksEngine::wal_syncs`](crate::RocksEngine::wal_syncs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tickers {
    Off,
    /// Costs a few percent of every operation.
    On,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            block_cache_bytes: 64 * MIB,
            write_buffer_bytes: 64 * MIB,
            background_jobs: 2,
            max_open_files: 512,
            compacts: true,
            tickers: Tickers::Off,
            free_min_bytes: 0,
            reserve: None,
            log: Log::Discarded,
        }
    }
}

pub(crate) struct Tuned {
    pub(crate) database: rocksdb::Options,
    pub(crate) columns: Vec<ColumnFamilyDescriptor>,
    pub(crate) cache: Cache,
    pub(crate) buffers: WriteBufferManager,
}

impl Tuned {
    pub(crate) fn new(options: &Options) -> Self {
        // Lookups in the clock cache need no lock; 0 lets it estimate the size of entries.
        let cache = Cache::new_hyper_clock_cache(options.block_cache_bytes, 0);
        // All column families share the limit. RocksDB itself slows writers when flushes fall behind.
        let buffers = WriteBufferManager::new_write_buffer_manager(options.write_buffer_bytes, false);
        let database = database(options, &buffers);
        let mut columns: Vec<_> = Keyspace::ALL
            .iter()
            .map(|space| ColumnFamilyDescriptor::new(space.name(), keyspace(*space, options, &cache)))
            .collect();
        // The default column family must exist and stays empty.
        for name in [STATE, "default"] {
            columns.push(ColumnFamilyDescriptor::new(name, column(options, &table(&cache, 4 * KIB))));
        }
        Self { database, columns, cache, buffers }
    }

    pub(crate) fn bare(options: &Options, space: Keyspace) -> Self {
        let mut tuned = Self::new(options);
        tuned.columns = vec![ColumnFamilyDescriptor::new("default", keyspace(space, options, &tuned.cache))];
        tuned
    }
}

fn database(options: &Options, buffers: &WriteBufferManager) -> rocksdb::Options {
    let mut database = rocksdb::Options::default();
    database.create_if_missing(true);
    database.create_missing_column_families(true);

    // Recovery stops at the first incomplete record. A sync covers all preceding records, so all synced commits
    // precede it, and the recovered commits are a prefix.
    database.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    // Damage is reported on read instead of being worked around.
    database.set_paranoid_checks(true);
    // Damage below a memory mapping kills the process, an error of a read does not.
    database.set_allow_mmap_reads(false);
    database.set_allow_mmap_writes(false);

    database.set_write_buffer_manager(buffers);
    // A keyspace that is rarely written keeps log files alive until it is flushed. This bounds the log and thereby
    // the time of a recovery.
    database.set_max_total_wal_size(4 * options.write_buffer_bytes as u64);
    // Each open file has a table reader of a few KB; indexes and filters are in the block cache.
    database.set_max_open_files(i32::from(options.max_open_files));
    // Otherwise opening the store reads the properties of every file, which is slow with many files.
    database.set_skip_stats_update_on_db_open(true);

    database.set_max_background_jobs(i32::from(options.background_jobs));
    // Large sorted files are synced incrementally instead of in one burst, which would delay the syncs of commits.
    database.set_bytes_per_sync(MIB as u64);
    database.set_wal_bytes_per_sync(MIB as u64);
    database.set_compaction_readahead_size(2 * MIB);
    // A reader that closes the last handle of an obsolete file leaves the removal to a background thread.
    database.set_avoid_unnecessary_blocking_io(true);

    // The information log is only for debugging. Periodic statistics would wake the disk every few minutes.
    database.set_log_level(LogLevel::Warn);
    database.set_keep_log_file_num(4);
    database.set_max_log_file_size(4 * MIB);
    database.set_stats_dump_period_sec(0);
    database.set_stats_persist_period_sec(0);
    // Size at which the manifest is rewritten; the default of 1 GB would be read at every start.
    database.set_max_manifest_file_size(16 * MIB);
    if let Log::Kept { seconds, .. } = options.log {
        // Obsolete log files are archived for this time.
        database.set_wal_ttl_seconds(seconds);
    }
    if options.tickers == Tickers::On {
        database.enable_statistics();
    }
    database
}

fn keyspace(space: Keyspace, options: &Options, cache: &Cache) -> rocksdb::Options {
    match space {
        Keyspace::Catalog => with_large_values(column(options, &table(cache, 4 * KIB)), options),
        Keyspace::Documents => with_large_values(with_point_lookups(options, cache), options),
        Keyspace::Local | Keyspace::IndexEntries => with_point_lookups(options, cache),
        Keyspace::Sequence => sequence(options, cache),
        Keyspace::IndexNodes => index_nodes(options, cache),
        Keyspace::Bodies => bodies(options, cache),
        Keyspace::Attachments => attachments(options, cache),
    }
}

fn column(options: &Options, table: &BlockBasedOptions) -> rocksdb::Options {
    let mut column = rocksdb::Options::default();
    column.set_block_based_table_factory(table);
    column.set_disable_auto_compactions(!options.compacts);
    // The shared limit applies before this one if several keyspaces are written concurrently.
    column.set_write_buffer_size(options.write_buffer_bytes / 2);
    // One memtable is written, one is being flushed, and one more is filled before writers wait.
    column.set_max_write_buffer_number(3);
    // Memtables of rarely written keyspaces stay small.
    column.set_arena_block_size(256 * KIB);
    // Levels are sized from the last one up, so overwritten entries use at most about a tenth of the space.
    column.set_level_compaction_dynamic_level_bytes(true);
    column.set_max_bytes_for_level_base(128 * MIB as u64);
    column.set_target_file_size_base(32 * MIB as u64);
    // LZ4 costs less than writing the bytes that it saves.
    column.set_compression_type(DBCompressionType::Lz4);
    column
}

fn table(cache: &Cache, block_size: usize) -> BlockBasedOptions {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_block_size(block_size);
    // Indexes and filters are charged to the cache, so memory is bounded. They are partitioned, so that a lookup loads
    // 4 KB instead of the filter of a whole file.
    table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    table.set_partition_filters(true);
    table.set_metadata_block_size(4 * KIB);
    table.set_cache_index_and_filter_blocks(true);
    table.set_cache_index_and_filter_blocks_with_high_priority(true);
    table.set_pin_top_level_index_and_filter(true);
    table
}

/// Keyspaces with lookups of keys that are often absent. A filter, also of the last level, answers these.
fn with_point_lookups(options: &Options, cache: &Cache) -> rocksdb::Options {
    let mut table = table(cache, 8 * KIB);
    // One false positive in a hundred.
    table.set_bloom_filter(10.0, false);
    table.set_whole_key_filtering(true);
    let mut column = column(options, &table);
    // The memtable has a filter too, because a search in its skip list for every new id is expensive.
    column.set_memtable_whole_key_filtering(true);
    column.set_memtable_prefix_bloom_ratio(0.02);
    column
}

/// Revision trees. Large values stay out of the block cache, because a few of them would evict thousands of others.
fn with_large_values(mut column: rocksdb::Options, options: &Options) -> rocksdb::Options {
    blobs(&mut column, options, 32 * KIB);
    column
}

/// Tree nodes are read one by one and have several KB each.
fn index_nodes(options: &Options, cache: &Cache) -> rocksdb::Options {
    let mut column = column(options, &table(cache, 16 * KIB));
    // A load writes nodes in the order of their keys, so the files of the first level are disjoint and do not slow
    // reads. Otherwise all writers would be stalled.
    column.set_level_zero_slowdown_writes_trigger(256);
    column.set_level_zero_stop_writes_trigger(512);
    // The keys of nodes are short, and flushes compete with an index build, so only compactions compress.
    column.set_compression_per_level(&[DBCompressionType::None, DBCompressionType::Lz4]);
    column
}

/// The keyspace is read in order, and contains many deletions: a changed document leaves its previous sequence.
fn sequence(options: &Options, cache: &Cache) -> rocksdb::Options {
    let mut column = column(options, &table(cache, 16 * KIB));
    // Files with ranges in which half of the entries are deletions are compacted early, because scans step through
    // these.
    column.add_compact_on_deletion_collector_factory(8192, 4096, 0.5);
    column
}

/// Bodies are read in order or singly; large ones are stored in blob files, which compactions do not rewrite.
fn bodies(options: &Options, cache: &Cache) -> rocksdb::Options {
    let mut column = column(options, &table(cache, 16 * KIB));
    // The last level holds nearly all small bodies and is rarely written, and JSON compresses well.
    column.set_bottommost_compression_type(DBCompressionType::Zstd);
    blobs(&mut column, options, 16 * KIB);
    column
}

/// Chunks of up to 100 KB that are written once.
fn attachments(options: &Options, cache: &Cache) -> rocksdb::Options {
    let mut column = column(options, &table(cache, 16 * KIB));
    blobs(&mut column, options, KIB);
    // An upload can be much faster than the disk. With small memtables other writers are blocked only for a short time.
    column.set_write_buffer_size(options.write_buffer_bytes / 8);
    // Small memtables produce many blob files, and a compaction reads ahead in each file from which it moves blobs.
    column.set_blob_compaction_readahead_size(256 * KIB as u64);
    column
}

fn blobs(column: &mut rocksdb::Options, options: &Options, min_blob_size: usize) {
    column.set_enable_blob_files(true);
    column.set_min_blob_size(min_blob_size as u64);
    column.set_blob_file_size(64 * MIB as u64);
    // Blobs are read one by one, so the speed of LZ4 matters; ZSTD would halve the rate of a scan.
    column.set_blob_compression_type(DBCompressionType::Lz4);
    // Compactions move live blobs out of the oldest quarter of the blob files, if half of it is garbage.
    column.set_enable_blob_gc(options.compacts);
    column.set_blob_gc_age_cutoff(0.25);
    column.set_blob_gc_force_threshold(0.5);
    column.set_blob_compaction_readahead_size(2 * MIB as u64);
}
