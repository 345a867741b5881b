//! Conformance of the engine, and its additional guarantees.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use settee_cluster::Groups;
use settee_storage::conformance;
use settee_storage::{Durability, Engine, Expect, Keyspace, Shard, StorageError, Version};
use settee_storage_bucket::{Bucket, BucketEngine, Options};

use crate::faulty::FaultyStore;
use crate::nodes::until;
use crate::{directory, open, options, statistic, step, steps};

#[test]
fn conforms_in_memory() {
    conformance::run_all(&|| open(Bucket::in_memory()));
}

#[test]
fn conforms_in_a_directory() {
    let root = tempfile::tempdir().unwrap();
    let count = std::cell::Cell::new(0);
    conformance::run_all(&|| {
        count.set(count.get() + 1);
        open(directory(&root.path().join(count.get().to_string())))
    });
}

#[test]
fn opening_again_finds_everything() {
    let store = FaultyStore::new(1);
    for round in 0..5 {
        let engine = open(store.bucket());
        for shard in 0..3 {
            assert_eq!(steps(&engine, Shard(shard)), round * 50);
            for number in round * 50..(round + 1) * 50 {
                let durability = if number % 7 == 0 { Durability::Synced } else { Durability::Buffered };
                step(&engine, Shard(shard), number, durability);
            }
        }
        engine.drop_shard(Shard(round + 100)).unwrap();
        step(&engine, Shard(round + 101), 0, Durability::Buffered);
    }
    let engine = open(store.bucket());
    for shard in 0..3 {
        assert_eq!(steps(&engine, Shard(shard)), 250);
    }
    for round in 0..4 {
        assert_eq!(steps(&engine, Shard(round + 101)), 0, "a dropped shard stays dropped");
    }
    assert_eq!(steps(&engine, Shard(105)), 1);
}

#[test]
fn waiting_commits_of_different_shards_share_an_object() {
    const THREADS: u64 = 16;
    const COMMITS: u64 = 20;
    let store = FaultyStore::new(1);
    store.set_latency(Duration::from_millis(2));
    let engine = &*open(store.bucket());
    for number in 0..10 {
        step(engine, Shard(0), number, Durability::Synced);
    }
    let alone = statistic(engine, "log_flushes");
    // The last flush may not be counted yet, and the timer of the library may precede one.
    assert!((5..=11).contains(&alone), "{alone} flushes for 10 commits of one thread");
    thread::scope(|scope| {
        for shard in 1..=THREADS {
            scope.spawn(move || {
                for number in 0..COMMITS {
                    step(engine, Shard(shard), number, Durability::Synced);
                }
            });
        }
    });
    let together = statistic(engine, "log_flushes") - alone;
    println!("{} commits took {together} objects", THREADS * COMMITS);
    assert!(together < THREADS * COMMITS / 2, "{together} objects for {} commits", THREADS * COMMITS);
}

#[test]
fn a_continuous_writer_causes_a_limited_number_of_objects() {
    let interval = Duration::from_millis(40);
    let options = Options { commit_interval: interval, ..options() };
    let engine = BucketEngine::open(Bucket::in_memory(), &options, None).unwrap();
    let started = Instant::now();
    for number in 0..20 {
        step(&engine, Shard(0), number, Durability::Synced);
    }
    let most = started.elapsed().as_millis() / interval.as_millis() + 2;
    let flushes = statistic(&engine, "log_flushes");
    assert!(u128::from(flushes) <= most, "{flushes} objects in {:?}", started.elapsed());
}

#[test]
fn the_lag_is_the_age_of_the_oldest_waiting_commit() {
    let store = FaultyStore::new(1);
    let engine = &open(store.bucket());
    let lag_ms = || statistic(engine, "log_stalled_ms");
    step(engine, Shard(1), 0, Durability::Synced);
    assert_eq!(lag_ms(), 0);
    store.set_down(true);
    thread::scope(|scope| {
        scope.spawn(|| step(engine, Shard(1), 1, Durability::Synced));
        until("the commit waits", || lag_ms() >= 300);
        store.set_down(false);
    });
    assert_eq!(lag_ms(), 0);
}

