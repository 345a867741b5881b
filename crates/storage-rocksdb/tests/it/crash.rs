//! Crashes: killed processes, and logs that end anywhere after the last sync.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::thread;

use settee_storage::conformance::{self, Generator};
use settee_storage::{Durability, Engine, Shard};

use crate::{child, open, step, steps};

#[test]
fn commit_until_killed() {
    let Some(directory) = child::directory() else { return };
    conformance::commit_until_killed(&*open(&directory));
}

#[test]
fn a_killed_process_loses_nothing_that_it_acknowledged() {
    let store = tempfile::tempdir().unwrap();
    let child = || child::command("crash::commit_until_killed", store.path());
    conformance::kills_lose_nothing((10, 600), child, || open(store.path()));
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
