//! Stale listings, and clocks that differ.

use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use settee_storage::{Durability, Engine, Outcome, Shard, StorageError, Version};
use settee_storage_bucket::{BucketEngine, Options};

use crate::faulty::FaultyStore;
use crate::network::Network;
use crate::nodes::{GROUPS, shards, three_on, until, with_groups};
use crate::{numbered, statistic, step, steps, token};

const SHARDS: u64 = 5;

/// Repeats an operation that a stale listing may fail. Nothing else fails.
fn retried<T: Debug>(label: &str, seed: u64, mut operation: impl FnMut() -> Result<T, StorageError>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match operation() {
            Ok(result) => return result,
            Err(error) => {
                println!("{label}: {error}");
                assert!(error.is_temporary(), "{label}: {error:?}, seed {seed}");
                assert!(Instant::now() < deadline, "{label}: {error:?}, seed {seed}");
            }
        }
    }
}

/// All objects seem to be old, so that the garbage collection removes what nothing refers to at each start. Some
/// processes end, and others are suspended and fenced.
#[test]
fn stale_listings_lose_nothing() {
    let seed = RandomState::new().hash_one(1);
    println!("seed {seed}");
    let store = FaultyStore::new(seed);
    let (mut suspended, mut deleted) = (Vec::new(), 0);
    let mut versions = [0; SHARDS as usize];
    for round in 0..16 {
        let access = store.other();
        access.set_stale(30);
        access.set_clock(-3_600_000);
        let own = Options { history: Duration::ZERO, idle_time: Duration::from_millis(2), ..with_groups(3) };
        let engine = retried("start", seed, || BucketEngine::open(access.bucket(), &own, None));
        for (shard, version) in (0..).map(Shard).zip(&mut versions) {
            let state = retried("read", seed, || engine.snapshot(shard).and_then(|view| view.state()));
            assert_eq!(state.version, Version(*version), "{shard:?} in round {round}, seed {seed}");
            assert_eq!(steps(&engine, shard), *version, "{shard:?} in round {round}, seed {seed}");
            for _ in 0..3 {
                let (token, batch) = (token(*version + 1), numbered(*version + 1));
                let outcome = engine.commit(shard, Version(*version), token, batch, Durability::Synced).unwrap();
                *version += 1;
                assert_eq!(outcome, Outcome::Committed(Version(*version)));
            }
        }
        deleted += statistic(&engine, "store_delete_requests");
        if round % 3 == 2 {
            suspended.push((engine, versions));
            store.remove("settee-coordinator");
        }
    }
    println!("{deleted} objects were deleted");
    assert!(deleted > 0, "no garbage was collected");
    for (engine, before) in &suspended {
        for (shard, version) in (0..).map(Shard).zip(before) {
            let outcome = engine.commit(shard, Version(*version), token(99), numbered(99), Durability::Synced);
            // Without other processes, an earlier one may have become the owner again.
            let is_rejected = match &outcome {
                Ok(outcome) => matches!(outcome, Outcome::Conflict(_)),
                Err(error) => error.is_temporary(),
            };
            assert!(is_rejected, "{outcome:?}, seed {seed}");
        }
    }
    drop(suspended);
    store.remove("settee-coordinator");
    let engine = BucketEngine::open(store.bucket(), &with_groups(3), None).unwrap();
    for (shard, version) in (0..).map(Shard).zip(versions) {
        assert_eq!(steps(&engine, shard), version, "seed {seed}");
    }
}

/// The listing of a group shows no objects although it has data.
#[test]
fn a_group_whose_objects_are_not_listed_is_not_created_again() {
    let store = FaultyStore::new(1);
    store.set_stale(0);
    let engine = BucketEngine::open(store.bucket(), &with_groups(1), None).unwrap();
    let claim = |engine: &BucketEngine| {
        let key = settee_cluster::Groups::new(engine.group_count().unwrap()).key(0);
        engine.members().claim(&key).unwrap().unwrap()
    };
    step(&engine, Shard(1), 0, Durability::Synced);
    store.remove("settee-coordinator");
    let access = store.other();
    access.hide_objects(true);
    let successor = BucketEngine::open(access.bucket(), &with_groups(1), None).unwrap();
    let claimed = claim(&successor);
    println!("fence: {:?}", successor.members().fence(&claimed));
    let error = successor.snapshot(Shard(1)).and_then(|view| view.state()).unwrap_err();
    println!("{error:?}");
    assert!(error.is_temporary(), "{error:?}");
    // The earlier owner is fenced when the successor opens the group, and what it has committed before remains.
    let outcome = engine.commit(Shard(1), Version(1), token(2), numbered(2), Durability::Synced);
    let expected = if outcome.is_ok() { 2 } else { 1 };
    access.hide_objects(false);
    assert_eq!(steps(&successor, Shard(1)), expected);
    step(&successor, Shard(1), expected, Durability::Synced);
}

/// The clocks of two processes differ from that of the store by a minute in both directions.
#[test]
fn differences_between_clocks_change_nothing() {
    let (store, network) = (FaultyStore::new(1), Network::new());
    let number = std::cell::Cell::new(0);
    let (stores, engines) = three_on(&network, &store, || {
        number.set(number.get() + 60_000);
        Options { started_ms: 180_000 - number.get(), lease: Duration::from_secs(2), ..with_groups(GROUPS) }
    });
    for (store, clock_ms) in stores.iter().zip([60_000, -60_000, -3_600_000]) {
        store.set_clock(clock_ms);
    }
    for (number, engine) in (0..).zip(&engines) {
        shards().into_iter().for_each(|shard| step(engine, shard, number, Durability::Synced));
    }
    // The coordinator and another process leave, so that one process takes over all groups.
    engines[0].close();
    engines[1].close();
    for shard in shards() {
        until("the group is served", || {
            engines[2].snapshot(shard).and_then(|view| view.state()).is_ok_and(|state| state.version == Version(3))
        });
        step(&engines[2], shard, 3, Durability::Synced);
        assert_eq!(steps(&engines[2], shard), 4);
    }
}
