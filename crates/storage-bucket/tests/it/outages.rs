//! Stores that do not answer, and outages that exceed the lease and the timeout.

use std::hash::{BuildHasher, RandomState};
use std::thread;
use std::time::{Duration, Instant};

use settee_cluster::Groups;
use settee_storage::{Batch, Durability, Engine, Keyspace, Outcome, Shard, StorageError, Version};
use settee_storage_bucket::{BucketEngine, Options};

use crate::faulty::FaultyStore;
use crate::network::Network;
use crate::nodes::{GROUPS, shards, steps_if_served, three_on, until, with_groups};
use crate::{numbered, options, statistic, step, steps, token};

const TIMEOUT: Duration = Duration::from_millis(500);

/// Maximum duration of an operation on a loaded machine.
const DURATION_MAX: Duration = Duration::from_secs(8);

fn short() -> Options {
    Options { timeout: TIMEOUT, ..options() }
}

fn limited<T>(label: &str, operation: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = operation();
    println!("{label}: {:?}", started.elapsed());
    assert!(started.elapsed() < DURATION_MAX, "{label}: {:?}", started.elapsed());
    result
}

fn commit(engine: &BucketEngine, shard: Shard, version: u64) -> Result<Outcome, StorageError> {
    engine.commit(shard, Version(version), token(version + 1), numbered(version + 1), Durability::Synced)
}

#[test]
fn requests_without_an_answer_end_after_the_timeout() {
    let seed = RandomState::new().hash_one(1);
    println!("seed {seed}");
    let store = FaultyStore::new(seed);
    let engine = BucketEngine::open(store.bucket(), &short(), None).unwrap();
    step(&engine, Shard(1), 0, Durability::Synced);
    // Too large for one block, so that a read sends requests after the next start.
    let mut batch = Batch::new();
    for number in 0..50_u64 {
        let value: Vec<u8> = (0..10_000_u64).map(|at| (at * at + number) as u8).collect();
        batch.put(Keyspace::Bodies, &number.to_be_bytes(), &value);
    }
    let _ = engine.commit(Shard(2), Version(0), token(1), batch, Durability::Synced).unwrap();
    drop(engine);
    let engine = BucketEngine::open(store.bucket(), &short(), None).unwrap();
    let groups = Groups::new(engine.group_count().unwrap());
    let claim = engine.members().claim(&groups.key(0)).unwrap().unwrap();
    step(&engine, Shard(1), 1, Durability::Synced);
    let body = || engine.snapshot(Shard(2)).and_then(|view| view.get(Keyspace::Bodies, &25_u64.to_be_bytes()));

    store.set_hangs(1000);
    let error = limited("a commit", || commit(&engine, Shard(1), 2)).unwrap_err();
    assert!(matches!(error, StorageError::InDoubt(_)), "{error:?}");
    let error = limited("a read", body).unwrap_err();
    assert!(matches!(error, StorageError::Unreached(_)), "{error:?}");
    let error = limited("a later commit", || commit(&engine, Shard(3), 0)).unwrap_err();
    assert!(matches!(error, StorageError::Unreached(_)), "{error:?}");
    limited("a fence", || engine.members().fence(&claim)).unwrap();
    let error = limited("a start", || BucketEngine::open(store.bucket(), &short(), None)).unwrap_err();
    assert!(matches!(error, StorageError::Unreached(_)), "{error:?}");
    assert_eq!(steps(&engine, Shard(1)), 2, "the commit is not durable");

    store.set_hangs(0);
    until("the commit is durable", || steps(&engine, Shard(1)) == 3);
    until("commits are accepted", || engine.check().is_ok());
    step(&engine, Shard(1), 3, Durability::Synced);
    step(&engine, Shard(3), 0, Durability::Synced);
    assert_eq!(body().unwrap().unwrap().len(), 10_000);
    limited("the end", || engine.close());
}

/// Half of the changes among the requests without an answer are applied.
#[test]
fn some_requests_without_an_answer_lose_and_repeat_nothing() {
    let seed = RandomState::new().hash_one(1);
    println!("seed {seed}");
    let store = FaultyStore::new(seed);
    let mut count = 0;
    for _ in 0..3 {
        let engine = BucketEngine::open(store.bucket(), &short(), None).unwrap();
        store.set_hangs(30);
        let target = count + 8;
        until("commits are made", || {
            // A commit in doubt is made later, or was never sent.
            match commit(&engine, Shard(1), count) {
                Ok(_) => {}
                Err(error) => assert!(error.is_temporary(), "{error:?}, seed {seed}"),
            }
            count = steps_if_served(&engine, Shard(1)).unwrap_or(count).max(count);
            count >= target
        });
        store.set_hangs(0);
        until("commits are accepted", || engine.check().is_ok());
        count = steps(&engine, Shard(1));
        drop(engine);
        let engine = BucketEngine::open(store.bucket(), &short(), None).unwrap();
        assert_eq!(steps(&engine, Shard(1)), count, "seed {seed}");
    }
}