#[test]
fn the_only_process_owns_the_groups_that_it_uses() {
    let root = tempfile::tempdir().unwrap();
    let engine = open(directory(root.path()));
    let groups = Groups::new(engine.group_count().unwrap());
    let shards = [0, 1, 2].map(Shard);
    shards.iter().for_each(|shard| step(&engine, *shard, 0, Durability::Buffered));
    let (writers, own) = (engine.members().writers(), engine.members().this());
    assert!(writers.iter().all(|(_, node)| *node == own));
    let owned: BTreeSet<u32> = writers.iter().filter_map(|(claim, _)| groups.of_key(&claim.key)).collect();
    assert_eq!(owned, BTreeSet::from(shards.map(|shard| groups.of(shard))));
    assert_eq!(statistic(&engine, "owned_groups"), owned.len() as u64);
}

/// Another process could otherwise act on a commit that is lost.
#[test]
fn readers_do_not_see_a_commit_before_it_is_durable() {
    let store = FaultyStore::new(1);
    let engine = open(store.bucket());
    step(&engine, Shard(1), 0, Durability::Synced);
    store.set_down(true);
    thread::scope(|scope| {
        let writer = scope.spawn(|| step(&engine, Shard(1), 1, Durability::Synced));
        let until = Instant::now() + Duration::from_millis(300);
        while Instant::now() < until {
            assert_eq!(steps(&engine, Shard(1)), 1, "a commit is visible before it is durable");
        }
        // Other shards are readable, and buffered commits visible.
        step(&engine, Shard(2), 0, Durability::Buffered);
        assert_eq!(steps(&engine, Shard(2)), 1);
        assert!(!writer.is_finished(), "a commit was acknowledged during the outage");
        store.set_down(false);
        writer.join().unwrap();
    });
    assert_eq!(steps(&engine, Shard(1)), 2);
}

#[test]
fn snapshots_outlive_the_engine_but_do_not_read_from_its_store() {
    let engine = open(Bucket::in_memory());
    step(&engine, Shard(1), 0, Durability::Buffered);
    let snapshot = engine.snapshot(Shard(1)).unwrap();
    assert_eq!(snapshot.state().unwrap().version, Version(1));
    drop(Arc::into_inner(engine).unwrap());
    assert_eq!(snapshot.state().unwrap().version, Version(1), "it was read before");
}

#[test]
fn the_removal_of_a_dropped_shard_continues_after_a_restart() {
    let store = FaultyStore::new(1);
    let engine = open(store.bucket());
    for number in 0..30 {
        step(&engine, Shard(1), number, Durability::Buffered);
    }
    let before = engine.snapshot(Shard(1)).unwrap();
    engine.drop_shard(Shard(1)).unwrap();
    let range = settee_storage::KeyRange::default();
    let mut cursor = before.scan(Keyspace::Bodies, range, settee_storage::Direction::Forward, Expect::All).unwrap();
    let mut count = 0;
    while cursor.next().unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 30, "an older snapshot reads a dropped shard");
    drop(cursor);
    drop(before);
    drop(engine);
    let engine = open(store.bucket());
    assert!(matches!(engine.snapshot(Shard(1)).unwrap().state(), Err(StorageError::Dropped)));
    assert_eq!(engine.approximate_size(Shard(1)), 0);
}

#[test]
fn requests_are_counted_by_kind() {
    let engine = open(Bucket::in_memory());
    step(&engine, Shard(1), 0, Durability::Synced);
    let before = statistic(&engine, "store_put_requests");
    for number in 1..6 {
        step(&engine, Shard(1), number, Durability::Synced);
    }
    let puts = statistic(&engine, "store_put_requests") - before;
    assert!((5..=7).contains(&puts), "{puts} puts for 5 commits");
    assert!(statistic(&engine, "store_sent_bytes") > 0);
    assert_eq!(statistic(&engine, "store_request_errors"), 0);
    assert_eq!(statistic(&engine, "commits"), 6);
}

#[test]
fn counting_a_shard_excludes_replaced_entries() {
    let engine = open(Bucket::in_memory());
    let value = vec![7; 10_000];
    for version in 0..10 {
        let mut batch = settee_storage::Batch::new();
        batch.put(Keyspace::Documents, b"key", &value);
        let token = crate::token(version + 1);
        let _ = engine.commit(Shard(1), Version(version), token, batch, Durability::Buffered).unwrap();
    }
    assert!(engine.approximate_size(Shard(1)) > 90_000);
    engine.reclaim(Shard(1)).unwrap();
    let size = engine.approximate_size(Shard(1));
    assert!((10_000..11_000).contains(&size), "{size}");
    assert_eq!(engine.snapshot(Shard(1)).unwrap().state().unwrap().version, Version(10), "it is no commit");
}
