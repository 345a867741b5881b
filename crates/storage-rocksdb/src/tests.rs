//! Tests of internals: disk space, and when it is reclaimed.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use rocksdb::WaitForCompactOptions;
use rocksdb::perf::{PerfContext, PerfMetric, PerfStatsLevel};
use settee_storage::conformance::Generator;
use settee_storage::nonblocking::attempt;
use settee_storage::{Direction, Expect};

use super::*;

const MIB: u64 = 1 << 20;

fn small(path: &Path) -> RocksEngine {
    RocksEngine::open(path, &Options { write_buffer_bytes: 2 << 20, ..Options::default() }).unwrap()
}

fn fill(engine: &RocksEngine, shard: Shard, bytes: u64, value_bytes: usize) {
    let mut random = Generator::new(shard.0);
    let values = bytes / value_bytes as u64;
    for number in 0..values {
        let mut batch = Batch::new();
        batch.put(Keyspace::Bodies, &number.to_be_bytes(), &random.bytes(value_bytes));
        let outcome = engine.commit(shard, Version(number), CommitToken(1), batch, Durability::Buffered).unwrap();
        assert_eq!(outcome, Outcome::Committed(Version(number + 1)));
    }
}

fn settle(engine: &RocksEngine) {
    let store = engine.store().unwrap();
    for space in Keyspace::ALL {
        store.database.flush_cf(column(&store.database, space)).unwrap();
    }
    store.database.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
}

fn statistic(engine: &RocksEngine, name: &str) -> u64 {
    engine.statistics().iter().find(|(found, _)| *found == name).unwrap().1
}

#[test]
fn sizes_are_right_before_and_after_flushes_with_and_without_blobs() {
    for value_bytes in [1_000, 20_000] {
        let directory = tempfile::tempdir().unwrap();
        let engine = RocksEngine::open(directory.path(), &Options::default()).unwrap();
        let written = [(Shard(1), 96 * MIB), (Shard(2), 32 * MIB), (Shard(3), 0)];
        for (shard, bytes) in written {
            fill(&engine, shard, bytes, value_bytes);
        }
        let check = |when: &str, tolerance: &dyn Fn(u64) -> u64| {
            for (shard, bytes) in written {
                let size = engine.approximate_size(shard);
                let tolerance = tolerance(bytes);
                assert!(
                    (bytes.saturating_sub(tolerance)..=bytes + tolerance).contains(&size),
                    "{shard:?} with values of {value_bytes} has {size} bytes {when}, not {bytes}"
                );
            }
        };
        // Data that is being flushed may count twice, and blobs are distributed like the entries that refer to them.
        check("right after writing", &|bytes| if bytes == 0 { 0 } else { bytes / 2 + 32 * MIB });
        settle(&engine);
        check("after flushes and compactions", &|bytes| bytes / 2 + 4 * MIB);
        let blobs = statistic(&engine, "blob_file_bytes");
        assert_eq!(blobs > 120 * MIB, value_bytes > 16 << 10, "{blobs} bytes of blobs for values of {value_bytes}");
    }
}

/// An attempt reads a block only after another read has loaded it.
#[test]
fn attempts_do_not_read_from_the_disk() {
    for (value_bytes, is_read) in [(1_000, true), (20_000, false)] {
        let directory = tempfile::tempdir().unwrap();
        let engine = RocksEngine::open(directory.path(), &Options::default()).unwrap();
        fill(&engine, Shard(1), 10 * value_bytes as u64, value_bytes);
        let get = |engine: &RocksEngine, waiting: Waiting<'_>| {
            waiting.snapshot(engine, Shard(1))?.get(Keyspace::Bodies, &5_u64.to_be_bytes())
        };
        let count = |engine: &RocksEngine, waiting: Waiting<'_>| {
            let snapshot = waiting.snapshot(engine, Shard(1))?;
            let mut cursor = snapshot.scan(Keyspace::Bodies, Default::default(), Direction::Forward, Expect::Few)?;
            Ok::<_, StorageError>(std::iter::from_fn(|| cursor.next().transpose().map(|entry| entry.is_ok())).count())
        };
        let in_memory = attempt(|waiting| get(&engine, waiting)).unwrap().unwrap();
        assert!(in_memory.is_some(), "memtables are in memory");
        settle(&engine);
        drop(engine);
        let engine = RocksEngine::open(directory.path(), &Options::default()).unwrap();
        assert!(attempt(|waiting| get(&engine, waiting)).is_none());
        assert!(attempt(|waiting| count(&engine, waiting)).is_none());
        let (value, entries) = (get(&engine, Waiting::Allowed).unwrap(), count(&engine, Waiting::Allowed).unwrap());
        assert_eq!((value.unwrap().len(), entries), (value_bytes, 10));
        // Large values are in files of their own, whose contents are not cached.
        assert_eq!(attempt(|waiting| get(&engine, waiting)).is_some(), is_read);
        assert_eq!(attempt(|waiting| count(&engine, waiting)).is_some(), is_read);
    }
}

