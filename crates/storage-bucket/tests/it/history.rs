//! States of the past, which are opened while the store is used.

use std::num::NonZeroU32;
use std::time::SystemTime;

use settee_storage::{Durability, Engine, Shard, StorageError};
use settee_storage_bucket::{BucketEngine, Options};

use crate::faulty::FaultyStore;
use crate::{options, step, steps};

/// Returns the current second when it has passed.
fn now_s() -> u64 {
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let started = now();
    while now() == started {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    started
}

#[test]
fn a_state_of_the_past_is_complete_and_apart_from_the_store() {
    const SHARDS: u64 = 5;
    let store = FaultyStore::new(1);
    let groups = || Options { groups: NonZeroU32::new(3).unwrap(), ..options() };
    let engine = BucketEngine::open(store.bucket(), &groups(), None).unwrap();
    let mut times = Vec::new();
    for round in 0..6 {
        for shard in 1..=SHARDS {
            step(&engine, Shard(shard), round, Durability::Synced);
        }
        if round == 3 {
            engine.drop_shard(Shard(SHARDS)).unwrap();
            break;
        }
        times.push(now_s());
    }
    let buffered = || step(&engine, Shard(1), 4, Durability::Buffered);
    buffered();
    for (round, time_s) in (1..).zip(&times) {
        let past = BucketEngine::open(store.bucket().at(Some(*time_s)), &groups(), None).unwrap();
        assert_eq!(past.time_s(), Some(*time_s));
        for shard in 1..=SHARDS {
            assert_eq!(steps(&past, Shard(shard)), round);
            // Changes are not written.
            step(&past, Shard(shard), round, Durability::Synced);
        }
    }
    engine.sync().unwrap();
    let newest = BucketEngine::open(store.bucket().at(None), &groups(), None).unwrap();
    for shard in 1..SHARDS {
        let expected = if shard == 1 { 5 } else { 4 };
        assert_eq!(steps(&newest, Shard(shard)), expected);
        step(&engine, Shard(shard), expected, Durability::Synced);
        assert_eq!(steps(&newest, Shard(shard)), expected, "a later commit");
    }
    let dropped = newest.snapshot(Shard(SHARDS)).unwrap().state();
    assert!(matches!(dropped, Err(StorageError::Dropped)), "{dropped:?}");
}

#[test]
fn a_state_that_was_removed_is_refused() {
    let store = FaultyStore::new(1);
    let engine = BucketEngine::open(store.bucket(), &options(), None).unwrap();
    step(&engine, Shard(1), 0, Durability::Synced);
    drop(engine);
    let time_s = now_s();
    store.remove("settee-coordinator");
    drop(BucketEngine::open(store.bucket(), &options(), None).unwrap().snapshot(Shard(1)).unwrap());
    let open = || BucketEngine::open(store.bucket().at(Some(time_s)), &options(), None);
    assert_eq!(steps(&open().unwrap(), Shard(1)), 1);
    let manifests: Vec<String> =
        store.names().into_iter().filter(|name| name.starts_with("group-000/manifest/")).collect();
    let newest = manifests.iter().max().unwrap();
    manifests.iter().filter(|name| *name != newest).for_each(|name| store.remove(name));
    let error = open().unwrap_err().to_string();
    assert!(error.contains("does not contain the state of that time any more"), "{error}");
    assert_eq!(steps(&BucketEngine::open(store.bucket().at(None), &options(), None).unwrap(), Shard(1)), 1);
}
