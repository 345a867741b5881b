//! A small counting application on an engine that fails and crashes.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::conformance::{self, Generator};
use crate::{Direction, KeyRange, Keyspace};

/// Each step increments a total and adds an entry. Steps are identified by token.
struct Counter<'a> {
    engine: &'a dyn Engine,
    shard: Shard,
}

impl Counter<'_> {
    fn step(&self, durability: Durability) -> Result<u64> {
        loop {
            let total = self.total();
            let token = CommitToken(u128::from(total) + 1);
            let mut batch = Batch::new();
            batch.put(Keyspace::Catalog, b"total", &(total + 1).to_be_bytes());
            batch.put(Keyspace::Sequence, &(total + 1).to_be_bytes(), b"");
            match self.engine.commit(self.shard, Version(total), token, batch, durability)? {
                Outcome::Committed(version) => return Ok(version.0),
                Outcome::Conflict(_) => {}
                Outcome::Unknown => {
                    let state = self.engine.snapshot(self.shard)?.state()?;
                    if state.token == token {
                        return Ok(state.version.0);
                    }
                }
            }
        }
    }

    fn total(&self) -> u64 {
        let snapshot = self.engine.snapshot(self.shard).unwrap();
        if matches!(snapshot.state(), Err(StorageError::Dropped)) {
            return 0;
        }
        let total = snapshot.get(Keyspace::Catalog, b"total").unwrap();
        let total = total.map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap()));
        let state = snapshot.state().unwrap();
        assert_eq!(state, ShardState { version: Version(total), token: CommitToken(u128::from(total)) });
        let range = KeyRange::default();
        let mut cursor = snapshot.scan(Keyspace::Sequence, range, Direction::Forward, Expect::Few).unwrap();
        for wanted in 1..=total {
            assert_eq!(cursor.next().unwrap(), Some((&wanted.to_be_bytes()[..], &b""[..])));
        }
        assert_eq!(cursor.next().unwrap(), None);
        total
    }
}

fn totals(engine: &dyn Engine) -> [u64; 2] {
    [Shard(1), Shard(2)].map(|shard| Counter { engine, shard }.total())
}

fn broken() -> StorageError {
    StorageError::Io("broken".to_owned())
}

#[test]
fn conforms() {
    conformance::run_all(&|| Arc::new(FaultyEngine::new()));
}

#[test]
fn crash_images_hold_all_that_was_synced_and_a_prefix_of_the_rest() {
    for seed in 0..20 {
        println!("seed {seed}");
        let mut random = Generator::new(seed);
        let mut engine = FaultyEngine::new();
        let mut history = vec![[0, 0]];
        for _ in 0..60 {
            let shard = Shard(1 + random.below(2) as u64);
            match random.below(20) {
                0 => {
                    engine.sync().unwrap();
                    history.drain(..history.len() - 1);
                }
                1 => {
                    let images: Vec<_> = engine.crash_images().collect();
                    let kept = random.below(images.len());
                    assert_eq!(totals(&images[kept]), history[kept]);
                    engine = FaultyEngine::over(images.into_iter().nth(kept).unwrap());
                    history = vec![history[kept]];
                }
                2..8 => {
                    Counter { engine: &engine, shard }.step(Durability::Synced).unwrap();
                    history = vec![totals(&engine)];
                }
                _ => {
                    Counter { engine: &engine, shard }.step(Durability::Buffered).unwrap();
                    history.push(totals(&engine));
                }
            }
            let images: Vec<_> = engine.crash_images().map(|image| totals(&image)).collect();
            assert_eq!(images, history);
            assert_eq!(engine.unsynced() + 1, history.len());
        }
    }
}

#[test]
fn every_write_can_fail_or_lose_its_answer() {
    let faults = [WriteFault::Fail(broken()), WriteFault::LoseRequest, WriteFault::LoseAnswer];
    for fault in faults {
        for nth in 1..=6 {
            let engine = FaultyEngine::new();
            engine.inject_write(nth, fault.clone());
            let counter = Counter { engine: &engine, shard: Shard(1) };
            let mut failures = 0;
            for step in 0..6 {
                let durability = if step % 2 == 0 { Durability::Synced } else { Durability::Buffered };
                while let Err(error) = counter.step(durability) {
                    assert!(matches!(error, StorageError::Io(_)), "{error}");
                    failures += 1;
                }
            }
            assert_eq!(counter.total(), 6, "{fault:?} of write {nth}");
            let (wanted_failures, wanted_writes) = match fault {
                WriteFault::Fail(_) => (1, 7),
                WriteFault::LoseRequest => (0, 7),
                WriteFault::LoseAnswer => (0, 6),
            };
            assert_eq!((failures, engine.writes()), (wanted_failures, wanted_writes), "{fault:?} of write {nth}");
        }
    }
}

