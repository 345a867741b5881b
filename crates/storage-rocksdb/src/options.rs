//! Every tuned option of the store in one place, each with its reason, and [`Options`], what a server may
//! choose. It opens nothing.
//!
//! The aims, in this order: nothing acknowledged is lost; memory is bounded and an idle store costs almost
//! none; random keys cost what ascending ones cost; a few cores are enough.

use std::path::PathBuf;

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, DBRecoveryMode, LogLevel,
    WriteBufferManager,
};
use settee_storage::Keyspace;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// The column family of the shards' versions: apart from the keyspaces, so that no scan meets them.
pub(crate) const STATE: &str = "state";

/// The options that a server may choose. The default suits a small machine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Most bytes of decompressed blocks, indexes and filters kept for reading. The cache takes memory only as it
    /// fills.
    pub block_cache_bytes: usize,
    /// Most bytes of fresh writes kept in memory before they go to sorted files, for all keyspaces together.
    pub write_buffer_bytes: usize,
    /// Threads for flushes and compactions.
    pub background_jobs: u16,
    /// Most files kept open.
    pub max_open_files: u16,
    /// Whether compactions move large values out of old files, which reads them: not when some of these are damaged.
    pub moves_blobs: bool,
    /// Whether the store counts what it does.
    pub tickers: Tickers,
    /// Free space of the disk below which the store does not grow any more.
    pub free_min_bytes: u64,
    /// A file that is kept for its room alone, and given up when there is less than that: its path and its length.
    pub reserve: Option<(PathBuf, u64)>,
    /// Whether the log is kept for those who copy it.
    pub log: Log,
}

/// What becomes of the log of commits.
#[derive(Clone, Copy, Debug)]
pub enum Log {
    /// It goes when what is in it has been written elsewhere.
    Discarded,
    /// It is kept for some time longer, and each commit has its time.
    Kept {
        /// The time in microseconds of the Unix epoch.
        clock_us: fn() -> u64,
        /// For how many seconds.
        seconds: u64,
    },
}

impl Options {
    /// The options for a disk of so many bytes: buffers that can be written out when it is full, and room for doing so.
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

/// Whether the store counts what it does, for [`RocksEngine::wal_syncs`](crate::RocksEngine::wal_syncs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tickers {
    /// No counting.
    Off,
    /// Counts, which costs a few percent of every operation.
    On,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            block_cache_bytes: 64 * MIB,
            write_buffer_bytes: 64 * MIB,
            background_jobs: 2,
            max_open_files: 512,
            moves_blobs: true,
            tickers: Tickers::Off,
            free_min_bytes: 0,
            reserve: None,
            log: Log::Discarded,
        }
    }
}

/// The options that the store is opened with.
pub(crate) struct Tuned {
    pub(crate) database: rocksdb::Options,
    pub(crate) columns: Vec<ColumnFamilyDescriptor>,
    pub(crate) cache: Cache,
    pub(crate) buffers: WriteBufferManager,
}

