//! Crashes: killed processes, and logs that end anywhere after the last sync.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::thread;

use settee_storage::conformance::Generator;
use settee_storage::{Durability, Engine, Shard};

use crate::{child, open, step, steps};

const SHARDS: u64 = 4;

#[test]
fn commit_until_killed() {
    let Some(directory) = child::directory() else { return };
    let engine = &*open(&directory);
    thread::scope(|scope| {
        for shard in 0..SHARDS {
            scope.spawn(move || {
                for number in steps(engine, Shard(shard)).. {
                    step(
                        engine,
                        Shard(shard),
                        number,
                        if number % 3 == 0 { Durability::Buffered } else { Durability::Synced },
                    );
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
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = [0; SHARDS as usize];
    for round in 0..10 {
        let seed = RandomState::new().hash_one(round);
        println!("round {round}, seed {seed}");
        let lines_until_kill = 1 + Generator::new(seed).below(600);
        let mut child = child::command("crash::commit_until_killed", directory.path()).spawn().unwrap();
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
        let engine = open(directory.path());
        for (shard, promised) in (0..).zip(acknowledged) {
            let kept = steps(&engine, Shard(shard));
            assert!(kept >= promised, "shard {shard} has {kept} commits, {promised} were promised, seed {seed}");
        }
    }
}

#[test]
fn a_log_that_ends_anywhere_keeps_the_commits_before() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let engine = open(&store);
    let mut lengths = Vec::new();
    for number in 0..300 {
        let durability = if number % 4 == 0 { Durability::Buffered } else { Durability::Synced };
        step(&engine, Shard(1), number, durability);
        lengths.push((number + 1, durability, log(&store).metadata().unwrap().len()));
    }
    let whole = log(&store).metadata().unwrap().len();
    let seed = RandomState::new().hash_one(1);
    println!("seed {seed}");
    let mut random = Generator::new(seed);
    for round in 0..60 {
        let end = random.number() % (whole + 1);
        let torn = directory.path().join(round.to_string());
        copy(&store, &torn);
        let file = File::options().write(true).open(log(&torn)).unwrap();
        file.set_len(end).unwrap();
        if round % 2 == 0 {
            file.set_len(whole).unwrap();
        }
        let engine = open(&torn);
        let kept = steps(&engine, Shard(1));
        let promised = lengths.iter().rev().find(|(_, _, length)| *length <= end).map_or(0, |(number, ..)| *number);
        assert!(kept >= promised, "{kept} commits are left, {promised} lie within {end} bytes, seed {seed}");
        step(&engine, Shard(1), kept, Durability::Synced);
        engine.sync().unwrap();
        drop(engine);
        assert_eq!(steps(&open(&torn), Shard(1)), kept + 1, "after another start, seed {seed}");
        fs::remove_dir_all(torn).unwrap();
    }
}

fn log(store: &Path) -> PathBuf {
    loop {
        let paths = fs::read_dir(store).unwrap().filter_map(|entry| Some(entry.ok()?.path()));
        let logs: Vec<_> = paths.filter(|path| path.extension().is_some_and(|found| found == "log")).collect();
        if let [only] = logs.as_slice() {
            return only.clone();
        }
        thread::yield_now();
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}
