//! Faults of the store: latency, errors, lost responses, an outage.

use std::hash::{BuildHasher, RandomState};
use std::thread;
use std::time::{Duration, Instant};

use settee_storage::{Durability, Engine, Shard, StorageError, Version};
use settee_storage_bucket::{BucketEngine, Options};

use crate::faulty::FaultyStore;
use crate::{numbered, open, options, step, steps, token};

#[test]
fn failing_requests_and_lost_responses_lose_and_repeat_nothing() {
    const SHARDS: u64 = 6;
    let seed = RandomState::new().hash_one(1);
    println!("seed {seed}");
    let store = FaultyStore::new(seed);
    for (round, (latency_ms, failures, lost)) in (0..).zip([(0, 100, 0), (0, 0, 150), (5, 100, 100)]) {
        let engine = &*open(store.bucket());
        store.set_latency(Duration::from_millis(latency_ms));
        store.set_failures(failures, lost);
        thread::scope(|scope| {
            for shard in 0..SHARDS {
                scope.spawn(move || {
                    assert_eq!(steps(engine, Shard(shard)), round * 8, "seed {seed}");
                    for number in round * 8..(round + 1) * 8 {
                        step(engine, Shard(shard), number, Durability::Synced);
                    }
                });
            }
        });
        store.set_failures(0, 0);
        store.set_latency(Duration::ZERO);
    }
    let engine = open(store.bucket());
    for shard in 0..SHARDS {
        assert_eq!(steps(&engine, Shard(shard)), 24, "seed {seed}");
    }
}

#[test]
fn a_commit_during_a_long_outage_is_in_doubt_and_later_durable() {
    let store = FaultyStore::new(1);
    let options = Options { timeout: Duration::from_millis(500), ..options() };
    let engine = BucketEngine::open(store.bucket(), &options, None).unwrap();
    step(&engine, Shard(1), 0, Durability::Synced);
    store.set_down(true);
    let error = engine.commit(Shard(1), Version(1), token(2), numbered(2), Durability::Synced).unwrap_err();
    assert!(matches!(error, StorageError::InDoubt(_)), "{error:?}");
    assert_eq!(steps(&engine, Shard(1)), 1, "the commit is not durable");
    let until = Instant::now() + Duration::from_secs(30);
    while engine.check().is_ok() {
        assert!(Instant::now() < until, "the outage is not reported");
        thread::sleep(Duration::from_millis(20));
    }
    let error = engine.commit(Shard(2), Version(0), token(1), numbered(1), Durability::Synced).unwrap_err();
    assert!(matches!(error, StorageError::Unreached(_)), "{error:?}");
    store.set_down(false);
    while steps(&engine, Shard(1)) == 1 {
        assert!(Instant::now() < until, "the commit is never durable");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(steps(&engine, Shard(1)), 2);
    step(&engine, Shard(1), 2, Durability::Synced);
    step(&engine, Shard(2), 0, Durability::Synced);
}