#[test]
fn long_lists_of_revisions_are_read_past_the_cache() {
    for (value_bytes, is_cached) in [(64 << 10, false), (4 << 10, true)] {
        let directory = tempfile::tempdir().unwrap();
        let engine = RocksEngine::open(directory.path(), &Options::default()).unwrap();
        let mut random = Generator::new(1);
        let keys: Vec<[u8; 8]> = (0..(8 * MIB / value_bytes as u64)).map(u64::to_be_bytes).collect();
        for space in [Keyspace::Documents, Keyspace::Catalog] {
            let mut batch = Batch::new();
            for key in &keys {
                batch.put(space, key, &random.bytes(value_bytes));
            }
            let shard = Shard(space as u64 + 1);
            let outcome = engine.commit(shard, Version(0), CommitToken(1), batch, Durability::Buffered).unwrap();
            assert_eq!(outcome, Outcome::Committed(Version(1)));
        }
        settle(&engine);
        let before = statistic(&engine, "block_cache_bytes");
        for space in [Keyspace::Documents, Keyspace::Catalog] {
            let snapshot = engine.snapshot(Shard(space as u64 + 1)).unwrap();
            for key in &keys {
                assert_eq!(snapshot.get(space, key).unwrap().unwrap().len(), value_bytes);
            }
        }
        let read = statistic(&engine, "block_cache_bytes") - before;
        assert_eq!(read > 8 * MIB, is_cached, "{read} bytes for values of {value_bytes}");
    }
}

#[test]
fn a_shard_is_smaller_once_it_was_reclaimed() {
    let directory = tempfile::tempdir().unwrap();
    let engine = RocksEngine::open(directory.path(), &Options::default()).unwrap();
    for shard in [Shard(1), Shard(2)] {
        fill(&engine, shard, MIB, 1_000);
    }
    let written = MIB / 1_000;
    let mut batch = Batch::of(Purpose::Room);
    (0..written).for_each(|number| batch.delete(Keyspace::Bodies, &number.to_be_bytes()));
    let removed = engine.commit(Shard(1), Version(written), CommitToken(1), batch, Durability::Buffered).unwrap();
    assert_eq!(removed, Outcome::Committed(Version(written + 1)));
    assert!(engine.approximate_size(Shard(1)) > MIB);
    engine.reclaim(Shard(1)).unwrap();
    assert!(engine.approximate_size(Shard(1)) < MIB / 16, "{}", engine.approximate_size(Shard(1)));
    assert!(engine.approximate_size(Shard(2)) > MIB / 2, "another shard is as large as before");
}

#[test]
fn dropped_shards_give_their_space_back() {
    for value_bytes in [1_000, 40_000] {
        let directory = tempfile::tempdir().unwrap();
        let engine = small(directory.path());
        let live = |name| size::property(&engine.store().unwrap().database, Keyspace::Bodies, name);
        let used = || live("rocksdb.live-sst-files-size") + live("rocksdb.live-blob-file-size");
        fill(&engine, Shard(1), 60 * MIB, value_bytes);
        fill(&engine, Shard(2), 4 * MIB, value_bytes);
        settle(&engine);
        let before = used();
        assert!(before > 63 * MIB, "{before}");

        let snapshot = engine.snapshot(Shard(1)).unwrap();
        engine.drop_shard(Shard(1)).unwrap();
        assert!(used() >= before, "a snapshot may read the shard");
        assert!(snapshot.get(Keyspace::Bodies, &7_u64.to_be_bytes()).unwrap().is_some());
        drop(snapshot);
        let after = used();
        println!("{before} bytes became {after} with values of {value_bytes}");
        assert!(after < before / 2, "{before} bytes became {after} with values of {value_bytes}");
        let snapshot = engine.snapshot(Shard(2)).unwrap();
        assert_eq!(snapshot.state().unwrap().version.0, 4 * MIB / value_bytes as u64);
        let last = 4 * MIB / value_bytes as u64 - 1;
        assert!(snapshot.get(Keyspace::Bodies, &last.to_be_bytes()).unwrap().is_some());
    }
}