impl Tuned {
    pub(crate) fn new(options: &Options) -> Self {
        // The clock cache takes no lock to look up, and its table grows as it fills; 0 lets it find out how large
        // entries are.
        let cache = Cache::new_hyper_clock_cache(options.block_cache_bytes, 0);
        // One limit for the memtables of all column families. Writers are not stalled at the limit, because the
        // store itself slows them when flushes fall behind.
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

    /// Options of a store that has only a default column family, tuned like `space`.
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

    // Recovery stops at the first record that is not whole. A sync covers everything before it, so whatever was
    // synced is before that record, and what is kept is a prefix of the commits.
    database.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    // Damage is reported when it is met instead of being worked around.
    database.set_paranoid_checks(true);
    // Damage below a mapping kills the process, an error from a read does not.
    database.set_allow_mmap_reads(false);
    database.set_allow_mmap_writes(false);

    database.set_write_buffer_manager(buffers);
    // A keyspace that is seldom written keeps log files alive until it is flushed. This bounds the log and with it
    // the time to open after a crash.
    database.set_max_total_wal_size(4 * options.write_buffer_bytes as u64);
    // Open files hold a table reader each, a few KB; their indexes and filters live in the block cache.
    database.set_max_open_files(i32::from(options.max_open_files));
    // Opening reads every file's properties otherwise, which takes long with many files.
    database.set_skip_stats_update_on_db_open(true);

    database.set_max_background_jobs(i32::from(options.background_jobs));
    // Large sorted files reach the disk as they are written instead of in one burst, which would delay the syncs
    // of commits.
    database.set_bytes_per_sync(MIB as u64);
    database.set_wal_bytes_per_sync(MIB as u64);
    database.set_compaction_readahead_size(2 * MIB);
    // A reader that closes the last handle of an obsolete file leaves the removal to the background.
    database.set_avoid_unnecessary_blocking_io(true);

    // The information log is for people who debug the store: a few small files. Its statistics would wake the disk
    // every few minutes and keep history in memory.
    database.set_log_level(LogLevel::Warn);
    database.set_keep_log_file_num(4);
    database.set_max_log_file_size(4 * MIB);
    database.set_stats_dump_period_sec(0);
    database.set_stats_persist_period_sec(0);
    // The manifest is written anew from this size on; the default of 1 GB would be read at every start.
    database.set_max_manifest_file_size(16 * MIB);
    if let Log::Kept { seconds, .. } = options.log {
        // Files of the log that are not needed any more move to a directory of their own for so long.
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
        Keyspace::Documents => with_large_values(looked_up(options, cache), options),
        Keyspace::Local | Keyspace::IndexEntries => looked_up(options, cache),
        Keyspace::Sequence => sequence(options, cache),
        Keyspace::IndexNodes => index_nodes(options, cache),
        Keyspace::Bodies => bodies(options, cache),
        Keyspace::Attachments => attachments(options, cache),
    }
}

/// The options that all column families have in common.
fn column(options: &Options, table: &BlockBasedOptions) -> rocksdb::Options {
    let mut column = rocksdb::Options::default();
    column.set_block_based_table_factory(table);
    // The shared limit flushes before this one does when several keyspaces are written at once.
    column.set_write_buffer_size(options.write_buffer_bytes / 2);
    // One is written, one waits to be flushed, and one more before writers wait.
    column.set_max_write_buffer_number(3);
    // Memtables of seldom written keyspaces stay small.
    column.set_arena_block_size(256 * KIB);
    // Levels are sized from the last one up, so that about nine tenths of the data are in the last level and
    // overwritten entries take at most about a tenth of the space.
    column.set_level_compaction_dynamic_level_bytes(true);
    column.set_max_bytes_for_level_base(128 * MIB as u64);
    column.set_target_file_size_base(32 * MIB as u64);
    // LZ4 costs less than the bytes that it saves cost to write.
    column.set_compression_type(DBCompressionType::Lz4);
    column
}

fn table(cache: &Cache, block_size: usize) -> BlockBasedOptions {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_block_size(block_size);
    // Indexes and filters count against the cache: memory is bounded however large the data is. They are
    // partitioned, so that a lookup loads 4 KB of them and not the filter of a whole file; only the small top
    // level stays.
    table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    table.set_partition_filters(true);
    table.set_metadata_block_size(4 * KIB);
    table.set_cache_index_and_filter_blocks(true);
    table.set_cache_index_and_filter_blocks_with_high_priority(true);
    table.set_pin_top_level_index_and_filter(true);
    table
}

/// Keyspaces whose entries are looked up by keys that are often absent: new document ids. A filter answers these
/// without a read, also for the last level, which is why it is not left out there.
fn looked_up(options: &Options, cache: &Cache) -> rocksdb::Options {
    let mut table = table(cache, 8 * KIB);
    // One wrong answer in a hundred.
    table.set_bloom_filter(10.0, false);
    table.set_whole_key_filtering(true);
    let mut column = column(options, &table);
    // The same for the memtable, which is otherwise searched through a long list for every new id.
    column.set_memtable_whole_key_filtering(true);
    column.set_memtable_prefix_bloom_ratio(0.02);
    column
}

/// Keyspaces of the revisions of documents. Those of a document with thousands of conflicts stay outside of the block cache: a few
/// of them would fill what thousands of others need.
fn with_large_values(mut column: rocksdb::Options, options: &Options) -> rocksdb::Options {
    blobs(&mut column, options, 32 * KIB);
    column
}

/// Tree nodes are read one at a time and are several KB each.
fn index_nodes(options: &Options, cache: &Cache) -> rocksdb::Options {
    let mut column = column(options, &table(cache, 16 * KIB));
    // The keys of nodes are short already, and flushes work beside the threads that build an index: what a flush writes
    // is compressed when it is compacted.
    column.set_compression_per_level(&[DBCompressionType::None, DBCompressionType::Lz4]);
    column
}

/// Read in order, and full of deletions, since a changed document leaves its old place.
fn sequence(options: &Options, cache: &Cache) -> rocksdb::Options {
    let mut column = column(options, &table(cache, 16 * KIB));
    // Files in which every other entry of a stretch is a deletion are compacted early: scans walk through these.
    column.add_compact_on_deletion_collector_factory(8192, 4096, 0.5);
    column
}

/// Read in order or singly; large ones move to blob files, which compactions do not rewrite.
fn bodies(options: &Options, cache: &Cache) -> rocksdb::Options {
    let mut column = column(options, &table(cache, 16 * KIB));
    // The last level holds nearly all small bodies, is written seldom, and JSON shrinks well.
    column.set_bottommost_compression_type(DBCompressionType::Zstd);
    blobs(&mut column, options, 16 * KIB);
    column
}

/// Chunks of up to 100 KB that are written once.
fn attachments(options: &Options, cache: &Cache) -> rocksdb::Options {
    let mut column = column(options, &table(cache, 16 * KIB));
    blobs(&mut column, options, KIB);
    // An upload can be much faster than the disk. Few of its bytes wait in memory, and other writers are held up for
    // a short time when it has to wait.
    column.set_write_buffer_size(options.write_buffer_bytes / 8);
    // Small buffers make many blob files, and a compaction reads ahead in each of those that it moves blobs out of.
    column.set_blob_compaction_readahead_size(256 * KIB as u64);
    column
}

fn blobs(column: &mut rocksdb::Options, options: &Options, min_blob_size: usize) {
    column.set_enable_blob_files(true);
    column.set_min_blob_size(min_blob_size as u64);
    column.set_blob_file_size(64 * MIB as u64);
    // Blobs are read one by one, where LZ4's speed counts; ZSTD would halve the rate of a scan.
    column.set_blob_compression_type(DBCompressionType::Lz4);
    // Compactions move live blobs out of the oldest quarter of the blob files, and a quarter of which half is
    // garbage is compacted for that purpose.
    column.set_enable_blob_gc(options.moves_blobs);
    column.set_blob_gc_age_cutoff(0.25);
    column.set_blob_gc_force_threshold(0.5);
    column.set_blob_compaction_readahead_size(2 * MIB as u64);
}
