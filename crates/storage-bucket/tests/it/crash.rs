//! Crashes: killed processes, and stores as they are after any number of changes.

use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::thread;

use settee_storage::conformance::Generator;
use settee_storage::{Durability, Engine, Shard};

use crate::faulty::FaultyStore;
use crate::{child, directory, open, step, steps};

const SHARDS: u64 = 4;

#[test]
fn commit_until_killed() {
    let Some(path) = child::directory() else { return };
    let engine = &*open(directory(&path));
    thread::scope(|scope| {
        for shard in 0..SHARDS {
            scope.spawn(move || {
                for number in steps(engine, Shard(shard)).. {
                    let durability = if number % 3 == 0 { Durability::Buffered } else { Durability::Synced };
                    step(engine, Shard(shard), number, durability);
                    if number % 3 != 0 {
                        let line = format!("\nacknowledged {shard} {}\n", number + 1);
                        std::io::stdout().write_all(line.as_bytes()).unwrap();
                    }
                }
            });
        }
    });
}

#[test]
fn a_killed_process_loses_nothing_that_it_acknowledged() {
    let store = tempfile::tempdir().unwrap();
    let mut acknowledged = [0; SHARDS as usize];
    for round in 0..5 {
        let seed = RandomState::new().hash_one(round);
        println!("round {round}, seed {seed}");
        let lines_until_kill = 1 + Generator::new(seed).below(300);
        let mut child = child::command("crash::commit_until_killed", store.path()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut seen = 0;
        // The output is read to its end after the kill, because every printed commit was acknowledged.
        while let Some(Ok(line)) = lines.next() {
            let Some(numbers) = line.strip_prefix("acknowledged ") else {
                continue;
            };
            let (shard, number) = numbers.split_once(' ').unwrap();
            acknowledged[shard.parse::<usize>().unwrap()] = number.parse().unwrap();
            seen += 1;
            if seen == lines_until_kill {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(seen >= lines_until_kill, "the child ended by itself after {seen} commits, seed {seed}");
        let engine = open(directory(store.path()));
        for (shard, promised) in (0..).zip(acknowledged) {
            let kept = steps(&engine, Shard(shard));
            assert!(kept >= promised, "shard {shard} has {kept} commits, {promised} were promised, seed {seed}");
        }
    }
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
        torn.remove("settee-owner");
        assert_eq!(steps(&open(torn.bucket()), Shard(1)), kept + 1, "after another start, seed {seed}");
    }
}