#[test]
fn an_epoch_lasts_as_long_as_snapshots_of_it_or_before() {
    let directory = tempfile::tempdir().unwrap();
    let engine = small(directory.path());
    let weak = || Arc::downgrade(&engine.store().unwrap().epoch.lock());
    let first = weak();
    let old = engine.snapshot(Shard(1)).unwrap();
    engine.drop_shard(Shard(1)).unwrap();
    let second = weak();
    let young = engine.snapshot(Shard(1)).unwrap();
    engine.drop_shard(Shard(2)).unwrap();
    drop(young);
    assert!(first.upgrade().is_some());
    assert!(second.upgrade().is_some(), "the older snapshot reads what the second epoch's drop would take");
    drop(old);
    assert!(first.upgrade().is_none() && second.upgrade().is_none());
}

fn range_deletions(engine: &RocksEngine) -> u64 {
    let store = engine.store().unwrap();
    let count = |space: Keyspace| {
        let column = column(&store.database, space);
        let properties = store.database.property_value_cf(column, "rocksdb.aggregated-table-properties").unwrap();
        let properties = properties.unwrap_or_default();
        let (_, rest) = properties.split_once("# range deletions=").unwrap();
        rest.split(';').next().unwrap().trim().parse::<u64>().unwrap()
    };
    Keyspace::ALL.map(count).iter().sum()
}

fn make(engine: &RocksEngine, shard: Shard, entries: u64) {
    let mut batch = Batch::new();
    for number in 0..entries {
        batch.put(Keyspace::Documents, &number.to_be_bytes(), b"document");
        batch.put(Keyspace::Sequence, &number.to_be_bytes(), b"sequence");
    }
    let outcome = engine.commit(shard, Version(0), CommitToken(1), batch, Durability::Buffered).unwrap();
    assert_eq!(outcome, Outcome::Committed(Version(1)));
}

fn count(engine: &RocksEngine, shard: Shard) -> usize {
    let snapshot = engine.snapshot(shard).unwrap();
    if matches!(snapshot.state(), Err(StorageError::Dropped)) {
        let store = engine.store().unwrap();
        let rest = Keyspace::ALL.iter().filter(|space| {
            let mut entries = store.database.raw_iterator_cf(column(&store.database, **space));
            entries.seek(keys::prefix(shard));
            entries.key().is_some_and(|key| key.starts_with(&keys::prefix(shard)))
        });
        return rest.count();
    }
    let mut entries = 0;
    for space in Keyspace::ALL {
        let mut cursor = snapshot.scan(space, Default::default(), Direction::Forward, Expect::All).unwrap();
        while cursor.next().unwrap().is_some() {
            entries += 1;
        }
    }
    entries
}

#[test]
fn dropped_shards_leave_nothing_for_reads_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let engine = small(directory.path());
    make(&engine, Shard(1), 10);
    for shard in 2..302 {
        let snapshot = (shard % 3 == 0).then(|| engine.snapshot(Shard(1)).unwrap());
        make(&engine, Shard(shard), [0, 5, 50][usize::try_from(shard % 3).unwrap()]);
        if shard % 50 == 0 {
            settle(&engine);
        }
        engine.drop_shard(Shard(shard)).unwrap();
        assert_eq!(count(&engine, Shard(shard)), 0);
        drop(snapshot);
        assert_eq!(count(&engine, Shard(shard)), 0);
    }
    settle(&engine);
    assert_eq!((range_deletions(&engine), count(&engine, Shard(1))), (0, 20));
    make(&engine, Shard(400), 10_000);
    make(&engine, Shard(401), 10_000);
    settle(&engine);
    engine.drop_shard(Shard(400)).unwrap();
    settle(&engine);
    assert_eq!((range_deletions(&engine), count(&engine, Shard(400))), (0, 0));
    assert_eq!((count(&engine, Shard(1)), count(&engine, Shard(401))), (20, 20_000));
}

