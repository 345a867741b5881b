//! Conformance of the engine, and its additional guarantees.

use std::fs;
use std::sync::Arc;
use std::thread;

use settee_storage::conformance::{self, Generator};
use settee_storage::{
    Batch, Durability, Engine, Expect, Keyspace, Outcome, Purpose, Shard, ShardState, StorageError, Version,
};
use settee_storage_rocksdb::raw::{RawPattern, RawStore};
use settee_storage_rocksdb::{Options, RocksEngine, Tickers};

use crate::{child, open, step, steps};

#[test]
fn conforms() {
    let directory = tempfile::tempdir().unwrap();
    let count = std::cell::Cell::new(0);
    conformance::run_all(&|| {
        count.set(count.get() + 1);
        open(&directory.path().join(count.get().to_string()))
    });
}

#[test]
fn opening_again_finds_everything() {
    let directory = tempfile::tempdir().unwrap();
    let mut random = Generator::new(1);
    for round in 0..5 {
        let engine = open(directory.path());
        for shard in 0..3 {
            assert_eq!(steps(&engine, Shard(shard)), round * 50);
            for number in round * 50..(round + 1) * 50 {
                let durability = *random.choose(&[Durability::Synced, Durability::Buffered]);
                step(&engine, Shard(shard), number, durability);
            }
        }
        engine.drop_shard(Shard(round + 100)).unwrap();
        step(&engine, Shard(round + 101), 0, Durability::Buffered);
    }
    let engine = open(directory.path());
    for shard in 0..3 {
        assert_eq!(steps(&engine, Shard(shard)), 250);
    }
    for round in 0..4 {
        assert_eq!(steps(&engine, Shard(round + 101)), 0, "a dropped shard stays gone");
    }
    assert_eq!(steps(&engine, Shard(105)), 1);
}

#[test]
fn a_directory_has_one_owner() {
    let directory = tempfile::tempdir().unwrap();
    let _engine = open(directory.path());
    let error = RocksEngine::open(directory.path(), &Options::default()).unwrap_err();
    assert!(error.to_string().to_lowercase().contains("lock"), "{error}");
}

#[test]
fn waiting_commits_of_different_shards_share_syncs() {
    const THREADS: u64 = 16;
    const COMMITS: u64 = 100;
    let directory = tempfile::tempdir().unwrap();
    let options = Options { tickers: Tickers::On, ..Options::default() };
    let engine = &RocksEngine::open(directory.path(), &options).unwrap();
    let before = engine.wal_syncs();
    for number in 0..20 {
        step(engine, Shard(0), number, Durability::Synced);
    }
    let alone = engine.wal_syncs() - before;
    assert_eq!(alone, 20, "one thread syncs for each commit");
    thread::scope(|scope| {
        for shard in 1..=THREADS {
            scope.spawn(move || {
                for number in 0..COMMITS {
                    step(engine, Shard(shard), number, Durability::Synced);
                }
            });
        }
    });
    let together = engine.wal_syncs() - before - alone;
    println!("{} commits took {together} syncs", THREADS * COMMITS);
    assert!(together < THREADS * COMMITS * 3 / 4, "{together} syncs for {} commits", THREADS * COMMITS);
}

#[test]
fn a_checkpoint_is_a_store_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy");
    let engine = open(&directory.path().join("store"));
    for number in 0..30 {
        step(&engine, Shard(5), number, Durability::Buffered);
    }
    engine.checkpoint(&copy).unwrap();
    step(&engine, Shard(5), 30, Durability::Synced);
    let restored = open(&copy);
    assert_eq!(steps(&restored, Shard(5)), 30);
    step(&restored, Shard(5), 30, Durability::Synced);
    engine.checkpoint(&copy).expect_err("the directory exists");
}

#[test]
fn states_are_no_entries() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let empty = settee_storage::Batch::new();
    let _ = engine.commit(Shard(1), Version(0), crate::token(1), empty, Durability::Buffered).unwrap();
    let snapshot = engine.snapshot(Shard(1)).unwrap();
    assert_eq!(snapshot.state().unwrap(), ShardState { version: Version(1), token: crate::token(1) });
    for space in Keyspace::ALL {
        let mut cursor = snapshot
            .scan(space, settee_storage::KeyRange::default(), settee_storage::Direction::Forward, Expect::Few)
            .unwrap();
        assert_eq!(cursor.next().unwrap(), None, "{space:?}");
    }
}

#[test]
fn statistics_have_names_and_values() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    step(&engine, Shard(1), 0, Durability::Synced);
    let statistics = engine.statistics();
    let value = |name| statistics.iter().find(|(found, _)| *found == name).map(|(_, value)| *value);
    assert!(value("memtable_bytes") > Some(0));
    assert!(value("written_bytes") > Some(0));
    assert_eq!(value("background_errors"), Some(0));
}

#[test]
fn weigh_an_idle_store() {
    let Some(directory) = child::directory() else { return };
    let engine = open(&directory);
    step(&engine, Shard(1), 0, Durability::Synced);
    assert_eq!(steps(&engine, Shard(1)), 1);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    println!("\n{line}");
}

