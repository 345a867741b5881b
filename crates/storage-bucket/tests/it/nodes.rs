//! Several processes that serve the groups of one store.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use settee_cluster::Groups;
use settee_storage::{Durability, Engine, Keyspace, Shard, StorageError, conformance};
use settee_storage_bucket::{BucketEngine, Options};

use crate::faulty::FaultyStore;
use crate::network::Network;
use crate::{numbered, options, statistic, step, steps, token};

const LEASE: Duration = Duration::from_secs(2);

const TIMEOUT: Duration = Duration::from_secs(60);

/// Groups of three processes.
pub(crate) const GROUPS: u32 = 6;

pub(crate) fn with_groups(count: u32) -> Options {
    Options { groups: NonZeroU32::new(count).unwrap(), ..options() }
}

pub(crate) fn until(label: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < TIMEOUT, "{label}");
        thread::sleep(Duration::from_millis(10));
    }
    started.elapsed()
}

/// Two engines on one bucket in memory.
fn pair(count: u32) -> [Arc<BucketEngine>; 2] {
    let (store, network) = (FaultyStore::new(1), Network::new());
    [0, 1].map(|_| network.open(store.other().bucket(), &with_groups(count)))
}

#[test]
fn two_processes_conform() {
    conformance::run_all_of_two(&|| pair(1).map(|engine| engine as Arc<dyn Engine>));
}

/// A process that serves no group sends everything to the other one.
#[test]
fn a_process_without_groups_conforms() {
    let others = parking_lot::Mutex::new(Vec::new());
    conformance::run_all(&|| {
        let [owner, other] = pair(4);
        let groups = Groups::new(owner.group_count().unwrap());
        for group in 0..groups.count() {
            owner.members().claim(&groups.key(group)).unwrap().unwrap();
        }
        owner.members().announce("owner", &format!("http://node-{}/", owner.members().this().0)).unwrap();
        other.members().refresh().unwrap();
        others.lock().push(owner);
        other
    });
}

fn announce(engine: &BucketEngine) {
    let id = engine.members().this().0;
    engine.members().announce(&format!("node {id}"), &format!("http://node-{id}/")).unwrap();
}

/// Three announced engines, and their accesses to the store. Each serves the groups that it has claimed.
fn three(network: &Arc<Network>) -> ([Arc<FaultyStore>; 3], [Arc<BucketEngine>; 3]) {
    three_on(network, &FaultyStore::new(1), || Options { lease: LEASE, ..with_groups(GROUPS) })
}

pub(crate) fn three_on(
    network: &Arc<Network>,
    store: &FaultyStore,
    options: impl Fn() -> Options,
) -> ([Arc<FaultyStore>; 3], [Arc<BucketEngine>; 3]) {
    let stores = [0, 1, 2].map(|_| store.other());
    let engines = stores.each_ref().map(|store| {
        let engine = network.open(store.bucket(), &options());
        announce(&engine);
        engine
    });
    for engine in &engines {
        until("all see all", || {
            engine.members().refresh().unwrap();
            engine.members().live().len() == 3
        });
    }
    let groups = Groups::new(engines[0].group_count().unwrap());
    for group in 0..groups.count() {
        let claimed = engines[group as usize % 3].members().claim(&groups.key(group)).unwrap();
        assert!(claimed.is_some(), "group {group}");
    }
    engines.iter().for_each(|engine| engine.members().refresh().unwrap());
    (stores, engines)
}

/// Returns a shard of each group.
pub(crate) fn shards() -> Vec<Shard> {
    let groups = Groups::new(NonZeroU32::new(GROUPS).unwrap());
    (0..GROUPS).map(|group| (1..).map(Shard).find(|shard| groups.of(*shard) == group).unwrap()).collect()
}

#[test]
fn every_process_reads_and_writes_every_group() {
    let (_stores, engines) = three(&Network::new());
    for (number, engine) in (0..).zip(&engines) {
        for shard in shards() {
            for reader in &engines {
                assert_eq!(steps(reader, shard), number);
            }
            step(engine, shard, number, Durability::Synced);
        }
    }
}

#[test]
fn each_process_counts_the_groups_that_it_owns() {
    let network = Network::new();
    let (_stores, engines) = three(&network);
    assert_eq!(engines.each_ref().map(|engine| statistic(engine, "owned_groups")), [2, 2, 2]);
    let [_first, second, third] = engines;
    let groups = Groups::new(second.group_count().unwrap());
    let writers = second.members().writers();
    let (claim, _) = writers.iter().find(|(claim, _)| groups.of_key(&claim.key) == Some(1)).unwrap();
    second.members().release(claim).unwrap();
    assert_eq!(statistic(&second, "owned_groups"), 1);
    network.set_silent(&format!("http://node-{}/", third.members().this().0), true);
    until("it cannot rely on its claims", || statistic(&third, "owned_groups") == 0);
}