#[test]
fn a_failed_sync_poisons_and_leaves_the_commit_open() {
    let engine = FaultyEngine::new();
    let counter = Counter { engine: &engine, shard: Shard(1) };
    counter.step(Durability::Synced).unwrap();
    counter.step(Durability::Buffered).unwrap();
    engine.inject_sync(1, SyncFault::Fail(broken()));
    assert!(matches!(counter.step(Durability::Synced), Err(StorageError::Io(_))));
    assert_eq!(counter.total(), 2, "the failed commit is not visible");
    for durability in [Durability::Synced, Durability::Buffered] {
        assert!(matches!(counter.step(durability), Err(StorageError::Poisoned(_))), "{durability:?}");
    }
    assert!(matches!(engine.sync(), Err(StorageError::Poisoned(_))));
    assert!(matches!(engine.drop_shard(Shard(1)), Err(StorageError::Poisoned(_))));
    let images: Vec<_> = engine.crash_images().map(|image| totals(&image)[0]).collect();
    assert_eq!(images, [1, 2, 3], "the failed commit may survive");
    for image in engine.crash_images() {
        let total = totals(&image)[0];
        let engine = FaultyEngine::over(image);
        assert_eq!(Counter { engine: &engine, shard: Shard(1) }.step(Durability::Synced).unwrap(), total + 1);
    }
}

#[test]
fn a_skipped_sync_shows_as_a_lost_commit() {
    let acknowledged_is_kept = |engine: &FaultyEngine| {
        let acknowledged = Counter { engine, shard: Shard(1) }.step(Durability::Synced).unwrap();
        engine.crash_images().all(|image| totals(&image)[0] >= acknowledged)
    };
    let engine = FaultyEngine::new();
    assert!(acknowledged_is_kept(&engine));
    engine.inject_sync(1, SyncFault::Skip);
    assert!(!acknowledged_is_kept(&engine), "the check must detect a skipped sync");
    assert!(acknowledged_is_kept(&engine), "the next sync covers the skipped one");
}

#[test]
fn removals_are_durable_and_can_fail() {
    let prepare = || {
        let engine = FaultyEngine::new();
        for shard in [Shard(1), Shard(2)] {
            Counter { engine: &engine, shard }.step(Durability::Buffered).unwrap();
        }
        engine
    };
    let engine = prepare();
    engine.drop_shard(Shard(1)).unwrap();
    assert_eq!(engine.crash_images().map(|image| totals(&image)).collect::<Vec<_>>(), [[0, 1]]);

    for (fault, left) in
        [(WriteFault::Fail(broken()), [1, 1]), (WriteFault::LoseRequest, [1, 1]), (WriteFault::LoseAnswer, [0, 1])]
    {
        let engine = prepare();
        engine.inject_write(1, fault.clone());
        engine.drop_shard(Shard(1)).expect_err("a fault was injected");
        assert_eq!(totals(&engine), left, "{fault:?}");
        engine.drop_shard(Shard(1)).unwrap();
        assert_eq!(totals(&engine), [0, 1], "tried again after {fault:?}");
    }

    let engine = prepare();
    engine.inject_sync(1, SyncFault::Fail(broken()));
    engine.drop_shard(Shard(1)).expect_err("a fault was injected");
    let images: Vec<_> = engine.crash_images().map(|image| totals(&image)).collect();
    assert_eq!(images, [[0, 0], [1, 0], [1, 1], [0, 1]], "the removal may survive");
}

#[test]
fn reads_fail_where_it_was_asked_for() {
    let engine = FaultyEngine::new();
    let snapshot = engine.snapshot(Shard(1)).unwrap();
    engine.inject_read(2, broken());
    snapshot.state().unwrap();
    snapshot.state().unwrap_err();
    snapshot.state().unwrap();
    engine.fail_reads(2, broken());
    let mut cursor = snapshot.scan(Keyspace::Local, KeyRange::default(), Direction::Forward, Expect::Few).unwrap();
    cursor.next().unwrap();
    cursor.next().unwrap_err();
    engine.snapshot(Shard(2)).unwrap().get(Keyspace::Local, b"").unwrap_err();
    engine.clear_read_faults();
    cursor.next().unwrap();
}