/// Work of a read in addition to its entries: keys that RocksDB skips, and range deletions.
#[derive(Debug, PartialEq, Eq)]
struct Met {
    skipped_keys: u64,
    range_deletions: u64,
}

fn met(engine: &RocksEngine, shard: Shard) -> Met {
    rocksdb::perf::set_perf_stats(PerfStatsLevel::EnableCount);
    let mut context = PerfContext::default();
    context.reset();
    count(engine, shard);
    let skipped = [PerfMetric::InternalKeySkippedCount, PerfMetric::InternalDeleteSkippedCount];
    let skipped_keys = skipped.map(|metric| context.metric(metric)).iter().sum();
    rocksdb::perf::set_perf_stats(PerfStatsLevel::Disable);
    Met { skipped_keys, range_deletions: range_deletions(engine) }
}

#[test]
fn reads_meet_deletions_of_ranges_of_others_but_not_those_of_single_keys() {
    const DROPPED: u64 = 1_000;
    let run = |drop: &dyn Fn(&RocksEngine, Shard)| {
        let directory = tempfile::tempdir().unwrap();
        let engine = small(directory.path());
        make(&engine, Shard(1), 100);
        settle(&engine);
        let before = met(&engine, Shard(1));
        let read = || {
            let begun = std::time::Instant::now();
            assert_eq!(count(&engine, Shard(1)), 200);
            begun.elapsed()
        };
        let mut in_memory = Duration::ZERO;
        for number in 0..DROPPED {
            make(&engine, Shard(2 + number), 3);
            drop(&engine, Shard(2 + number));
            if number >= DROPPED - 20 {
                in_memory += read() / 20;
            }
        }
        let store = engine.store().unwrap();
        for space in Keyspace::ALL {
            store.database.flush_cf(column(&store.database, space)).unwrap();
        }
        let in_files = (0..20).map(|_| read() / 20).sum::<Duration>();
        (before, met(&engine, Shard(1)), [in_memory, in_files])
    };
    let (before, after, points) = run(&|engine, shard| engine.drop_shard(shard).unwrap());
    assert_eq!(after, before, "as the engine drops them");
    assert_eq!(before.range_deletions, 0);
    let (before, after, ranges) = run(&|engine, shard| {
        let store = engine.store().unwrap();
        let mut batch = WriteBatch::default();
        for space in Keyspace::ALL {
            let (start, end) = (keys::prefix(shard), keys::end(shard));
            batch.delete_range_cf(column(&store.database, space), start.as_slice(), end.as_slice());
        }
        store.database.write(batch).unwrap();
    });
    assert_eq!(after.skipped_keys, before.skipped_keys);
    assert!(after.range_deletions > DROPPED, "{after:?}");
    println!("a read, with deletions in memory and in files: single keys {points:?}, ranges {ranges:?}");
}

fn commit(engine: &RocksEngine, shard: Shard, number: u64) -> Result<Outcome> {
    let mut batch = Batch::new();
    batch.put(Keyspace::Bodies, &number.to_be_bytes(), b"value");
    engine.commit(shard, Version(number), CommitToken(u128::from(number)), batch, Durability::Synced)
}

#[test]
fn a_reader_with_overlapping_snapshots_does_not_prevent_the_opening() {
    let directory = tempfile::tempdir().unwrap();
    let engine = small(directory.path());
    let _ = commit(&engine, Shard(1), 0).unwrap();
    let (is_over, began) = (AtomicBool::new(false), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut held = engine.snapshot(Shard(1));
            began.wait();
            while !is_over.load(Ordering::Relaxed) {
                held = engine.snapshot(Shard(1));
            }
            drop(held);
        });
        began.wait();
        engine.repair_state.replace(StorageError::Io("a test".to_owned()));
        let is_open = (0..ATTEMPTS_BEFORE_INTERRUPT).any(|_| engine.maintain().is_ok());
        is_over.store(true, Ordering::Relaxed);
        assert!(is_open);
    });
    assert_eq!(commit(&engine, Shard(1), 1).unwrap(), Outcome::Committed(Version(2)));
}