#[test]
fn groups_of_a_failed_process_are_taken_over() {
    let network = Network::new();
    let (_stores, [first, second, third]) = three(&network);
    for shard in shards() {
        step(&first, shard, 0, Durability::Synced);
    }
    // The third process serves the groups 2 and 5. It stops without a message.
    network.set_silent(&format!("http://node-{}/", third.members().this().0), true);
    let groups = Groups::new(first.group_count().unwrap());
    let key = groups.key(2);
    let waited = until("the claim is taken over", || second.members().claim(&key).unwrap().is_some());
    println!("taken over after {waited:?}");
    let shard = shards()[2];
    step(&second, shard, 1, Durability::Synced);
    assert_eq!(steps(&first, shard), 2);
    let outcome = third.commit(shard, settee_storage::Version(1), token(9), numbered(9), Durability::Synced);
    assert!(outcome.as_ref().is_err_and(StorageError::is_temporary), "{outcome:?}");
    network.set_silent(&format!("http://node-{}/", third.members().this().0), false);
    until("it follows again", || third.members().refresh().is_ok());
    assert_eq!(steps(&third, shard), 2);
    step(&third, shard, 2, Durability::Synced);
}

#[test]
fn the_coordinator_is_replaced_and_claims_of_others_remain() {
    let network = Network::new();
    let (stores, [first, second, third]) = three(&network);
    let address = format!("http://node-{}/", first.members().this().0);
    for shard in shards() {
        step(&third, shard, 0, Durability::Synced);
    }
    let own = second.members().claim("work").unwrap().unwrap();
    network.set_silent(&address, true);
    stores[0].set_down(true);
    let waited = until("another coordinator", || {
        second.members().refresh().is_ok() && third.members().refresh().is_ok() && second.members().live().len() == 2
    });
    println!("replaced after {waited:?}");
    assert!(second.members().holds(&own) && third.members().claim("work").unwrap().is_none());
    let groups = Groups::new(first.group_count().unwrap());
    for group in [0, 3] {
        let taken = until("the group has an owner", || {
            [&second, &third].iter().any(|engine| engine.members().claim(&groups.key(group)).unwrap().is_some())
        });
        println!("group {group} after {taken:?}");
    }
    [&second, &third].iter().for_each(|engine| engine.members().refresh().unwrap());
    for (number, engine) in (1..).zip([&second, &third, &second]) {
        for shard in shards() {
            step(engine, shard, number, Durability::Synced);
        }
    }
    // The earlier coordinator answers nothing that may be wrong, and follows later.
    for shard in [shards()[0], shards()[3]] {
        assert!(first.snapshot(shard).and_then(|view| view.state()).is_err());
    }
    stores[0].set_down(false);
    network.set_silent(&address, false);
    until("it follows", || first.members().refresh().is_ok());
    for shard in shards() {
        until("it reads from the owners", || steps_if_served(&first, shard) == Some(4));
    }
}

pub(crate) fn steps_if_served(engine: &BucketEngine, shard: Shard) -> Option<u64> {
    let state = engine.snapshot(shard).and_then(|view| view.state()).ok()?;
    Some(state.version.0)
}

#[test]
fn a_group_moves_without_a_lost_commit() {
    let (_stores, engines) = three(&Network::new());
    let [first, second, third] = engines.each_ref().map(AsRef::as_ref);
    let groups = Groups::new(first.group_count().unwrap());
    let (shard, key) = (shards()[1], groups.key(1));
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..200 {
                // A commit that the move interrupts is repeated; its token shows whether it was applied.
                while steps_if_served(third, shard).is_none_or(|made| made == number) {
                    let version = settee_storage::Version(number);
                    let made =
                        third.commit(shard, version, token(number + 1), numbered(number + 1), Durability::Synced);
                    if let Err(error) = made {
                        assert!(error.is_temporary(), "{error:?}");
                        thread::yield_now();
                    }
                }
            }
        });
        let mut owners = [second, first].into_iter().cycle();
        let mut owner = owners.next().unwrap();
        while !writer.is_finished() {
            thread::sleep(Duration::from_millis(30));
            let (claim, _) = owner.members().writers().iter().find(|(claim, _)| claim.key == key).unwrap().clone();
            owner.members().release(&claim).unwrap();
            owner = owners.next().unwrap();
            until("it is free", || owner.members().claim(&key).unwrap().is_some());
            owner.members().refresh().unwrap();
        }
    });
    assert_eq!(steps(third, shard), 200);
}

