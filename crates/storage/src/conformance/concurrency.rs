//! Properties that need several threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::fixture::{Open, commit_at, entries, view};
use crate::{Batch, CommitToken, Durability, Engine, Keyspace, Outcome, Shard, Version};

const THREADS: u64 = 8;

pub fn commits_to_different_shards_all_happen(open: Open<'_>) {
    const COMMITS: u64 = 100;
    let engine = &*open();
    thread::scope(|scope| {
        for shard in 0..THREADS {
            scope.spawn(move || {
                for step in 0..COMMITS {
                    let mut batch = Batch::new();
                    batch.put(Keyspace::Sequence, &step.to_be_bytes(), &shard.to_be_bytes());
                    let token = CommitToken(u128::from(shard) << 64 | u128::from(step + 1));
                    let durability = if step % 10 == 0 { Durability::Synced } else { Durability::Buffered };
                    let outcome = engine.commit(Shard(shard), Version(step), token, batch, durability).expect("commit");
                    assert!(
                        matches!(outcome, Outcome::Committed(Version(version)) if version == step + 1)
                            || outcome == Outcome::Unknown,
                        "commit {step} of shard {shard}: {outcome:?}"
                    );
                }
            });
        }
    });
    for shard in 0..THREADS {
        let snapshot = view(engine, Shard(shard));
        let found = entries(&*snapshot, Keyspace::Sequence);
        let wanted: Vec<_> =
            (0..COMMITS).map(|step| (step.to_be_bytes().to_vec(), shard.to_be_bytes().to_vec())).collect();
        assert_eq!(found, wanted, "the commits of shard {shard}");
        assert_eq!(snapshot.state().expect("state").version, Version(COMMITS), "version of shard {shard}");
    }
}

pub fn commits_to_one_shard_lose_nothing(open: Open<'_>) {
    const COMMITS: u64 = 40;
    let engine = &*open();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for step in 0..COMMITS {
                    let key = [thread.to_be_bytes(), step.to_be_bytes()].concat();
                    let token = CommitToken(u128::from(thread) << 64 | u128::from(step + 1));
                    while !raise(engine, &key, token) {}
                }
            });
        }
    });
    let snapshot = view(engine, COUNTER);
    let value = snapshot.get(Keyspace::Catalog, b"counter").expect("get");
    assert_eq!(value, Some((THREADS * COMMITS).to_be_bytes().to_vec()), "the counter after all threads");
    let version = snapshot.state().expect("state").version;
    assert_eq!(version, Version(THREADS * COMMITS), "the version after all threads");
    assert_eq!(entries(&*snapshot, Keyspace::Local).len() as u64, THREADS * COMMITS, "keys of all threads");
}

const COUNTER: Shard = Shard(42);

fn raise(engine: &dyn Engine, key: &[u8], token: CommitToken) -> bool {
    let snapshot = view(engine, COUNTER);
    let version = snapshot.state().expect("state").version;
    let old = snapshot.get(Keyspace::Catalog, b"counter").expect("get");
    let old = old.map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().expect("a counter has eight bytes")));
    assert_eq!(old, version.0, "the counter of a snapshot belongs to its version");
    let mut batch = Batch::new();
    batch.put(Keyspace::Catalog, b"counter", &(old + 1).to_be_bytes());
    batch.put(Keyspace::Local, key, b"");
    match commit_at(engine, COUNTER, version, token, batch) {
        Ok(new) => {
            assert_eq!(new, Version(version.0 + 1), "the version after a commit");
            true
        }
        Err(_) => false,
    }
}

/// Readers see all of a batch or nothing, with the matching version, and versions never decrease.
pub fn readers_see_whole_batches(open: Open<'_>) {
    const COMMITS: u64 = 300;
    let engine = &*open();
    let shard = Shard(9);
    let done = &AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(move || {
                let mut last = 0;
                while !done.load(Ordering::Acquire) {
                    let snapshot = view(engine, shard);
                    let Version(version) = snapshot.state().expect("state").version;
                    assert!(version >= last, "version {version} was read after {last}");
                    last = version;
                    let wanted = (version > 0).then(|| version.to_be_bytes().to_vec());
                    for space in Keyspace::ALL {
                        let value = snapshot.get(space, b"key").expect("get");
                        assert_eq!(value, wanted, "{space:?} at version {version}");
                    }
                }
            });
        }
        for step in 0..COMMITS {
            let mut batch = Batch::new();
            for space in Keyspace::ALL {
                batch.put(space, b"key", &(step + 1).to_be_bytes());
            }
            commit_at(engine, shard, Version(step), CommitToken(u128::from(step + 1)), batch).expect("one writer");
        }
        done.store(true, Ordering::Release);
    });
}
