//! Crashes: killed processes, and stores as they are after any number of changes.

use std::hash::{BuildHasher, RandomState};

use settee_storage::conformance::{self, Generator};
use settee_storage::{Durability, Engine, Shard};

use crate::faulty::FaultyStore;
use crate::{child, directory, open, step, steps};

#[test]
fn commit_until_killed() {
    let Some(path) = child::directory() else { return };
    conformance::commit_until_killed(&*open(directory(&path)));
}

#[test]
fn a_killed_process_loses_nothing_that_it_acknowledged() {
    let store = tempfile::tempdir().unwrap();
    let child = || child::command("crash::commit_until_killed", store.path());
    conformance::kills_lose_nothing((5, 300), child, || open(directory(store.path())));
}

/// A store applies each change completely or not at all, so a power loss leaves the objects after one of the changes.
#[test]
fn every_state_of_the_store_has_the_commits_acknowledged_before_it() {
    let store = FaultyStore::new(1);
    store.record();
    let engine = open(store.bucket());
    let mut promised = Vec::new();
    for number in 0..120 {
        let durability = if number % 4 == 0 { Durability::Buffered } else { Durability::Synced };
        step(&engine, Shard(1), number, durability);
        if durability == Durability::Synced {
            promised.push((store.changes(), number + 1));
        }
    }
    engine.drop_shard(Shard(2)).unwrap();
    let dropped = store.changes();
    drop(engine);
    let last = store.changes();
    let seed = RandomState::new().hash_one(1);
    println!("{last} changes, seed {seed}");
    let mut random = Generator::new(seed);
    for round in 0..30 {
        let changes = if round == 0 { last } else { random.below(last + 1) };
        let torn = store.after(changes);
        let engine = open(torn.bucket());
        let kept = steps(&engine, Shard(1));
        let wanted = promised.iter().rev().find(|(at, _)| *at <= changes).map_or(0, |(_, number)| *number);
        assert!(kept >= wanted, "{kept} commits after {changes} changes, {wanted} were promised, seed {seed}");
        if changes >= dropped {
            engine.snapshot(Shard(2)).unwrap().state().expect_err("it was dropped");
        }
        step(&engine, Shard(1), kept, Durability::Synced);
        drop(engine);
        torn.remove("settee-coordinator");
        assert_eq!(steps(&open(torn.bucket()), Shard(1)), kept + 1, "after another start, seed {seed}");
    }
}