#[test]
fn a_lost_answer_to_a_commit_is_an_unknown_outcome() {
    let network = Network::new();
    let (_stores, [_, second, third]) = three(&network);
    let (shard, address) = (shards()[1], format!("http://node-{}/", second.members().this().0));
    step(&third, shard, 0, Durability::Synced);
    network.set_lossy(&address, true);
    let outcome = third.commit(shard, settee_storage::Version(1), token(2), numbered(2), Durability::Synced);
    assert!(matches!(outcome, Ok(settee_storage::Outcome::Unknown)), "{outcome:?}");
    network.set_lossy(&address, false);
    let state = third.snapshot(shard).unwrap().state().unwrap();
    assert_eq!((state.version.0, state.token), (2, token(2)));
}

#[test]
fn other_processes_observe_only_durable_commits() {
    let store = FaultyStore::new(1);
    let network = Network::new();
    let long = Duration::from_secs(3600);
    let options = || Options { flush_interval: long, ..with_groups(1) };
    let [owner, other] = [0, 1].map(|_| network.open(store.other().bucket(), &options()));
    step(&owner, Shard(1), 0, Durability::Buffered);
    assert_eq!(steps(&other, Shard(1)), 1);
    let kept = FaultyStore::other(&store);
    kept.remove("settee-coordinator");
    let successor = crate::open(kept.bucket());
    assert_eq!(steps(&successor, Shard(1)), 1, "what another process has observed is lost");
}

#[test]
fn a_snapshot_of_another_process_ends_with_its_owner() {
    let [owner, other] = pair(1);
    step(&owner, Shard(1), 0, Durability::Synced);
    let snapshot = other.snapshot(Shard(1)).unwrap();
    assert_eq!(snapshot.state().unwrap().version.0, 1);
    owner.close();
    let read = snapshot.get(Keyspace::Documents, b"key");
    assert!(read.as_ref().is_err_and(StorageError::is_temporary), "{read:?}");
}

#[test]
fn a_process_without_messages_waits_for_the_store() {
    let (store, network) = (FaultyStore::new(1), Network::new());
    let owner = network.open(store.bucket(), &with_groups(2));
    step(&owner, Shard(1), 0, Durability::Synced);
    let other = store.other();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| BucketEngine::open(other.bucket(), &options(), None));
        thread::sleep(Duration::from_millis(300));
        assert!(!waiting.is_finished());
        drop(owner);
        assert_eq!(steps(&waiting.join().unwrap().unwrap(), Shard(1)), 1);
    });
}

#[test]
fn an_unused_group_sends_nothing_and_is_opened_again() {
    let store = FaultyStore::new(1);
    let idle_time = Duration::from_millis(300);
    let own = Options { idle_time, ..with_groups(4) };
    let engine = BucketEngine::open(store.bucket(), &own, None).unwrap();
    for shard in 1..20 {
        step(&engine, Shard(shard), 0, Durability::Buffered);
    }
    let snapshot = engine.snapshot(Shard(1)).unwrap();
    until("the unused groups are closed", || statistic(&engine, "open_groups") == 1);
    assert_eq!(snapshot.state().unwrap().version.0, 1, "a snapshot keeps its group open");
    drop(snapshot);
    until("all groups are closed", || statistic(&engine, "open_groups") == 0);
    let requests = || ["store_get_requests", "store_list_requests"].map(|name| statistic(&engine, name));
    until("no requests are sent", || {
        let before = requests();
        thread::sleep(2 * idle_time);
        requests() == before
    });
    for shard in 1..20 {
        assert_eq!(steps(&engine, Shard(shard)), 1);
        step(&engine, Shard(shard), 1, Durability::Synced);
    }
}

/// No message to the coordinator is necessary before each read of what all processes cache.
#[test]
fn commits_to_the_first_group_are_observed_before_they_are_acknowledged() {
    let network = Network::new();
    let (_stores, engines) = three(&network);
    let heard = engines.each_ref().map(|engine| {
        let heard = Arc::new(AtomicU64::new(0));
        let to = Arc::clone(&heard);
        engine.subscribe(Box::new(move |shard, version| {
            if shard == Shard(0) {
                to.fetch_max(version.0, Ordering::SeqCst);
            }
        }));
        heard
    });
    for number in 0..9 {
        let writer = number as usize % 3;
        step(&engines[writer], Shard(0), number, Durability::Synced);
        for (reader, heard) in heard.iter().enumerate().filter(|(reader, _)| *reader != writer) {
            assert_eq!(heard.load(Ordering::SeqCst), number + 1, "process {reader}");
        }
    }
    // A process that does not answer delays the commit until it cannot rely on its caches any more.
    let third = &engines[2];
    network.set_silent(&format!("http://node-{}/", third.members().this().0), true);
    let begun = Instant::now();
    step(&engines[0], Shard(0), 9, Durability::Synced);
    assert!(begun.elapsed() > Duration::from_secs(3), "{:?}", begun.elapsed());
    assert!(third.catch_up().is_err());
}