#[cfg(target_os = "linux")]
#[test]
fn an_idle_store_is_small() {
    let directory = tempfile::tempdir().unwrap();
    let output = child::command("engine::weigh_an_idle_store", directory.path()).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    let line = output.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    println!("an idle store takes {kilobytes} kB, this program included");
    assert!(kilobytes < 30_000, "{kilobytes} kB, and a whole server should stay under 40 MB");
}

#[test]
fn commit_until_files_are_full() {
    let Some(directory) = child::directory() else { return };
    let engine = open(&directory);
    let mut number = 0;
    let error = loop {
        let durability = if number % 2 == 0 { Durability::Synced } else { Durability::Buffered };
        let version = Version(number);
        match engine.commit(Shard(1), version, crate::token(number + 1), crate::numbered(number + 1), durability) {
            Ok(_) => number += 1,
            Err(error) => break error,
        }
    };
    println!("\nfailed after {number}: {error}");
    assert!(matches!(error, StorageError::InDoubt(_)), "the log may contain the commit");
    assert_eq!(steps(&engine, Shard(1)), number, "a failed commit is not visible");
    let same = |found: StorageError| assert!(error.to_string().ends_with(&found.to_string()), "{found}");
    same(engine.check().unwrap_err());
    for durability in [Durability::Synced, Durability::Buffered] {
        same(engine.commit(Shard(2), Version(0), crate::token(1), crate::numbered(1), durability).unwrap_err());
    }
    same(engine.sync().unwrap_err());
    same(engine.drop_shard(Shard(1)).unwrap_err());
    child::raise_file_limit();
    engine.maintain().unwrap();
    let kept = steps(&engine, Shard(1));
    assert!((number..=number + 1).contains(&kept), "{kept} of {number} commits are there");
    for number in kept..kept + 100 {
        step(&engine, Shard(1), number, Durability::Synced);
    }
    println!("healed");
}

#[cfg(unix)]
#[test]
fn a_failed_write_is_over_when_the_store_was_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let output =
        child::limited_command("engine::commit_until_files_are_full", directory.path(), 1000).output().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    assert!(output.contains("\nhealed\n"), "{output}");
    let line = output.lines().find_map(|line| line.strip_prefix("failed after ")).unwrap();
    let acknowledged: u64 = line.split(':').next().unwrap().parse().unwrap();
    assert!(acknowledged > 100, "{line}");
    let engine = open(directory.path());
    let kept = steps(&engine, Shard(1));
    assert!((acknowledged + 100..=acknowledged + 101).contains(&kept), "{kept} commits are there after {acknowledged}");
    step(&engine, Shard(1), kept, Durability::Synced);
}

#[test]
fn on_a_full_disk_only_deletions_are_committed() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(&directory.path().join("store"));
    step(&engine, Shard(1), 0, Durability::Synced);
    drop(engine);
    let options = Options { free_min_bytes: u64::MAX / 2, ..Options::default() };
    let engine = RocksEngine::open(&directory.path().join("store"), &options).unwrap();
    assert!(matches!(engine.check(), Err(StorageError::Full(_))));
    assert!(matches!(engine.maintain(), Err(StorageError::Full(_))));
    let growth = engine.commit(Shard(1), Version(1), crate::token(2), crate::numbered(2), Durability::Synced);
    assert!(matches!(growth, Err(StorageError::Full(_))), "{growth:?}");
    assert_eq!(steps(&engine, Shard(1)), 1);
    let mut removal = Batch::of(Purpose::Room);
    removal.delete(Keyspace::Bodies, &1_u64.to_be_bytes());
    let removed = engine.commit(Shard(1), Version(1), crate::token(2), removal, Durability::Synced).unwrap();
    assert_eq!(removed, Outcome::Committed(Version(2)));
    engine.drop_shard(Shard(1)).unwrap();
    engine.reclaim(Shard(1)).unwrap();
    assert_eq!(steps(&engine, Shard(1)), 0);
}

#[test]
fn a_raw_load_counts_its_writes() {
    let directory = tempfile::tempdir().unwrap();
    for (name, pattern, sync_each_batch) in [
        ("synced", RawPattern::Pair, true),
        ("buffered", RawPattern::Pair, false),
        ("documents", RawPattern::Document, true),
    ] {
        let batches = (0..10_u64)
            .map(|batch| (0..20_u64).map(|entry| ((batch * 20 + entry).to_be_bytes().to_vec(), vec![7; 92])).collect());
        let report = RawStore::load(&directory.path().join(name), pattern, batches, sync_each_batch).unwrap();
        assert_eq!((report.entries, report.batches, report.bytes), (200, 10, 20_000));
        assert!(report.seconds > 0.0);
    }
}

#[test]
fn snapshots_outlive_the_engine() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    step(&engine, Shard(1), 0, Durability::Buffered);
    let snapshot = engine.snapshot(Shard(1)).unwrap();
    engine.drop_shard(Shard(1)).unwrap();
    drop(Arc::into_inner(engine).unwrap());
    assert_eq!(snapshot.state().unwrap().version, Version(1));
}
