//! Tests that look inside the store: space, and what is given back when.
#![expect(clippy::unwrap_used, reason = "tests")]

use rocksdb::WaitForCompactOptions;
use settee_storage::conformance::Generator;
use settee_storage::{Direction, Expect};

use super::*;

const MIB: u64 = 1 << 20;

/// A store that flushes early.
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
    for space in Keyspace::ALL {
        engine.database.flush_cf(column(&engine.database, space)).unwrap();
    }
    engine.database.wait_for_compact(&WaitForCompactOptions::default()).unwrap();
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
        // What is being flushed may count twice, and blobs are spread by the bytes that point to them, which take
        // half as much space in the last level.
        check("right after writing", &|bytes| if bytes == 0 { 0 } else { bytes / 2 + 32 * MIB });
        settle(&engine);
        check("after flushes and compactions", &|bytes| bytes / 2 + 4 * MIB);
        let blobs = statistic(&engine, "blob_file_bytes");
        assert_eq!(blobs > 120 * MIB, value_bytes > 16 << 10, "{blobs} bytes of blobs for values of {value_bytes}");
    }
}

#[test]
fn dropped_shards_give_their_space_back() {
    for value_bytes in [1_000, 40_000] {
        let directory = tempfile::tempdir().unwrap();
        let engine = small(directory.path());
        // Files that are gone but not yet removed, because a compaction reads them, do not count.
        let live = |name| size::property(&engine.database, Keyspace::Bodies, name);
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
    let weak = || Arc::downgrade(&engine.epoch.lock());
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

/// How many deletions of ranges there are in the files of all keyspaces.
fn range_deletions(engine: &RocksEngine) -> u64 {
    let count = |space: Keyspace| {
        let column = column(&engine.database, space);
        let properties = engine.database.property_value_cf(column, "rocksdb.aggregated-table-properties").unwrap();
        let properties = properties.unwrap_or_default();
        let (_, rest) = properties.split_once("# range deletions=").unwrap();
        rest.split(';').next().unwrap().trim().parse::<u64>().unwrap()
    };
    Keyspace::ALL.map(count).iter().sum()
}

/// Makes a shard with some entries in two keyspaces.
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
        // In memory and in files, and with a snapshot of before.
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
    // Many entries are deleted as a range, which does not stay.
    make(&engine, Shard(400), 10_000);
    make(&engine, Shard(401), 10_000);
    settle(&engine);
    engine.drop_shard(Shard(400)).unwrap();
    settle(&engine);
    assert_eq!((range_deletions(&engine), count(&engine, Shard(400))), (0, 0));
    assert_eq!((count(&engine, Shard(1)), count(&engine, Shard(401))), (20, 20_000));
}