#[test]
fn writes_during_an_outage_are_refused_after_the_timeout() {
    const SHARDS: u64 = 4;
    let store = FaultyStore::new(1);
    let engine = &BucketEngine::open(store.bucket(), &short(), None).unwrap();
    (0..2 * SHARDS).for_each(|shard| step(engine, Shard(shard), 0, Durability::Synced));
    store.set_down(true);
    let started = Instant::now();
    let accepted: Vec<u64> = thread::scope(|scope| {
        let writers: Vec<_> = (0..2 * SHARDS)
            .map(|shard| {
                let durability = if shard < SHARDS { Durability::Buffered } else { Durability::Synced };
                scope.spawn(move || {
                    for number in 1.. {
                        let (token, batch) = (token(number + 1), numbered(number + 1));
                        let made = engine.commit(Shard(shard), Version(number), token, batch, durability);
                        if let Err(error) = made {
                            assert!(error.is_temporary(), "{error:?}");
                            return number;
                        }
                        assert!(started.elapsed() < 2 * DURATION_MAX, "{number} writes are accepted");
                    }
                    unreachable!("the loop ends with an error")
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    println!("{accepted:?} in {:?}, {} bytes", started.elapsed(), statistic(engine, "written_bytes"));
    for shard in 0..2 * SHARDS {
        let error = limited("a refusal", || commit(engine, Shard(shard), accepted[shard as usize])).unwrap_err();
        assert!(matches!(error, StorageError::Unreached(_)), "{error:?}");
    }
    store.set_down(false);
    until("writes are accepted", || engine.check().is_ok());
    for (shard, accepted) in (0..).zip(accepted) {
        // A synced commit was in doubt.
        let expected = if shard < SHARDS { accepted..=accepted } else { accepted..=accepted + 1 };
        let found = steps(engine, Shard(shard));
        assert!(expected.contains(&found), "{found}, {accepted} are accepted");
        step(engine, Shard(shard), found, Durability::Synced);
    }
}

/// The outage exceeds the lease and the timeout.
fn during_outages() -> Options {
    Options { lease: Duration::from_millis(1500), timeout: Duration::from_secs(1), ..with_groups(GROUPS) }
}

/// Claims all groups that have no owner.
fn claim_all(engines: &[&BucketEngine]) {
    let groups = Groups::new(engines[0].group_count().unwrap());
    for group in 0..GROUPS {
        let key = groups.key(group);
        let is_owned = || {
            engines.iter().any(|engine| {
                let (members, writers) = (engine.members(), engine.members().writers());
                writers.iter().any(|(claim, node)| claim.key == key && *node == members.this() && members.holds(claim))
            })
        };
        until("the group has an owner", || {
            is_owned() || engines.iter().any(|engine| matches!(engine.members().claim(&key), Ok(Some(_))))
        });
    }
    engines.iter().for_each(|engine| drop(engine.members().refresh()));
}

#[test]
fn a_process_without_the_store_serves_nothing_after_its_lease_and_the_others_continue() {
    let network = Network::new();
    let (stores, engines) = three_on(&network, &FaultyStore::new(1), during_outages);
    let [first, second, third] = engines.each_ref().map(AsRef::as_ref);
    shards().into_iter().for_each(|shard| step(first, shard, 0, Durability::Synced));
    let (shard, key) = (shards()[0], Groups::new(first.group_count().unwrap()).key(0));
    let (claim, _) = first.members().writers().iter().find(|(claim, _)| claim.key == key).unwrap().clone();
    stores[0].set_down(true);
    let error = limited("a commit", || commit(first, shard, 1)).unwrap_err();
    assert!(error.is_temporary(), "{error:?}");
    let waited = until("the lease ends", || !first.members().holds(&claim));
    println!("the lease ended {waited:?} later");
    claim_all(&[second, third]);
    let found = steps(second, shard);
    assert!((1..=2).contains(&found), "{found}");
    for (number, engine) in (0..).zip([second, third]) {
        for shard in shards() {
            let base = if shard == shards()[0] { found } else { 1 };
            step(engine, shard, base + number, Durability::Synced);
        }
    }
    // It cannot find the new coordinator, whose address is in the store.
    for shard in [shards()[0], shards()[3]] {
        let state = limited("a read", || first.snapshot(shard).and_then(|view| view.state()));
        assert!(state.as_ref().is_err_and(StorageError::is_temporary), "{state:?}");
    }
    stores[0].set_down(false);
    for shard in shards() {
        until("the first process writes", || {
            let Some(version) = steps_if_served(first, shard) else { return false };
            commit(first, shard, version).is_ok()
        });
        assert_eq!(steps(second, shard), steps(third, shard));
    }
}

/// Its heartbeats arrive, because they do not use the store.
#[test]
fn a_process_that_is_not_the_coordinator_gives_its_groups_to_others_without_the_store() {
    for hangs in [false, true] {
        let network = Network::new();
        let (stores, engines) = three_on(&network, &FaultyStore::new(1), during_outages);
        let [first, second, third] = engines.each_ref().map(AsRef::as_ref);
        shards().into_iter().for_each(|shard| step(first, shard, 0, Durability::Synced));
        let set_unreachable = |is_unreachable| match hangs {
            true => stores[1].set_hangs(if is_unreachable { 1000 } else { 0 }),
            false => stores[1].set_down(is_unreachable),
        };
        set_unreachable(true);
        let (shard, key) = (shards()[1], Groups::new(first.group_count().unwrap()).key(1));
        let error = limited("a commit", || commit(second, shard, 1)).unwrap_err();
        assert!(error.is_temporary(), "{error:?}");
        let waited = until("its group has another owner", || matches!(third.members().claim(&key), Ok(Some(_))));
        println!("another owner after {waited:?}");
        claim_all(&[first, third]);
        let found = steps(third, shard);
        assert!((1..=2).contains(&found), "{found}");
        until("it finds the new owner", || steps_if_served(second, shard) == Some(found));
        step(second, shard, found, Durability::Synced);
        assert_eq!(second.members().claim(&key).unwrap(), None);
        assert!(third.members().live().iter().all(|node| node.id != second.members().this()));
        set_unreachable(false);
        until("it takes part again", || {
            third.members().refresh().unwrap();
            third.members().live().len() == 3
        });
        let claim = third.members().writers().iter().find(|(claim, _)| claim.key == key).unwrap().0.clone();
        third.members().release(&claim).unwrap();
        until("it claims the group", || matches!(second.members().claim(&key), Ok(Some(_))));
        step(second, shard, found + 1, Durability::Synced);
        assert_eq!(steps(first, shard), found + 2);
    }
}

#[test]
fn after_an_outage_for_all_processes_every_acknowledged_commit_is_present() {
    let network = Network::new();
    let (stores, engines) = three_on(&network, &FaultyStore::new(1), during_outages);
    let all = engines.each_ref().map(AsRef::as_ref);
    shards().into_iter().for_each(|shard| step(all[0], shard, 0, Durability::Synced));
    stores.iter().for_each(|store| store.set_down(true));
    let started = Instant::now();
    thread::scope(|scope| {
        for engine in all {
            scope.spawn(move || {
                for shard in shards().into_iter().cycle() {
                    if started.elapsed() > Duration::from_secs(5) {
                        return;
                    }
                    match limited("a commit", || commit(engine, shard, 1)) {
                        Err(error) => assert!(error.is_temporary(), "{error:?}"),
                        // The answer of the owner is late.
                        Ok(outcome) => assert_eq!(outcome, Outcome::Unknown),
                    }
                }
            });
        }
    });
    assert!(all.iter().all(|engine| engine.check().is_err()));
    stores.iter().for_each(|store| store.set_down(false));
    let recovered = Instant::now();
    until("a coordinator exists", || all.iter().all(|engine| engine.members().refresh().is_ok()));
    claim_all(&all);
    for shard in shards() {
        until("all read the shard", || all.iter().all(|engine| steps_if_served(engine, shard).is_some()));
        until("it accepts a commit", || {
            let Some(version) = steps_if_served(all[0], shard) else { return false };
            assert!((1..=3).contains(&version), "version {version}");
            commit(all[0], shard, version).is_ok()
        });
        let found = steps(all[0], shard);
        assert!(all.iter().all(|engine| steps(engine, shard) == found));
    }
    println!("recovered in {:?}", recovered.elapsed());
}