#[test]
fn a_store_with_a_fault_is_opened_again_when_its_readers_have_gone() {
    let directory = tempfile::tempdir().unwrap();
    let engine = small(directory.path());
    for number in 0..10 {
        let _ = commit(&engine, Shard(1), number).unwrap();
    }
    let held = engine.snapshot(Shard(1)).unwrap();
    engine.repair_state.replace(StorageError::Io("a test".to_owned()));
    commit(&engine, Shard(1), 10).unwrap_err();
    for _ in 1..ATTEMPTS_BEFORE_INTERRUPT {
        engine.maintain().unwrap_err();
        assert_eq!(held.state().unwrap().version, Version(10));
        assert_eq!(engine.snapshot(Shard(1)).unwrap().state().unwrap().version, Version(10));
    }
    engine.maintain().unwrap_err();
    let ended = held.state().unwrap_err();
    assert!(matches!(ended, StorageError::Interrupted(_)), "{ended}");
    assert_eq!(engine.snapshot(Shard(1)).unwrap().state().unwrap().version, Version(10));
    drop(held);
    engine.maintain().unwrap();
    engine.check().unwrap();
    assert_eq!(commit(&engine, Shard(1), 10).unwrap(), Outcome::Committed(Version(11)));
}

#[test]
fn commits_and_reads_of_many_threads_survive_openings() {
    let directory = tempfile::tempdir().unwrap();
    let engine = small(directory.path());
    let (is_over, opened) = (std::sync::atomic::AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (1..4)
            .map(|shard| {
                let (engine, is_over) = (&engine, &is_over);
                scope.spawn(move || {
                    let mut committed = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        match commit(engine, Shard(shard), committed) {
                            Ok(outcome) => {
                                assert_eq!(outcome, Outcome::Committed(Version(committed + 1)));
                                committed += 1;
                            }
                            Err(error) => assert!(error.to_string().contains("a test"), "{error}"),
                        }
                        let state = engine.snapshot(Shard(shard)).unwrap().state().unwrap();
                        assert_eq!(state.version, Version(committed), "acknowledged commits are seen");
                    }
                    committed
                })
            })
            .collect();
        while opened.load(Ordering::Relaxed) < 5 {
            engine.repair_state.replace(StorageError::Io("a test".to_owned()));
            while engine.maintain().is_err() {}
            opened.fetch_add(1, Ordering::Relaxed);
        }
        is_over.store(true, Ordering::Relaxed);
        for (shard, writer) in (1..).zip(writers) {
            let committed = writer.join().unwrap();
            assert_eq!(engine.snapshot(Shard(shard)).unwrap().state().unwrap().version, Version(committed));
        }
    });
}

#[test]
fn the_reserve_is_given_up_and_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let reserve = directory.path().join("reserve");
    let length = || std::fs::metadata(&reserve).ok().map(|found| found.len());
    let options = Options { reserve: Some((reserve.clone(), 1 << 20)), ..Options::default() };
    let engine = RocksEngine::open(&directory.path().join("store"), &options).unwrap();
    assert_eq!(length(), Some(1 << 20));
    engine.space.release_reserve();
    assert_eq!(length(), None);
    assert!(matches!(engine.check(), Err(StorageError::Full(_))));
    engine.maintain().unwrap();
    assert_eq!(length(), Some(1 << 20));
    drop(engine);
    std::fs::write(&reserve, "part").unwrap();
    let engine = RocksEngine::open(&directory.path().join("store"), &options).unwrap();
    assert_eq!(length(), Some(1 << 20));
    drop(engine);
}

#[test]
fn failed_syncs_are_distinguished_from_failed_writes() {
    for (text, is_sync) in [
        ("IO error: While fdatasync: /data/engine/000004.log: Input/output error", true),
        ("IO error: While fsync: /data/engine/000012.sst: Input/output error", true),
        ("IO error: While fsync: a directory: /data/engine: No space left on device", true),
        (
            "IO error: No space left on device: While appending to file: /fsync/000004.log: No space left on device",
            false,
        ),
        ("IO error: While open a file for appending: /data/engine/000005.log: Too many open files", false),
    ] {
        assert_eq!(is_failed_sync(text), is_sync, "{text}");
    }
}
